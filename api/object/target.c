/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Target side of software providers: checks a peer's accesses to regions by key, bounds and rights.
 *
 * Table. Entries live in chunks that are allocated once and never move, so readers need no lock: a
 * reader follows the key's index and checks the entry found. Index 0 is never used. Entries are
 * added and freed under fabric->lock; a removal invalidates its entry before, without the lock.
 *
 * Key. 16 bytes, opaque outside this file: index u32, generation u32, random u64, in host byte
 * order.
 *
 * Removal while a thread is inside the region. A reader publishes the region in its cq's hazard,
 * then reads the entry's state again. The remover invalidates the entry, then reads every cq's
 * hazard. At least one of the two sees the other. With membarrier the reader's two steps are plain
 * accesses, ordered by the remover's barrier. Without membarrier, and under TSan, which does not
 * know it, all four steps are seq_cst. Once the reader is inside, the entry does not change until
 * it leaves.
 */
#include "api/object/target.h"
#include "api/base/range.h"
#include "api/core/cq.h"
#include "api/core/fabric.h"
#include "api/core/mr.h"

#include <sched.h>
#include <string.h>
#include <time.h>

enum {
    CHUNK_ENTRIES = 1024,
    CHUNKS_MAX = 1024, /* 1 Mi regions */
    SPINS_BEFORE_SLEEP = 64,
    GATE_PAUSE_NS = 50000,
};

/* A region as peers see it. The fields other than state and mr may be read only while state matches
 * the key and the hazard is set. */
struct target_entry {
    _Atomic uint64_t state; /* generation << 1, plus 1 while valid */
    struct rdmux_mr *_Atomic mr;
    uint64_t random;
    unsigned char *addr;
    uint64_t from, length; /* accesses begin at or behind `from`, and end before `length` */
    uint32_t access;       /* RDMUX_ACCESS_REMOTE_* granted to software */
    uint32_t next_free;    /* fabric->lock */
};

struct rdmux_region_table {
    struct target_entry *_Atomic chunks[CHUNKS_MAX];
    uint32_t used;       /* entries used at least once, plus entry 0; fabric->lock */
    uint32_t first_free; /* 0 = none; fabric->lock */
};

struct key {
    uint32_t index;
    uint32_t generation;
    uint64_t random;
};
_Static_assert(sizeof(struct key) == RDMUX_TARGET_KEY_SIZE, "a key fills its bytes");

static struct target_entry *entry_at(struct rdmux_region_table *table, uint32_t index)
{
    if (index == 0 || index / CHUNK_ENTRIES >= CHUNKS_MAX) {
        return NULL;
    }
    struct target_entry *chunk = atomic_load_explicit(&table->chunks[index / CHUNK_ENTRIES],
                                                      memory_order_acquire);
    return chunk != NULL ? &chunk[index % CHUNK_ENTRIES] : NULL;
}

/* ------------------------------------------------------------------------------------ the table */

enum rdmux_status rdmux_region_table_create(struct rdmux_fabric *fabric)
{
    struct rdmux_region_table *table = rdmux_allocate(fabric, sizeof(*table));
    if (table == NULL) {
        return rdmux_fail(RDMUX_NO_MEMORY, "fabric: no memory for the table of regions");
    }
    table->used = 1;
    fabric->table = table;
    return RDMUX_OK;
}

void rdmux_region_table_destroy(struct rdmux_fabric *fabric)
{
    struct rdmux_region_table *table = fabric->table;
    if (table == NULL) {
        return;
    }
    for (size_t i = 0; i < CHUNKS_MAX; i++) {
        rdmux_release(fabric, atomic_load_explicit(&table->chunks[i], memory_order_relaxed));
    }
    rdmux_release(fabric, table);
    fabric->table = NULL;
}

/* Returns an unused index, 0 if there is none. fabric->lock is held. */
static uint32_t take_index(struct rdmux_fabric *fabric, struct rdmux_region_table *table)
{
    if (table->first_free != 0) {
        uint32_t index = table->first_free;
        table->first_free = entry_at(table, index)->next_free;
        return index;
    }
    uint32_t index = table->used;
    if (index / CHUNK_ENTRIES >= CHUNKS_MAX) {
        return 0;
    }
    struct target_entry *_Atomic *chunk = &table->chunks[index / CHUNK_ENTRIES];
    if (atomic_load_explicit(chunk, memory_order_relaxed) == NULL) {
        struct target_entry *fresh = rdmux_allocate(fabric, CHUNK_ENTRIES * sizeof(*fresh));
        if (fresh == NULL) {
            return 0;
        }
        atomic_store_explicit(chunk, fresh, memory_order_release); /* entry_at() acquires */
    }
    table->used++;
    return index;
}

