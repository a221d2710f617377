/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * rdmux perf: latency, bandwidth and message rate.
 *
 * The latency of sends and writes is measured by a ping-pong and reported as half the round trip.
 * The server answers each message with one of the same kind and size; a write is a write_imm, since
 * only its notice tells the other side that the bytes are there. Reads and atomics are reported as
 * the whole round trip. Rate and bandwidth tests keep a window of `depth` requests in flight,
 * posted in batches. A test of sends or writes ends when the server has acknowledged the last one,
 * so only messages that arrived are counted.
 *
 * In rate tests the hot loops make no system call and read no clock per message. Sends and writes
 * are signaled periodically; receives are posted ahead and reposted in batches.
 */
#include "perf.h"

#include "options.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char command_name[] = "perf";

enum {
    RECEIVES = 64,    /* posted ahead */
    COMPLETIONS = 32, /* maximum taken by one poll */
    SPARE_DEPTH = 16, /* for control messages and notices in addition to the window */
    SIGNAL_INTERVAL_MAX = 64,
    WARM_UP_MAX = 1000,       /* operations before a latency test */
    REPLY_TIMEOUT_MS = 20000, /* for READY and RESULT; the library detects a dead server earlier */
    NO_TIMER_GROUP = 1,
    ALARM_STEP_MAX = 1 << 16,
    SEND_SIZE_MAX = 8 << 20, /* default limit of an endpoint */
};
static const uint64_t warm_up_limit_ns = 50000000;
static const uint64_t rate_warm_up_ns = 20000000;
static const uint64_t check_period_ns = 1000000; /* interval at which a rate test reads the clock */

static bool is_atomic(const struct perf *perf)
{
    return perf->request.op == PERF_FETCH_ADD || perf->request.op == PERF_COMPARE_SWAP;
}

/* ------------------------------------------------------------------------------------- receives */

static uint8_t *receive_buffer(const struct perf *perf, uint32_t slot)
{
    if (perf->request.op == PERF_SEND) {
        return perf->memory.base + perf->layout.target_at + slot * perf->layout.stride;
    }
    return perf->memory.base + perf->layout.control_at;
}

static uint32_t slot_after(const struct perf *perf, uint32_t slot)
{
    return slot + 1 == perf->layout.slots ? 0 : slot + 1;
}

static bool post_receives(struct perf *perf, uint32_t count)
{
    while (count > 0) {
        uint32_t batch = count < PERF_RECEIVE_BATCH ? count : PERF_RECEIVE_BATCH;
        uint32_t slot = perf->next_receive;
        for (uint32_t i = 0; i < batch; i++) {
            perf->receive_sges[i].addr = receive_buffer(perf, slot);
            perf->receive_wrs[i].context = perf->receive_sges[i].addr;
            slot = slot_after(perf, slot);
        }
        size_t posted = 0;
        enum rdmux_status status = rdmux_post_recv(perf->client.ep, perf->receive_wrs, batch,
                                                   &posted);
        if (status != RDMUX_OK) {
            client_fail_call(&perf->client, "post receives", status);
            return false;
        }
        perf->next_receive = slot;
        count -= batch;
    }
    return true;
}

/* Counts a filled receive; receives are reposted in batches. */
static bool receive_taken(struct perf *perf)
{
    if (++perf->receives_taken < PERF_RECEIVE_BATCH) {
        return true;
    }
    perf->receives_taken = 0;
    return post_receives(perf, PERF_RECEIVE_BATCH);
}

/* ---------------------------------------------------------------------------------- completions */

/* Checks the local results of the requests from perf->completed up to end, and prepares their slots
 * for the next requests. */
