/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Receivers that are not ready, vanishing packets, and the limits of retransmission. */
#include "support.h"

#include <errno.h>

enum { FROM = 0, TO = 16384, BACK = 32768 };

static const char *const worlds[] = { "", "latency=2us", "freedoms=all" };

enum { WORLDS = sizeof(worlds) / sizeof(worlds[0]) };

static uint64_t ack_timeout(unsigned int code)
{
    return (uint64_t)4096 << code;
}

static void a_message_without_receive_waits_the_receiver_s_timer(void **state)
{
    (void)state;
    for (size_t w = 0; w < WORLDS; w++) {
        /* Code 14 is 1.28 ms; 7 tries forever. */
        struct pair pair = pair_make(&(struct wishes){ .world = worlds[w],
                                                       .device = "link=roce",
                                                       .weak = true,
                                                       .timeout = 10,
                                                       .rnr_retry = 7,
                                                       .min_rnr_timer = 14 });
        fill(&pair.a, FROM, 64, 1);
        assert_int_equal(post_send(&pair.a, 1, FROM, 64, IBV_SEND_SIGNALED), 0);
        (void)sim_advance(pair.world, 1000000);
        uint64_t tries = sim_counters(pair.world).rnr_naks;
        (void)sim_advance(pair.world, 100ULL * 1280000);
        uint64_t later = sim_counters(pair.world).rnr_naks;
        assert_int_equal(post_recv(&pair.b, 2, TO, 64), 0);
        uint64_t posted = sim_now(pair.world);

        expect_wc(pair.b.recv_cq, 2, IBV_WC_SUCCESS);

        assert_true(filled(&pair.b, TO, 64, 1));
        assert_int_equal(tries, 1);
        assert_in_range(later, 90, 101);
        assert_in_range(sim_now(pair.world) - posted, 0, 1280000 + 100000);
        expect_wc(pair.a.send_cq, 1, IBV_WC_SUCCESS);
        pair_end(&pair);
    }
}

static void what_came_behind_a_message_that_waits_is_sent_with_it(void **state)
{
    (void)state;
    enum { MESSAGES = 3, LENGTH = 1000 };
    /* 100, 300 and 500 us on the way: the first is sent again (code 1: 10 us) before the others
     * have come. Timeout 21 is 8.6 s. */
    struct pair pair = pair_make(&(struct wishes){ .world = "bandwidth=10",
                                                   .device = "link=ib",
                                                   .weak = true,
                                                   .timeout = 21,
                                                   .retry_cnt = 7,
                                                   .rnr_retry = 7,
                                                   .min_rnr_timer = 1 });
    for (uint64_t i = 0; i < MESSAGES; i++) {
        assert_int_equal(
            post_send(&pair.a, i, FROM, (uint32_t)(1 + 2 * i) * LENGTH, IBV_SEND_SIGNALED), 0);
    }
    (void)sim_advance(pair.world, 150000);
    assert_int_equal(sim_counters(pair.world).rnr_naks, 1);
    for (uint64_t i = 0; i < MESSAGES; i++) {
        assert_int_equal(post_recv(&pair.b, i, TO, (uint32_t)(1 + 2 * i) * LENGTH), 0);
    }
    for (uint64_t i = 0; i < MESSAGES; i++) {
        expect_wc(pair.b.recv_cq, i, IBV_WC_SUCCESS);
        expect_wc(pair.a.send_cq, i, IBV_WC_SUCCESS);
        assert_int_equal(post_recv(&pair.b, MESSAGES + i, TO, LENGTH), 0);
        assert_int_equal(post_send(&pair.a, MESSAGES + i, FROM, LENGTH, IBV_SEND_SIGNALED), 0);
    }
    for (uint64_t i = 0; i < MESSAGES; i++) {
        expect_wc(pair.b.recv_cq, MESSAGES + i, IBV_WC_SUCCESS);
        expect_wc(pair.a.send_cq, MESSAGES + i, IBV_WC_SUCCESS);
    }
    assert_in_range(sim_now(pair.world), 0, 10000000);
    pair_end(&pair);
}

