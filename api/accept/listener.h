/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Listeners, as shared by the service thread and accepting cqs. */
#ifndef RDMUX_API_ACCEPT_LISTENER_H
#define RDMUX_API_ACCEPT_LISTENER_H

#include "api/core/cq.h"
#include "api/core/ep.h"
#include "api/core/fabric.h"

struct rdmux_arrival; /* setup.h */

/* A waiting accept call for any connection, as the listener's other accept calls see it.
 * fabric->lock. */
struct rdmux_accept_wait {
    struct rdmux_list link; /* listener->waits */
    struct rdmux_cq *cq;
    bool has_none; /* no endpoint that the call could return is in set-up */
};
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
/* References: a listener lives until its last endpoint in set-up has released it. */
void rdmux_listener_get(struct rdmux_listener *listener);
void rdmux_listener_put(struct rdmux_listener *listener);
/* The maximum of concurrent set-ups of a cq. */
uint32_t rdmux_listener_max_setups(const struct rdmux_listener *listener);
/* The number of endpoints in set-up of the same address or identity, ep included. */
uint32_t rdmux_listener_setups_beside(const struct rdmux_ep *ep);
struct rdmux_fabric *rdmux_listener_fabric(struct rdmux_listener *listener);
const char *rdmux_listener_paths(const struct rdmux_listener *listener);
bool rdmux_listener_is_rdmacm(const struct rdmux_listener *listener);
/* Enforces the HELLO timeouts of all listeners. Returns the time of the next call. step_lock is
 * held. */
uint64_t rdmux_listeners_timers(struct rdmux_fabric *fabric, uint64_t now_ns);

/* Evicts one pending connection of the fabric's listeners, of the address or identity that holds
 * the most. why is logged. False: there is none to evict. Takes step_lock, so the caller holds no
 * other lock of the fabric, except claim.lock within a slice. Any thread. */
bool rdmux_listeners_shed(struct rdmux_fabric *fabric, const char *why);

#endif
