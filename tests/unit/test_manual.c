/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Programs without the library's threads: their own calls do all the work, and no call spins. */
#include "tests/unit/api_pair.h"
#include "tests/unit/fair_time.h"

#include <pthread.h>

enum {
    LIVENESS_MS = 400,
    MANUAL = RDMUX_FABRIC_NO_SERVICE_THREAD | RDMUX_FABRIC_NO_WORKER_THREAD,
};

static const char *const all_paths[] = { "tcp", "shm" };

static void make_progress(struct pair *pair)
{
    CHECK_OK(rdmux_fabric_progress(pair->fabric_a));
    CHECK_OK(rdmux_fabric_progress(pair->fabric_b));
}

/* The next entry of a, while both sides are progressed. */
static struct rdmux_wc next_of(struct pair *pair, struct rdmux_cq *cq)
{
    struct rdmux_wc wc = { .opcode = 0 };
    uint64_t until = now_ms() + PATIENT_MS;
    while (rdmux_cq_poll(cq, &wc, 1) == 0) {
        assert_true(now_ms() < until);
        make_progress(pair);
    }
    return wc;
}

static bool is_readable(int fd)
{
    struct pollfd look = { .fd = fd, .events = POLLIN };
    return poll(&look, 1, 0) > 0;
}

/* Keeps a fabric going in a thread of its own, as its documentation asks for. */
struct engine {
    struct rdmux_fabric *fabric;
    pthread_t thread;
    _Atomic bool stop;
};

static void *run_engine(void *argument)
{
    struct engine *engine = argument;
    while (!atomic_load(&engine->stop)) {
        struct pollfd look = { .fd = rdmux_fabric_fd(engine->fabric), .events = POLLIN };
        (void)poll(&look, 1, 10);
        if (rdmux_fabric_progress(engine->fabric) != RDMUX_OK) {
            break;
        }
    }
    return NULL;
}

static void start_engine(struct engine *engine, struct rdmux_fabric *fabric)
{
    engine->fabric = fabric;
    atomic_store(&engine->stop, false);
    assert_int_equal(pthread_create(&engine->thread, NULL, run_engine, engine), 0);
}

static void stop_engine(struct engine *engine)
{
    atomic_store(&engine->stop, true);
    assert_int_equal(pthread_join(engine->thread, NULL), 0);
}

/* --------------------------------------------------------------------------------------- set-up */

static void a_waiting_call_does_the_work_of_its_own_fabric(void **state)
{
    (void)state;
    for (size_t i = 0; i < RDMUX_COUNT_OF(all_paths); i++) {
        struct pair pair;
        struct rdmux_peer peer = RDMUX_PEER_INIT;
        struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
        open_sides(&pair, all_paths[i], 0, MANUAL); /* a's service thread does a's part */
        CHECK_STATUS(rdmux_connect(pair.fabric_a, pair.cq_a, pair.address, NULL, 0, &pair.a),
                     RDMUX_IN_PROGRESS);

        CHECK_OK(rdmux_listener_next(pair.listener, PATIENT_MS, &peer));
        attr.peer = peer.id;
        CHECK_OK(rdmux_accept(pair.listener, pair.cq_b, &attr, PATIENT_MS, &pair.b));

        expect_entry(pair.cq_a, RDMUX_WC_CONNECTED, RDMUX_OK);
        check_messages(&pair);
        CHECK_STATUS(rdmux_listener_next(pair.listener, 0, &peer), RDMUX_AGAIN);
        struct span span = span_begin();
        CHECK_STATUS(rdmux_listener_next(pair.listener, 50, &peer), RDMUX_TIMED_OUT);
        check_span("next", span, 45, 500 * SLACK);
        close_pair(&pair);
    }
}

