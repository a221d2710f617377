/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "conformance.h"

#include <string.h>

/* N.10 is the rule that operations not advertised are refused. */
static bool is_rule_of_refusal(const struct rule *rule)
{
    return strcmp(rule->id, "N.10") == 0;
}

bool fails_rule(const struct case_result *result, const struct rule *rule)
{
    switch (result->outcome) {
    case CASE_FAILED:
        return result->rule[0] != '\0' ? strcmp(result->rule, rule->id) == 0
                                       : case_cites(result->test, rule);
    case CASE_FAILED_TO_REFUSE:
        return is_rule_of_refusal(rule) || (case_cites(result->test, rule) && rule->needs != 0);
    case CASE_PASSED:
    case CASE_REFUSED:
    case CASE_LEFT_OUT:
        break;
    }
    return false;
}

/* Counts of the outcomes of a rule's cases. */
struct tally {
    unsigned passed;
    unsigned refused;
    unsigned left_out;
    unsigned possible; /* of all existing cases: cases that need no more than the path has */
    bool failed;
};

static struct tally tally_of(const struct provider_results *provider, const struct rule *rule)
{
    struct tally tally = { .failed = false };
    for (size_t i = 0; i < provider->count; i++) {
        const struct case_result *ran = &provider->cases[i];
        tally.failed = tally.failed || fails_rule(ran, rule);
        if (case_cites(ran->test, rule)) {
            tally.passed += ran->outcome == CASE_PASSED;
            tally.refused += ran->outcome == CASE_REFUSED;
            tally.left_out += ran->outcome == CASE_LEFT_OUT;
        }
    }
    for (size_t i = 0; i < suite_count; i++) {
        for (size_t j = 0; j < suites[i]->count; j++) {
            const struct conformance_case *test = &suites[i]->cases[j];
            tally.possible += case_cites(test, rule) &&
                              caps_missing(&provider->caps, test->needs) == 0;
        }
    }
    return tally;
}

/* A path that lacks an operation which every case of the rule needs cannot show the rule. */
static bool is_advertised(const struct provider_results *provider, const struct rule *rule,
                          const struct tally *tally)
{
    return caps_missing(&provider->caps, rule->needs) == 0 &&
           (caps_missing(&provider->caps, NEEDS_BASICS) == 0 || tally->possible > 0);
}

static enum rule_status status_of(const struct tally *tally, bool advertised, bool known)
{
    if (tally->failed) {
        return RULE_FAIL;
    }
    if (!known) {
        return RULE_NOT_RUN;
    }
    if (!advertised && tally->passed + tally->refused > 0) {
        return RULE_NOT_ADVERTISED;
    }
    if (tally->passed > 0) {
        return RULE_PASS;
    }
    /* The cases that could show the rule were not selected, or not possible here. */
    const bool is_partial = tally->left_out > 0 || (tally->refused > 0 && tally->possible > 0);
    return is_partial ? RULE_NOT_RUN : RULE_FAIL;
}

/* Returns the reason why a case of the rule was left out, or NULL. */
static const char *left_out_because(const struct provider_results *provider, const struct rule *rule)
{
    for (size_t i = 0; i < provider->count; i++) {
        const struct case_result *result = &provider->cases[i];
        if (result->outcome == CASE_LEFT_OUT && case_cites(result->test, rule)) {
            return result->why;
        }
    }
    return NULL;
}

static const char *why_not(const struct provider_results *provider, const struct rule *rule,
                           enum rule_status status, const struct tally *tally)
{
    if (status == RULE_NOT_RUN && !provider->caps.known) {
        return "no endpoint uses this provider";
    }
    if (status == RULE_NOT_RUN) {
        const char *why = left_out_because(provider, rule);
        return why != NULL ? why : "none of the cases that ran can show it on this path";
    }
    if (status == RULE_FAIL && !tally->failed) {
        return "it is advertised, but no case exercised it";
    }
    return NULL;
}

struct rule_result judge_rule(const struct provider_results *provider, const struct rule *rule)
{
    struct rule_result result = { .status = RULE_FAIL };
    const struct tally tally = tally_of(provider, rule);
    for (size_t i = 0; i < provider->count; i++) {
        const struct case_result *ran = &provider->cases[i];
        if (ran->outcome != CASE_LEFT_OUT && case_cites(ran->test, rule)) {
            result.cases++;
            result.took_ns += ran->took_ns;
        }
    }
    result.status = status_of(&tally, is_advertised(provider, rule, &tally), provider->caps.known);
    result.why = why_not(provider, rule, result.status, &tally);
    result.emulated = (rule->needs & provider->caps.emulated) != 0;
    result.native = rule->needs != 0 && !result.emulated;
    return result;
}

struct rule_counts judge_all(const struct conformance_run *run,
                             const struct provider_results *provider)
{
    struct rule_counts counts = { 0 };
    for (size_t i = 0; i < rule_count; i++) {
        if (!run->wanted[i]) {
            continue;
        }
        switch (judge_rule(provider, &rules[i]).status) {
        case RULE_PASS:
            counts.passed++;
            break;
        case RULE_FAIL:
            counts.failed++;
            break;
        case RULE_NOT_ADVERTISED:
            counts.not_advertised++;
            break;
        case RULE_NOT_RUN:
            counts.not_run++;
            break;
        }
    }
    return counts;
}

const char *rule_status_name(enum rule_status status)
{
    static const char *const names[] = {
        [RULE_PASS] = "pass",
        [RULE_FAIL] = "fail",
        [RULE_NOT_ADVERTISED] = "not_advertised",
        [RULE_NOT_RUN] = "not_run",
    };
    return names[status];
}

const char *rule_cell(const struct rule_result *result)
{
    switch (result->status) {
    case RULE_FAIL:
        return "FAIL";
    case RULE_NOT_ADVERTISED:
        return "not advertised";
    case RULE_NOT_RUN:
        return "not run";
    case RULE_PASS:
        break;
    }
    return result->native ? "native" : result->emulated ? "emulated" : "pass";
}