enum rdmux_status rdmux_region_table_add(struct rdmux_fabric *fabric, struct rdmux_mr *mr)
{
    struct rdmux_region_table *table = fabric->table;
    uint64_t random = 0;
    enum rdmux_status status = rdmux_random(fabric, &random, sizeof(random));
    if (status != RDMUX_OK) {
        return status;
    }
    uint32_t index = take_index(fabric, table);
    if (index == 0) {
        return rdmux_fail(RDMUX_NO_MEMORY,
                          "region: no room for another one with remote rights; %d are possible",
                          CHUNKS_MAX * CHUNK_ENTRIES - 1);
    }
    struct target_entry *entry = entry_at(table, index);
    entry->random = random;
    entry->addr = mr->addr;
    entry->from = 0;
    entry->length = mr->length;
    entry->access = mr->access & (RDMUX_ACCESS_REMOTE_READ | RDMUX_ACCESS_REMOTE_WRITE |
                                  RDMUX_ACCESS_REMOTE_ATOMIC);
    if ((mr->access & RDMUX_ACCESS_ATOMIC_DEVICE) != 0) {
        /* Remote atomics on such a region are atomic only among users of one device, not for
         * software. */
        entry->access &= ~(uint32_t)RDMUX_ACCESS_REMOTE_ATOMIC;
    }
    atomic_store_explicit(&entry->mr, mr, memory_order_relaxed);
    uint64_t generation = (atomic_load_explicit(&entry->state, memory_order_relaxed) >> 1) + 1;
    mr->index = index;
    atomic_store(&entry->state, (generation & UINT32_MAX) << 1 | 1);
    return RDMUX_OK;
}

/* Returns whether a cq's owner is inside the region. */
static bool is_inside_region(struct rdmux_fabric *fabric, const struct rdmux_mr *mr)
{
    bool inside = false;
    pthread_mutex_lock(&fabric->lock);
    for (struct rdmux_list *at = fabric->cqs.next; at != &fabric->cqs && !inside; at = at->next) {
        struct rdmux_cq *cq = RDMUX_CONTAINER(at, struct rdmux_cq, link);
        inside = atomic_load(&cq->hazard) == mr;
    }
    pthread_mutex_unlock(&fabric->lock);
    return inside;
}

void rdmux_region_table_suspend(struct rdmux_fabric *fabric, struct rdmux_mr *mr)
{
    struct target_entry *entry = entry_at(fabric->table, mr->index);
    if (entry == NULL) {
        return;
    }
    atomic_store(&entry->state, atomic_load(&entry->state) & ~UINT64_C(1));
    if (fabric->has_membarrier) {
        rdmux_membarrier();
    }
    /* A thread inside the region does bounded work, but may have been preempted. */
    for (unsigned spins = 0; is_inside_region(fabric, mr); spins++) {
        if (spins < SPINS_BEFORE_SLEEP) {
            sched_yield();
        } else {
            const struct timespec pause = { .tv_nsec = GATE_PAUSE_NS };
            nanosleep(&pause, NULL);
        }
    }
}

void rdmux_region_table_resume(struct rdmux_fabric *fabric, struct rdmux_mr *mr, uint64_t offset,
                               uint64_t length)
{
    struct target_entry *entry = entry_at(fabric->table, mr->index);
    if (entry == NULL) {
        return;
    }
    entry->from = offset;
    entry->length = offset + length;
    atomic_store(&entry->state, atomic_load(&entry->state) | 1);
}

void rdmux_region_table_remove(struct rdmux_fabric *fabric, struct rdmux_mr *mr)
{
    struct rdmux_region_table *table = fabric->table;
    struct target_entry *entry = entry_at(table, mr->index);
    if (entry == NULL) {
        return;
    }
    rdmux_region_table_suspend(fabric, mr);
    pthread_mutex_lock(&fabric->lock);
    atomic_store_explicit(&entry->mr, NULL, memory_order_relaxed);
    entry->next_free = table->first_free;
    table->first_free = mr->index;
    pthread_mutex_unlock(&fabric->lock);
    mr->index = 0;
}

/* -------------------------------------------------------------------------------- access by key */

