/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The RoCE provider over simulated adapters: how it reacts to the contents of an adapter's address
 * table and to its changes, completion queues and their room, and the change of a cq. The addresses
 * by which a program names a port, of InfiniBand, too. */
#include "tests/unit/simulated_scene.h"
#include "verbs/verbs_completion.h"
#include "verbs/verbs_connection.h"
#include "verbs/verbs_domain.h"
#include "verbs/verbs_endpoint.h"

enum { FAR = 2, INLINE_UNASKED = 256 };

static void a_roce_path_names_its_address_and_port(void **state)
{
    (void)state;
    struct scene scene;
    struct rdmux_local_path path;
    size_t count = 0;
    set_roce_scene(&scene);
    set_gid(scene.device, 3, "192.0.2.7", NEAR);
    memset(&path, 0, sizeof(path));

    CHECK_OK(rdmux_roce_provider.probe(scene.pair.fabric_a, &path, 1, &count));

    assert_int_equal(count, 1);
    assert_int_equal(path.reason, RDMUX_REASON_USABLE);
    assert_string_equal(path.address, "192.0.2.7, port 1");
    clear_scene(&scene);
}

/* One of each family first, then the others, without those of the link: other ports may have them. */
static void a_roce_path_lists_every_address_of_its_port(void **state)
{
    (void)state;
    struct scene scene;
    struct rdmux_local_path path;
    size_t count = 0;
    set_roce_scene(&scene);
    set_gid(scene.device, 0, "fe80::7", NEAR);
    set_gid(scene.device, 1, "192.0.2.7", NEAR);
    set_gid(scene.device, 2, "192.0.2.70", NEAR);
    set_gid(scene.device, 3, "2001:db8::7", NEAR);
    set_gid(scene.device, 4, "192.0.2.7", NEAR);
    memset(&path, 0, sizeof(path));

    CHECK_OK(rdmux_roce_provider.probe(scene.pair.fabric_a, &path, 1, &count));

    assert_string_equal(path.address, "192.0.2.7, 2001:db8::7, 192.0.2.70, port 1");
    clear_scene(&scene);
}

/* Connects from an address. Returns the outcome. */
static enum rdmux_status connect_from(struct pair *pair, const char *local)
{
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    struct rdmux_wc wc = { .opcode = 0 };
    attr.local = local;
    CHECK_STATUS(rdmux_connect(pair->fabric_a, pair->cq_a, pair->address, &attr, 0, &pair->a),
                 RDMUX_IN_PROGRESS);
    const uint64_t until = now_ms() + PATIENT_MS;
    while (wc.opcode == 0 || (wc.status == RDMUX_OK && pair->b == NULL)) {
        assert_true(now_ms() < until);
        if (pair->b == NULL) {
            enum rdmux_status status = rdmux_accept(pair->listener, pair->cq_b, NULL, 0, &pair->b);
            assert_true(status == RDMUX_OK || status == RDMUX_AGAIN);
        }
        progress_both(pair);
        (void)rdmux_cq_poll(pair->cq_b, NULL, 0);
        if (wc.opcode == 0) {
            (void)rdmux_cq_poll(pair->cq_a, &wc, 1);
        }
    }
    assert_int_equal(wc.opcode, RDMUX_WC_CONNECTED);
    return (enum rdmux_status)wc.status;
}

