/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * The record of a pending connection: its place in the listener's lists, how it becomes known, how
 * it is turned away, how it ends.
 */
#include "api/accept/pending_connection.h"

#include "api/accept/listener.h"
#include "api/accept/peer_quota.h"
#include "api/accept/sessions.h"
#include "api/accept/shake.h"
#include "api/base/address.h"
#include "api/core/fabric.h"
#include "api/loop/service.h"
#include "api/object/offer.h"
#include "api/system/system.h"
#include "negotiation/control_capture.h"
#include "negotiation/message.h"
#include "negotiation/tls.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    /* accept timeout of connections of a crowd, if the program has set none */
    CROWD_TIMEOUT_MS = 10000,
    IGNORED_MAX = 64 << 10, /* bytes discarded from a rejected peer before its socket is closed */
};

static bool stage_may_follow(enum rdmux_pending_stage before, enum rdmux_pending_stage next)
{
    switch (next) {
    case RDMUX_PENDING_GREETING:
        return false;
    case RDMUX_PENDING_SHAKING:
        return before == RDMUX_PENDING_GREETING || before == RDMUX_PENDING_STEPPING;
    case RDMUX_PENDING_STEPPING:
        return before == RDMUX_PENDING_SHAKING;
    case RDMUX_PENDING_SECURED:
        return before == RDMUX_PENDING_STEPPING;
    case RDMUX_PENDING_TURNED_AWAY:
        return before == RDMUX_PENDING_GREETING || before == RDMUX_PENDING_STEPPING ||
               before == RDMUX_PENDING_SECURED;
    case RDMUX_PENDING_INTRODUCED:
        return before == RDMUX_PENDING_GREETING || before == RDMUX_PENDING_SECURED;
    }
    return false;
}

void rdmux_pending_set_stage(struct rdmux_pending_connection *pending,
                             enum rdmux_pending_stage stage)
{
    bool allowed = stage_may_follow(pending->stage, stage);
    assert(allowed);
    (void)allowed;
    pending->stage = stage;
}

/* Removes a pending connection from its lists and counts; fabric->lock is held. */
void rdmux_pending_unlink(struct rdmux_pending_connection *pending)
{
    struct rdmux_listener *listener = pending->listener;
    rdmux_session_leave_place(pending);
    rdmux_peer_quota_leave(pending);
    rdmux_list_remove(&pending->link);
    listener->count--;
    if (pending->stage == RDMUX_PENDING_INTRODUCED && !pending->is_shown) {
        listener->unshown--;
        rdmux_listener_update_descriptor(listener);
    }
}

/* Ends the connection of the peer. */
void rdmux_pending_hang_up(struct rdmux_pending_connection *pending)
{
    if (pending->call != NULL) {
        pending->call->ops->call_drop(pending->call, 0, NULL, 0);
        pending->call = NULL;
        return;
    }
    if (pending->socket >= 0) {
        close(pending->socket);
    }
}

/* Ends the TLS handshake. Before the peer quota is freed, which holds the queue of the step. */
static void leave_handshake(struct rdmux_pending_connection *pending)
{
    if (pending->shake == NULL) {
        return;
    }
    if (!rdmux_shake_end(pending->shake, NULL)) {
        pending->socket = -1; /* the TLS thread closes it */
    }
    pending->shake = NULL;
    /* The thread may have finished a step since the watch was removed. */
    rdmux_service_forget(pending->listener->fabric, &pending->watch);
}

void rdmux_pending_free(struct rdmux_pending_connection *pending)
{
    struct rdmux_fabric *fabric = pending->listener->fabric;
    rdmux_tls_destroy(pending->tls);
    if (pending->bytes != pending->first) {
        rdmux_release(fabric, pending->bytes);
    }
    /* a JOIN in clear contains the secret */
    rdmux_release_wiped(fabric, pending, sizeof(*pending));
}

void rdmux_pending_unwatch(struct rdmux_pending_connection *pending)
{
    if (pending->call == NULL) {
        rdmux_service_unwatch(pending->listener->fabric, pending->socket, &pending->watch);
    }
}

