/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Listeners: one TCP address for all paths. The service thread accepts sockets (listener_socket.c);
 * pending_*.c read what each peer sends first. listener_take.c shows the pending connections to the
 * program and takes them. An rdma:// listener has no socket (listener_rdmacm.c).
 */
#include "api/accept/listener.h"

#include "api/accept/peer_quota.h"
#include "api/accept/pending_connection.h"
#include "api/accept/sessions.h"
#include "api/core/cq.h"
#include "api/core/ep.h"
#include "api/core/fabric.h"
#include "api/loop/descriptors.h"
#include "api/loop/service.h"
#include "api/progress/cq_owner.h"
#include "api/setup/rdmacm_endpoint.h"
#include "api/setup/setup.h"
#include "api/system/system.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

/* ------------------------------------------------------------------------------------- timeouts */

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
            rdmux_pending_expire(pending, "nobody has accepted it in time");
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
        if (listener->state == RDMUX_LISTENER_RESTING) {
            rdmux_listener_watch_again(listener);
            waiting = waiting || listener->state == RDMUX_LISTENER_RESTING;
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
            if (rdmux_pending_is_silent(oldest)) {
                rdmux_pending_expire(oldest, "has not introduced itself in time");
            }
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

/* ------------------------------------------------ struct rdmux_acceptor, for accepted endpoints */

static void release_endpoint(struct rdmux_ep *ep)
{
    struct rdmux_listener *listener = rdmux_listener_of(ep->accept.acceptor);
    rdmux_listener_end_setup(listener, ep->accept.quota);
    rdmux_setup_set_acceptor(ep, NULL, NULL);
    rdmux_listener_put(listener);
}

static bool is_closed(struct rdmux_acceptor *acceptor)
{
    struct rdmux_listener *listener = rdmux_listener_of(acceptor);
    pthread_mutex_lock(&listener->fabric->lock);
    bool closed = listener->state == RDMUX_LISTENER_CLOSED;
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

/* ----------------------------------------------------------------------------------------- life */

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
    (void)rdmux_wake_open(&listener->event);
    listener->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

    uint32_t backlog = 0;
    enum rdmux_status status = rdmux_listener_take_attr(listener, attr, &backlog);
    if (status == RDMUX_OK && (listener->event.fd < 0 || listener->spare_fd < 0)) {
        status = rdmux_fail(
            RDMUX_NO_MEMORY,
            "rdmux_listen: no descriptor to be had; raise the limit with ulimit -n");
    }
    const char *rdmacm = rdmux_rdmacm_address(address);
    if (status == RDMUX_OK) {
        status = rdmacm != NULL ? rdmux_listener_listen_rdmacm(listener, rdmacm, backlog)
                                : rdmux_listener_bind(listener, address, backlog);
    }
    if (status == RDMUX_OK) {
        listener->descriptors = rdmux_descriptor_limit();
        rdmux_listener_set_limits(listener);
        rdmux_listener_tell_limits(listener);
        pthread_mutex_lock(&fabric->lock);
        rdmux_list_append(&fabric->listeners, &listener->link);
        pthread_mutex_unlock(&fabric->lock);
        status = rdmux_service_watch(fabric, watched_fd(listener), RDMUX_READY_IN, &listener->watch);
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
    rdmux_wake_close(&listener->event);
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
    rdmux_listener_set_state(listener, RDMUX_LISTENER_CLOSED);
    for (struct rdmux_list *at = fabric->cqs.next; at != &fabric->cqs; at = at->next) {
        rdmux_cq_poke(RDMUX_CONTAINER(at, struct rdmux_cq, link));
    }
    pthread_mutex_unlock(&fabric->lock);
    rdmux_listener_put(listener);
}

/* ----------------------------------------------------------------------------------- attributes */

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
    return listener == NULL || *listener->fabric->alive == 0 ? -1 : listener->event.fd;
}
