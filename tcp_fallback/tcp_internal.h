/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * What the files of the tcp provider share.
 *
 * Sending. An endpoint's outgoing bytes are a batch (headers and small payloads, copied, in one
 * pooled buffer), then at most one payload that is gathered from where it lies. Whatever is to be
 * sent next waits until that payload is out: requests in the core (RDMUX_AGAIN), answers and
 * acknowledgments as counts and in the ring of answers. So an endpoint with nothing under way owns
 * no buffer, and reading never depends on room for sending.
 *
 * Receiving. One recv of a whole buffer, parsed in place. A large payload is received straight into
 * its destination, with room behind it for the next header only.
 *
 * Several sockets. Frames are on socket 0 alone. A frame marked STRIPED has its payload spread over
 * all: socket i carries the i-th share, without any header. Nothing behind such a frame is looked
 * at before all shares are in, which keeps the order; with one socket no code of this runs.
 *
 * Encryption. Where peers authenticate, each socket's bytes go through a TLS session of the core's
 * (tcp_stream.c), chosen once, before the first frame. Frames know nothing of it.
 */
#ifndef RDMUX_TCP_INTERNAL_H
#define RDMUX_TCP_INTERNAL_H

#include "providers/credits.h"
#include "providers/stream.h"
#include "tcp_fallback/tcp_frame.h"

#include <rdmux/provider.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/types.h>
#include <sys/uio.h>

enum {
    TCP_BUFFER_SIZE = 68 << 10, /* of the pool; holds a whole control frame */
    /* Where a batch and the scratch buffer begin, modulo 4096. Copying is slow while stores go
     * to addresses that end like those of the next loads or lie a little behind them (4 KiB: 1
     * us). Payloads of applications begin at a page's begin or, from malloc, 16 bytes behind it,
     * the kernel's copy of a batch at a page's begin; with these two nothing of it meets so. */
    TCP_BATCH_START = 4096 - 64 - 8,
    TCP_SCRATCH_START = 192,
    TCP_SCRATCH_SIZE = 64 << 10, /* most bytes of one recv */
    TCP_COPY_MAX = 4096,         /* payloads up to this are copied into the batch */
    TCP_DIRECT_MIN = 4096,       /* rest of a payload that is worth a scattered read */
    TCP_BULK_MIN = 32 << 10, /* after a payload of this size only the next header is read ahead */
    TCP_AHEAD = 128,         /* bytes read ahead then */
    TCP_STRIPE_MIN = 256 << 10, /* payloads from this size on are spread over several sockets */
    TCP_SOCKETS_MAX = 16,
    TCP_ANSWERS = 32,     /* reads and atomics of the peer that may be under way */
    TCP_VISIT = 4 << 20,  /* bytes moved for one endpoint before another has its turn */
    TCP_HOT_MAX = 4,      /* endpoints whose sockets are read without asking epoll first */
    TCP_HOT_IDLE = 256,   /* polls without a byte after which one is not hot any more */
    TCP_SPINNING = 64,    /* polls without arm after which the caller is taken to spin */
    TCP_EPOLL_EVERY = 16, /* most polls between two looks at the endpoints not hot */
    TCP_EVENTS = 64,
    TCP_SHARE = 4, /* a poll's budget divided by this is for endpoints whose turn it is in any case */
};

/* A list through the objects on it; an object that is on none has next NULL. */
struct tcp_link {
    struct tcp_link *next;
    struct tcp_link *previous;
};

static inline void tcp_list_init(struct tcp_link *head)
{
    head->next = head;
    head->previous = head;
}

static inline bool tcp_list_is_empty(const struct tcp_link *head)
{
    return head->next == head;
}

static inline bool tcp_link_is_on(const struct tcp_link *link)
{
    return link->next != NULL;
}

static inline void tcp_list_add(struct tcp_link *head, struct tcp_link *link)
{
    link->next = head;
    link->previous = head->previous;
    head->previous->next = link;
    head->previous = link;
}