void rdmux_target_key(struct rdmux_provider_mr *registration, uint8_t out[RDMUX_TARGET_KEY_SIZE])
{
    const struct rdmux_mr *mr = registration->mr;
    struct key key = { 0 };
    struct target_entry *entry = entry_at(mr->fabric->table, mr->index);
    if (entry != NULL) {
        key.index = mr->index;
        key.generation = (uint32_t)(atomic_load_explicit(&entry->state, memory_order_relaxed) >> 1);
        key.random = entry->random;
    }
    memcpy(out, &key, sizeof(key));
}

/* Make the thread sanitizer ignore accesses between enter and leave. For the program a peer's
 * access is like a device's: the program orders its own accesses by the peer's messages, which the
 * sanitizer cannot see. */
#if RDMUX_TSAN
void AnnotateIgnoreReadsBegin(const char *file, int line);
void AnnotateIgnoreReadsEnd(const char *file, int line);
void AnnotateIgnoreWritesBegin(const char *file, int line);
void AnnotateIgnoreWritesEnd(const char *file, int line);

static void begin_remote_access(void)
{
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
}

static void end_remote_access(void)
{
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
}
#else
static void begin_remote_access(void)
{
}

static void end_remote_access(void)
{
}
#endif

/* Publishes that the cq's owner is inside mr, ordered before its next read. */
static void set_hazard(struct rdmux_cq *cq, struct rdmux_mr *mr)
{
    if (RDMUX_TSAN || RDMUX_UNLIKELY(cq->fence)) {
        atomic_exchange(&cq->hazard, mr);
    } else {
        atomic_store_explicit(&cq->hazard, mr, memory_order_relaxed);
        atomic_signal_fence(memory_order_seq_cst); /* full barrier by rdmux_membarrier() */
    }
}

static void clear_hazard(struct rdmux_cq *cq)
{
    atomic_store_explicit(&cq->hazard, NULL, memory_order_release); /* is_inside_region() acquires */
}

enum rdmux_status rdmux_target_enter(struct rdmux_provider_ep *ep,
                                     const uint8_t key_bytes[RDMUX_TARGET_KEY_SIZE],
                                     uint64_t offset, uint64_t length, uint32_t access, void **addr)
{
    struct rdmux_cq *cq = ep->cq->cq;
    struct key key;
    memcpy(&key, key_bytes, sizeof(key));
    struct target_entry *entry = entry_at(cq->fabric->table, key.index);
    if (entry == NULL) {
        return RDMUX_DENIED;
    }
    struct rdmux_mr *mr = atomic_load_explicit(&entry->mr, memory_order_relaxed);
    if (mr == NULL) {
        return RDMUX_DENIED;
    }
    set_hazard(cq, mr);
    /* The entry may have been reused since mr was read. The hazard then names the wrong region. */
    const uint64_t valid = (uint64_t)key.generation << 1 | 1;
    if (atomic_load(&entry->state) != valid ||
        atomic_load_explicit(&entry->mr, memory_order_relaxed) != mr ||
        entry->random != key.random || (entry->access & access) != access) {
        clear_hazard(cq);
        return RDMUX_DENIED;
    }
    if (!rdmux_is_within(offset, length, entry->length) || offset < entry->from) {
        clear_hazard(cq);
        return RDMUX_OUT_OF_RANGE;
    }
    *addr = entry->addr + offset;
    begin_remote_access();
    return RDMUX_OK;
}

void rdmux_target_leave(struct rdmux_provider_ep *ep)
{
    end_remote_access();
    clear_hazard(ep->cq->cq);
}

enum rdmux_status rdmux_target_atomic(struct rdmux_provider_ep *ep,
                                      const uint8_t key[RDMUX_TARGET_KEY_SIZE], uint32_t op,
                                      uint64_t offset, uint64_t operand, uint64_t expected,
                                      uint64_t *old)
{
    void *addr = NULL;
    enum rdmux_status status = rdmux_target_enter(ep, key, offset, sizeof(uint64_t),
                                                  RDMUX_ACCESS_REMOTE_ATOMIC, &addr);
    if (status != RDMUX_OK) {
        return status;
    }
    if ((uintptr_t)addr % sizeof(uint64_t) != 0) {
        status = RDMUX_INVALID;
    } else if (op == RDMUX_OP_FETCH_ADD) {
        *old = __atomic_fetch_add((uint64_t *)addr, operand, __ATOMIC_SEQ_CST);
    } else if (op == RDMUX_OP_COMPARE_SWAP) {
        *old = expected;
        (void)__atomic_compare_exchange_n((uint64_t *)addr, old, operand, false, __ATOMIC_SEQ_CST,
                                          __ATOMIC_SEQ_CST);
    } else {
        status = RDMUX_INVALID;
    }
    rdmux_target_leave(ep);
    return status;
}
