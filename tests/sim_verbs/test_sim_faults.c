/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Failing calls, vanishing devices, dying queue pairs, and plans for all of them. */
#include "support.h"

#include <errno.h>

enum { FROM = 0, TO = 16384, BACK = 32768 };

static void a_call_fails_when_it_was_planned(void **state)
{
    (void)state;
    struct pair pair = pair_make(&(struct wishes){ .device = "link=roce", .srq = true });
    struct ibv_device_attr attr;
    struct ibv_port_attr port;
    struct ibv_qp_attr qp_attr;
    struct ibv_qp_init_attr init;
    struct ibv_srq_attr srq_attr = { .srq_limit = 0 };
    struct ibv_wc wc;
    union ibv_gid gid;
    const struct ibv_qp_init_attr new_qp = { .send_cq = pair.a.send_cq,
                                             .recv_cq = pair.a.recv_cq,
                                             .cap = { 1, 1, 1, 1, 0 },
                                             .qp_type = IBV_QPT_RC };
    struct ibv_qp_init_attr used = new_qp;
    struct ibv_srq_init_attr new_srq = { .attr = { 1, 1, 0 } };
#define FAILS_WITH_NULL(name, call)                             \
    do {                                                        \
        assert_true(sim_fail_call(pair.world, name, 1, E2BIG)); \
        errno = 0;                                              \
        assert_null(call);                                      \
        assert_int_equal(errno, E2BIG);                         \
    } while (0)
#define FAILS_WITH(name, call, result)                          \
    do {                                                        \
        assert_true(sim_fail_call(pair.world, name, 1, E2BIG)); \
        assert_int_equal(call, result);                         \
    } while (0)
    FAILS_WITH_NULL("get_device_list", ibv_get_device_list(NULL));
    FAILS_WITH_NULL("open_device", ibv_open_device(pair.a.context->device));
    FAILS_WITH_NULL("alloc_pd", ibv_alloc_pd(pair.a.context));
    FAILS_WITH_NULL("reg_mr", ibv_reg_mr(pair.a.pd, pair.a.memory, 8, 0));
    FAILS_WITH_NULL("create_comp_channel", ibv_create_comp_channel(pair.a.context));
    FAILS_WITH_NULL("create_cq", ibv_create_cq(pair.a.context, 1, NULL, NULL, 0));
    FAILS_WITH_NULL("create_qp", ibv_create_qp(pair.a.pd, &used));
    FAILS_WITH_NULL("create_srq", ibv_create_srq(pair.a.pd, &new_srq));
    FAILS_WITH_NULL("create_event_channel", rdma_create_event_channel());
    FAILS_WITH("query_device", ibv_query_device(pair.a.context, &attr), E2BIG);
    FAILS_WITH("query_port", ibv_query_port(pair.a.context, 1, &port), E2BIG);
    FAILS_WITH("query_gid", ibv_query_gid(pair.a.context, 1, 0, &gid), -1);
    FAILS_WITH("dealloc_pd", ibv_dealloc_pd(pair.a.pd), E2BIG);
    FAILS_WITH("dereg_mr", ibv_dereg_mr(pair.a.mr), E2BIG);
    FAILS_WITH("resize_cq", ibv_resize_cq(pair.a.send_cq, 300), E2BIG);
    FAILS_WITH("req_notify_cq", ibv_req_notify_cq(pair.a.send_cq, 0), E2BIG);
    FAILS_WITH("poll_cq", ibv_poll_cq(pair.a.send_cq, 1, &wc), -E2BIG);
    FAILS_WITH("modify_qp", qp_to_error(pair.a.qp), E2BIG);
    FAILS_WITH("query_qp", ibv_query_qp(pair.a.qp, &qp_attr, 0, &init), E2BIG);
    FAILS_WITH("modify_srq", ibv_modify_srq(pair.b.srq, &srq_attr, IBV_SRQ_LIMIT), E2BIG);
    FAILS_WITH("post_send", post_send(&pair.a, 1, FROM, 8, 0), E2BIG);
    FAILS_WITH("post_recv", post_recv(&pair.a, 1, FROM, 8), E2BIG);
    FAILS_WITH("post_srq_recv", post_recv(&pair.b, 1, FROM, 8), E2BIG);
#undef FAILS_WITH_NULL
#undef FAILS_WITH
    assert_int_equal(qp_state(pair.a.qp), IBV_QPS_RTS); /* the failed calls had no effect */
    no_wc(&pair.a, pair.a.send_cq);
    pair_end(&pair);
}

