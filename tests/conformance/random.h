/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Random sequences that can be shortened. An operation is chosen by the seed, the side and its
 * number alone, so a run that leaves some out does the others as before.
 */
#ifndef CONFORMANCE_RANDOM_H
#define CONFORMANCE_RANDOM_H

#include "harness.h"

enum { SEQUENCE_TEXT_MAX = 4096 };

/* A sequence as text: "i3,i10-40,t7" are three numbers of the initiator's, or ranges of them, and
 * one of the target's. NULL is all. */
bool sequence_is_valid(const char *text);
bool sequence_has(const char *text, bool initiator, uint64_t index);

/* How many operations each side of the random case does. */
uint64_t model_operations(bool quick);
/* The sequence in words, a line for each operation, up to the size. */
void model_describe(uint64_t seed, bool quick, const char *sequence, char *out, size_t size);

/* For a CASE_RANDOM that failed: looks for the shortest sequence that fails, as long as limit_ms.
 * result becomes that of it, with the sequence in words; its text goes to `sequence`, which is
 * empty if none was found. */
void shrink(const struct case_place *place, const char *provider, const struct run_options *options,
            const struct provider_caps *caps, uint64_t limit_ms, struct run_result *result,
            char sequence[SEQUENCE_TEXT_MAX]);

#endif
