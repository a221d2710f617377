/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * The core's objects, shared by the files of api/ and providers/. docs/ARCHITECTURE.md tells who
 * calls whom.
 *
 * Who may touch what:
 *   cq domain      rdmux_cq, its endpoints, SRQs, remotes, provider cqs and provider endpoints: the
 *                  cq's owner alone, between rdmux_cq_enter() and rdmux_cq_leave() (an
 *                  application's call) or while the service thread holds the claim.
 *   fabric->lock   Lists of cqs, listeners, regions, domains; a listener's connections; a region's
 *                  importers. Leaf lock but for cq->mail_lock. Never taken on the data path, never
 *                  held while a provider's operation runs, except domain_open and mr_register of
 *                  domains (fabric->setup_lock, taken before fabric->lock).
 *   atomics        As their comment says.
 */
#ifndef RDMUX_API_CORE_H
#define RDMUX_API_CORE_H

#include "api/base/compiler.h"
#include "api/base/error.h"
#include "api/base/hooks.h"
#include "api/base/list.h"
#include "api/base/secrets.h"
#include "api/progress/service.h"
#include "api/progress/worker.h"
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

/* ------------------------------------------------------------------ fabric (fabric.c, registry) */

/* A domain in use: a device of a provider, with the path it was opened for. Never closed before the
 * fabric. */
struct rdmux_domain_slot {
    const struct rdmux_provider_ops *ops;
    struct rdmux_local_path path;
    struct rdmux_provider_domain *domain;
    struct rdmux_watch events; /* on the device's domain_fd */
    _Atomic bool gone;         /* the device */
};

enum { RDMUX_HEARTBEAT_GROUP_KEY_SIZE = 24 };

/* A process at the other end: endpoints between the same two share one heartbeat. fabric->lock
 * guards lists and refs. */
struct rdmux_peer_process {
    struct rdmux_list link;
    struct rdmux_list heartbeat_groups;
    uint8_t id[RDMUX_PROCESS_ID_SIZE];
    uint32_t refs;
    _Atomic uint64_t heard_ns; /* last sign of life on any control channel */
};

/* The endpoints that one heartbeat of ours is for. The id is what a peer says of itself, and strangers
 * can learn it: so the address and the identity that it comes with have to be the same, too. */
struct rdmux_heartbeat_group {
    struct rdmux_list link;
    uint32_t refs;
    uint8_t from[RDMUX_HEARTBEAT_GROUP_KEY_SIZE];
    char identity[RDMUX_IDENTITY_MAX];
    _Atomic uint64_t sent_ns; /* the last one */
};

/* last_explanation.c: keeps an explanation for rdmux_last_explanation(); takes ownership; NULL forgets. */
void rdmux_set_last_explanation(struct rdmux_explanation *explanation);

struct rdmux_ep;

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

/* The domain for a path, opened when first asked for (and then all living regions registered with
 * it). */
enum rdmux_status rdmux_fabric_domain(struct rdmux_fabric *fabric,
                                      const struct rdmux_provider_ops *ops,
                                      const struct rdmux_local_path *path,
                                      struct rdmux_provider_domain **out);
/* The same without opening: false if it is not open, or somebody is opening one just now. Never waits. */
bool rdmux_fabric_domain_is_open(struct rdmux_fabric *fabric, const struct rdmux_provider_ops *ops,
                                 const struct rdmux_local_path *path);
/* RDMUX_INVALID: no filter, or one that names a provider nobody knows. source names it in the
 * text. */
enum rdmux_status rdmux_fabric_check_filter(struct rdmux_fabric *fabric, const char *source,
                                            const char *filter);
/* fabric->filter: the names that the attribute and the environment both let through. */
enum rdmux_status rdmux_fabric_intersect_filters(struct rdmux_fabric *fabric, const char *attribute,
                                                 const char *environment);
/* A provider by name, NULL if absent. */
const struct rdmux_provider_ops *rdmux_fabric_provider(const struct rdmux_fabric *fabric,
                                                       const char *name);
/* Is this device in good order now? False where that cannot be found out. */
bool rdmux_fabric_path_is_usable(struct rdmux_fabric *fabric, const char *provider,
                                 const char *device);
struct rdmux_peer_process *rdmux_peer_get(struct rdmux_fabric *fabric,
                                          const uint8_t id[RDMUX_PROCESS_ID_SIZE]);
/* What this fabric says of itself. */
void rdmux_hello_fill(struct rdmux_fabric *fabric, struct rdmux_hello *hello);
/* An offer with the fabric's paths and filter, this second filter, and every wish at its
 * default. */
void rdmux_offer_defaults(struct rdmux_fabric *fabric, const char *paths, struct rdmux_offer *offer);
void rdmux_peer_put(struct rdmux_fabric *fabric, struct rdmux_peer_process *peer);
/* All of them, of a fabric without endpoints. */
void rdmux_peers_free(struct rdmux_fabric *fabric);
/* peer_process.c: the group of an endpoint with a peer and a channel. NULL: no memory. */
struct rdmux_heartbeat_group *rdmux_heartbeat_group_get(struct rdmux_ep *ep);
void rdmux_heartbeat_group_put(struct rdmux_fabric *fabric, struct rdmux_heartbeat_group *group);
/* The endpoint has another control channel, perhaps to another address. */
void rdmux_heartbeat_group_renew(struct rdmux_ep *ep);

/* --------------------------------------------------------------------- regions (mr.c, target.c) */

