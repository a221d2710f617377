/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * The receive side: from a call to the request record to the provider. post.c describes the ring.
 * `next` counts the receives that the provider's matching took.
 */
#include "api/data/receive.h"
#include "api/core/ep.h"
#include "api/core/mr.h"
#include "api/data/bounce.h"
#include "api/data/request.h"
#include "api/data/srq.h"
#include "api/progress/cq_owner.h"
#include "api/progress/endpoint_table.h"

/* The region of the previous piece of this call, and its registration. */
struct found_region {
    const struct rdmux_mr *mr;
    struct rdmux_provider_mr *registration;
};

/* Queues the common case of a receive: one piece, on an endpoint that has its path. Returns false
 * for any other receive, and for one to refuse: queue_receive() has the error texts. */
RDMUX_HOT bool queue_simple_receive(struct rdmux_ep *ep, const struct rdmux_sge *piece,
                                    void *context, struct found_region *found)
{
    struct rdmux_ring *ring = &ep->recv;
    if (RDMUX_UNLIKELY(ring->head - ring->tail >= ring->depth) ||
        RDMUX_UNLIKELY(piece->length == 0)) {
        return false;
    }
    const struct rdmux_list_rule rule = {
        .fabric = ep->fabric,
        .domain = ep->domain,
        .needed = RDMUX_ACCESS_LOCAL_WRITE,
    };
    if (RDMUX_UNLIKELY(!rdmux_piece_is_good(rule, piece))) {
        return false;
    }
    if (piece->mr != found->mr) {
        found->registration = rdmux_piece_registration(rule, piece->mr);
        found->mr = piece->mr;
    }
    uint64_t at = ring->head & ring->mask;
    struct rdmux_request *request = &ring->records[at];
    struct rdmux_provider_sge *into = &ring->sges[at * ring->max_sge];
    into->addr = piece->addr;
    into->length = piece->length;
    into->mr = found->registration;
    rdmux_receive_begin(request);
    request->sge_count = 1;
    request->length = piece->length;
    request->context = context;
    request->sges = into;
    request->sequence = ring->head++;
    return true;
}

static inline bool takes_simple(const struct rdmux_ep *ep)
{
    return ep->phase == RDMUX_PHASE_READY && ep->srq == NULL && ep->domain != NULL;
}

static RDMUX_COLD enum rdmux_status queue_receive(struct rdmux_ep *ep, const struct rdmux_wr *wr)
{
    struct rdmux_ring *ring = &ep->recv;
    if (RDMUX_UNLIKELY(ep->phase > RDMUX_PHASE_LINGERING)) {
        return rdmux_ep_refuse_post(ep);
    }
    if (RDMUX_UNLIKELY(ep->srq != NULL)) {
        return rdmux_fail(
            RDMUX_INVALID,
            "post_recv: the endpoint takes its receives from an SRQ; use rdmux_srq_recv()");
    }
    if (RDMUX_UNLIKELY(ring->head - ring->tail >= ring->depth)) {
        ep->stats.again++;
        return rdmux_again(
            "post_recv: all of the receive queue's entries are in use; poll, then post again");
    }
    struct rdmux_request *request = rdmux_ring_record(ring, ring->head);
    const struct rdmux_list_rule rule = {
        .fabric = ep->fabric,
        .domain = ep->domain,
        .is_later = true,
        .max_sge = ring->max_sge,
        .needed = RDMUX_ACCESS_LOCAL_WRITE,
    };
    enum rdmux_status status = rdmux_receive_prepare(
        rule, request, &ring->sges[(ring->head & ring->mask) * ring->max_sge], wr);
    if (RDMUX_LIKELY(status == RDMUX_OK)) {
        request->sequence = ring->head++;
    }
    return status;
}

/* Tells the provider about adjacent receives. */
static inline bool offer(struct rdmux_ep *ep, uint64_t from, uint64_t count)
{
    enum rdmux_status status = ep->ops->post_recv(ep->path, rdmux_ring_record(&ep->recv, from),
                                                  count);
    if (RDMUX_UNLIKELY(status != RDMUX_OK)) {
        rdmux_provider_failed(ep->path, status, rdmux_last_error());
    }
    return status == RDMUX_OK;
}

