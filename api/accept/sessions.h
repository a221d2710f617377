/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * TLS places: the bounded number of TLS sessions that a listener keeps for its pending connections.
 * For all functions: step_lock is held.
 */
#ifndef RDMUX_API_ACCEPT_SESSIONS_H
#define RDMUX_API_ACCEPT_SESSIONS_H

#include <stdbool.h>

struct rdmux_listener;
struct rdmux_pending_connection;

/* Takes a TLS place. False: none is free; the watch of the connection is called once one may be. */
bool rdmux_session_take_place(struct rdmux_pending_connection *pending);
/* Gives up the TLS place, or the wait for one: the peer is known, or the connection ends. */
void rdmux_session_leave_place(struct rdmux_pending_connection *pending);
/* Called on each scan of the timeouts. */
void rdmux_session_timer(struct rdmux_listener *listener);

#endif
