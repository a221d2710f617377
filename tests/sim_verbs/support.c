/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "support.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

static uint32_t or_else(uint32_t value, uint32_t otherwise)
{
    return value != 0 ? value : otherwise;
}

static void node_objects(struct node *out, const struct wishes *wishes)
{
    if (out->pd == NULL) {
        out->pd = ibv_alloc_pd(out->context);
    }
    out->channel = ibv_create_comp_channel(out->context);
    int cqe = (int)or_else(wishes->cqe, or_else(wishes->depth, NODE_DEPTH) * 4);
    out->send_cq = ibv_create_cq(out->context, cqe, out, out->channel, 0);
    out->recv_cq = ibv_create_cq(out->context, cqe, out, out->channel, 0);
    out->memory = calloc(1, NODE_MEMORY);
    unsigned int rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                          IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    out->mr = ibv_reg_mr(out->pd, out->memory, NODE_MEMORY, rights);
    assert_true(out->pd && out->channel && out->send_cq && out->recv_cq && out->mr);
    assert_int_equal(fcntl(out->context->async_fd, F_SETFL, O_NONBLOCK), 0);
    assert_int_equal(fcntl(out->channel->fd, F_SETFL, O_NONBLOCK), 0);
}

static void host_make(struct sim_world *world, const char *device, struct node *out)
{
    *out = (struct node){ .host = sim_host_add(world) };
    assert_non_null(out->host);
    out->device = sim_device_add(out->host, device);
    if (out->device == NULL) {
        fail_msg("%s", sim_error());
    }
    sim_use_host(out->host);
}

void node_make(struct sim_world *world, const char *device, const struct wishes *wishes,
               struct node *out)
{
    host_make(world, device, out);
    int count = 0;
    struct ibv_device **list = ibv_get_device_list(&count);
    assert_int_equal(count, 1);
    out->context = ibv_open_device(list[0]);
    ibv_free_device_list(list);
    assert_non_null(out->context);
    node_objects(out, wishes);
}

struct ibv_qp *node_qp(struct node *node, const struct wishes *wishes)
{
    uint32_t depth = or_else(wishes->depth, NODE_DEPTH);
    uint32_t sges = or_else(wishes->sges, 1);
    struct ibv_qp_init_attr_ex attr = {
        .send_cq = node->send_cq,
        .recv_cq = node->recv_cq,
        .srq = node->srq,
        .cap = { depth, depth, sges, sges, wishes->inline_size },
        .qp_type = IBV_QPT_RC,
        .comp_mask = IBV_QP_INIT_ATTR_PD,
        .pd = node->pd,
        .send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE |
                          IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_SEND_WITH_IMM |
                          IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD,
    };
    if (wishes->extended) {
        attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    }
    struct ibv_qp *qp = ibv_create_qp_ex(node->context, &attr);
    assert_non_null(qp);
    return qp;
}

void node_end(struct node *node)
{
    if (node->id != NULL && node->id->qp != NULL) {
        rdma_destroy_qp(node->id);
    } else if (node->qp != NULL) {
        assert_int_equal(ibv_destroy_qp(node->qp), 0);
    }
    if (node->srq != NULL) {
        assert_int_equal(ibv_destroy_srq(node->srq), 0);
    }
    assert_int_equal(ibv_dereg_mr(node->mr), 0);
    assert_int_equal(ibv_destroy_cq(node->send_cq), 0);
    assert_int_equal(ibv_destroy_cq(node->recv_cq), 0);
    assert_int_equal(ibv_destroy_comp_channel(node->channel), 0);
    free(node->memory);
    if (node->cm == NULL) {
        assert_int_equal(ibv_dealloc_pd(node->pd), 0);
        assert_int_equal(ibv_close_device(node->context), 0);
        return;
    }
    if (node->id != NULL) {
        assert_int_equal(rdma_destroy_id(node->id), 0);
    }
    if (node->listener != NULL) {
        assert_int_equal(rdma_destroy_id(node->listener), 0);
    }
    rdma_destroy_event_channel(node->cm);
}

/* ----------------------------------------------------------------------------------- connecting */

void qp_to_init(struct ibv_qp *qp)
{
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_INIT,
        .port_num = 1,
        .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                           IBV_ACCESS_REMOTE_ATOMIC,
    };
    assert_int_equal(
        ibv_modify_qp(qp, &attr,
                      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
        0);
}

