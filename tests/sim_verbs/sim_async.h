/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Asynchronous events, and waits for their acknowledgment. */
#ifndef SIM_ASYNC_H
#define SIM_ASYNC_H

#include <infiniband/verbs.h>

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct sim_context;
struct sim_device;
struct sim_world;

struct sim_async {
    struct sim_async *next;
    struct ibv_async_event event;
};

/* Raises an event for every context of the device, or for one context and one object. */
void sim_async_device(struct sim_device *device, enum ibv_event_type type);
void sim_async_raise(struct sim_context *context, const struct ibv_async_event *event);
/* Drops unfetched events of an object that ends. */
void sim_async_forget(struct sim_context *context, const void *object);

/* The acknowledgments that an object waits for before it is destroyed. */
struct sim_owed {
    pthread_mutex_t *mutex;
    pthread_cond_t *cond;
    const uint32_t *completed;
    uint32_t given;
    const char *text; /* text of the misuse report if the wait would last forever */
};

void sim_wait_acknowledged(struct sim_world *world, const struct sim_owed *owed); /* not locked */
/* Not locked. Waits until a blocking descriptor may be readable; false with errno: stop
 * waiting. */
bool sim_wait_readable(struct sim_world *world, int descriptor);

#endif
