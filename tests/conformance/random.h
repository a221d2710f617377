/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Random sequences that can be shortened. An operation is chosen by the seed, the side and its
 * number alone, so a run that leaves some out does the others as before.
 */
#ifndef CONFORMANCE_RANDOM_H
#define CONFORMANCE_RANDOM_H

#include "generate.h"
#include "harness.h"

enum { SEQUENCE_TEXT_MAX = 4096 };

/* A sequence as text: "i3,i10-40,t7" are three numbers of the initiator's, or ranges of them, and
 * one of the target's. NULL is all. */
bool sequence_is_valid(const char *text);
bool sequence_has(const char *text, bool initiator, uint64_t index);

/* A sequence of rows, for cases of them: "i10-40" are numbers of rows in the case's walk, "r0.0.2,r1.0.0"
 * are rows by their values. The first tells which; rows_next() steps through the rows of the second
 * kind: *at is the text at first; false at its end. */
bool rows_are_named(const char *text);
bool rows_next(const char **at, struct row *out);

/* How many operations each side of the random case does. */
uint64_t model_operations(bool quick);
/* The sequence in words, a line for each operation, up to the size. */
void model_describe(uint64_t seed, bool quick, const char *sequence, char *out, size_t size);

/* A side of a shorter run that waits for what does not come has said so by then. */
enum { TRY_LIMIT_S = PATIENT_MS / 1000 + 2 };

/* A shorter run that is merely not done in its time, as on a machine that has other things to do, is no
 * other form of a failure that said what it missed. */
static inline bool is_same_failure(const struct run_result *first, const struct run_result *again)
{
    return !again->passed && (!again->late || first->late);
}

/* For a CASE_RANDOM that failed: looks for the shortest sequence that fails, as long as limit_ms.
 * result becomes that of it, with the sequence in words; its text goes to `sequence`, which is
 * empty if none was found. */
void shrink(const struct case_place *place, const char *provider, const struct run_options *options,
            const struct provider_caps *caps, uint64_t limit_ms, struct run_result *result,
            char sequence[SEQUENCE_TEXT_MAX]);

/* The same for a CASE_ROWS: looks for the fewest rows that fail, and for the simplest. */
void shrink_rows(const struct case_place *place, const char *provider,
                 const struct run_options *options, const struct provider_caps *caps,
                 uint64_t limit_ms, struct run_result *result, char sequence[SEQUENCE_TEXT_MAX]);

#endif
