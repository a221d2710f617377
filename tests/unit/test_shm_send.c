/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Messages of the shm provider: sends, receives and flushes. */
#include "tests/unit/shm_scene.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const uint64_t sizes[] = { 0,     1,     8,     48,     49,      64,      2047,       2048,
                                  16384, 16385, 65536, 200000, 1048576, 1048577, BUFFER_SIZE };

static void a_message_of_any_size_arrives_whole(void **state)
{
    struct scene *scene = *state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct request receive;
        struct request send;
        memset(scene->sink, 0, BUFFER_SIZE);
        fill_request(&receive, RDMUX_OP_RECV, scene->sink, BUFFER_SIZE);
        fill_request(&send, RDMUX_OP_SEND_IMM, scene->source, sizes[i]);
        send.base.imm = 0xabcd0000U + (uint32_t)i;

        post_receive(&scene->pair->ends[1], &receive);
        assert_int_equal(post(&scene->pair->ends[0], &send), RDMUX_OK);
        shm_pair_poll(scene->pair);

        assert_int_equal(send.base.done, 1);
        assert_int_equal(send.base.status, RDMUX_OK);
        assert_int_equal(receive.base.done, 1);
        assert_int_equal(receive.base.length, sizes[i]);
        assert_int_equal(receive.base.imm, send.base.imm);
        assert_int_equal(receive.base.wc_flags, RDMUX_WC_HAS_IMM);
        assert_memory_equal(scene->sink, scene->source, sizes[i]);
    }
}

/* The bytes of a message that fits into a slot are copied in overlapping pieces, and no byte beyond
 * the message is touched. */
static void a_small_message_touches_its_own_bytes_only(void **state)
{
    struct scene *scene = *state;
    uint8_t expected[SHM_BODY_SIZE + 2];
    for (size_t length = 1; length <= SHM_BODY_SIZE; length++) {
        struct request receive;
        struct request send;
        memset(scene->sink, 0xee, sizeof(expected));
        memset(expected, 0xee, sizeof(expected));
        memcpy(expected + 1, scene->source + length, length);
        fill_request(&receive, RDMUX_OP_RECV, scene->sink + 1, length);
        fill_request(&send, RDMUX_OP_SEND, scene->source + length, length);

        post_receive(&scene->pair->ends[1], &receive);
        assert_int_equal(post(&scene->pair->ends[0], &send), RDMUX_OK);
        shm_pair_poll(scene->pair);

        assert_int_equal(receive.base.done, 1);
        assert_int_equal(receive.base.length, length);
        assert_memory_equal(scene->sink, expected, sizeof(expected));
    }
}

enum {
    RUN = 48,     /* messages, whose receives are adjacent records */
    LISTED = 9,   /* the number of a receive with a list */
    CHUNKED = 41, /* the number of a message that does not fit into a slot */
    SPACE = 8192, /* bytes of each receive */
};