static void offer_waiting(struct rdmux_ep *ep)
{
    struct rdmux_ring *ring = &ep->recv;
    while (ring->offered != ring->head && ep->fault == RDMUX_OK) {
        uint64_t count = ring->head - ring->offered;
        uint64_t to_wrap = ring->mask + 1 - (ring->offered & ring->mask);
        count = rdmux_bounce_give(ep, ring, ring->offered, count < to_wrap ? count : to_wrap);
        uint64_t from = ring->offered;
        ring->offered += count; /* before the provider knows of them, as it may take one at once */
        if (count == 0 || !offer(ep, from, count)) {
            break;
        }
    }
    ep->flow.has_waiting_receives = ring->offered != ring->head;
}

void rdmux_ep_offer_waiting_receives(struct rdmux_ep *ep)
{
    if (rdmux_ep_delivers(ep)) {
        offer_waiting(ep);
    }
}

bool rdmux_ep_offer_early_receives(struct rdmux_ep *ep)
{
    if (ep->srq == NULL) {
        offer_waiting(ep);
    }
    return !ep->flow.has_waiting_receives && ep->fault == RDMUX_OK;
}

/* Returns the end of a linger time that begins now. */
static uint64_t linger_deadline(const struct rdmux_ep *ep)
{
    if (rdmux_ep_is_held(ep)) {
        uint32_t ms = ep->accept.acceptor->timeout_ms;
        return ms == 0 ? UINT64_MAX : rdmux_now(ep->fabric) + (uint64_t)ms * 1000000;
    }
    uint64_t ms = ep->info.liveness_ms < RDMUX_LINGER_MS ? ep->info.liveness_ms : RDMUX_LINGER_MS;
    return rdmux_now(ep->fabric) + ms * 1000000;
}

void rdmux_ep_linger_anew(struct rdmux_ep *ep)
{
    if (rdmux_ep_lingers(ep)) {
        ep->flow.linger_deadline_ns = linger_deadline(ep);
    }
    rdmux_ep_timer(ep);
}

/* Tells the provider about the receives [from, head). */
static void offer_receives(struct rdmux_ep *ep, uint64_t from)
{
    struct rdmux_ring *ring = &ep->recv;
    if (ep->bounce != NULL) {
        rdmux_ep_offer_waiting_receives(ep);
        return;
    }
    if (RDMUX_UNLIKELY(ep->phase == RDMUX_PHASE_LINGERING)) {
        rdmux_ep_linger_anew(ep);
    }
    while (from != ring->head && rdmux_ep_delivers(ep)) {
        uint64_t count = ring->head - from;
        uint64_t to_wrap = ring->mask + 1 - (from & ring->mask);
        if (count > to_wrap) {
            count = to_wrap;
        }
        if (!offer(ep, from, count)) {
            return;
        }
        from += count;
    }
}

/* Finds the registrations of receives posted before there was a path, which kept the region in
 * place of its registration. */
void rdmux_ep_resolve_receives(struct rdmux_ep *ep)
{
    for (uint64_t at = ep->recv.tail; at != ep->recv.head; at++) {
        struct rdmux_request *request = rdmux_ring_record(&ep->recv, at);
        for (uint16_t i = 0; i < request->sge_count; i++) {
            if (request->sges[i].mr != NULL) {
                const struct rdmux_mr *mr = (const struct rdmux_mr *)(const void *)request->sges[i]
                                                .mr;
                request->sges[i].mr = rdmux_mr_with(mr, ep->domain);
            }
        }
    }
}

void rdmux_ep_offer_receives_again(struct rdmux_ep *ep, uint64_t from)
{
    if (ep->srq == NULL) {
        offer_receives(ep, from);
        return;
    }
    rdmux_srq_path_begins(ep);
    /* A message may have arrived during the path attempt, which could not take the SRQ's
     * receives. */
    enum rdmux_status status = ep->ops->post_recv(ep->path, NULL, 0);
    if (status != RDMUX_OK) {
        rdmux_provider_failed(ep->path, status, rdmux_last_error());
    }
}

