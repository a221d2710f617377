/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* What a cq looks at: endpoints, which are idle or heeded, and descriptors, which its own descriptor
 * reports. These functions change the cq's lists only: they serve no endpoint, and read nothing that
 * a peer has sent.
 *
 * Threads: the owner of the cq. */
#ifndef RDMUX_SHM_WATCH_H
#define RDMUX_SHM_WATCH_H

#include "shm_internal.h"

#include <stdint.h>
#include <sys/types.h>
#include <unistd.h>

/* -------------------------------------------------------------------------------- endpoints */

/* Gives the endpoint a place in the cq's table. Poll does not look at it yet. */
RDMUX_MUST_CHECK enum rdmux_status rdmux_shm_cq_add(struct shm_cq *cq, struct shm_ep *ep);
/* Takes it out of the table and of the list of awake endpoints. Does nothing for one that is not
 * there. */
void rdmux_shm_cq_remove(struct shm_cq *cq, struct shm_ep *ep);
/* Poll looks at the endpoint, which slept, and its peer need not ring until it sleeps again. It may
 * move to a lower place. Callers that hear of a peer use shm_wake_up(), which takes the peer's news,
 * too. [data path] */
void rdmux_shm_cq_awaken(struct shm_ep *ep);
/* Slow path of shm_wake_owner(). [data path] */
void rdmux_shm_kick_owner(struct shm_ep *ep);

/* Makes the cq's descriptor readable if the cq is armed: its owner may sleep while another thread
 * posts. [data path] */
static inline void shm_wake_owner(struct shm_ep *ep)
{
    if (shm_cq_of(ep->base.cq)->armed == SHM_ARMED) {
        rdmux_shm_kick_owner(ep);
    }
}

static inline void shm_cq_put(struct shm_cq *cq, uint32_t place, struct shm_ep *ep)
{
    cq->eps[place] = ep;
    ep->place = place;
}

static inline void shm_cq_swap(struct shm_cq *cq, uint32_t one, uint32_t other)
{
    struct shm_ep *ep = cq->eps[one];
    shm_cq_put(cq, one, cq->eps[other]);
    shm_cq_put(cq, other, ep);
}

/* The endpoint need not be polled from now on. [data path] */
static inline void shm_cq_stop_heeding(struct shm_cq *cq, struct shm_ep *ep)
{
    if (ep->place < cq->watched) {
        cq->watched--;
        shm_cq_swap(cq, ep->place, cq->watched);
        cq->risen -= ep->is_marked ? 1U : 0U;
    }
}

/* Rings a doorbell, the peer's or the cq's own. [data path] */
static inline void shm_bell_write(struct shm_ep *ep, int bell)
{
    static const uint64_t one = 1;
    ep->base.system_calls++;
    /* The write fails only if the counter is full, and then the other side is awake. The write
     * never waits, unless a peer clears O_NONBLOCK: docs/SECURITY.md, "What shared memory cannot
     * protect". */
    ssize_t ignored = write(bell, &one, sizeof(one));
    (void)ignored;
}

/* ------------------------------------------------------------------------------ descriptors */

/* Epoll event data: the address of the endpoint, or for SHM_WATCH_PID of the neighbour, plus one of
 * these. The bell of the cq has no address. */
enum { SHM_WATCH_BELL = 0, SHM_WATCH_SOCKET = 1, SHM_WATCH_PID = 2, SHM_WATCH_MASK = 3 };

/* From now on the cq's descriptor reports these epoll events of fd, which stays the caller's.
 * RDMUX_NO_MEMORY: the kernel refuses it. */
RDMUX_MUST_CHECK enum rdmux_status rdmux_shm_cq_watch(struct shm_cq *cq, const void *object, int fd,
                                                      uint32_t what, uint32_t events);
/* Before fd is closed, as a copy of it in another process would still be reported. Does nothing for
 * a descriptor that is not watched. */
void rdmux_shm_cq_unwatch(struct shm_cq *cq, int fd);

#endif
