/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* A connector that sends and closes before the acceptor has polled: rdmux_accept() still returns
 * the connection with the data that arrived. Neither side has threads, and time stands still unless
 * a test moves it, so the test controls the order of events. */
#include "tests/unit/api_pair.h"

enum {
    MESSAGES = 3,
    SOME_STEPS = 1000, /* more than anything here needs */
    ACCEPT_MS = 5000,
    TICK_MS = 20, /* timers are at most this late */
    MANUAL = RDMUX_FABRIC_IGNORE_ENVIRONMENT | RDMUX_FABRIC_NO_DEFAULT_PLUGINS |
             RDMUX_FABRIC_NO_SERVICE_THREAD | RDMUX_FABRIC_NO_WORKER_THREAD,
};

/* On tcp a message leaves only when the peer's receive is known, but for one small message that goes
 * early: without receives it alone arrives. */
static const struct {
    const char *name;
    uint64_t arrive; /* of MESSAGES, before there is a receive */
} paths[] = { { "tcp", 1 }, { "shm", MESSAGES } };

static uint64_t clock_now_ns;

static uint64_t read_clock(void *user)
{
    (void)user;
    return clock_now_ns;
}

static void let_pass(uint64_t ms)
{
    clock_now_ns += ms * 1000000;
}

/* ---------------------------------------------------------------------------------------- scene */

static struct rdmux_fabric *open_stopped(const char *path)
{
    struct rdmux_fabric_attr attr = RDMUX_FABRIC_ATTR_INIT;
    struct rdmux_fabric *fabric = NULL;
    attr.flags = MANUAL;
    attr.paths = path;
    attr.clock_ns = read_clock;
    CHECK_OK(rdmux_fabric_open(&attr, &fabric));
    return fabric;
}

static void open_scene(struct pair *pair, const char *path)
{
    struct rdmux_listen_attr attr = RDMUX_LISTEN_ATTR_INIT;
    attr.accept_timeout_ms = ACCEPT_MS;
    memset(pair, 0, sizeof(*pair));
    clock_now_ns = UINT64_C(1000000000000);
    pair->fabric_a = open_stopped(path);
    pair->fabric_b = open_stopped(path);
    pair->cq_a = create_cq(pair->fabric_a);
    pair->cq_b = create_cq(pair->fabric_b);
    pair->listener = listen_here(pair->fabric_b, &attr, pair->address);
}

/* One step of a. Tells whether there is an entry. */
static bool step_a(struct pair *pair, struct rdmux_wc *wc)
{
    CHECK_OK(rdmux_fabric_progress(pair->fabric_a));
    return rdmux_cq_poll(pair->cq_a, wc, 1) == 1;
}

static void step_b(struct pair *pair)
{
    struct rdmux_wc none;
    CHECK_OK(rdmux_fabric_progress(pair->fabric_b));
    assert_int_equal(rdmux_cq_poll(pair->cq_b, &none, 1), 0);
}

static struct rdmux_peer see_arrival(struct pair *pair)
{
    struct rdmux_peer peer = RDMUX_PEER_INIT;
    struct rdmux_wc wc;
    uint64_t until = now_ms() + PATIENT_MS;
    while (rdmux_listener_next(pair->listener, 0, &peer) != RDMUX_OK) {
        assert_true(now_ms() < until);
        assert_false(step_a(pair, &wc));
    }
    return peer;
}

/* Connects a. b accepts, and takes no step once a is connected, so that CONFIRM waits in b's
 * socket. */
static void go_until_a_is_connected(struct pair *pair)
{
    struct rdmux_wc wc;
    uint64_t until = now_ms() + PATIENT_MS;
    while (!step_a(pair, &wc)) {
        assert_true(now_ms() < until);
        step_b(pair);
    }
    assert_int_equal(wc.opcode, RDMUX_WC_CONNECTED);
    assert_int_equal(wc.status, RDMUX_OK);
}

static void start_connect(struct pair *pair)
{
    CHECK_STATUS(rdmux_connect(pair->fabric_a, pair->cq_a, pair->address, NULL, 0, &pair->a),
                 RDMUX_IN_PROGRESS);
}

