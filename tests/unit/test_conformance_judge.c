/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The verdict on a rule from its cases. A rule that is advertised and was not exercised fails. A
 * rule that the path cannot show is not advertised. A rule whose cases were not requested was not
 * run. */
#include "tools/conformance.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define ALL_CAPS ((uint64_t)RDMUX_CAP_TARGET_PASSIVE * 2 - 1)

/* Rule 2.1 has a case that takes messages. Rule 6.1 has one that takes messages and one that takes
 * none. Rule 2.11 itself needs atomics, 10.1 does not. */
enum { MESSAGES, MIXED, WRITES, ATOMICS, LATE, CASES };

static const struct conformance_case the_cases[CASES] = {
    [MESSAGES] = { "2.1", "messages", NEEDS_SEND, 0, 0, NULL, NULL },
    [MIXED] = { "6.1, -6.1", "messages and writes", NEEDS_SEND | NEEDS_WRITE, 0, 0, NULL, NULL },
    [WRITES] = { "6.1", "writes", NEEDS_WRITE, 0, 0, NULL, NULL },
    [ATOMICS] = { "2.11, 10.1", "atomics", NEEDS_ATOMICS, 0, 0, NULL, NULL },
    [LATE] = { "10.1", "late writes", NEEDS_WRITE | NEEDS_SETTLED, 0, CASE_LONG, NULL, NULL },
};
static const struct suite the_suite = { "test", the_cases, CASES };
const struct suite *const suites[] = { &the_suite };
const size_t suite_count = COUNT_OF(suites);

struct ran {
    struct provider_results provider;
    struct case_result results[CASES];
};

/* A run, on a path with these capabilities, of the cases in `chosen`, one bit each: cases that the
 * path can show pass, the others are refused. */
static struct ran run_of(uint64_t caps, unsigned chosen)
{
    struct ran run = { .provider = { .name = "test",
                                     .caps = { .native = caps, .emulated = 0, .known = true } } };
    for (size_t i = 0; i < CASES; i++) {
        if ((chosen >> i & 1) != 0) {
            bool lacks = caps_missing(&run.provider.caps, the_cases[i].needs) != 0;
            run.results[run.provider.count++] = (struct case_result){
                .suite = &the_suite,
                .test = &the_cases[i],
                .outcome = lacks ? CASE_REFUSED : CASE_PASSED,
                .text = (char *)"",
            };
        }
    }
    return run;
}

static struct rule_result judge(struct ran *run, const char *rule)
{
    run->provider.cases = run->results;
    return judge_rule(&run->provider, rule_find(rule, strlen(rule)));
}

enum { EVERYTHING = (1 << CASES) - 1 };

static void a_rule_with_a_case_that_passed_is_kept(void **state)
{
    (void)state;
    struct ran run = run_of(ALL_CAPS, EVERYTHING);
    assert_int_equal(judge(&run, "2.1").status, RULE_PASS);
    assert_int_equal(judge(&run, "6.1").status, RULE_PASS);
    assert_int_equal(judge(&run, "6.1").cases, 2);
    assert_int_equal(judge(&run, "2.11").status, RULE_PASS);
    assert_true(judge(&run, "2.11").native);
}

static void a_rule_that_a_sparse_path_cannot_show_is_not_advertised(void **state)
{
    (void)state;
    struct ran run = run_of(NEEDS_WRITE | NEEDS_PLACED, EVERYTHING);
    assert_int_equal(judge(&run, "2.1").status, RULE_NOT_ADVERTISED);
    assert_null(judge(&run, "2.1").why);
    assert_int_equal(judge(&run, "6.1").status, RULE_PASS); /* by the case that takes writes alone */
    assert_int_equal(judge(&run, "2.11").status, RULE_NOT_ADVERTISED);
    assert_int_equal(judge(&run, "10.1").status, RULE_PASS);
}