static void verify_results(struct perf *perf, uint64_t end)
{
    if (perf->request.op != PERF_READ && !is_atomic(perf)) {
        return;
    }
    for (uint64_t number = perf->completed; number < end; number++) {
        uint64_t slot = number % perf->layout.slots;
        uint64_t at = slot * perf->layout.stride;
        uint8_t *result = perf->memory.base + (is_atomic(perf) ? 0 : perf->layout.target_at) + at;
        bool right = false;
        if (is_atomic(perf)) {
            uint64_t value = 0;
            memcpy(&value, result, sizeof(value));
            right = value == number;
        } else {
            right = perf_pattern_matches(result, perf->request.size, perf_seed_to_client(slot));
        }
        perf->wrong += right ? 0 : 1;
        memset(result, 0xff, perf->request.size);
    }
}

static void verify_answer(struct perf *perf, const uint8_t *bytes)
{
    if (!perf_pattern_matches(bytes, perf->request.size, perf_seed_to_client(perf->answers))) {
        perf->wrong++;
    }
}

static bool take_message(struct perf *perf, const struct rdmux_wc *wc)
{
    if (client_is_control(wc)) {
        struct proto_message message;
        if (perf->message_here || !proto_open(wc->context, (size_t)wc->length, &message)) {
            client_fail(&perf->client, "%s: the server sent a malformed control message",
                        perf->client.address);
            return false;
        }
        if (message.type == PROTO_ERROR) {
            client_fail_message(&perf->client, &message);
            return false;
        }
        memcpy(perf->message, wc->context, (size_t)wc->length);
        perf->message_length = (size_t)wc->length;
        perf->message_here = true;
    } else if ((wc->flags & RDMUX_WC_HAS_IMM) != 0) {
        perf->acknowledged += (uint32_t)(wc->imm - (uint32_t)perf->acknowledged);
    } else {
        if (wc->length != perf->request.size) {
            perf->wrong++;
        } else if (perf->request.verify) {
            verify_answer(perf, wc->context);
        }
        perf->answers++;
    }
    return receive_taken(perf);
}

static bool take_completion(struct perf *perf, const struct rdmux_wc *wc)
{
    switch (wc->opcode) {
    case RDMUX_WC_SEND:
    case RDMUX_WC_WRITE:
    case RDMUX_WC_READ:
    case RDMUX_WC_FETCH_ADD:
    case RDMUX_WC_COMPARE_SWAP: {
        uint64_t end = (uint64_t)(uintptr_t)wc->context;
        if (perf->request.verify) {
            verify_results(perf, end);
        }
        perf->completed = end;
        return true;
    }
    case RDMUX_WC_RECV:
        return take_message(perf, wc);
    case RDMUX_WC_RECV_WRITE_IMM:
        if (wc->length != perf->request.size) {
            perf->wrong++;
        } else if (perf->request.verify) {
            verify_answer(perf, perf->memory.base + perf->layout.target_at);
        }
        perf->answers++;
        return receive_taken(perf);
    default: /* WRITABLE and entries of later versions: the loops retry anyway */
        return true;
    }
}

static bool take_all(struct perf *perf, const struct rdmux_wc *wc, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (wc[i].status != RDMUX_OK || wc[i].opcode == RDMUX_WC_DISCONNECTED) {
            client_fail_completion(&perf->client, &wc[i], count - i);
            return false;
        }
        if (!take_completion(perf, &wc[i])) {
            return false;
        }
    }
    return true;
}

/* Takes the available completions. If the test has failed, prints the error and returns false. */
static bool take_now(struct perf *perf)
{
    struct rdmux_wc wc[COMPLETIONS];
    return take_all(perf, wc, rdmux_cq_poll(perf->client.cq, wc, COMPLETIONS));
}

/* The same; with --wait sleep, waits at most one second for a completion. */
static bool take(struct perf *perf)
{
    if (perf->request.wait == PERF_POLL) {
        return take_now(perf);
    }
    struct rdmux_wc wc[COMPLETIONS];
    size_t count = 0;
    enum rdmux_status status = rdmux_cq_wait(perf->client.cq, wc, COMPLETIONS, 1000, &count);
    if (status != RDMUX_OK && status != RDMUX_TIMED_OUT) {
        client_fail_call(&perf->client, "wait for completions", status);
        return false;
    }
    return take_all(perf, wc, count);
}

