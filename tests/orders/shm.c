/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The slots of shm and the bytes that belong to them (shm_ring.h), from the producer to the consumer
 * and back. */
#include "shm/shm_ring.h"
#include "tests/orders/model.h"

#include <stdlib.h>
#include <string.h>

enum { CHUNK = 4, MESSAGES = 3 };

static struct shm_direction direction;
static _Atomic uint64_t consumed;
static struct shm_producer producer;
static struct shm_consumer consumer;

static void prepare(void)
{
    for (unsigned i = 0; i < MESSAGES; i++) {
        memset(&direction.slots[i], 0, sizeof(direction.slots[i]));
        model_name(&direction.slots[i].sequence, "a slot's sequence");
    }
    consumed = 0;
    rdmux_shm_producer_init(&producer, &direction, &consumed);
    rdmux_shm_consumer_init(&consumer, &direction, &consumed);
    model_name(&consumed, "consumed");
}

static void send(unsigned number)
{
    uint8_t *data;
    struct shm_slot *slot = shm_producer_reserve(&producer, CHUNK, &data);
    slot->kind = SHM_SEND;
    slot->flags = 0;
    slot->inline_length = 1;
    slot->imm = number;
    slot->body[0] = (uint8_t)number;
    data[0] = (uint8_t)number;
    (void)shm_producer_publish(&producer);
}

static struct shm_message receive(unsigned number)
{
    struct shm_header header;
    while (!shm_consumer_has_message(&consumer)) {
        model_spin();
    }
    model_check(shm_consumer_header(&consumer, &header) == RDMUX_OK, "the header is bad");
    model_check(header.imm == number && header.chunk == CHUNK, "the header is another one");
    struct shm_message message = shm_consumer_message(&consumer, &header);
    model_check(message.body[0] == number && message.data[0] == number, "the bytes are others");
    return message;
}

static uint64_t wait_for(uint64_t count)
{
    uint64_t seen;
    for (;;) {
        model_check(rdmux_shm_producer_consumed(&producer, &seen) == RDMUX_OK, "consumed is bad");
        if (seen >= count) {
            return seen;
        }
        model_spin();
    }
}

static void produce(void)
{
    for (unsigned i = 0; i < MESSAGES; i++) {
        send(i);
    }
}

static void consume(void)
{
    for (unsigned i = 0; i < MESSAGES; i++) {
        struct shm_message message = receive(i);
        shm_consumer_next(&consumer, &message);
        (void)shm_consumer_publish(&consumer);
    }
}

/* A full ring: the first slot, and its bytes, get the next message once the consumer is past it. */
static void prepare_full(void)
{
    prepare();
    send(0);
    producer.head = SHM_SLOT_COUNT;
    producer.data_head = SHM_DATA_SIZE;
}

static void produce_again(void)
{
    model_check(!shm_producer_has_room(&producer, CHUNK), "there is room");
    shm_producer_retire_all(&producer, wait_for(1));
    model_check(shm_producer_has_room(&producer, CHUNK), "there is no room");
    send(SHM_SLOT_COUNT);
}

static void consume_one(void)
{
    struct shm_message message = receive(0);
    shm_consumer_next(&consumer, &message);
    (void)shm_consumer_publish(&consumer);
}

/* The target's CPU leaves a result in the bytes of the slot. */
static void ask(void)
{
    send(0);
    (void)wait_for(1);
    model_check(shm_producer_result(&producer, CHUNK)[0] == 77, "the result is another one");
    shm_producer_retire(&producer);
}

static void answer(void)
{
    struct shm_message message = receive(0);
    message.data[0] = 77;
    shm_consumer_next(&consumer, &message);
    (void)shm_consumer_publish(&consumer);
}

int main(void)
{
    static const struct model_program programs[] = {
        { "a slot and its bytes are whole when the consumer sees it",
          prepare,
          { produce, consume },
          NULL },
        { "a slot is free when the producer uses it again",
          prepare_full,
          { produce_again, consume_one },
          NULL },
        { "a result is whole when the producer sees the slot consumed",
          prepare,
          { ask, answer },
          NULL },
    };
    bool holds = true;
    for (unsigned i = 0; holds && i < sizeof(programs) / sizeof(programs[0]); i++) {
        holds = model_explore(&programs[i]);
    }
    return holds ? EXIT_SUCCESS : EXIT_FAILURE;
}
