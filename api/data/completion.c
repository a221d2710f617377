/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * The completion side: from the provider's report to the completion that the application takes.
 * post.c describes the rings.
 */
#include "api/data/completion.h"

#include "api/base/trace.h"
#include "api/core/cq.h"
#include "api/core/ep.h"
#include "api/core/failover.h"
#include "api/core/remote.h"
#include "api/data/bounce.h"
#include "api/data/post.h"
#include "api/data/receive.h"
#include "api/data/request.h"
#include "api/data/segments.h"
#include "api/data/srq.h"
#include "api/data/srq_device.h"
#include "api/progress/cq_owner.h"
#include "api/progress/cq_progress.h"

#include <string.h>

RDMUX_TRACE_POINT(completion);

/* ---------------------------------------------------------------------------- from the provider */

void rdmux_provider_ready(struct rdmux_provider_ep *path)
{
    path->ready = 1;
    rdmux_cq_pend(path->ep->cq, path->ep);
}

int rdmux_provider_has_srq(const struct rdmux_provider_ep *path)
{
    return path->ep->srq != NULL;
}

/* Returns the end of the offered receives. Receives that wait for keys come after it. */
static inline uint64_t offered_until(const struct rdmux_ep *ep)
{
    return ep->bounce == NULL ? ep->recv.head : ep->recv.offered;
}

struct rdmux_request *rdmux_provider_take_receive(struct rdmux_provider_ep *path)
{
    struct rdmux_ep *ep = path->ep;
    struct rdmux_ring *ring = &ep->recv;
    if (RDMUX_UNLIKELY(path != ep->path)) {
        ep->flow.starved_at = ring->next + 1;
        return NULL; /* a path attempt: the application's receives are not for it */
    }
    if (RDMUX_UNLIKELY(ep->srq != NULL)) {
        return rdmux_srq_take(ep);
    }
    if (RDMUX_UNLIKELY(ring->next == offered_until(ep))) {
        ep->flow.starved_at = ring->next + 1;
        return NULL;
    }
    return rdmux_ring_record(ring, ring->next++);
}

uint32_t rdmux_provider_next_receives(struct rdmux_provider_ep *path, struct rdmux_request **first)
{
    struct rdmux_ep *ep = path->ep;
    const struct rdmux_ring *ring = &ep->recv;
    if (RDMUX_UNLIKELY(path != ep->path || ep->srq != NULL)) {
        return 0;
    }
    *first = rdmux_ring_record(ring, ring->next);
    uint64_t there = offered_until(ep) - ring->next;
    uint64_t to_wrap = ring->mask + 1 - (ring->next & ring->mask);
    return (uint32_t)(there < to_wrap ? there : to_wrap);
}

void rdmux_provider_filled_receives(struct rdmux_provider_ep *path, uint32_t count)
{
    path->ep->recv.next += count;
    if (path->ready != 1) {
        rdmux_provider_ready(path);
    }
}

uint32_t rdmux_provider_receives(struct rdmux_provider_ep *path)
{
    struct rdmux_ep *ep = path->ep;
    if (path != ep->path) {
        return 0;
    }
    return ep->srq != NULL ? rdmux_srq_available(ep)
                           : (uint32_t)(offered_until(ep) - ep->recv.next);
}

static void take_off(struct rdmux_request **list, const struct rdmux_request *request)
{
    for (struct rdmux_request **at = list; *at != NULL; at = &(*at)->next) {
        if (*at == request) {
            *at = request->next;
            return;
        }
    }
}

static void srq_received(struct rdmux_ep *ep, struct rdmux_request *request)
{
    if (request->internal) {
        rdmux_srq_filled(ep->srq, request);
        rdmux_srq_check_limit(ep->srq);
    } else {
        take_off(&ep->shared.taken, request);
    }
    rdmux_srq_append_done(ep, request);
}

