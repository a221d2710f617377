/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Shared declarations of the tcp provider's files.
 *
 * Sending. An endpoint's outgoing bytes are a batch (headers and small payloads, copied into one
 * pooled buffer), then at most one payload that is gathered from its scatter/gather list.
 * Everything else waits until that payload is out: requests wait in the core (RDMUX_AGAIN),
 * acknowledgments as counts, answers in the ring of answers. So an idle endpoint owns no buffer,
 * and reading never depends on room for sending.
 *
 * Receiving. One recv() fills a whole buffer, which is parsed in place. A large payload is received
 * directly into its destination, and only the next header is read ahead.
 *
 * Several sockets. Only socket 0 carries frames. The payload of a frame marked STRIPED is spread
 * over all sockets: socket i carries the i-th share, without a header. To keep the order, the bytes
 * behind such a frame are parsed only after all shares have come. With one socket none of this code
 * runs.
 *
 * Encryption. If peers authenticate, each socket's bytes go through a TLS session of the core
 * (tcp_stream.c). The session is chosen once, before the first frame. Frames do not depend on it.
 */
#ifndef RDMUX_TCP_INTERNAL_H
#define RDMUX_TCP_INTERNAL_H

#include "api/base/list.h"
#include "api/base/pieces.h"
#include "api/base/stream.h"
#include "providers/credit_scheduler.h"
#include "providers/credits.h"
#include "tcp_fallback/tcp_frame.h"

#include <rdmux/provider.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/types.h>
#include <sys/uio.h>

enum {
    TCP_BUFFER_SIZE = 68 << 10, /* bytes of a pooled buffer; holds a whole control frame */
    /* Offsets modulo 4096 at which a batch and the scratch buffer begin. They avoid 4K aliasing: a
     * copy is slow (4 KiB: 1 us) while its stores go to the same offset within a page as its next
     * loads, or a little behind. Payloads of applications begin at the start of a page or, from
     * malloc(), 16 bytes behind it. The kernel's copy of a batch begins at the start of a page. */
    TCP_BATCH_START = 4096 - 64 - 8,
    TCP_SCRATCH_START = 192,
    TCP_SCRATCH_SIZE = 64 << 10, /* most bytes of one recv */
    TCP_COPY_MAX = 4096,         /* payloads up to this are copied into the batch */
    TCP_DIRECT_MIN = 4096,       /* least rest of a payload to read directly into its destination */
    TCP_BULK_MIN = 32 << 10, /* after a payload of at least this size, read only a header ahead */
    TCP_AHEAD = 128,         /* bytes read ahead after such a payload */
    TCP_STRIPE_MIN = 256 << 10, /* payloads from this size on are spread over several sockets */
    TCP_SOCKETS_MAX = 16,
    TCP_ANSWERS = 32,     /* reads and atomics of the peer that may be in flight */
    TCP_VISIT = 4 << 20,  /* bytes moved for one endpoint in one turn */
    TCP_HOT_MAX = 4,      /* hot endpoints: their sockets are read without epoll */
    TCP_HOT_IDLE = 256,   /* polls without a byte after which a hot endpoint cools */
    TCP_SPINNING = 64,    /* polls without arm after which the caller counts as spinning */
    TCP_EPOLL_EVERY = 16, /* most polls between two calls of epoll_wait() */
    TCP_EVENTS = 64,
    TCP_SHARE = 4, /* budget / TCP_SHARE of a poll is kept for each later stage of the poll */
};

/* Requests that wait for the peer's ACK or answer, linked through request->provider[]. */
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

/* ----------------------------------------------------------------------------------------- pool */

/* Buffers of TCP_BUFFER_SIZE bytes. An endpoint reserves the most buffers that it can hold when it
 * opens, so the data path never finds the pool empty. Pages cost memory only once they were
 * written, and used buffers are taken first. */
struct tcp_pool {
    void *free;      /* used buffers, linked through their first word */
    size_t capacity; /* buffers in all chunks */
    size_t reserved;
    struct tcp_pool_chunk *chunks;
};

