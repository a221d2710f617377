/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Endpoints as objects: their attributes, and the result of every call at every stage of their
 * life. */
#include "api/core/cq.h"
#include "api/core/ep.h"
#include "api/core/mr.h"
#include "api/core/remote.h"
#include "tests/unit/endpoint_scene.h"
#include "tests/unit/fair_time.h"

/* ----------------------------------------------------------------------------------- attributes */

#define OF(member) \
    offsetof(struct rdmux_ep_attr, member), sizeof(((struct rdmux_ep_attr *)NULL)->member)

static const struct bad_value {
    const char *name;
    size_t offset;
    size_t size;
    uint64_t value;
    enum rdmux_status status;
} bad_values[] = {
    { "flags", OF(flags), UINT32_C(1) << 31, RDMUX_INVALID },
    { "send_depth", OF(send_depth), 65537, RDMUX_INVALID },
    { "send_depth", OF(send_depth), UINT32_MAX, RDMUX_INVALID },
    { "recv_depth", OF(recv_depth), 65537, RDMUX_INVALID },
    { "max_send_sge", OF(max_send_sge), 17, RDMUX_INVALID },
    { "max_recv_sge", OF(max_recv_sge), 17, RDMUX_INVALID },
    { "prefer", OF(prefer), 3, RDMUX_INVALID },
    { "require", OF(require), UINT64_C(1) << 40, RDMUX_INVALID },
    { "require_native", OF(require_native), UINT64_C(1) << 63, RDMUX_INVALID },
    { "liveness_ms", OF(liveness_ms), 99, RDMUX_INVALID },
    { "liveness_ms", OF(liveness_ms), 86400001, RDMUX_INVALID },
    { "setup_timeout_ms", OF(setup_timeout_ms), 86400001, RDMUX_INVALID },
    { "path_timeout_ms", OF(path_timeout_ms), 86400001, RDMUX_INVALID },
    { "dscp", OF(dscp), 64, RDMUX_INVALID },
    { "ecn", OF(ecn), 3, RDMUX_INVALID },
    { "service_level", OF(service_level), 16, RDMUX_INVALID },
    { "data_sockets", OF(data_sockets), 17, RDMUX_INVALID },
    { "private_length", OF(private_length), RDMUX_PRIVATE_DATA_MAX + 1, RDMUX_INVALID },
    { "private_data", OF(private_length), 1, RDMUX_INVALID },
    { "failover", OF(failover), 2, RDMUX_INVALID },
    { "failover_time_ms", OF(failover_time_ms), 86400001, RDMUX_INVALID },
    { "probe", OF(probe), 2, RDMUX_INVALID },
};

static struct rdmux_ep_attr attr_with(const struct bad_value *bad)
{
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    uint32_t narrow = (uint32_t)bad->value;
    if (bad->size == sizeof(narrow)) {
        memcpy((char *)&attr + bad->offset, &narrow, sizeof(narrow));
    } else {
        memcpy((char *)&attr + bad->offset, &bad->value, sizeof(bad->value));
    }
    return attr;
}

/* Checks that every call that takes these attributes refuses them, names the field and changes
 * nothing. */
static void check_refused(struct scene *scene, const struct rdmux_ep_attr *attr,
                          enum rdmux_status expected, const char *name)
{
    struct pair *pair = &scene->pair;
    for (int call = 0; call < 4; call++) {
        struct rdmux_ep *ep = (struct rdmux_ep *)(void *)&ep;
        struct rdmux_explanation *explanation = NULL;
        int ends[2] = { -1, -1 };
        enum rdmux_status status = RDMUX_OK;
        switch (call) {
        case 0:
            status = rdmux_connect(pair->fabric_a, pair->cq_a, pair->address, attr, 10, &ep);
            break;
        case 1:
            status = rdmux_accept(pair->listener, pair->cq_b, attr, 10, &ep);
            break;
        case 2:
            assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
            status = rdmux_adopt(pair->fabric_a, pair->cq_a, ends[0], RDMUX_ROLE_CONNECT, attr, 10,
                                 &ep);
            break;
        default:
            status = rdmux_explain(pair->fabric_a, pair->address, attr, 10, &explanation);
            ep = NULL;
            break;
        }
        if (status != expected || strstr(rdmux_last_error(), name) == NULL) {
            fail_msg("%s, call %d: %s: %s", name, call, rdmux_status_name(status),
                     rdmux_last_error());
        }
        assert_null(ep);
        assert_null(explanation);
        if (ends[0] >= 0) {
            if (expected == RDMUX_INVALID) {
                assert_int_equal(send(ends[0], "x", 1, MSG_NOSIGNAL), 1); /* untouched */
                close(ends[0]);
            } else {
                assert_true(is_dropped(ends[1], 0)); /* taken, and closed */
            }
            close(ends[1]);
        }
    }
}