void rdmux_ep_offer_all_receives(struct rdmux_ep *ep)
{
    rdmux_ep_resolve_receives(ep);
    rdmux_ep_offer_receives_again(ep, ep->recv.tail);
}

static RDMUX_COLD enum rdmux_status receive_any(struct rdmux_ep *ep, struct rdmux_sge piece,
                                                void *context)
{
    struct rdmux_wr wr;
    wr.op = RDMUX_OP_RECV;
    wr.flags = 0;
    wr.context = context;
    wr.sges = &piece;
    wr.sge_count = 1;
    return queue_receive(ep, &wr);
}

enum rdmux_status rdmux_recv(struct rdmux_ep *ep, void *buf, size_t length, struct rdmux_mr *mr,
                             void *context)
{
    const struct rdmux_sge piece = rdmux_piece(buf, length, mr);
    struct found_region found = { NULL, NULL };
    enum rdmux_status status = rdmux_ep_enter(ep);
    if (RDMUX_UNLIKELY(status != RDMUX_OK)) {
        return status;
    }
    if (RDMUX_UNLIKELY(!takes_simple(ep)) ||
        RDMUX_UNLIKELY(!queue_simple_receive(ep, &piece, context, &found))) {
        status = receive_any(ep, piece, context);
    }
    if (RDMUX_LIKELY(status == RDMUX_OK && ep->phase == RDMUX_PHASE_READY)) {
        if (RDMUX_LIKELY(ep->bounce == NULL)) {
            offer(ep, ep->recv.head - 1, 1);
        } else {
            rdmux_ep_offer_waiting_receives(ep);
        }
    } else if (status == RDMUX_OK && ep->phase == RDMUX_PHASE_LINGERING) {
        offer_receives(ep, ep->recv.head - 1);
    }
    rdmux_cq_leave(ep->cq);
    return status;
}

enum rdmux_status rdmux_ep_post_receive(struct rdmux_ep *ep, const struct rdmux_wr *wr)
{
    uint64_t from = ep->recv.head;
    enum rdmux_status status = queue_receive(ep, wr);
    if (status == RDMUX_OK) {
        offer_receives(ep, from);
    }
    return status;
}

enum rdmux_status rdmux_post_recv(struct rdmux_ep *ep, const struct rdmux_wr *wrs, size_t count,
                                  size_t *posted)
{
    if (posted != NULL) {
        *posted = 0;
    }
    if (wrs == NULL || count == 0) {
        return count == 0 && ep != NULL ? RDMUX_OK
                                        : rdmux_fail(RDMUX_INVALID, "rdmux_post_recv: %s is NULL",
                                                     ep == NULL ? "ep" : "wrs");
    }
    enum rdmux_status status = rdmux_ep_enter(ep);
    if (status != RDMUX_OK) {
        return status;
    }
    uint64_t from = ep->recv.head;
    struct found_region found = { NULL, NULL };
    bool simple = takes_simple(ep);
    size_t done = 0;
    for (; done < count; done++) {
        const struct rdmux_wr *wr = &wrs[done];
        if (RDMUX_UNLIKELY(!rdmux_spare_is_zero(wr))) {
            status = rdmux_fail(RDMUX_INVALID, "rdmux_post_recv: spare of request %zu is not zero",
                                done);
            break;
        }
        if (RDMUX_LIKELY(simple && wr->op == RDMUX_OP_RECV && wr->flags == 0 &&
                         wr->sge_count == 1 && wr->sges != NULL) &&
            RDMUX_LIKELY(queue_simple_receive(ep, wr->sges, wr->context, &found))) {
            continue;
        }
        status = queue_receive(ep, wr);
        if (RDMUX_UNLIKELY(status != RDMUX_OK)) {
            break;
        }
    }
    if (done != 0) {
        offer_receives(ep, from);
    }
    rdmux_cq_leave(ep->cq);
    if (posted != NULL) {
        *posted = done;
    }
    return status;
}
