/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The send side: fills messages with requests, answers and small words, and gives them to the
 * lane. */
#ifndef RDMUX_FRAMED_SEND_H
#define RDMUX_FRAMED_SEND_H

#include "adapters/framed/framed.h"

/* Events that a refused post waits for. */
enum {
    FRAMED_WAIT_ROOM = 1 << 0,
    FRAMED_WAIT_CREDIT = 1 << 1,
    FRAMED_WAIT_ANSWER = 1 << 2,
    FRAMED_WAIT_BODY = 1 << 3,
    FRAMED_WAIT_COPY = 1 << 4, /* memory of the lane, which a message that was sent gives back */
};

/* Use of the words of request->provider[] in a send-side request. */
enum {
    FRAMED_NEXT = 0,  /* the next request in its queue */
    FRAMED_INDEX = 1, /* the request's number on the wire, to which a refusal refers */
    FRAMED_DONE = 2,  /* a read's bytes that have come, or were announced */
    FRAMED_LEFT = 2, /* what a send or write waits for: its last frame or the ACK, and its bodies */
};

struct rdmux_request *rdmux_framed_queue_pop(struct framed_queue *queue);

/* One of the things that a send or write waited for has happened. */
void rdmux_framed_settle(struct framed_ep *ep, struct rdmux_request *request);
/* Describes size bytes of a request, from its byte `at` on. Returns the number of pieces; 0: more
 * than max. */
size_t rdmux_framed_pieces(const struct rdmux_request *request, uint64_t at, uint64_t size,
                           struct iovec *out, size_t max);

/* Lets the core post again if a refused post waited for this event (FRAMED_WAIT_*). */
void rdmux_framed_came(struct framed_ep *ep, uint32_t what);
/* Sends what is owed at the next poll; at once if the cq is armed, as the caller may sleep. */
void rdmux_framed_nudge(struct framed_ep *ep);
/* Sends as much as possible. Returns the number of messages. */
size_t rdmux_framed_pump(struct framed_ep *ep);
/* Gives the lane what it did not take. Returns the number of messages. */
size_t rdmux_framed_retry(struct framed_ep *ep);
/* Returns whether something is to be sent, whether or not it can be now. */
bool rdmux_framed_owes(const struct framed_ep *ep);

/* Adds an answer to the ring, for the peer's request with this number. The ring has room. */
struct framed_answer *rdmux_framed_answer(struct framed_ep *ep, uint8_t kind, uint64_t index);
/* Refuses a request of the peer: later requests are not carried out. */
void rdmux_framed_refuse(struct framed_ep *ep, uint64_t index, enum rdmux_status status);
/* Removes and returns the request that the peer refused, by number. NULL: it was completed, or the
 * lane still sends bodies of it. */
struct rdmux_request *rdmux_framed_take_refused(struct framed_ep *ep, uint64_t index);

#endif
