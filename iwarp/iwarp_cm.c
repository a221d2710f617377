/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * The connection manager: one event channel for each cq, an id for each connection and for each
 * address that is listened at. The queue pairs are of the domain's own context, not of librdmacm's,
 * which a whole process shares, events included; so connecting names them by number, and the id has
 * none (rdma_connect(3)).
 *
 * An event is copied and acknowledged before anything follows from it: an id cannot be destroyed while
 * one of its events is not acknowledged.
 */
#include "iwarp/iwarp_internal.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

static_assert(offsetof(struct iwarp_cq, base) == 0, "iwarp_cq_of() relies on it");

enum {
    LISTEN_BACKLOG = 8,
    TICK_NS = 10000000,
    LISTEN_TRIES = 16, /* with another port each */
    EVENTS_MAX = 64,   /* taken at a time */
};

/* ------------------------------------------------------------------------------------------- cq */

enum rdmux_status rdmux_iwarp_cq_open(struct rdmux_provider_cq *base, uint32_t depth)
{
    struct iwarp_cq *cq = iwarp_cq_of(base);
    enum rdmux_status status = rdmux_verbs_cq_open(base, depth);
    if (status != RDMUX_OK) {
        return status;
    }
    cq->channel = rdma_create_event_channel();
    if (cq->channel == NULL) {
        rdmux_provider_error("iwarp: no event channel of the connection manager: %s; is "
                             "/dev/infiniband/rdma_cm there (modprobe rdma_ucm), and this user "
                             "allowed to open it?",
                             strerror(errno));
        status = errno == EMFILE || errno == ENFILE || errno == ENOMEM ? RDMUX_NO_MEMORY : RDMUX_IO;
        goto close;
    }
    cq->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (cq->timer < 0) {
        rdmux_provider_error("iwarp: no descriptor for a timer: %s; raise ulimit -n",
                             strerror(errno));
        status = RDMUX_NO_MEMORY;
        goto destroy_channel;
    }
    int flags = fcntl(cq->channel->fd, F_GETFL);
    struct epoll_event event = { .events = EPOLLIN };
    if (flags < 0 || fcntl(cq->channel->fd, F_SETFL, flags | O_NONBLOCK) != 0 ||
        epoll_ctl(cq->base.epoll, EPOLL_CTL_ADD, cq->channel->fd, &event) != 0 ||
        epoll_ctl(cq->base.epoll, EPOLL_CTL_ADD, cq->timer, &event) != 0) {
        rdmux_provider_error("iwarp: the connection manager's events cannot be waited for: %s",
                             strerror(errno));
        status = RDMUX_IO;
        goto close_timer;
    }
    return RDMUX_OK;

close_timer:
    (void)close(cq->timer);
destroy_channel:
    rdma_destroy_event_channel(cq->channel);
close:
    rdmux_verbs_cq_close(base);
    return status;
}

void rdmux_iwarp_cq_close(struct rdmux_provider_cq *base)
{
    struct iwarp_cq *cq = iwarp_cq_of(base);
    (void)close(cq->timer);
    rdma_destroy_event_channel(cq->channel);
    rdmux_verbs_cq_close(base);
}

void rdmux_iwarp_run_timer(struct iwarp_cq *cq, bool runs)
{
    const struct timespec period = { .tv_nsec = runs ? TICK_NS : 0 };
    const struct itimerspec setting = { .it_interval = period, .it_value = period };
    (void)timerfd_settime(cq->timer, 0, &setting, NULL); /* of a timer of ours, to a valid time */
}

/* ------------------------------------------------------------------------------------------ ids */

static int create_id(struct iwarp_ep *ep, struct iwarp_id *out)
{
    if (rdma_create_id(iwarp_cq_of_ep(ep)->channel, &out->id, out, RDMA_PS_TCP) != 0) {
        out->id = NULL;
        return errno;
    }
    out->ep = ep;
    return 0;
}

static void destroy_id(struct iwarp_id *cm)
{
    if (cm->id != NULL) {
        (void)rdma_destroy_id(cm->id);
        cm->id = NULL;
    }
}

/* On adapters that honour it; ECN bits are TCP's own. An adapter that does not is no failure. */
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
    return channel->index == IWARP_DATA ? &ep->base.data : &ep->base.side;
}