/* An endpoint that imported a region. fabric->lock. */
struct rdmux_importer {
    struct rdmux_list link; /* in mr->importers */
    struct rdmux_importer *bucket_next;
    struct rdmux_mr *mr;
    struct rdmux_cq *cq;
    uint64_t ep_id;
    uint32_t first_id; /* of the oldest import that is counted; 0: none was told */
    uint32_t imports;  /* that the peer has not closed; 0: kept for reads that linger */
    bool is_awaited;   /* counted in mr->revoke_awaited and cq->revocations */
};

/* A region's registration with one domain. */
struct rdmux_registration {
    struct rdmux_provider_domain *domain;
    struct rdmux_provider_mr *mr;
};

/* Of a region that was exported; a piece of secrets.c's. */
struct rdmux_mr_secrets {
    struct rdmux_token token;
    uint8_t grant[RDMUX_SECRET_SIZE]; /* the peers' tokens are made of it */
};

/* Of an endpoint's connection; the same. */
struct rdmux_ep_secrets {
    uint8_t secret[RDMUX_SECRET_SIZE];
    uint8_t join_name[RDMUX_SECRET_SIZE]; /* of the secret, where sockets join sealed */
};
_Static_assert(sizeof(struct rdmux_mr_secrets) <= RDMUX_SECRET_PIECE &&
                   sizeof(struct rdmux_ep_secrets) <= RDMUX_SECRET_PIECE &&
                   sizeof(struct rdmux_token) <= RDMUX_SECRET_PIECE,
               "they fit");

struct rdmux_mr {
    struct rdmux_fabric *fabric;
    void *addr;
    size_t length;
    uint32_t access;
    uint32_t ordering;
    int memory_fd;          /* memfd of rdmux_mr_alloc(), -1 else */
    bool allocated;         /* unmap at the end */
    size_t mapped_size;     /* then */
    uint32_t index;         /* in the region table */
    uint64_t id;            /* never used again in the fabric's life */
    struct rdmux_list link; /* fabric->regions */
    bool exported;          /* fabric->lock, with token and importers */
    bool granted;           /* exported to single peers, with secrets->grant; fabric->lock */
    bool given_raw;         /* its key was, by rdmux_mr_raw(); fabric->lock */
    struct rdmux_mr_secrets *secrets; /* NULL: it was never exported; fabric->lock */
    struct rdmux_list importers;
    uint32_t revoke_number;  /* of the revocation under way */
    uint32_t revoke_awaited; /* importers that have not answered yet what was asked last */
    bool revoking;           /* fabric->lock, with the three below */
    uint32_t importing;      /* rdmux_mr_import() without its import_done */
    pthread_cond_t changed;  /* of the fields above, with fabric->lock; CLOCK_MONOTONIC */
    struct rdmux_mr *bucket_next;
    /* setup_lock for writing; only grows while an endpoint may look. */
    _Atomic size_t registration_count;
    struct rdmux_registration registrations[RDMUX_FABRIC_DOMAINS_MAX];
};

/* This region's registration with a domain, NULL if there is none. [data path] */
static inline struct rdmux_provider_mr *rdmux_mr_with(const struct rdmux_mr *mr,
                                                      const struct rdmux_provider_domain *domain)
{
    size_t count = atomic_load_explicit(&mr->registration_count, memory_order_acquire);
    for (size_t i = 0; i < count; i++) {
        if (mr->registrations[i].domain == domain) {
            return mr->registrations[i].mr;
        }
    }
    return NULL;
}
/* Registers all living regions with a domain just opened; setup_lock is held. */
enum rdmux_status rdmux_mr_register_all(struct rdmux_fabric *fabric,
                                        struct rdmux_provider_domain *domain);
/* Takes the domains' registrations away from all regions; called when the fabric closes. */
void rdmux_mr_domain_gone(struct rdmux_fabric *fabric, struct rdmux_provider_domain *domain);
/* Finds the region of a token that was exported here, to everybody or to this identity ("" if the
 * peer has none), and not revoked, notes the importer (once per endpoint) and counts its imports, and returns it with its
 * describing registration; the region cannot be deregistered while rdmux_mr_import_done() has not
 * been called. */
enum rdmux_status rdmux_mr_import(struct rdmux_fabric *fabric, const struct rdmux_token *token,
                                  const char *identity, struct rdmux_cq *cq, uint64_t ep_id,
                                  struct rdmux_provider_domain *domain, struct rdmux_mr **out,
                                  struct rdmux_provider_mr **registration);
void rdmux_mr_import_done(struct rdmux_mr *mr);
/* The endpoint's peer is told of the import, by this number of its own. */
void rdmux_mr_import_granted(struct rdmux_mr *mr, uint64_t ep_id, uint32_t id);
/* The peer has closed so many of them, the last of which has this number. lingers: its device may go
 * on answering reads, so the endpoint is still looked at when rights are taken back. */
void rdmux_mr_import_closed(struct rdmux_fabric *fabric, uint64_t region, uint64_t ep_id,
                            uint32_t id, uint32_t count, bool lingers);
/* The living region of this id, or NULL. fabric->lock is held. */
struct rdmux_mr *rdmux_mr_find(struct rdmux_fabric *fabric, uint64_t id);

/* The region that a registration is of, NULL if it has gone; the same for a region. */
struct rdmux_mr *rdmux_mr_of(struct rdmux_fabric *fabric,
                             const struct rdmux_provider_mr *registration);
