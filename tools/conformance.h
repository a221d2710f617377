/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Inside `rdmux conformance`: conformance.c runs the cases, conformance_judge.c makes rules of
 * their outcomes, conformance_report.c and conformance_html.c write them. */
#ifndef RDMUX_TOOL_CONFORMANCE_H
#define RDMUX_TOOL_CONFORMANCE_H

#include "tests/conformance/rules.h"
#include "tool.h"

enum conformance_format {
    FORMAT_TEXT,
    FORMAT_TAP,
    FORMAT_JUNIT,
    FORMAT_JSON,
    FORMAT_HTML,
};

enum case_outcome {
    CASE_PASSED,
    CASE_REFUSED, /* the path lacks what it needs and refuses it: passed as that */
    CASE_FAILED,
    CASE_FAILED_TO_REFUSE,
    CASE_LEFT_OUT,
};

struct case_result {
    const struct suite *suite;
    const struct conformance_case *test;
    enum case_outcome outcome;
    uint64_t took_ns;
    char rule[8];    /* of a failure: the one that is broken; "": any of those of the case */
    char *text;      /* of a failure, or of one that left itself out, lines; else NULL */
    char *replay;    /* of a failure: the command that runs it again */
    const char *why; /* of one left out */
};

/* What one provider did. */
struct provider_results {
    const char *name;
    struct provider_caps caps;
    struct case_result *cases;
    size_t count;
    uint64_t took_ns;
};

/* The whole run. */
struct conformance_run {
    struct provider_results *providers;
    size_t provider_count;
    uint64_t seed;
    const char *peer;   /* NULL: both sides ran here */
    const bool *wanted; /* of rule_count rules: whether it is reported */
};

enum rule_status { RULE_PASS, RULE_FAIL, RULE_NOT_ADVERTISED, RULE_NOT_RUN };

struct rule_result {
    enum rule_status status;
    bool native;      /* all that the rule needs is */
    bool emulated;    /* some of it is */
    unsigned cases;   /* that ran for it, refusals included */
    uint64_t took_ns; /* of these */
    const char *why;  /* not NULL: why it was not run or why it fails without a failed case */
};

struct rule_counts {
    unsigned passed;
    unsigned failed;
    unsigned not_advertised;
    unsigned not_run;
};

/* A rule is kept if a case exercised it and none that cites it failed. */
struct rule_result judge_rule(const struct provider_results *provider, const struct rule *rule);
struct rule_counts judge_all(const struct conformance_run *run,
                             const struct provider_results *provider);
/* Whether this failure is one of the rule. */
bool fails_rule(const struct case_result *result, const struct rule *rule);

/* "native", "emulated", "pass", "not advertised", "not run", "FAIL" */
const char *rule_cell(const struct rule_result *result);
const char *rule_status_name(enum rule_status status);

void report_text(const struct conformance_run *run, FILE *out);
/* What TAP ends with; its points were printed one by one. */
void report_tap(const struct conformance_run *run, FILE *out);
void report_json(const struct conformance_run *run, FILE *out);
void report_junit(const struct conformance_run *run, FILE *out);
void report_html(const struct conformance_run *run, FILE *out);
/* Writes text within XML or HTML, a line break as a reference. */
void report_escaped(FILE *out, const char *text);

#endif
