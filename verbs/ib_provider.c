/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* InfiniBand part of the provider: ports with LIDs in a subnet, and partitions. */
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
#include <ifaddrs.h>
#include <netpacket/packet.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

enum {
    LATENCY_NS = 700,
    PREFIX_SIZE = 8,  /* bytes of a GID that identify the subnet */
    ROUTED_HOPS = 64, /* through routers */
    PKEYS_LOOKED_AT = 128,
};

/* ---------------------------------------------------------------------------------- whereabouts */

/* Reads the port's LID, GID and partitions. pkey_index, if not NULL, gets the table index of each
 * partition. */
static enum rdmux_status ib_look(struct ibv_context *context, const char *device, uint8_t port,
                                 struct verbs_whereabouts *out, uint16_t *pkey_index)
{
    struct ibv_port_attr attr;
    union ibv_gid gid;
    int error = ibv_query_port(context, port, &attr);
    if (error != 0 || ibv_query_gid(context, port, 0, &gid) != 0) {
        rdmux_provider_error("%s port %u does not tell its LID and GID: %s", device, port,
                             strerror(error != 0 ? error : errno));
        return RDMUX_IO;
    }
    *out = (struct verbs_whereabouts){
        .fabric = VERBS_FABRIC_IB, .port = port, .lid = attr.lid, .address_count = 1
    };
    out->addresses[0].kind = VERBS_ADDRESS_IB;
    memcpy(out->addresses[0].gid, gid.raw, sizeof(gid.raw));
    int entries = attr.pkey_tbl_len < PKEYS_LOOKED_AT ? attr.pkey_tbl_len : PKEYS_LOOKED_AT;
    for (int i = 0; i < entries && out->pkey_count < VERBS_PKEYS_MAX; i++) {
        __be16 pkey = 0;
        if (ibv_query_pkey(context, port, i, &pkey) != 0 ||
            (ntohs(pkey) & (VERBS_PKEY_FULL - 1)) == 0) {
            continue;
        }
        if (pkey_index != NULL) {
            pkey_index[out->pkey_count] = (uint16_t)i;
        }
        out->pkeys[out->pkey_count++] = ntohs(pkey);
    }
    return RDMUX_OK;
}

/* The hardware address of an IPoIB interface ends with the GID of its port (RFC 4391). */
static bool is_ipoib_of(const struct ifaddrs *entry, const uint8_t *gid)
{
    enum { HARDWARE_SIZE = 20 };
    struct sockaddr_ll link;
    if (entry->ifa_addr == NULL || entry->ifa_addr->sa_family != AF_PACKET) {
        return false;
    }
    memcpy(&link, entry->ifa_addr, sizeof(link));
    const uint8_t *hardware = (const uint8_t *)entry->ifa_addr +
                              offsetof(struct sockaddr_ll, sll_addr);
    return link.sll_halen == HARDWARE_SIZE &&
           memcmp(hardware + HARDWARE_SIZE - VERBS_GID_SIZE, gid, VERBS_GID_SIZE) == 0;
}

/* A program that knows the IP network over the fabric names the port by its address there. */
static void list_ip_addresses(const uint8_t *gid, struct rdmux_local_path *out)
{
    struct ifaddrs *all = NULL;
    if (getifaddrs(&all) != 0) {
        return;
    }
    for (const struct ifaddrs *link = all; link != NULL; link = link->ifa_next) {
        if (!is_ipoib_of(link, gid)) {
            continue;
        }
        for (const struct ifaddrs *entry = all; entry != NULL; entry = entry->ifa_next) {
            if (entry->ifa_addr != NULL && strcmp(entry->ifa_name, link->ifa_name) == 0 &&
                (entry->ifa_addr->sa_family == AF_INET || entry->ifa_addr->sa_family == AF_INET6)) {
                uint8_t address[VERBS_GID_SIZE];
                rdmux_verbs_address_to_gid(entry->ifa_addr, address);
                rdmux_verbs_path_add_address(out, address);
            }
        }
    }
    freeifaddrs(all);
}

