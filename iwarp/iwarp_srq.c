/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Shared receives. The device matches messages with receives, so a peer may only send messages for
 * which a receive of the SRQ is set aside. No peer has credits by default. A peer without credits
 * asks, gets a few, more each time, and is asked to give unused ones back when others wait.
 * providers/credits.h does the counting, providers/credit_scheduler.h the sharing.
 */
#include "iwarp/iwarp_internal.h"
#include "verbs/verbs_endpoint.h"
#include "verbs/verbs_srq.h"

#include <assert.h>

static_assert(offsetof(struct iwarp_srq, base) == 0, "rdmux_verbs_srq_*() rely on it");

static struct iwarp_ep *iwarp_ep_of_user(struct rdmux_credit_user *user)
{
    return RDMUX_CONTAINER(user, struct iwarp_ep, user);
}

/* Receives that the device holds. */
static uint64_t receives_of(const struct iwarp_srq *srq)
{
    return srq->base.depth - srq->base.free_count;
}

static bool lend_credits(struct rdmux_credit_user *user, uint64_t waiting)
{
    struct iwarp_srq *srq = iwarp_srq_of_ep(iwarp_ep_of_user(user));
    return rdmux_credits_lend(&srq->scheduler.pool, user->given, user->level, receives_of(srq),
                              waiting) != 0;
}

/* A peer that asks has used all credits it was told of, though the messages may be in flight. */
static bool has_some(struct rdmux_credit_user *user)
{
    return rdmux_credits_untold(user->given) != 0;
}

/* Asks the peer to give unused credits back. Credits about to be told may answer the peer's own
 * question; the recall covers them too, and a message that waits for them uses them first. */
static void recall_credits(struct rdmux_credit_user *user)
{
    struct iwarp_ep *ep = iwarp_ep_of_user(user);
    if (!ep->credit.has_news || user->is_paused) {
        (void)rdmux_credits_withdraw(&iwarp_srq_of_ep(ep)->scheduler.pool, user->given);
    }
    if (rdmux_credits_window(user->given) == 0) {
        return;
    }
    if (ep->base.state == VERBS_EP_CONNECTED && rdmux_credit_begin_recall(user)) {
        iwarp_credit_recall(&ep->credit);
        rdmux_iwarp_talk_soon(ep);
    }
}

static void tell_credits(struct rdmux_credit_user *user, bool at_once)
{
    struct iwarp_ep *ep = iwarp_ep_of_user(user);
    ep->credit.has_news = ep->credit.has_news || at_once;
    if (iwarp_credit_is_due(&ep->credit)) {
        rdmux_iwarp_talk_soon(ep);
    }
}

static const struct rdmux_credit_ops credit_ops = {
    .lend = lend_credits,
    .has_some = has_some,
    .tell = tell_credits,
    .recall = recall_credits,
};

/* ----------------------------------------------------------------------------------- operations */

bool rdmux_iwarp_srq_hear(struct iwarp_ep *ep, const struct iwarp_credit_news *news)
{
    struct rdmux_credit_scheduler *scheduler = &iwarp_srq_of_ep(ep)->scheduler;
    if (news->returned != 0 &&
        !rdmux_credits_return(&scheduler->pool, &ep->credit.given, news->returned)) {
        return false;
    }
    if (news->is_answer) {
        rdmux_credit_answered(scheduler, &ep->user);
    }
    if (news->is_question) {
        rdmux_credit_asked(scheduler, &ep->user);
    }
    return true;
}

bool rdmux_iwarp_srq_use(struct iwarp_ep *ep)
{
    struct rdmux_credit_scheduler *scheduler = &iwarp_srq_of_ep(ep)->scheduler;
    if (!rdmux_credits_use_shared(&scheduler->pool, &ep->credit.given)) {
        return false;
    }
    rdmux_credit_top_up(scheduler, &ep->user);
    rdmux_credit_note_hungry(scheduler, &ep->user);
    if (!rdmux_list_empty(&scheduler->asking)) {
        rdmux_credit_serve(scheduler); /* this endpoint may have blocked its own question */
    }
    return true;
}

void rdmux_iwarp_srq_join(struct iwarp_ep *ep)
{
    if (ep->base.attr->srq != NULL) {
        rdmux_credit_join(&iwarp_srq_of_ep(ep)->scheduler, &ep->user, &ep->credit.given);
        rdmux_iwarp_srq_news(&ep->base); /* a paused endpoint may have moved here */
    }
}

void rdmux_iwarp_srq_news(struct verbs_ep *base)
{
    struct iwarp_ep *ep = iwarp_of(base);
    if (base->attr->srq != NULL) {
        rdmux_credit_pause(&iwarp_srq_of_ep(ep)->scheduler, &ep->user,
                           rdmux_provider_is_paused(&base->base) != 0);
    }
}

void rdmux_iwarp_srq_leave(struct iwarp_ep *ep)
{
    if (!rdmux_node_is_listed(&ep->user.member)) {
        return;
    }
    struct rdmux_credit_scheduler *scheduler = &iwarp_srq_of_ep(ep)->scheduler;
    (void)rdmux_credit_leave(scheduler, &ep->user);
    rdmux_credit_serve(scheduler);
}

enum rdmux_status rdmux_iwarp_srq_open(struct rdmux_provider_srq *base, uint32_t depth,
                                       uint32_t max_sge)
{
    struct iwarp_srq *srq = (struct iwarp_srq *)base;
    rdmux_credit_scheduler_init(&srq->scheduler, &credit_ops);
    return rdmux_verbs_srq_open(base, depth, max_sge);
}

enum rdmux_status rdmux_iwarp_srq_post_recv(struct rdmux_provider_srq *base,
                                            struct rdmux_request *requests, size_t count)
{
    enum rdmux_status status = rdmux_verbs_srq_post_recv(base, requests, count);
    rdmux_credit_serve(&((struct iwarp_srq *)base)->scheduler);
    return status;
}
