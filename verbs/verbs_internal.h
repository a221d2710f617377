/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Common part of the providers on libibverbs. ib and roce use all of it; iwarp has its own way to
 * connect and its own message format on the wire. docs/VERBS.md has the design.
 *
 * Threads. A cq with its endpoints, remotes and SRQs belongs to one thread at a time. Any thread
 * may use a domain and its regions. The reader of a device's asynchronous events touches only the
 * _Atomic fields of a cq, an endpoint and a queue, and the cq's eventfd.
 */
#ifndef RDMUX_VERBS_INTERNAL_H
#define RDMUX_VERBS_INTERNAL_H

#include "verbs/verbs_connection.h"
#include "verbs/verbs_description.h"
#include "verbs/verbs_ring.h"

#include <rdmux/provider.h>

#include <infiniband/verbs.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define VERBS_LIKELY(x) __builtin_expect(!!(x), 1)
#define VERBS_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define VERBS_COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

enum {
    VERBS_CHAIN_MAX = 32,    /* work requests per doorbell, at most */
    VERBS_POLL_MAX = 32,     /* completions per ibv_poll_cq() */
    VERBS_UNITS_MAX = 32,    /* device completion queues of one cq */
    VERBS_SIDE_OWN = 16,     /* first kind of a transport's own side messages */
    VERBS_QPN_BUCKETS = 256, /* buckets of the queue pair number table */
    VERBS_FLUSH_SIZE = 8,    /* bytes of the flush word */
    VERBS_ATOMIC_SIZE = 8,
};

struct verbs_ep;
struct verbs_cq;
struct verbs_queue;
struct verbs_srq;
struct verbs_domain;
struct rdma_event_channel;

/* One port of an opened device. */
struct verbs_port {
    struct rdmux_fabric *fabric;
    struct ibv_context *context;
    const char *device;
    uint8_t number;
    struct ibv_device_attr device_attr;
    struct ibv_port_attr attr;
};

/* Route of a queue pair's connection, as ibv_modify_qp(3) takes it. */
struct verbs_route {
    struct ibv_ah_attr address;
    uint16_t pkey_index;
};

/* Fabric-specific part of a provider. Every field is set, unless its comment says NULL. */
struct verbs_transport {
    const char *name;        /* the provider's name */
    const char *fabric_name; /* the fabric's common name */
    uint8_t fabric;          /* VERBS_FABRIC_* */
    uint32_t latency_ns;     /* half a round trip of a small message; ranks the path */
    /* bytes of the transport's header before each message, see verbs_headers */
    uint32_t header_size;
    uint32_t request_slots; /* most work requests of one request other than a read */
    uint32_t read_slots;    /* work requests of a read, for each list that the device takes */
    int sink_access;        /* IBV_ACCESS_* of a read's local target besides local write */
    bool lacks_side;        /* endpoints have no side channel */
    uint32_t side_own;      /* most in-flight side messages of the transport's own, per end */
    uint32_t flush_size;    /* bytes that a flush reads; 0: VERBS_FLUSH_SIZE */
    /* peers lend no flush word. A flush reads the request's own remote, and only work requests of
     * the program are posted. */
    bool lacks_word;

    /* Transports of endpoints that rdma_cm connects (verbs_rdmacm.c) leave probe_port, way_to_self,
     * locate and route NULL. */

    /* Status of an endpoint whose device refused a request, not an access, of the peer
     * (IBV_EVENT_QP_REQ_ERR). */
    enum rdmux_status request_refused;

    /* Completes the path of an active port of this fabric: address and reach, or the reason why the
     * port cannot be used. [may sleep] */
    void (*probe_port)(const struct verbs_port *port, struct rdmux_local_path *out);

    /* Gives the route of an active port to itself, for the device self-test (verbs_self_test.h).
     * False: there is none now. NULL: ports of this fabric are not tested. [may sleep] */
    bool (*way_to_self)(const struct verbs_port *port, struct verbs_route *out);

    /* Reports where the endpoint can be reached now, and fills in ep->gid_index and ep->pkey_index.
     * [may sleep] */
    enum rdmux_status (*locate)(struct verbs_ep *ep, struct verbs_whereabouts *out);
    /* Gives the route from ep->ours to ep->theirs. [may sleep] */
    enum rdmux_status (*route)(struct verbs_ep *ep, struct verbs_route *out);
    /* Checks after a change of the device's addresses whether the endpoint's route still holds.
     * False: *text has the reason. */
    bool (*holds)(struct verbs_ep *ep, char *text, size_t size);

