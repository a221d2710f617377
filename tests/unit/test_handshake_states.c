/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Every (state, event) pair of the handshake, against a table of the test's own. An event that the
 * table does not list must end the connection: with RDMUX_PROTOCOL if it came from the peer, with
 * RDMUX_INVALID if it came from the driver. */
#include "negotiation/handshake.h"

#include "negotiation/message.h"
#include "tests/unit/support/handshake_support.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

enum state {
    A_HELLO,
    A_OFFER,
    A_OPEN,
    A_READY,
    A_CONNECT,
    A_CONNECT_PEER_UP,
    A_UP,
    A_WRITTEN,
    A_CHECK,
    A_WRITE,
    A_PROVED,
    A_MEASURE,
    A_CONFIRM,
    A_FAILING,
    A_DONE,
    A_OVER,
    C_HELLO,
    C_OFFER,
    C_RANKING,
    C_TRY,
    C_LAST,
    C_OPEN,
    C_CONNECT,
    C_CONNECT_PEER_UP,
    C_UP,
    C_WRITE,
    C_WRITTEN,
    C_CHECK,
    C_COMMIT,
    C_FAILING,
    C_DONE,
    C_OVER,
    STATE_COUNT,
};

enum event {
    GOT_HELLO,
    GOT_OFFER,
    GOT_RANKING,
    GOT_TRY,
    GOT_READY,
    GOT_UP,
    GOT_WRITTEN,
    GOT_PROVED,
    GOT_COMMIT,
    GOT_CONFIRM,
    GOT_FAILED,
    GOT_NO_PATH,
    GOT_REJECT,
    GOT_HEARTBEAT,
    GOT_AUTH,
    GOT_UNKNOWN,
    GOT_OPTIONAL,
    GOT_NOTHING,
    OPENED,
    CONNECTED,
    WROTE,
    CHECKED,
    MEASURED,
    OPEN_FAILED,
    CONNECT_FAILED,
    WRITE_FAILED,
    CHECK_FAILED,
    MEASURE_FAILED,
    LATE_OPENED,
    LATE_CONNECT_FAILED, /* of the attempt before */
    PATH_FAILED,
    LOST,
    TIMED_OUT,
    EVENT_COUNT,
};

static const char *const event_names[EVENT_COUNT] = {
    "GOT_HELLO",    "GOT_OFFER",    "GOT_RANKING",    "GOT_TRY",       "GOT_READY",
    "GOT_UP",       "GOT_WRITTEN",  "GOT_PROVED",     "GOT_COMMIT",    "GOT_CONFIRM",
    "GOT_FAILED",   "GOT_NO_PATH",  "GOT_REJECT",     "GOT_HEARTBEAT", "GOT_AUTH",
    "GOT_UNKNOWN",  "GOT_OPTIONAL", "GOT_NOTHING",    "OPENED",        "CONNECTED",
    "WROTE",        "CHECKED",      "MEASURED",       "OPEN_FAILED",   "CONNECT_FAILED",
    "WRITE_FAILED", "CHECK_FAILED", "MEASURE_FAILED", "LATE_OPENED",   "LATE_CONNECT_FAILED",
    "PATH_FAILED",  "LOST",         "TIMED_OUT",
};

/* The names are those of rdmux_handshake_state(). from and by: the way to this state; the first
 * state of a role begins it. */
