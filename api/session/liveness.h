/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Heartbeats, and silence of the peer. */
#ifndef RDMUX_API_SESSION_LIVENESS_H
#define RDMUX_API_SESSION_LIVENESS_H

#include "api/core/ep.h"

enum { RDMUX_HEARTBEATS = 4 }; /* in a liveness time */
/* Owner: set-up succeeded: heartbeats start. */
void rdmux_ep_start_liveness(struct rdmux_ep *ep);
/* When the peer will have been silent for the liveness time, if it stays so; UINT64_MAX: never */
uint64_t rdmux_ep_silent_ns(const struct rdmux_ep *ep);
/* The control channel is there, and should not be taken for alive when it is not. */
void rdmux_ep_watch_channel(const struct rdmux_ep *ep);
/* Timers of a connected endpoint. */
void rdmux_ep_live_timers(struct rdmux_ep *ep, uint64_t now_ns);

#endif
