/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * rdma:// endpoints: the peer is not rdmux. The queue pair belongs to the domain's own context. On
 * InfiniBand and RoCE its states are changed here, with attributes from the connection manager
 * (rdma_init_qp_attr(3)); on iWARP the kernel changes them. The queue pair takes receives from the
 * beginning, before the peer may send.
 */
#include "verbs/verbs_rdmacm.h"

#include "verbs/verbs_completion.h"
#include "verbs/verbs_connection.h"
#include "verbs/verbs_domain.h"
#include "verbs/verbs_endpoint.h"
#include "verbs/verbs_macros.h"
#include "verbs/verbs_state.h"
#include "verbs/verbs_timing.h"
#include "verbs/verbs_transport.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static_assert(offsetof(struct verbs_rdmacm_ep, base) == 0,
              "the container of the base relies on it");

enum {
    READS_MAX = 128, /* in either direction; the field has eight bits, and 255 is special */
    CONNECT_TRIES = 10,
    REJECTED_NO_SERVICE = 8, /* IBTA specification volume 1, 12.6.7.2: reasons to reject */
    REJECTED_BY_CONSUMER = 28,
};

static struct verbs_rdmacm_ep *rdmacm_of_ep(struct rdmux_provider_ep *ep)
{
    return (struct verbs_rdmacm_ep *)ep;
}
static struct verbs_rdmacm_ep *rdmacm_of_cm(struct verbs_cm_id *cm)
{
    const struct verbs_rdmacm_call
        *call = (struct verbs_rdmacm_call *)(void *)((char *)cm -
                                                     offsetof(struct verbs_rdmacm_call, cm));
    return call->ep;
}
static bool is_iwarp(const struct verbs_rdmacm_ep *ep)
{
    return ep->base.transport->fabric == VERBS_FABRIC_IWARP;
}
static uint8_t smaller(uint8_t a, uint8_t b)
{
    return a < b ? a : b;
}

/* ----------------------------------------------------------------------------------- queue pair */

/* Gets the connection manager's attributes for a state of the queue pair. Returns an errno. */
static int ask_manager(struct verbs_rdmacm_ep *ep, enum ibv_qp_state state,
                       struct ibv_qp_attr *attr, int *mask)
{
    *attr = (struct ibv_qp_attr){ .qp_state = state };
    *mask = 0;
    return rdma_init_qp_attr(ep->call->cm.id, attr, mask) == 0 ? 0 : errno;
}

/* Moves the queue pair to INIT, where it takes receives. Returns an errno. */
static int enter_init(struct verbs_rdmacm_ep *ep)
{
    struct ibv_qp_attr attr;
    int mask;
    int error = ask_manager(ep, IBV_QPS_INIT, &attr, &mask);
    if (error != 0) {
        return error;
    }
    /* The kernel sets no access rights before there is a connection. */
    attr.qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
    if (verbs_domain_of_ep(&ep->base)->attr.atomic_cap != IBV_ATOMIC_NONE) {
        attr.qp_access_flags |= IBV_ACCESS_REMOTE_ATOMIC;
    }
    return verbs_error_of(ibv_modify_qp(ep->base.data.qp, &attr, mask | IBV_QP_ACCESS_FLAGS));
}

static int enter_rtr(struct verbs_rdmacm_ep *ep, const struct rdma_conn_param *granted)
{
    const struct rdmux_provider_ep_attr *wish = ep->base.attr;
    struct ibv_qp_attr attr;
    int mask;
    int error = ask_manager(ep, IBV_QPS_RTR, &attr, &mask);
    if (error != 0) {
        return error;
    }
    attr.min_rnr_timer = (uint8_t)rdmux_verbs_rnr_code(wish->liveness_ms);
    mask |= IBV_QP_MIN_RNR_TIMER;
    if (granted != NULL) {
        attr.max_dest_rd_atomic = granted->responder_resources;
    }
    if (ep->base.transport->fabric == VERBS_FABRIC_ROCE) {
        attr.ah_attr.grh.traffic_class = (uint8_t)(wish->dscp << 2 | wish->ecn);
    }
    return verbs_error_of(ibv_modify_qp(ep->base.data.qp, &attr, mask));
}

static uint32_t ack_code(const struct verbs_rdmacm_ep *ep)
{
    /* The ACK delay of the peer's device is unknown; this end's is a likely value. */
    const struct ibv_device_attr *device = &verbs_domain_of_ep(&ep->base)->attr;
    return rdmux_verbs_ack_code(ep->base.attr->liveness_ms,
                                device->local_ca_ack_delay & VERBS_DELAY_CODE_MAX);
}