static void the_timer_code_0_is_655_ms(void **state)
{
    (void)state;
    struct pair pair = pair_make(&(struct wishes){
        .device = "link=ib", .weak = true, .timeout = 10, .rnr_retry = 7, .min_rnr_timer = 0 });
    assert_int_equal(post_send(&pair.a, 1, FROM, 8, IBV_SEND_SIGNALED), 0);
    assert_int_equal(post_recv(&pair.b, 2, TO, 8), 0);
    (void)sim_advance(pair.world, 655350000 - sim_now(pair.world));
    struct ibv_wc wc;
    assert_int_equal(ibv_poll_cq(pair.b.recv_cq, 1, &wc), 0);
    expect_wc(pair.b.recv_cq, 2, IBV_WC_SUCCESS);
    assert_in_range(sim_now(pair.world), 655360000, 655370000);
    pair_end(&pair);
}

static void rnr_is_put_up_with_so_often_and_no_longer(void **state)
{
    (void)state;
    for (size_t w = 0; w < WORLDS; w++) {
        for (uint8_t retries = 0; retries < 3; retries++) {
            struct pair pair = pair_make(&(struct wishes){ .world = worlds[w],
                                                           .device = "link=roce",
                                                           .weak = true,
                                                           .timeout = 10,
                                                           .retry_cnt = 7,
                                                           .rnr_retry = retries,
                                                           .min_rnr_timer = 1 });
            assert_int_equal(post_send(&pair.a, 1, FROM, 64, 0), 0);
            assert_int_equal(post_send(&pair.a, 2, FROM, 64, 0), 0);
            expect_wc(pair.a.send_cq, 1, IBV_WC_RNR_RETRY_EXC_ERR);
            expect_wc(pair.a.send_cq, 2, IBV_WC_WR_FLUSH_ERR);
            assert_int_equal(sim_counters(pair.world).rnr_naks, retries + 1);
            assert_int_equal(qp_state(pair.b.qp), IBV_QPS_RTS);
            pair_end(&pair);
        }
    }
}

static void a_message_that_waits_holds_back_those_behind_it(void **state)
{
    (void)state;
    for (size_t w = 0; w < WORLDS; w++) {
        struct pair pair = pair_make(&(struct wishes){ .world = worlds[w], .device = "link=ib" });
        fill(&pair.a, FROM, 64, 1);
        assert_int_equal(post_write(&pair.a, 1, FROM, 64, &pair.b, BACK, IBV_SEND_SIGNALED), 0);
        assert_int_equal(post_send(&pair.a, 2, FROM, 64, IBV_SEND_SIGNALED), 0);
        assert_int_equal(post_write(&pair.a, 3, FROM, 64, &pair.b, BACK + 64, IBV_SEND_SIGNALED), 0);
        (void)sim_advance(pair.world, 1000000);
        expect_wc(pair.a.send_cq, 1, IBV_WC_SUCCESS);
        struct ibv_wc wc;
        assert_int_equal(ibv_poll_cq(pair.a.send_cq, 1, &wc), 0);
        assert_false(filled(&pair.b, BACK + 64, 64, 1));
        assert_int_equal(post_recv(&pair.b, 9, TO, 64), 0);
        expect_wc(pair.a.send_cq, 2, IBV_WC_SUCCESS);
        expect_wc(pair.a.send_cq, 3, IBV_WC_SUCCESS);
        pair_end(&pair);
    }
}

