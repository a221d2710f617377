/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Completion queues. Each queue pair is attached to a device queue (unit) with room for everything
 * that it can have outstanding. So not even a failure, which flushes all of it at once, overruns
 * the device queue. If no unit has room, another one is made.
 *
 * Sleeping: the completion channel and an eventfd are in one epoll. arm requests an event and then
 * polls once more, so that no completion is missed; it stashes what it finds for poll.
 */
#include "verbs/verbs_completion.h"

#include "verbs/verbs_cm.h"
#include "verbs/verbs_domain.h"
#include "verbs/verbs_endpoint.h"
#include "verbs/verbs_fast_path.h"
#include "verbs/verbs_macros.h"
#include "verbs/verbs_outcome.h"
#include "verbs/verbs_queue.h"
#include "verbs/verbs_ring.h"
#include "verbs/verbs_send.h"
#include "verbs/verbs_side.h"
#include "verbs/verbs_srq.h"
#include "verbs/verbs_transport.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

static_assert(offsetof(struct verbs_cq, base) == 0, "verbs_cq_of() relies on it");
static_assert((int)VERBS_WC_LOC_LEN_ERR == (int)IBV_WC_LOC_LEN_ERR &&
                  (int)VERBS_WC_WR_FLUSH_ERR == (int)IBV_WC_WR_FLUSH_ERR &&
                  (int)VERBS_WC_REM_ACCESS_ERR == (int)IBV_WC_REM_ACCESS_ERR &&
                  (int)VERBS_WC_RETRY_EXC_ERR == (int)IBV_WC_RETRY_EXC_ERR &&
                  (int)VERBS_WC_FATAL_ERR == (int)IBV_WC_FATAL_ERR &&
                  (int)VERBS_WC_GENERAL_ERR == (int)IBV_WC_GENERAL_ERR,
              "the codes of verbs_outcome.h are those of libibverbs");

enum {
    UNIT_FIRST = 1024, /* entries of the first device queue, if no more are needed */
    SILENT_POLLS = 64, /* polls in a row without a completion before silent work gets a successor */
    SILENT_BUSY = 1024, /* the same: polls with silent work, whatever else completes */
    /* events per acknowledgment, which takes a lock (ibv_ack_cq_events(3)) */
    ACKNOWLEDGE_EVERY = 64,
    ATTEND_ROUNDS = 256, /* most rounds of completions before a device event is handled */
};

/* ---------------------------------------------------------------------------------- open, close */

static enum rdmux_status watch_channel(struct verbs_cq *cq, int fd)
{
    struct epoll_event event = { .events = EPOLLIN, .data.fd = fd };
    if (epoll_ctl(cq->epoll, EPOLL_CTL_ADD, fd, &event) != 0) {
        rdmux_provider_error("verbs: epoll: %s", strerror(errno));
        return errno == ENOMEM || errno == ENOSPC ? RDMUX_NO_MEMORY : RDMUX_IO;
    }
    return RDMUX_OK;
}

static void close_fd(int fd)
{
    if (fd >= 0) {
        (void)close(fd);
    }
}

static void close_descriptors(struct verbs_cq *cq)
{
    if (cq->channel != NULL) {
        (void)ibv_destroy_comp_channel(cq->channel);
    }
    close_fd(cq->event);
    close_fd(cq->epoll);
}

static enum rdmux_status open_descriptors(struct verbs_cq *cq, struct verbs_domain *domain)
{
    cq->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    cq->epoll = epoll_create1(EPOLL_CLOEXEC);
    cq->channel = ibv_create_comp_channel(domain->context);
    if (cq->event < 0 || cq->epoll < 0 || cq->channel == NULL) {
        int error = errno;
        rdmux_provider_error("%s: no descriptors for a completion queue: %s; raise ulimit -n",
                             domain->device, strerror(error));
        return error == EMFILE || error == ENFILE || error == ENOMEM ? RDMUX_NO_MEMORY : RDMUX_IO;
    }
    int flags = fcntl(cq->channel->fd, F_GETFL);
    if (flags < 0 || fcntl(cq->channel->fd, F_SETFL, flags | O_NONBLOCK) != 0) {
        rdmux_provider_error("%s: completion channel: %s", domain->device, strerror(errno));
        return RDMUX_IO;
    }
    enum rdmux_status status = watch_channel(cq, cq->channel->fd);
    return status == RDMUX_OK ? watch_channel(cq, cq->event) : status;
}

