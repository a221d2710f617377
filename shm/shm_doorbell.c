/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Wake-up of a sleeping peer, and the barriers that make one look at its sleeping word enough.
 *
 * The producer stores a slot, then loads the peer's sleeping word. The consumer stores its sleeping
 * word, then loads the slots. One of them must see the other's store. Messages are frequent and
 * sleeps are rare, so the consumer pays for both: membarrier(2) runs a full barrier on the producer
 * too. */
#include "shm_internal.h"

#include <linux/membarrier.h>
#include <poll.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { ALIVE_NS = 10 * 1000 * 1000 };

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

static void ring_bell(struct shm_ep *ep, int bell)
{
    static const uint64_t one = 1;
    ep->base.system_calls++;
    /* The write fails only if the counter is full, and then the other side is awake. The write
     * never waits, unless a peer clears O_NONBLOCK: docs/SECURITY.md, "What shared memory cannot
     * protect". */
    ssize_t ignored = write(bell, &one, sizeof(one));
    (void)ignored;
}

void rdmux_shm_wake_peer(struct shm_ep *ep)
{
    /* The thread that clears a word rings: one system call for each sleep of the peer's queue. */
    if (atomic_exchange_explicit(&ep->theirs->sleeping, 0, memory_order_acq_rel) == 0) {
        return;
    }
    shm_follow_peer(ep); /* the peer has stored its news before it set the word */
    if (ep->queue == NULL || rdmux_shm_mark_set(ep->queue->ready, ep->their_mark)) {
        ring_bell(ep, ep->peer.their_bell);
    }
}

void rdmux_shm_kick_owner(struct shm_ep *ep)
{
    struct shm_cq *cq = shm_cq_of(ep->base.cq);
    cq->armed = SHM_KICKED;
    ring_bell(ep, cq->bell);
}

void rdmux_shm_wake_up(struct shm_ep *ep)
{
    struct shm_cq *cq = shm_cq_of(ep->base.cq);
    ep->is_asleep = false;
    atomic_store_explicit(&ep->mine->sleeping, 0, memory_order_relaxed);
    ep->awake_next = cq->awake;
    cq->awake = ep;
    rdmux_shm_cq_heed(cq, ep);
    shm_follow_peer(ep); /* so that news do not pile up while this side sends nothing */
}

bool rdmux_shm_peer_is_gone(struct shm_ep *ep)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    uint64_t now_ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
    if ((!ep->is_gone || ep->is_lost) && now_ns - ep->peer.alive_at_ns >= ALIVE_NS) {
        struct pollfd fds[] = {
            { .fd = ep->peer.socket, .events = POLLRDHUP },
            { .fd = ep->neighbour != NULL ? ep->neighbour->pidfd : -1, .events = POLLIN },
        };
        ep->base.system_calls++;
        if (poll(fds, 2, 0) > 0) {
            ep->is_gone = true;
            ep->is_lost = false;
        }
        ep->peer.alive_at_ns = now_ns;
    }
    return ep->is_gone && !ep->is_lost;
}
