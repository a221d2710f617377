/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Random sequences that can be shortened. An operation depends only on the seed, the side and its
 * number. A run that leaves out some operations therefore does the others unchanged.
 */
#ifndef CONFORMANCE_RANDOM_H
#define CONFORMANCE_RANDOM_H

#include "generate.h"
#include "harness.h"

enum { SEQUENCE_TEXT_MAX = 4096 };

/* A sequence as text: "i3,i10-40,t7" names operations 3 and 10 to 40 of the initiator and 7 of the
 * target. NULL means all. */
bool sequence_is_valid(const char *text);
bool sequence_has(const char *text, bool initiator, uint64_t index);

/* A sequence of rows. "i10-40" names rows by their numbers in the case's order; "r0.0.2,r1.0.0"
 * names rows by their values. rows_are_named() returns true for the second form. rows_next() steps
 * through a text of that form: *at is the text at first; returns false at its end. */
bool rows_are_named(const char *text);
bool rows_next(const char **at, struct row *out);

/* Returns the number of operations that each side of the random case does. */
uint64_t model_operations(bool quick);
/* Describes the sequence, one line for each operation, as far as size allows. */
void model_describe(uint64_t seed, bool quick, const char *sequence, char *out, size_t size);

/* Time limit of a shorter run. A side whose wait never ends reports it within this time. */
enum { TRY_LIMIT_S = PATIENT_MS / 1000 + 2 };

/* Returns whether a shorter run failed in the same way. A run that merely exceeded its time, as on
 * a busy machine, does not match a failure that reported a cause. */
static inline bool is_same_failure(const struct run_result *first, const struct run_result *again)
{
    return !again->passed && (!again->late || first->late);
}

/* Searches for the shortest failing sequence of a failed CASE_RANDOM, for limit_ms at most. result
 * becomes the result of that sequence, with the sequence in words. `sequence` gets its text, empty
 * if the search found none. */
void shrink(const struct case_place *place, const char *provider, const struct run_options *options,
            const struct provider_caps *caps, uint64_t limit_ms, struct run_result *result,
            char sequence[SEQUENCE_TEXT_MAX]);

/* The same for a CASE_ROWS: searches for the fewest and simplest rows that fail. */
void shrink_rows(const struct case_place *place, const char *provider,
                 const struct run_options *options, const struct provider_caps *caps,
                 uint64_t limit_ms, struct run_result *result, char sequence[SEQUENCE_TEXT_MAX]);

#endif
