/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Failover: endpoints that continue over another path when theirs breaks. */
#include "api/core/cq.h"
#include "api/core/ep.h"
#include "api/core/mr.h"
#include "api/core/remote.h"
#include "api/failover/failover.h"
#include "api/failover/failover_state.h"
#include "api/object/offer.h"
#include "tests/unit/failover_scene.h"
#include "tests/unit/fair_time.h"

/* ------------------------------------------------------------------------------ in force or not */

static void failover_is_in_force_when_both_sides_ask_for_it(void **state)
{
    (void)state;
    for (int asks = 0; asks < 4; asks++) {
        struct scene scene;
        set_scene(&scene, "tcp", 0);
        struct pair *pair = &scene.pair;
        struct rdmux_ep_attr attr_a = RDMUX_EP_ATTR_INIT;
        struct rdmux_ep_attr attr_b = RDMUX_EP_ATTR_INIT;
        attr_a.failover = (asks & 1) != 0 ? RDMUX_FAILOVER_ON : RDMUX_FAILOVER_OFF;
        attr_b.failover = (asks & 2) != 0 ? RDMUX_FAILOVER_ON : RDMUX_FAILOVER_OFF;
        CHECK_STATUS(rdmux_connect(pair->fabric_a, pair->cq_a, pair->address, &attr_a, 0, &pair->a),
                     RDMUX_IN_PROGRESS);
        CHECK_OK(rdmux_accept(pair->listener, pair->cq_b, &attr_b, PATIENT_MS, &pair->b));
        expect_entry(pair->cq_a, RDMUX_WC_CONNECTED, RDMUX_OK);

        assert_int_equal(info_of(pair->a).failover, asks == 3);
        assert_int_equal(info_of(pair->b).failover, asks == 3);
        struct rdmux_explanation *explanation = NULL;
        const char *json = NULL;
        CHECK_OK(rdmux_ep_explanation(pair->a, &explanation));
        CHECK_OK(rdmux_explanation_json(explanation, &json));
        assert_int_equal(strstr(json, "no failover, as only one side asks for it") != NULL,
                         asks == 1 || asks == 2);
        rdmux_explanation_free(explanation);
        check_messages(pair);
        clear_scene(&scene);
    }
}

/* ------------------------------------------------------------------------------------- traffic */

static void messages_arrive_once_and_in_order_whatever_breaks(void **state)
{
    (void)state;
    static const struct {
        const char *paths;
        void (*break_path)(struct pair *pair);
    } cases[] = {
        { "tcp", cut_tcp },
        { "tcp", fail_a },
        { "tcp", fail_b },
        { "tcp", fail_both },
        { "shm,tcp", fail_a },
        { "shm,tcp", fail_b },
        { "shm,tcp", fail_both },
        { "tcp", cut_both },
        { "shm,tcp", cut_both },
        { "tcp", cut_both_and_fail_here },
        { "shm,tcp", cut_both_and_fail_here },
    };
    for (size_t i = 0; i < RDMUX_COUNT_OF(cases); i++) {
        bool cuts = cases[i].break_path == cut_both ||
                    cases[i].break_path == cut_both_and_fail_here;
        if (cuts && !can_resume()) {
            continue;
        }
        struct scene scene;
        open_failover(&scene, cases[i].paths, 0, &traffic_attr);
        run_traffic(&scene.pair, 2000, 200, cases[i].break_path);
        clear_scene(&scene);
    }
}

/* --------------------------------------------------------------------------- one-sided requests */

static const char *const moved_paths[] = { "tcp", "shm,tcp" };

/* Polls both sides until the condition holds; entries of a go to the ledger. */
struct tally {
    uint64_t ok;
    uint64_t unknown;
    uint64_t changes;
    uint64_t next; /* context expected next */
};

static void tally_up(struct pair *pair, struct tally *tally)
{
    struct rdmux_wc wc;
    CHECK_OK(rdmux_fabric_progress(pair->fabric_a));
    CHECK_OK(rdmux_fabric_progress(pair->fabric_b));
    while (rdmux_cq_poll(pair->cq_a, &wc, 1) == 1) {
        if (wc.opcode == RDMUX_WC_PATH_CHANGED) {
            tally->changes++;
            continue;
        }
        assert_ptr_equal(wc.context, CONTEXT(tally->next));
        tally->next++;
        if (wc.status == RDMUX_OK) {
            tally->ok++;
        } else {
            assert_int_equal(wc.status, RDMUX_OUTCOME_UNKNOWN);
            tally->unknown++;
        }
    }
    while (rdmux_cq_poll(pair->cq_b, &wc, 1) == 1) {
        assert_int_equal(wc.opcode, RDMUX_WC_PATH_CHANGED);
    }
}

static void tally_until(struct pair *pair, struct tally *tally, uint64_t next)
{
    uint64_t until = now_ms() + PATIENT_MS;
    while (tally->next < next) {
        assert_true(now_ms() < until);
        tally_up(pair, tally);
    }
    assert_int_equal(tally->next, next);
}

