/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Failback (attr.failback): returns to a better path than the one that a failure left the endpoint
 * on. A lost path is eligible once it has been left alone for the hold-down time and its device is
 * usable on both sides.
 *
 * A move ends atomics under way as RDMUX_OUTCOME_UNKNOWN. A voluntary move avoids that. Both sides
 * first stop giving their path new requests, wait until nothing is under way that could not be
 * repeated, and tell each other (BACK). BACK is only a courtesy: a side that does not get ready in
 * time goes on as before, and the move itself is the same as after a failure. Only the number of
 * unknown outcomes depends on BACK.
 *
 * A change of cq (rdmux_ep_move()) on a path that is bound to its cq uses the same way: its goal is
 * the current path, which is closed at the old cq and opened at the new one. It tries until the
 * requests of this side allow it. A peer that refuses again and again, as one of an earlier version
 * does, is not waited for.
 */
#include "api/core/ep.h"
#include "api/data/post.h"
#include "api/data/request.h"
#include "api/data/segments.h"
#include "api/failover/failover.h"
#include "api/failover/failover_state.h"
#include "api/object/control_send.h"
#include "api/object/ep.h"
#include "api/object/offer.h"
#include "api/progress/endpoint_table.h"
#include "api/session/control.h"
#include "api/session/setup_state.h"

#include <string.h>

enum {
    READY_NS = 100 * RDMUX_NS_PER_MS, /* time for both sides to get ready */
    AGAIN_NS = 20 * RDMUX_NS_PER_MS,  /* pause before a change of cq tries again */
    REFUSALS_MAX = 8,                 /* then a change of cq does not wait for the peer any more */
    VAIN_DOUBLINGS = 4,               /* hold-down doublings after moves that did not lead back */
};

void rdmux_failback_init(struct rdmux_failover *failover, const struct rdmux_ep_attr *attr)
{
    failover->back.is_wanted = attr->failback != 0;
}

static const struct rdmux_offer_path *path_of_rank(const struct rdmux_ep *ep, size_t rank)
{
    const struct rdmux_setup *setup = ep->failover->setup;
    return &setup->offer->paths[rdmux_handshake_ours_of_rank(setup->handshake, rank)];
}

/* Returns whether a better path than the current one was ever lost. */
static bool has_lost_a_better_one(const struct rdmux_failover *failover)
{
    size_t current = rdmux_handshake_current_rank(failover->setup->handshake);
    for (size_t rank = 1; rank < current && rank <= RDMUX_MATCH_MAX; rank++) {
        if (failover->lost_ns[rank - 1][0] != 0) {
            return true;
        }
    }
    return false;
}

static void schedule_next_look(struct rdmux_ep *ep)
{
    struct rdmux_failover *failover = ep->failover;
    struct rdmux_failback *back = &failover->back;
    uint32_t doublings = back->vain < VAIN_DOUBLINGS ? back->vain : VAIN_DOUBLINGS;
    back->next_ns = back->is_wanted && has_lost_a_better_one(failover)
                        ? rdmux_now(ep->fabric) + (failover->hold_ns << doublings)
                        : 0;
}

static void forget_goal(struct rdmux_failback *back)
{
    back->goal = 0;
    back->said = false;
    back->heard = false;
}

/* Returns whether the endpoint leaves its path to have the same path at another cq. */
static bool changes_cq(const struct rdmux_ep *ep)
{
    return (ep->events & RDMUX_EVENT_LEAVING) != 0;
}

/* Stays on the current path; requests held back go on. */
static void stay_on_path(struct rdmux_ep *ep)
{
    forget_goal(&ep->failover->back);
    if (changes_cq(ep)) {
        ep->failover->back.refusals++;
        ep->failover->back.again_ns = rdmux_now(ep->fabric) + AGAIN_NS;
    }
    schedule_next_look(ep);
    if (!ep->flow.is_blocked) {
        rdmux_ep_push(ep, false);
    }
    rdmux_ep_timer(ep);
}

static void send_back_message(struct rdmux_ep *ep, size_t rank, enum rdmux_status status)
{
    if (ep->session.is_shutdown_sent || ep->channel == NULL) {
        return; /* END was the last word, or there is no channel */
    }
    const struct rdmux_message message = {
        .type = RDMUX_FRAME_BACK, .status = (uint32_t)status, .epoch = ep->info.epoch, .count = rank
    };
    rdmux_ep_tell(ep, &message);
}