static void connect_a_as(struct pair *pair, const struct rdmux_ep_attr *as_b)
{
    struct rdmux_ep *none = NULL;
    start_connect(pair);
    (void)see_arrival(pair);
    CHECK_STATUS(rdmux_accept(pair->listener, pair->cq_b, as_b, 0, &none), RDMUX_AGAIN);
    go_until_a_is_connected(pair);
}

static void connect_a(struct pair *pair)
{
    connect_a_as(pair, NULL);
}

/* Returns b's endpoint that no call has returned yet. */
static const struct rdmux_ep *held_of(const struct pair *pair)
{
    assert_false(rdmux_list_empty(&pair->cq_b->lists.accepting));
    return RDMUX_CONTAINER(pair->cq_b->lists.accepting.next, struct rdmux_ep, places.accepting);
}

static void see_connected(struct pair *pair)
{
    uint64_t until = now_ms() + PATIENT_MS;
    while (!held_of(pair)->accept.is_proved) {
        assert_true(now_ms() < until);
        step_b(pair);
    }
}

/* Waits until b has noticed the end of a. */
static void see_end(struct pair *pair, const struct rdmux_ep *ep)
{
    uint64_t until = now_ms() + PATIENT_MS;
    while (ep->phase <= RDMUX_PHASE_READY) {
        assert_true(now_ms() < until);
        step_b(pair);
    }
    step_b(pair);
}

static void send_messages(struct pair *pair)
{
    for (uint32_t i = 0; i < MESSAGES; i++) {
        CHECK_OK(rdmux_send(pair->a, &i, sizeof(i), NULL, NULL, RDMUX_INLINE | RDMUX_UNSIGNALED));
    }
}

static void close_a(struct pair *pair)
{
    CHECK_OK(rdmux_ep_close(pair->a));
    pair->a = NULL;
}

static void accept_b(struct pair *pair)
{
    uint64_t until = now_ms() + PATIENT_MS;
    enum rdmux_status status;
    while ((status = rdmux_accept(pair->listener, pair->cq_b, NULL, 0, &pair->b)) == RDMUX_AGAIN) {
        assert_true(now_ms() < until);
        CHECK_OK(rdmux_fabric_progress(pair->fabric_b));
    }
    CHECK_OK(status);
}

static struct rdmux_wc next_of_b(struct pair *pair)
{
    struct rdmux_wc wc;
    uint64_t until = now_ms() + PATIENT_MS;
    while (rdmux_cq_poll(pair->cq_b, &wc, 1) == 0) {
        assert_true(now_ms() < until);
        CHECK_OK(rdmux_fabric_progress(pair->fabric_b));
    }
    assert_ptr_equal(wc.ep, pair->b);
    return wc;
}

/* b posts one receive after the other, as long as posts succeed. Expects `count` messages, then the
 * end with this status, then no entry. */
static void expect_messages(struct pair *pair, uint64_t count, enum rdmux_status end)
{
    uint32_t got = UINT32_MAX;
    uint64_t came = 0;
    struct rdmux_wc wc;
    enum rdmux_status posted;
    do {
        posted = rdmux_recv(pair->b, &got, sizeof(got), NULL, CONTEXT(came));
        wc = next_of_b(pair);
        if (wc.opcode == RDMUX_WC_RECV && wc.status == RDMUX_OK) {
            assert_int_equal(got, came);
            came++;
        } else if (wc.opcode == RDMUX_WC_RECV) {
            wc = next_of_b(pair);
        }
    } while (wc.opcode == RDMUX_WC_RECV);
    assert_true(posted == RDMUX_OK || posted == RDMUX_PEER_GONE);
    assert_int_equal(wc.opcode, RDMUX_WC_DISCONNECTED);
    assert_int_equal(wc.status, end);
    assert_int_equal(came, count);
    for (int i = 0; i < SOME_STEPS; i++) {
        step_b(pair);
    }
}

/* ------------------------------------------------------------------------ before accept returns */

static void a_connection_closed_before_its_confirmation_is_accepted_with_its_messages(void **state)
{
    (void)state;
    for (size_t i = 0; i < RDMUX_COUNT_OF(paths); i++) {
        struct pair pair;
        open_scene(&pair, paths[i].name);
        connect_a(&pair);
        send_messages(&pair);

        close_a(&pair);

        accept_b(&pair);
        expect_messages(&pair, paths[i].arrive, RDMUX_PEER_GONE);
        close_pair(&pair);
    }
}

