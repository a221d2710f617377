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

#include "api/core/cq.h"
#include "api/core/ep.h"
#include "api/core/fabric.h"
#include "api/core/failover.h"
#include "api/core/mail.h"

/* A socket that has said the HELLO of a connection to resume. */
struct rdmux_resume_mail {
    struct rdmux_mail mail;
    struct rdmux_fabric *fabric;
    uint64_t ep_id;
    int socket;
    struct rdmux_tls *tls;
    uint8_t hello[RDMUX_HELLO_SIZE];
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