static void a_bad_attribute_is_refused_by_name(void **state)
{
    (void)state;
    struct scene scene;
    set_scene(&scene, "tcp", 0);
    for (size_t i = 0; i < RDMUX_COUNT_OF(bad_values); i++) {
        struct rdmux_ep_attr attr = attr_with(&bad_values[i]);
        check_refused(&scene, &attr, bad_values[i].status, bad_values[i].name);
    }
    static const char *const filters[] = { "", "!", "tcp shm ib", "tcp;shm", "a,,b!" };
    for (size_t i = 0; i < RDMUX_COUNT_OF(filters); i++) {
        struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
        attr.paths = filters[i];
        struct rdmux_ep *ep = NULL;
        enum rdmux_status status = rdmux_connect(scene.pair.fabric_a, scene.pair.cq_a,
                                                 scene.pair.address, &attr, 10, &ep);
        assert_true(status != RDMUX_OK);
        assert_null(ep);
    }
    char long_name[RDMUX_NAME_MAX + 1];
    memset(long_name, 'd', sizeof(long_name));
    long_name[RDMUX_NAME_MAX] = '\0';
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    attr.local = long_name;
    check_refused(&scene, &attr, RDMUX_INVALID, "local");
    clear_scene(&scene);
}

/* The deepest queues allowed take 300 MB a pair, more than a sanitizer clears in reasonable
 * time. */
enum { DEEPEST = SLACK == 1 ? 65536 : 2048, INLINE_UNASKED = 256 };

static void limits_of_attributes_are_allowed(void **state)
{
    (void)state;
    static const struct rdmux_ep_attr widest = {
        .size = sizeof(struct rdmux_ep_attr),
        .send_depth = DEEPEST,
        .recv_depth = DEEPEST,
        .max_send_sge = 16,
        .max_recv_sge = 16,
        .max_inline = UINT32_MAX,
        .prefer = RDMUX_PREFER_BANDWIDTH,
        .max_send = UINT64_MAX,
        .max_recv = UINT64_MAX,
        .typical_size = UINT64_MAX,
        .liveness_ms = RDMUX_NEVER,
        .setup_timeout_ms = RDMUX_NEVER,
        .path_timeout_ms = RDMUX_NEVER,
        .dscp = 63,
        .ecn = RDMUX_OFF,
        .service_level = 15,
        .data_sockets = 16,
    };
    static const struct rdmux_ep_attr narrowest = {
        .size = sizeof(struct rdmux_ep_attr),
        .send_depth = 1,
        .recv_depth = 1,
        .max_send_sge = 1,
        .max_recv_sge = 1,
        .max_inline = 1,
        .prefer = RDMUX_PREFER_LATENCY,
        .max_send = 4,
        .max_recv = 4,
        .typical_size = 1,
        .liveness_ms = 60000, /* 100 is allowed, but a busy machine is silent for that long */
        .setup_timeout_ms = 60000,
        .path_timeout_ms = 10000,
        .dscp = RDMUX_OFF,
        .ecn = 1,
        .data_sockets = 1,
    };
    for (size_t i = 0; i < RDMUX_COUNT_OF(all_paths); i++) {
        struct scene scene;
        set_scene(&scene, all_paths[i], 0);
        connect_more(&scene.pair, &widest, &scene.pair.a, &scene.pair.b);
        struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
        CHECK_OK(rdmux_ep_info(scene.pair.a, &info));
        assert_int_equal(info.send_depth, DEEPEST);
        assert_int_equal(info.max_inline, 1024);
        check_messages(&scene.pair);
        CHECK_OK(rdmux_ep_close(scene.pair.a));
        CHECK_OK(rdmux_ep_close(scene.pair.b));

        connect_more(&scene.pair, &narrowest, &scene.pair.a, &scene.pair.b);

        CHECK_OK(rdmux_ep_info(scene.pair.a, &info));
        assert_int_equal(info.max_inline, RDMUX_INLINE_MIN);
        assert_int_equal(info.max_send, 4);
        uint64_t word = 0;
        CHECK_STATUS(rdmux_send(scene.pair.a, &word, sizeof(word), NULL, NULL, 0), RDMUX_LENGTH);
        check_messages(&scene.pair);
        clear_scene(&scene);
    }
}

