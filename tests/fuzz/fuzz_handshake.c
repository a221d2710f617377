/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The handshake against a stranger and a driver that may do anything. An input is a role, then
 * operations: raw frames, well-formed frames at any moment, results, and time. */
#include "driver.h"

#include "api/base/bytes.h"
#include "negotiation/handshake.h"
#include "negotiation/handshake_frames.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum operation {
    RAW_FRAME, /* u16 length, bytes */
    HELLO,     /* u8 flags */
    OFFER,
    RANKING,       /* u8 count */
    ATTEMPT_FRAME, /* u8 type, u8 attempt relative to ours, u8 whatever */
    TRUE_FRAME,    /* u8 type: the frame that a good peer would send now */
    RESULT,        /* u8 kind, u8 status, u8 attempt relative to ours, u8 size */
    GOOD_RESULT,   /* of the last requested action */
    PATH_FAILED,
    LOST,
    TIME, /* advances to the deadline */
    OPERATION_COUNT,
};

struct input {
    const uint8_t *at;
    size_t left;
};

struct run {
    struct rdmux_handshake *handshake;
    struct rdmux_handshake_action asked; /* the last action with a result */
    uint32_t attempt;
    uint64_t now_ns;
    bool over;
    bool path_open;
};

static void check(bool good, const char *text)
{
    if (!good) {
        (void)fprintf(stderr, "fuzz_handshake: %s\n", text);
        abort();
    }
}

static uint8_t take(struct input *input)
{
    if (input->left == 0) {
        return 0;
    }
    input->left--;
    return *input->at++;
}

static enum rdmux_reason reaches(const uint8_t *ours, size_t ours_length, const uint8_t *theirs,
                                 size_t theirs_length, char *text)
{
    (void)ours;
    (void)ours_length;
    (void)theirs;
    (void)theirs_length;
    text[0] = '\0';
    return RDMUX_REASON_NONE;
}

static void make_offer(struct rdmux_offer *out)
{
    static const char *const providers[] = { "shm", "tcp" };
    memset(out, 0, sizeof(*out));
    out->path_count = 2;
    out->max_send = 1000;
    out->max_recv = 1000;
    out->liveness_ms = 1000;
    out->data_sockets = 1;
    out->path_timeout_ms = 2000;
    for (size_t i = 0; i < 2; i++) {
        (void)snprintf(out->paths[i].provider, RDMUX_NAME_MAX, "%s", providers[i]);
        out->paths[i].path.reason = RDMUX_REASON_USABLE;
        out->paths[i].path.latency_ns = (uint32_t)(100 * (i + 1));
        out->paths[i].reach = reaches;
    }
}

static void drain(struct run *run)
{
    struct rdmux_handshake_action action;
    for (rdmux_handshake_next(run->handshake, &action); action.kind != RDMUX_ACTION_NONE;
         rdmux_handshake_next(run->handshake, &action)) {
        check(!run->over, "an action after the end");
        run->attempt = action.attempt != 0 ? action.attempt : run->attempt;
        switch (action.kind) {
        case RDMUX_ACTION_OPEN:
            check(!run->path_open, "OPEN with a path open");
            run->path_open = true;
            run->asked = action;
            break;
        case RDMUX_ACTION_CONNECT:
        case RDMUX_ACTION_WRITE_PROOF:
        case RDMUX_ACTION_CHECK_PROOF:
        case RDMUX_ACTION_MEASURE:
            check(run->path_open, "a step without a path");
            run->asked = action;
            break;
        case RDMUX_ACTION_CHOOSE:
            check(false, "CHOOSE without a move");
            break;
        case RDMUX_ACTION_CLOSE_PATH:
            check(run->path_open, "CLOSE_PATH without a path");
            run->path_open = false;
            break;
        case RDMUX_ACTION_FAIL:
            check(!run->path_open, "FAIL with a path open");
            check(action.status != RDMUX_OK && action.text[0] != '\0', "FAIL without a cause");
            run->over = true;
            break;
        case RDMUX_ACTION_DONE:
            /* Attempt 0: an explanation. */
            check(run->path_open || action.attempt == 0, "DONE without a path");
            run->over = true;
            break;
        case RDMUX_ACTION_SEND: {
            uint8_t sum = 0;
            for (size_t i = 0; i < action.size; i++) {
                sum = (uint8_t)(sum + action.bytes[i]);
            }
            check(action.size > 0 || sum == 0, "SEND of nothing");
            break;
        }
        case RDMUX_ACTION_NONE:
            break;
        }
    }
    static struct rdmux_candidate candidates[RDMUX_MATCH_MAX];
    size_t count = rdmux_handshake_candidates(run->handshake, candidates, RDMUX_MATCH_MAX);
    for (size_t i = 0; i < count; i++) {
        check(memchr(candidates[i].text, 0, RDMUX_TEXT_MAX) != NULL, "a text without end");
        check(memchr(candidates[i].provider, 0, RDMUX_NAME_MAX) != NULL, "a name without end");
    }
}

