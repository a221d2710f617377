/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* RoCE part of the provider: the choice of the GID table entry, and the IP header fields of the
 * packets. */
#include "roce/roce_gid.h"
#include "roce/roce_traffic.h"
#include "verbs/verbs_address.h"
#include "verbs/verbs_completion.h"
#include "verbs/verbs_connection.h"
#include "verbs/verbs_device.h"
#include "verbs/verbs_domain.h"
#include "verbs/verbs_endpoint.h"
#include "verbs/verbs_plugin.h"
#include "verbs/verbs_rdmacm.h"
#include "verbs/verbs_receive.h"
#include "verbs/verbs_send.h"
#include "verbs/verbs_side.h"
#include "verbs/verbs_table.h"
#include "verbs/verbs_transport.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    LATENCY_NS = 1000,
    HOP_LIMIT = 64,
    TABLE_MAX = 256, /* most entries of the GID table */
};

_Static_assert((int)ROCE_GID_TYPE_V2 == (int)IBV_GID_TYPE_ROCE_V2, "roce_gid.h has its number");

/* ------------------------------------------------------------------------------------ the table */

/* Fills in the interface's state: in this network namespace and with a carrier, and whether it is a
 * VLAN. */
static void look_at_interface(int socket, struct roce_gid *entry)
{
    struct ifreq request;
    memset(&request, 0, sizeof(request));
    if (entry->interface == 0 || if_indextoname(entry->interface, request.ifr_name) == NULL) {
        return;
    }
    char path[64 + IF_NAMESIZE];
    (void)snprintf(path, sizeof(path), "/proc/net/vlan/%.15s", request.ifr_name);
    entry->is_vlan = access(path, F_OK) == 0;
    const short wanted = IFF_UP | IFF_RUNNING;
    entry->is_interface_up = ioctl(socket, SIOCGIFFLAGS, &request) == 0 &&
                             (request.ifr_flags & wanted) == wanted;
}

