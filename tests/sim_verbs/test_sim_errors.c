/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Errors on InfiniBand and RoCE, as each kind of device reports them. */
#include "support.h"

#include <errno.h>

enum { FROM = 0, TO = 16384, BACK = 32768 };

static const char *const worlds[] = { "", "latency=2us,packet=1k", "freedoms=all" };

struct row {
    const char *device;
    enum ibv_wc_status sender;
    enum ibv_wc_status receiver;
    int event; /* at the target; -1: none */
};

enum { NONE = -1 };

/* Both queue pairs are in error; their other requests and later posts are flushed. */
static void expect_ruin(struct pair *pair)
{
    assert_int_equal(qp_state(pair->a.qp), IBV_QPS_ERR);
    assert_int_equal(qp_state(pair->b.qp), IBV_QPS_ERR);
    assert_int_equal(post_write(&pair->a, 77, FROM, 8, &pair->b, TO, 0), 0);
    expect_wc(pair->a.send_cq, 77, IBV_WC_WR_FLUSH_ERR);
    assert_int_equal(post_recv(&pair->b, 78, TO, 8), 0);
    expect_wc(pair->b.recv_cq, 78, IBV_WC_WR_FLUSH_ERR);
}

static void expect_event_or_none(struct node *node, int event)
{
    if (event != NONE) {
        expect_event(node, (enum ibv_event_type)event);
    }
    no_event(node);
}

static int bad_write(struct pair *pair, uint64_t remote_addr, uint32_t rkey, uint32_t length)
{
    struct ibv_sge sge = at(&pair->a, FROM, length);
    struct ibv_send_wr wr = { .wr_id = 2,
                              .sg_list = &sge,
                              .num_sge = 1,
                              .opcode = IBV_WR_RDMA_WRITE,
                              .wr.rdma = { remote_addr, rkey } };
    return post_wr(&pair->a, &wr);
}

/* Posts a good write, the bad unsignaled request, a good one behind it, and a read. */
static void write_refused(const struct row *row, uint64_t (*addr)(const struct pair *),
                          uint32_t (*rkey)(const struct pair *))
{
    for (size_t w = 0; w < sizeof(worlds) / sizeof(worlds[0]); w++) {
        struct pair pair = pair_make(&(struct wishes){ .world = worlds[w], .device = row->device });
        fill(&pair.a, FROM, 64, 1);
        assert_int_equal(post_recv(&pair.b, 9, BACK, 8), 0);

        assert_int_equal(post_write(&pair.a, 1, FROM, 64, &pair.b, TO, IBV_SEND_SIGNALED), 0);
        assert_int_equal(bad_write(&pair, addr(&pair), rkey(&pair), 64), 0);
        assert_int_equal(post_write(&pair.a, 3, FROM, 64, &pair.b, TO + 64, 0), 0);
        assert_int_equal(post_read(&pair.a, 4, BACK, 64, &pair.b, TO, IBV_SEND_SIGNALED), 0);

        expect_wc(pair.a.send_cq, 1, IBV_WC_SUCCESS);
        expect_wc(pair.a.send_cq, 2, row->sender);
        expect_wc(pair.a.send_cq, 3, IBV_WC_WR_FLUSH_ERR); /* although it is not signaled */
        expect_wc(pair.a.send_cq, 4, IBV_WC_WR_FLUSH_ERR);
        expect_wc(pair.b.recv_cq, 9, IBV_WC_WR_FLUSH_ERR);
        expect_event_or_none(&pair.b, row->event);
        no_event(&pair.a);
        expect_ruin(&pair);
        assert_int_equal(ibv_destroy_qp(pair.b.qp), 0);
        pair.b.qp = NULL;
        assert_true(filled(&pair.b, TO, 64, 1));
        assert_false(filled(&pair.b, TO + 64, 64, 1));
        pair_end(&pair);
    }
}

static uint64_t inside(const struct pair *pair)
{
    return (uintptr_t)pair->b.memory + TO + 256;
}

static uint64_t beyond(const struct pair *pair)
{
    return (uintptr_t)pair->b.memory + NODE_MEMORY - 63;
}

static uint64_t before(const struct pair *pair)
{
    return (uintptr_t)pair->b.memory - 1;
}

static uint64_t wrapping(const struct pair *pair)
{
    (void)pair;
    return UINT64_MAX - 8;
}

