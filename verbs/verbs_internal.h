/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * What the providers on libibverbs share: ib and roce as they are, iwarp with its own way to
 * connect and to put messages on the wire. docs/VERBS.md has the design.
 *
 * Threads. A cq with its endpoints, remotes and SRQs belongs to one thread at a time. A domain and
 * its regions are for any thread. The reader of a device's asynchronous events touches of a cq, an
 * endpoint and a queue only what is _Atomic, and the eventfd.
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
    VERBS_CHAIN_MAX = 32,    /* work requests in one doorbell */
    VERBS_POLL_MAX = 32,     /* completions taken at a time */
    VERBS_UNITS_MAX = 32,    /* device completion queues of one cq */
    VERBS_SIDE_OWN = 16,     /* first kind of side messages that a transport has for itself */
    VERBS_QPN_BUCKETS = 256, /* chains of queues by their number */
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

/* Connection of a queue pair: what ibv_modify_qp(3) wants to know of the way. */
struct verbs_route {
    struct ibv_ah_attr address;
    uint16_t pkey_index;
};

/* What differs between the fabrics. Everything is set, but for what says NULL. */
struct verbs_transport {
    const char *name;        /* of the provider */
    const char *fabric_name; /* as people call it */
    uint8_t fabric;          /* VERBS_FABRIC_* */
    uint32_t latency_ns;     /* half a round trip of a small message, by which the path is ranked */
    uint32_t header_size;    /* bytes of our own in front of each message, see verbs_headers */
    uint32_t request_slots;  /* work requests that a request, not a read, takes at most */
    uint32_t read_slots;     /* and a read for each list that the device takes */
    int sink_access;         /* IBV_ACCESS_* that the target of a read needs beside local write */
    bool lacks_side;         /* its endpoints have no side channel */
    uint32_t side_own;       /* side messages of its own that one end has on their way, at most */
    uint32_t flush_size;     /* bytes that a flush reads; 0: VERBS_FLUSH_SIZE */
    bool lacks_word; /* its peers lend no flush word: what is read must be the request's own remote,
                        and nothing is posted that the program did not ask for */

    /* Of these three endpoints that rdma_cm connects have none (verbs_plain.c). */

    /* What it means when the device refuses a request of the peer, and not an access
     * (IBV_EVENT_QP_REQ_ERR). */
    enum rdmux_status request_refused;

    /* Completes the path of an active port of this fabric: address, reach, or why it cannot be
     * used. [may sleep] */
    void (*probe_port)(const struct verbs_port *port, struct rdmux_local_path *out);

    /* The way of an active port to itself, for a trial (verbs_trial.h); false: there is none now. NULL:
     * ports of this fabric are not tried. [may sleep] */
    bool (*way_to_self)(const struct verbs_port *port, struct verbs_route *out);

    /* Where the endpoint can be reached now; also fills in ep->gid_index and ep->pkey_index. [may
     * sleep] */
    enum rdmux_status (*locate)(struct verbs_ep *ep, struct verbs_whereabouts *out);
    /* The way from ep->ours to ep->theirs. [may sleep] */
    enum rdmux_status (*route)(struct verbs_ep *ep, struct verbs_route *out);
    /* The device has changed what it is reached by: does the endpoint's way still hold? False:
     * *text says why. */
    bool (*holds)(struct verbs_ep *ep, char *text, size_t size);

