/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * framed - the part that providers over other communication libraries share.
 *
 * It implements the operations of a provider (rdmux/provider.h) over a *lane*: a connection that
 * carries messages of bounded size, whole, once and in order. The lane knows nothing of requests.
 * This layer packs requests, answers, acknowledgments and credits into its messages, and carries
 * the peer's requests out by this process's CPU, with the checks of rdmux_target_enter(). So
 * PLACED, order, revocation, credits, shared receives and atomics are the same whatever library is
 * below, and no memory of the application is ever registered with that library.
 *
 *   adapter (adapters/ofi, adapters/ucx)       this layer
 *   its table of operations, probe, reach      post, poll, arm, ep_connect, ... for that table
 *   domain_open, domain_close                  struct framed_domain, in its own one
 *   struct framed_lane_ops                     calls them
 *   rdmux_framed_arrived(), rdmux_framed_sent(), ...       is called by them
 *
 * To write an adapter: embed struct framed_domain, framed_cq and framed_ep first in your own
 * objects, write the functions of struct framed_lane_ops, set framed_domain.lane in domain_open,
 * and point the table at RDMUX_FRAMED_OPS. Your table has RDMUX_PROVIDER_PING_BUSY in its flags
 * (the layer notices a peer that answers no ping), and neither RDMUX_PROVIDER_LOCAL_KEYS nor
 * RDMUX_PROVIDER_NATIVE_FENCE. Its paths have RDMUX_FRAMED_NATIVE and RDMUX_FRAMED_EMULATED as
 * capabilities, FRAMED_INLINE_MAX as max_inline, and no max_message.
 *
 * Threads. The cq's owner calls the lane, and the lane calls this layer, as rdmux/provider.h says:
 * one at a time for each cq. Several cqs of a domain have different owners at the same time, so the
 * library below must allow that, or each cq must have its own instance of it. The lane calls the
 * functions of this header from within the operations of struct framed_lane_ops only, never from a
 * thread of the library's own: such a thread notes what happened where progress() finds it, and
 * writes to an eventfd that is in framed_cq.epoll.
 *
 * System calls are the library's own. The layer counts one for each message and body, which is what
 * they take over a socket.
 *
 * Flow. The receiving lane always has framed_ep.window + FRAMED_UNCOUNTED receives posted, or as
 * many messages kept by its library; the layer never has more than that under way. A message is
 * handled within rdmux_framed_arrived(), so its memory is free for the next receive on return.
 *
 * Bodies. Where a lane allows it (framed_ep.body_pieces), a long payload is not copied into
 * messages: it is a *body*, a message of its own, from and into the program's memory. A frame
 * announces each body, and the bodies of a message follow it in the order of its frames. So the
 * receiver knows where the next body belongs before it has to read it. Such a lane has no receive
 * posted beyond the next message or the bodies that were announced, and its library leaves what
 * comes earlier in the network. A message whose frames wait for a body keeps its memory until
 * rdmux_framed_keeps() says no. At the target of a write or a read a body is in the lane's memory,
 * and is copied while the region cannot be revoked: else a revocation had to wait for the network.
 */
#ifndef RDMUX_ADAPTERS_FRAMED_H
#define RDMUX_ADAPTERS_FRAMED_H

#include "api/base/list.h"
#include "providers/credit_scheduler.h"
#include "providers/credits.h"

#include <rdmux/provider.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

