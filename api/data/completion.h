/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Completions on their way to the application. */
#ifndef RDMUX_API_DATA_COMPLETION_H
#define RDMUX_API_DATA_COMPLETION_H

#include "api/core/cq.h"
#include "api/core/ep.h"

/* Owner: moves what can move: resumes, held requests, faults, and returns nothing. */
void rdmux_ep_move(struct rdmux_ep *ep);
/* Owner: moves endpoints that are pended, of which there is one at least, and writes up to max entries (at least 1). */
size_t rdmux_cq_take(struct rdmux_cq *cq, struct rdmux_wc *wc, size_t max);
/* True while an entry could be returned. */
bool rdmux_ep_has_entries(const struct rdmux_ep *ep);
/* All requests before this sequence are done. */
bool rdmux_ep_done_before(const struct rdmux_ep *ep, uint64_t sequence);
/* Owner: lets the path hand over what has arrived already, before the endpoint ends. */
void rdmux_ep_drain_path(struct rdmux_ep *ep);

#endif
