/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#ifndef RDMUX_API_SESSION_CHANNEL_SOCKET_H
#define RDMUX_API_SESSION_CHANNEL_SOCKET_H

#include "api/core/ep.h"

#include <sys/socket.h>

struct rdmux_ep;

/* Returns a socket that is connecting to an address, bound to `local` (attr.local). -1: *error is
 * the errno. */
int rdmux_channel_socket_dial(struct rdmux_ep *ep, const struct sockaddr *address, socklen_t length,
                              const char *local, int *error);
/* Sets the options of a control channel's socket. */
void rdmux_channel_socket_prepare(int socket);

#endif
