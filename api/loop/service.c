/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The event loop of the service thread. */
#include "api/loop/service.h"

#include "api/base/compiler.h"
#include "api/base/error.h"
#include "api/base/hooks.h"
#include "api/loop/exit.h"
#include "api/system/system.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>

enum { BATCH = 32 }; /* events and calls handled in one step */

struct rdmux_service {
    struct rdmux_fabric *fabric;
    const struct rdmux_service_steps *steps;
    int poller;
    struct rdmux_wake wake;
    struct rdmux_watch wake_watch;
    pthread_mutex_t step_lock; /* recursive; guards the fields below, down to timer_ns */
    struct rdmux_ready batch[BATCH];
    int batch_count;
    uint64_t timer_ns; /* when steps->timers is due */
    bool thread_runs;
    _Atomic bool stop;
    pthread_t thread;
    pthread_mutex_t call_lock;  /* a leaf; guards the fields below and the call fields of watches */
    struct rdmux_watch *called; /* oldest first */
    struct rdmux_watch **called_end;
};

static struct rdmux_service *service_of(struct rdmux_fabric *fabric)
{
    return rdmux_hooks_of(fabric)->service;
}

void rdmux_service_lock(struct rdmux_fabric *fabric)
{
    pthread_mutex_lock(&service_of(fabric)->step_lock);
}

void rdmux_service_unlock(struct rdmux_fabric *fabric)
{
    pthread_mutex_unlock(&service_of(fabric)->step_lock);
}

int rdmux_service_fd(struct rdmux_fabric *fabric)
{
    return service_of(fabric)->poller;
}

int rdmux_service_wake_fd(struct rdmux_fabric *fabric)
{
    return service_of(fabric)->wake.fd;
}

void rdmux_service_wake(struct rdmux_fabric *fabric)
{
    rdmux_wake_signal(&service_of(fabric)->wake);
}

static void service_woken(struct rdmux_fabric *fabric, struct rdmux_watch *watch)
{
    (void)watch;
    rdmux_wake_drain(&service_of(fabric)->wake);
}

/* -------------------------------------------------------------------------------------- watches */

enum rdmux_status rdmux_service_watch(struct rdmux_fabric *fabric, int fd, uint32_t events,
                                      struct rdmux_watch *watch)
{
    if (rdmux_poller_add(service_of(fabric)->poller, fd, events, watch) != 0) {
        return rdmux_fail(errno == ENOSPC || errno == ENOMEM ? RDMUX_NO_MEMORY : RDMUX_IO,
                          "service: its poller takes no descriptor: errno %d", errno);
    }
    return RDMUX_OK;
}

void rdmux_service_call(struct rdmux_fabric *fabric, struct rdmux_watch *watch)
{
    struct rdmux_service *service = service_of(fabric);
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

/* Unlinks *at, one of the list's links, and returns its watch. call_lock is held. */
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
    struct rdmux_service *service = service_of(fabric);
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

/* Runs at most BATCH of the calls that are queued. */
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
    rdmux_service_wake(service->fabric); /* more calls may be queued */
}

void rdmux_service_unwatch(struct rdmux_fabric *fabric, int fd, struct rdmux_watch *watch)
{
    struct rdmux_service *service = service_of(fabric);
    pthread_mutex_lock(&service->step_lock);
    rdmux_service_forget(fabric, watch);
    (void)rdmux_poller_remove(service->poller, fd);
    for (int i = 0; i < service->batch_count; i++) {
        if (rdmux_ready_data(&service->batch[i]) == watch) {
            /* The batch in progress has an event of this watch. */
            rdmux_ready_set_data(&service->batch[i], NULL);
        }
    }
    pthread_mutex_unlock(&service->step_lock);
}

void rdmux_service_rearm(struct rdmux_fabric *fabric, int fd, struct rdmux_watch *watch)
{
    /* Fails only while the cq is being destroyed. */
    (void)rdmux_poller_change(service_of(fabric)->poller, fd, RDMUX_READY_IN | RDMUX_READY_ONCE,
                              watch);
}

