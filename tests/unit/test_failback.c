/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Failback: the return to a better path after a failover. */
#define SLOW_CLOCK 8
#include "tests/unit/failover_scene.h"

#include "api/core/ep.h"
#include "api/core/fabric.h"
#include "api/core/mr.h"
#include "api/core/remote.h"
#include "api/progress/cq_owner.h"
#include "negotiation/message.h"

enum { HOLD_MS = 60, LONG_MS = 3600000 };

/* The fabric whose device is not in order; NULL: none. */
/* The service thread may be the caller. */
static struct rdmux_fabric *_Atomic broken;
static _Atomic unsigned looks; /* how often was asked */

bool __real_rdmux_fabric_path_is_usable(struct rdmux_fabric *fabric, const char *provider,
                                        const char *device);
bool __wrap_rdmux_fabric_path_is_usable(struct rdmux_fabric *fabric, const char *provider,
                                        const char *device);
bool __wrap_rdmux_fabric_path_is_usable(struct rdmux_fabric *fabric, const char *provider,
                                        const char *device)
{
    looks++;
    assert_true(__real_rdmux_fabric_path_is_usable(fabric, provider, device));
    return fabric != broken;
}

/* Opens a pair over shm that moves to tcp when shm fails. The arguments say which side asks for
 * failback. */
static void open_failback(struct scene *scene, uint32_t flags, bool a_asks, bool b_asks,
                          uint32_t hold_ms)
{
    struct rdmux_ep_attr a = RDMUX_EP_ATTR_INIT;
    a.failover = RDMUX_FAILOVER_ON;
    a.send_depth = TRAFFIC_DEPTH;
    a.recv_depth = TRAFFIC_DEPTH;
    a.failback_hold_ms = hold_ms;
    struct rdmux_ep_attr b = a;
    a.failback = a_asks;
    b.failback = b_asks;
    broken = NULL;
    looks = 0;
    set_scene(scene, "shm,tcp", flags);
    connect_as(&scene->pair, &a, &b, &scene->pair.a, &scene->pair.b);
    assert_string_equal(info_of(scene->pair.a).provider, "shm");
}

static void progress(struct pair *pair)
{
    struct rdmux_wc wc;
    CHECK_OK(rdmux_fabric_progress(pair->fabric_a));
    CHECK_OK(rdmux_fabric_progress(pair->fabric_b));
    while (rdmux_cq_poll(pair->cq_a, &wc, 1) == 1 || rdmux_cq_poll(pair->cq_b, &wc, 1) == 1) {
        if (wc.opcode == RDMUX_WC_DISCONNECTED) {
            fail_msg("endpoint %s ended: %s", wc.ep == pair->a ? "a" : "b", info_of(wc.ep).text);
        }
    }
}

static bool is_over(const struct pair *pair, const char *provider, uint32_t epoch)
{
    struct rdmux_ep_info a = info_of(pair->a);
    struct rdmux_ep_info b = info_of(pair->b);
    return a.state == RDMUX_EP_CONNECTED && b.state == RDMUX_EP_CONNECTED && a.epoch == epoch &&
           b.epoch == epoch && strcmp(a.provider, provider) == 0;
}

static void go_over_to(struct pair *pair, const char *provider, uint32_t epoch)
{
    uint64_t until = now_ms() + PATIENT_MS;
    while (!is_over(pair, provider, epoch)) {
        assert_true(now_ms() < until);
        progress(pair);
    }
    progress(pair); /* takes the entries of a move that the service thread has completed */
}

static void let_pass(struct pair *pair, uint64_t ms)
{
    uint64_t until = now_ms() + ms;
    while (now_ms() < until) {
        progress(pair);
    }
}

static void leave(struct pair *pair)
{
    fail_path(pair->a, RDMUX_IO);
    go_over_to(pair, "tcp", 2);
}

