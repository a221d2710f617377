/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The connection manager: resolving, connecting, rejecting, disconnecting, and the events of
 * each. */
#include "support.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>

enum { FROM = 0, TO = 16384 };

static const char *const devices[] = { "link=roce", "link=ib", "link=iwarp" };

enum { DEVICES = 3 };

static bool is_iwarp(size_t device)
{
    return device == 2;
}

struct ends {
    struct sim_world *world;
    struct node a;
    struct node b;
};

static struct ends ends_make(const char *world, const char *device)
{
    struct ends ends = { .world = sim_world_create(world) };
    cm_node_start(ends.world, device, &ends.a);
    cm_node_start(ends.world, device, &ends.b);
    cm_listen(&ends.b, 4);
    return ends;
}

static void ends_end(struct ends *ends)
{
    struct node *nodes[] = { &ends->a, &ends->b };
    for (size_t i = 0; i < 2; i++) {
        if (nodes[i]->send_cq != NULL) {
            node_end(nodes[i]);
            continue;
        }
        if (nodes[i]->id != NULL) {
            assert_int_equal(rdma_destroy_id(nodes[i]->id), 0);
        }
        if (nodes[i]->listener != NULL) {
            assert_int_equal(rdma_destroy_id(nodes[i]->listener), 0);
        }
        rdma_destroy_event_channel(nodes[i]->cm);
    }
    assert_int_equal(sim_world_destroy(ends->world), 0);
}

static struct rdma_conn_param usual(void)
{
    return (struct rdma_conn_param){ .responder_resources = RDMA_MAX_RESP_RES,
                                     .initiator_depth = RDMA_MAX_INIT_DEPTH,
                                     .retry_count = 7,
                                     .rnr_retry_count = 7 };
}

/* Takes the request at b; its id becomes b's. */
static void request_taken(struct ends *ends)
{
    struct rdma_cm_event *event = cm_event(&ends->b, RDMA_CM_EVENT_CONNECT_REQUEST);
    ends->b.id = event->id;
    assert_int_equal(rdma_ack_cm_event(event), 0);
}

static void ids_get_their_device_step_by_step(void **state)
{
    (void)state;
    struct ends ends = ends_make(NULL, "link=roce");
    struct sockaddr_in target = { .sin_family = AF_INET,
                                  .sin_port = rdma_get_src_port(ends.b.listener) };
    assert_true(sim_device_address(ends.b.device, (struct sockaddr *)&target, sizeof(target)));
    assert_int_not_equal(target.sin_port, 0);
    assert_null(ends.b.listener->verbs); /* bound to no address */
    assert_int_equal(rdma_create_id(ends.a.cm, &ends.a.id, NULL, RDMA_PS_TCP), 0);
    assert_int_equal(rdma_resolve_route(ends.a.id, 100), -1);
    assert_int_equal(errno, EINVAL);
    assert_int_equal(rdma_resolve_addr(ends.a.id, NULL, (struct sockaddr *)&target, 100), 0);
    assert_null(ends.a.id->verbs);
    cm_expect(&ends.a, RDMA_CM_EVENT_ADDR_RESOLVED);
    assert_non_null(ends.a.id->verbs);
    assert_non_null(ends.a.id->pd);
    assert_int_equal(ends.a.id->port_num, 1);
    const struct sockaddr_in *mine = (const void *)rdma_get_local_addr(ends.a.id);
    assert_int_equal(ntohl(mine->sin_addr.s_addr), 0x0a4d0101);
    const struct sockaddr_in *peer = (const void *)rdma_get_peer_addr(ends.a.id);
    assert_int_equal(ntohl(peer->sin_addr.s_addr), 0x0a4d0201);
    assert_int_equal(rdma_get_dst_port(ends.a.id), target.sin_port);
    assert_int_equal(rdma_resolve_route(ends.a.id, 100), 0);
    cm_expect(&ends.a, RDMA_CM_EVENT_ROUTE_RESOLVED);
    assert_int_equal(ends.a.id->route.num_paths, 1);
    assert_int_equal(ends.a.id->route.path_rec->mtu, IBV_MTU_1024);

    int count;
    sim_use_host(ends.a.host);
    struct ibv_context **list = rdma_get_devices(&count);
    assert_int_equal(count, 1);
    assert_ptr_equal(list[0], ends.a.id->verbs); /* librdmacm has one context per device */
    rdma_free_devices(list);
    ends_end(&ends);
}

