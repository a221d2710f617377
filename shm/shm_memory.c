/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Regions: how peers reach them, and how access is revoked.
 *
 * Each process has one table of region words, which its peers map read-only. A region's `life` is
 * set while the region is registered, its `generation` while exported rights are in force. A peer
 * that accesses memory by itself (mapped, or with process_vm_*) makes its busy word odd, checks the
 * region's word, copies, and makes busy even. A revocation clears the region's word, runs a barrier
 * on all peers, and waits, for at most WAIT_OUT_NS, until each busy word was even once. Accesses
 * through the target's CPU are checked there by rdmux_target_enter(). */
#include "shm_internal.h"

#include "api/base/bytes.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static_assert(offsetof(struct shm_mr, base) == 0, "shm_mr_of() relies on it");
static_assert(offsetof(struct shm_remote, base) == 0, "shm_remote_of() relies on it");

/* A region's description, host byte order. Offset, size, field:
 *   0  1  version, 1                    8  8  life           32  8  address at the target
 *   1  1  flags                        16  8  generation     40 16  target key
 *   2  2  zero     4  4  index         24  8  length */
enum {
    DESCRIPTION_AT_VERSION = 0,
    DESCRIPTION_AT_FLAGS = 1,
    DESCRIPTION_AT_INDEX = 4,
    DESCRIPTION_AT_LIFE = 8,
    DESCRIPTION_AT_GENERATION = 16,
    DESCRIPTION_AT_LENGTH = 24,
    DESCRIPTION_AT_ADDRESS = 32,
    DESCRIPTION_AT_KEY = 40,
    DESCRIPTION_SIZE = 56,
    DESCRIPTION_VERSION = 1,
};
static_assert(DESCRIPTION_AT_KEY + RDMUX_TARGET_KEY_SIZE == DESCRIPTION_SIZE, "the key ends it");

/* Description flags */
enum {
    FLAG_PASSED = 1 << 0, /* the region's descriptor was passed over the socket */
    FLAG_COPY = 1 << 1,   /* process_vm_readv and writev may be used on the region */
    FLAG_DEVICE = 1 << 2, /* the region's atomics are a device's own, not the CPU's */
};

/* Most time that an invalidation waits for a peer inside a copy. A copy takes microseconds, but on
 * a busy machine its process may be kept off the processor for many milliseconds in the middle of
 * it. */
enum { WAIT_OUT_NS = 200 * 1000 * 1000, WAIT_OUT_STEP_NS = 20 * 1000 };

/* Most messages of the peer that one import reads. The region's own message was sent before its
 * description, and a socket's queue holds fewer (some 280 with the kernel's default). */
enum { IMPORT_MESSAGES = 512 };

enum { WRITING = RDMUX_ACCESS_REMOTE_WRITE | RDMUX_ACCESS_REMOTE_ATOMIC };

/* ---------------------------------------------------------------------------------- regions */

/* Takes an entry of the table for the region. Peers reach a region without one through the target's
 * CPU. */
static void take_place(struct shm_domain *domain, struct shm_mr *mr)
{
    (void)pthread_mutex_lock(&domain->mutex);
    for (uint32_t i = 0; i < SHM_REGION_COUNT; i++) {
        uint32_t index = (domain->next_index + i) % SHM_REGION_COUNT;
        struct shm_region *region = &domain->regions[index];
        if (atomic_load_explicit(&region->life, memory_order_relaxed) == 0) {
            mr->index = index;
            mr->life = ++domain->next_number;
            domain->next_index = index + 1;
            atomic_store_explicit(&region->life, mr->life, memory_order_release);
            break;
        }
    }
    (void)pthread_mutex_unlock(&domain->mutex);
}

/* Notes the length, against which the lengths of peers' writes are checked. */
static void note_length(struct shm_domain *domain, uint64_t length)
{
    uint64_t longest = atomic_load_explicit(&domain->longest, memory_order_relaxed);
    while (length > longest &&
           !atomic_compare_exchange_weak_explicit(&domain->longest, &longest, length,
                                                  memory_order_relaxed, memory_order_relaxed)) {
    }
}

enum rdmux_status rdmux_shm_mr_register(struct rdmux_provider_mr *base,
                                        const struct rdmux_provider_mr_attr *attr)
{
    struct shm_mr *mr = shm_mr_of(base);
    mr->addr = attr->addr;
    mr->length = attr->length;
    mr->access = attr->access;
    mr->index = SHM_REGION_COUNT;
    mr->fd = -1;
    note_length(shm_domain_of(base->domain), attr->length);
    mr->is_dmabuf = attr->dmabuf_fd != 0;
    if ((attr->access & RDMUX_ACCESS_NO_MAP) != 0 || mr->is_dmabuf) {
        /* Revocation must be absolute, or the kernel cannot pin the pages for a copy by the peer
         * (VM_PFNMAP): peers access it through our CPU only. */
        return RDMUX_OK;
    }
    if (attr->memory_fd >= 0 && rdmux_shm_memory_seal(attr->memory_fd)) {
        mr->fd = attr->memory_fd;
    }
    take_place(shm_domain_of(base->domain), mr);
    return RDMUX_OK;
}

