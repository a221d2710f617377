/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* librdmacm's and the kernel's part of queue pairs: attributes, states, the streams of iWARP. */
#include "sim_cm.h"
#include "sim_cm_news.h"
#include "sim_device.h"
#include "sim_options.h"
#include "sim_packet.h"
#include "sim_queue.h"
#include "sim_world.h"

#include <errno.h>

static struct sim_qp *qp_of(const struct sim_cm_id *id)
{
    return id->id.qp != NULL ? sim_qp_of(id->id.qp) : NULL;
}

static int ready_mask(const struct sim_cm_id *id, struct ibv_qp_attr *attr)
{
    enum { PACKET_LIFE_TIME = 16 }; /* cma.c: CMA_IBOE_PACKET_LIFETIME */
    attr->sq_psn = id->my_psn;
    attr->retry_cnt = id->retry_count;
    attr->rnr_retry = id->rnr_retry_count;
    attr->max_rd_atomic = id->initiator_depth;
    attr->timeout = id->ack_timeout_set ? id->ack_timeout : PACKET_LIFE_TIME + 1;
    return IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
           IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_TIMEOUT;
}

static int receive_mask(const struct sim_cm_id *id, struct ibv_qp_attr *attr)
{
    bool roce = id->device->options.link == SIM_ROCE;
    unsigned int index = sim_cm_gid_index(id);
    attr->ah_attr = (struct ibv_ah_attr){
        .grh = { .dgid = id->peer_gid,
                 .sgid_index = (uint8_t)index,
                 .hop_limit = 64,
                 .traffic_class = id->route_tos },
        .dlid = id->peer_lid,
        .is_global = roce,
        .port_num = 1,
    };
    attr->path_mtu = (enum ibv_mtu)id->mtu;
    attr->dest_qp_num = id->peer_qp;
    attr->rq_psn = id->peer_psn;
    attr->max_dest_rd_atomic = id->responder_resources;
    attr->min_rnr_timer = 0; /* 655 ms (rdma_connect(3)) */
    return IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
           IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
}

/* The kernel names no rights before it has a connection (cma.c: rdma_init_qp_attr()). */
static unsigned int access_rights(const struct sim_cm_id *id)
{
    if (id->state < SIM_CM_CONNECTING) {
        return 0;
    }
    if (sim_cm_is_iwarp(id)) {
        return IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    }
    return id->responder_resources == 0
               ? IBV_ACCESS_REMOTE_WRITE
               : IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
}

/* Attributes that the kernel fills in for a state; -1: the connection is not that far. */
static int attributes(const struct sim_cm_id *id, struct ibv_qp_attr *attr)
{
    enum ibv_qp_state state = attr->qp_state;
    attr->qp_access_flags = access_rights(id);
    if (sim_cm_is_iwarp(id)) {
        return state == IBV_QPS_INIT || state == IBV_QPS_RTR ? IBV_QP_STATE | IBV_QP_ACCESS_FLAGS
                                                             : 0;
    }
    switch (state) {
    case IBV_QPS_INIT:
        attr->pkey_index = 0;
        attr->port_num = 1;
        return IBV_QP_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
    case IBV_QPS_RTR:
        return id->peer_qp != 0 && sim_cm_gid_index(id) < SIM_GIDS ? receive_mask(id, attr) : -1;
    case IBV_QPS_RTS:
        return id->peer_qp != 0 ? ready_mask(id, attr) : -1;
    default:
        return -1;
    }
}

static int move(struct sim_cm_id *id, enum ibv_qp_state state)
{
    struct sim_qp *qp = qp_of(id);
    struct ibv_qp_attr attr = { .qp_state = state };
    int mask = attributes(id, &attr);
    return mask < 0 ? EINVAL : sim_qp_modify(qp, &attr, mask);
}

/* librdmacm's own state changes, for an id with a queue pair. */
int sim_cm_move_ready(struct sim_cm_id *id)
{
    int error = 0;
    if (qp_of(id) != NULL) {
        error = move(id, IBV_QPS_INIT);
        error = error == 0 ? move(id, IBV_QPS_RTR) : error;
        error = error == 0 ? move(id, IBV_QPS_RTS) : error;
    }
    return error;
}

void sim_cm_move_error(struct sim_cm_id *id)
{
    struct sim_qp *qp = qp_of(id);
    if (qp != NULL) {
        struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
        (void)sim_qp_modify(qp, &attr, IBV_QP_STATE);
    }
}

