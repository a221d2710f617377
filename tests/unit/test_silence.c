/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* When silence of a peer is reported. The test sets the clock, so no case takes as long as its
 * timeout. */
#include "api/core/fabric.h"
#include "api/object/peer_process.h"
#include "api/progress/cq_owner.h"
#include "tests/unit/failover_scene.h"

enum {
    LIVENESS_MS = 3000,
    STEP_MS = 5,
    NS_PER_MS = 1000000,
    MANUAL = RDMUX_FABRIC_NO_SERVICE_THREAD | RDMUX_FABRIC_NO_WORKER_THREAD,
};

/* It runs while connections are made and closed, and stands while a test sets it. */
static uint64_t clock_ahead_ns;
static uint64_t clock_stands_at_ns; /* 0: it runs */

static uint64_t read_clock(void *user)
{
    (void)user;
    return clock_stands_at_ns != 0 ? clock_stands_at_ns : now_ms() * NS_PER_MS + clock_ahead_ns;
}

static void stop_clock(void)
{
    clock_stands_at_ns = read_clock(NULL);
}

static void start_clock(void)
{
    clock_ahead_ns = clock_stands_at_ns - now_ms() * NS_PER_MS;
    clock_stands_at_ns = 0;
}

static struct rdmux_fabric *open_clocked(const char *paths)
{
    struct rdmux_fabric_attr attr = RDMUX_FABRIC_ATTR_INIT;
    struct rdmux_fabric *fabric;
    attr.flags = MANUAL;
    attr.paths = paths;
    attr.clock_ns = read_clock;
    CHECK_OK(rdmux_fabric_open(&attr, &fabric));
    return fabric;
}

/* Advances the clock in steps until a hears b, which sends four heartbeats in the liveness time. */
static void let_a_hear(struct pair *pair)
{
    struct rdmux_wc wc;
    for (uint64_t ms = 0; ms < LIVENESS_MS; ms += STEP_MS) {
        clock_stands_at_ns += (uint64_t)STEP_MS * NS_PER_MS;
        for (int i = 0; i < 10; i++) {
            CHECK_OK(rdmux_fabric_progress(pair->fabric_b));
            CHECK_OK(rdmux_fabric_progress(pair->fabric_a));
            assert_int_equal(rdmux_cq_poll(pair->cq_a, &wc, 1), 0);
            assert_int_equal(rdmux_cq_poll(pair->cq_b, &wc, 1), 0);
        }
        if (atomic_load(&pair->a->process.peer->heard_ns) == clock_stands_at_ns) {
            return;
        }
    }
    fail_msg("no heartbeat in the liveness time");
}

/* Both sides use one clock. From now on b is silent: its program makes no calls. */
static void open_silent(struct pair *pair, const char *paths, const struct rdmux_ep_attr *attr)
{
    memset(pair, 0, sizeof(*pair));
    clock_stands_at_ns = 0; /* a test that failed may have left it so */
    pair->fabric_a = open_clocked(paths);
    pair->fabric_b = open_clocked(paths);
    pair->cq_a = create_cq(pair->fabric_a);
    pair->cq_b = create_cq(pair->fabric_b);
    pair->listener = listen_here(pair->fabric_b, NULL, pair->address);
    connect_more(pair, attr, &pair->a, &pair->b);
    stop_clock();
    let_a_hear(pair);
}

/* Ends the channel as the kernel does when nothing is acknowledged: here by a reset. */
static void lose_channel(struct pair *pair)
{
    struct linger at_once = { .l_onoff = 1 };
    assert_true(rdmux_cq_enter(pair->cq_a));
    int fd = rdmux_channel_socket(pair->a->channel);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)), 0);
    assert_int_equal(shutdown(fd, SHUT_RDWR), 0);
    rdmux_cq_leave(pair->cq_a);
}

/* Returns after how many ms, from now on, a gets the report. */
static uint64_t told_after(struct pair *pair, uint64_t most_ms, uint64_t lost_ms)
{
    struct rdmux_wc wc = { .opcode = 0 };
    for (uint64_t ms = 0; ms <= most_ms; ms += STEP_MS) {
        if (ms == lost_ms) {
            lose_channel(pair);
        }
        CHECK_OK(rdmux_fabric_progress(pair->fabric_a));
        if (rdmux_cq_poll(pair->cq_a, &wc, 1) == 1) {
            assert_int_equal(wc.opcode, RDMUX_WC_DISCONNECTED);
            assert_int_equal(wc.status, RDMUX_PEER_GONE);
            return ms;
        }
        clock_stands_at_ns += (uint64_t)STEP_MS * NS_PER_MS;
    }
    fail_msg("after %llu ms nothing is told", (unsigned long long)most_ms);
    return 0;
}

