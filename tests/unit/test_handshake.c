/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Two handshakes against each other: success, every failure, no path. */
#include "negotiation/transcript.h"
#include "tests/unit/support/handshake_check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* -------------------------------------------------------------------- success */

static void two_sides_agree_on_the_cheapest_path(void **state)
{
    (void)state;
    struct pair pair;
    pair_start_plain(&pair, 3);

    run(&pair);

    assert_true(pair.acceptor.done);
    assert_true(pair.connector.done);
    assert_int_equal(pair.acceptor.end.attempt, 1);
    struct pair_side *sides[] = { &pair.acceptor, &pair.connector };
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(sides[i]->candidate_count, 3);
        assert_string_equal(pair_candidate(sides[i], 1)->provider, "shm");
        assert_int_equal(pair_candidate(sides[i], 1)->reason, RDMUX_REASON_CHOSEN);
        assert_int_equal(pair_candidate(sides[i], 1)->stage, RDMUX_STAGE_COMMIT);
        assert_int_equal(pair_candidate(sides[i], 2)->reason, RDMUX_REASON_SLOWER);
        assert_int_equal(pair_candidate(sides[i], 3)->reason, RDMUX_REASON_SLOWER);
        assert_true(sides[i]->path_open);
        assert_int_equal(sides[i]->closed, 0);
    }
    pair_finish(&pair);
}

static void the_connector_sends_before_it_hears_the_acceptor(void **state)
{
    (void)state;
    struct rdmux_offer *offer = calloc(1, sizeof(*offer));
    struct rdmux_handshake_config config;
    struct rdmux_handshake *handshake = NULL;
    struct rdmux_handshake_action action;
    void *memory = calloc(1, rdmux_handshake_size());
    pair_offer(offer, 1);
    pair_config(&config, RDMUX_ROLE_CONNECT, offer);

    assert_int_equal(rdmux_handshake_init(memory, &config, 0, &handshake), RDMUX_OK);
    rdmux_handshake_next(handshake, &action);

    assert_int_equal(action.kind, RDMUX_ACTION_SEND);
    struct rdmux_hello hello;
    assert_int_equal(rdmux_hello_decode(action.bytes, RDMUX_HELLO_SIZE, &hello), RDMUX_OK);
    assert_int_equal(hello.version_min, RDMUX_WIRE_VERSION);
    assert_int_equal((hello.flags & RDMUX_HELLO_HASH) != 0, rdmux_transcript_available());
    assert_int_equal(action.bytes[RDMUX_HELLO_SIZE], RDMUX_FRAME_OFFER);
    rdmux_handshake_next(handshake, &action);
    assert_int_equal(action.kind, RDMUX_ACTION_NONE);
    free(memory);
    free(offer);
}

static void an_acceptor_uses_the_bytes_read_before_accept(void **state)
{
    (void)state;
    struct rdmux_offer *offer = calloc(1, sizeof(*offer));
    struct rdmux_handshake_config connects;
    struct rdmux_handshake_config accepts;
    pair_offer(offer, 2);
    pair_config(&connects, RDMUX_ROLE_CONNECT, offer);
    pair_config(&accepts, RDMUX_ROLE_ACCEPT, offer);
    struct pair first;
    pair_start(&first, &accepts, &connects);
    accepts.received = first.acceptor.wire;
    accepts.received_size = first.acceptor.wire_end;

    struct pair pair;
    pair_start(&pair, &accepts, &connects);
    pair.acceptor.wire_begin = pair.acceptor.wire_end;
    pair.acceptor.received = 2;
    run(&pair);

    assert_true(pair.acceptor.done);
    assert_true(pair.connector.done);
    pair_finish(&pair);
    pair_finish(&first);
    free(offer);
}

