/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Timer codes derived from the liveness time. */
#include "verbs/verbs_timing.h"

#include <rdmux/rdmux.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void a_silent_peer_is_given_up_within_the_liveness_time(void **state)
{
    (void)state;
    /* From the first time that the shortest code can meet. */
    for (uint32_t liveness_ms = 128; liveness_ms < 100000; liveness_ms += 1 + liveness_ms / 50) {
        uint32_t code = rdmux_verbs_ack_code(liveness_ms, 0);

        assert_true(rdmux_verbs_give_up_longest_ns(code, VERBS_RETRY_COUNT) <=
                    liveness_ms * UINT64_C(1000000));
        assert_true(code == VERBS_ACK_CODE_MAX ||
                    rdmux_verbs_give_up_longest_ns(code + 1, VERBS_RETRY_COUNT) >
                        liveness_ms * UINT64_C(1000000));
    }
}

static void codes_stay_within_their_bounds(void **state)
{
    (void)state;
    static const uint32_t times[] = { 0, 1, 100, 1000, 10000, 600000, RDMUX_NEVER - 1, RDMUX_NEVER };
    for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++) {
        uint32_t code = rdmux_verbs_ack_code(times[i], 0);
        assert_in_range(code, VERBS_ACK_CODE_MIN, VERBS_ACK_CODE_MAX); /* 0 would wait forever */
    }
    assert_int_equal(rdmux_verbs_ack_code(RDMUX_NEVER, 0), VERBS_ACK_CODE_MAX);
    assert_int_equal(rdmux_verbs_ack_code(1, 0), VERBS_ACK_CODE_MIN);
}

static void the_default_liveness_time_gives_what_is_documented(void **state)
{
    (void)state;
    uint32_t code = rdmux_verbs_ack_code(10000, 0);

    assert_int_equal(code, 16);
    assert_true(rdmux_verbs_ack_ns(code) == UINT64_C(268435456));
    assert_int_equal(rdmux_verbs_retries(10000, code, true), 6);
    assert_true(rdmux_verbs_give_up_ns(code, 6) == UINT64_C(268435456) * 7);
}

static void a_peers_device_gets_the_time_it_asks_for(void **state)
{
    (void)state;
    assert_int_equal(rdmux_verbs_ack_code(100, 15), 16);
    assert_int_equal(rdmux_verbs_ack_code(10000, 15), 16);
    assert_int_equal(rdmux_verbs_ack_code(10000, 17), 18);
    assert_int_equal(rdmux_verbs_ack_code(10000, 31), 31); /* five bits */
}

/* Soft RoCE says that it needs 134 ms, so one try takes 268: seven of them would be 1.9 s. */
static void long_tries_are_fewer(void **state)
{
    (void)state;
    static const struct {
        uint32_t liveness_ms;
        uint32_t retries;
    } cases[] = { { 1, 1 },    { 400, 1 },  { 800, 1 },   { 806, 2 },        { 1500, 4 },
                  { 1879, 5 }, { 1880, 6 }, { 10000, 6 }, { RDMUX_NEVER, 6 } };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const uint32_t liveness_ms = cases[i].liveness_ms;
        const uint32_t code = rdmux_verbs_ack_code(liveness_ms, 15);
        const uint32_t retries = rdmux_verbs_retries(liveness_ms, code, true);
        assert_int_equal(rdmux_verbs_retries(liveness_ms, code, false), 6);
        if (liveness_ms == RDMUX_NEVER) {
            assert_int_equal(retries, cases[i].retries);
            continue;
        }
        assert_int_equal(code, 16);
        assert_int_equal(retries, cases[i].retries);
        assert_true(retries == 1 ||
                    rdmux_verbs_give_up_ns(code, retries) <= liveness_ms * UINT64_C(1000000));
    }
}

static void a_missing_receive_costs_little(void **state)
{
    (void)state;
    static const struct {
        uint32_t liveness_ms;
        uint32_t code;
    } cases[] = { { 0, 1 }, { 1, 1 }, { 20, 2 }, { 100, 6 }, { 10000, 7 }, { RDMUX_NEVER, 7 } };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint32_t code = rdmux_verbs_rnr_code(cases[i].liveness_ms);
        assert_int_equal(code, cases[i].code);
        assert_true(rdmux_verbs_rnr_ns(code) <= 120000);
    }
}

static void rnr_codes_have_the_meaning_of_the_specification(void **state)
{
    (void)state;
    static const struct {
        uint32_t code;
        uint64_t us;
    } cases[] = { { 0, 655360 }, { 1, 10 },    { 7, 120 },     { 12, 640 },
                  { 13, 960 },   { 18, 5120 }, { 30, 327680 }, { 31, 491520 } };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_true(rdmux_verbs_rnr_ns(cases[i].code) == cases[i].us * 1000);
    }
    for (uint32_t code = 1; code + 1 < 32; code++) {
        assert_true(rdmux_verbs_rnr_ns(code) < rdmux_verbs_rnr_ns(code + 1));
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_silent_peer_is_given_up_within_the_liveness_time),
        cmocka_unit_test(codes_stay_within_their_bounds),
        cmocka_unit_test(the_default_liveness_time_gives_what_is_documented),
        cmocka_unit_test(a_peers_device_gets_the_time_it_asks_for),
        cmocka_unit_test(long_tries_are_fewer),
        cmocka_unit_test(a_missing_receive_costs_little),
        cmocka_unit_test(rnr_codes_have_the_meaning_of_the_specification),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
