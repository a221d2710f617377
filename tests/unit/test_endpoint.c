/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Endpoints as objects: their attributes, and what every call says at every stage of their life. */
#include "tests/unit/api_pair.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>

static const char *const all_paths[] = { "tcp", "shm" };

static size_t open_descriptors(void)
{
    size_t count = 0;
    for (int fd = 0; fd < 1024; fd++) {
        count += fcntl(fd, F_GETFD) >= 0;
    }
    return count;
}

/* Two sides whose memory and descriptors are counted. */
struct scene {
    struct pair pair;
    struct meter meter_a;
    struct meter meter_b;
    size_t descriptors;
};

static void set_scene(struct scene *scene, const char *paths, uint32_t flags)
{
    memset(scene, 0, sizeof(*scene));
    scene->descriptors = open_descriptors();
    scene->pair.fabric_a = open_metered_fabric(paths, flags, NULL, &scene->meter_a);
    scene->pair.fabric_b = open_metered_fabric(paths, flags, NULL, &scene->meter_b);
    scene->pair.cq_a = create_cq(scene->pair.fabric_a);
    scene->pair.cq_b = create_cq(scene->pair.fabric_b);
    scene->pair.listener = listen_here(scene->pair.fabric_b, NULL, scene->pair.address);
}

static void clear_scene(struct scene *scene)
{
    close_pair(&scene->pair);
    assert_int_equal(atomic_load(&scene->meter_a.pieces), 0);
    assert_int_equal(atomic_load(&scene->meter_b.pieces), 0);
    assert_int_equal(open_descriptors(), scene->descriptors);
}

static uint32_t state_of(struct rdmux_ep *ep)
{
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    CHECK_OK(rdmux_ep_info(ep, &info));
    return info.state;
}

/* ------------------------------------------------------------------------------------------------- attributes */

#define OF(member) \
    offsetof(struct rdmux_ep_attr, member), sizeof(((struct rdmux_ep_attr *)NULL)->member)

static const struct bad_value {
    const char *name;
    size_t offset;
    size_t size;
    uint64_t value;
    enum rdmux_status status;
} bad_values[] = {
    { "flags", OF(flags), 1, RDMUX_INVALID },
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
    { "failover", OF(failover), RDMUX_FAILOVER_ON, RDMUX_UNSUPPORTED },
    { "probe", OF(probe), 2, RDMUX_INVALID },
    { "probe", OF(probe), 1, RDMUX_UNSUPPORTED },
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

/* Every call that takes these attributes refuses them, names the field and changes nothing. */
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

/* The deepest queues allowed take 300 MB a pair, more than a sanitizer clears in reasonable time. */
enum { DEEPEST = SLACK == 1 ? 65536 : 2048 };

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
        .liveness_ms = 100,
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

static void attributes_of_an_older_and_of_a_newer_program_work(void **state)
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

static void strings_of_attributes_need_to_live_during_the_call_only(void **state)
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
    for (int i = 0; i < 3; i++) { /* what an endpoint had reserved is free again */
        CHECK_STATUS(rdmux_connect(scene.pair.fabric_a, cq, scene.pair.address, &attr, 0, &ep),
                     RDMUX_IN_PROGRESS);
        CHECK_STATUS(rdmux_cq_destroy(cq), RDMUX_INVALID);
        CHECK_OK(rdmux_ep_close(ep));
    }
    CHECK_OK(rdmux_cq_destroy(cq));
    clear_scene(&scene);
}

/* ------------------------------------------------------------------------------------------------- stages */

