/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * The core's objects: this folder has their structs, the layers above have their functions.
 *
 * Access:
 *   cq domain      rdmux_cq, its endpoints, SRQs, remotes, provider cqs and provider endpoints: the
 *                  cq's owner alone, between rdmux_cq_enter() and rdmux_cq_leave() (an
 *                  application's call) or while the service thread holds the claim.
 *   fabric->lock   Lists of cqs, listeners, regions, domains; a listener's connections; a region's
 *                  importers. Never taken on the data path, never held while a provider's operation
 *                  runs, except domain_open and mr_register of domains.
 *   atomics        As their comment says.
 *
 * Lock order: the service's step_lock; a cq's claim_lock; fabric->setup_lock; fabric->lock; then leaves:
 * a cq's mail_lock, the service's call_lock, the worker's job_lock, the bounce buffers' copy_lock.
 */
#ifndef RDMUX_API_CORE_FABRIC_H
#define RDMUX_API_CORE_FABRIC_H

#include "api/base/compiler.h"
#include "api/base/error.h"
#include "api/base/hooks.h"
#include "api/base/list.h"
#include "api/base/secrets.h"
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
    RDMUX_INLINE_MAX = 1024,   /* most that RDMUX_INLINE is granted */
    RDMUX_CQ_DOMAINS_MAX = 16, /* provider domains one cq can be attached to */
    RDMUX_FABRIC_DOMAINS_MAX = 32,
    RDMUX_REGION_BUCKETS = 1024, /* chains of regions by id, and of importers by endpoint */
    RDMUX_EP_BUCKETS = 1024,     /* chains of a cq's endpoints by id */
    RDMUX_LINGER_MS = 1000,      /* the end of a peer waits that long for the next receive */
};

/* A domain in use: a device of a provider, with the path it was opened for. Never closed before the
 * fabric. */
struct rdmux_domain_slot {
    const struct rdmux_provider_ops *ops;
    struct rdmux_local_path path;
    struct rdmux_provider_domain *domain;
    struct rdmux_watch events; /* on the device's domain_fd */
    _Atomic bool gone;         /* the device */
};

/* What a cq and the data path ask of the layers above them: how an endpoint goes on that is not in the middle of its life,
 * or has something besides requests. fabric.c brings them. Owner. */
struct rdmux_life {
    /* One of cq->busy: set-up, a move or the end goes on. */
    void (*step)(struct rdmux_ep *ep);
    /* The same of one that is connected, as the cq is about to sleep. Returns whether anything was done. */
    bool (*quiet)(struct rdmux_ep *ep);
    /* Something is there for it in set-up. */
    void (*set_up)(struct rdmux_ep *ep);
    /* Carries out what its handshake asks for. */
    void (*negotiate)(struct rdmux_ep *ep);
    /* Its provider said that it has failed. */
    void (*fault)(struct rdmux_ep *ep);
    /* Requests were drained, and it has something else: control messages, a move, an end that waits for receives. */
    void (*tend)(struct rdmux_ep *ep);
    /* A receive was posted while its end waits for receives. */
    void (*linger_anew)(struct rdmux_ep *ep);
    /* Something has happened on its control channel. */
    void (*control_ready)(struct rdmux_ep *ep);
    /* An rdma:// endpoint is shutting down. Returns whether to call again. */
    bool (*plain_shutdown)(struct rdmux_ep *ep);
    /* It is closed, and what its set-up has left behind goes. */
    void (*leave_set_up)(struct rdmux_ep *ep);
    uint64_t (*deadline)(const struct rdmux_ep *ep); /* UINT64_MAX: none */
    void (*timers)(struct rdmux_ep *ep, uint64_t now_ns);
    /* Closes one that nobody has a handle of; frees one that is closed. */
    void (*dismantle)(struct rdmux_ep *ep);
    void (*free)(struct rdmux_ep *ep);
};