static int enter_rts(struct verbs_rdmacm_ep *ep, const struct rdma_conn_param *granted)
{
    struct ibv_qp_attr attr;
    int mask;
    int error = ask_manager(ep, IBV_QPS_RTS, &attr, &mask);
    if (error != 0) {
        return error;
    }
    attr.timeout = (uint8_t)ack_code(ep);
    attr.retry_cnt = VERBS_RETRY_COUNT;
    attr.rnr_retry = VERBS_RNR_RETRY;
    if (granted != NULL) {
        attr.max_rd_atomic = granted->initiator_depth;
    }
    if (attr.max_rd_atomic == 0) { /* the device would never start a read */
        ep->call->base.lacks = RDMUX_CAP_READ | RDMUX_CAP_PLACED | RDMUX_CAP_FETCH_ADD |
                               RDMUX_CAP_COMPARE_SWAP | RDMUX_CAP_ATOMIC_DEVICE;
    }
    return verbs_error_of(ibv_modify_qp(ep->base.data.qp, &attr, mask));
}

/* Moves the queue pair to RTR and RTS; does nothing on iWARP. granted: depths that this end grants;
 * NULL: those of the peer's reply. Returns an errno. */
static int ready_queue(struct verbs_rdmacm_ep *ep, const struct rdma_conn_param *granted)
{
    if (is_iwarp(ep)) {
        return 0;
    }
    int error = enter_rtr(ep, granted);
    return error != 0 ? error : enter_rts(ep, granted);
}

/* ------------------------------------------------------------------------------------- outcomes */

static void enter_stage(struct verbs_rdmacm_ep *ep, enum verbs_rdmacm_stage stage)
{
    assert(stage > ep->stage || stage == VERBS_RDMACM_OVER);
    ep->stage = stage;
}

static void connect_failed(struct verbs_rdmacm_ep *ep, enum rdmux_status status, const char *format,
                           ...) RDMUX_PRINTF(3, 4);
static void connect_failed(struct verbs_rdmacm_ep *ep, enum rdmux_status status, const char *format,
                           ...)
{
    va_list arguments;
    if (ep->status != RDMUX_OK) {
        return;
    }
    ep->status = status;
    enter_stage(ep, VERBS_RDMACM_OVER);
    va_start(arguments, format);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized) */
    (void)vsnprintf(ep->text, sizeof(ep->text), format, arguments);
    va_end(arguments);
    rdmux_provider_ready(&ep->base.base);
}

static void fail_refused(struct verbs_rdmacm_ep *ep, int error)
{
    connect_failed(ep, RDMUX_REFUSED,
                   "%s: %s; is a program listening there, on this port, and for RDMA?",
                   ep->call->base.peer_address, strerror(error));
}

static void fail_silent(struct verbs_rdmacm_ep *ep)
{
    connect_failed(ep, RDMUX_TIMED_OUT, "%s: no answer; is the host up, and rdma_cm on it?",
                   ep->call->base.peer_address);
}

static void call_failed(struct verbs_rdmacm_ep *ep, const char *what, int error)
{
    connect_failed(ep, error == ENOMEM ? RDMUX_NO_MEMORY : RDMUX_IO, "%s port %u: %s: %s",
                   verbs_domain_of_ep(&ep->base)->device, ep->base.port, what, strerror(error));
}

static void stop_connecting(struct verbs_rdmacm_ep *ep)
{
    if (ep->is_connecting) {
        ep->is_connecting = false;
        verbs_cq_of(ep->base.base.cq)->cm_connecting--;
    }
}

static void connection_made(struct verbs_rdmacm_ep *ep)
{
    const uint32_t ack = ack_code(ep);
    enter_stage(ep, VERBS_RDMACM_UP);
    rdmux_provider_ready(&ep->base.base);
    if (is_iwarp(ep)) {
        rdmux_provider_log(verbs_fabric_of_ep(&ep->base), RDMUX_LOG_DEBUG,
                           "%s %s port %u: %s to %s by rdma_cm", ep->base.transport->name,
                           verbs_domain_of_ep(&ep->base)->device, ep->base.port,
                           ep->call->base.local_address, ep->call->base.peer_address);
        return;
    }
    rdmux_provider_log(
        verbs_fabric_of_ep(&ep->base), RDMUX_LOG_DEBUG,
        "%s %s port %u: %s to %s by rdma_cm; a peer that does not answer is given up "
        "after %.3f s (timeout code %u, %d tries), at the latest after %.3f s",
        ep->base.transport->name, verbs_domain_of_ep(&ep->base)->device, ep->base.port,
        ep->call->base.local_address, ep->call->base.peer_address,
        (double)rdmux_verbs_give_up_ns(ack, VERBS_RETRY_COUNT) / 1e9, ack, VERBS_RETRY_COUNT + 1,
        (double)rdmux_verbs_give_up_longest_ns(ack, VERBS_RETRY_COUNT) / 1e9);
}

