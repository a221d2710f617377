/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The lower half of the handshake: facts about its states, the rank of the current pair, the action
 * queue, timeouts, final states. */
#include "negotiation/handshake_internal.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    CONNECTOR_GRACE_MS = 1000, /* added to twice the acceptor's timeout */
};

/* clang-format off */
const struct handshake_facts rdmux_handshake_facts[STATE_COUNT] = {
    [A_HELLO] = { "waiting for HELLO", GREETING, RDMUX_STAGE_MATCH, "" },
    [A_OFFER] = { "waiting for OFFER", GREETING, RDMUX_STAGE_MATCH, "" },
    [A_OPEN] = { "opening", OPENING, RDMUX_STAGE_OPEN, "our side was not opened" },
    [A_READY] =
        { "waiting for READY", TRYING, RDMUX_STAGE_CONNECT, "the peer's side was not opened" },
    [A_CONNECT] = { "connecting", TRYING, RDMUX_STAGE_CONNECT, "neither side was connected" },
    [A_CONNECT_PEER_UP] =
        { "connecting, peer up", TRYING, RDMUX_STAGE_CONNECT, "our side was not connected" },
    [A_UP] = { "waiting for UP", TRYING, RDMUX_STAGE_CONNECT, "the peer's side was not connected" },
    [A_WRITTEN] =
        { "waiting for WRITTEN", TRYING, RDMUX_STAGE_PROOF, "the peer's pattern was not written" },
    [A_CHECK] = { "checking", TRYING, RDMUX_STAGE_PROOF, "the peer's pattern was not compared" },
    [A_WRITE] = { "writing", TRYING, RDMUX_STAGE_PROOF, "our pattern was not written" },
    [A_PROVED] =
        { "waiting for PROVED", TRYING, RDMUX_STAGE_PROOF, "the peer did not see our pattern" },
    [A_MEASURE] = { "measuring", TRYING, RDMUX_STAGE_PROOF, "the path was not measured" },
    [A_CONFIRM] =
        { "waiting for CONFIRM", COMMITTED, RDMUX_STAGE_COMMIT, "the peer did not confirm" },
    [A_FAILING] = { "waiting for FAILED", FAILING, RDMUX_STAGE_MATCH, "" },
    [A_CHOOSE] = { "choosing the next pair", WAITING, RDMUX_STAGE_MATCH, "" },
    [C_HELLO] = { "waiting for HELLO", GREETING, RDMUX_STAGE_MATCH, "" },
    [C_OFFER] = { "waiting for OFFER", GREETING, RDMUX_STAGE_MATCH, "" },
    [C_RANKING] = { "waiting for RANKING", GREETING, RDMUX_STAGE_MATCH, "" },
    [C_TRY] = { "waiting for TRY", WAITING, RDMUX_STAGE_CONNECT, "the peer's side was not opened" },
    [C_LAST] = { "waiting for NO_PATH", WAITING, RDMUX_STAGE_MATCH, "" },
    [C_OPEN] = { "opening", OPENING, RDMUX_STAGE_OPEN, "our side was not opened" },
    [C_CONNECT] = { "connecting", TRYING, RDMUX_STAGE_CONNECT, "neither side was connected" },
    [C_CONNECT_PEER_UP] =
        { "connecting, peer up", TRYING, RDMUX_STAGE_CONNECT, "our side was not connected" },
    [C_UP] = { "waiting for UP", TRYING, RDMUX_STAGE_CONNECT, "the peer's side was not connected" },
    [C_WRITE] = { "writing", TRYING, RDMUX_STAGE_PROOF, "our pattern was not written" },
    [C_WRITTEN] =
        { "waiting for WRITTEN", TRYING, RDMUX_STAGE_PROOF, "the peer's pattern was not written" },
    [C_CHECK] = { "checking", TRYING, RDMUX_STAGE_PROOF, "the peer's pattern was not compared" },
    [C_COMMIT] = { "waiting for COMMIT", TRYING, RDMUX_STAGE_COMMIT, "the peer did not commit" },
    [C_FAILING] = { "waiting for FAILED", FAILING, RDMUX_STAGE_MATCH, "" },
    [DONE] = { "done", ENDED, RDMUX_STAGE_COMMIT, "" },
    [OVER] = { "over", ENDED, RDMUX_STAGE_COMMIT, "" },
};
/* clang-format on */

void rdmux_handshake_write_state(struct rdmux_handshake *handshake, enum handshake_state state,
                                 bool begins_move)
{
    const enum handshake_phase phase = rdmux_handshake_facts[state].phase;
    assert(phase == ENDED || (state < C_HELLO) == is_acceptor(handshake));
    assert(phase != GREETING || phase_of(handshake) == GREETING);
    (void)phase;
    if (begins_move || phase_of(handshake) != ENDED) {
        handshake->state = state;
    }
}

