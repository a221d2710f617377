/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * What a listener keeps of connections that nobody has taken, from the first byte on, and of whom they
 * come from. Lists and counters change with fabric->lock held; strangers come and go with
 * fabric->step_lock held.
 */
#ifndef RDMUX_API_PENDING_CONNECTION_H
#define RDMUX_API_PENDING_CONNECTION_H

#include "api/accept/shake.h"
#include "api/core/ep.h"
#include "api/core/fabric.h"
#include "api/loop/descriptors.h"
#include "api/loop/service.h"
#include "negotiation/tls.h"

#include <sys/socket.h>

enum {
    RDMUX_STRANGER_FIRST_SIZE = 128, /* room in the record itself: a HELLO or a JOIN */
    RDMUX_QUOTA_BUCKETS = 1024,
    RDMUX_STRANGER_TIMER_NS = 100 * 1000 * 1000, /* how often it is looked who is due */
};

/*
 * Whom connections are counted by: an address (IPv6: a /64), or the identity of one that has
 * authenticated. It is there while one of its connections has not been taken, or is being set up.
 */
struct rdmux_peer_quota {
    struct rdmux_listener *listener;
    struct rdmux_list hash_link;    /* listener->origins[] */
    struct rdmux_list link;         /* listener->all_origins */
    struct rdmux_list waiting_link; /* listener->waiting, while one of it has introduced itself */
    struct rdmux_list silent;       /* strangers by quota_link, oldest first */
    struct rdmux_list introduced;   /* the same */
    uint32_t silent_count;
    uint32_t introduced_count;
    /* Endpoints that rdmux_accept() has taken for any peer and not returned. Changes with
     * fabric->lock held. */
    _Atomic uint32_t setups;
    uint32_t places; /* strangers of it that have one of the listener's; step_lock */
    struct rdmux_shake_source shakes; /* TLS handshakes of it that wait for their turn; step_lock */
    uint32_t key_size;
    uint8_t key[];
};

/* A connection nobody has taken yet. */
struct rdmux_pending_connection {
    struct rdmux_watch watch;
    struct rdmux_list link; /* listener->silent or listener->introduced */
    struct rdmux_listener *listener;
    struct rdmux_plain_call *call; /* then there is no socket */
    int socket;
    struct rdmux_peer_quota *quota;
    struct rdmux_list quota_link; /* origin->silent or origin->introduced */
    /* NULL: in clear, or the handshake has it. */
    struct rdmux_tls *tls;
    struct rdmux_shake *shake;    /* NULL: no TLS handshake is under way */
    struct rdmux_list place_link; /* listener->places or listener->hopeful */
    bool has_place;
    uint64_t idle_since_ns; /* the peer's next flight is waited for */
    uint32_t events;        /* that are watched */
    bool greeted;           /* a TLS handshake follows, or has */
    bool stepping;          /* a step of it is queued, runs, or has ended and was not looked at */
    bool introduced;
    bool shown;
    bool turned_away; /* and told so: what it says is dropped until it leaves */
    size_t ignored;   /* bytes of it */
    uint64_t id;
    uint64_t deadline_ns; /* to introduce itself; then, to be taken */
    struct sockaddr_storage address;
    socklen_t address_length;
    uint8_t first[RDMUX_STRANGER_FIRST_SIZE];
    uint8_t *bytes; /* first, or an allocation once an OFFER is known to come */
    size_t have;
    size_t hello_size; /* bytes of the HELLO at the beginning, 0 while it is not complete */
    uint32_t private_length;
    uint8_t private_data[RDMUX_PRIVATE_DATA_MAX];
};

struct rdmux_listener {
    struct rdmux_acceptor acceptor; /* its time: 0: none, but for a crowd */
    struct rdmux_watch watch;
    struct rdmux_fabric *fabric;
    struct rdmux_plain_listener *plain; /* its provider's; then there is no socket; step_lock */
    struct rdmux_list link;             /* fabric->listeners; fabric->lock, like all below */
    int socket;
    int event_fd;
    /* Given up for a moment when descriptors run out, so that a connection can be refused. */
    int spare_fd;
    char address[RDMUX_ADDRESS_MAX];
    char paths[256];
    struct rdmux_listen_attr asked; /* with defaults; the limits below may be smaller */
    struct rdmux_descriptor_limit descriptors;
    uint32_t max_pending;
    uint32_t hello_timeout_ms;
    uint32_t max_per_address;
    uint32_t max_waiting_per_address;
    _Atomic uint32_t max_setups;
    uint64_t quota_seed; /* so that nobody chooses whom he shares a bucket with */
    struct rdmux_list quotas[RDMUX_QUOTA_BUCKETS];
    struct rdmux_list all_quotas;
    struct rdmux_list waiting; /* origins; the one that was taken from last at the end */
    uint32_t crowds;           /* origins that are one, see rdmux_peer_quota_is_crowd() */
    uint32_t count;            /* strangers */
    uint32_t unshown;
    int proved;
    uint32_t refs; /* endpoints in set-up, and the application's handle */
    bool closed;
    bool readable;
    /* step_lock: not watched until the next timer, as there is no descriptor for anybody. */
    bool resting;
    /* step_lock: lines that strangers have caused. */
    uint64_t told_since_ns;
    uint32_t told;
    uint64_t untold;              /* since then */
    struct rdmux_list silent;     /* oldest first */
    struct rdmux_list introduced; /* oldest first */
    /* sessions.c, step_lock: strangers whose TLS handshake is under way, oldest first, */
    struct rdmux_list places;
    uint32_t place_count;
    struct rdmux_list hopeful; /* and those that wait for a place among them */
    pthread_cond_t changed;
    struct rdmux_list waits; /* rdmux_accept_wait */
};