static inline void tcp_link_remove(struct tcp_link *link)
{
    if (link->next != NULL) {
        link->next->previous = link->previous;
        link->previous->next = link->next;
        link->next = NULL;
        link->previous = NULL;
    }
}

/* Moves all of `from` to the empty list `to`. */
static inline void tcp_list_take(struct tcp_link *to, struct tcp_link *from)
{
    if (!tcp_list_is_empty(from)) {
        to->next = from->next;
        to->previous = from->previous;
        to->next->previous = to;
        to->previous->next = to;
        tcp_list_init(from);
    }
}

#define TCP_CONTAINER(link, type, member) ((type *)(void *)((char *)(link)-offsetof(type, member)))

/* Requests that wait for the peer's word, linked through request->provider[]. */
struct tcp_queue {
    struct rdmux_request *first;
    struct rdmux_request *last;
    uint32_t count;
};

/* What the words of request->provider[] hold for a send-side request. */
enum {
    TCP_NEXT = 0,  /* the next one in its tcp_queue */
    TCP_INDEX = 1, /* counts the requests of the endpoint on the wire, from 0; NAK names it */
    TCP_DONE = 2,  /* of a read: bytes that have come */
};

void rdmux_tcp_queue_push(struct tcp_queue *queue, struct rdmux_request *request);
struct rdmux_request *rdmux_tcp_queue_pop(struct tcp_queue *queue);
/* Takes the request with this index out; NULL: not there. */
struct rdmux_request *rdmux_tcp_queue_take(struct tcp_queue *queue, uint64_t index);

/* ----------------------------------------------------------------------------------------- pool */

/* Buffers of TCP_BUFFER_SIZE bytes. Each endpoint reserves, when it opens, as many as it can
 * ever hold, so that the data path never finds the pool empty; pages cost memory only once they
 * were used, and used ones are used first. */
struct tcp_pool {
    void *free;      /* used before; the first word links them */
    size_t capacity; /* buffers there are */
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
    bool dctcp; /* the system has and allows it */
};

struct tcp_cq {
    struct rdmux_provider_cq base;
    int epoll;
    uint32_t watched;         /* sockets in epoll */
    uint32_t blocked;         /* sockets that wait for room */
    uint32_t unwatched_polls; /* polls since epoll was asked */
    uint32_t epoll_every;     /* polls between two looks; fewer the more they find */
    uint32_t found_at;        /* of what the last look found, what was served */
    uint32_t found_count;
    struct epoll_event found[TCP_EVENTS]; /* their lanes; NULL: not watched any more */
    struct tcp_ep *last_found;
    uint32_t unarmed_polls; /* polls since arm */
    bool ask_epoll;         /* the caller slept: what woke it may be a socket that is not hot */
    bool armed;             /* the caller may be asleep: nothing may wait for the next poll */
    bool joined;            /* a socket joined: the core has something to do */
    uint32_t hot_count;
    uint32_t hot_first;
    struct tcp_ep *hot[TCP_HOT_MAX];
    struct tcp_link attention; /* endpoints with something to do at the next poll */
    struct tcp_link out_armed; /* endpoints with EPOLLOUT on a socket */
    struct tcp_link paused;    /* endpoints whose socket 0 is not read now */
    struct tcp_pool pool;
    void *memory;     /* where the next two are */
    uint8_t *scratch; /* TCP_HEADER_MAX + TCP_SCRATCH_SIZE bytes; parsed in place */
    uint8_t *waste;   /* TCP_SCRATCH_SIZE bytes that nobody looks at after a call */
};

struct tcp_remote {
    struct rdmux_provider_remote base;
    uint8_t key[TCP_KEY_SIZE];
};

struct tcp_srq {
    struct rdmux_provider_srq base;
    struct rdmux_credits_pool pool;
    struct tcp_link members; /* all endpoints on it */
    struct tcp_link asking;  /* whose peers wait for a credit */
    struct tcp_link hungry;  /* whose peers could do with more */
    uint32_t asking_count;
};

struct tcp_lane;

