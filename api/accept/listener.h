/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * A listener, as the service thread and the calls of accepting cqs share it: its struct, and the
 * functions of the files listener*.c.
 */
#ifndef RDMUX_API_ACCEPT_LISTENER_H
#define RDMUX_API_ACCEPT_LISTENER_H

#include "api/core/cq.h"
#include "api/core/ep.h"
#include "api/core/fabric.h"
#include "api/loop/descriptors.h"
#include "api/loop/service.h"
#include "api/system/system.h"

#include <pthread.h>

struct rdmux_arrival; /* setup.h */
struct rdmux_peer_quota;

enum {
    RDMUX_QUOTA_BUCKETS = 1024,
    RDMUX_PENDING_TIMER_NS = 100 * 1000 * 1000, /* timeout scan period */
    RDMUX_ACCEPTS_PER_EVENT = 64, /* connections taken before others have their turn */
};

/* A waiting accept call for any connection, as the listener's other accept calls see it.
 * fabric->lock. */
struct rdmux_accept_wait {
    struct rdmux_list link; /* listener->waits */
    struct rdmux_cq *cq;
    bool has_none; /* no endpoint that the call could return is in set-up */
};

/* rdmux_listener_set_state() alone writes it. */
enum rdmux_listener_state {
    RDMUX_LISTENER_OPEN,    /* its socket, or its provider's listener, is watched */
    RDMUX_LISTENER_RESTING, /* not watched until the next timer, for lack of a descriptor */
    RDMUX_LISTENER_CLOSED,  /* by the program; endpoints in set-up may still refer to it */
};

struct rdmux_listener {
    struct rdmux_acceptor acceptor; /* accept timeout 0: no timeout, except for a crowd */
    struct rdmux_watch watch;
    struct rdmux_fabric *fabric;
    /* of the provider of an rdma:// listener; there is no socket then; step_lock */
    struct rdmux_rdmacm_listener *rdmacm;
    struct rdmux_list link; /* fabric->listeners; fabric->lock, like all below */
    int socket;
    struct rdmux_wake event; /* of rdmux_listener_fd() */
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
    enum rdmux_listener_state state;
    bool is_readable;
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

/* ----------------------------------------------------------------------------------- listener.c */

/* References: a listener lives until its last endpoint in set-up has released it. */
void rdmux_listener_get(struct rdmux_listener *listener);
void rdmux_listener_put(struct rdmux_listener *listener);
struct rdmux_fabric *rdmux_listener_fabric(struct rdmux_listener *listener);
const char *rdmux_listener_paths(const struct rdmux_listener *listener);
bool rdmux_listener_is_rdmacm(const struct rdmux_listener *listener);
/* Enforces the HELLO timeouts of all listeners. Returns the time of the next call. step_lock is
 * held. */
uint64_t rdmux_listeners_timers(struct rdmux_fabric *fabric, uint64_t now_ns);

/* ---------------------------------------------------------------------------- listener_limits.c */

/* Checks the attributes of rdmux_listen() (NULL: defaults) and takes them over. */
enum rdmux_status rdmux_listener_take_attr(struct rdmux_listener *listener,
                                           const struct rdmux_listen_attr *attr, uint32_t *backlog);
/* Sets the limits that the program asked for, lowered to what the process's descriptors allow.
 * fabric->lock is held, or no other thread knows the listener. */
void rdmux_listener_set_limits(struct rdmux_listener *listener);
/* Sets the limits anew if the descriptor limit of the process has changed. */
void rdmux_listener_follow_descriptors(struct rdmux_listener *listener);
/* Logs that max_pending is lower than the program asked for, if it is. */
void rdmux_listener_tell_limits(struct rdmux_listener *listener);

/* ---------------------------------------------------------------------------- listener_socket.c */

/* Opens, binds and listens on a socket for HOST:PORT, and sets socket, address and watch. */
enum rdmux_status rdmux_listener_bind(struct rdmux_listener *listener, const char *text,
                                      uint32_t backlog);
/* Ends the rest of a listener that ran out of descriptors, once there is a spare one again.
 * step_lock and fabric->lock are held. */
void rdmux_listener_watch_again(struct rdmux_listener *listener);

/* ---------------------------------------------------------------------------- listener_rdmacm.c */

/* Opens the provider's listener for HOST:PORT of rdma://, and sets rdmacm, address and watch. */
enum rdmux_status rdmux_listener_listen_rdmacm(struct rdmux_listener *listener, const char *text,
                                               uint32_t backlog);

/* ------------------------------------------------------------------------------ listener_take.c */

/* Between begin and end, the call is poked whenever there may be a connection for it. Any
 * thread. */
void rdmux_listener_wait_begin(struct rdmux_listener *listener, struct rdmux_accept_wait *wait);
void rdmux_listener_wait_end(struct rdmux_listener *listener, struct rdmux_accept_wait *wait);
/* Returns true if there is a connection for this call. A call that has a set-up under way leaves
 * connections to calls that have none (has_none). setups: the number of endpoints in set-up of the
 * address or identity that is next. */
bool rdmux_listener_offers(struct rdmux_listener *listener, struct rdmux_accept_wait *wait,
                           bool has_none, uint32_t *setups);
/* Takes the longest-waiting introduced connection of an address or identity with the fewest
 * endpoints in set-up. RDMUX_AGAIN: none is offered to this call. Any thread. */
enum rdmux_status rdmux_listener_take_any(struct rdmux_listener *listener,
                                          struct rdmux_accept_wait *wait,
                                          struct rdmux_arrival *out);
/* Takes the connection with this id. RDMUX_INVALID: no such id. Any thread. */
enum rdmux_status rdmux_listener_take(struct rdmux_listener *listener, uint64_t id,
                                      struct rdmux_arrival *out);
/* An endpoint that rdmux_listener_take_any() has counted for this peer quota is no longer in
 * set-up. */
void rdmux_listener_end_setup(struct rdmux_listener *listener, struct rdmux_peer_quota *quota);
/* The maximum of concurrent set-ups of a cq. */
uint32_t rdmux_listener_max_setups(const struct rdmux_listener *listener);
/* The number of endpoints in set-up of the same address or identity, ep included. */
uint32_t rdmux_listener_setups_beside(const struct rdmux_ep *ep);

/* ----------------------------------------------------------------------------- listener_state.c */

/* fabric->lock is held. */
void rdmux_listener_set_state(struct rdmux_listener *listener, enum rdmux_listener_state state);

/* fabric->lock is held. rdmux_listener_update_descriptor() keeps the descriptor readable while a
 * connection is neither shown nor taken, or proved and not returned. rdmux_listener_poke_waits()
 * makes the accept calls check for a connection. */
void rdmux_listener_update_descriptor(struct rdmux_listener *listener);
void rdmux_listener_poke_waits(struct rdmux_listener *listener);

/* Returns true if one more log line caused by a pending connection may be written. The number of
 * lines in a period is bounded. Lines left out are counted, and their number is logged at the end
 * of the period. step_lock is held. */
bool rdmux_listener_may_tell(struct rdmux_listener *listener);
/* Logs how many lines were left out, and begins a period. rdmux_listener_lines_deadline() returns
 * when that is due; UINT64_MAX: nothing was left out. */
void rdmux_listener_log_left_out(struct rdmux_listener *listener);
uint64_t rdmux_listener_lines_deadline(const struct rdmux_listener *listener);

#endif
