/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Send-side requests: from the application to the provider. */
#ifndef RDMUX_API_DATA_POST_H
#define RDMUX_API_DATA_POST_H

#include "api/core/ep.h"
#include "api/core/fabric.h"

/* Owner: posts waiting requests as far as the provider takes them. */
void rdmux_ep_push(struct rdmux_ep *ep, bool more);
/* Owner: posts one request, as rdmux_post() does. A full queue makes no progress, and no WRITABLE
 * follows. [data path] */
enum rdmux_status rdmux_ep_post(struct rdmux_ep *ep, const struct rdmux_wr *wr);
/* Owner: makes requests wait until the path can take more, or lets them go on. */
static inline void rdmux_ep_block(struct rdmux_ep *ep)
{
    ep->flow.is_blocked = true;
}

static inline void rdmux_ep_unblock(struct rdmux_ep *ep)
{
    ep->flow.is_blocked = false;
}

/* Owner: any request in the ring may have RDMUX_FENCE. */
static inline void rdmux_ep_expect_fences(struct rdmux_ep *ep)
{
    ep->flow.fenced_until = ep->send.head;
}

/* Owner: shutdown is asked, so later requests are refused. */
static inline void rdmux_ep_ask_shutdown(struct rdmux_ep *ep)
{
    ep->flow.is_shutdown_asked = true;
}

/* Owner: no WRITABLE event is returned for an earlier refusal. */
static inline void rdmux_ep_cancel_writable(struct rdmux_ep *ep)
{
    ep->flow.wants_writable = false;
}

#endif
