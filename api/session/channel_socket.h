/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#ifndef RDMUX_API_SESSION_CHANNEL_SOCKET_H
#define RDMUX_API_SESSION_CHANNEL_SOCKET_H

#include "api/core/ep.h"

#include <sys/socket.h>

/* Returns a socket that is connecting to an address, bound to `local` (attr.local). -1: *error is
 * the errno. */
int rdmux_channel_socket_dial(struct rdmux_ep *ep, const struct sockaddr *address, socklen_t length,
                              const char *local, int *error);
/* Sets the peer's address of the control channel, which the path's sockets use, too. */
void rdmux_ep_set_peer_address(struct rdmux_ep *ep, const struct sockaddr *address,
                               socklen_t length);
/* Sets it to the peer's IP address of a connected socket, or to none. */
void rdmux_ep_find_peer_address(struct rdmux_ep *ep, int socket);
/* Sets the options of a control channel's socket. */
void rdmux_channel_socket_prepare(int socket);

#endif