enum {
    /* Bytes of a message. The layer works with any size of these; 32 KiB is a good one. */
    FRAMED_MESSAGE_MIN = 4096,
    FRAMED_MESSAGE_MAX = 1 << 20,
    FRAMED_WINDOW_MAX = 1024, /* most messages under way in one direction */
    /* Messages beyond the window, which only return window. */
    FRAMED_UNCOUNTED = 2,
    FRAMED_INLINE_MAX = 1024,
    /* Bytes of connection data that are the lane's: the rest of RDMUX_DESCRIPTION_MAX. */
    FRAMED_HEAD_SIZE = 16,
    FRAMED_ADDRESS_MAX = RDMUX_DESCRIPTION_MAX - FRAMED_HEAD_SIZE,
    FRAMED_ANSWERS = 32, /* reads and atomics of one side that may be unanswered */
    FRAMED_BODY_MAX = 1 << 20,
    FRAMED_PART_MAX = 128 << 10, /* bytes of a body that a lane's memory holds beside others */
    FRAMED_BODIES = 64,          /* bodies of one side that may be announced and not sent */
    FRAMED_EXPECTED = 8,         /* bodies that the receiving lane may have to receive at a time */
    FRAMED_PIECES_MAX = 8,       /* pieces of memory of a body */
};

_Static_assert(FRAMED_EXPECTED *FRAMED_PART_MAX <= FRAMED_BODY_MAX, "see receive_body");

#define RDMUX_FRAMED_NATIVE (RDMUX_CAP_SEND | RDMUX_CAP_SEND_IMM | RDMUX_CAP_SRQ | RDMUX_CAP_PLACED)
#define RDMUX_FRAMED_EMULATED                                                       \
    (RDMUX_CAP_WRITE | RDMUX_CAP_WRITE_IMM | RDMUX_CAP_READ | RDMUX_CAP_FETCH_ADD | \
     RDMUX_CAP_COMPARE_SWAP | RDMUX_CAP_FENCE)

struct framed_cq;
struct framed_ep;

/* What an adapter writes. Every operation is set. Failures are reported as those of a provider:
 * rdmux_provider_error() with a text that names the adapter, then the status. */
struct framed_lane_ops {
    /* Opens the library's part of a cq. The lane puts its descriptors into cq->epoll,
     * level-triggered, or sets cq->has_no_wake if the library cannot wake a sleeping thread:
     * then the layer wakes it every FRAMED_TICK_NS while it sleeps. [may sleep] */
    enum rdmux_status (*cq_open)(struct framed_cq *cq);
    void (*cq_close)(struct framed_cq *cq);
    /* Lets the library work, and calls rdmux_framed_arrived(), rdmux_framed_sent() and
     * rdmux_framed_failed() for what happened, about budget times. What rdmux_framed_arrived()
     * returns counts against the budget. Returns the amount of work done; 0: there is nothing to
     * do. Steps of a connection count, too: the core calls connect after them. [data path] */
    size_t (*progress)(struct framed_cq *cq, size_t budget);
    /* Promises that a descriptor in cq->epoll becomes readable at the next event. RDMUX_AGAIN:
     * there is one already. */
    enum rdmux_status (*arm)(struct framed_cq *cq);

    /* Opens an unconnected lane. Sets ep->message_max and ep->window: what it can receive; and
     * allocates the memory of its messages. ep->attr has the wishes. [may sleep] */
    enum rdmux_status (*open)(struct framed_ep *ep);
    /* Writes the bytes by which the peer's lane can connect to this one. *size: the room
     * (FRAMED_ADDRESS_MAX), then the bytes used. */
    enum rdmux_status (*describe)(struct framed_ep *ep, uint8_t *out, size_t *size);
    /* Connects, as ep_connect: the first call has the peer's bytes, untrusted input, the later
     * ones NULL and 0, until the result is not RDMUX_IN_PROGRESS. RDMUX_OK: messages can be
     * sent, and the receives are posted. A message of the peer may arrive earlier. Never waits. */
    enum rdmux_status (*connect)(struct framed_ep *ep, const uint8_t *peer, size_t size);

