/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Early messages of the tcp provider: a small message that has no credit waits at the receiver. */
#include "tcp_fallback/tcp_endpoint.h"
#include "tcp_fallback/tcp_frame.h"
#include "tests/unit/tcp_pair.h"

enum { TURNS = 100, SOME = 100, REGION = 64 };

static uint8_t from[TCP_EARLY_MAX + 1];
static uint8_t to[TCP_EARLY_MAX + 1];

static void step_some(struct pair pair)
{
    for (int i = 0; i < TURNS; i++) {
        step_ends(pair.a, pair.b);
    }
}

static void a_small_message_waits_at_the_receiver_and_holds_back_what_is_behind_it(void **state)
{
    (void)state;
    static const uint64_t lengths[] = { 0, 1, TCP_EARLY_MAX };
    uint8_t region[REGION];
    for (size_t i = 0; i < 4 * COUNT_OF(lengths); i++) {
        struct pair pair = pair_create(i % 2 == 0 ? WIRED_ONE : WIRED_FOUR);
        const uint64_t length = lengths[i / 4];
        const uint32_t placed = i % 4 < 2 ? 0 : RDMUX_PLACED;
        memset(region, 1, sizeof(region));
        memset(to, 0, sizeof(to));
        fill(from, sizeof(from), i);
        (void)fake_region(0, region, sizeof(region), ALL_ACCESS);
        import_region(pair.b, pair.a, 0);
        struct rdmux_request *send = queue(pair.a, RDMUX_OP_SEND_IMM, from, length, -1, 0, placed);
        send->imm = 77;
        struct rdmux_request *write = queue(pair.a, RDMUX_OP_WRITE, from, REGION, 0, 0,
                                            RDMUX_PLACED);

        step_some(pair);
        assert_int_equal(pair.a->started, 1);
        assert_int_equal(send->done, placed == 0);
        assert_int_equal(write->done, 0);
        assert_int_equal(region[0], 1);
        assert_int_equal(pair.b->core.arrived_count, 0);

        receive(pair.b, to, sizeof(to));
        assert_int_equal(pair.b->core.arrived_count, 1);
        RUN_UNTIL(pair.a, pair.b, write->done);
        const struct rdmux_request *arrived = pair.b->core.arrived[0];
        assert_int_equal(arrived->status, RDMUX_OK);
        assert_int_equal(arrived->opcode, RDMUX_WC_RECV);
        assert_true(arrived->length == length);
        assert_int_equal(arrived->wc_flags, RDMUX_WC_HAS_IMM);
        assert_int_equal(arrived->imm, 77);
        check(to, length, i);
        assert_int_equal(send->done, 1);
        assert_int_equal(send->status, RDMUX_OK);
        assert_memory_equal(region, from, sizeof(region));
        struct rdmux_provider_counts counts;
        assert_int_equal(ops->ep_quiesce(pair.b->ep, &counts), RDMUX_OK);
        assert_true(counts.received == 1);
        pair_destroy(pair);
    }
}

/* A header and a body, each of which the receiver posts a receive for when the one before has
 * come: the body is there when its receive is posted. */
static void a_body_behind_a_header_needs_no_answer_of_the_receiver(void **state)
{
    (void)state;
    struct pair pair = pair_create(WIRED_ONE);
    uint64_t header = 0;
    uint64_t sent = SOME;
    receive(pair.b, &header, sizeof(header));
    RUN_UNTIL(pair.a, pair.b, rdmux_tcp_ep(pair.a->ep)->held.left == 1);
    fill(from, sizeof(from), 1);
    queue(pair.a, RDMUX_OP_SEND, &sent, sizeof(sent), -1, 0, 0);
    queue(pair.a, RDMUX_OP_SEND, from, SOME, -1, 0, 0);
    post_queued(pair.a);
    assert_int_equal(pair.a->started, 2);

    RUN_UNTIL(pair.b, NULL, pair.b->core.arrived_count == 1);
    assert_true(header == SOME);
    (void)ops->poll(pair.b->cq, BUDGET);
    const uint64_t calls = pair.b->ep->system_calls;
    receive(pair.b, to, header);
    assert_int_equal(pair.b->core.arrived_count, 2);
    assert_true(pair.b->ep->system_calls == calls); /* the credit goes with the next frame */
    check(to, SOME, 1);
    pair_destroy(pair);
}

