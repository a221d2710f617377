/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Messages of the peer on the control channel. */
#ifndef RDMUX_API_SESSION_CONTROL_H
#define RDMUX_API_SESSION_CONTROL_H

#include "api/core/ep.h"

/* Owner: the path reported a fault. */
void rdmux_ep_path_fault(struct rdmux_ep *ep);
/* Owner: a message of the control channel, once connected. */
void rdmux_ep_message(struct rdmux_ep *ep, const uint8_t *frame, size_t size);
/* Owner: remotes whose requests have drained answer their revocation; shutdown goes on. Called
 * after each drain that needs it. */
void rdmux_ep_control_step(struct rdmux_ep *ep);

#endif