/* Every post on the send side says this. */
static void check_posts(struct rdmux_ep *ep, enum rdmux_status expected)
{
    uint64_t word = 0;
    size_t posted = 5;
    struct rdmux_sge sge = { &word, sizeof(word), NULL };
    struct rdmux_wr wr = { .op = RDMUX_OP_SEND, .sges = &sge, .sge_count = 1 };
    CHECK_STATUS(rdmux_send(ep, &word, sizeof(word), NULL, NULL, 0), expected);
    CHECK_STATUS(rdmux_send_imm(ep, &word, sizeof(word), NULL, 1, NULL, 0), expected);
    CHECK_STATUS(rdmux_write(ep, NULL, 0, NULL, NULL, 0, NULL, RDMUX_PLACED), expected);
    CHECK_STATUS(rdmux_write_imm(ep, &word, sizeof(word), NULL, NULL, 0, 1, NULL, 0), expected);
    CHECK_STATUS(rdmux_read(ep, &word, sizeof(word), NULL, NULL, 0, NULL, 0), expected);
    CHECK_STATUS(rdmux_fetch_add(ep, &word, NULL, NULL, 0, 1, NULL, 0), expected);
    CHECK_STATUS(rdmux_compare_swap(ep, &word, NULL, NULL, 0, 0, 1, NULL, 0), expected);
    CHECK_STATUS(rdmux_post(ep, &wr, 1, &posted), expected);
    assert_int_equal(posted, 0);
    assert_string_not_equal(rdmux_last_error(), "");
}

static void what_may_be_done_before_the_connection_is_there_works(void **state)
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

static void a_set_up_that_failed_ends_what_was_posted_and_tells_its_cause(void **state)
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

static void an_ended_endpoint_says_why_until_it_is_closed(void **state)
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

static void a_closed_endpoint_gives_its_user_until_the_next_poll_and_nothing_else(void **state)
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
    uint64_t begin = now_ms();

    CHECK_OK(rdmux_ep_close(a));

    assert_true(now_ms() - begin <= 10 * SLACK);
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

/* ------------------------------------------------------------------------------------------------- time */

static void a_connect_that_nobody_accepts_is_over_in_time_and_leaves_nothing(void **state)
{
    (void)state;
    enum { LIMIT_MS = 250 };
    struct scene scene;
    set_scene(&scene, "tcp", 0);
    struct pair *pair = &scene.pair;
    struct rdmux_ep *ep = NULL;
    uint64_t begin = now_ms();

    CHECK_STATUS(rdmux_connect(pair->fabric_a, pair->cq_a, pair->address, NULL, LIMIT_MS, &ep),
                 RDMUX_TIMED_OUT);

    uint64_t took = now_ms() - begin;
    assert_null(ep);
    assert_true(took >= LIMIT_MS - 10 && took < (LIMIT_MS + 300) * SLACK);
    assert_non_null(strstr(rdmux_last_error(), "negotiating"));
    CHECK_STATUS(rdmux_accept(pair->listener, pair->cq_b, NULL, 50, &ep),
                 RDMUX_TIMED_OUT); /* it is gone */
    connect_more(pair, NULL, &pair->a, &pair->b);
    check_messages(pair);
    clear_scene(&scene);
}

static void a_set_up_that_is_not_waited_for_ends_in_time_with_an_event(void **state)
{
    (void)state;
    enum { LIMIT_MS = 250 };
    struct scene scene;
    set_scene(&scene, "tcp", 0);
    struct pair *pair = &scene.pair;
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    attr.setup_timeout_ms = LIMIT_MS;
    uint64_t begin = now_ms();
    CHECK_STATUS(rdmux_connect(pair->fabric_a, pair->cq_a, pair->address, &attr, 0, &pair->a),
                 RDMUX_IN_PROGRESS);

    expect_entry(pair->cq_a, RDMUX_WC_CONNECTED, RDMUX_TIMED_OUT);

    uint64_t took = now_ms() - begin;
    assert_true(took >= LIMIT_MS - 10 && took < (LIMIT_MS + 300) * SLACK);
    assert_int_equal(state_of(pair->a), RDMUX_EP_ENDED);
    check_posts(pair->a, RDMUX_TIMED_OUT);
    clear_scene(&scene);
}

static void nobody_listening_is_told_at_once(void **state)
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

static void attempts_that_fail_leave_no_memory_behind_without_a_poll(void **state)
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

/* ------------------------------------------------------------------------------------------------- close at any moment */

/* Both sides go on a little. */
static void step(struct pair *pair, unsigned count)
{
    struct rdmux_wc wc;
    for (unsigned i = 0; i < count; i++) {
        (void)rdmux_cq_poll(pair->cq_a, &wc, 1);
        (void)rdmux_cq_poll(pair->cq_b, &wc, 1);
        CHECK_OK(rdmux_fabric_progress(pair->fabric_a));
        CHECK_OK(rdmux_fabric_progress(pair->fabric_b));
    }
}

