/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Connections that nobody has taken yet, from the first byte on. The service thread reads exactly what
 * each says first: HELLO and OFFER of a connection, which then waits to be shown and taken; or JOIN, which
 * is handed to the cq of the connection with that secret. Strangers cost one small record each until they
 * have said something sensible; when there are too many, or too many of one address, one of those goes that
 * have the most. Where the fabric authenticates, only the HELLO comes in clear, and all else through the session.
 */
#include "api/stranger.h"

#include "api/address.h"
#include "api/failover.h"
#include "negotiation/auth_methods.h"
#include "negotiation/path_secret.h"

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
    /* Bytes of an OFFER that a stranger may have us keep: more than 32 paths take with all their
     * texts. */
    STRANGERS_OFFER_MAX = 48 << 10,
    CROWD_TIMEOUT_MS = 10000, /* how long one of too many waits to be taken */
    IGNORED_MAX = 64 << 10,   /* bytes dropped of one that was turned away, until it leaves */
    TURN_READS = 64,          /* of one stranger, until others have had their turn */
    RECORD_HEADER_SIZE = 5,   /* of TLS (RFC 8446, 5.1); the length is its end */
    RECORD_AT_LENGTH = 3,
    RECORD_MAX = RECORD_HEADER_SIZE + (16 << 10) + 256,
};

/* ------------------------------------------------------------------------------------ strangers */

/* Takes it off its list; fabric->lock is held. */
void rdmux_stranger_unlink(struct stranger *stranger)
{
    struct rdmux_listener *listener = stranger->listener;
    rdmux_session_leave_place(stranger);
    rdmux_origin_leave(stranger);
    rdmux_list_remove(&stranger->link);
    listener->count--;
    if (stranger->introduced && !stranger->shown) {
        listener->unshown--;
        rdmux_listener_update_descriptor(listener);
    }
}

/* Its connection ends. */
void rdmux_stranger_hang_up(struct stranger *stranger)
{
    if (stranger->call != NULL) {
        stranger->call->ops->call_drop(stranger->call, 0, NULL, 0);
        stranger->call = NULL;
        return;
    }
    if (stranger->socket >= 0) {
        close(stranger->socket);
    }
}

/* Before its origin goes, which has the queue that it may be in. */
static void leave_handshake(struct stranger *stranger)
{
    if (stranger->shake == NULL) {
        return;
    }
    if (!rdmux_shake_end(stranger->shake, NULL)) {
        stranger->socket = -1; /* the thread that computes for it closes it */
    }
    stranger->shake = NULL;
    /* The thread may have finished a step since the watch was removed. */
    rdmux_service_forget(stranger->listener->fabric, &stranger->watch);
}

void rdmux_stranger_free(struct stranger *stranger)
{
    struct rdmux_fabric *fabric = stranger->listener->fabric;
    rdmux_tls_destroy(stranger->tls);
    if (stranger->bytes != stranger->first) {
        rdmux_release(fabric, stranger->bytes);
    }
    rdmux_release_wiped(fabric, stranger, sizeof(*stranger)); /* a JOIN in clear has the secret */
}

void rdmux_stranger_unwatch(struct stranger *stranger)
{
    if (stranger->call == NULL) {
        rdmux_service_unwatch(stranger->listener->fabric, stranger->socket, &stranger->watch);
    }
}

void rdmux_stranger_address(struct stranger *stranger, char out[RDMUX_ADDRESS_MAX])
{
    if (stranger->call != NULL) {
        memcpy(out, stranger->call->peer_address, RDMUX_ADDRESS_MAX);
    } else {
        rdmux_address_format((struct sockaddr *)&stranger->address, stranger->address_length, out);
    }
}