/* Messages travel in both directions all the while: each arrives once and in order. */
static void an_endpoint_goes_back_when_the_hold_down_time_is_over(void **state)
{
    (void)state;
    static const struct {
        bool a_asks;
        bool b_asks;
    } cases[] = { { true, false }, { false, true }, { true, true } };
    for (size_t i = 0; i < RDMUX_COUNT_OF(cases); i++) {
        struct scene scene;
        struct traffic_side a;
        struct traffic_side b;
        open_failback(&scene, 0, cases[i].a_asks, cases[i].b_asks, HOLD_MS);
        struct pair *pair = &scene.pair;
        begin_traffic(&a, pair->a, pair->cq_a);
        begin_traffic(&b, pair->b, pair->cq_b);
        uint64_t left_ms = now_ms();
        fail_path(pair->a, RDMUX_IO);
        uint64_t until = left_ms + PATIENT_MS;

        while (!is_over(pair, "shm", 3) || a.received < 1000 || b.received < 1000 ||
               a.changes < 2 || b.changes < 2) {
            assert_true(now_ms() < until);
            assert_true(now_ms() - left_ms >= HOLD_MS || info_of(pair->a).epoch < 3);
            send_some(&a, UINT64_MAX);
            send_some(&b, UINT64_MAX);
            take_some(&a);
            take_some(&b);
        }

        struct rdmux_ep *const eps[] = { pair->a, pair->b };
        for (size_t k = 0; k < RDMUX_COUNT_OF(eps); k++) {
            struct rdmux_ep_info info = info_of(eps[k]);
            assert_string_equal(info.previous_provider, "tcp");
            assert_int_equal(info.previous_status, RDMUX_OK);
            assert_non_null(strstr(info.text, "better path"));
            assert_int_equal(moves_of(eps[k]), 2);
        }
        assert_int_equal(a.changes, 2);
        assert_int_equal(b.changes, 2);
        clear_scene(&scene);
    }
}

static void an_endpoint_stays_when_neither_side_asked_for_failback(void **state)
{
    (void)state;
    struct scene scene;
    open_failback(&scene, 0, false, false, 1);
    leave(&scene.pair);
    let_pass(&scene.pair, 200);
    assert_true(is_over(&scene.pair, "tcp", 2));
    assert_int_equal(looks, 0);
    check_messages(&scene.pair);
    clear_scene(&scene);
}

/* Either side's device may be out of order. Once it is in order again, the next check finds it
 * so. */
static void an_endpoint_does_not_go_back_to_a_broken_device(void **state)
{
    (void)state;
    for (int whose = 0; whose < 2; whose++) {
        struct scene scene;
        open_failback(&scene, 0, true, false, HOLD_MS);
        struct pair *pair = &scene.pair;
        leave(pair);
        broken = whose == 0 ? pair->fabric_a : pair->fabric_b;
        uint64_t until = now_ms() + PATIENT_MS;
        while (looks < 3) {
            assert_true(now_ms() < until);
            progress(pair);
        }
        assert_true(is_over(pair, "tcp", 2));
        assert_int_equal(moves_of(pair->a), 1);
        check_messages(pair);

        broken = NULL;
        go_over_to(pair, "shm", 3);
        check_messages(pair);
        clear_scene(&scene);
    }
}

/* Atomics of both sides are in flight all the time. Those of the failure are in doubt, those of the
 * failback are not. */
static void a_failback_leaves_no_outcome_unknown(void **state)
{
    (void)state;
    enum { AT_ONCE = 8 };
    struct scene scene;
    struct rdmux_mr *mr = NULL;
    uint64_t before[AT_ONCE] = { 0 };
    uint64_t posted = 0;
    uint64_t done = 0;
    uint64_t until = now_ms() + PATIENT_MS;
    open_failback(&scene, 0, false, true, HOLD_MS);
    struct pair *pair = &scene.pair;
    CHECK_OK(rdmux_mr_alloc(pair->fabric_b, 8, RDMUX_ACCESS_REMOTE_ATOMIC, &mr));
    struct rdmux_remote *remote = import_region(pair->a, mr);
    leave(pair);

    while (!is_over(pair, "shm", 3) || done != posted) {
        struct rdmux_wc wc;
        assert_true(now_ms() < until);
        while (posted - done < AT_ONCE && info_of(pair->a).epoch < 3) {
            CHECK_OK(rdmux_fetch_add(pair->a, &before[posted % AT_ONCE], NULL, remote, 0, 1,
                                     CONTEXT(posted), posted % 2 == 0 ? RDMUX_NO_REPLAY : 0));
            posted++;
        }
        if (rdmux_cq_poll(pair->cq_a, &wc, 1) == 1 && wc.opcode != RDMUX_WC_PATH_CHANGED) {
            assert_int_equal(wc.status, RDMUX_OK);
            assert_ptr_equal(wc.context, CONTEXT(done));
            assert_int_equal(before[done % AT_ONCE], done);
            done++;
        }
        (void)rdmux_cq_poll(pair->cq_b, &wc, 1);
    }
    assert_int_equal(*(uint64_t *)rdmux_mr_addr(mr), posted);
    rdmux_mr_deregister(mr);
    clear_scene(&scene);
}

