/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Each liberty of a device is visible to a program that relies on unpromised behaviour, and ends
 * where the rules say. */
#include "support.h"

#include <stdlib.h>

enum { FROM = 0, TO = 16384, BACK = 32768, SEEDS = 40 };

static struct pair pair_of(const char *world, unsigned int seed, const char *device)
{
    char options[256];
    (void)snprintf(options, sizeof(options), "seed=%u,%s", seed, world);
    return pair_make(&(struct wishes){ .world = options, .device = device });
}

/* Returns for how many of the seeds body returns true. */
static unsigned int seen(const char *world, const char *device, bool (*body)(struct pair *pair))
{
    unsigned int count = 0;
    for (unsigned int seed = 1; seed <= SEEDS; seed++) {
        struct pair pair = pair_of(world, seed, device);
        count += body(&pair) ? 1 : 0;
        pair_end(&pair);
    }
    return count;
}

static bool sent_bytes_changed(struct pair *pair)
{
    fill(&pair->a, FROM, 64, 1);
    assert_int_equal(post_recv(&pair->b, 2, TO, 64), 0);
    assert_int_equal(post_send(&pair->a, 1, FROM, 64, IBV_SEND_SIGNALED), 0);
    fill(&pair->a, FROM, 64, 2);
    expect_wc(pair->b.recv_cq, 2, IBV_WC_SUCCESS);
    expect_wc(pair->a.send_cq, 1, IBV_WC_SUCCESS);
    assert_true(filled(&pair->b, TO, 64, 1) || filled(&pair->b, TO, 64, 2));
    return filled(&pair->b, TO, 64, 2);
}

static void a_buffer_reused_before_its_completion_is_found_out(void **state)
{
    (void)state;
    assert_int_equal(seen("doorbell=0", "link=roce", sent_bytes_changed), 0);
    assert_in_range(seen("doorbell=5us", "link=roce", sent_bytes_changed), SEEDS / 2, SEEDS);
}

static void completions_come_late_but_in_order(void **state)
{
    (void)state;
    unsigned int late = 0;
    for (unsigned int seed = 1; seed <= SEEDS; seed++) {
        struct pair pair = pair_of("completion=50us,step=0", seed, "link=ib");
        for (uint64_t i = 0; i < 8; i++) {
            assert_int_equal(post_write(&pair.a, i, FROM, 8, &pair.b, TO, IBV_SEND_SIGNALED), 0);
        }
        late += sim_now(pair.world) == 0;
        for (uint64_t i = 0; i < 8; i++) {
            expect_wc(pair.a.send_cq, i, IBV_WC_SUCCESS);
        }
        assert_in_range(sim_now(pair.world), 1, 50000);
        pair_end(&pair);
    }
    assert_int_equal(late, SEEDS);
}

static void completions_come_in_batches_but_do_come(void **state)
{
    (void)state;
    struct pair pair = pair_of("batch=4,completion=1ms", 1, "link=roce");
    struct ibv_wc wc[8];
    for (uint64_t i = 0; i < 3; i++) {
        assert_int_equal(post_write(&pair.a, i, FROM, 8, &pair.b, TO, IBV_SEND_SIGNALED), 0);
        assert_int_equal(ibv_poll_cq(pair.a.send_cq, 8, wc), 0);
    }
    assert_int_equal(post_write(&pair.a, 3, FROM, 8, &pair.b, TO, IBV_SEND_SIGNALED), 0);
    assert_int_equal(ibv_poll_cq(pair.a.send_cq, 8, wc), 4);
    assert_int_equal(post_write(&pair.a, 4, FROM, 8, &pair.b, TO, IBV_SEND_SIGNALED), 0);
    assert_int_equal(ibv_poll_cq(pair.a.send_cq, 8, wc), 0);
    (void)sim_advance(pair.world, 1000000);
    assert_int_equal(ibv_poll_cq(pair.a.send_cq, 8, wc), 1);
    pair_end(&pair);
}

