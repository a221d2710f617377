/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Objects of the shm provider, shared by its files. A cq with its endpoints and remotes belongs to
 * one thread at a time. Any thread may use domains and regions. */
#ifndef RDMUX_SHM_INTERNAL_H
#define RDMUX_SHM_INTERNAL_H

#include "shm_barrier.h"
#include "shm_layout.h"
#include "shm_ring.h"
#include "shm_socket.h"

#include "api/base/list.h"

#include <rdmux/provider.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#define SHM_LIKELY(x) __builtin_expect(!!(x), 1)
#define SHM_UNLIKELY(x) __builtin_expect(!!(x), 0)
/* SHM_HOT: hot path, inlined into its caller. SHM_COLD: kept out of line. As RDMUX_HOT of
 * api/data/request.h. */
#ifndef SHM_HOT
#define SHM_HOT static inline __attribute__((always_inline))
#endif
#define SHM_COLD __attribute__((noinline))

enum {
    SHM_STEP_MAX = 1024 * 1024, /* most bytes of one copy step */
    SHM_SENT_COUNT = 64,        /* passed regions that an endpoint remembers, a power of two */
    SHM_MAPPING_COUNT = 32,     /* initial size of an endpoint's table of mapped regions */
};

#define SHM_NOWHERE UINT32_MAX

/* ---------------------------------------------------------------------------------- objects */

/* This process's side of the provider, with the region table that its peers read. */
struct shm_domain {
    struct rdmux_provider_domain base;
    pthread_mutex_t invalidating; /* one invalidation at a time; taken before mutex */
    /* Guards the fields below, but not the words of regions, nor longest. The data path does not
     * take it. */
    pthread_mutex_t mutex;
    struct rdmux_list eps;      /* connected endpoints, linked by domain_link */
    struct shm_queue *queues;   /* queues of peers that endpoints are connected to */
    struct shm_region *regions; /* the region table: SHM_REGION_COUNT entries, shared with peers */
    int regions_fd;
    uint32_t next_index; /* where the next search for a free region begins */
    uint64_t next_number;
    bool has_membarrier;
    _Atomic uint64_t longest; /* length in bytes of the longest region ever registered */
};

struct shm_mr {
    struct rdmux_provider_mr base;
    void *addr;
    uint64_t length;
    uint32_t access;
    uint32_t index;      /* in the domain's region table; SHM_REGION_COUNT: no entry there */
    uint64_t life;       /* of that entry */
    uint64_t generation; /* of the rights in force, 0 = none; guarded by the domain's mutex */
    /* Whose peer may reach the region, guarded by the domain's mutex: nobody; one endpoint, on
     * whose list this region is; or anybody. */
    struct shm_ep *reached_by;
    struct rdmux_list reached_link;
    bool is_shared;
    int fd;         /* owned by the core; -1: peers may not map the region */
    bool is_dmabuf; /* the kernel copies its bytes for this process alone */
};

enum shm_arming {
    SHM_UNARMED,
    SHM_ARMED,
    SHM_KICKED, /* after arm a post made the descriptor readable, or a poll left events unread */
};

struct shm_cq {
    struct rdmux_provider_cq base;
    /* The first `watched` endpoints are polled: each poll serves the first few, the hot ones, and
     * the others in turn. The endpoints behind them are idle: their peers mark them. */
    struct shm_ep **eps;
    uint32_t count;
    uint32_t room;
    uint32_t watched;
    uint32_t risen;     /* watched endpoints that could be idle */
    uint32_t risen_max; /* from more on, a poll lets endpoints become idle */
    uint32_t hot_next;  /* place of the next endpoint that becomes hot */
    uint32_t turn_next;
    uint32_t first;      /* place of the hot endpoint that is polled first */
    uint32_t connecting; /* endpoints in SHM_EP_CONNECTING */
    uint32_t polls;
    int epoll;
    int bell;              /* eventfd that the peers ring */
    enum shm_arming armed; /* since the last poll */
    /* Endpoints whose peer need not ring, linked by awake_next. One link is enough: the data path
     * puts endpoints in front, and arm takes them out while it walks the whole list. */
    struct shm_ep *awake;
    struct shm_neighbour **neighbours;
    uint32_t neighbour_count;
    uint32_t neighbour_room;
    uint32_t neighbour_next;                /* place of the one whose marks are looked at next */
    struct shm_neighbour *awake_neighbours; /* those that need not ring, linked by awake_next */
};

