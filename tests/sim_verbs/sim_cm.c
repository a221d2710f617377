/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * librdmacm's connections. On InfiniBand and RoCE REQ, REP, RTU connect, DREQ and DREP disconnect,
 * REJ refuses; librdmacm moves the id's queue pair, if it has one, else the program does. On iWARP
 * the connection is the TCP stream of the queue pair: REQ and REP stand for MPA's frames, and its
 * end is the end of the queue pair.
 */
#include "sim_cm.h"

#include "sim_carry.h"
#include "sim_cm_news.h"
#include "sim_device.h"
#include "sim_macros.h"
#include "sim_net.h"
#include "sim_options.h"
#include "sim_packet.h"
#include "sim_queue.h"
#include "sim_requester.h"
#include "sim_verbs.h"
#include "sim_world.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

/* Unanswered messages are sent 15 times, 4.3 s apart (cma.c of Linux: CMA_CM_RESPONSE_TIMEOUT,
 * CMA_MAX_CM_RETRIES); TCP's patience by default (tcp_syn_retries). */
static const uint64_t cm_patience = 65ULL * 1000000000;
static const uint64_t tcp_patience = 130ULL * 1000000000;
/* Until packets of the old connection are gone: twice the packet life time and the ACK delay. */
static const uint64_t time_wait = 1100ULL * 1000000;

size_t sim_cm_message_size(void)
{
    return sizeof(struct sim_cm_message);
}

/* ------------------------------------------------------------------------------------- messages */

struct flight {
    struct sim_event event;
    struct sim_world *world;
    struct sim_cm_message message;
};

static void flight_run(struct sim_event *event)
{
    struct flight *flight = SIM_OUTER(struct flight, event, event);
    sim_cm_arrived(flight->world, &flight->message);
    sim_free(flight);
}

static struct sim_host *host_at(struct sim_world *world, uint16_t slot)
{
    struct sim_host *host = world->hosts;
    while (host != NULL && host->slot != slot) {
        host = host->next;
    }
    return host;
}

/* Target of a message in this world: a request goes to the address, all others to the slot. */
static struct sim_host *host_of(struct sim_world *world, const struct sim_cm_message *message)
{
    if (message->kind != SIM_CM_REQ) {
        return host_at(world, message->to_slot);
    }
    for (struct sim_host *host = world->hosts; host != NULL; host = host->next) {
        struct sim_device *device = sim_device_with_address(host, &message->target);
        if (device != NULL && device->options.link == message->link && device->port_up) {
            return host;
        }
    }
    return NULL;
}

static bool is_cut(const struct sim_host *one, const struct sim_host *other)
{
    return other->slot < 64 && (one->cut_from >> other->slot & 1) != 0;
}

/* False: known at once to have no target. A message that merely vanishes counts as sent. */
static bool send_message(struct sim_world *world, struct sim_host *from, uint64_t *flow,
                         const struct sim_cm_message *message)
{
    bool request = message->kind == SIM_CM_REQ;
    if (sim_net_has(world->net) && (request || message->to_slot != world->slot)) {
        if (world->cut) {
            return true;
        }
        return request ? sim_net_send_to_port(world->net, sim_address_port(&message->target),
                                              message, sizeof(*message))
                       : sim_net_send(world->net, message->to_slot, SIM_PACKET_CM, message,
                                      sizeof(*message), NULL);
    }
    struct sim_host *to = host_of(world, message);
    if (from->killed || to == NULL || to->killed || is_cut(from, to)) {
        return true;
    }
    struct flight *flight = sim_alloc(world, sizeof(*flight));
    if (flight == NULL) {
        return true;
    }
    flight->world = world;
    flight->message = *message;
    sim_schedule_at(world, &flight->event, sim_arrival(world, flow, sizeof(*message)), flight_run);
    return true;
}