RDMUX_MUST_CHECK enum rdmux_status rdmux_tcp_pool_reserve(struct rdmux_fabric *fabric,
                                                          struct tcp_pool *pool, size_t count);
void rdmux_tcp_pool_unreserve(struct tcp_pool *pool, size_t count);
void *rdmux_tcp_pool_get(struct tcp_pool *pool);
void rdmux_tcp_pool_put(struct tcp_pool *pool, void *buffer);
void rdmux_tcp_pool_finish(struct rdmux_fabric *fabric, struct tcp_pool *pool);

/* -------------------------------------------------------------------------------------- objects */

struct tcp_domain {
    struct rdmux_provider_domain base;
    bool dctcp; /* the system has DCTCP and allows it */
};

struct tcp_cq {
    struct rdmux_provider_cq base;
    int epoll;
    uint32_t watched;         /* sockets in epoll */
    uint32_t blocked;         /* sockets that wait for room in the send queue */
    uint32_t unwatched_polls; /* polls since the last epoll_wait() */
    uint32_t epoll_every;     /* polls between two epoll_wait(); fewer if they find events */
    uint32_t found_at;        /* events of the last epoll_wait() that were served */
    uint32_t found_count;
    struct epoll_event found[TCP_EVENTS]; /* data.ptr: the lane; NULL: no longer watched */
    struct tcp_ep *last_found;
    uint32_t unarmed_polls; /* polls since arm */
    bool ask_epoll;         /* the caller slept: a socket that is not hot may have woken it */
    bool armed;             /* the caller may sleep: work must not wait for the next poll */
    bool joined;            /* a socket joined: the core has work */
    uint32_t hot_count;
    uint32_t hot_first;
    struct tcp_ep *hot[TCP_HOT_MAX];
    struct rdmux_list attention; /* endpoints to serve at the next poll */
    struct rdmux_list out_armed; /* endpoints with EPOLLOUT on a socket */
    struct rdmux_list paused;    /* endpoints that do not read socket 0 now */
    struct tcp_pool pool;
    void *memory;     /* allocation that holds scratch and waste */
    uint8_t *scratch; /* TCP_HEADER_MAX + TCP_SCRATCH_SIZE bytes; parsed in place */
    uint8_t *waste;   /* TCP_SCRATCH_SIZE bytes, not read after a call */
};

struct tcp_remote {
    struct rdmux_provider_remote base;
    uint8_t key[TCP_KEY_SIZE];
};

struct tcp_srq {
    struct rdmux_provider_srq base;
    struct rdmux_credit_scheduler scheduler;
};

struct tcp_lane;

/* I/O functions of a data socket, in clear or encrypted. They behave like non-blocking recv(2),
 * recvmsg(2), send(2) and sendmsg(2). The caller counts one system call. On EBADMSG and ENOMEM
 * rdmux_tcp_stream_reason() has the cause. */
struct tcp_stream {
    ssize_t (*receive)(struct tcp_lane *lane, void *to, size_t size);
    ssize_t (*receive_list)(struct tcp_lane *lane, struct iovec *iov, int count);
    ssize_t (*send)(struct tcp_lane *lane, const void *bytes, size_t size);
    ssize_t (*send_list)(struct tcp_lane *lane, struct iovec *iov, int count);
    struct rdmux_stream *session; /* NULL: in clear */
};

/* A data socket. */
struct tcp_lane {
    struct tcp_ep *ep;
    struct tcp_stream stream;
    int fd;
    uint32_t index;
    uint32_t events; /* registered with epoll */
    bool watched;
    bool blocked; /* the last send found no room */
    bool joined;  /* connected, and its join was sent or received */
    bool ready;   /* its bytes may be sent and received */
    /* [in_at, in_end) is the part of this socket's share still to come, of the incoming payload;
     * [out_at, out_end) the part still to be sent, of the outgoing payload. */
    uint64_t in_at;
    uint64_t in_end;
    uint64_t out_at;
    uint64_t out_end;
};

