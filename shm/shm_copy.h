/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The copy of a slot's body. [data path] */
#ifndef RDMUX_SHM_COPY_H
#define RDMUX_SHM_COPY_H

#include "shm_layout.h"

#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* memcpy() of at most SHM_BODY_SIZE bytes, without a call: copies overlapping pieces. */
static inline void shm_copy_small(uint8_t *to, const uint8_t *from, size_t length)
{
    enum { PIECE = 16, WORD = sizeof(uint64_t) };
    struct {
        uint8_t bytes[PIECE];
    } first, middle, last;
    static_assert(SHM_BODY_SIZE <= 3 * PIECE, "three pieces are all");
    if (length == WORD) {
        memcpy(to, from, WORD);
    } else if (length > PIECE) {
        memcpy(&first, from, PIECE);
        memcpy(&last, from + length - PIECE, PIECE);
        if (length > 2 * (size_t)PIECE) {
            memcpy(&middle, from + PIECE, PIECE);
            memcpy(to + PIECE, &middle, PIECE);
        }
        memcpy(to, &first, PIECE);
        memcpy(to + length - PIECE, &last, PIECE);
    } else if (length > WORD) {
        uint64_t low;
        uint64_t high;
        memcpy(&low, from, WORD);
        memcpy(&high, from + length - WORD, WORD);
        memcpy(to, &low, WORD);
        memcpy(to + length - WORD, &high, WORD);
    } else {
        for (size_t i = 0; i < length; i++) {
            to[i] = from[i];
        }
    }
}

#endif