/* Not only its first one, and its packets then come from there. */
static void an_address_of_the_adapter_selects_its_path(void **state)
{
    (void)state;
    static const struct {
        const char *local;
        enum rdmux_status status;
    } cases[] = {
        { "127.0.0.1", RDMUX_OK },
        { "127.0.0.3", RDMUX_OK },
        { "127.0.0.4", RDMUX_NO_PATH },  /* of this host, and not of the adapter */
        { "127.0.0.30", RDMUX_NO_PATH }, /* begins like one of the adapter */
    };
    for (size_t i = 0; i < RDMUX_COUNT_OF(cases); i++) {
        struct scene scene;
        struct pair *pair = &scene.pair;
        uint8_t gid[VERBS_GID_SIZE] = { [10] = 0xff, [11] = 0xff };
        set_roce_scene(&scene);
        set_gid(scene.device, 1, "127.0.0.1", NEAR);
        set_gid(scene.device, 2, "127.0.0.3", NEAR);
        listen_in(&scene);
        assert_int_equal(inet_pton(AF_INET, cases[i].local, gid + 12), 1);

        assert_int_equal(connect_from(pair, cases[i].local), cases[i].status);

        if (cases[i].status == RDMUX_OK) {
            const struct verbs_whereabouts *where = &verbs_ep_of(pair->a->path)->ours.where;
            size_t at = rdmux_verbs_address_of_kind(where, VERBS_ADDRESS_IPV4);
            assert_true(at < VERBS_ADDRESSES_MAX);
            assert_memory_equal(where->addresses[at].gid, gid, sizeof(gid));
        }
        clear_scene(&scene);
    }
}

static void an_ib_path_lists_the_addresses_of_its_ip_interface(void **state)
{
    (void)state;
    struct scene scene;
    struct rdmux_local_path path;
    size_t count = 0;
    uint8_t gid[VERBS_GID_SIZE];
    set_scene(&scene, "ib", &rdmux_ib_provider, "link=ib", RDMUX_FABRIC_NO_WORKER_THREAD);
    memset(&path, 0, sizeof(path));
    host_addresses[0] = "192.0.2.40";
    host_addresses[1] = NULL;
    CHECK_OK(rdmux_ib_provider.probe(scene.pair.fabric_a, &path, 1, &count));
    const char *named = strstr(path.address, "GID ");
    assert_non_null(named);
    assert_int_equal(inet_pton(AF_INET6, named + strlen("GID "), gid), 1);
    assert_null(strstr(path.address, "192.0.2.40"));

    for (int of_another = 0; of_another <= 1; of_another++) {
        memset(&path, 0, sizeof(path));
        gid[VERBS_GID_SIZE - 1] ^= (uint8_t)of_another;
        host_gid = gid;
        CHECK_OK(rdmux_ib_provider.probe(scene.pair.fabric_a, &path, 1, &count));
        assert_int_equal(strstr(path.address, ", 192.0.2.40") != NULL, !of_another);
    }
    host_gid = NULL;
    host_addresses[0] = NULL;
    clear_scene(&scene);
}

static void addresses_of_both_families_use_the_interface_on_the_route_to_the_peer(void **state)
{
    (void)state;
    struct scene scene;
    struct in6_addr near;
    set_roce_scene(&scene);
    set_gid(scene.device, 0, "2001:db8::1", FAR);
    set_gid(scene.device, 1, "2001:db8::2", NEAR);
    set_gid(scene.device, 2, "127.0.0.1", NEAR);
    assert_int_equal(inet_pton(AF_INET6, "2001:db8::2", &near), 1);

    connect_scene(&scene);

    const struct verbs_whereabouts *where = &verbs_ep_of(scene.pair.a->path)->ours.where;
    size_t at = rdmux_verbs_address_of_kind(where, VERBS_ADDRESS_IPV6);
    assert_true(at < VERBS_ADDRESSES_MAX);
    assert_memory_equal(where->addresses[at].gid, &near, sizeof(near));
    clear_scene(&scene);
}

static void a_roce_endpoint_ends_when_its_own_address_is_removed_and_not_another_one(void **state)
{
    (void)state;
    struct scene scene;
    struct pair *pair = &scene.pair;
    set_roce_scene(&scene);
    set_gid(scene.device, 5, "127.0.0.1", NEAR);
    set_gid(scene.device, 6, "192.0.2.7", NEAR);
    connect_scene(&scene);

    set_gid(scene.device, 6, NULL, 0);
    progress_both(pair);
    check_messages(pair);
    set_gid(scene.device, 5, NULL, 0);
    progress_both(pair);

    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    (void)expect_entry(pair->cq_a, RDMUX_WC_DISCONNECTED, RDMUX_PEER_GONE);
    CHECK_OK(rdmux_ep_info(pair->a, &info));
    assert_non_null(strstr(info.text, "127.0.0.1 is gone from the adapter's GID table"));
    clear_scene(&scene);
}