enum who {
    WHO_CONNECTOR,
    WHO_ACCEPTOR,
    WHO_BOTH,
    WHO_COUNT,
};

/* A connection is made; after so many steps somebody gives up. Returns whether it was there by then. */
static bool close_after(struct scene *scene, unsigned steps, enum who who)
{
    struct pair *pair = &scene->pair;
    struct rdmux_peer peer = RDMUX_PEER_INIT;
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    struct rdmux_ep *a = NULL;
    struct rdmux_ep *b = NULL;
    CHECK_STATUS(rdmux_connect(pair->fabric_a, pair->cq_a, pair->address, NULL, 0, &a),
                 RDMUX_IN_PROGRESS);
    uint64_t until = now_ms() + PATIENT_MS;
    enum rdmux_status status;
    do {
        step(pair, 1);
        status = rdmux_listener_next(pair->listener, 0, &peer);
        assert_true(now_ms() < until);
    } while (status == RDMUX_AGAIN);
    CHECK_OK(status);
    attr.peer = peer.id;
    CHECK_STATUS(rdmux_accept(pair->listener, pair->cq_b, &attr, 0, &b), RDMUX_IN_PROGRESS);
    for (unsigned i = 0;
         i < steps && (state_of(a) == RDMUX_EP_CONNECTING || state_of(b) == RDMUX_EP_CONNECTING);
         i++) {
        step(pair, 1);
    }
    bool there = state_of(a) == RDMUX_EP_CONNECTED && state_of(b) == RDMUX_EP_CONNECTED;
    uint64_t begin = now_ms();

    if (who != WHO_ACCEPTOR) {
        CHECK_OK(rdmux_ep_close(a));
    }
    if (who != WHO_CONNECTOR) {
        CHECK_OK(rdmux_ep_close(b));
    }

    struct rdmux_ep *left = who == WHO_CONNECTOR ? b : who == WHO_ACCEPTOR ? a : NULL;
    while (left != NULL && state_of(left) != RDMUX_EP_ENDED) {
        step(pair, 1);
        assert_true(now_ms() - begin < PATIENT_MS);
    }
    if (left != NULL) {
        CHECK_OK(rdmux_ep_close(left));
    }
    return there;
}

static void an_endpoint_may_be_closed_at_any_moment_of_its_set_up(void **state)
{
    (void)state;
    enum { STEPS_MAX = 400 };
    for (size_t i = 0; i < RDMUX_COUNT_OF(all_paths); i++) {
        for (int who = WHO_CONNECTOR; who < WHO_COUNT; who++) {
            struct scene scene;
            set_scene(&scene, all_paths[i],
                      RDMUX_FABRIC_NO_SERVICE_THREAD); /* so that nothing moves between the steps */
            bool there = false;
            for (unsigned steps = 0; steps < STEPS_MAX && !there; steps++) {
                there = close_after(&scene, steps, (enum who)who);
            }
            assert_true(there); /* every stage was seen */
            connect_more(&scene.pair, NULL, &scene.pair.a, &scene.pair.b);
            check_messages(&scene.pair);
            clear_scene(&scene);
        }
    }
}

/* ------------------------------------------------------------------------------------------------- shutdown */

/* Waits for it in a thread of its own. */
struct ender {
    struct rdmux_ep *ep;
    enum rdmux_status status;
};

static void *shut_down(void *argument)
{
    struct ender *ender = argument;
    ender->status = rdmux_ep_shutdown(ender->ep, PATIENT_MS);
    return NULL;
}

