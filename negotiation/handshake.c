/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The negotiation of one connection. Frames, results and the time become events. A table gives the
 * reaction to each event in each state. Actions wait in a queue for rdmux_handshake_next().
 *
 * Attempt n tries the pair of rank n, until a second RANKING or a failover. An attempt is over for
 * a side when that side has both sent and received FAILED(n), so nothing of attempt n is in flight
 * when n + 1 begins. docs/NEGOTIATION.md has the reasons. */
#include "negotiation/handshake.h"

#include "negotiation/handshake_internal.h"
#include "negotiation/message.h"

#include <stdio.h>
#include <string.h>

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

enum { HELLO_FIRST_BYTE = 0x40 }; /* frame types are below */

/* -------------------------------------------------------------------- attempts */

/* Starts the attempt of the next pair, or ends if there is none. */
static void begin_attempt(struct rdmux_handshake *handshake, uint64_t now_ns)
{
    handshake->attempt++;
    handshake->peer_path.data_size = 0;
    handshake->peer_path.description_size = 0;
    memset(handshake->check_nonce, 0, sizeof(handshake->check_nonce));
    if (rdmux_handshake_is_moving(handshake)) {
        rdmux_handshake_next_move(handshake);
        return;
    }
    rdmux_handshake_start_clock(handshake, now_ns);

    rdmux_handshake_end_measuring(handshake);
    struct rdmux_match *match = current_match(handshake);
    if (match == NULL && is_acceptor(handshake)) {
        struct rdmux_attempt_frame frame = { .type = RDMUX_FRAME_NO_PATH };
        rdmux_handshake_send_frame(handshake, &frame);
        rdmux_handshake_no_path(handshake);
    } else if (match == NULL) {
        set_state(handshake, C_LAST);
    } else if (is_acceptor(handshake)) {
        match->reason = RDMUX_REASON_NONE;
        rdmux_handshake_open_path(handshake, NULL, 0);
        set_state(handshake, A_OPEN);
    } else {
        match->reason = RDMUX_REASON_NONE;
        set_state(handshake, C_TRY);
    }
}

static void send_failed(struct rdmux_handshake *handshake, enum rdmux_stage stage,
                        enum rdmux_reason reason, enum rdmux_status status, const char *text)
{
    struct rdmux_attempt_frame frame = {
        .type = RDMUX_FRAME_FAILED,
        .stage = (uint16_t)stage,
        .reason = (uint16_t)reason,
        .status = (uint16_t)status,
    };
    (void)snprintf(frame.text, sizeof(frame.text), "%s", text);
    rdmux_handshake_send_frame(handshake, &frame);
}

/* Fails the attempt on this side. */
static void attempt_failed(struct rdmux_handshake *handshake, enum rdmux_status status,
                           enum rdmux_reason reason, const char *text, uint64_t now_ns)
{
    enum rdmux_stage stage = rdmux_handshake_facts[handshake->state].stage;
    rdmux_match_record(current_match(handshake), stage, reason, text);
    handshake->attempt_status = status;
    rdmux_handshake_close_path(handshake);
    send_failed(handshake, stage, reason, status, text);
    rdmux_handshake_start_clock(handshake, now_ns);
    set_state(handshake, is_acceptor(handshake) ? A_FAILING : C_FAILING);
}

static enum rdmux_reason reason_by_stage(enum rdmux_stage stage, enum rdmux_status status)
{
    bool late = status == RDMUX_TIMED_OUT;
    if (stage == RDMUX_STAGE_OPEN) {
        return RDMUX_REASON_OPEN_FAILED;
    }
    if (stage == RDMUX_STAGE_PROOF) {
        return late ? RDMUX_REASON_PROOF_TIMED_OUT : RDMUX_REASON_PROOF_FAILED;
    }
    return late ? RDMUX_REASON_CONNECT_TIMED_OUT : RDMUX_REASON_CONNECT_FAILED;
}

/* Returns a reason that applies to both sides as it is; all others become PEER_FAILED, with the
 * peer's text. */
static enum rdmux_reason reason_of_peer(uint32_t reason)
{
    switch (reason) {
    case RDMUX_REASON_CONNECT_TIMED_OUT:
    case RDMUX_REASON_PROOF_FAILED:
    case RDMUX_REASON_PROOF_TIMED_OUT:
    case RDMUX_REASON_SLOWER: /* measured, and given up */
        return (enum rdmux_reason)reason;
    default:
        return RDMUX_REASON_PEER_FAILED;
    }
}

static void record_peer_failure(struct rdmux_handshake *handshake,
                                const struct rdmux_attempt_frame *frame)
{
    rdmux_match_record(
        current_match(handshake), (enum rdmux_stage)frame->stage, reason_of_peer(frame->reason),
        frame->text[0] != '\0' ? frame->text : "the peer gave the path up without a reason");
}

/* -------------------------------------------------------------------- ranking */

