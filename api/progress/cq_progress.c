/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Progress of a completion queue. One round handles requests of other threads, endpoints in set-up,
 * moving or ending, and the providers. Also the sleep of the owner.
 */
#include "api/progress/cq_progress.h"

#include "api/base/compiler.h"
#include "api/core/cq.h"
#include "api/core/ep.h"
#include "api/core/fabric.h"
#include "api/core/failover.h"
#include "api/loop/service.h"
#include "api/progress/cq_domain.h"
#include "api/progress/cq_owner.h"
#include "api/progress/endpoint_table.h"
#include "api/system/system.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <string.h>

enum {
    CONTROL_EVENTS = 32, /* control-channel events handled at a time */
    MANUAL_MS = 100,     /* timer period without a service thread */
    ASK_MS = 100,        /* serialized: a call that waits for no entry looks again then */
};

/* ------------------------------------------------------------------------------------ attention */

/* Serves each endpoint once; serving may put it on the list again. */
static void serve_held(struct rdmux_cq *cq)
{
    if (rdmux_list_empty(&cq->lists.held)) {
        return;
    }
    struct rdmux_list last;
    rdmux_list_append(&cq->lists.held, &last);
    while (cq->lists.held.next != &last) {
        struct rdmux_ep *ep = RDMUX_CONTAINER(cq->lists.held.next, struct rdmux_ep, places.held);
        rdmux_list_remove(&ep->places.held);
        cq->fabric->life->control_ready(ep);
    }
    rdmux_list_remove(&last);
}

static void serve_control_channels(struct rdmux_cq *cq)
{
    serve_held(cq);
    struct rdmux_ready events[CONTROL_EVENTS];
    int count = rdmux_poller_wait(cq->control_fd, events, CONTROL_EVENTS, 0);
    for (int i = 0; i < count; i++) {
        cq->fabric->life->control_ready(rdmux_ready_data(&events[i]));
    }
    if (count == CONTROL_EVENTS) {
        rdmux_cq_raise(cq, RDMUX_SIGNAL_ATTEND);
    } else {
        rdmux_service_rearm(cq->fabric, cq->control_fd, &cq->service.control_watch);
    }
}

void rdmux_cq_drop_orphans(struct rdmux_cq *cq)
{
    for (struct rdmux_list *at = cq->lists.accepting.next, *next; at != &cq->lists.accepting;
         at = next) {
        next = at->next;
        struct rdmux_ep *ep = RDMUX_CONTAINER(at, struct rdmux_ep, places.accepting);
        if (ep->accept.acceptor->is_closed(ep->accept.acceptor)) {
            cq->fabric->life->remove(ep);
        }
    }
}

void rdmux_cq_attend(struct rdmux_cq *cq)
{
    cq->counts.errands++;
    atomic_fetch_and(rdmux_cq_signal(cq), ~(uint32_t)RDMUX_SIGNAL_ATTEND);
    if (atomic_load_explicit(&cq->armed, memory_order_relaxed) != RDMUX_TOLD) {
        rdmux_wake_drain(&cq->wake); /* may be empty: the bit may have been set without a wake-up */
    }
    if (atomic_exchange(&cq->is_woken, 0) != 0) {
        cq->counts.wakes += (cq->own->events & RDMUX_EVENT_WOKEN) == 0;
        cq->own->events |= RDMUX_EVENT_WOKEN;
        rdmux_cq_pend(cq, cq->own);
    }
    rdmux_cq_deliver_mail(cq);
    rdmux_cq_drop_orphans(cq);
    serve_control_channels(cq);
    rdmux_cq_run_timers(cq);
    if (!rdmux_list_empty(&cq->lists.leaving)) {
        cq->fabric->life->send_off(cq);
    }
}

/* ------------------------------------------------------------------------------------- progress */

