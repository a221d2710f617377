/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Pending connections, from the first byte until they are taken. The service thread reads exactly
 * what a peer sends first: either the HELLO and OFFER of a connection, which is then shown and
 * taken; or a JOIN, whose socket is handed to the cq of the connection with that secret. A pending
 * connection costs one small record until it has sent something valid. When there are too many, or
 * too many of one address, the peer quota that holds the most loses one. If the fabric
 * authenticates, only the HELLO arrives in clear, and all else through the TLS session.
 */
#include "api/accept/pending_connection.h"

#include "api/accept/listener.h"
#include "api/accept/peer_quota.h"
#include "api/accept/sessions.h"
#include "api/accept/shake.h"
#include "api/base/address.h"
#include "api/core/ep.h"
#include "api/core/fabric.h"
#include "api/failover/failover.h"
#include "api/loop/service.h"
#include "api/object/joins.h"
#include "api/object/offer.h"
#include "api/progress/cq_owner.h"
#include "api/setup/setup.h"
#include "negotiation/auth_methods.h"
#include "negotiation/path_secret.h"
#include "negotiation/tls.h"

#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum {
    /* Limit of the OFFER of a pending connection: more than 32 paths take with all their texts. */
    PENDING_OFFER_MAX = 48 << 10,
    /* accept timeout of connections of a crowd, if the program has set none */
    CROWD_TIMEOUT_MS = 10000,
    IGNORED_MAX = 64 << 10, /* bytes discarded from a rejected peer before its socket is closed */
    TURN_READS = 64,        /* reads from one pending connection before others have their turn */
    RECORD_HEADER_SIZE = 5, /* of a TLS record (RFC 8446, 5.1); the length is its last field */
    RECORD_AT_LENGTH = 3,
    RECORD_MAX = RECORD_HEADER_SIZE + (16 << 10) + 256,
};

/* -------------------------------------------------------------------------- pending connections */

