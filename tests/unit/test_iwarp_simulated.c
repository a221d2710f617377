/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The iWARP provider over a simulated adapter: its addresses, connections that fail, its checks of
 * notices, and the ways of soft iWARP. */
#include "iwarp/iwarp_internal.h"
#include "tests/unit/simulated_scene.h"

#include "api/progress/cq_owner.h"
#include "verbs/verbs_connection.h"
#include "verbs/verbs_endpoint.h"

#include <errno.h>

enum { PORT = 1 };

/* -------------------------------------------------------------------------- soft iWARP's device */

enum { VENDOR_SIW = 0x626d74 }; /* drivers/infiniband/sw/siw/siw.h */

static bool is_siw; /* of a scene: the adapter calls itself soft iWARP, and registers as it does */

int __real_ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr);
int __wrap_ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr);
int __wrap_ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
    int error = __real_ibv_query_device(context, attr);
    if (is_siw && error == 0) {
        attr->vendor_id = VENDOR_SIW;
    }
    return error;
}

struct ibv_mr *__real_ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
                                       unsigned access);
struct ibv_mr *__wrap_ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
                                       unsigned access);
/* siw_reg_user_mr() takes a region's own address, whatever the caller asks for. */
struct ibv_mr *__wrap_ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
                                       unsigned access)
{
    return __real_ibv_reg_mr_iova2(pd, addr, length, is_siw ? (uintptr_t)addr : iova, access);
}

/* An iWARP adapter with these options. */
static void set_iwarp_scene(struct scene *scene, const char *options, uint32_t flags)
{
    is_siw = false;
    set_scene(scene, "iwarp", &rdmux_iwarp_provider, options, flags);
}

/* The adapter has the only address of the host. */
static void set_loopback_scene(struct scene *scene)
{
    host_addresses[0] = "127.0.0.1";
    host_addresses[1] = NULL;
    set_iwarp_scene(scene, "link=iwarp,addr=127.0.0.1", 0);
}

/* ------------------------------------------------------------------------------------ the cases */

static void set_host_address(const char *address, uint8_t gid[VERBS_GID_SIZE])
{
    memset(gid, 0, VERBS_GID_SIZE);
    gid[10] = 0xff;
    gid[11] = 0xff;
    assert_int_equal(inet_pton(AF_INET, address, gid + 12), 1);
}

static void an_iwarp_adapter_has_one_address_of_each_kind(void **state)
{
    (void)state;
    static const char *const chosen[] = {
        [VERBS_ADDRESS_IPV4] = "10.254.0.2", [VERBS_ADDRESS_LINK_LOCAL] = "169.254.0.7"
    };
    struct scene scene;
    struct verbs_whereabouts where;
    struct rdmux_local_path path = { .address = "" };
    uint8_t gid[VERBS_GID_SIZE];
    host_addresses[0] = "169.254.0.7";
    host_addresses[1] = "10.254.0.1";
    host_addresses[2] = "10.254.0.2";
    host_addresses[3] = NULL;
    set_iwarp_scene(&scene, "link=iwarp,name=siw9,addr=10.254.0.1+10.254.0.2+169.254.0.7",
                    RDMUX_FABRIC_NO_WORKER_THREAD);
    set_host_address(chosen[VERBS_ADDRESS_IPV4], gid);

    CHECK_OK(rdmux_iwarp_find_addresses("siw9", PORT, gid, &where, &path));

    assert_int_equal(where.address_count, 2);
    assert_string_equal(path.address, "169.254.0.7, 10.254.0.2, 10.254.0.1");
    for (size_t kind = 1; kind < RDMUX_COUNT_OF(chosen); kind++) {
        if (chosen[kind] != NULL) {
            size_t at = rdmux_verbs_address_of_kind(&where, (uint8_t)kind);
            assert_true(at < where.address_count);
            set_host_address(chosen[kind], gid);
            assert_memory_equal(where.addresses[at].gid, gid, VERBS_GID_SIZE);
        }
    }
    clear_scene(&scene);
}

/* A thread of its own makes the call that connects; nothing else reports its failure. */
static void a_failed_iwarp_connection_ends_the_attempt_with_its_error(void **state)
{
    (void)state;
    struct scene scene;
    struct pair *pair = &scene.pair;
    struct rdmux_wc wc;
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    set_loopback_scene(&scene);
    listen_in(&scene);
    assert_true(sim_fail_call(scene.world, "connect", 1, ENETUNREACH));

    uint64_t until = now_ms() + PATIENT_MS;
    CHECK_STATUS(rdmux_connect(pair->fabric_a, pair->cq_a, pair->address, NULL, 0, &pair->a),
                 RDMUX_IN_PROGRESS);
    while (rdmux_cq_poll(pair->cq_a, &wc, 1) == 0) {
        assert_true(now_ms() < until);
        enum rdmux_status status = rdmux_accept(pair->listener, pair->cq_b, NULL, 0, &pair->b);
        assert_int_not_equal(status, RDMUX_OK);
        (void)rdmux_cq_poll(pair->cq_b, NULL, 0);
        progress_both(pair);
    }

    assert_int_equal(wc.opcode, RDMUX_WC_CONNECTED);
    assert_int_equal(wc.status, RDMUX_NO_PATH);
    CHECK_OK(rdmux_ep_info(pair->a, &info));
    assert_non_null(strstr(info.text, strerror(ENETUNREACH)));
    clear_scene(&scene);
}