static const struct how {
    const char *name;
    enum state from;
    enum event by;
} states[STATE_COUNT] = {
    [A_HELLO] = { "waiting for HELLO", A_HELLO, 0 },
    [A_OFFER] = { "waiting for OFFER", A_HELLO, GOT_HELLO },
    [A_OPEN] = { "opening", A_OFFER, GOT_OFFER },
    [A_READY] = { "waiting for READY", A_OPEN, OPENED },
    [A_CONNECT] = { "connecting", A_READY, GOT_READY },
    [A_CONNECT_PEER_UP] = { "connecting, peer up", A_CONNECT, GOT_UP },
    [A_UP] = { "waiting for UP", A_CONNECT, CONNECTED },
    [A_WRITTEN] = { "waiting for WRITTEN", A_UP, GOT_UP },
    [A_CHECK] = { "checking", A_WRITTEN, GOT_WRITTEN },
    [A_WRITE] = { "writing", A_CHECK, CHECKED },
    [A_PROVED] = { "waiting for PROVED", A_WRITE, WROTE },
    [A_MEASURE] = { "measuring", A_PROVED, GOT_PROVED }, /* where a side wants it */
    [A_CONFIRM] = { "waiting for CONFIRM", A_PROVED, GOT_PROVED },
    [A_FAILING] = { "waiting for FAILED", A_CONNECT, CONNECT_FAILED },
    [A_DONE] = { "done", A_CONFIRM, GOT_CONFIRM },
    [A_OVER] = { "over", A_OPEN, LOST },
    [C_HELLO] = { "waiting for HELLO", C_HELLO, 0 },
    [C_OFFER] = { "waiting for OFFER", C_HELLO, GOT_HELLO },
    [C_RANKING] = { "waiting for RANKING", C_OFFER, GOT_OFFER },
    [C_TRY] = { "waiting for TRY", C_RANKING, GOT_RANKING },
    [C_LAST] = { "waiting for NO_PATH", C_TRY, GOT_FAILED }, /* of the last attempt */
    [C_OPEN] = { "opening", C_TRY, GOT_TRY },
    [C_CONNECT] = { "connecting", C_OPEN, OPENED },
    [C_CONNECT_PEER_UP] = { "connecting, peer up", C_CONNECT, GOT_UP },
    [C_UP] = { "waiting for UP", C_CONNECT, CONNECTED },
    [C_WRITE] = { "writing", C_UP, GOT_UP },
    [C_WRITTEN] = { "waiting for WRITTEN", C_WRITE, WROTE },
    [C_CHECK] = { "checking", C_WRITTEN, GOT_WRITTEN },
    [C_COMMIT] = { "waiting for COMMIT", C_CHECK, CHECKED },
    [C_FAILING] = { "waiting for FAILED", C_CONNECT, CONNECT_FAILED },
    [C_DONE] = { "done", C_COMMIT, GOT_COMMIT },
    [C_OVER] = { "over", C_OPEN, LOST },
};

/* The expected result of a pair: another state, the same state without an action, or the end with a
 * status. */
enum { STAYS = -1, FAILS_WITH = 1000 };
#define FAILS(status) (FAILS_WITH + (int)(status))