static void a_notice_without_receive_waits_with_its_bytes(void **state)
{
    (void)state;
    for (size_t w = 0; w < WORLDS; w++) {
        struct pair pair = pair_make(&(struct wishes){ .world = worlds[w], .device = "link=roce" });
        fill(&pair.a, FROM, 5000, 1);
        assert_int_equal(post_write_imm(&pair.a, 1, FROM, 5000, &pair.b, TO, 9, IBV_SEND_SIGNALED),
                         0);
        (void)sim_advance(pair.world, 1000000);
        assert_int_equal(post_recv(&pair.b, 2, BACK, 8), 0);
        struct ibv_wc wc = next_wc(pair.b.recv_cq);
        assert_int_equal(wc.imm_data, 9);
        assert_true(filled(&pair.b, TO, 5000, 1));
        expect_wc(pair.a.send_cq, 1, IBV_WC_SUCCESS);
        no_wc(&pair.b, pair.b.recv_cq);
        pair_end(&pair);
    }
}

/* --------------------------------------------------------------------------------- lost packets */

static void expect_given_up(struct pair *pair, unsigned int timeout, unsigned int retries)
{
    uint64_t began = sim_now(pair->world);
    assert_int_equal(post_write(&pair->a, 1, FROM, 8, &pair->b, TO, 0), 0);
    assert_int_equal(post_write(&pair->a, 2, FROM, 8, &pair->b, TO, 0), 0);
    struct ibv_wc wc = next_wc(pair->a.send_cq);
    uint64_t took = sim_now(pair->world) - began;
    assert_int_equal(wc.wr_id, 1);
    assert_int_equal(wc.status, IBV_WC_RETRY_EXC_ERR);
    assert_int_equal(wc.vendor_err, 0x81);
    expect_wc(pair->a.send_cq, 2, IBV_WC_WR_FLUSH_ERR);
    assert_int_equal(qp_state(pair->a.qp), IBV_QPS_ERR);
    uint64_t expected = (retries + 1) * ack_timeout(timeout);
    assert_in_range(took, expected, expected + 100000);
}

/* All causes that keep packets of a from reaching b. */
static void destroy_peer(struct pair *pair)
{
    assert_int_equal(ibv_destroy_qp(pair->b.qp), 0);
    pair->b.qp = NULL;
}

static void peer_to_error(struct pair *pair)
{
    assert_int_equal(qp_to_error(pair->b.qp), 0);
}

static void cut(struct pair *pair)
{
    sim_cut(pair->a.host, pair->b.host, true);
}

static void own_port_down(struct pair *pair)
{
    sim_port_set(pair->a.device, false);
}

static void peer_port_down(struct pair *pair)
{
    sim_port_set(pair->b.device, false);
}

static void own_gid_gone(struct pair *pair)
{
    sim_gids_renumber(pair->a.device);
}

static void peer_gid_gone(struct pair *pair)
{
    sim_gid_set(pair->b.device, 1, NULL, IBV_GID_TYPE_ROCE_V2, 0);
}

static void other_gid_type(struct pair *pair)
{
    union ibv_gid gid;
    assert_int_equal(ibv_query_gid(pair->b.context, 1, 1, &gid), 0);
    sim_gid_set(pair->b.device, 1, &gid, IBV_GID_TYPE_ROCE_V1, 1);
}

static void other_pkey(struct pair *pair)
{
    sim_pkey_set(pair->b.device, 0, 0x8001);
}

static void both_limited(struct pair *pair)
{
    sim_pkey_set(pair->a.device, 0, 0x7fff);
    sim_pkey_set(pair->b.device, 0, 0x7fff);
}

static void peer_killed(struct pair *pair)
{
    sim_host_kill(pair->b.host, true);
}

static void peer_removed(struct pair *pair)
{
    sim_device_remove(pair->b.device);
}

static void a_peer_that_cannot_be_reached_is_given_up_in_time(void **state)
{
    (void)state;
    static void (*const ways[])(struct pair * pair) = {
        destroy_peer,  peer_to_error, cut,          own_port_down,  peer_port_down, own_gid_gone,
        peer_gid_gone, other_pkey,    both_limited, other_gid_type, peer_removed,
    };
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        for (uint8_t retries = 0; retries < 8; retries += 7) {
            struct pair pair = pair_make(&(struct wishes){ .world = worlds[i % WORLDS],
                                                           .device = "link=roce",
                                                           .weak = true,
                                                           .timeout = 12,
                                                           .retry_cnt = retries,
                                                           .rnr_retry = 7 });
            ways[i](&pair);
            expect_given_up(&pair, 12, retries);
            pair_end(&pair);
        }
    }
}

