/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * The sending half of a queue pair. Requests start in order and are cut into packets; each packet
 * has its own answer; requests complete in order. Lost packets are retransmitted after the timeout,
 * packets without a receive after the receiver's timer, both a limited number of times.
 */
#include "sim_requester.h"

#include "sim_carry.h"
#include "sim_cm_news.h"
#include "sim_completion.h"
#include "sim_device.h"
#include "sim_faults.h"
#include "sim_macros.h"
#include "sim_memory.h"
#include "sim_options.h"
#include "sim_packet.h"
#include "sim_place.h"
#include "sim_queue.h"
#include "sim_responder.h"
#include "sim_world.h"

#include <string.h>

enum { VENDOR_RETRY_EXCEEDED = 0x81 }; /* mlx5's code, which users search for */

static bool is_atomic(uint8_t opcode)
{
    return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

/* Requests answered with data: counted against the read depth. */
static bool is_read(uint8_t opcode)
{
    return opcode == IBV_WR_RDMA_READ || is_atomic(opcode);
}

static uint32_t under_way(const struct sim_qp *qp)
{
    return (uint32_t)sim_psn_distance(qp->flight.next_psn, qp->flight.una_psn);
}

/* ----------------------------------------------------------------------------------- completion */

static enum ibv_wc_opcode wc_opcode(uint8_t opcode)
{
    switch (opcode) {
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
        return IBV_WC_RDMA_WRITE;
    case IBV_WR_RDMA_READ:
        return IBV_WC_RDMA_READ;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
        return IBV_WC_COMP_SWAP;
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
        return IBV_WC_FETCH_ADD;
    default:
        return IBV_WC_SEND;
    }
}

static void show(struct sim_qp *qp, uint32_t request, enum ibv_wc_status status)
{
    struct sim_wqe *wqe = sim_wqe_at(qp, request);
    wqe->shown = true;
    wqe->entry = status != IBV_WC_SUCCESS || (wqe->flags & IBV_SEND_SIGNALED) != 0;
    if (!wqe->entry || qp->silent || !sim_device_alive(qp->device)) {
        return;
    }
    bool good = status == IBV_WC_SUCCESS;
    struct sim_cqe cqe = {
        .wr_id = wqe->wr_id,
        .status = status,
        /* A failed entry's opcode is invalid: it is deliberately wrong. */
        .opcode = good ? wc_opcode(wqe->opcode) : IBV_WC_RECV,
        .vendor_err = status == IBV_WC_RETRY_EXC_ERR ? VENDOR_RETRY_EXCEEDED : 0,
        .byte_len = good && is_read(wqe->opcode) ? (uint32_t)wqe->length : 0,
        .qp_num = sim_qp_num(qp),
        .qp = qp,
        .placed = qp->place_serial,
        .request = request,
        .send_side = true,
    };
    sim_cq_put(qp->send_cq, &cqe);
}

/* Puts completed requests into the completion queue; a failed request puts the queue pair into
 * error. */
static void complete(struct sim_qp *qp)
{
    bool unordered = qp->device->options.unordered_reads != 0;
    for (uint32_t at = qp->sq.complete; at != qp->sq.posted; at++) {
        struct sim_wqe *wqe = sim_wqe_at(qp, at);
        if (!wqe->done) {
            if (unordered && wqe->started && is_read(wqe->opcode)) {
                continue;
            }
            break;
        }
        if (!wqe->shown) {
            show(qp, at, wqe->status);
            if (wqe->status != IBV_WC_SUCCESS) {
                sim_qp_enter_error(qp);
                return;
            }
        }
        if (at == qp->sq.complete) {
            qp->sq.complete++;
        }
    }
}

void sim_qp_retire(struct sim_qp *qp, uint32_t request)
{
    if ((int32_t)(request - qp->sq.retired) < 0) {
        return;
    }
    sim_wqe_at(qp, request)->polled = true;
    if (!qp->device->options.unordered_reads) {
        qp->sq.retired = request + 1;
        return;
    }
    /* A completion covers unsignaled requests before it, but not a read that it overtook. */
    qp->sq.covered = (int32_t)(request + 1 - qp->sq.covered) > 0 ? request + 1 : qp->sq.covered;
    while (qp->sq.retired != qp->sq.covered) {
        const struct sim_wqe *wqe = sim_wqe_at(qp, qp->sq.retired);
        if (!wqe->shown || (wqe->entry && !wqe->polled)) {
            return;
        }
        qp->sq.retired++;
    }
}

/* An answer with data that came before the data of an earlier request. A device drops it and asks
 * again; the effect is as here, in order. */
struct sim_held_answer {
    struct sim_held_answer *next;
    struct sim_answer answer;
    size_t length;
    uint8_t bytes[];
};

static void hold(struct sim_qp *qp, const struct sim_answer *answer, const struct sim_bytes *data)
{
    struct sim_held_answer **at = &qp->flight.held;
    while (*at != NULL) {
        if ((*at)->answer.psn == answer->psn) {
            return;
        }
        at = &(*at)->next;
    }
    size_t length = sim_bytes_length(data);
    *at = sim_alloc(qp->world, sizeof(**at) + length);
    if (*at != NULL) {
        (*at)->answer = *answer;
        (*at)->length = length;
        sim_bytes_copy_out(data, (*at)->bytes);
    }
}

static void drop_held(struct sim_qp *qp)
{
    while (qp->flight.held != NULL) {
        struct sim_held_answer *held = qp->flight.held;
        qp->flight.held = held->next;
        sim_free(held);
    }
}

/* --------------------------------------------------------------------------------------- errors */

static void fail(struct sim_qp *qp, struct sim_wqe *wqe, enum ibv_wc_status status)
{
    wqe->started = true;
    wqe->done = true;
    wqe->status = status;
    qp->stopped = true;
    complete(qp);
}

void sim_requester_flush(struct sim_qp *qp)
{
    for (uint32_t at = qp->sq.complete; at != qp->sq.posted; at++) {
        if (!sim_wqe_at(qp, at)->shown) {
            show(qp, at, IBV_WC_WR_FLUSH_ERR);
        }
    }
    qp->sq.complete = qp->sq.next = qp->sq.posted;
    qp->sq.next_packet = 0;
}

void sim_requester_cancel(struct sim_qp *qp)
{
    drop_held(qp);
    sim_cancel(qp->world, &qp->sq.doorbell);
    sim_cancel(qp->world, &qp->flight.retry);
    sim_cancel(qp->world, &qp->flight.rnr);
}

void sim_qp_enter_error(struct sim_qp *qp)
{
    if (qp->state == IBV_QPS_ERR) {
        return;
    }
    bool started = qp->state != IBV_QPS_RESET;
    sim_qp_set_state(qp, IBV_QPS_ERR);
    sim_requester_cancel(qp);
    qp->flight.una_psn = qp->flight.next_psn;
    qp->flight.answered = 0;
    drop_held(qp);
    qp->sq.reads = 0;
    qp->waiting = false;
    qp->swallow = sim_is_iwarp(qp->device);
    if (started) {
        bool unfinished = qp->sq.complete != qp->sq.posted;
        sim_requester_flush(qp);
        sim_responder_flush(qp);
        if (unfinished && sim_is_iwarp(qp->device)) {
            sim_qp_async(qp, IBV_EVENT_SQ_DRAINED);
        }
    }
}

void sim_requester_reset(struct sim_qp *qp)
{
    qp->sq.posted = qp->sq.next = qp->sq.complete = qp->sq.retired = qp->sq.covered = 0;
    qp->sq.next_packet = 0;
    qp->sq.reads = 0;
    qp->flight.una_psn = qp->flight.next_psn = 0;
    qp->flight.answered = 0;
    qp->retries = qp->rnr_retries = 0;
    qp->waiting = qp->stopped = false;
    qp->starts.in = 0;
}

/* --------------------------------------------------------------------------------- local memory */

/* Devices report key errors under different names. */
static enum ibv_wc_status wrong_key(const struct sim_qp *qp)
{
    switch (qp->device->options.like) {
    case SIM_LIKE_RXE:
        return IBV_WC_WR_FLUSH_ERR;
    case SIM_LIKE_SIW:
        return IBV_WC_LOC_QP_OP_ERR;
    default:
        return IBV_WC_LOC_PROT_ERR;
    }
}

static unsigned int sink_access(const struct sim_qp *qp)
{
    /* iWARP places a read's data through the sink's key, as a peer's write (RFC 5040); siw
     * does not require that, adapters do. */
    bool strict = sim_is_iwarp(qp->device) && qp->device->options.like == SIM_LIKE_HCA;
    return strict ? IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE : IBV_ACCESS_LOCAL_WRITE;
}

/* All local bytes of a request. */
static enum ibv_wc_status gather(const struct sim_qp *qp, struct sim_wqe *wqe, uint32_t request,
                                 struct sim_bytes *out)
{
    const struct ibv_sge *sges = sim_wqe_sges(qp, request);
    unsigned int access = is_read(wqe->opcode) ? sink_access(qp) : 0;
    out->count = 0;
    if (wqe->inlined) {
        sim_bytes_add(out, sim_wqe_inline(qp, request), wqe->length);
        return IBV_WC_SUCCESS;
    }
    for (int i = 0; i < wqe->num_sge; i++) {
        if (sges[i].length == 0) {
            continue; /* not checked */
        }
        void *memory = sim_memory_local(qp, &sges[i], access);
        if (memory == NULL) {
            return sim_memory_local(qp, &sges[i], 0) != NULL ? IBV_WC_LOC_PROT_ERR : wrong_key(qp);
        }
        sim_bytes_add(out, memory, sges[i].length);
    }
    return IBV_WC_SUCCESS;
}

static void fail_locally(struct sim_qp *qp, struct sim_wqe *wqe, enum ibv_wc_status status)
{
    bool sink = is_read(wqe->opcode) && status == IBV_WC_LOC_PROT_ERR;
    if (sim_is_iwarp(qp->device) && sink) {
        sim_qp_async(qp, IBV_EVENT_QP_ACCESS_ERR);
    }
    fail(qp, wqe, status);
    sim_qp_break_connection(qp);
}

/* -------------------------------------------------------------------------------------- sending */

static uint32_t packet_count(uint64_t length, uint64_t piece)
{
    return length == 0 ? 1 : (uint32_t)((length - 1) / piece + 1);
}

static bool may_start(struct sim_qp *qp, const struct sim_wqe *wqe)
{
    if (qp->state != IBV_QPS_RTS) {
        return false;
    }
    if ((wqe->flags & IBV_SEND_FENCE) != 0 && qp->sq.reads > 0) {
        return false;
    }
    return !is_read(wqe->opcode) || qp->sq.reads < qp->attr.max_rd_atomic;
}

/* Checks before the first packet is sent: IBV_WC_SUCCESS, or the status of the error. */
static enum ibv_wc_status check(struct sim_qp *qp, struct sim_wqe *wqe, struct sim_bytes *bytes)
{
    enum ibv_wc_status planned = sim_refusal_next(&qp->starts);
    planned = planned == IBV_WC_SUCCESS ? sim_refusal_next(&qp->device->starts) : planned;
    if (SIM_UNLIKELY(planned != IBV_WC_SUCCESS)) {
        return planned;
    }
    if (wqe->length > qp->device->options.limits.max_msg) {
        return IBV_WC_LOC_LEN_ERR;
    }
    return gather(qp, wqe, qp->sq.next, bytes);
}

static void start(struct sim_qp *qp, struct sim_wqe *wqe)
{
    uint64_t piece = qp->world->options.packet;
    wqe->started = true;
    wqe->piece = piece == 0 ? UINT64_MAX : piece;
    wqe->packets = is_atomic(wqe->opcode) ? 1 : packet_count(wqe->length, wqe->piece);
    wqe->first_psn = qp->flight.next_psn;
    wqe->answered = 0;
    qp->sq.reads += is_read(wqe->opcode) ? 1 : 0;
    if ((wqe->flags & IBV_SEND_FENCE) != 0) {
        sim_place_all(qp); /* data of earlier reads is visible to this request */
    }
}

static struct sim_request request_of(const struct sim_qp *qp, const struct sim_wqe *wqe,
                                     uint32_t index)
{
    uint64_t offset = is_atomic(wqe->opcode) ? 0 : index * wqe->piece;
    uint64_t rest = wqe->length - offset;
    return (struct sim_request){
        .psn = (wqe->first_psn + index) & SIM_PSN_MASK,
        .round = qp->flight.round,
        .depth = qp->sq.reads,
        .rkey = wqe->rkey,
        .imm_data = wqe->imm_data,
        .remote_addr = wqe->remote_addr,
        .total = wqe->length,
        .offset = offset,
        .length = rest < wqe->piece ? rest : wqe->piece,
        .compare_add = wqe->compare_add,
        .swap = wqe->swap,
        .opcode = wqe->opcode,
        .solicited = (wqe->flags & IBV_SEND_SOLICITED) != 0,
        .first = index == 0,
        .last = index + 1 == wqe->packets,
        .link = (uint8_t)qp->device->options.link,
    };
}

static void send_packet(struct sim_qp *qp, const struct sim_wqe *wqe, uint32_t index,
                        const struct sim_bytes *bytes)
{
    struct sim_request request = request_of(qp, wqe, index);
    struct sim_bytes part;
    part.count = 0;
    if (!is_read(wqe->opcode)) {
        if (wqe->packets == 1) {
            sim_carry_request(qp, &request, bytes);
            return;
        }
        sim_bytes_cut(bytes, request.offset, request.length, &part);
    }
    sim_carry_request(qp, &request, &part);
}

static bool stream_open(struct sim_qp *qp);

/* Sends the next packet of the next request. False: the request has to wait, or the queue pair
 * failed. */
static bool send_next(struct sim_qp *qp)
{
    struct sim_wqe *wqe = sim_wqe_at(qp, qp->sq.next);
    if ((!wqe->started && !may_start(qp, wqe)) || !stream_open(qp)) {
        return false;
    }
    struct sim_bytes bytes;
    enum ibv_wc_status status = wqe->started ? gather(qp, wqe, qp->sq.next, &bytes)
                                             : check(qp, wqe, &bytes);
    if (status != IBV_WC_SUCCESS) {
        fail_locally(qp, wqe, status);
        return false;
    }
    if (!wqe->started) {
        start(qp, wqe);
    }
    uint32_t index = qp->sq.next_packet++;
    qp->flight.next_psn = (qp->flight.next_psn + 1) & SIM_PSN_MASK;
    bool last = qp->sq.next_packet == wqe->packets;
    if (last) {
        qp->sq.next++;
        qp->sq.next_packet = 0;
    }
    if (last && sim_is_iwarp(qp->device) && !is_read(wqe->opcode)) {
        wqe->done = true; /* handed to TCP: the buffer is free; no more is known */
        complete(qp);
    }
    send_packet(qp, wqe, index, &bytes);
    return true;
}

static bool may_send(const struct sim_qp *qp)
{
    return (qp->state == IBV_QPS_RTS || (qp->state == IBV_QPS_SQD && qp->sq.next_packet > 0)) &&
           !qp->waiting && !qp->stopped && qp->sq.next != qp->sq.posted &&
           under_way(qp) < qp->world->options.window;
}

static void drained(struct sim_qp *qp)
{
    if (qp->sq.complete != qp->sq.next || qp->sq.next_packet > 0) {
        return;
    }
    if (qp->state == IBV_QPS_SQD && qp->attr.en_sqd_async_notify) {
        qp->attr.en_sqd_async_notify = 0;
        sim_qp_async(qp, IBV_EVENT_SQ_DRAINED);
    }
    if (qp->closing && qp->sq.complete == qp->sq.posted) {
        qp->closing = false;
        sim_qp_break_connection(qp);
        sim_qp_enter_error(qp);
    }
}

void sim_requester_work(struct sim_qp *qp)
{
    if (qp->working) {
        return; /* an answer came during a send: the outer loop continues */
    }
    qp->working = true;
    while (may_send(qp) && send_next(qp)) {
    }
    qp->working = false;
    drained(qp);
}

static void doorbell_run(struct sim_event *event)
{
    sim_requester_work(SIM_OUTER(struct sim_qp, sq.doorbell, event));
}

void sim_requester_ring(struct sim_qp *qp)
{
    uint64_t longest = qp->world->options.doorbell;
    if (longest == 0) {
        sim_requester_work(qp);
    } else if (qp->sq.doorbell.place == 0) {
        sim_schedule(qp->world, &qp->sq.doorbell, sim_chance(qp->world, longest + 1), doorbell_run);
    }
}

/* ------------------------------------------------------------------------------- retransmission */

static bool is_answered(const struct sim_qp *qp, uint32_t psn)
{
    int32_t distance = sim_psn_distance(psn, qp->flight.una_psn);
    return distance < 0 || (qp->flight.answered >> distance & 1) != 0;
}

/* The request that a packet belongs to; NULL if it is complete. */
static struct sim_wqe *find(struct sim_qp *qp, uint32_t psn, uint32_t *request)
{
    for (uint32_t at = qp->sq.complete; at != qp->sq.posted; at++) {
        struct sim_wqe *wqe = sim_wqe_at(qp, at);
        if (!wqe->started) {
            return NULL;
        }
        int32_t distance = sim_psn_distance(psn, wqe->first_psn);
        if (distance >= 0 && (uint32_t)distance < wqe->packets) {
            *request = at;
            return wqe;
        }
    }
    return NULL;
}

static void send_again(struct sim_qp *qp)
{
    uint32_t end = qp->flight.next_psn;
    qp->working = true;
    qp->flight.round++;
    /* Also behind a failed request: requests before it have to end first. */
    for (uint32_t psn = qp->flight.una_psn; psn != end && !qp->waiting && qp->state != IBV_QPS_ERR;
         psn = (psn + 1) & SIM_PSN_MASK) {
        uint32_t request;
        struct sim_wqe *wqe = is_answered(qp, psn) ? NULL : find(qp, psn, &request);
        if (wqe == NULL || wqe->done) {
            continue;
        }
        struct sim_bytes bytes;
        enum ibv_wc_status status = gather(qp, wqe, request, &bytes);
        if (status != IBV_WC_SUCCESS) {
            fail_locally(qp, wqe, status);
            break;
        }
        send_packet(qp, wqe, (uint32_t)sim_psn_distance(psn, wqe->first_psn), &bytes);
    }
    qp->working = false;
    sim_requester_work(qp);
}

static void give_up(struct sim_qp *qp, uint32_t psn, enum ibv_wc_status status)
{
    uint32_t request;
    struct sim_wqe *wqe = find(qp, psn, &request);
    if (wqe != NULL) {
        fail(qp, wqe, status);
    }
}

static void retry_run(struct sim_event *event)
{
    struct sim_qp *qp = SIM_OUTER(struct sim_qp, flight.retry, event);
    qp->waiting = false;
    if (!sim_is_iwarp(qp->device) && !is_answered(qp, qp->flight.retry_psn)) {
        if (qp->retries >= qp->attr.retry_cnt) {
            give_up(qp, qp->flight.una_psn, IBV_WC_RETRY_EXC_ERR);
            return;
        }
        qp->retries++;
    }
    qp->world->counters.retries++;
    send_again(qp);
}

static void lost(struct sim_qp *qp, uint32_t psn)
{
    qp->world->counters.lost++;
    if (qp->waiting || is_answered(qp, psn)) {
        return; /* the scheduled round sends it too */
    }
    qp->waiting = true;
    qp->flight.retry_psn = psn;
    if (qp->attr.timeout > 0) {
        sim_schedule(qp->world, &qp->flight.retry, (uint64_t)4096 << qp->attr.timeout, retry_run);
    }
}

/* Packets behind one without a receive are lost too. An answer that arrives after a retransmission
 * says nothing of the retransmitted packet. */
static void lost_in(struct sim_qp *qp, uint32_t round, uint32_t psn)
{
    if (round == qp->flight.round) {
        lost(qp, psn);
    }
}

/* TCP keeps its bytes and retries forever: while the way is cut no further packet is handed to
 * it. */
static bool stream_open(struct sim_qp *qp)
{
    if (!sim_is_iwarp(qp->device)) {
        return true;
    }
    if (!qp->heard) {
        /* The acceptor may not send before the connector did (RFC 5044, section 7.1). */
        sim_qp_break_connection(qp);
        sim_qp_enter_error(qp);
        return false;
    }
    if (sim_reaches(qp)) {
        return true;
    }
    qp->waiting = true;
    sim_schedule(qp->world, &qp->flight.retry, SIM_TCP_RETRY_TIME, retry_run);
    return false;
}

static void rnr_run(struct sim_event *event)
{
    struct sim_qp *qp = SIM_OUTER(struct sim_qp, flight.rnr, event);
    qp->waiting = false;
    send_again(qp);
}

/* IBTA volume 1, table "Encoding for RNR NAK timer field", in units of 10 microseconds. */
static uint64_t rnr_time(uint8_t code)
{
    static const uint32_t tens[32] = {
        65536, 1,    2,    3,    4,    6,     8,     12,    16,    24,    32,
        48,    64,   96,   128,  192,  256,   384,   512,   768,   1024,  1536,
        2048,  3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
    };
    return (uint64_t)tens[code & 31] * 10000;
}

static bool has_waited_enough(const struct sim_qp *qp)
{
    enum { FOR_EVER = 7 };
    const uint32_t tries = qp->device->rnr_tries;
    return tries != 0 ? qp->rnr_retries >= tries
                      : qp->attr.rnr_retry != FOR_EVER && qp->rnr_retries >= qp->attr.rnr_retry;
}

static void not_ready(struct sim_qp *qp, const struct sim_answer *answer)
{
    qp->world->counters.rnr_naks++;
    if (qp->waiting) {
        return;
    }
    if (has_waited_enough(qp)) {
        give_up(qp, answer->psn, IBV_WC_RNR_RETRY_EXC_ERR);
        return;
    }
    qp->rnr_retries++;
    qp->waiting = true;
    sim_schedule(qp->world, &qp->flight.rnr, rnr_time(answer->timer), rnr_run);
}

void sim_qp_peer_gone(struct sim_qp *qp)
{
    if (qp->flight.una_psn != qp->flight.next_psn) {
        lost(qp, qp->flight.una_psn);
    }
}

/* -------------------------------------------------------------------------------------- answers */

static enum ibv_wc_status take_data(struct sim_qp *qp, struct sim_wqe *wqe, uint32_t request,
                                    const struct sim_answer *answer, const struct sim_bytes *data)
{
    struct sim_bytes sink;
    enum ibv_wc_status status = gather(qp, wqe, request, &sink);
    if (status != IBV_WC_SUCCESS) {
        return status;
    }
    if (is_atomic(wqe->opcode)) {
        bool swapped = qp->device->options.swapped == 1;
        sim_place_word(qp, sink.pieces[0].iov_base,
                       swapped ? __builtin_bswap64(answer->original) : answer->original);
        return IBV_WC_SUCCESS;
    }
    uint64_t offset = (uint32_t)sim_psn_distance(answer->psn, wqe->first_psn) * wqe->piece;
    uint64_t length = sim_bytes_length(data);
    struct sim_bytes targets;
    sim_bytes_cut(&sink, offset, length, &targets);
    uint64_t taken = 0;
    for (int i = 0; i < targets.count; i++) {
        struct sim_bytes part;
        sim_bytes_cut(data, taken, targets.pieces[i].iov_len, &part);
        sim_place(qp, targets.pieces[i].iov_base, &part);
        taken += targets.pieces[i].iov_len;
    }
    return IBV_WC_SUCCESS;
}

static void mark_answered(struct sim_qp *qp, uint32_t psn)
{
    qp->flight.answered |= (uint64_t)1 << sim_psn_distance(psn, qp->flight.una_psn);
    while ((qp->flight.answered & 1) != 0) {
        qp->flight.answered >>= 1;
        qp->flight.una_psn = (qp->flight.una_psn + 1) & SIM_PSN_MASK;
    }
    qp->retries = 0;
    qp->rnr_retries = 0;
}

/* Takes the held answer that is next off the list; NULL: none. */
static struct sim_held_answer *next_held(struct sim_qp *qp)
{
    struct sim_held_answer **at = &qp->flight.held;
    while (*at != NULL && (*at)->answer.psn != qp->flight.una_psn) {
        at = &(*at)->next;
    }
    struct sim_held_answer *held = *at;
    if (held != NULL) {
        *at = held->next;
    }
    return held;
}

static void good_answer(struct sim_qp *qp, const struct sim_answer *answer,
                        const struct sim_bytes *data)
{
    if (is_answered(qp, answer->psn)) {
        return; /* an answer to a packet that was sent twice */
    }
    if (answer->code == SIM_ANSWER_DATA && answer->psn != qp->flight.una_psn &&
        !sim_is_iwarp(qp->device)) {
        hold(qp, answer, data);
        return;
    }
    uint32_t request;
    struct sim_wqe *wqe = find(qp, answer->psn, &request);
    mark_answered(qp, answer->psn);
    if (wqe == NULL || wqe->done) {
        return; /* iWARP: complete since it was handed over */
    }
    if (answer->code == SIM_ANSWER_DATA) {
        enum ibv_wc_status status = take_data(qp, wqe, request, answer, data);
        if (status != IBV_WC_SUCCESS) {
            fail_locally(qp, wqe, status);
            return;
        }
    }
    wqe->answered++;
    if (wqe->answered == wqe->packets) {
        wqe->done = true;
        qp->sq.reads -= is_read(wqe->opcode) ? 1 : 0;
        complete(qp);
    }
}

/* The target serves in order: any answer acknowledges all earlier packets. Packets of reads and
 * atomics need their own answers. */
static void imply(struct sim_qp *qp, uint32_t end)
{
    uint32_t request;
    for (uint32_t psn = qp->flight.una_psn; psn != end; psn = (psn + 1) & SIM_PSN_MASK) {
        struct sim_wqe *wqe = is_answered(qp, psn) ? NULL : find(qp, psn, &request);
        if (wqe == NULL || is_read(wqe->opcode)) {
            continue;
        }
        mark_answered(qp, psn);
        wqe->answered++;
        wqe->done = wqe->done || wqe->answered == wqe->packets;
    }
    complete(qp);
}

static void good_answers(struct sim_qp *qp, const struct sim_answer *answer,
                         const struct sim_bytes *data)
{
    good_answer(qp, answer, data);
    struct sim_held_answer *held;
    while (qp->flight.held != NULL && (held = next_held(qp)) != NULL) {
        struct sim_bytes bytes = { .count = 0 };
        sim_bytes_add(&bytes, held->bytes, held->length);
        good_answer(qp, &held->answer, &bytes);
        sim_free(held);
    }
}

static void refused(struct sim_qp *qp, const struct sim_answer *answer)
{
    uint32_t request;
    struct sim_wqe *wqe = find(qp, answer->psn, &request);
    if (wqe != NULL && !wqe->done) {
        fail(qp, wqe, (enum ibv_wc_status)answer->status);
    }
}

/* iWARP: the peer ended the connection, with or without a cause. Requests in flight do not report
 * it. */
static void terminated(struct sim_qp *qp)
{
    if (!qp->connected) {
        return;
    }
    qp->connected = false;
    sim_qp_enter_error(qp);
    sim_cm_broken(qp);
}

void sim_requester_answer(struct sim_qp *qp, const struct sim_answer *answer,
                          const struct sim_bytes *data)
{
    if (answer->code == SIM_ANSWER_TERMINATE) {
        terminated(qp);
        return;
    }
    int32_t distance = sim_psn_distance(answer->psn, qp->flight.una_psn);
    if (qp->state < IBV_QPS_RTS || qp->state == IBV_QPS_ERR || distance < 0 ||
        (uint32_t)distance >= under_way(qp)) {
        return; /* answer to an earlier use of the queue pair */
    }
    if (distance > 0 && answer->code != SIM_ANSWER_LOST) {
        imply(qp, answer->psn);
    }
    switch ((enum sim_answer_code)answer->code) {
    case SIM_ANSWER_ACK:
    case SIM_ANSWER_DATA:
        good_answers(qp, answer, data);
        break;
    case SIM_ANSWER_NAK:
        refused(qp, answer);
        break;
    case SIM_ANSWER_RNR:
        not_ready(qp, answer);
        break;
    case SIM_ANSWER_LOST:
        lost_in(qp, answer->round, answer->psn);
        break;
    case SIM_ANSWER_LATER:
    case SIM_ANSWER_TERMINATE:
        break;
    }
    sim_requester_work(qp);
}

/* --------------------------------------------------------------------------- iWARP's connection */

void sim_qp_break_connection(struct sim_qp *qp)
{
    if (!qp->connected) {
        return;
    }
    qp->connected = false;
    struct sim_answer end = { .source = sim_qp_num(qp),
                              .target = qp->attr.dest_qp_num,
                              .code = SIM_ANSWER_TERMINATE };
    if (sim_reaches(qp)) {
        sim_carry_answer(qp->world, qp, &end, NULL);
    }
    sim_cm_broken(qp);
}

void sim_qp_close_connection(struct sim_qp *qp)
{
    if (!qp->connected) {
        return;
    }
    qp->closing = true;
    sim_requester_work(qp);
}
