/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Devices, their limits, states of queue pairs, and when objects may be destroyed. */
#include "support.h"

#include <errno.h>
#include <sys/mman.h>

enum { FROM = 0, TO = 16384 };

static struct sim_world *world_with(const char *device, struct sim_host **host,
                                    struct ibv_context **context)
{
    struct sim_world *world = sim_world_create(NULL);
    *host = sim_host_add(world);
    if (sim_device_add(*host, device) == NULL) {
        fail_msg("%s", sim_error());
    }
    sim_use_host(*host);
    struct ibv_device **list = ibv_get_device_list(NULL);
    *context = ibv_open_device(list[0]);
    ibv_free_device_list(list);
    assert_non_null(*context);
    return world;
}

static void without_a_world_there_is_no_device(void **state)
{
    (void)state;
    int count = 7;
    errno = 0;
    assert_null(ibv_get_device_list(&count));
    assert_int_equal(errno, ENOSYS);
    assert_int_equal(count, 0);
    assert_null(rdma_create_event_channel());
    assert_int_equal(ibv_is_fork_initialized(), IBV_FORK_UNNEEDED);
}

static void a_host_lists_its_own_devices(void **state)
{
    (void)state;
    struct sim_world *world = sim_world_create(NULL);
    struct sim_host *first = sim_host_add(world);
    struct sim_host *second = sim_host_add(world);
    assert_non_null(sim_device_add(first, "link=ib,name=mine"));
    assert_non_null(sim_device_add(first, "link=iwarp"));
    int count;
    struct ibv_device **list = ibv_get_device_list(&count); /* refers to the first host */
    assert_int_equal(count, 2);
    assert_null(list[2]);
    assert_string_equal(ibv_get_device_name(list[0]), "mine");
    assert_string_equal(ibv_get_device_name(list[1]), "simiw1");
    assert_int_equal(list[0]->transport_type, IBV_TRANSPORT_IB);
    assert_int_equal(list[0]->node_type, IBV_NODE_CA);
    assert_int_equal(list[1]->transport_type, IBV_TRANSPORT_IWARP);
    assert_int_equal(list[1]->node_type, IBV_NODE_RNIC);
    assert_true(ibv_get_device_guid(list[0]) != ibv_get_device_guid(list[1]));
    assert_int_equal(ibv_get_device_index(list[1]), 1);
    ibv_free_device_list(list);
    sim_use_host(second);
    list = ibv_get_device_list(&count);
    assert_non_null(list);
    assert_int_equal(count, 0);
    ibv_free_device_list(list);
    assert_int_equal(sim_world_destroy(world), 0);
}

static void *name_of_first_device(void *name)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    if (list != NULL) {
        (void)snprintf(name, IBV_SYSFS_NAME_MAX, "%s", ibv_get_device_name(list[0]));
        ibv_free_device_list(list);
    }
    return NULL;
}