    /* Adds a request to ep's chain. RDMUX_AGAIN: there is no room, or the request waits for earlier
     * ones; rdmux_verbs_resume() is called when the wait is over. Any other failure ends the
     * endpoint. [data path] */
    enum rdmux_status (*start)(struct verbs_ep *ep, struct rdmux_request *request);
    /* Handles the completion, good or failed, of a queue's work request. [data path] */
    void (*sent)(struct verbs_queue *queue, const struct ibv_wc *wc);
    /* Handles a message in a receive of the endpoint. [data path] */
    void (*received)(struct verbs_ep *ep, struct rdmux_request *request, const struct ibv_wc *wc);
    /* Counts receives that the device has accepted for the endpoint. NULL: not counted. [data
     * path] */
    void (*receives_posted)(struct verbs_ep *ep, size_t count);
    /* Handles a failed receive. request: NULL for a receive of the side channel. */
    void (*receive_failed)(struct verbs_ep *ep, struct rdmux_request *request,
                           const struct ibv_wc *wc);
    /* Handles the device's report that the queue pair has failed. */
    void (*broke)(struct verbs_queue *queue);
    /* Tells the peer what still can be told after the device refused an access or a request of the
     * peer; runs before the endpoint fails. NULL: nothing to tell. */
    void (*refuses)(struct verbs_queue *queue);
    /* Handles a side message of the transport's own: VERBS_SIDE_SIZE bytes, the first one at least
     * VERBS_SIDE_OWN. */
    void (*side_message)(struct verbs_ep *ep, const uint8_t *message);
};

/* --------------------------------------------------------------------------------------- device */

/* Library memory of a domain: the flush word, which peers read behind their writes, and the sink,
 * the local target of such reads. */
struct verbs_page {
    _Alignas(64) uint64_t flush_word;
    _Alignas(64) uint64_t sink;
};

struct verbs_domain {
    struct rdmux_provider_domain base;
    const struct verbs_transport *transport;
    struct ibv_context *context;
    struct ibv_pd *pd;
    char device[RDMUX_NAME_MAX];
    struct ibv_device_attr attr;
    bool keeps_address; /* the device registers regions at their own address only */
    bool needs_sinks;   /* the target of a read needs the transport's sink_access */
    bool lacks_fence;   /* IBV_SEND_FENCE is not used: fenced requests are held back in software */
    /* the device sends bytes of unsignaled work requests from their buffer, and may send them again
     * after later completions; so each one is signaled */
    bool lends_silent;
    bool lacks_inline;  /* inline requests are not used: their bytes do not arrive */
    bool lacks_nothing; /* zero-length writes and reads are not used behind a read */
    bool lacks_calls;   /* ibv_wr_*() are not used */
    /* a read of several packets may complete as done although it is not; a small read behind it
     * tells */
    bool doubts_reads;
    struct verbs_page *page;
    struct ibv_mr *flush_mr;
    struct ibv_mr *sink_mr;
    _Atomic uint64_t ports_down; /* bit n: port n */
    _Atomic bool is_gone;        /* the device failed or was removed */
    pthread_mutex_t lock;        /* guards cqs, and the qp_context of queue pairs */
    struct verbs_cq *cqs;        /* by domain_next */
};

struct verbs_mr {
    struct rdmux_provider_mr base;
    void *addr;
    uint64_t length;
    uint32_t access; /* RDMUX_ACCESS_* */
    /* IBV_ACCESS_* of the remote key; 0: the device grants no right to the peer */
    int remote_access;
    uint64_t iova; /* the region's address for the remote key */
    struct ibv_mr *local;
    struct ibv_mr *remote;
};

struct verbs_remote {
    struct rdmux_provider_remote base;
    struct verbs_region region;
};

/* ---------------------------------------------------------------------------------- completions */

/* Completion queue of the device. A cq has several, as device queues do not grow. */
struct verbs_unit {
    struct ibv_cq *cq;
    uint32_t capacity;
    uint32_t used;    /* most entries that the attached queues can need */
    uint32_t awaited; /* 1: an event was requested and not taken yet */
    uint32_t unacked; /* events taken but not acknowledged */
    bool is_broken;   /* reported by the device; takes no more queue pairs */
};

/* Bits of verbs_cq.attention and verbs_queue.events; the reader of asynchronous events sets
 * them. */