static void both_sides_may_shut_down_at_once(void **state)
{
    (void)state;
    for (size_t i = 0; i < RDMUX_COUNT_OF(all_paths); i++) {
        for (int waits = 0; waits <= 1; waits++) {
            struct scene scene;
            struct rdmux_wc wc;
            set_scene(&scene, all_paths[i], 0);
            struct pair *pair = &scene.pair;
            connect_more(pair, NULL, &pair->a, &pair->b);
            if (waits) {
                struct ender ender = { .ep = pair->a };
                pthread_t thread;
                assert_int_equal(pthread_create(&thread, NULL, shut_down, &ender), 0);

                CHECK_OK(rdmux_ep_shutdown(pair->b, PATIENT_MS));

                assert_int_equal(pthread_join(thread, NULL), 0);
                assert_int_equal(ender.status, RDMUX_OK);
                assert_int_equal(rdmux_cq_poll(pair->cq_a, &wc, 1),
                                 0); /* no event after a call that waited */
                assert_int_equal(rdmux_cq_poll(pair->cq_b, &wc, 1), 0);
            } else {
                CHECK_STATUS(rdmux_ep_shutdown(pair->a, 0), RDMUX_IN_PROGRESS);
                CHECK_STATUS(rdmux_ep_shutdown(pair->b, 0), RDMUX_IN_PROGRESS);
                check_posts(pair->a, RDMUX_INVALID); /* too late, it says so */

                expect_entry(pair->cq_a, RDMUX_WC_DISCONNECTED, RDMUX_OK);
                expect_entry(pair->cq_b, RDMUX_WC_DISCONNECTED, RDMUX_OK);
            }
            struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
            CHECK_OK(rdmux_ep_info(pair->a, &info));
            assert_int_equal(info.state, RDMUX_EP_ENDED);
            assert_int_equal(info.status, RDMUX_OK);
            clear_scene(&scene);
        }
    }
}

static void who_shuts_down_after_the_peer_has_done_so_is_told_ok_and_gets_no_event(void **state)
{
    (void)state;
    for (size_t i = 0; i < RDMUX_COUNT_OF(all_paths); i++) {
        struct scene scene;
        struct rdmux_wc wc;
        set_scene(&scene, all_paths[i], 0);
        struct pair *pair = &scene.pair;
        connect_more(pair, NULL, &pair->a, &pair->b);
        CHECK_OK(rdmux_ep_shutdown(
            pair->a, PATIENT_MS)); /* b's service thread answers; b has not looked yet */

        CHECK_OK(rdmux_ep_shutdown(pair->b, PATIENT_MS));

        assert_int_equal(rdmux_cq_poll(pair->cq_b, &wc, 1), 0);
        assert_int_equal(rdmux_cq_poll(pair->cq_a, &wc, 1), 0);
        clear_scene(&scene);
    }
}

static void everything_posted_before_a_shutdown_arrives(void **state)
{
    (void)state;
    enum { COUNT = 40, LENGTH = 60000 };
    for (size_t i = 0; i < RDMUX_COUNT_OF(all_paths); i++) {
        struct scene scene;
        struct rdmux_wc wc;
        set_scene(&scene, all_paths[i], 0);
        struct pair *pair = &scene.pair;
        connect_more(pair, NULL, &pair->a, &pair->b);
        unsigned char *sent = malloc(LENGTH);
        unsigned char *got = calloc(COUNT, LENGTH);
        assert_non_null(sent);
        assert_non_null(got);
        for (size_t k = 0; k < LENGTH; k++) {
            sent[k] = (unsigned char)(k * 7);
        }
        for (size_t k = 0; k < COUNT; k++) {
            CHECK_OK(rdmux_recv(pair->b, got + k * LENGTH, LENGTH, NULL, CONTEXT(k)));
            CHECK_OK(rdmux_send(pair->a, sent, LENGTH, NULL, NULL, RDMUX_UNSIGNALED));
        }

        CHECK_OK(rdmux_ep_shutdown(pair->a, PATIENT_MS));

        for (size_t k = 0; k < COUNT; k++) {
            wc = expect_entry(pair->cq_b, RDMUX_WC_RECV, RDMUX_OK);
            assert_ptr_equal(wc.context, CONTEXT(k));
            assert_memory_equal(got + k * LENGTH, sent, LENGTH);
        }
        expect_entry(pair->cq_b, RDMUX_WC_DISCONNECTED, RDMUX_OK);
        free(sent);
        free(got);
        clear_scene(&scene);
    }
}

