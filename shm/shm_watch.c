/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* What a cq looks at: endpoints by their places in its table, descriptors by its epoll descriptor. */
#include "shm_watch.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

enum { ROOM_FIRST = 16 }; /* initial size of a cq's table of endpoints */

/* -------------------------------------------------------------------------------- endpoints */

enum rdmux_status rdmux_shm_cq_add(struct shm_cq *cq, struct shm_ep *ep)
{
    if (cq->count == cq->room) {
        struct rdmux_fabric *fabric = cq->base.domain->fabric;
        uint32_t room = cq->room == 0 ? ROOM_FIRST : cq->room * 2;
        struct shm_ep **grown = rdmux_provider_allocate(fabric, room * sizeof(struct shm_ep *));
        if (grown == NULL) {
            rdmux_provider_error("shm: out of memory for %u endpoints on one queue", room);
            return RDMUX_NO_MEMORY;
        }
        if (cq->count > 0) {
            memcpy(grown, cq->eps, cq->count * sizeof(struct shm_ep *));
        }
        rdmux_provider_release(fabric, cq->eps);
        cq->eps = grown;
        cq->room = room;
    }
    ep->place = cq->count;
    cq->eps[cq->count] = ep;
    cq->count++;
    return RDMUX_OK;
}

void rdmux_shm_cq_remove(struct shm_cq *cq, struct shm_ep *ep)
{
    if (ep->place == SHM_NOWHERE) {
        return;
    }
    shm_cq_stop_heeding(cq, ep);
    cq->count--;
    shm_cq_put(cq, ep->place, cq->eps[cq->count]);
    ep->place = SHM_NOWHERE;
    for (struct shm_ep **link = &cq->awake; *link != NULL; link = &(*link)->awake_next) {
        if (*link == ep) {
            *link = ep->awake_next;
            break;
        }
    }
}

/* Poll looks at the endpoint from now on. */
static void heed(struct shm_cq *cq, struct shm_ep *ep)
{
    if (ep->place >= cq->watched) {
        shm_cq_swap(cq, ep->place, cq->watched);
        cq->watched++;
        cq->risen += ep->is_marked ? 1U : 0U;
    }
}

void rdmux_shm_cq_awaken(struct shm_ep *ep)
{
    struct shm_cq *cq = shm_cq_of(ep->base.cq);
    ep->is_asleep = false;
    atomic_store_explicit(&ep->mine->sleeping, 0, memory_order_relaxed);
    ep->awake_next = cq->awake;
    cq->awake = ep;
    heed(cq, ep);
}

void rdmux_shm_kick_owner(struct shm_ep *ep)
{
    struct shm_cq *cq = shm_cq_of(ep->base.cq);
    cq->armed = SHM_KICKED;
    shm_bell_write(ep, cq->bell);
}

/* ------------------------------------------------------------------------------ descriptors */

enum rdmux_status rdmux_shm_cq_watch(struct shm_cq *cq, const void *object, int fd, uint32_t what,
                                     uint32_t events)
{
    struct epoll_event event = { .events = events, .data.u64 = (uint64_t)(uintptr_t)object | what };
    if (epoll_ctl(cq->epoll, EPOLL_CTL_ADD, fd, &event) != 0) {
        rdmux_provider_error("shm: cannot watch a descriptor: errno %d", errno);
        return RDMUX_NO_MEMORY;
    }
    return RDMUX_OK;
}

void rdmux_shm_cq_unwatch(struct shm_cq *cq, int fd)
{
    (void)epoll_ctl(cq->epoll, EPOLL_CTL_DEL, fd, NULL);
}
