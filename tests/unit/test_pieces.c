/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Scatter/gather lists: the pieces and the list of any range, and copies from and to any range, whether the list
 * has one entry or several. test_software.c has the ranges that exceed a list. */
#include "api/base/pieces.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { LETTERS = 6, LIST_MAX = 3, SHAPES = 2 };

static const char letters[] = "abcdef";

/* The letters in one entry, or in entries of 2, 0 and 4 bytes, with guards around. */
struct list {
    char bytes[16];
    const char *full; /* `bytes` with all letters */
    size_t places[LETTERS];
    size_t count;
    struct rdmux_provider_sge sges[LIST_MAX];
};

static void make_list(struct list *list, int shape)
{
    memset(list, 0, sizeof(*list));
    if (shape == 0) {
        list->full = "<abcdef>";
        list->count = 1;
        list->sges[0] = (struct rdmux_provider_sge){ .addr = list->bytes + 1, .length = 6 };
    } else {
        list->full = "<ab><><cdef>";
        list->count = 3;
        list->sges[0] = (struct rdmux_provider_sge){ .addr = list->bytes + 1, .length = 2 };
        list->sges[1] = (struct rdmux_provider_sge){ .addr = list->bytes + 5, .length = 0 };
        list->sges[2] = (struct rdmux_provider_sge){ .addr = list->bytes + 7, .length = 4 };
    }
    for (size_t i = 0; i < LETTERS; i++) {
        list->places[i] = (size_t)(strchr(list->full, letters[i]) - list->full);
    }
    memcpy(list->bytes, list->full, strlen(list->full));
}

static void any_range_is_gathered(void **state)
{
    (void)state;
    for (int shape = 0; shape < SHAPES; shape++) {
        struct list list;
        make_list(&list, shape);
        for (uint64_t from = 0; from <= LETTERS; from++) {
            for (uint64_t length = 0; from + length <= LETTERS; length++) {
                char out[LETTERS + 2] = "-------";
                rdmux_gather(list.sges, list.count, from, out, length);
                assert_memory_equal(out, letters + from, length);
                assert_int_equal(out[length], '-');
            }
        }
    }
}

static void any_range_is_scattered_and_no_byte_beside_it(void **state)
{
    (void)state;
    for (int shape = 0; shape < SHAPES; shape++) {
        for (uint64_t from = 0; from <= LETTERS; from++) {
            for (uint64_t length = 0; from + length <= LETTERS; length++) {
                struct list list;
                make_list(&list, shape);
                char expected[sizeof(list.bytes)];
                memcpy(expected, list.bytes, sizeof(expected));
                for (uint64_t i = 0; i < length; i++) {
                    expected[list.places[from + i]] = (char)('1' + i);
                }
                rdmux_scatter(list.sges, list.count, from, "123456", length);
                assert_memory_equal(list.bytes, expected, sizeof(expected));
            }
        }
    }
}

static void the_pieces_of_any_range_hold_its_bytes(void **state)
{
    (void)state;
    for (int shape = 0; shape < SHAPES; shape++) {
        struct list list;
        make_list(&list, shape);
        const struct rdmux_request request = { .sges = list.sges,
                                               .sge_count = (uint16_t)list.count };
        for (uint64_t from = 0; from <= LETTERS; from++) {
            for (uint64_t length = 0; from + length <= LETTERS; length++) {
                struct iovec pieces[RDMUX_SGE_MAX];
                size_t count = rdmux_pieces(&request, from, length, pieces);
                uint64_t seen = 0;
                for (size_t i = 0; i < count; i++) {
                    assert_true(pieces[i].iov_len > 0);
                    assert_memory_equal(pieces[i].iov_base, letters + from + seen,
                                        pieces[i].iov_len);
                    seen += pieces[i].iov_len;
                }
                assert_int_equal(seen, length);
            }
        }
    }
}

static void a_slice_is_a_list_of_the_same_bytes_and_regions(void **state)
{
    (void)state;
    for (int shape = 0; shape < SHAPES; shape++) {
        struct list list;
        make_list(&list, shape);
        struct rdmux_provider_mr regions[LIST_MAX];
        for (size_t i = 0; i < list.count; i++) {
            list.sges[i].mr = &regions[i];
        }
        const struct rdmux_request request = { .sges = list.sges,
                                               .sge_count = (uint16_t)list.count };
        for (uint64_t from = 0; from <= LETTERS; from++) {
            for (uint64_t length = 0; from + length <= LETTERS; length++) {
                struct rdmux_provider_sge slice[RDMUX_SGE_MAX];
                size_t count = rdmux_slice(&request, from, length, slice);
                uint64_t seen = 0;
                for (size_t i = 0; i < count; i++) {
                    const char *begin = slice[i].addr;
                    const size_t last = list.count - 1;
                    const bool in_last = begin >= (const char *)list.sges[last].addr;
                    assert_ptr_equal(slice[i].mr, in_last ? &regions[last] : &regions[0]);
                    assert_memory_equal(begin, letters + from + seen, slice[i].length);
                    seen += slice[i].length;
                }
                assert_int_equal(seen, length);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_range_is_gathered),
        cmocka_unit_test(any_range_is_scattered_and_no_byte_beside_it),
        cmocka_unit_test(the_pieces_of_any_range_hold_its_bytes),
        cmocka_unit_test(a_slice_is_a_list_of_the_same_bytes_and_regions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
