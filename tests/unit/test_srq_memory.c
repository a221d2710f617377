/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* An SRQ, and an endpoint that takes its receives from one, need all of their memory. If an
 * allocation fails, the call says so, nothing leaks, and the next try succeeds. */
#include "tests/unit/api_pair.h"

enum { TURN_MS = 20, MIDDLE = 1000 };

static const char *const all_paths[] = { "tcp", "shm" };

/* Creates an SRQ; its nth allocation fails. */
static enum rdmux_status create_short(struct rdmux_fabric *fabric, struct rdmux_cq *cq,
                                      struct meter *meter, long nth, struct rdmux_srq **out)
{
    atomic_store(&meter->left, nth);
    enum rdmux_status status = rdmux_srq_create(fabric, cq, NULL, out);
    atomic_store(&meter->left, 0);
    return status;
}

static void an_srq_without_memory_is_not_created(void **state)
{
    (void)state;
    struct meter meter = { .left = 0 };
    struct rdmux_srq *srq = NULL;
    struct rdmux_fabric *fabric = open_metered_fabric("tcp", RDMUX_FABRIC_NO_SERVICE_THREAD, NULL,
                                                      &meter);
    struct rdmux_cq *cq = create_cq(fabric);
    size_t pieces = atomic_load(&meter.pieces);
    uint64_t reserved = cq->reserved;
    long nth = 1;

    while (create_short(fabric, cq, &meter, nth, &srq) != RDMUX_OK) {
        assert_null(srq);
        assert_non_null(strstr(rdmux_last_error(), "memory"));
        assert_int_equal(atomic_load(&meter.pieces), pieces);
        assert_int_equal(cq->reserved, reserved); /* the cq's entries are free for others */
        nth++;
    }

    assert_true(nth > 2);
    assert_true(cq->reserved > reserved);
    CHECK_OK(rdmux_srq_destroy(srq));
    assert_int_equal(atomic_load(&meter.pieces), pieces);
    assert_int_equal(cq->reserved, reserved);
    CHECK_OK(rdmux_cq_destroy(cq));
    CHECK_OK(rdmux_fabric_close(fabric));
}

/* Another connection may come, or the same one may be accepted once there is memory. */
static void check_accept(enum rdmux_status status)
{
    if (status != RDMUX_OK && status != RDMUX_TIMED_OUT) {
        CHECK_STATUS(status, RDMUX_NO_MEMORY);
    }
}

/* The accepting side makes progress by its own calls, and its nth allocation from here on fails.
 * Returns whether both sides are connected. */
static bool accept_short(struct pair *pair, struct meter *meter, struct rdmux_srq *srq, long nth)
{
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    struct rdmux_wc wc = { 0 };
    uint64_t until = now_ms() + PATIENT_MS;
    attr.srq = srq;
    atomic_store(&meter->left, nth);
    CHECK_STATUS(rdmux_connect(pair->fabric_a, pair->cq_a, pair->address, NULL, 0, &pair->a),
                 RDMUX_IN_PROGRESS);
    while (wc.opcode != RDMUX_WC_CONNECTED || (wc.status == RDMUX_OK && pair->b == NULL)) {
        assert_true(now_ms() < until);
        if (pair->b == NULL) {
            check_accept(rdmux_accept(pair->listener, pair->cq_b, &attr, TURN_MS, &pair->b));
        }
        (void)rdmux_cq_poll(pair->cq_b, NULL, 0);
        /* A connected endpoint ends if the other side, before it learns of the connection, lacks
         * memory or its call times out. */
        if (rdmux_cq_poll(pair->cq_a, &wc, 1) == 1 && wc.opcode == RDMUX_WC_DISCONNECTED) {
            return false;
        }
    }
    return wc.status == RDMUX_OK;
}

static void check_shared_receive(struct pair *pair, struct rdmux_srq *srq)
{
    uint8_t bytes[MIDDLE] = { 0 };
    uint8_t sent[MIDDLE];
    memset(sent, 0x5a, sizeof(sent));
    CHECK_OK(rdmux_srq_recv(srq, bytes, sizeof(bytes), NULL, NULL));
    CHECK_OK(rdmux_send(pair->a, sent, sizeof(sent), NULL, NULL, 0));
    assert_int_equal(expect_entry(pair->cq_b, RDMUX_WC_RECV, RDMUX_OK).length, sizeof(sent));
    assert_memory_equal(bytes, sent, sizeof(sent));
    expect_entry(pair->cq_a, RDMUX_WC_SEND, RDMUX_OK);
}

static void an_endpoint_without_memory_leaves_the_srq_unchanged(void **state)
{
    (void)state;
    for (size_t i = 0; i < RDMUX_COUNT_OF(all_paths); i++) {
        bool went_well = false;
        long nth = 1;
        for (; !went_well; nth++) {
            struct meter meter = { .left = 0 };
            struct rdmux_srq *srq = NULL;
            struct pair pair = { .fabric_a = open_fabric(all_paths[i], 0, NULL) };
            pair.fabric_b = open_metered_fabric(
                all_paths[i], RDMUX_FABRIC_NO_SERVICE_THREAD | RDMUX_FABRIC_NO_WORKER_THREAD, NULL,
                &meter);
            pair.cq_a = create_cq(pair.fabric_a);
            pair.cq_b = create_cq(pair.fabric_b);
            pair.listener = listen_here(pair.fabric_b, NULL, pair.address);
            CHECK_OK(rdmux_srq_create(pair.fabric_b, pair.cq_b, NULL, &srq));

            bool connected = accept_short(&pair, &meter, srq, nth);

            went_well = connected && atomic_load(&meter.left) > 0; /* else one failed that is not
                                                                      needed to be connected */
            atomic_store(&meter.left, 0);
            if (went_well) {
                check_shared_receive(&pair, srq);
            }
            CHECK_OK(rdmux_ep_close(pair.b));
            pair.b = NULL;
            CHECK_OK(rdmux_srq_destroy(srq)); /* no endpoint is left on it */
            close_pair(&pair);
            assert_int_equal(atomic_load(&meter.pieces), 0);
        }
        assert_true(nth > 10);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_srq_without_memory_is_not_created),
        cmocka_unit_test(an_endpoint_without_memory_leaves_the_srq_unchanged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
