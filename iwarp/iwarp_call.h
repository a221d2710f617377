/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * A call of rdma_connect() in a thread of its own. Soft iWARP connects TCP within the call: at an
 * address that swallows packets it blocks for minutes (siw_connect(): "connect() is called in
 * blocking mode"), and as long as it does neither the id nor the queue pair can be destroyed. One
 * thread for each call, so that no connection waits for another's; it ends with the call.
 */
#ifndef RDMUX_IWARP_CALL_H
#define RDMUX_IWARP_CALL_H

#include <rdma/rdma_cma.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { IWARP_CALL_IS_RUNNING = -1 };

/* Belongs to one thread, but for `result`. All zero: there is no call. */
struct iwarp_call {
    bool has_thread;
    pthread_t thread;
    struct rdma_cm_id *id;
    struct rdma_conn_param param;
    uint8_t private_data[UINT8_MAX]; /* the length has eight bits */
    _Atomic int result; /* errno, or IWARP_CALL_IS_RUNNING; stored with release, once */
};

/* Begins; param, its private data included, is copied. Returns an errno: no thread was to be had. */
int rdmux_iwarp_call_start(struct iwarp_call *call, struct rdma_cm_id *id,
                           const struct rdma_conn_param *param);
/* The call has returned: its errno, once; IWARP_CALL_IS_RUNNING: it has not, or there is none. */
int rdmux_iwarp_call_result(struct iwarp_call *call);
/* The connection is there, so the call is about to return: waits for that. */
void rdmux_iwarp_call_finish(struct iwarp_call *call);
/* Ends the call if it still runs; then the id may be destroyed, and the queue pair. Takes as long as the
 * kernel needs to leave the system call. */
void rdmux_iwarp_call_stop(struct iwarp_call *call);

#endif
