/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Set-up of endpoints, as connect, accept and adopt use it. All in the cq's domain. */
#ifndef RDMUX_API_CONNECTION_H
#define RDMUX_API_CONNECTION_H

#include "api/core.h"
#include "api/accept/listener.h"

/* Gives the endpoint its set-up: offer, limits of time. timeout_ms as in rdmux.h: 0 means attr's
 * setup_timeout_ms. listener_paths: the listener's filter, NULL for a connector. On failure
 * rdmux_ep_dismantle() takes it away. */
enum rdmux_status rdmux_ep_setup_create(struct rdmux_ep *ep, const struct rdmux_ep_attr *attr,
                                        const char *listener_paths, int timeout_ms);
/* attr.local, as call got it. RDMUX_INVALID: nothing of this machine has that name. */
enum rdmux_status rdmux_check_local(struct rdmux_fabric *fabric, const char *call,
                                    const char *local);
/* What an endpoint's attributes and the fabric make of an offer. RDMUX_INVALID: attr.local names
 * nothing here. */
enum rdmux_status rdmux_offer_fill(struct rdmux_fabric *fabric, const struct rdmux_ep_attr *attr,
                                   const char *listener_paths, struct rdmux_offer *offer);
/* Start; a failure later than these shows as the end of the endpoint's set-up. The sockets are
 * taken in any case. */
enum rdmux_status rdmux_ep_start_connect(struct rdmux_ep *ep, const char *address);
enum rdmux_status rdmux_ep_start_accept(struct rdmux_ep *ep, struct rdmux_arrival *arrival);
enum rdmux_status rdmux_ep_start_adopt(struct rdmux_ep *ep, int socket, enum rdmux_role role);
/* Set-up failed, ep->status and its text tell why: everything posted so far ends, an event tells if
 * one was promised. */
void rdmux_ep_setup_failed(struct rdmux_ep *ep);
/* The same without event: requests, imports and the control channel end. (ep.c) */
void rdmux_ep_end_unconnected(struct rdmux_ep *ep);
/* What set-up is doing, in words. */
void rdmux_ep_setup_stage(const struct rdmux_ep *ep, char *out, size_t size);
/* When the peer will have been silent for the liveness time, if it stays so; UINT64_MAX: never
 * (control.c). */
uint64_t rdmux_ep_silent_ns(const struct rdmux_ep *ep);
/* The control channel is there, and should not be taken for alive when it is not. */
void rdmux_ep_watch_channel(const struct rdmux_ep *ep);
/* Timers of a connected endpoint (control.c). */
void rdmux_ep_live_timers(struct rdmux_ep *ep, uint64_t now_ns);

#endif