static struct sim_cm_message message_of(const struct sim_cm_id *id, enum sim_cm_kind kind)
{
    const struct sim_device *device = id->device;
    unsigned int index = sim_cm_gid_index(id);
    struct sim_cm_message message = {
        .from = id->number,
        .to = id->peer_number,
        .qp_num = id->my_qp,
        .psn = id->my_psn,
        .from_slot = id->host->slot,
        .to_slot = id->peer_slot,
        .lid = device->lid,
        .pkey = device->pkeys[0],
        .kind = (uint8_t)kind,
        .link = (uint8_t)device->options.link,
        .mtu = (uint8_t)device->options.mtu,
        .responder_resources = id->responder_resources,
        .initiator_depth = id->initiator_depth,
        .tos = id->route_tos,
        .source = id->id.route.addr.src_storage,
        .target = id->id.route.addr.dst_storage,
    };
    if (index < SIM_GIDS) {
        message.gid = device->gids[index].gid;
    }
    return message;
}

static bool send_kind(struct sim_cm_id *id, enum sim_cm_kind kind)
{
    struct sim_cm_message message = message_of(id, kind);
    return send_message(id->world, id->host, &id->flow, &message);
}

static void data_set(struct sim_cm_message *message, const void *data, uint8_t length)
{
    if (data != NULL && length > 0) {
        memcpy(message->data, data, length);
        message->data_length = length;
    }
}

static void send_reject(struct sim_cm_id *id, uint32_t reason, const void *data, uint8_t length)
{
    struct sim_cm_message message = message_of(id, SIM_CM_REJ);
    message.reason = reason;
    data_set(&message, data, length);
    (void)send_message(id->world, id->host, &id->flow, &message);
}

/* Reply to a message for an id that does not exist. */
static void send_back(struct sim_world *world, struct sim_host *host,
                      const struct sim_cm_message *to, enum sim_cm_kind kind, uint32_t reason)
{
    uint64_t flow = 0;
    struct sim_cm_message message = { .to = to->from,
                                      .to_slot = to->from_slot,
                                      .from_slot = host->slot,
                                      .link = to->link,
                                      .kind = (uint8_t)kind,
                                      .reason = reason };
    (void)send_message(world, host, &flow, &message);
}

/* --------------------------------------------------------------------------------------- events */

/* Private data of InfiniBand's formats arrives padded, that of iWARP as sent. */
static uint8_t seen_length(const struct sim_cm_message *message)
{
    if (message->link == SIM_IWARP) {
        return message->data_length;
    }
    switch ((enum sim_cm_kind)message->kind) {
    case SIM_CM_REQ:
        return SIM_CM_REQ_DATA;
    case SIM_CM_REP:
        return SIM_CM_REP_DATA;
    case SIM_CM_REJ:
        return SIM_CM_REJ_DATA;
    default:
        return 0;
    }
}

static struct sim_cm_entry *tell_with(struct sim_cm_id *id, enum rdma_cm_event_type type,
                                      int status, const struct sim_cm_message *message)
{
    struct sim_cm_entry *entry = sim_cm_tell(id, type, status);
    struct rdma_conn_param *conn = &entry->event.param.conn;
    memcpy(entry->data, message->data, sizeof(entry->data));
    conn->private_data_len = seen_length(message);
    conn->private_data = conn->private_data_len > 0 ? entry->data : NULL;
    /* The sender's depths, seen from this side: swapped. */
    conn->responder_resources = message->initiator_depth;
    conn->initiator_depth = message->responder_resources;
    conn->flow_control = message->flow_control;
    conn->retry_count = message->retry_count;
    conn->rnr_retry_count = message->rnr_retry_count;
    conn->srq = message->srq;
    conn->qp_num = message->qp_num;
    return entry;
}

static void time_wait_over(struct sim_event *event)
{
    struct sim_cm_id *id = SIM_OUTER(struct sim_cm_id, timer, event);
    (void)sim_cm_tell(id, RDMA_CM_EVENT_TIMEWAIT_EXIT, 0);
}

static void disconnected(struct sim_cm_id *id)
{
    id->state = SIM_CM_DISCONNECTED;
    (void)sim_cm_tell(id, RDMA_CM_EVENT_DISCONNECTED, 0);
    if (!sim_cm_is_iwarp(id)) {
        sim_schedule(id->world, &id->timer, time_wait, time_wait_over);
    }
}

