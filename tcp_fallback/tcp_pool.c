/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Buffer pool of a completion queue. A mapping costs memory only where it was written, so reserving
 * for the worst case is cheap. The buffer released last is taken next. */
#include "tcp_fallback/tcp_pool.h"

#include "api/system/system.h"

#include <assert.h>
#include <string.h>

enum { CHUNK_MIN = 16 };

struct tcp_pool_chunk {
    struct tcp_pool_chunk *next; /* the chunk before it; chunks end only with the pool */
    uint8_t *memory;
    size_t count;
    size_t fresh; /* buffers at the chunk's end that were never used */
};

enum rdmux_status rdmux_tcp_pool_reserve(struct rdmux_fabric *fabric, struct tcp_pool *pool,
                                         size_t count)
{
    if (pool->reserved + count <= pool->capacity) {
        pool->reserved += count;
        return RDMUX_OK;
    }
    size_t more = pool->capacity / 2;
    more = more < CHUNK_MIN ? CHUNK_MIN : more;
    more = more < count ? count : more;
    struct tcp_pool_chunk *chunk = rdmux_provider_allocate(fabric, sizeof(*chunk));
    if (chunk == NULL) {
        rdmux_provider_error("tcp: out of memory");
        return RDMUX_NO_MEMORY;
    }
    size_t size = more * TCP_BUFFER_SIZE;
    void *memory = rdmux_pages_map(size, RDMUX_PAGES_LAZY);
    if (memory == NULL) {
        rdmux_provider_error("tcp: cannot map %zu bytes of buffers; raise the limit on address "
                             "space (ulimit -v) or use fewer endpoints",
                             size);
        rdmux_provider_release(fabric, chunk);
        return RDMUX_NO_MEMORY;
    }
    chunk->memory = memory;
    chunk->count = more;
    chunk->fresh = more;
    chunk->next = pool->chunks;
    pool->chunks = chunk;
    pool->capacity += more;
    pool->reserved += count;
    return RDMUX_OK;
}

void rdmux_tcp_pool_unreserve(struct tcp_pool *pool, size_t count)
{
    assert(count <= pool->reserved);
    pool->reserved -= count;
}

void *rdmux_tcp_pool_get(struct tcp_pool *pool)
{
    void *buffer = pool->free;
    if (buffer != NULL) {
        memcpy(&pool->free, buffer, sizeof(pool->free));
        return buffer;
    }
    struct tcp_pool_chunk *chunk = pool->chunks;
    while (chunk->fresh == 0) {
        chunk = chunk->next; /* few: a chunk has at least half as many as all before it */
    }
    return chunk->memory + (chunk->count - chunk->fresh--) * TCP_BUFFER_SIZE;
}

void rdmux_tcp_pool_put(struct tcp_pool *pool, void *buffer)
{
    memcpy(buffer, &pool->free, sizeof(pool->free));
    pool->free = buffer;
}

void rdmux_tcp_pool_finish(struct rdmux_fabric *fabric, struct tcp_pool *pool)
{
    while (pool->chunks != NULL) {
        struct tcp_pool_chunk *chunk = pool->chunks;
        pool->chunks = chunk->next;
        rdmux_pages_unmap(chunk->memory, chunk->count * TCP_BUFFER_SIZE);
        rdmux_provider_release(fabric, chunk);
    }
    memset(pool, 0, sizeof(*pool));
}