/* --------------------------------------------------------------------------------------- events */

static void keep_private_data(struct verbs_rdmacm_ep *ep, const struct verbs_cm_event *event)
{
    struct rdmux_rdmacm_call *call = &ep->call->base;
    uint32_t length = event->private_length;
    if (length > RDMUX_PRIVATE_DATA_MAX) {
        rdmux_provider_log(verbs_fabric_of_ep(&ep->base), RDMUX_LOG_WARN,
                           "rdma_cm: %s sends %u bytes of private data; the first %d are kept",
                           call->peer_address, length, RDMUX_PRIVATE_DATA_MAX);
        length = RDMUX_PRIVATE_DATA_MAX;
    }
    call->peer_private_length = length;
    memcpy(call->peer_private_data, event->private_data, length);
}

/* True if the private data is a reason: four bytes, padded with zeros where the field has a fixed
 * size. */
static bool is_reason(const struct verbs_cm_event *event)
{
    bool zeros = event->private_length >= VERBS_RDMACM_REASON_SIZE;
    for (uint32_t i = VERBS_RDMACM_REASON_SIZE; i < event->private_length && zeros; i++) {
        zeros = event->private_data[i] == 0;
    }
    return zeros;
}

static uint32_t data_length(const struct verbs_cm_event *event)
{
    uint32_t length = event->private_length;
    while (length > 0 && event->private_data[length - 1] == 0) {
        length--;
    }
    return length;
}

static void fail_rejected(struct verbs_rdmacm_ep *ep, const struct verbs_cm_event *event)
{
    const char *peer = ep->call->base.peer_address;
    bool by_program = event->status == REJECTED_BY_CONSUMER || data_length(event) > 0;
    if (by_program && data_length(event) > 0 && is_reason(event)) {
        uint32_t number = 0;
        memcpy(&number, event->private_data, sizeof(number));
        ep->call->base.reject_reason = ntohl(number);
        connect_failed(ep, RDMUX_REFUSED, "%s rejects the connection, reason %u", peer,
                       ep->call->base.reject_reason);
    } else if (by_program) {
        connect_failed(ep, RDMUX_REFUSED,
                       "%s rejects the connection, with %u bytes of private data", peer,
                       data_length(event));
    } else if (event->status == REJECTED_NO_SERVICE) {
        connect_failed(
            ep, RDMUX_REFUSED,
            "%s: nobody listens there (rdma_cm reason 8); is the program running, and on "
            "this port?",
            peer);
    } else if (event->status < 0) {
        fail_refused(ep, -event->status);
    } else {
        connect_failed(ep, RDMUX_REFUSED, "%s rejects the connection (rdma_cm reason %d)", peer,
                       event->status);
    }
}

static void connection_ended(struct verbs_rdmacm_ep *ep, const char *why)
{
    rdmux_verbs_reap_all(verbs_cq_of(ep->base.base.cq));
    if (ep->stage != VERBS_RDMACM_UP) {
        connect_failed(ep, RDMUX_PEER_GONE, "%s: %s while it was made", ep->call->base.peer_address,
                       why);
        return;
    }
    enter_stage(ep, VERBS_RDMACM_OVER);
    rdmux_verbs_fail(&ep->base, RDMUX_PEER_GONE, "%s", why);
}

static void call_answered(struct verbs_rdmacm_ep *ep, const struct verbs_cm_event *event)
{
    keep_private_data(ep, event);
    int error = ready_queue(ep, NULL);
    if (error == 0 && rdma_establish(ep->call->cm.id) != 0) {
        error = errno;
    }
    if (error != 0) {
        call_failed(ep, "the queue pair cannot be connected", error);
        return;
    }
    connection_made(ep);
}

