/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Shared receive queues: how endpoints share the posted receives. */
#ifndef RDMUX_API_DATA_SRQ_H
#define RDMUX_API_DATA_SRQ_H

#include "api/core/ep.h"
#include "api/core/srq.h"

/* Owner: takes a receive for the endpoint and puts it on ep->shared.taken. NULL: the endpoint waits
 * for one. [data path] */
struct rdmux_request *rdmux_srq_take(struct rdmux_ep *ep);
/* Owner, failover: `done` receives up to this one are counted. */
static inline void rdmux_srq_mark_counted(struct rdmux_ep *ep, struct rdmux_request *request)
{
    ep->shared.counted = request;
}

/* Owner: returns how many receives the endpoint could take now. */
uint32_t rdmux_srq_available(const struct rdmux_ep *ep);
/* Owner: tells the endpoint's provider that receives were set aside for it, or that other endpoints
 * wait. */
void rdmux_srq_tell(struct rdmux_ep *ep);
/* Owner: returns the receives set aside for the endpoint, whose path is gone. */
void rdmux_srq_leave(struct rdmux_ep *ep);
/* Owner: the endpoint has a path now. Logs that it cannot pause, if it is paused. */
void rdmux_srq_path_begins(struct rdmux_ep *ep);
/* rdmux_srq_put() returns a record to the free list (it was returned to the application).
 * rdmux_srq_unput() returns it to the front of the posted list (its endpoint closed). */
void rdmux_srq_put(struct rdmux_srq *srq, struct rdmux_request *request);
void rdmux_srq_unput(struct rdmux_srq *srq, struct rdmux_request *request);
/* Owner: completes the receives that messages were filling as flushed. */
void rdmux_srq_flush(struct rdmux_ep *ep);
/* Owner: returns to the posted list the receives that messages were filling, or all receives that
 * the endpoint has taken. */
void rdmux_srq_untake(struct rdmux_ep *ep);
void rdmux_srq_untake_all(struct rdmux_ep *ep);
/* Owner, after a message has taken a receive: SRQ_LIMIT is due if fewer than the limit are left.
 * [data path] */
void rdmux_srq_check_limit(struct rdmux_srq *srq);
/* Owner: takes the first SRQ off cq->low_srqs, which is not empty. */
struct rdmux_srq *rdmux_srq_take_low(struct rdmux_cq *cq);
/* Returns the provider SRQ on the cq's domain, and opens it for the first caller with the receives
 * posted so far. max_sge: pieces of a list that the paths there take; 0: no limit. */
enum rdmux_status rdmux_srq_domain(struct rdmux_srq *srq, struct rdmux_provider_cq *cq,
                                   uint32_t max_sge, struct rdmux_provider_srq **out);
/* Counts an endpoint that starts to use the provider SRQ of rdmux_srq_domain() (1), or no longer
 * uses it (-1). */
void rdmux_srq_use(struct rdmux_srq *srq, const struct rdmux_provider_srq *provider, int change);
/* Appends this record to the posted list. */
void rdmux_srq_append(struct rdmux_srq *srq, struct rdmux_request *request);
/* Puts this record at the front of the posted list. */
void rdmux_srq_prepend(struct rdmux_srq *srq, struct rdmux_request *request);
/* Takes this record out of the posted list. before: the record in front of it, NULL: none. */
void rdmux_srq_remove(struct rdmux_srq *srq, struct rdmux_request *before,
                      struct rdmux_request *request);
/* Owner, outside of a provider's call: gives unclaimed receives to endpoints that wait for one and
 * to devices that hold less than their share, one each in turn. */
void rdmux_srq_share_out(struct rdmux_srq *srq);

/* Owner: appends a receive that is done to those that the endpoint returns. [data path] */
static inline void rdmux_srq_append_done(struct rdmux_ep *ep, struct rdmux_request *request)
{
    request->next = NULL;
    if (ep->shared.done == NULL) {
        ep->shared.done = request;
    } else {
        ep->shared.done_last->next = request;
    }
    ep->shared.done_last = request;
}

#endif