/* Adds the wishes that the pair does not grant in full. */
static void explain_wishes(const struct rdmux_handshake *handshake, const struct rdmux_match *match,
                           char text[RDMUX_TEXT_MAX])
{
    const struct rdmux_offer *ours = &handshake->offer;
    const struct rdmux_offer *theirs = &handshake->peer_offer;
    rdmux_match_explain_wishes(is_acceptor(handshake) ? ours : theirs,
                               is_acceptor(handshake) ? theirs : ours,
                               rdmux_match_limit(ours, theirs, match), text);
}

/* Continues after the ranking. */
static void go_on_after_ranking(struct rdmux_handshake *handshake, uint64_t now_ns)
{
    const struct rdmux_hello *connectors = is_acceptor(handshake) ? &handshake->peer_hello
                                                                  : &handshake->hello;
    if ((connectors->flags & RDMUX_HELLO_EXPLAIN_ONLY) == 0) {
        begin_attempt(handshake, now_ns);
    } else if (handshake->ranked_count == 0) {
        rdmux_handshake_no_path(handshake);
    } else {
        char text[RDMUX_TEXT_MAX] = "would be tried first";
        explain_wishes(handshake, &handshake->matches[0], text);
        rdmux_match_record(&handshake->matches[0], RDMUX_STAGE_MATCH, RDMUX_REASON_CHOSEN, text);
        rdmux_handshake_connection_done(handshake);
    }
}

static void take_offer_and_rank(struct rdmux_handshake *handshake,
                                const struct handshake_happening *what)
{
    if (!rdmux_handshake_take_connectors_offer(handshake, what)) {
        return;
    }
    rdmux_handshake_plan_measuring(handshake);
    if (rdmux_handshake_send_ranking(handshake)) {
        go_on_after_ranking(handshake, what->now_ns);
    }
}

static void take_ranking(struct rdmux_handshake *handshake, const struct handshake_happening *what)
{
    if (rdmux_handshake_read_ranking(handshake, what)) {
        go_on_after_ranking(handshake, what->now_ns);
    }
}

/* -------------------------------------------------------------------- one attempt */

static void store_peer_data(struct rdmux_handshake *handshake,
                            const struct rdmux_attempt_frame *frame)
{
    memcpy(handshake->peer_path.data, frame->bytes, frame->size);
    handshake->peer_path.data_size = frame->size;
}

static void send_attempt_bytes(struct rdmux_handshake *handshake, enum rdmux_frame_type type,
                               const struct handshake_happening *what)
{
    struct rdmux_attempt_frame frame = { .type = type, .size = (uint16_t)what->size };
    const struct rdmux_match *match = current_match(handshake);
    frame.acceptor_path = match->ours; /* TRY alone has these; only the acceptor sends it */
    frame.connector_path = match->theirs;
    if (what->size > 0) {
        memcpy(frame.bytes, what->bytes, what->size);
    }
    rdmux_handshake_send_frame(handshake, &frame);
}

static void connect_path(struct rdmux_handshake *handshake)
{
    rdmux_handshake_push_bytes(handshake, RDMUX_ACTION_CONNECT, handshake->peer_path.data,
                               handshake->peer_path.data_size);
}

static void send_try(struct rdmux_handshake *handshake, const struct handshake_happening *what)
{
    send_attempt_bytes(handshake, RDMUX_FRAME_TRY, what);
}

static void take_try(struct rdmux_handshake *handshake, const struct handshake_happening *what)
{
    if (rdmux_handshake_is_moving(handshake)) {
        if (!rdmux_handshake_take_pair(handshake, what->frame)) {
            return;
        }
        rdmux_handshake_start_clock(handshake, what->now_ns);
    }
    struct rdmux_match *match = current_match(handshake);
    if (what->frame->connector_path != match->ours || what->frame->acceptor_path != match->theirs) {
        rdmux_handshake_connection_over(handshake, RDMUX_PROTOCOL, false,
                                        "the peer tries another pair than the one of rank %u",
                                        (unsigned)handshake->attempt);
        return;
    }
    store_peer_data(handshake, what->frame);
    rdmux_handshake_open_path(handshake, handshake->peer_path.data, handshake->peer_path.data_size);
}

/* The provider's contract: the connector's first ep_connect comes before the acceptor's, which
 * follows READY. A path may share a socket of the program with this channel; then its bytes must
 * come after READY, so READY goes first. */
static void connect_and_send_ready(struct rdmux_handshake *handshake,
                                   const struct handshake_happening *what)
{
    bool shares = (handshake->hello.flags & RDMUX_HELLO_ADOPTED) != 0;
    if (!shares) {
        connect_path(handshake);
    }
    send_attempt_bytes(handshake, RDMUX_FRAME_READY, what);
    if (shares) {
        connect_path(handshake);
    }
}

static void take_ready(struct rdmux_handshake *handshake, const struct handshake_happening *what)
{
    store_peer_data(handshake, what->frame);
    connect_path(handshake);
}

static void say_up(struct rdmux_handshake *handshake, const struct handshake_happening *what)
{
    send_attempt_bytes(handshake, RDMUX_FRAME_UP, what);
}

static void take_up(struct rdmux_handshake *handshake, const struct handshake_happening *what)
{
    memcpy(handshake->peer_path.description, what->frame->bytes, what->frame->size);
    handshake->peer_path.description_size = what->frame->size;
}

