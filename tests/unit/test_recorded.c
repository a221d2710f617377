/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Replays recorded handshakes to each side: later versions must understand an earlier version for
 * ever. tests/fixtures/handshakes/README.md has the format of the files.
 *
 * RDMUX_RECORD_HANDSHAKES=FOLDER test_recorded    records them anew instead */
#include "negotiation/handshake.h"

#include "negotiation/handshake_frames.h"
#include "negotiation/transcript.h"
#include "tests/unit/support/handshake_support.h"

#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

#ifdef RDMUX_SOURCE_DIR
#define FIXTURES RDMUX_SOURCE_DIR "/tests/fixtures/handshakes"
#else
#define FIXTURES "tests/fixtures/handshakes"
#endif

enum { FRAMES_MAX = 64, FRAME_MAX = 4096, HELLO_AT_LAST_FLAGS = 19 };

/* The offers of both sides, and the faults. */
struct scenario {
    const char *name;
    const char *says;
    bool other_host; /* shm does not reach */
    struct pair_fault acceptor_fault;
    struct pair_fault connector_fault;
};

/* clang-format off */
static const struct scenario scenarios[] = {
    { .name = "shm", .says = "Both are on one host: the first attempt, shm, is committed." },
    { .name = "tcp", .says = "Two hosts: shm is out of the question, tcp is committed.",
      .other_host = true },
    { .name = "fallback",
      .says = "shm cannot be connected by the connector; tcp, the second attempt, is committed.",
      .connector_fault = { 1, RDMUX_ACTION_CONNECT, PAIR_FAILS, RDMUX_IO,
                           RDMUX_REASON_CONNECT_FAILED, "cannot map the segment" } },
    { .name = "no_path",
      .says = "shm cannot be opened by the acceptor, tcp not by the connector: NO_PATH.",
      .acceptor_fault = { 1, RDMUX_ACTION_OPEN, PAIR_FAILS, RDMUX_NO_MEMORY,
                          RDMUX_REASON_OPEN_FAILED, "no shared memory left" },
      .connector_fault = { 2, RDMUX_ACTION_OPEN, PAIR_FAILS, RDMUX_NO_MEMORY,
                           RDMUX_REASON_OPEN_FAILED, "no descriptors left" } },
};
/* clang-format on */

struct recorded_frame {
    bool by_connector;
    size_t size;
    uint8_t bytes[FRAME_MAX];
};

struct recording {
    struct recorded_frame frames[FRAMES_MAX];
    size_t count;
    uint32_t done; /* the attempt committed; 0: NO_PATH */
};

static struct recording recording; /* 260 KB */

static void scenario_offer(const struct scenario *scenario, bool accepts, struct rdmux_offer *out)
{
    pair_offer(out, 2);
    if (scenario->other_host && !accepts) {
        out->paths[0].path.reach[1] = '2';
    }
    if (accepts) {
        memset(out->secret, 0x5e, sizeof(out->secret));
    } else {
        (void)memcpy(out->private_data, "from the connector", 18);
        out->private_length = 18;
    }
}

/* -------------------------------------------------------------------- files */

static const char *frame_name(const uint8_t *frame)
{
    static const char *const names[] = {
        "?",       "OFFER",  "RANKING", "TRY",     "READY",  "UP",
        "WRITTEN", "PROVED", "COMMIT",  "CONFIRM", "FAILED", "NO_PATH",
    };
    return frame[0] >= 0x40 ? "HELLO" : frame[0] < COUNT_OF(names) ? names[frame[0]] : "?";
}

static void open_path(char *out, size_t size, const char *folder, const char *name)
{
    int length = snprintf(out, size, "%s/%s.hex", folder, name);
    assert_true(length > 0 && (size_t)length < size);
}

static void save(const struct scenario *scenario, const char *folder)
{
    char path[4096];
    open_path(path, sizeof(path), folder, scenario->name);
    FILE *file = fopen(path, "w");
    if (file == NULL) {
        fail_msg("cannot write %s", path);
        return;
    }
    (void)fprintf(file, "# %s\n", scenario->says);
    if (recording.done != 0) {
        (void)fprintf(file, "done %u\n", (unsigned)recording.done);
    } else {
        (void)fprintf(file, "no-path\n");
    }
    for (size_t i = 0; i < recording.count; i++) {
        const struct recorded_frame *frame = &recording.frames[i];
        (void)fprintf(file, "\n%s # %s, %zu bytes", frame->by_connector ? "connector" : "acceptor",
                      frame_name(frame->bytes), frame->size);
        for (size_t k = 0; k < frame->size; k++) {
            (void)fprintf(file, "%s%02x",
                          k % 32 == 0  ? "\n    "
                          : k % 8 == 0 ? "  "
                                       : " ",
                          frame->bytes[k]);
        }
        (void)fprintf(file, "\n");
    }
    assert_int_equal(fclose(file), 0);
}

