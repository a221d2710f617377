/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * The data path of a perf test.
 *
 * The latency of sends and writes is measured by a ping-pong and reported as half the round trip.
 * The server answers each message with one of the same kind and size; a write is a write_imm, since
 * only its notice tells the other side that the bytes are there. Reads and atomics are reported as
 * the whole round trip. Rate and bandwidth tests keep a window of `depth` requests in flight,
 * posted in batches. A test of sends or writes ends when the server has acknowledged the last one,
 * so only messages that arrived are counted. In reverse and in both directions the server posts
 * such a window, too; this side counts what arrives, or the server tells how many are done.
 *
 * In rate tests the hot loops make no system call and read no clock per message. Sends and writes
 * are signaled periodically; receives are posted ahead and reposted in batches.
 */
#include "perf_lane.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    RECEIVES = 64,    /* posted ahead */
    COMPLETIONS = 32, /* maximum taken by one poll */
    SPARE_DEPTH = 16, /* for control messages and notices in addition to the window */
    SIGNAL_INTERVAL_MAX = 64,
    WARM_UP_MAX = 1000,       /* operations before a latency test */
    REPLY_TIMEOUT_MS = 20000, /* for READY and RESULT; the library detects a dead server earlier */
    WAIT_MS = 100,            /* longest sleep, then the stop flag is read */
    ALARM_STEP_MAX = 1 << 16,
    TURNS_PER_CLOCK = 16, /* polls between two clock reads while only the server posts */
    /* The server's notices are 10 ms apart at least, and its warm-up takes 20 ms: this one comes
     * after it. */
    FIRST_MEASURED_NOTICE = 3,
};
static const uint64_t warm_up_limit_ns = 50000000;
static const uint64_t rate_warm_up_ns = 20000000;
static const uint64_t check_period_ns = 1000000; /* interval at which a rate test reads the clock */

static bool is_atomic(const struct perf_lane *lane)
{
    return lane->request.op == PERF_FETCH_ADD || lane->request.op == PERF_COMPARE_SWAP;
}

/* While the server posts, too, its operations use the target area of both sides. */
static bool reads_into_target(const struct perf_lane *lane)
{
    return lane->request.op == PERF_READ && lane->request.direction == PERF_FORWARD;
}

static bool stopped(const struct perf_worker *worker)
{
    return atomic_load_explicit(&worker->shared->stop, memory_order_relaxed);
}

/* ------------------------------------------------------------------------------------- receives */

static uint8_t *receive_buffer(const struct perf_lane *perf, uint32_t slot)
{
    if (perf_op_sends(perf->request.op)) {
        return perf->memory.base + perf->layout.target_at + slot * perf->layout.stride;
    }
    return perf->memory.base + perf->layout.control_at;
}

static uint32_t slot_after(const struct perf_lane *perf, uint32_t slot)
{
    return slot + 1 == perf->layout.slots ? 0 : slot + 1;
}

static bool post_receives(struct perf_lane *perf, uint32_t count)
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
static bool receive_taken(struct perf_lane *perf)
{
    if (++perf->receives_taken < perf->repost_batch) {
        return true;
    }
    perf->receives_taken = 0;
    return post_receives(perf, perf->repost_batch);
}

/* ---------------------------------------------------------------------------------- completions */

/* Checks the local results of the requests from perf->completed up to end, and prepares their slots
 * for the next requests. */
static void verify_results(struct perf_lane *perf, uint64_t end)
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

/* Checks and counts an answer, or one of the server's own operations. */
static void take_answer(struct perf_lane *perf, const struct rdmux_wc *wc, const uint8_t *bytes)
{
    const struct proto_perf_request *request = &perf->request;
    bool right = wc->length == request->size &&
                 perf_immediate_matches(request->op, wc, perf->answers);
    if (right && request->verify) {
        right = perf_pattern_matches(bytes, request->size, perf_seed_to_client(perf->answers));
    }
    perf->wrong += right ? 0 : 1;
    perf->answers++;
}

