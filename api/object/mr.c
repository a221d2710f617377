/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Memory regions, from registration to deregistration. mr_export.c has their tokens,
 * importers.c and revoke.c their importers and the revocation.
 *
 * A region is registered with every open domain of the fabric; a domain opened later registers all
 * living regions first (rdmux_mr_register_all). fabric->regions changes only under both setup_lock
 * and lock, so either lock keeps it stable.
 */
#include "api/object/mr.h"

#include "api/base/range.h"
#include "api/core/fabric.h"
#include "api/core/mr.h"
#include "api/object/mapping.h"
#include "api/object/mr_table.h"
#include "api/object/revoke.h"
#include "api/object/target.h"
#include "api/system/system.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define PAGE_SIZE_MAX (UINT64_C(1) << 40)

enum {
    ACCESS_WRITES = RDMUX_ACCESS_LOCAL_WRITE | RDMUX_ACCESS_READ_SINK,
    ACCESS_KNOWN = RDMUX_ACCESS_LOCAL_WRITE | RDMUX_MR_REMOTE_RIGHTS | RDMUX_ACCESS_READ_SINK |
                   RDMUX_ACCESS_NO_MAP | RDMUX_ACCESS_ATOMIC_DEVICE,
};

/* ---------------------------------------------------------------------------- memory of our own */

/* Returns the next smaller page size to try; 0 = the system's own. */
static uint64_t smaller_page(uint64_t page)
{
    static const uint64_t sizes[] = { UINT64_C(1) << 30, UINT64_C(2) << 20 };
    for (size_t i = 0; i < RDMUX_COUNT_OF(sizes); i++) {
        if (sizes[i] < page) {
            return sizes[i];
        }
    }
    return 0;
}

/* Maps *size bytes, rounded up to pages; page 0 = the system's own. NULL: errno tells why. */
static void *map_memory(struct rdmux_mr *mr, uint64_t page, size_t *size)
{
    const bool huge = page != 0;
    const size_t unit = huge ? (size_t)page : (size_t)sysconf(_SC_PAGESIZE);
    if (*size > SIZE_MAX / 2 - unit) {
        errno = ENOMEM;
        return NULL;
    }
    *size = (*size + unit - 1) / unit * unit;
    const bool is_private = (mr->access & RDMUX_ACCESS_NO_MAP) != 0;
    return rdmux_region_map(*size, page, is_private ? NULL : &mr->memory_fd);
}

/* Allocates the region's bytes with the requested page size, else with smaller pages. */
static enum rdmux_status allocate_memory(struct rdmux_mr *mr, const struct rdmux_mr_attr *attr)
{
    const uint64_t wished = attr->page_size > (uint64_t)sysconf(_SC_PAGESIZE) ? attr->page_size : 0;
    uint64_t page = wished;
    size_t size = attr->length;
    void *addr = map_memory(mr, page, &size);
    while (addr == NULL && page != 0) {
        page = smaller_page(page);
        size = attr->length;
        addr = map_memory(mr, page, &size);
    }
    if (addr == NULL) {
        return rdmux_fail(RDMUX_NO_MEMORY, "region: cannot allocate %zu bytes: %s%s", attr->length,
                          strerror(errno),
                          errno == EFBIG ? "; raise the limit on file sizes (ulimit -f)" : "");
    }
    mr->addr = addr;
    mr->mapped_size = size;
    if (wished != 0 && page == 0) {
        rdmux_region_prefer_huge(addr, size);
    }
    if (attr->numa_node != 0) {
        rdmux_region_prefer_node(addr, size, attr->numa_node - 1);
    }
    const bool writes = (mr->access & (RDMUX_ACCESS_REMOTE_WRITE | RDMUX_ACCESS_REMOTE_ATOMIC)) !=
                        0;
    if (mr->memory_fd >= 0 && rdmux_region_seal(mr->memory_fd, writes) != 0) {
        /* Without seals no peer may have the descriptor; the region works by copying. */
        rdmux_log(mr->fabric, RDMUX_LOG_DEBUG, "region: memfd not sealed: %s; peers cannot map it",
                  strerror(errno));
        close(mr->memory_fd);
        mr->memory_fd = -1;
    }
    return RDMUX_OK;
}