static void write_pattern(struct rdmux_handshake *handshake, const struct handshake_happening *what)
{
    (void)what;
    rdmux_handshake_push_bytes(handshake, RDMUX_ACTION_WRITE_PROOF,
                               handshake->peer_path.description,
                               handshake->peer_path.description_size);
}

static void take_up_and_write_pattern(struct rdmux_handshake *handshake,
                                      const struct handshake_happening *what)
{
    take_up(handshake, what);
    write_pattern(handshake, what);
}

static void say_up_and_write_pattern(struct rdmux_handshake *handshake,
                                     const struct handshake_happening *what)
{
    say_up(handshake, what);
    write_pattern(handshake, what);
}

static void say_written(struct rdmux_handshake *handshake, const struct handshake_happening *what)
{
    (void)what;
    struct rdmux_attempt_frame frame = { .type = RDMUX_FRAME_WRITTEN };
    rdmux_handshake_attempt_nonce(handshake, frame.nonce);
    rdmux_handshake_send_frame(handshake, &frame);
}

static void take_written(struct rdmux_handshake *handshake, const struct handshake_happening *what)
{
    memcpy(handshake->check_nonce, what->frame->nonce, sizeof(handshake->check_nonce));
    rdmux_handshake_push_bytes(handshake, RDMUX_ACTION_CHECK_PROOF, NULL, 0);
}

static void say_proved(struct rdmux_handshake *handshake, const struct handshake_happening *what)
{
    (void)what;
    struct rdmux_attempt_frame frame = { .type = RDMUX_FRAME_PROVED };
    rdmux_handshake_send_frame(handshake, &frame);
}

static void choose_path(struct rdmux_handshake *handshake)
{
    struct rdmux_match *match = current_match(handshake);
    char text[RDMUX_TEXT_MAX];
    bool one_sided = !rdmux_handshake_has_failover(handshake) &&
                     ((handshake->hello.flags | handshake->peer_hello.flags) &
                      RDMUX_HELLO_FAILOVER) != 0;
    if (rdmux_handshake_is_moving(handshake)) {
        (void)snprintf(text, sizeof(text),
                       "works in both directions, and took over when another failed");
    } else {
        (void)snprintf(text, sizeof(text), "costs least (%llu ns)%s and works in both directions%s",
                       (unsigned long long)match->cost_ns,
                       handshake->attempt == handshake->attempts_before + 1
                           ? ""
                           : " of those that could be connected",
                       one_sided ? "; no failover, as only one side asks for it" : "");
    }
    explain_wishes(handshake, match, text);
    rdmux_match_record(match, RDMUX_STAGE_COMMIT, RDMUX_REASON_CHOSEN, text);
    rdmux_handshake_connection_done(handshake);
}

static void send_commit(struct rdmux_handshake *handshake, const struct handshake_happening *what)
{
    rdmux_handshake_send_hash(handshake, RDMUX_FRAME_COMMIT);
    rdmux_handshake_start_clock(handshake, what->now_ns);
}

/* The path works. Commits to it, unless this attempt only measures it. */
static void take_proved(struct rdmux_handshake *handshake, const struct handshake_happening *what)
{
    if (rdmux_handshake_is_measuring(handshake)) {
        set_state(handshake, A_MEASURE);
        rdmux_handshake_start_measuring(handshake, what);
    } else {
        send_commit(handshake, what);
    }
}

/* The path was measured, or the measurement exceeded its budget. */
static void give_up_measured_path(struct rdmux_handshake *handshake,
                                  const struct handshake_happening *what)
{
    char text[RDMUX_TEXT_MAX];
    rdmux_handshake_record_figures(handshake, what, text);
    attempt_failed(handshake, RDMUX_OK, RDMUX_REASON_SLOWER, text, what->now_ns);
}

static void take_commit(struct rdmux_handshake *handshake, const struct handshake_happening *what)
{
    if (!rdmux_handshake_hash_matches(handshake, what->frame)) {
        rdmux_handshake_connection_over(handshake, RDMUX_PROTOCOL, false,
                                        "the peer saw other offers than were sent (COMMIT)");
        return;
    }
    rdmux_handshake_send_hash(handshake, RDMUX_FRAME_CONFIRM);
    choose_path(handshake);
}

static void take_confirm(struct rdmux_handshake *handshake, const struct handshake_happening *what)
{
    if (!rdmux_handshake_hash_matches(handshake, what->frame)) {
        rdmux_handshake_connection_over(handshake, RDMUX_PROTOCOL, false,
                                        "the peer saw other offers than were sent (CONFIRM)");
        return;
    }
    choose_path(handshake);
}

/* -------------------------------------------------------------------- failures */

/* Fails the connection: the event is not allowed in this state. */
static void unexpected_event(struct rdmux_handshake *handshake,
                             const struct handshake_happening *what)
{
    if (what->event >= OPENED) {
        rdmux_handshake_connection_over(handshake, RDMUX_INVALID, false,
                                        "an event out of order while %s",
                                        rdmux_handshake_facts[handshake->state].name);
        return;
    }
    rdmux_handshake_connection_over(
        handshake, RDMUX_PROTOCOL, false, "the peer sent a frame of type 0x%02x while we were %s",
        what->size > 0 ? what->bytes[0] : 0U, rdmux_handshake_facts[handshake->state].name);
}

