/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* rdmux_ep_move(): an endpoint changes its cq. Endpoint b moves from cq_b to another cq, on every
 * path that can. */
#include "api/core/failover.h"
#include "api/progress/cq_owner.h"
#include "api/setup/setup.h"
#include "negotiation/control_channel.h"
#include "negotiation/reconnect_proof.h"
#include "tests/unit/device_scene.h"

#include <pthread.h>
#include <stdatomic.h>

enum { MESSAGES = 40 };

static const char *const paths[] = { "shm", "tcp" };

/* A pair over one path, and a second cq of b's fabric. */
struct move {
    struct pair pair;
    struct rdmux_cq *to;
};

static void open_move_as(struct move *move, const char *path, const struct rdmux_ep_attr *attr)
{
    open_pair(&move->pair, path, attr);
    move->to = create_cq(move->pair.fabric_b);
}

static void open_move(struct move *move, const char *path)
{
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    attr.send_depth = attr.recv_depth = MESSAGES;
    open_move_as(move, path, &attr);
}

static void close_move(struct move *move)
{
    CHECK_OK(rdmux_ep_close(move->pair.b));
    move->pair.b = NULL;
    CHECK_OK(rdmux_cq_destroy(move->to));
    close_pair(&move->pair);
}

static void expect_moved(struct rdmux_cq *cq, const struct rdmux_ep *ep)
{
    struct rdmux_wc wc = expect_entry(cq, RDMUX_WC_MOVED, RDMUX_OK);
    assert_ptr_equal(wc.ep, ep);
    assert_null(wc.context);
    assert_int_equal(wc.length, 0);
}

static void expect_no_entry(struct rdmux_cq *cq)
{
    struct rdmux_wc wc;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(rdmux_cq_poll(cq, &wc, 1), 0);
    }
}

static void expect_received(struct rdmux_cq *cq, const struct rdmux_ep *ep, uint64_t number)
{
    struct rdmux_wc wc = expect_entry(cq, RDMUX_WC_RECV, RDMUX_OK);
    assert_ptr_equal(wc.ep, ep);
    assert_ptr_equal(wc.context, CONTEXT(number));
    assert_int_equal(wc.length, sizeof(number));
}

/* ------------------------------------------------------------------------------- what comes along */

static void a_moved_endpoint_goes_on_and_its_old_cq_may_end(void **state)
{
    (void)state;
    for (size_t i = 0; i < RDMUX_COUNT_OF(paths); i++) {
        struct move move;
        open_move(&move, paths[i]);
        check_messages(&move.pair);
        CHECK_OK(rdmux_ep_move(move.pair.b, move.to));
        CHECK_OK(rdmux_cq_destroy(move.pair.cq_b)); /* at once: the endpoint has left it */
        expect_moved(move.to, move.pair.b);
        move.pair.cq_b = move.to;
        move.to = NULL;
        check_messages(&move.pair);
        expect_no_entry(move.pair.cq_b);
        close_move(&move);
    }
}

/* Messages that have arrived before the move, and more than one poll takes. */
static void entries_not_polled_follow_MOVED_in_their_order(void **state)
{
    (void)state;
    for (size_t i = 0; i < RDMUX_COUNT_OF(paths); i++) {
        static uint64_t into[MESSAGES];
        struct move move;
        open_move(&move, paths[i]);
        for (uint64_t n = 0; n < MESSAGES; n++) {
            CHECK_OK(rdmux_recv(move.pair.b, &into[n], sizeof(into[n]), NULL, CONTEXT(n)));
        }
        for (uint64_t n = 0; n < MESSAGES; n++) {
            uint32_t flags = n + 1 < MESSAGES ? RDMUX_UNSIGNALED : RDMUX_PLACED;
            CHECK_OK(rdmux_send(move.pair.a, &n, sizeof(n), NULL, NULL, RDMUX_INLINE | flags));
        }
        (void)expect_entry(move.pair.cq_a, RDMUX_WC_SEND, RDMUX_OK); /* they are in the receives */
        expect_received(move.pair.cq_b, move.pair.b, 0);
        CHECK_OK(rdmux_ep_move(move.pair.b, move.to));
        expect_no_entry(move.pair.cq_b);
        expect_moved(move.to, move.pair.b);
        for (uint64_t n = 1; n < MESSAGES; n++) {
            expect_received(move.to, move.pair.b, n);
        }
        for (uint64_t n = 0; n < MESSAGES; n++) {
            assert_int_equal(into[n], n);
        }
        expect_no_entry(move.to);
        close_move(&move);
    }
}

/* Sends that wait for the peer's receives, a full queue, and the WRITABLE that was asked for. */
static void requests_under_way_complete_at_the_new_cq(void **state)
{
    (void)state;
    for (size_t i = 0; i < RDMUX_COUNT_OF(paths); i++) {
        static uint8_t big[MESSAGES][20000]; /* more than a path can keep by itself */
        static uint8_t into[MESSAGES][sizeof(big[0])];
        struct move move;
        open_move(&move, paths[i]);
        struct pair *pair = &move.pair;
        for (uint64_t n = 0; n < MESSAGES; n++) {
            memset(big[n], (int)(n + 1), sizeof(big[n]));
            CHECK_OK(rdmux_send(pair->b, big[n], sizeof(big[n]), NULL, CONTEXT(n), 0));
        }
        CHECK_STATUS(rdmux_send(pair->b, big[0], 1, NULL, NULL, 0), RDMUX_AGAIN);
        CHECK_OK(rdmux_ep_move(pair->b, move.to));
        expect_moved(move.to, pair->b);
        for (uint64_t n = 0; n < MESSAGES; n++) {
            CHECK_OK(rdmux_recv(pair->a, into[n], sizeof(into[n]), NULL, CONTEXT(n)));
        }
        bool was_writable = false;
        for (uint64_t n = 0; n < MESSAGES || !was_writable;) {
            struct rdmux_wc wc = next_entry(move.to);
            assert_ptr_equal(wc.ep, pair->b);
            assert_int_equal(wc.status, RDMUX_OK);
            if (wc.opcode == RDMUX_WC_WRITABLE) {
                assert_false(was_writable);
                was_writable = true;
            } else {
                assert_int_equal(wc.opcode, RDMUX_WC_SEND);
                assert_ptr_equal(wc.context, CONTEXT(n));
                n++;
            }
        }
        for (uint64_t n = 0; n < MESSAGES; n++) {
            struct rdmux_wc wc = expect_entry(pair->cq_a, RDMUX_WC_RECV, RDMUX_OK);
            assert_ptr_equal(wc.context, CONTEXT(n));
            assert_int_equal(wc.length, sizeof(big[n]));
            assert_memory_equal(into[n], big[n], sizeof(big[n]));
        }
        expect_no_entry(pair->cq_b);
        close_move(&move);
    }
}