static void the_nth_post_fails_and_the_others_go_on(void **state)
{
    (void)state;
    struct pair pair = pair_make(&(struct wishes){ .device = "link=roce" });
    uint64_t before = sim_calls(pair.world, "post_send");
    assert_true(sim_fail_call(pair.world, "post_send", 3, ENOMEM));
    for (uint64_t i = 1; i <= 5; i++) {
        assert_int_equal(post_write(&pair.a, i, FROM, 8, &pair.b, TO, IBV_SEND_SIGNALED),
                         i == 3 ? ENOMEM : 0);
    }
    for (uint64_t i = 1; i <= 5; i++) {
        if (i != 3) {
            expect_wc(pair.a.send_cq, i, IBV_WC_SUCCESS);
        }
    }
    assert_int_equal(sim_calls(pair.world, "post_send") - before, 5);
    pair_end(&pair);
}

/* A program that unwinds correctly. Returns whether it succeeded. */
static bool careful_program(struct sim_world *world)
{
    static char memory[64];
    bool done = false;
    struct ibv_device **list = ibv_get_device_list(NULL);
    if (list == NULL) {
        return false;
    }
    struct ibv_context *context = ibv_open_device(list[0]);
    ibv_free_device_list(list);
    if (context == NULL) {
        return false;
    }
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_mr *mr = pd != NULL ? ibv_reg_mr(pd, memory, sizeof(memory), 0) : NULL;
    struct ibv_cq *cq = mr != NULL ? ibv_create_cq(context, 4, NULL, NULL, 0) : NULL;
    struct ibv_qp_init_attr attr = {
        .send_cq = cq, .recv_cq = cq, .cap = { 1, 1, 1, 1, 0 }, .qp_type = IBV_QPT_RC
    };
    struct ibv_qp *qp = cq != NULL ? ibv_create_qp(pd, &attr) : NULL;
    if (qp != NULL) {
        struct ibv_qp_attr init = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
        done = ibv_modify_qp(qp, &init,
                             IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                                 IBV_QP_ACCESS_FLAGS) == 0;
        (void)sim_fail_call(world, "*", 0, 0); /* no failures during teardown */
        assert_int_equal(ibv_destroy_qp(qp), 0);
    }
    (void)sim_fail_call(world, "*", 0, 0);
    assert_true(cq == NULL || ibv_destroy_cq(cq) == 0);
    assert_true(mr == NULL || ibv_dereg_mr(mr) == 0);
    assert_true(pd == NULL || ibv_dealloc_pd(pd) == 0);
    assert_int_equal(ibv_close_device(context), 0);
    return done;
}

static void each_call_in_turn_can_be_made_to_fail(void **state)
{
    (void)state;
    unsigned int failed = 0;
    bool done = false;
    for (uint64_t nth = 1; !done; nth++) {
        struct sim_world *world = sim_world_create(NULL);
        assert_non_null(sim_device_add(sim_host_add(world), "link=ib"));
        assert_true(sim_fail_call(world, "*", nth, ENOMEM));
        done = careful_program(world);
        failed += done ? 0 : 1;
        assert_int_equal(sim_world_destroy(world), 0);
    }
    assert_int_equal(failed, 7); /* list, open, pd, mr, cq, qp, modify */
}

static int fail_regions(void *context, const char *name)
{
    unsigned int *asked = context;
    ++*asked;
    return strcmp(name, "reg_mr") == 0 ? EPERM : 0;
}

