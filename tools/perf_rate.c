/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * The measurement of rate and bandwidth of a perf test.
 *
 * Each lane keeps a window of `depth` requests in flight, posted in batches. A test of sends or
 * writes ends when the server has acknowledged the last one, so only messages that arrived are
 * counted. In reverse and in both directions the server posts such a window, too; this side counts
 * what arrives, or the server tells how many are done.
 *
 * The hot loops make no system call and read no clock per message. Sends and writes are signaled
 * periodically.
 */
#include "perf_lane.h"

#include <stdlib.h>

enum {
    SIGNAL_INTERVAL_MAX = 64,
    ALARM_STEP_MAX = 1 << 16,
    TURNS_PER_CLOCK = 16, /* polls between two clock reads while only the server posts */
};
static const uint64_t warm_up_ns = 20000000;
static const uint64_t check_period_ns = 1000000; /* interval at which the clock is read */

static bool open_window(struct perf_lane *perf)
{
    struct perf_window *window = &perf->window;
    const struct perf_options *options = &perf->shared->options;
    uint32_t depth = perf->layout.depth;
    uint32_t batch = options->batch < depth ? (uint32_t)options->batch : depth;
    window->batch = batch;
    window->wrs = calloc(batch, sizeof(*window->wrs));
    window->sges = calloc(batch, sizeof(*window->sges));
    if (window->wrs == NULL || window->sges == NULL) {
        client_fail(&perf->client, "out of memory for a batch of %u requests", (unsigned)batch);
        return false;
    }
    static const uint32_t wr_ops[] = { RDMUX_OP_SEND,      RDMUX_OP_WRITE,        RDMUX_OP_READ,
                                       RDMUX_OP_FETCH_ADD, RDMUX_OP_COMPARE_SWAP, RDMUX_OP_SEND_IMM,
                                       RDMUX_OP_WRITE_IMM };
    for (uint32_t i = 0; i < batch; i++) {
        window->sges[i] = (struct rdmux_sge){ .length = perf->request.size, .mr = perf->memory.mr };
        window->wrs[i] = (struct rdmux_wr){
            .op = wr_ops[perf->request.op],
            .sges = &window->sges[i],
            .sge_count = 1,
            .remote = perf->remote,
            .offset = perf->target_offset,
            .operand = 1,
        };
    }
    /* Uses a quarter of the window, so that the rest keeps the path busy while completions are
     * taken. */
    uint64_t interval = 1;
    while (interval * 2 <= depth / 4 && interval < SIGNAL_INTERVAL_MAX) {
        interval *= 2;
    }
    window->signal_mask = interval - 1;
    return true;
}

/* While the server posts, too, its operations use the target area of both sides. */
static bool reads_into_target(const struct perf_lane *lane)
{
    return lane->request.op == PERF_READ && lane->request.direction == PERF_FORWARD;
}

/* Prepares count requests, beginning with number perf->posted. The request before `limit` is
 * signaled. */
static void fill_batch(struct perf_lane *perf, uint32_t count, uint64_t limit)
{
    struct perf_window *window = &perf->window;
    const uint8_t op = perf->request.op;
    const uint64_t stride = perf->layout.stride;
    const uint64_t first = perf->posted + 1;
    /* A batch as long as the interval ends with a signaled request. Otherwise its unsignaled tail
     * could permanently keep the window from having room for a whole batch. */
    const uint64_t batch_end = count > window->signal_mask ? first + count - 1 : 0;
    uint8_t *local = perf->memory.base + (reads_into_target(perf) ? perf->layout.target_at : 0);
    uint32_t slot = window->slot;
    for (uint32_t i = 0; i < count; i++) {
        struct rdmux_wr *wr = &window->wrs[i];
        uint64_t next = first + i;
        bool signaled = (next & window->signal_mask) == 0 || next == limit || next == batch_end;
        wr->context = (void *)(uintptr_t)next; /* a number, not an address */
        wr->flags = perf->inline_flag | (signaled ? 0 : (uint32_t)RDMUX_UNSIGNALED);
        window->sges[i].addr = local + slot * stride;
        wr->imm = perf_immediate(next - 1);
        if (perf_op_writes(op) || op == PERF_READ) {
            wr->offset = perf->target_offset + slot * stride;
        } else if (op == PERF_COMPARE_SWAP) {
            wr->expected = next - 1;
            wr->operand = next;
        }
        if (perf->request.verify && (perf_op_sends(op) || perf_op_writes(op))) {
            perf_pattern_fill(window->sges[i].addr, perf->request.size,
                              perf_seed_to_server(next - 1));
        }
        slot = perf_slot_after(perf, slot);
    }
    window->slot = slot;
}

