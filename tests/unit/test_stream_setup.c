/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Streams from their options to their end: wrong options, failing allocations, nothing left. */
#include "stream_scene.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

static void wrong_options_are_refused_and_named(void **state)
{
    (void)state;
    static const struct {
        struct rdmux_stream_attr attr;
        const char *part;
    } cases[] = {
        { { .size = 2 }, "attr.size" },
        { { .size = sizeof(struct rdmux_stream_attr), .flags = 2 }, "attr.flags" },
        { { .size = sizeof(struct rdmux_stream_attr), .ring = 5000 }, "attr.ring" },
        { { .size = sizeof(struct rdmux_stream_attr), .ring = 2048 }, "attr.ring" },
        { { .size = sizeof(struct rdmux_stream_attr), .ring = 1 << 27 }, "attr.ring" },
        { { .size = sizeof(struct rdmux_stream_attr), .direct = 4095 }, "attr.direct" },
        { { .size = sizeof(struct rdmux_stream_attr), .linger_ms = 1U << 31 }, "attr.linger_ms" },
    };
    struct pair pair;
    open_sides(&pair, "tcp", 0, 0);
    for (size_t i = 0; i < RDMUX_COUNT_OF(cases); i++) {
        struct rdmux_stream *stream = (struct rdmux_stream *)&pair;

        CHECK_STATUS(
            rdmux_stream_connect(pair.fabric_a, NULL, pair.address, &cases[i].attr, 0, &stream),
            RDMUX_INVALID);

        assert_null(stream);
        assert_non_null(strstr(rdmux_last_error(), cases[i].part));
        CHECK_STATUS(rdmux_stream_accept(pair.listener, NULL, &cases[i].attr, 0, &stream),
                     RDMUX_INVALID);
    }
    close_pair(&pair);
}

static void wrong_options_of_the_endpoint_are_refused(void **state)
{
    (void)state;
    struct pair pair;
    struct rdmux_srq *srq = NULL;
    struct rdmux_stream *stream = NULL;
    open_sides(&pair, "tcp", 0, 0);
    CHECK_OK(rdmux_srq_create(pair.fabric_a, pair.cq_a, NULL, &srq));
    struct rdmux_ep_attr eps[5] = { RDMUX_EP_ATTR_INIT, RDMUX_EP_ATTR_INIT, RDMUX_EP_ATTR_INIT,
                                    RDMUX_EP_ATTR_INIT, RDMUX_EP_ATTR_INIT };
    eps[0].srq = srq;
    eps[1].send_depth = 31;
    eps[2].recv_depth = 31;
    eps[3].size = 4;
    eps[4].failover = 7;
    for (size_t i = 0; i < RDMUX_COUNT_OF(eps); i++) {
        struct rdmux_stream_attr attr = RDMUX_STREAM_ATTR_INIT;
        attr.ep = &eps[i];

        CHECK_STATUS(rdmux_stream_connect(pair.fabric_a, pair.cq_a, pair.address, &attr, 0, &stream),
                     RDMUX_INVALID);
        CHECK_STATUS(rdmux_stream_accept(pair.listener, NULL, &attr, -1, &stream), RDMUX_INVALID);
    }
    CHECK_STATUS(rdmux_stream_connect(pair.fabric_a, NULL, "rdma://127.0.0.1", NULL, 0, &stream),
                 RDMUX_UNSUPPORTED);
    CHECK_STATUS(rdmux_stream_connect(NULL, NULL, pair.address, NULL, 0, &stream), RDMUX_INVALID);
    CHECK_STATUS(rdmux_stream_connect(pair.fabric_a, NULL, NULL, NULL, 0, &stream), RDMUX_INVALID);
    CHECK_STATUS(rdmux_stream_connect(pair.fabric_a, NULL, pair.address, NULL, 0, NULL),
                 RDMUX_INVALID);
    CHECK_STATUS(rdmux_stream_connect(pair.fabric_a, pair.cq_b, pair.address, NULL, 0, &stream),
                 RDMUX_INVALID);
    CHECK_STATUS(rdmux_stream_accept(NULL, NULL, NULL, 0, &stream), RDMUX_INVALID);
    CHECK_STATUS(rdmux_stream_accept(pair.listener, NULL, NULL, -2, &stream), RDMUX_INVALID);
    CHECK_STATUS(rdmux_stream_accept(pair.listener, NULL, NULL, 0, NULL), RDMUX_INVALID);
    CHECK_STATUS(rdmux_stream_adopt(pair.fabric_a, NULL, -1, RDMUX_ROLE_CONNECT, NULL, 0, &stream),
                 RDMUX_INVALID);
    CHECK_STATUS(rdmux_stream_open(NULL, NULL, &stream), RDMUX_INVALID);
    CHECK_OK(rdmux_stream_close(NULL));
    CHECK_OK(rdmux_srq_destroy(srq));
    close_pair(&pair);
}