void rdmux_stranger_drop(struct stranger *stranger, const char *why)
{
    struct rdmux_fabric *fabric = stranger->listener->fabric;
    char from[RDMUX_ADDRESS_MAX];
    rdmux_stranger_address(stranger, from);
    if (why != NULL && rdmux_listener_may_tell(stranger->listener)) {
        rdmux_log(fabric, RDMUX_LOG_WARN, "listener %s: connection from %s: %s; dropped",
                  stranger->listener->address, from, why);
    }
    rdmux_stranger_unwatch(stranger);
    leave_handshake(stranger);
    pthread_mutex_lock(&fabric->lock);
    rdmux_stranger_unlink(stranger);
    pthread_mutex_unlock(&fabric->lock);
    rdmux_stranger_hang_up(stranger);
    rdmux_stranger_free(stranger);
}

/* Is it the one that the socket joins? Where peers authenticate, no JOIN shows a secret. */
static bool is_joined(const struct rdmux_ep *ep, const struct rdmux_join *join)
{
    if (ep->fabric->auth == NULL) {
        return !join->sealed && rdmux_secret_matches(ep->secrets->secret, join->secret);
    }
    return rdmux_secret_matches(ep->secrets->join_name, join->secret) &&
           rdmux_join_is_sealed_by(join, ep->secrets->secret);
}

/* The endpoint in set-up that the socket joins; cq NULL: on any queue. fabric->lock is held. */
static struct rdmux_ep *find_join(struct rdmux_fabric *fabric, const struct rdmux_cq *cq,
                                  const struct rdmux_join *join)
{
    for (struct rdmux_list *at = fabric->joins.next; at != &fabric->joins; at = at->next) {
        struct rdmux_ep *ep = RDMUX_CONTAINER(at, struct rdmux_ep, join_link);
        if ((cq == NULL || ep->cq == cq) && is_joined(ep, join)) {
            return ep;
        }
    }
    return NULL;
}

struct rdmux_ep *rdmux_joins_find(struct rdmux_cq *cq, const struct rdmux_join *join)
{
    pthread_mutex_lock(&cq->fabric->lock);
    struct rdmux_ep *ep = find_join(cq->fabric, cq, join);
    pthread_mutex_unlock(&cq->fabric->lock);
    return ep;
}

/* A JOIN: the socket belongs to the connection with this secret. */
static void hand_over_join(struct stranger *stranger)
{
    struct rdmux_fabric *fabric = stranger->listener->fabric;
    struct rdmux_join join;
    if (rdmux_join_decode(stranger->bytes, &join) != RDMUX_OK) {
        rdmux_stranger_drop(stranger, "says JOIN, but not as the protocol does");
        return;
    }
    struct rdmux_join_mail *mail = rdmux_allocate(fabric, sizeof(*mail));
    if (mail == NULL) {
        rdmux_stranger_drop(stranger, "out of memory");
        return;
    }
    rdmux_service_unwatch(fabric, stranger->socket, &stranger->watch);
    mail->mail.deliver = rdmux_ep_deliver_join;
    mail->fabric = fabric;
    mail->join = join;
    mail->socket = stranger->socket;
    pthread_mutex_lock(&fabric->lock);
    const struct rdmux_ep *ep = find_join(fabric, NULL, &join);
    explicit_bzero(&join, sizeof(join));
    if (ep != NULL) {
        rdmux_cq_mail(ep->cq, &mail->mail);
    }
    rdmux_stranger_unlink(stranger);
    pthread_mutex_unlock(&fabric->lock);
    if (ep == NULL) {
        if (rdmux_listener_may_tell(stranger->listener)) {
            rdmux_log(fabric, RDMUX_LOG_WARN,
                      "listener %s: a socket joins a connection that is not there; dropped",
                      stranger->listener->address);
        }
        close(stranger->socket);
        rdmux_release_wiped(fabric, mail, sizeof(*mail));
    }
    rdmux_stranger_free(stranger);
}

/* A HELLO that asks to resume a connection: it goes to the endpoint. One that is not there any more
 * is told so by a HELLO that speaks of none. */
