/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * A pending connection of a listener, from its first byte until rdmux_accept() takes it: its
 * struct, and the functions of the files pending_*.c. Lists and counters change with fabric->lock
 * held. Pending connections come and go with step_lock held, too (loop/service.c).
 */
#ifndef RDMUX_API_ACCEPT_PENDING_CONNECTION_H
#define RDMUX_API_ACCEPT_PENDING_CONNECTION_H

#include "api/core/fabric.h"
#include "api/loop/service.h"

#include <sys/socket.h>

struct rdmux_listener;
struct rdmux_peer_quota;
struct rdmux_shake;
struct rdmux_tls;

enum { RDMUX_PENDING_FIRST_SIZE = 128 }; /* room in the record itself for a HELLO or a JOIN */

/* rdmux_pending_set_stage() alone writes it. */
enum rdmux_pending_stage {
    RDMUX_PENDING_GREETING, /* HELLO and OFFER, or JOIN, are read in clear */
    RDMUX_PENDING_SHAKING,  /* the TLS handshake waits for the peer's next flight, or for a place */
    RDMUX_PENDING_STEPPING, /* a TLS step is queued or running, or has ended and is not evaluated */
    RDMUX_PENDING_SECURED,  /* HELLO and OFFER, or JOIN, are read through the TLS session */
    RDMUX_PENDING_TURNED_AWAY, /* the peer has been told; its bytes are discarded until it closes */
    RDMUX_PENDING_INTRODUCED,  /* waits for rdmux_accept() */
};

/* A connection that rdmux_accept() has not taken yet. */
struct rdmux_pending_connection {
    struct rdmux_watch watch;
    struct rdmux_list link; /* listener->silent or listener->introduced */
    struct rdmux_listener *listener;
    struct rdmux_rdmacm_call *call; /* rdma:// listener only; there is no socket then */
    int socket;
    struct rdmux_peer_quota *quota;
    struct rdmux_list quota_link; /* quota->silent or quota->introduced */
    /* NULL: the connection is in clear, or the TLS handshake (shake) owns the session. */
    struct rdmux_tls *tls;
    struct rdmux_shake *shake;    /* NULL: no TLS handshake is under way */
    struct rdmux_list place_link; /* listener->places or listener->hopeful */
    bool has_place;
    uint64_t idle_since_ns; /* since when the TLS handshake waits for the peer's next flight */
    uint32_t events;        /* the RDMUX_READY_* events watched */
    enum rdmux_pending_stage stage; /* step_lock; enters INTRODUCED with fabric->lock held, too */
    bool is_shown;                  /* by rdmux_listener_next(); fabric->lock */
    size_t ignored;                 /* bytes discarded */
    uint64_t id;
    uint64_t deadline_ns; /* until introduced: HELLO timeout; then: accept timeout */
    struct sockaddr_storage address;
    socklen_t address_length;
    uint8_t first[RDMUX_PENDING_FIRST_SIZE];
    uint8_t *bytes; /* first, or an allocation once an OFFER is to follow */
    size_t have;
    size_t hello_size; /* size of the HELLO at the beginning; 0 while the HELLO is incomplete */
    uint32_t private_length;
    uint8_t private_data[RDMUX_PRIVATE_DATA_MAX];
};

/* ------------------------------------------------------------------------- pending_connection.c */

/* step_lock is held. */
void rdmux_pending_set_stage(struct rdmux_pending_connection *pending,
                             enum rdmux_pending_stage stage);
/* Makes an introduced connection available to rdmux_listener_next() and rdmux_accept(). */
void rdmux_pending_becomes_known(struct rdmux_pending_connection *pending);
/* Sends all of it. False: the peer does not receive. */
bool rdmux_pending_say(struct rdmux_pending_connection *pending, const uint8_t *bytes, size_t size);
/* Sends HELLO and REJECT to a peer that has introduced itself. False: the peer does not receive. */
bool rdmux_pending_say_reject(struct rdmux_pending_connection *pending, uint32_t reason,
                              const void *private_data, size_t length);
void rdmux_pending_address(struct rdmux_pending_connection *pending, char out[RDMUX_ADDRESS_MAX]);

/* Makes the service thread return when there are bytes to read, or room for what the TLS session has
 * to send. False: the connection was dropped. */
bool rdmux_pending_await_more(struct rdmux_pending_connection *pending);
/* Rejects the peer, which has its answer already: sends it nothing more, and keeps the socket open
 * to discard what it sends. why: logged. */
void rdmux_pending_turn_away(struct rdmux_pending_connection *pending, const char *why);
/* Discards what a peer sends that was turned away. False: the connection was dropped. */
bool rdmux_pending_ignore(struct rdmux_pending_connection *pending);

/* End a pending connection: by its own fault or for lack of memory; to make room for others; as it
 * is too slow. why: logged, and counted as that; NULL: neither. The last two tell a peer that has
 * introduced itself to try again later (RDMUX_REJECT_BUSY). */
void rdmux_pending_drop(struct rdmux_pending_connection *pending, const char *why);
void rdmux_pending_evict(struct rdmux_pending_connection *pending, const char *why);
void rdmux_pending_expire(struct rdmux_pending_connection *pending, const char *why);
/* The parts of rdmux_pending_drop(), for a caller that takes the socket: leave the service thread's
 * watches, leave the listener's lists (fabric->lock is held), end the connection, free the
 * record. */
void rdmux_pending_unwatch(struct rdmux_pending_connection *pending);
void rdmux_pending_unlink(struct rdmux_pending_connection *pending);
void rdmux_pending_hang_up(struct rdmux_pending_connection *pending);
void rdmux_pending_free(struct rdmux_pending_connection *pending);

/* -------------------------------------------------------------------------------- pending_tls.c */

/* Begins or advances the TLS handshake. False: the connection was dropped. */
bool rdmux_pending_shake_hands(struct rdmux_pending_connection *pending);

/* ------------------------------------------------------------------------------- pending_read.c */

/* Reads no further than HELLO and OFFER, or JOIN. False: the connection is introduced, handed over
 * or dropped. */
bool rdmux_pending_read(struct rdmux_pending_connection *pending);

/* -------------------------------------------------------------------------- pending_admission.c */

/* Takes an accepted socket. The socket belongs to the pending connection in any case. */
void rdmux_pending_take(struct rdmux_listener *listener, int socket,
                        const struct sockaddr_storage *address, socklen_t address_length);
/* Enforces the limits after newcomer has been counted; may evict a connection. False: newcomer was
 * evicted. */
bool rdmux_pending_has_room(struct rdmux_pending_connection *newcomer);
/* Reads once more from a connection that has not introduced itself: its bytes may merely not be read
 * yet, as on a machine with much other work. False: they were, or it is gone. */
bool rdmux_pending_is_silent(struct rdmux_pending_connection *pending);
/* Evicts one connection to admit newcomer; NULL: to free a descriptor for any purpose. A connection
 * that turns out to have spoken is kept (true all the same). False: there was none but newcomer,
 * which is evicted. */
bool rdmux_pending_drop_one(struct rdmux_listener *listener,
                            struct rdmux_pending_connection *newcomer, const char *why);
/* Evicts one pending connection of the fabric's listeners, of the address or identity that holds
 * the most. why is logged. False: there is none to evict. Takes step_lock, so the caller holds no
 * other lock of the fabric, except claim.lock within a slice. Any thread. */
bool rdmux_listeners_shed(struct rdmux_fabric *fabric, const char *why);

#endif
