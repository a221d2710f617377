/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * The move of an endpoint from a path that failed to the next one.
 *
 * Each side quiesces the path until nothing of it can touch memory any more, closes it, and says MOVE with the count of messages
 * that came over it. Who has said and heard MOVE knows that both are cut: it settles its requests by the peer's count (replay.c). Then the
 * handshake of the set-up looks for the next path, with the offers and the ranking that there are; the acceptor says which pair is
 * tried. Meanwhile the endpoint's path is one that takes nothing (limbo.c): calls work, and requests wait.
 */
#include "api/failover.h"

#include "api/connection.h"
#include "api/keys.h"
#include "api/setup.h"
#include "api/split.h"
#include "negotiation/control_channel.h"

#include <netdb.h>
#include <stdio.h>
#include <string.h>

enum {
    NS_PER_MS = 1000000,
    /* A move that begins so soon after another continues it, and its limits. */
    HEELS_NS = 1000 * NS_PER_MS,
    /* Between the rounds in which every pair was tried: twice as long each time. */
    FIRST_PAUSE_NS = 50 * NS_PER_MS,
    PAUSE_DOUBLINGS = 4,
    /* For an attempt, where there are others: twice as long in each round, so that one that swallows everything does not keep the move
     * from the next for path_timeout_ms, and one that takes its time works in the end. */
    FIRST_ATTEMPT_MS = 200,
    ATTEMPT_DOUBLINGS = 16,
    CUT_STEP_NS = NS_PER_MS,
    LOOK_NS = 10 * 1000, /* between two looks at the control channel while RECEIVED is awaited */
    ATTEMPT_BITS = 16,   /* of an attempt's number; the epoch is above */
};

/* ------------------------------------------------------------------------------------------------- life */

enum rdmux_status rdmux_failover_create(struct rdmux_ep *ep)
{
    struct rdmux_failover *failover = rdmux_allocate(ep->fabric, sizeof(*failover));
    if (failover == NULL) {
        return rdmux_fail(RDMUX_NO_MEMORY, "endpoint: out of memory for failover");
    }
    const struct rdmux_ep_attr *attr = &ep->setup->attr;
    failover->attempts_max = attr->failover_attempts;
    failover->time_ns = attr->failover_time_ms == RDMUX_NEVER
                            ? UINT64_MAX
                            : (uint64_t)attr->failover_time_ms * NS_PER_MS;
    failover->hold_ns = (uint64_t)attr->failback_hold_ms * NS_PER_MS;
    failover->back.is_wanted = attr->failback != 0;
    failover->limbo.ops = &rdmux_limbo_ops;
    failover->limbo.ep = ep;
    failover->resume.ep = ep;
    ep->failover = failover;
    ep->work |= RDMUX_WORK_FAILOVER;
    return rdmux_resume_create(ep);
}

static void free_proof(struct rdmux_setup *setup)
{
    rdmux_mr_deregister(setup->proof);
    setup->proof = NULL;
}

void rdmux_failover_keep_setup(struct rdmux_ep *ep)
{
    struct rdmux_setup *setup = ep->setup;
    free_proof(setup);
    ep->failover->setup = setup;
    ep->setup = NULL;
    rdmux_list_remove(&ep->busy_link);
}

