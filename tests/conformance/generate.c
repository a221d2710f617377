/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "generate.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* A combination of `strength` dimensions. `first` is where its tuples begin in walk.covered. */
struct combination {
    uint8_t dimensions[GENERATE_STRENGTH_MAX];
    size_t first;
    size_t count;
};

enum { COMBINATIONS_MAX = 560 }; /* 16 choose 3 */

struct walk {
    const struct table *table;
    unsigned strength;
    struct combination combinations[COMBINATIONS_MAX];
    size_t combination_count;
    uint8_t *covered; /* for each tuple: 1 if a row has it or no row can */
    size_t tuple_count;
    uint64_t turn; /* breaks ties, in the same way each time */
};

struct row row_of_any(void)
{
    struct row row;
    memset(row.values, GENERATE_ANY, sizeof(row.values));
    return row;
}

bool row_complete(const struct table *table, struct row *row)
{
    if (!table->allowed(row)) {
        return false;
    }
    unsigned next = 0;
    while (next < table->count && row->values[next] != GENERATE_ANY) {
        next++;
    }
    if (next == table->count) {
        return true;
    }
    struct row tried = *row;
    for (unsigned value = 0; value < table->dimensions[next].count; value++) {
        tried.values[next] = (uint8_t)value;
        struct row whole = tried;
        if (row_complete(table, &whole)) {
            *row = whole;
            return true;
        }
    }
    return false;
}

bool row_is_valid(const struct table *table, const struct row *row)
{
    for (unsigned i = 0; i < table->count; i++) {
        if (row->values[i] >= table->dimensions[i].count) {
            return false;
        }
    }
    return table->allowed(row);
}

static bool can_complete(const struct table *table, const struct row *row)
{
    struct row whole = *row;
    return row_complete(table, &whole);
}

/* ------------------------------------------------------------------------------------- tuples */

static void add_combination(struct walk *walk, const uint8_t *dimensions)
{
    struct combination *combination = &walk->combinations[walk->combination_count++];
    combination->first = walk->tuple_count;
    combination->count = 1;
    for (unsigned i = 0; i < walk->strength; i++) {
        combination->dimensions[i] = dimensions[i];
        combination->count *= walk->table->dimensions[dimensions[i]].count;
    }
    walk->tuple_count += combination->count;
}

static void add_combinations(struct walk *walk, uint8_t *dimensions, unsigned depth, unsigned from)
{
    if (depth == walk->strength) {
        add_combination(walk, dimensions);
        return;
    }
    for (unsigned i = from; i < walk->table->count; i++) {
        dimensions[depth] = (uint8_t)i;
        add_combinations(walk, dimensions, depth + 1, i + 1);
    }
}

/* Puts the values of a combination's tuple number `tuple` into a row. */
static void put_tuple(const struct walk *walk, const struct combination *combination, size_t tuple,
                      struct row *row)
{
    for (unsigned i = walk->strength; i-- > 0;) {
        unsigned dimension = combination->dimensions[i];
        size_t count = walk->table->dimensions[dimension].count;
        row->values[dimension] = (uint8_t)(tuple % count);
        tuple /= count;
    }
}

/* Returns the index of the row's tuple in walk.covered. Returns false if one of its values is not
 * chosen. */
static bool tuple_of(const struct walk *walk, const struct combination *combination,
                     const struct row *row, size_t *out)
{
    size_t tuple = 0;
    for (unsigned i = 0; i < walk->strength; i++) {
        unsigned dimension = combination->dimensions[i];
        if (row->values[dimension] == GENERATE_ANY) {
            return false;
        }
        tuple = tuple * walk->table->dimensions[dimension].count + row->values[dimension];
    }
    *out = combination->first + tuple;
    return true;
}

/* Marks tuples that no row can have as covered. */
static void drop_impossible(struct walk *walk, const struct row *fixed)
{
    for (size_t i = 0; i < walk->combination_count; i++) {
        const struct combination *combination = &walk->combinations[i];
        for (size_t tuple = 0; tuple < combination->count; tuple++) {
            struct row row = *fixed;
            put_tuple(walk, combination, tuple, &row);
            bool agrees = true;
            for (unsigned j = 0; j < walk->table->count; j++) {
                agrees = agrees &&
                         (fixed->values[j] == GENERATE_ANY || fixed->values[j] == row.values[j]);
            }
            walk->covered[combination->first + tuple] = !agrees || !can_complete(walk->table, &row);
        }
    }
}