/* The trial of the adapter finds it out, before the first endpoint is opened. */
static void an_adapter_with_wrong_atomics_is_given_none(void **state)
{
    (void)state;
    static const struct {
        const char *options;
        bool has_atomics;
    } cases[] = {
        { "link=roce,name=good,atomics=glob", true },
        { "link=roce,name=bad,atomics=glob,swapped=yes", false },
    };
    for (size_t i = 0; i < RDMUX_COUNT_OF(cases); i++) {
        struct scene scene;
        set_scene(&scene, "roce", &rdmux_roce_provider, cases[i].options,
                  RDMUX_FABRIC_NO_WORKER_THREAD);
        set_gid(scene.device, 0, "127.0.0.1", NEAR);

        connect_scene(&scene);

        const struct verbs_domain *domain = verbs_domain_of_ep(verbs_ep_of(scene.pair.a->path));
        assert_int_equal(domain->attr.atomic_cap != IBV_ATOMIC_NONE, cases[i].has_atomics);
        clear_scene(&scene);
    }
}

/* The writes wrap around the fast path's ring several times, and the program reads the count while
 * the fast path is open. */
static void fast_path_writes_are_counted(void **state)
{
    (void)state;
    enum { DEPTH = 8, WRITES = 50 };
    static uint64_t there;
    struct scene scene;
    struct pair *pair = &scene.pair;
    struct rdmux_mr *mr = NULL;
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    struct rdmux_ep_stats stats = RDMUX_EP_STATS_INIT;
    attr.send_depth = DEPTH;
    set_roce_scene(&scene);
    set_gid(scene.device, 0, "127.0.0.1", NEAR);
    listen_in(&scene);
    connect_more(pair, &attr, &pair->a, &pair->b);
    CHECK_OK(
        rdmux_mr_register(pair->fabric_b, &there, sizeof(there), RDMUX_ACCESS_REMOTE_WRITE, &mr));
    struct rdmux_remote *remote = import_simulated(pair, mr);

    for (uint64_t i = 0; i < WRITES; i++) {
        CHECK_OK(rdmux_write(pair->a, &i, sizeof(i), NULL, remote, 0, CONTEXT(i), RDMUX_INLINE));
        assert_ptr_equal(poll_entry(pair->cq_a).context, CONTEXT(i));
    }

    assert_ptr_not_equal(pair->a->fast, pair->cq_a->fast.none);
    CHECK_OK(rdmux_ep_stats(pair->a, &stats));
    assert_int_equal(stats.writes, WRITES);
    assert_int_equal(stats.bytes_sent, WRITES * sizeof(uint64_t));
    rdmux_remote_close(remote);
    rdmux_mr_deregister(mr);
    clear_scene(&scene);
}

/* As much as the adapter inlines, and at least 64 bytes, which are then copied. */
static void without_a_wish_inline_is_what_the_adapter_takes(void **state)
{
    (void)state;
    static const struct {
        const char *options;
        uint32_t least, most;
    } cases[] = {
        { "link=roce,name=good", RDMUX_INLINE_MIN + 1, INLINE_UNASKED },
        { "link=roce,name=poor,max_inline=16", RDMUX_INLINE_MIN, RDMUX_INLINE_MIN },
    };
    for (size_t i = 0; i < RDMUX_COUNT_OF(cases); i++) {
        struct scene scene;
        struct pair *pair = &scene.pair;
        uint8_t message[INLINE_UNASKED] = { 1 };
        uint8_t got[sizeof(message)];
        struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
        set_scene(&scene, "roce", &rdmux_roce_provider, cases[i].options,
                  RDMUX_FABRIC_NO_WORKER_THREAD);
        set_gid(scene.device, 0, "127.0.0.1", NEAR);

        connect_scene(&scene);

        CHECK_OK(rdmux_ep_info(pair->a, &info));
        assert_in_range(info.max_inline, cases[i].least, cases[i].most);
        CHECK_OK(rdmux_recv(pair->b, got, sizeof(got), NULL, NULL));
        CHECK_OK(rdmux_send(pair->a, message, info.max_inline, NULL, NULL, RDMUX_INLINE));
        poll_both(pair);
        assert_int_equal(expect_entry(pair->cq_b, RDMUX_WC_RECV, RDMUX_OK).length, info.max_inline);
        assert_int_equal(got[0], 1);
        clear_scene(&scene);
    }
}