/* Posts count requests. On failure prints the error and returns false. */
static bool post_batch(struct perf_lane *perf, uint32_t count, uint64_t limit)
{
    struct perf_window *window = &perf->window;
    fill_batch(perf, count, limit);
    size_t done = 0;
    for (;;) {
        size_t posted = 0;
        enum rdmux_status status = rdmux_post(perf->client.ep, window->wrs + done, count - done,
                                              &posted);
        done += posted;
        perf->posted += posted;
        if (status == RDMUX_OK) {
            return true;
        }
        if (status != RDMUX_AGAIN) {
            client_fail_call(&perf->client, "post requests", status);
            return false;
        }
        if (!perf_take_now(perf->worker)) {
            return false;
        }
    }
}

static bool alarm_rings(struct perf_alarm *alarm, uint64_t number)
{
    if (number < alarm->next_number) {
        return false;
    }
    uint64_t now_ns = timer_clock_ns();
    /* The step at most doubles: a queue that is filling up takes requests faster than the path
     * does. */
    if (now_ns - alarm->last_ns < check_period_ns / 2 && alarm->step < ALARM_STEP_MAX) {
        alarm->step *= 2;
    } else if (now_ns - alarm->last_ns > check_period_ns && alarm->step > 1) {
        alarm->step /= 2;
    }
    alarm->last_ns = now_ns;
    alarm->next_number = number + alarm->step;
    return now_ns >= alarm->end_ns;
}

/* Notifies the server that count more writes are ready for verification. */
static bool post_notice(struct perf_lane *perf, uint32_t count)
{
    for (;;) {
        enum rdmux_status status = rdmux_write_imm(
            perf->client.ep, NULL, 0, NULL, perf->remote, perf->target_offset, count,
            (void *)(uintptr_t)perf->posted, RDMUX_UNSIGNALED);
        if (status == RDMUX_OK) {
            return true;
        }
        if (status != RDMUX_AGAIN) {
            client_fail_call(&perf->client, "post a notice", status);
            return false;
        }
        if (!perf_take_now(perf->worker)) {
            return false;
        }
    }
}

/* Returns whether the server has done count operations of the measurement, as far as this side
 * knows. */
static bool server_has_done(const struct perf_lane *lane, uint64_t count)
{
    if (perf_op_arrives(lane->request.op)) {
        return lane->answers - lane->first_answers >= count;
    }
    return lane->notices == PERF_FIRST_MEASURED_NOTICE &&
           lane->acknowledged - lane->first_acknowledged >= count;
}

/* Returns whether a window without limit has posted enough: for the given time, or the given number
 * if the server posts, too. */
static bool window_is_over(struct perf_lane *lane)
{
    struct perf_window *window = &lane->window;
    if (window->least != 0) {
        return lane->posted - lane->first_posted >= window->least &&
               server_has_done(lane, window->least);
    }
    return alarm_rings(&window->alarm, lane->posted);
}

/* Posts what the window has room for. */
static bool step_window(struct perf_lane *perf)
{
    struct perf_window *window = &perf->window;
    while (perf->posted < window->limit) {
        uint64_t left = window->limit - perf->posted;
        uint32_t batch = left < window->batch ? (uint32_t)left : window->batch;
        if (perf->posted - perf->completed + batch > perf->layout.depth) {
            break;
        }
        if (perf_stopped(perf->worker) || (window->limit == UINT64_MAX && window_is_over(perf))) {
            window->limit = perf->posted + batch;
        }
        if (!post_batch(perf, batch, window->limit)) {
            return false;
        }
    }
    return true;
}

/* The same for writes whose contents are verified. The server checks a group when its notice
 * arrives and acknowledges it. Only then are the group's slots written again. Each write_imm is its
 * own notice. */
static bool step_verified_writes(struct perf_lane *perf)
{
    struct perf_window *window = &perf->window;
    for (;;) {
        if (perf_stopped(perf->worker) ||
            (window->limit == UINT64_MAX && timer_clock_ns() >= window->alarm.end_ns)) {
            window->limit = perf->posted;
        }
        uint64_t left = window->limit - perf->posted;
        uint64_t group = left < perf->layout.group ? left : perf->layout.group;
        if (group == 0 || perf->posted + group - perf->acknowledged > perf->layout.slots) {
            return true;
        }
        uint64_t group_end = perf->posted + group;
        while (perf->posted < group_end) {
            left = group_end - perf->posted;
            uint32_t batch = left < window->batch ? (uint32_t)left : window->batch;
            if (!post_batch(perf, batch, group_end)) {
                return false;
            }
        }
        if (perf->request.op == PERF_WRITE && !post_notice(perf, (uint32_t)group)) {
            return false;
        }
    }
}

