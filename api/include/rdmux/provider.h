/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * provider.h - the header that the author of a provider includes. docs/PROVIDER-GUIDE.md explains
 * how its parts fit together.
 *
 * A provider moves bytes over one kind of fabric. It is a const table of operations, struct
 * rdmux_provider_ops. The core does everything that is the same on all fabrics: objects, argument
 * and token checks, the request record, completion order, fences, negotiation, the control channel,
 * liveness. The provider lists the local paths, opens and connects endpoints, starts the requests
 * that the core gives it, and reports when each request is done.
 *
 * A first provider. Copy tests/plugins/skeleton, which compiles, loads and refuses everything. An
 * installed rdmux has it in share/doc/rdmux/providers. Where the target's CPU carries requests out,
 * nine operations make a working provider. The other members of the table point at functions that
 * exist already: rdmux_software_* (provider_software.h) and rdmux_unsupported_*.
 * tests/plugins/toy/toy.c is such a provider, complete, in one file. For one connection the core
 * calls the nine in this order:
 *
 *   operation     called                                              by
 *   probe         when a fabric opens, and for each offer to a peer   any thread
 *   ep_open       on each side, for each attempt to use a path        the cq's owner
 *   ep_describe   next; its bytes travel to the peer                  the cq's owner
 *   ep_connect    with the peer's bytes, then with NULL and 0 until   the cq's owner
 *                 the result is not RDMUX_IN_PROGRESS
 *   post          first for the proof of the path, a write with       the cq's owner
 *                 RDMUX_PLACED; then for the program's requests
 *   post_recv     when the program has posted receives                the cq's owner
 *   poll          whenever the program polls or waits; by the         the cq's owner
 *                 service thread when the program stays away
 *   ep_quiesce    at the end, until it is not RDMUX_IN_PROGRESS       the cq's owner
 *   ep_close      last; also after an attempt that was given up       the cq's owner
 *
 * Threads. One thread at a time owns a cq and all that is attached to it (endpoints, remotes,
 * SRQs): a thread of the application, inside a call, or the library's service thread. The core
 * calls operations on these objects from the owner only, one at a time. Any thread may call the
 * operations on a domain and its regions, concurrently with all others; each operation says what
 * the provider must guard. The core holds no lock during an operation that a function of this
 * header would take. A function of this header that takes an endpoint is called by the owner of its
 * cq, within an operation, unless its comment says otherwise.
 *
 * Units. Lengths, sizes and offsets are bytes; depths and counts are entries; a time has its unit
 * in its name.
 *
 * Memory. The core allocates every object zeroed, in the size that the table names. It sets the
 * base, calls open, and frees the object after close. An open that fails has released what it took;
 * no close follows. Arguments are valid for the call only, unless the operation says that the
 * provider may keep them.
 *
 * Marks. [data path]: the operation neither blocks, allocates nor logs. [may sleep]: the operation
 * is work of set-up. The owner of the cq calls it, within a call of the application or a slice of
 * the service thread, or the thread that registers memory does. A provider with
 * RDMUX_PROVIDER_QUICK promises that such an operation never takes longer than a few system calls.
 * Without the flag everything else on that cq waits for it meanwhile.
 *
 * Errors. Operations return enum rdmux_status. Before an operation returns a failure it calls
 * rdmux_provider_error() with a text that names the object, the cause and the remedy. The text
 * becomes the caller's error text, or the candidate's line in the explanation.
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
    RDMUX_REACH_MAX = 128,       /* bytes that tell which peers can reach a path */
    RDMUX_SECRET_SIZE = 16,      /* bytes of a connection's secret */
    RDMUX_JOIN_SIZE = 64,        /* bytes that a joining socket sends first */
    RDMUX_TARGET_KEY_SIZE = 16,  /* bytes that name a region to the software target side */
    RDMUX_SGE_MAX = 16,          /* most entries of a scatter/gather list */
};