static struct rdmux_ep_attr silent_attr(void)
{
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    attr.liveness_ms = LIVENESS_MS;
    return attr;
}

static void silence_is_reported_at_the_liveness_time(void **state)
{
    (void)state;
    for (size_t i = 0; i < RDMUX_COUNT_OF(all_paths); i++) {
        struct rdmux_ep_attr attr = silent_attr();
        struct pair pair;
        open_silent(&pair, all_paths[i], &attr);

        uint64_t ms = told_after(&pair, (uint64_t)2 * LIVENESS_MS, UINT64_MAX);

        assert_in_range(ms, LIVENESS_MS - 2 * STEP_MS, LIVENESS_MS + 2 * STEP_MS);
        start_clock();
        close_pair(&pair);
    }
}

static void a_control_channel_lost_in_silence_does_not_delay_the_report(void **state)
{
    (void)state;
    for (uint64_t lost_ms = 0; lost_ms < LIVENESS_MS; lost_ms += LIVENESS_MS / 4) {
        struct rdmux_ep_attr attr = silent_attr();
        struct pair pair;
        open_silent(&pair, "shm", &attr);

        uint64_t ms = told_after(&pair, (uint64_t)2 * LIVENESS_MS, lost_ms);

        assert_in_range(ms, lost_ms, LIVENESS_MS + 2 * STEP_MS);
        start_clock();
        close_pair(&pair);
    }
}

/* With failover the channel is dialled again for the liveness time, from when it is lost or the
 * peer is found silent: at most twice the time from its last sign of life. */
static void with_failover_silence_is_reported_within_twice_the_liveness_time(void **state)
{
    (void)state;
    for (uint64_t lost_ms = 0; lost_ms < LIVENESS_MS; lost_ms += LIVENESS_MS / 4) {
        struct rdmux_ep_attr attr = silent_attr();
        struct pair pair;
        attr.failover = RDMUX_FAILOVER_ON;
        open_silent(&pair, "tcp", &attr);

        uint64_t ms = told_after(&pair, (uint64_t)4 * LIVENESS_MS,
                                 lost_ms == 0 ? UINT64_MAX : lost_ms);

        uint64_t dialled_ms = can_resume() && lost_ms != 0 ? lost_ms : LIVENESS_MS;
        uint64_t end_ms = dialled_ms + (can_resume() ? LIVENESS_MS : 0);
        assert_in_range(ms, end_ms - 2UL * STEP_MS, end_ms + 2UL * STEP_MS);
        start_clock();
        close_pair(&pair);
    }
}

/* A process that does not run for a while cannot hear the peer meanwhile, which may have sent
 * heartbeats. That time does not count, once. */
static void time_without_this_process_delays_the_report_by_no_more(void **state)
{
    enum { AWAY_MS = 2 * LIVENESS_MS };
    (void)state;
    for (size_t i = 0; i < RDMUX_COUNT_OF(all_paths); i++) {
        struct rdmux_ep_attr attr = silent_attr();
        struct pair pair;
        open_silent(&pair, all_paths[i], &attr);
        clock_stands_at_ns += (uint64_t)AWAY_MS * NS_PER_MS;

        uint64_t ms = told_after(&pair, (uint64_t)2 * LIVENESS_MS, UINT64_MAX);

        assert_in_range(ms, LIVENESS_MS / 2, LIVENESS_MS + 2 * STEP_MS);
        start_clock();
        close_pair(&pair);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(silence_is_reported_at_the_liveness_time),
        cmocka_unit_test(a_control_channel_lost_in_silence_does_not_delay_the_report),
        cmocka_unit_test(with_failover_silence_is_reported_within_twice_the_liveness_time),
        cmocka_unit_test(time_without_this_process_delays_the_report_by_no_more),
    };
    return cmocka_run_group_tests_name("silence", tests, NULL, NULL);
}