static void whoever_is_asked_decides_which_call_fails(void **state)
{
    (void)state;
    unsigned int asked = 0;
    struct sim_world *world = sim_world_create(NULL);
    assert_non_null(sim_device_add(sim_host_add(world), "link=ib"));
    sim_on_call(world, fail_regions, &asked);

    assert_false(careful_program(world));

    assert_int_equal(asked, 5); /* list, open, pd, mr, and the pd's end */
    sim_on_call(world, NULL, NULL);
    assert_true(careful_program(world));
    assert_int_equal(asked, 5);
    assert_int_equal(sim_objects(world), 0);
    assert_int_equal(sim_world_destroy(world), 0);
}

static void a_device_that_vanishes_says_so_and_completes_nothing(void **state)
{
    (void)state;
    struct pair pair = pair_make(&(struct wishes){ .world = "latency=5us", .device = "link=roce" });
    assert_int_equal(post_recv(&pair.a, 9, TO, 8), 0);
    assert_int_equal(post_write(&pair.a, 1, FROM, 8, &pair.b, TO, IBV_SEND_SIGNALED), 0);
    sim_device_remove(pair.a.device);
    expect_event(&pair.a, IBV_EVENT_DEVICE_FATAL);
    (void)post_write(&pair.a, 2, FROM, 8, &pair.b, TO, IBV_SEND_SIGNALED);
    (void)qp_to_error(pair.a.qp);
    no_wc(&pair.a, pair.a.send_cq);
    no_wc(&pair.a, pair.a.recv_cq);
    struct ibv_device_attr attr;
    assert_int_equal(ibv_query_device(pair.a.context, &attr), EIO);
    assert_null(ibv_alloc_pd(pair.a.context));
    assert_null(ibv_open_device(pair.a.context->device));
    sim_use_host(pair.a.host);
    int count;
    ibv_free_device_list(ibv_get_device_list(&count));
    assert_int_equal(count, 0);
    pair_end(&pair); /* all objects can still be destroyed */
}

static void a_queue_pair_that_is_given_up_flushes_or_stays_quiet(void **state)
{
    (void)state;
    for (int quiet = 0; quiet < 2; quiet++) {
        struct pair pair = pair_make(
            &(struct wishes){ .world = "latency=5us", .device = "link=roce" });
        assert_int_equal(post_write(&pair.a, 1, FROM, 8, &pair.b, TO, 0), 0);
        assert_int_equal(post_recv(&pair.a, 2, TO, 8), 0);
        sim_qp_fatal(pair.a.qp, quiet != 0);
        expect_event(&pair.a, IBV_EVENT_QP_FATAL);
        if (quiet) {
            no_wc(&pair.a, pair.a.send_cq);
            no_wc(&pair.a, pair.a.recv_cq);
        } else {
            expect_wc(pair.a.send_cq, 1, IBV_WC_WR_FLUSH_ERR);
            expect_wc(pair.a.recv_cq, 2, IBV_WC_WR_FLUSH_ERR);
        }
        assert_int_equal(qp_state(pair.a.qp), IBV_QPS_ERR);
        pair_end(&pair);
    }
}

static void a_request_fails_with_the_status_that_was_asked_for(void **state)
{
    (void)state;
    struct pair pair = pair_make(&(struct wishes){ .device = "link=roce" });
    sim_qp_fail_request(pair.a.qp, 3, IBV_WC_REM_ABORT_ERR);
    for (uint64_t i = 1; i <= 4; i++) {
        assert_int_equal(post_write(&pair.a, i, FROM, 8, &pair.b, TO, IBV_SEND_SIGNALED), 0);
    }
    expect_wc(pair.a.send_cq, 1, IBV_WC_SUCCESS);
    expect_wc(pair.a.send_cq, 2, IBV_WC_SUCCESS);
    expect_wc(pair.a.send_cq, 3, IBV_WC_REM_ABORT_ERR);
    expect_wc(pair.a.send_cq, 4, IBV_WC_WR_FLUSH_ERR);
    pair_end(&pair);
}