enum rdmux_status rdmux_verbs_cq_open(struct rdmux_provider_cq *base, uint32_t depth)
{
    (void)depth; /* device queues are made when endpoints need them */
    struct verbs_cq *cq = verbs_cq_of(base);
    struct verbs_domain *domain = verbs_domain_of(base->domain);
    enum rdmux_status status = open_descriptors(cq, domain);
    if (status != RDMUX_OK) {
        close_descriptors(cq);
        return status;
    }
    (void)pthread_mutex_lock(&domain->lock);
    cq->domain_next = domain->cqs;
    domain->cqs = cq;
    (void)pthread_mutex_unlock(&domain->lock);
    return RDMUX_OK;
}

static void leave_domain(struct verbs_cq *cq, struct verbs_domain *domain)
{
    (void)pthread_mutex_lock(&domain->lock);
    struct verbs_cq **at = &domain->cqs;
    while (*at != cq) {
        at = &(*at)->domain_next;
    }
    *at = cq->domain_next;
    (void)pthread_mutex_unlock(&domain->lock);
}

static void destroy_unit(struct verbs_domain *domain, struct verbs_unit *unit)
{
    ibv_ack_cq_events(unit->cq, unit->unacked);
    int error = ibv_destroy_cq(unit->cq);
    if (error != 0) {
        rdmux_provider_log(domain->base.fabric, RDMUX_LOG_ERROR,
                           "%s: a completion queue cannot be destroyed: %s", domain->device,
                           strerror(error));
    }
}

void rdmux_verbs_cq_close(struct rdmux_provider_cq *base)
{
    struct verbs_cq *cq = verbs_cq_of(base);
    struct verbs_domain *domain = verbs_domain_of(base->domain);
    leave_domain(cq, domain);
    for (uint32_t i = 0; i < cq->unit_count; i++) {
        destroy_unit(domain, &cq->units[i]);
    }
    rdmux_verbs_cm_close(cq);
    close_descriptors(cq);
    rdmux_provider_release(base->domain->fabric, cq->places);
}

/* ---------------------------------------------------------------------------------------- units */

/* Returns the entries that an SRQ still needs in a unit: its depth, counted once for all endpoints
 * whose completions go there. */
static uint32_t srq_entries(const struct verbs_srq *srq, uint32_t unit)
{
    return srq == NULL || (srq->units >> unit & 1) != 0 ? 0 : srq->depth;
}

static void reserve_entries(struct verbs_unit *unit, uint32_t index, uint32_t entries,
                            struct verbs_srq *srq)
{
    unit->used += entries + srq_entries(srq, index);
    if (srq != NULL) {
        srq->units |= UINT32_C(1) << index;
    }
}

