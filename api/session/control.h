/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Handles messages of the peer on the control channel. */
#ifndef RDMUX_API_SESSION_CONTROL_H
#define RDMUX_API_SESSION_CONTROL_H

#include "api/core/ep.h"

/* Owner: handles a fault that the path reported. */
void rdmux_ep_path_fault(struct rdmux_ep *ep);
/* Owner: ends the search for the reason of a lost path, as the endpoint moves to another one. */
void rdmux_ep_forget_silence(struct rdmux_ep *ep);
/* Owner: returns the only device that the endpoint may use while the peer has an import whose
 * atomics are valid on that device alone. "": any device. */
const char *rdmux_ep_bound_device(struct rdmux_ep *ep);
/* Owner: handles a control-channel message of a connected endpoint. */
void rdmux_ep_message(struct rdmux_ep *ep, const uint8_t *frame, size_t size);
/* Owner: answers revocations of remotes whose requests have drained, and advances shutdown. Called
 * after each drain that needs it. */
void rdmux_ep_control_step(struct rdmux_ep *ep);

#endif