static bool wait_for_message(struct perf *perf, struct proto_message *out)
{
    uint64_t give_up_ns = timer_clock_ns() + UINT64_C(1000000) * REPLY_TIMEOUT_MS;
    while (!perf->message_here) {
        if (!take(perf)) {
            return false;
        }
        if (!perf->message_here && timer_clock_ns() > give_up_ns) {
            client_fail(&perf->client,
                        "%s: the server has not answered for %d s; is it stopped or overloaded?",
                        perf->client.address, REPLY_TIMEOUT_MS / 1000);
            return false;
        }
    }
    perf->message_here = false;
    return proto_open(perf->message, perf->message_length, out);
}

/* -------------------------------------------------------------------------------------- latency */

/* Posts operation number perf->posted of a latency test. */
static enum rdmux_status post_one(struct perf *perf)
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
    case PERF_WRITE:
        return rdmux_write_imm(ep, bytes, size, mr, perf->remote, perf->target_offset,
                               (uint32_t)number, context, flags);
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

static bool one_operation(struct perf *perf, bool ping_pong)
{
    if (ping_pong && perf->request.verify) {
        perf_pattern_fill(perf->memory.base, perf->request.size, perf_seed_to_server(perf->posted));
    }
    enum rdmux_status status = post_one(perf);
    while (status == RDMUX_AGAIN) {
        if (!take(perf)) {
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
            if (!take(perf)) {
                return false;
            }
        }
    } else {
        while (perf->completed != perf->posted) {
            if (!take(perf)) {
                return false;
            }
        }
    }
    return true;
}

/* Runs until caches and queues are warm. Then chooses the time source by the median duration of an
 * operation, because a few interrupted operations would dominate the mean. */
static bool warm_up_latency(struct perf *perf)
{
    bool ping_pong = is_ping_pong(perf);
    uint64_t start_ns = timer_clock_ns();
    uint64_t before_ns = start_ns;
    do {
        if (!one_operation(perf, ping_pong)) {
            return false;
        }
        uint64_t now_ns = timer_clock_ns();
        stats_add(perf->stats, now_ns - before_ns);
        before_ns = now_ns;
    } while (perf->stats->count < WARM_UP_MAX && before_ns - start_ns < warm_up_limit_ns);
    double median_ns = stats_quantile(perf->stats, 0.5);
    stats_begin(perf->stats);
    perf->group_size = timer_choose(&perf->timer, median_ns);
    return true;
}

static bool run_latency(struct perf *perf)
{
    if (!warm_up_latency(perf)) {
        return false;
    }
    bool ping_pong = is_ping_pong(perf);
    const struct timer timer = perf->timer;
    const uint32_t group_size = perf->group_size;
    const uint64_t limit = perf->options->iterations != 0 ? perf->options->iterations : UINT64_MAX;
    const uint64_t duration = perf->options->iterations != 0
                                  ? UINT64_MAX
                                  : (uint64_t)(perf->options->seconds * 1e9 / timer.ns_per_tick);
    uint64_t cpu_ns = timer_cpu_ns();
    uint64_t start_ns = timer_clock_ns();
    uint64_t start = timer_ticks(&timer);
    uint64_t before = start;
    uint64_t done = 0;
    uint64_t group = limit < group_size ? limit : group_size;
    while (group > 0 && before - start < duration) {
        for (uint64_t i = 0; i < group; i++) {
            if (!one_operation(perf, ping_pong)) {
                return false;
            }
        }
        uint64_t now = timer_ticks(&timer);
        stats_add(perf->stats, (now - before) / group);
        before = now;
        done += group;
        group = limit - done < group_size ? limit - done : group_size;
    }
    perf->seconds = (double)(timer_clock_ns() - start_ns) / 1e9;
    perf->client_cpu_ns = timer_cpu_ns() - cpu_ns;
    perf->measured = done;
    return true;
}

/* --------------------------------------------------------------------------- rate and bandwidth */

