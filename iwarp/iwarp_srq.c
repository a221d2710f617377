/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Shared receives. The device matches messages with receives, so a peer may only send messages for
 * which a receive of the SRQ is set aside. No peer has credits by default. A peer without credits
 * asks, gets a few, more each time, and is asked to give unused ones back when others wait.
 * providers/credits.h does the counting.
 */
#include "iwarp/iwarp_internal.h"
#include "verbs/verbs_endpoint.h"
#include "verbs/verbs_srq.h"

#include <assert.h>

static_assert(offsetof(struct iwarp_srq, base) == 0, "rdmux_verbs_srq_*() rely on it");

/* ---------------------------------------------------------------------------------------- lists */

static void init(struct iwarp_node *list)
{
    list->next = list;
    list->previous = list;
}

static bool is_empty(const struct iwarp_node *list)
{
    return list->next == list;
}

static void add(struct iwarp_node *list, struct iwarp_node *node)
{
    node->previous = list->previous;
    node->next = list;
    list->previous->next = node;
    list->previous = node;
}

static void take_out(struct iwarp_node *node)
{
    if (node->next != NULL) {
        node->previous->next = node->next;
        node->next->previous = node->previous;
        node->next = NULL;
    }
}

static struct iwarp_ep *member(struct iwarp_node *node)
{
    return (struct iwarp_ep *)((char *)node - offsetof(struct iwarp_ep, member));
}

static struct iwarp_ep *wanting(struct iwarp_node *node)
{
    return (struct iwarp_ep *)((char *)node - offsetof(struct iwarp_ep, wanting));
}

/* --------------------------------------------------------------------------------------- claims */

static void stop_wanting(struct iwarp_ep *ep)
{
    take_out(&ep->wanting);
    if (ep->is_asking) {
        ep->is_asking = false;
        iwarp_srq_of_ep(ep)->asking_count--;
    }
}

/* Receives that the device holds. */
static uint64_t receives(const struct iwarp_srq *srq)
{
    return srq->base.depth - srq->base.free_count;
}

static bool lend(struct iwarp_ep *ep, uint64_t waiting)
{
    struct iwarp_srq *srq = iwarp_srq_of_ep(ep);
    return rdmux_credits_lend(&srq->pool, &ep->credit.given, ep->level, receives(srq), waiting) !=
           0;
}

/* Asks the peer to give unused credits back. Credits about to be told may answer the peer's own
 * question; the recall covers them too, and a message that waits for them uses them first. */
static void recall(struct iwarp_ep *ep)
{
    struct iwarp_srq *srq = iwarp_srq_of_ep(ep);
    if (!ep->credit.has_news) {
        (void)rdmux_credits_withdraw(&srq->pool, &ep->credit.given);
    }
    if (rdmux_credits_window(&ep->credit.given) == 0) {
        return;
    }
    if (!ep->is_recalling && ep->base.state == VERBS_EP_CONNECTED) {
        ep->is_recalling = true;
        iwarp_credit_recall(&ep->credit);
        rdmux_iwarp_talk_soon(ep);
    }
}

static void tell(struct iwarp_ep *ep, bool at_once)
{
    ep->credit.has_news = ep->credit.has_news || at_once;
    if (iwarp_credit_is_due(&ep->credit)) {
        rdmux_iwarp_talk_soon(ep);
    }
}

/* Gives unclaimed receives to the endpoints whose peers asked, oldest first, then to those that
 * could use more. */
static void serve(struct iwarp_srq *srq)
{
    for (int round = 0; round < 2 && !is_empty(&srq->asking); round++) {
        while (!is_empty(&srq->asking)) {
            struct iwarp_ep *ep = wanting(srq->asking.next);
            /* A peer that asks has used all credits it was told of, though the messages may be in
             * flight. */
            if (!lend(ep, srq->asking_count) && rdmux_credits_untold(&ep->credit.given) == 0) {
                break;
            }
            stop_wanting(ep);
            tell(ep, true);
        }
        for (struct iwarp_node *at = srq->members.next;
             at != &srq->members && !is_empty(&srq->asking); at = at->next) {
            recall(member(at));
        }
    }
    while (is_empty(&srq->asking) && !is_empty(&srq->hungry)) {
        struct iwarp_ep *ep = wanting(srq->hungry.next);
        if (!lend(ep, 2) && rdmux_credits_window(&ep->credit.given) < ep->level) {
            break;
        }
        stop_wanting(ep);
        tell(ep, false);
    }
}

/* The peer asks for credits. */
static void asked(struct iwarp_ep *ep)
{
    struct iwarp_srq *srq = iwarp_srq_of_ep(ep);
    ep->level = rdmux_credits_level_up(ep->level);
    if (!ep->is_asking) {
        take_out(&ep->wanting);
        add(&srq->asking, &ep->wanting);
        ep->is_asking = true;
        srq->asking_count++;
    }
    serve(srq);
}

bool rdmux_iwarp_srq_hear(struct iwarp_ep *ep, const struct iwarp_credit_news *news)
{
    struct iwarp_srq *srq = iwarp_srq_of_ep(ep);
    if (news->returned != 0 &&
        !rdmux_credits_return(&srq->pool, &ep->credit.given, news->returned)) {
        return false;
    }
    if (news->answers) {
        ep->is_recalling = false;
        ep->level = ep->is_asking ? RDMUX_CREDITS_LEVEL_FIRST
                                  : 0; /* the peer may have asked before it answered */
        serve(srq);
    }
    if (news->asks) {
        asked(ep);
    }
    return true;
}

bool rdmux_iwarp_srq_use(struct iwarp_ep *ep)
{
    struct iwarp_srq *srq = iwarp_srq_of_ep(ep);
    if (!rdmux_credits_use_shared(&srq->pool, &ep->credit.given)) {
        return false;
    }
    if (is_empty(&srq->asking) && !ep->is_recalling) {
        (void)lend(ep, 2);
    }
    if (rdmux_credits_window(&ep->credit.given) < ep->level && ep->wanting.next == NULL) {
        add(&srq->hungry, &ep->wanting);
    }
    if (!is_empty(&srq->asking)) {
        serve(srq); /* this endpoint may have blocked its own question */
    }
    return true;
}

/* ------------------------------------------------------------------------------------ operations */

void rdmux_iwarp_srq_join(struct iwarp_ep *ep)
{
    if (ep->base.attr->srq != NULL) {
        add(&iwarp_srq_of_ep(ep)->members, &ep->member);
    }
}

void rdmux_iwarp_srq_leave(struct iwarp_ep *ep)
{
    if (ep->member.next == NULL) {
        return;
    }
    struct iwarp_srq *srq = iwarp_srq_of_ep(ep);
    stop_wanting(ep);
    take_out(&ep->member);
    (void)rdmux_credits_leave(&srq->pool, &ep->credit.given);
    serve(srq);
}

enum rdmux_status rdmux_iwarp_srq_open(struct rdmux_provider_srq *base, uint32_t depth,
                                       uint32_t max_sge)
{
    struct iwarp_srq *srq = (struct iwarp_srq *)base;
    init(&srq->members);
    init(&srq->asking);
    init(&srq->hungry);
    return rdmux_verbs_srq_open(base, depth, max_sge);
}

enum rdmux_status rdmux_iwarp_srq_post_recv(struct rdmux_provider_srq *base,
                                            struct rdmux_request *requests, size_t count)
{
    enum rdmux_status status = rdmux_verbs_srq_post_recv(base, requests, count);
    serve((struct iwarp_srq *)base);
    return status;
}
