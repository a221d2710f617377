/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Connections of rdma:// endpoints before they have an endpoint: resolving the path, listening,
 * waiting requests.
 *
 * The id of a request begins on its listener's channel. It moves to a channel of its own when the
 * request is taken, so that the listener may be closed, and from there to its cq's channel. Unread
 * events move along.
 */
#include "verbs/verbs_completion.h"
#include "verbs/verbs_connection.h"
#include "verbs/verbs_device.h"
#include "verbs/verbs_rdmacm.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

static_assert(offsetof(struct verbs_rdmacm_call, base) == 0, "call_of() relies on it");

enum {
    /* An address missing in the neighbour table is resolved late if the reply overtakes the
     * bookkeeping of the request, so short tries work better than one long one. */
    ADDRESS_MS = 200,
    LISTEN_TRIES = 16, /* each with another port, if the address has none */
};

struct verbs_rdmacm_listener {
    struct rdmux_rdmacm_listener base;
    verbs_rdmacm_ops_fn *ops_of; /* for its calls */
    struct verbs_cm_id cm;
    struct rdma_event_channel *channel;
    struct verbs_rdmacm_call *news; /* calls that next has not reported yet, oldest first */
    struct verbs_rdmacm_call *news_last;
};

static struct verbs_rdmacm_call *call_of(struct rdmux_rdmacm_call *base)
{
    return (struct verbs_rdmacm_call *)base;
}
static struct verbs_rdmacm_call *call_of_cm(struct verbs_cm_id *cm)
{
    return (struct verbs_rdmacm_call *)(void *)((char *)cm - offsetof(struct verbs_rdmacm_call, cm));
}
static struct verbs_rdmacm_listener *listener_of_cm(struct verbs_cm_id *cm)
{
    return (struct verbs_rdmacm_listener *)(void *)((char *)cm -
                                                    offsetof(struct verbs_rdmacm_listener, cm));
}
static struct verbs_rdmacm_listener *listener_of(struct rdmux_rdmacm_listener *base)
{
    return (struct verbs_rdmacm_listener *)base;
}

/* -------------------------------------------------------------------------------------- places */