static void a_killed_completion_queue_takes_its_queue_pairs_along(void **state)
{
    (void)state;
    struct pair pair = pair_make(&(struct wishes){ .device = "link=roce" });
    sim_cq_kill(pair.a.recv_cq);
    expect_event(&pair.a, IBV_EVENT_CQ_ERR);
    expect_event(&pair.a, IBV_EVENT_QP_FATAL);
    assert_int_equal(qp_state(pair.a.qp), IBV_QPS_ERR);
    pair_end(&pair);
}

static void a_device_fails_or_refuses_the_nth_request(void **state)
{
    (void)state;
    static const struct {
        const char *device;
        enum ibv_wc_status status;
        enum ibv_event_type event; /* at the target */
    } refusals[] = {
        { "link=roce,like=hca", IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR },
        { "link=ib,like=hca", IBV_WC_REM_OP_ERR, IBV_EVENT_QP_REQ_ERR },
        { "link=ib,like=hca", IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR },
    };
    struct pair pair = pair_make(&(struct wishes){ .device = "link=roce" });
    sim_device_fail_request(pair.a.device, 2, IBV_WC_LOC_PROT_ERR);
    for (uint64_t i = 1; i <= 2; i++) {
        assert_int_equal(post_write(&pair.a, i, FROM, 8, &pair.b, TO, IBV_SEND_SIGNALED), 0);
    }
    expect_wc(pair.a.send_cq, 1, IBV_WC_SUCCESS);
    expect_wc(pair.a.send_cq, 2, IBV_WC_LOC_PROT_ERR);
    pair_end(&pair);
    for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
        pair = pair_make(
            &(struct wishes){ .world = "latency=1us,packet=1k", .device = refusals[i].device });
        sim_device_refuse(pair.b.device, 2, refusals[i].status);
        /* counted by requests, not by packets */
        assert_int_equal(post_write(&pair.a, 1, FROM, 4096, &pair.b, TO, 0), 0);
        assert_int_equal(post_write(&pair.a, 2, FROM, 8, &pair.b, TO, 0), 0);
        assert_int_equal(post_write(&pair.a, 3, FROM, 8, &pair.b, TO, 0), 0);
        expect_wc(pair.a.send_cq, 2, refusals[i].status);
        expect_wc(pair.a.send_cq, 3, IBV_WC_WR_FLUSH_ERR);
        expect_event(&pair.b, refusals[i].event);
        assert_int_equal(qp_state(pair.b.qp), IBV_QPS_ERR);
        pair_end(&pair);
    }
}

static void a_device_gives_up_what_meets_no_receive_though_told_for_ever(void **state)
{
    (void)state;
    struct pair pair = pair_make(&(struct wishes){
        .device = "link=roce", .weak = true, .timeout = 10, .rnr_retry = 7, .min_rnr_timer = 1 });
    sim_device_rnr_tries(pair.a.device, 3);
    assert_int_equal(post_send(&pair.a, 1, FROM, 64, 0), 0);
    expect_wc(pair.a.send_cq, 1, IBV_WC_RNR_RETRY_EXC_ERR);
    assert_int_equal(sim_counters(pair.world).rnr_naks, 4);
    pair_end(&pair);
}

static void all_completion_queues_of_a_device_die_at_once(void **state)
{
    (void)state;
    struct pair pair = pair_make(&(struct wishes){ .device = "link=iwarp" });
    sim_device_kill_cqs(pair.a.device);
    expect_event(&pair.a, IBV_EVENT_CQ_ERR);
    expect_event(&pair.a, IBV_EVENT_QP_FATAL);
    expect_event(&pair.a, IBV_EVENT_CQ_ERR);
    assert_int_equal(qp_state(pair.a.qp), IBV_QPS_ERR);
    /* The connection ends with the queue pair. */
    assert_int_equal(qp_state(pair.b.qp), IBV_QPS_ERR);
    pair_end(&pair);
}