/* A message of send_imm has immediate data, too. The only notice of such a test comes before the
 * server's first message: the server has read PERF_START. */
static bool is_notice(const struct perf_lane *perf, const struct rdmux_wc *wc)
{
    bool expected = perf->request.op != PERF_SEND_IMM ||
                    (perf->request.direction != PERF_FORWARD && !perf->server_started);
    return (wc->flags & RDMUX_WC_HAS_IMM) != 0 && expected;
}

/* Reports an error of the server. One of an earlier version refuses requests that it does not know. */
static void fail_by_server(struct perf_lane *perf, const struct proto_message *message)
{
    const struct proto_perf_request *request = &perf->request;
    bool recent_op = request->op == PERF_SEND_IMM || request->op == PERF_WRITE_IMM;
    struct proto_error error;
    if (perf->ready_ns == 0 && (recent_op || request->direction != PERF_FORWARD) &&
        proto_error_decode(message, &error)) {
        client_fail(&perf->client,
                    "%s: the server says: %s (for %s%s, \"rdmux serve\" has to be of this version)",
                    perf->client.address, error.text, recent_op ? "--op " : "",
                    recent_op ? perf_op_names[request->op] : "--reverse and --both");
        return;
    }
    client_fail_message(&perf->client, message);
}

static bool take_message(struct perf_lane *perf, const struct rdmux_wc *wc)
{
    if (client_is_control(wc)) {
        struct proto_message message;
        if (perf->message_here || !proto_open(wc->context, (size_t)wc->length, &message)) {
            client_fail(&perf->client, "%s: the server sent a malformed control message",
                        perf->client.address);
            return false;
        }
        if (message.type == PROTO_ERROR) {
            fail_by_server(perf, &message);
            return false;
        }
        memcpy(perf->message, wc->context, (size_t)wc->length);
        perf->message_length = (size_t)wc->length;
        perf->message_here = true;
    } else if (is_notice(perf, wc)) {
        perf->server_started = true;
        perf->acknowledged += (uint32_t)(wc->imm - (uint32_t)perf->acknowledged);
        if (perf->notices < FIRST_MEASURED_NOTICE) {
            perf->notices++;
            perf->first_acknowledged = perf->acknowledged;
        }
    } else {
        take_answer(perf, wc, wc->context);
    }
    return receive_taken(perf);
}

static bool take_completion(struct perf_lane *perf, const struct rdmux_wc *wc)
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
        take_answer(perf, wc, perf->memory.base + perf->layout.target_at);
        return receive_taken(perf);
    default: /* WRITABLE and entries of later versions: the loops retry anyway */
        return true;
    }
}

/* For the thread that watches. */
static void publish(struct perf_lane *lane)
{
    const struct proto_perf_request *request = &lane->request;
    atomic_store_explicit(&lane->published[PERF_TO_SERVER],
                          perf_is_ping_pong(request) ? lane->answers : lane->completed,
                          memory_order_relaxed);
    if (request->direction != PERF_FORWARD) {
        atomic_store_explicit(&lane->published[PERF_FROM_SERVER],
                              perf_op_arrives(request->op) ? lane->answers : lane->acknowledged,
                              memory_order_relaxed);
    }
}

/* Takes entries of one poll; they may belong to any lane of the worker. */
static bool take_all(struct perf_worker *worker, const struct rdmux_wc *wc, size_t count)
{
    struct perf_lane *perf = worker->lanes;
    for (size_t i = 0; i < count; i++) {
        if (worker->lane_count > 1) {
            perf = rdmux_ep_user(wc[i].ep);
        }
        if (wc[i].status != RDMUX_OK || wc[i].opcode == RDMUX_WC_DISCONNECTED) {
            client_fail_completion(&perf->client, &wc[i], worker->lane_count > 1 ? 1 : count - i);
            return false;
        }
        if (!take_completion(perf, &wc[i])) {
            return false;
        }
        if (i + 1 == count || worker->lane_count > 1) {
            publish(perf);
        }
    }
    return true;
}

