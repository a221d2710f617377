/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Credit accounting: granted never exceeds posted, and no sender waits forever. */
#include "providers/credits.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void each_receive_is_announced_once(void **state)
{
    (void)state;
    struct rdmux_credits_given given = { .posted = 10 };

    uint64_t first = rdmux_credits_tell(&given, 4);
    uint64_t second = rdmux_credits_tell(&given, 255);
    uint64_t third = rdmux_credits_tell(&given, 255);

    assert_int_equal(first, 4);
    assert_int_equal(second, 6);
    assert_int_equal(third, 0);
}

static void a_message_without_a_credit_is_detected(void **state)
{
    (void)state;
    struct rdmux_credits_given given = { .posted = 2 };

    bool untold = rdmux_credits_use(&given);
    (void)rdmux_credits_tell(&given, 1);
    bool told = rdmux_credits_use(&given);
    bool again = rdmux_credits_use(&given);

    assert_false(untold);
    assert_true(told);
    assert_false(again);
}

static void a_credit_message_is_due_when_half_the_credits_are_used(void **state)
{
    (void)state;
    struct rdmux_credits_given given = { .posted = 64 };
    assert_true(rdmux_credits_due(&given)); /* the peer has none */
    (void)rdmux_credits_tell(&given, 64);
    assert_false(rdmux_credits_due(&given));

    for (int used = 1; used < 32; used++) {
        assert_true(rdmux_credits_use(&given));
        given.posted++;
        assert_false(rdmux_credits_due(&given));
    }
    assert_true(rdmux_credits_use(&given));
    given.posted++;

    assert_true(rdmux_credits_due(&given));
}

static void no_credit_message_is_due_without_new_receives(void **state)
{
    (void)state;
    struct rdmux_credits_given given = { 0 };

    bool due = rdmux_credits_due(&given);

    assert_false(due);
}

static void a_single_receive_is_announced_at_once(void **state)
{
    (void)state;
    struct rdmux_credits_given given = { .posted = 1 };
    (void)rdmux_credits_tell(&given, 255);
    assert_true(rdmux_credits_use(&given));
    assert_false(rdmux_credits_due(&given));

    given.posted++;

    assert_true(rdmux_credits_due(&given));
}

static void a_sender_starts_no_more_messages_than_it_has_credits(void **state)
{
    (void)state;
    struct rdmux_credits_held held = { 0 };
    assert_false(rdmux_credits_take(&held));

    assert_true(rdmux_credits_add(&held, 2));

    assert_true(rdmux_credits_take(&held));
    assert_true(rdmux_credits_take(&held));
    assert_false(rdmux_credits_take(&held));
}

static void an_impossible_grant_is_refused(void **state)
{
    (void)state;
    struct rdmux_credits_held held = { .left = 1 };

    bool too_many = rdmux_credits_add(&held, RDMUX_CREDITS_MAX);
    bool wraps = rdmux_credits_add(&held, UINT64_MAX);

    assert_false(too_many);
    assert_false(wraps);
    assert_int_equal(held.left, 1);
}

static void shared_receives_are_promised_once(void **state)
{
    (void)state;
    struct rdmux_credits_pool pool = { 0 };
    struct rdmux_credits_given a = { 0 };
    struct rdmux_credits_given b = { 0 };
    const uint64_t receives = 6;

    uint64_t to_a = rdmux_credits_lend(&pool, &a, 4, receives, 1);
    uint64_t to_b = rdmux_credits_lend(&pool, &b, 4, receives, 1);
    uint64_t more = rdmux_credits_lend(&pool, &b, 4, receives, 1);

    assert_int_equal(to_a, 4);
    assert_int_equal(to_b, 2);
    assert_int_equal(more, 0);
    assert_int_equal(pool.promised, receives);
}

