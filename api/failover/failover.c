/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Moves an endpoint from a failed path to the next one.
 *
 * Each side quiesces its path until the path can touch memory no more, closes it, and sends MOVE
 * with the count of messages that came over it. A side that has sent and received MOVE knows that
 * both paths are cut, and settles its requests by the peer's count (replay.c). Then the handshake
 * of the set-up searches for the next path, with the existing offers and ranking; the acceptor
 * chooses the pair to try. Meanwhile the endpoint is on the null path (null_path.c): calls work,
 * and requests wait.
 */
#include "api/failover/failover.h"
#include "api/failover/failover_state.h"

#include "api/base/trace.h"
#include "api/core/ep.h"
#include "api/data/fault.h"
#include "api/data/post.h"
#include "api/object/control_send.h"
#include "api/object/ep.h"
#include "api/object/joins.h"
#include "api/object/null_path.h"
#include "api/object/read_drain.h"
#include "api/object/remote.h"
#include "api/object/revoke.h"
#include "api/progress/cq_owner.h"
#include "api/progress/endpoint_table.h"
#include "api/progress/places.h"
#include "api/session/control.h"
#include "api/session/setup_state.h"
#include "negotiation/control_channel.h"

#include <assert.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>

RDMUX_TRACE_POINT(failover_start);
RDMUX_TRACE_POINT(failover_end);

enum {
    /* A move that begins within this time after another one continues it and its limits. */
    HEELS_NS = 1000 * RDMUX_NS_PER_MS,
    /* Pause between rounds in which every pair was tried; doubles each round. */
    FIRST_PAUSE_NS = 50 * RDMUX_NS_PER_MS,
    PAUSE_DOUBLINGS = 4,
    /* Limit of one attempt where there are other pairs; doubles each round. So a path that swallows
     * everything does not delay the move to the next one by path_timeout_ms, and a slow path works
     * in the end. */
    FIRST_ATTEMPT_MS = 200,
    ATTEMPT_DOUBLINGS = 16,
    CUT_STEP_NS = RDMUX_NS_PER_MS,
    RECEIVED_LOOK_NS = 10 * 1000, /* period of control-channel checks while RECEIVED is awaited */
    ATTEMPT_BITS = 16,            /* low bits of an attempt's number; the epoch is above */
};

/* ----------------------------------------------------------------------------------------- life */

enum rdmux_status rdmux_failover_create(struct rdmux_ep *ep)
{
    struct rdmux_failover *failover = rdmux_allocate(ep->fabric, sizeof(*failover));
    if (failover == NULL) {
        return rdmux_fail(RDMUX_NO_MEMORY, "endpoint: out of memory for failover");
    }
    const struct rdmux_ep_attr *attr = &ep->setup->attr;
    failover->search.attempts_max = attr->failover_attempts;
    failover->time_ns = attr->failover_time_ms == RDMUX_NEVER
                            ? UINT64_MAX
                            : (uint64_t)attr->failover_time_ms * RDMUX_NS_PER_MS;
    failover->hold_ns = (uint64_t)attr->failback_hold_ms * RDMUX_NS_PER_MS;
    rdmux_failback_init(failover, attr);
    failover->null_path.ops = &rdmux_null_path_ops;
    failover->null_path.ep = ep;
    ep->failover = failover;
    ep->work |= RDMUX_WORK_FAILOVER;
    return rdmux_reconnect_create(ep);
}

/* Writes the stage. The end of an endpoint gives a move up in any stage. */
static void enter_stage(struct rdmux_ep *ep, enum rdmux_failover_stage next)
{
    struct rdmux_failover *failover = ep->failover;
    assert(next == RDMUX_STEADY || failover->stage == RDMUX_SEARCHING /* the channel is lost */
               ? next == RDMUX_STEADY || next == RDMUX_MEETING
               : next == failover->stage + 1);
    failover->stage = next;
    ep->retention.is_moving = next != RDMUX_STEADY;
}

static void free_proof_region(struct rdmux_setup *setup)
{
    rdmux_mr_deregister(setup->proof);
    setup->proof = NULL;
}

void rdmux_failover_keep_setup(struct rdmux_ep *ep)
{
    struct rdmux_setup *setup = ep->setup;
    free_proof_region(setup);
    ep->failover->setup = setup;
    ep->setup = NULL;
    rdmux_ep_unlist_busy(ep);
}

