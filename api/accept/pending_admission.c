/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Admission of pending connections. A pending connection costs one small record until it has sent
 * something valid. When there are too many, or too many of one address, the peer quota that holds
 * the most loses one.
 */
#include "api/accept/listener.h"
#include "api/accept/peer_quota.h"
#include "api/accept/pending_connection.h"
#include "api/core/fabric.h"
#include "api/loop/service.h"
#include "api/system/system.h"

#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

/* ------------------------------------------------------------------------------------- eviction */

bool rdmux_pending_is_silent(struct rdmux_pending_connection *pending)
{
    /* its handshake takes longer than this read */
    bool shakes = pending->stage == RDMUX_PENDING_SHAKING ||
                  pending->stage == RDMUX_PENDING_STEPPING;
    return pending->call != NULL || shakes || rdmux_pending_read(pending);
}

static void drop_if_silent(struct rdmux_pending_connection *pending, const char *why)
{
    if (rdmux_pending_is_silent(pending)) {
        rdmux_pending_evict(pending, why);
    }
}

static struct rdmux_pending_connection *first_but(const struct rdmux_list *list,
                                                  const struct rdmux_pending_connection *newcomer)
{
    for (struct rdmux_list *at = list->next; at != list; at = at->next) {
        struct rdmux_pending_connection *pending = RDMUX_CONTAINER(
            at, struct rdmux_pending_connection, quota_link);
        if (pending != newcomer) {
            return pending;
        }
    }
    return NULL;
}

/* Returns the oldest silent connection of the listener, the newcomer only if there is no other. */
static struct rdmux_pending_connection *oldest_silent(const struct rdmux_listener *listener,
                                                      struct rdmux_pending_connection *newcomer)
{
    for (struct rdmux_list *at = listener->silent.next; at != &listener->silent; at = at->next) {
        struct rdmux_pending_connection *pending = RDMUX_CONTAINER(
            at, struct rdmux_pending_connection, link);
        if (pending != newcomer) {
            return pending;
        }
    }
    return newcomer;
}

/* Selects the connection to evict: of the peer quota that holds the most, the oldest silent one,
 * else the longest-waiting introduced one. If the newcomer's peer quota holds as many, it is that
 * quota's. If no quota holds more than one, it is the oldest silent one of all, or the newcomer if
 * there is none. fabric->lock is held. */
static struct rdmux_pending_connection *find_superfluous(struct rdmux_listener *listener,
                                                         struct rdmux_pending_connection *newcomer)
{
    struct rdmux_peer_quota *largest = rdmux_peer_quota_largest(listener);
    if (largest == NULL) {
        return NULL;
    }
    if (newcomer != NULL &&
        rdmux_peer_quota_count(newcomer->quota) == rdmux_peer_quota_count(largest)) {
        largest = newcomer->quota;
    }
    if (rdmux_peer_quota_count(largest) <= 1) {
        return oldest_silent(listener, newcomer);
    }
    struct rdmux_pending_connection *found = first_but(&largest->silent, newcomer);
    return found != NULL ? found : first_but(&largest->introduced, newcomer);
}

bool rdmux_pending_drop_one(struct rdmux_listener *listener,
                            struct rdmux_pending_connection *newcomer, const char *why)
{
    pthread_mutex_lock(&listener->fabric->lock);
    struct rdmux_pending_connection *found = find_superfluous(listener, newcomer);
    pthread_mutex_unlock(&listener->fabric->lock);
    if (found == NULL) {
        return false;
    }
    if (found == newcomer || found->stage == RDMUX_PENDING_INTRODUCED) {
        rdmux_pending_evict(found, why);
    } else {
        drop_if_silent(found, why);
    }
    return found != newcomer;
}

/* Returns the listener with the largest peer quota. step_lock is held. */
static struct rdmux_listener *most_crowded(struct rdmux_fabric *fabric)
{
    struct rdmux_listener *found = NULL;
    uint32_t most = 0;
    pthread_mutex_lock(&fabric->lock);
    for (struct rdmux_list *at = fabric->listeners.next; at != &fabric->listeners; at = at->next) {
        struct rdmux_listener *listener = RDMUX_CONTAINER(at, struct rdmux_listener, link);
        if (listener->rdmacm != NULL) {
            continue; /* calls of rdma:// have no descriptors */
        }
        const struct rdmux_peer_quota *largest = rdmux_peer_quota_largest(listener);
        if (largest != NULL && rdmux_peer_quota_count(largest) > most) {
            found = listener;
            most = rdmux_peer_quota_count(largest);
        }
    }
    pthread_mutex_unlock(&fabric->lock);
    return found;
}

