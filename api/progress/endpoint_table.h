/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The endpoint table of a cq: endpoints by id and by the time of their next timer. */
#ifndef RDMUX_API_PROGRESS_ENDPOINT_TABLE_H
#define RDMUX_API_PROGRESS_ENDPOINT_TABLE_H

#include "api/core/cq.h"
#include "api/core/ep.h"

/* Owner: adds the endpoint to the cq, or removes it. RDMUX_NO_MEMORY. */
enum rdmux_status rdmux_cq_enrol(struct rdmux_cq *cq, struct rdmux_ep *ep);
void rdmux_cq_strike(struct rdmux_cq *cq, struct rdmux_ep *ep);
/* Owner: adds an endpoint that comes from another cq. RDMUX_NO_MEMORY: it is there, but without a
 * timer, so the caller ends it. */
enum rdmux_status rdmux_cq_enrol_arrival(struct rdmux_cq *cq, struct rdmux_ep *ep);
/* Owner: takes the endpoint off the lists of work: doorbells, busy, held, pending. */
void rdmux_cq_unlist(struct rdmux_cq *cq, struct rdmux_ep *ep);
/* Owner: returns the endpoint with this id, NULL if it is closed. */
struct rdmux_ep *rdmux_cq_endpoint(struct rdmux_cq *cq, uint64_t id);
/* Owner: updates the endpoint's timer after a change of rdmux_ep_deadline(). */
void rdmux_ep_timer(struct rdmux_ep *ep);
/* Owner: calls rdmux_ep_timers() of the endpoints whose timer is due. */
void rdmux_cq_run_timers(struct rdmux_cq *cq);

#endif