void rdmux_failover_destroy(struct rdmux_ep *ep)
{
    struct rdmux_failover *failover = ep->failover;
    if (failover == NULL) {
        return;
    }
    struct rdmux_setup *setup = failover->setup;
    rdmux_reconnect_leave(ep);
    if (setup != NULL) {
        if (setup->addresses != NULL) {
            freeaddrinfo(setup->addresses);
        }
        rdmux_setup_release_secrets(ep->fabric, setup);
        rdmux_release(ep->fabric, setup);
    }
    rdmux_release(ep->fabric, failover);
    ep->failover = NULL;
}

/* -------------------------------------------------------------------------------------- the cut */

static void say_move(struct rdmux_ep *ep)
{
    struct rdmux_failover *failover = ep->failover;
    struct rdmux_message message = { .type = RDMUX_FRAME_MOVE,
                                     .status = failover->move.cause,
                                     .epoch = ep->info.epoch + 1,
                                     .count = rdmux_replay_received(ep) };
    snprintf(message.text, sizeof(message.text), "%s", failover->move.cause_text);
    rdmux_ep_tell(ep, &message);
}

/* Settles requests by the peer's count and starts the next epoch. False: the count is
 * impossible. */
static bool begin_epoch(struct rdmux_ep *ep, uint64_t count)
{
    struct rdmux_failover *failover = ep->failover;
    if (!rdmux_replay_settle(ep, count)) {
        rdmux_ep_fail(ep, RDMUX_PROTOCOL,
                      "control channel: the peer has counted more messages than were sent");
        return false;
    }
    ep->info.epoch++;
    failover->move.heard = false;
    return true;
}

/* Searches for the next path; both sides are cut. */
static void begin_search(struct rdmux_ep *ep)
{
    struct rdmux_failover *failover = ep->failover;
    if (!begin_epoch(ep, failover->move.heard_count)) {
        return;
    }
    enter_stage(ep, RDMUX_SEARCHING);
    failover->search.tried = 0;
    failover->search.trying = 0;
    failover->search.next_try_ns = 0;
    ep->setup = failover->setup;
    failover->setup = NULL;
    rdmux_failover_order_pairs(ep);
    memset(&ep->setup->attempt, 0, sizeof(ep->setup->attempt));
    rdmux_handshake_move(ep->setup->handshake, (ep->info.epoch - 1) << ATTEMPT_BITS | 1,
                         failover->move.cause == RDMUX_OK ? RDMUX_REASON_SLOWER
                                                          : RDMUX_REASON_PATH_LOST,
                         failover->move.left_text);
    ep->setup->step(ep);
}

static bool is_cut(const struct rdmux_ep *ep)
{
    return ep->failover->stage == RDMUX_MEETING && rdmux_reconnect_is_idle(ep);
}

bool rdmux_failover_delays_search(const struct rdmux_ep *ep)
{
    const struct rdmux_failover *failover = ep->failover;
    return failover != NULL && failover->stage == RDMUX_MEETING && failover->move.heard;
}

/* Returns whether the endpoint changes its cq before the search. */
static bool note_cut(struct rdmux_ep *ep)
{
    const bool changes_cq = (ep->events & RDMUX_EVENT_LEAVING) != 0;
    if (changes_cq && is_cut(ep)) {
        rdmux_cq_raise(ep->cq, RDMUX_SIGNAL_ATTEND); /* for rdmux_cq_send_off() */
    }
    return changes_cq;
}

/* The path is cut. */
static void path_goes_on(struct rdmux_ep *ep)
{
    if (ep->failover->move.heard) {
        begin_search(ep);
    } else {
        rdmux_reconnect_await_move(ep);
    }
}

/* Quiesces the path; once it is quiet, closes it and sends MOVE. */
static void cut_path(struct rdmux_ep *ep)
{
    struct rdmux_provider_ep *path = ep->retention.dying;
    struct rdmux_provider_counts counts;
    if (path->ops->ep_quiesce(path, &counts) == RDMUX_IN_PROGRESS) {
        return;
    }
    ep->retention.dying = NULL;
    rdmux_replay_cut(ep);
    rdmux_read_drain_cut(ep);
    rdmux_remotes_cut(ep, rdmux_replay_remote_cut);
    rdmux_ep_close_path(ep, path);
    ep->domain = NULL;
    enter_stage(ep, RDMUX_MEETING);
    say_move(ep);
    if (ep->phase == RDMUX_PHASE_READY && !note_cut(ep)) {
        path_goes_on(ep);
    }
}