/* clang-format off */
static const struct rule {
    enum state state;
    enum event event;
    int expected;
} rules[] = {
    /* the normal sequence */
    { A_HELLO, GOT_HELLO, A_OFFER },        { A_OFFER, GOT_OFFER, A_OPEN },
    { A_OPEN, OPENED, A_READY },            { A_READY, GOT_READY, A_CONNECT },
    { A_CONNECT, CONNECTED, A_UP },         { A_CONNECT, GOT_UP, A_CONNECT_PEER_UP },
    { A_CONNECT_PEER_UP, CONNECTED, A_WRITTEN }, { A_UP, GOT_UP, A_WRITTEN },
    { A_WRITTEN, GOT_WRITTEN, A_CHECK },    { A_CHECK, CHECKED, A_WRITE },
    { A_WRITE, WROTE, A_PROVED },           { A_PROVED, GOT_PROVED, A_CONFIRM },
    { A_CONFIRM, GOT_CONFIRM, A_DONE },     { A_MEASURE, MEASURED, A_FAILING },
    { C_HELLO, GOT_HELLO, C_OFFER },        { C_OFFER, GOT_OFFER, C_RANKING },
    { C_RANKING, GOT_RANKING, C_TRY },      { C_TRY, GOT_TRY, C_OPEN },
    { C_OPEN, OPENED, C_CONNECT },          { C_CONNECT, CONNECTED, C_UP },
    { C_CONNECT, GOT_UP, C_CONNECT_PEER_UP }, { C_CONNECT_PEER_UP, CONNECTED, C_WRITE },
    { C_UP, GOT_UP, C_WRITE },              { C_WRITE, WROTE, C_WRITTEN },
    { C_WRITTEN, GOT_WRITTEN, C_CHECK },    { C_CHECK, CHECKED, C_COMMIT },
    { C_COMMIT, GOT_COMMIT, C_DONE },
    { C_TRY, GOT_NO_PATH, FAILS(RDMUX_NO_PATH) }, { C_LAST, GOT_NO_PATH, FAILS(RDMUX_NO_PATH) },

    /* the peer's FAILED leads on, at once if there is nothing left to send */
    { A_OPEN, GOT_FAILED, A_OPEN },         { A_READY, GOT_FAILED, A_OPEN },
    { A_CONNECT, GOT_FAILED, A_OPEN },      { A_CONNECT_PEER_UP, GOT_FAILED, A_OPEN },
    { A_UP, GOT_FAILED, A_OPEN },           { A_WRITTEN, GOT_FAILED, A_OPEN },
    { A_CHECK, GOT_FAILED, A_OPEN },        { A_WRITE, GOT_FAILED, A_OPEN },
    { A_PROVED, GOT_FAILED, A_OPEN },       { A_FAILING, GOT_FAILED, A_OPEN },
    { A_MEASURE, GOT_FAILED, A_OPEN },
    { A_CONFIRM, GOT_FAILED, FAILS(RDMUX_PEER_GONE) },
    { C_TRY, GOT_FAILED, C_TRY },           { C_OPEN, GOT_FAILED, C_TRY },
    { C_CONNECT, GOT_FAILED, C_TRY },       { C_CONNECT_PEER_UP, GOT_FAILED, C_TRY },
    { C_UP, GOT_FAILED, C_TRY },            { C_WRITE, GOT_FAILED, C_TRY },
    { C_WRITTEN, GOT_FAILED, C_TRY },       { C_CHECK, GOT_FAILED, C_TRY },
    { C_COMMIT, GOT_FAILED, C_TRY },        { C_FAILING, GOT_FAILED, C_TRY },

    /* frames that crossed our FAILED */
    { A_FAILING, GOT_READY, STAYS },        { A_FAILING, GOT_UP, STAYS },
    { A_FAILING, GOT_WRITTEN, STAYS },      { A_FAILING, GOT_PROVED, STAYS },
    { C_FAILING, GOT_TRY, STAYS },          { C_FAILING, GOT_UP, STAYS },
    { C_FAILING, GOT_WRITTEN, STAYS },      { C_FAILING, GOT_COMMIT, FAILS(RDMUX_IO) },

    /* a path that broke before there was one belongs to the attempt before */
    { A_OPEN, PATH_FAILED, STAYS },         { C_OPEN, PATH_FAILED, STAYS },
    { C_TRY, PATH_FAILED, STAYS },          { C_LAST, PATH_FAILED, STAYS },
    { A_FAILING, PATH_FAILED, STAYS },      { C_FAILING, PATH_FAILED, STAYS },

    /* timeouts */
    { A_HELLO, TIMED_OUT, FAILS(RDMUX_TIMED_OUT) },   { A_OFFER, TIMED_OUT, FAILS(RDMUX_TIMED_OUT) },
    { C_HELLO, TIMED_OUT, FAILS(RDMUX_TIMED_OUT) },   { C_OFFER, TIMED_OUT, FAILS(RDMUX_TIMED_OUT) },
    { C_RANKING, TIMED_OUT, FAILS(RDMUX_TIMED_OUT) }, { C_LAST, TIMED_OUT, FAILS(RDMUX_TIMED_OUT) },
    { A_FAILING, TIMED_OUT, FAILS(RDMUX_TIMED_OUT) }, { C_FAILING, TIMED_OUT, FAILS(RDMUX_TIMED_OUT) },
    { A_CONFIRM, TIMED_OUT, FAILS(RDMUX_TIMED_OUT) }, { C_TRY, TIMED_OUT, C_FAILING },
    { A_CONFIRM, PATH_FAILED, FAILS(RDMUX_IO) },
};
/* clang-format on */

