/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* rdmux_cq_stats() and rdmux_fabric_stats(). Tests of listeners check the counts of connections that
 * got no endpoint. */
#include "tests/unit/api_pair.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

static struct rdmux_cq_stats stats_of(struct rdmux_cq *cq)
{
    struct rdmux_cq_stats stats = RDMUX_CQ_STATS_INIT;
    CHECK_OK(rdmux_cq_stats(cq, &stats));
    return stats;
}

/* ---------------------------------------------------------------------------------------- fabric */

static void objects_count_while_they_are_open(void **state)
{
    (void)state;
    struct pair pair;
    struct rdmux_mr *first = NULL;
    struct rdmux_mr *second = NULL;
    open_sides(&pair, "tcp", 0, 0);
    struct rdmux_fabric_stats before = counts_of(pair.fabric_b);
    assert_int_equal(before.cqs, 1);
    assert_int_equal(before.listeners, 1);
    assert_int_equal(before.endpoints + before.regions + before.region_bytes, 0);
    assert_true(before.providers >= 2); /* shm and tcp */

    CHECK_OK(rdmux_mr_alloc(pair.fabric_b, 5000, RDMUX_ACCESS_LOCAL_WRITE, &first));
    CHECK_OK(rdmux_mr_alloc(pair.fabric_b, 300, RDMUX_ACCESS_REMOTE_READ, &second));
    struct rdmux_fabric_stats full = counts_of(pair.fabric_b);
    rdmux_mr_deregister(first);
    struct rdmux_fabric_stats half = counts_of(pair.fabric_b);
    rdmux_mr_deregister(second);
    struct rdmux_fabric_stats after = counts_of(pair.fabric_b);

    assert_int_equal(full.regions, 2);
    assert_int_equal(full.region_bytes, 5300);
    assert_int_equal(half.regions, 1);
    assert_int_equal(half.region_bytes, 300);
    assert_memory_equal(&after, &before, sizeof(after));
    close_pair(&pair);
}

static void set_ups_count_by_side_and_result(void **state)
{
    (void)state;
    struct pair pair;
    struct rdmux_ep *lost = NULL;
    char by_name[RDMUX_ADDRESS_MAX];
    open_pair(&pair, "tcp", NULL);

    struct rdmux_fabric_stats a = counts_of(pair.fabric_a);
    struct rdmux_fabric_stats b = counts_of(pair.fabric_b);
    assert_int_equal(a.connected, 1);
    assert_int_equal(b.accepted, 1);
    assert_int_equal(a.accepted + b.connected + a.setups_failed + b.setups_failed, 0);
    assert_int_equal(b.introduced, 1);
    assert_int_equal(a.endpoints, 1);
    assert_int_equal(b.endpoints, 1);
    CHECK_OK(rdmux_ep_close(pair.a));
    pair.a = NULL;
    assert_int_equal(counts_of(pair.fabric_a).endpoints, 0);

    uint64_t jobs = a.jobs;
    rdmux_listener_close(pair.listener);
    pair.listener = NULL;
    (void)snprintf(by_name, sizeof(by_name), "localhost%s", strrchr(pair.address, ':'));
    CHECK_STATUS(rdmux_connect(pair.fabric_a, pair.cq_a, by_name, NULL, PATIENT_MS, &lost),
                 RDMUX_REFUSED);

    a = counts_of(pair.fabric_a);
    assert_int_equal(a.connected, 1);
    assert_int_equal(a.setups_failed, 1);
    assert_int_equal(a.endpoints, 0);
    assert_int_equal(a.jobs, jobs + 1); /* the worker thread resolved the name */
    assert_int_equal(counts_of(pair.fabric_b).listeners, 0);
    close_pair(&pair);
}

/* -------------------------------------------------------------------------------------------- cq */

static void a_cq_counts_what_is_attached_to_it(void **state)
{
    (void)state;
    struct pair pair;
    struct rdmux_srq *srq = NULL;
    struct rdmux_srq_attr attr = RDMUX_SRQ_ATTR_INIT;
    attr.depth = 16;
    open_pair(&pair, "tcp", NULL);
    struct rdmux_cq_stats before = stats_of(pair.cq_a);
    assert_int_equal(before.endpoints, 1);
    assert_int_equal(before.srqs, 0);
    assert_true(before.reserved >= 128); /* both depths of the endpoint */

    CHECK_OK(rdmux_srq_create(pair.fabric_a, pair.cq_a, &attr, &srq));
    struct rdmux_cq_stats with = stats_of(pair.cq_a);
    CHECK_OK(rdmux_srq_destroy(srq));
    CHECK_OK(rdmux_ep_close(pair.a));
    pair.a = NULL;
    assert_int_equal(rdmux_cq_poll(pair.cq_a, NULL, 0), 0); /* ends the handle of the endpoint */
    struct rdmux_cq_stats after = stats_of(pair.cq_a);

    assert_int_equal(with.srqs, 1);
    assert_true(with.reserved >= before.reserved + attr.depth);
    assert_int_equal(after.srqs + after.endpoints + after.reserved, 0);
    close_pair(&pair);
}