static void each_limit_granted_is_the_smaller_of_both_sides(void **state)
{
    (void)state;
    struct rdmux_offer *offers = calloc(2, sizeof(*offers));
    struct rdmux_handshake_config accepts;
    struct rdmux_handshake_config connects;
    pair_offer(&offers[0], 1);
    pair_offer(&offers[1], 1);
    offers[0].max_send = 100;
    offers[0].max_recv = 200;
    offers[0].liveness_ms = 700;
    offers[0].data_sockets = 4;
    offers[0].path_timeout_ms = 900;
    memset(offers[0].secret, 7, sizeof(offers[0].secret));
    offers[1].max_send = 150;
    offers[1].max_recv = 50;
    offers[1].liveness_ms = RDMUX_NEVER;
    offers[1].data_sockets = 2;
    offers[1].path_timeout_ms = 1000;
    pair_config(&accepts, RDMUX_ROLE_ACCEPT, &offers[0]);
    pair_config(&connects, RDMUX_ROLE_CONNECT, &offers[1]);
    struct pair pair;
    pair_start(&pair, &accepts, &connects);

    run(&pair);

    const struct rdmux_handshake_granted *a = rdmux_handshake_granted(pair.acceptor.handshake);
    const struct rdmux_handshake_granted *c = rdmux_handshake_granted(pair.connector.handshake);
    assert_int_equal(a->version, RDMUX_WIRE_VERSION);
    assert_int_equal(a->max_send, 50);
    assert_int_equal(a->max_recv, 150);
    assert_int_equal(c->max_send, 150);
    assert_int_equal(c->max_recv, 50);
    assert_int_equal(a->liveness_ms, 700);
    assert_int_equal(c->liveness_ms, 700);
    assert_int_equal(a->data_sockets, 2);
    assert_int_equal(c->data_sockets, 2);
    assert_int_equal(a->path_timeout_ms, 900);
    assert_int_equal(c->path_timeout_ms, 900);
    assert_memory_equal(a->secret, offers[0].secret, sizeof(a->secret));
    assert_memory_equal(c->secret, offers[0].secret, sizeof(c->secret));
    assert_int_equal(rdmux_handshake_peer_offer(pair.acceptor.handshake)->max_send, 150);
    assert_non_null(rdmux_handshake_peer_hello(pair.connector.handshake));
    pair_finish(&pair);
    free(offers);
}

/* The path of rank 1 takes 1000 bytes and fails, that of rank 2 takes 2000. */
static void a_wish_is_granted_as_far_as_the_path_takes_it(void **state)
{
    (void)state;
    for (size_t failing = 0; failing < 2; failing++) {
        struct rdmux_offer *offers = calloc(2, sizeof(*offers));
        struct rdmux_handshake_config accepts;
        struct rdmux_handshake_config connects;
        pair_offer(&offers[0], 2);
        pair_offer(&offers[1], 2);
        offers[0].max_send = 3000;
        offers[0].send_wish = 1;
        offers[1].max_send = 500;
        offers[0].paths[0].path.max_message = 1000;
        offers[0].paths[1].path.max_message = 2000;
        pair_config(&accepts, RDMUX_ROLE_ACCEPT, &offers[0]);
        pair_config(&connects, RDMUX_ROLE_CONNECT, &offers[1]);
        const struct pair_fault fault = { .attempt = 1,
                                          .action = RDMUX_ACTION_CONNECT,
                                          .kind = PAIR_FAILS,
                                          .status = RDMUX_IO,
                                          .text = "on purpose" };
        struct pair pair;
        pair_start(&pair, &accepts, &connects);
        if (failing != 0) {
            pair_add_fault(&pair.connector, &fault);
        }

        run(&pair);

        const uint64_t granted = failing != 0 ? 2000 : 1000;
        const struct rdmux_handshake_granted *a = rdmux_handshake_granted(pair.acceptor.handshake);
        const struct rdmux_handshake_granted *c = rdmux_handshake_granted(pair.connector.handshake);
        assert_int_equal(a->max_send, granted);
        assert_int_equal(c->max_recv, granted);
        assert_int_equal(c->max_send, 500);
        assert_int_equal(a->max_recv, 500);
        const uint32_t rank = failing != 0 ? 2 : 1;
        assert_non_null(strstr(pair_candidate(&pair.connector, rank)->text,
                               "; the acceptor wishes to send messages of 3000 bytes, this path "
                               "takes "));
        pair_finish(&pair);
        free(offers);
    }
}

