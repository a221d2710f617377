/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Edge cases of the request queues, through the public interface. */
#include "tests/unit/api_pair.h"

enum {
    DEPTH = 8, /* of the receive queue, which is a ring of as many records */
    BEFORE = 5,
    LENGTH_MAX = 16,
};

static const char *const paths[] = { "tcp", "shm" };

struct message {
    uint8_t bytes[LENGTH_MAX];
};

static void send_some(struct pair *pair, struct message *messages, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        memset(messages[i].bytes, (int)(0x40 + i), LENGTH_MAX);
        CHECK_OK(rdmux_send_imm(pair->a, messages[i].bytes, i + 1, NULL, (uint32_t)i, NULL,
                                RDMUX_INLINE | RDMUX_UNSIGNALED));
    }
}

/* The next receive; both sides are progressed, as no thread of the library does it. */
static struct rdmux_wc next_receive(struct pair *pair)
{
    struct rdmux_wc wc;
    uint64_t until = now_ms() + PATIENT_MS;
    while (rdmux_cq_poll(pair->cq_b, &wc, 1) == 0) {
        assert_int_equal(rdmux_cq_poll(pair->cq_a, NULL, 0), 0);
        assert_true(now_ms() < until);
    }
    assert_int_equal(wc.opcode, RDMUX_WC_RECV);
    assert_int_equal(wc.status, RDMUX_OK);
    return wc;
}

static void check_received(struct pair *pair, const struct message *into, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct rdmux_wc wc = next_receive(pair);
        struct message expected = { { 0 } };
        memset(expected.bytes, (int)(0x40 + i), i + 1);
        assert_ptr_equal(wc.context, CONTEXT(i));
        assert_int_equal(wc.imm, i);
        assert_int_equal(wc.length, i + 1);
        assert_memory_equal(into[i].bytes, expected.bytes, LENGTH_MAX);
    }
}

/* The provider gets adjacent records: those up to the end of the ring. */
static void check_shown(struct rdmux_ep *ep)
{
    struct rdmux_request *first = NULL;
    assert_int_equal(rdmux_provider_next_receives(ep->path, &first), DEPTH - BEFORE);
    assert_ptr_equal(first, &ep->recv.records[BEFORE]);
    assert_int_equal(rdmux_provider_receives(ep->path), DEPTH);
}

static void receives_that_wrap_around_their_ring_meet_every_message(void **state)
{
    (void)state;
    for (size_t i = 0; i < RDMUX_COUNT_OF(paths); i++) {
        struct pair pair;
        struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
        struct message messages[DEPTH];
        struct message into[DEPTH];
        struct rdmux_wr wrs[DEPTH];
        struct rdmux_sge pieces[DEPTH];
        size_t posted = 0;
        attr.recv_depth = DEPTH;
        open_sides(&pair, paths[i], RDMUX_FABRIC_NO_SERVICE_THREAD, RDMUX_FABRIC_NO_SERVICE_THREAD);
        connect_more(&pair, &attr, &pair.a, &pair.b);
        memset(into, 0, sizeof(into));
        for (size_t j = 0; j < BEFORE; j++) {
            CHECK_OK(rdmux_recv(pair.b, into[j].bytes, LENGTH_MAX, NULL, CONTEXT(j)));
        }
        send_some(&pair, messages, BEFORE);
        check_received(&pair, into, BEFORE);

        memset(into, 0, sizeof(into));
        memset(wrs, 0, sizeof(wrs));
        for (size_t j = 0; j < DEPTH; j++) {
            pieces[j] = (struct rdmux_sge){ into[j].bytes, LENGTH_MAX, NULL };
            wrs[j].op = RDMUX_OP_RECV;
            wrs[j].context = CONTEXT(j);
            wrs[j].sges = &pieces[j];
            wrs[j].sge_count = 1;
        }
        CHECK_OK(rdmux_post_recv(pair.b, wrs, DEPTH, &posted));
        assert_int_equal(posted, DEPTH);
        CHECK_STATUS(rdmux_recv(pair.b, into[0].bytes, LENGTH_MAX, NULL, NULL), RDMUX_AGAIN);
        check_shown(pair.b);
        send_some(&pair, messages, DEPTH);
        check_received(&pair, into, DEPTH);
        close_pair(&pair);
    }
}