void rdmux_provider_received(struct rdmux_provider_ep *path, struct rdmux_request *request,
                             uint32_t status, uint32_t opcode, uint64_t length, uint32_t wc_flags,
                             uint32_t imm)
{
    struct rdmux_ep *ep = path->ep;
    request->status = status;
    request->opcode = opcode;
    request->length = length;
    request->wc_flags = wc_flags;
    request->imm = imm;
    request->done = 1;
    if (RDMUX_UNLIKELY(ep->srq != NULL)) {
        srq_received(ep, request);
    }
    if (path->ready != 1) {
        rdmux_provider_ready(path);
    }
}

/* --------------------------------------------------------------------------- to the application */

static RDMUX_COLD void trace_completion(const struct rdmux_ep *ep, const struct rdmux_wc *wc)
{
    RDMUX_TRACE4(completion, ep->id, wc->opcode, wc->status, wc->length);
}

RDMUX_HOT void fill_wc(struct rdmux_wc *wc, struct rdmux_ep *ep,
                       const struct rdmux_request *request, uint32_t flags, uint32_t imm)
{
    wc->context = request->context;
    wc->ep = ep;
    wc->length = request->status == RDMUX_OK ? request->length : 0;
    wc->status = request->status;
    wc->opcode = request->opcode;
    wc->flags = flags;
    wc->imm = imm;
    wc->spare[0] = 0;
    wc->spare[1] = 0;
    wc->spare[2] = 0;
    if (RDMUX_TRACED(completion)) {
        trace_completion(ep, wc);
    }
}

/* Sets the status of a failed request. The first failed request has the cause. Later ones are
 * flushed, whatever cause the provider reports for them. */
static void tell_failure(struct rdmux_ep *ep, struct rdmux_request *request)
{
    if (ep->cause.is_told && request->status != RDMUX_OUTCOME_UNKNOWN) {
        request->status = RDMUX_FLUSHED;
    }
    /* A request that a move leaves in doubt does not end the endpoint. */
    ep->cause.is_told = ep->failover == NULL || request->status != RDMUX_OUTCOME_UNKNOWN;
}

/* The functions below write entries from `at` up to `end`, and return where the next entry goes. */

/* Writes entries of done send-side requests before `limit`, in posting order. */
RDMUX_HOT struct rdmux_wc *take_sends(struct rdmux_ep *ep, struct rdmux_wc *at,
                                      const struct rdmux_wc *end, uint64_t limit)
{
    struct rdmux_ring *ring = &ep->send;
    while (ring->tail != limit) {
        struct rdmux_request *request = rdmux_ring_record(ring, ring->tail);
        if (!request->done) {
            break;
        }
        if (RDMUX_UNLIKELY(ep->cause.is_told) && request->status == RDMUX_OK) {
            request->status = RDMUX_FLUSHED; /* it was done before an earlier request failed */
        }
        if (!rdmux_request_is_silent(request)) {
            if (at == end) {
                break;
            }
            if (RDMUX_UNLIKELY(request->status != RDMUX_OK)) {
                tell_failure(ep, request);
            }
            fill_wc(at++, ep, request, 0, 0);
        }
        if (RDMUX_UNLIKELY(request->keys != RDMUX_BOUNCE_OWN)) {
            rdmux_bounce_take_back(ep, ring, request);
        }
        rdmux_ep_count_done(ep, request);
        ring->tail++;
    }
    return at;
}

/* Returns the end of the requests that may be returned once they are done. */
static inline uint64_t returnable_request(const struct rdmux_ep *ep)
{
    return ep->failover == NULL ? ep->send.next : ep->retention.confirmed;
}

static RDMUX_COLD struct rdmux_wc *drain_sends(struct rdmux_ep *ep, struct rdmux_wc *at,
                                               const struct rdmux_wc *end)
{
    rdmux_failover_confirm(ep);
    return take_sends(ep, at, end, returnable_request(ep));
}

static inline void count_receive(struct rdmux_ep *ep, const struct rdmux_request *request)
{
    ep->stats.receives++;
    ep->stats.bytes_received += request->status == RDMUX_OK ? request->length : 0;
}