static void unreachable(struct sim_event *event)
{
    struct sim_cm_id *id = SIM_OUTER(struct sim_cm_id, timer, event);
    id->state = SIM_CM_DISCONNECTED;
    (void)sim_cm_tell(id, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT);
}

static void no_goodbye(struct sim_event *event)
{
    disconnected(SIM_OUTER(struct sim_cm_id, timer, event));
}

static void rejected_here(struct sim_event *event)
{
    struct sim_cm_id *id = SIM_OUTER(struct sim_cm_id, timer, event);
    id->state = SIM_CM_DISCONNECTED;
    (void)sim_cm_tell(id, RDMA_CM_EVENT_REJECTED,
                      sim_cm_is_iwarp(id) ? -ECONNREFUSED : SIM_CM_REJ_NO_SERVICE);
}

static void patience(struct sim_cm_id *id)
{
    sim_schedule(id->world, &id->timer, sim_cm_is_iwarp(id) ? tcp_patience : cm_patience,
                 unreachable);
}

/* ----------------------------------------------------------------------------------- connecting */

static int param_check(const struct sim_cm_id *id, const struct rdma_conn_param *param)
{
    const struct sim_device_options *options = &id->device->options;
    if (param == NULL) {
        return id->id.qp == NULL ? EINVAL : 0;
    }
    bool resources = param->responder_resources == RDMA_MAX_RESP_RES ||
                     param->responder_resources <= options->limits.max_rd_atomic;
    bool depth = param->initiator_depth == RDMA_MAX_INIT_DEPTH ||
                 param->initiator_depth <= options->limits.max_init_rd_atomic;
    return resources && depth ? 0 : EINVAL;
}

static uint8_t least(uint64_t one, uint64_t other)
{
    return (uint8_t)(one < other ? one : other);
}

/* The connector asks for the requested depths, or for the device's limits. */
static void depths_ask(struct sim_cm_id *id, const struct rdma_conn_param *param)
{
    const struct sim_device_options *options = &id->device->options;
    bool all = param == NULL;
    id->initiator_depth = all || param->initiator_depth == RDMA_MAX_INIT_DEPTH
                              ? (uint8_t)options->limits.max_init_rd_atomic
                              : param->initiator_depth;
    id->responder_resources = all || param->responder_resources == RDMA_MAX_RESP_RES
                                  ? (uint8_t)options->limits.max_rd_atomic
                                  : param->responder_resources;
}

/* The acceptor uses the requested depths, limited by its device. */
static void depths_grant(struct sim_cm_id *id, const struct rdma_conn_param *param)
{
    const struct sim_device_options *options = &id->device->options;
    bool all = param == NULL;
    id->initiator_depth = all || param->initiator_depth == RDMA_MAX_INIT_DEPTH
                              ? least(id->initiator_depth, options->limits.max_init_rd_atomic)
                              : param->initiator_depth;
    id->responder_resources = all || param->responder_resources == RDMA_MAX_RESP_RES
                                  ? least(id->responder_resources, options->limits.max_rd_atomic)
                                  : param->responder_resources;
}

static void param_fill(struct sim_cm_id *id, const struct rdma_conn_param *param,
                       struct sim_cm_message *message)
{
    message->retry_count = param != NULL ? param->retry_count & 7 : 7;
    message->rnr_retry_count = param != NULL ? param->rnr_retry_count & 7 : 7;
    if (param != NULL) {
        message->flow_control = param->flow_control;
        message->srq = id->id.qp != NULL ? id->id.qp->srq != NULL : param->srq;
        data_set(message, param->private_data, param->private_data_len);
    }
}

static void qp_take(struct sim_cm_id *id, const struct rdma_conn_param *param)
{
    uint32_t named = param != NULL ? param->qp_num : 0;
    id->my_qp = id->id.qp != NULL ? id->id.qp->qp_num : named;
    sim_cm_psn_choose(id);
}

