/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Both ends of a connection of the tcp provider, in one thread, over the fake core. The test takes
 * each step by hand. */
#ifndef RDMUX_TESTS_TCP_PAIR_H
#define RDMUX_TESTS_TCP_PAIR_H

#include "tcp_fallback/tcp_completion.h"
#include "tcp_fallback/tcp_provider.h"
#include "tests/unit/fake_core.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

enum {
    BUDGET = 64,
    TURNS_MAX = 400000,
    REQUESTS_MAX = 4096,
    ALL_ACCESS = RDMUX_ACCESS_REMOTE_READ | RDMUX_ACCESS_REMOTE_WRITE | RDMUX_ACCESS_REMOTE_ATOMIC,
};

static const struct rdmux_provider_ops *const ops = &rdmux_tcp_provider;

/* One end, and the requests that its application posts in the course of a test. */
struct end {
    struct rdmux_provider_domain *domain;
    struct rdmux_provider_cq *cq;
    struct rdmux_provider_ep *ep;
    struct rdmux_provider_ep_attr attr;
    struct sockaddr_storage address;
    struct rdmux_cq core_cq;
    struct rdmux_ep core;
    struct rdmux_provider_remote *remotes[FAKE_REGIONS_MAX];
    struct rdmux_request requests[REQUESTS_MAX];
    struct rdmux_provider_sge sges[REQUESTS_MAX];
    uint32_t queued;
    uint32_t started; /* how many queued requests the provider has */
    bool held;        /* the provider returned RDMUX_AGAIN */
    struct rdmux_request receives[FAKE_RECEIVES_MAX];
    struct rdmux_provider_sge receive_sges[FAKE_RECEIVES_MAX];
    uint32_t receive_count;
};

enum wiring {
    WIRED_UNIX, /* one adopted AF_UNIX socket, shared with the control channel */
    WIRED_TCP,  /* one adopted TCP socket, shared with the control channel */
    WIRED_ONE,  /* one data socket */
    WIRED_FOUR, /* four data sockets */
    WIRED_COUNT,
};

/* Clears the state that a failed test has left, so that the next test does not fail from it. */
static inline int clear_state(void **state)
{
    (void)state;
    memset(&fake_fabric, 0, sizeof(fake_fabric));
    memset(fake_regions, 0, sizeof(fake_regions));
    fake_streams = false;
    return 0;
}

/* Clears the state as clear_state() does, and gives endpoints that connect a fake stream. */
static inline int clear_state_and_stream(void **state)
{
    (void)clear_state(state);
    fake_streams = true;
    return 0;
}

/* ------------------------------------------------------------------------------------- one end */

