/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * The core, played for the tcp provider: every function of provider.h that it calls, so that a
 * program with this header links nothing of the core. One program includes it once.
 */
#ifndef RDMUX_TEST_TCP_FAKE_CORE_H
#define RDMUX_TEST_TCP_FAKE_CORE_H

#include "tcp_fallback/tcp_internal.h"
#include "tcp_fallback/tcp_provider.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    REQUESTS_MAX = 4096,
    RECEIVES_MAX = 4096,
    REGIONS_MAX = 4,
    CONTROL_MAX = 256 << 10,
};

static inline void fake_expect(bool holds)
{
    if (!holds) {
        abort();
    }
}

struct rdmux_fabric {
    int allocations;
};

struct rdmux_cq {
    int entered;
};

struct receives {
    struct rdmux_request list[RECEIVES_MAX];
    struct rdmux_provider_sge sges[RECEIVES_MAX];
    uint32_t posted;
    uint32_t taken;
};

struct rdmux_srq {
    struct receives receives;
};

struct rdmux_mr {
    uint8_t *addr;
    uint64_t length;
    uint32_t access;
    uint32_t serial;
    uint64_t dies_after; /* enters; 0 = never */
};

struct rdmux_ep {
    struct receives own;
    struct receives *receives;
    struct rdmux_request *arrived[RECEIVES_MAX];
    uint32_t arrived_count;
    struct rdmux_request requests[REQUESTS_MAX];
    struct rdmux_provider_sge sges[REQUESTS_MAX];
    struct rdmux_provider_remote *remotes[REGIONS_MAX];
    uint32_t queued;
    uint32_t started;
    bool held;
    enum rdmux_status failed;
    char text[RDMUX_TEXT_MAX];
    uint8_t control[CONTROL_MAX];
    size_t control_size;
};

static struct rdmux_fabric fabric;
static struct rdmux_cq cqs[2];
static struct rdmux_mr regions[REGIONS_MAX];
static char last_error[1024];

void rdmux_provider_ready(struct rdmux_provider_ep *ep)
{
    ep->ready = 1;
}

struct rdmux_request *rdmux_provider_take_receive(struct rdmux_provider_ep *ep)
{
    struct receives *receives = ep->ep->receives;
    return receives->taken == receives->posted ? NULL : &receives->list[receives->taken++];
}

uint32_t rdmux_provider_receives(struct rdmux_provider_ep *ep)
{
    return ep->ep->receives->posted - ep->ep->receives->taken;
}

int rdmux_provider_has_srq(const struct rdmux_provider_ep *ep)
{
    return ep->ep->receives != &ep->ep->own;
}

void rdmux_provider_received(struct rdmux_provider_ep *ep, struct rdmux_request *request,
                             uint32_t status, uint32_t opcode, uint64_t length, uint32_t wc_flags,
                             uint32_t imm)
{
    fake_expect((request->done) == (0));
    request->done = 1;
    request->status = status;
    request->opcode = opcode;
    request->length = length;
    request->wc_flags = wc_flags;
    request->imm = imm;
    ep->ep->arrived[ep->ep->arrived_count++] = request;
    rdmux_provider_ready(ep);
}

void rdmux_provider_failed(struct rdmux_provider_ep *ep, enum rdmux_status status, const char *text)
{
    fake_expect((ep->ep->failed) == (RDMUX_OK));
    ep->ep->failed = status;
    (void)snprintf(ep->ep->text, sizeof(ep->ep->text), "%s", text);
    rdmux_provider_ready(ep);
}

void rdmux_provider_error(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vsnprintf(last_error, sizeof(last_error), format, args);
    va_end(args);
}

void *rdmux_provider_allocate(struct rdmux_fabric *from, size_t size)
{
    from->allocations++;
    void *memory = aligned_alloc(64, (size + 63) & ~(size_t)63);
    fake_expect(memory != NULL);
    memset(memory, 0, size);
    return memory;
}

void rdmux_provider_release(struct rdmux_fabric *to, void *memory)
{
    to->allocations -= memory != NULL;
    free(memory);
}

void rdmux_provider_join(struct rdmux_provider_ep *ep, uint32_t index, uint8_t out[RDMUX_JOIN_SIZE])
{
    (void)ep;
    memset(out, 0, RDMUX_JOIN_SIZE);
    out[0] = 0xaa;
    out[1] = (uint8_t)index;
}

void rdmux_provider_control_received(struct rdmux_provider_ep *ep, const void *frame, size_t size)
{
    fake_expect(size <= CONTROL_MAX - ep->ep->control_size);
    memcpy(ep->ep->control + ep->ep->control_size, frame, size);
    ep->ep->control_size += size;
}

static struct rdmux_mr *region_of(const uint8_t *key)
{
    return key[0] < REGIONS_MAX && key[1] == regions[key[0]].serial ? &regions[key[0]] : NULL;
}

void rdmux_target_key(struct rdmux_provider_mr *mr, uint8_t out[RDMUX_TARGET_KEY_SIZE])
{
    memset(out, 0x5a, RDMUX_TARGET_KEY_SIZE);
    out[0] = (uint8_t)(mr->mr - regions);
    out[1] = (uint8_t)mr->mr->serial;
}

enum rdmux_status rdmux_target_enter(struct rdmux_provider_ep *ep,
                                     const uint8_t key[RDMUX_TARGET_KEY_SIZE], uint64_t offset,
                                     uint64_t length, uint32_t access, void **addr)
{
    struct rdmux_mr *mr = region_of(key);
    fake_expect((ep->cq->cq->entered) == (0));
    if (mr == NULL || (mr->access & access) != access) {
        return RDMUX_DENIED;
    }
    if (mr->dies_after > 0 && --mr->dies_after == 0) {
        mr->serial++;
        return RDMUX_DENIED;
    }
    if (offset > mr->length || length > mr->length - offset) {
        return RDMUX_OUT_OF_RANGE;
    }
    ep->cq->cq->entered++;
    *addr = mr->addr + offset;
    return RDMUX_OK;
}

void rdmux_target_leave(struct rdmux_provider_ep *ep)
{
    fake_expect((ep->cq->cq->entered) == (1));
    ep->cq->cq->entered--;
}

enum rdmux_status rdmux_target_atomic(struct rdmux_provider_ep *ep,
                                      const uint8_t key[RDMUX_TARGET_KEY_SIZE], uint32_t op,
                                      uint64_t offset, uint64_t operand, uint64_t expected,
                                      uint64_t *old)
{
    void *addr = NULL;
    enum rdmux_status status = rdmux_target_enter(ep, key, offset, 8, RDMUX_ACCESS_REMOTE_ATOMIC,
                                                  &addr);
    if (status != RDMUX_OK) {
        return status;
    }
    rdmux_target_leave(ep);
    if ((uintptr_t)addr % 8 != 0) {
        return RDMUX_INVALID;
    }
    memcpy(old, addr, 8);
    uint64_t now = op == RDMUX_OP_FETCH_ADD ? *old + operand : *old == expected ? operand : *old;
    memcpy(addr, &now, 8);
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

#endif