static void ignore_event(struct rdmux_handshake *handshake, const struct handshake_happening *what)
{
    (void)handshake;
    (void)what;
}

static void channel_lost(struct rdmux_handshake *handshake, const struct handshake_happening *what)
{
    rdmux_handshake_connection_over(handshake, what->status, false, "%s",
                                    what->text[0] != '\0' ? what->text
                                                          : "the connection to the peer ended");
}

static void peer_fell_silent(struct rdmux_handshake *handshake,
                             const struct handshake_happening *what)
{
    (void)what;
    rdmux_handshake_connection_over(handshake, RDMUX_TIMED_OUT, false,
                                    "the peer fell silent for %llu ms (%s)",
                                    (unsigned long long)rdmux_handshake_patience_ms(handshake),
                                    rdmux_handshake_facts[handshake->state].name);
}

static void attempt_overdue(struct rdmux_handshake *handshake,
                            const struct handshake_happening *what)
{
    const struct handshake_facts *facts = &rdmux_handshake_facts[handshake->state];
    char text[RDMUX_TEXT_MAX];
    (void)snprintf(text, sizeof(text), "%s within %llu ms", facts->waits_for,
                   (unsigned long long)rdmux_handshake_attempt_limit_ms(handshake));
    attempt_failed(handshake, RDMUX_TIMED_OUT, reason_by_stage(facts->stage, RDMUX_TIMED_OUT), text,
                   what->now_ns);
}

static void attempt_step_failed(struct rdmux_handshake *handshake,
                                const struct handshake_happening *what)
{
    enum rdmux_reason reason = what->reason;
    if (reason == RDMUX_REASON_NONE) {
        reason = reason_by_stage(rdmux_handshake_facts[handshake->state].stage, what->status);
    }
    attempt_failed(handshake, what->status, reason,
                   what->text[0] != '\0' ? what->text : "failed without a text", what->now_ns);
}

/* Closes the path before the acknowledgement is sent: on a shared socket nothing of the path
 * follows it. */
static void peer_failed(struct rdmux_handshake *handshake, const struct handshake_happening *what)
{
    record_peer_failure(handshake, what->frame);
    rdmux_handshake_close_path(handshake);
    send_failed(handshake, (enum rdmux_stage)what->frame->stage, RDMUX_REASON_NONE, RDMUX_OK, "");
    begin_attempt(handshake, what->now_ns);
}

static bool reason_is_timeout(uint32_t reason)
{
    return reason == RDMUX_REASON_CONNECT_TIMED_OUT || reason == RDMUX_REASON_PROOF_TIMED_OUT;
}

/* Both sides have sent FAILED. This side's reason stands, unless it is a timeout and the peer names
 * a cause. */
static void peer_failed_too(struct rdmux_handshake *handshake,
                            const struct handshake_happening *what)
{
    if (reason_is_timeout(current_match(handshake)->reason) &&
        what->frame->reason != RDMUX_REASON_NONE && !reason_is_timeout(what->frame->reason)) {
        record_peer_failure(handshake, what->frame);
    }
    begin_attempt(handshake, what->now_ns);
}

static void commit_came_too_late(struct rdmux_handshake *handshake,
                                 const struct handshake_happening *what)
{
    (void)what;
    if (rdmux_handshake_is_moving(handshake)) {
        return; /* the acceptor receives FAILED instead of CONFIRM, and goes on */
    }
    rdmux_handshake_connection_over(handshake, handshake->attempt_status, false,
                                    "the peer committed to a path that had failed here: %s",
                                    current_match(handshake)->text);
}

static void failed_after_commit(struct rdmux_handshake *handshake,
                                const struct handshake_happening *what)
{
    const char *text = what->frame != NULL ? what->frame->text : what->text;
    if (rdmux_handshake_is_moving(handshake) && what->frame != NULL) {
        peer_failed(handshake, what); /* it has not confirmed, and will not */
        return;
    }
    rdmux_handshake_connection_over(handshake, what->frame != NULL ? RDMUX_PEER_GONE : what->status,
                                    false, "the path failed after the commit: %s", text);
}

static void take_no_path(struct rdmux_handshake *handshake, const struct handshake_happening *what)
{
    (void)what;
    rdmux_handshake_no_path(handshake);
}

static void take_peer_reject(struct rdmux_handshake *handshake,
                             const struct handshake_happening *what)
{
    struct rdmux_message message;
    if (rdmux_message_decode(what->bytes, what->size, &message) != RDMUX_OK) {
        rdmux_handshake_connection_over(handshake, RDMUX_PROTOCOL, false,
                                        "the peer's REJECT is malformed");
        return;
    }
    handshake->reject.reason = message.status;
    handshake->reject.size = message.description_length;
    memcpy(handshake->reject.data, message.description, handshake->reject.size);
    if (message.status == RDMUX_REJECT_BUSY) {
        rdmux_handshake_connection_over(handshake, RDMUX_REFUSED, false,
                                        "the peer has no room for the connection, as too many "
                                        "wait there; try again later");
        return;
    }
    rdmux_handshake_connection_over(handshake, RDMUX_REFUSED, false,
                                    "the peer rejected the connection, reason %u",
                                    (unsigned)message.status);
}

