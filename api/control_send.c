/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Sends on the control channel of an endpoint. */
#include "api/failover.h"
#include "negotiation/control_channel.h"

#include <stdio.h>
#include <string.h>

void rdmux_ep_say(struct rdmux_ep *ep, const uint8_t *frame, size_t size)
{
    if (ep->channel == NULL) {
        return;
    }
    enum rdmux_status status = rdmux_channel_send(ep->channel, frame, size);
    if (status == RDMUX_OK || ep->phase != RDMUX_PHASE_READY) {
        return;
    }
    if (ep->failover != NULL) {
        struct rdmux_resume *resume = &ep->failover->resume;
        resume->is_broken = true; /* not within this call: the caller may be reading from it */
        snprintf(resume->text, sizeof(resume->text), "%s", rdmux_last_error());
        rdmux_cq_pend(ep->cq, ep);
    } else if (ep->fault == RDMUX_OK) {
        ep->fault = (uint32_t)status;
        snprintf(ep->fault_text, sizeof(ep->fault_text), "%s", rdmux_last_error());
        rdmux_cq_pend(ep->cq, ep);
    }
}

void rdmux_ep_tell(struct rdmux_ep *ep, const struct rdmux_message *message)
{
    uint8_t frame[RDMUX_MESSAGE_MAX];
    if (ep->channel != NULL) {
        rdmux_ep_say(ep, frame, rdmux_message_encode(message, frame));
        if (message->type == RDMUX_FRAME_IMPORT) {
            explicit_bzero(frame, sizeof(frame)); /* the token */
        }
    }
}