static void messages_take_turns_with_credits_in_any_rhythm(void **state)
{
    (void)state;
    enum { COUNT = 2000 };
    static uint64_t values[COUNT];
    static uint64_t slots[COUNT];
    uint64_t seed = 88172645463325252;
    struct pair pair = pair_create(WIRED_ONE);
    uint32_t posted = 0;
    for (uint64_t i = 0; i < COUNT; i++) {
        values[i] = i;
        queue(pair.a, RDMUX_OP_SEND, &values[i], sizeof(values[i]), -1, 0,
              next_random(&seed) % 3 == 0 ? RDMUX_PLACED : 0);
    }
    while (posted < COUNT) {
        for (uint64_t burst = next_random(&seed) % 5; burst > 0 && posted < COUNT; burst--) {
            receive(pair.b, &slots[posted++], sizeof(uint64_t));
        }
        for (uint64_t turns = next_random(&seed) % 4; turns > 0; turns--) {
            post_queued(pair.a);
            (void)ops->poll((next_random(&seed) & 1) ? pair.a->cq : pair.b->cq, BUDGET);
        }
    }
    RUN_UNTIL(pair.a, pair.b, pair.b->core.arrived_count == COUNT);
    for (uint64_t i = 0; i < COUNT; i++) {
        assert_true(slots[i] == i);
    }
    RUN_UNTIL(pair.a, pair.b, pair.a->requests[COUNT - 1].done);
    assert_int_equal(pair.a->core.failed, RDMUX_OK);
    assert_int_equal(pair.b->core.failed, RDMUX_OK);
    pair_destroy(pair);
}

static void one_that_is_too_long_for_its_receive_fails_both_ends(void **state)
{
    (void)state;
    struct pair pair = pair_create(WIRED_ONE);
    memset(to, 3, sizeof(to));
    struct rdmux_request *send = queue(pair.a, RDMUX_OP_SEND, from, 9, -1, 0, RDMUX_PLACED);
    step_some(pair);
    receive(pair.b, to, 8);
    assert_int_equal(pair.b->core.failed, RDMUX_LENGTH);
    assert_non_null(strstr(pair.b->core.text, "a message of 9 bytes came for a receive of 8"));
    assert_int_equal(pair.b->core.arrived_count, 1);
    assert_int_equal(pair.b->core.arrived[0]->status, RDMUX_LENGTH);
    assert_int_equal(to[0], 3);
    RUN_UNTIL(pair.a, NULL, pair.a->core.failed != RDMUX_OK);
    assert_int_equal(pair.a->core.failed, RDMUX_LENGTH);
    assert_int_equal(send->status, RDMUX_LENGTH);
    pair_destroy(pair);
}

/* Longer messages and write_imms wait at their sender. */
static void others_wait_for_a_credit(void **state)
{
    (void)state;
    uint8_t region[REGION] = { 0 };
    for (int i = 0; i < 2; i++) {
        struct pair pair = pair_create(WIRED_ONE);
        (void)fake_region(0, region, sizeof(region), ALL_ACCESS);
        import_region(pair.b, pair.a, 0);
        if (i == 0) {
            queue(pair.a, RDMUX_OP_SEND, from, TCP_EARLY_MAX + 1, -1, 0, 0);
        } else {
            queue(pair.a, RDMUX_OP_WRITE_IMM, from, 8, 0, 0, 0);
        }
        step_some(pair);
        assert_int_equal(pair.a->started, 0);
        receive(pair.b, to, sizeof(to));
        RUN_UNTIL(pair.a, pair.b, pair.b->core.arrived_count == 1);
        pair_destroy(pair);
    }
}

static void one_that_waits_outlives_its_senders_socket(void **state)
{
    (void)state;
    for (enum wiring wiring = WIRED_ONE; wiring < WIRED_COUNT; wiring++) {
        struct pair pair = pair_create(wiring);
        struct rdmux_provider_counts counts;
        fill(from, sizeof(from), 5);
        queue(pair.a, RDMUX_OP_SEND, from, SOME, -1, 0, 0);
        step_some(pair);
        assert_int_equal(ops->ep_quiesce(pair.a->ep, &counts), RDMUX_OK);
        for (int i = 0; i < TURNS; i++) {
            (void)ops->poll(pair.b->cq, BUDGET);
        }
        assert_int_equal(pair.b->core.failed, RDMUX_OK);
        /* It sleeps meanwhile. */
        assert_int_equal(ops->poll(pair.b->cq, BUDGET), 0);
        assert_int_equal(ops->arm(pair.b->cq), RDMUX_OK);

        receive(pair.b, to, sizeof(to));
        assert_int_equal(pair.b->core.arrived_count, 1);
        check(to, SOME, 5);
        assert_int_equal(pair.b->core.failed, RDMUX_PEER_GONE);
        pair_destroy(pair);
    }
}

