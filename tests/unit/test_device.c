/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * What the core does for devices: keys for unregistered buffers, pieces of long requests, shared
 * receives that the device matches. The device is tcp with other promises; what it does with
 * requests each test says.
 */
#include "tests/unit/api_pair.h"

#include "api/keys.h"
#include "providers/registry.h"

#include <semaphore.h>
#include <sys/mman.h>

enum {
    INLINE_MAX = 32,
    BOUNCED = 8 * 1024, /* longest request that is copied */
    HELD_MAX = 64,
    SHORT = 1000,
    HANG_S = 60, /* a loop that never ends is ended by SIGALRM */
};

/* What the device does with requests. */
enum conduct {
    CARRY,        /* gives them to tcp */
    DONE_AT_ONCE, /* says so within the post, and carries nothing */
    DONE_BY_POLL, /* the same at the next poll */
};

static struct device {
    const struct rdmux_provider_ops *tcp;
    struct rdmux_provider_ops ops;
    enum conduct conduct;
    uint64_t max_message;
    uint32_t max_sge;        /* of the path; 0: no limit */
    bool is_overlong;        /* a list of more pieces was handed over, or asked for */
    bool needs_sinks;        /* pieces of reads need RDMUX_ACCESS_READ_SINK */
    bool is_exposed;         /* one that has no region with it was handed over */
    size_t own_keys;         /* pieces of reads with registrations of the core's own */
    uint64_t refused_length; /* buffers of this length cannot be registered; 0: all can */
    bool flush_fails;
    bool path_stays;                /* then */
    bool keyless;                   /* a buffer without a key was handed over */
    _Atomic long registrations;     /* that are there; the worker makes some */
    struct rdmux_provider_ep *path; /* the last one opened */
    struct rdmux_request *held[HELD_MAX];
    size_t held_count;
    size_t most_held;
    size_t odd_atomics; /* of another length than 8 */
    size_t inline_pieces;
    size_t doorbells;
    struct rdmux_request *shared[HELD_MAX]; /* receives of the SRQ */
    size_t shared_count;
} device;

static enum rdmux_status device_probe(struct rdmux_fabric *fabric, struct rdmux_local_path *out,
                                      size_t max, size_t *count)
{
    enum rdmux_status status = device.tcp->probe(fabric, out, max, count);
    for (size_t i = 0; i < *count && i < max; i++) {
        out[i].max_inline = INLINE_MAX;
        out[i].max_message = device.max_message;
        out[i].max_sge = device.max_sge;
    }
    return status;
}

static enum rdmux_status device_mr_register(struct rdmux_provider_mr *mr,
                                            const struct rdmux_provider_mr_attr *attr)
{
    if (attr->length == device.refused_length) {
        rdmux_provider_error("device: no room for %llu bytes", (unsigned long long)attr->length);
        return RDMUX_NO_MEMORY;
    }
    enum rdmux_status status = device.tcp->mr_register(mr, attr);
    device.registrations += status == RDMUX_OK;
    return status;
}

static void device_mr_deregister(struct rdmux_provider_mr *mr)
{
    device.registrations--;
    device.tcp->mr_deregister(mr);
}

static enum rdmux_status device_ep_open(struct rdmux_provider_ep *ep,
                                        const struct rdmux_provider_ep_attr *attr)
{
    device.path = ep;
    ep->needs_sinks = device.needs_sinks ? 1 : 0;
    device.is_overlong = device.max_sge != 0 && (attr->max_send_sge > device.max_sge ||
                                                 attr->max_recv_sge > device.max_sge);
    return device.tcp->ep_open(ep, attr);
}

