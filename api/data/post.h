/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Send-side requests: from the application to the provider. */
#ifndef RDMUX_API_DATA_POST_H
#define RDMUX_API_DATA_POST_H

#include "api/core/ep.h"
#include "api/core/fabric.h"

/* Posts an empty PLACED write, a request of the core (control.c, read_drain.c, replay.c). Returns
 * false if the path takes none now, or has failed. */
bool rdmux_ep_flush(struct rdmux_ep *ep, struct rdmux_request *flush);
/* Owner: posts waiting requests as far as the provider takes them. */
void rdmux_ep_push(struct rdmux_ep *ep, bool more);
enum rdmux_status rdmux_ring_create(struct rdmux_fabric *fabric, struct rdmux_ring *ring,
                                    uint32_t depth, uint32_t max_sge, uint32_t max_inline);
void rdmux_ring_destroy(struct rdmux_fabric *fabric, struct rdmux_ring *ring);

#endif