/* -------------------------------------------------------------------- the tables */

typedef void (*reaction)(struct rdmux_handshake *handshake, const struct handshake_happening *what);

/* The regular course. The state is `next` when the reaction runs. take_proved() and the functions
 * that begin or fail an attempt or end the connection set another one. */
/* clang-format off */
static const struct rule {
    enum handshake_state state;
    enum handshake_event event;
    enum handshake_state next;
    reaction react;
} rules[] = {
    { A_HELLO,           GOT_HELLO,   A_OFFER,           rdmux_handshake_take_hello },
    { A_OFFER,           GOT_OFFER,   A_OFFER,           take_offer_and_rank },
    { A_OPEN,            OPENED,      A_READY,           send_try },
    { A_READY,           GOT_READY,   A_CONNECT,         take_ready },
    { A_CONNECT,         CONNECTED,   A_UP,              say_up },
    { A_CONNECT,         GOT_UP,      A_CONNECT_PEER_UP, take_up },
    { A_CONNECT_PEER_UP, CONNECTED,   A_WRITTEN,         say_up },
    { A_UP,              GOT_UP,      A_WRITTEN,         take_up },
    { A_WRITTEN,         GOT_WRITTEN, A_CHECK,           take_written },
    { A_CHECK,           CHECKED,     A_WRITE,           write_pattern },
    { A_WRITE,           WROTE,       A_PROVED,          say_written },
    { A_PROVED,          GOT_PROVED,  A_CONFIRM,         take_proved },
    { A_MEASURE,         MEASURED,    A_MEASURE,         give_up_measured_path },
    { A_MEASURE,         TIMED_OUT,   A_MEASURE,         give_up_measured_path },
    { A_CONFIRM,         GOT_CONFIRM, A_CONFIRM,         take_confirm },
    { A_FAILING,         GOT_READY,   A_FAILING,         ignore_event },
    { A_FAILING,         GOT_UP,      A_FAILING,         ignore_event },
    { A_FAILING,         GOT_WRITTEN, A_FAILING,         ignore_event },
    { A_FAILING,         GOT_PROVED,  A_FAILING,         ignore_event },

    { C_HELLO,           GOT_HELLO,   C_OFFER,           rdmux_handshake_take_hello },
    { C_OFFER,           GOT_OFFER,   C_RANKING,         rdmux_handshake_take_acceptors_offer },
    { C_RANKING,         GOT_RANKING, C_RANKING,         take_ranking },
    { C_TRY,             GOT_TRY,     C_OPEN,            take_try },
    { C_TRY,             GOT_FAILED,  C_TRY,             peer_failed },
    { C_TRY,             GOT_RANKING, C_TRY,             rdmux_handshake_take_second_ranking },
    { C_LAST,            GOT_RANKING, C_TRY,             rdmux_handshake_take_second_ranking },
    { C_TRY,             GOT_NO_PATH, C_TRY,             take_no_path },
    { C_TRY,             TIMED_OUT,   C_TRY,             attempt_overdue },
    { C_LAST,            GOT_NO_PATH, C_LAST,            take_no_path },
    { C_LAST,            TIMED_OUT,   C_LAST,            peer_fell_silent },
    { C_OPEN,            OPENED,      C_CONNECT,         connect_and_send_ready },
    { C_CONNECT,         CONNECTED,   C_UP,              say_up },
    { C_CONNECT,         GOT_UP,      C_CONNECT_PEER_UP, take_up },
    { C_CONNECT_PEER_UP, CONNECTED,   C_WRITE,           say_up_and_write_pattern },
    { C_UP,              GOT_UP,      C_WRITE,           take_up_and_write_pattern },
    { C_WRITE,           WROTE,       C_WRITTEN,         say_written },
    { C_WRITTEN,         GOT_WRITTEN, C_CHECK,           take_written },
    { C_CHECK,           CHECKED,     C_COMMIT,          say_proved },
    { C_COMMIT,          GOT_COMMIT,  C_COMMIT,          take_commit },
    { C_FAILING,         GOT_TRY,     C_FAILING,         ignore_event },
    { C_FAILING,         GOT_UP,      C_FAILING,         ignore_event },
    { C_FAILING,         GOT_WRITTEN, C_FAILING,         ignore_event },
    { C_FAILING,         GOT_COMMIT,  C_FAILING,         commit_came_too_late },
};

/* The failures. A state and event in neither table is an error: take_event() calls
 * unexpected_event(). */
