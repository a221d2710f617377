/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* A fabric without threads, providers and sockets, for tests of parts of the core. Its allocator
 * counts allocations, and fails on request. Included by one source of a program. */
#ifndef RDMUX_TESTS_FAKE_FABRIC_H
#define RDMUX_TESTS_FAKE_FABRIC_H

#include "api/core/fabric.h"
#include "api/object/target.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

struct fake_fabric {
    struct rdmux_fabric fabric;
    size_t live;      /* allocations not released */
    long allocations; /* allocations that succeed from now on; -1: all */
};

static const uint32_t fake_alive = 1;

static void *fake_allocate(void *user, size_t size)
{
    struct fake_fabric *fake = user;
    if (fake->allocations == 0) {
        return NULL;
    }
    if (fake->allocations > 0) {
        fake->allocations--;
    }
    fake->live++;
    return malloc(size);
}

static void fake_release(void *user, void *memory)
{
    struct fake_fabric *fake = user;
    fake->live--;
    free(memory);
}

static uint64_t fake_clock_ns(void *user)
{
    (void)user;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static struct fake_fabric *fake_fabric_create(void)
{
    struct fake_fabric *fake = calloc(1, sizeof(*fake));
    if (fake == NULL) {
        abort();
    }
    struct rdmux_fabric *fabric = &fake->fabric;
    fake->allocations = -1;
    fabric->alive = &fake_alive;
    fabric->hooks.log_fd = -1;
    fabric->hooks.allocate = fake_allocate;
    fabric->hooks.release = fake_release;
    fabric->hooks.allocate_user = fake;
    fabric->hooks.clock_ns = fake_clock_ns;
    memset(fabric->process, 0x5a, sizeof(fabric->process));
    pthread_mutex_init(&fabric->setup_lock, NULL);
    pthread_mutex_init(&fabric->lock, NULL);
    pthread_mutex_init(&fabric->hooks.secrets_lock, NULL);
    rdmux_list_init(&fabric->cqs);
    rdmux_list_init(&fabric->listeners);
    rdmux_list_init(&fabric->regions);
    atomic_store(&fabric->next_id, 1);
    fabric->spans = rdmux_span_index_create(fabric);
    if (fabric->spans == NULL || rdmux_region_table_create(fabric) != RDMUX_OK) {
        abort();
    }
    return fake;
}

/* Returns how many allocations were not released. */
static size_t fake_fabric_destroy(struct fake_fabric *fake)
{
    struct rdmux_fabric *fabric = &fake->fabric;
    rdmux_region_table_destroy(fabric);
    rdmux_span_index_destroy(fabric->spans);
    pthread_mutex_destroy(&fabric->lock);
    pthread_mutex_destroy(&fabric->hooks.secrets_lock);
    pthread_mutex_destroy(&fabric->setup_lock);
    size_t live = fake->live;
    free(fake);
    return live;
}

#endif