static void begin_move(struct rdmux_ep *ep, enum rdmux_status status, const char *text)
{
    struct rdmux_failover *failover = ep->failover;
    uint64_t now_ns = rdmux_now(ep->fabric);
    failover->move.cause = (uint32_t)status;
    RDMUX_TRACE2(failover_start, ep->id, status);
    snprintf(failover->move.cause_text, sizeof(failover->move.cause_text), "%s", text);
    snprintf(failover->move.left_text, sizeof(failover->move.left_text), "%s", text);
    if (status == RDMUX_OK) {
        rdmux_log_about(ep->fabric, RDMUX_CATEGORY_FAILOVER, RDMUX_LOG_INFO,
                        "endpoint %llu: %s %s: %s", (unsigned long long)ep->id, ep->info.provider,
                        ep->info.device, text);
    } else {
        rdmux_log_about(ep->fabric, RDMUX_CATEGORY_FAILOVER, RDMUX_LOG_WARN,
                        "endpoint %llu: %s %s failed with %s: %s; moving",
                        (unsigned long long)ep->id, ep->info.provider, ep->info.device,
                        rdmux_status_name(status), text);
        rdmux_failover_note_loss(ep, now_ns);
        rdmux_failback_give_up(ep);
    }
    /* A voluntary move, of which there may be many, has the limits for itself. */
    if (status == RDMUX_OK || failover->move.ended_ns == 0 ||
        now_ns - failover->move.ended_ns > HEELS_NS) {
        failover->move.began_ns = now_ns;
        failover->search.attempts = 0;
    }
    rdmux_replay_confirm(ep);
    enter_stage(ep, RDMUX_CUTTING);
    ep->retention.dying = ep->path;
    ep->path = &failover->null_path;
    ep->ops = &rdmux_null_path_ops;
    rdmux_ep_block(ep);
    rdmux_ep_clear_fault(ep);
    rdmux_ep_fault_explained(ep); /* a refusal shows when the import is resolved anew */
    rdmux_ep_forget_silence(ep);
    rdmux_ep_forget_revocations(ep);
    rdmux_ep_list_busy(ep);
    cut_path(ep);
    rdmux_ep_timer(ep);
}

/* Returns whether the error belongs to the path. An error of the caller or the peer would recur on
 * every path. */
static bool fault_is_of_path(enum rdmux_status status)
{
    switch (status) {
    case RDMUX_PEER_GONE:
    case RDMUX_IO:
    case RDMUX_FLUSHED:
    case RDMUX_TIMED_OUT:
        return true;
    default:
        return false;
    }
}

static bool takes_fault(struct rdmux_ep *ep)
{
    const struct rdmux_failover *failover = ep->failover;
    if (ep->session.is_shutdown_sent || ep->session.has_end) {
        return false;
    }
    if (failover->stage == RDMUX_SEARCHING) {
        return true; /* a fault of the attempt, see rdmux_path_attempt_step() */
    }
    if (failover->stage != RDMUX_STEADY) {
        rdmux_ep_clear_fault(ep);
        return true;
    }
    if (!fault_is_of_path((enum rdmux_status)ep->fault)) {
        return false;
    }
    ep->fabric->life->control_ready(ep); /* if the peer has announced its end, that is the cause */
    if (ep->phase == RDMUX_PHASE_READY && failover->stage == RDMUX_STEADY && ep->fault != RDMUX_OK) {
        begin_move(ep, (enum rdmux_status)ep->fault, ep->cause.text);
    }
    return true;
}

/* The route may be gone while another address of the peer answers. Dials the control channel again,
 * for as long as a reconnect may take. So a peer that is gone ends the endpoint after twice the
 * liveness time. */
static bool takes_silence(struct rdmux_ep *ep, const char *text)
{
    const struct rdmux_failover *failover = ep->failover;
    if (ep->phase != RDMUX_PHASE_READY) {
        return false;
    }
    if (rdmux_reconnect_is_under_way(ep)) {
        return true; /* until that deadline */
    }
    rdmux_reconnect_elsewhere(ep);
    if (!rdmux_reconnect_begin(ep, text)) {
        return false;
    }
    if (ep->phase == RDMUX_PHASE_READY && failover->stage == RDMUX_STEADY) {
        begin_move(ep, RDMUX_PEER_GONE, text);
    }
    return true;
}