static void load_hex(const char *line, struct recorded_frame *frame)
{
    const char *at = line;
    char *end = NULL;
    for (unsigned long byte = strtoul(at, &end, 16); end != at; byte = strtoul(at, &end, 16)) {
        assert_true(byte <= 0xff && frame->size < FRAME_MAX);
        frame->bytes[frame->size++] = (uint8_t)byte;
        at = end;
    }
    while (isspace((unsigned char)*at)) {
        at++;
    }
    assert_int_equal(*at, '\0');
}

static void load_line(char *line)
{
    line[strcspn(line, "#\n")] = '\0';
    if (line[0] == ' ') {
        assert_true(recording.count > 0);
        load_hex(line, &recording.frames[recording.count - 1]);
    } else if (strncmp(line, "done ", 5) == 0) {
        recording.done = (uint32_t)strtoul(line + 5, NULL, 10);
    } else if (strncmp(line, "connector", 9) == 0 || strncmp(line, "acceptor", 8) == 0) {
        assert_true(recording.count < FRAMES_MAX);
        recording.frames[recording.count++].by_connector = line[0] == 'c';
    } else {
        assert_true(line[0] == '\0' || strcmp(line, "no-path") == 0);
    }
}

static void load(const struct scenario *scenario)
{
    char path[4096];
    char line[512];
    memset(&recording, 0, sizeof(recording));
    open_path(path, sizeof(path), FIXTURES, scenario->name);
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        fail_msg("cannot read %s", path);
        return;
    }
    while (fgets(line, sizeof(line), file) != NULL) {
        load_line(line);
    }
    (void)fclose(file);
    assert_true(recording.count > 0);
}

/* -------------------------------------------------------------------- recording */

/* Records the bytes sent to a side since the last call. */
static void note_sent(const struct pair_side *to, bool by_connector, size_t *seen)
{
    while (*seen < to->wire_end) {
        bool bad = false;
        size_t size = rdmux_frame_total(to->wire + *seen, to->wire_end - *seen, *seen == 0, &bad);
        assert_true(!bad && size > 0 && size <= FRAME_MAX && recording.count < FRAMES_MAX);
        struct recorded_frame *frame = &recording.frames[recording.count++];
        frame->by_connector = by_connector;
        frame->size = size;
        memcpy(frame->bytes, to->wire + *seen, size);
        *seen += size;
    }
}

static void record(const struct scenario *scenario)
{
    struct rdmux_offer *offers = calloc(2, sizeof(*offers));
    struct rdmux_handshake_config accepts;
    struct rdmux_handshake_config connects;
    struct pair pair;
    size_t seen[2] = { 0 };
    scenario_offer(scenario, true, &offers[0]);
    scenario_offer(scenario, false, &offers[1]);
    pair_config(&accepts, RDMUX_ROLE_ACCEPT, &offers[0]);
    pair_config(&connects, RDMUX_ROLE_CONNECT, &offers[1]);
    pair_start(&pair, &accepts, &connects);
    pair_add_fault(&pair.acceptor, &scenario->acceptor_fault);
    pair_add_fault(&pair.connector, &scenario->connector_fault);
    memset(&recording, 0, sizeof(recording));

    for (size_t moves = 0; moves < 1000; moves++) {
        note_sent(&pair.acceptor, true, &seen[0]);
        note_sent(&pair.connector, false, &seen[1]);
        pair_run_some(&pair, NULL, 1);
    }
    assert_true(pair_run(&pair, NULL));
    assert_null(pair_contradiction(&pair));
    recording.done = pair.acceptor.done ? pair.acceptor.end.attempt : 0;
    pair_finish(&pair);
    free(offers);
}

/* -------------------------------------------------------------------- playing */

/* How closely our bytes must match the recorded ones. */
enum strictness {
    EXACT,   /* every byte but RANKING's words and figures */
    OUTCOME, /* our offer has changed since: nothing of it, and the peer has no hash */
};

struct player {
    const struct scenario *scenario;
    enum strictness strictness;
    bool accepts;
    struct rdmux_handshake *handshake;
    void *memory;
    size_t next; /* our next frame in the recording is at or after this */
    size_t own;  /* frames we sent */
    bool first;  /* nothing was sent yet */
    struct rdmux_handshake_action end;
    uint8_t inbox[FRAME_MAX];
    size_t inbox_size;
    size_t read; /* frames and HELLO that came */
};

/* Bytes that depend on whether this build computes the hash. */
static void mask_hash(uint8_t *frame, size_t size)
{
    if (frame[0] >= 0x40) {
        frame[HELLO_AT_LAST_FLAGS] &= (uint8_t)~RDMUX_HELLO_HASH;
    } else if (frame[0] == RDMUX_FRAME_COMMIT || frame[0] == RDMUX_FRAME_CONFIRM) {
        memset(frame + RDMUX_FRAME_HEADER_SIZE + 4, 0, size - RDMUX_FRAME_HEADER_SIZE - 4);
    }
}