enum rdmux_status rdmux_verbs_unit_reserve(struct verbs_cq *cq, uint32_t entries,
                                           struct verbs_srq *srq, struct verbs_unit **out)
{
    struct verbs_domain *domain = verbs_domain_of(cq->base.domain);
    uint32_t free_place = cq->unit_count;
    for (uint32_t i = 0; i < cq->unit_count; i++) {
        struct verbs_unit *unit = &cq->units[i];
        if (unit->is_broken) {
            free_place = unit->used == 0 ? i : free_place;
        } else if (unit->capacity - unit->used >= entries + srq_entries(srq, i)) {
            reserve_entries(unit, i, entries, srq);
            *out = unit;
            return RDMUX_OK;
        }
    }
    const uint32_t needed = entries + (srq == NULL ? 0 : srq->depth);
    uint32_t most = (uint32_t)domain->attr.max_cqe;
    if (free_place == VERBS_UNITS_MAX || needed > most) {
        rdmux_provider_error(
            "%s: no completion queue has room for %u more entries; use another cq, "
            "or smaller depths",
            domain->device, needed);
        return RDMUX_NO_MEMORY;
    }
    uint32_t wanted = cq->unit_count == 0 ? (uint32_t)UNIT_FIRST
                                          : 2 * cq->units[cq->unit_count - 1].capacity;
    wanted = wanted < needed ? needed : wanted;
    wanted = wanted > most ? most : wanted;
    struct ibv_cq *made = ibv_create_cq(domain->context, (int)wanted, cq, cq->channel, 0);
    if (made == NULL && wanted > needed) {
        made = ibv_create_cq(domain->context, (int)needed, cq, cq->channel, 0);
    }
    if (made == NULL) {
        rdmux_provider_error(
            "%s: no completion queue of %u entries: %s%s", domain->device, needed, strerror(errno),
            errno == ENOMEM ? "; raise the limit on locked memory (ulimit -l)" : "");
        return RDMUX_NO_MEMORY;
    }
    struct verbs_unit *unit = &cq->units[free_place];
    if (free_place == cq->unit_count) {
        cq->unit_count++;
    } else {
        destroy_unit(domain, unit);
    }
    *unit = (struct verbs_unit){ .cq = made, .capacity = (uint32_t)made->cqe };
    reserve_entries(unit, free_place, entries, srq);
    *out = unit;
    return RDMUX_OK;
}

/* --------------------------------------------------------------------------------------- places */

static enum rdmux_status add_places(struct verbs_cq *cq)
{
    struct rdmux_fabric *fabric = cq->base.domain->fabric;
    uint32_t count = cq->place_count == 0 ? 16 : 2 * cq->place_count;
    struct verbs_place *more = count > VERBS_PLACES_MAX
                                   ? NULL
                                   : rdmux_provider_allocate(fabric, count * sizeof(*more));
    if (more == NULL) {
        rdmux_provider_error("%s: no memory for %u queue pairs on one cq",
                             verbs_domain_of(cq->base.domain)->device, count);
        return RDMUX_NO_MEMORY;
    }
    if (cq->place_count > 0) {
        memcpy(more, cq->places, cq->place_count * sizeof(*more));
    }
    for (uint32_t i = cq->place_count; i < count; i++) {
        more[i].next_free = i + 1;
    }
    rdmux_provider_release(fabric, cq->places);
    cq->places = more;
    cq->free_place = cq->place_count;
    cq->place_count = count;
    return RDMUX_OK;
}

enum rdmux_status rdmux_verbs_place_take(struct verbs_cq *cq, struct verbs_queue *queue,
                                         struct verbs_srq *srq, uint64_t *id)
{
    if (cq->free_place == cq->place_count) {
        enum rdmux_status status = add_places(cq);
        if (status != RDMUX_OK) {
            return status;
        }
    }
    uint32_t at = cq->free_place;
    struct verbs_place *place = &cq->places[at];
    cq->free_place = place->next_free;
    place->queue = queue;
    place->srq = srq;
    if ((++place->life & ((UINT32_C(1) << VERBS_LIFE_BITS) - 1)) == 0) {
        place->life++; /* 0 marks wr_ids that are addresses, see verbs_ring.h */
    }
    *id = verbs_wr_id(at, place->life);
    return RDMUX_OK;
}

void rdmux_verbs_place_give(struct verbs_cq *cq, uint64_t id)
{
    uint32_t at = verbs_wr_id_place(id);
    struct verbs_place *place = &cq->places[at];
    place->queue = NULL;
    place->srq = NULL;
    place->next_free = cq->free_place;
    cq->free_place = at;
}

