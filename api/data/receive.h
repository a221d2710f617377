/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Receives: from the application to the provider. */
#ifndef RDMUX_API_DATA_RECEIVE_H
#define RDMUX_API_DATA_RECEIVE_H

#include "api/core/ep.h"

/* Owner: posts one receive, as rdmux_post_recv() does. [data path] */
enum rdmux_status rdmux_ep_post_receive(struct rdmux_ep *ep, const struct rdmux_wr *wr);
/* Owner: tells a new path of all receives posted so far. */
void rdmux_ep_offer_all_receives(struct rdmux_ep *ep);
/* Owner: after a move, tells the path of the receives from this place on, which have their
 * registrations. */
void rdmux_ep_offer_receives_again(struct rdmux_ep *ep, uint64_t from);
/* Owner: offers receives that waited for keys. */
void rdmux_ep_offer_waiting_receives(struct rdmux_ep *ep);
/* Owner: for a path that needs keys and gets receives before it is connected.
 * rdmux_ep_resolve_receives() finds the registrations of the receives posted so far.
 * rdmux_ep_offer_early_receives() then offers them, and returns true once all are offered. */
void rdmux_ep_resolve_receives(struct rdmux_ep *ep);
bool rdmux_ep_offer_early_receives(struct rdmux_ep *ep);
/* Owner: restarts the time for which the endpoint lingers, if it does: it began to, or got a receive
 * or an owner. */
void rdmux_ep_linger_anew(struct rdmux_ep *ep);

#endif