static RDMUX_COLD struct rdmux_wc *take_shared_receives(struct rdmux_ep *ep, struct rdmux_wc *at,
                                                        const struct rdmux_wc *end)
{
    while (at != end && ep->shared.done != NULL) {
        struct rdmux_request *request = ep->shared.done;
        ep->shared.done = request->next;
        if (ep->shared.counted == request) {
            ep->shared.counted = NULL;
        }
        fill_wc(at++, ep, request, request->wc_flags, request->imm);
        count_receive(ep, request);
        rdmux_srq_returned(ep->srq, request);
        rdmux_srq_put(ep->srq, request);
    }
    if (ep->srq->is_sharing_due) {
        rdmux_srq_share_out(ep->srq);
    }
    return at;
}

RDMUX_HOT struct rdmux_wc *take_receives(struct rdmux_ep *ep, struct rdmux_wc *at,
                                         const struct rdmux_wc *end)
{
    struct rdmux_ring *ring = &ep->recv;
    while (at != end && ring->tail != ring->head) {
        struct rdmux_request *request = rdmux_ring_record(ring, ring->tail);
        if (!request->done) {
            break;
        }
        fill_wc(at++, ep, request, request->wc_flags, request->imm);
        count_receive(ep, request);
        if (RDMUX_UNLIKELY(request->keys != RDMUX_BOUNCE_OWN)) {
            rdmux_bounce_take_back(ep, ring, request);
        }
        ring->tail++;
        if (RDMUX_UNLIKELY(ring->next < ring->tail)) {
            /* A provider that matches in hardware does not take receives. */
            ring->next = ring->tail;
        }
    }
    return RDMUX_UNLIKELY(ep->shared.done != NULL) ? take_shared_receives(ep, at, end) : at;
}

static RDMUX_COLD struct rdmux_wc *drain_receives(struct rdmux_ep *ep, struct rdmux_wc *at,
                                                  const struct rdmux_wc *end)
{
    rdmux_failover_confirm(ep);
    return take_receives(ep, at, end);
}

static inline bool has_done_receives(const struct rdmux_ep *ep)
{
    return (ep->recv.tail != ep->recv.head && rdmux_ring_record(&ep->recv, ep->recv.tail)->done) ||
           ep->shared.done != NULL;
}

static bool requests_left(const struct rdmux_ep *ep)
{
    return ep->send.tail != ep->send.head || ep->recv.tail != ep->recv.head ||
           ep->shared.done != NULL;
}

static void fill_event(struct rdmux_wc *wc, struct rdmux_ep *ep, uint32_t opcode, uint32_t status,
                       void *context)
{
    memset(wc, 0, sizeof(*wc));
    wc->context = context;
    wc->ep = ep;
    wc->status = status;
    wc->opcode = opcode;
}

static bool room_to_write(const struct rdmux_ep *ep)
{
    uint64_t free_entries = ep->send.depth - (ep->send.head - ep->send.tail);
    uint64_t quarter = ep->send.depth / 4;
    return free_entries >= (quarter == 0 ? 1 : quarter);
}

/* Writes events that may come before completions. After completions they might never find room
 * under load. */
static struct rdmux_wc *drain_news(struct rdmux_ep *ep, struct rdmux_wc *at,
                                   const struct rdmux_wc *end)
{
    if ((ep->events & RDMUX_EVENT_MOVED) != 0 && at != end) {
        ep->events &= ~(uint32_t)RDMUX_EVENT_MOVED;
        fill_event(at, ep, RDMUX_WC_PATH_CHANGED, ep->info.previous_status, NULL);
        at++->imm = ep->retention.moved_to; /* the next move may be in progress already */
    }
    while (at != end && !rdmux_list_empty(&ep->imports.ready)) {
        struct rdmux_remote *remote = RDMUX_CONTAINER(ep->imports.ready.next, struct rdmux_remote,
                                                      ready_link);
        rdmux_list_remove(&remote->ready_link);
        fill_event(at++, ep, RDMUX_WC_REMOTE_READY, remote->status, remote);
    }
    if (ep->flow.wants_writable && ep->phase == RDMUX_PHASE_READY && at != end &&
        room_to_write(ep)) {
        ep->flow.wants_writable = false;
        fill_event(at++, ep, RDMUX_WC_WRITABLE, RDMUX_OK, NULL);
    }
    return at;
}

