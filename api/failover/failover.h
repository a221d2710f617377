/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Failover: an endpoint whose path fails goes on over another one. failover.c is the move from one path to the next, replay.c
 * what an endpoint does so that it can be moved: it keeps every request until the peer's library is known to have it. All by the
 * cq's owner; failback.c goes back to a better one. An endpoint without it has ep->failover NULL and pays nothing.
 *
 * An epoch is the time of one path. The messages (sends and write_imms) of one direction have numbers, from 1, over all of them. The
 * receiver's library counts those whose receive completed and says so (RECEIVED). A message is confirmed when it is counted; a
 * write when a request that shows it is: a later message, a later read, atomic or PLACED request that is done, or a flush of ours;
 * what reads, when it is done. Only confirmed requests are returned.
 */
#ifndef RDMUX_API_FAILOVER_H
#define RDMUX_API_FAILOVER_H

#include "api/base/address.h"
#include "api/core.h"
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

/* A socket that has said the HELLO of a connection to resume. */
struct rdmux_resume_mail {
    struct rdmux_mail mail;
    struct rdmux_fabric *fabric;
    uint64_t ep_id;
    int socket;
    struct rdmux_tls *tls;
    uint8_t hello[RDMUX_HELLO_SIZE];
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

extern const struct rdmux_failover_hooks rdmux_failover_hooks;

/* failover.c. For an endpoint whose set-up has succeeded, with its setup: which stays. */
enum rdmux_status rdmux_failover_create(struct rdmux_ep *ep);
void rdmux_failover_keep_setup(struct rdmux_ep *ep);
void rdmux_failover_destroy(struct rdmux_ep *ep);
/* The path has failed. False: that is the endpoint's end, or failover is not its. */
bool rdmux_failover_takes_fault(struct rdmux_ep *ep);
/* Nothing has come from the peer for the liveness time, over path and channel. False: that is the endpoint's end. */
bool rdmux_failover_takes_silence(struct rdmux_ep *ep, const char *text);
/* A path that fails is not the endpoint's any more, nor one that it might get. */
bool rdmux_failover_ignores(const struct rdmux_ep *ep, const struct rdmux_provider_ep *path);
/* MOVE and RECEIVED have come. */
void rdmux_failover_told(struct rdmux_ep *ep, const struct rdmux_message *message);
/* What the handshake asks for: the next pair; the path works; there is none. */
void rdmux_failover_choose(struct rdmux_ep *ep);
/* path: the endpoint's next, open and connected. */
void rdmux_failover_arrived(struct rdmux_ep *ep, struct rdmux_provider_ep *path);
void rdmux_failover_lost(struct rdmux_ep *ep, enum rdmux_status status, const char *text);
/* Goes on with what is due. */
void rdmux_failover_step(struct rdmux_ep *ep);
/* The cq is about to sleep: what waits for a moment of quiet is due. Returns whether anything was done. */
bool rdmux_failover_quiet(struct rdmux_ep *ep);
uint64_t rdmux_failover_deadline(const struct rdmux_ep *ep);
/* The endpoint ends: it has the path that it had, or none. */
void rdmux_failover_abandon(struct rdmux_ep *ep);

/* Leaves a path that works for a better one. */
void rdmux_failover_return(struct rdmux_ep *ep, const struct rdmux_offer_path *to);
/* Has the pair of this rank failed so often within the hold-down time that it is tried only when no other works? */
bool rdmux_failover_leaves_out(const struct rdmux_ep *ep, size_t rank);

/* failback.c. A move is over; it was not to a better path after all. */
void rdmux_failback_arrived(struct rdmux_ep *ep);
void rdmux_failback_give_up(struct rdmux_ep *ep);
/* Goes on with what is due. True: it is to be called again soon. */
bool rdmux_failback_step(struct rdmux_ep *ep);
uint64_t rdmux_failback_deadline(const struct rdmux_ep *ep);
/* BACK has come. */
void rdmux_failback_told(struct rdmux_ep *ep, const struct rdmux_message *message);
static inline bool rdmux_failback_holds(const struct rdmux_ep *ep)
{
    return ep->failover->back.goal != 0 && ep->failover->stage == RDMUX_STEADY;
}

/* The device that the endpoint may not leave, for as long as the peer has an import whose atomics hold on it alone; "": it may go anywhere. */
const char *rdmux_failover_bound_device(struct rdmux_ep *ep);

/* The control channel is lost: what the handshake was at is given up, and MOVE will be said again. */
void rdmux_failover_channel_lost(struct rdmux_ep *ep);
/* The peer's standing, once there is a channel again: false if the endpoint has ended of it. Then: goes on from there. */
bool rdmux_failover_align(struct rdmux_ep *ep, const struct rdmux_message *standing);
void rdmux_failover_resumed(struct rdmux_ep *ep, const struct rdmux_message *standing);

/* resume.c. */
enum rdmux_status rdmux_resume_create(struct rdmux_ep *ep);
void rdmux_resume_leave(struct rdmux_ep *ep);
/* The channel is lost, text tells how. False: it cannot be had again. */
bool rdmux_resume_begin(struct rdmux_ep *ep, const char *text);
/* The address in use does not answer: if there is another one, that is dialled first. */
void rdmux_resume_elsewhere(struct rdmux_ep *ep);
/* This side has said MOVE and waits for the peer's. */
void rdmux_resume_await_move(struct rdmux_ep *ep);
/* Something has happened on a control descriptor; time has passed. */
void rdmux_resume_ready(struct rdmux_ep *ep);
void rdmux_resume_step(struct rdmux_ep *ep);
uint64_t rdmux_resume_deadline(const struct rdmux_ep *ep);
/* REVOKE has been said, or could not be; REVOKED has come. */
void rdmux_resume_note_revocation(struct rdmux_ep *ep, uint64_t region, uint32_t number);
void rdmux_resume_revocation_answered(struct rdmux_ep *ep, uint64_t region, uint32_t number);
/* Any thread. Does a HELLO ask to resume a connection? Mails the endpoint, false if there is none. */
bool rdmux_resume_is_asked(const uint8_t hello[RDMUX_HELLO_SIZE]);
bool rdmux_resume_find(struct rdmux_fabric *fabric, struct rdmux_resume_mail *mail);
void rdmux_resume_deliver(struct rdmux_cq *cq, struct rdmux_mail *base);

static inline bool rdmux_failover_is_moving(const struct rdmux_ep *ep)
{
    return ep->failover != NULL && ep->failover->stage != RDMUX_STEADY;
}

/* null_path.c: the path of an endpoint that has none. */
extern const struct rdmux_provider_ops rdmux_null_path_ops;

/* replay.c. Counts receives and confirms what can be. */
void rdmux_replay_confirm(struct rdmux_ep *ep);
/* The peer has counted so many. False: more than there are. */
bool rdmux_replay_counted(struct rdmux_ep *ep, uint64_t count);
/* Says RECEIVED, posts a flush, where they are due; quiet: now, else they may wait a moment. Returns
 * whether something waits. */
bool rdmux_replay_step(struct rdmux_ep *ep, bool quiet);
/* Is a message done here, and only not counted yet? */
bool rdmux_replay_awaits_count(const struct rdmux_ep *ep);
/* Says RECEIVED, if there is anything to say. */
void rdmux_replay_tell(struct rdmux_ep *ep);
/* The path is quiesced: receives that were not filled are taken back, lists are the application's. Before the
 * path is closed. */
void rdmux_replay_cut(struct rdmux_ep *ep);
/* The peer's path is, too, and it has counted so many: what is done, what is in doubt, what is done again. False: it cannot have
 * counted so many. */
bool rdmux_replay_settle(struct rdmux_ep *ep, uint64_t count);
/* The next path is the endpoint's: offers receives; requests may go. */
void rdmux_replay_resume(struct rdmux_ep *ep);
/* How many requests of the send ring, of `run` from `next` on, can go to the path: those before the first that is settled, or
 * names an import that is not resolved yet. */
uint64_t rdmux_replay_run(struct rdmux_ep *ep, uint64_t run);
/* An import's place on the path becomes another one, in all requests that name it. */
void rdmux_replay_remote_cut(struct rdmux_ep *ep, const struct rdmux_provider_remote *from,
                             struct rdmux_provider_remote *to);
/* The endpoint ends: what is not confirmed is not done. */
void rdmux_replay_end(struct rdmux_ep *ep);

#endif