static void each_thread_has_its_host_or_the_default(void **state)
{
    (void)state;
    struct sim_world *world = sim_world_create(NULL);
    struct sim_host *first = sim_host_add(world);
    struct sim_host *second = sim_host_add(world);
    assert_non_null(sim_device_add(first, "name=one"));
    assert_non_null(sim_device_add(second, "name=two"));
    char here[IBV_SYSFS_NAME_MAX] = "";
    char there[IBV_SYSFS_NAME_MAX] = "";
    pthread_t thread;
    sim_use_host(first);
    sim_default_host(second);
    assert_int_equal(pthread_create(&thread, NULL, name_of_first_device, there), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    (void)name_of_first_device(here);
    assert_string_equal(here, "one");
    assert_string_equal(there, "two");
    sim_default_host(NULL);
    assert_int_equal(pthread_create(&thread, NULL, name_of_first_device, there), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_string_equal(there, "one");
    assert_int_equal(sim_world_destroy(world), 0);
}

static void each_kind_says_what_it_is(void **state)
{
    (void)state;
    static const struct {
        const char *device;
        enum ibv_mtu mtu;
        int gids;
        uint32_t gid_type;
        uint8_t link_layer;
        bool lid;
    } cases[] = {
        { "link=ib", IBV_MTU_4096, 1, IBV_GID_TYPE_IB, IBV_LINK_LAYER_INFINIBAND, true },
        { "link=roce", IBV_MTU_1024, 2, IBV_GID_TYPE_ROCE_V2, IBV_LINK_LAYER_ETHERNET, false },
        { "link=roce,like=hca", IBV_MTU_4096, 4, IBV_GID_TYPE_ROCE_V1, IBV_LINK_LAYER_ETHERNET,
          false },
        { "link=iwarp", IBV_MTU_4096, 1, IBV_GID_TYPE_IB, IBV_LINK_LAYER_ETHERNET, false },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct sim_host *host;
        struct ibv_context *context;
        struct sim_world *world = world_with(cases[i].device, &host, &context);
        struct ibv_port_attr port;
        struct ibv_gid_entry entries[32];
        assert_int_equal(ibv_query_port(context, 1, &port), 0);
        assert_int_equal(port.link_layer, cases[i].link_layer);
        assert_int_equal(port.active_mtu, cases[i].mtu);
        assert_int_equal(port.state, IBV_PORT_ACTIVE);
        assert_int_equal(port.lid != 0, cases[i].lid);
        assert_int_equal(ibv_query_port(context, 2, &port), EINVAL);
        assert_int_equal(ibv_query_gid_table(context, entries, 32, 0), cases[i].gids);
        assert_int_equal(entries[0].gid_type, cases[i].gid_type);
        union ibv_gid gid;
        assert_int_equal(ibv_query_gid(context, 1, 0, &gid), 0);
        assert_memory_equal(&gid, &entries[0].gid, sizeof(gid));
        __be16 pkey;
        assert_int_equal(ibv_query_pkey(context, 1, 0, &pkey), 0);
        assert_int_equal(pkey, 0xffff);
        assert_int_equal(ibv_get_pkey_index(context, 1, 0xffff), 0);
        assert_int_equal(ibv_query_pkey(context, 1, 1, &pkey), -1);
        assert_int_equal(ibv_close_device(context), 0);
        assert_int_equal(sim_world_destroy(world), 0);
    }
}

static void an_empty_gid_place_has_no_data(void **state)
{
    (void)state;
    struct sim_host *host;
    struct ibv_context *context;
    struct sim_world *world = world_with("link=roce", &host, &context);
    struct ibv_gid_entry entry;
    union ibv_gid gid;
    union ibv_gid zeros = { .raw = { 0 } };
    assert_int_equal(ibv_query_gid_ex(context, 1, 1, &entry, 0), 0);
    assert_int_equal(entry.gid.raw[15], 1); /* 10.77.1.1 */
    assert_int_not_equal(entry.ndev_ifindex, 0);
    assert_int_equal(ibv_query_gid_ex(context, 1, 5, &entry, 0), ENODATA);
    assert_int_equal(ibv_query_gid_ex(context, 1, 99, &entry, 0), EINVAL);
    assert_int_equal(ibv_query_gid(context, 1, 5, &gid), 0);
    assert_memory_equal(&gid, &zeros, sizeof(gid));
    assert_int_equal(ibv_query_gid(context, 1, 99, &gid), -1);
    assert_int_equal(ibv_close_device(context), 0);
    assert_int_equal(sim_world_destroy(world), 0);
}

static void limits_of_the_device_hold(void **state)
{
    (void)state;
    struct sim_host *host;
    struct ibv_context *context;
    struct sim_world *world = world_with(
        "link=roce,max_pd=1,max_cq=1,max_qp=1,max_mr=1,max_srq=1,max_cqe=8,max_qp_wr=4,max_sge=2,"
        "max_inline=16,max_srq_wr=4,max_mr_size=4k,vectors=1",
        &host, &context);
    static char memory[8192];
    struct ibv_device_attr_ex attr;
    assert_int_equal(ibv_query_device_ex(context, NULL, &attr), 0);
    assert_int_equal(attr.orig_attr.max_qp, 1);
    assert_int_equal(attr.orig_attr.max_qp_wr, 4);
    assert_int_equal(attr.orig_attr.max_cqe, 8);
    assert_int_equal(context->num_comp_vectors, 1);

    struct ibv_pd *pd = ibv_alloc_pd(context);
    assert_non_null(pd);
    assert_null(ibv_alloc_pd(context));
    assert_int_equal(errno, ENOMEM);

    assert_null(ibv_reg_mr(pd, memory, 4097, 0));
    assert_int_equal(errno, EINVAL);
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, 4096, 0);
    assert_non_null(mr);
    assert_null(ibv_reg_mr(pd, memory, 1, 0));
    assert_int_equal(errno, ENOMEM);

    assert_null(ibv_create_cq(context, 9, NULL, NULL, 0));
    assert_int_equal(errno, EINVAL);
    assert_null(ibv_create_cq(context, 8, NULL, NULL, 1));
    struct ibv_cq *cq = ibv_create_cq(context, 8, NULL, NULL, 0);
    assert_non_null(cq);
    assert_null(ibv_create_cq(context, 8, NULL, NULL, 0));
    assert_int_equal(errno, ENOMEM);

    struct ibv_qp_init_attr right = {
        .send_cq = cq, .recv_cq = cq, .cap = { 4, 4, 2, 2, 16 }, .qp_type = IBV_QPT_RC
    };
    struct ibv_qp_init_attr wrong[] = { right, right, right, right, right };
    wrong[0].cap.max_send_wr = 5;
    wrong[1].cap.max_recv_wr = 5;
    wrong[2].cap.max_send_sge = 3;
    wrong[3].cap.max_recv_sge = 3;
    wrong[4].cap.max_inline_data = 17;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_null(ibv_create_qp(pd, &wrong[i]));
        assert_int_equal(errno, EINVAL);
    }
    wrong[0] = right;
    wrong[0].qp_type = IBV_QPT_UD;
    assert_null(ibv_create_qp(pd, &wrong[0]));
    assert_int_equal(errno, EOPNOTSUPP);
    struct ibv_qp *qp = ibv_create_qp(pd, &right);
    assert_non_null(qp);
    assert_null(ibv_create_qp(pd, &right));
    assert_int_equal(errno, ENOMEM);

    struct ibv_srq_init_attr srq_attr = { .attr = { 5, 1, 0 } };
    assert_null(ibv_create_srq(pd, &srq_attr));
    srq_attr.attr.max_wr = 4;
    struct ibv_srq *srq = ibv_create_srq(pd, &srq_attr);
    assert_non_null(srq);
    assert_null(ibv_create_srq(pd, &srq_attr));

    assert_int_equal(ibv_destroy_cq(cq), EBUSY); /* the queue pair uses it */
    assert_int_equal(ibv_dealloc_pd(pd), EBUSY);
    assert_int_equal(ibv_destroy_srq(srq), 0);
    assert_int_equal(ibv_destroy_qp(qp), 0);
    assert_int_equal(ibv_destroy_cq(cq), 0);
    assert_int_equal(ibv_dereg_mr(mr), 0);
    assert_int_equal(ibv_dealloc_pd(pd), 0);
    assert_int_equal(ibv_close_device(context), 0);
    assert_int_equal(sim_world_destroy(world), 0);
}

