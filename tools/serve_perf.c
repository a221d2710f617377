/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Server side of perf: receives and reposts, answers ping-pongs, checks contents, counts
 * deliveries. */
#include "serve.h"

#include "timer.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { PING_RECEIVES = 16 };

static bool answers(const struct served_perf *perf)
{
    return perf->request.test == PERF_LATENCY &&
           (perf_op_sends(perf->request.op) || perf_op_writes(perf->request.op));
}

static uint8_t *target(const struct served_perf *perf, uint64_t slot)
{
    return perf->memory.base + perf->layout.target_at + slot * perf->layout.stride;
}

/* ------------------------------------------------------------------------------------- receives */

static uint8_t *receive_buffer(const struct served_perf *perf, uint32_t slot)
{
    return perf_op_sends(perf->request.op) ? target(perf, slot)
                                           : perf->memory.base + perf->layout.control_at;
}

static uint32_t slot_after(const struct served_perf *perf, uint32_t slot)
{
    return slot + 1 == perf->layout.slots ? 0 : slot + 1;
}

static bool post_receives(struct served *client, uint32_t count)
{
    struct served_perf *perf = client->perf;
    while (count > 0) {
        uint32_t batch = count < SERVE_REPOST_BATCH ? count : SERVE_REPOST_BATCH;
        for (uint32_t i = 0; i < batch; i++) {
            perf->sges[i].addr = receive_buffer(perf, perf->next_receive);
            perf->next_receive = slot_after(perf, perf->next_receive);
        }
        enum rdmux_status status = rdmux_post_recv(client->ep, perf->wrs, batch, NULL);
        if (status != RDMUX_OK) {
            serve_drop(client, "post receives", status);
            return false;
        }
        count -= batch;
    }
    return true;
}

/* The receive of perf->oldest_receive was filled and its contents are no longer needed. */
static void receive_taken(struct served *client)
{
    struct served_perf *perf = client->perf;
    perf->oldest_receive = slot_after(perf, perf->oldest_receive);
    if (++perf->receives_taken >= perf->repost_batch) {
        uint32_t count = perf->receives_taken;
        perf->receives_taken = 0;
        post_receives(client, count);
    }
}

/* -------------------------------------------------------------------------------------- answers */

static enum rdmux_status post_answer(struct served *client, uint32_t flags)
{
    struct served_perf *perf = client->perf;
    const struct proto_perf_request *request = &perf->request;
    uint8_t *bytes = perf->memory.base;
    uint32_t imm = perf_immediate(perf->answered);
    if (request->op == PERF_SEND) {
        return rdmux_send(client->ep, bytes, request->size, perf->memory.mr, client, flags);
    }
    if (request->op == PERF_SEND_IMM) {
        return rdmux_send_imm(client->ep, bytes, request->size, perf->memory.mr, imm, client, flags);
    }
    return rdmux_write_imm(client->ep, bytes, request->size, perf->memory.mr, perf->remote,
                           request->echo_offset, imm, client, flags);
}

/* Sends the answers due as far as the queue takes them; called again when it has room. */
static void send_answers(struct served *client)
{
    struct served_perf *perf = client->perf;
    const struct proto_perf_request *request = &perf->request;
    while (perf->answered < perf->delivered && !perf->answer_under_way) {
        uint32_t flags = RDMUX_UNSIGNALED;
        if (request->verify) {
            /* The buffer is refilled for each answer, so it must be free. */
            flags = 0;
            perf_pattern_fill(perf->memory.base, request->size, perf_seed_to_client(perf->answered));
        }
        enum rdmux_status status = post_answer(client, flags);
        if (status == RDMUX_AGAIN) {
            return;
        }
        if (status != RDMUX_OK) {
            serve_drop(client, "answer a message", status);
            return;
        }
        perf->answered++;
        perf->answer_under_way = flags == 0;
    }
}

static void send_notice(struct served *client)
{
    struct served_perf *perf = client->perf;
    if (perf->notices_owed == 0) {
        return;
    }
    enum rdmux_status status = rdmux_send_imm(client->ep, NULL, 0, NULL, (uint32_t)perf->delivered,
                                              client, RDMUX_UNSIGNALED);
    if (status == RDMUX_OK) {
        perf->notices_owed = 0;
    } else if (status != RDMUX_AGAIN) {
        serve_drop(client, "acknowledge writes", status);
    }
}

/* ----------------------------------------------------------------------------------------- data */

