/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* How endpoints end: by close at any moment, by shutdown, with their listener or cq, and on
 * allocation failure. */
#include "api/core/cq.h"
#include "api/core/ep.h"
#include "api/core/fabric.h"
#include "api/core/mr.h"
#include "api/core/remote.h"
#include "tests/unit/endpoint_scene.h"
#include "tests/unit/fair_time.h"

#include <pthread.h>

/* -------------------------------------------------------------------------- close at any moment */

/* Both sides go on a little. */
static void step(struct pair *pair, unsigned count)
{
    struct rdmux_wc wc;
    for (unsigned i = 0; i < count; i++) {
        (void)rdmux_cq_poll(pair->cq_a, &wc, 1);
        (void)rdmux_cq_poll(pair->cq_b, &wc, 1);
        CHECK_OK(rdmux_fabric_progress(pair->fabric_a));
        CHECK_OK(rdmux_fabric_progress(pair->fabric_b));
    }
}

enum who {
    WHO_CONNECTOR,
    WHO_ACCEPTOR,
    WHO_BOTH,
    WHO_COUNT,
};

/* Makes a connection; after so many steps one side gives up. Returns whether it was connected by
 * then. */
static bool close_after(struct scene *scene, unsigned steps, enum who who)
{
    struct pair *pair = &scene->pair;
    struct rdmux_peer peer = RDMUX_PEER_INIT;
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    struct rdmux_ep *a = NULL;
    struct rdmux_ep *b = NULL;
    CHECK_STATUS(rdmux_connect(pair->fabric_a, pair->cq_a, pair->address, NULL, 0, &a),
                 RDMUX_IN_PROGRESS);
    uint64_t until = now_ms() + PATIENT_MS;
    enum rdmux_status status;
    do {
        step(pair, 1);
        status = rdmux_listener_next(pair->listener, 0, &peer);
        assert_true(now_ms() < until);
    } while (status == RDMUX_AGAIN);
    CHECK_OK(status);
    attr.peer = peer.id;
    CHECK_STATUS(rdmux_accept(pair->listener, pair->cq_b, &attr, 0, &b), RDMUX_IN_PROGRESS);
    for (unsigned i = 0;
         i < steps && (state_of(a) == RDMUX_EP_CONNECTING || state_of(b) == RDMUX_EP_CONNECTING);
         i++) {
        step(pair, 1);
    }
    bool there = state_of(a) == RDMUX_EP_CONNECTED && state_of(b) == RDMUX_EP_CONNECTED;
    uint64_t begin = now_ms();

    if (who != WHO_ACCEPTOR) {
        CHECK_OK(rdmux_ep_close(a));
    }
    if (who != WHO_CONNECTOR) {
        CHECK_OK(rdmux_ep_close(b));
    }

    struct rdmux_ep *left = who == WHO_CONNECTOR ? b : who == WHO_ACCEPTOR ? a : NULL;
    while (left != NULL && state_of(left) != RDMUX_EP_ENDED) {
        step(pair, 1);
        assert_true(now_ms() - begin < PATIENT_MS);
    }
    if (left != NULL) {
        CHECK_OK(rdmux_ep_close(left));
    }
    return there;
}

static void an_endpoint_may_be_closed_at_any_moment_of_its_set_up(void **state)
{
    (void)state;
    enum { STEPS_MAX = 400 };
    for (size_t i = 0; i < RDMUX_COUNT_OF(all_paths); i++) {
        for (int who = WHO_CONNECTOR; who < WHO_COUNT; who++) {
            struct scene scene;
            set_scene(&scene, all_paths[i],
                      RDMUX_FABRIC_NO_SERVICE_THREAD); /* so that nothing moves between the steps */
            bool there = false;
            for (unsigned steps = 0; steps < STEPS_MAX && !there; steps++) {
                there = close_after(&scene, steps, (enum who)who);
            }
            assert_true(there); /* every stage was seen */
            connect_more(&scene.pair, NULL, &scene.pair.a, &scene.pair.b);
            check_messages(&scene.pair);
            clear_scene(&scene);
        }
    }
}

/* ------------------------------------------------------------------------------------- shutdown */

/* Waits for it in a thread of its own. */
struct ender {
    struct rdmux_ep *ep;
    enum rdmux_status status;
};

static void *shut_down(void *argument)
{
    struct ender *ender = argument;
    ender->status = rdmux_ep_shutdown(ender->ep, PATIENT_MS);
    return NULL;
}