static uint32_t right_key(const struct pair *pair)
{
    return pair->b.mr->rkey;
}

static uint32_t unknown_key(const struct pair *pair)
{
    return pair->b.mr->rkey ^ 0x00ff0000;
}

static uint32_t local_key(const struct pair *pair)
{
    return pair->b.mr->lkey;
}

static uint32_t own_key(const struct pair *pair)
{
    return pair->a.mr->rkey + 0x100; /* neither this key nor the peer's */
}

static void a_refused_write_takes_both_queue_pairs_down(void **state)
{
    (void)state;
    static const struct row rxe = { "link=roce", IBV_WC_REM_ACCESS_ERR, 0, NONE };
    static const struct row hca = { "link=ib,like=hca", IBV_WC_REM_ACCESS_ERR, 0,
                                    IBV_EVENT_QP_ACCESS_ERR };
    static const struct row mute = { "link=roce,mute_refusals=yes", IBV_WC_RETRY_EXC_ERR, 0, NONE };
    write_refused(&rxe, inside, unknown_key);
    write_refused(&mute, inside, unknown_key);
    write_refused(&hca, inside, unknown_key);
    write_refused(&rxe, inside, local_key);
    write_refused(&rxe, inside, own_key);
    write_refused(&rxe, beyond, right_key);
    write_refused(&rxe, before, right_key);
    write_refused(&hca, wrapping, right_key);
}

static void rights_are_checked_one_by_one(void **state)
{
    (void)state;
    static const struct {
        unsigned int region;
        unsigned int queue_pair;
        enum ibv_wr_opcode opcode;
        enum ibv_wc_status status;
    } cases[] = {
        { IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_READ, IBV_WR_RDMA_READ, IBV_WC_SUCCESS },
        { IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE, IBV_WR_RDMA_READ,
          IBV_WC_REM_INV_REQ_ERR },
        { IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC,
          IBV_WR_RDMA_WRITE, IBV_WC_REM_ACCESS_ERR },
        { IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_WRITE, IBV_WR_RDMA_WRITE, IBV_WC_SUCCESS },
        { IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_READ, IBV_WR_RDMA_READ, IBV_WC_REM_ACCESS_ERR },
        { IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_ATOMIC, IBV_WR_ATOMIC_FETCH_AND_ADD,
          IBV_WC_REM_ACCESS_ERR },
        { IBV_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_REMOTE_ATOMIC, IBV_WR_ATOMIC_FETCH_AND_ADD,
          IBV_WC_SUCCESS },
        { IBV_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_REMOTE_WRITE, IBV_WR_ATOMIC_CMP_AND_SWP,
          IBV_WC_REM_INV_REQ_ERR },
        { 0, IBV_ACCESS_REMOTE_READ, IBV_WR_RDMA_READ, IBV_WC_REM_ACCESS_ERR },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct pair pair = pair_make(&(struct wishes){ .device = "link=roce" });
        struct ibv_mr *mr = ibv_reg_mr(pair.b.pd, pair.b.memory + TO, 64,
                                       cases[i].region | IBV_ACCESS_LOCAL_WRITE);
        struct ibv_qp_attr attr = { .qp_access_flags = cases[i].queue_pair };
        assert_int_equal(ibv_modify_qp(pair.b.qp, &attr, IBV_QP_ACCESS_FLAGS), 0);
        struct ibv_sge sge = at(&pair.a, FROM, 8);
        struct ibv_send_wr wr = { .wr_id = 1,
                                  .sg_list = &sge,
                                  .num_sge = 1,
                                  .opcode = cases[i].opcode,
                                  .send_flags = IBV_SEND_SIGNALED };
        if (cases[i].opcode == IBV_WR_RDMA_READ || cases[i].opcode == IBV_WR_RDMA_WRITE) {
            wr.wr.rdma.remote_addr = (uintptr_t)mr->addr;
            wr.wr.rdma.rkey = mr->rkey;
        } else {
            wr.wr.atomic.remote_addr = (uintptr_t)mr->addr;
            wr.wr.atomic.rkey = mr->rkey;
        }

        assert_int_equal(post_wr(&pair.a, &wr), 0);

        expect_wc(pair.a.send_cq, 1, cases[i].status);
        assert_int_equal(ibv_dereg_mr(mr), 0);
        pair_end(&pair);
    }
}