/* rdmux_provider_ops.flags */
enum {
    /* No operation marked [may sleep] takes longer than a few system calls. */
    RDMUX_PROVIDER_QUICK = 1 << 0,
    /* The provider honours RDMUX_FENCE itself; else the core holds fenced requests back. */
    RDMUX_PROVIDER_NATIVE_FENCE = 1 << 1,
    /* Every local buffer needs a registration: sge.mr is never NULL then. Sends and writes of at
     * most the path's max_inline bytes are the exception (none, if max_inline is 0): the provider
     * puts their bytes into the request itself. The core registers buffers that the application
     * did not: it calls mr_register without a region (base.mr NULL), for memory that is never
     * exported. It also copies lists of more pieces than the path's max_sge; without this flag the
     * application may not ask for such lists. */
    RDMUX_PROVIDER_LOCAL_KEYS = 1 << 2,
    /* The device matches messages with the receives of an SRQ. srq_post_recv gives it each
     * receive. The receive belongs to the provider until rdmux_provider_received() by the endpoint
     * that took it, or until srq_close. The core gives a device no more receives than the depth of
     * srq_open, which is its share of the application's SRQ. */
    RDMUX_PROVIDER_DEVICE_SRQ = 1 << 4,
    /* The fabric never gives up a silent peer by itself: the core calls ep_ping with each
     * heartbeat, however busy the endpoint is. */
    RDMUX_PROVIDER_PING_BUSY = 1 << 5,
    RDMUX_PROVIDER_LAST_RESORT = 1 << 3, /* ranks behind every provider without this flag */
    /* The device may still read memory for a peer's read after mr_invalidate has returned. After
     * each mr_invalidate the core posts an empty PLACED write to every importer's endpoint, at any
     * time and beside other requests. The provider calls that write done when no answer that the
     * device began before it is under way to the peer. */
    RDMUX_PROVIDER_READS_LINGER = 1 << 6,
    /* With RDMUX_PROVIDER_DEVICE_SRQ: the provider promises the peer no receive while
     * rdmux_provider_is_paused(), so that messages wait at the peer. Without this flag endpoints of
     * such a provider cannot be paused. */
    RDMUX_PROVIDER_PAUSES = 1 << 7,
    /* The provider has paths only where a path filter names it, of the fabric, the environment or
     * the endpoint. Else probe is not called, and one line with the reason FILTERED stands for its
     * paths. For providers that would load a large library, or whose devices rdmux reaches by
     * itself. */
    RDMUX_PROVIDER_ON_REQUEST = 1 << 8,
};

/* -------------------------------------------------------------------------------------- objects */

/* Each provider embeds these structs as first member of its own ones. The core sets the fields, and
 * the provider only reads them, unless a comment says otherwise. */

struct rdmux_provider_ops;

/* One opened device of one fabric. */
struct rdmux_provider_domain {
    const struct rdmux_provider_ops *ops;
    struct rdmux_fabric *fabric;
};

/* The part of a completion queue of the application that is on one domain. */
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
    /* 1: the endpoint is on the list of those that the core looks at with the next poll.
     * rdmux_provider_ready() sets it. Not 0: the core will look anyway. */
    uint32_t ready;
    uint32_t resume; /* 1: the core may post a refused request again; rdmux_provider_resume() */
    uint64_t system_calls; /* calls for this endpoint; the provider counts them here */
    /* With RDMUX_PROVIDER_LOCAL_KEYS: bytes of a send or write that need no key. ep_open may set it
     * where probe did not know the value for the path's max_inline. */
    uint32_t max_inline;
    /* With RDMUX_PROVIDER_LOCAL_KEYS: ep_open sets 1 if the peer's device writes the data of a read
     * into this side's memory and needs a right on the region for it. The pieces of a read then
     * have RDMUX_ACCESS_READ_SINK, or are the core's own registrations (mr.mr NULL) with that
     * right. The peer cannot reach regions without it. */
    uint32_t needs_sinks;
};