enum {
    VERBS_EVENT_FATAL = 1 << 0,   /* the queue pair or its completion queue failed */
    VERBS_EVENT_ACCESS = 1 << 1,  /* the device refused an access of the peer */
    VERBS_EVENT_REQUEST = 1 << 2, /* the device refused a request of the peer */
    VERBS_EVENT_ADDRESS = 1 << 3, /* of a cq: the device's addresses have changed */
    VERBS_EVENT_DEVICE = 1 << 4,  /* of a cq: the device is gone */
    VERBS_EVENT_QUEUE = 1 << 5,   /* of a cq: a queue of the cq has events */
};

/* Target of a wr_id: a queue or an SRQ. */
struct verbs_place {
    struct verbs_queue *queue; /* both NULL: free */
    struct verbs_srq *srq;
    uint32_t life;
    uint32_t next_free;
};

struct verbs_cq {
    struct rdmux_provider_cq base;
    struct verbs_unit units[VERBS_UNITS_MAX];
    uint32_t unit_count;
    uint32_t first_unit;  /* polled first; advances by one each time */
    uint32_t stash_count; /* completions found by arm */
    uint32_t stash_next;
    struct ibv_wc stash[VERBS_POLL_MAX];
    struct verbs_place *places;
    uint32_t place_count;
    uint32_t free_place; /* place_count: none */
    struct verbs_queue *by_qpn[VERBS_QPN_BUCKETS];
    /* Work in flight on the fast path when it was closed, see verbs_fast_path.c. */
    uint32_t fast_count;
    uint32_t fast_entry_count;
    struct rdmux_fast_path_entry *fast_entries;
    struct verbs_queue *fast_queue; /* NULL: destroyed */
    /* endpoints with work that no completion will report, by silent_next */
    struct verbs_ep *silent;
    uint32_t silent_polls; /* polls while silent is not empty */
    uint32_t idle_polls;   /* polls since the last completion */
    bool is_armed;         /* a unit may have an event to take */
    struct ibv_comp_channel *channel;
    struct rdma_event_channel *cm_channel; /* the connection manager's; NULL: not needed so far */
    uint32_t cm_connecting; /* connections being established; while not 0, each poll takes events */
    uint32_t cm_polls;
    int epoll;
    int event; /* eventfd: attention was set */
    _Atomic uint32_t attention;
    struct verbs_cq *domain_next;
};

/* ------------------------------------------------------------------------------------ endpoints */

/* Buffers for the transport's header of each receive: header_size bytes per slot, the first piece
 * of the receive's scatter/gather list. request->provider[0] is the buffer's address. */
struct verbs_headers {
    uint8_t *bytes; /* NULL: the transport has none */
    size_t size;
    struct ibv_mr *mr;
};

/* Queue pair with the accounting of its work. */
struct verbs_queue {
    struct verbs_ep *ep;
    struct verbs_cq *cq;
    struct verbs_unit *unit;
    struct ibv_qp *qp;       /* NULL: there is none */
    struct ibv_qp_ex *calls; /* the same queue pair for ibv_wr_*(); NULL: it takes lists only */
    uint64_t id;             /* in each wr_id */
    struct verbs_send_ring sent;
    struct verbs_receive_ring receives;
    struct verbs_headers headers;
    /* By slot: whether it holds a read. Only for devices that finish reads behind later work
     * requests; else NULL. */
    bool *is_read;
    struct ibv_send_wr *chain; /* work requests of the next doorbell */
    struct ibv_sge *pieces;
    uint32_t chain_count;
    uint32_t piece_count;
    uint32_t max_send_sge;
    uint32_t max_receive_sge;
    uint32_t max_inline;
    uint32_t reserved;    /* entries in the unit */
    bool chain_is_inline; /* the chain refers to bytes that the caller may change soon */
    _Atomic uint32_t events;
    struct verbs_queue *qpn_next;
};

enum verbs_ep_state {
    VERBS_EP_OPEN,
    VERBS_EP_CONNECTED,
    VERBS_EP_FAILED,   /* reported by rdmux_provider_failed() */
    VERBS_EP_DRAINING, /* quiesced: the device's outstanding work is counted down */
    VERBS_EP_QUIET,    /* the device holds nothing of the endpoint */
};

