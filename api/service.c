/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * The service thread, one per fabric, and the worker thread for what may block.
 *
 * The service thread watches listeners, and each cq's descriptors. It takes a cq only when its application stays away:
 *
 *   REST    the application was polling at the last look; look again in REST_NS. Nothing is watched.
 *   WATCH   the application is away, or sleeps in a call: sleep until the cq has work. The cq's DORMANT bit makes the
 *           application's next call wake the service thread, which goes back to REST.
 *   GRACE   an armed cq was woken: its owner has GRACE_NS to come before the cq is taken.
 *
 * A look has to decide: whoever stops polling right behind one is to be served at the next, and not 10 ms after that. An
 * application that has called since the last look is polling if it calls again while the thread yields some times; else it
 * is away. So an idle process has no wake-ups, a polling one has one in 10 ms, and a computing one is served
 * within 10 ms.
 */
#include "api/core.h"
#include "api/listener.h"
#include "api/shake.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum {
    REST_NS = 9500 * 1000, /* poll(2) counts whole milliseconds: 10 */
    /* A polling application calls within so many yields, or so long. */
    GLANCES = 128,
    GLANCES_NS = 100 * 1000,
    GRACE_NS = 1000 * 1000,
    SLICE_ROUNDS = 32, /* rounds of progress in one slice: bounds how long an application's call may wait */
    BATCH = 32, /* epoll events handled in one step */
};

enum service_state {
    SERVICE_REST,
    SERVICE_WATCH,
    SERVICE_GRACE,
};

struct rdmux_service {
    struct rdmux_fabric *fabric;
    int epoll_fd;
    int wake_fd;
    struct rdmux_watch wake_watch;
    pthread_mutex_t step_lock; /* recursive; guards what follows */
    struct rdmux_list cqs;
    struct epoll_event batch[BATCH];
    int batch_count;
    uint64_t timer_ns; /* listeners */
    bool thread_runs;
    bool worker_runs;
    _Atomic bool stop;
    pthread_t thread;
    pthread_t worker;
    pthread_mutex_t call_lock;  /* a leaf; guards what follows, and the watches' part of it */
    struct rdmux_watch *called; /* oldest first */
    struct rdmux_watch **called_end;
    pthread_mutex_t job_lock;
    pthread_cond_t job_cond;
    struct rdmux_job *jobs; /* oldest first */
    struct rdmux_job *last_job;
};

void rdmux_service_lock(struct rdmux_fabric *fabric)
{
    pthread_mutex_lock(&fabric->service->step_lock);
}

void rdmux_service_unlock(struct rdmux_fabric *fabric)
{
    pthread_mutex_unlock(&fabric->service->step_lock);
}

int rdmux_service_fd(struct rdmux_fabric *fabric)
{
    return fabric->service->epoll_fd;
}

void rdmux_service_wake(struct rdmux_fabric *fabric)
{
    uint64_t one = 1;
    ssize_t written = write(fabric->service->wake_fd, &one, sizeof(one));
    (void)written;
}

static void woken(struct rdmux_fabric *fabric, struct rdmux_watch *watch)
{
    (void)watch;
    uint64_t count;
    ssize_t taken = read(fabric->service->wake_fd, &count, sizeof(count));
    (void)taken;
}

/* ------------------------------------------------------------------------------------------------- watches */

