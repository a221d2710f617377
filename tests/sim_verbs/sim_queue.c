/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Queue pairs and shared receive queues: creation, states, destruction. */
#include "sim_queue.h"

#include "sim_async.h"
#include "sim_cm_news.h"
#include "sim_completion.h"
#include "sim_device.h"
#include "sim_faults.h"
#include "sim_macros.h"
#include "sim_memory.h"
#include "sim_options.h"
#include "sim_packet.h"
#include "sim_place.h"
#include "sim_post.h"
#include "sim_requester.h"
#include "sim_responder.h"
#include "sim_verbs.h"
#include "sim_world.h"

#include <errno.h>
#include <string.h>

/* ------------------------------------------------------------------------------- receive queues */

static bool receives_make(struct sim_world *world, struct sim_receives *queue, uint32_t room,
                          uint32_t max_sge)
{
    uint32_t places = room > 0 ? room : 1;
    queue->room = room;
    queue->max_sge = max_sge;
    queue->wr_ids = sim_alloc(world, places * sizeof(uint64_t));
    queue->counts = sim_alloc(world, places);
    queue->sges = sim_alloc(world,
                            (size_t)places * (max_sge > 0 ? max_sge : 1) * sizeof(struct ibv_sge));
    return queue->wr_ids != NULL && queue->counts != NULL && queue->sges != NULL;
}

static void receives_unmake(struct sim_receives *queue)
{
    sim_free(queue->wr_ids);
    sim_free(queue->counts);
    sim_free(queue->sges);
}

int sim_receives_post(struct sim_receives *queue, const struct ibv_recv_wr *wr)
{
    if (wr->num_sge < 0 || (uint32_t)wr->num_sge > queue->max_sge) {
        return EINVAL;
    }
    if (queue->posted - queue->polled >= queue->room) {
        return ENOMEM;
    }
    uint32_t at = queue->posted % queue->room;
    queue->wr_ids[at] = wr->wr_id;
    queue->counts[at] = (uint8_t)wr->num_sge;
    for (int i = 0; i < wr->num_sge; i++) {
        queue->sges[at * queue->max_sge + (uint32_t)i] = wr->sg_list[i];
    }
    queue->posted++;
    return 0;
}

bool sim_receives_take(struct sim_receives *queue, struct sim_receive *out)
{
    if (queue->taken == queue->posted) {
        return false;
    }
    uint32_t at = queue->taken % queue->room;
    out->wr_id = queue->wr_ids[at];
    out->num_sge = queue->counts[at];
    for (int i = 0; i < out->num_sge; i++) {
        out->sges[i] = queue->sges[at * queue->max_sge + (uint32_t)i];
    }
    queue->taken++;
    return true;
}

/* ------------------------------------------------------------------------ shared receive queues */

static int srq_check(const struct sim_device *device, const struct ibv_srq_attr *attr)
{
    const struct sim_device_options *options = &device->options;
    if (!sim_device_alive(device)) {
        return EIO;
    }
    if (options->limits.max_srq == 0) {
        return EOPNOTSUPP;
    }
    if (attr->max_wr == 0 || attr->max_wr > options->limits.max_srq_wr ||
        attr->max_sge > options->limits.max_srq_sge) {
        return EINVAL;
    }
    return device->srq_count >= options->limits.max_srq ? ENOMEM : 0;
}

static struct sim_srq *srq_make(struct sim_context *context, const struct ibv_srq_attr *attr)
{
    struct sim_world *world = context->world;
    struct sim_srq *srq = sim_alloc(world, sizeof(*srq));
    if (srq == NULL) {
        return NULL;
    }
    if (!receives_make(world, &srq->queue, attr->max_wr, attr->max_sge)) {
        receives_unmake(&srq->queue);
        sim_free(srq);
        return NULL;
    }
    srq->world = world;
    srq->context = context;
    srq->ib.context = &context->verbs.context;
    srq->ib.handle = world->next_handle++;
    (void)pthread_mutex_init(&srq->ib.mutex, NULL);
    (void)pthread_cond_init(&srq->ib.cond, NULL);
    context->objects++;
    context->device->srq_count++;
    context->device->srq_entries += srq->queue.room;
    world->objects++;
    return srq;
}

struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *srq_init_attr)
{
    struct sim_context *context = sim_context_of(pd->context);
    struct sim_world *world = context->world;
    sim_lock(world);
    int error = sim_call(world, SIM_CALL_create_srq);
    error = error == 0 ? srq_check(context->device, &srq_init_attr->attr) : error;
    struct sim_srq *srq = error == 0 ? srq_make(context, &srq_init_attr->attr) : NULL;
    if (srq != NULL) {
        srq->ib.srq_context = srq_init_attr->srq_context;
        srq->ib.pd = pd;
        sim_pd_use(pd, 1);
    }
    sim_unlock(world);
    if (srq == NULL) {
        errno = error != 0 ? error : ENOMEM;
        return NULL;
    }
    return &srq->ib;
}

int ibv_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *srq_attr, int srq_attr_mask)
{
    struct sim_srq *sim = sim_srq_of(srq);
    sim_lock(sim->world);
    int error = sim_call(sim->world, SIM_CALL_modify_srq);
    if (error == 0 && (srq_attr_mask & ~IBV_SRQ_LIMIT) != 0) {
        error = EOPNOTSUPP;
    }
    if (error == 0 && (srq_attr_mask & IBV_SRQ_LIMIT) != 0) {
        error = srq_attr->srq_limit > sim->queue.room ? EINVAL : 0;
        sim->limit = error == 0 ? srq_attr->srq_limit : sim->limit;
    }
    sim_unlock(sim->world);
    return error;
}

int ibv_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *srq_attr)
{
    struct sim_srq *sim = sim_srq_of(srq);
    sim_lock(sim->world);
    srq_attr->max_wr = sim->queue.room;
    srq_attr->max_sge = sim->queue.max_sge;
    srq_attr->srq_limit = sim->limit;
    sim_unlock(sim->world);
    return 0;
}

int ibv_destroy_srq(struct ibv_srq *srq)
{
    struct sim_srq *sim = sim_srq_of(srq);
    struct sim_world *world = sim->world;
    sim_lock(world);
    bool busy = sim->users > 0;
    if (!busy) {
        sim_async_forget(sim->context, sim);
        sim_pd_use(srq->pd, -1);
        sim->context->objects--;
        sim->context->device->srq_count--;
        sim->context->device->srq_entries -= sim->queue.room;
        world->objects--;
    }
    sim_unlock(world);
    if (busy) {
        return EBUSY;
    }
    struct sim_owed owed = { &srq->mutex, &srq->cond, &srq->events_completed,
                             sim->async_events_given,
                             "ibv_destroy_srq: events are not acknowledged" };
    sim_wait_acknowledged(world, &owed);
    (void)pthread_cond_destroy(&srq->cond);
    (void)pthread_mutex_destroy(&srq->mutex);
    sim_lock(world);
    receives_unmake(&sim->queue);
    sim_free(sim);
    sim_unlock(world);
    sim_world_rest(world);
    return 0;
}

/* --------------------------------------------------------------------------- queue pair numbers */

struct sim_qp *sim_qp_find(struct sim_world *world, uint32_t number)
{
    uint32_t slot = number >> SIM_SLOT_BITS;
    uint32_t index = number & ((1U << SIM_SLOT_BITS) - 1);
    for (struct sim_host *host = world->hosts; host != NULL; host = host->next) {
        if (host->slot == slot) {
            return index < host->qps_room ? host->qps[index] : NULL;
        }
    }
    return NULL;
}

static bool numbers_grow(struct sim_host *host, uint32_t index)
{
    uint32_t room = host->qps_room == 0 ? 64 : host->qps_room;
    while (room <= index) {
        room *= 2;
    }
    if (room == host->qps_room) {
        return true;
    }
    struct sim_qp **qps = sim_alloc(host->world, room * sizeof(struct sim_qp *));
    if (qps == NULL) {
        return false;
    }
    if (host->qps != NULL) {
        memcpy(qps, host->qps, host->qps_room * sizeof(struct sim_qp *));
        sim_free(host->qps);
    }
    host->qps = qps;
    host->qps_room = room;
    return true;
}

