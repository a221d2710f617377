/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Slot accounting of a queue pair: each request is reported once, and no queue stays silent for
 * good. */
#include "verbs/verbs_ring.h"

#include <rdmux/provider.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { DEPTH = 6, SIZE = 8, EVERY = 3 };

struct queue {
    struct verbs_send_ring ring;
    struct rdmux_request *slots[SIZE];
    struct rdmux_request requests[SIZE];
};

static void queue_init(struct queue *queue, uint32_t start)
{
    memset(queue, 0, sizeof(*queue));
    queue->ring = (struct verbs_send_ring){
        .requests = queue->slots,
        .mask = SIZE - 1,
        .depth = DEPTH,
        .head = start,
        .tail = start,
        .signaled = start,
        .signal_every = EVERY,
    };
}

static bool take(struct queue *queue, struct rdmux_request *request, enum verbs_wish wish)
{
    bool signal = false;
    (void)verbs_send_ring_take(&queue->ring, request, wish, &signal);
    return signal;
}

/* Counters wrap: everything below is run before and across the wrap. */
static const uint32_t starts[] = { 0, UINT32_MAX - 2, UINT32_MAX / 2 };

static void a_queue_has_room_for_its_depth_and_no_more(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(starts) / sizeof(starts[0]); i++) {
        struct queue queue;
        queue_init(&queue, starts[i]);

        for (uint32_t taken = 0; taken < DEPTH; taken++) {
            assert_int_equal(verbs_send_ring_room(&queue.ring), DEPTH - taken);
            (void)take(&queue, NULL, VERBS_WISH_NONE);
        }

        assert_int_equal(verbs_send_ring_room(&queue.ring), 0);
        (void)verbs_send_ring_retire(&queue.ring);
        assert_int_equal(verbs_send_ring_room(&queue.ring), 1);
    }
}

static void a_request_that_is_waited_for_raises_a_completion(void **state)
{
    (void)state;
    struct queue queue;
    queue_init(&queue, 0);

    assert_true(take(&queue, &queue.requests[0], VERBS_WISH_DONE));
    assert_true(take(&queue, &queue.requests[1], VERBS_WISH_DONE));
}

static void the_first_work_in_an_idle_queue_raises_a_completion(void **state)
{
    (void)state;
    struct queue queue;
    queue_init(&queue, starts[1]);

    assert_true(take(&queue, &queue.requests[0], VERBS_WISH_NONE));
    assert_false(take(&queue, &queue.requests[1], VERBS_WISH_NONE));
    (void)verbs_send_ring_retire(&queue.ring);
    assert_true(take(&queue, &queue.requests[2], VERBS_WISH_NONE));
}

static void at_least_one_request_in_a_fixed_number_raises_a_completion(void **state)
{
    (void)state;
    struct queue queue;
    queue_init(&queue, starts[1]);

    assert_true(take(&queue, NULL, VERBS_WISH_NONE));
    assert_false(take(&queue, NULL, VERBS_WISH_NONE));
    assert_false(take(&queue, NULL, VERBS_WISH_NONE));
    assert_true(take(&queue, NULL, VERBS_WISH_NONE)); /* the third after the first */
    assert_false(take(&queue, NULL, VERBS_WISH_NONE));
}

static void only_the_last_part_of_a_request_raises_a_completion(void **state)
{
    (void)state;
    struct queue queue;
    queue_init(&queue, 0);

    assert_false(take(&queue, NULL, VERBS_WISH_LATER));
    assert_true(take(&queue, &queue.requests[0], VERBS_WISH_NONE));
}

static void a_request_is_reported_once_at_its_last_slot(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(starts) / sizeof(starts[0]); i++) {
        struct queue queue;
        queue_init(&queue, starts[i]);
        (void)take(&queue, NULL, VERBS_WISH_LATER);
        (void)take(&queue, &queue.requests[0], VERBS_WISH_DONE);
        (void)take(&queue, &queue.requests[1], VERBS_WISH_DONE);

        assert_ptr_equal(verbs_send_ring_owner(&queue.ring, starts[i]), &queue.requests[0]);
        assert_ptr_equal(verbs_send_ring_owner(&queue.ring, starts[i] + 1), &queue.requests[0]);
        assert_ptr_equal(verbs_send_ring_owner(&queue.ring, starts[i] + 2), &queue.requests[1]);
        assert_null(verbs_send_ring_owner(&queue.ring, starts[i] + 3));
        assert_null(verbs_send_ring_retire(&queue.ring));
        assert_ptr_equal(verbs_send_ring_retire(&queue.ring), &queue.requests[0]);
        assert_ptr_equal(verbs_send_ring_retire(&queue.ring), &queue.requests[1]);
        assert_true(verbs_send_ring_is_empty(&queue.ring));
        for (size_t slot = 0; slot < SIZE; slot++) {
            assert_null(queue.slots[slot]);
        }
    }
}

static void only_slots_under_way_count_as_posted(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(starts) / sizeof(starts[0]); i++) {
        const uint32_t start = starts[i];
        struct queue queue;
        queue_init(&queue, start);
        assert_false(verbs_send_ring_has(&queue.ring, start));
        (void)take(&queue, NULL, VERBS_WISH_DONE);
        (void)take(&queue, NULL, VERBS_WISH_DONE);
        (void)verbs_send_ring_retire(&queue.ring);

        assert_false(verbs_send_ring_has(&queue.ring, start));
        assert_true(verbs_send_ring_has(&queue.ring, start + 1));
        assert_false(verbs_send_ring_has(&queue.ring, start + 2));
        assert_false(verbs_send_ring_has(&queue.ring, start - 1));
        assert_false(verbs_send_ring_is_under_way(&queue.ring, start + 1));
        assert_true(verbs_send_ring_is_under_way(&queue.ring, start + 2));
        assert_false(verbs_send_ring_is_under_way(&queue.ring, start + 3));
    }
}