/* ---------------------------------------------------------------------------- events under load */

enum {
    FLOOD = 4,       /* messages that wait at any time */
    POLLS_MAX = 200, /* far more than an event needs */
};

/* Polls b for one entry at a time, with always another message after it, until this event comes. */
static void expect_among_messages(struct pair *pair, uint32_t opcode)
{
    static uint32_t into;
    struct rdmux_wc wc = { 0 };
    for (size_t i = 0; i < FLOOD; i++) {
        CHECK_OK(rdmux_recv(pair->b, &into, sizeof(into), NULL, NULL));
        CHECK_OK(rdmux_send(pair->a, &opcode, sizeof(opcode), NULL, NULL,
                            RDMUX_INLINE | RDMUX_UNSIGNALED));
    }
    for (size_t polls = 0; wc.opcode != opcode; polls++) {
        if (polls == POLLS_MAX) {
            fail_msg("no %s in %d polls", rdmux_wc_opcode_name(opcode), POLLS_MAX);
        }
        CHECK_OK(rdmux_recv(pair->b, &into, sizeof(into), NULL, NULL));
        CHECK_OK(rdmux_send(pair->a, &opcode, sizeof(opcode), NULL, NULL,
                            RDMUX_INLINE | RDMUX_UNSIGNALED));
        assert_int_equal(rdmux_cq_poll(pair->cq_a, NULL, 0), 0);
        CHECK_OK(rdmux_fabric_progress(pair->fabric_a));
        CHECK_OK(rdmux_fabric_progress(pair->fabric_b));
        if (rdmux_cq_poll(pair->cq_b, &wc, 1) != 0) {
            assert_int_equal(wc.status, RDMUX_OK);
        }
    }
}

static void events_are_returned_although_completions_fill_each_poll(void **state)
{
    (void)state;
    for (size_t i = 0; i < RDMUX_COUNT_OF(paths); i++) {
        struct pair pair;
        struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
        struct rdmux_mr *mr = NULL;
        struct rdmux_token token;
        struct rdmux_remote *remote = NULL;
        uint32_t word = 0;
        attr.recv_depth = 2 * POLLS_MAX;
        attr.send_depth = 2 * POLLS_MAX;
        open_sides(&pair, paths[i], RDMUX_FABRIC_NO_SERVICE_THREAD, RDMUX_FABRIC_NO_SERVICE_THREAD);
        connect_more(&pair, &attr, &pair.a, &pair.b);
        CHECK_OK(rdmux_mr_alloc(pair.fabric_a, sizeof(word), RDMUX_ACCESS_REMOTE_READ, &mr));
        CHECK_OK(rdmux_mr_export(mr, &token));

        CHECK_STATUS(rdmux_remote_import(pair.b, &token, 0, &remote), RDMUX_IN_PROGRESS);
        expect_among_messages(&pair, RDMUX_WC_REMOTE_READY);

        while (rdmux_send(pair.b, &word, sizeof(word), NULL, NULL,
                          RDMUX_INLINE | RDMUX_UNSIGNALED) == RDMUX_OK) {
        }
        for (size_t j = 0; j < attr.send_depth; j++) {
            CHECK_OK(rdmux_recv(pair.a, &word, sizeof(word), NULL, NULL));
        }
        expect_among_messages(&pair, RDMUX_WC_WRITABLE);

        rdmux_remote_close(remote);
        CHECK_OK(rdmux_ep_close(pair.b));
        pair.b = NULL;
        rdmux_mr_deregister(mr);
        close_pair(&pair);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(receives_that_wrap_around_their_ring_meet_every_message),
        cmocka_unit_test(events_are_returned_although_completions_fill_each_poll),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
