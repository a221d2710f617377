/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* What the kernel counts for the sockets of an endpoint. */
#ifndef RDMUX_TCP_FIGURES_H
#define RDMUX_TCP_FIGURES_H

#include <rdmux/provider.h>

void rdmux_tcp_ep_figures(struct rdmux_provider_ep *base, struct rdmux_provider_figures *out);

#endif
