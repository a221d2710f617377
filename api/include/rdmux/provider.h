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
struct rdmux_fast_path;        /* provider_fast_path.h */
struct rdmux_fast_path_target; /* provider_fast_path.h */
struct rdmux_rdmacm_ops;       /* provider_rdmacm.h */

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
    /* Every local buffer needs a registration: sge.mr is never NULL then, but in sends and
     * writes of at most the path's max_inline bytes (none, if that is 0), which the provider
     * puts into the request itself. The core registers what the application did not: mr_register
     * is called without a region (base.mr NULL), for memory that is never exported. It also
     * copies lists of more pieces than the path's max_sge; without this flag the application may
     * not ask for such lists. */
    RDMUX_PROVIDER_LOCAL_KEYS = 1 << 2,
    /* Its SRQs match messages with receives by themselves: srq_post_recv gives them each receive,
     * which is theirs until rdmux_provider_received() by the endpoint that it went to, or
     * srq_close. Such an SRQ serves endpoints of one device only; the core sees to that. */
    RDMUX_PROVIDER_DEVICE_SRQ = 1 << 4,
    /* Its fabric never gives a silent peer up by itself: ep_ping is called with each heartbeat,
     * however busy the endpoint is. */
    RDMUX_PROVIDER_PING_BUSY = 1 << 5,
    RDMUX_PROVIDER_LAST_RESORT = 1 << 3, /* ranked behind every provider without this flag */
    /* The device may still read memory for a peer's read after mr_invalidate has returned. After
     * each mr_invalidate the core posts an empty PLACED write to every importer's endpoint, at any
     * time and beside other requests: it is done when no answer that the device began before it is
     * under way to the peer. */
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
    /* With RDMUX_PROVIDER_LOCAL_KEYS: ep_open sets 1 if the peer's device writes the data of a read
     * into our memory and needs a right on the region for it. The pieces of a read then have
     * RDMUX_ACCESS_READ_SINK, or are the core's own registrations (mr.mr NULL) with that right. The
     * peer cannot reach regions without it. */
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

/* Receives that rdmux_provider_take_receive() could still give this endpoint; with an SRQ those
 * that are reserved for no endpoint. [data path] */
RDMUX_API uint32_t rdmux_provider_receives(struct rdmux_provider_ep *ep);

/*
 * Shared receives that a peer is promised: as long as they are reserved for the endpoint no other
 * endpoint, of whatever provider, can take them. rdmux_provider_take_receive() uses the endpoint's
 * own reservation first. Returns how many of count were reserved; 0: there is none, and post_recv
 * is called when there is. Without an SRQ nothing needs to be reserved: 0. [data path]
 */
RDMUX_API uint32_t rdmux_provider_reserve(struct rdmux_provider_ep *ep, uint32_t count);
/* Gives count reserved receives back, for whoever waits. [data path] */
RDMUX_API void rdmux_provider_unreserve(struct rdmux_provider_ep *ep, uint32_t count);
/* 1 while an endpoint of the SRQ waits for a receive: an endpoint with unused reserved receives
 * returns them (rdmux_provider_unreserve()). post_recv is called with NULL and 0 when this becomes
 * so for an endpoint of another domain. [data path] */
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
 * The same for several at once. rdmux_provider_next_receives() gives the records, adjacent ones,
 * that rdmux_provider_take_receive() would give one after the other from now on, and returns how
 * many; 0: the provider takes the receives one by one. An SRQ always returns 0. The
 * provider fills in the first few by rdmux_provider_fill_receive(), and then tells how many by
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
 * RDMUX_LENGTH, RDMUX_PROTOCOL, RDMUX_IO … text is copied. RDMUX_FLUSHED: the path ended
 * without a cause, as a refusal of the peer may have been lost. The core then asks the peer; the
 * endpoint ends with that cause, or with RDMUX_PEER_GONE. The provider leaves the endpoint's
 * requests to the core until ep_quiesce. */
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
    /* Of an endpoint of rdmux_rdmacm_ops.endpoints, else NULL. */
    struct rdmux_rdmacm_call *call;
    /* Where sockets to the peer are to come from, of the family of peer_address:
     * rdmux_ep_attr.local as an address, port 0. NULL: from anywhere. */
    const struct sockaddr *local_address;
    uint32_t local_address_length;
    uint32_t spare1;
};

/* Requests of the peer that this side has carried out. Informative; 0 where a provider does not
 * count. */
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

/*
 * rdmux_cq_poll() while the fast path is open; cq is not NULL. Enters the cq by
 * rdmux_fast_path_enter() and leaves it by rdmux_fast_path_leave(). Returns completions of the fast
 * path's writes that succeeded, in order. Anything else it keeps for the provider's ordinary poll,
 * which rdmux_fast_path_poll() comes to. [data path]
 */
