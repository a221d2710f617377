/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The control channel of a connected endpoint: imports, revocation, liveness, faults, the orderly
 * end. */
#include "api/connection.h"

#include "api/failover.h"
#include "api/plain.h"
#include "negotiation/control_channel.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

enum {
    DRAIN_ROUNDS = 256, /* rounds of a path's progress before an end is believed */
    HEARTBEATS = 4,     /* in a liveness time */
    GONE_GRACE_MS = 100,
    ANSWER_GRACE_MS = 500,
};

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

/* What has come is the peer's to know before the end. */
static void tell_received(struct rdmux_ep *ep)
{
    if (ep->failover != NULL) {
        rdmux_replay_tell(ep);
    }
}

void rdmux_ep_tell_end(struct rdmux_ep *ep)
{
    if (ep->end_received || ep->end_told) {
        return;
    }
    tell_received(ep);
    struct rdmux_message message = { .type = RDMUX_FRAME_END, .status = RDMUX_PEER_GONE };
    switch ((enum rdmux_status)ep->status) {
    case RDMUX_OK:
        if (ep->phase != RDMUX_PHASE_READY) {
            return; /* an orderly end has said everything */
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
        message.status = ep->status;
        memcpy(message.text, ep->info.text, sizeof(message.text));
        break;
    default:
        snprintf(message.text, sizeof(message.text), "the peer's endpoint failed: %.200s",
                 ep->info.text);
        break;
    }
    rdmux_ep_tell(ep, &message);
}

void rdmux_ep_drain_path(struct rdmux_ep *ep)
{
    if (ep->path == NULL) {
        return;
    }
    for (int i = 0; i < DRAIN_ROUNDS && ep->ops->poll(ep->path->cq, 64) != 0; i++) {
    }
}

/* Handles the frames of a control channel that shares its socket with the path. */
static void read_inbox(struct rdmux_ep *ep)
{
    while (ep->inbox != NULL) {
        struct rdmux_inbox *entry = ep->inbox;
        ep->inbox = entry->next;
        if (ep->phase == RDMUX_PHASE_READY) {
            if (ep->peer != NULL) {
                atomic_store(&ep->peer->heard_ns, rdmux_now(ep->fabric));
            }
            rdmux_ep_message(ep, entry->frame, entry->size);
        }
        rdmux_release_wiped(ep->fabric, entry, sizeof(*entry) + entry->size);
    }
}

/* How long the control channel gets to say more than the path did, ms. A path that is merely gone may
 * be the end the peer is telling at this moment (END, FAULT, ENDED). An access that is denied may be
 * the first sign of a process that ended: kernels take its regions away before its sockets (uverbs
 * destroys the newest first). Of a path that does not say why it ended the peer may know. On a shared
 * socket all that came before the end of the bytes and is in the inbox. */
static uint64_t grace_ms(const struct rdmux_ep *ep)
{
    bool asks = ep->fault == RDMUX_DENIED || ep->is_unexplained;
    uint64_t grace = asks ? ANSWER_GRACE_MS : ep->fault == RDMUX_PEER_GONE ? GONE_GRACE_MS : 0;
    if (ep->channel == NULL || rdmux_channel_is_attached(ep->channel)) {
        return 0;
    }
    uint64_t period = ep->info.liveness_ms / HEARTBEATS;
    return asks && period < grace ? period : grace;
}

/* The end is told now, and happens when the peer has answered, or has not. */
static void ask_who_denied(struct rdmux_ep *ep)
{
    struct rdmux_message message = { .type = RDMUX_FRAME_FAULT, .status = RDMUX_DENIED };
    memcpy(message.text, ep->fault_text, sizeof(message.text));
    ep->end_told = true;
    rdmux_ep_tell(ep, &message);
}

/*
 * A refusal can be lost, and a device that has refused once answers nothing any more (soft RoCE: rxe_resp.c
 * drops what comes to a queue pair in error). The peer's device has given up then, and not said why; ours
 * may have taken what was posted back, and not said why either. But a key that was taken away although
 * the peer had not answered is known here.
 */
static bool may_have_refused(const struct rdmux_ep *ep)
{
    return ep->awaited_revokes != 0;
}

static const char
    refused_text[] = "a region was revoked while the peer was using it, and its path ended";

static void say_silent(struct rdmux_ep *ep, uint32_t id)
{
    struct rdmux_message message = { .type = RDMUX_FRAME_SILENT, .id = id };
    rdmux_ep_tell(ep, &message);
}

/* Our path ended and does not say why: what came over the channel before may, this side may know, or the
 * peer. */
static void explain_silence(struct rdmux_ep *ep)
{
    rdmux_ep_control_ready(ep);
    if (ep->phase != RDMUX_PHASE_READY) {
        return;
    }
    if (may_have_refused(ep)) {
        ep->is_unexplained = false;
        ep->in_doubt = true;
        ep->fault = RDMUX_DENIED;
        memcpy(ep->fault_text, refused_text, sizeof(refused_text));
        ask_who_denied(ep);
    } else if (ep->silence_asked) {
        say_silent(ep, RDMUX_SILENT_ANSWERS);
        ep->silence_answered = true;
        rdmux_ep_path_fault(ep);
    } else {
        say_silent(ep, RDMUX_SILENT_ASKS);
    }
}

/* The peer's path ended and does not say why. Where requests of ours are under way their end is waited
 * for: it may be the refusal that the peer's device made. */
static void answer_silence(struct rdmux_ep *ep)
{
    rdmux_ep_drain_path(ep);
    if (ep->fault != RDMUX_OK && !ep->is_unexplained) {
        rdmux_ep_path_fault(ep);
    } else if (may_have_refused(ep)) {
        ep->in_doubt = true;
        rdmux_ep_fail(ep, RDMUX_DENIED, "%s", refused_text);
    } else if (ep->fault == RDMUX_OK && !rdmux_ep_done_before(ep, ep->send.head)) {
        ep->silence_asked = true;
    } else {
        say_silent(ep, RDMUX_SILENT_ANSWERS);
    }
}

static void silence_answered(struct rdmux_ep *ep)
{
    if (ep->is_unexplained && ep->fault_deadline_ns != 0) {
        ep->silence_answered = true;
        rdmux_ep_path_fault(ep);
    }
}

void rdmux_ep_path_fault(struct rdmux_ep *ep)
{
    read_inbox(ep);
    if (ep->phase != RDMUX_PHASE_READY || rdmux_failover_takes_fault(ep)) {
        return;
    }
    uint64_t grace = ep->silence_answered ? 0 : grace_ms(ep);
    if (grace != 0) {
        if (ep->fault_deadline_ns == 0) {
            ep->fault_deadline_ns = rdmux_now(ep->fabric) + grace * 1000000;
            rdmux_ep_timer(ep);
            if (ep->is_unexplained) {
                explain_silence(ep);
                return;
            }
            if (ep->fault == RDMUX_DENIED) {
                ask_who_denied(ep);
            }
            rdmux_ep_control_ready(ep);
            return;
        }
        if (rdmux_now(ep->fabric) < ep->fault_deadline_ns) {
            return;
        }
    }
    if (ep->plain != NULL && ep->shutdown_sent && ep->fault == RDMUX_PEER_GONE) {
        rdmux_ep_fail(ep, RDMUX_OK, "shut down");
        return;
    }
    rdmux_ep_fail(ep, (enum rdmux_status)ep->fault, "%s", ep->fault_text);
}

/* ------------------------------------------------------------------------------------- messages */

static void answer_import(struct rdmux_ep *ep, const struct rdmux_message *question)
{
    struct rdmux_message answer = { .type = RDMUX_FRAME_IMPORTED, .id = question->id };
    struct rdmux_mr *mr;
    if (rdmux_failover_is_moving(ep)) {
        return; /* it will be asked again, for the next path */
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
                (ep->caps & RDMUX_CAP_ATOMIC_DEVICE) == 0) {
                answer.access &= ~(uint32_t)RDMUX_ACCESS_REMOTE_ATOMIC;
                answer.access |= RDMUX_ACCESS_ATOMIC_DEVICE; /* tells why */
            } else if ((mr->access & RDMUX_ACCESS_ATOMIC_DEVICE) != 0 && ep->failover != NULL) {
                memcpy(ep->failover->bound_device, ep->info.device, sizeof(ep->info.device));
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

/* Who was denied waits to hear that this process is there. */
static void answer_denial(struct rdmux_ep *ep)
{
    struct rdmux_message answer = { .type = RDMUX_FRAME_END, .status = RDMUX_PEER_GONE };
    snprintf(answer.text, sizeof(answer.text), "the peer's endpoint failed as it was told");
    rdmux_ep_tell(ep, &answer);
}

/* The path itself said more exactly what happened than the peer can. */
static bool fail_as_the_path_said(struct rdmux_ep *ep)
{
    if (ep->fault == RDMUX_OK || ep->fault == RDMUX_PEER_GONE) {
        return false;
    }
    rdmux_ep_fail(ep, (enum rdmux_status)ep->fault, "%s", ep->fault_text);
    return true;
}

static void fail_as_told(struct rdmux_ep *ep, const struct rdmux_message *message)
{
    if (message->status == RDMUX_DENIED && !ep->end_told) {
        answer_denial(ep);
    }
    ep->end_received = true;
    rdmux_ep_drain_path(ep);
    enum rdmux_status status = (enum rdmux_status)message->status;
    if (fail_as_the_path_said(ep)) {
        return;
    }
    ep->in_doubt = status == RDMUX_DENIED || status == RDMUX_OUT_OF_RANGE;
    rdmux_ep_fail(ep, status, "told by the peer: %.220s", message->text);
}

static void handle_end(struct rdmux_ep *ep, const struct rdmux_message *message)
{
    if (ep->fault == RDMUX_DENIED) { /* the peer is there */
        ep->end_received = true;
        rdmux_ep_fail(ep, RDMUX_DENIED, "%s", ep->fault_text);
        return;
    }
    if (message->status != RDMUX_OK) {
        ep->end_received = true;
        rdmux_ep_drain_path(ep);
        if (!fail_as_the_path_said(ep)) {
            rdmux_ep_fail(ep, RDMUX_PEER_GONE, "%s",
                          message->text[0] == '\0' ? "the peer closed its endpoint" : message->text);
        }
        return;
    }
    rdmux_ep_drain_path(ep);
    tell_received(ep);
    struct rdmux_message answer = { .type = RDMUX_FRAME_ENDED };
    rdmux_ep_tell(ep, &answer);
    ep->end_received = true;
    rdmux_ep_fail(ep, RDMUX_OK, "shut down by the peer");
}

void rdmux_ep_message(struct rdmux_ep *ep, const uint8_t *frame, size_t size)
{
    struct rdmux_message message;
    enum rdmux_status status = rdmux_message_decode(frame, size, &message);
    if (status == RDMUX_AGAIN) {
        return; /* an optional frame of a later version */
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
        explicit_bzero(&message.token, sizeof(message.token));
        break;
    case RDMUX_FRAME_IMPORTED:
        rdmux_remote_answered(ep, &message);
        break;
    case RDMUX_FRAME_REVOKE:
        rdmux_remote_revoked(ep, message.region, message.id);
        break;
    case RDMUX_FRAME_REVOKED:
        if (ep->failover != NULL) {
            rdmux_resume_revocation_answered(ep, message.region, message.id);
        }
        ep->awaited_revokes -= ep->awaited_revokes != 0;
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
        rdmux_failover_told(ep, &message);
        break;
    case RDMUX_FRAME_FAULT:
        fail_as_told(ep, &message);
        break;
    case RDMUX_FRAME_END:
        handle_end(ep, &message);
        break;
    case RDMUX_FRAME_ENDED:
        if (ep->shutdown_sent) {
            ep->end_received = true;
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

void rdmux_ep_deliver_revoke(struct rdmux_cq *cq, struct rdmux_mail *mail)
{
    struct rdmux_revoke_mail *revoke = RDMUX_CONTAINER(mail, struct rdmux_revoke_mail, mail);
    struct rdmux_ep *ep = rdmux_cq_endpoint(cq, revoke->ep_id);
    bool reaches = ep != NULL && ep->phase == RDMUX_PHASE_READY && ep->path != NULL &&
                   ep->ops != &rdmux_null_path_ops;
    if (reaches || (ep != NULL && ep->phase == RDMUX_PHASE_READY && ep->failover->dying != NULL)) {
        struct rdmux_message message = { .type = RDMUX_FRAME_REVOKE,
                                         .id = revoke->number,
                                         .region = revoke->region };
        if (ep->failover != NULL) {
            rdmux_resume_note_revocation(ep, revoke->region, revoke->number);
        }
        ep->awaited_revokes++;
        rdmux_ep_tell(ep, &message);
    } else {
        rdmux_mr_revoke_answered(cq->fabric, revoke->region, revoke->number, revoke->ep_id);
    }
    rdmux_release(cq->fabric, revoke);
}

/* ------------------------------------------------------------------------------------- shutdown */

bool rdmux_ep_flush(struct rdmux_ep *ep, struct rdmux_request *flush)
{
    memset(flush, 0, sizeof(*flush));
    flush->op = RDMUX_OP_WRITE;
    flush->flags = RDMUX_PLACED;
    flush->internal = 1;
    flush->sequence = ep->send.next;
    size_t posted = 0;
    enum rdmux_status status = ep->ops->post(ep->path, flush, 1, 0, &posted);
    if (posted == 0 && status != RDMUX_AGAIN) {
        rdmux_provider_failed(ep->path, status, rdmux_last_error());
    }
    return posted == 1;
}

/* Everything is placed at the peer, or it is known that not everything is. */
static void end_after_flush(struct rdmux_ep *ep)
{
    if (ep->flush_request.status == RDMUX_OK) {
        struct rdmux_message message = { .type = RDMUX_FRAME_END, .status = RDMUX_OK };
        ep->shutdown_sent = true;
        tell_received(ep);
        rdmux_ep_tell(ep, &message);
    } else if (ep->fault == RDMUX_OK) {
        rdmux_provider_failed(ep->path, (enum rdmux_status)ep->flush_request.status,
                              "shutdown: not everything was placed at the peer");
    }
}

void rdmux_ep_control_step(struct rdmux_ep *ep)
{
    read_inbox(ep);
    if (ep->srq_news) {
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
    if (ep->phase == RDMUX_PHASE_READY && ep->plain != NULL) {
        more = more || (ep->shutdown_asked && !ep->shutdown_sent && rdmux_plain_shutdown_step(ep));
    } else if (ep->phase == RDMUX_PHASE_READY && ep->shutdown_asked && !ep->shutdown_sent) {
        if (!ep->flush_posted && ep->fault == RDMUX_OK && rdmux_ep_done_before(ep, ep->send.head) &&
            ep->send.next == ep->send.head) {
            ep->flush_posted = rdmux_ep_flush(ep, &ep->flush_request);
        }
        if (ep->flush_posted && ep->flush_request.done) {
            end_after_flush(ep);
        }
        more = true;
    }
    if (more || ep->srq_news) {
        ep->work |= RDMUX_WORK_CONTROL;
    } else {
        ep->work &= (uint8_t)~RDMUX_WORK_CONTROL;
    }
}

static bool has_ended(void *user)
{
    const struct rdmux_ep *ep = user;
    return ep->phase != RDMUX_PHASE_READY && ep->phase != RDMUX_PHASE_ENDING;
}

static enum rdmux_status shut_down(struct rdmux_ep *ep, int timeout_ms)
{
    ep->shutdown_asked = true;
    ep->work |= RDMUX_WORK_CONTROL;
    rdmux_cq_pend(ep->cq, ep);
    rdmux_ep_control_step(ep);
    if (timeout_ms == 0) {
        uint64_t limit_ms = ep->info.liveness_ms == RDMUX_NEVER ? UINT64_MAX / 1000000 / 2
                                                                : ep->info.liveness_ms;
        ep->shutdown_deadline_ns = rdmux_now(ep->fabric) + limit_ms * 1000000;
        rdmux_ep_timer(ep);
        return RDMUX_IN_PROGRESS;
    }
    ep->shutdown_quiet = true;
    enum rdmux_status status = rdmux_cq_wait_until(ep->cq, has_ended, ep, timeout_ms);
    if (status == RDMUX_TIMED_OUT) {
        ep->shutdown_quiet = false;
        rdmux_ep_fail(ep, RDMUX_PEER_GONE, "the peer did not take the shutdown within %d ms",
                      timeout_ms);
        return rdmux_fail(RDMUX_TIMED_OUT,
                          "rdmux_ep_shutdown: the peer did not take everything within %d ms",
                          timeout_ms);
    }
    if (status == RDMUX_OK && ep->status != RDMUX_OK) {
        ep->shutdown_quiet = false;
        ep->events |= RDMUX_EVENT_DISCONNECTED;
        rdmux_cq_pend(ep->cq, ep);
        return rdmux_fail((enum rdmux_status)ep->status, "rdmux_ep_shutdown: %s", ep->info.text);
    }
    return status;
}

/* The endpoint ended before the call: by the peer's shutdown, or it failed. */
static enum rdmux_status join_end(struct rdmux_ep *ep, int timeout_ms)
{
    if (ep->status != RDMUX_OK) {
        return rdmux_fail((enum rdmux_status)ep->status,
                          "rdmux_ep_shutdown: the endpoint has ended: %s", ep->info.text);
    }
    if (timeout_ms == 0) {
        bool told = ep->phase == RDMUX_PHASE_ENDED && (ep->events & RDMUX_EVENT_DISCONNECTED) == 0;
        return told ? RDMUX_OK : RDMUX_IN_PROGRESS;
    }
    if (rdmux_cq_wait_until(ep->cq, has_ended, ep, timeout_ms) != RDMUX_OK) {
        return rdmux_fail(RDMUX_TIMED_OUT,
                          "rdmux_ep_shutdown: the path did not come to rest within %d ms",
                          timeout_ms);
    }
    ep->events &= ~(uint32_t)RDMUX_EVENT_DISCONNECTED; /* the call's result says it */
    return RDMUX_OK;
}

enum rdmux_status rdmux_ep_shutdown(struct rdmux_ep *ep, int timeout_ms)
{
    if (ep == NULL || timeout_ms < -1) {
        return rdmux_fail(RDMUX_INVALID, "rdmux_ep_shutdown: %s",
                          ep == NULL ? "ep is NULL" : "timeout_ms is below -1");
    }
    if (!rdmux_cq_enter(ep->cq)) {
        return rdmux_fail(
            RDMUX_INVALID,
            "rdmux_ep_shutdown: the process forked; the endpoint belongs to the parent");
    }
    enum rdmux_status status;
    if (ep->phase == RDMUX_PHASE_READY) {
        status = shut_down(ep, timeout_ms);
    } else if (ep->phase == RDMUX_PHASE_LINGERING || ep->phase == RDMUX_PHASE_ENDING ||
               ep->phase == RDMUX_PHASE_ENDED) {
        status = join_end(ep, timeout_ms);
    } else {
        status = rdmux_fail(RDMUX_INVALID, "rdmux_ep_shutdown: the endpoint is not connected");
    }
    rdmux_cq_leave(ep->cq);
    return status;
}

/* ------------------------------------------------------------------------------------- liveness */

static uint64_t period_ns(const struct rdmux_ep *ep)
{
    uint64_t period = (uint64_t)ep->info.liveness_ms * 1000000 / HEARTBEATS;
    return period - period / 16 * (ep->id % 4); /* endpoints do not all beat at once */
}

/* Other endpoints may beat for this one, so that nothing is said here for long: the kernel asks whether the other end is there. */
void rdmux_ep_watch_channel(const struct rdmux_ep *ep)
{
    enum { PROBES = 3 };
    const uint32_t liveness_ms = ep->info.liveness_ms;
    if (liveness_ms == RDMUX_NEVER || ep->channel == NULL) {
        return;
    }
    const uint32_t seconds = liveness_ms / 1000 / (PROBES + 1);
    const struct {
        int level;
        int name;
        uint32_t value;
    } options[] = {
        { IPPROTO_TCP, TCP_KEEPIDLE, seconds < 1 ? 1 : seconds },
        { IPPROTO_TCP, TCP_KEEPINTVL, seconds < 1 ? 1 : seconds },
        { IPPROTO_TCP, TCP_KEEPCNT, PROBES },
        { IPPROTO_TCP, TCP_USER_TIMEOUT, liveness_ms },
        { SOL_SOCKET, SO_KEEPALIVE, 1 },
    };
    /* Sockets of other kinds have none of these. */
    for (size_t i = 0; i < RDMUX_COUNT_OF(options); i++) {
        (void)setsockopt(rdmux_channel_socket(ep->channel), options[i].level, options[i].name,
                         &options[i].value, sizeof(options[i].value));
    }
}

void rdmux_ep_start_liveness(struct rdmux_ep *ep)
{
    rdmux_ep_watch_channel(ep);
    ep->connected_ns = rdmux_now(ep->fabric);
    ep->looked_ns = ep->connected_ns;
    if (ep->info.liveness_ms == RDMUX_NEVER || ep->peer == NULL) {
        ep->heartbeat_ns = UINT64_MAX;
    } else {
        ep->heartbeat_ns = ep->connected_ns + period_ns(ep);
    }
    rdmux_ep_timer(ep);
}

uint64_t rdmux_ep_silent_ns(const struct rdmux_ep *ep)
{
    if (ep->info.liveness_ms == RDMUX_NEVER || ep->peer == NULL) {
        return UINT64_MAX;
    }
    uint64_t heard = atomic_load(&ep->peer->heard_ns);
    uint64_t missed = heard == ep->missed_since_ns ? ep->missed_ns : 0;
    heard = heard > ep->connected_ns ? heard : ep->connected_ns;
    return heard + (uint64_t)ep->info.liveness_ms * 1000000 + missed;
}

/* Time in which this side did not run, as its machine was suspended or its processor taken away, says
 * nothing of the peer, which may have been kept from running by the same. */
static void count_missed(struct rdmux_ep *ep, uint64_t now_ns)
{
    uint64_t period = period_ns(ep);
    uint64_t since = ep->looked_ns != 0 ? now_ns - ep->looked_ns : 0;
    uint64_t heard = atomic_load(&ep->peer->heard_ns);
    if (heard != ep->missed_since_ns) {
        ep->missed_since_ns = heard;
        ep->missed_ns = 0;
    }
    if (since > 2 * period) {
        ep->missed_ns += since - period;
    }
    ep->looked_ns = now_ns;
}

static void beat(struct rdmux_ep *ep, uint64_t now_ns)
{
    uint64_t period = period_ns(ep);
    count_missed(ep, now_ns);
    if (now_ns >= rdmux_ep_silent_ns(ep)) {
        char text[RDMUX_TEXT_MAX];
        snprintf(text, sizeof(text), "the peer was silent for %u ms, its liveness time",
                 ep->info.liveness_ms);
        rdmux_ep_drain_path(ep);
        if (!rdmux_failover_takes_silence(ep, text)) {
            rdmux_ep_fail(ep, RDMUX_PEER_GONE, "%s", text);
        }
        return;
    }
    if (now_ns < ep->heartbeat_ns) {
        return;
    }
    ep->heartbeat_ns = now_ns + period;
    uint64_t sent = atomic_load(&ep->heartbeat_group->sent_ns);
    /* Another endpoint to the same process may have beaten for all; one whose channel is lost beats for none. */
    if (ep->channel != NULL && now_ns - sent >= period / 4 * 3) {
        atomic_store(&ep->heartbeat_group->sent_ns, now_ns);
        struct rdmux_message message = { .type = RDMUX_FRAME_HEARTBEAT };
        rdmux_ep_tell(ep, &message);
    }
    /* Where the control channel is silent, too, the silence is the peer's, and counted above. Its
     * heartbeats and ours have the same period, and no order: one may be just behind. */
    bool speaks = atomic_load(&ep->peer->heard_ns) + period + period / 2 > now_ns;
    bool is_wanted = ep->ping_head == ep->send.head ||
                     (ep->ops->flags & RDMUX_PROVIDER_PING_BUSY) != 0;
    if (is_wanted && speaks && ep->phase == RDMUX_PHASE_READY) {
        enum rdmux_status status = ep->ops->ep_ping(ep->path);
        if (status != RDMUX_OK && status != RDMUX_AGAIN && status != RDMUX_UNSUPPORTED) {
            rdmux_provider_failed(ep->path, status, rdmux_last_error());
        }
    }
    ep->ping_head = ep->send.head;
}

void rdmux_ep_live_timers(struct rdmux_ep *ep, uint64_t now_ns)
{
    if (ep->failover != NULL) {
        rdmux_failover_step(ep);
    }
    if (ep->phase != RDMUX_PHASE_READY) {
        return;
    }
    if (ep->fault_deadline_ns != 0 && now_ns >= ep->fault_deadline_ns) {
        rdmux_ep_path_fault(ep);
        return;
    }
    if (ep->info.liveness_ms != RDMUX_NEVER && ep->peer != NULL) {
        beat(ep, now_ns);
    }
    if (ep->phase == RDMUX_PHASE_READY && ep->shutdown_deadline_ns != 0 &&
        now_ns >= ep->shutdown_deadline_ns) {
        rdmux_ep_fail(ep, RDMUX_PEER_GONE,
                      "the peer did not take the shutdown within the liveness time");
    }
}
