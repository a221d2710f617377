/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The states of an endpoint, and how it fails. */
#ifndef RDMUX_TCP_STATE_H
#define RDMUX_TCP_STATE_H

#include "tcp_fallback/tcp_endpoint.h"

/* The only writer of ep->state. */
void rdmux_tcp_write_state(struct tcp_ep *ep, enum tcp_state next);
/* Fails the endpoint and reports the cause to the core. Later causes are ignored. */
void rdmux_tcp_fail(struct tcp_ep *ep, enum rdmux_status status, const char *text);
/* Removes the endpoint from the poller and from all lists that poll serves. */
void rdmux_tcp_detach(struct tcp_ep *ep);

#endif