size_t rdmux_handshake_current_rank(const struct rdmux_handshake *handshake)
{
    return handshake->move.is_on ? handshake->move.rank
                                 : handshake->attempt - handshake->attempts_before;
}

/* -------------------------------------------------------------------- queue */

void rdmux_handshake_attempt_nonce(const struct rdmux_handshake *handshake, uint8_t out[16])
{
    memcpy(out, handshake->proof_nonce, 16);
    /* Each attempt has another pattern: a buffer with an earlier attempt's pattern proves
     * nothing. */
    for (size_t i = 0; i < 4; i++) {
        out[12 + i] ^= (uint8_t)(handshake->attempt >> (24 - 8 * i));
    }
}

struct rdmux_handshake_action *rdmux_handshake_push(struct rdmux_handshake *handshake,
                                                    enum rdmux_handshake_action_kind kind)
{
    if (phase_of(handshake) == ENDED) {
        return NULL;
    }
    size_t room = kind == RDMUX_ACTION_FAIL ? HANDSHAKE_QUEUE_MAX : HANDSHAKE_QUEUE_MAX - 1;
    if (handshake->queue.count >= room) {
        handshake->queue.count = 0;
        rdmux_handshake_connection_over(handshake, RDMUX_NO_MEMORY, false,
                                        "the handshake's actions are not taken");
        return NULL;
    }
    size_t at = (handshake->queue.first + handshake->queue.count) % HANDSHAKE_QUEUE_MAX;
    handshake->queue.count++;
    struct rdmux_handshake_action *action = &handshake->queue.actions[at];
    *action = (struct rdmux_handshake_action){
        .kind = kind,
        .ours = RDMUX_MATCH_NO_PATH,
        .theirs = RDMUX_MATCH_NO_PATH,
        .attempt = handshake->attempt,
        .text = "",
    };
    const struct rdmux_match *match = current_match(handshake);
    if (match != NULL) {
        action->ours = match->ours;
        action->theirs = match->theirs;
    }
    rdmux_handshake_attempt_nonce(handshake, action->write_nonce);
    memcpy(action->check_nonce, handshake->check_nonce, sizeof(action->check_nonce));
    return action;
}

uint8_t *rdmux_handshake_arena_reserve(struct rdmux_handshake *handshake, size_t size)
{
    if (size > HANDSHAKE_ARENA_SIZE - handshake->queue.arena_used) {
        handshake->queue.count = 0;
        rdmux_handshake_connection_over(handshake, RDMUX_NO_MEMORY, false,
                                        "the handshake's actions are not taken");
        return NULL;
    }
    return handshake->queue.arena + handshake->queue.arena_used;
}

void rdmux_handshake_arena_keep(struct rdmux_handshake *handshake, size_t size)
{
    handshake->queue.arena_used += size;
}

void rdmux_handshake_arena_reuse(struct rdmux_handshake *handshake)
{
    if (handshake->queue.count == 0) {
        handshake->queue.arena_used = 0;
    }
}

void rdmux_handshake_queue_clear(struct rdmux_handshake *handshake)
{
    handshake->queue.count = 0;
    rdmux_handshake_arena_reuse(handshake);
}

/* Copies the bytes, which outlive their source. */
void rdmux_handshake_push_bytes(struct rdmux_handshake *handshake,
                                enum rdmux_handshake_action_kind kind, const uint8_t *bytes,
                                size_t size)
{
    uint8_t *copy = rdmux_handshake_arena_reserve(handshake, size);
    if (copy == NULL) {
        return;
    }
    struct rdmux_handshake_action *action = rdmux_handshake_push(handshake, kind);
    if (action == NULL) {
        return;
    }
    if (size > 0) {
        memcpy(copy, bytes, size);
    }
    rdmux_handshake_arena_keep(handshake, size);
    action->bytes = copy;
    action->size = size;
}

void rdmux_handshake_send_frame(struct rdmux_handshake *handshake, struct rdmux_attempt_frame *frame)
{
    uint8_t bytes[RDMUX_ATTEMPT_FRAME_MAX];
    frame->attempt = handshake->attempt;
    rdmux_handshake_push_bytes(handshake, RDMUX_ACTION_SEND, bytes,
                               rdmux_attempt_frame_encode(frame, bytes));
}

void rdmux_handshake_next(struct rdmux_handshake *handshake, struct rdmux_handshake_action *out)
{
    if (handshake->queue.count == 0) {
        *out = (struct rdmux_handshake_action){ .kind = RDMUX_ACTION_NONE, .text = "" };
        return;
    }
    *out = handshake->queue.actions[handshake->queue.first];
    handshake->queue.first = (handshake->queue.first + 1) % HANDSHAKE_QUEUE_MAX;
    handshake->queue.count--;
}

/* -------------------------------------------------------------------- time */

