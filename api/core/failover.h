/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The state of an endpoint with failover. */
#ifndef RDMUX_API_CORE_FAILOVER_H
#define RDMUX_API_CORE_FAILOVER_H

#include "api/base/address.h"
#include "api/core/ep.h"
#include "negotiation/resume.h"

enum rdmux_failover_stage {
    RDMUX_STEADY,    /* the path works, as far as is known */
    RDMUX_CUTTING,   /* the path that failed is being quiesced */
    RDMUX_MEETING,   /* it is closed, and MOVE said; waits for the peer's */
    RDMUX_SEARCHING, /* both sides are cut: the handshake looks for the next path */
};

enum { RDMUX_LOSSES = 3 }; /* so many in the hold-down time, and a pair is left out */

/* Going back to a better path. failback.c */
struct rdmux_failback {
    bool is_wanted; /* attr.failback */
    uint32_t goal;  /* its rank, 0: none. Meanwhile nothing new is given to the path there is */
    bool said;      /* that of ours nothing is under way that could not be repeated */
    bool heard;     /* the same of the peer's */
    uint64_t deadline_ns; /* for that */
    uint64_t next_ns;     /* when to look for a better one; 0: never */
    uint64_t probed_ns;   /* when the peer last had a device looked at; 0: never */
    uint32_t vain;        /* moves in a row that did not lead there */
};

/* A revocation that the peer has not answered. */
struct rdmux_unsaid {
    struct rdmux_list link; /* rdmux_resume.revocations */
    uint64_t region;
    uint32_t number;
};

enum {
    RDMUX_CLAIMS_MAX = 8,  /* of an endpoint at a time */
    RDMUX_CLAIM_MS = 5000, /* that one has to prove itself */
};

/* Acceptor: a socket that has said the connection's name, which everybody on the path reads, and has
 * not yet proved that it knows the secret. Until it has, it changes nothing of the endpoint. */
struct rdmux_claim {
    struct rdmux_list link; /* rdmux_resume.claims */
    struct rdmux_channel *channel;
    struct rdmux_resume_greeting greeting;
    uint64_t until_ns;
    size_t key_size;
    uint8_t key[RDMUX_ADDRESS_NETWORK_MAX];
};

/* The control channel, while it is lost. resume.c */
struct rdmux_resume {
    struct rdmux_list link; /* acceptor: fabric->resumes; fabric->lock */
    struct rdmux_ep *ep;
    uint8_t name[RDMUX_RESUME_NAME_SIZE];
    bool is_possible;            /* the build can prove who it is */
    bool is_broken;              /* the channel does not take what is said; text tells why */
    bool greeted;                /* connector: both HELLOs of the fresh one are there */
    int dialing;                 /* connector: its socket, -1 */
    uint64_t until_ns;           /* that it waits for an answer, if there are other addresses */
    uint32_t dials;              /* since the channel was lost */
    uint32_t refused;            /* addresses in a row at which nobody listens */
    struct rdmux_channel *fresh; /* connector: the next one, until it is proved */
    struct rdmux_resume_greeting greeting;
    struct rdmux_list claims; /* acceptor: the same, side by side, oldest first */
    uint32_t claim_count;
    uint32_t impostors;   /* claims that were not proved */
    uint64_t deadline_ns; /* 0: the channel is there */
    uint64_t next_ns;     /* connector: when to dial again */
    uint64_t answer_ns; /* connector: until then the peer should have said MOVE; 0: whenever it likes */
    struct rdmux_list revocations;
    char text[RDMUX_TEXT_MAX];
};

struct rdmux_failover {
    struct rdmux_setup *setup; /* with offer and handshake; the endpoint's while it searches */
    enum rdmux_failover_stage stage;
    uint32_t attempts_max;
    uint64_t time_ns; /* UINT64_MAX: no limit */
    uint64_t hold_ns;

    struct rdmux_resume resume;
    struct rdmux_failback back;
    /* The peer has atomics on a region of ours among the users of this device: no other path will do.
     * "": it has none. */
    char bound_device[RDMUX_NAME_MAX]; /* see rdmux_failover_bound_device() */

    /* The move under way, or the last one. */
    struct rdmux_provider_ep *dying; /* the path that failed, until it is quiesced */
    struct rdmux_provider_ep limbo;  /* the endpoint's meanwhile: takes nothing, see null_path.c */
    bool heard;                      /* the peer's MOVE is here */
    uint64_t heard_count;
    uint32_t cause;
    char cause_text[RDMUX_TEXT_MAX];
    char left_text[RDMUX_TEXT_MAX]; /* what the explanation says of the path */
    uint64_t began_ns;              /* moves that follow on each other's heels count as one */
    uint64_t moved_ns;              /* when the last one was over */
    uint32_t moved_to;              /* its epoch */
    uint32_t attempts;              /* since began_ns */
    uint8_t order[RDMUX_MATCH_MAX]; /* acceptor: ranks, as they are tried in this move */
    size_t order_count;
    uint32_t tried; /* of them */
    size_t trying;  /* the rank of the last one; 0: none */
    uint64_t vain_ns
        [RDMUX_MATCH_MAX]; /* acceptor, by rank - 1: when an attempt last failed; 0: the last went well */
    uint64_t next_try_ns;
    uint64_t lost_ns[RDMUX_MATCH_MAX][RDMUX_LOSSES]; /* by rank - 1: when it was lost, latest first */

    /* replay.c. Places are those of the send ring. */
    uint64_t confirmed;     /* requests before this are, and may be returned */
    uint64_t marked;        /* messages before this are counted by the peer */
    uint64_t marked_number; /* so many are */
    uint64_t acked;         /* RECEIVED's count */
    uint64_t placed;        /* writes before this are in the peer's memory */
    uint64_t looked;        /* requests before this have been looked at for that */
    uint64_t given;         /* at the cut: requests before this were with the path */
    struct rdmux_request flush;
    bool flushing;
    uint64_t flush_until;  /* what it is behind of */
    uint64_t unplaced_ns;  /* since when a flush is due; 0: it is not */
    uint64_t looked_at_ns; /* when the control channel was last looked at for RECEIVED */

    uint64_t seen;                  /* receives of the ring before this are counted */
    struct rdmux_request *srq_seen; /* of srq_done, up to this one; NULL: none */
    uint64_t received;              /* over all epochs */
    uint64_t told;
    uint64_t untold_ns; /* since when there is something to tell; 0: there is not */
};

static inline bool rdmux_failover_is_moving(const struct rdmux_ep *ep)
{
    return ep->failover != NULL && ep->failover->stage != RDMUX_STEADY;
}

#endif
