/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Two handshakes against each other: ends, timeouts, versions, and events in any order. */
#include "api/base/bytes.h"
#include "negotiation/message.h"
#include "negotiation/transcript.h"
#include "tests/unit/support/handshake_check.h"

#include <stdlib.h>
#include <string.h>

/* -------------------------------------------------------------------- the ends of a connection */

static void a_channel_lost_at_any_point_ends_both_and_leaves_no_path_open(void **state)
{
    (void)state;
    for (size_t moves = 0; moves < 40; moves++) {
        struct pair pair;
        pair_start_plain(&pair, 2);
        pair_run_some(&pair, NULL, moves);

        pair_lose(&pair);

        assert_consistent(&pair);
        assert_true(pair.acceptor.done || pair.acceptor.failed);
        assert_true(pair.connector.done || pair.connector.failed);
        struct pair_side *sides[] = { &pair.acceptor, &pair.connector };
        for (size_t i = 0; i < 2; i++) {
            assert_int_equal(sides[i]->path_open, sides[i]->done);
            if (sides[i]->failed) {
                assert_int_equal(sides[i]->end.status, RDMUX_PEER_GONE);
                assert_string_equal(sides[i]->end_text, "cut");
                assert_false(sides[i]->end.give_back);
            }
        }
        pair_finish(&pair);
    }
}

static void moves_until(struct pair *pair, struct pair_side *side, const char *state)
{
    for (size_t i = 0; i < 1000; i++) {
        if (strcmp(rdmux_handshake_state(side->handshake), state) == 0) {
            return;
        }
        pair_run_some(pair, NULL, 1);
    }
    fail_msg("%s never was %s", side->name, state);
}

static void a_connector_that_fails_while_commit_is_under_way_ends_both(void **state)
{
    (void)state;
    struct pair pair;
    pair_start_plain(&pair, 2);
    moves_until(&pair, &pair.acceptor, "waiting for CONFIRM");
    pair.connector.break_due = true;

    assert_true(pair_break(&pair, &pair.connector));
    run(&pair);

    assert_both_failed(&pair, RDMUX_PEER_GONE, RDMUX_IO);
    assert_int_equal(pair.acceptor.opened, 1);
    assert_false(pair.acceptor.end.give_back);
    assert_int_equal(pair_candidate(&pair.acceptor, 1)->stage, RDMUX_STAGE_COMMIT);
    pair_finish(&pair);
}

static void an_acceptor_whose_path_fails_after_commit_has_no_endpoint(void **state)
{
    (void)state;
    struct pair pair;
    pair_start_plain(&pair, 2);
    moves_until(&pair, &pair.acceptor, "waiting for CONFIRM");
    pair.acceptor.break_due = true;

    assert_true(pair_break(&pair, &pair.acceptor));
    run(&pair);

    /* COMMIT was in flight: the connector has an endpoint, which fails as the acceptor closes the
     * channel. */
    assert_true(pair.acceptor.failed);
    assert_int_equal(pair.acceptor.end.status, RDMUX_IO);
    assert_true(pair.connector.done);
    assert_int_equal(pair.acceptor.opened, 1);
    pair_finish(&pair);
}

static void an_acceptor_that_is_not_confirmed_in_time_has_no_endpoint(void **state)
{
    (void)state;
    struct pair pair;
    pair_start_plain(&pair, 2);
    moves_until(&pair, &pair.acceptor, "waiting for CONFIRM");

    assert_true(pair_wait(&pair));

    assert_true(pair.acceptor.failed);
    assert_int_equal(pair.acceptor.end.status, RDMUX_TIMED_OUT);
    assert_int_equal(pair.acceptor.closed, 1);
    pair_finish(&pair);
}

static void a_silent_peer_is_given_up_in_time(void **state)
{
    (void)state;
    struct pair pair;
    pair_start_plain(&pair, 1);

    assert_true(pair_wait(&pair));

    assert_both_failed(&pair, RDMUX_TIMED_OUT, RDMUX_TIMED_OUT);
    assert_int_equal(pair.now_ns, 1000 + UINT64_C(5000000000));
    pair_finish(&pair);
}

