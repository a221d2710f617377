/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * The connection manager's part in an endpoint: one id for each of its connections and for each
 * listening address, on the cq's channel (verbs/verbs_cm.h).
 */
#include "iwarp/iwarp_internal.h"
#include "verbs/verbs_completion.h"
#include "verbs/verbs_connection.h"
#include "verbs/verbs_endpoint.h"
#include "verbs/verbs_macros.h"
#include "verbs/verbs_queue.h"
#include "verbs/verbs_side.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <string.h>

enum {
    LISTEN_BACKLOG = 8,
    LISTEN_TRIES = 16, /* each with another port */
};

/* ------------------------------------------------------------------------------------------ ids */

static int create_id(struct iwarp_ep *ep, struct iwarp_id *out)
{
    out->ep = ep;
    return rdmux_verbs_cm_id_create(iwarp_cq_of_ep(ep)->base.cm_channel, &out->base);
}

/* Adapters without support for it are not a failure. The ECN bits are TCP's own. */
static void set_traffic_class(const struct iwarp_ep *ep, struct rdma_cm_id *id)
{
    uint8_t traffic_class = (uint8_t)((ep->base.attr->dscp & 0x3f) << 2);
    (void)rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &traffic_class,
                          sizeof(traffic_class));
}

/* ---------------------------------------------------------------------------------------- calls */

static struct verbs_queue *queue_of(struct iwarp_channel *channel)
{
    struct iwarp_ep *ep = channel->cm.ep;
    return channel->index == IWARP_DATA ? &ep->base.data : &ep->base.side.queue;
}

/* Makes the queue pair able to take receives; the kernel does the later transitions
 * (rdma_init_qp_attr(3)). */
static int prepare_queue(struct iwarp_channel *channel)
{
    struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT };
    int mask = 0;
    if (channel->is_prepared) {
        return 0; /* prepared by an earlier try */
    }
    if (rdma_init_qp_attr(channel->cm.base.id, &attr, &mask) != 0) {
        return errno;
    }
    /* The kernel names no access rights before it has a connection. */
    attr.qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
    mask |= IBV_QP_ACCESS_FLAGS;
    int result = ibv_modify_qp(queue_of(channel)->qp, &attr, mask);
    if (result != 0) {
        return verbs_error_of(result);
    }
    if (channel->index == IWARP_SIDE && rdmux_verbs_side_start(&channel->cm.ep->base) != RDMUX_OK) {
        return EIO;
    }
    channel->is_prepared = true;
    return 0;
}

static uint8_t smaller(uint8_t a, uint8_t b)
{
    return a < b ? a : b;
}

/* asked: reads that the peer has in flight at most. answered: reads that it answers at most. */
static struct rdma_conn_param connect_parameters(struct iwarp_channel *channel, uint8_t asked,
                                                 uint8_t answered)
{
    const struct verbs_connection *ours = &channel->cm.ep->ours.verbs;
    bool is_data = channel->index == IWARP_DATA;
    return (struct rdma_conn_param){
        .responder_resources = is_data ? smaller(ours->answers, asked) : 1,
        .initiator_depth = is_data ? smaller(ours->asks, answered) : 1,
        .qp_num = queue_of(channel)->qp->qp_num,
        .srq = is_data && channel->cm.ep->base.attr->srq != NULL,
        .retry_count = 7,
        .rnr_retry_count = 7,
    };
}

static int find_address(struct iwarp_channel *channel)
{
    struct iwarp_ep *ep = channel->cm.ep;
    const struct verbs_whereabouts *ours = &ep->ours.verbs.where;
    const struct verbs_whereabouts *theirs = &ep->theirs.verbs.where;
    struct sockaddr_storage from;
    struct sockaddr_storage to;
    size_t own = rdmux_verbs_address_of_kind(ours, ep->base.kind);
    size_t other = rdmux_verbs_address_of_kind(theirs, ep->base.kind);
    rdmux_iwarp_socket_address(ours->addresses[own].gid, 0, &from);
    rdmux_iwarp_socket_address(theirs->addresses[other].gid, ep->theirs.ports[other], &to);
    rdmux_verbs_cm_id_destroy(&channel->cm.base); /* the last try's */
    int error = create_id(ep, &channel->cm);
    if (error != 0) {
        return error;
    }
    set_traffic_class(ep, channel->cm.base.id);
    return rdma_resolve_addr(channel->cm.base.id, (struct sockaddr *)&from, (struct sockaddr *)&to,
                             IWARP_ADDRESS_MS) == 0
               ? 0
               : errno;
}

