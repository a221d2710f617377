/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* iWARP: missing operations, the limits of its completions, and how its connections end. */
#include "support.h"

#include <errno.h>
#include <stdio.h>

enum { FROM = 0, TO = 16384, BACK = 32768 };

static const char *const worlds[] = { "", "latency=2us", "latency=20us,packet=1k,window=4",
                                      "freedoms=all" };

enum { WORLDS = sizeof(worlds) / sizeof(worlds[0]) };

static struct pair iwarp(size_t world)
{
    return pair_make(&(struct wishes){ .world = worlds[world], .device = "link=iwarp" });
}

static void expect_ended(struct node *node)
{
    cm_expect(node, RDMA_CM_EVENT_DISCONNECTED);
    assert_int_equal(qp_state(node->qp), IBV_QPS_ERR);
}

static void sends_writes_and_reads_work(void **state)
{
    (void)state;
    for (size_t w = 0; w < WORLDS; w++) {
        struct pair pair = iwarp(w);
        fill(&pair.a, FROM, 5000, 1);
        assert_int_equal(post_recv(&pair.b, 9, BACK, 5000), 0);
        assert_int_equal(post_write(&pair.a, 1, FROM, 5000, &pair.b, TO, IBV_SEND_SIGNALED), 0);
        assert_int_equal(post_send(&pair.a, 2, FROM, 5000, IBV_SEND_SIGNALED), 0);
        expect_wc(pair.b.recv_cq, 9, IBV_WC_SUCCESS);
        assert_true(filled(&pair.b, BACK, 5000, 1));
        assert_true(filled(&pair.b, TO, 5000, 1)); /* delivery is in order */
        assert_int_equal(post_read(&pair.a, 3, BACK, 5000, &pair.b, TO, IBV_SEND_SIGNALED), 0);
        for (uint64_t i = 1; i <= 3; i++) {
            expect_wc(pair.a.send_cq, i, IBV_WC_SUCCESS);
        }
        assert_true(filled(&pair.a, BACK, 5000, 1));
        pair_end(&pair);
    }
}

static void what_iwarp_has_not_is_refused_with_a_negative_number(void **state)
{
    (void)state;
    struct pair pair = iwarp(0);
    struct ibv_device_attr attr;
    assert_int_equal(post_send_imm(&pair.a, 1, FROM, 8, 5, 0), -EINVAL);
    assert_int_equal(post_write_imm(&pair.a, 1, FROM, 8, &pair.b, TO, 5, 0), -EINVAL);
    assert_int_equal(post_fetch_add(&pair.a, 1, BACK, &pair.b, TO, 1, 0), -EINVAL);
    assert_int_equal(ibv_query_device(pair.a.context, &attr), 0);
    assert_int_equal(attr.atomic_cap, IBV_ATOMIC_NONE);
    assert_int_equal(attr.max_sge_rd, 1);
    struct ibv_recv_wr empty = { .wr_id = 1 };
    struct ibv_recv_wr *bad;
    assert_int_equal(ibv_post_recv(pair.a.qp, &empty, &bad), -EINVAL);
    struct ibv_cq_init_attr_ex ex = { .cqe = 4 };
    assert_null(ibv_create_cq_ex(pair.a.context, &ex));
    assert_int_equal(errno, EOPNOTSUPP);
    assert_int_equal(ibv_resize_cq(pair.a.send_cq, 300), EOPNOTSUPP);
    pair_end(&pair);
}

static void a_queue_pair_is_ready_only_by_a_connection(void **state)
{
    (void)state;
    struct pair pair = iwarp(0);
    struct wishes none = { .depth = 4 };
    struct ibv_qp *qp = node_qp(&pair.a, &none);
    struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT };
    assert_int_equal(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
    attr.qp_state = IBV_QPS_RTS;
    assert_int_equal(ibv_modify_qp(qp, &attr, IBV_QP_STATE), EINVAL);
    struct ibv_qp *kept = pair.a.qp;
    pair.a.qp = qp;
    assert_int_equal(post_send(&pair.a, 1, FROM, 8, 0), -ENOTCONN);
    pair.a.qp = kept;
    assert_int_equal(ibv_destroy_qp(qp), 0);
    pair_end(&pair);
}

