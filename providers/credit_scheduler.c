/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "providers/credit_scheduler.h"

void rdmux_credit_scheduler_init(struct rdmux_credit_scheduler *scheduler,
                                 const struct rdmux_credit_ops *ops)
{
    scheduler->ops = ops;
    rdmux_list_init(&scheduler->members);
    rdmux_list_init(&scheduler->lent);
    rdmux_list_init(&scheduler->asking);
    rdmux_list_init(&scheduler->hungry);
}

void rdmux_credit_join(struct rdmux_credit_scheduler *scheduler, struct rdmux_credit_user *user,
                       struct rdmux_credits_given *given)
{
    user->given = given;
    rdmux_list_append(&scheduler->members, &user->member);
}

static void stop_wanting(struct rdmux_credit_scheduler *scheduler, struct rdmux_credit_user *user)
{
    rdmux_node_remove(&user->wanting);
    if (user->is_asking) {
        user->is_asking = false;
        scheduler->asking_count--;
    }
}

uint64_t rdmux_credit_leave(struct rdmux_credit_scheduler *scheduler, struct rdmux_credit_user *user)
{
    stop_wanting(scheduler, user);
    user->has_asked = false;
    rdmux_node_remove(&user->lent);
    rdmux_node_remove(&user->member);
    return rdmux_credits_leave(&scheduler->pool, user->given);
}

static struct rdmux_credit_user *first_of(const struct rdmux_list *list)
{
    return RDMUX_CONTAINER(list->next, struct rdmux_credit_user, wanting);
}

static void note_lent(struct rdmux_credit_scheduler *scheduler, struct rdmux_credit_user *user)
{
    if (!rdmux_node_is_listed(&user->lent)) {
        rdmux_list_append(&scheduler->lent, &user->lent);
    }
}

static bool lend(struct rdmux_credit_scheduler *scheduler, struct rdmux_credit_user *user,
                 uint64_t waiting)
{
    if (!scheduler->ops->lend(user, waiting)) {
        return false;
    }
    note_lent(scheduler, user);
    return true;
}

static void serve_asking(struct rdmux_credit_scheduler *scheduler)
{
    while (!rdmux_list_empty(&scheduler->asking)) {
        struct rdmux_credit_user *user = first_of(&scheduler->asking);
        if (!lend(scheduler, user, scheduler->asking_count) && !scheduler->ops->has_some(user)) {
            break;
        }
        stop_wanting(scheduler, user);
        scheduler->ops->tell(user, true);
    }
}

static void recall_all(struct rdmux_credit_scheduler *scheduler)
{
    for (struct rdmux_list *at = scheduler->lent.next, *next; at != &scheduler->lent; at = next) {
        next = at->next;
        struct rdmux_credit_user *user = RDMUX_CONTAINER(at, struct rdmux_credit_user, lent);
        scheduler->ops->recall(user);
        if (user->is_recalling || rdmux_credits_window(user->given) == 0) {
            rdmux_node_remove(&user->lent);
        }
    }
}

void rdmux_credit_serve(struct rdmux_credit_scheduler *scheduler)
{
    /* A recall may free receives at once, so the users that asked are served twice. */
    for (int round = 0; round < 2 && !rdmux_list_empty(&scheduler->asking); round++) {
        serve_asking(scheduler);
        if (!rdmux_list_empty(&scheduler->asking)) {
            recall_all(scheduler);
        }
    }
    while (rdmux_list_empty(&scheduler->asking) && !rdmux_list_empty(&scheduler->hungry)) {
        struct rdmux_credit_user *user = first_of(&scheduler->hungry);
        if (!lend(scheduler, user, 2) && rdmux_credits_window(user->given) < user->level) {
            break;
        }
        stop_wanting(scheduler, user);
        scheduler->ops->tell(user, false);
    }
}

static void start_asking(struct rdmux_credit_scheduler *scheduler, struct rdmux_credit_user *user)
{
    if (!user->is_asking) {
        rdmux_node_remove(&user->wanting);
        rdmux_list_append(&scheduler->asking, &user->wanting);
        user->is_asking = true;
        scheduler->asking_count++;
    }
}

void rdmux_credit_asked(struct rdmux_credit_scheduler *scheduler, struct rdmux_credit_user *user)
{
    user->level = rdmux_credits_level_up(user->level);
    if (user->is_paused) {
        user->has_asked = true;
        return;
    }
    start_asking(scheduler, user);
    rdmux_credit_serve(scheduler);
}

void rdmux_credit_answered(struct rdmux_credit_scheduler *scheduler, struct rdmux_credit_user *user)
{
    user->is_recalling = false;
    if (rdmux_credits_window(user->given) != 0) {
        note_lent(scheduler, user); /* lent since the question */
    }
    /* The peer may have asked before it answered. */
    user->level = user->is_asking || user->has_asked ? RDMUX_CREDITS_LEVEL_FIRST : 0;
    rdmux_credit_serve(scheduler);
}

void rdmux_credit_pause(struct rdmux_credit_scheduler *scheduler, struct rdmux_credit_user *user,
                        bool is_paused)
{
    if (user->is_paused == is_paused || !rdmux_node_is_listed(&user->member)) {
        return;
    }
    user->is_paused = is_paused;
    if (is_paused) {
        /* Credits that the peer is not told of yet may answer a question. */
        user->has_asked = user->is_asking || rdmux_credits_untold(user->given) != 0;
        stop_wanting(scheduler, user);
        scheduler->ops->recall(user);
    } else if (user->has_asked) {
        user->has_asked = false;
        start_asking(scheduler, user);
    }
    rdmux_credit_serve(scheduler);
}

void rdmux_credit_top_up(struct rdmux_credit_scheduler *scheduler, struct rdmux_credit_user *user)
{
    if (rdmux_list_empty(&scheduler->asking) && !user->is_recalling && !user->is_paused) {
        (void)lend(scheduler, user, 2);
    }
}

void rdmux_credit_note_hungry(struct rdmux_credit_scheduler *scheduler,
                              struct rdmux_credit_user *user)
{
    if (rdmux_credits_window(user->given) < user->level && !user->is_paused &&
        !rdmux_node_is_listed(&user->wanting)) {
        rdmux_list_append(&scheduler->hungry, &user->wanting);
    }
}