/* A peer's region as one endpoint sees it. */
struct rdmux_provider_remote {
    struct rdmux_provider_ep *ep;
    struct rdmux_remote *remote;
    uint64_t length;
    /* RDMUX_ACCESS_REMOTE_*; remote_open may clear bits that the path cannot grant. */
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

/* The core's record of one request of the send side, or of one receive. The record and its list
 * stay where they are until the provider calls the record done; the provider may keep pointers to
 * them until then. 128 bytes. */
struct rdmux_request {
    uint32_t op; /* RDMUX_OP_* */
    /* RDMUX_INLINE (of a request that the core held back, the list points at a copy),
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

/* Makes the core look at the endpoint with the next poll: a request is done, or post may be called
 * again. [data path] */
RDMUX_API void rdmux_provider_ready(struct rdmux_provider_ep *ep);

/* Reports that a send-side request is done with this status. Its buffers belong to the application
 * again, and the record to the core. Requests may be done in any order; the core restores posting
 * order. [data path] */
static inline void rdmux_provider_done(struct rdmux_provider_ep *ep, struct rdmux_request *request,
                                       uint32_t status)
{
    request->status = status;
    request->done = 1;
    if (!ep->ready) {
        rdmux_provider_ready(ep);
    }
}

/* Reports that post, which returned RDMUX_AGAIN, may work now. [data path] */
static inline void rdmux_provider_resume(struct rdmux_provider_ep *ep)
{
    ep->resume = 1;
    if (!ep->ready) {
        rdmux_provider_ready(ep);
    }
}

/* Takes the oldest receive of the endpoint, or of its SRQ, that no message has met yet. Returns
 * NULL if there is none; the core then calls post_recv or srq_post_recv when there is one. The
 * record belongs to the provider until rdmux_provider_received(). For providers that match messages
 * with receives in software. [data path] */
RDMUX_API struct rdmux_request *rdmux_provider_take_receive(struct rdmux_provider_ep *ep);

/* Returns the number of receives that rdmux_provider_take_receive() could still give this endpoint;
 * with an SRQ the number of those that are reserved for no endpoint. [data path] */
RDMUX_API uint32_t rdmux_provider_receives(struct rdmux_provider_ep *ep);

/*
 * Reserves shared receives that the provider promises to its peer. No other endpoint, of whatever
 * provider, can take them as long as they are reserved for this endpoint.
 * rdmux_provider_take_receive() uses the endpoint's own reservation first. Returns how many of
 * count are reserved. 0: there is none, and the core calls post_recv when there is one. Without an
 * SRQ nothing needs to be reserved, and the result is 0. [data path]
 */
RDMUX_API uint32_t rdmux_provider_reserve(struct rdmux_provider_ep *ep, uint32_t count);
/* Gives count reserved receives back, for endpoints that wait for one. [data path] */
RDMUX_API void rdmux_provider_unreserve(struct rdmux_provider_ep *ep, uint32_t count);
/* Returns 1 while an endpoint of the SRQ waits for a receive, or a device of the SRQ holds none. An
 * endpoint with unused reserved receives then returns them (rdmux_provider_unreserve()). When that
 * begins, the core calls post_recv with NULL and 0 on endpoints of other domains that have reserved
 * some. [data path] */
RDMUX_API int rdmux_provider_receives_awaited(const struct rdmux_provider_ep *ep);

/* Returns 1 while the program has paused the endpoint (rdmux_ep_pause()). Until it continues,
 * rdmux_provider_take_receive() gives only reserved receives, and rdmux_provider_reserve() none. A
 * provider that promises receives to its peer promises no more and takes back what the peer does
 * not use. The core calls post_recv with NULL and 0 when the result changes. [data path] */
RDMUX_API int rdmux_provider_is_paused(const struct rdmux_provider_ep *ep);

/* Returns 1 if the endpoint takes its receives from an SRQ. */
RDMUX_API int rdmux_provider_has_srq(const struct rdmux_provider_ep *ep);

/* Reports that a receive is done; sets its opcode, length, imm, wc_flags and status. The provider
 * reports receives in arrival order. length: bytes of the message, also where it is longer than the
 * buffer (status RDMUX_LENGTH, followed by rdmux_provider_failed()). [data path] */
RDMUX_API void rdmux_provider_received(struct rdmux_provider_ep *ep, struct rdmux_request *request,
                                       uint32_t status, uint32_t opcode, uint64_t length,
                                       uint32_t wc_flags, uint32_t imm);

/*
 * The same for several receives at once. rdmux_provider_next_receives() sets *first to adjacent
 * records, those that rdmux_provider_take_receive() would give one after the other from now on, and
 * returns how many there are. 0: the provider takes the receives one by one; with an SRQ the result
 * is always 0. The provider fills the first few records by rdmux_provider_fill_receive(), and then
 * reports their number by rdmux_provider_filled_receives(), before any other call. [data path]
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

/*
 * Reports that the path has failed by itself, and why. The core ends the endpoint, or moves it to
 * another path: it will call ep_quiesce and ep_close, not within this call. Until ep_quiesce the
 * provider leaves the endpoint's requests to the core.
 * status  RDMUX_PEER_GONE, RDMUX_DENIED, RDMUX_LENGTH, RDMUX_PROTOCOL, RDMUX_IO … RDMUX_FLUSHED:
 *         the path ended without a cause, as a refusal of the peer may have been lost. The core
 *         then asks the peer; the endpoint ends with the peer's cause, or with RDMUX_PEER_GONE.
 * text    Is copied; NULL: none.
 */
RDMUX_API void rdmux_provider_failed(struct rdmux_provider_ep *ep, enum rdmux_status status,
                                     const char *text);

/* ---------------------------------------------------------------------------------------- paths */

/* One local path of a provider. A field that probe leaves zero means "none" or "no limit". */
struct rdmux_local_path {
    char device[RDMUX_NAME_MAX];
    char address[RDMUX_ADDRESS_MAX];
    uint32_t reason;   /* RDMUX_REASON_USABLE, or why not; text and hint then have the words */
    uint32_t software; /* 1: an RDMA device emulated in software */
    char text[RDMUX_TEXT_MAX];
    char hint[RDMUX_TEXT_MAX];
    uint64_t bandwidth;   /* bytes per second */
    uint32_t latency_ns;  /* half round trip of a small message */
    uint32_t mtu;         /* bytes */
    uint64_t native;      /* RDMUX_CAP_* */
    uint64_t emulated;    /* RDMUX_CAP_* */
    uint64_t max_message; /* bytes of the longest send, or part of a write or read; 0 = no limit */
    uint32_t max_sge;     /* pieces of each list, shared receives' too; 0 = RDMUX_SGE_MAX */
    uint32_t max_inline;  /* bytes; 0 = no limit */
    uint32_t security;    /* enum rdmux_security */
    uint32_t reach_length;
    /* Sent with the offer; only the provider's reach operation reads it. */
    uint8_t reach[RDMUX_REACH_MAX];
    uint32_t port; /* of the device, from 1; 0: it has none */
    uint32_t spare0;
    uint64_t spare[7];
};

/* Options of ep_open. The struct is valid until ep_close. */
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
    uint32_t has_failover; /* 1: if the path fails, the endpoint moves to another one */
    const struct rdmux_local_path *path;
    struct rdmux_provider_srq *srq; /* NULL, or the endpoint's SRQ on this domain */
    /* Address of the peer's control channel; the connector may join there. NULL for an adopted
     * socket that is not IP. */
    const struct sockaddr *peer_address;
    uint32_t peer_address_length;
    /* An adopted socket, which carries the data beside the control channel, see ep_control. -1:
     * none. */
    int shared_socket;
    /* The call of an endpoint of rdmux_rdmacm_ops.endpoints, else NULL. */
    struct rdmux_rdmacm_call *call;
    /* Local address of sockets to the peer, of the family of peer_address: rdmux_ep_attr.local as
     * an address, port 0. NULL: any. */
    const struct sockaddr *local_address;
    uint32_t local_address_length;
    uint32_t spare1;
};

/* Numbers of the peer's requests that this side has carried out. They are informative; 0 if the
 * provider does not count. */
struct rdmux_provider_counts {
    uint64_t received; /* sends and write_imms delivered into receives */
    uint64_t executed; /* atomics carried out */
};

/* An event of a device, filled in by async_event. */
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

/* What a provider's device, or the kernel, counts for an endpoint, see ep_figures. */
struct rdmux_provider_figures {
    uint32_t counted; /* RDMUX_COUNTED_*: the members that are filled in */
    uint32_t spare0;
    uint64_t retransmissions; /* since the path was connected */
    uint64_t ecn_marks;       /* since the path was connected */
    uint64_t credits;         /* now */
    uint64_t spare[4];
};

struct rdmux_provider_mr_attr {
    void *addr;
    uint64_t length;
    uint32_t access;   /* RDMUX_ACCESS_* */
    uint32_t ordering; /* RDMUX_ORDERING_* */
    /* A memfd that holds the bytes from its offset 0 (rdmux_mr_alloc()); -1 for memory of the
     * caller. It stays the core's. */
    int memory_fd;
    /* 1 + the descriptor of a dma-buf that has the bytes from dmabuf_offset on, a multiple of the
     * page size; 0: none. addr is where this process has mapped them. Its own accesses there work;
     * the kernel pins no pages by that address, for a device or for a copy by another process. The
     * descriptor stays the core's, and open as long as the registration lives. */
    uint32_t dmabuf_fd;
    uint64_t dmabuf_offset;
};

/* rdmux_provider_ops.post flags */
enum {
    /* Another post follows at once: the doorbell may wait for it, or for the doorbell operation. */
    RDMUX_POST_MORE = 1 << 0,
};

/*
 * The function that rdmux_cq_poll() calls while the fast path is open; cq is not NULL. It enters
 * the cq by rdmux_fast_path_enter() and leaves it by rdmux_fast_path_leave(). It returns
 * completions of the fast path's writes that succeeded, in order. Anything else it keeps for the
 * provider's ordinary poll, and calls rdmux_fast_path_poll(), which leads there. [data path]
 */
typedef size_t (*rdmux_fast_path_poll_fn)(struct rdmux_cq *cq, struct rdmux_wc *wc, size_t max);

/* ------------------------------------------------------------------------------------ the table */

/*
 * The contract between a provider and the core. Every operation is set, except those of the fast
 * path, ep_leave, ep_enter, ep_figures and rdmacm. An operation that the fabric lacks points at its rdmux_unsupported_* function.
 * So the core never tests for NULL, and the registry refuses a table with a hole.
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

    /* Lists the local paths, up to max; sets *count to the number of all there are. On a machine
     * without a path it returns one entry with a reason (no device, no driver), not a failure. Any
     * thread. [may sleep] */
    enum rdmux_status (*probe)(struct rdmux_fabric *fabric, struct rdmux_local_path *out,
                               size_t max, size_t *count);

