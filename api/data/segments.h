/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Segmenting: the provider gets a write or read that is longer than the path's messages in pieces,
 * and the request completes once. Sends are never segmented. All functions are the cq owner's.
 * [data path]
 */
#ifndef RDMUX_API_DATA_SEGMENTS_H
#define RDMUX_API_DATA_SEGMENTS_H

#include "api/core/ep.h"

enum {
    RDMUX_SEGMENTS_MAX = 8
}; /* most pieces of an endpoint's segmented requests at the provider at a time; a power of two */

struct rdmux_segments {
    uint64_t max;   /* most bytes of a piece */
    uint64_t given; /* bytes of the request at send.next given so far */
    bool is_busy;   /* pieces are at the provider, or done and not reaped */
    uint32_t head;  /* pieces posted */
    uint32_t tail;  /* pieces reaped */
    struct rdmux_request *pieces;
    struct rdmux_provider_sge *sges; /* RDMUX_SGE_MAX for each piece */
};

/* Prepares segmenting for the endpoint's next path. max_message: 0 = no limit. */
enum rdmux_status rdmux_segments_open(struct rdmux_ep *ep, uint64_t max_message);
void rdmux_segments_close(struct rdmux_ep *ep);

static inline bool rdmux_segments_concern(const struct rdmux_ep *ep,
                                          const struct rdmux_request *request)
{
    return ep->segments != NULL && request->length > ep->segments->max && request->remote != NULL &&
           request->op <=
               RDMUX_OP_READ; /* an atomic is never segmented, whatever the peer's limit */
}

/* Returns whether rdmux_segments_reap() has work. */
static inline bool rdmux_segments_has_news(const struct rdmux_ep *ep)
{
    const struct rdmux_segments *segments = ep->segments;
    return segments != NULL && segments->tail != segments->head &&
           segments->pieces[segments->tail % RDMUX_SEGMENTS_MAX].done;
}

/* Gives the provider as many pieces of the request at send.next as it takes. RDMUX_OK: all of them,
 * the caller goes to the next request. RDMUX_AGAIN: continue when pieces are done, or, if *blocked,
 * when the provider resumes. */
enum rdmux_status rdmux_segments_give(struct rdmux_ep *ep, bool *blocked);
/* Completes the requests whose pieces are all done. */
void rdmux_segments_reap(struct rdmux_ep *ep);

#endif
