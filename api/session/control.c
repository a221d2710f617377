/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Handles the control-channel messages of a connected endpoint: imports, revocations, faults, and
 * the end of the peer. */
#include "api/session/control.h"

#include "api/core/ep.h"
#include "api/core/failover.h"
#include "api/core/mr.h"
#include "api/data/completion.h"
#include "api/data/fault.h"
#include "api/data/post.h"
#include "api/data/request.h"
#include "api/data/srq.h"
#include "api/object/control_send.h"
#include "api/object/ep.h"
#include "api/object/importers.h"
#include "api/object/inbox.h"
#include "api/object/mr_export.h"
#include "api/object/peer_process.h"
#include "api/object/read_drain.h"
#include "api/object/remote.h"
#include "api/object/revoke.h"
#include "api/progress/endpoint_table.h"
#include "api/session/liveness.h"
#include "api/session/shutdown.h"
#include "api/system/system.h"
#include "negotiation/control_channel.h"

#include <stdio.h>
#include <string.h>

enum {
    GONE_GRACE_MS = 100,
    ANSWER_GRACE_MS = 500,
};

/* Handles the frames of a control channel that shares its socket with the path. */
static void read_inbox(struct rdmux_ep *ep)
{
    struct rdmux_inbox_frame *frame;
    while ((frame = rdmux_inbox_take(ep)) != NULL) {
        if (ep->phase == RDMUX_PHASE_READY) {
            rdmux_ep_heard(ep);
            rdmux_ep_message(ep, frame->bytes, frame->size);
        }
        rdmux_inbox_free(ep, frame);
    }
}

/* Returns how long, in ms, the control channel may add to what the path reported. A path that is
 * merely gone may be the end that the peer is announcing at this moment (END, FAULT, ENDED). A
 * denied access may be the first sign of a process that ended, as kernels remove its regions before
 * its sockets (uverbs destroys the newest first). If the path ended without giving a reason, the
 * peer may know it. On a shared socket every frame came before the end of the bytes and is in the
 * inbox. */
static uint64_t grace_ms(const struct rdmux_ep *ep)
{
    bool asks = ep->fault == RDMUX_DENIED || ep->cause.is_unexplained;
    uint64_t grace = asks ? ANSWER_GRACE_MS : ep->fault == RDMUX_PEER_GONE ? GONE_GRACE_MS : 0;
    if (ep->channel == NULL || rdmux_channel_is_attached(ep->channel)) {
        return 0;
    }
    uint64_t period = ep->info.liveness_ms / RDMUX_HEARTBEATS;
    return asks && period < grace ? period : grace;
}

/* Announces the end now. The endpoint ends once the peer has answered, or the grace time is
 * over. */
static void ask_who_denied(struct rdmux_ep *ep)
{
    struct rdmux_message message = { .type = RDMUX_FRAME_FAULT, .status = RDMUX_DENIED };
    memcpy(message.text, ep->cause.text, sizeof(message.text));
    ep->session.is_end_told = true;
    rdmux_ep_tell(ep, &message);
}

/*
 * Returns whether this side may have refused an access. A refusal can be lost, and a device that
 * has refused once answers nothing any more (soft RoCE: rxe_resp.c drops all packets to a queue
 * pair in error). Then neither the device of the peer, which gives up, nor the local one, which
 * may have flushed its requests, gives the reason. But this side knows of a key that was revoked
 * before the peer had answered.
 */
static bool may_have_refused(const struct rdmux_ep *ep)
{
    return ep->revocations.awaited != 0;
}

static const char
    refused_text[] = "a region was revoked while the peer was using it, and its path ended";

static void say_silent(struct rdmux_ep *ep, uint32_t id)
{
    struct rdmux_message message = { .type = RDMUX_FRAME_SILENT, .id = id };
    rdmux_ep_tell(ep, &message);
}

/* The local path ended without giving a reason. Frames already on the channel may explain it, else
 * this side, else the peer. */
