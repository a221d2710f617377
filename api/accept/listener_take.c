/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * The introduced connections of a listener: rdmux_listener_next() shows them, accept calls take
 * them, rdmux_reject() rejects them.
 */
#include "api/accept/listener.h"
#include "api/accept/peer_quota.h"
#include "api/accept/pending_connection.h"
#include "api/core/ep.h"
#include "api/core/fabric.h"
#include "api/loop/service.h"
#include "api/setup/setup.h"
#include "negotiation/tls.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

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

/* --------------------------------------------------------------------------------------- taking */

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
                /* It was the last call with none: all calls may take the rest. */
                rdmux_listener_poke_waits(listener);
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
static enum rdmux_status take_pending_arrival(struct rdmux_pending_connection *pending,
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
    return take_pending_arrival(pending, out);
}

void rdmux_listener_end_setup(struct rdmux_listener *listener, struct rdmux_peer_quota *quota)
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
    enum rdmux_status status = take_pending_arrival(pending, out);
    if (status != RDMUX_OK) {
        rdmux_listener_end_setup(listener, quota);
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

/* -------------------------------------------------------------------------------------- showing */

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

/* ------------------------------------------------------------------------------------ rejecting */

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
        rdmux_count(&fabric->counts.rejected);
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
    if (listener->rdmacm != NULL) {
        return reject_rdmacm(listener, peer, reason, private_data, length);
    }
    struct rdmux_pending_connection *pending = take_pending(listener, peer, NULL, NULL);
    if (pending == NULL) {
        return rdmux_fail(RDMUX_INVALID, "rdmux_reject: peer %llu is not a waiting connection",
                          (unsigned long long)peer);
    }
    /* a peer that has closed needs no answer */
    (void)rdmux_pending_say_reject(pending, reason, private_data, length);
    rdmux_count(&listener->fabric->counts.rejected);
    close(pending->socket);
    rdmux_pending_free(pending);
    return RDMUX_OK;
}
