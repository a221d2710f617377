/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Posting: the checks of a device driver before the device gets a request. */
#include "sim_post.h"

#include "sim_completion.h"
#include "sim_device.h"
#include "sim_macros.h"
#include "sim_options.h"
#include "sim_queue.h"
#include "sim_requester.h"
#include "sim_responder.h"
#include "sim_world.h"

#include <errno.h>
#include <string.h>

/* ------------------------------------------------------------------------------ argument checks */

static bool is_immediate(enum ibv_wr_opcode opcode)
{
    return opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

static bool is_atomic(enum ibv_wr_opcode opcode)
{
    return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

static bool opcode_offered(const struct sim_device *device, enum ibv_wr_opcode opcode)
{
    switch (opcode) {
    case IBV_WR_SEND:
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_READ:
        return true;
    case IBV_WR_SEND_WITH_IMM:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
        return device->options.immediate != 0;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
        return device->options.atomics != IBV_ATOMIC_NONE;
    default:
        return false;
    }
}

static uint64_t sges_length(const struct ibv_sge *sges, int count)
{
    uint64_t length = 0;
    for (int i = 0; i < count; i++) {
        length += sges[i].length;
    }
    return length;
}

/* rxe refuses errors that other devices find at the target. */
static bool atomic_allowed(const struct sim_qp *qp, const struct ibv_send_wr *wr)
{
    bool aligned = wr->wr.atomic.remote_addr % sizeof(uint64_t) == 0;
    return (aligned || !sim_like_rxe(qp->device)) && wr->num_sge == 1 &&
           wr->sg_list[0].length == sizeof(uint64_t);
}

static int state_allows(const struct sim_qp *qp)
{
    if (sim_is_iwarp(qp->device)) {
        return qp->state == IBV_QPS_RTS || qp->state == IBV_QPS_ERR ? 0 : ENOTCONN;
    }
    return qp->state >= IBV_QPS_RTS ? 0 : EINVAL;
}

static int send_check(const struct sim_qp *qp, const struct ibv_send_wr *wr)
{
    int error = state_allows(qp);
    bool read = wr->opcode == IBV_WR_RDMA_READ;
    if (error != 0) {
        return error;
    }
    if (!opcode_offered(qp->device, wr->opcode) || wr->num_sge < 0 ||
        (uint32_t)wr->num_sge > qp->cap.max_send_sge) {
        return EINVAL;
    }
    if (is_atomic(wr->opcode) && !atomic_allowed(qp, wr)) {
        return EINVAL;
    }
    if ((wr->send_flags & IBV_SEND_INLINE) != 0 &&
        (read || is_atomic(wr->opcode) ||
         sges_length(wr->sg_list, wr->num_sge) > qp->cap.max_inline_data)) {
        return EINVAL;
    }
    if (read && (uint64_t)wr->num_sge > qp->device->options.limits.max_sge_rd &&
        qp->device->options.like != SIM_LIKE_SIW) {
        return EINVAL;
    }
    return qp->sq.posted - qp->sq.retired >= qp->cap.max_send_wr ? ENOMEM : 0;
}

/* ------------------------------------------------------------------------------------- requests */

enum { INLINE_KEPT = 32 }; /* kept by a device with inline_right=no */

static void copy_inline(struct sim_qp *qp, struct sim_wqe *wqe, const struct ibv_send_wr *wr)
{
    uint8_t *at = sim_wqe_inline(qp, qp->sq.posted);
    for (int i = 0; i < wr->num_sge; i++) {
        memcpy(at, (const void *)(uintptr_t)wr->sg_list[i].addr, wr->sg_list[i].length);
        at += wr->sg_list[i].length;
    }
    if (qp->device->options.inline_right == 0 && wqe->length > INLINE_KEPT) {
        memset(sim_wqe_inline(qp, qp->sq.posted) + INLINE_KEPT, 0, wqe->length - INLINE_KEPT);
    }
    wqe->inlined = true;
}

static void put_request(struct sim_qp *qp, const struct ibv_send_wr *wr)
{
    struct sim_wqe *wqe = sim_wqe_at(qp, qp->sq.posted);
    struct ibv_sge *sges = sim_wqe_sges(qp, qp->sq.posted);
    int count = wr->num_sge;
    if (wr->opcode == IBV_WR_RDMA_READ && (uint64_t)count > qp->device->options.limits.max_sge_rd) {
        count = (int)qp->device->options.limits.max_sge_rd; /* siw drops the others, reports success */
    }
    wqe->wr_id = wr->wr_id;
    wqe->opcode = (uint8_t)wr->opcode;
    wqe->flags = (uint8_t)(wr->send_flags | (qp->signal_all ? IBV_SEND_SIGNALED : 0U));
    wqe->num_sge = (uint8_t)count;
    wqe->length = sges_length(wr->sg_list, count);
    wqe->imm_data = is_immediate(wr->opcode) ? wr->imm_data : 0;
    wqe->status = IBV_WC_SUCCESS;
    wqe->inlined = wqe->started = wqe->done = wqe->shown = wqe->polled = false;
    if (is_atomic(wr->opcode)) {
        wqe->remote_addr = wr->wr.atomic.remote_addr;
        wqe->rkey = wr->wr.atomic.rkey;
        wqe->compare_add = wr->wr.atomic.compare_add;
        wqe->swap = wr->wr.atomic.swap;
    } else {
        wqe->remote_addr = wr->wr.rdma.remote_addr;
        wqe->rkey = wr->wr.rdma.rkey;
    }
    if ((wr->send_flags & IBV_SEND_INLINE) != 0) {
        copy_inline(qp, wqe, wr);
    } else {
        for (int i = 0; i < count; i++) {
            sges[i] = wr->sg_list[i];
        }
    }
    sim_trace(qp->world, SIM_TRACE_POST, sim_qp_num(qp), (uint64_t)wr->opcode << 56 | wqe->length);
    qp->sq.posted++;
}

static int post_check(struct sim_qp *qp, const struct ibv_send_wr *wr)
{
    int error = sim_call(qp->world, SIM_CALL_post_send);
    return error == 0 ? send_check(qp, wr) : error;
}

/* After the end of a queue pair: requests are flushed at once, or on iWARP never complete. */
static void post_to_error(struct sim_qp *qp)
{
    if (qp->swallow || !sim_device_alive(qp->device)) {
        qp->world->counters.swallowed += qp->sq.posted - qp->sq.next;
        qp->sq.complete = qp->sq.next = qp->sq.posted;
        return;
    }
    sim_requester_flush(qp);
}

/* The drivers of iWARP adapters return negative numbers, whatever the manual page says. */
static int post_result(const struct sim_qp *qp, int error)
{
    return sim_is_iwarp(qp->device) ? -error : error;
}

static void ring(struct sim_qp *qp)
{
    if (SIM_UNLIKELY(qp->state == IBV_QPS_ERR || !sim_device_alive(qp->device))) {
        post_to_error(qp);
    } else {
        sim_requester_ring(qp);
    }
}

static int post_list(struct sim_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)
{
    int error = 0;
    uint32_t before = qp->sq.posted;
    while (wr != NULL && error == 0) {
        error = post_check(qp, wr);
        if (error == 0) {
            put_request(qp, wr);
            wr = wr->next;
        }
    }
    if (error != 0 && bad_wr != NULL) {
        *bad_wr = wr;
    }
    if (qp->sq.posted != before) {
        ring(qp);
    }
    return post_result(qp, error);
}

static int post_send(struct ibv_qp *ib, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)
{
    struct sim_qp *qp = sim_qp_of(ib);
    sim_lock(qp->world);
    int error = post_list(qp, wr, bad_wr);
    sim_unlock(qp->world);
    return error;
}

/* ------------------------------------------------------------------------------------- receives */

static int receive_one(struct sim_qp *qp, const struct ibv_recv_wr *wr)
{
    int error = sim_call(qp->world, SIM_CALL_post_recv);
    bool iwarp = sim_is_iwarp(qp->device);
    if (error == 0 && (qp->srq != NULL || (qp->state == IBV_QPS_RESET && !iwarp))) {
        error = EINVAL;
    }
    if (error == 0 && iwarp && wr->num_sge == 0) {
        error = EINVAL;
    }
    return error == 0 ? sim_receives_post(&qp->rq, wr) : error;
}

static int post_recv(struct ibv_qp *ib, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
    struct sim_qp *qp = sim_qp_of(ib);
    int error = 0;
    sim_lock(qp->world);
    while (wr != NULL && error == 0) {
        error = receive_one(qp, wr);
        wr = error == 0 ? wr->next : wr;
    }
    if (error != 0 && bad_wr != NULL) {
        *bad_wr = wr;
    }
    if (qp->state == IBV_QPS_ERR && !qp->swallow) {
        sim_responder_flush(qp);
    }
    sim_unlock(qp->world);
    return sim_is_iwarp(qp->device) ? -error : error;
}

static int post_srq_recv(struct ibv_srq *ib, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
    struct sim_srq *srq = sim_srq_of(ib);
    bool iwarp = sim_is_iwarp(srq->context->device);
    int error = 0;
    sim_lock(srq->world);
    while (wr != NULL && error == 0) {
        error = sim_call(srq->world, SIM_CALL_post_srq_recv);
        error = error == 0 && iwarp && wr->num_sge == 0 ? EINVAL : error;
        error = error == 0 ? sim_receives_post(&srq->queue, wr) : error;
        wr = error == 0 ? wr->next : wr;
    }
    if (error != 0 && bad_wr != NULL) {
        *bad_wr = wr;
    }
    sim_unlock(srq->world);
    return iwarp ? -error : error;
}

void sim_fill_operations(struct sim_context *context)
{
    struct ibv_context_ops *ops = &context->verbs.context.ops;
    ops->poll_cq = sim_poll_cq;
    ops->req_notify_cq = sim_req_notify_cq;
    ops->post_send = post_send;
    ops->post_recv = post_recv;
    ops->post_srq_recv = post_srq_recv;
}

/* ------------------------------------------------------------------------------------- ibv_wr_* */

/* A request that ibv_wr_*() describes step by step; ibv_wr_complete() makes a list of them. */
struct sim_staged {
    struct ibv_send_wr wr;
    struct ibv_sge sges[SIM_SGES_MAX];
    uint8_t *inline_data; /* of cap.max_inline_data bytes */
    bool has_bytes;       /* a setter named them */
};

static struct sim_qp *of_ex(struct ibv_qp_ex *qp)
{
    return (struct sim_qp *)(void *)qp;
}

/* The request that the setters apply to; NULL after an error in the list. */
static struct ibv_send_wr *current(struct sim_qp *qp)
{
    return qp->staged.error == 0 && qp->staged.count > 0
               ? &qp->staged.requests[qp->staged.count - 1].wr
               : NULL;
}

static struct ibv_send_wr *stage(struct ibv_qp_ex *ex, enum ibv_wr_opcode opcode)
{
    struct sim_qp *qp = of_ex(ex);
    if (qp->staged.count >= qp->cap.max_send_wr) {
        qp->staged.error = ENOMEM;
    }
    if (qp->staged.error != 0) {
        return NULL;
    }
    struct sim_staged *staged = &qp->staged.requests[qp->staged.count];
    staged->wr = (struct ibv_send_wr){
        .wr_id = ex->wr_id, .sg_list = staged->sges, .opcode = opcode, .send_flags = ex->wr_flags
    };
    staged->has_bytes = false;
    if (qp->staged.count > 0) {
        qp->staged.requests[qp->staged.count - 1].wr.next = &staged->wr;
    }
    qp->staged.count++;
    return &staged->wr;
}

static void wr_start(struct ibv_qp_ex *ex)
{
    struct sim_qp *qp = of_ex(ex);
    qp->staged.count = 0;
    qp->staged.error = 0;
}

static void wr_abort(struct ibv_qp_ex *ex)
{
    wr_start(ex);
}

static int staged_check(struct sim_qp *qp)
{
    int error = sim_call(qp->world, SIM_CALL_wr_complete);
    error = error == 0 ? qp->staged.error : error;
    if (error == 0 && qp->sq.posted - qp->sq.retired + qp->staged.count > qp->cap.max_send_wr) {
        error = ENOMEM;
    }
    for (uint32_t i = 0; i < qp->staged.count && error == 0; i++) {
        error = qp->staged.requests[i].has_bytes ? post_check(qp, &qp->staged.requests[i].wr)
                                                 : EINVAL;
    }
    return error;
}

/* All or nothing: a list that does not fit is not posted. */
static int wr_complete(struct ibv_qp_ex *ex)
{
    struct sim_qp *qp = of_ex(ex);
    sim_lock(qp->world);
    int error = staged_check(qp);
    if (error == 0 && qp->staged.count > 0) {
        for (uint32_t i = 0; i < qp->staged.count; i++) {
            put_request(qp, &qp->staged.requests[i].wr);
        }
        ring(qp);
    }
    qp->staged.count = 0;
    qp->staged.error = 0;
    sim_unlock(qp->world);
    return post_result(qp, error);
}

static void wr_send(struct ibv_qp_ex *ex)
{
    (void)stage(ex, IBV_WR_SEND);
}

static void wr_send_imm(struct ibv_qp_ex *ex, __be32 imm_data)
{
    struct ibv_send_wr *wr = stage(ex, IBV_WR_SEND_WITH_IMM);
    if (wr != NULL) {
        wr->imm_data = imm_data;
    }
}

static struct ibv_send_wr *stage_remote(struct ibv_qp_ex *ex, enum ibv_wr_opcode opcode,
                                        uint32_t rkey, uint64_t remote_addr)
{
    struct ibv_send_wr *wr = stage(ex, opcode);
    if (wr != NULL) {
        wr->wr.rdma.rkey = rkey;
        wr->wr.rdma.remote_addr = remote_addr;
    }
    return wr;
}

static void wr_rdma_write(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr)
{
    (void)stage_remote(ex, IBV_WR_RDMA_WRITE, rkey, remote_addr);
}

static void wr_rdma_write_imm(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr,
                              __be32 imm_data)
{
    struct ibv_send_wr *wr = stage_remote(ex, IBV_WR_RDMA_WRITE_WITH_IMM, rkey, remote_addr);
    if (wr != NULL) {
        wr->imm_data = imm_data;
    }
}

static void wr_rdma_read(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr)
{
    (void)stage_remote(ex, IBV_WR_RDMA_READ, rkey, remote_addr);
}

static void stage_atomic(struct ibv_qp_ex *ex, enum ibv_wr_opcode opcode, uint32_t rkey,
                         uint64_t remote_addr, uint64_t compare_add, uint64_t swap)
{
    struct ibv_send_wr *wr = stage(ex, opcode);
    if (wr != NULL) {
        wr->wr.atomic.rkey = rkey;
        wr->wr.atomic.remote_addr = remote_addr;
        wr->wr.atomic.compare_add = compare_add;
        wr->wr.atomic.swap = swap;
    }
}

static void wr_atomic_cmp_swp(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr,
                              uint64_t compare, uint64_t swap)
{
    stage_atomic(ex, IBV_WR_ATOMIC_CMP_AND_SWP, rkey, remote_addr, compare, swap);
}

static void wr_atomic_fetch_add(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr,
                                uint64_t add)
{
    stage_atomic(ex, IBV_WR_ATOMIC_FETCH_AND_ADD, rkey, remote_addr, add, 0);
}

static void wr_set_sge_list(struct ibv_qp_ex *ex, size_t num_sge, const struct ibv_sge *sg_list)
{
    struct sim_qp *qp = of_ex(ex);
    struct ibv_send_wr *wr = current(qp);
    if (wr == NULL) {
        return;
    }
    if (num_sge > qp->cap.max_send_sge) {
        qp->staged.error = EINVAL;
        return;
    }
    for (size_t i = 0; i < num_sge; i++) {
        wr->sg_list[i] = sg_list[i];
    }
    wr->num_sge = (int)num_sge;
    qp->staged.requests[qp->staged.count - 1].has_bytes = true;
}

static void wr_set_sge(struct ibv_qp_ex *ex, uint32_t lkey, uint64_t addr, uint32_t length)
{
    struct ibv_sge sge = { addr, length, lkey };
    wr_set_sge_list(ex, 1, &sge);
}

static void wr_set_inline_data_list(struct ibv_qp_ex *ex, size_t num_buf,
                                    const struct ibv_data_buf *buf_list)
{
    struct sim_qp *qp = of_ex(ex);
    struct ibv_send_wr *wr = current(qp);
    size_t length = 0;
    for (size_t i = 0; i < num_buf; i++) {
        length += buf_list[i].length;
    }
    if (wr == NULL) {
        return;
    }
    if (length > qp->cap.max_inline_data || qp->cap.max_send_sge == 0) {
        qp->staged.error = EINVAL;
        return;
    }
    uint8_t *at = qp->staged.requests[qp->staged.count - 1].inline_data;
    wr->sg_list[0] = (struct ibv_sge){ (uintptr_t)at, (uint32_t)length, 0 };
    wr->num_sge = 1;
    wr->send_flags |= IBV_SEND_INLINE;
    qp->staged.requests[qp->staged.count - 1].has_bytes = true;
    for (size_t i = 0; i < num_buf; i++) {
        memcpy(at, buf_list[i].addr, buf_list[i].length);
        at += buf_list[i].length;
    }
}

static void wr_set_inline_data(struct ibv_qp_ex *ex, void *addr, size_t length)
{
    struct ibv_data_buf buffer = { addr, length };
    wr_set_inline_data_list(ex, 1, &buffer);
}

/* Others stay NULL: a call of an operation that was not requested crashes. */
static void fill_builders(struct ibv_qp_ex *ex, uint64_t operations)
{
    ex->wr_send = (operations & IBV_QP_EX_WITH_SEND) != 0 ? wr_send : NULL;
    ex->wr_send_imm = (operations & IBV_QP_EX_WITH_SEND_WITH_IMM) != 0 ? wr_send_imm : NULL;
    ex->wr_rdma_write = (operations & IBV_QP_EX_WITH_RDMA_WRITE) != 0 ? wr_rdma_write : NULL;
    ex->wr_rdma_write_imm = (operations & IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM) != 0
                                ? wr_rdma_write_imm
                                : NULL;
    ex->wr_rdma_read = (operations & IBV_QP_EX_WITH_RDMA_READ) != 0 ? wr_rdma_read : NULL;
    ex->wr_atomic_cmp_swp = (operations & IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP) != 0
                                ? wr_atomic_cmp_swp
                                : NULL;
    ex->wr_atomic_fetch_add = (operations & IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD) != 0
                                  ? wr_atomic_fetch_add
                                  : NULL;
}

bool sim_fill_wr_functions(struct sim_qp *qp, uint64_t operations)
{
    size_t count = qp->cap.max_send_wr > 0 ? qp->cap.max_send_wr : 1;
    size_t each = sizeof(struct sim_staged) + qp->cap.max_inline_data;
    qp->staged.requests = sim_alloc(qp->world, count * each);
    if (qp->staged.requests == NULL) {
        return false;
    }
    uint8_t *inline_data = (uint8_t *)&qp->staged.requests[count];
    for (size_t i = 0; i < count; i++) {
        qp->staged.requests[i].inline_data = inline_data + i * qp->cap.max_inline_data;
    }
    struct ibv_qp_ex *ex = &qp->ex;
    ex->wr_start = wr_start;
    ex->wr_complete = wr_complete;
    ex->wr_abort = wr_abort;
    fill_builders(ex, operations);
    ex->wr_set_sge = wr_set_sge;
    ex->wr_set_sge_list = wr_set_sge_list;
    ex->wr_set_inline_data = wr_set_inline_data;
    ex->wr_set_inline_data_list = wr_set_inline_data_list;
    return true;
}