static void writes_and_reads_have_the_right_bytes_after_a_move(void **state)
{
    (void)state;
    enum { WORDS = 16, ROUNDS = 40 };
    for (size_t i = 0; i < RDMUX_COUNT_OF(moved_paths); i++) {
        struct scene scene;
        struct rdmux_mr *mr = NULL;
        uint64_t words[WORDS];
        uint64_t got[WORDS];
        struct tally tally = { 0 };
        open_failover(&scene, moved_paths[i], 0, &traffic_attr);
        struct pair *pair = &scene.pair;
        CHECK_OK(rdmux_mr_alloc(pair->fabric_b, sizeof(words),
                                RDMUX_ACCESS_REMOTE_WRITE | RDMUX_ACCESS_REMOTE_READ, &mr));
        struct rdmux_remote *remote = import_region(pair->a, mr);

        for (uint64_t round = 0; round < ROUNDS; round++) {
            uint64_t first = tally.next;
            for (uint64_t k = 0; k < WORDS; k++) {
                words[k] = round << 32 | k;
                got[k] = 0;
                CHECK_OK(
                    rdmux_write(pair->a, &words[k], 8, NULL, remote, 8 * k, CONTEXT(first + k), 0));
                if (k == round % WORDS) {
                    fail_path(round % 2 == 0 ? pair->a : pair->b, RDMUX_IO);
                }
            }
            for (uint64_t k = 0; k < WORDS; k++) {
                CHECK_OK(rdmux_read(pair->a, &got[k], 8, NULL, remote, 8 * k,
                                    CONTEXT(first + WORDS + k), 0));
            }
            tally_until(pair, &tally, first + 2UL * WORDS);
            assert_memory_equal(rdmux_mr_addr(mr), words, sizeof(words));
            assert_memory_equal(got, words, sizeof(words));
        }

        assert_int_equal(tally.unknown, 0);
        assert_true(moves_of(pair->a) >= ROUNDS / 2);
        rdmux_mr_deregister(mr);
        clear_scene(&scene);
    }
}

static void an_atomic_is_executed_once_or_reported_as_unknown(void **state)
{
    (void)state;
    enum { ADDS = 16, ROUNDS = 60 };
    uint64_t unknown_in_all = 0;
    for (size_t i = 0; i < RDMUX_COUNT_OF(moved_paths); i++) {
        struct scene scene;
        struct rdmux_mr *mr = NULL;
        uint64_t before[ADDS];
        struct tally tally = { 0 };
        open_failover(&scene, moved_paths[i], 0, &traffic_attr);
        struct pair *pair = &scene.pair;
        CHECK_OK(rdmux_mr_alloc(pair->fabric_b, 8,
                                RDMUX_ACCESS_REMOTE_ATOMIC | RDMUX_ACCESS_REMOTE_READ, &mr));
        struct rdmux_remote *remote = import_region(pair->a, mr);
        uint64_t posted = 0;

        for (uint64_t round = 0; round < ROUNDS; round++) {
            for (uint64_t k = 0; k < ADDS; k++) {
                CHECK_OK(
                    rdmux_fetch_add(pair->a, &before[k], NULL, remote, 0, 1, CONTEXT(posted++), 0));
                if (k == round % ADDS) {
                    fail_path(pair->a, RDMUX_IO);
                }
            }
            tally_until(pair, &tally, posted);
        }

        uint64_t sum = *(uint64_t *)rdmux_mr_addr(mr);
        assert_int_equal(tally.ok + tally.unknown, posted);
        assert_in_range(sum, tally.ok, posted);
        assert_true(tally.ok > 0);
        unknown_in_all += tally.unknown;
        rdmux_mr_deregister(mr);
        clear_scene(&scene);
    }
    assert_true(unknown_in_all > 0);
}

/* A request in doubt is reported in its place; the others continue. */
static void a_request_marked_no_replay_is_not_repeated(void **state)
{
    (void)state;
    enum { COUNT = 12 };
    struct scene scene;
    struct rdmux_mr *mr = NULL;
    uint8_t bytes[COUNT];
    uint8_t expected[COUNT];
    open_failover(&scene, "tcp", 0, &traffic_attr);
    struct pair *pair = &scene.pair;
    CHECK_OK(rdmux_mr_alloc(pair->fabric_b, COUNT, RDMUX_ACCESS_REMOTE_WRITE, &mr));
    struct rdmux_remote *remote = import_region(pair->a, mr);
    uint64_t next = 0;

    for (uint64_t i = 0; i < COUNT; i++) {
        bytes[i] = (uint8_t)(i + 1);
        CHECK_OK(rdmux_write(pair->a, &bytes[i], 1, NULL, remote, i, CONTEXT(i),
                             i % 3 == 0 ? (uint32_t)RDMUX_NO_REPLAY : 0));
    }
    fail_path(pair->a, RDMUX_IO); /* no side has polled: no send is confirmed */

    uint64_t until = now_ms() + PATIENT_MS;
    while (next < COUNT) {
        struct rdmux_wc wc;
        assert_true(now_ms() < until);
        (void)rdmux_cq_poll(pair->cq_b, &wc, 1);
        if (rdmux_cq_poll(pair->cq_a, &wc, 1) == 1 && wc.opcode != RDMUX_WC_PATH_CHANGED) {
            assert_ptr_equal(wc.context, CONTEXT(next));
            assert_int_equal(wc.status, next % 3 == 0 ? RDMUX_OUTCOME_UNKNOWN : RDMUX_OK);
            next++;
        }
    }
    for (size_t i = 0; i < COUNT; i++) {
        uint8_t there = ((const uint8_t *)rdmux_mr_addr(mr))[i];
        expected[i] = i % 3 == 0 ? there : bytes[i];
    }
    assert_memory_equal(rdmux_mr_addr(mr), expected, COUNT);
    check_messages(pair);
    rdmux_mr_deregister(mr);
    clear_scene(&scene);
}

/* --------------------------------------------------------------------------- progress of a move */