/* Returns the queue that a wr_id names. NULL: the completion outlived its queue pair. */
static struct verbs_queue *queue_of(const struct verbs_cq *cq, uint64_t wr_id)
{
    uint32_t at = verbs_wr_id_place(wr_id);
    struct verbs_queue *queue = at < cq->place_count ? cq->places[at].queue : NULL;
    return queue != NULL && queue->id == verbs_wr_id_queue(wr_id) ? queue : NULL;
}

static struct verbs_srq *srq_of(const struct verbs_cq *cq, uint64_t wr_id)
{
    uint32_t at = verbs_wr_id_place(wr_id);
    struct verbs_srq *srq = at < cq->place_count ? cq->places[at].srq : NULL;
    return srq != NULL && srq->id == verbs_wr_id_queue(wr_id) ? srq : NULL;
}

/* --------------------------------------------------------------------------------------- faults */

static const char *port_state(const struct verbs_ep *ep)
{
    uint64_t down = atomic_load_explicit(&verbs_domain_of_ep(ep)->ports_down, memory_order_relaxed);
    return (down >> ep->port & 1) != 0 ? "; the port is down" : "";
}

void rdmux_verbs_fail(struct verbs_ep *ep, enum rdmux_status status, const char *format, ...)
{
    char text[RDMUX_TEXT_MAX];
    char words[RDMUX_TEXT_MAX];
    assert(status != RDMUX_OK); /* a transport's table has a hole */
    if (ep->state >= VERBS_EP_FAILED) {
        return;
    }
    ep->state = VERBS_EP_FAILED;
    ep->is_unexplained = status == RDMUX_FLUSHED;
    va_list arguments;
    va_start(arguments, format);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): va_start() is right above */
    (void)vsnprintf(words, sizeof(words), format, arguments);
    va_end(arguments);
    (void)snprintf(text, sizeof(text), "%.16s %.40s port %u: %.160s%.20s", ep->transport->name,
                   verbs_domain_of_ep(ep)->device, ep->port, words, port_state(ep));
    rdmux_provider_failed(&ep->base, status, text);
}

static void look_at_queue(struct verbs_queue *queue)
{
    uint32_t events = atomic_exchange_explicit(&queue->events, 0, memory_order_acquire);
    if ((events & (VERBS_EVENT_ACCESS | VERBS_EVENT_REQUEST)) != 0 &&
        queue->ep->transport->refuses != NULL) {
        queue->ep->transport->refuses(queue);
    }
    if ((events & VERBS_EVENT_ACCESS) != 0) {
        rdmux_verbs_fail(queue->ep, RDMUX_DENIED,
                         "the device denied an access of the peer: beyond a region or its rights, "
                         "or to one that was revoked");
    } else if ((events & VERBS_EVENT_REQUEST) != 0) {
        rdmux_verbs_fail(queue->ep, queue->ep->transport->request_refused,
                         "the device refused a request of the peer");
    } else if ((events & VERBS_EVENT_FATAL) != 0) {
        queue->ep->transport->broke(queue);
    }
}

void rdmux_verbs_broke(struct verbs_queue *queue)
{
    rdmux_verbs_fail(queue->ep, RDMUX_IO, "the queue pair failed: the device says fatal error");
}

static void look_at_address(struct verbs_queue *queue)
{
    char text[RDMUX_TEXT_MAX];
    struct verbs_ep *ep = queue->ep;
    if (queue == &ep->data && ep->state == VERBS_EP_CONNECTED &&
        !ep->transport->holds(ep, text, sizeof(text))) {
        rdmux_verbs_fail(ep, RDMUX_PEER_GONE, "%s", text);
    }
}

/* Handles the events that the reader of asynchronous events left. Returns whether there were
 * any. */