static unsigned int gid_index(const struct node *node)
{
    struct ibv_gid_entry entries[32];
    ssize_t count = ibv_query_gid_table(node->context, entries, 32, 0);
    unsigned int found = 0;
    for (ssize_t i = 0; i < count; i++) {
        bool mapped = entries[i].gid.raw[10] == 0xff && entries[i].gid.raw[0] == 0;
        if (entries[i].gid_type == IBV_GID_TYPE_ROCE_V2 && mapped) {
            found = entries[i].gid_index;
        }
    }
    return found;
}

static uint8_t device_depth(const struct node *node)
{
    struct ibv_device_attr attr;
    assert_int_equal(ibv_query_device(node->context, &attr), 0);
    return (uint8_t)attr.max_qp_rd_atom;
}

void qp_to_rtr(struct ibv_qp *qp, struct node *mine, struct node *theirs, struct ibv_qp *peer,
               const struct wishes *wishes)
{
    struct ibv_port_attr my_port;
    struct ibv_port_attr port;
    assert_int_equal(ibv_query_port(mine->context, 1, &my_port), 0);
    assert_int_equal(ibv_query_port(theirs->context, 1, &port), 0);
    enum ibv_mtu mtu = my_port.active_mtu < port.active_mtu ? my_port.active_mtu : port.active_mtu;
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = mtu,
        .dest_qp_num = peer->qp_num,
        .rq_psn = peer->qp_num * 3,
        .max_dest_rd_atomic = wishes->rd_atomic != 0 ? wishes->rd_atomic : device_depth(mine),
        .min_rnr_timer = wishes->weak ? wishes->min_rnr_timer : 1,
        .ah_attr = { .dlid = port.lid, .port_num = 1 },
    };
    if (port.link_layer == IBV_LINK_LAYER_ETHERNET) {
        attr.ah_attr.is_global = 1;
        attr.ah_attr.grh.sgid_index = (uint8_t)gid_index(mine);
        attr.ah_attr.grh.hop_limit = 64;
        assert_int_equal(
            ibv_query_gid(theirs->context, 1, (int)gid_index(theirs), &attr.ah_attr.grh.dgid), 0);
    }
    if (wishes->mtu_b != 0) {
        attr.path_mtu = (enum ibv_mtu)wishes->mtu_b;
    }
    assert_int_equal(ibv_modify_qp(qp, &attr,
                                   IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                       IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                                       IBV_QP_MIN_RNR_TIMER),
                     0);
}

void qp_to_rts(struct ibv_qp *qp, const struct wishes *wishes)
{
    struct ibv_device_attr device;
    assert_int_equal(ibv_query_device(qp->context, &device), 0);
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTS,
        .timeout = wishes->weak ? wishes->timeout : 10,
        .retry_cnt = wishes->weak ? wishes->retry_cnt : 7,
        .rnr_retry = wishes->weak ? wishes->rnr_retry : 7,
        .sq_psn = qp->qp_num * 3,
        .max_rd_atomic = wishes->rd_atomic != 0 ? wishes->rd_atomic
                                                : (uint8_t)device.max_qp_init_rd_atom,
    };
    assert_int_equal(ibv_modify_qp(qp, &attr,
                                   IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                       IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC),
                     0);
}

void qps_connect(struct node *a, struct ibv_qp *qa, struct node *b, struct ibv_qp *qb,
                 const struct wishes *wishes)
{
    struct wishes first = *wishes;
    first.mtu_b = 0;
    qp_to_init(qa);
    qp_to_init(qb);
    qp_to_rtr(qa, a, b, qb, &first);
    qp_to_rtr(qb, b, a, qa, wishes);
    qp_to_rts(qa, wishes);
    qp_to_rts(qb, wishes);
}

int qp_to_error(struct ibv_qp *qp)
{
    struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
    return ibv_modify_qp(qp, &attr, IBV_QP_STATE);
}

enum ibv_qp_state qp_state(struct ibv_qp *qp)
{
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    assert_int_equal(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), 0);
    return attr.qp_state;
}

static void srq_make(struct node *node, const struct wishes *wishes)
{
    struct ibv_srq_init_attr attr = { .attr = { or_else(wishes->depth, NODE_DEPTH),
                                                or_else(wishes->sges, 1), 0 } };
    node->srq = ibv_create_srq(node->pd, &attr);
    assert_non_null(node->srq);
}

