/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Wake-up of a sleeping peer, and the barriers that make one look at its sleeping word enough.
 *
 * The producer stores a slot, then loads the peer's sleeping word. The consumer stores its sleeping
 * word, then loads the slots. One of them must see the other's store. Messages are frequent and
 * sleeps are rare, so the consumer pays for both: membarrier(2) runs a full barrier on the producer
 * too.
 *
 * An endpoint that has changed its cq tells its peer of the new doorbell by the socket, before it
 * first sleeps there. The peer takes the news before it rings. */
#include "shm_internal.h"
#include "shm_marks.h"
#include "shm_watch.h"

#include <poll.h>
#include <time.h>

enum {
    ALIVE_NS = 10 * 1000 * 1000,
    FOLLOW_MESSAGES = 8192, /* most messages that the socket can hold, with a large buffer */
};

void rdmux_shm_wake_peer(struct shm_ep *ep)
{
    /* The thread that clears a word rings: one system call for each sleep of the peer's queue. */
    if (atomic_exchange_explicit(&ep->theirs->sleeping, 0, memory_order_acq_rel) == 0) {
        return;
    }
    shm_follow_peer(ep); /* the peer has stored its news before it set the word */
    if (ep->queue == NULL || rdmux_shm_mark_set(ep->queue->ready, ep->their_mark)) {
        shm_bell_write(ep, ep->peer.their_bell);
    }
}

void rdmux_shm_wake_up(struct shm_ep *ep)
{
    rdmux_shm_cq_awaken(ep);
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

/* ---------------------------------------------------------------------------- changes of the cq */

void rdmux_shm_queue_tell(struct shm_ep *ep)
{
    const struct shm_queue_message message = { .mark = ep->mark };
    uint8_t bytes[SHM_REGION_SIZE];
    rdmux_shm_queue_message_encode(&message, bytes);
    const int fds[SHM_QUEUE_FDS] = {
        shm_cq_of(ep->base.cq)->bell,
        shm_domain_of(ep->base.cq->domain)->regions_fd,
        ep->neighbour->ready_fd,
    };
    ep->base.system_calls++;
    enum rdmux_status status = rdmux_shm_socket_send(ep->peer.socket, bytes, sizeof(bytes), fds,
                                                     SHM_QUEUE_FDS);
    uint32_t moves = atomic_load_explicit(&ep->mine->moves, memory_order_relaxed);
    atomic_store_explicit(&ep->mine->moves, moves + 1, memory_order_release);
    if (status == RDMUX_PEER_GONE) {
        ep->is_gone = true;
    }
    ep->is_untold = status != RDMUX_OK && status != RDMUX_PEER_GONE;
    if (ep->is_untold) {
        shm_ring_bell(ep, SHM_WAKE_MESSAGE); /* a peer that wakes up empties the socket */
    }
}

/* A peer that sends without end must not hold this side up. */
void rdmux_shm_queue_follow(struct shm_ep *ep)
{
    uint32_t budget = FOLLOW_MESSAGES;
    do {
        if (budget-- == 0) {
            rdmux_shm_queue_lose(ep);
            return;
        }
        rdmux_shm_mappings_reserve(ep);
    } while (rdmux_shm_message_take(ep));
}
