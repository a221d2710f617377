/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * The scheduler of a shared receive queue's credits, for one provider. A peer without credits asks.
 * Peers that asked get receives first, the oldest question first; then the peers that could use
 * more. While a peer waits and no receive is left, the others are asked to give unused credits
 * back. providers/credits.h does the counting. One thread at a time: the cq's owner.
 */
#ifndef RDMUX_PROVIDERS_CREDIT_SCHEDULER_H
#define RDMUX_PROVIDERS_CREDIT_SCHEDULER_H

#include "api/base/list.h"
#include "providers/credits.h"

#include <stdbool.h>
#include <stdint.h>

/* An endpoint of the queue. Zeroed: not one yet. */
struct rdmux_credit_user {
    struct rdmux_list member;  /* of the scheduler */
    struct rdmux_list wanting; /* on asking or hungry */
    struct rdmux_list lent;    /* of the scheduler */
    struct rdmux_credits_given *given;
    uint32_t level;    /* credits that the peer should have at a time */
    bool is_asking;    /* the peer asked and has got no credit since */
    bool is_recalling; /* the peer was asked to give credits back and has not answered */
    bool is_paused;    /* it gets no credits */
    bool has_asked;    /* while it is paused: the peer has asked, as is_asking */
};

/* The operations that differ between providers. */
struct rdmux_credit_ops {
    /* Sets receives aside for the user, up to its level, by rdmux_credits_lend() with this
     * `waiting`. Returns whether there were any. */
    bool (*lend)(struct rdmux_credit_user *user, uint64_t waiting);
    /* Returns whether a peer that asked will hear of credits although none could be lent. If not,
     * the provider may claim the next receive for it. */
    bool (*has_some)(struct rdmux_credit_user *user);
    /* Tells the peer of its credits: at once, or when that is due. */
    void (*tell)(struct rdmux_credit_user *user, bool at_once);
    /* Takes back the receives that the peer was not told of; those that are about to answer the
     * peer's question only if the user is paused. If the peer may have unused credits, and
     * rdmux_credit_begin_recall() returns true, asks the peer for them. */
    void (*recall)(struct rdmux_credit_user *user);
};

struct rdmux_credit_scheduler {
    const struct rdmux_credit_ops *ops;
    struct rdmux_credits_pool pool;
    struct rdmux_list members;
    /* Users that may have unused credits, and were not asked for them. So a recall costs no more
     * than the lending before it, whatever the number of users. */
    struct rdmux_list lent;
    struct rdmux_list asking; /* users whose peers asked, oldest first */
    struct rdmux_list hungry; /* users that could use more credits */
    uint64_t asking_count;
};

/* For the recall operation, just before it asks the peer. False: the peer was asked and has not
 * answered yet. */
static inline bool rdmux_credit_begin_recall(struct rdmux_credit_user *user)
{
    const bool begins = !user->is_recalling;
    user->is_recalling = true; /* until rdmux_credit_answered() */
    return begins;
}

void rdmux_credit_scheduler_init(struct rdmux_credit_scheduler *scheduler,
                                 const struct rdmux_credit_ops *ops);

void rdmux_credit_join(struct rdmux_credit_scheduler *scheduler, struct rdmux_credit_user *user,
                       struct rdmux_credits_given *given);
/* Takes the user off all lists and its unused receives back. Returns how many these are. The caller
 * serves the others next. */
uint64_t rdmux_credit_leave(struct rdmux_credit_scheduler *scheduler,
                            struct rdmux_credit_user *user);

/* Gives unclaimed receives to the users: after receives were posted or given back. */
void rdmux_credit_serve(struct rdmux_credit_scheduler *scheduler);
/* The peer asks for credits. Serves. */
void rdmux_credit_asked(struct rdmux_credit_scheduler *scheduler, struct rdmux_credit_user *user);
/* The peer answers a recall; the credits that it gave back are counted. Serves. */
void rdmux_credit_answered(struct rdmux_credit_scheduler *scheduler, struct rdmux_credit_user *user);
/* Pauses the user, or ends the pause; nothing changes if it is so already. While it is paused, it
 * gets no credits, and the question of its peer waits. Serves. */
void rdmux_credit_pause(struct rdmux_credit_scheduler *scheduler, struct rdmux_credit_user *user,
                        bool is_paused);
/* A message used a credit of the user, which is counted: sets the next receives aside, if no user
 * waits. [data path] */
void rdmux_credit_top_up(struct rdmux_credit_scheduler *scheduler, struct rdmux_credit_user *user);
/* Notes a user below its level as one that could use more credits. [data path] */
void rdmux_credit_note_hungry(struct rdmux_credit_scheduler *scheduler,
                              struct rdmux_credit_user *user);

#endif
