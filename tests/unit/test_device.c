/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* What the core does for devices: keys for unregistered buffers, segmenting of long requests,
 * endpoint ends. */
#include "tests/unit/device_scene.h"
#include "tests/unit/fair_time.h"

#include "api/core/cq.h"
#include "api/core/ep.h"
#include "api/core/fabric.h"
#include "api/core/mr.h"
#include "api/core/remote.h"
#include "api/session/control.h"
#include "negotiation/control_channel.h"

#include <sys/socket.h>

/* ----------------------------------------------------------------------------------------- keys */

/* A fenced request sends the bytes of the read before it, although the read's entry is not taken.
 * For a read without a copy, the device would have to order the two. */
static void check_fence_behind_read(struct scene *scene, struct rdmux_mr *mr, uint32_t access)
{
    enum { LENGTH = 1000 };
    uint8_t *here = rdmux_mr_addr(mr);
    uint8_t *there = rdmux_mr_addr(scene->mr);
    if ((access & RDMUX_ACCESS_READ_SINK) != 0) {
        return;
    }
    struct rdmux_sge sge = { here, 1000, mr };
    struct rdmux_wr wrs[] = { { .op = RDMUX_OP_READ, .sge_count = 1 },
                              { .op = RDMUX_OP_WRITE, .sge_count = 1, .offset = 1000 } };
    wrs[0].sges = wrs[1].sges = &sge;
    wrs[0].remote = wrs[1].remote = scene->remote;
    wrs[1].flags = RDMUX_FENCE | RDMUX_PLACED;
    memset(here, 0, LENGTH);
    memset(there + 1000, 0, 1000);
    CHECK_OK(rdmux_post(scene->pair.a, wrs, 2, NULL));
    progress_until_done(&scene->pair);
    assert_memory_equal(there, there + 1000, 1000);
    expect_entry(scene->pair.cq_a, RDMUX_WC_READ, RDMUX_OK);
    expect_entry(scene->pair.cq_a, RDMUX_WC_WRITE, RDMUX_OK);
}

/* A read into a region that the peer's device may not write uses a key of the core's; a read into
 * one that it may write uses the region's own. */
static void a_device_gets_no_right_to_a_region_that_is_no_sink(void **state)
{
    (void)state;
    enum { LENGTH = 3 * BOUNCED };
    static const size_t lengths[] = { 1, 1000, LENGTH };
    static const uint32_t accesses[] = { RDMUX_ACCESS_LOCAL_WRITE,
                                         RDMUX_ACCESS_LOCAL_WRITE | RDMUX_ACCESS_READ_SINK };
    struct scene scene;
    memset(&scene, 0, sizeof(scene));
    open_sides(&scene.pair, "tcp", RDMUX_FABRIC_NO_SERVICE_THREAD, 0);
    make_device(scene.pair.fabric_a, RDMUX_PROVIDER_LOCAL_KEYS | RDMUX_PROVIDER_NATIVE_FENCE, 0);
    device.needs_sinks = true;
    finish_scene(&scene, NULL, LENGTH);
    uint8_t *there = rdmux_mr_addr(scene.mr);
    memset(there, 0x5a, LENGTH);
    for (size_t i = 0; i < RDMUX_COUNT_OF(accesses); i++) {
        struct rdmux_mr *mr = NULL;
        CHECK_OK(rdmux_mr_alloc(scene.pair.fabric_a, LENGTH, accesses[i], &mr));
        uint8_t *here = rdmux_mr_addr(mr);
        for (size_t j = 0; j < RDMUX_COUNT_OF(lengths); j++) {
            device.own_keys = 0;
            memset(here, 0, LENGTH);
            CHECK_OK(rdmux_read(scene.pair.a, here, lengths[j], mr, scene.remote, 0, NULL, 0));
            expect_entry(scene.pair.cq_a, RDMUX_WC_READ, RDMUX_OK);
            assert_memory_equal(here, there, lengths[j]);
            assert_int_equal(device.own_keys, i == 0 ? 1 : 0);
            CHECK_OK(rdmux_write(scene.pair.a, here, lengths[j], mr, scene.remote, 0, NULL, 0));
            expect_entry(scene.pair.cq_a, RDMUX_WC_WRITE, RDMUX_OK);
        }
        check_fence_behind_read(&scene, mr, accesses[i]);
        rdmux_mr_deregister(mr);
    }
    clear_scene(&scene);
}

/* Posts a write, a read, a send and a receive of these bytes without naming a region, and returns
 * for how many of the four the device got a region's registration. */