/* ----------------------------------------------------------------------------------- visibility */

static void write_done(struct pair *pair, size_t offset)
{
    fill(&pair->a, FROM, 256, 1);
    assert_int_equal(post_write(&pair->a, 1, FROM, 256, &pair->b, offset, IBV_SEND_SIGNALED), 0);
    expect_wc(pair->a.send_cq, 1, IBV_WC_SUCCESS);
    (void)sim_advance(pair->world, SIM_FOREVER);
}

static void a_write_s_completion_says_nothing_about_the_target(void **state)
{
    (void)state;
    struct pair pair = pair_of("visible=forced", 1, "link=roce");
    write_done(&pair, TO);
    assert_int_equal(pair.b.memory[TO], 0);
    assert_true(sim_counters(pair.world).placed_late == 0);
    pair_end(&pair);
}

static void a_later_receive_makes_writes_visible_when_it_is_polled(void **state)
{
    (void)state;
    struct pair pair = pair_of("visible=forced", 1, "link=roce");
    write_done(&pair, TO);
    assert_int_equal(post_recv(&pair.b, 2, BACK, 256), 0);
    assert_int_equal(post_send(&pair.a, 3, FROM, 256, IBV_SEND_SIGNALED), 0);
    expect_wc(pair.a.send_cq, 3, IBV_WC_SUCCESS);
    (void)sim_advance(pair.world, SIM_FOREVER);
    assert_int_equal(pair.b.memory[TO], 0); /* the entry is there, but was not polled */
    assert_int_equal(pair.b.memory[BACK], 0);
    expect_wc(pair.b.recv_cq, 2, IBV_WC_SUCCESS);
    assert_true(filled(&pair.b, TO, 256, 1));
    assert_true(filled(&pair.b, BACK, 256, 1));
    pair_end(&pair);
}

static void an_earlier_receive_does_not(void **state)
{
    (void)state;
    struct pair pair = pair_of("visible=forced", 1, "link=roce");
    fill(&pair.a, FROM, 256, 1);
    assert_int_equal(post_recv(&pair.b, 2, BACK, 256), 0);
    assert_int_equal(post_send(&pair.a, 3, FROM, 256, IBV_SEND_SIGNALED), 0);
    assert_int_equal(post_write(&pair.a, 4, FROM, 256, &pair.b, TO, IBV_SEND_SIGNALED), 0);
    expect_wc(pair.a.send_cq, 3, IBV_WC_SUCCESS);
    expect_wc(pair.a.send_cq, 4, IBV_WC_SUCCESS);
    expect_wc(pair.b.recv_cq, 2, IBV_WC_SUCCESS);
    assert_true(filled(&pair.b, BACK, 256, 1));
    assert_int_equal(pair.b.memory[TO], 0);
    pair_end(&pair);
}

static void a_notice_makes_its_own_bytes_visible(void **state)
{
    (void)state;
    struct pair pair = pair_of("visible=forced,scatter=yes", 1, "link=roce");
    fill(&pair.a, FROM, 256, 1);
    assert_int_equal(post_recv(&pair.b, 2, BACK, 0), 0);
    assert_int_equal(post_write_imm(&pair.a, 1, FROM, 256, &pair.b, TO, 5, 0), 0);
    assert_int_equal(pair.b.memory[TO], 0);
    expect_wc(pair.b.recv_cq, 2, IBV_WC_SUCCESS);
    assert_true(filled(&pair.b, TO, 256, 1));
    pair_end(&pair);
}