static void print_address(const struct sockaddr *address, char out[RDMUX_ADDRESS_MAX])
{
    char host[NI_MAXHOST];
    char port[NI_MAXSERV];
    socklen_t size = address->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
                                                    : sizeof(struct sockaddr_in);
    if (getnameinfo(address, size, host, sizeof(host), port, sizeof(port),
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
        (void)snprintf(out, RDMUX_ADDRESS_MAX, "?");
        return;
    }
    (void)snprintf(out, RDMUX_ADDRESS_MAX,
                   address->sa_family == AF_INET6 ? "[%.96s]:%.8s" : "%.96s:%.8s", host, port);
}

/* Stores the device and addresses of the id. False: its fabric is unknown. */
static bool find_place(struct verbs_rdmacm_call *call)
{
    struct rdma_cm_id *id = call->cm.id;
    struct rdmux_rdmacm_place *place = &call->base.place;
    struct ibv_port_attr port;
    if (id->verbs == NULL || ibv_query_port(id->verbs, id->port_num, &port) != 0) {
        return false;
    }
    call->fabric = rdmux_verbs_fabric_of(id->verbs->device->transport_type, port.link_layer);
    call->base.ops = call->ops_of(call->fabric);
    if (call->base.ops == NULL) {
        return false;
    }
    (void)snprintf(place->provider, sizeof(place->provider), "%s", call->base.ops->endpoints->name);
    (void)snprintf(place->device, sizeof(place->device), "%s",
                   ibv_get_device_name(id->verbs->device));
    place->port = id->port_num;
    print_address(rdma_get_local_addr(id), call->base.local_address);
    print_address(rdma_get_peer_addr(id), call->base.peer_address);
    return true;
}

/* ----------------------------------------------------------------------------- path resolution */

static void way_heard(struct verbs_cm_id *cm, const struct verbs_cm_event *event)
{
    struct verbs_rdmacm_call *call = call_of_cm(cm);
    call->is_heard = true;
    call->heard = event->type;
    call->heard_status = event->status;
}

/* Waits for an event. Returns an errno. */
static int await_event(struct verbs_rdmacm_call *call, uint64_t until_ns)
{
    for (;;) {
        (void)rdmux_verbs_cm_take_events(call->channel);
        uint64_t now_ns = rdmux_provider_now_ns(call->base.fabric);
        if (call->is_heard) {
            return 0;
        }
        if (now_ns >= until_ns) {
            return ETIMEDOUT;
        }
        struct pollfd look = { .fd = call->channel->fd, .events = POLLIN };
        if (poll(&look, 1, (int)((until_ns - now_ns) / 1000000 + 1)) < 0 && errno != EINTR) {
            return errno;
        }
    }
}

/* Returns the outcome of a librdmacm call as an errno. */
static int outcome_of(struct verbs_rdmacm_call *call, int result, enum rdma_cm_event_type good,
                      uint64_t until_ns)
{
    if (result != 0) {
        return errno;
    }
    int error = await_event(call, until_ns);
    if (error != 0 || call->heard == good) {
        return error;
    }
    return call->heard_status < 0 ? -call->heard_status : EHOSTUNREACH;
}

static uint32_t ms_until(const struct verbs_rdmacm_call *call, uint64_t until_ns)
{
    uint64_t now_ns = rdmux_provider_now_ns(call->base.fabric);
    return now_ns >= until_ns ? 1 : (uint32_t)((until_ns - now_ns) / 1000000 + 1);
}

static int try_address(struct verbs_rdmacm_call *call, const struct rdmux_rdmacm_wish *wish,
                       uint64_t until_ns)
{
    rdmux_verbs_cm_id_destroy(&call->cm); /* the previous try's id */
    int error = rdmux_verbs_cm_id_create(call->channel, &call->cm);
    if (error != 0) {
        return error;
    }
    uint32_t left_ms = ms_until(call, until_ns);
    call->is_heard = false;
    int result = rdma_resolve_addr(call->cm.id, (struct sockaddr *)(uintptr_t)wish->local,
                                   (struct sockaddr *)(uintptr_t)wish->peer,
                                   left_ms < ADDRESS_MS ? (int)left_ms : ADDRESS_MS);
    return outcome_of(call, result, RDMA_CM_EVENT_ADDR_RESOLVED,
                      until_ns + (uint64_t)ADDRESS_MS * 1000000);
}

static int find_address(struct verbs_rdmacm_call *call, const struct rdmux_rdmacm_wish *wish,
                        uint64_t until_ns)
{
    int error = ETIMEDOUT;
    do {
        error = try_address(call, wish, until_ns);
    } while (error == ETIMEDOUT && rdmux_provider_now_ns(call->base.fabric) < until_ns);
    return error;
}

/* Sets the traffic class. RoCE uses the whole byte; the ECN bits of an iWARP stream are TCP's own.
 * An adapter that does not take the option is no failure. */
static void set_traffic_class(const struct verbs_rdmacm_call *call, uint32_t dscp, uint32_t ecn)
{
    uint8_t byte = (uint8_t)(dscp << 2);
    if (call->fabric == VERBS_FABRIC_IB) {
        return;
    }
    if (call->fabric == VERBS_FABRIC_ROCE) {
        byte = (uint8_t)(byte | ecn);
    }
    (void)rdma_set_option(call->cm.id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &byte, sizeof(byte));
}

static int find_route(struct verbs_rdmacm_call *call, const struct rdmux_rdmacm_wish *wish,
                      uint64_t until_ns)
{
    set_traffic_class(call, wish->dscp, wish->ecn);
    call->is_heard = false;
    int result = rdma_resolve_route(call->cm.id, (int)ms_until(call, until_ns));
    return outcome_of(call, result, RDMA_CM_EVENT_ROUTE_RESOLVED, until_ns);
}

static enum rdmux_status say_no_way(const struct rdmux_rdmacm_wish *wish, const char *what,
                                    int error)
{
    char peer[RDMUX_ADDRESS_MAX];
    print_address(wish->peer, peer);
    switch (error) {
    case ENOMEM:
    case EMFILE:
    case ENFILE:
        rdmux_provider_error("rdma_cm: %s: %s: %s", peer, what, strerror(error));
        return RDMUX_NO_MEMORY;
    case ETIMEDOUT:
        rdmux_provider_error("rdma_cm: %s: %s: no answer in %u ms; is the host up, and its address "
                             "right?",
                             peer, what, wish->timeout_ms);
        return RDMUX_TIMED_OUT;
    default:
        rdmux_provider_error("rdma_cm: no RDMA device leads to %s: %s: %s; give an address that is "
                             "on the network of an RDMA device (rdmux info lists them)",
                             peer, what, strerror(error));
        return RDMUX_NO_PATH;
    }
}

static enum rdmux_status find_way(struct verbs_rdmacm_call *call,
                                  const struct rdmux_rdmacm_wish *wish)
{
    uint64_t until_ns = rdmux_provider_now_ns(call->base.fabric) +
                        (uint64_t)wish->timeout_ms * 1000000;
    call->cm.heard = way_heard;
    int error = find_address(call, wish, until_ns);
    if (error != 0) {
        return say_no_way(wish, "finding its address", error);
    }
    if (!find_place(call)) {
        return say_no_way(wish, "its device is of no fabric that rdmux knows", ENODEV);
    }
    error = find_route(call, wish, until_ns);
    if (error != 0) {
        return say_no_way(wish, "finding the route", error);
    }
    return RDMUX_OK;
}

/* Opens a channel. Without the connection manager there is no path. */
static enum rdmux_status open_channel(struct rdma_event_channel **out)
{
    enum rdmux_status status = rdmux_verbs_cm_channel_open("rdma_cm", out);
    return status == RDMUX_IO ? RDMUX_NO_PATH : status;
}

enum rdmux_status rdmux_verbs_rdmacm_dial(struct rdmux_fabric *fabric,
                                          const struct rdmux_rdmacm_wish *wish,
                                          verbs_rdmacm_ops_fn *ops_of,
                                          struct rdmux_rdmacm_call **out)
{
    struct verbs_rdmacm_call *call = rdmux_provider_allocate(fabric, sizeof(*call));
    if (call == NULL) {
        rdmux_provider_error("rdma_cm: out of memory");
        return RDMUX_NO_MEMORY;
    }
    call->base.fabric = fabric;
    call->ops_of = ops_of;
    enum rdmux_status status = open_channel(&call->channel);
    if (status == RDMUX_OK) {
        status = find_way(call, wish);
    }
    if (status != RDMUX_OK) {
        rdmux_verbs_rdmacm_call_free(call);
        return status;
    }
    *out = &call->base;
    return RDMUX_OK;
}

enum rdmux_status rdmux_verbs_rdmacm_redial(struct verbs_rdmacm_call *call,
                                            const struct rdmux_provider_ep_attr *attr)
{
    struct sockaddr_storage peer;
    struct sockaddr_storage local;
    struct verbs_rdmacm_ep *ep = call->ep;
    enum { REDIAL_MS = 500 };
    memcpy(&peer, rdma_get_peer_addr(call->cm.id), sizeof(peer));
    memcpy(&local, rdma_get_local_addr(call->cm.id), sizeof(local));
    /* The port is the second field in both families. */
    ((struct sockaddr_in *)&local)->sin_port = 0;
    const struct rdmux_rdmacm_wish wish = {
        .peer = (const struct sockaddr *)&peer,
        .local = (const struct sockaddr *)&local,
        .timeout_ms = REDIAL_MS,
        .dscp = attr->dscp,
        .ecn = attr->ecn,
    };
    enum rdmux_status status = open_channel(&call->channel);
    if (status != RDMUX_OK) {
        return status;
    }
    void (*heard)(struct verbs_cm_id *, const struct verbs_cm_event *) = call->cm.heard;
    status = find_way(call, &wish);
    call->cm.heard = heard;
    if (status == RDMUX_OK) {
        struct rdma_event_channel *channel = verbs_cq_of(ep->base.base.cq)->cm_channel;
        if (rdma_migrate_id(call->cm.id, channel) != 0) {
            rdmux_provider_error("rdma_cm: a connection cannot be moved: %s", strerror(errno));
            status = RDMUX_IO;
        }
    }
    if (status != RDMUX_OK) {
        rdmux_verbs_cm_id_destroy(&call->cm); /* an id goes before its channel */
    }
    rdma_destroy_event_channel(call->channel);
    call->channel = NULL;
    return status;
}

/* ------------------------------------------------------------------------------------ listening */

static void append_news(struct verbs_rdmacm_listener *listener, struct verbs_rdmacm_call *call)
{
    call->news_next = NULL;
    if (listener->news == NULL) {
        listener->news = call;
    } else {
        listener->news_last->news_next = call;
    }
    listener->news_last = call;
}

static bool is_news(const struct verbs_rdmacm_listener *listener,
                    const struct verbs_rdmacm_call *call)
{
    const struct verbs_rdmacm_call *at = listener->news;
    while (at != NULL && at != call) {
        at = at->news_next;
    }
    return at != NULL;
}

static void forget_news(struct verbs_rdmacm_listener *listener, const struct verbs_rdmacm_call *call)
{
    struct verbs_rdmacm_call *left = listener->news;
    listener->news = NULL;
    while (left != NULL) {
        struct verbs_rdmacm_call *next = left->news_next;
        if (left != call) {
            append_news(listener, left);
        }
        left = next;
    }
}

static bool ends_it(enum rdma_cm_event_type type)
{
    switch (type) {
    case RDMA_CM_EVENT_CONNECT_ERROR:
    case RDMA_CM_EVENT_UNREACHABLE:
    case RDMA_CM_EVENT_REJECTED:
    case RDMA_CM_EVENT_DISCONNECTED:
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
        return true;
    default:
        return false;
    }
}

/* Handles events of a waiting request. */
static void request_heard(struct verbs_cm_id *cm, const struct verbs_cm_event *event)
{
    struct verbs_rdmacm_call *call = call_of_cm(cm);
    if (!ends_it(event->type) || call->is_gone) {
        return;
    }
    call->is_gone = true;
    if (call->listener != NULL && !is_news(call->listener, call)) {
        append_news(call->listener, call);
    }
}

static void note_private_data(struct verbs_rdmacm_call *call, const struct verbs_cm_event *event)
{
    uint32_t length = event->private_length;
    if (length > RDMUX_PRIVATE_DATA_MAX) {
        rdmux_provider_log(call->base.fabric, RDMUX_LOG_WARN,
                           "rdma_cm: %s sends %u bytes of private data; the first %d are kept",
                           call->base.peer_address, length, RDMUX_PRIVATE_DATA_MAX);
        length = RDMUX_PRIVATE_DATA_MAX;
    }
    call->base.peer_private_length = length;
    memcpy(call->base.peer_private_data, event->private_data, length);
}

static void listener_heard(struct verbs_cm_id *cm, const struct verbs_cm_event *event)
{
    struct verbs_rdmacm_listener *listener = listener_of_cm(cm);
    struct rdmux_fabric *fabric = listener->base.fabric;
    if (event->type != RDMA_CM_EVENT_CONNECT_REQUEST) {
        rdmux_provider_log(fabric, RDMUX_LOG_WARN, "rdma_cm: listener %s: %s",
                           listener->base.address, rdma_event_str(event->type));
        return;
    }
    struct verbs_rdmacm_call *call = rdmux_provider_allocate(fabric, sizeof(*call));
    if (call == NULL) {
        (void)rdma_reject(event->id, NULL, 0);
        (void)rdma_destroy_id(event->id);
        return;
    }
    call->base.fabric = fabric;
    call->ops_of = listener->ops_of;
    call->listener = listener;
    call->has_come = true;
    call->asked = event->asked;
    call->answered = event->answered;
    call->cm.heard = request_heard;
    rdmux_verbs_cm_id_take(&call->cm, event->id);
    if (!find_place(call)) {
        rdmux_verbs_rdmacm_call_free(call);
        return;
    }
    note_private_data(call, event);
    append_news(listener, call);
}

static int bind_and_listen(struct verbs_rdmacm_listener *listener, const struct sockaddr *address,
                           uint32_t backlog)
{
    rdmux_verbs_cm_id_destroy(&listener->cm);
    int error = rdmux_verbs_cm_id_create(listener->channel, &listener->cm);
    if (error != 0) {
        return error;
    }
    if (rdma_bind_addr(listener->cm.id, (struct sockaddr *)(uintptr_t)address) != 0 ||
        rdma_listen(listener->cm.id, (int)backlog) != 0) {
        return errno;
    }
    return 0;
}

static bool any_port_will_do(const struct sockaddr *address)
{
    return ((const struct sockaddr_in *)(const void *)address)->sin_port == 0;
}

static enum rdmux_status say_not_listening(const struct sockaddr *address, int error)
{
    char text[RDMUX_ADDRESS_MAX];
    print_address(address, text);
    switch (error) {
    case ENODEV:
        rdmux_provider_error("rdma_cm: %s is no address of an RDMA device; rdmux info lists them",
                             text);
        return RDMUX_NO_PATH;
    case EADDRINUSE:
        rdmux_provider_error("rdma_cm: %s is in use by another program; choose another port, or 0",
                             text);
        return RDMUX_IO;
    case EADDRNOTAVAIL:
        rdmux_provider_error("rdma_cm: %s is not an address of this machine", text);
        return RDMUX_IO;
    default:
        rdmux_provider_error("rdma_cm: %s cannot be listened at: %s", text, strerror(error));
        return error == ENOMEM || error == EMFILE || error == ENFILE ? RDMUX_NO_MEMORY : RDMUX_IO;
    }
}

enum rdmux_status rdmux_verbs_rdmacm_listen(struct rdmux_fabric *fabric,
                                            const struct sockaddr *address, uint32_t backlog,
                                            verbs_rdmacm_ops_fn *ops_of,
                                            struct rdmux_rdmacm_listener **out)
{
    struct verbs_rdmacm_listener *listener = rdmux_provider_allocate(fabric, sizeof(*listener));
    if (listener == NULL) {
        rdmux_provider_error("rdma_cm: out of memory");
        return RDMUX_NO_MEMORY;
    }
    listener->ops_of = ops_of;
    listener->base.fabric = fabric;
    listener->cm.heard = listener_heard;
    enum rdmux_status status = open_channel(&listener->channel);
    if (status != RDMUX_OK) {
        rdmux_provider_release(fabric, listener);
        return status;
    }
    /* librdmacm tracks the used ports separately from the adapter or the host. */
    int error = EADDRINUSE;
    int tries = any_port_will_do(address) ? LISTEN_TRIES : 1;
    for (int i = 0; i < tries && error == EADDRINUSE; i++) {
        error = bind_and_listen(listener, address, backlog);
    }
    if (error != 0) {
        rdmux_verbs_rdmacm_unlisten(&listener->base);
        return say_not_listening(address, error);
    }
    struct sockaddr_storage bound;
    memcpy(&bound, rdma_get_local_addr(listener->cm.id), sizeof(bound));
    ((struct sockaddr_in *)&bound)->sin_port = rdma_get_src_port(listener->cm.id);
    print_address((const struct sockaddr *)&bound, listener->base.address);
    *out = &listener->base;
    return RDMUX_OK;
}

void rdmux_verbs_rdmacm_unlisten(struct rdmux_rdmacm_listener *base)
{
    struct verbs_rdmacm_listener *listener = listener_of(base);
    while (listener->news != NULL) {
        struct verbs_rdmacm_call *call = listener->news;
        listener->news = call->news_next;
        call->listener = NULL;
        rdmux_verbs_rdmacm_call_free(call);
    }
    rdmux_verbs_cm_id_destroy(&listener->cm);
    rdma_destroy_event_channel(listener->channel);
    rdmux_provider_release(base->fabric, listener);
}

int rdmux_verbs_rdmacm_listener_fd(struct rdmux_rdmacm_listener *base)
{
    return listener_of(base)->channel->fd;
}

enum rdmux_status rdmux_verbs_rdmacm_next(struct rdmux_rdmacm_listener *base,
                                          struct rdmux_rdmacm_call **out, int *gone)
{
    struct verbs_rdmacm_listener *listener = listener_of(base);
    if (listener->news == NULL) {
        (void)rdmux_verbs_cm_take_events(listener->channel);
    }
    /* Requests that ended before they were reported are dropped silently. */
    struct verbs_rdmacm_call *call = listener->news;
    while (call != NULL && call->is_gone && !call->is_told) {
        rdmux_verbs_rdmacm_call_free(call);
        call = listener->news;
    }
    if (call == NULL) {
        return RDMUX_AGAIN;
    }
    listener->news = call->news_next;
    *out = &call->base;
    *gone = call->is_told && call->is_gone;
    call->is_told = true;
    return RDMUX_OK;
}

/* ---------------------------------------------------------------------------------------- calls */

enum rdmux_status rdmux_verbs_rdmacm_call_take(struct rdmux_rdmacm_call *base)
{
    struct verbs_rdmacm_call *call = call_of(base);
    enum rdmux_status status = rdmux_verbs_cm_channel_open("rdma_cm", &call->channel);
    if (status != RDMUX_OK) {
        return status;
    }
    if (rdma_migrate_id(call->cm.id, call->channel) != 0) {
        rdmux_provider_error("rdma_cm: a connection cannot be taken: %s", strerror(errno));
        rdma_destroy_event_channel(call->channel);
        call->channel = NULL;
        return RDMUX_IO;
    }
    forget_news(call->listener, call);
    call->listener = NULL;
    return RDMUX_OK;
}

void rdmux_verbs_rdmacm_call_free(struct verbs_rdmacm_call *call)
{
    if (call->listener != NULL) {
        forget_news(call->listener, call);
    }
    if (call->has_come && call->ep == NULL && !call->is_gone && call->cm.id != NULL) {
        (void)rdma_reject(call->cm.id, NULL, 0);
    }
    rdmux_verbs_cm_id_destroy(&call->cm);
    if (call->channel != NULL) {
        rdma_destroy_event_channel(call->channel);
    }
    rdmux_provider_release(call->base.fabric, call);
}

void rdmux_verbs_rdmacm_call_drop(struct rdmux_rdmacm_call *base, uint32_t reason,
                                  const void *private_data, size_t length)
{
    struct verbs_rdmacm_call *call = call_of(base);
    const uint32_t number = htonl(reason);
    if (call->has_come && !call->is_gone && (length != 0 || reason != 0)) {
        const void *data = length != 0 ? private_data : &number;
        (void)rdma_reject(call->cm.id, data,
                          (uint8_t)(length != 0 ? length : VERBS_RDMACM_REASON_SIZE));
        call->is_gone = true; /* no second reject */
    }
    rdmux_verbs_rdmacm_call_free(call);
}
