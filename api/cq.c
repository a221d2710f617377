/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Completion queues: who owns one when, polling, sleeping, and waking.
 *
 * A cq has one owner at a time. An application's call owns it from rdmux_cq_enter() to rdmux_cq_leave(); the service thread
 * owns it between rdmux_cq_claim() and rdmux_cq_release_claim(). The hand-over is Dekker's: the call stores `inside`, then
 * loads `signal`; the service thread sets a bit in `signal`, makes every thread pass a barrier, then loads `inside`. So the
 * call pays plain stores only.
 */
#include "api/core.h"

#include "api/failover.h"
#include "api/lane.h"
#include "api/progress/descriptors.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum {
    POLL_BUDGET = 64,        /* requests a provider handles in one round */
    CONTROL_EVENTS = 32,     /* control channels looked at in one go */
    DEFAULT_DEPTH = 1 << 24, /* entries, where the attribute asks for nothing */
    MANUAL_MS = 100,         /* without a service thread its timers are looked at this often */
};

/* ------------------------------------------------------------------------------------------------- ownership */

void rdmux_cq_raise(struct rdmux_cq *cq, uint32_t bits)
{
    atomic_fetch_or(rdmux_cq_signal(cq), bits);
    __atomic_store_n(&cq->gate->limit, NULL, __ATOMIC_SEQ_CST);
}

bool rdmux_cq_enter_slow(struct rdmux_cq *cq)
{
    for (;;) {
        uint32_t signal = atomic_load_explicit(rdmux_cq_signal(cq), memory_order_acquire);
        if ((signal & RDMUX_SIGNAL_ALIVE) == 0) {
            return false;
        }
        if (signal & RDMUX_SIGNAL_DORMANT) {
            atomic_fetch_and(rdmux_cq_signal(cq), ~(uint32_t)RDMUX_SIGNAL_DORMANT);
            rdmux_service_wake(cq->fabric);
        }
        if ((signal & RDMUX_SIGNAL_CLAIM) == 0) {
            rdmux_lane_close(cq);
            return true;
        }
        /* Step back and wait for the slice to end; it is bounded. */
        atomic_store_explicit(rdmux_cq_inside(cq), RDMUX_LANE_AWAY, memory_order_release);
        pthread_mutex_lock(&cq->claim_lock);
        pthread_mutex_unlock(&cq->claim_lock);
        atomic_exchange_explicit(rdmux_cq_inside(cq), RDMUX_LANE_INSIDE, memory_order_seq_cst);
    }
}

bool rdmux_cq_claim(struct rdmux_cq *cq)
{
    pthread_mutex_lock(&cq->claim_lock);
    rdmux_cq_raise(cq, RDMUX_SIGNAL_CLAIM);
    if (!RDMUX_TSAN && !cq->fence) {
        rdmux_membarrier();
    }
    if (atomic_load_explicit(rdmux_cq_inside(cq), memory_order_seq_cst) == RDMUX_LANE_INSIDE) {
        rdmux_cq_release_claim(cq);
        return false;
    }
    rdmux_lane_close(cq);
    return true;
}

void rdmux_cq_release_claim(struct rdmux_cq *cq)
{
    atomic_fetch_and_explicit(rdmux_cq_signal(cq), ~(uint32_t)RDMUX_SIGNAL_CLAIM,
                              memory_order_release);
    pthread_mutex_unlock(&cq->claim_lock);
}

/* ------------------------------------------------------------------------------------------------- waking */

static void wake(struct rdmux_cq *cq)
{
    uint64_t one = 1;
    ssize_t written = write(cq->wake_fd, &one, sizeof(one));
    (void)written; /* a full counter is readable all the same */
}

void rdmux_cq_tell(struct rdmux_cq *cq)
{
    atomic_store_explicit(&cq->armed, RDMUX_TOLD, memory_order_relaxed);
    wake(cq);
}

void rdmux_cq_untell(struct rdmux_cq *cq, enum rdmux_arming next)
{
    if (atomic_load_explicit(&cq->armed, memory_order_relaxed) == RDMUX_TOLD) {
        uint64_t count;
        ssize_t taken = read(cq->wake_fd, &count, sizeof(count));
        (void)taken; /* mail has ATTEND set, too */
    }
    atomic_store_explicit(&cq->armed, next, memory_order_relaxed);
}

void rdmux_cq_poke(struct rdmux_cq *cq)
{
    rdmux_cq_raise(cq, RDMUX_SIGNAL_ATTEND);
    wake(cq);
    rdmux_service_wake(cq->fabric);
}