static int find_route(struct iwarp_channel *channel)
{
    const struct rdma_cm_id *id = channel->cm.base.id;
    const char *device = verbs_domain_of_ep(&channel->cm.ep->base)->device;
    if (id->verbs == NULL || strcmp(ibv_get_device_name(id->verbs->device), device) != 0) {
        return EXDEV;
    }
    return rdma_resolve_route(channel->cm.base.id, IWARP_ROUTE_MS) == 0 ? 0 : errno;
}

static int connect_channel(struct iwarp_channel *channel)
{
    struct iwarp_ep *ep = channel->cm.ep;
    int error = prepare_queue(channel);
    if (error != 0) {
        return error;
    }
    uint8_t bytes[IWARP_PRIVATE_SIZE];
    struct iwarp_private private = { .link = channel->index };
    memcpy(private.secret, ep->secret, sizeof(private.secret));
    rdmux_iwarp_private_encode(&private, bytes);
    struct rdma_conn_param param = connect_parameters(channel, ep->theirs.verbs.asks,
                                                      ep->theirs.verbs.answers);
    param.private_data = bytes;
    param.private_data_len = sizeof(bytes);
    if (rdmux_provider_may_start_threads(verbs_fabric_of_ep(&ep->base)) != 0) {
        return rdmux_iwarp_connect_thread_start(&channel->call, channel->cm.base.id, &param);
    }
    return rdma_connect(channel->cm.base.id, &param) == 0 ? 0 : errno;
}

/* Makes the call of a connector's action. Returns an errno. */
static int start_call(struct iwarp_channel *channel, enum iwarp_action action)
{
    switch (action) {
    case IWARP_ACTION_FIND_ADDRESS:
        return find_address(channel);
    case IWARP_ACTION_FIND_ROUTE:
        return find_route(channel);
    case IWARP_ACTION_CONNECT:
        return connect_channel(channel);
    default:
        return 0;
    }
}

static void fail_connect(struct iwarp_channel *channel, enum iwarp_stage at, enum iwarp_event event,
                         int error)
{
    const char *what = channel->index == IWARP_DATA ? "data" : "side channel";
    if (error == EXDEV) {
        rdmux_iwarp_connect_failed(channel->cm.ep,
                                   "the route to the peer leads over another device; check the "
                                   "routing table");
        return;
    }
    rdmux_iwarp_connect_failed(channel->cm.ep, "connection for %s: %s while %s%s%s", what,
                               rdmux_iwarp_event_text(event), rdmux_iwarp_stage_text(at),
                               error != 0 ? ": " : "", error != 0 ? strerror(error) : "");
}

static void note_step(const struct iwarp_channel *channel, enum iwarp_stage from,
                      enum iwarp_event event, int error)
{
    rdmux_provider_log(verbs_fabric_of_ep(&channel->cm.ep->base), RDMUX_LOG_DEBUG,
                       "iwarp %s: connection for %s, %s: %s%s%s",
                       verbs_domain_of_ep(&channel->cm.ep->base)->device,
                       channel->index == IWARP_DATA ? "data" : "side channel",
                       rdmux_iwarp_stage_text(from), rdmux_iwarp_event_text(event),
                       error != 0 ? ": " : "", error != 0 ? strerror(error) : "");
}

static void step_connect(struct iwarp_channel *channel, enum iwarp_event event, int error);

/* librdmacm allocates ports from its own table, which differs from the adapter's and the host's. */
/* NOLINTNEXTLINE(misc-no-recursion): calls fail a bounded number of times */
static void call_failed(struct iwarp_channel *channel, int error)
{
    bool is_taken = error == EADDRINUSE || error == EADDRNOTAVAIL;
    step_connect(channel, is_taken ? IWARP_EVENT_PORT_TAKEN : IWARP_EVENT_CALL_FAILED, error);
}

