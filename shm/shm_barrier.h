/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Barriers between the two sides of a path. Each side stores a word, then loads a word that the
 * other side stores. With a full barrier between store and load on both sides, one side at least
 * sees the other's store. Where one side does this often and the other rarely, the rare side runs
 * rdmux_shm_membarrier() for both (shm_light_barrier(), shm_heavy_barrier() of shm_internal.h).
 *
 * Threads: any. */
#ifndef RDMUX_SHM_BARRIER_H
#define RDMUX_SHM_BARRIER_H

#include <stdbool.h>

/* SHM_TSAN: ThreadSanitizer is on. It knows neither fences nor membarrier(2). */
#if defined(__SANITIZE_THREAD__)
#define SHM_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SHM_TSAN 1
#endif
#endif
#ifndef SHM_TSAN
#define SHM_TSAN 0
#endif

/* Registers the process for membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED). False: the kernel lacks
 * it. */
bool rdmux_shm_membarrier_register(void);
/* Runs a full barrier on every thread of every registered process. [data path] */
void rdmux_shm_membarrier(void);
/* Runs a full barrier on this thread. [data path] */
void rdmux_shm_fence(void);

#endif