static bool is_acceptor(enum state state)
{
    return state < C_HELLO;
}

static bool is_over(enum state state)
{
    return state == A_DONE || state == A_OVER || state == C_DONE || state == C_OVER;
}

/* Tells whether an attempt is in progress and has a path. */
static bool is_trying(enum state state)
{
    return (state >= A_READY && state <= A_MEASURE) || (state >= C_CONNECT && state <= C_COMMIT);
}

static bool is_result(enum event event)
{
    return event >= OPENED && event <= MEASURE_FAILED;
}

/* The rules that many states share; then the table; then the default. */
static int expected_of(enum state state, enum event event)
{
    enum state failing = is_acceptor(state) ? A_FAILING : C_FAILING;
    bool is_opening = state == A_OPEN || state == C_OPEN;
    if (is_over(state) || event == LATE_OPENED || event == LATE_CONNECT_FAILED ||
        event == GOT_OPTIONAL) {
        return STAYS;
    }
    for (size_t i = 0; i < COUNT_OF(rules); i++) {
        if (rules[i].state == state && rules[i].event == event) {
            return rules[i].expected;
        }
    }
    if (event == LOST) {
        return FAILS(RDMUX_PEER_GONE);
    }
    if (event == GOT_REJECT && !is_acceptor(state)) {
        return FAILS(RDMUX_REFUSED);
    }
    if (is_result(event) && state == failing) {
        return STAYS; /* of the attempt that we closed */
    }
    if ((is_trying(state) || is_opening) &&
        (event == TIMED_OUT || (event >= OPEN_FAILED && event <= MEASURE_FAILED))) {
        return (int)failing;
    }
    if (is_trying(state) && event == PATH_FAILED) {
        return (int)failing;
    }
    if (state == A_CONFIRM && event >= OPEN_FAILED && event <= MEASURE_FAILED) {
        return FAILS(RDMUX_IO);
    }
    return FAILS(event < OPENED ? RDMUX_PROTOCOL : RDMUX_INVALID);
}

/* -------------------------------------------------------------------- one handshake */

/* One side; the peer offers the same paths and has no hash. */
struct lone {
    struct rdmux_handshake *handshake;
    void *memory;
    struct rdmux_offer offer;
    enum state state;
    uint32_t attempt; /* the current one */
    uint64_t now_ns;
    size_t actions; /* since the last event */
    enum rdmux_status status;
    bool failed;
    bool give_back;
    size_t open_paths;
};

static void drain(struct lone *lone)
{
    struct rdmux_handshake_action action;
    lone->actions = 0;
    for (rdmux_handshake_next(lone->handshake, &action); action.kind != RDMUX_ACTION_NONE;
         rdmux_handshake_next(lone->handshake, &action)) {
        lone->actions++;
        assert_false(lone->failed);
        if (action.kind == RDMUX_ACTION_OPEN) {
            lone->open_paths++;
            lone->attempt = action.attempt;
        } else if (action.kind == RDMUX_ACTION_CLOSE_PATH) {
            assert_true(lone->open_paths > 0);
            lone->open_paths--;
        } else if (action.kind == RDMUX_ACTION_FAIL) {
            lone->failed = true;
            lone->status = action.status;
            lone->give_back = action.give_back;
        }
    }
}

static size_t make_hello(uint8_t *out)
{
    const struct rdmux_hello hello = { .version_min = 1, .version_max = 1, .epoch = 1 };
    rdmux_hello_encode(&hello, out);
    return RDMUX_HELLO_SIZE;
}