static uint32_t number_find(struct sim_host *host, bool reuse)
{
    enum { FIRST = 2 }; /* 0 and 1 are the subnet manager's and the connection manager's */
    uint32_t end = 1U << SIM_SLOT_BITS;
    for (uint32_t tried = FIRST; tried < end; tried++) {
        uint32_t at = reuse ? tried : host->next_qp;
        host->next_qp = at + 1 < end ? at + 1 : FIRST;
        if (at >= host->qps_room || host->qps[at] == NULL) {
            return numbers_grow(host, at) ? at : 0;
        }
    }
    return 0;
}

/* ---------------------------------------------------------------------------------- queue pairs */

static int qp_check(const struct sim_context *context, const struct ibv_qp_init_attr_ex *attr)
{
    const struct sim_device_options *options = &context->device->options;
    const struct ibv_qp_cap *cap = &attr->cap;
    if (!sim_device_alive(context->device)) {
        return EIO;
    }
    if (attr->qp_type != IBV_QPT_RC) {
        return EOPNOTSUPP;
    }
    if (attr->send_cq == NULL || attr->recv_cq == NULL || attr->pd == NULL ||
        attr->pd->context != &context->verbs.context ||
        attr->send_cq->context != &context->verbs.context ||
        attr->recv_cq->context != &context->verbs.context) {
        return EINVAL;
    }
    if (cap->max_send_wr > options->limits.max_qp_wr ||
        cap->max_send_sge > options->limits.max_sge ||
        cap->max_inline_data > options->limits.max_inline) {
        return EINVAL;
    }
    if (attr->srq == NULL && (cap->max_recv_wr > options->limits.max_qp_wr ||
                              cap->max_recv_sge > options->limits.max_sge)) {
        return EINVAL;
    }
    return context->device->qp_count >= options->limits.max_qp ? ENOMEM : 0;
}

static uint32_t granted(const struct sim_device *device, uint32_t asked, uint64_t most)
{
    uint32_t room = asked;
    if (device->options.round_up) {
        for (room = 1; room < asked; room *= 2) {
        }
    }
    return room > most ? (uint32_t)most : room;
}

static void grant(const struct sim_device *device, struct ibv_qp_init_attr_ex *attr)
{
    const struct sim_device_options *options = &device->options;
    struct ibv_qp_cap *cap = &attr->cap;
    cap->max_send_wr = granted(device, cap->max_send_wr, options->limits.max_qp_wr);
    cap->max_recv_wr = attr->srq != NULL
                           ? 0
                           : granted(device, cap->max_recv_wr, options->limits.max_qp_wr);
    cap->max_send_sge = granted(device, cap->max_send_sge, options->limits.max_sge);
    cap->max_recv_sge = attr->srq != NULL
                            ? 0
                            : granted(device, cap->max_recv_sge, options->limits.max_sge);
    cap->max_inline_data = granted(device, cap->max_inline_data, options->limits.max_inline);
}

static bool rings_make(struct sim_qp *qp)
{
    struct sim_world *world = qp->world;
    const struct ibv_qp_cap *cap = &qp->cap;
    size_t sges = cap->max_send_sge > 0 ? cap->max_send_sge : 1;
    qp->sq.room = cap->max_send_wr > 0 ? cap->max_send_wr : 1;
    qp->sq.wqes = sim_alloc(world, qp->sq.room * sizeof(*qp->sq.wqes));
    qp->sq.sges = sim_alloc(world, qp->sq.room * sges * sizeof(struct ibv_sge));
    qp->sq.inlined = sim_alloc(world, (size_t)qp->sq.room * cap->max_inline_data + 1);
    bool receives = receives_make(world, &qp->rq, cap->max_recv_wr, cap->max_recv_sge);
    return qp->sq.wqes != NULL && qp->sq.sges != NULL && qp->sq.inlined != NULL && receives;
}