/* Writes new events, and DISCONNECTED after everything else. */
static struct rdmux_wc *drain_events(struct rdmux_ep *ep, struct rdmux_wc *at,
                                     const struct rdmux_wc *end)
{
    at = drain_news(ep, at, end);
    if ((ep->events & RDMUX_EVENT_DISCONNECTED) != 0 && at != end && !requests_left(ep)) {
        ep->events &= ~(uint32_t)RDMUX_EVENT_DISCONNECTED;
        fill_event(at++, ep, RDMUX_WC_DISCONNECTED, ep->end.status, NULL);
    }
    return at;
}

/* Returns whether the endpoint itself has an entry. */
static bool has_own_entries(const struct rdmux_ep *ep)
{
    if (ep->phase == RDMUX_PHASE_CLOSED ||
        (ep->events & (RDMUX_EVENT_HELD | RDMUX_EVENT_LEAVING)) != 0) {
        return false;
    }
    if (ep->events & (RDMUX_EVENT_CONNECTED | RDMUX_EVENT_MOVED | RDMUX_EVENT_CHANGED_CQ)) {
        return true;
    }
    if (ep->phase == RDMUX_PHASE_SETUP) {
        return !rdmux_list_empty(&ep->imports.ready);
    }
    const uint64_t limit = returnable_request(ep);
    for (uint64_t at = ep->send.tail; at != limit; at++) {
        const struct rdmux_request *request = rdmux_ring_record(&ep->send, at);
        if (!request->done) {
            break;
        }
        if (!rdmux_request_is_silent(request)) {
            return true;
        }
    }
    return has_done_receives(ep) || !rdmux_list_empty(&ep->imports.ready) ||
           (ep->flow.wants_writable && ep->phase == RDMUX_PHASE_READY && room_to_write(ep)) ||
           ((ep->events & RDMUX_EVENT_DISCONNECTED) != 0 && !requests_left(ep));
}

bool rdmux_ep_has_entries(const struct rdmux_ep *ep)
{
    if (ep == ep->cq->own) {
        return ep->events != 0 || !rdmux_list_empty(&ep->cq->low_srqs);
    }
    return has_own_entries(ep) ||
           ((ep->events & RDMUX_EVENT_LAYER) != 0 && ep->layer->has_entries(ep));
}

bool rdmux_ep_done_before(const struct rdmux_ep *ep, uint64_t sequence)
{
    if (ep->failover != NULL && ep->phase == RDMUX_PHASE_READY) {
        return sequence <= ep->retention.confirmed;
    }
    for (uint64_t at = ep->send.tail; at < sequence && at != ep->send.head; at++) {
        if (at >= ep->send.next || !rdmux_ring_record(&ep->send, at)->done) {
            return false;
        }
    }
    return true;
}

/* Pushes requests without having done ones reported. Requests that are done and not confirmed would
 * be reported each time, without end; drain_all() examines requests done in the meantime anyway. */
static void push_kept(struct rdmux_ep *ep)
{
    ep->path->ready = 1;
    rdmux_ep_push(ep, false);
    ep->path->ready = 0;
    if (ep->path->resume) {
        rdmux_cq_pend(ep->cq, ep);
    }
}

/* Writes the events of a cq that belong to no endpoint. own: cq->own. */
static struct rdmux_wc *drain_events_of_cq(struct rdmux_ep *own, struct rdmux_wc *at,
                                           const struct rdmux_wc *end)
{
    if ((own->events & RDMUX_EVENT_WOKEN) != 0 && at != end) {
        own->events &= ~(uint32_t)RDMUX_EVENT_WOKEN;
        /* Wakes that came after the service thread had noted one are of this entry, too. */
        atomic_store(&own->cq->is_woken, 0);
        fill_event(at++, NULL, RDMUX_WC_WOKEN, RDMUX_OK, own->cq);
    }
    while (at != end && !rdmux_list_empty(&own->cq->low_srqs)) {
        fill_event(at++, NULL, RDMUX_WC_SRQ_LIMIT, RDMUX_OK, rdmux_srq_take_low(own->cq));
    }
    return at;
}

