/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The provider that always works: every operation over TCP sockets, or one adopted stream
 * socket. */
#ifndef RDMUX_TCP_PROVIDER_H
#define RDMUX_TCP_PROVIDER_H

#include <rdmux/provider.h>

extern const struct rdmux_provider_ops rdmux_tcp_provider;

#endif