/* A token is RDMUX_TOKEN_SIZE bytes, and a message that hands one over has more. */
static void without_a_wish_inline_is_what_the_path_takes(void **state)
{
    (void)state;
    for (size_t i = 0; i < RDMUX_COUNT_OF(all_paths); i++) {
        struct scene scene;
        struct pair *pair = &scene.pair;
        uint8_t message[INLINE_UNASKED + 1] = { [RDMUX_TOKEN_SIZE] = 7 };
        uint8_t got[sizeof(message)] = { 0 };
        struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
        set_scene(&scene, all_paths[i], 0);
        connect_more(pair, NULL, &pair->a, &pair->b);
        CHECK_OK(rdmux_ep_info(pair->a, &info));
        assert_int_equal(info.max_inline, INLINE_UNASKED);
        assert_true(info.max_inline > RDMUX_TOKEN_SIZE);

        CHECK_STATUS(rdmux_send(pair->a, message, sizeof(message), NULL, NULL, RDMUX_INLINE),
                     RDMUX_LENGTH);
        CHECK_OK(rdmux_send(pair->a, message, info.max_inline, NULL, NULL, RDMUX_INLINE));
        memset(message, 0xee, sizeof(message)); /* it waits for the receive */
        CHECK_OK(rdmux_recv(pair->b, got, sizeof(got), NULL, NULL));

        assert_int_equal(expect_entry(pair->cq_b, RDMUX_WC_RECV, RDMUX_OK).length, info.max_inline);
        assert_int_equal(got[RDMUX_TOKEN_SIZE], 7);
        assert_int_equal(got[0], 0);
        clear_scene(&scene);
    }
}

static void attributes_of_older_and_newer_programs_work(void **state)
{
    (void)state;
    struct scene scene;
    set_scene(&scene, "tcp", 0);
    struct {
        struct rdmux_ep_attr attr;
        uint64_t later[4];
    } newer = { .attr = RDMUX_EP_ATTR_INIT, .later = { 1, 2, 3, 4 } };
    newer.attr.size = sizeof(newer);
    newer.attr.send_depth = 9;
    connect_more(&scene.pair, &newer.attr, &scene.pair.a, &scene.pair.b);
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    CHECK_OK(rdmux_ep_info(scene.pair.a, &info));
    assert_int_equal(info.send_depth, 9);
    CHECK_OK(rdmux_ep_close(scene.pair.a));
    CHECK_OK(rdmux_ep_close(scene.pair.b));
    struct rdmux_ep_attr older = { .size = offsetof(struct rdmux_ep_attr, max_send_sge),
                                   .send_depth = 7,
                                   .max_send_sge = 999 };

    connect_more(&scene.pair, &older, &scene.pair.a, &scene.pair.b);

    CHECK_OK(rdmux_ep_info(scene.pair.a, &info));
    assert_int_equal(info.send_depth, 7);
    assert_int_equal(info.max_send_sge, 4);
    older.size = 4;
    check_refused(&scene, &older, RDMUX_INVALID, "size");
    older.size = 0;
    check_refused(&scene, &older, RDMUX_INVALID, "size");
    clear_scene(&scene);
}