static void a_connection_that_ended_before_accept_is_accepted_with_its_messages(void **state)
{
    (void)state;
    for (size_t i = 0; i < RDMUX_COUNT_OF(paths); i++) {
        struct pair pair;
        open_scene(&pair, paths[i].name);
        connect_a(&pair);
        see_connected(&pair);
        send_messages(&pair);

        close_a(&pair);

        see_end(&pair, held_of(&pair));
        accept_b(&pair);
        struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
        CHECK_OK(rdmux_ep_info(pair.b, &info));
        assert_int_equal(info.state, RDMUX_EP_ENDED);
        assert_int_equal(info.status, RDMUX_PEER_GONE);
        expect_messages(&pair, paths[i].arrive, RDMUX_PEER_GONE);
        close_pair(&pair);
    }
}

static void a_connection_closed_without_a_message_is_accepted(void **state)
{
    (void)state;
    for (size_t i = 0; i < RDMUX_COUNT_OF(paths); i++) {
        struct pair pair;
        open_scene(&pair, paths[i].name);
        connect_a(&pair);

        close_a(&pair);

        accept_b(&pair);
        expect_messages(&pair, 0, RDMUX_PEER_GONE);
        close_pair(&pair);
    }
}

static void several_closed_connections_are_accepted_one_by_one(void **state)
{
    (void)state;
    for (size_t i = 0; i < RDMUX_COUNT_OF(paths); i++) {
        struct pair pair;
        open_scene(&pair, paths[i].name);
        for (int n = 0; n < 3; n++) {
            connect_a(&pair);
            send_messages(&pair);
            close_a(&pair);
            accept_b(&pair);
            expect_messages(&pair, paths[i].arrive, RDMUX_PEER_GONE);
            CHECK_OK(rdmux_ep_close(pair.b));
            pair.b = NULL;
        }
        close_pair(&pair);
    }
}

static void a_connection_shut_down_before_accept_ends_in_order(void **state)
{
    (void)state;
    for (size_t i = 0; i < RDMUX_COUNT_OF(paths); i++) {
        struct pair pair;
        struct rdmux_wc wc;
        open_scene(&pair, paths[i].name);
        connect_a(&pair);
        CHECK_STATUS(rdmux_ep_shutdown(pair.a, 0), RDMUX_IN_PROGRESS);
        uint64_t until = now_ms() + PATIENT_MS;
        while (!step_a(&pair, &wc)) {
            assert_true(now_ms() < until);
            step_b(&pair);
        }
        assert_int_equal(wc.opcode, RDMUX_WC_DISCONNECTED);
        assert_int_equal(wc.status, RDMUX_OK);

        close_a(&pair);

        accept_b(&pair);
        expect_messages(&pair, 0, RDMUX_OK);
        close_pair(&pair);
    }
}

/* An SRQ has receives before accept, so all messages arrive on every path. */
static void shared_receives_keep_the_messages_of_a_connection_closed_before_accept(void **state)
{
    (void)state;
    for (size_t i = 0; i < RDMUX_COUNT_OF(paths); i++) {
        struct pair pair;
        struct rdmux_srq *srq = NULL;
        struct rdmux_ep_attr as_b = RDMUX_EP_ATTR_INIT;
        uint32_t got[MESSAGES] = { 9, 9, 9 };
        open_scene(&pair, paths[i].name);
        CHECK_OK(rdmux_srq_create(pair.fabric_b, pair.cq_b, NULL, &srq));
        for (uint32_t n = 0; n < MESSAGES; n++) {
            CHECK_OK(rdmux_srq_recv(srq, &got[n], sizeof(got[n]), NULL, CONTEXT(n)));
        }
        as_b.srq = srq;
        connect_a_as(&pair, &as_b);
        see_connected(&pair);
        send_messages(&pair);
        uint64_t until = now_ms() + PATIENT_MS;
        for (struct rdmux_wc wc; pair.a->send.tail != MESSAGES;) {
            assert_true(now_ms() < until);
            assert_false(step_a(&pair, &wc));
            step_b(&pair);
        }

        close_a(&pair);

        see_end(&pair, held_of(&pair));
        accept_b(&pair);
        for (uint32_t n = 0; n < MESSAGES; n++) {
            struct rdmux_wc wc = next_of_b(&pair);
            assert_int_equal(wc.opcode, RDMUX_WC_RECV);
            assert_int_equal(wc.status, RDMUX_OK);
            assert_int_equal(got[n], n);
        }
        struct rdmux_wc wc = next_of_b(&pair);
        assert_int_equal(wc.opcode, RDMUX_WC_DISCONNECTED);
        assert_int_equal(wc.status, RDMUX_PEER_GONE);
        CHECK_OK(rdmux_ep_close(pair.b));
        pair.b = NULL;
        CHECK_OK(rdmux_srq_destroy(srq));
        close_pair(&pair);
    }
}