    /* Returns memory for one message of ep->message_max bytes (framed_ep.send_max of them are
     * used), aligned to 8 bytes, or NULL: all are under way. The layer sends it in the end.
     * [data path] */
    uint8_t *(*take)(struct framed_ep *ep);
    /* For lanes with bodies, else NULL. The same for a body that is copied first: memory of
     * ep->copy_max bytes. [data path] */
    uint8_t *(*take_copy)(struct framed_ep *ep);
    /* Sends the first length bytes of memory that take() or take_copy() gave. RDMUX_OK: the lane calls
     * rdmux_framed_sent() when the library no longer reads it, perhaps within this call; from then
     * on it may be given again. RDMUX_AGAIN: not now; the layer calls it again at the next poll,
     * and after FRAMED_TICK_NS if nobody polls. RDMUX_IO: the lane has failed and called
     * rdmux_framed_failed(). [data path] */
    enum rdmux_status (*send)(struct framed_ep *ep, uint8_t *message, uint32_t length);

    /* For lanes with bodies, else NULL. Sends these pieces as one body, behind what was sent
     * before. RDMUX_OK: the lane calls rdmux_framed_body_sent() when the library no longer reads
     * them, later than within this call, for one body after the other. RDMUX_AGAIN, RDMUX_IO: as
     * send. [data path] */
    enum rdmux_status (*send_body)(struct framed_ep *ep, const struct iovec *pieces, size_t count);
    /* Has the next body, of length bytes, received into these pieces, behind those that were asked
     * for before. count 0: into memory of the lane's own, which holds FRAMED_EXPECTED bodies of
     * FRAMED_PART_MAX bytes, or one of FRAMED_BODY_MAX. The lane calls rdmux_framed_body_arrived(),
     * later than within this call. RDMUX_IO: as send. [data path] */
    enum rdmux_status (*receive_body)(struct framed_ep *ep, const struct iovec *pieces,
                                      size_t count, size_t length);

    /* Ends the lane: when it returns RDMUX_OK, the library uses none of its memory and no call for
     * the endpoint follows. Messages that were sent need not arrive any more. RDMUX_IN_PROGRESS:
     * call again. Never waits for the network. Called after a failure, too, and twice. */
    enum rdmux_status (*stop)(struct framed_ep *ep);
    /* Releases everything. Also after an open that was followed by nothing else. stop was
     * called. */
    void (*close)(struct framed_ep *ep);
};

/* Set by the adapter's domain_open. */
struct framed_domain {
    struct rdmux_provider_domain base;
    const struct framed_lane_ops *lane;
};

enum { FRAMED_TICK_NS = 1000000 }; /* how often a sleeper without wake-ups looks */

struct framed_cq {
    struct rdmux_software_cq base; /* base.epoll: where the lane puts descriptors */
    const struct framed_lane_ops *lane;
    bool has_no_wake; /* the lane sets it */
    /* The lane sets it if its peers wake a sleeper by a bell of the lane's own, which they ring after
     * a message while framed_ep.rings is set: the layer asks for that before the cq may sleep, and
     * looks every FRAMED_TICK_NS until all peers do it, and while messages of its own are under way. */
    bool has_bell;
    /* The layer's: */
    bool is_armed;
    bool is_ticking;
    int timer;
    uint32_t polls;           /* since the cq was armed */
    uint32_t vain_polls;      /* since one found work */
    uint32_t asked;           /* endpoints whose peers were asked to ring, and did not answer yet */
    struct rdmux_list rung;   /* endpoints whose peers ring */
    struct rdmux_list hushed; /* endpoints whose peers do not */
    uint32_t under_way;       /* sum of its endpoints */
    struct rdmux_list attention; /* endpoints with something to send */
    struct rdmux_list blocked;   /* endpoints whose lane said AGAIN */
};

/* Requests that wait for the peer, in order; linked through request->provider[]. */
struct framed_queue {
    struct rdmux_request *first;
    struct rdmux_request *last;
    uint32_t count;
};

/* An answer that is still to be sent. */
struct framed_answer {
    uint8_t kind;
    uint8_t key[RDMUX_TARGET_KEY_SIZE];
    uint64_t index;  /* the request's number */
    uint64_t offset; /* data: in the region; result: the value */
    uint64_t length; /* data: bytes; refusal: the status */
    uint64_t at;     /* bytes sent */
};

