/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Receives on their way to the provider. */
#ifndef RDMUX_API_DATA_RECEIVE_H
#define RDMUX_API_DATA_RECEIVE_H

#include "api/core/ep.h"

/* Owner: the path is new; tells it of the receives posted so far. */
void rdmux_ep_offer_all_receives(struct rdmux_ep *ep);
/* Owner: the path is another one; tells it of those from this place on, which have their registrations. */
void rdmux_ep_offer_receives_again(struct rdmux_ep *ep, uint64_t from);
/* Owner: the same for receives that waited for keys. */
void rdmux_ep_offer_waiting_receives(struct rdmux_ep *ep);
/* Owner: for a path that needs keys and gets receives before it is connected: those posted so far
 * find their registrations; then they are offered, until all are (true). */
void rdmux_ep_resolve_receives(struct rdmux_ep *ep);
bool rdmux_ep_offer_early_receives(struct rdmux_ep *ep);

#endif
