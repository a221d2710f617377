/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Replay: keeps requests in their ring until they are confirmed, so that requests the peer did not
 * receive can be given to another path. failover.h defines when a request is confirmed. The
 * provider knows nothing of it: a record that the provider finished is done, and is only not
 * returned before `confirmed` has passed it.
 */
#include "api/core/ep.h"
#include "api/core/mr.h"
#include "api/core/remote.h"
#include "api/data/bounce.h"
#include "api/data/post.h"
#include "api/data/receive.h"
#include "api/data/request.h"
#include "api/data/segments.h"
#include "api/data/srq.h"
#include "api/failover/failover.h"
#include "api/failover/failover_state.h"
#include "api/object/control_send.h"
#include "api/object/mr.h"
#include "api/progress/cq_owner.h"
#include "api/session/shutdown.h"

#include <string.h>

enum {
    QUIET_NS = 50 * 1000, /* quiet time after which RECEIVED and flushes are due */
    MOST_UNTOLD = 64,     /* receives or writes after which they are due at once */
};

static bool is_message(const struct rdmux_request *request)
{
    return request->op == RDMUX_OP_SEND || request->op == RDMUX_OP_SEND_IMM ||
           request->op == RDMUX_OP_WRITE_IMM;
}

static bool is_atomic(const struct rdmux_request *request)
{
    return request->op == RDMUX_OP_FETCH_ADD || request->op == RDMUX_OP_COMPARE_SWAP;
}

/* Returns whether the request is done and so proves that every earlier write is in the peer's
 * memory. */
static bool shows_placement(const struct rdmux_request *request)
{
    return request->done && request->status == RDMUX_OK &&
           (rdmux_op_reads(request->op) || (request->flags & RDMUX_PLACED) != 0);
}