/* The endpoint gives the buffer back, see end_destroy(). */
static void one_that_is_never_taken_ends_with_its_endpoint(void **state)
{
    (void)state;
    struct pair pair = pair_create(WIRED_ONE);
    queue(pair.a, RDMUX_OP_SEND, from, SOME, -1, 0, 0);
    step_some(pair);
    assert_int_equal(pair.a->started, 1);
    pair_destroy(pair);
}

static void a_peer_that_sends_more_than_one_ends_its_endpoint(void **state)
{
    (void)state;
    static const struct {
        struct tcp_frame first;
        struct tcp_frame second; /* length 0: none */
    } cases[] = {
        { { .kind = TCP_SEND, .length = 8 }, { .kind = TCP_SEND, .length = 8 } },
        { { .kind = TCP_SEND, .length = TCP_EARLY_MAX + 1 }, { .length = 0 } },
        { { .kind = TCP_SEND, .flags = TCP_STRIPED, .length = 8 }, { .length = 0 } },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct pair pair = pair_create(WIRED_FOUR);
        uint8_t bytes[2 * TCP_HEADER_MAX] = { 0 };
        size_t size = rdmux_tcp_frame_encode(&cases[i].first, bytes);
        size += cases[i].second.length != 0 ? cases[i].first.length : 0;
        if (cases[i].second.length != 0) {
            size += rdmux_tcp_frame_encode(&cases[i].second, bytes + size);
        }
        int fd = rdmux_tcp_ep(pair.a->ep)->lane0.fd;
        assert_int_equal(send(fd, bytes, size, MSG_NOSIGNAL), size);

        RUN_UNTIL(pair.b, NULL, pair.b->core.failed != RDMUX_OK);
        assert_int_equal(pair.b->core.failed, RDMUX_PROTOCOL);
        assert_non_null(strstr(pair.b->core.text, "a message without a credit"));
        pair_destroy(pair);
    }
}

static void endpoints_that_cannot_keep_one_do_not_offer_to(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct end *end = end_create(RDMUX_ROLE_ACCEPT, NULL);
        struct tcp_description description;
        uint8_t bytes[RDMUX_DESCRIPTION_MAX];
        size_t size = sizeof(bytes);
        struct rdmux_provider_srq *srq = fake_object(ops->srq_size);
        struct rdmux_srq core_srq = { .receives = { .posted = 0 } };
        int sockets[2];
        socket_pair(false, sockets);
        end->attr.has_failover = i == 1;
        end->attr.shared_socket = i == 2 ? sockets[0] : -1;
        if (i == 3) {
            assert_int_equal(ops->srq_open(srq, 4, 1), RDMUX_OK);
            end->attr.srq = srq;
            end->core.srq = &core_srq;
        }
        end_open(end);
        assert_int_equal(ops->ep_describe(end->ep, bytes, &size), RDMUX_OK);
        assert_int_equal(rdmux_tcp_description_decode(bytes, size, &description), RDMUX_OK);
        assert_int_equal(description.early, i == 0);
        end_destroy(end, true);
        free(srq);
        (void)close(sockets[0]);
        (void)close(sockets[1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(
            a_small_message_waits_at_the_receiver_and_holds_back_what_is_behind_it, clear_state),
        cmocka_unit_test_setup(a_body_behind_a_header_needs_no_answer_of_the_receiver, clear_state),
        cmocka_unit_test_setup(messages_take_turns_with_credits_in_any_rhythm, clear_state),
        cmocka_unit_test_setup(one_that_is_too_long_for_its_receive_fails_both_ends, clear_state),
        cmocka_unit_test_setup(others_wait_for_a_credit, clear_state),
        cmocka_unit_test_setup(one_that_waits_outlives_its_senders_socket, clear_state),
        cmocka_unit_test_setup(one_that_is_never_taken_ends_with_its_endpoint, clear_state),
        cmocka_unit_test_setup(a_peer_that_sends_more_than_one_ends_its_endpoint, clear_state),
        cmocka_unit_test_setup(endpoints_that_cannot_keep_one_do_not_offer_to, clear_state),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