/* Handles a ping, or one message of a stream of sends or of write_imms. */
static void take_data(struct served *client, const struct rdmux_wc *wc, const uint8_t *bytes)
{
    struct served_perf *perf = client->perf;
    if (wc->length != perf->request.size) {
        serve_refuse(client, "a message of %" PRIu64 " bytes came in a test of %u bytes",
                     wc->length, (unsigned)perf->request.size);
        return;
    }
    bool right = perf_immediate_matches(perf->request.op, wc, perf->delivered);
    if (right && perf->request.verify) {
        right = perf_pattern_matches(bytes, perf->request.size,
                                     perf_seed_to_server(perf->delivered));
    }
    perf->wrong += right ? 0 : 1;
    perf->delivered++;
    receive_taken(client);
    if (client->state != SERVED_RUNNING) {
        return;
    }
    if (answers(perf)) {
        send_answers(client);
    } else if (perf->request.op == PERF_WRITE_IMM && perf->request.verify) {
        perf->notices_owed = 1;
        send_notice(client);
    }
}

/* Handles the notice behind a group of writes to be verified; its immediate data is their
 * number. */
static void take_group(struct served *client, const struct rdmux_wc *wc)
{
    struct served_perf *perf = client->perf;
    if (!perf->request.verify || wc->length != 0 || wc->imm == 0 || wc->imm > perf->layout.slots) {
        serve_refuse(client, "a notice about %u writes does not belong to this test",
                     (unsigned)wc->imm);
        return;
    }
    for (uint32_t i = 0; i < wc->imm; i++) {
        uint8_t *bytes = target(perf, perf->delivered % perf->layout.slots);
        if (!perf_pattern_matches(bytes, perf->request.size, perf_seed_to_server(perf->delivered))) {
            perf->wrong++;
        }
        perf->delivered++;
    }
    perf->notices_owed = 1;
    receive_taken(client);
    if (client->state == SERVED_RUNNING) {
        send_notice(client);
    }
}

/* All atomics of a test go to one word, which counts them. */
static void verify_word(struct served_perf *perf, uint64_t operations)
{
    const _Atomic uint64_t *word = (const _Atomic uint64_t *)(const void *)target(perf, 0);
    if (atomic_load(word) != operations) {
        perf->wrong++;
    }
}

/* The server's own report of a test. Its time includes the client's warm-up. */
static void log_result(struct served *client, const struct proto_perf_result *result)
{
    const struct served_perf *perf = client->perf;
    double seconds = (double)(timer_clock_ns() - perf->ready_ns) / 1e9;
    uint64_t operations = result->delivered + result->posted;
    double bytes = (double)operations * perf->request.size / seconds;
    char rate[TOOL_NUMBER_MAX], bits[TOOL_NUMBER_MAX];
    tool_format_rate(bytes, rate);
    tool_format_gbit(bytes, bits);
    char posted[64] = "";
    if (result->has_posted) {
        snprintf(posted, sizeof(posted), " (%" PRIu64 " of them posted here)", result->posted);
    }
    serve_log(client,
              "perf %s %s, %u bytes: %" PRIu64 " operations%s in %.3f s, %s, %s, cpu %.2f s%s",
              perf_op_names[perf->request.op], perf_test_names[perf->request.test],
              (unsigned)perf->request.size, operations, posted, seconds, rate, bits,
              (double)result->cpu_ns / 1e9, result->wrong != 0 ? ", wrong contents" : "");
}

static void finish(struct served *client)
{
    struct served_perf *perf = client->perf;
    const struct proto_perf_request *request = &perf->request;
    const struct proto_perf_end *end = &perf->end;
    bool counted = perf_op_arrives(request->op) || answers(perf) ||
                   (request->op == PERF_WRITE && request->verify);
    if (request->verify && (request->op == PERF_FETCH_ADD || request->op == PERF_COMPARE_SWAP)) {
        verify_word(perf, end->operations);
    }
    struct proto_perf_result result = {
        .delivered = counted ? perf->delivered : end->operations,
        .cpu_ns = timer_cpu_ns() - perf->cpu_ns,
        .verified = request->verify && perf->wrong == 0 ? 1 : 0,
        .wrong = perf->wrong,
    };
    uint64_t waited_ns = 0;
    if (perf->has_waited && timer_waited_ns(&waited_ns)) {
        result.has_waited = 1;
        result.waited_ns = waited_ns - perf->waited_ns;
    }
    const struct served_source *source = perf->source;
    if (source != NULL) {
        uint64_t from_ns = source->first_ns != 0 ? source->first_ns : source->start_ns;
        result.has_posted = true;
        result.posted = source->posted;
        result.measured = source->posted - source->first;
        result.measured_ns = source->started ? timer_clock_ns() - from_ns : 0;
    }
    log_result(client, &result);
    if (client->spins) {
        client->spins = false;
        client->server->spin_count--;
    }
    client->one_sided = false; /* only the end follows */
    serve_send_control(client, proto_perf_result_encode(&result, serve_control_buffer(client)));
}