enum tcp_state {
    TCP_OPEN,       /* not connected yet */
    TCP_CONNECTING, /* ep_connect was called */
    TCP_CONNECTED,
    TCP_FAILED, /* the core was told; only control frames of a shared socket still go out */
    TCP_QUIET,  /* quiesced: no request is accessed any more */
};

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

enum tcp_destination {
    TCP_TO_NOTHING = 0, /* no request is coming in */
    TCP_TO_RECEIVE,
    TCP_TO_REGION,
    TCP_TO_WASTE,
};

/* The peer's request whose payload is coming in. */
struct tcp_incoming {
    uint8_t destination; /* enum tcp_destination */
    uint8_t kind;
    uint8_t flags;
    uint32_t imm;
    struct rdmux_request *receive; /* the receive that it uses; NULL for a plain write */
    uint64_t length;
    uint64_t at; /* payload bytes in earlier frames */
    uint64_t offset;
    uint8_t key[TCP_KEY_SIZE];
};

struct tcp_in {
    uint8_t payload; /* enum tcp_payload of the incoming frame; NONE: a header is next */
    bool bulk;       /* the last payload was large: read only the next header ahead */
    bool refused;    /* a request of the peer was refused: later requests are read and dropped */
    bool paused;     /* socket 0 is not read until all shares have come */
    uint8_t held;    /* bytes of a partial header in head */
    uint8_t head[TCP_HEADER_MAX];
    uint8_t *stash; /* pooled buffer with bytes not parsed yet */
    uint32_t stash_at;
    uint32_t stash_end;
    uint32_t stash_need; /* not 0: stash is a partial control frame of this size */
    uint64_t frame_length;
    uint64_t requests; /* the peer's requests seen */
    struct tcp_incoming request;
};

