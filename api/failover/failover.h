/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Failover moves an endpoint whose path fails to another path. failover.c moves the endpoint from
 * one path to the next. replay.c keeps every request until the peer's library is known to have it,
 * so that the endpoint can be moved. control_reconnect.c reconnects a lost control channel.
 * failback.c prepares the return to a better path, path_history.c knows how the paths fared. All of
 * it runs as the cq's owner, except functions marked "any thread". failover_state.h has the state,
 * which only these files know. An endpoint without failover has ep->failover NULL and pays nothing.
 *
 * An epoch is the time on one path. The messages (sends and write_imms) of one direction are
 * numbered from 1 across all epochs. The receiver's library counts the messages whose receive
 * completed and reports the count (RECEIVED). A message is confirmed once it is counted. A write is
 * confirmed once a later request proves its placement: a message that is counted, a read, atomic or
 * PLACED request that is done, or a flush by this library. A read or atomic is confirmed once it is
 * done. Only confirmed requests are returned.
 */
#ifndef RDMUX_API_FAILOVER_FAILOVER_H
#define RDMUX_API_FAILOVER_FAILOVER_H

#include "api/core/cq.h"
#include "api/core/ep.h"
#include "api/core/fabric.h"
#include "api/core/mail.h"

/* A socket on which the peer sent the HELLO of a control-channel reconnect. */
struct rdmux_reconnect_mail {
    struct rdmux_mail mail;
    struct rdmux_fabric *fabric;
    uint64_t ep_id;
    int socket;
    struct rdmux_tls *tls;
    uint8_t hello[RDMUX_HELLO_SIZE];
};

extern const struct rdmux_failover_hooks rdmux_failover_hooks;

/* failover.c. rdmux_failover_create() adds failover to an endpoint whose set-up has succeeded.
 * rdmux_failover_keep_setup() then moves the set-up to failover. */
enum rdmux_status rdmux_failover_create(struct rdmux_ep *ep);
void rdmux_failover_keep_setup(struct rdmux_ep *ep);
void rdmux_failover_destroy(struct rdmux_ep *ep);
/* Handles MOVE, RECEIVED, BACK and REVOKED of the peer, and notes a REVOKE of this side. */
void rdmux_failover_told(struct rdmux_ep *ep, const struct rdmux_message *message);
/* Chooses the next pair of paths when the handshake asks for one. */
void rdmux_failover_choose(struct rdmux_ep *ep);
/* Takes over the next path, which is open and connected. rdmux_failover_lost() handles a search
 * that ended without a path. */
void rdmux_failover_arrived(struct rdmux_ep *ep, struct rdmux_provider_ep *path);
void rdmux_failover_lost(struct rdmux_ep *ep, enum rdmux_status status, const char *text);
/* Returns whether both sides are cut, so that the peer may search already, but this side changes its
 * cq before it searches. */
bool rdmux_failover_delays_search(const struct rdmux_ep *ep);
/* Runs the work that is due. */
void rdmux_failover_step(struct rdmux_ep *ep);
uint64_t rdmux_failover_deadline(const struct rdmux_ep *ep);

/* path_history.c. Records the failure of the current path; logs a path that fails repeatedly. */
void rdmux_failover_note_loss(struct rdmux_ep *ep, uint64_t now_ns);
/* Returns whether the pair of this rank failed so often within the hold-down time that it is tried
 * only when no other works. */
bool rdmux_failover_leaves_out(const struct rdmux_ep *ep, size_t rank);
/* Orders the ranks for the search: first the failback goal, if this move is a failback. Then
 * healthy paths, the path that was just lost but worked until then, paths whose attempts failed
 * within the hold-down time, and paths that fail repeatedly. */
void rdmux_failover_order_pairs(struct rdmux_ep *ep);

/* failback.c */
void rdmux_failback_init(struct rdmux_failover *failover, const struct rdmux_ep_attr *attr);
/* rdmux_failback_arrived(): a move is over. rdmux_failback_give_up(): the move does not
 * lead to a better path. */
void rdmux_failback_arrived(struct rdmux_ep *ep);
void rdmux_failback_give_up(struct rdmux_ep *ep);
/* Returns whether both sides are ready for the better path, rdmux_failback_path(): the endpoint
 * moves now. */
bool rdmux_failback_is_ready(const struct rdmux_ep *ep);
const struct rdmux_offer_path *rdmux_failback_path(const struct rdmux_ep *ep);
/* Returns whether that path is the current one: a side changes its cq. */
bool rdmux_failback_stays(const struct rdmux_ep *ep);
/* A change of cq begins: rdmux_failback_step() leads to it. */
void rdmux_failback_change_cq(struct rdmux_ep *ep);
/* Runs the work that is due. Returns true if it must be called again soon. */
bool rdmux_failback_step(struct rdmux_ep *ep);
uint64_t rdmux_failback_deadline(const struct rdmux_ep *ep);
/* Handles BACK. */
void rdmux_failback_told(struct rdmux_ep *ep, const struct rdmux_message *message);

/* Handles the loss of the control channel: gives up what the handshake was doing; MOVE will be sent
 * again. */
void rdmux_failover_channel_lost(struct rdmux_ep *ep);
/* rdmux_failover_align() compares this side with the peer's state (RESUME, RESUMED) on a
 * reconnected channel. False: the endpoint ended because of it. rdmux_failover_resumed() continues
 * from that state. */