static size_t make_offer(const struct lone *lone, uint8_t *out)
{
    size_t size = RDMUX_OFFER_BYTES_MAX;
    assert_int_equal(rdmux_offer_encode(&lone->offer, out + RDMUX_FRAME_HEADER_SIZE, &size),
                     RDMUX_OK);
    rdmux_frame_header_encode(RDMUX_FRAME_OFFER, 0, size, out);
    return RDMUX_FRAME_HEADER_SIZE + size;
}

static size_t make_ranking(const struct lone *lone, uint8_t *out)
{
    static struct rdmux_match matches[RDMUX_MATCH_MAX];
    size_t count = rdmux_match_paths(&lone->offer, &lone->offer, 4096, matches);
    return rdmux_ranking_encode(matches, count, out);
}

static size_t make_message(enum rdmux_frame_type type, uint8_t *out)
{
    const struct rdmux_message message = { .type = type, .status = 5 };
    return rdmux_message_encode(&message, out);
}

static size_t make_attempt_frame(const struct lone *lone, enum event event, uint32_t attempt,
                                 uint8_t *out)
{
    static const enum rdmux_frame_type types[] = {
        [GOT_TRY] = RDMUX_FRAME_TRY,         [GOT_READY] = RDMUX_FRAME_READY,
        [GOT_UP] = RDMUX_FRAME_UP,           [GOT_WRITTEN] = RDMUX_FRAME_WRITTEN,
        [GOT_PROVED] = RDMUX_FRAME_PROVED,   [GOT_COMMIT] = RDMUX_FRAME_COMMIT,
        [GOT_CONFIRM] = RDMUX_FRAME_CONFIRM, [GOT_FAILED] = RDMUX_FRAME_FAILED,
        [GOT_NO_PATH] = RDMUX_FRAME_NO_PATH,
    };
    (void)lone;
    struct rdmux_attempt_frame frame = {
        .type = types[event],
        .attempt = attempt,
        .acceptor_path = (uint16_t)(attempt - 1),
        .connector_path = (uint16_t)(attempt - 1),
        .size = 4,
        .bytes = { 1, 2, 3, 4 },
        .reason = RDMUX_REASON_OPEN_FAILED,
        .status = RDMUX_IO,
        .text = "the peer's text",
    };
    return rdmux_attempt_frame_encode(&frame, out);
}

static size_t make_frame(const struct lone *lone, enum event event, uint8_t *out)
{
    switch ((unsigned)event) {
    case GOT_HELLO:
        return make_hello(out);
    case GOT_OFFER:
        return make_offer(lone, out);
    case GOT_RANKING:
        return make_ranking(lone, out);
    case GOT_REJECT:
        return make_message(RDMUX_FRAME_REJECT, out);
    case GOT_HEARTBEAT:
        return make_message(RDMUX_FRAME_HEARTBEAT, out);
    case GOT_AUTH:
        rdmux_frame_header_encode(RDMUX_FRAME_AUTH, 0, 0, out);
        return RDMUX_FRAME_HEADER_SIZE;
    case GOT_UNKNOWN:
        rdmux_frame_header_encode((enum rdmux_frame_type)0x3f, 0, 0, out);
        return RDMUX_FRAME_HEADER_SIZE;
    case GOT_OPTIONAL:
        rdmux_frame_header_encode((enum rdmux_frame_type)0x3f, RDMUX_FRAME_OPTIONAL, 0, out);
        return RDMUX_FRAME_HEADER_SIZE;
    case GOT_NOTHING:
        return 0;
    default:
        return make_attempt_frame(lone, event, lone->attempt, out);
    }
}