/* The queue pair becomes able to take receives; the kernel does the rest (rdma_init_qp_attr(3)). */
static int prepare_queue(struct iwarp_channel *channel)
{
    struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT };
    int mask = 0;
    if (channel->is_prepared) {
        return 0; /* for another try */
    }
    if (rdma_init_qp_attr(channel->cm.id, &attr, &mask) != 0) {
        return errno;
    }
    /* The kernel names no rights before it has a connection. */
    attr.qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
    mask |= IBV_QP_ACCESS_FLAGS;
    int result = ibv_modify_qp(queue_of(channel)->qp, &attr, mask);
    if (result != 0) {
        return result < 0 ? -result : result;
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

/* asked, answered: reads that the peer has under way at most, and answers. */
static struct rdma_conn_param parameters(struct iwarp_channel *channel, uint8_t asked,
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
    destroy_id(&channel->cm); /* of the last try */
    int error = create_id(ep, &channel->cm);
    if (error != 0) {
        return error;
    }
    set_traffic_class(ep, channel->cm.id);
    return rdma_resolve_addr(channel->cm.id, (struct sockaddr *)&from, (struct sockaddr *)&to,
                             IWARP_ADDRESS_MS) == 0
               ? 0
               : errno;
}

static int find_route(struct iwarp_channel *channel)
{
    const struct rdma_cm_id *id = channel->cm.id;
    const char *device = verbs_domain_of_ep(&channel->cm.ep->base)->device;
    if (id->verbs == NULL || strcmp(ibv_get_device_name(id->verbs->device), device) != 0) {
        return EXDEV;
    }
    return rdma_resolve_route(channel->cm.id, IWARP_ROUTE_MS) == 0 ? 0 : errno;
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
    struct rdma_conn_param param = parameters(channel, ep->theirs.verbs.asks,
                                              ep->theirs.verbs.answers);
    param.private_data = bytes;
    param.private_data_len = sizeof(bytes);
    return rdma_connect(channel->cm.id, &param) == 0 ? 0 : errno;
}

/* What an action of the connector's calls. Returns an errno. */
static int call(struct iwarp_channel *channel, enum iwarp_action action)
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

static void fail(struct iwarp_channel *channel, enum iwarp_stage at, enum iwarp_event event,
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

/* What has come belongs to the program, and a completion may say why the connection has ended. */
static void reap(struct iwarp_cq *cq)
{
    enum { ROUNDS = 256, BUDGET = 64 };
    for (int i = 0; i < ROUNDS && rdmux_verbs_reap(&cq->base, BUDGET) != 0; i++) {
    }
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

/* Not deep: calls fail a bounded number of times. */
/* NOLINTNEXTLINE(misc-no-recursion) */
static void step(struct iwarp_channel *channel, enum iwarp_event event, int error)
{
    enum iwarp_stage at = channel->link.stage;
    enum iwarp_action action = rdmux_iwarp_link_step(&channel->link, event);
    note_step(channel, at, event, error);
    switch (action) {
    case IWARP_ACTION_FIND_ADDRESS:
    case IWARP_ACTION_FIND_ROUTE:
    case IWARP_ACTION_CONNECT:
        error = call(channel, action);
        if (error != 0) {
            /* librdmacm takes ports from a book of its own; the adapter's, or the host's, differs. */
            bool is_taken = error == EADDRINUSE || error == EADDRNOTAVAIL;
            step(channel, is_taken ? IWARP_EVENT_PORT_TAKEN : IWARP_EVENT_CALL_FAILED, error);
        }
        break;
    case IWARP_ACTION_TELL_UP:
        rdmux_iwarp_channel_up(channel->cm.ep);
        break;
    case IWARP_ACTION_TELL_END:
        reap(iwarp_cq_of_ep(channel->cm.ep));
        rdmux_iwarp_is_over(channel->cm.ep, channel->index);
        break;
    case IWARP_ACTION_FAIL:
        fail(channel, at, event, error);
        break;
    case IWARP_ACTION_ACCEPT: /* see take_request() */
    case IWARP_ACTION_REJECT:
    case IWARP_ACTION_NONE:
        break;
    }
}

void rdmux_iwarp_dial(struct iwarp_ep *ep)
{
    for (size_t i = 0; i < IWARP_LINKS && ep->connect_status == RDMUX_OK; i++) {
        step(&ep->channels[i], IWARP_EVENT_DIAL, 0);
    }
}

/* ------------------------------------------------------------------------------------ listening */

static enum rdmux_status listen_at(struct iwarp_ep *ep, size_t index)
{
    struct sockaddr_storage address;
    struct iwarp_id *listener = &ep->listeners[index];
    rdmux_iwarp_socket_address(ep->ours.verbs.where.addresses[index].gid, 0, &address);
    int error = EADDRINUSE;
    for (int i = 0; i < LISTEN_TRIES && error == EADDRINUSE; i++) {
        destroy_id(listener);
        error = create_id(ep, listener);
        if (error == 0) {
            set_traffic_class(ep, listener->id);
            if (rdma_bind_addr(listener->id, (struct sockaddr *)&address) != 0 ||
                rdma_listen(listener->id, LISTEN_BACKLOG) != 0) {
                error = errno;
            }
        }
    }
    if (error != 0) {
        rdmux_provider_error("%s port %u: nobody can be awaited at the device's address: %s",
                             verbs_domain_of_ep(&ep->base)->device, ep->base.port, strerror(error));
        return error == ENOMEM || error == EMFILE || error == ENFILE ? RDMUX_NO_MEMORY : RDMUX_IO;
    }
    ep->ours.ports[index] = ntohs(rdma_get_src_port(listener->id));
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

void rdmux_iwarp_stop_listening(struct iwarp_ep *ep)
{
    for (size_t i = 0; i < VERBS_ADDRESSES_MAX; i++) {
        destroy_id(&ep->listeners[i]);
    }
}

/* --------------------------------------------------------------------------------------- events */

/* What is kept of an event once it is acknowledged. */
struct heard {
    enum rdma_cm_event_type type;
    int status;
    struct rdma_cm_id *id;
    struct rdma_cm_id *listen_id;
    uint8_t asked;
    uint8_t answered;
    bool is_ours; /* a request whose private data makes sense */
    struct iwarp_private private;
};

static void note(const struct rdma_cm_event *event, struct heard *out)
{
    const struct rdma_conn_param *conn = &event->param.conn;
    *out = (struct heard){
        .type = event->event,
        .status = event->status,
        .id = event->id,
        .listen_id = event->listen_id,
        .asked = conn->responder_resources,
        .answered = conn->initiator_depth,
    };
    if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST && conn->private_data != NULL) {
        out->is_ours = rdmux_iwarp_private_decode(conn->private_data, conn->private_data_len,
                                                  &out->private) == RDMUX_OK;
    }
}

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
    default: /* of no concern, or of a later library */
        return IWARP_EVENTS;
    }
}

static void accept_request(struct iwarp_channel *channel, const struct heard *heard)
{
    struct iwarp_ep *ep = channel->cm.ep;
    channel->cm.id = heard->id;
    heard->id->context = &channel->cm;
    int error = prepare_queue(channel);
    if (error == 0) {
        struct rdma_conn_param param = parameters(channel, heard->asked, heard->answered);
        error = rdma_accept(heard->id, &param) == 0 ? 0 : errno;
    }
    if (error != 0) {
        step(channel, IWARP_EVENT_CALL_FAILED, error);
    } else if (ep->channels[0].cm.id != NULL && ep->channels[1].cm.id != NULL) {
        rdmux_iwarp_stop_listening(ep);
    }
}

/* Somebody has come. Only who knows the path's secret may stay. */
static void take_request(const struct heard *heard)
{
    const struct iwarp_id *listener = heard->listen_id->context;
    struct iwarp_ep *ep = listener->ep;
    if (heard->is_ours && rdmux_iwarp_same_secret(heard->private.secret, ep->secret)) {
        struct iwarp_channel *channel = &ep->channels[heard->private.link];
        if (rdmux_iwarp_link_step(&channel->link, IWARP_EVENT_REQUESTED) == IWARP_ACTION_ACCEPT) {
            accept_request(channel, heard);
            return;
        }
    }
    (void)rdma_reject(heard->id, NULL, 0);
    (void)rdma_destroy_id(heard->id);
}

static void take_event(const struct heard *heard)
{
    if (heard->type == RDMA_CM_EVENT_CONNECT_REQUEST) {
        take_request(heard);
        return;
    }
    const struct iwarp_id *cm = heard->id->context;
    enum iwarp_event event = event_of(heard->type);
    for (size_t i = 0; i < IWARP_LINKS && event != IWARP_EVENTS; i++) {
        if (cm == &cm->ep->channels[i].cm) {
            step(&cm->ep->channels[i], event, heard->status < 0 ? -heard->status : 0);
            break;
        }
    }
}

size_t rdmux_iwarp_take_events(struct iwarp_cq *cq)
{
    size_t count = 0;
    struct rdma_cm_event *event = NULL;
    while (count < EVENTS_MAX && rdma_get_cm_event(cq->channel, &event) == 0) {
        struct heard heard;
        note(event, &heard);
        (void)rdma_ack_cm_event(event);
        take_event(&heard);
        count++;
    }
    uint64_t ticks = 0;
    if (cq->connecting != NULL && read(cq->timer, &ticks, sizeof(ticks)) > 0) {
        rdmux_iwarp_tick(cq);
        count++;
    }
    return count;
}

void rdmux_iwarp_hang_up(struct iwarp_ep *ep)
{
    rdmux_iwarp_stop_listening(ep);
    for (size_t i = 0; i < IWARP_LINKS; i++) {
        ep->channels[i].link.stage = IWARP_STAGE_OVER;
        destroy_id(&ep->channels[i].cm);
    }
}