/* Removes a pending connection from its lists and counts; fabric->lock is held. */
void rdmux_pending_unlink(struct rdmux_pending_connection *pending)
{
    struct rdmux_listener *listener = pending->listener;
    rdmux_session_leave_place(pending);
    rdmux_peer_quota_leave(pending);
    rdmux_list_remove(&pending->link);
    listener->count--;
    if (pending->is_introduced && !pending->is_shown) {
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

void rdmux_pending_drop(struct rdmux_pending_connection *pending, const char *why)
{
    struct rdmux_fabric *fabric = pending->listener->fabric;
    char from[RDMUX_ADDRESS_MAX];
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

/* A JOIN: hands the socket to the connection with this secret. */
static void hand_over_join(struct rdmux_pending_connection *pending)
{
    struct rdmux_fabric *fabric = pending->listener->fabric;
    struct rdmux_join join;
    if (rdmux_join_decode(pending->bytes, &join) != RDMUX_OK) {
        rdmux_pending_drop(pending, "says JOIN, but not as the protocol does");
        return;
    }
    struct rdmux_join_mail *mail = rdmux_allocate(fabric, sizeof(*mail));
    if (mail == NULL) {
        rdmux_pending_drop(pending, "out of memory");
        return;
    }
    rdmux_service_unwatch(fabric, pending->socket, &pending->watch);
    mail->mail.deliver = rdmux_ep_deliver_join;
    mail->fabric = fabric;
    mail->join = join;
    mail->socket = pending->socket;
    pthread_mutex_lock(&fabric->lock);
    const struct rdmux_ep *ep = rdmux_joins_find_locked(fabric, NULL, &join);
    explicit_bzero(&join, sizeof(join));
    if (ep != NULL) {
        rdmux_cq_mail(ep->cq, &mail->mail);
    }
    rdmux_pending_unlink(pending);
    pthread_mutex_unlock(&fabric->lock);
    if (ep == NULL) {
        if (rdmux_listener_may_tell(pending->listener)) {
            rdmux_log(fabric, RDMUX_LOG_WARN,
                      "listener %s: a data socket for an unknown endpoint; dropped",
                      pending->listener->address);
        }
        close(pending->socket);
        rdmux_release_wiped(fabric, mail, sizeof(*mail));
    }
    rdmux_pending_free(pending);
}

/* A HELLO that asks for a control-channel reconnect: hands the socket to the endpoint. If the
 * endpoint does not exist any more, the peer receives a HELLO that names no connection. */
static void hand_over_reconnect(struct rdmux_pending_connection *pending)
{
    struct rdmux_fabric *fabric = pending->listener->fabric;
    struct rdmux_reconnect_mail *mail = rdmux_allocate(fabric, sizeof(*mail));
    if (mail == NULL) {
        rdmux_pending_drop(pending, "out of memory");
        return;
    }
    rdmux_service_unwatch(fabric, pending->socket, &pending->watch);
    mail->fabric = fabric;
    mail->socket = pending->socket;
    mail->tls = pending->tls;
    memcpy(mail->hello, pending->bytes, RDMUX_HELLO_SIZE);
    pthread_mutex_lock(&fabric->lock);
    rdmux_pending_unlink(pending);
    pthread_mutex_unlock(&fabric->lock);
    if (rdmux_reconnect_find(fabric, mail)) {
        pending->tls = NULL;
    } else {
        struct rdmux_hello hello;
        uint8_t bytes[RDMUX_HELLO_SIZE];
        rdmux_hello_fill(fabric, &hello);
        rdmux_hello_encode(&hello, bytes);
        (void)rdmux_pending_say(pending, bytes, sizeof(bytes)); /* the peer may have closed, too */
        if (rdmux_listener_may_tell(pending->listener)) {
            rdmux_log(fabric, RDMUX_LOG_WARN,
                      "listener %s: a connection is resumed that is not there; dropped",
                      pending->listener->address);
        }
        close(pending->socket);
        rdmux_release(fabric, mail);
    }
    rdmux_pending_free(pending);
}

/* Like send(2), all or nothing: a few KiB on a fresh socket fit, unless the peer is dead. */
bool rdmux_pending_say(struct rdmux_pending_connection *pending, const uint8_t *bytes, size_t size)
{
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

/* `rdmux explain`: ranks and answers here, without a connection. */
static void answer_explain(struct rdmux_pending_connection *pending)
{
    struct rdmux_listener *listener = pending->listener;
    struct rdmux_fabric *fabric = listener->fabric;
    struct rdmux_offer *offer = rdmux_allocate(fabric, sizeof(*offer));
    void *memory = rdmux_allocate(fabric, rdmux_handshake_size());
    struct rdmux_handshake *handshake = NULL;
    if (offer != NULL && memory != NULL) {
        struct rdmux_handshake_config config = {
            .role = RDMUX_ROLE_ACCEPT,
            .hello_timeout_ms = listener->hello_timeout_ms,
            .offer = offer,
            .received = pending->bytes,
            .received_size = pending->have,
            .is_secured = pending->tls != NULL,
        };
        rdmux_offer_defaults(fabric, listener->paths, offer);
        rdmux_hello_fill(fabric, &config.hello);
        if (rdmux_handshake_init(memory, &config, rdmux_now(fabric), &handshake) == RDMUX_OK) {
            struct rdmux_handshake_action action;
            for (rdmux_handshake_next(handshake, &action); action.kind == RDMUX_ACTION_SEND;
                 rdmux_handshake_next(handshake, &action)) {
                if (!rdmux_pending_say(pending, action.bytes, action.size)) {
                    break;
                }
            }
        }
    }
    rdmux_release(fabric, memory);
    rdmux_release(fabric, offer);
    rdmux_pending_drop(pending, NULL);
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
    pending->is_introduced = true;
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
        rdmux_pending_drop(oldest, "too many connections of its address or identity wait");
    }
    if (timed) {
        rdmux_service_timer(fabric, now_ns + RDMUX_PENDING_TIMER_NS);
    }
}

/* HELLO and OFFER are complete. */
static void introduce_connection(struct rdmux_pending_connection *pending)
{
    struct rdmux_listener *listener = pending->listener;
    struct rdmux_fabric *fabric = listener->fabric;
    struct rdmux_hello hello;
    if (pending->bytes[pending->hello_size] != RDMUX_FRAME_OFFER) {
        rdmux_pending_drop(pending, "its second frame is no OFFER");
        return;
    }
    if (rdmux_hello_decode(pending->bytes, pending->hello_size, &hello) == RDMUX_OK &&
        (hello.flags & RDMUX_HELLO_EXPLAIN_ONLY) != 0) {
        answer_explain(pending);
        return;
    }
    struct rdmux_offer *offer = rdmux_allocate(fabric, sizeof(*offer));
    if (offer == NULL) {
        rdmux_pending_drop(pending, "out of memory");
        return;
    }
    size_t offer_at = pending->hello_size + RDMUX_FRAME_HEADER_SIZE;
    enum rdmux_status status = rdmux_offer_decode(pending->bytes + offer_at,
                                                  pending->have - offer_at, offer);
    if (status == RDMUX_OK) {
        pending->private_length = offer->private_length;
        memcpy(pending->private_data, offer->private_data, sizeof(pending->private_data));
    }
    rdmux_release(fabric, offer);
    if (status != RDMUX_OK) {
        rdmux_pending_drop(pending, "its OFFER breaks the protocol");
        return;
    }
    rdmux_pending_becomes_known(pending);
}

/* The peer has been told that it is rejected. Its socket stays open until the peer closes or the
 * timeout: closing a socket with unread bytes would discard the answer. */
static void turn_away(struct rdmux_pending_connection *pending, const char *why)
{
    struct rdmux_listener *listener = pending->listener;
    if (rdmux_listener_may_tell(listener)) {
        char from[RDMUX_ADDRESS_MAX];
        rdmux_pending_address(pending, from);
        rdmux_log(listener->fabric, RDMUX_LOG_WARN,
                  "listener %s: connection from %s: %s; turned away", listener->address, from, why);
    }
    (void)shutdown(pending->socket, SHUT_WR);
    rdmux_tls_destroy(pending->tls);
    pending->tls = NULL;
    pending->is_turned_away = true;
}

/* No authentication method in common: sends this side's methods, in clear. */
static void turn_away_other_methods(struct rdmux_pending_connection *pending, uint32_t theirs)
{
    struct rdmux_listener *listener = pending->listener;
    struct rdmux_hello hello;
    uint8_t bytes[RDMUX_HELLO_SIZE];
    char text[RDMUX_TEXT_MAX];
    char why[RDMUX_ERROR_MAX];
    rdmux_hello_fill(listener->fabric, &hello);
    rdmux_hello_encode(&hello, bytes);
    /* a peer that has closed needs no answer */
    (void)rdmux_pending_say(pending, bytes, sizeof(bytes));
    rdmux_auth_explain_mismatch(hello.authentication, theirs, text, sizeof(text));
    snprintf(why, sizeof(why), "authentication: %s", text);
    turn_away(pending, why);
}

/* Discards what a rejected peer sends. False: the pending connection was dropped. */
static bool ignore_connection(struct rdmux_pending_connection *pending)
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

/* Evaluates the HELLO in clear. False: the pending connection was dropped. */
static bool greet_connection(struct rdmux_pending_connection *pending)
{
    struct rdmux_fabric *fabric = pending->listener->fabric;
    uint32_t ours = rdmux_auth_methods(fabric->auth);
    struct rdmux_hello hello;
    bool understood = rdmux_hello_decode(pending->bytes, RDMUX_HELLO_SIZE, &hello) == RDMUX_OK;
    if (!understood && ours != 0) {
        rdmux_pending_drop(pending, "says HELLO, but not as the protocol does");
        return false;
    }
    if (!understood) {
        return true; /* for example another byte order: the handshake reports it */
    }
    if ((hello.authentication & ours) == 0 && (hello.authentication | ours) != 0) {
        turn_away_other_methods(pending, hello.authentication);
        return ignore_connection(pending);
    }
    if (ours == 0) {
        return true;
    }
    pending->has_greeted = true;
    return true;
}

/* Like recv(2), through the TLS session if there is one. EPROTO: not a valid peer, the error text
 * tells why. */
static ssize_t hear_connection(struct rdmux_pending_connection *pending, uint8_t *out, size_t size)
{
    if (pending->tls == NULL) {
        return recv(pending->socket, out, size, 0);
    }
    size_t got = 0;
    switch (rdmux_tls_receive(pending->tls, out, size, &got)) {
    case RDMUX_OK:
        return (ssize_t)got;
    case RDMUX_AGAIN:
        errno = EAGAIN;
        return -1;
    case RDMUX_PEER_GONE:
        return 0;
    default:
        errno = EPROTO;
        return -1;
    }
}

/* ------------------------------------------------------------------------------- TLS handshakes */

/* Returns true if the first TLS record is complete in the socket, or no more will come. Until then
 * the connection costs no session. The socket wakes the service thread when the record is complete,
 * or the socket has ended. */
static bool is_first_record_whole(const struct rdmux_pending_connection *pending)
{
    uint8_t header[RECORD_HEADER_SIZE];
    int need = RECORD_HEADER_SIZE;
    int have = 0;
    struct pollfd look = { .fd = pending->socket, .events = POLLRDHUP };
    if (recv(pending->socket, header, sizeof(header), MSG_PEEK | MSG_DONTWAIT) ==
        (ssize_t)sizeof(header)) {
        need += header[RECORD_AT_LENGTH] << 8 | header[RECORD_AT_LENGTH + 1];
    }
    bool whole = need > RECORD_MAX || ioctl(pending->socket, FIONREAD, &have) != 0 ||
                 have >= need || poll(&look, 1, 0) != 0;
    need = whole ? 1 : need;
    (void)setsockopt(pending->socket, SOL_SOCKET, SO_RCVLOWAT, &need, sizeof(need));
    return whole;
}

/* Queues a handshake step: the TLS computation is not done by this thread. False: the connection
 * was dropped. */
static bool queue_handshake(struct rdmux_pending_connection *pending)
{
    struct rdmux_fabric *fabric = pending->listener->fabric;
    rdmux_pending_unwatch(pending);
    pending->events = 0;
    if (!rdmux_session_take_place(pending)) {
        return true;
    }
    if (pending->shake == NULL) {
        pending->shake = rdmux_shake_begin(fabric, pending->socket, pending->bytes, &pending->watch);
    }
    if (pending->shake == NULL || !rdmux_shake_queue(pending->shake, &pending->quota->shakes)) {
        rdmux_pending_drop(pending, "out of memory");
        return false;
    }
    pending->is_stepping = true;
    return true;
}

/* The peer is authenticated: what follows comes through the TLS session. */
static void take_session(struct rdmux_pending_connection *pending)
{
    (void)rdmux_shake_end(pending->shake, &pending->tls);
    pending->shake = NULL;
    rdmux_session_leave_place(pending);
    pending->have = 0;
    pending->hello_size = 0;
}

/* Makes the service thread return when there are bytes to read, or room for what the session has to
 * send. False: the connection was dropped. */
static bool await_more(struct rdmux_pending_connection *pending)
{
    struct rdmux_fabric *fabric = pending->listener->fabric;
    const struct rdmux_tls *tls = pending->shake != NULL ? pending->shake->tls : pending->tls;
    bool room = tls != NULL && rdmux_tls_wants_room(tls);
    uint32_t events = room ? EPOLLIN | EPOLLOUT : EPOLLIN;
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

/* Evaluates a completed handshake step. False: the connection was dropped. */
static bool end_step(struct rdmux_pending_connection *pending)
{
    const struct rdmux_shake *shake = pending->shake;
    assert(shake != NULL);
    char why[sizeof(shake->text)];
    switch (shake->status) {
    case RDMUX_OK:
        take_session(pending);
        return await_more(pending);
    case RDMUX_AGAIN:
        pending->idle_since_ns = rdmux_now(pending->listener->fabric);
        return await_more(pending);
    case RDMUX_PEER_GONE:
        rdmux_pending_drop(pending, "ended before it had introduced itself");
        return false;
    case RDMUX_NO_MEMORY:
        rdmux_pending_drop(pending, "out of memory");
        return false;
    default:
        memcpy(why, pending->shake->text, sizeof(why));
        (void)rdmux_shake_end(pending->shake, NULL);
        pending->shake = NULL;
        rdmux_session_leave_place(pending);
        turn_away(pending, why);
        return ignore_connection(pending) && await_more(pending);
    }
}

/* The connection broke, or the peer is not valid. False: the connection was dropped. */
static bool end_failed(struct rdmux_pending_connection *pending, ssize_t got)
{
    if (got < 0 && errno == EPROTO && pending->tls != NULL) {
        char why[RDMUX_ERROR_MAX];
        snprintf(why, sizeof(why), "%s", rdmux_last_error());
        turn_away(pending, why);
        return ignore_connection(pending);
    }
    rdmux_pending_drop(pending, pending->have == 0 && pending->tls == NULL
                                    ? NULL
                                    : "ended before it had introduced itself");
    return false;
}

/* Begins or advances the TLS handshake. False: the connection was dropped. */
static bool shake_hands(struct rdmux_pending_connection *pending)
{
    if (pending->shake != NULL && rdmux_shake_is_busy(pending->shake)) {
        return true;
    }
    if (pending->is_stepping) {
        pending->is_stepping = false;
        return end_step(pending);
    }
    if (pending->shake == NULL && !is_first_record_whole(pending)) {
        return await_more(pending);
    }
    return queue_handshake(pending);
}

/* Reads no further than HELLO and OFFER, or JOIN. False: the connection is introduced, handed over
 * or dropped. */
static bool read_pending(struct rdmux_pending_connection *pending)
{
    struct rdmux_fabric *fabric = pending->listener->fabric;
    for (int reads = 0; reads < TURN_READS; reads++) {
        bool bad = false;
        if (pending->is_turned_away) {
            return ignore_connection(pending);
        }
        if (pending->has_greeted && pending->tls == NULL) {
            if (!shake_hands(pending)) {
                return false;
            }
            if (pending->tls == NULL) {
                return true;
            }
        }
        size_t part = pending->have - pending->hello_size;
        size_t total = rdmux_frame_total(pending->bytes + pending->hello_size, part,
                                         pending->hello_size == 0, &bad);
        if (bad || total > PENDING_OFFER_MAX) {
            rdmux_pending_drop(pending, "does not speak this protocol");
            return false;
        }
        size_t want = total == 0 ? RDMUX_FRAME_HEADER_SIZE : total;
        if (total != 0 && part == total) {
            if (pending->hello_size != 0) {
                introduce_connection(pending);
                return false;
            }
            if (rdmux_frame_is_join(pending->bytes)) {
                hand_over_join(pending);
                return false;
            }
            pending->hello_size = total;
            if (pending->tls == NULL && !greet_connection(pending)) {
                return false;
            }
            /* a reconnect is asked for again inside the session */
            bool in_clear = pending->has_greeted && pending->tls == NULL;
            if (!in_clear && rdmux_reconnect_is_asked(pending->bytes)) {
                hand_over_reconnect(pending);
                return false;
            }
            continue;
        }
        if (pending->hello_size + want > RDMUX_PENDING_FIRST_SIZE &&
            pending->bytes == pending->first) {
            uint8_t *bytes = rdmux_allocate(fabric, pending->hello_size + want);
            if (bytes == NULL) {
                rdmux_pending_drop(pending, "out of memory");
                return false;
            }
            memcpy(bytes, pending->first, pending->have);
            pending->bytes = bytes;
        }
        ssize_t got = hear_connection(pending, pending->bytes + pending->have, want - part);
        if (got > 0) {
            pending->have += (size_t)got;
        } else if (got < 0 && errno == EINTR) {
            continue;
        } else if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            return await_more(pending);
        } else {
            return end_failed(pending, got);
        }
    }
    rdmux_service_call(fabric,
                       &pending->watch); /* the socket does not report what the session holds */
    return true;
}

/* Evicts one of too many, if it is really silent: its bytes may merely not be read yet. */
static void drop_if_silent(struct rdmux_pending_connection *pending, const char *why)
{
    /* its handshake takes longer than this read */
    bool shakes = pending->has_greeted && pending->tls == NULL;
    if (pending->call != NULL || shakes || read_pending(pending)) {
        rdmux_pending_drop(pending, why);
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
    if (found == newcomer || found->is_introduced) {
        rdmux_pending_drop(found, why);
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

static void pending_ready(struct rdmux_fabric *fabric, struct rdmux_watch *watch)
{
    struct rdmux_pending_connection *pending = RDMUX_CONTAINER(
        watch, struct rdmux_pending_connection, watch);
    if (!pending->is_introduced) {
        read_pending(pending);
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
    pending->events = EPOLLIN;
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
    int one = 1;
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    if (rdmux_service_watch(fabric, socket, EPOLLIN, &pending->watch) != RDMUX_OK) {
        rdmux_pending_drop(pending, "cannot be watched");
        return;
    }
    rdmux_service_timer(fabric, rdmux_now(fabric) + RDMUX_PENDING_TIMER_NS);
    (void)rdmux_pending_has_room(pending); /* false: it is freed */
}
