/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Rows of a table of dimensions that have every combination of two (or three) values which some
 * allowed row has: a covering array, made row by row (Cohen, Dalal, Fredman and Patton, "The AETG
 * System", 1997). The same table gives the same rows everywhere. Nothing here knows of rdmux.
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

/* One choice of a row. Value 0 is the simplest; shortening a failed row tends to it. */
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
    /* False: the values that are chosen exclude each other, whatever the others may be. */
    bool (*allowed)(const struct row *row);
};

/* A row with nothing chosen. */
struct row row_of_any(void);
/* Whether the row can be completed; *row is then a complete one, the simplest values first. */
bool row_complete(const struct table *table, struct row *row);
/* Whether every value is one of its dimension, and the row is allowed. */
bool row_is_valid(const struct table *table, const struct row *row);

/* The rows that agree with `fixed` where that is chosen; 1 <= strength <= GENERATE_STRENGTH_MAX.
 * The caller frees *out. Returns how many, 0 with *out NULL if memory lacks or no row is allowed. */
size_t generate_rows(const struct table *table, const struct row *fixed, unsigned strength,
                     struct row **out);

#endif