static void a_killed_machine_answers_nothing(void **state)
{
    (void)state;
    struct wishes wishes = {
        .device = "link=ib", .weak = true, .timeout = 12, .retry_cnt = 1, .rnr_retry = 7
    };
    struct pair pair = pair_make(&wishes);
    peer_killed(&pair);
    expect_given_up(&pair, 12, 1);
    pair_end(&pair);
}

static void a_lid_that_changed_is_not_found_again(void **state)
{
    (void)state;
    struct wishes wishes = {
        .device = "link=ib", .weak = true, .timeout = 12, .retry_cnt = 1, .rnr_retry = 7
    };
    struct pair pair = pair_make(&wishes);
    sim_lid_set(pair.b.device, 77);
    expect_event(&pair.b, IBV_EVENT_LID_CHANGE);
    expect_given_up(&pair, 12, 1);
    pair_end(&pair);
}

static void a_wrong_psn_is_as_good_as_nobody(void **state)
{
    (void)state;
    struct wishes wishes = {
        .device = "link=ib", .weak = true, .timeout = 12, .retry_cnt = 2, .unconnected = true
    };
    struct pair pair = pair_make(&wishes);
    qp_to_init(pair.a.qp);
    qp_to_init(pair.b.qp);
    qp_to_rtr(pair.a.qp, &pair.a, &pair.b, pair.b.qp, &wishes);
    qp_to_rtr(pair.b.qp, &pair.b, &pair.a, pair.a.qp, &wishes);
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTS, .timeout = 12, .retry_cnt = 2, .sq_psn = pair.a.qp->qp_num * 3 + 1
    };
    assert_int_equal(ibv_modify_qp(pair.a.qp, &attr,
                                   IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                       IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC),
                     0);
    expect_given_up(&pair, 12, 2);
    pair_end(&pair);
}

static void timeout_0_waits_for_ever(void **state)
{
    (void)state;
    struct pair pair = pair_make(
        &(struct wishes){ .device = "link=ib", .weak = true, .timeout = 0, .retry_cnt = 0 });
    cut(&pair);
    assert_int_equal(post_write(&pair.a, 1, FROM, 8, &pair.b, TO, 0), 0);
    no_wc(&pair.a, pair.a.send_cq);
    assert_int_equal(sim_counters(pair.world).lost, 1);
    pair_end(&pair);
}

static void a_link_that_comes_back_in_time_loses_nothing(void **state)
{
    (void)state;
    for (size_t w = 0; w < WORLDS; w++) {
        struct pair pair = pair_make(&(struct wishes){ .world = worlds[w],
                                                       .device = "link=ib",
                                                       .weak = true,
                                                       .timeout = 14,
                                                       .retry_cnt = 7,
                                                       .rnr_retry = 7,
                                                       .min_rnr_timer = 1 });
        uint64_t *word = (uint64_t *)(void *)(pair.b.memory + TO);
        for (uint64_t i = 0; i < 10; i++) {
            assert_int_equal(
                post_fetch_add(&pair.a, i, BACK + i * 8, &pair.b, TO, 1, IBV_SEND_SIGNALED), 0);
        }
        sim_port_set(pair.b.device, false);
        expect_event(&pair.b, IBV_EVENT_PORT_ERR);
        (void)sim_advance(pair.world, 3 * ack_timeout(14));
        sim_port_set(pair.b.device, true);
        expect_event(&pair.b, IBV_EVENT_PORT_ACTIVE);
        for (uint64_t i = 0; i < 10; i++) {
            expect_wc(pair.a.send_cq, i, IBV_WC_SUCCESS);
            assert_memory_equal(pair.a.memory + BACK + i * 8, &i, 8);
        }
        assert_int_equal(*word, 10);
        pair_end(&pair);
    }
}