void rdmux_pending_address(struct rdmux_pending_connection *pending, char out[RDMUX_ADDRESS_MAX])
{
    if (pending->call != NULL) {
        memcpy(out, pending->call->peer_address, RDMUX_ADDRESS_MAX);
    } else {
        rdmux_address_format((struct sockaddr *)&pending->address, pending->address_length, out);
    }
}

bool rdmux_pending_say_reject(struct rdmux_pending_connection *pending, uint32_t reason,
                              const void *private_data, size_t length)
{
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
    rdmux_hello_fill(pending->listener->fabric, &hello);
    rdmux_hello_encode(&hello, frame);
    size_t size = RDMUX_HELLO_SIZE + rdmux_message_encode(&message, frame + RDMUX_HELLO_SIZE);
    return rdmux_pending_say(pending, frame, size);
}

/* Tells a peer that has introduced itself that it may come back. */
static void say_busy(struct rdmux_pending_connection *pending)
{
    /* a caller of rdma:// knows no number of rdmux */
    if (pending->call == NULL && pending->stage == RDMUX_PENDING_INTRODUCED) {
        /* a peer that has closed needs no answer */
        (void)rdmux_pending_say_reject(pending, RDMUX_REJECT_BUSY, NULL, 0);
    }
}

/* Ends a pending connection, and counts it unless `why` is NULL or its peer was told already. */
static void end_pending(struct rdmux_pending_connection *pending, const char *why,
                        _Atomic uint64_t *count)
{
    struct rdmux_fabric *fabric = pending->listener->fabric;
    char from[RDMUX_ADDRESS_MAX];
    if (why != NULL && pending->stage != RDMUX_PENDING_TURNED_AWAY) {
        rdmux_count(count);
    }
    rdmux_pending_address(pending, from);
    if (why != NULL && rdmux_listener_may_tell(pending->listener)) {
        rdmux_log(fabric, RDMUX_LOG_WARN, "listener %s: connection from %s: %s; dropped",
                  pending->listener->address, from, why);
    }
    rdmux_pending_unwatch(pending);
    leave_handshake(pending);
    pthread_mutex_lock(&fabric->lock);
    rdmux_pending_unlink(pending);
    pthread_mutex_unlock(&fabric->lock);
    rdmux_pending_hang_up(pending);
    rdmux_pending_free(pending);
}

void rdmux_pending_drop(struct rdmux_pending_connection *pending, const char *why)
{
    end_pending(pending, why, &pending->listener->fabric->counts.dropped);
}

void rdmux_pending_evict(struct rdmux_pending_connection *pending, const char *why)
{
    say_busy(pending);
    end_pending(pending, why, &pending->listener->fabric->counts.evicted);
}

void rdmux_pending_expire(struct rdmux_pending_connection *pending, const char *why)
{
    say_busy(pending);
    end_pending(pending, why, &pending->listener->fabric->counts.expired);
}

/* Like send(2), all or nothing: a few KiB on a fresh socket fit, unless the peer is dead. */
bool rdmux_pending_say(struct rdmux_pending_connection *pending, const uint8_t *bytes, size_t size)
{
    rdmux_capture_control(pending->listener->fabric, pending->socket, RDMUX_CAPTURE_OUT, bytes,
                          size, pending->tls != NULL);
    if (pending->tls == NULL) {
        return send(pending->socket, bytes, size, MSG_NOSIGNAL) == (ssize_t)size;
    }
    while (size != 0) {
        size_t done = 0;
        if (rdmux_tls_send(pending->tls, bytes, size, &done) != RDMUX_OK) {
            return false;
        }
        bytes += done;
        size -= done;
    }
    return true;
}

/* Makes the service thread return when there are bytes to read, or room for what the session has to
 * send. False: the connection was dropped. */