static void a_connector_may_wait_forever_to_be_accepted(void **state)
{
    (void)state;
    struct rdmux_offer *offer = calloc(1, sizeof(*offer));
    struct rdmux_handshake_config accepts;
    struct rdmux_handshake_config connects;
    pair_offer(offer, 1);
    pair_config(&accepts, RDMUX_ROLE_ACCEPT, offer);
    pair_config(&connects, RDMUX_ROLE_CONNECT, offer);
    connects.hello_timeout_ms = RDMUX_NEVER;
    struct pair pair;

    pair_start(&pair, &accepts, &connects);

    assert_true(rdmux_handshake_deadline(pair.connector.handshake) == UINT64_MAX);
    rdmux_handshake_time(pair.connector.handshake, UINT64_MAX);
    assert_string_equal(rdmux_handshake_state(pair.connector.handshake), "waiting for HELLO");
    pair_finish(&pair);
    free(offer);
}

static void a_connector_whose_acceptor_falls_silent_gives_up_by_itself(void **state)
{
    (void)state;
    /* At every state of the connector from RANKING on: the acceptor stops, its frames stop with
     * it. */
    for (size_t moves = 4; moves < 25; moves++) {
        struct pair pair;
        pair_start_plain(&pair, 2);
        pair_run_some(&pair, NULL, moves);
        struct pair_side *c = &pair.connector;
        for (size_t i = 0; i < 20 && !c->done && !c->failed; i++) {
            while (pair_deliver(&pair, c) || pair_answer(&pair, c, 0)) {
            }
            uint64_t deadline = rdmux_handshake_deadline(c->handshake);
            if (deadline == UINT64_MAX) {
                break;
            }
            rdmux_handshake_time(c->handshake, deadline);
            pair.now_ns = deadline;
            while (pair_answer(&pair, c, 7)) {
            }
            struct rdmux_handshake_action action;
            for (rdmux_handshake_next(c->handshake, &action); action.kind != RDMUX_ACTION_NONE;
                 rdmux_handshake_next(c->handshake, &action)) {
                c->failed = c->failed || action.kind == RDMUX_ACTION_FAIL;
                c->end = action;
            }
        }
        assert_true(c->done || c->failed);
        if (c->failed) {
            assert_int_equal(c->end.status, RDMUX_TIMED_OUT);
        }
        pair_finish(&pair);
    }
}

static void a_rejection_reaches_the_connector_with_its_reason(void **state)
{
    (void)state;
    for (size_t moves = 0; moves < 20; moves++) {
        struct pair pair;
        pair_start_plain(&pair, 2);
        pair_run_some(&pair, NULL, moves);
        if (pair.connector.done) {
            pair_finish(&pair);
            break;
        }
        struct rdmux_message message = { .type = RDMUX_FRAME_REJECT,
                                         .status = 77,
                                         .description_length = 3,
                                         .description = { 'w', 'h', 'y' } };
        uint8_t frame[RDMUX_MESSAGE_MAX];
        size_t size = rdmux_message_encode(&message, frame);

        rdmux_handshake_frame(pair.connector.handshake, frame, size, pair.now_ns);

        assert_int_equal(rdmux_handshake_reject_reason(pair.connector.handshake), 77);
        const uint8_t *data = rdmux_handshake_reject_data(pair.connector.handshake, &size);
        assert_int_equal(size, 3);
        assert_memory_equal(data, "why", 3);
        struct rdmux_handshake_action action;
        do {
            rdmux_handshake_next(pair.connector.handshake, &action);
        } while (action.kind != RDMUX_ACTION_FAIL && action.kind != RDMUX_ACTION_NONE);
        assert_int_equal(action.kind, RDMUX_ACTION_FAIL);
        assert_int_equal(action.status, RDMUX_REFUSED);
        pair_finish(&pair);
    }
}

/* -------------------------------------------------------------------- versions and hash */