void rdmux_cq_mail(struct rdmux_cq *cq, struct rdmux_mail *mail)
{
    pthread_mutex_lock(&cq->mail_lock);
    mail->next = cq->mail;
    cq->mail = mail;
    pthread_mutex_unlock(&cq->mail_lock);
    rdmux_cq_poke(cq);
}

void rdmux_cq_job_begins(struct rdmux_cq *cq)
{
    pthread_mutex_lock(&cq->mail_lock);
    cq->jobs++;
    pthread_mutex_unlock(&cq->mail_lock);
}

void rdmux_cq_job_ends(struct rdmux_cq *cq)
{
    pthread_mutex_lock(&cq->mail_lock);
    cq->jobs--;
    pthread_cond_signal(&cq->jobs_ended);
    pthread_mutex_unlock(&cq->mail_lock);
}

static void wait_for_jobs(struct rdmux_cq *cq)
{
    pthread_mutex_lock(&cq->mail_lock);
    while (cq->jobs != 0) {
        pthread_cond_wait(&cq->jobs_ended, &cq->mail_lock);
    }
    pthread_mutex_unlock(&cq->mail_lock);
}

static void deliver_mail(struct rdmux_cq *cq)
{
    pthread_mutex_lock(&cq->mail_lock);
    struct rdmux_mail *newest = cq->mail;
    cq->mail = NULL;
    pthread_mutex_unlock(&cq->mail_lock);

    struct rdmux_mail *oldest = NULL;
    while (newest != NULL) {
        struct rdmux_mail *next = newest->next;
        newest->next = oldest;
        oldest = newest;
        newest = next;
    }
    while (oldest != NULL) {
        struct rdmux_mail *next = oldest->next;
        oldest->deliver(cq, oldest);
        oldest = next;
    }
}

/* ------------------------------------------------------------------------------------------------- attention */

/* Each endpoint once: it may be on the list again then. */
static void serve_held(struct rdmux_cq *cq)
{
    if (rdmux_list_empty(&cq->held)) {
        return;
    }
    struct rdmux_list last;
    rdmux_list_append(&cq->held, &last);
    while (cq->held.next != &last) {
        struct rdmux_ep *ep = RDMUX_CONTAINER(cq->held.next, struct rdmux_ep, held_link);
        rdmux_list_remove(&ep->held_link);
        rdmux_ep_control_ready(ep);
    }
    rdmux_list_remove(&last);
}

static void serve_control_channels(struct rdmux_cq *cq)
{
    serve_held(cq);
    struct epoll_event events[CONTROL_EVENTS];
    int count = epoll_wait(cq->control_fd, events, CONTROL_EVENTS, 0);
    for (int i = 0; i < count; i++) {
        rdmux_ep_control_ready(events[i].data.ptr);
    }
    if (count == CONTROL_EVENTS) {
        rdmux_cq_raise(cq, RDMUX_SIGNAL_ATTEND);
    } else {
        rdmux_service_rearm(cq->fabric, cq->control_fd, &cq->control_watch);
    }
}

void rdmux_cq_drop_orphans(struct rdmux_cq *cq)
{
    for (struct rdmux_list *at = cq->accepting.next, *next; at != &cq->accepting; at = next) {
        next = at->next;
        struct rdmux_ep *ep = RDMUX_CONTAINER(at, struct rdmux_ep, accept_link);
        if (ep->acceptor->is_closed(ep->acceptor)) {
            rdmux_ep_dismantle(ep);
        }
    }
}

void rdmux_cq_attend(struct rdmux_cq *cq)
{
    atomic_fetch_and(rdmux_cq_signal(cq), ~(uint32_t)RDMUX_SIGNAL_ATTEND);
    if (atomic_load_explicit(&cq->armed, memory_order_relaxed) != RDMUX_TOLD) {
        uint64_t count;
        ssize_t taken = read(cq->wake_fd, &count, sizeof(count));
        (void)taken; /* nothing to read is fine: the bit may have been set without a wake-up */
    }
    deliver_mail(cq);
    rdmux_cq_drop_orphans(cq);
    serve_control_channels(cq);
    rdmux_cq_run_timers(cq);
}

/* ------------------------------------------------------------------------------------------------- progress */

