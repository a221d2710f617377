/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Endpoints, from creation to the end. */
#ifndef RDMUX_API_OBJECT_EP_H
#define RDMUX_API_OBJECT_EP_H

#include "api/core/cq.h"
#include "api/core/ep.h"
#include "api/core/fabric.h"

enum rdmux_status rdmux_ep_create(struct rdmux_fabric *fabric, struct rdmux_cq *cq,
                                  const struct rdmux_ep_attr *attr, struct rdmux_ep **out);
/* Fills attr from the caller's, checks every field, sets defaults. */
enum rdmux_status rdmux_ep_attr_check(const struct rdmux_ep_attr *from, struct rdmux_fabric *fabric,
                                      struct rdmux_cq *cq, struct rdmux_ep_attr *to);
/* Owner: negotiation gave the endpoint its path; requests may start. */
void rdmux_ep_attach(struct rdmux_ep *ep, struct rdmux_provider_ep *path);
/* Owner: closes a path that is or was the endpoint's, with all that the endpoint has on it. */
void rdmux_ep_close_path(struct rdmux_ep *ep, struct rdmux_provider_ep *path);
/* Owner: ends the endpoint; the first cause counts. Idempotent. */
void rdmux_ep_fail(struct rdmux_ep *ep, enum rdmux_status status, const char *format, ...)
    RDMUX_PRINTF(3, 4);
/* Owner: goes on with an endpoint in ENDING. */
void rdmux_ep_end_step(struct rdmux_ep *ep);
/* Owner: goes on with an endpoint in LINGERING, which ends once no message waits. */
void rdmux_ep_linger_step(struct rdmux_ep *ep);
/* Owner: the time of an endpoint that lingers starts again: it has got a receive, or an owner. */
void rdmux_ep_linger_anew(struct rdmux_ep *ep);
/* When the time of an endpoint is over that lingers, or that ended before rdmux_accept() returned
 * it; UINT64_MAX: it is neither. Owner: it is over. */
uint64_t rdmux_ep_linger_deadline(const struct rdmux_ep *ep);
void rdmux_ep_linger_over(struct rdmux_ep *ep);
/* Owner: closes it; its memory goes at the next progress. Nobody may have its handle but
 * rdmux_ep_close(). */
void rdmux_ep_dismantle(struct rdmux_ep *ep);
/* Owner: frees a closed endpoint's memory. */
void rdmux_ep_free(struct rdmux_ep *ep);
/* Owner: may raw keys be used on this endpoint? RDMUX_INVALID: it is not plain, or not connected. */
enum rdmux_status rdmux_ep_check_plain(const struct rdmux_ep *ep, const char *call);
/* Owner: set-up failed: requests, imports and the control channel end. */
void rdmux_ep_end_unconnected(struct rdmux_ep *ep);

#endif