static void a_shutdown_that_the_peer_does_not_take_is_over_in_time(void **state)
{
    (void)state;
    enum { LIMIT_MS = 200 };
    for (size_t i = 0; i < RDMUX_COUNT_OF(all_paths); i++) {
        struct scene scene;
        uint64_t word = 1;
        set_scene(&scene, all_paths[i], 0);
        struct pair *pair = &scene.pair;
        connect_more(pair, NULL, &pair->a, &pair->b);
        CHECK_OK(rdmux_send(pair->a, &word, sizeof(word), NULL, CONTEXT(1),
                            RDMUX_PLACED)); /* b has no receive for it */
        uint64_t begin = now_ms();

        CHECK_STATUS(rdmux_ep_shutdown(pair->a, LIMIT_MS), RDMUX_TIMED_OUT);

        uint64_t took = now_ms() - begin;
        assert_true(took >= LIMIT_MS - 10 && took < (LIMIT_MS + 300) * SLACK);
        struct rdmux_wc wc = expect_entry(pair->cq_a, RDMUX_WC_SEND, RDMUX_PEER_GONE);
        assert_ptr_equal(wc.context, CONTEXT(1));
        expect_entry(pair->cq_a, RDMUX_WC_DISCONNECTED, RDMUX_PEER_GONE);
        expect_entry(pair->cq_b, RDMUX_WC_DISCONNECTED, RDMUX_PEER_GONE);
        clear_scene(&scene);
    }
}

/* ------------------------------------------------------------------------------------------------- the listener's end */

static void a_listener_may_be_closed_with_connections_in_every_stage(void **state)
{
    (void)state;
    enum { PROMPT_MS = 1000 };
    for (size_t i = 0; i < RDMUX_COUNT_OF(all_paths); i++) {
        struct scene scene;
        set_scene(&scene, all_paths[i], 0);
        struct pair *pair = &scene.pair;
        struct rdmux_ep *none = NULL;
        struct rdmux_ep *proved = NULL;
        struct rdmux_ep *shown = NULL;
        struct rdmux_ep *waiting = NULL;
        struct rdmux_peer peer = RDMUX_PEER_INIT;
        connect_more(pair, NULL, &pair->a, &pair->b); /* returned: lives on */
        CHECK_STATUS(rdmux_connect(pair->fabric_a, pair->cq_a, pair->address, NULL, 0, &proved),
                     RDMUX_IN_PROGRESS);
        struct pollfd look = { .fd = rdmux_listener_fd(pair->listener), .events = POLLIN };
        assert_int_equal(poll(&look, 1, PATIENT_MS), 1);
        enum rdmux_status status = rdmux_accept(pair->listener, pair->cq_b, NULL, 0,
                                                &none); /* taken, not returned */
        CHECK_STATUS(status, RDMUX_AGAIN);
        expect_entry(pair->cq_a, RDMUX_WC_CONNECTED, RDMUX_OK);
        int silent = dial_raw(pair->address);
        CHECK_STATUS(rdmux_connect(pair->fabric_a, pair->cq_a, pair->address, NULL, 0, &shown),
                     RDMUX_IN_PROGRESS);
        CHECK_OK(rdmux_listener_next(pair->listener, PATIENT_MS, &peer));
        CHECK_STATUS(rdmux_connect(pair->fabric_a, pair->cq_a, pair->address, NULL, 0, &waiting),
                     RDMUX_IN_PROGRESS);
        assert_int_equal(poll(&look, 1, PATIENT_MS), 1);
        uint64_t begin = now_ms();

        rdmux_listener_close(pair->listener);

        pair->listener = NULL;
        assert_true(is_dropped(silent, PATIENT_MS));
        bool ended[3] = { false };
        struct rdmux_ep *eps[3] = { proved, shown, waiting };
        for (int k = 0; k < 3; k++) {
            struct rdmux_wc wc = next_entry(pair->cq_a);
            for (int n = 0; n < 3; n++) {
                if (wc.ep == eps[n]) {
                    assert_false(ended[n]);
                    assert_int_equal(wc.opcode, n == 0 ? RDMUX_WC_DISCONNECTED : RDMUX_WC_CONNECTED);
                    assert_int_equal(wc.status, RDMUX_PEER_GONE);
                    ended[n] = true;
                }
            }
        }
        assert_true(ended[0] && ended[1] && ended[2]);
        if (now_ms() - begin > PROMPT_MS * SLACK) {
            fail_msg("%s: %llu ms", all_paths[i], (unsigned long long)(now_ms() - begin));
        }
        check_messages(pair);
        close(silent);
        for (int n = 0; n < 3; n++) {
            CHECK_OK(rdmux_ep_close(eps[n]));
        }
        clear_scene(&scene);
    }
}