static const struct phase_rule {
    enum handshake_phase phase;
    enum handshake_event event;
    reaction react;
} phase_rules[] = {
    { GREETING,  GOT_REJECT,  take_peer_reject },
    { GREETING,  LOST,        channel_lost },
    { GREETING,  TIMED_OUT,   rdmux_handshake_greeting_overdue },

    { WAITING,   GOT_REJECT,  take_peer_reject },
    { WAITING,   PATH_FAILED, ignore_event }, /* of the previous attempt */
    { WAITING,   LOST,        channel_lost },

    { OPENING,   GOT_REJECT,  take_peer_reject },
    { OPENING,   GOT_FAILED,  peer_failed },
    { OPENING,   STEP_FAILED, attempt_step_failed },
    { OPENING,   PATH_FAILED, ignore_event }, /* of the previous attempt */
    { OPENING,   LOST,        channel_lost },
    { OPENING,   TIMED_OUT,   attempt_overdue },

    { TRYING,    GOT_REJECT,  take_peer_reject },
    { TRYING,    GOT_FAILED,  peer_failed },
    { TRYING,    STEP_FAILED, attempt_step_failed },
    { TRYING,    PATH_FAILED, attempt_step_failed },
    { TRYING,    LOST,        channel_lost },
    { TRYING,    TIMED_OUT,   attempt_overdue },

    { FAILING,   GOT_REJECT,  take_peer_reject },
    { FAILING,   GOT_FAILED,  peer_failed_too },
    { FAILING,   OPENED,      ignore_event },
    { FAILING,   CONNECTED,   ignore_event },
    { FAILING,   WROTE,       ignore_event },
    { FAILING,   CHECKED,     ignore_event },
    { FAILING,   MEASURED,    ignore_event },
    { FAILING,   STEP_FAILED, ignore_event },
    { FAILING,   PATH_FAILED, ignore_event },
    { FAILING,   LOST,        channel_lost },
    { FAILING,   TIMED_OUT,   peer_fell_silent },

    { COMMITTED, GOT_FAILED,  failed_after_commit },
    { COMMITTED, STEP_FAILED, failed_after_commit },
    { COMMITTED, PATH_FAILED, failed_after_commit },
    { COMMITTED, LOST,        channel_lost },
    { COMMITTED, TIMED_OUT,   peer_fell_silent },
};
/* clang-format on */

static const struct rule *rule_for(enum handshake_state state, enum handshake_event event)
{
    for (size_t i = 0; i < COUNT_OF(rules); i++) {
        if (rules[i].state == state && rules[i].event == event) {
            return &rules[i];
        }
    }
    return NULL;
}

static reaction phase_reaction(enum handshake_phase phase, enum handshake_event event)
{
    for (size_t i = 0; i < COUNT_OF(phase_rules); i++) {
        if (phase_rules[i].phase == phase && phase_rules[i].event == event) {
            return phase_rules[i].react;
        }
    }
    return unexpected_event;
}

static void take_event(struct rdmux_handshake *handshake, const struct handshake_happening *what)
{
    if (phase_of(handshake) == ENDED) {
        return;
    }
    rdmux_handshake_arena_reuse(handshake);
    const struct rule *rule = rule_for(handshake->state, what->event);
    if (rule == NULL) {
        phase_reaction(phase_of(handshake), what->event)(handshake, what);
        return;
    }
    set_state(handshake, rule->next);
    rule->react(handshake, what);
}

/* -------------------------------------------------------------------- frames */

static enum handshake_event event_of_type(uint8_t type, enum rdmux_role role)
{
    switch (type) {
    case RDMUX_FRAME_OFFER:
        return GOT_OFFER;
    case RDMUX_FRAME_RANKING:
        return GOT_RANKING;
    case RDMUX_FRAME_TRY:
        return GOT_TRY;
    case RDMUX_FRAME_READY:
        return GOT_READY;
    case RDMUX_FRAME_UP:
        return GOT_UP;
    case RDMUX_FRAME_WRITTEN:
        return GOT_WRITTEN;
    case RDMUX_FRAME_PROVED:
        return GOT_PROVED;
    case RDMUX_FRAME_COMMIT:
        return GOT_COMMIT;
    case RDMUX_FRAME_CONFIRM:
        return GOT_CONFIRM;
    case RDMUX_FRAME_FAILED:
        return GOT_FAILED;
    case RDMUX_FRAME_NO_PATH:
        return GOT_NO_PATH;
    case RDMUX_FRAME_REJECT:
        /* A connector that changes its mind closes the connection instead. */
        return role == RDMUX_ROLE_CONNECT ? GOT_REJECT : GOT_OTHER;
    default:
        return type >= HELLO_FIRST_BYTE ? GOT_HELLO : GOT_OTHER;
    }
}

static bool event_has_attempt(enum handshake_event event)
{
    return event >= GOT_TRY && event <= GOT_FAILED;
}

/* A frame of an attempt, or NO_PATH. */
static void take_attempt_frame(struct rdmux_handshake *handshake,
                               const struct handshake_happening *what)
{
    struct rdmux_attempt_frame frame;
    if (rdmux_attempt_frame_decode(what->bytes, what->size, &frame) != RDMUX_OK) {
        rdmux_handshake_connection_over(handshake, RDMUX_PROTOCOL, false,
                                        "the peer's frame 0x%02x is malformed", what->bytes[0]);
        return;
    }
    if (event_has_attempt(what->event) && frame.attempt < handshake->attempt) {
        return; /* late */
    }
    if (event_has_attempt(what->event) && frame.attempt > handshake->attempt) {
        rdmux_handshake_connection_over(handshake, RDMUX_PROTOCOL, false,
                                        "the peer speaks of attempt %u, this is attempt %u",
                                        (unsigned)frame.attempt, (unsigned)handshake->attempt);
        return;
    }
    struct handshake_happening decoded = *what;
    decoded.frame = &frame;
    take_event(handshake, &decoded);
}