static void hand_over_resumption(struct stranger *stranger)
{
    struct rdmux_fabric *fabric = stranger->listener->fabric;
    struct rdmux_resume_mail *mail = rdmux_allocate(fabric, sizeof(*mail));
    if (mail == NULL) {
        rdmux_stranger_drop(stranger, "out of memory");
        return;
    }
    rdmux_service_unwatch(fabric, stranger->socket, &stranger->watch);
    mail->fabric = fabric;
    mail->socket = stranger->socket;
    mail->tls = stranger->tls;
    memcpy(mail->hello, stranger->bytes, RDMUX_HELLO_SIZE);
    pthread_mutex_lock(&fabric->lock);
    rdmux_stranger_unlink(stranger);
    pthread_mutex_unlock(&fabric->lock);
    if (rdmux_resume_find(fabric, mail)) {
        stranger->tls = NULL;
    } else {
        struct rdmux_hello hello;
        uint8_t bytes[RDMUX_HELLO_SIZE];
        rdmux_hello_fill(fabric, &hello);
        rdmux_hello_encode(&hello, bytes);
        (void)rdmux_stranger_say(stranger, bytes, sizeof(bytes)); /* it may be gone, too */
        if (rdmux_listener_may_tell(stranger->listener)) {
            rdmux_log(fabric, RDMUX_LOG_WARN,
                      "listener %s: a connection is resumed that is not there; dropped",
                      stranger->listener->address);
        }
        close(stranger->socket);
        rdmux_release(fabric, mail);
    }
    rdmux_stranger_free(stranger);
}

/* As send(2), all or nothing: a few KiB on a fresh socket, so only a dead peer is in the way. */
bool rdmux_stranger_say(struct stranger *stranger, const uint8_t *bytes, size_t size)
{
    if (stranger->tls == NULL) {
        return send(stranger->socket, bytes, size, MSG_NOSIGNAL) == (ssize_t)size;
    }
    while (size != 0) {
        size_t done = 0;
        if (rdmux_tls_send(stranger->tls, bytes, size, &done) != RDMUX_OK) {
            return false;
        }
        bytes += done;
        size -= done;
    }
    return true;
}

/* `rdmux explain`: ranked and answered here, nothing is connected. */
static void answer_explain(struct stranger *stranger)
{
    struct rdmux_listener *listener = stranger->listener;
    struct rdmux_fabric *fabric = listener->fabric;
    struct rdmux_offer *offer = rdmux_allocate(fabric, sizeof(*offer));
    void *memory = rdmux_allocate(fabric, rdmux_handshake_size());
    struct rdmux_handshake *handshake = NULL;
    if (offer != NULL && memory != NULL) {
        struct rdmux_handshake_config config = {
            .role = RDMUX_ROLE_ACCEPT,
            .hello_timeout_ms = listener->hello_timeout_ms,
            .offer = offer,
            .received = stranger->bytes,
            .received_size = stranger->have,
            .secured = stranger->tls != NULL,
        };
        rdmux_offer_defaults(fabric, listener->paths, offer);
        rdmux_hello_fill(fabric, &config.hello);
        if (rdmux_handshake_init(memory, &config, rdmux_now(fabric), &handshake) == RDMUX_OK) {
            struct rdmux_handshake_action action;
            for (rdmux_handshake_next(handshake, &action); action.kind == RDMUX_ACTION_SEND;
                 rdmux_handshake_next(handshake, &action)) {
                if (!rdmux_stranger_say(stranger, action.bytes, action.size)) {
                    break;
                }
            }
        }
    }
    rdmux_release(fabric, memory);
    rdmux_release(fabric, offer);
    rdmux_stranger_drop(stranger, NULL);
}