static void a_write_completes_before_it_arrives(void **state)
{
    (void)state;
    struct pair pair = iwarp(1);
    fill(&pair.a, FROM, 64, 1);
    assert_int_equal(post_write(&pair.a, 1, FROM, 64, &pair.b, TO, IBV_SEND_SIGNALED), 0);
    struct ibv_wc wc;
    assert_int_equal(ibv_poll_cq(pair.a.send_cq, 1, &wc), 1);
    assert_int_equal(wc.status, IBV_WC_SUCCESS);
    assert_int_equal(pair.b.memory[TO], 0);
    /* A zero-length write proves no more, a zero-length read does. */
    assert_int_equal(post_write(&pair.a, 2, FROM, 0, &pair.b, TO, IBV_SEND_SIGNALED), 0);
    assert_int_equal(ibv_poll_cq(pair.a.send_cq, 1, &wc), 1);
    assert_int_equal(pair.b.memory[TO], 0);
    assert_int_equal(post_read(&pair.a, 3, FROM, 0, &pair.b, TO, IBV_SEND_SIGNALED), 0);
    expect_wc(pair.a.send_cq, 3, IBV_WC_SUCCESS);
    assert_true(filled(&pair.b, TO, 64, 1));
    pair_end(&pair);
}

static void a_write_may_complete_before_an_earlier_read(void **state)
{
    (void)state;
    for (int strict = 0; strict < 2; strict++) {
        struct pair pair = pair_make(
            &(struct wishes){ .world = "latency=5us",
                              .device = strict ? "link=iwarp,unordered_reads=no" : "link=iwarp",
                              .depth = 4 });
        assert_int_equal(post_read(&pair.a, 1, BACK, 8, &pair.b, TO, IBV_SEND_SIGNALED), 0);
        assert_int_equal(post_write(&pair.a, 2, FROM, 8, &pair.b, TO, IBV_SEND_SIGNALED), 0);
        assert_int_equal(post_write(&pair.a, 3, FROM, 8, &pair.b, TO, 0), 0);
        assert_int_equal(post_write(&pair.a, 4, FROM, 8, &pair.b, TO, IBV_SEND_SIGNALED), 0);
        if (strict) {
            expect_wc(pair.a.send_cq, 1, IBV_WC_SUCCESS);
        }
        expect_wc(pair.a.send_cq, 2, IBV_WC_SUCCESS);
        expect_wc(pair.a.send_cq, 4, IBV_WC_SUCCESS);
        if (!strict) {
            /* The read's place is not free yet, nor is any behind it. */
            assert_int_equal(post_write(&pair.a, 5, FROM, 8, &pair.b, TO, 0), -ENOMEM);
            expect_wc(pair.a.send_cq, 1, IBV_WC_SUCCESS);
        }
        for (uint64_t i = 5; i < 9; i++) {
            assert_int_equal(post_write(&pair.a, i, FROM, 8, &pair.b, TO, IBV_SEND_SIGNALED), 0);
        }
        assert_int_equal(post_write(&pair.a, 9, FROM, 8, &pair.b, TO, 0), -ENOMEM);
        pair_end(&pair);
    }
}

static void a_read_fills_the_first_piece_only_and_says_success(void **state)
{
    (void)state;
    struct pair pair = pair_make(&(struct wishes){ .device = "link=iwarp", .sges = 3 });
    struct ibv_sge sink[2] = { at(&pair.a, BACK, 16), at(&pair.a, BACK + 64, 16) };
    struct ibv_send_wr read = { .wr_id = 1,
                                .sg_list = sink,
                                .num_sge = 2,
                                .opcode = IBV_WR_RDMA_READ,
                                .send_flags = IBV_SEND_SIGNALED,
                                .wr.rdma = { (uintptr_t)pair.b.memory + TO, pair.b.mr->rkey } };
    fill(&pair.b, TO, 32, 1);
    assert_int_equal(post_wr(&pair.a, &read), 0);
    struct ibv_wc wc = next_wc(pair.a.send_cq);
    assert_int_equal(wc.status, IBV_WC_SUCCESS);
    assert_int_equal(wc.byte_len, 16);
    assert_true(filled(&pair.a, BACK, 16, 1));
    assert_int_equal(pair.a.memory[BACK + 64], 0);
    pair_end(&pair);
}

