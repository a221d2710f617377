/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "tests/interop/rdmacm_pair.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char host[INET_ADDRSTRLEN];

void check_ok(enum rdmux_status status, const char *what)
{
    if (status != RDMUX_OK) {
        fail_msg("%s: %s: %s", what, rdmux_status_name(status), rdmux_last_error());
    }
}

void find_host(void)
{
    const char *given = getenv("RDMUX_INTEROP_ADDRESS");
    struct ifaddrs *all = NULL;
    (void)snprintf(host, sizeof(host), "%s", given != NULL ? given : "127.0.0.1");
    if (given != NULL || getifaddrs(&all) != 0) {
        return;
    }
    for (const struct ifaddrs *at = all; at != NULL; at = at->ifa_next) {
        bool up = (at->ifa_flags & IFF_UP) != 0 && (at->ifa_flags & IFF_LOOPBACK) == 0;
        if (up && at->ifa_addr != NULL && at->ifa_addr->sa_family == AF_INET) {
            const struct sockaddr_in *v4 = (const struct sockaddr_in *)(const void *)at->ifa_addr;
            (void)inet_ntop(AF_INET, &v4->sin_addr, host, sizeof(host));
            break;
        }
    }
    freeifaddrs(all);
}

void open_fabric(struct pair *pair)
{
    const struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    memset(pair, 0, sizeof(*pair));
    pair->client_attr = attr;
    pair->server_attr = attr;
    GOES(rdmux_fabric_open(NULL, &pair->fabric));
    GOES(rdmux_cq_create(pair->fabric, NULL, &pair->cq));
}

void listen_here(struct pair *pair, const char *scheme)
{
    char wish[RDMUX_ADDRESS_MAX];
    char got[RDMUX_ADDRESS_MAX];
    (void)snprintf(wish, sizeof(wish), "%s%s:0", scheme, host);
    GOES(rdmux_listen(pair->fabric, wish, NULL, &pair->listener));
    GOES(rdmux_listener_address(pair->listener, got, sizeof(got)));
    (void)snprintf(pair->address, sizeof(pair->address), "%s%s", scheme, got);
}

struct rdmux_wc next_entry(struct pair *pair)
{
    struct rdmux_wc wc = { .opcode = 0 };
    size_t count = 0;
    GOES(rdmux_cq_wait(pair->cq, &wc, 1, PATIENCE_MS, &count));
    assert_int_equal(count, 1);
    return wc;
}

struct rdmux_ep_info info_of(struct rdmux_ep *ep)
{
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    GOES(rdmux_ep_info(ep, &info));
    return info;
}

struct rdmux_wc expect(struct pair *pair, const struct rdmux_ep *ep, uint32_t opcode,
                       enum rdmux_status status)
{
    struct rdmux_wc wc = next_entry(pair);
    if (wc.ep != ep || wc.opcode != opcode || wc.status != (uint32_t)status) {
        const struct rdmux_ep_info info = info_of(wc.ep);
        fail_msg("%s %s of the %s, expected %s %s of the %s; %s", rdmux_wc_opcode_name(wc.opcode),
                 rdmux_status_name((enum rdmux_status)wc.status),
                 wc.ep == pair->client ? "client" : "server", rdmux_wc_opcode_name(opcode),
                 rdmux_status_name(status), ep == pair->client ? "client" : "server", info.text);
    }
    return wc;
}

uint64_t await_peer(struct pair *pair, struct rdmux_peer *out)
{
    struct rdmux_peer peer = RDMUX_PEER_INIT;
    GOES(rdmux_listener_next(pair->listener, PATIENCE_MS, &peer));
    if (out != NULL) {
        *out = peer;
    }
    return peer.id;
}

void await_both(struct pair *pair)
{
    int connected = 0;
    while (connected < 2) {
        struct rdmux_wc wc = next_entry(pair);
        assert_int_equal(wc.opcode, RDMUX_WC_CONNECTED);
        if (wc.status != RDMUX_OK) {
            const struct rdmux_ep_info info = info_of(wc.ep);
            fail_msg("%s: %s", rdmux_status_name((enum rdmux_status)wc.status), info.text);
        }
        connected++;
    }
}

void dial(struct pair *pair)
{
    assert_int_equal(
        rdmux_connect(pair->fabric, pair->cq, pair->address, &pair->client_attr, 0, &pair->client),
        RDMUX_IN_PROGRESS);
}

uint64_t await_dialled(struct pair *pair, struct rdmux_peer *out)
{
    struct rdmux_peer peer = RDMUX_PEER_INIT;
    for (;;) {
        struct rdmux_wc wc;
        assert_int_equal(rdmux_cq_poll(pair->cq, &wc, 1), 0);
        enum rdmux_status status = rdmux_listener_next(pair->listener, 1, &peer);
        if (status == RDMUX_OK) {
            break;
        }
        assert_int_equal(status, RDMUX_TIMED_OUT);
    }
    if (out != NULL) {
        *out = peer;
    }
    return peer.id;
}

void take(struct pair *pair, uint64_t peer)
{
    pair->server_attr.peer = peer;
    assert_int_equal(rdmux_accept(pair->listener, pair->cq, &pair->server_attr, 0, &pair->server),
                     RDMUX_IN_PROGRESS);
}

void connect_pair_to(struct pair *pair, void *buf, size_t length)
{
    listen_here(pair, "rdma://");
    dial(pair);
    take(pair, await_dialled(pair, NULL));
    if (buf != NULL) {
        GOES(rdmux_recv(pair->server, buf, length, NULL, NULL));
    }
    await_both(pair);
}

void connect_pair(struct pair *pair)
{
    connect_pair_to(pair, NULL, 0);
}

void add_region(struct pair *pair, uint32_t access)
{
    GOES(rdmux_mr_alloc(pair->fabric, SIZE, access, &pair->mr));
    pair->bytes = rdmux_mr_addr(pair->mr);
}

void close_pair(struct pair *pair)
{
    OK(rdmux_ep_close(pair->client));
    OK(rdmux_ep_close(pair->server));
    rdmux_listener_close(pair->listener);
    rdmux_mr_deregister(pair->mr);
    GOES(rdmux_cq_destroy(pair->cq));
    GOES(rdmux_fabric_close(pair->fabric));
}

bool is_iwarp(struct rdmux_ep *ep)
{
    return strcmp(info_of(ep).provider, "iwarp") == 0;
}

struct rdmux_remote *import(struct pair *pair, size_t length)
{
    uint64_t addr = 0;
    uint32_t key = 0;
    struct rdmux_remote *remote = NULL;
    GOES(rdmux_mr_raw(pair->mr, pair->server, &addr, &key));
    GOES(rdmux_remote_import_raw(pair->client, addr, key, length, &remote));
    return remote;
}