static void probe_port(const struct verbs_port *port, struct rdmux_local_path *out)
{
    struct verbs_whereabouts where;
    if (ib_look(port->context, port->device, port->number, &where, NULL) != RDMUX_OK) {
        rdmux_verbs_path_refuse(out, RDMUX_REASON_OPEN_FAILED, NULL,
                                "%s port %u does not tell its LID and GID", port->device,
                                port->number);
        return;
    }
    if (where.pkey_count == 0) {
        rdmux_verbs_path_refuse(out, RDMUX_REASON_OPEN_FAILED,
                                "have the subnet manager put the port into a partition",
                                "%s port %u is in no partition", port->device, port->number);
        return;
    }
    char gid[64];
    rdmux_verbs_gid_print(VERBS_ADDRESS_IB, where.addresses[0].gid, gid, sizeof(gid));
    (void)snprintf(out->address, sizeof(out->address), "port %u, LID %u, GID %s", port->number,
                   where.lid, gid);
    list_ip_addresses(where.addresses[0].gid, out);
    rdmux_verbs_path_set_reach(out, &where);
}

static bool same_subnet(const struct verbs_whereabouts *a, const struct verbs_whereabouts *b)
{
    return a->address_count > 0 && b->address_count > 0 &&
           memcmp(a->addresses[0].gid, b->addresses[0].gid, PREFIX_SIZE) == 0;
}

static enum rdmux_reason ib_reach(const uint8_t *ours, size_t ours_length, const uint8_t *theirs,
                                  size_t theirs_length, char *text)
{
    struct verbs_whereabouts a;
    struct verbs_whereabouts b;
    size_t pkey = 0;
    if (rdmux_verbs_whereabouts_decode(ours, ours_length, &a) != RDMUX_OK ||
        rdmux_verbs_whereabouts_decode(theirs, theirs_length, &b) != RDMUX_OK ||
        a.fabric != VERBS_FABRIC_IB || b.fabric != VERBS_FABRIC_IB) {
        (void)snprintf(text, RDMUX_TEXT_MAX, "the peer's ib provider is of another version");
        return RDMUX_REASON_NOT_REACHABLE;
    }
    if (!same_subnet(&a, &b)) {
        (void)snprintf(text, RDMUX_TEXT_MAX, "the ports are in different InfiniBand subnets");
        return RDMUX_REASON_NOT_REACHABLE;
    }
    if (rdmux_verbs_common_pkey(&a, &b, &pkey) != RDMUX_OK) {
        (void)snprintf(text, RDMUX_TEXT_MAX,
                       "the ports are in no common partition with a full member (P_Key)");
        return RDMUX_REASON_NOT_REACHABLE;
    }
    return RDMUX_REASON_NONE;
}

/* ----------------------------------------------------------------------------------- connection */

/* Uses the LID, if there is one. Only full membership will do: two limited members of a partition,
 * such as a port and itself, cannot exchange packets. */
static bool way_to_self(const struct verbs_port *port, struct verbs_route *out)
{
    struct verbs_whereabouts where;
    uint16_t pkey_index[VERBS_PKEYS_MAX];
    if (ib_look(port->context, port->device, port->number, &where, pkey_index) != RDMUX_OK) {
        return false;
    }
    *out = (struct verbs_route){ .address = { .dlid = where.lid, .port_num = port->number } };
    if (where.lid == 0) {
        out->address.is_global = 1;
        out->address.grh.hop_limit = ROUTED_HOPS;
        memcpy(out->address.grh.dgid.raw, where.addresses[0].gid, VERBS_GID_SIZE);
    }
    for (size_t i = 0; i < where.pkey_count; i++) {
        if ((where.pkeys[i] & VERBS_PKEY_FULL) != 0) {
            out->pkey_index = pkey_index[i];
            return true;
        }
    }
    return false;
}

