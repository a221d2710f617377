/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Memory for secrets: core dumps leave it out, a fork wipes it, and releasing it wipes it. */
#ifndef RDMUX_API_BASE_SECRETS_H
#define RDMUX_API_BASE_SECRETS_H

#include <rdmux/provider.h>

#include <stddef.h>

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

#endif