/* The SRQ is empty until the endpoint is returned. */
static void messages_wait_for_shared_receives(void **state)
{
    (void)state;
    struct pair pair;
    struct rdmux_srq *srq = NULL;
    struct rdmux_ep_attr as_b = RDMUX_EP_ATTR_INIT;
    open_scene(&pair, "shm");
    CHECK_OK(rdmux_srq_create(pair.fabric_b, pair.cq_b, NULL, &srq));
    as_b.srq = srq;
    connect_a_as(&pair, &as_b);
    send_messages(&pair);
    close_a(&pair);
    see_connected(&pair);
    see_end(&pair, held_of(&pair));
    accept_b(&pair);

    for (uint32_t n = 0; n < MESSAGES; n++) {
        uint32_t got = UINT32_MAX;
        CHECK_OK(rdmux_srq_recv(srq, &got, sizeof(got), NULL, CONTEXT(n)));
        struct rdmux_wc wc = next_of_b(&pair);
        assert_int_equal(wc.opcode, RDMUX_WC_RECV);
        assert_int_equal(wc.status, RDMUX_OK);
        assert_int_equal(got, n);
    }

    assert_int_equal(next_of_b(&pair).opcode, RDMUX_WC_DISCONNECTED);
    CHECK_OK(rdmux_ep_close(pair.b));
    pair.b = NULL;
    CHECK_OK(rdmux_srq_destroy(srq));
    close_pair(&pair);
}

static void a_connection_accepted_by_name_reports_connected_then_messages_then_its_end(void **state)
{
    (void)state;
    for (size_t i = 0; i < RDMUX_COUNT_OF(paths); i++) {
        struct pair pair;
        struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
        open_scene(&pair, paths[i].name);
        start_connect(&pair);
        attr.peer = see_arrival(&pair).id;
        CHECK_STATUS(rdmux_accept(pair.listener, pair.cq_b, &attr, 0, &pair.b), RDMUX_IN_PROGRESS);
        go_until_a_is_connected(&pair);
        send_messages(&pair);

        close_a(&pair);

        struct rdmux_wc wc = next_of_b(&pair);
        assert_int_equal(wc.opcode, RDMUX_WC_CONNECTED);
        assert_int_equal(wc.status, RDMUX_OK);
        expect_messages(&pair, paths[i].arrive, RDMUX_PEER_GONE);
        close_pair(&pair);
    }
}

static void a_connection_that_no_call_accepts_is_dropped_in_time(void **state)
{
    (void)state;
    for (size_t i = 0; i < RDMUX_COUNT_OF(paths); i++) {
        struct pair pair;
        struct rdmux_ep *none = NULL;
        open_scene(&pair, paths[i].name);
        connect_a(&pair);
        see_connected(&pair);
        send_messages(&pair);
        close_a(&pair);
        see_end(&pair, held_of(&pair));

        let_pass(ACCEPT_MS - 1);
        step_b(&pair);
        assert_false(rdmux_list_empty(&pair.cq_b->lists.accepting));
        let_pass(1 + TICK_MS);
        step_b(&pair);

        assert_true(rdmux_list_empty(&pair.cq_b->lists.accepting));
        assert_int_equal(pair.cq_b->ep_count, 0);
        CHECK_STATUS(rdmux_accept(pair.listener, pair.cq_b, NULL, 0, &none), RDMUX_AGAIN);
        close_pair(&pair);
    }
}

/* ------------------------------------------------------------------------ after accept returned */