static void waiting_endpoints_share_the_receives_and_get_at_least_one(void **state)
{
    (void)state;
    struct rdmux_credits_pool pool = { 0 };
    struct rdmux_credits_given a = { 0 };
    struct rdmux_credits_given b = { 0 };

    uint64_t half = rdmux_credits_lend(&pool, &a, 64, 10, 2);
    uint64_t one = rdmux_credits_lend(&pool, &b, 64, 10, 100);

    assert_int_equal(half, 5);
    assert_int_equal(one, 1);
}

static void a_receive_taken_by_another_fabric_makes_no_promise_wrap(void **state)
{
    (void)state;
    struct rdmux_credits_pool pool = { 0 };
    struct rdmux_credits_given a = { 0 };
    assert_int_equal(rdmux_credits_lend(&pool, &a, 4, 4, 1), 4);

    uint64_t lent = rdmux_credits_lend(&pool, &a, 8, 2, 1);

    assert_int_equal(lent, 0);
    assert_int_equal(pool.promised, 4);
}

static void unused_credits_return_and_false_counts_of_them_are_refused(void **state)
{
    (void)state;
    struct rdmux_credits_pool pool = { 0 };
    struct rdmux_credits_given a = { 0 };
    assert_int_equal(rdmux_credits_lend(&pool, &a, 8, 8, 1), 8);
    assert_int_equal(rdmux_credits_tell(&a, 5), 5);
    assert_true(rdmux_credits_use_shared(&pool, &a));

    uint64_t untold = rdmux_credits_withdraw(&pool, &a);
    bool lie = rdmux_credits_return(&pool, &a, 5);
    bool truth = rdmux_credits_return(&pool, &a, 4);

    assert_int_equal(untold, 3);
    assert_false(lie);
    assert_true(truth);
    assert_int_equal(pool.promised, 0);
    assert_false(rdmux_credits_use_shared(&pool, &a));
}

static void the_credits_of_an_ended_endpoint_return(void **state)
{
    (void)state;
    struct rdmux_credits_pool pool = { 0 };
    struct rdmux_credits_given a = { 0 };
    struct rdmux_credits_given b = { 0 };
    assert_int_equal(rdmux_credits_lend(&pool, &a, 3, 8, 1), 3);
    assert_int_equal(rdmux_credits_lend(&pool, &b, 3, 8, 1), 3);
    assert_int_equal(rdmux_credits_tell(&a, 2), 2);

    uint64_t back = rdmux_credits_leave(&pool, &a);

    assert_int_equal(back, 3);
    assert_int_equal(pool.promised, 3);
}

static void an_endpoint_that_asks_again_gets_more_up_to_a_bound(void **state)
{
    (void)state;
    uint32_t level = 0;
    uint32_t last = 0;
    for (int i = 0; i < 20; i++) {
        level = rdmux_credits_level_up(level);
        assert_true(level > last || level == RDMUX_CREDITS_LEVEL_MAX);
        assert_true(level <= RDMUX_CREDITS_LEVEL_MAX);
        last = level;
    }
    assert_int_equal(level, RDMUX_CREDITS_LEVEL_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_receive_is_announced_once),
        cmocka_unit_test(a_message_without_a_credit_is_detected),
        cmocka_unit_test(a_credit_message_is_due_when_half_the_credits_are_used),
        cmocka_unit_test(no_credit_message_is_due_without_new_receives),
        cmocka_unit_test(a_single_receive_is_announced_at_once),
        cmocka_unit_test(a_sender_starts_no_more_messages_than_it_has_credits),
        cmocka_unit_test(an_impossible_grant_is_refused),
        cmocka_unit_test(shared_receives_are_promised_once),
        cmocka_unit_test(waiting_endpoints_share_the_receives_and_get_at_least_one),
        cmocka_unit_test(a_receive_taken_by_another_fabric_makes_no_promise_wrap),
        cmocka_unit_test(unused_credits_return_and_false_counts_of_them_are_refused),
        cmocka_unit_test(the_credits_of_an_ended_endpoint_return),
        cmocka_unit_test(an_endpoint_that_asks_again_gets_more_up_to_a_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