/* iWARP: chooses the queue pair. False: no queue pair has the number, or it is in use. */
bool sim_cm_stream_choose(struct sim_cm_id *id, const struct rdma_conn_param *param)
{
    struct sim_qp *qp = qp_of(id);
    if (qp == NULL && param != NULL) {
        qp = sim_qp_find(id->world, param->qp_num);
    }
    bool usable = qp != NULL && qp->device == id->device && !qp->connected &&
                  qp->state != IBV_QPS_ERR && (qp->cm == NULL || qp->cm == id);
    if (usable) {
        id->stream = qp;
        qp->cm = id;
    }
    return usable;
}

/* iWARP: the kernel attaches the stream to the queue pair. */
void sim_cm_attach(struct sim_cm_id *id, bool passive)
{
    struct sim_qp *qp = id->stream;
    qp->attr.dest_qp_num = id->peer_qp;
    qp->attr.max_rd_atomic = id->initiator_depth;
    qp->attr.max_dest_rd_atomic = id->responder_resources;
    qp->flight.una_psn = qp->flight.next_psn = id->my_psn;
    qp->target.expected_psn = id->peer_psn;
    qp->connected = true;
    qp->heard = !passive || !id->device->options.active_first;
    sim_qp_set_state(qp, IBV_QPS_RTS);
}

/* Once for the id's life: an acceptor that moves its queue pair by itself does so before it accepts
 * (cma.c chooses when the id is made). */
void sim_cm_psn_choose(struct sim_cm_id *id)
{
    if (!id->has_psn) {
        id->has_psn = true;
        id->my_psn = (uint32_t)sim_chance(id->world, SIM_PSN_MASK + 1);
    }
}

int rdma_init_qp_attr(struct rdma_cm_id *id, struct ibv_qp_attr *qp_attr, int *qp_attr_mask)
{
    struct sim_cm_id *sim = sim_cm_of(id);
    sim_lock(sim->world);
    int error = sim_call(sim->world, SIM_CALL_init_qp_attr);
    sim_cm_psn_choose(sim);
    int mask = error == 0 && sim->device != NULL ? attributes(sim, qp_attr) : -1;
    error = error == 0 && mask < 0 ? EINVAL : error;
    if (error == 0) {
        *qp_attr_mask = mask;
    }
    sim_unlock(sim->world);
    return sim_cm_finish(error);
}

int rdma_create_qp_ex(struct rdma_cm_id *id, struct ibv_qp_init_attr_ex *qp_init_attr)
{
    struct sim_cm_id *sim = sim_cm_of(id);
    if (id->qp != NULL || id->verbs == NULL) {
        return sim_cm_finish(EINVAL);
    }
    if ((qp_init_attr->comp_mask & IBV_QP_INIT_ATTR_PD) == 0 || qp_init_attr->pd == NULL) {
        qp_init_attr->comp_mask |= IBV_QP_INIT_ATTR_PD;
        qp_init_attr->pd = id->pd;
    }
    if (qp_init_attr->pd == NULL || qp_init_attr->pd->context != id->verbs) {
        return sim_cm_finish(EINVAL);
    }
    struct ibv_qp *qp = sim_create_qp_ex(id->verbs, qp_init_attr);
    if (qp == NULL) {
        return -1;
    }
    sim_lock(sim->world);
    id->qp = qp;
    id->pd = qp->pd;
    sim_qp_of(qp)->cm = sim;
    sim->my_qp = qp->qp_num;
    int error = move(sim, IBV_QPS_INIT);
    sim_unlock(sim->world);
    if (error != 0) {
        id->qp = NULL;
        (void)ibv_destroy_qp(qp);
    }
    return sim_cm_finish(error);
}

int rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *qp_init_attr)
{
    struct ibv_qp_init_attr_ex attr;
    memset(&attr, 0, sizeof(attr));
    /* Same beginning, but the mask lies where the other has padding. */
    memcpy(&attr, qp_init_attr, sizeof(*qp_init_attr));
    attr.comp_mask = IBV_QP_INIT_ATTR_PD;
    attr.pd = pd != NULL ? pd : id->pd;
    int result = rdma_create_qp_ex(id, &attr);
    memcpy(qp_init_attr, &attr, sizeof(*qp_init_attr));
    return result;
}

void rdma_destroy_qp(struct rdma_cm_id *id)
{
    (void)ibv_destroy_qp(id->qp);
    id->qp = NULL;
}

void sim_cm_qp_destroyed(struct sim_qp *qp)
{
    struct sim_cm_id *id = qp->cm;
    if (id != NULL && id->id.qp == &qp->ex.qp_base) {
        id->id.qp = NULL;
    }
    if (id != NULL && id->stream == qp) {
        id->stream = NULL;
    }
    qp->cm = NULL;
}
