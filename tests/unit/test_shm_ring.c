/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The ring of the shm provider, on plain memory: one process plays both sides. */
#include "shm/shm_ring.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct pair {
    struct shm_direction *direction;
    _Atomic uint64_t consumed;
    struct shm_producer producer;
    struct shm_consumer consumer;
};

static int set_up(void **state)
{
    struct pair *pair = calloc(1, sizeof(*pair));
    assert_non_null(pair);
    pair->direction = aligned_alloc(SHM_PAGE, sizeof(*pair->direction));
    assert_non_null(pair->direction);
    memset(pair->direction, 0, sizeof(*pair->direction));
    rdmux_shm_producer_init(&pair->producer, pair->direction, &pair->consumed);
    rdmux_shm_consumer_init(&pair->consumer, pair->direction, &pair->consumed);
    *state = pair;
    return 0;
}

static int tear_down(void **state)
{
    struct pair *pair = *state;
    free(pair->direction);
    free(pair);
    return 0;
}

/* Retires what the consumer has published, one by one and at once; both must give the same
 * result. */
static void catch_up(struct shm_producer *producer)
{
    uint64_t consumed = 0;
    assert_int_equal(rdmux_shm_producer_consumed(producer, &consumed), RDMUX_OK);
    if (producer->retired == consumed) {
        return;
    }
    uint64_t retired = producer->retired;
    uint64_t data_tail = producer->data_tail;
    shm_producer_retire_all(producer, consumed);
    uint64_t data_tail_at_once = producer->data_tail;
    assert_int_equal(producer->retired, consumed);
    producer->retired = retired;
    producer->data_tail = data_tail;
    while (producer->retired != consumed) {
        shm_producer_retire(producer);
    }
    assert_int_equal(producer->data_tail, data_tail_at_once);
}

/* Byte i of message number. */
static uint8_t pattern(uint64_t number, size_t i)
{
    return (uint8_t)(number * 131 + i * 7 + 1);
}

static void produce(struct shm_producer *producer, uint64_t number, uint32_t chunk)
{
    uint8_t *data = NULL;
    assert_true(shm_producer_has_room(producer, chunk));
    struct shm_slot *slot = shm_producer_reserve(producer, chunk, &data);
    slot->kind = SHM_SEND;
    slot->flags = 0;
    slot->inline_length = 0;
    slot->imm = (uint32_t)number;
    for (uint32_t i = 0; i < chunk; i++) {
        data[i] = pattern(number, i);
    }
    assert_int_equal(shm_producer_publish(producer), number);
}

static struct shm_message read_next(const struct shm_consumer *consumer)
{
    struct shm_header header;
    if (shm_consumer_header(consumer, &header) != RDMUX_OK) {
        fail_msg("the slot at %llu is refused", (unsigned long long)consumer->tail);
        abort();
    }
    return shm_consumer_message(consumer, &header);
}

static void consume(struct shm_consumer *consumer, uint64_t number, uint32_t chunk)
{
    assert_true(shm_consumer_has_message(consumer));
    struct shm_message message = read_next(consumer);
    assert_int_equal(message.kind, SHM_SEND);
    assert_int_equal(message.imm, (uint32_t)number);
    assert_int_equal(message.chunk, chunk);
    for (uint32_t i = 0; i < chunk; i++) {
        assert_int_equal(message.data[i], pattern(number, i));
    }
    shm_consumer_next(consumer, &message);
}

static void a_new_ring_is_empty(void **state)
{
    struct pair *pair = *state;

    assert_false(shm_consumer_has_message(&pair->consumer));
    assert_false(shm_consumer_publish(&pair->consumer));
}

static void a_slot_is_visible_only_once_published(void **state)
{
    struct pair *pair = *state;
    uint8_t *data = NULL;

    struct shm_slot *slot = shm_producer_reserve(&pair->producer, 0, &data);
    slot->kind = SHM_FLUSH;
    bool before = shm_consumer_has_message(&pair->consumer);
    (void)shm_producer_publish(&pair->producer);

    assert_false(before);
    assert_true(shm_consumer_has_message(&pair->consumer));
}

