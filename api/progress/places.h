/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The lists of a cq that an endpoint can be on, besides cq->pending (cq_owner.h). All functions are
 * the owner's. */
#ifndef RDMUX_API_PROGRESS_PLACES_H
#define RDMUX_API_PROGRESS_PLACES_H

#include "api/core/cq.h"
#include "api/core/ep.h"

/* Puts the endpoint on the list of busy ones, which each round of progress steps, or takes it off.
 * Both do nothing if it is so already. */
static inline void rdmux_ep_list_busy(struct rdmux_ep *ep)
{
    if (rdmux_list_empty(&ep->places.busy)) {
        rdmux_list_append(&ep->cq->lists.busy, &ep->places.busy);
    }
}

static inline void rdmux_ep_unlist_busy(struct rdmux_ep *ep)
{
    rdmux_list_remove(&ep->places.busy);
}

/* The session of the control channel buffers bytes: the next attention serves the endpoint. */
static inline void rdmux_ep_list_held(struct rdmux_ep *ep)
{
    if (rdmux_list_empty(&ep->places.held)) {
        rdmux_list_append(&ep->cq->lists.held, &ep->places.held);
    }
}

/* Puts a change of cq on the list that each attention examines. */
static inline void rdmux_cq_list_leaving(struct rdmux_cq *cq, struct rdmux_list *change)
{
    rdmux_list_append(&cq->lists.leaving, change);
}

/* Puts the endpoint on the list of those that rdmux_accept() has not returned, or takes it off. */
static inline void rdmux_ep_list_accepting(struct rdmux_ep *ep)
{
    rdmux_list_append(&ep->cq->lists.accepting, &ep->places.accepting);
}

static inline void rdmux_ep_unlist_accepting(struct rdmux_ep *ep)
{
    rdmux_list_remove(&ep->places.accepting);
}

/* Puts a dismantled endpoint on the list of those without a handle, which the next progress
 * frees. */
static inline void rdmux_ep_list_dropped(struct rdmux_ep *ep)
{
    rdmux_list_append(&ep->cq->lists.dropped, &ep->places.cq);
}

/* Moves a dropped endpoint to the list of those whose handle stays valid until the next poll. */
static inline void rdmux_ep_list_closed(struct rdmux_ep *ep)
{
    rdmux_list_remove(&ep->places.cq);
    rdmux_list_append(&ep->cq->lists.closed, &ep->places.cq);
}

/* RDMUX_MORE: rdmux_cq_ring_doorbells() rings the endpoint's doorbell later. [data path] */
static inline void rdmux_ep_hold_doorbell(struct rdmux_ep *ep)
{
    if (!ep->queued.is_doorbell_held) {
        ep->queued.is_doorbell_held = true;
        ep->places.doorbell_next = ep->cq->doorbells;
        ep->cq->doorbells = ep;
    }
}

#endif