static void connect_both(struct pair *pair, const char *path)
{
    open_scene(pair, path);
    connect_a(pair);
    accept_b(pair);
}

/* Leaves three messages waiting over shm, with the peer closed. */
static void let_it_linger(struct pair *pair)
{
    connect_both(pair, "shm");
    send_messages(pair);
    close_a(pair);
    see_end(pair, pair->b);
}

static void a_connection_closed_before_a_receive_was_posted_delivers_its_messages(void **state)
{
    (void)state;
    for (size_t i = 0; i < RDMUX_COUNT_OF(paths); i++) {
        struct pair pair;
        connect_both(&pair, paths[i].name);
        send_messages(&pair);

        close_a(&pair);

        expect_messages(&pair, paths[i].arrive, RDMUX_PEER_GONE);
        close_pair(&pair);
    }
}

static void an_endpoint_whose_messages_wait_takes_receives_and_no_other_request(void **state)
{
    (void)state;
    struct pair pair;
    uint32_t word = 0;
    let_it_linger(&pair);

    CHECK_STATUS(rdmux_send(pair.b, &word, sizeof(word), NULL, NULL, 0), RDMUX_PEER_GONE);
    CHECK_STATUS(rdmux_ep_shutdown(pair.b, 0), RDMUX_PEER_GONE);

    struct rdmux_sge piece = { .addr = &word, .length = sizeof(word) };
    struct rdmux_wr wr = { .op = RDMUX_OP_RECV, .sges = &piece, .sge_count = 1 };
    size_t posted = 0;
    CHECK_OK(rdmux_post_recv(pair.b, &wr, 1, &posted));
    assert_int_equal(posted, 1);
    struct rdmux_wc wc = next_of_b(&pair);
    assert_int_equal(wc.opcode, RDMUX_WC_RECV);
    assert_int_equal(wc.status, RDMUX_OK);
    close_pair(&pair); /* two messages wait */
}

static void receives_beyond_the_last_message_are_flushed(void **state)
{
    (void)state;
    struct pair pair;
    uint32_t got[MESSAGES + 2];
    struct rdmux_wr wrs[MESSAGES + 2];
    struct rdmux_sge pieces[MESSAGES + 2];
    size_t posted = 0;
    let_it_linger(&pair);
    for (uint32_t i = 0; i < MESSAGES + 2; i++) {
        pieces[i] = (struct rdmux_sge){ .addr = &got[i], .length = sizeof(got[i]) };
        wrs[i] = (struct rdmux_wr){ .op = RDMUX_OP_RECV, .sges = &pieces[i], .sge_count = 1 };
    }

    CHECK_OK(rdmux_post_recv(pair.b, wrs, MESSAGES + 2, &posted));

    for (uint32_t i = 0; i < MESSAGES + 2; i++) {
        struct rdmux_wc wc = next_of_b(&pair);
        assert_int_equal(wc.opcode, RDMUX_WC_RECV);
        assert_int_equal(wc.status, i < MESSAGES ? RDMUX_OK : RDMUX_FLUSHED);
        assert_true(i >= MESSAGES || got[i] == i);
    }
    assert_int_equal(next_of_b(&pair).opcode, RDMUX_WC_DISCONNECTED);
    close_pair(&pair);
}

static void a_message_longer_than_its_receive_ends_the_endpoint(void **state)
{
    (void)state;
    struct pair pair;
    uint8_t byte;
    let_it_linger(&pair);

    CHECK_OK(rdmux_recv(pair.b, &byte, sizeof(byte), NULL, NULL));

    struct rdmux_wc wc = next_of_b(&pair);
    assert_int_equal(wc.opcode, RDMUX_WC_RECV);
    assert_int_equal(wc.status, RDMUX_LENGTH);
    wc = next_of_b(&pair);
    assert_int_equal(wc.opcode, RDMUX_WC_DISCONNECTED);
    assert_int_equal(wc.status, RDMUX_LENGTH);
    close_pair(&pair);
}