void rdmux_cq_ring_doorbells(struct rdmux_cq *cq)
{
    while (cq->doorbells != NULL) {
        struct rdmux_ep *ep = cq->doorbells;
        cq->doorbells = ep->places.doorbell_next;
        ep->queued.is_doorbell_held = false;
        if (ep->path != NULL && ep->phase == RDMUX_PHASE_READY) {
            ep->ops->doorbell(ep->path);
        }
    }
}

void rdmux_cq_step_busy(struct rdmux_cq *cq)
{
    for (struct rdmux_list *at = cq->lists.busy.next, *next; at != &cq->lists.busy; at = next) {
        next = at->next;
        struct rdmux_ep *ep = RDMUX_CONTAINER(at, struct rdmux_ep, places.busy);
        cq->fabric->life->step(ep);
    }
}

void rdmux_cq_free_all(struct rdmux_list *eps)
{
    while (!rdmux_list_empty(eps)) {
        struct rdmux_ep *ep = RDMUX_CONTAINER(eps->next, struct rdmux_ep, places.cq);
        rdmux_list_remove(&ep->places.cq);
        ep->fabric->life->remove(ep);
    }
}

bool rdmux_cq_run_errands(struct rdmux_cq *cq)
{
    bool did = false;
    rdmux_cq_free_all(&cq->lists.dropped);
    if (atomic_load_explicit(rdmux_cq_signal(cq), memory_order_relaxed) & RDMUX_SIGNAL_ATTEND) {
        rdmux_cq_attend(cq);
        did = true;
    }
    rdmux_cq_ring_doorbells(cq);
    return did;
}

bool rdmux_cq_progress(struct rdmux_cq *cq)
{
    return rdmux_cq_round(cq);
}

/* ------------------------------------------------------------------------------------- sleeping */

/* Makes busy endpoints do work that they deferred. Returns whether anything was done. */
static __attribute__((noinline)) bool fall_quiet(struct rdmux_cq *cq)
{
    bool did = false;
    for (struct rdmux_list *at = cq->lists.busy.next, *next; at != &cq->lists.busy; at = next) {
        next = at->next;
        struct rdmux_ep *ep = RDMUX_CONTAINER(at, struct rdmux_ep, places.busy);
        if (ep->phase == RDMUX_PHASE_READY) {
            did = rdmux_failover_falls_quiet(ep) || did;
        }
    }
    return did;
}

bool rdmux_cq_arm_providers(struct rdmux_cq *cq)
{
    rdmux_cq_ring_doorbells(cq);
    bool something = RDMUX_UNLIKELY(!rdmux_list_empty(&cq->lists.busy)) && fall_quiet(cq);
    for (uint32_t i = 0; i < cq->domain_count; i++) {
        struct rdmux_cq_domain *domain = &cq->domains[i];
        if (domain->cq->ep_count != 0 && domain->ops->arm(domain->cq) != RDMUX_OK) {
            something = true;
        }
    }
    return something;
}

static int remaining_ms(struct rdmux_cq *cq, uint64_t until_ns)
{
    uint64_t deadline = atomic_load_explicit(&cq->deadline_ns, memory_order_relaxed);
    uint64_t until = until_ns < deadline ? until_ns : deadline;
    if (until == UINT64_MAX) {
        return -1;
    }
    uint64_t now = rdmux_now(cq->fabric);
    if (until <= now) {
        return 0;
    }
    uint64_t ms = (until - now + 999999) / 1000000;
    return ms > INT_MAX ? INT_MAX : (int)ms;
}

/* Polls the cq's descriptors. Wake-ups by mail or by the control channel need attention, data does
 * not. */
static enum rdmux_status look_at_descriptors(struct rdmux_cq *cq, int timeout_ms)
{
    struct rdmux_ready events[3];
    int count = rdmux_poller_wait(cq->fd, events, 3, timeout_ms);
    if (count < 0 && errno != EINTR) {
        return rdmux_fail(RDMUX_IO, "cq: its poller failed: %s", strerror(errno));
    }
    for (int i = 0; i < count; i++) {
        if (rdmux_ready_data(&events[i]) == cq) { /* not work_fd */
            rdmux_cq_raise(cq, RDMUX_SIGNAL_ATTEND);
        }
    }
    return RDMUX_OK;
}