/* A body of this side, from its frame on. */
struct framed_body {
    struct rdmux_request *request; /* whose bytes it has, from `at` on */
    uint64_t at;
    uint8_t *message; /* or memory of the lane, into which they were copied */
    uint32_t size;
};

/* The peer's send or write that is coming in. */
struct framed_incoming {
    uint64_t index; /* the request's number */
    bool is_open;
    bool is_send;
    uint8_t flags;
    uint32_t imm;
    struct rdmux_request *receive; /* NULL: none is needed, or the rest is dropped */
    uint64_t length;
    uint64_t at;
    uint64_t offset;
    uint8_t key[RDMUX_TARGET_KEY_SIZE];
};

/* A body of the peer, from its frame on. */
struct framed_expected {
    struct framed_incoming in;  /* the send or write, with its bytes before this body */
    struct rdmux_request *read; /* or the read that it answers */
    uint64_t at;                /* its first byte there */
    uint32_t size;
    bool is_last;
    bool is_alone;     /* takes all memory of the lane */
    bool is_asked_for; /* the lane receives it */
};

enum framed_state {
    FRAMED_OPEN,
    FRAMED_CONNECTING, /* the lane connects */
    FRAMED_GREETING,   /* the lane is connected, the peer's greeting is not here yet */
    FRAMED_CONNECTED,
    FRAMED_FAILED,
    FRAMED_QUIET, /* no memory of a request is touched any more */
};

/* Whether the peer rings after its messages. */
enum framed_bell {
    FRAMED_BELL_NONE, /* the lane has no bell, or the endpoint has ended */
    FRAMED_BELL_RUNG,
    FRAMED_BELL_HUSHED,
    FRAMED_BELL_ASKED, /* hushed, and asked to ring */
};

struct framed_srq {
    struct rdmux_provider_srq base;
    struct rdmux_credit_scheduler scheduler;
};

struct framed_ep {
    struct rdmux_provider_ep base;
    const struct framed_lane_ops *lane;
    const struct rdmux_provider_ep_attr *attr;
    /* The lane's open sets both: bytes of the longest message that it receives, and how many of the
     * peer's may be under way, beside FRAMED_UNCOUNTED. */
    uint32_t message_max;
    uint32_t window;
    /* 0, or bytes of a message that the lane sends so fast that two of them are faster than a longer
     * one; at least FRAMED_MESSAGE_MIN. The lane's open may set it. */
    uint32_t short_max;
    /* The peer may sleep: a lane with a bell rings after each message. The layer sets it. */
    bool rings;
    /* 0: no bodies; else the most pieces of one. The lane's open may set it. */
    uint32_t body_pieces;
    uint32_t copy_max; /* bytes of a body that is copied first, at most FRAMED_PART_MAX */
    /* The library may read a body after stop: bodies that are sent are copied into memory of the
     * lane first. The lane's open may set it. */
    bool copies_bodies;

    /* The rest is the layer's. */
    enum framed_state state;
    enum rdmux_status failure; /* before the endpoint was connected */
    char failure_text[RDMUX_TEXT_MAX];
    bool is_quiescing; /* failures are no longer reported */
    uint32_t send_max; /* bytes of the longest message to the peer */
    uint64_t tag_out;  /* begins every message: shows whose it is */
    uint64_t tag_in;
    bool is_greeted;  /* the peer's greeting has come */
    bool has_greeted; /* ours is sent */
    bool is_peer_on_demand;
    bool is_asked;  /* this side has asked for credits, none came since */
    uint32_t waits; /* what the last refused post waits for */
    enum framed_bell bell;
    struct rdmux_list bell_link;
    struct rdmux_list attention;
    struct rdmux_list blocked;

