/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The marks of ready sets (struct shm_ready). A peer process sets the mark of an endpoint that has
 * work; the queue that owns the set takes the marks. Neither side trusts the other's words: any bits
 * may come, also marks of no endpoint.
 *
 * Threads: set by any thread of the peer's process, taken by the owner of the cq. */
#ifndef RDMUX_SHM_MARKS_H
#define RDMUX_SHM_MARKS_H

#include "shm_internal.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Sets the mark in the peer's ready set. Returns whether the caller has to ring: the queue slept.
 * [data path] */
bool rdmux_shm_mark_set(struct shm_ready *ready, uint32_t mark);
/* Takes one word of marks that have come, and moves on to the next word. Returns its bits; *first
 * is the mark of bit 0. 0: none was set after all. [data path] */
uint64_t rdmux_shm_marks_take(struct shm_neighbour *neighbour, uint32_t *first);

/* Returns whether marks have come. A neighbour without ready set has none. [data path] */
static inline bool shm_has_marks(const struct shm_neighbour *neighbour)
{
    return neighbour->ready != NULL &&
           atomic_load_explicit(&neighbour->ready->summary, memory_order_relaxed) != 0;
}

#endif
