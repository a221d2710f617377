/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* A fake core for a provider in one thread, with no library behind it. It defines every function of
 * provider.h that the real core defines, so the linker takes none of the real ones, and a test sees
 * all that a provider tells the core. A forbidden call aborts. Included by one source of a
 * program. */
#ifndef RDMUX_TESTS_FAKE_CORE_H
#define RDMUX_TESTS_FAKE_CORE_H

#include <rdmux/provider.h>

#include "api/base/capture.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

enum {
    FAKE_RECEIVES_MAX = 4096, /* posted in the life of an endpoint or an SRQ */
    FAKE_REGIONS_MAX = 8,
    FAKE_CONTROL_MAX = 256 << 10, /* bytes of control frames */
};

static inline void fake_expect_at(bool holds, const char *what, int line)
{
    if (!holds) {
        (void)fprintf(stderr, "line %d: does not hold: %s\n", line, what);
        abort();
    }
}
#define fake_expect(condition) fake_expect_at(condition, #condition, __LINE__)

#include "tests/unit/fake_stream.h"

/* ------------------------------------------------------------------------------------- objects */

struct rdmux_fabric {
    int allocations; /* allocations that the provider has not released */
};

struct rdmux_cq {
    int entered; /* regions that the cq's owner is inside */
};

/* Receives, oldest first. */
struct fake_receives {
    struct rdmux_request *list[FAKE_RECEIVES_MAX];
    uint32_t posted;
    uint32_t taken;
    uint32_t reserved; /* SRQ: how many of the receives posted and not taken are reserved */
};

struct rdmux_srq {
    struct fake_receives receives;
};

struct rdmux_mr {
    uint8_t *addr;
    uint64_t length;
    uint32_t access;
    uint32_t serial; /* part of the region's keys: a new serial revokes the keys given out */
    int memory_fd;
    uint64_t dies_after; /* revokes the region at the n-th enter from now; 0: never */
};

/* Zeroed memory is an endpoint with its own receives. */
struct rdmux_ep {
    struct rdmux_srq *srq;
    struct fake_receives own;
    uint32_t reserved; /* receives reserved in the SRQ */
    bool is_paused;
    struct rdmux_request *arrived[FAKE_RECEIVES_MAX];
    uint32_t arrived_count;
    enum rdmux_status failed;
    char text[RDMUX_TEXT_MAX];
    uint8_t control[FAKE_CONTROL_MAX];
    size_t control_size;
};

static struct rdmux_fabric fake_fabric;
static struct rdmux_mr fake_regions[FAKE_REGIONS_MAX];
static char fake_error[1024];

/* Allocates a provider's object as the core does. Free it with free(). */
static inline void *fake_object(size_t size)
{
    size_t rounded = (size + 63) & ~(size_t)63;
    void *memory = aligned_alloc(64, rounded);
    fake_expect(memory != NULL);
    return memset(memory, 0, rounded);
}

static inline struct rdmux_mr *fake_region(size_t index, void *addr, uint64_t length,
                                           uint32_t access)
{
    fake_regions[index] = (struct rdmux_mr){ .addr = addr,
                                             .length = length,
                                             .access = access,
                                             .serial = (uint32_t)index + 1,
                                             .memory_fd = -1 };
    return &fake_regions[index];
}

/* ------------------------------------------------------------------------------------- requests */

static inline struct fake_receives *fake_receives_of(struct rdmux_ep *ep)
{
    return ep->srq != NULL ? &ep->srq->receives : &ep->own;
}

/* Posts a receive as the application does. The caller tells the provider. */
static inline void fake_receive(struct fake_receives *receives, struct rdmux_request *request)
{
    fake_expect(receives->posted < FAKE_RECEIVES_MAX);
    receives->list[receives->posted++] = request;
}

void rdmux_provider_ready(struct rdmux_provider_ep *ep)
{
    ep->ready = 1;
}

struct rdmux_request *rdmux_provider_take_receive(struct rdmux_provider_ep *ep)
{
    struct fake_receives *receives = fake_receives_of(ep->ep);
    if (ep->ep->reserved > 0) {
        ep->ep->reserved--;
        receives->reserved--;
    } else if (receives->posted - receives->taken == receives->reserved) {
        return NULL;
    }
    return receives->list[receives->taken++];
}

