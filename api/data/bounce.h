/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Bounce buffers: keys for the application's unregistered buffers, on paths whose provider needs a
 * registration for every local byte (RDMUX_PROVIDER_LOCAL_KEYS). Short requests are copied through
 * a registered ring of bytes. The worker registers the buffers of long requests until they
 * complete. A request that waits for the worker holds the requests behind it.
 *
 * Two more cases need help. A list of more pieces than the path takes has all of its bytes copied.
 * The pieces of a read into regions that the peer's device may not write get keys of their own for
 * the time of the read.
 *
 * The cq's owner does everything except the worker's part. An endpoint whose buffers are all
 * registered, in lists that the path takes, pays for none of this.
 */
#ifndef RDMUX_API_DATA_BOUNCE_H
#define RDMUX_API_DATA_BOUNCE_H

#include "api/core/ep.h"

/* rdmux_request.keys */
enum {
    RDMUX_BOUNCE_OWN = 0, /* the application's list, with its own registrations */
    RDMUX_BOUNCE_BOUNCED, /* the list is one piece of the bounce ring */
    /* The same, for a read whose bytes are already in the application's buffers. */
    RDMUX_BOUNCE_BROUGHT,
    RDMUX_BOUNCE_ASKED,     /* the worker is registering the pieces */
    RDMUX_BOUNCE_TEMPORARY, /* the pieces are registered until the request is returned */
    /* The list is one piece of memory allocated until the request is returned. */
    RDMUX_BOUNCE_GATHERED,
};

/* The limits of a path's provider. */
struct rdmux_bounce_rule {
    uint32_t max_inline; /* bytes that it sends without a key */
    uint32_t max_sge;    /* most pieces of a list */
    bool needs_sinks;    /* pieces of reads need RDMUX_ACCESS_READ_SINK */
};

/* Prepares bounce buffers for the endpoint's next path. */
enum rdmux_status rdmux_bounce_open(struct rdmux_ep *ep, struct rdmux_provider_domain *domain,
                                    struct rdmux_bounce_rule rule);
/* Ends bounce buffers: the path is closed, and nothing accesses the buffers any more. */
void rdmux_bounce_close(struct rdmux_ep *ep);

/* Before rdmux_bounce_close(): restores the application's lists in the records of both rings that
 * are not returned yet, so that another path can get them. */
void rdmux_bounce_restore(struct rdmux_ep *ep);

/* Returns how many of the records [from, from + count) of one of the endpoint's rings may go to the
 * provider. On fewer than count, the next record waits, and the endpoint is pended when it may go
 * on. [data path] */
uint64_t rdmux_bounce_give(struct rdmux_ep *ep, struct rdmux_ring *ring, uint64_t from,
                           uint64_t count);

/* Returns whether the fence of the send-side record at this place must wait here for the reads
 * before it, even if the device orders fences. A device orders only its own work, not copies: the
 * bytes that go with the post, and those of reads that arrive in the bounce ring. */
bool rdmux_bounce_fence_is_ours(const struct rdmux_ep *ep, uint64_t at);

/* Copies the bytes of done reads to the application's buffers before the reads are returned, as a
 * fenced request may access the bytes there. [data path] */
void rdmux_bounce_bring_reads(struct rdmux_ep *ep);

/* Takes a done record whose keys are not RDMUX_BOUNCE_OWN off its ring, in posting order.
 * [data path] */
void rdmux_bounce_take_back(struct rdmux_ep *ep, struct rdmux_ring *ring,
                            struct rdmux_request *request);

#endif
