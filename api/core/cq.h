/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The completion queue object. */
#ifndef RDMUX_API_CORE_CQ_H
#define RDMUX_API_CORE_CQ_H

#include "api/core/fabric.h"
#include "api/system/system.h"

/* rdmux_cq.signal: reasons for a call to enter the slow way. */
enum {
    RDMUX_SIGNAL_CLAIM = 1 << 0, /* the service thread owns the cq for a slice */
    /* The service thread sleeps until the application's next call wakes it. */
    RDMUX_SIGNAL_DORMANT = 1 << 1,
    RDMUX_SIGNAL_ATTEND = 1 << 2, /* mail, control channel or timers need the owner */
    /* The fast path is open; any other use of the cq closes it first (fast_path.h). */
    RDMUX_SIGNAL_FAST_PATH = 1 << 3,
    RDMUX_SIGNAL_ALIVE = 1 << 4, /* always set; 0 in the child of a fork */
};

_Static_assert((RDMUX_SIGNAL_ALIVE | RDMUX_SIGNAL_FAST_PATH) == RDMUX_GATE_OPEN,
               "an open fast path's gate has no other bit");
/* rdmux_cq.armed: set by rdmux_cq_arm(), until the next poll, wait or arm. */
enum rdmux_arming {
    RDMUX_UNARMED,
    RDMUX_ARMED,
    RDMUX_TOLD, /* the service thread took the event; `wake` keeps the descriptor readable */
};

/* rdmux_cq.fence: why calls enter by an atomic exchange. */
enum {
    RDMUX_ENTER_FENCED = 1 << 0,     /* there is no membarrier */
    RDMUX_ENTER_CHECKED = 1 << 1,    /* RDMUX_CQ_CHECKED */
    RDMUX_ENTER_SERIALIZED = 1 << 2, /* RDMUX_CQ_SERIALIZED */
};

/*
 * The parts of a cq. The owner of a part alone writes it, other files call the owner's functions;
 * scripts/lint wings checks this. rdmux_cq_create() initialises lists and locks.
 */

/* A provider's cq. Owned by api/progress. */
struct rdmux_cq_domain {
    const struct rdmux_provider_ops *ops;
    struct rdmux_provider_cq *cq;
};

/* The endpoints by id and by the time of their timers. Owned by api/progress/endpoint_table.c. */
struct rdmux_cq_table {
    struct rdmux_ep *buckets[RDMUX_EP_BUCKETS];
    struct rdmux_timer *timers; /* a heap, the earliest timer first */
    uint32_t timer_count;
    uint32_t timer_room;
};

/* Lists of the cq's endpoints. Owned by api/progress. */
struct rdmux_cq_lists {
    struct rdmux_list eps;
    /* Closed endpoints whose handle is valid until the application's next poll or wait. */
    struct rdmux_list closed;
    /* Closed endpoints without a handle: freed at the next progress. */
    struct rdmux_list dropped;
    struct rdmux_list accepting; /* endpoints that rdmux_accept() has not returned yet */
    struct rdmux_list busy;      /* endpoints in set-up, moving or ending: stepped in every round */
    /* Endpoints whose control-channel session buffers bytes, which no socket event reports. */
    struct rdmux_list held;
    /* Changes of cq that wait for a cut, by the link of their owner, api/object/change_cq.c. */
    struct rdmux_list leaving;
};

/* Mail from other threads, and the worker's jobs that will send some. Owned by
 * api/progress/cq_owner.c. */
struct rdmux_cq_mailbox {
    pthread_mutex_t lock;
    struct rdmux_mail *mail; /* newest first */
    uint32_t jobs;           /* jobs at the worker that will mail this cq */
    pthread_cond_t jobs_ended;
};

/* The claim of the service thread. Owned by api/progress. */
struct rdmux_cq_claim {
    pthread_mutex_t lock; /* held by the service thread during a slice; a call waits on it */
    /* 1: the application sleeps in a call and checks DORMANT when it wakes. */
    _Atomic uint32_t sleeping;
    bool is_in_slice; /* the owner is the service thread */
    uint64_t slices;  /* slices of the service thread so far */
};

/* What the service thread knows of the cq; its step_lock. Owned by api/data/cq_service.c. */
struct rdmux_cq_service {
    struct rdmux_list link;
    struct rdmux_watch work_watch;
    struct rdmux_watch control_watch;
    struct rdmux_watch outlet_watch; /* of cq->fd, where a poller is no descriptor */
    uint32_t state;
    bool has_fired;
    bool is_asking;  /* the current check asks whether the application goes on calling */
    bool was_polled; /* the current check saw a call */
    uint64_t deadline_ns;
    uint64_t calls;
    uint64_t fast_calls; /* how often the service thread saw calls over the fast path */
};