static void the_smallest_device_is_small_everywhere(void **state)
{
    (void)state;
    struct pair pair = pair_make(
        &(struct wishes){ .device = "link=ib,limits=smallest", .depth = 16 });
    struct ibv_device_attr attr;
    struct ibv_port_attr port;
    assert_int_equal(ibv_query_device(pair.a.context, &attr), 0);
    assert_int_equal(ibv_query_port(pair.a.context, 1, &port), 0);
    assert_int_equal(attr.max_sge, 1);
    assert_int_equal(attr.max_sge_rd, 1);
    assert_int_equal(attr.max_srq, 0);
    assert_int_equal(attr.atomic_cap, IBV_ATOMIC_NONE);
    assert_int_equal(attr.max_qp_rd_atom, 1);
    assert_int_equal(port.active_mtu, IBV_MTU_256);
    struct ibv_srq_init_attr srq = { .attr = { 1, 1, 0 } };
    assert_null(ibv_create_srq(pair.a.pd, &srq));
    assert_int_equal(errno, EOPNOTSUPP);
    struct ibv_cq_init_attr_ex cq = { .cqe = 4 };
    assert_null(ibv_create_cq_ex(pair.a.context, &cq));
    assert_int_equal(errno, EOPNOTSUPP);
    struct ibv_qp_init_attr_ex ex = { .send_cq = pair.a.send_cq,
                                      .recv_cq = pair.a.recv_cq,
                                      .cap = { 4, 4, 1, 1, 0 },
                                      .qp_type = IBV_QPT_RC,
                                      .comp_mask = IBV_QP_INIT_ATTR_PD |
                                                   IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
                                      .pd = pair.a.pd,
                                      .send_ops_flags = IBV_QP_EX_WITH_SEND };
    assert_null(ibv_create_qp_ex(pair.a.context, &ex));
    assert_int_equal(errno, EOPNOTSUPP);
    assert_int_equal(post_read(&pair.a, 1, FROM, 8, &pair.b, TO, IBV_SEND_SIGNALED), 0);
    expect_wc(pair.a.send_cq, 1, IBV_WC_SUCCESS);
    pair_end(&pair);
}

static void queues_may_be_larger_than_asked_for(void **state)
{
    (void)state;
    struct pair pair = pair_make(
        &(struct wishes){ .device = "link=ib,round_up=yes", .unconnected = true });
    struct ibv_qp_init_attr attr = { .send_cq = pair.a.send_cq,
                                     .recv_cq = pair.a.recv_cq,
                                     .cap = { 5, 9, 3, 1, 33 },
                                     .qp_type = IBV_QPT_RC };
    struct ibv_qp *qp = ibv_create_qp(pair.a.pd, &attr);
    assert_int_equal(attr.cap.max_send_wr, 8);
    assert_int_equal(attr.cap.max_recv_wr, 16);
    assert_int_equal(attr.cap.max_send_sge, 4);
    assert_int_equal(attr.cap.max_inline_data, 64);
    assert_int_equal(ibv_destroy_qp(qp), 0);
    pair_end(&pair);
}