static void strings_of_attributes_may_be_freed_after_the_call(void **state)
{
    (void)state;
    struct scene scene;
    set_scene(&scene, "tcp", 0);
    struct pair *pair = &scene.pair;
    char local[32] = "127.0.0.1";
    char paths[16] = "tcp";
    char private_data[4] = "abc";
    char name[RDMUX_ADDRESS_MAX];
    const char *port = strrchr(pair->address, ':');
    assert_non_null(port);
    (void)snprintf(name, sizeof(name), "localhost%s", port); /* resolved after the call */
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    attr.local = local;
    attr.paths = paths;
    attr.private_data = private_data;
    attr.private_length = sizeof(private_data);
    CHECK_STATUS(rdmux_connect(pair->fabric_a, pair->cq_a, name, &attr, 0, &pair->a),
                 RDMUX_IN_PROGRESS);

    (void)snprintf(local, sizeof(local), "203.0.113.9");
    (void)snprintf(paths, sizeof(paths), "ib");
    memset(private_data, 'x', sizeof(private_data));
    memset(name, 'x', sizeof(name));

    CHECK_OK(rdmux_accept(pair->listener, pair->cq_b, NULL, PATIENT_MS, &pair->b));
    expect_entry(pair->cq_a, RDMUX_WC_CONNECTED, RDMUX_OK);
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    CHECK_OK(rdmux_ep_info(pair->b, &info));
    assert_int_equal(info.private_length, sizeof(private_data));
    assert_memory_equal(info.private_data, "abc", 4);
    assert_memory_equal(info.peer_address, "127.0.0.1:", 10);
    clear_scene(&scene);
}

static void infos_are_filled_as_far_as_the_program_knows_them(void **state)
{
    (void)state;
    struct scene scene;
    set_scene(&scene, "tcp", 0);
    connect_more(&scene.pair, NULL, &scene.pair.a, &scene.pair.b);
    struct rdmux_ep_info info;
    memset(&info, 0x5a, sizeof(info));
    info.size = offsetof(struct rdmux_ep_info, device);
    struct rdmux_ep_stats stats;
    memset(&stats, 0x5a, sizeof(stats));
    stats.size = offsetof(struct rdmux_ep_stats, writes);

    CHECK_OK(rdmux_ep_info(scene.pair.a, &info));
    CHECK_OK(rdmux_ep_stats(scene.pair.a, &stats));

    assert_int_equal(info.size, offsetof(struct rdmux_ep_info, device));
    assert_string_equal(info.provider, "tcp");
    assert_int_equal(info.device[0], 0x5a);
    assert_int_equal(stats.size, offsetof(struct rdmux_ep_stats, writes));
    assert_int_equal(stats.receives, 0);
    assert_int_equal(stats.writes, UINT64_C(0x5a5a5a5a5a5a5a5a));
    info.size = 0;
    stats.size = 0;
    CHECK_STATUS(rdmux_ep_info(scene.pair.a, &info), RDMUX_INVALID);
    CHECK_STATUS(rdmux_ep_stats(scene.pair.a, &stats), RDMUX_INVALID);
    CHECK_STATUS(rdmux_ep_info(scene.pair.a, NULL), RDMUX_INVALID);
    CHECK_STATUS(rdmux_ep_stats(NULL, &stats), RDMUX_INVALID);
    clear_scene(&scene);
}

static void a_cq_without_room_refuses_an_endpoint(void **state)
{
    (void)state;
    struct scene scene;
    set_scene(&scene, "tcp", 0);
    struct rdmux_cq_attr cq_attr = RDMUX_CQ_ATTR_INIT;
    cq_attr.depth = 100;
    struct rdmux_cq *cq = NULL;
    CHECK_OK(rdmux_cq_create(scene.pair.fabric_a, &cq_attr, &cq));
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    attr.send_depth = 60;
    attr.recv_depth = 41;
    struct rdmux_ep *ep = NULL;

    CHECK_STATUS(rdmux_connect(scene.pair.fabric_a, cq, scene.pair.address, &attr, 0, &ep),
                 RDMUX_NO_MEMORY);

    assert_null(ep);
    assert_non_null(strstr(rdmux_last_error(), "depth"));
    attr.recv_depth = 40;
    for (int i = 0; i < 3; i++) { /* the room that an endpoint had reserved is free again */
        CHECK_STATUS(rdmux_connect(scene.pair.fabric_a, cq, scene.pair.address, &attr, 0, &ep),
                     RDMUX_IN_PROGRESS);
        CHECK_STATUS(rdmux_cq_destroy(cq), RDMUX_INVALID);
        CHECK_OK(rdmux_ep_close(ep));
    }
    CHECK_OK(rdmux_cq_destroy(cq));
    clear_scene(&scene);
}