static void free_memory(struct rdmux_mr *mr)
{
    if (mr->allocated && mr->addr != NULL) {
        rdmux_region_unmap(mr->addr, mr->mapped_size);
    }
    if (mr->memory_fd >= 0) {
        close(mr->memory_fd);
    }
    rdmux_dmabuf_close(&mr->dmabuf);
}

int rdmux_provider_mr_fd(const struct rdmux_provider_mr *registration)
{
    return registration->mr->memory_fd;
}

/* -------------------------------------------------------------------------------- registrations */

/* Registers with one domain. setup_lock is held. */
static enum rdmux_status register_with(struct rdmux_mr *mr, struct rdmux_provider_domain *domain,
                                       struct rdmux_provider_mr **out)
{
    const struct rdmux_provider_ops *ops = domain->ops;
    struct rdmux_provider_mr *registration = rdmux_allocate(mr->fabric, ops->mr_size);
    if (registration == NULL) {
        (void)rdmux_fail(RDMUX_NO_MEMORY, "region: no memory for its registration with %s",
                         ops->name);
        return RDMUX_NO_MEMORY;
    }
    registration->domain = domain;
    registration->mr = mr;
    const struct rdmux_provider_mr_attr attr = {
        .addr = mr->addr,
        .length = mr->length,
        .access = mr->access,
        .ordering = mr->ordering,
        .memory_fd = mr->memory_fd,
        .dmabuf_fd = (uint32_t)(mr->dmabuf.fd + 1),
        .dmabuf_offset = mr->dmabuf_offset,
    };
    rdmux_error_clear();
    enum rdmux_status status = ops->mr_register(registration, &attr);
    if (status != RDMUX_OK) {
        rdmux_release(mr->fabric, registration);
        if (rdmux_last_error()[0] == '\0') {
            (void)rdmux_fail(status, "region: %s cannot register %zu bytes: %s", ops->name,
                             mr->length, rdmux_status_name(status));
        }
        return status;
    }
    *out = registration;
    return RDMUX_OK;
}

/* Deregisters with the provider and frees the registration. */
static void drop_registration(struct rdmux_provider_mr *registration)
{
    struct rdmux_fabric *fabric = registration->mr->fabric;
    const struct rdmux_provider_ops *ops = registration->domain->ops;
    ops->mr_deregister(registration);
    rdmux_release(fabric, registration);
}

/* Drops all registrations of a region that no other thread can reach. Keeps the error text of the
 * failure that it may undo. */
static void drop_registrations(struct rdmux_mr *mr)
{
    size_t count = atomic_load_explicit(&mr->registration_count, memory_order_relaxed);
    while (count-- > 0) {
        drop_registration(mr->registrations[count].mr);
    }
    atomic_store_explicit(&mr->registration_count, 0, memory_order_relaxed);
}

/* Makes a registration visible to the data path. setup_lock is held, or no other thread has the
 * region yet. */
static void publish_registration(struct rdmux_mr *mr, struct rdmux_provider_mr *registration)
{
    size_t count = atomic_load_explicit(&mr->registration_count, memory_order_relaxed);
    mr->registrations[count].domain = registration->domain;
    mr->registrations[count].mr = registration;
    atomic_store_explicit(&mr->registration_count, count + 1,
                          memory_order_release); /* rdmux_mr_with() acquires */
}

enum rdmux_status rdmux_mr_register_all(struct rdmux_fabric *fabric,
                                        struct rdmux_provider_domain *domain)
{
    size_t count = 0;
    for (struct rdmux_list *at = fabric->regions.next; at != &fabric->regions; at = at->next) {
        count++;
    }
    if (count == 0) {
        return RDMUX_OK;
    }
    /* No registration is published before all exist, so the data path never sees one that is
     * undone. */
    struct rdmux_provider_mr **made = rdmux_allocate(fabric,
                                                     count * sizeof(struct rdmux_provider_mr *));
    if (made == NULL) {
        return rdmux_fail(RDMUX_NO_MEMORY, "%s: no memory for %zu registrations", domain->ops->name,
                          count);
    }
    size_t done = 0;
    enum rdmux_status status = RDMUX_OK;
    for (struct rdmux_list *at = fabric->regions.next; at != &fabric->regions; at = at->next) {
        status = register_with(RDMUX_CONTAINER(at, struct rdmux_mr, link), domain, &made[done]);
        if (status != RDMUX_OK) {
            break;
        }
        done++;
    }
    if (status == RDMUX_OK) {
        for (size_t i = 0; i < done; i++) {
            publish_registration(made[i]->mr, made[i]);
        }
    } else {
        while (done-- > 0) {
            drop_registration(made[done]);
        }
    }
    rdmux_release(fabric, made);
    return status;
}