/* Returns how the acceptor handles a connector's first bytes. */
static enum rdmux_status fate_of_hello(const uint8_t *bytes, size_t size, bool *answered)
{
    struct rdmux_offer *offer = calloc(1, sizeof(*offer));
    struct rdmux_handshake_config config;
    struct rdmux_handshake *handshake = NULL;
    struct rdmux_handshake_action action;
    void *memory = calloc(1, rdmux_handshake_size());
    pair_offer(offer, 1);
    pair_config(&config, RDMUX_ROLE_ACCEPT, offer);
    config.received = bytes;
    config.received_size = size;
    enum rdmux_status status = rdmux_handshake_init(memory, &config, 0, &handshake);
    *answered = false;
    do {
        rdmux_handshake_next(handshake, &action);
        *answered = *answered || action.kind == RDMUX_ACTION_SEND;
        status = action.kind == RDMUX_ACTION_FAIL ? action.status : status;
    } while (action.kind != RDMUX_ACTION_NONE);
    free(memory);
    free(offer);
    return status;
}

static void an_unsupported_hello_is_refused_with_the_right_status(void **state)
{
    (void)state;
    static const struct {
        const char *says;
        size_t at;
        uint8_t bytes[4];
        size_t count;
        enum rdmux_status status;
        bool answered;
    } cases[] = {
        { "good", 0, { 0 }, 0, RDMUX_OK, false },
        { "no magic", 0, { 'r' }, 1, RDMUX_PROTOCOL, false },
        { "only later versions", 8, { 0, 2, 0, 9 }, 4, RDMUX_VERSION, true },
        { "later versions too", 8, { 0, 1, 0, 9 }, 4, RDMUX_OK, false },
        { "another byte order", 12, { 1, 2, 3, 4 }, 4, RDMUX_VERSION, true },
        { "another epoch", 23, { 2 }, 1, RDMUX_PROTOCOL, false },
        { "a connection to resume", 64, { 1 }, 1, RDMUX_PROTOCOL, false },
        { "flags of a later version", 16, { 0xff }, 1, RDMUX_OK, false },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        uint8_t bytes[RDMUX_HELLO_SIZE];
        const struct rdmux_hello hello = { .version_min = 1, .version_max = 1, .epoch = 1 };
        rdmux_hello_encode(&hello, bytes);
        memcpy(bytes + cases[i].at, cases[i].bytes, cases[i].count);
        if (cases[i].at == 12 && bytes[12] == 1) {
            uint32_t swapped = UINT32_C(0x04030201);
            memcpy(bytes + 12, &swapped, 4);
        }
        bool answered;

        enum rdmux_status status = fate_of_hello(bytes, sizeof(bytes), &answered);

        if (status != cases[i].status || answered != cases[i].answered) {
            fail_msg("%s: status %d, answered %d", cases[i].says, (int)status, answered);
        }
    }
    bool answered;
    assert_int_equal(fate_of_hello((const uint8_t *)"RDMU", 4, &answered), RDMUX_PROTOCOL);
    assert_int_equal(fate_of_hello((const uint8_t *)"", 0, &answered), RDMUX_PROTOCOL);
}

/* Changes a byte of the connector's OFFER in flight; both sides still understand it. */
static void offers_changed_in_transit_end_the_connection_at_commit(void **state)
{
    (void)state;
    if (!rdmux_transcript_available()) {
        skip();
    }
    struct pair pair;
    pair_start_plain(&pair, 2);
    /* The process id is not looked at by the handshake. */
    pair.acceptor.wire[32] ^= 1;

    run(&pair);

    assert_true(pair.connector.failed);
    assert_int_equal(pair.connector.end.status, RDMUX_PROTOCOL);
    assert_true(pair.acceptor.failed);
    pair_finish(&pair);
}

static void a_wrong_hash_in_confirm_fails_the_acceptor(void **state)
{
    (void)state;
    if (!rdmux_transcript_available()) {
        skip();
    }
    struct pair pair;
    pair_start_plain(&pair, 2);
    moves_until(&pair, &pair.connector, "done");
    pair.acceptor.wire[pair.acceptor.wire_end - 1] ^= 1;

    run(&pair);

    assert_true(pair.acceptor.failed);
    assert_int_equal(pair.acceptor.end.status, RDMUX_PROTOCOL);
    pair_finish(&pair);
}