void rdmux_service_timer(struct rdmux_fabric *fabric, uint64_t deadline_ns)
{
    struct rdmux_service *service = service_of(fabric);
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

/* ------------------------------------------------------------------------------- service thread */

/* Handles all ready events, calls and timers. Returns when the next step is due. step_lock is
 * held. */
static uint64_t step_watches(struct rdmux_service *service)
{
    struct rdmux_fabric *fabric = service->fabric;
    service->batch_count = rdmux_poller_wait(service->poller, service->batch, BATCH, 0);
    for (int i = 0; i < service->batch_count; i++) {
        struct rdmux_watch *watch = rdmux_ready_data(&service->batch[i]);
        if (watch != NULL) {
            watch->ready(fabric, watch);
        }
    }
    service->batch_count = 0;
    run_called(service);
    service->steps->handshakes(fabric);

    uint64_t now = rdmux_now(fabric);
    if (now >= service->timer_ns) {
        service->timer_ns = UINT64_MAX;
        uint64_t next = service->steps->timers(fabric, now);
        if (next < service->timer_ns) {
            service->timer_ns = next;
        }
    }
    uint64_t timer_ns = service->timer_ns;
    uint64_t cqs_ns = service->steps->cqs(fabric, now);
    return cqs_ns < timer_ns ? cqs_ns : timer_ns;
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

/* The process is ending. A thread that returned would call OpenSSL, which has a destructor for each
 * thread, so this one stays until its fabric is closed, if it ever is. */
static void await_stop(struct rdmux_service *service)
{
    while (!atomic_load(&service->stop)) {
        struct pollfd fd = { .fd = service->wake.fd, .events = POLLIN };
        if (poll(&fd, 1, -1) > 0) {
            rdmux_wake_drain(&service->wake);
        }
    }
}

static void *service_main(void *argument)
{
    struct rdmux_service *service = argument;
    while (!atomic_load(&service->stop)) {
        if (!rdmux_exit_begin_turn()) {
            await_stop(service);
            break;
        }
        pthread_mutex_lock(&service->step_lock);
        uint64_t deadline = step_watches(service);
        pthread_mutex_unlock(&service->step_lock);
        int timeout_ms = until_ms(service->fabric, deadline);
        rdmux_exit_end_turn();
        if (atomic_load(&service->stop)) {
            break; /* the step may have consumed the wake-up of rdmux_service_stop() */
        }
        struct pollfd fd = { .fd = service->poller, .events = POLLIN };
        (void)rdmux_poll(&fd, 1, timeout_ms);
    }
    return NULL;
}

void rdmux_service_step(struct rdmux_fabric *fabric, int timeout_ms)
{
    struct rdmux_service *service = service_of(fabric);
    if (timeout_ms != 0) {
        struct pollfd fd = { .fd = service->poller, .events = POLLIN };
        (void)rdmux_poll(&fd, 1, timeout_ms);
    }
    pthread_mutex_lock(&service->step_lock);
    step_watches(service);
    pthread_mutex_unlock(&service->step_lock);
}

/* --------------------------------------------------------------------------- create and destroy */

enum rdmux_status rdmux_service_create(struct rdmux_fabric *fabric,
                                       const struct rdmux_service_steps *steps)
{
    struct rdmux_service *service = rdmux_allocate(fabric, sizeof(*service));
    if (service == NULL) {
        return rdmux_fail(RDMUX_NO_MEMORY, "fabric: out of memory");
    }
    service->fabric = fabric;
    service->steps = steps;
    service->timer_ns = UINT64_MAX;
    pthread_mutexattr_t recursive;
    pthread_mutexattr_init(&recursive);
    pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&service->step_lock, &recursive);
    pthread_mutexattr_destroy(&recursive);
    pthread_mutex_init(&service->call_lock, NULL);
    service->called_end = &service->called;
    rdmux_hooks_of(fabric)->service = service;
    service->poller = rdmux_poller_open();
    (void)rdmux_wake_open(&service->wake);
    enum rdmux_status status = RDMUX_OK;
    if (service->poller < 0 || service->wake.fd < 0) {
        status = rdmux_fail(
            errno == EMFILE || errno == ENFILE ? RDMUX_NO_MEMORY : RDMUX_IO,
            "fabric: no descriptor to be had: errno %d; raise the limit with ulimit -n", errno);
    }
    service->wake_watch.ready = service_woken;
    if (status == RDMUX_OK) {
        status = rdmux_service_watch(fabric, service->wake.fd, RDMUX_READY_IN, &service->wake_watch);
    }
    if (status == RDMUX_OK && !rdmux_fabric_is_manual(fabric)) {
        status = rdmux_thread_start(fabric, &service->thread, service_main, service,
                                    "rdmux-service");
        service->thread_runs = status == RDMUX_OK;
    }
    return status;
}

void rdmux_service_stop(struct rdmux_fabric *fabric)
{
    struct rdmux_service *service = service_of(fabric);
    if (service == NULL || !service->thread_runs) {
        return;
    }
    atomic_store(&service->stop, true);
    rdmux_service_wake(fabric);
    pthread_join(service->thread, NULL);
    service->thread_runs = false;
}

void rdmux_service_destroy(struct rdmux_fabric *fabric)
{
    struct rdmux_service *service = service_of(fabric);
    if (service == NULL) {
        return;
    }
    rdmux_wake_close(&service->wake);
    if (service->poller >= 0) {
        rdmux_poller_close(service->poller);
    }
    pthread_mutex_destroy(&service->step_lock);
    pthread_mutex_destroy(&service->call_lock);
    rdmux_release(fabric, service);
    rdmux_hooks_of(fabric)->service = NULL;
}