static void a_process_talks_to_its_own_listener_without_threads(void **state)
{
    (void)state;
    for (size_t i = 0; i < RDMUX_COUNT_OF(all_paths); i++) {
        struct logbook book = LOGBOOK_INIT;
        struct rdmux_fabric *fabric = open_fabric(all_paths[i], MANUAL, &book);
        struct rdmux_cq *cq = create_cq(fabric);
        char address[RDMUX_ADDRESS_MAX];
        struct rdmux_listener *listener = listen_here(fabric, NULL, address);
        struct rdmux_explanation *explanation = NULL;
        struct rdmux_ep *a = NULL;
        struct rdmux_ep *b = NULL;
        char got = 0;

        CHECK_OK(rdmux_explain(fabric, address, NULL, PATIENT_MS, &explanation));
        CHECK_STATUS(rdmux_connect(fabric, cq, address, NULL, 0, &a), RDMUX_IN_PROGRESS);
        CHECK_OK(rdmux_accept(listener, cq, NULL, PATIENT_MS, &b));

        struct rdmux_wc wc = expect_entry(cq, RDMUX_WC_CONNECTED, RDMUX_OK);
        assert_ptr_equal(wc.ep, a);
        CHECK_OK(rdmux_recv(b, &got, 1, NULL, &got));
        CHECK_OK(rdmux_send(a, "x", 1, NULL, NULL, RDMUX_INLINE | RDMUX_UNSIGNALED));
        wc = expect_entry(cq, RDMUX_WC_RECV, RDMUX_OK);
        assert_ptr_equal(wc.context, &got);
        assert_int_equal(got, 'x');
        CHECK_OK(rdmux_ep_shutdown(a, PATIENT_MS));
        wc = expect_entry(cq, RDMUX_WC_DISCONNECTED, RDMUX_OK);
        assert_ptr_equal(wc.ep, b);
        rdmux_explanation_free(explanation);
        CHECK_OK(rdmux_ep_close(a));
        CHECK_OK(rdmux_ep_close(b));
        rdmux_listener_close(listener);
        CHECK_OK(rdmux_cq_destroy(cq));
        CHECK_OK(rdmux_fabric_close(fabric));
        assert_int_equal(logbook_total(&book), 0); /* of warnings */
    }
}

static void a_name_is_resolved_within_the_call(void **state)
{
    (void)state;
    struct rdmux_fabric *fabric = open_fabric("tcp", MANUAL, NULL);
    struct rdmux_cq *cq = create_cq(fabric);
    struct rdmux_ep *ep = NULL;

    CHECK_STATUS(rdmux_connect(fabric, cq, "nobody.invalid:1", NULL, PATIENT_MS, &ep),
                 RDMUX_INVALID);
    CHECK_STATUS(rdmux_connect(fabric, cq, "localhost:1", NULL, PATIENT_MS, &ep), RDMUX_REFUSED);

    assert_null(ep);
    CHECK_OK(rdmux_cq_destroy(cq));
    CHECK_OK(rdmux_fabric_close(fabric));
}

/* ---------------------------------------------------------------------- sleeping on descriptors */

/* A program that wakes only by its descriptor. */
struct sleeper {
    struct rdmux_fabric *fabric;
    struct rdmux_cq *cq;
    struct rdmux_ep *ep;
    /* The destination of messages: the last receive is still posted when its thread has ended. */
    uint64_t got;
    uint64_t rounds;
    uint64_t wakes;
    bool begins;
    const char *failed;
    char text[256];
};

enum { EXCHANGES = 200 };