void rdmux_failover_destroy(struct rdmux_ep *ep)
{
    struct rdmux_failover *failover = ep->failover;
    if (failover == NULL) {
        return;
    }
    struct rdmux_setup *setup = failover->setup;
    rdmux_resume_leave(ep);
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

static void stay_busy(struct rdmux_ep *ep)
{
    if (rdmux_list_empty(&ep->busy_link)) {
        rdmux_list_append(&ep->cq->busy, &ep->busy_link);
    }
}

/* ------------------------------------------------------------------------------------------------- the cut */

static void say_move(struct rdmux_ep *ep)
{
    struct rdmux_failover *failover = ep->failover;
    struct rdmux_message message = { .type = RDMUX_FRAME_MOVE,
                                     .status = failover->cause,
                                     .epoch = ep->info.epoch + 1,
                                     .count = failover->received };
    snprintf(message.text, sizeof(message.text), "%s", failover->cause_text);
    rdmux_ep_tell(ep, &message);
}

static struct rdmux_handshake *handshake_of(const struct rdmux_ep *ep)
{
    const struct rdmux_setup *setup = ep->setup != NULL ? ep->setup : ep->failover->setup;
    return setup->handshake;
}

/* The peer has counted so many. False: it cannot have. */
static bool begin_epoch(struct rdmux_ep *ep, uint64_t count)
{
    struct rdmux_failover *failover = ep->failover;
    if (!rdmux_replay_settle(ep, count)) {
        rdmux_ep_fail(ep, RDMUX_PROTOCOL,
                      "control channel: the peer has counted more messages than were sent");
        return false;
    }
    ep->info.epoch++;
    failover->heard = false;
    return true;
}

/* The ranks in the order in which they are tried: the one to go back to, if that is what the move is for; those in good repute; the one
 * that was lost just now, but worked till then; those that were tried in vain within the hold-down time; those that are lost again and again. */
static void order_pairs(struct rdmux_ep *ep)
{
    struct rdmux_failover *failover = ep->failover;
    uint8_t *out = failover->order;
    size_t ranked = rdmux_handshake_ranked(ep->setup->handshake);
    size_t goal = failover->cause == RDMUX_OK && failover->back.goal <= ranked ? failover->back.goal
                                                                               : 0;
    size_t count = 0;
    if (goal != 0) {
        out[count++] = (uint8_t)goal;
    }
    const uint64_t now_ns = rdmux_now(ep->fabric);
    uint64_t latest_ns = 0;
    for (size_t rank = 1; rank <= ranked; rank++) {
        uint64_t lost_ns = failover->lost_ns[rank - 1][0];
        latest_ns = lost_ns > latest_ns ? lost_ns : latest_ns;
    }
    for (int round = 0; round < 4; round++) {
        for (size_t rank = 1; rank <= ranked; rank++) {
            const uint64_t vain_ns = failover->vain_ns[rank - 1];
            int repute = rdmux_failover_leaves_out(ep, rank)                             ? 3
                         : vain_ns != 0 && now_ns - vain_ns < failover->hold_ns          ? 2
                         : failover->lost_ns[rank - 1][0] == latest_ns && latest_ns != 0 ? 1
                                                                                         : 0;
            if (repute == round && rank != goal) {
                out[count++] = (uint8_t)rank;
            }
        }
    }
    failover->order_count = count;
}

/* Both sides are cut. */
static void search(struct rdmux_ep *ep)
{
    struct rdmux_failover *failover = ep->failover;
    if (!begin_epoch(ep, failover->heard_count)) {
        return;
    }
    failover->stage = RDMUX_SEARCHING;
    failover->tried = 0;
    failover->trying = 0;
    failover->next_try_ns = 0;
    ep->setup = failover->setup;
    failover->setup = NULL;
    order_pairs(ep);
    memset(&ep->setup->trial, 0, sizeof(ep->setup->trial));
    rdmux_handshake_move(ep->setup->handshake, (ep->info.epoch - 1) << ATTEMPT_BITS | 1,
                         failover->cause == RDMUX_OK ? RDMUX_REASON_SLOWER : RDMUX_REASON_PATH_LOST,
                         failover->left_text);
    rdmux_setup_run(ep);
}

/* Goes on with the cut until the path is quiet, then closes it and says so. */
static void cut(struct rdmux_ep *ep)
{
    struct rdmux_failover *failover = ep->failover;
    struct rdmux_provider_ep *path = failover->dying;
    struct rdmux_provider_counts counts;
    if (path->ops->ep_quiesce(path, &counts) == RDMUX_IN_PROGRESS) {
        return;
    }
    failover->dying = NULL;
    rdmux_replay_cut(ep);
    rdmux_settle_cut(ep);
    rdmux_remotes_cut(ep);
    rdmux_ep_close_path(ep, path);
    ep->domain = NULL;
    failover->stage = RDMUX_MEETING;
    say_move(ep);
    if (ep->phase != RDMUX_PHASE_READY) {
        return;
    }
    if (failover->heard) {
        search(ep);
    } else {
        rdmux_resume_await_move(ep);
    }
}

const char *rdmux_failover_bound_device(struct rdmux_ep *ep)
{
    char *bound = ep->failover->bound_device;
    if (bound[0] != '\0' && !rdmux_mr_has_importer(ep->fabric, ep->id, RDMUX_ACCESS_ATOMIC_DEVICE)) {
        bound[0] = '\0';
    }
    return bound;
}

bool rdmux_failover_leaves_out(const struct rdmux_ep *ep, size_t rank)
{
    const struct rdmux_failover *failover = ep->failover;
    uint64_t oldest = failover->lost_ns[rank - 1][RDMUX_LOSSES - 1];
    return oldest != 0 && rdmux_now(ep->fabric) - oldest < failover->hold_ns;
}

/* The path that is in use has failed. One that does so again and again is told of. */
static void note_loss(struct rdmux_ep *ep, uint64_t now_ns)
{
    struct rdmux_failover *failover = ep->failover;
    size_t rank = rdmux_handshake_current_rank(handshake_of(ep));
    if (rank == 0 || rank > RDMUX_MATCH_MAX) {
        return;
    }
    uint64_t *lost = failover->lost_ns[rank - 1];
    memmove(lost + 1, lost, (RDMUX_LOSSES - 1) * sizeof(*lost));
    lost[0] = now_ns;
    if (rdmux_failover_leaves_out(ep, rank)) {
        snprintf(failover->left_text, sizeof(failover->left_text),
                 "failed %d times within %llu ms, left out while another works: %.160s",
                 RDMUX_LOSSES, (unsigned long long)(failover->hold_ns / NS_PER_MS),
                 failover->cause_text);
        rdmux_log(ep->fabric, RDMUX_LOG_WARN, "endpoint %llu: %s %s %s", (unsigned long long)ep->id,
                  ep->info.provider, ep->info.device, failover->left_text);
    }
}

static void begin(struct rdmux_ep *ep, enum rdmux_status status, const char *text)
{
    struct rdmux_failover *failover = ep->failover;
    uint64_t now_ns = rdmux_now(ep->fabric);
    failover->cause = (uint32_t)status;
    snprintf(failover->cause_text, sizeof(failover->cause_text), "%s", text);
    snprintf(failover->left_text, sizeof(failover->left_text), "%s", text);
    if (status == RDMUX_OK) {
        rdmux_log(ep->fabric, RDMUX_LOG_INFO, "endpoint %llu: %s %s: %s",
                  (unsigned long long)ep->id, ep->info.provider, ep->info.device, text);
    } else {
        rdmux_log(ep->fabric, RDMUX_LOG_WARN, "endpoint %llu: %s %s failed with %s: %s; moving",
                  (unsigned long long)ep->id, ep->info.provider, ep->info.device,
                  rdmux_status_name(status), text);
        note_loss(ep, now_ns);
        rdmux_failback_give_up(ep);
    }
    if (failover->moved_ns == 0 || now_ns - failover->moved_ns > HEELS_NS) {
        failover->began_ns = now_ns;
        failover->attempts = 0;
    }
    rdmux_replay_confirm(ep);
    failover->stage = RDMUX_CUTTING;
    failover->dying = ep->path;
    ep->path = &failover->limbo;
    ep->ops = &rdmux_limbo_ops;
    ep->blocked = true;
    ep->fault = RDMUX_OK;
    ep->fault_deadline_ns = 0;
    ep->is_unexplained = false; /* a refusal, if it was one, shows when the import is resolved anew */
    ep->silence_asked = false;
    ep->awaited_revokes = 0;
    stay_busy(ep);
    cut(ep);
    rdmux_ep_timer(ep);
}

/* What a caller or a peer did wrong would go wrong on every path. */
static bool is_of_the_path(enum rdmux_status status)
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

bool rdmux_failover_takes_fault(struct rdmux_ep *ep)
{
    const struct rdmux_failover *failover = ep->failover;
    if (failover == NULL || ep->shutdown_sent || ep->end_received) {
        return false;
    }
    if (failover->stage == RDMUX_SEARCHING) {
        return true; /* the attempt's, see rdmux_trial_step() */
    }
    if (failover->stage != RDMUX_STEADY) {
        ep->fault = RDMUX_OK;
        return true;
    }
    if (!is_of_the_path((enum rdmux_status)ep->fault)) {
        return false;
    }
    rdmux_ep_control_ready(ep); /* if the peer has told its end, it is that */
    if (ep->phase == RDMUX_PHASE_READY && failover->stage == RDMUX_STEADY && ep->fault != RDMUX_OK) {
        begin(ep, (enum rdmux_status)ep->fault, ep->fault_text);
    }
    return true;
}

/* It may be the way there that is gone, and another address of the peer's answers. The channel is dialled again, for as long as that may
 * take; so a peer that is gone is the end after twice the liveness time. */
bool rdmux_failover_takes_silence(struct rdmux_ep *ep, const char *text)
{
    struct rdmux_failover *failover = ep->failover;
    if (failover == NULL || ep->phase != RDMUX_PHASE_READY) {
        return false;
    }
    if (failover->resume.deadline_ns != 0) {
        return true; /* until then */
    }
    rdmux_resume_elsewhere(ep);
    if (!rdmux_resume_begin(ep, text)) {
        return false;
    }
    if (ep->phase == RDMUX_PHASE_READY && failover->stage == RDMUX_STEADY) {
        begin(ep, RDMUX_PEER_GONE, text);
    }
    return true;
}

void rdmux_failover_return(struct rdmux_ep *ep, const struct rdmux_offer_path *to)
{
    char text[RDMUX_TEXT_MAX];
    snprintf(text, sizeof(text),
             "left for a better path that was lost and works again, %.40s %.60s", to->provider,
             to->path.device);
    begin(ep, RDMUX_OK, text);
}

bool rdmux_failover_ignores(const struct rdmux_ep *ep, const struct rdmux_provider_ep *path)
{
    return ep->failover != NULL && path == ep->failover->dying;
}

static void take_move(struct rdmux_ep *ep, const struct rdmux_message *message)
{
    struct rdmux_failover *failover = ep->failover;
    if (message->epoch != ep->info.epoch + 1 || failover->heard) {
        rdmux_ep_fail(ep, RDMUX_PROTOCOL, "control channel: MOVE to epoch %u in epoch %u",
                      message->epoch, ep->info.epoch);
        return;
    }
    if (ep->shutdown_sent) {
        return; /* behind its MOVE the peer reads END, and ends: ENDED is under way */
    }
    failover->heard = true;
    failover->heard_count = message->count;
    if (failover->stage == RDMUX_MEETING) {
        search(ep);
    } else if (failover->stage == RDMUX_STEADY) {
        char text[RDMUX_TEXT_MAX];
        snprintf(text, sizeof(text), "told by the peer: %.220s", message->text);
        begin(ep, (enum rdmux_status)message->status, text);
    }
}

static void take_count(struct rdmux_ep *ep, const struct rdmux_message *message)
{
    if (ep->failover->stage != RDMUX_STEADY || message->epoch < ep->info.epoch) {
        return; /* MOVE says more, or said it */
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
    if (ep->failover == NULL) {
        rdmux_ep_fail(ep, RDMUX_PROTOCOL, "control channel: frame of type 0x%02x without failover",
                      (unsigned)message->type);
    } else if (message->type == RDMUX_FRAME_MOVE) {
        take_move(ep, message);
    } else if (message->type == RDMUX_FRAME_BACK) {
        rdmux_failback_told(ep, message);
    } else {
        take_count(ep, message);
    }
}

/* ------------------------------------------------------------------------------------------------- the next path */

static void try_next(struct rdmux_ep *ep)
{
    struct rdmux_failover *failover = ep->failover;
    const uint64_t now_ns = rdmux_now(ep->fabric);
    const size_t count = failover->order_count;
    if (count == 0 || failover->attempts >= failover->attempts_max) {
        rdmux_handshake_give_up(ep->setup->handshake);
        return;
    }
    uint32_t round = failover->tried / (uint32_t)count;
    if (failover->next_try_ns == 0 && round != 0 && failover->tried % count == 0) {
        uint32_t doublings = round - 1 < PAUSE_DOUBLINGS ? round - 1 : PAUSE_DOUBLINGS;
        failover->next_try_ns = now_ns + ((uint64_t)FIRST_PAUSE_NS << doublings);
        rdmux_ep_timer(ep);
    }
    if (now_ns < failover->next_try_ns) {
        return;
    }
    failover->next_try_ns = 0;
    failover->attempts++;
    failover->trying = failover->order[failover->tried++ % count];
    uint32_t doublings = round < ATTEMPT_DOUBLINGS ? round : ATTEMPT_DOUBLINGS;
    uint64_t limit_ms = count == 1 ? UINT64_MAX : (uint64_t)FIRST_ATTEMPT_MS << doublings;
    rdmux_handshake_try(ep->setup->handshake, failover->trying, limit_ms, now_ns);
}

void rdmux_failover_choose(struct rdmux_ep *ep)
{
    struct rdmux_failover *failover = ep->failover;
    if (failover->trying != 0) {
        failover->vain_ns[failover->trying - 1] = rdmux_now(ep->fabric);
        failover->trying = 0;
    }
    try_next(ep);
}

void rdmux_failover_lost(struct rdmux_ep *ep, enum rdmux_status status, const char *text)
{
    const struct rdmux_failover *failover = ep->failover;
    if (status == RDMUX_NO_PATH) {
        rdmux_ep_fail(ep, RDMUX_PEER_GONE, "no path is left: %.100s; %u attempts failed",
                      failover->cause_text, failover->attempts);
        return;
    }
    if (status == RDMUX_TIMED_OUT) { /* the control channel's silence is its loss */
        rdmux_resume_elsewhere(ep);
        if (rdmux_resume_begin(ep, text)) {
            return;
        }
    }
    rdmux_ep_fail(ep,
                  status == RDMUX_PROTOCOL || status == RDMUX_NO_MEMORY ? status : RDMUX_PEER_GONE,
                  "moving to another path: %.220s", text);
}

void rdmux_failover_arrived(struct rdmux_ep *ep)
{
    struct rdmux_failover *failover = ep->failover;
    struct rdmux_setup *setup = ep->setup;
    struct rdmux_provider_ep *path = setup->trial.path;
    memcpy(ep->info.previous_provider, ep->info.provider, sizeof(ep->info.provider));
    memcpy(ep->info.previous_device, ep->info.device, sizeof(ep->info.device));
    enum rdmux_status status = rdmux_setup_take_path(ep);
    if (status != RDMUX_OK) {
        rdmux_ep_fail(ep, status, "moving to another path: %.220s", rdmux_last_error());
        return;
    }
    rdmux_joins_remove(ep->fabric, ep);
    free_proof(setup);
    failover->setup = setup;
    ep->setup = NULL;
    ep->path = path;
    ep->ops = path->ops;
    ep->domain = path->cq->domain;
    ep->blocked = false;
    failover->stage = RDMUX_STEADY;
    if (failover->trying != 0) {
        failover->vain_ns[failover->trying - 1] = 0;
        failover->trying = 0;
    }
    failover->moved_ns = rdmux_now(ep->fabric);
    failover->moved_to = ep->info.epoch;
    ep->info.previous_status = failover->cause;
    snprintf(ep->info.text, sizeof(ep->info.text), "moved from %.24s %.24s to %.24s %.24s: %.120s",
             ep->info.previous_provider, ep->info.previous_device, ep->info.provider,
             ep->info.device, failover->cause_text);
    ep->stats.moves++;
    ep->events |= RDMUX_EVENT_MOVED;
    rdmux_log(ep->fabric, RDMUX_LOG_INFO, "endpoint %llu: epoch %u: %s", (unsigned long long)ep->id,
              ep->info.epoch, ep->info.text);
    rdmux_failback_arrived(ep);
    rdmux_remotes_ask_again(ep);
    rdmux_replay_resume(ep);
    rdmux_cq_pend(ep->cq, ep);
    rdmux_ep_timer(ep);
}

/* ------------------------------------------------------------------------------------------------- the channel lost */

void rdmux_failover_channel_lost(struct rdmux_ep *ep)
{
    struct rdmux_failover *failover = ep->failover;
    failover->heard = false;
    rdmux_failback_give_up(ep);
    if (failover->stage ==
        RDMUX_SEARCHING) { /* the epoch has carried nothing, and the next is due */
        rdmux_trial_close(ep);
        free_proof(ep->setup);
        rdmux_joins_remove(ep->fabric, ep);
        failover->setup = ep->setup;
        ep->setup = NULL;
        failover->given = ep->send.next;
        failover->stage = RDMUX_MEETING;
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
        failover->given = ep->send.next;
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
    } else if (failover->stage == RDMUX_STEADY && !standing->steady) {
        begin(ep, RDMUX_PEER_GONE, "the peer lost the path together with the control channel");
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

/* ------------------------------------------------------------------------------------------------- going on */

static uint64_t time_limit(const struct rdmux_failover *failover)
{
    return failover->time_ns > UINT64_MAX - failover->began_ns
               ? UINT64_MAX
               : failover->began_ns + failover->time_ns;
}

static void step_search(struct rdmux_ep *ep)
{
    struct rdmux_failover *failover = ep->failover;
    uint64_t now_ns = rdmux_now(ep->fabric);
    if (failover->next_try_ns != 0 && now_ns >= failover->next_try_ns) {
        try_next(ep);
    }
    if (now_ns >= rdmux_handshake_deadline(ep->setup->handshake)) {
        rdmux_handshake_time(ep->setup->handshake, now_ns);
    }
    rdmux_ep_setup_step(ep);
}

/* A program that polls hears of the control channel when the service thread has been told of it, and that may take its time
 * where processors are busy. Whoever waits for RECEIVED looks by itself. */
static bool await_count(struct rdmux_ep *ep)
{
    struct rdmux_failover *failover = ep->failover;
    if (!rdmux_replay_awaits_count(ep)) {
        return false;
    }
    uint64_t now_ns = rdmux_now(ep->fabric);
    if (now_ns - failover->looked_at_ns >= LOOK_NS) {
        failover->looked_at_ns = now_ns;
        rdmux_ep_control_ready(ep);
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
    if (ep->phase != RDMUX_PHASE_READY || ep->failover->stage != RDMUX_STEADY) {
        return;
    }
    if (rdmux_replay_step(ep, quiet) || awaits || goes_back) {
        stay_busy(ep);
    } else if (ep->failover->stage == RDMUX_STEADY && ep->phase == RDMUX_PHASE_READY) {
        rdmux_list_remove(&ep->busy_link);
    }
}

void rdmux_failover_step(struct rdmux_ep *ep)
{
    struct rdmux_failover *failover = ep->failover;
    if (ep->phase == RDMUX_PHASE_READY) {
        rdmux_resume_step(ep);
    }
    if (ep->phase != RDMUX_PHASE_READY) {
        return;
    }
    if (failover->stage == RDMUX_STEADY) {
        step_steady(ep, false);
        return;
    }
    if (rdmux_now(ep->fabric) >= time_limit(failover)) {
        rdmux_ep_fail(ep, RDMUX_PEER_GONE, "no other path within failover_time_ms: %.160s",
                      failover->cause_text);
    } else if (failover->stage == RDMUX_CUTTING) {
        cut(ep);
    } else if (failover->stage == RDMUX_SEARCHING) {
        step_search(ep);
    }
}

bool rdmux_failover_quiet(struct rdmux_ep *ep)
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
    uint64_t resume = rdmux_resume_deadline(ep);
    if (failover->stage == RDMUX_STEADY) {
        uint64_t back = rdmux_failback_deadline(ep);
        return back < resume ? back : resume;
    }
    uint64_t deadline = time_limit(failover) < resume ? time_limit(failover) : resume;
    uint64_t next = UINT64_MAX;
    if (failover->stage == RDMUX_CUTTING) {
        next = rdmux_now(ep->fabric) + CUT_STEP_NS;
    } else if (failover->stage == RDMUX_SEARCHING) {
        next = failover->next_try_ns != 0 ? failover->next_try_ns
                                          : rdmux_handshake_deadline(ep->setup->handshake);
    }
    return next < deadline ? next : deadline;
}

void rdmux_failover_abandon(struct rdmux_ep *ep)
{
    struct rdmux_failover *failover = ep->failover;
    if (!rdmux_failover_is_moving(ep)) {
        return;
    }
    if (failover->stage == RDMUX_CUTTING && failover->dying != NULL) {
        ep->path = failover->dying;
        ep->ops = ep->path->ops;
    } else {
        ep->path = NULL;
    }
    failover->dying = NULL;
    failover->stage = RDMUX_STEADY;
    if (ep->setup != NULL) {
        rdmux_trial_close(ep);
        free_proof(ep->setup);
        rdmux_joins_remove(ep->fabric, ep);
        failover->setup = ep->setup;
        ep->setup = NULL;
    }
    rdmux_list_remove(&ep->busy_link);
}