static void imports_and_exports_come_along(void **state)
{
    (void)state;
    for (size_t i = 0; i < RDMUX_COUNT_OF(paths); i++) {
        struct move move;
        struct rdmux_mr *of_a = NULL;
        struct rdmux_mr *of_b = NULL;
        uint64_t word = 0;
        const uint32_t access = RDMUX_ACCESS_REMOTE_READ | RDMUX_ACCESS_REMOTE_WRITE |
                                RDMUX_ACCESS_REMOTE_ATOMIC;
        open_move(&move, paths[i]);
        struct pair *pair = &move.pair;
        CHECK_OK(rdmux_mr_alloc(pair->fabric_a, 64, access, &of_a));
        CHECK_OK(rdmux_mr_alloc(pair->fabric_b, 64, access, &of_b));
        struct rdmux_remote *at_a = import_region(pair->a, of_b);
        struct rdmux_remote *at_b = import_region(pair->b, of_a);
        CHECK_OK(rdmux_ep_move(pair->b, move.to));
        expect_moved(move.to, pair->b);
        CHECK_OK(rdmux_fetch_add(pair->b, &word, NULL, at_b, 8, 5, NULL, 0));
        (void)expect_entry(move.to, RDMUX_WC_FETCH_ADD, RDMUX_OK);
        CHECK_OK(rdmux_fetch_add(pair->a, &word, NULL, at_a, 8, 7, NULL, 0));
        (void)expect_entry(pair->cq_a, RDMUX_WC_FETCH_ADD, RDMUX_OK);
        assert_int_equal(((uint64_t *)rdmux_mr_addr(of_a))[1], 5);
        assert_int_equal(((uint64_t *)rdmux_mr_addr(of_b))[1], 7);

        CHECK_OK(rdmux_mr_revoke(of_b)); /* the importer is asked at the new cq */
        CHECK_STATUS(rdmux_write(pair->a, &word, sizeof(word), NULL, at_a, 0, NULL, 0),
                     RDMUX_DENIED);
        check_message(pair->a, pair->cq_a, pair->b, move.to, 5);
        rdmux_mr_deregister(of_b);
        rdmux_mr_deregister(of_a);
        close_move(&move);
    }
}

static void an_ended_endpoint_brings_its_last_entries(void **state)
{
    (void)state;
    for (size_t i = 0; i < RDMUX_COUNT_OF(paths); i++) {
        struct move move;
        struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
        uint64_t word = 0;
        open_move(&move, paths[i]);
        CHECK_OK(rdmux_recv(move.pair.b, &word, sizeof(word), NULL, CONTEXT(1)));
        CHECK_OK(rdmux_ep_close(move.pair.a));
        move.pair.a = NULL;
        enum rdmux_status status = RDMUX_AGAIN;
        for (uint64_t until = now_ms() + PATIENT_MS; info.state != RDMUX_EP_ENDED;) {
            assert_true(now_ms() < until);
            assert_int_equal(rdmux_cq_poll(move.pair.cq_b, NULL, 0), 0);
            CHECK_OK(rdmux_ep_info(move.pair.b, &info));
        }
        for (uint64_t until = now_ms() + PATIENT_MS; status == RDMUX_AGAIN;) { /* ending */
            assert_true(now_ms() < until);
            assert_int_equal(rdmux_cq_poll(move.pair.cq_b, NULL, 0), 0);
            status = rdmux_ep_move(move.pair.b, move.to);
        }
        CHECK_OK(status);
        expect_moved(move.to, move.pair.b);
        struct rdmux_wc wc = expect_entry(move.to, RDMUX_WC_RECV, RDMUX_FLUSHED);
        assert_ptr_equal(wc.context, CONTEXT(1));
        (void)expect_entry(move.to, RDMUX_WC_DISCONNECTED, RDMUX_PEER_GONE);
        close_move(&move);
    }
}

/* A shutdown that was not waited for ends at the new cq. */
static void a_shutdown_comes_along(void **state)
{
    (void)state;
    for (size_t i = 0; i < RDMUX_COUNT_OF(paths); i++) {
        struct move move;
        open_move(&move, paths[i]);
        CHECK_STATUS(rdmux_ep_shutdown(move.pair.b, 0), RDMUX_IN_PROGRESS);
        enum rdmux_status status = rdmux_ep_move(move.pair.b, move.to);
        if (status == RDMUX_OK) { /* AGAIN: the peer has been so fast that the end has come */
            expect_moved(move.to, move.pair.b);
            (void)expect_entry(move.to, RDMUX_WC_DISCONNECTED, RDMUX_OK);
        } else {
            CHECK_STATUS(status, RDMUX_AGAIN);
        }
        (void)expect_entry(move.pair.cq_a, RDMUX_WC_DISCONNECTED, RDMUX_OK);
        close_move(&move);
    }
}

static void a_move_to_the_same_cq_is_an_event(void **state)
{
    (void)state;
    struct move move;
    open_move(&move, "shm,tcp");
    CHECK_OK(rdmux_ep_move(move.pair.b, move.pair.cq_b));
    CHECK_STATUS(rdmux_ep_move(move.pair.b, move.to), RDMUX_INVALID); /* it is on its way */
    CHECK_STATUS(rdmux_ep_close(move.pair.b), RDMUX_INVALID);
    expect_moved(move.pair.cq_b, move.pair.b);
    check_messages(&move.pair);
    close_move(&move);
}