static void an_address_that_nobody_has_is_not_resolved(void **state)
{
    (void)state;
    struct ends ends = ends_make(NULL, "link=roce");
    struct sockaddr_in target = { .sin_family = AF_INET,
                                  .sin_addr.s_addr = htonl(0x0a000001),
                                  .sin_port = 5 };
    assert_int_equal(rdma_create_id(ends.a.cm, &ends.a.id, NULL, RDMA_PS_TCP), 0);
    assert_int_equal(rdma_resolve_addr(ends.a.id, NULL, (struct sockaddr *)&target, 500), 0);
    struct rdma_cm_event *event = cm_event(&ends.a, RDMA_CM_EVENT_ADDR_ERROR);
    assert_int_equal(event->status, -ETIMEDOUT);
    assert_int_equal(rdma_ack_cm_event(event), 0);
    assert_int_equal(sim_now(ends.world), 500000000);
    ends_end(&ends);
}

static void ports_and_addresses_are_bound_once(void **state)
{
    (void)state;
    struct ends ends = ends_make(NULL, "link=roce,addr=10.1.0.1+fd00::7");
    struct rdma_cm_id *id;
    struct sockaddr_in in = { .sin_family = AF_INET,
                              .sin_addr.s_addr = htonl(0x0a010001),
                              .sin_port = rdma_get_src_port(ends.b.listener) };
    struct sockaddr_in6 in6 = { .sin6_family = AF_INET6 };
    assert_int_equal(rdma_create_id(ends.b.cm, &id, NULL, RDMA_PS_TCP), 0);
    assert_int_equal(rdma_bind_addr(id, (struct sockaddr *)&in), -1);
    assert_int_equal(errno, EADDRINUSE);
    in.sin_port = 0;
    in.sin_addr.s_addr = htonl(0x0a010002);
    assert_int_equal(rdma_bind_addr(id, (struct sockaddr *)&in), -1);
    assert_int_equal(errno, ENODEV);
    assert_int_equal(inet_pton(AF_INET6, "fd00::7", &in6.sin6_addr), 1);
    assert_int_equal(rdma_bind_addr(id, (struct sockaddr *)&in6), 0);
    assert_non_null(id->verbs);
    assert_int_equal(rdma_bind_addr(id, (struct sockaddr *)&in6), -1);
    assert_int_equal(errno, EINVAL);
    assert_int_equal(rdma_destroy_id(id), 0);
    ends_end(&ends);
}

static void private_data_is_padded_or_exact(void **state)
{
    (void)state;
    for (size_t d = 0; d < DEVICES; d++) {
        struct ends ends = ends_make("latency=2us", devices[d]);
        struct wishes none = { .depth = 4 };
        struct rdma_conn_param param = usual();
        param.private_data = "request";
        param.private_data_len = 8;
        cm_resolve(&ends.a, &ends.b);
        cm_objects(&ends.a, &none);
        assert_int_equal(rdma_connect(ends.a.id, &param), 0);

        struct rdma_cm_event *event = cm_event(&ends.b, RDMA_CM_EVENT_CONNECT_REQUEST);
        assert_ptr_equal(event->listen_id, ends.b.listener);
        assert_ptr_equal(event->id->context, ends.b.listener->context);
        assert_int_equal(event->param.conn.private_data_len, is_iwarp(d) ? 8 : 56);
        assert_memory_equal(event->param.conn.private_data, "request", 8);
        if (!is_iwarp(d)) {
            assert_int_equal(((const char *)event->param.conn.private_data)[55], 0);
        }
        ends.b.id = event->id;
        assert_int_equal(rdma_ack_cm_event(event), 0);
        cm_objects(&ends.b, &none);
        param.private_data = "reply";
        param.private_data_len = 6;
        assert_int_equal(rdma_accept(ends.b.id, &param), 0);

        event = cm_event(&ends.a, RDMA_CM_EVENT_ESTABLISHED);
        assert_int_equal(event->param.conn.private_data_len, is_iwarp(d) ? 6 : 196);
        assert_memory_equal(event->param.conn.private_data, "reply", 6);
        assert_int_equal(rdma_ack_cm_event(event), 0);
        cm_expect(&ends.b, RDMA_CM_EVENT_ESTABLISHED);
        ends_end(&ends);
    }
}

static void private_data_has_its_limits(void **state)
{
    (void)state;
    static const char data[255];
    for (size_t d = 0; d < DEVICES; d++) {
        struct ends ends = ends_make("latency=2us", devices[d]);
        struct wishes none = { .depth = 4 };
        struct rdma_conn_param param = usual();
        param.private_data = data;
        cm_resolve(&ends.a, &ends.b);
        cm_objects(&ends.a, &none);
        param.private_data_len = is_iwarp(d) ? 252 : 57;
        if (is_iwarp(d)) {
            /* It returns 0, and the request vanishes. */
            assert_int_equal(rdma_connect(ends.a.id, &param), 0);
            (void)sim_advance(ends.world, 1000000000);
            cm_none(&ends.a);
            cm_none(&ends.b);
        } else {
            assert_int_equal(rdma_connect(ends.a.id, &param), -1);
            assert_int_equal(errno, EINVAL);
            param.private_data_len = 56;
            assert_int_equal(rdma_connect(ends.a.id, &param), 0);
            request_taken(&ends);
            cm_objects(&ends.b, &none);
            param.private_data_len = 197;
            assert_int_equal(rdma_accept(ends.b.id, &param), -1);
            param.private_data_len = 196;
            assert_int_equal(rdma_accept(ends.b.id, &param), 0);
            cm_expect(&ends.a, RDMA_CM_EVENT_ESTABLISHED);
        }
        ends_end(&ends);
    }
}