/* A window of requests, posted in batches of prepared work requests. */
struct window {
    struct perf *perf;
    struct rdmux_wr *wrs; /* options->batch entries */
    struct rdmux_sge *sges;
    uint32_t batch;
    uint32_t depth;
    uint32_t slot;        /* slot of the next request */
    uint64_t signal_mask; /* request n is signaled if (n + 1) & signal_mask is 0 */
};

static bool open_window(struct perf *perf, struct window *window)
{
    uint32_t depth = perf->layout.depth;
    uint32_t batch = perf->options->batch < depth ? (uint32_t)perf->options->batch : depth;
    *window = (struct window){ .perf = perf, .batch = batch, .depth = depth };
    window->wrs = calloc(batch, sizeof(*window->wrs));
    window->sges = calloc(batch, sizeof(*window->sges));
    if (window->wrs == NULL || window->sges == NULL) {
        client_fail(&perf->client, "out of memory for a batch of %u requests", (unsigned)batch);
        return false;
    }
    static const uint32_t wr_ops[] = { RDMUX_OP_SEND, RDMUX_OP_WRITE, RDMUX_OP_READ,
                                       RDMUX_OP_FETCH_ADD, RDMUX_OP_COMPARE_SWAP };
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

static void close_window(struct window *window)
{
    free(window->wrs);
    free(window->sges);
}

/* Prepares count requests, beginning with number perf->posted. The request before `limit` is
 * signaled. */
static void fill_batch(struct window *window, uint32_t count, uint64_t limit)
{
    struct perf *perf = window->perf;
    const uint8_t op = perf->request.op;
    const uint64_t stride = perf->layout.stride;
    const uint64_t first = perf->posted + 1;
    /* A batch as long as the interval ends with a signaled request. Otherwise its unsignaled tail
     * could permanently keep the window from having room for a whole batch. */
    const uint64_t batch_end = count > window->signal_mask ? first + count - 1 : 0;
    uint8_t *local = perf->memory.base + (op == PERF_READ ? perf->layout.target_at : 0);
    uint32_t slot = window->slot;
    for (uint32_t i = 0; i < count; i++) {
        struct rdmux_wr *wr = &window->wrs[i];
        uint64_t next = first + i;
        bool signaled = (next & window->signal_mask) == 0 || next == limit || next == batch_end;
        wr->context = (void *)(uintptr_t)next; /* a number, not an address */
        wr->flags = perf->inline_flag | (signaled ? 0 : (uint32_t)RDMUX_UNSIGNALED);
        window->sges[i].addr = local + slot * stride;
        if (op == PERF_WRITE || op == PERF_READ) {
            wr->offset = perf->target_offset + slot * stride;
        } else if (op == PERF_COMPARE_SWAP) {
            wr->expected = next - 1;
            wr->operand = next;
        }
        if (perf->request.verify && (op == PERF_SEND || op == PERF_WRITE)) {
            perf_pattern_fill(window->sges[i].addr, perf->request.size,
                              perf_seed_to_server(next - 1));
        }
        slot = slot_after(perf, slot);
    }
    window->slot = slot;
}

/* Posts count requests. On failure prints the error and returns false. */
static bool post_batch(struct window *window, uint32_t count, uint64_t limit)
{
    struct perf *perf = window->perf;
    fill_batch(window, count, limit);
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
        if (!take_now(perf)) {
            return false;
        }
    }
}

/* Detects the end of a period without a clock read per message: reads the clock about once in
 * check_period_ns. */
struct alarm {
    uint64_t end_ns;
    uint64_t last_ns;
    uint64_t step; /* requests between two clock reads */
    uint64_t next_number;
};

static bool alarm_rings(struct alarm *alarm, uint64_t number)
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

