/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Going back to a better path than the one that a failure has left (attr.failback). One that was lost is gone back to when it has been
 * left alone for the hold-down time and its device is in good order on both sides.
 *
 * A move ends atomics that are under way as RDMUX_OUTCOME_UNKNOWN. Where it is our own choice there is no need for that: first
 * both sides give their path nothing new and wait until nothing is under way that could not be repeated, and say so to each other (BACK).
 * That is only a courtesy. Who does not get ready in time goes on as before, and the move itself is the one of every failure: nothing
 * depends on BACK but how many outcomes are unknown.
 */
#include "api/core/ep.h"
#include "api/core/failover.h"
#include "api/data/post.h"
#include "api/data/request.h"
#include "api/data/segments.h"
#include "api/failover/failover.h"
#include "api/object/control_send.h"
#include "api/object/ep.h"
#include "api/object/offer.h"
#include "api/progress/endpoint_table.h"
#include "api/session/setup_state.h"

#include <string.h>

enum {
    NS_PER_MS = 1000000,
    READY_NS = 100 * NS_PER_MS, /* for both to get ready */
    VAIN_DOUBLINGS = 4,         /* of the hold-down time, after moves that did not lead back */
};

static const struct rdmux_offer_path *path_of_rank(const struct rdmux_ep *ep, size_t rank)
{
    const struct rdmux_setup *setup = ep->failover->setup;
    return &setup->offer->paths[rdmux_handshake_ours_of_rank(setup->handshake, rank)];
}

/* Was there ever a path that is better than this one? */
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

static void look_later(struct rdmux_ep *ep)
{
    struct rdmux_failover *failover = ep->failover;
    struct rdmux_failback *back = &failover->back;
    uint32_t doublings = back->vain < VAIN_DOUBLINGS ? back->vain : VAIN_DOUBLINGS;
    back->next_ns = back->is_wanted && has_lost_a_better_one(failover)
                        ? rdmux_now(ep->fabric) + (failover->hold_ns << doublings)
                        : 0;
}

static void forget(struct rdmux_failback *back)
{
    back->goal = 0;
    back->said = false;
    back->heard = false;
}

/* As before; what was held back goes on. */
static void stay(struct rdmux_ep *ep)
{
    forget(&ep->failover->back);
    look_later(ep);
    if (!ep->blocked) {
        rdmux_ep_push(ep, false);
    }
    rdmux_ep_timer(ep);
}

static void say(struct rdmux_ep *ep, size_t rank, enum rdmux_status status)
{
    if (ep->shutdown_sent || ep->channel == NULL) {
        return; /* END was the last word, or nobody hears it */
    }
    const struct rdmux_message message = {
        .type = RDMUX_FRAME_BACK, .status = (uint32_t)status, .epoch = ep->info.epoch, .count = rank
    };
    rdmux_ep_tell(ep, &message);
}

/* Nothing that the path was given would end as RDMUX_OUTCOME_UNKNOWN if it were cut now. */
static bool is_ready(struct rdmux_ep *ep)
{
    const struct rdmux_failover *failover = ep->failover;
    rdmux_replay_confirm(ep);
    bool in_part = ep->segments != NULL && ep->segments->given != 0;
    uint64_t given = ep->send.next + (in_part ? 1 : 0);
    for (uint64_t at = failover->confirmed; at != given; at++) {
        const struct rdmux_request *request = rdmux_ring_record(&ep->send, at);
        bool is_atomic = request->op == RDMUX_OP_FETCH_ADD || request->op == RDMUX_OP_COMPARE_SWAP;
        if (is_atomic ? !request->done : (request->flags & RDMUX_NO_REPLAY) != 0) {
            return false;
        }
    }
    return true;
}

/* Can the path of this rank be gone back to, as far as this side knows? */
static bool is_in_order(struct rdmux_ep *ep, size_t rank)
{
    const struct rdmux_offer_path *path = path_of_rank(ep, rank);
    const char *bound = rdmux_failover_bound_device(ep);
    return (bound[0] == '\0' || strcmp(bound, path->path.device) == 0) &&
           rdmux_fabric_path_is_usable(ep->fabric, path->provider, path->path.device);
}

/* May the peer have this path? It is to ask for better ones alone, and, as looking at devices takes time, about as often as this side
 * would. */
static bool may_ask_for(struct rdmux_ep *ep, uint64_t rank)
{
    struct rdmux_failback *back = &ep->failover->back;
    const uint64_t now_ns = rdmux_now(ep->fabric);
    if (rank >= rdmux_handshake_current_rank(ep->failover->setup->handshake) ||
        (back->probed_ns != 0 && now_ns - back->probed_ns < ep->failover->hold_ns / 2)) {
        return false;
    }
    back->probed_ns = now_ns;
    return is_in_order(ep, (size_t)rank);
}