void rdmux_handshake_frame(struct rdmux_handshake *handshake, const uint8_t *frame, size_t size,
                           uint64_t now_ns)
{
    if (phase_of(handshake) == ENDED) {
        return;
    }
    struct handshake_happening what = {
        .event = size > 0 ? event_of_type(frame[0], handshake->role) : GOT_OTHER,
        .now_ns = now_ns,
        .bytes = frame,
        .size = size,
        .text = "",
    };
    bool bad = false;
    if (what.event != GOT_HELLO && rdmux_frame_total(frame, size, false, &bad) != size) {
        rdmux_handshake_connection_over(handshake, RDMUX_PROTOCOL, false,
                                        "the peer's frame does not match its header");
        return;
    }
    if (what.event == GOT_OTHER && size >= RDMUX_FRAME_HEADER_SIZE &&
        frame[0] != RDMUX_FRAME_REJECT && rdmux_frame_is_optional(frame)) {
        return; /* of a later version, which needs no answer */
    }
    if (event_has_attempt(what.event) || what.event == GOT_NO_PATH) {
        take_attempt_frame(handshake, &what);
    } else {
        take_event(handshake, &what);
    }
}

/* -------------------------------------------------------------------- the rest */

size_t rdmux_handshake_size(void)
{
    return sizeof(struct rdmux_handshake);
}

/* Takes the bytes that the listener read before the connection was accepted. */
static void take_bytes_of_listener(struct rdmux_handshake *handshake, const uint8_t *bytes,
                                   size_t size, uint64_t now_ns)
{
    size_t hello_size = size < RDMUX_HELLO_SIZE ? size : RDMUX_HELLO_SIZE;
    rdmux_handshake_frame(handshake, bytes, hello_size, now_ns);
    if (size > hello_size) {
        rdmux_handshake_frame(handshake, bytes + hello_size, size - hello_size, now_ns);
    }
}

enum rdmux_status rdmux_handshake_init(void *memory, const struct rdmux_handshake_config *config,
                                       uint64_t now_ns, struct rdmux_handshake **out)
{
    *out = NULL;
    if (memory == NULL || config->offer == NULL ||
        (config->role != RDMUX_ROLE_CONNECT && config->role != RDMUX_ROLE_ACCEPT)) {
        return RDMUX_INVALID;
    }
    struct rdmux_handshake *handshake = memory;
    bool accepts = config->role == RDMUX_ROLE_ACCEPT;
    handshake->role = config->role;
    set_state(handshake, accepts ? A_HELLO : C_HELLO);
    handshake->deadline_ns = config->hello_timeout_ms == RDMUX_NEVER
                                 ? UINT64_MAX
                                 : rdmux_handshake_time_after(now_ns, config->hello_timeout_ms);
    memcpy(handshake->proof_nonce, config->proof_nonce, sizeof(handshake->proof_nonce));
    rdmux_handshake_measuring_init(handshake, config);
    enum rdmux_status status = rdmux_handshake_greeting_init(handshake, config);
    if (status != RDMUX_OK) {
        return status;
    }
    if (!accepts) {
        rdmux_handshake_send_opening(handshake);
    } else if (config->received != NULL) {
        take_bytes_of_listener(handshake, config->received, config->received_size, now_ns);
    }
    *out = handshake;
    return RDMUX_OK;
}

void rdmux_handshake_lost(struct rdmux_handshake *handshake, enum rdmux_status status,
                          const char *text, uint64_t now_ns)
{
    const struct handshake_happening what = {
        .event = LOST,
        .now_ns = now_ns,
        .status = status,
        .text = text != NULL ? text : "",
    };
    take_event(handshake, &what);
}

static enum handshake_event event_of_result(enum rdmux_handshake_action_kind kind)
{
    switch ((unsigned)kind) {
    case RDMUX_ACTION_OPEN:
        return OPENED;
    case RDMUX_ACTION_CONNECT:
        return CONNECTED;
    case RDMUX_ACTION_WRITE_PROOF:
        return WROTE;
    case RDMUX_ACTION_CHECK_PROOF:
        return CHECKED;
    default:
        return STEP_FAILED;
    }
}