static void an_accept_that_finds_nothing_allocates_nothing(void **state)
{
    (void)state;
    struct meter meter = { 0 };
    char address[RDMUX_ADDRESS_MAX];
    struct rdmux_stream *stream = NULL;
    struct rdmux_fabric *fabric = open_metered_fabric("tcp", 0, NULL, &meter);
    struct rdmux_cq *cq = create_cq(fabric);
    struct rdmux_listener *listener = listen_here(fabric, NULL, address);
    const long before = atomic_load(&meter.left);

    CHECK_STATUS(rdmux_stream_accept(listener, NULL, NULL, 0, &stream), RDMUX_AGAIN);
    CHECK_STATUS(rdmux_stream_accept(listener, cq, NULL, 0, &stream), RDMUX_AGAIN);

    assert_int_equal(atomic_load(&meter.left), before);
    rdmux_listener_close(listener);
    CHECK_OK(rdmux_cq_destroy(cq));
    CHECK_OK(rdmux_fabric_close(fabric));
}

static void a_connect_without_a_listener_is_refused_and_leaves_nothing(void **state)
{
    (void)state;
    struct meter meter = { 0 };
    char address[RDMUX_ADDRESS_MAX];
    struct rdmux_stream *stream = NULL;
    struct rdmux_fabric *fabric = open_metered_fabric("tcp", 0, NULL, &meter);
    struct rdmux_listener *listener = listen_here(fabric, NULL, address);
    rdmux_listener_close(listener);

    CHECK_STATUS(rdmux_stream_connect(fabric, NULL, address, NULL, PATIENT_MS, &stream),
                 RDMUX_REFUSED);

    assert_null(stream);
    CHECK_OK(rdmux_fabric_close(fabric));
    assert_int_equal(atomic_load(&meter.pieces), 0);
}

static void an_endpoint_in_use_becomes_no_stream(void **state)
{
    struct pair pair;
    struct rdmux_stream *stream = NULL;
    uint8_t byte;
    open_pair(&pair, *state, NULL);
    CHECK_OK(rdmux_recv(pair.a, &byte, 1, NULL, NULL));

    CHECK_STATUS(rdmux_stream_open(pair.a, NULL, &stream), RDMUX_INVALID);

    assert_null(stream);
    close_pair(&pair);
}

static void a_stream_belongs_to_one_cq(void **state)
{
    struct stream_pair streams;
    open_streams(&streams, *state, false, NULL);

    CHECK_STATUS(rdmux_ep_move(rdmux_stream_ep(streams.a), streams.pair.cq_a), RDMUX_INVALID);

    check_flow(streams.a, streams.b, 100000);
    close_streams(&streams);
}

static void endpoints_in_set_up_become_streams(void **state)
{
    struct pair pair;
    struct rdmux_stream *a = NULL;
    struct rdmux_stream *b = NULL;
    struct rdmux_ep *ep = NULL;
    open_sides(&pair, *state, 0, 0);
    CHECK_STATUS(rdmux_connect(pair.fabric_a, pair.cq_a, pair.address, NULL, 0, &ep),
                 RDMUX_IN_PROGRESS);
    CHECK_OK(rdmux_stream_open(ep, NULL, &a));
    CHECK_OK(rdmux_accept(pair.listener, pair.cq_b, NULL, PATIENT_MS, &ep));
    CHECK_OK(rdmux_stream_open(ep, NULL, &b));

    check_flow(a, b, 300000);
    check_flow(b, a, 300000);

    CHECK_OK(rdmux_stream_close(a));
    (void)rdmux_stream_close(b);
    close_pair(&pair);
}

/* Two sides, of which one lacks memory from some allocation on. */
struct poor {
    struct meter meter;
    struct stream_pair streams;
};