static void rings_unmake(struct sim_qp *qp)
{
    sim_free(qp->sq.wqes);
    sim_free(qp->sq.sges);
    sim_free(qp->sq.inlined);
    sim_free(qp->staged.requests);
    receives_unmake(&qp->rq);
}

static void attach(struct sim_qp *qp)
{
    qp->send_cq->users++;
    qp->recv_cq->users++;
    if (qp->srq != NULL) {
        qp->srq->users++;
    }
    sim_pd_use(qp->ex.qp_base.pd, 1);
    qp->context->objects++;
    qp->device->qp_count++;
    qp->world->objects++;
    sim_world_changed(qp->world);
}

static void fill_base(struct sim_qp *qp, const struct ibv_qp_init_attr_ex *attr, uint32_t index)
{
    struct ibv_qp *base = &qp->ex.qp_base;
    base->context = &qp->context->verbs.context;
    base->qp_context = attr->qp_context;
    base->pd = attr->pd;
    base->send_cq = attr->send_cq;
    base->recv_cq = attr->recv_cq;
    base->srq = attr->srq;
    base->handle = qp->world->next_handle++;
    base->qp_num = (uint32_t)qp->device->host->slot << SIM_SLOT_BITS | index;
    base->state = IBV_QPS_RESET;
    base->qp_type = attr->qp_type;
    (void)pthread_mutex_init(&base->mutex, NULL);
    (void)pthread_cond_init(&base->cond, NULL);
}

static struct sim_qp *qp_make(struct sim_context *context, struct ibv_qp_init_attr_ex *attr,
                              bool extended)
{
    struct sim_device *device = context->device;
    struct sim_qp *qp = sim_alloc(context->world, sizeof(*qp));
    if (qp == NULL) {
        return NULL;
    }
    grant(device, attr);
    qp->world = context->world;
    qp->context = context;
    qp->device = device;
    qp->send_cq = sim_cq_of(attr->send_cq);
    qp->recv_cq = sim_cq_of(attr->recv_cq);
    qp->srq = attr->srq != NULL ? sim_srq_of(attr->srq) : NULL;
    qp->cap = attr->cap;
    qp->signal_all = attr->sq_sig_all != 0;
    qp->state = IBV_QPS_RESET;
    qp->extended = extended;
    bool made = rings_make(qp) && (!extended || sim_fill_wr_functions(qp, attr->send_ops_flags));
    uint32_t index = made ? number_find(device->host, device->options.reuse != 0) : 0;
    if (index == 0) {
        rings_unmake(qp);
        sim_free(qp);
        return NULL;
    }
    device->host->qps[index] = qp;
    fill_base(qp, attr, index);
    attach(qp);
    return qp;
}

static bool operations_supported(const struct sim_device *device, uint64_t wanted)
{
    uint64_t supported = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_READ;
    if (device->options.immediate) {
        supported |= IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND_WITH_IMM;
    }
    if (device->options.atomics != IBV_ATOMIC_NONE) {
        supported |= IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
    }
    return device->options.wr_api && (wanted & ~supported) == 0;
}