/* Polls or sleeps on the descriptors below the cq's poller, since each level of epoll that a
 * wake-up passes costs some tenths of a microsecond. */
static enum rdmux_status sleep_on_descriptors(struct rdmux_cq *cq, int timeout_ms)
{
    enum { WAKES = 2 }; /* `wake` and control_fd; the other entries are of providers */
    struct pollfd fds[WAKES + RDMUX_CQ_DOMAINS_MAX] = {
        { .fd = cq->wake.fd, .events = POLLIN },
        { .fd = cq->control_fd, .events = POLLIN },
    };
    nfds_t count = WAKES;
    for (uint32_t i = 0; i < cq->domain_count; i++) {
        struct rdmux_cq_domain *domain = &cq->domains[i];
        if (domain->cq->ep_count != 0) {
            fds[count++] = (struct pollfd){ .fd = domain->ops->fd(domain->cq), .events = POLLIN };
        }
    }
    if (rdmux_poll(fds, count, timeout_ms) < 0 && errno != EINTR) {
        return rdmux_fail(RDMUX_IO, "cq: poll failed: %s", strerror(errno));
    }
    if ((fds[0].revents | fds[1].revents) != 0) {
        rdmux_cq_raise(cq, RDMUX_SIGNAL_ATTEND);
    }
    return RDMUX_OK;
}

/* Without a service thread, also does its work: the awaited listener may be of this process. */
static enum rdmux_status sleep_manually(struct rdmux_cq *cq, int timeout_ms)
{
    struct pollfd fds[2] = {
        { .fd = cq->fd, .events = POLLIN },
        { .fd = rdmux_service_fd(cq->fabric), .events = POLLIN },
    };
    if (rdmux_poll(fds, 2, timeout_ms < 0 || timeout_ms > MANUAL_MS ? MANUAL_MS : timeout_ms) < 0 &&
        errno != EINTR) {
        return rdmux_fail(RDMUX_IO, "cq: poll failed: %s", strerror(errno));
    }
    rdmux_service_step(cq->fabric, 0);
    return look_at_descriptors(cq, 0);
}

/* Serialized: sleeps outside of the cq, armed as by rdmux_cq_arm(), so that other calls enter. */
static enum rdmux_status sleep_outside(struct rdmux_cq *cq, int timeout_ms)
{
    const bool is_manual = rdmux_fabric_is_manual(cq->fabric);
    struct pollfd fds[2] = {
        { .fd = cq->fd, .events = POLLIN },
        { .fd = is_manual ? rdmux_service_fd(cq->fabric) : -1, .events = POLLIN },
    };
    if (is_manual && (timeout_ms < 0 || timeout_ms > MANUAL_MS)) {
        timeout_ms = MANUAL_MS;
    }
    cq->sleepers++;
    rdmux_cq_set_arming(cq, RDMUX_ARMED);
    rdmux_cq_leave(cq);
    enum rdmux_status status = RDMUX_OK;
    if (rdmux_poll(fds, 2, timeout_ms) < 0 && errno != EINTR) {
        status = rdmux_fail(RDMUX_IO, "cq: poll failed: %s", strerror(errno));
    }
    if (is_manual) {
        rdmux_service_step(cq->fabric, 0);
    }
    if (!rdmux_cq_enter(cq)) {
        /* The child of a fork that another thread made: only the thread that called it is there. */
        return rdmux_cq_refused(cq, "cq", "cq");
    }
    cq->sleepers--;
    rdmux_cq_untell(cq, RDMUX_UNARMED);
    rdmux_cq_raise(cq, RDMUX_SIGNAL_ATTEND); /* the descriptor does not say what was there */
    return status;
}

/* Returns whether a call that sleeps and waits for no entry may have what it waits for. */
static bool has_news_for_askers(const struct rdmux_cq *cq)
{
    return cq->askers != 0 &&
           (cq->counts.errands != cq->asked_errands || !rdmux_list_empty(&cq->lists.busy));
}

