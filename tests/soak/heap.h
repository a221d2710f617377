/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Counts the blocks of malloc in the process: heap.c wraps the C library's malloc, for the program
 * and all its libraries. Resident memory and mallinfo2() also count the memory that malloc keeps
 * for later.
 */
#ifndef RDMUX_TESTS_SOAK_HEAP_H
#define RDMUX_TESTS_SOAK_HEAP_H

#include <stddef.h>

struct heap {
    size_t blocks;
    size_t bytes; /* as rounded up by malloc */
};

/* Counts nothing under a sanitizer, which has a malloc of its own and reports leaks itself. */
struct heap heap_live(void);
/* Called before threads exist: sets one arena for all, unless MALLOC_ARENA_MAX is in the
 * environment. A second arena keeps memory at its top resident, up to twice the largest block of
 * the process, and malloc_trim() does not release it. */
void heap_keep_little(void);
/* Returns the memory that malloc keeps for later to the kernel, in whole pages. */
void heap_trim(void);

#endif
