/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* What the core does for devices: scatter/gather lists longer than the device takes, and shared
 * receives that the device matches. */
#include "api/core/ep.h"
#include "api/core/fabric.h"
#include "api/core/srq.h"
#include "api/data/bounce.h"
#include "api/loop/worker.h"
#include "api/progress/cq_owner.h"
#include "tests/unit/device_scene.h"

#include <semaphore.h>
#include <sys/mman.h>

/* --------------------------------------------------------------------------------------- lists */

/* A device that takes two pieces gets lists of four; the endpoint has this kind of fence. */
static void check_long_lists(uint32_t fence, size_t piece)
{
    static struct list from;
    static struct list to;
    struct scene scene;
    struct rdmux_fabric *fabric;
    const size_t half = (size_t)LIST_MAX * piece;
    set_list_scene(&scene, RDMUX_PROVIDER_LOCAL_KEYS | fence, 2, 2 * half,
                   RDMUX_FABRIC_NO_SERVICE_THREAD);
    fabric = scene.pair.fabric_a;
    uint8_t *there = rdmux_mr_addr(scene.mr);
    make_list(&from, fabric, piece, 10, 2);
    make_list(&to, fabric, piece, 50, LIST_MAX);

    post_list(scene.pair.a, &from, RDMUX_OP_WRITE, RDMUX_PLACED, scene.remote);
    expect_entry(scene.pair.cq_a, RDMUX_WC_WRITE, RDMUX_OK);
    for (size_t i = 0; i < half; i++) {
        assert_int_equal(there[i], 10 + i / piece);
    }

    /* The fenced request sends the bytes read by the one before it, before any entry is taken. */
    post_list(scene.pair.a, &to, RDMUX_OP_READ, 0, scene.remote);
    struct rdmux_wr wr = { .op = RDMUX_OP_WRITE,
                           .flags = RDMUX_FENCE | RDMUX_PLACED,
                           .sges = to.sges,
                           .sge_count = LIST_MAX,
                           .remote = scene.remote,
                           .offset = half };
    CHECK_OK(rdmux_post(scene.pair.a, &wr, 1, NULL));
    progress_until_done(&scene.pair);
    assert_memory_equal(there, there + half, half);
    expect_entry(scene.pair.cq_a, RDMUX_WC_READ, RDMUX_OK);
    check_list(&to, 10);
    expect_entry(scene.pair.cq_a, RDMUX_WC_WRITE, RDMUX_OK);

    /* The same with a fenced request that the device takes unchanged, in one batch. */
    memset(there, 99, half);
    struct rdmux_wr wrs[] = { wr, wr };
    wrs[0].op = RDMUX_OP_READ;
    wrs[0].flags = 0;
    wrs[0].offset = 0;
    wrs[1].sge_count = 1;
    CHECK_OK(rdmux_post(scene.pair.a, wrs, 2, NULL));
    progress_until_done(&scene.pair);
    assert_memory_equal(there, there + half, piece);
    expect_entry(scene.pair.cq_a, RDMUX_WC_READ, RDMUX_OK);
    expect_entry(scene.pair.cq_a, RDMUX_WC_WRITE, RDMUX_OK);

    rdmux_mr_deregister(from.mr);
    rdmux_mr_deregister(to.mr);
    clear_scene(&scene);
}

static void short_lists_of_too_many_pieces_are_copied(void **state)
{
    (void)state;
    check_long_lists(0, 5); /* would be inlined, too */
    check_long_lists(0, 1000);
    check_long_lists(RDMUX_PROVIDER_NATIVE_FENCE, 1000);
}

static void long_lists_of_too_many_pieces_are_gathered(void **state)
{
    (void)state;
    check_long_lists(0, PIECE_MAX);
    check_long_lists(RDMUX_PROVIDER_NATIVE_FENCE, PIECE_MAX);
}

