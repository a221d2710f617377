/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Hot endpoints: each poll of a cq reads their socket 0, without epoll. */
#ifndef RDMUX_TCP_HOT_H
#define RDMUX_TCP_HOT_H

#include "tcp_fallback/tcp_endpoint.h"

/* Start (heat) and stop (cool) reading the endpoint's socket 0 at each poll. */
void rdmux_tcp_heat(struct tcp_ep *ep);
void rdmux_tcp_cool(struct tcp_ep *ep);
/* Turns EPOLLIN of socket 0 on or off. While the caller spins no thread waits in epoll, but each
 * arrival would still wake this epoll instance and all instances that it is nested in: 0.3 us
 * (measured) on the sender's side over loopback. */
void rdmux_tcp_wake_for_input(struct tcp_ep *ep, bool on);

#endif
