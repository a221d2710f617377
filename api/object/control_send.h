/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Messages to the peer on the control channel. */
#ifndef RDMUX_API_OBJECT_CONTROL_SEND_H
#define RDMUX_API_OBJECT_CONTROL_SEND_H

#include "api/core/ep.h"

/* Owner: one turn of a control channel of the endpoint's, or NULL, is over. What the session holds has
 * another one, after the others. */
void rdmux_ep_control_rests(struct rdmux_ep *ep, const struct rdmux_channel *channel);
/* Owner: tells the peer of what has come, with failover. */
void rdmux_ep_tell_received(struct rdmux_ep *ep);
/* Owner: sends a message on the control channel; nothing if it is gone. */
void rdmux_ep_tell(struct rdmux_ep *ep, const struct rdmux_message *message);
/* The same of a whole frame. */
void rdmux_ep_say(struct rdmux_ep *ep, const uint8_t *frame, size_t size);
/* Owner: the endpoint is about to end; tells the peer why, if it can be told. */
void rdmux_ep_tell_end(struct rdmux_ep *ep);

#endif
