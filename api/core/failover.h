/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Failover as the layers below it see it: what an endpoint with failover does besides, see struct
 * rdmux_failover_hooks. On an endpoint without failover each function tests for that and does
 * nothing else. */
#ifndef RDMUX_API_CORE_FAILOVER_H
#define RDMUX_API_CORE_FAILOVER_H

#include "api/core/ep.h"
#include "api/core/fabric.h"

/* Returns whether the path is lost and the next one is not there yet. */
static inline bool rdmux_failover_is_moving(const struct rdmux_ep *ep)
{
    return ep->retention.is_moving;
}

/* For an endpoint with failover: returns how many of `run` waiting requests may go to the path. */
static inline uint64_t rdmux_failover_run(struct rdmux_ep *ep, uint64_t run)
{
    return ep->fabric->failover_hooks->run(ep, run);
}

/* [data path] */
static inline void rdmux_failover_confirm(struct rdmux_ep *ep)
{
    if (ep->failover != NULL) {
        ep->fabric->failover_hooks->confirm(ep);
    }
}

/* Returns whether anything was done. */
static inline bool rdmux_failover_falls_quiet(struct rdmux_ep *ep)
{
    return ep->failover != NULL && ep->fabric->failover_hooks->quiet(ep);
}

/* Returns whether failover handles ep->fault; false: the endpoint ends by it. */
static inline bool rdmux_failover_takes_fault(struct rdmux_ep *ep)
{
    return ep->failover != NULL && ep->fabric->failover_hooks->takes_loss(ep, NULL);
}

/* The same for a peer that was silent for the liveness time. */
static inline bool rdmux_failover_takes_silence(struct rdmux_ep *ep, const char *text)
{
    return ep->failover != NULL && ep->fabric->failover_hooks->takes_loss(ep, text);
}

/* Hands on MOVE, RECEIVED, BACK and REVOKED of the peer, and a REVOKE that is about to be sent.
 * False: the endpoint has no failover. */
static inline bool rdmux_failover_takes_message(struct rdmux_ep *ep,
                                                const struct rdmux_message *message)
{
    if (ep->failover == NULL) {
        return false;
    }
    ep->fabric->failover_hooks->message(ep, message);
    return true;
}

/* Sending on the control channel failed, for the reason in `text`. False: the endpoint has no
 * failover. */
static inline bool rdmux_failover_takes_channel(struct rdmux_ep *ep, const char *text)
{
    if (ep->failover == NULL) {
        return false;
    }
    ep->fabric->failover_hooks->channel_broken(ep, text);
    return true;
}

static inline void rdmux_failover_tell_received(struct rdmux_ep *ep)
{
    if (ep->failover != NULL) {
        ep->fabric->failover_hooks->tell_received(ep);
    }
}

/* Returns whether neither a move nor a reconnect of the control channel is under way. */
static inline bool rdmux_failover_is_steady(const struct rdmux_ep *ep)
{
    return ep->failover == NULL || ep->fabric->failover_hooks->is_steady(ep);
}

/* For an endpoint with failover that changes its cq, see struct rdmux_failover_hooks. */
static inline void rdmux_failover_cut_for_cq(struct rdmux_ep *ep)
{
    ep->fabric->failover_hooks->cut_for_cq(ep);
}

static inline bool rdmux_failover_is_cut(const struct rdmux_ep *ep)
{
    return ep->fabric->failover_hooks->is_cut(ep);
}

static inline void rdmux_failover_leaves_cq(struct rdmux_ep *ep)
{
    if (ep->failover != NULL) {
        ep->fabric->failover_hooks->leave_cq(ep);
    }
}

static inline void rdmux_failover_goes_on(struct rdmux_ep *ep)
{
    if (ep->failover != NULL) {
        ep->fabric->failover_hooks->go_on(ep);
    }
}

static inline void rdmux_failover_abandon(struct rdmux_ep *ep)
{
    if (ep->failover != NULL) {
        ep->fabric->failover_hooks->abandon(ep);
    }
}

static inline void rdmux_failover_end_requests(struct rdmux_ep *ep)
{
    if (ep->failover != NULL) {
        ep->fabric->failover_hooks->end_requests(ep);
    }
}

#endif