/* Over an adopted socket the control channel and the path share a descriptor. */
static void an_endpoint_of_an_adopted_socket_moves(void **state)
{
    (void)state;
    struct move move;
    int sockets[2];
    struct rdmux_wc wc;
    memset(&move, 0, sizeof(move));
    open_sides(&move.pair, "tcp", 0, 0);
    move.to = create_cq(move.pair.fabric_b);
    struct pair *pair = &move.pair;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
    CHECK_STATUS(
        rdmux_adopt(pair->fabric_a, pair->cq_a, sockets[0], RDMUX_ROLE_CONNECT, NULL, 0, &pair->a),
        RDMUX_IN_PROGRESS);
    CHECK_OK(rdmux_adopt(pair->fabric_b, pair->cq_b, sockets[1], RDMUX_ROLE_ACCEPT, NULL,
                         PATIENT_MS, &pair->b));
    wc = expect_entry(pair->cq_a, RDMUX_WC_CONNECTED, RDMUX_OK);
    assert_ptr_equal(wc.ep, pair->a);
    for (uint32_t round = 0; round < 4; round++) {
        struct rdmux_cq *to = round % 2 == 0 ? move.to : pair->cq_b;
        CHECK_OK(rdmux_ep_move(pair->b, to));
        expect_moved(to, pair->b);
        check_message(pair->a, pair->cq_a, pair->b, to, round);
        check_message(pair->b, to, pair->a, pair->cq_a, round);
    }
    close_move(&move);
}

/* ------------------------------------------------------------------------------- who is not moved */

static void a_refused_move_changes_nothing(void **state)
{
    (void)state;
    struct move move;
    struct rdmux_srq_attr srq_attr = RDMUX_SRQ_ATTR_INIT;
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    struct rdmux_cq_attr small = RDMUX_CQ_ATTR_INIT;
    struct rdmux_cq *narrow = NULL;
    struct rdmux_srq *srq = NULL;
    struct rdmux_ep *a = NULL;
    struct rdmux_ep *b = NULL;
    struct rdmux_ep *early = NULL;
    open_move(&move, "shm,tcp");
    struct pair *pair = &move.pair;
    CHECK_STATUS(rdmux_ep_move(pair->b, pair->cq_a), RDMUX_INVALID); /* of another fabric */

    small.depth = 2 * MESSAGES - 1;
    CHECK_OK(rdmux_cq_create(pair->fabric_b, &small, &narrow));
    CHECK_STATUS(rdmux_ep_move(pair->b, narrow), RDMUX_NO_MEMORY);
    assert_int_equal(narrow->reserved, 0);
    CHECK_OK(rdmux_cq_destroy(narrow));

    CHECK_OK(rdmux_srq_create(pair->fabric_b, pair->cq_b, &srq_attr, &srq));
    attr.srq = srq;
    connect_as(pair, NULL, &attr, &a, &b);
    CHECK_STATUS(rdmux_ep_move(b, move.to), RDMUX_INVALID);
    assert_non_null(strstr(rdmux_last_error(), "SRQ"));
    CHECK_OK(rdmux_ep_close(b));
    CHECK_OK(rdmux_ep_close(a));
    CHECK_OK(rdmux_srq_destroy(srq));

    CHECK_STATUS(rdmux_connect(pair->fabric_b, pair->cq_b, pair->address, NULL, 0, &early),
                 RDMUX_IN_PROGRESS);
    CHECK_STATUS(rdmux_ep_move(early, move.to), RDMUX_AGAIN);
    CHECK_OK(rdmux_ep_close(early));
    CHECK_STATUS(rdmux_ep_move(early, move.to), RDMUX_INVALID); /* valid until the next poll */

    assert_int_equal(move.to->reserved, 0);
    assert_int_equal(move.to->domains_reserved, 0);
    expect_no_entry(move.to);
    check_messages(pair);
    close_move(&move);
}

static void room_moves_with_the_endpoint(void **state)
{
    (void)state;
    struct move move;
    open_move(&move, "shm,tcp");
    uint64_t reserved = move.pair.cq_b->reserved;
    assert_int_equal(reserved, 2 * MESSAGES);
    CHECK_OK(rdmux_ep_move(move.pair.b, move.to));
    assert_int_equal(move.pair.cq_b->reserved, 0);
    CHECK_STATUS(rdmux_cq_destroy(move.to), RDMUX_INVALID); /* an endpoint is on its way */
    expect_moved(move.to, move.pair.b);
    assert_int_equal(move.to->reserved, reserved);
    CHECK_STATUS(rdmux_cq_destroy(move.to), RDMUX_INVALID);
    CHECK_OK(rdmux_ep_move(move.pair.b, move.pair.cq_b));
    expect_moved(move.pair.cq_b, move.pair.b);
    assert_int_equal(move.to->reserved, 0);
    assert_int_equal(move.pair.cq_b->reserved, reserved);
    check_messages(&move.pair);
    close_move(&move);
}

/* ----------------------------------------------------------------- paths that are bound to their cq */

/* Endpoint a has a device that cannot leave its cq, and failover. Its fabric has no service
 * thread. */
static struct rdmux_ep_attr open_bound_sides(struct scene *scene, uint32_t flags_of_b)
{
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    attr.failover = RDMUX_FAILOVER_ON;
    attr.send_depth = attr.recv_depth = MESSAGES;
    memset(scene, 0, sizeof(*scene));
    open_sides(&scene->pair, "tcp", RDMUX_FABRIC_NO_SERVICE_THREAD, flags_of_b);
    make_device(scene->pair.fabric_a, 0, 0);
    device.ops.ep_leave = NULL;
    device.ops.ep_enter = NULL;
    return attr;
}

static struct rdmux_cq *open_bound(struct scene *scene)
{
    const struct rdmux_ep_attr attr = open_bound_sides(scene, 0);
    finish_scene(scene, &attr, 64);
    return create_cq(scene->pair.fabric_a);
}

/* Neither side has a service thread: only calls of the test progress a side. */
static struct rdmux_cq *open_bound_without_threads(struct scene *scene)
{
    const struct rdmux_ep_attr attr = open_bound_sides(scene, RDMUX_FABRIC_NO_SERVICE_THREAD);
    connect_more(&scene->pair, &attr, &scene->pair.a, &scene->pair.b);
    alarm(HANG_S);
    return create_cq(scene->pair.fabric_a);
}

/* Both fabrics have the device. */
static void bind_paths(const struct pair *pair)
{
    make_device(pair->fabric_b, 0, 0);
    const struct rdmux_provider_ops *tcp = device.tcp;
    for (size_t i = 0; i < pair->fabric_a->registry.count; i++) {
        struct rdmux_provider_entry *entry = &pair->fabric_a->registry.entries[i];
        if (entry->ops == tcp) {
            entry->ops = &device.ops;
        }
    }
    device.ops.ep_leave = NULL;
    device.ops.ep_enter = NULL;
}

static void clear_bound(struct scene *scene, struct rdmux_cq *to)
{
    CHECK_OK(rdmux_cq_destroy(scene->pair.cq_a)); /* the endpoint has left it */
    scene->pair.cq_a = to;
    clear_scene(scene);
}