static void a_cq_can_be_destroyed_although_accepts_on_it_were_under_way(void **state)
{
    (void)state;
    for (int order = 0; order <= 1; order++) {
        struct scene scene;
        set_scene(&scene, "tcp", RDMUX_FABRIC_NO_SERVICE_THREAD);
        struct pair *pair = &scene.pair;
        struct rdmux_ep *none = NULL;
        for (int i = 0; i < 2; i++) { /* one is proved, one has just begun */
            struct rdmux_ep *ep = NULL;
            CHECK_STATUS(rdmux_connect(pair->fabric_a, pair->cq_a, pair->address, NULL, 0, &ep),
                         RDMUX_IN_PROGRESS);
            uint64_t until = now_ms() + PATIENT_MS;
            while (i == 0 && pair->cq_b->accepting.next == &pair->cq_b->accepting &&
                   now_ms() < until) {
                step(pair, 1);
                CHECK_STATUS(rdmux_accept(pair->listener, pair->cq_b, NULL, 0, &none), RDMUX_AGAIN);
            }
            while (i == 0 && state_of(ep) != RDMUX_EP_CONNECTED && now_ms() < until) {
                step(pair, 1);
            }
            step(pair, 20);
            (i == 0 ? &pair->a : &pair->b)[0] = ep;
        }
        assert_int_equal(state_of(pair->a), RDMUX_EP_CONNECTED);

        if (order == 0) {
            rdmux_listener_close(pair->listener);
            pair->listener = NULL;
        }
        CHECK_OK(rdmux_cq_destroy(pair->cq_b));
        pair->cq_b = NULL;
        rdmux_listener_close(pair->listener);
        pair->listener = NULL;
        clear_scene(&scene);
    }
}

/* ------------------------------------------------------------------------------------------------- no memory */

enum { BRIEF_MS = 100 };

/* A life of a side, in which an allocation may fail: whatever fails must leave the rest to be ended in order. */
struct life {
    struct meter meter;
    struct rdmux_fabric *fabric;
    struct rdmux_cq *cq;
    struct rdmux_listener *listener;
    struct rdmux_mr *mr;
    struct rdmux_ep *ep;
};

static enum rdmux_status begin_life(struct life *life, const char *paths, long failing)
{
    struct rdmux_fabric_attr attr = RDMUX_FABRIC_ATTR_INIT;
    memset(life, 0, sizeof(*life));
    atomic_store(&life->meter.left, failing);
    attr.flags = RDMUX_FABRIC_IGNORE_ENVIRONMENT | RDMUX_FABRIC_NO_DEFAULT_PLUGINS;
    attr.paths = paths;
    attr.allocate = meter_allocate;
    attr.release = meter_release;
    attr.allocate_user = &life->meter;
    enum rdmux_status status = rdmux_fabric_open(&attr, &life->fabric);
    if (status == RDMUX_OK) {
        status = rdmux_cq_create(life->fabric, NULL, &life->cq);
    }
    if (status == RDMUX_OK) {
        status = rdmux_listen(life->fabric, "127.0.0.1:0", NULL, &life->listener);
    }
    if (status == RDMUX_OK) {
        status = rdmux_mr_alloc(life->fabric, 4096, RDMUX_ACCESS_REMOTE_WRITE, &life->mr);
    }
    return status;
}

static void end_life(struct life *life)
{
    CHECK_OK(rdmux_ep_close(life->ep));
    rdmux_mr_deregister(life->mr);
    rdmux_listener_close(life->listener);
    CHECK_OK(rdmux_cq_destroy(life->cq));
    CHECK_OK(rdmux_fabric_close(life->fabric));
    assert_int_equal(atomic_load(&life->meter.pieces), 0);
}

