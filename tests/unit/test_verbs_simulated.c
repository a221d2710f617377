/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The providers of the plug-in over simulated adapters, in one thread and in virtual time: how they
 * react to the contents of an adapter's address table, and to its changes. */
#include "api/core/srq.h"
#include "api/progress/cq_owner.h"
#include "iwarp/iwarp_internal.h"
#include "tests/unit/api_pair.h"
#include "tests/unit/fake_dmabuf.h"
#include "verbs/verbs_connection.h"
#include "verbs/verbs_domain.h"
#include "verbs/verbs_endpoint.h"
#include "verbs/verbs_plugin.h"

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <sim_verbs.h>

enum { GIDS = 16, NEAR = 9, FAR = 2, PORT = 1, ADDRESSES_MAX = 4, DMABUF_SIZE = 65536 };

/* ----------------------------------------------------------------------- the system's functions */

static const char *host_addresses[ADDRESSES_MAX + 1]; /* up to NULL */

/* Each interface that a GID names exists, and is up. */
char *if_indextoname(unsigned ifindex, char ifname[IF_NAMESIZE])
{
    (void)ifindex;
    return strcpy(ifname, "lo");
}

static struct host_address {
    struct ifaddrs entry;
    struct sockaddr_in address;
} host_entries[ADDRESSES_MAX];

/* Interfaces with host_addresses. */
int getifaddrs(struct ifaddrs **ifap)
{
    *ifap = NULL;
    for (size_t i = 0; i < ADDRESSES_MAX && host_addresses[i] != NULL; i++) {
        struct host_address *host = &host_entries[i];
        memset(host, 0, sizeof(*host));
        host->address.sin_family = AF_INET;
        assert_int_equal(inet_pton(AF_INET, host_addresses[i], &host->address.sin_addr), 1);
        host->entry.ifa_addr = (struct sockaddr *)&host->address;
        host->entry.ifa_flags = IFF_UP;
        if (i > 0) {
            host_entries[i - 1].entry.ifa_next = &host->entry;
        }
        *ifap = &host_entries[0].entry;
    }
    return 0;
}

void freeifaddrs(struct ifaddrs *ifa)
{
    (void)ifa;
}

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

/* ------------------------------------------------------------------------------------ the scene */

struct scene {
    struct sim_world *world;
    struct sim_device *device;
    struct pair pair;
};

static void set_gid(struct sim_device *device, unsigned index, const char *address,
                    unsigned interface)
{
    union ibv_gid gid = { .raw = { [10] = 0xff, [11] = 0xff } };
    if (address == NULL) {
        sim_gid_set(device, index, NULL, IBV_GID_TYPE_ROCE_V2, 0);
        return;
    }
    if (inet_pton(AF_INET6, address, gid.raw) != 1) {
        assert_int_equal(inet_pton(AF_INET, address, gid.raw + 12), 1);
    }
    sim_gid_set(device, index, &gid, IBV_GID_TYPE_ROCE_V2, interface);
}

static struct rdmux_fabric *open_over(const char *name, const struct rdmux_provider_ops *ops,
                                      uint32_t flags)
{
    struct rdmux_fabric *fabric = open_fabric(name, RDMUX_FABRIC_NO_SERVICE_THREAD | flags, NULL);
    for (size_t i = 0; i < fabric->registry.count; i++) {
        struct rdmux_provider_entry *entry = &fabric->registry.entries[i];
        if (strcmp(entry->name, name) == 0) {
            entry->ops = ops;
        }
    }
    return fabric;
}

/* An adapter, and two fabrics that know this provider alone. */
static void set_scene(struct scene *scene, const char *name, const struct rdmux_provider_ops *ops,
                      const char *options, uint32_t flags)
{
    memset(scene, 0, sizeof(*scene));
    is_siw = false;
    scene->world = sim_world_create(NULL);
    assert_non_null(scene->world);
    struct sim_host *host = sim_host_add(scene->world);
    sim_default_host(host);
    scene->device = sim_device_add(host, options);
    assert_non_null(scene->device);
    scene->pair.fabric_a = open_over(name, ops, flags);
    scene->pair.fabric_b = open_over(name, ops, flags);
}