/* Takes the available completions. If the test has failed, prints the error and returns false. */
static bool take_now(struct perf_worker *worker)
{
    struct rdmux_wc wc[COMPLETIONS];
    return take_all(worker, wc, rdmux_cq_poll(worker->cq, wc, COMPLETIONS));
}

/* The same; with --wait sleep, waits WAIT_MS at most for a completion. */
static bool take(struct perf_worker *worker)
{
    if (worker->shared->options.wait == PERF_POLL) {
        return take_now(worker);
    }
    struct rdmux_wc wc[COMPLETIONS];
    size_t count = 0;
    enum rdmux_status status = rdmux_cq_wait(worker->cq, wc, COMPLETIONS, WAIT_MS, &count);
    if (status != RDMUX_OK && status != RDMUX_TIMED_OUT) {
        client_fail_call(&worker->lanes[0].client, "wait for completions", status);
        return false;
    }
    return take_all(worker, wc, count);
}

/* Takes completions until the flag is set. */
static bool wait_for(struct perf_lane *perf, const bool *flag)
{
    uint64_t give_up_ns = timer_clock_ns() + UINT64_C(1000000) * REPLY_TIMEOUT_MS;
    while (!*flag) {
        if (!take(perf->worker)) {
            return false;
        }
        if (!*flag && timer_clock_ns() > give_up_ns) {
            client_fail(&perf->client,
                        "%s: the server has not answered for %d s; is it stopped or overloaded?",
                        perf->client.address, REPLY_TIMEOUT_MS / 1000);
            return false;
        }
    }
    return true;
}

static bool wait_for_message(struct perf_lane *perf, struct proto_message *out)
{
    if (!wait_for(perf, &perf->message_here)) {
        return false;
    }
    perf->message_here = false;
    return proto_open(perf->message, perf->message_length, out);
}

/* ------------------------------------------------------------------------------ end of the test */

