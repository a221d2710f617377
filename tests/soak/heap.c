/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "heap.h"

#include <errno.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

static atomic_size_t blocks;
static atomic_size_t bytes;

#ifndef SOAK_SANITIZED
/* The functions of glibc under the names that it offers to wrappers. */
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *memory, size_t size);
void *__libc_memalign(size_t alignment, size_t size);
void __libc_free(void *memory);

/* Libraries call these, too. */
#define IN_FRONT __attribute__((visibility("default")))

static void *count_in(void *memory)
{
    if (memory != NULL) {
        atomic_fetch_add_explicit(&blocks, 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&bytes, malloc_usable_size(memory), memory_order_relaxed);
    }
    return memory;
}

static void count_out(size_t size)
{
    atomic_fetch_sub_explicit(&blocks, 1, memory_order_relaxed);
    atomic_fetch_sub_explicit(&bytes, size, memory_order_relaxed);
}

IN_FRONT void *malloc(size_t size)
{
    return count_in(__libc_malloc(size));
}

IN_FRONT void *calloc(size_t nmemb, size_t size)
{
    return count_in(__libc_calloc(nmemb, size));
}

IN_FRONT void free(void *ptr)
{
    if (ptr != NULL) {
        count_out(malloc_usable_size(ptr));
        __libc_free(ptr);
    }
}

IN_FRONT void *realloc(void *ptr, size_t size)
{
    size_t before = malloc_usable_size(ptr);
    void *after = __libc_realloc(ptr, size);
    bool has_gone = after != NULL || size == 0;
    if (ptr != NULL && has_gone) {
        count_out(before);
    }
    return count_in(after);
}

IN_FRONT void *memalign(size_t alignment, size_t size)
{
    return count_in(__libc_memalign(alignment, size));
}

IN_FRONT void *aligned_alloc(size_t alignment, size_t size)
{
    return memalign(alignment, size);
}

IN_FRONT int posix_memalign(void **memptr, size_t alignment, size_t size)
{
    if (alignment < sizeof(void *) || (alignment & (alignment - 1)) != 0) {
        return EINVAL;
    }
    void *memory = memalign(alignment, size);
    if (memory == NULL) {
        return ENOMEM;
    }
    *memptr = memory;
    return 0;
}
#endif

struct heap heap_live(void)
{
    return (struct heap){ atomic_load(&blocks), atomic_load(&bytes) };
}

void heap_keep_little(void)
{
    if (getenv("MALLOC_ARENA_MAX") == NULL) {
        (void)mallopt(M_ARENA_MAX, 1);
    }
}

void heap_trim(void)
{
    (void)malloc_trim(0);
}