void rdmux_mr_domain_gone(struct rdmux_fabric *fabric, struct rdmux_provider_domain *domain)
{
    for (struct rdmux_list *at = fabric->regions.next; at != &fabric->regions; at = at->next) {
        struct rdmux_mr *mr = RDMUX_CONTAINER(at, struct rdmux_mr, link);
        size_t count = atomic_load_explicit(&mr->registration_count, memory_order_relaxed);
        for (size_t i = 0; i < count; i++) {
            struct rdmux_provider_mr *registration = mr->registrations[i].mr;
            if (registration->domain == domain) {
                mr->registrations[i] = mr->registrations[count - 1];
                atomic_store_explicit(&mr->registration_count, count - 1, memory_order_relaxed);
                drop_registration(registration);
                break;
            }
        }
    }
}

/* ------------------------------------------------------------------------------------- creation */

static enum rdmux_status check_mr_attr(const struct rdmux_mr_attr *attr)
{
    if ((attr->access & ~(uint32_t)ACCESS_KNOWN) != 0) {
        return rdmux_fail(RDMUX_INVALID, "region: unknown access bits 0x%x",
                          attr->access & ~(uint32_t)ACCESS_KNOWN);
    }
    if (attr->length == 0) {
        return rdmux_fail(RDMUX_INVALID, "region: length 0; a region has at least 1 byte");
    }
    if (attr->length - 1 > UINTPTR_MAX - (uintptr_t)attr->addr) {
        return rdmux_fail(RDMUX_INVALID,
                          "region: length of %zu bytes at addr %p ends beyond the address space",
                          attr->length, attr->addr);
    }
    if (attr->dmabuf_fd == 0 && attr->dmabuf_offset != 0) {
        return rdmux_fail(RDMUX_INVALID, "region: dmabuf_offset %llu without dmabuf_fd",
                          (unsigned long long)attr->dmabuf_offset);
    }
    if (attr->dmabuf_fd != 0 &&
        (attr->addr != NULL || attr->page_size != 0 || attr->numa_node != 0)) {
        return rdmux_fail(RDMUX_INVALID,
                          "region: %s with dmabuf_fd; the dma-buf has the bytes, and maps them",
                          attr->addr != NULL     ? "addr"
                          : attr->page_size != 0 ? "page_size"
                                                 : "numa_node");
    }
    if (attr->ordering > RDMUX_ORDERING_RELAXED) {
        return rdmux_fail(RDMUX_INVALID, "region: unknown ordering %u", attr->ordering);
    }
    if ((attr->access & RDMUX_ACCESS_REMOTE_ATOMIC) != 0) {
        if (attr->ordering == RDMUX_ORDERING_RELAXED) {
            return rdmux_fail(RDMUX_INVALID, "region: relaxed ordering and remote atomics exclude "
                                             "each other; register the atomic words apart");
        }
        if ((uintptr_t)attr->addr % sizeof(uint64_t) != 0) {
            return rdmux_fail(RDMUX_INVALID,
                              "region: addr %p is not 8-byte aligned, as remote atomics demand",
                              attr->addr);
        }
    }
    if ((attr->page_size & (attr->page_size - 1)) != 0 || attr->page_size > PAGE_SIZE_MAX) {
        return rdmux_fail(RDMUX_INVALID, "region: page_size %llu is no size of pages",
                          (unsigned long long)attr->page_size);
    }
    return RDMUX_OK;
}

/* Registers the region with all open domains, except those whose device has gone, and adds it to
 * the fabric. */
