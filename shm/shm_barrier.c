/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Barriers of this thread, and of all threads of the processes that share memory by shm. */
#include "shm_barrier.h"

#include <linux/membarrier.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

bool rdmux_shm_membarrier_register(void)
{
    long commands = syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0U, 0);
    return commands > 0 && (commands & MEMBARRIER_CMD_GLOBAL_EXPEDITED) != 0 &&
           syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0U, 0) == 0;
}

void rdmux_shm_membarrier(void)
{
    (void)syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0U, 0);
}

#if SHM_TSAN
/* ThreadSanitizer knows no fences; an exchange is one on the machines it runs on. */
void rdmux_shm_fence(void)
{
    _Atomic uint32_t word = 0;
    (void)atomic_exchange(&word, 1);
}
#else
void rdmux_shm_fence(void)
{
    atomic_thread_fence(memory_order_seq_cst);
}
#endif
