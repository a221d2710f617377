/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Credit policy: when to grant, request and recall credits. providers/credits.h does the
 * counting. */
#include "tcp_fallback/tcp_credit.h"

#include "providers/credits.h"
#include "tcp_fallback/tcp_endpoint.h"
#include "tcp_fallback/tcp_list.h"
#include "tcp_fallback/tcp_send.h"

/* Schedules a due grant. It travels with other frames if any are sent before the next poll. */
static void tell_when_due(struct tcp_ep *ep)
{
    if (ep->state == TCP_CONNECTED && rdmux_credits_due(&ep->given)) {
        if (rdmux_tcp_cq_of(ep)->armed) {
            ep->out.credit_now = true;
        }
        rdmux_tcp_nudge(ep); /* the poll checks again whether it is due */
    }
}

/* ------------------------------------------------------------------------------ shared receives */

static void tell_now(struct tcp_ep *ep)
{
    ep->out.credit_now = true;
    rdmux_tcp_nudge(ep);
}

static void stop_asking(struct tcp_ep *ep)
{
    tcp_link_remove(&ep->wanting);
    if (ep->asking) {
        ep->asking = false;
        ep->srq->asking_count--;
    }
}

/* Sets receives aside for the endpoint, as many as its level allows. No other endpoint can then
 * take them, on any provider. */
static bool lend(struct tcp_ep *ep, uint64_t waiting)
{
    struct rdmux_credits_pool *pool = &ep->srq->pool;
    uint64_t receives = pool->promised + rdmux_provider_receives(&ep->base);
    uint64_t count = rdmux_credits_lend(pool, &ep->given, ep->level, receives, waiting);
    if (count != 0) {
        (void)rdmux_provider_reserve(&ep->base, (uint32_t)count); /* so many are free */
    }
    return count != 0;
}

/* Asks the peer to return its unused credits. */
static void recall(struct tcp_ep *ep)
{
    if (rdmux_credits_outstanding(&ep->given) == 0 && ep->out.credit_now) {
        return; /* the pending grant may answer the peer's ASK */
    }
    uint64_t untold = rdmux_credits_withdraw(&ep->srq->pool, &ep->given);
    rdmux_provider_unreserve(&ep->base, (uint32_t)untold);
    if (!ep->recalled && ep->state == TCP_CONNECTED && rdmux_credits_outstanding(&ep->given) > 0) {
        ep->recalled = true;
        ep->out.recall = true;
        rdmux_tcp_nudge(ep);
    }
}

/* Recalls credits from all endpoints of the SRQ: an endpoint waits and no receive is left. */
static void recall_all(struct tcp_srq *srq)
{
    for (struct tcp_link *link = srq->members.next; link != &srq->members; link = link->next) {
        recall(TCP_CONTAINER(link, struct tcp_ep, member));
    }
}

/* Gives unclaimed receives to endpoints whose peers asked, oldest first, then to endpoints whose
 * peers could use more credits. */
static void serve(struct tcp_srq *srq)
{
    for (int round = 0; round < 2 && !tcp_list_is_empty(&srq->asking); round++) {
        while (!tcp_list_is_empty(&srq->asking)) {
            struct tcp_ep *ep = TCP_CONTAINER(srq->asking.next, struct tcp_ep, wanting);
            if (!lend(ep, srq->asking_count) && rdmux_credits_window(&ep->given) == 0) {
                (void)rdmux_provider_reserve(&ep->base, 1); /* none is left: claims the next one */
                break;
            }
            stop_asking(ep);
            tell_now(ep);
        }
        if (tcp_list_is_empty(&srq->asking)) {
            break;
        }
        recall_all(srq);
    }
    while (tcp_list_is_empty(&srq->asking) && !tcp_list_is_empty(&srq->hungry)) {
        struct tcp_ep *ep = TCP_CONTAINER(srq->hungry.next, struct tcp_ep, wanting);
        if (!lend(ep, 2) && rdmux_credits_window(&ep->given) < ep->level) {
            break;
        }
        stop_asking(ep);
        tell_when_due(ep);
    }
}