static enum rdmux_status enter_fabric(struct rdmux_fabric *fabric, struct rdmux_mr *mr)
{
    pthread_mutex_lock(&fabric->setup_lock);
    enum rdmux_status status = RDMUX_OK;
    for (size_t i = 0; i < fabric->domain_count && status == RDMUX_OK; i++) {
        struct rdmux_provider_mr *registration = NULL;
        if (atomic_load(&fabric->domains[i].is_gone)) {
            continue;
        }
        status = register_with(mr, fabric->domains[i].domain, &registration);
        if (status == RDMUX_OK) {
            publish_registration(mr, registration);
        }
    }
    if (status == RDMUX_OK && rdmux_span_index_reserve(fabric->spans) != RDMUX_OK) {
        status = rdmux_fail(RDMUX_NO_MEMORY, "region: no memory for the index of regions");
    }
    if (status == RDMUX_OK) {
        pthread_mutex_lock(&fabric->lock);
        if ((mr->access & RDMUX_MR_REMOTE_RIGHTS) != 0) {
            status = rdmux_region_table_add(fabric, mr);
        }
        if (status == RDMUX_OK) {
            rdmux_mr_table_add(fabric, mr);
        }
        pthread_mutex_unlock(&fabric->lock);
    }
    if (status == RDMUX_OK) {
        const uintptr_t first = (uintptr_t)mr->addr;
        rdmux_span_index_add(
            fabric->spans, &(struct rdmux_span){ first, first + (mr->length - 1), mr->access, mr });
    }
    if (status != RDMUX_OK) {
        drop_registrations(mr);
    }
    pthread_mutex_unlock(&fabric->setup_lock);
    return status;
}

/* Waits for a region use the system's clock, whatever the fabric's clock hook returns. */
static bool make_condition(pthread_cond_t *condition)
{
    pthread_condattr_t attributes;
    if (pthread_condattr_init(&attributes) != 0) {
        return false;
    }
    bool made = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) == 0 &&
                pthread_cond_init(condition, &attributes) == 0;
    pthread_condattr_destroy(&attributes);
    return made;
}

/* Takes the region's bytes: the caller's, a dma-buf's, or new ones. On failure it takes nothing. */
static enum rdmux_status take_memory(struct rdmux_mr *mr, const struct rdmux_mr_attr *attr)
{
    const bool writes = (mr->access & ACCESS_WRITES) != 0;
    if (attr->dmabuf_fd != 0) {
        enum rdmux_status status = rdmux_dmabuf_open(attr, writes, &mr->dmabuf);
        mr->addr = mr->dmabuf.addr;
        mr->dmabuf_offset = attr->dmabuf_offset;
        return status;
    }
    if (attr->addr != NULL) {
        mr->addr = attr->addr;
        return rdmux_mapping_check(mr->addr, mr->length, writes);
    }
    mr->allocated = true;
    return allocate_memory(mr, attr);
}

static enum rdmux_status create_region(struct rdmux_fabric *fabric,
                                       const struct rdmux_mr_attr *attr, struct rdmux_mr **out)
{
    if (*fabric->alive == 0) {
        return rdmux_fail(RDMUX_INVALID, "region: the fabric belongs to the process before fork");
    }
    enum rdmux_status status = check_mr_attr(attr);
    if (status != RDMUX_OK) {
        return status;
    }
    struct rdmux_mr *mr = rdmux_allocate(fabric, sizeof(*mr));
    if (mr == NULL) {
        return rdmux_fail(RDMUX_NO_MEMORY, "region: no memory for the object");
    }
    mr->fabric = fabric;
    mr->length = attr->length;
    mr->access = attr->access;
    mr->ordering = attr->ordering;
    mr->memory_fd = -1;
    mr->dmabuf.fd = -1;
    mr->id = atomic_fetch_add(&fabric->next_id, 1);
    rdmux_list_init(&mr->link);
    rdmux_list_init(&mr->importers);
    if ((mr->access & (RDMUX_ACCESS_REMOTE_WRITE | RDMUX_ACCESS_REMOTE_ATOMIC)) != 0) {
        mr->access |= RDMUX_ACCESS_LOCAL_WRITE;
    }
    if (!make_condition(&mr->changed)) {
        status = rdmux_fail(RDMUX_NO_MEMORY, "region: no memory for its condition variable");
        goto release;
    }
    status = take_memory(mr, attr);
    if (status != RDMUX_OK) {
        goto destroy_condition;
    }
    status = enter_fabric(fabric, mr);
    if (status != RDMUX_OK) {
        goto free_memory;
    }
    *out = mr;
    return RDMUX_OK;

free_memory:
    free_memory(mr);
destroy_condition:
    pthread_cond_destroy(&mr->changed);
release:
    rdmux_release(fabric, mr);
    return status;
}