/* --------------------------------------------------------------------------------------- stages */

static void the_calls_allowed_before_the_connection_work(void **state)
{
    (void)state;
    for (size_t i = 0; i < RDMUX_COUNT_OF(all_paths); i++) {
        struct scene scene;
        set_scene(&scene, all_paths[i], 0);
        struct pair *pair = &scene.pair;
        struct rdmux_mr *mr = NULL;
        struct rdmux_token token;
        struct rdmux_remote *remote = NULL;
        uint64_t got[2] = { 0 };
        uint64_t word = 0;
        CHECK_OK(rdmux_mr_alloc(pair->fabric_b, 64,
                                RDMUX_ACCESS_REMOTE_WRITE | RDMUX_ACCESS_REMOTE_READ, &mr));
        CHECK_OK(rdmux_mr_export(mr, &token));
        struct rdmux_mr *local = NULL;
        CHECK_OK(
            rdmux_mr_register(pair->fabric_a, got, sizeof(got), RDMUX_ACCESS_LOCAL_WRITE, &local));
        CHECK_STATUS(rdmux_connect(pair->fabric_a, pair->cq_a, pair->address, NULL, 0, &pair->a),
                     RDMUX_IN_PROGRESS);
        assert_int_equal(state_of(pair->a), RDMUX_EP_CONNECTING);

        check_posts(pair->a, RDMUX_AGAIN);
        CHECK_OK(rdmux_recv(pair->a, &got[0], sizeof(got[0]), NULL, CONTEXT(1)));
        CHECK_OK(rdmux_recv(pair->a, &got[1], sizeof(got[1]), local, CONTEXT(2)));
        CHECK_STATUS(rdmux_remote_import(pair->a, &token, 100, &remote), RDMUX_INVALID);
        assert_null(remote);
        CHECK_STATUS(rdmux_remote_import(pair->a, &token, 0, &remote), RDMUX_IN_PROGRESS);
        CHECK_STATUS(rdmux_write(pair->a, &word, sizeof(word), NULL, remote, 0, NULL, 0),
                     RDMUX_AGAIN);
        CHECK_STATUS(rdmux_ep_shutdown(pair->a, 100), RDMUX_INVALID);

        CHECK_OK(rdmux_accept(pair->listener, pair->cq_b, NULL, PATIENT_MS, &pair->b));
        expect_entry(pair->cq_a, RDMUX_WC_CONNECTED, RDMUX_OK);
        struct rdmux_wc wc = expect_entry(pair->cq_a, RDMUX_WC_REMOTE_READY, RDMUX_OK);
        assert_ptr_equal(wc.context, remote);
        for (uint64_t k = 0; k < 2; k++) {
            word = 100 + k;
            CHECK_OK(rdmux_send(pair->b, &word, sizeof(word), NULL, NULL,
                                RDMUX_INLINE | RDMUX_UNSIGNALED));
            wc = expect_entry(pair->cq_a, RDMUX_WC_RECV, RDMUX_OK);
            assert_ptr_equal(wc.context, CONTEXT(k + 1));
            assert_int_equal(got[k], 100 + k);
        }
        CHECK_OK(rdmux_write(pair->a, &word, sizeof(word), NULL, remote, 0, NULL, RDMUX_PLACED));
        expect_entry(pair->cq_a, RDMUX_WC_WRITE, RDMUX_OK);
        assert_memory_equal(rdmux_mr_addr(mr), &word, sizeof(word));
        rdmux_mr_deregister(local);
        rdmux_mr_deregister(mr);
        clear_scene(&scene);
    }
}

