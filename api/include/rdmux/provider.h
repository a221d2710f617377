/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * provider.h - what the author of a provider includes; docs/PROVIDER-GUIDE.md walks through it.
 *
 * A provider moves bytes over one kind of fabric. It is a const table of operations. The core does
 * everything that is the same on all fabrics: objects, argument and token checks, the request
 * record, completion order, fences, negotiation, the control channel, liveness. A provider is left
 * with: list the local paths, open and connect endpoints, start the requests it is given, and say
 * when each is done.
 *
 * Threads. Operations on a cq and on what is attached to it (endpoints, remotes, SRQs) are called
 * one at a time, by whoever owns the cq then: an application's thread or the library's service
 * thread. Operations on a domain and its regions may be called by any thread, concurrently with all
 * others; each says what it must guard. No operation is called with a lock held that a function of
 * this header would take.
 *
 * Memory. The core allocates every object zeroed in the size the table names, sets the base, calls
 * open, and frees it after close. An open that fails has released what it took; no close follows.
 * Arguments are valid for the call only, unless the operation says that it keeps them.
 *
 * Marks. [data path]: neither blocks, allocates nor logs. [may sleep]: set-up work, called by the
 * owner of the cq, within an application's call or a slice of the service thread, or by the thread
 * that registers memory. A provider with RDMUX_PROVIDER_QUICK promises that it never takes longer
 * than a few system calls; without the flag everything else on that cq waits for it meanwhile.
 *
 * Errors. Operations return enum rdmux_status. Before returning a failure they call
 * rdmux_provider_error() with a text that names the thing, the cause and the remedy; it becomes the
 * caller's error text or the candidate's line in the explanation.
 */
#ifndef RDMUX_PROVIDER_H
#define RDMUX_PROVIDER_H

#include <rdmux/rdmux.h>

#include <stddef.h>
#include <stdint.h>

struct sockaddr;
struct sockaddr_storage;