bool rdmux_listeners_shed(struct rdmux_fabric *fabric, const char *why)
{
    rdmux_service_lock(fabric); /* keeps pending connections and listeners in place */
    struct rdmux_listener *listener = most_crowded(fabric);
    bool shed = listener != NULL && rdmux_pending_drop_one(listener, NULL, why);
    rdmux_service_unlock(fabric);
    return shed;
}

/* ------------------------------------------------------------------------------------ newcomers */

static void pending_ready(struct rdmux_fabric *fabric, struct rdmux_watch *watch)
{
    struct rdmux_pending_connection *pending = RDMUX_CONTAINER(
        watch, struct rdmux_pending_connection, watch);
    if (pending->stage != RDMUX_PENDING_INTRODUCED) {
        rdmux_pending_read(pending);
        return;
    }
    /* The peer sends more, or closes, before it is taken. */
    char byte;
    ssize_t got = recv(pending->socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) {
        rdmux_pending_drop(pending, "left before it was accepted");
    } else if (got > 0) {
        rdmux_service_unwatch(fabric, pending->socket, watch);
    }
}

static void turn_away_newcomer(struct rdmux_listener *listener, int socket)
{
    close(socket);
    rdmux_count(&listener->fabric->counts.dropped);
    if (rdmux_listener_may_tell(listener)) {
        rdmux_log(listener->fabric, RDMUX_LOG_ERROR,
                  "listener %s: out of memory; a connection was turned away", listener->address);
    }
}

bool rdmux_pending_has_room(struct rdmux_pending_connection *newcomer)
{
    struct rdmux_listener *listener = newcomer->listener;
    const struct rdmux_peer_quota *quota = newcomer->quota;
    if (quota->silent_count > listener->max_per_address) {
        drop_if_silent(first_but(&quota->silent, newcomer),
                       "too many connections of its address have not introduced themselves");
    }
    /* A connection that turns out to have spoken is no longer silent, and is kept this time. */
    for (uint32_t heard = 0; listener->count > listener->max_pending + heard;) {
        uint32_t before = listener->count;
        if (!rdmux_pending_drop_one(listener, newcomer,
                                    "too many connections wait, and none has more than its address "
                                    "or identity")) {
            return false;
        }
        heard += listener->count == before;
    }
    return true;
}

void rdmux_pending_take(struct rdmux_listener *listener, int socket,
                        const struct sockaddr_storage *address, socklen_t address_length)
{
    struct rdmux_fabric *fabric = listener->fabric;
    struct rdmux_pending_connection *pending = rdmux_allocate(fabric, sizeof(*pending));
    if (pending == NULL) {
        turn_away_newcomer(listener, socket);
        return;
    }
    pending->watch.ready = pending_ready;
    pending->events = RDMUX_READY_IN;
    rdmux_list_init(&pending->link);
    rdmux_list_init(&pending->quota_link);
    rdmux_list_init(&pending->place_link);
    pending->listener = listener;
    pending->socket = socket;
    pending->bytes = pending->first;
    pending->address = *address;
    pending->address_length = address_length;
    pending->id = atomic_fetch_add(&fabric->next_id, 1);
    pending->deadline_ns = rdmux_now(fabric) + (uint64_t)listener->hello_timeout_ms * 1000000;
    pthread_mutex_lock(&fabric->lock);
    bool counted = rdmux_peer_quota_enter(pending) == RDMUX_OK;
    if (counted) {
        rdmux_list_append(&listener->silent, &pending->link);
        listener->count++;
    }
    pthread_mutex_unlock(&fabric->lock);
    if (!counted) {
        rdmux_release(fabric, pending);
        turn_away_newcomer(listener, socket);
        return;
    }
    if (rdmux_service_watch(fabric, socket, RDMUX_READY_IN, &pending->watch) != RDMUX_OK) {
        rdmux_pending_drop(pending, "cannot be watched");
        return;
    }
    rdmux_service_timer(fabric, rdmux_now(fabric) + RDMUX_PENDING_TIMER_NS);
    (void)rdmux_pending_has_room(pending); /* false: it is freed */
}