static size_t post_without_region(struct scene *scene, uint8_t *bytes, size_t length)
{
    static uint8_t there[3 * BOUNCED];
    uint8_t *region = rdmux_mr_addr(scene->mr);
    struct rdmux_ep *a = scene->pair.a;
    device.region_keys = 0;
    memset(bytes, 1, length);
    CHECK_OK(rdmux_write(a, bytes, length, NULL, scene->remote, 0, NULL, RDMUX_PLACED));
    expect_entry(scene->pair.cq_a, RDMUX_WC_WRITE, RDMUX_OK);
    assert_memory_equal(region, bytes, length);
    memset(region, 2, length);
    CHECK_OK(rdmux_read(a, bytes, length, NULL, scene->remote, 0, NULL, 0));
    expect_entry(scene->pair.cq_a, RDMUX_WC_READ, RDMUX_OK);
    assert_memory_equal(bytes, region, length);
    CHECK_OK(rdmux_recv(scene->pair.b, there, length, NULL, NULL));
    CHECK_OK(rdmux_send(a, bytes, length, NULL, NULL, 0));
    expect_entry(scene->pair.cq_a, RDMUX_WC_SEND, RDMUX_OK);
    expect_entry(scene->pair.cq_b, RDMUX_WC_RECV, RDMUX_OK);
    assert_memory_equal(there, bytes, length);
    memset(there, 3, length);
    CHECK_OK(rdmux_recv(a, bytes, length, NULL, NULL));
    CHECK_OK(rdmux_send(scene->pair.b, there, length, NULL, NULL, 0));
    expect_entry(scene->pair.cq_a, RDMUX_WC_RECV, RDMUX_OK); /* a polls, as it has no threads */
    expect_entry(scene->pair.cq_b, RDMUX_WC_SEND, RDMUX_OK);
    assert_memory_equal(there, bytes, length);
    return device.region_keys;
}

/* The first half of the bytes is in a region that may be written, all of them in one that may
 * not. */
static void a_request_without_region_uses_one_that_covers_its_bytes(void **state)
{
    (void)state;
    enum { LENGTH = 3 * BOUNCED, HALF = 2 * LENGTH };
    static uint8_t bytes[2 * HALF + LENGTH];
    static const size_t lengths[] = { 1000, LENGTH };
    for (uint32_t finds = 0; finds < 2; finds++) {
        struct scene scene;
        struct rdmux_mr *half = NULL;
        struct rdmux_mr *all = NULL;
        set_scene(&scene, RDMUX_PROVIDER_LOCAL_KEYS, 0, LENGTH,
                  finds != 0 ? RDMUX_FABRIC_FIND_REGIONS : 0);
        CHECK_OK(
            rdmux_mr_register(scene.pair.fabric_a, bytes, HALF, RDMUX_ACCESS_LOCAL_WRITE, &half));
        CHECK_OK(rdmux_mr_register(scene.pair.fabric_a, bytes, (size_t)2 * HALF, 0, &all));
        for (size_t i = 0; i < RDMUX_COUNT_OF(lengths); i++) {
            const size_t length = lengths[i];
            assert_int_equal(post_without_region(&scene, bytes, length), finds * 4);
            assert_int_equal(post_without_region(&scene, bytes + HALF - length, length), finds * 4);
            /* the write and the send alone */
            assert_int_equal(post_without_region(&scene, bytes + HALF - 1, length), finds * 2);
            assert_int_equal(post_without_region(&scene, bytes + (size_t)2 * HALF - 1, length), 0);
        }
        rdmux_mr_deregister(half);
        assert_int_equal(post_without_region(&scene, bytes, LENGTH), finds * 2);
        rdmux_mr_deregister(all);
        assert_int_equal(post_without_region(&scene, bytes, LENGTH), 0);
        clear_scene(&scene);
    }
}

/* A device that writes the data of reads by the peer's key gets no region that is not made for
 * that. */
static void a_read_without_region_uses_a_sink_where_the_device_needs_one(void **state)
{
    (void)state;
    static const uint32_t accesses[] = { RDMUX_ACCESS_LOCAL_WRITE,
                                         RDMUX_ACCESS_LOCAL_WRITE | RDMUX_ACCESS_READ_SINK };
    struct scene scene;
    memset(&scene, 0, sizeof(scene));
    open_sides(&scene.pair, "tcp", RDMUX_FABRIC_NO_SERVICE_THREAD | RDMUX_FABRIC_FIND_REGIONS, 0);
    make_device(scene.pair.fabric_a, RDMUX_PROVIDER_LOCAL_KEYS, 0);
    device.needs_sinks = true;
    finish_scene(&scene, NULL, SHORT);
    for (size_t i = 0; i < RDMUX_COUNT_OF(accesses); i++) {
        static uint8_t bytes[SHORT];
        struct rdmux_mr *mr = NULL;
        CHECK_OK(rdmux_mr_register(scene.pair.fabric_a, bytes, SHORT, accesses[i], &mr));
        device.own_keys = 0;
        CHECK_OK(rdmux_read(scene.pair.a, bytes, SHORT, NULL, scene.remote, 0, NULL, 0));
        expect_entry(scene.pair.cq_a, RDMUX_WC_READ, RDMUX_OK);
        assert_int_equal(device.own_keys, i == 0 ? 1 : 0);
        rdmux_mr_deregister(mr);
    }
    clear_scene(&scene);
}

/* More requests without completions than fit into the memory for copies at a time. */
static void silent_requests_make_room_for_later_ones(void **state)
{
    (void)state;
    enum { COUNT = 40 };
    struct scene scene;
    set_scene(&scene, RDMUX_PROVIDER_LOCAL_KEYS, 0, BOUNCED, 0);
    static uint8_t bytes[BOUNCED];
    struct rdmux_sge sge = { bytes, sizeof(bytes), NULL };
    struct rdmux_wr wrs[COUNT];
    size_t posted = 0;
    for (size_t i = 0; i < COUNT; i++) {
        wrs[i] = (struct rdmux_wr){ .op = RDMUX_OP_WRITE,
                                    .flags = RDMUX_UNSIGNALED,
                                    .sges = &sge,
                                    .sge_count = 1,
                                    .remote = scene.remote };
    }
    device.conduct = DONE_AT_ONCE;
    CHECK_OK(rdmux_write(scene.pair.a, bytes, sizeof(bytes), NULL, scene.remote, 0, NULL, 0));
    expect_entry(scene.pair.cq_a, RDMUX_WC_WRITE, RDMUX_OK); /* the memory is there now */
    CHECK_OK(rdmux_post(scene.pair.a, wrs, COUNT, &posted));
    assert_int_equal(posted, COUNT);
    progress_until_done(&scene.pair);
    clear_scene(&scene);
}