static void event_heard(struct verbs_cm_id *cm, const struct verbs_cm_event *event)
{
    struct verbs_rdmacm_ep *ep = rdmacm_of_cm(cm);
    if (ep->stage == VERBS_RDMACM_OVER) {
        return;
    }
    switch (event->type) {
    case RDMA_CM_EVENT_CONNECT_RESPONSE:
        if (ep->stage == VERBS_RDMACM_CONNECTING) {
            call_answered(ep, event);
        }
        break;
    case RDMA_CM_EVENT_ESTABLISHED:
        if (ep->stage == VERBS_RDMACM_CONNECTING) {
            if (!ep->call->has_come) {
                keep_private_data(ep, event);
            }
            connection_made(ep);
        }
        break;
    case RDMA_CM_EVENT_REJECTED:
        fail_rejected(ep, event);
        break;
    case RDMA_CM_EVENT_UNREACHABLE:
        fail_silent(ep);
        break;
    case RDMA_CM_EVENT_CONNECT_ERROR:
        connect_failed(ep, RDMUX_IO, "%s: the connection cannot be made: %s",
                       ep->call->base.peer_address,
                       event->status < 0 ? strerror(-event->status) : "the device says no more");
        break;
    case RDMA_CM_EVENT_DISCONNECTED:
        (void)rdma_disconnect(cm->id); /* answers, so that the peer need not wait */
        connection_ended(ep, "the peer ended the connection, or is gone");
        break;
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
        connection_ended(ep, "the device was taken away");
        break;
    default: /* irrelevant, or of a later library */
        break;
    }
}

/* -------------------------------------------------------------------------------------- connect */

static struct rdma_conn_param connect_parameters(const struct verbs_rdmacm_ep *ep)
{
    const struct verbs_rdmacm_call *call = ep->call;
    const struct verbs_connection *ours = &ep->base.ours;
    bool accepts = call->has_come;
    return (struct rdma_conn_param){
        .private_data = call->base.private_length != 0 ? call->base.private_data : NULL,
        .private_data_len = (uint8_t)call->base.private_length,
        .responder_resources = accepts ? smaller(ours->answers, call->asked) : ours->answers,
        .initiator_depth = accepts ? smaller(ours->asks, call->answered) : ours->asks,
        .retry_count = VERBS_RETRY_COUNT,
        .rnr_retry_count = VERBS_RNR_RETRY,
        .srq = ep->base.attr->srq != NULL,
        .qp_num = ep->base.data.qp->qp_num,
    };
}

static void accept_peer(struct verbs_rdmacm_ep *ep)
{
    struct rdma_conn_param param = connect_parameters(ep);
    if (ep->call->is_gone) {
        connect_failed(ep, RDMUX_PEER_GONE, "%s left before it was accepted",
                       ep->call->base.peer_address);
        return;
    }
    int error = ready_queue(ep, &param);
    if (error == 0 && rdma_accept(ep->call->cm.id, &param) != 0) {
        error = errno;
    }
    if (error != 0) {
        call_failed(ep, "the connection cannot be accepted", error);
    }
}

/* Connects; tries other ports, as librdmacm tracks the used ports separately from the adapter or
 * the host. */
static void ask_peer(struct verbs_rdmacm_ep *ep)
{
    struct rdma_conn_param param = connect_parameters(ep);
    int error = rdma_connect(ep->call->cm.id, &param) == 0 ? 0 : errno;
    while ((error == EADDRINUSE || error == EADDRNOTAVAIL) && ++ep->tries < CONNECT_TRIES) {
        if (rdmux_verbs_rdmacm_redial(ep->call, ep->base.attr) != RDMUX_OK) {
            break;
        }
        error = rdma_connect(ep->call->cm.id, &param) == 0 ? 0 : errno;
    }
    if (error == ECONNREFUSED) { /* siw connects TCP within rdma_connect() */
        fail_refused(ep, error);
    } else if (error == ETIMEDOUT) {
        fail_silent(ep);
    } else if (error != 0) {
        call_failed(ep, "the peer cannot be asked for a connection", error);
    }
}

enum rdmux_status rdmux_verbs_rdmacm_ep_connect(struct rdmux_provider_ep *base, const uint8_t *peer,
                                                size_t size)
{
    struct verbs_rdmacm_ep *ep = rdmacm_of_ep(base);
    (void)peer;
    (void)size;
    if (ep->stage == VERBS_RDMACM_OPEN) {
        enter_stage(ep, VERBS_RDMACM_CONNECTING);
        ep->is_connecting = true;
        verbs_cq_of(base->cq)->cm_connecting++;
        if (ep->call->has_come) {
            accept_peer(ep);
        } else {
            ask_peer(ep);
        }
    }
    if (ep->stage == VERBS_RDMACM_CONNECTING) {
        return RDMUX_IN_PROGRESS;
    }
    stop_connecting(ep);
    if (ep->status != RDMUX_OK) {
        rdmux_provider_error("%s", ep->text);
    }
    return ep->status;
}