static void impossible_limits_of_a_peer_are_corrected(void **state)
{
    (void)state;
    struct rdmux_offer *offers = calloc(2, sizeof(*offers));
    struct rdmux_handshake_config accepts;
    struct rdmux_handshake_config connects;
    pair_offer(&offers[0], 1);
    pair_offer(&offers[1], 1);
    offers[1].liveness_ms = 0;
    offers[0].data_sockets = 1000;
    offers[1].data_sockets = 1000;
    offers[1].path_timeout_ms = 0;
    pair_config(&accepts, RDMUX_ROLE_ACCEPT, &offers[0]);
    pair_config(&connects, RDMUX_ROLE_CONNECT, &offers[1]);
    struct pair pair;
    pair_start(&pair, &accepts, &connects);

    run(&pair);

    const struct rdmux_handshake_granted *a = rdmux_handshake_granted(pair.acceptor.handshake);
    assert_int_equal(a->liveness_ms, 100);
    assert_int_equal(a->data_sockets, 16);
    assert_int_equal(a->path_timeout_ms, 2000);
    pair_finish(&pair);
    free(offers);
}

static void the_connectors_expected_size_takes_precedence_over_the_acceptors(void **state)
{
    (void)state;
    /* shm: 100 ns and 1 GB/s. tcp: 10 us and 100 GB/s. They cost the same for 10,000 bytes. */
    static const struct {
        uint64_t connector_size;
        uint64_t acceptor_size;
        uint32_t connector_prefers;
        uint32_t acceptor_prefers;
        const char *best;
    } cases[] = {
        { 0, 0, 0, 0, "shm" },
        { 1 << 20, 0, 0, 0, "tcp" },
        { 0, 1 << 20, 0, 0, "tcp" },
        { 64, 1 << 20, 0, 0, "shm" },
        { 0, 0, RDMUX_PREFER_BANDWIDTH, 0, "tcp" },
        { 0, 0, RDMUX_PREFER_LATENCY, RDMUX_PREFER_BANDWIDTH, "shm" },
        { 0, 0, 0, RDMUX_PREFER_BANDWIDTH, "tcp" },
        { 64, 0, RDMUX_PREFER_BANDWIDTH, 0, "shm" },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct rdmux_offer *offers = calloc(2, sizeof(*offers));
        struct rdmux_handshake_config accepts;
        struct rdmux_handshake_config connects;
        for (size_t k = 0; k < 2; k++) {
            pair_offer(&offers[k], 2);
            offers[k].paths[0].path.bandwidth = UINT64_C(1000000000);
            offers[k].paths[1].path.latency_ns = 10000;
            offers[k].paths[1].path.bandwidth = UINT64_C(100000000000);
            offers[k].typical_size = k == 0 ? cases[i].acceptor_size : cases[i].connector_size;
            offers[k].prefer = k == 0 ? cases[i].acceptor_prefers : cases[i].connector_prefers;
        }
        pair_config(&accepts, RDMUX_ROLE_ACCEPT, &offers[0]);
        pair_config(&connects, RDMUX_ROLE_CONNECT, &offers[1]);
        struct pair pair;
        pair_start(&pair, &accepts, &connects);

        run(&pair);

        assert_string_equal(pair_candidate(&pair.connector, 1)->provider, cases[i].best);
        pair_finish(&pair);
        free(offers);
    }
}

/* The two actions that follow the connector's OPEN. */
static void after_open(uint32_t flags, enum rdmux_handshake_action_kind kinds[2])
{
    struct rdmux_offer *offer = calloc(1, sizeof(*offer));
    struct rdmux_handshake_config accepts;
    struct rdmux_handshake_config connects;
    pair_offer(offer, 1);
    pair_config(&accepts, RDMUX_ROLE_ACCEPT, offer);
    pair_config(&connects, RDMUX_ROLE_CONNECT, offer);
    connects.hello.flags = flags;
    struct pair pair;
    pair_start(&pair, &accepts, &connects);
    while (pair.connector.opened == 0) {
        pair_run_some(&pair, NULL, 1);
    }

    rdmux_handshake_result(pair.connector.handshake, RDMUX_ACTION_OPEN, 1, RDMUX_OK,
                           RDMUX_REASON_NONE, NULL, NULL, 0, pair.now_ns);
    for (size_t i = 0; i < 2; i++) {
        struct rdmux_handshake_action action;
        rdmux_handshake_next(pair.connector.handshake, &action);
        kinds[i] = action.kind;
        assert_true(action.kind != RDMUX_ACTION_SEND || action.bytes[0] == RDMUX_FRAME_READY);
    }
    pair_finish(&pair);
    free(offer);
}