/* How a data socket's bytes travel; as recv(2), recvmsg(2), send(2) and sendmsg(2), which never
 * wait. The caller counts one system call. EBADMSG, ENOMEM: rdmux_tcp_stream_reason() says what
 * is wrong. */
struct tcp_stream {
    ssize_t (*receive)(struct tcp_lane *lane, void *to, size_t size);
    ssize_t (*receive_list)(struct tcp_lane *lane, struct iovec *iov, int count);
    ssize_t (*send)(struct tcp_lane *lane, const void *bytes, size_t size);
    ssize_t (*send_list)(struct tcp_lane *lane, struct iovec *iov, int count);
    struct rdmux_stream *session; /* NULL: in clear */
};

/* One data socket. */
struct tcp_lane {
    struct tcp_ep *ep;
    struct tcp_stream stream;
    int fd;
    uint32_t index;
    uint32_t events; /* in epoll */
    bool watched;
    bool blocked; /* the last send found no room */
    bool joined;  /* connected, and the join said or heard */
    bool ready;   /* bytes may move */
    /* Of the payload of the frame coming in: this socket's share still to come is
     * [in_at, in_end). */
    uint64_t in_at;
    uint64_t in_end;
    uint64_t out_at;
    uint64_t out_end;
};

enum tcp_state {
    TCP_OPEN,       /* not connected yet */
    TCP_CONNECTING, /* ep_connect was called */
    TCP_CONNECTED,
    TCP_FAILED, /* the core was told; nothing moves any more */
    TCP_QUIET,  /* after ep_quiesce */
};

/* An answer owed to the peer. */
struct tcp_answer {
    uint8_t kind; /* TCP_DATA, TCP_RESULT or TCP_NAK */
    uint8_t key[TCP_KEY_SIZE];
    uint64_t index;  /* the request's number */
    uint64_t offset; /* RESULT: the value */
    uint64_t length; /* NAK: the status */
    uint64_t at;     /* bytes sent */
};

/* Where the payload of a frame goes, or comes from. */
enum tcp_payload {
    TCP_PAYLOAD_NONE,
    TCP_PAYLOAD_REQUEST, /* in: of the request in tcp_incoming; out: of out.open */
    TCP_PAYLOAD_ANSWER,  /* in: of the oldest read of ours; out: of the oldest answer */
    TCP_PAYLOAD_ZEROS, /* out: an answer whose region was revoked under way; the refusal follows */
};

enum tcp_destination {
    TCP_TO_NOTHING = 0, /* no request under way */
    TCP_TO_RECEIVE,
    TCP_TO_REGION,
    TCP_TO_WASTE,
};

/* The request of the peer whose payload is coming in. */
struct tcp_incoming {
    uint8_t destination; /* enum tcp_destination */
    uint8_t kind;
    uint8_t flags;
    uint32_t imm;
    struct rdmux_request *receive; /* the one it takes; NULL for a plain write */
    uint64_t length;
    uint64_t at; /* bytes of the frames before this one */
    uint64_t offset;
    uint8_t key[TCP_KEY_SIZE];
};

struct tcp_in {
    uint8_t payload; /* enum tcp_payload of the frame coming in; NONE: a header is next */
    bool bulk;       /* the last payload was large: read the next header alone */
    bool refused;    /* a request of the peer was refused: those after it are read and dropped */
    bool paused;     /* shares are awaited; socket 0 is not read */
    uint8_t held;    /* bytes of a header not whole yet, in head */
    uint8_t head[TCP_HEADER_MAX];
    uint8_t *stash; /* a pooled buffer with bytes not parsed yet */
    uint32_t stash_at;
    uint32_t stash_end;
    uint32_t stash_need; /* not 0: stash is a control frame of this size, not whole yet */
    uint64_t frame_length;
    uint64_t requests; /* of the peer, seen */
    struct tcp_incoming request;
};

