/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * The tcp provider without the core: this file plays the core for both ends of a connection, in one
 * thread, so that each step is seen; and it plays a peer that lies.
 */
#include "test_tcp_fake_core.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

enum {
    BUDGET = 64,
    TURNS_MAX = 400000,
};

/* ------------------------------------------------------------------------------------- two ends */

static const struct rdmux_provider_ops *const ops = &rdmux_tcp_provider;

struct end {
    struct rdmux_provider_domain *domain;
    struct rdmux_provider_cq *cq;
    struct rdmux_provider_ep *ep;
    struct rdmux_provider_ep_attr attr;
    struct sockaddr_storage address;
    struct rdmux_ep core;
};

enum wiring {
    WIRED_UNIX, /* one adopted AF_UNIX socket, shared with the control channel */
    WIRED_TCP,  /* one adopted TCP socket, shared */
    WIRED_ONE,  /* one data socket */
    WIRED_FOUR, /* four data sockets */
    WIRED_COUNT,
};

static struct end *end_create(int which, struct rdmux_provider_cq *on)
{
    struct end *end = calloc(1, sizeof(*end));
    assert_non_null(end);
    end->core.receives = &end->core.own;
    end->domain = on != NULL ? on->domain : calloc(1, ops->domain_size);
    assert_non_null(end->domain);
    end->cq = on;
    if (on == NULL) {
        struct rdmux_local_path path;
        size_t count = 0;
        end->domain->ops = ops;
        end->domain->fabric = &fabric;
        assert_int_equal(ops->probe(&fabric, &path, 1, &count), RDMUX_OK);
        assert_int_equal(count, 1);
        assert_int_equal(ops->domain_open(end->domain, &path), RDMUX_OK);
        end->cq = calloc(1, ops->cq_size);
        assert_non_null(end->cq);
        end->cq->domain = end->domain;
        end->cq->cq = &cqs[which];
        assert_int_equal(ops->cq_open(end->cq, 1000), RDMUX_OK);
    }
    end->ep = calloc(1, ops->ep_size);
    assert_non_null(end->ep);
    end->ep->ops = ops;
    end->ep->cq = end->cq;
    end->ep->ep = &end->core;
    end->attr = (struct rdmux_provider_ep_attr){
        .role = which == 0 ? RDMUX_ROLE_CONNECT : RDMUX_ROLE_ACCEPT,
        .send_depth = 64,
        .recv_depth = 64,
        .liveness_ms = 10000,
        .dscp = 26,
        .ecn = 2,
        .data_sockets = 1,
        .shared_socket = -1,
    };
    return end;
}

static void end_open(struct end *end)
{
    assert_int_equal(ops->ep_open(end->ep, &end->attr), RDMUX_OK);
    end->cq->ep_count++;
}

static void ep_destroy(struct end *end)
{
    for (size_t i = 0; i < REGIONS_MAX; i++) {
        if (end->core.remotes[i] != NULL) {
            ops->remote_close(end->core.remotes[i]);
            free(end->core.remotes[i]);
        }
    }
    ops->ep_close(end->ep);
    end->cq->ep_count--;
    free(end->ep);
}

static void end_destroy(struct end *end, bool with_cq)
{
    ep_destroy(end);
    if (with_cq) {
        const struct tcp_cq *cq = rdmux_tcp_cq(end->cq);
        assert_int_equal(cq->pool.reserved, 0);
        assert_int_equal(cq->watched, 0);
        assert_int_equal(cq->blocked, 0);
        assert_int_equal(cq->hot_count, 0);
        ops->cq_close(end->cq);
        ops->domain_close(end->domain);
        free(end->cq);
        free(end->domain);
    }
    free(end);
}

static int listen_on_loopback(struct sockaddr_storage *address)
{
    struct sockaddr_in in = { .sin_family = AF_INET };
    socklen_t size = sizeof(in);
    in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&in, sizeof(in)), 0);
    assert_int_equal(listen(fd, 64), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&in, &size), 0);
    memset(address, 0, sizeof(*address));
    memcpy(address, &in, sizeof(in));
    return fd;
}