    /* Puts a request on ep's chain. RDMUX_AGAIN: no room, or it has to wait for others:
     * rdmux_verbs_resume() is called when that is over. Any other failure ends the endpoint. [data
     * path] */
    enum rdmux_status (*start)(struct verbs_ep *ep, struct rdmux_request *request);
    /* A work request of a queue is done, or failed. [data path] */
    void (*sent)(struct verbs_queue *queue, const struct ibv_wc *wc);
    /* A receive of the endpoint has a message in it. [data path] */
    void (*received)(struct verbs_ep *ep, struct rdmux_request *request, const struct ibv_wc *wc);
    /* The device has got so many receives of the endpoint. NULL: nobody asks. [data path] */
    void (*receives_posted)(struct verbs_ep *ep, size_t count);
    /* A receive failed. request: NULL for the side channel's. */
    void (*receive_failed)(struct verbs_ep *ep, struct rdmux_request *request,
                           const struct ibv_wc *wc);
    /* The device says that the queue pair has failed. */
    void (*broke)(struct verbs_queue *queue);
    /* The device says that it has refused an access or a request of the peer; what can still be told to
     * the peer is, before the endpoint fails. NULL: nothing. */
    void (*refuses)(struct verbs_queue *queue);
    /* A side message of the transport's own came, VERBS_SIDE_SIZE bytes, the first of them
     * VERBS_SIDE_OWN at least. */
    void (*side_message)(struct verbs_ep *ep, const uint8_t *message);
};

/* --------------------------------------------------------------------------------------- device */

/* Library memory that each domain has: a word that peers read behind their writes, and where what
 * such a read brings goes. */
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
    bool keeps_address; /* regions are registered at their own address: the device takes no other */
    bool needs_sinks;   /* the target of a read needs the transport's sink_access */
    bool lacks_fence; /* IBV_SEND_FENCE is not to be used: the endpoint holds back what is fenced */
    bool lends_silent; /* bytes of work requests without completion are sent from where they lie, even
                          again after later ones have completed: so each is to raise one */
    bool lacks_inline;  /* inline requests are not to be used: their bytes do not arrive */
    bool lacks_nothing; /* writes and reads of no bytes are not to be used behind a read */
    bool lacks_calls;   /* ibv_wr_*() are not to be used */
    bool doubts_reads; /* a read of several packets may be said to be done and not be: a small one behind
                           it tells */
    struct verbs_page *page;
    struct ibv_mr *flush_mr;
    struct ibv_mr *sink_mr;
    _Atomic uint64_t ports_down; /* bit n: port n */
    _Atomic bool is_gone;        /* the device failed or was taken away */
    pthread_mutex_t lock;        /* guards cqs, and which queue a queue pair is of */
    struct verbs_cq *cqs;        /* by domain_next */
};

struct verbs_mr {
    struct rdmux_provider_mr base;
    void *addr;
    uint64_t length;
    uint32_t access; /* RDMUX_ACCESS_* */
    /* IBV_ACCESS_* of the remote key; 0: the device gives no right to the peer */
    int remote_access;
    uint64_t iova; /* where the remote key has the region */
    struct ibv_mr *local;
    struct ibv_mr *remote;
};

struct verbs_remote {
    struct rdmux_provider_remote base;
    struct verbs_region region;
};

/* ---------------------------------------------------------------------------------- completions */

/* A completion queue of the device. A cq has several, as queues of a device do not grow. */
struct verbs_unit {
    struct ibv_cq *cq;
    uint32_t capacity;
    uint32_t used;    /* entries that the queues attached can need at most */
    uint32_t awaited; /* 1: an event was asked for and not taken yet */
    uint32_t unacked; /* events taken and not acknowledged */
    bool is_broken;   /* the device said so: it takes no more queue pairs */
};

/* verbs_cq.attention, verbs_queue.events: set by the reader of asynchronous events */
enum {
    VERBS_EVENT_FATAL = 1 << 0,   /* the queue pair or its completion queue failed */
    VERBS_EVENT_ACCESS = 1 << 1,  /* the device refused an access of the peer */
    VERBS_EVENT_REQUEST = 1 << 2, /* the device refused a request of the peer */
    VERBS_EVENT_ADDRESS = 1 << 3, /* of a cq: addresses of the device have changed */
    VERBS_EVENT_DEVICE = 1 << 4,  /* of a cq: the device is gone */
    VERBS_EVENT_QUEUE = 1 << 5,   /* of a cq: one of its queues has events */
};