/* The owner's part of the fast path. Owned by api/data/fast_path.c. */
struct rdmux_cq_fast {
    /* Always closed; for endpoints that do not have the fast path. */
    struct rdmux_fast_path *none;
    rdmux_fast_path_poll_fn ordinary_poll; /* while the fast path is closed */
    struct rdmux_ep *ep;                   /* endpoint that has the fast path, or may get it soon */
    uint32_t streak; /* its consecutive writes that could have used the fast path */
    uint32_t ready;  /* entries prepared for that endpoint */
    struct rdmux_fast_path_entry *since; /* writes from this entry on are not counted yet */
    uint64_t posted;                     /* writes counted since the fast path was opened */
};

/* What rdmux_cq_stats() returns and nothing else needs. Owned by api/progress. */
struct rdmux_cq_counts {
    uint64_t sleeps;
    uint64_t arms;
    uint64_t wakes;
    uint64_t errands;
};

struct rdmux_cq {
    /* First cache line: entering. What rdmux_cq_poll() uses comes first, see fast_path.h. */
    struct rdmux_cq_fast_poll fast_poll;
    /* `signal` and `inside`, in memory that a fork wipes */
    struct rdmux_cq_gate *gate;
    void (*close_gate)(struct rdmux_cq *cq); /* closes the fast path, see fast_path.h */
    /* Counts calls, so that the service thread sees whether the application is active. Calls over
     * the fast path show in gate->inside, see cq_service.c. */
    _Atomic uint64_t calls;
    uint32_t fence; /* RDMUX_ENTER_*; 0: calls enter by plain stores */
    uint32_t domain_count;
    struct rdmux_list pending;  /* endpoints with entries to return or work to do */
    struct rdmux_ep *doorbells; /* endpoints whose doorbell RDMUX_MORE holds back */
    /* The last poll returned entries from `pending` without polling providers. */
    bool has_list_sufficed;

    struct rdmux_cq_domain domains[RDMUX_CQ_DOMAINS_MAX];
    struct rdmux_fabric *fabric;
    struct rdmux_list link; /* fabric->cqs */
    struct rdmux_cq_lists lists;
    struct rdmux_cq_table table;
    uint64_t id;
    size_t ep_count;
    size_t srq_count;
    uint64_t depth;
    /* Any thread reserves, by rdmux_cq_reserve() and rdmux_cq_domain_prepare(). */
    _Atomic uint64_t reserved;
    _Atomic uint32_t domains_reserved; /* entries of `domains` in use, or promised */
    /* Endpoints that rdmux_ep_move() has sent and the owner has not received yet. Owned by
     * api/object/change_cq.c. */
    _Atomic uint32_t arriving;
    struct rdmux_mr *_Atomic hazard; /* region that the owner is accessing, see target.c */

    int fd;         /* poller of the three below, and their descriptor for the application */
    int work_fd;    /* work fd, a poller of the providers' descriptors */
    int control_fd; /* control fd, a poller of the control channels */
    /* Mail, and events that the service thread found while the application was away. */
    struct rdmux_wake wake;
    /* Stands in for `fd` where a poller is no descriptor: the service thread keeps it readable. */
    struct rdmux_wake outlet;
    _Atomic uint32_t armed; /* enum rdmux_arming. Owned by api/progress. */
    /* 1: rdmux_cq_wake() was called, and the owner has not taken notice yet. */
    _Atomic uint32_t is_woken;
    uint32_t sleepers; /* serialized: calls that sleep outside of the cq, so that others enter */
    uint32_t askers;   /* sleeping calls that wait for something else than an entry */
    /* counts.errands when the last of them fell asleep; UINT64_MAX: an endpoint was busy. */
    uint64_t asked_errands;
    /* Is on `pending` while there are events of no endpoint, see completion.c. It has no path, and
     * is on no other list. */
    struct rdmux_ep *own;
    /* SRQs whose SRQ_LIMIT is not returned yet, by srq->low. Owned by api/data. */
    struct rdmux_list low_srqs;

    struct rdmux_cq_mailbox mailbox;
    struct rdmux_cq_claim claim;
    _Atomic uint64_t deadline_ns; /* earliest timer of the cq's endpoints; UINT64_MAX: none */
    /* Importers on this cq whose answer a revocation awaits; written under fabric->lock. */
    _Atomic uint32_t revocations;
    struct rdmux_cq_service service;
    const uint32_t *alive; /* fabric->alive */
    struct rdmux_cq_fast fast;
    struct rdmux_cq_counts counts;
};

/* The words of the gate, RDMUX_SIGNAL_* and RDMUX_GATE_*. */
static inline _Atomic uint32_t *rdmux_cq_signal(const struct rdmux_cq *cq)
{
    return (_Atomic uint32_t *)&cq->gate->signal;
}

static inline _Atomic uint32_t *rdmux_cq_inside(const struct rdmux_cq *cq)
{
    return (_Atomic uint32_t *)&cq->gate->inside;
}

#endif