static void a_failed_set_up_flushes_the_posted_requests_and_reports_its_cause(void **state)
{
    (void)state;
    struct scene scene;
    set_scene(&scene, "tcp", 0);
    struct pair *pair = &scene.pair;
    struct rdmux_peer peer = RDMUX_PEER_INIT;
    struct rdmux_token token = { .bytes = { 'R', 'D', 'X', 'T', 0, 0, 0, 1 } };
    struct rdmux_remote *remote = NULL;
    uint64_t got = 0;
    CHECK_STATUS(rdmux_connect(pair->fabric_a, pair->cq_a, pair->address, NULL, 0, &pair->a),
                 RDMUX_IN_PROGRESS);
    CHECK_OK(rdmux_recv(pair->a, &got, sizeof(got), NULL, CONTEXT(1)));
    CHECK_STATUS(rdmux_remote_import(pair->a, &token, 0, &remote), RDMUX_IN_PROGRESS);
    CHECK_OK(rdmux_listener_next(pair->listener, PATIENT_MS, &peer));

    CHECK_OK(rdmux_reject(pair->listener, peer.id, 3, NULL, 0));

    bool seen[3] = { false };
    for (int i = 0; i < 3; i++) {
        struct rdmux_wc wc = next_entry(pair->cq_a);
        assert_ptr_equal(wc.ep, pair->a);
        if (wc.opcode == RDMUX_WC_CONNECTED) {
            assert_int_equal(i, 0);
            assert_int_equal(wc.status, RDMUX_REFUSED);
            seen[0] = true;
        } else if (wc.opcode == RDMUX_WC_RECV) {
            assert_int_equal(wc.status, RDMUX_FLUSHED);
            assert_ptr_equal(wc.context, CONTEXT(1));
            seen[1] = true;
        } else {
            assert_int_equal(wc.opcode, RDMUX_WC_REMOTE_READY);
            assert_int_equal(wc.status, RDMUX_REFUSED);
            assert_ptr_equal(wc.context, remote);
            seen[2] = true;
        }
    }
    assert_true(seen[0] && seen[1] && seen[2]);
    struct rdmux_wc none;
    assert_int_equal(rdmux_cq_poll(pair->cq_a, &none, 1),
                     0); /* no DISCONNECTED: it was never connected */
    check_posts(pair->a, RDMUX_REFUSED);
    CHECK_STATUS(rdmux_recv(pair->a, &got, sizeof(got), NULL, NULL), RDMUX_REFUSED);
    CHECK_STATUS(rdmux_ep_shutdown(pair->a, 100), RDMUX_REFUSED);
    assert_int_equal(state_of(pair->a), RDMUX_EP_ENDED);
    clear_scene(&scene);
}

static void an_ended_endpoint_reports_its_cause_until_it_is_closed(void **state)
{
    (void)state;
    for (size_t i = 0; i < RDMUX_COUNT_OF(all_paths); i++) {
        struct scene scene;
        set_scene(&scene, all_paths[i], 0);
        struct pair *pair = &scene.pair;
        struct rdmux_token token = { .bytes = { 'R', 'D', 'X', 'T', 0, 0, 0, 1 } };
        struct rdmux_remote *remote = NULL;
        uint64_t got = 0;
        connect_more(pair, NULL, &pair->a, &pair->b);
        CHECK_OK(rdmux_recv(pair->a, &got, sizeof(got), NULL, CONTEXT(1)));

        CHECK_OK(rdmux_ep_close(pair->b));

        pair->b = NULL;
        expect_entry(pair->cq_a, RDMUX_WC_RECV, RDMUX_FLUSHED);
        expect_entry(pair->cq_a, RDMUX_WC_DISCONNECTED, RDMUX_PEER_GONE);
        check_posts(pair->a, RDMUX_PEER_GONE);
        CHECK_STATUS(rdmux_recv(pair->a, &got, sizeof(got), NULL, NULL), RDMUX_PEER_GONE);
        CHECK_STATUS(rdmux_remote_import(pair->a, &token, 100, &remote), RDMUX_INVALID);
        CHECK_STATUS(rdmux_ep_shutdown(pair->a, 100), RDMUX_PEER_GONE);
        struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
        CHECK_OK(rdmux_ep_info(pair->a, &info));
        assert_int_equal(info.state, RDMUX_EP_ENDED);
        assert_int_equal(info.status, RDMUX_PEER_GONE);
        assert_non_null(strstr(info.text, "closed"));
        clear_scene(&scene);
    }
}