/* A run of small messages is handled as one; lists, and long messages between them, are not. */
static void a_run_of_messages_meets_adjacent_receives_in_order(void **state)
{
    struct scene *scene = *state;
    struct shm_end *receiver = &scene->pair->ends[1];
    static struct rdmux_request receives[RUN];
    static struct rdmux_provider_sge pieces[RUN][2];
    static struct request sends[RUN];
    memset(scene->sink, 0, BUFFER_SIZE);
    for (size_t i = 0; i < RUN; i++) {
        uint8_t *at = scene->sink + i * SPACE;
        bool listed = i == LISTED;
        memset(&receives[i], 0, sizeof(receives[i]));
        pieces[i][0] = (struct rdmux_provider_sge){ .addr = at, .length = listed ? 5 : SPACE };
        pieces[i][1] = (struct rdmux_provider_sge){ .addr = at + SPACE / 2, .length = SPACE / 2 };
        receives[i].op = RDMUX_OP_RECV;
        receives[i].length = listed ? 5 + SPACE / 2 : SPACE;
        receives[i].sges = pieces[i];
        receives[i].sge_count = listed ? 2 : 1;
        fake_receive(&receiver->core.own, &receives[i]);
        fill_request(&sends[i], RDMUX_OP_SEND_IMM, scene->source + i * SPACE,
                     i == CHUNKED ? 3000 : i);
        sends[i].base.imm = (uint32_t)i;
    }
    assert_int_equal(rdmux_shm_post_recv(&receiver->ep->base, receives, RUN), RDMUX_OK);
    for (size_t i = 0; i < RUN; i++) {
        assert_int_equal(post(&scene->pair->ends[0], &sends[i]), RDMUX_OK);
        if (i == RUN / 2) {
            shm_pair_poll(scene->pair);
        }
    }
    shm_pair_poll(scene->pair);

    assert_int_equal(receiver->core.arrived_count, RUN);
    for (size_t i = 0; i < RUN; i++) {
        assert_ptr_equal(receiver->core.arrived[i], &receives[i]);
        assert_int_equal(receives[i].done, 1);
        assert_int_equal(receives[i].opcode, RDMUX_WC_RECV);
        assert_int_equal(receives[i].wc_flags, RDMUX_WC_HAS_IMM);
        assert_int_equal(receives[i].imm, i);
        assert_int_equal(receives[i].length, sends[i].base.length);
        uint64_t first = receives[i].sge_count == 2 && receives[i].length > 5 ? 5
                                                                              : receives[i].length;
        const uint8_t *source = scene->source + i * SPACE;
        const uint8_t *sink = scene->sink + i * SPACE;
        assert_memory_equal(sink, source, first);
        assert_memory_equal(sink + SPACE / 2, source + first, receives[i].length - first);
    }
}

static void a_message_is_streamed_when_the_kernel_may_not_copy(void **state)
{
    struct scene *scene = *state;
    atomic_store(&scene->pair->ends[1].ep->mine->can_copy, 0);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct request receive;
        struct request send;
        memset(scene->sink, 0, BUFFER_SIZE);
        fill_request(&receive, RDMUX_OP_RECV, scene->sink, BUFFER_SIZE);
        fill_request(&send, RDMUX_OP_SEND, scene->source, sizes[i]);
        send.base.flags = RDMUX_PLACED;

        assert_int_equal(post(&scene->pair->ends[0], &send), RDMUX_OK);
        shm_pair_poll(scene->pair);
        assert_int_equal(send.base.done, 0);
        post_receive(&scene->pair->ends[1], &receive);
        shm_pair_poll(scene->pair);

        assert_int_equal(send.base.done, 1);
        assert_int_equal(receive.base.done, 1);
        assert_memory_equal(scene->sink, scene->source, sizes[i]);
    }
}

static void a_message_is_written_into_a_mappable_receive(void **state)
{
    struct scene *scene = *state;
    struct region *region = make_region(scene, NULL, BUFFER_SIZE, WRITABLE);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct request receive;
        struct request send;
        memset(region->addr, 0, BUFFER_SIZE);
        fill_request(&receive, RDMUX_OP_RECV, region->addr, BUFFER_SIZE);
        receive.sge.mr = &region->mr->base;
        fill_request(&send, RDMUX_OP_SEND, scene->source, sizes[i]);

        post_receive(&scene->pair->ends[1], &receive);
        assert_int_equal(post(&scene->pair->ends[0], &send), RDMUX_OK);
        bool wrote_itself = sizes[i] >= 2048 && sizes[i] <= 1048576 &&
                            memcmp(region->addr, scene->source, sizes[i]) == 0;
        shm_pair_poll(scene->pair);

        assert_int_equal(wrote_itself, sizes[i] >= 2048 && sizes[i] <= 1048576);
        assert_int_equal(send.base.done, 1);
        assert_int_equal(receive.base.done, 1);
        assert_int_equal(receive.base.length, sizes[i]);
        assert_memory_equal(region->addr, scene->source, sizes[i]);
    }
}

