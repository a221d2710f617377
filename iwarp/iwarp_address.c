/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * The addresses of a device. Neither the device's GID, which is a MAC address, nor sysfs tells how
 * the connection manager maps an address. So this file asks it: an id bound to an address names the
 * device behind it.
 */
#include "iwarp/iwarp_internal.h"
#include "verbs/verbs_address.h"
#include "verbs/verbs_connection.h"

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <string.h>

enum { V4_AT = 12, V4_SIZE = 4 };

static bool is_v4(const uint8_t *gid)
{
    static const uint8_t mapped[V4_AT] = { [10] = 0xff, [11] = 0xff };
    return memcmp(gid, mapped, sizeof(mapped)) == 0;
}

void rdmux_iwarp_socket_address(const uint8_t gid[VERBS_GID_SIZE], uint16_t port,
                                struct sockaddr_storage *out)
{
    memset(out, 0, sizeof(*out));
    if (is_v4(gid)) {
        struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = htons(port) };
        memcpy(&v4.sin_addr, gid + V4_AT, V4_SIZE);
        memcpy(out, &v4, sizeof(v4));
    } else {
        struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_port = htons(port) };
        memcpy(&v6.sin6_addr, gid, VERBS_GID_SIZE);
        memcpy(out, &v6, sizeof(v6));
    }
}

/* Returns an address's kind; 0: not usable. A link-local IPv6 address needs the number of the link
 * at both ends. */
static uint8_t kind_of(const uint8_t *gid)
{
    static const uint8_t nothing[VERBS_GID_SIZE];
    if (memcmp(gid, nothing, sizeof(nothing)) == 0) {
        return 0;
    }
    if (is_v4(gid)) {
        bool is_link_local = gid[V4_AT] == 169 && gid[V4_AT + 1] == 254;
        return is_link_local ? VERBS_ADDRESS_LINK_LOCAL : VERBS_ADDRESS_IPV4;
    }
    bool is_link_local = gid[0] == 0xfe && (gid[1] & 0xc0) == 0x80;
    return is_link_local || gid[0] == 0xff ? 0 : VERBS_ADDRESS_IPV6;
}

static bool belongs_to(struct rdma_event_channel *channel, const struct ifaddrs *entry,
                       const char *device, uint8_t port)
{
    struct rdma_cm_id *id = NULL;
    if (rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) != 0) {
        return false;
    }
    bool belongs = rdma_bind_addr(id, entry->ifa_addr) == 0 && id->verbs != NULL &&
                   strcmp(ibv_get_device_name(id->verbs->device), device) == 0 &&
                   id->port_num == port;
    (void)rdma_destroy_id(id);
    return belongs;
}

/* Keeps one address of each kind: the near one, else the first. */
static void keep_address(struct verbs_whereabouts *out, uint8_t kind, const uint8_t *gid,
                         bool is_near)
{
    size_t at = rdmux_verbs_address_of_kind(out, kind);
    if (at == VERBS_ADDRESSES_MAX) {
        at = out->address_count++;
        is_near = true;
    }
    if (is_near) {
        out->addresses[at].kind = kind;
        memcpy(out->addresses[at].gid, gid, VERBS_GID_SIZE);
    }
}

/* Reads an interface's address. Returns its kind; 0: not usable. */
static uint8_t read_entry(const struct ifaddrs *entry, uint8_t gid[VERBS_GID_SIZE])
{
    if (entry->ifa_addr == NULL ||
        (entry->ifa_addr->sa_family != AF_INET && entry->ifa_addr->sa_family != AF_INET6) ||
        (entry->ifa_flags & (IFF_UP | IFF_LOOPBACK)) != IFF_UP) {
        return 0;
    }
    rdmux_verbs_address_to_gid(entry->ifa_addr, gid);
    return kind_of(gid);
}

static void look_at(struct rdma_event_channel *channel, const struct ifaddrs *entry,
                    const char *device, const uint8_t *near, struct verbs_whereabouts *out)
{
    uint8_t gid[VERBS_GID_SIZE] = { 0 };
    uint8_t kind = read_entry(entry, gid);
    bool is_near = memcmp(gid, near, VERBS_GID_SIZE) == 0;
    bool is_wanted = kind != 0 &&
                     (is_near || rdmux_verbs_address_of_kind(out, kind) == VERBS_ADDRESSES_MAX);
    if (is_wanted && belongs_to(channel, entry, device, out->port)) {
        keep_address(out, kind, gid, is_near);
    }
}

/* Link-local addresses name no port, as another port may have the same: only one that is all there
 * is, is listed. */
static void list_addresses(struct rdma_event_channel *channel, const struct ifaddrs *all,
                           const char *device, const struct verbs_whereabouts *chosen,
                           struct rdmux_local_path *path)
{
    for (size_t i = 0; i < chosen->address_count; i++) {
        if (i == 0 || chosen->addresses[i].kind != VERBS_ADDRESS_LINK_LOCAL) {
            rdmux_verbs_path_add_address(path, chosen->addresses[i].gid);
        }
    }
    for (const struct ifaddrs *entry = all; entry != NULL; entry = entry->ifa_next) {
        uint8_t gid[VERBS_GID_SIZE];
        uint8_t kind = read_entry(entry, gid);
        if (kind != 0 && kind != VERBS_ADDRESS_LINK_LOCAL &&
            belongs_to(channel, entry, device, chosen->port)) {
            rdmux_verbs_path_add_address(path, gid);
        }
    }
}

enum rdmux_status rdmux_iwarp_find_addresses(const char *device, uint8_t port,
                                             const uint8_t near[VERBS_GID_SIZE],
                                             struct verbs_whereabouts *out,
                                             struct rdmux_local_path *path)
{
    *out = (struct verbs_whereabouts){ .fabric = VERBS_FABRIC_IWARP, .port = port };
    uint8_t near_kind = kind_of(near);
    out->prefers = near_kind == VERBS_ADDRESS_IPV4 ? 4 : near_kind == VERBS_ADDRESS_IPV6 ? 6 : 0;
    struct rdma_event_channel *channel = rdma_create_event_channel();
    if (channel == NULL) {
        rdmux_provider_error(
            "%s: the connection manager cannot be used: %s; %s", device, strerror(errno),
            errno == EACCES || errno == EPERM ? "give this user access to /dev/infiniband/rdma_cm"
                                              : "load its driver (modprobe rdma_ucm)");
        return RDMUX_IO;
    }
    struct ifaddrs *all = NULL;
    if (getifaddrs(&all) == 0) {
        for (const struct ifaddrs *entry = all; entry != NULL; entry = entry->ifa_next) {
            look_at(channel, entry, device, near, out);
        }
        if (path != NULL) {
            list_addresses(channel, all, device, out, path);
        }
        freeifaddrs(all);
    }
    rdma_destroy_event_channel(channel);
    return RDMUX_OK;
}
