/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Protection domains and memory regions, and access by their keys. */
#include "sim_memory.h"

#include "sim_device.h"
#include "sim_place.h"
#include "sim_queue.h"
#include "sim_world.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* verbs.h turns these names into inline twins. */
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

/* A key is the region's index and a tag; the two keys of a region differ, so that a mix-up is
 * found. */
enum { TAG_BITS = 8, TAG_MASK = 0xff, REMOTE_TAG = 0x80 };

/* --------------------------------------------------------------------------- protection domains */

static struct sim_pd *pd_of(struct ibv_pd *pd)
{
    return (struct sim_pd *)(void *)pd;
}

void sim_pd_use(struct ibv_pd *pd, int difference)
{
    struct sim_pd *sim = pd_of(pd);
    sim->users = (size_t)((ptrdiff_t)sim->users + difference);
}

static int pd_check(struct sim_device *device)
{
    int error = sim_call(device->world, SIM_CALL_alloc_pd);
    if (error == 0 && !sim_device_alive(device)) {
        return EIO;
    }
    return error == 0 && device->pd_count >= device->options.limits.max_pd ? ENOMEM : error;
}

struct ibv_pd *sim_pd_make(struct sim_context *context)
{
    struct sim_pd *pd = sim_alloc(context->world, sizeof(*pd));
    if (pd == NULL) {
        return NULL;
    }
    pd->ib.context = &context->verbs.context;
    pd->ib.handle = context->world->next_handle++;
    return &pd->ib;
}

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
    struct sim_context *sim = sim_context_of(context);
    struct sim_world *world = sim->world;
    sim_lock(world);
    int error = pd_check(sim->device);
    struct ibv_pd *pd = error == 0 ? sim_pd_make(sim) : NULL;
    if (pd != NULL) {
        sim->objects++;
        world->objects++;
        sim->device->pd_count++;
    }
    sim_unlock(world);
    if (pd == NULL) {
        errno = error != 0 ? error : ENOMEM;
    }
    return pd;
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
    struct sim_context *context = sim_context_of(pd->context);
    struct sim_world *world = context->world;
    sim_lock(world);
    int error = sim_call(world, SIM_CALL_dealloc_pd);
    error = error == 0 && pd_of(pd)->users > 0 ? EBUSY : error;
    if (error == 0) {
        context->objects--;
        world->objects--;
        context->device->pd_count--;
        sim_free(pd);
    }
    sim_unlock(world);
    sim_world_rest(world);
    return error;
}

/* -------------------------------------------------------------------------------------- regions */

static bool mapped(const void *addr, size_t length)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uintptr_t first = (uintptr_t)addr & ~(page - 1);
    size_t span = (uintptr_t)addr + length - first;
    unsigned char resident[256];
    for (size_t at = 0; at < span; at += sizeof(resident) * page) {
        size_t piece = span - at < sizeof(resident) * page ? span - at : sizeof(resident) * page;
        if (mincore((void *)(first + at), piece, resident) != 0) {
            return false;
        }
    }
    return true;
}

static int region_check(const struct sim_device *device, const void *addr, size_t length,
                        unsigned int access)
{
    unsigned int remote_change = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
    unsigned int known = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | remote_change |
                         IBV_ACCESS_ZERO_BASED | IBV_ACCESS_OPTIONAL_RANGE;
    if (!sim_device_alive(device)) {
        return EIO;
    }
    if ((access & (IBV_ACCESS_ON_DEMAND | IBV_ACCESS_HUGETLB | IBV_ACCESS_MW_BIND)) != 0) {
        return EOPNOTSUPP;
    }
    if ((access & ~known) != 0 || length == 0 || length > device->options.limits.max_mr_size ||
        (uintptr_t)addr > UINTPTR_MAX - length) {
        return EINVAL;
    }
    /* ibv_reg_mr(3): remote write and remote atomic need local write. */
    if ((access & remote_change) != 0 && (access & IBV_ACCESS_LOCAL_WRITE) == 0) {
        return EINVAL;
    }
    if (device->mr_count >= device->options.limits.max_mr) {
        return ENOMEM;
    }
    return mapped(addr, length) ? 0 : EFAULT;
}

/* Indices recur as late as possible, so that an old key stays dead for long. */
static uint32_t index_find(struct sim_device *device)
{
    for (uint32_t tried = 0; tried < device->mrs_room; tried++) {
        uint32_t at = device->mr_next;
        device->mr_next = at + 1 < device->mrs_room ? at + 1 : 1;
        if (at < device->mrs_room && device->mrs[at].mr == NULL) {
            return at;
        }
    }
    uint32_t room = device->mrs_room == 0 ? 64 : device->mrs_room * 2;
    struct sim_mr_place *mrs = sim_alloc(device->world, room * sizeof(*mrs));
    if (mrs == NULL) {
        return 0;
    }
    if (device->mrs != NULL) {
        memcpy(mrs, device->mrs, device->mrs_room * sizeof(*mrs));
        sim_free(device->mrs);
    }
    uint32_t found = device->mrs_room == 0 ? 1 : device->mrs_room;
    device->mrs = mrs;
    device->mrs_room = room;
    device->mr_next = found + 1;
    return found;
}

