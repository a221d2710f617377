/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Internals of `rdmux conformance`: conformance.c runs the cases, conformance_judge.c derives the
 * rules' results from the cases' outcomes, conformance_report.c and conformance_html.c write the
 * reports. */
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
    FORMAT_JSON_OBJECT, /* --json: one object, whatever the number of providers */
};

enum case_outcome {
    CASE_PASSED,
    CASE_REFUSED, /* the path lacks a need and refuses its use; counts as passed */
    CASE_FAILED,
    CASE_FAILED_TO_REFUSE,
    CASE_LEFT_OUT,
};

struct case_result {
    const struct suite *suite;
    const struct conformance_case *test;
    enum case_outcome outcome;
    bool is_run; /* also of a case that left itself out */
    uint64_t took_ns;
    char rule[8];    /* of a failure: the broken rule; "": any rule that the case cites */
    char *text;      /* of a failure or of a case that left itself out: lines; else NULL */
    char *replay;    /* of a failure: the command that repeats it */
    const char *why; /* of a case left out: the reason */
};

/* Results of one provider. */
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
    const bool *wanted; /* rule_count entries: whether the rule is reported */
};

enum rule_status { RULE_PASS, RULE_FAIL, RULE_NOT_ADVERTISED, RULE_NOT_RUN };

struct rule_result {
    enum rule_status status;
    bool native;      /* all needs of the rule are native */
    bool emulated;    /* some needs of the rule are emulated */
    unsigned cases;   /* cases that ran for the rule, refusals included */
    uint64_t took_ns; /* of these cases */
    const char *why;  /* why the rule was not run or fails without a failed case; else NULL */
};

struct rule_counts {
    unsigned passed;
    unsigned failed;
    unsigned not_advertised;
    unsigned not_run;
};

/* A rule passes if a case exercised it and no case that cites it failed. */
struct rule_result judge_rule(const struct provider_results *provider, const struct rule *rule);
struct rule_counts judge_all(const struct conformance_run *run,
                             const struct provider_results *provider);
/* Returns whether this failure breaks the rule. */
bool fails_rule(const struct case_result *result, const struct rule *rule);

/* Returns "native", "emulated", "pass", "not advertised", "not run" or "FAIL". */
const char *rule_cell(const struct rule_result *result);
const char *rule_status_name(enum rule_status status);

void report_text(const struct conformance_run *run, FILE *out);
/* Writes the end of the TAP output; its test points were printed one by one. */
void report_tap(const struct conformance_run *run, FILE *out);
/* An object for one provider, an array for several; report_json_object() writes one object for all.
 */
void report_json(const struct conformance_run *run, FILE *out);
void report_json_object(const struct conformance_run *run, FILE *out);
void report_junit(const struct conformance_run *run, FILE *out);
void report_html(const struct conformance_run *run, FILE *out);
/* Writes text inside XML or HTML, escaped, with line breaks as references. */
void report_escaped(FILE *out, const char *text);

#endif