static void the_connector_connects_before_it_sends_ready(void **state)
{
    (void)state;
    enum rdmux_handshake_action_kind kinds[2];

    after_open(0, kinds);

    assert_int_equal(kinds[0], RDMUX_ACTION_CONNECT);
    assert_int_equal(kinds[1], RDMUX_ACTION_SEND);
}

static void ready_precedes_the_bytes_of_the_path_on_an_adopted_socket(void **state)
{
    (void)state;
    enum rdmux_handshake_action_kind kinds[2];

    after_open(RDMUX_HELLO_ADOPTED, kinds);

    assert_int_equal(kinds[0], RDMUX_ACTION_SEND);
    assert_int_equal(kinds[1], RDMUX_ACTION_CONNECT);
}

/* -------------------------------------------------------------------- failures */

static void a_failure_at_any_step_of_either_side_leads_to_the_next_path(void **state)
{
    (void)state;
    static const enum pair_fault_kind kinds[] = { PAIR_FAILS, PAIR_HANGS, PAIR_BREAKS };
    for (size_t i = 0; i < COUNT_OF(steps) * COUNT_OF(kinds) * 2; i++) {
        struct pair pair;
        pair_start_plain(&pair, 3);
        struct pair_side *side = i % 2 == 0 ? &pair.acceptor : &pair.connector;
        const struct pair_fault fault = {
            .attempt = 1,
            .action = steps[i / 2 % COUNT_OF(steps)],
            .kind = kinds[i / 2 / COUNT_OF(steps)],
            .status = RDMUX_NO_MEMORY,
            .reason = RDMUX_REASON_MEMLOCK_TOO_LOW,
            .text = "raise ulimit -l",
        };
        pair_add_fault(side, &fault);

        run(&pair);

        if (fault.kind == PAIR_BREAKS && fault.action == RDMUX_ACTION_CHECK_PROOF &&
            side == &pair.connector) {
            /* PROVED is sent already: another test. */
            assert_both_failed(&pair, RDMUX_PEER_GONE, RDMUX_IO);
            pair_finish(&pair);
            continue;
        }
        assert_true(pair.acceptor.done);
        assert_true(pair.connector.done);
        assert_int_equal(pair.acceptor.end.attempt, 2);
        struct pair_side *sides[] = { &pair.acceptor, &pair.connector };
        for (size_t k = 0; k < 2; k++) {
            assert_int_not_equal(pair_candidate(sides[k], 1)->reason, RDMUX_REASON_NONE);
            assert_int_not_equal(pair_candidate(sides[k], 1)->reason, RDMUX_REASON_CHOSEN);
            assert_int_equal(pair_candidate(sides[k], 2)->reason, RDMUX_REASON_CHOSEN);
            assert_int_equal(pair_candidate(sides[k], 3)->reason, RDMUX_REASON_SLOWER);
        }
        if (fault.kind == PAIR_FAILS) {
            assert_int_equal(pair_candidate(side, 1)->reason, RDMUX_REASON_MEMLOCK_TOO_LOW);
            assert_int_equal(pair_candidate(side->peer, 1)->reason, RDMUX_REASON_PEER_FAILED);
            assert_string_equal(pair_candidate(side->peer, 1)->text, "raise ulimit -l");
            assert_int_equal(pair_candidate(side->peer, 1)->stage, pair_candidate(side, 1)->stage);
        }
        pair_finish(&pair);
    }
}