/* a connects to b, writes to it, and both end. Whatever fails ends the attempt. */
static void try_to_meet(struct life *a, struct life *b)
{
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    struct rdmux_token token;
    struct rdmux_remote *remote = NULL;
    char address[RDMUX_ADDRESS_MAX];
    attr.path_timeout_ms = BRIEF_MS / 2;
    attr.setup_timeout_ms = BRIEF_MS;
    CHECK_OK(rdmux_listener_address(b->listener, address, sizeof(address)));
    enum rdmux_status status = rdmux_connect(a->fabric, a->cq, address, &attr, 0, &a->ep);
    if (status != RDMUX_IN_PROGRESS) {
        assert_null(a->ep);
        assert_string_not_equal(rdmux_last_error(), "");
        return;
    }
    status = rdmux_accept(b->listener, b->cq, &attr, BRIEF_MS, &b->ep);
    struct rdmux_wc wc = next_entry(a->cq);
    assert_int_equal(wc.opcode, RDMUX_WC_CONNECTED);
    if (status != RDMUX_OK || wc.status != RDMUX_OK) {
        return;
    }
    if (rdmux_mr_export(b->mr, &token) == RDMUX_OK &&
        rdmux_remote_import(a->ep, &token, BRIEF_MS, &remote) == RDMUX_OK) {
        uint64_t word = 7;
        CHECK_OK(rdmux_write(a->ep, &word, sizeof(word), NULL, remote, 0, NULL, RDMUX_PLACED));
        wc = next_entry(a->cq);
        assert_true(wc.opcode == RDMUX_WC_WRITE);
        (void)rdmux_mr_revoke(b->mr);
    }
    (void)!rdmux_ep_shutdown(a->ep, BRIEF_MS);
}

static void memory_that_runs_out_at_any_moment_is_told_and_leaks_nothing(void **state)
{
    (void)state;
    enum { ALLOCATIONS_MAX = 400 };
    for (size_t i = 0; i < RDMUX_COUNT_OF(all_paths); i++) {
        for (int acceptor = 0; acceptor <= 1; acceptor++) {
            bool failed = true;
            size_t descriptors = open_descriptors();
            for (long at = 1; failed; at++) {
                struct life poor;
                struct life rich;
                assert_true(at < ALLOCATIONS_MAX);
                assert_int_equal(begin_life(&rich, all_paths[i], 0), RDMUX_OK);
                enum rdmux_status status = begin_life(&poor, all_paths[i], at);
                if (status == RDMUX_OK) {
                    try_to_meet(acceptor ? &rich : &poor, acceptor ? &poor : &rich);
                } else {
                    assert_int_equal(status, RDMUX_NO_MEMORY);
                    assert_string_not_equal(rdmux_last_error(), "");
                }
                failed = atomic_load(&poor.meter.left) <= 0;
                end_life(&poor);
                end_life(&rich);
            }
            assert_int_equal(open_descriptors(), descriptors);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_bad_attribute_is_refused_by_name),
        cmocka_unit_test(limits_of_attributes_are_allowed),
        cmocka_unit_test(attributes_of_an_older_and_of_a_newer_program_work),
        cmocka_unit_test(strings_of_attributes_need_to_live_during_the_call_only),
        cmocka_unit_test(infos_are_filled_as_far_as_the_program_knows_them),
        cmocka_unit_test(a_cq_without_room_refuses_an_endpoint),
        cmocka_unit_test(what_may_be_done_before_the_connection_is_there_works),
        cmocka_unit_test(a_set_up_that_failed_ends_what_was_posted_and_tells_its_cause),
        cmocka_unit_test(an_ended_endpoint_says_why_until_it_is_closed),
        cmocka_unit_test(a_closed_endpoint_gives_its_user_until_the_next_poll_and_nothing_else),
        cmocka_unit_test(a_connect_that_nobody_accepts_is_over_in_time_and_leaves_nothing),
        cmocka_unit_test(a_set_up_that_is_not_waited_for_ends_in_time_with_an_event),
        cmocka_unit_test(nobody_listening_is_told_at_once),
        cmocka_unit_test(attempts_that_fail_leave_no_memory_behind_without_a_poll),
        cmocka_unit_test(an_endpoint_may_be_closed_at_any_moment_of_its_set_up),
        cmocka_unit_test(both_sides_may_shut_down_at_once),
        cmocka_unit_test(who_shuts_down_after_the_peer_has_done_so_is_told_ok_and_gets_no_event),
        cmocka_unit_test(everything_posted_before_a_shutdown_arrives),
        cmocka_unit_test(a_shutdown_that_the_peer_does_not_take_is_over_in_time),
        cmocka_unit_test(a_listener_may_be_closed_with_connections_in_every_stage),
        cmocka_unit_test(a_cq_can_be_destroyed_although_accepts_on_it_were_under_way),
        cmocka_unit_test(memory_that_runs_out_at_any_moment_is_told_and_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