struct verbs_ep {
    struct rdmux_provider_ep base;
    const struct verbs_transport *transport; /* set before ep_open, or the domain's */
    const struct rdmux_provider_ep_attr *attr;
    enum verbs_ep_state state;
    bool is_blocked; /* post returned AGAIN */
    bool is_silent;  /* on cq->silent */
    /* failed without a cause from the device; the core completes the requests */
    bool is_unexplained;
    struct verbs_queue data;
    uint32_t max_read_sge;
    uint32_t flush_size;  /* bytes that a flush reads */
    uint32_t flushed_end; /* slot after the newest flush read */
    bool is_unflushed;    /* a write or send was posted after that */
    uint32_t reads_end;   /* slot after the newest read or atomic of the device */
    uint32_t fenced_end;  /* slot after the newest request that the device fences */
    /* One buffer per slot: bytes of inline requests that the device does not inline. */
    uint8_t *copies;
    uint32_t copy_size;
    struct ibv_mr *copies_mr;
    struct verbs_ep *silent_next;
    /* Receives that the device's queue has no room for, linked by provider[2]; posted as room
     * appears. */
    struct rdmux_request *held;
    struct rdmux_request *held_last;

    /* The side channel, see verbs_side.c. */
    struct verbs_queue side;
    struct ibv_mr *side_mr;
    uint8_t *side_messages;
    uint32_t side_receives;
    uint32_t side_sends;
    struct rdmux_request *atomics; /* emulated atomics, oldest first, linked by provider[0] */
    struct rdmux_request *atomics_last;
    struct rdmux_request *atomics_unsent; /* the first one not sent yet */
    uint32_t atomic_count;
    uint32_t atomics_sent; /* sent, not answered */
    uint32_t side_number;  /* number of the next request */

    struct verbs_connection ours;
    struct verbs_connection theirs;
    uint32_t gid_index[VERBS_ADDRESSES_MAX];
    uint16_t pkey_index[VERBS_PKEYS_MAX];
    uint8_t kind; /* kind of the address in use */
    uint8_t port;
    struct rdmux_provider_counts counts;
    uint64_t grace_until_ns; /* 0: not begun */
    /* while draining: time since which the device has given nothing back */
    uint64_t quiet_since_ns;
    uint32_t outstanding; /* outstanding work requests at that time */
};

struct verbs_srq {
    struct rdmux_provider_srq base;
    struct ibv_srq *srq;
    uint64_t id;                     /* in each wr_id */
    struct rdmux_request **requests; /* by slot */
    uint32_t *free_slots;
    struct verbs_headers headers;
    uint32_t free_count;
    uint32_t depth;
    uint32_t max_sge;
    uint32_t units; /* bit n: unit n of the cq has room for the SRQ's receives */
};

/* ---------------------------------------------------------------------------------- conversions */

static inline struct verbs_domain *verbs_domain_of(struct rdmux_provider_domain *domain)
{
    return (struct verbs_domain *)domain;
}
static inline struct verbs_cq *verbs_cq_of(struct rdmux_provider_cq *cq)
{
    return (struct verbs_cq *)cq;
}
static inline struct verbs_ep *verbs_ep_of(struct rdmux_provider_ep *ep)
{
    return (struct verbs_ep *)ep;
}
static inline struct verbs_mr *verbs_mr_of(struct rdmux_provider_mr *mr)
{
    return (struct verbs_mr *)mr;
}
static inline struct verbs_remote *verbs_remote_of(struct rdmux_provider_remote *remote)
{
    return (struct verbs_remote *)remote;
}
static inline struct verbs_srq *verbs_srq_of(struct rdmux_provider_srq *srq)
{
    return (struct verbs_srq *)srq;
}
static inline struct verbs_domain *verbs_domain_of_ep(const struct verbs_ep *ep)
{
    return verbs_domain_of(ep->base.cq->domain);
}
static inline struct rdmux_fabric *verbs_fabric_of_ep(const struct verbs_ep *ep)
{
    return ep->base.cq->domain->fabric;
}

/* --------------------------------------------------------------------- devices (verbs_device.c) */

/* Probes a transport: gives a path for each port of its fabric, or one path with the reason why
 * there is none. */
enum rdmux_status rdmux_verbs_probe(const struct verbs_transport *transport,
                                    struct rdmux_fabric *fabric, struct rdmux_local_path *out,
                                    size_t max, size_t *count);
/* Opens the named device. RDMUX_IO, RDMUX_NO_MEMORY …: the error text has the reason. */
enum rdmux_status rdmux_verbs_device_open(const char *device, struct ibv_context **out);
/* Returns the port of a path that probe gave. */
uint8_t rdmux_verbs_path_port(const struct rdmux_local_path *path);
/* Writes whereabouts into a path's reach bytes. */
void rdmux_verbs_path_set_reach(struct rdmux_local_path *path,
                                const struct verbs_whereabouts *where);