static int write_with_key(struct pair *pair, uint32_t key, uint64_t addr, uint32_t length,
                          struct ibv_send_wr *next)
{
    struct ibv_sge sge = at(&pair->a, FROM, length);
    struct ibv_send_wr wr = { .wr_id = 50,
                              .next = next,
                              .sg_list = &sge,
                              .num_sge = 1,
                              .opcode = IBV_WR_RDMA_WRITE,
                              .send_flags = IBV_SEND_SIGNALED,
                              .wr.rdma = { addr, key } };
    return post_wr(&pair->a, &wr);
}

static void a_write_to_a_dead_key_succeeds_and_ends_the_connection(void **state)
{
    (void)state;
    for (size_t w = 0; w < 2; w++) {
        struct pair pair = iwarp(w);
        assert_int_equal(post_recv(&pair.a, 1, BACK, 8), 0);
        assert_int_equal(post_recv(&pair.b, 2, BACK, 8), 0);
        assert_int_equal(
            write_with_key(&pair, pair.b.mr->rkey ^ 1, (uintptr_t)pair.b.memory, 8, NULL), 0);
        expect_wc(pair.a.send_cq, 50, IBV_WC_SUCCESS);
        expect_ended(&pair.a);
        expect_ended(&pair.b);
        expect_wc(pair.a.recv_cq, 1, IBV_WC_WR_FLUSH_ERR);
        expect_wc(pair.b.recv_cq, 2, IBV_WC_WR_FLUSH_ERR);
        no_event(&pair.b); /* none for an unknown key */
        no_event(&pair.a);
        pair_end(&pair);
    }
}

static void bounds_and_rights_raise_an_event_at_the_target(void **state)
{
    (void)state;
    struct pair pair = iwarp(0);
    uint64_t beyond = (uintptr_t)pair.b.memory + NODE_MEMORY - 4;
    assert_int_equal(write_with_key(&pair, pair.b.mr->rkey, beyond, 8, NULL), 0);
    expect_wc(pair.a.send_cq, 50, IBV_WC_SUCCESS);
    expect_ended(&pair.a);
    expect_ended(&pair.b);
    expect_event(&pair.b, IBV_EVENT_QP_ACCESS_ERR);
    pair_end(&pair);
}

static void a_long_write_to_a_dead_key_is_flushed(void **state)
{
    (void)state;
    struct pair pair = iwarp(2); /* TCP does not take all bytes before the answer arrives */
    assert_int_equal(
        write_with_key(&pair, pair.b.mr->rkey ^ 1, (uintptr_t)pair.b.memory, 16000, NULL), 0);
    expect_wc(pair.a.send_cq, 50, IBV_WC_WR_FLUSH_ERR);
    expect_event(&pair.a, IBV_EVENT_SQ_DRAINED);
    expect_ended(&pair.a);
    pair_end(&pair);
}

static void a_read_behind_a_refused_write_never_succeeds(void **state)
{
    (void)state;
    for (size_t w = 0; w < WORLDS; w++) {
        struct pair pair = iwarp(w);
        struct ibv_sge sink = at(&pair.a, BACK, 8);
        struct ibv_send_wr read = { .wr_id = 51,
                                    .sg_list = &sink,
                                    .num_sge = 1,
                                    .opcode = IBV_WR_RDMA_READ,
                                    .send_flags = IBV_SEND_SIGNALED,
                                    .wr.rdma = { (uintptr_t)pair.b.memory + TO, pair.b.mr->rkey } };
        /* In one chain the write succeeds and the read is flushed. */
        assert_int_equal(
            write_with_key(&pair, pair.b.mr->rkey ^ 1, (uintptr_t)pair.b.memory, 8, &read), 0);
        expect_wc(pair.a.send_cq, 50, IBV_WC_SUCCESS);
        expect_wc(pair.a.send_cq, 51, IBV_WC_WR_FLUSH_ERR);
        expect_ended(&pair.a);
        pair_end(&pair);
    }
}