static void give_frame(struct run *run, const uint8_t *frame, size_t size)
{
    uint8_t *exact = malloc(size + 1);
    check(exact != NULL, "out of memory");
    memcpy(exact, frame, size);
    rdmux_handshake_frame(run->handshake, exact, size, run->now_ns);
    free(exact);
}

static void give_raw(struct run *run, struct input *input)
{
    size_t size = (size_t)take(input) << 8;
    size |= take(input);
    size = size < input->left ? size : input->left;
    give_frame(run, input->at, size);
    input->at += size;
    input->left -= size;
}

static void give_opening(struct run *run, struct input *input, enum operation operation)
{
    static struct rdmux_offer offer;
    static struct rdmux_match matches[RDMUX_MATCH_MAX];
    static uint8_t bytes[RDMUX_FRAME_HEADER_SIZE + RDMUX_OFFER_BYTES_MAX];
    size_t size = RDMUX_OFFER_BYTES_MAX;
    make_offer(&offer);
    if (operation == HELLO) {
        const struct rdmux_hello hello = {
            .version_min = 1, .version_max = 1, .epoch = 1, .flags = take(input) & 0x13U
        };
        rdmux_hello_encode(&hello, bytes);
        give_frame(run, bytes, RDMUX_HELLO_SIZE);
    } else if (operation == OFFER) {
        check(rdmux_offer_encode(&offer, bytes + RDMUX_FRAME_HEADER_SIZE, &size) == RDMUX_OK,
              "OFFER");
        rdmux_frame_header_encode(RDMUX_FRAME_OFFER, 0, size, bytes);
        give_frame(run, bytes, RDMUX_FRAME_HEADER_SIZE + size);
    } else {
        size_t count = rdmux_match_paths(&offer, &offer, 4096, matches);
        size_t wanted = take(input) % (count + 1);
        give_frame(run, bytes, rdmux_ranking_encode(matches, wanted, bytes));
    }
}

static void give_attempt_frame(struct run *run, struct input *input, bool is_true)
{
    struct rdmux_attempt_frame frame = {
        .type = (enum rdmux_frame_type)(RDMUX_FRAME_TRY + take(input) % 9),
        .attempt = run->attempt,
        .text = "text",
    };
    if (!is_true) {
        frame.attempt += (uint32_t)(int8_t)take(input) % 3;
        frame.size = take(input);
        frame.reason = frame.size;
        frame.stage = frame.size % 6;
        memset(frame.bytes, frame.size, frame.size);
    }
    frame.attempt = frame.attempt == 0 ? 1 : frame.attempt;
    frame.acceptor_path = (uint16_t)(frame.attempt - 1);
    frame.connector_path = frame.acceptor_path;
    uint8_t bytes[RDMUX_ATTEMPT_FRAME_MAX];
    give_frame(run, bytes, rdmux_attempt_frame_encode(&frame, bytes));
}

static void give_result(struct run *run, struct input *input)
{
    static const uint8_t bytes[256] = { 1, 2, 3 };
    enum rdmux_handshake_action_kind kind = (enum rdmux_handshake_action_kind)(RDMUX_ACTION_OPEN +
                                                                               take(input) % 5);
    enum rdmux_status status = (enum rdmux_status)(take(input) % (RDMUX_IO + 1));
    uint32_t attempt = run->attempt - take(input) % 2;
    if (kind == RDMUX_ACTION_OPEN && status != RDMUX_OK && attempt == run->attempt &&
        strcmp(rdmux_handshake_state(run->handshake), "opening") == 0) {
        run->path_open = false;
    }
    if (kind == RDMUX_ACTION_MEASURE && status == RDMUX_OK) {
        const struct rdmux_measured measured = { 1 + (uint64_t)take(input), take(input) };
        rdmux_handshake_measured(run->handshake, attempt, &measured, run->now_ns);
        return;
    }
    rdmux_handshake_result(run->handshake, kind, attempt, status, RDMUX_REASON_NONE, "result",
                           bytes, take(input), run->now_ns);
}

