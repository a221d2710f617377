/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Completion queues. */
#ifndef RDMUX_API_CORE_CQ_H
#define RDMUX_API_CORE_CQ_H

#include "api/core/fabric.h"

/* rdmux_cq.signal: why a call must take the slow way in. */
enum {
    RDMUX_SIGNAL_CLAIM = 1 << 0, /* the service thread owns the cq for a slice */
    /* The service thread sleeps and wants to hear that the application is back. */
    RDMUX_SIGNAL_DORMANT = 1 << 1,
    RDMUX_SIGNAL_ATTEND = 1 << 2, /* mail, control channel or timers are waiting */
    RDMUX_SIGNAL_LANE = 1 << 3,   /* the lane is open: close it before anything else (lane.h) */
    RDMUX_SIGNAL_ALIVE = 1 << 4,  /* always; 0 in the child of a fork */
};

_Static_assert((RDMUX_SIGNAL_ALIVE | RDMUX_SIGNAL_LANE) == RDMUX_LANE_OPEN,
               "an open lane's gate has no other bit");
/* rdmux_cq.armed: by rdmux_cq_arm(), until the next poll, wait or arm. */
enum rdmux_arming {
    RDMUX_UNARMED,
    RDMUX_ARMED,
    RDMUX_TOLD, /* the service thread took what came; wake_fd keeps the descriptor readable */
};
struct rdmux_cq_domain {
    const struct rdmux_provider_ops *ops;
    struct rdmux_provider_cq *cq;
};

struct rdmux_cq {
    /* First line: the way in. What rdmux_cq_poll() goes on with comes first, see lane.h. */
    struct rdmux_cq_front front;
    struct rdmux_lane *gate;                 /* signal and inside, in memory that a fork wipes */
    void (*close_gate)(struct rdmux_cq *cq); /* of the fast path, see lane.h */
    /* Counts calls, so that the service thread sees the application come and go. Those over the
     * lane show in gate->inside, see cq_service.c. */
    _Atomic uint64_t calls;
    uint32_t fence; /* 1: no membarrier: enter by an atomic exchange */
    uint32_t domain_count;
    struct rdmux_list pending;  /* endpoints that have something to return */
    struct rdmux_ep *doorbells; /* endpoints whose doorbell RDMUX_MORE holds back */
    bool list_sufficed;         /* the last poll returned what waited in `pending`, and no more */

    struct rdmux_cq_domain domains[RDMUX_CQ_DOMAINS_MAX];
    struct rdmux_fabric *fabric;
    struct rdmux_list link; /* fabric->cqs */
    struct rdmux_list eps;
    struct rdmux_ep *ep_buckets[RDMUX_EP_BUCKETS]; /* by id, with the three below endpoint_table.c's */
    struct rdmux_timer *timers;                    /* a heap: the earliest is the first */
    uint32_t timer_count;
    uint32_t timer_room;
    /* Endpoints whose handle the application has until its next poll or wait. */
    struct rdmux_list closed;
    /* Closed endpoints of which nobody has a handle: freed at the next progress. */
    struct rdmux_list dropped;
    struct rdmux_list accepting; /* endpoints of rdmux_accept not yet returned */
    uint64_t id;
    size_t ep_count;
    size_t srq_count;
    uint64_t depth;
    uint64_t reserved;
    struct rdmux_mr *_Atomic hazard; /* region the owner is inside, see target.c */

    int fd;         /* epoll: the three below. The application's */
    int work_fd;    /* epoll: the providers' descriptors */
    int control_fd; /* epoll: the control channels */
    /* eventfd: mail, and things the service thread found while the application was away. */
    int wake_fd;
    _Atomic uint32_t armed; /* enum rdmux_arming */
    struct rdmux_list busy; /* endpoints in set-up or ending: stepped at every round */
    /* Endpoints with bytes of a control channel's in its session, of which no socket tells. */
    struct rdmux_list held;

    pthread_mutex_t mail_lock;
    struct rdmux_mail *mail; /* newest first */
    uint32_t jobs;           /* on their way through the worker; mail_lock */
    pthread_cond_t jobs_ended;

    /* Held by the service thread during a slice; a caller waits on it. */
    pthread_mutex_t claim_lock;
    _Atomic uint64_t deadline_ns; /* earliest timer of the cq's endpoints, UINT64_MAX = none */
    /* 1: the application sleeps in a call; it looks for DORMANT when it wakes. */
    _Atomic uint32_t sleeping;
    bool in_slice;   /* the owner is the service thread */
    uint64_t slices; /* of the service thread */
    /* Importers on this cq that a revocation waits for; written under fabric->lock. */
    _Atomic uint32_t revocations;

    /* Service thread's own (its step_lock). */
    struct rdmux_list service_link;
    struct rdmux_watch work_watch;
    struct rdmux_watch control_watch;
    uint32_t service_state;
    bool service_fired;
    bool service_asks;   /* this look asks whether the application goes on calling */
    bool service_polled; /* and saw it */
    uint64_t service_deadline_ns;
    uint64_t service_calls;
    uint64_t service_seen; /* times that calls over the lane were seen */

    const uint32_t *alive; /* the fabric's */

    /* lane.c: */
    struct rdmux_lane *no_lane;          /* always closed, of endpoints that the lane is not of */
    struct rdmux_ep *lane_ep;            /* whose writes go over the lane, or may soon */
    uint32_t lane_streak;                /* of its writes that could have */
    uint32_t lane_ready;                 /* entries made ready for that endpoint */
    struct rdmux_lane_entry *lane_since; /* writes from here on are not counted yet */
    uint64_t lane_posted;                /* counted since the lane was opened */
};

/* The gate's words, RDMUX_SIGNAL_* and RDMUX_LANE_*. */
static inline _Atomic uint32_t *rdmux_cq_signal(const struct rdmux_cq *cq)
{
    return (_Atomic uint32_t *)&cq->gate->signal;
}

static inline _Atomic uint32_t *rdmux_cq_inside(const struct rdmux_cq *cq)
{
    return (_Atomic uint32_t *)&cq->gate->inside;
}

#endif