/* Imports as import_region() does, where neither side has a service thread. */
static struct rdmux_remote *import_in_turns(struct pair *pair, struct rdmux_mr *mr)
{
    struct rdmux_token token;
    struct rdmux_remote *remote = NULL;
    struct rdmux_wc wc = { .opcode = 0 };
    uint64_t until = now_ms() + PATIENT_MS;
    CHECK_OK(rdmux_mr_export(mr, &token));
    enum rdmux_status status = rdmux_remote_import(pair->a, &token, 0, &remote);
    while (status != RDMUX_OK) {
        assert_int_equal(status, RDMUX_IN_PROGRESS);
        assert_true(now_ms() < until);
        CHECK_OK(rdmux_fabric_progress(pair->fabric_b));
        assert_int_equal(rdmux_cq_poll(pair->cq_b, &wc, 1), 0);
        CHECK_OK(rdmux_fabric_progress(pair->fabric_a));
        if (rdmux_cq_poll(pair->cq_a, &wc, 1) == 1) {
            assert_int_equal(wc.opcode, RDMUX_WC_REMOTE_READY);
            status = (enum rdmux_status)wc.status;
        }
    }
    return remote;
}

/* The peer's program is away. Requests held back meanwhile continue, and the move is made when the
 * peer is back. */
static void requests_continue_while_the_peer_does_not_answer_a_failback(void **state)
{
    (void)state;
    struct scene scene;
    uint64_t word = 7;
    struct rdmux_mr *mr = NULL;
    open_failback(&scene, RDMUX_FABRIC_NO_SERVICE_THREAD, true, false, HOLD_MS);
    struct pair *pair = &scene.pair;
    CHECK_OK(rdmux_mr_alloc(pair->fabric_b, 8, RDMUX_ACCESS_REMOTE_WRITE, &mr));
    struct rdmux_remote *remote = import_in_turns(pair, mr);
    leave(pair);
    uint64_t until = now_ms() + PATIENT_MS;
    while (looks < 1) {
        struct rdmux_wc wc;
        assert_true(now_ms() < until);
        CHECK_OK(rdmux_fabric_progress(pair->fabric_a));
        (void)rdmux_cq_poll(pair->cq_a, &wc, 1);
    }
    CHECK_OK(rdmux_write(pair->a, &word, 8, NULL, remote, 0, CONTEXT(1), 0));
    assert_int_not_equal(pair->a->send.next, pair->a->send.head);
    while (pair->a->send.next != pair->a->send.head) {
        struct rdmux_wc wc;
        assert_true(now_ms() < until);
        CHECK_OK(rdmux_fabric_progress(pair->fabric_a));
        assert_int_equal(rdmux_cq_poll(pair->cq_a, &wc, 1), 0);
    }
    assert_string_equal(info_of(pair->a).provider, "tcp");

    go_over_to(pair, "shm", 3);
    while (memcmp(rdmux_mr_addr(mr), &word, 8) != 0) {
        assert_true(now_ms() < until);
        progress(pair);
    }
    rdmux_mr_deregister(mr);
    clear_scene(&scene);
}

static const char *explanation_of(struct rdmux_ep *ep, struct rdmux_explanation **explanation)
{
    const char *json = NULL;
    CHECK_OK(rdmux_ep_explanation(ep, explanation));
    CHECK_OK(rdmux_explanation_json(*explanation, &json));
    return json;
}