static void depths_are_mirrored_and_reduced(void **state)
{
    (void)state;
    for (size_t d = 0; d < DEVICES; d++) {
        char small[64];
        (void)snprintf(small, sizeof(small), "%s,max_rd_atomic=3,max_init_rd_atomic=5", devices[d]);
        struct ends ends = { .world = sim_world_create(NULL) };
        cm_node_start(ends.world, devices[d], &ends.a);
        cm_node_start(ends.world, small, &ends.b);
        cm_listen(&ends.b, 4);
        struct wishes none = { .depth = 4 };
        struct rdma_conn_param param = usual();
        param.responder_resources = 9;
        param.initiator_depth = 17;
        cm_resolve(&ends.a, &ends.b);
        cm_objects(&ends.a, &none);
        assert_int_equal(rdma_connect(ends.a.id, &param), -1); /* more than the device has */
        assert_int_equal(errno, EINVAL);
        param.initiator_depth = 8;
        assert_int_equal(rdma_connect(ends.a.id, &param), 0);
        struct rdma_cm_event *event = cm_event(&ends.b, RDMA_CM_EVENT_CONNECT_REQUEST);
        assert_int_equal(event->param.conn.responder_resources, 8);
        assert_int_equal(event->param.conn.initiator_depth, 9);
        ends.b.id = event->id;
        assert_int_equal(rdma_ack_cm_event(event), 0);
        cm_objects(&ends.b, &none);
        param = usual();
        assert_int_equal(rdma_accept(ends.b.id, &param), 0);
        event = cm_event(&ends.a, RDMA_CM_EVENT_ESTABLISHED);
        assert_int_equal(event->param.conn.responder_resources, 5);
        assert_int_equal(event->param.conn.initiator_depth, 3);
        assert_int_equal(rdma_ack_cm_event(event), 0);
        struct ibv_qp_attr attr;
        struct ibv_qp_init_attr init;
        assert_int_equal(ibv_query_qp(ends.a.qp, &attr, 0, &init), 0);
        /* siw swaps the two. */
        assert_int_equal(is_iwarp(d) ? attr.max_dest_rd_atomic : attr.max_rd_atomic, 3);
        assert_int_equal(is_iwarp(d) ? attr.max_rd_atomic : attr.max_dest_rd_atomic, 5);
        ends_end(&ends);
    }
}

static void a_request_can_be_rejected(void **state)
{
    (void)state;
    for (size_t d = 0; d < DEVICES; d++) {
        struct ends ends = ends_make("latency=2us", devices[d]);
        struct wishes none = { .depth = 4 };
        struct rdma_conn_param param = usual();
        cm_resolve(&ends.a, &ends.b);
        cm_objects(&ends.a, &none);
        assert_int_equal(post_recv(&ends.a, 1, FROM, 8), 0);
        assert_int_equal(rdma_connect(ends.a.id, &param), 0);
        request_taken(&ends);
        assert_int_equal(rdma_reject(ends.b.id, "no", 3), 0);
        assert_int_equal(rdma_reject(ends.b.id, "no", 3), -1);
        struct rdma_cm_event *event = cm_event(&ends.a, RDMA_CM_EVENT_REJECTED);
        assert_int_equal(event->status, is_iwarp(d) ? -ECONNREFUSED : 28);
        assert_memory_equal(event->param.conn.private_data, "no", 3);
        assert_int_equal(event->param.conn.private_data_len, is_iwarp(d) ? 3 : 148);
        assert_int_equal(rdma_ack_cm_event(event), 0);
        expect_wc(ends.a.recv_cq, 1, IBV_WC_WR_FLUSH_ERR); /* librdmacm moves it to error */
        ends_end(&ends);
    }
}

static void nobody_listens(void **state)
{
    (void)state;
    for (size_t d = 0; d < DEVICES; d++) {
        struct ends ends = ends_make("latency=2us", devices[d]);
        struct wishes none = { .depth = 4 };
        struct rdma_conn_param param = usual();
        cm_resolve(&ends.a, &ends.b);
        cm_objects(&ends.a, &none);
        assert_int_equal(rdma_destroy_id(ends.b.listener), 0);
        ends.b.listener = NULL;
        if (is_iwarp(d)) { /* siw connects TCP within the call */
            assert_int_equal(rdma_connect(ends.a.id, &param), -1);
            assert_int_equal(errno, ECONNREFUSED);
        } else {
            assert_int_equal(rdma_connect(ends.a.id, &param), 0);
            struct rdma_cm_event *event = cm_event(&ends.a, RDMA_CM_EVENT_REJECTED);
            assert_int_equal(event->status, 8);
            assert_int_equal(rdma_ack_cm_event(event), 0);
        }
        ends_end(&ends);
    }
}

