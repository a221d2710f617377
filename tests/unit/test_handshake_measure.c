/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Paths are measured before they are ranked, if a side asks for it. The constants of these offers
 * rank shm, tcp, roce, ib in this order. */
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

enum { SHM, TCP, ROCE, IB };

static struct pair pair;
static struct rdmux_offer offer;
static struct rdmux_handshake_config acceptor;
static struct rdmux_handshake_config connector;

/* The acceptor measures these; the order by them is tcp, ib, roce, shm. */
static const struct rdmux_measured figures[] = {
    [SHM] = { 40000, 1000000 },
    [TCP] = { 1000, 1000000000 },
    [ROCE] = { 3000, 1000000000 },
    [IB] = { 2000, 1000000000 },
};

static void prepare(size_t paths)
{
    pair_offer(&offer, paths);
    pair_config(&acceptor, RDMUX_ROLE_ACCEPT, &offer);
    pair_config(&connector, RDMUX_ROLE_CONNECT, &offer);
    connector.hello.flags |= RDMUX_HELLO_MEASURE;
}

static void start(void)
{
    pair_start(&pair, &acceptor, &connector);
    memcpy(pair.acceptor.figures, figures, sizeof(figures));
}

static void finish(void)
{
    assert_true(pair_run(&pair, NULL));
    assert_null(pair_contradiction(&pair));
    pair_finish(&pair);
}

static void fault(struct pair_side *side, uint32_t attempt, enum rdmux_handshake_action_kind action,
                  enum pair_fault_kind kind)
{
    const struct pair_fault fault = {
        .attempt = attempt,
        .action = action,
        .kind = kind,
        .status = RDMUX_IO,
        .reason = RDMUX_REASON_CONNECT_FAILED,
        .text = "made to fail",
    };
    pair_add_fault(side, &fault);
}

static void check_rank(uint32_t rank, const char *provider, enum rdmux_reason reason)
{
    const struct pair_side *sides[] = { &pair.acceptor, &pair.connector };
    for (size_t i = 0; i < 2; i++) {
        const struct rdmux_candidate *candidate = pair_candidate(sides[i], rank);
        assert_string_equal(candidate->provider, provider);
        assert_int_equal(candidate->reason, reason);
    }
}

static void the_path_with_the_best_measured_figures_is_chosen(void **state)
{
    (void)state;
    prepare(4);
    start();

    finish();

    assert_true(pair.acceptor.done && pair.connector.done);
    assert_int_equal(pair.acceptor.measured, 4);
    assert_int_equal(pair.connector.measured, 0); /* the ranking side measures */
    assert_int_equal(pair.acceptor.end.ours, TCP);
    assert_int_equal(pair.acceptor.end.attempt, 5);
    check_rank(1, "tcp", RDMUX_REASON_CHOSEN);
    check_rank(2, "ib", RDMUX_REASON_SLOWER);
    check_rank(3, "roce", RDMUX_REASON_SLOWER);
    check_rank(4, "shm", RDMUX_REASON_SLOWER);
    assert_int_equal(pair_candidate(&pair.connector, 1)->cost_ns, 1000 + 4096);
    for (uint32_t rank = 1; rank <= 4; rank++) {
        assert_int_equal(pair_candidate(&pair.acceptor, rank)->measured, 1);
        assert_int_equal(pair_candidate(&pair.connector, rank)->measured, 1);
    }
    assert_non_null(strstr(pair_candidate(&pair.connector, 4)->text, "measured; before it comes"));
}

static void either_side_may_ask_for_measurements(void **state)
{
    (void)state;
    prepare(2);
    connector.hello.flags = 0;
    acceptor.hello.flags |= RDMUX_HELLO_MEASURE;
    start();

    finish();

    check_rank(1, "tcp", RDMUX_REASON_CHOSEN);
}

static void nothing_is_measured_unless_a_side_asks_for_it(void **state)
{
    (void)state;
    prepare(3);
    connector.hello.flags = 0;
    start();

    finish();

    assert_int_equal(pair.acceptor.measured, 0);
    check_rank(1, "shm", RDMUX_REASON_CHOSEN);
}

static void the_expected_size_decides_between_measured_paths(void **state)
{
    (void)state;
    prepare(2);
    offer.typical_size = UINT64_C(1) << 30;
    pair_start(&pair, &acceptor, &connector);
    pair.acceptor.figures[SHM] = (struct rdmux_measured){ 90000, UINT64_C(20000000000) };
    pair.acceptor.figures[TCP] = (struct rdmux_measured){ 1000, 1000000000 };

    finish();

    check_rank(1, "shm", RDMUX_REASON_CHOSEN);
}

static void a_single_path_is_not_measured(void **state)
{
    (void)state;
    prepare(1);
    start();

    finish();

    assert_true(pair.acceptor.done);
    assert_int_equal(pair.acceptor.measured, 0);
}