/* Half of the messages have no receive yet. The other side does nothing for the move. */
static void with_failover_a_bound_path_is_opened_anew(void **state)
{
    (void)state;
    static uint64_t into[MESSAGES];
    struct scene scene;
    struct rdmux_cq *to = open_bound(&scene);
    struct pair *pair = &scene.pair;
    for (uint64_t n = 0; n < MESSAGES / 2; n++) {
        CHECK_OK(rdmux_recv(pair->b, &into[n], sizeof(into[n]), NULL, CONTEXT(n)));
    }
    for (uint64_t n = 0; n < MESSAGES; n++) {
        CHECK_OK(rdmux_send(pair->a, &n, sizeof(n), NULL, CONTEXT(n), RDMUX_INLINE));
    }
    CHECK_OK(rdmux_ep_move(pair->a, to));
    CHECK_STATUS(rdmux_ep_move(pair->a, to), RDMUX_INVALID); /* it is on its way */
    expect_moved(to, pair->a);
    expect_no_entry(pair->cq_a);
    for (uint64_t n = MESSAGES / 2; n < MESSAGES; n++) {
        CHECK_OK(rdmux_recv(pair->b, &into[n], sizeof(into[n]), NULL, CONTEXT(n)));
    }
    unsigned changes = 0;
    for (uint64_t n = 0; n < MESSAGES || changes == 0;) {
        struct rdmux_wc wc = next_entry(to);
        assert_int_equal(wc.status, RDMUX_OK);
        if (wc.opcode == RDMUX_WC_PATH_CHANGED) {
            changes++;
            continue;
        }
        assert_int_equal(wc.opcode, RDMUX_WC_SEND);
        assert_ptr_equal(wc.context, CONTEXT(n));
        n++;
    }
    assert_int_equal(changes, 1);
    changes = 0;
    for (uint64_t n = 0; n < MESSAGES || changes == 0;) {
        struct rdmux_wc wc = next_entry(pair->cq_b);
        assert_int_equal(wc.status, RDMUX_OK);
        if (wc.opcode == RDMUX_WC_PATH_CHANGED) {
            changes++;
            continue;
        }
        assert_int_equal(wc.opcode, RDMUX_WC_RECV);
        assert_ptr_equal(wc.context, CONTEXT(n));
        assert_int_equal(into[n], n);
        n++;
    }
    assert_int_equal(changes, 1);
    clear_bound(&scene, to);
}

static void no_atomic_becomes_unknown_where_a_path_is_opened_anew(void **state)
{
    (void)state;
    static uint64_t before[MESSAGES];
    struct scene scene;
    struct rdmux_cq *to = open_bound(&scene);
    for (uint64_t n = 0; n < MESSAGES; n++) {
        CHECK_OK(rdmux_fetch_add(scene.pair.a, &before[n], NULL, scene.remote, 8, 1, CONTEXT(n), 0));
    }
    CHECK_OK(rdmux_ep_move(scene.pair.a, to));
    expect_moved(to, scene.pair.a);
    for (uint64_t n = 0; n < MESSAGES;) {
        struct rdmux_wc wc = next_entry(to);
        assert_int_equal(wc.status, RDMUX_OK);
        if (wc.opcode == RDMUX_WC_FETCH_ADD) {
            assert_ptr_equal(wc.context, CONTEXT(n));
            assert_int_equal(before[n], n);
            n++;
        }
    }
    assert_int_equal(((uint64_t *)rdmux_mr_addr(scene.mr))[1], MESSAGES);
    clear_bound(&scene, to);
}

/* The move waits for a request that the device keeps. */
static void an_endpoint_that_ends_on_its_way_ends_at_its_new_cq(void **state)
{
    (void)state;
    struct scene scene;
    uint64_t word = 1;
    struct rdmux_cq *to = open_bound(&scene);
    device.conduct = HELD;
    CHECK_OK(rdmux_send(scene.pair.a, &word, sizeof(word), NULL, CONTEXT(1),
                        RDMUX_INLINE | RDMUX_NO_REPLAY));
    CHECK_OK(rdmux_ep_move(scene.pair.a, to));
    for (int i = 0; i < 5; i++) {
        expect_no_entry(to);
        expect_no_entry(scene.pair.cq_a);
    }
    CHECK_STATUS(rdmux_cq_destroy(to), RDMUX_INVALID);
    CHECK_STATUS(rdmux_cq_destroy(scene.pair.cq_a), RDMUX_INVALID);
    CHECK_OK(rdmux_ep_close(scene.pair.b));
    scene.pair.b = NULL;
    device.held_count = 0; /* it does not carry the request any more */
    device.conduct = CARRY;
    expect_moved(to, scene.pair.a);
    struct rdmux_wc wc = next_entry(to);
    assert_int_equal(wc.opcode, RDMUX_WC_SEND);
    assert_ptr_equal(wc.context, CONTEXT(1));
    assert_int_not_equal(wc.status, RDMUX_OK);
    (void)expect_entry(to, RDMUX_WC_DISCONNECTED, RDMUX_PEER_GONE);
    clear_bound(&scene, to);
}

/* Returns whether the endpoint has sent TRY, and waits for the answer. */
static bool has_tried(const struct rdmux_ep *ep)
{
    char stage[64];
    rdmux_ep_setup_stage(ep, stage, sizeof(stage));
    return strstr(stage, "waiting for READY") != NULL;
}

static bool has_new_path(struct rdmux_cq *cq)
{
    struct rdmux_wc wc;
    if (rdmux_cq_poll(cq, &wc, 1) == 0) {
        return false;
    }
    assert_int_equal(wc.opcode, RDMUX_WC_PATH_CHANGED);
    return true;
}

/* b has closed its endpoint, and its fabric refuses a reconnect. */
static void await_end(const struct pair *pair, struct rdmux_cq *cq_a)
{
    struct rdmux_wc wc;
    uint64_t until = now_ms() + PATIENT_MS;
    while (rdmux_cq_poll(cq_a, &wc, 1) == 0) {
        assert_true(now_ms() < until);
        CHECK_OK(rdmux_fabric_progress(pair->fabric_a));
        CHECK_OK(rdmux_fabric_progress(pair->fabric_b));
    }
    assert_int_equal(wc.opcode, RDMUX_WC_DISCONNECTED);
    assert_int_equal(wc.status, RDMUX_PEER_GONE);
}

