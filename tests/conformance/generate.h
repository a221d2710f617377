/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Generates rows of a table of dimensions that cover every combination of two (or three) values
 * that an allowed row can have: a covering array, made row by row (Cohen, Dalal, Fredman and
 * Patton, "The AETG System", 1997). The same table gives the same rows everywhere. This code is
 * independent of rdmux.
 */
#ifndef CONFORMANCE_GENERATE_H
#define CONFORMANCE_GENERATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    GENERATE_DIMENSIONS_MAX = 16,
    GENERATE_VALUES_MAX = 32,
    GENERATE_STRENGTH_MAX = 3,
    GENERATE_ANY = 255, /* not chosen yet */
};

/* One choice of a row. Value 0 is the simplest; shortening a failed row moves towards it. */
struct dimension {
    const char *name;
    const char *const *values; /* in words */
    unsigned count;
};

struct row {
    uint8_t values[GENERATE_DIMENSIONS_MAX];
};

struct table {
    const struct dimension *dimensions;
    unsigned count;
    /* Returns false if the chosen values exclude each other, whatever values the other dimensions
     * get. */
    bool (*allowed)(const struct row *row);
};

/* Returns a row with no value chosen. */
struct row row_of_any(void);
/* Returns whether the row can be completed. *row is then complete, with the simplest values
 * first. */
bool row_complete(const struct table *table, struct row *row);
/* Returns whether every value belongs to its dimension and the row is allowed. */
bool row_is_valid(const struct table *table, const struct row *row);

/* Generates the rows that agree with the chosen values of `fixed`; 1 <= strength <=
 * GENERATE_STRENGTH_MAX. The caller frees *out. Returns the number of rows; 0 with *out NULL if
 * memory is short or no row is allowed. */
size_t generate_rows(const struct table *table, const struct row *fixed, unsigned strength,
                     struct row **out);

#endif