static size_t attend_queue(struct verbs_cq *cq)
{
    uint64_t count = 0;
    ssize_t taken = read(cq->event, &count, sizeof(count));
    (void)taken; /* the attention bits tell */
    uint32_t attention = atomic_exchange_explicit(&cq->attention, 0, memory_order_acquire);
    /* Completions come first: they happened before and give the cause more exactly. */
    for (int i = 0; i < ATTEND_ROUNDS && rdmux_verbs_reap(cq, VERBS_POLL_MAX) != 0; i++) {
    }
    for (uint32_t i = 0; i < cq->unit_count && (attention & VERBS_EVENT_FATAL) != 0; i++) {
        cq->units[i].is_broken = true;
    }
    for (uint32_t i = 0; i < cq->place_count; i++) {
        struct verbs_queue *queue = cq->places[i].queue;
        if (queue == NULL) {
            continue;
        }
        if ((attention & VERBS_EVENT_DEVICE) != 0) {
            rdmux_verbs_fail(queue->ep, RDMUX_PEER_GONE, "the device failed, or was taken away");
        } else if ((attention & VERBS_EVENT_FATAL) != 0) {
            rdmux_verbs_fail(queue->ep, RDMUX_IO, "a completion queue of the device failed");
        }
        look_at_queue(queue);
        if ((attention & VERBS_EVENT_ADDRESS) != 0) {
            look_at_address(queue);
        }
    }
    return attention != 0;
}

/* ---------------------------------------------------------------------------------- completions */

void rdmux_verbs_report(struct verbs_ep *ep, struct rdmux_request *request, enum rdmux_status status)
{
    if (VERBS_LIKELY(status == RDMUX_OK || (ep->state < VERBS_EP_DRAINING && !ep->is_unexplained))) {
        rdmux_provider_done(&ep->base, request, (uint32_t)status);
    }
}

/* Retires the work requests before `end`. */
static void retire_until(struct verbs_queue *queue, uint32_t end, enum rdmux_status status)
{
    struct verbs_send_ring *ring = &queue->sent;
    while (ring->tail != end) {
        struct rdmux_request *request = verbs_send_ring_retire(ring);
        if (request != NULL && !request->done) {
            rdmux_verbs_report(queue->ep, request, status);
        }
    }
}

static void send_failed(struct verbs_queue *queue, uint32_t slot, const struct ibv_wc *wc)
{
    struct verbs_ep *ep = queue->ep;
    bool is_first = ep->state < VERBS_EP_FAILED;
    retire_until(queue, slot, is_first ? RDMUX_OK : RDMUX_FLUSHED);
    struct rdmux_request *request = verbs_send_ring_owner(&queue->sent, slot);
    struct verbs_outcome outcome = rdmux_verbs_send_outcome((uint32_t)wc->status,
                                                            request != NULL ? request->op : 0);
    if (is_first) {
        rdmux_verbs_fail(ep, outcome.status, "%s (%s, vendor code 0x%x)", outcome.text,
                         ibv_wc_status_str(wc->status), wc->vendor_err);
    }
    if (request != NULL && !request->done) {
        rdmux_verbs_report(ep, request, outcome.status);
    }
    retire_until(queue, slot + 1, RDMUX_FLUSHED);
}

void rdmux_verbs_watch_silent(struct verbs_ep *ep)
{
    struct verbs_queue *queue = &ep->data;
    if (VERBS_UNLIKELY(verbs_send_ring_silent(&queue->sent) != 0 && !ep->is_silent &&
                       !verbs_send_ring_awaits(&queue->sent))) {
        ep->is_silent = true;
        ep->silent_next = queue->cq->silent;
        queue->cq->silent = ep;
    }
}