static void a_post_after_the_end_succeeds_and_never_completes(void **state)
{
    (void)state;
    struct pair pair = pair_make(&(struct wishes){ .device = "link=iwarp", .depth = 4 });
    assert_int_equal(write_with_key(&pair, pair.b.mr->rkey ^ 1, (uintptr_t)pair.b.memory, 8, NULL),
                     0);
    expect_wc(pair.a.send_cq, 50, IBV_WC_SUCCESS);
    for (uint64_t i = 0; i < 4; i++) {
        assert_int_equal(post_read(&pair.a, i, BACK, 8, &pair.b, TO, IBV_SEND_SIGNALED), 0);
    }
    assert_int_equal(post_read(&pair.a, 4, BACK, 8, &pair.b, TO, IBV_SEND_SIGNALED), -ENOMEM);
    assert_int_equal(post_recv(&pair.a, 9, BACK, 8), 0);
    (void)rdma_disconnect(pair.a.id);
    (void)qp_to_error(pair.a.qp);
    no_wc(&pair.a, pair.a.send_cq);
    no_wc(&pair.a, pair.a.recv_cq);
    assert_int_equal(sim_counters(pair.world).swallowed, 4);
    pair_end(&pair);
}

static void a_refused_read_is_flushed_and_leaves_the_target_s_state(void **state)
{
    (void)state;
    struct pair pair = iwarp(1);
    assert_int_equal(post_recv(&pair.b, 2, BACK, 8), 0);
    uint32_t key = pair.b.mr->rkey;
    pair.b.mr->rkey ^= 1;
    assert_int_equal(post_read(&pair.a, 1, BACK, 8, &pair.b, TO, IBV_SEND_SIGNALED), 0);
    pair.b.mr->rkey = key;
    expect_wc(pair.a.send_cq, 1, IBV_WC_WR_FLUSH_ERR);
    expect_ended(&pair.a);
    cm_expect(&pair.b, RDMA_CM_EVENT_DISCONNECTED);
    assert_int_equal(qp_state(pair.b.qp), IBV_QPS_RTS);
    no_wc(&pair.b, pair.b.recv_cq);
    expect_event(&pair.b, IBV_EVENT_QP_REQ_ERR);
    pair_end(&pair);
}

enum { LONG = 8192 };

/* b's region dies and is filled anew while a reads it. Returns whether the read gets the new bytes.
 * With `speaks` b has sent a message in between, which arrived. */
static bool read_brought_what_came_after(const char *device, unsigned int seed, bool speaks)
{
    char world[80];
    (void)snprintf(world, sizeof(world), "latency=2us,late_read=100,late_read_time=1ms,%s,seed=%u",
                   device, seed);
    struct pair pair = pair_make(&(struct wishes){ .world = world, .device = "link=iwarp" });
    struct ibv_mr *mr = ibv_reg_mr(pair.b.pd, pair.b.memory + TO, LONG, IBV_ACCESS_REMOTE_READ);
    struct ibv_sge sge = at(&pair.a, BACK, LONG);
    struct ibv_send_wr read = { .wr_id = 1,
                                .sg_list = &sge,
                                .num_sge = 1,
                                .opcode = IBV_WR_RDMA_READ,
                                .send_flags = IBV_SEND_SIGNALED,
                                .wr.rdma = { (uintptr_t)mr->addr, mr->rkey } };
    struct ibv_wc wc = { .status = IBV_WC_GENERAL_ERR };
    fill(&pair.b, TO, LONG, 1);
    assert_int_equal(post_recv(&pair.a, 2, FROM, 64), 0);
    assert_int_equal(post_wr(&pair.a, &read), 0);
    (void)sim_advance(pair.world, 3000); /* the message has arrived */

    assert_int_equal(ibv_dereg_mr(mr), 0);
    if (speaks) {
        assert_int_equal(post_send(&pair.b, 3, FROM, 64, IBV_SEND_SIGNALED), 0);
        expect_wc(pair.a.recv_cq, 2, IBV_WC_SUCCESS);
    }
    fill(&pair.b, TO, LONG, 2);
    (void)sim_advance(pair.world, 2000000);

    bool is_new = ibv_poll_cq(pair.a.send_cq, 1, &wc) == 1 && wc.status == IBV_WC_SUCCESS &&
                  filled(&pair.a, BACK, LONG, 2);
    pair_end(&pair);
    return is_new;
}

static void a_read_that_was_let_in_outlives_its_key(void **state)
{
    (void)state;
    unsigned int kept = 0;
    unsigned int outlived = 0;
    for (unsigned int seed = 1; seed <= 40; seed++) {
        kept += read_brought_what_came_after("late_key=no", seed, false);
        outlived += read_brought_what_came_after("late_key=yes", seed, false);
        assert_false(read_brought_what_came_after("late_key=yes", seed, true));
    }
    assert_int_equal(kept, 0);
    assert_in_range(outlived, 30, 40);
}