static uint64_t larger_count(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* ------------------------------------------------------------------------------------- counting */

static void count_shared_receives(struct rdmux_ep *ep)
{
    struct rdmux_replay *replay = &ep->failover->replay;
    struct rdmux_request *at = ep->shared.counted == NULL ? ep->shared.done
                                                          : ep->shared.counted->next;
    for (; at != NULL; at = at->next) {
        replay->received += at->status == RDMUX_OK;
        rdmux_srq_mark_counted(ep, at);
    }
}

/* Counts completed receives before any of them is returned. */
static void count_receives(struct rdmux_ep *ep)
{
    struct rdmux_failover *failover = ep->failover;
    struct rdmux_replay *replay = &ep->failover->replay;
    uint64_t before = replay->received;
    if (ep->srq != NULL) {
        count_shared_receives(ep);
    }
    while (replay->seen != ep->recv.head) {
        const struct rdmux_request *request = rdmux_ring_record(&ep->recv, replay->seen);
        if (!request->done || request->status != RDMUX_OK) {
            break;
        }
        replay->seen++;
        replay->received++;
    }
    if (replay->received != before ||
        (replay->received != replay->told && failover->untold_ns == 0)) {
        failover->untold_ns = rdmux_now(ep->fabric);
    }
}

/* Moves `marked` past the last message that the peer has counted. */
static void mark_counted_messages(struct rdmux_ep *ep, uint64_t until)
{
    struct rdmux_replay *replay = &ep->failover->replay;
    while (replay->marked_number < replay->acked && replay->marked != until) {
        const struct rdmux_request *request = rdmux_ring_record(&ep->send, replay->marked++);
        /* a request with an unknown outcome was not given to this path */
        replay->marked_number += is_message(request) && request->status != RDMUX_OUTCOME_UNKNOWN;
    }
    replay->placed = larger_count(replay->placed, replay->marked);
}

bool rdmux_replay_counted(struct rdmux_ep *ep, uint64_t count)
{
    struct rdmux_replay *replay = &ep->failover->replay;
    if (count < replay->acked) {
        return false;
    }
    replay->acked = count;
    mark_counted_messages(ep, ep->send.next);
    return replay->marked_number == count;
}

static bool is_confirmed(const struct rdmux_replay *replay, const struct rdmux_request *request,
                         uint64_t at)
{
    if (!request->done || request->status != RDMUX_OK) {
        return request->done && request->status == RDMUX_OUTCOME_UNKNOWN;
    }
    return rdmux_op_reads(request->op) ||
           at < (is_message(request) ? replay->marked : replay->placed);
}

void rdmux_replay_confirm(struct rdmux_ep *ep)
{
    struct rdmux_failover *failover = ep->failover;
    struct rdmux_replay *replay = &ep->failover->replay;
    const struct rdmux_ring *ring = &ep->send;
    count_receives(ep);
    if (failover->stage != RDMUX_STEADY) {
        return;
    }
    if (replay->is_flushing && replay->flush.done) {
        replay->is_flushing = false;
        if (replay->flush.status == RDMUX_OK) {
            replay->placed = larger_count(replay->placed, replay->flush_until);
        }
    }
    for (; replay->looked != ring->next; replay->looked++) {
        const struct rdmux_request *request = rdmux_ring_record(ring, replay->looked);
        if (!request->done) {
            break;
        }
        if (shows_placement(request)) {
            replay->placed = larger_count(replay->placed, replay->looked + 1);
        }
    }
    while (ep->retention.confirmed != ring->next &&
           is_confirmed(replay, rdmux_ring_record(ring, ep->retention.confirmed),
                        ep->retention.confirmed)) {
        ep->retention.confirmed++;
    }
    /* Records before `confirmed` are returned and reused. */
    replay->marked = larger_count(replay->marked, ep->retention.confirmed);
    replay->looked = larger_count(replay->looked, ep->retention.confirmed);
    replay->placed = larger_count(replay->placed, ep->retention.confirmed);
    const struct rdmux_request *oldest = rdmux_ring_record(ring, ep->retention.confirmed);
    bool waits = ep->retention.confirmed != ring->next && oldest->done &&
                 oldest->op == RDMUX_OP_WRITE;
    if (!waits || replay->is_flushing) {
        failover->unplaced_ns = 0;
    } else if (failover->unplaced_ns == 0) {
        failover->unplaced_ns = rdmux_now(ep->fabric);
    }
}

bool rdmux_replay_awaits_count(const struct rdmux_ep *ep)
{
    const struct rdmux_request *oldest = rdmux_ring_record(&ep->send, ep->retention.confirmed);
    return ep->retention.confirmed != ep->send.next && oldest->done && is_message(oldest);
}

uint64_t rdmux_replay_received(const struct rdmux_ep *ep)
{
    return ep->failover->replay.received;
}

/* ------------------------------------------------------------------------------------ reporting */

void rdmux_replay_note_told(struct rdmux_ep *ep, uint64_t count)
{
    ep->failover->replay.told = count;
}

void rdmux_replay_tell(struct rdmux_ep *ep)
{
    struct rdmux_failover *failover = ep->failover;
    struct rdmux_replay *replay = &ep->failover->replay;
    if (failover->stage != RDMUX_STEADY || ep->channel == NULL) {
        return; /* MOVE or RESUME has told the count, or will */
    }
    count_receives(ep);
    failover->untold_ns = 0;
    if (replay->received != replay->told) {
        struct rdmux_message message = { .type = RDMUX_FRAME_RECEIVED,
                                         .epoch = ep->info.epoch,
                                         .count = replay->received };
        replay->told = replay->received;
        rdmux_ep_tell(ep, &message);
    }
}

static void post_flush(struct rdmux_ep *ep)
{
    struct rdmux_failover *failover = ep->failover;
    struct rdmux_replay *replay = &ep->failover->replay;
    if (ep->fault != RDMUX_OK || ep->phase != RDMUX_PHASE_READY) {
        return;
    }
    uint64_t until = ep->send.next;
    if (rdmux_ep_flush(ep, &replay->flush)) {
        replay->is_flushing = true;
        replay->flush_until = until;
        failover->unplaced_ns = 0;
    }
}

bool rdmux_replay_step(struct rdmux_ep *ep, bool quiet)
{
    struct rdmux_failover *failover = ep->failover;
    struct rdmux_replay *replay = &ep->failover->replay;
    if (failover->untold_ns == 0 && failover->unplaced_ns == 0) {
        return false;
    }
    uint64_t quiet_since = rdmux_now(ep->fabric) - QUIET_NS;
    if (failover->untold_ns != 0 && (quiet || failover->untold_ns <= quiet_since ||
                                     replay->received - replay->told >= MOST_UNTOLD)) {
        rdmux_replay_tell(ep);
    }
    if (failover->unplaced_ns != 0 && (quiet || failover->unplaced_ns <= quiet_since ||
                                       ep->send.next - ep->retention.confirmed >= MOST_UNTOLD)) {
        post_flush(ep);
    }
    return failover->untold_ns != 0 || failover->unplaced_ns != 0;
}

/* -------------------------------------------------------------------------------------- the cut */

static uint64_t request_length(const struct rdmux_request *request)
{
    uint64_t length = 0;
    for (uint16_t i = 0; i < request->sge_count; i++) {
        length += request->sges[i].length;
    }
    return length;
}

/* Makes scatter/gather lists name regions until a new path has registrations. */
static void forget_registrations(struct rdmux_ep *ep, struct rdmux_request *request)
{
    for (uint16_t i = 0; i < request->sge_count; i++) {
        struct rdmux_provider_sge *sge = &request->sges[i];
        if (sge->mr != NULL) {
            sge->mr = (struct rdmux_provider_mr *)(void *)rdmux_mr_of(ep->fabric, sge->mr);
        }
    }
}

static void find_registrations(struct rdmux_ep *ep, struct rdmux_request *request)
{
    for (uint16_t i = 0; i < request->sge_count; i++) {
        struct rdmux_provider_sge *sge = &request->sges[i];
        if (sge->mr != NULL) {
            const struct rdmux_mr *region = (const struct rdmux_mr *)(const void *)sge->mr;
            sge->mr = rdmux_mr_is_there(ep->fabric, region) ? rdmux_mr_with(region, ep->domain)
                                                            : NULL;
        }
    }
}

static void take_receives_back(struct rdmux_ep *ep)
{
    struct rdmux_replay *replay = &ep->failover->replay;
    struct rdmux_ring *ring = &ep->recv;
    for (uint64_t at = replay->seen; at != ring->head; at++) {
        struct rdmux_request *request = rdmux_ring_record(ring, at);
        rdmux_receive_begin(request);
        request->length = request_length(request);
        forget_registrations(ep, request);
    }
    ring->next = replay->seen;
    ring->offered = replay->seen;
    rdmux_srq_untake(ep);
}

void rdmux_replay_cut(struct rdmux_ep *ep)
{
    struct rdmux_replay *replay = &ep->failover->replay;
    struct rdmux_ring *ring = &ep->send;
    count_receives(ep);
    if (ep->segments != NULL && ep->segments->is_busy) {
        rdmux_segments_reap(ep);
    }
    bool in_part = ep->segments != NULL && ep->segments->given != 0;
    replay->given = ring->next + (in_part ? 1 : 0);
    rdmux_bounce_restore(ep);
    take_receives_back(ep);
    for (uint64_t at = ep->retention.confirmed; at != ring->head; at++) {
        forget_registrations(ep, rdmux_ring_record(ring, at));
    }
    replay->is_flushing = false;
    rdmux_ep_forget_shutdown_flush(ep);
}

void rdmux_replay_nothing_given(struct rdmux_ep *ep)
{
    ep->failover->replay.given = ep->send.next;
}

/* ----------------------------------------------------------------------- settling and repeating */

static void end_request(struct rdmux_request *request, enum rdmux_status status)
{
    request->done = 1;
    request->status = status;
}

/* Settles a request that was with the path. A read or atomic that is done has its result; any other
 * has none. */
static void settle_request(const struct rdmux_replay *replay, struct rdmux_request *request,
                           uint64_t at)
{
    if (request->status == RDMUX_OUTCOME_UNKNOWN) {
        return; /* set by an earlier move, whatever has been counted since */
    }
    bool reads = rdmux_op_reads(request->op);
    if (reads ? request->done && request->status == RDMUX_OK
              : at < (is_message(request) ? replay->marked : replay->placed)) {
        end_request(request, RDMUX_OK);
    } else if (is_atomic(request) || (request->flags & RDMUX_NO_REPLAY) != 0) {
        end_request(request, RDMUX_OUTCOME_UNKNOWN);
    } else {
        request->done = 0;
        request->status = RDMUX_OK;
    }
}

bool rdmux_replay_settle(struct rdmux_ep *ep, uint64_t count)
{
    struct rdmux_failover *failover = ep->failover;
    struct rdmux_replay *replay = &ep->failover->replay;
    struct rdmux_ring *ring = &ep->send;
    if (count < replay->acked) {
        return false;
    }
    replay->acked = count;
    mark_counted_messages(ep, replay->given);
    if (replay->marked_number != count) {
        return false;
    }
    for (uint64_t at = replay->looked; at != replay->given; at++) {
        if (shows_placement(rdmux_ring_record(ring, at))) {
            replay->placed = larger_count(replay->placed, at + 1);
        }
    }
    for (uint64_t at = ep->retention.confirmed; at != replay->given; at++) {
        settle_request(replay, rdmux_ring_record(ring, at), at);
    }
    ring->next = ep->retention.confirmed;
    while (ring->next != replay->given && rdmux_ring_record(ring, ring->next)->done) {
        ring->next++;
    }
    ep->retention.confirmed = ring->next;
    replay->marked = larger_count(replay->marked, ring->next);
    replay->placed = larger_count(replay->placed, ring->next);
    replay->looked = ring->next;
    replay->told = replay->received; /* MOVE has told the count */
    failover->untold_ns = 0;
    failover->unplaced_ns = 0;
    return true;
}

void rdmux_replay_resume(struct rdmux_ep *ep)
{
    struct rdmux_replay *replay = &ep->failover->replay;
    for (uint64_t at = replay->seen; at != ep->recv.head; at++) {
        find_registrations(ep, rdmux_ring_record(&ep->recv, at));
    }
    for (uint64_t at = ep->send.next; at != ep->send.head; at++) {
        find_registrations(ep, rdmux_ring_record(&ep->send, at));
    }
    rdmux_ep_expect_fences(ep); /* of repeated requests */
    rdmux_ep_offer_receives_again(ep, replay->seen);
}

void rdmux_replay_remote_cut(struct rdmux_ep *ep, const struct rdmux_provider_remote *from,
                             struct rdmux_provider_remote *to)
{
    for (uint64_t at = ep->retention.confirmed; at != ep->send.head; at++) {
        struct rdmux_request *request = rdmux_ring_record(&ep->send, at);
        if (request->remote == from) {
            request->remote = to;
        }
    }
}

/* Points the request at its import on this path. False: the import is not resolved yet. */
static bool find_request_remote(struct rdmux_request *request)
{
    if (request->remote == NULL) {
        return true;
    }
    struct rdmux_remote *remote = request->remote->remote;
    if (remote == NULL || request->remote != &remote->null_path) {
        return true;
    }
    if (remote->state == RDMUX_REMOTE_DEAD) {
        end_request(request, RDMUX_OUTCOME_UNKNOWN); /* its region was revoked meanwhile */
        rdmux_cq_pend(remote->ep->cq, remote->ep);
        return true;
    }
    if (remote->path == &remote->null_path) {
        return false;
    }
    request->remote = remote->path;
    return true;
}

uint64_t rdmux_replay_run(struct rdmux_ep *ep, uint64_t run)
{
    struct rdmux_ring *ring = &ep->send;
    if (rdmux_failback_holds(ep)) { /* but a request in progress completes */
        run = ep->segments != NULL && ep->segments->given != 0 ? 1 : 0;
    }
    for (uint64_t i = 0; i < run; i++) {
        struct rdmux_request *request = rdmux_ring_record(ring, ring->next + i);
        if (request->done || !find_request_remote(request) || request->done) {
            return i;
        }
    }
    return run;
}

void rdmux_replay_end(struct rdmux_ep *ep)
{
    struct rdmux_replay *replay = &ep->failover->replay;
    struct rdmux_ring *ring = &ep->send;
    for (uint64_t at = ep->retention.confirmed; at != ring->next; at++) {
        struct rdmux_request *request = rdmux_ring_record(ring, at);
        bool known = rdmux_op_reads(request->op)
                         ? request->done != 0
                         : at < (is_message(request) ? replay->marked : replay->placed);
        if (known && request->status == RDMUX_OK) {
            request->done = 1;
        } else if (request->status == RDMUX_OK) {
            request->done = 0;
        }
    }
    ep->retention.confirmed = ring->head;
}
