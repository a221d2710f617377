/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Listeners: what the service thread and accepting cqs share. */
#ifndef RDMUX_API_LISTENER_H
#define RDMUX_API_LISTENER_H

#include "api/core/cq.h"
#include "api/core/ep.h"
#include "api/core/fabric.h"
#include "api/setup/handshake_driver.h"

struct rdmux_arrival; /* handshake_driver.h */

/* An accept call that waits for any connection, as the listener's other calls see it.
 * fabric->lock. */
struct rdmux_accept_wait {
    struct rdmux_list link; /* listener->waits */
    struct rdmux_cq *cq;
    bool has_none; /* nothing that the call could return is being negotiated */
};
/* The call is poked whenever there may be something for it to take. Any thread. */
void rdmux_listener_wait_begin(struct rdmux_listener *listener, struct rdmux_accept_wait *wait);
void rdmux_listener_wait_end(struct rdmux_listener *listener, struct rdmux_accept_wait *wait);
/* Is there a connection for this call, which has none or some? A call that has some leaves them to
 * those that have none. setups: of the address or identity whose turn it is, endpoints in set-up. */
bool rdmux_listener_offers(struct rdmux_listener *listener, struct rdmux_accept_wait *wait,
                           bool has_none, uint32_t *setups);
/* Takes the connection that has introduced itself and waits the longest, of an address or identity with
 * the fewest endpoints in set-up; RDMUX_AGAIN: none is offered to this call. Any thread. */
enum rdmux_status rdmux_listener_take_any(struct rdmux_listener *listener,
                                          struct rdmux_accept_wait *wait,
                                          struct rdmux_arrival *out);
/* Takes the one with this id; RDMUX_INVALID: no such id. Any thread. */
enum rdmux_status rdmux_listener_take(struct rdmux_listener *listener, uint64_t id,
                                      struct rdmux_arrival *out);
/* References: a listener lives until its last endpoint in set-up has let go. */
void rdmux_listener_get(struct rdmux_listener *listener);
void rdmux_listener_put(struct rdmux_listener *listener);
/* How many are negotiated side by side for a cq. */
uint32_t rdmux_listener_max_setups(const struct rdmux_listener *listener);
/* Endpoints in set-up of the same address or identity, this one included. */
uint32_t rdmux_listener_setups_beside(const struct rdmux_ep *ep);
struct rdmux_fabric *rdmux_listener_fabric(struct rdmux_listener *listener);
const char *rdmux_listener_paths(const struct rdmux_listener *listener);
bool rdmux_listener_is_plain(const struct rdmux_listener *listener);
/* Every listener's HELLO timeouts; returns when to come again. step_lock is held. */
uint64_t rdmux_listeners_timers(struct rdmux_fabric *fabric, uint64_t now_ns);

/* One stranger goes: of the fabric's listeners, of the one with the address that holds the most. why is logged. False: nobody
 * can go. Any thread that holds no lock of the fabric's but step_lock. */
bool rdmux_listeners_shed(struct rdmux_fabric *fabric, const char *why);

#endif
