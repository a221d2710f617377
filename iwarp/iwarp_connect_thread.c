/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * pthread_cancel() ends the thread. The system call it may block in is write(2), a cancellation
 * point; the kernel returns from it when the C library's own signal comes (pthreads(7)). The
 * program's signals are not touched, and the thread takes none.
 */
#include "iwarp/iwarp_connect_thread.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

static void *make_call(void *argument)
{
    struct iwarp_connect_thread *call = argument;
    int error = rdma_connect(call->id, &call->param) == 0 ? 0 : errno;
    /* Pairs with the acquire load of rdmux_iwarp_connect_thread_result(). */
    atomic_store_explicit(&call->result, error, memory_order_release);
    return NULL;
}

int rdmux_iwarp_connect_thread_start(struct iwarp_connect_thread *call, struct rdma_cm_id *id,
                                     const struct rdma_conn_param *param)
{
    sigset_t all;
    sigset_t before;
    call->id = id;
    call->param = *param;
    memcpy(call->private_data, param->private_data, param->private_data_len);
    call->param.private_data = call->private_data;
    atomic_store_explicit(&call->result, IWARP_CONNECT_IS_RUNNING, memory_order_relaxed);
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&call->thread, NULL, make_call, call);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    call->has_thread = error == 0;
    if (error == 0) {
        (void)pthread_setname_np(call->thread, "rdmux-connect");
    }
    return error;
}

static void join_thread(struct iwarp_connect_thread *call)
{
    (void)pthread_join(call->thread, NULL);
    call->has_thread = false;
}

int rdmux_iwarp_connect_thread_result(struct iwarp_connect_thread *call)
{
    if (!call->has_thread) {
        return IWARP_CONNECT_IS_RUNNING;
    }
    int result = atomic_load_explicit(&call->result, memory_order_acquire);
    if (result != IWARP_CONNECT_IS_RUNNING) {
        join_thread(call);
    }
    return result;
}

void rdmux_iwarp_connect_thread_finish(struct iwarp_connect_thread *call)
{
    if (call->has_thread) {
        join_thread(call);
    }
}

void rdmux_iwarp_connect_thread_stop(struct iwarp_connect_thread *call)
{
    if (call->has_thread) {
        (void)pthread_cancel(call->thread);
        join_thread(call);
    }
}
