/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Read drain: waits until the device sends nothing more to a peer's reads, before a revocation is
 * answered. */
#ifndef RDMUX_API_OBJECT_READ_DRAIN_H
#define RDMUX_API_OBJECT_READ_DRAIN_H

#include "api/core/cq.h"
#include "api/core/ep.h"
#include "api/core/mail.h"

/* Delivers a rdmux_revoke_mail: the endpoint answers once the device has nothing under way to a
 * peer's reads, or it ends. */
void rdmux_ep_deliver_read_drain(struct rdmux_cq *cq, struct rdmux_mail *mail);
/* Advances the read drain; returns whether more is to do. */
bool rdmux_read_drain_step(struct rdmux_ep *ep);
void rdmux_read_drain_leave(struct rdmux_ep *ep);
/* The path is closed and the endpoint lives on: answers all read drains, as nothing is under way to
 * the peer. */
void rdmux_read_drain_cut(struct rdmux_ep *ep);

#endif
