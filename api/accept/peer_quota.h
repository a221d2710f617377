/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Peer quotas: for each address or identity, the number of a listener's connections that are
 * pending or in set-up. For all functions: fabric->lock is held.
 */
#ifndef RDMUX_API_ACCEPT_PEER_QUOTA_H
#define RDMUX_API_ACCEPT_PEER_QUOTA_H

#include "api/accept/shake.h"
#include "api/core/fabric.h"

struct rdmux_listener;
struct rdmux_pending_connection;

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

#endif