static void socket_pair(bool tcp, int out[2])
{
    if (!tcp) {
        int type = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;
        assert_int_equal(socketpair(AF_UNIX, type, 0, out), 0);
        return;
    }
    struct sockaddr_storage address;
    int listener = listen_on_loopback(&address);
    out[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(out[0], (struct sockaddr *)&address, sizeof(struct sockaddr_in)), 0);
    out[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    assert_true(out[1] >= 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(fcntl(out[i], F_SETFL, fcntl(out[i], F_GETFL) | O_NONBLOCK), 0);
    }
    (void)close(listener);
}

/* A peer that is only a socket: its end of a shared AF_UNIX pair. */
static int connect_to_test(struct end *end)
{
    int pair[2];
    uint8_t description[TCP_DESCRIPTION_SIZE];
    socket_pair(false, pair);
    end->attr.shared_socket = pair[0];
    end_open(end);
    rdmux_tcp_description_encode(&(struct tcp_description){ .sockets = 1, .answers = 32 },
                                 description);
    assert_int_equal(ops->ep_connect(end->ep, description, sizeof(description)), RDMUX_OK);
    return pair[1];
}

static void connect_ends(struct end *a, struct end *b, enum wiring wiring)
{
    uint8_t ours[RDMUX_DESCRIPTION_MAX];
    uint8_t theirs[RDMUX_DESCRIPTION_MAX];
    size_t ours_size = sizeof(ours);
    size_t theirs_size = sizeof(theirs);
    int listener = -1;
    if (wiring == WIRED_UNIX || wiring == WIRED_TCP) {
        int pair[2];
        socket_pair(wiring == WIRED_TCP, pair);
        a->attr.shared_socket = pair[0];
        b->attr.shared_socket = pair[1];
    } else {
        listener = listen_on_loopback(&a->address);
        a->attr.peer_address = (const struct sockaddr *)&a->address;
        a->attr.peer_address_length = sizeof(struct sockaddr_in);
        a->attr.data_sockets = wiring == WIRED_FOUR ? 4 : 1;
        b->attr.data_sockets = a->attr.data_sockets;
    }
    end_open(b);
    assert_int_equal(ops->ep_describe(b->ep, theirs, &theirs_size), RDMUX_OK);
    end_open(a);
    enum rdmux_status at_a = ops->ep_connect(a->ep, theirs, theirs_size);
    assert_int_equal(ops->ep_describe(a->ep, ours, &ours_size), RDMUX_OK);
    enum rdmux_status at_b = ops->ep_connect(b->ep, ours, ours_size);
    for (uint32_t i = 0; listener >= 0 && i < a->attr.data_sockets; i++) {
        uint8_t join[RDMUX_JOIN_SIZE];
        for (int turn = 0; at_a == RDMUX_IN_PROGRESS && turn < 1000; turn++) {
            (void)ops->poll(a->cq, BUDGET);
            at_a = ops->ep_connect(a->ep, NULL, 0);
        }
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        assert_true(fd >= 0);
        assert_int_equal(recv(fd, join, sizeof(join), MSG_WAITALL), sizeof(join));
        assert_int_equal(join[0], 0xaa);
        assert_int_equal(at_b, RDMUX_IN_PROGRESS);
        assert_int_equal(ops->ep_join(b->ep, fd, join[1]), RDMUX_OK);
        assert_int_equal(ops->poll(b->cq, BUDGET), 1);
        at_b = ops->ep_connect(b->ep, NULL, 0);
    }
    if (listener >= 0) {
        (void)close(listener);
    }
    assert_int_equal(at_a, RDMUX_OK);
    assert_int_equal(at_b, RDMUX_OK);
}

/* Posts what is queued, as far as it goes. */
static void push(struct end *end)
{
    struct rdmux_ep *core = &end->core;
    end->ep->ready = 0;
    if (end->ep->resume) {
        end->ep->resume = 0;
        core->held = false;
    }
    if (core->started < core->queued && !core->held && core->failed == RDMUX_OK) {
        size_t posted = 0;
        enum rdmux_status status = ops->post(end->ep, &core->requests[core->started],
                                             core->queued - core->started, 0, &posted);
        core->started += (uint32_t)posted;
        core->held = status == RDMUX_AGAIN;
        assert_true(status == RDMUX_OK || status == RDMUX_AGAIN);
    }
}

static struct rdmux_request *queue(struct end *end, uint32_t op, void *buffer, uint64_t length,
                                   int region, uint64_t offset, uint32_t flags)
{
    struct rdmux_ep *core = &end->core;
    assert_true(core->queued < REQUESTS_MAX);
    struct rdmux_request *request = &core->requests[core->queued];
    struct rdmux_provider_sge *sge = &core->sges[core->queued];
    core->queued++;
    *sge = (struct rdmux_provider_sge){ buffer, length, NULL };
    *request = (struct rdmux_request){
        .op = op,
        .flags = flags,
        .sge_count = length > 0 ? 1 : 0,
        .length = length,
        .sges = sge,
        .remote = region < 0 ? NULL : end->core.remotes[region],
        .offset = offset,
    };
    return request;
}

static void receive(struct end *end, void *buffer, uint64_t length)
{
    struct receives *receives = end->core.receives;
    assert_true(receives->posted < RECEIVES_MAX);
    struct rdmux_provider_sge *sge = &receives->sges[receives->posted];
    struct rdmux_request *request = &receives->list[receives->posted];
    *sge = (struct rdmux_provider_sge){ buffer, length, NULL };
    *request = (struct rdmux_request){
        .op = RDMUX_OP_RECV, .sge_count = 1, .length = length, .sges = sge
    };
    receives->posted++;
    if (receives == &end->core.own) {
        assert_int_equal(ops->post_recv(end->ep, request, 1), RDMUX_OK);
    }
}

static void turn(struct end *a, struct end *b)
{
    push(a);
    (void)ops->poll(a->cq, BUDGET);
    if (b != NULL) {
        push(b);
        (void)ops->poll(b->cq, BUDGET);
    }
}

#define RUN_UNTIL(a, b, condition)                                \
    do {                                                          \
        int turns_left = TURNS_MAX;                               \
        while (!(condition) && --turns_left > 0) {                \
            turn(a, b);                                           \
        }                                                         \
        if (turns_left == 0) {                                    \
            fail_msg("line %d: never: %s", __LINE__, #condition); \
        }                                                         \
    } while (0)

static void region_set(int index, void *addr, uint64_t length, uint32_t access)
{
    regions[index] = (struct rdmux_mr){ addr, length, access, (uint32_t)index + 1, 0 };
}

static void region_import(struct end *owner, struct end *user, int index)
{
    struct rdmux_provider_mr mr = { owner->domain, &regions[index] };
    uint8_t description[RDMUX_DESCRIPTION_MAX];
    size_t size = sizeof(description);
    const struct rdmux_provider_mr_attr attr = { .addr = regions[index].addr,
                                                 .length = regions[index].length };
    assert_int_equal(ops->mr_register(&mr, &attr), RDMUX_OK);
    assert_int_equal(ops->mr_describe(&mr, owner->ep, description, &size), RDMUX_OK);
    struct rdmux_provider_remote *remote = calloc(1, ops->remote_size);
    assert_non_null(remote);
    remote->ep = user->ep;
    remote->length = regions[index].length;
    assert_int_equal(ops->remote_open(remote, description, size), RDMUX_OK);
    user->core.remotes[index] = remote;
    assert_int_equal(ops->mr_invalidate(&mr), RDMUX_OK);
    ops->mr_deregister(&mr);
}

enum {
    ALL_ACCESS = RDMUX_ACCESS_REMOTE_READ | RDMUX_ACCESS_REMOTE_WRITE | RDMUX_ACCESS_REMOTE_ATOMIC
};

struct pair {
    struct end *a;
    struct end *b;
};

static struct pair pair_create(enum wiring wiring)
{
    struct pair pair = { end_create(0, NULL), end_create(1, NULL) };
    connect_ends(pair.a, pair.b, wiring);
    return pair;
}

static void pair_destroy(struct pair pair)
{
    int shared[2] = { pair.a->attr.shared_socket, pair.b->attr.shared_socket };
    end_destroy(pair.a, true);
    end_destroy(pair.b, true);
    for (int i = 0; i < 2; i++) {
        if (shared[i] >= 0) {
            (void)close(shared[i]);
        }
    }
    assert_int_equal(fabric.allocations, 0);
}

static uint8_t byte_at(uint64_t seed, uint64_t at)
{
    return (uint8_t)(seed * 131 + at * 7 + (at >> 8));
}

static void fill(uint8_t *bytes, uint64_t length, uint64_t seed)
{
    for (uint64_t i = 0; i < length; i++) {
        bytes[i] = byte_at(seed, i);
    }
}

static void check(const uint8_t *bytes, uint64_t length, uint64_t seed)
{
    for (uint64_t i = 0; i < length; i++) {
        if (bytes[i] != byte_at(seed, i)) {
            fail_msg("byte %llu of %llu is wrong", (unsigned long long)i,
                     (unsigned long long)length);
        }
    }
}

/* A small generator, the same on every machine. */
static uint64_t next_random(uint64_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed;
}

/* ------------------------------------------------------------------------------------- messages */

static const uint64_t sizes[] = { 0,     1,      8,      4095,    4096,    4097,    16384,  65536,
                                  70001, 262143, 262144, 1048576, 1048577, 3000001, 5 << 20 };

static void messages_of_any_size_arrive_in_order(void **state)
{
    (void)state;
    for (enum wiring wiring = 0; wiring < WIRED_COUNT; wiring++) {
        struct pair pair = pair_create(wiring);
        uint8_t *from[COUNT_OF(sizes)];
        uint8_t *to[COUNT_OF(sizes)];
        for (size_t i = 0; i < COUNT_OF(sizes); i++) {
            from[i] = malloc(sizes[i] + 1);
            to[i] = malloc(sizes[i] + 1);
            fill(from[i], sizes[i], i);
            receive(pair.b, to[i], sizes[i]);
            uint32_t op = i % 2 ? RDMUX_OP_SEND_IMM : RDMUX_OP_SEND;
            uint32_t flags = i % 3 ? 0 : RDMUX_PLACED;
            queue(pair.a, op, from[i], sizes[i], -1, 0, flags)->imm = (uint32_t)i;
        }

        RUN_UNTIL(pair.a, pair.b, pair.b->core.arrived_count == COUNT_OF(sizes));
        RUN_UNTIL(pair.a, pair.b, pair.a->core.requests[COUNT_OF(sizes) - 1].done);

        for (size_t i = 0; i < COUNT_OF(sizes); i++) {
            const struct rdmux_request *arrived = pair.b->core.arrived[i];
            assert_ptr_equal(arrived, &pair.b->core.own.list[i]);
            assert_int_equal(arrived->status, RDMUX_OK);
            assert_int_equal(arrived->opcode, RDMUX_WC_RECV);
            assert_true(arrived->length == sizes[i]);
            assert_int_equal(arrived->wc_flags, i % 2 ? RDMUX_WC_HAS_IMM : 0);
            assert_int_equal(arrived->imm, i % 2 ? i : 0);
            check(to[i], sizes[i], i);
            assert_int_equal(pair.a->core.requests[i].done, 1);
            assert_int_equal(pair.a->core.requests[i].status, RDMUX_OK);
            free(from[i]);
            free(to[i]);
        }
        assert_int_equal(pair.a->core.failed, RDMUX_OK);
        assert_int_equal(pair.b->core.failed, RDMUX_OK);
        struct rdmux_provider_counts counts;
        assert_int_equal(ops->ep_quiesce(pair.b->ep, &counts), RDMUX_OK);
        assert_true(counts.received == COUNT_OF(sizes));
        pair_destroy(pair);
    }
}

static void an_8_byte_ping_pong_is_one_send_and_one_recv_on_each_side(void **state)
{
    (void)state;
    enum { ROUNDS = 200, DEPTH = 8 };
    struct pair pair = pair_create(WIRED_ONE);
    uint64_t ping = 1;
    uint64_t at_a[DEPTH];
    uint64_t at_b[DEPTH];
    for (int i = 0; i < DEPTH; i++) {
        receive(pair.a, &at_a[i], 8);
        receive(pair.b, &at_b[i], 8);
    }
    for (int i = 0; i < 2 * TCP_SPINNING; i++) {
        turn(pair.a, pair.b);
    }
    uint64_t a_before = pair.a->ep->system_calls;
    uint64_t b_before = pair.b->ep->system_calls;

    for (uint32_t i = 1; i <= ROUNDS; i++) {
        queue(pair.a, RDMUX_OP_SEND, &ping, 8, -1, 0, 0);
        push(pair.a);
        (void)ops->poll(pair.b->cq, BUDGET);
        assert_int_equal(pair.b->core.arrived_count, i);
        receive(pair.b, &at_b[i % DEPTH], 8);
        queue(pair.b, RDMUX_OP_SEND, &ping, 8, -1, 0, 0);
        push(pair.b);
        (void)ops->poll(pair.a->cq, BUDGET);
        assert_int_equal(pair.a->core.arrived_count, i);
        receive(pair.a, &at_a[i % DEPTH], 8);
    }

    assert_true(pair.a->ep->system_calls - a_before == 2 * ROUNDS);
    assert_true(pair.b->ep->system_calls - b_before == 2 * ROUNDS);
    pair_destroy(pair);
}

static void a_batch_is_one_system_call(void **state)
{
    (void)state;
    struct pair pair = pair_create(WIRED_ONE);
    uint8_t target[64 * 64] = { 0 };
    uint8_t from[64];
    region_set(0, target, sizeof(target), ALL_ACCESS);
    region_import(pair.b, pair.a, 0);
    for (uint64_t i = 0; i < 64; i++) {
        from[i] = (uint8_t)i;
        queue(pair.a, RDMUX_OP_WRITE, &from[i], 1, 0, i * 64, i == 63 ? RDMUX_PLACED : 0);
    }
    for (int i = 0; i < 3; i++) {
        (void)ops->poll(pair.a->cq, BUDGET);
    }
    uint64_t before = pair.a->ep->system_calls;

    push(pair.a);

    assert_int_equal(pair.a->core.started, 64);
    assert_true(pair.a->ep->system_calls - before == 1);
    before = pair.b->ep->system_calls;
    (void)ops->poll(pair.b->cq, BUDGET);
    assert_true(pair.b->ep->system_calls - before == 2); /* one recv, one acknowledgment */
    (void)ops->poll(pair.a->cq, BUDGET);
    assert_int_equal(pair.a->core.requests[63].done, 1);
    for (size_t i = 0; i < 64; i++) {
        assert_int_equal(target[i * 64], i);
    }
    pair_destroy(pair);
}

static void what_more_held_back_goes_out_with_the_doorbell_or_the_next_poll(void **state)
{
    (void)state;
    struct pair pair = pair_create(WIRED_ONE);
    uint64_t value = 7;
    uint64_t got[2] = { 0 };
    size_t posted = 0;
    receive(pair.b, &got[0], 8);
    receive(pair.b, &got[1], 8);
    for (int i = 0; i < 10; i++) {
        turn(pair.a, pair.b);
    }
    uint64_t before = pair.a->ep->system_calls;
    (void)queue(pair.a, RDMUX_OP_SEND, &value, 8, -1, 0, 0);
    (void)queue(pair.a, RDMUX_OP_SEND, &value, 8, -1, 0, 0);

    assert_int_equal(ops->post(pair.a->ep, &pair.a->core.requests[0], 1, RDMUX_POST_MORE, &posted),
                     RDMUX_OK);
    assert_true(pair.a->ep->system_calls == before);
    ops->doorbell(pair.a->ep);
    assert_true(pair.a->ep->system_calls == before + 1);
    assert_int_equal(ops->post(pair.a->ep, &pair.a->core.requests[1], 1, RDMUX_POST_MORE, &posted),
                     RDMUX_OK);
    pair.a->core.started = 2;
    (void)ops->poll(pair.a->cq, BUDGET);
    RUN_UNTIL(pair.b, NULL, pair.b->core.arrived_count == 2);

    assert_true(got[0] == 7 && got[1] == 7);
    pair_destroy(pair);
}

/* -------------------------------------------------------------------------------------- credits */

static void a_send_waits_for_a_receive_and_answers_do_not_wait_with_it(void **state)
{
    (void)state;
    struct pair pair = pair_create(WIRED_ONE);
    uint8_t at_a[64];
    uint8_t at_b[64];
    uint64_t message = 5;
    uint64_t arrived = 0;
    uint64_t result = 0;
    memset(at_a, 3, sizeof(at_a));
    memset(at_b, 4, sizeof(at_b));
    region_set(0, at_a, sizeof(at_a), ALL_ACCESS);
    region_import(pair.a, pair.b, 0);
    struct rdmux_request *send = queue(pair.a, RDMUX_OP_SEND, &message, 8, -1, 0, 0);
    struct rdmux_request *read = queue(pair.b, RDMUX_OP_READ, &result, 8, 0, 0, 0);

    RUN_UNTIL(pair.a, pair.b, read->done);
    assert_int_equal(send->done, 0);
    assert_int_equal(pair.a->core.started, 0);
    assert_true(result == 0x0303030303030303);
    receive(pair.b, &arrived, 8);
    RUN_UNTIL(pair.a, pair.b, pair.b->core.arrived_count == 1);

    assert_true(arrived == 5);
    pair_destroy(pair);
}

static void a_stream_through_a_single_receive_gets_through(void **state)
{
    (void)state;
    struct pair pair = pair_create(WIRED_ONE);
    uint64_t values[500];
    uint64_t slot = 0;
    for (uint64_t i = 0; i < COUNT_OF(values); i++) {
        values[i] = i;
        queue(pair.a, RDMUX_OP_SEND, &values[i], 8, -1, 0, 0);
    }

    for (uint32_t i = 0; i < COUNT_OF(values); i++) {
        receive(pair.b, &slot, 8);
        RUN_UNTIL(pair.a, pair.b, pair.b->core.arrived_count == i + 1);
        assert_true(slot == i);
    }

    pair_destroy(pair);
}

/* ------------------------------------------------------------------------------ shared receives */

static void endpoints_share_receives_and_idle_ones_give_credits_back(void **state)
{
    (void)state;
    enum { PEERS = 5, ROUNDS = 40 };
    struct rdmux_srq *core_srq = calloc(1, sizeof(*core_srq));
    struct tcp_srq *srq = calloc(1, ops->srq_size);
    struct end *a[PEERS];
    struct end *b[PEERS];
    uint64_t values[PEERS];
    uint64_t slots[RECEIVES_MAX];
    uint32_t total = 0;
    assert_non_null(core_srq);
    assert_non_null(srq);
    for (int i = 0; i < PEERS; i++) {
        a[i] = end_create(0, i > 0 ? a[0]->cq : NULL);
        b[i] = end_create(1, i > 0 ? b[0]->cq : NULL);
        if (i == 0) {
            srq->base.cq = b[0]->cq;
            assert_int_equal(ops->srq_open(&srq->base, 64, 1), RDMUX_OK);
        }
        b[i]->core.receives = &core_srq->receives;
        b[i]->attr.srq = &srq->base;
        connect_ends(a[i], b[i], WIRED_ONE);
    }
    for (uint32_t receives = 1; receives <= 8; receives *= 2) {
        for (uint32_t i = 0; i < receives; i++) {
            receive(b[0], &slots[core_srq->receives.posted], 8);
        }
        assert_int_equal(ops->srq_post_recv(&srq->base, NULL, receives), RDMUX_OK);
        for (int round = 0; round < ROUNDS; round++) {
            /* One sends, then another, so that the first sits on what it was given. */
            int who = round % PEERS;
            values[who] = (uint64_t)round;
            queue(a[who], RDMUX_OP_SEND, &values[who], 8, -1, 0, 0);
            total++;
            for (int t = 0; t < TURNS_MAX && core_srq->receives.taken < total; t++) {
                for (int i = 0; i < PEERS; i++) {
                    push(a[i]);
                }
                turn(a[0], b[0]);
            }
            assert_int_equal(core_srq->receives.taken, total);
            assert_true(slots[total - 1] == (uint64_t)round);
            receive(b[0], &slots[core_srq->receives.posted], 8);
            assert_int_equal(ops->srq_post_recv(&srq->base, NULL, 1), RDMUX_OK);
            assert_true(srq->pool.promised <= core_srq->receives.posted - core_srq->receives.taken);
        }
    }
    for (int i = PEERS - 1; i >= 0; i--) {
        end_destroy(a[i], i == 0);
        end_destroy(b[i], i == 0);
    }
    assert_true(srq->pool.promised == 0);
    ops->srq_close(&srq->base);
    free(srq);
    free(core_srq);
    assert_int_equal(fabric.allocations, 0);
}

static void shared_receives_reach_everybody_in_any_order_of_events(void **state)
{
    (void)state;
    enum { PEERS = 4, EACH = 60, SEEDS = 30 };
    static uint64_t slots[RECEIVES_MAX];
    static uint64_t value = 1;
    for (uint64_t run = 1; run <= SEEDS; run++) {
        struct rdmux_srq *core_srq = calloc(1, sizeof(*core_srq));
        struct tcp_srq *srq = calloc(1, ops->srq_size);
        struct end *a[PEERS];
        struct end *b[PEERS];
        uint64_t seed = run * 7919;
        uint32_t credits = (uint32_t)(run % 6) + 1; /* receives at a time */
        for (int i = 0; i < PEERS; i++) {
            a[i] = end_create(0, i > 1 ? a[i - 2]->cq : NULL);
            b[i] = end_create(1, i > 0 ? b[0]->cq : NULL);
            if (i == 0) {
                srq->base.cq = b[0]->cq;
                assert_int_equal(ops->srq_open(&srq->base, 64, 1), RDMUX_OK);
            }
            b[i]->core.receives = &core_srq->receives;
            b[i]->attr.srq = &srq->base;
            connect_ends(a[i], b[i], i == 0 ? WIRED_UNIX : WIRED_ONE);
            for (int n = 0; n < EACH; n++) {
                uint32_t op = n % 5 == 4 ? RDMUX_OP_WRITE : RDMUX_OP_SEND;
                bool flush = op == RDMUX_OP_WRITE;
                queue(a[i], op, &value, flush ? 0 : 8, -1, 0, flush ? RDMUX_PLACED : 0);
            }
        }
        uint32_t total = PEERS * (EACH - EACH / 5);
        for (int t = 0; t < TURNS_MAX && core_srq->receives.taken < total; t++) {
            uint64_t dice = next_random(&seed) % (PEERS + 3);
            if (dice < PEERS) {
                push(a[dice]);
                (void)ops->poll(a[dice]->cq, BUDGET);
            } else if (dice == PEERS) {
                (void)ops->poll(b[0]->cq, BUDGET);
            } else if (dice == PEERS + 1) {
                (void)ops->arm(b[0]->cq);
                (void)ops->arm(a[next_random(&seed) % PEERS]->cq);
            } else if (core_srq->receives.posted - core_srq->receives.taken < credits) {
                receive(b[0], &slots[core_srq->receives.posted], 8);
                assert_int_equal(ops->srq_post_recv(&srq->base, NULL, 1), RDMUX_OK);
            }
            assert_true(srq->pool.promised <= core_srq->receives.posted - core_srq->receives.taken);
        }
        if (core_srq->receives.taken != total) {
            fail_msg("run %d: %u of %u messages came", (int)run, core_srq->receives.taken, total);
        }
        for (int i = PEERS - 1; i >= 0; i--) {
            int fds[2] = { a[i]->attr.shared_socket, b[i]->attr.shared_socket };
            end_destroy(a[i], i < 2);
            end_destroy(b[i], i == 0);
            for (int n = 0; n < 2 && fds[n] >= 0; n++) {
                (void)close(fds[n]);
            }
        }
        assert_true(srq->pool.promised == 0);
        ops->srq_close(&srq->base);
        free(srq);
        free(core_srq);
        assert_int_equal(fabric.allocations, 0);
    }
}

/* ------------------------------------------------------------------------------------ one-sided */

static void writes_reads_and_atomics_of_any_size_do_what_they_say(void **state)
{
    (void)state;
    enum { SIZE = 6 << 20 };
    uint8_t *target = aligned_alloc(64, SIZE);
    uint8_t *from = malloc(SIZE);
    uint8_t *back = malloc(SIZE);
    for (enum wiring wiring = 0; wiring < WIRED_COUNT; wiring++) {
        struct pair pair = pair_create(wiring);
        memset(target, 0, SIZE);
        region_set(0, target, SIZE, ALL_ACCESS);
        region_import(pair.b, pair.a, 0);
        for (size_t i = 0; i < COUNT_OF(sizes); i++) {
            uint64_t result = 0;
            uint64_t swapped = 0;
            uint64_t word = 0;
            uint64_t slot = 0;
            fill(from, sizes[i], i + 5);
            memset(back, 0, SIZE);
            uint32_t first = pair.a->core.queued;
            uint32_t arrived = pair.b->core.arrived_count;
            receive(pair.b, &slot, 8);
            queue(pair.a, RDMUX_OP_WRITE, from, sizes[i], 0, 8, 0);
            queue(pair.a, RDMUX_OP_READ, back, sizes[i], 0, 8, 0);
            queue(pair.a, RDMUX_OP_WRITE_IMM, from, sizes[i], 0, 8, RDMUX_PLACED)->imm = 77;
            queue(pair.a, RDMUX_OP_WRITE, &word, 8, 0, 0, 0);
            queue(pair.a, RDMUX_OP_FETCH_ADD, &result, 8, 0, 0, 0)->operand = 41;
            struct rdmux_request *swap = queue(pair.a, RDMUX_OP_COMPARE_SWAP, &swapped, 8, 0, 0, 0);
            swap->expected = 41;
            swap->operand = 1000;
            queue(pair.a, RDMUX_OP_WRITE, NULL, 0, -1, 0, RDMUX_PLACED);

            RUN_UNTIL(pair.a, pair.b,
                      pair.a->core.requests[pair.a->core.queued - 1].done && swap->done);

            for (uint32_t r = first; r < pair.a->core.queued; r++) {
                assert_int_equal(pair.a->core.requests[r].done, 1);
                assert_int_equal(pair.a->core.requests[r].status, RDMUX_OK);
            }
            check(target + 8, sizes[i], i + 5);
            check(back, sizes[i], i + 5);
            assert_true(result == 0 && swapped == 41);
            memcpy(&word, target, 8);
            assert_true(word == 1000);
            assert_int_equal(pair.b->core.arrived_count, arrived + 1);
            const struct rdmux_request *notice = pair.b->core.arrived[arrived];
            assert_int_equal(notice->opcode, RDMUX_WC_RECV_WRITE_IMM);
            assert_int_equal(notice->imm, 77);
            assert_true(notice->length == sizes[i]);
            assert_true(slot == 0);
        }
        pair_destroy(pair);
    }
    free(target);
    free(from);
    free(back);
}

static void a_random_mix_in_both_directions_keeps_every_promise(void **state)
{
    (void)state;
    enum { SIZE = 4 << 20, COUNT = 600, MAX_LENGTH = 1 << 20 };
    for (enum wiring wiring = 0; wiring < WIRED_COUNT; wiring++) {
        struct pair pair = pair_create(wiring);
        struct end *ends[2] = { pair.a, pair.b };
        uint8_t *memory[2];
        uint8_t *model[2];
        uint8_t *bytes[2];
        uint8_t *results[2];
        uint8_t *expected[2];
        uint8_t *into[2];
        uint64_t seed = 88172645463325252ULL + (uint64_t)wiring;
        for (int i = 0; i < 2; i++) {
            memory[i] = aligned_alloc(64, SIZE);
            model[i] = malloc(SIZE);
            bytes[i] = malloc(SIZE);
            results[i] = calloc(COUNT, 64);
            expected[i] = calloc(COUNT, 64);
            into[i] = calloc(COUNT, 64);
            memset(memory[i], 0, SIZE);
            memset(model[i], 0, SIZE);
            for (size_t at = 0; at < SIZE; at++) {
                bytes[i][at] = (uint8_t)(next_random(&seed) >> 11);
            }
            region_set(i, memory[i], SIZE, ALL_ACCESS);
        }
        region_import(pair.b, pair.a, 1);
        region_import(pair.a, pair.b, 0);
        uint32_t messages[2] = { 0 };
        for (int n = 0; n < COUNT; n++) {
            int i = (int)(next_random(&seed) & 1);
            struct end *end = ends[i];
            int r = 1 - i;
            uint64_t kind = next_random(&seed) % 6;
            uint64_t length = next_random(&seed) % (next_random(&seed) % 4 ? 3000 : MAX_LENGTH);
            uint64_t offset = next_random(&seed) % (SIZE - MAX_LENGTH);
            uint64_t source = next_random(&seed) % (SIZE - MAX_LENGTH);
            uint64_t index = end->core.queued;
            uint32_t placed = next_random(&seed) % 4 ? 0 : RDMUX_PLACED;
            uint64_t value = 0;
            if (kind == 0) {
                length %= 65;
                queue(end, RDMUX_OP_SEND, bytes[i] + source, length, -1, 0, placed);
                receive(ends[r], into[r] + 64 * (size_t)messages[r], 64);
                messages[r]++;
            } else if (kind == 1) {
                queue(end, RDMUX_OP_WRITE, bytes[i] + source, length, r, offset, placed);
                memcpy(model[r] + offset, bytes[i] + source, length);
            } else if (kind == 2) {
                queue(end, RDMUX_OP_WRITE_IMM, bytes[i] + source, length, r, offset, placed);
                memcpy(model[r] + offset, bytes[i] + source, length);
                receive(ends[r], into[r] + 64 * (size_t)messages[r], 64);
                messages[r]++;
            } else if (kind == 3) {
                length %= 65;
                queue(end, RDMUX_OP_READ, results[i] + 64 * index, length, r, offset, 0);
                memcpy(expected[i] + 64 * index, model[r] + offset, length);
            } else {
                offset &= ~(uint64_t)7;
                uint32_t op = kind == 4 ? RDMUX_OP_FETCH_ADD : RDMUX_OP_COMPARE_SWAP;
                memcpy(&value, model[r] + offset, 8);
                memcpy(expected[i] + 64 * index, &value, 8);
                struct rdmux_request *request = queue(end, op, results[i] + 64 * index, 8, r,
                                                      offset, 0);
                request->operand = 12345;
                request->expected = value;
                value = kind == 4 ? value + 12345 : 12345;
                memcpy(model[r] + offset, &value, 8);
            }
            /* A read of ours and a later write of ours may overlap: rule 4 wants a fence. */
            if (kind >= 3) {
                RUN_UNTIL(pair.a, pair.b, end->core.requests[index].done);
            }
            if (next_random(&seed) % 3 == 0) {
                turn(pair.a, pair.b);
            }
        }
        for (int i = 0; i < 2; i++) {
            queue(ends[i], RDMUX_OP_WRITE, NULL, 0, -1, 0, RDMUX_PLACED);
        }

        RUN_UNTIL(pair.a, pair.b,
                  pair.a->core.started == pair.a->core.queued &&
                      pair.b->core.started == pair.b->core.queued &&
                      pair.a->core.requests[pair.a->core.queued - 1].done &&
                      pair.b->core.requests[pair.b->core.queued - 1].done);

        for (int i = 0; i < 2; i++) {
            assert_int_equal(ends[i]->core.failed, RDMUX_OK);
            assert_int_equal(ends[i]->core.arrived_count, messages[i]);
            assert_memory_equal(memory[i], model[i], SIZE);
            assert_memory_equal(results[i], expected[i], COUNT * 64);
            for (uint32_t n = 0; n < ends[i]->core.queued; n++) {
                assert_int_equal(ends[i]->core.requests[n].done, 1);
                assert_int_equal(ends[i]->core.requests[n].status, RDMUX_OK);
            }
            free(memory[i]);
            free(model[i]);
            free(bytes[i]);
            free(results[i]);
            free(expected[i]);
            free(into[i]);
        }
        pair_destroy(pair);
    }
}

static void more_reads_than_may_be_under_way_wait_their_turn(void **state)
{
    (void)state;
    enum { SIZE = 1 << 20, COUNT = 100 };
    uint8_t *target = malloc(SIZE);
    uint8_t *back = malloc((size_t)COUNT * 70000);
    struct pair pair = pair_create(WIRED_ONE);
    fill(target, SIZE, 9);
    region_set(0, target, SIZE, ALL_ACCESS);
    region_import(pair.b, pair.a, 0);
    for (uint64_t i = 0; i < COUNT; i++) {
        queue(pair.a, RDMUX_OP_READ, back + i * 70000, 70000, 0, i, 0);
    }

    RUN_UNTIL(pair.a, pair.b, pair.a->core.requests[COUNT - 1].done);

    for (uint64_t i = 0; i < COUNT; i++) {
        assert_memory_equal(back + i * 70000, target + i, 70000);
    }
    pair_destroy(pair);
    free(target);
    free(back);
}

/* ------------------------------------------------------------------------------------- refusals */

static void a_refused_access_fails_that_request_and_changes_no_byte(void **state)
{
    (void)state;
    static const struct {
        uint32_t op;
        uint32_t access;
        uint64_t offset;
        uint64_t length;
        enum rdmux_status status;
    } cases[] = {
        { RDMUX_OP_WRITE, RDMUX_ACCESS_REMOTE_READ, 0, 8, RDMUX_DENIED },
        { RDMUX_OP_WRITE, RDMUX_ACCESS_REMOTE_READ, 0, 0, RDMUX_DENIED },
        { RDMUX_OP_WRITE, ALL_ACCESS, 4092, 8, RDMUX_OUT_OF_RANGE },
        { RDMUX_OP_WRITE, ALL_ACCESS, UINT64_MAX - 3, 8, RDMUX_OUT_OF_RANGE },
        { RDMUX_OP_WRITE, ALL_ACCESS, 0, 300000, RDMUX_OUT_OF_RANGE },
        { RDMUX_OP_WRITE_IMM, RDMUX_ACCESS_REMOTE_READ, 0, 8, RDMUX_DENIED },
        { RDMUX_OP_READ, RDMUX_ACCESS_REMOTE_WRITE, 0, 8, RDMUX_DENIED },
        { RDMUX_OP_READ, ALL_ACCESS, 4090, 8, RDMUX_OUT_OF_RANGE },
        { RDMUX_OP_READ, ALL_ACCESS, UINT64_MAX - 3, 8, RDMUX_OUT_OF_RANGE },
        { RDMUX_OP_FETCH_ADD, RDMUX_ACCESS_REMOTE_WRITE, 0, 8, RDMUX_DENIED },
        { RDMUX_OP_COMPARE_SWAP, ALL_ACCESS, 4096, 8, RDMUX_OUT_OF_RANGE },
    };
    uint8_t *bytes = malloc(300000);
    memset(bytes, 7, 300000);
    for (size_t i = 0; i < COUNT_OF(cases) * WIRED_COUNT; i++) {
        size_t c = i % COUNT_OF(cases);
        struct pair pair = pair_create((enum wiring)(i / COUNT_OF(cases)));
        _Alignas(8) uint8_t target[4096] = { 0 };
        uint8_t zeros[4096] = { 0 };
        uint64_t slot = 0;
        region_set(0, target, sizeof(target), cases[c].access);
        region_import(pair.b, pair.a, 0);
        receive(pair.b, &slot, 8);
        queue(pair.a, RDMUX_OP_WRITE, NULL, 0, -1, 0, RDMUX_PLACED);
        struct rdmux_request *bad = queue(pair.a, cases[c].op, bytes, cases[c].length, 0,
                                          cases[c].offset, RDMUX_PLACED);
        struct rdmux_request *after = queue(pair.a, RDMUX_OP_SEND, bytes, 8, -1, 0, RDMUX_PLACED);

        RUN_UNTIL(pair.a, pair.b, pair.a->core.failed != RDMUX_OK);

        assert_int_equal(pair.a->core.failed, cases[c].status);
        assert_int_equal(pair.a->core.requests[0].status, RDMUX_OK);
        assert_int_equal(pair.a->core.requests[0].done, 1);
        assert_int_equal(bad->done, 1);
        assert_int_equal(bad->status, cases[c].status);
        assert_int_equal(after->done, 0);
        assert_int_equal(pair.b->core.failed, RDMUX_OK);
        assert_int_equal(pair.b->core.arrived_count, 0);
        assert_memory_equal(target, zeros, sizeof(target));
        pair_destroy(pair);
    }
    free(bytes);
}

static void a_region_revoked_under_way_stops_the_copy_and_refuses(void **state)
{
    (void)state;
    enum { SIZE = 8 << 20 };
    uint8_t *target = malloc(SIZE);
    uint8_t *bytes = malloc(SIZE);
    for (enum wiring wiring = 0; wiring < WIRED_COUNT; wiring++) {
        for (int read = 0; read < 2; read++) {
            struct pair pair = pair_create(wiring);
            memset(target, read ? 9 : 0, SIZE);
            memset(bytes, read ? 0 : 9, SIZE);
            region_set(0, target, SIZE, ALL_ACCESS);
            region_import(pair.b, pair.a, 0);
            regions[0].dies_after = 4;
            struct rdmux_request *bad = queue(pair.a, read ? RDMUX_OP_READ : RDMUX_OP_WRITE, bytes,
                                              SIZE, 0, 0, RDMUX_PLACED);

            RUN_UNTIL(pair.a, pair.b, pair.a->core.failed != RDMUX_OK);

            assert_int_equal(pair.a->core.failed, RDMUX_DENIED);
            assert_int_equal(bad->status, RDMUX_DENIED);
            assert_int_equal(bad->done, 1);
            const uint8_t *changed = read ? bytes : target;
            assert_int_equal(changed[SIZE - 1], 0);
            pair_destroy(pair);
        }
    }
    free(target);
    free(bytes);
}

static void a_message_longer_than_its_receive_fails_both_ends(void **state)
{
    (void)state;
    static const uint64_t lengths[] = { 9, 5000, 2 << 20 };
    uint8_t *bytes = calloc(1, 2 << 20);
    for (size_t i = 0; i < COUNT_OF(lengths); i++) {
        for (enum wiring wiring = 0; wiring < WIRED_COUNT; wiring++) {
            struct pair pair = pair_create(wiring);
            uint64_t slot = 0x1122334455667788;
            receive(pair.b, &slot, 8);
            struct rdmux_request *send = queue(pair.a, RDMUX_OP_SEND, bytes, lengths[i], -1, 0,
                                               RDMUX_PLACED);

            RUN_UNTIL(pair.a, pair.b, pair.b->core.failed != RDMUX_OK);
            struct rdmux_provider_counts counts;
            assert_int_equal(ops->ep_quiesce(pair.b->ep, &counts), RDMUX_OK);
            RUN_UNTIL(pair.a, NULL, pair.a->core.failed != RDMUX_OK);

            assert_int_equal(pair.b->core.failed, RDMUX_LENGTH);
            assert_int_equal(pair.b->core.arrived_count, 1);
            assert_int_equal(pair.b->core.arrived[0]->status, RDMUX_LENGTH);
            assert_true(pair.b->core.arrived[0]->length == lengths[i]);
            assert_true(slot == 0x1122334455667788);
            assert_int_equal(pair.a->core.failed, RDMUX_LENGTH);
            assert_int_equal(send->status, RDMUX_LENGTH);
            pair_destroy(pair);
        }
    }
    free(bytes);
}

/* ----------------------------------------------------------------------------------------- ends */

static void messages_that_came_are_reported_before_the_end(void **state)
{
    (void)state;
    for (enum wiring wiring = WIRED_ONE; wiring < WIRED_COUNT; wiring++) {
        struct pair pair = pair_create(wiring);
        uint64_t values[20];
        uint64_t slots[20] = { 0 };
        for (uint64_t i = 0; i < 20; i++) {
            values[i] = i;
            receive(pair.b, &slots[i], 8);
        }
        RUN_UNTIL(pair.a, pair.b, rdmux_tcp_ep(pair.a->ep)->held.left == 20);
        for (uint64_t i = 0; i < 20; i++) {
            queue(pair.a, RDMUX_OP_SEND, &values[i], 8, -1, 0, 0);
        }
        push(pair.a);
        assert_int_equal(pair.a->core.started, 20);
        struct rdmux_provider_counts counts;
        assert_int_equal(ops->ep_quiesce(pair.a->ep, &counts), RDMUX_OK);

        RUN_UNTIL(pair.b, NULL, pair.b->core.failed != RDMUX_OK);

        assert_int_equal(pair.b->core.failed, RDMUX_PEER_GONE);
        assert_int_equal(pair.b->core.arrived_count, 20);
        pair_destroy(pair);
    }
}

static void quiesce_hands_out_what_has_come_and_counts_it(void **state)
{
    (void)state;
    struct pair pair = pair_create(WIRED_ONE);
    uint64_t value = 3;
    uint64_t slots[5] = { 0 };
    for (int i = 0; i < 5; i++) {
        receive(pair.b, &slots[i], 8);
    }
    RUN_UNTIL(pair.a, pair.b, rdmux_tcp_ep(pair.a->ep)->held.left == 5);
    for (int i = 0; i < 5; i++) {
        queue(pair.a, RDMUX_OP_SEND, &value, 8, -1, 0, 0);
    }
    push(pair.a);
    struct rdmux_provider_counts counts = { 0 };

    assert_int_equal(ops->ep_quiesce(pair.b->ep, &counts), RDMUX_OK);

    assert_int_equal(pair.b->core.arrived_count, 5);
    assert_true(counts.received == 5);
    assert_int_equal(pair.b->core.failed, RDMUX_OK);
    pair_destroy(pair);
}

static void an_endpoint_may_end_in_the_middle_of_anything(void **state)
{
    (void)state;
    enum { SIZE = 4 << 20 };
    uint8_t *target = malloc(SIZE);
    uint8_t *bytes = malloc(SIZE);
    memset(bytes, 1, SIZE);
    for (int turns = 0; turns < 40; turns++) {
        struct pair pair = pair_create((enum wiring)(turns % WIRED_COUNT));
        region_set(0, target, SIZE, ALL_ACCESS);
        region_import(pair.b, pair.a, 0);
        for (int i = 0; i < 4; i++) {
            receive(pair.b, target, SIZE);
            queue(pair.a, RDMUX_OP_WRITE, bytes, SIZE, 0, 0, 0);
            queue(pair.a, RDMUX_OP_READ, bytes, SIZE, 0, 0, 0);
            queue(pair.a, RDMUX_OP_SEND, bytes, SIZE, -1, 0, RDMUX_PLACED);
        }

        for (int i = 0; i < turns / 2; i++) {
            turn(pair.a, pair.b);
        }

        pair_destroy(pair); /* leaks, double frees and stray copies are the sanitizer's to see */
    }
    free(target);
    free(bytes);
}

static void the_descriptor_wakes_for_a_message_and_not_without(void **state)
{
    (void)state;
    for (enum wiring wiring = 0; wiring < WIRED_COUNT; wiring++) {
        struct pair pair = pair_create(wiring);
        uint8_t *bytes = calloc(1, 3 << 20);
        uint8_t *slot = calloc(1, 3 << 20);
        receive(pair.b, slot, 3 << 20);
        RUN_UNTIL(pair.a, pair.b, rdmux_tcp_ep(pair.a->ep)->held.left == 1);
        struct pollfd look = { .fd = ops->fd(pair.b->cq), .events = POLLIN };
        while (ops->poll(pair.b->cq, BUDGET) > 0 || ops->arm(pair.b->cq) != RDMUX_OK) {
        }
        assert_int_equal(poll(&look, 1, 0), 0);

        queue(pair.a, RDMUX_OP_SEND, bytes, 3 << 20, -1, 0, 0);
        for (int turns = 0; turns < TURNS_MAX && pair.b->core.arrived_count == 0; turns++) {
            push(pair.a);
            (void)ops->poll(pair.a->cq, BUDGET);
            /* b sleeps, and looks only when its descriptor says so */
            if (ops->arm(pair.b->cq) == RDMUX_OK && poll(&look, 1, 0) == 0) {
                continue;
            }
            (void)ops->poll(pair.b->cq, BUDGET);
        }

        assert_int_equal(pair.b->core.arrived_count, 1);
        while (ops->poll(pair.b->cq, BUDGET) > 0 || ops->arm(pair.b->cq) != RDMUX_OK) {
        }
        assert_int_equal(poll(&look, 1, 0), 0);
        pair_destroy(pair);
        free(bytes);
        free(slot);
    }
}

/* ---------------------------------------------------------------------------- the shared socket */

static void control_frames_travel_between_the_data(void **state)
{
    (void)state;
    enum { SIZE = 12 << 20, BIG = 65536 };
    uint8_t *target = malloc(SIZE);
    uint8_t *bytes = malloc(SIZE);
    uint8_t *frame = calloc(1, BIG + 8);
    memset(bytes, 5, SIZE);
    for (enum wiring wiring = WIRED_UNIX; wiring <= WIRED_TCP; wiring++) {
        struct pair pair = pair_create(wiring);
        region_set(0, target, SIZE, ALL_ACCESS);
        region_import(pair.b, pair.a, 0);
        struct rdmux_request *write = queue(pair.a, RDMUX_OP_WRITE, bytes, SIZE, 0, 0, RDMUX_PLACED);
        push(pair.a);
        size_t sent = 0;
        size_t expected = 0;

        for (uint32_t length = 0; length <= BIG; length = length * 3 + 1) {
            frame[0] = 7;
            rdmux_tcp_store32(frame + 4, length);
            while (ops->ep_control(pair.a->ep, frame, 8 + length) == RDMUX_AGAIN) {
                turn(pair.a, pair.b);
            }
            sent++;
            expected += 8 + length;
        }
        /* They do not wait for the end of what is under way. */
        RUN_UNTIL(pair.a, pair.b, pair.b->core.control_size >= 8);
        assert_int_equal(write->done, 0);
        RUN_UNTIL(pair.a, pair.b, pair.b->core.control_size == expected && write->done);
        rdmux_tcp_store32(frame + 4, BIG);
        assert_int_equal(ops->ep_control(pair.a->ep, frame, 8 + BIG), RDMUX_OK);
        RUN_UNTIL(pair.a, pair.b, pair.b->core.control_size == expected + 8 + BIG);

        assert_true(sent > 5);
        assert_memory_equal(target, bytes, SIZE);
        pair_destroy(pair);
    }
    free(target);
    free(bytes);
    free(frame);
}

static void a_shared_socket_keeps_its_options_and_stays_open(void **state)
{
    (void)state;
    struct pair pair = pair_create(WIRED_TCP);
    int fd = pair.a->attr.shared_socket;
    int value = 0;
    socklen_t size = sizeof(value);
    assert_int_equal(getsockopt(fd, IPPROTO_IP, IP_TOS, &value, &size), 0);
    assert_int_equal(value & 0xfc, 26 << 2);

    ops->ep_close(pair.a->ep);

    assert_int_equal(getsockopt(fd, IPPROTO_IP, IP_TOS, &value, &size), 0);
    assert_int_equal(value & 0xfc, 0);
    assert_true(fcntl(fd, F_GETFD) >= 0);
    pair.a->cq->ep_count--;
    free(pair.a->ep);
    pair.a->ep = calloc(1, ops->ep_size);
    pair.a->ep->ops = ops;
    pair.a->ep->cq = pair.a->cq;
    pair.a->ep->ep = &pair.a->core;
    pair.a->attr.shared_socket = -1;
    end_open(pair.a);
    (void)close(fd);
    pair_destroy(pair);
}

/* ----------------------------------------------------------------------------- a peer that lies */

#define HEAD(kind) (TCP_MARK | (kind))

static void a_peer_that_lies_ends_the_endpoint(void **state)
{
    (void)state;
    static const struct {
        const char *says;
        uint8_t bytes[96];
        size_t size;
    } cases[] = {
        { "a message without a credit", { HEAD(TCP_SEND) }, 8 },
        { "a write_imm without a credit", { HEAD(TCP_WRITE) | TCP_IMM, [8] = 0, 1 }, 36 },
        { "more of nothing", { HEAD(TCP_MORE), [7] = 1, 0 }, 9 },
        { "data nobody asked for", { HEAD(TCP_DATA), [7] = 1, 0 }, 9 },
        { "empty data nobody asked for", { HEAD(TCP_DATA) }, 8 },
        { "a result nobody asked for", { HEAD(TCP_RESULT), [7] = 8 }, 16 },
        { "an acknowledgment of nothing", { HEAD(TCP_ACK), [7] = 1 }, 8 },
        { "2^47 acknowledgments", { HEAD(TCP_ACK), 0, 0x80 }, 8 },
        { "2^47 credits", { HEAD(TCP_CREDIT), 0, 0x80 }, 8 },
        { "credits back that were never given", { HEAD(TCP_RETURN) }, 8 },
        { "a refusal of nothing", { HEAD(TCP_NAK), [7] = RDMUX_DENIED }, 16 },
        { "a refusal with success", { HEAD(TCP_NAK), [7] = RDMUX_OK }, 16 },
        { "an unaligned atomic", { HEAD(TCP_FETCH_ADD), [7] = 8, [8] = 0, 1, [31] = 4 }, 40 },
        { "a striped write with one socket",
          { HEAD(TCP_WRITE) | TCP_STRIPED, [7] = 8, [8] = 0, 1 },
          48 },
        { "a control frame of 65,537 bytes", { 0x01, 0, 0, 0, 0, 1, 0, 1 }, 8 },
        { "a request within another",
          { HEAD(TCP_WRITE), 0, 0, 0, 0, 0x10, 0, 1, 0, 1 },
          33 }, /* completed below */
        { "an unknown flag", { HEAD(TCP_PING) | TCP_IMM }, 8 },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        _Alignas(8) static uint8_t target[2 << 20];
        struct end *end = end_create(1, NULL);
        int peer = connect_to_test(end);
        region_set(0, target, sizeof(target), ALL_ACCESS);

        assert_int_equal(write(peer, cases[i].bytes, cases[i].size), cases[i].size);
        if (strcmp(cases[i].says, "a request within another") == 0) {
            /* The first 1 MiB, then not the MORE that has to follow. */
            uint8_t *rest = calloc(1, TCP_CHUNK_MAX);
            size_t left = TCP_CHUNK_MAX - 1;
            while (left > 0) {
                ssize_t got = write(peer, rest, left);
                left -= got > 0 ? (size_t)got : 0;
                (void)ops->poll(end->cq, BUDGET);
            }
            uint8_t ping[8] = { HEAD(TCP_PING) };
            uint8_t flush[8] = { HEAD(TCP_FLUSH) | TCP_PLACED };
            assert_int_equal(write(peer, ping, 8), 8);
            assert_int_equal(write(peer, flush, 8), 8);
            free(rest);
        }
        for (int turns = 0; turns < 100 && end->core.failed == RDMUX_OK; turns++) {
            (void)ops->poll(end->cq, BUDGET);
        }

        if (end->core.failed != RDMUX_PROTOCOL) {
            fail_msg("%s: status %d", cases[i].says, (int)end->core.failed);
        }
        end_destroy(end, true);
        (void)close(peer);
    }
}

static void a_peer_may_not_have_more_reads_under_way_than_agreed(void **state)
{
    (void)state;
    struct end *end = end_create(1, NULL);
    int peer = connect_to_test(end);
    static uint8_t target[1 << 20];
    region_set(0, target, sizeof(target), ALL_ACCESS);
    uint8_t read[32] = { HEAD(TCP_READ), 0, 0, 0, 0, 0x10, 0, 0, 0, 1 };

    for (int i = 0; i < 64 && end->core.failed == RDMUX_OK; i++) {
        assert_int_equal(write(peer, read, sizeof(read)), sizeof(read));
        (void)ops->poll(end->cq, BUDGET);
    }

    assert_int_equal(end->core.failed, RDMUX_PROTOCOL);
    end_destroy(end, true);
    (void)close(peer);
}

static void bytes_that_come_one_by_one_are_understood(void **state)
{
    (void)state;
    struct end *end = end_create(1, NULL);
    int peer = connect_to_test(end);
    _Alignas(8) static uint8_t target[64];
    uint8_t slot[4] = { 0 };
    uint8_t bytes[512];
    size_t size = 0;
    uint8_t key[TCP_KEY_SIZE];
    region_set(0, target, sizeof(target), ALL_ACCESS);
    memset(key, 0, sizeof(key));
    key[1] = 1;
    receive(end, slot, sizeof(slot));
    (void)ops->poll(end->cq, BUDGET);
    size += rdmux_tcp_frame_encode(&(struct tcp_frame){ .kind = TCP_PING }, bytes + size);
    size += rdmux_tcp_frame_encode(
        &(struct tcp_frame){
            .kind = TCP_WRITE, .length = 5, .key = key, .offset = 3, .flags = TCP_PLACED },
        bytes + size);
    memcpy(bytes + size, "hello", 5);
    size += 5;
    uint8_t control[11] = { 2, 0, 0, 0, 0, 0, 0, 3, 'a', 'b', 'c' };
    memcpy(bytes + size, control, sizeof(control));
    size += sizeof(control);
    size += rdmux_tcp_frame_encode(
        &(struct tcp_frame){ .kind = TCP_SEND, .flags = TCP_IMM, .imm = 9, .length = 4 },
        bytes + size);
    memcpy(bytes + size, "four", 4);
    size += 4;
    size += rdmux_tcp_frame_encode(
        &(struct tcp_frame){
            .kind = TCP_FETCH_ADD, .key = key, .offset = 16, .operand = 2, .length = 8 },
        bytes + size);

    for (size_t i = 0; i < size; i++) {
        assert_int_equal(write(peer, bytes + i, 1), 1);
        (void)ops->poll(end->cq, BUDGET);
    }

    assert_int_equal(end->core.failed, RDMUX_OK);
    assert_memory_equal(target + 3, "hello", 5);
    assert_memory_equal(slot, "four", 4);
    assert_int_equal(end->core.arrived_count, 1);
    assert_int_equal(end->core.arrived[0]->imm, 9);
    assert_int_equal(end->core.control_size, sizeof(control));
    assert_memory_equal(end->core.control, control, sizeof(control));
    assert_int_equal(target[16], 2);
    end_destroy(end, true);
    (void)close(peer);
}

/* ---------------------------------------------------------------------------- set-up that fails */

static void a_refused_connection_says_where_and_why(void **state)
{
    (void)state;
    struct end *end = end_create(0, NULL);
    uint8_t description[TCP_DESCRIPTION_SIZE];
    int listener = listen_on_loopback(&end->address);
    (void)close(listener);
    end->attr.peer_address = (const struct sockaddr *)&end->address;
    end->attr.peer_address_length = sizeof(struct sockaddr_in);
    end_open(end);
    rdmux_tcp_description_encode(&(struct tcp_description){ .sockets = 1, .answers = 32 },
                                 description);

    enum rdmux_status status = ops->ep_connect(end->ep, description, sizeof(description));
    for (int i = 0; i < 1000 && status == RDMUX_IN_PROGRESS; i++) {
        (void)ops->poll(end->cq, BUDGET);
        status = ops->ep_connect(end->ep, NULL, 0);
    }

    assert_int_equal(status, RDMUX_REFUSED);
    assert_non_null(strstr(last_error, "data socket 1 of 1 to 127.0.0.1 port"));
    assert_non_null(strstr(last_error, "refused"));
    end_destroy(end, true);
    assert_int_equal(fabric.allocations, 0);
}

/* A test that failed leaves things behind that are not to fail the next. */
static int forget(void **state)
{
    (void)state;
    memset(&fabric, 0, sizeof(fabric));
    memset(cqs, 0, sizeof(cqs));
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(messages_of_any_size_arrive_in_order, forget),
        cmocka_unit_test_setup(an_8_byte_ping_pong_is_one_send_and_one_recv_on_each_side, forget),
        cmocka_unit_test_setup(a_batch_is_one_system_call, forget),
        cmocka_unit_test_setup(what_more_held_back_goes_out_with_the_doorbell_or_the_next_poll,
                               forget),
        cmocka_unit_test_setup(a_send_waits_for_a_receive_and_answers_do_not_wait_with_it, forget),
        cmocka_unit_test_setup(a_stream_through_a_single_receive_gets_through, forget),
        cmocka_unit_test_setup(endpoints_share_receives_and_idle_ones_give_credits_back, forget),
        cmocka_unit_test_setup(shared_receives_reach_everybody_in_any_order_of_events, forget),
        cmocka_unit_test_setup(writes_reads_and_atomics_of_any_size_do_what_they_say, forget),
        cmocka_unit_test_setup(a_random_mix_in_both_directions_keeps_every_promise, forget),
        cmocka_unit_test_setup(more_reads_than_may_be_under_way_wait_their_turn, forget),
        cmocka_unit_test_setup(a_refused_access_fails_that_request_and_changes_no_byte, forget),
        cmocka_unit_test_setup(a_region_revoked_under_way_stops_the_copy_and_refuses, forget),
        cmocka_unit_test_setup(a_message_longer_than_its_receive_fails_both_ends, forget),
        cmocka_unit_test_setup(messages_that_came_are_reported_before_the_end, forget),
        cmocka_unit_test_setup(quiesce_hands_out_what_has_come_and_counts_it, forget),
        cmocka_unit_test_setup(an_endpoint_may_end_in_the_middle_of_anything, forget),
        cmocka_unit_test_setup(the_descriptor_wakes_for_a_message_and_not_without, forget),
        cmocka_unit_test_setup(control_frames_travel_between_the_data, forget),
        cmocka_unit_test_setup(a_shared_socket_keeps_its_options_and_stays_open, forget),
        cmocka_unit_test_setup(a_peer_that_lies_ends_the_endpoint, forget),
        cmocka_unit_test_setup(a_peer_may_not_have_more_reads_under_way_than_agreed, forget),
        cmocka_unit_test_setup(bytes_that_come_one_by_one_are_understood, forget),
        cmocka_unit_test_setup(a_refused_connection_says_where_and_why, forget),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
