/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Listeners: one TCP address for all paths. The service thread accepts sockets;
 * pending_connection.c reads what each peer sends first. The functions here show the pending
 * connections to the program and take them.
 *
 * An rdma:// listener has its provider's listener instead of a socket, and calls instead of
 * accepted sockets. A call is introduced when it arrives.
 */
#include "api/accept/listener.h"

#include "api/accept/peer_quota.h"
#include "api/accept/pending_connection.h"
#include "api/accept/sessions.h"
#include "api/base/address.h"
#include "api/core/cq.h"
#include "api/core/ep.h"
#include "api/core/fabric.h"
#include "api/loop/descriptors.h"
#include "api/loop/service.h"
#include "api/object/offer.h"
#include "api/progress/cq_owner.h"
#include "api/setup/rdmacm_endpoint.h"
#include "api/setup/setup.h"
#include "negotiation/tls.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum {
    DEFAULT_BACKLOG = 1024,
    DEFAULT_MAX_PENDING = 4096,
    MIN_PER_ADDRESS = 256, /* default minimum of max_per_address and max_waiting_per_address */
    DEFAULT_HELLO_TIMEOUT_MS = 5000,
    DEFAULT_MAX_SETUPS = 256,
    ACCEPTS_PER_EVENT = 64,
};

/* --------------------------------------------------------------------------------------- limits */

static uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static uint32_t larger(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* Sets the limits that the program asked for, lowered to what the process's descriptors allow.
 * Connections of rdma:// need no descriptors. */
static void set_limits(struct rdmux_listener *listener)
{
    const struct rdmux_listen_attr *asked = &listener->asked;
    const struct rdmux_descriptor_limit limit = listener->descriptors;
    const bool counts = listener->rdmacm == NULL;
    const uint32_t room = counts ? larger(limit.all - limit.reserve, 1) : UINT32_MAX;
    const uint32_t setups = counts ? larger(limit.reserve / RDMUX_SETUP_DESCRIPTORS, 2)
                                   : UINT32_MAX;
    const uint32_t pending = smaller(asked->max_pending, room);
    listener->max_pending = pending;
    listener->max_per_address = asked->max_per_address != 0
                                    ? asked->max_per_address
                                    : larger(pending / 4, smaller(MIN_PER_ADDRESS, room / 2));
    listener->max_waiting_per_address = asked->max_waiting_per_address != 0
                                            ? asked->max_waiting_per_address
                                            : larger(pending / 2,
                                                     smaller(MIN_PER_ADDRESS, room / 2));
    atomic_store(&listener->max_setups, smaller(asked->max_setups, setups));
}

/* The descriptor limit of the process may have changed. */
static void follow_descriptors(struct rdmux_listener *listener)
{
    const struct rdmux_descriptor_limit limit = rdmux_descriptor_limit();
    if (limit.all != listener->descriptors.all) {
        pthread_mutex_lock(&listener->fabric->lock);
        listener->descriptors = limit;
        set_limits(listener);
        rdmux_peer_quotas_count_crowds(listener);
        pthread_mutex_unlock(&listener->fabric->lock);
    }
}

/* ---------------------------------------------------------------------------- accepting sockets */

/* accept4() may allocate the descriptor before it looks for a connection. It then also fails with
 * an empty backlog once the last descriptor is used, so an eviction leaves one descriptor free,
 * which a set-up needs. True: a connection was evicted. */
static bool out_of_descriptors(struct rdmux_listener *listener)
{
    if (rdmux_listeners_shed(
            listener->fabric,
            "out of descriptors, and its address or identity has the most connections")) {
        return true;
    }
    /* Nothing to evict: accepts the newcomer with the spare descriptor and closes it, since a full
     * backlog would wake the service thread forever. */
    int socket = -1;
    if (listener->spare_fd >= 0) {
        close(listener->spare_fd);
        socket = accept4(listener->socket, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    }
    if (socket >= 0) {
        close(socket);
        if (rdmux_listener_may_tell(listener)) {
            rdmux_log(
                listener->fabric, RDMUX_LOG_WARN,
                "listener %s: descriptors run out; a connection was turned away; raise the limit "
                "with ulimit -n",
                listener->address);
        }
    } else {
        /* Another thread took the spare descriptor. */
        rdmux_service_unwatch(listener->fabric, listener->socket, &listener->watch);
        listener->is_resting = true;
        rdmux_service_timer(listener->fabric, rdmux_now(listener->fabric) + RDMUX_PENDING_TIMER_NS);
    }
    listener->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    return false;
}

/* Ends the rest of a listener that ran out of descriptors, once there is a spare one again. */
static void watch_again(struct rdmux_listener *listener)
{
    if (listener->spare_fd < 0) {
        listener->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    }
    listener->is_resting = listener->spare_fd < 0 ||
                           rdmux_service_watch(listener->fabric, listener->socket, EPOLLIN,
                                               &listener->watch) != RDMUX_OK;
}

/* Keeps descriptors in reserve: a newcomer whose descriptor is in the reserve displaces a pending
 * connection and gets a lower descriptor. Returns the newcomer's descriptor. If there is nothing to
 * evict, the newcomer keeps its descriptor, so that a peer is served even if its own connections
 * use all others. */
static int keep_reserve(struct rdmux_listener *listener, int socket)
{
    if (!rdmux_descriptor_is_reserved(listener->descriptors, socket) ||
        !rdmux_listeners_shed(
            listener->fabric,
            "descriptors run short, and none has more than its address or identity")) {
        return socket;
    }
    int lower = fcntl(socket, F_DUPFD_CLOEXEC, 0);
    if (lower < 0) {
        return socket;
    }
    close(lower < socket ? socket : lower);
    return lower < socket ? lower : socket;
}

static void listener_ready(struct rdmux_fabric *fabric, struct rdmux_watch *watch)
{
    (void)fabric;
    struct rdmux_listener *listener = RDMUX_CONTAINER(watch, struct rdmux_listener, watch);
    follow_descriptors(listener);
    for (int i = 0; i < ACCEPTS_PER_EVENT; i++) {
        struct sockaddr_storage address;
        socklen_t length = sizeof(address);
        int socket = accept4(listener->socket, (struct sockaddr *)&address, &length,
                             SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (socket >= 0) {
            rdmux_pending_take(listener, keep_reserve(listener, socket), &address, length);
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            if (!out_of_descriptors(listener)) {
                return;
            }
        } else if (errno != EINTR && errno != ECONNABORTED) {
            return;
        }
    }
}

/* Drops connections that were not accepted in time: any, if the program has set a timeout;
 * otherwise those of crowds only, so that a program that accepts seldom loses no others. Returns
 * true if the next scan has something to check. fabric->lock is held, and released during a drop;
 * step_lock keeps lists and listeners in place meanwhile. */
static bool drop_overdue(struct rdmux_listener *listener, uint64_t now_ns)
{
    struct rdmux_fabric *fabric = listener->fabric;
    bool all = listener->acceptor.timeout_ms != 0;
    for (struct rdmux_list *at = listener->introduced.next, *next;
         at != &listener->introduced && (all || listener->crowds != 0); at = next) {
        struct rdmux_pending_connection *pending = RDMUX_CONTAINER(
            at, struct rdmux_pending_connection, link);
        next = at->next;
        if (now_ns < pending->deadline_ns) {
            return pending->deadline_ns != UINT64_MAX;
        }
        if (all || rdmux_peer_quota_is_crowd(pending->quota)) {
            pthread_mutex_unlock(&fabric->lock);
            rdmux_pending_drop(pending, "nobody has accepted it in time");
            pthread_mutex_lock(&fabric->lock);
        }
    }
    return !all && listener->crowds != 0;
}

uint64_t rdmux_listeners_timers(struct rdmux_fabric *fabric, uint64_t now_ns)
{
    bool waiting = false;
    uint64_t next_ns = UINT64_MAX;
    pthread_mutex_lock(&fabric->lock);
    for (struct rdmux_list *at = fabric->listeners.next; at != &fabric->listeners; at = at->next) {
        struct rdmux_listener *listener = RDMUX_CONTAINER(at, struct rdmux_listener, link);
        if (listener->is_resting) {
            watch_again(listener);
            waiting = waiting || listener->is_resting;
        }
        while (!rdmux_list_empty(&listener->silent)) {
            struct rdmux_pending_connection *oldest = RDMUX_CONTAINER(
                listener->silent.next, struct rdmux_pending_connection, link);
            if (now_ns < oldest->deadline_ns) {
                waiting = true;
                break;
            }
            /* step_lock keeps lists and listeners in place. */
            pthread_mutex_unlock(&fabric->lock);
            rdmux_pending_drop(oldest, "has not introduced itself in time");
            pthread_mutex_lock(&fabric->lock);
        }
        rdmux_session_timer(listener);
        waiting = drop_overdue(listener, now_ns) || waiting;
        uint64_t lines_ns = rdmux_listener_lines_deadline(listener);
        if (now_ns >= lines_ns) {
            pthread_mutex_unlock(&fabric->lock);
            rdmux_listener_log_left_out(listener);
            pthread_mutex_lock(&fabric->lock);
        } else if (lines_ns < next_ns) {
            next_ns = lines_ns;
        }
    }
    pthread_mutex_unlock(&fabric->lock);
    uint64_t look_ns = waiting ? now_ns + RDMUX_PENDING_TIMER_NS : UINT64_MAX;
    return look_ns < next_ns ? look_ns : next_ns;
}

/* --------------------------------------------------------------------------- showing and taking */

static struct rdmux_pending_connection *find_introduced(struct rdmux_listener *listener, uint64_t id)
{
    for (struct rdmux_list *at = listener->introduced.next; at != &listener->introduced;
         at = at->next) {
        struct rdmux_pending_connection *pending = RDMUX_CONTAINER(
            at, struct rdmux_pending_connection, link);
        if (id == 0 || pending->id == id) {
            return pending;
        }
    }
    return NULL;
}

/* Returns true if this call may take a connection: a call with a set-up under way only if no call
 * has none, so that no call goes without. fabric->lock is held. */
static bool may_take(struct rdmux_listener *listener, const struct rdmux_accept_wait *wait)
{
    for (struct rdmux_list *at = listener->waits.next; at != &listener->waits && !wait->has_none;
         at = at->next) {
        const struct rdmux_accept_wait *other = RDMUX_CONTAINER(at, struct rdmux_accept_wait, link);
        if (other->has_none) {
            return false;
        }
    }
    return true;
}

/* Returns the longest-waiting connection of the peer quota that is next. NULL: none waits, or all
 * peer quotas have their maximum in set-up. */
static struct rdmux_pending_connection *find_next(struct rdmux_listener *listener)
{
    struct rdmux_peer_quota *quota = rdmux_peer_quota_next(listener);
    return quota == NULL ? NULL
                         : RDMUX_CONTAINER(quota->introduced.next, struct rdmux_pending_connection,
                                           quota_link);
}

/* Unlinks and unwatches an introduced connection. Without a wait: the one with this id. With a
 * wait: the next that it may take, which counts as in set-up from now on. NULL: there is none. */
static struct rdmux_pending_connection *take_pending(struct rdmux_listener *listener, uint64_t id,
                                                     struct rdmux_accept_wait *wait,
                                                     struct rdmux_peer_quota **quota)
{
    struct rdmux_fabric *fabric = listener->fabric;
    rdmux_service_lock(fabric); /* the service thread may be about to read from it */
    pthread_mutex_lock(&fabric->lock);
    struct rdmux_pending_connection *pending = wait == NULL ? find_introduced(listener, id)
                                               : may_take(listener, wait) ? find_next(listener)
                                                                          : NULL;
    if (pending != NULL) {
        if (wait != NULL) {
            *quota = pending->quota;
            rdmux_peer_quota_begin_setup(pending->quota);
        }
        rdmux_pending_unlink(pending);
        if (wait != NULL && wait->has_none) {
            wait->has_none = false;
            if (find_introduced(listener, 0) != NULL && may_take(listener, wait)) {
                rdmux_listener_poke_waits(
                    listener); /* it was the last call with none: all calls may take the rest */
            }
        }
    }
    pthread_mutex_unlock(&fabric->lock);
    if (pending != NULL) {
        rdmux_pending_unwatch(pending);
    }
    rdmux_service_unlock(fabric);
    return pending;
}

/* Hands a call over; the listener forgets it. Frees the pending connection. */
static enum rdmux_status arrive_rdmacm(struct rdmux_pending_connection *pending,
                                       struct rdmux_arrival *out)
{
    struct rdmux_rdmacm_call *call = pending->call;
    struct rdmux_fabric *fabric = pending->listener->fabric;
    *out = (struct rdmux_arrival){ .id = pending->id, .call = call, .socket = -1 };
    rdmux_service_lock(fabric);
    rdmux_error_clear();
    enum rdmux_status status = call->ops->call_take(call);
    if (status != RDMUX_OK) {
        rdmux_pending_hang_up(pending);
    }
    rdmux_service_unlock(fabric);
    rdmux_pending_free(pending);
    return status;
}

/* Hands over the socket and the bytes received. Frees the pending connection. */
static enum rdmux_status take_arrival(struct rdmux_pending_connection *pending,
                                      struct rdmux_arrival *out)
{
    struct rdmux_fabric *fabric = pending->listener->fabric;
    if (pending->call != NULL) {
        return arrive_rdmacm(pending, out);
    }
    out->call = NULL;
    out->received = pending->bytes;
    if (pending->bytes == pending->first) {
        out->received = rdmux_allocate(fabric, pending->have);
        if (out->received != NULL) {
            memcpy(out->received, pending->first, pending->have);
        }
    }
    pending->bytes = pending->first;
    out->tls = pending->tls;
    pending->tls = NULL;
    out->id = pending->id;
    out->socket = pending->socket;
    out->received_size = pending->have;
    out->address = pending->address;
    out->address_length = pending->address_length;
    rdmux_pending_free(pending);
    if (out->received == NULL) {
        rdmux_tls_destroy(out->tls);
        close(out->socket);
        return rdmux_fail(RDMUX_NO_MEMORY, "rdmux_accept: out of memory");
    }
    return RDMUX_OK;
}

enum rdmux_status rdmux_listener_take(struct rdmux_listener *listener, uint64_t id,
                                      struct rdmux_arrival *out)
{
    struct rdmux_pending_connection *pending = take_pending(listener, id, NULL, NULL);
    if (pending == NULL) {
        return rdmux_fail(RDMUX_INVALID, "rdmux_accept: attr.peer %llu is not a waiting connection",
                          (unsigned long long)id);
    }
    return take_arrival(pending, out);
}

static void end_setup(struct rdmux_listener *listener, struct rdmux_peer_quota *quota)
{
    pthread_mutex_lock(&listener->fabric->lock);
    rdmux_peer_quota_end_setup(quota);
    pthread_mutex_unlock(&listener->fabric->lock);
}

enum rdmux_status rdmux_listener_take_any(struct rdmux_listener *listener,
                                          struct rdmux_accept_wait *wait, struct rdmux_arrival *out)
{
    struct rdmux_peer_quota *quota = NULL;
    struct rdmux_pending_connection *pending = take_pending(listener, 0, wait, &quota);
    if (pending == NULL) {
        return RDMUX_AGAIN;
    }
    enum rdmux_status status = take_arrival(pending, out);
    if (status != RDMUX_OK) {
        end_setup(listener, quota);
        return status;
    }
    out->quota = quota;
    return RDMUX_OK;
}

bool rdmux_listener_offers(struct rdmux_listener *listener, struct rdmux_accept_wait *wait,
                           bool has_none, uint32_t *setups)
{
    pthread_mutex_lock(&listener->fabric->lock);
    wait->has_none = has_none;
    const struct rdmux_pending_connection *next = may_take(listener, wait) ? find_next(listener)
                                                                           : NULL;
    if (next != NULL) {
        *setups = atomic_load(&next->quota->setups);
    }
    pthread_mutex_unlock(&listener->fabric->lock);
    return next != NULL;
}

uint32_t rdmux_listener_max_setups(const struct rdmux_listener *listener)
{
    return atomic_load(&listener->max_setups);
}

uint32_t rdmux_listener_setups_beside(const struct rdmux_ep *ep)
{
    return atomic_load(&ep->accept.quota->setups);
}

static void release_endpoint(struct rdmux_ep *ep)
{
    struct rdmux_listener *listener = rdmux_listener_of(ep->accept.acceptor);
    end_setup(listener, ep->accept.quota);
    ep->accept.quota = NULL;
    ep->accept.acceptor = NULL;
    rdmux_listener_put(listener);
}

void rdmux_listener_wait_begin(struct rdmux_listener *listener, struct rdmux_accept_wait *wait)
{
    pthread_mutex_lock(&listener->fabric->lock);
    rdmux_list_append(&listener->waits, &wait->link);
    pthread_mutex_unlock(&listener->fabric->lock);
}

void rdmux_listener_wait_end(struct rdmux_listener *listener, struct rdmux_accept_wait *wait)
{
    pthread_mutex_lock(&listener->fabric->lock);
    rdmux_list_remove(&wait->link);
    if (wait->has_none && find_introduced(listener, 0) != NULL) {
        rdmux_listener_poke_waits(listener); /* connections reserved for this call */
    }
    pthread_mutex_unlock(&listener->fabric->lock);
}

static bool is_closed(struct rdmux_acceptor *acceptor)
{
    struct rdmux_listener *listener = rdmux_listener_of(acceptor);
    pthread_mutex_lock(&listener->fabric->lock);
    bool closed = listener->is_closed;
    pthread_mutex_unlock(&listener->fabric->lock);
    return closed;
}

static void count_acceptable(struct rdmux_acceptor *acceptor, int change)
{
    struct rdmux_listener *listener = rdmux_listener_of(acceptor);
    pthread_mutex_lock(&listener->fabric->lock);
    listener->proved += change;
    rdmux_listener_update_descriptor(listener);
    pthread_mutex_unlock(&listener->fabric->lock);
}

struct rdmux_fabric *rdmux_listener_fabric(struct rdmux_listener *listener)
{
    return listener->fabric;
}

const char *rdmux_listener_paths(const struct rdmux_listener *listener)
{
    return listener->paths;
}

bool rdmux_listener_is_rdmacm(const struct rdmux_listener *listener)
{
    return listener->rdmacm != NULL;
}

static void show_pending(struct rdmux_pending_connection *pending, struct rdmux_peer *out)
{
    struct rdmux_peer peer = RDMUX_PEER_INIT;
    peer.id = pending->id;
    rdmux_pending_address(pending, peer.address);
    if (pending->tls != NULL) {
        snprintf(peer.identity, sizeof(peer.identity), "%s", rdmux_tls_identity(pending->tls));
    }
    peer.private_length = pending->private_length;
    memcpy(peer.private_data, pending->private_data, sizeof(peer.private_data));
    uint32_t size = out->size < sizeof(peer) ? out->size : (uint32_t)sizeof(peer);
    peer.size = out->size;
    memcpy(out, &peer, size);
}

enum rdmux_status rdmux_listener_next(struct rdmux_listener *listener, int timeout_ms,
                                      struct rdmux_peer *out)
{
    if (listener == NULL || *listener->fabric->alive == 0 || out == NULL || timeout_ms < -1 ||
        out->size < offsetof(struct rdmux_peer, address)) {
        return rdmux_fail(RDMUX_INVALID, "rdmux_listener_next: %s",
                          listener == NULL  ? "listener is NULL"
                          : out == NULL     ? "out is NULL"
                          : timeout_ms < -1 ? "timeout_ms is below -1"
                          : *listener->fabric->alive == 0
                              ? "the listener belongs to the parent process"
                              : "out->size is too small; use RDMUX_PEER_INIT");
    }
    struct rdmux_fabric *fabric = listener->fabric;
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    if (timeout_ms > 0) {
        until.tv_sec += timeout_ms / 1000;
        until.tv_nsec += (long)(timeout_ms % 1000) * 1000000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
    }
    for (;;) {
        if (rdmux_fabric_is_manual(fabric)) {
            rdmux_service_step(fabric, 0);
        }
        pthread_mutex_lock(&fabric->lock);
        for (struct rdmux_list *at = listener->introduced.next; at != &listener->introduced;
             at = at->next) {
            struct rdmux_pending_connection *pending = RDMUX_CONTAINER(
                at, struct rdmux_pending_connection, link);
            if (!pending->is_shown) {
                pending->is_shown = true;
                listener->unshown--;
                rdmux_listener_update_descriptor(listener);
                show_pending(pending, out);
                pthread_mutex_unlock(&fabric->lock);
                return RDMUX_OK;
            }
        }
        int error = 0;
        if (timeout_ms == 0) {
            error = EAGAIN;
        } else if (!rdmux_fabric_is_manual(fabric)) {
            error = timeout_ms < 0
                        ? pthread_cond_wait(&listener->changed, &fabric->lock)
                        : pthread_cond_timedwait(&listener->changed, &fabric->lock, &until);
        }
        pthread_mutex_unlock(&fabric->lock);
        if (timeout_ms != 0 && rdmux_fabric_is_manual(fabric)) {
            struct timespec now;
            clock_gettime(CLOCK_MONOTONIC, &now);
            if (timeout_ms > 0 && (now.tv_sec > until.tv_sec ||
                                   (now.tv_sec == until.tv_sec && now.tv_nsec >= until.tv_nsec))) {
                error = ETIMEDOUT;
            } else {
                rdmux_service_step(fabric, 10);
            }
        }
        if (error == EAGAIN) {
            return rdmux_fail(RDMUX_AGAIN, "rdmux_listener_next: no connection waits");
        }
        if (error == ETIMEDOUT) {
            return rdmux_fail(RDMUX_TIMED_OUT,
                              "rdmux_listener_next: no connection came within %d ms", timeout_ms);
        }
    }
}

/* Like rdmux_reject(). The maximum of length depends on the device by which the peer came. */
static enum rdmux_status reject_rdmacm(struct rdmux_listener *listener, uint64_t peer,
                                       uint32_t reason, const void *private_data, size_t length)
{
    struct rdmux_fabric *fabric = listener->fabric;
    enum rdmux_status status = RDMUX_OK;
    rdmux_service_lock(fabric);
    pthread_mutex_lock(&fabric->lock);
    struct rdmux_pending_connection *pending = find_introduced(listener, peer);
    if (pending == NULL) {
        status = rdmux_fail(RDMUX_INVALID, "rdmux_reject: peer %llu is not a waiting connection",
                            (unsigned long long)peer);
    } else if (length > pending->call->ops->reject_private_max) {
        status = rdmux_fail(RDMUX_INVALID,
                            "rdmux_reject: length of private_data is %zu; over %s the connection "
                            "manager carries %u bytes with a rejection",
                            length, pending->call->place.provider,
                            pending->call->ops->reject_private_max);
    } else {
        rdmux_pending_unlink(pending);
    }
    pthread_mutex_unlock(&fabric->lock);
    if (pending != NULL && status == RDMUX_OK) {
        pending->call->ops->call_drop(pending->call, reason, private_data, length);
        rdmux_pending_free(pending);
    }
    rdmux_service_unlock(fabric);
    return status;
}

enum rdmux_status rdmux_reject(struct rdmux_listener *listener, uint64_t peer, uint32_t reason,
                               const void *private_data, size_t length)
{
    if (listener == NULL || *listener->fabric->alive == 0 || peer == 0 ||
        length > RDMUX_PRIVATE_DATA_MAX || (private_data == NULL && length != 0)) {
        return rdmux_fail(
            RDMUX_INVALID, "rdmux_reject: %s",
            listener == NULL                  ? "listener is NULL"
            : *listener->fabric->alive == 0   ? "the listener belongs to the parent process"
            : peer == 0                       ? "peer is 0"
            : length > RDMUX_PRIVATE_DATA_MAX ? "length of private_data is above 196"
                                              : "private_data is NULL, length is not 0");
    }
    struct rdmux_fabric *fabric = listener->fabric;
    if (listener->rdmacm != NULL) {
        return reject_rdmacm(listener, peer, reason, private_data, length);
    }
    struct rdmux_pending_connection *pending = take_pending(listener, peer, NULL, NULL);
    if (pending == NULL) {
        return rdmux_fail(RDMUX_INVALID, "rdmux_reject: peer %llu is not a waiting connection",
                          (unsigned long long)peer);
    }
    struct rdmux_message message = {
        .type = RDMUX_FRAME_REJECT,
        .status = reason,
        .description_length = (uint32_t)length,
    };
    if (length != 0) {
        memcpy(message.description, private_data, length);
    }
    uint8_t frame[RDMUX_HELLO_SIZE + RDMUX_MESSAGE_MAX];
    struct rdmux_hello hello;
    rdmux_hello_fill(fabric, &hello);
    rdmux_hello_encode(&hello, frame);
    size_t size = RDMUX_HELLO_SIZE + rdmux_message_encode(&message, frame + RDMUX_HELLO_SIZE);
    (void)rdmux_pending_say(pending, frame, size); /* a peer that has closed needs no answer */
    close(pending->socket);
    rdmux_pending_free(pending);
    return RDMUX_OK;
}

/* ----------------------------------------------------------------------------------------- life */

static enum rdmux_status open_socket(struct rdmux_listener *listener,
                                     const struct addrinfo *address, const char *text,
                                     uint32_t backlog)
{
    assert(address != NULL); /* getaddrinfo() succeeded */
    int fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return rdmux_fail(
            errno == EMFILE || errno == ENFILE ? RDMUX_NO_MEMORY : RDMUX_IO,
            "rdmux_listen: no socket to be had (errno %d); raise the limit with ulimit -n", errno);
    }
    int one = 1;
    int zero = 0;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (address->ai_family == AF_INET6) {
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero,
                   sizeof(zero)); /* with "all addresses", IPv4 too */
    }
    if (bind(fd, address->ai_addr, address->ai_addrlen) != 0 || listen(fd, (int)backlog) != 0) {
        int error = errno;
        close(fd);
        return rdmux_fail(
            RDMUX_IO, "rdmux_listen: %s: %s", text,
            error == EADDRINUSE
                ? "the address is in use by another program; choose another port, or 0"
            : error == EADDRNOTAVAIL ? "not an address of this machine"
            : error == EACCES        ? "ports below 1024 need privileges"
                                     : strerror(error));
    }
    struct sockaddr_storage bound;
    socklen_t length = sizeof(bound);
    if (getsockname(fd, (struct sockaddr *)&bound, &length) != 0 ||
        !rdmux_address_format((struct sockaddr *)&bound, length, listener->address)) {
        close(fd);
        return rdmux_fail(RDMUX_NO_MEMORY,
                          "rdmux_listen: %s: no memory to tell the address that was bound", text);
    }
    listener->socket = fd;
    return RDMUX_OK;
}

static enum rdmux_status bind_first(struct rdmux_listener *listener, const char *text,
                                    uint32_t backlog)
{
    struct rdmux_address_text parts;
    enum rdmux_status status = rdmux_address_split(text, &parts);
    if (status != RDMUX_OK) {
        return status;
    }
    struct addrinfo *addresses = NULL;
    status = rdmux_address_resolve(&parts, true, false, &addresses);
    if (status != RDMUX_OK) {
        return status;
    }
    /* For all addresses: an IPv6 socket accepts IPv4 too, if the machine has IPv6. */
    const struct addrinfo *first = addresses;
    for (const struct addrinfo *at = addresses; at != NULL && parts.host[0] == '\0';
         at = at->ai_next) {
        if (at->ai_family == AF_INET6) {
            first = at;
            break;
        }
    }
    status = open_socket(listener, first, text, backlog);
    for (const struct addrinfo *at = addresses; at != NULL && status != RDMUX_OK; at = at->ai_next) {
        if (at != first) {
            status = open_socket(listener, at, text, backlog);
        }
    }
    freeaddrinfo(addresses);
    return status;
}

/* ---------------------------------------------------------------------------- rdma:// listeners */

static struct rdmux_pending_connection *find_call(struct rdmux_listener *listener,
                                                  const struct rdmux_rdmacm_call *call)
{
    for (struct rdmux_list *at = listener->introduced.next; at != &listener->introduced;
         at = at->next) {
        struct rdmux_pending_connection *pending = RDMUX_CONTAINER(
            at, struct rdmux_pending_connection, link);
        if (pending->call == call) {
            return pending;
        }
    }
    return NULL;
}

static void reject_newcomer(struct rdmux_listener *listener, struct rdmux_rdmacm_call *call)
{
    if (rdmux_listener_may_tell(listener)) {
        rdmux_log(listener->fabric, RDMUX_LOG_WARN,
                  "listener %s: connection from %s: out of memory; rejected", listener->address,
                  call->peer_address);
    }
    call->ops->call_drop(call, 0, NULL, 0);
}

static void take_call(struct rdmux_listener *listener, struct rdmux_rdmacm_call *call)
{
    struct rdmux_fabric *fabric = listener->fabric;
    struct rdmux_pending_connection *pending = rdmux_allocate(fabric, sizeof(*pending));
    if (pending == NULL) {
        reject_newcomer(listener, call);
        return;
    }
    pending->listener = listener;
    pending->call = call;
    pending->socket = -1;
    pending->bytes = pending->first;
    pending->id = atomic_fetch_add(&fabric->next_id, 1);
    pending->private_length = call->peer_private_length;
    memcpy(pending->private_data, call->peer_private_data, sizeof(pending->private_data));
    rdmux_list_init(&pending->link);
    rdmux_list_init(&pending->quota_link);
    rdmux_list_init(&pending->place_link);
    pthread_mutex_lock(&fabric->lock);
    bool counted = rdmux_peer_quota_enter(pending) == RDMUX_OK;
    listener->count += counted;
    pthread_mutex_unlock(&fabric->lock);
    if (!counted) {
        rdmux_release(fabric, pending);
        reject_newcomer(listener, call);
    } else if (rdmux_pending_has_room(pending)) {
        rdmux_pending_becomes_known(pending);
    }
}

static void rdmacm_ready(struct rdmux_fabric *fabric, struct rdmux_watch *watch)
{
    struct rdmux_listener *listener = RDMUX_CONTAINER(watch, struct rdmux_listener, watch);
    const struct rdmux_rdmacm_ops *ops = listener->rdmacm->ops;
    (void)fabric;
    for (int i = 0; i < ACCEPTS_PER_EVENT; i++) {
        struct rdmux_rdmacm_call *call = NULL;
        int gone = 0;
        if (ops->next(listener->rdmacm, &call, &gone) != RDMUX_OK) {
            return;
        }
        struct rdmux_pending_connection *known = gone != 0 ? find_call(listener, call) : NULL;
        if (known != NULL) {
            rdmux_pending_drop(known, "left before it was accepted");
        } else if (gone == 0) {
            take_call(listener, call);
        }
    }
}

static enum rdmux_status listen_rdmacm(struct rdmux_listener *listener, const char *text,
                                       uint32_t backlog)
{
    struct rdmux_fabric *fabric = listener->fabric;
    const struct rdmux_rdmacm_ops *ops = rdmux_rdmacm_find(fabric);
    struct rdmux_address_text parts;
    struct addrinfo *addresses = NULL;
    enum rdmux_status status = rdmux_address_split(text, &parts);
    if (status != RDMUX_OK) {
        return status;
    }
    if (fabric->auth != NULL) {
        return rdmux_rdmacm_refuse_auth("rdmux_listen");
    }
    if (ops == NULL) {
        return rdmux_rdmacm_refuse_absent(fabric, "rdmux_listen");
    }
    status = rdmux_address_resolve(&parts, true, false, &addresses);
    if (status != RDMUX_OK) {
        return status;
    }
    rdmux_error_clear();
    status = ops->listen(fabric, addresses->ai_addr, backlog, &listener->rdmacm);
    freeaddrinfo(addresses);
    if (status != RDMUX_OK) {
        return status;
    }
    listener->watch.ready = rdmacm_ready;
    memcpy(listener->address, listener->rdmacm->address, sizeof(listener->address));
    return RDMUX_OK;
}

static enum rdmux_status take_attr(struct rdmux_listener *listener,
                                   const struct rdmux_listen_attr *attr, uint32_t *backlog)
{
    struct rdmux_listen_attr all = RDMUX_LISTEN_ATTR_INIT;
    if (attr != NULL) {
        if (attr->size < offsetof(struct rdmux_listen_attr, paths)) {
            return rdmux_fail(RDMUX_INVALID,
                              "rdmux_listen: attr.size is %u; use RDMUX_LISTEN_ATTR_INIT",
                              attr->size);
        }
        memcpy(&all, attr, attr->size < sizeof(all) ? attr->size : sizeof(all));
    }
    if (all.flags != 0) {
        return rdmux_fail(RDMUX_INVALID, "rdmux_listen: attr.flags 0x%x are unknown", all.flags);
    }
    enum rdmux_status status = rdmux_fabric_check_filter(listener->fabric, "attr.paths", all.paths);
    if (status != RDMUX_OK) {
        return status;
    }
    snprintf(listener->paths, sizeof(listener->paths), "%s", all.paths == NULL ? "auto" : all.paths);
    *backlog = all.backlog == 0 ? DEFAULT_BACKLOG : all.backlog > 65535 ? 65535 : all.backlog;
    all.max_pending = all.max_pending == 0 ? DEFAULT_MAX_PENDING : all.max_pending;
    all.max_setups = all.max_setups == 0 ? DEFAULT_MAX_SETUPS : all.max_setups;
    listener->asked = all;
    listener->asked.paths = NULL; /* the string belongs to the caller */
    listener->hello_timeout_ms = all.hello_timeout_ms == 0 ? DEFAULT_HELLO_TIMEOUT_MS
                                                           : all.hello_timeout_ms;
    listener->acceptor.timeout_ms = all.accept_timeout_ms;
    return rdmux_random(listener->fabric, &listener->quota_seed, sizeof(listener->quota_seed));
}

static void tell_limits(struct rdmux_listener *listener)
{
    if (listener->max_pending < listener->asked.max_pending) {
        rdmux_log(listener->fabric, RDMUX_LOG_INFO,
                  "listener %s: keeps %u connections that wait, not %u, as the process may have %u "
                  "descriptors; raise the limit with ulimit -n",
                  listener->address, listener->max_pending, listener->asked.max_pending,
                  listener->descriptors.all);
    }
}

/* -1: none. */
static int watched_fd(const struct rdmux_listener *listener)
{
    return listener->rdmacm != NULL ? listener->rdmacm->ops->listener_fd(listener->rdmacm)
                                    : listener->socket;
}

enum rdmux_status rdmux_listen(struct rdmux_fabric *fabric, const char *address,
                               const struct rdmux_listen_attr *attr, struct rdmux_listener **out)
{
    if (out == NULL) {
        return rdmux_fail(RDMUX_INVALID, "rdmux_listen: out is NULL");
    }
    *out = NULL;
    if (fabric == NULL || *fabric->alive == 0) {
        return rdmux_fail(RDMUX_INVALID,
                          "rdmux_listen: fabric is NULL, or belongs to the parent process");
    }
    struct rdmux_listener *listener = rdmux_allocate(fabric, sizeof(*listener));
    if (listener == NULL) {
        return rdmux_fail(RDMUX_NO_MEMORY, "rdmux_listen: out of memory");
    }
    listener->fabric = fabric;
    listener->refs = 1;
    listener->watch.ready = listener_ready;
    listener->socket = -1;
    listener->acceptor.is_closed = is_closed;
    listener->acceptor.count = count_acceptable;
    listener->acceptor.release = release_endpoint;
    rdmux_list_init(&listener->link);
    rdmux_list_init(&listener->silent);
    rdmux_list_init(&listener->introduced);
    rdmux_list_init(&listener->places);
    rdmux_list_init(&listener->hopeful);
    rdmux_list_init(&listener->waits);
    rdmux_list_init(&listener->all_quotas);
    rdmux_list_init(&listener->waiting);
    for (size_t i = 0; i < RDMUX_QUOTA_BUCKETS; i++) {
        rdmux_list_init(&listener->quotas[i]);
    }
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&listener->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    atomic_store_explicit(&fabric->hooks.shed, rdmux_listeners_shed, memory_order_release);
    rdmux_descriptors_make_room(fabric);
    listener->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    listener->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

    uint32_t backlog = 0;
    enum rdmux_status status = take_attr(listener, attr, &backlog);
    if (status == RDMUX_OK && (listener->event_fd < 0 || listener->spare_fd < 0)) {
        status = rdmux_fail(
            RDMUX_NO_MEMORY,
            "rdmux_listen: no descriptor to be had; raise the limit with ulimit -n");
    }
    const char *rdmacm = rdmux_rdmacm_address(address);
    if (status == RDMUX_OK) {
        status = rdmacm != NULL ? listen_rdmacm(listener, rdmacm, backlog)
                                : bind_first(listener, address, backlog);
    }
    if (status == RDMUX_OK) {
        listener->descriptors = rdmux_descriptor_limit();
        set_limits(listener);
        tell_limits(listener);
        pthread_mutex_lock(&fabric->lock);
        rdmux_list_append(&fabric->listeners, &listener->link);
        pthread_mutex_unlock(&fabric->lock);
        status = rdmux_service_watch(fabric, watched_fd(listener), EPOLLIN, &listener->watch);
    }
    if (status != RDMUX_OK) {
        rdmux_listener_close(listener);
        return status;
    }
    *out = listener;
    return RDMUX_OK;
}

void rdmux_listener_get(struct rdmux_listener *listener)
{
    pthread_mutex_lock(&listener->fabric->lock);
    listener->refs++;
    pthread_mutex_unlock(&listener->fabric->lock);
}

void rdmux_listener_put(struct rdmux_listener *listener)
{
    struct rdmux_fabric *fabric = listener->fabric;
    pthread_mutex_lock(&fabric->lock);
    bool last = --listener->refs == 0;
    pthread_mutex_unlock(&fabric->lock);
    if (!last) {
        return;
    }
    if (listener->event_fd >= 0) {
        close(listener->event_fd);
    }
    if (listener->spare_fd >= 0) {
        close(listener->spare_fd);
    }
    pthread_cond_destroy(&listener->changed);
    rdmux_release(fabric, listener);
}

void rdmux_listener_close(struct rdmux_listener *listener)
{
    if (listener == NULL || *listener->fabric->alive == 0) {
        return;
    }
    struct rdmux_fabric *fabric = listener->fabric;
    rdmux_service_lock(fabric);
    if (watched_fd(listener) >= 0) {
        rdmux_service_unwatch(fabric, watched_fd(listener), &listener->watch);
    }
    while (!rdmux_list_empty(&listener->silent)) {
        rdmux_pending_drop(
            RDMUX_CONTAINER(listener->silent.next, struct rdmux_pending_connection, link), NULL);
    }
    while (!rdmux_list_empty(&listener->introduced)) {
        rdmux_pending_drop(
            RDMUX_CONTAINER(listener->introduced.next, struct rdmux_pending_connection, link), NULL);
    }
    rdmux_listener_log_left_out(listener);
    pthread_mutex_lock(&fabric->lock);
    rdmux_list_remove(&listener->link);
    pthread_mutex_unlock(&fabric->lock);
    if (listener->rdmacm != NULL) {
        listener->rdmacm->ops->unlisten(listener->rdmacm);
        listener->rdmacm = NULL;
    }
    rdmux_service_unlock(fabric);
    if (listener->socket >= 0) {
        close(listener->socket);
        listener->socket = -1;
    }
    /* Endpoints taken here that no call can return any more are dropped by their cqs. */
    pthread_mutex_lock(&fabric->lock);
    listener->is_closed = true;
    for (struct rdmux_list *at = fabric->cqs.next; at != &fabric->cqs; at = at->next) {
        rdmux_cq_poke(RDMUX_CONTAINER(at, struct rdmux_cq, link));
    }
    pthread_mutex_unlock(&fabric->lock);
    rdmux_listener_put(listener);
}

enum rdmux_status rdmux_listener_address(struct rdmux_listener *listener,
                                         char out[RDMUX_ADDRESS_MAX], size_t size)
{
    if (listener == NULL || *listener->fabric->alive == 0 || out == NULL ||
        size < RDMUX_ADDRESS_MAX) {
        return rdmux_fail(RDMUX_INVALID, "rdmux_listener_address: %s",
                          listener == NULL ? "listener is NULL"
                          : out == NULL    ? "out is NULL"
                          : size < RDMUX_ADDRESS_MAX
                              ? "size is below RDMUX_ADDRESS_MAX"
                              : "the listener belongs to the parent process");
    }
    memcpy(out, listener->address, RDMUX_ADDRESS_MAX);
    return RDMUX_OK;
}

int rdmux_listener_fd(struct rdmux_listener *listener)
{
    return listener == NULL || *listener->fabric->alive == 0 ? -1 : listener->event_fd;
}
