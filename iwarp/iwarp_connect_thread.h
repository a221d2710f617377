/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * A connect thread: one thread that calls rdma_connect(). Soft iWARP connects TCP within
 * rdma_connect(), which blocks for minutes at an address that swallows packets (siw_connect():
 * "connect() is called in blocking mode"). Until it returns, neither the id nor the queue pair can
 * be destroyed. Each call has a thread of its own, so that no connection waits for another one; the
 * thread ends with the call.
 */
#ifndef RDMUX_IWARP_CONNECT_THREAD_H
#define RDMUX_IWARP_CONNECT_THREAD_H

#include <rdma/rdma_cma.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { IWARP_CONNECT_IS_RUNNING = -1 };

/* Owned by one thread, except `result`. All zero: there is no call. */
struct iwarp_connect_thread {
    bool has_thread;
    pthread_t thread;
    struct rdma_cm_id *id;
    struct rdma_conn_param param;
    uint8_t private_data[UINT8_MAX]; /* the length has eight bits */
    _Atomic int result; /* errno, or IWARP_CONNECT_IS_RUNNING; stored with release, once */
};

/* Starts the thread; copies param and its private data. Returns an errno if no thread can be
 * created. */
int rdmux_iwarp_connect_thread_start(struct iwarp_connect_thread *call, struct rdma_cm_id *id,
                                     const struct rdma_conn_param *param);
/* Returns the call's errno, once, after the call has returned. IWARP_CONNECT_IS_RUNNING: the call has
 * not returned, or there is none. */
int rdmux_iwarp_connect_thread_result(struct iwarp_connect_thread *call);
/* Waits for the call, which is about to return: the connection is established. */
void rdmux_iwarp_connect_thread_finish(struct iwarp_connect_thread *call);
/* Ends the call if it still runs; the id and the queue pair may be destroyed then. Takes as long as
 * the kernel needs to leave the system call. */
void rdmux_iwarp_connect_thread_stop(struct iwarp_connect_thread *call);

#endif
