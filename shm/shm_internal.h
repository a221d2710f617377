/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The shm provider's objects, shared by its files. One thread at a time owns a cq with its
 * endpoints and remotes; domains and regions are for any thread. */
#ifndef RDMUX_SHM_INTERNAL_H
#define RDMUX_SHM_INTERNAL_H

#include "shm_layout.h"
#include "shm_ring.h"
#include "shm_socket.h"

#include <rdmux/provider.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#if defined(__SANITIZE_THREAD__)
#define SHM_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SHM_TSAN 1
#endif
#endif
#ifndef SHM_TSAN
#define SHM_TSAN 0
#endif

#define SHM_LIKELY(x) __builtin_expect(!!(x), 1)
#define SHM_UNLIKELY(x) __builtin_expect(!!(x), 0)
/* What is done most often, in one piece with its caller, and what stays out of its way; as RDMUX_HOT of
 * api/request.h. */
#ifndef SHM_HOT
#define SHM_HOT static inline __attribute__((always_inline))
#endif
#define SHM_COLD __attribute__((noinline))

enum {
    SHM_STEP_MAX = 1024 * 1024, /* most bytes copied at a stretch */
    SHM_SENT_COUNT = 64,        /* regions whose passing an endpoint remembers, a power of two */
    SHM_MAPPING_COUNT = 32,     /* first size of an endpoint's table of mapped regions */
};

/* ---------------------------------------------------------------------------------- objects */

/* This process's side of the provider, and the region table its peers read. */
struct shm_domain {
    struct rdmux_provider_domain base;
    pthread_mutex_t invalidating; /* one invalidation at a time; taken before mutex */
    pthread_mutex_t mutex;        /* guards all below but regions' words; only set-up takes it */
    struct shm_ep *eps;           /* connected ones, by domain_next */
    struct shm_region *regions;   /* SHM_REGION_COUNT of them, shared */
    int regions_fd;
    uint32_t next_index; /* where to look for a free region next */
    uint64_t next_number;
    bool membarrier;
    _Atomic uint64_t longest; /* bytes of the longest region that was ever registered */
};

struct shm_mr {
    struct rdmux_provider_mr base;
    void *addr;
    uint64_t length;
    uint32_t access;
    uint32_t index;      /* in the domain's region table, SHM_REGION_COUNT = has no place there */
    uint64_t life;       /* of that place */
    uint64_t generation; /* domain mutex. Of the rights in force, 0 = none */
    int fd;              /* the core's; -1 if peers may not map it */
};

enum shm_arming {
    SHM_UNARMED,
    SHM_ARMED,
    SHM_KICKED, /* and then a post made the descriptor readable */
};

struct shm_cq {
    struct rdmux_provider_cq base;
    struct shm_ep **eps; /* the first few are polled each time, the others in turn */
    uint32_t count;
    uint32_t room;
    uint32_t hot_next; /* where the next endpoint that becomes hot goes */
    uint32_t idle_next;
    uint32_t first;      /* hot endpoint polled first */
    uint32_t connecting; /* endpoints that wait for their socket */
    uint32_t polls;
    int epoll;
    enum shm_arming armed; /* since the last poll */
    struct shm_ep *awake;  /* endpoints whose peer need not ring, by awake_next */
};

enum shm_ep_state {
    SHM_EP_NEW,        /* opened */
    SHM_EP_CONNECTING, /* ep_connect is under way */
    SHM_EP_CONNECTED,
    SHM_EP_BROKEN,   /* reported by rdmux_provider_failed() */
    SHM_EP_QUIESCED, /* by the core */
};

/* Who waits for a slot of ours to be carried out. A read may wait for many: its chunks come back in
 * order, and request->provider[0] counts the bytes. */
struct shm_entry {
    struct rdmux_request *request; /* NULL: nobody */
    uint32_t chunk;                /* of a read or atomic: bytes that come back */
};

