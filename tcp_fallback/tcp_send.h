/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Sending. An endpoint's outgoing bytes are a batch (headers and small payloads, copied into one
 * pooled buffer), then at most one payload that is gathered from its scatter/gather list.
 * Everything else waits until that payload is out: requests wait in the core (RDMUX_AGAIN),
 * acknowledgments as counts, answers in the ring of answers. So an idle endpoint owns no buffer,
 * and reading never depends on room for sending.
 */
#ifndef RDMUX_TCP_SEND_H
#define RDMUX_TCP_SEND_H

#include "tcp_fallback/tcp_frame.h"

#include <rdmux/provider.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

enum {
    /* Offsets modulo 4096 at which a batch and the scratch buffer (TCP_SCRATCH_START) begin. They
     * avoid 4K aliasing: a copy is slow (4 KiB: 1 us) while its stores go to the same offset within
     * a page as its next loads, or a little behind. Payloads of applications begin at the start of
     * a page or, from malloc(), 16 bytes behind it. The kernel's copy of a batch begins at the
     * start of a page. */
    TCP_BATCH_START = 4096 - 64 - 8,
    TCP_COPY_MAX = 4096,        /* payloads up to this are copied into the batch */
    TCP_STRIPE_MIN = 256 << 10, /* payloads from this size on are spread over several sockets */
    TCP_ANSWERS = 32,           /* reads and atomics of the peer that may be in flight */
};

struct tcp_ep;
struct tcp_lane;

/* Requests that wait for the peer's ACK or answer, in order. Linked through a word of
 * request->provider[], which has no room for a second link. */
struct tcp_queue {
    struct rdmux_request *first;
    struct rdmux_request *last;
    uint32_t count;
};

/* Use of the words of request->provider[] in a send-side request. */
enum {
    TCP_NEXT = 0,  /* the next request in its tcp_queue */
    TCP_INDEX = 1, /* the endpoint's request number on the wire, from 0; NAK refers to it */
    TCP_DONE = 2,  /* a read's bytes that have come */
};

void rdmux_tcp_queue_push(struct tcp_queue *queue, struct rdmux_request *request);
struct rdmux_request *rdmux_tcp_queue_pop(struct tcp_queue *queue);
/* Removes and returns the request with this index; NULL: not in the queue. */
struct rdmux_request *rdmux_tcp_queue_take(struct tcp_queue *queue, uint64_t index);

/* An answer that is still to be sent to the peer. */
struct tcp_answer {
    uint8_t kind; /* TCP_DATA, TCP_RESULT or TCP_NAK */
    uint8_t key[TCP_KEY_SIZE];
    uint64_t index;  /* the request's number */
    uint64_t offset; /* DATA: in the region; RESULT: the value */
    uint64_t length; /* DATA: bytes; NAK: the status */
    uint64_t at;     /* bytes sent */
};

/* Destination or source of a frame's payload. */
enum tcp_payload {
    TCP_PAYLOAD_NONE,
    TCP_PAYLOAD_REQUEST, /* in: the request in tcp_incoming; out: out.open */
    TCP_PAYLOAD_ANSWER,  /* in: the oldest read of this side; out: the oldest answer */
    /* out: fills up the frame of an answer whose region was revoked meanwhile (a NAK follows), or
     * of a request that the peer has refused */
    TCP_PAYLOAD_ZEROS,
};

struct tcp_out {
    uint8_t *batch; /* pooled buffer, NULL while there is nothing to send */
    uint32_t head;
    uint32_t tail;
    uint8_t payload; /* enum tcp_payload of the payload behind the batch */
    bool is_dead;    /* the socket takes no more bytes; reading gives the cause */
    /* This side sent an early message, and the credit that pays for it has not come. */
    bool is_in_debt;
    bool is_stopped; /* is_dead or is_in_debt: no request starts; update_stop() */
    /* A receive took an early message, and the credit for it is still to be sent. */
    bool is_paying;
    bool is_over; /* the NAK is sent: only control frames follow */
    bool was_answer_last;
    int error;
    uint64_t frame_length;
    uint64_t requests;          /* this side's requests sent */
    struct rdmux_request *open; /* request whose payload is not all sent */
    uint64_t open_at;
    uint8_t *control; /* pooled buffer with control frames that wait for the frame's end */
    uint32_t control_size;
    uint64_t acks;
    bool is_credit_due; /* grant credits now, in a frame of their own if necessary */
    bool is_asking;
    bool is_recalling;
    bool is_giving_back;
    uint32_t answers_first;
    uint32_t answers_count;
    struct tcp_answer answers[TCP_ANSWERS + 1]; /* one more for the NAK */
};

/* Events that a refused post waits for. */
enum {
    TCP_WAIT_ROOM = 1 << 0,
    TCP_WAIT_CREDIT = 1 << 1,
    TCP_WAIT_ANSWER = 1 << 2,
};

/* Sends pending frames: at once if the cq is armed, because the caller may sleep, else at the next
 * poll. */
void rdmux_tcp_nudge(struct tcp_ep *ep);

/* Sends as much as possible, in the order of this file's first comment. */
void rdmux_tcp_pump(struct tcp_ep *ep);
/* Continues sending when a socket has room again. */
void rdmux_tcp_unblock(struct tcp_lane *lane);
/* Nothing more is sent. The next poll reads the bytes that have come, then fails the endpoint. */
void rdmux_tcp_out_die(struct tcp_ep *ep);
/* A credit has paid for the early message of this side. */
void rdmux_tcp_settle(struct tcp_ep *ep);
/* Lets the core post again if a refused post waited for this event (TCP_WAIT_*). */
void rdmux_tcp_came(struct tcp_ep *ep, uint32_t what);
/* Adds an answer to the ring, for the peer's request with this number. The ring has room. */
struct tcp_answer *rdmux_tcp_answer(struct tcp_ep *ep, uint8_t kind, uint64_t index);
/* Refuses a request of the peer: queues a NAK, and later requests are not carried out. */
void rdmux_tcp_refuse(struct tcp_ep *ep, uint64_t index, enum rdmux_status status);
/* Removes and returns the request that the peer refused, by number. NULL: it was completed
 * already. */
struct rdmux_request *rdmux_tcp_take_refused(struct tcp_ep *ep, uint64_t index);
/* Returns whether frames for the peer are pending. */
bool rdmux_tcp_owes(const struct tcp_ep *ep);
void rdmux_tcp_out_finish(struct tcp_ep *ep);

enum rdmux_status rdmux_tcp_post(struct rdmux_provider_ep *base, struct rdmux_request *requests,
                                 size_t count, uint32_t flags, size_t *posted);
void rdmux_tcp_doorbell(struct rdmux_provider_ep *base);
enum rdmux_status rdmux_tcp_ep_control(struct rdmux_provider_ep *base, const void *frame,
                                       size_t size);
enum rdmux_status rdmux_tcp_ep_ping(struct rdmux_provider_ep *base);

#endif