/* The exclusion is reported; once the hold-down time is over, the path counts as any other. */
static void a_path_that_failed_three_times_is_left_out_and_logged(void **state)
{
    (void)state;
    static const char *const before[] = { "shm", "tcp", "shm", "tcp", "shm" };
    static const char *const after[] = { "tcp", "shm", "tcp", "shm", "tcp" };
    struct scene scene;
    open_failback(&scene, 0, true, true, LONG_MS);
    struct pair *pair = &scene.pair;
    for (uint32_t i = 0; i < RDMUX_COUNT_OF(before); i++) {
        struct rdmux_explanation *explanation = NULL;
        assert_string_equal(info_of(pair->a).provider, before[i]);
        fail_path(pair->a, RDMUX_IO);
        go_over_to(pair, after[i], i + 2);
        bool is_told = strstr(explanation_of(pair->a, &explanation), "left out") != NULL;
        assert_int_equal(is_told, i == 4);
        rdmux_explanation_free(explanation);
    }

    fail_path(pair->a, RDMUX_IO); /* tcp's third: nothing else is left to try */
    go_over_to(pair, "shm", 7);
    check_messages(pair);
    clear_scene(&scene);
}

static void ask_to_go_back(struct pair *pair, uint64_t rank)
{
    const struct rdmux_message message = {
        .type = RDMUX_FRAME_BACK, .status = RDMUX_OK, .epoch = info_of(pair->b).epoch, .count = rank
    };
    uint8_t frame[RDMUX_MESSAGE_MAX];
    assert_true(rdmux_cq_enter(pair->cq_b));
    CHECK_OK(rdmux_channel_send(pair->b->channel, frame, rdmux_message_encode(&message, frame)));
    rdmux_cq_leave(pair->cq_b);
}

/* A peer that asks all the time, or for a worse path, causes no check of a device. */
static void a_peer_cannot_command_checks_of_devices(void **state)
{
    (void)state;
    enum { TIMES = 50 };
    struct scene scene;
    open_failback(&scene, RDMUX_FABRIC_NO_SERVICE_THREAD, false, false, LONG_MS);
    struct pair *pair = &scene.pair;
    for (int i = 0; i < TIMES; i++) {
        ask_to_go_back(pair, 2); /* they have 1 */
        progress(pair);
    }
    assert_int_equal(looks, 0);
    leave(pair);
    go_over_to(pair, "tcp", 2);
    broken = pair->fabric_a;
    for (int i = 0; i < TIMES; i++) {
        ask_to_go_back(pair, 1);
        progress(pair);
    }
    assert_int_equal(looks, 1);
    assert_true(is_over(pair, "tcp", 2));
    clear_scene(&scene);
}

static void failback_without_failover_is_refused(void **state)
{
    (void)state;
    struct scene scene;
    struct rdmux_ep *ep = NULL;
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    set_scene(&scene, "tcp", 0);
    attr.failback = 1;
    assert_int_equal(
        rdmux_connect(scene.pair.fabric_a, scene.pair.cq_a, scene.pair.address, &attr, 0, &ep),
        RDMUX_INVALID);
    assert_non_null(strstr(rdmux_last_error(), "failback"));
    attr.failover = RDMUX_FAILOVER_ON;
    attr.failback = 2;
    assert_int_equal(
        rdmux_connect(scene.pair.fabric_a, scene.pair.cq_a, scene.pair.address, &attr, 0, &ep),
        RDMUX_INVALID);
    clear_scene(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_endpoint_goes_back_when_the_hold_down_time_is_over),
        cmocka_unit_test(an_endpoint_stays_when_neither_side_asked_for_failback),
        cmocka_unit_test(an_endpoint_does_not_go_back_to_a_broken_device),
        cmocka_unit_test(a_failback_leaves_no_outcome_unknown),
        cmocka_unit_test(requests_continue_while_the_peer_does_not_answer_a_failback),
        cmocka_unit_test(a_path_that_failed_three_times_is_left_out_and_logged),
        cmocka_unit_test(a_peer_cannot_command_checks_of_devices),
        cmocka_unit_test(failback_without_failover_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
