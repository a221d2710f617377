/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The core as the shm provider sees it, in one thread and with nothing behind it: what provider.h
 * declares is defined here, so that the linker takes none of the real core. */
#ifndef RDMUX_TESTS_UNIT_TEST_SHM_FAKE_CORE_H
#define RDMUX_TESTS_UNIT_TEST_SHM_FAKE_CORE_H

#include "shm/shm_internal.h"
#include "shm/shm_provider.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { FAKE_RECEIVES = 512, FAKE_REGIONS = 8 };

/* The core's endpoint. */
struct fake_ep {
    struct shm_ep *shm;
    struct rdmux_request *receives[FAKE_RECEIVES];
    size_t posted;
    size_t taken;
    enum rdmux_status failed;
    char text[RDMUX_TEXT_MAX];
    bool has_srq;
    struct rdmux_provider_ep_attr attr;
};

struct fake_region {
    struct shm_mr *mr;
    uint8_t *addr;
    uint64_t length;
    uint32_t access;
    int fd;
    bool alive;
};

static struct fake_region fake_regions[FAKE_REGIONS];
static char fake_error[RDMUX_TEXT_MAX];
static const uint8_t fake_secret[RDMUX_SECRET_SIZE] = "shared secret";

static struct fake_ep *fake_of(const struct rdmux_provider_ep *ep)
{
    return (struct fake_ep *)(void *)ep->ep;
}

void rdmux_provider_ready(struct rdmux_provider_ep *ep)
{
    ep->ready = 1;
}

struct rdmux_request *rdmux_provider_take_receive(struct rdmux_provider_ep *ep)
{
    struct fake_ep *fake = fake_of(ep);
    return fake->taken == fake->posted ? NULL : fake->receives[fake->taken++ % FAKE_RECEIVES];
}

uint32_t rdmux_provider_receives(struct rdmux_provider_ep *ep)
{
    return (uint32_t)(fake_of(ep)->posted - fake_of(ep)->taken);
}

int rdmux_provider_has_srq(const struct rdmux_provider_ep *ep)
{
    return fake_of(ep)->has_srq;
}

void rdmux_provider_received(struct rdmux_provider_ep *ep, struct rdmux_request *request,
                             uint32_t status, uint32_t opcode, uint64_t length, uint32_t wc_flags,
                             uint32_t imm)
{
    (void)ep;
    request->status = status;
    request->opcode = opcode;
    request->length = length;
    request->wc_flags = wc_flags;
    request->imm = imm;
    request->done++;
}

void rdmux_provider_failed(struct rdmux_provider_ep *ep, enum rdmux_status status, const char *text)
{
    fake_of(ep)->failed = status;
    (void)snprintf(fake_of(ep)->text, RDMUX_TEXT_MAX, "%s", text);
}

void rdmux_provider_error(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(fake_error, sizeof(fake_error), format, arguments);
    va_end(arguments);
}

void *rdmux_provider_allocate(struct rdmux_fabric *fabric, size_t size)
{
    (void)fabric;
    size_t rounded = (size + SHM_LINE_PAIR - 1) / SHM_LINE_PAIR * SHM_LINE_PAIR;
    void *memory = aligned_alloc(SHM_LINE, rounded);
    return memory == NULL ? NULL : memset(memory, 0, rounded);
}

void rdmux_provider_release(struct rdmux_fabric *fabric, void *memory)
{
    (void)fabric;
    free(memory);
}

enum rdmux_status rdmux_provider_random(struct rdmux_fabric *fabric, void *out, size_t size)
{
    (void)fabric;
    return getentropy(out, size) == 0 ? RDMUX_OK : RDMUX_IO;
}

void rdmux_provider_secret(struct rdmux_provider_ep *ep, uint8_t out[RDMUX_SECRET_SIZE])
{
    (void)ep;
    memcpy(out, fake_secret, RDMUX_SECRET_SIZE);
}

void rdmux_target_key(struct rdmux_provider_mr *mr, uint8_t out[RDMUX_TARGET_KEY_SIZE])
{
    memset(out, 0, RDMUX_TARGET_KEY_SIZE);
    for (size_t i = 0; i < FAKE_REGIONS; i++) {
        if (fake_regions[i].mr != NULL && &fake_regions[i].mr->base == mr) {
            out[0] = (uint8_t)(i + 1);
        }
    }
}

enum rdmux_status rdmux_target_enter(struct rdmux_provider_ep *ep,
                                     const uint8_t key[RDMUX_TARGET_KEY_SIZE], uint64_t offset,
                                     uint64_t length, uint32_t access, void **addr)
{
    (void)ep;
    if (key[0] == 0 || key[0] > FAKE_REGIONS || !fake_regions[key[0] - 1].alive ||
        (fake_regions[key[0] - 1].access & access) != access) {
        return RDMUX_DENIED;
    }
    const struct fake_region *region = &fake_regions[key[0] - 1];
    if (offset > region->length || length > region->length - offset) {
        return RDMUX_OUT_OF_RANGE;
    }
    *addr = region->addr + offset;
    return RDMUX_OK;
}

void rdmux_target_leave(struct rdmux_provider_ep *ep)
{
    (void)ep;
}

enum rdmux_status rdmux_target_atomic(struct rdmux_provider_ep *ep,
                                      const uint8_t key[RDMUX_TARGET_KEY_SIZE], uint32_t op,
                                      uint64_t offset, uint64_t operand, uint64_t expected,
                                      uint64_t *old)
{
    void *addr = NULL;
    enum rdmux_status status = rdmux_target_enter(ep, key, offset, sizeof(*old),
                                                  RDMUX_ACCESS_REMOTE_ATOMIC, &addr);
    if (status != RDMUX_OK || offset % sizeof(*old) != 0) {
        return status != RDMUX_OK ? status : RDMUX_INVALID;
    }
    memcpy(old, addr, sizeof(*old));
    uint64_t new = *old == expected ? operand : *old;
    new = op == RDMUX_OP_FETCH_ADD ? *old + operand : new;
    memcpy(addr, &new, sizeof(new));
    return RDMUX_OK;
}

