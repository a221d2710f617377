/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* A ring of 64-byte slots and a ring of bytes, from one producer to one consumer in different
 * processes. A slot owns `chunk` contiguous bytes of the data ring. Both sides compute the chunk's
 * position by the same rule, so no position is ever taken from the peer. The consumer publishes one
 * number, the count of executed slots: it frees slots and data, and is the acknowledgment. No
 * function here waits. On each side one thread uses the ring. */
#ifndef RDMUX_SHM_RING_H
#define RDMUX_SHM_RING_H

#include "shm_layout.h"

#include <rdmux/rdmux.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct shm_producer {
    struct shm_slot *slots;
    uint8_t *data;
    const _Atomic uint64_t *consumed; /* stored by the peer */
    uint64_t head;                    /* position of the next slot */
    uint64_t retired;                 /* slots before it were executed and are free */
    uint64_t data_head;
    uint64_t data_tail;
    uint32_t data_ends[SHM_SLOT_COUNT]; /* data_head behind each slot not yet retired, low half */
};

struct shm_consumer {
    struct shm_slot *slots;
    uint8_t *data;
    _Atomic uint64_t *consumed; /* stored by this side */
    uint64_t tail;              /* position of the next slot */
    uint64_t data_tail;
    uint64_t published; /* last value stored to *consumed */
};

/* A copy of a slot's header. */
struct shm_header {
    uint8_t kind;
    uint8_t flags;
    uint16_t inline_length; /* at most SHM_BODY_SIZE */
    uint32_t imm;
    uint32_t chunk; /* at most SHM_CHUNK_MAX */
};

/* A checked header, and the location of the slot's bytes. The peer can still change body and data:
 * copy a field once before checking it. */
struct shm_message {
    uint8_t kind;
    uint8_t flags;
    uint16_t inline_length; /* at most SHM_BODY_SIZE */
    uint32_t imm;
    uint32_t chunk; /* at most SHM_CHUNK_MAX */
    const uint8_t *body;
    uint8_t *data; /* chunk bytes */
    uint64_t data_end;
};

void rdmux_shm_producer_init(struct shm_producer *producer, struct shm_direction *direction,
                             const _Atomic uint64_t *consumed);
void rdmux_shm_consumer_init(struct shm_consumer *consumer, struct shm_direction *direction,
                             _Atomic uint64_t *consumed);

/* Returns where a chunk begins that is reserved at position head of the data ring. A chunk begins
 * on a cache line and never wraps, so it skips the ring's end if it does not fit there. */
static inline uint64_t shm_data_start(uint64_t head, uint32_t chunk)
{
    uint64_t rest = SHM_DATA_SIZE - (head & (SHM_DATA_SIZE - 1));
    return chunk > rest ? head + rest : head;
}

static inline uint64_t shm_data_end(uint64_t start, uint32_t chunk)
{
    return start + ((chunk + (uint64_t)SHM_LINE - 1) & ~((uint64_t)SHM_LINE - 1));
}

/* Returns whether a slot with chunk bytes fits, judged by the slots retired so far. */
static inline bool shm_producer_has_room(const struct shm_producer *producer, uint32_t chunk)
{
    uint64_t end = shm_data_end(shm_data_start(producer->data_head, chunk), chunk);
    return producer->head - producer->retired < SHM_SLOT_COUNT &&
           end - producer->data_tail <= SHM_DATA_SIZE;
}

/* The same for a slot without a chunk. */
static inline bool shm_producer_has_slot(const struct shm_producer *producer)
{
    return producer->head - producer->retired < SHM_SLOT_COUNT;
}

/* Returns the next slot. The caller has checked that there is room. Fill all fields but sequence
 * and chunk, and the bytes at *data; then call shm_producer_publish(). */
static inline struct shm_slot *shm_producer_reserve(struct shm_producer *producer, uint32_t chunk,
                                                    uint8_t **data)
{
    uint64_t start = shm_data_start(producer->data_head, chunk);
    *data = producer->data + (start & (SHM_DATA_SIZE - 1));
    producer->data_head = shm_data_end(start, chunk);
    producer->data_ends[producer->head % SHM_SLOT_COUNT] = (uint32_t)producer->data_head;
    struct shm_slot *slot = &producer->slots[producer->head % SHM_SLOT_COUNT];
    slot->chunk = chunk;
    return slot;
}

/*
 * Prefetch distance in slots. A slot's line is in the cache of the consumer's processor, from an
 * earlier lap. Stores become visible in order, so without a prefetch each message of a stream would
 * wait for the transfer of its line.
 */
enum { SHM_SLOTS_AHEAD = 24 };

#if defined(__x86_64__)
static inline void shm_ask_for_line(void *line)
{
    /* Not __builtin_prefetch(): for x86-64 in general that prefetches for reading. The instruction
     * is a no-op on processors that lack it. */
    __asm__ volatile("prefetchw %0" : : "m"(*(char *)line));
}
#else
static inline void shm_ask_for_line(void *line)
{
    __builtin_prefetch(line, 1);
}
#endif

