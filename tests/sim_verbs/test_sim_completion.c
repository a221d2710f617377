/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Completion queues, channels, shared receive queues, extended interfaces, and misuse of them. */
#include "support.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>

enum { FROM = 0, TO = 16384, BACK = 32768 };

static bool readable(int descriptor)
{
    struct pollfd ready = { .fd = descriptor, .events = POLLIN };
    return poll(&ready, 1, 0) == 1;
}

static struct ibv_cq *cq_event(struct node *node)
{
    struct ibv_cq *cq = NULL;
    void *context = NULL;
    if (ibv_get_cq_event(node->channel, &cq, &context) != 0) {
        assert_int_equal(errno, EAGAIN);
        return NULL;
    }
    assert_ptr_equal(context, cq->cq_context);
    ibv_ack_cq_events(cq, 1);
    return cq;
}

static void write_one(struct pair *pair, uint64_t id)
{
    assert_int_equal(post_write(&pair->a, id, FROM, 8, &pair->b, TO, IBV_SEND_SIGNALED), 0);
}

static void an_armed_queue_tells_of_the_next_entry_once(void **state)
{
    (void)state;
    struct pair pair = pair_make(&(struct wishes){ .device = "link=roce" });
    write_one(&pair, 1);
    assert_null(cq_event(&pair.a)); /* it was not armed */
    assert_int_equal(ibv_req_notify_cq(pair.a.send_cq, 0), 0);
    assert_false(readable(pair.a.channel->fd)); /* existing entries do not count */
    write_one(&pair, 2);
    assert_true(readable(pair.a.channel->fd));
    write_one(&pair, 3);
    assert_ptr_equal(cq_event(&pair.a), pair.a.send_cq);
    assert_false(readable(pair.a.channel->fd));
    assert_null(cq_event(&pair.a));
    for (uint64_t id = 1; id <= 3; id++) {
        expect_wc(pair.a.send_cq, id, IBV_WC_SUCCESS);
    }
    pair_end(&pair);
}

static void solicited_only_tells_of_solicited_messages_and_failures(void **state)
{
    (void)state;
    struct pair pair = pair_make(&(struct wishes){ .device = "link=roce" });
    for (uint64_t i = 0; i < 4; i++) {
        assert_int_equal(post_recv(&pair.b, i, TO, 8), 0);
    }
    assert_int_equal(ibv_req_notify_cq(pair.b.recv_cq, 1), 0);
    assert_int_equal(post_send(&pair.a, 1, FROM, 8, 0), 0);
    assert_null(cq_event(&pair.b));
    assert_int_equal(post_send(&pair.a, 1, FROM, 8, IBV_SEND_SOLICITED), 0);
    assert_ptr_equal(cq_event(&pair.b), pair.b.recv_cq);
    assert_int_equal(ibv_req_notify_cq(pair.b.recv_cq, 1), 0);
    assert_int_equal(qp_to_error(pair.b.qp), 0);
    assert_ptr_equal(cq_event(&pair.b), pair.b.recv_cq);
    pair_end(&pair);
}

static void armed_for_all_is_not_narrowed_to_solicited(void **state)
{
    (void)state;
    struct pair pair = pair_make(&(struct wishes){ .device = "link=roce" });
    assert_int_equal(ibv_req_notify_cq(pair.a.send_cq, 0), 0);
    assert_int_equal(ibv_req_notify_cq(pair.a.send_cq, 1), 0);
    write_one(&pair, 1);
    assert_ptr_equal(cq_event(&pair.a), pair.a.send_cq);
    pair_end(&pair);
}

static void waiting_moves_virtual_time_and_never_hangs(void **state)
{
    (void)state;
    struct pair pair = pair_make(&(struct wishes){ .world = "latency=7us", .device = "link=roce" });
    assert_int_equal(fcntl(pair.a.channel->fd, F_SETFL, 0), 0);
    assert_int_equal(fcntl(pair.a.context->async_fd, F_SETFL, 0), 0);
    assert_int_equal(ibv_req_notify_cq(pair.a.send_cq, 0), 0);
    write_one(&pair, 1);
    assert_ptr_equal(cq_event(&pair.a), pair.a.send_cq);
    assert_int_equal(sim_now(pair.world), 14000);
    struct ibv_cq *cq;
    void *context;
    assert_int_equal(ibv_get_cq_event(pair.a.channel, &cq, &context), -1);
    assert_int_equal(errno, EDEADLK);
    struct ibv_async_event event;
    assert_int_equal(ibv_get_async_event(pair.a.context, &event), -1);
    assert_int_equal(errno, EDEADLK);
    pair_end(&pair);
}

