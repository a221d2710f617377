/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* A ring of 64-byte slots with a ring of bytes beside it, from one producer to one consumer in
 * different processes. A slot owns `chunk` contiguous bytes of the data ring, placed by a rule both
 * sides compute for themselves, so that no position is ever taken from the peer. The consumer
 * publishes one number, how many slots it carried out, which frees slots and data and is at the
 * same time the acknowledgment. No function here waits; all are for one thread per side. */
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
    const _Atomic uint64_t *consumed; /* the peer's */
    uint64_t head;                    /* position of the next slot */
    uint64_t retired;                 /* slots before it were carried out and are free */
    uint64_t data_head;
    uint64_t data_tail;
    uint32_t data_ends[SHM_SLOT_COUNT]; /* data_head behind each slot not yet retired, low half */
};

struct shm_consumer {
    struct shm_slot *slots;
    uint8_t *data;
    _Atomic uint64_t *consumed; /* ours */
    uint64_t tail;              /* position of the next slot */
    uint64_t data_tail;
    uint64_t published; /* last value stored to *consumed */
};

/* What a slot says of itself, copied. */
struct shm_header {
    uint8_t kind;
    uint8_t flags;
    uint16_t inline_length; /* at most SHM_BODY_SIZE */
    uint32_t imm;
    uint32_t chunk; /* at most SHM_CHUNK_MAX */
};

/* The same, checked, and where its bytes are. body and data stay the peer's to change: copy a field
 * once before looking at it. */
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

/* Where chunk bytes go that are wanted at position head of the data ring: a chunk begins on a cache
 * line and never wraps, so it skips the ring's end if it would not fit. */
static inline uint64_t shm_data_start(uint64_t head, uint32_t chunk)
{
    uint64_t rest = SHM_DATA_SIZE - (head & (SHM_DATA_SIZE - 1));
    return chunk > rest ? head + rest : head;
}

static inline uint64_t shm_data_end(uint64_t start, uint32_t chunk)
{
    return start + ((chunk + (uint64_t)SHM_LINE - 1) & ~((uint64_t)SHM_LINE - 1));
}

/* Whether a slot with chunk bytes fits, by what is known to be retired. */
static inline bool shm_producer_has_room(const struct shm_producer *producer, uint32_t chunk)
{
    uint64_t end = shm_data_end(shm_data_start(producer->data_head, chunk), chunk);
    return producer->head - producer->retired < SHM_SLOT_COUNT &&
           end - producer->data_tail <= SHM_DATA_SIZE;
}

/* The same for one without a chunk. */
static inline bool shm_producer_has_slot(const struct shm_producer *producer)
{
    return producer->head - producer->retired < SHM_SLOT_COUNT;
}

/* The next slot, of which there is room. Fill all but sequence, and the bytes at *data; then
 * shm_producer_publish(). */
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
 * The line of a slot is in the cache of the consumer's processor, from an earlier lap. Stores are made
 * one after the other, so without asking for it ahead of time each message of a stream would wait for
 * its line to come over. So many slots ahead:
 */
enum { SHM_SLOTS_AHEAD = 24 };

#if defined(__x86_64__)
static inline void shm_ask_for_line(void *line)
{
    /* Not __builtin_prefetch(): for x86-64 in general that asks for a copy to read. To processors
     * that lack the instruction it is a no-op. */
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

/* Shows the reserved slot to the consumer. Returns its position. */
static inline uint64_t shm_producer_publish(struct shm_producer *producer)
{
    uint64_t position = producer->head;
    producer->head++;
    /* Pairs with the acquire load in shm_consumer_has_message(). */
    atomic_store_explicit(&producer->slots[position % SHM_SLOT_COUNT].sequence,
                          (uint32_t)producer->head, memory_order_release);
    return position;
}

/* How far the consumer came, at most producer->head. RDMUX_PROTOCOL: its number is impossible. */
RDMUX_MUST_CHECK enum rdmux_status rdmux_shm_producer_consumed(const struct shm_producer *producer,
                                                               uint64_t *out);

/* The bytes of the oldest slot not retired, whose chunk was `chunk`: what a read got. */
static inline const uint8_t *shm_producer_result(const struct shm_producer *producer, uint32_t chunk)
{
    uint32_t end = producer->data_ends[producer->retired % SHM_SLOT_COUNT];
    uint32_t start = end - (uint32_t)shm_data_end(0, chunk);
    return producer->data + (start & (SHM_DATA_SIZE - 1));
}

/* Frees the oldest slot and its data. The caller saw that the consumer is past it. */
static inline void shm_producer_retire(struct shm_producer *producer)
{
    uint32_t end = producer->data_ends[producer->retired % SHM_SLOT_COUNT];
    producer->data_tail += end - (uint32_t)producer->data_tail; /* never 4 GiB apart */
    producer->retired++;
}

/* Frees all slots before `consumed`, of which there is one at least. */
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

/* Reads the next slot's header; shm_consumer_has_message() was true. RDMUX_PROTOCOL: its lengths
 * are impossible. */
static inline RDMUX_MUST_CHECK enum rdmux_status shm_consumer_header(
    const struct shm_consumer *consumer, struct shm_header *out)
{
    const struct shm_slot *slot = &consumer->slots[consumer->tail % SHM_SLOT_COUNT];
    /* volatile: read once, so that what is checked is what is used. */
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

/* The next slot, whose header was read and found good. Again until shm_consumer_next(). */
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

/* Goes past the slot that was read. Nothing of it may be touched after the next publish. */
static inline void shm_consumer_next(struct shm_consumer *consumer,
                                     const struct shm_message *message)
{
    consumer->tail++;
    consumer->data_tail = message->data_end;
}

/* Tells the producer how far we are. Returns whether that was news. */
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