static void a_peer_that_sends_no_hash_is_accepted(void **state)
{
    (void)state;
    struct pair pair;
    pair_start_plain(&pair, 2);
    /* Both HELLOs lose the flag in flight, so each side believes that the other has no OpenSSL. */
    pair.acceptor.wire[19] &= (uint8_t)~RDMUX_HELLO_HASH;
    pair_deliver(&pair, &pair.acceptor);
    pair_deliver(&pair, &pair.acceptor);
    pair.connector.wire[19] &= (uint8_t)~RDMUX_HELLO_HASH;

    run(&pair);

    assert_true(pair.acceptor.done);
    assert_true(pair.connector.done);
    pair_finish(&pair);
}

/* -------------------------------------------------------------------- any order */

static void random_fault(struct pair_side *side, uint64_t *random)
{
    const struct pair_fault fault = {
        .attempt = (uint32_t)(pair_random(random) % 5),
        .action = steps[pair_random(random) % COUNT_OF(steps)],
        .kind = (enum pair_fault_kind)(pair_random(random) % (PAIR_LOSES + 1)),
        .status = RDMUX_IO,
    };
    pair_add_fault(side, &fault);
}

static void both_sides_agree_after_any_order_of_frames_results_and_faults(void **state)
{
    (void)state;
    size_t outcomes[3] = { 0 };
    for (uint64_t seed = 1; seed <= 4000; seed++) {
        uint64_t random = seed;
        struct pair pair;
        pair_start_plain(&pair, pair_random(&random) % 5);
        for (uint64_t i = pair_random(&random) % 4; i > 0; i--) {
            random_fault(&pair.acceptor, &random);
        }
        for (uint64_t i = pair_random(&random) % 4; i > 0; i--) {
            random_fault(&pair.connector, &random);
        }

        bool ended = pair_run(&pair, &random);

        if (!ended || pair_contradiction(&pair) != NULL) {
            fail_msg("seed %llu: %s; acceptor %s: %s; connector %s: %s", (unsigned long long)seed,
                     ended ? pair_contradiction(&pair) : "stuck",
                     rdmux_handshake_state(pair.acceptor.handshake), pair.acceptor.end_text,
                     rdmux_handshake_state(pair.connector.handshake), pair.connector.end_text);
        }
        outcomes[pair.acceptor.done ? 0 : pair.acceptor.end.give_back ? 1 : 2]++;
        pair_finish(&pair);
    }
    /* All three kinds of ends were among them. */
    assert_true(outcomes[0] > 500 && outcomes[1] > 100 && outcomes[2] > 100);
}

static void both_sides_agree_when_time_jumps_at_random(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 2000; seed++) {
        uint64_t random = seed;
        struct pair pair;
        pair_start_plain(&pair, 4);
        for (size_t i = 0; i < 200; i++) {
            pair_run_some(&pair, &random, pair_random(&random) % 8);
            if (pair_random(&random) % 4 == 0) {
                (void)pair_wait(&pair);
            }
        }

        bool ended = pair_run(&pair, &random);

        if (!ended || pair_contradiction(&pair) != NULL) {
            fail_msg("seed %llu: %s; acceptor: %s; connector: %s", (unsigned long long)seed,
                     ended ? pair_contradiction(&pair) : "stuck", pair.acceptor.end_text,
                     pair.connector.end_text);
        }
        pair_finish(&pair);
    }
}

/* -------------------------------------------------------------------- the driver's side */

static void a_configuration_without_role_or_offer_is_invalid(void **state)
{
    (void)state;
    struct rdmux_offer *offer = calloc(1, sizeof(*offer));
    struct rdmux_handshake_config config;
    struct rdmux_handshake *handshake = NULL;
    void *memory = calloc(1, rdmux_handshake_size());
    pair_offer(offer, 1);

    pair_config(&config, RDMUX_ROLE_CONNECT, NULL);
    assert_int_equal(rdmux_handshake_init(memory, &config, 0, &handshake), RDMUX_INVALID);
    pair_config(&config, (enum rdmux_role)0, offer);
    assert_int_equal(rdmux_handshake_init(memory, &config, 0, &handshake), RDMUX_INVALID);
    pair_config(&config, RDMUX_ROLE_CONNECT, offer);
    assert_int_equal(rdmux_handshake_init(NULL, &config, 0, &handshake), RDMUX_INVALID);
    assert_null(handshake);
    free(memory);
    free(offer);
}