static bool may_go(const struct rdmux_ep *ep)
{
    return ep->phase == RDMUX_PHASE_READY && ep->failover->stage == RDMUX_STEADY &&
           !ep->shutdown_sent && !ep->end_received && ep->channel != NULL;
}

/* A path that is seen to fail meanwhile may be one that the peer has cut already. */
static void go_on(struct rdmux_ep *ep)
{
    struct rdmux_failback *back = &ep->failover->back;
    bool is_whole = ep->fault == RDMUX_OK;
    if (may_go(ep) && !back->said && is_whole && is_ready(ep)) {
        back->said = true;
        say(ep, back->goal, RDMUX_OK);
    }
    if (may_go(ep) && back->said && back->heard) {
        rdmux_failover_return(ep, path_of_rank(ep, back->goal));
    } else if (ep->phase == RDMUX_PHASE_READY && is_whole &&
               (!may_go(ep) || rdmux_now(ep->fabric) >= back->deadline_ns)) {
        say(ep, back->goal, RDMUX_AGAIN);
        stay(ep);
    }
}

static void set_out(struct rdmux_ep *ep, size_t rank)
{
    struct rdmux_failback *back = &ep->failover->back;
    back->goal = (uint32_t)rank;
    back->deadline_ns = rdmux_now(ep->fabric) + READY_NS;
    go_on(ep);
    rdmux_ep_timer(ep);
}

/* Is there a path that was lost, is better than this one, and has been left alone for long enough? */
static void look(struct rdmux_ep *ep)
{
    struct rdmux_failover *failover = ep->failover;
    uint64_t now_ns = rdmux_now(ep->fabric);
    size_t current = rdmux_handshake_current_rank(failover->setup->handshake);
    for (size_t rank = 1; rank < current && rank <= RDMUX_MATCH_MAX; rank++) {
        uint64_t lost_ns = failover->lost_ns[rank - 1][0];
        if (lost_ns != 0 && now_ns - lost_ns >= failover->hold_ns &&
            !rdmux_failover_leaves_out(ep, rank) && is_in_order(ep, rank)) {
            set_out(ep, rank);
            return;
        }
    }
    look_later(ep);
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
    forget(back);
    look_later(ep);
}

void rdmux_failback_give_up(struct rdmux_ep *ep)
{
    forget(&ep->failover->back);
}

bool rdmux_failback_step(struct rdmux_ep *ep)
{
    const struct rdmux_failback *back = &ep->failover->back;
    if (back->goal != 0) {
        go_on(ep);
    } else if (back->next_ns != 0 && rdmux_now(ep->fabric) >= back->next_ns) {
        if (may_go(ep) && ep->fault == RDMUX_OK) {
            look(ep);
        } else {
            look_later(ep);
        }
    }
    return back->goal != 0;
}

uint64_t rdmux_failback_deadline(const struct rdmux_ep *ep)
{
    const struct rdmux_failback *back = &ep->failover->back;
    return back->goal != 0 ? back->deadline_ns : back->next_ns != 0 ? back->next_ns : UINT64_MAX;
}

void rdmux_failback_told(struct rdmux_ep *ep, const struct rdmux_message *message)
{
    struct rdmux_failback *back = &ep->failover->back;
    if (message->epoch != ep->info.epoch || ep->failover->stage != RDMUX_STEADY) {
        return; /* it crossed a move */
    }
    size_t ranked = rdmux_handshake_ranked(ep->failover->setup->handshake);
    if (message->count == 0 || message->count > ranked) {
        rdmux_ep_fail(ep, RDMUX_PROTOCOL, "control channel: BACK to the path of rank %llu of %zu",
                      (unsigned long long)message->count, ranked);
        return;
    }
    if (message->status != RDMUX_OK) {
        if (back->goal != 0) {
            stay(ep);
        }
        return;
    }
    if (back->goal == 0 &&
        (!may_go(ep) || ep->fault != RDMUX_OK || !may_ask_for(ep, message->count))) {
        say(ep, (size_t)message->count, RDMUX_AGAIN);
        return;
    }
    back->heard = true;
    if (back->goal == 0) {
        set_out(ep, (size_t)message->count);
    } else {
        back->goal = message->count < back->goal ? (uint32_t)message->count : back->goal;
        go_on(ep);
    }
}