/* An honest peer, and a side that falsely believes that its longest region is a byte shorter. */
static void a_notice_over_iwarp_is_checked_against_the_longest_region(void **state)
{
    (void)state;
    enum { LENGTH = 1 << 20 };
    static uint8_t there[LENGTH];
    static uint8_t here[LENGTH];
    struct scene scene;
    struct pair *pair = &scene.pair;
    struct rdmux_mr *mr = NULL;
    set_loopback_scene(&scene);
    connect_scene(&scene);
    CHECK_OK(rdmux_mr_register(pair->fabric_b, there, LENGTH, RDMUX_ACCESS_REMOTE_WRITE, &mr));
    struct rdmux_remote *remote = import_simulated(pair, mr);
    struct iwarp_domain *domain = iwarp_domain_of(pair->b->domain);
    assert_int_equal(atomic_load(&domain->longest), LENGTH);
    atomic_store(&domain->longest, LENGTH - 1);
    CHECK_OK(rdmux_recv(pair->b, NULL, 0, NULL, CONTEXT(1)));

    CHECK_OK(rdmux_write_imm(pair->a, here, LENGTH, NULL, remote, 0, 7, CONTEXT(2), 0));
    struct rdmux_wc receive = await_entry(pair, pair->cq_b);
    struct rdmux_wc end = await_entry(pair, pair->cq_b);

    assert_int_equal(receive.opcode, RDMUX_WC_RECV);
    assert_int_not_equal(receive.status, RDMUX_OK);
    assert_int_equal(end.opcode, RDMUX_WC_DISCONNECTED);
    assert_int_equal(end.status, RDMUX_PROTOCOL);
    rdmux_remote_close(remote);
    rdmux_mr_deregister(mr);
    clear_scene(&scene);
}

/* Asks, as the core does, whether the peer's device is alive. */
static void ask_device(struct rdmux_ep *ep)
{
    assert_true(rdmux_cq_enter(ep->cq));
    CHECK_OK(rdmux_iwarp_ep_ping(ep->path));
    rdmux_cq_leave(ep->cq);
}

/* An iWARP device completes a message once TCP has taken it, even if the peer's machine is gone. */
static void a_sent_message_is_no_sign_of_life_over_iwarp(void **state)
{
    (void)state;
    enum { FOR_EVER_MS = 3600000, ANSWERED = 2, UNANSWERED = 3, DEPTH = 32 };
    struct scene scene;
    struct pair *pair = &scene.pair;
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    attr.liveness_ms = FOR_EVER_MS; /* only the test asks */
    attr.recv_depth = DEPTH;
    set_loopback_scene(&scene);
    listen_in(&scene);
    connect_more(pair, &attr, &pair->a, &pair->b);
    for (int i = 0; i < ANSWERED; i++) {
        ask_device(pair->a);
        poll_both(pair);
    }

    assert_true(sim_world_set(scene.world, "latency=1000s"));
    for (int i = 0; i < UNANSWERED; i++) {
        assert_int_equal(verbs_ep_of(pair->a->path)->state, VERBS_EP_CONNECTED);
        ask_device(pair->a);
        poll_both(pair);
        for (int k = 0; k < DEPTH / UNANSWERED && i + 1 < UNANSWERED; k++) { /* the peer is told */
            CHECK_OK(rdmux_recv(pair->a, NULL, 0, NULL, NULL));
        }
        poll_both(pair);
    }

    assert_int_equal(verbs_ep_of(pair->a->path)->state, VERBS_EP_FAILED);
    struct rdmux_wc wc;
    do {
        wc = await_entry(pair, pair->cq_a);
    } while (wc.opcode == RDMUX_WC_RECV);
    assert_int_equal(wc.opcode, RDMUX_WC_DISCONNECTED);
    assert_int_equal(wc.status, RDMUX_PEER_GONE);
    clear_scene(&scene);
}

static void a_write_reaches_a_region_of_soft_iwarp_which_keeps_its_address(void **state)
{
    (void)state;
    static uint64_t there;
    const uint64_t here = UINT64_C(0x1122334455667788);
    struct scene scene;
    struct pair *pair = &scene.pair;
    struct rdmux_mr *mr = NULL;
    set_loopback_scene(&scene);
    is_siw = true;
    connect_scene(&scene);
    there = 0;
    CHECK_OK(
        rdmux_mr_register(pair->fabric_b, &there, sizeof(there), RDMUX_ACCESS_REMOTE_WRITE, &mr));
    struct rdmux_remote *remote = import_simulated(pair, mr);

    CHECK_OK(rdmux_write(pair->a, &here, sizeof(here), NULL, remote, 0, CONTEXT(1), RDMUX_PLACED));

    struct rdmux_wc wc = await_entry(pair, pair->cq_a);
    assert_int_equal(wc.opcode, RDMUX_WC_WRITE);
    assert_int_equal(wc.status, RDMUX_OK);
    assert_int_equal(there, here);
    rdmux_remote_close(remote);
    rdmux_mr_deregister(mr);
    clear_scene(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_iwarp_adapter_has_one_address_of_each_kind),
        cmocka_unit_test(a_failed_iwarp_connection_ends_the_attempt_with_its_error),
        cmocka_unit_test(a_notice_over_iwarp_is_checked_against_the_longest_region),
        cmocka_unit_test(a_sent_message_is_no_sign_of_life_over_iwarp),
        cmocka_unit_test(a_write_reaches_a_region_of_soft_iwarp_which_keeps_its_address),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