static void both_sides_may_shut_down_at_once(void **state)
{
    (void)state;
    for (size_t i = 0; i < RDMUX_COUNT_OF(all_paths); i++) {
        for (int waits = 0; waits <= 1; waits++) {
            struct scene scene;
            struct rdmux_wc wc;
            set_scene(&scene, all_paths[i], 0);
            struct pair *pair = &scene.pair;
            connect_more(pair, NULL, &pair->a, &pair->b);
            if (waits) {
                struct ender ender = { .ep = pair->a };
                pthread_t thread;
                assert_int_equal(pthread_create(&thread, NULL, shut_down, &ender), 0);

                CHECK_OK(rdmux_ep_shutdown(pair->b, PATIENT_MS));

                assert_int_equal(pthread_join(thread, NULL), 0);
                assert_int_equal(ender.status, RDMUX_OK);
                assert_int_equal(rdmux_cq_poll(pair->cq_a, &wc, 1),
                                 0); /* no event after a call that waited */
                assert_int_equal(rdmux_cq_poll(pair->cq_b, &wc, 1), 0);
            } else {
                CHECK_STATUS(rdmux_ep_shutdown(pair->a, 0), RDMUX_IN_PROGRESS);
                CHECK_STATUS(rdmux_ep_shutdown(pair->b, 0), RDMUX_IN_PROGRESS);

                expect_entry(pair->cq_a, RDMUX_WC_DISCONNECTED, RDMUX_OK);
                expect_entry(pair->cq_b, RDMUX_WC_DISCONNECTED, RDMUX_OK);
            }
            struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
            CHECK_OK(rdmux_ep_info(pair->a, &info));
            assert_int_equal(info.state, RDMUX_EP_ENDED);
            assert_int_equal(info.status, RDMUX_OK);
            clear_scene(&scene);
        }
    }
}

static void a_shutdown_after_the_peers_shutdown_returns_ok_without_an_event(void **state)
{
    (void)state;
    for (size_t i = 0; i < RDMUX_COUNT_OF(all_paths); i++) {
        struct scene scene;
        struct rdmux_wc wc;
        set_scene(&scene, all_paths[i], 0);
        struct pair *pair = &scene.pair;
        connect_more(pair, NULL, &pair->a, &pair->b);
        /* b's service thread answers; b has not polled yet. */
        CHECK_OK(rdmux_ep_shutdown(pair->a, PATIENT_MS));

        CHECK_OK(rdmux_ep_shutdown(pair->b, PATIENT_MS));

        assert_int_equal(rdmux_cq_poll(pair->cq_b, &wc, 1), 0);
        assert_int_equal(rdmux_cq_poll(pair->cq_a, &wc, 1), 0);
        clear_scene(&scene);
    }
}

static void everything_posted_before_a_shutdown_arrives(void **state)
{
    (void)state;
    enum { COUNT = 40, LENGTH = 60000 };
    for (size_t i = 0; i < RDMUX_COUNT_OF(all_paths); i++) {
        struct scene scene;
        struct rdmux_wc wc;
        set_scene(&scene, all_paths[i], 0);
        struct pair *pair = &scene.pair;
        connect_more(pair, NULL, &pair->a, &pair->b);
        unsigned char *sent = malloc(LENGTH);
        unsigned char *got = calloc(COUNT, LENGTH);
        assert_non_null(sent);
        assert_non_null(got);
        for (size_t k = 0; k < LENGTH; k++) {
            sent[k] = (unsigned char)(k * 7);
        }
        for (size_t k = 0; k < COUNT; k++) {
            CHECK_OK(rdmux_recv(pair->b, got + k * LENGTH, LENGTH, NULL, CONTEXT(k)));
            CHECK_OK(rdmux_send(pair->a, sent, LENGTH, NULL, NULL, RDMUX_UNSIGNALED));
        }

        CHECK_OK(rdmux_ep_shutdown(pair->a, -1));

        for (size_t k = 0; k < COUNT; k++) {
            wc = expect_entry(pair->cq_b, RDMUX_WC_RECV, RDMUX_OK);
            assert_ptr_equal(wc.context, CONTEXT(k));
            assert_memory_equal(got + k * LENGTH, sent, LENGTH);
        }
        expect_entry(pair->cq_b, RDMUX_WC_DISCONNECTED, RDMUX_OK);
        free(sent);
        free(got);
        clear_scene(&scene);
    }
}