/* Runs `count` requests, or until end_ns if count is 0, and waits for their completions. */
static bool run_window(struct window *window, uint64_t count, uint64_t end_ns)
{
    struct perf *perf = window->perf;
    uint64_t limit = count != 0 ? perf->posted + count : UINT64_MAX;
    struct alarm alarm = {
        .end_ns = end_ns,
        .last_ns = timer_clock_ns(),
        .step = 1,
        .next_number = perf->posted + 1,
    };
    while (perf->completed < limit) {
        while (perf->posted < limit) {
            uint64_t left = limit - perf->posted;
            uint32_t batch = left < window->batch ? (uint32_t)left : window->batch;
            if (perf->posted - perf->completed + batch > window->depth) {
                break;
            }
            if (limit == UINT64_MAX && alarm_rings(&alarm, perf->posted)) {
                limit = perf->posted + batch;
            }
            if (!post_batch(window, batch, limit)) {
                return false;
            }
        }
        if (!take(perf)) {
            return false;
        }
    }
    return true;
}

/* Notifies the server that count more writes are ready for verification. */
static bool post_notice(struct perf *perf, uint32_t count)
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
        if (!take_now(perf)) {
            return false;
        }
    }
}

/* Like run_window(), for writes whose contents are verified. The server checks a group when its
 * notice arrives and acknowledges it. Only then are the group's slots written again. */
static bool run_verified_writes(struct window *window, uint64_t count, uint64_t end_ns)
{
    struct perf *perf = window->perf;
    uint64_t limit = count != 0 ? perf->posted + count : UINT64_MAX;
    while (perf->acknowledged < limit) {
        if (limit == UINT64_MAX && timer_clock_ns() >= end_ns) {
            limit = perf->posted;
            continue;
        }
        uint64_t left = limit - perf->posted;
        uint64_t group = left < perf->layout.group ? left : perf->layout.group;
        if (group == 0 || perf->posted + group - perf->acknowledged > perf->layout.slots) {
            if (!take(perf)) {
                return false;
            }
            continue;
        }
        uint64_t group_end = perf->posted + group;
        while (perf->posted < group_end) {
            left = group_end - perf->posted;
            uint32_t batch = left < window->batch ? (uint32_t)left : window->batch;
            if (!post_batch(window, batch, group_end)) {
                return false;
            }
        }
        if (!post_notice(perf, (uint32_t)group)) {
            return false;
        }
    }
    return true;
}

static bool run_phase(struct window *window, uint64_t count, uint64_t end_ns)
{
    const struct proto_perf_request *request = &window->perf->request;
    return request->verify && request->op == PERF_WRITE ? run_verified_writes(window, count, end_ns)
                                                        : run_window(window, count, end_ns);
}

/* ------------------------------------------------------------------------------------- the test */

/* Tells the server that all requests are posted; its answer proves that all have arrived. */
static bool exchange_end(struct perf *perf)
{
    struct client *client = &perf->client;
    struct proto_perf_end end = { .operations = perf->posted };
    if (!client_send_control(client, proto_perf_end_encode(&end, client_control_buffer(client)))) {
        return false;
    }
    struct proto_message message;
    if (!wait_for_message(perf, &message)) {
        return false;
    }
    if (!proto_perf_result_decode(&message, &perf->result)) {
        client_fail_message(client, &message);
        return false;
    }
    return true;
}

static bool run_rate(struct perf *perf)
{
    struct window window;
    bool good = open_window(perf, &window) &&
                run_phase(&window, 0, timer_clock_ns() + rate_warm_up_ns);
    if (good) {
        uint64_t first = perf->posted;
        uint64_t cpu_ns = timer_cpu_ns();
        uint64_t start_ns = timer_clock_ns();
        uint64_t end_ns = start_ns + (uint64_t)(perf->options->seconds * 1e9);
        good = run_phase(&window, perf->options->iterations, end_ns);
        bool delivered_only = perf->request.op == PERF_SEND || perf->request.op == PERF_WRITE;
        if (good && delivered_only) {
            good = exchange_end(perf);
        }
        perf->seconds = (double)(timer_clock_ns() - start_ns) / 1e9;
        perf->client_cpu_ns = timer_cpu_ns() - cpu_ns;
        perf->measured = perf->posted - first;
        if (good && !delivered_only) {
            good = exchange_end(perf);
        }
    }
    close_window(&window);
    return good;
}