/* on: the cq of another end, or NULL for a cq of its own. */
static inline struct end *end_create(enum rdmux_role role, struct rdmux_provider_cq *on)
{
    struct end *end = calloc(1, sizeof(*end));
    assert_non_null(end);
    end->domain = on != NULL ? on->domain : fake_object(ops->domain_size);
    end->cq = on;
    if (on == NULL) {
        struct rdmux_local_path path;
        size_t count = 0;
        end->domain->ops = ops;
        end->domain->fabric = &fake_fabric;
        assert_int_equal(ops->probe(&fake_fabric, &path, 1, &count), RDMUX_OK);
        assert_int_equal(count, 1);
        assert_int_equal(ops->domain_open(end->domain, &path), RDMUX_OK);
        end->cq = fake_object(ops->cq_size);
        end->cq->domain = end->domain;
        end->cq->cq = &end->core_cq;
        assert_int_equal(ops->cq_open(end->cq, 1000), RDMUX_OK);
    }
    end->ep = fake_object(ops->ep_size);
    end->ep->ops = ops;
    end->ep->cq = end->cq;
    end->ep->ep = &end->core;
    end->attr = (struct rdmux_provider_ep_attr){
        .role = role,
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

static inline void end_open(struct end *end)
{
    assert_int_equal(ops->ep_open(end->ep, &end->attr), RDMUX_OK);
    end->cq->ep_count++;
}

static inline void ep_destroy(struct end *end)
{
    for (size_t i = 0; i < FAKE_REGIONS_MAX; i++) {
        if (end->remotes[i] != NULL) {
            ops->remote_close(end->remotes[i]);
            free(end->remotes[i]);
        }
    }
    ops->ep_close(end->ep);
    end->cq->ep_count--;
    free(end->ep);
}

static inline void end_destroy(struct end *end, bool with_cq)
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

/* ----------------------------------------------------------------------------- their connection */

static inline int listen_on_loopback(struct sockaddr_storage *address)
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

static inline void socket_pair(bool tcp, int out[2])
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

static inline void connect_ends(struct end *a, struct end *b, enum wiring wiring)
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
    for (int turn = 0; fake_streams && turn < 1000; turn++) { /* the streams' handshake */
        (void)ops->poll(a->cq, BUDGET);
        at_a = at_a == RDMUX_IN_PROGRESS ? ops->ep_connect(a->ep, NULL, 0) : at_a;
        (void)ops->poll(b->cq, BUDGET);
        at_b = at_b == RDMUX_IN_PROGRESS ? ops->ep_connect(b->ep, NULL, 0) : at_b;
    }
    assert_int_equal(at_a, RDMUX_OK);
    assert_int_equal(at_b, RDMUX_OK);
}

struct pair {
    struct end *a; /* connects */
    struct end *b;
};

static inline struct pair pair_create(enum wiring wiring)
{
    struct pair pair = { end_create(RDMUX_ROLE_CONNECT, NULL), end_create(RDMUX_ROLE_ACCEPT, NULL) };
    connect_ends(pair.a, pair.b, wiring);
    return pair;
}

static inline void pair_destroy(struct pair pair)
{
    int shared[2] = { pair.a->attr.shared_socket, pair.b->attr.shared_socket };
    end_destroy(pair.a, true);
    end_destroy(pair.b, true);
    for (int i = 0; i < 2; i++) {
        if (shared[i] >= 0) {
            (void)close(shared[i]);
        }
    }
    assert_int_equal(fake_fabric.allocations, 0);
}

/* ------------------------------------------------------------------------------------- requests */

/* Posts queued requests until the provider takes no more. */
static inline void post_queued(struct end *end)
{
    end->ep->ready = 0;
    if (end->ep->resume) {
        end->ep->resume = 0;
        end->held = false;
    }
    if (end->started < end->queued && !end->held && end->core.failed == RDMUX_OK) {
        size_t posted = 0;
        enum rdmux_status status = ops->post(end->ep, &end->requests[end->started],
                                             end->queued - end->started, 0, &posted);
        end->started += (uint32_t)posted;
        end->held = status == RDMUX_AGAIN;
        assert_true(status == RDMUX_OK || status == RDMUX_AGAIN);
    }
}

static inline struct rdmux_request *queue(struct end *end, uint32_t op, void *buffer,
                                          uint64_t length, int region, uint64_t offset,
                                          uint32_t flags)
{
    assert_true(end->queued < REQUESTS_MAX);
    struct rdmux_request *request = &end->requests[end->queued];
    struct rdmux_provider_sge *sge = &end->sges[end->queued];
    end->queued++;
    *sge = (struct rdmux_provider_sge){ buffer, length, NULL };
    *request = (struct rdmux_request){
        .op = op,
        .flags = flags,
        .sge_count = length > 0 ? 1 : 0,
        .length = length,
        .sges = sge,
        .remote = region < 0 ? NULL : end->remotes[region],
        .offset = offset,
    };
    return request;
}

/* Posts a receive. For an endpoint with an SRQ, it becomes the SRQ's, and the caller tells the
 * provider. */
static inline void receive(struct end *end, void *buffer, uint64_t length)
{
    assert_true(end->receive_count < FAKE_RECEIVES_MAX);
    struct rdmux_request *request = &end->receives[end->receive_count];
    struct rdmux_provider_sge *sge = &end->receive_sges[end->receive_count];
    end->receive_count++;
    *sge = (struct rdmux_provider_sge){ buffer, length, NULL };
    *request = (struct rdmux_request){
        .op = RDMUX_OP_RECV, .sge_count = 1, .length = length, .sges = sge
    };
    fake_receive(fake_receives_of(&end->core), request);
    if (end->core.srq == NULL) {
        assert_int_equal(ops->post_recv(end->ep, request, 1), RDMUX_OK);
    }
}

static inline void step_ends(struct end *a, struct end *b)
{
    post_queued(a);
    (void)ops->poll(a->cq, BUDGET);
    if (b != NULL) {
        post_queued(b);
        (void)ops->poll(b->cq, BUDGET);
    }
}

#define RUN_UNTIL(a, b, condition)                                \
    do {                                                          \
        int turns_left = TURNS_MAX;                               \
        while (!(condition) && --turns_left > 0) {                \
            step_ends(a, b);                                      \
        }                                                         \
        if (turns_left == 0) {                                    \
            fail_msg("line %d: never: %s", __LINE__, #condition); \
        }                                                         \
    } while (0)

/* Imports fake_regions[index] of the owner as the user's remotes[index]. */
static inline void import_region(struct end *owner, struct end *user, int index)
{
    struct rdmux_provider_mr mr = { owner->domain, &fake_regions[index] };
    uint8_t description[RDMUX_DESCRIPTION_MAX];
    size_t size = sizeof(description);
    const struct rdmux_provider_mr_attr attr = { .addr = fake_regions[index].addr,
                                                 .length = fake_regions[index].length,
                                                 .memory_fd = fake_regions[index].memory_fd };
    assert_int_equal(ops->mr_register(&mr, &attr), RDMUX_OK);
    assert_int_equal(ops->mr_describe(&mr, owner->ep, description, &size), RDMUX_OK);
    struct rdmux_provider_remote *remote = fake_object(ops->remote_size);
    remote->ep = user->ep;
    remote->length = fake_regions[index].length;
    assert_int_equal(ops->remote_open(remote, description, size), RDMUX_OK);
    user->remotes[index] = remote;
    assert_int_equal(ops->mr_invalidate(&mr), RDMUX_OK);
    ops->mr_deregister(&mr);
}

/* ---------------------------------------------------------------------------------------- bytes */

static inline uint8_t byte_at(uint64_t seed, uint64_t at)
{
    return (uint8_t)(seed * 131 + at * 7 + (at >> 8));
}

static inline void fill(uint8_t *bytes, uint64_t length, uint64_t seed)
{
    for (uint64_t i = 0; i < length; i++) {
        bytes[i] = byte_at(seed, i);
    }
}

static inline void check(const uint8_t *bytes, uint64_t length, uint64_t seed)
{
    for (uint64_t i = 0; i < length; i++) {
        if (bytes[i] != byte_at(seed, i)) {
            fail_msg("byte %llu of %llu is wrong", (unsigned long long)i,
                     (unsigned long long)length);
        }
    }
}

/* A small generator with the same numbers on every machine. */
static inline uint64_t next_random(uint64_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed;
}

#endif
