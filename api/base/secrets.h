/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Memory for secrets: core dumps leave it out, fork wipes it, and it is wiped when it is released. */
#ifndef RDMUX_API_BASE_SECRETS_H
#define RDMUX_API_BASE_SECRETS_H

#include <rdmux/provider.h>

#include <stddef.h>

enum { RDMUX_SECRET_PIECE = 128 }; /* bytes of rdmux_secret_allocate() */

/* RDMUX_SECRET_PIECE zeroed bytes. NULL: no memory. */
void *rdmux_secret_allocate(struct rdmux_fabric *fabric);
void rdmux_secret_release(struct rdmux_fabric *fabric, void *piece);
/* The same for a larger thing; whole pages. */
void *rdmux_secret_map(size_t size);
void rdmux_secret_unmap(void *memory, size_t size);
/* rdmux_release() of what had secrets in its first `size` bytes for a while. NULL is allowed. */
void rdmux_release_wiped(struct rdmux_fabric *fabric, void *memory, size_t size);

#endif