static void await_new_paths(const struct pair *pair, struct rdmux_cq *cq_a, struct rdmux_cq *cq_b)
{
    bool is_new_at_a = false;
    bool is_new_at_b = false;
    uint64_t until = now_ms() + PATIENT_MS;
    while (!is_new_at_a || !is_new_at_b) {
        assert_true(now_ms() < until);
        CHECK_OK(rdmux_fabric_progress(pair->fabric_a));
        CHECK_OK(rdmux_fabric_progress(pair->fabric_b));
        is_new_at_a = has_new_path(cq_a) || is_new_at_a;
        is_new_at_b = has_new_path(cq_b) || is_new_at_b;
    }
}

/* What happens while the peer's frames wait for the new cq. */
enum meanwhile {
    NOTHING,
    PEER_CLOSES,
    CHANNEL_BREAKS, /* last: without OpenSSL it does not reconnect */
};

static bool can_reconnect(void)
{
    const uint8_t secret[RDMUX_SECRET_SIZE] = { 0 };
    uint8_t name[RDMUX_RECONNECT_NAME_SIZE];
    return rdmux_reconnect_name(secret, name);
}

/* Endpoint a loses its path while it leaves its cq. Returns when it is cut and still there, and MOVE
 * and TRY of its peer, unread, are in its control channel. */
static void meet_before_leaving(struct pair *pair, struct rdmux_cq *to)
{
    struct rdmux_wc wc;
    CHECK_OK(rdmux_ep_move(pair->a, to));
    assert_true(rdmux_cq_enter(pair->cq_a));
    rdmux_provider_failed(pair->a->path, RDMUX_IO, "broken by a test");
    rdmux_cq_leave(pair->cq_a);
    for (uint64_t until = now_ms() + PATIENT_MS; !rdmux_failover_is_cut(pair->a);) {
        assert_true(now_ms() < until);
        assert_int_equal(rdmux_cq_poll(pair->cq_a, &wc, 1), 0);
    }
    assert_ptr_equal(pair->a->cq, pair->cq_a);
    for (uint64_t until = now_ms() + PATIENT_MS; !has_tried(pair->b);) {
        assert_true(now_ms() < until);
        assert_int_equal(rdmux_cq_poll(pair->cq_b, &wc, 1), 0);
    }
}

/* The peer searches as soon as it knows both cuts: its MOVE and its TRY arrive together. */
static void frames_of_the_search_wait_for_the_new_cq(void **state)
{
    (void)state;
    const enum meanwhile last = can_reconnect() ? CHANNEL_BREAKS : PEER_CLOSES;
    for (enum meanwhile meanwhile = NOTHING; meanwhile <= last; meanwhile++) {
        struct scene scene;
        struct rdmux_cq *to = open_bound_without_threads(&scene);
        struct pair *pair = &scene.pair;
        meet_before_leaving(pair, to);
        if (meanwhile == PEER_CLOSES) {
            CHECK_OK(rdmux_ep_close(pair->b));
            pair->b = NULL;
        } else if (meanwhile == CHANNEL_BREAKS) {
            assert_int_equal(shutdown(rdmux_channel_socket(pair->b->channel), SHUT_RDWR), 0);
        }
        expect_moved(to, pair->a);
        expect_no_entry(pair->cq_a);
        if (meanwhile == PEER_CLOSES) {
            await_end(pair, to);
        } else {
            await_new_paths(pair, to, pair->cq_b);
            check_message(pair->a, to, pair->b, pair->cq_b, 4);
        }
        clear_bound(&scene, to);
    }
}

/* A device whose provider has not the operations, or has local keys. */
static void a_path_that_binds_its_cq_refuses(void **state)
{
    (void)state;
    static const uint32_t flags[] = { 0, RDMUX_PROVIDER_LOCAL_KEYS };
    for (size_t i = 0; i < RDMUX_COUNT_OF(flags); i++) {
        struct scene scene;
        set_scene(&scene, flags[i], 0, 8, 0);
        struct rdmux_cq *to = create_cq(scene.pair.fabric_a);
        if (flags[i] == 0) {
            device.ops.ep_leave = NULL;
            device.ops.ep_enter = NULL;
        }
        CHECK_STATUS(rdmux_ep_move(scene.pair.a, to), RDMUX_UNSUPPORTED);
        assert_non_null(strstr(rdmux_last_error(), "rdmux_listener_next"));
        device.ops.size = (uint32_t)offsetof(struct rdmux_provider_ops, ep_leave); /* older */
        CHECK_STATUS(rdmux_ep_move(scene.pair.a, to), RDMUX_UNSUPPORTED);
        check_message(scene.pair.a, scene.pair.cq_a, scene.pair.b, scene.pair.cq_b, 3);
        CHECK_OK(rdmux_cq_destroy(to));
        clear_scene(&scene);
    }
}

/* ------------------------------------------------------------------------------ moves and failures */

enum { CROSSED = 200, EVENTS_APART = 12, SEEDS = 2 };

/* One side of a pair with failover, whose endpoint goes to and fro between two cqs. */
struct crossed_side {
    struct rdmux_ep *ep;
    struct rdmux_cq *cqs[2];
    size_t at; /* index of the cq that the endpoint is on, or is about to leave */
    bool is_on_its_way;
    uint64_t posted;
    uint64_t sent;
    uint64_t received;
    uint64_t moves;
    uint64_t out[MESSAGES];
    uint64_t in[MESSAGES];
};

static void receive_next(struct crossed_side *side, uint64_t number)
{
    uint64_t *word = &side->in[number % MESSAGES];
    CHECK_OK(rdmux_recv(side->ep, word, sizeof(*word), NULL, CONTEXT(number)));
}

static void send_next(struct crossed_side *side)
{
    while (!side->is_on_its_way && side->posted < CROSSED &&
           side->posted - side->sent < MESSAGES / 2) {
        uint64_t *word = &side->out[side->posted % MESSAGES];
        *word = side->posted;
        CHECK_OK(rdmux_send(side->ep, word, sizeof(*word), NULL, CONTEXT(side->posted), 0));
        side->posted++;
    }
}