static inline void shm_producer_ask_ahead(const struct shm_producer *producer)
{
    shm_ask_for_line(&producer->slots[(producer->head + SHM_SLOTS_AHEAD) % SHM_SLOT_COUNT]);
}

/* Publishes the reserved slot to the consumer. Returns its position. */
static inline uint64_t shm_producer_publish(struct shm_producer *producer)
{
    uint64_t position = producer->head;
    producer->head++;
    /* Pairs with the acquire load in shm_consumer_has_message(). */
    atomic_store_explicit(&producer->slots[position % SHM_SLOT_COUNT].sequence,
                          (uint32_t)producer->head, memory_order_release);
    return position;
}

/* Gets the number of slots that the consumer has executed, at most producer->head. RDMUX_PROTOCOL:
 * the consumer's number is impossible. */
RDMUX_MUST_CHECK enum rdmux_status rdmux_shm_producer_consumed(const struct shm_producer *producer,
                                                               uint64_t *out);

/* Returns the bytes of the oldest slot not retired, whose chunk was `chunk` bytes: the result of a
 * read or atomic. */
static inline const uint8_t *shm_producer_result(const struct shm_producer *producer, uint32_t chunk)
{
    uint32_t end = producer->data_ends[producer->retired % SHM_SLOT_COUNT];
    uint32_t start = end - (uint32_t)shm_data_end(0, chunk);
    return producer->data + (start & (SHM_DATA_SIZE - 1));
}

/* Frees the oldest slot and its data. The caller has checked that the consumer is past the slot. */
static inline void shm_producer_retire(struct shm_producer *producer)
{
    uint32_t end = producer->data_ends[producer->retired % SHM_SLOT_COUNT];
    producer->data_tail += end - (uint32_t)producer->data_tail; /* never 4 GiB apart */
    producer->retired++;
}

/* Frees all slots before `consumed`, at least one. */
static inline void shm_producer_retire_all(struct shm_producer *producer, uint64_t consumed)
{
    producer->retired = consumed - 1;
    shm_producer_retire(producer);
}

static inline bool shm_consumer_has_message(const struct shm_consumer *consumer)
{
    /* Pairs with the release store in shm_producer_publish(). */
    uint32_t sequence = atomic_load_explicit(
        &consumer->slots[consumer->tail % SHM_SLOT_COUNT].sequence, memory_order_acquire);
    return sequence == (uint32_t)(consumer->tail + 1);
}

/* Reads the next slot's header, after shm_consumer_has_message() returned true. RDMUX_PROTOCOL: the
 * header's lengths are impossible. */
static inline RDMUX_MUST_CHECK enum rdmux_status shm_consumer_header(
    const struct shm_consumer *consumer, struct shm_header *out)
{
    const struct shm_slot *slot = &consumer->slots[consumer->tail % SHM_SLOT_COUNT];
    /* volatile: read once, so that the value checked is the value used. */
    const volatile uint8_t *small = &slot->kind;
    out->kind = small[0];
    out->flags = small[1];
    out->inline_length = *(const volatile uint16_t *)&slot->inline_length;
    out->imm = *(const volatile uint32_t *)&slot->imm;
    out->chunk = *(const volatile uint32_t *)&slot->chunk;
    return out->inline_length > SHM_BODY_SIZE || out->chunk > SHM_CHUNK_MAX ? RDMUX_PROTOCOL
                                                                            : RDMUX_OK;
}

static inline const uint8_t *shm_consumer_body(const struct shm_consumer *consumer)
{
    return consumer->slots[consumer->tail % SHM_SLOT_COUNT].body;
}

/* Returns the next slot, whose header was read and is valid. Returns the same slot until
 * shm_consumer_next(). */
static inline struct shm_message shm_consumer_message(const struct shm_consumer *consumer,
                                                      const struct shm_header *header)
{
    uint64_t start = shm_data_start(consumer->data_tail, header->chunk);
    return (struct shm_message){
        .kind = header->kind,
        .flags = header->flags,
        .inline_length = header->inline_length,
        .imm = header->imm,
        .chunk = header->chunk,
        .body = shm_consumer_body(consumer),
        .data = consumer->data + (start & (SHM_DATA_SIZE - 1)),
        .data_end = shm_data_end(start, header->chunk),
    };
}

/* Moves past the slot that was read. Do not touch the slot after the next publish. */
static inline void shm_consumer_next(struct shm_consumer *consumer,
                                     const struct shm_message *message)
{
    consumer->tail++;
    consumer->data_tail = message->data_end;
}

/* Publishes how many slots were executed. Returns whether the number has changed. */
static inline bool shm_consumer_publish(struct shm_consumer *consumer)
{
    if (consumer->published == consumer->tail) {
        return false;
    }
    consumer->published = consumer->tail;
    /* Pairs with the acquire load in rdmux_shm_producer_consumed(). */
    atomic_store_explicit(consumer->consumed, consumer->tail, memory_order_release);
    return true;
}

#endif