static void check_fence(uint32_t flags)
{
    struct scene scene;
    enum { LENGTH = 1000 };
    set_scene(&scene, flags, 0, (size_t)2 * LENGTH, 0);
    uint8_t *there = rdmux_mr_addr(scene.mr);
    uint8_t here[LENGTH] = { 0 };
    memset(there, 0x5a, LENGTH);
    CHECK_OK(rdmux_read(scene.pair.a, here, LENGTH, NULL, scene.remote, 0, CONTEXT(1), 0));
    CHECK_OK(rdmux_write(scene.pair.a, here, LENGTH, NULL, scene.remote, LENGTH, CONTEXT(2),
                         RDMUX_FENCE | RDMUX_PLACED));
    progress_until_done(&scene.pair);
    assert_memory_equal(there, there + LENGTH, LENGTH);
    expect_entry(scene.pair.cq_a, RDMUX_WC_READ, RDMUX_OK);
    assert_memory_equal(here, there, LENGTH);
    expect_entry(scene.pair.cq_a, RDMUX_WC_WRITE, RDMUX_OK);
    clear_scene(&scene);
}

/* The bytes read are forwarded, although the read's entry is not taken. */
static void a_fenced_request_sends_the_bytes_of_the_read_before_it(void **state)
{
    (void)state;
    check_fence(RDMUX_PROVIDER_LOCAL_KEYS);
}

static void a_fenced_request_waits_for_the_read_on_a_device_with_fences(void **state)
{
    (void)state;
    check_fence(RDMUX_PROVIDER_LOCAL_KEYS | RDMUX_PROVIDER_NATIVE_FENCE);
}

/* The endpoint ends, and the device never sees the buffer. */
static void a_receive_that_cannot_be_registered_ends_the_endpoint(void **state)
{
    (void)state;
    struct scene scene;
    static uint8_t bytes[BOUNCED + 1];
    set_scene(&scene, RDMUX_PROVIDER_LOCAL_KEYS, 0, BOUNCED, 0);
    device.refused_length = sizeof(bytes);
    CHECK_OK(rdmux_recv(scene.pair.a, bytes, sizeof(bytes), NULL, NULL));
    expect_entry(scene.pair.cq_a, RDMUX_WC_RECV, RDMUX_FLUSHED);
    expect_entry(scene.pair.cq_a, RDMUX_WC_DISCONNECTED, RDMUX_NO_MEMORY);
    clear_scene(&scene);
}

static void the_bytes_of_an_unused_receive_do_not_change(void **state)
{
    (void)state;
    struct scene scene;
    uint8_t bytes[1000];
    uint8_t before[sizeof(bytes)];
    memset(bytes, 0xa5, sizeof(bytes));
    memcpy(before, bytes, sizeof(bytes));
    set_scene(&scene, RDMUX_PROVIDER_LOCAL_KEYS, 0, BOUNCED, 0);
    CHECK_OK(rdmux_recv(scene.pair.a, bytes, sizeof(bytes), NULL, NULL));
    uint64_t until = now_ms() + PATIENT_MS;
    while (scene.pair.a->recv.offered == 0) {
        assert_true(now_ms() < until);
        assert_int_equal(rdmux_cq_poll(scene.pair.cq_a, NULL, 0), 0);
    }
    clear_scene(&scene);
    assert_memory_equal(bytes, before, sizeof(bytes));
}

/* The second request has to wait for its key; the first does not. */
static void a_waiting_request_does_not_hold_back_the_one_before_it(void **state)
{
    (void)state;
    struct scene scene;
    static uint8_t bytes[BOUNCED];
    set_scene(&scene, RDMUX_PROVIDER_LOCAL_KEYS, 0, BOUNCED, 0);
    CHECK_OK(rdmux_write(scene.pair.a, bytes, INLINE_MAX, NULL, scene.remote, 0, NULL, RDMUX_MORE));
    assert_int_equal(device.doorbells, 0);
    CHECK_OK(rdmux_write(scene.pair.a, bytes, BOUNCED, NULL, scene.remote, 0, NULL, RDMUX_MORE));
    assert_int_equal(device.doorbells, 0);
    CHECK_OK(rdmux_write(scene.pair.a, bytes, BOUNCED, NULL, scene.remote, 0, NULL, 0));
    assert_int_equal(device.doorbells, 1);
    for (int i = 0; i < 3; i++) {
        expect_entry(scene.pair.cq_a, RDMUX_WC_WRITE, RDMUX_OK);
    }
    clear_scene(&scene);
}

