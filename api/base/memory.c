/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Memory allocation: from the program's hook, or from malloc and mmap. */
#include "api/base/hooks.h"

#include "api/system/system.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum {
    ALIGNMENT = 64,
    /* Bytes from which on separate pages cost less than memory that is never touched. */
    SPARSE_FROM = 12 * 1024,
};

/* The header right before memory that was given out. */
struct allocation {
    void *given;
    size_t mapped; /* bytes at `given`; 0: from malloc or the hook, which align for any type only */
};

static void *map_pages(size_t size)
{
#if defined(__SANITIZE_ADDRESS__)
    (void)size; /* AddressSanitizer watches memory from malloc */
    return NULL;
#else
    return size < SPARSE_FROM ? NULL : rdmux_pages_map(size, 0);
#endif
}

static void *allocate_by_hook(struct rdmux_fabric *fabric, size_t size, bool sparse)
{
    const struct rdmux_hooks *hooks = rdmux_hooks_of(fabric);
    const size_t extra = sizeof(struct allocation) + ALIGNMENT - 1;
    if (size > SIZE_MAX - extra) {
        return NULL;
    }
    struct allocation allocation = { .mapped = size + extra };
    if (sparse && hooks->allocate == NULL) {
        allocation.given = map_pages(size + extra);
    }
    if (allocation.given == NULL) {
        allocation.mapped = 0;
        allocation.given = hooks->allocate != NULL
                               ? hooks->allocate(hooks->allocate_user, size + extra)
                               : malloc(size + extra);
    }
    if (allocation.given == NULL) {
        return NULL;
    }
    uintptr_t first = (uintptr_t)allocation.given + sizeof(allocation);
    size_t skip = sizeof(allocation) + (size_t)(-first & (ALIGNMENT - 1));
    unsigned char *memory = (unsigned char *)allocation.given + skip;
    memcpy(memory - sizeof(allocation), &allocation, sizeof(allocation));
    if (allocation.mapped == 0) {
        memset(memory, 0, size);
    }
    return memory;
}

void *rdmux_allocate(struct rdmux_fabric *fabric, size_t size)
{
    return allocate_by_hook(fabric, size, false);
}

void *rdmux_allocate_sparse(struct rdmux_fabric *fabric, size_t size)
{
    return allocate_by_hook(fabric, size, true);
}

void rdmux_release(struct rdmux_fabric *fabric, void *memory)
{
    if (memory == NULL) {
        return;
    }
    const struct rdmux_hooks *hooks = rdmux_hooks_of(fabric);
    struct allocation allocation;
    memcpy(&allocation, (unsigned char *)memory - sizeof(allocation), sizeof(allocation));
    if (allocation.mapped != 0) {
        rdmux_pages_unmap(allocation.given, allocation.mapped);
    } else if (hooks->allocate == NULL) {
        free(allocation.given);
    } else if (hooks->release != NULL) {
        hooks->release(hooks->allocate_user, allocation.given);
    }
}

void *rdmux_provider_allocate(struct rdmux_fabric *fabric, size_t size)
{
    return rdmux_allocate(fabric, size);
}

void rdmux_provider_release(struct rdmux_fabric *fabric, void *memory)
{
    rdmux_release(fabric, memory);
}