static void an_unreachable_peer_is_given_up_after_a_minute(void **state)
{
    (void)state;
    struct ends ends = ends_make("latency=2us", "link=roce");
    struct wishes none = { .depth = 4 };
    struct rdma_conn_param param = usual();
    cm_resolve(&ends.a, &ends.b);
    cm_objects(&ends.a, &none);
    sim_cut(ends.a.host, ends.b.host, true);
    assert_int_equal(rdma_connect(ends.a.id, &param), 0);
    struct rdma_cm_event *event = cm_event(&ends.a, RDMA_CM_EVENT_UNREACHABLE);
    assert_int_equal(event->status, -ETIMEDOUT);
    assert_int_equal(rdma_ack_cm_event(event), 0);
    assert_in_range(sim_now(ends.world) / 1000000000, 64, 66);
    ends_end(&ends);
}

static void a_full_backlog_refuses(void **state)
{
    (void)state;
    struct ends ends = { .world = sim_world_create(NULL) };
    cm_node_start(ends.world, "link=roce", &ends.a);
    cm_node_start(ends.world, "link=roce", &ends.b);
    cm_listen(&ends.b, 1);
    struct rdma_conn_param param = usual();
    param.qp_num = 77;
    struct rdma_cm_id *ids[2];
    for (size_t i = 0; i < 2; i++) {
        cm_resolve(&ends.a, &ends.b);
        ids[i] = ends.a.id;
        assert_int_equal(rdma_connect(ids[i], &param), 0);
    }
    struct rdma_cm_event *event = cm_event(&ends.a, RDMA_CM_EVENT_REJECTED);
    assert_ptr_equal(event->id, ids[1]);
    assert_int_equal(rdma_ack_cm_event(event), 0);
    assert_int_equal(rdma_destroy_id(ids[0]), 0);
    ends_end(&ends);
}

/* The program moves its own queue pairs. */
static void own_move(struct rdma_cm_id *id, struct ibv_qp *qp, enum ibv_qp_state state)
{
    struct ibv_qp_attr attr = { .qp_state = state };
    int mask = 0;
    assert_int_equal(rdma_init_qp_attr(id, &attr, &mask), 0);
    assert_int_equal(ibv_modify_qp(qp, &attr, mask), 0);
}

static void a_program_may_keep_its_queue_pairs_to_itself(void **state)
{
    (void)state;
    struct ends ends = ends_make("latency=2us", "link=roce");
    struct wishes none = { .depth = 4 };
    struct rdma_conn_param param = usual();
    param.rnr_retry_count = 3;
    param.retry_count = 5;
    struct node *nodes[] = { &ends.a, &ends.b };
    cm_resolve(&ends.a, &ends.b);
    uint8_t timeout = 9;
    assert_int_equal(
        rdma_set_option(ends.a.id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, 1), 0);
    cm_objects(&ends.a, &none);
    rdma_destroy_qp(ends.a.id);
    ends.a.qp = node_qp(&ends.a, &none);
    struct ibv_qp_attr early = { .qp_state = IBV_QPS_RTR };
    int mask;
    assert_int_equal(rdma_init_qp_attr(ends.a.id, &early, &mask), -1);
    param.qp_num = ends.a.qp->qp_num;
    assert_int_equal(rdma_connect(ends.a.id, NULL), -1);
    assert_int_equal(rdma_connect(ends.a.id, &param), 0);
    struct rdma_cm_event *event = cm_event(&ends.b, RDMA_CM_EVENT_CONNECT_REQUEST);
    assert_int_equal(event->param.conn.qp_num, ends.a.qp->qp_num);
    assert_int_equal(event->param.conn.rnr_retry_count, 3);
    ends.b.id = event->id;
    assert_int_equal(rdma_ack_cm_event(event), 0);
    cm_objects(&ends.b, &none);
    rdma_destroy_qp(ends.b.id);
    ends.b.qp = node_qp(&ends.b, &none);
    own_move(ends.b.id, ends.b.qp, IBV_QPS_INIT);
    own_move(ends.b.id, ends.b.qp, IBV_QPS_RTR);
    own_move(ends.b.id, ends.b.qp, IBV_QPS_RTS);
    param.qp_num = ends.b.qp->qp_num;
    assert_int_equal(rdma_accept(ends.b.id, &param), 0);
    event = cm_event(&ends.a, RDMA_CM_EVENT_CONNECT_RESPONSE);
    assert_int_equal(event->param.conn.qp_num, ends.b.qp->qp_num);
    assert_int_equal(rdma_ack_cm_event(event), 0);
    own_move(ends.a.id, ends.a.qp, IBV_QPS_INIT);
    own_move(ends.a.id, ends.a.qp, IBV_QPS_RTR);
    own_move(ends.a.id, ends.a.qp, IBV_QPS_RTS);
    cm_none(&ends.b);
    assert_int_equal(rdma_establish(ends.a.id), 0);
    assert_int_equal(rdma_establish(ends.a.id), -1);
    cm_expect(&ends.b, RDMA_CM_EVENT_ESTABLISHED);

    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    assert_int_equal(ibv_query_qp(ends.a.qp, &attr, 0, &init), 0);
    assert_int_equal(attr.timeout, 9);
    assert_int_equal(attr.retry_cnt, 5);
    assert_int_equal(attr.min_rnr_timer, 0);
    assert_int_equal(ibv_query_qp(ends.b.qp, &attr, 0, &init), 0);
    assert_int_equal(attr.timeout, 17);
    assert_int_equal(attr.rnr_retry, 3);
    assert_int_equal(post_recv(&ends.b, 1, TO, 8), 0);
    assert_int_equal(post_send(&ends.a, 2, FROM, 8, IBV_SEND_SIGNALED), 0);
    expect_wc(ends.b.recv_cq, 1, IBV_WC_SUCCESS);
    expect_wc(ends.a.send_cq, 2, IBV_WC_SUCCESS);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(ibv_destroy_qp(nodes[i]->qp), 0);
        nodes[i]->qp = NULL;
    }
    ends_end(&ends);
}

