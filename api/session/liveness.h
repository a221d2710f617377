/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Heartbeats and silence of the peer. */
#ifndef RDMUX_API_SESSION_LIVENESS_H
#define RDMUX_API_SESSION_LIVENESS_H

#include "api/core/ep.h"

enum { RDMUX_HEARTBEATS = 4 }; /* heartbeats in one liveness time */
/* Owner: starts heartbeats after set-up. */
void rdmux_ep_start_liveness(struct rdmux_ep *ep);
/* Returns when the silence of the peer reaches the liveness time, if it lasts. UINT64_MAX: never */
uint64_t rdmux_ep_silent_ns(const struct rdmux_ep *ep);
/* Enables TCP keepalive on the control channel, so that a dead channel is noticed. */
void rdmux_ep_watch_channel(const struct rdmux_ep *ep);
/* Runs the timers of a connected endpoint. */
void rdmux_ep_live_timers(struct rdmux_ep *ep, uint64_t now_ns);

#endif
