/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Failures of tcp endpoints. */
#include "tcp_fallback/tcp_failure.h"

#include "api/base/list.h"
#include "tcp_fallback/tcp_completion.h"
#include "tcp_fallback/tcp_credit.h"
#include "tcp_fallback/tcp_hot.h"
#include "tcp_fallback/tcp_lane.h"
#include "tcp_fallback/tcp_socket.h"

void rdmux_tcp_detach(struct tcp_ep *ep)
{
    struct tcp_cq *cq = rdmux_tcp_cq_of(ep);
    for (uint32_t i = 0; i < ep->lane_count; i++) {
        struct tcp_lane *lane = rdmux_tcp_lane(ep, i);
        rdmux_tcp_unwatch(lane);
        if (lane->is_blocked) {
            lane->is_blocked = false;
            cq->blocked--;
        }
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
    ep->state = TCP_FAILED;
    rdmux_tcp_detach(ep);
    if (!ep->is_quiescing) {
        rdmux_provider_failed(&ep->base, status, text);
    }
}