static void a_device_works_without_library_threads(void **state)
{
    (void)state;
    struct scene scene;
    set_scene(&scene, RDMUX_PROVIDER_LOCAL_KEYS, 0, BOUNCED, RDMUX_FABRIC_NO_WORKER_THREAD);
    static uint8_t bytes[64 * 1024];
    struct rdmux_mr *mr = NULL;
    CHECK_OK(rdmux_mr_alloc(scene.pair.fabric_b, sizeof(bytes), RDMUX_ACCESS_REMOTE_WRITE, &mr));
    struct rdmux_remote *remote = import_region(scene.pair.a, mr);
    check_messages(&scene.pair);
    static const size_t lengths[] = { INLINE_MAX, 1000, sizeof(bytes) };
    for (size_t i = 0; i < RDMUX_COUNT_OF(lengths); i++) {
        memset(bytes, (int)i + 1, sizeof(bytes));
        CHECK_OK(rdmux_write(scene.pair.a, bytes, lengths[i], NULL, remote, 0, NULL, RDMUX_PLACED));
        expect_entry(scene.pair.cq_a, RDMUX_WC_WRITE, RDMUX_OK);
        assert_memory_equal(rdmux_mr_addr(mr), bytes, lengths[i]);
    }
    CHECK_OK(rdmux_ep_shutdown(scene.pair.a, PATIENT_MS));
    CHECK_OK(rdmux_ep_close(scene.pair.b));
    scene.pair.b = NULL;
    rdmux_mr_deregister(mr);
    clear_scene(&scene);
}

/* --------------------------------------------------------------------------------------- pieces */

/* More pieces than are with the device at a time. */
static void a_very_long_write_is_posted_in_pieces(void **state)
{
    (void)state;
    enum { PIECE = 1000, LENGTH = 20 * PIECE };
    struct scene scene;
    set_scene(&scene, 0, PIECE, LENGTH, 0);
    uint8_t *bytes = calloc(1, LENGTH);
    assert_non_null(bytes);
    device.conduct = DONE_BY_POLL;
    CHECK_OK(rdmux_write(scene.pair.a, bytes, LENGTH, NULL, scene.remote, 0, CONTEXT(7), 0));
    assert_ptr_equal(expect_entry(scene.pair.cq_a, RDMUX_WC_WRITE, RDMUX_OK).context, CONTEXT(7));
    assert_int_equal(device.most_held, 8);
    free(bytes);
    clear_scene(&scene);
}

/* An atomic is not segmented, however short the peer's messages are. */
/* a's device takes 20,000 bytes, and both sides wish for more. */
static void a_wish_for_long_messages_gets_what_the_device_takes(void **state)
{
    (void)state;
    enum { LIMIT = 20000 };
    static uint8_t bytes[LIMIT + 1];
    static uint8_t there[LIMIT];
    struct scene scene;
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    struct rdmux_explanation *explanation = NULL;
    attr.flags = RDMUX_EP_SEND_WISH;
    attr.max_send = 1 << 20;
    memset(&scene, 0, sizeof(scene));
    open_sides(&scene.pair, "tcp", RDMUX_FABRIC_NO_SERVICE_THREAD, 0);
    make_device(scene.pair.fabric_a, RDMUX_PROVIDER_LOCAL_KEYS, LIMIT);

    finish_scene(&scene, &attr, SHORT);

    struct rdmux_ep *const eps[] = { scene.pair.a, scene.pair.b };
    for (size_t i = 0; i < RDMUX_COUNT_OF(eps); i++) {
        CHECK_OK(rdmux_ep_info(eps[i], &info));
        assert_int_equal(info.max_send, LIMIT);
        assert_int_equal(info.max_recv, LIMIT);
        CHECK_OK(rdmux_ep_explanation(eps[i], &explanation));
        const char *text = explanation->candidates[explanation->chosen]->text;
        assert_non_null(strstr(text,
                               "connector wishes to send messages of 1048576 bytes, this path "
                               "takes 20000"));
        rdmux_explanation_free(explanation);
    }
    CHECK_STATUS(rdmux_send(scene.pair.a, bytes, LIMIT + 1, NULL, NULL, 0), RDMUX_LENGTH);
    memset(bytes, 7, LIMIT);
    CHECK_OK(rdmux_recv(scene.pair.b, there, LIMIT, NULL, NULL));
    CHECK_OK(rdmux_send(scene.pair.a, bytes, LIMIT, NULL, NULL, 0));
    expect_entry(scene.pair.cq_a, RDMUX_WC_SEND, RDMUX_OK);
    expect_entry(scene.pair.cq_b, RDMUX_WC_RECV, RDMUX_OK);
    assert_memory_equal(there, bytes, LIMIT);
    clear_scene(&scene);
}

static void an_atomic_is_not_cut_into_pieces(void **state)
{
    (void)state;
    struct scene scene;
    uint64_t result = 0;
    set_scene(&scene, 0, 4, sizeof(result), 0);
    CHECK_OK(rdmux_fetch_add(scene.pair.a, &result, NULL, scene.remote, 0, 5, NULL, 0));
    expect_entry(scene.pair.cq_a, RDMUX_WC_FETCH_ADD, RDMUX_OK);
    assert_int_equal(device.odd_atomics, 0);
    assert_int_equal(*(uint64_t *)rdmux_mr_addr(scene.mr), 5);
    clear_scene(&scene);
}

static void the_pieces_of_an_inline_write_are_inline(void **state)
{
    (void)state;
    struct scene scene;
    uint8_t bytes[64] = { 1 };
    set_scene(&scene, 0, 16, sizeof(bytes), 0);
    CHECK_OK(rdmux_write(scene.pair.a, bytes, 64, NULL, scene.remote, 0, NULL, RDMUX_INLINE));
    expect_entry(scene.pair.cq_a, RDMUX_WC_WRITE, RDMUX_OK);
    assert_int_equal(device.inline_pieces, 4);
    clear_scene(&scene);
}