void rdmux_verbs_sent(struct verbs_queue *queue, const struct ibv_wc *wc)
{
    uint32_t slot = verbs_wr_id_slot(wc->wr_id);
    if (VERBS_UNLIKELY(!verbs_send_ring_has(&queue->sent, slot))) {
        return;
    }
    struct verbs_ep *ep = queue->ep;
    if (VERBS_UNLIKELY(wc->status != IBV_WC_SUCCESS)) {
        send_failed(queue, slot, wc);
        return;
    }
    retire_until(queue, slot + 1, RDMUX_OK);
    if (VERBS_UNLIKELY(ep->side.atomics_unsent != NULL)) {
        rdmux_verbs_side_push(ep);
    }
    if (queue == &ep->data) {
        rdmux_verbs_resume(ep);
        rdmux_verbs_watch_silent(ep);
    }
}

void rdmux_verbs_receive_failed(struct verbs_ep *ep, struct rdmux_request *request,
                                const struct ibv_wc *wc)
{
    if (request == NULL) {
        rdmux_verbs_fail(ep, RDMUX_FLUSHED, "the side channel's queue pair went into error (%s)",
                         ibv_wc_status_str(wc->status));
        return;
    }
    struct verbs_outcome outcome = rdmux_verbs_receive_outcome((uint32_t)wc->status);
    bool is_first = ep->state < VERBS_EP_FAILED;
    if (is_first && outcome.status == RDMUX_LENGTH) {
        rdmux_provider_received(&ep->base, request, RDMUX_LENGTH, RDMUX_WC_RECV, 0, 0, 0);
    }
    if (is_first) {
        rdmux_verbs_fail(ep, outcome.status, "%s (%s, vendor code 0x%x)", outcome.text,
                         ibv_wc_status_str(wc->status), wc->vendor_err);
    }
}

static void receive_completed(struct verbs_queue *queue, const struct ibv_wc *wc)
{
    struct verbs_ep *ep = queue->ep;
    uint32_t slot = verbs_wr_id_slot(wc->wr_id);
    if (VERBS_UNLIKELY(queue == &ep->side.queue)) {
        rdmux_verbs_side_received(ep, slot, wc);
        return;
    }
    struct rdmux_request *request = verbs_receive_ring_retire(&queue->receives, slot);
    if (VERBS_UNLIKELY(request == NULL)) {
        return;
    }
    if (VERBS_UNLIKELY(wc->status != IBV_WC_SUCCESS)) {
        ep->transport->receive_failed(ep, request, wc);
        return;
    }
    ep->transport->received(ep, request, wc);
    if (VERBS_UNLIKELY(ep->held != NULL)) {
        rdmux_verbs_post_held(ep);
    }
}

static struct verbs_queue *queue_by_qpn(const struct verbs_cq *cq, uint32_t qpn)
{
    struct verbs_queue *queue = cq->by_qpn[qpn % VERBS_QPN_BUCKETS];
    while (queue != NULL && queue->qp->qp_num != qpn) {
        queue = queue->qpn_next;
    }
    return queue;
}

/* Handles a completion of an SRQ's receive, which names its queue pair by number. A receive without
 * a message goes back to the SRQ, as it serves the other endpoints, too. */
static void shared_completed(struct verbs_cq *cq, const struct ibv_wc *wc)
{
    struct verbs_srq *srq = srq_of(cq, wc->wr_id);
    struct rdmux_request *request = srq == NULL
                                        ? NULL
                                        : rdmux_verbs_srq_retire(srq, verbs_wr_id_slot(wc->wr_id));
    if (VERBS_UNLIKELY(request == NULL)) {
        return;
    }
    struct verbs_queue *queue = queue_by_qpn(cq, wc->qp_num);
    if (VERBS_LIKELY(queue != NULL && wc->status == IBV_WC_SUCCESS)) {
        queue->ep->transport->received(queue->ep, request, wc);
        return;
    }
    if (queue != NULL) {
        queue->ep->transport->receive_failed(queue->ep, request, wc);
    }
    if (!request->done && rdmux_verbs_srq_post_recv(&srq->base, request, 1) != RDMUX_OK) {
        rdmux_provider_log(cq->base.domain->fabric, RDMUX_LOG_ERROR,
                           "%s: a receive of an SRQ is lost: the device did not take it again",
                           verbs_domain_of(cq->base.domain)->device);
    }
}

