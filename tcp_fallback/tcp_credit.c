/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Credit policy: when to grant, request and recall credits. providers/credits.h does the counting,
 * providers/credit_scheduler.h shares the receives of an SRQ among its endpoints. */
#include "tcp_fallback/tcp_credit.h"

#include "api/base/pieces.h"
#include "tcp_fallback/tcp_completion.h"
#include "tcp_fallback/tcp_endpoint.h"
#include "tcp_fallback/tcp_pool.h"
#include "tcp_fallback/tcp_send.h"
#include "tcp_fallback/tcp_state.h"

#include <stdio.h>

/* Schedules a due grant. It travels with other frames if any are sent before the next poll. */
static void tell_when_due(struct tcp_ep *ep)
{
    if (ep->state == TCP_CONNECTED && rdmux_credits_due(&ep->given)) {
        if (ep->in.early.bytes != NULL && ep->in.early.is_whole) {
            rdmux_tcp_deliver_early(ep); /* it takes the receive; the peer has no credit */
            return;
        }
        if (rdmux_tcp_cq_of(ep)->is_armed) {
            ep->out.is_credit_due = true;
        }
        rdmux_tcp_nudge(ep); /* the poll checks again whether it is due */
    }
}

/* ------------------------------------------------------------------------------- early messages */

void rdmux_tcp_message_too_long(struct tcp_ep *ep, struct rdmux_request *receive, uint64_t index,
                                const struct tcp_frame *frame)
{
    char text[RDMUX_TEXT_MAX];
    (void)snprintf(text, sizeof(text),
                   "tcp: a message of %llu bytes came for a receive of %llu bytes",
                   (unsigned long long)frame->length, (unsigned long long)receive->length);
    rdmux_provider_received(&ep->base, receive, RDMUX_LENGTH, RDMUX_WC_RECV, frame->length,
                            (frame->flags & TCP_IMM) ? RDMUX_WC_HAS_IMM : 0, frame->imm);
    rdmux_tcp_refuse(ep, index, RDMUX_LENGTH);
    rdmux_tcp_pump(ep);
    rdmux_tcp_fail(ep, RDMUX_LENGTH, text);
}

void rdmux_tcp_deliver_early(struct tcp_ep *ep)
{
    struct tcp_early *early = &ep->in.early;
    struct rdmux_request *receive = rdmux_provider_take_receive(&ep->base);
    if (receive == NULL) {
        return; /* rdmux_tcp_post_recv() calls again */
    }
    uint8_t *bytes = early->bytes;
    early->bytes = NULL;
    ep->given.posted = ep->given.used + 1 + rdmux_provider_receives(&ep->base);
    if (rdmux_credits_outstanding(&ep->given) == 0) { /* else a credit on its way pays */
        ep->given.granted++;
        ep->out.is_paying = true;
        ep->out.is_credit_due = true;
    }
    ep->given.used++;
    if (early->length > receive->length) {
        const struct tcp_frame frame = { .flags = early->flags,
                                         .imm = early->imm,
                                         .length = early->length };
        rdmux_tcp_message_too_long(ep, receive, early->index, &frame);
    } else {
        rdmux_scatter(receive->sges, receive->sge_count, 0, bytes, early->length);
        ep->counts.received++;
        ep->out.acks += (early->flags & TCP_PLACED) ? 1 : 0;
        rdmux_provider_received(&ep->base, receive, RDMUX_OK, RDMUX_WC_RECV, early->length,
                                (early->flags & TCP_IMM) ? RDMUX_WC_HAS_IMM : 0, early->imm);
    }
    rdmux_tcp_pool_put(&rdmux_tcp_cq_of(ep)->pool, bytes);
    if (ep->in.is_end_waiting) {
        rdmux_tcp_fail(ep, RDMUX_PEER_GONE, "tcp: the peer closed its data socket");
    } else if (ep->state == TCP_CONNECTED) {
        rdmux_tcp_nudge(ep);
    }
}

/* ------------------------------------------------------------------------------ shared receives */

static void tell_now(struct tcp_ep *ep)
{
    ep->out.is_credit_due = true;
    rdmux_tcp_nudge(ep);
}

static struct tcp_ep *tcp_ep_of_user(struct rdmux_credit_user *user)
{
    return RDMUX_CONTAINER(user, struct tcp_ep, user);
}

/* Sets receives aside for the endpoint, as many as its level allows. No other endpoint can then
 * take them, on any provider. */
static bool lend_credits(struct rdmux_credit_user *user, uint64_t waiting)
{
    struct tcp_ep *ep = tcp_ep_of_user(user);
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
    struct tcp_ep *ep = tcp_ep_of_user(user);
    if (rdmux_credits_window(&ep->given) != 0) {
        return true;
    }
    (void)rdmux_provider_reserve(&ep->base, 1); /* none is left: claims the next one */
    return false;
}

