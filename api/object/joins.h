/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Acceptors' endpoints in set-up, by the secret of their connection, so that joining sockets find them. Any thread. */
#ifndef RDMUX_API_JOINS_H
#define RDMUX_API_JOINS_H

#include "api/core/cq.h"
#include "api/core/ep.h"
#include "api/core/fabric.h"

enum rdmux_status rdmux_joins_add(struct rdmux_fabric *fabric, struct rdmux_ep *ep);
void rdmux_joins_remove(struct rdmux_fabric *fabric, struct rdmux_ep *ep);
/* The one of this cq that the socket joins, NULL: there is none. The cq's owner, so that it stays. */
struct rdmux_ep *rdmux_joins_find(struct rdmux_cq *cq, const struct rdmux_join *join);
/* The same; cq NULL: on any queue. fabric->lock is held. */
struct rdmux_ep *rdmux_joins_find_locked(struct rdmux_fabric *fabric, const struct rdmux_cq *cq,
                                         const struct rdmux_join *join);

#endif