bool rdmux_failover_align(struct rdmux_ep *ep, const struct rdmux_message *standing);
void rdmux_failover_resumed(struct rdmux_ep *ep, const struct rdmux_message *standing);

/* control_reconnect.c */
enum rdmux_status rdmux_reconnect_create(struct rdmux_ep *ep);
void rdmux_reconnect_leave(struct rdmux_ep *ep);
/* Sending on the channel failed for the reason in `text`: rdmux_reconnect_step() reconnects it. */
void rdmux_reconnect_note_broken(struct rdmux_ep *ep, const char *text);
/* Returns whether the channel is lost and not reconnected yet. */
bool rdmux_reconnect_is_under_way(const struct rdmux_ep *ep);
/* Returns whether the channel works, so that no reconnect is under way. Claims, which prove nothing,
 * may be there. */
bool rdmux_reconnect_is_idle(const struct rdmux_ep *ep);
/* The endpoint, whose reconnect is idle, changes its cq: takes the claims off the old one, and puts
 * them on the new one. */
void rdmux_reconnect_leave_cq(struct rdmux_ep *ep);
void rdmux_reconnect_enter_cq(struct rdmux_ep *ep);
/* The channel is lost for the reason in `text`: starts a control-channel reconnect. False: no
 * reconnect is possible. */
bool rdmux_reconnect_begin(struct rdmux_ep *ep, const char *text);
/* The address in use does not answer: the next dial goes to another address first, if there is
 * one. */
void rdmux_reconnect_elsewhere(struct rdmux_ep *ep);
/* This side has sent MOVE, and the MOVE of the peer has not arrived. */
void rdmux_reconnect_await_move(struct rdmux_ep *ep);
/* rdmux_reconnect_ready() handles an event on a control descriptor, rdmux_reconnect_step() the
 * time. */
void rdmux_reconnect_ready(struct rdmux_ep *ep);
void rdmux_reconnect_step(struct rdmux_ep *ep);
uint64_t rdmux_reconnect_deadline(const struct rdmux_ep *ep);
/* Note a REVOKE that was sent or could not be sent, and the REVOKED that answers it. */
void rdmux_reconnect_note_revocation(struct rdmux_ep *ep, uint64_t region, uint32_t number);
void rdmux_reconnect_revocation_answered(struct rdmux_ep *ep, uint64_t region, uint32_t number);
/* Any thread. rdmux_reconnect_is_asked() returns whether a HELLO asks to reconnect a control
 * channel. rdmux_reconnect_find() mails the endpoint; false if there is none. */
bool rdmux_reconnect_is_asked(const uint8_t hello[RDMUX_HELLO_SIZE]);
bool rdmux_reconnect_find(struct rdmux_fabric *fabric, struct rdmux_reconnect_mail *mail);
void rdmux_reconnect_deliver(struct rdmux_cq *cq, struct rdmux_mail *base);

/* replay.c. Counts receives and confirms all requests that can be confirmed. */
void rdmux_replay_confirm(struct rdmux_ep *ep);
/* Takes the count of messages that the peer reported. False: the count is impossible. */
bool rdmux_replay_counted(struct rdmux_ep *ep, uint64_t count);
/* Sends RECEIVED and posts a flush where they are due. quiet: at once, else they may wait a moment.
 * Returns whether work still waits. */
bool rdmux_replay_step(struct rdmux_ep *ep, bool quiet);
/* Returns whether the oldest unconfirmed request is a message that is done but not yet counted by
 * the peer. */
bool rdmux_replay_awaits_count(const struct rdmux_ep *ep);
/* Sends RECEIVED if the count has changed. */
void rdmux_replay_tell(struct rdmux_ep *ep);
/* Messages received over all epochs. rdmux_replay_note_told(): a message to the peer says how many
 * they are. */
uint64_t rdmux_replay_received(const struct rdmux_ep *ep);
void rdmux_replay_note_told(struct rdmux_ep *ep, uint64_t count);
/* The epoch ended before its path had any request. */
void rdmux_replay_nothing_given(struct rdmux_ep *ep);
/* The path is quiesced and will be closed: takes unfilled receives back and restores the
 * scatter/gather lists of the application. */
void rdmux_replay_cut(struct rdmux_ep *ep);
/* The peer's path is quiesced, too, and the peer has counted `count` messages: settles which
 * requests are done, in doubt, or repeated. False: the count is impossible. */
bool rdmux_replay_settle(struct rdmux_ep *ep, uint64_t count);
/* The next path is attached: offers receives and prepares requests for it. */
void rdmux_replay_resume(struct rdmux_ep *ep);
/* Returns how many of the `run` requests from `next` on in the send ring can go to the path: those
 * before the first that is settled or names an unresolved import. */
uint64_t rdmux_replay_run(struct rdmux_ep *ep, uint64_t run);
/* Replaces an import's provider part in all requests that name it. */
void rdmux_replay_remote_cut(struct rdmux_ep *ep, const struct rdmux_provider_remote *from,
                             struct rdmux_provider_remote *to);
/* The endpoint ends: marks unconfirmed requests as not done. */
void rdmux_replay_end(struct rdmux_ep *ep);

#endif
