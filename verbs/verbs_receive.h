/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Receives of an endpoint that has no SRQ, and messages. */
#ifndef RDMUX_VERBS_RECEIVE_H
#define RDMUX_VERBS_RECEIVE_H

#include "verbs/verbs_endpoint.h"

#include <rdmux/provider.h>

#include <infiniband/verbs.h>

#include <stddef.h>

enum rdmux_status rdmux_verbs_post_recv(struct rdmux_provider_ep *base,
                                        struct rdmux_request *requests, size_t count);
/* Posts held receives while the device's receive queue has room. [data path] */
void rdmux_verbs_post_held(struct verbs_ep *ep);
/* verbs_transport.received and .receive_failed for fabrics that have every operation and whose
 * devices finish work in order. */
void rdmux_verbs_received(struct verbs_ep *ep, struct rdmux_request *request,
                          const struct ibv_wc *wc);
void rdmux_verbs_receive_failed(struct verbs_ep *ep, struct rdmux_request *request,
                                const struct ibv_wc *wc);

#endif
