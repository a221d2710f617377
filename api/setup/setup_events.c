/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The events of an endpoint's set-up and of its control channel: sockets, providers and timers hand
 * them to the stage that the endpoint is in. */
#include "api/core/ep.h"
#include "api/data/completion.h"
#include "api/failover/failover.h"
#include "api/object/control_send.h"
#include "api/object/ep.h"
#include "api/object/inbox.h"
#include "api/object/peer_process.h"
#include "api/progress/places.h"
#include "api/session/control.h"
#include "api/session/liveness.h"
#include "api/session/setup_state.h"
#include "api/setup/rdmacm_endpoint.h"
#include "api/setup/setup.h"
#include "negotiation/control_channel.h"

#include <stdio.h>

void rdmux_ep_setup_stage(const struct rdmux_ep *ep, char *out, size_t size)
{
    const struct rdmux_setup *setup = ep->setup;
    if (setup == NULL) {
        snprintf(out, size, "over");
        return;
    }
    switch (setup->stage) {
    case SETUP_RESOLVING:
        snprintf(out, size, "resolving the name");
        break;
    case SETUP_DIALING:
        snprintf(out, size, "dialling");
        break;
    case SETUP_TALKING:
        snprintf(out, size, "negotiating (%s)", rdmux_handshake_state(setup->handshake));
        break;
    case SETUP_FINDING_WAY:
        snprintf(out, size, "finding the way to the peer");
        break;
    case SETUP_OPENING:
        snprintf(out, size, "opening the device");
        break;
    case SETUP_READYING:
        snprintf(out, size, "registering receives");
        break;
    case SETUP_CONNECTING:
        snprintf(out, size, "connecting; is a program listening there?");
        break;
    }
}

void rdmux_ep_setup_step(struct rdmux_ep *ep)
{
    struct rdmux_setup *setup = ep->setup;
    if (setup != NULL && ep->is_rdmacm) {
        rdmux_rdmacm_step(ep);
        return;
    }
    if (setup == NULL || setup->handshake == NULL) {
        return;
    }
    struct rdmux_path_attempt *attempt = &setup->attempt;
    if (attempt->path != NULL) {
        attempt->path->ready = 0;
        attempt->path->resume = 0;
    }
    struct rdmux_inbox_frame *frame;
    while (ep->setup != NULL && (frame = rdmux_inbox_take(ep)) != NULL) {
        setup->active_ns = rdmux_now(ep->fabric);
        rdmux_handshake_frame(setup->handshake, frame->bytes, frame->size, rdmux_setup_now(ep));
        rdmux_inbox_free(ep, frame);
        rdmux_setup_run(ep);
    }
    if (ep->setup == NULL) {
        return;
    }
    if (attempt->path == NULL) {
        rdmux_setup_run(ep);
        return;
    }
    rdmux_path_attempt_step(ep);
    if (ep->channel != NULL && rdmux_channel_is_attached(ep->channel)) {
        (void)rdmux_channel_flush(ep->channel); /* a lost channel shows as the path's fault */
    }
    rdmux_setup_run(ep);
}

void rdmux_provider_control_received(struct rdmux_provider_ep *path, const void *frame, size_t size)
{
    struct rdmux_ep *ep = path->ep;
    rdmux_ep_log_frame(ep, "receives", frame, size);
    rdmux_channel_note_received(ep->channel, frame, size);
    if (!rdmux_inbox_put(ep, frame, size)) {
        rdmux_provider_failed(path, RDMUX_NO_MEMORY, "control channel: out of memory");
        return;
    }
    ep->work |= RDMUX_WORK_CONTROL;
    rdmux_provider_ready(path);
}

static void channel_ended(struct rdmux_ep *ep, enum rdmux_status status)
{
    if (ep->setup != NULL && ep->phase == RDMUX_PHASE_SETUP) {
        rdmux_handshake_lost(ep->setup->handshake, status, rdmux_last_error(), rdmux_setup_now(ep));
        rdmux_setup_run(ep);
        return;
    }
    char text[RDMUX_TEXT_MAX];
    snprintf(text, sizeof(text), "%s", rdmux_last_error());
    if (ep->failover != NULL && status == RDMUX_PEER_GONE && rdmux_reconnect_begin(ep, text)) {
        return;
    }
    rdmux_ep_drain_path(ep);
    if (ep->fault == RDMUX_DENIED) {
        rdmux_ep_fail(ep, status, "%.100s; before, %.140s", text, ep->cause.text);
        return;
    }
    rdmux_ep_fail(ep, status, "%s", text);
}

/* While failover searches for a path, handshake frames and other frames arrive interleaved. */
static bool is_of_handshake(const struct rdmux_ep *ep, const uint8_t *frame)
{
    return ep->setup != NULL &&
           (ep->phase == RDMUX_PHASE_SETUP || frame[0] < RDMUX_FRAME_HEARTBEAT);
}

/* Returns whether frames are read now. Before its search begins, an endpoint would take the frames
 * of the peer's search for messages: they wait until it is at its new cq. */
static bool reads_frames(const struct rdmux_ep *ep)
{
    return ep->channel != NULL && !rdmux_failover_delays_search(ep);
}

