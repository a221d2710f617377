/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * What the process has of malloc, to the block: heap.c stands in front of the C library's, for the program and all
 * libraries in it. Neither resident memory nor mallinfo2() tells it: both count what malloc keeps for later.
 */
#ifndef RDMUX_TESTS_SOAK_HEAP_H
#define RDMUX_TESTS_SOAK_HEAP_H

#include <stddef.h>

struct heap {
    size_t blocks;
    size_t bytes; /* with what malloc rounds up */
};

/* With a sanitizer, which has a malloc of its own and tells of leaks by itself: nothing. */
struct heap heap_live(void);
/* Before there are threads: one arena for all of them, unless MALLOC_ARENA_MAX is in the environment. What a second
 * one has once had on top of what it has now, up to twice the largest block of the process, stays resident, and
 * malloc_trim() leaves it. */
void heap_keep_little(void);
/* What malloc keeps for later goes back, whole pages at least. */
void heap_trim(void);

#endif