static void messages_of_all_sizes_survive_many_laps(void **state)
{
    struct pair *pair = *state;
    uint32_t random = 1;

    for (uint64_t number = 0; number < 5000; number++) {
        random = random * 1664525 + 1013904223;
        uint32_t chunk = (random >> 16) % 3 == 0 ? 0 : (random >> 8) % (SHM_CHUNK_MAX + 1);
        produce(&pair->producer, number, chunk);
        consume(&pair->consumer, number, chunk);
        assert_true(shm_consumer_publish(&pair->consumer));
        catch_up(&pair->producer);
    }
}

static void slots_run_out_and_are_freed_in_order(void **state)
{
    struct pair *pair = *state;
    for (uint64_t number = 0; number < SHM_SLOT_COUNT; number++) {
        produce(&pair->producer, number, 0);
    }
    bool room_when_full = shm_producer_has_room(&pair->producer, 0);

    consume(&pair->consumer, 0, 0);
    (void)shm_consumer_publish(&pair->consumer);
    catch_up(&pair->producer);

    assert_false(room_when_full);
    assert_true(shm_producer_has_room(&pair->producer, 0));
    produce(&pair->producer, SHM_SLOT_COUNT, 0);
    assert_false(shm_producer_has_room(&pair->producer, 0));
    for (uint64_t number = 1; number <= SHM_SLOT_COUNT; number++) {
        consume(&pair->consumer, number, 0);
    }
    assert_false(shm_consumer_has_message(&pair->consumer));
}

static void data_runs_out_before_slots_do(void **state)
{
    struct pair *pair = *state;
    uint64_t count = SHM_DATA_SIZE / SHM_CHUNK_MAX;
    for (uint64_t number = 0; number < count; number++) {
        produce(&pair->producer, number, SHM_CHUNK_MAX);
    }

    bool room_for_data = shm_producer_has_room(&pair->producer, 1);
    bool room_for_slot = shm_producer_has_room(&pair->producer, 0);

    assert_false(room_for_data);
    assert_true(room_for_slot);
    for (uint64_t number = 0; number < count; number++) {
        consume(&pair->consumer, number, SHM_CHUNK_MAX);
    }
}

static void a_chunk_never_wraps(void **state)
{
    (void)state;
    for (uint64_t head = 0; head < 2 * (uint64_t)SHM_DATA_SIZE; head += SHM_LINE) {
        for (uint32_t chunk = 0; chunk <= SHM_CHUNK_MAX; chunk += 1021) {
            uint64_t start = shm_data_start(head, chunk);

            assert_true(start >= head);
            assert_true((start & (SHM_DATA_SIZE - 1)) + chunk <= SHM_DATA_SIZE);
            assert_true(shm_data_end(start, chunk) - start >= chunk);
            assert_int_equal(shm_data_end(start, chunk) % SHM_LINE, 0);
        }
    }
}

static void an_empty_ring_takes_the_longest_chunk_at_any_position(void **state)
{
    struct pair *pair = *state;
    uint64_t number = 0;
    for (size_t step = 0; step < 4 * ((size_t)SHM_DATA_SIZE / SHM_LINE); step++) {
        produce(&pair->producer, number, 1);
        consume(&pair->consumer, number, 1);
        (void)shm_consumer_publish(&pair->consumer);
        catch_up(&pair->producer);
        number++;

        assert_true(shm_producer_has_room(&pair->producer, SHM_CHUNK_MAX));
    }
}

static void an_answer_is_found_where_the_consumer_put_it(void **state)
{
    struct pair *pair = *state;
    for (uint64_t number = 0; number < 1000; number++) {
        uint32_t chunk = (uint32_t)(number * 97 % SHM_CHUNK_MAX) + 1;
        uint8_t *data = NULL;
        (void)shm_producer_reserve(&pair->producer, chunk, &data);
        (void)shm_producer_publish(&pair->producer);
        struct shm_message message = read_next(&pair->consumer);
        message.data[0] = 'a';
        message.data[chunk - 1] = 'z';
        shm_consumer_next(&pair->consumer, &message);
        (void)shm_consumer_publish(&pair->consumer);

        const uint8_t *answer = shm_producer_result(&pair->producer, chunk);

        assert_ptr_equal(answer, data);
        assert_int_equal(answer[chunk - 1], 'z');
        catch_up(&pair->producer);
    }
}