static void take_entry(struct crossed_side *side, const struct rdmux_wc *wc)
{
    assert_ptr_equal(wc->ep, side->ep);
    if (wc->opcode == RDMUX_WC_MOVED) {
        assert_true(side->is_on_its_way);
        side->is_on_its_way = false;
        side->at = 1 - side->at;
        return;
    }
    assert_false(side->is_on_its_way);
    if (wc->opcode == RDMUX_WC_PATH_CHANGED) {
        return;
    }
    assert_int_equal(wc->status, RDMUX_OK);
    if (wc->opcode == RDMUX_WC_SEND) {
        assert_ptr_equal(wc->context, CONTEXT(side->sent));
        side->sent++;
        return;
    }
    assert_int_equal(wc->opcode, RDMUX_WC_RECV);
    assert_ptr_equal(wc->context, CONTEXT(side->received));
    assert_int_equal(side->in[side->received % MESSAGES], side->received);
    side->received++;
    receive_next(side, side->received + MESSAGES - 1);
}

/* An endpoint on its way returns its entries at the next cq alone. */
static void progress_crossed(struct crossed_side *side)
{
    struct rdmux_wc wc;
    CHECK_OK(rdmux_fabric_progress(side->ep->fabric));
    const size_t old = side->at;
    if (side->is_on_its_way) {
        assert_int_equal(rdmux_cq_poll(side->cqs[old], &wc, 1), 0);
    }
    if (rdmux_cq_poll(side->cqs[side->is_on_its_way ? 1 - old : old], &wc, 1) == 1) {
        take_entry(side, &wc);
    }
    send_next(side);
}

static void move_crossed(struct crossed_side *side)
{
    if (side->is_on_its_way) {
        return;
    }
    enum rdmux_status status = rdmux_ep_move(side->ep, side->cqs[1 - side->at]);
    if (status != RDMUX_AGAIN) { /* failover is at work */
        CHECK_OK(status);
        side->is_on_its_way = true;
        side->moves++;
    }
}

/* The path fails on this side, if it has one. */
static void fail_crossed(struct crossed_side *side)
{
    struct rdmux_ep *ep = side->ep;
    assert_true(rdmux_cq_enter(ep->cq));
    if (ep->path != NULL && ep->phase == RDMUX_PHASE_READY && !rdmux_failover_is_moving(ep) &&
        ep->path->cq->cq == ep->cq) {
        rdmux_provider_failed(ep->path, RDMUX_IO, "broken by a test");
    }
    rdmux_cq_leave(ep->cq);
}

static void cause_event(struct crossed_side *a, struct crossed_side *b, unsigned event)
{
    switch (event % 6) {
    case 0:
        move_crossed(a);
        break;
    case 1:
        move_crossed(b);
        break;
    case 2:
        move_crossed(a);
        move_crossed(b);
        break;
    case 3:
        move_crossed(a);
        fail_crossed(b);
        break;
    case 4:
        move_crossed(b);
        fail_crossed(b);
        break;
    default:
        fail_crossed(a);
        move_crossed(a);
        break;
    }
}

static void begin_crossed(struct crossed_side *side, struct rdmux_ep *ep, struct rdmux_cq *cq)
{
    memset(side, 0, sizeof(*side));
    side->ep = ep;
    side->cqs[0] = cq;
    side->cqs[1] = create_cq(ep->fabric);
    for (uint64_t n = 0; n < MESSAGES; n++) {
        receive_next(side, n);
    }
}

static bool is_over(const struct crossed_side *side)
{
    return side->sent == CROSSED && side->received == CROSSED && !side->is_on_its_way;
}

static void run_crossed(struct crossed_side *a, struct crossed_side *b, uint32_t seed)
{
    uint64_t until = now_ms() + PATIENT_MS;
    for (uint64_t events = 1; !is_over(a) || !is_over(b);) {
        assert_true(now_ms() < until);
        progress_crossed(a);
        progress_crossed(b);
        if (a->received + b->received >= events * EVENTS_APART) {
            seed = seed * 1664525 + 1013904223;
            cause_event(a, b, seed >> 16);
            events++;
        }
    }
    assert_true(a->moves > 0 && b->moves > 0);
}

/* bound: the paths of both sides cannot leave their cqs. */
static void cross(const char *path, bool bound, uint32_t seed)
{
    static struct crossed_side a;
    static struct crossed_side b;
    struct pair pair;
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    attr.failover = RDMUX_FAILOVER_ON;
    attr.failover_attempts = 1000;
    attr.send_depth = attr.recv_depth = MESSAGES;
    open_sides(&pair, path, RDMUX_FABRIC_NO_SERVICE_THREAD, RDMUX_FABRIC_NO_SERVICE_THREAD);
    if (bound) {
        bind_paths(&pair);
    }
    connect_more(&pair, &attr, &pair.a, &pair.b);
    begin_crossed(&a, pair.a, pair.cq_a);
    begin_crossed(&b, pair.b, pair.cq_b);
    run_crossed(&a, &b, seed);
    CHECK_OK(rdmux_ep_close(pair.a));
    CHECK_OK(rdmux_ep_close(pair.b));
    pair.a = NULL;
    pair.b = NULL;
    CHECK_OK(rdmux_cq_destroy(a.cqs[1]));
    CHECK_OK(rdmux_cq_destroy(b.cqs[1]));
    close_pair(&pair);
}

/* Either side moves, or both at once, while the path works or has failed on either side. */
static void moves_and_failures_cross_without_loss(void **state)
{
    (void)state;
    for (uint32_t seed = 1; seed <= SEEDS; seed++) {
        cross("shm", false, seed);
        cross("tcp", false, seed);
        cross("tcp", true, seed);
    }
}

/* ------------------------------------------------------------------------------ memory runs short */

