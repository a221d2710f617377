/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * The pending connections of a listener, from their first byte until rdmux_accept() takes them, and
 * their peer quotas. Lists and counters change with fabric->lock held. Pending connections come and
 * go with step_lock held, too (loop/service.c).
 */
#ifndef RDMUX_API_ACCEPT_PENDING_CONNECTION_H
#define RDMUX_API_ACCEPT_PENDING_CONNECTION_H

#include "api/accept/shake.h"
#include "api/core/ep.h"
#include "api/core/fabric.h"
#include "api/loop/descriptors.h"
#include "api/loop/service.h"
#include "negotiation/tls.h"

#include <sys/socket.h>

enum {
    RDMUX_PENDING_FIRST_SIZE = 128, /* room in the record itself for a HELLO or a JOIN */
    RDMUX_QUOTA_BUCKETS = 1024,
    RDMUX_PENDING_TIMER_NS = 100 * 1000 * 1000, /* timeout scan period */
};

/*
 * A peer quota: the connections of one address (IPv6: of one /64), or of one authenticated
 * identity. It exists while one of its connections is pending or in set-up.
 */
struct rdmux_peer_quota {
    struct rdmux_listener *listener;
    struct rdmux_list hash_link;    /* listener->quotas[] */
    struct rdmux_list link;         /* listener->all_quotas */
    struct rdmux_list waiting_link; /* listener->waiting, while introduced is not empty */
    struct rdmux_list silent;       /* pending connections by quota_link, oldest first */
    struct rdmux_list introduced;   /* pending connections by quota_link, oldest first */
    uint32_t silent_count;
    uint32_t introduced_count;
    /* Endpoints that rdmux_accept() has taken for any peer and not returned. Changes with
     * fabric->lock held. */
    _Atomic uint32_t setups;
    uint32_t places; /* its pending connections that hold a TLS place of the listener; step_lock */
    struct rdmux_shake_source shakes; /* its TLS handshake steps that are queued; shake.c's lock */
    uint32_t key_size;
    uint8_t key[];
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
    uint32_t events;        /* the epoll events watched */
    bool has_greeted;       /* the HELLO asked for TLS: the TLS handshake follows, or is over */
    bool is_stepping; /* a TLS step is queued or running, or has ended and is not evaluated yet */
    bool is_introduced;
    bool is_shown;
    /* rejected, and the peer has been told; its bytes are discarded until it closes */
    bool is_turned_away;
    size_t ignored; /* bytes discarded */
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

struct rdmux_listener {
    struct rdmux_acceptor acceptor; /* accept timeout 0: no timeout, except for a crowd */
    struct rdmux_watch watch;
    struct rdmux_fabric *fabric;
    /* of the provider of an rdma:// listener; there is no socket then; step_lock */
    struct rdmux_rdmacm_listener *rdmacm;
    struct rdmux_list link; /* fabric->listeners; fabric->lock, like all below */
    int socket;
    int event_fd;
    /* Closed for a moment when descriptors run out, so that a connection can be accepted and
     * refused. */
    int spare_fd;
    char address[RDMUX_ADDRESS_MAX];
    char paths[256];
    struct rdmux_listen_attr asked; /* with defaults; the limits below may be lower */
    struct rdmux_descriptor_limit descriptors;
    uint32_t max_pending;
    uint32_t hello_timeout_ms;
    uint32_t max_per_address;
    uint32_t max_waiting_per_address;
    _Atomic uint32_t max_setups;
    uint64_t quota_seed; /* random, so that a peer cannot choose the bucket of another */
    struct rdmux_list quotas[RDMUX_QUOTA_BUCKETS];
    struct rdmux_list all_quotas;
    struct rdmux_list waiting; /* peer quotas; the one taken from last is at the end */
    uint32_t crowds;           /* peer quotas that are a crowd, see rdmux_peer_quota_is_crowd() */
    uint32_t count;            /* pending connections */
    uint32_t unshown;
    int proved;
    uint32_t refs; /* endpoints in set-up, and the application's handle */
    bool is_closed;
    bool is_readable;
    /* step_lock: not watched until the next timer, for lack of a descriptor. */
    bool is_resting;
    /* step_lock: log lines caused by pending connections, in the present period. */
    uint64_t told_since_ns;
    uint32_t told;
    uint64_t untold;              /* lines left out in the period */
    struct rdmux_list silent;     /* oldest first */
    struct rdmux_list introduced; /* oldest first */
    /* sessions.c, step_lock: pending connections that hold a TLS place, oldest first. */
    struct rdmux_list places;
    uint32_t place_count;
    struct rdmux_list hopeful; /* pending connections that wait for a TLS place */
    pthread_cond_t changed;
    struct rdmux_list waits; /* rdmux_accept_wait */
};

static inline struct rdmux_listener *rdmux_listener_of(struct rdmux_acceptor *acceptor)
{
    return RDMUX_CONTAINER(acceptor, struct rdmux_listener, acceptor);
}

/* Returns true if one more log line caused by a pending connection may be written. The number of
 * lines in a period is bounded. Lines left out are counted, and their number is logged at the end
 * of the period. step_lock is held. */
bool rdmux_listener_may_tell(struct rdmux_listener *listener);
/* Logs how many lines were left out, and begins a period. rdmux_listener_lines_deadline() returns
 * when that is due; UINT64_MAX: nothing was left out. */
void rdmux_listener_log_left_out(struct rdmux_listener *listener);
uint64_t rdmux_listener_lines_deadline(const struct rdmux_listener *listener);

/* --------------------------------------------------------- pending_connection.c, for listener.c */

/* Takes an accepted socket. The socket belongs to the pending connection in any case. */
void rdmux_pending_take(struct rdmux_listener *listener, int socket,
                        const struct sockaddr_storage *address, socklen_t address_length);
/* Enforces the limits after newcomer has been counted; may evict a connection. False: newcomer was
 * evicted. */
bool rdmux_pending_has_room(struct rdmux_pending_connection *newcomer);
/* Makes an introduced connection available to rdmux_listener_next() and rdmux_accept(). */
void rdmux_pending_becomes_known(struct rdmux_pending_connection *pending);
/* Sends all of it. False: the peer does not receive. */
bool rdmux_pending_say(struct rdmux_pending_connection *pending, const uint8_t *bytes, size_t size);
void rdmux_pending_address(struct rdmux_pending_connection *pending, char out[RDMUX_ADDRESS_MAX]);

/* Ends a pending connection. why: logged, unless NULL. */
void rdmux_pending_drop(struct rdmux_pending_connection *pending, const char *why);
/* Evicts one connection to admit newcomer; NULL: to free a descriptor for any purpose. A connection
 * that turns out to have spoken is kept (true all the same). False: there was none but newcomer,
 * which is evicted. */
bool rdmux_pending_drop_one(struct rdmux_listener *listener,
                            struct rdmux_pending_connection *newcomer, const char *why);
/* The parts of rdmux_pending_drop(), for a caller that takes the socket: leave the service thread's
 * watches, leave the listener's lists (fabric->lock is held), end the connection, free the
 * record. */
void rdmux_pending_unwatch(struct rdmux_pending_connection *pending);
void rdmux_pending_unlink(struct rdmux_pending_connection *pending);
void rdmux_pending_hang_up(struct rdmux_pending_connection *pending);
void rdmux_pending_free(struct rdmux_pending_connection *pending);

/* ------------------------------------------------------------------------ sessions.c; step_lock */

/* Takes a TLS place. False: none is free; the watch of the connection is called once one may be. */
bool rdmux_session_take_place(struct rdmux_pending_connection *pending);
/* Gives up the TLS place, or the wait for one: the peer is known, or the connection ends. */
void rdmux_session_leave_place(struct rdmux_pending_connection *pending);
/* Called on each scan of the timeouts. */
void rdmux_session_timer(struct rdmux_listener *listener);

/* ----------------------------------------------------------- peer_quota.c; fabric->lock is held */

/* Counts one more silent connection, by address; for a call of rdma://, by host name text. May
 * return RDMUX_NO_MEMORY. */
enum rdmux_status rdmux_peer_quota_enter(struct rdmux_pending_connection *pending);
/* The connection has introduced itself. Counts it by its identity, if it has one. */
void rdmux_peer_quota_introduce(struct rdmux_pending_connection *pending);
/* The connection is taken or ended. */
void rdmux_peer_quota_leave(struct rdmux_pending_connection *pending);
/* An endpoint of the peer quota enters set-up, or leaves it. */
void rdmux_peer_quota_begin_setup(struct rdmux_peer_quota *quota);
void rdmux_peer_quota_end_setup(struct rdmux_peer_quota *quota);
/* Returns true if its introduced connections exceed half of max_waiting_per_address. */
bool rdmux_peer_quota_is_crowd(const struct rdmux_peer_quota *quota);
/* Recounts listener->crowds after a change of max_waiting_per_address. */
void rdmux_peer_quotas_count_crowds(struct rdmux_listener *listener);
/* Returns the peer quota with the most pending connections. NULL: there is none. */
struct rdmux_peer_quota *rdmux_peer_quota_largest(struct rdmux_listener *listener);
static inline uint32_t rdmux_peer_quota_count(const struct rdmux_peer_quota *quota)
{
    return quota->silent_count + quota->introduced_count;
}
/* Returns the peer quota to take from next: with the fewest set-ups of those that wait and have
 * room. NULL: none. */
struct rdmux_peer_quota *rdmux_peer_quota_next(struct rdmux_listener *listener);

/* --------------------------------------------------------------------------- listener_state.c */

/* fabric->lock is held. rdmux_listener_update_descriptor() keeps the descriptor readable while a
 * connection is neither shown nor taken, or proved and not returned. rdmux_listener_poke_waits()
 * makes the accept calls check for a connection. */
void rdmux_listener_update_descriptor(struct rdmux_listener *listener);
void rdmux_listener_poke_waits(struct rdmux_listener *listener);

#endif
