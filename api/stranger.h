/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * What a listener keeps of connections that nobody has taken, from the first byte on. Lists and counters
 * change with fabric->lock held; strangers come and go with fabric->step_lock held.
 */
#ifndef RDMUX_API_STRANGER_H
#define RDMUX_API_STRANGER_H

#include "api/listener.h"

#include "api/plain.h"
#include "negotiation/tls.h"

#include <sys/socket.h>

enum {
    RDMUX_STRANGER_FIRST_SIZE = 128, /* room in the record itself: a HELLO or a JOIN */
    RDMUX_STRANGER_ADDRESSES = 1024, /* buckets that strangers are counted in, by address */
    RDMUX_STRANGER_TIMER_NS = 100 * 1000 * 1000, /* how often it is looked who is due */
};

/* A connection nobody has taken yet. */
struct stranger {
    struct rdmux_watch watch;
    struct rdmux_list link; /* listener->silent or listener->introduced */
    struct rdmux_listener *listener;
    struct rdmux_plain_call *call; /* then there is no socket */
    int socket;
    struct rdmux_list address_link; /* listener->addresses, while it is silent */
    struct rdmux_tls *tls;          /* NULL: in clear */
    uint32_t events;                /* that are watched */
    uint32_t bucket;                /* of its address */
    bool introduced;
    bool shown;
    bool turned_away; /* and told so: what it says is dropped until it leaves */
    size_t ignored;   /* bytes of it */
    uint64_t id;
    uint64_t deadline_ns;
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
    uint32_t max_pending;
    uint32_t hello_timeout_ms;
    uint32_t max_per_address;
    uint64_t address_seed; /* so that nobody chooses whom he shares a bucket with */
    /* Silent ones by address, oldest first. step_lock. */
    struct {
        struct rdmux_list strangers;
        uint32_t count;
    } addresses[RDMUX_STRANGER_ADDRESSES];
    uint32_t count; /* strangers */
    uint32_t unshown;
    int proved;
    uint32_t refs; /* endpoints in set-up, and the application's handle */
    bool closed;
    bool readable;
    /* step_lock: not watched until the next timer, as there is no descriptor for anybody. */
    bool resting;
    struct rdmux_list silent;     /* oldest first */
    struct rdmux_list introduced; /* oldest first */
    pthread_cond_t changed;
    struct rdmux_list waits; /* rdmux_accept_wait */
};

/* ------------------------------------------------------------------- stranger.c, for listener.c */

/* A connection that was accepted; the socket is the stranger's, whatever happens. */
void rdmux_stranger_take(struct rdmux_listener *listener, int socket,
                         const struct sockaddr_storage *address, socklen_t address_length);
/* It may be shown and taken. */
void rdmux_stranger_becomes_known(struct stranger *stranger);
/* Sends all of it, or false: it does not listen. */
bool rdmux_stranger_say(struct stranger *stranger, const uint8_t *bytes, size_t size);
void rdmux_stranger_address(struct stranger *stranger, char out[RDMUX_ADDRESS_MAX]);

/* Ends it. why: logged, unless NULL. */
void rdmux_stranger_drop(struct stranger *stranger, const char *why);
void rdmux_stranger_drop_oldest(struct rdmux_listener *listener, const char *why);
/* The parts of that, for who takes its socket: off the service thread's list, off the listener's
 * (fabric->lock is held), the connection ends, the record goes. */
void rdmux_stranger_unwatch(struct stranger *stranger);
void rdmux_stranger_unlink(struct stranger *stranger);
void rdmux_stranger_hang_up(struct stranger *stranger);
void rdmux_stranger_free(struct stranger *stranger);

/* ------------------------------------------------------------------- listener.c, for stranger.c */

/* fabric->lock is held: the descriptor is readable while something is neither shown nor taken, or
 * proved and not returned; accept calls look whether there is something for them. */
void rdmux_listener_update_descriptor(struct rdmux_listener *listener);
void rdmux_listener_poke_waits(struct rdmux_listener *listener);

#endif
