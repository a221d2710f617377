/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * One connection of the connection manager (rdma_cm(7)), from nothing to its end: what follows from
 * each event. An endpoint has two, for its data and for its side channel. Pure: events go in, actions
 * come out; the stage is written here only.
 */
#ifndef RDMUX_IWARP_LINK_H
#define RDMUX_IWARP_LINK_H

#include <stdint.h>

enum iwarp_stage {
    IWARP_STAGE_NEW,
    IWARP_STAGE_FINDING_ADDRESS, /* the connector: the peer's address is being resolved */
    IWARP_STAGE_FINDING_ROUTE,
    IWARP_STAGE_CONNECTING, /* the peer has been asked */
    IWARP_STAGE_AWAITED,    /* the acceptor: the peer is to come */
    IWARP_STAGE_ACCEPTING,  /* it has come, and was told that it may */
    IWARP_STAGE_UP,
    IWARP_STAGE_OVER, /* it failed, or has ended */
    IWARP_STAGES,
};

enum iwarp_event {
    IWARP_EVENT_DIAL,  /* the connector begins */
    IWARP_EVENT_AWAIT, /* the acceptor does */
    IWARP_EVENT_ADDRESS_FOUND,
    IWARP_EVENT_ADDRESS_FAILED,
    IWARP_EVENT_ROUTE_FOUND,
    IWARP_EVENT_ROUTE_FAILED,
    IWARP_EVENT_REQUESTED,   /* a peer that knows the secret asks for this connection */
    IWARP_EVENT_ESTABLISHED, /* data may flow */
    IWARP_EVENT_REFUSED,     /* the peer does not want it, or nobody listens */
    IWARP_EVENT_UNREACHABLE,
    IWARP_EVENT_DISCONNECTED,
    IWARP_EVENT_DEVICE_REMOVED,
    IWARP_EVENT_PORT_TAKEN,  /* the port chosen here is somebody else's already */
    IWARP_EVENT_CALL_FAILED, /* what an action called */
    IWARP_EVENTS,
};

enum iwarp_action {
    IWARP_ACTION_NONE,
    IWARP_ACTION_FIND_ADDRESS,
    IWARP_ACTION_FIND_ROUTE,
    IWARP_ACTION_CONNECT,
    IWARP_ACTION_ACCEPT,
    IWARP_ACTION_REJECT,   /* the request, not this connection */
    IWARP_ACTION_TELL_UP,  /* the endpoint */
    IWARP_ACTION_TELL_END, /* one that was up */
    IWARP_ACTION_FAIL,     /* the attempt to connect, for the event's reason */
};

enum {
    /* An address that is not in the neighbour table is answered late where the answer overtakes the
     * question's bookkeeping, so short tries do better than one long. */
    IWARP_ADDRESS_TRIES = 10, /* all in all, those for another port included */
    IWARP_ADDRESS_MS = 200,   /* each */
    IWARP_ROUTE_MS = 2000,
};

struct iwarp_link {
    enum iwarp_stage stage;
    uint32_t tries;
};

enum iwarp_action rdmux_iwarp_link_step(struct iwarp_link *link, enum iwarp_event event);

/* "finding the route", for texts. */
const char *rdmux_iwarp_stage_text(enum iwarp_stage stage);
/* "the peer refused", for texts. */
const char *rdmux_iwarp_event_text(enum iwarp_event event);

#endif