enum rdmux_status rdmux_verbs_rdmacm_ep_describe(struct rdmux_provider_ep *base, uint8_t *out,
                                                 size_t *size)
{
    out[0] = 0;
    *size = 0;
    rdmux_provider_error("%s: rdma_cm has the connection data",
                         rdmacm_of_ep(base)->base.transport->name);
    return RDMUX_UNSUPPORTED;
}

/* ---------------------------------------------------------------------------------- open, close */

static enum rdmux_status move_to_cq(struct verbs_rdmacm_ep *ep)
{
    struct verbs_rdmacm_call *call = ep->call;
    struct verbs_cq *cq = verbs_cq_of(ep->base.base.cq);
    call->cm.heard = event_heard;
    if (rdma_migrate_id(call->cm.id, cq->cm_channel) != 0) {
        rdmux_provider_error("rdma_cm: a connection cannot be moved: %s", strerror(errno));
        return RDMUX_IO;
    }
    rdma_destroy_event_channel(call->channel);
    call->channel = NULL;
    return RDMUX_OK;
}

static enum rdmux_status open_queue(struct verbs_rdmacm_ep *ep)
{
    const struct verbs_domain *domain = verbs_domain_of_ep(&ep->base);
    enum rdmux_status status = rdmux_verbs_describe_port(&ep->base);
    ep->base.ours.answers = verbs_read_depth(domain->attr.max_qp_rd_atom, READS_MAX);
    ep->base.ours.asks = verbs_read_depth(domain->attr.max_qp_init_rd_atom, READS_MAX);
    if (status == RDMUX_OK) {
        status = move_to_cq(ep);
    }
    int error = status == RDMUX_OK ? enter_init(ep) : 0;
    if (error != 0) {
        rdmux_provider_error("%s port %u: the queue pair does not become INIT: %s", domain->device,
                             ep->base.port, strerror(error));
        return RDMUX_IO;
    }
    return status;
}

enum rdmux_status rdmux_verbs_rdmacm_ep_open(const struct verbs_transport *transport,
                                             struct rdmux_provider_ep *base,
                                             const struct rdmux_provider_ep_attr *attr)
{
    struct verbs_rdmacm_ep *ep = rdmacm_of_ep(base);
    struct verbs_rdmacm_call *call = (struct verbs_rdmacm_call *)attr->call;
    ep->base.transport = transport;
    ep->call = call;
    enum rdmux_status status = rdmux_verbs_cm_open(verbs_cq_of(base->cq));
    if (status == RDMUX_OK) {
        status = rdmux_verbs_ep_open(base, attr);
    }
    if (status != RDMUX_OK) {
        rdmux_verbs_rdmacm_call_free(call);
        return status;
    }
    call->ep = ep;
    status = open_queue(ep);
    if (status != RDMUX_OK) {
        rdmux_verbs_rdmacm_ep_close(base);
        return status;
    }
    rdmux_verbs_ep_enter(&ep->base, VERBS_EP_CONNECTED); /* it takes receives */
    return RDMUX_OK;
}

void rdmux_verbs_rdmacm_ep_close(struct rdmux_provider_ep *base)
{
    struct verbs_rdmacm_ep *ep = rdmacm_of_ep(base);
    stop_connecting(ep);
    /* A request that was not accepted is rejected. */
    bool rejects = ep->call->has_come && ep->stage == VERBS_RDMACM_OPEN;
    enter_stage(ep, VERBS_RDMACM_OVER);
    rdmux_verbs_ep_close(base);
    if (rejects) {
        ep->call->ep = NULL;
    }
    rdmux_verbs_rdmacm_call_free(ep->call);
}

void rdmux_verbs_rdmacm_hang_up(struct rdmux_provider_ep *base)
{
    struct verbs_rdmacm_ep *ep = rdmacm_of_ep(base);
    ep->has_hung_up = true;
    if (rdma_disconnect(ep->call->cm.id) != 0) {
        rdmux_verbs_fail(&ep->base, RDMUX_PEER_GONE, "the connection had ended");
    }
}
