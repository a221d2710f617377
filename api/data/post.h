/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Requests on their way to the provider. */
#ifndef RDMUX_API_DATA_POST_H
#define RDMUX_API_DATA_POST_H

#include "api/core/ep.h"
#include "api/core/fabric.h"

/* Posts a PLACED write of nothing, a request of the core's own (control.c). False: not now, or the path
 * has failed. */
bool rdmux_ep_flush(struct rdmux_ep *ep, struct rdmux_request *flush);
/* Owner: gives held requests to the provider as far as it takes them. */
void rdmux_ep_push(struct rdmux_ep *ep, bool more);
enum rdmux_status rdmux_ring_create(struct rdmux_fabric *fabric, struct rdmux_ring *ring,
                                    uint32_t depth, uint32_t max_sge, uint32_t max_inline);
void rdmux_ring_destroy(struct rdmux_fabric *fabric, struct rdmux_ring *ring);

#endif
