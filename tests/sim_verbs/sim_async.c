/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Asynchronous events: raised, read from a context's descriptor, acknowledged. */
#include "sim_async.h"

#include "sim_completion.h"
#include "sim_device.h"
#include "sim_queue.h"
#include "sim_verbs.h"
#include "sim_world.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>

enum concerns { CONCERNS_QP, CONCERNS_CQ, CONCERNS_SRQ, CONCERNS_DEVICE };

static enum concerns concerned(enum ibv_event_type type)
{
    switch ((int)type) {
    case IBV_EVENT_CQ_ERR:
        return CONCERNS_CQ;
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED:
        return CONCERNS_SRQ;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
        return CONCERNS_QP;
    default:
        return CONCERNS_DEVICE;
    }
}

void sim_async_raise(struct sim_context *context, const struct ibv_async_event *event)
{
    struct sim_async *entry = sim_alloc(context->world, sizeof(*entry));
    if (entry == NULL) {
        perror("sim_verbs: asynchronous event");
        return;
    }
    entry->event = *event;
    struct sim_async **at = &context->events;
    while (*at != NULL) {
        at = &(*at)->next;
    }
    *at = entry;
    context->world->counters.events++;
    sim_trace(context->world, SIM_TRACE_EVENT, (uint64_t)event->event_type, 0);
    sim_event_tell(context->verbs.context.async_fd);
}

void sim_async_device(struct sim_device *device, enum ibv_event_type type)
{
    struct ibv_async_event event = { .element.port_num = 1, .event_type = type };
    for (struct sim_context *at = device->contexts; at != NULL; at = at->next) {
        sim_async_raise(at, &event);
    }
}

void sim_async_event(struct ibv_context *context, const struct ibv_async_event *event)
{
    struct sim_context *sim = sim_context_of(context);
    sim_lock(sim->world);
    sim_async_raise(sim, event);
    sim_unlock(sim->world);
}

void sim_async_forget(struct sim_context *context, const void *object)
{
    struct sim_async **at = &context->events;
    while (*at != NULL) {
        struct sim_async *entry = *at;
        if (concerned(entry->event.event_type) == CONCERNS_DEVICE ||
            (const void *)entry->event.element.qp != object) {
            at = &entry->next;
            continue;
        }
        *at = entry->next;
        sim_free(entry);
        (void)sim_event_take(context->verbs.context.async_fd);
    }
}

/* A fetched event must be acknowledged; its object cannot be destroyed before. */
static void count_given(const struct ibv_async_event *event)
{
    switch (concerned(event->event_type)) {
    case CONCERNS_QP:
        sim_qp_of(event->element.qp)->async_events_given++;
        break;
    case CONCERNS_CQ:
        sim_cq_of(event->element.cq)->async_events_given++;
        break;
    case CONCERNS_SRQ:
        sim_srq_of(event->element.srq)->async_events_given++;
        break;
    case CONCERNS_DEVICE:
        break;
    }
}

static bool fetch(struct sim_context *context, struct ibv_async_event *event)
{
    struct sim_async *first = context->events;
    if (first == NULL) {
        return false;
    }
    *event = first->event;
    context->events = first->next;
    sim_free(first);
    (void)sim_event_take(context->verbs.context.async_fd);
    count_given(event);
    return true;
}

bool sim_wait_readable(struct sim_world *world, int descriptor)
{
    int flags = fcntl(descriptor, F_GETFL);
    if (flags < 0 || (flags & O_NONBLOCK) != 0) {
        errno = flags < 0 ? errno : EAGAIN;
        return false;
    }
    sim_lock(world);
    bool real = world->options.real_time != 0;
    bool moved = real || sim_wait_step(world);
    sim_unlock(world);
    if (!moved) {
        errno = EDEADLK; /* in virtual time no event will come */
        return false;
    }
    struct pollfd ready = { .fd = descriptor, .events = POLLIN };
    return !real || poll(&ready, 1, -1) >= 0;
}

int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
    struct sim_context *sim = sim_context_of(context);
    for (;;) {
        sim_lock(sim->world);
        (void)sim_run_due(sim->world);
        bool fetched = fetch(sim, event);
        sim_unlock(sim->world);
        if (fetched) {
            return 0;
        }
        if (!sim_wait_readable(sim->world, context->async_fd)) {
            return -1;
        }
    }
}

static void acknowledge(pthread_mutex_t *mutex, pthread_cond_t *cond, uint32_t *completed)
{
    (void)pthread_mutex_lock(mutex);
    (*completed)++;
    (void)pthread_cond_signal(cond);
    (void)pthread_mutex_unlock(mutex);
}

void ibv_ack_async_event(struct ibv_async_event *event)
{
    struct ibv_qp *qp = event->element.qp;
    struct ibv_cq *cq = event->element.cq;
    struct ibv_srq *srq = event->element.srq;
    switch (concerned(event->event_type)) {
    case CONCERNS_QP:
        acknowledge(&qp->mutex, &qp->cond, &qp->events_completed);
        break;
    case CONCERNS_CQ:
        acknowledge(&cq->mutex, &cq->cond, &cq->async_events_completed);
        break;
    case CONCERNS_SRQ:
        acknowledge(&srq->mutex, &srq->cond, &srq->events_completed);
        break;
    case CONCERNS_DEVICE:
        break;
    }
}

void sim_wait_acknowledged(struct sim_world *world, const struct sim_owed *owed)
{
    (void)pthread_mutex_lock(owed->mutex);
    if (!world->options.real_time && *owed->completed != owed->given) {
        /* The real library would wait here forever. */
        sim_misuse(world, owed->text);
    } else {
        while (*owed->completed != owed->given) {
            (void)pthread_cond_wait(owed->cond, owed->mutex);
        }
    }
    (void)pthread_mutex_unlock(owed->mutex);
}