static bool check_result(struct perf *perf)
{
    struct client *client = &perf->client;
    if (perf->result.delivered != perf->posted) {
        client_fail(client,
                    "%s: %" PRIu64 " operations were posted, but %" PRIu64
                    " arrived; please report this",
                    client->address, perf->posted, perf->result.delivered);
        return false;
    }
    if (perf->wrong != 0 || perf->result.wrong != 0) {
        client_fail(client,
                    "%s: wrong contents: %" PRIu64 " messages here, %" PRIu64
                    " at the server; do not trust this path",
                    client->address, perf->wrong, perf->result.wrong);
        return false;
    }
    if (perf->request.verify && perf->result.verified == 0) {
        client_fail(
            client,
            "%s: the server did not verify the contents; is it another version of \"rdmux serve\"?",
            client->address);
        return false;
    }
    return true;
}

static uint32_t access_of(const struct proto_perf_request *request)
{
    uint32_t access = RDMUX_ACCESS_LOCAL_WRITE;
    if (request->op == PERF_READ) {
        access |= RDMUX_ACCESS_READ_SINK;
    }
    /* The peer writes the answers of a ping-pong of writes. Over shared memory it writes messages
     * directly into posted receives of a region that it may write to. */
    if (request->test == PERF_LATENCY && (request->op == PERF_WRITE || request->op == PERF_SEND)) {
        access |= RDMUX_ACCESS_REMOTE_WRITE;
    }
    return access;
}

/* Allocates the memory, posts receives, sends the request, and imports the region in the server's
 * answer. */
static bool prepare(struct perf *perf)
{
    struct client *client = &perf->client;
    const struct proto_perf_request *request = &perf->request;
    bool has_inline = request->op == PERF_SEND || request->op == PERF_WRITE;
    perf->inline_flag = has_inline && request->size <= client->info.max_inline
                            ? (uint32_t)RDMUX_INLINE
                            : 0;
    if (request->op == PERF_SEND && request->size > client->info.max_send) {
        client_fail(client,
                    "--size: a send of %u bytes is longer than the %" PRIu64
                    " that this connection allows; use "
                    "--op write or --op read",
                    (unsigned)request->size, client->info.max_send);
        return false;
    }
    enum rdmux_status status = perf_memory_open(
        client->fabric, (enum perf_memory_kind)request->memory, perf->layout.length,
        access_of(request), &perf->memory);
    if (status != RDMUX_OK) {
        client_fail_call(client, "make the test's memory", status);
        return false;
    }
    if (request->verify) {
        memset(perf->memory.base, 0xff, perf->layout.length);
    }
    if (request->has_token) {
        perf->request.echo_offset = perf->layout.target_at;
        status = rdmux_mr_export(perf->memory.mr, &perf->request.token);
        if (status != RDMUX_OK) {
            client_fail_call(client, "export the test's memory", status);
            return false;
        }
    }
    for (uint32_t i = 0; i < PERF_RECEIVE_BATCH; i++) {
        perf->receive_sges[i] = (struct rdmux_sge){ .length = perf->layout.receive_size,
                                                    .mr = perf->memory.mr };
        perf->receive_wrs[i] = (struct rdmux_wr){ .op = RDMUX_OP_RECV,
                                                  .sges = &perf->receive_sges[i],
                                                  .sge_count = 1 };
    }
    if (!post_receives(perf, RECEIVES) ||
        !client_send_control(client,
                             proto_perf_request_encode(request, client_control_buffer(client)))) {
        return false;
    }
    struct proto_message message;
    struct proto_perf_ready ready;
    if (!wait_for_message(perf, &message)) {
        return false;
    }
    if (!proto_perf_ready_decode(&message, &ready)) {
        client_fail_message(client, &message);
        return false;
    }
    if (ready.has_token) {
        status = rdmux_remote_import(client->ep, &ready.token, TOOL_CONNECT_TIMEOUT_MS,
                                     &perf->remote);
        if (status != RDMUX_OK) {
            client_fail_call(client, "import the server's memory", status);
            return false;
        }
    }
    perf->target_offset = ready.target_offset;
    return true;
}