    /* Can a path with the reach bytes `ours` talk to a peer's path with `theirs`? Returns
     * RDMUX_REASON_NONE if it can; else why not, with a text of at most RDMUX_TEXT_MAX bytes. A
     * pure function; theirs is untrusted input. Any thread. */
    enum rdmux_reason (*reach)(const uint8_t *ours, size_t ours_length, const uint8_t *theirs,
                               size_t theirs_length, char *text);

    /* Opens the device of a path that probe has listed. Any thread. [may sleep] */
    enum rdmux_status (*domain_open)(struct rdmux_provider_domain *domain,
                                     const struct rdmux_local_path *path);
    /* Closes the device. Its regions, cqs and endpoints are closed already. [may sleep] */
    void (*domain_close)(struct rdmux_provider_domain *domain);
    /* Takes the oldest event of the device. RDMUX_AGAIN: there is none. The descriptor that
     * domain_fd returns is readable while there is an event; -1: the device never has any. The
     * service thread calls async_event. */
    enum rdmux_status (*async_event)(struct rdmux_provider_domain *domain,
                                     struct rdmux_provider_event *out);
    int (*domain_fd)(struct rdmux_provider_domain *domain);
    /* Reports settings of this machine that prevent use or cost speed. The core does not call it:
     * `rdmux doctor` reads the system's files, which needs no library of the fabric and no right to
     * its devices. [may sleep] */
    enum rdmux_status (*inspect)(struct rdmux_fabric *fabric,
                                 void (*report)(void *user,
                                                const struct rdmux_provider_finding *finding),
                                 void *user);

