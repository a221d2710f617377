/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "conformance.h"

#include <string.h>

static uint64_t missing_of(const struct provider_results *provider, uint64_t needs)
{
    return provider->caps.known ? needs & ~(provider->caps.native | provider->caps.emulated) : 0;
}

/* That what is not advertised is refused is a rule of its own. */
static bool is_rule_of_refusal(const struct rule *rule)
{
    return strcmp(rule->id, "N.10") == 0;
}

bool fails_rule(const struct case_result *result, const struct rule *rule)
{
    switch (result->outcome) {
    case CASE_FAILED:
        return case_cites(result->test, rule);
    case CASE_FAILED_TO_REFUSE:
        return is_rule_of_refusal(rule) || (case_cites(result->test, rule) && rule->needs != 0);
    case CASE_PASSED:
    case CASE_REFUSED:
    case CASE_LEFT_OUT:
        break;
    }
    return false;
}

static enum rule_status status_of(const struct rule_result *result, bool advertised, bool failed,
                                  unsigned passed)
{
    if (failed) {
        return RULE_FAIL;
    }
    if (!advertised && result->cases > 0) {
        return RULE_NOT_ADVERTISED;
    }
    if (passed > 0) {
        return RULE_PASS;
    }
    return result->why != NULL ? RULE_NOT_RUN : RULE_FAIL;
}

struct rule_result judge_rule(const struct provider_results *provider, const struct rule *rule)
{
    struct rule_result result = { .status = RULE_FAIL };
    bool advertised = missing_of(provider, rule->needs) == 0;
    bool failed = false;
    unsigned passed = 0;
    for (size_t i = 0; i < provider->count; i++) {
        const struct case_result *ran = &provider->cases[i];
        failed = failed || fails_rule(ran, rule);
        if (!case_cites(ran->test, rule)) {
            continue;
        }
        if (ran->outcome == CASE_LEFT_OUT) {
            result.why = ran->why;
            continue;
        }
        result.cases++;
        result.took_ns += ran->took_ns;
        passed += ran->outcome == CASE_PASSED;
    }
    result.status = status_of(&result, advertised, failed, passed);
    if (!provider->caps.known && !failed) {
        result.status = RULE_NOT_RUN;
        result.why = "no endpoint uses this provider";
    } else if (result.status == RULE_FAIL && !failed) {
        result.why = "it is advertised, but no case exercised it";
    } else if (result.status != RULE_NOT_RUN) {
        result.why = NULL;
    }
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