enum shm_job_kind {
    SHM_JOB_STREAM,     /* send: chunks through the data ring */
    SHM_JOB_RING_WRITE, /* write by the target's CPU */
    SHM_JOB_RING_READ,  /* read by the target's CPU */
    SHM_JOB_PUT,        /* write, into the peer's memory, by us */
    SHM_JOB_GET,        /* read, from the peer's memory, by us */
    SHM_JOB_SEND_PUT,   /* send, into a published receive, by us */
};

/* A request that takes more than one step. */
struct shm_job {
    struct rdmux_request *request; /* NULL: none */
    enum shm_job_kind kind;
    uint64_t offset;              /* bytes of the request dealt with */
    uint8_t *mapped;              /* where the request's bytes lie, mapped; NULL: only by address */
    uint64_t address;             /* in the peer */
    const _Atomic uint64_t *word; /* must be `value` while we touch the peer's memory */
    uint64_t value;
};

/* A message that came in part. */
struct shm_incoming {
    struct rdmux_request *request; /* NULL: none */
    uint64_t length;
    uint64_t received;
    uint32_t imm;
    uint32_t wc_flags;
    bool pulling;
};

/* A region of the peer, mapped. */
struct shm_mapping {
    uint8_t *base; /* NULL: the entry is free */
    uint64_t length;
    uint64_t life;
    uint32_t index;
    uint32_t writable;
    uint32_t refs; /* remotes that use it */
};

/* A region whose descriptor the peer was passed; forgetting one costs passing it again. */
struct shm_sent {
    uint64_t life; /* 0: none */
    uint32_t writable;
};

struct shm_ep {
    struct rdmux_provider_ep base;
    /* Data path. */
    enum shm_ep_state state;
    bool fences;       /* no membarrier: a full fence where the other side relies on one */
    bool stalled;      /* the next message waits for a receive */
    bool end_waits;    /* the peer has closed; its end is told behind that message */
    bool want_resume;  /* post returned RDMUX_AGAIN */
    bool bell_held;    /* RDMUX_POST_MORE */
    bool asleep;       /* our sleeping word was set; not on cq->awake */
    _Atomic bool gone; /* the peer's process ended, or it closed the socket */
    bool can_copy;     /* process_vm_readv and writev work on the peer */
    bool has_srq;
    uint32_t pending; /* entries with a request */
    uint32_t place;   /* index in cq->eps */
    struct shm_side *mine;
    struct shm_side *theirs;
    struct shm_consumer in;
    struct shm_job job;
    struct shm_incoming incoming;
    struct shm_piece pull[RDMUX_SGE_MAX]; /* of an incoming message that we pull */
    uint32_t pull_count;
    struct shm_ep *awake_next;
    struct shm_receive *my_receives; /* we publish there */
    const struct shm_receive *their_receives;
    uint64_t ring_writes_until; /* position behind the last write or atomic that took a slot */
    uint64_t messages;          /* sends and write_imms started */
    uint64_t answered;          /* in.tail at the last short send */
    uint64_t receives_posted;
    uint64_t receives_taken;
    struct rdmux_provider_counts counts;
    struct shm_producer out;
    struct shm_entry entries[SHM_SLOT_COUNT];

    /* Set-up and seldom. */
    struct shm_ep *domain_next;
    const struct rdmux_provider_ep_attr *attr;
    struct shm_segment *segment;
    const struct shm_region *their_regions;
    struct shm_mapping *mappings;
    uint32_t mapping_room;
    uint32_t mapping_sweep;
    uint32_t mapping_hint; /* the one found last */
    pid_t pid;             /* of the peer */
    int bell;              /* eventfd that the peer rings */
    int peer_bell;         /* eventfd that we ring */
    int listener;          /* acceptor, until connected */
    int socket;            /* AF_UNIX, to the peer */
    int pidfd;             /* of the peer, -1 where the kernel has none */
    bool watched;          /* socket and pidfd are in the cq's epoll */
    bool hello_sent;       /* connector */
    bool listed;           /* on the domain's list */
    uint64_t busy_seen;    /* domain->invalidating */
    uint64_t alive_at_ns;  /* when the peer was last seen alive, coarse clock */
    /* Of a region whose receives we found that we cannot write to; 0 = none. */
    uint64_t unmappable_life;
    struct shm_description theirs_described;
    struct shm_sent sent[SHM_SENT_COUNT];
    struct shm_place meeting; /* of the listener */
};

