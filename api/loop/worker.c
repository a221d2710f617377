/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The job queue of the worker thread. */
#include "api/loop/worker.h"

#include "api/base/compiler.h"
#include "api/base/error.h"
#include "api/base/hooks.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

struct rdmux_worker {
    pthread_t thread;
    bool runs;
    pthread_mutex_t job_lock; /* a leaf; guards the fields below */
    pthread_cond_t job_cond;
    bool stop;
    struct rdmux_job *jobs; /* oldest first */
    struct rdmux_job *last_job;
    _Atomic uint64_t given; /* jobs so far; without the lock */
};

static struct rdmux_worker *worker_of(struct rdmux_fabric *fabric)
{
    return rdmux_hooks_of(fabric)->worker;
}

static void *worker_main(void *argument)
{
    struct rdmux_worker *worker = argument;
    pthread_mutex_lock(&worker->job_lock);
    for (;;) {
        struct rdmux_job *job = worker->jobs;
        if (job == NULL) {
            if (worker->stop) {
                break;
            }
            pthread_cond_wait(&worker->job_cond, &worker->job_lock);
            continue;
        }
        worker->jobs = job->next;
        pthread_mutex_unlock(&worker->job_lock);
        job->work(job);
        pthread_mutex_lock(&worker->job_lock);
    }
    pthread_mutex_unlock(&worker->job_lock);
    return NULL;
}

void rdmux_worker_run(struct rdmux_fabric *fabric, struct rdmux_job *job)
{
    struct rdmux_worker *worker = worker_of(fabric);
    atomic_fetch_add_explicit(&worker->given, 1, memory_order_relaxed);
    if (!worker->runs) {
        job->work(job);
        return;
    }
    job->next = NULL;
    pthread_mutex_lock(&worker->job_lock);
    if (worker->jobs == NULL) {
        worker->jobs = job;
    } else {
        worker->last_job->next = job;
    }
    worker->last_job = job;
    pthread_cond_signal(&worker->job_cond);
    pthread_mutex_unlock(&worker->job_lock);
}

uint64_t rdmux_worker_jobs(struct rdmux_fabric *fabric)
{
    return atomic_load_explicit(&worker_of(fabric)->given, memory_order_relaxed);
}

enum rdmux_status rdmux_worker_create(struct rdmux_fabric *fabric)
{
    struct rdmux_worker *worker = rdmux_allocate(fabric, sizeof(*worker));
    if (worker == NULL) {
        return rdmux_fail(RDMUX_NO_MEMORY, "fabric: out of memory");
    }
    pthread_mutex_init(&worker->job_lock, NULL);
    pthread_cond_init(&worker->job_cond, NULL);
    rdmux_hooks_of(fabric)->worker = worker;
    enum rdmux_status status = RDMUX_OK;
    if ((rdmux_hooks_of(fabric)->flags & RDMUX_FABRIC_NO_WORKER_THREAD) == 0) {
        status = rdmux_thread_start(fabric, &worker->thread, worker_main, worker, "rdmux-worker");
        worker->runs = status == RDMUX_OK;
    }
    return status;
}

void rdmux_worker_stop(struct rdmux_fabric *fabric)
{
    struct rdmux_worker *worker = worker_of(fabric);
    if (worker == NULL || !worker->runs) {
        return;
    }
    pthread_mutex_lock(&worker->job_lock);
    worker->stop = true;
    pthread_cond_signal(&worker->job_cond);
    pthread_mutex_unlock(&worker->job_lock);
    pthread_join(worker->thread, NULL);
    worker->runs = false;
}

void rdmux_worker_destroy(struct rdmux_fabric *fabric)
{
    struct rdmux_worker *worker = worker_of(fabric);
    if (worker == NULL) {
        return;
    }
    pthread_mutex_destroy(&worker->job_lock);
    pthread_cond_destroy(&worker->job_cond);
    rdmux_release(fabric, worker);
    rdmux_hooks_of(fabric)->worker = NULL;
}