enum rdmux_status rdmux_mr_create(struct rdmux_fabric *fabric, const struct rdmux_mr_attr *attr,
                                  struct rdmux_mr **out)
{
    if (out != NULL) {
        *out = NULL;
    }
    if (fabric == NULL || attr == NULL || out == NULL) {
        return rdmux_mr_null_argument("rdmux_mr_create", fabric == NULL ? "fabric"
                                                         : attr == NULL ? "attr"
                                                                        : "out");
    }
    if (attr->size < offsetof(struct rdmux_mr_attr, length) + sizeof(attr->length)) {
        return rdmux_fail(RDMUX_INVALID, "region: attr.size %u; set it by RDMUX_MR_ATTR_INIT",
                          attr->size);
    }
    struct rdmux_mr_attr full = RDMUX_MR_ATTR_INIT;
    memcpy(&full, attr, attr->size < sizeof(full) ? attr->size : sizeof(full));
    return create_region(fabric, &full, out);
}

enum rdmux_status rdmux_mr_register(struct rdmux_fabric *fabric, void *addr, size_t length,
                                    uint32_t access, struct rdmux_mr **out)
{
    if (out != NULL) {
        *out = NULL;
    }
    if (fabric == NULL || addr == NULL || out == NULL) {
        return rdmux_mr_null_argument("rdmux_mr_register", fabric == NULL ? "fabric"
                                                           : addr == NULL ? "addr"
                                                                          : "out");
    }
    struct rdmux_mr_attr attr = RDMUX_MR_ATTR_INIT;
    attr.addr = addr;
    attr.length = length;
    attr.access = access;
    return create_region(fabric, &attr, out);
}

enum rdmux_status rdmux_mr_alloc(struct rdmux_fabric *fabric, size_t length, uint32_t access,
                                 struct rdmux_mr **out)
{
    if (out != NULL) {
        *out = NULL;
    }
    if (fabric == NULL || out == NULL) {
        return rdmux_mr_null_argument("rdmux_mr_alloc", fabric == NULL ? "fabric" : "out");
    }
    struct rdmux_mr_attr attr = RDMUX_MR_ATTR_INIT;
    attr.length = length;
    attr.access = access;
    return create_region(fabric, &attr, out);
}

void *rdmux_mr_addr(const struct rdmux_mr *mr)
{
    return mr != NULL ? mr->addr : NULL;
}

size_t rdmux_mr_length(const struct rdmux_mr *mr)
{
    return mr != NULL ? mr->length : 0;
}

/* ----------------------------------------------------------------------------------- revocation */

enum rdmux_status rdmux_mr_revoke(struct rdmux_mr *mr)
{
    if (mr == NULL) {
        return rdmux_mr_null_argument("rdmux_mr_revoke", "mr");
    }
    if (*mr->fabric->alive == 0) {
        return rdmux_fail(RDMUX_INVALID, "revoke: the region belongs to the process before fork");
    }
    mr->is_suspended = false; /* there is no token that it concerns */
    return rdmux_mr_take_back(mr, true);
}

/* A device checks its keys itself, and has no means to disregard one for a while. */
static const char *device_of(const struct rdmux_mr *mr)
{
    const size_t count = atomic_load_explicit(&mr->registration_count, memory_order_acquire);
    for (size_t i = 0; i < count; i++) {
        const struct rdmux_provider_ops *ops = mr->registrations[i].domain->ops;
        if ((ops->flags & RDMUX_PROVIDER_LOCAL_KEYS) != 0) {
            return ops->name;
        }
    }
    return NULL;
}

enum rdmux_status rdmux_mr_suspend(struct rdmux_mr *mr)
{
    if (mr == NULL) {
        return rdmux_mr_null_argument("rdmux_mr_suspend", "mr");
    }
    if (*mr->fabric->alive == 0 || mr->is_suspended) {
        return rdmux_fail(RDMUX_INVALID, "suspend: the region %s",
                          mr->is_suspended ? "is suspended already"
                                           : "belongs to the process before fork");
    }
    const char *device = device_of(mr);
    if (device != NULL) {
        return rdmux_fail(RDMUX_UNSUPPORTED,
                          "suspend: a device of %s has keys of the region; revoke it instead",
                          device);
    }
    rdmux_region_table_suspend(mr->fabric, mr);
    mr->is_suspended = true;
    return RDMUX_OK;
}