/* ----------------------------------------------------------------------- the connection manager */

void cm_node_start(struct sim_world *world, const char *device, struct node *out)
{
    host_make(world, device, out);
    out->cm = rdma_create_event_channel();
    assert_non_null(out->cm);
    assert_int_equal(fcntl(out->cm->fd, F_SETFL, O_NONBLOCK), 0);
}

void cm_listen(struct node *node, int backlog)
{
    struct sockaddr_in any = { .sin_family = AF_INET };
    assert_int_equal(rdma_create_id(node->cm, &node->listener, node, RDMA_PS_TCP), 0);
    assert_int_equal(rdma_bind_addr(node->listener, (struct sockaddr *)&any), 0);
    assert_int_equal(rdma_listen(node->listener, backlog), 0);
}

static struct sockaddr_in address_of(const struct node *node)
{
    struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = rdma_get_src_port(node->listener) };
    assert_true(sim_device_address(node->device, (struct sockaddr *)&in, sizeof(in)));
    return in;
}

void cm_resolve(struct node *node, const struct node *to)
{
    struct sockaddr_in target = address_of(to);
    assert_int_equal(rdma_create_id(node->cm, &node->id, node, RDMA_PS_TCP), 0);
    assert_int_equal(rdma_resolve_addr(node->id, NULL, (struct sockaddr *)&target, 1000), 0);
    cm_expect(node, RDMA_CM_EVENT_ADDR_RESOLVED);
    assert_int_equal(rdma_resolve_route(node->id, 1000), 0);
    cm_expect(node, RDMA_CM_EVENT_ROUTE_RESOLVED);
}

void cm_objects(struct node *node, const struct wishes *wishes)
{
    node->context = node->id->verbs;
    node->pd = node->id->pd;
    node_objects(node, wishes);
    uint32_t depth = or_else(wishes->depth, NODE_DEPTH);
    uint32_t sges = or_else(wishes->sges, 1);
    struct ibv_qp_init_attr attr = {
        .send_cq = node->send_cq,
        .recv_cq = node->recv_cq,
        .srq = node->srq,
        .cap = { depth, depth, sges, sges, wishes->inline_size },
        .qp_type = IBV_QPT_RC,
    };
    assert_int_equal(rdma_create_qp(node->id, node->pd, &attr), 0);
    node->qp = node->id->qp;
}

struct rdma_cm_event *cm_event(struct node *node, enum rdma_cm_event_type type)
{
    struct rdma_cm_event *event = NULL;
    int result = rdma_get_cm_event(node->cm, &event);
    while (result != 0 && sim_step(sim_world_of(node->device))) {
        assert_int_equal(errno, EAGAIN);
        result = rdma_get_cm_event(node->cm, &event);
    }
    if (result != 0) {
        fail_msg("no event, expected %s", rdma_event_str(type));
    }
    if (event->event != type) {
        fail_msg("%s (%d), expected %s", rdma_event_str(event->event), event->status,
                 rdma_event_str(type));
    }
    return event;
}

void cm_expect(struct node *node, enum rdma_cm_event_type type)
{
    assert_int_equal(rdma_ack_cm_event(cm_event(node, type)), 0);
}

void cm_none(struct node *node)
{
    struct rdma_cm_event *event = NULL;
    assert_int_equal(rdma_get_cm_event(node->cm, &event), -1);
    assert_int_equal(errno, EAGAIN);
}

void cm_connect(struct node *a, struct node *b, const struct wishes *wishes)
{
    struct rdma_conn_param param = {
        .responder_resources = RDMA_MAX_RESP_RES,
        .initiator_depth = RDMA_MAX_INIT_DEPTH,
        .retry_count = 7,
        .rnr_retry_count = 7,
    };
    if (wishes->rd_atomic != 0) {
        param.responder_resources = param.initiator_depth = wishes->rd_atomic;
    }
    cm_resolve(a, b);
    cm_objects(a, wishes);
    assert_int_equal(rdma_connect(a->id, &param), 0);
    struct rdma_cm_event *event = cm_event(b, RDMA_CM_EVENT_CONNECT_REQUEST);
    b->id = event->id;
    assert_int_equal(rdma_ack_cm_event(event), 0);
    if (wishes->srq) {
        b->pd = b->id->pd;
        srq_make(b, wishes);
    }
    cm_objects(b, wishes);
    assert_int_equal(rdma_accept(b->id, &param), 0);
    cm_expect(a, RDMA_CM_EVENT_ESTABLISHED);
    cm_expect(b, RDMA_CM_EVENT_ESTABLISHED);
}