uint32_t rdmux_provider_receives(struct rdmux_provider_ep *ep)
{
    const struct fake_receives *receives = fake_receives_of(ep->ep);
    return receives->posted - receives->taken - receives->reserved;
}

uint32_t rdmux_provider_reserve(struct rdmux_provider_ep *ep, uint32_t count)
{
    uint32_t there = ep->ep->srq == NULL ? 0 : rdmux_provider_receives(ep);
    uint32_t reserved = count < there ? count : there;
    ep->ep->reserved += reserved;
    fake_receives_of(ep->ep)->reserved += reserved;
    return reserved;
}

void rdmux_provider_unreserve(struct rdmux_provider_ep *ep, uint32_t count)
{
    fake_expect(count <= ep->ep->reserved);
    ep->ep->reserved -= count;
    fake_receives_of(ep->ep)->reserved -= count;
}

int rdmux_provider_receives_awaited(const struct rdmux_provider_ep *ep)
{
    (void)ep;
    return 0; /* there is only one provider, which knows by itself which endpoints wait */
}

int rdmux_provider_is_paused(const struct rdmux_provider_ep *ep)
{
    return ep->ep->is_paused;
}

int rdmux_provider_has_srq(const struct rdmux_provider_ep *ep)
{
    return ep->ep->srq != NULL;
}

void rdmux_provider_received(struct rdmux_provider_ep *ep, struct rdmux_request *request,
                             uint32_t status, uint32_t opcode, uint64_t length, uint32_t wc_flags,
                             uint32_t imm)
{
    struct rdmux_ep *core = ep->ep;
    fake_expect(request->done == 0);
    fake_expect(core->arrived_count < FAKE_RECEIVES_MAX);
    request->done = 1;
    request->status = status;
    request->opcode = opcode;
    request->length = length;
    request->wc_flags = wc_flags;
    request->imm = imm;
    core->arrived[core->arrived_count++] = request;
    rdmux_provider_ready(ep);
}

uint32_t rdmux_provider_next_receives(struct rdmux_provider_ep *ep, struct rdmux_request **first)
{
    const struct fake_receives *receives = fake_receives_of(ep->ep);
    if (ep->ep->srq != NULL || receives->taken == receives->posted) {
        return 0;
    }
    uint32_t at = receives->taken;
    *first = receives->list[at];
    while (at + 1 < receives->posted && receives->list[at + 1] == receives->list[at] + 1) {
        at++;
    }
    return at + 1 - receives->taken;
}

void rdmux_provider_filled_receives(struct rdmux_provider_ep *ep, uint32_t count)
{
    struct rdmux_ep *core = ep->ep;
    for (uint32_t i = 0; i < count; i++) {
        struct rdmux_request *request = core->own.list[core->own.taken++];
        fake_expect(request->done == 1);
        fake_expect(core->arrived_count < FAKE_RECEIVES_MAX);
        core->arrived[core->arrived_count++] = request;
    }
    rdmux_provider_ready(ep);
}

void rdmux_provider_failed(struct rdmux_provider_ep *ep, enum rdmux_status status, const char *text)
{
    fake_expect(status != RDMUX_OK);
    fake_expect(ep->ep->failed == RDMUX_OK); /* a path fails only once */
    ep->ep->failed = status;
    (void)snprintf(ep->ep->text, sizeof(ep->ep->text), "%s", text);
    rdmux_provider_ready(ep);
}

/* A program whose provider leaves its SRQs to the core has to define these itself. */
enum rdmux_status rdmux_software_srq_open(struct rdmux_provider_srq *srq, uint32_t depth,
                                          uint32_t max_sge)
{
    (void)srq;
    (void)depth;
    (void)max_sge;
    abort();
}

void rdmux_software_srq_close(struct rdmux_provider_srq *srq)
{
    (void)srq;
    abort();
}

enum rdmux_status rdmux_software_srq_post_recv(struct rdmux_provider_srq *srq,
                                               struct rdmux_request *requests, size_t count)
{
    (void)srq;
    (void)requests;
    (void)count;
    abort();
}

/* ------------------------------------------------------------------------------------- services */

void rdmux_provider_error(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(fake_error, sizeof(fake_error), format, arguments);
    va_end(arguments);
}

/* Ignores the log. */
void rdmux_provider_log(struct rdmux_fabric *fabric, enum rdmux_log_level level, const char *format,
                        ...)
{
    (void)fabric;
    (void)level;
    (void)format;
}