enum rdmux_status rdmux_tcp_post_recv(struct rdmux_provider_ep *base,
                                      struct rdmux_request *requests, size_t count)
{
    struct tcp_ep *ep = rdmux_tcp_ep(base);
    (void)requests;
    (void)count;
    if (ep->srq != NULL) {
        if (rdmux_provider_receives_awaited(base)) {
            recall(ep); /* another domain's endpoint waits */
        }
        serve(ep->srq); /* the endpoint may use receives of the SRQ from now on */
        return RDMUX_OK;
    }
    /* The core's count decides: receives may be older than this endpoint. */
    ep->given.posted = ep->given.used + rdmux_provider_receives(base);
    tell_when_due(ep);
    return RDMUX_OK;
}

bool rdmux_tcp_credit_use(struct tcp_ep *ep)
{
    struct tcp_srq *srq = ep->srq;
    if (srq == NULL) {
        bool had = rdmux_credits_use(&ep->given);
        tell_when_due(ep); /* receives posted before may have been too few for a grant */
        return had;
    }
    if (!rdmux_credits_use_shared(&srq->pool, &ep->given)) {
        return false;
    }
    if (rdmux_provider_receives_awaited(&ep->base)) {
        recall(ep);
    } else if (tcp_list_is_empty(&srq->asking) && !ep->recalled) {
        (void)lend(ep, 2);
    }
    if (rdmux_credits_window(&ep->given) < ep->level && !tcp_link_is_on(&ep->wanting)) {
        tcp_list_add(&srq->hungry, &ep->wanting);
    }
    tell_when_due(ep);
    return true;
}

void rdmux_tcp_credit_asked(struct tcp_ep *ep)
{
    struct tcp_srq *srq = ep->srq;
    if (srq == NULL) {
        ep->out.credit_now = true;
        return;
    }
    if (rdmux_credits_outstanding(&ep->given) > 0) {
        return; /* a credit crossed the ASK */
    }
    ep->level = rdmux_credits_level_up(ep->level);
    if (!ep->asking) {
        tcp_link_remove(&ep->wanting);
        tcp_list_add(&srq->asking, &ep->wanting);
        ep->asking = true;
        srq->asking_count++;
    }
    serve(srq);
}

bool rdmux_tcp_credit_returned(struct tcp_ep *ep, uint64_t count)
{
    if (ep->srq == NULL || !ep->recalled ||
        !rdmux_credits_return(&ep->srq->pool, &ep->given, count)) {
        return false;
    }
    rdmux_provider_unreserve(&ep->base, (uint32_t)count);
    ep->recalled = false;
    ep->level = ep->asking ? RDMUX_CREDITS_LEVEL_FIRST : 0; /* an ASK may have come before */
    serve(ep->srq);
    return true;
}

void rdmux_tcp_credit_join(struct tcp_ep *ep, struct tcp_srq *srq)
{
    ep->srq = srq;
    tcp_list_add(&srq->members, &ep->member);
}

void rdmux_tcp_credit_leave(struct tcp_ep *ep)
{
    struct tcp_srq *srq = ep->srq;
    if (srq == NULL || !tcp_link_is_on(&ep->member)) {
        return;
    }
    stop_asking(ep);
    tcp_link_remove(&ep->member);
    uint64_t left = rdmux_credits_leave(&srq->pool, &ep->given);
    rdmux_provider_unreserve(&ep->base, (uint32_t)left);
    serve(srq);
}

enum rdmux_status rdmux_tcp_srq_open(struct rdmux_provider_srq *base, uint32_t depth,
                                     uint32_t max_sge)
{
    struct tcp_srq *srq = (struct tcp_srq *)base;
    (void)depth;
    (void)max_sge;
    tcp_list_init(&srq->members);
    tcp_list_init(&srq->asking);
    tcp_list_init(&srq->hungry);
    return RDMUX_OK;
}

void rdmux_tcp_srq_close(struct rdmux_provider_srq *srq)
{
    (void)srq;
}

enum rdmux_status rdmux_tcp_srq_post_recv(struct rdmux_provider_srq *base,
                                          struct rdmux_request *requests, size_t count)
{
    struct tcp_srq *srq = (struct tcp_srq *)base;
    (void)requests;
    (void)count;
    serve(srq);
    return RDMUX_OK;
}
