/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The states of an endpoint, and how it fails. */
#include "tcp_fallback/tcp_state.h"

#include "api/base/list.h"
#include "tcp_fallback/tcp_completion.h"
#include "tcp_fallback/tcp_credit.h"
#include "tcp_fallback/tcp_hot.h"
#include "tcp_fallback/tcp_lane.h"
#include "tcp_fallback/tcp_socket.h"

#include <assert.h>

void rdmux_tcp_write_state(struct tcp_ep *ep, enum tcp_state next)
{
    /* Each state leads to the next one, and to TCP_QUIET. */
    assert(next == ep->state + 1 || (next == TCP_QUIET && ep->state != TCP_QUIET));
    ep->state = next;
}

void rdmux_tcp_detach(struct tcp_ep *ep)
{
    for (uint32_t i = 0; i < ep->lane_count; i++) {
        struct tcp_lane *lane = rdmux_tcp_lane(ep, i);
        rdmux_tcp_unwatch(lane);
        rdmux_tcp_set_blocked(lane, false);
    }
    rdmux_tcp_cool(ep);
    rdmux_node_remove(&ep->attention);
    rdmux_node_remove(&ep->out_armed);
    rdmux_node_remove(&ep->paused);
    rdmux_tcp_credit_leave(ep);
}

void rdmux_tcp_fail(struct tcp_ep *ep, enum rdmux_status status, const char *text)
{
    if (ep->state != TCP_CONNECTED) {
        return;
    }
    rdmux_tcp_write_state(ep, TCP_FAILED);
    rdmux_tcp_detach(ep);
    if (!ep->is_quiescing) {
        rdmux_provider_failed(&ep->base, status, text);
    }
}