static void an_iwarp_connection_may_be_of_a_queue_pair_of_the_program(void **state)
{
    (void)state;
    struct ends ends = ends_make("latency=2us", "link=iwarp");
    struct wishes none = { .depth = 4 };
    struct rdma_conn_param param = usual();
    struct node *nodes[] = { &ends.a, &ends.b };
    cm_resolve(&ends.a, &ends.b);
    cm_objects(&ends.a, &none);
    rdma_destroy_qp(ends.a.id);
    param.qp_num = 12345;
    assert_int_equal(rdma_connect(ends.a.id, &param), -1); /* number of no queue pair */
    assert_int_equal(errno, EINVAL);
    ends.a.qp = node_qp(&ends.a, &none);
    struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT };
    int mask;
    assert_int_equal(rdma_init_qp_attr(ends.a.id, &attr, &mask), 0);
    assert_int_equal(attr.qp_access_flags, 0); /* before there is a connection */
    assert_int_equal(ibv_modify_qp(ends.a.qp, &attr, mask), 0);
    param.qp_num = ends.a.qp->qp_num;
    assert_int_equal(rdma_connect(ends.a.id, &param), 0);
    request_taken(&ends);
    cm_objects(&ends.b, &none);
    rdma_destroy_qp(ends.b.id);
    ends.b.qp = node_qp(&ends.b, &none);
    assert_int_equal(ibv_modify_qp(ends.b.qp, &attr, mask), 0);
    assert_int_equal(post_recv(&ends.b, 1, TO, 8), 0);
    param.qp_num = ends.b.qp->qp_num;
    assert_int_equal(rdma_accept(ends.b.id, &param), 0);
    cm_expect(&ends.a, RDMA_CM_EVENT_ESTABLISHED);
    cm_expect(&ends.b, RDMA_CM_EVENT_ESTABLISHED);
    assert_int_equal(qp_state(ends.a.qp), IBV_QPS_RTS);
    assert_int_equal(post_send(&ends.a, 2, FROM, 8, IBV_SEND_SIGNALED), 0);
    expect_wc(ends.a.send_cq, 2, IBV_WC_SUCCESS);
    expect_wc(ends.b.recv_cq, 1, IBV_WC_SUCCESS);
    assert_int_equal(rdma_disconnect(ends.b.id), 0);
    for (size_t i = 0; i < 2; i++) {
        cm_expect(nodes[i], RDMA_CM_EVENT_DISCONNECTED);
        assert_int_equal(qp_state(nodes[i]->qp), IBV_QPS_ERR);
        assert_int_equal(ibv_destroy_qp(nodes[i]->qp), 0);
        nodes[i]->qp = NULL;
    }
    ends_end(&ends);
}