static void *sleep_and_answer(void *argument)
{
    struct sleeper *sleeper = argument;
    uint64_t number = 0;
    uint64_t until = now_ms() + PATIENT_MS;
    bool ok = rdmux_recv(sleeper->ep, &sleeper->got, sizeof(sleeper->got), NULL, NULL) == RDMUX_OK;
    if (sleeper->begins) {
        ok = ok && rdmux_send(sleeper->ep, &number, sizeof(number), NULL, NULL,
                              RDMUX_INLINE | RDMUX_UNSIGNALED) == RDMUX_OK;
    }
    while (ok && sleeper->rounds < EXCHANGES) {
        struct rdmux_wc wc;
        if (rdmux_cq_poll(sleeper->cq, &wc, 1) == 1) {
            ok = wc.opcode == RDMUX_WC_RECV && wc.status == RDMUX_OK && sleeper->got == number;
            if (!ok) {
                (void)snprintf(sleeper->text, sizeof(sleeper->text), "%s %s, %llu for %llu",
                               rdmux_wc_opcode_name(wc.opcode),
                               rdmux_status_name((enum rdmux_status)wc.status),
                               (unsigned long long)sleeper->got, (unsigned long long)number);
                sleeper->failed = sleeper->text;
                return NULL;
            }
            sleeper->rounds++;
            number++;
            ok = ok && rdmux_recv(sleeper->ep, &sleeper->got, sizeof(sleeper->got), NULL, NULL) ==
                           RDMUX_OK;
            uint64_t answer = sleeper->begins ? number : number - 1;
            ok = ok && rdmux_send(sleeper->ep, &answer, sizeof(answer), NULL, NULL,
                                  RDMUX_INLINE | RDMUX_UNSIGNALED) == RDMUX_OK;
            continue;
        }
        if (rdmux_cq_arm(sleeper->cq) == RDMUX_AGAIN) {
            continue;
        }
        struct pollfd look[2] = {
            { .fd = rdmux_cq_fd(sleeper->cq), .events = POLLIN },
            { .fd = rdmux_fabric_fd(sleeper->fabric), .events = POLLIN },
        };
        (void)poll(look, 2, 100);
        sleeper->wakes++;
        if (look[1].revents != 0) {
            ok = ok && rdmux_fabric_progress(sleeper->fabric) == RDMUX_OK;
        }
        if (now_ms() > until) {
            sleeper->failed = "not woken";
            return NULL;
        }
    }
    if (!ok) {
        (void)snprintf(sleeper->text, sizeof(sleeper->text), "%s", rdmux_last_error());
        sleeper->failed = sleeper->text;
    }
    return NULL;
}

static void a_program_that_sleeps_on_both_descriptors_is_woken_and_does_not_spin(void **state)
{
    (void)state;
    for (size_t i = 0; i < RDMUX_COUNT_OF(all_paths); i++) {
        struct pair pair;
        open_sides(&pair, all_paths[i], MANUAL, MANUAL);
        connect_more(&pair, NULL, &pair.a, &pair.b);
        struct sleeper a = {
            .fabric = pair.fabric_a, .cq = pair.cq_a, .ep = pair.a, .begins = true
        };
        struct sleeper b = { .fabric = pair.fabric_b, .cq = pair.cq_b, .ep = pair.b };
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, sleep_and_answer, &b), 0);

        (void)sleep_and_answer(&a);

        assert_int_equal(pthread_join(thread, NULL), 0);
        if (a.failed != NULL || b.failed != NULL) {
            fail_msg("%s: %s; %s", all_paths[i], a.failed == NULL ? "fine" : a.failed,
                     b.failed == NULL ? "fine" : b.failed);
        }
        if (a.wakes + b.wakes > UINT64_C(10) * EXCHANGES) {
            fail_msg("%s: %llu wake-ups for %d messages", all_paths[i],
                     (unsigned long long)(a.wakes + b.wakes), 2 * EXCHANGES);
        }
        close_pair(&pair);
    }
}

static void the_descriptor_of_an_idle_fabric_is_not_readable(void **state)
{
    (void)state;
    for (size_t i = 0; i < RDMUX_COUNT_OF(all_paths); i++) {
        struct pair pair;
        open_sides(&pair, all_paths[i], MANUAL, MANUAL);
        connect_more(&pair, NULL, &pair.a, &pair.b);
        check_messages(&pair);
        struct rdmux_wc none;
        uint64_t until = now_ms() + PATIENT_MS;
        while ((is_readable(rdmux_fabric_fd(pair.fabric_a)) ||
                is_readable(rdmux_fabric_fd(pair.fabric_b))) &&
               now_ms() < until) {
            make_progress(&pair);
            assert_int_equal(rdmux_cq_poll(pair.cq_a, &none, 1), 0);
            assert_int_equal(rdmux_cq_poll(pair.cq_b, &none, 1), 0);
        }

        assert_false(is_readable(rdmux_fabric_fd(pair.fabric_a)));
        assert_false(is_readable(rdmux_fabric_fd(pair.fabric_b)));

        close_pair(&pair);
    }
}

/* ---------------------------------------------------------------------------- liveness, regions */