bool rdmux_mr_is_there(struct rdmux_fabric *fabric, const struct rdmux_mr *mr);

/* revoke.c. Notes that the endpoint imports the region, once. fabric->lock is held. */
enum rdmux_status rdmux_mr_note_importer(struct rdmux_mr *mr, struct rdmux_cq *cq, uint64_t ep_id);
/* Takes all remote rights back; again: the region lives on, its registrations are invalidated, and it
 * has a fresh key for later exports. */
enum rdmux_status rdmux_mr_take_back(struct rdmux_mr *mr, bool again);
/* Are these the bytes of a token, of a version known here? Says nothing about its region. */
bool rdmux_token_is_valid(const struct rdmux_token *token);
/* The importer answered revocation `number` of region id. */
void rdmux_mr_revoke_answered(struct rdmux_fabric *fabric, uint64_t region, uint32_t number,
                              uint64_t ep_id);
/* An endpoint has ended: it imports nothing and answers nothing any more. */
void rdmux_mr_importer_gone(struct rdmux_fabric *fabric, uint64_t ep_id);
/* Has the peer of this endpoint imported a region of ours with any of these rights, which was not revoked since? */
bool rdmux_mr_has_importer(struct rdmux_fabric *fabric, uint64_t ep_id, uint32_t access);

/* target.c: the software target side's table, made and freed with the fabric. */
enum rdmux_status rdmux_region_table_create(struct rdmux_fabric *fabric);
void rdmux_region_table_destroy(struct rdmux_fabric *fabric);
/* Gives mr an index and a fresh random key; fabric->lock is held. */
enum rdmux_status rdmux_region_table_add(struct rdmux_fabric *fabric, struct rdmux_mr *mr);
/* Takes the entry away and waits until no cq's owner is inside the region (hazard, below). Not on
 * the data path, no lock held. */
void rdmux_region_table_remove(struct rdmux_fabric *fabric, struct rdmux_mr *mr);

/* ----------------------------------------------------------------------------------------- mail */

/* Something another thread wants a cq's owner to do. */
struct rdmux_mail {
    struct rdmux_mail *next;
    void (*deliver)(struct rdmux_cq *cq, struct rdmux_mail *mail); /* frees the mail */
};

/* A revocation for an endpoint to send to its peer. Allocated and delivered by revoke.c. */
struct rdmux_revoke_mail {
    struct rdmux_mail mail;
    uint64_t ep_id;
    uint64_t region;
    uint32_t number;
};
void rdmux_revoke_deliver(struct rdmux_cq *cq, struct rdmux_mail *mail);
/* Posts a PLACED write of nothing, a request of the core's own (control.c). False: not now, or the path
 * has failed. */
bool rdmux_ep_flush(struct rdmux_ep *ep, struct rdmux_request *flush);

/* read_drain.c: the same for what the device may still be sending to a peer's reads. The endpoint answers
 * once nothing of it is under way; or it ends. */
void rdmux_ep_deliver_read_drain(struct rdmux_cq *cq, struct rdmux_mail *mail);
void rdmux_ep_deliver_read_drain_end(struct rdmux_cq *cq, struct rdmux_mail *mail);
/* More to do? */
bool rdmux_read_drain_step(struct rdmux_ep *ep);
void rdmux_read_drain_leave(struct rdmux_ep *ep);
/* The path is closed, the endpoint lives on: nothing is under way to the peer any more. */
void rdmux_read_drain_cut(struct rdmux_ep *ep);

/* Owner: something goes to the worker that will mail the cq. Worker: it has. rdmux_cq_destroy() waits for the pair. */
void rdmux_cq_job_begins(struct rdmux_cq *cq);
void rdmux_cq_job_ends(struct rdmux_cq *cq);

/* Any thread; takes ownership; fabric->lock may be held. */
void rdmux_cq_mail(struct rdmux_cq *cq, struct rdmux_mail *mail);

/* ------------------------------------------------------------------------------------ cq (cq.c) */

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

struct rdmux_timer; /* endpoint_table.c */

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

/* Any thread: sets bits of the signal. The lane's limit falls as well, which is all that a write
 * over the lane looks at. */
void rdmux_cq_raise(struct rdmux_cq *cq, uint32_t bits);

bool rdmux_cq_enter_slow(struct rdmux_cq *cq);
static inline bool rdmux_cq_is_armed(const struct rdmux_cq *cq)
{
    return atomic_load_explicit(&cq->armed, memory_order_relaxed) == RDMUX_ARMED;
}
/* Owner: keeps the descriptor of an armed cq readable, or lets it sleep again. */
void rdmux_cq_tell(struct rdmux_cq *cq);
void rdmux_cq_untell(struct rdmux_cq *cq, enum rdmux_arming next);
/* Any thread: makes the owner attend, and wakes whoever sleeps on the cq. */
void rdmux_cq_poke(struct rdmux_cq *cq);

