/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Work requests that complete out of order, and reads that are segmented. */
#include "iwarp/iwarp_order.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void a_write_says_nothing_of_the_read_before_it(void **state)
{
    (void)state;
    struct iwarp_order order = { 0, 0 };
    /* slots: 0 write, 1 read, 2 write */
    iwarp_order_note(&order, 2, false);
    assert_true(iwarp_order_is_done(&order, 0, false));
    assert_false(iwarp_order_is_done(&order, 1, true));
    assert_true(iwarp_order_is_done(&order, 2, false));
    assert_false(iwarp_order_is_done(&order, 3, false));
}

static void a_read_says_of_all_before_it_that_they_are_done_and_of_none_behind(void **state)
{
    (void)state;
    struct iwarp_order order = { 0, 0 };
    /* slots: 0 write, 1 read, 2 write, 3 read, 4 write */
    iwarp_order_note(&order, 3, true);
    assert_true(iwarp_order_is_done(&order, 0, false));
    assert_true(iwarp_order_is_done(&order, 1, true));
    assert_true(iwarp_order_is_done(&order, 2, false));
    assert_true(iwarp_order_is_done(&order, 3, true));
    assert_false(iwarp_order_is_done(&order, 4, false));
}

static void a_completion_that_comes_late_takes_nothing_back(void **state)
{
    (void)state;
    struct iwarp_order order = { 0, 0 };
    iwarp_order_note(&order, 5, false);
    iwarp_order_note(&order, 1, true);
    assert_true(iwarp_order_is_done(&order, 5, false));
    assert_true(iwarp_order_is_done(&order, 1, true));
    assert_false(iwarp_order_is_done(&order, 2, true));
}

/* Each kind alone for longer than half of the numbers that slots have. */
static void nothing_seems_done_however_long_the_other_kind_has_been_alone(void **state)
{
    (void)state;
    const uint32_t stride = UINT32_C(1) << 28;
    for (int is_read = 0; is_read < 2; is_read++) {
        struct iwarp_order order = { 0, 0 };
        uint32_t slot = 0;
        for (int i = 0; i < 40; i++, slot += stride) {
            iwarp_order_note(&order, slot, is_read != 0);
            assert_true(iwarp_order_is_done(&order, slot, is_read != 0));
            iwarp_order_advance(&order, slot + 1);
            assert_false(iwarp_order_is_done(&order, slot + 1, true));
            assert_false(iwarp_order_is_done(&order, slot + 1, false));
        }
    }
}

static void a_short_read_over_the_end_of_a_page_is_two_that_meet_there(void **state)
{
    (void)state;
    static const struct {
        uint64_t addr;
        uint64_t length;
        uint32_t parts;
    } cases[] = {
        { 0, 0, 0 },
        { IWARP_PAGE - 1, 0, 0 },
        { 0, 1, 1 },
        { IWARP_PAGE - 1, 1, 1 },
        { IWARP_PAGE - 1, 2, 2 },
        { IWARP_PAGE - 32, 32, 1 },
        { IWARP_PAGE - 31, 32, 2 },
        { UINT64_C(7) * IWARP_PAGE - 13, 25, 2 },
        { IWARP_PAGE - 1, IWARP_SHORT_READ, 2 },
        { IWARP_PAGE - 1, IWARP_SHORT_READ + 1, 1 }, /* no device takes it into the packet */
        { IWARP_PAGE - 1, UINT64_C(1) << 31, 1 },
        { UINT64_MAX - 20, 20, 1 },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(iwarp_read_parts(cases[i].addr, cases[i].length), cases[i].parts);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_write_says_nothing_of_the_read_before_it),
        cmocka_unit_test(a_read_says_of_all_before_it_that_they_are_done_and_of_none_behind),
        cmocka_unit_test(a_completion_that_comes_late_takes_nothing_back),
        cmocka_unit_test(nothing_seems_done_however_long_the_other_kind_has_been_alone),
        cmocka_unit_test(a_short_read_over_the_end_of_a_page_is_two_that_meet_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