struct ibv_qp *sim_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr)
{
    struct sim_context *sim = sim_context_of(context);
    uint32_t known = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    bool extended = (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0;
    if ((attr->comp_mask & ~known) != 0 || (attr->comp_mask & IBV_QP_INIT_ATTR_PD) == 0 ||
        (extended && !operations_supported(sim->device, attr->send_ops_flags))) {
        errno = EOPNOTSUPP;
        return NULL;
    }
    sim_lock(sim->world);
    int error = sim_call(sim->world, SIM_CALL_create_qp);
    error = error == 0 ? qp_check(sim, attr) : error;
    struct sim_qp *qp = error == 0 ? qp_make(sim, attr, extended) : NULL;
    sim_unlock(sim->world);
    if (qp == NULL) {
        errno = error != 0 ? error : ENOMEM;
        return NULL;
    }
    return &qp->ex.qp_base;
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *qp_init_attr)
{
    struct ibv_qp_init_attr_ex attr = {
        .qp_context = qp_init_attr->qp_context,
        .send_cq = qp_init_attr->send_cq,
        .recv_cq = qp_init_attr->recv_cq,
        .srq = qp_init_attr->srq,
        .cap = qp_init_attr->cap,
        .qp_type = qp_init_attr->qp_type,
        .sq_sig_all = qp_init_attr->sq_sig_all,
        .comp_mask = IBV_QP_INIT_ATTR_PD,
        .pd = pd,
    };
    struct ibv_qp *qp = sim_create_qp_ex(pd->context, &attr);
    if (qp != NULL) {
        qp_init_attr->cap = attr.cap;
    }
    return qp;
}

struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp)
{
    struct sim_qp *sim = sim_qp_of(qp);
    return sim->extended ? &sim->ex : NULL;
}

static void detach(struct sim_qp *qp)
{
    bool keep = qp->device->options.stale != 0;
    sim_requester_cancel(qp);
    sim_responder_reset(qp);
    sim_place_all(qp);
    sim_cm_qp_destroyed(qp);
    sim_async_forget(qp->context, qp);
    sim_cq_forget_qp(qp->send_cq, qp, keep);
    if (qp->recv_cq != qp->send_cq) {
        sim_cq_forget_qp(qp->recv_cq, qp, keep);
    }
    qp->device->host->qps[sim_qp_num(qp) & ((1U << SIM_SLOT_BITS) - 1)] = NULL;
    qp->send_cq->users--;
    qp->recv_cq->users--;
    if (qp->srq != NULL) {
        qp->srq->users--;
    }
    sim_pd_use(qp->ex.qp_base.pd, -1);
    qp->context->objects--;
    qp->device->qp_count--;
    qp->world->objects--;
    sim_world_changed(qp->world);
}

int ibv_destroy_qp(struct ibv_qp *qp)
{
    struct sim_qp *sim = sim_qp_of(qp);
    struct sim_world *world = sim->world;
    sim_cm_wait_for_calls(sim);
    sim_lock(world);
    sim_qp_break_connection(sim);
    detach(sim);
    struct sim_owed owed = { &qp->mutex, &qp->cond, &qp->events_completed, sim->async_events_given,
                             "ibv_destroy_qp: events are not acknowledged" };
    sim_unlock(world);
    sim_wait_acknowledged(world, &owed);
    (void)pthread_cond_destroy(&qp->cond);
    (void)pthread_mutex_destroy(&qp->mutex);
    sim_lock(world);
    rings_unmake(sim);
    sim_free(sim);
    sim_unlock(world);
    sim_world_rest(world);
    return 0;
}

/* --------------------------------------------------------------------------------------- states */

enum {
    PATH_ALWAYS = IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE,
    RECEIVE_NEEDS = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
    SEND_NEEDS = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                 IBV_QP_MAX_QP_RD_ATOMIC,
    START_NEEDS = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
};

/* IBTA volume 1, "QP state transition properties", for RC. Every state leads to RESET and ERR. */
static const struct transition {
    enum ibv_qp_state from;
    enum ibv_qp_state to;
    int needed;
    int allowed;
} transitions[] = {
    { IBV_QPS_RESET, IBV_QPS_INIT, START_NEEDS, 0 },
    { IBV_QPS_INIT, IBV_QPS_INIT, 0, START_NEEDS },
    { IBV_QPS_INIT, IBV_QPS_RTR, RECEIVE_NEEDS,
      IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX },
    { IBV_QPS_RTR, IBV_QPS_RTS, SEND_NEEDS,
      PATH_ALWAYS | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER },
    { IBV_QPS_RTS, IBV_QPS_RTS, 0, PATH_ALWAYS | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER },
    { IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY },
    { IBV_QPS_SQD, IBV_QPS_RTS, 0, PATH_ALWAYS | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER },
    { IBV_QPS_SQD, IBV_QPS_SQD, 0,
      PATH_ALWAYS | START_NEEDS | IBV_QP_AV | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
          IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER },
};