void rdmux_ep_control_ready(struct rdmux_ep *ep)
{
    if (ep->setup != NULL && ep->setup->stage == SETUP_DIALING) {
        rdmux_dial_ready(ep);
        return;
    }
    if (ep->failover != NULL && ep->phase == RDMUX_PHASE_READY) {
        rdmux_reconnect_ready(ep);
    }
    if (ep->channel != NULL) {
        rdmux_channel_begin_turn(ep->channel);
    }
    for (int i = 0; reads_frames(ep) && i < RDMUX_CHANNEL_TURN_FRAMES; i++) {
        const uint8_t *frame;
        size_t size;
        enum rdmux_status status = rdmux_channel_flush(ep->channel);
        if (status == RDMUX_OK) {
            status = rdmux_channel_receive(ep->channel, &frame, &size);
        }
        if (status == RDMUX_AGAIN) {
            rdmux_ep_control_rests(ep, ep->channel);
            return;
        }
        if (status != RDMUX_OK) {
            channel_ended(ep, status);
            return;
        }
        rdmux_ep_log_frame(ep, "receives", frame, size);
        if (is_of_handshake(ep, frame)) {
            ep->setup->active_ns = rdmux_now(ep->fabric);
            rdmux_handshake_frame(ep->setup->handshake, frame, size, rdmux_setup_now(ep));
            rdmux_setup_run(ep);
        } else if (ep->phase == RDMUX_PHASE_READY) {
            rdmux_ep_heard(ep);
            rdmux_ep_message(ep, frame, size);
        }
    }
    if (reads_frames(ep)) {
        rdmux_ep_control_rests(ep, ep->channel); /* the socket reports the rest */
    }
}

void rdmux_ep_timers(struct rdmux_ep *ep, uint64_t now_ns)
{
    if (ep->phase == RDMUX_PHASE_READY) {
        if (ep->failover != NULL) {
            rdmux_failover_step(ep);
        }
        if (ep->phase == RDMUX_PHASE_READY) {
            rdmux_ep_live_timers(ep, now_ns);
        }
        return;
    }
    if (ep->phase == RDMUX_PHASE_ENDING) {
        rdmux_ep_end_step(ep);
        return;
    }
    if (now_ns >= rdmux_ep_linger_deadline(ep)) {
        rdmux_ep_linger_over(ep);
        return;
    }
    if (ep->setup == NULL) {
        return;
    }
    if (now_ns >= ep->setup->deadline_ns) {
        char text[RDMUX_TEXT_MAX];
        char stage[64];
        rdmux_ep_setup_stage(ep, stage, sizeof(stage));
        snprintf(text, sizeof(text), "%s: set-up took longer than allowed; it was %s",
                 ep->setup->target, stage);
        rdmux_setup_fail(ep, RDMUX_TIMED_OUT, text, false);
        return;
    }
    if (now_ns >= ep->setup->yield_ns) {
        ep->setup->yield_ns = UINT64_MAX; /* the waiting accept call checks by itself */
    }
    if (ep->setup->handshake != NULL && now_ns >= rdmux_setup_handshake_deadline(ep->setup)) {
        rdmux_measure_step(ep);
        rdmux_handshake_time(ep->setup->handshake, rdmux_setup_now(ep));
        rdmux_setup_run(ep);
    }
}

uint64_t rdmux_ep_deadline(const struct rdmux_ep *ep)
{
    if (ep->phase == RDMUX_PHASE_READY) {
        uint64_t silent_ns = rdmux_ep_silent_ns(ep);
        uint64_t deadline = silent_ns < ep->session.heartbeat_ns ? silent_ns
                                                                 : ep->session.heartbeat_ns;
        if (ep->session.unexplained_deadline_ns != 0 &&
            ep->session.unexplained_deadline_ns < deadline) {
            deadline = ep->session.unexplained_deadline_ns;
        }
        if (ep->failover != NULL && rdmux_failover_deadline(ep) < deadline) {
            deadline = rdmux_failover_deadline(ep);
        }
        return ep->session.shutdown_deadline_ns != 0 && ep->session.shutdown_deadline_ns < deadline
                   ? ep->session.shutdown_deadline_ns
                   : deadline;
    }
    if (ep->phase == RDMUX_PHASE_ENDING) {
        return rdmux_now(ep->fabric) + 1000000;
    }
    if (ep->setup == NULL) {
        return rdmux_ep_linger_deadline(ep);
    }
    uint64_t deadline = ep->setup->deadline_ns < ep->setup->yield_ns ? ep->setup->deadline_ns
                                                                     : ep->setup->yield_ns;
    if (ep->setup->handshake != NULL) {
        uint64_t handshake = rdmux_setup_handshake_deadline(ep->setup);
        deadline = handshake < deadline ? handshake : deadline;
    }
    return deadline;
}

void rdmux_ep_setup_destroy(struct rdmux_ep *ep)
{
    struct rdmux_setup *setup = ep->setup;
    if (ep->accept.acceptor != NULL) {
        if (ep->accept.is_proved) {
            ep->accept.acceptor->count(ep->accept.acceptor, -1);
        }
        rdmux_ep_unlist_accepting(ep);
        ep->accept.acceptor->release(ep);
    }
    if (setup == NULL) {
        return;
    }
    rdmux_path_attempt_close(ep);
    rdmux_dial_close(ep);
    rdmux_rdmacm_abandon(ep);
    if (setup->addresses != NULL) {
        freeaddrinfo(setup->addresses);
    }
    rdmux_mr_deregister(setup->proof);
    rdmux_setup_release_secrets(ep->fabric, setup);
    rdmux_release(ep->fabric, setup);
    ep->setup = NULL;
    rdmux_ep_unlist_busy(ep);
}