/* It may be shown and taken. */
void rdmux_stranger_becomes_known(struct stranger *stranger)
{
    struct rdmux_listener *listener = stranger->listener;
    struct rdmux_fabric *fabric = listener->fabric;
    uint64_t now_ns = rdmux_now(fabric);
    uint64_t limit_ms = listener->accept_timeout_ms != 0 ? listener->accept_timeout_ms
                                                         : CROWD_TIMEOUT_MS;
    struct stranger *oldest = NULL;
    stranger->deadline_ns = limit_ms == RDMUX_NEVER ? UINT64_MAX : now_ns + limit_ms * 1000000;
    pthread_mutex_lock(&fabric->lock);
    rdmux_origin_introduce(stranger);
    rdmux_list_remove(&stranger->link);
    rdmux_list_append(&listener->introduced, &stranger->link);
    stranger->introduced = true;
    listener->unshown++;
    rdmux_listener_update_descriptor(listener);
    pthread_cond_broadcast(&listener->changed);
    rdmux_listener_poke_waits(listener);
    const struct rdmux_origin *origin = stranger->origin;
    if (origin->introduced_count > listener->max_waiting_per_address) {
        oldest = RDMUX_CONTAINER(origin->introduced.next, struct stranger, origin_link);
    }
    bool timed = limit_ms != RDMUX_NEVER &&
                 (listener->accept_timeout_ms != 0 || rdmux_origin_is_crowd(origin));
    pthread_mutex_unlock(&fabric->lock);
    if (oldest != NULL) {
        rdmux_stranger_drop(oldest, "too many connections of its address or identity wait");
    }
    if (timed) {
        rdmux_service_timer(fabric, now_ns + RDMUX_STRANGER_TIMER_NS);
    }
}

/* HELLO and OFFER are here. */
static void introduce(struct stranger *stranger)
{
    struct rdmux_listener *listener = stranger->listener;
    struct rdmux_fabric *fabric = listener->fabric;
    struct rdmux_hello hello;
    if (stranger->bytes[stranger->hello_size] != RDMUX_FRAME_OFFER) {
        rdmux_stranger_drop(stranger, "its second frame is no OFFER");
        return;
    }
    if (rdmux_hello_decode(stranger->bytes, stranger->hello_size, &hello) == RDMUX_OK &&
        (hello.flags & RDMUX_HELLO_EXPLAIN_ONLY) != 0) {
        answer_explain(stranger);
        return;
    }
    struct rdmux_offer *offer = rdmux_allocate(fabric, sizeof(*offer));
    if (offer == NULL) {
        rdmux_stranger_drop(stranger, "out of memory");
        return;
    }
    size_t offer_at = stranger->hello_size + RDMUX_FRAME_HEADER_SIZE;
    enum rdmux_status status = rdmux_offer_decode(stranger->bytes + offer_at,
                                                  stranger->have - offer_at, offer);
    if (status == RDMUX_OK) {
        stranger->private_length = offer->private_length;
        memcpy(stranger->private_data, offer->private_data, sizeof(stranger->private_data));
    }
    rdmux_release(fabric, offer);
    if (status != RDMUX_OK) {
        rdmux_stranger_drop(stranger, "its OFFER breaks the protocol");
        return;
    }
    rdmux_stranger_becomes_known(stranger);
}

/* It has been told so. It has until its time is over to leave: a socket that is closed with bytes
 * unread would take the answer back. */
static void turn_away(struct stranger *stranger, const char *why)
{
    struct rdmux_listener *listener = stranger->listener;
    if (rdmux_listener_may_tell(listener)) {
        char from[RDMUX_ADDRESS_MAX];
        rdmux_stranger_address(stranger, from);
        rdmux_log(listener->fabric, RDMUX_LOG_WARN,
                  "listener %s: connection from %s: %s; turned away", listener->address, from, why);
    }
    (void)shutdown(stranger->socket, SHUT_WR);
    rdmux_tls_destroy(stranger->tls);
    stranger->tls = NULL;
    stranger->turned_away = true;
}