/* Returns whether the move, or the arrival, met the failed allocation. */
static bool move_with_failure(const char *path, long allocation)
{
    static struct meter meter;
    struct move move;
    memset(&meter, 0, sizeof(meter));
    memset(&move, 0, sizeof(move));
    struct pair *pair = &move.pair;
    pair->fabric_a = open_fabric(path, 0, NULL);
    pair->fabric_b = open_metered_fabric(path, RDMUX_FABRIC_NO_SERVICE_THREAD, NULL, &meter);
    pair->cq_a = create_cq(pair->fabric_a);
    pair->cq_b = create_cq(pair->fabric_b);
    move.to = create_cq(pair->fabric_b);
    pair->listener = listen_here(pair->fabric_b, NULL, pair->address);
    connect_more(pair, NULL, &pair->a, &pair->b);
    uint64_t word = 0;
    CHECK_OK(rdmux_recv(pair->b, &word, sizeof(word), NULL, CONTEXT(1)));

    atomic_store(&meter.left, allocation);
    enum rdmux_status status = rdmux_ep_move(pair->b, move.to);
    if (status == RDMUX_OK) {
        expect_moved(move.to, pair->b);
    } else {
        CHECK_STATUS(status, RDMUX_NO_MEMORY);
    }
    bool has_failed = atomic_exchange(&meter.left, 0) <= 0;

    struct rdmux_cq *at = status == RDMUX_OK ? move.to : pair->cq_b;
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    CHECK_OK(rdmux_ep_info(pair->b, &info));
    if (info.state == RDMUX_EP_ENDED) {
        CHECK_OK(status); /* a refused move has ended nothing */
        struct rdmux_wc wc = expect_entry(at, RDMUX_WC_RECV, RDMUX_FLUSHED);
        assert_ptr_equal(wc.context, CONTEXT(1));
        (void)expect_entry(at, RDMUX_WC_DISCONNECTED, RDMUX_NO_MEMORY);
        assert_true(has_failed);
    } else {
        uint64_t number = 4711;
        CHECK_OK(rdmux_send(pair->a, &number, sizeof(number), NULL, NULL,
                            RDMUX_INLINE | RDMUX_UNSIGNALED));
        struct rdmux_wc wc = expect_entry(at, RDMUX_WC_RECV, RDMUX_OK);
        assert_ptr_equal(wc.context, CONTEXT(1));
        assert_int_equal(word, number);
    }
    close_move(&move);
    assert_int_equal(meter.pieces, 0);
    return has_failed;
}

static void a_move_without_memory_fails_or_ends_the_endpoint(void **state)
{
    (void)state;
    for (size_t i = 0; i < RDMUX_COUNT_OF(paths); i++) {
        long allocation = 1;
        while (move_with_failure(paths[i], allocation)) {
            allocation++;
        }
        assert_true(allocation > 2); /* at least the mail and the new provider cq */
    }
}

/* --------------------------------------------------------------------------------------- threads */

struct sleeper {
    struct rdmux_cq *cq;
    struct rdmux_ep *ep;
    bool sleeps_on_descriptor;
};

static void *sleep_until_moved(void *argument)
{
    const struct sleeper *sleeper = argument;
    if (sleeper->sleeps_on_descriptor) {
        struct rdmux_wc wc;
        while (rdmux_cq_poll(sleeper->cq, &wc, 1) == 0) {
            if (rdmux_cq_arm(sleeper->cq) == RDMUX_OK) {
                struct pollfd fd = { .fd = rdmux_cq_fd(sleeper->cq), .events = POLLIN };
                assert_int_equal(poll(&fd, 1, PATIENT_MS), 1);
            }
        }
        assert_int_equal(wc.opcode, RDMUX_WC_MOVED);
        assert_ptr_equal(wc.ep, sleeper->ep);
    } else {
        expect_moved(sleeper->cq, sleeper->ep);
    }
    return NULL;
}

static void a_move_wakes_the_owner_of_the_new_cq(void **state)
{
    (void)state;
    for (size_t i = 0; i < RDMUX_COUNT_OF(paths); i++) {
        struct move move;
        open_move(&move, paths[i]);
        for (int round = 0; round < 20; round++) {
            struct rdmux_cq *from = round % 2 == 0 ? move.pair.cq_b : move.to;
            struct sleeper sleeper = { .cq = round % 2 == 0 ? move.to : move.pair.cq_b,
                                       .ep = move.pair.b,
                                       .sleeps_on_descriptor = round % 4 < 2 };
            pthread_t thread;
            assert_int_equal(pthread_create(&thread, NULL, sleep_until_moved, &sleeper), 0);
            if (round >= 10) {
                pause_ms(2); /* it sleeps by now; else it may be anywhere */
            }
            check_message(move.pair.a, move.pair.cq_a, move.pair.b, from, (uint32_t)round);
            CHECK_OK(rdmux_ep_move(move.pair.b, sleeper.cq));
            assert_int_equal(pthread_join(thread, NULL), 0);
        }
        close_move(&move);
    }
}

/* Two threads with a cq each send the endpoint to each other, and echo what they receive. */
enum { TURN = 25, ECHOES = 4000, SLOTS = 16 };

struct shards {
    struct rdmux_ep *ep;
    struct rdmux_cq *cqs[2];
    uint64_t words[SLOTS];
    /* The owner's alone, handed over by the move. */
    uint64_t received;
    uint64_t sent;
    _Atomic bool is_over;
};

struct shard {
    struct shards *shards;
    size_t index;
};

static void echo(struct shards *shards, const struct rdmux_wc *wc)
{
    assert_int_equal(wc->status, RDMUX_OK);
    assert_ptr_equal(wc->ep, shards->ep);
    if (wc->opcode == RDMUX_WC_SEND) {
        assert_ptr_equal(wc->context, CONTEXT(shards->sent));
        shards->sent++;
        return;
    }
    assert_int_equal(wc->opcode, RDMUX_WC_RECV);
    assert_ptr_equal(wc->context, CONTEXT(shards->received));
    uint64_t *word = &shards->words[shards->received % SLOTS];
    assert_int_equal(*word, shards->received);
    CHECK_OK(
        rdmux_send(shards->ep, word, sizeof(*word), NULL, CONTEXT(shards->received), RDMUX_INLINE));
    CHECK_OK(rdmux_recv(shards->ep, word, sizeof(*word), NULL, CONTEXT(shards->received + SLOTS)));
    shards->received++;
}

static void *run_shard(void *argument)
{
    const struct shard *shard = argument;
    struct shards *shards = shard->shards;
    struct rdmux_cq *cq = shards->cqs[shard->index];
    uint64_t turn = 0;
    while (!atomic_load(&shards->is_over)) {
        struct rdmux_wc wcs[3];
        size_t count = rdmux_cq_poll(cq, wcs, 3);
        for (size_t i = 0; i < count; i++) {
            if (wcs[i].opcode == RDMUX_WC_MOVED) {
                turn = TURN;
            } else {
                echo(shards, &wcs[i]);
            }
        }
        if (turn != 0 && count != 0 && --turn == 0) {
            if (shards->sent == ECHOES) {
                atomic_store(&shards->is_over, true);
            } else {
                CHECK_OK(rdmux_ep_move(shards->ep, shards->cqs[1 - shard->index]));
            }
        } else if (turn != 0 && shards->sent == ECHOES) {
            atomic_store(&shards->is_over, true);
        }
    }
    return NULL;
}

