/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Hot endpoints: each poll of a cq reads their socket 0, without the poller. */
#ifndef RDMUX_TCP_HOT_H
#define RDMUX_TCP_HOT_H

#include "api/system/system.h"
#include "tcp_fallback/tcp_endpoint.h"
#include "tcp_fallback/tcp_lane.h"
#include "tcp_fallback/tcp_socket.h"

/* Start (heat) and stop (cool) reading the endpoint's socket 0 at each poll. */
void rdmux_tcp_heat(struct tcp_ep *ep);
void rdmux_tcp_cool(struct tcp_ep *ep);
/* Turns RDMUX_READY_IN of socket 0 on or off. While the caller spins no thread waits, but
 * each arrival would still wake the poller and all pollers that it is a member of: 0.3 us
 * (measured) on the sender's side over loopback. [data path] */
static inline void rdmux_tcp_wake_for_input(struct tcp_ep *ep, bool on)
{
    struct tcp_lane *lane = &ep->lane0;
    if (lane->is_watched && !ep->in.is_paused && ep->state == TCP_CONNECTED &&
        on != ((lane->events & RDMUX_READY_IN) != 0)) {
        (void)rdmux_tcp_watch(lane, lane->events ^ RDMUX_READY_IN);
    }
}

#endif