static bool takes_loss(struct rdmux_ep *ep, const char *silence)
{
    return silence == NULL ? takes_fault(ep) : takes_silence(ep, silence);
}

/* Leaves a working path for the better one that both sides are ready for, if they are. */
static void go_back_if_ready(struct rdmux_ep *ep)
{
    if (!rdmux_failback_is_ready(ep)) {
        return;
    }
    if (rdmux_failback_stays(ep)) {
        begin_move(ep, RDMUX_OK, "left for a moment, as an endpoint changes its cq");
        return;
    }
    const struct rdmux_offer_path *to = rdmux_failback_path(ep);
    char text[RDMUX_TEXT_MAX];
    snprintf(text, sizeof(text),
             "left for a better path that was lost and works again, %.40s %.60s", to->provider,
             to->path.device);
    begin_move(ep, RDMUX_OK, text);
}

static void take_move_message(struct rdmux_ep *ep, const struct rdmux_message *message)
{
    struct rdmux_failover *failover = ep->failover;
    if (message->epoch != ep->info.epoch + 1 || failover->move.heard) {
        rdmux_ep_fail(ep, RDMUX_PROTOCOL, "control channel: MOVE to epoch %u in epoch %u",
                      message->epoch, ep->info.epoch);
        return;
    }
    if (ep->session.is_shutdown_sent) {
        return; /* the peer reads END after its MOVE, and ends: ENDED is under way */
    }
    failover->move.heard = true;
    failover->move.heard_count = message->count;
    if (failover->stage == RDMUX_MEETING) {
        if (!note_cut(ep)) {
            begin_search(ep);
        }
    } else if (failover->stage == RDMUX_STEADY) {
        char text[RDMUX_TEXT_MAX];
        snprintf(text, sizeof(text), "told by the peer: %.220s", message->text);
        begin_move(ep, (enum rdmux_status)message->status, text);
    }
}

static void take_count_message(struct rdmux_ep *ep, const struct rdmux_message *message)
{
    if (ep->failover->stage != RDMUX_STEADY || message->epoch < ep->info.epoch) {
        return; /* MOVE tells more, or told it already */
    }
    if (message->epoch > ep->info.epoch || !rdmux_replay_counted(ep, message->count)) {
        rdmux_ep_fail(ep, RDMUX_PROTOCOL,
                      "control channel: RECEIVED of %llu messages in epoch %u, which cannot be",
                      (unsigned long long)message->count, message->epoch);
        return;
    }
    rdmux_cq_pend(ep->cq, ep);
}

void rdmux_failover_told(struct rdmux_ep *ep, const struct rdmux_message *message)
{
    switch (message->type) {
    case RDMUX_FRAME_MOVE:
        take_move_message(ep, message);
        break;
    case RDMUX_FRAME_BACK:
        rdmux_failback_told(ep, message);
        go_back_if_ready(ep);
        break;
    case RDMUX_FRAME_REVOKE: /* of this side */
        rdmux_reconnect_note_revocation(ep, message->region, message->id);
        break;
    case RDMUX_FRAME_REVOKED:
        rdmux_reconnect_revocation_answered(ep, message->region, message->id);
        break;
    default:
        take_count_message(ep, message);
        break;
    }
}

/* -------------------------------------------------------------------------------- the next path */

static void try_next_pair(struct rdmux_ep *ep)
{
    struct rdmux_search *search = &ep->failover->search;
    const uint64_t now_ns = rdmux_now(ep->fabric);
    const size_t count = search->order_count;
    if (count == 0 || search->attempts >= search->attempts_max) {
        rdmux_handshake_give_up(ep->setup->handshake);
        return;
    }
    uint32_t round = search->tried / (uint32_t)count;
    if (search->next_try_ns == 0 && round != 0 && search->tried % count == 0) {
        uint32_t doublings = round - 1 < PAUSE_DOUBLINGS ? round - 1 : PAUSE_DOUBLINGS;
        search->next_try_ns = now_ns + ((uint64_t)FIRST_PAUSE_NS << doublings);
        rdmux_ep_timer(ep);
    }
    if (now_ns < search->next_try_ns) {
        return;
    }
    search->next_try_ns = 0;
    search->attempts++;
    search->trying = search->order[search->tried++ % count];
    uint32_t doublings = round < ATTEMPT_DOUBLINGS ? round : ATTEMPT_DOUBLINGS;
    uint64_t limit_ms = count == 1 ? UINT64_MAX : (uint64_t)FIRST_ATTEMPT_MS << doublings;
    rdmux_handshake_try(ep->setup->handshake, search->trying, limit_ms, now_ns);
}

