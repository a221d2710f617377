/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Work requests that complete out of order, and reads that are segmented. */
#include "iwarp/iwarp_order.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void the_completion_of_a_write_does_not_confirm_the_read_before_it(void **state)
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

static void the_completion_of_a_read_confirms_all_earlier_requests_and_no_later_one(void **state)
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

static void a_late_completion_takes_no_confirmation_back(void **state)
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
static void no_request_seems_done_after_a_long_run_of_the_other_kind(void **state)
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

static void a_short_read_across_a_page_boundary_is_split_at_the_boundary(void **state)
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
        cmocka_unit_test(the_completion_of_a_write_does_not_confirm_the_read_before_it),
        cmocka_unit_test(the_completion_of_a_read_confirms_all_earlier_requests_and_no_later_one),
        cmocka_unit_test(a_late_completion_takes_no_confirmation_back),
        cmocka_unit_test(no_request_seems_done_after_a_long_run_of_the_other_kind),
        cmocka_unit_test(a_short_read_across_a_page_boundary_is_split_at_the_boundary),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