/* Returns whether cutting the path now would end no request as RDMUX_OUTCOME_UNKNOWN. */
static bool requests_allow_cut(struct rdmux_ep *ep)
{
    rdmux_replay_confirm(ep);
    bool in_part = ep->segments != NULL && ep->segments->given != 0;
    uint64_t given = ep->send.next + (in_part ? 1 : 0);
    for (uint64_t at = ep->retention.confirmed; at != given; at++) {
        const struct rdmux_request *request = rdmux_ring_record(&ep->send, at);
        bool is_atomic = request->op == RDMUX_OP_FETCH_ADD || request->op == RDMUX_OP_COMPARE_SWAP;
        if (is_atomic ? !request->done : (request->flags & RDMUX_NO_REPLAY) != 0) {
            return false;
        }
    }
    return true;
}

/* Returns whether this side could move back to the path of this rank. */
static bool path_is_in_order(struct rdmux_ep *ep, size_t rank)
{
    const struct rdmux_offer_path *path = path_of_rank(ep, rank);
    const char *bound = rdmux_ep_bound_device(ep);
    return (bound[0] == '\0' || strcmp(bound, path->path.device) == 0) &&
           rdmux_fabric_path_is_usable(ep->fabric, path->provider, path->path.device);
}

/* Returns whether the peer may move to this path. The peer may ask only for better paths and, as
 * checking devices takes time, about as often as this side would. */
static bool peer_may_ask_for_path(struct rdmux_ep *ep, uint64_t rank)
{
    struct rdmux_failback *back = &ep->failover->back;
    const uint64_t now_ns = rdmux_now(ep->fabric);
    const size_t current = rdmux_handshake_current_rank(ep->failover->setup->handshake);
    if (rank == current) {
        return true; /* the peer changes its cq, and the path's device works */
    }
    if (rank > current ||
        (back->probed_ns != 0 && now_ns - back->probed_ns < ep->failover->hold_ns / 2)) {
        return false;
    }
    back->probed_ns = now_ns;
    return path_is_in_order(ep, (size_t)rank);
}

static bool may_leave_path(const struct rdmux_ep *ep)
{
    return ep->phase == RDMUX_PHASE_READY && ep->failover->stage == RDMUX_STEADY &&
           !ep->session.is_shutdown_sent && !ep->session.has_end && ep->channel != NULL;
}

bool rdmux_failback_is_ready(const struct rdmux_ep *ep)
{
    const struct rdmux_failback *back = &ep->failover->back;
    return back->goal != 0 && back->said && back->heard && may_leave_path(ep);
}

bool rdmux_failback_stays(const struct rdmux_ep *ep)
{
    return ep->failover->back.goal == rdmux_handshake_current_rank(ep->failover->setup->handshake);
}

void rdmux_failback_change_cq(struct rdmux_ep *ep)
{
    struct rdmux_failback *back = &ep->failover->back;
    back->refusals = 0;
    back->again_ns = 0;
}

const struct rdmux_offer_path *rdmux_failback_path(const struct rdmux_ep *ep)
{
    return path_of_rank(ep, ep->failover->back.goal);
}

/* Advances the failback. A path with a fault is left alone here: the peer may have cut it
 * already. */
static void advance_failback(struct rdmux_ep *ep)
{
    struct rdmux_failback *back = &ep->failover->back;
    bool is_whole = ep->fault == RDMUX_OK;
    if (may_leave_path(ep) && !back->said && is_whole && requests_allow_cut(ep)) {
        back->said = true;
        send_back_message(ep, back->goal, RDMUX_OK);
    }
    if (!rdmux_failback_is_ready(ep) && ep->phase == RDMUX_PHASE_READY && is_whole &&
        (!may_leave_path(ep) || rdmux_now(ep->fabric) >= back->deadline_ns)) {
        send_back_message(ep, back->goal, RDMUX_AGAIN);
        stay_on_path(ep);
    }
}

static void begin_failback(struct rdmux_ep *ep, size_t rank)
{
    struct rdmux_failback *back = &ep->failover->back;
    back->goal = (uint32_t)rank;
    back->deadline_ns = rdmux_now(ep->fabric) + READY_NS;
    advance_failback(ep);
    rdmux_ep_timer(ep);
}