struct pair pair_make(const struct wishes *wishes)
{
    struct pair pair = { .world = sim_world_create(wishes->world) };
    if (pair.world == NULL) {
        fail_msg("%s", sim_error());
    }
    const char *device_b = wishes->device_b != NULL ? wishes->device_b : wishes->device;
    if (wishes->cm || strstr(wishes->device, "link=iwarp") != NULL) {
        cm_node_start(pair.world, wishes->device, &pair.a);
        cm_node_start(pair.world, device_b, &pair.b);
        cm_listen(&pair.b, 8);
        cm_connect(&pair.a, &pair.b, wishes);
        return pair;
    }
    node_make(pair.world, wishes->device, wishes, &pair.a);
    node_make(pair.world, device_b, wishes, &pair.b);
    if (wishes->srq) {
        srq_make(&pair.b, wishes);
    }
    pair.a.qp = node_qp(&pair.a, wishes);
    pair.b.qp = node_qp(&pair.b, wishes);
    if (!wishes->unconnected) {
        qps_connect(&pair.a, pair.a.qp, &pair.b, pair.b.qp, wishes);
    }
    return pair;
}

void pair_end(struct pair *pair)
{
    node_end(&pair->a);
    node_end(&pair->b);
    assert_int_equal(sim_world_destroy(pair->world), 0);
}

/* ------------------------------------------------------------------------------------- requests */

struct ibv_sge at(const struct node *node, size_t offset, uint32_t length)
{
    return (struct ibv_sge){ (uintptr_t)node->memory + offset, length, node->mr->lkey };
}

int post_wr(struct node *node, struct ibv_send_wr *wr)
{
    struct ibv_send_wr *bad = NULL;
    return ibv_post_send(node->qp, wr, &bad);
}

static int post(struct node *node, struct ibv_send_wr wr, size_t offset, uint32_t length)
{
    struct ibv_sge sge = at(node, offset, length);
    wr.sg_list = &sge;
    wr.num_sge = 1;
    return post_wr(node, &wr);
}

int post_send(struct node *node, uint64_t wr_id, size_t offset, uint32_t length, unsigned int flags)
{
    struct ibv_send_wr wr = { .wr_id = wr_id, .opcode = IBV_WR_SEND, .send_flags = flags };
    return post(node, wr, offset, length);
}

int post_send_imm(struct node *node, uint64_t wr_id, size_t offset, uint32_t length, uint32_t imm,
                  unsigned int flags)
{
    struct ibv_send_wr wr = {
        .wr_id = wr_id, .opcode = IBV_WR_SEND_WITH_IMM, .send_flags = flags, .imm_data = imm
    };
    return post(node, wr, offset, length);
}

static struct ibv_send_wr remote(uint64_t wr_id, enum ibv_wr_opcode opcode,
                                 const struct node *target, size_t target_offset,
                                 unsigned int flags)
{
    return (struct ibv_send_wr){
        .wr_id = wr_id,
        .opcode = opcode,
        .send_flags = flags,
        .wr.rdma = { (uintptr_t)target->memory + target_offset, target->mr->rkey },
    };
}

int post_write(struct node *node, uint64_t wr_id, size_t offset, uint32_t length,
               const struct node *target, size_t target_offset, unsigned int flags)
{
    return post(node, remote(wr_id, IBV_WR_RDMA_WRITE, target, target_offset, flags), offset,
                length);
}

int post_write_imm(struct node *node, uint64_t wr_id, size_t offset, uint32_t length,
                   const struct node *target, size_t target_offset, uint32_t imm,
                   unsigned int flags)
{
    struct ibv_send_wr wr = remote(wr_id, IBV_WR_RDMA_WRITE_WITH_IMM, target, target_offset, flags);
    wr.imm_data = imm;
    return post(node, wr, offset, length);
}

int post_read(struct node *node, uint64_t wr_id, size_t offset, uint32_t length,
              const struct node *target, size_t target_offset, unsigned int flags)
{
    return post(node, remote(wr_id, IBV_WR_RDMA_READ, target, target_offset, flags), offset, length);
}