static void tell_credits(struct rdmux_credit_user *user, bool at_once)
{
    struct tcp_ep *ep = tcp_ep_of_user(user);
    if (at_once) {
        tell_now(ep);
    } else {
        tell_when_due(ep);
    }
}

/* Asks the peer to return its unused credits. */
static void recall_credits(struct rdmux_credit_user *user)
{
    struct tcp_ep *ep = tcp_ep_of_user(user);
    if (rdmux_credits_outstanding(&ep->given) == 0 && ep->out.is_credit_due && !user->is_paused) {
        return; /* the pending grant may answer the peer's ASK */
    }
    uint64_t untold = rdmux_credits_withdraw(&ep->srq->scheduler.pool, &ep->given);
    rdmux_provider_unreserve(&ep->base, (uint32_t)untold);
    if (ep->state == TCP_CONNECTED && rdmux_credits_outstanding(&ep->given) > 0 &&
        rdmux_credit_begin_recall(user)) {
        ep->out.is_recalling = true;
        rdmux_tcp_nudge(ep);
    }
}

static const struct rdmux_credit_ops credit_ops = {
    .lend = lend_credits,
    .has_some = has_some,
    .tell = tell_credits,
    .recall = recall_credits,
};

enum rdmux_status rdmux_tcp_post_recv(struct rdmux_provider_ep *base,
                                      struct rdmux_request *requests, size_t count)
{
    struct tcp_ep *ep = rdmux_tcp_ep(base);
    (void)requests;
    (void)count;
    if (ep->srq != NULL) {
        rdmux_credit_pause(&ep->srq->scheduler, &ep->user, rdmux_provider_is_paused(base) != 0);
        if (rdmux_provider_receives_awaited(base)) {
            recall_credits(&ep->user); /* another domain's endpoint waits */
        }
        rdmux_credit_serve(
            &ep->srq->scheduler); /* the endpoint may use receives of the SRQ from now on */
        return RDMUX_OK;
    }
    /* The core's count decides: receives may be older than this endpoint. */
    ep->given.posted = ep->given.used + rdmux_provider_receives(base);
    tell_when_due(ep);
    return RDMUX_OK;
}

bool rdmux_tcp_credit_use(struct tcp_ep *ep)
{
    if (ep->srq == NULL) {
        bool had = rdmux_credits_use(&ep->given);
        tell_when_due(ep); /* receives posted before may have been too few for a grant */
        return had;
    }
    struct rdmux_credit_scheduler *scheduler = &ep->srq->scheduler;
    if (!rdmux_credits_use_shared(&scheduler->pool, &ep->given)) {
        return false;
    }
    if (rdmux_provider_receives_awaited(&ep->base)) {
        recall_credits(&ep->user);
    } else {
        rdmux_credit_top_up(scheduler, &ep->user);
    }
    rdmux_credit_note_hungry(scheduler, &ep->user);
    tell_when_due(ep);
    return true;
}

void rdmux_tcp_credit_asked(struct tcp_ep *ep)
{
    if (ep->srq == NULL) {
        ep->out.is_credit_due = true;
        return;
    }
    if (rdmux_credits_outstanding(&ep->given) > 0) {
        return; /* a credit crossed the ASK */
    }
    rdmux_credit_asked(&ep->srq->scheduler, &ep->user);
}

bool rdmux_tcp_credit_returned(struct tcp_ep *ep, uint64_t count)
{
    if (ep->srq == NULL || !ep->user.is_recalling ||
        !rdmux_credits_return(&ep->srq->scheduler.pool, &ep->given, count)) {
        return false;
    }
    rdmux_provider_unreserve(&ep->base, (uint32_t)count);
    rdmux_credit_answered(&ep->srq->scheduler, &ep->user);
    return true;
}

void rdmux_tcp_credit_join(struct tcp_ep *ep, struct tcp_srq *srq)
{
    ep->srq = srq;
    rdmux_credit_join(&srq->scheduler, &ep->user, &ep->given);
}

void rdmux_tcp_credit_leave(struct tcp_ep *ep)
{
    if (ep->srq == NULL || !rdmux_node_is_listed(&ep->user.member)) {
        return;
    }
    uint64_t left = rdmux_credit_leave(&ep->srq->scheduler, &ep->user);
    rdmux_provider_unreserve(&ep->base, (uint32_t)left);
    rdmux_credit_serve(&ep->srq->scheduler);
}

enum rdmux_status rdmux_tcp_srq_open(struct rdmux_provider_srq *base, uint32_t depth,
                                     uint32_t max_sge)
{
    struct tcp_srq *srq = (struct tcp_srq *)base;
    (void)depth;
    (void)max_sge;
    rdmux_credit_scheduler_init(&srq->scheduler, &credit_ops);
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
    rdmux_credit_serve(&srq->scheduler);
    return RDMUX_OK;
}