/* What a wr_id leads to: a queue, or an SRQ. */
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
    uint32_t first_unit;  /* polled first, in turns */
    uint32_t stash_count; /* completions that arm has found */
    uint32_t stash_next;
    struct ibv_wc stash[VERBS_POLL_MAX];
    struct verbs_place *places;
    uint32_t place_count;
    uint32_t free_place; /* place_count: none */
    struct verbs_queue *by_qpn[VERBS_QPN_BUCKETS];
    /* What was under way on the express lane when it was closed, see verbs_lane.c. */
    uint32_t lane_count;
    uint32_t lane_entry_count;
    struct rdmux_lane_entry *lane_entries;
    struct verbs_queue *lane_queue; /* NULL: it is gone */
    struct verbs_ep *silent; /* endpoints with work that no completion tells of, by silent_next */
    uint32_t silent_polls;   /* with some of them */
    uint32_t idle_polls;     /* since something was found */
    bool is_armed;           /* a unit may have an event to take */
    struct ibv_comp_channel *channel;
    struct rdma_event_channel *cm_channel; /* of the connection manager; NULL: not needed so far */
    uint32_t cm_connecting; /* connections being made: events are looked for at each poll */
    uint32_t cm_polls;
    int epoll;
    int event; /* eventfd: attention was set */
    _Atomic uint32_t attention;
    struct verbs_cq *domain_next;
};

/* ------------------------------------------------------------------------------------ endpoints */

/* Where the transport's header of each receive goes: one of header_size bytes for each slot, the
 * first piece of the device's list. request->provider[0] is its address. */
struct verbs_headers {
    uint8_t *bytes; /* NULL: the transport has none */
    size_t size;
    struct ibv_mr *mr;
};

/* A queue pair with what is known of its work. */
struct verbs_queue {
    struct verbs_ep *ep;
    struct verbs_cq *cq;
    struct verbs_unit *unit;
    struct ibv_qp *qp;       /* NULL: there is none */
    struct ibv_qp_ex *calls; /* the same, for ibv_wr_*(); NULL: it takes lists only */
    uint64_t id;             /* in each wr_id */
    struct verbs_send_ring sent;
    struct verbs_receive_ring receives;
    struct verbs_headers headers;
    /* By slot: is it a read? Of devices that finish reads behind later work requests; else NULL. */
    bool *is_read;
    struct ibv_send_wr *chain; /* work requests of the next doorbell */
    struct ibv_sge *pieces;
    uint32_t chain_count;
    uint32_t piece_count;
    uint32_t max_send_sge;
    uint32_t max_receive_sge;
    uint32_t max_inline;
    uint32_t reserved;    /* entries in the unit */
    bool chain_is_inline; /* the chain names bytes that the caller may change soon */
    _Atomic uint32_t events;
    struct verbs_queue *qpn_next;
};

enum verbs_ep_state {
    VERBS_EP_OPEN,
    VERBS_EP_CONNECTED,
    VERBS_EP_FAILED,   /* told by rdmux_provider_failed() */
    VERBS_EP_DRAINING, /* quiesced: what the device still holds is counted */
    VERBS_EP_QUIET,    /* the device has nothing of it */
};

struct verbs_ep {
    struct rdmux_provider_ep base;
    const struct verbs_transport *transport; /* the domain's, or what ep_open found here */
    const struct rdmux_provider_ep_attr *attr;
    enum verbs_ep_state state;
    bool is_blocked;     /* post said AGAIN */
    bool is_silent;      /* on cq->silent */
    bool is_unexplained; /* failed, and the device does not say why: its requests are the core's */
    struct verbs_queue data;
    uint32_t max_read_sge;
    uint32_t flush_size;  /* bytes that a flush reads */
    uint32_t flushed_end; /* slot after the newest flush read */
    bool is_unflushed;    /* a write or send was posted after that */
    uint32_t reads_end;   /* slot after the newest read or atomic of the device */
    uint32_t fenced_end;  /* slot after the newest that the device fences */
    /* one for each slot: bytes of inline requests that the device does not inline */
    uint8_t *copies;
    uint32_t copy_size;
    struct ibv_mr *copies_mr;
    struct verbs_ep *silent_next;
    /* Receives beyond the device's queue, by provider[2]; they go when it has room. */
    struct rdmux_request *held;
    struct rdmux_request *held_last;

