/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Keys for the application's unregistered buffers, on paths whose provider needs a registration for every local byte
 * (RDMUX_PROVIDER_LOCAL_KEYS). Small ones are copied through a registered ring of bytes, large ones are registered by the worker
 * until they complete; whatever waits for the worker holds the requests behind it. Lists of more pieces than the path takes are
 * helped as well: all of their bytes are copied; and reads into regions that the peer's device may not write: the pieces get keys of
 * their own for the time of the read. All by the cq's owner, except what the worker does. An endpoint whose buffers are
 * all registered, in lists that the path takes, pays for none of this.
 */
#ifndef RDMUX_API_BOUNCE_H
#define RDMUX_API_BOUNCE_H

#include "api/core/ep.h"

/* rdmux_request.keys */
enum {
    RDMUX_BOUNCE_OWN = 0, /* the list is the application's, with the registrations it has */
    RDMUX_BOUNCE_BOUNCED, /* the list is one piece of the bounce ring */
    RDMUX_BOUNCE_BROUGHT, /* the same, of a read whose bytes are where the application wants them */
    RDMUX_BOUNCE_ASKED,   /* the worker registers the pieces */
    RDMUX_BOUNCE_TEMPORARY, /* the pieces are registered until the request is returned */
    RDMUX_BOUNCE_GATHERED,  /* the list is one piece of memory that is there until then */
};

/* What a path's provider takes. */
struct rdmux_bounce_rule {
    uint32_t max_inline; /* bytes that it sends without a key */
    uint32_t max_sge;    /* pieces of a list */
    bool needs_sinks;    /* pieces of reads need RDMUX_ACCESS_READ_SINK */
};

/* For the path that the endpoint is about to get. */
enum rdmux_status rdmux_bounce_open(struct rdmux_ep *ep, struct rdmux_provider_domain *domain,
                                    struct rdmux_bounce_rule rule);
/* The path is closed: nobody touches a buffer any more. */
void rdmux_bounce_close(struct rdmux_ep *ep);

/* Before that: the records of both rings that are not done have the application's lists again, to be given to another path. */
void rdmux_bounce_restore(struct rdmux_ep *ep);

/* How many of the records [from, from + count) of one of the endpoint's rings may go to the provider. Fewer than asked: the next
 * one waits, and the endpoint is pended when it may go on. [data path] */
uint64_t rdmux_bounce_give(struct rdmux_ep *ep, struct rdmux_ring *ring, uint64_t from,
                           uint64_t count);

/* The send side's record at this place has a fence: must it wait here for the reads before it,
 * whatever the device can do? A device orders what it does itself, not the copies: bytes that go
 * with the post, and those of reads that came into the bounce ring. */
bool rdmux_bounce_fence_is_ours(const struct rdmux_ep *ep, uint64_t at);

/* Reads that are done but not returned: their bytes go where a fenced request may look for them. [data path] */
void rdmux_bounce_bring_reads(struct rdmux_ep *ep);

/* A done record with keys other than RDMUX_BOUNCE_OWN leaves its ring, in posting order. [data path] */
void rdmux_bounce_take_back(struct rdmux_ep *ep, struct rdmux_ring *ring,
                            struct rdmux_request *request);

#endif
