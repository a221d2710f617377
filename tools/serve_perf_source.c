/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Operations that the server posts, in perf tests whose direction is not forward.
 *
 * A window as the client's, driven by completions: each one makes room, and the room is filled at
 * once. The last operation of each interval is signaled. At PERF_END the server goes on to the end
 * of the interval, so that the completion of the last operation proves that all are done.
 */
#include "serve.h"

#include "timer.h"

#include <stdlib.h>

enum { INTERVAL_MAX = 64 };
/* With --iterations the client counts from the third notice on, which comes after the warm-up. */
static const uint64_t warm_up_ns = 20000000;
static const uint64_t notice_period_ns = 10000000;

static uint32_t operation_of(const struct proto_perf_request *request)
{
    static const uint32_t operations[] = { RDMUX_OP_SEND,         RDMUX_OP_WRITE,
                                           RDMUX_OP_READ,         RDMUX_OP_FETCH_ADD,
                                           RDMUX_OP_COMPARE_SWAP, RDMUX_OP_SEND_IMM,
                                           RDMUX_OP_WRITE_IMM };
    return operations[request->op];
}

bool serve_source_open(struct served *client)
{
    struct served_perf *perf = client->perf;
    const struct proto_perf_request *request = &perf->request;
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    enum rdmux_status status = rdmux_ep_info(client->ep, &info);
    if (status != RDMUX_OK) {
        serve_drop(client, "ask for the endpoint's path", status);
        return false;
    }
    if (perf_op_sends(request->op) && request->size > info.max_send) {
        serve_refuse(client, "the server may send %llu bytes at most; use a smaller --size",
                     (unsigned long long)info.max_send);
        return false;
    }
    struct served_source *source = calloc(1, sizeof(*source));
    if (source == NULL) {
        serve_refuse(client, "the server is out of memory");
        return false;
    }
    /* A quarter of the window, so that the rest keeps the path busy while completions are taken. */
    source->interval = 1;
    while (source->interval * 2 <= perf->layout.depth / 4 && source->interval < INTERVAL_MAX) {
        source->interval *= 2;
    }
    bool writes = perf_op_sends(request->op) || perf_op_writes(request->op);
    source->inline_flag = writes && request->size <= info.max_inline ? (uint32_t)RDMUX_INLINE : 0;
    for (uint32_t i = 0; i < SERVE_REPOST_BATCH; i++) {
        source->sges[i] = (struct rdmux_sge){ .length = request->size, .mr = perf->memory.mr };
        source->wrs[i] = (struct rdmux_wr){
            .op = operation_of(request),
            .context = client,
            .sges = &source->sges[i],
            .sge_count = 1,
            .offset = request->echo_offset,
            .operand = 1,
        };
    }
    perf->source = source;
    return true;
}

/* Prepares operations from number source->posted on. */
static void fill(struct served_perf *perf, uint32_t count)
{
    struct served_source *source = perf->source;
    const struct proto_perf_request *request = &perf->request;
    for (uint32_t i = 0; i < count; i++) {
        struct rdmux_wr *wr = &source->wrs[i];
        uint64_t number = source->posted + i;
        uint64_t at = source->slot * perf->layout.stride;
        bool signaled = (number + 1) % source->interval == 0;
        wr->flags = source->inline_flag | (signaled ? 0 : (uint32_t)RDMUX_UNSIGNALED);
        wr->remote = perf->remote;
        source->sges[i].addr = perf->memory.base + at;
        wr->imm = perf_immediate(number);
        if (perf_op_writes(request->op) || request->op == PERF_READ) {
            wr->offset = request->echo_offset + at;
        } else if (request->op == PERF_COMPARE_SWAP) {
            wr->expected = number;
            wr->operand = number + 1;
        }
        if (request->verify) {
            perf_pattern_fill(perf->memory.base + at, request->size, perf_seed_to_client(number));
        }
        source->slot = source->slot + 1 == perf->layout.slots ? 0 : source->slot + 1;
    }
}

/* Posts one batch. Returns false if the queue is full, or if the client was dropped. */
static bool post_batch(struct served *client, uint32_t count)
{
    struct served_perf *perf = client->perf;
    struct served_source *source = perf->source;
    uint32_t slot = source->slot;
    fill(perf, count);
    size_t posted = 0;
    enum rdmux_status status = rdmux_post(client->ep, source->wrs, count, &posted);
    source->posted += posted;
    source->slot = (uint32_t)((slot + posted) % perf->layout.slots);
    if (status != RDMUX_OK && status != RDMUX_AGAIN) {
        serve_drop(client, "post operations", status);
    }
    return status == RDMUX_OK;
}

/* Tells the client how many operations are done, which it does not see of one-sided ones. */
static void send_notice(struct served *client, uint64_t now_ns)
{
    struct served_source *source = client->perf->source;
    enum rdmux_status status = rdmux_send_imm(
        client->ep, NULL, 0, NULL, (uint32_t)source->completed, client, RDMUX_UNSIGNALED);
    if (status == RDMUX_OK) {
        source->notice_ns = now_ns;
    } else if (status != RDMUX_AGAIN) {
        serve_drop(client, "tell the number of operations", status);
    }
}

void serve_source_pump(struct served *client)
{
    struct served_perf *perf = client->perf;
    struct served_source *source = perf->source;
    if (!source->started) {
        return;
    }
    uint64_t now_ns = timer_clock_ns();
    if (source->first_ns == 0 && now_ns - source->start_ns >= warm_up_ns && !source->stopping) {
        source->first_ns = now_ns;
        source->first = source->completed;
    }
    for (;;) {
        uint64_t room = perf->layout.depth - (source->posted - source->completed);
        uint64_t left = source->stopping ? (source->interval - source->posted % source->interval) %
                                               source->interval
                                         : UINT64_MAX;
        uint64_t count = source->batch < left ? source->batch : left;
        bool more_to_come = source->posted - source->completed >= source->interval;
        if (room < count && more_to_come) {
            break; /* waits for room for a whole batch */
        }
        count = room < count ? room : count;
        if (count == 0 || !post_batch(client, (uint32_t)count)) {
            break;
        }
    }
    if (client->state == SERVED_RUNNING && !source->stopping &&
        !perf_op_arrives(perf->request.op) && now_ns - source->notice_ns >= notice_period_ns) {
        send_notice(client, now_ns);
    }
}

void serve_source_start(struct served *client, const struct proto_perf_start *start)
{
    struct served_source *source = client->perf->source;
    source->started = true;
    source->batch = start->batch < SERVE_REPOST_BATCH ? start->batch : SERVE_REPOST_BATCH;
    source->start_ns = timer_clock_ns();
    /* The client goes on when it knows that PERF_START was read: receives share buffers. */
    send_notice(client, source->start_ns);
    if (client->state == SERVED_RUNNING) {
        serve_source_pump(client);
    }
}

void serve_source_completed(struct served *client)
{
    client->perf->source->completed += client->perf->source->interval;
}

bool serve_source_drained(const struct served *client)
{
    const struct served_source *source = client->perf->source;
    return source->stopping && source->posted % source->interval == 0 &&
           source->completed == source->posted;
}