/* NOLINTNEXTLINE(misc-no-recursion): the same */
static void step_connect(struct iwarp_channel *channel, enum iwarp_event event, int error)
{
    enum iwarp_stage at = channel->link.stage;
    enum iwarp_action action = rdmux_iwarp_link_step(&channel->link, event);
    note_step(channel, at, event, error);
    switch (action) {
    case IWARP_ACTION_FIND_ADDRESS:
    case IWARP_ACTION_FIND_ROUTE:
    case IWARP_ACTION_CONNECT:
        error = start_call(channel, action);
        if (error != 0) {
            call_failed(channel, error);
        }
        break;
    case IWARP_ACTION_TELL_UP:
        rdmux_iwarp_connect_thread_finish(&channel->call);
        rdmux_iwarp_channel_up(channel->cm.ep);
        break;
    case IWARP_ACTION_TELL_END:
        rdmux_verbs_reap_all(&iwarp_cq_of_ep(channel->cm.ep)->base);
        rdmux_iwarp_channel_ended(channel->cm.ep, channel->index);
        break;
    case IWARP_ACTION_FAIL:
        fail_connect(channel, at, event, error);
        break;
    case IWARP_ACTION_ACCEPT: /* see listener_heard() */
    case IWARP_ACTION_REJECT:
    case IWARP_ACTION_NONE:
        break;
    }
}

void rdmux_iwarp_dial(struct iwarp_ep *ep)
{
    for (size_t i = 0; i < IWARP_LINKS && ep->connect_status == RDMUX_OK; i++) {
        step_connect(&ep->channels[i], IWARP_EVENT_DIAL, 0);
    }
}

void rdmux_iwarp_take_results(struct iwarp_ep *ep)
{
    for (size_t i = 0; i < IWARP_LINKS; i++) {
        int result = rdmux_iwarp_connect_thread_result(&ep->channels[i].call);
        if (result != IWARP_CONNECT_IS_RUNNING && result != 0) {
            call_failed(&ep->channels[i], result);
        }
    }
}

void rdmux_iwarp_give_up(struct iwarp_ep *ep)
{
    for (size_t i = 0; i < IWARP_LINKS; i++) {
        struct iwarp_channel *channel = &ep->channels[i];
        rdmux_iwarp_connect_thread_stop(&channel->call);
        if (channel->link.stage == IWARP_STAGE_CONNECTING && queue_of(channel)->qp != NULL) {
            rdmux_iwarp_link_end(&channel->link);
            rdmux_iwarp_deferred_destroy_leave(&iwarp_cq_of_ep(ep)->deferred, queue_of(channel),
                                               rdmux_verbs_cm_id_release(&channel->cm.base));
        }
    }
}

/* ------------------------------------------------------------------------------------ listening */

static void stop_listening(struct iwarp_ep *ep)
{
    for (size_t i = 0; i < VERBS_ADDRESSES_MAX; i++) {
        rdmux_verbs_cm_id_destroy(&ep->listeners[i].base);
    }
}

static void accept_request(struct iwarp_channel *channel, const struct verbs_cm_event *heard)
{
    struct iwarp_ep *ep = channel->cm.ep;
    rdmux_verbs_cm_id_take(&channel->cm.base, heard->id);
    int error = prepare_queue(channel);
    if (error == 0) {
        struct rdma_conn_param param = connect_parameters(channel, heard->asked, heard->answered);
        error = rdma_accept(heard->id, &param) == 0 ? 0 : errno;
    }
    if (error != 0) {
        step_connect(channel, IWARP_EVENT_CALL_FAILED, error);
    } else if (ep->channels[0].cm.base.id != NULL && ep->channels[1].cm.base.id != NULL) {
        stop_listening(ep);
    }
}

static struct iwarp_id *id_of(struct verbs_cm_id *cm)
{
    return (struct iwarp_id *)cm;
}

/* A peer has connected. Accepts it only if it knows the path's secret. */
static void listener_heard(struct verbs_cm_id *cm, const struct verbs_cm_event *heard)
{
    struct iwarp_ep *ep = id_of(cm)->ep;
    struct iwarp_private private;
    if (heard->type != RDMA_CM_EVENT_CONNECT_REQUEST) {
        return; /* concerns the listening address only; the connections report their own events */
    }
    if (rdmux_iwarp_private_decode(heard->private_data, heard->private_length, &private) ==
            RDMUX_OK &&
        rdmux_iwarp_same_secret(private.secret, ep->secret)) {
        struct iwarp_channel *channel = &ep->channels[private.link];
        if (rdmux_iwarp_link_step(&channel->link, IWARP_EVENT_REQUESTED) == IWARP_ACTION_ACCEPT) {
            accept_request(channel, heard);
            return;
        }
    }
    (void)rdma_reject(heard->id, NULL, 0);
    (void)rdma_destroy_id(heard->id);
}