static void a_message_without_receive_ends_the_connection(void **state)
{
    (void)state;
    for (size_t w = 0; w < WORLDS; w++) {
        struct pair pair = iwarp(w);
        assert_int_equal(post_send(&pair.a, 1, FROM, 8, IBV_SEND_SIGNALED), 0);
        expect_wc(pair.a.send_cq, 1, IBV_WC_SUCCESS);
        expect_ended(&pair.a);
        expect_ended(&pair.b);
        assert_int_equal(sim_counters(pair.world).rnr_naks, 0);
        pair_end(&pair);
    }
}

static void a_message_too_long_ends_the_connection(void **state)
{
    (void)state;
    struct pair pair = iwarp(1);
    assert_int_equal(post_recv(&pair.b, 2, TO, 7), 0);
    assert_int_equal(post_send(&pair.a, 1, FROM, 8, IBV_SEND_SIGNALED), 0);
    expect_wc(pair.a.send_cq, 1, IBV_WC_SUCCESS);
    expect_wc(pair.b.recv_cq, 2, IBV_WC_LOC_LEN_ERR);
    expect_ended(&pair.a);
    expect_ended(&pair.b);
    pair_end(&pair);
}

static void local_mistakes_end_the_connection(void **state)
{
    (void)state;
    struct pair pair = iwarp(0);
    uint32_t key = pair.a.mr->lkey;
    pair.a.mr->lkey ^= 1;
    assert_int_equal(post_send(&pair.a, 1, FROM, 8, 0), 0);
    pair.a.mr->lkey = key;
    expect_wc(pair.a.send_cq, 1, IBV_WC_LOC_QP_OP_ERR);
    expect_ended(&pair.a);
    expect_ended(&pair.b);
    pair_end(&pair);

    pair = iwarp(0);
    struct ibv_mr *mr = ibv_reg_mr(pair.a.pd, pair.a.memory + BACK, 64, 0);
    key = pair.a.mr->lkey;
    pair.a.mr->lkey = mr->lkey;
    assert_int_equal(post_read(&pair.a, 1, BACK, 8, &pair.b, TO, 0), 0);
    pair.a.mr->lkey = key;
    expect_wc(pair.a.send_cq, 1, IBV_WC_LOC_PROT_ERR);
    expect_event(&pair.a, IBV_EVENT_QP_ACCESS_ERR);
    expect_ended(&pair.a);
    assert_int_equal(ibv_dereg_mr(mr), 0);
    pair_end(&pair);
}

static void an_adapter_wants_remote_write_for_the_sink_of_a_read(void **state)
{
    (void)state;
    for (int strict = 0; strict < 2; strict++) {
        struct pair pair = pair_make(
            &(struct wishes){ .device = strict ? "link=iwarp,like=hca" : "link=iwarp" });
        struct ibv_mr *mr = ibv_reg_mr(pair.a.pd, pair.a.memory + BACK, 64, IBV_ACCESS_LOCAL_WRITE);
        uint32_t key = pair.a.mr->lkey;
        pair.a.mr->lkey = mr->lkey;
        assert_int_equal(post_read(&pair.a, 1, BACK, 8, &pair.b, TO, IBV_SEND_SIGNALED), 0);
        pair.a.mr->lkey = key;
        expect_wc(pair.a.send_cq, 1, strict ? IBV_WC_LOC_PROT_ERR : IBV_WC_SUCCESS);
        assert_int_equal(ibv_dereg_mr(mr), 0);
        pair_end(&pair);
    }
}

static void solicited_only_never_fires(void **state)
{
    (void)state;
    struct pair pair = iwarp(0);
    struct ibv_cq *cq;
    void *context;
    assert_int_equal(post_recv(&pair.b, 1, TO, 8), 0);
    assert_int_equal(post_recv(&pair.b, 2, TO, 8), 0);
    assert_int_equal(ibv_req_notify_cq(pair.b.recv_cq, 1), 0);
    assert_int_equal(post_send(&pair.a, 1, FROM, 8, IBV_SEND_SOLICITED), 0);
    assert_int_equal(ibv_get_cq_event(pair.b.channel, &cq, &context), -1);
    assert_int_equal(ibv_req_notify_cq(pair.b.recv_cq, 0), 0);
    assert_int_equal(post_send(&pair.a, 1, FROM, 8, 0), 0);
    assert_int_equal(ibv_get_cq_event(pair.b.channel, &cq, &context), 0);
    ibv_ack_cq_events(cq, 1);
    pair_end(&pair);
}

