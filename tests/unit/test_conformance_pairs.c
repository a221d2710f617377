/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The generated cases of the conformance suite: the walk of their table covers all that it
 * promises. */
#include "tests/conformance/generate.h"
#include "tests/conformance/generated.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* -------------------------------------------------------------------------- a table to count by */

static const char *const letters[] = { "a", "b", "c", "d" };
static const struct dimension small_dimensions[] = {
    { "one", letters, 2 },
    { "two", letters, 3 },
    { "three", letters, 4 },
    { "four", letters, 3 },
};

static bool is(const struct row *row, unsigned dimension, unsigned value)
{
    return row->values[dimension] == value;
}

/* Value 1 of the first goes only with value 2 of the last, which never goes with 3 of the third. So
 * 1 of the first and 3 of the third exclude each other, which no constraint says directly. */
static bool small_allowed(const struct row *row)
{
    const bool last_is_chosen = row->values[3] != GENERATE_ANY;
    return !(is(row, 0, 1) && last_is_chosen && !is(row, 3, 2)) &&
           !(is(row, 2, 3) && is(row, 3, 2));
}

static const struct table small_table = { small_dimensions, 4, small_allowed };

static bool has_both(const struct row *row, unsigned a, unsigned i, unsigned b, unsigned j)
{
    return is(row, a, i) && is(row, b, j);
}

static void the_rows_contain_every_allowed_pair_and_no_other(void **state)
{
    (void)state;
    struct row *rows = NULL;
    const struct row any = row_of_any();
    size_t count = generate_rows(&small_table, &any, 2, &rows);
    assert_true(count >= 12); /* 3 times 4, at least */
    for (unsigned a = 0; a < 4; a++) {
        for (unsigned b = a + 1; b < 4; b++) {
            for (unsigned i = 0; i < small_dimensions[a].count; i++) {
                for (unsigned j = 0; j < small_dimensions[b].count; j++) {
                    const bool excluded = (a == 0 && i == 1 && b == 3 && j != 2) ||
                                          (a == 0 && i == 1 && b == 2 && j == 3) ||
                                          (a == 2 && i == 3 && b == 3 && j == 2);
                    bool found = false;
                    for (size_t k = 0; k < count; k++) {
                        found = found || has_both(&rows[k], a, i, b, j);
                    }
                    assert_int_equal(found, !excluded);
                }
            }
        }
    }
    free(rows);
}

static void the_rows_are_fewer_than_all_combinations(void **state)
{
    (void)state;
    struct row *rows = NULL;
    const struct row any = row_of_any();
    assert_in_range(generate_rows(&small_table, &any, 2, &rows), 1, 20); /* of 72 */
    free(rows);
}

static void a_fixed_value_stands_in_every_row(void **state)
{
    (void)state;
    struct row *rows = NULL;
    struct row fixed = row_of_any();
    fixed.values[0] = 1;
    size_t count = generate_rows(&small_table, &fixed, 2, &rows);
    assert_true(count > 0);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(rows[i].values[0], 1);
        assert_int_equal(rows[i].values[3], 2);
        assert_true(row_is_valid(&small_table, &rows[i]));
    }
    free(rows);
}

static bool nothing_allowed(const struct row *row)
{
    (void)row;
    return false;
}

static void a_table_without_an_allowed_row_has_none(void **state)
{
    (void)state;
    static const struct table table = { small_dimensions, 4, nothing_allowed };
    struct row *rows = NULL;
    const struct row any = row_of_any();
    assert_int_equal(generate_rows(&table, &any, 2, &rows), 0);
    assert_null(rows);
}

/* ----------------------------------------------------------------------- the table of the cases */

/* Tells whether a row with these values can be completed, with or without refused rows. */
static bool can_be(const struct row *given, bool refused_too)
{
    struct row row = *given;
    unsigned next = 0;
    if (!generated_table.allowed(&row) || (!refused_too && row_is_refused(&row))) {
        return false;
    }
    while (next < DIM_COUNT && row.values[next] != GENERATE_ANY) {
        next++;
    }
    for (unsigned value = 0; next < DIM_COUNT && value < generated_table.dimensions[next].count;
         value++) {
        row.values[next] = (uint8_t)value;
        if (can_be(&row, refused_too)) {
            return true;
        }
    }
    return next == DIM_COUNT;
}

/* One element for each pair of values of two dimensions. */
struct pairs {
    bool taken[DIM_COUNT][GENERATE_VALUES_MAX][DIM_COUNT][GENERATE_VALUES_MAX];
    bool any[DIM_COUNT][GENERATE_VALUES_MAX][DIM_COUNT][GENERATE_VALUES_MAX];
};

