/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * The latency measurement of a perf test: one operation at a time.
 *
 * The latency of sends and writes is measured by a ping-pong and reported as half the round trip.
 * The server answers each message with one of the same kind and size; a write is a write_imm, since
 * only its notice tells the other side that the bytes are there. Reads and atomics are reported as
 * the whole round trip.
 */
#include "perf_lane.h"

enum { WARM_UP_MAX = 1000 }; /* operations before the measurement */
static const uint64_t warm_up_limit_ns = 50000000;

/* Posts operation number perf->posted of a latency test. */
static enum rdmux_status post_one(struct perf_lane *perf)
{
    struct rdmux_ep *ep = perf->client.ep;
    struct rdmux_mr *mr = perf->memory.mr;
    uint8_t *bytes = perf->memory.base;
    uint32_t size = perf->request.size;
    uint64_t number = perf->posted;
    void *context = (void *)(uintptr_t)(number + 1); /* a number, not an address */
    /* A ping is done when its answer arrives. Only a buffer that is refilled each time needs a
     * completion of its own. */
    bool refilled = perf->request.verify && perf->inline_flag == 0;
    uint32_t flags = perf->inline_flag | (refilled ? 0 : RDMUX_UNSIGNALED);
    switch ((enum perf_op)perf->request.op) {
    case PERF_SEND:
        return rdmux_send(ep, bytes, size, mr, context, flags);
    case PERF_SEND_IMM:
        return rdmux_send_imm(ep, bytes, size, mr, perf_immediate(number), context, flags);
    case PERF_WRITE:
    case PERF_WRITE_IMM:
        return rdmux_write_imm(ep, bytes, size, mr, perf->remote, perf->target_offset,
                               perf_immediate(number), context, flags);
    case PERF_READ:
        return rdmux_read(ep, bytes + perf->layout.target_at, size, mr, perf->remote,
                          perf->target_offset, context, 0);
    case PERF_FETCH_ADD:
        return rdmux_fetch_add(ep, (uint64_t *)(void *)bytes, mr, perf->remote, perf->target_offset,
                               1, context, 0);
    case PERF_COMPARE_SWAP:
        return rdmux_compare_swap(ep, (uint64_t *)(void *)bytes, mr, perf->remote,
                                  perf->target_offset, number, number + 1, context, 0);
    case PERF_OP_COUNT:
        break;
    }
    return RDMUX_INVALID;
}

static bool one_operation(struct perf_lane *perf)
{
    bool ping_pong = perf_is_ping_pong(&perf->request);
    if (ping_pong && perf->request.verify) {
        perf_pattern_fill(perf->memory.base, perf->request.size, perf_seed_to_server(perf->posted));
    }
    enum rdmux_status status = post_one(perf);
    while (status == RDMUX_AGAIN) {
        if (!perf_take(perf->worker)) {
            return false;
        }
        status = post_one(perf);
    }
    if (status != RDMUX_OK) {
        client_fail_call(&perf->client, "post a request", status);
        return false;
    }
    perf->posted++;
    if (ping_pong) {
        bool refilled = perf->request.verify && perf->inline_flag == 0;
        while (perf->answers != perf->posted || (refilled && perf->completed != perf->posted)) {
            if (!perf_take(perf->worker)) {
                return false;
            }
        }
    } else {
        while (perf->completed != perf->posted) {
            if (!perf_take(perf->worker)) {
                return false;
            }
        }
    }
    return true;
}

/* Runs until caches and queues are warm. Then the first worker chooses the time source by the median
 * duration of an operation, because a few interrupted operations would dominate the mean. */
bool perf_warm_up_latency(struct perf_worker *worker)
{
    size_t turn = 0;
    uint64_t start_ns = timer_clock_ns();
    uint64_t before_ns = start_ns;
    do {
        if (!one_operation(&worker->lanes[turn++ % worker->lane_count])) {
            return false;
        }
        uint64_t now_ns = timer_clock_ns();
        stats_add(worker->stats, now_ns - before_ns);
        before_ns = now_ns;
    } while (worker->stats->count < WARM_UP_MAX && before_ns - start_ns < warm_up_limit_ns &&
             !perf_stopped(worker));
    double median_ns = stats_quantile(worker->stats, 0.5);
    stats_begin(worker->stats);
    if (worker->index == 0) {
        worker->shared->group_size = timer_choose(&worker->shared->timer, median_ns);
    }
    return true;
}

/* The lanes take turns, a sample each. */
bool perf_run_latency(struct perf_worker *worker)
{
    const struct perf_options *options = &worker->shared->options;
    const struct timer timer = worker->shared->timer;
    const uint32_t group_size = worker->shared->group_size;
    const uint64_t limit = options->iterations != 0 ? options->iterations * worker->lane_count
                                                    : UINT64_MAX;
    const uint64_t duration = options->iterations != 0
                                  ? UINT64_MAX
                                  : (uint64_t)(options->seconds * 1e9 / timer.ns_per_tick);
    perf_begin_measuring(worker);
    uint64_t start = timer_ticks(&timer);
    uint64_t before = start;
    uint64_t done = 0;
    uint64_t group = limit < group_size ? limit : group_size;
    size_t turn = 0;
    while (group > 0 && before - start < duration && !perf_stopped(worker)) {
        struct perf_lane *lane = &worker->lanes[turn];
        turn = turn + 1 == worker->lane_count ? 0 : turn + 1;
        for (uint64_t i = 0; i < group; i++) {
            if (!one_operation(lane)) {
                return false;
            }
        }
        uint64_t now = timer_ticks(&timer);
        stats_add(worker->stats, (now - before) / group);
        before = now;
        done += group;
        group = limit - done < group_size ? limit - done : group_size;
    }
    perf_end_measuring(worker);
    return perf_exchange_ends(worker);
}
