/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The endpoint object and its request rings. */
#ifndef RDMUX_API_CORE_EP_H
#define RDMUX_API_CORE_EP_H

#include "api/core/cq.h"
#include "api/core/fabric.h"
#include "api/core/mr.h"

/* A ring of request records with their scatter/gather lists. Counters only grow; index = counter &
 * mask. */
struct rdmux_ring {
    struct rdmux_request *records;
    struct rdmux_provider_sge *sges; /* max_sge for each record */
    /* max_inline bytes for each record, for inline requests that have to wait; send side only. */
    uint8_t *inline_data;
    uint32_t mask;
    uint32_t depth;
    uint32_t max_sge;
    uint32_t max_inline;
    uint64_t head;    /* posted */
    uint64_t offered; /* receives given to a provider that needs keys */
    /* Send side: given to the provider. Receive side: taken by the provider's matching. */
    uint64_t next;
    uint64_t tail; /* returned to the application */
};

/* rdmux_ep.phase */
enum rdmux_ep_phase {
    RDMUX_PHASE_SETUP, /* negotiating */
    RDMUX_PHASE_READY, /* requests go to the path */
    /* The peer has ended; messages that arrived before still wait for receives. */
    RDMUX_PHASE_LINGERING,
    RDMUX_PHASE_ENDING, /* failed or ended; the provider still drains */
    RDMUX_PHASE_ENDED,  /* all requests are done; completions may still wait to be returned */
    RDMUX_PHASE_CLOSED, /* only rdmux_ep_user() is allowed */
};

/* rdmux_ep.events: entries to return besides request completions */
enum {
    RDMUX_EVENT_CONNECTED = 1 << 0,
    RDMUX_EVENT_DISCONNECTED = 1 << 1,
    RDMUX_EVENT_WRITABLE = 1 << 2,
    /* Holds all entries back: rdmux_accept() has not returned the endpoint yet. */
    RDMUX_EVENT_HELD = 1 << 3,
    RDMUX_EVENT_MOVED = 1 << 4,
    RDMUX_EVENT_WOKEN = 1 << 5, /* of cq->own */
    /* rdmux_ep_move() has taken the endpoint off another cq; all its other entries come later. */
    RDMUX_EVENT_CHANGED_CQ = 1 << 6,
    /* Holds all entries back: rdmux_ep_move() waits until failover has cut the path. */
    RDMUX_EVENT_LEAVING = 1 << 7,
    /* A layer takes the entries of the endpoint, see struct rdmux_ep_layer. */
    RDMUX_EVENT_LAYER = 1 << 8,
};

/* rdmux_ep.work: work due after requests were done */
enum {
    RDMUX_WORK_CONTROL = 1 << 0,  /* rdmux_ep_control_step() has work */
    RDMUX_WORK_FAILOVER = 1 << 1, /* always set on an endpoint with failover */
};

/* What uses the endpoint in the program's place, such as a stream: it takes the endpoint's entries,
 * and returns entries of its own to the program. Both functions are the owner's. */
struct rdmux_ep_layer {
    /* Takes what rdmux_ep_take() returns, and writes entries for the program from `at` on. `end` may
     * be `at`: the program is away. Returns the end of the entries. */
    struct rdmux_wc *(*take)(struct rdmux_ep *ep, struct rdmux_wc *at, const struct rdmux_wc *end);
    /* Returns whether there is an entry for the program. */
    bool (*has_entries)(const struct rdmux_ep *ep);
};

/* The listener of an accepted endpoint, until rdmux_accept() returns the endpoint. */
struct rdmux_acceptor {
    uint32_t timeout_ms; /* longest wait of the endpoint; 0: no limit */
    /* Returns whether the listener is closed, so that nobody will take the endpoint. */
    bool (*is_closed)(struct rdmux_acceptor *acceptor);
    /* Counts one connected endpoint more or fewer to be returned, and updates the listener's
     * descriptor. */
    void (*count)(struct rdmux_acceptor *acceptor, int change);
    /* Releases the listener: the endpoint is taken or given up. */
    void (*release)(struct rdmux_ep *ep);
};