static void request_completed(struct verbs_cq *cq, const struct ibv_wc *wc)
{
    enum verbs_work work = verbs_wr_id_work(wc->wr_id);
    if (VERBS_UNLIKELY(work == VERBS_WORK_SHARED)) {
        shared_completed(cq, wc);
        return;
    }
    struct verbs_queue *queue = queue_of(cq, wc->wr_id);
    if (VERBS_UNLIKELY(queue == NULL)) {
        rdmux_verbs_fast_path_completed(cq, wc);
        return;
    }
    if (work == VERBS_WORK_SEND) {
        queue->ep->transport->sent(queue, wc);
    } else {
        receive_completed(queue, wc);
    }
}

void rdmux_verbs_unit_failed(struct verbs_cq *cq, struct verbs_unit *unit)
{
    if (!unit->is_broken) { /* its endpoints have been failed already */
        atomic_fetch_or(&cq->attention, VERBS_EVENT_FATAL);
    }
}

static size_t reap_unit(struct verbs_cq *cq, struct verbs_unit *unit, size_t budget)
{
    struct ibv_wc wcs[VERBS_POLL_MAX];
    size_t done = 0;
    int wanted = VERBS_POLL_MAX;
    int got = VERBS_POLL_MAX;
    while (done < budget && got == wanted) {
        wanted = budget - done < VERBS_POLL_MAX ? (int)(budget - done) : VERBS_POLL_MAX;
        got = ibv_poll_cq(unit->cq, wanted, wcs);
        if (VERBS_UNLIKELY(got < 0)) {
            rdmux_verbs_unit_failed(cq, unit);
            break;
        }
        for (int i = 0; i < got; i++) {
            request_completed(cq, &wcs[i]);
        }
        done += (size_t)got;
    }
    return done;
}

size_t rdmux_verbs_reap(struct verbs_cq *cq, size_t budget)
{
    size_t done = 0;
    while (cq->stash_next < cq->stash_count) {
        request_completed(cq, &cq->stash[cq->stash_next++]);
        done++;
    }
    cq->stash_next = cq->stash_count = 0;
    for (uint32_t i = 0; i < cq->unit_count && done < budget; i++) {
        done += reap_unit(cq, &cq->units[(cq->first_unit + i) % cq->unit_count], budget - done);
    }
    if (cq->unit_count > 1) {
        cq->first_unit = (cq->first_unit + 1) % cq->unit_count;
    }
    return done;
}

/* ---------------------------------------------------------------------------------- silent work */

/* Posts a signaled successor behind work that no completion would report: revocation and shutdown
 * must not depend on more requests of the program to learn that the last ones are done. */
static void make_silent_tell(struct verbs_cq *cq)
{
    struct verbs_ep *ep = cq->silent;
    cq->silent = NULL;
    cq->silent_polls = 0;
    while (ep != NULL) {
        struct verbs_ep *next = ep->silent_next;
        ep->is_silent = false;
        if (ep->state == VERBS_EP_CONNECTED && verbs_send_ring_silent(&ep->data.sent) != 0 &&
            rdmux_verbs_chain_nothing(ep)) {
            (void)rdmux_verbs_chain_ring(&ep->data);
        }
        ep = next;
    }
}

static bool is_silent_for_long(struct verbs_cq *cq)
{
    return cq->idle_polls >= SILENT_POLLS || ++cq->silent_polls >= SILENT_BUSY;
}

/* ----------------------------------------------------------------------------------------- poll */

