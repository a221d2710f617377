/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Hot endpoints: each poll of a cq reads their socket 0, without epoll. */
#ifndef RDMUX_TCP_HOT_H
#define RDMUX_TCP_HOT_H

#include "tcp_fallback/tcp_endpoint.h"
#include "tcp_fallback/tcp_lane.h"
#include "tcp_fallback/tcp_socket.h"

#include <sys/epoll.h>

/* Start (heat) and stop (cool) reading the endpoint's socket 0 at each poll. */
void rdmux_tcp_heat(struct tcp_ep *ep);
void rdmux_tcp_cool(struct tcp_ep *ep);
/* Turns EPOLLIN of socket 0 on or off. While the caller spins no thread waits in epoll, but each
 * arrival would still wake this epoll instance and all instances that it is nested in: 0.3 us
 * (measured) on the sender's side over loopback. [data path] */
static inline void rdmux_tcp_wake_for_input(struct tcp_ep *ep, bool on)
{
    struct tcp_lane *lane = &ep->lane0;
    if (lane->is_watched && !ep->in.is_paused && ep->state == TCP_CONNECTED &&
        on != ((lane->events & EPOLLIN) != 0)) {
        (void)rdmux_tcp_watch(lane, lane->events ^ EPOLLIN);
    }
}

#endif