/* Reads the GID table of a port. *count: entries of out, which has room for TABLE_MAX. */
static enum rdmux_status read_table(struct ibv_context *context, uint8_t port, struct roce_gid *out,
                                    size_t *count)
{
    struct ibv_gid_entry *entries = calloc(TABLE_MAX, sizeof(*entries));
    if (entries == NULL) {
        return RDMUX_NO_MEMORY;
    }
    ssize_t got = ibv_query_gid_table(context, entries, TABLE_MAX, 0);
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    *count = 0;
    for (ssize_t i = 0; i < got; i++) {
        if (entries[i].port_num != port) {
            continue;
        }
        struct roce_gid *entry = &out[(*count)++];
        *entry = (struct roce_gid){ .index = entries[i].gid_index,
                                    .type = entries[i].gid_type,
                                    .interface = entries[i].ndev_ifindex };
        memcpy(entry->gid, entries[i].gid.raw, sizeof(entry->gid));
        look_at_interface(fd, entry);
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    free(entries);
    return got < 0 ? RDMUX_IO : RDMUX_OK;
}

static void find_interface(const struct roce_gid *table, size_t count, struct roce_wish *wish)
{
    for (size_t i = 0; i < count; i++) {
        if (table[i].interface != 0 && memcmp(table[i].gid, wish->local, sizeof(wish->local)) == 0) {
            wish->interface = table[i].interface;
        }
    }
}

/* Returns the address family of the control channel, which is the same at both ends. */
static uint8_t family_of(const struct roce_wish *wish)
{
    switch (rdmux_roce_gid_kind(wish->local)) {
    case VERBS_ADDRESS_IPV4:
        return 4;
    case VERBS_ADDRESS_IPV6:
        return 6;
    default:
        return 0;
    }
}

/* Link-local addresses name no port, as another port may have the same: only one that is all there
 * is, is listed. */
static void list_addresses(const struct verbs_whereabouts *chosen, const struct roce_gid *table,
                           size_t count, struct rdmux_local_path *path)
{
    for (size_t i = 0; i < chosen->address_count; i++) {
        if (i == 0 || chosen->addresses[i].kind != VERBS_ADDRESS_LINK_LOCAL) {
            rdmux_verbs_path_add_address(path, chosen->addresses[i].gid);
        }
    }
    for (size_t i = 0; i < count; i++) {
        uint8_t kind = rdmux_roce_gid_kind(table[i].gid);
        if (rdmux_roce_gid_is_usable(&table[i]) &&
            (kind == VERBS_ADDRESS_IPV4 || kind == VERBS_ADDRESS_IPV6)) {
            rdmux_verbs_path_add_address(path, table[i].gid);
        }
    }
}

/* Chooses the addresses of a port. gid_index, if not NULL, gets the table index of each address;
 * path, if not NULL, the addresses by which the port can be named, those that were chosen first. */
static enum roce_lack roce_look(struct ibv_context *context, uint8_t port, struct roce_wish *wish,
                                struct verbs_whereabouts *out, uint32_t *gid_index,
                                struct rdmux_local_path *path)
{
    struct roce_choice choice;
    size_t count = 0;
    struct roce_gid *table = calloc(TABLE_MAX, sizeof(*table));
    *out = (struct verbs_whereabouts){ .fabric = VERBS_FABRIC_ROCE,
                                       .port = port,
                                       .prefers = family_of(wish) };
    if (table == NULL || read_table(context, port, table, &count) != RDMUX_OK) {
        free(table);
        return ROCE_LACK_ENTRIES;
    }
    find_interface(table, count, wish);
    enum roce_lack lack = rdmux_roce_gid_choose(table, count, wish, &choice);
    for (size_t i = 0; i < choice.count; i++) {
        const struct roce_gid *entry = &table[choice.entries[i]];
        out->addresses[i].kind = choice.kinds[i];
        memcpy(out->addresses[i].gid, entry->gid, sizeof(entry->gid));
        if (gid_index != NULL) {
            gid_index[i] = entry->index;
        }
    }
    out->address_count = (uint8_t)choice.count;
    if (path != NULL) {
        list_addresses(out, table, count, path);
    }
    free(table);
    return lack;
}

static const char *lack_text(enum roce_lack lack)
{
    switch (lack) {
    case ROCE_LACK_VERSION_2:
        return "its GIDs are of RoCE v1, which is not routable";
    case ROCE_LACK_INTERFACE:
        return "its network interface is down, or in another network namespace";
    case ROCE_LACK_ADDRESS:
        return "its network interface has no address";
    case ROCE_LACK_ENTRIES:
    case ROCE_LACK_NOTHING:
        break;
    }
    return "its GID table is empty";
}

static const char *lack_hint(enum roce_lack lack)
{
    switch (lack) {
    case ROCE_LACK_VERSION_2:
        return "enable RoCE v2 on the adapter";
    case ROCE_LACK_INTERFACE:
        return "bring the interface up; in a container give it the interface along with the device";
    case ROCE_LACK_ADDRESS:
    case ROCE_LACK_ENTRIES:
    case ROCE_LACK_NOTHING:
        break;
    }
    return "give the adapter's network interface an IP address";
}

/* ---------------------------------------------------------------------------------------- paths */

static void probe_port(const struct verbs_port *port, struct rdmux_local_path *out)
{
    struct verbs_whereabouts where;
    struct roce_wish wish = { .interface = 0 };
    struct rdmux_local_path named = { .address = "" };
    enum roce_lack lack = roce_look(port->context, port->number, &wish, &where, NULL, &named);
    if (lack != ROCE_LACK_NOTHING) {
        rdmux_verbs_path_refuse(out, RDMUX_REASON_NO_USABLE_GID, lack_hint(lack),
                                "%s port %u has no GID that can be used: %s", port->device,
                                port->number, lack_text(lack));
        return;
    }
    (void)snprintf(out->address, sizeof(out->address), "%.110s, port %u", named.address,
                   port->number);
    rdmux_verbs_path_set_reach(out, &where);
}

/* ----------------------------------------------------------------------------------- connection */

static bool way_to_self(const struct verbs_port *port, struct verbs_route *out)
{
    struct verbs_whereabouts where;
    struct roce_wish wish = { .interface = 0 };
    uint32_t gid_index[VERBS_ADDRESSES_MAX];
    if (roce_look(port->context, port->number, &wish, &where, gid_index, NULL) !=
        ROCE_LACK_NOTHING) {
        return false;
    }
    *out = (struct verbs_route){ .address = { .port_num = port->number,
                                              .is_global = 1,
                                              .grh = { .sgid_index = (uint8_t)gid_index[0],
                                                       .hop_limit = HOP_LIMIT } } };
    memcpy(out->address.grh.dgid.raw, where.addresses[0].gid, VERBS_GID_SIZE);
    return true;
}

static enum rdmux_status roce_locate(struct verbs_ep *ep, struct verbs_whereabouts *out)
{
    const struct verbs_domain *domain = verbs_domain_of_ep(ep);
    struct roce_wish wish = { .interface = 0 };
    rdmux_verbs_own_address(ep->attr, wish.local);
    enum roce_lack lack = roce_look(domain->context, ep->port, &wish, out, ep->gid_index, NULL);
    if (lack != ROCE_LACK_NOTHING) {
        rdmux_provider_error("%s port %u has no GID that can be used: %s; %s", domain->device,
                             ep->port, lack_text(lack), lack_hint(lack));
        return RDMUX_IO;
    }
    return RDMUX_OK;
}

static enum rdmux_status roce_route(struct verbs_ep *ep, struct verbs_route *out)
{
    const struct verbs_whereabouts *ours = &ep->ours.where;
    const struct verbs_whereabouts *theirs = &ep->theirs.where;
    uint8_t kind = rdmux_verbs_common_kind(ours, theirs);
    if (kind == 0) {
        rdmux_provider_error("roce: %s port %u and the peer's adapter have no addresses of one "
                             "family",
                             verbs_domain_of_ep(ep)->device, ep->port);
        return RDMUX_IO;
    }
    size_t own = rdmux_verbs_address_of_kind(ours, kind);
    size_t other = rdmux_verbs_address_of_kind(theirs, kind);
    *out = (struct verbs_route){
        .address = { .sl = (uint8_t)ep->attr->service_level,
                     .port_num = ep->port,
                     .is_global = 1,
                     .grh = { .sgid_index = (uint8_t)ep->gid_index[own],
                              .hop_limit = HOP_LIMIT,
                              .traffic_class = rdmux_roce_traffic_class(ep->attr->dscp,
                                                                        ep->attr->ecn),
                              .flow_label = rdmux_roce_flow_label(ep->ours.qpn, ep->theirs.qpn) } },
    };
    memcpy(out->address.grh.dgid.raw, theirs->addresses[other].gid, VERBS_GID_SIZE);
    ep->kind = kind;
    char from[INET6_ADDRSTRLEN];
    char to[INET6_ADDRSTRLEN];
    rdmux_verbs_gid_print(kind, ours->addresses[own].gid, from, sizeof(from));
    rdmux_verbs_gid_print(kind, theirs->addresses[other].gid, to, sizeof(to));
    rdmux_provider_log(
        verbs_fabric_of_ep(ep), RDMUX_LOG_DEBUG,
        "roce %s port %u: GID index %u, %s to %s, DSCP %u, ECN %u, flow label 0x%05x",
        verbs_domain_of_ep(ep)->device, ep->port, ep->gid_index[own], from, to, ep->attr->dscp,
        ep->attr->ecn, out->address.grh.flow_label);
    return RDMUX_OK;
}

/* Checks the table entry from which the queue pair sends. */
static bool roce_holds(struct verbs_ep *ep, char *text, size_t size)
{
    struct ibv_gid_entry now;
    const struct verbs_domain *domain = verbs_domain_of_ep(ep);
    size_t own = rdmux_verbs_address_of_kind(&ep->ours.where, ep->kind);
    const uint8_t *gid = ep->ours.where.addresses[own].gid;
    if (ibv_query_gid_ex(domain->context, ep->port, ep->gid_index[own], &now, 0) == 0 &&
        now.gid_type == IBV_GID_TYPE_ROCE_V2 && memcmp(now.gid.raw, gid, VERBS_GID_SIZE) == 0) {
        return true;
    }
    char address[INET6_ADDRSTRLEN];
    rdmux_verbs_gid_print(ep->kind, gid, address, sizeof(address));
    (void)snprintf(text, size, "the address %s is gone from the adapter's GID table", address);
    return false;
}

/* ---------------------------------------------------------------------------------------- table */

static const struct verbs_transport roce_transport = {
    .name = "roce",
    .fabric_name = "RoCE",
    .fabric = VERBS_FABRIC_ROCE,
    .latency_ns = LATENCY_NS,
    .request_slots = 2, /* a write and the read of the flush word behind it */
    .read_slots = 1,
    .request_refused = RDMUX_PROTOCOL,
    .probe_port = probe_port,
    .way_to_self = way_to_self,
    .locate = roce_locate,
    .route = roce_route,
    .holds = roce_holds,
    .start = rdmux_verbs_start,
    .sent = rdmux_verbs_sent,
    .received = rdmux_verbs_received,
    .receive_failed = rdmux_verbs_receive_failed,
    .broke = rdmux_verbs_broke,
    .side_message = rdmux_verbs_no_side_message,
};

static enum rdmux_reason roce_reach(const uint8_t *ours, size_t ours_length, const uint8_t *theirs,
                                    size_t theirs_length, char *text)
{
    return rdmux_verbs_reach_by_address(&roce_transport, ours, ours_length, theirs, theirs_length,
                                        text);
}

static enum rdmux_status roce_probe(struct rdmux_fabric *fabric, struct rdmux_local_path *out,
                                    size_t max, size_t *count)
{
    return rdmux_verbs_probe(&roce_transport, fabric, out, max, count);
}

static enum rdmux_status domain_open(struct rdmux_provider_domain *domain,
                                     const struct rdmux_local_path *path)
{
    return rdmux_verbs_domain_open(&roce_transport, domain, path);
}

static enum rdmux_status roce_inspect(struct rdmux_fabric *fabric,
                                      void (*report)(void *user,
                                                     const struct rdmux_provider_finding *finding),
                                      void *user)
{
    return rdmux_verbs_inspect(&roce_transport, fabric, report, user);
}

const struct rdmux_provider_ops rdmux_roce_provider = {
    VERBS_TABLE_COMMON,           .name = "roce",
    .probe = roce_probe,          .reach = roce_reach,
    .domain_open = domain_open,   .inspect = roce_inspect,
    .rdmacm = &rdmux_roce_rdmacm,
};