static void expect_change(struct rdmux_cq *cq)
{
    struct rdmux_wc wc = next_entry(cq);
    assert_int_equal(wc.opcode, RDMUX_WC_PATH_CHANGED);
    assert_int_not_equal(wc.status, RDMUX_OK);
}

static void a_move_is_reported_to_the_program(void **state)
{
    (void)state;
    struct scene scene;
    open_failover(&scene, "shm,tcp", 0, NULL);
    struct pair *pair = &scene.pair;
    assert_string_equal(info_of(pair->a).provider, "shm");
    assert_int_equal(info_of(pair->a).epoch, 1);

    fail_path(pair->a, RDMUX_IO);

    struct rdmux_wc wc = expect_entry(pair->cq_a, RDMUX_WC_PATH_CHANGED, RDMUX_IO);
    assert_ptr_equal(wc.ep, pair->a);
    assert_int_equal(wc.imm, 2);
    expect_change(pair->cq_b);
    struct rdmux_ep *const eps[] = { pair->a, pair->b };
    for (size_t i = 0; i < 2; i++) {
        struct rdmux_ep_info info = info_of(eps[i]);
        assert_string_equal(info.provider, "tcp");
        assert_string_equal(info.previous_provider, "shm");
        assert_int_equal(info.epoch, 2);
        assert_int_equal(info.state, RDMUX_EP_CONNECTED);
        assert_memory_equal(info.text, "moved from shm", 14);
        if (i == 0) { /* the other may have seen the path fail before the report */
            assert_int_equal(info.previous_status, RDMUX_IO);
            assert_non_null(strstr(info.text, "broken by a test"));
        }
        assert_int_equal(moves_of(eps[i]), 1);
        struct rdmux_explanation *explanation = NULL;
        const char *json = NULL;
        CHECK_OK(rdmux_ep_explanation(eps[i], &explanation));
        CHECK_OK(rdmux_explanation_json(explanation, &json));
        assert_non_null(strstr(json, "PATH_LOST"));
        assert_non_null(strstr(json, "took over when another failed"));
        rdmux_explanation_free(explanation);
    }
    check_messages(pair);
    clear_scene(&scene);
}

static void a_move_takes_little_time(void **state)
{
    (void)state;
    for (size_t i = 0; i < RDMUX_COUNT_OF(moved_paths); i++) {
        struct scene scene;
        uint64_t best_ns = UINT64_MAX;
        open_failover(&scene, moved_paths[i], 0, &traffic_attr);
        for (int round = 0; round < 5; round++) {
            struct span span = span_begin();
            fail_path(scene.pair.a, RDMUX_IO);
            expect_entry(scene.pair.cq_a, RDMUX_WC_PATH_CHANGED, RDMUX_IO);
            expect_change(scene.pair.cq_b);
            struct span took = span_end(span);
            uint64_t fair_ns = span_fair_ns(&took);
            best_ns = fair_ns < best_ns ? fair_ns : best_ns;
        }
        assert_in_range(best_ns / 1000000, 0, 100 * SLACK);
        clear_scene(&scene);
    }
}

static void errors_of_the_caller_cause_no_move(void **state)
{
    (void)state;
    static const enum rdmux_status causes[] = { RDMUX_LENGTH, RDMUX_DENIED, RDMUX_OUT_OF_RANGE,
                                                RDMUX_PROTOCOL };
    for (size_t i = 0; i < RDMUX_COUNT_OF(causes); i++) {
        struct scene scene;
        open_failover(&scene, "tcp", 0, NULL);

        fail_path(scene.pair.a, causes[i]);

        expect_entry(scene.pair.cq_a, RDMUX_WC_DISCONNECTED, causes[i]);
        struct rdmux_wc wc = next_entry(scene.pair.cq_b);
        assert_int_equal(wc.opcode, RDMUX_WC_DISCONNECTED);
        assert_int_equal(moves_of(scene.pair.a), 0);
        assert_int_equal(moves_of(scene.pair.b), 0);
        clear_scene(&scene);
    }
}

static void a_peer_that_closes_ends_the_endpoint_without_a_move(void **state)
{
    (void)state;
    for (int moving = 0; moving < 2; moving++) {
        for (size_t i = 0; i < RDMUX_COUNT_OF(moved_paths); i++) {
            struct scene scene;
            open_failover(&scene, moved_paths[i], 0, NULL);
            if (moving != 0) {
                fail_path(scene.pair.a, RDMUX_IO);
                rdmux_cq_poll(scene.pair.cq_a, NULL, 0); /* the move has begun */
                assert_int_equal(state_of(scene.pair.a), RDMUX_EP_MOVING);
            }

            CHECK_OK(rdmux_ep_close(scene.pair.b));
            scene.pair.b = NULL;

            expect_entry(scene.pair.cq_a, RDMUX_WC_DISCONNECTED, RDMUX_PEER_GONE);
            assert_int_equal(moves_of(scene.pair.a), 0);
            clear_scene(&scene);
        }
    }
}