/* The next try of a change of cq. */
static void begin_cq_change(struct rdmux_ep *ep)
{
    struct rdmux_failback *back = &ep->failover->back;
    if (may_leave_path(ep) && ep->fault == RDMUX_OK && rdmux_now(ep->fabric) >= back->again_ns) {
        back->heard = back->refusals >= REFUSALS_MAX;
        begin_failback(ep, rdmux_handshake_current_rank(ep->failover->setup->handshake));
    }
}

/* Looks for a better path that was lost and has been left alone long enough. */
static void look_for_better_path(struct rdmux_ep *ep)
{
    struct rdmux_failover *failover = ep->failover;
    uint64_t now_ns = rdmux_now(ep->fabric);
    size_t current = rdmux_handshake_current_rank(failover->setup->handshake);
    for (size_t rank = 1; rank < current && rank <= RDMUX_MATCH_MAX; rank++) {
        uint64_t lost_ns = failover->lost_ns[rank - 1][0];
        if (lost_ns != 0 && now_ns - lost_ns >= failover->hold_ns &&
            !rdmux_failover_leaves_out(ep, rank) && path_is_in_order(ep, rank)) {
            begin_failback(ep, rank);
            return;
        }
    }
    schedule_next_look(ep);
    rdmux_ep_timer(ep);
}

void rdmux_failback_arrived(struct rdmux_ep *ep)
{
    struct rdmux_failover *failover = ep->failover;
    struct rdmux_failback *back = &failover->back;
    if (back->goal != 0) {
        bool is_there = rdmux_handshake_current_rank(failover->setup->handshake) == back->goal;
        back->vain = is_there ? 0 : back->vain + 1;
    }
    forget_goal(back);
    schedule_next_look(ep);
}

void rdmux_failback_give_up(struct rdmux_ep *ep)
{
    forget_goal(&ep->failover->back);
}

bool rdmux_failback_step(struct rdmux_ep *ep)
{
    const struct rdmux_failback *back = &ep->failover->back;
    if (back->goal != 0) {
        advance_failback(ep);
    } else if (changes_cq(ep)) {
        begin_cq_change(ep);
    } else if (back->next_ns != 0 && rdmux_now(ep->fabric) >= back->next_ns) {
        if (may_leave_path(ep) && ep->fault == RDMUX_OK) {
            look_for_better_path(ep);
        } else {
            schedule_next_look(ep);
        }
    }
    return back->goal != 0 || changes_cq(ep);
}

uint64_t rdmux_failback_deadline(const struct rdmux_ep *ep)
{
    const struct rdmux_failback *back = &ep->failover->back;
    if (back->goal != 0) {
        return back->deadline_ns;
    }
    if (changes_cq(ep)) {
        return back->again_ns;
    }
    return back->next_ns != 0 ? back->next_ns : UINT64_MAX;
}

void rdmux_failback_told(struct rdmux_ep *ep, const struct rdmux_message *message)
{
    struct rdmux_failback *back = &ep->failover->back;
    if (message->epoch != ep->info.epoch || ep->failover->stage != RDMUX_STEADY) {
        return; /* BACK crossed a move */
    }
    size_t ranked = rdmux_handshake_ranked(ep->failover->setup->handshake);
    if (message->count == 0 || message->count > ranked) {
        rdmux_ep_fail(ep, RDMUX_PROTOCOL, "control channel: BACK to the path of rank %llu of %zu",
                      (unsigned long long)message->count, ranked);
        return;
    }
    if (message->status != RDMUX_OK) {
        if (back->goal != 0) {
            stay_on_path(ep);
        }
        return;
    }
    if (back->goal == 0 && (!may_leave_path(ep) || ep->fault != RDMUX_OK ||
                            !peer_may_ask_for_path(ep, message->count))) {
        send_back_message(ep, (size_t)message->count, RDMUX_AGAIN);
        return;
    }
    back->heard = true;
    if (back->goal == 0) {
        begin_failback(ep, (size_t)message->count);
    } else {
        back->goal = message->count < back->goal ? (uint32_t)message->count : back->goal;
        advance_failback(ep);
    }
}
