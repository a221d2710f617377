/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Requests without errors: every operation, order, fences, places in queues. */
#include "support.h"

#include <errno.h>

enum { FROM = 0, TO = 16384, BACK = 32768, SIZE = 5000 };

/* Every case runs in each world: instant, with packets in flight, with every liberty taken. */
static const char *const worlds[] = { "",
                                      "latency=2us",
                                      "latency=1us,packet=1k,window=3",
                                      "freedoms=all",
                                      "freedoms=lazy,seed=9",
                                      "freedoms=all,drop=100,seed=4" };
static const char *const devices[] = { "link=roce", "link=ib", "link=roce,like=hca",
                                       "link=ib,like=hca,mtu=256" };

static void everywhere(void (*body)(struct pair *pair), const struct wishes *wishes)
{
    for (size_t w = 0; w < sizeof(worlds) / sizeof(worlds[0]); w++) {
        for (size_t d = 0; d < sizeof(devices) / sizeof(devices[0]); d++) {
            struct wishes full = *wishes;
            full.world = worlds[w];
            full.device = devices[d];
            struct pair pair = pair_make(&full);
            body(&pair);
            pair_end(&pair);
        }
    }
}

static void send_body(struct pair *pair)
{
    fill(&pair->a, FROM, SIZE, 1);
    assert_int_equal(post_recv(&pair->b, 2, TO, SIZE + 100), 0);

    assert_int_equal(post_send(&pair->a, 1, FROM, SIZE, IBV_SEND_SIGNALED), 0);

    struct ibv_wc wc = next_wc(pair->b.recv_cq);
    assert_int_equal(wc.wr_id, 2);
    assert_int_equal(wc.status, IBV_WC_SUCCESS);
    assert_int_equal(wc.opcode, IBV_WC_RECV);
    assert_int_equal(wc.byte_len, SIZE);
    assert_int_equal(wc.qp_num, pair->b.qp->qp_num);
    assert_int_equal(wc.wc_flags, 0);
    assert_true(filled(&pair->b, TO, SIZE, 1));
    wc = next_wc(pair->a.send_cq);
    assert_int_equal(wc.wr_id, 1);
    assert_int_equal(wc.opcode, IBV_WC_SEND);
    assert_int_equal(wc.qp_num, pair->a.qp->qp_num);
}

static void a_send_arrives_whole_in_one_receive(void **state)
{
    (void)state;
    everywhere(send_body, &(struct wishes){ .depth = 8 });
}