#ifdef __cplusplus
extern "C" {
#endif

#define RDMUX_PROVIDER_ABI 1

enum {
    RDMUX_DESCRIPTION_MAX = 512, /* bytes of connection data, or of a region's description */
    RDMUX_REACH_MAX = 128,       /* bytes that tell who can reach a path */
    RDMUX_SECRET_SIZE = 16,      /* bytes of a connection's secret */
    RDMUX_JOIN_SIZE = 64,        /* bytes that a joining socket says first */
    RDMUX_TARGET_KEY_SIZE = 16,  /* bytes that name a region to the software target side */
    RDMUX_SGE_MAX = 16,          /* most entries of a scatter/gather list */
};

/* rdmux_provider_ops.flags */
enum {
    /* No operation marked [may sleep] takes longer than a few system calls. */
    RDMUX_PROVIDER_QUICK = 1 << 0,
    /* Honours RDMUX_FENCE itself; else the core holds fenced requests back. */
    RDMUX_PROVIDER_NATIVE_FENCE = 1 << 1,
    /* Every local buffer needs a registration: sge.mr is never NULL then, but in sends and writes of
     * at most the path's max_inline bytes (none, if that is 0), which the provider puts into the
     * request itself. The core registers what the application did not: mr_register is called
     * without a region (base.mr NULL), for memory that is never exported. It also copies lists of
     * more pieces than the path's max_sge; without this flag the application may not ask for such
     * lists. */
    RDMUX_PROVIDER_LOCAL_KEYS = 1 << 2,
    /* Its SRQs match messages with receives by themselves: srq_post_recv gives them each receive,
     * which is theirs until rdmux_provider_received() by the endpoint that it went to, or srq_close.
     * Such an SRQ serves endpoints of one device only; the core sees to that. */
    RDMUX_PROVIDER_DEVICE_SRQ = 1 << 4,
    /* Its fabric never gives a silent peer up by itself: ep_ping is called with each heartbeat,
     * however busy the endpoint is. */
    RDMUX_PROVIDER_PING_BUSY = 1 << 5,
    RDMUX_PROVIDER_LAST_RESORT = 1 << 3, /* ranked behind every provider without this flag */
    /* What a peer's read brings may be taken from memory after mr_invalidate has returned, if the
     * device had begun to answer. After each mr_invalidate the core posts a PLACED write of nothing
     * to every importer's endpoint, at any time and beside other requests: it is done when nothing
     * from before it is under way to the peer any more. */
    RDMUX_PROVIDER_READS_LINGER = 1 << 6,
};

/* -------------------------------------------------------------------------------------- objects */

/* Each provider embeds these as first member of its own structs. Fields are set by the core and
 * read-only for the provider, unless noted. */

struct rdmux_provider_ops;

/* One opened device of one fabric. */
struct rdmux_provider_domain {
    const struct rdmux_provider_ops *ops;
    struct rdmux_fabric *fabric;
};

/* What a completion queue of the application has on one domain. */
struct rdmux_provider_cq {
    struct rdmux_provider_domain *domain;
    struct rdmux_cq *cq;
    uint32_t ep_count; /* open endpoints on it */
    uint32_t spare;
};

/* A region's registration with one domain. */
struct rdmux_provider_mr {
    struct rdmux_provider_domain *domain;
    struct rdmux_mr *mr;
};

/* One side of one path of an endpoint. */
struct rdmux_provider_ep {
    /* First, so that a post is one load and one indirect call. */
    const struct rdmux_provider_ops *ops;
    struct rdmux_provider_cq *cq;
    struct rdmux_ep *ep;
    void *core; /* the core's own */
    /* 1: on that list. Set through rdmux_provider_ready(). Not 0: the core will look anyway. */
    uint32_t ready;
    uint32_t resume; /* 1: what post refused may be tried again. Set by rdmux_provider_resume() */
    uint64_t system_calls; /* the provider counts here */
    /* With RDMUX_PROVIDER_LOCAL_KEYS: bytes of a send or write that need no key. ep_open may set it
     * where the path's max_inline could not tell. */
    uint32_t max_inline;
    /* With RDMUX_PROVIDER_LOCAL_KEYS: ep_open sets 1 if the peer's device writes what a read brings
     * by its own right, so that it is wanted of the region: the pieces of a read then are regions
     * with RDMUX_ACCESS_READ_SINK, or the core's own (mr.mr NULL), registered with it for the
     * purpose. Regions without it stay out of the peer's reach. */
    uint32_t needs_sinks;
};

/* A peer's region as one endpoint sees it. */
struct rdmux_provider_remote {
    struct rdmux_provider_ep *ep;
    struct rdmux_remote *remote;
    uint64_t length;
    /* RDMUX_ACCESS_REMOTE_*; remote_open may take bits away that the path cannot do. */
    uint32_t access;
    uint32_t mapped; /* remote_open sets 1 if reads and writes are plain copies */
};

struct rdmux_provider_srq {
    struct rdmux_provider_cq *cq;
    struct rdmux_srq *srq;
};

/* ------------------------------------------------------------------------------------- requests */

struct rdmux_provider_sge {
    void *addr;
    uint64_t length;
    /* Registration with this endpoint's domain, NULL if there is none. */
    struct rdmux_provider_mr *mr;
};

/* The core's record of one request, send side or receive. It stays where it is, with its list,
 * until the provider calls it done; the provider may keep pointers to it until then. 128 bytes. */
struct rdmux_request {
    uint32_t op; /* RDMUX_OP_* */
    /* RDMUX_INLINE (a held one's bytes were copied; the list points at the copy),
     * RDMUX_PLACED, … */
    uint32_t flags;
    uint32_t imm;
    uint16_t sge_count;
    uint8_t done;     /* 1 once the provider called it done */
    uint8_t internal; /* the core's own request: proof, flush */
    uint32_t status;  /* result, enum rdmux_status */
    uint32_t opcode;  /* receives: RDMUX_WC_RECV or RDMUX_WC_RECV_WRITE_IMM */
    uint64_t length;  /* bytes of the list; of a done receive: bytes received or written */
    void *context;
    struct rdmux_provider_sge *sges;
    struct rdmux_provider_remote *remote;
    uint64_t offset; /* into the remote region */
    uint64_t operand;
    uint64_t expected;
    /* Counts the endpoint's send-side requests from 0; SRQ and receive records count their own. */
    uint64_t sequence;
    struct rdmux_request *next; /* the core's */
    uint32_t wc_flags;          /* receives: RDMUX_WC_HAS_IMM */
    uint32_t keys;              /* the core's */
    uint64_t provider[3];       /* the provider's own */
};

/* Marks the endpoint as having something for the core to look at (a request done, a resume).
 * [data path] */
RDMUX_API void rdmux_provider_ready(struct rdmux_provider_ep *ep);

/* A send-side request is done; its buffers are the application's again. Any order; the core
 * restores posting order. [data path] */
static inline void rdmux_provider_done(struct rdmux_provider_ep *ep, struct rdmux_request *request,
                                       uint32_t status)
{
    request->status = status;
    request->done = 1;
    if (!ep->ready) {
        rdmux_provider_ready(ep);
    }
}

/* After post returned RDMUX_AGAIN: it may work now. [data path] */
static inline void rdmux_provider_resume(struct rdmux_provider_ep *ep)
{
    ep->resume = 1;
    if (!ep->ready) {
        rdmux_provider_ready(ep);
    }
}

/* Takes the oldest receive of the endpoint, or of its SRQ, that no message has met yet; NULL if
 * there is none: then post_recv or srq_post_recv is called when there is. For providers that match
 * messages with receives in software. [data path] */
RDMUX_API struct rdmux_request *rdmux_provider_take_receive(struct rdmux_provider_ep *ep);

/* Receives that rdmux_provider_take_receive() could still give this endpoint; with an SRQ those that
 * are reserved for no endpoint. [data path] */
RDMUX_API uint32_t rdmux_provider_receives(struct rdmux_provider_ep *ep);

/*
 * Shared receives that a peer is promised: as long as they are reserved for the endpoint no other
 * endpoint, of whatever provider, can take them. rdmux_provider_take_receive() uses the endpoint's
 * own reservation first. Returns how many of count were reserved; 0: there is none, and post_recv is
 * called when there is. Without an SRQ nothing needs to be reserved: 0. [data path]
 */
RDMUX_API uint32_t rdmux_provider_reserve(struct rdmux_provider_ep *ep, uint32_t count);
/* Gives count reserved receives back, for whoever waits. [data path] */
RDMUX_API void rdmux_provider_unreserve(struct rdmux_provider_ep *ep, uint32_t count);
/* 1 while an endpoint of the SRQ waits for a receive: who has reserved some and does not use them
 * is to give them back. post_recv is called with NULL and 0 when this becomes so for an endpoint of
 * another domain. [data path] */
RDMUX_API int rdmux_provider_receives_awaited(const struct rdmux_provider_ep *ep);

/* 1 if the endpoint takes its receives from an SRQ. */
RDMUX_API int rdmux_provider_has_srq(const struct rdmux_provider_ep *ep);

/* A receive is done: opcode, length, imm, wc_flags and status are set by this call. In arrival
 * order. length is the message's, also where it is longer than the buffer (status RDMUX_LENGTH,
 * followed by rdmux_provider_failed()). [data path] */
RDMUX_API void rdmux_provider_received(struct rdmux_provider_ep *ep, struct rdmux_request *request,
                                       uint32_t status, uint32_t opcode, uint64_t length,
                                       uint32_t wc_flags, uint32_t imm);

/*
 * The same for several at once. rdmux_provider_next_receives() gives the records, adjacent ones, that
 * rdmux_provider_take_receive() would give one after the other from now on, and returns how many; 0
 * tells no more than that they are to be taken one by one, as those of an SRQ are. The provider fills
 * in the first few by rdmux_provider_fill_receive(), and then tells how many by
 * rdmux_provider_filled_receives(), before any other call. [data path]
 */
RDMUX_API uint32_t rdmux_provider_next_receives(struct rdmux_provider_ep *ep,
                                                struct rdmux_request **first);
static inline void rdmux_provider_fill_receive(struct rdmux_request *request, uint32_t opcode,
                                               uint64_t length, uint32_t wc_flags, uint32_t imm)
{
    request->imm = imm;
    request->done = 1;
    request->status = RDMUX_OK;
    request->opcode = opcode;
    request->length = length;
    request->wc_flags = wc_flags;
}
RDMUX_API void rdmux_provider_filled_receives(struct rdmux_provider_ep *ep, uint32_t count);

/* The path failed by itself, with a reason. The core ends the endpoint (or moves it): it will call
 * ep_quiesce and ep_close, not within this call. status RDMUX_PEER_GONE, RDMUX_DENIED,
 * RDMUX_LENGTH, RDMUX_PROTOCOL, RDMUX_IO … text is copied. RDMUX_FLUSHED: it ended and does not say
 * why, as where a refusal of the peer may have been lost. Then the core asks the peer, and the endpoint
 * ends with what that knows, else with RDMUX_PEER_GONE; leave its requests to the core until
 * ep_quiesce. */
RDMUX_API void rdmux_provider_failed(struct rdmux_provider_ep *ep, enum rdmux_status status,
                                     const char *text);

/* ---------------------------------------------------------------------------------------- paths */

/* One local path of a provider. What probe leaves zero is "none" or "no limit". */
struct rdmux_local_path {
    char device[RDMUX_NAME_MAX];
    char address[RDMUX_ADDRESS_MAX];
    uint32_t reason;   /* RDMUX_REASON_USABLE, or why not; then text and hint say it in words */
    uint32_t software; /* 1: an RDMA device emulated in software */
    char text[RDMUX_TEXT_MAX];
    char hint[RDMUX_TEXT_MAX];
    uint64_t bandwidth;  /* bytes per second */
    uint32_t latency_ns; /* half round trip of a small message */
    uint32_t mtu;
    uint64_t native;      /* RDMUX_CAP_* */
    uint64_t emulated;    /* RDMUX_CAP_* */
    uint64_t max_message; /* longest send, and part of a write or read; 0 = no limit */
    uint32_t max_sge;     /* pieces of each list, shared receives' too; 0 = RDMUX_SGE_MAX */
    uint32_t max_inline;  /* 0 = no limit */
    uint32_t security;    /* enum rdmux_security */
    uint32_t reach_length;
    /* Sent with the offer; only the provider's reach operation reads it. */
    uint8_t reach[RDMUX_REACH_MAX];
    uint32_t port; /* of the device, from 1; 0: it has none */
    uint32_t spare0;
    uint64_t spare[7];
};

/* What an endpoint is opened for. */
struct rdmux_provider_ep_attr {
    enum rdmux_role role;
    uint32_t send_depth;
    uint32_t recv_depth;   /* 0 with an SRQ */
    uint32_t max_send_sge; /* at most the path's max_sge */
    uint32_t max_recv_sge;
    uint32_t max_inline;
    uint64_t max_send; /* granted: the smaller of both sides */
    uint64_t max_recv;
    uint32_t liveness_ms; /* granted; RDMUX_NEVER possible */
    uint32_t dscp;        /* the value itself, 0 to 63 */
    uint32_t ecn;         /* the two bits themselves */
    uint32_t service_level;
    uint32_t data_sockets; /* granted */
    uint32_t has_failover; /* 1: a path that fails is left for another one, and is not the end */
    const struct rdmux_local_path *path;
    struct rdmux_provider_srq *srq; /* NULL, or the endpoint's SRQ on this domain */
    /* Where the peer's control channel is; the connector may join there. NULL for an adopted socket
     * that is not IP. */
    const struct sockaddr *peer_address;
    uint32_t peer_address_length;
    /* Adopted: the data shares this socket with the control channel, see attach. -1: none. */
    int shared_socket;
    /* Of an endpoint of rdmux_plain_ops.endpoints, else NULL. */
    struct rdmux_plain_call *call;
    /* Where sockets to the peer are to come from, of the family of peer_address: rdmux_ep_attr.local
     * as an address, port 0. NULL: from anywhere. */
    const struct sockaddr *local_address;
    uint32_t local_address_length;
    uint32_t spare1;
};

/* Requests of the peer that this side has carried out. Informative; 0 where a provider does not count. */
struct rdmux_provider_counts {
    uint64_t received; /* sends and write_imms delivered into receives */
    uint64_t executed; /* atomics carried out */
};

/* What async_event tells of a device. */
struct rdmux_provider_event {
    /* RDMUX_REASON_PORT_DOWN, RDMUX_REASON_USABLE (up again), RDMUX_REASON_NO_DEVICE (gone) … */
    uint32_t reason;
    uint32_t spare;
    char text[RDMUX_TEXT_MAX];
};

/* One finding of inspect. */
struct rdmux_provider_finding {
    uint32_t severity; /* enum rdmux_log_level: ERROR prevents use, WARN costs, INFO is fine */
    uint32_t spare;
    const char *object;
    const char *text;
    const char *remedy; /* a command, or NULL */
};

struct rdmux_provider_mr_attr {
    void *addr;
    uint64_t length;
    uint32_t access;   /* RDMUX_ACCESS_* */
    uint32_t ordering; /* RDMUX_ORDERING_* */
    /* memfd that holds the bytes from its offset 0 (rdmux_mr_alloc), -1 for the caller's memory.
     * The core's. */
    int memory_fd;
    uint32_t spare;
};

/* rdmux_provider_ops.post flags */
enum {
    /* Another post follows at once: the doorbell may wait for it, or for the doorbell operation. */
    RDMUX_POST_MORE = 1 << 0,
};

/* -------------------------------------------------------------------------------- express lanes */

/*
 * The shortest way of small writes: rdmux_write() checks the arguments and calls the provider, which
 * calls the device; rdmux_cq_poll() calls the provider, which asks the device and writes the entries
 * that are returned. A cq has one lane. The core opens it for an endpoint that posts one inline
 * signaled write after the other, while nothing else is to be done on the cq, and closes it before
 * any call or thread does anything else with the cq: what is under way then is handed over to
 * request records. So the lane's own functions, post and poll, see the cq in one state only.
 */
enum {
    RDMUX_LANE_OPEN = 24, /* rdmux_lane.signal of an open lane that nobody else wants something of */
    /* rdmux_lane.inside */
    RDMUX_LANE_AWAY = 0,
    RDMUX_LANE_INSIDE = 1, /* the application's call is in the cq */
    RDMUX_LANE_LEFT = 2,   /* not any more, but it was since the service thread looked */
    RDMUX_LANE_PROVIDER_WORDS = 384,
};

/* A write under way. Its first half is that of the completion. */
struct rdmux_lane_entry {
    void *context;
    struct rdmux_ep *ep;
    uint64_t length;
    uint32_t status; /* RDMUX_OK */
    uint32_t opcode; /* RDMUX_WC_WRITE */
    struct rdmux_lane_entry *next;
    struct rdmux_request *request; /* from lane_close on, of one that is under way */
    uint64_t provider[2];          /* the provider's own */
};

/* Where an import is, in the provider's words: filled in by lane_target. */
struct rdmux_lane_target {
    uint64_t addr;
    uint32_t key;
    uint32_t spare;
};

/* The core's, but for what is the provider's to change. It lives as long as its cq. */
struct rdmux_lane {
    uint32_t signal; /* atomic: 0 in the child of a fork */
    uint32_t inside; /* atomic */
    /* A write takes the entry at head, which goes on by one, if it is below limit. A completion frees
     * the one at tail, which goes on to its next. */
    struct rdmux_lane_entry *head;
    struct rdmux_lane_entry *limit; /* atomic: NULL while signal says something else than open */
    struct rdmux_lane_entry *tail;  /* the provider's poll moves it */
    uint64_t bytes;                 /* of the writes */
    uint64_t most;                  /* bytes of the longest write; lane_open may lower it */
    /* Gives the device a write, entry->context and length are set, and leaves the cq by
     * rdmux_lane_leave(). RDMUX_OK always: what the device did not take ends with its endpoint, by
     * rdmux_lane_stop() and then rdmux_provider_failed(). lane_open sets it. [data path] */
    enum rdmux_status (*post)(struct rdmux_lane *lane, const void *buf, size_t length,
                              struct rdmux_lane_entry *entry,
                              const struct rdmux_lane_target *target, uint64_t offset);
    struct rdmux_cq *cq;
    struct rdmux_lane_entry *entries;
    uint32_t entry_count; /* one more than there are ever under way */
    uint32_t spare;
    uint64_t provider[RDMUX_LANE_PROVIDER_WORDS]; /* zeroed when the cq is made */
};

/*
 * rdmux_cq_poll() while the lane is open; cq is not NULL. Enters the cq by rdmux_lane_enter() and
 * leaves it by rdmux_lane_leave(). Returns completions of the lane's writes that succeeded, in order.
 * Anything else it keeps for the provider's ordinary poll, which rdmux_lane_poll() comes to.
 * [data path]
 */
typedef size_t (*rdmux_lane_poll_fn)(struct rdmux_cq *cq, struct rdmux_wc *wc, size_t max);

/* What the core's struct rdmux_cq begins with. */
struct rdmux_cq_front {
    rdmux_lane_poll_fn poll;
    struct rdmux_lane *lane;
};

/*
 * Enter the cq: rdmux_lane_enter() to poll, the other to write. 0: not for the lane now; leave it at
 * once and let the core go on. What another thread has made of
 * signal or limit is read behind the store of inside: the barrier that the core makes all threads
 * pass completes the order. On a processor that keeps loads in order a plain read will do, which
 * compilers join with the comparison; the fence makes them read anew. [data path]
 */
#if defined(__SANITIZE_THREAD__) || !(defined(__x86_64__) || defined(__i386__))
static inline int rdmux_lane_enter(struct rdmux_lane *lane)
{
    __atomic_exchange_n(&lane->inside, RDMUX_LANE_INSIDE, __ATOMIC_SEQ_CST);
    return __atomic_load_n(&lane->signal, __ATOMIC_SEQ_CST) == RDMUX_LANE_OPEN;
}
static inline int rdmux_lane_enter_with_room(struct rdmux_lane *lane)
{
    __atomic_exchange_n(&lane->inside, RDMUX_LANE_INSIDE, __ATOMIC_SEQ_CST);
    const struct rdmux_lane_entry *limit = __atomic_load_n(&lane->limit, __ATOMIC_SEQ_CST);
    return limit != NULL && lane->head < limit;
}
#else
static inline int rdmux_lane_enter(struct rdmux_lane *lane)
{
    __atomic_store_n(&lane->inside, RDMUX_LANE_INSIDE, __ATOMIC_RELAXED);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    return lane->signal == RDMUX_LANE_OPEN;
}
static inline int rdmux_lane_enter_with_room(struct rdmux_lane *lane)
{
    __atomic_store_n(&lane->inside, RDMUX_LANE_INSIDE, __ATOMIC_RELAXED);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    return lane->head < lane->limit;
}
#endif

/* [data path] */
static inline void rdmux_lane_leave(struct rdmux_lane *lane)
{
    __atomic_store_n(&lane->inside, RDMUX_LANE_LEFT, __ATOMIC_RELEASE);
}

/* The core's way for what the lane's poll does not do. [data path] */
RDMUX_API size_t rdmux_lane_poll(struct rdmux_cq *cq, struct rdmux_wc *wc, size_t max);
/* Closes the lane, by calling lane_close; while the caller is in the cq. [data path] */
RDMUX_API void rdmux_lane_stop(struct rdmux_lane *lane);

/* ------------------------------------------------------------------------------------ the table */

/*
 * What a provider promises the core. Every operation but those of express lanes is set; one that the
 * fabric lacks points at its rdmux_unsupported_* function, so nobody tests for NULL, and the
 * registry refuses a table with a hole.
 */
struct rdmux_provider_ops {
    uint32_t abi;     /* RDMUX_PROVIDER_ABI */
    uint32_t size;    /* sizeof(struct rdmux_provider_ops) */
    const char *name; /* unique, lower case, at most RDMUX_NAME_MAX - 1 characters; never freed */
    uint32_t flags;
    uint32_t spare;
    /* Bytes of the provider's struct for each object, at least that of the base. */
    size_t domain_size;
    size_t cq_size;
    size_t ep_size;
    size_t srq_size;
    size_t mr_size;
    size_t remote_size;

    /* Lists the local paths, up to max; *count says how many there are. None is one entry with a
     * reason (no device, no driver), never a failure. Any thread. [may sleep] */
    enum rdmux_status (*probe)(struct rdmux_fabric *fabric, struct rdmux_local_path *out,
                               size_t max, size_t *count);

    /* Can a path with the reach bytes `ours` talk to a peer's path with `theirs`?
     * RDMUX_REASON_NONE = yes; else why not, and a text of at most RDMUX_TEXT_MAX bytes. A pure
     * function; theirs is a stranger's input. Any thread. */
    enum rdmux_reason (*reach)(const uint8_t *ours, size_t ours_length, const uint8_t *theirs,
                               size_t theirs_length, char *text);

    /* Opens the device of a path of probe. Any thread. [may sleep] */
    enum rdmux_status (*domain_open)(struct rdmux_provider_domain *domain,
                                     const struct rdmux_local_path *path);
    /* Nothing of the domain is left. [may sleep] */
    void (*domain_close)(struct rdmux_provider_domain *domain);
    /* Takes the oldest event of the device. RDMUX_AGAIN: none. domain_fd is readable when there is
     * one, -1 if there never is. */
    enum rdmux_status (*async_event)(struct rdmux_provider_domain *domain,
                                     struct rdmux_provider_event *out);
    int (*domain_fd)(struct rdmux_provider_domain *domain);
    /* Reports what is wrong or suboptimal on this machine. The core does not call it: `rdmux doctor`
     * reads the system's files, which takes no library of the fabric and no right to its devices.
     * [may sleep] */
    enum rdmux_status (*inspect)(struct rdmux_fabric *fabric,
                                 void (*report)(void *user,
                                                const struct rdmux_provider_finding *finding),
                                 void *user);

    /* Registers memory with the device. Any thread. [may sleep] */
    enum rdmux_status (*mr_register)(struct rdmux_provider_mr *mr,
                                     const struct rdmux_provider_mr_attr *attr);
    /* Ends local access, and the peers' where mr_invalidate was not called. Any thread. [may sleep]
     */
    void (*mr_deregister)(struct rdmux_provider_mr *mr);
    /* Writes the bytes with which the peer of ep can reach the region: remote_open there gets them.
     * Called at each import, by ep's cq owner. *size: room, then used. */
    enum rdmux_status (*mr_describe)(struct rdmux_provider_mr *mr, struct rdmux_provider_ep *ep,
                                     uint8_t *out, size_t *size);
    /* Ends remote access: when it returns, no later access by a description given out so far
     * changes or reads a byte. The region may be described again afterwards, with another key. Any
     * thread. [may sleep] */
    enum rdmux_status (*mr_invalidate)(struct rdmux_provider_mr *mr);

    enum rdmux_status (*cq_open)(struct rdmux_provider_cq *cq, uint32_t depth);
    void (*cq_close)(struct rdmux_provider_cq *cq);
    /* Makes progress on everything attached: requests done, receives done, target-side work,
     * faults. Bounded: at most about budget requests, then returns. Returns how much it did; 0 =
     * nothing to do now. Also releases held doorbells. [data path] */
    size_t (*poll)(struct rdmux_provider_cq *cq, size_t budget);
    /* The fd will be readable at the next thing. RDMUX_AGAIN: there is something already, and a poll
     * follows, which may take a part of it: the next arm has to see what is left. Nothing may fall
     * between. */
    enum rdmux_status (*arm)(struct rdmux_provider_cq *cq);
    /* A descriptor for epoll, the same for the cq's whole life; level-triggered: readable until
     * poll has taken the thing. It may be readable without arm. */
    int (*fd)(struct rdmux_provider_cq *cq);

    /* Builds an unconnected endpoint. attr is valid until ep_close. [may sleep] */
    enum rdmux_status (*ep_open)(struct rdmux_provider_ep *ep,
                                 const struct rdmux_provider_ep_attr *attr);
    /* Writes the connection data that the peer's ep_connect gets. *size: room
     * (RDMUX_DESCRIPTION_MAX), then used. */
    enum rdmux_status (*ep_describe)(struct rdmux_provider_ep *ep, uint8_t *out, size_t *size);
    /* First call: the peer's connection data. RDMUX_IN_PROGRESS: called again with NULL, 0 whenever
     * the cq made progress, until RDMUX_OK or a failure. The connector's first call comes before
     * the acceptor's. [may sleep] */
    enum rdmux_status (*ep_connect)(struct rdmux_provider_ep *ep, const uint8_t *peer, size_t size);
    /* A socket of the peer joined this endpoint at our listener (its first RDMUX_JOIN_SIZE bytes
     * are read already); index is what the peer put into rdmux_provider_join(). On RDMUX_OK the
     * socket is the provider's, else the core closes it. May come before ep_connect. */
    enum rdmux_status (*ep_join)(struct rdmux_provider_ep *ep, int socket, uint32_t index);
    /* With shared_socket: sends a frame of the control channel between the data. RDMUX_AGAIN: no
     * room; poll, then again. */
    enum rdmux_status (*ep_control)(struct rdmux_provider_ep *ep, const void *frame, size_t size);
    /* Nothing was posted for a quarter of the liveness time, and the peer's process is heard on the
     * control channel: send something that shows the path is alive (or fails). The path's own
     * keepalive may do. */
    enum rdmux_status (*ep_ping)(struct rdmux_provider_ep *ep);
    /* Kills the path and drains: when it returns RDMUX_OK nobody touches a buffer of a request any
     * more, and late messages of the peer are kept out. Requests not done stay so; the core completes
     * them. Receives already complete are reported before. Fills *counts. RDMUX_IN_PROGRESS: a copy is
     * still under way; called again. Never waits. */
    enum rdmux_status (*ep_quiesce)(struct rdmux_provider_ep *ep,
                                    struct rdmux_provider_counts *counts);
    /* Ends the endpoint. ep_quiesce comes before, at least once; where a copy outlasts the time that an
     * end may take, its last answer was RDMUX_IN_PROGRESS. Never waits for the network. A shared_socket
     * is left open and, if at a frame's border, usable. */
    void (*ep_close)(struct rdmux_provider_ep *ep);

    /* Starts requests in order. *posted is how many were taken; the status is that of
     * requests[*posted]. RDMUX_AGAIN: not now (queue full, no credit): the core holds it and all
     * behind, and posts again after rdmux_provider_resume(). Any other failure ends the endpoint
     * with it. A request taken is reported by rdmux_provider_done() exactly once, maybe within this
     * call; with UNSIGNALED too. [data path] */
    enum rdmux_status (*post)(struct rdmux_provider_ep *ep, struct rdmux_request *requests,
                              size_t count, uint32_t flags, size_t *posted);
    /* Lets go of what RDMUX_POST_MORE held back. [data path] */
    void (*doorbell)(struct rdmux_provider_ep *ep);
    /* New receives, adjacent records; they stay until rdmux_provider_received(). Providers that
     * match in software take them with rdmux_provider_take_receive() and use this call to tell the
     * peer; others queue them with the device. NULL and 0: no new record, but there may be a
     * receive where there was none (an SRQ's, or the path has just become the endpoint's).
     * [data path] */
    enum rdmux_status (*post_recv)(struct rdmux_provider_ep *ep, struct rdmux_request *requests,
                                   size_t count);

    enum rdmux_status (*srq_open)(struct rdmux_provider_srq *srq, uint32_t depth, uint32_t max_sge);
    void (*srq_close)(struct rdmux_provider_srq *srq);
    enum rdmux_status (*srq_post_recv)(struct rdmux_provider_srq *srq,
                                       struct rdmux_request *requests, size_t count);

    /* Makes a peer's region usable on ep from the bytes of its mr_describe, a stranger's input.
     * length and access are set. */
    enum rdmux_status (*remote_open)(struct rdmux_provider_remote *remote,
                                     const uint8_t *description, size_t size);
    /* No request uses it any more. */
    void (*remote_close)(struct rdmux_provider_remote *remote);

    /* Appended; a shorter table has none. */
    const struct rdmux_plain_ops *plain; /* NULL: no connections to programs that are not rdmux */

    /* Express lanes, see above: all of them, or NULL, as in a table that ends before them.
     *
     * Opens the lane for an endpoint all of whose send-side requests are done: sets lane->post, what
     * it needs of lane->provider, and *poll. 0: not now, as something is to be done on the cq.
     * [data path]
     */
    int (*lane_open)(struct rdmux_provider_ep *ep, struct rdmux_lane *lane,
                     rdmux_lane_poll_fn *poll);
    /* Closes it. posted: writes since lane_open, of which the oldest `done` are done. Those under
     * way, from lane->tail on by next, have records now and are reported as if they had been given
     * to post. [data path] */
    void (*lane_close)(struct rdmux_provider_ep *ep, struct rdmux_lane *lane, uint64_t posted,
                       uint64_t done);
    /* What the lane's post gets of a remote that is open. */
    void (*lane_target)(const struct rdmux_provider_remote *remote, struct rdmux_lane_target *out);
};

/* Bytes of a table of the first header: what was appended may be missing. */
#define RDMUX_PROVIDER_OPS_SIZE_LEAST offsetof(struct rdmux_provider_ops, plain)

/* ---------------------------------------------------------------------- peers that are not rdmux */

/*
 * "rdma://HOST:PORT": a connection to a program that knows nothing of rdmux, made by the fabric's
 * own connection manager. There is no control channel, nothing is negotiated or proved, and of the
 * operations there are those that the device has.
 */

enum { RDMUX_PLAIN_KEY_SIZE = 12 }; /* bytes of struct rdmux_plain_key as a description */

/* Where a connection goes, or comes from: the local device, as probe names it. */
struct rdmux_plain_place {
    char provider[RDMUX_NAME_MAX];
    char device[RDMUX_NAME_MAX];
    uint32_t port;
    uint32_t spare;
};

/* What a connector wishes of the way. */
struct rdmux_plain_wish {
    const struct sockaddr *peer;
    const struct sockaddr *local; /* NULL: any */
    uint32_t timeout_ms;
    uint32_t dscp; /* the value itself */
    uint32_t ecn;  /* the two bits themselves */
    uint32_t spare;
};

/* A connection that is about to be made: the connector's, once the way is known, or one that has
 * come to a listener. The provider makes it and embeds it as the first member of its own. */
struct rdmux_plain_call {
    const struct rdmux_plain_ops *ops;
    struct rdmux_fabric *fabric;
    struct rdmux_plain_place place;
    char local_address[RDMUX_ADDRESS_MAX];
    char peer_address[RDMUX_ADDRESS_MAX];
    /* For the peer; set by the core before ep_connect, valid until that is over. */
    const void *private_data;
    uint32_t private_length;
    /* The peer's: of a request from the beginning, of a reply when ep_connect is over. The fabric
     * may have filled it up with zeros. */
    uint32_t peer_private_length;
    uint8_t peer_private_data[RDMUX_PRIVATE_DATA_MAX];
    uint32_t reject_reason; /* that of the peer, if it has told one */
    uint32_t spare;
    uint64_t lacks; /* RDMUX_CAP_* that the peer does not grant; known when ep_connect is over */
    void *core;     /* the core's own */
};

/* An address that is listened at; first member of the provider's own. */
struct rdmux_plain_listener {
    const struct rdmux_plain_ops *ops;
    struct rdmux_fabric *fabric;
    char address[RDMUX_ADDRESS_MAX]; /* numeric, with the port that was picked */
};

/*
 * What a provider has that makes such connections. Its endpoints have a table of their own, in
 * which mr_describe writes a struct rdmux_plain_key (the address in the first 8 bytes, the key in
 * the next 4, both in host order) and remote_open reads one. ep_open takes the call over, whatever
 * it returns; ep_connect gets NULL and 0 from the beginning.
 * Operations on a listener, and call_take, are made one at a time.
 */
struct rdmux_plain_ops {
    uint32_t size; /* sizeof(struct rdmux_plain_ops) */
    /* Bytes of private data that a request, a reply and a rejection have room for. */
    uint32_t request_private_max;
    uint32_t reply_private_max;
    uint32_t reject_private_max;
    uint64_t lacks; /* RDMUX_CAP_* that a path has otherwise, but not here */
    const struct rdmux_provider_ops *endpoints;

    /* Finds the way to a peer. It may lead over a device of another provider of the same plug-in;
     * then the call has that one's ops. RDMUX_NO_PATH: over none that it knows; RDMUX_TIMED_OUT: the
     * peer's address does not answer. The worker. [may sleep] */
    enum rdmux_status (*dial)(struct rdmux_fabric *fabric, const struct rdmux_plain_wish *wish,
                              struct rdmux_plain_call **out);
    /* Listens at an address, for all devices of the plug-in. Any thread. [may sleep] */
    enum rdmux_status (*listen)(struct rdmux_fabric *fabric, const struct sockaddr *address,
                                uint32_t backlog, struct rdmux_plain_listener **out);
    void (*unlisten)(struct rdmux_plain_listener *listener);
    /* Readable when there is something for next. */
    int (*listener_fd)(struct rdmux_plain_listener *listener);
    /* The next thing that a listener has: a new call, or one that next gave and that has gone since
     * (then *gone is true; call_drop it). RDMUX_AGAIN: nothing now. */
    enum rdmux_status (*next)(struct rdmux_plain_listener *listener, struct rdmux_plain_call **out,
                              int *gone);
    /* Takes a call away from its listener, which may be gone from now on. */
    enum rdmux_status (*call_take)(struct rdmux_plain_call *call);
    /* Ends a call that no endpoint took over; a request is rejected, with reason (0: none) and
     * private data. Any thread, for one that is its listener's as call_take. */
    void (*call_drop)(struct rdmux_plain_call *call, uint32_t reason, const void *private_data,
                      size_t length);
    /* The endpoint's requests are done: tells the peer that this is the end. When the peer has
     * agreed, rdmux_provider_failed() says RDMUX_PEER_GONE. */
    void (*hang_up)(struct rdmux_provider_ep *ep);
};

/* What a plug-in file exports, by the name RDMUX_PLUGIN_SYMBOL: a function that returns its
 * providers. The core checks abi first and looks at nothing else if it differs. Called once per
 * fabric that loads the file; the file stays loaded. */
struct rdmux_plugin {
    uint32_t abi; /* RDMUX_PROVIDER_ABI */
    uint32_t count;
    const struct rdmux_provider_ops *const *providers;
};
#define RDMUX_PLUGIN_SYMBOL "rdmux_plugin"
typedef const struct rdmux_plugin *(*rdmux_plugin_fn)(void);

/* For operations that a fabric lacks. They return RDMUX_UNSUPPORTED (AGAIN for async_event, -1 for
 * domain_fd) or do nothing. */
RDMUX_API enum rdmux_status rdmux_unsupported_async_event(struct rdmux_provider_domain *domain,
                                                          struct rdmux_provider_event *out);
RDMUX_API int rdmux_unsupported_domain_fd(struct rdmux_provider_domain *domain);
RDMUX_API enum rdmux_status rdmux_unsupported_inspect(
    struct rdmux_fabric *fabric,
    void (*report)(void *user, const struct rdmux_provider_finding *finding), void *user);
RDMUX_API enum rdmux_status rdmux_unsupported_ep_join(struct rdmux_provider_ep *ep, int socket,
                                                      uint32_t index);
RDMUX_API enum rdmux_status rdmux_unsupported_ep_control(struct rdmux_provider_ep *ep,
                                                         const void *frame, size_t size);
RDMUX_API enum rdmux_status rdmux_unsupported_ep_ping(struct rdmux_provider_ep *ep);
RDMUX_API void rdmux_unsupported_doorbell(struct rdmux_provider_ep *ep);

/* Software SRQs: the core keeps the receives, rdmux_provider_take_receive() gives them out; these
 * do the little that is left (srq_post_recv wakes the endpoints that wait for a receive by calling
 * their post_recv with NULL, 0). */
RDMUX_API enum rdmux_status rdmux_software_srq_open(struct rdmux_provider_srq *srq, uint32_t depth,
                                                    uint32_t max_sge);
RDMUX_API void rdmux_software_srq_close(struct rdmux_provider_srq *srq);
RDMUX_API enum rdmux_status rdmux_software_srq_post_recv(struct rdmux_provider_srq *srq,
                                                         struct rdmux_request *requests,
                                                         size_t count);

/* ------------------------------------------------------------- what software providers share */

/*
 * For providers without a device: most of what they need, so that they are left with moving bytes.
 * Where the target's CPU carries requests out, a region has nothing but its key, and a domain has
 * nothing at all: mr_register and what goes with it, remote_open and domain_open may be these, with
 * the sizes of these structs or of ones that begin with them.
 */
struct rdmux_software_remote {
    struct rdmux_provider_remote base;
    uint8_t key[RDMUX_TARGET_KEY_SIZE]; /* as rdmux_target_enter() at the peer takes it */
};

/* A cq on file descriptors: cq_open makes an epoll set, which is what fd returns. The provider puts
 * its level-triggered descriptors into it, and asks it in poll; so there is nothing to arm. */
struct rdmux_software_cq {
    struct rdmux_provider_cq base;
    int epoll;
    uint32_t spare;
};

RDMUX_API enum rdmux_status rdmux_software_domain_open(struct rdmux_provider_domain *domain,
                                                       const struct rdmux_local_path *path);
RDMUX_API void rdmux_software_domain_close(struct rdmux_provider_domain *domain);
RDMUX_API enum rdmux_status rdmux_software_mr_register(struct rdmux_provider_mr *mr,
                                                       const struct rdmux_provider_mr_attr *attr);
RDMUX_API void rdmux_software_mr_deregister(struct rdmux_provider_mr *mr);
RDMUX_API enum rdmux_status rdmux_software_mr_describe(struct rdmux_provider_mr *mr,
                                                       struct rdmux_provider_ep *ep, uint8_t *out,
                                                       size_t *size);
RDMUX_API enum rdmux_status rdmux_software_mr_invalidate(struct rdmux_provider_mr *mr);
RDMUX_API enum rdmux_status rdmux_software_remote_open(struct rdmux_provider_remote *remote,
                                                       const uint8_t *description, size_t size);
RDMUX_API void rdmux_software_remote_close(struct rdmux_provider_remote *remote);
RDMUX_API enum rdmux_status rdmux_software_cq_open(struct rdmux_provider_cq *cq, uint32_t depth);
RDMUX_API void rdmux_software_cq_close(struct rdmux_provider_cq *cq);
RDMUX_API enum rdmux_status rdmux_software_arm(struct rdmux_provider_cq *cq);
RDMUX_API int rdmux_software_fd(struct rdmux_provider_cq *cq);

/* For paths within one host. rdmux_software_here() sets a path's reason, text, hint and reach bytes;
 * rdmux_software_reach is then the reach operation: the same running kernel and network namespace
 * (in which abstract sockets have their names). */
RDMUX_API void rdmux_software_here(struct rdmux_local_path *path);
RDMUX_API enum rdmux_reason rdmux_software_reach(const uint8_t *ours, size_t ours_length,
                                                 const uint8_t *theirs, size_t theirs_length,
                                                 char *text);

/* Copies length bytes out of, or into, a request's list, from the list's byte offset on. What would
 * lie beyond the list's end is left out. [data path] */
RDMUX_API void rdmux_software_gather(const struct rdmux_request *request, uint64_t offset,
                                     void *out, uint64_t length);
RDMUX_API void rdmux_software_scatter(const struct rdmux_request *request, uint64_t offset,
                                      const void *bytes, uint64_t length);

/* ------------------------------------------------------------------------- services of the core */

#define RDMUX_PRINTF(at, first) __attribute__((format(printf, at, first)))

/* Sets the text of the failure that the running operation is about to return. Never on the data
 * path's good case. */
RDMUX_API void rdmux_provider_error(const char *format, ...) RDMUX_PRINTF(1, 2);
/* One line for the fabric's log. */
RDMUX_API void rdmux_provider_log(struct rdmux_fabric *fabric, enum rdmux_log_level level,
                                  const char *format, ...) RDMUX_PRINTF(3, 4);
/* Zeroed memory by the fabric's allocator, or NULL; aligned to 64 bytes. */
RDMUX_API void *rdmux_provider_allocate(struct rdmux_fabric *fabric, size_t size);
RDMUX_API void rdmux_provider_release(struct rdmux_fabric *fabric, void *memory);
/* Unguessable bytes. */
RDMUX_API RDMUX_MUST_CHECK enum rdmux_status rdmux_provider_random(struct rdmux_fabric *fabric,
                                                                   void *out, size_t size);
/* Monotonic nanoseconds by the fabric's clock. */
RDMUX_API uint64_t rdmux_provider_now_ns(struct rdmux_fabric *fabric);
/* 0: the application wants no thread of the library's that may block; what blocks is done inside the
 * call that needs it. */
RDMUX_API int rdmux_provider_may_start_threads(const struct rdmux_fabric *fabric);
/* The first bytes that a socket dialled by the connector to the peer's listener must say, so that
 * it arrives at the peer's ep_join of this endpoint with this index. */
RDMUX_API void rdmux_provider_join(struct rdmux_provider_ep *ep, uint32_t index,
                                   uint8_t out[RDMUX_JOIN_SIZE]);
/* An unguessable name both sides of this path share, to meet by other means (an abstract
 * socket). */
RDMUX_API void rdmux_provider_secret(struct rdmux_provider_ep *ep, uint8_t out[RDMUX_SECRET_SIZE]);
/* With shared_socket: a frame of the control channel arrived; size bytes, whole. The core copies
 * it. */
RDMUX_API void rdmux_provider_control_received(struct rdmux_provider_ep *ep, const void *frame,
                                               size_t size);
/* The address and the descriptor of a region, for providers that map or copy: NULL and -1 for one
 * that may not be. */
RDMUX_API int rdmux_provider_mr_fd(const struct rdmux_provider_mr *mr);

/*
 * The target side of software providers: bounds, rights and revocation of the regions, once for
 * all. A region's key goes to the peer within mr_describe's bytes; the peer's requests carry it.
 * Between enter and leave the region is neither revoked nor unmapped; do what must be done there
 * and leave: bounded work, no waiting. One enter at a time per cq.
 */
RDMUX_API void rdmux_target_key(struct rdmux_provider_mr *mr, uint8_t out[RDMUX_TARGET_KEY_SIZE]);
/* access: RDMUX_ACCESS_REMOTE_* needed. RDMUX_DENIED: unknown, revoked, without the right.
 * RDMUX_OUT_OF_RANGE. [data path] */
RDMUX_API enum rdmux_status rdmux_target_enter(struct rdmux_provider_ep *ep,
                                               const uint8_t key[RDMUX_TARGET_KEY_SIZE],
                                               uint64_t offset, uint64_t length, uint32_t access,
                                               void **addr);
RDMUX_API void rdmux_target_leave(struct rdmux_provider_ep *ep);
/* Carries out an atomic by the CPU, with system scope. op: RDMUX_OP_FETCH_ADD or
 * RDMUX_OP_COMPARE_SWAP. RDMUX_INVALID: not aligned. [data path] */
RDMUX_API enum rdmux_status rdmux_target_atomic(struct rdmux_provider_ep *ep,
                                                const uint8_t key[RDMUX_TARGET_KEY_SIZE],
                                                uint32_t op, uint64_t offset, uint64_t operand,
                                                uint64_t expected, uint64_t *old);

#ifdef __cplusplus
}
static_assert(sizeof(struct rdmux_request) == 128, "a request record is two cache lines");
#else
_Static_assert(sizeof(struct rdmux_request) == 128, "a request record is two cache lines");
#endif

#endif