static void note_keys(const struct rdmux_request *request)
{
    bool in_itself = (device.ops.flags & RDMUX_PROVIDER_LOCAL_KEYS) == 0 ||
                     (request->op != RDMUX_OP_RECV && request->length <= INLINE_MAX);
    for (uint16_t i = 0; i < request->sge_count && !in_itself; i++) {
        device.keyless = device.keyless || request->sges[i].mr == NULL;
    }
    for (uint16_t i = 0; i < request->sge_count && request->op == RDMUX_OP_READ; i++) {
        const struct rdmux_provider_mr *mr = request->sges[i].mr;
        bool is_own = mr != NULL && mr->mr == NULL;
        device.own_keys += is_own;
        device.is_exposed = device.is_exposed ||
                            (device.needs_sinks && !is_own &&
                             (mr == NULL || (mr->mr->access & RDMUX_ACCESS_READ_SINK) == 0));
    }
    device.is_overlong = device.is_overlong ||
                         (device.max_sge != 0 && request->sge_count > device.max_sge);
}

static bool is_flush(const struct rdmux_request *request)
{
    return request->op == RDMUX_OP_WRITE && request->length == 0 &&
           (request->flags & RDMUX_PLACED) != 0;
}

static enum rdmux_status device_post(struct rdmux_provider_ep *ep, struct rdmux_request *requests,
                                     size_t count, uint32_t flags, size_t *posted)
{
    for (size_t i = 0; i < count; i++) {
        const struct rdmux_request *request = &requests[i];
        bool atomic = request->op == RDMUX_OP_FETCH_ADD || request->op == RDMUX_OP_COMPARE_SWAP;
        note_keys(request);
        device.odd_atomics += atomic && request->length != sizeof(uint64_t);
        device.inline_pieces += request->internal && (request->flags & RDMUX_INLINE) != 0;
    }
    if (device.flush_fails && is_flush(&requests[0])) {
        *posted = 1;
        rdmux_provider_done(ep, &requests[0], RDMUX_PEER_GONE);
        if (!device.path_stays) {
            rdmux_provider_failed(ep, RDMUX_PEER_GONE, "device: the peer does not answer");
        }
        return RDMUX_OK;
    }
    if (device.conduct == CARRY || requests[0].length == 0) {
        return device.tcp->post(ep, requests, count, flags, posted);
    }
    for (*posted = 0; *posted < count; ++*posted) {
        if (device.conduct == DONE_AT_ONCE) {
            rdmux_provider_done(ep, &requests[*posted], RDMUX_OK);
        } else {
            assert_true(device.held_count < HELD_MAX);
            device.held[device.held_count++] = &requests[*posted];
        }
    }
    device.most_held = device.held_count > device.most_held ? device.held_count : device.most_held;
    return RDMUX_OK;
}

static size_t device_poll(struct rdmux_provider_cq *cq, size_t budget)
{
    size_t did = device.held_count;
    for (size_t i = 0; i < device.held_count; i++) {
        rdmux_provider_done(device.path, device.held[i], RDMUX_OK);
    }
    device.held_count = 0;
    return did + device.tcp->poll(cq, budget);
}

static void device_doorbell(struct rdmux_provider_ep *ep)
{
    device.doorbells++;
    device.tcp->doorbell(ep);
}

static enum rdmux_status device_post_recv(struct rdmux_provider_ep *ep,
                                          struct rdmux_request *requests, size_t count)
{
    for (size_t i = 0; i < count && requests != NULL; i++) {
        note_keys(&requests[i]);
    }
    return device.tcp->post_recv(ep, requests, count);
}

static enum rdmux_status device_srq_post_recv(struct rdmux_provider_srq *srq,
                                              struct rdmux_request *requests, size_t count)
{
    (void)srq;
    for (size_t i = 0; i < count; i++) {
        note_keys(&requests[i]);
        assert_true(device.shared_count < HELD_MAX);
        device.shared[device.shared_count++] = &requests[i];
    }
    return RDMUX_OK;
}

static void device_srq_close(struct rdmux_provider_srq *srq)
{
    (void)srq;
    device.shared_count = 0;
}