/* Marks a path as unusable. hint may be NULL. */
void rdmux_verbs_path_refuse(struct rdmux_local_path *path, enum rdmux_reason reason,
                             const char *hint, const char *format, ...) RDMUX_PRINTF(4, 5);
/* Returns the VERBS_FABRIC_* of a port from its device's transport and its link layer; 0: another
 * fabric. */
uint8_t rdmux_verbs_fabric_of(enum ibv_transport_type transport, uint8_t link_layer);
/* True for soft RoCE, an adapter in software. */
bool rdmux_verbs_is_rxe(const struct ibv_device_attr *attr);
/* Reads a small file of sysfs or /proc without its newline; "" if it cannot be read. */
void rdmux_verbs_read_text(const char *path, char *out, size_t size);

/* --------------------------------------------------------------------- domains (verbs_domain.c) */

enum rdmux_status rdmux_verbs_domain_open(const struct verbs_transport *transport,
                                          struct rdmux_provider_domain *base,
                                          const struct rdmux_local_path *path);
void rdmux_verbs_domain_close(struct rdmux_provider_domain *base);
enum rdmux_status rdmux_verbs_async_event(struct rdmux_provider_domain *base,
                                          struct rdmux_provider_event *out);
int rdmux_verbs_domain_fd(struct rdmux_provider_domain *base);
enum rdmux_status rdmux_verbs_inspect(
    const struct verbs_transport *transport, struct rdmux_fabric *fabric,
    void (*report)(void *user, const struct rdmux_provider_finding *finding), void *user);

/* --------------------------------------------------------------------- regions (verbs_memory.c) */

enum rdmux_status rdmux_verbs_mr_register(struct rdmux_provider_mr *base,
                                          const struct rdmux_provider_mr_attr *attr);
void rdmux_verbs_mr_deregister(struct rdmux_provider_mr *base);
enum rdmux_status rdmux_verbs_mr_describe(struct rdmux_provider_mr *base,
                                          struct rdmux_provider_ep *ep, uint8_t *out, size_t *size);
enum rdmux_status rdmux_verbs_mr_invalidate(struct rdmux_provider_mr *base);
enum rdmux_status rdmux_verbs_remote_open(struct rdmux_provider_remote *base,
                                          const uint8_t *description, size_t size);
void rdmux_verbs_remote_close(struct rdmux_provider_remote *remote);
/* Maps zeroed whole pages, so that registered pages hold nothing else. NULL: out of memory. */
void *rdmux_verbs_pages_map(size_t size);
void rdmux_verbs_pages_unmap(void *pages, size_t size);
/* Registers bytes with a domain; error texts tell of the limit on locked memory. what: the name in
 * texts, such as "region". copies: total number of times that the pages are locked. iova: the
 * address that users of the key give. */
enum rdmux_status rdmux_verbs_pin(struct verbs_domain *domain, const char *what, void *addr,
                                  uint64_t length, uint64_t iova, int access, unsigned copies,
                                  struct ibv_mr **out);

/* ------------------------------------------------------- completion queues (verbs_completion.c) */

enum rdmux_status rdmux_verbs_cq_open(struct rdmux_provider_cq *base, uint32_t depth);
void rdmux_verbs_cq_close(struct rdmux_provider_cq *base);
size_t rdmux_verbs_poll(struct rdmux_provider_cq *base, size_t budget);
enum rdmux_status rdmux_verbs_arm(struct rdmux_provider_cq *base);
int rdmux_verbs_fd(struct rdmux_provider_cq *base);
/* Finds or makes a unit with room for entries more and for all receives of srq, which may be NULL.
 * RDMUX_NO_MEMORY: there is none. [may sleep] */
enum rdmux_status rdmux_verbs_unit_reserve(struct verbs_cq *cq, uint32_t entries,
                                           struct verbs_srq *srq, struct verbs_unit **out);
/* Takes a place in the cq's table for a queue or an SRQ. *id: the part of their wr_ids that names
 * it. */
enum rdmux_status rdmux_verbs_place_take(struct verbs_cq *cq, struct verbs_queue *queue,
                                         struct verbs_srq *srq, uint64_t *id);
void rdmux_verbs_place_give(struct verbs_cq *cq, uint64_t id);
/* Processes available completions of all queues: all stashed ones, then others up to budget.
 * Returns their number. */
