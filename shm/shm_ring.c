/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Ring functions that are not inline; see shm_ring.h. */
#include "shm_ring.h"

static_assert((SHM_SLOT_COUNT & (SHM_SLOT_COUNT - 1)) == 0, "positions are masked");
static_assert((SHM_DATA_SIZE & (SHM_DATA_SIZE - 1)) == 0, "positions are masked");
static_assert(2 * SHM_CHUNK_MAX <= SHM_DATA_SIZE, "a chunk fits an empty ring at any position");

void rdmux_shm_producer_init(struct shm_producer *producer, struct shm_direction *direction,
                             const _Atomic uint64_t *consumed)
{
    *producer = (struct shm_producer){
        .slots = direction->slots,
        .data = direction->data,
        .consumed = consumed,
    };
}

void rdmux_shm_consumer_init(struct shm_consumer *consumer, struct shm_direction *direction,
                             _Atomic uint64_t *consumed)
{
    *consumer = (struct shm_consumer){
        .slots = direction->slots,
        .data = direction->data,
        .consumed = consumed,
    };
}

enum rdmux_status rdmux_shm_producer_consumed(const struct shm_producer *producer, uint64_t *out)
{
    /* Pairs with the release store in shm_consumer_publish(). */
    uint64_t consumed = atomic_load_explicit(producer->consumed, memory_order_acquire);
    if (consumed - producer->retired > producer->head - producer->retired) {
        return RDMUX_PROTOCOL;
    }
    *out = consumed;
    return RDMUX_OK;
}