static enum rdmux_status listen_at(struct iwarp_ep *ep, size_t index)
{
    struct sockaddr_storage address;
    struct iwarp_id *listener = &ep->listeners[index];
    listener->base.heard = listener_heard;
    rdmux_iwarp_socket_address(ep->ours.verbs.where.addresses[index].gid, 0, &address);
    int error = EADDRINUSE;
    for (int i = 0; i < LISTEN_TRIES && error == EADDRINUSE; i++) {
        rdmux_verbs_cm_id_destroy(&listener->base);
        error = create_id(ep, listener);
        if (error == 0) {
            set_traffic_class(ep, listener->base.id);
            if (rdma_bind_addr(listener->base.id, (struct sockaddr *)&address) != 0 ||
                rdma_listen(listener->base.id, LISTEN_BACKLOG) != 0) {
                error = errno;
            }
        }
    }
    if (error != 0) {
        rdmux_provider_error("%s port %u: cannot listen at the device's address: %s",
                             verbs_domain_of_ep(&ep->base)->device, ep->base.port, strerror(error));
        return error == ENOMEM || error == EMFILE || error == ENFILE ? RDMUX_NO_MEMORY : RDMUX_IO;
    }
    ep->ours.ports[index] = ntohs(rdma_get_src_port(listener->base.id));
    return RDMUX_OK;
}

enum rdmux_status rdmux_iwarp_listen(struct iwarp_ep *ep)
{
    enum rdmux_status status = RDMUX_OK;
    for (size_t i = 0; i < ep->ours.verbs.where.address_count && status == RDMUX_OK; i++) {
        status = listen_at(ep, i);
    }
    for (size_t i = 0; i < IWARP_LINKS && status == RDMUX_OK; i++) {
        (void)rdmux_iwarp_link_step(&ep->channels[i].link, IWARP_EVENT_AWAIT);
    }
    return status;
}

/* --------------------------------------------------------------------------------------- events */

static enum iwarp_event event_of(enum rdma_cm_event_type type)
{
    switch (type) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
        return IWARP_EVENT_ADDRESS_FOUND;
    case RDMA_CM_EVENT_ADDR_ERROR:
        return IWARP_EVENT_ADDRESS_FAILED;
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
        return IWARP_EVENT_ROUTE_FOUND;
    case RDMA_CM_EVENT_ROUTE_ERROR:
        return IWARP_EVENT_ROUTE_FAILED;
    case RDMA_CM_EVENT_ESTABLISHED:
        return IWARP_EVENT_ESTABLISHED;
    case RDMA_CM_EVENT_REJECTED:
        return IWARP_EVENT_REFUSED;
    case RDMA_CM_EVENT_UNREACHABLE:
    case RDMA_CM_EVENT_CONNECT_ERROR:
        return IWARP_EVENT_UNREACHABLE;
    case RDMA_CM_EVENT_DISCONNECTED:
        return IWARP_EVENT_DISCONNECTED;
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
        return IWARP_EVENT_DEVICE_REMOVED;
    default: /* irrelevant, or of a newer library */
        return IWARP_EVENTS;
    }
}

void rdmux_iwarp_channel_heard(struct verbs_cm_id *cm, const struct verbs_cm_event *heard)
{
    static_assert(offsetof(struct iwarp_channel, cm) == 0, "a channel begins with its id");
    enum iwarp_event event = event_of(heard->type);
    if (event != IWARP_EVENTS) {
        step_connect((struct iwarp_channel *)id_of(cm), event,
                     heard->status < 0 ? -heard->status : 0);
    }
}

void rdmux_iwarp_hang_up(struct iwarp_ep *ep)
{
    stop_listening(ep);
    for (size_t i = 0; i < IWARP_LINKS; i++) {
        rdmux_iwarp_link_end(&ep->channels[i].link);
        rdmux_verbs_cm_id_destroy(&ep->channels[i].cm.base);
    }
}
