/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The two sides of a ready set: the peer sets marks, the queue takes them. */
#include "shm_marks.h"

#include "shm_barrier.h"

enum { WORD_BITS = 64 };

bool rdmux_shm_mark_set(struct shm_ready *ready, uint32_t mark)
{
    (void)atomic_fetch_or(&ready->marks[mark / WORD_BITS], UINT64_C(1) << (mark % WORD_BITS));
    (void)atomic_fetch_or(&ready->summary, UINT64_C(1) << (mark / WORD_BITS));
    rdmux_shm_fence(); /* pairs with the fence of rdmux_shm_arm() */
    return atomic_load_explicit(&ready->sleeping, memory_order_relaxed) != 0 &&
           atomic_exchange_explicit(&ready->sleeping, 0, memory_order_acq_rel) != 0;
}

/* A bit of the summary is taken before its word, as the peer sets them in the opposite order: a
 * mark that this call misses has a bit of the summary again. */
uint64_t rdmux_shm_marks_take(struct shm_neighbour *neighbour, uint32_t *first)
{
    struct shm_ready *ready = neighbour->ready;
    uint64_t summary = atomic_load_explicit(&ready->summary, memory_order_relaxed);
    uint32_t from = neighbour->next_word;
    uint64_t later = summary & (UINT64_MAX << from);
    if (summary == 0) {
        return 0;
    }
    uint32_t word = (uint32_t)__builtin_ctzll(later != 0 ? later : summary);
    neighbour->next_word = (word + 1) % SHM_MARK_WORDS;
    *first = word * WORD_BITS;
    (void)atomic_fetch_and(&ready->summary, ~(UINT64_C(1) << word));
    /* Pairs with rdmux_shm_mark_set(): the slots behind the marks are seen. */
    return atomic_exchange(&ready->marks[word], 0);
}
