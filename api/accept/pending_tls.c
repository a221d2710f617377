/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * The TLS handshake of a pending connection: begins once the peer's first record is whole and a TLS
 * place is free, and goes on step by step. The computation is in shake.c.
 */
#include "api/accept/listener.h"
#include "api/accept/peer_quota.h"
#include "api/accept/pending_connection.h"
#include "api/accept/sessions.h"
#include "api/accept/shake.h"
#include "api/base/bytes.h"
#include "api/core/fabric.h"
#include "api/loop/service.h"
#include "api/system/system.h"
#include "negotiation/tls.h"

#include <assert.h>
#include <string.h>
#include <sys/socket.h>

enum {
    RECORD_HEADER_SIZE = 5, /* of a TLS record (RFC 8446, 5.1); the length is its last field */
    RECORD_AT_LENGTH = 3,
    RECORD_MAX = RECORD_HEADER_SIZE + (16 << 10) + 256,
};

/* Returns true if the first TLS record is complete in the socket, or no more will come. Until then
 * the connection costs no session. The socket wakes the service thread when the record is complete,
 * or the socket has ended. */
static bool is_first_record_whole(const struct rdmux_pending_connection *pending)
{
    uint8_t header[RECORD_HEADER_SIZE];
    int need = RECORD_HEADER_SIZE;
    int have = 0;
    if (recv(pending->socket, header, sizeof(header), MSG_PEEK | MSG_DONTWAIT) ==
        (ssize_t)sizeof(header)) {
        need += rdmux_load_be16(header + RECORD_AT_LENGTH);
    }
    bool whole = need > RECORD_MAX || rdmux_socket_unread(pending->socket, &have) != 0 ||
                 have >= need || rdmux_socket_has_ended(pending->socket);
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
    rdmux_pending_set_stage(pending, RDMUX_PENDING_STEPPING);
    return true;
}

/* The peer is authenticated: what follows comes through the TLS session. */
static void take_session(struct rdmux_pending_connection *pending)
{
    (void)rdmux_shake_end(pending->shake, &pending->tls);
    pending->shake = NULL;
    rdmux_pending_set_stage(pending, RDMUX_PENDING_SECURED);
    rdmux_session_leave_place(pending);
    pending->have = 0;
    pending->hello_size = 0;
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
        return rdmux_pending_await_more(pending);
    case RDMUX_AGAIN:
        rdmux_pending_set_stage(pending, RDMUX_PENDING_SHAKING);
        pending->idle_since_ns = rdmux_now(pending->listener->fabric);
        return rdmux_pending_await_more(pending);
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
        rdmux_pending_turn_away(pending, why);
        return rdmux_pending_ignore(pending) && rdmux_pending_await_more(pending);
    }
}

/* Begins or advances the TLS handshake. False: the connection was dropped. */
bool rdmux_pending_shake_hands(struct rdmux_pending_connection *pending)
{
    if (pending->shake != NULL && rdmux_shake_is_busy(pending->shake)) {
        return true;
    }
    if (pending->stage == RDMUX_PENDING_STEPPING) {
        return end_step(pending);
    }
    if (pending->shake == NULL && !is_first_record_whole(pending)) {
        return rdmux_pending_await_more(pending);
    }
    return queue_handshake(pending);
}