static void give_result(struct lone *lone, enum event event)
{
    static const enum rdmux_handshake_action_kind kinds[] = {
        RDMUX_ACTION_OPEN, RDMUX_ACTION_CONNECT, RDMUX_ACTION_WRITE_PROOF, RDMUX_ACTION_CHECK_PROOF,
        RDMUX_ACTION_MEASURE
    };
    static const uint8_t bytes[] = "result";
    bool good = event < OPEN_FAILED;
    bool late = event == LATE_OPENED || event == LATE_CONNECT_FAILED;
    size_t kind = good ? event - OPENED : event - OPEN_FAILED;
    if (late) {
        good = event == LATE_OPENED;
        kind = good ? 0 : 1;
    }
    if (kind == 0 && !good && !late &&
        strcmp(rdmux_handshake_state(lone->handshake), "opening") == 0) {
        lone->open_paths--; /* an OPEN that failed has made nothing */
    }
    if (event == MEASURED) {
        const struct rdmux_measured measured = { 1000, 1000000000 };
        rdmux_handshake_measured(lone->handshake, lone->attempt, &measured, lone->now_ns);
        return;
    }
    rdmux_handshake_result(lone->handshake, kinds[kind], lone->attempt - (late ? 1 : 0),
                           good ? RDMUX_OK : RDMUX_IO, RDMUX_REASON_NONE, "a text", bytes,
                           sizeof(bytes), lone->now_ns);
}

static void apply(struct lone *lone, enum event event)
{
    static uint8_t frame[RDMUX_FRAME_HEADER_SIZE + RDMUX_OFFER_BYTES_MAX];
    if (event < OPENED) {
        size_t size = make_frame(lone, event, frame);
        uint8_t *exact = malloc(size + 1);
        memcpy(exact, frame, size);
        rdmux_handshake_frame(lone->handshake, exact, size, lone->now_ns);
        free(exact);
    } else if (event < PATH_FAILED) {
        give_result(lone, event);
    } else if (event == PATH_FAILED) {
        rdmux_handshake_path_failed(lone->handshake, RDMUX_IO, "broke", lone->now_ns);
    } else if (event == LOST) {
        rdmux_handshake_lost(lone->handshake, RDMUX_PEER_GONE, "lost", lone->now_ns);
    } else {
        uint64_t deadline = rdmux_handshake_deadline(lone->handshake);
        lone->now_ns = deadline == UINT64_MAX ? lone->now_ns + 1 : deadline;
        rdmux_handshake_time(lone->handshake, lone->now_ns);
    }
    drain(lone);
}

static void begin(struct lone *lone, bool accepts, bool measures)
{
    struct rdmux_handshake_config config;
    memset(lone, 0, sizeof(*lone));
    lone->memory = calloc(1, rdmux_handshake_size());
    pair_offer(&lone->offer, 3);
    pair_config(&config, accepts ? RDMUX_ROLE_ACCEPT : RDMUX_ROLE_CONNECT, &lone->offer);
    config.hello.flags |= measures ? RDMUX_HELLO_MEASURE : 0;
    assert_int_equal(rdmux_handshake_init(lone->memory, &config, 0, &lone->handshake), RDMUX_OK);
    drain(lone);
}

static bool is_named(const struct lone *lone, enum state state)
{
    return strcmp(rdmux_handshake_state(lone->handshake), states[state].name) == 0;
}

/* Goes to a state whose attempt, if it has one, is the second, so that late events are possible. */
static void go_to(struct lone *lone, enum state state, bool measures)
{
    const struct how *how = &states[state];
    if (how->from == state) {
        begin(lone, is_acceptor(state), measures);
        return;
    }
    go_to(lone, how->from, measures);
    apply(lone, how->by);
    if (state == C_TRY) {
        lone->attempt = 1;
        apply(lone, GOT_FAILED);
        lone->attempt = 2;
    }
    if (state == A_OPEN) {
        apply(lone, OPENED);
        apply(lone, GOT_FAILED);
    }
    if (state == C_LAST) {
        lone->attempt = 3;
        apply(lone, GOT_FAILED);
        lone->attempt = 4;
    }
    if (!is_named(lone, state)) {
        fail_msg("on the way to \"%s\": \"%s\"", how->name, rdmux_handshake_state(lone->handshake));
    }
}

static void reach(struct lone *lone, enum state state)
{
    go_to(lone, state, state == A_MEASURE);
}