static struct verbs_unit *unit_of(struct verbs_cq *cq, const struct ibv_cq *queue)
{
    for (uint32_t i = 0; i < cq->unit_count; i++) {
        if (cq->units[i].cq == queue) {
            return &cq->units[i];
        }
    }
    return NULL;
}

/* Takes all pending events, so that the descriptor becomes readable only for the next one. */
static void take_events(struct verbs_cq *cq)
{
    struct ibv_cq *queue = NULL;
    void *context = NULL;
    while (ibv_get_cq_event(cq->channel, &queue, &context) == 0) {
        struct verbs_unit *unit = unit_of(cq, queue);
        if (unit == NULL) {
            continue;
        }
        unit->awaited = 0;
        if (++unit->unacked >= ACKNOWLEDGE_EVERY) {
            ibv_ack_cq_events(queue, unit->unacked);
            unit->unacked = 0;
        }
    }
}

static bool awaits_events(const struct verbs_cq *cq)
{
    for (uint32_t i = 0; i < cq->unit_count; i++) {
        if (cq->units[i].awaited != 0) {
            return true;
        }
    }
    return false;
}

size_t rdmux_verbs_poll(struct rdmux_provider_cq *base, size_t budget)
{
    enum { LOOK_FOR_EVENTS = 16 };
    struct verbs_cq *cq = verbs_cq_of(base);
    size_t done = 0;
    if (VERBS_UNLIKELY(atomic_load_explicit(&cq->attention, memory_order_relaxed) != 0)) {
        done += attend_queue(cq);
    }
    done += rdmux_verbs_reap(cq, budget);
    if (done != 0) {
        cq->idle_polls = 0;
    } else {
        cq->idle_polls++;
    }
    if (VERBS_UNLIKELY(cq->silent != NULL && is_silent_for_long(cq))) {
        make_silent_tell(cq);
    }
    /* The event that arm requested comes with the completion or a little later. The descriptor
     * stays readable until the event is taken. */
    if (VERBS_UNLIKELY(cq->is_armed) && (done != 0 || cq->idle_polls % LOOK_FOR_EVENTS == 1)) {
        take_events(cq);
        cq->is_armed = awaits_events(cq);
    }
    if (VERBS_UNLIKELY(cq->cm_channel != NULL)) {
        done += rdmux_verbs_cm_poll(cq, done);
    }
    return done;
}

enum rdmux_status rdmux_verbs_arm(struct rdmux_provider_cq *base)
{
    struct verbs_cq *cq = verbs_cq_of(base);
    size_t connections = cq->cm_channel != NULL ? rdmux_verbs_cm_take(cq) : 0;
    if (cq->is_armed) {
        take_events(cq);
    }
    if (cq->silent != NULL) {
        make_silent_tell(cq);
    }
    for (uint32_t i = 0; i < cq->unit_count; i++) {
        struct verbs_unit *unit = &cq->units[i];
        if (unit->awaited == 0) {
            if (ibv_req_notify_cq(unit->cq, 0) != 0) {
                rdmux_verbs_unit_failed(cq, unit);
            }
            unit->awaited = 1;
        }
    }
    cq->is_armed = true;
    for (uint32_t i = 0; i < cq->unit_count && cq->stash_count < VERBS_POLL_MAX; i++) {
        int got = ibv_poll_cq(cq->units[i].cq, (int)(VERBS_POLL_MAX - cq->stash_count),
                              &cq->stash[cq->stash_count]);
        if (got < 0) {
            rdmux_verbs_unit_failed(cq, &cq->units[i]);
            continue;
        }
        cq->stash_count += (uint32_t)got;
    }
    bool has_something = connections != 0 || cq->stash_next < cq->stash_count ||
                         atomic_load_explicit(&cq->attention, memory_order_acquire) != 0;
    return has_something ? RDMUX_AGAIN : RDMUX_OK;
}

int rdmux_verbs_fd(struct rdmux_provider_cq *base)
{
    return verbs_cq_of(base)->epoll;
}