static void registrations_follow_their_manual_page(void **state)
{
    (void)state;
    struct sim_host *host;
    struct ibv_context *context;
    struct sim_world *world = world_with("link=ib", &host, &context);
    struct ibv_pd *pd = ibv_alloc_pd(context);
    static char memory[64];
    static const struct {
        unsigned int access;
        int error;
    } cases[] = {
        { IBV_ACCESS_REMOTE_WRITE, EINVAL }, /* needs local write */
        { IBV_ACCESS_REMOTE_ATOMIC, EINVAL },
        { IBV_ACCESS_REMOTE_READ, 0 },
        { IBV_ACCESS_RELAXED_ORDERING | IBV_ACCESS_LOCAL_WRITE, 0 },
        { IBV_ACCESS_ON_DEMAND, EOPNOTSUPP },
        { 1U << 19, EINVAL },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof(memory), cases[i].access);
        assert_int_equal(mr != NULL, cases[i].error == 0);
        if (mr == NULL) {
            assert_int_equal(errno, cases[i].error);
        } else {
            assert_true(mr->lkey != mr->rkey);
            assert_ptr_equal(mr->addr, memory);
            assert_int_equal(ibv_dereg_mr(mr), 0);
        }
    }
    assert_null(ibv_reg_mr(pd, memory, 0, 0));
    const size_t pages = 3UL * 4096;
    void *hole = mmap(NULL, pages, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_int_equal(munmap((char *)hole + 4096, 4096), 0);
    assert_null(ibv_reg_mr(pd, hole, pages, IBV_ACCESS_LOCAL_WRITE));
    assert_int_equal(errno, EFAULT);
    assert_int_equal(munmap(hole, pages), 0);
    assert_null(ibv_reg_dmabuf_mr(pd, 0, 64, 0, 1, 0)); /* the option dmabuf is off */
    assert_int_equal(errno, EOPNOTSUPP);
    assert_int_equal(ibv_dealloc_pd(pd), 0);
    assert_int_equal(ibv_close_device(context), 0);
    assert_int_equal(sim_world_destroy(world), 0);
}

/* --------------------------------------------------------------------------------------- states */

static const int init_mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
static const int rtr_mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                            IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
static const int rts_mask = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                            IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;

static void bring_to(struct pair *pair, enum ibv_qp_state state)
{
    struct wishes none = { .depth = 0 };
    struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };
    assert_int_equal(ibv_modify_qp(pair->a.qp, &attr, IBV_QP_STATE), 0);
    if (state == IBV_QPS_RESET) {
        return;
    }
    if (state == IBV_QPS_ERR) {
        assert_int_equal(qp_to_error(pair->a.qp), 0);
        return;
    }
    qp_to_init(pair->a.qp);
    if (state >= IBV_QPS_RTR) {
        qp_to_rtr(pair->a.qp, &pair->a, &pair->b, pair->b.qp, &none);
    }
    if (state >= IBV_QPS_RTS) {
        qp_to_rts(pair->a.qp, &none);
    }
    if (state == IBV_QPS_SQD) {
        attr.qp_state = IBV_QPS_SQD;
        assert_int_equal(ibv_modify_qp(pair->a.qp, &attr, IBV_QP_STATE), 0);
    }
}

static struct ibv_qp_attr good_attr(struct pair *pair, enum ibv_qp_state state)
{
    struct ibv_port_attr port;
    assert_int_equal(ibv_query_port(pair->b.context, 1, &port), 0);
    return (struct ibv_qp_attr){
        .qp_state = state,
        .path_mtu = IBV_MTU_256,
        .dest_qp_num = pair->b.qp->qp_num,
        .max_rd_atomic = 1,
        .max_dest_rd_atomic = 1,
        .port_num = 1,
        .timeout = 1,
        .ah_attr = { .dlid = port.lid, .port_num = 1 },
    };
}

static void every_pair_of_states_is_allowed_or_not(void **state)
{
    (void)state;
    static const enum ibv_qp_state states[] = { IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR,
                                                IBV_QPS_RTS,   IBV_QPS_SQD,  IBV_QPS_ERR };
    struct pair pair = pair_make(&(struct wishes){ .device = "link=ib", .unconnected = true });
    const int masks[] = {
        [IBV_QPS_RESET] = IBV_QP_STATE, [IBV_QPS_INIT] = init_mask,   [IBV_QPS_RTR] = rtr_mask,
        [IBV_QPS_RTS] = rts_mask,       [IBV_QPS_SQD] = IBV_QP_STATE, [IBV_QPS_ERR] = IBV_QP_STATE
    };
    for (size_t from = 0; from < 6; from++) {
        for (size_t to = 0; to < 6; to++) {
            enum ibv_qp_state f = states[from];
            enum ibv_qp_state t = states[to];
            bring_to(&pair, f);
            struct ibv_qp_attr attr = good_attr(&pair, t);
            int mask = masks[t];
            if (f == IBV_QPS_RTS && t == IBV_QPS_RTS) {
                mask = IBV_QP_STATE;
            }
            if (f == IBV_QPS_SQD && (t == IBV_QPS_RTS || t == IBV_QPS_SQD)) {
                mask = IBV_QP_STATE;
            }
            bool allowed = t == IBV_QPS_RESET || t == IBV_QPS_ERR ||
                           (t == IBV_QPS_INIT && (f == IBV_QPS_RESET || f == IBV_QPS_INIT)) ||
                           (t == IBV_QPS_RTR && f == IBV_QPS_INIT) ||
                           (t == IBV_QPS_RTS &&
                            (f == IBV_QPS_RTR || f == IBV_QPS_RTS || f == IBV_QPS_SQD)) ||
                           (t == IBV_QPS_SQD && (f == IBV_QPS_RTS || f == IBV_QPS_SQD));
            int result = ibv_modify_qp(pair.a.qp, &attr, mask);
            if (result != (allowed ? 0 : EINVAL)) {
                fail_msg("from %d to %d: %d", (int)f, (int)t, result);
            }
            assert_int_equal(qp_state(pair.a.qp), allowed ? t : f);
        }
    }
    pair_end(&pair);
}