static void a_read_or_an_atomic_of_the_same_queue_pair_flushes(void **state)
{
    (void)state;
    for (int way = 0; way < 3; way++) {
        struct pair pair = pair_of("visible=forced", 1, "link=roce");
        write_done(&pair, TO);
        int posted = way == 0 ? post_read(&pair.a, 2, BACK, 8, &pair.b, BACK, IBV_SEND_SIGNALED)
                     : way == 1
                         ? post_read(&pair.a, 2, BACK, 0, &pair.b, BACK, IBV_SEND_SIGNALED)
                         : post_fetch_add(&pair.a, 2, BACK, &pair.b, BACK, 1, IBV_SEND_SIGNALED);
        assert_int_equal(posted, 0);
        expect_wc(pair.a.send_cq, 2, IBV_WC_SUCCESS);
        assert_true(filled(&pair.b, TO, 256, 1));
        pair_end(&pair);
    }
}

static void a_read_of_another_queue_pair_does_not(void **state)
{
    (void)state;
    struct wishes wishes = { .world = "visible=forced", .device = "link=roce" };
    struct pair pair = pair_make(&wishes);
    struct ibv_qp *first = pair.a.qp;
    struct ibv_qp *second = node_qp(&pair.a, &wishes);
    struct ibv_qp *peer = node_qp(&pair.b, &wishes);
    qps_connect(&pair.a, second, &pair.b, peer, &wishes);
    write_done(&pair, TO);
    pair.a.qp = second;
    assert_int_equal(post_read(&pair.a, 2, BACK, 256, &pair.b, TO, IBV_SEND_SIGNALED), 0);
    expect_wc(pair.a.send_cq, 2, IBV_WC_SUCCESS);
    assert_int_equal(pair.a.memory[BACK], 0);
    assert_int_equal(pair.b.memory[TO], 0);
    assert_int_equal(ibv_destroy_qp(second), 0);
    assert_int_equal(ibv_destroy_qp(peer), 0);
    pair.a.qp = first;
    pair_end(&pair);
}

static void the_end_of_a_region_or_queue_pair_lets_nothing_come_later(void **state)
{
    (void)state;
    struct pair pair = pair_of("visible=forced", 1, "link=roce");
    struct ibv_mr *mr = ibv_reg_mr(pair.b.pd, pair.b.memory + BACK, 8, 0);
    write_done(&pair, TO);
    assert_int_equal(pair.b.memory[TO], 0);
    assert_int_equal(ibv_dereg_mr(mr), 0);
    assert_true(filled(&pair.b, TO, 256, 1));

    write_done(&pair, BACK);
    assert_int_equal(pair.b.memory[BACK], 0);
    assert_int_equal(ibv_destroy_qp(pair.b.qp), 0);
    pair.b.qp = NULL;
    assert_true(filled(&pair.b, BACK, 256, 1));
    pair_end(&pair);
}

static void a_read_s_bytes_are_there_when_it_is_polled(void **state)
{
    (void)state;
    struct pair pair = pair_of("visible=forced", 1, "link=roce");
    fill(&pair.b, TO, 256, 1);
    assert_int_equal(post_read(&pair.a, 1, BACK, 256, &pair.b, TO, 0), 0);
    assert_int_equal(post_write(&pair.a, 2, FROM, 8, &pair.b, FROM, IBV_SEND_SIGNALED), 0);
    (void)sim_advance(pair.world, SIM_FOREVER);
    assert_int_equal(pair.a.memory[BACK], 0);
    expect_wc(pair.a.send_cq, 2, IBV_WC_SUCCESS); /* a later completion covers it */
    assert_true(filled(&pair.a, BACK, 256, 1));
    pair_end(&pair);
}

static void with_time_bytes_become_visible_by_themselves(void **state)
{
    (void)state;
    struct pair pair = pair_of("visible=100us", 1, "link=roce");
    fill(&pair.a, FROM, 256, 1);
    assert_int_equal(post_write(&pair.a, 1, FROM, 256, &pair.b, TO, IBV_SEND_SIGNALED), 0);
    assert_int_equal(pair.b.memory[TO], 0);
    (void)sim_advance(pair.world, 100000);
    assert_true(filled(&pair.b, TO, 256, 1));
    assert_int_equal(sim_counters(pair.world).placed_forced, 0);
    pair_end(&pair);
}