/* Nothing happens on the cq meanwhile, so each call counts once. */
static void calls_sleeps_arms_and_wakes_count_once(void **state)
{
    (void)state;
    struct pair pair;
    struct rdmux_wc wc;
    size_t count = 0;
    open_sides(&pair, "tcp", 0, 0);
    struct rdmux_cq_stats begin = stats_of(pair.cq_a);

    CHECK_STATUS(rdmux_cq_wait(pair.cq_a, &wc, 1, 0, &count), RDMUX_AGAIN); /* does not sleep */
    struct rdmux_cq_stats polled = stats_of(pair.cq_a);
    assert_int_equal(polled.calls, begin.calls + 2);
    assert_int_equal(polled.sleeps, begin.sleeps);

    CHECK_OK(rdmux_cq_wake(pair.cq_a));
    CHECK_OK(rdmux_cq_wake(pair.cq_a)); /* both are one entry */
    assert_int_equal(rdmux_cq_poll(pair.cq_a, &wc, 1), 1);
    assert_int_equal(wc.opcode, RDMUX_WC_WOKEN);
    struct rdmux_cq_stats woken = stats_of(pair.cq_a);
    assert_int_equal(woken.wakes, begin.wakes + 1);
    assert_true(woken.errands > begin.errands);
    assert_int_equal(woken.calls, polled.calls + 2); /* any thread wakes: that is no call on a cq */

    CHECK_OK(rdmux_cq_wake(pair.cq_a));
    CHECK_STATUS(rdmux_cq_arm(pair.cq_a), RDMUX_AGAIN);
    assert_int_equal(rdmux_cq_poll(pair.cq_a, &wc, 1), 1);
    assert_int_equal(stats_of(pair.cq_a).arms, begin.arms);
    CHECK_OK(rdmux_cq_arm(pair.cq_a));
    assert_int_equal(stats_of(pair.cq_a).arms, begin.arms + 1);

    struct rdmux_cq_stats before = stats_of(pair.cq_a);
    CHECK_OK(rdmux_cq_wake(pair.cq_a)); /* the event is there: the call returns without a sleep */
    CHECK_OK(rdmux_cq_wait(pair.cq_a, &wc, 1, PATIENT_MS, &count));
    assert_int_equal(stats_of(pair.cq_a).sleeps, before.sleeps);
    /* A thread that the machine does not run for a millisecond may time out before it sleeps. */
    struct rdmux_cq_stats slept;
    do {
        before = stats_of(pair.cq_a);
        CHECK_STATUS(rdmux_cq_wait(pair.cq_a, &wc, 1, 1, &count), RDMUX_TIMED_OUT);
        slept = stats_of(pair.cq_a);
        assert_int_equal(slept.calls, before.calls + 2); /* however often the call slept */
    } while (slept.sleeps == before.sleeps);
    close_pair(&pair);
}

static void turns_of_the_service_thread_count(void **state)
{
    (void)state;
    struct pair pair;
    open_sides(&pair, "tcp", RDMUX_FABRIC_NO_SERVICE_THREAD, 0);
    struct rdmux_cq_stats before = stats_of(pair.cq_a);

    CHECK_OK(rdmux_fabric_progress(pair.fabric_a)); /* does the thread's work */

    assert_int_equal(stats_of(pair.cq_a).service_slices, before.service_slices + 1);
    close_pair(&pair);
}

/* --------------------------------------------------------------------------------------- structs */

static void stats_are_filled_as_far_as_the_program_knows_them(void **state)
{
    (void)state;
    struct pair pair;
    struct rdmux_cq_stats cq;
    struct rdmux_fabric_stats fabric;
    open_sides(&pair, "tcp", 0, 0);
    memset(&cq, 0x5a, sizeof(cq));
    memset(&fabric, 0x5a, sizeof(fabric));
    cq.size = offsetof(struct rdmux_cq_stats, srqs);
    fabric.size = offsetof(struct rdmux_fabric_stats, listeners);

    CHECK_OK(rdmux_cq_stats(pair.cq_a, &cq));
    CHECK_OK(rdmux_fabric_stats(pair.fabric_a, &fabric));

    assert_int_equal(cq.size, offsetof(struct rdmux_cq_stats, srqs));
    assert_int_equal(cq.endpoints, 0);
    assert_int_equal(cq.srqs, UINT64_C(0x5a5a5a5a5a5a5a5a));
    assert_int_equal(fabric.size, offsetof(struct rdmux_fabric_stats, listeners));
    assert_int_equal(fabric.cqs, 1);
    assert_int_equal(fabric.listeners, UINT64_C(0x5a5a5a5a5a5a5a5a));
    close_pair(&pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(objects_count_while_they_are_open),
        cmocka_unit_test(set_ups_count_by_side_and_result),
        cmocka_unit_test(a_cq_counts_what_is_attached_to_it),
        cmocka_unit_test(calls_sleeps_arms_and_wakes_count_once),
        cmocka_unit_test(turns_of_the_service_thread_count),
        cmocka_unit_test(stats_are_filled_as_far_as_the_program_knows_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