static struct sim_cm_id *listener_find(struct sim_host *host, const struct sim_cm_message *message)
{
    uint16_t port = sim_address_port(&message->target);
    for (struct sim_cm_id *at = host->cm_ids; at != NULL; at = at->next) {
        const struct sockaddr_storage *source = &at->id.route.addr.src_storage;
        if (at->state == SIM_CM_LISTENING && sim_address_port(source) == port &&
            (at->device == NULL || sim_address_equal(source, &message->target))) {
            return at;
        }
    }
    return NULL;
}

/* Does a host of this world refuse at once? siw connects TCP within the call. */
static bool nobody_listens(const struct sim_cm_id *id, const struct sim_cm_message *message)
{
    if (sim_net_has(id->world->net)) {
        return false;
    }
    struct sim_host *to = host_of(id->world, message);
    return !id->host->killed && to != NULL && !to->killed && !is_cut(id->host, to) &&
           listener_find(to, message) == NULL;
}

static int connect_id(struct sim_cm_id *id, const struct rdma_conn_param *param)
{
    uint8_t length = param != NULL ? param->private_data_len : 0;
    bool iwarp = sim_cm_is_iwarp(id);
    if (id->state != SIM_CM_ROUTE_RESOLVED || param_check(id, param) != 0 ||
        (!iwarp && length > SIM_CM_REQ_DATA) || (iwarp && !sim_cm_stream_choose(id, param))) {
        return EINVAL;
    }
    depths_ask(id, param);
    qp_take(id, param);
    id->retry_count = param != NULL ? param->retry_count & 7 : 7;
    id->mtu = (uint8_t)id->device->options.mtu;
    struct sim_cm_message message = message_of(id, SIM_CM_REQ);
    param_fill(id, param, &message);
    bool in_the_call = id->device->options.like == SIM_LIKE_SIW;
    if (in_the_call && nobody_listens(id, &message)) {
        return ECONNREFUSED;
    }
    id->state = SIM_CM_CONNECTING;
    if (iwarp && length >= SIM_CM_SIW_LOST) {
        return 0; /* the request vanishes, as with siw */
    }
    if (send_message(id->world, id->host, &id->flow, &message)) {
        patience(id);
    } else if (in_the_call) {
        id->state = SIM_CM_ROUTE_RESOLVED;
        return ECONNREFUSED;
    } else {
        sim_schedule(id->world, &id->timer, 2 * sim_transit(id->world, 0), rejected_here);
    }
    return 0;
}

int rdma_connect(struct rdma_cm_id *id, struct rdma_conn_param *conn_param)
{
    struct sim_cm_id *sim = sim_cm_of(id);
    sim_lock(sim->world);
    int error = sim_call(sim->world, SIM_CALL_connect);
    bool swallows = error == 0 && sim->state == SIM_CM_ROUTE_RESOLVED &&
                    sim->device->options.swallow != 0;
    if (swallows) {
        qp_take(sim, conn_param);
        sim->calling = true;
    }
    error = error == 0 && !swallows ? connect_id(sim, conn_param) : error;
    sim_unlock(sim->world);
    return sim_cm_finish(swallows ? sim_cm_swallow(sim) : error);
}

static int accept_id(struct sim_cm_id *id, const struct rdma_conn_param *param)
{
    uint8_t length = param != NULL ? param->private_data_len : 0;
    bool iwarp = sim_cm_is_iwarp(id);
    if (id->state != SIM_CM_REQUESTED || param_check(id, param) != 0 ||
        (!iwarp && length > SIM_CM_REP_DATA) || (iwarp && !sim_cm_stream_choose(id, param))) {
        return EINVAL;
    }
    depths_grant(id, param);
    qp_take(id, param);
    if (!iwarp) {
        int error = sim_cm_move_ready(id);
        if (error != 0) {
            return error;
        }
    }
    struct sim_cm_message message = message_of(id, SIM_CM_REP);
    param_fill(id, param, &message);
    (void)send_message(id->world, id->host, &id->flow, &message);
    if (iwarp) {
        sim_cm_attach(id, true);
        id->state = SIM_CM_ESTABLISHED;
        (void)sim_cm_tell(id, RDMA_CM_EVENT_ESTABLISHED, 0);
    } else {
        id->state = SIM_CM_ACCEPTED;
        patience(id);
    }
    return 0;
}