static void a_shutdown_confirms_all_messages_whatever_breaks_meanwhile(void **state)
{
    (void)state;
    enum { COUNT = 8 };
    for (int breaks = 0; breaks < 2; breaks++) {
        struct scene scene;
        uint64_t got[COUNT] = { 0 };
        open_failover(&scene, "tcp", 0, NULL);
        struct pair *pair = &scene.pair;
        for (uint64_t i = 0; i < COUNT; i++) {
            CHECK_OK(rdmux_recv(pair->b, &got[i], 8, NULL, CONTEXT(i)));
            uint64_t word = i + 1;
            CHECK_OK(rdmux_send(pair->a, &word, 8, NULL, CONTEXT(i), RDMUX_INLINE));
        }
        CHECK_STATUS(rdmux_ep_shutdown(pair->a, 0), RDMUX_IN_PROGRESS);
        if (breaks != 0) {
            fail_path(pair->a, RDMUX_IO);
        }

        for (uint64_t i = 0; i < COUNT; i++) {
            struct rdmux_wc wc = next_entry(pair->cq_a);
            if (wc.opcode == RDMUX_WC_PATH_CHANGED) {
                i--;
                continue;
            }
            assert_int_equal(wc.opcode, RDMUX_WC_SEND);
            assert_int_equal(wc.status, RDMUX_OK);
            assert_ptr_equal(wc.context, CONTEXT(i));
            assert_int_equal(got[i], i + 1);
        }
        struct rdmux_wc wc = next_entry(pair->cq_a);
        while (wc.opcode == RDMUX_WC_PATH_CHANGED) {
            wc = next_entry(pair->cq_a);
        }
        assert_int_equal(wc.opcode, RDMUX_WC_DISCONNECTED);
        assert_int_equal(wc.status, RDMUX_OK);
        clear_scene(&scene);
    }
}

/* A send is not done before the peer's library has it, however long ago its bytes left. */
static void a_send_completes_once_the_peer_has_confirmed_it(void **state)
{
    (void)state;
    struct scene scene;
    uint64_t word = 5;
    uint64_t got = 0;
    struct rdmux_wc wc;
    /* b's side runs when it is called, and at no other time. */
    open_failover(&scene, "tcp", RDMUX_FABRIC_NO_SERVICE_THREAD | RDMUX_FABRIC_NO_WORKER_THREAD,
                  NULL);
    struct pair *pair = &scene.pair;
    CHECK_OK(rdmux_recv(pair->b, &got, 8, NULL, CONTEXT(2)));
    rdmux_cq_poll(pair->cq_b, NULL, 0);
    CHECK_OK(rdmux_send(pair->a, &word, 8, NULL, CONTEXT(1), 0));

    for (int i = 0; i < 1000; i++) {
        assert_int_equal(rdmux_cq_poll(pair->cq_a, &wc, 1), 0);
    }
    while (rdmux_cq_poll(pair->cq_b, &wc, 1) == 0) {
    }
    assert_int_equal(wc.opcode, RDMUX_WC_RECV);
    assert_int_equal(got, 5);
    uint64_t until = now_ms() + PATIENT_MS;
    size_t count = 0;
    while (count == 0) {
        assert_true(now_ms() < until);
        struct rdmux_wc none;
        assert_int_equal(rdmux_cq_poll(pair->cq_b, &none, 1), 0);
        CHECK_OK(rdmux_fabric_progress(pair->fabric_a));
        count = rdmux_cq_poll(pair->cq_a, &wc, 1);
    }
    assert_int_equal(wc.opcode, RDMUX_WC_SEND);
    assert_int_equal(wc.status, RDMUX_OK);
    clear_scene(&scene);
}

/* --------------------------------------------------------------------------------------- limits */

static void an_endpoint_ends_when_no_path_is_left(void **state)
{
    (void)state;
    struct scene scene;
    uint64_t word = 1;
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    attr.failover_attempts = 3;
    open_failover(&scene, "tcp", 0, &attr);
    struct pair *pair = &scene.pair;
    CHECK_OK(rdmux_send(pair->a, &word, 8, NULL, CONTEXT(1), 0));
    CHECK_OK(rdmux_send(pair->a, &word, 8, NULL, CONTEXT(2), RDMUX_UNSIGNALED));
    rdmux_listener_close(pair->listener); /* tcp's next socket finds no listener */
    pair->listener = NULL;

    fail_path(pair->a, RDMUX_IO);

    struct rdmux_wc wc = expect_entry(pair->cq_a, RDMUX_WC_SEND, RDMUX_PEER_GONE);
    assert_ptr_equal(wc.context, CONTEXT(1));
    wc = expect_entry(pair->cq_a, RDMUX_WC_SEND, RDMUX_FLUSHED);
    assert_ptr_equal(wc.context, CONTEXT(2));
    expect_entry(pair->cq_a, RDMUX_WC_DISCONNECTED, RDMUX_PEER_GONE);
    expect_entry(pair->cq_b, RDMUX_WC_DISCONNECTED, RDMUX_PEER_GONE);
    assert_non_null(strstr(info_of(pair->a).text, "no path is left"));
    clear_scene(&scene);
}

static void moves_in_quick_succession_end_at_the_limit_of_attempts(void **state)
{
    (void)state;
    struct scene scene;
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    attr.failover_attempts = 5;
    open_failover(&scene, "shm,tcp", 0, &attr);
    struct pair *pair = &scene.pair;
    uint64_t until = now_ms() + PATIENT_MS;
    uint32_t end = 0;

    while (end == 0) {
        struct rdmux_wc wc;
        assert_true(now_ms() < until);
        if (state_of(pair->a) == RDMUX_EP_CONNECTED) {
            fail_path(pair->a, RDMUX_IO);
        }
        if (rdmux_cq_poll(pair->cq_a, &wc, 1) == 1 && wc.opcode == RDMUX_WC_DISCONNECTED) {
            end = wc.status;
        }
        (void)rdmux_cq_poll(pair->cq_b, &wc, 1);
    }

    assert_int_equal(end, RDMUX_PEER_GONE);
    assert_in_range(moves_of(pair->a), 1, 5); /* an attempt may fail on a busy machine */
    assert_non_null(strstr(info_of(pair->b).text, "5 attempts failed"));
    clear_scene(&scene);
}