static bool transition_allowed(const struct sim_qp *qp, enum ibv_qp_state to, int mask)
{
    if (to == IBV_QPS_RESET || to == IBV_QPS_ERR) {
        return (mask & ~(IBV_QP_STATE | IBV_QP_CUR_STATE)) == 0;
    }
    for (size_t i = 0; i < SIM_COUNT_OF(transitions); i++) {
        const struct transition *known = &transitions[i];
        if (known->from == qp->state && known->to == to) {
            int rest = mask & ~(IBV_QP_STATE | known->needed | known->allowed);
            return (mask & known->needed) == known->needed && rest == 0;
        }
    }
    return false;
}

static bool address_allowed(const struct sim_device *device, const struct ibv_ah_attr *ah)
{
    static const union ibv_gid none = { .raw = { 0 } };
    bool global = ah->is_global != 0;
    if (ah->port_num != 1) {
        return false;
    }
    if (device->options.link == SIM_ROCE && (!global || sim_gid_equal(&ah->grh.dgid, &none))) {
        return false;
    }
    if (global && (ah->grh.sgid_index >= SIM_GIDS || !device->gids[ah->grh.sgid_index].used)) {
        return false;
    }
    return global || ah->dlid != 0;
}

static bool values_allowed(const struct sim_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
    const struct sim_device_options *options = &qp->device->options;
    const struct {
        int bit;
        bool right;
    } checks[] = {
        { IBV_QP_CUR_STATE, attr->cur_qp_state == qp->state },
        { IBV_QP_PORT, attr->port_num == 1 },
        { IBV_QP_PKEY_INDEX, attr->pkey_index < options->pkeys },
        { IBV_QP_AV, (mask & IBV_QP_AV) == 0 || address_allowed(qp->device, &attr->ah_attr) },
        { IBV_QP_PATH_MTU,
          attr->path_mtu >= IBV_MTU_256 && (uint64_t)attr->path_mtu <= options->mtu },
        { IBV_QP_MAX_QP_RD_ATOMIC, attr->max_rd_atomic <= options->limits.max_init_rd_atomic },
        { IBV_QP_MAX_DEST_RD_ATOMIC, attr->max_dest_rd_atomic <= options->limits.max_rd_atomic },
        { IBV_QP_MIN_RNR_TIMER, attr->min_rnr_timer <= 31 },
        { IBV_QP_TIMEOUT, attr->timeout <= 31 },
        { IBV_QP_RETRY_CNT, attr->retry_cnt <= 7 },
        { IBV_QP_RNR_RETRY, attr->rnr_retry <= 7 },
        { IBV_QP_DEST_QPN, attr->dest_qp_num <= SIM_PSN_MASK },
    };
    for (size_t i = 0; i < SIM_COUNT_OF(checks); i++) {
        if ((mask & checks[i].bit) != 0 && !checks[i].right) {
            return false;
        }
    }
    return (mask & (IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE | IBV_QP_QKEY)) == 0;
}

static void values_take(struct ibv_qp_attr *to, const struct ibv_qp_attr *from, int mask)
{
#define TAKE(bit, field)             \
    do {                             \
        if ((mask & (bit)) != 0) {   \
            to->field = from->field; \
        }                            \
    } while (0)
    TAKE(IBV_QP_ACCESS_FLAGS, qp_access_flags);
    TAKE(IBV_QP_PKEY_INDEX, pkey_index);
    TAKE(IBV_QP_PORT, port_num);
    TAKE(IBV_QP_AV, ah_attr);
    TAKE(IBV_QP_PATH_MTU, path_mtu);
    TAKE(IBV_QP_TIMEOUT, timeout);
    TAKE(IBV_QP_RETRY_CNT, retry_cnt);
    TAKE(IBV_QP_RNR_RETRY, rnr_retry);
    TAKE(IBV_QP_RQ_PSN, rq_psn);
    TAKE(IBV_QP_SQ_PSN, sq_psn);
    TAKE(IBV_QP_DEST_QPN, dest_qp_num);
    TAKE(IBV_QP_MAX_QP_RD_ATOMIC, max_rd_atomic);
    TAKE(IBV_QP_MAX_DEST_RD_ATOMIC, max_dest_rd_atomic);
    TAKE(IBV_QP_MIN_RNR_TIMER, min_rnr_timer);
    TAKE(IBV_QP_EN_SQD_ASYNC_NOTIFY, en_sqd_async_notify);
#undef TAKE
}