/* Texts and costs are no part of the protocol: the same pairs in the same order, with the same
 * reasons, will do. */
static void check_ranking(const struct scenario *scenario, const uint8_t *bytes, size_t size,
                          const struct recorded_frame *frame)
{
    static struct rdmux_offer offers[2];
    static struct rdmux_match actual[RDMUX_MATCH_MAX];
    static struct rdmux_match expected[RDMUX_MATCH_MAX];
    size_t actual_count = 0;
    size_t expected_count = 0;
    scenario_offer(scenario, false, &offers[0]);
    scenario_offer(scenario, true, &offers[1]);
    assert_int_equal(
        rdmux_ranking_decode(bytes, size, &offers[0], &offers[1], actual, &actual_count), RDMUX_OK);
    assert_int_equal(rdmux_ranking_decode(frame->bytes, frame->size, &offers[0], &offers[1],
                                          expected, &expected_count),
                     RDMUX_OK);
    assert_int_equal(actual_count, expected_count);
    for (size_t i = 0; i < actual_count; i++) {
        assert_int_equal(actual[i].ours, expected[i].ours);
        assert_int_equal(actual[i].theirs, expected[i].theirs);
        assert_int_equal(actual[i].rank, expected[i].rank);
        assert_int_equal(actual[i].reason, expected[i].reason);
    }
}

static void check_own_frame(struct player *player, const uint8_t *bytes, size_t size)
{
    static uint8_t expected[FRAME_MAX];
    static uint8_t actual[FRAME_MAX];
    while (player->next < recording.count &&
           recording.frames[player->next].by_connector == player->accepts) {
        player->next++;
    }
    assert_true(player->next < recording.count);
    const struct recorded_frame *frame = &recording.frames[player->next++];
    assert_int_equal(bytes[0], frame->bytes[0]);
    player->own++;
    if (player->strictness == OUTCOME) {
        return;
    }
    if (bytes[0] == RDMUX_FRAME_RANKING) {
        check_ranking(player->scenario, bytes, size, frame);
        return;
    }
    if (size != frame->size) {
        fail_msg("%s has %zu bytes, recorded were %zu", frame_name(bytes), size, frame->size);
    }
    memcpy(expected, frame->bytes, size);
    memcpy(actual, bytes, size);
    if (!rdmux_transcript_available()) {
        mask_hash(expected, size);
        mask_hash(actual, size);
    }
    if (memcmp(expected, actual, size) != 0) {
        fail_msg("%s differs from the recorded one", frame_name(bytes));
    }
}

static void check_own_bytes(struct player *player, const uint8_t *bytes, size_t size)
{
    size_t at = 0;
    while (at < size) {
        bool bad = false;
        size_t total = rdmux_frame_total(bytes + at, size - at, player->first, &bad);
        assert_true(!bad && total > 0 && total <= size - at);
        check_own_frame(player, bytes + at, total);
        player->first = false;
        at += total;
    }
}

static void answer(struct player *player, const struct rdmux_handshake_action *action)
{
    const struct pair_fault *fault = player->accepts ? &player->scenario->acceptor_fault
                                                     : &player->scenario->connector_fault;
    if (fault->attempt == action->attempt && fault->action == action->kind) {
        rdmux_handshake_result(player->handshake, action->kind, action->attempt, fault->status,
                               fault->reason, fault->text, NULL, 0, 0);
        return;
    }
    uint8_t bytes[PAIR_RESULT_MAX];
    size_t size = pair_result_bytes(player->accepts ? "acceptor" : "connector", action->kind,
                                    action->attempt, bytes);
    rdmux_handshake_result(player->handshake, action->kind, action->attempt, RDMUX_OK,
                           RDMUX_REASON_NONE, NULL, bytes, size, 0);
}

static void act(struct player *player)
{
    struct rdmux_handshake_action action;
    for (rdmux_handshake_next(player->handshake, &action); action.kind != RDMUX_ACTION_NONE;
         rdmux_handshake_next(player->handshake, &action)) {
        switch (action.kind) {
        case RDMUX_ACTION_SEND:
            check_own_bytes(player, action.bytes, action.size);
            break;
        case RDMUX_ACTION_OPEN:
        case RDMUX_ACTION_CONNECT:
        case RDMUX_ACTION_WRITE_PROOF:
        case RDMUX_ACTION_CHECK_PROOF:
        case RDMUX_ACTION_MEASURE:
            answer(player, &action);
            break;
        case RDMUX_ACTION_DONE:
        case RDMUX_ACTION_FAIL:
            player->end = action;
            break;
        case RDMUX_ACTION_NONE:
        case RDMUX_ACTION_CHOOSE:
        case RDMUX_ACTION_CLOSE_PATH:
            break;
        }
    }
}