/* Half of the request may have reached the peer. */
static void a_request_with_posted_pieces_is_in_doubt(void **state)
{
    (void)state;
    enum { PIECE = 1000, LENGTH = 20 * PIECE };
    struct scene scene;
    static uint8_t bytes[LENGTH];
    set_scene(&scene, 0, PIECE, LENGTH, 0);
    device.conduct = DONE_BY_POLL;
    CHECK_OK(rdmux_write(scene.pair.a, bytes, LENGTH, NULL, scene.remote, 0, CONTEXT(1), 0));
    CHECK_OK(rdmux_write(scene.pair.a, bytes, 1, NULL, scene.remote, 0, CONTEXT(2), 0));
    assert_int_equal(device.held_count, 8);
    device.held_count = 0; /* they never end */
    device.conduct = CARRY;
    scene.pair.a->cause.is_in_doubt = true;
    rdmux_provider_failed(device.path, RDMUX_DENIED, "device: the peer refused something");
    assert_ptr_equal(expect_entry(scene.pair.cq_a, RDMUX_WC_WRITE, RDMUX_OUTCOME_UNKNOWN).context,
                     CONTEXT(1));
    assert_ptr_equal(expect_entry(scene.pair.cq_a, RDMUX_WC_WRITE, RDMUX_FLUSHED).context,
                     CONTEXT(2));
    expect_entry(scene.pair.cq_a, RDMUX_WC_DISCONNECTED, RDMUX_DENIED);
    clear_scene(&scene);
}

/* -------------------------------------------------------------------------------------- the end */

/* Takes the entries one by one, so that the failure is reported before the endpoint knows of it. */
static void no_request_succeeds_after_a_failed_one(void **state)
{
    (void)state;
    enum { COUNT = 3 };
    struct scene scene;
    uint8_t byte = 0;
    set_scene(&scene, 0, 0, 8, 0);
    device.conduct = DONE_BY_POLL;
    for (uint64_t i = 0; i < COUNT; i++) {
        CHECK_OK(rdmux_write(scene.pair.a, &byte, 1, NULL, scene.remote, 0, CONTEXT(i), 0));
    }
    assert_int_equal(device.held_count, COUNT);
    device.held_count = 0;
    device.conduct = CARRY;
    rdmux_provider_done(device.path, device.held[1], RDMUX_OK);
    rdmux_provider_done(device.path, device.held[2], RDMUX_OK);
    rdmux_provider_done(device.path, device.held[0], RDMUX_IO);
    rdmux_provider_failed(device.path, RDMUX_IO, "device: one of them failed");

    expect_entry(scene.pair.cq_a, RDMUX_WC_WRITE, RDMUX_IO);
    expect_entry(scene.pair.cq_a, RDMUX_WC_WRITE, RDMUX_FLUSHED);
    expect_entry(scene.pair.cq_a, RDMUX_WC_WRITE, RDMUX_FLUSHED);
    expect_entry(scene.pair.cq_a, RDMUX_WC_DISCONNECTED, RDMUX_IO);
    clear_scene(&scene);
}

static void a_shutdown_whose_flush_failed_fails(void **state)
{
    (void)state;
    struct scene scene;
    set_scene(&scene, 0, 0, 8, 0);
    device.flush_fails = true;
    CHECK_STATUS(rdmux_ep_shutdown(scene.pair.a, PATIENT_MS), RDMUX_PEER_GONE);
    clear_scene(&scene);
}

/* The device reports that the flush failed, but no failure of the path. */
static void a_shutdown_fails_if_its_flush_alone_failed(void **state)
{
    (void)state;
    struct scene scene;
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    attr.liveness_ms = 1000; /* timeout of the peer's last messages */
    memset(&scene, 0, sizeof(scene));
    open_sides(&scene.pair, "tcp", RDMUX_FABRIC_NO_SERVICE_THREAD, 0);
    make_device(scene.pair.fabric_a, 0, 0);
    finish_scene(&scene, &attr, 8);
    device.flush_fails = true;
    device.path_stays = true;
    CHECK_STATUS(rdmux_ep_shutdown(scene.pair.a, 0), RDMUX_IN_PROGRESS);
    uint64_t rounds = 0;
    struct rdmux_wc wc;
    while (rdmux_cq_poll(scene.pair.cq_a, &wc, 1) == 0) {
        rounds++;
    }
    assert_int_equal(wc.opcode, RDMUX_WC_DISCONNECTED);
    assert_int_equal(wc.status, RDMUX_PEER_GONE);
    assert_true(rounds > 10); /* no call waits for the peer's last messages */
    clear_scene(&scene);
}

/* Both sides progress only by their own calls. */
static void set_still_scene(struct scene *scene)
{
    memset(scene, 0, sizeof(*scene));
    open_sides(&scene->pair, "tcp", RDMUX_FABRIC_NO_SERVICE_THREAD, RDMUX_FABRIC_NO_SERVICE_THREAD);
    make_device(scene->pair.fabric_a, 0, 0);
    connect_more(&scene->pair, NULL, &scene->pair.a, &scene->pair.b);
}

