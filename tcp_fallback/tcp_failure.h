/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Failures of tcp endpoints. */
#ifndef RDMUX_TCP_FAILURE_H
#define RDMUX_TCP_FAILURE_H

#include "tcp_fallback/tcp_endpoint.h"

/* Fails the endpoint and reports the cause to the core. Later causes are ignored. */
void rdmux_tcp_fail(struct tcp_ep *ep, enum rdmux_status status, const char *text);
/* Removes the endpoint from epoll and from all lists that poll serves. */
void rdmux_tcp_detach(struct tcp_ep *ep);

#endif