void rdmux_failover_choose(struct rdmux_ep *ep)
{
    struct rdmux_search *search = &ep->failover->search;
    if (search->trying != 0) {
        search->vain_ns[search->trying - 1] = rdmux_now(ep->fabric);
        search->trying = 0;
    }
    try_next_pair(ep);
}

void rdmux_failover_lost(struct rdmux_ep *ep, enum rdmux_status status, const char *text)
{
    const struct rdmux_failover *failover = ep->failover;
    if (status == RDMUX_NO_PATH) {
        rdmux_ep_fail(ep, RDMUX_PEER_GONE, "no path is left: %.100s; %u attempts failed",
                      failover->move.cause_text, failover->search.attempts);
        return;
    }
    if (status == RDMUX_TIMED_OUT) { /* silence of the control channel counts as its loss */
        rdmux_reconnect_elsewhere(ep);
        if (rdmux_reconnect_begin(ep, text)) {
            return;
        }
    }
    rdmux_ep_fail(ep,
                  status == RDMUX_PROTOCOL || status == RDMUX_NO_MEMORY ? status : RDMUX_PEER_GONE,
                  "moving to another path: %.220s", text);
}

void rdmux_failover_arrived(struct rdmux_ep *ep, struct rdmux_provider_ep *path)
{
    struct rdmux_failover *failover = ep->failover;
    struct rdmux_setup *setup = ep->setup;
    rdmux_joins_remove(ep->fabric, ep);
    free_proof_region(setup);
    failover->setup = setup;
    ep->setup = NULL;
    ep->path = path;
    ep->ops = path->ops;
    ep->domain = path->cq->domain;
    rdmux_ep_unblock(ep);
    enter_stage(ep, RDMUX_STEADY);
    if (failover->search.trying != 0) {
        failover->search.vain_ns[failover->search.trying - 1] = 0;
        failover->search.trying = 0;
    }
    failover->move.ended_ns = rdmux_now(ep->fabric);
    ep->retention.moved_to = ep->info.epoch;
    ep->info.previous_status = failover->move.cause;
    snprintf(ep->info.text, sizeof(ep->info.text), "moved from %.24s %.24s to %.24s %.24s: %.120s",
             ep->info.previous_provider, ep->info.previous_device, ep->info.provider,
             ep->info.device, failover->move.cause_text);
    ep->stats.moves++;
    ep->events |= RDMUX_EVENT_MOVED;
    RDMUX_TRACE2(failover_end, ep->id, ep->info.epoch);
    rdmux_log_about(ep->fabric, RDMUX_CATEGORY_FAILOVER, RDMUX_LOG_INFO,
                    "endpoint %llu: epoch %u: %s", (unsigned long long)ep->id, ep->info.epoch,
                    ep->info.text);
    rdmux_failback_arrived(ep);
    rdmux_remotes_ask_again(ep);
    rdmux_replay_resume(ep);
    rdmux_cq_pend(ep->cq, ep);
    rdmux_ep_timer(ep);
}

/* ------------------------------------------------------------------ loss of the control channel */

void rdmux_failover_channel_lost(struct rdmux_ep *ep)
{
    struct rdmux_failover *failover = ep->failover;
    failover->move.heard = false;
    rdmux_failback_give_up(ep);
    if (failover->stage ==
        RDMUX_SEARCHING) { /* the epoch carried nothing, and the next one is due */
        rdmux_path_attempt_close(ep);
        free_proof_region(ep->setup);
        rdmux_joins_remove(ep->fabric, ep);
        failover->setup = ep->setup;
        ep->setup = NULL;
        rdmux_replay_nothing_given(ep);
        enter_stage(ep, RDMUX_MEETING);
    }
}