/* A process that endpoints of a cq have as peer, and what these endpoints share
 * (shm_neighbour.c). */
struct shm_neighbour {
    pid_t pid;
    int pidfd;      /* -1: not available */
    bool is_gone;   /* the process has ended */
    bool is_awake;  /* ready->sleeping is 0; on cq->awake_neighbours */
    uint32_t refs;  /* endpoints */
    uint32_t place; /* index in cq->neighbours */
    struct shm_neighbour *awake_next;
    struct shm_ready *ready; /* our ready set for this process; NULL: none is needed */
    int ready_fd;
    struct shm_ep **marked; /* by mark: an endpoint, and others with this mark by mark_next */
    uint32_t marked_room;
    uint32_t next_mark;
    uint32_t next_word; /* of marks, to be looked at first */
};

/* A queue of a peer process, as all endpoints of this domain that are connected to it share it. */
struct shm_queue {
    struct shm_queue *next;
    pid_t pid;
    uint64_t number;         /* inode of the ready set's memory file */
    struct shm_ready *ready; /* of that queue for this process */
    const struct shm_region *regions;
    int bell;
    uint32_t refs; /* `queue` and `first_queue` of endpoints; guarded by the domain's mutex */
};

/* The states of an endpoint, in their order; shm_state.c. */
enum shm_ep_state {
    SHM_EP_NEW,        /* opened */
    SHM_EP_CONNECTING, /* ep_connect is under way */
    SHM_EP_CONNECTED,
    SHM_EP_BROKEN,   /* reported by rdmux_provider_failed() */
    SHM_EP_QUIESCED, /* by the core */
};

/* The request that waits until the peer has executed one of our slots. A read may wait for several
 * slots: its chunks come back in order, and request->provider[0] counts the bytes that came. */
struct shm_entry {
    struct rdmux_request *request; /* NULL: no request waits */
    uint32_t chunk; /* of a read or atomic: bytes that come back in the slot's chunk */
};

enum shm_job_kind {
    SHM_JOB_STREAM,     /* send: as chunks through the data ring */
    SHM_JOB_RING_WRITE, /* write: the target's CPU executes it */
    SHM_JOB_RING_READ,  /* read: the target's CPU executes it */
    SHM_JOB_PUT,        /* write: this side copies into the peer's memory */
    SHM_JOB_GET,        /* read: this side copies from the peer's memory */
    SHM_JOB_SEND_PUT,   /* send: this side copies into a published receive */
};

/* A request that takes more than one step. */
struct shm_job {
    struct rdmux_request *request; /* NULL: none */
    enum shm_job_kind kind;
    uint64_t offset;              /* bytes of the request already processed */
    uint8_t *mapped;              /* peer memory for byte 0 of the request; NULL: use address */
    uint64_t address;             /* of the same byte, in the peer's address space */
    const _Atomic uint64_t *word; /* must hold `value` while this side touches the peer's memory */
    uint64_t value;
    bool is_refused; /* the word has changed; the refusal waits for the messages before it */
};

/* A message that arrived in part. */
struct shm_incoming {
    struct rdmux_request *request; /* NULL: none */
    uint64_t length;
    uint64_t received;
    uint32_t imm;
    uint32_t wc_flags;
    bool is_pulling;
};