static bool run_test(struct perf *perf)
{
    if (!prepare(perf)) {
        return false;
    }
    bool good = perf->request.test == PERF_LATENCY ? run_latency(perf) && exchange_end(perf)
                                                   : run_rate(perf);
    return good && check_result(perf);
}

int tool_perf(const struct perf_options *options, FILE *out)
{
    bool bulk = options->test == PERF_BANDWIDTH;
    struct perf *perf = calloc(1, sizeof(*perf));
    struct stats *stats = malloc(sizeof(*stats));
    if (perf == NULL || stats == NULL) {
        tool_error(command_name, "out of memory");
        free(stats);
        free(perf);
        return TOOL_FAILED;
    }
    stats_begin(stats);
    perf->options = options;
    perf->stats = stats;
    perf->group_size = NO_TIMER_GROUP;
    timer_use_clock(&perf->timer);
    perf->request = (struct proto_perf_request){
        .op = (uint8_t)options->op,
        .test = (uint8_t)options->test,
        .memory = (uint8_t)options->memory,
        .wait = (uint8_t)options->wait,
        .verify = options->verify ? 1 : 0,
        .depth = (uint32_t)options->depth,
        .size = (uint32_t)options->size,
        .has_token = options->op == PERF_WRITE && options->test == PERF_LATENCY ? 1 : 0,
    };
    perf->layout = perf_layout_of(&perf->request);

    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    attr.paths = options->paths;
    attr.probe = options->probe;
    attr.prefer = bulk ? RDMUX_PREFER_BANDWIDTH : RDMUX_PREFER_LATENCY;
    attr.typical_size = options->size;
    attr.send_depth = perf->layout.depth + SPARE_DEPTH;
    attr.recv_depth = RECEIVES;
    int code = client_open(&perf->client, command_name, options->address, &attr,
                           perf->request.depth);
    if (code == TOOL_OK) {
        code = run_test(perf) ? TOOL_OK : TOOL_FAILED;
    }
    if (code == TOOL_OK) {
        if (options->json) {
            perf_report_json(perf, out);
        } else {
            perf_report_text(perf, out);
        }
    }
    client_end(&perf->client);
    perf_memory_close(&perf->memory);
    client_close(&perf->client);
    free(stats);
    free(perf);
    return code;
}

static bool arguments_fit(const struct perf_options *perf, bool op_given, bool test_given,
                          bool seconds_given, bool iterations_given)
{
    if (!op_given || !test_given) {
        tool_error(command_name, "--%s is missing; say for example --op send --test latency",
                   op_given ? "test" : "op");
        return false;
    }
    if (seconds_given && iterations_given) {
        tool_error(command_name, "--seconds and --iterations exclude each other; give one of them");
        return false;
    }
    if ((perf->op == PERF_FETCH_ADD || perf->op == PERF_COMPARE_SWAP) && perf->size != 8) {
        tool_error(command_name, "--size: atomics are 8 bytes; leave --size away");
        return false;
    }
    if (perf->op == PERF_SEND && perf->size > SEND_SIZE_MAX) {
        tool_error(command_name, "--size: a send is at most %d bytes; use --op write or --op read",
                   SEND_SIZE_MAX);
        return false;
    }
    if (perf->batch > perf->depth) {
        tool_error(command_name,
                   "--batch: a batch of %" PRIu64 " does not fit into --depth %" PRIu64,
                   perf->batch, perf->depth);
        return false;
    }
    return true;
}