/* Calls look for the endpoints whose peers may reach the region, until it returns true. The
 * domain's mutex is held. A region that few have reached must not cost a look at each endpoint:
 * each set-up has one. Returns whether look has returned true. */
static bool any_that_reaches(const struct shm_domain *domain, const struct shm_mr *mr,
                             bool (*look)(struct shm_ep *ep))
{
    if (!mr->is_shared) {
        return mr->reached_by != NULL && look(mr->reached_by);
    }
    for (struct rdmux_list *at = domain->eps.next; at != &domain->eps; at = at->next) {
        if (look(RDMUX_CONTAINER(at, struct shm_ep, domain_link))) {
            return true;
        }
    }
    return false;
}

static bool note_busy(struct shm_ep *ep)
{
    ep->busy_seen = atomic_load_explicit(&ep->theirs->busy, memory_order_acquire);
    return false;
}

static bool is_still_busy(struct shm_ep *ep)
{
    return (ep->busy_seen & 1) != 0 && (!ep->is_gone || ep->is_lost) &&
           atomic_load_explicit(&ep->theirs->busy, memory_order_acquire) == ep->busy_seen;
}

/* Waits until no peer is inside a copy that began before, but at most WAIT_OUT_NS. */
static void wait_out(struct shm_domain *domain, const struct shm_mr *mr)
{
    (void)pthread_mutex_lock(&domain->mutex);
    (void)any_that_reaches(domain, mr, note_busy);
    (void)pthread_mutex_unlock(&domain->mutex);
    for (uint64_t waited_ns = 0; waited_ns < WAIT_OUT_NS; waited_ns += WAIT_OUT_STEP_NS) {
        (void)pthread_mutex_lock(&domain->mutex);
        bool inside = any_that_reaches(domain, mr, is_still_busy);
        (void)pthread_mutex_unlock(&domain->mutex);
        if (!inside) {
            return;
        }
        const struct timespec step = { .tv_nsec = WAIT_OUT_STEP_NS };
        (void)nanosleep(&step, NULL);
    }
}

enum rdmux_status rdmux_shm_mr_invalidate(struct rdmux_provider_mr *base)
{
    struct shm_mr *mr = shm_mr_of(base);
    struct shm_domain *domain = shm_domain_of(base->domain);
    (void)pthread_mutex_lock(&domain->invalidating);
    (void)pthread_mutex_lock(&domain->mutex);
    bool in_force = mr->generation != 0;
    mr->generation = 0;
    if (in_force) {
        atomic_store_explicit(&domain->regions[mr->index].generation, 0, memory_order_release);
    }
    (void)pthread_mutex_unlock(&domain->mutex);
    if (in_force) {
        /* Pairs with shm_access_begin(): an access that begins from now on sees the cleared
         * word. */
        rdmux_shm_fence();
        if (domain->has_membarrier) {
            rdmux_shm_membarrier();
        }
        wait_out(domain, mr);
    }
    (void)pthread_mutex_unlock(&domain->invalidating);
    return RDMUX_OK;
}

void rdmux_shm_mr_deregister(struct rdmux_provider_mr *base)
{
    struct shm_mr *mr = shm_mr_of(base);
    struct shm_domain *domain = shm_domain_of(base->domain);
    if (mr->index == SHM_REGION_COUNT) {
        return;
    }
    (void)rdmux_shm_mr_invalidate(base);
    (void)pthread_mutex_lock(&domain->mutex);
    atomic_store_explicit(&domain->regions[mr->index].life, 0, memory_order_release);
    rdmux_node_remove(&mr->reached_link);
    mr->reached_by = NULL;
    (void)pthread_mutex_unlock(&domain->mutex);
}

/* The endpoint's peer may reach the region from now on. The domain's mutex is held. */
static void note_reach(struct shm_mr *mr, struct shm_ep *ep)
{
    if (mr->is_shared || mr->reached_by == ep) {
        return;
    }
    if (mr->reached_by == NULL) {
        mr->reached_by = ep;
        rdmux_list_append(&ep->reached, &mr->reached_link);
        return;
    }
    rdmux_node_remove(&mr->reached_link);
    mr->reached_by = NULL;
    mr->is_shared = true;
}