/* Reads the bytes that have arrived, as a driver does. */
static void take_portion(struct player *player, const uint8_t *bytes, size_t size)
{
    memcpy(player->inbox + player->inbox_size, bytes, size);
    player->inbox_size += size;
    bool bad = false;
    size_t total = rdmux_frame_total(player->inbox, player->inbox_size, player->read == 0, &bad);
    assert_false(bad);
    if (total == 0 || total > player->inbox_size) {
        return;
    }
    assert_int_equal(total, player->inbox_size);
    if (player->read == 0 && player->strictness == OUTCOME) {
        player->inbox[HELLO_AT_LAST_FLAGS] &= (uint8_t)~RDMUX_HELLO_HASH;
    }
    player->inbox_size = 0;
    player->read++;
    rdmux_handshake_frame(player->handshake, player->inbox, total, 0);
    act(player);
}

static void play(const struct scenario *scenario, bool accepts, size_t portion,
                 enum strictness strictness)
{
    static struct player player; /* large */
    struct rdmux_offer *offer = calloc(1, sizeof(*offer));
    struct rdmux_handshake_config config;
    scenario_offer(scenario, accepts, offer);
    if (strictness == OUTCOME) {
        offer->setup_timeout_ms++;
    }
    pair_config(&config, accepts ? RDMUX_ROLE_ACCEPT : RDMUX_ROLE_CONNECT, offer);
    player = (struct player){
        .scenario = scenario, .strictness = strictness, .accepts = accepts, .first = true
    };
    player.memory = calloc(1, rdmux_handshake_size());
    assert_int_equal(rdmux_handshake_init(player.memory, &config, 0, &player.handshake), RDMUX_OK);
    act(&player);

    size_t own = 0;
    for (size_t i = 0; i < recording.count; i++) {
        const struct recorded_frame *frame = &recording.frames[i];
        if (frame->by_connector != accepts) {
            own++;
            continue;
        }
        for (size_t at = 0; at < frame->size; at += portion) {
            size_t left = frame->size - at;
            take_portion(&player, frame->bytes + at, left < portion ? left : portion);
        }
    }

    assert_int_equal(player.own, own);
    if (recording.done != 0) {
        assert_int_equal(player.end.kind, RDMUX_ACTION_DONE);
        assert_int_equal(player.end.attempt, recording.done);
    } else {
        assert_int_equal(player.end.kind, RDMUX_ACTION_FAIL);
        assert_int_equal(player.end.status, RDMUX_NO_PATH);
        assert_true(player.end.give_back);
    }
    free(player.memory);
    free(offer);
}

/* -------------------------------------------------------------------- tests */

/* HELLO has a field in host byte order; the recording host was little-endian. */
static void skip_on_big_endian(void)
{
    const uint16_t one = 1;
    uint8_t first;
    memcpy(&first, &one, 1);
    if (first == 0) {
        skip();
    }
}

static void each_side_sends_the_recorded_bytes_again(void **state)
{
    (void)state;
    skip_on_big_endian();
    static const size_t portions[] = { FRAME_MAX, 1, 7 };
    for (size_t i = 0; i < COUNT_OF(scenarios) * COUNT_OF(portions); i++) {
        const struct scenario *scenario = &scenarios[i / COUNT_OF(portions)];
        load(scenario);

        play(scenario, true, portions[i % COUNT_OF(portions)], EXACT);
        play(scenario, false, portions[i % COUNT_OF(portions)], EXACT);
    }
}

static void a_recorded_handshake_ends_the_same_when_our_offer_has_changed(void **state)
{
    (void)state;
    skip_on_big_endian();
    for (size_t i = 0; i < COUNT_OF(scenarios); i++) {
        load(&scenarios[i]);

        play(&scenarios[i], true, FRAME_MAX, OUTCOME);
        play(&scenarios[i], false, FRAME_MAX, OUTCOME);
    }
}

static void write_all(void **state)
{
    const char *folder = *state;
    if (!rdmux_transcript_available()) {
        fail_msg("this build has no transcript hash: it must not record");
    }
    for (size_t i = 0; i < COUNT_OF(scenarios); i++) {
        record(&scenarios[i]);
        save(&scenarios[i], folder);
    }
}

int main(void)
{
    char *folder = getenv("RDMUX_RECORD_HANDSHAKES");
    if (folder != NULL) {
        const struct CMUnitTest recorders[] = { cmocka_unit_test_prestate(write_all, folder) };
        return cmocka_run_group_tests(recorders, NULL, NULL);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_side_sends_the_recorded_bytes_again),
        cmocka_unit_test(a_recorded_handshake_ends_the_same_when_our_offer_has_changed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