/* The fabric's tcp is this device from now on. */
static void make_device(struct rdmux_fabric *fabric, uint32_t flags, uint64_t max_message)
{
    memset(&device, 0, sizeof(device));
    device.max_message = max_message;
    for (size_t i = 0; i < fabric->registry.count; i++) {
        struct rdmux_provider_entry *entry = &fabric->registry.entries[i];
        if (strcmp(entry->name, "tcp") == 0) {
            device.tcp = entry->ops;
            entry->ops = &device.ops;
        }
    }
    if (device.tcp == NULL) {
        fail_msg("there is no tcp");
        return;
    }
    device.ops = *device.tcp;
    device.ops.flags = flags;
    device.ops.probe = device_probe;
    device.ops.mr_register = device_mr_register;
    device.ops.mr_deregister = device_mr_deregister;
    device.ops.ep_open = device_ep_open;
    device.ops.post = device_post;
    device.ops.poll = device_poll;
    device.ops.doorbell = device_doorbell;
    device.ops.post_recv = device_post_recv;
    device.ops.srq_post_recv = device_srq_post_recv;
    device.ops.srq_close = device_srq_close;
}

/* a has the device; b, which has plain tcp, exports a region of this length. */
struct scene {
    struct pair pair;
    struct rdmux_mr *mr;
    struct rdmux_remote *remote;
};

static void finish_scene(struct scene *scene, const struct rdmux_ep_attr *attr, size_t length)
{
    connect_more(&scene->pair, attr, &scene->pair.a, &scene->pair.b);
    CHECK_OK(rdmux_mr_alloc(scene->pair.fabric_b, length,
                            RDMUX_ACCESS_REMOTE_READ | RDMUX_ACCESS_REMOTE_WRITE |
                                RDMUX_ACCESS_REMOTE_ATOMIC,
                            &scene->mr));
    scene->remote = import_region(scene->pair.a, scene->mr);
    alarm(HANG_S);
}

static void set_scene(struct scene *scene, uint32_t flags, uint64_t max_message, size_t length,
                      uint32_t fabric_flags)
{
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    attr.max_send = max_message != 0 ? max_message : attr.max_send;
    attr.max_recv = attr.max_send;
    memset(scene, 0, sizeof(*scene));
    open_sides(&scene->pair, "tcp", fabric_flags, 0);
    make_device(scene->pair.fabric_a, flags, max_message);
    finish_scene(scene, &attr, length);
}

static void set_list_scene(struct scene *scene, uint32_t flags, uint32_t max_sge, size_t length)
{
    memset(scene, 0, sizeof(*scene));
    open_sides(&scene->pair, "tcp", 0, 0);
    make_device(scene->pair.fabric_a, flags, 0);
    device.max_sge = max_sge;
    finish_scene(scene, NULL, length);
}

static void clear_scene(struct scene *scene)
{
    alarm(0);
    CHECK_OK(rdmux_ep_close(scene->pair.a));
    CHECK_OK(rdmux_ep_close(scene->pair.b));
    scene->pair.a = NULL;
    scene->pair.b = NULL;
    rdmux_mr_deregister(scene->mr);
    close_pair(&scene->pair);
    assert_int_equal(device.registrations, 0);
    assert_false(device.keyless);
    assert_false(device.is_overlong);
    assert_false(device.is_exposed);
}

/* Both sides make progress, and nobody takes an entry, until all that a posted is done. */
static void progress_until_done(struct pair *pair)
{
    uint64_t until = now_ms() + PATIENT_MS;
    while (!rdmux_ep_done_before(pair->a, pair->a->send.head)) {
        assert_true(now_ms() < until);
        assert_int_equal(rdmux_cq_poll(pair->cq_a, NULL, 0), 0);
        assert_int_equal(rdmux_cq_poll(pair->cq_b, NULL, 0), 0);
    }
}

/* ----------------------------------------------------------------------------------------- keys */

/* What a fenced request sends is there, although nobody has taken the read's entry. Of a read without
 * a copy it would be the device's to order the two. */
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

/* A region that the peer's device may not write is read into through a key of the core's; one that
 * it may write, as it is. */