/* ----------------------------------------------------------------------------------- revocation */

static void a_region_that_is_revoked_during_a_move_stays_revoked(void **state)
{
    (void)state;
    for (size_t i = 0; i < RDMUX_COUNT_OF(moved_paths); i++) {
        struct scene scene;
        struct rdmux_mr *mr = NULL;
        uint64_t word = 7;
        open_failover(&scene, moved_paths[i], 0, NULL);
        struct pair *pair = &scene.pair;
        CHECK_OK(rdmux_mr_alloc(pair->fabric_b, 8, RDMUX_ACCESS_REMOTE_WRITE, &mr));
        struct rdmux_remote *remote = import_region(pair->a, mr);
        fail_path(pair->b, RDMUX_IO);
        rdmux_cq_poll(pair->cq_b, NULL, 0);
        assert_int_equal(state_of(pair->b), RDMUX_EP_MOVING);
        CHECK_OK(rdmux_write(pair->a, &word, 8, NULL, remote, 0, CONTEXT(1), 0));

        CHECK_OK(rdmux_mr_revoke(mr));

        struct rdmux_wc wc = next_entry(pair->cq_a);
        while (wc.opcode == RDMUX_WC_PATH_CHANGED) {
            wc = next_entry(pair->cq_a);
        }
        assert_ptr_equal(wc.context, CONTEXT(1));
        assert_int_equal(wc.status, RDMUX_OUTCOME_UNKNOWN);
        CHECK_STATUS(rdmux_write(pair->a, &word, 8, NULL, remote, 0, NULL, 0), RDMUX_DENIED);
        while (moves_of(pair->b) == 0 || moves_of(pair->a) == 0) {
            (void)rdmux_cq_poll(pair->cq_b, NULL, 0);
            (void)rdmux_cq_poll(pair->cq_a, NULL, 0);
        }
        expect_entry(pair->cq_b, RDMUX_WC_PATH_CHANGED, RDMUX_IO);
        rdmux_mr_deregister(mr);
        clear_scene(&scene);
    }
}

static void imports_requested_during_a_move_are_answered_after_it(void **state)
{
    (void)state;
    for (size_t i = 0; i < RDMUX_COUNT_OF(moved_paths); i++) {
        struct scene scene;
        struct rdmux_mr *mr = NULL;
        struct rdmux_token token;
        struct rdmux_remote *before = NULL;
        struct rdmux_remote *during = NULL;
        uint64_t word = 7;
        open_failover(&scene, moved_paths[i], 0, NULL);
        struct pair *pair = &scene.pair;
        CHECK_OK(rdmux_mr_alloc(pair->fabric_b, 8, RDMUX_ACCESS_REMOTE_WRITE, &mr));
        CHECK_OK(rdmux_mr_export(mr, &token));
        CHECK_STATUS(rdmux_remote_import(pair->a, &token, 0, &before), RDMUX_IN_PROGRESS);
        fail_path(pair->a, RDMUX_IO);
        rdmux_cq_poll(pair->cq_a, NULL, 0);
        CHECK_STATUS(rdmux_remote_import(pair->a, &token, 0, &during), RDMUX_IN_PROGRESS);

        for (int ready = 0; ready < 2;) {
            struct rdmux_wc wc = next_entry(pair->cq_a);
            assert_int_equal(wc.opcode == RDMUX_WC_PATH_CHANGED ? RDMUX_OK : wc.status, RDMUX_OK);
            ready += wc.opcode == RDMUX_WC_REMOTE_READY;
        }

        struct rdmux_remote *const remotes[] = { before, during };
        for (size_t k = 0; k < 2; k++) {
            word = 10 + k;
            CHECK_OK(rdmux_write(pair->a, &word, 8, NULL, remotes[k], 0, NULL, 0));
            struct rdmux_wc wc = next_entry(pair->cq_a);
            while (wc.opcode == RDMUX_WC_PATH_CHANGED) {
                wc = next_entry(pair->cq_a);
            }
            assert_int_equal(wc.status, RDMUX_OK);
            assert_memory_equal(rdmux_mr_addr(mr), &word, 8);
            rdmux_remote_close(remotes[k]);
        }
        rdmux_mr_deregister(mr);
        clear_scene(&scene);
    }
}

/* ---------------------------------------------------------------------- the control channel cut */

static void a_cut_control_channel_is_dialled_again_without_a_move(void **state)
{
    (void)state;
    if (!can_resume()) {
        skip();
    }
    for (size_t i = 0; i < RDMUX_COUNT_OF(moved_paths); i++) {
        struct scene scene;
        struct rdmux_mr *mr = NULL;
        open_failover(&scene, moved_paths[i], 0, NULL);
        struct pair *pair = &scene.pair;
        CHECK_OK(rdmux_mr_alloc(pair->fabric_b, 8, RDMUX_ACCESS_REMOTE_WRITE, &mr));
        for (uint64_t round = 0; round < 5; round++) {
            struct rdmux_token token;
            struct rdmux_remote *remote = NULL;
            cut_control(pair);

            check_messages(pair); /* they are confirmed over the next one */
            CHECK_OK(rdmux_mr_export(mr, &token));
            CHECK_OK(rdmux_remote_import(pair->a, &token, PATIENT_MS, &remote));
            CHECK_OK(rdmux_write(pair->a, &round, 8, NULL, remote, 0, CONTEXT(1), 0));
            expect_entry(pair->cq_a, RDMUX_WC_WRITE, RDMUX_OK);
            assert_memory_equal(rdmux_mr_addr(mr), &round, 8);
        }
        assert_int_equal(moves_of(pair->a), 0);
        assert_int_equal(moves_of(pair->b), 0);
        rdmux_mr_deregister(mr);
        clear_scene(&scene);
    }
}

