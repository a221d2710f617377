/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Endpoints, from creation to end. */
#ifndef RDMUX_API_OBJECT_EP_H
#define RDMUX_API_OBJECT_EP_H

#include "api/core/cq.h"
#include "api/core/ep.h"
#include "api/core/fabric.h"

enum rdmux_status rdmux_ep_create(struct rdmux_fabric *fabric, struct rdmux_cq *cq,
                                  const struct rdmux_ep_attr *attr, struct rdmux_ep **out);
/* Copies the caller's attributes, checks every field and sets defaults. */
enum rdmux_status rdmux_ep_attr_check(const struct rdmux_ep_attr *from, struct rdmux_fabric *fabric,
                                      struct rdmux_cq *cq, struct rdmux_ep_attr *to);
/* Owner: attaches the path that the negotiation chose. Requests may start. */
void rdmux_ep_attach(struct rdmux_ep *ep, struct rdmux_provider_ep *path);
/* Owner: closes a present or former path of the endpoint and all the endpoint holds on it. */
void rdmux_ep_close_path(struct rdmux_ep *ep, struct rdmux_provider_ep *path);
/* Owner: fills in *out, as rdmux_ep_stats() does. */
void rdmux_ep_read_stats(struct rdmux_ep *ep, struct rdmux_ep_stats *out);
/* Owner: fills in the members of ep->info that change. */
void rdmux_ep_read_info(struct rdmux_ep *ep);
/* Owner: ends the endpoint. The first cause counts. Idempotent. */
void rdmux_ep_fail(struct rdmux_ep *ep, enum rdmux_status status, const char *format, ...)
    RDMUX_PRINTF(3, 4);
/* Owner: advances an endpoint in ENDING. */
void rdmux_ep_end_step(struct rdmux_ep *ep);
/* Owner: advances an endpoint in LINGERING, which ends once no message waits. */
void rdmux_ep_linger_step(struct rdmux_ep *ep);
/* Returns the deadline of an endpoint that lingers, or that ended before rdmux_accept() returned
 * it. UINT64_MAX: neither. rdmux_ep_linger_over() (owner) handles the expired deadline. */
uint64_t rdmux_ep_linger_deadline(const struct rdmux_ep *ep);
void rdmux_ep_linger_over(struct rdmux_ep *ep);
/* Owner: closes the endpoint; the next progress call frees its memory. No caller may hold its
 * handle except rdmux_ep_close(). */
void rdmux_ep_dismantle(struct rdmux_ep *ep);
/* Owner: frees a closed endpoint's memory, but for its failover. */
void rdmux_ep_free(struct rdmux_ep *ep);
/* Owner: checks that raw keys may be used on this endpoint. RDMUX_INVALID: it is no rdma://
 * endpoint, or is not connected. */
enum rdmux_status rdmux_ep_check_rdmacm(const struct rdmux_ep *ep, const char *call);
/* Owner: set-up failed. Ends requests, imports and the control channel. */
void rdmux_ep_end_unconnected(struct rdmux_ep *ep, enum rdmux_status status);

#endif