size_t rdmux_verbs_reap(struct verbs_cq *cq, size_t budget);
/* verbs_transport.broke, .sent and .receive_failed for fabrics whose devices finish work in
 * order. */
void rdmux_verbs_broke(struct verbs_queue *queue);
void rdmux_verbs_sent(struct verbs_queue *queue, const struct ibv_wc *wc);
void rdmux_verbs_receive_failed(struct verbs_ep *ep, struct rdmux_request *request,
                                const struct ibv_wc *wc);
/* Reports a request's completion to the core. Once the endpoint is draining or failed without a
 * cause, only successes: the core completes the rest. */
void rdmux_verbs_report(struct verbs_ep *ep, struct rdmux_request *request,
                        enum rdmux_status status);
/* Puts the endpoint on the cq's silent list if no completion is pending for its posted work; the cq
 * then posts a signaled successor. */
void rdmux_verbs_watch_silent(struct verbs_ep *ep);
/* Fails the endpoint because its path failed. Only the first call counts. */
void rdmux_verbs_fail(struct verbs_ep *ep, enum rdmux_status status, const char *format, ...)
    RDMUX_PRINTF(3, 4);
/* Resumes an endpoint whose post returned AGAIN: there may be room now. [data path] */
static inline void rdmux_verbs_resume(struct verbs_ep *ep)
{
    if (VERBS_UNLIKELY(ep->is_blocked)) {
        ep->is_blocked = false;
        rdmux_provider_resume(&ep->base);
    }
}

/* ---------------------------------------------------------- connection manager (verbs_cm.c) */

/* Events of a cq that has a channel. rdmux_verbs_cm_poll() looks for events in some polls only;
 * rdmux_verbs_cm_take() takes the available events, up to a limit. Both return the number of
 * events. */
size_t rdmux_verbs_cm_poll(struct verbs_cq *cq, size_t done);
size_t rdmux_verbs_cm_take(struct verbs_cq *cq);

/* Notes that a unit's device queue has failed. */
void rdmux_verbs_unit_failed(struct verbs_cq *cq, struct verbs_unit *unit);

/* --------------------------------------------------------------------- fast path
 * (verbs_fast_path.c) */

int rdmux_verbs_fast_path_open(struct rdmux_provider_ep *base, struct rdmux_fast_path *fast,
                               rdmux_fast_path_poll_fn *poll);
void rdmux_verbs_fast_path_close(struct rdmux_provider_ep *base, struct rdmux_fast_path *fast,
                                 uint64_t posted, uint64_t done);
void rdmux_verbs_fast_path_target(const struct rdmux_provider_remote *base,
                                  struct rdmux_fast_path_target *out);
/* Handles a completion whose wr_id names no queue: work that was in flight on the fast path when it
 * was closed. */
void rdmux_verbs_fast_path_completed(struct verbs_cq *cq, const struct ibv_wc *wc);

/* ----------------------------------------------------------------------- queues (verbs_queue.c) */

struct verbs_queue_wish {
    uint32_t send_depth; /* work requests; reduced to what the device takes, at least send_least */
    uint32_t send_least;
    uint32_t receive_depth; /* 0 with an SRQ */
    uint32_t max_send_sge;
    uint32_t max_receive_sge;
    uint32_t max_inline;   /* wanted; the device may grant less */
    uint32_t signal_every; /* see verbs_send_ring */
    struct verbs_srq *srq; /* or NULL */
};

/* Creates a queue pair in state RESET. [may sleep] */
enum rdmux_status rdmux_verbs_queue_open(struct verbs_queue *queue, struct verbs_ep *ep,
                                         const struct verbs_queue_wish *wish);
/* Moves the queue pair from RESET to INIT; receives may then be posted. [may sleep] */
enum rdmux_status rdmux_verbs_queue_init(struct verbs_queue *queue, const struct verbs_route *route);
/* Moves the queue pair from INIT to RTS. qpn, psn: the peer's; our_psn: the first PSN of this end.
 * [may sleep] */
enum rdmux_status rdmux_verbs_queue_connect(struct verbs_queue *queue,
                                            const struct verbs_route *route, uint32_t qpn,
                                            uint32_t psn, uint32_t our_psn);
/* Moves the queue pair to ERR: the device flushes what it holds. No further work may be posted. */
void rdmux_verbs_queue_kill(struct verbs_queue *queue);
/* Returns the number of work requests that the device has not given back. */
uint32_t rdmux_verbs_queue_outstanding(const struct verbs_queue *queue);
/* Detaches the queue pair, which must exist, from the queue. The caller destroys it and gives the
 * reserved entries back to the unit. Late completions of the queue pair are dropped. */