static void a_shutdown_without_an_answer_ends_in_time(void **state)
{
    (void)state;
    enum { LIMIT_MS = 200 };
    for (size_t i = 0; i < RDMUX_COUNT_OF(all_paths); i++) {
        struct scene scene;
        uint64_t word = 1;
        set_scene(&scene, all_paths[i], 0);
        struct pair *pair = &scene.pair;
        connect_more(pair, NULL, &pair->a, &pair->b);
        CHECK_OK(rdmux_send(pair->a, &word, sizeof(word), NULL, CONTEXT(1),
                            RDMUX_PLACED)); /* b has no receive for it */
        struct span span = span_begin();

        CHECK_STATUS(rdmux_ep_shutdown(pair->a, LIMIT_MS), RDMUX_TIMED_OUT);

        check_span("shutdown", span, LIMIT_MS - 10, (LIMIT_MS + 300) * SLACK);
        struct rdmux_wc wc = expect_entry(pair->cq_a, RDMUX_WC_SEND, RDMUX_PEER_GONE);
        assert_ptr_equal(wc.context, CONTEXT(1));
        expect_entry(pair->cq_a, RDMUX_WC_DISCONNECTED, RDMUX_PEER_GONE);
        expect_entry(pair->cq_b, RDMUX_WC_DISCONNECTED, RDMUX_PEER_GONE);
        clear_scene(&scene);
    }
}

static void a_request_after_a_shutdown_is_refused_as_that(void **state)
{
    (void)state;
    for (size_t i = 0; i < RDMUX_COUNT_OF(all_paths); i++) {
        struct scene scene;
        uint64_t word = 1;
        uint64_t got = 0;
        set_scene(&scene, all_paths[i], 0);
        struct pair *pair = &scene.pair;
        connect_more(pair, NULL, &pair->a, &pair->b);
        CHECK_OK(rdmux_send(pair->a, &word, sizeof(word), NULL, CONTEXT(1), RDMUX_PLACED));

        /* The shutdown waits for the message, which waits for a receive. */
        CHECK_STATUS(rdmux_ep_shutdown(pair->a, 0), RDMUX_IN_PROGRESS);
        check_posts(pair->a, RDMUX_INVALID);

        CHECK_OK(rdmux_recv(pair->b, &got, sizeof(got), NULL, CONTEXT(2)));
        expect_entry(pair->cq_b, RDMUX_WC_RECV, RDMUX_OK);
        assert_int_equal(got, 1);
        expect_entry(pair->cq_a, RDMUX_WC_SEND, RDMUX_OK);
        expect_entry(pair->cq_a, RDMUX_WC_DISCONNECTED, RDMUX_OK);
        expect_entry(pair->cq_b, RDMUX_WC_DISCONNECTED, RDMUX_OK);
        clear_scene(&scene);
    }
}

/* --------------------------------------------------------------------------- the listener's end */

static void a_listener_may_close_with_connections_in_every_stage(void **state)
{
    (void)state;
    enum { PROMPT_MS = 1000 };
    for (size_t i = 0; i < RDMUX_COUNT_OF(all_paths); i++) {
        struct scene scene;
        set_scene(&scene, all_paths[i], 0);
        struct pair *pair = &scene.pair;
        struct rdmux_ep *none = NULL;
        struct rdmux_ep *proved = NULL;
        struct rdmux_ep *shown = NULL;
        struct rdmux_ep *waiting = NULL;
        struct rdmux_peer peer = RDMUX_PEER_INIT;
        connect_more(pair, NULL, &pair->a, &pair->b); /* returned: lives on */
        CHECK_STATUS(rdmux_connect(pair->fabric_a, pair->cq_a, pair->address, NULL, 0, &proved),
                     RDMUX_IN_PROGRESS);
        struct pollfd look = { .fd = rdmux_listener_fd(pair->listener), .events = POLLIN };
        assert_int_equal(poll(&look, 1, PATIENT_MS), 1);
        enum rdmux_status status = rdmux_accept(pair->listener, pair->cq_b, NULL, 0,
                                                &none); /* taken, not returned */
        CHECK_STATUS(status, RDMUX_AGAIN);
        expect_entry(pair->cq_a, RDMUX_WC_CONNECTED, RDMUX_OK);
        int silent = dial_raw(pair->address);
        CHECK_STATUS(rdmux_connect(pair->fabric_a, pair->cq_a, pair->address, NULL, 0, &shown),
                     RDMUX_IN_PROGRESS);
        CHECK_OK(rdmux_listener_next(pair->listener, PATIENT_MS, &peer));
        CHECK_STATUS(rdmux_connect(pair->fabric_a, pair->cq_a, pair->address, NULL, 0, &waiting),
                     RDMUX_IN_PROGRESS);
        assert_int_equal(poll(&look, 1, PATIENT_MS), 1);
        struct span span = span_begin();

        rdmux_listener_close(pair->listener);

        pair->listener = NULL;
        assert_true(is_dropped(silent, PATIENT_MS));
        bool ended[3] = { false };
        struct rdmux_ep *eps[3] = { proved, shown, waiting };
        for (int k = 0; k < 3; k++) {
            struct rdmux_wc wc = next_entry(pair->cq_a);
            for (int n = 0; n < 3; n++) {
                if (wc.ep == eps[n]) {
                    assert_false(ended[n]);
                    assert_int_equal(wc.opcode, n == 0 ? RDMUX_WC_DISCONNECTED : RDMUX_WC_CONNECTED);
                    assert_int_equal(wc.status, RDMUX_PEER_GONE);
                    ended[n] = true;
                }
            }
        }
        assert_true(ended[0] && ended[1] && ended[2]);
        check_span(all_paths[i], span, 0, PROMPT_MS * SLACK);
        check_messages(pair);
        close(silent);
        for (int n = 0; n < 3; n++) {
            CHECK_OK(rdmux_ep_close(eps[n]));
        }
        clear_scene(&scene);
    }
}