static void calls_every_100_ms_keep_an_endpoint_alive_and_silence_ends_it(void **state)
{
    (void)state;
    for (size_t i = 0; i < RDMUX_COUNT_OF(all_paths); i++) {
        struct pair pair;
        struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
        struct rdmux_wc wc;
        attr.liveness_ms = LIVENESS_MS;
        open_sides(&pair, all_paths[i], MANUAL, MANUAL);
        connect_more(&pair, &attr, &pair.a, &pair.b);
        uint64_t begin = now_ms();
        while (now_ms() - begin < UINT64_C(3) * LIVENESS_MS) {
            make_progress(&pair);
            pause_ms(80);
        }
        assert_int_equal(rdmux_cq_poll(pair.cq_a, &wc, 1), 0);
        assert_int_equal(rdmux_cq_poll(pair.cq_b, &wc, 1), 0);
        struct span span = span_begin();

        size_t count = 0; /* b's program does nothing any more */
        CHECK_OK(rdmux_cq_wait(pair.cq_a, &wc, 1, PATIENT_MS, &count));

        assert_int_equal(wc.opcode, RDMUX_WC_DISCONNECTED);
        assert_int_equal(wc.status, RDMUX_PEER_GONE);
        check_span(all_paths[i], span, LIVENESS_MS / 2, (LIVENESS_MS + 600) * SLACK);
        wc = next_of(&pair, pair.cq_b);
        assert_int_equal(wc.opcode, RDMUX_WC_DISCONNECTED);
        close_pair(&pair);
    }
}

/* Time in which a program makes no call is none in which the peer could be heard. */
static void a_program_without_calls_notices_the_end_at_its_next_call(void **state)
{
    (void)state;
    for (size_t i = 0; i < RDMUX_COUNT_OF(all_paths); i++) {
        struct pair pair;
        struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
        struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
        struct rdmux_wc wc;
        size_t count = 0;
        attr.liveness_ms = LIVENESS_MS;
        open_sides(&pair, all_paths[i], MANUAL, MANUAL);
        connect_more(&pair, &attr, &pair.a, &pair.b);
        pause_ms(3 * LIVENESS_MS); /* b is silent all the while */
        CHECK_OK(rdmux_ep_info(pair.a, &info));
        assert_int_equal(info.state, RDMUX_EP_CONNECTED);
        struct span span = span_begin();

        CHECK_OK(rdmux_cq_wait(pair.cq_a, &wc, 1, PATIENT_MS, &count));

        assert_int_equal(wc.opcode, RDMUX_WC_DISCONNECTED);
        assert_int_equal(wc.status, RDMUX_PEER_GONE);
        check_span(all_paths[i], span, LIVENESS_MS / 2, (LIVENESS_MS + 600) * SLACK);
        close_pair(&pair);
    }
}

static void a_region_is_revoked_without_library_threads(void **state)
{
    (void)state;
    for (size_t i = 0; i < RDMUX_COUNT_OF(all_paths); i++) {
        for (int a_helps = 0; a_helps <= 1; a_helps++) {
            struct pair pair;
            struct rdmux_mr *mr = NULL;
            struct rdmux_token token;
            struct rdmux_remote *remote = NULL;
            uint64_t word = 1;
            open_sides(&pair, all_paths[i], a_helps ? 0 : MANUAL, MANUAL);
            connect_more(&pair, NULL, &pair.a, &pair.b);
            CHECK_OK(rdmux_mr_alloc(pair.fabric_b, 4096,
                                    RDMUX_ACCESS_REMOTE_READ | RDMUX_ACCESS_REMOTE_WRITE, &mr));
            CHECK_OK(rdmux_mr_export(mr, &token));
            CHECK_STATUS(rdmux_remote_import(pair.a, &token, 0, &remote), RDMUX_IN_PROGRESS);
            struct rdmux_wc wc = next_of(&pair, pair.cq_a);
            assert_int_equal(wc.opcode, RDMUX_WC_REMOTE_READY);
            struct span span = span_begin();

            CHECK_OK(rdmux_mr_revoke(mr));

            /* The importer's program may not call at all. */
            check_span(all_paths[i], span, 0, 300 * SLACK);
            make_progress(&pair);
            uint64_t until = now_ms() + PATIENT_MS;
            enum rdmux_status status = RDMUX_OK;
            while (status == RDMUX_OK && now_ms() < until) {
                make_progress(&pair);
                struct rdmux_remote_info info = RDMUX_REMOTE_INFO_INIT;
                CHECK_OK(rdmux_remote_info(remote, &info));
                status = (enum rdmux_status)info.status;
            }
            CHECK_STATUS(status, RDMUX_DENIED);
            CHECK_STATUS(rdmux_write(pair.a, &word, sizeof(word), NULL, remote, 0, NULL, 0),
                         RDMUX_DENIED);
            check_messages(&pair);
            rdmux_mr_deregister(mr);
            close_pair(&pair);
        }
    }
}