static __attribute__((noinline)) void ring_doorbells(struct rdmux_cq *cq)
{
    while (cq->doorbells != NULL) {
        struct rdmux_ep *ep = cq->doorbells;
        cq->doorbells = ep->doorbell_next;
        ep->doorbell_held = false;
        if (ep->path != NULL && ep->phase == RDMUX_PHASE_READY) {
            ep->ops->doorbell(ep->path);
        }
    }
}

static __attribute__((noinline)) void step_busy(struct rdmux_cq *cq)
{
    for (struct rdmux_list *at = cq->busy.next, *next; at != &cq->busy; at = next) {
        next = at->next;
        struct rdmux_ep *ep = RDMUX_CONTAINER(at, struct rdmux_ep, busy_link);
        if (ep->phase == RDMUX_PHASE_SETUP) {
            rdmux_ep_setup_step(ep);
        } else if (ep->phase == RDMUX_PHASE_READY) {
            rdmux_failover_step(ep);
        } else {
            rdmux_ep_end_step(ep);
        }
    }
}

static __attribute__((noinline)) void free_all(struct rdmux_list *eps)
{
    while (!rdmux_list_empty(eps)) {
        struct rdmux_ep *ep = RDMUX_CONTAINER(eps->next, struct rdmux_ep, link);
        rdmux_list_remove(&ep->link);
        rdmux_ep_free(ep);
    }
}

/* Besides what the providers have: what the application or other threads want, doorbells. */
static inline bool has_errands(const struct rdmux_cq *cq)
{
    return !rdmux_list_empty(&cq->dropped) || cq->doorbells != NULL ||
           (atomic_load_explicit(rdmux_cq_signal(cq), memory_order_relaxed) &
            RDMUX_SIGNAL_ATTEND) != 0;
}

static __attribute__((noinline)) bool run_errands(struct rdmux_cq *cq)
{
    bool did = false;
    free_all(&cq->dropped);
    if (atomic_load_explicit(rdmux_cq_signal(cq), memory_order_relaxed) & RDMUX_SIGNAL_ATTEND) {
        rdmux_cq_attend(cq);
        did = true;
    }
    ring_doorbells(cq);
    return did;
}

static inline bool progress(struct rdmux_cq *cq)
{
    bool did = RDMUX_UNLIKELY(has_errands(cq)) && run_errands(cq);
    for (uint32_t i = 0; i < cq->domain_count; i++) {
        struct rdmux_cq_domain *domain = &cq->domains[i];
        if (domain->cq->ep_count != 0 && domain->ops->poll(domain->cq, POLL_BUDGET) != 0) {
            did = true;
        }
    }
    if (RDMUX_UNLIKELY(!rdmux_list_empty(&cq->busy))) {
        step_busy(cq);
    }
    return did;
}

bool rdmux_cq_progress(struct rdmux_cq *cq)
{
    return progress(cq);
}

bool rdmux_cq_move(struct rdmux_cq *cq)
{
    bool more = false;
    struct rdmux_list moved;
    struct rdmux_list again; /* of whom something was learnt that shows at the next move */
    rdmux_list_init(&moved);
    rdmux_list_init(&again);
    while (!rdmux_list_empty(&cq->pending)) {
        struct rdmux_ep *ep = RDMUX_CONTAINER(cq->pending.next, struct rdmux_ep, pending_link);
        rdmux_list_remove(&ep->pending_link);
        ep->pending = false;
        rdmux_ep_move(ep);
        struct rdmux_list *next = ep->pending ? &again : &moved;
        rdmux_list_remove(&ep->pending_link);
        ep->pending = true; /* until all are moved nobody links it a second time */
        rdmux_list_append(next, &ep->pending_link);
    }
    while (!rdmux_list_empty(&moved)) {
        struct rdmux_ep *ep = RDMUX_CONTAINER(moved.next, struct rdmux_ep, pending_link);
        rdmux_list_remove(&ep->pending_link);
        ep->pending = false;
        bool reported = ep->path != NULL && ep->path->ready; /* while it was given requests */
        if (reported || rdmux_ep_has_entries(ep)) {
            rdmux_cq_pend(cq, ep);
        }
        more = more || reported;
    }
    while (!rdmux_list_empty(&again)) {
        struct rdmux_ep *ep = RDMUX_CONTAINER(again.next, struct rdmux_ep, pending_link);
        rdmux_list_remove(&ep->pending_link);
        ep->pending = false;
        rdmux_cq_pend(cq, ep);
        more = true;
    }
    return more;
}