/* The fake fabric has no capture. */
void rdmux_capture_write(struct rdmux_fabric *fabric, int socket, enum rdmux_capture_way way,
                         const void *bytes, size_t kept, uint64_t length)
{
    (void)fabric;
    (void)socket;
    (void)way;
    (void)bytes;
    (void)kept;
    (void)length;
    abort();
}

void *rdmux_provider_allocate(struct rdmux_fabric *fabric, size_t size)
{
    fabric->allocations++;
    return fake_object(size);
}

void rdmux_provider_release(struct rdmux_fabric *fabric, void *memory)
{
    fabric->allocations -= memory != NULL;
    free(memory);
}

enum rdmux_status rdmux_provider_random(struct rdmux_fabric *fabric, void *out, size_t size)
{
    (void)fabric;
    fake_expect(getentropy(out, size) == 0);
    return RDMUX_OK;
}

uint64_t rdmux_provider_now_ns(struct rdmux_fabric *fabric)
{
    (void)fabric;
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* The other end checks these two bytes. */
void rdmux_provider_join(struct rdmux_provider_ep *ep, uint32_t index, uint8_t out[RDMUX_JOIN_SIZE])
{
    (void)ep;
    memset(out, 0, RDMUX_JOIN_SIZE);
    out[0] = 0xaa;
    out[1] = (uint8_t)index;
}

void rdmux_provider_secret(struct rdmux_provider_ep *ep, uint8_t out[RDMUX_SECRET_SIZE])
{
    static const uint8_t secret[RDMUX_SECRET_SIZE] = "shared secret";
    (void)ep;
    memcpy(out, secret, RDMUX_SECRET_SIZE);
}

void rdmux_provider_control_received(struct rdmux_provider_ep *ep, const void *frame, size_t size)
{
    struct rdmux_ep *core = ep->ep;
    fake_expect(size <= FAKE_CONTROL_MAX - core->control_size);
    memcpy(core->control + core->control_size, frame, size);
    core->control_size += size;
}

int rdmux_provider_mr_fd(const struct rdmux_provider_mr *mr)
{
    return mr->mr->memory_fd;
}

/* -------------------------------------------------------------------------------------- regions */

static inline struct rdmux_mr *fake_region_of(const uint8_t *key)
{
    return key[0] < FAKE_REGIONS_MAX && key[1] == fake_regions[key[0]].serial
               ? &fake_regions[key[0]]
               : NULL;
}

void rdmux_target_key(struct rdmux_provider_mr *mr, uint8_t out[RDMUX_TARGET_KEY_SIZE])
{
    memset(out, 0x5a, RDMUX_TARGET_KEY_SIZE);
    out[0] = (uint8_t)(mr->mr - fake_regions);
    out[1] = (uint8_t)mr->mr->serial;
}

enum rdmux_status rdmux_target_enter(struct rdmux_provider_ep *ep,
                                     const uint8_t key[RDMUX_TARGET_KEY_SIZE], uint64_t offset,
                                     uint64_t length, uint32_t access, void **addr)
{
    struct rdmux_mr *mr = fake_region_of(key);
    fake_expect(ep->cq->cq->entered == 0);
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
    fake_expect(ep->cq->cq->entered == 1);
    ep->cq->cq->entered--;
}

enum rdmux_status rdmux_target_atomic(struct rdmux_provider_ep *ep,
                                      const uint8_t key[RDMUX_TARGET_KEY_SIZE], uint32_t op,
                                      uint64_t offset, uint64_t operand, uint64_t expected,
                                      uint64_t *old)
{
    void *addr = NULL;
    enum rdmux_status status = rdmux_target_enter(ep, key, offset, sizeof(*old),
                                                  RDMUX_ACCESS_REMOTE_ATOMIC, &addr);
    if (status != RDMUX_OK) {
        return status;
    }
    rdmux_target_leave(ep);
    if ((uintptr_t)addr % sizeof(*old) != 0) {
        return RDMUX_INVALID;
    }
    memcpy(old, addr, sizeof(*old));
    uint64_t swapped = *old == expected ? operand : *old;
    uint64_t now = op == RDMUX_OP_FETCH_ADD ? *old + operand : swapped;
    memcpy(addr, &now, sizeof(now));
    return RDMUX_OK;
}

#endif
