/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Writes and reads longer than a path's messages can be: given to the provider in pieces, completed once. Sends are never split.
 * All by the cq's owner. [data path]
 */
#ifndef RDMUX_API_SEGMENTS_H
#define RDMUX_API_SEGMENTS_H

#include "api/core/ep.h"

enum {
    RDMUX_SEGMENTS_MAX = 8
}; /* of all split requests of an endpoint that are with the provider at a time; a power of two */

struct rdmux_segments {
    uint64_t max;   /* bytes of a piece */
    uint64_t given; /* of the request at send.next */
    bool busy;      /* pieces are with the provider, or done and not looked at */
    uint32_t head;  /* pieces posted */
    uint32_t tail;  /* pieces whose end was noted */
    struct rdmux_request *pieces;
    struct rdmux_provider_sge *sges; /* RDMUX_SGE_MAX for each piece */
};

/* For the path that the endpoint is about to get. max_message: 0 = no limit. */
enum rdmux_status rdmux_segments_open(struct rdmux_ep *ep, uint64_t max_message);
void rdmux_segments_close(struct rdmux_ep *ep);

static inline bool rdmux_segments_concern(const struct rdmux_ep *ep,
                                          const struct rdmux_request *request)
{
    return ep->segments != NULL && request->length > ep->segments->max && request->remote != NULL &&
           request->op <= RDMUX_OP_READ; /* an atomic is one whatever a peer says of its messages */
}

/* Is there something for rdmux_segments_reap()? */
static inline bool rdmux_segments_has_news(const struct rdmux_ep *ep)
{
    const struct rdmux_segments *segments = ep->segments;
    return segments != NULL && segments->tail != segments->head &&
           segments->pieces[segments->tail % RDMUX_SEGMENTS_MAX].done;
}

/* Gives the provider what it takes of the request at send.next. RDMUX_OK: all of it, the caller goes past it. RDMUX_AGAIN: go on
 * when pieces are done, or when the provider says so (*blocked). */
enum rdmux_status rdmux_segments_give(struct rdmux_ep *ep, bool *blocked);
/* Ends the requests of which all pieces are done. */
void rdmux_segments_reap(struct rdmux_ep *ep);

#endif