/* The bytes disappeared with the peer: such a message has not arrived. */
static void an_endpoint_does_not_wait_for_a_message_held_by_the_peer(void **state)
{
    (void)state;
    struct pair pair;
    enum { LONG = 4 << 20 };
    uint8_t *bytes = calloc(1, LONG);
    assert_non_null(bytes);
    connect_both(&pair, "shm");
    CHECK_OK(rdmux_send(pair.a, bytes, LONG, NULL, NULL, RDMUX_UNSIGNALED));
    close_a(&pair);
    see_end(&pair, pair.b);

    enum rdmux_status posted = rdmux_recv(pair.b, bytes, LONG, NULL, NULL);

    assert_true(posted == RDMUX_OK || posted == RDMUX_PEER_GONE);
    struct rdmux_wc wc = next_of_b(&pair);
    if (posted == RDMUX_OK) {
        assert_int_equal(wc.opcode, RDMUX_WC_RECV);
        assert_int_not_equal(wc.status, RDMUX_OK);
        wc = next_of_b(&pair);
    }
    assert_int_equal(wc.opcode, RDMUX_WC_DISCONNECTED);
    assert_int_equal(wc.status, RDMUX_PEER_GONE);
    free(bytes);
    close_pair(&pair);
}

static void messages_without_receives_delay_the_end_by_a_second_at_most(void **state)
{
    (void)state;
    struct pair pair;
    uint32_t got;
    let_it_linger(&pair);

    let_pass(RDMUX_LINGER_MS - 1);
    step_b(&pair);
    CHECK_OK(rdmux_recv(pair.b, &got, sizeof(got), NULL, NULL)); /* and the time begins again */
    assert_int_equal(next_of_b(&pair).opcode, RDMUX_WC_RECV);
    let_pass(RDMUX_LINGER_MS - 1);
    step_b(&pair);
    let_pass(1 + TICK_MS);

    struct rdmux_wc wc = next_of_b(&pair);
    assert_int_equal(wc.opcode, RDMUX_WC_DISCONNECTED);
    assert_int_equal(wc.status, RDMUX_PEER_GONE);
    CHECK_STATUS(rdmux_recv(pair.b, &got, sizeof(got), NULL, NULL), RDMUX_PEER_GONE);
    close_pair(&pair);
}

static void a_program_sleeps_while_messages_wait(void **state)
{
    (void)state;
    struct pair pair;
    int tries = 0;
    let_it_linger(&pair);

    while (rdmux_cq_arm(pair.cq_b) != RDMUX_OK && tries < SOME_STEPS) {
        step_b(&pair);
        tries++;
    }

    assert_true(tries < SOME_STEPS);
    struct pollfd look = { .fd = rdmux_cq_fd(pair.cq_b), .events = POLLIN };
    assert_int_equal(poll(&look, 1, 0), 0);
    uint32_t got;
    CHECK_OK(rdmux_recv(pair.b, &got, sizeof(got), NULL, NULL));
    assert_int_equal(poll(&look, 1, PATIENT_MS), 1);
    expect_entry(pair.cq_b, RDMUX_WC_RECV, RDMUX_OK);
    close_pair(&pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_connection_closed_before_its_confirmation_is_accepted_with_its_messages),
        cmocka_unit_test(a_connection_that_ended_before_accept_is_accepted_with_its_messages),
        cmocka_unit_test(a_connection_closed_without_a_message_is_accepted),
        cmocka_unit_test(several_closed_connections_are_accepted_one_by_one),
        cmocka_unit_test(a_connection_shut_down_before_accept_ends_in_order),
        cmocka_unit_test(shared_receives_keep_the_messages_of_a_connection_closed_before_accept),
        cmocka_unit_test(messages_wait_for_shared_receives),
        cmocka_unit_test(a_connection_accepted_by_name_reports_connected_then_messages_then_its_end),
        cmocka_unit_test(a_connection_that_no_call_accepts_is_dropped_in_time),
        cmocka_unit_test(a_connection_closed_before_a_receive_was_posted_delivers_its_messages),
        cmocka_unit_test(an_endpoint_whose_messages_wait_takes_receives_and_no_other_request),
        cmocka_unit_test(receives_beyond_the_last_message_are_flushed),
        cmocka_unit_test(a_message_longer_than_its_receive_ends_the_endpoint),
        cmocka_unit_test(an_endpoint_does_not_wait_for_a_message_held_by_the_peer),
        cmocka_unit_test(messages_without_receives_delay_the_end_by_a_second_at_most),
        cmocka_unit_test(a_program_sleeps_while_messages_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
