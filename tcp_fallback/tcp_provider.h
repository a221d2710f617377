/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The fallback provider: every operation over TCP sockets, or over one adopted stream socket. */
#ifndef RDMUX_TCP_PROVIDER_H
#define RDMUX_TCP_PROVIDER_H

#include <rdmux/provider.h>

extern const struct rdmux_provider_ops rdmux_tcp_provider;

#endif