/* With messages between the two: a sends lists, and receives into lists. */
static void messages_have_lists_of_any_length(void **state)
{
    (void)state;
    static const size_t pieces[] = { 5, 1000, PIECE_MAX };
    static struct list from;
    static struct list to;
    struct scene scene;
    set_list_scene(&scene, RDMUX_PROVIDER_LOCAL_KEYS, 2, 8, 0);
    for (size_t i = 0; i < RDMUX_COUNT_OF(pieces); i++) {
        make_list(&from, scene.pair.fabric_b, pieces[i], 10, 0);
        make_list(&to, scene.pair.fabric_a, pieces[i], 50, i + 2);
        post_list(scene.pair.a, &to, RDMUX_OP_RECV, 0, NULL);
        post_list(scene.pair.b, &from, RDMUX_OP_SEND, 0, NULL);
        assert_int_equal(expect_entry(scene.pair.cq_a, RDMUX_WC_RECV, RDMUX_OK).length, to.length);
        expect_entry(scene.pair.cq_b, RDMUX_WC_SEND, RDMUX_OK);
        check_list(&to, 10);
        post_list(scene.pair.b, &from, RDMUX_OP_RECV, 0, NULL);
        memset(to.memory, 77, sizeof(to.memory));
        post_list(scene.pair.a, &to, RDMUX_OP_SEND, i == 0 ? RDMUX_INLINE : 0, NULL);
        expect_entry(scene.pair.cq_b, RDMUX_WC_RECV, RDMUX_OK);
        expect_entry(scene.pair.cq_a, RDMUX_WC_SEND, RDMUX_OK);
        assert_int_equal(from.memory[LIST_MAX - 1][pieces[i] - 1], 77);
        rdmux_mr_deregister(from.mr);
        rdmux_mr_deregister(to.mr);
    }
    clear_scene(&scene);
}

/* Holds the worker thread back from jobs that are queued later. */
struct gate {
    struct rdmux_job job;
    sem_t passed;
    sem_t open;
};

static void wait_at_gate(struct rdmux_job *job)
{
    struct gate *gate = RDMUX_CONTAINER(job, struct gate, job);
    (void)sem_post(&gate->passed);
    while (sem_wait(&gate->open) != 0) {
    }
}

static void send_worker_to(struct gate *gate, struct rdmux_fabric *fabric, unsigned open)
{
    gate->job = (struct rdmux_job){ .work = wait_at_gate };
    assert_int_equal(sem_init(&gate->passed, 0, 0), 0);
    assert_int_equal(sem_init(&gate->open, 0, open), 0);
    rdmux_worker_run(fabric, &gate->job);
}

/* The list still waits for the worker thread when the endpoint is closed and the bytes are
 * freed. */
static void the_bytes_of_a_list_may_be_freed_once_the_endpoint_is_closed(void **state)
{
    (void)state;
    struct scene scene;
    struct gate gate;
    struct gate behind;
    const size_t size = (size_t)LIST_MAX * PIECE_MAX;
    uint8_t *bytes = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(bytes, MAP_FAILED);
    struct rdmux_sge sges[LIST_MAX];
    for (size_t i = 0; i < LIST_MAX; i++) {
        sges[i] = (struct rdmux_sge){ bytes + i * PIECE_MAX, PIECE_MAX, NULL };
    }
    set_list_scene(&scene, RDMUX_PROVIDER_LOCAL_KEYS, 2, size, 0);
    CHECK_OK(rdmux_write(scene.pair.a, bytes, 1000, NULL, scene.remote, 0, NULL, 0));
    expect_entry(scene.pair.cq_a, RDMUX_WC_WRITE, RDMUX_OK); /* the memory for copies is there */
    send_worker_to(&gate, scene.pair.fabric_a, 0);
    struct rdmux_wr wr = {
        .op = RDMUX_OP_WRITE, .sges = sges, .sge_count = LIST_MAX, .remote = scene.remote
    };
    CHECK_OK(rdmux_post(scene.pair.a, &wr, 1, NULL));
    assert_int_equal(scene.pair.a->send.records[1].keys, RDMUX_BOUNCE_ASKED);
    send_worker_to(&behind, scene.pair.fabric_a, 1);
    CHECK_OK(rdmux_ep_close(scene.pair.a));
    scene.pair.a = NULL;
    assert_int_equal(mprotect(bytes, size, PROT_NONE), 0); /* any access faults */
    assert_int_equal(sem_post(&gate.open), 0);
    while (sem_wait(&behind.passed) != 0) {
    }
    assert_int_equal(munmap(bytes, size), 0);
    clear_scene(&scene);
}