static void a_closed_endpoint_reports_only_its_user_and_until_the_next_poll(void **state)
{
    (void)state;
    struct scene scene;
    set_scene(&scene, "tcp", 0);
    struct pair *pair = &scene.pair;
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    attr.user = &attr;
    connect_more(pair, &attr, &pair->a, &pair->b);
    struct rdmux_ep *a = pair->a;
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    struct rdmux_ep_stats stats = RDMUX_EP_STATS_INIT;
    struct rdmux_explanation *explanation = NULL;
    struct rdmux_wc wc;
    uint64_t got = 0;
    assert_ptr_equal(rdmux_ep_user(a), &attr);
    CHECK_OK(rdmux_ep_set_user(a, &scene));
    CHECK_OK(rdmux_recv(a, &got, sizeof(got), NULL, CONTEXT(1)));
    struct span span = span_begin();

    CHECK_OK(rdmux_ep_close(a));

    check_span("close", span, 0, 10 * SLACK);
    pair->a = NULL;
    assert_ptr_equal(rdmux_ep_user(a), &scene);
    check_posts(a, RDMUX_INVALID);
    CHECK_STATUS(rdmux_recv(a, &got, sizeof(got), NULL, NULL), RDMUX_INVALID);
    CHECK_STATUS(rdmux_ep_info(a, &info), RDMUX_INVALID);
    CHECK_STATUS(rdmux_ep_stats(a, &stats), RDMUX_INVALID);
    CHECK_STATUS(rdmux_ep_set_user(a, NULL), RDMUX_INVALID);
    CHECK_STATUS(rdmux_ep_explanation(a, &explanation), RDMUX_INVALID);
    CHECK_STATUS(rdmux_ep_shutdown(a, 0), RDMUX_INVALID);
    CHECK_STATUS(rdmux_ep_close(a), RDMUX_INVALID);
    assert_ptr_equal(rdmux_ep_user(a), &scene);
    struct rdmux_ep *other = NULL; /* other calls on the cq do not end that */
    CHECK_STATUS(rdmux_connect(pair->fabric_a, pair->cq_a, "127.0.0.1:1", NULL, PATIENT_MS, &other),
                 RDMUX_REFUSED);
    assert_ptr_equal(rdmux_ep_user(a), &scene);
    assert_int_equal(rdmux_cq_poll(pair->cq_a, &wc, 1), 0);
    clear_scene(&scene);
}

/* ----------------------------------------------------------------------------------------- time */

static void a_connect_without_an_accept_ends_in_time_and_leaves_nothing(void **state)
{
    (void)state;
    enum { LIMIT_MS = 250 };
    struct scene scene;
    set_scene(&scene, "tcp", 0);
    struct pair *pair = &scene.pair;
    struct rdmux_ep *ep = NULL;
    struct span span = span_begin();

    CHECK_STATUS(rdmux_connect(pair->fabric_a, pair->cq_a, pair->address, NULL, LIMIT_MS, &ep),
                 RDMUX_TIMED_OUT);

    check_span("connect", span, LIMIT_MS - 10, (LIMIT_MS + 300) * SLACK);
    assert_null(ep);
    assert_non_null(strstr(rdmux_last_error(), "negotiating"));
    CHECK_STATUS(rdmux_accept(pair->listener, pair->cq_b, NULL, 50, &ep),
                 RDMUX_TIMED_OUT); /* it is gone */
    connect_more(pair, NULL, &pair->a, &pair->b);
    check_messages(pair);
    clear_scene(&scene);
}

