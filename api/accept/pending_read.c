/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * What a pending connection sends first. The service thread reads exactly that: either the HELLO
 * and OFFER of a connection, which is then introduced; or a JOIN, whose socket is handed to the cq
 * of the connection with that secret; or a HELLO that asks for a control-channel reconnect. If the
 * fabric authenticates, only the HELLO arrives in clear, and all else through the TLS session.
 */
#include "api/accept/listener.h"
#include "api/accept/pending_connection.h"
#include "api/core/ep.h"
#include "api/core/fabric.h"
#include "api/failover/failover.h"
#include "api/loop/service.h"
#include "api/object/joins.h"
#include "api/object/offer.h"
#include "api/progress/cq_owner.h"
#include "api/setup/setup.h"
#include "api/system/system.h"
#include "negotiation/auth_methods.h"
#include "negotiation/control_capture.h"
#include "negotiation/path_secret.h"
#include "negotiation/tls.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    /* Limit of the OFFER of a pending connection: more than 32 paths take with all their texts. */
    PENDING_OFFER_MAX = 48 << 10,
    PENDING_TURN_READS = 64, /* reads from one pending connection before others have their turn */
};

/* --------------------------------------------------------------------------------- handing over */

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
    rdmux_wipe(&join, sizeof(join));
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
 * endpoint is gone, sends a HELLO that names no connection. */
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

/* ------------------------------------------------------------------------------ HELLO and OFFER */

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
    rdmux_pending_turn_away(pending, why);
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
        return rdmux_pending_ignore(pending);
    }
    if (ours == 0) {
        return true;
    }
    rdmux_pending_set_stage(pending, RDMUX_PENDING_SHAKING);
    return true;
}

/* -------------------------------------------------------------------------------------- reading */

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

/* The connection broke, or the peer is not valid. False: the connection was dropped. */
static bool end_failed(struct rdmux_pending_connection *pending, ssize_t got)
{
    if (got < 0 && errno == EPROTO && pending->tls != NULL) {
        char why[RDMUX_ERROR_MAX];
        snprintf(why, sizeof(why), "%s", rdmux_last_error());
        rdmux_pending_turn_away(pending, why);
        return rdmux_pending_ignore(pending);
    }
    rdmux_pending_drop(pending, pending->have == 0 && pending->tls == NULL
                                    ? NULL
                                    : "ended before it had introduced itself");
    return false;
}

/* Reads no further than HELLO and OFFER, or JOIN. False: the connection is introduced, handed over
 * or dropped. */
bool rdmux_pending_read(struct rdmux_pending_connection *pending)
{
    struct rdmux_fabric *fabric = pending->listener->fabric;
    for (int reads = 0; reads < PENDING_TURN_READS; reads++) {
        bool bad = false;
        if (pending->stage == RDMUX_PENDING_TURNED_AWAY) {
            return rdmux_pending_ignore(pending);
        }
        if (pending->stage == RDMUX_PENDING_SHAKING || pending->stage == RDMUX_PENDING_STEPPING) {
            if (!rdmux_pending_shake_hands(pending)) {
                return false;
            }
            if (pending->stage != RDMUX_PENDING_SECURED) {
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
            rdmux_capture_control(fabric, pending->socket, RDMUX_CAPTURE_IN,
                                  pending->bytes + pending->hello_size, total,
                                  pending->tls != NULL);
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
            bool in_clear = pending->stage == RDMUX_PENDING_SHAKING;
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
            return rdmux_pending_await_more(pending);
        } else {
            return end_failed(pending, got);
        }
    }
    /* The socket does not report what the session holds. */
    rdmux_service_call(fabric, &pending->watch);
    return true;
}
