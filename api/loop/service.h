/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * The service thread, one per fabric: an event loop over descriptors and one timer.
 *
 * What each step does besides the descriptors that are ready is a table that the fabric brings, so that the loop knows
 * neither cqs nor listeners. A step runs with step_lock held, which is recursive and comes before every other lock of
 * the fabric.
 */
#ifndef RDMUX_API_LOOP_SERVICE_H
#define RDMUX_API_LOOP_SERVICE_H

#include <rdmux/rdmux.h>

#include <stdbool.h>
#include <stdint.h>

/* A descriptor the service thread watches. ready runs with step_lock held. */
struct rdmux_watch {
    void (*ready)(struct rdmux_fabric *fabric, struct rdmux_watch *watch);
    struct rdmux_watch *next_called; /* of rdmux_service_call(); call_lock */
    bool is_called;
};

/* The rest of a step, in this order. step_lock is held. */
struct rdmux_service_steps {
    /* After the watches' calls. */
    void (*handshakes)(struct rdmux_fabric *fabric);
    /* When the time given to rdmux_service_timer() has come. Returns the next one, UINT64_MAX: none. */
    uint64_t (*timers)(struct rdmux_fabric *fabric, uint64_t now_ns);
    /* Returns when the next step is due at the latest. */
    uint64_t (*cqs)(struct rdmux_fabric *fabric, uint64_t now_ns);
};

/* Starts the thread, unless the fabric is manual. steps outlives the fabric. */
enum rdmux_status rdmux_service_create(struct rdmux_fabric *fabric,
                                       const struct rdmux_service_steps *steps);
/* Ends and joins the thread. Idempotent; a service that was not created is none to stop. */
void rdmux_service_stop(struct rdmux_fabric *fabric);
void rdmux_service_destroy(struct rdmux_fabric *fabric);

/* One step, after at most timeout_ms: rdmux_fabric_progress(), and calls that wait without a service thread. */
void rdmux_service_step(struct rdmux_fabric *fabric, int timeout_ms);
int rdmux_service_fd(struct rdmux_fabric *fabric);

/* Watches fd for events as in epoll_ctl(2). */
enum rdmux_status rdmux_service_watch(struct rdmux_fabric *fabric, int fd, uint32_t events,
                                      struct rdmux_watch *watch);
/* Has ready called in the next step, whatever its descriptor says. Any thread. */
void rdmux_service_call(struct rdmux_fabric *fabric, struct rdmux_watch *watch);
/* Takes back such a call that was not carried out yet. step_lock is held. */
void rdmux_service_forget(struct rdmux_fabric *fabric, const struct rdmux_watch *watch);
/* When it returns, watch is not called again, unless by rdmux_service_call(). fabric->lock must not be held. */
void rdmux_service_unwatch(struct rdmux_fabric *fabric, int fd, struct rdmux_watch *watch);
/* One-shot watches: armed again. Any thread. */
void rdmux_service_rearm(struct rdmux_fabric *fabric, int fd, struct rdmux_watch *watch);

void rdmux_service_lock(struct rdmux_fabric *fabric);
void rdmux_service_unlock(struct rdmux_fabric *fabric);
/* steps->timers is to be called at this time. */
void rdmux_service_timer(struct rdmux_fabric *fabric, uint64_t deadline_ns);
void rdmux_service_wake(struct rdmux_fabric *fabric);

#endif