/* A mapped region of the peer. */
struct shm_mapping {
    uint8_t *base; /* NULL: the entry is free */
    uint64_t length;
    uint64_t life;
    uint32_t index;
    uint32_t writable;
    uint32_t refs; /* remotes that use it */
};

/* A region whose descriptor was passed to the peer. A forgotten region costs only passing it
 * again. */
struct shm_sent {
    uint64_t life; /* 0: none */
    uint32_t writable;
};

/* The peer's regions, as far as this side has mapped them (shm_memory.c). */
struct shm_peer_regions {
    const struct shm_region *table; /* the peer's region table */
    struct shm_mapping *mappings;
    uint32_t mapping_room;
    uint32_t mapping_sweep;
    uint32_t mapping_hint; /* index of the mapping found last */
    /* Life of a region whose published receives this side cannot write to; 0 = none. */
    uint64_t unmappable_life;
};

/* The way to the peer's process, and the last check of its life (shm_endpoint.c,
 * shm_doorbell.c). */
struct shm_peer {
    pid_t pid;
    int own_bell;    /* eventfd of this endpoint alone, for a peer without ready sets; else -1 */
    int their_bell;  /* eventfd that this side rings; -1: not connected yet */
    int socket;      /* AF_UNIX, to the peer */
    bool is_watched; /* the cq's descriptor reports the peer's end */
    int pidfd;       /* while the endpoint is on its way to another cq; else -1 */
    uint64_t alive_at_ns; /* time of the last liveness check, coarse clock; 0: check anew */
};

/* State of connecting and closing; shm_endpoint.c alone uses it. */
struct shm_setup {
    struct shm_description theirs; /* the peer's description */
    struct shm_place meeting;      /* of the listener */
    int listener;                  /* of the acceptor, until the peer is accepted */
    bool is_hello_sent;            /* connector: HELLO was sent */
    bool has_event;                /* the socket or listener may have news for ep_connect */
};

struct shm_ep {
    struct rdmux_provider_ep base;
    /* Data path. */
    enum shm_ep_state state; /* rdmux_shm_write_state() alone writes it */
    bool is_fencing;         /* no membarrier: both sides run full fences instead */
    bool is_stalled;     /* the next message waits for a receive, or its bytes are out of reach */
    bool is_end_waiting; /* is_stalled, and the peer has closed: reported after that message */
    bool wants_resume;   /* post returned RDMUX_AGAIN */
    bool is_bell_held;   /* slots are published, and the peer's doorbell is not rung yet */
    bool is_asleep;      /* our sleeping word was set; the endpoint is not on cq->awake */
    bool is_marked;      /* the peer marks it in our ready set, so it may be idle */
    bool is_untold;      /* came from another cq, and the peer has no news of it: it cannot sleep */
    _Atomic bool is_gone; /* the peer's process ended, it closed the socket, or it is lost */
    _Atomic bool is_lost; /* the peer is there, but this side cannot wake it any more */
    bool can_copy;        /* process_vm_readv and writev work on the peer */
    bool has_srq;
    uint32_t pending; /* entries with a request */
    uint32_t place;   /* index in cq->eps; SHM_NOWHERE: not there */
    struct shm_side *mine;
    struct shm_side *theirs;
    struct shm_consumer in;
    struct shm_job job;
    struct shm_incoming incoming;
    struct shm_piece pull[RDMUX_SGE_MAX]; /* sender's pieces of the message that is pulled */
    uint32_t pull_count;
    struct shm_ep *awake_next;
    struct shm_queue *queue;         /* the peer's; NULL: the peer has no ready sets */
    uint32_t their_mark;             /* in queue->ready */
    uint32_t moves_seen;             /* theirs->moves, when their news were taken */
    struct shm_receive *my_receives; /* receives that this side publishes */
    const struct shm_receive *their_receives;
    uint64_t ring_writes_until; /* position after the last slot with a write or atomic */
    uint64_t messages;          /* sends and write_imms started */
    uint64_t answered;          /* in.tail at the last short send */
    uint64_t receives_posted;
    uint64_t receives_taken;
    struct rdmux_provider_counts counts;
    struct shm_producer out;
    struct shm_entry entries[SHM_SLOT_COUNT];

