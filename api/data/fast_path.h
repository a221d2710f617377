/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * The express lane of a cq (provider.h says what it is). Its gate, the words by which calls and the
 * service thread agree who owns the cq, is the gate of every other call, too.
 *
 * While the lane is open the counters of its endpoint's send ring stand still: they are where they
 * were when it was opened, when nothing was under way. Nobody sees that, as everybody else who comes
 * to own the cq closes the lane first: rdmux_cq_enter(), rdmux_cq_claim().
 */
#ifndef RDMUX_API_LANE_H
#define RDMUX_API_LANE_H

#include "api/core/cq.h"
#include "api/core/ep.h"
#include "api/core/mr.h"
#include "api/core/remote.h"

/* Makes the gate, and the lane, closed. RDMUX_NO_MEMORY. */
enum rdmux_status rdmux_lane_create(struct rdmux_cq *cq);
void rdmux_lane_destroy(struct rdmux_cq *cq);

/* Can the endpoint's path have a lane at all? */
bool rdmux_lane_is_possible(const struct rdmux_ep *ep);
/* A write that the lane might take came the ordinary way: is the lane open now, for this endpoint,
 * with room? Any state of the cq, which the caller does not own. [data path] */
bool rdmux_lane_ready(struct rdmux_ep *ep);
/* Owner: the lane is closed when it returns. [data path] */
void rdmux_lane_close(struct rdmux_cq *cq);
/* rdmux_write() the ordinary way; front.c has what comes before. [data path] */
enum rdmux_status rdmux_write_ordinary(struct rdmux_ep *ep, const void *buf, size_t length,
                                       struct rdmux_mr *mr, struct rdmux_remote *remote,
                                       uint64_t offset, void *context, uint32_t flags);
/* Owner: the endpoint has no part in the lane any more, which is closed. */
void rdmux_lane_forget(struct rdmux_ep *ep);
/* Owner: after a change of what the endpoint may do with the remote. */
void rdmux_lane_aim(struct rdmux_remote *remote);

#endif
