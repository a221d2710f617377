/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Conversion of requests into work requests, and their completions. */
#ifndef RDMUX_VERBS_SEND_H
#define RDMUX_VERBS_SEND_H

#include "verbs/verbs_endpoint.h"
#include "verbs/verbs_macros.h"
#include "verbs/verbs_queue.h"

#include <rdmux/provider.h>

#include <infiniband/verbs.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum rdmux_status rdmux_verbs_post(struct rdmux_provider_ep *base, struct rdmux_request *requests,
                                   size_t count, uint32_t flags, size_t *posted);
void rdmux_verbs_doorbell(struct rdmux_provider_ep *base);
/* verbs_transport.start for fabrics that have every operation, and .sent for those whose devices
 * finish work in order. */
enum rdmux_status rdmux_verbs_start(struct verbs_ep *ep, struct rdmux_request *request);
void rdmux_verbs_sent(struct verbs_queue *queue, const struct ibv_wc *wc);
/* True if a request of that many work requests must wait, for room or for earlier requests;
 * rdmux_verbs_resume() is called when the wait is over. [data path] */
bool rdmux_verbs_must_wait(struct verbs_ep *ep, const struct rdmux_request *request, uint32_t slots);
/* Adds a request's bytes to a work request of the data queue that has `before` bytes already;
 * inline if the device takes that many. [data path] */
void rdmux_verbs_add_bytes(struct verbs_ep *ep, struct ibv_send_wr *work,
                           const struct rdmux_request *request, uint32_t before);
/* Refuses a post with RDMUX_AGAIN; the core holds the request until rdmux_verbs_resume(). [data
 * path] */
static inline enum rdmux_status rdmux_verbs_again(struct verbs_ep *ep)
{
    ep->is_blocked = true;
    return RDMUX_AGAIN;
}

/* Resumes an endpoint whose post returned AGAIN: there may be room now. [data path] */
static inline void rdmux_verbs_resume(struct verbs_ep *ep)
{
    if (VERBS_UNLIKELY(ep->is_blocked)) {
        ep->is_blocked = false;
        rdmux_provider_resume(&ep->base);
    }
}

#endif