/* Begins an application's call. false: the process forked, nothing may be done. [data path] */
static inline bool rdmux_cq_enter(struct rdmux_cq *cq)
{
    atomic_store_explicit(&cq->calls, atomic_load_explicit(&cq->calls, memory_order_relaxed) + 1,
                          memory_order_relaxed);
    uint32_t signal;
    if (RDMUX_TSAN || RDMUX_UNLIKELY(cq->fence)) {
        atomic_exchange_explicit(rdmux_cq_inside(cq), RDMUX_LANE_INSIDE, memory_order_seq_cst);
        signal = atomic_load_explicit(rdmux_cq_signal(cq), memory_order_seq_cst);
    } else {
        atomic_store_explicit(rdmux_cq_inside(cq), RDMUX_LANE_INSIDE, memory_order_relaxed);
        atomic_signal_fence(memory_order_seq_cst); /* rdmux_cq_claim()'s membarrier completes it */
        signal = atomic_load_explicit(rdmux_cq_signal(cq), memory_order_acquire);
    }
    if (RDMUX_UNLIKELY((signal & ~(uint32_t)RDMUX_SIGNAL_ATTEND) != RDMUX_SIGNAL_ALIVE)) {
        return rdmux_cq_enter_slow(cq);
    }
    return true;
}

/* Ends it. Pairs with the acquire load of `inside` in rdmux_cq_claim(). [data path] */
static inline void rdmux_cq_leave(struct rdmux_cq *cq)
{
    atomic_store_explicit(rdmux_cq_inside(cq), RDMUX_LANE_AWAY, memory_order_release);
}

/* Service thread: tries to own the cq; false if an application's call is inside. */
bool rdmux_cq_claim(struct rdmux_cq *cq);
void rdmux_cq_release_claim(struct rdmux_cq *cq);
/* Owner: mail, control channels, timers. */
void rdmux_cq_attend(struct rdmux_cq *cq);
/* Owner: one bounded round of progress: doorbells, providers, attended things. Returns whether
 * anything was done. */
bool rdmux_cq_progress(struct rdmux_cq *cq);
/* Owner: lets endpoints go on although nobody takes entries: resumes, held requests, faults.
 * Returns whether to do so again at once. */
bool rdmux_cq_move(struct rdmux_cq *cq);
/* Owner: puts the providers to sleep; true: something is there already. */
bool rdmux_cq_arm_providers(struct rdmux_cq *cq);
/* Owner: an endpoint has something to return (idempotent). */
static inline void rdmux_cq_pend(struct rdmux_cq *cq, struct rdmux_ep *ep);
/* endpoint_table.c. Owner: the endpoint is one of the cq's from now on, or no more. RDMUX_NO_MEMORY. */
enum rdmux_status rdmux_cq_enrol(struct rdmux_cq *cq, struct rdmux_ep *ep);
void rdmux_cq_strike(struct rdmux_cq *cq, struct rdmux_ep *ep);
/* Owner: the endpoint with this id, NULL if it has gone. */
struct rdmux_ep *rdmux_cq_endpoint(struct rdmux_cq *cq, uint64_t id);
/* Owner: what rdmux_ep_deadline() returns has changed. */
void rdmux_ep_timer(struct rdmux_ep *ep);
/* Owner: calls rdmux_ep_timers() of those that are due. */
void rdmux_cq_run_timers(struct rdmux_cq *cq);
/* Owner: ends endpoints that rdmux_accept() can return no more: their listener is closed. */
void rdmux_cq_drop_orphans(struct rdmux_cq *cq);
/* Owner, inside a call: progresses the cq and sleeps until done(user) or the time is over. RDMUX_OK
 * or RDMUX_TIMED_OUT. timeout_ms as in rdmux.h. */
enum rdmux_status rdmux_cq_wait_until(struct rdmux_cq *cq, bool (*done)(void *user), void *user,
                                      int timeout_ms);
/* Owner: the provider cq on a domain, opened when first asked for. */
enum rdmux_status rdmux_cq_domain(struct rdmux_cq *cq, struct rdmux_provider_domain *domain,
                                  uint32_t depth, struct rdmux_provider_cq **out);
/* Owner: one endpoint more or less is open on it. */
void rdmux_cq_domain_enter(struct rdmux_provider_cq *provider_cq);
void rdmux_cq_domain_leave(struct rdmux_provider_cq *provider_cq);
/* Owner: room for entries; RDMUX_NO_MEMORY. */
enum rdmux_status rdmux_cq_reserve(struct rdmux_cq *cq, uint64_t entries);
void rdmux_cq_unreserve(struct rdmux_cq *cq, uint64_t entries);

/* ------------------------------------------------------------------------------ control channel */

/* negotiation/control_channel.h */
struct rdmux_channel;

/* ------------------------------------------------------------------------------------- endpoint */

/* A ring of request records with their scatter/gather lists. Counters only grow; index = counter &
 * mask. */
struct rdmux_ring {
    struct rdmux_request *records;
    struct rdmux_provider_sge *sges; /* max_sge for each record */
    /* max_inline for each record, for inline requests that have to wait; sends only. */
    uint8_t *inline_data;
    uint32_t mask;
    uint32_t depth;
    uint32_t max_sge;
    uint32_t max_inline;
    uint64_t head;    /* posted */
    uint64_t offered; /* receives of a path that needs keys: given to the provider */
    /* Send side: given to the provider. Receives: taken by the provider's matching. */
    uint64_t next;
    uint64_t tail; /* returned to the application */
};

/* rdmux_ep.phase */
enum rdmux_ep_phase {
    RDMUX_PHASE_SETUP, /* negotiating */
    RDMUX_PHASE_READY, /* requests go to the path */
    /* The peer has ended; messages that came before wait for receives. */
    RDMUX_PHASE_LINGERING,
    RDMUX_PHASE_ENDING, /* failed or ended; the provider still drains */
    RDMUX_PHASE_ENDED,  /* everything is done; completions may still wait to be returned */
    RDMUX_PHASE_CLOSED, /* only rdmux_ep_user() */
};