int tool_perf_main(int argc, char **argv)
{
    struct perf_options perf = { .size = 8, .depth = 64, .batch = 1, .seconds = 3.0 };
    bool op_given = false, test_given = false, seconds_given = false, iterations_given = false;
    const struct option_spec options[] = {
        { .name = "op",
          .kind = OPTION_CHOICE,
          .choice = &perf.op,
          .choices = perf_op_names,
          .given = &op_given,
          .argument = "OP",
          .help = "send, write, read, fetch_add, compare_swap" },
        { .name = "test",
          .kind = OPTION_CHOICE,
          .choice = &perf.test,
          .choices = perf_test_names,
          .given = &test_given,
          .argument = "TEST",
          .help = "latency, bandwidth, rate" },
        { .name = "size",
          .kind = OPTION_SIZE,
          .number = &perf.size,
          .max = PROTO_PERF_SIZE_MAX,
          .argument = "BYTES",
          .help = "bytes of an operation (8); K and M are understood" },
        { .name = "seconds",
          .kind = OPTION_SECONDS,
          .seconds = &perf.seconds,
          .given = &seconds_given,
          .argument = "S",
          .help = "how long (3)" },
        { .name = "iterations",
          .kind = OPTION_NUMBER,
          .number = &perf.iterations,
          .given = &iterations_given,
          .min = 1,
          .max = UINT64_C(1) << 48,
          .argument = "N",
          .help = "number of operations, instead of a duration" },
        { .name = "depth",
          .kind = OPTION_NUMBER,
          .number = &perf.depth,
          .min = 1,
          .max = PROTO_DEPTH_MAX,
          .argument = "D",
          .help = "requests under way in rate and bandwidth tests (64)" },
        { .name = "batch",
          .kind = OPTION_NUMBER,
          .number = &perf.batch,
          .min = 1,
          .max = PROTO_DEPTH_MAX,
          .argument = "B",
          .help = "requests posted together (1)" },
        { .name = "memory",
          .kind = OPTION_CHOICE,
          .choice = &perf.memory,
          .choices = perf_memory_names,
          .argument = "KIND",
          .help = "registered (ordinary memory, default), allocated (by the library)" },
        { .name = "wait",
          .kind = OPTION_CHOICE,
          .choice = &perf.wait,
          .choices = perf_wait_names,
          .argument = "HOW",
          .help = "poll (default), sleep; on both sides" },
        { .name = "verify",
          .kind = OPTION_FLAG,
          .flag = &perf.verify,
          .help = "check the contents; costs time" },
        { .name = "paths",
          .kind = OPTION_TEXT,
          .text = &perf.paths,
          .argument = "LIST",
          .help = "paths to consider: \"shm,tcp\", \"!shm\"" },
        { .name = "probe",
          .kind = OPTION_FLAG,
          .flag = &perf.probe,
          .help = "measure the paths before one is chosen" },
        { .name = "json", .kind = OPTION_FLAG, .flag = &perf.json, .help = "print JSON" },
    };
    const struct command_spec command = {
        .name = command_name,
        .authenticates = true,
        .usage = "HOST[:PORT] --op OP --test TEST [OPTION...]",
        .description = "Measures one operation to the server \"rdmux serve\" at HOST. The latency\n"
                       "of send and write is half the round trip of a ping-pong; that of read,\n"
                       "fetch_add and compare_swap is a whole round trip. Tests of rate and\n"
                       "bandwidth keep --depth requests under way, and count delivered\n"
                       "operations.\n",
        .options = options,
        .option_count = TOOL_COUNT_OF(options),
        .positional_min = 1,
        .positional_max = 1,
    };
    const char *positionals[1];
    enum options_outcome outcome = options_parse(&command, argc, argv, positionals);
    if (outcome != OPTIONS_RUN) {
        return outcome == OPTIONS_HELP ? TOOL_OK : TOOL_USAGE;
    }
    if (!arguments_fit(&perf, op_given, test_given, seconds_given, iterations_given)) {
        return TOOL_USAGE;
    }
    perf.address = positionals[0];
    return tool_perf(&perf, stdout);
}
