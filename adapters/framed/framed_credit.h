/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Credits of messages, and shared receives. A message starts only with a credit, so none waits at
 * the receiver. */
#ifndef RDMUX_FRAMED_CREDIT_H
#define RDMUX_FRAMED_CREDIT_H

#include "adapters/framed/framed.h"

void rdmux_framed_credit_join(struct framed_ep *ep, struct framed_srq *srq);
void rdmux_framed_credit_leave(struct framed_ep *ep);
/* The endpoint is connected: the peer may hear of the receives that are there. */
void rdmux_framed_credit_begin(struct framed_ep *ep);
/* Counts a message of the peer, which had a credit. */
void rdmux_framed_credit_use(struct framed_ep *ep);
void rdmux_framed_credit_asked(struct framed_ep *ep);
/* False: the peer gives back what it never had. */
bool rdmux_framed_credit_returned(struct framed_ep *ep, uint64_t count);

#endif