bool rdmux_failover_align(struct rdmux_ep *ep, const struct rdmux_message *standing)
{
    struct rdmux_failover *failover = ep->failover;
    uint32_t epoch = ep->info.epoch;
    if (standing->epoch == epoch + 1 && failover->stage == RDMUX_MEETING) {
        if (!begin_epoch(ep, standing->count)) {
            return false;
        }
        rdmux_replay_nothing_given(ep);
        return true;
    }
    if (standing->epoch == epoch ||
        (standing->epoch + 1 == epoch && failover->stage == RDMUX_MEETING)) {
        return true;
    }
    rdmux_ep_fail(ep, RDMUX_PROTOCOL,
                  "control channel: the peer resumes epoch %u, this is epoch %u", standing->epoch,
                  epoch);
    return false;
}

void rdmux_failover_resumed(struct rdmux_ep *ep, const struct rdmux_message *standing)
{
    struct rdmux_failover *failover = ep->failover;
    if (failover->stage == RDMUX_MEETING) {
        say_move(ep);
    } else if (failover->stage == RDMUX_STEADY && !standing->is_steady) {
        begin_move(ep, RDMUX_PEER_GONE, "the peer lost the path together with the control channel");
    } else if (failover->stage == RDMUX_STEADY) {
        if (!rdmux_replay_counted(ep, standing->count)) {
            rdmux_ep_fail(ep, RDMUX_PROTOCOL,
                          "control channel: the peer has counted more messages than were sent");
            return;
        }
        rdmux_remotes_ask_again(ep);
    }
    rdmux_cq_pend(ep->cq, ep);
}

/* -------------------------------------------------------------------------- steps and deadlines */

static uint64_t move_deadline(const struct rdmux_failover *failover)
{
    return failover->time_ns > UINT64_MAX - failover->move.began_ns
               ? UINT64_MAX
               : failover->move.began_ns + failover->time_ns;
}

static void step_search(struct rdmux_ep *ep)
{
    struct rdmux_failover *failover = ep->failover;
    uint64_t now_ns = rdmux_now(ep->fabric);
    if (failover->search.next_try_ns != 0 && now_ns >= failover->search.next_try_ns) {
        try_next_pair(ep);
    }
    if (now_ns >= rdmux_handshake_deadline(ep->setup->handshake)) {
        rdmux_handshake_time(ep->setup->handshake, now_ns);
    }
    ep->setup->step(ep);
}

/* Checks the control channel while RECEIVED is awaited. A polling program learns of the control
 * channel through the service thread, which may be late where processors are busy. */
static bool await_count(struct rdmux_ep *ep)
{
    struct rdmux_failover *failover = ep->failover;
    if (!rdmux_replay_awaits_count(ep)) {
        return false;
    }
    uint64_t now_ns = rdmux_now(ep->fabric);
    if (now_ns - failover->looked_at_ns >= RECEIVED_LOOK_NS) {
        failover->looked_at_ns = now_ns;
        ep->fabric->life->control_ready(ep);
    }
    return true;
}

static void step_steady(struct rdmux_ep *ep, bool quiet)
{
    bool awaits = await_count(ep);
    if (ep->phase != RDMUX_PHASE_READY || ep->failover->stage != RDMUX_STEADY) {
        return;
    }
    bool goes_back = rdmux_failback_step(ep);
    go_back_if_ready(ep);
    if (ep->phase != RDMUX_PHASE_READY || ep->failover->stage != RDMUX_STEADY) {
        return;
    }
    if (rdmux_replay_step(ep, quiet) || awaits || goes_back) {
        rdmux_ep_list_busy(ep);
    } else if (ep->failover->stage == RDMUX_STEADY && ep->phase == RDMUX_PHASE_READY) {
        rdmux_ep_unlist_busy(ep);
    }
}

void rdmux_failover_step(struct rdmux_ep *ep)
{
    struct rdmux_failover *failover = ep->failover;
    if (ep->phase == RDMUX_PHASE_READY) {
        rdmux_reconnect_step(ep);
    }
    if (ep->phase != RDMUX_PHASE_READY) {
        return;
    }
    if (failover->stage == RDMUX_STEADY) {
        step_steady(ep, false);
        return;
    }
    if (rdmux_now(ep->fabric) >= move_deadline(failover)) {
        rdmux_ep_fail(ep, RDMUX_PEER_GONE, "no other path within failover_time_ms: %.160s",
                      failover->move.cause_text);
    } else if (failover->stage == RDMUX_CUTTING) {
        cut_path(ep);
    } else if (failover->stage == RDMUX_SEARCHING) {
        step_search(ep);
    } else {
        (void)note_cut(ep); /* the channel may have been reconnected */
    }
}