static void the_same_failure_on_both_sides_at_once_skips_no_path(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(steps) * COUNT_OF(steps); i++) {
        for (uint64_t seed = 0; seed < 50; seed++) {
            uint64_t random = seed;
            struct pair pair;
            pair_start_plain(&pair, 4);
            for (uint32_t attempt = 1; attempt < 4; attempt++) {
                struct pair_fault fault = {
                    .attempt = attempt,
                    .action = steps[i % COUNT_OF(steps)],
                    .kind = PAIR_FAILS,
                    .status = RDMUX_IO,
                };
                pair_add_fault(&pair.acceptor, &fault);
                fault.action = steps[i / COUNT_OF(steps)];
                pair_add_fault(&pair.connector, &fault);
            }

            assert_true(pair_run(&pair, &random));

            assert_consistent(&pair);
            assert_true(pair.acceptor.done);
            assert_int_equal(pair.acceptor.end.attempt, 4);
            for (uint32_t rank = 1; rank < 4; rank++) {
                assert_int_not_equal(pair_candidate(&pair.acceptor, rank)->reason,
                                     RDMUX_REASON_SLOWER);
                assert_int_not_equal(pair_candidate(&pair.connector, rank)->reason,
                                     RDMUX_REASON_SLOWER);
            }
            pair_finish(&pair);
        }
    }
}

static void the_stage_decides_the_reason_when_the_driver_gives_none(void **state)
{
    (void)state;
    static const struct {
        enum rdmux_handshake_action_kind action;
        enum rdmux_status status;
        enum rdmux_stage stage;
        enum rdmux_reason ours;
        enum rdmux_reason theirs;
    } cases[] = {
        { RDMUX_ACTION_OPEN, RDMUX_IO, RDMUX_STAGE_OPEN, RDMUX_REASON_OPEN_FAILED,
          RDMUX_REASON_PEER_FAILED },
        { RDMUX_ACTION_CONNECT, RDMUX_IO, RDMUX_STAGE_CONNECT, RDMUX_REASON_CONNECT_FAILED,
          RDMUX_REASON_PEER_FAILED },
        { RDMUX_ACTION_CONNECT, RDMUX_TIMED_OUT, RDMUX_STAGE_CONNECT,
          RDMUX_REASON_CONNECT_TIMED_OUT, RDMUX_REASON_CONNECT_TIMED_OUT },
        { RDMUX_ACTION_WRITE_PROOF, RDMUX_IO, RDMUX_STAGE_PROOF, RDMUX_REASON_PROOF_FAILED,
          RDMUX_REASON_PROOF_FAILED },
        { RDMUX_ACTION_WRITE_PROOF, RDMUX_TIMED_OUT, RDMUX_STAGE_PROOF,
          RDMUX_REASON_PROOF_TIMED_OUT, RDMUX_REASON_PROOF_TIMED_OUT },
        { RDMUX_ACTION_CHECK_PROOF, RDMUX_IO, RDMUX_STAGE_PROOF, RDMUX_REASON_PROOF_FAILED,
          RDMUX_REASON_PROOF_FAILED },
    };
    for (size_t i = 0; i < COUNT_OF(cases) * 2; i++) {
        struct pair pair;
        pair_start_plain(&pair, 2);
        struct pair_side *side = i % 2 == 0 ? &pair.acceptor : &pair.connector;
        const struct pair_fault fault = { .attempt = 1,
                                          .action = cases[i / 2].action,
                                          .kind = PAIR_FAILS,
                                          .status = cases[i / 2].status,
                                          .text = "because" };
        pair_add_fault(side, &fault);

        run(&pair);

        assert_int_equal(pair_candidate(side, 1)->reason, cases[i / 2].ours);
        assert_int_equal(pair_candidate(side, 1)->stage, cases[i / 2].stage);
        assert_int_equal(pair_candidate(side->peer, 1)->reason, cases[i / 2].theirs);
        assert_int_equal(pair_candidate(side->peer, 1)->stage, cases[i / 2].stage);
        assert_string_equal(pair_candidate(side->peer, 1)->text, "because");
        pair_finish(&pair);
    }
}