static void a_device_gets_no_right_to_a_region_that_is_no_sink(void **state)
{
    (void)state;
    enum { LENGTH = 3 * BOUNCED };
    static const size_t lengths[] = { 1, 1000, LENGTH };
    static const uint32_t accesses[] = { RDMUX_ACCESS_LOCAL_WRITE,
                                         RDMUX_ACCESS_LOCAL_WRITE | RDMUX_ACCESS_READ_SINK };
    struct scene scene;
    memset(&scene, 0, sizeof(scene));
    open_sides(&scene.pair, "tcp", 0, 0);
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

/* More than fits into the memory for copies at a time, of which nobody has to hear. */
static void silent_requests_make_room_for_those_behind_them(void **state)
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

/* What was read goes on, although nobody has taken the read's entry. */
static void a_fenced_request_sends_what_was_read_before_it(void **state)
{
    (void)state;
    check_fence(RDMUX_PROVIDER_LOCAL_KEYS);
}

static void the_same_on_a_device_with_fences(void **state)
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

static void a_receive_that_nothing_met_is_left_alone(void **state)
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

/* The second request has to wait for its key, the first one does not. */
static void a_request_that_waits_keeps_none_before_it(void **state)
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

static void everything_works_without_the_threads(void **state)
{
    (void)state;
    struct scene scene;
    set_scene(&scene, RDMUX_PROVIDER_LOCAL_KEYS, 0, BOUNCED,
              RDMUX_FABRIC_NO_SERVICE_THREAD | RDMUX_FABRIC_NO_WORKER_THREAD);
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
static void a_very_long_write_goes_in_pieces(void **state)
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

/* However short a peer says that messages are. */
static void an_atomic_stays_whole(void **state)
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

static void inline_bytes_stay_inline_in_pieces(void **state)
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

/* Half of it may be at the peer. */
static void a_request_of_which_pieces_are_given_is_in_doubt(void **state)
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
    scene.pair.a->in_doubt = true;
    rdmux_provider_failed(device.path, RDMUX_DENIED, "device: the peer refused something");
    assert_ptr_equal(expect_entry(scene.pair.cq_a, RDMUX_WC_WRITE, RDMUX_OUTCOME_UNKNOWN).context,
                     CONTEXT(1));
    assert_ptr_equal(expect_entry(scene.pair.cq_a, RDMUX_WC_WRITE, RDMUX_FLUSHED).context,
                     CONTEXT(2));
    expect_entry(scene.pair.cq_a, RDMUX_WC_DISCONNECTED, RDMUX_DENIED);
    clear_scene(&scene);
}

/* --------------------------------------------------------------------------------------- lists */

enum { LIST_MAX = 4, PIECE_MAX = 30 * 1000 };

/* A list of LIST_MAX pieces of one length, not adjacent. */
struct list {
    uint8_t memory[LIST_MAX][PIECE_MAX + 1];
    struct rdmux_mr *mr;
    struct rdmux_sge sges[LIST_MAX];
    uint64_t length;
};

/* with_region: so many pieces have one. */
static void make_list(struct list *list, struct rdmux_fabric *fabric, size_t piece, uint8_t first,
                      size_t with_region)
{
    CHECK_OK(rdmux_mr_register(fabric, list->memory, sizeof(list->memory), RDMUX_ACCESS_LOCAL_WRITE,
                               &list->mr));
    for (size_t i = 0; i < LIST_MAX; i++) {
        memset(list->memory[i], (int)(first + i), sizeof(list->memory[i]));
        list->sges[i] = (struct rdmux_sge){ list->memory[i], piece,
                                            i < with_region ? list->mr : NULL };
    }
    list->length = LIST_MAX * piece;
}

static void check_list(const struct list *list, uint8_t first)
{
    for (size_t i = 0; i < LIST_MAX; i++) {
        const uint8_t *bytes = list->memory[i];
        for (size_t at = 0; at < list->sges[i].length; at++) {
            assert_int_equal(bytes[at], first + i);
        }
    }
}

static void post_list(struct rdmux_ep *ep, struct list *list, uint32_t op, uint32_t flags,
                      struct rdmux_remote *remote)
{
    struct rdmux_wr wr = {
        .op = op, .flags = flags, .sges = list->sges, .sge_count = LIST_MAX, .remote = remote
    };
    CHECK_OK(op == RDMUX_OP_RECV ? rdmux_post_recv(ep, &wr, 1, NULL) : rdmux_post(ep, &wr, 1, NULL));
}

/* A device that takes two pieces gets lists of four; the endpoint has fences of its own kind. */
static void check_long_lists(uint32_t fence, size_t piece)
{
    static struct list from;
    static struct list to;
    struct scene scene;
    struct rdmux_fabric *fabric;
    const size_t half = (size_t)LIST_MAX * piece;
    set_list_scene(&scene, RDMUX_PROVIDER_LOCAL_KEYS | fence, 2, 2 * half);
    fabric = scene.pair.fabric_a;
    uint8_t *there = rdmux_mr_addr(scene.mr);
    make_list(&from, fabric, piece, 10, 2);
    make_list(&to, fabric, piece, 50, LIST_MAX);

    post_list(scene.pair.a, &from, RDMUX_OP_WRITE, RDMUX_PLACED, scene.remote);
    expect_entry(scene.pair.cq_a, RDMUX_WC_WRITE, RDMUX_OK);
    for (size_t i = 0; i < half; i++) {
        assert_int_equal(there[i], 10 + i / piece);
    }

    /* The fenced one sends what the one before it reads, before anybody takes an entry. */
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

    /* The same with a fenced one that the device takes as it is, in one batch. */
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
    set_list_scene(&scene, RDMUX_PROVIDER_LOCAL_KEYS, 2, 8);
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

/* Keeps the worker from what was given to it later. */
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

/* The worker has the list before it when the endpoint is closed, and the bytes are gone. */
static void bytes_of_a_list_are_free_once_the_endpoint_is_closed(void **state)
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
    set_list_scene(&scene, RDMUX_PROVIDER_LOCAL_KEYS, 2, size);
    CHECK_OK(rdmux_write(scene.pair.a, bytes, 1000, NULL, scene.remote, 0, NULL, 0));
    expect_entry(scene.pair.cq_a, RDMUX_WC_WRITE, RDMUX_OK); /* the memory for copies is there */
    send_worker_to(&gate, scene.pair.fabric_a, 0);
    struct rdmux_wr wr = {
        .op = RDMUX_OP_WRITE, .sges = sges, .sge_count = LIST_MAX, .remote = scene.remote
    };
    CHECK_OK(rdmux_post(scene.pair.a, &wr, 1, NULL));
    assert_int_equal(scene.pair.a->send.records[1].keys, RDMUX_KEYS_ASKED);
    send_worker_to(&behind, scene.pair.fabric_a, 1);
    CHECK_OK(rdmux_ep_close(scene.pair.a));
    scene.pair.a = NULL;
    assert_int_equal(mprotect(bytes, size, PROT_NONE), 0); /* whoever looks is caught */
    assert_int_equal(sem_post(&gate.open), 0);
    while (sem_wait(&behind.passed) != 0) {
    }
    assert_int_equal(munmap(bytes, size), 0);
    clear_scene(&scene);
}

/* Nobody could help, so the wish itself is refused, and the text says which. */
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
    while (a->phase == RDMUX_PHASE_SETUP) {
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

/* -------------------------------------------------------------------------------------- the end */

/* The entries are taken one by one, so that the failure was told before the endpoint knows. */
static void no_success_follows_a_failure(void **state)
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

static void a_shutdown_whose_flush_failed_is_none(void **state)
{
    (void)state;
    struct scene scene;
    set_scene(&scene, 0, 0, 8, 0);
    device.flush_fails = true;
    CHECK_STATUS(rdmux_ep_shutdown(scene.pair.a, PATIENT_MS), RDMUX_PEER_GONE);
    clear_scene(&scene);
}

/* The device says that the flush failed, and nothing of the path. */
static void a_shutdown_whose_flush_alone_failed_is_none(void **state)
{
    (void)state;
    struct scene scene;
    set_scene(&scene, 0, 0, 8, 0);
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
    assert_true(rounds > 10); /* no call waits for what the peer may still say */
    clear_scene(&scene);
}

/* ------------------------------------------------------------------------------ shared receives */

/* An endpoint has ended with a message that nobody took, and the SRQ goes to another path. */
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
        rdmux_provider_received(b[0]->path, device.shared[0], RDMUX_OK, RDMUX_WC_RECV,
                                sizeof(MESSAGE), 0, 0);
        CHECK_OK(rdmux_ep_close(a[0]));
        uint64_t until = now_ms() + PATIENT_MS;
        while (b[0]->phase != RDMUX_PHASE_ENDED) {
            assert_true(now_ms() < until);
            assert_int_equal(rdmux_cq_poll(pair.cq_b, NULL, 0), 0);
        }
    }
    assert_null(srq->device);
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

/* One that the device does not take as it is goes through memory of ours, or is refused. */
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
    rdmux_provider_received(b->path, device.shared[0], RDMUX_OK, RDMUX_WC_RECV, list.length, 0, 0);
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

/* --------------------------------------------------------------------------------------- memory */

/* Connects, asking for keys if that went well. Returns whether everything did. */
static bool connect_short_of_memory(struct pair *pair, struct rdmux_fabric *fabric,
                                    struct rdmux_cq *cq, struct rdmux_ep **a)
{
    static uint8_t bytes[2 * BOUNCED];
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    struct rdmux_ep *b = NULL;
    struct rdmux_wc wc = { .opcode = 0 };
    attr.max_send = SHORT;
    attr.max_recv = SHORT;
    enum rdmux_status status = rdmux_connect(fabric, cq, pair->address, &attr, 0, a);
    uint64_t until = now_ms() + PATIENT_MS;
    while (status == RDMUX_IN_PROGRESS && wc.opcode != RDMUX_WC_CONNECTED) {
        assert_true(now_ms() < until);
        enum rdmux_status accepted = b == NULL
                                         ? rdmux_accept(pair->listener, pair->cq_b, &attr, 1, &b)
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
    return connected;
}

/* Whichever allocation of the connecting side fails, nothing is left. */
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
        cmocka_unit_test(silent_requests_make_room_for_those_behind_them),
        cmocka_unit_test(a_fenced_request_sends_what_was_read_before_it),
        cmocka_unit_test(the_same_on_a_device_with_fences),
        cmocka_unit_test(a_receive_that_cannot_be_registered_ends_the_endpoint),
        cmocka_unit_test(a_receive_that_nothing_met_is_left_alone),
        cmocka_unit_test(a_request_that_waits_keeps_none_before_it),
        cmocka_unit_test(everything_works_without_the_threads),
        cmocka_unit_test(a_very_long_write_goes_in_pieces),
        cmocka_unit_test(an_atomic_stays_whole),
        cmocka_unit_test(inline_bytes_stay_inline_in_pieces),
        cmocka_unit_test(a_request_of_which_pieces_are_given_is_in_doubt),
        cmocka_unit_test(short_lists_of_too_many_pieces_are_copied),
        cmocka_unit_test(long_lists_of_too_many_pieces_are_gathered),
        cmocka_unit_test(messages_have_lists_of_any_length),
        cmocka_unit_test(bytes_of_a_list_are_free_once_the_endpoint_is_closed),
        cmocka_unit_test(a_device_that_needs_no_keys_is_not_asked_for_longer_lists),
        cmocka_unit_test(no_success_follows_a_failure),
        cmocka_unit_test(a_shutdown_whose_flush_failed_is_none),
        cmocka_unit_test(a_shutdown_whose_flush_alone_failed_is_none),
        cmocka_unit_test(a_shared_receive_outlives_the_device),
        cmocka_unit_test(a_shared_receive_has_a_list_of_any_length),
        cmocka_unit_test(a_failed_allocation_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