/* Sends empty messages from a side that alone makes progress. */
static void send_messages(struct rdmux_ep *from, struct rdmux_cq *cq, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        CHECK_OK(rdmux_send(from, NULL, 0, NULL, CONTEXT(i), 0));
        struct rdmux_wc wc = poll_entry(cq);
        assert_int_equal(wc.opcode, RDMUX_WC_SEND);
        assert_int_equal(wc.status, RDMUX_OK);
    }
}

static void expect_receives(struct rdmux_cq *cq, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        struct rdmux_wc wc = poll_entry(cq);
        assert_int_equal(wc.opcode, RDMUX_WC_RECV);
        assert_int_equal(wc.status, RDMUX_OK);
    }
}

/* One endpoint of a cq has its own receives, the other one an SRQ. A completion queue of the device
 * has room for the receives of either, but not of both: if they shared one it would overrun, as
 * neither polls. */
static void a_completion_queue_is_shared_only_up_to_its_room(void **state)
{
    (void)state;
    enum { OWN = 200, SHARED = 100, FEW = 4 };
    struct scene scene;
    struct pair *pair = &scene.pair;
    struct rdmux_ep_attr few = RDMUX_EP_ATTR_INIT;
    struct rdmux_ep_attr own = RDMUX_EP_ATTR_INIT;
    struct rdmux_ep_attr shared = RDMUX_EP_ATTR_INIT;
    struct rdmux_srq_attr srq_attr = RDMUX_SRQ_ATTR_INIT;
    struct rdmux_ep *second_a = NULL;
    struct rdmux_ep *second_b = NULL;
    few.send_depth = FEW;
    few.recv_depth = FEW;
    own.send_depth = FEW;
    own.recv_depth = OWN;
    shared.send_depth = SHARED / 2; /* of up to two work requests each */
    srq_attr.depth = SHARED;
    srq_attr.device_share = SHARED;
    set_scene(&scene, "roce", &rdmux_roce_provider, "link=roce,max_cqe=256",
              RDMUX_FABRIC_NO_WORKER_THREAD);
    set_gid(scene.device, 0, "127.0.0.1", NEAR);
    listen_in(&scene);
    CHECK_OK(rdmux_srq_create(pair->fabric_b, pair->cq_b, &srq_attr, &shared.srq));
    connect_as(pair, &few, &own, &pair->a, &pair->b);
    connect_as(pair, &few, &shared, &second_a, &second_b);
    for (uint32_t i = 0; i < OWN; i++) {
        CHECK_OK(rdmux_recv(pair->b, NULL, 0, NULL, NULL));
    }
    for (uint32_t i = 0; i < SHARED; i++) {
        CHECK_OK(rdmux_srq_recv(shared.srq, NULL, 0, NULL, NULL));
    }
    poll_both(pair);

    send_messages(pair->a, pair->cq_a, OWN);
    send_messages(second_a, pair->cq_a, SHARED);

    expect_receives(pair->cq_b, OWN + SHARED);
    CHECK_OK(rdmux_ep_close(second_a));
    CHECK_OK(rdmux_ep_close(second_b));
    CHECK_OK(rdmux_srq_destroy(shared.srq));
    clear_scene(&scene);
}

/* What came of a change of cq, in the order in which it may come. */
struct change {
    uint32_t sent;
    uint32_t received;
    unsigned moved;
    unsigned paths_of_a;
    unsigned paths_of_b;
};

