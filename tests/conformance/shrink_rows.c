/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Finds the fewest and simplest rows that still fail: the failed row alone if that is enough, else
 * with as few earlier rows as are needed. Then sets each choice of each row to its simplest
 * value. */
#include "generated.h"
#include "random.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    ROWS_MAX = 64, /* rows that fit a sequence's text */
    ROW_TEXT_MAX = 64,
};

struct search {
    const struct case_place *place;
    const char *provider;
    struct run_options options;
    const struct provider_caps *caps;
    uint64_t deadline_ns;
    struct row rows[ROWS_MAX]; /* the fewest rows that failed */
    size_t count;
    struct run_result *last; /* result of these rows */
    char *text;              /* their sequence */
};

/* Runs these rows. If they fail, keeps them and returns true. */
static bool fails(struct search *search, const struct row *rows, size_t count)
{
    static struct run_result result;
    static char text[SEQUENCE_TEXT_MAX];
    struct provider_caps caps = *search->caps;
    size_t used = 0;
    if (now_ns() > search->deadline_ns || count == 0) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        char row[ROW_TEXT_MAX];
        (void)row_print(&rows[i], row, sizeof(row));
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%sr%s", i == 0 ? "" : ",", row);
    }
    search->options.sequence = text;
    run_case(search->place, search->provider, &search->options, &caps, &result);
    if (!is_same_failure(search->last, &result)) {
        return false;
    }
    memmove(search->rows, rows, count * sizeof(*rows));
    search->count = count;
    memcpy(search->text, text, sizeof(text));
    *search->last = result;
    return true;
}

/* Tries the last row alone, then twice as many rows each time. rows: all up to the failed one. */
static bool find_some(struct search *search, const struct row *rows, size_t count)
{
    for (size_t some = 1; some <= ROWS_MAX; some *= 2) {
        size_t taken = some < count ? some : count;
        if (fails(search, rows + count - taken, taken)) {
            return true;
        }
        if (taken == count) {
            return false;
        }
    }
    return false;
}

static void take_rows_out(struct search *search)
{
    for (size_t i = 0; search->count > 1 && i < search->count;) {
        struct row rows[ROWS_MAX];
        memcpy(rows, search->rows, search->count * sizeof(*rows));
        memmove(rows + i, rows + i + 1, (search->count - i - 1) * sizeof(*rows));
        if (!fails(search, rows, search->count - 1)) {
            i++;
        }
    }
}

/* Tries the simplest value of these two choices of a row, which may be the same one. */
static void simplify_both(struct search *search, size_t index, unsigned one, unsigned other)
{
    struct row rows[ROWS_MAX];
    memcpy(rows, search->rows, search->count * sizeof(*rows));
    if (rows[index].values[one] == 0 || rows[index].values[other] == 0) {
        return;
    }
    rows[index].values[one] = 0;
    rows[index].values[other] = 0;
    if (row_is_valid(&generated_table, &rows[index])) {
        (void)fails(search, rows, search->count);
    }
}

/* Simplifies each choice, then each two: some can be at their simplest only together. */
static void simplify(struct search *search, size_t index)
{
    for (unsigned i = DIM_OP + 1; i < DIM_COUNT; i++) {
        simplify_both(search, index, i, i);
    }
    for (unsigned i = DIM_OP + 1; i < DIM_COUNT; i++) {
        for (unsigned k = i + 1; k < DIM_COUNT; k++) {
            simplify_both(search, index, i, k);
        }
    }
}

static void tell_in_words(const struct search *search, size_t all, struct run_result *result)
{
    size_t used = strlen(result->text);
    used += (size_t)snprintf(result->text + used, sizeof(result->text) - used,
                             "the simplest rows found that fail, %zu of %zu:\n", search->count,
                             all);
    for (size_t i = 0; i < search->count && used < sizeof(result->text); i++) {
        char words[REPORT_TEXT_MAX / 4];
        row_describe(&search->rows[i], words, sizeof(words));
        used += (size_t)snprintf(result->text + used, sizeof(result->text) - used, "  %s\n", words);
    }
}

void shrink_rows(const struct case_place *place, const char *provider,
                 const struct run_options *options, const struct provider_caps *caps,
                 uint64_t limit_ms, struct run_result *result, char sequence[SEQUENCE_TEXT_MAX])
{
    static struct search search;
    struct row *rows = NULL;
    struct row *ran = NULL;
    size_t count = 0;
    uint64_t took_ns = result->took_ns;
    size_t all = generated_rows((enum subject_op)place->test, options->thorough ? 3 : 2, &rows);
    search = (struct search){
        .place = place,
        .provider = provider,
        .options = *options,
        .caps = caps,
        .deadline_ns = now_ns() + limit_ms * 1000000,
        .last = result,
        .text = sequence,
    };
    sequence[0] = '\0';
    search.options.limit_s = TRY_LIMIT_S * options->patience;
    ran = all == 0 ? NULL : calloc(all, sizeof(*ran));
    for (size_t i = 0; ran != NULL && i < all && i < result->row; i++) {
        if (caps_missing(caps, row_needs(&rows[i])) == 0 &&
            !(options->quick && row_is_on_srq(&rows[i]))) {
            ran[count++] = rows[i];
        }
    }
    if (count > 0 && find_some(&search, ran, count)) {
        take_rows_out(&search);
        for (size_t i = 0; i < search.count; i++) {
            simplify(&search, i);
        }
        tell_in_words(&search, all, result);
    }
    result->took_ns = took_ns;
    free(ran);
    free(rows);
}