static bool verifies_writes(const struct perf_lane *lane)
{
    return lane->request.verify && perf_op_writes(lane->request.op);
}

/* Posts on every lane with room. *done: all requests of all lanes are done. */
static bool step(struct perf_worker *worker, bool *done)
{
    *done = true;
    for (size_t i = 0; i < worker->lane_count; i++) {
        struct perf_lane *lane = &worker->lanes[i];
        bool verifies = verifies_writes(lane);
        if (!(verifies ? step_verified_writes(lane) : step_window(lane))) {
            return false;
        }
        *done = *done && (verifies ? lane->acknowledged : lane->completed) >= lane->window.limit;
    }
    return true;
}

/* Runs `count` requests on each lane, or until end_ns if count is 0, and waits for their
 * completions. If the server posts, too, runs until each side has done as many. */
static bool run_windows(struct perf_worker *worker, uint64_t count, uint64_t end_ns)
{
    bool both = worker->shared->options.direction == PERF_BOTH;
    for (size_t i = 0; i < worker->lane_count; i++) {
        struct perf_lane *lane = &worker->lanes[i];
        lane->window.limit = count != 0 && !both ? lane->posted + count : UINT64_MAX;
        lane->window.least = both ? count : 0;
        lane->window.alarm = (struct perf_alarm){
            .end_ns = end_ns,
            .last_ns = timer_clock_ns(),
            .step = 1,
            .next_number = lane->posted + 1,
        };
    }
    bool done = false;
    while (step(worker, &done)) {
        if (done) {
            return true;
        }
        if (!perf_take(worker)) {
            return false;
        }
    }
    return false;
}

static bool server_has_done_on_all(const struct perf_worker *worker, uint64_t count)
{
    for (size_t i = 0; i < worker->lane_count; i++) {
        if (!server_has_done(&worker->lanes[i], count)) {
            return false;
        }
    }
    return true;
}

/* Takes what the server sends: `count` operations on each lane, or until end_ns if count is 0. */
static bool run_reverse(struct perf_worker *worker, uint64_t count, uint64_t end_ns)
{
    bool sleeps = worker->shared->options.wait == PERF_SLEEP;
    unsigned turns = 0;
    while (!perf_stopped(worker)) {
        if (count != 0 ? server_has_done_on_all(worker, count)
                       : (sleeps || ++turns % TURNS_PER_CLOCK == 0) && timer_clock_ns() >= end_ns) {
            break;
        }
        if (!perf_take(worker)) {
            return false;
        }
    }
    return true;
}

static bool run_phase(struct perf_worker *worker, uint64_t count, uint64_t end_ns)
{
    return worker->shared->options.direction == PERF_REVERSE ? run_reverse(worker, count, end_ns)
                                                             : run_windows(worker, count, end_ns);
}

/* The server begins to post. */
static bool start_server(struct perf_worker *worker)
{
    struct proto_perf_start start = { .batch = (uint32_t)worker->shared->options.batch };
    for (size_t i = 0; i < worker->lane_count; i++) {
        struct client *client = &worker->lanes[i].client;
        if (!client_send_control(client,
                                 proto_perf_start_encode(&start, client_control_buffer(client)))) {
            return false;
        }
    }
    /* Nothing may follow PERF_START before it was read: the receives of the server share buffers. */
    for (size_t i = 0; i < worker->lane_count; i++) {
        if (!perf_wait_for(&worker->lanes[i], &worker->lanes[i].server_started)) {
            return false;
        }
    }
    return true;
}

bool perf_run_rate(struct perf_worker *worker)
{
    const struct perf_options *options = &worker->shared->options;
    for (size_t i = 0; i < worker->lane_count; i++) {
        if (!open_window(&worker->lanes[i])) {
            return false;
        }
    }
    if ((options->direction != PERF_FORWARD && !start_server(worker)) ||
        !run_phase(worker, 0, timer_clock_ns() + warm_up_ns)) {
        return false;
    }
    perf_begin_measuring(worker);
    if (!run_phase(worker, options->iterations,
                   worker->start_ns + (uint64_t)(options->seconds * 1e9))) {
        return false;
    }
    bool delivered_only = perf_op_sends(options->op) || perf_op_writes(options->op) ||
                          options->direction == PERF_REVERSE;
    if (delivered_only && !perf_exchange_ends(worker)) {
        return false;
    }
    perf_end_measuring(worker);
    return delivered_only || perf_exchange_ends(worker);
}