static void a_step_that_hangs_ends_by_the_acceptors_clock(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(steps) * 2; i++) {
        struct pair pair;
        pair_start_plain(&pair, 2);
        struct pair_side *side = i % 2 == 0 ? &pair.acceptor : &pair.connector;
        const struct pair_fault fault = { .attempt = 1, .action = steps[i / 2], .kind = PAIR_HANGS };
        pair_add_fault(side, &fault);
        uint64_t start_ns = pair.now_ns;

        run(&pair);

        assert_true(pair.acceptor.done);
        assert_int_equal(pair.now_ns - start_ns, UINT64_C(2000000000));
        assert_int_equal(pair.acceptor.end.attempt, 2);
        enum rdmux_reason expected = RDMUX_REASON_PROOF_TIMED_OUT;
        if (steps[i / 2] == RDMUX_ACTION_OPEN) {
            expected = i % 2 == 0 ? RDMUX_REASON_OPEN_FAILED : RDMUX_REASON_CONNECT_TIMED_OUT;
        } else if (steps[i / 2] == RDMUX_ACTION_CONNECT) {
            expected = RDMUX_REASON_CONNECT_TIMED_OUT;
        }
        assert_int_equal(pair_candidate(&pair.acceptor, 1)->reason, expected);
        pair_finish(&pair);
    }
}

static void a_proof_whose_bytes_did_not_arrive_fails(void **state)
{
    (void)state;
    static const enum pair_fault_kind kinds[] = { PAIR_CORRUPTS, PAIR_WRITES_NONE };
    for (size_t i = 0; i < 4; i++) {
        struct pair pair;
        pair_start_plain(&pair, 2);
        struct pair_side *writer = i % 2 == 0 ? &pair.acceptor : &pair.connector;
        const struct pair_fault fault = { .attempt = 1,
                                          .action = RDMUX_ACTION_WRITE_PROOF,
                                          .kind = kinds[i / 2] };
        pair_add_fault(writer, &fault);

        run(&pair);

        assert_true(pair.acceptor.done);
        assert_int_equal(pair.acceptor.end.attempt, 2);
        assert_int_equal(pair_candidate(writer->peer, 1)->reason, RDMUX_REASON_PROOF_FAILED);
        assert_int_equal(pair_candidate(writer, 1)->reason, RDMUX_REASON_PROOF_FAILED);
        pair_finish(&pair);
    }
}

static void a_proof_with_the_pattern_of_an_earlier_attempt_fails(void **state)
{
    (void)state;
    struct pair pair;
    pair_start_plain(&pair, 3);
    /* The first attempt writes both patterns and then breaks; the second writes nothing into the
     * same buffers. */
    const struct pair_fault breaks = {
        .attempt = 1, .action = RDMUX_ACTION_CHECK_PROOF, .kind = PAIR_FAILS, .status = RDMUX_IO
    };
    const struct pair_fault none = { .attempt = 2,
                                     .action = RDMUX_ACTION_WRITE_PROOF,
                                     .kind = PAIR_WRITES_NONE };
    pair_add_fault(&pair.connector, &breaks);
    pair_add_fault(&pair.acceptor, &none);
    pair_add_fault(&pair.connector, &none);

    run(&pair);

    assert_int_equal(pair_candidate(&pair.acceptor, 2)->reason, RDMUX_REASON_PROOF_FAILED);
    assert_int_equal(pair.acceptor.end.attempt, 3);
    pair_finish(&pair);
}

static void the_explanation_shows_the_cause_rather_than_the_timeout_it_led_to(void **state)
{
    (void)state;
    struct pair pair;
    pair_start_plain(&pair, 2);
    /* The connector fails to open just as the acceptor gives up waiting for it. */
    while (pair.connector.opened == 0) {
        pair_run_some(&pair, NULL, 1);
    }
    pair.now_ns = rdmux_handshake_deadline(pair.acceptor.handshake);
    const struct pair_fault fault = { .attempt = 1,
                                      .action = RDMUX_ACTION_OPEN,
                                      .kind = PAIR_FAILS,
                                      .status = RDMUX_NO_MEMORY,
                                      .reason = RDMUX_REASON_MEMLOCK_TOO_LOW,
                                      .text = "locked memory" };
    pair_add_fault(&pair.connector, &fault);
    assert_true(pair_answer(&pair, &pair.connector, 0));
    assert_true(pair_wait(&pair));

    run(&pair);

    assert_int_equal(pair.acceptor.end.attempt, 2);
    assert_int_equal(pair_candidate(&pair.connector, 1)->reason, RDMUX_REASON_MEMLOCK_TOO_LOW);
    assert_int_equal(pair_candidate(&pair.acceptor, 1)->reason, RDMUX_REASON_PEER_FAILED);
    assert_string_equal(pair_candidate(&pair.acceptor, 1)->text, "locked memory");
    pair_finish(&pair);
}