int rdma_accept(struct rdma_cm_id *id, struct rdma_conn_param *conn_param)
{
    struct sim_cm_id *sim = sim_cm_of(id);
    sim_lock(sim->world);
    int error = sim_call(sim->world, SIM_CALL_accept);
    error = error == 0 ? accept_id(sim, conn_param) : error;
    sim_unlock(sim->world);
    return sim_cm_finish(error);
}

int rdma_reject(struct rdma_cm_id *id, const void *private_data, uint8_t private_data_len)
{
    struct sim_cm_id *sim = sim_cm_of(id);
    sim_lock(sim->world);
    int error = sim_call(sim->world, SIM_CALL_reject);
    if (error == 0 && (sim->state != SIM_CM_REQUESTED ||
                       (!sim_cm_is_iwarp(sim) && private_data_len > SIM_CM_REJ_DATA))) {
        error = EINVAL;
    }
    if (error == 0) {
        send_reject(sim, SIM_CM_REJ_CONSUMER, private_data, private_data_len);
        sim->state = SIM_CM_DISCONNECTED;
    }
    sim_unlock(sim->world);
    return sim_cm_finish(error);
}

int rdma_reject_ece(struct rdma_cm_id *id, const void *private_data, uint8_t private_data_len)
{
    return rdma_reject(id, private_data, private_data_len);
}

int rdma_establish(struct rdma_cm_id *id)
{
    struct sim_cm_id *sim = sim_cm_of(id);
    sim_lock(sim->world);
    int error = sim_call(sim->world, SIM_CALL_establish);
    error = error == 0 && (id->qp != NULL || sim->state != SIM_CM_RESPONSE) ? EINVAL : error;
    if (error == 0) {
        sim->state = SIM_CM_ESTABLISHED;
        (void)send_kind(sim, SIM_CM_RTU);
    }
    sim_unlock(sim->world);
    return sim_cm_finish(error);
}

static void established(struct sim_cm_id *id)
{
    sim_cancel(id->world, &id->timer);
    id->state = SIM_CM_ESTABLISHED;
    (void)sim_cm_tell(id, RDMA_CM_EVENT_ESTABLISHED, 0);
}

/* Data came before the RTU: the program may report it (COMM_EST). */
int rdma_notify(struct rdma_cm_id *id, enum ibv_event_type event)
{
    struct sim_cm_id *sim = sim_cm_of(id);
    sim_lock(sim->world);
    bool early = event == IBV_EVENT_COMM_EST && sim->state == SIM_CM_ACCEPTED;
    if (early) {
        established(sim);
    }
    sim_unlock(sim->world);
    return sim_cm_finish(event == IBV_EVENT_COMM_EST || early ? 0 : EINVAL);
}

/* -------------------------------------------------------------------------------- disconnecting */

static int disconnect_id(struct sim_cm_id *id)
{
    if (sim_cm_is_iwarp(id)) {
        struct sim_qp *qp = id->stream;
        if (qp != NULL && qp->connected) {
            sim_qp_close_connection(qp); /* orderly: posted requests complete first */
            return 0;
        }
        return id->state == SIM_CM_DISCONNECTED ? 0 : EINVAL;
    }
    switch (id->state) {
    case SIM_CM_RESPONSE:
    case SIM_CM_ACCEPTED:
    case SIM_CM_ESTABLISHED:
        sim_cm_move_error(id);
        id->state = SIM_CM_DISCONNECTING;
        (void)send_kind(id, SIM_CM_DREQ);
        sim_schedule(id->world, &id->timer, cm_patience, no_goodbye);
        return 0;
    case SIM_CM_DREQ_RECEIVED:
        sim_cm_move_error(id);
        id->state = SIM_CM_DISCONNECTED;
        (void)send_kind(id, SIM_CM_DREP);
        sim_schedule(id->world, &id->timer, time_wait, time_wait_over);
        return 0;
    case SIM_CM_DISCONNECTING:
    case SIM_CM_DISCONNECTED:
        sim_cm_move_error(id);
        return 0;
    default:
        return EINVAL;
    }
}