static void queues_reset(struct sim_qp *qp)
{
    bool keep = false;
    sim_requester_cancel(qp);
    sim_requester_reset(qp);
    sim_responder_reset(qp);
    sim_place_all(qp);
    sim_cq_forget_qp(qp->send_cq, qp, keep);
    sim_cq_forget_qp(qp->recv_cq, qp, keep);
    qp->rq.posted = qp->rq.taken = qp->rq.polled = 0;
    qp->swallow = qp->closing = qp->silent = qp->last_wqe_told = false;
    memset(&qp->attr, 0, sizeof(qp->attr));
}

void sim_qp_set_state(struct sim_qp *qp, enum ibv_qp_state state)
{
    if (qp->state == state) {
        return;
    }
    qp->state = state;
    sim_world_changed(qp->world);
    sim_trace(qp->world, SIM_TRACE_STATE, sim_qp_num(qp), (uint64_t)state);
}

static void enter(struct sim_qp *qp, enum ibv_qp_state to)
{
    enum ibv_qp_state from = qp->state;
    if (to == IBV_QPS_ERR) {
        sim_qp_enter_error(qp);
        return;
    }
    if (to == IBV_QPS_RESET) {
        queues_reset(qp);
    } else if (to == IBV_QPS_RTR && from == IBV_QPS_INIT) {
        qp->target.expected_psn = qp->attr.rq_psn & SIM_PSN_MASK;
    } else if (to == IBV_QPS_RTS && from == IBV_QPS_RTR) {
        qp->flight.una_psn = qp->flight.next_psn = qp->attr.sq_psn & SIM_PSN_MASK;
    }
    sim_qp_set_state(qp, to);
    if (to == IBV_QPS_RTS || to == IBV_QPS_SQD) {
        sim_requester_work(qp);
    }
}

/* iWARP: only the connection manager makes a queue pair ready; all other steps are internal to
 * it. */
static int modify_iwarp(struct sim_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
    values_take(&qp->attr, attr, mask & IBV_QP_ACCESS_FLAGS);
    if ((mask & IBV_QP_STATE) == 0) {
        return 0;
    }
    switch (attr->qp_state) {
    case IBV_QPS_RESET:
    case IBV_QPS_ERR:
        if (attr->qp_state == IBV_QPS_ERR) {
            sim_qp_break_connection(qp);
        }
        enter(qp, attr->qp_state);
        return 0;
    case IBV_QPS_INIT:
    case IBV_QPS_RTR:
        if (qp->connected || qp->state == IBV_QPS_ERR) {
            return EINVAL;
        }
        sim_qp_set_state(qp, IBV_QPS_INIT);
        return 0;
    case IBV_QPS_RTS:
        if (!qp->connected || qp->state != IBV_QPS_RTS) {
            return EINVAL;
        }
        return 0;
    case IBV_QPS_SQD:
        sim_qp_close_connection(qp);
        return 0;
    default:
        return EINVAL;
    }
}