enum rdmux_status rdmux_unsupported_async_event(struct rdmux_provider_domain *domain,
                                                struct rdmux_provider_event *out)
{
    (void)domain;
    (void)out;
    return RDMUX_AGAIN;
}

int rdmux_unsupported_domain_fd(struct rdmux_provider_domain *domain)
{
    (void)domain;
    return -1;
}

enum rdmux_status rdmux_unsupported_ep_join(struct rdmux_provider_ep *ep, int socket, uint32_t index)
{
    (void)ep;
    (void)socket;
    (void)index;
    return RDMUX_UNSUPPORTED;
}

enum rdmux_status rdmux_unsupported_ep_control(struct rdmux_provider_ep *ep, const void *frame,
                                               size_t size)
{
    (void)ep;
    (void)frame;
    (void)size;
    return RDMUX_UNSUPPORTED;
}

enum rdmux_status rdmux_software_srq_open(struct rdmux_provider_srq *srq, uint32_t depth,
                                          uint32_t max_sge)
{
    (void)srq;
    (void)depth;
    (void)max_sge;
    return RDMUX_OK;
}

void rdmux_software_srq_close(struct rdmux_provider_srq *srq)
{
    (void)srq;
}

enum rdmux_status rdmux_software_srq_post_recv(struct rdmux_provider_srq *srq,
                                               struct rdmux_request *requests, size_t count)
{
    (void)srq;
    (void)requests;
    (void)count;
    return RDMUX_OK;
}

/* ---------------------------------------------------------------------------- for the tests */

/* Two endpoints of one process, on one domain and one cq each. */
struct fake_pair {
    struct shm_domain *domain;
    struct shm_cq *cqs[2];
    struct fake_ep eps[2]; /* 0 connects, 1 accepts */
};

static struct shm_domain *fake_domain(void)
{
    struct rdmux_local_path path;
    size_t count = 0;
    struct shm_domain *domain = rdmux_provider_allocate(NULL, sizeof(*domain));
    domain->base.ops = &rdmux_shm_provider;
    if (rdmux_shm_provider.probe(NULL, &path, 1, &count) != RDMUX_OK ||
        rdmux_shm_provider.domain_open(&domain->base, &path) != RDMUX_OK) {
        abort();
    }
    return domain;
}

static void fake_open(struct fake_pair *pair, int side)
{
    struct fake_ep *fake = &pair->eps[side];
    pair->cqs[side] = rdmux_provider_allocate(NULL, sizeof(struct shm_cq));
    pair->cqs[side]->base.domain = &pair->domain->base;
    fake->shm = rdmux_provider_allocate(NULL, sizeof(struct shm_ep));
    fake->shm->base.ops = &rdmux_shm_provider;
    fake->shm->base.cq = &pair->cqs[side]->base;
    fake->shm->base.ep = (struct rdmux_ep *)(void *)fake;
    fake->attr.role = side == 0 ? RDMUX_ROLE_CONNECT : RDMUX_ROLE_ACCEPT;
    if (rdmux_shm_provider.cq_open(fake->shm->base.cq, 0) != RDMUX_OK ||
        rdmux_shm_provider.ep_open(&fake->shm->base, &fake->attr) != RDMUX_OK) {
        abort();
    }
}

/* Polls both sides until neither does anything. */
static inline void fake_poll(struct fake_pair *pair)
{
    size_t done = 1;
    while (done > 0) {
        done = 0;
        for (int side = 0; side < 2; side++) {
            done += rdmux_shm_provider.poll(&pair->cqs[side]->base, 64);
        }
    }
}

static struct fake_pair *fake_connected_pair(void)
{
    struct fake_pair *pair = calloc(1, sizeof(*pair));
    uint8_t data[2][RDMUX_DESCRIPTION_MAX];
    size_t sizes[2] = { RDMUX_DESCRIPTION_MAX, RDMUX_DESCRIPTION_MAX };
    enum rdmux_status statuses[2];
    pair->domain = fake_domain();
    for (int side = 0; side < 2; side++) {
        fake_open(pair, side);
        if (rdmux_shm_ep_describe(&pair->eps[side].shm->base, data[side], &sizes[side]) !=
            RDMUX_OK) {
            abort();
        }
    }
    for (int side = 0; side < 2; side++) {
        statuses[side] = rdmux_shm_ep_connect(&pair->eps[side].shm->base, data[1 - side],
                                              sizes[1 - side]);
    }
    for (int i = 0; i < 10; i++) {
        for (int side = 0; side < 2; side++) {
            if (statuses[side] == RDMUX_IN_PROGRESS) {
                statuses[side] = rdmux_shm_ep_connect(&pair->eps[side].shm->base, NULL, 0);
            }
        }
    }
    if (statuses[0] != RDMUX_OK || statuses[1] != RDMUX_OK) {
        (void)fprintf(stderr, "not connected: %d %d %s\n", statuses[0], statuses[1], fake_error);
        abort();
    }
    return pair;
}

static void fake_close(struct fake_pair *pair)
{
    for (int side = 0; side < 2; side++) {
        rdmux_shm_ep_close(&pair->eps[side].shm->base);
        free(pair->eps[side].shm);
        rdmux_shm_cq_close(&pair->cqs[side]->base);
        free(pair->cqs[side]);
    }
    rdmux_shm_provider.domain_close(&pair->domain->base);
    free(pair->domain);
    free(pair);
}

#endif