static void parting_takes_both_on_infiniband_and_roce(void **state)
{
    (void)state;
    for (size_t d = 0; d < 2; d++) {
        struct pair pair = pair_make(
            &(struct wishes){ .world = "latency=2us", .device = devices[d], .cm = true });
        assert_int_equal(post_recv(&pair.a, 1, FROM, 8), 0);
        assert_int_equal(post_recv(&pair.b, 2, FROM, 8), 0);
        assert_int_equal(rdma_disconnect(pair.a.id), 0);
        expect_wc(pair.a.recv_cq, 1, IBV_WC_WR_FLUSH_ERR); /* at once, its own receives */
        cm_expect(&pair.b, RDMA_CM_EVENT_DISCONNECTED);
        struct ibv_wc wc;
        assert_int_equal(ibv_poll_cq(pair.b.recv_cq, 1, &wc), 0);
        cm_none(&pair.a);
        assert_int_equal(rdma_disconnect(pair.b.id), 0);
        expect_wc(pair.b.recv_cq, 2, IBV_WC_WR_FLUSH_ERR);
        cm_expect(&pair.a, RDMA_CM_EVENT_DISCONNECTED);
        cm_expect(&pair.b, RDMA_CM_EVENT_TIMEWAIT_EXIT);
        cm_expect(&pair.a, RDMA_CM_EVENT_TIMEWAIT_EXIT);
        assert_int_equal(rdma_disconnect(pair.a.id), 0);
        pair_end(&pair);
    }
}

static void both_may_part_at_once(void **state)
{
    (void)state;
    struct pair pair = pair_make(
        &(struct wishes){ .world = "latency=2us", .device = "link=roce", .cm = true });
    assert_int_equal(rdma_disconnect(pair.a.id), 0);
    assert_int_equal(rdma_disconnect(pair.b.id), 0);
    cm_expect(&pair.a, RDMA_CM_EVENT_DISCONNECTED);
    cm_expect(&pair.b, RDMA_CM_EVENT_DISCONNECTED);
    pair_end(&pair);
}

static void destroying_an_id_parts(void **state)
{
    (void)state;
    for (size_t d = 0; d < DEVICES; d++) {
        struct pair pair = pair_make(
            &(struct wishes){ .world = "latency=2us", .device = devices[d], .cm = true });
        rdma_destroy_qp(pair.a.id);
        pair.a.qp = NULL;
        assert_int_equal(rdma_destroy_id(pair.a.id), 0);
        pair.a.id = NULL;
        cm_expect(&pair.b, RDMA_CM_EVENT_DISCONNECTED);
        pair_end(&pair);
    }
}

static void a_dead_process_is_told_and_a_dead_machine_is_not(void **state)
{
    (void)state;
    for (int silent = 0; silent < 2; silent++) {
        struct pair pair = pair_make(
            &(struct wishes){ .world = "latency=2us", .device = "link=roce", .cm = true });
        sim_host_kill(pair.b.host, silent != 0);
        if (silent) {
            (void)sim_advance(pair.world, 10ULL * 1000000000);
            cm_none(&pair.a);
        } else {
            cm_expect(&pair.a, RDMA_CM_EVENT_DISCONNECTED);
        }
        assert_int_equal(post_write(&pair.a, 1, FROM, 8, &pair.b, TO, 0), 0);
        expect_wc(pair.a.send_cq, 1, IBV_WC_RETRY_EXC_ERR); /* no answer in either case */
        pair_end(&pair);
    }
}

static void a_device_that_vanishes_is_told(void **state)
{
    (void)state;
    for (size_t d = 0; d < DEVICES; d++) {
        struct pair pair = pair_make(&(struct wishes){ .device = devices[d], .cm = true });
        sim_device_remove(pair.a.device);
        cm_expect(&pair.a, RDMA_CM_EVENT_DEVICE_REMOVAL);
        expect_event(&pair.a, IBV_EVENT_DEVICE_FATAL);
        pair_end(&pair);
    }
}

static void the_traffic_class_counts_if_it_was_set_before_the_route(void **state)
{
    (void)state;
    struct ends ends = ends_make(NULL, "link=roce");
    uint8_t tos = 106;
    struct rdma_conn_param param = usual();
    struct wishes none = { .depth = 4 };
    struct sockaddr_in target = { .sin_family = AF_INET,
                                  .sin_port = rdma_get_src_port(ends.b.listener) };
    assert_true(sim_device_address(ends.b.device, (struct sockaddr *)&target, sizeof(target)));
    assert_int_equal(rdma_create_id(ends.a.cm, &ends.a.id, NULL, RDMA_PS_TCP), 0);
    assert_int_equal(rdma_set_option(ends.a.id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, 4), -1);
    assert_int_equal(errno, EINVAL);
    assert_int_equal(rdma_set_option(ends.a.id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, 1), 0);
    assert_int_equal(rdma_resolve_addr(ends.a.id, NULL, (struct sockaddr *)&target, 100), 0);
    cm_expect(&ends.a, RDMA_CM_EVENT_ADDR_RESOLVED);
    assert_int_equal(rdma_resolve_route(ends.a.id, 100), 0);
    cm_expect(&ends.a, RDMA_CM_EVENT_ROUTE_RESOLVED);
    assert_int_equal(ends.a.id->route.path_rec->traffic_class, 106);
    tos = 4;
    assert_int_equal(rdma_set_option(ends.a.id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, 1), 0);
    cm_objects(&ends.a, &none);
    assert_int_equal(rdma_connect(ends.a.id, &param), 0);
    request_taken(&ends);
    cm_objects(&ends.b, &none);
    assert_int_equal(rdma_accept(ends.b.id, &param), 0);
    cm_expect(&ends.a, RDMA_CM_EVENT_ESTABLISHED);
    struct node *nodes[] = { &ends.a, &ends.b };
    for (size_t i = 0; i < 2; i++) {
        struct ibv_qp_attr attr;
        struct ibv_qp_init_attr init;
        assert_int_equal(ibv_query_qp(nodes[i]->qp, &attr, 0, &init), 0);
        assert_int_equal(attr.ah_attr.grh.traffic_class, 106); /* the passive side inherits it */
    }
    ends_end(&ends);
}