    /* Sending: the message that is being filled, and those that the lane did not take yet. */
    uint8_t *message;
    uint32_t filled;
    uint8_t *unsent; /* filled, and refused by the lane */
    uint32_t unsent_length;
    uint32_t peer_window;
    uint32_t window_left; /* messages that the peer still has receives for */
    uint32_t under_way;   /* messages that the lane has and rdmux_framed_sent() did not name */
    uint32_t sequence_out;
    struct rdmux_request *open; /* a send or write whose bytes are not all in messages or bodies */
    uint64_t open_at;
    /* A ring. Counts of bodies so far: announced by a frame, announced by a message that the lane
     * has, given to the lane, sent by it. */
    struct framed_body bodies[FRAMED_BODIES];
    uint32_t bodies_made;
    uint32_t bodies_due;
    uint32_t bodies_given;
    uint32_t bodies_sent;
    uint64_t requests_out; /* this side's requests so far */
    struct framed_queue unplaced;
    struct framed_queue unanswered;
    struct rdmux_credits_held held;
    uint64_t acks; /* owed to the peer */
    bool is_credit_due;
    bool is_asking;
    bool is_recalling;
    bool is_giving_back;
    bool owes_ping;
    bool owes_pong;
    bool owes_ring;
    bool owes_rings;
    bool owes_hush;
    bool is_over; /* a refusal was sent: nothing follows */
    bool was_answer_last;
    uint32_t answers_first;
    uint32_t answers_count;
    struct framed_answer answers[FRAMED_ANSWERS + 1];

    /* Receiving. */
    uint32_t sequence_in;
    uint32_t returned; /* messages handled, not told to the peer */
    uint64_t requests_in;
    bool is_refused; /* a request of the peer was refused: later ones are dropped */
    struct framed_incoming in;
    const uint8_t *kept; /* a message whose frames are not all carried out; NULL: none */
    size_t kept_length;
    size_t kept_at;
    struct framed_expected expected[FRAMED_EXPECTED]; /* a ring */
    uint32_t expected_first;
    uint32_t expected_count;
    struct rdmux_credits_given given;
    struct framed_srq *srq;
    struct rdmux_credit_user user;
    struct rdmux_provider_counts counts;

    /* Liveness: pings that nothing has answered. */
    uint32_t silent_pings;
    uint64_t silent_since_ns;
    uint64_t linger_until_ns; /* ep_quiesce lets a refusal leave until then; 0: not set */
};

static inline struct framed_ep *framed_ep_of(struct rdmux_provider_ep *ep)
{
    return (struct framed_ep *)ep;
}

static inline struct framed_cq *framed_cq_of(const struct framed_ep *ep)
{
    return (struct framed_cq *)ep->base.cq;
}

/* --------------------------------------------------------------- called by the lane [data path] */

/* A message of the peer has arrived. Handles it; its bytes (aligned to 8) are no longer needed
 * on return. Returns the amount of work done, at least 1. A message that is not of this
 * endpoint's peer is dropped. */
size_t rdmux_framed_arrived(struct framed_ep *ep, const uint8_t *message, size_t length);
/* The library no longer reads a message that send() took. */
void rdmux_framed_sent(struct framed_ep *ep);
/* The library no longer reads the oldest body that send_body() took. */
void rdmux_framed_body_sent(struct framed_ep *ep);
/* The oldest body that receive_body() was asked for has arrived, with length bytes; at bytes, which
 * are no longer needed on return, if the lane received it into its own memory. Returns the amount of
 * work done, at least 1. */
size_t rdmux_framed_body_arrived(struct framed_ep *ep, const uint8_t *bytes, size_t length);
/* Returns whether the layer still needs the memory of the last message that has arrived. No receive
 * of a message may be posted meanwhile. */
static inline bool rdmux_framed_keeps(const struct framed_ep *ep)
{
    return ep->kept != NULL;
}
/* The lane has failed or ended by itself; what arrived before was reported. text names the adapter,
 * the cause and the remedy. Calls after the first one, and after stop, do nothing. */
void rdmux_framed_failed(struct framed_ep *ep, enum rdmux_status status, const char *text);

/* ----------------------------------------------------------------------- for the adapter's table */