int sim_qp_modify(struct sim_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
    if (!sim_device_alive(qp->device)) {
        return EIO;
    }
    int error;
    if (sim_is_iwarp(qp->device)) {
        error = modify_iwarp(qp, attr, mask);
    } else {
        enum ibv_qp_state to = (mask & IBV_QP_STATE) != 0 ? attr->qp_state : qp->state;
        bool allowed = transition_allowed(qp, to, mask) && values_allowed(qp, attr, mask);
        if (allowed) {
            values_take(&qp->attr, attr, mask);
            enter(qp, to);
        }
        error = allowed ? 0 : EINVAL;
    }
    if (error == 0 && (mask & IBV_QP_STATE) != 0) {
        qp->ex.qp_base.state = attr->qp_state;
    }
    sim_world_changed(qp->world);
    return error;
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int attr_mask)
{
    struct sim_qp *sim = sim_qp_of(qp);
    sim_lock(sim->world);
    int error = sim_call(sim->world, SIM_CALL_modify_qp);
    error = error == 0 ? sim_qp_modify(sim, attr, attr_mask) : error;
    sim_unlock(sim->world);
    return error;
}

int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int attr_mask,
                 struct ibv_qp_init_attr *init_attr)
{
    struct sim_qp *sim = sim_qp_of(qp);
    (void)attr_mask; /* a hint: all attributes are cheap */
    sim_lock(sim->world);
    int error = sim_call(sim->world, SIM_CALL_query_qp);
    error = error == 0 && !sim_device_alive(sim->device) ? EIO : error;
    if (error == 0) {
        *attr = sim->attr;
        attr->qp_state = attr->cur_qp_state = sim->state;
        attr->cap = sim->cap;
        attr->sq_draining = sim->state == IBV_QPS_SQD && sim->sq.complete != sim->sq.next;
        if (sim->device->options.like == SIM_LIKE_SIW) {
            /* siw_query_qp() swaps the two. */
            attr->max_rd_atomic = sim->attr.max_dest_rd_atomic;
            attr->max_dest_rd_atomic = sim->attr.max_rd_atomic;
        }
        *init_attr = (struct ibv_qp_init_attr){
            .qp_context = qp->qp_context,
            .send_cq = qp->send_cq,
            .recv_cq = qp->recv_cq,
            .srq = qp->srq,
            .cap = sim->cap,
            .qp_type = qp->qp_type,
            .sq_sig_all = sim->signal_all,
        };
        qp->state = sim->state;
    }
    sim_unlock(sim->world);
    return error;
}

int ibv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode op, uint32_t flags)
{
    struct sim_qp *sim = sim_qp_of(qp);
    (void)op;
    return flags == 0 && sim->device->options.data_in_order;
}

int ibv_set_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
    (void)qp;
    (void)ece;
    errno = EOPNOTSUPP;
    return EOPNOTSUPP;
}

int ibv_query_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
    (void)qp;
    (void)ece;
    errno = EOPNOTSUPP;
    return EOPNOTSUPP;
}

/* --------------------------------------------------------------------------------------- faults */

void sim_qp_async(struct sim_qp *qp, enum ibv_event_type type)
{
    struct ibv_async_event event = { .element.qp = &qp->ex.qp_base, .event_type = type };
    sim_async_raise(qp->context, &event);
}

void sim_qp_give_up(struct sim_qp *qp, bool quiet)
{
    qp->silent = quiet;
    sim_qp_async(qp, IBV_EVENT_QP_FATAL);
    sim_qp_break_connection(qp);
    sim_qp_enter_error(qp);
}

void sim_qp_fatal(struct ibv_qp *qp, bool quiet)
{
    struct sim_qp *sim = sim_qp_of(qp);
    sim_lock(sim->world);
    sim_qp_give_up(sim, quiet);
    sim_unlock(sim->world);
}

void sim_qp_fail_request(struct ibv_qp *qp, uint64_t nth, enum ibv_wc_status status)
{
    struct sim_qp *sim = sim_qp_of(qp);
    sim_lock(sim->world);
    sim->starts = (struct sim_refusal){ .in = nth, .status = status };
    sim_unlock(sim->world);
}

void sim_qps_of_dead_cq(const struct sim_cq *cq)
{
    struct sim_host *host = cq->context->device->host;
    for (uint32_t i = 0; i < host->qps_room; i++) {
        struct sim_qp *qp = host->qps[i];
        if (qp != NULL && (qp->send_cq == cq || qp->recv_cq == cq)) {
            sim_qp_give_up(qp, qp->silent);
        }
    }
}
