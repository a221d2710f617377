/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * The core's objects. This folder has the structs; the layers above have the functions.
 *
 * Lock order. A thread takes a lock only if every lock that it holds stands further up in this
 * list. "Then" names the locks that the holder takes in fact. An application's call that owns a cq
 * holds no lock for that.
 *
 * step_lock (loop/service.c; recursive)
 *     Guards   A step of the service: watches, timer, served_cqs, service fields of cqs, TLS
 *              places, log lines of listeners. Pending connections come and go with both this and
 *              lock held.
 *     Takers   The service thread; without one, the calls that do its work. Calls that create or
 *              destroy a cq, take or reject a pending connection, close a listener, wait for a
 *              revocation's answers, or evict a pending connection (rdmux_listeners_shed()).
 *     Then     Every other lock.
 * claim.lock (core/cq.h)
 *     Guards   The cq during a slice of the service thread.
 *     Takers   A holder of step_lock, one cq at a time (rdmux_cq_claim()). A call that finds the cq
 *              claimed holds no other lock, and releases this one at once (rdmux_cq_enter_slow()).
 *     Then     Every lock below, and step_lock again: its thread holds that already.
 * setup_lock (below)
 *     Guards   domains, the registrations of regions, and changes of spans. regions changes with
 *              both this and lock.
 *     Takers   Threads that create or deregister a region, among them the owner of a cq for the
 *              proof buffer of a set-up. The worker thread, or the owner of a cq, for a domain. The
 *              lock is held while a provider opens a device, which may take long. So an owner that
 *              needs a domain tries the lock first (rdmux_fabric_domain_is_open()), unless the
 *              provider is RDMUX_PROVIDER_QUICK.
 *     Then     lock; locks of providers.
 * lock (below)
 *     Guards   The lists and tables below, regions' exports and importers, free entries of the
 *              region table, listeners and their peer quotas, heartbeat groups, figures.
 *     Takers   Any thread. The conditions mr->changed and listener->changed belong to it.
 *     Then     mailbox.lock, call_lock, secrets_lock.
 * rdmux_shakes.lock (accept/shake.c)
 *     Guards   The queue of TLS handshake steps, and which handshakes are queued or running.
 *     Takers   A holder of step_lock; the TLS thread.
 *     Then     call_lock.
 * Leaves of the core, which any thread takes unless said otherwise:
 *     mailbox.lock     (core/cq.h) A cq's mail, and the number of its jobs at the worker.
 *     call_lock     (loop/service.c) The queue of rdmux_service_call().
 *     job_lock      (loop/worker.c) The worker's queue.
 *     copy_lock     (data/bounce.c) Whether the path is closed. Worker, while it copies a piece of
 *                   the application's buffers; owner, when it closes the path.
 *     secrets_lock  (base/hooks.h) The pages for secrets.
 *     rdmux_shared_stats.lock  (object/shared_stats.c) The counts for other processes.
 * Locks of providers, which their operations take:
 *     shm_domain.invalidating  One invalidation at a time. Then mutex.
 *     shm_domain.mutex         A leaf. The connected endpoints and the region table.
 *     verbs_domain.lock        A leaf. The cqs of the device, and the qp_context of queue pairs.
 *
 * Limits.
 * - Operations of a provider are called under step_lock, claim.lock and setup_lock at most. A
 *   provider holds no lock when it calls the core.
 * - The program's hooks (memory, log, clock, random) are called under step_lock, claim.lock,
 *   setup_lock and lock, and `release` under rdmux_shakes.lock; never under a leaf. So a hook must
 *   not call rdmux (rdmux.h).
 * - From setup_lock on down nothing that takes step_lock is called: rdmux_service_unwatch(),
 *   rdmux_service_timer(), rdmux_descriptors_make_room(), rdmux_descriptors_retry().
 * - A thread that waits on mr->changed or listener->changed holds no lock but `lock`.
 */
#ifndef RDMUX_API_CORE_FABRIC_H
#define RDMUX_API_CORE_FABRIC_H

#include "api/base/compiler.h"
#include "api/base/error.h"
#include "api/base/hooks.h"
#include "api/base/list.h"
#include "api/base/secrets.h"
#include "api/base/span_index.h"
#include "api/loop/service.h"
#include "negotiation/handshake.h"
#include "negotiation/message.h"
#include "providers/registry.h"

#include <rdmux/provider.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