/* -------------------------------------------------------------------- tests */

static void check_pair(struct lone *lone, enum state state, enum event event, int expected)
{
    const char *now = rdmux_handshake_state(lone->handshake);
    const char *then = states[state].name;
    const char *role = is_acceptor(state) ? "acceptor" : "connector";
    if (expected == STAYS && (strcmp(now, then) != 0 || lone->actions != 0)) {
        fail_msg("%s, %s: %s became %s with %zu actions", role, event_names[event], then, now,
                 lone->actions);
    }
    if (expected >= FAILS_WITH &&
        (!lone->failed || (int)lone->status != expected - FAILS_WITH || lone->open_paths != 0)) {
        fail_msg("%s, %s: %s became %s (failed %d, status %d, %zu paths open)", role,
                 event_names[event], then, now, lone->failed, (int)lone->status, lone->open_paths);
    }
    if (expected >= FAILS_WITH && lone->give_back != (lone->status == RDMUX_NO_PATH)) {
        fail_msg("%s, %s in %s: give_back %d", role, event_names[event], then, lone->give_back);
    }
    if (expected >= 0 && expected < FAILS_WITH && strcmp(now, states[expected].name) != 0) {
        fail_msg("%s, %s: %s became %s instead of %s", role, event_names[event], then, now,
                 states[expected].name);
    }
}

static void every_event_in_every_state_does_what_the_table_says(void **state)
{
    (void)state;
    static struct lone lone;
    size_t walked = 0;
    for (size_t s = 0; s < STATE_COUNT; s++) {
        for (size_t e = 0; e < EVENT_COUNT; e++) {
            reach(&lone, (enum state)s);
            lone.failed = false;

            apply(&lone, (enum event)e);

            check_pair(&lone, (enum state)s, (enum event)e,
                       expected_of((enum state)s, (enum event)e));
            free(lone.memory);
            walked++;
        }
    }
    assert_int_equal(walked, (size_t)STATE_COUNT * EVENT_COUNT);
}

static bool has_attempt(enum state state)
{
    return (state >= A_OPEN && state <= A_FAILING) || (state >= C_TRY && state <= C_FAILING);
}

static void frames_of_an_earlier_attempt_are_ignored_everywhere(void **state)
{
    (void)state;
    static struct lone lone;
    for (size_t s = 0; s < STATE_COUNT; s++) {
        for (size_t e = GOT_TRY; e <= GOT_FAILED; e++) {
            if (!has_attempt((enum state)s)) {
                continue;
            }
            reach(&lone, (enum state)s);
            uint8_t frame[RDMUX_ATTEMPT_FRAME_MAX];
            size_t size = make_attempt_frame(&lone, (enum event)e, lone.attempt - 1, frame);

            rdmux_handshake_frame(lone.handshake, frame, size, lone.now_ns);

            drain(&lone);
            check_pair(&lone, (enum state)s, (enum event)e, STAYS);
            free(lone.memory);
        }
    }
}

static void frames_of_a_later_attempt_are_an_error_everywhere(void **state)
{
    (void)state;
    static struct lone lone;
    for (size_t s = 0; s < STATE_COUNT; s++) {
        for (size_t e = GOT_TRY; e <= GOT_FAILED; e++) {
            if (is_over((enum state)s)) {
                continue;
            }
            reach(&lone, (enum state)s);
            uint8_t frame[RDMUX_ATTEMPT_FRAME_MAX];
            size_t size = make_attempt_frame(&lone, (enum event)e, lone.attempt + 1, frame);

            rdmux_handshake_frame(lone.handshake, frame, size, lone.now_ns);

            drain(&lone);
            check_pair(&lone, (enum state)s, (enum event)e, FAILS(RDMUX_PROTOCOL));
            free(lone.memory);
        }
    }
}

