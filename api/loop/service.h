/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * The service thread, one per fabric: an event loop over descriptors and one timer.
 *
 * A table from the fabric (struct rdmux_service_steps) has the rest of each step, so the loop knows
 * neither cqs nor listeners. A step runs with step_lock held. step_lock is recursive and comes
 * before every other lock of the fabric.
 */
#ifndef RDMUX_API_LOOP_SERVICE_H
#define RDMUX_API_LOOP_SERVICE_H

#include <rdmux/rdmux.h>

#include <stdbool.h>
#include <stdint.h>

/* A descriptor that the service thread watches. `ready` runs with step_lock held. */
struct rdmux_watch {
    void (*ready)(struct rdmux_fabric *fabric, struct rdmux_watch *watch);
    struct rdmux_watch *next_called; /* queue of rdmux_service_call(); call_lock */
    bool is_called;
};

/* The steps that follow the descriptors, in this order. step_lock is held. */
struct rdmux_service_steps {
    /* Advances handshakes, after the queued calls. */
    void (*handshakes)(struct rdmux_fabric *fabric);
    /* Runs when the time given to rdmux_service_timer() has come. Returns the next time,
     * UINT64_MAX: none. */
    uint64_t (*timers)(struct rdmux_fabric *fabric, uint64_t now_ns);
    /* Serves cqs. Returns the latest time of the next step. */
    uint64_t (*cqs)(struct rdmux_fabric *fabric, uint64_t now_ns);
};

/* Starts the thread, unless the fabric is manual. steps outlives the fabric. */
enum rdmux_status rdmux_service_create(struct rdmux_fabric *fabric,
                                       const struct rdmux_service_steps *steps);
/* Ends and joins the thread. Idempotent. Does nothing for a service that was never created. */
void rdmux_service_stop(struct rdmux_fabric *fabric);
void rdmux_service_destroy(struct rdmux_fabric *fabric);

/* Runs one step, after waiting at most timeout_ms. For rdmux_fabric_progress(), and for calls that
 * wait without a service thread. */
void rdmux_service_step(struct rdmux_fabric *fabric, int timeout_ms);
/* Returns the poller of the service, which rdmux_poll() can wait for. */
int rdmux_service_fd(struct rdmux_fabric *fabric);
/* Returns a descriptor of the service that is open as long as it is. */
int rdmux_service_wake_fd(struct rdmux_fabric *fabric);

/* Watches fd, which may be a poller, for RDMUX_READY_* events (api/system/system.h). */
enum rdmux_status rdmux_service_watch(struct rdmux_fabric *fabric, int fd, uint32_t events,
                                      struct rdmux_watch *watch);
/* Makes the next step call `ready`, whatever the state of its descriptor. Any thread. */
void rdmux_service_call(struct rdmux_fabric *fabric, struct rdmux_watch *watch);
/* Cancels a queued rdmux_service_call(). step_lock is held. */
void rdmux_service_forget(struct rdmux_fabric *fabric, const struct rdmux_watch *watch);
/* Stops watching. Afterwards only rdmux_service_call() makes the service thread call the watch
 * again. Takes step_lock, so the caller holds neither setup_lock, lock nor a leaf. */
void rdmux_service_unwatch(struct rdmux_fabric *fabric, int fd, struct rdmux_watch *watch);
/* Arms a one-shot watch again. Any thread. */
void rdmux_service_rearm(struct rdmux_fabric *fabric, int fd, struct rdmux_watch *watch);

void rdmux_service_lock(struct rdmux_fabric *fabric);
void rdmux_service_unlock(struct rdmux_fabric *fabric);
/* Makes the service thread call steps->timers at this time, or earlier. Takes step_lock. */
void rdmux_service_timer(struct rdmux_fabric *fabric, uint64_t deadline_ns);
void rdmux_service_wake(struct rdmux_fabric *fabric);

#endif
