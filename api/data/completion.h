/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Completions: from the provider to the application. */
#ifndef RDMUX_API_DATA_COMPLETION_H
#define RDMUX_API_DATA_COMPLETION_H

#include "api/core/cq.h"
#include "api/core/ep.h"

/* Owner: handles resumes, held requests and faults of the endpoint, and returns no entries. */
void rdmux_ep_drain(struct rdmux_ep *ep);
/* Owner: drains an endpoint in any state: completions, events, resumes, faults, other work. Writes
 * entries from `at` on and returns their end. It is for rdmux_ep_layer.take(). */
struct rdmux_wc *rdmux_ep_take(struct rdmux_ep *ep, struct rdmux_wc *at, const struct rdmux_wc *end);
/* Owner: handles pended endpoints, of which there must be at least one, and writes up to max
 * entries (at least 1). */
size_t rdmux_cq_take(struct rdmux_cq *cq, struct rdmux_wc *wc, size_t max);
/* Owner: runs a round of progress and drains the endpoint, as in a poll that returns no entries. An
 * armed cq stays armed. */
void rdmux_ep_progress(struct rdmux_ep *ep);
/* Returns whether an entry could be returned. */
bool rdmux_ep_has_entries(const struct rdmux_ep *ep);
/* Returns whether all requests before this sequence are done. */
bool rdmux_ep_done_before(const struct rdmux_ep *ep, uint64_t sequence);
/* Owner: lets the path hand over what has already arrived, before the endpoint ends. */
void rdmux_ep_drain_path(struct rdmux_ep *ep);
/* Owner: handles resumes, held requests and faults of pended endpoints without returning entries.
 * Returns whether to call again at once. */
bool rdmux_cq_drain(struct rdmux_cq *cq);

#endif