    /* Registers memory with the device. Any thread. [may sleep] */
    enum rdmux_status (*mr_register)(struct rdmux_provider_mr *mr,
                                     const struct rdmux_provider_mr_attr *attr);
    /* Ends local access, and remote access where mr_invalidate was not called. Any thread. [may
     * sleep] */
    void (*mr_deregister)(struct rdmux_provider_mr *mr);
    /* Writes the bytes by which the peer of ep can reach the region; the peer's remote_open gets
     * them. The owner of ep's cq calls it at each import. *size: the room in bytes, then the bytes
     * used. */
    enum rdmux_status (*mr_describe)(struct rdmux_provider_mr *mr, struct rdmux_provider_ep *ep,
                                     uint8_t *out, size_t *size);
    /* Ends remote access. When it returns, no later access by a description given out so far
     * changes or reads a byte. mr_describe may follow, and then gives another key. Any thread. [may
     * sleep] */
    enum rdmux_status (*mr_invalidate)(struct rdmux_provider_mr *mr);

    /* Opens the part of a cq that is on this domain. depth: entries. The cq's owner calls it; for an
     * endpoint that is about to leave another cq (ep_leave), the owner of that cq. [may sleep] */
    enum rdmux_status (*cq_open)(struct rdmux_provider_cq *cq, uint32_t depth);
    void (*cq_close)(struct rdmux_provider_cq *cq);
    /* Makes progress on everything attached to the cq: requests done, receives done, target-side
     * work, faults. Handles about budget requests at most. Returns how many it handled; 0: there is
     * nothing to do now. Also rings doorbells that were held back. [data path] */
    size_t (*poll)(struct rdmux_provider_cq *cq, size_t budget);
    /* Makes the descriptor readable at the next completion or event. RDMUX_AGAIN: there is one
     * already; the core polls, which may take only some of them, and arms again. The provider must
     * not lose an event between poll and arm. */
    enum rdmux_status (*arm)(struct rdmux_provider_cq *cq);
    /* Returns a descriptor for epoll, the same for the cq's whole life. It is level-triggered:
     * readable until poll has taken the completion or event. It may be readable without arm. */
    int (*fd)(struct rdmux_provider_cq *cq);