/* --------------------------------------------------------------------------------------- rows */

static uint64_t next_turn(struct walk *walk)
{
    walk->turn = walk->turn * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return walk->turn >> 33;
}

/* Returns how many tuples with this dimension the row adds to those covered. */
static unsigned gain_of(const struct walk *walk, const struct row *row, unsigned dimension)
{
    unsigned gain = 0;
    for (size_t i = 0; i < walk->combination_count; i++) {
        const struct combination *combination = &walk->combinations[i];
        bool has = false;
        for (unsigned j = 0; j < walk->strength; j++) {
            has = has || combination->dimensions[j] == dimension;
        }
        size_t place = 0;
        gain += has && tuple_of(walk, combination, row, &place) && walk->covered[place] == 0;
    }
    return gain;
}

static void choose(struct walk *walk, struct row *row, unsigned dimension)
{
    unsigned count = walk->table->dimensions[dimension].count;
    unsigned start = (unsigned)(next_turn(walk) % count);
    unsigned best_gain = 0;
    uint8_t best = GENERATE_ANY;
    for (unsigned i = 0; i < count; i++) {
        struct row tried = *row;
        tried.values[dimension] = (uint8_t)((start + i) % count);
        unsigned gain = gain_of(walk, &tried, dimension);
        if ((best == GENERATE_ANY || gain > best_gain) && can_complete(walk->table, &tried)) {
            best = tried.values[dimension];
            best_gain = gain;
        }
    }
    row->values[dimension] = best;
}

static void cover(struct walk *walk, const struct row *row)
{
    for (size_t i = 0; i < walk->combination_count; i++) {
        size_t place = 0;
        if (tuple_of(walk, &walk->combinations[i], row, &place)) {
            walk->covered[place] = 1;
        }
    }
}

/* Makes the row that begins with the first missing tuple. Returns false if none is missing. */
static bool next_row(struct walk *walk, const struct row *fixed, size_t *from, struct row *out)
{
    for (; *from < walk->combination_count; ++*from) {
        const struct combination *combination = &walk->combinations[*from];
        for (size_t tuple = 0; tuple < combination->count; tuple++) {
            if (walk->covered[combination->first + tuple] == 0) {
                *out = *fixed;
                put_tuple(walk, combination, tuple, out);
                unsigned start = (unsigned)(next_turn(walk) % walk->table->count);
                for (unsigned i = 0; i < walk->table->count; i++) {
                    unsigned dimension = (start + i) % walk->table->count;
                    if (out->values[dimension] == GENERATE_ANY) {
                        choose(walk, out, dimension);
                    }
                }
                cover(walk, out);
                return true;
            }
        }
    }
    return false;
}

size_t generate_rows(const struct table *table, const struct row *fixed, unsigned strength,
                     struct row **out)
{
    static const uint64_t first_turn = 20;
    struct walk *walk = calloc(1, sizeof(*walk));
    struct row *rows = NULL;
    size_t count = 0;
    size_t from = 0;
    *out = NULL;
    if (walk == NULL) {
        return 0;
    }
    uint8_t dimensions[GENERATE_STRENGTH_MAX] = { 0 };
    walk->table = table;
    walk->strength = strength;
    walk->turn = first_turn;
    add_combinations(walk, dimensions, 0, 0);
    assert(walk->tuple_count > 0);
    walk->covered = calloc(walk->tuple_count, 1);
    rows = calloc(walk->tuple_count, sizeof(*rows)); /* each row adds at least one missing tuple */
    if (walk->covered != NULL && rows != NULL) {
        drop_impossible(walk, fixed);
        while (next_row(walk, fixed, &from, &rows[count])) {
            count++;
        }
    }
    if (count > 0) {
        *out = rows;
    } else {
        free(rows);
    }
    free(walk->covered);
    free(walk);
    return count;
}