static void note_pairs(struct pairs *pairs, const struct row *row)
{
    for (unsigned a = 0; a < DIM_COUNT; a++) {
        for (unsigned b = a + 1; b < DIM_COUNT; b++) {
            pairs->any[a][row->values[a]][b][row->values[b]] = true;
            if (!row_is_refused(row)) {
                pairs->taken[a][row->values[a]][b][row->values[b]] = true;
            }
        }
    }
}

static void check_pairs(const struct pairs *pairs, unsigned op)
{
    for (unsigned a = 0; a < DIM_COUNT; a++) {
        for (unsigned b = a + 1; b < DIM_COUNT; b++) {
            for (unsigned i = 0; i < generated_table.dimensions[a].count; i++) {
                for (unsigned j = 0; j < generated_table.dimensions[b].count; j++) {
                    struct row row = row_of_any();
                    row.values[DIM_OP] = (uint8_t)op;
                    if (a == DIM_OP && i != op) {
                        continue;
                    }
                    row.values[a] = (uint8_t)i;
                    row.values[b] = (uint8_t)j;
                    if (can_be(&row, true) != pairs->any[a][i][b][j] ||
                        (can_be(&row, false) && !pairs->taken[a][i][b][j])) {
                        fail_msg("%s: \"%s\" with \"%s\"", generated_table.dimensions[0].values[op],
                                 generated_table.dimensions[a].values[i],
                                 generated_table.dimensions[b].values[j]);
                    }
                }
            }
        }
    }
}

/* A pair appears in a row that is carried out if there is one; a refused row covers only its
 * refusal. */
static void the_walk_contains_every_pair_of_choices_of_every_operation(void **state)
{
    (void)state;
    struct pairs *pairs = malloc(sizeof(*pairs));
    assert_non_null(pairs);
    for (unsigned op = 0; op < SUBJECT_OPS; op++) {
        struct row *rows = NULL;
        size_t count = generated_rows((enum subject_op)op, 2, &rows);
        assert_true(count > 0);
        memset(pairs, 0, sizeof(*pairs));
        for (size_t i = 0; i < count; i++) {
            assert_true(row_is_valid(&generated_table, &rows[i]));
            note_pairs(pairs, &rows[i]);
        }
        check_pairs(pairs, op);
        free(rows);
    }
    free(pairs);
}

static void the_walk_is_the_same_each_time(void **state)
{
    (void)state;
    struct row *rows[2] = { NULL, NULL };
    size_t count = generated_rows(SUBJECT_WRITE, 2, &rows[0]);
    assert_int_equal(generated_rows(SUBJECT_WRITE, 2, &rows[1]), count);
    assert_memory_equal(rows[0], rows[1], count * sizeof(*rows[0]));
    free(rows[0]);
    free(rows[1]);
}

static void a_printed_row_reads_back_as_the_same_row(void **state)
{
    (void)state;
    struct row *rows = NULL;
    size_t count = generated_rows(SUBJECT_SEND, 2, &rows);
    for (size_t i = 0; i < count; i++) {
        char text[128];
        struct row row;
        int length = row_print(&rows[i], text, sizeof(text));
        assert_int_equal(row_scan(text, &row), length);
        assert_memory_equal(row.values, rows[i].values, DIM_COUNT);
    }
    free(rows);
}

static void malformed_text_and_forbidden_rows_are_refused(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "",
        "1",
        "1.2",
        "0.0.0.0.0.0.0.0.0.0.0.0.0.0",
        "0.0.0.0.0.0.0.0.0.0.0.0.0.0.99",
        "0..0.0.0.0.0.0.0.0.0.0.0.0.0.0",
        "0.0.0.0.0.0.0.0.0.0.0.0.0.0.-1",
        "0.0.0.0.0.0.3.0.0.0.0.0.0.0.0", /* a send names no region */
    };
    struct row row;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        assert_int_equal(row_scan(texts[i], &row), 0);
    }
    assert_int_not_equal(row_scan("0.0.0.0.0.0.0.0.0.0.0.0.0.0.0", &row), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_rows_contain_every_allowed_pair_and_no_other),
        cmocka_unit_test(the_rows_are_fewer_than_all_combinations),
        cmocka_unit_test(a_fixed_value_stands_in_every_row),
        cmocka_unit_test(a_table_without_an_allowed_row_has_none),
        cmocka_unit_test(the_walk_contains_every_pair_of_choices_of_every_operation),
        cmocka_unit_test(the_walk_is_the_same_each_time),
        cmocka_unit_test(a_printed_row_reads_back_as_the_same_row),
        cmocka_unit_test(malformed_text_and_forbidden_rows_are_refused),
    };
    return cmocka_run_group_tests_name("conformance_pairs", tests, NULL, NULL);
}