static void each_attribute_that_is_needed_is_missed(void **state)
{
    (void)state;
    struct pair pair = pair_make(&(struct wishes){ .device = "link=ib", .unconnected = true });
    static const struct {
        enum ibv_qp_state from;
        enum ibv_qp_state to;
        const int *mask;
    } steps[] = { { IBV_QPS_RESET, IBV_QPS_INIT, &init_mask },
                  { IBV_QPS_INIT, IBV_QPS_RTR, &rtr_mask },
                  { IBV_QPS_RTR, IBV_QPS_RTS, &rts_mask } };
    for (size_t i = 0; i < 3; i++) {
        for (int bit = 1; bit <= IBV_QP_RATE_LIMIT; bit *= 2) {
            bring_to(&pair, steps[i].from);
            struct ibv_qp_attr attr = good_attr(&pair, steps[i].to);
            bool needed = (*steps[i].mask & bit) != 0;
            int result = ibv_modify_qp(pair.a.qp, &attr, *steps[i].mask & ~bit);
            assert_int_equal(result, needed ? EINVAL : 0);
            bring_to(&pair, steps[i].from);
            result = ibv_modify_qp(pair.a.qp, &attr, *steps[i].mask | bit);
            bool extra = (*steps[i].mask & bit) == 0;
            bool harmless = (bit == IBV_QP_ACCESS_FLAGS) ||
                            (bit == IBV_QP_PKEY_INDEX && steps[i].to == IBV_QPS_RTR) ||
                            (bit == IBV_QP_MIN_RNR_TIMER && steps[i].to == IBV_QPS_RTS);
            bool cur = bit == IBV_QP_CUR_STATE && steps[i].to == IBV_QPS_RTS;
            attr.cur_qp_state = steps[i].from;
            if (!cur) {
                assert_int_equal(result, extra && !harmless ? EINVAL : 0);
            }
        }
    }
    pair_end(&pair);
}

static void values_out_of_range_are_refused(void **state)
{
    (void)state;
    struct pair pair = pair_make(&(struct wishes){
        .device = "link=roce,mtu=1024,max_rd_atomic=4,max_init_rd_atomic=5", .unconnected = true });
    struct ibv_qp_attr good = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = IBV_MTU_1024,
        .dest_qp_num = 5,
        .max_dest_rd_atomic = 4,
        .ah_attr = { .is_global = 1, .port_num = 1, .grh = { .sgid_index = 1 } },
    };
    good.ah_attr.grh.dgid.raw[15] = 1;
    struct ibv_qp_attr bad[8];
    for (size_t i = 0; i < 8; i++) {
        bad[i] = good;
    }
    bad[0].path_mtu = IBV_MTU_2048;
    bad[1].max_dest_rd_atomic = 5;
    bad[2].ah_attr.is_global = 0; /* RoCE has no other way */
    bad[3].ah_attr.grh.sgid_index = 3;
    bad[4].ah_attr.port_num = 2;
    bad[5].ah_attr.grh.dgid.raw[15] = 0;
    bad[6].min_rnr_timer = 32;
    bad[7].path_mtu = (enum ibv_mtu)0;
    qp_to_init(pair.a.qp);
    for (size_t i = 0; i < 8; i++) {
        assert_int_equal(ibv_modify_qp(pair.a.qp, &bad[i], rtr_mask), EINVAL);
    }
    assert_int_equal(ibv_modify_qp(pair.a.qp, &good, rtr_mask), 0);
    struct ibv_qp_attr ready = {
        .qp_state = IBV_QPS_RTS, .timeout = 31, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 5
    };
    struct ibv_qp_attr wrong[] = { ready, ready, ready, ready };
    wrong[0].timeout = 32;
    wrong[1].retry_cnt = 8;
    wrong[2].rnr_retry = 15;
    wrong[3].max_rd_atomic = 6;
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(ibv_modify_qp(pair.a.qp, &wrong[i], rts_mask), EINVAL);
    }
    assert_int_equal(ibv_modify_qp(pair.a.qp, &ready, rts_mask), 0);
    /* The timeout can no longer change, the RNR timer can. */
    assert_int_equal(ibv_modify_qp(pair.a.qp, &ready, IBV_QP_TIMEOUT), EINVAL);
    ready.min_rnr_timer = 5;
    assert_int_equal(ibv_modify_qp(pair.a.qp, &ready, IBV_QP_MIN_RNR_TIMER), 0);
    struct ibv_qp_init_attr init;
    assert_int_equal(ibv_query_qp(pair.a.qp, &ready, 0, &init), 0);
    assert_int_equal(ready.min_rnr_timer, 5);
    assert_int_equal(ready.max_rd_atomic, 5);
    assert_int_equal(ready.max_dest_rd_atomic, 4);
    assert_int_equal(ready.timeout, 31);
    assert_int_equal(ready.path_mtu, IBV_MTU_1024);
    assert_ptr_equal(init.send_cq, pair.a.send_cq);
    assert_int_equal(init.cap.max_send_wr, NODE_DEPTH);
    pair_end(&pair);
}