/* Its methods are not ours: it is told ours, in clear. */
static void turn_away_other_methods(struct stranger *stranger, uint32_t theirs)
{
    struct rdmux_listener *listener = stranger->listener;
    struct rdmux_hello hello;
    uint8_t bytes[RDMUX_HELLO_SIZE];
    char text[RDMUX_TEXT_MAX];
    char why[RDMUX_ERROR_MAX];
    rdmux_hello_fill(listener->fabric, &hello);
    rdmux_hello_encode(&hello, bytes);
    (void)rdmux_stranger_say(stranger, bytes, sizeof(bytes)); /* one that is gone needs no answer */
    rdmux_auth_explain_mismatch(hello.authentication, theirs, text, sizeof(text));
    snprintf(why, sizeof(why), "authentication: %s", text);
    turn_away(stranger, why);
}

/* Drops what one that was turned away says. Returns false if it is gone. */
static bool ignore(struct stranger *stranger)
{
    uint8_t waste[1024];
    for (;;) {
        ssize_t got = recv(stranger->socket, waste, sizeof(waste), MSG_DONTWAIT);
        if (got > 0) {
            stranger->ignored += (size_t)got;
        }
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            return true;
        }
        if (got == 0 || (got < 0 && errno != EINTR) || stranger->ignored > IGNORED_MAX) {
            rdmux_stranger_drop(stranger, NULL);
            return false;
        }
    }
}

/* Its HELLO in clear is here: what follows? Returns false if it is gone. */
static bool greet(struct stranger *stranger)
{
    struct rdmux_fabric *fabric = stranger->listener->fabric;
    uint32_t ours = rdmux_auth_methods(fabric->auth);
    struct rdmux_hello hello;
    bool understood = rdmux_hello_decode(stranger->bytes, RDMUX_HELLO_SIZE, &hello) == RDMUX_OK;
    if (!understood && ours != 0) {
        rdmux_stranger_drop(stranger, "says HELLO, but not as the protocol does");
        return false;
    }
    if (!understood) {
        return true; /* such as another byte order: the handshake says so */
    }
    if ((hello.authentication & ours) == 0 && (hello.authentication | ours) != 0) {
        turn_away_other_methods(stranger, hello.authentication);
        return ignore(stranger);
    }
    if (ours == 0) {
        return true;
    }
    stranger->greeted = true;
    return true;
}

/* As recv(2), through the session if there is one. EPROTO: it is none of ours, the error text tells
 * why. */