static void a_link_that_flaps_renumbers_gids(void **state)
{
    (void)state;
    struct pair pair = pair_make(&(struct wishes){ .device = "link=roce" });
    union ibv_gid before;
    union ibv_gid after;
    struct ibv_gid_entry entries[16];
    struct ibv_port_attr port;
    assert_int_equal(ibv_query_gid(pair.a.context, 1, 1, &before), 0);
    sim_port_set(pair.a.device, false);
    expect_event(&pair.a, IBV_EVENT_PORT_ERR);
    expect_event(&pair.a, IBV_EVENT_GID_CHANGE);
    assert_int_equal(ibv_query_port(pair.a.context, 1, &port), 0);
    assert_int_equal(port.state, IBV_PORT_DOWN);
    assert_int_equal(ibv_query_gid_table(pair.a.context, entries, 16, 0), 0);
    sim_port_set(pair.a.device, true);
    sim_gids_renumber(pair.a.device);
    expect_event(&pair.a, IBV_EVENT_PORT_ACTIVE);
    expect_event(&pair.a, IBV_EVENT_GID_CHANGE);
    expect_event(&pair.a, IBV_EVENT_GID_CHANGE);
    assert_int_equal(ibv_query_gid(pair.a.context, 1, 1, &after), 0);
    assert_memory_not_equal(&before, &after, sizeof(before));
    assert_int_equal(ibv_query_gid_table(pair.a.context, entries, 16, 0), 2);
    pair_end(&pair);
}

static void faults_can_be_planned_in_the_options(void **state)
{
    (void)state;
    struct pair pair = pair_make(
        &(struct wishes){ .world = "fail=post_send:2:12,at=1ms:port_down+2ms:port_up+3ms:gids+4ms:"
                                   "qp_fatal+5ms:remove",
                          .device = "link=roce" });
    assert_int_equal(post_write(&pair.a, 1, FROM, 8, &pair.b, TO, IBV_SEND_SIGNALED), 0);
    assert_int_equal(post_write(&pair.a, 2, FROM, 8, &pair.b, TO, IBV_SEND_SIGNALED), 12);
    static const enum ibv_event_type expected[][2] = {
        { IBV_EVENT_PORT_ERR, IBV_EVENT_GID_CHANGE },
        { IBV_EVENT_PORT_ACTIVE, IBV_EVENT_GID_CHANGE },
        { IBV_EVENT_GID_CHANGE, (enum ibv_event_type) - 1 },
        { IBV_EVENT_QP_FATAL, (enum ibv_event_type) - 1 },
        { IBV_EVENT_DEVICE_FATAL, (enum ibv_event_type) - 1 },
    };
    for (size_t i = 0; i < 5; i++) {
        no_event(&pair.a);
        (void)sim_advance(pair.world, 1000000);
        for (size_t j = 0; j < 2; j++) {
            if ((int)expected[i][j] != -1) {
                expect_event(&pair.a, expected[i][j]);
                expect_event(&pair.b, expected[i][j]);
            }
        }
    }
    pair_end(&pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_call_fails_when_it_was_planned),
        cmocka_unit_test(the_nth_post_fails_and_the_others_go_on),
        cmocka_unit_test(each_call_in_turn_can_be_made_to_fail),
        cmocka_unit_test(whoever_is_asked_decides_which_call_fails),
        cmocka_unit_test(a_device_that_vanishes_says_so_and_completes_nothing),
        cmocka_unit_test(a_queue_pair_that_is_given_up_flushes_or_stays_quiet),
        cmocka_unit_test(a_request_fails_with_the_status_that_was_asked_for),
        cmocka_unit_test(a_killed_completion_queue_takes_its_queue_pairs_along),
        cmocka_unit_test(a_device_fails_or_refuses_the_nth_request),
        cmocka_unit_test(a_device_gives_up_what_meets_no_receive_though_told_for_ever),
        cmocka_unit_test(all_completion_queues_of_a_device_die_at_once),
        cmocka_unit_test(a_link_that_flaps_renumbers_gids),
        cmocka_unit_test(faults_can_be_planned_in_the_options),
    };
    return cmocka_run_group_tests_name("sim_faults", tests, NULL, NULL);
}