/* ---------------------------------------------------------------- a thread of the program's own */

static void the_programs_own_thread_may_be_the_service_thread(void **state)
{
    (void)state;
    for (size_t i = 0; i < RDMUX_COUNT_OF(all_paths); i++) {
        struct pair pair;
        struct engine engines[2];
        struct rdmux_mr *mr = NULL;
        uint64_t number = 0;
        open_sides(&pair, all_paths[i], MANUAL, MANUAL);
        start_engine(&engines[0], pair.fabric_a);
        start_engine(&engines[1], pair.fabric_b);
        connect_more(&pair, NULL, &pair.a, &pair.b);
        CHECK_OK(rdmux_mr_alloc(pair.fabric_b, 4096,
                                RDMUX_ACCESS_REMOTE_READ | RDMUX_ACCESS_REMOTE_WRITE, &mr));
        struct rdmux_remote *remote = import_region(pair.a, mr); /* b's application is away */

        for (number = 1; number <= 300; number++) {
            CHECK_OK(
                rdmux_write(pair.a, &number, sizeof(number), NULL, remote, 0, NULL, RDMUX_PLACED));
            expect_entry(pair.cq_a, RDMUX_WC_WRITE, RDMUX_OK);
            assert_memory_equal(rdmux_mr_addr(mr), &number, sizeof(number));
        }

        for (int k = 0; k < 50; k++) {
            check_messages(&pair);
        }
        rdmux_mr_deregister(mr);
        CHECK_OK(rdmux_ep_shutdown(pair.a, PATIENT_MS));
        expect_entry(pair.cq_b, RDMUX_WC_DISCONNECTED, RDMUX_OK);
        stop_engine(&engines[0]);
        stop_engine(&engines[1]);
        close_pair(&pair);
    }
}

/* Rule 13.13: the cq's other owner may take note of the first wake before the second. */
static void wakes_around_a_turn_of_progress_are_one_entry(void **state)
{
    (void)state;
    struct pair pair;
    struct rdmux_wc wc;
    open_sides(&pair, "tcp", MANUAL, MANUAL);
    for (int i = 0; i < 3; i++) {
        CHECK_OK(rdmux_cq_wake(pair.cq_a));
        make_progress(&pair);
        CHECK_OK(rdmux_cq_wake(pair.cq_a));
        assert_int_equal(rdmux_cq_poll(pair.cq_a, &wc, 1), 1);
        assert_int_equal(wc.opcode, RDMUX_WC_WOKEN);
        assert_int_equal(rdmux_cq_poll(pair.cq_a, &wc, 1), 0);
        make_progress(&pair);
        assert_int_equal(rdmux_cq_poll(pair.cq_a, &wc, 1), 0);
    }
    close_pair(&pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_waiting_call_does_the_work_of_its_own_fabric),
        cmocka_unit_test(a_process_talks_to_its_own_listener_without_threads),
        cmocka_unit_test(a_name_is_resolved_within_the_call),
        cmocka_unit_test(a_program_that_sleeps_on_both_descriptors_is_woken_and_does_not_spin),
        cmocka_unit_test(the_descriptor_of_an_idle_fabric_is_not_readable),
        cmocka_unit_test(calls_every_100_ms_keep_an_endpoint_alive_and_silence_ends_it),
        cmocka_unit_test(a_program_without_calls_notices_the_end_at_its_next_call),
        cmocka_unit_test(a_region_is_revoked_without_library_threads),
        cmocka_unit_test(the_programs_own_thread_may_be_the_service_thread),
        cmocka_unit_test(wakes_around_a_turn_of_progress_are_one_entry),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
