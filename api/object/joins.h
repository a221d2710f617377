/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Acceptors' endpoints in set-up, found by the secret of their connection when a further socket
 * joins. Any thread. */
#ifndef RDMUX_API_OBJECT_JOINS_H
#define RDMUX_API_OBJECT_JOINS_H

#include "api/core/cq.h"
#include "api/core/ep.h"
#include "api/core/fabric.h"

enum rdmux_status rdmux_joins_add(struct rdmux_fabric *fabric, struct rdmux_ep *ep);
void rdmux_joins_remove(struct rdmux_fabric *fabric, struct rdmux_ep *ep);
/* Returns the endpoint of this cq that the socket joins, or NULL. Called by the cq's owner, so the
 * endpoint stays valid. */
struct rdmux_ep *rdmux_joins_find(struct rdmux_cq *cq, const struct rdmux_join *join);
/* As rdmux_joins_find(). cq NULL: on any cq. fabric->lock is held. */
struct rdmux_ep *rdmux_joins_find_locked(struct rdmux_fabric *fabric, const struct rdmux_cq *cq,
                                         const struct rdmux_join *join);

#endif
