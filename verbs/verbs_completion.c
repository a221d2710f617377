/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
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
#include "verbs/verbs_place.h"
#include "verbs/verbs_queue.h"
#include "verbs/verbs_receive.h"
#include "verbs/verbs_ring.h"
#include "verbs/verbs_side.h"
#include "verbs/verbs_silent.h"
#include "verbs/verbs_srq.h"
#include "verbs/verbs_state.h"
#include "verbs/verbs_transport.h"
#include "verbs/verbs_unit.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
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

void rdmux_verbs_cq_close(struct rdmux_provider_cq *base)
{
    struct verbs_cq *cq = verbs_cq_of(base);
    struct verbs_domain *domain = verbs_domain_of(base->domain);
    leave_domain(cq, domain);
    for (uint32_t i = 0; i < cq->unit_count; i++) {
        rdmux_verbs_unit_destroy(domain, &cq->units[i]);
    }
    rdmux_verbs_cm_close(cq);
    close_descriptors(cq);
    rdmux_provider_release(base->domain->fabric, cq->places);
}

/* --------------------------------------------------------------------------------------- faults */

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
static size_t attend_events(struct verbs_cq *cq)
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

/* Handles a completion of an SRQ's receive, which names its queue pair by number. A receive without
 * a message goes back to the SRQ, as it serves the other endpoints, too. */
static void shared_completed(struct verbs_cq *cq, const struct ibv_wc *wc)
{
    struct verbs_srq *srq = verbs_place_srq(cq, wc->wr_id);
    struct rdmux_request *request = srq == NULL
                                        ? NULL
                                        : rdmux_verbs_srq_retire(srq, verbs_wr_id_slot(wc->wr_id));
    if (VERBS_UNLIKELY(request == NULL)) {
        return;
    }
    struct verbs_queue *queue = verbs_queue_of_qpn(cq, wc->qp_num);
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
    struct verbs_queue *queue = verbs_place_queue(cq, wc->wr_id);
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

void rdmux_verbs_reap_all(struct verbs_cq *cq)
{
    enum { ROUNDS = 256, BUDGET = 64 };
    for (int i = 0; i < ROUNDS && rdmux_verbs_reap(cq, BUDGET) != 0; i++) {
    }
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
        done += attend_events(cq);
    }
    done += rdmux_verbs_reap(cq, budget);
    if (done != 0) {
        cq->idle_polls = 0;
    } else {
        cq->idle_polls++;
    }
    if (VERBS_UNLIKELY(cq->silent != NULL && verbs_silent_is_long(cq))) {
        rdmux_verbs_silent_tell(cq);
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
        rdmux_verbs_silent_tell(cq);
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