static void a_set_up_in_the_background_ends_in_time_with_an_event(void **state)
{
    (void)state;
    enum { LIMIT_MS = 250 };
    struct scene scene;
    set_scene(&scene, "tcp", 0);
    struct pair *pair = &scene.pair;
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    attr.setup_timeout_ms = LIMIT_MS;
    struct span span = span_begin();
    CHECK_STATUS(rdmux_connect(pair->fabric_a, pair->cq_a, pair->address, &attr, 0, &pair->a),
                 RDMUX_IN_PROGRESS);

    expect_entry(pair->cq_a, RDMUX_WC_CONNECTED, RDMUX_TIMED_OUT);

    check_span("set-up", span, LIMIT_MS - 10, (LIMIT_MS + 300) * SLACK);
    assert_int_equal(state_of(pair->a), RDMUX_EP_ENDED);
    check_posts(pair->a, RDMUX_TIMED_OUT);
    clear_scene(&scene);
}

static void a_connect_without_a_listener_fails_at_once(void **state)
{
    (void)state;
    struct scene scene;
    set_scene(&scene, "tcp", 0);
    struct pair *pair = &scene.pair;
    rdmux_listener_close(pair->listener);
    pair->listener = NULL;
    struct rdmux_ep *ep = NULL;
    static const int timeouts[] = { -1, 0, PATIENT_MS };
    for (size_t i = 0; i < RDMUX_COUNT_OF(timeouts); i++) {
        uint64_t begin = now_ms();

        enum rdmux_status status = rdmux_connect(pair->fabric_a, pair->cq_a, pair->address, NULL,
                                                 timeouts[i], &ep);

        if (status == RDMUX_IN_PROGRESS) {
            assert_int_equal(timeouts[i], 0);
            expect_entry(pair->cq_a, RDMUX_WC_CONNECTED, RDMUX_REFUSED);
            CHECK_OK(rdmux_ep_close(ep));
        } else {
            CHECK_STATUS(status, RDMUX_REFUSED);
            assert_null(ep);
            assert_non_null(strstr(rdmux_last_error(), pair->address));
        }
        assert_true(now_ms() - begin < PATIENT_MS);
    }
    clear_scene(&scene);
}

static void failed_attempts_leave_no_memory_behind_without_a_poll(void **state)
{
    (void)state;
    enum { ATTEMPTS = 100, WARM_UP = 10 };
    struct scene scene;
    set_scene(&scene, "tcp", 0);
    size_t before = 0;
    for (size_t i = 0; i < ATTEMPTS; i++) { /* a client that tries until its server is there */
        struct rdmux_ep *ep = NULL;
        CHECK_STATUS(rdmux_connect(scene.pair.fabric_a, scene.pair.cq_a, "127.0.0.1:1", NULL,
                                   PATIENT_MS, &ep),
                     RDMUX_REFUSED);
        before = i == WARM_UP ? atomic_load(&scene.meter_a.pieces) : before;
    }

    assert_true(atomic_load(&scene.meter_a.pieces) <= before + 20);
    clear_scene(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_bad_attribute_is_refused_by_name),
        cmocka_unit_test(limits_of_attributes_are_allowed),
        cmocka_unit_test(without_a_wish_inline_is_what_the_path_takes),
        cmocka_unit_test(attributes_of_older_and_newer_programs_work),
        cmocka_unit_test(strings_of_attributes_may_be_freed_after_the_call),
        cmocka_unit_test(infos_are_filled_as_far_as_the_program_knows_them),
        cmocka_unit_test(a_cq_without_room_refuses_an_endpoint),
        cmocka_unit_test(the_calls_allowed_before_the_connection_work),
        cmocka_unit_test(a_failed_set_up_flushes_the_posted_requests_and_reports_its_cause),
        cmocka_unit_test(an_ended_endpoint_reports_its_cause_until_it_is_closed),
        cmocka_unit_test(a_closed_endpoint_reports_only_its_user_and_until_the_next_poll),
        cmocka_unit_test(a_connect_without_an_accept_ends_in_time_and_leaves_nothing),
        cmocka_unit_test(a_set_up_in_the_background_ends_in_time_with_an_event),
        cmocka_unit_test(a_connect_without_a_listener_fails_at_once),
        cmocka_unit_test(failed_attempts_leave_no_memory_behind_without_a_poll),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