/* rdmux_ep.events: what waits to be returned besides requests */
enum {
    RDMUX_EVENT_CONNECTED = 1 << 0,
    RDMUX_EVENT_DISCONNECTED = 1 << 1,
    RDMUX_EVENT_WRITABLE = 1 << 2,
    /* Nothing is returned yet: rdmux_accept() has not given the endpoint to anybody. */
    RDMUX_EVENT_HELD = 1 << 3,
    RDMUX_EVENT_MOVED = 1 << 4,
};

/* rdmux_ep.work: what is to be looked at after requests were done */
enum {
    RDMUX_WORK_CONTROL = 1 << 0,  /* something for rdmux_ep_control_step() */
    RDMUX_WORK_FAILOVER = 1 << 1, /* the endpoint has failover: always */
};

/* A control frame that waits to be handled outside the provider's call. */
struct rdmux_inbox {
    struct rdmux_inbox *next;
    size_t size;
    uint8_t frame[];
};

struct rdmux_setup;    /* connection.c: what only negotiation needs */
struct rdmux_bounce;   /* bounce.h */
struct rdmux_segments; /* segments.h */
struct rdmux_failover; /* failover.h */

/* Where an endpoint was accepted, as long as rdmux_accept() has not returned it: a listener. */
struct rdmux_acceptor {
    uint32_t timeout_ms; /* the longest time that it waits; 0: no limit */
    /* Nobody will take the endpoint any more. */
    bool (*is_closed)(struct rdmux_acceptor *acceptor);
    /* One connected endpoint more, or less, waits to be returned; the descriptor of the listener follows. */
    void (*count)(struct rdmux_acceptor *acceptor, int change);
    /* The endpoint is taken, or given up. */
    void (*release)(struct rdmux_ep *ep);
};

struct rdmux_ep {
    /* Data path first. The cq's lane while that is this endpoint's, else one that is closed. */
    struct rdmux_lane *lane;
    const struct rdmux_provider_ops *ops; /* of the path */
    struct rdmux_provider_ep *path;       /* NULL until committed */
    struct rdmux_cq *cq;
    uint32_t phase;  /* enum rdmux_ep_phase */
    uint32_t events; /* RDMUX_EVENT_* */
    bool blocked;    /* post said AGAIN; waits for resume */
    bool pending;    /* on cq->pending */
    bool want_writable;
    bool receives_first; /* the last poll had no room for receives: they come before sends now */
    bool doorbell_held;
    uint8_t work;          /* RDMUX_WORK_* */
    _Atomic bool has_lane; /* the path may have the cq's lane, see lane.h */
    bool shutdown_asked;
    bool receives_wait;          /* for keys: some of the ring are not with the provider yet */
    bool srq_news;               /* rdmux_srq_tell() is to be called */
    uint32_t fault;              /* status of rdmux_provider_failed(), handled at the next drain */
    struct rdmux_bounce *bounce; /* NULL: the path needs none */
    struct rdmux_segments *segments; /* NULL: no request is too long for the path */
    struct rdmux_failover *failover; /* NULL: none */
    uint64_t fenced_until;           /* requests from this sequence on have no RDMUX_FENCE */
    struct rdmux_provider_domain *domain;
    struct rdmux_ring send;
    struct rdmux_ring recv;
    uint64_t max_send;
    uint64_t max_recv;
    uint64_t caps; /* native or emulated */
    /* Flags of requests that the path lacks: RDMUX_PLACED, RDMUX_FENCE. Where the peer is not rdmux
     * its provider looks. */
    uint32_t lacking_flags;
    uint32_t timer_place; /* in cq->timers */
    uint64_t max_inline;
    struct rdmux_srq *srq;
    struct rdmux_request *srq_done; /* receives of the SRQ done for this endpoint, oldest first */
    struct rdmux_request *srq_done_last;
    struct rdmux_request *srq_taken; /* receives of the SRQ that a message is filling */
    uint32_t srq_reserved; /* of its posted ones: set aside for this endpoint by its provider */
    uint32_t srq_offered;  /* by the core, as the endpoint waited for one */
    struct rdmux_list srq_link; /* srq->waiting */
    struct rdmux_list pending_link;
    struct rdmux_list busy_link;         /* cq->busy */
    const struct rdmux_plain_ops *plain; /* the peer is not rdmux; NULL: it is */
    struct rdmux_ep *doorbell_next;
    struct rdmux_ep_stats stats;