static void take_control(struct served *client, const struct rdmux_wc *wc, const uint8_t *bytes)
{
    struct served_perf *perf = client->perf;
    struct proto_message message;
    struct proto_perf_start start;
    bool good = perf->ready && wc->length <= PROTO_CONTROL_MAX &&
                proto_open(bytes, (size_t)wc->length, &message);
    if (good && perf->source != NULL && !perf->source->started &&
        proto_perf_start_decode(&message, &start)) {
        receive_taken(client);
        if (client->state == SERVED_RUNNING) {
            serve_source_start(client, &start);
        }
        return;
    }
    if (!good || !proto_perf_end_decode(&message, &perf->end) ||
        client->control_out_used + 1 >= SERVE_CONTROL_SENDS) {
        serve_refuse(client, "a control message does not belong to a perf test");
        return;
    }
    if (perf->source == NULL) {
        finish(client);
        return;
    }
    if (perf->source->stopping) {
        serve_refuse(client, "a perf test was ended twice");
        return;
    }
    perf->source->stopping = true;
    serve_source_pump(client);
    if (client->state == SERVED_RUNNING && serve_source_drained(client)) {
        finish(client);
    }
}

/* One of the server's own operations is done. */
static void take_own(struct served *client)
{
    serve_source_completed(client);
    serve_source_pump(client);
    if (client->state == SERVED_RUNNING && serve_source_drained(client)) {
        finish(client);
    }
}

/* -------------------------------------------------------------------------------- begin and end */

static void send_ready(struct served *client)
{
    struct served_perf *perf = client->perf;
    struct proto_perf_ready ready = {
        .has_token = !perf_op_sends(perf->request.op) ? 1 : 0, /* of use unless in reverse */
        .target_offset = perf->layout.target_at,
    };
    if (ready.has_token) {
        enum rdmux_status status = rdmux_mr_export(perf->memory.mr, &ready.token);
        if (status != RDMUX_OK) {
            serve_drop(client, "export the test's memory", status);
            return;
        }
    }
    perf->ready = true;
    perf->cpu_ns = timer_cpu_ns();
    perf->ready_ns = timer_clock_ns();
    perf->has_waited = timer_waited_ns(&perf->waited_ns);
    serve_send_control(client, proto_perf_ready_encode(&ready, serve_control_buffer(client)));
}

static uint32_t access_of(const struct proto_perf_request *request)
{
    switch ((enum perf_op)request->op) {
    case PERF_WRITE:
    case PERF_WRITE_IMM:
        return RDMUX_ACCESS_LOCAL_WRITE | RDMUX_ACCESS_REMOTE_WRITE;
    case PERF_READ:
        return RDMUX_ACCESS_LOCAL_WRITE | RDMUX_ACCESS_REMOTE_READ |
               (request->direction != PERF_FORWARD ? (uint32_t)RDMUX_ACCESS_READ_SINK : 0);
    case PERF_FETCH_ADD:
    case PERF_COMPARE_SWAP:
        return RDMUX_ACCESS_LOCAL_WRITE | RDMUX_ACCESS_REMOTE_ATOMIC;
    case PERF_SEND:
    case PERF_SEND_IMM:
        /* Over shared memory the peer then writes directly into the posted receives. */
        return RDMUX_ACCESS_LOCAL_WRITE | RDMUX_ACCESS_REMOTE_WRITE;
    case PERF_OP_COUNT:
        break;
    }
    return RDMUX_ACCESS_LOCAL_WRITE;
}

/* Returns the number of receives to keep posted: a few for pings and notices, one for each
 * in-flight message in a stream of sends or of write_imms. Two receives never share a slot if the
 * contents matter. */
static uint32_t receive_count(const struct served_perf *perf)
{
    if (!perf_op_arrives(perf->request.op) || answers(perf)) {
        return PING_RECEIVES;
    }
    if (perf->request.verify) {
        return perf->layout.slots;
    }
    return perf->layout.depth > 1 ? perf->layout.depth : 2;
}

