/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Random bytes, time, library threads. */
#include "api/system/system.h"
#include "api/base/error.h"
#include "api/base/hooks.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <string.h>

enum rdmux_status rdmux_random(struct rdmux_fabric *fabric, void *out, size_t size)
{
    const struct rdmux_hooks *hooks = rdmux_hooks_of(fabric);
    if (hooks->random != NULL) {
        if (hooks->random(hooks->random_user, out, size) != 0) {
            return rdmux_fail(RDMUX_IO, "random: the fabric's hook has no %zu bytes to give", size);
        }
        return RDMUX_OK;
    }
    return rdmux_random_bytes(out, size) == 0
               ? RDMUX_OK
               : rdmux_fail(RDMUX_IO, "random: the system has none to give: %s", strerror(errno));
}

enum rdmux_status rdmux_provider_random(struct rdmux_fabric *fabric, void *out, size_t size)
{
    return rdmux_random(fabric, out, size);
}

uint64_t rdmux_provider_now_ns(struct rdmux_fabric *fabric)
{
    return rdmux_now(fabric);
}

/* A thread that starts, until its hook has returned. On the stack of the thread that starts it. */
struct thread_start {
    struct rdmux_fabric *fabric;
    void *(*run)(void *);
    void *argument;
    const char *name;
    int refusal; /* what the hook returned */
    sem_t is_over;
};

static void *begin_thread(void *argument)
{
    struct thread_start *start = argument;
    const struct rdmux_hooks *hooks = rdmux_hooks_of(start->fabric);
    void *(*run)(void *) = start->run;
    void *of_run = start->argument;
    rdmux_thread_name(pthread_self(), start->name); /* the hook may choose another */
    const int refusal = hooks->thread_start(hooks->thread_user, start->name);
    start->refusal = refusal;
    (void)sem_post(&start->is_over); /* the last use of *start */
    return refusal == 0 ? run(of_run) : NULL;
}

static int create_thread(pthread_t *thread, void *(*run)(void *), void *argument)
{
    /* Signals belong to the application: library threads block all of them. */
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(thread, NULL, run, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

enum rdmux_status rdmux_thread_start(struct rdmux_fabric *fabric, pthread_t *thread,
                                     void *(*run)(void *), void *argument, const char *name)
{
    const bool has_hook = rdmux_hooks_of(fabric)->thread_start != NULL;
    struct thread_start start = { .fabric = fabric, .run = run, .argument = argument, .name = name };
    (void)sem_init(&start.is_over, 0, 0);
    int error = has_hook ? create_thread(thread, begin_thread, &start)
                         : create_thread(thread, run, argument);
    if (error == 0 && !has_hook) {
        rdmux_thread_name(*thread, name);
    }
    while (error == 0 && has_hook && sem_wait(&start.is_over) != 0) {
        /* EINTR */
    }
    (void)sem_destroy(&start.is_over);
    if (error != 0) {
        return rdmux_fail(RDMUX_NO_MEMORY, "fabric: cannot start its %s thread: errno %d", name,
                          error);
    }
    if (start.refusal != 0) {
        (void)pthread_join(*thread, NULL);
        return rdmux_fail(RDMUX_IO,
                          "fabric: rdmux_fabric_attr.thread_start returned %d for %s; it returns 0 "
                          "for a thread that may run",
                          start.refusal, name);
    }
    return RDMUX_OK;
}