static void a_queue_that_overruns_dies_with_its_queue_pairs(void **state)
{
    (void)state;
    struct pair pair = pair_make(&(struct wishes){ .device = "link=roce", .cqe = 4 });
    for (uint64_t i = 0; i < 4; i++) {
        write_one(&pair, i);
    }
    no_event(&pair.a);
    write_one(&pair, 4);
    struct ibv_async_event event;
    assert_int_equal(ibv_get_async_event(pair.a.context, &event), 0);
    assert_int_equal(event.event_type, IBV_EVENT_CQ_ERR);
    assert_ptr_equal(event.element.cq, pair.a.send_cq);
    ibv_ack_async_event(&event);
    expect_event(&pair.a, IBV_EVENT_QP_FATAL);
    no_event(&pair.a);
    struct ibv_wc wc[8];
    assert_int_equal(ibv_poll_cq(pair.a.send_cq, 8, wc), 0);
    assert_int_equal(qp_state(pair.a.qp), IBV_QPS_ERR);
    pair_end(&pair);
}

static void polled_places_are_free_again(void **state)
{
    (void)state;
    struct pair pair = pair_make(&(struct wishes){ .device = "link=roce", .cqe = 4 });
    for (uint64_t i = 0; i < 40; i++) {
        write_one(&pair, i);
        if (i % 4 == 3) {
            struct ibv_wc wc[8];
            assert_int_equal(ibv_poll_cq(pair.a.send_cq, 8, wc), 4);
            assert_int_equal(wc[3].wr_id, i);
        }
    }
    no_event(&pair.a);
    pair_end(&pair);
}

static void a_queue_can_grow_and_keeps_what_it_has(void **state)
{
    (void)state;
    struct pair pair = pair_make(&(struct wishes){ .device = "link=roce", .cqe = 4 });
    for (uint64_t i = 0; i < 4; i++) {
        write_one(&pair, i);
    }
    assert_int_equal(ibv_resize_cq(pair.a.send_cq, 3), EINVAL);
    assert_int_equal(ibv_resize_cq(pair.a.send_cq, 8), 0);
    assert_int_equal(pair.a.send_cq->cqe, 8);
    for (uint64_t i = 4; i < 8; i++) {
        write_one(&pair, i);
    }
    for (uint64_t i = 0; i < 8; i++) {
        expect_wc(pair.a.send_cq, i, IBV_WC_SUCCESS);
    }
    no_event(&pair.a);
    pair_end(&pair);
}

static void destroying_takes_unread_events_along(void **state)
{
    (void)state;
    struct pair pair = pair_make(&(struct wishes){ .device = "link=roce", .cqe = 1 });
    assert_int_equal(ibv_req_notify_cq(pair.a.send_cq, 0), 0);
    write_one(&pair, 1);
    write_one(&pair, 2); /* overrun */
    assert_true(readable(pair.a.channel->fd));
    assert_true(readable(pair.a.context->async_fd));
    assert_int_equal(ibv_destroy_qp(pair.a.qp), 0);
    pair.a.qp = NULL;
    assert_int_equal(ibv_destroy_cq(pair.a.send_cq), 0);
    assert_false(readable(pair.a.channel->fd));
    assert_false(readable(pair.a.context->async_fd));
    pair.a.send_cq = ibv_create_cq(pair.a.context, 1, NULL, NULL, 0);
    pair_end(&pair);
}

/* --------------------------------------------------------------------------------------- misuse */

static char misuse_text[256];

static void note_misuse(void *context, const char *text)
{
    (*(int *)context)++;
    (void)snprintf(misuse_text, sizeof(misuse_text), "%s", text);
}