static bool last_byte_came_before_another(struct pair *pair)
{
    bool found = false;
    fill(&pair->a, FROM, 256, 1);
    assert_int_equal(post_write(&pair->a, 1, FROM, 256, &pair->b, TO, IBV_SEND_SIGNALED), 0);
    while (sim_step(pair->world)) {
        found = found ||
                (pair->b.memory[TO + 255] == pair->a.memory[255] && !filled(&pair->b, TO, 256, 1));
    }
    assert_true(filled(&pair->b, TO, 256, 1));
    return found;
}

static void the_last_byte_of_a_write_says_nothing_about_the_others(void **state)
{
    (void)state;
    const char *world = "visible=10us,scatter=yes";
    assert_in_range(seen(world, "link=roce", last_byte_came_before_another), SEEDS / 4, SEEDS);
    assert_int_equal(seen("visible=10us", "link=roce", last_byte_came_before_another), 0);
    assert_int_equal(seen(world, "link=roce,data_in_order=yes", last_byte_came_before_another), 0);
}

static bool flag_came_before_data(struct pair *pair)
{
    bool found = false;
    fill(&pair->a, FROM, 8, 1);
    assert_int_equal(post_write(&pair->a, 1, FROM, 8, &pair->b, TO, 0), 0);
    assert_int_equal(post_write(&pair->a, 2, FROM, 8, &pair->b, BACK, IBV_SEND_SIGNALED), 0);
    while (sim_step(pair->world)) {
        found = found || (filled(&pair->b, BACK, 8, 1) && !filled(&pair->b, TO, 8, 1));
    }
    return found;
}

static void a_flag_written_after_the_data_says_nothing_about_it(void **state)
{
    (void)state;
    assert_in_range(seen("visible=10us", "link=roce", flag_came_before_data), SEEDS / 4, SEEDS);
}

static bool overlap_is_wrong(struct pair *pair)
{
    for (unsigned int i = 0; i < 20; i++) {
        fill(&pair->a, FROM + i * 256, 256, (uint8_t)(i * 11));
        assert_int_equal(post_write(&pair->a, i, FROM + i * 256, 256, &pair->b, TO + (i % 2) * 100,
                                    IBV_SEND_SIGNALED),
                         0);
    }
    for (unsigned int i = 0; i < 20; i++) {
        expect_wc(pair->a.send_cq, i, IBV_WC_SUCCESS);
    }
    (void)sim_advance(pair->world, SIM_FOREVER);
    /* The last write is at 100; only the first 100 bytes of the previous one are left. */
    return !filled(&pair->b, TO + 100, 256, (uint8_t)(19 * 11)) ||
           !filled(&pair->b, TO, 100, (uint8_t)(18 * 11));
}

static void writes_to_the_same_bytes_end_as_the_last_one(void **state)
{
    (void)state;
    assert_int_equal(seen("freedoms=all", "link=roce", overlap_is_wrong), 0);
    assert_int_equal(seen("visible=50us,scatter=yes,latency=1us,packet=64,drop=50", "link=roce",
                          overlap_is_wrong),
                     0);
}

/* ---------------------------------------------------------------------------------------- reads */

static bool read_saw_later_write(struct pair *pair)
{
    fill(&pair->b, TO, 64, 1);
    fill(&pair->a, FROM, 64, 2);
    assert_int_equal(post_read(&pair->a, 1, BACK, 64, &pair->b, TO, IBV_SEND_SIGNALED), 0);
    assert_int_equal(post_write(&pair->a, 2, FROM, 64, &pair->b, TO, IBV_SEND_SIGNALED), 0);
    expect_wc(pair->a.send_cq, 1, IBV_WC_SUCCESS);
    expect_wc(pair->a.send_cq, 2, IBV_WC_SUCCESS);
    assert_true(filled(&pair->a, BACK, 64, 1) || filled(&pair->a, BACK, 64, 2));
    return filled(&pair->a, BACK, 64, 2);
}

