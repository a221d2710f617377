/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The bounds rule of regions. */
#ifndef RDMUX_API_BASE_RANGE_H
#define RDMUX_API_BASE_RANGE_H

#include <stdbool.h>
#include <stdint.h>

/* Returns whether `size` bytes from `offset` on lie within a region of `length` bytes. No sum of
 * the arguments overflows. An empty range at the end of the region lies within it. [data path] */
static inline bool rdmux_is_within(uint64_t offset, uint64_t size, uint64_t length)
{
    return offset <= length && size <= length - offset;
}

#endif
