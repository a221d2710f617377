/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Waits until the device sends nothing to a peer's reads any more, before a revocation is answered. */
#ifndef RDMUX_API_OBJECT_READ_DRAIN_H
#define RDMUX_API_OBJECT_READ_DRAIN_H

#include "api/core/cq.h"
#include "api/core/ep.h"
#include "api/core/mail.h"

/* The same for what the device may still be sending to a peer's reads. The endpoint answers
 * once nothing of it is under way; or it ends. */
void rdmux_ep_deliver_read_drain(struct rdmux_cq *cq, struct rdmux_mail *mail);
void rdmux_ep_deliver_read_drain_end(struct rdmux_cq *cq, struct rdmux_mail *mail);
/* More to do? */
bool rdmux_read_drain_step(struct rdmux_ep *ep);
void rdmux_read_drain_leave(struct rdmux_ep *ep);
/* The path is closed, the endpoint lives on: nothing is under way to the peer any more. */
void rdmux_read_drain_cut(struct rdmux_ep *ep);

#endif
