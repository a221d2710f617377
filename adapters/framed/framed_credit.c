/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* When to grant, request and recall credits. providers/credits.h does the counting,
 * providers/credit_scheduler.h shares the receives of an SRQ among its endpoints. */
#include "adapters/framed/framed_credit.h"

#include "adapters/framed/framed_endpoint.h"
#include "adapters/framed/framed_send.h"

static void tell_now(struct framed_ep *ep)
{
    ep->is_credit_due = true;
    rdmux_framed_nudge(ep);
}

/* Any frame brings credits; one of its own is worth it when the peer is down to half. */
static void tell_when_due(struct framed_ep *ep)
{
    if (ep->state == FRAMED_CONNECTED && rdmux_credits_due(&ep->given)) {
        tell_now(ep);
    }
}

/* ------------------------------------------------------------------------------ shared receives */

static struct framed_ep *ep_of_user(struct rdmux_credit_user *user)
{
    return RDMUX_CONTAINER(user, struct framed_ep, user);
}

static bool lend_credits(struct rdmux_credit_user *user, uint64_t waiting)
{
    struct framed_ep *ep = ep_of_user(user);
    struct rdmux_credits_pool *pool = &ep->srq->scheduler.pool;
    uint64_t receives = pool->promised + rdmux_provider_receives(&ep->base);
    uint64_t count = rdmux_credits_lend(pool, &ep->given, user->level, receives, waiting);
    if (count != 0) {
        (void)rdmux_provider_reserve(&ep->base, (uint32_t)count); /* so many are free */
    }
    return count != 0;
}

static bool has_some(struct rdmux_credit_user *user)
{
    struct framed_ep *ep = ep_of_user(user);
    if (rdmux_credits_window(&ep->given) != 0) {
        return true;
    }
    (void)rdmux_provider_reserve(&ep->base, 1); /* none is left: claims the next one */
    return false;
}

static void tell_credits(struct rdmux_credit_user *user, bool at_once)
{
    struct framed_ep *ep = ep_of_user(user);
    if (at_once) {
        tell_now(ep);
    } else {
        tell_when_due(ep);
    }
}

static void recall_credits(struct rdmux_credit_user *user)
{
    struct framed_ep *ep = ep_of_user(user);
    if (rdmux_credits_outstanding(&ep->given) == 0 && ep->is_credit_due && !user->is_paused) {
        return; /* the pending grant may answer the peer's question */
    }
    uint64_t untold = rdmux_credits_withdraw(&ep->srq->scheduler.pool, &ep->given);
    rdmux_provider_unreserve(&ep->base, (uint32_t)untold);
    if (ep->state == FRAMED_CONNECTED && rdmux_credits_outstanding(&ep->given) > 0 &&
        rdmux_credit_begin_recall(user)) {
        ep->is_recalling = true;
        rdmux_framed_nudge(ep);
    }
}

static const struct rdmux_credit_ops credit_ops = {
    .lend = lend_credits,
    .has_some = has_some,
    .tell = tell_credits,
    .recall = recall_credits,
};

/* --------------------------------------------------------------------------------- the endpoint */

enum rdmux_status rdmux_framed_post_recv(struct rdmux_provider_ep *base,
                                         struct rdmux_request *requests, size_t count)
{
    struct framed_ep *ep = framed_ep_of(base);
    (void)requests;
    (void)count;
    if (ep->srq != NULL) {
        rdmux_credit_pause(&ep->srq->scheduler, &ep->user, rdmux_provider_is_paused(base) != 0);
        if (rdmux_provider_receives_awaited(base)) {
            recall_credits(&ep->user); /* another domain's endpoint waits */
        }
        rdmux_credit_serve(&ep->srq->scheduler);
        return RDMUX_OK;
    }
    /* The core's count decides: receives may be older than this endpoint. */
    ep->given.posted = ep->given.used + rdmux_provider_receives(base);
    tell_when_due(ep);
    return RDMUX_OK;
}

void rdmux_framed_credit_begin(struct framed_ep *ep)
{
    if (ep->srq == NULL) {
        ep->given.posted = ep->given.used + rdmux_provider_receives(&ep->base);
        tell_when_due(ep);
    }
}

void rdmux_framed_credit_use(struct framed_ep *ep)
{
    if (ep->srq == NULL) {
        (void)rdmux_credits_use(&ep->given);
        tell_when_due(ep); /* receives posted before may have been too few for a grant */
        return;
    }
    struct rdmux_credit_scheduler *scheduler = &ep->srq->scheduler;
    (void)rdmux_credits_use_shared(&scheduler->pool, &ep->given);
    if (rdmux_provider_receives_awaited(&ep->base)) {
        recall_credits(&ep->user);
    } else {
        rdmux_credit_top_up(scheduler, &ep->user);
    }
    rdmux_credit_note_hungry(scheduler, &ep->user);
    tell_when_due(ep);
}

void rdmux_framed_credit_asked(struct framed_ep *ep)
{
    if (ep->srq == NULL) {
        ep->is_credit_due = true;
        return;
    }
    if (rdmux_credits_outstanding(&ep->given) > 0) {
        return; /* a credit crossed the question */
    }
    rdmux_credit_asked(&ep->srq->scheduler, &ep->user);
}

bool rdmux_framed_credit_returned(struct framed_ep *ep, uint64_t count)
{
    if (ep->srq == NULL || !ep->user.is_recalling ||
        !rdmux_credits_return(&ep->srq->scheduler.pool, &ep->given, count)) {
        return false;
    }
    rdmux_provider_unreserve(&ep->base, (uint32_t)count);
    rdmux_credit_answered(&ep->srq->scheduler, &ep->user);
    return true;
}

void rdmux_framed_credit_join(struct framed_ep *ep, struct framed_srq *srq)
{
    ep->srq = srq;
    rdmux_credit_join(&srq->scheduler, &ep->user, &ep->given);
}

void rdmux_framed_credit_leave(struct framed_ep *ep)
{
    if (ep->srq == NULL || !rdmux_node_is_listed(&ep->user.member)) {
        return;
    }
    uint64_t left = rdmux_credit_leave(&ep->srq->scheduler, &ep->user);
    rdmux_provider_unreserve(&ep->base, (uint32_t)left);
    rdmux_credit_serve(&ep->srq->scheduler);
}

/* -------------------------------------------------------------------------------------- the SRQ */

enum rdmux_status rdmux_framed_srq_open(struct rdmux_provider_srq *base, uint32_t depth,
                                        uint32_t max_sge)
{
    (void)depth;
    (void)max_sge;
    rdmux_credit_scheduler_init(&((struct framed_srq *)base)->scheduler, &credit_ops);
    return RDMUX_OK;
}

void rdmux_framed_srq_close(struct rdmux_provider_srq *srq)
{
    (void)srq;
}

enum rdmux_status rdmux_framed_srq_post_recv(struct rdmux_provider_srq *base,
                                             struct rdmux_request *requests, size_t count)
{
    (void)requests;
    (void)count;
    rdmux_credit_serve(&((struct framed_srq *)base)->scheduler);
    return RDMUX_OK;
}