/* -------------------------------------------------------------------- no path */

static void both_sides_give_the_socket_back_when_every_path_fails(void **state)
{
    (void)state;
    struct pair pair;
    pair_start_plain(&pair, 3);
    const struct pair_fault fault = {
        .action = RDMUX_ACTION_CONNECT, .kind = PAIR_FAILS, .status = RDMUX_IO, .text = "no route"
    };
    pair_add_fault(&pair.connector, &fault);

    run(&pair);

    assert_both_failed(&pair, RDMUX_NO_PATH, RDMUX_NO_PATH);
    assert_true(pair.acceptor.end.give_back);
    assert_true(pair.connector.end.give_back);
    assert_int_equal(pair.acceptor.opened, 3);
    for (uint32_t rank = 1; rank <= 3; rank++) {
        assert_int_equal(pair_candidate(&pair.connector, rank)->reason, RDMUX_REASON_CONNECT_FAILED);
        assert_int_equal(pair_candidate(&pair.acceptor, rank)->reason, RDMUX_REASON_PEER_FAILED);
    }
    /* Nothing is left on the wire. */
    assert_int_equal(pair.acceptor.wire_begin, pair.acceptor.wire_end);
    assert_int_equal(pair.connector.wire_begin, pair.connector.wire_end);
    pair_finish(&pair);
}

static void sides_without_a_common_path_tell_each_other_and_give_the_socket_back(void **state)
{
    (void)state;
    struct rdmux_offer *offers = calloc(2, sizeof(*offers));
    struct rdmux_handshake_config accepts;
    struct rdmux_handshake_config connects;
    pair_offer(&offers[0], 1);
    pair_offer(&offers[1], 1);
    offers[1].paths[0].path.reach[1] = '2';
    pair_config(&accepts, RDMUX_ROLE_ACCEPT, &offers[0]);
    pair_config(&connects, RDMUX_ROLE_CONNECT, &offers[1]);
    struct pair pair;
    pair_start(&pair, &accepts, &connects);

    run(&pair);

    assert_both_failed(&pair, RDMUX_NO_PATH, RDMUX_NO_PATH);
    assert_true(pair.acceptor.end.give_back);
    assert_true(pair.connector.end.give_back);
    assert_int_equal(pair.connector.candidate_count, 1);
    assert_int_equal(pair.connector.candidates[0].reason, RDMUX_REASON_OTHER_HOST);
    assert_string_equal(pair.connector.candidates[0].text, "another host");
    assert_int_equal(pair.acceptor.opened, 0);
    pair_finish(&pair);
    free(offers);
}

static void each_side_sees_the_candidates_from_its_own_point_of_view(void **state)
{
    (void)state;
    struct rdmux_offer *offers = calloc(2, sizeof(*offers));
    struct rdmux_handshake_config accepts;
    struct rdmux_handshake_config connects;
    pair_offer(&offers[0], 2);
    pair_offer(&offers[1], 3);
    (void)snprintf(offers[0].paths[0].path.device, RDMUX_NAME_MAX, "here");
    (void)snprintf(offers[1].paths[0].path.device, RDMUX_NAME_MAX, "there");
    offers[0].paths[0].path.security = RDMUX_SECURITY_SAME_USER;
    offers[1].paths[0].path.security = RDMUX_SECURITY_TOKEN;
    pair_config(&accepts, RDMUX_ROLE_ACCEPT, &offers[0]);
    pair_config(&connects, RDMUX_ROLE_CONNECT, &offers[1]);
    struct pair pair;
    pair_start(&pair, &accepts, &connects);

    run(&pair);

    const struct rdmux_candidate *a = pair_candidate(&pair.acceptor, 1);
    const struct rdmux_candidate *c = pair_candidate(&pair.connector, 1);
    assert_string_equal(a->device, "here");
    assert_string_equal(a->peer_device, "there");
    assert_string_equal(c->device, "there");
    assert_string_equal(c->peer_device, "here");
    assert_int_equal(a->security, RDMUX_SECURITY_TOKEN);
    assert_int_equal(c->security, RDMUX_SECURITY_TOKEN);
    assert_int_equal(a->cost_ns, c->cost_ns);
    assert_int_equal(a->size, sizeof(*a));
    const struct rdmux_candidate *lone = pair_candidate(&pair.connector, 0);
    assert_string_equal(lone->provider, "roce");
    assert_string_equal(lone->device, "roce2");
    assert_string_equal(lone->peer_device, "");
    assert_string_equal(pair_candidate(&pair.acceptor, 0)->peer_device, "roce2");
    pair_finish(&pair);
    free(offers);
}