/* A process that ends loses its regions before its sockets. */
static void a_peer_that_ends_while_its_device_denies_accesses_is_gone(void **state)
{
    (void)state;
    struct scene scene;
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    set_still_scene(&scene);
    rdmux_provider_failed(device.path, RDMUX_DENIED, "device: access denied");
    assert_int_equal(shutdown(rdmux_channel_socket(scene.pair.b->channel), SHUT_RDWR), 0);

    expect_entry(scene.pair.cq_a, RDMUX_WC_DISCONNECTED, RDMUX_PEER_GONE);

    CHECK_OK(rdmux_ep_info(scene.pair.a, &info));
    assert_non_null(strstr(info.text, "before, device: access denied"));
    clear_scene(&scene);
}

static void a_denied_access_is_reported_at_once_while_the_peer_is_alive(void **state)
{
    (void)state;
    enum { GRACE_MS = 500 };
    struct scene scene;
    set_scene(&scene, 0, 0, 8, 0);
    struct span span = span_begin();
    rdmux_provider_failed(device.path, RDMUX_DENIED, "device: access denied");

    expect_entry(scene.pair.cq_a, RDMUX_WC_DISCONNECTED, RDMUX_DENIED);

    check_span("denied", span, 0, GRACE_MS / 2);
    expect_entry(scene.pair.cq_b, RDMUX_WC_DISCONNECTED, RDMUX_DENIED);
    clear_scene(&scene);
}

/* A peer that cannot answer. */
static void a_denied_access_is_reported_in_time(void **state)
{
    (void)state;
    struct scene scene;
    set_still_scene(&scene);
    rdmux_provider_failed(device.path, RDMUX_DENIED, "device: access denied");
    expect_entry(scene.pair.cq_a, RDMUX_WC_DISCONNECTED, RDMUX_DENIED);
    clear_scene(&scene);
}

/* ---------------------------------------------------------------------------- reads that linger */

/* As in api/object/revoke.c: the longest that one answer of the peer's, and a drain, is waited for. */
enum { REVOKE_WAIT_MS = 100, DRAIN_WAIT_MS = 1000 };

/* The device keeps answering reads after a key is invalid, until it is polled once, or forever. b
 * imports from it; another pair does not. */
static void set_lingering_scene(struct scene *scene, bool for_ever, struct rdmux_ep **other_a,
                                struct rdmux_ep **other_b)
{
    memset(scene, 0, sizeof(*scene));
    open_sides(&scene->pair, "tcp", 0, 0);
    make_device(scene->pair.fabric_a, RDMUX_PROVIDER_READS_LINGER, 0);
    device.holds_flush = true;
    device.flush_polls = for_ever ? 0 : 1;
    connect_more(&scene->pair, NULL, other_a, other_b);
    connect_more(&scene->pair, NULL, &scene->pair.a, &scene->pair.b);
    CHECK_OK(rdmux_mr_alloc(scene->pair.fabric_a, SHORT, RDMUX_ACCESS_REMOTE_READ, &scene->mr));
    scene->remote = import_region(scene->pair.b, scene->mr);
    alarm(HANG_S);
}

static void clear_lingering_scene(struct scene *scene, struct rdmux_ep *const others[2])
{
    CHECK_OK(rdmux_ep_close(others[0]));
    CHECK_OK(rdmux_ep_close(others[1]));
    clear_scene(scene);
}

static void check_that_it_lives(struct scene *scene, struct rdmux_ep *from, struct rdmux_ep *to)
{
    uint64_t sent = 7;
    uint64_t received = 0;
    CHECK_OK(rdmux_recv(to, &received, sizeof(received), NULL, NULL));
    CHECK_OK(rdmux_send(from, &sent, sizeof(sent), NULL, NULL, 0));
    expect_entry(scene->pair.cq_a, RDMUX_WC_SEND, RDMUX_OK);
    expect_entry(scene->pair.cq_b, RDMUX_WC_RECV, RDMUX_OK);
    assert_int_equal(received, sent);
}

/* The revocation is over, and no request is in flight. Only on a slow machine may it have cost the
 * endpoint. */
static void check_read_no_more(struct scene *scene, struct span span)
{
    /* To revoke, to drain, and to end the endpoint. */
    check_span("revocation", span, 0, (2 * REVOKE_WAIT_MS + DRAIN_WAIT_MS) * SLACK);
    if (device.flushes == 1) {
        check_that_it_lives(scene, scene->pair.a, scene->pair.b);
    } else {
        expect_entry(scene->pair.cq_a, RDMUX_WC_DISCONNECTED, RDMUX_DENIED);
    }
}

static void a_revoked_region_is_no_longer_read(void **state)
{
    (void)state;
    struct scene scene;
    struct rdmux_ep *others[2];
    set_lingering_scene(&scene, false, &others[0], &others[1]);
    struct span span = span_begin();

    CHECK_OK(rdmux_mr_revoke(scene.mr));

    check_read_no_more(&scene, span);
    clear_lingering_scene(&scene, others);
}

/* A packet that was lost comes after 200 ms. */
static void a_read_that_takes_a_while_costs_no_endpoint(void **state)
{
    (void)state;
    struct scene scene;
    struct rdmux_ep *others[2];
    set_lingering_scene(&scene, true, &others[0], &others[1]);
    device.flush_ms = now_ms() + 250;

    CHECK_OK(rdmux_mr_revoke(scene.mr));

    assert_int_equal(device.flushes, 1);
    assert_true(now_ms() >= device.flush_ms);
    check_that_it_lives(&scene, scene.pair.a, scene.pair.b);
    clear_lingering_scene(&scene, others);
}