static void explain_silence(struct rdmux_ep *ep)
{
    ep->fabric->life->control_ready(ep);
    if (ep->phase != RDMUX_PHASE_READY) {
        return;
    }
    if (may_have_refused(ep)) {
        rdmux_ep_fault_explained(ep);
        rdmux_ep_set_in_doubt(ep, true);
        rdmux_ep_set_fault(ep, RDMUX_DENIED, refused_text);
        ask_who_denied(ep);
    } else if (ep->session.is_silence_asked) {
        say_silent(ep, RDMUX_SILENT_ANSWERS);
        ep->session.is_silence_answered = true;
        rdmux_ep_path_fault(ep);
    } else {
        say_silent(ep, RDMUX_SILENT_ASKS);
    }
}

/* The peer's path ended without giving a reason. If requests of this side are under way, waits for
 * their end, which may be the refusal that the peer's device made. */
static void answer_silence(struct rdmux_ep *ep)
{
    rdmux_ep_drain_path(ep);
    if (ep->fault != RDMUX_OK && !ep->cause.is_unexplained) {
        rdmux_ep_path_fault(ep);
    } else if (may_have_refused(ep)) {
        rdmux_ep_set_in_doubt(ep, true);
        rdmux_ep_fail(ep, RDMUX_DENIED, "%s", refused_text);
    } else if (ep->fault == RDMUX_OK && !rdmux_ep_done_before(ep, ep->send.head)) {
        ep->session.is_silence_asked = true;
    } else {
        say_silent(ep, RDMUX_SILENT_ANSWERS);
    }
}

static void silence_answered(struct rdmux_ep *ep)
{
    if (ep->cause.is_unexplained && ep->session.unexplained_deadline_ns != 0) {
        ep->session.is_silence_answered = true;
        rdmux_ep_path_fault(ep);
    }
}

void rdmux_ep_forget_silence(struct rdmux_ep *ep)
{
    ep->session.unexplained_deadline_ns = 0;
    ep->session.is_silence_asked = false;
}

void rdmux_ep_path_fault(struct rdmux_ep *ep)
{
    read_inbox(ep);
    if (ep->phase != RDMUX_PHASE_READY || rdmux_failover_takes_fault(ep)) {
        return;
    }
    uint64_t grace = ep->session.is_silence_answered ? 0 : grace_ms(ep);
    if (grace != 0) {
        if (ep->session.unexplained_deadline_ns == 0) {
            ep->session.unexplained_deadline_ns = rdmux_now(ep->fabric) + grace * 1000000;
            rdmux_ep_timer(ep);
            if (ep->cause.is_unexplained) {
                explain_silence(ep);
                return;
            }
            if (ep->fault == RDMUX_DENIED) {
                ask_who_denied(ep);
            }
            ep->fabric->life->control_ready(ep);
            return;
        }
        if (rdmux_now(ep->fabric) < ep->session.unexplained_deadline_ns) {
            return;
        }
    }
    if (ep->rdmacm != NULL && ep->session.is_shutdown_sent && ep->fault == RDMUX_PEER_GONE) {
        rdmux_ep_fail(ep, RDMUX_OK, "shut down");
        return;
    }
    rdmux_ep_fail(ep, (enum rdmux_status)ep->fault, "%s", ep->cause.text);
}

/* ------------------------------------------------------------------------------------- messages */

static void answer_import(struct rdmux_ep *ep, const struct rdmux_message *question)
{
    struct rdmux_message answer = { .type = RDMUX_FRAME_IMPORTED, .id = question->id };
    struct rdmux_mr *mr;
    if (rdmux_failover_is_moving(ep)) {
        return; /* the peer will ask again for the next path */
    }
    struct rdmux_provider_mr *registration;
    enum rdmux_status status = rdmux_mr_import(ep->fabric, &question->token,
                                               rdmux_channel_identity(ep->channel), ep->cq, ep->id,
                                               ep->domain, &mr, &registration);
    if (status == RDMUX_OK) {
        size_t size = sizeof(answer.description);
        rdmux_error_clear();
        status = ep->ops->mr_describe(registration, ep->path, answer.description, &size);
        if (status == RDMUX_OK) {
            answer.description_length = (uint32_t)size;
            answer.length = mr->length;
            answer.region = mr->id;
            answer.access = mr->access & (RDMUX_ACCESS_REMOTE_READ | RDMUX_ACCESS_REMOTE_WRITE |
                                          RDMUX_ACCESS_REMOTE_ATOMIC);
            if ((mr->access & RDMUX_ACCESS_ATOMIC_DEVICE) != 0 &&
                (ep->limits.caps & RDMUX_CAP_ATOMIC_DEVICE) == 0) {
                answer.access &= ~(uint32_t)RDMUX_ACCESS_REMOTE_ATOMIC;
                answer.access |= RDMUX_ACCESS_ATOMIC_DEVICE; /* why the right is missing */
            } else if ((mr->access & RDMUX_ACCESS_ATOMIC_DEVICE) != 0 && ep->failover != NULL) {
                memcpy(ep->session.bound_device, ep->info.device, sizeof(ep->info.device));
            }
        }
        if (status == RDMUX_OK) {
            rdmux_mr_import_granted(mr, ep->id, question->id);
        } else {
            rdmux_mr_import_closed(ep->fabric, mr->id, ep->id, question->id, 1, false);
        }
        rdmux_mr_import_done(mr);
    }
    answer.status = (uint32_t)status;
    rdmux_ep_tell(ep, &answer);
}

