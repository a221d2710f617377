/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * An index of spans. A table has entries in the order of their first bytes, under a tree of the
 * largest last bytes, and a few fresh ones behind, in any order. Adding a span writes the next
 * fresh entry. When all are used, a new table with all living entries replaces the old one.
 * Removing a span clears the item of its entry.
 *
 * Threads. Entries are never changed once they are counted, but for the item. A search counts
 * itself in one of two numbers of its thread's shard, then reads the table's address. After a table
 * was replaced, the change waits until it has seen each number at zero: a search that has the old
 * table was counted before, and one counted later has the new table. New searches count themselves
 * in the other number meanwhile, so the wait ends.
 */
#include "api/base/span_index.h"

#include "api/base/compiler.h"
#include "api/base/hooks.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <time.h>

enum {
    SHARD_BITS = 4,
    SHARD_COUNT = 1 << SHARD_BITS,
    CACHE_LINE = 64,
    YIELDS_BEFORE_SLEEP = 64,
    READERS_PAUSE_NS = 50000,
    STACK_BITS = 12, /* threads are told apart by the pages of their stacks */
};

struct span_entry {
    uintptr_t first;
    uintptr_t last;
    void *_Atomic item; /* NULL: removed. Released by the change, acquired by a search. */
    uint32_t rights;
};

struct table {
    size_t sorted;      /* entries in order of their first bytes */
    size_t leaves;      /* of the tree: a power of two, at least `sorted` */
    uintptr_t *highest; /* the tree: [1] is its root, [leaves + i] the last byte of entry i */
    /* Entries in use, the fresh ones too. A release store pairs with a search's acquire load. */
    _Atomic size_t count;
    struct span_entry entries[]; /* sorted + RDMUX_SPAN_FRESH_MAX */
};

/* Searches under way, of the threads that share the shard. */
struct shard {
    _Atomic uint32_t searches[2];
    char rest[CACHE_LINE - 2 * sizeof(uint32_t)];
};

struct rdmux_span_index {
    struct rdmux_fabric *fabric;
    struct table *_Atomic table;
    _Atomic uint64_t removals;
    _Atomic uint32_t turn; /* the number in which searches count themselves: its lowest bit */
    size_t removed;        /* entries of the table that were removed; the change's */
    struct shard shards[SHARD_COUNT];
};

/* ------------------------------------------------------------------------------------ the table */

/* Returns the place of the last entry up to `at` that ends at `last` or later, plus 1; 0: there is
 * none. */
static size_t reaching_before(const struct table *table, size_t at, uintptr_t last)
{
    const uintptr_t *highest = table->highest;
    size_t node = table->leaves + at;
    while (highest[node] < last) {
        while ((node & 1) == 0) { /* a left child: nothing before it under its parent */
            node >>= 1;
        }
        if (node == 1) {
            return 0;
        }
        node--; /* its left sibling */
    }
    while (node < table->leaves) {
        node = 2 * node + (highest[2 * node + 1] >= last ? 1 : 0);
    }
    return node - table->leaves + 1;
}