void rdmux_cq_rearm(struct rdmux_cq *cq)
{
    if (RDMUX_LIKELY(cq->sleepers == 0)) {
        return;
    }
    if (rdmux_cq_arm_providers(cq) || has_news_for_askers(cq) || !rdmux_list_empty(&cq->pending) ||
        (atomic_load(rdmux_cq_signal(cq)) & RDMUX_SIGNAL_ATTEND) != 0) {
        rdmux_cq_set_arming(cq, RDMUX_ARMED);
        rdmux_cq_tell(cq);
    } else {
        rdmux_cq_set_arming(cq, RDMUX_ARMED);
    }
}

void rdmux_cq_stay_armed(struct rdmux_cq *cq)
{
    if (rdmux_cq_is_armed(cq) &&
        (rdmux_cq_arm_providers(cq) || has_news_for_askers(cq) || !rdmux_list_empty(&cq->pending) ||
         (atomic_load(rdmux_cq_signal(cq)) & RDMUX_SIGNAL_ATTEND) != 0)) {
        rdmux_cq_tell(cq);
    }
}

bool rdmux_cq_look_for_errands(struct rdmux_cq *cq)
{
    struct pollfd fds[] = {
        { .fd = cq->wake.fd, .events = POLLIN },
        { .fd = cq->control_fd, .events = POLLIN },
    };
    if (rdmux_poll(fds, RDMUX_COUNT_OF(fds), 0) <= 0) {
        return false;
    }
    rdmux_cq_raise(cq, RDMUX_SIGNAL_ATTEND);
    return true;
}

enum rdmux_status rdmux_cq_look(struct rdmux_cq *cq)
{
    return sleep_on_descriptors(cq, 0);
}

enum rdmux_status rdmux_cq_sleep(struct rdmux_cq *cq, uint64_t until_ns)
{
    int timeout_ms = remaining_ms(cq, until_ns);
    cq->counts.sleeps++;
    if ((cq->fence & RDMUX_ENTER_SERIALIZED) != 0) {
        return sleep_outside(cq, timeout_ms);
    }
    atomic_store(&cq->claim.sleeping, 1);
    enum rdmux_status status = rdmux_fabric_is_manual(cq->fabric)
                                   ? sleep_manually(cq, timeout_ms)
                                   : sleep_on_descriptors(cq, timeout_ms);
    atomic_store(&cq->claim.sleeping,
                 0); /* before DORMANT is read, as watch_sleeper() sets it before it reads this */
    atomic_store_explicit(&cq->calls, atomic_load_explicit(&cq->calls, memory_order_relaxed) + 1,
                          memory_order_relaxed);
    if (atomic_load(rdmux_cq_signal(cq)) & RDMUX_SIGNAL_DORMANT) {
        atomic_fetch_and(rdmux_cq_signal(cq), ~(uint32_t)RDMUX_SIGNAL_DORMANT);
        rdmux_service_wake(cq->fabric);
    }
    uint64_t deadline = atomic_load_explicit(&cq->deadline_ns, memory_order_relaxed);
    if (deadline != UINT64_MAX && rdmux_now(cq->fabric) >= deadline) {
        rdmux_cq_raise(cq, RDMUX_SIGNAL_ATTEND);
    }
    return status;
}

enum rdmux_status rdmux_cq_sleep_asking(struct rdmux_cq *cq, uint64_t until_ns)
{
    if ((cq->fence & RDMUX_ENTER_SERIALIZED) == 0) {
        return rdmux_cq_sleep(cq, until_ns);
    }
    const uint64_t look_ns = rdmux_now(cq->fabric) + (uint64_t)ASK_MS * 1000000;
    cq->askers++;
    cq->asked_errands = rdmux_list_empty(&cq->lists.busy) ? cq->counts.errands : UINT64_MAX;
    enum rdmux_status status = rdmux_cq_sleep(cq, until_ns < look_ns ? until_ns : look_ns);
    cq->askers--;
    return status;
}