static void open_poor(struct poor *poor, const char *path, bool is_a)
{
    struct pair *pair = &poor->streams.pair;
    memset(poor, 0, sizeof(*poor));
    pair->fabric_a = open_metered_fabric(path, 0, NULL, is_a ? &poor->meter : NULL);
    pair->fabric_b = open_metered_fabric(path, 0, NULL, is_a ? NULL : &poor->meter);
    pair->cq_a = create_cq(pair->fabric_a);
    pair->cq_b = create_cq(pair->fabric_b);
    pair->listener = listen_here(pair->fabric_b, NULL, pair->address);
}

/* Returns whether no allocation has failed. Nothing is left then. */
static bool close_poor(struct poor *poor)
{
    const bool all_done = atomic_load(&poor->meter.left) > 0;
    atomic_store(&poor->meter.left, 0);
    close_streams(&poor->streams);
    assert_int_equal(atomic_load(&poor->meter.pieces), 0);
    assert_int_equal(atomic_load(&poor->meter.bytes), 0);
    return all_done;
}

static bool try_connect(const char *path, long fails_at)
{
    struct poor poor;
    struct pair *pair = &poor.streams.pair;
    open_poor(&poor, path, true);
    struct rdmux_cq *cq = fails_at % 2 == 0 ? NULL : pair->cq_a;
    atomic_store(&poor.meter.left, fails_at);
    enum rdmux_status status = rdmux_stream_connect(pair->fabric_a, cq, pair->address, NULL, 0,
                                                    &poor.streams.a);
    if (status == RDMUX_IN_PROGRESS) {
        /* An endpoint that lacks memory later ends, with a status. */
        enum rdmux_status accepted = rdmux_stream_accept(pair->listener, NULL, NULL, 200,
                                                         &poor.streams.b);
        assert_true(accepted == RDMUX_OK || accepted == RDMUX_TIMED_OUT);
        CHECK_OK(rdmux_stream_wait(poor.streams.a, RDMUX_STREAM_WRITE, PATIENT_MS));
    } else {
        CHECK_STATUS(status, RDMUX_NO_MEMORY);
        assert_null(poor.streams.a);
    }
    return close_poor(&poor);
}

/* Waits until the listener has a connection to show, and leaves it there. */
static void await_connection(struct rdmux_listener *listener)
{
    struct pollfd look = { .fd = rdmux_listener_fd(listener), .events = POLLIN };
    assert_int_equal(poll(&look, 1, PATIENT_MS), 1);
}

/* A client whose connection is not accepted for want of memory is told, and does not wait until its
 * own time is over. */
static bool try_accept(const char *path, long fails_at)
{
    struct poor poor;
    struct pair *pair = &poor.streams.pair;
    struct rdmux_peer peer = RDMUX_PEER_INIT;
    struct rdmux_ep_attr ep = RDMUX_EP_ATTR_INIT;
    struct rdmux_stream_attr attr = RDMUX_STREAM_ATTR_INIT;
    const bool by_name = fails_at % 2 == 0; /* and on a cq of the program */
    open_poor(&poor, path, false);
    ep.setup_timeout_ms = 4 * PATIENT_MS;
    attr.ep = &ep;
    CHECK_STATUS(
        rdmux_stream_connect(pair->fabric_a, NULL, pair->address, &attr, 0, &poor.streams.a),
        RDMUX_IN_PROGRESS);
    await_connection(pair->listener);
    if (by_name) {
        CHECK_OK(rdmux_listener_next(pair->listener, 0, &peer));
        ep.peer = peer.id;
    }
    atomic_store(&poor.meter.left, fails_at);
    enum rdmux_status status = rdmux_stream_accept(pair->listener, by_name ? pair->cq_b : NULL,
                                                   &attr, 200, &poor.streams.b);
    if (status != RDMUX_OK) {
        if (status != RDMUX_NO_MEMORY && status != RDMUX_TIMED_OUT && status != RDMUX_PEER_GONE &&
            status != RDMUX_NO_PATH) {
            fail_msg("allocation %ld: %s: %s", fails_at, rdmux_status_name(status),
                     rdmux_last_error());
        }
        assert_null(poor.streams.b);
        (void)rdmux_reject(pair->listener, peer.id, 0, NULL, 0); /* it knows the name */
    }
    CHECK_OK(rdmux_stream_wait(poor.streams.a, RDMUX_STREAM_WRITE, PATIENT_MS));
    return close_poor(&poor);
}