    /* Rarely used fields. */
    struct rdmux_list domain_link;
    struct rdmux_list reached; /* regions that this endpoint's peer alone may reach */
    const struct rdmux_provider_ep_attr *attr;
    struct shm_segment *segment;
    struct shm_peer_regions regions;
    struct shm_peer peer;
    struct shm_queue *first_queue;   /* where the peer connected; has regions.table */
    struct shm_neighbour *neighbour; /* NULL until the peer was met, and between two cqs */
    uint32_t mark;                   /* in neighbour->ready */
    struct shm_ep *mark_next;
    uint64_t busy_seen; /* guarded by domain->invalidating */
    struct shm_sent sent[SHM_SENT_COUNT];
    struct shm_setup setup;
};

enum shm_remote_mode {
    SHM_REMOTE_MAPPED, /* plain copies and CPU atomics */
    SHM_REMOTE_COPY,   /* process_vm_readv and writev; atomics by the target's CPU */
    SHM_REMOTE_RING,   /* everything by the target's CPU */
};

struct shm_remote {
    struct rdmux_provider_remote base;
    enum shm_remote_mode mode;
    uint32_t mapping;             /* index in ep->regions.mappings, for SHM_REMOTE_MAPPED */
    uint8_t *mapped;              /* the region's offset 0, in this process */
    uint64_t address;             /* the region's offset 0, in the peer */
    const _Atomic uint64_t *word; /* holds `generation` while the rights are in force */
    uint64_t generation;
    uint8_t key[RDMUX_TARGET_KEY_SIZE];
};

static inline struct shm_domain *shm_domain_of(struct rdmux_provider_domain *domain)
{
    return (struct shm_domain *)domain;
}
static inline struct shm_cq *shm_cq_of(struct rdmux_provider_cq *cq)
{
    return (struct shm_cq *)cq;
}
static inline struct shm_ep *shm_ep_of(struct rdmux_provider_ep *ep)
{
    return (struct shm_ep *)ep;
}
static inline struct shm_mr *shm_mr_of(struct rdmux_provider_mr *mr)
{
    return (struct shm_mr *)mr;
}
static inline struct shm_remote *shm_remote_of(struct rdmux_provider_remote *remote)
{
    return (struct shm_remote *)remote;
}
static inline struct rdmux_fabric *shm_fabric_of(const struct shm_ep *ep)
{
    return ep->base.cq->domain->fabric;
}

/* ------------------------------------------------------------------------------------ state */

/* The only writer of ep->state. */
void rdmux_shm_write_state(struct shm_ep *ep, enum shm_ep_state next);
/* The only writer of this side's word for the peer: SHM_CLOSED or SHM_FAILED. Comes last, after the
 * words that tell the cause. */
void rdmux_shm_tell_end(struct shm_ep *ep, uint32_t end);
/* Breaks the path because of the peer's request in slot `position`, or of an error found here.
 * Tells the peer, then the core. [data path] */
void rdmux_shm_break(struct shm_ep *ep, enum rdmux_status status, uint64_t position,
                     const char *text);
/* Breaks the path because a request's memory on this side is not mapped. The core gets
 * RDMUX_INVALID. The peer did nothing wrong and gets RDMUX_IO. */
void rdmux_shm_break_bad_buffer(struct shm_ep *ep);
/* Error text for pieces that are not mapped. */
extern const char rdmux_shm_bad_buffer[];

/* ---------------------------------------------------------------------------------- segment */