static void an_id_takes_its_events_to_another_channel(void **state)
{
    (void)state;
    struct pair pair = pair_make(&(struct wishes){ .device = "link=roce", .cm = true });
    struct rdma_event_channel *second = rdma_create_event_channel();
    assert_int_equal(fcntl(second->fd, F_SETFL, O_NONBLOCK), 0);
    struct rdma_event_channel *first = pair.b.cm;
    assert_int_equal(rdma_disconnect(pair.a.id), 0);
    (void)sim_advance(pair.world, 1000);
    assert_int_equal(rdma_migrate_id(pair.b.id, second), 0);
    cm_none(&pair.b);
    pair.b.cm = second;
    cm_expect(&pair.b, RDMA_CM_EVENT_DISCONNECTED);
    assert_ptr_equal(pair.b.id->channel, second);
    pair.b.cm = first;
    assert_int_equal(rdma_migrate_id(pair.b.id, first), 0);
    rdma_destroy_event_channel(second);
    pair_end(&pair);
}

static void an_id_may_end_before_its_queue_pair(void **state)
{
    (void)state;
    /* rdma_destroy_id(3) forbids it, but rping does it, and it is harmless. */
    for (size_t d = 0; d < DEVICES; d++) {
        struct pair pair = pair_make(&(struct wishes){ .device = devices[d], .cm = true });
        struct ibv_qp *qp = pair.a.qp;
        assert_int_equal(rdma_destroy_id(pair.a.id), 0);
        pair.a.id = NULL;
        cm_expect(&pair.b, RDMA_CM_EVENT_DISCONNECTED);
        assert_int_equal(ibv_destroy_qp(qp), 0);
        pair.a.qp = NULL;
        pair_end(&pair);
    }
}

static void requests_that_nobody_took_end_with_the_listener(void **state)
{
    (void)state;
    struct ends ends = ends_make(NULL, "link=roce");
    struct wishes none = { .depth = 4 };
    struct rdma_conn_param param = usual();
    cm_resolve(&ends.a, &ends.b);
    cm_objects(&ends.a, &none);
    assert_int_equal(rdma_connect(ends.a.id, &param), 0);
    (void)sim_advance(ends.world, 1000);
    assert_int_equal(rdma_destroy_id(ends.b.listener), 0);
    ends.b.listener = NULL;
    cm_expect(&ends.a, RDMA_CM_EVENT_REJECTED);
    cm_none(&ends.b);
    ends_end(&ends);
}

static int misuses;

static void note_misuse(void *context, const char *text)
{
    (void)context;
    (void)text;
    misuses++;
}

static void an_id_cannot_end_before_its_events_are_acknowledged(void **state)
{
    (void)state;
    struct pair pair = pair_make(&(struct wishes){ .device = "link=roce", .cm = true });
    sim_on_misuse(pair.world, note_misuse, NULL);
    assert_int_equal(rdma_disconnect(pair.a.id), 0);
    struct rdma_cm_event *event = cm_event(&pair.b, RDMA_CM_EVENT_DISCONNECTED);
    misuses = 0;
    struct rdma_cm_id *id = pair.b.id;
    rdma_destroy_qp(id);
    pair.b.qp = NULL;
    assert_int_equal(rdma_destroy_id(id), 0);
    assert_int_equal(misuses, 1);
    (void)event; /* freed with the world: must not be acknowledged now */
    pair.b.id = NULL;
    pair_end(&pair);
}

static void a_queue_pair_that_cannot_be_moved_fails_the_connection(void **state)
{
    (void)state;
    /* The acceptor's port is narrower than the connector's path. */
    struct ends ends = { .world = sim_world_create(NULL) };
    cm_node_start(ends.world, "link=roce,mtu=4096", &ends.a);
    cm_node_start(ends.world, "link=roce,mtu=1024", &ends.b);
    cm_listen(&ends.b, 4);
    struct wishes none = { .depth = 4 };
    struct rdma_conn_param param = usual();
    cm_resolve(&ends.a, &ends.b);
    cm_objects(&ends.a, &none);
    assert_int_equal(rdma_connect(ends.a.id, &param), 0);
    request_taken(&ends);
    cm_objects(&ends.b, &none);
    assert_int_equal(rdma_accept(ends.b.id, &param), -1);
    assert_int_equal(errno, EINVAL);
    assert_int_equal(rdma_reject(ends.b.id, NULL, 0), 0);
    cm_expect(&ends.a, RDMA_CM_EVENT_REJECTED);
    ends_end(&ends);
}

