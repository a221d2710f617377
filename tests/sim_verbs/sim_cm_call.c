/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Calls of librdmacm that block in the kernel. Soft iWARP connects TCP inside rdma_connect(); TCP
 * retries an address that swallows packets until it gives up (kernel_bindconnect() in siw_cm.c).
 * The id and its queue pair stay until then.
 *
 * The mutex is taken even if no other thread takes it (threads=no): a condition needs it.
 */
#include "sim_cm.h"
#include "sim_cm_news.h"
#include "sim_queue.h"
#include "sim_world.h"

#include <errno.h>
#include <time.h>

static void end_call(void *id)
{
    struct sim_cm_id *sim = id;
    sim->calling = false;
    (void)pthread_cond_broadcast(&sim->world->call_over);
    (void)pthread_mutex_unlock(&sim->world->lock);
}

static struct timespec deadline_of(uint64_t time_ns)
{
    const uint64_t second = 1000000000;
    struct timespec deadline;
    (void)clock_gettime(CLOCK_MONOTONIC, &deadline);
    uint64_t rest = (uint64_t)deadline.tv_nsec + time_ns % second;
    deadline.tv_sec += (time_t)(time_ns / second + rest / second);
    deadline.tv_nsec = (long)(rest % second);
    return deadline;
}

int sim_cm_swallow(struct sim_cm_id *id)
{
    const struct timespec deadline = deadline_of(id->device->options.swallow);
    (void)pthread_mutex_lock(&id->world->lock);
    pthread_cleanup_push(end_call, id);
    while (pthread_cond_timedwait(&id->world->call_over, &id->world->lock, &deadline) != ETIMEDOUT) {
        /* other threads' calls have ended */
    }
    pthread_cleanup_pop(1);
    return ETIMEDOUT;
}

static bool is_calling(const struct sim_host *host, uint32_t qpn)
{
    for (const struct sim_cm_id *at = host->cm_ids; at != NULL; at = at->next) {
        if (at->calling && at->my_qp == qpn) {
            return true;
        }
    }
    return false;
}

void sim_cm_wait_for_calls(struct sim_qp *qp)
{
    struct sim_world *world = qp->world;
    if (qp->device->options.swallow == 0) {
        return;
    }
    (void)pthread_mutex_lock(&world->lock);
    while (is_calling(qp->device->host, qp->ex.qp_base.qp_num)) {
        (void)pthread_cond_wait(&world->call_over, &world->lock);
    }
    (void)pthread_mutex_unlock(&world->lock);
}

void sim_cm_wait_for_call(struct sim_cm_id *id)
{
    (void)pthread_mutex_lock(&id->world->lock);
    while (id->calling) {
        (void)pthread_cond_wait(&id->world->call_over, &id->world->lock);
    }
    (void)pthread_mutex_unlock(&id->world->lock);
}