enum rdmux_status rdmux_service_watch(struct rdmux_fabric *fabric, int fd, uint32_t events,
                                      struct rdmux_watch *watch)
{
    struct epoll_event event = { .events = events, .data.ptr = watch };
    if (epoll_ctl(fabric->service->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0) {
        return rdmux_fail(errno == ENOSPC || errno == ENOMEM ? RDMUX_NO_MEMORY : RDMUX_IO,
                          "service: epoll_ctl failed: errno %d", errno);
    }
    return RDMUX_OK;
}

void rdmux_service_call(struct rdmux_fabric *fabric, struct rdmux_watch *watch)
{
    struct rdmux_service *service = fabric->service;
    pthread_mutex_lock(&service->call_lock);
    if (!watch->is_called) {
        watch->is_called = true;
        watch->next_called = NULL;
        *service->called_end = watch;
        service->called_end = &watch->next_called;
    }
    pthread_mutex_unlock(&service->call_lock);
    rdmux_service_wake(fabric);
}

/* Takes *at, one of the list's links, off it. call_lock is held. */
static struct rdmux_watch *take_called(struct rdmux_service *service, struct rdmux_watch **at)
{
    struct rdmux_watch *watch = *at;
    *at = watch->next_called;
    if (service->called_end == &watch->next_called) {
        service->called_end = at;
    }
    watch->is_called = false;
    return watch;
}

void rdmux_service_forget(struct rdmux_fabric *fabric, const struct rdmux_watch *watch)
{
    struct rdmux_service *service = fabric->service;
    pthread_mutex_lock(&service->call_lock);
    struct rdmux_watch **at = &service->called;
    while (watch->is_called && *at != watch) {
        at = &(*at)->next_called;
    }
    if (watch->is_called) {
        (void)take_called(service, at);
    }
    pthread_mutex_unlock(&service->call_lock);
}

/* Those that were called before this step. */
static void run_called(struct rdmux_service *service)
{
    for (int i = 0; i < BATCH; i++) {
        pthread_mutex_lock(&service->call_lock);
        struct rdmux_watch *watch = service->called == NULL
                                        ? NULL
                                        : take_called(service, &service->called);
        pthread_mutex_unlock(&service->call_lock);
        if (watch == NULL) {
            return;
        }
        watch->ready(service->fabric, watch);
    }
    rdmux_service_wake(service->fabric); /* there may be more */
}

void rdmux_service_unwatch(struct rdmux_fabric *fabric, int fd, struct rdmux_watch *watch)
{
    struct rdmux_service *service = fabric->service;
    pthread_mutex_lock(&service->step_lock);
    rdmux_service_forget(fabric, watch);
    epoll_ctl(service->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
    for (int i = 0; i < service->batch_count; i++) {
        if (service->batch[i].data.ptr == watch) {
            service->batch[i].data.ptr = NULL; /* its event is in the batch being handled */
        }
    }
    pthread_mutex_unlock(&service->step_lock);
}

void rdmux_service_rearm(struct rdmux_fabric *fabric, int fd, struct rdmux_watch *watch)
{
    struct epoll_event event = { .events = EPOLLIN | EPOLLONESHOT, .data.ptr = watch };
    epoll_ctl(fabric->service->epoll_fd, EPOLL_CTL_MOD, fd,
              &event); /* fails only while the cq is being destroyed */
}

void rdmux_service_timer(struct rdmux_fabric *fabric, uint64_t deadline_ns)
{
    struct rdmux_service *service = fabric->service;
    pthread_mutex_lock(&service->step_lock);
    bool sooner = deadline_ns < service->timer_ns;
    if (sooner) {
        service->timer_ns = deadline_ns;
    }
    pthread_mutex_unlock(&service->step_lock);
    if (sooner) {
        rdmux_service_wake(fabric);
    }
}

/* ------------------------------------------------------------------------------------------------- cqs */

static void work_ready(struct rdmux_fabric *fabric, struct rdmux_watch *watch)
{
    (void)fabric;
    RDMUX_CONTAINER(watch, struct rdmux_cq, work_watch)->service_fired = true;
}

static void control_ready(struct rdmux_fabric *fabric, struct rdmux_watch *watch)
{
    (void)fabric;
    struct rdmux_cq *cq = RDMUX_CONTAINER(watch, struct rdmux_cq, control_watch);
    rdmux_cq_raise(cq, RDMUX_SIGNAL_ATTEND);
}

void rdmux_service_add_cq(struct rdmux_cq *cq)
{
    struct rdmux_service *service = cq->fabric->service;
    cq->work_watch.ready = work_ready;
    cq->control_watch.ready = control_ready;
    pthread_mutex_lock(&service->step_lock);
    cq->service_state = SERVICE_REST;
    cq->service_deadline_ns = rdmux_now(cq->fabric) + REST_NS;
    rdmux_list_init(&cq->service_link);
    rdmux_list_append(&service->cqs, &cq->service_link);
    if (!rdmux_fabric_is_manual(cq->fabric)) {
        /* Not armed before the first WATCH; a failure leaves a cq that only its application progresses. */
        if (rdmux_service_watch(cq->fabric, cq->work_fd, EPOLLONESHOT, &cq->work_watch) !=
                RDMUX_OK ||
            rdmux_service_watch(cq->fabric, cq->control_fd, EPOLLIN | EPOLLONESHOT,
                                &cq->control_watch) != RDMUX_OK) {
            rdmux_log(cq->fabric, RDMUX_LOG_WARN, "cq: the service thread cannot watch it: %s",
                      rdmux_last_error());
        }
    } else {
        /* Level-triggered, so that rdmux_fabric_fd() is readable while the application's calls have not served them. */
        if (rdmux_service_watch(cq->fabric, cq->fd, EPOLLIN, &cq->work_watch) != RDMUX_OK) {
            rdmux_log(cq->fabric, RDMUX_LOG_WARN, "cq: rdmux_fabric_fd() cannot watch it: %s",
                      rdmux_last_error());
        }
    }
    pthread_mutex_unlock(&service->step_lock);
    rdmux_service_wake(cq->fabric);
}

void rdmux_service_remove_cq(struct rdmux_cq *cq)
{
    struct rdmux_service *service = cq->fabric->service;
    pthread_mutex_lock(&service->step_lock);
    rdmux_service_unwatch(cq->fabric, rdmux_fabric_is_manual(cq->fabric) ? cq->fd : cq->work_fd,
                          &cq->work_watch);
    rdmux_service_unwatch(cq->fabric, cq->control_fd, &cq->control_watch);
    rdmux_list_remove(&cq->service_link);
    pthread_mutex_unlock(&service->step_lock);
}

/* Changes with each call of the application. */
static uint64_t calls_of(struct rdmux_cq *cq)
{
    uint32_t left = RDMUX_LANE_LEFT;
    if (atomic_compare_exchange_strong(rdmux_cq_inside(cq), &left, RDMUX_LANE_AWAY)) {
        cq->service_seen++;
    }
    return atomic_load(&cq->calls) + cq->service_seen;
}

static bool is_inside(struct rdmux_cq *cq)
{
    return atomic_load(rdmux_cq_inside(cq)) == RDMUX_LANE_INSIDE;
}

static void rest(struct rdmux_cq *cq, uint64_t now)
{
    cq->service_state = SERVICE_REST;
    cq->service_calls = calls_of(cq);
    cq->service_deadline_ns = now + REST_NS;
    cq->service_fired = false;
}

static bool attention_due(struct rdmux_cq *cq, uint64_t now)
{
    return (atomic_load_explicit(rdmux_cq_signal(cq), memory_order_relaxed) &
            RDMUX_SIGNAL_ATTEND) != 0 ||
           now >= atomic_load_explicit(&cq->deadline_ns, memory_order_relaxed);
}

/* Owner: progresses a cq whose application is away. Returns whether there is more to do at once. */
static bool run_slice(struct rdmux_cq *cq)
{
    cq->slices++;
    cq->in_slice = true;
    /* The descriptor of an armed cq stays readable all the time, from what woke it to the application's next call. */
    bool armed = rdmux_cq_is_armed(cq);
    bool woken = armed && (cq->service_fired ||
                           (atomic_load_explicit(rdmux_cq_signal(cq), memory_order_relaxed) &
                            RDMUX_SIGNAL_ATTEND) != 0);
    if (woken) {
        rdmux_cq_tell(cq);
    }
    if (rdmux_now(cq->fabric) >= atomic_load_explicit(&cq->deadline_ns, memory_order_relaxed)) {
        rdmux_cq_raise(cq, RDMUX_SIGNAL_ATTEND);
    }
    bool more = true;
    for (int i = 0; i < SLICE_ROUNDS && more; i++) {
        more = rdmux_cq_progress(cq);
        more = rdmux_cq_move(cq) || more;
    }
    more = rdmux_cq_arm_providers(cq) || more;
    if (woken && rdmux_list_empty(&cq->pending)) {
        rdmux_cq_untell(cq, RDMUX_ARMED);
    } else if (armed && !woken && !rdmux_list_empty(&cq->pending)) {
        rdmux_cq_tell(cq);
    }
    cq->in_slice = false;
    return more;
}

/* Takes the cq if its application is really away; then WATCH, or REST if there is more to do or the application came. */
static void take(struct rdmux_cq *cq, uint64_t now)
{
    if (!rdmux_cq_claim(cq)) {
        rest(cq, now);
        return;
    }
    bool more = run_slice(cq);
    if (more) {
        cq->service_state = SERVICE_WATCH;
        cq->service_fired = true; /* at once, after the others had their turn */
        rdmux_cq_raise(cq, RDMUX_SIGNAL_DORMANT);
        rdmux_cq_release_claim(cq);
        return;
    }
    cq->service_state = SERVICE_WATCH;
    cq->service_fired = false;
    cq->service_calls = calls_of(cq);
    rdmux_cq_raise(cq, RDMUX_SIGNAL_DORMANT);
    rdmux_cq_release_claim(cq);
    rdmux_service_rearm(cq->fabric, cq->work_fd, &cq->work_watch);
}

/* The application sleeps, inside a call or on the armed descriptor: hear of its next call, and of work nobody takes. */
static void watch_sleeper(struct rdmux_cq *cq, uint64_t now)
{
    rdmux_cq_raise(cq, RDMUX_SIGNAL_DORMANT);
    if (!RDMUX_TSAN && !cq->fence) {
        rdmux_membarrier();
    }
    if (calls_of(cq) != cq->service_calls || (is_inside(cq) && atomic_load(&cq->sleeping) == 0)) {
        atomic_fetch_and(rdmux_cq_signal(cq), ~(uint32_t)RDMUX_SIGNAL_DORMANT);
        rest(cq, now);
        return;
    }
    cq->service_state = SERVICE_WATCH;
    cq->service_fired = false;
    if (!is_inside(cq)) {
        rdmux_service_rearm(cq->fabric, cq->work_fd, &cq->work_watch);
    }
}

/* Looks which applications go on polling: one wait for all cqs. */
static void watch_them_poll(struct rdmux_service *service, uint64_t now)
{
    bool unsure = false;
    for (struct rdmux_list *at = service->cqs.next; at != &service->cqs; at = at->next) {
        struct rdmux_cq *cq = RDMUX_CONTAINER(at, struct rdmux_cq, service_link);
        uint64_t calls = calls_of(cq);
        cq->service_polled = false;
        cq->service_asks = cq->service_state == SERVICE_REST && now >= cq->service_deadline_ns &&
                           calls != cq->service_calls;
        if (cq->service_asks) {
            cq->service_calls = calls;
            unsure = true;
        }
    }
    /* One yield may last long: somebody else computes on this processor, perhaps the application. */
    for (int i = 0; i < GLANCES && unsure && rdmux_now(service->fabric) < now + GLANCES_NS; i++) {
        sched_yield();
        unsure = false;
        for (struct rdmux_list *at = service->cqs.next; at != &service->cqs; at = at->next) {
            struct rdmux_cq *cq = RDMUX_CONTAINER(at, struct rdmux_cq, service_link);
            if (cq->service_asks) {
                cq->service_polled = calls_of(cq) != cq->service_calls;
                cq->service_asks = !cq->service_polled;
                unsure = unsure || cq->service_asks;
            }
        }
    }
}

/* One step of a cq's state; returns when to look again. */
static uint64_t run_cq(struct rdmux_cq *cq, uint64_t now)
{
    uint64_t calls = calls_of(cq);
    bool inside = is_inside(cq);
    switch ((enum service_state)cq->service_state) {
    case SERVICE_REST:
        if (attention_due(cq, now)) {
            /* A polling application attends at its next call; one that sleeps inside a call runs its timers itself. */
            rdmux_cq_raise(cq, RDMUX_SIGNAL_ATTEND);
        }
        if (now < cq->service_deadline_ns) {
            break;
        }
        if (cq->service_polled) {
            rest(cq, now);
        } else if (inside && atomic_load(&cq->sleeping) == 0) {
            rest(cq, now); /* in the middle of a call */
        } else if (inside || rdmux_cq_is_armed(cq)) {
            watch_sleeper(cq, now);
        } else {
            take(cq, now);
        }
        break;
    case SERVICE_WATCH:
        if ((atomic_load_explicit(rdmux_cq_signal(cq), memory_order_relaxed) &
             RDMUX_SIGNAL_DORMANT) == 0) {
            rest(cq, now); /* the application is back */
        } else if (inside && atomic_load(&cq->sleeping) == 0) {
            rest(cq,
                 now); /* in the middle of a call, which need not look for DORMANT when it ends */
        } else if (inside) {
            cq->service_fired = false; /* it sleeps in a call and is woken itself */
        } else if (cq->service_fired || attention_due(cq, now)) {
            if (rdmux_cq_is_armed(cq)) {
                cq->service_state = SERVICE_GRACE;
                cq->service_calls = calls;
                cq->service_deadline_ns = now + GRACE_NS;
            } else {
                take(cq, now);
            }
        }
        break;
    case SERVICE_GRACE:
        if (calls != cq->service_calls || inside) {
            rest(cq, now);
        } else if (now >= cq->service_deadline_ns) {
            take(cq, now);
        }
        break;
    }
    if (cq->service_state != SERVICE_WATCH) {
        return cq->service_deadline_ns;
    }
    if (is_inside(cq)) {
        return UINT64_MAX;
    }
    /* Attention may have been asked for since REST: whoever asked woke the thread then, and will not again. */
    if (cq->service_fired || attention_due(cq, now)) {
        return now;
    }
    return atomic_load_explicit(&cq->deadline_ns, memory_order_relaxed);
}

/* Without a service thread: progresses every cq that no call is inside of. */
static void run_cq_manually(struct rdmux_cq *cq)
{
    if (rdmux_cq_claim(cq)) {
        rdmux_cq_raise(cq, RDMUX_SIGNAL_ATTEND); /* nothing else tells of control channels */
        run_slice(cq);
        cq->service_fired = false;
        rdmux_cq_release_claim(cq);
    } else if (attention_due(cq, rdmux_now(cq->fabric))) {
        rdmux_cq_raise(cq, RDMUX_SIGNAL_ATTEND);
    }
}

void rdmux_service_attend_revocations(struct rdmux_fabric *fabric)
{
    struct rdmux_service *service = fabric->service;
    bool taken = false;
    pthread_mutex_lock(&service->step_lock); /* while it is held no cq goes away */
    for (struct rdmux_list *at = service->cqs.next; at != &service->cqs; at = at->next) {
        struct rdmux_cq *cq = RDMUX_CONTAINER(at, struct rdmux_cq, service_link);
        if (atomic_load_explicit(&cq->revocations, memory_order_relaxed) != 0 && !is_inside(cq)) {
            rdmux_cq_raise(cq, RDMUX_SIGNAL_ATTEND); /* answers come by the control channel */
            take(cq, rdmux_now(fabric));
            taken = true;
        }
    }
    pthread_mutex_unlock(&service->step_lock);
    if (taken) {
        rdmux_service_wake(fabric); /* it watches those cqs from now on */
    }
}

/* ------------------------------------------------------------------------------------------------- the thread */

/* Handles what is there; returns when to come again. step_lock is held. */
static uint64_t step(struct rdmux_service *service)
{
    struct rdmux_fabric *fabric = service->fabric;
    service->batch_count = epoll_wait(service->epoll_fd, service->batch, BATCH, 0);
    for (int i = 0; i < service->batch_count; i++) {
        struct rdmux_watch *watch = service->batch[i].data.ptr;
        if (watch != NULL) {
            watch->ready(fabric, watch);
        }
    }
    service->batch_count = 0;
    run_called(service);
    rdmux_shakes_step(fabric);

    uint64_t now = rdmux_now(fabric);
    if (now >= service->timer_ns) {
        service->timer_ns = UINT64_MAX;
        uint64_t next = rdmux_listeners_timers(fabric, now);
        if (next < service->timer_ns) {
            service->timer_ns = next;
        }
    }
    if (!rdmux_fabric_is_manual(fabric)) {
        watch_them_poll(service, now);
    }
    uint64_t earliest = service->timer_ns;
    for (struct rdmux_list *at = service->cqs.next, *next; at != &service->cqs; at = next) {
        next = at->next;
        struct rdmux_cq *cq = RDMUX_CONTAINER(at, struct rdmux_cq, service_link);
        if (rdmux_fabric_is_manual(fabric)) {
            run_cq_manually(cq);
        } else {
            uint64_t deadline = run_cq(cq, now);
            earliest = deadline < earliest ? deadline : earliest;
        }
    }
    return earliest;
}

static int until_ms(struct rdmux_fabric *fabric, uint64_t deadline_ns)
{
    if (deadline_ns == UINT64_MAX) {
        return -1;
    }
    uint64_t now = rdmux_now(fabric);
    if (deadline_ns <= now) {
        return 0;
    }
    uint64_t ms = (deadline_ns - now + 999999) / 1000000;
    return ms > INT_MAX ? INT_MAX : (int)ms;
}

static void *service_main(void *argument)
{
    struct rdmux_service *service = argument;
    while (!atomic_load(&service->stop)) {
        pthread_mutex_lock(&service->step_lock);
        uint64_t deadline = step(service);
        pthread_mutex_unlock(&service->step_lock);
        if (atomic_load(&service->stop)) {
            break; /* the step may have swallowed the wake-up that came with it */
        }
        struct pollfd fd = { .fd = service->epoll_fd, .events = POLLIN };
        poll(&fd, 1, until_ms(service->fabric, deadline));
    }
    return NULL;
}

void rdmux_service_step(struct rdmux_fabric *fabric, int timeout_ms)
{
    struct rdmux_service *service = fabric->service;
    if (timeout_ms != 0) {
        struct pollfd fd = { .fd = service->epoll_fd, .events = POLLIN };
        poll(&fd, 1, timeout_ms);
    }
    pthread_mutex_lock(&service->step_lock);
    step(service);
    pthread_mutex_unlock(&service->step_lock);
}

/* ------------------------------------------------------------------------------------------------- the worker */

static void *worker_main(void *argument)
{
    struct rdmux_service *service = argument;
    pthread_mutex_lock(&service->job_lock);
    for (;;) {
        struct rdmux_job *job = service->jobs;
        if (job == NULL) {
            if (atomic_load(&service->stop)) {
                break;
            }
            pthread_cond_wait(&service->job_cond, &service->job_lock);
            continue;
        }
        service->jobs = job->next;
        pthread_mutex_unlock(&service->job_lock);
        job->work(job);
        pthread_mutex_lock(&service->job_lock);
    }
    pthread_mutex_unlock(&service->job_lock);
    return NULL;
}

void rdmux_worker_run(struct rdmux_fabric *fabric, struct rdmux_job *job)
{
    struct rdmux_service *service = fabric->service;
    if (!service->worker_runs) {
        job->work(job);
        return;
    }
    job->next = NULL;
    pthread_mutex_lock(&service->job_lock);
    if (service->jobs == NULL) {
        service->jobs = job;
    } else {
        service->last_job->next = job;
    }
    service->last_job = job;
    pthread_cond_signal(&service->job_cond);
    pthread_mutex_unlock(&service->job_lock);
}

/* ------------------------------------------------------------------------------------------------- life */

enum rdmux_status rdmux_thread_start(pthread_t *thread, void *(*run)(void *), void *argument,
                                     const char *name)
{
    /* The application's signals are its own: the library's threads take none. */
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(thread, NULL, run, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error != 0) {
        return rdmux_fail(RDMUX_NO_MEMORY, "fabric: cannot start its %s thread: errno %d", name,
                          error);
    }
    pthread_setname_np(*thread, name);
    return RDMUX_OK;
}

enum rdmux_status rdmux_service_create(struct rdmux_fabric *fabric)
{
    struct rdmux_service *service = rdmux_allocate(fabric, sizeof(*service));
    if (service == NULL) {
        return rdmux_fail(RDMUX_NO_MEMORY, "fabric: out of memory");
    }
    service->fabric = fabric;
    service->timer_ns = UINT64_MAX;
    rdmux_list_init(&service->cqs);
    pthread_mutexattr_t recursive;
    pthread_mutexattr_init(&recursive);
    pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&service->step_lock, &recursive);
    pthread_mutexattr_destroy(&recursive);
    pthread_mutex_init(&service->call_lock, NULL);
    service->called_end = &service->called;
    pthread_mutex_init(&service->job_lock, NULL);
    pthread_cond_init(&service->job_cond, NULL);
    fabric->service = service;
    service->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    service->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    enum rdmux_status status = RDMUX_OK;
    if (service->epoll_fd < 0 || service->wake_fd < 0) {
        status = rdmux_fail(
            errno == EMFILE || errno == ENFILE ? RDMUX_NO_MEMORY : RDMUX_IO,
            "fabric: no descriptor to be had: errno %d; raise the limit with ulimit -n", errno);
    }
    service->wake_watch.ready = woken;
    if (status == RDMUX_OK) {
        status = rdmux_service_watch(fabric, service->wake_fd, EPOLLIN, &service->wake_watch);
    }
    if (status == RDMUX_OK && (fabric->flags & RDMUX_FABRIC_NO_WORKER_THREAD) == 0) {
        status = rdmux_thread_start(&service->worker, worker_main, service, "rdmux-worker");
        service->worker_runs = status == RDMUX_OK;
    }
    if (status == RDMUX_OK && !rdmux_fabric_is_manual(fabric)) {
        status = rdmux_thread_start(&service->thread, service_main, service, "rdmux-service");
        service->thread_runs = status == RDMUX_OK;
    }
    if (status != RDMUX_OK) {
        rdmux_service_stop(fabric);
        rdmux_service_destroy(fabric);
    }
    return status;
}

void rdmux_service_stop(struct rdmux_fabric *fabric)
{
    struct rdmux_service *service = fabric->service;
    atomic_store(&service->stop, true);
    if (service->thread_runs) {
        rdmux_service_wake(fabric);
        pthread_join(service->thread, NULL);
        service->thread_runs = false;
    }
    rdmux_shakes_stop(fabric);
    if (service->worker_runs) {
        pthread_mutex_lock(&service->job_lock);
        pthread_cond_signal(&service->job_cond);
        pthread_mutex_unlock(&service->job_lock);
        pthread_join(service->worker, NULL);
        service->worker_runs = false;
    }
}

void rdmux_service_destroy(struct rdmux_fabric *fabric)
{
    struct rdmux_service *service = fabric->service;
    if (service == NULL) {
        return;
    }
    if (service->wake_fd >= 0) {
        close(service->wake_fd);
    }
    if (service->epoll_fd >= 0) {
        close(service->epoll_fd);
    }
    pthread_mutex_destroy(&service->step_lock);
    pthread_mutex_destroy(&service->call_lock);
    pthread_mutex_destroy(&service->job_lock);
    pthread_cond_destroy(&service->job_cond);
    rdmux_release(fabric, service);
    fabric->service = NULL;
}