/* Creates and maps a sealed segment with its magic and size. */
RDMUX_MUST_CHECK enum rdmux_status rdmux_shm_segment_create(struct shm_segment **out, int *fd);
/* Maps the peer's segment. Checks its seals, size and magic. */
RDMUX_MUST_CHECK enum rdmux_status rdmux_shm_segment_map(int fd, struct shm_segment **out);
void rdmux_shm_segment_unmap(struct shm_segment *segment);
/* Creates the region table of this process. No mapping but this one is writable. */
RDMUX_MUST_CHECK enum rdmux_status rdmux_shm_regions_create(struct shm_region **out, int *fd);
RDMUX_MUST_CHECK enum rdmux_status rdmux_shm_regions_map(int fd, const struct shm_region **out);
void rdmux_shm_regions_unmap(const struct shm_region *regions);
/* Creates and maps a ready set of this process. */
RDMUX_MUST_CHECK enum rdmux_status rdmux_shm_ready_create(struct shm_ready **out, int *fd);
/* Maps a ready set of the peer. Checks its seals, size and magic. */
RDMUX_MUST_CHECK enum rdmux_status rdmux_shm_ready_map(int fd, struct shm_ready **out);
void rdmux_shm_ready_unmap(struct shm_ready *ready);
/* Maps length bytes of a peer's memory file. RDMUX_PROTOCOL: the file is shorter, could shrink, or
 * has no ordinary pages. */
RDMUX_MUST_CHECK enum rdmux_status rdmux_shm_memory_map(int fd, uint64_t length, bool writable,
                                                        uint8_t **out);
void rdmux_shm_memory_unmap(uint8_t *base, uint64_t length);
/* Seals our memory file fd against shrinking. False: peers would not map it. */
bool rdmux_shm_memory_seal(int fd);

/* -------------------------------------------------------------------------------- neighbours */

/* Joins the endpoint, whose peer was met, to the neighbour of its process. ready_set: the peer has
 * ready sets, too, so the endpoint gets a mark in ours. */
RDMUX_MUST_CHECK enum rdmux_status rdmux_shm_neighbour_join(struct shm_ep *ep, bool ready_set);
/* As before, for an endpoint that came from another cq. Takes over peer.pidfd. */
RDMUX_MUST_CHECK enum rdmux_status rdmux_shm_neighbour_rejoin(struct shm_ep *ep, bool ready_set);
/* Does nothing for an endpoint without neighbour. */
void rdmux_shm_neighbour_leave(struct shm_ep *ep);
/* Joins the endpoint to the peer's queue that ready set, doorbell and region table belong to. Takes
 * over the doorbell, *bell, if the queue is not known yet. */
RDMUX_MUST_CHECK enum rdmux_status rdmux_shm_queue_join(struct shm_ep *ep, int ready_fd,
                                                        int regions_fd, int *bell);
/* Does nothing for an endpoint without queue. */
void rdmux_shm_queue_leave(struct shm_ep *ep);
/* The peer has told that it is at another queue: fds are its `count` descriptors, and those that
 * are taken over become -1. If the peer cannot be woken there, it counts as gone. */
void rdmux_shm_queue_change(struct shm_ep *ep, uint32_t mark, int *fds, size_t count);
/* The peer is where this side cannot wake it: the path ends as if the peer's process had. */
void rdmux_shm_queue_lose(struct shm_ep *ep);
/* Checks that a write to the peer's doorbell does not wait by itself. The peer can change that
 * later: docs/SECURITY.md, "What shared memory cannot protect". */
RDMUX_MUST_CHECK enum rdmux_status rdmux_shm_bell_check(int fd);

/* --------------------------------------------------------------------------------- doorbell */

/* Slow path of shm_ring_bell(). [data path] */
void rdmux_shm_wake_peer(struct shm_ep *ep);
/* Slow path of shm_wake_up(): the cq polls the endpoint, and the peer need not ring until the
 * endpoint sleeps again. [data path] */
void rdmux_shm_wake_up(struct shm_ep *ep);
/* Returns whether the peer's process has ended or closed its socket. Asks the kernel at most once
 * in 10 ms. [data path] */