static void a_cq_can_be_destroyed_although_accepts_on_it_were_under_way(void **state)
{
    (void)state;
    for (int order = 0; order <= 1; order++) {
        struct scene scene;
        set_scene(&scene, "tcp", RDMUX_FABRIC_NO_SERVICE_THREAD);
        struct pair *pair = &scene.pair;
        struct rdmux_ep *none = NULL;
        for (int i = 0; i < 2; i++) { /* one is proved, one has just begun */
            struct rdmux_ep *ep = NULL;
            CHECK_STATUS(rdmux_connect(pair->fabric_a, pair->cq_a, pair->address, NULL, 0, &ep),
                         RDMUX_IN_PROGRESS);
            uint64_t until = now_ms() + PATIENT_MS;
            while (i == 0 && pair->cq_b->lists.accepting.next == &pair->cq_b->lists.accepting &&
                   now_ms() < until) {
                step(pair, 1);
                CHECK_STATUS(rdmux_accept(pair->listener, pair->cq_b, NULL, 0, &none), RDMUX_AGAIN);
            }
            while (i == 0 && state_of(ep) != RDMUX_EP_CONNECTED && now_ms() < until) {
                step(pair, 1);
            }
            step(pair, 20);
            (i == 0 ? &pair->a : &pair->b)[0] = ep;
        }
        assert_int_equal(state_of(pair->a), RDMUX_EP_CONNECTED);

        if (order == 0) {
            rdmux_listener_close(pair->listener);
            pair->listener = NULL;
        }
        CHECK_OK(rdmux_cq_destroy(pair->cq_b));
        pair->cq_b = NULL;
        rdmux_listener_close(pair->listener);
        pair->listener = NULL;
        clear_scene(&scene);
    }
}

/* ------------------------------------------------------------------------------------ no memory */

enum { BRIEF_MS = 100 };

/* A life of a side, in which an allocation may fail: whatever fails must leave the rest to be ended
 * in order. */
struct life {
    struct meter meter;
    struct rdmux_fabric *fabric;
    struct rdmux_cq *cq;
    struct rdmux_listener *listener;
    struct rdmux_mr *mr;
    struct rdmux_ep *ep;
};

static enum rdmux_status begin_life(struct life *life, const char *paths, long failing)
{
    struct rdmux_fabric_attr attr = RDMUX_FABRIC_ATTR_INIT;
    memset(life, 0, sizeof(*life));
    atomic_store(&life->meter.left, failing);
    attr.flags = RDMUX_FABRIC_IGNORE_ENVIRONMENT | RDMUX_FABRIC_NO_DEFAULT_PLUGINS;
    attr.paths = paths;
    attr.allocate = meter_allocate;
    attr.release = meter_release;
    attr.allocate_user = &life->meter;
    enum rdmux_status status = rdmux_fabric_open(&attr, &life->fabric);
    if (status == RDMUX_OK) {
        status = rdmux_cq_create(life->fabric, NULL, &life->cq);
    }
    if (status == RDMUX_OK) {
        status = rdmux_listen(life->fabric, "127.0.0.1:0", NULL, &life->listener);
    }
    if (status == RDMUX_OK) {
        status = rdmux_mr_alloc(life->fabric, 4096, RDMUX_ACCESS_REMOTE_WRITE, &life->mr);
    }
    return status;
}

