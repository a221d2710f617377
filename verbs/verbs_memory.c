/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Regions. A region with remote rights is registered twice. The local key lives as long as the
 * region; the remote key has exactly the rights exported and dies on revocation. For the peer the
 * region begins at a random address: a device may reuse keys, so a new key with an old address must
 * reach nothing.
 */
#include "verbs/verbs_memory.h"

#include "verbs/verbs_description.h"
#include "verbs/verbs_domain.h"
#include "verbs/verbs_endpoint.h"
#include "verbs/verbs_transport.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

static_assert(offsetof(struct verbs_mr, base) == 0, "verbs_mr_of() relies on it");
static_assert(offsetof(struct verbs_remote, base) == 0, "verbs_remote_of() relies on it");

/* The low bits of both addresses agree, so that the device can use the memory's large pages. */
#define SAME_BITS 30
#define RANDOM_BITS 32

static const char
    raise_limit[] = "raise the limit: ulimit -l, LimitMEMLOCK= in systemd, memlock in limits.conf";

static size_t whole_pages(size_t size)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (size + page - 1) / page * page;
}

void *rdmux_verbs_pages_map(size_t size)
{
    void *pages = mmap(NULL, whole_pages(size), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                       -1, 0);
    return pages == MAP_FAILED ? NULL : pages;
}

void rdmux_verbs_pages_unmap(void *pages, size_t size)
{
    if (pages != NULL) {
        (void)munmap(pages, whole_pages(size));
    }
}

/* Returns the bytes that this process has pinned; 0 if /proc does not tell. */
static unsigned long long pinned_now(void)
{
    char text[4096];
    FILE *file = fopen("/proc/self/status", "re");
    if (file == NULL) {
        return 0;
    }
    size_t got = fread(text, 1, sizeof(text) - 1, file);
    (void)fclose(file);
    text[got] = '\0';
    const char *line = strstr(text, "VmPin:");
    return line == NULL ? 0 : strtoull(line + sizeof("VmPin:") - 1, NULL, 10) * 1024;
}

static enum rdmux_status say_pin_failed(const struct verbs_domain *domain, const char *what,
                                        uint64_t length, unsigned copies, int error)
{
    struct rlimit limit = { 0 };
    bool is_limited = getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
    if (error == ENOMEM && is_limited) {
        unsigned long long needed = whole_pages(length) * copies;
        unsigned long long pinned = pinned_now();
        rdmux_provider_error("%s: %s of %llu bytes cannot be pinned: it needs %llu bytes of locked "
                             "memory and %llu are in use, %llu together; the limit is %llu; %s",
                             domain->device, what, (unsigned long long)length, needed, pinned,
                             needed + pinned, (unsigned long long)limit.rlim_cur, raise_limit);
        return RDMUX_NO_MEMORY;
    }
    rdmux_provider_error("%s: %s of %llu bytes cannot be registered: %s%s", domain->device, what,
                         (unsigned long long)length, strerror(error),
                         error == EFAULT ? "; is it mapped, and writable where it is to be written?"
                                         : "");
    return error == ENOMEM ? RDMUX_NO_MEMORY : RDMUX_IO;
}

enum rdmux_status rdmux_verbs_pin(struct verbs_domain *domain, const char *what, void *addr,
                                  uint64_t length, uint64_t iova, int access, unsigned copies,
                                  struct ibv_mr **out)
{
    errno = 0;
    struct ibv_mr *mr = ibv_reg_mr_iova2(domain->pd, addr, length, iova, (unsigned)access);
    if (mr == NULL) {
        return say_pin_failed(domain, what, length, copies, errno != 0 ? errno : EIO);
    }
    *out = mr;
    return RDMUX_OK;
}

/* ---------------------------------------------------------------------------------- registering */

/* AMD's root complexes gain from relaxed ordering; old Intel ones lose a lot. */
static bool relaxed_order_helps(void)
{
#if defined(__x86_64__) && defined(__GNUC__)
    return __builtin_cpu_is("amd") != 0;
#else
    return false;
#endif
}

static int ordering_bits(const struct rdmux_provider_mr_attr *attr)
{
    bool is_relaxed = attr->ordering == RDMUX_ORDERING_RELAXED ||
                      (attr->ordering == RDMUX_ORDERING_DEFAULT && relaxed_order_helps());
    bool has_atomics = (attr->access & RDMUX_ACCESS_REMOTE_ATOMIC) != 0;
    return is_relaxed && !has_atomics ? IBV_ACCESS_RELAXED_ORDERING : 0;
}

static bool atomics_are_native(const struct verbs_domain *domain, uint32_t access)
{
    enum ibv_atomic_cap cap = domain->attr.atomic_cap;
    return (access & RDMUX_ACCESS_ATOMIC_DEVICE) != 0 ? cap != IBV_ATOMIC_NONE
                                                      : cap == IBV_ATOMIC_GLOB;
}