/* Messages that were in flight on the channel at that moment are not lost. */
static void a_revocation_lost_with_the_channel_is_repeated(void **state)
{
    (void)state;
    if (!can_resume()) {
        skip();
    }
    struct scene scene;
    struct rdmux_mr *mr = NULL;
    struct rdmux_wc none;
    uint64_t word = 1;
    open_failover(&scene, "tcp", 0, NULL);
    struct pair *pair = &scene.pair;
    CHECK_OK(rdmux_mr_alloc(pair->fabric_b, 8, RDMUX_ACCESS_REMOTE_WRITE, &mr));
    struct rdmux_remote *remote = import_region(pair->a, mr);
    cut_control(pair);

    CHECK_OK(rdmux_mr_revoke(mr));

    uint64_t until = now_ms() + PATIENT_MS;
    struct rdmux_remote_info info = RDMUX_REMOTE_INFO_INIT;
    info.status = RDMUX_OK;
    while (info.status == RDMUX_OK) {
        assert_true(now_ms() < until);
        assert_int_equal(rdmux_cq_poll(pair->cq_a, &none, 1), 0);
        assert_int_equal(rdmux_cq_poll(pair->cq_b, &none, 1), 0);
        CHECK_OK(rdmux_remote_info(remote, &info));
    }
    CHECK_STATUS(rdmux_write(pair->a, &word, 8, NULL, remote, 0, NULL, 0), RDMUX_DENIED);
    check_messages(pair);
    rdmux_mr_deregister(mr);
    clear_scene(&scene);
}

/* A message arrives over the path after the connector has reported how many have arrived, and
 * before it is answered. */
static void a_message_between_resume_and_its_answer_is_reported(void **state)
{
    (void)state;
    if (!can_resume()) {
        skip();
    }
    struct scene scene;
    uint64_t word = 7;
    uint64_t got = 0;
    uint64_t until = now_ms() + PATIENT_MS;
    struct rdmux_wc wc;
    open_failover(&scene, "tcp", RDMUX_FABRIC_NO_SERVICE_THREAD, NULL);
    struct pair *pair = &scene.pair;
    const struct rdmux_reconnect *resume = &pair->a->failover->reconnect;
    CHECK_OK(rdmux_recv(pair->a, &got, sizeof(got), NULL, CONTEXT(1)));
    cut_control(pair);
    while (!resume->has_greeted) {
        assert_true(now_ms() < until);
        CHECK_OK(rdmux_fabric_progress(pair->fabric_b));
        CHECK_OK(rdmux_fabric_progress(pair->fabric_a));
    }

    CHECK_OK(rdmux_send(pair->b, &word, sizeof(word), NULL, CONTEXT(2), 0));
    while (rdmux_cq_poll(pair->cq_a, &wc, 1) == 0) {
        assert_true(now_ms() < until);
    }
    assert_int_equal(wc.opcode, RDMUX_WC_RECV);
    assert_null(pair->a->channel);

    while (rdmux_cq_poll(pair->cq_b, &wc, 1) == 0) {
        assert_true(now_ms() < until);
        CHECK_OK(rdmux_fabric_progress(pair->fabric_b));
        CHECK_OK(rdmux_fabric_progress(pair->fabric_a));
        assert_int_equal(rdmux_cq_poll(pair->cq_a, &wc, 1), 0);
    }
    assert_int_equal(wc.opcode, RDMUX_WC_SEND);
    assert_int_equal(wc.status, RDMUX_OK);
    assert_int_equal(got, word);
    clear_scene(&scene);
}

static void an_endpoint_whose_peer_is_gone_ends_with_or_without_a_listener(void **state)
{
    (void)state;
    if (!can_resume()) {
        skip();
    }
    for (int listens = 0; listens < 2; listens++) {
        struct scene scene;
        open_failover(&scene, "tcp", 0, NULL);
        struct pair *pair = &scene.pair;
        if (listens == 0) {
            rdmux_listener_close(pair->listener);
            pair->listener = NULL;
        }
        pair->b->session.is_end_told = true; /* it dies without a word */
        CHECK_OK(rdmux_ep_close(pair->b));
        pair->b = NULL;

        expect_entry(pair->cq_a, RDMUX_WC_DISCONNECTED, RDMUX_PEER_GONE);
        assert_non_null(
            strstr(info_of(pair->a).text, listens == 0 ? "nobody listens" : "does not know"));
        clear_scene(&scene);
    }
}