static void an_explain_measures_nothing(void **state)
{
    (void)state;
    prepare(3);
    connector.hello.flags |= RDMUX_HELLO_EXPLAIN_ONLY;
    start();

    finish();

    assert_true(pair.connector.done);
    assert_int_equal(pair.acceptor.opened, 0);
}

static void a_software_device_stays_last_and_is_not_measured(void **state)
{
    (void)state;
    prepare(3);
    offer.paths[SHM].path.software = 1;
    start();

    finish();

    assert_int_equal(pair.acceptor.measured, 2);
    check_rank(1, "tcp", RDMUX_REASON_CHOSEN);
    check_rank(3, "shm", RDMUX_REASON_SOFTWARE_DEVICE);
}

static void the_last_resort_may_win_by_its_measured_figures(void **state)
{
    (void)state;
    prepare(3);
    offer.paths[TCP].provider_flags = RDMUX_PROVIDER_LAST_RESORT;
    start();

    finish();

    check_rank(1, "tcp", RDMUX_REASON_CHOSEN);
}

static bool known(void *user, const struct rdmux_offer_path *ours,
                  const struct rdmux_offer_path *theirs, struct rdmux_measured *out)
{
    const char *unknown = user;
    assert_string_equal(ours->provider, theirs->provider);
    for (size_t i = 0; i < offer.path_count; i++) {
        if (strcmp(ours->provider, offer.paths[i].provider) == 0) {
            *out = figures[i];
        }
    }
    return strcmp(ours->provider, unknown) != 0;
}

static void paths_with_known_figures_are_not_measured_again(void **state)
{
    (void)state;
    prepare(4);
    acceptor.measured = known;
    acceptor.measured_user = "";
    start();

    finish();

    assert_int_equal(pair.acceptor.measured, 0);
    assert_int_equal(pair.acceptor.opened, 1);
    check_rank(1, "tcp", RDMUX_REASON_CHOSEN);
    check_rank(4, "shm", RDMUX_REASON_SLOWER);
}

static void paths_are_measured_anew_when_a_figure_is_missing(void **state)
{
    (void)state;
    prepare(3);
    acceptor.measured = known;
    acceptor.measured_user = "shm";
    start();

    finish();

    assert_int_equal(pair.acceptor.measured, 3);
    check_rank(1, "tcp", RDMUX_REASON_CHOSEN);
}

static void a_path_that_fails_its_measurement_is_out_with_its_reason(void **state)
{
    (void)state;
    prepare(3);
    start();
    fault(&pair.acceptor, 2, RDMUX_ACTION_CONNECT, PAIR_FAILS);

    finish();

    check_rank(1, "roce", RDMUX_REASON_CHOSEN);
    check_rank(2, "shm", RDMUX_REASON_SLOWER);
    const struct rdmux_candidate *out = pair_candidate(&pair.connector, 0);
    assert_string_equal(out->provider, "tcp");
    assert_int_equal(out->reason, RDMUX_REASON_CONNECT_FAILED);
    assert_int_equal(out->stage, RDMUX_STAGE_CONNECT);
    assert_string_equal(out->text, "made to fail");
}

static void no_path_is_left_when_every_measurement_fails(void **state)
{
    (void)state;
    prepare(3);
    start();
    fault(&pair.connector, 0, RDMUX_ACTION_OPEN, PAIR_FAILS);

    finish();

    assert_int_equal(pair.acceptor.end.status, RDMUX_NO_PATH);
    assert_int_equal(pair.connector.end.status, RDMUX_NO_PATH);
}

static void the_measured_best_that_fails_later_gives_way_to_the_next(void **state)
{
    (void)state;
    prepare(3);
    start();
    fault(&pair.connector, 4, RDMUX_ACTION_WRITE_PROOF, PAIR_BREAKS);

    finish();

    assert_true(pair.connector.done);
    check_rank(2, "roce", RDMUX_REASON_CHOSEN);
}

static void a_path_too_slow_to_be_measured_costs_only_its_time_limit(void **state)
{
    (void)state;
    prepare(2);
    start();
    fault(&pair.acceptor, 2, RDMUX_ACTION_MEASURE, PAIR_HANGS);

    finish();

    check_rank(1, "shm", RDMUX_REASON_CHOSEN);
    check_rank(2, "tcp", RDMUX_REASON_SLOWER);
    assert_in_range(pair_candidate(&pair.connector, 2)->cost_ns, RDMUX_MEASURE_NS / 2,
                    RDMUX_MEASURE_NS);
}

static void a_path_that_breaks_while_it_is_measured_is_out(void **state)
{
    (void)state;
    prepare(2);
    start();
    fault(&pair.acceptor, 2, RDMUX_ACTION_MEASURE, PAIR_FAILS);

    finish();

    check_rank(1, "shm", RDMUX_REASON_CHOSEN);
    assert_string_equal(pair_candidate(&pair.acceptor, 0)->provider, "tcp");
}