struct tcp_out {
    uint8_t *batch; /* pooled buffer, NULL while there is nothing to send */
    uint32_t head;
    uint32_t tail;
    uint8_t payload; /* enum tcp_payload of what follows the batch */
    bool dead;       /* the socket takes no more; reading tells why */
    bool over;       /* the refusal is sent: nothing but control frames follows */
    bool answer_was_last;
    int error;
    uint64_t frame_length;
    uint64_t requests;          /* ours, sent */
    struct rdmux_request *open; /* its payload is not all out */
    uint64_t open_at;
    uint8_t *control; /* pooled buffer with control frames that wait for a frame's end */
    uint32_t control_size;
    uint64_t acks;
    bool credit_now; /* the peer asked */
    bool ask;
    bool recall;
    bool give_back;
    uint32_t answers_first;
    uint32_t answers_count;
    struct tcp_answer answers[TCP_ANSWERS + 1]; /* one more for the refusal */
};

/* What a refused post waits for. */
enum {
    TCP_WAIT_ROOM = 1 << 0,
    TCP_WAIT_CREDIT = 1 << 1,
    TCP_WAIT_ANSWER = 1 << 2,
};

/* Options of a shared socket, to give them back as they were. */
enum { TCP_OPTIONS = 8 };

struct tcp_ep {
    struct rdmux_provider_ep base;
    enum tcp_state state;
    enum rdmux_role role;
    uint32_t idle_polls;
    uint32_t hot_polls; /* since it is hot */
    bool hot;
    bool shared; /* the socket is the control channel's, too */
    bool peer_on_demand;
    bool asked;     /* for a credit, no answer yet */
    bool quiescing; /* what is found out now is not news to the core */
    uint32_t waits; /* TCP_WAIT_* of the last refused post */
    uint32_t lane_count;
    uint32_t lanes_ready;
    uint32_t peer_answers;
    uint32_t reserved; /* pool buffers */
    struct tcp_lane lane0;
    struct tcp_lane *lanes; /* NULL with one socket; else lane_count of which 0 is unused */
    struct tcp_link attention;
    struct tcp_link out_armed;
    struct tcp_link paused;
    struct tcp_in in;
    struct tcp_queue unplaced;   /* sent with PLACED, not acknowledged */
    struct tcp_queue unanswered; /* reads and atomics */
    struct rdmux_credits_held held;
    struct rdmux_credits_given given;
    struct tcp_srq *srq;
    uint32_t level; /* credits that the peer should have at a time, with an SRQ */
    bool recalled;
    bool asking;
    struct tcp_link member;
    struct tcp_link wanting; /* on srq->asking or srq->hungry */
    struct rdmux_provider_counts counts;
    const struct rdmux_provider_ep_attr *attr;
    uint32_t options_set; /* bits of what options holds */
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

/* The endpoint has something to do at the next poll. */
static inline void rdmux_tcp_attend(struct tcp_ep *ep)
{
    if (!tcp_link_is_on(&ep->attention)) {
        tcp_list_add(&rdmux_tcp_cq_of(ep)->attention, &ep->attention);
    }
}

/* The same for something to send that must not wait while the caller sleeps. */
void rdmux_tcp_nudge(struct tcp_ep *ep);

/* -------------------------------------------------------------------------------------- sockets */

/* Options of a data socket. Failures only cost speed, or are noticed by the core's heartbeats. */
void rdmux_tcp_socket_setup(struct tcp_ep *ep, int fd);
/* Where both ends are on this host: no congestion control that paces. A socket that is to be dialled
 * is told before it connects if its peer's address says so, as what BBR has begun keeps its timers;
 * again once it is connected, when its own address is known. */
void rdmux_tcp_avoid_pacing(const struct tcp_ep *ep, int fd);
/* Gives a shared socket's options back. */
void rdmux_tcp_socket_restore(struct tcp_ep *ep, int fd);
/* Tells epoll what to watch the socket for; EPOLLERR and EPOLLHUP always. */
enum rdmux_status rdmux_tcp_watch(struct tcp_lane *lane, uint32_t events);
void rdmux_tcp_unwatch(struct tcp_lane *lane);
/* "text: connection reset by peer" */
void rdmux_tcp_error_text(char *out, size_t size, const char *text, int error);
/* Of EFAULT: the kernel cannot read or write a buffer of a request, or a region's memory. */
extern const char rdmux_tcp_bad_buffer[];

/* -------------------------------------------------------------------------------------- streams */

/* In clear: so it is before the choice, and after the end. */
void rdmux_tcp_stream_clear(struct tcp_lane *lane);
/* Chooses; the socket is joined. */
enum rdmux_status rdmux_tcp_stream_begin(struct tcp_lane *lane);
/* Gets to know the other end. RDMUX_IN_PROGRESS: epoll tells when to go on. */
enum rdmux_status rdmux_tcp_stream_step(struct tcp_lane *lane);
/* May there be bytes that epoll does not tell of? */
static inline bool rdmux_tcp_stream_holds_bytes(const struct tcp_lane *lane)
{
    const struct rdmux_stream *session = lane->stream.session;
    return session != NULL && session->ops->holds_bytes(session);
}
/* Why it failed; "" if it did not. */
const char *rdmux_tcp_stream_reason(const struct tcp_lane *lane);
void rdmux_tcp_stream_end(struct tcp_lane *lane);

/* --------------------------------------------------------------------------------- moving bytes */

/* Ends the endpoint; the first cause counts. */
void rdmux_tcp_fail(struct tcp_ep *ep, enum rdmux_status status, const char *text);

/* Pieces of a request's list from byte `from` on, length bytes. Returns how many. */
int rdmux_tcp_pieces(const struct rdmux_request *request, uint64_t from, uint64_t length,
                     struct iovec *out);

/* Sends what there is, in the order of this file's first comment. */
void rdmux_tcp_pump(struct tcp_ep *ep);
/* A socket has room again. */
void rdmux_tcp_unblock(struct tcp_lane *lane);
/* What a refused post waited for has come. */
void rdmux_tcp_came(struct tcp_ep *ep, uint32_t what);
/* The answer that is to be queued next, for the peer's request with this number; there is room. */
struct tcp_answer *rdmux_tcp_answer(struct tcp_ep *ep, uint8_t kind, uint64_t index);
/* A request of the peer is refused: it is told, and nothing after it is carried out. */
void rdmux_tcp_refuse(struct tcp_ep *ep, uint64_t index, enum rdmux_status status);
/* The request of ours with this number was refused. NULL: it was done already. */
struct rdmux_request *rdmux_tcp_take_refused(struct tcp_ep *ep, uint64_t index);
/* Something is owed to the peer and can be sent. */
bool rdmux_tcp_owes(const struct tcp_ep *ep);
void rdmux_tcp_out_finish(struct tcp_ep *ep);

enum rdmux_status rdmux_tcp_post(struct rdmux_provider_ep *base, struct rdmux_request *requests,
                                 size_t count, uint32_t flags, size_t *posted);
void rdmux_tcp_doorbell(struct rdmux_provider_ep *base);
enum rdmux_status rdmux_tcp_ep_control(struct rdmux_provider_ep *base, const void *frame,
                                       size_t size);
enum rdmux_status rdmux_tcp_ep_ping(struct rdmux_provider_ep *base);

/* Reads what has come, at most about budget frames. Returns how much was done. */
size_t rdmux_tcp_read(struct tcp_ep *ep, size_t budget);
/* Takes bytes up again that were put aside; what was awaited may be there. */
size_t rdmux_tcp_resume(struct tcp_ep *ep);
/* Shares of a striped payload are still to come. */
bool rdmux_tcp_shares_missing(struct tcp_ep *ep);
void rdmux_tcp_in_finish(struct tcp_ep *ep);

/* -------------------------------------------------------------------------------------- credits */

/* Receives were posted to the endpoint itself. */
enum rdmux_status rdmux_tcp_post_recv(struct rdmux_provider_ep *base,
                                      struct rdmux_request *requests, size_t count);
/* A message of the peer uses a credit. False: it had none. */
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

/* ----------------------------------------------------------------------------- the table's rest */

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
/* Its socket 0 is, or is no longer, read without asking epoll. */
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