static int post_atomic(struct node *node, uint64_t wr_id, size_t offset, const struct node *target,
                       size_t target_offset, enum ibv_wr_opcode opcode, uint64_t compare_add,
                       uint64_t swap, unsigned int flags)
{
    struct ibv_send_wr wr = {
        .wr_id = wr_id,
        .opcode = opcode,
        .send_flags = flags,
        .wr.atomic = { (uintptr_t)target->memory + target_offset, compare_add, swap,
                       target->mr->rkey },
    };
    return post(node, wr, offset, sizeof(uint64_t));
}

int post_fetch_add(struct node *node, uint64_t wr_id, size_t offset, const struct node *target,
                   size_t target_offset, uint64_t add, unsigned int flags)
{
    return post_atomic(node, wr_id, offset, target, target_offset, IBV_WR_ATOMIC_FETCH_AND_ADD, add,
                       0, flags);
}

int post_cmp_swap(struct node *node, uint64_t wr_id, size_t offset, const struct node *target,
                  size_t target_offset, uint64_t compare, uint64_t swap, unsigned int flags)
{
    return post_atomic(node, wr_id, offset, target, target_offset, IBV_WR_ATOMIC_CMP_AND_SWP,
                       compare, swap, flags);
}

int post_recv(struct node *node, uint64_t wr_id, size_t offset, uint32_t length)
{
    struct ibv_sge sge = at(node, offset, length);
    struct ibv_recv_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1 };
    struct ibv_recv_wr *bad = NULL;
    return node->srq != NULL ? ibv_post_srq_recv(node->srq, &wr, &bad)
                             : ibv_post_recv(node->qp, &wr, &bad);
}

/* ----------------------------------------------------------------------- completions and events */

static struct sim_world *world_of(const struct ibv_cq *cq)
{
    return sim_world_of(sim_device_of(cq->context));
}

struct ibv_wc next_wc(struct ibv_cq *cq)
{
    struct ibv_wc wc;
    do {
        int count = ibv_poll_cq(cq, 1, &wc);
        assert_true(count >= 0);
        if (count == 1) {
            return wc;
        }
    } while (sim_step(world_of(cq)));
    int count = ibv_poll_cq(cq, 1, &wc);
    if (count != 1) {
        fail_msg("no completion came");
    }
    return wc;
}

void no_wc(struct node *node, struct ibv_cq *cq)
{
    struct ibv_wc wc;
    (void)node;
    assert_int_equal(ibv_poll_cq(cq, 1, &wc), 0);
    (void)sim_advance(world_of(cq), SIM_FOREVER);
    assert_int_equal(ibv_poll_cq(cq, 1, &wc), 0);
}

void expect_wc(struct ibv_cq *cq, uint64_t wr_id, enum ibv_wc_status status)
{
    struct ibv_wc wc = next_wc(cq);
    if (wc.wr_id != wr_id || wc.status != status) {
        fail_msg("completion %llu '%s', expected %llu '%s'", (unsigned long long)wc.wr_id,
                 ibv_wc_status_str(wc.status), (unsigned long long)wr_id,
                 ibv_wc_status_str(status));
    }
}

void expect_event(struct node *node, enum ibv_event_type type)
{
    struct ibv_async_event event;
    if (ibv_get_async_event(node->context, &event) != 0) {
        fail_msg("no event, expected '%s'", ibv_event_type_str(type));
    }
    ibv_ack_async_event(&event);
    assert_string_equal(ibv_event_type_str(event.event_type), ibv_event_type_str(type));
}

void no_event(struct node *node)
{
    struct ibv_async_event event;
    assert_int_equal(ibv_get_async_event(node->context, &event), -1);
    assert_int_equal(errno, EAGAIN);
}

void fill(struct node *node, size_t offset, size_t length, uint8_t seed)
{
    for (size_t i = 0; i < length; i++) {
        node->memory[offset + i] = (uint8_t)(seed + i * 7);
    }
}

bool filled(const struct node *node, size_t offset, size_t length, uint8_t seed)
{
    for (size_t i = 0; i < length; i++) {
        if (node->memory[offset + i] != (uint8_t)(seed + i * 7)) {
            return false;
        }
    }
    return true;
}