/* The adapter has no address yet. */
static void set_roce_scene(struct scene *scene)
{
    set_scene(scene, "roce", &rdmux_roce_provider, "link=roce", RDMUX_FABRIC_NO_WORKER_THREAD);
    for (unsigned i = 0; i < GIDS; i++) {
        set_gid(scene->device, i, NULL, 0);
    }
}

static void listen_in(struct scene *scene)
{
    struct pair *pair = &scene->pair;
    pair->cq_a = create_cq(pair->fabric_a);
    pair->cq_b = create_cq(pair->fabric_b);
    pair->listener = listen_here(pair->fabric_b, NULL, pair->address);
}

static void connect_scene(struct scene *scene)
{
    listen_in(scene);
    connect_more(&scene->pair, NULL, &scene->pair.a, &scene->pair.b);
}

static void clear_scene(struct scene *scene)
{
    close_pair(&scene->pair);
    assert_int_equal(sim_world_destroy(scene->world), 0);
}

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

static void progress_both(struct pair *pair)
{
    CHECK_OK(rdmux_fabric_progress(pair->fabric_a));
    CHECK_OK(rdmux_fabric_progress(pair->fabric_b));
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
    uint8_t gid[VERBS_GID_SIZE];
    host_addresses[0] = "169.254.0.7";
    host_addresses[1] = "10.254.0.1";
    host_addresses[2] = "10.254.0.2";
    host_addresses[3] = NULL;
    set_scene(&scene, "iwarp", &rdmux_iwarp_provider,
              "link=iwarp,name=siw9,addr=10.254.0.1+10.254.0.2+169.254.0.7",
              RDMUX_FABRIC_NO_WORKER_THREAD);
    set_host_address(chosen[VERBS_ADDRESS_IPV4], gid);

    CHECK_OK(rdmux_iwarp_find_addresses("siw9", PORT, gid, &where));

    assert_int_equal(where.address_count, 2);
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
    host_addresses[0] = "127.0.0.1";
    host_addresses[1] = NULL;
    set_scene(&scene, "iwarp", &rdmux_iwarp_provider, "link=iwarp,addr=127.0.0.1", 0);
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

/* The next entry of a cq whose peer needs progress, too. */
static struct rdmux_wc await_entry(struct pair *pair, struct rdmux_cq *cq)
{
    struct rdmux_wc wc;
    struct rdmux_wc none;
    struct rdmux_cq *other = cq == pair->cq_a ? pair->cq_b : pair->cq_a;
    uint64_t until = now_ms() + PATIENT_MS;
    while (rdmux_cq_poll(cq, &wc, 1) == 0) {
        assert_true(now_ms() < until);
        (void)rdmux_cq_poll(other, &none, 0);
        progress_both(pair);
    }
    return wc;
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
    struct rdmux_token token;
    struct rdmux_remote *remote = NULL;
    host_addresses[0] = "127.0.0.1";
    host_addresses[1] = NULL;
    set_scene(&scene, "iwarp", &rdmux_iwarp_provider, "link=iwarp,addr=127.0.0.1", 0);
    connect_scene(&scene);
    CHECK_OK(rdmux_mr_register(pair->fabric_b, there, LENGTH, RDMUX_ACCESS_REMOTE_WRITE, &mr));
    CHECK_OK(rdmux_mr_export(mr, &token));
    CHECK_STATUS(rdmux_remote_import(pair->a, &token, 0, &remote), RDMUX_IN_PROGRESS);
    assert_int_equal(await_entry(pair, pair->cq_a).opcode, RDMUX_WC_REMOTE_READY);
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

static void poll_both(struct pair *pair)
{
    for (int i = 0; i < 100; i++) {
        (void)rdmux_cq_poll(pair->cq_a, NULL, 0);
        (void)rdmux_cq_poll(pair->cq_b, NULL, 0);
        progress_both(pair);
    }
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
    host_addresses[0] = "127.0.0.1";
    host_addresses[1] = NULL;
    set_scene(&scene, "iwarp", &rdmux_iwarp_provider, "link=iwarp,addr=127.0.0.1", 0);
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

/* --------------------------------------------------------------------------- data over adapters */

/* A region of b, as a sees it. Both sides need progress for that. */
static struct rdmux_remote *import_simulated(struct pair *pair, struct rdmux_mr *mr)
{
    struct rdmux_token token;
    struct rdmux_remote *remote = NULL;
    CHECK_OK(rdmux_mr_export(mr, &token));
    CHECK_STATUS(rdmux_remote_import(pair->a, &token, 0, &remote), RDMUX_IN_PROGRESS);
    assert_int_equal(await_entry(pair, pair->cq_a).opcode, RDMUX_WC_REMOTE_READY);
    return remote;
}

/* Takes the next entry of a cq that alone makes progress. */
static struct rdmux_wc poll_entry(struct rdmux_cq *cq)
{
    enum { POLLS_MAX = 100000 };
    struct rdmux_wc wc = { .opcode = 0 };
    size_t got = 0;
    for (int i = 0; i < POLLS_MAX && got == 0; i++) {
        got = rdmux_cq_poll(cq, &wc, 1);
    }
    assert_int_equal(got, 1);
    return wc;
}

static void a_write_reaches_a_region_of_soft_iwarp_which_keeps_its_address(void **state)
{
    (void)state;
    static uint64_t there;
    const uint64_t here = UINT64_C(0x1122334455667788);
    struct scene scene;
    struct pair *pair = &scene.pair;
    struct rdmux_mr *mr = NULL;
    host_addresses[0] = "127.0.0.1";
    host_addresses[1] = NULL;
    set_scene(&scene, "iwarp", &rdmux_iwarp_provider, "link=iwarp,addr=127.0.0.1", 0);
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

static enum rdmux_status create_dmabuf(struct rdmux_fabric *fabric, int fd, uint64_t offset,
                                       uint32_t access, struct rdmux_mr **out)
{
    struct rdmux_mr_attr attr = RDMUX_MR_ATTR_INIT;
    attr.dmabuf_fd = (uint32_t)(fd + 1);
    attr.dmabuf_offset = offset;
    attr.length = DMABUF_SIZE;
    attr.access = access;
    return rdmux_mr_create(fabric, &attr, out);
}

/* The adapters get the descriptor, not the bytes' addresses: their memory is the dma-buf's. */
static void an_adapter_reads_and_writes_dmabufs(void **state)
{
    (void)state;
    struct scene scene;
    struct pair *pair = &scene.pair;
    struct rdmux_mr *mr = NULL;
    struct rdmux_mr *remote_mr = NULL;
    struct rdmux_token token;
    set_scene(&scene, "roce", &rdmux_roce_provider, "link=roce,dmabuf=yes",
              RDMUX_FABRIC_NO_WORKER_THREAD);
    set_gid(scene.device, 0, "127.0.0.1", NEAR);
    connect_scene(&scene);
    int fd = fake_dmabuf_create((size_t)2 * DMABUF_SIZE);
    CHECK_OK(create_dmabuf(pair->fabric_a, fd, 0, RDMUX_ACCESS_LOCAL_WRITE, &mr));
    CHECK_OK(create_dmabuf(pair->fabric_b, fd, DMABUF_SIZE,
                           RDMUX_ACCESS_REMOTE_READ | RDMUX_ACCESS_REMOTE_WRITE, &remote_mr));
    (void)close(fd);
    uint8_t *here = rdmux_mr_addr(mr);
    uint8_t *there = rdmux_mr_addr(remote_mr);
    CHECK_OK(rdmux_mr_export(remote_mr, &token));
    CHECK_OK(rdmux_mr_revoke(remote_mr)); /* its next key is made without the program's fd */
    struct rdmux_remote *remote = import_simulated(pair, remote_mr);

    memset(here, 5, DMABUF_SIZE);
    CHECK_OK(rdmux_write(pair->a, here, DMABUF_SIZE, mr, remote, 0, NULL, RDMUX_PLACED));
    assert_int_equal(await_entry(pair, pair->cq_a).status, RDMUX_OK);
    assert_memory_equal(there, here, DMABUF_SIZE);
    memset(there, 6, DMABUF_SIZE);
    CHECK_OK(rdmux_read(pair->a, here, DMABUF_SIZE, mr, remote, 0, NULL, 0));
    assert_int_equal(await_entry(pair, pair->cq_a).status, RDMUX_OK);
    assert_memory_equal(here, there, DMABUF_SIZE);

    rdmux_remote_close(remote);
    rdmux_mr_deregister(remote_mr);
    rdmux_mr_deregister(mr);
    clear_scene(&scene);
}

static void an_adapter_that_takes_no_dmabufs_is_named(void **state)
{
    (void)state;
    struct scene scene;
    struct rdmux_mr *mr = NULL;
    set_scene(&scene, "roce", &rdmux_roce_provider, "link=roce,name=soft0",
              RDMUX_FABRIC_NO_WORKER_THREAD);
    set_gid(scene.device, 0, "127.0.0.1", NEAR);
    connect_scene(&scene);
    int fd = fake_dmabuf_create(DMABUF_SIZE);

    assert_int_equal(create_dmabuf(scene.pair.fabric_a, fd, 0, 0, &mr), RDMUX_UNSUPPORTED);

    assert_null(mr);
    assert_non_null(strstr(rdmux_last_error(), "soft0: region of 65536 bytes of a dma-buf"));
    assert_non_null(strstr(rdmux_last_error(), "takes no dma-bufs"));
    assert_int_equal(fake_dmabuf.sync_count, 2); /* the processor's access has ended, too */
    (void)close(fd);
    clear_scene(&scene);
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

/* --------------------------------------------------------------- receives of two kinds of adapters */

enum { KINDS_LINKS = 4, KINDS_DEPTH = 16, KINDS_ROUNDS = 60, KINDS_BURST = 6, KINDS_LAST = 3 };

/* Endpoints of b share receives. Those of even number are over the RoCE adapter at first, the others
 * over iWARP. A receive's context is its slot. */
struct kinds {
    struct scene scene;
    struct rdmux_srq *srq;
    struct rdmux_ep *a[KINDS_LINKS];
    struct rdmux_ep *b[KINDS_LINKS];
    uint64_t sent[KINDS_LINKS];
    uint64_t came[KINDS_LINKS];
    uint64_t words[KINDS_DEPTH];
    bool is_posted[KINDS_DEPTH];
};

static struct rdmux_fabric *open_over_both(void)
{
    struct rdmux_fabric *fabric = open_fabric("roce,iwarp", RDMUX_FABRIC_NO_SERVICE_THREAD, NULL);
    for (size_t i = 0; i < fabric->registry.count; i++) {
        struct rdmux_provider_entry *entry = &fabric->registry.entries[i];
        if (strcmp(entry->name, "roce") == 0) {
            entry->ops = &rdmux_roce_provider;
        } else if (strcmp(entry->name, "iwarp") == 0) {
            entry->ops = &rdmux_iwarp_provider;
        }
    }
    return fabric;
}

static void post_kinds(struct kinds *kinds, size_t slot)
{
    assert_false(kinds->is_posted[slot]);
    kinds->is_posted[slot] = true;
    CHECK_OK(rdmux_srq_recv(kinds->srq, &kinds->words[slot], sizeof(uint64_t), NULL, CONTEXT(slot)));
}

static const char *provider_of(struct rdmux_ep *ep)
{
    static struct rdmux_ep_info info;
    info = (struct rdmux_ep_info)RDMUX_EP_INFO_INIT;
    CHECK_OK(rdmux_ep_info(ep, &info));
    return info.provider;
}

/* even: the paths of the endpoints of even number. */
static void set_kinds(struct kinds *kinds, const char *even, uint32_t failover)
{
    memset(kinds, 0, sizeof(*kinds));
    struct scene *scene = &kinds->scene;
    struct pair *pair = &scene->pair;
    struct rdmux_srq_attr srq_attr = RDMUX_SRQ_ATTR_INIT;
    srq_attr.depth = KINDS_DEPTH;
    host_addresses[0] = "127.0.0.1";
    host_addresses[1] = NULL;
    is_siw = false;
    scene->world = sim_world_create(NULL);
    assert_non_null(scene->world);
    struct sim_host *host = sim_host_add(scene->world);
    sim_default_host(host);
    scene->device = sim_device_add(host, "link=roce");
    assert_non_null(scene->device);
    assert_non_null(sim_device_add(host, "link=iwarp,addr=127.0.0.1"));
    for (unsigned i = 0; i < GIDS; i++) {
        set_gid(scene->device, i, i == 0 ? "127.0.0.1" : NULL, NEAR);
    }
    pair->fabric_a = open_over_both();
    pair->fabric_b = open_over_both();
    listen_in(scene);
    CHECK_OK(rdmux_srq_create(pair->fabric_b, pair->cq_b, &srq_attr, &kinds->srq));
    for (size_t i = 0; i < KINDS_DEPTH / 2; i++) {
        post_kinds(kinds, i); /* the others when the adapters are known */
    }
    for (size_t i = 0; i < KINDS_LINKS; i++) {
        struct rdmux_ep_attr as_a = RDMUX_EP_ATTR_INIT;
        as_a.paths = i % 2 == 0 ? even : "iwarp";
        as_a.failover = i % 2 == 0 ? failover : 0;
        struct rdmux_ep_attr as_b = as_a;
        as_b.srq = kinds->srq;
        connect_as(pair, &as_a, &as_b, &kinds->a[i], &kinds->b[i]);
        assert_string_equal(provider_of(kinds->b[i]), i % 2 == 0 ? "roce" : "iwarp");
    }
    for (size_t i = KINDS_DEPTH / 2; i < KINDS_DEPTH; i++) {
        post_kinds(kinds, i);
    }
}

static void clear_kinds(struct kinds *kinds)
{
    for (size_t i = 0; i < KINDS_LINKS; i++) {
        CHECK_OK(rdmux_ep_close(kinds->a[i]));
        CHECK_OK(rdmux_ep_close(kinds->b[i]));
    }
    CHECK_OK(rdmux_srq_destroy(kinds->srq));
    clear_scene(&kinds->scene);
}

static void send_kinds(struct kinds *kinds, size_t link)
{
    uint64_t word = kinds->sent[link]++;
    CHECK_OK(rdmux_send(kinds->a[link], &word, sizeof(word), NULL, NULL,
                        RDMUX_INLINE | RDMUX_UNSIGNALED));
}

/* Takes b's next entry. A message is the next one of its endpoint, in a receive that was posted. */
static struct rdmux_wc take_kinds(struct kinds *kinds, bool posts_again)
{
    struct rdmux_wc wc = await_entry(&kinds->scene.pair, kinds->scene.pair.cq_b);
    if (wc.opcode != RDMUX_WC_RECV) {
        return wc;
    }
    size_t link = 0;
    while (link < KINDS_LINKS && kinds->b[link] != wc.ep) {
        link++;
    }
    size_t slot = (size_t)(uintptr_t)wc.context;
    assert_in_range(link, 0, KINDS_LINKS - 1);
    assert_int_equal(wc.status, RDMUX_OK);
    assert_true(kinds->is_posted[slot]);
    assert_int_equal(kinds->words[slot], kinds->came[link]);
    kinds->is_posted[slot] = false;
    kinds->came[link]++;
    if (posts_again) {
        post_kinds(kinds, slot);
    }
    return wc;
}

/* Bursts of messages over both adapters, in a random order. */
static void send_bursts(struct kinds *kinds)
{
    unsigned seed = 3;
    for (size_t round = 0; round < KINDS_ROUNDS; round++) {
        for (size_t i = 0; i < KINDS_BURST; i++) {
            send_kinds(kinds, (size_t)rand_r(&seed) % KINDS_LINKS);
        }
        for (size_t i = 0; i < KINDS_BURST; i++) {
            assert_int_equal(take_kinds(kinds, true).opcode, RDMUX_WC_RECV);
        }
    }
}

/* Messages by one endpoint fill so many receives, without a post. */
static void fill_receives(struct kinds *kinds, size_t link, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        send_kinds(kinds, link);
    }
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(take_kinds(kinds, false).opcode, RDMUX_WC_RECV);
    }
}

static void receives_of_an_adapter_that_is_removed_serve_one_of_another_kind(void **state)
{
    (void)state;
    struct kinds kinds;
    set_kinds(&kinds, "roce", RDMUX_FAILOVER_OFF);
    send_bursts(&kinds);
    for (size_t i = 0; i < KINDS_LAST; i++) {
        send_kinds(&kinds, 0);
        send_kinds(&kinds, 2);
    }

    sim_device_remove(kinds.scene.device);

    for (size_t ended = 0; ended < KINDS_LINKS / 2;) {
        struct rdmux_wc wc = take_kinds(&kinds, true);
        ended += wc.opcode == RDMUX_WC_DISCONNECTED;
    }
    assert_int_equal(kinds.srq->device_count, 1);
    fill_receives(&kinds, 1, KINDS_DEPTH);
    clear_kinds(&kinds);
}

static void receives_follow_an_endpoint_that_moves_to_another_kind_of_adapter(void **state)
{
    (void)state;
    struct kinds kinds;
    set_kinds(&kinds, "roce,iwarp", RDMUX_FAILOVER_ON);
    send_bursts(&kinds);
    for (size_t i = 0; i < KINDS_LAST; i++) {
        send_kinds(&kinds, 0);
        send_kinds(&kinds, 2);
    }

    sim_device_remove(kinds.scene.device);

    size_t moved = 0;
    while (moved < KINDS_LINKS / 2 || kinds.came[0] < kinds.sent[0] ||
           kinds.came[2] < kinds.sent[2]) {
        struct rdmux_wc wc = take_kinds(&kinds, true);
        assert_true(wc.opcode == RDMUX_WC_RECV || wc.opcode == RDMUX_WC_PATH_CHANGED);
        moved += wc.opcode == RDMUX_WC_PATH_CHANGED;
    }
    assert_string_equal(provider_of(kinds.b[0]), "iwarp");
    send_bursts(&kinds);
    fill_receives(&kinds, 0, KINDS_DEPTH);
    clear_kinds(&kinds);
}

static void an_endpoint_over_roce_cannot_be_paused_and_one_over_iwarp_can(void **state)
{
    (void)state;
    struct kinds kinds;
    struct rdmux_wc none;
    set_kinds(&kinds, "roce", RDMUX_FAILOVER_OFF);
    struct pair *pair = &kinds.scene.pair;
    CHECK_STATUS(rdmux_ep_pause(kinds.b[0], 1), RDMUX_UNSUPPORTED);
    assert_non_null(strstr(rdmux_last_error(), "roce"));
    CHECK_OK(rdmux_ep_pause(kinds.b[0], 0));

    CHECK_OK(rdmux_ep_pause(kinds.b[1], 1));
    for (size_t i = 0; i < KINDS_LAST; i++) {
        send_kinds(&kinds, 1);
    }
    poll_both(pair);
    assert_int_equal(rdmux_cq_poll(pair->cq_b, &none, 1), 0);
    fill_receives(&kinds, 3, KINDS_DEPTH / 2); /* the other half is with the RoCE adapter */

    CHECK_OK(rdmux_ep_pause(kinds.b[1], 0));
    for (size_t i = 0; i < KINDS_DEPTH; i++) {
        if (!kinds.is_posted[i]) {
            post_kinds(&kinds, i);
        }
    }
    while (kinds.came[1] < kinds.sent[1]) {
        assert_int_equal(take_kinds(&kinds, true).opcode, RDMUX_WC_RECV);
    }
    clear_kinds(&kinds);
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
        cmocka_unit_test(addresses_of_both_families_use_the_interface_on_the_route_to_the_peer),
        cmocka_unit_test(a_roce_endpoint_ends_when_its_own_address_is_removed_and_not_another_one),
        cmocka_unit_test(an_adapter_with_wrong_atomics_is_given_none),
        cmocka_unit_test(an_iwarp_adapter_has_one_address_of_each_kind),
        cmocka_unit_test(a_failed_iwarp_connection_ends_the_attempt_with_its_error),
        cmocka_unit_test(a_notice_over_iwarp_is_checked_against_the_longest_region),
        cmocka_unit_test(a_sent_message_is_no_sign_of_life_over_iwarp),
        cmocka_unit_test(receives_of_an_adapter_that_is_removed_serve_one_of_another_kind),
        cmocka_unit_test(receives_follow_an_endpoint_that_moves_to_another_kind_of_adapter),
        cmocka_unit_test(an_endpoint_over_roce_cannot_be_paused_and_one_over_iwarp_can),
        cmocka_unit_test(a_write_reaches_a_region_of_soft_iwarp_which_keeps_its_address),
        cmocka_unit_test(an_adapter_reads_and_writes_dmabufs),
        cmocka_unit_test(an_adapter_that_takes_no_dmabufs_is_named),
        cmocka_unit_test(fast_path_writes_are_counted),
        cmocka_unit_test(a_completion_queue_is_shared_only_up_to_its_room),
        cmocka_unit_test(a_roce_endpoint_changes_its_cq_with_failover),
        cmocka_unit_test(a_roce_endpoint_stays_on_its_cq_without_failover),
        cmocka_unit_test(an_ending_endpoint_waits_while_the_device_reports_messages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