uint64_t rdmux_handshake_time_after(uint64_t now_ns, uint64_t milliseconds)
{
    const uint64_t ns_per_ms = UINT64_C(1000000);
    uint64_t wait_ns = milliseconds < UINT64_MAX / ns_per_ms ? milliseconds * ns_per_ms
                                                             : UINT64_MAX;
    return wait_ns > UINT64_MAX - 1 - now_ns ? UINT64_MAX - 1 : now_ns + wait_ns;
}

/* The acceptor's timeout decides. The connector's is longer and only ends what the acceptor cannot
 * end. */
uint64_t rdmux_handshake_patience_ms(const struct rdmux_handshake *handshake)
{
    uint64_t path_timeout_ms = handshake->granted.path_timeout_ms;
    return is_acceptor(handshake) ? path_timeout_ms : 2 * path_timeout_ms + CONNECTOR_GRACE_MS;
}

void rdmux_handshake_start_clock(struct rdmux_handshake *handshake, uint64_t now_ns)
{
    handshake->deadline_ns = handshake->granted.path_timeout_ms == RDMUX_NEVER
                                 ? UINT64_MAX
                                 : rdmux_handshake_time_after(
                                       now_ns, rdmux_handshake_patience_ms(handshake));
}

/* -------------------------------------------------------------------- ends */

void rdmux_match_record(struct rdmux_match *match, enum rdmux_stage stage, uint32_t reason,
                        const char *text)
{
    if (match == NULL) {
        return;
    }
    match->stage = stage;
    match->reason = reason;
    size_t length = strnlen(text, sizeof(match->text) - 1);
    memcpy(match->text, text, length);
    match->text[length] = '\0';
    match->hint[0] = '\0';
}

/* Grants what the current pair takes of the messages that both sides want. */
static void grant_messages(struct rdmux_handshake *handshake)
{
    const struct rdmux_match *match = current_match(handshake);
    const struct rdmux_message_limits messages = rdmux_match_messages(
        &handshake->offer, &handshake->peer_offer,
        rdmux_match_limit(&handshake->offer, &handshake->peer_offer, match));
    handshake->granted.max_send = messages.send;
    handshake->granted.max_recv = messages.receive;
}

bool rdmux_handshake_takes_granted(const struct rdmux_handshake *handshake, size_t rank)
{
    const struct rdmux_message_limits granted = { .send = handshake->granted.max_send,
                                                  .receive = handshake->granted.max_recv };
    return rdmux_match_takes(
        rdmux_match_limit(&handshake->offer, &handshake->peer_offer, &handshake->matches[rank - 1]),
        granted);
}

void rdmux_handshake_open_path(struct rdmux_handshake *handshake, const uint8_t *data, size_t size)
{
    current_match(handshake)->stage = RDMUX_STAGE_OPEN;
    if (!handshake->move.is_on) {
        grant_messages(handshake);
    }
    rdmux_handshake_push_bytes(handshake, RDMUX_ACTION_OPEN, data, size);
    handshake->is_path_ours = true;
}

void rdmux_handshake_path_closed(struct rdmux_handshake *handshake)
{
    handshake->is_path_ours = false;
}

void rdmux_handshake_close_path(struct rdmux_handshake *handshake)
{
    if (handshake->is_path_ours) {
        (void)rdmux_handshake_push(handshake, RDMUX_ACTION_CLOSE_PATH);
        rdmux_handshake_path_closed(handshake);
    }
}

void rdmux_handshake_connection_over(struct rdmux_handshake *handshake, enum rdmux_status status,
                                     bool give_back, const char *format, ...)
{
    if (phase_of(handshake) == ENDED) {
        return;
    }
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(handshake->queue.fail_text, sizeof(handshake->queue.fail_text), format,
                    arguments);
    va_end(arguments);

    if (handshake->is_path_ours) {
        rdmux_match_record(current_match(handshake), rdmux_handshake_facts[handshake->state].stage,
                           RDMUX_REASON_PEER_FAILED, handshake->queue.fail_text);
    }
    rdmux_handshake_close_path(handshake);
    struct rdmux_handshake_action *action = rdmux_handshake_push(handshake, RDMUX_ACTION_FAIL);
    if (action != NULL) {
        action->status = status;
        action->text = handshake->queue.fail_text;
        action->give_back = give_back;
    }
    handshake->deadline_ns = UINT64_MAX;
    set_state(handshake, OVER);
}

void rdmux_handshake_connection_done(struct rdmux_handshake *handshake)
{
    (void)rdmux_handshake_push(handshake, RDMUX_ACTION_DONE);
    handshake->deadline_ns = UINT64_MAX;
    set_state(handshake, DONE);
}

void rdmux_handshake_no_path(struct rdmux_handshake *handshake)
{
    rdmux_handshake_connection_over(handshake, RDMUX_NO_PATH, true,
                                    "no path: %zu of %zu candidates could be tried, none worked",
                                    handshake->ranked_count, handshake->match_count);
}