static inline size_t collect(struct rdmux_cq *cq, struct rdmux_wc *wc, size_t max)
{
    if (RDMUX_UNLIKELY(!rdmux_list_empty(&cq->closed))) {
        free_all(&cq->closed);
    }
    /* What waits is returned without a look at the providers, which is a system call on tcp. The poll after such a one looks
     * there first: else a program that makes as many completions as it takes would never hear of anything else. */
    if (!rdmux_list_empty(&cq->pending) && !cq->list_sufficed) {
        if (RDMUX_UNLIKELY(cq->doorbells != NULL)) {
            ring_doorbells(cq);
        }
        size_t count = rdmux_cq_take(cq, wc, max);
        cq->list_sufficed = count != 0;
        if (RDMUX_LIKELY(count != 0)) {
            return count;
        }
    }
    cq->list_sufficed = false;
    (void)progress(cq);
    return rdmux_list_empty(&cq->pending) ? 0 : rdmux_cq_take(cq, wc, max);
}

/* A poll that takes nothing, or the first after an arm. */
static __attribute__((noinline)) size_t poll_otherwise(struct rdmux_cq *cq, struct rdmux_wc *wc,
                                                       size_t max)
{
    rdmux_cq_untell(cq, RDMUX_UNARMED);
    if (max != 0) {
        return collect(cq, wc, max);
    }
    rdmux_cq_progress(cq);
    rdmux_cq_move(cq);
    return 0;
}

size_t rdmux_lane_poll(struct rdmux_cq *cq, struct rdmux_wc *wc, size_t max)
{
    if ((wc == NULL && max != 0) || !rdmux_cq_enter(cq)) {
        return 0;
    }
    size_t count = RDMUX_UNLIKELY(max == 0 ||
                                  atomic_load_explicit(&cq->armed, memory_order_relaxed) !=
                                      RDMUX_UNARMED)
                       ? poll_otherwise(cq, wc, max)
                       : collect(cq, wc, max);
    rdmux_cq_leave(cq);
    return count;
}

/* ------------------------------------------------------------------------------------------------- sleeping */

/* Endpoints with failover have put off what is due now. Returns whether anything was done. */
static __attribute__((noinline)) bool fall_quiet(struct rdmux_cq *cq)
{
    bool did = false;
    for (struct rdmux_list *at = cq->busy.next, *next; at != &cq->busy; at = next) {
        next = at->next;
        struct rdmux_ep *ep = RDMUX_CONTAINER(at, struct rdmux_ep, busy_link);
        if (ep->phase == RDMUX_PHASE_READY) {
            did = rdmux_failover_quiet(ep) || did;
        }
    }
    return did;
}