static enum rdmux_status ib_locate(struct verbs_ep *ep, struct verbs_whereabouts *out)
{
    const struct verbs_domain *domain = verbs_domain_of_ep(ep);
    return ib_look(domain->context, domain->device, ep->port, out, ep->pkey_index);
}

static enum rdmux_status ib_route(struct verbs_ep *ep, struct verbs_route *out)
{
    const struct verbs_whereabouts *ours = &ep->ours.where;
    const struct verbs_whereabouts *theirs = &ep->theirs.where;
    size_t pkey = 0;
    if (rdmux_verbs_common_pkey(ours, theirs, &pkey) != RDMUX_OK) {
        rdmux_provider_error("ib: the ports are in no common partition with a full member");
        return RDMUX_IO;
    }
    *out = (struct verbs_route){
        .address = { .dlid = theirs->lid,
                     .sl = (uint8_t)ep->attr->service_level,
                     .port_num = ep->port },
        .pkey_index = ep->pkey_index[pkey],
    };
    if (!same_subnet(ours, theirs) || theirs->lid == 0) {
        if (theirs->address_count == 0) {
            rdmux_provider_error("ib: the peer has neither LID nor GID");
            return RDMUX_PROTOCOL;
        }
        out->address.is_global = 1;
        out->address.grh.hop_limit = ROUTED_HOPS;
        memcpy(out->address.grh.dgid.raw, theirs->addresses[0].gid, VERBS_GID_SIZE);
    }
    ep->kind = VERBS_ADDRESS_IB;
    return RDMUX_OK;
}

static bool ib_holds(struct verbs_ep *ep, char *text, size_t size)
{
    struct verbs_whereabouts now;
    uint16_t pkey_index[VERBS_PKEYS_MAX];
    const struct verbs_domain *domain = verbs_domain_of_ep(ep);
    if (ib_look(domain->context, domain->device, ep->port, &now, pkey_index) != RDMUX_OK ||
        now.lid != ep->ours.where.lid) {
        (void)snprintf(text, size, "the port's LID has changed; its connections are void");
        return false;
    }
    return true;
}

/* ---------------------------------------------------------------------------------------- table */

static const struct verbs_transport ib_transport = {
    .name = "ib",
    .fabric_name = "InfiniBand",
    .fabric = VERBS_FABRIC_IB,
    .latency_ns = LATENCY_NS,
    .request_slots = 2, /* a write and the read of the flush word behind it */
    .read_slots = 1,
    .request_refused = RDMUX_PROTOCOL,
    .probe_port = probe_port,
    .way_to_self = way_to_self,
    .locate = ib_locate,
    .route = ib_route,
    .holds = ib_holds,
    .start = rdmux_verbs_start,
    .sent = rdmux_verbs_sent,
    .received = rdmux_verbs_received,
    .receive_failed = rdmux_verbs_receive_failed,
    .broke = rdmux_verbs_broke,
    .side_message = rdmux_verbs_no_side_message,
};

static enum rdmux_status ib_probe(struct rdmux_fabric *fabric, struct rdmux_local_path *out,
                                  size_t max, size_t *count)
{
    return rdmux_verbs_probe(&ib_transport, fabric, out, max, count);
}

static enum rdmux_status domain_open(struct rdmux_provider_domain *domain,
                                     const struct rdmux_local_path *path)
{
    return rdmux_verbs_domain_open(&ib_transport, domain, path);
}

static enum rdmux_status ib_inspect(struct rdmux_fabric *fabric,
                                    void (*report)(void *user,
                                                   const struct rdmux_provider_finding *finding),
                                    void *user)
{
    return rdmux_verbs_inspect(&ib_transport, fabric, report, user);
}

const struct rdmux_provider_ops rdmux_ib_provider = {
    VERBS_TABLE_COMMON,         .name = "ib",
    .probe = ib_probe,          .reach = ib_reach,
    .domain_open = domain_open, .inspect = ib_inspect,
    .rdmacm = &rdmux_ib_rdmacm,
};
