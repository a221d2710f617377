/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The handshake during failover: the acceptor's driver chooses the path pair to try. */
#include "tests/unit/support/handshake_check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_ATTEMPT = 1 << 16 | 1, PATHS = 3 };

/* The path of rank 1, which both have, is gone. */
static void lose_path(struct pair *pair)
{
    struct pair_side *sides[] = { &pair->acceptor, &pair->connector };
    for (size_t i = 0; i < COUNT_OF(sides); i++) {
        assert_true(sides[i]->done);
        assert_int_equal(rdmux_handshake_current_rank(sides[i]->handshake), 1);
        sides[i]->done = false;
        sides[i]->path_open = false; /* the driver has closed it */
        rdmux_handshake_move(sides[i]->handshake, FIRST_ATTEMPT, RDMUX_REASON_PATH_LOST, "gone");
    }
    pair_drain(pair);
    assert_true(pair->acceptor.choosing);
    assert_false(pair->connector.choosing);
}

static void begin_move(struct pair *pair)
{
    pair_start_plain(pair, PATHS);
    run(pair);
    lose_path(pair);
}

static void try_rank(struct pair *pair, size_t rank)
{
    pair->acceptor.choosing = false;
    rdmux_handshake_try(pair->acceptor.handshake, rank, UINT64_MAX, pair->now_ns);
    pair_drain(pair);
}

static void assert_both_have(const struct pair *pair, size_t rank)
{
    assert_true(pair->acceptor.done);
    assert_true(pair->connector.done);
    assert_int_equal(rdmux_handshake_current_rank(pair->acceptor.handshake), rank);
    assert_int_equal(rdmux_handshake_current_rank(pair->connector.handshake), rank);
}

static void the_acceptor_names_the_pair_of_the_next_path(void **state)
{
    (void)state;
    for (size_t rank = 1; rank <= PATHS; rank++) {
        struct pair pair;
        begin_move(&pair);
        try_rank(&pair, rank);
        run(&pair);
        assert_both_have(&pair, rank);
        assert_int_equal(pair.acceptor.open_attempt, FIRST_ATTEMPT);
        assert_int_equal(pair.connector.open_attempt, FIRST_ATTEMPT);
        if (rank != 1) {
            assert_int_equal(pair_candidate(&pair.connector, 1)->reason, RDMUX_REASON_PATH_LOST);
        }
        pair_finish(&pair);
    }
}

/* Whichever step it fails in, and on whichever side. */
static void the_acceptor_chooses_again_after_a_failed_attempt(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2 * COUNT_OF(steps); i++) {
        const struct pair_fault fault = { .attempt = FIRST_ATTEMPT,
                                          .action = steps[i / 2],
                                          .kind = PAIR_FAILS,
                                          .status = RDMUX_IO,
                                          .text = "on purpose" };
        struct pair pair;
        begin_move(&pair);
        pair_add_fault(i % 2 == 0 ? &pair.acceptor : &pair.connector, &fault);
        try_rank(&pair, 2);
        for (size_t moves = 0; moves < 1000 && !pair.acceptor.choosing; moves++) {
            pair_run_some(&pair, NULL, 1);
        }
        assert_true(pair.acceptor.choosing);
        assert_false(pair.acceptor.path_open);

        try_rank(&pair, 3);
        run(&pair);
        assert_both_have(&pair, 3);
        assert_int_equal(pair.connector.open_attempt, FIRST_ATTEMPT + 1);
        assert_string_equal(pair_candidate(&pair.acceptor, 2)->text, "on purpose");
        pair_finish(&pair);
    }
}

static void an_attempt_that_hangs_ends_at_its_own_limit(void **state)
{
    (void)state;
    enum { PATH_TIMEOUT_MS = 2000 };
    static const uint64_t limits_ms[] = { 200, PATH_TIMEOUT_MS, 5000, UINT64_MAX };
    for (size_t i = 0; i < COUNT_OF(limits_ms); i++) {
        const struct pair_fault fault = { .attempt = FIRST_ATTEMPT,
                                          .action = RDMUX_ACTION_CONNECT,
                                          .kind = PAIR_HANGS };
        const uint64_t expected_ms = i == 0 ? limits_ms[i] : PATH_TIMEOUT_MS;
        char text[32];
        struct pair pair;
        begin_move(&pair);
        pair_add_fault(&pair.connector, &fault);
        const uint64_t start_ns = pair.now_ns;
        pair.acceptor.choosing = false;
        rdmux_handshake_try(pair.acceptor.handshake, 2, limits_ms[i], start_ns);
        pair_drain(&pair);
        pair_run_some(&pair, NULL, 1000);
        assert_false(pair.acceptor.choosing);
        assert_true(pair_wait(&pair));
        pair_run_some(&pair, NULL, 1000);
        assert_true(pair.acceptor.choosing);
        assert_int_equal(pair.now_ns - start_ns, expected_ms * 1000000);
        (void)snprintf(text, sizeof(text), "within %llu ms", (unsigned long long)expected_ms);

        try_rank(&pair, 3);
        run(&pair);
        assert_both_have(&pair, 3);
        assert_non_null(strstr(pair_candidate(&pair.acceptor, 2)->text, text));
        pair_finish(&pair);
    }
}