static void posting_needs_a_state(void **state)
{
    (void)state;
    struct pair pair = pair_make(&(struct wishes){ .device = "link=roce", .unconnected = true });
    struct wishes none = { .depth = 0 };
    assert_int_equal(post_recv(&pair.a, 1, FROM, 8), EINVAL);
    qp_to_init(pair.a.qp);
    qp_to_init(pair.b.qp);
    assert_int_equal(post_recv(&pair.a, 1, FROM, 8), 0);
    assert_int_equal(post_send(&pair.a, 1, FROM, 8, 0), EINVAL);
    qp_to_rtr(pair.a.qp, &pair.a, &pair.b, pair.b.qp, &none);
    assert_int_equal(post_send(&pair.a, 1, FROM, 8, 0), EINVAL);
    qp_to_rts(pair.a.qp, &none);
    assert_int_equal(post_send(&pair.a, 1, FROM, 8, 0), 0);
    pair_end(&pair);
}

static void a_drained_queue_pair_finishes_what_it_began(void **state)
{
    (void)state;
    struct pair pair = pair_make(&(struct wishes){ .world = "latency=5us", .device = "link=ib" });
    struct ibv_qp_attr attr = { .qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1 };
    assert_int_equal(post_write(&pair.a, 1, FROM, 8, &pair.b, TO, IBV_SEND_SIGNALED), 0);
    assert_int_equal(ibv_modify_qp(pair.a.qp, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
    assert_int_equal(post_write(&pair.a, 2, FROM, 8, &pair.b, TO, IBV_SEND_SIGNALED), 0);
    no_event(&pair.a);
    expect_wc(pair.a.send_cq, 1, IBV_WC_SUCCESS);
    expect_event(&pair.a, IBV_EVENT_SQ_DRAINED);
    no_wc(&pair.a, pair.a.send_cq);
    attr.qp_state = IBV_QPS_RTS;
    assert_int_equal(ibv_modify_qp(pair.a.qp, &attr, IBV_QP_STATE), 0);
    expect_wc(pair.a.send_cq, 2, IBV_WC_SUCCESS);
    pair_end(&pair);
}

static void a_reset_queue_pair_starts_again(void **state)
{
    (void)state;
    struct wishes wishes = { .device = "link=roce", .depth = 2 };
    struct pair pair = pair_make(&wishes);
    struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };
    assert_int_equal(post_recv(&pair.b, 1, TO, 8), 0);
    assert_int_equal(post_write(&pair.a, 2, FROM, 8, &pair.b, TO, IBV_SEND_SIGNALED), 0);
    assert_int_equal(ibv_modify_qp(pair.a.qp, &attr, IBV_QP_STATE), 0);
    assert_int_equal(ibv_modify_qp(pair.b.qp, &attr, IBV_QP_STATE), 0);
    no_wc(&pair.a, pair.a.send_cq); /* its entries go with it */
    qps_connect(&pair.a, pair.a.qp, &pair.b, pair.b.qp, &wishes);
    assert_int_equal(post_recv(&pair.b, 3, TO, 8), 0);
    assert_int_equal(post_send(&pair.a, 4, FROM, 8, IBV_SEND_SIGNALED), 0);
    expect_wc(pair.b.recv_cq, 3, IBV_WC_SUCCESS);
    expect_wc(pair.a.send_cq, 4, IBV_WC_SUCCESS);
    pair_end(&pair);
}

static void the_program_s_copy_of_the_state_changes_by_its_own_calls_only(void **state)
{
    (void)state;
    struct pair pair = pair_make(&(struct wishes){ .device = "link=roce" });
    assert_int_equal(pair.b.qp->state, IBV_QPS_RTS);
    sim_qp_fatal(pair.b.qp, false);
    assert_int_equal(pair.b.qp->state, IBV_QPS_RTS);
    assert_int_equal(qp_state(pair.b.qp), IBV_QPS_ERR);
    assert_int_equal(pair.b.qp->state, IBV_QPS_ERR); /* the query is such a call */
    expect_event(&pair.b, IBV_EVENT_QP_FATAL);
    pair_end(&pair);
}

static void queue_pair_numbers_come_again_as_late_as_possible_or_at_once(void **state)
{
    (void)state;
    for (int reuse = 0; reuse < 2; reuse++) {
        struct wishes wishes = { .device = reuse ? "link=roce,reuse=yes" : "link=roce",
                                 .unconnected = true };
        struct pair pair = pair_make(&wishes);
        uint32_t number = pair.a.qp->qp_num;
        assert_int_equal(ibv_destroy_qp(pair.a.qp), 0);
        pair.a.qp = node_qp(&pair.a, &wishes);
        assert_int_equal(pair.a.qp->qp_num == number, reuse);
        pair_end(&pair);
    }
}

static void entries_of_a_destroyed_queue_pair_stay_or_go(void **state)
{
    (void)state;
    static const struct {
        const char *device;
        int left;
    } cases[] = { { "link=roce", 2 }, { "link=roce,like=hca", 1 } };
    for (size_t i = 0; i < 2; i++) {
        struct wishes wishes = { .device = cases[i].device };
        struct pair pair = pair_make(&wishes);
        struct ibv_qp *second = node_qp(&pair.a, &wishes);
        struct ibv_qp *peer = node_qp(&pair.b, &wishes);
        struct ibv_qp *first = pair.a.qp;
        qps_connect(&pair.a, second, &pair.b, peer, &wishes);
        assert_int_equal(post_write(&pair.a, 1, FROM, 8, &pair.b, TO, IBV_SEND_SIGNALED), 0);
        pair.a.qp = second;
        assert_int_equal(post_write(&pair.a, 2, FROM, 8, &pair.b, TO, IBV_SEND_SIGNALED), 0);
        assert_int_equal(ibv_destroy_qp(first), 0);
        struct ibv_wc wc[4];
        assert_int_equal(ibv_poll_cq(pair.a.send_cq, 4, wc), cases[i].left);
        assert_int_equal(wc[cases[i].left - 1].wr_id, 2);
        assert_int_equal(ibv_destroy_qp(peer), 0);
        pair_end(&pair);
    }
}

static void what_a_program_leaves_is_counted(void **state)
{
    (void)state;
    struct sim_host *host;
    struct ibv_context *context;
    struct sim_world *world = world_with("link=ib", &host, &context);
    assert_non_null(ibv_alloc_pd(context));
    assert_non_null(ibv_create_cq(context, 4, NULL, NULL, 0));
    assert_int_equal(sim_world_destroy(world), 3);
}

static void what_objects_take_of_a_device_is_counted(void **state)
{
    (void)state;
    static uint8_t bytes[4096];
    struct sim_host *host;
    struct ibv_context *context;
    struct sim_world *world = world_with("link=ib", &host, &context);
    struct sim_device *device = sim_device_of(context);
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_cq *cq = ibv_create_cq(context, 40, NULL, NULL, 0);
    struct ibv_mr *mr = ibv_reg_mr(pd, bytes, sizeof(bytes), IBV_ACCESS_LOCAL_WRITE);
    struct ibv_srq_init_attr shared = { .attr = { .max_wr = 30, .max_sge = 1 } };
    struct ibv_srq *srq = ibv_create_srq(pd, &shared);
    struct ibv_qp_init_attr attr = {
        .send_cq = cq,
        .recv_cq = cq,
        .qp_type = IBV_QPT_RC,
        .cap = { .max_send_wr = 20, .max_recv_wr = 10, .max_send_sge = 1, .max_recv_sge = 1 },
    };
    struct ibv_qp *qp = ibv_create_qp(pd, &attr);
    assert_non_null(mr);
    assert_non_null(srq);
    assert_non_null(qp);

    struct sim_use use = sim_device_use(device);
    assert_int_equal(use.queue_pairs, 1);
    assert_int_equal(use.send_entries, 20);
    assert_int_equal(use.receive_entries, 10 + 30);
    assert_int_equal(use.shared_queues, 1);
    assert_int_equal(use.completion_queues, 1);
    assert_int_equal(use.completion_entries, 40);
    assert_int_equal(use.regions, 1);
    assert_int_equal(use.region_bytes, sizeof(bytes));

    static const struct sim_use none = { .queue_pairs = 0 };
    assert_int_equal(ibv_destroy_qp(qp), 0);
    assert_int_equal(ibv_destroy_srq(srq), 0);
    assert_int_equal(ibv_dereg_mr(mr), 0);
    assert_int_equal(ibv_destroy_cq(cq), 0);
    use = sim_device_use(device);
    assert_memory_equal(&use, &none, sizeof(use));
    assert_int_equal(ibv_dealloc_pd(pd), 0);
    assert_int_equal(ibv_close_device(context), 0);
    assert_int_equal(sim_world_destroy(world), 0);
}

static void options_that_make_no_sense_are_named(void **state)
{
    (void)state;
    static const char *const wrong[] = { "speed=1",
                                         "seed",
                                         "latency=3weeks",
                                         "time=maybe",
                                         "window=65",
                                         "seed=-1",
                                         "link=roce",
                                         "drop=1001",
                                         "at=5",
                                         "at=1ms:x",
                                         "fail=reg_mr:1",
                                         "fail=x:1:1",
                                         "seed=99999999999999999999" };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_null(sim_world_create(wrong[i]));
        assert_true(strlen(sim_error()) > 10);
    }
    struct sim_world *world = sim_world_create("seed=3,latency=5us,freedoms=none");
    struct sim_host *host = sim_host_add(world);
    assert_null(sim_device_add(host, "link=token_ring"));
    assert_null(sim_device_add(host, "netdev=nosuchdev0"));
    assert_null(sim_device_add(host, "addr=1.2.3"));
    assert_false(sim_world_set(world, "jitter=x"));
    assert_true(sim_world_set(world, "jitter=7us"));
    assert_false(sim_fail_call(world, "make_coffee", 1, EIO));
    assert_int_equal(sim_world_destroy(world), 0);
}

