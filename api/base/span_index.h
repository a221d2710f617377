/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * An index of spans of memory, which may overlap: finds a span that covers given bytes and has
 * given rights. Any thread may search at any time, and waits for nobody. Changes are made one at a
 * time, by a lock of the caller.
 *
 * A search takes O(log n) steps, and one for each span that covers the bytes and lacks a right.
 * Adding a span takes O(n) steps once in RDMUX_SPAN_FRESH_MAX times, else few.
 */
#ifndef RDMUX_API_BASE_SPAN_INDEX_H
#define RDMUX_API_BASE_SPAN_INDEX_H

#include <rdmux/provider.h>

#include <stdint.h>

enum { RDMUX_SPAN_FRESH_MAX = 64 };

/* A span, from its first byte to its last one. */
struct rdmux_span {
    uintptr_t first;
    uintptr_t last;
    uint32_t rights;
    void *item; /* what the caller keeps there; never NULL */
};

/* The span that a caller's last search found; all zero before. */
struct rdmux_span_hit {
    struct rdmux_span span;
    uint64_t removals; /* spans removed from the index before the search */
};

struct rdmux_span_index;

/* NULL: out of memory. */
struct rdmux_span_index *rdmux_span_index_create(struct rdmux_fabric *fabric);
/* No search is under way any more. NULL is allowed. */
void rdmux_span_index_destroy(struct rdmux_span_index *index);

/* Makes room for one more span. May sleep while a thread that searches does not run.
 * RDMUX_NO_MEMORY: out of memory; nothing has changed. */
enum rdmux_status rdmux_span_index_reserve(struct rdmux_span_index *index);
/* Adds a span, for which there is room. */
void rdmux_span_index_add(struct rdmux_span_index *index, const struct rdmux_span *span);
/* Removes the span that starts at `first` and has this item. Needs no memory. A search that has
 * begun may still return it. */
void rdmux_span_index_remove(struct rdmux_span_index *index, uintptr_t first, const void *item);

/* Returns the item of a span that covers [first, last] and has all of these rights; NULL: there is
 * none. hit: the caller's, used by one thread at a time; a search that it answers costs the same
 * with any number of spans. NULL is allowed. [data path] */
void *rdmux_span_index_find(struct rdmux_span_index *index, uintptr_t first, uintptr_t last,
                            uint32_t rights, struct rdmux_span_hit *hit);

#endif