static int remote_bits(const struct verbs_domain *domain, const struct rdmux_provider_mr_attr *attr)
{
    int bits = 0;
    if ((attr->access & RDMUX_ACCESS_REMOTE_READ) != 0) {
        bits |= IBV_ACCESS_REMOTE_READ;
    }
    if ((attr->access & RDMUX_ACCESS_REMOTE_WRITE) != 0) {
        bits |= IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_LOCAL_WRITE;
    }
    if ((attr->access & RDMUX_ACCESS_REMOTE_ATOMIC) != 0 &&
        atomics_are_native(domain, attr->access)) {
        bits |= IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_LOCAL_WRITE;
    }
    return bits == 0 ? 0 : bits | ordering_bits(attr);
}

static enum rdmux_status random_address(struct verbs_mr *mr, uint64_t *out)
{
    struct verbs_domain *domain = verbs_domain_of(mr->base.domain);
    *out = (uintptr_t)mr->addr;
    if (domain->keeps_address) {
        return RDMUX_OK;
    }
    uint32_t high = 0;
    enum rdmux_status status = rdmux_provider_random(domain->base.fabric, &high, sizeof(high));
    _Static_assert(sizeof(high) * 8 == RANDOM_BITS && RANDOM_BITS + SAME_BITS < 63,
                   "a region at such an address does not wrap");
    *out = (uint64_t)high << SAME_BITS | (*out & ((UINT64_C(1) << SAME_BITS) - 1));
    return status;
}

/* Registers bytes of a dma-buf, whose pages its own driver keeps. */
static enum rdmux_status pin_dmabuf(const struct verbs_mr *mr, uint64_t iova, int access,
                                    struct ibv_mr **out)
{
    const struct verbs_domain *domain = verbs_domain_of(mr->base.domain);
    errno = 0;
    *out = ibv_reg_dmabuf_mr(domain->pd, mr->dmabuf_offset, mr->length, iova,
                             (int)(mr->dmabuf_fd - 1), access);
    if (*out != NULL) {
        return RDMUX_OK;
    }
    int error = errno != 0 ? errno : EIO;
    bool lacks = error == EOPNOTSUPP || error == ENOSYS || error == EPROTONOSUPPORT;
    rdmux_provider_error("%s: region of %llu bytes of a dma-buf cannot be registered: %s%s",
                         domain->device, (unsigned long long)mr->length, strerror(error),
                         lacks ? "; the adapter or its driver takes no dma-bufs: leave its paths "
                                 "out (attr.paths), or copy"
                               : "");
    return lacks ? RDMUX_UNSUPPORTED : error == ENOMEM ? RDMUX_NO_MEMORY : RDMUX_IO;
}

/* copies: see rdmux_verbs_pin(). */
static enum rdmux_status pin_region(struct verbs_mr *mr, uint64_t iova, int access, unsigned copies,
                                    struct ibv_mr **out)
{
    return mr->dmabuf_fd != 0 ? pin_dmabuf(mr, iova, access, out)
                              : rdmux_verbs_pin(verbs_domain_of(mr->base.domain), "region",
                                                mr->addr, mr->length, iova, access, copies, out);
}

/* Registers the region for the peer: a new key and address. */
static enum rdmux_status make_remote_key(struct verbs_mr *mr, struct ibv_mr **out, uint64_t *iova)
{
    enum rdmux_status status = random_address(mr, iova);
    if (status != RDMUX_OK) {
        rdmux_provider_error("region: no random numbers to be had");
        return status;
    }
    return pin_region(mr, *iova, mr->remote_access, 1, out);
}

enum rdmux_status rdmux_verbs_mr_register(struct rdmux_provider_mr *base,
                                          const struct rdmux_provider_mr_attr *attr)
{
    struct verbs_mr *mr = verbs_mr_of(base);
    struct verbs_domain *domain = verbs_domain_of(base->domain);
    const uint32_t writable = RDMUX_ACCESS_LOCAL_WRITE | RDMUX_ACCESS_REMOTE_WRITE |
                              RDMUX_ACCESS_REMOTE_ATOMIC;
    mr->addr = attr->addr;
    mr->length = attr->length;
    mr->access = attr->access;
    mr->dmabuf_fd = attr->dmabuf_fd;
    mr->dmabuf_offset = attr->dmabuf_fd != 0 ? attr->dmabuf_offset : 0; /* an older core has none */
    mr->remote_access = remote_bits(domain, attr);
    int local = ((attr->access & writable) != 0 ? IBV_ACCESS_LOCAL_WRITE : 0) | ordering_bits(attr);
    if ((local & IBV_ACCESS_LOCAL_WRITE) != 0 && (attr->access & RDMUX_ACCESS_READ_SINK) != 0) {
        local |= domain->transport->sink_access;
    }
    enum rdmux_status status = pin_region(mr, (uintptr_t)mr->addr, local,
                                          mr->remote_access != 0 ? 2 : 1, &mr->local);
    if (status != RDMUX_OK || mr->remote_access == 0) {
        return status;
    }
    status = make_remote_key(mr, &mr->remote, &mr->iova);
    if (status != RDMUX_OK) {
        (void)ibv_dereg_mr(mr->local);
        mr->local = NULL;
    }
    return status;
}