static void end_life(struct life *life)
{
    CHECK_OK(rdmux_ep_close(life->ep));
    rdmux_mr_deregister(life->mr);
    rdmux_listener_close(life->listener);
    CHECK_OK(rdmux_cq_destroy(life->cq));
    CHECK_OK(rdmux_fabric_close(life->fabric));
    assert_int_equal(atomic_load(&life->meter.pieces), 0);
}

/* a connects to b, writes to it, and both end. Whatever fails ends the attempt. Returns whether
 * nothing failed. */
static bool try_to_meet(struct life *a, struct life *b)
{
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    struct rdmux_token token;
    struct rdmux_remote *remote = NULL;
    char address[RDMUX_ADDRESS_MAX];
    attr.path_timeout_ms = BRIEF_MS / 2;
    attr.setup_timeout_ms = BRIEF_MS;
    CHECK_OK(rdmux_listener_address(b->listener, address, sizeof(address)));
    enum rdmux_status status = rdmux_connect(a->fabric, a->cq, address, &attr, 0, &a->ep);
    if (status != RDMUX_IN_PROGRESS) {
        assert_null(a->ep);
        assert_string_not_equal(rdmux_last_error(), "");
        return false;
    }
    status = rdmux_accept(b->listener, b->cq, &attr, BRIEF_MS, &b->ep);
    struct rdmux_wc wc = next_entry(a->cq);
    assert_int_equal(wc.opcode, RDMUX_WC_CONNECTED);
    if (status != RDMUX_OK || wc.status != RDMUX_OK) {
        return false;
    }
    bool met = false;
    if (rdmux_mr_export(b->mr, &token) == RDMUX_OK &&
        rdmux_remote_import(a->ep, &token, BRIEF_MS, &remote) == RDMUX_OK) {
        uint64_t word = 7;
        CHECK_OK(rdmux_write(a->ep, &word, sizeof(word), NULL, remote, 0, NULL, RDMUX_PLACED));
        wc = next_entry(a->cq);
        assert_true(wc.opcode == RDMUX_WC_WRITE);
        met = rdmux_mr_revoke(b->mr) == RDMUX_OK && wc.status == RDMUX_OK;
    }
    return rdmux_ep_shutdown(a->ep, BRIEF_MS) == RDMUX_OK && met;
}

static void a_failure_of_any_allocation_is_reported_and_leaks_nothing(void **state)
{
    (void)state;
    enum { ALLOCATIONS_MAX = 400 };
    for (size_t i = 0; i < RDMUX_COUNT_OF(all_paths); i++) {
        for (int acceptor = 0; acceptor <= 1; acceptor++) {
            bool met = false;
            size_t descriptors = open_descriptors();
            uint64_t until = now_ms() + PATIENT_MS;
            /* An attempt may be too slow to reach the allocation, and tells nothing about it. */
            for (long at = 1; !met;) {
                struct life poor;
                struct life rich;
                assert_true(at < ALLOCATIONS_MAX && now_ms() < until);
                assert_int_equal(begin_life(&rich, all_paths[i], 0), RDMUX_OK);
                enum rdmux_status status = begin_life(&poor, all_paths[i], at);
                if (status == RDMUX_OK) {
                    met = try_to_meet(acceptor ? &rich : &poor, acceptor ? &poor : &rich);
                } else {
                    assert_int_equal(status, RDMUX_NO_MEMORY);
                    assert_string_not_equal(rdmux_last_error(), "");
                }
                bool failed = atomic_load(&poor.meter.left) <= 0;
                met = met && !failed;
                at += failed;
                end_life(&poor);
                end_life(&rich);
            }
            assert_int_equal(open_descriptors(), descriptors);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_endpoint_may_be_closed_at_any_moment_of_its_set_up),
        cmocka_unit_test(both_sides_may_shut_down_at_once),
        cmocka_unit_test(a_shutdown_after_the_peers_shutdown_returns_ok_without_an_event),
        cmocka_unit_test(everything_posted_before_a_shutdown_arrives),
        cmocka_unit_test(a_shutdown_without_an_answer_ends_in_time),
        cmocka_unit_test(a_request_after_a_shutdown_is_refused_as_that),
        cmocka_unit_test(a_listener_may_close_with_connections_in_every_stage),
        cmocka_unit_test(a_cq_can_be_destroyed_although_accepts_on_it_were_under_way),
        cmocka_unit_test(a_failure_of_any_allocation_is_reported_and_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