enum {
    RDMUX_CAPS_ALL = (RDMUX_CAP_TARGET_PASSIVE << 1) - 1,
    RDMUX_INLINE_MAX = 1024,   /* upper limit of the granted RDMUX_INLINE bytes */
    RDMUX_CQ_DOMAINS_MAX = 16, /* provider domains one cq can be attached to */
    RDMUX_FABRIC_DOMAINS_MAX = 32,
    RDMUX_REGION_BUCKETS = 1024, /* hash chains of regions by id, and of importers by endpoint */
    RDMUX_EP_BUCKETS = 1024,     /* hash chains of a cq's endpoints by id */
    RDMUX_PEER_BUCKETS = 1024,   /* hash chains of the processes at the other end, by their id */
    RDMUX_LINGER_MS = 1000,      /* milliseconds that a peer's end waits for the next receive */
};

/* A domain in use: a device of a provider, with the path that it was opened for. Never closed
 * before the fabric. */
struct rdmux_domain_slot {
    const struct rdmux_provider_ops *ops;
    struct rdmux_local_path path;
    struct rdmux_provider_domain *domain;
    struct rdmux_watch events; /* watch of the device's domain_fd */
    _Atomic bool is_gone;      /* the device is gone */
};

/* What the cq, the data path and the objects call in the layers above them, for endpoints that are
 * in set-up, moving or ending, or that have work besides requests. fabric.c installs the table,
 * which life.c defines. Owner. */
struct rdmux_life {
    /* Advances the set-up, the move or the end of an endpoint: one on cq->lists.busy in each round
     * of progress, and one in set-up that was pended. May end the endpoint, but never frees it. */
    void (*step)(struct rdmux_ep *ep);
    /* Does the work in ep->work, and that of an end that waits for receives. Called after requests
     * were drained, so what it finds done has been counted. */
    void (*tend)(struct rdmux_ep *ep);
    /* Handles ep->fault, a failure that the provider reported. The endpoint is READY. */
    void (*fault)(struct rdmux_ep *ep);
    /* Handles an event of the control channel, or of another control descriptor of the endpoint. In
     * any phase. */
    void (*control_ready)(struct rdmux_ep *ep);
    /* Releases what set-up has left behind, and the listener that waits for the endpoint. */
    void (*leave_set_up)(struct rdmux_ep *ep);
    /* Returns when `timers` is due; UINT64_MAX: never. */
    uint64_t (*deadline)(const struct rdmux_ep *ep);
    /* Does what is due at now_ns. May close the endpoint, but never frees it. */
    void (*timers)(struct rdmux_ep *ep, uint64_t now_ns);
    /* Sends the endpoints of cq->lists.leaving that can go to their next cq. */
    void (*send_off)(struct rdmux_cq *cq);
    /* Closes an endpoint of which the program has no handle; the next progress frees it. Frees a
     * closed endpoint. */
    void (*remove)(struct rdmux_ep *ep);
};

/*
 * What failover adds, for the layers below it. They call it by the functions of core/failover.h,
 * which test ep->failover first: an endpoint without failover pays for that test alone. Owner.
 */
struct rdmux_failover_hooks {
    /* Returns how many of `run` requests from the send ring's `next` on may go to the path. */
    uint64_t (*run)(struct rdmux_ep *ep, uint64_t run);
    /* Counts receives and confirms requests, see ep->retention. */
    void (*confirm)(struct rdmux_ep *ep);
    /* Does deferred work before the cq sleeps. Returns whether anything was done. */
    bool (*quiet)(struct rdmux_ep *ep);
    /* Handles ep->fault (silence NULL), or the peer's silence on path and channel for the liveness
     * time, of which the text tells. False: the endpoint ends by it. */
    bool (*takes_loss)(struct rdmux_ep *ep, const char *silence);
    /* Handles MOVE, RECEIVED and BACK of the peer. Notes a REVOKE that is about to be sent, and the
     * peer's REVOKED. */
    void (*message)(struct rdmux_ep *ep, const struct rdmux_message *message);
    /* Tells the peer at once which messages have been received. */
    void (*tell_received)(struct rdmux_ep *ep);
    /* Notes that sending on the control channel failed, for the reason in `text`. Closes nothing:
     * the caller may be reading the channel. */
    void (*channel_broken)(struct rdmux_ep *ep, const char *text);
    /* Returns whether the endpoint may change its cq now: no move and no reconnect of the control
     * channel is under way. */
    bool (*is_steady)(const struct rdmux_ep *ep);
    /* Begins to cut the path, without unknown outcomes, for a change of cq
     * (RDMUX_EVENT_LEAVING). is_cut: returns whether the path is closed, and the next one is not
     * searched yet. When it is, RDMUX_SIGNAL_ATTEND is raised. leave_cq: takes descriptors of
     * failover off the cq that the endpoint leaves. go_on: the endpoint is on its new cq: puts them
     * there and, if the endpoint was cut, searches the next path. */
    void (*cut_for_cq)(struct rdmux_ep *ep);
    bool (*is_cut)(const struct rdmux_ep *ep);
    void (*leave_cq)(struct rdmux_ep *ep);
    void (*go_on)(struct rdmux_ep *ep);
    /* The endpoint ends. Gives up a move: the endpoint has the path that is being quiesced, or none.
     * Gives up a reconnect of the control channel, and lets no later one find the endpoint. Called
     * again, it does nothing. */
    void (*abandon)(struct rdmux_ep *ep);
    /* The endpoint has ended, and its path is quiet: marks unconfirmed requests as not done. Called
     * once. */
    void (*end_requests)(struct rdmux_ep *ep);
};