struct ibv_qp *rdmux_verbs_queue_release(struct verbs_queue *queue, uint32_t *reserved);
/* Destroys the queue pair; the device holds nothing afterwards. */
void rdmux_verbs_queue_destroy(struct verbs_queue *queue);
/* Frees the queue's memory; destroys the queue pair if that was not done. */
void rdmux_verbs_queue_close(struct verbs_queue *queue);
/* Adds a work request to the chain and returns it, zeroed except for wr_id, sg_list and flags. The
 * caller has checked for room. [data path] */
struct ibv_send_wr *rdmux_verbs_chain_add(struct verbs_queue *queue, struct rdmux_request *request,
                                          enum verbs_wish wish);
/* Posts the chain to the device. False: the device did not take it and the endpoint has failed, or
 * the endpoint is not connected. [data path] */
bool rdmux_verbs_chain_ring(struct verbs_queue *queue);
/* Fails the endpoint because the device did not take a work request. */
void rdmux_verbs_post_failed(struct verbs_ep *ep, int error);
/* Allocates headers for count receives, if the transport has headers. [may sleep] */
enum rdmux_status rdmux_verbs_headers_open(struct verbs_headers *headers,
                                           struct verbs_domain *domain, uint32_t count);
void rdmux_verbs_headers_close(struct verbs_headers *headers);
/* Puts the piece of the header, if the transport has one, in front of a receive's list; returns the
 * number of pieces. [data path] */
static inline uint32_t rdmux_verbs_header_piece(const struct verbs_headers *headers,
                                                uint32_t header_size, uint32_t index,
                                                struct rdmux_request *request, struct ibv_sge *out)
{
    if (VERBS_LIKELY(headers->bytes == NULL)) {
        return 0;
    }
    uintptr_t at = (uintptr_t)headers->bytes + (size_t)index * header_size;
    request->provider[0] = at;
    *out = (struct ibv_sge){ .addr = at, .length = header_size, .lkey = headers->mr->lkey };
    return 1;
}

/* ------------------------------------------------------------------------- posts (verbs_send.c) */

enum rdmux_status rdmux_verbs_post(struct rdmux_provider_ep *base, struct rdmux_request *requests,
                                   size_t count, uint32_t flags, size_t *posted);
void rdmux_verbs_doorbell(struct rdmux_provider_ep *base);
enum rdmux_status rdmux_verbs_post_recv(struct rdmux_provider_ep *base,
                                        struct rdmux_request *requests, size_t count);
/* Posts held receives while the device's receive queue has room. [data path] */
void rdmux_verbs_post_held(struct verbs_ep *ep);
/* verbs_transport.start and .received for fabrics that have every operation. */
enum rdmux_status rdmux_verbs_start(struct verbs_ep *ep, struct rdmux_request *request);
void rdmux_verbs_received(struct verbs_ep *ep, struct rdmux_request *request,
                          const struct ibv_wc *wc);
/* Chains a read of the peer's flush word behind all work on the chain. request: completes with the
 * read, or NULL. The caller has checked for room. */
void rdmux_verbs_chain_flush(struct verbs_ep *ep, struct rdmux_request *request,
                             enum verbs_wish wish);
/* Chains a signaled zero-length write (a flush read on devices that lack those). False: no room. */
bool rdmux_verbs_chain_nothing(struct verbs_ep *ep);
/* True if a request of that many work requests must wait, for room or for earlier requests;
 * rdmux_verbs_resume() is called when the wait is over. [data path] */
bool rdmux_verbs_must_wait(struct verbs_ep *ep, const struct rdmux_request *request, uint32_t slots);
/* Adds a request's bytes to a work request of the data queue that has `before` bytes already;
 * inline if the device takes that many. [data path] */
void rdmux_verbs_add_bytes(struct verbs_ep *ep, struct ibv_send_wr *work,
                           const struct rdmux_request *request, uint32_t before);
/* Refuses a post with RDMUX_AGAIN; the core holds the request until rdmux_verbs_resume(). [data
 * path] */
static inline enum rdmux_status rdmux_verbs_again(struct verbs_ep *ep)
{
    ep->is_blocked = true;
    return RDMUX_AGAIN;
}
/* Fills a device's list from a request's. Returns the number of pieces. */
uint32_t rdmux_verbs_pieces(const struct rdmux_provider_sge *sges, uint32_t count,
                            struct ibv_sge *out);