/* Delivers everything that came for the connector up to its second RANKING. */
static void rank_once_more(uint32_t flags, size_t rounds)
{
    static uint8_t frame[RDMUX_RANKING_FRAME_MAX];
    static struct rdmux_match matches[RDMUX_MATCH_MAX];
    prepare(2);
    connector.hello.flags = flags;
    start();
    while (strcmp(rdmux_handshake_state(pair.connector.handshake), "waiting for TRY") != 0) {
        assert_true(pair_deliver(&pair, &pair.acceptor) || pair_deliver(&pair, &pair.connector));
    }
    size_t count = rdmux_match_paths(&offer, &offer, 4096, matches);
    size_t size = rdmux_ranking_encode(matches, count, frame);
    for (size_t i = 0; i < rounds; i++) {
        rdmux_handshake_frame(pair.connector.handshake, frame, size, pair.now_ns);
    }
    pair_drain(&pair);
}

static void an_unrequested_ranking_is_an_error(void **state)
{
    (void)state;
    rank_once_more(0, 1);

    assert_int_equal(pair.connector.end.status, RDMUX_PROTOCOL);
    pair_finish(&pair);
}

static void a_third_ranking_is_an_error(void **state)
{
    (void)state;
    rank_once_more(RDMUX_HELLO_MEASURE, 1);
    assert_false(pair.connector.failed);
    pair_finish(&pair);

    rank_once_more(RDMUX_HELLO_MEASURE, 2);

    assert_int_equal(pair.connector.end.status, RDMUX_PROTOCOL);
    pair_finish(&pair);
}

static void random_fault(struct pair_side *side, uint64_t *random)
{
    static const enum rdmux_handshake_action_kind steps[] = {
        RDMUX_ACTION_OPEN,        RDMUX_ACTION_CONNECT, RDMUX_ACTION_WRITE_PROOF,
        RDMUX_ACTION_CHECK_PROOF, RDMUX_ACTION_MEASURE,
    };
    fault(side, (uint32_t)(pair_random(random) % 8), steps[pair_random(random) % COUNT_OF(steps)],
          (enum pair_fault_kind)(pair_random(random) % (PAIR_LOSES + 1)));
}

static void both_sides_agree_after_random_faults(void **state)
{
    (void)state;
    const char *level = getenv("RDMUX_TEST_LEVEL");
    const bool is_thorough = level != NULL && strcmp(level, "thorough") == 0;
    const uint64_t runs = is_thorough ? 20000 : 5000;
    size_t connected = 0;
    for (uint64_t seed = 0; seed < runs; seed++) {
        uint64_t random = seed;
        prepare(1 + pair_random(&random) % 4);
        start();
        for (uint64_t i = pair_random(&random) % 3; i > 0; i--) {
            random_fault(&pair.acceptor, &random);
        }
        for (uint64_t i = pair_random(&random) % 3; i > 0; i--) {
            random_fault(&pair.connector, &random);
        }

        bool ended = pair_run(&pair, &random);

        const char *contradiction = pair_contradiction(&pair);
        if (!ended || contradiction != NULL) {
            fail_msg("seed %llu: %s", (unsigned long long)seed,
                     contradiction != NULL ? contradiction : "it does not end");
        }
        connected += pair.acceptor.done;
        pair_finish(&pair);
    }
    assert_true(connected > runs / 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_path_with_the_best_measured_figures_is_chosen),
        cmocka_unit_test(either_side_may_ask_for_measurements),
        cmocka_unit_test(nothing_is_measured_unless_a_side_asks_for_it),
        cmocka_unit_test(the_expected_size_decides_between_measured_paths),
        cmocka_unit_test(a_single_path_is_not_measured),
        cmocka_unit_test(an_explain_measures_nothing),
        cmocka_unit_test(a_software_device_stays_last_and_is_not_measured),
        cmocka_unit_test(the_last_resort_may_win_by_its_measured_figures),
        cmocka_unit_test(paths_with_known_figures_are_not_measured_again),
        cmocka_unit_test(paths_are_measured_anew_when_a_figure_is_missing),
        cmocka_unit_test(a_path_that_fails_its_measurement_is_out_with_its_reason),
        cmocka_unit_test(no_path_is_left_when_every_measurement_fails),
        cmocka_unit_test(the_measured_best_that_fails_later_gives_way_to_the_next),
        cmocka_unit_test(a_path_too_slow_to_be_measured_costs_only_its_time_limit),
        cmocka_unit_test(a_path_that_breaks_while_it_is_measured_is_out),
        cmocka_unit_test(an_unrequested_ranking_is_an_error),
        cmocka_unit_test(a_third_ranking_is_an_error),
        cmocka_unit_test(both_sides_agree_after_random_faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