static void drop_registration(struct verbs_mr *mr, struct ibv_mr **registration)
{
    if (*registration == NULL) {
        return;
    }
    int error = ibv_dereg_mr(*registration);
    if (error != 0) {
        rdmux_provider_log(mr->base.domain->fabric, RDMUX_LOG_ERROR,
                           "%s: a region cannot be deregistered: %s; its memory stays pinned",
                           verbs_domain_of(mr->base.domain)->device, strerror(error));
    }
    *registration = NULL;
}

void rdmux_verbs_mr_deregister(struct rdmux_provider_mr *base)
{
    struct verbs_mr *mr = verbs_mr_of(base);
    drop_registration(mr, &mr->remote);
    drop_registration(mr, &mr->local);
}

enum rdmux_status rdmux_verbs_mr_invalidate(struct rdmux_provider_mr *base)
{
    struct verbs_mr *mr = verbs_mr_of(base);
    if (mr->remote_access == 0) {
        return RDMUX_OK;
    }
    int error = mr->remote == NULL ? 0 : ibv_dereg_mr(mr->remote);
    if (error != 0) {
        rdmux_provider_error("%s: the key of a region cannot be taken back: %s",
                             verbs_domain_of(base->domain)->device, strerror(error));
        return RDMUX_IO;
    }
    mr->remote = NULL;
    if (make_remote_key(mr, &mr->remote, &mr->iova) != RDMUX_OK) {
        rdmux_provider_log(base->domain->fabric, RDMUX_LOG_WARN,
                           "%s: no new key for a region that was revoked; it cannot be imported",
                           verbs_domain_of(base->domain)->device);
    }
    return RDMUX_OK;
}

/* --------------------------------------------------------------------------------- descriptions */

enum rdmux_status rdmux_verbs_mr_describe(struct rdmux_provider_mr *base,
                                          struct rdmux_provider_ep *ep, uint8_t *out, size_t *size)
{
    (void)ep;
    const struct verbs_mr *mr = verbs_mr_of(base);
    struct verbs_region region = { .flags = 0 };
    if (*size < VERBS_REGION_SIZE) {
        rdmux_provider_error("region: its description needs %d bytes", VERBS_REGION_SIZE);
        return RDMUX_INVALID;
    }
    if (mr->remote != NULL) {
        region.flags |= VERBS_REGION_HAS_KEY;
        region.rkey = mr->remote->rkey;
        region.addr = mr->iova;
    } else if (mr->remote_access != 0) {
        rdmux_provider_error("%s: the region has had no key since it was revoked: %s",
                             verbs_domain_of(base->domain)->device, raise_limit);
        return RDMUX_NO_MEMORY;
    }
    const bool has_native = (mr->remote_access & IBV_ACCESS_REMOTE_ATOMIC) != 0;
    const bool is_system = (mr->access & RDMUX_ACCESS_ATOMIC_DEVICE) == 0;
    if (has_native) {
        region.flags |= VERBS_REGION_NATIVE_ATOMICS;
    }
    /* Native atomics of system scope hold for the CPU, too, so an importer whose device has none
     * may ask the library. */
    if ((mr->access & RDMUX_ACCESS_REMOTE_ATOMIC) != 0 && (!has_native || is_system)) {
        region.flags |= VERBS_REGION_LIBRARY_ATOMICS;
        rdmux_target_key(base, region.key);
    }
    rdmux_verbs_region_encode(&region, out);
    *size = VERBS_REGION_SIZE;
    return RDMUX_OK;
}

enum rdmux_status rdmux_verbs_remote_open(struct rdmux_provider_remote *base,
                                          const uint8_t *description, size_t size)
{
    struct verbs_remote *remote = verbs_remote_of(base);
    const struct verbs_ep *ep = verbs_ep_of(base->ep);
    const uint32_t by_key = RDMUX_ACCESS_REMOTE_READ | RDMUX_ACCESS_REMOTE_WRITE;
    enum rdmux_status status = rdmux_verbs_region_decode(description, size, base->length,
                                                         &remote->region);
    const uint32_t flags = remote->region.flags;
    if (status != RDMUX_OK ||
        ((base->access & by_key) != 0 && (flags & VERBS_REGION_HAS_KEY) == 0)) {
        rdmux_provider_error("%s: the peer's description of a region, %zu bytes, makes no sense",
                             ep->transport->name, size);
        return RDMUX_PROTOCOL;
    }
    bool can_native = (flags & VERBS_REGION_NATIVE_ATOMICS) != 0 &&
                      verbs_domain_of_ep(ep)->attr.atomic_cap != IBV_ATOMIC_NONE;
    bool can_ask = (flags & VERBS_REGION_LIBRARY_ATOMICS) != 0 && ep->side.queue.qp != NULL &&
                   ep->theirs.side_qpn != 0;
    if (!can_native) {
        remote->region.flags &= ~(uint32_t)VERBS_REGION_NATIVE_ATOMICS;
    }
    if (!can_native && !can_ask) {
        base->access &= ~(uint32_t)RDMUX_ACCESS_REMOTE_ATOMIC;
    }
    return RDMUX_OK;
}

void rdmux_verbs_remote_close(struct rdmux_provider_remote *remote)
{
    (void)remote;
}