bool rdmux_shm_peer_is_gone(struct shm_ep *ep);
/* Tells the peer by which doorbell, ready set and mark it reaches the endpoint at its new cq.
 * ep->is_untold stays true if the socket is full; then the peer is asked to empty it. */
void rdmux_shm_queue_tell(struct shm_ep *ep);
/* Slow path of shm_follow_peer(). */
void rdmux_shm_queue_follow(struct shm_ep *ep);

/* Takes the peer's news of its queue, if there are any. [data path] */
static inline void shm_follow_peer(struct shm_ep *ep)
{
    uint32_t moves = atomic_load_explicit(&ep->theirs->moves, memory_order_acquire);
    if (SHM_UNLIKELY(moves != ep->moves_seen) && ep->queue != NULL) {
        ep->moves_seen = moves;
        rdmux_shm_queue_follow(ep);
    }
}

/* Lets the cq poll an endpoint that may sleep. [data path] */
static inline void shm_wake_up(struct shm_ep *ep)
{
    if (SHM_UNLIKELY(ep->is_asleep)) {
        rdmux_shm_wake_up(ep);
    }
}

/* Orders this side's stores before its loads of the peer's words. The peer pairs it with the slow
 * half, shm_heavy_barrier(). */
static inline void shm_light_barrier(const struct shm_ep *ep)
{
    if (ep->is_fencing) {
        rdmux_shm_fence();
    } else {
        atomic_signal_fence(memory_order_seq_cst);
    }
}
static inline void shm_heavy_barrier(const struct shm_ep *ep)
{
    if (ep->is_fencing) {
        rdmux_shm_fence();
    } else {
        rdmux_shm_membarrier();
    }
}

/* Wakes the peer after something was published for it, if it sleeps and asked for this wake-up
 * (wake: SHM_WAKE_*). [data path] */
static inline void shm_ring_bell(struct shm_ep *ep, uint32_t wake)
{
    shm_light_barrier(ep);
    if (atomic_load_explicit(&ep->theirs->sleeping, memory_order_relaxed) & wake) {
        rdmux_shm_wake_peer(ep);
    }
}

/* Begins an access to the peer's memory outside the segment. False: the access is not allowed any
 * more, because the peer is not open or *word is not `value` (word NULL: not checked). Pairs with
 * the heavy barrier that the peer runs between its change and its load of busy. [data path] */
static inline bool shm_access_begin(struct shm_ep *ep, const _Atomic uint64_t *word, uint64_t value)
{
    uint64_t busy = atomic_load_explicit(&ep->mine->busy, memory_order_relaxed);
    atomic_store_explicit(&ep->mine->busy, busy + 1, memory_order_relaxed);
    shm_light_barrier(ep);
    if (atomic_load_explicit(&ep->theirs->state, memory_order_acquire) == SHM_OPEN &&
        (word == NULL || atomic_load_explicit(word, memory_order_acquire) == value)) {
        return true;
    }
    atomic_store_explicit(&ep->mine->busy, busy + 2, memory_order_release);
    return false;
}
static inline void shm_access_end(struct shm_ep *ep)
{
    uint64_t busy = atomic_load_explicit(&ep->mine->busy, memory_order_relaxed);
    atomic_store_explicit(&ep->mine->busy, busy + 1, memory_order_release);
}

/* ----------------------------------------------------------------------------------- memory */

enum rdmux_status rdmux_shm_mr_register(struct rdmux_provider_mr *base,
                                        const struct rdmux_provider_mr_attr *attr);
void rdmux_shm_mr_deregister(struct rdmux_provider_mr *base);
enum rdmux_status rdmux_shm_mr_describe(struct rdmux_provider_mr *base,
                                        struct rdmux_provider_ep *base_ep, uint8_t *out,
                                        size_t *size);
enum rdmux_status rdmux_shm_mr_invalidate(struct rdmux_provider_mr *base);
enum rdmux_status rdmux_shm_remote_open(struct rdmux_provider_remote *base,
                                        const uint8_t *description, size_t size);