static ssize_t hear(struct stranger *stranger, uint8_t *out, size_t size)
{
    if (stranger->tls == NULL) {
        return recv(stranger->socket, out, size, 0);
    }
    size_t got = 0;
    switch (rdmux_tls_receive(stranger->tls, out, size, &got)) {
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

/* ----------------------------------------------------------------------------------- handshakes */

/* Is its first TLS record all in the socket, or nothing more to come? Until then it costs no session. The
 * socket wakes the service thread when it is, or has ended. */
static bool is_first_record_whole(const struct stranger *stranger)
{
    uint8_t header[RECORD_HEADER_SIZE];
    int need = RECORD_HEADER_SIZE;
    int have = 0;
    struct pollfd look = { .fd = stranger->socket, .events = POLLRDHUP };
    if (recv(stranger->socket, header, sizeof(header), MSG_PEEK | MSG_DONTWAIT) ==
        (ssize_t)sizeof(header)) {
        need += header[RECORD_AT_LENGTH] << 8 | header[RECORD_AT_LENGTH + 1];
    }
    bool whole = need > RECORD_MAX || ioctl(stranger->socket, FIONREAD, &have) != 0 ||
                 have >= need || poll(&look, 1, 0) != 0;
    need = whole ? 1 : need;
    (void)setsockopt(stranger->socket, SOL_SOCKET, SO_RCVLOWAT, &need, sizeof(need));
    return whole;
}

/* The session's arithmetic is not this thread's. Returns false if the stranger is gone. */
static bool queue_handshake(struct stranger *stranger)
{
    struct rdmux_fabric *fabric = stranger->listener->fabric;
    rdmux_stranger_unwatch(stranger);
    stranger->events = 0;
    if (!rdmux_session_take_place(stranger)) {
        return true;
    }
    if (stranger->shake == NULL) {
        stranger->shake = rdmux_shake_begin(fabric, stranger->socket, stranger->bytes,
                                            &stranger->watch);
    }
    if (stranger->shake == NULL || !rdmux_shake_queue(stranger->shake, &stranger->origin->shakes)) {
        rdmux_stranger_drop(stranger, "out of memory");
        return false;
    }
    stranger->stepping = true;
    return true;
}

/* The peer is known: what follows comes through the session. */
static void take_session(struct stranger *stranger)
{
    (void)rdmux_shake_end(stranger->shake, &stranger->tls);
    stranger->shake = NULL;
    rdmux_session_leave_place(stranger);
    stranger->have = 0;
    stranger->hello_size = 0;
}

/* Has the service thread come back when there are bytes, or room for what is to be said. Returns false
 * if it is gone. */
static bool await_more(struct stranger *stranger)
{
    struct rdmux_fabric *fabric = stranger->listener->fabric;
    const struct rdmux_tls *tls = stranger->shake != NULL ? stranger->shake->tls : stranger->tls;
    bool room = tls != NULL && rdmux_tls_wants_room(tls);
    uint32_t events = room ? EPOLLIN | EPOLLOUT : EPOLLIN;
    if (events == stranger->events) {
        return true;
    }
    rdmux_service_unwatch(fabric, stranger->socket, &stranger->watch);
    if (rdmux_service_watch(fabric, stranger->socket, events, &stranger->watch) != RDMUX_OK) {
        rdmux_stranger_drop(stranger, "cannot be watched");
        return false;
    }
    stranger->events = events;
    return true;
}

/* A step of its handshake has ended. Returns false if the stranger is gone. */
static bool end_step(struct stranger *stranger)
{
    const struct rdmux_shake *shake = stranger->shake;
    assert(shake != NULL);
    char why[sizeof(shake->text)];
    switch (shake->status) {
    case RDMUX_OK:
        take_session(stranger);
        return await_more(stranger);
    case RDMUX_AGAIN:
        stranger->idle_since_ns = rdmux_now(stranger->listener->fabric);
        return await_more(stranger);
    case RDMUX_PEER_GONE:
        rdmux_stranger_drop(stranger, "ended before it had introduced itself");
        return false;
    case RDMUX_NO_MEMORY:
        rdmux_stranger_drop(stranger, "out of memory");
        return false;
    default:
        memcpy(why, stranger->shake->text, sizeof(why));
        (void)rdmux_shake_end(stranger->shake, NULL);
        stranger->shake = NULL;
        rdmux_session_leave_place(stranger);
        turn_away(stranger, why);
        return ignore(stranger) && await_more(stranger);
    }
}

/* It has broken off, or is none of ours. Returns false if it is gone. */
static bool end_failed(struct stranger *stranger, ssize_t got)
{
    if (got < 0 && errno == EPROTO && stranger->tls != NULL) {
        char why[RDMUX_ERROR_MAX];
        snprintf(why, sizeof(why), "%s", rdmux_last_error());
        turn_away(stranger, why);
        return ignore(stranger);
    }
    rdmux_stranger_drop(stranger, stranger->have == 0 && stranger->tls == NULL
                                      ? NULL
                                      : "ended before it had introduced itself");
    return false;
}

/* A handshake is to begin, or under way. Returns false if the stranger is gone. */
static bool shake_hands(struct stranger *stranger)
{
    if (stranger->shake != NULL && rdmux_shake_is_busy(stranger->shake)) {
        return true;
    }
    if (stranger->stepping) {
        stranger->stepping = false;
        return end_step(stranger);
    }
    if (stranger->shake == NULL && !is_first_record_whole(stranger)) {
        return await_more(stranger);
    }
    return queue_handshake(stranger);
}

/* Reads no further than HELLO and OFFER, or JOIN. Returns false if the stranger is gone. */
static bool read_stranger(struct stranger *stranger)
{
    struct rdmux_fabric *fabric = stranger->listener->fabric;
    for (int reads = 0; reads < TURN_READS; reads++) {
        bool bad = false;
        if (stranger->turned_away) {
            return ignore(stranger);
        }
        if (stranger->greeted && stranger->tls == NULL) {
            if (!shake_hands(stranger)) {
                return false;
            }
            if (stranger->tls == NULL) {
                return true;
            }
        }
        size_t part = stranger->have - stranger->hello_size;
        size_t total = rdmux_frame_total(stranger->bytes + stranger->hello_size, part,
                                         stranger->hello_size == 0, &bad);
        if (bad || total > STRANGERS_OFFER_MAX) {
            rdmux_stranger_drop(stranger, "does not speak this protocol");
            return false;
        }
        size_t want = total == 0 ? RDMUX_FRAME_HEADER_SIZE : total;
        if (total != 0 && part == total) {
            if (stranger->hello_size != 0) {
                introduce(stranger);
                return false;
            }
            if (rdmux_frame_is_join(stranger->bytes)) {
                hand_over_join(stranger);
                return false;
            }
            stranger->hello_size = total;
            if (stranger->tls == NULL && !greet(stranger)) {
                return false;
            }
            bool in_clear = stranger->greeted &&
                            stranger->tls == NULL; /* it is asked again inside */
            if (!in_clear && rdmux_resume_is_asked(stranger->bytes)) {
                hand_over_resumption(stranger);
                return false;
            }
            continue;
        }
        if (stranger->hello_size + want > RDMUX_STRANGER_FIRST_SIZE &&
            stranger->bytes == stranger->first) {
            uint8_t *bytes = rdmux_allocate(fabric, stranger->hello_size + want);
            if (bytes == NULL) {
                rdmux_stranger_drop(stranger, "out of memory");
                return false;
            }
            memcpy(bytes, stranger->first, stranger->have);
            stranger->bytes = bytes;
        }
        ssize_t got = hear(stranger, stranger->bytes + stranger->have, want - part);
        if (got > 0) {
            stranger->have += (size_t)got;
        } else if (got < 0 && errno == EINTR) {
            continue;
        } else if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            return await_more(stranger);
        } else {
            return end_failed(stranger, got);
        }
    }
    rdmux_service_call(fabric,
                       &stranger->watch); /* the socket may not tell of what the session holds */
    return true;
}

/* One of too many goes, if it really is silent: what it has said may merely not be read yet. */
static void drop_if_silent(struct stranger *stranger, const char *why)
{
    bool shakes = stranger->greeted && stranger->tls == NULL; /* and will not be known at once */
    if (stranger->call != NULL || shakes || read_stranger(stranger)) {
        rdmux_stranger_drop(stranger, why);
    }
}

static struct stranger *first_but(const struct rdmux_list *list, const struct stranger *newcomer)
{
    for (struct rdmux_list *at = list->next; at != list; at = at->next) {
        struct stranger *stranger = RDMUX_CONTAINER(at, struct stranger, origin_link);
        if (stranger != newcomer) {
            return stranger;
        }
    }
    return NULL;
}

/* Who has to go: of the origin that holds the most the oldest silent one, else the one that waits the
 * longest. Where nobody holds more than the newcomer's, it is of that. Where nobody holds more than
 * one, the oldest silent one of all, and the newcomer if there is none. fabric->lock is held. */
static struct stranger *find_superfluous(struct rdmux_listener *listener, struct stranger *newcomer)
{
    struct rdmux_origin *largest = rdmux_origin_largest(listener);
    if (largest == NULL) {
        return NULL;
    }
    if (newcomer != NULL && rdmux_origin_count(newcomer->origin) == rdmux_origin_count(largest)) {
        largest = newcomer->origin;
    }
    struct stranger *found = NULL;
    if (rdmux_origin_count(largest) > 1) {
        found = first_but(&largest->silent, newcomer);
        return found != NULL ? found : first_but(&largest->introduced, newcomer);
    }
    for (struct rdmux_list *at = listener->silent.next; at != &listener->silent && found == NULL;
         at = at->next) {
        struct stranger *silent = RDMUX_CONTAINER(at, struct stranger, link);
        found = silent == newcomer ? NULL : silent;
    }
    return found != NULL ? found : newcomer;
}

bool rdmux_stranger_drop_one(struct rdmux_listener *listener, struct stranger *newcomer,
                             const char *why)
{
    pthread_mutex_lock(&listener->fabric->lock);
    struct stranger *found = find_superfluous(listener, newcomer);
    pthread_mutex_unlock(&listener->fabric->lock);
    if (found == NULL) {
        return false;
    }
    if (found == newcomer || found->introduced) {
        rdmux_stranger_drop(found, why);
    } else {
        drop_if_silent(found, why);
    }
    return found != newcomer;
}

static void stranger_ready(struct rdmux_fabric *fabric, struct rdmux_watch *watch)
{
    struct stranger *stranger = RDMUX_CONTAINER(watch, struct stranger, watch);
    if (!stranger->introduced) {
        read_stranger(stranger);
        return;
    }
    /* It says more, or left, before it was taken. */
    char byte;
    ssize_t got = recv(stranger->socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) {
        rdmux_stranger_drop(stranger, "left before it was accepted");
    } else if (got > 0) {
        rdmux_service_unwatch(fabric, stranger->socket, watch);
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

bool rdmux_stranger_has_room(struct stranger *newcomer)
{
    struct rdmux_listener *listener = newcomer->listener;
    const struct rdmux_origin *origin = newcomer->origin;
    if (origin->silent_count > listener->max_per_address) {
        drop_if_silent(first_but(&origin->silent, newcomer),
                       "too many connections of its address have not introduced themselves");
    }
    /* One that turns out to have spoken is not silent any more, and stays for this time. */
    for (uint32_t heard = 0; listener->count > listener->max_pending + heard;) {
        uint32_t before = listener->count;
        if (!rdmux_stranger_drop_one(
                listener, newcomer,
                "too many connections wait, and none has more than its address "
                "or identity")) {
            return false;
        }
        heard += listener->count == before;
    }
    return true;
}

void rdmux_stranger_take(struct rdmux_listener *listener, int socket,
                         const struct sockaddr_storage *address, socklen_t address_length)
{
    struct rdmux_fabric *fabric = listener->fabric;
    struct stranger *stranger = rdmux_allocate(fabric, sizeof(*stranger));
    if (stranger == NULL) {
        turn_away_newcomer(listener, socket);
        return;
    }
    stranger->watch.ready = stranger_ready;
    stranger->events = EPOLLIN;
    rdmux_list_init(&stranger->link);
    rdmux_list_init(&stranger->origin_link);
    rdmux_list_init(&stranger->place_link);
    stranger->listener = listener;
    stranger->socket = socket;
    stranger->bytes = stranger->first;
    stranger->address = *address;
    stranger->address_length = address_length;
    stranger->id = atomic_fetch_add(&fabric->next_id, 1);
    stranger->deadline_ns = rdmux_now(fabric) + (uint64_t)listener->hello_timeout_ms * 1000000;
    pthread_mutex_lock(&fabric->lock);
    bool counted = rdmux_origin_enter(stranger) == RDMUX_OK;
    if (counted) {
        rdmux_list_append(&listener->silent, &stranger->link);
        listener->count++;
    }
    pthread_mutex_unlock(&fabric->lock);
    if (!counted) {
        rdmux_release(fabric, stranger);
        turn_away_newcomer(listener, socket);
        return;
    }
    int one = 1;
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    if (rdmux_service_watch(fabric, socket, EPOLLIN, &stranger->watch) != RDMUX_OK) {
        rdmux_stranger_drop(stranger, "cannot be watched");
        return;
    }
    rdmux_service_timer(fabric, rdmux_now(fabric) + RDMUX_STRANGER_TIMER_NS);
    (void)rdmux_stranger_has_room(stranger); /* else it is gone */
}
