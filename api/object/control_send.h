/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Sends messages to the peer on the control channel. */
#ifndef RDMUX_API_OBJECT_CONTROL_SEND_H
#define RDMUX_API_OBJECT_CONTROL_SEND_H

#include "api/core/ep.h"

/* Owner: ends one turn of `channel`, a control channel of the endpoint, or NULL. If its TLS session
 * still holds bytes, the endpoint gets another turn after the other endpoints. */
void rdmux_ep_control_rests(struct rdmux_ep *ep, const struct rdmux_channel *channel);
/* Owner: sends a message on the control channel. Does nothing without a channel. */
void rdmux_ep_tell(struct rdmux_ep *ep, const struct rdmux_message *message);
/* Owner: sends an encoded frame, as rdmux_ep_tell() does. */
void rdmux_ep_say(struct rdmux_ep *ep, const uint8_t *frame, size_t size);
/* Logs a HELLO or frame of the control channel at level trace. does: "sends" or "receives". */
void rdmux_ep_log_frame(struct rdmux_ep *ep, const char *does, const uint8_t *frame, size_t size);
/* Owner: tells the peer why the endpoint ends, before it ends, if a control channel is left. */
void rdmux_ep_tell_end(struct rdmux_ep *ep);

#endif
