/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* rdmux_ep_move(): an endpoint changes its cq. Endpoint b moves from cq_b to another cq, on every
 * path that can. */
#include "tests/unit/change_cq_scene.h"

#include <stdatomic.h>

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
        cmocka_unit_test(a_move_without_memory_fails_or_ends_the_endpoint),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