static void silent_work_is_work_behind_the_last_completion(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(starts) / sizeof(starts[0]); i++) {
        struct queue queue;
        queue_init(&queue, starts[i]);
        assert_int_equal(verbs_send_ring_silent(&queue.ring), 0);
        (void)take(&queue, NULL, VERBS_WISH_NONE);
        assert_int_equal(verbs_send_ring_silent(&queue.ring), 0);
        (void)take(&queue, NULL, VERBS_WISH_NONE);
        assert_int_equal(verbs_send_ring_silent(&queue.ring), 1);

        (void)verbs_send_ring_retire(&queue.ring);

        assert_false(verbs_send_ring_awaits(&queue.ring));
        assert_int_equal(verbs_send_ring_silent(&queue.ring), 1);
        (void)verbs_send_ring_retire(&queue.ring); /* flushed, with a completion of its own */
        assert_int_equal(verbs_send_ring_silent(&queue.ring), 0);
    }
}

/* Whatever is posted: a completion for the newest slot that raises one always leaves room, or there
 * was none taken. */
static void a_queue_without_signaled_requests_never_stalls(void **state)
{
    (void)state;
    for (uint32_t every = 1; every <= DEPTH / 2; every++) {
        struct queue queue;
        queue_init(&queue, starts[1]);
        queue.ring.signal_every = every;
        for (int round = 0; round < 1000; round++) {
            while (verbs_send_ring_room(&queue.ring) > 0) {
                (void)take(&queue, NULL, VERBS_WISH_NONE);
            }
            assert_true(verbs_send_ring_awaits(&queue.ring));
            while (queue.ring.tail != queue.ring.signaled) {
                (void)verbs_send_ring_retire(&queue.ring);
            }
            assert_true(verbs_send_ring_room(&queue.ring) > 0);
        }
    }
}

static void receives_are_used_in_posting_order(void **state)
{
    (void)state;
    struct rdmux_request requests[3];
    struct rdmux_request *slots[4] = { NULL };
    struct verbs_receive_ring ring = {
        .requests = slots, .mask = 3, .depth = 3, .head = UINT32_MAX, .tail = UINT32_MAX
    };
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(verbs_receive_ring_room(&ring), 3 - i);
        assert_int_equal(verbs_receive_ring_take(&ring, &requests[i]), UINT32_MAX + (uint32_t)i);
    }
    assert_int_equal(verbs_receive_ring_room(&ring), 0);

    assert_null(verbs_receive_ring_retire(&ring, 0)); /* not the oldest */
    assert_ptr_equal(verbs_receive_ring_retire(&ring, UINT32_MAX), &requests[0]);
    assert_null(verbs_receive_ring_retire(&ring, UINT32_MAX)); /* again */
    assert_ptr_equal(verbs_receive_ring_retire(&ring, 0), &requests[1]);
    assert_ptr_equal(verbs_receive_ring_retire(&ring, 1), &requests[2]);
    assert_null(verbs_receive_ring_retire(&ring, 2));
}

static void a_wr_id_identifies_its_work_and_queue(void **state)
{
    (void)state;
    static const struct {
        uint32_t place;
        uint32_t life;
        uint32_t slot;
    } cases[] = {
        { 0, 1, 0 },
        { 1, 0, UINT32_MAX },
        { VERBS_PLACES_MAX - 1, 4095, 77 },
        { 5, 4096 + 3, 1 }, /* lives wrap */
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint64_t queue = verbs_wr_id(cases[i].place, cases[i].life);
        for (int work = VERBS_WORK_SEND; work <= VERBS_WORK_SHARED; work++) {
            uint64_t wr_id = verbs_wr_id_of(queue, (enum verbs_work)work, cases[i].slot);
            assert_int_equal(verbs_wr_id_work(wr_id), work);
            assert_true(verbs_wr_id_queue(wr_id) == queue);
            assert_int_equal(verbs_wr_id_place(wr_id), cases[i].place);
            assert_int_equal(verbs_wr_id_slot(wr_id), cases[i].slot);
        }
    }
    assert_true(verbs_wr_id(5, 1) != verbs_wr_id(5, 2));
    assert_true(verbs_wr_id(5, 1) != verbs_wr_id(6, 1));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_queue_has_room_for_its_depth_and_no_more),
        cmocka_unit_test(a_request_that_is_waited_for_raises_a_completion),
        cmocka_unit_test(the_first_work_in_an_idle_queue_raises_a_completion),
        cmocka_unit_test(at_least_one_request_in_a_fixed_number_raises_a_completion),
        cmocka_unit_test(only_the_last_part_of_a_request_raises_a_completion),
        cmocka_unit_test(a_request_is_reported_once_at_its_last_slot),
        cmocka_unit_test(only_slots_under_way_count_as_posted),
        cmocka_unit_test(silent_work_is_work_behind_the_last_completion),
        cmocka_unit_test(a_queue_without_signaled_requests_never_stalls),
        cmocka_unit_test(receives_are_used_in_posting_order),
        cmocka_unit_test(a_wr_id_identifies_its_work_and_queue),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