static uint32_t state_of(struct rdmux_ep *ep)
{
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    CHECK_OK(rdmux_ep_info(ep, &info));
    return info.state;
}

/* Nothing could shorten the list for the device, so the attribute itself is refused, and the text
 * names it. */
static void a_device_that_needs_no_keys_is_not_asked_for_longer_lists(void **state)
{
    (void)state;
    struct pair pair;
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    struct rdmux_ep *a = NULL;
    open_sides(&pair, "tcp", 0, 0);
    make_device(pair.fabric_a, 0, 0);
    device.max_sge = 2;
    attr.max_recv_sge = 3;
    struct rdmux_ep *b = NULL;
    CHECK_STATUS(rdmux_connect(pair.fabric_a, pair.cq_a, pair.address, &attr, 0, &a),
                 RDMUX_IN_PROGRESS);
    uint64_t until = now_ms() + PATIENT_MS;
    while (state_of(a) == RDMUX_EP_CONNECTING) {
        assert_true(now_ms() < until);
        CHECK_STATUS(rdmux_accept(pair.listener, pair.cq_b, NULL, 1, &b), RDMUX_TIMED_OUT);
        assert_int_equal(rdmux_cq_poll(pair.cq_a, NULL, 0), 0);
    }
    expect_entry(pair.cq_a, RDMUX_WC_CONNECTED, RDMUX_NO_PATH);
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    CHECK_OK(rdmux_ep_info(a, &info));
    assert_non_null(strstr(info.text, "the path takes 2; ask for fewer"));
    CHECK_OK(rdmux_ep_close(a));
    close_pair(&pair);
}

/* ------------------------------------------------------------------------------ shared receives */

/* A message of this length for ep, whose cq the service thread may have. */
static void receive_shared(struct rdmux_ep *ep, uint64_t length)
{
    assert_true(rdmux_cq_enter(ep->cq));
    rdmux_provider_received(ep->path, device.shared[0], RDMUX_OK, RDMUX_WC_RECV, length, 0, 0);
    rdmux_cq_leave(ep->cq);
}

/* An endpoint has ended with a message that was not taken, and the SRQ goes to another path. */
static void a_shared_receive_outlives_the_device(void **state)
{
    (void)state;
    static const char MESSAGE[] = "a message that was copied by the device";
    struct pair pair;
    struct rdmux_srq *srq = NULL;
    struct rdmux_ep_attr connecting = RDMUX_EP_ATTR_INIT;
    char bytes[100] = "";
    open_sides(&pair, "shm,tcp", 0, 0);
    make_device(pair.fabric_b, RDMUX_PROVIDER_LOCAL_KEYS | RDMUX_PROVIDER_DEVICE_SRQ, 0);
    CHECK_OK(rdmux_srq_create(pair.fabric_b, pair.cq_b, NULL, &srq));
    CHECK_OK(rdmux_srq_recv(srq, bytes, sizeof(bytes), NULL, CONTEXT(1)));
    struct rdmux_ep *a[2] = { NULL, NULL };
    struct rdmux_ep *b[2] = { NULL, NULL };
    for (size_t i = 0; i < 2; i++) {
        struct rdmux_ep_attr accepting = RDMUX_EP_ATTR_INIT;
        accepting.srq = srq;
        connecting.paths = i == 0 ? "tcp" : "shm";
        CHECK_STATUS(rdmux_connect(pair.fabric_a, pair.cq_a, pair.address, &connecting, 0, &a[i]),
                     RDMUX_IN_PROGRESS);
        CHECK_OK(rdmux_accept(pair.listener, pair.cq_b, &accepting, PATIENT_MS, &b[i]));
        if (i != 0) {
            break;
        }
        assert_int_equal(device.shared_count, 1);
        memcpy(device.shared[0]->sges[0].addr, MESSAGE, sizeof(MESSAGE));
        receive_shared(b[0], sizeof(MESSAGE));
        CHECK_OK(rdmux_ep_close(a[0]));
        uint64_t until = now_ms() + PATIENT_MS;
        while (state_of(b[0]) != RDMUX_EP_ENDED) {
            assert_true(now_ms() < until);
            assert_int_equal(rdmux_cq_poll(pair.cq_b, NULL, 0), 0);
        }
    }
    assert_int_equal(srq->device_count, 0);
    struct rdmux_wc wc = expect_entry(pair.cq_b, RDMUX_WC_RECV, RDMUX_OK);
    assert_ptr_equal(wc.ep, b[0]);
    assert_string_equal(bytes, MESSAGE);
    for (size_t i = 0; i < 2; i++) {
        CHECK_OK(rdmux_ep_close(b[i]));
    }
    CHECK_OK(rdmux_ep_close(a[1]));
    CHECK_OK(rdmux_srq_destroy(srq));
    close_pair(&pair);
    assert_false(device.keyless);
}