static void immediate_body(struct pair *pair)
{
    fill(&pair->a, FROM, SIZE, 1);
    assert_int_equal(post_recv(&pair->b, 2, BACK, 0), 0);
    assert_int_equal(post_recv(&pair->b, 3, BACK, SIZE), 0);

    assert_int_equal(
        post_write_imm(&pair->a, 1, FROM, SIZE, &pair->b, TO, 0x11223344, IBV_SEND_SIGNALED), 0);
    assert_int_equal(post_send_imm(&pair->a, 4, FROM, SIZE, 0x55667788, IBV_SEND_SIGNALED), 0);

    struct ibv_wc wc = next_wc(pair->b.recv_cq);
    assert_int_equal(wc.wr_id, 2);
    assert_int_equal(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
    assert_int_equal(wc.wc_flags, IBV_WC_WITH_IMM);
    assert_int_equal(wc.imm_data, 0x11223344);
    assert_int_equal(wc.byte_len, SIZE);
    assert_true(filled(&pair->b, TO, SIZE, 1));
    wc = next_wc(pair->b.recv_cq);
    assert_int_equal(wc.opcode, IBV_WC_RECV);
    assert_int_equal(wc.wc_flags, IBV_WC_WITH_IMM);
    assert_int_equal(wc.imm_data, 0x55667788);
    assert_true(filled(&pair->b, BACK, SIZE, 1));
    wc = next_wc(pair->a.send_cq);
    assert_int_equal(wc.opcode, IBV_WC_RDMA_WRITE);
}

static void immediate_data_comes_with_its_flag_and_takes_a_receive(void **state)
{
    (void)state;
    everywhere(immediate_body, &(struct wishes){ .depth = 8 });
}

static void write_read_body(struct pair *pair)
{
    fill(&pair->a, FROM, SIZE, 1);

    assert_int_equal(post_write(&pair->a, 1, FROM, SIZE, &pair->b, TO, 0), 0);
    assert_int_equal(post_read(&pair->a, 2, BACK, SIZE, &pair->b, TO, IBV_SEND_SIGNALED), 0);

    struct ibv_wc wc = next_wc(pair->a.send_cq);
    assert_int_equal(wc.wr_id, 2); /* the write was not signaled */
    assert_int_equal(wc.opcode, IBV_WC_RDMA_READ);
    assert_int_equal(wc.byte_len, SIZE);
    assert_true(filled(&pair->a, BACK, SIZE, 1));
    assert_true(
        filled(&pair->b, TO, SIZE, 1)); /* a read is served after the writes posted before it */
}

static void a_read_sees_the_write_before_it(void **state)
{
    (void)state;
    everywhere(write_read_body, &(struct wishes){ .depth = 8 });
}

static void atomic_body(struct pair *pair)
{
    uint64_t *word = (uint64_t *)(void *)(pair->b.memory + TO);
    const uint64_t *old = (const uint64_t *)(const void *)(pair->a.memory + BACK);
    *word = 40;

    assert_int_equal(post_fetch_add(&pair->a, 1, BACK, &pair->b, TO, 2, IBV_SEND_SIGNALED), 0);
    assert_int_equal(post_cmp_swap(&pair->a, 2, BACK + 8, &pair->b, TO, 42, 7, IBV_SEND_SIGNALED),
                     0);
    assert_int_equal(post_cmp_swap(&pair->a, 3, BACK + 16, &pair->b, TO, 42, 8, IBV_SEND_SIGNALED),
                     0);
    assert_int_equal(post_read(&pair->a, 4, BACK + 24, 8, &pair->b, TO, IBV_SEND_SIGNALED), 0);

    struct ibv_wc wc = next_wc(pair->a.send_cq);
    assert_int_equal(wc.opcode, IBV_WC_FETCH_ADD);
    assert_int_equal(wc.byte_len, 8);
    assert_int_equal(next_wc(pair->a.send_cq).opcode, IBV_WC_COMP_SWAP);
    expect_wc(pair->a.send_cq, 3, IBV_WC_SUCCESS);
    expect_wc(pair->a.send_cq, 4, IBV_WC_SUCCESS);
    assert_int_equal(old[0], 40);
    assert_int_equal(old[1], 42);
    assert_int_equal(old[2], 7);
    assert_int_equal(old[3], 7);
    assert_int_equal(*word, 7);
}

static void atomics_return_the_old_value_and_are_done_once(void **state)
{
    (void)state;
    everywhere(atomic_body, &(struct wishes){ .depth = 8 });
}

static void zero_body(struct pair *pair)
{
    struct ibv_send_wr *bad;
    struct ibv_send_wr write = { .wr_id = 1,
                                 .opcode = IBV_WR_RDMA_WRITE,
                                 .send_flags = IBV_SEND_SIGNALED,
                                 .wr.rdma = { 0, 0 } };
    struct ibv_send_wr read = write;
    read.wr_id = 2;
    read.opcode = IBV_WR_RDMA_READ;

    assert_int_equal(ibv_post_send(pair->a.qp, &write, &bad), 0);
    assert_int_equal(ibv_post_send(pair->a.qp, &read, &bad), 0);
    assert_int_equal(post_recv(&pair->b, 4, TO, 0), 0);
    assert_int_equal(post_send(&pair->a, 3, FROM, 0, IBV_SEND_SIGNALED), 0);

    for (uint64_t id = 1; id <= 3; id++) {
        expect_wc(pair->a.send_cq, id, IBV_WC_SUCCESS);
    }
    assert_int_equal(next_wc(pair->b.recv_cq).byte_len, 0);
}

static void zero_bytes_need_no_key(void **state)
{
    (void)state;
    everywhere(zero_body, &(struct wishes){ .depth = 8 });
}

static void list_body(struct pair *pair)
{
    struct ibv_sge from[3] = { at(&pair->a, 0, 100), at(&pair->a, 500, 0), at(&pair->a, 100, 50) };
    struct ibv_sge to[3] = { at(&pair->b, TO, 16), at(&pair->b, TO + 4096, 4000),
                             at(&pair->b, TO, 0) };
    struct ibv_send_wr *bad;
    struct ibv_recv_wr *bad_recv;
    struct ibv_send_wr send = { .wr_id = 1,
                                .sg_list = from,
                                .num_sge = 3,
                                .opcode = IBV_WR_SEND,
                                .send_flags = IBV_SEND_SIGNALED };
    struct ibv_recv_wr receive = { .wr_id = 2, .sg_list = to, .num_sge = 3 };
    fill(&pair->a, 0, 150, 5);

    assert_int_equal(ibv_post_recv(pair->b.qp, &receive, &bad_recv), 0);
    assert_int_equal(ibv_post_send(pair->a.qp, &send, &bad), 0);

    assert_int_equal(next_wc(pair->b.recv_cq).byte_len, 150);
    assert_true(filled(&pair->b, TO, 16, 5));
    assert_true(filled(&pair->b, TO + 4096, 134, (uint8_t)(5 + 16 * 7)));
    expect_wc(pair->a.send_cq, 1, IBV_WC_SUCCESS);

    /* And a read into several pieces. */
    struct ibv_sge sink[2] = { at(&pair->a, BACK, 7), at(&pair->a, BACK + 100, 93) };
    struct ibv_send_wr read = {
        .wr_id = 3,
        .sg_list = sink,
        .num_sge = 2,
        .opcode = IBV_WR_RDMA_READ,
        .send_flags = IBV_SEND_SIGNALED,
        .wr.rdma = { (uintptr_t)pair->b.memory + TO + 4096, pair->b.mr->rkey },
    };
    assert_int_equal(ibv_post_send(pair->a.qp, &read, &bad), 0);
    expect_wc(pair->a.send_cq, 3, IBV_WC_SUCCESS);
    assert_true(filled(&pair->a, BACK, 7, (uint8_t)(5 + 16 * 7)));
    assert_true(filled(&pair->a, BACK + 100, 93, (uint8_t)(5 + 23 * 7)));
}

static void lists_are_gathered_and_scattered_in_order(void **state)
{
    (void)state;
    everywhere(list_body, &(struct wishes){ .depth = 8, .sges = 3 });
}

static void inline_body(struct pair *pair)
{
    fill(&pair->a, FROM, 64, 1);
    assert_int_equal(post_recv(&pair->b, 2, TO, 64), 0);

    assert_int_equal(post_send(&pair->a, 1, FROM, 64, IBV_SEND_SIGNALED | IBV_SEND_INLINE), 0);
    memset(pair->a.memory, 0, 64); /* the buffer is free at once */
    int too_long = post_send(&pair->a, 3, FROM, 65, IBV_SEND_INLINE);
    int no_sense = post_read(&pair->a, 4, BACK, 8, &pair->b, TO, IBV_SEND_INLINE);

    expect_wc(pair->b.recv_cq, 2, IBV_WC_SUCCESS);
    assert_true(filled(&pair->b, TO, 64, 1));
    assert_int_equal(too_long, EINVAL);
    assert_int_equal(no_sense, EINVAL);
}

static void inline_bytes_are_taken_by_the_post(void **state)
{
    (void)state;
    everywhere(inline_body, &(struct wishes){ .depth = 8, .inline_size = 64 });
}

static void order_body(struct pair *pair)
{
    enum { COUNT = 30 };
    for (uint32_t i = 0; i < COUNT; i++) {
        assert_int_equal(post_recv(&pair->b, i, TO + (size_t)i * 8, 8), 0);
    }
    for (uint32_t i = 0; i < COUNT; i++) {
        memcpy(pair->a.memory + (size_t)i * 8, &i, sizeof(i));
        assert_int_equal(post_send(&pair->a, i, (size_t)i * 8, 8, IBV_SEND_SIGNALED), 0);
    }
    for (uint32_t i = 0; i < COUNT; i++) {
        expect_wc(pair->b.recv_cq, i, IBV_WC_SUCCESS);
        assert_memory_equal(pair->b.memory + TO + (size_t)i * 8, &i, sizeof(i));
        expect_wc(pair->a.send_cq, i, IBV_WC_SUCCESS);
    }
}

static void messages_and_completions_keep_posting_order(void **state)
{
    (void)state;
    everywhere(order_body, &(struct wishes){ .depth = 32 });
}

static void mixed_order_body(struct pair *pair)
{
    for (uint64_t round = 0; round < 8; round++) {
        assert_int_equal(post_recv(&pair->b, round, TO, 64), 0);
        assert_int_equal(
            post_read(&pair->a, round * 4, BACK, 3000, &pair->b, TO, IBV_SEND_SIGNALED), 0);
        assert_int_equal(
            post_write(&pair->a, round * 4 + 1, FROM, 100, &pair->b, TO + 8192, IBV_SEND_SIGNALED),
            0);
        assert_int_equal(post_send(&pair->a, round * 4 + 2, FROM, 64, IBV_SEND_SIGNALED), 0);
        assert_int_equal(post_fetch_add(&pair->a, round * 4 + 3, BACK + 4096, &pair->b, TO + 4096,
                                        1, IBV_SEND_SIGNALED),
                         0);
    }
    for (uint64_t i = 0; i < 32; i++) {
        expect_wc(pair->a.send_cq, i, IBV_WC_SUCCESS);
    }
}

static void completions_of_reads_and_writes_keep_posting_order(void **state)
{
    (void)state;
    everywhere(mixed_order_body, &(struct wishes){ .depth = 64 });
}

/* A write behind a read may change the read's result, unless it is fenced. */
static void fence_body(struct pair *pair)
{
    for (unsigned int round = 0; round < 20; round++) {
        fill(&pair->b, TO, 64, 1);
        fill(&pair->a, FROM, 64, 100);
        assert_int_equal(post_read(&pair->a, 1, BACK, 64, &pair->b, TO, 0), 0);
        assert_int_equal(
            post_write(&pair->a, 2, FROM, 64, &pair->b, TO, IBV_SEND_SIGNALED | IBV_SEND_FENCE), 0);
        assert_int_equal(post_read(&pair->a, 3, BACK + 64, 64, &pair->b, TO, IBV_SEND_SIGNALED), 0);
        expect_wc(pair->a.send_cq, 2, IBV_WC_SUCCESS);
        assert_true(filled(&pair->a, BACK, 64, 1));
        /* The flush: until then the write may be in flight to memory. */
        expect_wc(pair->a.send_cq, 3, IBV_WC_SUCCESS);
        assert_true(filled(&pair->b, TO, 64, 100));
    }
}

static void a_fenced_write_comes_after_the_read_before_it(void **state)
{
    (void)state;
    everywhere(fence_body, &(struct wishes){ .depth = 8 });
}

static void fenced_send_body(struct pair *pair)
{
    for (unsigned int round = 0; round < 20; round++) {
        fill(&pair->b, TO, 64, (uint8_t)round);
        memset(pair->a.memory + BACK, 0, 64);
        assert_int_equal(post_recv(&pair->b, 3, TO + 4096, 64), 0);
        assert_int_equal(post_read(&pair->a, 1, BACK, 64, &pair->b, TO, 0), 0);
        assert_int_equal(post_send(&pair->a, 2, BACK, 64, IBV_SEND_SIGNALED | IBV_SEND_FENCE), 0);
        expect_wc(pair->b.recv_cq, 3, IBV_WC_SUCCESS);
        assert_true(filled(&pair->b, TO + 4096, 64, (uint8_t)round));
        expect_wc(pair->a.send_cq, 2, IBV_WC_SUCCESS);
    }
}

static void a_fenced_send_sends_what_the_read_before_it_brought(void **state)
{
    (void)state;
    everywhere(fenced_send_body, &(struct wishes){ .depth = 8 });
}

static void slots_body(struct pair *pair)
{
    for (uint64_t i = 0; i < 3; i++) {
        assert_int_equal(post_write(&pair->a, i, FROM, 8, &pair->b, TO, 0), 0);
    }
    assert_int_equal(post_write(&pair->a, 3, FROM, 8, &pair->b, TO, IBV_SEND_SIGNALED), 0);
    assert_int_equal(post_write(&pair->a, 4, FROM, 8, &pair->b, TO, 0), ENOMEM);
    (void)sim_advance(pair->world, SIM_FOREVER); /* completion is not enough, it must be polled */
    assert_int_equal(post_write(&pair->a, 4, FROM, 8, &pair->b, TO, 0), ENOMEM);

    expect_wc(pair->a.send_cq, 3, IBV_WC_SUCCESS);

    for (uint64_t i = 0; i < 4; i++) {
        assert_int_equal(post_write(&pair->a, i, FROM, 8, &pair->b, TO, IBV_SEND_SIGNALED), 0);
    }
    assert_int_equal(post_write(&pair->a, 4, FROM, 8, &pair->b, TO, 0), ENOMEM);
}

static void a_send_place_is_free_when_a_later_completion_was_polled(void **state)
{
    (void)state;
    everywhere(slots_body, &(struct wishes){ .depth = 4 });
}

static void receive_slots_body(struct pair *pair)
{
    for (uint64_t i = 0; i < 4; i++) {
        assert_int_equal(post_recv(&pair->b, i, TO, 8), 0);
    }
    assert_int_equal(post_recv(&pair->b, 4, TO, 8), ENOMEM);
    assert_int_equal(post_send(&pair->a, 9, FROM, 8, IBV_SEND_SIGNALED), 0);
    expect_wc(pair->a.send_cq, 9, IBV_WC_SUCCESS);
    assert_int_equal(post_recv(&pair->b, 4, TO, 8), ENOMEM);

    expect_wc(pair->b.recv_cq, 0, IBV_WC_SUCCESS);

    assert_int_equal(post_recv(&pair->b, 4, TO, 8), 0);
}

static void a_receive_place_is_free_when_its_completion_was_polled(void **state)
{
    (void)state;
    everywhere(receive_slots_body, &(struct wishes){ .depth = 4 });
}

static void a_list_of_requests_stops_at_the_first_that_is_refused(void **state)
{
    (void)state;
    struct pair pair = pair_make(&(struct wishes){ .device = "link=roce" });
    struct ibv_sge sge = at(&pair.a, FROM, 8);
    struct ibv_send_wr list[3];
    for (size_t i = 0; i < 3; i++) {
        list[i] = (struct ibv_send_wr){
            .wr_id = i,
            .next = i < 2 ? &list[i + 1] : NULL,
            .sg_list = &sge,
            .num_sge = i == 1 ? 2 : 1, /* more than the queue pair supports */
            .opcode = IBV_WR_RDMA_WRITE,
            .send_flags = IBV_SEND_SIGNALED,
            .wr.rdma = { (uintptr_t)pair.b.memory, pair.b.mr->rkey },
        };
    }
    struct ibv_send_wr *bad = NULL;

    int result = ibv_post_send(pair.a.qp, list, &bad);

    assert_int_equal(result, EINVAL);
    assert_ptr_equal(bad, &list[1]);
    expect_wc(pair.a.send_cq, 0, IBV_WC_SUCCESS);
    no_wc(&pair.a, pair.a.send_cq);
    pair_end(&pair);
}

static void all_requests_have_entries_if_the_queue_pair_says_so(void **state)
{
    (void)state;
    struct pair pair = pair_make(&(struct wishes){ .device = "link=ib", .unconnected = true });
    struct ibv_qp_init_attr attr = {
        .send_cq = pair.a.send_cq,
        .recv_cq = pair.a.recv_cq,
        .cap = { 4, 4, 1, 1, 0 },
        .qp_type = IBV_QPT_RC,
        .sq_sig_all = 1,
    };
    assert_int_equal(ibv_destroy_qp(pair.a.qp), 0);
    pair.a.qp = ibv_create_qp(pair.a.pd, &attr);
    assert_non_null(pair.a.qp);
    qps_connect(&pair.a, pair.a.qp, &pair.b, pair.b.qp, &(struct wishes){ .depth = 4 });

    assert_int_equal(post_write(&pair.a, 1, FROM, 8, &pair.b, TO, 0), 0);

    expect_wc(pair.a.send_cq, 1, IBV_WC_SUCCESS);
    pair_end(&pair);
}

static void the_read_depth_holds_back_reads_and_what_is_behind_them(void **state)
{
    (void)state;
    struct pair pair = pair_make(
        &(struct wishes){ .world = "latency=10us", .device = "link=roce", .rd_atomic = 2 });
    fill(&pair.b, TO, 8, 1);
    fill(&pair.a, FROM, 8, 50);

    for (uint64_t i = 0; i < 4; i++) {
        assert_int_equal(post_read(&pair.a, i, BACK + i * 8, 8, &pair.b, TO, IBV_SEND_SIGNALED), 0);
    }
    assert_int_equal(post_write(&pair.a, 4, FROM, 8, &pair.b, TO, IBV_SEND_SIGNALED), 0);
    (void)sim_advance(pair.world, 25000); /* one round trip: two reads */

    struct ibv_wc wc[8];
    assert_int_equal(ibv_poll_cq(pair.a.send_cq, 8, wc), 2);
    assert_true(filled(&pair.b, TO, 8, 1)); /* the write waits behind the reads */
    for (uint64_t i = 2; i < 5; i++) {
        expect_wc(pair.a.send_cq, i, IBV_WC_SUCCESS);
    }
    assert_true(filled(&pair.b, TO, 8, 50));
    pair_end(&pair);
}

static void another_queue_pair_orders_nothing(void **state)
{
    (void)state;
    /* A short message on a second queue pair overtakes a long write on the first. */
    struct wishes wishes = { .world = "latency=5us,bandwidth=1000,packet=1k,window=4",
                             .device = "link=roce" };
    struct pair pair = pair_make(&wishes);
    struct ibv_qp *first_a = pair.a.qp;
    struct ibv_qp *first_b = pair.b.qp;
    struct ibv_qp *second_a = node_qp(&pair.a, &wishes);
    struct ibv_qp *second_b = node_qp(&pair.b, &wishes);
    qps_connect(&pair.a, second_a, &pair.b, second_b, &wishes);
    fill(&pair.a, FROM, 16000, 3);

    assert_int_equal(post_write(&pair.a, 1, FROM, 16000, &pair.b, TO, IBV_SEND_SIGNALED), 0);
    pair.a.qp = second_a;
    pair.b.qp = second_b;
    assert_int_equal(post_recv(&pair.b, 3, BACK + 8192, 8), 0);
    assert_int_equal(post_send(&pair.a, 2, FROM, 8, IBV_SEND_SIGNALED), 0);

    expect_wc(pair.b.recv_cq, 3, IBV_WC_SUCCESS);
    assert_false(filled(&pair.b, TO, 16000, 3));
    expect_wc(pair.a.send_cq, 2, IBV_WC_SUCCESS);
    expect_wc(pair.a.send_cq, 1, IBV_WC_SUCCESS);
    assert_true(filled(&pair.b, TO, 16000, 3));
    assert_int_equal(ibv_destroy_qp(second_a), 0);
    assert_int_equal(ibv_destroy_qp(second_b), 0);
    pair.a.qp = first_a;
    pair.b.qp = first_b;
    pair_end(&pair);
}

static void one_device_talks_to_itself(void **state)
{
    (void)state;
    struct wishes wishes = { .device = "link=roce" };
    struct pair pair = pair_make(&wishes);
    struct ibv_qp *first = node_qp(&pair.a, &wishes);
    struct ibv_qp *second = node_qp(&pair.a, &wishes);
    struct ibv_qp *kept = pair.a.qp;
    qps_connect(&pair.a, first, &pair.a, second, &wishes);
    fill(&pair.a, FROM, 8, 3);

    pair.a.qp = first;
    assert_int_equal(post_write(&pair.a, 1, FROM, 8, &pair.a, TO, IBV_SEND_SIGNALED), 0);

    expect_wc(pair.a.send_cq, 1, IBV_WC_SUCCESS);
    assert_true(filled(&pair.a, TO, 8, 3));
    assert_int_equal(ibv_destroy_qp(first), 0);
    assert_int_equal(ibv_destroy_qp(second), 0);
    pair.a.qp = kept;
    pair_end(&pair);
}

static void an_io_address_names_the_region_whatever_its_place(void **state)
{
    (void)state;
    struct pair pair = pair_make(&(struct wishes){ .device = "link=ib" });
    uint64_t iova = 0x123456789000;
    struct ibv_mr *mr = ibv_reg_mr_iova(pair.b.pd, pair.b.memory + TO, 4096, iova,
                                        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    assert_non_null(mr);
    struct ibv_sge sge = at(&pair.a, FROM, 8);
    struct ibv_send_wr wr = { .wr_id = 1,
                              .sg_list = &sge,
                              .num_sge = 1,
                              .opcode = IBV_WR_RDMA_WRITE,
                              .send_flags = IBV_SEND_SIGNALED,
                              .wr.rdma = { iova + 4088, mr->rkey } };
    fill(&pair.a, FROM, 8, 3);

    assert_int_equal(post_wr(&pair.a, &wr), 0);

    expect_wc(pair.a.send_cq, 1, IBV_WC_SUCCESS);
    assert_true(filled(&pair.b, TO + 4088, 8, 3));
    assert_int_equal(ibv_dereg_mr(mr), 0);
    pair_end(&pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_send_arrives_whole_in_one_receive),
        cmocka_unit_test(immediate_data_comes_with_its_flag_and_takes_a_receive),
        cmocka_unit_test(a_read_sees_the_write_before_it),
        cmocka_unit_test(atomics_return_the_old_value_and_are_done_once),
        cmocka_unit_test(zero_bytes_need_no_key),
        cmocka_unit_test(lists_are_gathered_and_scattered_in_order),
        cmocka_unit_test(inline_bytes_are_taken_by_the_post),
        cmocka_unit_test(messages_and_completions_keep_posting_order),
        cmocka_unit_test(completions_of_reads_and_writes_keep_posting_order),
        cmocka_unit_test(a_fenced_write_comes_after_the_read_before_it),
        cmocka_unit_test(a_fenced_send_sends_what_the_read_before_it_brought),
        cmocka_unit_test(a_send_place_is_free_when_a_later_completion_was_polled),
        cmocka_unit_test(a_receive_place_is_free_when_its_completion_was_polled),
        cmocka_unit_test(a_list_of_requests_stops_at_the_first_that_is_refused),
        cmocka_unit_test(all_requests_have_entries_if_the_queue_pair_says_so),
        cmocka_unit_test(the_read_depth_holds_back_reads_and_what_is_behind_them),
        cmocka_unit_test(another_queue_pair_orders_nothing),
        cmocka_unit_test(one_device_talks_to_itself),
        cmocka_unit_test(an_io_address_names_the_region_whatever_its_place),
    };
    return cmocka_run_group_tests_name("sim_requests", tests, NULL, NULL);
}