static void an_explain_opens_no_path(void **state)
{
    (void)state;
    for (size_t paths = 0; paths < 3; paths++) {
        struct rdmux_offer *offer = calloc(1, sizeof(*offer));
        struct rdmux_handshake_config accepts;
        struct rdmux_handshake_config connects;
        pair_offer(offer, paths);
        pair_config(&accepts, RDMUX_ROLE_ACCEPT, offer);
        pair_config(&connects, RDMUX_ROLE_CONNECT, offer);
        connects.hello.flags = RDMUX_HELLO_EXPLAIN_ONLY;
        struct pair pair;
        pair_start(&pair, &accepts, &connects);

        run(&pair);

        assert_int_equal(pair.acceptor.opened + pair.connector.opened, 0);
        if (paths == 0) {
            assert_both_failed(&pair, RDMUX_NO_PATH, RDMUX_NO_PATH);
        } else {
            assert_true(pair.acceptor.done);
            assert_true(pair.connector.done);
            const struct rdmux_candidate *best = pair_candidate(&pair.connector, 1);
            assert_int_equal(best->reason, RDMUX_REASON_CHOSEN);
            assert_int_equal(best->stage, RDMUX_STAGE_MATCH);
            assert_string_equal(best->text, "would be tried first");
        }
        if (paths == 2) {
            assert_int_equal(pair_candidate(&pair.connector, 2)->reason, RDMUX_REASON_SLOWER);
        }
        pair_finish(&pair);
        free(offer);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_sides_agree_on_the_cheapest_path),
        cmocka_unit_test(the_connector_sends_before_it_hears_the_acceptor),
        cmocka_unit_test(an_acceptor_uses_the_bytes_read_before_accept),
        cmocka_unit_test(each_limit_granted_is_the_smaller_of_both_sides),
        cmocka_unit_test(a_wish_is_granted_as_far_as_the_path_takes_it),
        cmocka_unit_test(impossible_limits_of_a_peer_are_corrected),
        cmocka_unit_test(the_connectors_expected_size_takes_precedence_over_the_acceptors),
        cmocka_unit_test(the_connector_connects_before_it_sends_ready),
        cmocka_unit_test(ready_precedes_the_bytes_of_the_path_on_an_adopted_socket),
        cmocka_unit_test(a_failure_at_any_step_of_either_side_leads_to_the_next_path),
        cmocka_unit_test(the_same_failure_on_both_sides_at_once_skips_no_path),
        cmocka_unit_test(the_stage_decides_the_reason_when_the_driver_gives_none),
        cmocka_unit_test(a_step_that_hangs_ends_by_the_acceptors_clock),
        cmocka_unit_test(a_proof_whose_bytes_did_not_arrive_fails),
        cmocka_unit_test(a_proof_with_the_pattern_of_an_earlier_attempt_fails),
        cmocka_unit_test(the_explanation_shows_the_cause_rather_than_the_timeout_it_led_to),
        cmocka_unit_test(both_sides_give_the_socket_back_when_every_path_fails),
        cmocka_unit_test(sides_without_a_common_path_tell_each_other_and_give_the_socket_back),
        cmocka_unit_test(each_side_sees_the_candidates_from_its_own_point_of_view),
        cmocka_unit_test(an_explain_opens_no_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