static bool check_result(struct perf_lane *perf)
{
    struct client *client = &perf->client;
    bool counts_answers = perf->request.direction != PERF_FORWARD &&
                          perf_op_arrives(perf->request.op);
    if (perf->result.has_posted != (perf->request.direction != PERF_FORWARD)) {
        client_fail(client, "%s: the server's result is that of another test; please report this",
                    client->address);
        return false;
    }
    if (counts_answers && perf->answers != perf->result.posted) {
        client_fail(client,
                    "%s: the server posted %" PRIu64 " operations, but %" PRIu64
                    " arrived; please report this",
                    client->address, perf->result.posted, perf->answers);
        return false;
    }
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

/* Tells the server that all requests of all lanes are posted; its answers prove that all have
 * arrived. */
static bool exchange_ends(struct perf_worker *worker)
{
    for (size_t i = 0; i < worker->lane_count; i++) {
        struct client *client = &worker->lanes[i].client;
        struct proto_perf_end end = { .operations = worker->lanes[i].posted };
        if (!client_send_control(client,
                                 proto_perf_end_encode(&end, client_control_buffer(client)))) {
            return false;
        }
    }
    for (size_t i = 0; i < worker->lane_count; i++) {
        struct perf_lane *lane = &worker->lanes[i];
        struct proto_message message;
        if (!wait_for_message(lane, &message)) {
            return false;
        }
        if (!proto_perf_result_decode(&message, &lane->result)) {
            client_fail_message(&lane->client, &message);
            return false;
        }
        if (!check_result(lane)) {
            return false;
        }
    }
    return true;
}

/* -------------------------------------------------------------------------------------- latency */

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
        if (!take(perf->worker)) {
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
            if (!take(perf->worker)) {
                return false;
            }
        }
    } else {
        while (perf->completed != perf->posted) {
            if (!take(perf->worker)) {
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
             !stopped(worker));
    double median_ns = stats_quantile(worker->stats, 0.5);
    stats_begin(worker->stats);
    if (worker->index == 0) {
        worker->shared->group_size = timer_choose(&worker->shared->timer, median_ns);
    }
    return true;
}

/* The measurement of this worker begins or ends. */
static void begin_measuring(struct perf_worker *worker)
{
    for (size_t i = 0; i < worker->lane_count; i++) {
        worker->lanes[i].first_posted = worker->lanes[i].posted;
        worker->lanes[i].first_answers = worker->lanes[i].answers;
    }
    perf_signal_change(worker->shared, &worker->shared->measuring);
    worker->has_waited = timer_waited_ns(&worker->waited_ns);
    worker->start_cpu_ns = timer_cpu_ns();
    worker->start_ns = timer_clock_ns();
}

static void end_measuring(struct perf_worker *worker)
{
    worker->end_ns = timer_clock_ns();
    worker->end_cpu_ns = timer_cpu_ns();
    uint64_t waited_ns = 0;
    worker->has_waited = worker->has_waited && timer_waited_ns(&waited_ns);
    worker->waited_ns = worker->has_waited ? waited_ns - worker->waited_ns : 0;
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
    begin_measuring(worker);
    uint64_t start = timer_ticks(&timer);
    uint64_t before = start;
    uint64_t done = 0;
    uint64_t group = limit < group_size ? limit : group_size;
    size_t turn = 0;
    while (group > 0 && before - start < duration && !stopped(worker)) {
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
    end_measuring(worker);
    return exchange_ends(worker);
}

/* --------------------------------------------------------------------------- rate and bandwidth */

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
        slot = slot_after(perf, slot);
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
        if (!take_now(perf->worker)) {
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
        if (!take_now(perf->worker)) {
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
    return lane->notices == FIRST_MEASURED_NOTICE &&
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
        if (stopped(perf->worker) || (window->limit == UINT64_MAX && window_is_over(perf))) {
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
        if (stopped(perf->worker) ||
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
        if (!take(worker)) {
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
    while (!stopped(worker)) {
        if (count != 0 ? server_has_done_on_all(worker, count)
                       : (sleeps || ++turns % TURNS_PER_CLOCK == 0) && timer_clock_ns() >= end_ns) {
            break;
        }
        if (!take(worker)) {
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
        if (!wait_for(&worker->lanes[i], &worker->lanes[i].server_started)) {
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
        !run_phase(worker, 0, timer_clock_ns() + rate_warm_up_ns)) {
        return false;
    }
    begin_measuring(worker);
    if (!run_phase(worker, options->iterations,
                   worker->start_ns + (uint64_t)(options->seconds * 1e9))) {
        return false;
    }
    bool delivered_only = perf_op_sends(options->op) || perf_op_writes(options->op) ||
                          options->direction == PERF_REVERSE;
    if (delivered_only && !exchange_ends(worker)) {
        return false;
    }
    end_measuring(worker);
    return delivered_only || exchange_ends(worker);
}

/* ---------------------------------------------------------------------------- open and close */

static uint32_t access_of(const struct proto_perf_request *request)
{
    uint32_t access = RDMUX_ACCESS_LOCAL_WRITE;
    if (request->op == PERF_READ) {
        access |= RDMUX_ACCESS_READ_SINK;
    }
    /* The peer writes the answers of a ping-pong of writes. Over shared memory it writes messages
     * directly into posted receives of a region that it may write to. */
    bool server_posts = request->direction != PERF_FORWARD;
    if ((request->test == PERF_LATENCY || server_posts) &&
        (perf_op_writes(request->op) || perf_op_sends(request->op))) {
        access |= RDMUX_ACCESS_REMOTE_WRITE;
    }
    if (server_posts && request->op == PERF_READ) {
        access |= RDMUX_ACCESS_REMOTE_READ;
    }
    if (server_posts && (request->op == PERF_FETCH_ADD || request->op == PERF_COMPARE_SWAP)) {
        access |= RDMUX_ACCESS_REMOTE_ATOMIC;
    }
    return access;
}

/* Returns the number of receives to keep posted: enough for control messages and answers, and for
 * the window of a server that sends. Two receives never share a slot if the contents matter. */
static uint32_t receive_count(const struct perf_lane *lane)
{
    if (!perf_op_arrives(lane->request.op) || lane->request.direction == PERF_FORWARD) {
        return RECEIVES;
    }
    if (lane->request.verify) {
        return lane->layout.slots;
    }
    return lane->layout.depth > RECEIVES ? lane->layout.depth : RECEIVES;
}

/* Asks for the test, and takes the server's answer. */
static bool request_test(struct perf_lane *perf)
{
    struct client *client = &perf->client;
    const struct proto_perf_request *request = &perf->request;
    if (!client_send_control(client,
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
        enum rdmux_status status = rdmux_remote_import(client->ep, &ready.token,
                                                       TOOL_CONNECT_TIMEOUT_MS, &perf->remote);
        if (status != RDMUX_OK) {
            client_fail_call(client, "import the server's memory", status);
            return false;
        }
    }
    perf->target_offset = ready.target_offset;
    perf->ready_ns = timer_clock_ns();
    return true;
}

/* Allocates the memory, posts receives, and has the test accepted by the server. */
static bool prepare(struct perf_lane *perf)
{
    struct client *client = &perf->client;
    const struct proto_perf_request *request = &perf->request;
    bool has_inline = perf_op_sends(request->op) || perf_op_writes(request->op);
    perf->inline_flag = has_inline && request->size <= client->info.max_inline
                            ? (uint32_t)RDMUX_INLINE
                            : 0;
    if (perf_op_sends(request->op) && request->size > client->info.max_send) {
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
    uint32_t receives = receive_count(perf);
    perf->repost_batch = receives / 4 > PERF_RECEIVE_BATCH ? PERF_RECEIVE_BATCH
                         : receives / 4 > 0                ? receives / 4
                                                           : 1;
    return post_receives(perf, receives) && request_test(perf);
}

int perf_lane_open(struct perf_lane *lane, struct perf_worker *worker)
{
    const struct perf_options *options = &worker->shared->options;
    bool server_posts = options->direction != PERF_FORWARD;
    lane->shared = worker->shared;
    lane->worker = worker;
    lane->client.told = &worker->shared->told;
    lane->request = (struct proto_perf_request){
        .op = (uint8_t)options->op,
        .test = (uint8_t)options->test,
        .memory = (uint8_t)options->memory,
        .wait = (uint8_t)options->wait,
        .verify = options->verify ? 1 : 0,
        .direction = (uint8_t)options->direction,
        .depth = (uint32_t)options->depth,
        .size = (uint32_t)options->size,
        .has_token = server_posts ? !perf_op_sends(options->op)
                                  : perf_op_writes(options->op) && options->test == PERF_LATENCY,
    };
    lane->layout = perf_layout_of(&lane->request);
    uint32_t receives = receive_count(lane);

    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    attr.paths = options->paths;
    attr.local = options->local;
    attr.probe = options->probe;
    attr.prefer = options->test == PERF_BANDWIDTH ? RDMUX_PREFER_BANDWIDTH : RDMUX_PREFER_LATENCY;
    attr.typical_size = options->size;
    attr.send_depth = lane->layout.depth + SPARE_DEPTH;
    attr.recv_depth = receives > RECEIVES ? receives : RECEIVES;
    attr.user = lane;
    int code = client_open_over(&lane->client, "perf", options->address, &attr, lane->request.depth,
                                worker->shared->fabric, worker->cq);
    if (code == TOOL_OK && !prepare(lane)) {
        code = TOOL_FAILED;
    }
    return code;
}

void perf_lane_close(struct perf_lane *lane)
{
    client_end(&lane->client);
    perf_memory_close(&lane->memory);
    client_close(&lane->client);
    free(lane->window.wrs);
    free(lane->window.sges);
}