struct tcp_out {
    uint8_t *batch; /* pooled buffer, NULL while there is nothing to send */
    uint32_t head;
    uint32_t tail;
    uint8_t payload; /* enum tcp_payload of the payload behind the batch */
    bool dead;       /* the socket takes no more bytes; reading gives the cause */
    bool over;       /* the NAK is sent: only control frames follow */
    bool answer_was_last;
    int error;
    uint64_t frame_length;
    uint64_t requests;          /* this side's requests sent */
    struct rdmux_request *open; /* request whose payload is not all sent */
    uint64_t open_at;
    uint8_t *control; /* pooled buffer with control frames that wait for the frame's end */
    uint32_t control_size;
    uint64_t acks;
    bool credit_now; /* grant credits now, in a frame of their own if necessary */
    bool ask;
    bool recall;
    bool give_back;
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

/* Number of saved socket options of a shared socket, which are restored when the path closes. */
enum { TCP_OPTIONS = 8 };

struct tcp_ep {
    struct rdmux_provider_ep base;
    enum tcp_state state;
    enum rdmux_role role;
    uint32_t idle_polls;
    uint32_t hot_polls; /* polls since the endpoint became hot */
    bool hot;
    bool shared; /* the control channel uses the same socket */
    bool peer_on_demand;
    bool asked;     /* an ASK is sent or due, no credit came since */
    bool quiescing; /* failures are no longer reported to the core */
    uint32_t waits; /* TCP_WAIT_* of the last refused post */
    uint32_t lane_count;
    uint32_t lanes_ready;
    uint32_t peer_answers;
    uint32_t reserved; /* pooled buffers reserved */
    struct tcp_lane lane0;
    struct tcp_lane *lanes; /* NULL with one socket; else lane_count entries, entry 0 unused */
    struct rdmux_list attention;
    struct rdmux_list out_armed;
    struct rdmux_list paused;
    struct tcp_in in;
    struct tcp_queue unplaced;   /* requests sent with PLACED, not acknowledged */
    struct tcp_queue unanswered; /* reads and atomics */
    struct rdmux_credits_held held;
    struct rdmux_credits_given given;
    struct tcp_srq *srq;
    struct rdmux_credit_user user; /* of the SRQ */
    struct rdmux_provider_counts counts;
    const struct rdmux_provider_ep_attr *attr;
    uint32_t options_set; /* bits of the saved options */
    int options[TCP_OPTIONS];
    struct tcp_out out;
};

static inline struct tcp_ep *rdmux_tcp_ep(struct rdmux_provider_ep *ep)
{
    return (struct tcp_ep *)ep;
}

static inline struct tcp_cq *rdmux_tcp_cq(struct rdmux_provider_cq *cq)
{
    return (struct tcp_cq *)cq;
}

static inline struct tcp_cq *rdmux_tcp_cq_of(const struct tcp_ep *ep)
{
    return (struct tcp_cq *)ep->base.cq;
}

static inline struct tcp_lane *rdmux_tcp_lane(struct tcp_ep *ep, uint32_t index)
{
    return index == 0 ? &ep->lane0 : &ep->lanes[index];
}

/* Schedules the endpoint for the next poll. */
static inline void rdmux_tcp_attend(struct tcp_ep *ep)
{
    if (!rdmux_node_is_listed(&ep->attention)) {
        rdmux_list_append(&rdmux_tcp_cq_of(ep)->attention, &ep->attention);
    }
}

/* Sends pending frames: at once if the cq is armed, because the caller may sleep, else at the next
 * poll. */
void rdmux_tcp_nudge(struct tcp_ep *ep);

/* -------------------------------------------------------------------------------------- sockets */

/* Sets the options of a data socket. A failure only costs speed, or the core's heartbeats notice
 * it. */
void rdmux_tcp_socket_setup(struct tcp_ep *ep, int fd);
/* Replaces the congestion control BBR, which paces, by Reno if both ends are on this host. Called
 * before connect(), because BBR keeps its timers once it has begun; the peer's address may already
 * decide. Called again once connected, when the local address is known. */
void rdmux_tcp_avoid_pacing(const struct tcp_ep *ep, int fd);
/* Restores a shared socket's options. */
void rdmux_tcp_socket_restore(struct tcp_ep *ep, int fd);
/* Registers the events of a socket with epoll, which always reports EPOLLERR and EPOLLHUP. */
enum rdmux_status rdmux_tcp_watch(struct tcp_lane *lane, uint32_t events);
void rdmux_tcp_unwatch(struct tcp_lane *lane);
/* Writes "text: connection reset by peer". */
void rdmux_tcp_error_text(char *out, size_t size, const char *text, int error);
/* Text for EFAULT: the kernel cannot access a request's buffer or a region's memory. */
extern const char rdmux_tcp_bad_buffer[];

/* -------------------------------------------------------------------------------------- streams */

/* Selects bytes in clear, the state before rdmux_tcp_stream_begin() and after
 * rdmux_tcp_stream_end(). */
void rdmux_tcp_stream_clear(struct tcp_lane *lane);
/* Chooses between bytes in clear and a TLS session. Called when the socket has joined. */
enum rdmux_status rdmux_tcp_stream_begin(struct tcp_lane *lane);
/* Continues the handshake of a TLS session. RDMUX_IN_PROGRESS: epoll reports when to continue. */
enum rdmux_status rdmux_tcp_stream_step(struct tcp_lane *lane);
/* Returns whether the session may hold bytes that epoll does not report. */
static inline bool rdmux_tcp_stream_holds_bytes(const struct tcp_lane *lane)
{
    const struct rdmux_stream *session = lane->stream.session;
    return session != NULL && session->ops->holds_bytes(session);
}
/* Returns why the session failed; "" if it did not. */
const char *rdmux_tcp_stream_reason(const struct tcp_lane *lane);
void rdmux_tcp_stream_end(struct tcp_lane *lane);

/* ------------------------------------------------------------------------ sending and receiving */

/* Fails the endpoint and reports the cause to the core. Later causes are ignored. */
void rdmux_tcp_fail(struct tcp_ep *ep, enum rdmux_status status, const char *text);

/* Sends as much as possible, in the order of this file's first comment. */
void rdmux_tcp_pump(struct tcp_ep *ep);
/* Continues sending when a socket has room again. */
void rdmux_tcp_unblock(struct tcp_lane *lane);
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

/* Reads the bytes that have come, about budget frames at most. Returns the amount of work done. */
size_t rdmux_tcp_read(struct tcp_ep *ep, size_t budget);
/* Continues with stashed bytes if the missing shares have come. Returns the amount of work done. */
size_t rdmux_tcp_resume(struct tcp_ep *ep);
/* Returns whether shares of a striped payload are still to come. */
bool rdmux_tcp_shares_missing(struct tcp_ep *ep);
void rdmux_tcp_in_finish(struct tcp_ep *ep);

/* -------------------------------------------------------------------------------------- credits */

/* Counts receives that were posted to the endpoint itself, or serves its SRQ. */
enum rdmux_status rdmux_tcp_post_recv(struct rdmux_provider_ep *base,
                                      struct rdmux_request *requests, size_t count);
/* Counts a message of the peer, which uses a credit. False: the peer had none. */
bool rdmux_tcp_credit_use(struct tcp_ep *ep);
void rdmux_tcp_credit_asked(struct tcp_ep *ep);
bool rdmux_tcp_credit_returned(struct tcp_ep *ep, uint64_t count);
void rdmux_tcp_credit_join(struct tcp_ep *ep, struct tcp_srq *srq);
void rdmux_tcp_credit_leave(struct tcp_ep *ep);

enum rdmux_status rdmux_tcp_srq_open(struct rdmux_provider_srq *base, uint32_t depth,
                                     uint32_t max_sge);
void rdmux_tcp_srq_close(struct rdmux_provider_srq *srq);
enum rdmux_status rdmux_tcp_srq_post_recv(struct rdmux_provider_srq *base,
                                          struct rdmux_request *requests, size_t count);

/* ---------------------------------------------------------------- other operations of the table */

enum rdmux_status rdmux_tcp_ep_open(struct rdmux_provider_ep *base,
                                    const struct rdmux_provider_ep_attr *attr);
enum rdmux_status rdmux_tcp_ep_describe(struct rdmux_provider_ep *base, uint8_t *out, size_t *size);
enum rdmux_status rdmux_tcp_ep_connect(struct rdmux_provider_ep *base, const uint8_t *peer,
                                       size_t size);
enum rdmux_status rdmux_tcp_ep_join(struct rdmux_provider_ep *base, int socket, uint32_t index);
enum rdmux_status rdmux_tcp_ep_quiesce(struct rdmux_provider_ep *base,
                                       struct rdmux_provider_counts *counts);
void rdmux_tcp_ep_close(struct rdmux_provider_ep *base);

enum rdmux_status rdmux_tcp_cq_open(struct rdmux_provider_cq *base, uint32_t depth);
void rdmux_tcp_cq_close(struct rdmux_provider_cq *base);
size_t rdmux_tcp_poll(struct rdmux_provider_cq *base, size_t budget);
enum rdmux_status rdmux_tcp_arm(struct rdmux_provider_cq *base);
int rdmux_tcp_fd(struct rdmux_provider_cq *base);
/* Start (heat) and stop (cool) reading the endpoint's socket 0 at each poll, without epoll. */
void rdmux_tcp_heat(struct tcp_ep *ep);
void rdmux_tcp_cool(struct tcp_ep *ep);

enum rdmux_status rdmux_tcp_mr_register(struct rdmux_provider_mr *mr,
                                        const struct rdmux_provider_mr_attr *attr);
void rdmux_tcp_mr_deregister(struct rdmux_provider_mr *mr);
enum rdmux_status rdmux_tcp_mr_describe(struct rdmux_provider_mr *mr, struct rdmux_provider_ep *ep,
                                        uint8_t *out, size_t *size);
enum rdmux_status rdmux_tcp_mr_invalidate(struct rdmux_provider_mr *mr);
enum rdmux_status rdmux_tcp_remote_open(struct rdmux_provider_remote *base,
                                        const uint8_t *description, size_t size);
void rdmux_tcp_remote_close(struct rdmux_provider_remote *remote);

#endif
