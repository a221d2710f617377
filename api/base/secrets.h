/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Memory for secrets: core dumps leave it out, a fork wipes it, and releasing it wipes it. Also the
 * comparison of secrets. */
#ifndef RDMUX_API_BASE_SECRETS_H
#define RDMUX_API_BASE_SECRETS_H

#include <rdmux/provider.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RDMUX_SECRET_PIECE = 128 }; /* bytes of a piece from rdmux_secret_allocate() */

/* Allocates RDMUX_SECRET_PIECE zeroed bytes. NULL: out of memory. */
void *rdmux_secret_allocate(struct rdmux_fabric *fabric);
void rdmux_secret_release(struct rdmux_fabric *fabric, void *piece);
/* Allocates and releases larger secrets, in whole pages. */
void *rdmux_secret_map(size_t size);
void rdmux_secret_unmap(void *memory, size_t size);
/* Wipes the first `size` bytes, which held secrets for a while, and calls rdmux_release(). NULL is
 * allowed. */
void rdmux_release_wiped(struct rdmux_fabric *fabric, void *memory, size_t size);

/* Compares in constant time, so that the time does not tell how many bytes of a guess are right. */
static inline bool rdmux_secret_bytes_match(const uint8_t *a, const uint8_t *b, size_t size)
{
    volatile uint8_t difference = 0; /* volatile: no compiler ends the loop early */
    for (size_t i = 0; i < size; i++) {
        difference = (uint8_t)(difference | (a[i] ^ b[i]));
    }
    return difference == 0;
}

#endif