/* What rdmux_fabric_stats() returns and no list or table says. Any thread adds, by rdmux_count() or
 * rdmux_uncount(). */
struct rdmux_fabric_counts {
    _Atomic uint64_t endpoints; /* now */
    _Atomic uint64_t connected;
    _Atomic uint64_t accepted;
    _Atomic uint64_t setups_failed;
    _Atomic uint64_t introduced;
    _Atomic uint64_t rejected;
    _Atomic uint64_t turned_away;
    _Atomic uint64_t expired;
    _Atomic uint64_t evicted;
    _Atomic uint64_t dropped;
};

/* Counts order nothing: relaxed. Not for the data path. */
static inline void rdmux_count(_Atomic uint64_t *count)
{
    atomic_fetch_add_explicit(count, 1, memory_order_relaxed);
}

static inline void rdmux_uncount(_Atomic uint64_t *count)
{
    atomic_fetch_sub_explicit(count, 1, memory_order_relaxed);
}

struct rdmux_fabric {
    struct rdmux_hooks hooks; /* first member, see rdmux_hooks_of() */
    const struct rdmux_life *life;
    const struct rdmux_failover_hooks *failover_hooks;
    const uint32_t *alive;   /* a page that fork wipes: 0 in a child */
    struct rdmux_auth *auth; /* NULL: peers do not authenticate */
    char filter[256];        /* names that both the attribute and the environment allow */
    uint8_t process[RDMUX_PROCESS_ID_SIZE];
    struct rdmux_registry registry;

    /* The order of locks is at the top of this file. */
    pthread_mutex_t setup_lock;
    struct rdmux_domain_slot domains[RDMUX_FABRIC_DOMAINS_MAX]; /* setup_lock */
    size_t domain_count;

    pthread_mutex_t lock; /* guards the fields down to figures */
    struct rdmux_list cqs;
    struct rdmux_list listeners;
    struct rdmux_list regions;
    struct rdmux_peer_process *peer_buckets[RDMUX_PEER_BUCKETS]; /* peer_process.c */
    struct rdmux_list joins; /* endpoints that data sockets may join, by join_link */
    struct rdmux_list
        reconnects; /* rdmux_reconnect of endpoints whose control channel may be dialled again */
    size_t region_count;
    uint64_t region_bytes;                                         /* sum of their lengths */
    struct rdmux_mr *region_buckets[RDMUX_REGION_BUCKETS];         /* mr_table.c */
    struct rdmux_importer *importer_buckets[RDMUX_REGION_BUCKETS]; /* importers.c */

    struct rdmux_figures *figures; /* measure.c; NULL: no measurement yet */

    struct rdmux_region_table *table; /* target.c */
    /* Living regions by their bytes, from creation's end on. Changes: setup_lock. */
    struct rdmux_span_index *spans;
    struct rdmux_list served_cqs; /* cq_service.c; step_lock */
    /* shake.c; NULL before the first handshake of a pending connection; step_lock */
    struct rdmux_shakes *shakes;
    struct rdmux_shared_stats *shared_stats; /* shared_stats.c; NULL: they are not shared */
    struct rdmux_fabric_counts counts;
    _Atomic uint64_t next_id; /* next id of endpoints and connections */
    long processors;          /* online processors */
    bool has_membarrier;      /* MEMBARRIER_CMD_PRIVATE_EXPEDITED works; else cq owners fence */
};

_Static_assert(offsetof(struct rdmux_fabric, hooks) == 0, "rdmux_hooks_of() relies on it");

#endif