int rdma_disconnect(struct rdma_cm_id *id)
{
    struct sim_cm_id *sim = sim_cm_of(id);
    sim_lock(sim->world);
    int error = sim_call(sim->world, SIM_CALL_disconnect);
    error = error == 0 ? disconnect_id(sim) : error;
    sim_unlock(sim->world);
    return sim_cm_finish(error);
}

void sim_cm_connection_end(struct sim_cm_id *id)
{
    switch (id->state) {
    case SIM_CM_REQUESTED:
        send_reject(id, SIM_CM_REJ_CONSUMER, NULL, 0);
        break;
    case SIM_CM_RESPONSE:
    case SIM_CM_ACCEPTED:
    case SIM_CM_ESTABLISHED:
        if (!sim_cm_is_iwarp(id)) {
            (void)send_kind(id, SIM_CM_DREQ);
        } else if (id->stream != NULL) {
            sim_qp_break_connection(id->stream);
        }
        break;
    case SIM_CM_DREQ_RECEIVED:
        (void)send_kind(id, SIM_CM_DREP);
        break;
    default:
        break;
    }
    if (id->listener != NULL) {
        id->listener->pending--;
    }
}

void sim_cm_broken(struct sim_qp *qp)
{
    struct sim_cm_id *id = qp->cm;
    if (id != NULL && id->state == SIM_CM_ESTABLISHED) {
        disconnected(id);
    }
}

/* -------------------------------------------------------------------------------------- arrival */

static void peer_take(struct sim_cm_id *id, const struct sim_cm_message *message)
{
    id->peer_slot = message->from_slot;
    id->peer_number = message->from;
    id->peer_qp = message->qp_num;
    id->peer_psn = message->psn;
    id->peer_gid = message->gid;
    id->peer_lid = message->lid;
}

static void request_take(struct sim_cm_id *listener, struct sim_device *device,
                         const struct sim_cm_message *message)
{
    struct sim_cm_id *id = sim_cm_id_make(sim_cm_channel_of(listener->id.channel),
                                          listener->id.context, listener->id.ps);
    if (id == NULL || !sim_cm_set_device(id, device)) {
        return;
    }
    id->passive = true;
    id->listener = listener;
    listener->pending++;
    id->state = SIM_CM_REQUESTED;
    id->id.route.addr.src_storage = message->target;
    id->id.route.addr.dst_storage = message->source;
    id->tos = id->route_tos = message->tos; /* the passive side inherits it */
    id->mtu = message->mtu;
    id->initiator_depth = message->responder_resources;
    id->responder_resources = message->initiator_depth;
    id->retry_count = message->retry_count;
    id->rnr_retry_count = message->rnr_retry_count;
    peer_take(id, message);
    struct sim_cm_entry *entry = tell_with(id, RDMA_CM_EVENT_CONNECT_REQUEST, 0, message);
    entry->owner = listener;
    entry->event.listen_id = &listener->id;
}

static void request_arrived(struct sim_world *world, const struct sim_cm_message *message)
{
    struct sim_host *host = host_of(world, message);
    if (host == NULL) {
        return;
    }
    struct sim_cm_id *listener = listener_find(host, message);
    struct sim_device *device = sim_device_with_address(host, &message->target);
    if (listener == NULL || device == NULL || device->options.link != message->link) {
        send_back(world, host, message, SIM_CM_REJ, SIM_CM_REJ_NO_SERVICE);
        return;
    }
    if (listener->pending >= listener->backlog) {
        send_back(world, host, message, SIM_CM_REJ, SIM_CM_REJ_CONSUMER);
        return;
    }
    request_take(listener, device, message);
}