bool rdmux_cq_arm_providers(struct rdmux_cq *cq)
{
    ring_doorbells(cq);
    bool something = RDMUX_UNLIKELY(!rdmux_list_empty(&cq->busy)) && fall_quiet(cq);
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

/* What the cq's descriptors say: wakes of the control channel or by mail need attention, data does not. */
static enum rdmux_status look_at_descriptors(struct rdmux_cq *cq, int timeout_ms)
{
    struct epoll_event events[3];
    int count = epoll_wait(cq->fd, events, 3, timeout_ms);
    if (count < 0 && errno != EINTR) {
        return rdmux_fail(RDMUX_IO, "cq: epoll_wait failed: %s", strerror(errno));
    }
    for (int i = 0; i < count; i++) {
        if (events[i].data.fd != cq->work_fd) {
            rdmux_cq_raise(cq, RDMUX_SIGNAL_ATTEND);
        }
    }
    return RDMUX_OK;
}

/* The same for a call that sleeps: on what is behind the descriptors, since each level of epoll that a wake-up passes
 * costs some tenths of a microsecond. */
static enum rdmux_status sleep_on_descriptors(struct rdmux_cq *cq, int timeout_ms)
{
    enum { WAKES = 2 }; /* the others are the providers' */
    struct pollfd fds[WAKES + RDMUX_CQ_DOMAINS_MAX] = {
        { .fd = cq->wake_fd, .events = POLLIN },
        { .fd = cq->control_fd, .events = POLLIN },
    };
    nfds_t count = WAKES;
    for (uint32_t i = 0; i < cq->domain_count; i++) {
        struct rdmux_cq_domain *domain = &cq->domains[i];
        if (domain->cq->ep_count != 0) {
            fds[count++] = (struct pollfd){ .fd = domain->ops->fd(domain->cq), .events = POLLIN };
        }
    }
    if (poll(fds, count, timeout_ms) < 0 && errno != EINTR) {
        return rdmux_fail(RDMUX_IO, "cq: poll failed: %s", strerror(errno));
    }
    if ((fds[0].revents | fds[1].revents) != 0) {
        rdmux_cq_raise(cq, RDMUX_SIGNAL_ATTEND);
    }
    return RDMUX_OK;
}

/* Without a service thread its work is done here, too: the listener that is waited for may be our own. */
static enum rdmux_status sleep_manually(struct rdmux_cq *cq, int timeout_ms)
{
    struct pollfd fds[2] = {
        { .fd = cq->fd, .events = POLLIN },
        { .fd = rdmux_service_fd(cq->fabric), .events = POLLIN },
    };
    if (poll(fds, 2, timeout_ms < 0 || timeout_ms > MANUAL_MS ? MANUAL_MS : timeout_ms) < 0 &&
        errno != EINTR) {
        return rdmux_fail(RDMUX_IO, "cq: poll failed: %s", strerror(errno));
    }
    rdmux_service_step(cq->fabric, 0);
    return look_at_descriptors(cq, 0);
}

/* Sleeps, inside a call, until the cq has something, a timer is due, or until_ns. */
static enum rdmux_status sleep_inside(struct rdmux_cq *cq, uint64_t until_ns)
{
    int timeout_ms = remaining_ms(cq, until_ns);
    atomic_store(&cq->sleeping, 1);
    enum rdmux_status status = rdmux_fabric_is_manual(cq->fabric)
                                   ? sleep_manually(cq, timeout_ms)
                                   : sleep_on_descriptors(cq, timeout_ms);
    atomic_store(&cq->sleeping,
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

/* Answers of a peer on this host come sooner than a sleeper wakes: a call looks so often, 1 us each, before it sleeps.
 * Where there is one processor the peer needs it. */
static uint32_t looks_before_sleep(const struct rdmux_cq *cq)
{
    enum { LOOKS = 50 };
    return cq->fabric->processors > 1 && !rdmux_fabric_is_manual(cq->fabric) ? LOOKS : 0;
}

static uint64_t until_of(struct rdmux_cq *cq, int timeout_ms)
{
    return timeout_ms < 0 ? UINT64_MAX : rdmux_now(cq->fabric) + (uint64_t)timeout_ms * 1000000;
}

enum rdmux_status rdmux_cq_wait_until(struct rdmux_cq *cq, bool (*done)(void *user), void *user,
                                      int timeout_ms)
{
    uint64_t until_ns = until_of(cq, timeout_ms);
    uint32_t looks = 0;
    for (;;) {
        if (rdmux_cq_progress(cq)) {
            looks = 0;
        }
        bool more = rdmux_cq_move(cq);
        if (done(user)) {
            return RDMUX_OK;
        }
        if (timeout_ms >= 0 && rdmux_now(cq->fabric) >= until_ns) {
            return RDMUX_TIMED_OUT;
        }
        if (more || (atomic_load_explicit(rdmux_cq_signal(cq), memory_order_acquire) &
                     RDMUX_SIGNAL_ATTEND)) {
            continue;
        }
        enum rdmux_status status;
        if (looks < looks_before_sleep(cq)) {
            looks++;
            status = sleep_on_descriptors(cq, 0);
        } else if (rdmux_cq_arm_providers(cq) ||
                   (atomic_load_explicit(rdmux_cq_signal(cq), memory_order_acquire) &
                    RDMUX_SIGNAL_ATTEND)) {
            continue;
        } else {
            status = sleep_inside(cq, until_ns);
        }
        if (status != RDMUX_OK) {
            return status;
        }
    }
}

enum rdmux_status rdmux_cq_wait(struct rdmux_cq *cq, struct rdmux_wc *wc, size_t max,
                                int timeout_ms, size_t *count)
{
    if (cq == NULL || wc == NULL || max == 0 || count == NULL || timeout_ms < -1) {
        return rdmux_fail(RDMUX_INVALID, "rdmux_cq_wait: %s",
                          cq == NULL      ? "cq is NULL"
                          : wc == NULL    ? "wc is NULL"
                          : max == 0      ? "max is 0"
                          : count == NULL ? "count is NULL"
                                          : "timeout_ms is below -1");
    }
    *count = 0;
    if (!rdmux_cq_enter(cq)) {
        return rdmux_fail(RDMUX_INVALID,
                          "rdmux_cq_wait: the process forked; the cq belongs to the parent");
    }
    rdmux_cq_untell(cq, RDMUX_UNARMED);
    uint64_t until_ns = timeout_ms == 0 ? 0 : until_of(cq, timeout_ms);
    enum rdmux_status status;
    for (;;) {
        *count = collect(cq, wc, max);
        if (*count != 0) {
            status = RDMUX_OK;
            break;
        }
        if (timeout_ms == 0) {
            status = rdmux_again("rdmux_cq_wait: nothing is there yet");
            break;
        }
        if (timeout_ms > 0 && rdmux_now(cq->fabric) >= until_ns) {
            status = rdmux_fail(RDMUX_TIMED_OUT, "rdmux_cq_wait: nothing came within %d ms",
                                timeout_ms);
            break;
        }
        if (rdmux_cq_arm_providers(cq) || !rdmux_list_empty(&cq->pending) ||
            (atomic_load_explicit(rdmux_cq_signal(cq), memory_order_acquire) &
             RDMUX_SIGNAL_ATTEND)) {
            continue;
        }
        status = sleep_inside(cq, until_ns);
        if (status != RDMUX_OK) {
            break;
        }
    }
    rdmux_cq_leave(cq);
    return status;
}

int rdmux_cq_fd(struct rdmux_cq *cq)
{
    return cq == NULL || *cq->alive == 0 ? -1 : cq->fd;
}

enum rdmux_status rdmux_cq_arm(struct rdmux_cq *cq)
{
    if (cq == NULL) {
        return rdmux_fail(RDMUX_INVALID, "rdmux_cq_arm: cq is NULL");
    }
    if (!rdmux_cq_enter(cq)) {
        return rdmux_fail(RDMUX_INVALID,
                          "rdmux_cq_arm: the process forked; the cq belongs to the parent");
    }
    rdmux_cq_untell(cq, RDMUX_UNARMED);
    rdmux_cq_move(cq);
    enum rdmux_status status = RDMUX_OK;
    if (!rdmux_list_empty(&cq->pending)) {
        status = RDMUX_AGAIN;
    } else if (rdmux_cq_arm_providers(cq)) {
        /* A provider may tell of a thing once, and the program may arm again instead of polling. */
        (void)rdmux_cq_progress(cq);
        status = RDMUX_AGAIN;
    } else if (!rdmux_list_empty(&cq->pending) ||
               (atomic_load_explicit(rdmux_cq_signal(cq), memory_order_acquire) &
                RDMUX_SIGNAL_ATTEND)) {
        status = RDMUX_AGAIN;
    }
    atomic_store_explicit(&cq->armed, status == RDMUX_OK ? RDMUX_ARMED : RDMUX_UNARMED,
                          memory_order_relaxed);
    rdmux_cq_leave(cq);
    return status;
}

/* ------------------------------------------------------------------------------------------------- life */

enum rdmux_status rdmux_cq_reserve(struct rdmux_cq *cq, uint64_t entries)
{
    if (entries > cq->depth - cq->reserved) {
        return rdmux_fail(RDMUX_NO_MEMORY,
                          "cq: depth %llu is reserved up to %llu entries, %llu more are needed; "
                          "raise rdmux_cq_attr.depth",
                          (unsigned long long)cq->depth, (unsigned long long)cq->reserved,
                          (unsigned long long)entries);
    }
    cq->reserved += entries;
    return RDMUX_OK;
}

void rdmux_cq_unreserve(struct rdmux_cq *cq, uint64_t entries)
{
    assert(cq->reserved >= entries);
    cq->reserved -= entries;
}

static enum rdmux_status add_to_epoll(int epoll, int fd, uint32_t events)
{
    struct epoll_event event = { .events = events, .data.fd = fd };
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0) {
        return rdmux_fail(RDMUX_IO, "cq: epoll_ctl failed: errno %d", errno);
    }
    return RDMUX_OK;
}

enum rdmux_status rdmux_cq_domain(struct rdmux_cq *cq, struct rdmux_provider_domain *domain,
                                  uint32_t depth, struct rdmux_provider_cq **out)
{
    for (uint32_t i = 0; i < cq->domain_count; i++) {
        if (cq->domains[i].cq->domain == domain) {
            *out = cq->domains[i].cq;
            return RDMUX_OK;
        }
    }
    if (cq->domain_count == RDMUX_CQ_DOMAINS_MAX) {
        return rdmux_fail(RDMUX_NO_MEMORY, "cq: attached to %d devices already, the most it can be",
                          RDMUX_CQ_DOMAINS_MAX);
    }
    const struct rdmux_provider_ops *ops = domain->ops;
    struct rdmux_provider_cq *provider_cq = rdmux_allocate(cq->fabric, ops->cq_size);
    if (provider_cq == NULL) {
        return rdmux_fail(RDMUX_NO_MEMORY, "cq: out of memory");
    }
    provider_cq->domain = domain;
    provider_cq->cq = cq;
    rdmux_error_clear();
    enum rdmux_status status = ops->cq_open(provider_cq, depth);
    if (status != RDMUX_OK) {
        goto release;
    }
    int fd = ops->fd(provider_cq);
    if (fd >= 0) {
        status = add_to_epoll(cq->work_fd, fd, 0);
        if (status != RDMUX_OK) {
            goto close;
        }
    }
    cq->domains[cq->domain_count].ops = ops;
    cq->domains[cq->domain_count].cq = provider_cq;
    cq->domain_count++;
    *out = provider_cq;
    return RDMUX_OK;

close:
    ops->cq_close(provider_cq);
release:
    rdmux_release(cq->fabric, provider_cq);
    return status;
}

/* The cq polls and arms a device only while it has endpoints, and watches its descriptor only then. A late
 * completion's event would otherwise keep the cq's descriptor readable for ever, as no call takes it. */
static void watch_domain(struct rdmux_provider_cq *provider_cq, uint32_t events)
{
    int fd = provider_cq->domain->ops->fd(provider_cq);
    struct epoll_event event = { .events = events, .data.fd = fd };
    if (fd >= 0) {
        /* Needs no memory: the descriptor is there since rdmux_cq_domain(). */
        (void)epoll_ctl(provider_cq->cq->work_fd, EPOLL_CTL_MOD, fd, &event);
    }
}

void rdmux_cq_domain_enter(struct rdmux_provider_cq *provider_cq)
{
    if (provider_cq->ep_count++ == 0) {
        watch_domain(provider_cq, EPOLLIN);
    }
}

void rdmux_cq_domain_leave(struct rdmux_provider_cq *provider_cq)
{
    if (--provider_cq->ep_count == 0) {
        watch_domain(provider_cq, 0);
    }
}

static void close_fd(int fd)
{
    if (fd >= 0) {
        close(fd);
    }
}

static enum rdmux_status open_descriptors(struct rdmux_cq *cq)
{
    cq->fd = epoll_create1(EPOLL_CLOEXEC);
    cq->work_fd = epoll_create1(EPOLL_CLOEXEC);
    cq->control_fd = epoll_create1(EPOLL_CLOEXEC);
    cq->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (cq->fd < 0 || cq->work_fd < 0 || cq->control_fd < 0 || cq->wake_fd < 0) {
        return rdmux_fail(
            errno == EMFILE || errno == ENFILE ? RDMUX_NO_MEMORY : RDMUX_IO,
            "rdmux_cq_create: no descriptor to be had (errno %d); raise the limit with ulimit -n",
            errno);
    }
    enum rdmux_status status = add_to_epoll(cq->fd, cq->work_fd, EPOLLIN);
    if (status == RDMUX_OK) {
        status = add_to_epoll(cq->fd, cq->wake_fd, EPOLLIN);
    }
    if (status == RDMUX_OK) {
        status = add_to_epoll(cq->fd, cq->control_fd, EPOLLIN);
    }
    return status;
}

static void close_descriptors(struct rdmux_cq *cq)
{
    close_fd(cq->wake_fd);
    close_fd(cq->control_fd);
    close_fd(cq->work_fd);
    close_fd(cq->fd);
}

enum rdmux_status rdmux_cq_create(struct rdmux_fabric *fabric, const struct rdmux_cq_attr *attr,
                                  struct rdmux_cq **out)
{
    if (out == NULL) {
        return rdmux_fail(RDMUX_INVALID, "rdmux_cq_create: out is NULL");
    }
    *out = NULL;
    if (fabric == NULL || *fabric->alive == 0) {
        return rdmux_fail(RDMUX_INVALID,
                          "rdmux_cq_create: fabric is NULL, or belongs to the parent process");
    }
    uint32_t depth = 0;
    if (attr != NULL) {
        if (attr->size < offsetof(struct rdmux_cq_attr, depth) + sizeof(attr->depth)) {
            return rdmux_fail(RDMUX_INVALID,
                              "rdmux_cq_create: attr.size is %u; use RDMUX_CQ_ATTR_INIT",
                              attr->size);
        }
        depth = attr->depth;
    }
    struct rdmux_cq *cq = rdmux_allocate(fabric, sizeof(*cq));
    if (cq == NULL) {
        return rdmux_fail(RDMUX_NO_MEMORY, "rdmux_cq_create: out of memory");
    }
    cq->alive = fabric->alive;
    cq->fabric = fabric;
    enum rdmux_status status = rdmux_lane_create(cq);
    if (status != RDMUX_OK) {
        rdmux_release(fabric, cq);
        return status;
    }
    cq->fence = fabric->membarrier ? 0 : 1;
    cq->depth = depth == 0 ? DEFAULT_DEPTH : depth;
    rdmux_list_init(&cq->pending);
    rdmux_list_init(&cq->eps);
    rdmux_list_init(&cq->closed);
    rdmux_list_init(&cq->dropped);
    rdmux_list_init(&cq->accepting);
    cq->id = atomic_fetch_add(&fabric->next_id, 1);
    rdmux_list_init(&cq->busy);
    rdmux_list_init(&cq->held);
    rdmux_list_init(&cq->link);
    atomic_store(&cq->deadline_ns, UINT64_MAX);
    pthread_mutex_init(&cq->mail_lock, NULL);
    pthread_mutex_init(&cq->claim_lock, NULL);
    pthread_cond_init(&cq->jobs_ended, NULL);
    rdmux_descriptors_make_room(fabric);
    status = open_descriptors(cq);
    if (status != RDMUX_OK) {
        goto release;
    }
    pthread_mutex_lock(&fabric->lock);
    rdmux_list_append(&fabric->cqs, &cq->link);
    pthread_mutex_unlock(&fabric->lock);
    rdmux_cq_service_add(cq);
    *out = cq;
    return RDMUX_OK;

release:
    close_descriptors(cq);
    pthread_cond_destroy(&cq->jobs_ended);
    pthread_mutex_destroy(&cq->mail_lock);
    pthread_mutex_destroy(&cq->claim_lock);
    rdmux_lane_destroy(cq);
    rdmux_release(fabric, cq);
    return status;
}

enum rdmux_status rdmux_cq_destroy(struct rdmux_cq *cq)
{
    if (cq == NULL) {
        return RDMUX_OK;
    }
    if (!rdmux_cq_enter(cq)) {
        return rdmux_fail(RDMUX_INVALID,
                          "rdmux_cq_destroy: the process forked; the cq belongs to the parent");
    }
    size_t unreturned = 0; /* rdmux_accept() gave no handle of them to anybody */
    for (struct rdmux_list *at = cq->accepting.next; at != &cq->accepting; at = at->next) {
        unreturned++;
    }
    if (cq->ep_count != unreturned || cq->srq_count != 0) {
        rdmux_cq_leave(cq);
        return rdmux_fail(
            RDMUX_INVALID,
            "rdmux_cq_destroy: %zu endpoints and %zu srqs are attached; close them first",
            cq->ep_count - unreturned, cq->srq_count);
    }
    while (!rdmux_list_empty(&cq->accepting)) {
        rdmux_ep_dismantle(RDMUX_CONTAINER(cq->accepting.next, struct rdmux_ep, accept_link));
    }
    free_all(&cq->closed);
    free_all(&cq->dropped);
    rdmux_cq_service_remove(cq);
    wait_for_jobs(cq);
    deliver_mail(cq); /* to endpoints that are gone: each frees itself */
    for (uint32_t i = 0; i < cq->domain_count; i++) {
        cq->domains[i].ops->cq_close(cq->domains[i].cq);
        rdmux_release(cq->fabric, cq->domains[i].cq);
    }
    struct rdmux_fabric *fabric = cq->fabric;
    pthread_mutex_lock(&fabric->lock);
    rdmux_list_remove(&cq->link);
    pthread_mutex_unlock(&fabric->lock);
    wait_for_jobs(cq); /* begun by what was delivered */
    deliver_mail(cq);
    close_descriptors(cq);
    pthread_cond_destroy(&cq->jobs_ended);
    pthread_mutex_destroy(&cq->mail_lock);
    pthread_mutex_destroy(&cq->claim_lock);
    rdmux_lane_destroy(cq);
    rdmux_release(fabric, cq->timers);
    rdmux_release(fabric, cq);
    return RDMUX_OK;
}