static void the_acceptor_must_not_send_first(void **state)
{
    (void)state;
    struct pair pair = iwarp(0);
    assert_int_equal(post_recv(&pair.a, 1, BACK, 8), 0);
    assert_int_equal(post_send(&pair.b, 2, FROM, 8, IBV_SEND_SIGNALED), 0);
    expect_wc(pair.b.send_cq, 2, IBV_WC_WR_FLUSH_ERR);
    expect_ended(&pair.a);
    expect_ended(&pair.b);
    pair_end(&pair);

    pair = iwarp(0);
    assert_int_equal(post_recv(&pair.a, 1, BACK, 8), 0);
    assert_int_equal(post_write(&pair.a, 3, FROM, 0, &pair.b, TO, 0), 0);
    assert_int_equal(post_send(&pair.b, 2, FROM, 8, IBV_SEND_SIGNALED), 0);
    expect_wc(pair.b.send_cq, 2, IBV_WC_SUCCESS);
    expect_wc(pair.a.recv_cq, 1, IBV_WC_SUCCESS);
    pair_end(&pair);
}

static void a_graceful_end_lets_posted_requests_finish(void **state)
{
    (void)state;
    for (size_t w = 0; w < WORLDS; w++) {
        struct pair pair = iwarp(w);
        fill(&pair.a, FROM, 8000, 1);
        assert_int_equal(post_recv(&pair.a, 8, BACK, 8), 0);
        assert_int_equal(post_recv(&pair.b, 9, BACK, 8), 0);
        assert_int_equal(post_write(&pair.a, 1, FROM, 8000, &pair.b, TO, IBV_SEND_SIGNALED), 0);
        assert_int_equal(post_read(&pair.a, 2, BACK, 8, &pair.b, TO, IBV_SEND_SIGNALED), 0);
        assert_int_equal(rdma_disconnect(pair.a.id), 0);
        expect_wc(pair.a.send_cq, 1, IBV_WC_SUCCESS);
        expect_wc(pair.a.send_cq, 2, IBV_WC_SUCCESS);
        cm_expect(&pair.b, RDMA_CM_EVENT_DISCONNECTED);
        expect_wc(pair.b.recv_cq, 9, IBV_WC_WR_FLUSH_ERR); /* without a call of its own */
        assert_true(filled(&pair.b, TO, 8000, 1));
        cm_expect(&pair.a, RDMA_CM_EVENT_DISCONNECTED);
        expect_wc(pair.a.recv_cq, 8, IBV_WC_WR_FLUSH_ERR);
        pair_end(&pair);
    }
}

static void the_error_state_ends_the_connection(void **state)
{
    (void)state;
    struct pair pair = iwarp(1);
    assert_int_equal(qp_to_error(pair.a.qp), 0);
    expect_ended(&pair.a);
    expect_ended(&pair.b);
    pair_end(&pair);
}

static void destroying_a_queue_pair_ends_the_connection(void **state)
{
    (void)state;
    struct pair pair = iwarp(1);
    rdma_destroy_qp(pair.a.id);
    pair.a.qp = NULL;
    expect_ended(&pair.b);
    pair_end(&pair);
}

static void a_dead_process_resets_and_a_dead_machine_is_silent(void **state)
{
    (void)state;
    for (int silent = 0; silent < 2; silent++) {
        struct pair pair = iwarp(1);
        sim_host_kill(pair.b.host, silent != 0);
        if (!silent) {
            expect_ended(&pair.a);
        } else {
            assert_int_equal(post_read(&pair.a, 1, BACK, 8, &pair.b, TO, IBV_SEND_SIGNALED), 0);
            (void)sim_advance(pair.world, 30ULL * 1000000000);
            cm_none(&pair.a); /* TCP keeps retrying */
            struct ibv_wc wc;
            assert_int_equal(ibv_poll_cq(pair.a.send_cq, 1, &wc), 0);
        }
        pair_end(&pair);
    }
}