static void a_frame_cut_short_or_too_long_is_an_error_everywhere(void **state)
{
    (void)state;
    static struct lone lone;
    static uint8_t frame[RDMUX_FRAME_HEADER_SIZE + RDMUX_OFFER_BYTES_MAX + 1];
    for (size_t s = 0; s < STATE_COUNT; s++) {
        for (size_t e = GOT_OFFER; e <= GOT_REJECT; e++) {
            for (int change = -1; change <= 1; change += 2) {
                if (is_over((enum state)s)) {
                    continue;
                }
                reach(&lone, (enum state)s);
                size_t size = make_frame(&lone, (enum event)e, frame);

                rdmux_handshake_frame(lone.handshake, frame, (size_t)((long)size + change),
                                      lone.now_ns);

                drain(&lone);
                check_pair(&lone, (enum state)s, (enum event)e, FAILS(RDMUX_PROTOCOL));
                free(lone.memory);
            }
        }
    }
}

static void a_payload_that_ends_too_early_is_an_error_everywhere(void **state)
{
    (void)state;
    static struct lone lone;
    static uint8_t frame[RDMUX_FRAME_HEADER_SIZE + RDMUX_OFFER_BYTES_MAX];
    for (size_t s = 0; s < STATE_COUNT; s++) {
        for (size_t e = GOT_OFFER; e <= GOT_REJECT; e++) {
            if (is_over((enum state)s) || e == GOT_NO_PATH) {
                continue;
            }
            reach(&lone, (enum state)s);
            size_t size = make_frame(&lone, (enum event)e, frame) - 1;
            rdmux_frame_header_encode((enum rdmux_frame_type)frame[0], 0,
                                      size - RDMUX_FRAME_HEADER_SIZE, frame);

            rdmux_handshake_frame(lone.handshake, frame, size, lone.now_ns);

            drain(&lone);
            check_pair(&lone, (enum state)s, (enum event)e, FAILS(RDMUX_PROTOCOL));
            free(lone.memory);
        }
    }
}

static void an_attempt_at_another_pair_than_the_ranked_one_is_an_error(void **state)
{
    (void)state;
    static struct lone lone;
    reach(&lone, C_TRY);
    struct rdmux_attempt_frame frame = {
        .type = RDMUX_FRAME_TRY, .attempt = 2, .acceptor_path = 1, .connector_path = 2
    };
    uint8_t bytes[RDMUX_ATTEMPT_FRAME_MAX];
    size_t size = rdmux_attempt_frame_encode(&frame, bytes);

    rdmux_handshake_frame(lone.handshake, bytes, size, 0);

    drain(&lone);
    check_pair(&lone, C_TRY, GOT_TRY, FAILS(RDMUX_PROTOCOL));
    free(lone.memory);
}

static void every_state_that_waits_for_the_peer_has_a_deadline(void **state)
{
    (void)state;
    static struct lone lone;
    for (size_t s = 0; s < STATE_COUNT; s++) {
        reach(&lone, (enum state)s);

        uint64_t deadline = rdmux_handshake_deadline(lone.handshake);

        if ((deadline == UINT64_MAX) != is_over((enum state)s)) {
            fail_msg("%s: deadline %llu", states[s].name, (unsigned long long)deadline);
        }
        rdmux_handshake_time(lone.handshake, deadline - 1);
        drain(&lone);
        check_pair(&lone, (enum state)s, TIMED_OUT, STAYS);
        free(lone.memory);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_event_in_every_state_does_what_the_table_says),
        cmocka_unit_test(frames_of_an_earlier_attempt_are_ignored_everywhere),
        cmocka_unit_test(frames_of_a_later_attempt_are_an_error_everywhere),
        cmocka_unit_test(a_frame_cut_short_or_too_long_is_an_error_everywhere),
        cmocka_unit_test(a_payload_that_ends_too_early_is_an_error_everywhere),
        cmocka_unit_test(an_attempt_at_another_pair_than_the_ranked_one_is_an_error),
        cmocka_unit_test(every_state_that_waits_for_the_peer_has_a_deadline),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