/* Answers a peer that was denied and waits to hear that this process lives. */
static void answer_denial(struct rdmux_ep *ep)
{
    struct rdmux_message answer = { .type = RDMUX_FRAME_END, .status = RDMUX_PEER_GONE };
    snprintf(answer.text, sizeof(answer.text), "the peer's endpoint failed as it was told");
    rdmux_ep_tell(ep, &answer);
}

/* Fails the endpoint by the fault of the path, which is more exact than what the peer can tell.
 * False: there is no such fault. */
static bool fail_as_the_path_said(struct rdmux_ep *ep)
{
    if (ep->fault == RDMUX_OK || ep->fault == RDMUX_PEER_GONE) {
        return false;
    }
    rdmux_ep_fail(ep, (enum rdmux_status)ep->fault, "%s", ep->cause.text);
    return true;
}

static void fail_as_told(struct rdmux_ep *ep, const struct rdmux_message *message)
{
    if (message->status == RDMUX_DENIED && !ep->session.is_end_told) {
        answer_denial(ep);
    }
    ep->session.has_end = true;
    rdmux_ep_drain_path(ep);
    enum rdmux_status status = (enum rdmux_status)message->status;
    if (fail_as_the_path_said(ep)) {
        return;
    }
    rdmux_ep_set_in_doubt(ep, status == RDMUX_DENIED || status == RDMUX_OUT_OF_RANGE);
    rdmux_ep_fail(ep, status, "told by the peer: %.220s", message->text);
}

static void handle_end(struct rdmux_ep *ep, const struct rdmux_message *message)
{
    if (ep->fault == RDMUX_DENIED) { /* the peer is alive */
        ep->session.has_end = true;
        rdmux_ep_fail(ep, RDMUX_DENIED, "%s", ep->cause.text);
        return;
    }
    if (message->status != RDMUX_OK) {
        ep->session.has_end = true;
        rdmux_ep_drain_path(ep);
        if (!fail_as_the_path_said(ep)) {
            rdmux_ep_fail(ep, RDMUX_PEER_GONE, "%s",
                          message->text[0] == '\0' ? "the peer closed its endpoint" : message->text);
        }
        return;
    }
    rdmux_ep_drain_path(ep);
    rdmux_failover_tell_received(ep);
    struct rdmux_message answer = { .type = RDMUX_FRAME_ENDED };
    rdmux_ep_tell(ep, &answer);
    ep->session.has_end = true;
    rdmux_ep_fail(ep, RDMUX_OK, "shut down by the peer");
}

const char *rdmux_ep_bound_device(struct rdmux_ep *ep)
{
    if (ep->session.bound_device[0] != '\0' &&
        !rdmux_mr_has_importer(ep->fabric, ep->id, RDMUX_ACCESS_ATOMIC_DEVICE)) {
        ep->session.bound_device[0] = '\0';
    }
    return ep->session.bound_device;
}