enum rdmux_status rdmux_framed_cq_open(struct rdmux_provider_cq *base, uint32_t depth);
void rdmux_framed_cq_close(struct rdmux_provider_cq *base);
size_t rdmux_framed_poll(struct rdmux_provider_cq *base, size_t budget);
enum rdmux_status rdmux_framed_arm(struct rdmux_provider_cq *base);
enum rdmux_status rdmux_framed_ep_open(struct rdmux_provider_ep *base,
                                       const struct rdmux_provider_ep_attr *attr);
enum rdmux_status rdmux_framed_ep_describe(struct rdmux_provider_ep *base, uint8_t *out,
                                           size_t *size);
enum rdmux_status rdmux_framed_ep_connect(struct rdmux_provider_ep *base, const uint8_t *peer,
                                          size_t size);
enum rdmux_status rdmux_framed_ep_ping(struct rdmux_provider_ep *base);
enum rdmux_status rdmux_framed_ep_quiesce(struct rdmux_provider_ep *base,
                                          struct rdmux_provider_counts *counts);
void rdmux_framed_ep_close(struct rdmux_provider_ep *base);
enum rdmux_status rdmux_framed_post(struct rdmux_provider_ep *base, struct rdmux_request *requests,
                                    size_t count, uint32_t flags, size_t *posted);
void rdmux_framed_doorbell(struct rdmux_provider_ep *base);
enum rdmux_status rdmux_framed_post_recv(struct rdmux_provider_ep *base,
                                         struct rdmux_request *requests, size_t count);
enum rdmux_status rdmux_framed_srq_open(struct rdmux_provider_srq *base, uint32_t depth,
                                        uint32_t max_sge);
void rdmux_framed_srq_close(struct rdmux_provider_srq *srq);
enum rdmux_status rdmux_framed_srq_post_recv(struct rdmux_provider_srq *base,
                                             struct rdmux_request *requests, size_t count);

/* The members of the table that every adapter sets alike. Left are abi, size, name, flags,
 * domain_size, cq_size, ep_size, probe, reach, domain_open and domain_close. */
/* clang-format off */
#define RDMUX_FRAMED_OPS                                   \
    .srq_size = sizeof(struct framed_srq),                 \
    .mr_size = sizeof(struct rdmux_provider_mr),           \
    .remote_size = sizeof(struct rdmux_software_remote),   \
    .async_event = rdmux_unsupported_async_event,          \
    .domain_fd = rdmux_unsupported_domain_fd,              \
    .inspect = rdmux_unsupported_inspect,                  \
    .mr_register = rdmux_software_mr_register,             \
    .mr_deregister = rdmux_software_mr_deregister,         \
    .mr_describe = rdmux_software_mr_describe,             \
    .mr_invalidate = rdmux_software_mr_invalidate,         \
    .cq_open = rdmux_framed_cq_open,                       \
    .cq_close = rdmux_framed_cq_close,                     \
    .poll = rdmux_framed_poll,                             \
    .arm = rdmux_framed_arm,                               \
    .fd = rdmux_software_fd,                               \
    .ep_open = rdmux_framed_ep_open,                       \
    .ep_describe = rdmux_framed_ep_describe,               \
    .ep_connect = rdmux_framed_ep_connect,                 \
    .ep_join = rdmux_unsupported_ep_join,                  \
    .ep_control = rdmux_unsupported_ep_control,            \
    .ep_ping = rdmux_framed_ep_ping,                       \
    .ep_quiesce = rdmux_framed_ep_quiesce,                 \
    .ep_close = rdmux_framed_ep_close,                     \
    .post = rdmux_framed_post,                             \
    .doorbell = rdmux_framed_doorbell,                     \
    .post_recv = rdmux_framed_post_recv,                   \
    .srq_open = rdmux_framed_srq_open,                     \
    .srq_close = rdmux_framed_srq_close,                   \
    .srq_post_recv = rdmux_framed_srq_post_recv,           \
    .remote_open = rdmux_software_remote_open,             \
    .remote_close = rdmux_software_remote_close
/* clang-format on */

#endif