static void a_deregistered_region_is_no_longer_read(void **state)
{
    (void)state;
    struct scene scene;
    struct rdmux_ep *others[2];
    set_lingering_scene(&scene, false, &others[0], &others[1]);
    struct span span = span_begin();

    rdmux_mr_deregister(scene.mr);

    scene.mr = NULL;
    check_read_no_more(&scene, span);
    clear_lingering_scene(&scene, others);
}

/* The device knows that some bytes have not reached the peer. */
static void a_revocation_that_finds_a_broken_path_ends_its_endpoint(void **state)
{
    (void)state;
    struct scene scene;
    struct rdmux_ep *others[2];
    set_lingering_scene(&scene, false, &others[0], &others[1]);
    device.holds_flush = false;
    device.flush_fails = true;
    device.path_stays = true;

    CHECK_OK(rdmux_mr_revoke(scene.mr));

    expect_entry(scene.pair.cq_a, RDMUX_WC_DISCONNECTED, RDMUX_PEER_GONE);
    expect_entry(scene.pair.cq_b, RDMUX_WC_DISCONNECTED, RDMUX_PEER_GONE);
    check_that_it_lives(&scene, others[0], others[1]);
    clear_lingering_scene(&scene, others);
}

static void a_region_without_importers_is_revoked_at_once(void **state)
{
    (void)state;
    struct scene scene;
    struct rdmux_ep *others[2];
    set_lingering_scene(&scene, true, &others[0], &others[1]);
    CHECK_OK(rdmux_ep_close(scene.pair.b));
    expect_entry(scene.pair.cq_a, RDMUX_WC_DISCONNECTED, RDMUX_PEER_GONE);
    scene.pair.b = NULL;

    CHECK_OK(rdmux_mr_revoke(scene.mr));

    assert_null(device.flush);
    check_that_it_lives(&scene, others[0], others[1]);
    clear_lingering_scene(&scene, others);
}

static void a_revocation_ends_only_the_endpoint_that_goes_on_reading(void **state)
{
    (void)state;
    struct scene scene;
    struct rdmux_ep *others[2];
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    set_lingering_scene(&scene, true, &others[0], &others[1]);

    CHECK_OK(rdmux_mr_revoke(scene.mr));

    assert_non_null(device.flush);
    expect_entry(scene.pair.cq_a, RDMUX_WC_DISCONNECTED, RDMUX_DENIED);
    expect_entry(scene.pair.cq_b, RDMUX_WC_DISCONNECTED, RDMUX_DENIED);
    CHECK_OK(rdmux_ep_info(scene.pair.a, &info));
    assert_non_null(strstr(info.text, "a region was revoked"));
    check_that_it_lives(&scene, others[0], others[1]);
    clear_lingering_scene(&scene, others);
}

/* --------------------------------------------------------------------------------------- memory */

/* Connects, and asks for keys if that succeeded. Returns whether everything succeeded. It has its
 * own listener: of a connection that fails late, the acceptor has a good one, which the next call
 * would get. */
static bool connect_short_of_memory(struct pair *pair, struct rdmux_fabric *fabric,
                                    struct rdmux_cq *cq, struct rdmux_ep **a)
{
    static uint8_t bytes[2 * BOUNCED];
    char address[RDMUX_ADDRESS_MAX];
    struct rdmux_listener *listener = listen_here(pair->fabric_b, NULL, address);
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    struct rdmux_ep *b = NULL;
    struct rdmux_wc wc = { .opcode = 0 };
    attr.max_send = SHORT;
    attr.max_recv = SHORT;
    enum rdmux_status status = rdmux_connect(fabric, cq, address, &attr, 0, a);
    uint64_t until = now_ms() + PATIENT_MS;
    while (status == RDMUX_IN_PROGRESS && wc.opcode != RDMUX_WC_CONNECTED) {
        assert_true(now_ms() < until);
        enum rdmux_status accepted = b == NULL ? rdmux_accept(listener, pair->cq_b, &attr, 1, &b)
                                               : RDMUX_OK;
        assert_true(accepted == RDMUX_OK || accepted == RDMUX_TIMED_OUT);
        CHECK_OK(rdmux_fabric_progress(fabric));
        if (rdmux_cq_poll(cq, &wc, 1) == 0) {
            wc.opcode = 0;
        }
    }
    bool connected = wc.opcode == RDMUX_WC_CONNECTED && wc.status == RDMUX_OK;
    if (connected) {
        CHECK_OK(rdmux_recv(*a, bytes, 100, NULL, NULL)); /* asks for memory for copies */
        CHECK_OK(rdmux_recv(*a, bytes + 100, sizeof(bytes) - 100, NULL, NULL));
        for (int i = 0; i < 4; i++) {
            assert_int_equal(rdmux_cq_poll(cq, NULL, 0), 0);
        }
    }
    connected = connected && (*a)->phase == RDMUX_PHASE_READY;
    CHECK_OK(rdmux_ep_close(b));
    rdmux_listener_close(listener);
    return connected;
}

/* The peer's end does not take the requests from the device at once. The import that they name
 * stays until they are done, though the program has closed it. */