static void operate(struct run *run, struct input *input)
{
    enum operation operation = (enum operation)(take(input) % OPERATION_COUNT);
    switch (operation) {
    case RAW_FRAME:
        give_raw(run, input);
        break;
    case HELLO:
    case OFFER:
    case RANKING:
        give_opening(run, input, operation);
        break;
    case ATTEMPT_FRAME:
    case TRUE_FRAME:
        give_attempt_frame(run, input, operation == TRUE_FRAME);
        break;
    case RESULT:
        give_result(run, input);
        break;
    case GOOD_RESULT:
        if (run->asked.kind == RDMUX_ACTION_MEASURE) {
            const struct rdmux_measured good = { 1000, 1000 };
            rdmux_handshake_measured(run->handshake, run->asked.attempt, &good, run->now_ns);
            break;
        }
        rdmux_handshake_result(run->handshake, run->asked.kind, run->asked.attempt, RDMUX_OK,
                               RDMUX_REASON_NONE, NULL, (const uint8_t *)"good", 4, run->now_ns);
        break;
    case PATH_FAILED:
        rdmux_handshake_path_failed(run->handshake, RDMUX_IO, "broke", run->now_ns);
        break;
    case LOST:
        rdmux_handshake_lost(run->handshake, RDMUX_PEER_GONE, NULL, run->now_ns);
        break;
    case TIME:
    case OPERATION_COUNT:
        if (rdmux_handshake_deadline(run->handshake) != UINT64_MAX) {
            run->now_ns = rdmux_handshake_deadline(run->handshake);
        }
        rdmux_handshake_time(run->handshake, run->now_ns);
        break;
    }
    drain(run);
}

/* An accepted frame must encode to its own bytes again, except that a text loses its control
 * characters. */
static void check_decoders(const uint8_t *data, size_t size)
{
    struct rdmux_attempt_frame frame;
    uint8_t bytes[RDMUX_ATTEMPT_FRAME_MAX];
    if (rdmux_attempt_frame_decode(data, size, &frame) == RDMUX_OK) {
        size_t again = rdmux_attempt_frame_encode(&frame, bytes);
        check(frame.type == RDMUX_FRAME_FAILED || again == size, "another size");
    }
    static struct rdmux_offer offer;
    static struct rdmux_match matches[RDMUX_MATCH_MAX];
    size_t count = 0;
    make_offer(&offer);
    if (rdmux_ranking_decode(data, size, &offer, &offer, matches, &count) == RDMUX_OK) {
        check(count <= RDMUX_MATCH_MAX, "too many entries");
    }
}

/* The same with a header and a length that fit the input (docs/WIRE.md), so that the code behind
 * those checks is reached often. */
static void check_whole(const uint8_t *data, size_t size)
{
    static const struct {
        enum rdmux_frame_type type;
        size_t at_length;
        size_t fixed;
    } kinds[] = {
        { RDMUX_FRAME_TRY, 8, 12 },
        { RDMUX_FRAME_READY, 4, 8 },
        { RDMUX_FRAME_UP, 4, 8 },
        { RDMUX_FRAME_FAILED, 10, 12 },
    };
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]) && size >= kinds[i].fixed; i++) {
        uint8_t *frame = malloc(RDMUX_FRAME_HEADER_SIZE + size);
        check(frame != NULL, "out of memory");
        rdmux_frame_header_encode(kinds[i].type, 0, size, frame);
        memcpy(frame + RDMUX_FRAME_HEADER_SIZE, data, size);
        rdmux_store_be16(frame + RDMUX_FRAME_HEADER_SIZE + kinds[i].at_length,
                         (uint16_t)(size - kinds[i].fixed));
        check_decoders(frame, RDMUX_FRAME_HEADER_SIZE + size);
        free(frame);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct rdmux_offer offer;
    struct input input = { data, size };
    uint8_t mode = take(&input);
    check_decoders(input.at, input.left);
    if (input.left <= UINT16_MAX) {
        check_whole(input.at, input.left);
    }
    make_offer(&offer);
    struct rdmux_handshake_config config = {
        .role = (mode & 1) != 0 ? RDMUX_ROLE_ACCEPT : RDMUX_ROLE_CONNECT,
        .hello_timeout_ms = 5000,
        .offer = &offer,
    };
    if ((mode & 4) != 0) {
        config.hello.flags |= RDMUX_HELLO_MEASURE;
    }
    if ((mode & 2) != 0) {
        config.received = input.at;
        config.received_size = input.left;
    }
    void *memory = calloc(1, rdmux_handshake_size());
    struct run run = { .asked = { .kind = RDMUX_ACTION_OPEN } };
    check(memory != NULL, "out of memory");
    check(rdmux_handshake_init(memory, &config, 0, &run.handshake) == RDMUX_OK, "init");
    drain(&run);
    while (input.left > 0) {
        operate(&run, &input);
    }
    free(memory);
    return 0;
}