static void a_hostile_header_is_refused(void **state)
{
    struct pair *pair = *state;
    static const struct {
        uint16_t inline_length;
        uint32_t chunk;
    } cases[] = {
        { SHM_BODY_SIZE + 1, 0 },
        { UINT16_MAX, 0 },
        { 0, SHM_CHUNK_MAX + 1 },
        { 0, UINT32_MAX },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct shm_header header;
        struct shm_slot *slot = &pair->direction->slots[0];
        slot->inline_length = cases[i].inline_length;
        slot->chunk = cases[i].chunk;
        atomic_store(&slot->sequence, 1);

        enum rdmux_status status = shm_consumer_header(&pair->consumer, &header);

        assert_int_equal(status, RDMUX_PROTOCOL);
    }
}

static void an_impossible_consumed_count_is_refused(void **state)
{
    struct pair *pair = *state;
    for (uint64_t number = 0; number < 3; number++) {
        produce(&pair->producer, number, 0);
    }
    atomic_store(&pair->consumed, 1);
    catch_up(&pair->producer);
    static const uint64_t impossible[] = { 0, 4, UINT64_MAX };
    for (size_t i = 0; i < sizeof(impossible) / sizeof(impossible[0]); i++) {
        uint64_t out = 99;
        atomic_store(&pair->consumed, impossible[i]);

        enum rdmux_status status = rdmux_shm_producer_consumed(&pair->producer, &out);

        assert_int_equal(status, RDMUX_PROTOCOL);
        assert_int_equal(out, 99);
    }
}

static void a_slot_of_an_earlier_lap_is_no_message(void **state)
{
    struct pair *pair = *state;
    for (uint64_t number = 0; number < SHM_SLOT_COUNT; number++) {
        produce(&pair->producer, number, 0);
        consume(&pair->consumer, number, 0);
    }

    assert_false(shm_consumer_has_message(&pair->consumer));
}

enum { THREAD_MESSAGES = 20000 };

static uint32_t size_of(uint64_t number)
{
    return (uint32_t)(number * 2654435761U >> 7) % 3000;
}

static void *produce_all(void *argument)
{
    struct pair *pair = argument;
    for (uint64_t number = 0; number < THREAD_MESSAGES; number++) {
        while (!shm_producer_has_room(&pair->producer, size_of(number))) {
            catch_up(&pair->producer);
        }
        produce(&pair->producer, number, size_of(number));
    }
    return NULL;
}

static void two_threads_pass_every_message_whole_and_in_order(void **state)
{
    struct pair *pair = *state;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, produce_all, pair), 0);

    for (uint64_t number = 0; number < THREAD_MESSAGES; number++) {
        while (!shm_consumer_has_message(&pair->consumer)) {
        }
        consume(&pair->consumer, number, size_of(number));
        if (number % 5 == 0) {
            (void)shm_consumer_publish(&pair->consumer);
        }
        if (!shm_consumer_has_message(&pair->consumer)) {
            (void)shm_consumer_publish(&pair->consumer);
        }
    }

    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_false(shm_consumer_has_message(&pair->consumer));
}

int main(void)
{
#define RING_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        RING_TEST(a_new_ring_is_empty),
        RING_TEST(a_slot_is_visible_only_once_published),
        RING_TEST(messages_of_all_sizes_survive_many_laps),
        RING_TEST(slots_run_out_and_are_freed_in_order),
        RING_TEST(data_runs_out_before_slots_do),
        RING_TEST(a_chunk_never_wraps),
        RING_TEST(an_empty_ring_takes_the_longest_chunk_at_any_position),
        RING_TEST(an_answer_is_found_where_the_consumer_put_it),
        RING_TEST(a_hostile_header_is_refused),
        RING_TEST(an_impossible_consumed_count_is_refused),
        RING_TEST(a_slot_of_an_earlier_lap_is_no_message),
        RING_TEST(two_threads_pass_every_message_whole_and_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