    /* Builds an unconnected endpoint. attr is valid until ep_close. [may sleep] */
    enum rdmux_status (*ep_open)(struct rdmux_provider_ep *ep,
                                 const struct rdmux_provider_ep_attr *attr);
    /* Writes the connection data that the peer's ep_connect gets. *size: the room in bytes
     * (RDMUX_DESCRIPTION_MAX), then the bytes used. */
    enum rdmux_status (*ep_describe)(struct rdmux_provider_ep *ep, uint8_t *out, size_t *size);
    /* Connects the endpoint. The first call gives the peer's connection data, untrusted input.
     * After RDMUX_IN_PROGRESS the core calls it with NULL and 0 whenever the cq made progress,
     * until RDMUX_OK or a failure. The connector's first call comes before the acceptor's. [may
     * sleep] */
    enum rdmux_status (*ep_connect)(struct rdmux_provider_ep *ep, const uint8_t *peer, size_t size);
    /* Takes a socket of the peer that has joined this endpoint at the local listener; the core has
     * read its first RDMUX_JOIN_SIZE bytes. index is the number that the peer gave to
     * rdmux_provider_join(). On RDMUX_OK the socket belongs to the provider, else the core closes
     * it. The call may come before ep_connect. */
    enum rdmux_status (*ep_join)(struct rdmux_provider_ep *ep, int socket, uint32_t index);
    /* With shared_socket: sends a frame of the control channel between the data. RDMUX_AGAIN: there
     * is no room; the core polls, then calls it again. */
    enum rdmux_status (*ep_control)(struct rdmux_provider_ep *ep, const void *frame, size_t size);
    /* Sends something that shows that the path is alive, or that fails. The core calls it if
     * nothing was posted for a quarter of the liveness time and heartbeats arrive on the control
     * channel. The path's own keepalive may serve instead: if the kernel or device notices a dead
     * idle path by itself, return RDMUX_UNSUPPORTED, and an idle endpoint costs the core less. */
    enum rdmux_status (*ep_ping)(struct rdmux_provider_ep *ep);
    /* Ends the path. When it returns RDMUX_OK, neither the device nor the peer accesses a request's
     * buffer, and no late message is delivered. Receives that are complete are reported before.
     * Requests that are not done stay so; the core completes them. Fills *counts.
     * RDMUX_IN_PROGRESS: a copy is still under way; the core calls it again. Never waits. */
    enum rdmux_status (*ep_quiesce)(struct rdmux_provider_ep *ep,
                                    struct rdmux_provider_counts *counts);
    /* Ends the endpoint. The core has called ep_quiesce at least once. Its last result was
     * RDMUX_IN_PROGRESS only if a copy lasts longer than an end may take. Never waits for the
     * network. A shared_socket stays open, and usable if it is at a border between frames. */
    void (*ep_close)(struct rdmux_provider_ep *ep);