static void without_a_fence_a_read_may_see_a_later_write(void **state)
{
    (void)state;
    assert_int_equal(seen("latency=2us", "link=roce", read_saw_later_write), 0);
    unsigned int count = seen("latency=2us,late_read=50", "link=roce", read_saw_later_write);
    assert_in_range(count, SEEDS / 5, SEEDS - SEEDS / 5);
}

static bool send_overtook_read(struct pair *pair)
{
    fill(&pair->b, TO, 64, 7);
    assert_int_equal(post_recv(&pair->b, 3, BACK, 64), 0);
    assert_int_equal(post_read(&pair->a, 1, BACK, 64, &pair->b, TO, IBV_SEND_SIGNALED), 0);
    assert_int_equal(post_send(&pair->a, 2, BACK, 64, IBV_SEND_SIGNALED), 0);
    expect_wc(pair->b.recv_cq, 3, IBV_WC_SUCCESS);
    expect_wc(pair->a.send_cq, 1, IBV_WC_SUCCESS);
    return !filled(&pair->b, BACK, 64, 7);
}

static void without_a_fence_a_send_does_not_wait_for_the_read_before_it(void **state)
{
    (void)state;
    assert_int_equal(seen("latency=2us", "link=roce", send_overtook_read), SEEDS);
}

static bool reads_changed_order(struct pair *pair)
{
    uint64_t *word = (uint64_t *)(void *)(pair->b.memory + TO);
    const uint64_t *got = (const uint64_t *)(const void *)(pair->a.memory + BACK);
    for (uint64_t i = 0; i < 16; i++) {
        assert_int_equal(post_read(&pair->a, i, BACK + i * 8, 8, &pair->b, TO, IBV_SEND_SIGNALED),
                         0);
    }
    for (unsigned int i = 0; i < 1000 && sim_step(pair->world); i++) {
        (*word)++;
    }
    for (uint64_t i = 0; i < 16; i++) {
        expect_wc(pair->a.send_cq, i, IBV_WC_SUCCESS);
        if (i > 0 && got[i] < got[i - 1]) {
            return true;
        }
    }
    return false;
}

static void late_reads_keep_their_order(void **state)
{
    (void)state;
    assert_int_equal(
        seen("latency=1us,jitter=5us,late_read=50,shuffle=yes", "link=roce", reads_changed_order),
        0);
}

/* -------------------------------------------------------------------------------------- atomics */

static bool cpu_update_was_lost(struct pair *pair)
{
    uint64_t *word = (uint64_t *)(void *)(pair->b.memory + TO);
    *word = 100;
    assert_int_equal(post_fetch_add(&pair->a, 1, BACK, &pair->b, TO, 1, IBV_SEND_SIGNALED), 0);
    (void)__atomic_fetch_add(word, 10, __ATOMIC_SEQ_CST);
    expect_wc(pair->a.send_cq, 1, IBV_WC_SUCCESS);
    (void)sim_advance(pair->world, SIM_FOREVER);
    return *word != 111;
}

static void atomics_of_the_adapter_s_scope_lose_what_the_cpu_does(void **state)
{
    (void)state;
    assert_in_range(seen("atomic_gap=10us", "link=roce", cpu_update_was_lost), SEEDS / 2, SEEDS);
    assert_int_equal(seen("atomic_gap=10us", "link=roce,atomics=glob", cpu_update_was_lost), 0);
    assert_int_equal(seen("atomic_gap=0", "link=roce", cpu_update_was_lost), 0);
}

static bool device_lost_count(struct pair *pair)
{
    uint64_t *word = (uint64_t *)(void *)(pair->b.memory + TO);
    for (uint64_t i = 0; i < 20; i++) {
        assert_int_equal(post_fetch_add(&pair->a, i, BACK, &pair->b, TO, 1, IBV_SEND_SIGNALED), 0);
        expect_wc(pair->a.send_cq, i, IBV_WC_SUCCESS);
    }
    assert_int_equal(post_read(&pair->a, 99, BACK, 8, &pair->b, TO, IBV_SEND_SIGNALED), 0);
    expect_wc(pair->a.send_cq, 99, IBV_WC_SUCCESS);
    return *word != 20 || *(uint64_t *)(void *)(pair->a.memory + BACK) != 20;
}