static void a_link_that_comes_back_late_loses_nothing(void **state)
{
    (void)state;
    struct pair pair = iwarp(1);
    fill(&pair.a, FROM, 64, 1);
    sim_port_set(pair.b.device, false);
    assert_int_equal(post_write(&pair.a, 1, FROM, 64, &pair.b, TO, IBV_SEND_SIGNALED), 0);
    (void)sim_advance(pair.world, 100ULL * 1000000000);
    assert_int_equal(pair.b.memory[TO], 0);
    sim_port_set(pair.b.device, true);
    assert_int_equal(post_read(&pair.a, 2, BACK, 8, &pair.b, TO, IBV_SEND_SIGNALED), 0);
    expect_wc(pair.a.send_cq, 1, IBV_WC_SUCCESS);
    expect_wc(pair.a.send_cq, 2, IBV_WC_SUCCESS);
    assert_true(filled(&pair.b, TO, 64, 1));
    pair_end(&pair);
}

/* TCP keeps the packets in flight, request and answer, and their order. */
static void a_link_that_flaps_under_a_read_loses_nothing(void **state)
{
    (void)state;
    for (uint64_t down = 500000; down <= 1500000; down += 1000000) {
        struct pair pair = pair_make(
            &(struct wishes){ .world = "latency=1ms", .device = "link=iwarp" });
        fill(&pair.b, TO, 64, 3);
        fill(&pair.b, BACK, 64, 4);
        assert_int_equal(post_read(&pair.a, 1, FROM, 64, &pair.b, TO, IBV_SEND_SIGNALED), 0);
        assert_int_equal(post_read(&pair.a, 2, TO, 64, &pair.b, BACK, IBV_SEND_SIGNALED), 0);
        (void)sim_advance(pair.world, down);
        sim_port_set(pair.b.device, false);
        (void)sim_advance(pair.world, 50000000);
        sim_port_set(pair.b.device, true);
        (void)sim_advance(pair.world, 500000000);
        expect_wc(pair.a.send_cq, 1, IBV_WC_SUCCESS);
        expect_wc(pair.a.send_cq, 2, IBV_WC_SUCCESS);
        assert_true(filled(&pair.a, FROM, 64, 3));
        assert_true(filled(&pair.a, TO, 64, 4));
        pair_end(&pair);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sends_writes_and_reads_work),
        cmocka_unit_test(what_iwarp_has_not_is_refused_with_a_negative_number),
        cmocka_unit_test(a_queue_pair_is_ready_only_by_a_connection),
        cmocka_unit_test(a_write_completes_before_it_arrives),
        cmocka_unit_test(a_write_may_complete_before_an_earlier_read),
        cmocka_unit_test(a_read_fills_the_first_piece_only_and_says_success),
        cmocka_unit_test(a_write_to_a_dead_key_succeeds_and_ends_the_connection),
        cmocka_unit_test(bounds_and_rights_raise_an_event_at_the_target),
        cmocka_unit_test(a_long_write_to_a_dead_key_is_flushed),
        cmocka_unit_test(a_read_behind_a_refused_write_never_succeeds),
        cmocka_unit_test(a_post_after_the_end_succeeds_and_never_completes),
        cmocka_unit_test(a_refused_read_is_flushed_and_leaves_the_target_s_state),
        cmocka_unit_test(a_read_that_was_let_in_outlives_its_key),
        cmocka_unit_test(a_message_without_receive_ends_the_connection),
        cmocka_unit_test(a_message_too_long_ends_the_connection),
        cmocka_unit_test(local_mistakes_end_the_connection),
        cmocka_unit_test(an_adapter_wants_remote_write_for_the_sink_of_a_read),
        cmocka_unit_test(solicited_only_never_fires),
        cmocka_unit_test(the_acceptor_must_not_send_first),
        cmocka_unit_test(a_graceful_end_lets_posted_requests_finish),
        cmocka_unit_test(the_error_state_ends_the_connection),
        cmocka_unit_test(destroying_a_queue_pair_ends_the_connection),
        cmocka_unit_test(a_dead_process_resets_and_a_dead_machine_is_silent),
        cmocka_unit_test(a_link_that_comes_back_late_loses_nothing),
        cmocka_unit_test(a_link_that_flaps_under_a_read_loses_nothing),
    };
    return cmocka_run_group_tests_name("sim_iwarp", tests, NULL, NULL);
}
