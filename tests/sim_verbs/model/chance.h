/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Repeatable random numbers: the same state gives the same numbers. */
#ifndef MODEL_CHANCE_H
#define MODEL_CHANCE_H

#include <stdbool.h>
#include <stdint.h>

struct chance {
    uint64_t state;
};

static inline uint64_t draw(struct chance *chance)
{
    uint64_t z = chance->state += 0x9e3779b97f4a7c15U; /* splitmix64 */
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31);
}

static inline uint32_t below(struct chance *chance, uint32_t limit)
{
    return (uint32_t)(((draw(chance) >> 32) * limit) >> 32);
}

static inline bool percent(struct chance *chance, uint32_t of_hundred)
{
    return below(chance, 100) < of_hundred;
}

#define PICK(chance, array) ((array)[below((chance), (uint32_t)(sizeof(array) / sizeof(*(array))))])

#endif