void serve_perf_begin(struct served *client, const struct proto_perf_request *request)
{
    struct served_perf *perf = calloc(1, sizeof(*perf));
    if (perf == NULL) {
        serve_refuse(client, "the server is out of memory");
        return;
    }
    client->perf = perf;
    perf->request = *request;
    perf->layout = perf_layout_of(request);
    if (!serve_reserve(client, perf->layout.length)) {
        return;
    }
    enum rdmux_status status = perf_memory_open(
        client->server->fabric, (enum perf_memory_kind)request->memory, perf->layout.length,
        access_of(request), &perf->memory);
    if (status != RDMUX_OK) {
        serve_refuse(client,
                     "the server cannot make %" PRIu64 " bytes of memory for the test: %s: %s",
                     perf->layout.length, rdmux_status_name(status), rdmux_last_error());
        return;
    }
    if (request->op == PERF_READ) {
        for (uint32_t slot = 0; slot < perf->layout.slots; slot++) {
            perf_pattern_fill(target(perf, slot), request->size, perf_seed_to_client(slot));
        }
    }
    uint32_t receives = receive_count(perf);
    perf->repost_batch = receives / 4 > SERVE_REPOST_BATCH ? SERVE_REPOST_BATCH
                         : receives / 4 > 0                ? receives / 4
                                                           : 1;
    for (uint32_t i = 0; i < SERVE_REPOST_BATCH; i++) {
        perf->sges[i] = (struct rdmux_sge){ .length = perf->layout.receive_size,
                                            .mr = perf->memory.mr };
        perf->wrs[i] = (struct rdmux_wr){
            .op = RDMUX_OP_RECV,
            .context = client,
            .sges = &perf->sges[i],
            .sge_count = 1,
        };
    }
    serve_log(client, "perf %s %s, %u bytes", perf_op_names[request->op],
              perf_test_names[request->test], (unsigned)request->size);
    client->one_sided = !perf_op_arrives(request->op) && !answers(perf) &&
                        !(request->op == PERF_WRITE && request->verify) &&
                        request->direction == PERF_FORWARD;
    if (request->direction != PERF_FORWARD && !serve_source_open(client)) {
        return;
    }
    serve_run(client, WORK_PERF, request->wait == PERF_POLL);
    if (!post_receives(client, receives)) {
        return;
    }
    if (!request->has_token) {
        send_ready(client);
        return;
    }
    status = rdmux_remote_import(client->ep, &request->token, 0, &perf->remote);
    if (status == RDMUX_OK) {
        send_ready(client);
    } else if (status != RDMUX_IN_PROGRESS) {
        serve_refuse(client, "the server cannot import the client's memory: %s: %s",
                     rdmux_status_name(status), rdmux_last_error());
    }
}

void serve_perf_completion(struct served *client, const struct rdmux_wc *wc)
{
    struct served_perf *perf = client->perf;
    switch (wc->opcode) {
    case RDMUX_WC_RECV: {
        const uint8_t *bytes = receive_buffer(perf, perf->oldest_receive);
        bool has_imm = (wc->flags & RDMUX_WC_HAS_IMM) != 0;
        bool with_imm = perf->request.op == PERF_SEND_IMM;
        if (has_imm && (!with_imm || wc->imm == PROTO_IMM_CONTROL)) {
            take_control(client, wc, bytes);
        } else if (perf_op_sends(perf->request.op) && has_imm == with_imm && perf->ready) {
            take_data(client, wc, bytes);
        } else {
            serve_refuse(client, "a message came that does not belong to this test");
        }
        break;
    }
    case RDMUX_WC_RECV_WRITE_IMM:
        if (!perf_op_writes(perf->request.op) || !perf->ready) {
            serve_refuse(client, "a notice came that does not belong to this test");
        } else if (answers(perf) || perf->request.op == PERF_WRITE_IMM) {
            take_data(client, wc, target(perf, perf->delivered % perf->layout.slots));
        } else {
            take_group(client, wc);
        }
        break;
    case RDMUX_WC_SEND:
    case RDMUX_WC_WRITE:
    case RDMUX_WC_READ:
    case RDMUX_WC_FETCH_ADD:
    case RDMUX_WC_COMPARE_SWAP:
        if (perf->source != NULL) {
            take_own(client);
        } else {
            perf->answer_under_way = false;
            send_answers(client);
        }
        break;
    case RDMUX_WC_WRITABLE:
        if (perf->source != NULL) {
            serve_source_pump(client);
        } else if (answers(perf)) {
            send_answers(client);
        } else {
            send_notice(client);
        }
        break;
    case RDMUX_WC_REMOTE_READY:
        if (wc->status != RDMUX_OK) {
            serve_refuse(client, "the server cannot import the client's memory: %s",
                         rdmux_status_name((enum rdmux_status)wc->status));
        } else if (!perf->ready) {
            send_ready(client);
        }
        break;
    default:
        break;
    }
}

void serve_perf_free(struct served *client)
{
    if (client->perf != NULL) {
        perf_memory_close(&client->perf->memory);
        free(client->perf->source);
        free(client->perf);
        client->perf = NULL;
    }
}