static void an_import_outlives_the_requests_of_an_endpoint_that_ends(void **state)
{
    (void)state;
    struct scene scene;
    static uint8_t bytes[SHORT];
    set_scene(&scene, 0, 0, SHORT, 0);
    device.conduct = HELD;
    CHECK_OK(rdmux_write(scene.pair.a, bytes, SHORT, NULL, scene.remote, 0, CONTEXT(1), 0));
    rdmux_remote_close(scene.remote);
    CHECK_OK(rdmux_ep_close(scene.pair.b));
    scene.pair.b = NULL;
    const uint64_t until = now_ms() + PATIENT_MS;
    while (scene.pair.a->phase != RDMUX_PHASE_ENDING) {
        assert_true(now_ms() < until);
        assert_int_equal(rdmux_cq_poll(scene.pair.cq_a, NULL, 0), 0);
        assert_int_equal(rdmux_cq_poll(scene.pair.cq_b, NULL, 0), 0);
    }
    for (int i = 0; i < 3; i++) {
        assert_int_equal(rdmux_cq_poll(scene.pair.cq_a, NULL, 0), 0);
        rdmux_ep_control_step(scene.pair.a);
    }
    assert_false(device.is_closed_early);
    device.conduct = DONE_BY_POLL;
    expect_entry(scene.pair.cq_a, RDMUX_WC_WRITE, RDMUX_OK);
    expect_entry(scene.pair.cq_a, RDMUX_WC_DISCONNECTED, RDMUX_PEER_GONE);
    assert_false(device.is_closed_early);
    clear_scene(&scene);
}

/* Whichever allocation of the connecting side fails, nothing leaks. */
static void a_failed_allocation_leaves_nothing(void **state)
{
    (void)state;
    struct pair pair;
    open_sides(&pair, "tcp", 0, 0);
    size_t failures = 0;
    for (bool went_well = false; !went_well; failures++) {
        struct meter meter = { .left = 0 };
        struct rdmux_ep *a = NULL;
        struct rdmux_fabric *fabric = open_metered_fabric(
            "tcp", RDMUX_FABRIC_NO_WORKER_THREAD | RDMUX_FABRIC_NO_SERVICE_THREAD, NULL, &meter);
        make_device(fabric, RDMUX_PROVIDER_LOCAL_KEYS, SHORT);
        struct rdmux_cq *cq = create_cq(fabric);
        atomic_store(&meter.left, (long)failures + 1);
        went_well = connect_short_of_memory(&pair, fabric, cq, &a) &&
                    atomic_load(&meter.left) > 0; /* else one failed that was not needed */
        atomic_store(&meter.left, 0);
        CHECK_OK(rdmux_ep_close(a));
        CHECK_OK(rdmux_cq_destroy(cq));
        CHECK_OK(rdmux_fabric_close(fabric));
        if (atomic_load(&meter.pieces) != 0) {
            fail_msg("allocation %zu failed, and %zu pieces are left", failures + 1,
                     (size_t)atomic_load(&meter.pieces));
        }
    }
    assert_true(failures > 10);
    close_pair(&pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_device_gets_no_right_to_a_region_that_is_no_sink),
        cmocka_unit_test(a_request_without_region_uses_one_that_covers_its_bytes),
        cmocka_unit_test(a_read_without_region_uses_a_sink_where_the_device_needs_one),
        cmocka_unit_test(silent_requests_make_room_for_later_ones),
        cmocka_unit_test(a_fenced_request_sends_the_bytes_of_the_read_before_it),
        cmocka_unit_test(a_fenced_request_waits_for_the_read_on_a_device_with_fences),
        cmocka_unit_test(a_receive_that_cannot_be_registered_ends_the_endpoint),
        cmocka_unit_test(the_bytes_of_an_unused_receive_do_not_change),
        cmocka_unit_test(a_waiting_request_does_not_hold_back_the_one_before_it),
        cmocka_unit_test(a_device_works_without_library_threads),
        cmocka_unit_test(a_very_long_write_is_posted_in_pieces),
        cmocka_unit_test(a_wish_for_long_messages_gets_what_the_device_takes),
        cmocka_unit_test(an_atomic_is_not_cut_into_pieces),
        cmocka_unit_test(the_pieces_of_an_inline_write_are_inline),
        cmocka_unit_test(a_request_with_posted_pieces_is_in_doubt),
        cmocka_unit_test(no_request_succeeds_after_a_failed_one),
        cmocka_unit_test(a_shutdown_whose_flush_failed_fails),
        cmocka_unit_test(a_shutdown_fails_if_its_flush_alone_failed),
        cmocka_unit_test(a_peer_that_ends_while_its_device_denies_accesses_is_gone),
        cmocka_unit_test(a_denied_access_is_reported_at_once_while_the_peer_is_alive),
        cmocka_unit_test(a_denied_access_is_reported_in_time),
        cmocka_unit_test(a_revoked_region_is_no_longer_read),
        cmocka_unit_test(a_read_that_takes_a_while_costs_no_endpoint),
        cmocka_unit_test(a_deregistered_region_is_no_longer_read),
        cmocka_unit_test(a_revocation_that_finds_a_broken_path_ends_its_endpoint),
        cmocka_unit_test(a_region_without_importers_is_revoked_at_once),
        cmocka_unit_test(a_revocation_ends_only_the_endpoint_that_goes_on_reading),
        cmocka_unit_test(an_import_outlives_the_requests_of_an_endpoint_that_ends),
        cmocka_unit_test(a_failed_allocation_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
