/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Fabrics over a simulated adapter, in one thread and in virtual time. They know one provider of the
 * plug-in alone. The program includes support/simulated_adapter.cmake. Included by one source of a
 * program. */
#ifndef RDMUX_TESTS_SIMULATED_SCENE_H
#define RDMUX_TESTS_SIMULATED_SCENE_H

#include "tests/sim_verbs/sim_verbs.h"
#include "tests/unit/api_pair.h"
#include "verbs/verbs_connection.h"
#include "verbs/verbs_plugin.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netpacket/packet.h>
#include <stddef.h>

enum { GIDS = 16, NEAR = 9, ADDRESSES_MAX = 4 };

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

/* The GID of the port of the interface, in its hardware address; NULL: the interface has none. */
static const uint8_t *host_gid;
static char host_interface[] = "ib0";
static struct {
    struct ifaddrs entry;
    union {
        struct sockaddr any;
        struct sockaddr_ll link;
        uint8_t bytes[sizeof(struct sockaddr_ll) + 16];
    } address;
} host_link;

/* An interface with host_addresses. */
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
        host->entry.ifa_name = host_interface;
        if (i > 0) {
            host_entries[i - 1].entry.ifa_next = &host->entry;
        }
        *ifap = &host_entries[0].entry;
    }
    if (host_gid != NULL) {
        host_link.address.link = (struct sockaddr_ll){ .sll_family = AF_PACKET,
                                                       .sll_halen = 4 + VERBS_GID_SIZE };
        memcpy(host_link.address.bytes + offsetof(struct sockaddr_ll, sll_addr) + 4, host_gid,
               VERBS_GID_SIZE);
        host_link.entry = (struct ifaddrs){ .ifa_next = *ifap,
                                            .ifa_name = host_interface,
                                            .ifa_addr = &host_link.address.any };
        *ifap = &host_link.entry;
    }
    return 0;
}

void freeifaddrs(struct ifaddrs *ifa)
{
    (void)ifa;
}

/* ------------------------------------------------------------------------------------ the scene */

struct scene {
    struct sim_world *world;
    struct sim_device *device;
    struct pair pair;
};

static inline void set_gid(struct sim_device *device, unsigned index, const char *address,
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

static inline struct rdmux_fabric *open_over(const char *name, const struct rdmux_provider_ops *ops,
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
static inline void set_scene(struct scene *scene, const char *name,
                             const struct rdmux_provider_ops *ops, const char *options,
                             uint32_t flags)
{
    memset(scene, 0, sizeof(*scene));
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
static inline void set_roce_scene(struct scene *scene)
{
    set_scene(scene, "roce", &rdmux_roce_provider, "link=roce", RDMUX_FABRIC_NO_WORKER_THREAD);
    for (unsigned i = 0; i < GIDS; i++) {
        set_gid(scene->device, i, NULL, 0);
    }
}

static inline void listen_in(struct scene *scene)
{
    struct pair *pair = &scene->pair;
    pair->cq_a = create_cq(pair->fabric_a);
    pair->cq_b = create_cq(pair->fabric_b);
    pair->listener = listen_here(pair->fabric_b, NULL, pair->address);
}

static inline void connect_scene(struct scene *scene)
{
    listen_in(scene);
    connect_more(&scene->pair, NULL, &scene->pair.a, &scene->pair.b);
}

static inline void clear_scene(struct scene *scene)
{
    close_pair(&scene->pair);
    assert_int_equal(sim_world_destroy(scene->world), 0);
}

static inline void progress_both(struct pair *pair)
{
    CHECK_OK(rdmux_fabric_progress(pair->fabric_a));
    CHECK_OK(rdmux_fabric_progress(pair->fabric_b));
}

static inline void poll_both(struct pair *pair)
{
    for (int i = 0; i < 100; i++) {
        (void)rdmux_cq_poll(pair->cq_a, NULL, 0);
        (void)rdmux_cq_poll(pair->cq_b, NULL, 0);
        progress_both(pair);
    }
}

/* The next entry of a cq whose peer needs progress, too. */
static inline struct rdmux_wc await_entry(struct pair *pair, struct rdmux_cq *cq)
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

/* A region of b, as a sees it. Both sides need progress for that. */
static inline struct rdmux_remote *import_simulated(struct pair *pair, struct rdmux_mr *mr)
{
    struct rdmux_token token;
    struct rdmux_remote *remote = NULL;
    CHECK_OK(rdmux_mr_export(mr, &token));
    CHECK_STATUS(rdmux_remote_import(pair->a, &token, 0, &remote), RDMUX_IN_PROGRESS);
    assert_int_equal(await_entry(pair, pair->cq_a).opcode, RDMUX_WC_REMOTE_READY);
    return remote;
}

/* Takes the next entry of a cq that alone makes progress. */
static inline struct rdmux_wc poll_entry(struct rdmux_cq *cq)
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

#endif