/*
 * The parts of an endpoint. The owner of a part alone writes it, other files call the owner's
 * functions; scripts/lint wings checks this. rdmux_ep_create() initialises the list links.
 */

/* What set-up agreed on. Owned by api/setup. */
struct rdmux_ep_negotiated {
    enum rdmux_role role;
    uint32_t attempt;
    uint32_t status;   /* how negotiation ended */
    bool is_announced; /* an event reports the outcome of set-up */
    struct rdmux_provider_ep_attr path_attr;
    struct rdmux_local_path path;
    struct rdmux_candidate *candidates; /* kept for the explanation */
    size_t candidate_count;
};

/* Addresses of the control channel, which the sockets of paths use, too. Owned by
 * api/session/channel_socket.c. */
struct rdmux_ep_addresses {
    struct sockaddr_storage peer;
    socklen_t peer_length;         /* 0: none */
    struct sockaddr_storage local; /* address of attr.local */
    socklen_t local_length;        /* 0: none */
};

/* Limits of requests on the path in use. Owned by api/setup. */
struct rdmux_ep_limits {
    uint64_t max_send;
    uint64_t max_recv;
    uint64_t max_inline;
    uint64_t caps; /* native or emulated */
    /* Request flags that the path lacks: RDMUX_PLACED, RDMUX_FENCE. On rdmacm endpoints the
     * provider checks them. */
    uint32_t lacking_flags;
};

/* Why posted requests wait, and how the next poll begins. Owned by api/data. */
struct rdmux_ep_flow {
    bool is_blocked; /* post returned RDMUX_AGAIN; waits for path->resume */
    bool wants_writable;
    /* The last poll had no room for receives, so receives come first in the next one. */
    bool is_receive_first;
    /* Some receives of the ring wait for keys before they go to the provider. */
    bool has_waiting_receives;
    bool is_shutdown_asked;      /* later requests are refused */
    uint64_t fenced_until;       /* requests from this sequence on lack RDMUX_FENCE */
    uint64_t starved_at;         /* recv.next + 1 when a message found no receive; 0: never */
    uint64_t linger_deadline_ns; /* end of LINGERING, and of an end before rdmux_accept() */
};

/* Whether the endpoint is on the cq's lists that each request checks. Owned by api/progress. */
struct rdmux_ep_queued {
    bool is_pending;       /* on cq->pending */
    bool is_doorbell_held; /* on cq->doorbells */
};

/* The endpoint's part in a shared receive queue. Owned by api/data. */
struct rdmux_ep_shared_receives {
    struct rdmux_request *done; /* done receives of this endpoint, oldest first */
    struct rdmux_request *done_last;
    struct rdmux_request *taken; /* receives that a message is filling */
    /* With failover: `done` receives up to this one are counted; NULL: none. */
    struct rdmux_request *counted;
    uint32_t reserved; /* posted receives set aside for this endpoint by its provider */
    /* Posted receives set aside by the core while the endpoint waited for one. */
    uint32_t offered;
    bool news;                 /* rdmux_srq_tell() is due */
    bool is_paused;            /* rdmux_ep_pause() */
    bool wants_receive;        /* while it is paused, it found no receive */
    struct rdmux_list link;    /* srq->waiting */
    struct rdmux_list holding; /* srq->holding of the path's domain */
};

/* What failover keeps back from the application, and what else the layers below it must know of a
 * move. Owned by api/failover. All zero on an endpoint without failover. */
struct rdmux_ep_retention {
    /* Requests before this are confirmed and may be returned. Without failover see send.next. */
    uint64_t confirmed;
    bool is_moving;                  /* the path is lost, and the next one is not there yet */
    uint32_t moved_to;               /* epoch of the last move */
    struct rdmux_provider_ep *dying; /* the failed path, until it is quiesced */
};