static void reply_arrived(struct sim_cm_id *id, const struct sim_cm_message *message)
{
    if (id->state != SIM_CM_CONNECTING) {
        return;
    }
    sim_cancel(id->world, &id->timer);
    peer_take(id, message);
    id->initiator_depth = message->responder_resources;
    id->responder_resources = message->initiator_depth;
    id->rnr_retry_count = message->rnr_retry_count;
    if (!sim_cm_is_iwarp(id)) {
        id->state = SIM_CM_RESPONSE;
        (void)tell_with(id, RDMA_CM_EVENT_CONNECT_RESPONSE, 0, message);
        return;
    }
    if (id->stream == NULL) {
        return; /* the id was destroyed meanwhile */
    }
    sim_cm_attach(id, false);
    id->state = SIM_CM_ESTABLISHED;
    (void)tell_with(id, RDMA_CM_EVENT_ESTABLISHED, 0, message);
}

static void reject_arrived(struct sim_cm_id *id, const struct sim_cm_message *message)
{
    bool iwarp = message->link == SIM_IWARP;
    if (iwarp && id->state == SIM_CM_ESTABLISHED && id->stream != NULL) {
        struct sim_answer end = { .code = SIM_ANSWER_TERMINATE };
        sim_requester_answer(id->stream, &end, NULL);
        return;
    }
    if (id->state != SIM_CM_CONNECTING && id->state != SIM_CM_RESPONSE &&
        id->state != SIM_CM_ACCEPTED) {
        return;
    }
    sim_cancel(id->world, &id->timer);
    id->state = SIM_CM_DISCONNECTED;
    (void)tell_with(id, RDMA_CM_EVENT_REJECTED, iwarp ? -ECONNREFUSED : (int)message->reason,
                    message);
}

static void goodbye_arrived(struct sim_cm_id *id)
{
    switch (id->state) {
    case SIM_CM_RESPONSE:
    case SIM_CM_ACCEPTED:
    case SIM_CM_ESTABLISHED:
        sim_cancel(id->world, &id->timer);
        id->state = SIM_CM_DREQ_RECEIVED;
        (void)sim_cm_tell(id, RDMA_CM_EVENT_DISCONNECTED, 0);
        break;
    case SIM_CM_DISCONNECTING:
        (void)send_kind(id, SIM_CM_DREP);
        disconnected(id);
        break;
    case SIM_CM_REQUESTED:
        id->state = SIM_CM_DISCONNECTED;
        break;
    default:
        (void)send_kind(id, SIM_CM_DREP);
        break;
    }
}

static void nobody(struct sim_world *world, struct sim_host *host,
                   const struct sim_cm_message *message)
{
    if (message->kind == SIM_CM_DREQ) {
        send_back(world, host, message, SIM_CM_DREP, 0);
    } else if (message->kind == SIM_CM_REP) {
        send_back(world, host, message, SIM_CM_REJ, SIM_CM_REJ_CONSUMER);
    }
}

void sim_cm_arrived(struct sim_world *world, const struct sim_cm_message *message)
{
    sim_trace(world, SIM_TRACE_CM, message->kind, message->link);
    if (world->cut && message->from_slot != world->slot) {
        return;
    }
    if (message->kind == SIM_CM_REQ) {
        request_arrived(world, message);
        return;
    }
    struct sim_host *host = host_at(world, message->to_slot);
    if (host == NULL || host->killed) {
        return;
    }
    struct sim_cm_id *id = sim_cm_find(world, message->to_slot, message->to);
    if (id == NULL) {
        nobody(world, host, message);
        return;
    }
    switch ((enum sim_cm_kind)message->kind) {
    case SIM_CM_REP:
        reply_arrived(id, message);
        break;
    case SIM_CM_RTU:
        if (id->state == SIM_CM_ACCEPTED) {
            established(id);
        }
        break;
    case SIM_CM_REJ:
        reject_arrived(id, message);
        break;
    case SIM_CM_DREQ:
        goodbye_arrived(id);
        break;
    case SIM_CM_DREP:
        if (id->state == SIM_CM_DISCONNECTING) {
            disconnected(id);
        }
        break;
    case SIM_CM_REQ:
        break;
    }
}

