/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * The states of one connection of the connection manager (rdma_cm(7)). An endpoint has two, for its
 * data and for its side channel. Pure: events go in, actions come out; only this file's code writes
 * the stage.
 */
#ifndef RDMUX_IWARP_LINK_H
#define RDMUX_IWARP_LINK_H

#include <stdint.h>

enum iwarp_stage {
    IWARP_STAGE_NEW,
    IWARP_STAGE_FINDING_ADDRESS, /* connector: the peer's address is being resolved */
    IWARP_STAGE_FINDING_ROUTE,
    IWARP_STAGE_CONNECTING, /* connector: the request is with the peer */
    IWARP_STAGE_AWAITED,    /* acceptor: waits for the peer's request */
    IWARP_STAGE_ACCEPTING,  /* acceptor: the request has come and was accepted */
    IWARP_STAGE_UP,
    IWARP_STAGE_OVER, /* failed or ended */
    IWARP_STAGES,
};

enum iwarp_event {
    IWARP_EVENT_DIAL,  /* the connector starts */
    IWARP_EVENT_AWAIT, /* the acceptor starts */
    IWARP_EVENT_ADDRESS_FOUND,
    IWARP_EVENT_ADDRESS_FAILED,
    IWARP_EVENT_ROUTE_FOUND,
    IWARP_EVENT_ROUTE_FAILED,
    IWARP_EVENT_REQUESTED,   /* a peer that knows the secret asks for this connection */
    IWARP_EVENT_ESTABLISHED, /* data may flow */
    IWARP_EVENT_REFUSED,     /* the peer rejects it, or has no listener */
    IWARP_EVENT_UNREACHABLE,
    IWARP_EVENT_DISCONNECTED,
    IWARP_EVENT_DEVICE_REMOVED,
    IWARP_EVENT_PORT_TAKEN,  /* the local port is in use already */
    IWARP_EVENT_CALL_FAILED, /* the call of an action failed */
    IWARP_EVENTS,
};

enum iwarp_action {
    IWARP_ACTION_NONE,
    IWARP_ACTION_FIND_ADDRESS,
    IWARP_ACTION_FIND_ROUTE,
    IWARP_ACTION_CONNECT,
    IWARP_ACTION_ACCEPT,
    IWARP_ACTION_REJECT,   /* rejects the request; the connection stays */
    IWARP_ACTION_TELL_UP,  /* tells the endpoint that it is up */
    IWARP_ACTION_TELL_END, /* tells the endpoint that an established connection has ended */
    IWARP_ACTION_FAIL,     /* fails the attempt to connect, with the event as reason */
};

enum {
    /* An address missing from the neighbour table is resolved late if the answer overtakes the
     * request's bookkeeping, so several short tries are faster than one long one. */
    IWARP_ADDRESS_TRIES = 10, /* in total, including tries for another port */
    IWARP_ADDRESS_MS = 200,   /* each */
    IWARP_ROUTE_MS = 2000,
};

struct iwarp_link {
    enum iwarp_stage stage;
    uint32_t tries;
};

enum iwarp_action rdmux_iwarp_link_step(struct iwarp_link *link, enum iwarp_event event);
/* This side gives the connection up, or closes it, in any stage. */
void rdmux_iwarp_link_end(struct iwarp_link *link);

/* For texts, such as "finding the route". */
const char *rdmux_iwarp_stage_text(enum iwarp_stage stage);
/* For texts, such as "there is no route". */
const char *rdmux_iwarp_event_text(enum iwarp_event event);

#endif