static void an_acceptor_that_gives_up_ends_both_sides_without_a_path(void **state)
{
    (void)state;
    struct pair pair;
    begin_move(&pair);
    rdmux_handshake_give_up(pair.acceptor.handshake);
    pair_drain(&pair);
    run(&pair);
    assert_both_failed(&pair, RDMUX_NO_PATH, RDMUX_NO_PATH);
    pair_finish(&pair);
}

/* The driver's mistakes, and messages out of turn: no path is tried. */
static void a_pair_without_a_rank_or_a_request_is_not_tried(void **state)
{
    (void)state;
    struct pair pair;
    begin_move(&pair);
    const uint32_t opened = pair.acceptor.opened;
    try_rank(&pair, 0);
    try_rank(&pair, PATHS + 1);
    rdmux_handshake_try(pair.connector.handshake, 1, UINT64_MAX, pair.now_ns);
    rdmux_handshake_give_up(pair.connector.handshake);
    pair_drain(&pair);
    assert_int_equal(pair.acceptor.opened, opened);
    assert_int_equal(pair.connector.opened, 1);

    try_rank(&pair, 2);
    rdmux_handshake_try(pair.acceptor.handshake, 3, UINT64_MAX, pair.now_ns); /* one at a time */
    rdmux_handshake_give_up(pair.acceptor.handshake);
    pair_drain(&pair);
    run(&pair);
    assert_both_have(&pair, 2);
    assert_int_equal(pair.acceptor.opened, opened + 1);
    pair_finish(&pair);
}

static void a_connector_tries_no_pair_without_a_rank(void **state)
{
    (void)state;
    static const uint16_t pairs[][2] = { { PATHS, PATHS }, { 0, 1 }, { UINT16_MAX, 0 } };
    for (size_t i = 0; i < COUNT_OF(pairs); i++) {
        const struct rdmux_attempt_frame frame = { .type = RDMUX_FRAME_TRY,
                                                   .attempt = FIRST_ATTEMPT,
                                                   .acceptor_path = pairs[i][0],
                                                   .connector_path = pairs[i][1] };
        uint8_t bytes[RDMUX_ATTEMPT_FRAME_MAX];
        struct pair pair;
        begin_move(&pair);
        size_t size = rdmux_attempt_frame_encode(&frame, bytes);
        rdmux_handshake_frame(pair.connector.handshake, bytes, size, pair.now_ns);
        pair_drain(&pair);
        assert_true(pair.connector.failed);
        assert_int_equal(pair.connector.end.status, RDMUX_PROTOCOL);
        assert_int_equal(pair.connector.opened, 1);
        pair_finish(&pair);
    }
}

/* The first path takes longer messages than the second one, and what it granted holds. */
static void a_move_tries_no_pair_that_takes_less_than_was_granted(void **state)
{
    (void)state;
    struct rdmux_offer *offer = calloc(1, sizeof(*offer));
    struct rdmux_handshake_config accepts;
    struct rdmux_handshake_config connects;
    struct pair pair;
    pair_offer(offer, PATHS);
    offer->max_send = offer->max_recv = 3000;
    offer->send_wish = 1;
    offer->paths[0].path.max_message = 2000;
    offer->paths[1].path.max_message = 1000;
    offer->paths[2].path.max_message = 2000;
    pair_config(&accepts, RDMUX_ROLE_ACCEPT, offer);
    pair_config(&connects, RDMUX_ROLE_CONNECT, offer);
    pair_start(&pair, &accepts, &connects);
    run(&pair);
    lose_path(&pair);
    assert_true(rdmux_handshake_takes_granted(pair.acceptor.handshake, 1));
    assert_false(rdmux_handshake_takes_granted(pair.acceptor.handshake, 2));
    assert_true(rdmux_handshake_takes_granted(pair.acceptor.handshake, 3));
    const uint32_t opened = pair.acceptor.opened;
    try_rank(&pair, 2);
    assert_int_equal(pair.acceptor.opened, opened);

    try_rank(&pair, 3);
    run(&pair);

    assert_both_have(&pair, 3);
    assert_int_equal(rdmux_handshake_granted(pair.acceptor.handshake)->max_send, 2000);
    assert_int_equal(rdmux_handshake_granted(pair.connector.handshake)->max_recv, 2000);
    pair_finish(&pair);
    free(offer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_acceptor_names_the_pair_of_the_next_path),
        cmocka_unit_test(the_acceptor_chooses_again_after_a_failed_attempt),
        cmocka_unit_test(an_attempt_that_hangs_ends_at_its_own_limit),
        cmocka_unit_test(an_acceptor_that_gives_up_ends_both_sides_without_a_path),
        cmocka_unit_test(a_pair_without_a_rank_or_a_request_is_not_tried),
        cmocka_unit_test(a_connector_tries_no_pair_without_a_rank),
        cmocka_unit_test(a_move_tries_no_pair_that_takes_less_than_was_granted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