/* A receive that the device does not take unchanged goes through a bounce buffer, or is refused. */
static void a_shared_receive_has_a_list_of_any_length(void **state)
{
    (void)state;
    static struct list list;
    struct scene scene;
    struct rdmux_srq *srq = NULL;
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    memset(&scene, 0, sizeof(scene));
    open_sides(&scene.pair, "tcp", 0, 0);
    make_device(scene.pair.fabric_b, RDMUX_PROVIDER_LOCAL_KEYS | RDMUX_PROVIDER_DEVICE_SRQ, 0);
    device.max_sge = 2;
    CHECK_OK(rdmux_srq_create(scene.pair.fabric_b, scene.pair.cq_b, NULL, &srq));
    struct rdmux_ep *a = NULL;
    struct rdmux_ep *b = NULL;
    attr.srq = srq;
    CHECK_STATUS(
        rdmux_connect(scene.pair.fabric_a, scene.pair.cq_a, scene.pair.address, NULL, 0, &a),
        RDMUX_IN_PROGRESS);
    CHECK_OK(rdmux_accept(scene.pair.listener, scene.pair.cq_b, &attr, PATIENT_MS, &b));

    make_list(&list, scene.pair.fabric_b, 100, 50, LIST_MAX);
    struct rdmux_wr wr = { .op = RDMUX_OP_RECV, .sges = list.sges, .sge_count = LIST_MAX };
    CHECK_OK(rdmux_srq_post_recv(srq, &wr, 1, NULL));
    assert_int_equal(device.shared_count, 1);
    assert_int_equal(device.shared[0]->sge_count, 1);
    for (size_t i = 0; i < LIST_MAX; i++) {
        memset((uint8_t *)device.shared[0]->sges[0].addr + 100 * i, (int)(10 + i), 100);
    }
    receive_shared(b, list.length);
    expect_entry(scene.pair.cq_b, RDMUX_WC_RECV, RDMUX_OK);
    check_list(&list, 10);

    rdmux_mr_deregister(list.mr);
    make_list(&list, scene.pair.fabric_b, PIECE_MAX, 50, LIST_MAX);
    CHECK_STATUS(rdmux_srq_post_recv(srq, &wr, 1, NULL), RDMUX_INVALID);
    assert_non_null(strstr(rdmux_last_error(), "use fewer pieces"));

    rdmux_mr_deregister(list.mr);
    CHECK_OK(rdmux_ep_close(b));
    CHECK_OK(rdmux_ep_close(a));
    CHECK_OK(rdmux_srq_destroy(srq));
    close_pair(&scene.pair);
    assert_false(device.keyless);
    assert_false(device.is_overlong);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(short_lists_of_too_many_pieces_are_copied),
        cmocka_unit_test(long_lists_of_too_many_pieces_are_gathered),
        cmocka_unit_test(messages_have_lists_of_any_length),
        cmocka_unit_test(the_bytes_of_a_list_may_be_freed_once_the_endpoint_is_closed),
        cmocka_unit_test(a_device_that_needs_no_keys_is_not_asked_for_longer_lists),
        cmocka_unit_test(a_shared_receive_outlives_the_device),
        cmocka_unit_test(a_shared_receive_has_a_list_of_any_length),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
