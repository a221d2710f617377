/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The two sides, the wire between them, and the faults. */
#include "tests/unit/support/handshake_support.h"
#include "api/object/peer_process.h"
#include "tests/unit/support/handshake_support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const provider_names[] = { "shm", "tcp", "roce", "ib" };

static enum rdmux_reason reaches(const uint8_t *ours, size_t ours_length, const uint8_t *theirs,
                                 size_t theirs_length, char *text)
{
    if (ours_length == theirs_length && memcmp(ours, theirs, ours_length) == 0) {
        return RDMUX_REASON_NONE;
    }
    (void)snprintf(text, RDMUX_TEXT_MAX, "another host");
    return RDMUX_REASON_OTHER_HOST;
}

void pair_offer(struct rdmux_offer *out, size_t count)
{
    *out = (struct rdmux_offer){
        .path_count = (uint32_t)count,
        .max_send = 8U << 20,
        .max_recv = 8U << 20,
        .liveness_ms = 10000,
        .data_sockets = 1,
        .path_timeout_ms = 2000,
        .setup_timeout_ms = 10000,
    };
    for (size_t i = 0; i < count; i++) {
        struct rdmux_offer_path *path = &out->paths[i];
        (void)snprintf(path->provider, sizeof(path->provider), "%s", provider_names[i]);
        (void)snprintf(path->path.device, sizeof(path->path.device), "%s%zu", provider_names[i], i);
        path->path.reason = RDMUX_REASON_USABLE;
        path->path.latency_ns = (uint32_t)(100 + 1000 * i);
        path->path.bandwidth = UINT64_C(10000000000);
        path->path.native = RDMUX_CAP_SEND | RDMUX_CAP_WRITE | RDMUX_CAP_READ;
        path->path.reach_length = 2;
        path->path.reach[0] = 'h';
        path->path.reach[1] = '1';
        path->reach = reaches;
    }
}

void pair_config(struct rdmux_handshake_config *out, enum rdmux_role role,
                 const struct rdmux_offer *offer)
{
    uint8_t seed = role == RDMUX_ROLE_ACCEPT ? 0xa0 : 0xc0;
    *out = (struct rdmux_handshake_config){
        .role = role,
        .hello_timeout_ms = 5000,
        .hello = { .epoch = 1 },
        .offer = offer,
    };
    memset(out->hello.process, seed, sizeof(out->hello.process));
    memset(out->hello.nonce, seed + 1, sizeof(out->hello.nonce));
    memset(out->proof_nonce, seed + 2, sizeof(out->proof_nonce));
}

