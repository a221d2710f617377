/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Memory regions. One with remote rights is a region of rdmux and a slot of the domain's directory.
 *
 * ofi_rxm registers the buffer of each long message anew. So a closed region of a path in software
 * is kept for a while: suspended, so that no peer reaches its bytes, which the application may
 * unmap, and resumed if the application registers bytes within it again. Its key, its token, and
 * the peers' imports of it stay the same. At last a thread of its own takes it back, as that waits
 * for the importers. Regions of RDMA devices have their pages pinned, and are never kept.
 */
#include "adapters/fi/fi_internal.h"

#include <stdlib.h>
#include <string.h>

enum { IDLE_MAX = 64 };

/* ------------------------------------------------------------------------------ the directory */

/* memory_lock is held. */
static void write_slot(struct fi_rdmux_domain *domain, const struct fi_region *region,
                       const struct rdmux_token *token)
{
    const struct rdmux_fi_slot slot = {
        .key = region->key,
        .address = region->base,
        .length = region->length,
        .access = region->access & (RDMUX_ACCESS_REMOTE_READ | RDMUX_ACCESS_REMOTE_WRITE),
        .token = *token,
    };
    rdmux_fi_slot_encode(&slot,
                         domain->slots + (size_t)rdmux_fi_key_slot(region->key) * FI_SLOT_SIZE);
}

static void free_slot(struct fi_rdmux_domain *domain, const struct fi_region *region)
{
    const uint32_t slot = rdmux_fi_key_slot(region->key);
    explicit_bzero(domain->slots + (size_t)slot * FI_SLOT_SIZE, FI_SLOT_SIZE);
    domain->free_slots[domain->free_count++] = (uint16_t)slot;
}

/* ----------------------------------------------------------------------------- making, ending */

static struct fi_region *make_region(struct fi_rdmux_domain *domain, void *base, size_t length,
                                     uint32_t access, int *error)
{
    struct fi_region *region = calloc(1, sizeof(*region));
    struct rdmux_token token;
    if (region == NULL) {
        *error = -FI_ENOMEM;
        return NULL;
    }
    fi_link_init(&region->link);
    region->base = (uintptr_t)base;
    region->length = length;
    region->access = access;
    enum rdmux_status status = rdmux_mr_register(domain->fabric->rdmux, base, length, access,
                                                 &region->mr);
    if (status == RDMUX_OK) {
        status = rdmux_mr_export(region->mr, &token);
    }
    *error = rdmux_fi_error(status);
    if (status == RDMUX_OK) {
        (void)pthread_mutex_lock(&domain->memory_lock);
        if (domain->free_count == 0) {
            *error = -FI_ENOKEY;
        } else {
            const uint16_t slot = domain->free_slots[--domain->free_count];
            region->key = rdmux_fi_key_make(slot, ++domain->generations[slot]);
            write_slot(domain, region, &token);
        }
        (void)pthread_mutex_unlock(&domain->memory_lock);
        explicit_bzero(&token, sizeof(token));
        fi_attend(domain);
    }
    if (*error != 0) {
        FI_COMPLAIN(FI_LOG_MR, "%zu bytes: %s\n", length,
                    status == RDMUX_OK ? "too many regions" : rdmux_last_error());
        rdmux_mr_deregister(region->mr);
        free(region);
        return NULL;
    }
    return region;
}

/* Takes the region back. May sleep until the importers have answered. */
static void end_region(struct fi_rdmux_domain *domain, struct fi_region *region)
{
    rdmux_mr_deregister(region->mr);
    (void)pthread_mutex_lock(&domain->memory_lock);
    free_slot(domain, region);
    (void)pthread_mutex_unlock(&domain->memory_lock);
    free(region);
}

/* ----------------------------------------------------------------------------------- the reaper */

static void *reap(void *user)
{
    struct fi_rdmux_domain *domain = user;
    struct fi_reaper *reaper = &domain->reaper;
    (void)pthread_mutex_lock(&domain->memory_lock);
    for (;;) {
        while (fi_link_is_empty(&reaper->queue) && !reaper->is_stopping) {
            (void)pthread_cond_wait(&reaper->work, &domain->memory_lock);
        }
        if (fi_link_is_empty(&reaper->queue)) {
            break;
        }
        struct fi_region *region = FI_OF(reaper->queue.next, struct fi_region, link);
        fi_link_remove(&region->link);
        (void)pthread_mutex_unlock(&domain->memory_lock);
        end_region(domain, region);
        (void)pthread_mutex_lock(&domain->memory_lock);
    }
    (void)pthread_mutex_unlock(&domain->memory_lock);
    return NULL;
}

/* Gives an unused region to the reaper. memory_lock is held. False: there is no thread. */
static bool give_to_reaper(struct fi_rdmux_domain *domain, struct fi_region *region)
{
    struct fi_reaper *reaper = &domain->reaper;
    if (!reaper->is_running) {
        reaper->is_running = pthread_create(&reaper->thread, NULL, reap, domain) == 0;
    }
    if (reaper->is_running) {
        fi_link_insert(reaper->queue.previous, &region->link);
        (void)pthread_cond_signal(&reaper->work);
    }
    return reaper->is_running;
}