static void note_entry(struct change *change, const struct pair *pair, const struct rdmux_wc *wc)
{
    assert_int_equal(wc->status, RDMUX_OK);
    switch (wc->opcode) {
    case RDMUX_WC_MOVED:
        assert_int_equal(change->sent, 0); /* the first entry */
        change->moved++;
        break;
    case RDMUX_WC_PATH_CHANGED:
        change->paths_of_a += wc->ep == pair->a;
        change->paths_of_b += wc->ep == pair->b;
        break;
    case RDMUX_WC_SEND:
        assert_int_equal(change->moved, 1);
        assert_ptr_equal(wc->context, CONTEXT(change->sent));
        change->sent++;
        break;
    default:
        assert_int_equal(wc->opcode, RDMUX_WC_RECV);
        assert_ptr_equal(wc->context, CONTEXT(change->received));
        change->received++;
        break;
    }
}

/* b polls that many times between two polls of a. */
static void change_cq_beside(unsigned polls_of_b)
{
    enum { MESSAGES = 12 };
    struct scene scene;
    struct pair *pair = &scene.pair;
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    struct change change = { .sent = 0 };
    attr.failover = RDMUX_FAILOVER_ON;
    set_roce_scene(&scene);
    set_gid(scene.device, 0, "127.0.0.1", NEAR);
    listen_in(&scene);
    connect_more(pair, &attr, &pair->a, &pair->b);
    struct rdmux_cq *to = create_cq(pair->fabric_a);
    for (uint32_t n = 0; n < MESSAGES; n++) {
        CHECK_OK(rdmux_recv(pair->b, NULL, 0, NULL, CONTEXT(n)));
    }
    for (uint32_t n = 0; n < MESSAGES; n++) {
        CHECK_OK(rdmux_send(pair->a, NULL, 0, NULL, CONTEXT(n), 0));
    }
    CHECK_OK(rdmux_ep_move(pair->a, to));
    uint64_t until = now_ms() + PATIENT_MS;
    while (change.sent < MESSAGES || change.received < MESSAGES || change.paths_of_a == 0 ||
           change.paths_of_b == 0) {
        struct rdmux_wc wc;
        assert_true(now_ms() < until);
        progress_both(pair);
        assert_int_equal(rdmux_cq_poll(pair->cq_a, &wc, 1), 0);
        while (rdmux_cq_poll(to, &wc, 1) == 1) {
            note_entry(&change, pair, &wc);
        }
        for (unsigned polls = 0; polls < polls_of_b; polls++) {
            CHECK_OK(rdmux_fabric_progress(pair->fabric_b));
            while (rdmux_cq_poll(pair->cq_b, &wc, 1) == 1) {
                note_entry(&change, pair, &wc);
            }
        }
    }
    assert_int_equal(change.moved, 1);
    assert_int_equal(change.paths_of_a, 1);
    assert_int_equal(change.paths_of_b, 1);
    assert_ptr_equal(verbs_ep_of(pair->a->path)->data.cq->base.cq, to);
    CHECK_OK(rdmux_cq_destroy(pair->cq_a));
    pair->cq_a = to;
    clear_scene(&scene);
}

/* Its queue pairs stay with the cq that they were made for: with failover others are made for the
 * next cq, and messages under way are neither lost nor doubled. A quick peer tries the next path
 * while the endpoint is still at its old cq. */
static void a_roce_endpoint_changes_its_cq_with_failover(void **state)
{
    (void)state;
    change_cq_beside(1);
    change_cq_beside(500);
}

static void a_roce_endpoint_stays_on_its_cq_without_failover(void **state)
{
    (void)state;
    struct scene scene;
    set_roce_scene(&scene);
    set_gid(scene.device, 0, "127.0.0.1", NEAR);
    connect_scene(&scene);
    struct rdmux_cq *to = create_cq(scene.pair.fabric_a);
    CHECK_STATUS(rdmux_ep_move(scene.pair.a, to), RDMUX_UNSUPPORTED);
    assert_non_null(strstr(rdmux_last_error(), "failover"));
    CHECK_OK(rdmux_ep_move(scene.pair.a, scene.pair.cq_a)); /* it is there */
    struct rdmux_wc wc = poll_entry(scene.pair.cq_a);
    assert_int_equal(wc.opcode, RDMUX_WC_MOVED);
    CHECK_OK(rdmux_cq_destroy(to));
    clear_scene(&scene);
}