static void events_have_to_be_acknowledged_before_the_end(void **state)
{
    (void)state;
    int count = 0;
    struct pair pair = pair_make(&(struct wishes){ .device = "link=roce" });
    sim_on_misuse(pair.world, note_misuse, &count);
    struct ibv_async_event event;
    struct ibv_cq *cq;
    void *context;
    assert_int_equal(ibv_req_notify_cq(pair.a.send_cq, 0), 0);
    write_one(&pair, 1);
    assert_int_equal(ibv_get_cq_event(pair.a.channel, &cq, &context), 0);
    sim_qp_fatal(pair.a.qp, false);
    assert_int_equal(ibv_get_async_event(pair.a.context, &event), 0);

    assert_int_equal(ibv_destroy_qp(pair.a.qp), 0);
    assert_int_equal(count, 1);
    assert_non_null(strstr(misuse_text, "ibv_destroy_qp"));
    assert_int_equal(ibv_destroy_cq(pair.a.send_cq), 0);
    assert_int_equal(count, 2);
    assert_non_null(strstr(misuse_text, "ibv_destroy_cq"));

    pair.a.qp = NULL;
    pair.a.send_cq = ibv_create_cq(pair.a.context, 1, NULL, NULL, 0);
    pair_end(&pair);
}

static void a_context_with_objects_is_not_to_be_closed(void **state)
{
    (void)state;
    int count = 0;
    struct sim_world *world = sim_world_create(NULL);
    sim_on_misuse(world, note_misuse, &count);
    struct sim_host *host = sim_host_add(world);
    assert_non_null(sim_device_add(host, "link=ib"));
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_context *context = ibv_open_device(list[0]);
    ibv_free_device_list(list);
    assert_non_null(ibv_alloc_pd(context));
    assert_int_equal(ibv_close_device(context), 0);
    assert_int_equal(count, 1);
    assert_int_equal(sim_world_destroy(world), 1);
}

/* ------------------------------------------------------------------------------ shared receives */

static void queue_pairs_share_receives_in_order(void **state)
{
    (void)state;
    static const char *const worlds[] = { "", "freedoms=all" };
    for (size_t w = 0; w < 2; w++) {
        struct wishes wishes = { .world = worlds[w], .device = "link=roce", .srq = true };
        struct pair pair = pair_make(&wishes);
        struct ibv_qp *first = pair.a.qp;
        struct ibv_qp *second = node_qp(&pair.a, &wishes);
        struct ibv_qp *peer = node_qp(&pair.b, &wishes);
        qps_connect(&pair.a, second, &pair.b, peer, &wishes);
        for (uint64_t i = 0; i < 4; i++) {
            assert_int_equal(post_recv(&pair.b, i, TO + i * 64, 64), 0);
        }
        fill(&pair.a, FROM, 64, 1);
        uint32_t numbers[4];
        for (uint64_t i = 0; i < 4; i++) {
            pair.a.qp = i % 2 == 0 ? first : second;
            numbers[i] = i % 2 == 0 ? pair.b.qp->qp_num : peer->qp_num;
            assert_int_equal(post_send(&pair.a, i, FROM, 64, IBV_SEND_SIGNALED), 0);
            expect_wc(pair.a.send_cq, i, IBV_WC_SUCCESS);
        }
        unsigned int seen = 0;
        for (uint64_t i = 0; i < 4; i++) {
            struct ibv_wc wc = next_wc(pair.b.recv_cq);
            assert_int_equal(wc.qp_num, numbers[wc.wr_id]);
            assert_true(filled(&pair.b, TO + wc.wr_id * 64, 64, 1));
            seen |= 1U << wc.wr_id;
        }
        assert_int_equal(seen, 15);
        assert_int_equal(ibv_destroy_srq(pair.b.srq), EBUSY);
        assert_int_equal(ibv_destroy_qp(second), 0);
        assert_int_equal(ibv_destroy_qp(peer), 0);
        pair.a.qp = first;
        pair_end(&pair);
    }
}

