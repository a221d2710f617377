/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * A lane of a perf test: its receives, completions and messages, and how it opens and closes.
 *
 * Receives are posted ahead and reposted in batches. One poll of a worker takes the completions of
 * all its lanes.
 */
#include "perf_lane.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    RECEIVES = 64,            /* posted ahead */
    COMPLETIONS = 32,         /* maximum taken by one poll */
    SPARE_DEPTH = 16,         /* for control messages and notices in addition to the window */
    REPLY_TIMEOUT_MS = 20000, /* for READY and RESULT; the library detects a dead server earlier */
    WAIT_MS = 100,            /* longest sleep, then the stop flag is read */
};

/* ------------------------------------------------------------------------------------- receives */

static uint8_t *receive_buffer(const struct perf_lane *perf, uint32_t slot)
{
    if (perf_op_sends(perf->request.op)) {
        return perf->memory.base + perf->layout.target_at + slot * perf->layout.stride;
    }
    return perf->memory.base + perf->layout.control_at;
}

static bool post_receives(struct perf_lane *perf, uint32_t count)
{
    while (count > 0) {
        uint32_t batch = count < PERF_RECEIVE_BATCH ? count : PERF_RECEIVE_BATCH;
        uint32_t slot = perf->next_receive;
        for (uint32_t i = 0; i < batch; i++) {
            perf->receive_sges[i].addr = receive_buffer(perf, slot);
            perf->receive_wrs[i].context = perf->receive_sges[i].addr;
            slot = perf_slot_after(perf, slot);
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

static bool is_atomic(const struct perf_lane *lane)
{
    return lane->request.op == PERF_FETCH_ADD || lane->request.op == PERF_COMPARE_SWAP;
}

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
        if (perf->notices < PERF_FIRST_MEASURED_NOTICE) {
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

bool perf_take_now(struct perf_worker *worker)
{
    struct rdmux_wc wc[COMPLETIONS];
    return take_all(worker, wc, rdmux_cq_poll(worker->cq, wc, COMPLETIONS));
}

bool perf_take(struct perf_worker *worker)
{
    if (worker->shared->options.wait == PERF_POLL) {
        return perf_take_now(worker);
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

bool perf_wait_for(struct perf_lane *lane, const bool *flag)
{
    uint64_t give_up_ns = timer_clock_ns() + UINT64_C(1000000) * REPLY_TIMEOUT_MS;
    while (!*flag) {
        if (!perf_take(lane->worker)) {
            return false;
        }
        if (!*flag && timer_clock_ns() > give_up_ns) {
            client_fail(&lane->client,
                        "%s: the server has not answered for %d s; is it stopped or overloaded?",
                        lane->client.address, REPLY_TIMEOUT_MS / 1000);
            return false;
        }
    }
    return true;
}

static bool wait_for_message(struct perf_lane *perf, struct proto_message *out)
{
    if (!perf_wait_for(perf, &perf->message_here)) {
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

bool perf_exchange_ends(struct perf_worker *worker)
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