    /* Control. */
    uint64_t id;
    struct rdmux_fabric *fabric;
    struct rdmux_list link;       /* cq->eps */
    struct rdmux_ep *bucket_next; /* in cq->ep_buckets */
    struct rdmux_list join_link;  /* fabric->joins, fabric->lock */
    struct rdmux_channel *channel;
    struct rdmux_setup *setup; /* NULL once connected or failed */
    struct rdmux_peer_process *peer;
    struct rdmux_heartbeat_group *heartbeat_group;
    struct rdmux_list remotes;
    struct rdmux_list ready_remotes; /* whose REMOTE_READY waits */
    struct rdmux_inbox
        *inbox; /* control frames that came through a path sharing the socket, oldest first */
    struct rdmux_inbox *inbox_last;
    struct rdmux_request flush_request; /* shutdown's own */
    bool flush_posted;
    struct rdmux_revoke_mail *to_drain; /* read_drain.c: of the next request, newest first */
    struct rdmux_revoke_mail *draining; /* of the one that is posted */
    struct rdmux_request drain_request;
    bool cause_told; /* a request that failed was returned */
    bool in_doubt;   /* requests with the provider end as OUTCOME_UNKNOWN */
    uint64_t connected_ns;
    uint32_t next_import;
    uint32_t status;       /* why it ended */
    uint32_t setup_status; /* how negotiation ended */
    char fault_text[RDMUX_TEXT_MAX];
    /* The path is gone; until then the control channel may say why. 0 = not so. */
    uint64_t fault_deadline_ns;
    bool is_unexplained;      /* it is, and does not say why: the peer is asked (SILENT) */
    bool silence_answered;    /* nobody knows */
    bool silence_asked;       /* the peer's is, and waits for what becomes of our requests */
    uint32_t awaited_revokes; /* REVOKE that were told, without REVOKED */
    bool announce;            /* an event tells the outcome of set-up */
    bool shutdown_sent;
    bool shutdown_quiet; /* a call waits for the end: no event */
    bool end_received;
    bool end_told; /* before it happened */
    uint64_t shutdown_deadline_ns;
    uint64_t heartbeat_ns; /* next */
    uint64_t looked_ns;    /* when liveness was last looked at */
    /* Since the peer was heard at missed_since_ns, time that this side did not run. */
    uint64_t missed_ns;
    uint64_t missed_since_ns;
    uint64_t ending_deadline_ns; /* of ENDING, LINGERING, and an end before rdmux_accept() */
    uint64_t starved_at;         /* recv.next + 1 when a message found no receive; 0: never */
    uint64_t reserved;
    uint64_t ping_head;              /* send.head when the last heartbeat went out */
    struct rdmux_acceptor *acceptor; /* rdmux_accept() has not returned it yet */
    struct rdmux_peer_quota *quota;  /* whom it is counted by there */
    struct rdmux_list accept_link;   /* cq->accepting */
    struct rdmux_list held_link;     /* cq->held */
    bool proved;
    enum rdmux_role role;
    void *user;
    struct rdmux_ep_info info; /* what does not change is filled in once */
    struct rdmux_provider_ep_attr path_attr;
    struct rdmux_local_path path_info;
    struct sockaddr_storage peer_sockaddr;
    socklen_t peer_sockaddr_length;
    struct sockaddr_storage local_sockaddr; /* attr.local as an address */
    socklen_t local_sockaddr_length;        /* 0: none */
    uint32_t attempt;
    struct rdmux_ep_secrets *secrets;
    struct rdmux_candidate *candidates; /* the explanation's, kept */
    size_t candidate_count;
};

static inline void rdmux_cq_pend(struct rdmux_cq *cq, struct rdmux_ep *ep)
{
    if (!ep->pending) {
        ep->pending = true;
        rdmux_list_append(&cq->pending, &ep->pending_link);
        if (RDMUX_UNLIKELY(rdmux_cq_is_armed(cq))) {
            /* Another thread's post completed at once, or the service thread found it. */
            rdmux_cq_tell(cq);
        }
    }
}

/* Of the posted receives some are set aside: reserved by a provider, which has promised them to a
 * peer, or offered by the core to an endpoint that found none. The others are whoever's comes first.
 * Nobody waits while there is one of these. */
struct rdmux_srq_device;

struct rdmux_srq {
    struct rdmux_cq *cq;
    struct rdmux_ring ring;
    struct rdmux_request *free;   /* records not posted */
    struct rdmux_request *posted; /* oldest first */
    struct rdmux_request *posted_last;
    uint32_t posted_count;
    uint32_t set_aside;        /* of the posted ones; the sum of its endpoints' */
    struct rdmux_list waiting; /* endpoints that found none, oldest first, by srq_link */
    struct rdmux_mr **regions; /* of the pieces of each record, max_sge for each */
    uint16_t *counts;          /* pieces of each record */
    uint32_t used;             /* records posted, taken or not yet returned */
    size_t ep_count;
    uint64_t reserved;
    struct rdmux_provider_srq *provider[RDMUX_CQ_DOMAINS_MAX]; /* parallel to cq->domains */
    uint32_t users[RDMUX_CQ_DOMAINS_MAX];                      /* endpoints and trials on them */
    struct rdmux_srq_device *device; /* srq_device.h; NULL: the core matches messages with receives */
};

enum rdmux_remote_state {
    RDMUX_REMOTE_ASKING,
    RDMUX_REMOTE_READY,
    RDMUX_REMOTE_DEAD, /* refused, revoked, or the endpoint ended: status tells */
};

struct rdmux_remote {
    /* Data path first. For the lane, see rdmux_lane_aim(): */
    struct rdmux_lane_target target;
    const void *writer; /* ep, if that may write the region now; never NULL */
    /* From an offset below this every write that a lane takes is within the region. */
    uint64_t room;
    struct rdmux_ep *ep;
    struct rdmux_provider_remote *path; /* NULL unless READY */
    uint64_t length;
    uint32_t access;
    uint32_t state;    /* enum rdmux_remote_state */
    bool device_scope; /* atomics on it are another path's */
    uint32_t status;
    uint32_t id;
    uint32_t granted; /* answers that the peer counts as imports of this endpoint */
    uint64_t region;
    struct rdmux_token *token;    /* a piece of secrets.c's; NULL: raw, or it is needed no more */
    struct rdmux_list link;       /* ep->remotes */
    struct rdmux_list ready_link; /* ep->ready_remotes */
    bool announce;
    bool closed;
    bool revoking; /* drains, then answers */
    uint32_t revoke_number;
    uint64_t drain_until; /* send-side sequence up to which requests may still use it */
    struct rdmux_provider_remote limbo; /* path, while failover has not resolved it anew */
};

