/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Endpoints. */
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
    bool is_plain;               /* the peer is not rdmux; plain once it has a path */
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

#endif