typedef size_t (*rdmux_fast_path_poll_fn)(struct rdmux_cq *cq, struct rdmux_wc *wc, size_t max);

/* ------------------------------------------------------------------------------------ the table */

/*
 * What a provider promises the core. Every operation but those of the fast path is set; one that
 * the fabric lacks points at its rdmux_unsupported_* function, so nobody tests for NULL, and the
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

    /* Lists the local paths, up to max; *count says how many there are. A machine without a
     * path returns one entry with a reason (no device, no driver), not a failure. Any thread.
     * [may sleep] */
    enum rdmux_status (*probe)(struct rdmux_fabric *fabric, struct rdmux_local_path *out,
                               size_t max, size_t *count);

    /* Can a path with the reach bytes `ours` talk to a peer's path with `theirs`?
     * RDMUX_REASON_NONE = yes; else why not, and a text of at most RDMUX_TEXT_MAX bytes. A pure
     * function; theirs is untrusted input. Any thread. */
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
    /* Reports what is wrong or suboptimal on this machine. The core does not call it: `rdmux
     * doctor` reads the system's files, which takes no library of the fabric and no right to its
     * devices. [may sleep] */
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
    /* Makes the descriptor readable at the next completion or event. RDMUX_AGAIN: one is there
     * already; the core polls, which may take a part of them, and arms again. The provider must not
     * lose an event between the two. */
    enum rdmux_status (*arm)(struct rdmux_provider_cq *cq);
    /* A descriptor for epoll, the same for the cq's whole life; level-triggered: readable until
     * poll has taken the completion or event. It may be readable without arm. */
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
    /* Kills the path and drains: when it returns RDMUX_OK, neither the device nor the peer accesses
     * a request's buffer, and no late message is delivered. Requests not done stay so; the core
     * completes them. Receives already complete are reported before. Fills *counts.
     * RDMUX_IN_PROGRESS: a copy is still under way; called again. Never waits. */
    enum rdmux_status (*ep_quiesce)(struct rdmux_provider_ep *ep,
                                    struct rdmux_provider_counts *counts);
    /* Ends the endpoint. ep_quiesce comes before, at least once; where a copy outlasts the time
     * that an end may take, its last answer was RDMUX_IN_PROGRESS. Never waits for the network.
     * A shared_socket is left open and, if at a frame's border, usable. */
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

    /* Makes a peer's region usable on ep from the bytes of its mr_describe, untrusted input.
     * length and access are set. */
    enum rdmux_status (*remote_open)(struct rdmux_provider_remote *remote,
                                     const uint8_t *description, size_t size);
    /* No request uses it any more. */
    void (*remote_close)(struct rdmux_provider_remote *remote);

    /* Appended; a shorter table has none. */
    const struct rdmux_rdmacm_ops *rdmacm; /* NULL: no connections to programs that are not rdmux */

    /* The fast path, see provider_fast_path.h: all of them, or NULL, as in a table that ends before
     * them.
     *
     * Opens the fast path for an endpoint all of whose send-side requests are done: sets
     * fast->post, what it needs of fast->provider, and *poll. 0: not now, as something is to be
     * done on the cq. [data path]
     */
    int (*fast_path_open)(struct rdmux_provider_ep *ep, struct rdmux_fast_path *fast,
                          rdmux_fast_path_poll_fn *poll);
    /* Closes it. posted: writes since fast_path_open, of which the oldest `done` are done. Those
     * under way, from fast->tail on by next, have records now and are reported as if they had
     * been given to post. [data path] */
    void (*fast_path_close)(struct rdmux_provider_ep *ep, struct rdmux_fast_path *fast,
                            uint64_t posted, uint64_t done);
    /* What the fast path's post gets of a remote that is open. */
    void (*fast_path_target)(const struct rdmux_provider_remote *remote,
                             struct rdmux_fast_path_target *out);
};

/* Bytes of a table of the first header: what was appended may be missing. */
#define RDMUX_PROVIDER_OPS_SIZE_LEAST offsetof(struct rdmux_provider_ops, rdmacm)

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
/* 0: the application wants no thread of the library's that may block; what blocks is done inside
 * the call that needs it. */
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

#ifdef __cplusplus
}
static_assert(sizeof(struct rdmux_request) == 128, "a request record is two cache lines");
#else
_Static_assert(sizeof(struct rdmux_request) == 128, "a request record is two cache lines");
#endif

#include <rdmux/provider_fast_path.h>
#include <rdmux/provider_rdmacm.h>
#include <rdmux/provider_software.h>

#endif