void rdmux_shm_regions_forget(struct shm_ep *ep)
{
    while (!rdmux_list_empty(&ep->reached)) {
        struct shm_mr *mr = RDMUX_CONTAINER(ep->reached.next, struct shm_mr, reached_link);
        rdmux_node_remove(&mr->reached_link);
        mr->reached_by = NULL;
    }
}

bool rdmux_shm_region_pass(struct shm_ep *ep, struct shm_mr *mr, bool writable)
{
    if (mr->fd < 0 || mr->index == SHM_REGION_COUNT) {
        return false;
    }
    struct shm_sent *sent = &ep->sent[mr->index % SHM_SENT_COUNT];
    if (sent->life == mr->life && (sent->writable != 0 || !writable)) {
        return true;
    }
    struct shm_region_message message = {
        .index = mr->index,
        .writable = writable ? 1 : 0,
        .life = mr->life,
        .length = mr->length,
    };
    struct shm_domain *domain = shm_domain_of(mr->base.domain);
    (void)pthread_mutex_lock(&domain->mutex);
    note_reach(mr, ep);
    (void)pthread_mutex_unlock(&domain->mutex);
    uint8_t bytes[SHM_REGION_SIZE];
    rdmux_shm_region_message_encode(&message, bytes);
    ep->base.system_calls++;
    if (rdmux_shm_socket_send(ep->peer.socket, bytes, sizeof(bytes), &mr->fd, 1) != RDMUX_OK) {
        return false;
    }
    sent->life = mr->life;
    sent->writable = message.writable;
    return true;
}

enum rdmux_status rdmux_shm_mr_describe(struct rdmux_provider_mr *base,
                                        struct rdmux_provider_ep *base_ep, uint8_t *out,
                                        size_t *size)
{
    struct shm_mr *mr = shm_mr_of(base);
    struct shm_domain *domain = shm_domain_of(base->domain);
    if (*size < DESCRIPTION_SIZE) {
        rdmux_provider_error("shm: %zu bytes are too few for a region's description", *size);
        return RDMUX_INVALID;
    }
    memset(out, 0, DESCRIPTION_SIZE);
    out[DESCRIPTION_AT_VERSION] = DESCRIPTION_VERSION;
    *size = DESCRIPTION_SIZE;
    rdmux_store_host64(out + DESCRIPTION_AT_LENGTH, mr->length);
    rdmux_target_key(base, out + DESCRIPTION_AT_KEY);
    out[DESCRIPTION_AT_FLAGS] = (mr->access & RDMUX_ACCESS_ATOMIC_DEVICE) != 0 ? FLAG_DEVICE : 0;
    if (mr->index == SHM_REGION_COUNT) {
        return RDMUX_OK;
    }
    (void)pthread_mutex_lock(&domain->mutex);
    if (mr->generation == 0) {
        mr->generation = ++domain->next_number;
        atomic_store_explicit(&domain->regions[mr->index].generation, mr->generation,
                              memory_order_release);
    }
    uint64_t generation = mr->generation;
    note_reach(mr, shm_ep_of(base_ep));
    (void)pthread_mutex_unlock(&domain->mutex);
    bool passed = rdmux_shm_region_pass(shm_ep_of(base_ep), mr, (mr->access & WRITING) != 0);
    out[DESCRIPTION_AT_FLAGS] = (uint8_t)(out[DESCRIPTION_AT_FLAGS] | FLAG_COPY |
                                          (passed ? FLAG_PASSED : 0));
    rdmux_store_host32(out + DESCRIPTION_AT_INDEX, mr->index);
    rdmux_store_host64(out + DESCRIPTION_AT_LIFE, mr->life);
    rdmux_store_host64(out + DESCRIPTION_AT_GENERATION, generation);
    rdmux_store_host64(out + DESCRIPTION_AT_ADDRESS, (uint64_t)(uintptr_t)mr->addr);
    return RDMUX_OK;
}

/* --------------------------------------------------------------------------------- mappings */

static void forget_mapping(struct shm_mapping *mapping)
{
    rdmux_shm_memory_unmap(mapping->base, mapping->length);
    *mapping = (struct shm_mapping){ 0 };
}

/* Returns whether no remote uses the mapping and the peer has given the region up. */
static bool is_stale(const struct shm_ep *ep, const struct shm_mapping *mapping)
{
    return mapping->base != NULL && mapping->refs == 0 &&
           atomic_load_explicit(&ep->regions.table[mapping->index].life, memory_order_relaxed) !=
               mapping->life;
}