/* Membership in the lists and tables of the cq. Owned by api/progress. */
struct rdmux_ep_places {
    struct rdmux_list pending;    /* cq->pending */
    struct rdmux_list busy;       /* cq->lists.busy */
    struct rdmux_list held;       /* cq->lists.held */
    struct rdmux_list accepting;  /* cq->lists.accepting */
    struct rdmux_list cq;         /* cq->lists.eps, closed or dropped */
    struct rdmux_ep *bucket_next; /* in cq->table.buckets */
    struct rdmux_ep *doorbell_next;
    uint32_t timer; /* in cq->table.timers */
};

/* Imports of the peer's regions. Owned by api/object. */
struct rdmux_ep_imports {
    struct rdmux_list all;
    /* Imports whose REMOTE_READY is not returned yet. A poll takes them off. */
    struct rdmux_list ready;
    uint32_t next_id;
};

/* The read drain. Owned by api/object/read_drain.c. */
struct rdmux_ep_read_drain {
    struct rdmux_revoke_mail *waiting; /* answered by the next request, newest first */
    struct rdmux_revoke_mail *posted;  /* answered by the posted request */
    struct rdmux_request request;
};

/* Revocations of regions that the peer has imported. Owned by api/object/revoke.c. */
struct rdmux_ep_revocations {
    uint32_t awaited; /* REVOKE messages sent without a REVOKED yet */
};

/* The process at the other end. Owned by api/object/peer_process.c. */
struct rdmux_ep_process {
    struct rdmux_peer_process *peer;
    struct rdmux_heartbeat_group *heartbeat_group;
};

/* Control frames that came through a path sharing the socket, oldest first. Owned by
 * api/object/inbox.c. */
struct rdmux_ep_inbox {
    struct rdmux_inbox_frame *first;
    struct rdmux_inbox_frame *last; /* valid unless the inbox is empty */
};

/* The cause of a failure, and its effect on requests. Owned by api/data. */
struct rdmux_ep_cause {
    bool is_told;        /* a failed request was returned with the cause */
    bool is_in_doubt;    /* requests at the provider end with RDMUX_OUTCOME_UNKNOWN */
    bool is_unexplained; /* the path is lost without a reason, so the peer is asked (SILENT) */
    char text[RDMUX_TEXT_MAX]; /* of ep->fault */
};

/* The end of the endpoint. Owned by api/object/ep.c. */
struct rdmux_ep_end {
    uint32_t status;      /* why the endpoint ended */
    uint64_t deadline_ns; /* of ENDING */
};

/* The session with the peer: control channel, liveness, shutdown. Owned by api/session. */
struct rdmux_ep_session {
    uint64_t connected_ns;
    /* With failover: device whose users share atomics with the peer on a region of ours, so that no
     * other path will do; "": none. See rdmux_ep_bound_device(). */
    char bound_device[RDMUX_NAME_MAX];

    /* Liveness */
    uint64_t heartbeat_ns; /* next heartbeat */
    uint64_t checked_ns;   /* last liveness check */
    /* Time that this side did not run since the peer was heard at missed_since_ns. */
    uint64_t missed_ns;
    uint64_t missed_since_ns;
    uint64_t ping_head; /* send.head when the last heartbeat went out */

    /* A lost path without a reason */
    /* Deadline for the control channel to explain the lost path. 0: the path is not lost. */
    uint64_t unexplained_deadline_ns;
    bool is_silence_answered; /* neither side knows the reason */
    bool is_silence_asked;    /* the peer asked, and waits for the outcome of our requests */

    /* Shutdown */
    bool is_shutdown_sent;
    bool is_shutdown_quiet; /* a call waits for the end, so no event is returned */
    bool has_end;
    bool is_end_told; /* the end was told to the peer before it happened */
    bool is_flush_posted;
    uint64_t shutdown_deadline_ns;
    struct rdmux_request flush_request; /* for shutdown */
};

/* The endpoint at the listener that accepted it. Owned by api/setup. */
struct rdmux_ep_accept {
    struct rdmux_acceptor *acceptor; /* not NULL until rdmux_accept() returns the endpoint */
    struct rdmux_peer_quota *quota;  /* peer quota that counts the endpoint at the listener */
    bool is_proved;
};