enum shm_remote_mode {
    SHM_REMOTE_MAPPED, /* plain copies and CPU atomics */
    SHM_REMOTE_COPY,   /* process_vm_readv and writev; atomics by the target's CPU */
    SHM_REMOTE_RING,   /* all by the target's CPU */
};

struct shm_remote {
    struct rdmux_provider_remote base;
    enum shm_remote_mode mode;
    uint32_t mapping;             /* index in ep->mappings, with mode MAPPED */
    uint8_t *mapped;              /* of its offset 0 */
    uint64_t address;             /* in the peer, of its offset 0 */
    const _Atomic uint64_t *word; /* is `generation` while the rights are in force */
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

/* ---------------------------------------------------------------------------------- segment */

/* Makes a sealed segment with its magic and size, mapped. */
RDMUX_MUST_CHECK enum rdmux_status rdmux_shm_segment_create(struct shm_segment **out, int *fd);
/* Maps the peer's, after a look at seals, size and magic. */
RDMUX_MUST_CHECK enum rdmux_status rdmux_shm_segment_map(int fd, struct shm_segment **out);
void rdmux_shm_segment_unmap(struct shm_segment *segment);
/* The region table of this process: writable here, and by no other mapping. */
RDMUX_MUST_CHECK enum rdmux_status rdmux_shm_regions_create(struct shm_region **out, int *fd);
RDMUX_MUST_CHECK enum rdmux_status rdmux_shm_regions_map(int fd, const struct shm_region **out);
void rdmux_shm_regions_unmap(const struct shm_region *regions);
/* Maps length bytes of a peer's memory. RDMUX_PROTOCOL: it is shorter, could shrink, or is none of ordinary
 * pages. */
RDMUX_MUST_CHECK enum rdmux_status rdmux_shm_memory_map(int fd, uint64_t length, bool writable,
                                                        uint8_t **out);
void rdmux_shm_memory_unmap(uint8_t *base, uint64_t length);
/* Makes sure that the memory behind fd, ours, cannot shrink. False: peers would not map it. */
bool rdmux_shm_memory_seal(int fd);

/* --------------------------------------------------------------------------------- doorbell */

/* Registers the process for membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED). False: not there. */
bool rdmux_shm_membarrier_register(void);
/* A full barrier on every thread of every registered process. [data path] */
void rdmux_shm_membarrier(void);
/* A full barrier on this thread. [data path] */
void rdmux_shm_fence(void);
/* The slow half of shm_ring_bell(). [data path] */
void rdmux_shm_wake_peer(struct shm_ep *ep);
/* The slow half of shm_wake_owner(). [data path] */
void rdmux_shm_kick_owner(struct shm_ep *ep);
/* Notes that the peer has not to ring until it is told again: the slow half of shm_wake_up().
 * [data path] */
void rdmux_shm_wake_up(struct shm_ep *ep);
/* Has the peer's process ended? Asks the kernel, at most once in 10 ms. [data path] */
bool rdmux_shm_peer_is_gone(struct shm_ep *ep);

static inline void shm_wake_up(struct shm_ep *ep)
{
    if (SHM_UNLIKELY(ep->asleep)) {
        rdmux_shm_wake_up(ep);
    }
}

/* Orders what we published before what we read of the other side. The other side, which does the
 * reverse, has the slow half: rdmux_shm_heavy_barrier(). */
static inline void shm_light_barrier(const struct shm_ep *ep)
{
    if (ep->fences) {
        rdmux_shm_fence();
    } else {
        atomic_signal_fence(memory_order_seq_cst);
    }
}
static inline void shm_heavy_barrier(const struct shm_ep *ep)
{
    if (ep->fences) {
        rdmux_shm_fence();
    } else {
        rdmux_shm_membarrier();
    }
}

/* After something was published for the peer: wakes it if it sleeps and wants to know (wake:
 * SHM_WAKE_*). [data path] */
static inline void shm_ring_bell(struct shm_ep *ep, uint32_t wake)
{
    shm_light_barrier(ep);
    if (atomic_load_explicit(&ep->theirs->sleeping, memory_order_relaxed) & wake) {
        rdmux_shm_wake_peer(ep);
    }
}

/* Makes the cq's descriptor readable, if its owner may be asleep on it while another thread posts.
 * [data path] */
static inline void shm_wake_owner(struct shm_ep *ep)
{
    if (shm_cq_of(ep->base.cq)->armed == SHM_ARMED) {
        rdmux_shm_kick_owner(ep);
    }
}

/* Begins to touch the peer's memory outside the segment. False: not allowed any more, because the
 * peer has closed or *word is not `value` (word NULL: whatever). Pairs with the heavy barrier
 * between its change and its look at busy. [data path] */
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
/* Passes the region's descriptor to the peer unless that has happened. False: it has no descriptor
 * to pass, or there is no room now. [data path] */
bool rdmux_shm_region_pass(struct shm_ep *ep, struct shm_mr *mr, bool writable);
/* The peer's region, if it was passed and can be mapped; else NULL. Takes at most *budget messages of the
 * peer, which are subtracted: if none is left of the budget, the region may be in one that comes later.
 * [data path] */
struct shm_mapping *rdmux_shm_mapping_find(struct shm_ep *ep, uint32_t index, uint64_t life,
                                           bool writable, uint32_t *budget);
/* Unmaps one region that the peer has given up, if the next to look at is such. [data path] */
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

/* --------------------------------------------------------------------------------- transfer */

enum rdmux_status rdmux_shm_post(struct rdmux_provider_ep *base, struct rdmux_request *requests,
                                 size_t count, uint32_t flags, size_t *posted);
void rdmux_shm_doorbell(struct rdmux_provider_ep *base);
enum rdmux_status rdmux_shm_post_recv(struct rdmux_provider_ep *base,
                                      struct rdmux_request *requests, size_t count);
/* Goes on with what was posted: slots that the peer carried out, the job under way. Returns how
 * much was done. [data path] */
size_t rdmux_shm_advance(struct shm_ep *ep);

/* ------------------------------------------------------------------------------- completion */

enum rdmux_status rdmux_shm_cq_open(struct rdmux_provider_cq *base, uint32_t depth);
void rdmux_shm_cq_close(struct rdmux_provider_cq *base);
size_t rdmux_shm_poll(struct rdmux_provider_cq *base, size_t budget);
enum rdmux_status rdmux_shm_arm(struct rdmux_provider_cq *base);
int rdmux_shm_cq_fd(struct rdmux_provider_cq *base);

/* What an epoll event is about: the endpoint's address and one of these. */
enum { SHM_WATCH_BELL = 0, SHM_WATCH_SOCKET = 1, SHM_WATCH_PID = 2, SHM_WATCH_MASK = 3 };

RDMUX_MUST_CHECK enum rdmux_status rdmux_shm_cq_add(struct shm_cq *cq, struct shm_ep *ep);
void rdmux_shm_cq_remove(struct shm_cq *cq, struct shm_ep *ep);
RDMUX_MUST_CHECK enum rdmux_status rdmux_shm_cq_watch(struct shm_cq *cq, struct shm_ep *ep, int fd,
                                                      uint32_t what, uint32_t events);
void rdmux_shm_cq_unwatch(struct shm_cq *cq, int fd);

/* The path is broken by what the peer asked for in slot `position`, or by what we found: the peer
 * is told, then the core. [data path] */
void rdmux_shm_break(struct shm_ep *ep, enum rdmux_status status, uint64_t position,
                     const char *text);
/* A request's memory of this side is not there: INVALID here. The peer did nothing wrong and gets IO. */
void rdmux_shm_break_bad_buffer(struct shm_ep *ep);

/* The kernel does not say whose memory was at fault (EFAULT): are these pieces of this process there? Each
 * page is asked for, so it is for failures only. */
bool rdmux_shm_pieces_are_mapped(const struct iovec *pieces, size_t count);
/* The text where they are not. */
extern const char rdmux_shm_bad_buffer[];

#endif
