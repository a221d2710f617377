/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* A connected endpoint leaves its cq, and enters another one. */
#ifndef RDMUX_TCP_CHANGE_CQ_H
#define RDMUX_TCP_CHANGE_CQ_H

#include <rdmux/provider.h>

enum rdmux_status rdmux_tcp_ep_leave(struct rdmux_provider_ep *base);
enum rdmux_status rdmux_tcp_ep_enter(struct rdmux_provider_ep *base);

#endif
