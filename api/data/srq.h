/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Shared receive queues. */
#ifndef RDMUX_API_DATA_SRQ_H
#define RDMUX_API_DATA_SRQ_H

#include "api/core/ep.h"
#include "api/core/srq.h"

/* Owner: a receive for the endpoint, now on ep->srq_taken; NULL: it waits for one. [data path] */
struct rdmux_request *rdmux_srq_take(struct rdmux_ep *ep);
/* Owner: receives that the endpoint could take now. */
uint32_t rdmux_srq_available(const struct rdmux_ep *ep);
/* Owner: tells the endpoint's provider what it was offered, or that others wait. */
void rdmux_srq_tell(struct rdmux_ep *ep);
/* Owner: the endpoint's path is gone: what was set aside for it is for others. */
void rdmux_srq_leave(struct rdmux_ep *ep);
/* A record goes back to the free ones (returned to the application) or to the front of the posted
 * (its endpoint closed). */
void rdmux_srq_put(struct rdmux_srq *srq, struct rdmux_request *request);
void rdmux_srq_unput(struct rdmux_srq *srq, struct rdmux_request *request);
/* The provider SRQ on the cq's domain, opened when first asked for; receives posted so far are
 * given to it. max_sge: pieces of a list that the paths there take; 0: all that there can be. */
enum rdmux_status rdmux_srq_domain(struct rdmux_srq *srq, struct rdmux_provider_cq *cq,
                                   uint32_t max_sge, struct rdmux_provider_srq **out);
/* An endpoint uses the provider SRQ that rdmux_srq_domain() gave (1), or does no more (-1). */
void rdmux_srq_use(struct rdmux_srq *srq, const struct rdmux_provider_srq *provider, int change);
/* Ends the posted list with this record. */
void rdmux_srq_append(struct rdmux_srq *srq, struct rdmux_request *request);

#endif
