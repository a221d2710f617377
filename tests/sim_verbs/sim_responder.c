/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Execution of requests at their target: receives, keys, placement, reads, atomics, refusals. */
#include "sim_responder.h"

#include "sim_async.h"
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
#include "sim_requester.h"
#include "sim_world.h"

#include <string.h>

/* A read whose bytes are taken later, as after a lost answer, when it is served a second time. */
struct sim_late_read {
    struct sim_event event;
    struct sim_late_read *next;
    struct sim_qp *qp;
    struct sim_request request;
    uint8_t *memory; /* key checked when it came (late_key); NULL: not checked yet */
};

static bool is_atomic(uint8_t opcode)
{
    return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

/* ------------------------------------------------------------------------------------- receives */

static bool take_receive(struct sim_qp *qp)
{
    if (qp->srq == NULL) {
        qp->receiving = sim_receives_take(&qp->rq, &qp->target.receive);
        return qp->receiving;
    }
    struct sim_srq *srq = qp->srq;
    qp->receiving = sim_receives_take(&srq->queue, &qp->target.receive);
    if (srq->limit > 0 && sim_receives_waiting(&srq->queue) < srq->limit) {
        srq->limit = 0; /* one event, until it is armed again */
        struct ibv_async_event event = { .element.srq = &srq->ib,
                                         .event_type = IBV_EVENT_SRQ_LIMIT_REACHED };
        sim_async_raise(srq->context, &event);
    }
    return qp->receiving;
}

static void show_receive(struct sim_qp *qp, const struct sim_receive *receive,
                         const struct sim_request *request, enum ibv_wc_status status)
{
    if (qp->silent || !sim_device_alive(qp->device)) {
        return;
    }
    struct sim_cqe cqe = {
        .wr_id = receive->wr_id,
        .status = status,
        /* A failed entry's opcode is invalid: it is deliberately wrong. */
        .opcode = IBV_WC_SEND,
        .qp_num = sim_qp_num(qp),
        .qp = qp,
        .srq = qp->srq,
        .placed = qp->place_serial,
    };
    if (status == IBV_WC_SUCCESS) {
        bool write = request->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
        bool immediate = write || request->opcode == IBV_WR_SEND_WITH_IMM;
        cqe.opcode = write ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV;
        cqe.byte_len = (uint32_t)request->total;
        cqe.imm_data = immediate ? request->imm_data : 0;
        if (immediate && qp->device->options.immediate == SIM_IMMEDIATE_WRONG) {
            cqe.imm_data = ~cqe.imm_data;
        }
        cqe.wc_flags = immediate ? IBV_WC_WITH_IMM : 0;
        cqe.src_qp = request->source;
        cqe.solicited = request->solicited != 0;
    }
    sim_cq_put(qp->recv_cq, &cqe);
}

static void end_receive(struct sim_qp *qp, const struct sim_request *request,
                        enum ibv_wc_status status)
{
    qp->receiving = false;
    show_receive(qp, &qp->target.receive, request, status);
}

void sim_responder_flush(struct sim_qp *qp)
{
    struct sim_receive receive;
    if (qp->receiving) {
        end_receive(qp, NULL, IBV_WC_WR_FLUSH_ERR);
    }
    while (qp->srq == NULL && sim_receives_take(&qp->rq, &receive)) {
        show_receive(qp, &receive, NULL, IBV_WC_WR_FLUSH_ERR);
    }
    /* rxe never raises the event: a program that waits only for it waits forever. */
    if (qp->srq != NULL && !qp->last_wqe_told && qp->device->options.like == SIM_LIKE_HCA) {
        qp->last_wqe_told = true;
        sim_qp_async(qp, IBV_EVENT_QP_LAST_WQE_REACHED);
    }
}

/* ------------------------------------------------------------------------------------- refusals */

static struct sim_answer answer_with(const struct sim_qp *qp, const struct sim_request *request,
                                     enum sim_answer_code code)
{
    return (struct sim_answer){ .source = sim_qp_num(qp),
                                .target = request->source,
                                .psn = request->psn,
                                .round = request->round,
                                .code = (uint8_t)code };
}

/* iWARP sends TERMINATE and closes; the sender may already have reported success. */
static struct sim_answer terminate(struct sim_qp *qp, const struct sim_request *request)
{
    struct sim_answer answer = answer_with(qp, request, SIM_ANSWER_TERMINATE);
    bool read = request->opcode == IBV_WR_RDMA_READ;
    qp->connected = false;
    if (!read) {
        sim_qp_enter_error(qp);
    } /* siw leaves the target of a bad read in RTS, with its receives. */
    sim_cm_broken(qp);
    return answer;
}

static struct sim_answer refuse(struct sim_qp *qp, const struct sim_request *request,
                                enum ibv_wc_status status, enum ibv_event_type event)
{
    if (sim_is_iwarp(qp->device)) {
        sim_qp_async(qp, event);
        return terminate(qp, request);
    }
    if (qp->device->options.like == SIM_LIKE_HCA) {
        sim_qp_async(qp, event);
    }
    bool is_mute = qp->device->options.mute_refusals != 0;
    struct sim_answer answer = answer_with(qp, request, is_mute ? SIM_ANSWER_LOST : SIM_ANSWER_NAK);
    answer.status = (uint8_t)status;
    sim_qp_enter_error(qp);
    return answer;
}

static struct sim_answer refuse_key(struct sim_qp *qp, const struct sim_request *request,
                                    bool known_key)
{
    bool read = request->opcode == IBV_WR_RDMA_READ;
    if (sim_is_iwarp(qp->device) && !known_key && !read) {
        return terminate(qp, request); /* without an event */
    }
    return refuse(qp, request, IBV_WC_REM_ACCESS_ERR,
                  sim_is_iwarp(qp->device) && read ? IBV_EVENT_QP_REQ_ERR : IBV_EVENT_QP_ACCESS_ERR);
}

static struct sim_answer refuse_as_planned(struct sim_qp *qp, const struct sim_request *request,
                                           enum ibv_wc_status status)
{
    bool is_access = status == IBV_WC_REM_ACCESS_ERR;
    return refuse(qp, request, status, is_access ? IBV_EVENT_QP_ACCESS_ERR : IBV_EVENT_QP_REQ_ERR);
}

static struct sim_answer not_ready(struct sim_qp *qp, const struct sim_request *request)
{
    if (sim_is_iwarp(qp->device)) {
        return terminate(qp, request); /* there is no other answer in iWARP */
    }
    struct sim_answer answer = answer_with(qp, request, SIM_ANSWER_RNR);
    answer.timer = qp->attr.min_rnr_timer;
    return answer;
}

/* A receive too small for the message: each kind of device has its own status for it. */
static struct sim_answer too_long(struct sim_qp *qp, const struct sim_request *request)
{
    bool rxe = sim_like_rxe(qp->device);
    end_receive(qp, request, rxe ? IBV_WC_LOC_QP_OP_ERR : IBV_WC_LOC_LEN_ERR);
    if (sim_is_iwarp(qp->device)) {
        return terminate(qp, request);
    }
    return refuse(qp, request, rxe ? IBV_WC_REM_OP_ERR : IBV_WC_REM_INV_REQ_ERR,
                  IBV_EVENT_QP_REQ_ERR);
}

/* ----------------------------------------------------------------------------------- operations */

static bool receive_fits(const struct sim_qp *qp, uint64_t length)
{
    uint64_t room = 0;
    for (int i = 0; i < qp->target.receive.num_sge; i++) {
        room += qp->target.receive.sges[i].length;
    }
    return length <= room;
}

/* Memory of the current receive for length bytes at offset; false: a key is wrong. */
static bool receive_memory(const struct sim_qp *qp, uint64_t offset, uint64_t length,
                           struct sim_bytes *out)
{
    struct sim_bytes all;
    all.count = 0;
    uint64_t end = offset + length;
    for (int i = 0; i < qp->target.receive.num_sge && sim_bytes_length(&all) < end; i++) {
        const struct ibv_sge *sge = &qp->target.receive.sges[i];
        void *memory = sge->length > 0 ? sim_memory_local(qp, sge, IBV_ACCESS_LOCAL_WRITE) : NULL;
        if (sge->length > 0 && memory == NULL) {
            return false;
        }
        sim_bytes_add(&all, memory, sge->length);
    }
    sim_bytes_cut(&all, offset, length, out);
    return true;
}

static void place_list(struct sim_qp *qp, const struct sim_bytes *targets,
                       const struct sim_bytes *bytes)
{
    uint64_t taken = 0;
    for (int i = 0; i < targets->count; i++) {
        struct sim_bytes part;
        sim_bytes_cut(bytes, taken, targets->pieces[i].iov_len, &part);
        sim_place(qp, targets->pieces[i].iov_base, &part);
        taken += targets->pieces[i].iov_len;
    }
}

static struct sim_answer serve_send(struct sim_qp *qp, const struct sim_request *request,
                                    const struct sim_bytes *bytes)
{
    if (request->first) {
        if (!take_receive(qp)) {
            return not_ready(qp, request);
        }
        if (!receive_fits(qp, request->total)) {
            return too_long(qp, request);
        }
    }
    struct sim_bytes targets;
    if (!receive_memory(qp, request->offset, request->length, &targets)) {
        end_receive(qp, request, IBV_WC_LOC_PROT_ERR);
        return refuse(qp, request, IBV_WC_REM_OP_ERR, IBV_EVENT_QP_ACCESS_ERR);
    }
    place_list(qp, &targets, bytes);
    if (request->last) {
        end_receive(qp, request, IBV_WC_SUCCESS);
    }
    return answer_with(qp, request, SIM_ANSWER_ACK);
}

/* Memory of the whole request; NULL: *answer is the refusal. Zero bytes need no key. */
static uint8_t *target_memory(struct sim_qp *qp, const struct sim_request *request,
                              unsigned int access, struct sim_answer *answer)
{
    if ((qp->attr.qp_access_flags & access) != access && !sim_is_iwarp(qp->device)) {
        *answer = refuse(qp, request, IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
        return NULL;
    }
    bool known;
    uint8_t *memory = sim_memory_remote(qp, request->rkey, request->remote_addr, request->total,
                                        access, &known);
    if (memory == NULL) {
        *answer = refuse_key(qp, request, known);
    }
    return memory;
}

static uint64_t mtu_bytes(enum ibv_mtu mtu)
{
    return (uint64_t)128 << mtu;
}

static bool needs_key(const struct sim_qp *qp)
{
    return qp->device->options.nothing_needs_key != 0;
}

static struct sim_answer serve_write(struct sim_qp *qp, const struct sim_request *request,
                                     const struct sim_bytes *bytes)
{
    struct sim_answer answer;
    uint8_t *memory = NULL;
    if (request->total > 0 || needs_key(qp)) {
        memory = target_memory(qp, request, IBV_ACCESS_REMOTE_WRITE, &answer);
        if (memory == NULL) {
            return answer;
        }
    }
    bool notice = request->opcode == IBV_WR_RDMA_WRITE_WITH_IMM && request->last;
    if (notice && !take_receive(qp)) {
        return not_ready(qp, request);
    }
    if (memory != NULL) {
        sim_place(qp, memory + request->offset, bytes);
    }
    if (notice) {
        end_receive(qp, request, IBV_WC_SUCCESS);
    }
    return answer_with(qp, request, SIM_ANSWER_ACK);
}

static struct sim_answer take_read(struct sim_qp *qp, const struct sim_request *request,
                                   struct sim_bytes *read)
{
    struct sim_answer answer = answer_with(qp, request, SIM_ANSWER_DATA);
    sim_place_all(qp); /* a read sees every write and atomic before it */
    sim_atomics_flush(qp->device);
    if (request->total == 0 && !needs_key(qp)) {
        return answer;
    }
    uint8_t *memory = target_memory(qp, request, IBV_ACCESS_REMOTE_READ, &answer);
    if (memory != NULL) {
        sim_bytes_add(read, memory + request->offset, request->length);
        answer.length = request->length;
    }
    return answer;
}

static void late_read_serve(struct sim_late_read *late)
{
    struct sim_qp *qp = late->qp;
    const struct sim_request *request = &late->request;
    struct sim_bytes read;
    read.count = 0;
    qp->target.late_reads = late->next;
    sim_cancel(qp->world, &late->event);
    qp->world->counters.reads_late++;
    struct sim_answer answer = answer_with(qp, request, SIM_ANSWER_LATER);
    if (late->memory == NULL) {
        answer = take_read(qp, request, &read);
    } else if (qp->state != IBV_QPS_ERR) {
        answer = answer_with(qp, request, SIM_ANSWER_DATA);
        answer.length = request->length;
        sim_bytes_add(&read, late->memory + request->offset, request->length);
    }
    sim_carry_answer(qp->world, qp, &answer, &read);
    sim_free(late);
}

void sim_responder_finish(struct sim_qp *qp)
{
    while (qp->target.late_reads != NULL && qp->target.late_reads->memory != NULL) {
        late_read_serve(qp->target.late_reads);
    }
}

/* Reads are served in order among themselves. */
static void late_read_run(struct sim_event *event)
{
    struct sim_late_read *due = SIM_OUTER(struct sim_late_read, event, event);
    struct sim_qp *qp = due->qp;
    bool done = false;
    while (!done) {
        done = qp->target.late_reads == due;
        late_read_serve(qp->target.late_reads);
    }
}

/* memory: the memory that the key check allowed, or NULL. */
static bool read_late(struct sim_qp *qp, const struct sim_request *request, uint8_t *memory)
{
    struct sim_world *world = qp->world;
    bool may_be_late = world->options.late_key == 0 || memory != NULL;
    bool late = qp->target.late_reads != NULL ||
                (may_be_late && world->options.late_read > 0 &&
                 sim_chance(world, 100) < world->options.late_read);
    struct sim_late_read *entry = late ? sim_alloc(world, sizeof(*entry)) : NULL;
    if (entry == NULL) {
        return false;
    }
    entry->qp = qp;
    entry->request = *request;
    entry->memory = memory;
    struct sim_late_read **at = &qp->target.late_reads;
    uint64_t before = 0;
    while (*at != NULL) {
        at = &(*at)->next;
        before++;
    }
    *at = entry;
    uint64_t delay = world->options.late_read_time;
    if (world->options.late_read_behind == 0 || before < world->options.late_read_behind) {
        delay = 1 + sim_chance(world, delay);
    }
    sim_schedule(world, &entry->event, delay, late_read_run);
    return true;
}

static bool too_deep(struct sim_qp *qp, const struct sim_request *request)
{
    return request->depth > qp->attr.max_dest_rd_atomic;
}

static struct sim_answer serve_read(struct sim_qp *qp, const struct sim_request *request,
                                    struct sim_bytes *read)
{
    if (too_deep(qp, request)) {
        return refuse(qp, request, IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
    }
    uint8_t *memory = NULL;
    if (qp->world->options.late_key != 0 && request->total > mtu_bytes(qp->attr.path_mtu)) {
        bool known;
        memory = sim_memory_remote(qp, request->rkey, request->remote_addr, request->total,
                                   IBV_ACCESS_REMOTE_READ, &known);
        if (memory == NULL) {
            sim_responder_finish(qp); /* a refusal follows the late reads, too */
            return take_read(qp, request, read);
        }
    }
    if (read_late(qp, request, memory)) {
        sim_place_all(qp);
        return answer_with(qp, request, SIM_ANSWER_LATER);
    }
    return take_read(qp, request, read);
}

static struct sim_answer serve_atomic(struct sim_qp *qp, const struct sim_request *request)
{
    bool offered = qp->device->options.atomics != IBV_ATOMIC_NONE;
    if (!offered || request->remote_addr % sizeof(uint64_t) != 0 || too_deep(qp, request)) {
        return refuse(qp, request, IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
    }
    struct sim_answer answer = answer_with(qp, request, SIM_ANSWER_DATA);
    uint8_t *memory = target_memory(qp, request, IBV_ACCESS_REMOTE_ATOMIC, &answer);
    if (memory == NULL) {
        return answer;
    }
    sim_place_all(qp);
    bool swapped = qp->device->options.swapped == SIM_SWAPPED_OPERANDS;
    answer.original = sim_atomic(qp->device, memory, (enum ibv_wr_opcode)request->opcode,
                                 swapped ? __builtin_bswap64(request->compare_add)
                                         : request->compare_add,
                                 swapped ? __builtin_bswap64(request->swap) : request->swap);
    uint32_t place = qp->target.atomic_count++ % SIM_WINDOW_MAX;
    qp->target.atomic_results[place] = answer.original;
    qp->target.atomic_psns[place] = request->psn;
    return answer;
}

/* ------------------------------------------------------------------------------------- requests */

/* A packet that was already served: its answer was lost. */
static struct sim_answer serve_again(struct sim_qp *qp, const struct sim_request *request,
                                     struct sim_bytes *read)
{
    struct sim_answer answer = answer_with(qp, request, SIM_ANSWER_LOST);
    switch (request->opcode) {
    case IBV_WR_RDMA_READ:
        return take_read(qp, request, read);
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
        for (size_t i = 0; i < SIM_WINDOW_MAX && i < qp->target.atomic_count; i++) {
            if (qp->target.atomic_psns[i] == request->psn) {
                answer.code = SIM_ANSWER_DATA;
                answer.original = qp->target.atomic_results[i];
            }
        }
        return answer;
    default:
        answer.code = SIM_ANSWER_ACK;
        return answer;
    }
}

/* Packets longer or, except the last, shorter than this side expects are ignored. */
static bool mtu_fits(const struct sim_qp *qp, const struct sim_request *request)
{
    enum ibv_mtu mine = qp->attr.path_mtu;
    enum ibv_mtu theirs = (enum ibv_mtu)request->mtu;
    return mine == theirs || request->total <= mtu_bytes(mine < theirs ? mine : theirs);
}

static bool hears(const struct sim_qp *qp)
{
    return sim_is_iwarp(qp->device) ? qp->connected
                                    : qp->state >= IBV_QPS_RTR && qp->state < IBV_QPS_ERR;
}

static struct sim_answer serve(struct sim_qp *qp, const struct sim_request *request,
                               const struct sim_bytes *bytes, struct sim_bytes *read)
{
    if (qp->device->atomics != NULL && !is_atomic(request->opcode)) {
        sim_atomics_flush(qp->device); /* earlier atomics of the device take effect first */
    }
    switch (request->opcode) {
    case IBV_WR_SEND:
    case IBV_WR_SEND_WITH_IMM:
        return serve_send(qp, request, bytes);
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
        return serve_write(qp, request, bytes);
    case IBV_WR_RDMA_READ:
        return serve_read(qp, request, read);
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
        return serve_atomic(qp, request);
    default:
        return refuse(qp, request, IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
    }
}

struct sim_answer sim_respond(struct sim_qp *qp, const struct sim_request *request,
                              const struct sim_bytes *bytes, struct sim_bytes *read)
{
    int32_t ahead = sim_psn_distance(request->psn, qp->target.expected_psn);
    if (!hears(qp) || ahead > 0) {
        return answer_with(qp, request, SIM_ANSWER_LOST);
    }
    if (ahead < 0) {
        return serve_again(qp, request, read);
    }
    if (qp->state == IBV_QPS_RTR && !qp->heard) {
        sim_qp_async(qp, IBV_EVENT_COMM_EST);
    }
    qp->heard = true;
    if (!sim_is_iwarp(qp->device) && !mtu_fits(qp, request)) {
        return refuse(qp, request, IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
    }
    enum ibv_wc_status planned = request->first ? sim_refusal_next(&qp->device->serves)
                                                : IBV_WC_SUCCESS;
    struct sim_answer answer = planned != IBV_WC_SUCCESS ? refuse_as_planned(qp, request, planned)
                                                         : serve(qp, request, bytes, read);
    if (answer.code == SIM_ANSWER_ACK || answer.code == SIM_ANSWER_DATA ||
        answer.code == SIM_ANSWER_LATER) {
        qp->target.expected_psn = (qp->target.expected_psn + 1) & SIM_PSN_MASK;
    }
    return answer;
}

void sim_responder_reset(struct sim_qp *qp)
{
    while (qp->target.late_reads != NULL) {
        struct sim_late_read *late = qp->target.late_reads;
        qp->target.late_reads = late->next;
        sim_cancel(qp->world, &late->event);
        sim_free(late);
    }
    qp->receiving = false;
    qp->heard = false;
    qp->target.atomic_count = 0;
    qp->target.expected_psn = 0;
}