void rdmux_ep_message(struct rdmux_ep *ep, const uint8_t *frame, size_t size)
{
    struct rdmux_message message;
    enum rdmux_status status = rdmux_message_decode(frame, size, &message);
    if (status == RDMUX_AGAIN) {
        return; /* optional frame of a later version */
    }
    if (status != RDMUX_OK) {
        rdmux_ep_fail(ep, RDMUX_PROTOCOL,
                      "control channel: frame of type 0x%02x, %zu bytes, breaks the protocol",
                      frame[0], size);
        return;
    }
    switch (message.type) {
    case RDMUX_FRAME_HEARTBEAT:
        break; /* any frame is a sign of life */
    case RDMUX_FRAME_IMPORT:
        answer_import(ep, &message);
        rdmux_wipe(&message.token, sizeof(message.token));
        break;
    case RDMUX_FRAME_IMPORTED:
        rdmux_remote_answered(ep, &message);
        break;
    case RDMUX_FRAME_REVOKE:
        rdmux_remote_revoked(ep, message.region, message.id);
        break;
    case RDMUX_FRAME_REVOKED:
        (void)rdmux_failover_takes_message(ep, &message);
        rdmux_ep_revocation_answered(ep);
        rdmux_mr_revoke_answered(ep->fabric, message.region, message.id, ep->id);
        break;
    case RDMUX_FRAME_RELEASED:
        rdmux_mr_import_closed(ep->fabric, message.region, ep->id, message.id,
                               (uint32_t)message.count,
                               (ep->ops->flags & RDMUX_PROVIDER_READS_LINGER) != 0);
        break;
    case RDMUX_FRAME_SILENT:
        if (message.id == RDMUX_SILENT_ASKS) {
            answer_silence(ep);
        } else {
            silence_answered(ep);
        }
        break;
    case RDMUX_FRAME_MOVE:
    case RDMUX_FRAME_RECEIVED:
    case RDMUX_FRAME_BACK:
        if (!rdmux_failover_takes_message(ep, &message)) {
            rdmux_ep_fail(ep, RDMUX_PROTOCOL,
                          "control channel: frame of type 0x%02x without failover",
                          (unsigned)message.type);
        }
        break;
    case RDMUX_FRAME_FAULT:
        fail_as_told(ep, &message);
        break;
    case RDMUX_FRAME_END:
        handle_end(ep, &message);
        break;
    case RDMUX_FRAME_ENDED:
        if (ep->session.is_shutdown_sent) {
            ep->session.has_end = true;
            rdmux_ep_drain_path(ep);
            rdmux_ep_fail(ep, RDMUX_OK, "shut down");
            break;
        }
        rdmux_ep_fail(ep, RDMUX_PROTOCOL, "control channel: ENDED without END");
        break;
    default:
        rdmux_ep_fail(ep, RDMUX_PROTOCOL,
                      "control channel: frame of type 0x%02x after the handshake",
                      (unsigned)message.type);
        break;
    }
}

/* ---------------------------------------------------------------------------------------- step */

void rdmux_ep_control_step(struct rdmux_ep *ep)
{
    read_inbox(ep);
    if (ep->shared.news) {
        rdmux_srq_tell(ep);
    }
    bool more = rdmux_remotes_step(ep);
    more = rdmux_read_drain_step(ep) || more;
    if (ep->phase == RDMUX_PHASE_READY && ep->channel != NULL &&
        rdmux_channel_is_attached(ep->channel)) {
        if (rdmux_channel_flush(ep->channel) != RDMUX_OK) {
            rdmux_ep_fail(ep, RDMUX_PEER_GONE, "%s", rdmux_last_error());
        }
        more = more || (ep->channel != NULL && rdmux_channel_is_sending(ep->channel));
    }
    if (ep->phase == RDMUX_PHASE_READY && ep->rdmacm != NULL) {
        more = more || (ep->flow.is_shutdown_asked && !ep->session.is_shutdown_sent &&
                        !rdmux_ep_hang_up(ep));
    } else if (ep->phase == RDMUX_PHASE_READY && ep->flow.is_shutdown_asked &&
               !ep->session.is_shutdown_sent) {
        if (!ep->session.is_flush_posted && ep->fault == RDMUX_OK &&
            rdmux_ep_done_before(ep, ep->send.head) && ep->send.next == ep->send.head) {
            ep->session.is_flush_posted = rdmux_ep_flush(ep, &ep->session.flush_request);
        }
        if (ep->session.is_flush_posted && ep->session.flush_request.done) {
            rdmux_ep_end_after_flush(ep);
        }
        more = true;
    }
    if (more || ep->shared.news) {
        ep->work |= RDMUX_WORK_CONTROL;
    } else {
        ep->work &= (uint8_t)~RDMUX_WORK_CONTROL;
    }
}