static void a_region_of_another_protection_domain_is_no_region(void **state)
{
    (void)state;
    struct pair pair = pair_make(&(struct wishes){ .device = "link=roce" });
    struct ibv_pd *other = ibv_alloc_pd(pair.b.context);
    struct ibv_mr *mr = ibv_reg_mr(other, pair.b.memory + TO, 64,
                                   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);

    assert_int_equal(bad_write(&pair, (uintptr_t)mr->addr, mr->rkey, 8), 0);

    expect_wc(pair.a.send_cq, 2, IBV_WC_REM_ACCESS_ERR);
    assert_int_equal(ibv_dereg_mr(mr), 0);
    assert_int_equal(ibv_dealloc_pd(other), 0);
    pair_end(&pair);
}

static void a_key_dies_with_its_region(void **state)
{
    (void)state;
    struct pair pair = pair_make(&(struct wishes){ .device = "link=roce" });
    struct ibv_mr *old = ibv_reg_mr(pair.b.pd, pair.b.memory + TO, 64,
                                    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    uint32_t key = old->rkey;
    assert_int_equal(ibv_dereg_mr(old), 0);
    struct ibv_mr *new = ibv_reg_mr(pair.b.pd, pair.b.memory + TO, 64,
                                    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    assert_int_not_equal(new->rkey, key);
    fill(&pair.a, FROM, 64, 1);

    assert_int_equal(bad_write(&pair, inside(&pair) - 256, key, 64), 0);

    expect_wc(pair.a.send_cq, 2, IBV_WC_REM_ACCESS_ERR);
    assert_false(filled(&pair.b, TO, 64, 1));
    assert_int_equal(ibv_dereg_mr(new), 0);
    pair_end(&pair);
}

static void a_region_that_goes_in_the_middle_of_a_write_refuses_the_rest(void **state)
{
    (void)state;
    struct pair pair = pair_make(&(struct wishes){
        .world = "latency=1us,bandwidth=1000,packet=1k,window=2", .device = "link=roce" });
    struct ibv_mr *mr = ibv_reg_mr(pair.b.pd, pair.b.memory + TO, 16384,
                                   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    fill(&pair.a, FROM, 16384, 1);

    assert_int_equal(bad_write(&pair, (uintptr_t)mr->addr, mr->rkey, 16384), 0);
    (void)sim_advance(pair.world, 8000);
    assert_int_equal(ibv_dereg_mr(mr), 0);

    expect_wc(pair.a.send_cq, 2, IBV_WC_REM_ACCESS_ERR);
    assert_true(filled(&pair.b, TO, 1024, 1));
    assert_int_equal(pair.b.memory[TO + 16383], 0);
    pair_end(&pair);
}

static void a_refused_read_brings_nothing(void **state)
{
    (void)state;
    static const struct row rows[] = {
        { "link=roce", IBV_WC_REM_ACCESS_ERR, 0, NONE },
        { "link=ib,like=hca", IBV_WC_REM_ACCESS_ERR, 0, IBV_EVENT_QP_ACCESS_ERR },
    };
    for (size_t i = 0; i < 2; i++) {
        struct pair pair = pair_make(&(struct wishes){ .device = rows[i].device });
        uint32_t key = pair.b.mr->rkey;
        pair.b.mr->rkey ^= 1;
        assert_int_equal(post_read(&pair.a, 1, BACK, 8, &pair.b, TO, 0), 0);
        pair.b.mr->rkey = key;
        expect_wc(pair.a.send_cq, 1, rows[i].sender);
        expect_event_or_none(&pair.b, rows[i].event);
        expect_ruin(&pair);
        pair_end(&pair);
    }
}

static void a_wrong_local_key_fails_as_the_device_is_used_to(void **state)
{
    (void)state;
    static const struct row rows[] = { { "link=roce", IBV_WC_WR_FLUSH_ERR, 0, NONE },
                                       { "link=ib,like=hca", IBV_WC_LOC_PROT_ERR, 0, NONE } };
    for (size_t i = 0; i < 2; i++) {
        struct pair pair = pair_make(&(struct wishes){ .device = rows[i].device });
        assert_int_equal(post_recv(&pair.b, 9, BACK, 8), 0);
        uint32_t key = pair.a.mr->lkey;
        pair.a.mr->lkey = pair.a.mr->rkey;
        assert_int_equal(post_send(&pair.a, 1, FROM, 8, 0), 0);
        pair.a.mr->lkey = key;
        expect_wc(pair.a.send_cq, 1, rows[i].sender);
        assert_int_equal(qp_state(pair.a.qp), IBV_QPS_ERR);
        assert_int_equal(qp_state(pair.b.qp), IBV_QPS_RTS); /* the peer got no packet */
        no_wc(&pair.b, pair.b.recv_cq);
        pair_end(&pair);
    }
}

static void a_read_into_memory_without_local_write_fails(void **state)
{
    (void)state;
    struct pair pair = pair_make(&(struct wishes){ .device = "link=roce" });
    struct ibv_mr *mr = ibv_reg_mr(pair.a.pd, pair.a.memory + BACK, 64, 0);
    uint32_t key = pair.a.mr->lkey;
    pair.a.mr->lkey = mr->lkey;
    assert_int_equal(post_read(&pair.a, 1, BACK, 8, &pair.b, TO, 0), 0);
    pair.a.mr->lkey = key;
    expect_wc(pair.a.send_cq, 1, IBV_WC_LOC_PROT_ERR);
    assert_int_equal(qp_state(pair.b.qp), IBV_QPS_RTS);
    assert_int_equal(ibv_dereg_mr(mr), 0);
    pair_end(&pair);
}

static void a_send_from_memory_without_rights_is_fine(void **state)
{
    (void)state;
    struct pair pair = pair_make(&(struct wishes){ .device = "link=roce" });
    struct ibv_mr *mr = ibv_reg_mr(pair.a.pd, pair.a.memory, 64, 0);
    uint32_t key = pair.a.mr->lkey;
    pair.a.mr->lkey = mr->lkey;
    assert_int_equal(post_write(&pair.a, 1, FROM, 8, &pair.b, TO, IBV_SEND_SIGNALED), 0);
    pair.a.mr->lkey = key;
    expect_wc(pair.a.send_cq, 1, IBV_WC_SUCCESS);
    assert_int_equal(ibv_dereg_mr(mr), 0);
    pair_end(&pair);
}

static void a_message_longer_than_its_receive_fails_both_sides(void **state)
{
    (void)state;
    static const struct row rows[] = {
        { "link=roce", IBV_WC_REM_OP_ERR, IBV_WC_LOC_QP_OP_ERR, NONE },
        { "link=ib,like=hca", IBV_WC_REM_INV_REQ_ERR, IBV_WC_LOC_LEN_ERR, IBV_EVENT_QP_REQ_ERR },
    };
    for (size_t i = 0; i < 2; i++) {
        struct pair pair = pair_make(&(struct wishes){ .device = rows[i].device });
        memset(pair.b.memory + TO, 9, 128);
        assert_int_equal(post_recv(&pair.b, 5, TO, 63), 0);
        assert_int_equal(post_recv(&pair.b, 6, TO, 64), 0);

        assert_int_equal(post_send(&pair.a, 1, FROM, 64, 0), 0);

        expect_wc(pair.a.send_cq, 1, rows[i].sender);
        expect_wc(pair.b.recv_cq, 5, rows[i].receiver);
        expect_wc(pair.b.recv_cq, 6, IBV_WC_WR_FLUSH_ERR);
        assert_int_equal(pair.b.memory[TO + 63], 9);
        expect_event_or_none(&pair.b, rows[i].event);
        expect_ruin(&pair);
        pair_end(&pair);
    }
}

static void a_receive_with_a_wrong_key_fails_both_sides(void **state)
{
    (void)state;
    struct pair pair = pair_make(&(struct wishes){ .device = "link=roce" });
    uint32_t key = pair.b.mr->lkey;
    pair.b.mr->lkey ^= 1;
    assert_int_equal(post_recv(&pair.b, 5, TO, 64), 0);
    pair.b.mr->lkey = key;

    assert_int_equal(post_send(&pair.a, 1, FROM, 64, 0), 0);

    expect_wc(pair.a.send_cq, 1, IBV_WC_REM_OP_ERR);
    expect_wc(pair.b.recv_cq, 5, IBV_WC_LOC_PROT_ERR);
    pair_end(&pair);
}

static void a_message_beyond_the_port_s_limit_fails(void **state)
{
    (void)state;
    struct pair pair = pair_make(&(struct wishes){ .device = "link=roce,max_msg=4k" });
    struct ibv_port_attr port;
    assert_int_equal(ibv_query_port(pair.a.context, 1, &port), 0);
    assert_int_equal(port.max_msg_sz, 4096);
    assert_int_equal(post_write(&pair.a, 1, FROM, 4096, &pair.b, TO, IBV_SEND_SIGNALED), 0);
    assert_int_equal(post_write(&pair.a, 2, FROM, 4097, &pair.b, TO, 0), 0);
    expect_wc(pair.a.send_cq, 1, IBV_WC_SUCCESS);
    expect_wc(pair.a.send_cq, 2, IBV_WC_LOC_LEN_ERR);
    pair_end(&pair);
}

static void an_atomic_that_is_not_aligned_is_refused(void **state)
{
    (void)state;
    struct pair rxe = pair_make(&(struct wishes){ .device = "link=roce" });
    assert_int_equal(post_fetch_add(&rxe.a, 1, BACK, &rxe.b, TO + 4, 1, 0), EINVAL);
    pair_end(&rxe);

    struct pair hca = pair_make(&(struct wishes){ .device = "link=ib,like=hca" });
    assert_int_equal(post_fetch_add(&hca.a, 1, BACK, &hca.b, TO + 4, 1, 0), 0);
    expect_wc(hca.a.send_cq, 1, IBV_WC_REM_INV_REQ_ERR);
    expect_event(&hca.b, IBV_EVENT_QP_REQ_ERR);
    pair_end(&hca);
}

static void a_device_without_atomics_refuses_them_at_both_ends(void **state)
{
    (void)state;
    struct pair pair = pair_make(
        &(struct wishes){ .device = "link=roce", .device_b = "link=roce,atomics=none" });
    struct ibv_device_attr attr;
    assert_int_equal(ibv_query_device(pair.b.context, &attr), 0);
    assert_int_equal(attr.atomic_cap, IBV_ATOMIC_NONE);
    assert_int_equal(post_fetch_add(&pair.b, 1, BACK, &pair.a, TO, 1, 0), EINVAL);
    assert_int_equal(post_fetch_add(&pair.a, 1, BACK, &pair.b, TO, 1, 0), 0);
    expect_wc(pair.a.send_cq, 1, IBV_WC_REM_INV_REQ_ERR);
    pair_end(&pair);
}

static void more_reads_than_the_target_granted_are_refused(void **state)
{
    (void)state;
    struct wishes wishes = { .world = "latency=1us", .device = "link=roce", .unconnected = true };
    struct pair pair = pair_make(&wishes);
    struct wishes three = { .rd_atomic = 3 };
    struct wishes two = { .rd_atomic = 2 };
    qp_to_init(pair.a.qp);
    qp_to_init(pair.b.qp);
    qp_to_rtr(pair.a.qp, &pair.a, &pair.b, pair.b.qp, &three);
    qp_to_rtr(pair.b.qp, &pair.b, &pair.a, pair.a.qp, &two);
    qp_to_rts(pair.a.qp, &three);
    qp_to_rts(pair.b.qp, &two);

    for (uint64_t i = 0; i < 3; i++) {
        assert_int_equal(post_read(&pair.a, i, BACK, 8, &pair.b, TO, IBV_SEND_SIGNALED), 0);
    }

    expect_wc(pair.a.send_cq, 0, IBV_WC_SUCCESS);
    expect_wc(pair.a.send_cq, 1, IBV_WC_SUCCESS);
    expect_wc(pair.a.send_cq, 2, IBV_WC_REM_INV_REQ_ERR);
    pair_end(&pair);
}

static void paths_with_different_mtu_fail_on_the_first_long_message(void **state)
{
    (void)state;
    struct pair pair = pair_make(&(struct wishes){ .device = "link=ib", .mtu_b = IBV_MTU_1024 });
    fill(&pair.a, FROM, 2000, 1);

    assert_int_equal(post_write(&pair.a, 1, FROM, 1024, &pair.b, TO, IBV_SEND_SIGNALED), 0);
    assert_int_equal(post_write(&pair.a, 2, FROM, 1025, &pair.b, TO, 0), 0);

    expect_wc(pair.a.send_cq, 1, IBV_WC_SUCCESS);
    expect_wc(pair.a.send_cq, 2, IBV_WC_REM_INV_REQ_ERR);
    pair_end(&pair);
}

static void the_error_state_flushes_everything_posted(void **state)
{
    (void)state;
    struct pair pair = pair_make(&(struct wishes){ .world = "latency=5us", .device = "link=roce" });
    assert_int_equal(post_recv(&pair.a, 1, TO, 8), 0);
    assert_int_equal(post_recv(&pair.a, 2, TO, 8), 0);
    assert_int_equal(post_write(&pair.a, 3, FROM, 8, &pair.b, TO, 0), 0);
    assert_int_equal(post_read(&pair.a, 4, BACK, 8, &pair.b, TO, IBV_SEND_SIGNALED), 0);

    assert_int_equal(qp_to_error(pair.a.qp), 0);

    expect_wc(pair.a.send_cq, 3, IBV_WC_WR_FLUSH_ERR);
    expect_wc(pair.a.send_cq, 4, IBV_WC_WR_FLUSH_ERR);
    expect_wc(pair.a.recv_cq, 1, IBV_WC_WR_FLUSH_ERR);
    expect_wc(pair.a.recv_cq, 2, IBV_WC_WR_FLUSH_ERR);
    assert_int_equal(qp_to_error(pair.a.qp), 0);
    no_wc(&pair.a, pair.a.send_cq);
    no_wc(&pair.a, pair.a.recv_cq);
    pair_end(&pair);
}

static void an_opcode_that_is_not_offered_is_refused_by_the_post(void **state)
{
    (void)state;
    struct pair pair = pair_make(&(struct wishes){ .device = "link=roce,immediate=no" });
    assert_int_equal(post_send_imm(&pair.a, 1, FROM, 8, 5, 0), EINVAL);
    assert_int_equal(post_write_imm(&pair.a, 1, FROM, 8, &pair.b, TO, 5, 0), EINVAL);
    struct ibv_send_wr wr = { .opcode = IBV_WR_SEND_WITH_INV };
    assert_int_equal(post_wr(&pair.a, &wr), EINVAL);
    pair_end(&pair);
}

static void nothing_but_the_id_of_a_failed_entry_is_true(void **state)
{
    (void)state;
    struct pair pair = pair_make(&(struct wishes){ .device = "link=roce" });
    assert_int_equal(post_recv(&pair.a, 1, TO, 8), 0);
    assert_int_equal(post_write(&pair.a, 2, FROM, 8, &pair.b, TO, 0), 0);
    assert_int_equal(qp_to_error(pair.a.qp), 0);
    assert_int_equal(post_write(&pair.a, 3, FROM, 8, &pair.b, TO, 0), 0);
    struct ibv_wc wc = next_wc(pair.a.send_cq);
    assert_int_equal(wc.wr_id, 3);
    assert_true((wc.opcode & IBV_WC_RECV) != 0);
    wc = next_wc(pair.a.recv_cq);
    assert_int_equal(wc.wr_id, 1);
    assert_true((wc.opcode & IBV_WC_RECV) == 0);
    pair_end(&pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_refused_write_takes_both_queue_pairs_down),
        cmocka_unit_test(rights_are_checked_one_by_one),
        cmocka_unit_test(a_region_of_another_protection_domain_is_no_region),
        cmocka_unit_test(a_key_dies_with_its_region),
        cmocka_unit_test(a_region_that_goes_in_the_middle_of_a_write_refuses_the_rest),
        cmocka_unit_test(a_refused_read_brings_nothing),
        cmocka_unit_test(a_wrong_local_key_fails_as_the_device_is_used_to),
        cmocka_unit_test(a_read_into_memory_without_local_write_fails),
        cmocka_unit_test(a_send_from_memory_without_rights_is_fine),
        cmocka_unit_test(a_message_longer_than_its_receive_fails_both_sides),
        cmocka_unit_test(a_receive_with_a_wrong_key_fails_both_sides),
        cmocka_unit_test(a_message_beyond_the_port_s_limit_fails),
        cmocka_unit_test(an_atomic_that_is_not_aligned_is_refused),
        cmocka_unit_test(a_device_without_atomics_refuses_them_at_both_ends),
        cmocka_unit_test(more_reads_than_the_target_granted_are_refused),
        cmocka_unit_test(paths_with_different_mtu_fail_on_the_first_long_message),
        cmocka_unit_test(the_error_state_flushes_everything_posted),
        cmocka_unit_test(an_opcode_that_is_not_offered_is_refused_by_the_post),
        cmocka_unit_test(nothing_but_the_id_of_a_failed_entry_is_true),
    };
    return cmocka_run_group_tests_name("sim_errors", tests, NULL, NULL);
}
