/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The endpoints of a cq, by id and by the time of their next timer. */
#ifndef RDMUX_API_PROGRESS_ENDPOINT_TABLE_H
#define RDMUX_API_PROGRESS_ENDPOINT_TABLE_H

#include "api/core/cq.h"
#include "api/core/ep.h"

/* Owner: the endpoint is one of the cq's from now on, or no more. RDMUX_NO_MEMORY. */
enum rdmux_status rdmux_cq_enrol(struct rdmux_cq *cq, struct rdmux_ep *ep);
void rdmux_cq_strike(struct rdmux_cq *cq, struct rdmux_ep *ep);
/* Owner: the endpoint with this id, NULL if it has gone. */
struct rdmux_ep *rdmux_cq_endpoint(struct rdmux_cq *cq, uint64_t id);
/* Owner: what rdmux_ep_deadline() returns has changed. */
void rdmux_ep_timer(struct rdmux_ep *ep);
/* Owner: calls rdmux_ep_timers() of those that are due. */
void rdmux_cq_run_timers(struct rdmux_cq *cq);

#endif