static void messages_wait_for_receives_in_order_and_none_is_lost(void **state)
{
    struct scene *scene = *state;
    enum { COUNT = 2000 };
    struct request *sends = calloc(COUNT, sizeof(*sends));
    struct request receive;
    uint32_t numbers[COUNT];
    size_t received = 0;
    for (uint32_t i = 0; i < COUNT; i++) {
        numbers[i] = i;
        fill_request(&sends[i], RDMUX_OP_SEND, &numbers[i], sizeof(numbers[i]));
        while (post(&scene->pair->ends[0], &sends[i]) != RDMUX_OK) {
            uint32_t number = 0;
            fill_request(&receive, RDMUX_OP_RECV, &number, sizeof(number));
            post_receive(&scene->pair->ends[1], &receive);
            shm_pair_poll(scene->pair);
            assert_int_equal(receive.base.done, 1);
            assert_int_equal(number, received);
            assert_int_equal(scene->pair->ends[0].ep->base.resume, 1);
            scene->pair->ends[0].ep->base.resume = 0;
            received++;
        }
    }
    while (received < COUNT) {
        uint32_t number = 0;
        fill_request(&receive, RDMUX_OP_RECV, &number, sizeof(number));
        post_receive(&scene->pair->ends[1], &receive);
        shm_pair_poll(scene->pair);
        assert_int_equal(number, received);
        received++;
    }

    assert_int_equal(scene->pair->ends[1].ep->counts.received, COUNT);
    free(sends);
}

static void a_message_longer_than_its_receive_fails_on_both_sides_with_length(void **state)
{
    struct scene *scene = *state;
    static const uint64_t lengths[] = { 9, 1000, 100000 };
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        struct request receive;
        struct request send;
        fill_request(&receive, RDMUX_OP_RECV, scene->sink, 8);
        fill_request(&send, RDMUX_OP_SEND, scene->source, lengths[i]);
        send.base.flags = RDMUX_PLACED;

        post_receive(&scene->pair->ends[1], &receive);
        assert_int_equal(post(&scene->pair->ends[0], &send), RDMUX_OK);
        shm_pair_poll(scene->pair);

        assert_int_equal(scene->pair->ends[0].core.failed, RDMUX_LENGTH);
        assert_int_equal(scene->pair->ends[1].core.failed, RDMUX_LENGTH);
        assert_int_equal(receive.base.status, RDMUX_LENGTH);
        assert_int_equal(receive.base.length, lengths[i]);
        assert_int_equal(send.base.status, RDMUX_LENGTH);
        assert_int_equal(scene->sink[0], 0);
        shm_pair_close(scene->pair);
        scene->pair = shm_pair_connect();
    }
}

static void a_flush_waits_for_all_sends_before_it(void **state)
{
    struct scene *scene = *state;
    struct request send;
    struct request flush;
    struct request receive;
    fill_request(&send, RDMUX_OP_SEND, scene->source, 8);
    fill_request(&flush, RDMUX_OP_WRITE, NULL, 0);
    flush.base.flags = RDMUX_PLACED;
    fill_request(&receive, RDMUX_OP_RECV, scene->sink, 8);

    assert_int_equal(post(&scene->pair->ends[0], &send), RDMUX_OK);
    assert_int_equal(post(&scene->pair->ends[0], &flush), RDMUX_OK);
    shm_pair_poll(scene->pair);
    uint8_t done_before = flush.base.done;
    post_receive(&scene->pair->ends[1], &receive);
    shm_pair_poll(scene->pair);

    assert_int_equal(send.base.done, 1);
    assert_int_equal(done_before, 0);
    assert_int_equal(flush.base.done, 1);
}

int main(void)
{
#define SCENE_TEST(name) cmocka_unit_test_setup_teardown(name, set_scene, clear_scene)
    const struct CMUnitTest tests[] = {
        SCENE_TEST(a_message_of_any_size_arrives_whole),
        SCENE_TEST(a_small_message_touches_its_own_bytes_only),
        SCENE_TEST(a_run_of_messages_meets_adjacent_receives_in_order),
        SCENE_TEST(a_message_is_streamed_when_the_kernel_may_not_copy),
        SCENE_TEST(a_message_is_written_into_a_mappable_receive),
        SCENE_TEST(messages_wait_for_receives_in_order_and_none_is_lost),
        SCENE_TEST(a_message_longer_than_its_receive_fails_on_both_sides_with_length),
        SCENE_TEST(a_flush_waits_for_all_sends_before_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