void rdmux_shm_mapping_sweep(struct shm_ep *ep)
{
    struct shm_mapping *mapping = &ep->regions.mappings[ep->regions.mapping_sweep];
    ep->regions.mapping_sweep = ep->regions.mapping_sweep + 1 == ep->regions.mapping_room
                                    ? 0
                                    : ep->regions.mapping_sweep + 1;
    /* A send may be copying into the mapping. */
    if (ep->job.request == NULL && is_stale(ep, mapping)) {
        forget_mapping(mapping);
    }
}

void rdmux_shm_mappings_release(struct shm_ep *ep)
{
    for (uint32_t i = 0; i < ep->regions.mapping_room; i++) {
        forget_mapping(&ep->regions.mappings[i]);
    }
    rdmux_provider_release(shm_fabric_of(ep), ep->regions.mappings);
    ep->regions.mappings = NULL;
    ep->regions.mapping_room = 0;
}

static bool mapping_fits(const struct shm_mapping *mapping, uint32_t index, uint64_t life,
                         bool writable)
{
    return mapping->base != NULL && mapping->index == index && mapping->life == life &&
           (mapping->writable != 0 || !writable);
}

static struct shm_mapping *find_shm_mapping(struct shm_ep *ep, uint32_t index, uint64_t life,
                                            bool writable)
{
    if (mapping_fits(&ep->regions.mappings[ep->regions.mapping_hint], index, life, writable)) {
        return &ep->regions.mappings[ep->regions.mapping_hint];
    }
    for (uint32_t i = 0; i < ep->regions.mapping_room; i++) {
        if (mapping_fits(&ep->regions.mappings[i], index, life, writable)) {
            ep->regions.mapping_hint = i;
            return &ep->regions.mappings[i];
        }
    }
    return NULL;
}

static struct shm_mapping *find_free(struct shm_ep *ep)
{
    for (uint32_t i = 0; i < ep->regions.mapping_room; i++) {
        struct shm_mapping *mapping = &ep->regions.mappings[i];
        if (ep->job.request == NULL && is_stale(ep, mapping)) {
            forget_mapping(mapping);
        }
        if (mapping->base == NULL) {
            return mapping;
        }
    }
    return NULL;
}

/* Maps the memory of a region that the peer has passed, if there is room in the table. */
static void map_region(struct shm_ep *ep, const struct shm_region_message *from, int fd)
{
    const struct shm_region_message message = *from;
    struct shm_mapping *mapping = NULL;
    if (message.index < SHM_REGION_COUNT && message.life != 0) {
        mapping = find_free(ep);
    }
    uint8_t *base = NULL;
    if (mapping != NULL &&
        rdmux_shm_memory_map(fd, message.length, message.writable != 0, &base) == RDMUX_OK) {
        *mapping = (struct shm_mapping){
            .base = base,
            .length = message.length,
            .life = message.life,
            .index = message.index,
            .writable = message.writable,
        };
    }
}

bool rdmux_shm_message_take(struct shm_ep *ep)
{
    uint8_t bytes[SHM_REGION_SIZE];
    size_t size = sizeof(bytes);
    int fds[SHM_FDS_MAX] = { -1, -1, -1, -1 };
    size_t count = 0;
    struct shm_region_message region;
    struct shm_queue_message queue;
    ep->base.system_calls++;
    enum rdmux_status status = rdmux_shm_socket_receive_any(ep->peer.socket, bytes, &size, fds,
                                                            &count);
    if (status == RDMUX_AGAIN || status == RDMUX_PEER_GONE) {
        return false;
    }
    if (rdmux_shm_queue_message_decode(bytes, size, &queue) == RDMUX_OK) {
        rdmux_shm_queue_change(ep, queue.mark, fds, count); /* also if descriptors are lost */
    } else if (count == 1 && rdmux_shm_region_message_decode(bytes, size, &region) == RDMUX_OK) {
        map_region(ep, &region, fds[0]);
    }
    for (size_t i = 0; i < SHM_FDS_MAX; i++) {
        if (fds[i] >= 0) {
            (void)close(fds[i]);
        }
    }
    return true; /* more may follow one that is malformed, or whose descriptors are lost */
}

struct shm_mapping *rdmux_shm_mapping_find(struct shm_ep *ep, uint32_t index, uint64_t life,
                                           bool writable, uint32_t *budget)
{
    struct shm_mapping *mapping = find_shm_mapping(ep, index, life, writable);
    while (mapping == NULL && *budget > 0 && rdmux_shm_message_take(ep)) {
        (*budget)--;
        mapping = find_shm_mapping(ep, index, life, writable);
    }
    return mapping;
}

