/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The worker thread, one per fabric, for work that may block: opening devices, resolving names,
 * registering memory. */
#ifndef RDMUX_API_LOOP_WORKER_H
#define RDMUX_API_LOOP_WORKER_H

#include <rdmux/rdmux.h>

struct rdmux_job {
    struct rdmux_job *next;
    void (*work)(struct rdmux_job *job);
};

/* Starts the thread, unless RDMUX_FABRIC_NO_WORKER_THREAD is set. */
enum rdmux_status rdmux_worker_create(struct rdmux_fabric *fabric);
/* Finishes all queued jobs and joins the thread. NULL-safe and idempotent, as is
 * rdmux_worker_destroy(). */
void rdmux_worker_stop(struct rdmux_fabric *fabric);
void rdmux_worker_destroy(struct rdmux_fabric *fabric);

/* Runs work(job) on the worker thread, oldest job first. Without a worker thread, runs it within
 * this call. */
void rdmux_worker_run(struct rdmux_fabric *fabric, struct rdmux_job *job);
/* Returns how many jobs rdmux_worker_run() was given. Any thread. */
uint64_t rdmux_worker_jobs(struct rdmux_fabric *fabric);

#endif
