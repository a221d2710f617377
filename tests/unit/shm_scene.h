/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* A connected pair of shm endpoints, with buffers, and regions of side 1 that side 0 may import. The
 * test drives the provider as the core does. Each mutex checks which thread unlocks it. */
#ifndef RDMUX_TESTS_SHM_SCENE_H
#define RDMUX_TESTS_SHM_SCENE_H

#include "tests/unit/shm_pair.h"
#include "tests/unit/support/checked_mutexes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

enum { BUFFER_SIZE = 3 * 1024 * 1024 };

/* A region of side 1's application. */
struct region {
    struct rdmux_mr *core;
    struct shm_mr *mr;
    uint8_t *addr;
    uint64_t length;
    uint32_t access;
};

struct scene {
    struct shm_pair *pair;
    uint8_t *source; /* BUFFER_SIZE bytes of a pattern */
    uint8_t *sink;   /* BUFFER_SIZE bytes, zero at first */
    struct region regions[FAKE_REGIONS_MAX];
    size_t region_count;
};

static inline int set_scene(void **state)
{
    struct scene *scene = calloc(1, sizeof(*scene));
    assert_non_null(scene);
    scene->pair = shm_pair_connect();
    scene->source = malloc(BUFFER_SIZE);
    scene->sink = malloc(BUFFER_SIZE);
    assert_true(scene->source != NULL && scene->sink != NULL);
    for (size_t i = 0; i < BUFFER_SIZE; i++) {
        scene->source[i] = (uint8_t)(i * 2654435761U >> 13);
    }
    memset(scene->sink, 0, BUFFER_SIZE);
    *state = scene;
    return 0;
}

static inline void close_regions(struct scene *scene)
{
    for (size_t i = 0; i < scene->region_count; i++) {
        struct region *region = &scene->regions[i];
        rdmux_shm_mr_deregister(&region->mr->base);
        free(region->mr);
        if (region->core->memory_fd >= 0) {
            (void)munmap(region->addr, region->length);
            (void)close(region->core->memory_fd);
        }
    }
    scene->region_count = 0;
    memset(fake_regions, 0, sizeof(fake_regions));
}

static inline int clear_scene(void **state)
{
    struct scene *scene = *state;
    close_regions(scene);
    shm_pair_close(scene->pair);
    free(scene->source);
    free(scene->sink);
    free(scene);
    assert_int_equal(fake_fabric.allocations, 0);
    assert_int_equal(wrong_unlocks(), 0);
    return 0;
}

/* A request over one buffer. */
struct request {
    struct rdmux_request base;
    struct rdmux_provider_sge sge;
};

static inline void fill_request(struct request *request, uint32_t op, void *buffer, uint64_t length)
{
    memset(request, 0, sizeof(*request));
    request->sge = (struct rdmux_provider_sge){ .addr = buffer, .length = length };
    request->base.op = op;
    request->base.length = length;
    request->base.sges = &request->sge;
    request->base.sge_count = length > 0 ? 1 : 0;
}

static inline void post_receive(struct shm_end *end, struct request *request)
{
    fake_receive(&end->core.own, &request->base);
    assert_int_equal(rdmux_shm_post_recv(&end->ep->base, &request->base, 1), RDMUX_OK);
}

static inline enum rdmux_status post(struct shm_end *end, struct request *request)
{
    size_t posted = 99;
    enum rdmux_status status = rdmux_shm_post(&end->ep->base, &request->base, 1, 0, &posted);
    assert_int_equal(posted, status == RDMUX_OK ? 1 : 0);
    return status;
}

/* Posts as the core does: a refused request waits for resume. */
static inline void post_patiently(struct shm_pair *pair, int index, struct request *request)
{
    struct shm_end *end = &pair->ends[index];
    while (post(end, request) != RDMUX_OK) {
        end->ep->base.resume = 0;
        shm_pair_poll(pair);
        assert_int_equal(end->core.failed, RDMUX_OK);
        assert_int_equal(end->ep->base.resume, 1);
    }
}

/* Registers a region of side 1. addr NULL: allocates memory that the peer may map. */
static inline struct region *make_region(struct scene *scene, void *addr, uint64_t length,
                                         uint32_t access)
{
    size_t index = scene->region_count++;
    struct region *region = &scene->regions[index];
    int memory_fd = -1;
    if (addr == NULL) {
        memory_fd = memfd_create("region", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        assert_true(memory_fd >= 0 && ftruncate(memory_fd, (off_t)length) == 0);
        addr = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, memory_fd, 0);
        assert_true(addr != MAP_FAILED);
    }
    region->core = fake_region(index, addr, length, access);
    region->core->memory_fd = memory_fd;
    region->addr = addr;
    region->length = length;
    region->access = access;
    region->mr = fake_object(sizeof(*region->mr));
    region->mr->base.domain = &scene->pair->domain->base;
    region->mr->base.mr = region->core;
    const struct rdmux_provider_mr_attr attr = {
        .addr = addr, .length = length, .access = access, .memory_fd = memory_fd
    };
    assert_int_equal(rdmux_shm_mr_register(&region->mr->base, &attr), RDMUX_OK);
    return region;
}

/* Side 0 imports a region of side 1. */
static inline void import_region(struct scene *scene, struct region *region,
                                 struct shm_remote *remote)
{
    uint8_t description[RDMUX_DESCRIPTION_MAX];
    size_t size = sizeof(description);
    assert_int_equal(rdmux_shm_mr_describe(&region->mr->base, &scene->pair->ends[1].ep->base,
                                           description, &size),
                     RDMUX_OK);
    memset(remote, 0, sizeof(*remote));
    remote->base.ep = &scene->pair->ends[0].ep->base;
    remote->base.length = region->length;
    remote->base.access = region->access & (RDMUX_ACCESS_REMOTE_READ | RDMUX_ACCESS_REMOTE_WRITE |
                                            RDMUX_ACCESS_REMOTE_ATOMIC);
    assert_int_equal(rdmux_shm_remote_open(&remote->base, description, size), RDMUX_OK);
}

enum {
    WRITABLE = RDMUX_ACCESS_LOCAL_WRITE | RDMUX_ACCESS_REMOTE_WRITE,
    ALL_RIGHTS = RDMUX_ACCESS_LOCAL_WRITE | RDMUX_ACCESS_REMOTE_READ | RDMUX_ACCESS_REMOTE_WRITE |
                 RDMUX_ACCESS_REMOTE_ATOMIC
};

/* The three ways to reach a region: mapped, by the kernel, by the target's CPU. */
static inline struct region *region_of_way(struct scene *scene, size_t way)
{
    static const uint32_t access[] = { ALL_RIGHTS, ALL_RIGHTS, ALL_RIGHTS | RDMUX_ACCESS_NO_MAP };
    return make_region(scene, way == 0 ? NULL : scene->sink, BUFFER_SIZE, access[way]);
}

#endif