struct rdmux_wc *rdmux_ep_take(struct rdmux_ep *ep, struct rdmux_wc *at, const struct rdmux_wc *end)
{
    if (ep->events & (RDMUX_EVENT_HELD | RDMUX_EVENT_LEAVING)) {
        end = at;
    }
    if ((ep->events & RDMUX_EVENT_CHANGED_CQ) != 0 && at != end) { /* before all others */
        ep->events &= ~(uint32_t)RDMUX_EVENT_CHANGED_CQ;
        fill_event(at++, ep, RDMUX_WC_MOVED, RDMUX_OK, NULL);
    }
    if (ep->phase == RDMUX_PHASE_SETUP) {
        ep->fabric->life->step(ep);
        if (ep->phase == RDMUX_PHASE_SETUP && ep->path != NULL) {
            return at; /* an rdmacm endpoint: entries come after CONNECTED */
        }
    }
    if (ep->path != NULL) {
        ep->path->ready = 0;
        if (ep->path->resume) {
            ep->path->resume = 0;
            ep->flow.is_blocked = false;
        }
    }
    if ((ep->events & RDMUX_EVENT_CONNECTED) != 0 && at != end) {
        ep->events &= ~(uint32_t)RDMUX_EVENT_CONNECTED;
        fill_event(at++, ep, RDMUX_WC_CONNECTED, ep->negotiated.status, NULL);
    }
    at = drain_news(ep, at, end);
    if (ep->segments != NULL && ep->segments->is_busy) {
        rdmux_segments_reap(ep);
    }
    bool receives_first = ep->flow.is_receive_first;
    if (receives_first) {
        at = drain_receives(ep, at, end);
    }
    at = drain_sends(ep, at, end);
    if (ep->send.next != ep->send.head && !ep->flow.is_blocked && ep->phase == RDMUX_PHASE_READY) {
        if (ep->failover != NULL) {
            push_kept(ep);
        } else {
            rdmux_ep_push(ep, false);
        }
        at = drain_sends(ep, at, end);
    }
    ep->flow.is_receive_first = !receives_first && at == end;
    at = drain_receives(ep, at, end);
    if (ep->flow.has_waiting_receives && rdmux_ep_delivers(ep)) {
        rdmux_ep_offer_waiting_receives(ep);
        if (ep->rdmacm != NULL && !ep->flow.has_waiting_receives && !ep->flow.is_blocked) {
            rdmux_ep_push(ep, false);
            at = drain_sends(ep, at, end);
        }
    }
    if (ep->fault != RDMUX_OK && ep->phase == RDMUX_PHASE_READY) {
        ep->fabric->life->fault(ep);
        at = drain_sends(ep, at, end);
        at = drain_receives(ep, at, end);
    }
    if (ep->work != 0 || ep->phase == RDMUX_PHASE_LINGERING) {
        ep->fabric->life->tend(ep);
    }
    return drain_events(ep, at, end);
}

/* Drains an endpoint in any state. */
static RDMUX_COLD struct rdmux_wc *drain_all(struct rdmux_ep *ep, struct rdmux_wc *at,
                                             const struct rdmux_wc *end)
{
    if (ep == ep->cq->own) {
        return drain_events_of_cq(ep, at, end);
    }
    return (ep->events & RDMUX_EVENT_LAYER) != 0 ? ep->layer->take(ep, at, end)
                                                 : rdmux_ep_take(ep, at, end);
}

/* Returns whether the endpoint can only have done requests. */
static inline bool is_ordinary(const struct rdmux_ep *ep)
{
    return ((ep->phase ^ (uint32_t)RDMUX_PHASE_READY) | ep->events | ep->fault | ep->work |
            ep->flow.wants_writable | ep->flow.has_waiting_receives | ep->path->resume) == 0 &&
           rdmux_list_empty(&ep->imports.ready) && ep->send.next == ep->send.head &&
           (ep->segments == NULL || !ep->segments->is_busy);
}