static void but_not_what_the_device_does(void **state)
{
    (void)state;
    assert_int_equal(seen("atomic_gap=1ms", "link=roce", device_lost_count), 0);
}

/* ---------------------------------------------------------------------------------------- order */

static bool second_came_first(struct pair *pair)
{
    struct wishes wishes = { .depth = 4 };
    struct ibv_qp *first = pair->a.qp;
    struct ibv_qp *second = node_qp(&pair->a, &wishes);
    struct ibv_qp *peer = node_qp(&pair->b, &wishes);
    qps_connect(&pair->a, second, &pair->b, peer, &wishes);
    assert_int_equal(post_write(&pair->a, 1, FROM, 8, &pair->b, TO, IBV_SEND_SIGNALED), 0);
    pair->a.qp = second;
    assert_int_equal(post_write(&pair->a, 2, FROM, 8, &pair->b, TO, IBV_SEND_SIGNALED), 0);
    bool turned = next_wc(pair->a.send_cq).wr_id == 2;
    (void)next_wc(pair->a.send_cq);
    assert_int_equal(ibv_destroy_qp(second), 0);
    assert_int_equal(ibv_destroy_qp(peer), 0);
    pair->a.qp = first;
    return turned;
}

static void events_of_one_moment_come_in_any_order_if_shuffled(void **state)
{
    (void)state;
    assert_int_equal(seen("latency=5us", "link=roce", second_came_first), 0);
    assert_in_range(seen("latency=5us,shuffle=yes", "link=roce", second_came_first), SEEDS / 5,
                    SEEDS - SEEDS / 5);
    assert_in_range(seen("latency=5us,jitter=5us", "link=roce", second_came_first), SEEDS / 5,
                    SEEDS - SEEDS / 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_buffer_reused_before_its_completion_is_found_out),
        cmocka_unit_test(completions_come_late_but_in_order),
        cmocka_unit_test(completions_come_in_batches_but_do_come),
        cmocka_unit_test(a_write_s_completion_says_nothing_about_the_target),
        cmocka_unit_test(a_later_receive_makes_writes_visible_when_it_is_polled),
        cmocka_unit_test(an_earlier_receive_does_not),
        cmocka_unit_test(a_notice_makes_its_own_bytes_visible),
        cmocka_unit_test(a_read_or_an_atomic_of_the_same_queue_pair_flushes),
        cmocka_unit_test(a_read_of_another_queue_pair_does_not),
        cmocka_unit_test(the_end_of_a_region_or_queue_pair_lets_nothing_come_later),
        cmocka_unit_test(a_read_s_bytes_are_there_when_it_is_polled),
        cmocka_unit_test(with_time_bytes_become_visible_by_themselves),
        cmocka_unit_test(the_last_byte_of_a_write_says_nothing_about_the_others),
        cmocka_unit_test(a_flag_written_after_the_data_says_nothing_about_it),
        cmocka_unit_test(writes_to_the_same_bytes_end_as_the_last_one),
        cmocka_unit_test(without_a_fence_a_read_may_see_a_later_write),
        cmocka_unit_test(without_a_fence_a_send_does_not_wait_for_the_read_before_it),
        cmocka_unit_test(late_reads_keep_their_order),
        cmocka_unit_test(atomics_of_the_adapter_s_scope_lose_what_the_cpu_does),
        cmocka_unit_test(but_not_what_the_device_does),
        cmocka_unit_test(events_of_one_moment_come_in_any_order_if_shuffled),
    };
    return cmocka_run_group_tests_name("sim_liberties", tests, NULL, NULL);
}