bool rdmux_pending_await_more(struct rdmux_pending_connection *pending)
{
    struct rdmux_fabric *fabric = pending->listener->fabric;
    const struct rdmux_tls *tls = pending->shake != NULL ? pending->shake->tls : pending->tls;
    bool room = tls != NULL && rdmux_tls_wants_room(tls);
    uint32_t events = room ? RDMUX_READY_IN | RDMUX_READY_OUT : RDMUX_READY_IN;
    if (events == pending->events) {
        return true;
    }
    rdmux_service_unwatch(fabric, pending->socket, &pending->watch);
    if (rdmux_service_watch(fabric, pending->socket, events, &pending->watch) != RDMUX_OK) {
        rdmux_pending_drop(pending, "cannot be watched");
        return false;
    }
    pending->events = events;
    return true;
}

void rdmux_pending_becomes_known(struct rdmux_pending_connection *pending)
{
    struct rdmux_listener *listener = pending->listener;
    struct rdmux_fabric *fabric = listener->fabric;
    uint64_t now_ns = rdmux_now(fabric);
    uint64_t limit_ms = listener->acceptor.timeout_ms != 0 ? listener->acceptor.timeout_ms
                                                           : CROWD_TIMEOUT_MS;
    struct rdmux_pending_connection *oldest = NULL;
    pending->deadline_ns = limit_ms == RDMUX_NEVER ? UINT64_MAX : now_ns + limit_ms * 1000000;
    pthread_mutex_lock(&fabric->lock);
    rdmux_peer_quota_introduce(pending);
    rdmux_list_remove(&pending->link);
    rdmux_list_append(&listener->introduced, &pending->link);
    rdmux_pending_set_stage(pending, RDMUX_PENDING_INTRODUCED);
    rdmux_count(&fabric->counts.introduced);
    listener->unshown++;
    rdmux_listener_update_descriptor(listener);
    pthread_cond_broadcast(&listener->changed);
    rdmux_listener_poke_waits(listener);
    const struct rdmux_peer_quota *quota = pending->quota;
    if (quota->introduced_count > listener->max_waiting_per_address) {
        oldest = RDMUX_CONTAINER(quota->introduced.next, struct rdmux_pending_connection,
                                 quota_link);
    }
    bool timed = limit_ms != RDMUX_NEVER &&
                 (listener->acceptor.timeout_ms != 0 || rdmux_peer_quota_is_crowd(quota));
    pthread_mutex_unlock(&fabric->lock);
    if (oldest != NULL) {
        rdmux_pending_evict(oldest, "too many connections of its address or identity wait");
    }
    if (timed) {
        rdmux_service_timer(fabric, now_ns + RDMUX_PENDING_TIMER_NS);
    }
}

/* The peer has been told that it is rejected. Its socket stays open until the peer closes or the
 * timeout: closing a socket with unread bytes would discard the answer. */
void rdmux_pending_turn_away(struct rdmux_pending_connection *pending, const char *why)
{
    struct rdmux_listener *listener = pending->listener;
    rdmux_count(&listener->fabric->counts.turned_away);
    if (rdmux_listener_may_tell(listener)) {
        char from[RDMUX_ADDRESS_MAX];
        rdmux_pending_address(pending, from);
        rdmux_log(listener->fabric, RDMUX_LOG_WARN,
                  "listener %s: connection from %s: %s; turned away", listener->address, from, why);
    }
    (void)shutdown(pending->socket, SHUT_WR);
    rdmux_tls_destroy(pending->tls);
    pending->tls = NULL;
    rdmux_pending_set_stage(pending, RDMUX_PENDING_TURNED_AWAY);
}

/* Discards what a rejected peer sends. False: the pending connection was dropped. */
bool rdmux_pending_ignore(struct rdmux_pending_connection *pending)
{
    uint8_t waste[1024];
    for (;;) {
        ssize_t got = recv(pending->socket, waste, sizeof(waste), MSG_DONTWAIT);
        if (got > 0) {
            pending->ignored += (size_t)got;
        }
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            return true;
        }
        if (got == 0 || (got < 0 && errno != EINTR) || pending->ignored > IGNORED_MAX) {
            rdmux_pending_drop(pending, NULL);
            return false;
        }
    }
}
