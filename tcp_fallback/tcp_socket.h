/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Options, events and errors of data sockets. */
#ifndef RDMUX_TCP_SOCKET_H
#define RDMUX_TCP_SOCKET_H

#include "tcp_fallback/tcp_lane.h"

#include "api/system/system.h"

#include <rdmux/provider.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tcp_ep;

struct tcp_domain {
    struct rdmux_provider_domain base;
    bool is_dctcp; /* the system has DCTCP and allows it */
};

/* Sets the options of a data socket, before connect() if this side dials it. A failure only costs
 * speed, or the core's heartbeats notice it. If both ends are on this host, the congestion control
 * BBR, which paces, is replaced by Reno. */
void rdmux_tcp_socket_setup(struct tcp_ep *ep, int fd);
/* A dialled socket is connected: its own address may show that both ends are on this host. */
void rdmux_tcp_socket_dialled(const struct tcp_ep *ep, int fd);
/* Restores a shared socket's options. */
void rdmux_tcp_socket_restore(struct tcp_ep *ep, int fd);
/* Registers the events of a socket with the poller of its cq. */
enum rdmux_status rdmux_tcp_watch(struct tcp_lane *lane, uint32_t events);
void rdmux_tcp_unwatch(struct tcp_lane *lane);
/* Writes "text: connection reset by peer". */
void rdmux_tcp_error_text(char *out, size_t size, const char *text, int error);
/* Text for EFAULT: the kernel cannot access a request's buffer or a region's memory. */
extern const char rdmux_tcp_bad_buffer[];

#endif
