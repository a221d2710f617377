/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Sends on the control channel of an endpoint. */
#include "api/object/control_send.h"

#include "api/core/ep.h"
#include "api/core/fabric.h"
#include "api/core/failover.h"
#include "api/data/fault.h"
#include "api/progress/cq_owner.h"
#include "api/progress/places.h"
#include "api/system/system.h"
#include "negotiation/control_channel.h"

#include <stdio.h>
#include <string.h>

void rdmux_ep_log_frame(struct rdmux_ep *ep, const char *does, const uint8_t *frame, size_t size)
{
    while (size != 0 && rdmux_log_wants(ep->fabric, RDMUX_LOG_TRACE)) {
        const bool is_hello = frame[0] == 'R'; /* the set-up sends it with a frame */
        bool bad = false;
        size_t total = rdmux_frame_total(frame, size, is_hello, &bad);
        total = bad || total == 0 || total > size ? size : total;
        rdmux_log_about(ep->fabric, RDMUX_CATEGORY_CONTROL, RDMUX_LOG_TRACE,
                        "endpoint %llu: %s %s, %zu bytes", (unsigned long long)ep->id, does,
                        rdmux_frame_name(frame, total), total);
        frame += total;
        size -= total;
    }
}

void rdmux_ep_say(struct rdmux_ep *ep, const uint8_t *frame, size_t size)
{
    if (ep->channel == NULL) {
        return;
    }
    rdmux_ep_log_frame(ep, "sends", frame, size);
    enum rdmux_status status = rdmux_channel_send(ep->channel, frame, size);
    if (status == RDMUX_OK || ep->phase != RDMUX_PHASE_READY) {
        return;
    }
    if (rdmux_failover_takes_channel(ep, rdmux_last_error())) {
        rdmux_cq_pend(ep->cq, ep);
    } else if (ep->fault == RDMUX_OK) {
        rdmux_ep_set_fault(ep, status, rdmux_last_error());
        rdmux_cq_pend(ep->cq, ep);
    }
}

void rdmux_ep_tell(struct rdmux_ep *ep, const struct rdmux_message *message)
{
    uint8_t frame[RDMUX_MESSAGE_MAX];
    if (ep->channel != NULL) {
        rdmux_ep_say(ep, frame, rdmux_message_encode(message, frame));
        if (message->type == RDMUX_FRAME_IMPORT) {
            rdmux_wipe(frame, sizeof(frame)); /* the token */
        }
    }
}

void rdmux_ep_tell_end(struct rdmux_ep *ep)
{
    if (ep->session.has_end || ep->session.is_end_told) {
        return;
    }
    rdmux_failover_tell_received(ep); /* the peer must know it before the end */
    struct rdmux_message message = { .type = RDMUX_FRAME_END, .status = RDMUX_PEER_GONE };
    switch ((enum rdmux_status)ep->end.status) {
    case RDMUX_OK:
        if (ep->phase != RDMUX_PHASE_READY) {
            return; /* an orderly end has been announced already */
        }
        snprintf(message.text, sizeof(message.text), "the peer closed its endpoint");
        break;
    case RDMUX_LENGTH:
    case RDMUX_DENIED:
    case RDMUX_OUT_OF_RANGE:
    case RDMUX_PROTOCOL:
    case RDMUX_NO_MEMORY:
    case RDMUX_IO:
        message.type = RDMUX_FRAME_FAULT;
        message.status = ep->end.status;
        memcpy(message.text, ep->info.text, sizeof(message.text));
        break;
    default:
        snprintf(message.text, sizeof(message.text), "the peer's endpoint failed: %.200s",
                 ep->info.text);
        break;
    }
    rdmux_ep_tell(ep, &message);
}

void rdmux_ep_control_rests(struct rdmux_ep *ep, const struct rdmux_channel *channel)
{
    if (channel != NULL && !rdmux_channel_is_attached(channel) &&
        rdmux_channel_holds_bytes(channel)) {
        rdmux_ep_list_held(ep);
        rdmux_cq_poke(ep->cq);
    }
}