static void a_queue_pair_belongs_to_the_protection_domain_it_was_given(void **state)
{
    (void)state;
    struct ends ends = ends_make(NULL, "link=iwarp");
    cm_resolve(&ends.a, &ends.b);
    struct ibv_pd *own = ibv_alloc_pd(ends.a.id->verbs);
    struct ibv_cq *cq = ibv_create_cq(ends.a.id->verbs, 8, NULL, NULL, 0);
    struct ibv_qp_init_attr attr = {
        .send_cq = cq, .recv_cq = cq, .cap = { 4, 4, 1, 1, 0 }, .qp_type = IBV_QPT_RC
    };
    assert_int_equal(rdma_create_qp(ends.a.id, own, &attr), 0);
    assert_ptr_equal(ends.a.id->qp->pd, own);
    assert_int_equal(ibv_dealloc_pd(own), EBUSY);
    rdma_destroy_qp(ends.a.id);
    assert_int_equal(rdma_create_qp(ends.a.id, NULL, &attr), 0); /* now the id's queue pair */
    assert_ptr_equal(ends.a.id->qp->pd, own);
    assert_int_equal(ibv_destroy_qp(ends.a.id->qp), 0); /* without librdmacm, which notices */
    assert_null(ends.a.id->qp);
    assert_int_equal(ibv_dealloc_pd(own), 0);
    assert_int_equal(ibv_destroy_cq(cq), 0);
    ends_end(&ends);
}

static void blocking_channels_move_time(void **state)
{
    (void)state;
    struct ends ends = ends_make("latency=2us", "link=roce");
    struct wishes none = { .depth = 4 };
    struct rdma_conn_param param = usual();
    struct rdma_cm_event *event;
    cm_resolve(&ends.a, &ends.b);
    cm_objects(&ends.a, &none);
    assert_int_equal(fcntl(ends.b.cm->fd, F_SETFL, 0), 0);
    assert_int_equal(rdma_connect(ends.a.id, &param), 0);
    assert_int_equal(rdma_get_cm_event(ends.b.cm, &event), 0);
    assert_int_equal(event->event, RDMA_CM_EVENT_CONNECT_REQUEST);
    ends.b.id = event->id;
    assert_int_equal(rdma_ack_cm_event(event), 0);
    assert_int_equal(rdma_reject(ends.b.id, NULL, 0), 0);
    assert_int_equal(rdma_get_cm_event(ends.b.cm, &event), -1);
    assert_int_equal(errno, EDEADLK);
    ends_end(&ends);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_get_their_device_step_by_step),
        cmocka_unit_test(an_address_that_nobody_has_is_not_resolved),
        cmocka_unit_test(ports_and_addresses_are_bound_once),
        cmocka_unit_test(private_data_is_padded_or_exact),
        cmocka_unit_test(private_data_has_its_limits),
        cmocka_unit_test(depths_are_mirrored_and_reduced),
        cmocka_unit_test(a_request_can_be_rejected),
        cmocka_unit_test(nobody_listens),
        cmocka_unit_test(an_unreachable_peer_is_given_up_after_a_minute),
        cmocka_unit_test(a_full_backlog_refuses),
        cmocka_unit_test(a_program_may_keep_its_queue_pairs_to_itself),
        cmocka_unit_test(an_iwarp_connection_may_be_of_a_queue_pair_of_the_program),
        cmocka_unit_test(parting_takes_both_on_infiniband_and_roce),
        cmocka_unit_test(both_may_part_at_once),
        cmocka_unit_test(destroying_an_id_parts),
        cmocka_unit_test(a_dead_process_is_told_and_a_dead_machine_is_not),
        cmocka_unit_test(a_device_that_vanishes_is_told),
        cmocka_unit_test(the_traffic_class_counts_if_it_was_set_before_the_route),
        cmocka_unit_test(an_id_takes_its_events_to_another_channel),
        cmocka_unit_test(an_id_may_end_before_its_queue_pair),
        cmocka_unit_test(requests_that_nobody_took_end_with_the_listener),
        cmocka_unit_test(an_id_cannot_end_before_its_events_are_acknowledged),
        cmocka_unit_test(a_queue_pair_that_cannot_be_moved_fails_the_connection),
        cmocka_unit_test(a_queue_pair_belongs_to_the_protection_domain_it_was_given),
        cmocka_unit_test(blocking_channels_move_time),
    };
    return cmocka_run_group_tests_name("sim_cm", tests, NULL, NULL);
}