/* Drains an endpoint that can only have done requests. */
RDMUX_HOT struct rdmux_wc *drain_ordinary(struct rdmux_ep *ep, struct rdmux_wc *at,
                                          const struct rdmux_wc *end)
{
    ep->path->ready = 0;
    if (RDMUX_UNLIKELY(ep->flow.is_receive_first)) {
        ep->flow.is_receive_first = false;
        return drain_sends(ep, drain_receives(ep, at, end), end);
    }
    at = take_sends(ep, at, end, ep->send.next);
    ep->flow.is_receive_first = at == end;
    return has_done_receives(ep) ? take_receives(ep, at, end) : at;
}

void rdmux_ep_drain(struct rdmux_ep *ep)
{
    (void)drain_all(ep, NULL, NULL);
}

size_t rdmux_cq_take(struct rdmux_cq *cq, struct rdmux_wc *wc, size_t max)
{
    struct rdmux_wc *at = wc;
    const struct rdmux_wc *end = wc + max;
    do {
        struct rdmux_ep *ep = RDMUX_CONTAINER(cq->pending.next, struct rdmux_ep, places.pending);
        rdmux_cq_unpend(ep);
        bool ordinary = RDMUX_LIKELY(ep->path != NULL) && RDMUX_LIKELY(is_ordinary(ep));
        at = ordinary ? drain_ordinary(ep, at, end) : drain_all(ep, at, end);
        if (RDMUX_UNLIKELY(at == end || !ordinary) && rdmux_ep_has_entries(ep)) {
            rdmux_cq_pend(cq, ep); /* at the end of the list: endpoints take turns */
        }
    } while (RDMUX_UNLIKELY(!rdmux_list_empty(&cq->pending)) && at != end);
    return (size_t)(at - wc);
}

void rdmux_ep_progress(struct rdmux_ep *ep)
{
    struct rdmux_cq *cq = ep->cq;
    (void)rdmux_cq_progress(cq);
    if (ep->queued.is_pending) {
        rdmux_cq_unpend(ep);
        rdmux_ep_drain(ep);
        if ((ep->path != NULL && ep->path->ready != 0) || rdmux_ep_has_entries(ep)) {
            rdmux_cq_pend(cq, ep);
        }
    }
    rdmux_cq_stay_armed(cq);
}

/* Most rounds of a path's progress before the endpoint ends. */
enum { DRAIN_ROUNDS = 256 };

void rdmux_ep_drain_path(struct rdmux_ep *ep)
{
    if (ep->path == NULL) {
        return;
    }
    for (int i = 0; i < DRAIN_ROUNDS && ep->ops->poll(ep->path->cq, 64) != 0; i++) {
    }
}

bool rdmux_cq_drain(struct rdmux_cq *cq)
{
    bool more = false;
    struct rdmux_list moved;
    struct rdmux_list again; /* endpoints with a new event, which the next move handles */
    rdmux_list_init(&moved);
    rdmux_list_init(&again);
    while (!rdmux_list_empty(&cq->pending)) {
        struct rdmux_ep *ep = RDMUX_CONTAINER(cq->pending.next, struct rdmux_ep, places.pending);
        rdmux_cq_unpend(ep);
        rdmux_ep_drain(ep);
        rdmux_cq_set_apart(ep, ep->queued.is_pending ? &again : &moved);
    }
    while (!rdmux_list_empty(&moved)) {
        struct rdmux_ep *ep = RDMUX_CONTAINER(moved.next, struct rdmux_ep, places.pending);
        rdmux_cq_unpend(ep);
        /* The provider reported while it got requests. */
        bool reported = ep->path != NULL && ep->path->ready;
        if (reported || rdmux_ep_has_entries(ep)) {
            rdmux_cq_pend(cq, ep);
        }
        more = more || reported;
    }
    while (!rdmux_list_empty(&again)) {
        struct rdmux_ep *ep = RDMUX_CONTAINER(again.next, struct rdmux_ep, places.pending);
        rdmux_cq_unpend(ep);
        rdmux_cq_pend(cq, ep);
        more = true;
    }
    return more;
}