enum rdmux_status rdmux_mr_resume(struct rdmux_mr *mr, size_t offset, size_t length)
{
    if (mr == NULL) {
        return rdmux_mr_null_argument("rdmux_mr_resume", "mr");
    }
    if (*mr->fabric->alive == 0 || !mr->is_suspended) {
        return rdmux_fail(RDMUX_INVALID, "resume: the region %s",
                          mr->is_suspended ? "belongs to the process before fork"
                                           : "is not suspended");
    }
    if (length == 0 || !rdmux_is_within(offset, length, mr->length)) {
        return rdmux_fail(RDMUX_INVALID, "resume: %zu bytes at %zu are not %s region of %zu",
                          length, offset, length == 0 ? "a part of the" : "within the", mr->length);
    }
    rdmux_region_table_resume(mr->fabric, mr, offset, length);
    mr->is_suspended = false;
    return RDMUX_OK;
}

void rdmux_mr_deregister(struct rdmux_mr *mr)
{
    if (mr == NULL || *mr->fabric->alive == 0) {
        return;
    }
    struct rdmux_fabric *fabric = mr->fabric;
    (void)rdmux_mr_take_back(mr, false);
    pthread_mutex_lock(&fabric->setup_lock);
    rdmux_span_index_remove(fabric->spans, (uintptr_t)mr->addr, mr);
    pthread_mutex_lock(&fabric->lock);
    rdmux_mr_table_remove(fabric, mr);
    pthread_mutex_unlock(&fabric->lock);
    pthread_mutex_unlock(&fabric->setup_lock);
    drop_registrations(mr);
    free_memory(mr);
    rdmux_secret_release(fabric, mr->secrets);
    pthread_cond_destroy(&mr->changed);
    rdmux_release(fabric, mr);
}

/* -------------------------------------------------------------------------------------- finding */

struct rdmux_mr *rdmux_mr_find(struct rdmux_fabric *fabric, const void *addr, size_t length,
                               uint32_t access)
{
    if (fabric == NULL || addr == NULL) {
        (void)rdmux_mr_null_argument("rdmux_mr_find", fabric == NULL ? "fabric" : "addr");
        return NULL;
    }
    if (*fabric->alive == 0) {
        (void)rdmux_fail(RDMUX_INVALID,
                         "rdmux_mr_find: the fabric belongs to the process before fork");
        return NULL;
    }
    if (length == 0 || length - 1 > UINTPTR_MAX - (uintptr_t)addr) {
        (void)rdmux_fail(
            RDMUX_INVALID,
            "rdmux_mr_find: length of %zu bytes at addr %p is none, or ends beyond the "
            "address space",
            length, addr);
        return NULL;
    }
    if ((access & ~(uint32_t)ACCESS_KNOWN) != 0) {
        (void)rdmux_fail(RDMUX_INVALID, "rdmux_mr_find: unknown access bits 0x%x",
                         access & ~(uint32_t)ACCESS_KNOWN);
        return NULL;
    }
    const uintptr_t first = (uintptr_t)addr;
    return rdmux_span_index_find(fabric->spans, first, first + (length - 1), access, NULL);
}

struct rdmux_mr *rdmux_mr_of(struct rdmux_fabric *fabric,
                             const struct rdmux_provider_mr *registration)
{
    struct rdmux_mr *found = NULL;
    pthread_mutex_lock(&fabric->lock);
    for (struct rdmux_list *at = fabric->regions.next; at != &fabric->regions && found == NULL;
         at = at->next) {
        struct rdmux_mr *mr = RDMUX_CONTAINER(at, struct rdmux_mr, link);
        if (rdmux_mr_with(mr, registration->domain) == registration) {
            found = mr;
        }
    }
    pthread_mutex_unlock(&fabric->lock);
    return found;
}

bool rdmux_mr_is_there(struct rdmux_fabric *fabric, const struct rdmux_mr *mr)
{
    bool found = false;
    pthread_mutex_lock(&fabric->lock);
    for (struct rdmux_list *at = fabric->regions.next; at != &fabric->regions && !found;
         at = at->next) {
        found = RDMUX_CONTAINER(at, struct rdmux_mr, link) == mr;
    }
    pthread_mutex_unlock(&fabric->lock);
    return found;
}