void rdmux_shm_remote_close(struct rdmux_provider_remote *base);
/* The endpoint leaves its domain, whose mutex is held: no peer of it reaches a region any more. */
void rdmux_shm_regions_forget(struct shm_ep *ep);
/* Passes the region's descriptor to the peer, unless the peer has it. False: the region has no
 * descriptor to pass, or the message cannot be sent now. [data path] */
bool rdmux_shm_region_pass(struct shm_ep *ep, struct shm_mr *mr, bool writable);
/* Returns the mapping of the peer's region; NULL: it was not passed, or cannot be mapped. Reads at
 * most *budget messages of the peer and subtracts their number. If *budget becomes 0, a later
 * message may have the region. [data path] */
struct shm_mapping *rdmux_shm_mapping_find(struct shm_ep *ep, uint32_t index, uint64_t life,
                                           bool writable, uint32_t *budget);
/* Takes one message of the peer from the socket. False: there is none. */
bool rdmux_shm_message_take(struct shm_ep *ep);
/* Makes room for mappings of regions whose messages are taken next, if memory allows. */
void rdmux_shm_mappings_reserve(struct shm_ep *ep);
/* Checks the next mapping in turn. Unmaps it if the peer has given the region up and no remote uses
 * it. [data path] */
void rdmux_shm_mapping_sweep(struct shm_ep *ep);
void rdmux_shm_mappings_release(struct shm_ep *ep);

/* --------------------------------------------------------------------------------- endpoint */

enum rdmux_status rdmux_shm_ep_open(struct rdmux_provider_ep *base,
                                    const struct rdmux_provider_ep_attr *attr);
enum rdmux_status rdmux_shm_ep_describe(struct rdmux_provider_ep *base, uint8_t *out, size_t *size);
enum rdmux_status rdmux_shm_ep_connect(struct rdmux_provider_ep *base, const uint8_t *peer,
                                       size_t size);
enum rdmux_status rdmux_shm_ep_ping(struct rdmux_provider_ep *base);
enum rdmux_status rdmux_shm_ep_quiesce(struct rdmux_provider_ep *base,
                                       struct rdmux_provider_counts *counts);
void rdmux_shm_ep_close(struct rdmux_provider_ep *base);
enum rdmux_status rdmux_shm_ep_leave(struct rdmux_provider_ep *base);
enum rdmux_status rdmux_shm_ep_enter(struct rdmux_provider_ep *base);

/* --------------------------------------------------------------------------------- transfer */

enum rdmux_status rdmux_shm_post(struct rdmux_provider_ep *base, struct rdmux_request *requests,
                                 size_t count, uint32_t flags, size_t *posted);
void rdmux_shm_doorbell(struct rdmux_provider_ep *base);
enum rdmux_status rdmux_shm_post_recv(struct rdmux_provider_ep *base,
                                      struct rdmux_request *requests, size_t count);
/* Makes progress on posted requests: retires slots that the peer has executed, continues the job in
 * flight. Returns how much was done. [data path] */
size_t rdmux_shm_advance(struct shm_ep *ep);
/* Returns whether these pieces of this process's memory are mapped, as EFAULT does not tell which
 * side's memory is at fault. Asks the kernel for each page, so call it only after a failure. */
bool rdmux_shm_pieces_are_mapped(const struct iovec *pieces, size_t count);

/* ------------------------------------------------------------------------------- completion */

enum rdmux_status rdmux_shm_cq_open(struct rdmux_provider_cq *base, uint32_t depth);
void rdmux_shm_cq_close(struct rdmux_provider_cq *base);
size_t rdmux_shm_poll(struct rdmux_provider_cq *base, size_t budget);
enum rdmux_status rdmux_shm_arm(struct rdmux_provider_cq *base);
int rdmux_shm_cq_fd(struct rdmux_provider_cq *base);

#endif