/* ep.c */
enum rdmux_status rdmux_ep_create(struct rdmux_fabric *fabric, struct rdmux_cq *cq,
                                  const struct rdmux_ep_attr *attr, struct rdmux_ep **out);
/* Fills attr from the caller's, checks every field, sets defaults. */
enum rdmux_status rdmux_ep_attr_check(const struct rdmux_ep_attr *from, struct rdmux_fabric *fabric,
                                      struct rdmux_cq *cq, struct rdmux_ep_attr *to);
/* Owner: negotiation gave the endpoint its path; requests may start. */
void rdmux_ep_attach(struct rdmux_ep *ep, struct rdmux_provider_ep *path);
/* Owner: closes a path that is or was the endpoint's, with all that the endpoint has on it. */
void rdmux_ep_close_path(struct rdmux_ep *ep, struct rdmux_provider_ep *path);
/* Owner: ends the endpoint; the first cause counts. Idempotent. */
void rdmux_ep_fail(struct rdmux_ep *ep, enum rdmux_status status, const char *format, ...)
    RDMUX_PRINTF(3, 4);
/* Owner: goes on with an endpoint in ENDING. */
void rdmux_ep_end_step(struct rdmux_ep *ep);
/* Owner: goes on with an endpoint in LINGERING, which ends once no message waits. */
void rdmux_ep_linger_step(struct rdmux_ep *ep);
/* Owner: the time of an endpoint that lingers starts again: it has got a receive, or an owner. */
void rdmux_ep_linger_anew(struct rdmux_ep *ep);
/* When the time of an endpoint is over that lingers, or that ended before rdmux_accept() returned
 * it; UINT64_MAX: it is neither. Owner: it is over. */
uint64_t rdmux_ep_linger_deadline(const struct rdmux_ep *ep);
void rdmux_ep_linger_over(struct rdmux_ep *ep);
/* Can messages of the path still be given to receives? */
static inline bool rdmux_ep_delivers(const struct rdmux_ep *ep)
{
    return ep->phase - RDMUX_PHASE_READY <= RDMUX_PHASE_LINGERING - RDMUX_PHASE_READY;
}
/* Set-up succeeded, whatever has become of the endpoint since. */
static inline bool rdmux_ep_was_connected(const struct rdmux_ep *ep)
{
    return ep->phase != RDMUX_PHASE_SETUP && ep->setup_status == RDMUX_OK;
}
/* Owner: closes it; its memory goes at the next progress. Nobody may have its handle but
 * rdmux_ep_close(). */
void rdmux_ep_dismantle(struct rdmux_ep *ep);
/* Owner: frees a closed endpoint's memory. */
void rdmux_ep_free(struct rdmux_ep *ep);
/* Owner: moves what can move: resumes, held requests, faults, and returns nothing. */
void rdmux_ep_move(struct rdmux_ep *ep);
/* Owner: moves endpoints that are pended, of which there is one at least, and writes up to max entries (at least 1). */
size_t rdmux_cq_take(struct rdmux_cq *cq, struct rdmux_wc *wc, size_t max);
/* True while an entry could be returned. */
bool rdmux_ep_has_entries(const struct rdmux_ep *ep);
/* Owner: gives held requests to the provider as far as it takes them. */
void rdmux_ep_push(struct rdmux_ep *ep, bool more);
/* Owner: the path is new; tells it of the receives posted so far. */
void rdmux_ep_offer_all_receives(struct rdmux_ep *ep);
/* Owner: the path is another one; tells it of those from this place on, which have their registrations. */
void rdmux_ep_offer_receives_again(struct rdmux_ep *ep, uint64_t from);
/* Owner: the same for receives that waited for keys. */
void rdmux_ep_offer_waiting_receives(struct rdmux_ep *ep);
/* Owner: for a path that needs keys and gets receives before it is connected: those posted so far
 * find their registrations; then they are offered, until all are (true). */
void rdmux_ep_resolve_receives(struct rdmux_ep *ep);
bool rdmux_ep_offer_early_receives(struct rdmux_ep *ep);
/* All requests before this sequence are done. */
bool rdmux_ep_done_before(const struct rdmux_ep *ep, uint64_t sequence);
enum rdmux_status rdmux_ring_create(struct rdmux_fabric *fabric, struct rdmux_ring *ring,
                                    uint32_t depth, uint32_t max_sge, uint32_t max_inline);
void rdmux_ring_destroy(struct rdmux_fabric *fabric, struct rdmux_ring *ring);

/* srq.c */
/* Owner: a receive for the endpoint, now on ep->srq_taken; NULL: it waits for one. [data path] */
struct rdmux_request *rdmux_srq_take(struct rdmux_ep *ep);
/* Owner: receives that the endpoint could take now. */
uint32_t rdmux_srq_available(const struct rdmux_ep *ep);
/* Owner: tells the endpoint's provider what it was offered, or that others wait. */
void rdmux_srq_tell(struct rdmux_ep *ep);
/* Owner: the endpoint's path is gone: what was set aside for it is for others. */
void rdmux_srq_leave(struct rdmux_ep *ep);
/* A record goes back to the free ones (returned to the application) or to the front of the posted
 * (its endpoint closed). */