static uint64_t stopped_ns;

static uint64_t stopped_clock_ns(void *user)
{
    (void)user;
    return stopped_ns;
}

static bool is_draining(const struct rdmux_ep *ep)
{
    return verbs_ep_of(ep->path)->state == VERBS_EP_DRAINING;
}

/* Two messages have come, and the device reports them late, one after the other. The endpoint waits
 * for 20 ms in which the device reports nothing, by its own clock; the device's time is another
 * one. */
static void an_ending_endpoint_waits_while_the_device_reports_messages(void **state)
{
    (void)state;
    enum { NOT_LONG_MS = 15 };
    const uint64_t ms = 1000000;
    const uint64_t apart_ns = 100000 * ms;
    const uint64_t late_ns = 1000000 * ms;
    struct scene scene;
    struct pair *pair = &scene.pair;
    set_roce_scene(&scene);
    set_gid(scene.device, 0, "127.0.0.1", NEAR);
    connect_scene(&scene);
    CHECK_OK(rdmux_recv(pair->b, NULL, 0, NULL, CONTEXT(1)));
    CHECK_OK(rdmux_recv(pair->b, NULL, 0, NULL, CONTEXT(2)));
    poll_both(pair);
    assert_true(sim_world_set(scene.world, "receipt=1000s"));
    send_messages(pair->a, pair->cq_a, 1);
    (void)sim_advance(scene.world, apart_ns);
    send_messages(pair->a, pair->cq_a, 1);
    stopped_ns = rdmux_now(pair->fabric_b);
    pair->fabric_b->hooks.clock_ns = stopped_clock_ns;
    CHECK_OK(rdmux_ep_close(pair->a));
    pair->a = NULL;
    uint64_t until = now_ms() + PATIENT_MS;
    while (!is_draining(pair->b)) {
        assert_true(now_ms() < until);
        (void)rdmux_cq_poll(pair->cq_b, NULL, 0);
        progress_both(pair);
    }

    (void)sim_advance(scene.world, late_ns - apart_ns / 2); /* the first */
    stopped_ns += NOT_LONG_MS * ms;
    poll_both(pair);
    stopped_ns += NOT_LONG_MS * ms;
    poll_both(pair);
    (void)sim_advance(scene.world, apart_ns); /* the second */

    expect_receives(pair->cq_b, 2);
    assert_int_equal(poll_entry(pair->cq_b).opcode, RDMUX_WC_DISCONNECTED);
    clear_scene(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_roce_path_names_its_address_and_port),
        cmocka_unit_test(a_roce_path_lists_every_address_of_its_port),
        cmocka_unit_test(an_address_of_the_adapter_selects_its_path),
        cmocka_unit_test(an_ib_path_lists_the_addresses_of_its_ip_interface),
        cmocka_unit_test(addresses_of_both_families_use_the_interface_on_the_route_to_the_peer),
        cmocka_unit_test(a_roce_endpoint_ends_when_its_own_address_is_removed_and_not_another_one),
        cmocka_unit_test(an_adapter_with_wrong_atomics_is_given_none),
        cmocka_unit_test(fast_path_writes_are_counted),
        cmocka_unit_test(without_a_wish_inline_is_what_the_adapter_takes),
        cmocka_unit_test(a_completion_queue_is_shared_only_up_to_its_room),
        cmocka_unit_test(a_roce_endpoint_changes_its_cq_with_failover),
        cmocka_unit_test(a_roce_endpoint_stays_on_its_cq_without_failover),
        cmocka_unit_test(an_ending_endpoint_waits_while_the_device_reports_messages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