void rdmux_handshake_result(struct rdmux_handshake *handshake,
                            enum rdmux_handshake_action_kind kind, uint32_t attempt,
                            enum rdmux_status status, enum rdmux_reason reason, const char *text,
                            const uint8_t *bytes, size_t size, uint64_t now_ns)
{
    if (attempt != handshake->attempt) {
        return; /* of a closed attempt */
    }
    struct handshake_happening what = {
        .event = status == RDMUX_OK ? event_of_result(kind) : STEP_FAILED,
        .now_ns = now_ns,
        .bytes = bytes,
        .size = bytes != NULL ? size : 0,
        .status = status,
        .reason = reason,
        .text = text != NULL ? text : "",
    };
    if (status == RDMUX_OK && what.size > RDMUX_DESCRIPTION_MAX) {
        what.event = STEP_FAILED;
        what.status = RDMUX_LENGTH;
        what.text = "the path's description is too long";
    }
    if (status != RDMUX_OK && kind == RDMUX_ACTION_OPEN && phase_of(handshake) == OPENING) {
        rdmux_handshake_path_closed(handshake); /* an OPEN that failed left nothing to close */
    }
    take_event(handshake, &what);
}

void rdmux_handshake_measured(struct rdmux_handshake *handshake, uint32_t attempt,
                              const struct rdmux_measured *measured, uint64_t now_ns)
{
    if (attempt != handshake->attempt) {
        return; /* of a closed attempt */
    }
    const struct handshake_happening what = {
        .event = MEASURED,
        .now_ns = now_ns,
        .measured = measured,
        .text = "",
    };
    take_event(handshake, &what);
}

void rdmux_handshake_path_failed(struct rdmux_handshake *handshake, enum rdmux_status status,
                                 const char *text, uint64_t now_ns)
{
    const struct handshake_happening what = {
        .event = PATH_FAILED,
        .now_ns = now_ns,
        .status = status,
        .text = text != NULL ? text : "",
    };
    take_event(handshake, &what);
}

void rdmux_handshake_move(struct rdmux_handshake *handshake, uint32_t first_attempt,
                          enum rdmux_reason reason, const char *why)
{
    rdmux_handshake_begin_move(handshake, first_attempt, reason, why);
    begin_attempt(handshake, 0);
}

void rdmux_handshake_time(struct rdmux_handshake *handshake, uint64_t now_ns)
{
    if (handshake->deadline_ns == UINT64_MAX || now_ns < handshake->deadline_ns) {
        return;
    }
    const struct handshake_happening what = { .event = TIMED_OUT, .now_ns = now_ns, .text = "" };
    take_event(handshake, &what);
}

uint64_t rdmux_handshake_deadline(const struct rdmux_handshake *handshake)
{
    return handshake->deadline_ns;
}

static const struct rdmux_offer_path *offer_path_at(const struct rdmux_offer *offer, uint16_t index)
{
    return index < offer->path_count ? &offer->paths[index] : NULL;
}

static void fill_candidate(const struct rdmux_handshake *handshake, const struct rdmux_match *match,
                           struct rdmux_candidate *out)
{
    const struct rdmux_offer_path *ours = offer_path_at(&handshake->offer, match->ours);
    const struct rdmux_offer_path *theirs = offer_path_at(&handshake->peer_offer, match->theirs);
    const struct rdmux_offer_path *any = ours != NULL ? ours : theirs;
    *out = (struct rdmux_candidate){
        .size = sizeof(*out),
        .reason = match->reason,
        .stage = match->stage,
        .cost_ns = match->cost_ns,
        .native = match->native,
        .emulated = match->emulated,
        .rank = match->rank,
        .measured = match->cost_is_measured,
    };
    memcpy(out->text, match->text, sizeof(out->text));
    memcpy(out->hint, match->hint, sizeof(out->hint));
    if (any != NULL) {
        memcpy(out->provider, any->provider, sizeof(out->provider));
        out->security = any->path.security;
    }
    if (ours != NULL) {
        memcpy(out->device, ours->path.device, sizeof(out->device));
        out->software |= ours->path.software;
        out->sides |= RDMUX_SIDE_HERE;
        out->latency_ns = ours->path.latency_ns;
        out->bandwidth = ours->path.bandwidth;
    }
    if (theirs != NULL) {
        memcpy(out->peer_device, theirs->path.device, sizeof(out->peer_device));
        out->software |= theirs->path.software;
        out->sides |= RDMUX_SIDE_PEER;
        out->peer_latency_ns = theirs->path.latency_ns;
        out->peer_bandwidth = theirs->path.bandwidth;
        if (theirs->path.security < out->security) {
            out->security = theirs->path.security;
        }
    }
}

size_t rdmux_handshake_candidates(const struct rdmux_handshake *handshake,
                                  struct rdmux_candidate *out, size_t max)
{
    size_t count = handshake->match_count < max ? handshake->match_count : max;
    for (size_t i = 0; i < count; i++) {
        fill_candidate(handshake, &handshake->matches[i], &out[i]);
    }
    return count;
}

uint32_t rdmux_handshake_reject_reason(const struct rdmux_handshake *handshake)
{
    return handshake->reject.reason;
}

const uint8_t *rdmux_handshake_reject_data(const struct rdmux_handshake *handshake, size_t *size)
{
    *size = handshake->reject.size;
    return handshake->reject.size > 0 ? handshake->reject.data : NULL;
}

const char *rdmux_handshake_state(const struct rdmux_handshake *handshake)
{
    return rdmux_handshake_facts[handshake->state].name;
}