uint64_t pair_random(uint64_t *state)
{
    *state += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t z = *state;
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static void *must_allocate(size_t size)
{
    void *memory = calloc(1, size);
    if (memory == NULL) {
        abort();
    }
    return memory;
}

static void complain(struct pair *pair, const char *text)
{
    if (pair->broken == NULL) {
        pair->broken = text;
    }
}

static const struct pair_fault *fault_of(const struct pair_side *side,
                                         enum rdmux_handshake_action_kind action, uint32_t attempt)
{
    for (size_t i = 0; i < side->fault_count; i++) {
        const struct pair_fault *fault = &side->faults[i];
        if (fault->action == action && (fault->attempt == 0 || fault->attempt == attempt)) {
            return fault;
        }
    }
    return NULL;
}

static void send_bytes(struct pair *pair, struct pair_side *to, const uint8_t *bytes, size_t size)
{
    if (to->wire_end + size > PAIR_WIRE_MAX) {
        complain(pair, "too much was sent");
        return;
    }
    memcpy(to->wire + to->wire_end, bytes, size);
    to->wire_end += size;
}

static void note_end(struct pair *pair, struct pair_side *side,
                     const struct rdmux_handshake_action *action)
{
    if (side->done || side->failed) {
        complain(pair, "two ends");
    }
    side->done = action->kind == RDMUX_ACTION_DONE;
    side->failed = !side->done;
    side->end = *action;
    (void)snprintf(side->end_text, sizeof(side->end_text), "%s", action->text);
    side->candidate_count = rdmux_handshake_candidates(side->handshake, side->candidates,
                                                       RDMUX_MATCH_MAX);
    if (side->failed && side->path_open) {
        complain(pair, "FAIL leaves a path open");
    }
}

static void note_action(struct pair *pair, struct pair_side *side,
                        const struct rdmux_handshake_action *action)
{
    switch (action->kind) {
    case RDMUX_ACTION_SEND:
        send_bytes(pair, side->peer, action->bytes, action->size);
        return;
    case RDMUX_ACTION_CHOOSE:
        side->choosing = true;
        return;
    case RDMUX_ACTION_CLOSE_PATH:
        if (!side->path_open) {
            complain(pair, "CLOSE_PATH without a path");
        }
        side->path_open = false;
        side->closed++;
        return;
    case RDMUX_ACTION_DONE:
    case RDMUX_ACTION_FAIL:
        note_end(pair, side, action);
        return;
    case RDMUX_ACTION_OPEN:
        if (side->path_open) {
            complain(pair, "OPEN with a path open");
        }
        side->path_open = true;
        side->open_attempt = action->attempt;
        side->opened++;
        break;
    case RDMUX_ACTION_NONE:
    case RDMUX_ACTION_CONNECT:
    case RDMUX_ACTION_WRITE_PROOF:
    case RDMUX_ACTION_CHECK_PROOF:
    case RDMUX_ACTION_MEASURE:
        side->measured += action->kind == RDMUX_ACTION_MEASURE;
        if (!side->path_open) {
            complain(pair, "an action on a path that is not open");
        }
        break;
    }
    if (side->pending_count == PAIR_PENDING_MAX) {
        complain(pair, "too many actions at once");
        return;
    }
    struct pair_pending *pending = &side->pending[side->pending_count++];
    pending->kind = action->kind;
    pending->attempt = action->attempt;
    pending->ours = action->ours;
    memcpy(pending->write_nonce, action->write_nonce, 16);
    memcpy(pending->check_nonce, action->check_nonce, 16);
}

static void drain(struct pair *pair, struct pair_side *side)
{
    for (;;) {
        struct rdmux_handshake_action action;
        rdmux_handshake_next(side->handshake, &action);
        if (action.kind == RDMUX_ACTION_NONE) {
            return;
        }
        if (side->done || side->failed) {
            complain(pair, "an action after the end");
        }
        note_action(pair, side, &action);
    }
}

void pair_drain(struct pair *pair)
{
    drain(pair, &pair->acceptor);
    drain(pair, &pair->connector);
}

void pair_start(struct pair *pair, const struct rdmux_handshake_config *acceptor,
                const struct rdmux_handshake_config *connector)
{
    *pair = (struct pair){ .now_ns = 1000 };
    struct pair_side *sides[] = { &pair->acceptor, &pair->connector };
    const struct rdmux_handshake_config *configs[] = { acceptor, connector };
    for (size_t i = 0; i < 2; i++) {
        sides[i]->name = i == 0 ? "acceptor" : "connector";
        sides[i]->peer = sides[1 - i];
        sides[i]->memory = must_allocate(rdmux_handshake_size());
        sides[i]->wire = must_allocate(PAIR_WIRE_MAX);
    }
    for (size_t i = 0; i < 2; i++) {
        if (rdmux_handshake_init(sides[i]->memory, configs[i], pair->now_ns,
                                 &sides[i]->handshake) != RDMUX_OK) {
            abort();
        }
        drain(pair, sides[i]);
    }
}

void pair_start_plain(struct pair *pair, size_t paths)
{
    static struct rdmux_offer offer;
    struct rdmux_handshake_config acceptor;
    struct rdmux_handshake_config connector;
    pair_offer(&offer, paths);
    pair_config(&acceptor, RDMUX_ROLE_ACCEPT, &offer);
    pair_config(&connector, RDMUX_ROLE_CONNECT, &offer);
    pair_start(pair, &acceptor, &connector);
}

void pair_finish(struct pair *pair)
{
    struct pair_side *sides[] = { &pair->acceptor, &pair->connector };
    for (size_t i = 0; i < 2; i++) {
        free(sides[i]->memory);
        free(sides[i]->wire);
    }
}

void pair_add_fault(struct pair_side *side, const struct pair_fault *fault)
{
    if (side->fault_count == PAIR_FAULTS_MAX) {
        abort();
    }
    side->faults[side->fault_count++] = *fault;
}

bool pair_deliver(struct pair *pair, struct pair_side *to)
{
    bool bad = false;
    const uint8_t *at = to->wire + to->wire_begin;
    size_t there = to->wire_end - to->wire_begin;
    size_t size = there == 0 ? 0 : rdmux_frame_total(at, there, to->received == 0, &bad);
    if (bad) {
        complain(pair, "a frame that is none");
    }
    if (size == 0 || size > there) {
        return false;
    }
    to->wire_begin += size;
    to->received++;
    rdmux_handshake_frame(to->handshake, at, size, pair->now_ns);
    drain(pair, to);
    return true;
}

void pair_lose(struct pair *pair)
{
    if (pair->lost) {
        return;
    }
    pair->lost = true;
    struct pair_side *sides[] = { &pair->acceptor, &pair->connector };
    for (size_t i = 0; i < 2; i++) {
        sides[i]->wire_begin = sides[i]->wire_end;
        rdmux_handshake_lost(sides[i]->handshake, RDMUX_PEER_GONE, "cut", pair->now_ns);
        drain(pair, sides[i]);
    }
}

size_t pair_result_bytes(const char *name, enum rdmux_handshake_action_kind kind, uint32_t attempt,
                         uint8_t out[PAIR_RESULT_MAX])
{
    int length = snprintf((char *)out, PAIR_RESULT_MAX, "%s %s %u", name,
                          kind == RDMUX_ACTION_OPEN ? "data" : "buffer", (unsigned)attempt);
    return length > 0 ? (size_t)length : 0;
}

/* Writes the proof of this side into the peer's proof buffer. */
static void write_proof(struct pair_side *side, const struct pair_pending *pending,
                        const struct pair_fault *fault)
{
    if (fault != NULL && fault->kind == PAIR_WRITES_NONE) {
        return;
    }
    rdmux_proof_fill(pending->write_nonce, side->peer->proof, PAIR_BUFFER_SIZE);
    if (fault != NULL && fault->kind == PAIR_CORRUPTS) {
        side->peer->proof[PAIR_BUFFER_SIZE - 1] ^= 1;
    }
}

static void give_result(struct pair *pair, struct pair_side *side,
                        const struct pair_pending *pending, const struct pair_fault *fault)
{
    uint8_t bytes[PAIR_RESULT_MAX];
    size_t size = 0;
    if (pending->kind == RDMUX_ACTION_MEASURE) {
        rdmux_handshake_measured(side->handshake, pending->attempt, &side->figures[pending->ours],
                                 pair->now_ns);
        return;
    }
    enum rdmux_status status = RDMUX_OK;
    if (pending->kind == RDMUX_ACTION_OPEN || pending->kind == RDMUX_ACTION_CONNECT) {
        size = pair_result_bytes(side->name, pending->kind, pending->attempt, bytes);
    } else if (pending->kind == RDMUX_ACTION_WRITE_PROOF) {
        write_proof(side, pending, fault);
    } else if (!rdmux_proof_matches(pending->check_nonce, side->proof, PAIR_BUFFER_SIZE)) {
        status = RDMUX_IO;
    }
    rdmux_handshake_result(side->handshake, pending->kind, pending->attempt, status,
                           RDMUX_REASON_NONE, status == RDMUX_OK ? NULL : "the bytes differ", bytes,
                           size, pair->now_ns);
}

bool pair_answer(struct pair *pair, struct pair_side *side, size_t index)
{
    if (index >= side->pending_count) {
        return false;
    }
    struct pair_pending pending = side->pending[index];
    side->pending_count--;
    memmove(&side->pending[index], &side->pending[index + 1],
            (side->pending_count - index) * sizeof(pending));
    const struct pair_fault *fault = fault_of(side, pending.kind, pending.attempt);
    if (fault != NULL && fault->kind == PAIR_HANGS) {
        return true;
    }
    if (fault != NULL && fault->kind == PAIR_LOSES) {
        pair_lose(pair);
        return true;
    }
    if (fault != NULL && fault->kind == PAIR_FAILS) {
        if (pending.kind == RDMUX_ACTION_OPEN && side->open_attempt == pending.attempt) {
            side->path_open = false; /* a failed open leaves no path behind */
        }
        rdmux_handshake_result(side->handshake, pending.kind, pending.attempt, fault->status,
                               fault->reason, fault->text, NULL, 0, pair->now_ns);
    } else {
        give_result(pair, side, &pending, fault);
        if (fault != NULL && fault->kind == PAIR_BREAKS) {
            side->break_due = true;
        }
    }
    drain(pair, side);
    return true;
}

bool pair_break(struct pair *pair, struct pair_side *side)
{
    if (!side->break_due) {
        return false;
    }
    side->break_due = false;
    if (side->path_open) {
        rdmux_handshake_path_failed(side->handshake, RDMUX_IO, "the path broke", pair->now_ns);
        drain(pair, side);
    }
    return true;
}

bool pair_wait(struct pair *pair)
{
    uint64_t a = rdmux_handshake_deadline(pair->acceptor.handshake);
    uint64_t c = rdmux_handshake_deadline(pair->connector.handshake);
    uint64_t next = a < c ? a : c;
    if (next == UINT64_MAX) {
        return false;
    }
    pair->now_ns = pair->now_ns > next ? pair->now_ns : next;
    rdmux_handshake_time(pair->acceptor.handshake, pair->now_ns);
    drain(pair, &pair->acceptor);
    rdmux_handshake_time(pair->connector.handshake, pair->now_ns);
    drain(pair, &pair->connector);
    return true;
}

/* A failed side closes the connection, as its driver does. The peer notices once it has read all
 * bytes sent before. */
static bool hang_up(struct pair *pair, struct pair_side *side)
{
    struct pair_side *peer = side->peer;
    if (!side->failed || peer->done || peer->failed || peer->wire_begin != peer->wire_end) {
        return false;
    }
    rdmux_handshake_lost(peer->handshake, RDMUX_PEER_GONE, "the peer hung up", pair->now_ns);
    drain(pair, peer);
    return true;
}

static bool move(struct pair *pair, uint64_t kind, uint64_t *random)
{
    struct pair_side *a = &pair->acceptor;
    struct pair_side *c = &pair->connector;
    switch (kind % 8) {
    case 0:
        return pair_break(pair, a);
    case 1:
        return pair_break(pair, c);
    case 2:
        return pair_deliver(pair, c);
    case 3:
        return pair_deliver(pair, a);
    case 4:
        return pair_answer(pair, a, random == NULL ? 0 : pair_random(random) % PAIR_PENDING_MAX);
    case 5:
        return pair_answer(pair, c, random == NULL ? 0 : pair_random(random) % PAIR_PENDING_MAX);
    case 6:
        return hang_up(pair, a);
    default:
        return hang_up(pair, c);
    }
}

static bool move_any(struct pair *pair, uint64_t *random)
{
    uint64_t first = random == NULL ? 0 : pair_random(random);
    for (uint64_t i = 0; i < 64; i++) {
        if (move(pair, (first + i) % 8, random)) {
            return true;
        }
    }
    return pair_answer(pair, &pair->acceptor, 0) || pair_answer(pair, &pair->connector, 0);
}

static bool ended(const struct pair_side *side)
{
    return side->done || side->failed;
}

bool pair_run(struct pair *pair, uint64_t *random)
{
    for (size_t moves = 0; moves < 10000; moves++) {
        if (move_any(pair, random)) {
            continue;
        }
        if (ended(&pair->acceptor) && ended(&pair->connector)) {
            return true;
        }
        if (!pair_wait(pair)) {
            return false;
        }
    }
    return false;
}

void pair_run_some(struct pair *pair, uint64_t *random, size_t moves)
{
    for (size_t i = 0; i < moves; i++) {
        if (!move_any(pair, random)) {
            return;
        }
    }
}

const struct rdmux_candidate *pair_candidate(const struct pair_side *side, uint32_t rank)
{
    static const struct rdmux_candidate none;
    for (size_t i = 0; i < side->candidate_count; i++) {
        if (side->candidates[i].rank == rank) {
            return &side->candidates[i];
        }
    }
    return &none;
}

const char *pair_contradiction(const struct pair *pair)
{
    const struct pair_side *a = &pair->acceptor;
    const struct pair_side *c = &pair->connector;
    if (pair->broken != NULL) {
        return pair->broken;
    }
    if (a->done && !c->done) {
        return "the acceptor is done, the connector is not";
    }
    if (a->done && (a->end.ours != c->end.theirs || a->end.theirs != c->end.ours)) {
        return "the sides chose different paths";
    }
    if (a->done && a->end.attempt != c->end.attempt) {
        return "the sides chose different attempts";
    }
    /* NO_PATH may never arrive, so it is right if only the acceptor gives the socket back. */
    if (c->failed && c->end.give_back && !(a->failed && a->end.give_back)) {
        return "the connector alone gives the socket back";
    }
    if (c->done && a->failed && a->end.give_back) {
        return "the acceptor gives back a socket in use";
    }
    return NULL;
}