    /* The side channel, see verbs_side.c. */
    struct verbs_queue side;
    struct ibv_mr *side_mr;
    uint8_t *side_messages;
    uint32_t side_receives;
    uint32_t side_sends;
    struct rdmux_request *atomics; /* emulated ones, oldest first, by provider[0] */
    struct rdmux_request *atomics_last;
    struct rdmux_request *atomics_unsent; /* the first that is not on its way */
    uint32_t atomic_count;
    uint32_t atomics_sent; /* on their way, not answered */
    uint32_t side_number;  /* of the next one sent */

    struct verbs_connection ours;
    struct verbs_connection theirs;
    uint32_t gid_index[VERBS_ADDRESSES_MAX];
    uint16_t pkey_index[VERBS_PKEYS_MAX];
    uint8_t kind; /* of the address in use */
    uint8_t port;
    struct rdmux_provider_counts counts;
    uint64_t grace_until_ns; /* 0: it has not begun */
    uint64_t quiet_since_ns; /* while it is drained: the device has given nothing back since */
    uint32_t outstanding;    /* work requests that it had then */
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
    uint32_t units; /* bit n: unit n of the cq has room for its receives */
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

/* The probe of a transport: a path for each port of its fabric, or one that says why there is
 * none. */
enum rdmux_status rdmux_verbs_probe(const struct verbs_transport *transport,
                                    struct rdmux_fabric *fabric, struct rdmux_local_path *out,
                                    size_t max, size_t *count);
/* Opens the device of that name. RDMUX_IO, RDMUX_NO_MEMORY …: the text says why not. */
enum rdmux_status rdmux_verbs_device_open(const char *device, struct ibv_context **out);
/* The port that a path of probe is of. */
uint8_t rdmux_verbs_path_port(const struct rdmux_local_path *path);
/* Puts whereabouts into a path's reach. */
void rdmux_verbs_path_set_reach(struct rdmux_local_path *path,
                                const struct verbs_whereabouts *where);
/* A path that cannot be used. hint may be NULL. */
void rdmux_verbs_path_refuse(struct rdmux_local_path *path, enum rdmux_reason reason,
                             const char *hint, const char *format, ...) RDMUX_PRINTF(4, 5);
/* The VERBS_FABRIC_* of a port, by its device's transport and its link layer; 0: another one. */
uint8_t rdmux_verbs_fabric_of(enum ibv_transport_type transport, uint8_t link_layer);
/* An adapter in software: soft RoCE. */
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
/* Zeroed whole pages of the library's own, so that nothing else is on pages that are registered.
 * NULL: none. */
void *rdmux_verbs_pages_map(size_t size);
void rdmux_verbs_pages_unmap(void *pages, size_t size);
/* Registers bytes with a domain; errors tell of the limit on locked memory. what: names them,
 * "region". copies: how many times the pages are locked all in all. iova: their address for the
 * device's user. */
enum rdmux_status rdmux_verbs_pin(struct verbs_domain *domain, const char *what, void *addr,
                                  uint64_t length, uint64_t iova, int access, unsigned copies,
                                  struct ibv_mr **out);

/* ------------------------------------------------------- completion queues (verbs_completion.c) */

enum rdmux_status rdmux_verbs_cq_open(struct rdmux_provider_cq *base, uint32_t depth);
void rdmux_verbs_cq_close(struct rdmux_provider_cq *base);
size_t rdmux_verbs_poll(struct rdmux_provider_cq *base, size_t budget);
enum rdmux_status rdmux_verbs_arm(struct rdmux_provider_cq *base);
int rdmux_verbs_fd(struct rdmux_provider_cq *base);
/* A unit with room for entries more, and for all receives of srq, which may be NULL;
 * RDMUX_NO_MEMORY. [may sleep] */
enum rdmux_status rdmux_verbs_unit_reserve(struct verbs_cq *cq, uint32_t entries,
                                           struct verbs_srq *srq, struct verbs_unit **out);
/* A place for a queue or an SRQ in the cq's table; *id: what its wr_ids have. */
enum rdmux_status rdmux_verbs_place_take(struct verbs_cq *cq, struct verbs_queue *queue,
                                         struct verbs_srq *srq, uint64_t *id);
void rdmux_verbs_place_give(struct verbs_cq *cq, uint64_t id);
/* Takes the completions that are there, of all queues; returns how many, at most budget. */
size_t rdmux_verbs_reap(struct verbs_cq *cq, size_t budget);
/* verbs_transport.broke, .sent and .receive_failed of fabrics whose devices finish work in order. */
void rdmux_verbs_broke(struct verbs_queue *queue);
void rdmux_verbs_sent(struct verbs_queue *queue, const struct ibv_wc *wc);
void rdmux_verbs_receive_failed(struct verbs_ep *ep, struct rdmux_request *request,
                                const struct ibv_wc *wc);
/* Tells the core of a request. Once the core ends the endpoint, it is the core that completes what
 * did not succeed. */
void rdmux_verbs_report(struct verbs_ep *ep, struct rdmux_request *request,
                        enum rdmux_status status);
/* Sees to it that work which no completion will tell of gets a successor that does. */
void rdmux_verbs_watch_silent(struct verbs_ep *ep);
/* The path failed by itself. The first call counts. */
void rdmux_verbs_fail(struct verbs_ep *ep, enum rdmux_status status, const char *format, ...)
    RDMUX_PRINTF(3, 4);
/* After post said AGAIN: there may be room now. [data path] */
static inline void rdmux_verbs_resume(struct verbs_ep *ep)
{
    if (VERBS_UNLIKELY(ep->is_blocked)) {
        ep->is_blocked = false;
        rdmux_provider_resume(&ep->base);
    }
}

/* ---------------------------------------------------------- connection manager (verbs_cm.c) */

/* Events of a cq that has a channel: looks for them now and then, as polling goes; and takes all
 * that are there. Return how many. */
size_t rdmux_verbs_cm_poll(struct verbs_cq *cq, size_t done);
size_t rdmux_verbs_cm_take(struct verbs_cq *cq);

/* The device queue failed. */
void rdmux_verbs_unit_failed(struct verbs_cq *cq, struct verbs_unit *unit);

/* ------------------------------------------------------------------ express lane (verbs_lane.c) */

int rdmux_verbs_lane_open(struct rdmux_provider_ep *base, struct rdmux_lane *lane,
                          rdmux_lane_poll_fn *poll);
void rdmux_verbs_lane_close(struct rdmux_provider_ep *base, struct rdmux_lane *lane,
                            uint64_t posted, uint64_t done);
void rdmux_verbs_lane_target(const struct rdmux_provider_remote *base,
                             struct rdmux_lane_target *out);
/* The completion of work that no queue's wr_id names: of the lane, before it was closed. */
void rdmux_verbs_lane_completed(struct verbs_cq *cq, const struct ibv_wc *wc);

/* ----------------------------------------------------------------------- queues (verbs_queue.c) */

struct verbs_queue_wish {
    uint32_t send_depth; /* work requests; fewer if the device takes fewer, at least send_least */
    uint32_t send_least;
    uint32_t receive_depth; /* 0 with an SRQ */
    uint32_t max_send_sge;
    uint32_t max_receive_sge;
    uint32_t max_inline;   /* 0 to this */
    uint32_t signal_every; /* see verbs_send_ring */
    struct verbs_srq *srq; /* or NULL */
};

/* Makes a queue pair in state RESET. [may sleep] */
enum rdmux_status rdmux_verbs_queue_open(struct verbs_queue *queue, struct verbs_ep *ep,
                                         const struct verbs_queue_wish *wish);
/* RESET to INIT; receives may be posted then. [may sleep] */
enum rdmux_status rdmux_verbs_queue_init(struct verbs_queue *queue, const struct verbs_route *route);
/* INIT to RTS. qpn, psn: the peer's; our_psn: the first of ours. [may sleep] */
enum rdmux_status rdmux_verbs_queue_connect(struct verbs_queue *queue,
                                            const struct verbs_route *route, uint32_t qpn,
                                            uint32_t psn, uint32_t our_psn);
/* To ERR: the device gives back what it holds. No further work may be posted. */
void rdmux_verbs_queue_kill(struct verbs_queue *queue);
/* Work requests that the device has not given back. */
uint32_t rdmux_verbs_queue_outstanding(const struct verbs_queue *queue);
/* Takes the queue pair, which there is, from the queue; who destroys it gives the entries in the unit
 * back, too. What it still completes finds nobody. */
struct ibv_qp *rdmux_verbs_queue_release(struct verbs_queue *queue, uint32_t *reserved);
/* Destroys the queue pair: the device holds nothing any more. */
void rdmux_verbs_queue_destroy(struct verbs_queue *queue);
/* Frees what is left, after destroy. */
void rdmux_verbs_queue_close(struct verbs_queue *queue);
/* The next work request of the chain, zeroed but for its wr_id and flags; there is room. [data
 * path] */
struct ibv_send_wr *rdmux_verbs_chain_add(struct verbs_queue *queue, struct rdmux_request *request,
                                          enum verbs_wish wish);
/* Gives the chain to the device. False: it did not take it, and the endpoint has failed. [data
 * path] */
bool rdmux_verbs_chain_ring(struct verbs_queue *queue);
/* The device did not take a work request. */
void rdmux_verbs_post_failed(struct verbs_ep *ep, int error);
/* Headers for count receives of the transport, if it has headers. [may sleep] */
enum rdmux_status rdmux_verbs_headers_open(struct verbs_headers *headers,
                                           struct verbs_domain *domain, uint32_t count);
void rdmux_verbs_headers_close(struct verbs_headers *headers);
/* The header's piece, if there is one, in front of the list of a receive; returns how many pieces
 * that is. [data path] */
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

/* ------------------------------------------------------------------------- posts (verbs_post.c) */

enum rdmux_status rdmux_verbs_post(struct rdmux_provider_ep *base, struct rdmux_request *requests,
                                   size_t count, uint32_t flags, size_t *posted);
void rdmux_verbs_doorbell(struct rdmux_provider_ep *base);
enum rdmux_status rdmux_verbs_post_recv(struct rdmux_provider_ep *base,
                                        struct rdmux_request *requests, size_t count);
/* The device's queue of receives has room: those held back go. [data path] */
void rdmux_verbs_post_held(struct verbs_ep *ep);
/* verbs_transport.start and .received of fabrics that have everything. */
enum rdmux_status rdmux_verbs_start(struct verbs_ep *ep, struct rdmux_request *request);
void rdmux_verbs_received(struct verbs_ep *ep, struct rdmux_request *request,
                          const struct ibv_wc *wc);
/* A read of the peer's flush word, behind all that is on the chain. request: reported when it is
 * done, or NULL. There is room. */
void rdmux_verbs_chain_flush(struct verbs_ep *ep, struct rdmux_request *request,
                             enum verbs_wish wish);
/* A write of nothing that raises a completion, if there is room; false else. */
bool rdmux_verbs_chain_nothing(struct verbs_ep *ep);
/* Must a request of so many work requests wait, for room or for others before it? Then
 * rdmux_verbs_resume() is called when that is over. [data path] */
bool rdmux_verbs_must_wait(struct verbs_ep *ep, const struct rdmux_request *request, uint32_t slots);
/* Adds a request's bytes to a work request of the data queue that has `before` bytes already, which
 * the device is to inline if it does. [data path] */
void rdmux_verbs_add_bytes(struct verbs_ep *ep, struct ibv_send_wr *work,
                           const struct rdmux_request *request, uint32_t before);
/* A post that is not taken now: the core holds it until rdmux_verbs_resume(). [data path] */
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
/* An atomic that the target's library carries out. RDMUX_AGAIN: it has to wait. [data path] */
enum rdmux_status rdmux_verbs_side_atomic(struct verbs_ep *ep, struct rdmux_request *request);
/* Sends what has become free to go. [data path] */
void rdmux_verbs_side_push(struct verbs_ep *ep);
/* Sends a message of the transport's own, VERBS_SIDE_SIZE bytes, the first of them VERBS_SIDE_OWN at
 * least. At most verbs_transport.side_own of them may be on their way, which it sees to. [data
 * path] */
void rdmux_verbs_side_send(struct verbs_ep *ep, const uint8_t *message);
/* May one be sent now? There is room again when one that went before is done. */
bool rdmux_verbs_side_has_room(const struct verbs_ep *ep);
/* verbs_transport.side_message of fabrics that have none of their own: the peer breaks the
 * protocol. */
void rdmux_verbs_no_side_message(struct verbs_ep *ep, const uint8_t *message);
/* A side message is in the receive of that slot. [data path] */
void rdmux_verbs_side_received(struct verbs_ep *ep, uint32_t slot, const struct ibv_wc *wc);

/* --------------------------------------------------------------------------- SRQs (verbs_srq.c) */

enum rdmux_status rdmux_verbs_srq_open(struct rdmux_provider_srq *base, uint32_t depth,
                                       uint32_t max_sge);
void rdmux_verbs_srq_close(struct rdmux_provider_srq *base);
enum rdmux_status rdmux_verbs_srq_post_recv(struct rdmux_provider_srq *base,
                                            struct rdmux_request *requests, size_t count);
/* The receive of a slot has a message, or failed; the slot is free. NULL: there is none. */
struct rdmux_request *rdmux_verbs_srq_retire(struct verbs_srq *srq, uint32_t slot);

/* ----------------------------------------------------------------- endpoints (verbs_endpoint.c) */

enum rdmux_status rdmux_verbs_ep_open(struct rdmux_provider_ep *base,
                                      const struct rdmux_provider_ep_attr *attr);
enum rdmux_status rdmux_verbs_ep_describe(struct rdmux_provider_ep *base, uint8_t *out,
                                          size_t *size);
enum rdmux_status rdmux_verbs_ep_connect(struct rdmux_provider_ep *base, const uint8_t *peer,
                                         size_t size);
/* Fills in what the port says of our side of the connection; RDMUX_IO: it is down. [may sleep] */
enum rdmux_status rdmux_verbs_describe_port(struct verbs_ep *ep);
enum rdmux_status rdmux_verbs_ep_ping(struct rdmux_provider_ep *base);
enum rdmux_status rdmux_verbs_ep_quiesce(struct rdmux_provider_ep *base,
                                         struct rdmux_provider_counts *counts);
void rdmux_verbs_ep_close(struct rdmux_provider_ep *base);

/* ------------------------------------------------------------------ addresses (verbs_address.c) */

/* An IP address as a GID, IPv4 mapped; zero for another family. */
void rdmux_verbs_address_to_gid(const struct sockaddr *address, uint8_t out[VERBS_GID_SIZE]);
/* Our own address on the way to the peer, the same way; zero: there is none, or peer is NULL. [may
 * sleep] */
void rdmux_verbs_local_address(const struct sockaddr *peer, uint32_t length,
                               uint8_t out[VERBS_GID_SIZE]);

/* rdmux_provider_ops.reach of fabrics whose ports are reached by IP addresses: have both one family? */
enum rdmux_reason rdmux_verbs_reach_by_address(const struct verbs_transport *transport,
                                               const uint8_t *ours, size_t ours_length,
                                               const uint8_t *theirs, size_t theirs_length,
                                               char *text);

/* The tables that the plug-in exports. */
extern const struct rdmux_provider_ops rdmux_ib_provider;
extern const struct rdmux_provider_ops rdmux_roce_provider;
extern const struct rdmux_provider_ops rdmux_iwarp_provider;

#endif