static void stop_reaper(struct fi_rdmux_domain *domain)
{
    struct fi_reaper *reaper = &domain->reaper;
    (void)pthread_mutex_lock(&domain->memory_lock);
    reaper->is_stopping = true;
    (void)pthread_cond_signal(&reaper->work);
    (void)pthread_mutex_unlock(&domain->memory_lock);
    if (reaper->is_running) {
        (void)pthread_join(reaper->thread, NULL);
    }
}

/* ------------------------------------------------------------------------------ regions to keep */

/* Takes an idle region that has the bytes and exactly these rights. memory_lock is held. */
static struct fi_region *take_idle(struct fi_rdmux_domain *domain, uintptr_t base, size_t length,
                                   uint32_t access)
{
    for (struct fi_link *at = domain->idle.next; at != &domain->idle; at = at->next) {
        struct fi_region *region = FI_OF(at, struct fi_region, link);
        if (region->access == access && base >= region->base &&
            base - region->base < region->length &&
            length <= region->length - (base - region->base)) {
            fi_link_remove(at);
            domain->idle_count--;
            return region;
        }
    }
    return NULL;
}

static struct fi_region *acquire(struct fi_rdmux_domain *domain, void *base, size_t length,
                                 uint32_t access, int *error)
{
    *error = 0;
    (void)pthread_mutex_lock(&domain->memory_lock);
    struct fi_region *region = take_idle(domain, (uintptr_t)base, length, access);
    (void)pthread_mutex_unlock(&domain->memory_lock);
    if (region != NULL &&
        rdmux_mr_resume(region->mr, (uintptr_t)base - region->base, length) == RDMUX_OK) {
        return region;
    }
    if (region != NULL) {
        end_region(domain, region);
    }
    return make_region(domain, base, length, access, error);
}

static void release(struct fi_rdmux_domain *domain, struct fi_region *region)
{
    struct fi_region *unused = region;
    if (!atomic_load(&domain->has_device) && rdmux_mr_suspend(region->mr) == RDMUX_OK) {
        (void)pthread_mutex_lock(&domain->memory_lock);
        fi_link_insert(&domain->idle, &region->link);
        unused = NULL;
        if (++domain->idle_count > IDLE_MAX) {
            unused = FI_OF(domain->idle.previous, struct fi_region, link);
            fi_link_remove(&unused->link);
            domain->idle_count--;
            if (give_to_reaper(domain, unused)) {
                unused = NULL;
            }
        }
        (void)pthread_mutex_unlock(&domain->memory_lock);
    }
    if (unused != NULL) {
        end_region(domain, unused);
    }
}

void rdmux_fi_memory_use_device(struct fi_rdmux_domain *domain)
{
    atomic_store(&domain->has_device, true);
    (void)pthread_mutex_lock(&domain->memory_lock);
    while (!fi_link_is_empty(&domain->idle)) {
        struct fi_region *region = FI_OF(domain->idle.next, struct fi_region, link);
        fi_link_remove(&region->link);
        domain->idle_count--;
        if (!give_to_reaper(domain, region)) {
            fi_link_insert(&domain->idle, &region->link);
            domain->idle_count++;
            break;
        }
    }
    (void)pthread_mutex_unlock(&domain->memory_lock);
}

/* ------------------------------------------------------------------------------------ libfabric */

static int mr_close(struct fid *fid)
{
    struct fi_rdmux_mr *mr = FI_OF(fid, struct fi_rdmux_mr, fid.fid);
    if (mr->region != NULL) {
        release(mr->domain, mr->region);
    } else {
        rdmux_mr_deregister(mr->mr);
    }
    atomic_fetch_sub(&mr->domain->children, 1);
    free(mr);
    return 0;
}

static int mr_bind(struct fid *fid, struct fid *other, uint64_t flags)
{
    (void)fid;
    (void)other;
    (void)flags;
    return 0; /* regions serve all endpoints of the domain */
}

static int mr_control(struct fid *fid, int command, void *arg)
{
    (void)fid;
    (void)arg;
    return command == FI_ENABLE ? 0 : -FI_ENOSYS;
}

static struct fi_ops mr_fid_ops = {
    .size = sizeof(struct fi_ops),
    .close = mr_close,
    .bind = mr_bind,
    .control = mr_control,
    .ops_open = rdmux_fi_no_ops_open,
};

static uint32_t access_of(uint64_t access)
{
    return ((access & (FI_RECV | FI_READ)) != 0
                ? (uint32_t)(RDMUX_ACCESS_LOCAL_WRITE | RDMUX_ACCESS_READ_SINK)
                : 0) |
           ((access & FI_REMOTE_READ) != 0 ? (uint32_t)RDMUX_ACCESS_REMOTE_READ : 0) |
           ((access & FI_REMOTE_WRITE) != 0
                ? (uint32_t)(RDMUX_ACCESS_REMOTE_WRITE | RDMUX_ACCESS_LOCAL_WRITE)
                : 0);
}