static void lost_packets_are_sent_again_and_done_once(void **state)
{
    (void)state;
    for (unsigned int seed = 1; seed < 20; seed++) {
        char world[64];
        (void)snprintf(world, sizeof(world), "latency=2us,packet=1k,drop=200,seed=%u", seed);
        struct pair pair = pair_make(&(struct wishes){ .world = world, .device = "link=roce" });
        fill(&pair.a, FROM, 8000, 1);
        for (uint64_t i = 0; i < 8; i++) {
            assert_int_equal(post_recv(&pair.b, i, TO, 8000), 0);
            assert_int_equal(post_send(&pair.a, i * 2, FROM, 8000, IBV_SEND_SIGNALED), 0);
            assert_int_equal(
                post_fetch_add(&pair.a, i * 2 + 1, BACK, &pair.b, BACK, 1, IBV_SEND_SIGNALED), 0);
        }
        for (uint64_t i = 0; i < 8; i++) {
            expect_wc(pair.b.recv_cq, i, IBV_WC_SUCCESS);
            expect_wc(pair.a.send_cq, i * 2, IBV_WC_SUCCESS);
            expect_wc(pair.a.send_cq, i * 2 + 1, IBV_WC_SUCCESS);
        }
        assert_true(filled(&pair.b, TO, 8000, 1));
        assert_int_equal(*(uint64_t *)(void *)(pair.b.memory + BACK), 8);
        assert_true(sim_counters(pair.world).retries > 0);
        no_wc(&pair.b, pair.b.recv_cq);
        pair_end(&pair);
    }
}

static void early_data_is_told_to_the_one_who_is_not_ready_to_send(void **state)
{
    (void)state;
    struct wishes wishes = { .device = "link=ib", .unconnected = true };
    struct pair pair = pair_make(&wishes);
    qp_to_init(pair.a.qp);
    qp_to_init(pair.b.qp);
    assert_int_equal(post_recv(&pair.b, 2, TO, 8), 0);
    qp_to_rtr(pair.a.qp, &pair.a, &pair.b, pair.b.qp, &wishes);
    qp_to_rtr(pair.b.qp, &pair.b, &pair.a, pair.a.qp, &wishes);
    qp_to_rts(pair.a.qp, &wishes);
    assert_int_equal(post_send(&pair.a, 1, FROM, 8, IBV_SEND_SIGNALED), 0);
    expect_wc(pair.b.recv_cq, 2, IBV_WC_SUCCESS);
    expect_event(&pair.b, IBV_EVENT_COMM_EST);
    no_event(&pair.b);
    pair_end(&pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_message_without_receive_waits_the_receiver_s_timer),
        cmocka_unit_test(what_came_behind_a_message_that_waits_is_sent_with_it),
        cmocka_unit_test(the_timer_code_0_is_655_ms),
        cmocka_unit_test(rnr_is_put_up_with_so_often_and_no_longer),
        cmocka_unit_test(a_message_that_waits_holds_back_those_behind_it),
        cmocka_unit_test(a_notice_without_receive_waits_with_its_bytes),
        cmocka_unit_test(a_peer_that_cannot_be_reached_is_given_up_in_time),
        cmocka_unit_test(a_killed_machine_answers_nothing),
        cmocka_unit_test(a_lid_that_changed_is_not_found_again),
        cmocka_unit_test(a_wrong_psn_is_as_good_as_nobody),
        cmocka_unit_test(timeout_0_waits_for_ever),
        cmocka_unit_test(a_link_that_comes_back_in_time_loses_nothing),
        cmocka_unit_test(lost_packets_are_sent_again_and_done_once),
        cmocka_unit_test(early_data_is_told_to_the_one_who_is_not_ready_to_send),
    };
    return cmocka_run_group_tests_name("sim_retry", tests, NULL, NULL);
}