static bool failover_falls_quiet(struct rdmux_ep *ep)
{
    const struct rdmux_failover *failover = ep->failover;
    if (ep->phase != RDMUX_PHASE_READY || failover->stage != RDMUX_STEADY) {
        return false;
    }
    bool waited = failover->untold_ns != 0;
    bool unplaced = failover->unplaced_ns != 0;
    step_steady(ep, true);
    return (waited && failover->untold_ns == 0) || (unplaced && failover->unplaced_ns == 0);
}

uint64_t rdmux_failover_deadline(const struct rdmux_ep *ep)
{
    const struct rdmux_failover *failover = ep->failover;
    uint64_t reconnect = rdmux_reconnect_deadline(ep);
    if (failover->stage == RDMUX_STEADY) {
        uint64_t back = rdmux_failback_deadline(ep);
        return back < reconnect ? back : reconnect;
    }
    uint64_t deadline = move_deadline(failover) < reconnect ? move_deadline(failover) : reconnect;
    uint64_t next = UINT64_MAX;
    if (failover->stage == RDMUX_CUTTING) {
        next = rdmux_now(ep->fabric) + CUT_STEP_NS;
    } else if (failover->stage == RDMUX_SEARCHING) {
        next = failover->search.next_try_ns != 0 ? failover->search.next_try_ns
                                                 : rdmux_handshake_deadline(ep->setup->handshake);
    }
    return next < deadline ? next : deadline;
}

/* Gives a move up: the endpoint has the path that is being quiesced, or none. */
static void abandon_move(struct rdmux_ep *ep)
{
    struct rdmux_failover *failover = ep->failover;
    if (failover->stage == RDMUX_CUTTING && ep->retention.dying != NULL) {
        ep->path = ep->retention.dying;
        ep->ops = ep->path->ops;
    } else {
        ep->path = NULL;
    }
    ep->retention.dying = NULL;
    enter_stage(ep, RDMUX_STEADY);
    if (ep->setup != NULL) {
        rdmux_path_attempt_close(ep);
        free_proof_region(ep->setup);
        rdmux_joins_remove(ep->fabric, ep);
        failover->setup = ep->setup;
        ep->setup = NULL;
    }
    rdmux_ep_unlist_busy(ep);
}

static void cut_for_cq(struct rdmux_ep *ep)
{
    rdmux_failback_change_cq(ep);
    rdmux_ep_list_busy(ep);
    step_steady(ep, false);
    rdmux_ep_timer(ep);
}

static void go_on_at_cq(struct rdmux_ep *ep)
{
    rdmux_reconnect_enter_cq(ep);
    if (ep->phase == RDMUX_PHASE_READY && ep->failover->stage == RDMUX_MEETING) {
        path_goes_on(ep);
    }
}

static bool is_steady(const struct rdmux_ep *ep)
{
    return ep->failover->stage == RDMUX_STEADY && ep->retention.dying == NULL &&
           rdmux_reconnect_is_idle(ep);
}

static void abandon(struct rdmux_ep *ep)
{
    if (ep->failover->stage != RDMUX_STEADY) {
        abandon_move(ep);
    }
    rdmux_reconnect_leave(ep);
}

const struct rdmux_failover_hooks rdmux_failover_hooks = {
    .run = rdmux_replay_run,
    .confirm = rdmux_replay_confirm,
    .quiet = failover_falls_quiet,
    .takes_loss = takes_loss,
    .message = rdmux_failover_told,
    .tell_received = rdmux_replay_tell,
    .channel_broken = rdmux_reconnect_note_broken,
    .is_steady = is_steady,
    .cut_for_cq = cut_for_cq,
    .is_cut = is_cut,
    .leave_cq = rdmux_reconnect_leave_cq,
    .go_on = go_on_at_cq,
    .abandon = abandon,
    .end_requests = rdmux_replay_end,
};