static void no_entry_is_lost_or_twice_while_threads_move_the_endpoint(void **state)
{
    (void)state;
    for (size_t i = 0; i < RDMUX_COUNT_OF(paths); i++) {
        struct move move;
        open_move(&move, paths[i]);
        struct pair *pair = &move.pair;
        static struct shards shards;
        memset(&shards, 0, sizeof(shards));
        shards.ep = pair->b;
        shards.cqs[0] = pair->cq_b;
        shards.cqs[1] = move.to;
        for (uint64_t n = 0; n < SLOTS; n++) {
            CHECK_OK(rdmux_recv(pair->b, &shards.words[n], sizeof(uint64_t), NULL, CONTEXT(n)));
        }
        struct shard halves[2] = { { &shards, 0 }, { &shards, 1 } };
        pthread_t threads[2];
        CHECK_OK(rdmux_ep_move(pair->b, move.to));
        for (size_t n = 0; n < 2; n++) {
            assert_int_equal(pthread_create(&threads[n], NULL, run_shard, &halves[n]), 0);
        }
        uint64_t answers[SLOTS];
        for (uint64_t n = 0; n < SLOTS; n++) {
            CHECK_OK(rdmux_recv(pair->a, &answers[n], sizeof(uint64_t), NULL, CONTEXT(n)));
        }
        for (uint64_t sent = 0, got = 0; got < ECHOES;) {
            for (; sent < ECHOES && sent < got + SLOTS; sent++) {
                CHECK_OK(rdmux_send(pair->a, &sent, sizeof(sent), NULL, NULL,
                                    RDMUX_INLINE | RDMUX_UNSIGNALED));
            }
            struct rdmux_wc wc = expect_entry(pair->cq_a, RDMUX_WC_RECV, RDMUX_OK);
            assert_ptr_equal(wc.context, CONTEXT(got));
            assert_int_equal(answers[got % SLOTS], got);
            CHECK_OK(rdmux_recv(pair->a, &answers[got % SLOTS], sizeof(uint64_t), NULL,
                                CONTEXT(got + SLOTS)));
            got++;
        }
        for (size_t n = 0; n < 2; n++) {
            assert_int_equal(pthread_join(threads[n], NULL), 0);
        }
        assert_int_equal(shards.received, ECHOES);
        assert_int_equal(shards.sent, ECHOES);
        close_move(&move);
    }
}

/* Revocations mail the cq that the endpoint is leaving. */
static void *revoke_often(void *argument)
{
    struct rdmux_mr *mr = argument;
    for (int i = 0; i < 60; i++) {
        struct rdmux_token token;
        CHECK_OK(rdmux_mr_export(mr, &token));
        CHECK_OK(rdmux_mr_revoke(mr));
    }
    return NULL;
}

static void revocations_meet_moves(void **state)
{
    (void)state;
    for (size_t i = 0; i < RDMUX_COUNT_OF(paths); i++) {
        struct move move;
        struct rdmux_mr *mr = NULL;
        struct rdmux_token token;
        pthread_t thread;
        open_move(&move, paths[i]);
        struct pair *pair = &move.pair;
        CHECK_OK(rdmux_mr_alloc(pair->fabric_b, 64, RDMUX_ACCESS_REMOTE_WRITE, &mr));
        CHECK_OK(rdmux_mr_export(mr, &token));
        assert_int_equal(pthread_create(&thread, NULL, revoke_often, mr), 0);
        struct rdmux_cq *at = pair->cq_b;
        for (int round = 0; round < 60; round++) {
            struct rdmux_cq *to = at == pair->cq_b ? move.to : pair->cq_b;
            struct rdmux_remote *remote = NULL;
            CHECK_OK(rdmux_mr_export(mr, &token));
            enum rdmux_status status = rdmux_remote_import(pair->a, &token, PATIENT_MS, &remote);
            (void)status; /* the token may be revoked already */
            CHECK_OK(rdmux_ep_move(pair->b, to));
            expect_moved(to, pair->b);
            rdmux_remote_close(remote);
            at = to;
        }
        assert_int_equal(pthread_join(thread, NULL), 0);
        struct rdmux_remote *last = import_region(pair->a, mr);
        CHECK_OK(rdmux_mr_revoke(mr));
        uint64_t word = 0;
        CHECK_STATUS(rdmux_write(pair->a, &word, sizeof(word), NULL, last, 0, NULL, 0),
                     RDMUX_DENIED);
        check_message(pair->a, pair->cq_a, pair->b, at, 9);
        assert_int_equal(pair->cq_b->revocations, 0);
        assert_int_equal(move.to->revocations, 0);
        rdmux_mr_deregister(mr);
        if (at == pair->cq_b) {
            close_move(&move);
        } else {
            struct rdmux_cq *other = pair->cq_b;
            pair->cq_b = move.to;
            move.to = other;
            close_move(&move);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_moved_endpoint_goes_on_and_its_old_cq_may_end),
        cmocka_unit_test(entries_not_polled_follow_MOVED_in_their_order),
        cmocka_unit_test(requests_under_way_complete_at_the_new_cq),
        cmocka_unit_test(imports_and_exports_come_along),
        cmocka_unit_test(an_ended_endpoint_brings_its_last_entries),
        cmocka_unit_test(a_shutdown_comes_along),
        cmocka_unit_test(a_move_to_the_same_cq_is_an_event),
        cmocka_unit_test(an_endpoint_of_an_adopted_socket_moves),
        cmocka_unit_test(a_refused_move_changes_nothing),
        cmocka_unit_test(room_moves_with_the_endpoint),
        cmocka_unit_test(a_path_that_binds_its_cq_refuses),
        cmocka_unit_test(with_failover_a_bound_path_is_opened_anew),
        cmocka_unit_test(no_atomic_becomes_unknown_where_a_path_is_opened_anew),
        cmocka_unit_test(frames_of_the_search_wait_for_the_new_cq),
        cmocka_unit_test(an_endpoint_that_ends_on_its_way_ends_at_its_new_cq),
        cmocka_unit_test(moves_and_failures_cross_without_loss),
        cmocka_unit_test(a_move_without_memory_fails_or_ends_the_endpoint),
        cmocka_unit_test(a_move_wakes_the_owner_of_the_new_cq),
        cmocka_unit_test(no_entry_is_lost_or_twice_while_threads_move_the_endpoint),
        cmocka_unit_test(revocations_meet_moves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
