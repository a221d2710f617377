/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The pool of buffers of a cq. */
#ifndef RDMUX_TCP_POOL_H
#define RDMUX_TCP_POOL_H

#include <rdmux/provider.h>

#include <stddef.h>

enum {
    TCP_BUFFER_SIZE = 68 << 10, /* bytes of a pooled buffer; holds a whole control frame */
};

/* Buffers of TCP_BUFFER_SIZE bytes. An endpoint reserves the most buffers that it can hold when it
 * opens, so the data path never finds the pool empty. Pages cost memory only once they were
 * written, and used buffers are taken first. */
struct tcp_pool {
    void *free;      /* used buffers, linked through their first word */
    size_t capacity; /* buffers in all chunks */
    size_t reserved;
    struct tcp_pool_chunk *chunks;
};

RDMUX_MUST_CHECK enum rdmux_status rdmux_tcp_pool_reserve(struct rdmux_fabric *fabric,
                                                          struct tcp_pool *pool, size_t count);
void rdmux_tcp_pool_unreserve(struct tcp_pool *pool, size_t count);
void *rdmux_tcp_pool_get(struct tcp_pool *pool);
void rdmux_tcp_pool_put(struct tcp_pool *pool, void *buffer);
void rdmux_tcp_pool_finish(struct rdmux_fabric *fabric, struct tcp_pool *pool);

#endif