static int register_memory(struct fi_rdmux_domain *domain, const struct iovec *iov, size_t count,
                           uint64_t access, uint64_t flags, void *context, struct fid_mr **out)
{
    const uint32_t rights = access_of(access);
    if (count != 1 || flags != 0) {
        return -FI_EINVAL;
    }
    struct fi_rdmux_mr *mr = calloc(1, sizeof(*mr));
    if (mr == NULL) {
        return -FI_ENOMEM;
    }
    int result = 0;
    mr->domain = domain;
    mr->fid.key = FI_KEY_NOTAVAIL;
    if ((rights & (RDMUX_ACCESS_REMOTE_READ | RDMUX_ACCESS_REMOTE_WRITE)) != 0 && iov->iov_len > 0) {
        mr->region = acquire(domain, iov->iov_base, iov->iov_len, rights, &result);
        if (mr->region != NULL) {
            mr->mr = mr->region->mr;
            mr->fid.key = mr->region->key;
        }
    } else if (atomic_load(&domain->has_device) && iov->iov_len > 0) {
        result = rdmux_fi_error(
            rdmux_mr_register(domain->fabric->rdmux, iov->iov_base, iov->iov_len, rights, &mr->mr));
    }
    if (result != 0) {
        free(mr);
        return result;
    }
    mr->fid.fid.fclass = FI_CLASS_MR;
    mr->fid.fid.context = context;
    mr->fid.fid.ops = &mr_fid_ops;
    mr->fid.mem_desc = mr;
    atomic_fetch_add(&domain->children, 1);
    *out = &mr->fid;
    return 0;
}

static struct fi_rdmux_domain *domain_of(struct fid *fid)
{
    return FI_OF(fid, struct fi_rdmux_domain, fid.fid);
}

static int mr_reg(struct fid *fid, const void *buf, size_t length, uint64_t access, uint64_t offset,
                  uint64_t requested_key, uint64_t flags, struct fid_mr **out, void *context)
{
    (void)offset;
    (void)requested_key;
    const struct iovec iov = { .iov_base = (void *)(uintptr_t)buf, .iov_len = length };
    return register_memory(domain_of(fid), &iov, 1, access, flags, context, out);
}

static int mr_regv(struct fid *fid, const struct iovec *iov, size_t count, uint64_t access,
                   uint64_t offset, uint64_t requested_key, uint64_t flags, struct fid_mr **out,
                   void *context)
{
    (void)offset;
    (void)requested_key;
    return register_memory(domain_of(fid), iov, count, access, flags, context, out);
}

static int mr_regattr(struct fid *fid, const struct fi_mr_attr *attr, uint64_t flags,
                      struct fid_mr **out)
{
    return register_memory(domain_of(fid), attr->mr_iov, attr->iov_count, attr->access, flags,
                           attr->context, out);
}

struct fi_ops_mr rdmux_fi_mr_ops = {
    .size = sizeof(struct fi_ops_mr),
    .reg = mr_reg,
    .regv = mr_regv,
    .regattr = mr_regattr,
};

/* --------------------------------------------------------------------------- opening and closing */

int rdmux_fi_directory_open(struct fi_rdmux_domain *domain)
{
    enum rdmux_status status = rdmux_mr_alloc(domain->fabric->rdmux,
                                              (size_t)FI_SLOT_COUNT * FI_SLOT_SIZE,
                                              RDMUX_ACCESS_REMOTE_READ, &domain->directory);
    if (status != RDMUX_OK) {
        return rdmux_fi_error(status);
    }
    status = rdmux_mr_export(domain->directory, &domain->directory_token);
    if (status != RDMUX_OK) {
        rdmux_mr_deregister(domain->directory);
        return rdmux_fi_error(status);
    }
    domain->slots = rdmux_mr_addr(domain->directory);
    for (unsigned i = 0; i < FI_SLOT_COUNT; i++) {
        domain->free_slots[i] = (uint16_t)(FI_SLOT_COUNT - 1 - i);
    }
    domain->free_count = FI_SLOT_COUNT;
    (void)pthread_cond_init(&domain->reaper.work, NULL);
    return 0;
}

void rdmux_fi_directory_close(struct fi_rdmux_domain *domain)
{
    stop_reaper(domain);
    while (!fi_link_is_empty(&domain->idle)) {
        struct fi_region *region = FI_OF(domain->idle.next, struct fi_region, link);
        fi_link_remove(&region->link);
        end_region(domain, region);
    }
    rdmux_mr_deregister(domain->directory);
    explicit_bzero(&domain->directory_token, sizeof(domain->directory_token));
    (void)pthread_cond_destroy(&domain->reaper.work);
}