struct rdmux_ep {
    /* Data path first. The cq's fast path while this endpoint has it, else a closed one. */
    struct rdmux_fast_path *fast;
    const struct rdmux_provider_ops *ops; /* of the path */
    struct rdmux_provider_ep *path;       /* NULL until committed */
    struct rdmux_cq *cq;
    uint32_t phase;  /* enum rdmux_ep_phase. Owned by api/object/ep.c. */
    uint32_t events; /* RDMUX_EVENT_* */
    /* Status of rdmux_provider_failed(), handled at the next drain. Owned by api/data/fault.c. */
    uint32_t fault;
    uint8_t work;               /* RDMUX_WORK_* */
    _Atomic bool has_fast_path; /* the path can use the cq's fast path, see fast_path.h */
    struct rdmux_ep_queued queued;
    struct rdmux_ep_flow flow;
    struct rdmux_bounce *bounce;     /* NULL: the path needs no keys */
    struct rdmux_segments *segments; /* NULL: no request needs segmenting */
    struct rdmux_failover *failover; /* known to api/failover alone; NULL: none */
    struct rdmux_provider_domain *domain;
    struct rdmux_ring send;
    struct rdmux_ring recv;
    struct rdmux_ep_limits limits;
    struct rdmux_srq *srq;
    struct rdmux_ep_shared_receives shared;
    struct rdmux_ep_places places;
    const struct rdmux_rdmacm_ops *rdmacm; /* rdmacm endpoint; NULL: the peer is rdmux */
    /* An rdmacm endpoint: the peer is not rdmux. `rdmacm` is set once the endpoint has a path. */
    bool is_rdmacm;
    struct rdmux_ep_stats stats;

    /* Control path. */
    uint64_t id;
    struct rdmux_fabric *fabric;
    struct rdmux_ep_retention retention;
    struct rdmux_ep_cause cause;
    struct rdmux_ep_end end;
    struct rdmux_channel *channel;
    struct rdmux_setup *setup; /* NULL once connected or failed */
    struct rdmux_ep_session session;
    struct rdmux_ep_process process;
    struct rdmux_ep_inbox inbox;
    struct rdmux_ep_imports imports;
    struct rdmux_ep_revocations revocations;
    struct rdmux_ep_read_drain drain;
    struct rdmux_list join; /* fabric->joins, fabric->lock. Owned by api/object/joins.c. */
    struct rdmux_ep_negotiated negotiated;
    struct rdmux_ep_addresses addresses;
    struct rdmux_ep_accept accept;
    struct rdmux_ep_secrets *secrets;
    uint64_t reserved;
    const struct rdmux_ep_layer *layer; /* with RDMUX_EVENT_LAYER */
    void *layer_state;
    void *user;
    struct rdmux_ep_info info; /* constant fields are filled in once */
};

/* Returns whether receives still take messages of the path. */
static inline bool rdmux_ep_delivers(const struct rdmux_ep *ep)
{
    return ep->phase - RDMUX_PHASE_READY <= RDMUX_PHASE_LINGERING - RDMUX_PHASE_READY;
}

/* Returns whether rdmux_accept() has not returned the endpoint yet, so that the program cannot
 * learn of its end. */
static inline bool rdmux_ep_is_held(const struct rdmux_ep *ep)
{
    return (ep->events & RDMUX_EVENT_HELD) != 0;
}

/* Returns whether the endpoint, which has no peer any more, waits for receives or for
 * rdmux_accept(). */
static inline bool rdmux_ep_lingers(const struct rdmux_ep *ep)
{
    return ep->phase == RDMUX_PHASE_LINGERING ||
           (ep->phase == RDMUX_PHASE_ENDED && rdmux_ep_is_held(ep));
}

/* Returns whether set-up succeeded, even if the endpoint has ended since. */
static inline bool rdmux_ep_was_connected(const struct rdmux_ep *ep)
{
    return ep->phase != RDMUX_PHASE_SETUP && ep->negotiated.status == RDMUX_OK;
}

#endif