static void an_address_handle_needs_a_gid_that_is_there(void **state)
{
    (void)state;
    struct sim_host *host;
    struct ibv_context *context;
    struct sim_world *world = world_with("link=roce", &host, &context);
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_ah_attr attr = { .is_global = 1, .port_num = 1, .grh = { .sgid_index = 1 } };
    struct ibv_ah *ah = ibv_create_ah(pd, &attr);
    assert_non_null(ah);
    attr.grh.sgid_index = 2;
    assert_null(ibv_create_ah(pd, &attr));
    assert_int_equal(ibv_destroy_ah(ah), 0);
    assert_int_equal(ibv_dealloc_pd(pd), 0);
    assert_int_equal(ibv_close_device(context), 0);
    assert_int_equal(sim_world_destroy(world), 0);
}

static void numbers_have_names(void **state)
{
    (void)state;
    assert_string_equal(ibv_wc_status_str(IBV_WC_RNR_RETRY_EXC_ERR), "RNR retry counter exceeded");
    assert_string_equal(ibv_wc_status_str((enum ibv_wc_status)999), "unknown");
    assert_string_equal(ibv_event_type_str(IBV_EVENT_GID_CHANGE), "GID table change");
    assert_string_equal(ibv_event_type_str((enum ibv_event_type)99), "unknown");
    assert_string_equal(ibv_node_type_str(IBV_NODE_RNIC), "iWARP NIC");
    assert_string_equal(ibv_node_type_str(IBV_NODE_UNKNOWN), "unknown");
    assert_string_equal(ibv_port_state_str(IBV_PORT_ACTIVE), "active");
    assert_string_equal(rdma_event_str(RDMA_CM_EVENT_REJECTED), "RDMA_CM_EVENT_REJECTED");
    assert_int_equal(ibv_rate_to_mbps(IBV_RATE_100_GBPS), 103125);
    assert_int_equal(ibv_rate_to_mult(IBV_RATE_10_GBPS), 4);
    assert_int_equal(mult_to_ibv_rate(4), IBV_RATE_10_GBPS);
    assert_int_equal(mbps_to_ibv_rate(425000), IBV_RATE_400_GBPS);
    assert_int_equal(mbps_to_ibv_rate(1), IBV_RATE_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_world_there_is_no_device),
        cmocka_unit_test(a_host_lists_its_own_devices),
        cmocka_unit_test(each_thread_has_its_host_or_the_default),
        cmocka_unit_test(each_kind_says_what_it_is),
        cmocka_unit_test(an_empty_gid_place_has_no_data),
        cmocka_unit_test(limits_of_the_device_hold),
        cmocka_unit_test(the_smallest_device_is_small_everywhere),
        cmocka_unit_test(queues_may_be_larger_than_asked_for),
        cmocka_unit_test(registrations_follow_their_manual_page),
        cmocka_unit_test(every_pair_of_states_is_allowed_or_not),
        cmocka_unit_test(each_attribute_that_is_needed_is_missed),
        cmocka_unit_test(values_out_of_range_are_refused),
        cmocka_unit_test(posting_needs_a_state),
        cmocka_unit_test(a_drained_queue_pair_finishes_what_it_began),
        cmocka_unit_test(a_reset_queue_pair_starts_again),
        cmocka_unit_test(the_program_s_copy_of_the_state_changes_by_its_own_calls_only),
        cmocka_unit_test(queue_pair_numbers_come_again_as_late_as_possible_or_at_once),
        cmocka_unit_test(entries_of_a_destroyed_queue_pair_stay_or_go),
        cmocka_unit_test(what_a_program_leaves_is_counted),
        cmocka_unit_test(what_objects_take_of_a_device_is_counted),
        cmocka_unit_test(options_that_make_no_sense_are_named),
        cmocka_unit_test(an_address_handle_needs_a_gid_that_is_there),
        cmocka_unit_test(numbers_have_names),
    };
    return cmocka_run_group_tests_name("sim_objects", tests, NULL, NULL);
}