/* A stranger that knows the name of a connection cannot take part in it. */
static void a_socket_without_proof_of_the_secret_resumes_nothing(void **state)
{
    (void)state;
    if (!can_resume()) {
        skip();
    }
    struct scene scene;
    struct rdmux_hello hello;
    uint8_t bytes[RDMUX_HELLO_SIZE + RDMUX_MESSAGE_MAX];
    open_failover(&scene, "tcp", 0, NULL);
    struct pair *pair = &scene.pair;
    rdmux_hello_fill(pair->fabric_a, &hello);
    memcpy(hello.resume, pair->a->failover->reconnect.name, sizeof(hello.resume));
    rdmux_hello_encode(&hello, bytes);
    struct rdmux_message message = { .type = RDMUX_FRAME_RESUME, .epoch = 1, .is_steady = true };
    size_t size = RDMUX_HELLO_SIZE + rdmux_message_encode(&message, bytes + RDMUX_HELLO_SIZE);
    uint8_t answer[RDMUX_HELLO_SIZE + RDMUX_MESSAGE_MAX];
    struct timeval patience = { .tv_sec = PATIENT_MS / 1000 };
    int fd = dial_raw(pair->address);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)), 0);

    send_bytes(fd, bytes, size);

    /* A HELLO answers the name; RESUMED would be a part in it, which the real connector took
     * back. */
    assert_int_equal(recv(fd, answer, sizeof(answer), MSG_WAITALL), RDMUX_HELLO_SIZE);
    assert_true(is_dropped(fd, PATIENT_MS));
    close(fd);
    check_messages(pair);
    assert_int_equal(state_of(pair->b), RDMUX_EP_CONNECTED);
    clear_scene(&scene);
}

/* HELLO of the connection, as it was overheard. */
static void overhear(const struct pair *pair, uint8_t out[RDMUX_HELLO_SIZE])
{
    struct rdmux_hello hello;
    rdmux_hello_fill(pair->fabric_a, &hello);
    hello.flags |= RDMUX_HELLO_FAILOVER;
    memcpy(hello.resume, pair->a->failover->reconnect.name, sizeof(hello.resume));
    rdmux_hello_encode(&hello, out);
}

static bool has_bytes(int fd)
{
    struct pollfd poll_fd = { .fd = fd, .events = POLLIN };
    return poll(&poll_fd, 1, 0) == 1;
}

/* Progresses b until it has sent bytes to this socket, or ended it. */
static void await_answer_of_b(const struct pair *pair, int fd)
{
    uint64_t until = now_ms() + PATIENT_MS;
    while (!has_bytes(fd)) {
        assert_true(now_ms() < until);
        CHECK_OK(rdmux_fabric_progress(pair->fabric_b));
    }
}

/* Sends an overheard HELLO again, from this socket, and waits for b's answer. Returns the socket. */
static int repeat_hello(const struct pair *pair, int stranger, const uint8_t hello[RDMUX_HELLO_SIZE])
{
    send_bytes(stranger, hello, RDMUX_HELLO_SIZE);
    await_answer_of_b(pair, stranger);
    return stranger;
}

/* The connector has dialled again, and the acceptor has answered its HELLO. Returns the channel's
 * socket, from which nothing has been read yet. */
static int resume_halfway(const struct pair *pair)
{
    uint64_t until = now_ms() + PATIENT_MS;
    const struct rdmux_reconnect *resume = &pair->a->failover->reconnect;
    cut_control(pair);
    while (resume->fresh == NULL) {
        assert_true(now_ms() < until);
        CHECK_OK(rdmux_fabric_progress(pair->fabric_a));
    }
    int socket = rdmux_channel_socket(resume->fresh);
    await_answer_of_b(pair, socket);
    return socket;
}

static void finish_resumption(const struct pair *pair)
{
    uint64_t until = now_ms() + PATIENT_MS;
    while (pair->a->channel == NULL || pair->b->channel == NULL) {
        assert_true(now_ms() < until);
        CHECK_OK(rdmux_fabric_progress(pair->fabric_a));
        CHECK_OK(rdmux_fabric_progress(pair->fabric_b));
    }
}

/* A stranger sends overheard bytes, while the connector has not yet proved its identity. */
static void a_repeated_hello_delays_no_resumption(void **state)
{
    (void)state;
    if (!can_resume()) {
        skip();
    }
    struct scene scene;
    uint8_t hello[RDMUX_HELLO_SIZE];
    open_failover(&scene, "tcp", RDMUX_FABRIC_NO_SERVICE_THREAD, NULL);
    struct pair *pair = &scene.pair;
    overhear(pair, hello);
    int socket = resume_halfway(pair);

    int stranger = repeat_hello(pair, dial_raw(pair->address), hello);

    finish_resumption(pair);
    assert_int_equal(rdmux_channel_socket(pair->a->channel), socket);
    assert_int_equal(pair->a->failover->reconnect.dials, 1);
    assert_true(is_dropped(stranger, PATIENT_MS)); /* another has proved itself */
    close(stranger);
    check_messages(pair);
    clear_scene(&scene);
}

/* More strangers than an endpoint keeps at a time, from another address: they displace one
 * another. */