static struct sim_mr *region_make(struct sim_context *context, void *addr, size_t length)
{
    struct sim_device *device = context->device;
    uint32_t index = index_find(device);
    struct sim_mr *mr = index != 0 ? sim_alloc(context->world, sizeof(*mr)) : NULL;
    if (mr == NULL) {
        return NULL;
    }
    uint32_t tag = device->mrs[index].tag++ & (TAG_MASK & ~(uint32_t)REMOTE_TAG);
    mr->ib = (struct ibv_mr){
        .context = &context->verbs.context,
        .addr = addr,
        .length = length,
        .handle = context->world->next_handle++,
        .lkey = index << TAG_BITS | tag,
        .rkey = index << TAG_BITS | tag | REMOTE_TAG,
    };
    mr->addr = addr;
    mr->length = length;
    mr->lkey = mr->ib.lkey;
    mr->rkey = mr->ib.rkey;
    device->mrs[index].mr = mr;
    device->mr_count++;
    context->objects++;
    context->world->objects++;
    return mr;
}

/* pages: mapped for the region alone, to unmap with it; NULL: the program's memory. */
static struct ibv_mr *reg(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
                          unsigned int access, void *pages)
{
    struct sim_context *context = sim_context_of(pd->context);
    struct sim_world *world = context->world;
    sim_lock(world);
    int error = sim_call(world, SIM_CALL_reg_mr);
    error = error == 0 ? region_check(context->device, addr, length, access) : error;
    struct sim_mr *mr = error == 0 ? region_make(context, addr, length) : NULL;
    if (mr != NULL) {
        mr->pd = mr->ib.pd = pd;
        mr->iova = (access & IBV_ACCESS_ZERO_BASED) != 0 ? 0 : iova;
        mr->access = access;
        mr->pages = pages;
        sim_pd_use(pd, 1);
    }
    sim_unlock(world);
    if (mr == NULL) {
        errno = error != 0 ? error : ENOMEM;
        return NULL;
    }
    return &mr->ib;
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
                                unsigned int access)
{
    return reg(pd, addr, length, iova, access, NULL);
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
    return ibv_reg_mr_iova2(pd, addr, length, (uintptr_t)addr, (unsigned int)access);
}

struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
                               int access)
{
    return ibv_reg_mr_iova2(pd, addr, length, iova, (unsigned int)access);
}

struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova,
                                 int fd, int access)
{
    const struct sim_device *device = sim_context_of(pd->context)->device;
    if (device->options.dmabuf == 0) {
        errno = EOPNOTSUPP;
        return NULL;
    }
    bool writes = (access & IBV_ACCESS_LOCAL_WRITE) != 0;
    void *pages = mmap(NULL, length, PROT_READ | (writes ? PROT_WRITE : 0), MAP_SHARED, fd,
                       (off_t)offset);
    if (pages == MAP_FAILED) {
        return NULL;
    }
    struct ibv_mr *mr = reg(pd, pages, length, iova, (unsigned int)access, pages);
    if (mr == NULL) {
        int error = errno;
        (void)munmap(pages, length);
        errno = error;
    }
    return mr;
}

int ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr, size_t length,
                 int access)
{
    (void)mr;
    (void)flags;
    (void)pd;
    (void)addr;
    (void)length;
    (void)access;
    errno = EOPNOTSUPP;
    return IBV_REREG_MR_ERR_INPUT;
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
    struct sim_context *context = sim_context_of(mr->context);
    struct sim_world *world = context->world;
    struct sim_device *device = context->device;
    sim_lock(world);
    int error = sim_call(world, SIM_CALL_dereg_mr);
    if (error == 0) {
        /* Accepted bytes go to memory before the memory is given back. */
        sim_place_device(device);
        struct sim_mr *sim = (struct sim_mr *)(void *)mr;
        device->mrs[sim->lkey >> TAG_BITS].mr = NULL;
        device->mr_count--;
        context->objects--;
        world->objects--;
        sim_pd_use(sim->pd, -1);
        if (sim->pages != NULL) {
            (void)munmap(sim->pages, sim->length);
        }
        sim_free(sim);
    }
    sim_unlock(world);
    sim_world_rest(world);
    return error;
}

/* ----------------------------------------------------------------------------------------- keys */

static struct sim_mr *find(const struct sim_qp *qp, uint32_t key)
{
    const struct sim_device *device = qp->device;
    uint32_t index = key >> TAG_BITS;
    return index < device->mrs_room ? device->mrs[index].mr : NULL;
}

static void *translate(const struct sim_mr *mr, const struct sim_qp *qp, uint64_t addr,
                       uint64_t length, unsigned int access)
{
    bool inside = addr >= mr->iova && length <= mr->length &&
                  addr - mr->iova <= mr->length - length;
    bool allowed = (mr->access & access) == access && mr->pd == qp->ex.qp_base.pd;
    return inside && allowed ? mr->addr + (addr - mr->iova) : NULL;
}

void *sim_memory_local(const struct sim_qp *qp, const struct ibv_sge *sge, unsigned int access)
{
    const struct sim_mr *mr = find(qp, sge->lkey);
    if (mr == NULL || mr->lkey != sge->lkey) {
        return NULL;
    }
    return translate(mr, qp, sge->addr, sge->length, access);
}

void *sim_memory_remote(const struct sim_qp *qp, uint32_t rkey, uint64_t addr, uint64_t length,
                        unsigned int access, bool *known_key)
{
    const struct sim_mr *mr = find(qp, rkey);
    *known_key = mr != NULL && mr->rkey == rkey;
    return *known_key ? translate(mr, qp, addr, length, access) : NULL;
}