static inline struct rdmux_listener *rdmux_listener_of(struct rdmux_acceptor *acceptor)
{
    return RDMUX_CONTAINER(acceptor, struct rdmux_listener, acceptor);
}

/* May a line be logged that a stranger has caused? So many in a while; what is left out is counted, and
 * the number told when the while is over. step_lock is held. */
bool rdmux_listener_may_tell(struct rdmux_listener *listener);

/* ------------------------------------------------------------------- pending_connection.c, for listener.c */

/* A connection that was accepted; the socket is the stranger's, whatever happens. */
void rdmux_pending_take(struct rdmux_listener *listener, int socket,
                        const struct sockaddr_storage *address, socklen_t address_length);
/* It has been counted, and may be one too many: one goes. False: it is the one. */
bool rdmux_pending_has_room(struct rdmux_pending_connection *newcomer);
/* It may be shown and taken. */
void rdmux_pending_becomes_known(struct rdmux_pending_connection *pending);
/* Sends all of it, or false: it does not listen. */
bool rdmux_pending_say(struct rdmux_pending_connection *pending, const uint8_t *bytes, size_t size);
void rdmux_pending_address(struct rdmux_pending_connection *pending, char out[RDMUX_ADDRESS_MAX]);

/* Ends it. why: logged, unless NULL. */
void rdmux_pending_drop(struct rdmux_pending_connection *pending, const char *why);
/* One goes, so that there is room for a newcomer, who is of one of the origins; NULL: nobody knows of
 * which. False: nobody has to go. */
bool rdmux_pending_drop_one(struct rdmux_listener *listener,
                            struct rdmux_pending_connection *newcomer, const char *why);
/* The parts of that, for who takes its socket: off the service thread's list, off the listener's
 * (fabric->lock is held), the connection ends, the record goes. */
void rdmux_pending_unwatch(struct rdmux_pending_connection *pending);
void rdmux_pending_unlink(struct rdmux_pending_connection *pending);
void rdmux_pending_hang_up(struct rdmux_pending_connection *pending);
void rdmux_pending_free(struct rdmux_pending_connection *pending);

/* ------------------------------------------------------------------------ sessions.c; step_lock */

/* It may have a TLS session from now on. False: there is no place, and its watch is called once there may be. */
bool rdmux_session_take_place(struct rdmux_pending_connection *pending);
/* It needs none any more, as its peer is known, or it goes. Has it had none: nothing. */
void rdmux_session_leave_place(struct rdmux_pending_connection *pending);
/* Now and then, while somebody is silent. */
void rdmux_session_timer(struct rdmux_listener *listener);

/* ------------------------------------------------------------------- peer_quota.c; fabric->lock is held */

/* One more of it that is silent. Of an address, unless the stranger is a call of rdma://. RDMUX_NO_MEMORY */
enum rdmux_status rdmux_peer_quota_enter(struct rdmux_pending_connection *pending);
/* It has introduced itself, and counts by its identity if it has one. */
void rdmux_peer_quota_introduce(struct rdmux_pending_connection *pending);
/* It is taken, or gone. */
void rdmux_peer_quota_leave(struct rdmux_pending_connection *pending);
/* An endpoint of it is being set up, or is no more. */
void rdmux_peer_quota_begin_setup(struct rdmux_peer_quota *quota);
void rdmux_peer_quota_end_setup(struct rdmux_peer_quota *quota);
/* Does more than half of what it may have wait to be taken? */
bool rdmux_peer_quota_is_crowd(const struct rdmux_peer_quota *quota);
/* max_waiting_per_address has changed. */
void rdmux_peer_quotas_count_crowds(struct rdmux_listener *listener);
/* The one that holds most of what has not been taken; NULL: there is none. */
struct rdmux_peer_quota *rdmux_peer_quota_largest(struct rdmux_listener *listener);
static inline uint32_t rdmux_peer_quota_count(const struct rdmux_peer_quota *quota)
{
    return quota->silent_count + quota->introduced_count;
}
/* Whose turn it is: of those that wait and have room, one with the fewest set-ups. NULL: nobody's. */
struct rdmux_peer_quota *rdmux_peer_quota_next(struct rdmux_listener *listener);

/* ------------------------------------------------------------------- listener.c, for pending_connection.c */

/* fabric->lock is held: the descriptor is readable while something is neither shown nor taken, or
 * proved and not returned; accept calls look whether there is something for them. */
void rdmux_listener_update_descriptor(struct rdmux_listener *listener);
void rdmux_listener_poke_waits(struct rdmux_listener *listener);

#endif