static void a_description_that_is_too_long_fails_the_attempt_and_closes_the_path(void **state)
{
    (void)state;
    struct pair pair;
    pair_start_plain(&pair, 2);
    moves_until(&pair, &pair.acceptor, "opening");
    static const uint8_t bytes[RDMUX_DESCRIPTION_MAX + 1];

    rdmux_handshake_result(pair.acceptor.handshake, RDMUX_ACTION_OPEN, 1, RDMUX_OK,
                           RDMUX_REASON_NONE, NULL, bytes, sizeof(bytes), pair.now_ns);
    pair.acceptor.pending_count = 0;
    pair_drain(&pair);

    run(&pair);
    assert_true(pair.acceptor.done);
    assert_int_equal(pair.acceptor.end.attempt, 2);
    assert_int_equal(pair.acceptor.closed, 1);
    pair_finish(&pair);
}

static void a_driver_that_takes_no_actions_ends_the_handshake(void **state)
{
    (void)state;
    struct rdmux_offer *offer = calloc(1, sizeof(*offer));
    struct rdmux_handshake_config config;
    struct rdmux_handshake *handshake = NULL;
    void *memory = calloc(1, rdmux_handshake_size());
    pair_offer(offer, 4);
    pair_config(&config, RDMUX_ROLE_ACCEPT, offer);
    struct pair pair;
    pair_start_plain(&pair, 4);
    config.received = pair.acceptor.wire;
    config.received_size = pair.acceptor.wire_end;
    assert_int_equal(rdmux_handshake_init(memory, &config, 0, &handshake), RDMUX_OK);

    for (uint32_t attempt = 1; attempt <= 4; attempt++) {
        struct rdmux_attempt_frame failed = { .type = RDMUX_FRAME_FAILED, .attempt = attempt };
        uint8_t bytes[RDMUX_ATTEMPT_FRAME_MAX];
        size_t size = rdmux_attempt_frame_encode(&failed, bytes);
        rdmux_handshake_frame(handshake, bytes, size, 0);
    }

    struct rdmux_handshake_action action;
    struct rdmux_handshake_action last = { .kind = RDMUX_ACTION_NONE };
    for (rdmux_handshake_next(handshake, &action); action.kind != RDMUX_ACTION_NONE;
         rdmux_handshake_next(handshake, &action)) {
        last = action;
    }
    assert_int_equal(last.kind, RDMUX_ACTION_FAIL);
    assert_int_equal(last.status, RDMUX_NO_MEMORY);
    pair_finish(&pair);
    free(memory);
    free(offer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_channel_lost_at_any_point_ends_both_and_leaves_no_path_open),
        cmocka_unit_test(a_connector_that_fails_while_commit_is_under_way_ends_both),
        cmocka_unit_test(an_acceptor_whose_path_fails_after_commit_has_no_endpoint),
        cmocka_unit_test(an_acceptor_that_is_not_confirmed_in_time_has_no_endpoint),
        cmocka_unit_test(a_silent_peer_is_given_up_in_time),
        cmocka_unit_test(a_connector_may_wait_forever_to_be_accepted),
        cmocka_unit_test(a_connector_whose_acceptor_falls_silent_gives_up_by_itself),
        cmocka_unit_test(a_rejection_reaches_the_connector_with_its_reason),
        cmocka_unit_test(an_unsupported_hello_is_refused_with_the_right_status),
        cmocka_unit_test(offers_changed_in_transit_end_the_connection_at_commit),
        cmocka_unit_test(a_wrong_hash_in_confirm_fails_the_acceptor),
        cmocka_unit_test(a_peer_that_sends_no_hash_is_accepted),
        cmocka_unit_test(both_sides_agree_after_any_order_of_frames_results_and_faults),
        cmocka_unit_test(both_sides_agree_when_time_jumps_at_random),
        cmocka_unit_test(a_configuration_without_role_or_offer_is_invalid),
        cmocka_unit_test(a_description_that_is_too_long_fails_the_attempt_and_closes_the_path),
        cmocka_unit_test(a_driver_that_takes_no_actions_ends_the_handshake),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