static void a_path_without_placed_settles_writes_by_reads_or_not_at_all(void **state)
{
    (void)state;
    struct ran reads = run_of(NEEDS_WRITE | NEEDS_READ, EVERYTHING);
    struct ran neither = run_of(NEEDS_WRITE, EVERYTHING);
    assert_int_equal(judge(&reads, "10.1").status, RULE_PASS);
    assert_int_equal(judge(&neither, "10.1").status, RULE_NOT_ADVERTISED);
    assert_int_equal(caps_missing(&neither.provider.caps, NEEDS_SETTLED), NEEDS_PLACED | NEEDS_READ);
}

static void an_advertised_rule_without_a_case_fails(void **state)
{
    (void)state;
    struct ran never = run_of(ALL_CAPS, 0);
    assert_int_equal(judge(&never, "2.1").status, RULE_FAIL);
    assert_string_equal(judge(&never, "2.1").why, "it is advertised, but no case exercised it");
    assert_int_equal(judge(&never, "12.1").status, RULE_FAIL); /* no case cites it at all */
}

static void a_rule_whose_cases_were_skipped_or_not_selected_was_not_run(void **state)
{
    (void)state;
    struct ran run = run_of(ALL_CAPS & ~NEEDS_ATOMICS, EVERYTHING);
    run.results[LATE].outcome = CASE_LEFT_OUT;
    run.results[LATE].why = "left out by --quick";
    assert_int_equal(judge(&run, "10.1").status, RULE_NOT_RUN);
    assert_string_equal(judge(&run, "10.1").why, "left out by --quick");

    struct ran some = run_of(ALL_CAPS & ~NEEDS_ATOMICS, 1 << ATOMICS);
    assert_int_equal(judge(&some, "10.1").status, RULE_NOT_RUN);
    assert_non_null(judge(&some, "10.1").why);
    assert_int_equal(judge(&some, "2.11").status, RULE_NOT_ADVERTISED);
}

static void a_failed_case_breaks_its_rules_and_a_failed_refusal_breaks_the_refusal_rule(void **state)
{
    (void)state;
    struct ran run = run_of(ALL_CAPS, EVERYTHING);
    run.results[MIXED].outcome = CASE_FAILED;
    assert_int_equal(judge(&run, "6.1").status, RULE_FAIL);
    assert_null(judge(&run, "6.1").why);
    assert_int_equal(judge(&run, "2.1").status, RULE_PASS);

    struct ran sparse = run_of(ALL_CAPS & ~NEEDS_ATOMICS, EVERYTHING);
    sparse.results[ATOMICS].outcome = CASE_FAILED_TO_REFUSE;
    assert_int_equal(judge(&sparse, "N.10").status, RULE_FAIL);
    assert_int_equal(judge(&sparse, "2.11").status, RULE_FAIL);
    assert_int_equal(judge(&sparse, "10.1").status, RULE_PASS); /* it has another case */
}

static void a_provider_without_an_endpoint_was_not_run(void **state)
{
    (void)state;
    struct ran run = run_of(ALL_CAPS, 0);
    run.provider.caps.known = false;
    assert_int_equal(judge(&run, "2.1").status, RULE_NOT_RUN);
    assert_string_equal(judge(&run, "2.1").why, "no endpoint uses this provider");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rule_with_a_case_that_passed_is_kept),
        cmocka_unit_test(a_rule_that_a_sparse_path_cannot_show_is_not_advertised),
        cmocka_unit_test(a_path_without_placed_settles_writes_by_reads_or_not_at_all),
        cmocka_unit_test(an_advertised_rule_without_a_case_fails),
        cmocka_unit_test(a_rule_whose_cases_were_skipped_or_not_selected_was_not_run),
        cmocka_unit_test(
            a_failed_case_breaks_its_rules_and_a_failed_refusal_breaks_the_refusal_rule),
        cmocka_unit_test(a_provider_without_an_endpoint_was_not_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