/* librdmacm moves the queue pair when the program fetches the event, not when the message comes. */
void sim_cm_connection_given(struct sim_cm_id *id, struct sim_cm_entry *entry)
{
    if (entry->event.event == RDMA_CM_EVENT_REJECTED) {
        sim_cm_move_error(id);
        return;
    }
    if (entry->event.event != RDMA_CM_EVENT_CONNECT_RESPONSE || id->id.qp == NULL ||
        id->state != SIM_CM_RESPONSE) {
        return;
    }
    int error = sim_cm_move_ready(id);
    if (error != 0) {
        entry->event.event = RDMA_CM_EVENT_CONNECT_ERROR;
        entry->event.status = -error;
        send_reject(id, SIM_CM_REJ_CONSUMER, NULL, 0);
        id->state = SIM_CM_DISCONNECTED;
        return;
    }
    entry->event.event = RDMA_CM_EVENT_ESTABLISHED;
    id->state = SIM_CM_ESTABLISHED;
    (void)send_kind(id, SIM_CM_RTU);
}

/* --------------------------------------------------------------------------------------- faults */

void sim_cm_device_removed(struct sim_device *device)
{
    for (struct sim_cm_id *at = device->host->cm_ids; at != NULL; at = at->next) {
        if (at->device == device) {
            sim_cancel(at->world, &at->timer);
            (void)sim_cm_tell(at, RDMA_CM_EVENT_DEVICE_REMOVAL, 0);
        }
    }
}

/* The peer's kernel sends DREQ for its dead process. */
static void peer_gone(struct sim_cm_id *id)
{
    switch (id->state) {
    case SIM_CM_CONNECTING:
        sim_cancel(id->world, &id->timer);
        id->state = SIM_CM_DISCONNECTED;
        (void)sim_cm_tell(id, RDMA_CM_EVENT_REJECTED,
                          sim_cm_is_iwarp(id) ? -ECONNRESET : SIM_CM_REJ_CONSUMER);
        break;
    case SIM_CM_RESPONSE:
    case SIM_CM_ACCEPTED:
    case SIM_CM_ESTABLISHED:
        if (!sim_cm_is_iwarp(id)) {
            goodbye_arrived(id);
        }
        break;
    case SIM_CM_DISCONNECTING:
        disconnected(id);
        break;
    default:
        break;
    }
}

void sim_cm_slot_gone(struct sim_world *world, uint16_t slot)
{
    for (struct sim_host *host = world->hosts; host != NULL; host = host->next) {
        for (struct sim_cm_id *at = host->cm_ids; at != NULL; at = at->next) {
            if (at->peer_slot == slot) {
                peer_gone(at);
            }
        }
    }
}

static void connections_reset(struct sim_host *host, uint16_t slot)
{
    struct sim_answer end = { .code = SIM_ANSWER_TERMINATE };
    for (uint32_t i = 0; i < host->qps_room; i++) {
        struct sim_qp *qp = host->qps[i];
        if (qp != NULL && qp->connected && qp->attr.dest_qp_num >> SIM_SLOT_BITS == slot) {
            sim_requester_answer(qp, &end, NULL);
        }
    }
}

void sim_host_kill(struct sim_host *host, bool silent)
{
    struct sim_world *world = host->world;
    sim_lock(world);
    host->killed = true;
    sim_world_changed(world);
    if (!silent) {
        for (struct sim_host *at = world->hosts; at != NULL; at = at->next) {
            if (at != host) {
                connections_reset(at, host->slot);
            }
        }
        sim_cm_slot_gone(world, host->slot);
    }
    sim_unlock(world);
}

/* ---------------------------------------------------------------------------------- not offered */

int rdma_set_local_ece(struct rdma_cm_id *id, struct ibv_ece *ece)
{
    (void)id;
    (void)ece;
    return sim_cm_finish(EOPNOTSUPP);
}

int rdma_get_remote_ece(struct rdma_cm_id *id, struct ibv_ece *ece)
{
    (void)id;
    (void)ece;
    return sim_cm_finish(EOPNOTSUPP);
}