/* Makes room for more mappings. Remotes refer to their mappings by index. */
static void grow_table(struct shm_ep *ep)
{
    struct rdmux_fabric *fabric = shm_fabric_of(ep);
    uint32_t room = ep->regions.mapping_room * 2;
    if (room > SHM_REGION_COUNT * 2) {
        return;
    }
    struct shm_mapping *grown = rdmux_provider_allocate(fabric, room * sizeof(*grown));
    if (grown == NULL) {
        return; /* regions without room are reached without a mapping */
    }
    memcpy(grown, ep->regions.mappings, ep->regions.mapping_room * sizeof(*grown));
    rdmux_provider_release(fabric, ep->regions.mappings);
    ep->regions.mappings = grown;
    ep->regions.mapping_room = room;
}

/* ---------------------------------------------------------------------------------- remotes */

static bool is_nearly_full(const struct shm_ep *ep)
{
    uint32_t used = 0;
    for (uint32_t i = 0; i < ep->regions.mapping_room; i++) {
        used += ep->regions.mappings[i].base != NULL ? 1U : 0U;
    }
    return used * 2 >= ep->regions.mapping_room;
}

void rdmux_shm_mappings_reserve(struct shm_ep *ep)
{
    if (is_nearly_full(ep)) {
        grow_table(ep);
    }
}

/* Maps the region if the peer passed it. */
static bool open_mapped(struct shm_ep *ep, struct shm_remote *remote, uint32_t index, uint64_t life)
{
    rdmux_shm_mappings_reserve(ep);
    uint32_t budget = IMPORT_MESSAGES;
    struct shm_mapping *mapping = rdmux_shm_mapping_find(
        ep, index, life, (remote->base.access & WRITING) != 0, &budget);
    if (mapping == NULL || mapping->length < remote->base.length) {
        return false;
    }
    mapping->refs++;
    remote->mapping = (uint32_t)(mapping - ep->regions.mappings);
    remote->mapped = mapping->base;
    remote->base.mapped = 1;
    return true;
}

enum rdmux_status rdmux_shm_remote_open(struct rdmux_provider_remote *base,
                                        const uint8_t *description, size_t size)
{
    struct shm_remote *remote = shm_remote_of(base);
    struct shm_ep *ep = shm_ep_of(base->ep);
    if (size < DESCRIPTION_SIZE || description[DESCRIPTION_AT_VERSION] != DESCRIPTION_VERSION) {
        rdmux_provider_error("shm: the peer's description of a region is malformed (%zu bytes)",
                             size);
        return RDMUX_PROTOCOL;
    }
    const uint32_t index = rdmux_load_host32(description + DESCRIPTION_AT_INDEX);
    const uint64_t life = rdmux_load_host64(description + DESCRIPTION_AT_LIFE);
    const uint64_t length = rdmux_load_host64(description + DESCRIPTION_AT_LENGTH);
    remote->generation = rdmux_load_host64(description + DESCRIPTION_AT_GENERATION);
    remote->address = rdmux_load_host64(description + DESCRIPTION_AT_ADDRESS);
    memcpy(remote->key, description + DESCRIPTION_AT_KEY, sizeof(remote->key));
    if (length < base->length || index >= SHM_REGION_COUNT) {
        rdmux_provider_error("shm: the peer describes a region that its token contradicts");
        return RDMUX_PROTOCOL;
    }
    const uint8_t flags = description[DESCRIPTION_AT_FLAGS];
    if ((flags & FLAG_DEVICE) != 0) {
        base->access &= ~(uint32_t)RDMUX_ACCESS_REMOTE_ATOMIC;
    }
    remote->word = &ep->regions.table[index].generation;
    const bool is_mapped = (flags & FLAG_PASSED) != 0 && open_mapped(ep, remote, index, life);
    const bool may_copy = (flags & FLAG_COPY) != 0 && ep->can_copy &&
                          length <= UINT64_MAX - remote->address;
    remote->mode = is_mapped ? SHM_REMOTE_MAPPED : may_copy ? SHM_REMOTE_COPY : SHM_REMOTE_RING;
    return RDMUX_OK;
}

void rdmux_shm_remote_close(struct rdmux_provider_remote *base)
{
    struct shm_remote *remote = shm_remote_of(base);
    struct shm_ep *ep = shm_ep_of(base->ep);
    if (remote->mode != SHM_REMOTE_MAPPED || ep->regions.mapping_room == 0) {
        return;
    }
    struct shm_mapping *mapping = &ep->regions.mappings[remote->mapping];
    mapping->refs--;
    if (ep->job.request == NULL && is_stale(ep, mapping)) {
        forget_mapping(mapping);
    }
}