/* Returns how many of the sorted entries begin at `first` or before. */
static size_t beginning_by(const struct table *table, uintptr_t first)
{
    size_t low = 0;
    size_t high = table->sorted;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (table->entries[middle].first <= first) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static bool serves(const struct span_entry *entry, uintptr_t first, uintptr_t last, uint32_t rights,
                   struct rdmux_span *out)
{
    if (entry->first > first || entry->last < last || (entry->rights & rights) != rights) {
        return false;
    }
    void *item = atomic_load_explicit(&entry->item, memory_order_acquire);
    *out = (struct rdmux_span){ entry->first, entry->last, entry->rights, item };
    return item != NULL;
}

static bool search(const struct table *table, uintptr_t first, uintptr_t last, uint32_t rights,
                   struct rdmux_span *out)
{
    size_t at = beginning_by(table, first);
    while (at != 0 && (at = reaching_before(table, at - 1, last)) != 0) {
        at--;
        if (serves(&table->entries[at], first, last, rights, out)) {
            return true;
        }
    }
    size_t count = atomic_load_explicit(&table->count, memory_order_acquire);
    for (size_t i = table->sorted; i < count; i++) {
        if (serves(&table->entries[i], first, last, rights, out)) {
            return true;
        }
    }
    return false;
}

/* --------------------------------------------------------------------------------------- search */

/* Returns the shard of this thread: any serves, and one of its own is the fastest. */
static struct shard *shard_of_thread(struct rdmux_span_index *index)
{
    const char here = 0;
    const uint64_t golden = UINT64_C(0x9e3779b97f4a7c15);
    uint64_t page = (uint64_t)(uintptr_t)&here >> STACK_BITS;
    return &index->shards[(page * golden) >> (64 - SHARD_BITS)];
}

void *rdmux_span_index_find(struct rdmux_span_index *index, uintptr_t first, uintptr_t last,
                            uint32_t rights, struct rdmux_span_hit *hit)
{
    uint64_t removals = atomic_load_explicit(&index->removals, memory_order_acquire);
    if (hit != NULL && hit->span.item != NULL && hit->removals == removals &&
        hit->span.first <= first && hit->span.last >= last &&
        (hit->span.rights & rights) == rights) {
        return hit->span.item;
    }
    _Atomic uint32_t
        *searches = &shard_of_thread(index)
                         ->searches[atomic_load_explicit(&index->turn, memory_order_relaxed) & 1];
    atomic_fetch_add(searches, 1); /* seq_cst, as the load behind it; see wait_for_searches() */
    struct rdmux_span span = { .item = NULL };
    bool found = search(atomic_load(&index->table), first, last, rights, &span);
    atomic_fetch_sub_explicit(searches, 1, memory_order_release);
    if (found && hit != NULL) {
        *hit = (struct rdmux_span_hit){ span, removals };
    }
    return found ? span.item : NULL;
}

/* -------------------------------------------------------------------------------------- changes */

static void wait_for_zero(const _Atomic uint32_t *number)
{
    for (int tries = 0; atomic_load(number) != 0; tries++) {
        if (tries < YIELDS_BEFORE_SLEEP) {
            (void)sched_yield();
        } else { /* a thread of lower priority has to run */
            const struct timespec pause = { .tv_nsec = READERS_PAUSE_NS };
            (void)nanosleep(&pause, NULL);
        }
    }
}

/* Waits until every search that may have the table before this one has ended. */
static void wait_for_searches(struct rdmux_span_index *index)
{
    for (int i = 0; i < 2; i++) {
        uint32_t turn = atomic_fetch_add(&index->turn, 1) & 1;
        for (size_t at = 0; at < SHARD_COUNT; at++) {
            wait_for_zero(&index->shards[at].searches[turn]);
        }
    }
}

static struct table *make_table(struct rdmux_span_index *index, size_t room)
{
    size_t leaves = 1;
    while (leaves < room) {
        leaves *= 2;
    }
    struct table *table = rdmux_allocate(index->fabric, offsetof(struct table, entries) +
                                                            (room + RDMUX_SPAN_FRESH_MAX) *
                                                                sizeof(struct span_entry) +
                                                            2 * leaves * sizeof(uintptr_t));
    if (table != NULL) {
        table->leaves = leaves;
        table->highest = (uintptr_t *)(void *)&table->entries[room + RDMUX_SPAN_FRESH_MAX];
    }
    return table;
}

static bool is_living(const struct span_entry *entry)
{
    return atomic_load_explicit(&entry->item, memory_order_relaxed) != NULL;
}

static void append_sorted(struct table *table, const struct span_entry *from)
{
    struct span_entry *to = &table->entries[table->sorted++];
    to->first = from->first;
    to->last = from->last;
    to->rights = from->rights;
    atomic_init(&to->item, atomic_load_explicit(&from->item, memory_order_relaxed));
}

/* Lists the living fresh entries by their first bytes. Returns their number. */
static size_t sort_fresh(const struct table *table,
                         const struct span_entry *out[RDMUX_SPAN_FRESH_MAX])
{
    size_t count = 0;
    size_t end = atomic_load_explicit(&table->count, memory_order_relaxed);
    for (size_t i = table->sorted; i < end; i++) {
        const struct span_entry *entry = &table->entries[i];
        if (!is_living(entry)) {
            continue;
        }
        size_t at = count++;
        for (; at > 0 && out[at - 1]->first > entry->first; at--) {
            out[at] = out[at - 1];
        }
        out[at] = entry;
    }
    return count;
}

/* Fills a new table with the living entries of the old one, and builds its tree. */
static void fill_table(struct table *to, const struct table *from)
{
    const struct span_entry *fresh[RDMUX_SPAN_FRESH_MAX];
    size_t fresh_count = sort_fresh(from, fresh);
    size_t next = 0;
    for (size_t i = 0; i < from->sorted; i++) {
        const struct span_entry *entry = &from->entries[i];
        while (next < fresh_count && fresh[next]->first < entry->first) {
            append_sorted(to, fresh[next++]);
        }
        if (is_living(entry)) {
            append_sorted(to, entry);
        }
    }
    while (next < fresh_count) {
        append_sorted(to, fresh[next++]);
    }
    for (size_t i = 0; i < to->leaves; i++) {
        to->highest[to->leaves + i] = i < to->sorted ? to->entries[i].last : 0;
    }
    for (size_t node = to->leaves - 1; node > 0; node--) {
        uintptr_t left = to->highest[2 * node];
        uintptr_t right = to->highest[2 * node + 1];
        to->highest[node] = left > right ? left : right;
    }
    atomic_init(&to->count, to->sorted);
}

/* Replaces the table by one without removed entries, all of whose fresh entries are free. */
static enum rdmux_status renew_table(struct rdmux_span_index *index)
{
    struct table *old = atomic_load_explicit(&index->table, memory_order_relaxed);
    size_t count = atomic_load_explicit(&old->count, memory_order_relaxed);
    struct table *table = make_table(index, count - index->removed);
    if (table == NULL) {
        return RDMUX_NO_MEMORY;
    }
    fill_table(table, old);
    index->removed = 0;
    atomic_store(&index->table, table); /* seq_cst, see rdmux_span_index_find() */
    wait_for_searches(index);
    rdmux_release(index->fabric, old);
    return RDMUX_OK;
}

enum rdmux_status rdmux_span_index_reserve(struct rdmux_span_index *index)
{
    const struct table *table = atomic_load_explicit(&index->table, memory_order_relaxed);
    size_t count = atomic_load_explicit(&table->count, memory_order_relaxed);
    return count - table->sorted < RDMUX_SPAN_FRESH_MAX ? RDMUX_OK : renew_table(index);
}

void rdmux_span_index_add(struct rdmux_span_index *index, const struct rdmux_span *span)
{
    struct table *table = atomic_load_explicit(&index->table, memory_order_relaxed);
    size_t at = atomic_load_explicit(&table->count, memory_order_relaxed);
    struct span_entry *entry = &table->entries[at];
    entry->first = span->first;
    entry->last = span->last;
    entry->rights = span->rights;
    atomic_init(&entry->item, span->item);
    atomic_store_explicit(&table->count, at + 1, memory_order_release); /* search() acquires */
}

/* Returns the entry that begins at `first` and has the item; NULL: there is none. */
static struct span_entry *entry_of(struct table *table, uintptr_t first, const void *item)
{
    for (size_t at = beginning_by(table, first); at > 0 && table->entries[at - 1].first == first;
         at--) {
        if (atomic_load_explicit(&table->entries[at - 1].item, memory_order_relaxed) == item) {
            return &table->entries[at - 1];
        }
    }
    size_t count = atomic_load_explicit(&table->count, memory_order_relaxed);
    for (size_t at = table->sorted; at < count; at++) {
        if (atomic_load_explicit(&table->entries[at].item, memory_order_relaxed) == item) {
            return &table->entries[at];
        }
    }
    return NULL;
}

void rdmux_span_index_remove(struct rdmux_span_index *index, uintptr_t first, const void *item)
{
    struct table *table = atomic_load_explicit(&index->table, memory_order_relaxed);
    struct span_entry *entry = entry_of(table, first, item);
    if (entry == NULL) {
        return;
    }
    atomic_store_explicit(&entry->item, NULL, memory_order_release);
    atomic_fetch_add_explicit(&index->removals, 1, memory_order_release);
    index->removed++;
    size_t count = atomic_load_explicit(&table->count, memory_order_relaxed);
    if (index->removed > RDMUX_SPAN_FRESH_MAX && index->removed > count / 2) {
        (void)renew_table(index); /* without memory the next change tries again */
    }
}

/* ----------------------------------------------------------------------------------------- life */

struct rdmux_span_index *rdmux_span_index_create(struct rdmux_fabric *fabric)
{
    struct rdmux_span_index *index = rdmux_allocate(fabric, sizeof(*index));
    if (index == NULL) {
        return NULL;
    }
    index->fabric = fabric;
    struct table *table = make_table(index, 0);
    if (table == NULL) {
        rdmux_release(fabric, index);
        return NULL;
    }
    atomic_init(&index->table, table);
    return index;
}

void rdmux_span_index_destroy(struct rdmux_span_index *index)
{
    if (index == NULL) {
        return;
    }
    struct rdmux_fabric *fabric = index->fabric;
    rdmux_release(fabric, atomic_load_explicit(&index->table, memory_order_relaxed));
    rdmux_release(fabric, index);
}