void rdmux_srq_put(struct rdmux_srq *srq, struct rdmux_request *request);
void rdmux_srq_unput(struct rdmux_srq *srq, struct rdmux_request *request);
/* The provider SRQ on the cq's domain, opened when first asked for; receives posted so far are
 * given to it. max_sge: pieces of a list that the paths there take; 0: all that there can be. */
enum rdmux_status rdmux_srq_domain(struct rdmux_srq *srq, struct rdmux_provider_cq *cq,
                                   uint32_t max_sge, struct rdmux_provider_srq **out);
/* An endpoint uses the provider SRQ that rdmux_srq_domain() gave (1), or does no more (-1). */
void rdmux_srq_use(struct rdmux_srq *srq, const struct rdmux_provider_srq *provider, int change);
/* A record that a device filled or gave up is the core's again. [data path] */
void rdmux_srq_filled(struct rdmux_srq *srq, struct rdmux_request *request);
/* Its bytes go where the application wants them. [data path] */
void rdmux_srq_returned(struct rdmux_srq *srq, struct rdmux_request *request);
/* Ends the posted list with this record. */
void rdmux_srq_append(struct rdmux_srq *srq, struct rdmux_request *request);
/* connection.c, control.c */
/* Owner: the control channel has something, or a timer is due. */
void rdmux_ep_control_ready(struct rdmux_ep *ep);
/* Owner: one turn of a control channel of the endpoint's, or NULL, is over. What the session holds has
 * another one, after the others. */
void rdmux_ep_control_rests(struct rdmux_ep *ep, const struct rdmux_channel *channel);
void rdmux_ep_timers(struct rdmux_ep *ep, uint64_t now_ns);
uint64_t rdmux_ep_deadline(const struct rdmux_ep *ep);
/* Owner: a provider made progress while the endpoint is in set-up. */
void rdmux_ep_setup_step(struct rdmux_ep *ep);
void rdmux_ep_setup_destroy(struct rdmux_ep *ep);
enum { RDMUX_HEARTBEATS = 4 }; /* in a liveness time */

/* shutdown.c */
/* Owner: tells the peer of what has come, with failover. */
void rdmux_ep_tell_received(struct rdmux_ep *ep);
/* Owner: the flush of a shutdown is done: tells the peer, or fails. */
void rdmux_ep_end_after_flush(struct rdmux_ep *ep);
/* Owner: sends a message on the control channel; nothing if it is gone. */
void rdmux_ep_tell(struct rdmux_ep *ep, const struct rdmux_message *message);
/* The same of a whole frame. */
void rdmux_ep_say(struct rdmux_ep *ep, const uint8_t *frame, size_t size);
/* Owner: the endpoint is about to end; tells the peer why, if it can be told. */
void rdmux_ep_tell_end(struct rdmux_ep *ep);
/* Owner: the path is about to be closed; the remote loses its provider part. */
void rdmux_remote_detach(struct rdmux_remote *remote);
/* Owner: asks the peer to resolve its token. */
void rdmux_remote_ask(struct rdmux_remote *remote);
/* Owner: the peer answered (IMPORTED); the peer revokes a region (REVOKE). */
void rdmux_remote_answered(struct rdmux_ep *ep, const struct rdmux_message *message);
void rdmux_remote_revoked(struct rdmux_ep *ep, uint64_t region, uint32_t number);
/* Owner: ends closed and revoked imports whose requests have drained; true while some have not. */
bool rdmux_remotes_step(struct rdmux_ep *ep);
/* Owner: the path is about to be closed, and another one will follow: imports wait for it, requests may name them. Then: asks the
 * peer to resolve them for that. */
void rdmux_remotes_cut(struct rdmux_ep *ep);
void rdmux_remotes_ask_again(struct rdmux_ep *ep);
/* Owner: the path reported a fault. */
void rdmux_ep_path_fault(struct rdmux_ep *ep);
/* Owner: a message of the control channel, once connected. */
void rdmux_ep_message(struct rdmux_ep *ep, const uint8_t *frame, size_t size);
/* Owner: lets the path hand over what has arrived already, before the endpoint ends. */
void rdmux_ep_drain_path(struct rdmux_ep *ep);
/* Owner: may raw keys be used on this endpoint? RDMUX_INVALID: it is not plain, or not connected. */
enum rdmux_status rdmux_ep_check_plain(const struct rdmux_ep *ep, const char *call);
/* Owner: set-up succeeded: heartbeats start. */
void rdmux_ep_start_liveness(struct rdmux_ep *ep);
/* Owner: remotes whose requests have drained answer their revocation; shutdown goes on. Called
 * after each drain that needs it. */
void rdmux_ep_control_step(struct rdmux_ep *ep);

/* cq_service.c */
/* One look at every cq, in the service's step; returns when to look again. step_lock is held. */
uint64_t rdmux_cq_service_step(struct rdmux_fabric *fabric, uint64_t now_ns);
/* Any thread that owns no cq: gives a slice to each cq on which a revocation waits for importers and
 * that no call is inside of. */
void rdmux_cq_service_attend_revocations(struct rdmux_fabric *fabric);
void rdmux_cq_service_add(struct rdmux_cq *cq);
/* Returns when the service thread will not touch the cq again. */
void rdmux_cq_service_remove(struct rdmux_cq *cq);

#endif