static void the_limit_is_told_once(void **state)
{
    (void)state;
    struct pair pair = pair_make(&(struct wishes){ .device = "link=roce", .srq = true });
    struct ibv_srq_attr attr = { .srq_limit = 3 };
    for (uint64_t i = 0; i < 4; i++) {
        assert_int_equal(post_recv(&pair.b, i, TO, 64), 0);
    }
    assert_int_equal(ibv_modify_srq(pair.b.srq, &attr, IBV_SRQ_LIMIT), 0);
    assert_int_equal(post_send(&pair.a, 1, FROM, 8, 0), 0);
    no_event(&pair.b);
    assert_int_equal(post_send(&pair.a, 1, FROM, 8, 0), 0);
    struct ibv_async_event event;
    assert_int_equal(ibv_get_async_event(pair.b.context, &event), 0);
    assert_int_equal(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
    assert_ptr_equal(event.element.srq, pair.b.srq);
    ibv_ack_async_event(&event);
    assert_int_equal(post_send(&pair.a, 1, FROM, 8, 0), 0);
    no_event(&pair.b);
    assert_int_equal(ibv_query_srq(pair.b.srq, &attr), 0);
    assert_int_equal(attr.srq_limit, 0);
    assert_int_equal(attr.max_wr, NODE_DEPTH);
    pair_end(&pair);
}

static void shared_receives_outlive_a_queue_pair(void **state)
{
    (void)state;
    static const char *const devices[] = { "link=roce", "link=roce,like=hca" };
    for (size_t i = 0; i < 2; i++) {
        struct pair pair = pair_make(
            &(struct wishes){ .device = devices[i], .srq = true, .depth = 4 });
        for (uint64_t id = 0; id < 4; id++) {
            assert_int_equal(post_recv(&pair.b, id, TO, 64), 0);
        }
        assert_int_equal(post_recv(&pair.b, 4, TO, 64), ENOMEM);
        assert_int_equal(qp_to_error(pair.b.qp), 0);
        no_wc(&pair.b, pair.b.recv_cq); /* no receive of the shared queue is flushed */
        if (i == 1) {
            expect_event(&pair.b, IBV_EVENT_QP_LAST_WQE_REACHED);
        }
        no_event(&pair.b);
        pair_end(&pair);
    }
}

/* -------------------------------------------------------------------------- extended interfaces */

static void extended_polling_reads_the_same_entries(void **state)
{
    (void)state;
    struct wishes wishes = { .device = "link=roce" };
    struct pair pair = pair_make(&wishes);
    struct ibv_cq_init_attr_ex attr = { .cqe = 8, .wc_flags = IBV_WC_STANDARD_FLAGS };
    struct ibv_cq_ex *ex = ibv_create_cq_ex(pair.b.context, &attr);
    assert_non_null(ex);
    struct ibv_cq *kept = pair.b.recv_cq;
    pair.b.recv_cq = ibv_cq_ex_to_cq(ex);
    struct ibv_qp *first_a = pair.a.qp;
    struct ibv_qp *first_b = pair.b.qp;
    pair.a.qp = node_qp(&pair.a, &wishes);
    pair.b.qp = node_qp(&pair.b, &wishes);
    qps_connect(&pair.a, pair.a.qp, &pair.b, pair.b.qp, &wishes);
    struct ibv_poll_cq_attr poll_attr = { .comp_mask = 0 };
    assert_int_equal(ibv_start_poll(ex, &poll_attr), ENOENT);

    assert_int_equal(post_recv(&pair.b, 1, TO, 8), 0);
    assert_int_equal(post_recv(&pair.b, 2, TO, 8), 0);
    assert_int_equal(post_send_imm(&pair.a, 3, FROM, 8, 0x1234, 0), 0);
    assert_int_equal(post_send(&pair.a, 4, FROM, 4, 0), 0);

    assert_int_equal(ibv_start_poll(ex, &poll_attr), 0);
    assert_int_equal(ex->wr_id, 1);
    assert_int_equal(ex->status, IBV_WC_SUCCESS);
    assert_int_equal(ibv_wc_read_opcode(ex), IBV_WC_RECV);
    assert_int_equal(ibv_wc_read_byte_len(ex), 8);
    assert_int_equal(ibv_wc_read_imm_data(ex), 0x1234);
    assert_int_equal(ibv_wc_read_wc_flags(ex), IBV_WC_WITH_IMM);
    assert_int_equal(ibv_wc_read_qp_num(ex), pair.b.qp->qp_num);
    assert_int_equal(ibv_wc_read_src_qp(ex), pair.a.qp->qp_num);
    assert_int_equal(ibv_next_poll(ex), 0);
    assert_int_equal(ex->wr_id, 2);
    assert_int_equal(ibv_wc_read_byte_len(ex), 4);
    assert_int_equal(ibv_next_poll(ex), ENOENT);
    ibv_end_poll(ex);

    int count = 0;
    sim_on_misuse(pair.world, note_misuse, &count);
    ibv_end_poll(ex);
    assert_int_equal(count, 1);
    assert_int_equal(ibv_destroy_qp(pair.a.qp), 0);
    assert_int_equal(ibv_destroy_qp(pair.b.qp), 0);
    assert_int_equal(ibv_destroy_cq(pair.b.recv_cq), 0);
    pair.b.recv_cq = kept;
    pair.a.qp = first_a;
    pair.b.qp = first_b;
    pair_end(&pair);
}

static void extended_posting_is_all_or_nothing(void **state)
{
    (void)state;
    struct pair pair = pair_make(&(struct wishes){
        .device = "link=roce,like=hca", .extended = true, .depth = 4, .inline_size = 16 });
    struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(pair.a.qp);
    assert_non_null(ex);
    uint64_t target = (uintptr_t)pair.b.memory + TO;
    fill(&pair.a, FROM, 64, 1);
    assert_int_equal(post_recv(&pair.b, 9, BACK, 64), 0);

    ibv_wr_start(ex);
    ex->wr_id = 1;
    ex->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_rdma_write(ex, pair.b.mr->rkey, target);
    ibv_wr_set_sge(ex, pair.a.mr->lkey, (uintptr_t)pair.a.memory, 64);
    ex->wr_id = 2;
    ibv_wr_send_imm(ex, 77);
    uint8_t small[16] = { 1, 2, 3 };
    ibv_wr_set_inline_data(ex, small, sizeof(small));
    memset(small, 0, sizeof(small));
    ex->wr_id = 3;
    ibv_wr_rdma_read(ex, pair.b.mr->rkey, target);
    ibv_wr_set_sge(ex, pair.a.mr->lkey, (uintptr_t)pair.a.memory + BACK, 64);
    ex->wr_id = 4;
    ibv_wr_atomic_fetch_add(ex, pair.b.mr->rkey, target + 64, 5);
    ibv_wr_set_sge(ex, pair.a.mr->lkey, (uintptr_t)pair.a.memory + BACK + 64, 8);
    assert_int_equal(ibv_wr_complete(ex), 0);

    for (uint64_t id = 1; id <= 4; id++) {
        expect_wc(pair.a.send_cq, id, IBV_WC_SUCCESS);
    }
    struct ibv_wc wc = next_wc(pair.b.recv_cq);
    assert_int_equal(wc.imm_data, 77);
    assert_int_equal(pair.b.memory[BACK + 2], 3);
    assert_true(filled(&pair.b, TO, 64, 1));
    assert_true(filled(&pair.a, BACK, 64, 1));
    assert_int_equal(pair.b.memory[TO + 64], 5);

    /* One too many: none is posted. */
    ibv_wr_start(ex);
    for (uint64_t id = 1; id <= 5; id++) {
        ex->wr_id = id;
        ibv_wr_rdma_write(ex, pair.b.mr->rkey, target);
        ibv_wr_set_sge(ex, pair.a.mr->lkey, (uintptr_t)pair.a.memory, 8);
    }
    assert_int_equal(ibv_wr_complete(ex), ENOMEM);
    no_wc(&pair.a, pair.a.send_cq);
    ibv_wr_start(ex);
    ibv_wr_send(ex);
    ibv_wr_abort(ex);
    no_wc(&pair.a, pair.a.send_cq);
    pair_end(&pair);
}

/* Stages writes of 8 bytes, numbered from 1. */
static void stage_writes(struct ibv_qp_ex *ex, const struct pair *pair, uint64_t count)
{
    ibv_wr_start(ex);
    ex->wr_flags = IBV_SEND_SIGNALED;
    for (uint64_t id = 1; id <= count; id++) {
        ex->wr_id = id;
        ibv_wr_rdma_write(ex, pair->b.mr->rkey, (uintptr_t)pair->b.memory + TO + 8 * id);
        ibv_wr_set_sge(ex, pair->a.mr->lkey, (uintptr_t)pair->a.memory + FROM, 8);
    }
}

static void a_failure_in_the_middle_posts_nothing(void **state)
{
    (void)state;
    static const char *const names[] = { "post_send", "wr_complete" };
    for (uint64_t i = 0; i < 2; i++) {
        struct pair pair = pair_make(
            &(struct wishes){ .device = "link=roce,like=hca", .extended = true });
        struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(pair.a.qp);
        fill(&pair.a, FROM, 8, 5);
        assert_true(sim_fail_call(pair.world, names[i], 2 - i, EIO));
        stage_writes(ex, &pair, 3);
        assert_int_equal(ibv_wr_complete(ex), EIO);
        no_wc(&pair.a, pair.a.send_cq);
        assert_false(filled(&pair.b, TO + 8, 8, 5));
        stage_writes(ex, &pair, 3);
        assert_int_equal(ibv_wr_complete(ex), 0);
        for (uint64_t id = 1; id <= 3; id++) {
            expect_wc(pair.a.send_cq, id, IBV_WC_SUCCESS);
        }
        assert_true(filled(&pair.b, TO + 8, 8, 5));
        assert_int_equal(sim_calls(pair.world, "wr_complete"), 2);
        pair_end(&pair);
    }
}

static void a_request_is_to_say_where_its_bytes_are(void **state)
{
    (void)state;
    struct pair pair = pair_make(
        &(struct wishes){ .device = "link=roce,like=hca", .extended = true });
    struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(pair.a.qp);
    stage_writes(ex, &pair, 1);
    ibv_wr_rdma_write(ex, pair.b.mr->rkey, (uintptr_t)pair.b.memory + TO);
    assert_int_equal(ibv_wr_complete(ex), EINVAL);
    no_wc(&pair.a, pair.a.send_cq);
    stage_writes(ex, &pair, 1);
    ex->wr_id = 2;
    ibv_wr_rdma_write(ex, pair.b.mr->rkey, (uintptr_t)pair.b.memory + TO);
    ibv_wr_set_sge_list(ex, 0, NULL);
    assert_int_equal(ibv_wr_complete(ex), 0);
    expect_wc(pair.a.send_cq, 1, IBV_WC_SUCCESS);
    expect_wc(pair.a.send_cq, 2, IBV_WC_SUCCESS);
    pair_end(&pair);
}

static void events_of_unknown_types_pass_through(void **state)
{
    (void)state;
    struct pair pair = pair_make(&(struct wishes){ .device = "link=ib" });
    struct ibv_async_event raised = { .element.port_num = 1, .event_type = (enum ibv_event_type)77 };
    sim_async_event(pair.a.context, &raised);
    struct ibv_async_event event;
    assert_int_equal(ibv_get_async_event(pair.a.context, &event), 0);
    assert_int_equal(event.event_type, 77);
    ibv_ack_async_event(&event);
    pair_end(&pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_armed_queue_tells_of_the_next_entry_once),
        cmocka_unit_test(solicited_only_tells_of_solicited_messages_and_failures),
        cmocka_unit_test(armed_for_all_is_not_narrowed_to_solicited),
        cmocka_unit_test(waiting_moves_virtual_time_and_never_hangs),
        cmocka_unit_test(a_queue_that_overruns_dies_with_its_queue_pairs),
        cmocka_unit_test(polled_places_are_free_again),
        cmocka_unit_test(a_queue_can_grow_and_keeps_what_it_has),
        cmocka_unit_test(destroying_takes_unread_events_along),
        cmocka_unit_test(events_have_to_be_acknowledged_before_the_end),
        cmocka_unit_test(a_context_with_objects_is_not_to_be_closed),
        cmocka_unit_test(queue_pairs_share_receives_in_order),
        cmocka_unit_test(the_limit_is_told_once),
        cmocka_unit_test(shared_receives_outlive_a_queue_pair),
        cmocka_unit_test(extended_polling_reads_the_same_entries),
        cmocka_unit_test(extended_posting_is_all_or_nothing),
        cmocka_unit_test(a_failure_in_the_middle_posts_nothing),
        cmocka_unit_test(a_request_is_to_say_where_its_bytes_are),
        cmocka_unit_test(events_of_unknown_types_pass_through),
    };
    return cmocka_run_group_tests_name("sim_completion", tests, NULL, NULL);
}