    /* Starts requests in order. Sets *posted to the number of requests taken; the status is that of
     * requests[*posted]. RDMUX_AGAIN: not now (queue full, no credit). The core then holds this
     * request and all behind it back, and posts them again after rdmux_provider_resume(). Any other
     * failure ends the endpoint with that status. The provider reports each request that it took by
     * rdmux_provider_done() exactly once, possibly within this call, and also with
     * RDMUX_UNSIGNALED. [data path] */
    enum rdmux_status (*post)(struct rdmux_provider_ep *ep, struct rdmux_request *requests,
                              size_t count, uint32_t flags, size_t *posted);
    /* Rings the doorbell that RDMUX_POST_MORE held back. [data path] */
    void (*doorbell)(struct rdmux_provider_ep *ep);
    /* Announces new receives, as adjacent records, which stay until rdmux_provider_received(). A
     * provider that matches in software takes them by rdmux_provider_take_receive(), and uses this
     * call to tell the peer. Any other provider queues them with the device. NULL and 0: there is
     * no new record, but there may be a receive where there was none: one of an SRQ, or the path
     * has just become the endpoint's, or the program has paused it or lets it continue. [data
     * path] */
    enum rdmux_status (*post_recv)(struct rdmux_provider_ep *ep, struct rdmux_request *requests,
                                   size_t count);

    /* Opens the part of an SRQ that is on this domain. depth: receives. [may sleep] */
    enum rdmux_status (*srq_open)(struct rdmux_provider_srq *srq, uint32_t depth, uint32_t max_sge);
    void (*srq_close)(struct rdmux_provider_srq *srq);
    /* Announces new receives of an SRQ, as post_recv does. [data path] */
    enum rdmux_status (*srq_post_recv)(struct rdmux_provider_srq *srq,
                                       struct rdmux_request *requests, size_t count);

    /* Makes a peer's region usable on its endpoint. description: the bytes of the peer's
     * mr_describe, untrusted input. length and access of the remote are set. */
    enum rdmux_status (*remote_open)(struct rdmux_provider_remote *remote,
                                     const uint8_t *description, size_t size);
    /* Ends the import. No request uses it any more. */
    void (*remote_close)(struct rdmux_provider_remote *remote);

    /* The members from here on were appended; a table that ends before one of them lacks it. */
    const struct rdmux_rdmacm_ops *rdmacm; /* NULL: no connections to programs that are not rdmux */

    /* The fast path, see provider_fast_path.h. All three members are set or NULL; a table may also
     * end before them.
     *
     * Opens the fast path for an endpoint whose send-side requests are all done. Sets fast->post,
     * *poll, and the words of fast->provider that these two need. Returns 1. Returns 0 if it is not
     * possible now, as there is other work on the cq. [data path]
     */
    int (*fast_path_open)(struct rdmux_provider_ep *ep, struct rdmux_fast_path *fast,
                          rdmux_fast_path_poll_fn *poll);
    /* Closes the fast path. posted: the number of writes since fast_path_open, of which the oldest
     * `done` are done. The others are under way: the entries from fast->tail on, linked by next,
     * have records now. The provider reports them as if post had taken them. [data path] */
    void (*fast_path_close)(struct rdmux_provider_ep *ep, struct rdmux_fast_path *fast,
                            uint64_t posted, uint64_t done);
    /* Fills in what the fast path's post gets about a remote that is open. */
    void (*fast_path_target)(const struct rdmux_provider_remote *remote,
                             struct rdmux_fast_path_target *out);

    /*
     * Bring a connected endpoint to another cq on the same domain, with its requests under way.
     * Both members are set or NULL; a table may also end before them. Then, and always with
     * RDMUX_PROVIDER_LOCAL_KEYS, rdmux_ep_move() is for endpoints with failover alone, whose path is
     * opened anew. The endpoint was connected, has no SRQ, and may have failed since.
     *
     * ep_leave: the owner of ep->cq calls it. From then on the endpoint uses nothing of that cq,
     * which may end, and reports nothing. What the peer does meanwhile is found by ep_enter. On a
     * failure nothing has changed.
     */
    enum rdmux_status (*ep_leave)(struct rdmux_provider_ep *ep);
    /* The owner of the new cq calls it, with ep->cq set to that cq; polls of that cq follow, which
     * also report what was done meanwhile. On a failure the endpoint ends: ep_quiesce and ep_close
     * follow, and no other operation. */
    enum rdmux_status (*ep_enter)(struct rdmux_provider_ep *ep);

