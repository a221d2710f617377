/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The state of an endpoint with failover, for the files of this folder. */
#ifndef RDMUX_API_FAILOVER_FAILOVER_STATE_H
#define RDMUX_API_FAILOVER_FAILOVER_STATE_H

#include "api/base/address.h"
#include "api/core/ep.h"
#include "negotiation/reconnect_proof.h"

enum rdmux_failover_stage {
    RDMUX_STEADY,    /* the path works, as far as this side knows */
    RDMUX_CUTTING,   /* the path that failed is being quiesced */
    RDMUX_MEETING,   /* the path is closed and MOVE is sent; waits for the peer's MOVE */
    RDMUX_SEARCHING, /* both sides are cut; the handshake searches the next path */
};

enum { RDMUX_LOSSES = 3 }; /* losses within the hold-down time that exclude a path pair */

/* Failback: moving back to a better path. failback.c */
struct rdmux_failback {
    bool is_wanted; /* attr.failback */
    /* Rank of the better path, 0: none. While it is set, new requests do not go to the current
     * path. */
    uint32_t goal;
    bool said;            /* told the peer that all our requests in flight can be repeated */
    bool heard;           /* the peer told the same of its requests */
    uint64_t deadline_ns; /* timeout of both */
    uint64_t next_ns;     /* next search for a better path; 0: never */
    uint64_t probed_ns;   /* last device check that the peer caused; 0: never */
    uint32_t vain;        /* consecutive moves that did not reach the better path */
    uint32_t refusals;    /* tries of a change of cq that the peer, or time, has ended */
    uint64_t again_ns;    /* next try of it */
};

/* A revocation that the peer has not answered yet. */
struct rdmux_unsaid {
    struct rdmux_list link; /* rdmux_reconnect.revocations */
    uint64_t region;
    uint32_t number;
};

enum {
    RDMUX_CLAIMS_MAX = 8,  /* claims of an endpoint at a time */
    RDMUX_CLAIM_MS = 5000, /* milliseconds that a claim has to prove itself */
};

/* Acceptor: a socket that sent the connection's name, which everyone on the path can read, and has
 * not proved yet that it knows the secret. Until it has, it changes nothing of the endpoint. */
struct rdmux_claim {
    struct rdmux_list link; /* rdmux_claims.list */
    struct rdmux_channel *channel;
    struct rdmux_reconnect_greeting greeting;
    uint64_t until_ns;
    uint32_t events; /* of the channel, while the endpoint is on its way to another cq */
    size_t key_size;
    uint8_t key[RDMUX_ADDRESS_NETWORK_MAX];
};

/* The claims of an endpoint. control_reconnect.c */
struct rdmux_claims {
    struct rdmux_list list; /* oldest first */
    uint32_t count;
    uint32_t impostors; /* claims that failed to prove themselves */
};

/* Control-channel reconnect. control_reconnect.c */
struct rdmux_reconnect {
    struct rdmux_list link; /* acceptor: fabric->reconnects; fabric->lock */
    struct rdmux_ep *ep;
    uint8_t name[RDMUX_RECONNECT_NAME_SIZE];
    bool is_possible; /* the build can prove its identity */
    bool is_broken;   /* sending on the channel failed; text has the reason */
    bool has_greeted; /* connector: both HELLOs of `fresh` were exchanged */
    int dialing;      /* connector: socket of the dial in progress, -1: none */
    /* Timeout of an answer to the dial, if there are other addresses. */
    uint64_t until_ns;
    uint32_t dials;              /* dials since the channel was lost */
    uint32_t refused;            /* consecutive addresses without a listener */
    struct rdmux_channel *fresh; /* connector: the next channel, until it is proved */
    struct rdmux_reconnect_greeting greeting;
    struct rdmux_claims claims; /* acceptor */
    uint64_t deadline_ns;       /* end of the reconnect; 0: the channel works */
    uint64_t next_ns;           /* connector: next dial */
    uint64_t answer_ns;         /* connector: deadline for the peer's MOVE; 0: no deadline */
    struct rdmux_list revocations;
    char text[RDMUX_TEXT_MAX];
};

/* The move in progress, or the last one. failover.c */
struct rdmux_move {
    bool heard; /* the peer's MOVE has arrived */
    uint64_t heard_count;
    uint32_t cause;
    char cause_text[RDMUX_TEXT_MAX];
    char left_text[RDMUX_TEXT_MAX]; /* the explanation's text about the path that was left */
    /* Start of the first of several moves in quick succession, which count as one. */
    uint64_t began_ns;
    uint64_t ended_ns; /* end of the last move */
};

/* The search for the next path. failover.c */
struct rdmux_search {
    uint32_t attempts_max;
    uint32_t attempts;              /* attempts since rdmux_move.began_ns */
    uint8_t order[RDMUX_MATCH_MAX]; /* acceptor: ranks in the order in which this move tries them */
    size_t order_count;
    uint32_t tried; /* entries of `order` tried so far */
    size_t trying;  /* rank of the last attempt; 0: none */
    /* Acceptor, by rank - 1: last failed attempt; 0: the latest succeeded. */
    uint64_t vain_ns[RDMUX_MATCH_MAX];
    uint64_t next_try_ns;
};

/* What is known of requests and receives. Positions are those of the send ring. replay.c */
struct rdmux_replay {
    uint64_t marked;        /* the peer has counted the messages before this */
    uint64_t marked_number; /* number of messages before `marked` */
    uint64_t acked;         /* message count of the last RECEIVED */
    uint64_t placed;        /* writes before this are in the peer's memory */
    uint64_t looked;        /* requests before this were examined for `placed` */
    uint64_t given;         /* at the cut: the path had the requests before this */
    struct rdmux_request flush;
    bool is_flushing;
    uint64_t flush_until; /* the flush follows the requests before this */
    uint64_t seen;        /* receives of the ring before this are counted */
    uint64_t received;    /* messages received over all epochs */
    uint64_t told;        /* messages received that the peer has been told of */
};

/* Only the file that a part names reads or writes the inside of that part. What the layers below
 * read is in ep->retention. */
struct rdmux_failover {
    /* With offer and handshake; is the endpoint's setup during the search. */
    struct rdmux_setup *setup;
    enum rdmux_failover_stage stage; /* failover.c writes it */
    uint64_t time_ns;                /* UINT64_MAX: no limit */
    uint64_t hold_ns;

    struct rdmux_reconnect reconnect;
    struct rdmux_failback back;
    struct rdmux_move move;
    /* Null path, the endpoint's path during the move: takes no requests, see null_path.c. */
    struct rdmux_provider_ep null_path;
    struct rdmux_search search;
    /* By rank - 1: when the path was lost, latest first. */
    uint64_t lost_ns[RDMUX_MATCH_MAX][RDMUX_LOSSES];

    struct rdmux_replay replay;
    uint64_t unplaced_ns;  /* since when a flush is due; 0: none is due */
    uint64_t untold_ns;    /* since when a RECEIVED is due; 0: none is due */
    uint64_t looked_at_ns; /* last check of the control channel for RECEIVED */
};

/* Rank of the better path that both sides get ready for; 0: none. */
static inline size_t rdmux_failback_goal(const struct rdmux_ep *ep)
{
    return ep->failover->back.goal;
}

/* Returns whether new requests wait, so that the endpoint can move to a better path. */
static inline bool rdmux_failback_holds(const struct rdmux_ep *ep)
{
    return rdmux_failback_goal(ep) != 0 && ep->failover->stage == RDMUX_STEADY;
}

#endif
