/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* States of an endpoint. */
#ifndef RDMUX_FRAMED_ENDPOINT_H
#define RDMUX_FRAMED_ENDPOINT_H

#include "adapters/framed/framed.h"

#include <rdmux/provider.h>

/* The only writer of ep->state. */
void rdmux_framed_write_state(struct framed_ep *ep, enum framed_state next);
/* Fails a connected endpoint: the core is told, and nothing more is sent or carried out. The text
 * has the adapter's name in front. */
void rdmux_framed_fail(struct framed_ep *ep, enum rdmux_status status, const char *format, ...)
    RDMUX_PRINTF(3, 4);

/* The lane is about to get a message; counts it as under way. */
void rdmux_framed_began(struct framed_ep *ep);
/* Counts one message less. */
static inline void framed_ended(struct framed_ep *ep)
{
    ep->under_way--;
    framed_cq_of(ep)->under_way--;
}
/* The lane did not take a message: the next poll offers it again, and a tick if the cq is armed. */
void rdmux_framed_blocked(struct framed_ep *ep);

/* A new endpoint: where the lane has a bell, the peer rings, and this side does. */
void rdmux_framed_bell_join(struct framed_ep *ep);
/* The peer rings from now on. */
void rdmux_framed_bell_answered(struct framed_ep *ep);
void rdmux_framed_bell_leave(struct framed_ep *ep);

/* Schedules the endpoint for the next poll. */
static inline void framed_attend(struct framed_ep *ep)
{
    if (!rdmux_node_is_listed(&ep->attention)) {
        rdmux_list_append(&framed_cq_of(ep)->attention, &ep->attention);
    }
}

static inline bool framed_may_send(const struct framed_ep *ep)
{
    return ep->state == FRAMED_GREETING || ep->state == FRAMED_CONNECTED;
}

#endif