    /* Fills in what is counted for a connected endpoint outside of the core; *out is zeroed. It may
     * take a system call for each socket. NULL, or a table that ends before it: nothing is. */
    void (*ep_figures)(struct rdmux_provider_ep *ep, struct rdmux_provider_figures *out);
};

/* Bytes of the table in the first version of this header. The members behind it may be missing. */
#define RDMUX_PROVIDER_OPS_SIZE_LEAST offsetof(struct rdmux_provider_ops, rdmacm)

/* A plug-in file exports one function by the name RDMUX_PLUGIN_SYMBOL, which returns this struct:
 * its providers. The struct stays the plug-in's and is never freed. The core checks abi first and
 * looks at nothing else if it differs. It calls the function once per fabric that loads the file;
 * the file stays loaded. A plug-in that is linked into a program needs no such function: the
 * program names the struct in rdmux_fabric_attr.builtin. */
struct rdmux_plugin {
    uint32_t abi; /* RDMUX_PROVIDER_ABI */
    uint32_t count;
    const struct rdmux_provider_ops *const *providers;
};
#define RDMUX_PLUGIN_SYMBOL "rdmux_plugin"
typedef const struct rdmux_plugin *(*rdmux_plugin_fn)(void);

/* Functions for operations that a fabric lacks. They return RDMUX_UNSUPPORTED (async_event:
 * RDMUX_AGAIN, domain_fd: -1) or do nothing. */
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

/* Sets the text of the failure that the running operation is about to return. Any thread. An
 * operation that succeeds does not call it. */
RDMUX_API void rdmux_provider_error(const char *format, ...) RDMUX_PRINTF(1, 2);
/* Writes one line to the fabric's log, without a newline. Any thread; not on the data path. */
RDMUX_API void rdmux_provider_log(struct rdmux_fabric *fabric, enum rdmux_log_level level,
                                  const char *format, ...) RDMUX_PRINTF(3, 4);
/* Returns size zeroed bytes of the fabric's allocator, aligned to 64 bytes, or NULL.
 * rdmux_provider_release() frees them; NULL is allowed there. Any thread; not on the data path. */
RDMUX_API void *rdmux_provider_allocate(struct rdmux_fabric *fabric, size_t size);
RDMUX_API void rdmux_provider_release(struct rdmux_fabric *fabric, void *memory);
/* Fills out with size unguessable bytes. RDMUX_IO: there are none. Any thread. */
RDMUX_API RDMUX_MUST_CHECK enum rdmux_status rdmux_provider_random(struct rdmux_fabric *fabric,
                                                                   void *out, size_t size);
/* Returns monotonic nanoseconds by the fabric's clock. Any thread. */
RDMUX_API uint64_t rdmux_provider_now_ns(struct rdmux_fabric *fabric);
/* Returns 0 if the application allows the library no thread that may block. The provider then does
 * blocking work inside the call that needs it. Any thread. */
RDMUX_API int rdmux_provider_may_start_threads(const struct rdmux_fabric *fabric);
/* Writes the bytes that a socket must send first when the connector dials the peer's listener. By
 * them the socket arrives at the peer's ep_join, of this endpoint, with this index. From ep_open to
 * ep_close. */
RDMUX_API void rdmux_provider_join(struct rdmux_provider_ep *ep, uint32_t index,
                                   uint8_t out[RDMUX_JOIN_SIZE]);
/* Writes unguessable bytes that both sides of this path share, for a meeting by other means (the
 * name of an abstract socket). From ep_open to ep_close. */
RDMUX_API void rdmux_provider_secret(struct rdmux_provider_ep *ep, uint8_t out[RDMUX_SECRET_SIZE]);
/* With shared_socket: hands the core a frame of the control channel that has arrived, whole, size
 * bytes. The core copies it. */
RDMUX_API void rdmux_provider_control_received(struct rdmux_provider_ep *ep, const void *frame,
                                               size_t size);
/* Returns the descriptor of a region's memory, for providers that map it; -1 for a region that a
 * peer may not map. The descriptor stays the core's. */
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