/* ------------------------------------------------------------------ side channel (verbs_side.c) */

enum rdmux_status rdmux_verbs_side_open(struct verbs_ep *ep);
/* Posts the receives; the queue pair is in INIT. */
enum rdmux_status rdmux_verbs_side_start(struct verbs_ep *ep);
void rdmux_verbs_side_close(struct verbs_ep *ep);
/* Queues an atomic that the target's library carries out. The caller has checked that the request
 * need not wait. [data path] */
enum rdmux_status rdmux_verbs_side_atomic(struct verbs_ep *ep, struct rdmux_request *request);
/* Sends the queued atomics that may go now. [data path] */
void rdmux_verbs_side_push(struct verbs_ep *ep);
/* Sends a message of the transport's own: VERBS_SIDE_SIZE bytes, the first one at least
 * VERBS_SIDE_OWN. The transport keeps at most verbs_transport.side_own of them in flight. [data
 * path] */
void rdmux_verbs_side_send(struct verbs_ep *ep, const uint8_t *message);
/* True if a message of the transport's own may be sent now. Room returns when an earlier message
 * completes. */
bool rdmux_verbs_side_has_room(const struct verbs_ep *ep);
/* verbs_transport.side_message for fabrics without own messages: the peer breaks the protocol. */
void rdmux_verbs_no_side_message(struct verbs_ep *ep, const uint8_t *message);
/* Handles a side message in the receive of a slot. [data path] */
void rdmux_verbs_side_received(struct verbs_ep *ep, uint32_t slot, const struct ibv_wc *wc);

/* --------------------------------------------------------------------------- SRQs (verbs_srq.c) */

enum rdmux_status rdmux_verbs_srq_open(struct rdmux_provider_srq *base, uint32_t depth,
                                       uint32_t max_sge);
void rdmux_verbs_srq_close(struct rdmux_provider_srq *base);
enum rdmux_status rdmux_verbs_srq_post_recv(struct rdmux_provider_srq *base,
                                            struct rdmux_request *requests, size_t count);
/* Frees the slot of a receive that completed or failed and returns its request. NULL: the slot has
 * none. */
struct rdmux_request *rdmux_verbs_srq_retire(struct verbs_srq *srq, uint32_t slot);

/* ----------------------------------------------------------------- endpoints (verbs_endpoint.c) */

enum rdmux_status rdmux_verbs_ep_open(struct rdmux_provider_ep *base,
                                      const struct rdmux_provider_ep_attr *attr);
enum rdmux_status rdmux_verbs_ep_describe(struct rdmux_provider_ep *base, uint8_t *out,
                                          size_t *size);
enum rdmux_status rdmux_verbs_ep_connect(struct rdmux_provider_ep *base, const uint8_t *peer,
                                         size_t size);
/* Fills in the port's part of our connection data. RDMUX_IO: the port is down. [may sleep] */
enum rdmux_status rdmux_verbs_describe_port(struct verbs_ep *ep);
enum rdmux_status rdmux_verbs_ep_ping(struct rdmux_provider_ep *base);
enum rdmux_status rdmux_verbs_ep_quiesce(struct rdmux_provider_ep *base,
                                         struct rdmux_provider_counts *counts);
void rdmux_verbs_ep_close(struct rdmux_provider_ep *base);

/* ------------------------------------------------------------------ addresses (verbs_address.c) */

/* Converts an IP address to a GID, IPv4 mapped; zero for another family. */
void rdmux_verbs_address_to_gid(const struct sockaddr *address, uint8_t out[VERBS_GID_SIZE]);
/* Gives this host's address on the route to the peer, as a GID; zero: there is none, or peer is
 * NULL. [may sleep] */
void rdmux_verbs_local_address(const struct sockaddr *peer, uint32_t length,
                               uint8_t out[VERBS_GID_SIZE]);

/* rdmux_provider_ops.reach for fabrics whose ports are reached by IP addresses: both ends need an
 * address of one kind. */
enum rdmux_reason rdmux_verbs_reach_by_address(const struct verbs_transport *transport,
                                               const uint8_t *ours, size_t ours_length,
                                               const uint8_t *theirs, size_t theirs_length,
                                               char *text);

/* The provider tables that the plug-in exports. */
extern const struct rdmux_provider_ops rdmux_ib_provider;
extern const struct rdmux_provider_ops rdmux_roce_provider;
extern const struct rdmux_provider_ops rdmux_iwarp_provider;

#endif