static void a_crowd_that_repeats_a_hello_is_bounded_and_displaces_no_other_peer(void **state)
{
    (void)state;
    if (!can_resume()) {
        skip();
    }
    enum { CROWD = 3 * RDMUX_CLAIMS_MAX };
    struct scene scene;
    uint8_t hello[RDMUX_HELLO_SIZE];
    int crowd[CROWD];
    size_t dropped = 0;
    open_failover(&scene, "tcp", RDMUX_FABRIC_NO_SERVICE_THREAD, NULL);
    struct pair *pair = &scene.pair;
    overhear(pair, hello);
    int socket = resume_halfway(pair);

    for (size_t i = 0; i < CROWD; i++) {
        crowd[i] = repeat_hello(pair, dial_from(pair->address, "127.0.0.2"), hello);
        assert_true(pair->b->failover->reconnect.claims.count <= RDMUX_CLAIMS_MAX);
    }

    for (size_t i = 0; i < CROWD; i++) {
        uint8_t bytes[RDMUX_HELLO_SIZE + 1];
        ssize_t got = recv(crowd[i], bytes, sizeof(bytes), MSG_DONTWAIT);
        assert_int_equal(got, RDMUX_HELLO_SIZE);
        dropped += recv(crowd[i], bytes, sizeof(bytes), MSG_DONTWAIT) == 0;
    }
    assert_int_equal(dropped, CROWD - (RDMUX_CLAIMS_MAX - 1));
    finish_resumption(pair);
    assert_int_equal(rdmux_channel_socket(pair->a->channel), socket);
    assert_int_equal(pair->a->failover->reconnect.dials, 1);
    assert_int_equal(pair->b->failover->reconnect.claims.count, 0);
    for (size_t i = 0; i < CROWD; i++) {
        close(crowd[i]);
    }
    check_messages(pair);
    clear_scene(&scene);
}

/* The existing channel ignores a name that a stranger repeats. */
static void a_repeated_hello_leaves_the_channel_alone(void **state)
{
    (void)state;
    if (!can_resume()) {
        skip();
    }
    struct scene scene;
    uint8_t hello[RDMUX_HELLO_SIZE];
    open_failover(&scene, "tcp", RDMUX_FABRIC_NO_SERVICE_THREAD, NULL);
    struct pair *pair = &scene.pair;
    const struct rdmux_channel *channel = pair->b->channel;
    overhear(pair, hello);

    int stranger = repeat_hello(pair, dial_raw(pair->address), hello);

    check_messages(pair);
    assert_ptr_equal(pair->b->channel, channel);
    assert_int_equal(pair->b->failover->reconnect.claims.count, 1);
    /* It has no more time than any pending connection. */
    assert_true(rdmux_failover_deadline(pair->b) <=
                rdmux_now(pair->fabric_b) + UINT64_C(1000000) * RDMUX_CLAIM_MS);
    close(stranger);
    clear_scene(&scene);
}

/* The claim of a stranger goes along: at the new cq the endpoint sees that the stranger ends it. */
static void a_repeated_hello_keeps_no_endpoint_on_its_cq(void **state)
{
    (void)state;
    if (!can_resume()) {
        skip();
    }
    struct scene scene;
    uint8_t hello[RDMUX_HELLO_SIZE];
    open_failover(&scene, "tcp", RDMUX_FABRIC_NO_SERVICE_THREAD, NULL);
    struct pair *pair = &scene.pair;
    struct rdmux_cq *to = create_cq(pair->fabric_b);
    overhear(pair, hello);
    int stranger = repeat_hello(pair, dial_raw(pair->address), hello);

    CHECK_OK(rdmux_ep_move(pair->b, to));
    CHECK_OK(rdmux_cq_destroy(pair->cq_b));
    pair->cq_b = to;
    (void)expect_entry(to, RDMUX_WC_MOVED, RDMUX_OK);
    assert_int_equal(pair->b->failover->reconnect.claims.count, 1);
    check_messages(pair);
    close(stranger);
    for (uint64_t until = now_ms() + PATIENT_MS; pair->b->failover->reconnect.claims.count != 0;) {
        assert_true(now_ms() < until);
        CHECK_OK(rdmux_fabric_progress(pair->fabric_b));
    }
    check_messages(pair);
    clear_scene(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(failover_is_in_force_when_both_sides_ask_for_it),
        cmocka_unit_test(a_send_completes_once_the_peer_has_confirmed_it),
        cmocka_unit_test(messages_arrive_once_and_in_order_whatever_breaks),
        cmocka_unit_test(writes_and_reads_have_the_right_bytes_after_a_move),
        cmocka_unit_test(an_atomic_is_executed_once_or_reported_as_unknown),
        cmocka_unit_test(a_request_marked_no_replay_is_not_repeated),
        cmocka_unit_test(a_move_is_reported_to_the_program),
        cmocka_unit_test(a_move_takes_little_time),
        cmocka_unit_test(errors_of_the_caller_cause_no_move),
        cmocka_unit_test(a_peer_that_closes_ends_the_endpoint_without_a_move),
        cmocka_unit_test(a_shutdown_confirms_all_messages_whatever_breaks_meanwhile),
        cmocka_unit_test(an_endpoint_ends_when_no_path_is_left),
        cmocka_unit_test(moves_in_quick_succession_end_at_the_limit_of_attempts),
        cmocka_unit_test(a_region_that_is_revoked_during_a_move_stays_revoked),
        cmocka_unit_test(imports_requested_during_a_move_are_answered_after_it),
        cmocka_unit_test(a_cut_control_channel_is_dialled_again_without_a_move),
        cmocka_unit_test(a_revocation_lost_with_the_channel_is_repeated),
        cmocka_unit_test(a_message_between_resume_and_its_answer_is_reported),
        cmocka_unit_test(an_endpoint_whose_peer_is_gone_ends_with_or_without_a_listener),
        cmocka_unit_test(a_socket_without_proof_of_the_secret_resumes_nothing),
        cmocka_unit_test(a_repeated_hello_delays_no_resumption),
        cmocka_unit_test(a_crowd_that_repeats_a_hello_is_bounded_and_displaces_no_other_peer),
        cmocka_unit_test(a_repeated_hello_leaves_the_channel_alone),
        cmocka_unit_test(a_repeated_hello_keeps_no_endpoint_on_its_cq),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