/*
 * What an endpoint that outlives its path adds, called by the files below failover. Each member is called
 * only where ep->failover is not NULL, so an endpoint without failover pays for that test alone. Owner.
 */
struct rdmux_failover_hooks {
    /* Requests that may go to the path, of `run` from the send ring's `next` on. */
    uint64_t (*run)(struct rdmux_ep *ep, uint64_t run);
    /* Counts receives, and confirms requests. */
    void (*confirm)(struct rdmux_ep *ep);
    /* Is the path that failed another one than the endpoint's? */
    bool (*ignores)(const struct rdmux_ep *ep, const struct rdmux_provider_ep *path);
    /* An import is on another path; requests that name it follow. */
    void (*remote_cut)(struct rdmux_ep *ep, const struct rdmux_provider_remote *from,
                       struct rdmux_provider_remote *to);
    /* The path or the peer fails. Returns false if that is the endpoint's end. */
    bool (*takes_fault)(struct rdmux_ep *ep);
    bool (*takes_silence)(struct rdmux_ep *ep, const char *text);
    /* Goes on with what is due. */
    void (*step)(struct rdmux_ep *ep);
    /* A control message of failover. */
    void (*message)(struct rdmux_ep *ep, const struct rdmux_message *message);
    /* Tells the peer which messages have been received. */
    void (*tell_received)(struct rdmux_ep *ep);
    /* A revocation was sent to the peer, or answered by it. */
    void (*revocation)(struct rdmux_ep *ep, uint64_t region, uint32_t number, bool is_answered);
    /* The endpoint ends: gives up a move; fails unconfirmed requests; leaves the control channel; frees. */
    void (*abandon)(struct rdmux_ep *ep);
    void (*end_requests)(struct rdmux_ep *ep);
    void (*leave_channel)(struct rdmux_ep *ep);
    void (*destroy)(struct rdmux_ep *ep);
};

struct rdmux_fabric {
    struct rdmux_hooks hooks; /* first, see rdmux_hooks_of() */
    const struct rdmux_life *life;
    const struct rdmux_failover_hooks *failover_hooks;
    const uint32_t *alive;   /* a page that fork wipes: 0 in a child */
    struct rdmux_auth *auth; /* NULL: nobody authenticates */
    char filter[256];        /* attribute and environment intersected: names of what is left */
    uint8_t process[RDMUX_PROCESS_ID_SIZE];
    struct rdmux_registry registry;

    /* Domains and the registrations of regions with them; before lock. */
    pthread_mutex_t setup_lock;
    struct rdmux_domain_slot domains[RDMUX_FABRIC_DOMAINS_MAX]; /* setup_lock */
    size_t domain_count;

    pthread_mutex_t lock;
    struct rdmux_list cqs;
    struct rdmux_list listeners;
    struct rdmux_list regions;
    struct rdmux_list peers; /* rdmux_peer_process */
    struct rdmux_list joins; /* endpoints that sockets may join, by join_link */
    struct rdmux_list
        resumes; /* rdmux_resume of endpoints whose control channel may be dialled again */
    size_t region_count;
    struct rdmux_mr *region_buckets[RDMUX_REGION_BUCKETS];         /* mr.c */
    struct rdmux_importer *importer_buckets[RDMUX_REGION_BUCKETS]; /* mr.c */

    struct rdmux_figures *figures; /* measure.c; lock; NULL: nothing was measured */

    struct rdmux_region_table *table; /* target.c */
    struct rdmux_list served_cqs;     /* cq_service.c; step_lock */
    struct rdmux_shakes *shakes; /* shake.c; NULL before the first handshake of a stranger; step_lock */
    _Atomic uint64_t next_id; /* endpoints, connections */
    long processors;          /* that are online */
    bool membarrier;          /* MEMBARRIER_CMD_PRIVATE_EXPEDITED works; else cq owners fence */
};

_Static_assert(offsetof(struct rdmux_fabric, hooks) == 0, "rdmux_hooks_of() relies on it");

#endif