/* An endpoint that becomes no stream stays as it was. */
static bool try_endpoint(const char *path, long fails_at)
{
    struct poor poor;
    struct pair *pair = &poor.streams.pair;
    open_poor(&poor, path, true);
    connect_more(pair, NULL, &pair->a, &pair->b);
    atomic_store(&poor.meter.left, fails_at);
    enum rdmux_status status = rdmux_stream_open(pair->a, NULL, &poor.streams.a);
    if (status == RDMUX_OK) {
        CHECK_OK(rdmux_stream_open(pair->b, NULL, &poor.streams.b));
        pair->a = NULL;
        pair->b = NULL;
        CHECK_OK(rdmux_stream_wait(poor.streams.a, RDMUX_STREAM_WRITE, PATIENT_MS));
    } else {
        CHECK_STATUS(status, RDMUX_NO_MEMORY);
        assert_null(poor.streams.a);
        atomic_store(&poor.meter.left, 0);
        check_messages(pair);
    }
    return close_poor(&poor) && status == RDMUX_OK;
}

/* The socket belongs to the library from the call on, as that of rdmux_adopt(). */
static bool try_socket(const char *path, long fails_at)
{
    struct poor poor;
    struct pair *pair = &poor.streams.pair;
    int sockets[2];
    open_poor(&poor, path, true);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
    atomic_store(&poor.meter.left, fails_at);
    enum rdmux_status status = rdmux_stream_adopt(pair->fabric_a, NULL, sockets[0],
                                                  RDMUX_ROLE_CONNECT, NULL, 0, &poor.streams.a);
    if (status == RDMUX_IN_PROGRESS) {
        assert_int_equal(close(sockets[1]), 0);
        CHECK_OK(rdmux_stream_wait(poor.streams.a, RDMUX_STREAM_END, PATIENT_MS));
    } else {
        CHECK_STATUS(status, RDMUX_NO_MEMORY);
        assert_null(poor.streams.a);
        assert_int_equal(fcntl(sockets[0], F_GETFD), -1);
        assert_int_equal(close(sockets[1]), 0);
    }
    return close_poor(&poor);
}

static void each_failing_allocation_of_a_set_up_is_survived(void **state)
{
    static bool (*const ways[])(const char *path, long fails_at) = { try_connect, try_accept,
                                                                     try_endpoint, try_socket };
    for (size_t i = 0; i < RDMUX_COUNT_OF(ways); i++) {
        long fails_at = 1;
        while (!ways[i](*state, fails_at)) {
            fails_at++;
            assert_true(fails_at < 500);
        }
        assert_true(fails_at > 3);
    }
}

static void a_socket_of_the_program_becomes_two_streams(void **state)
{
    (void)state;
    struct stream_pair streams;
    int sockets[2];
    memset(&streams, 0, sizeof(streams));
    open_sides(&streams.pair, "tcp", 0, 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
    CHECK_STATUS(rdmux_stream_adopt(streams.pair.fabric_a, NULL, sockets[0], RDMUX_ROLE_CONNECT,
                                    NULL, 0, &streams.a),
                 RDMUX_IN_PROGRESS);
    CHECK_OK(rdmux_stream_adopt(streams.pair.fabric_b, NULL, sockets[1], RDMUX_ROLE_ACCEPT, NULL,
                                PATIENT_MS, &streams.b));

    check_flow(streams.a, streams.b, 200000);

    close_streams(&streams);
}

int main(void)
{
    static char tcp[] = "tcp";
    static char shm[] = "shm";
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_options_are_refused_and_named),
        cmocka_unit_test(wrong_options_of_the_endpoint_are_refused),
        cmocka_unit_test(an_accept_that_finds_nothing_allocates_nothing),
        cmocka_unit_test(a_connect_without_a_listener_is_refused_and_leaves_nothing),
        cmocka_unit_test_prestate(an_endpoint_in_use_becomes_no_stream, tcp),
        cmocka_unit_test_prestate(a_stream_belongs_to_one_cq, tcp),
        cmocka_unit_test_prestate(a_stream_belongs_to_one_cq, shm),
        cmocka_unit_test_prestate(endpoints_in_set_up_become_streams, tcp),
        cmocka_unit_test_prestate(endpoints_in_set_up_become_streams, shm),
        cmocka_unit_test_prestate(each_failing_allocation_of_a_set_up_is_survived, tcp),
        cmocka_unit_test_prestate(each_failing_allocation_of_a_set_up_is_survived, shm),
        cmocka_unit_test(a_socket_of_the_program_becomes_two_streams),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
