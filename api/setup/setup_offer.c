/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* What an endpoint's attributes ask for: of the fabric's paths in its offer, and of the path that is
 * opened. */
#include "api/base/address.h"
#include "api/core/ep.h"
#include "api/core/fabric.h"
#include "api/object/offer.h"
#include "api/session/setup_state.h"
#include "api/setup/setup.h"
#include "negotiation/filter.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Returns true if a socket can be bound to this address text. */
static bool is_address_here(const char *local)
{
    struct rdmux_address_text text = { .port = "0" };
    struct addrinfo *addresses = NULL;
    snprintf(text.host, sizeof(text.host), "%s", local);
    if (text.host[0] == '\0' || rdmux_address_resolve(&text, false, true, &addresses) != RDMUX_OK) {
        return false;
    }
    int fd = socket(addresses->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool here;
    if (fd >= 0) {
        here = bind(fd, addresses->ai_addr, addresses->ai_addrlen) == 0;
        close(fd);
    } else {
        here = errno != EAFNOSUPPORT; /* no descriptor left: the next to need one reports it */
    }
    freeaddrinfo(addresses);
    return here;
}

/* Reads an IP address, IPv4 as IPv4-mapped IPv6. */
static bool read_ip(const char *text, size_t length, struct in6_addr *out)
{
    char word[INET6_ADDRSTRLEN];
    if (length >= sizeof(word)) {
        return false;
    }
    memcpy(word, text, length);
    word[length] = '\0';
    *out = (struct in6_addr){ .s6_addr = { [10] = 0xff, [11] = 0xff } };
    return inet_pton(AF_INET, word, &out->s6_addr[12]) == 1 || inet_pton(AF_INET6, word, out) == 1;
}

/* A path's address names, beside other words, IP addresses or GIDs: "192.0.2.1, port 1". */
static bool has_ip(const char *address, const char *local)
{
    struct in6_addr wanted;
    struct in6_addr found;
    if (!read_ip(local, strlen(local), &wanted)) {
        return false;
    }
    for (const char *at = address; *at != '\0';) {
        size_t length = strcspn(at, ", ");
        if (read_ip(at, length, &found) && memcmp(&found, &wanted, sizeof(found)) == 0) {
            return true;
        }
        at += length;
        at += strspn(at, ", ");
    }
    return false;
}

static bool is_at(const struct rdmux_local_path *path, const char *local)
{
    return strcmp(path->device, local) == 0 || strcmp(path->address, local) == 0 ||
           has_ip(path->address, local);
}

/* Accepts a network interface, a device or an address of this machine. Negotiation decides if it is
 * usable. */
enum rdmux_status rdmux_check_local(struct rdmux_fabric *fabric, const char *call, const char *local)
{
    if (local == NULL || if_nametoindex(local) != 0 || is_address_here(local)) {
        return RDMUX_OK;
    }
    struct rdmux_offer *offer = rdmux_allocate(fabric, sizeof(*offer));
    if (offer == NULL) {
        return rdmux_fail(RDMUX_NO_MEMORY, "%s: out of memory", call);
    }
    rdmux_registry_offer_paths(&fabric->registry, offer);
    bool found = false;
    for (uint32_t i = 0; i < offer->path_count && *local != '\0'; i++) {
        found = found || is_at(&offer->paths[i].path, local);
    }
    rdmux_release(fabric, offer);
    return found ? RDMUX_OK
                 : rdmux_fail(RDMUX_INVALID,
                              "%s: attr.local \"%s\" is neither a device nor an address of this "
                              "machine; `rdmux info` and `ip address` list them",
                              call, local);
}

enum rdmux_status rdmux_offer_fill(struct rdmux_fabric *fabric, const struct rdmux_ep_attr *attr,
                                   const char *listener_paths, struct rdmux_offer *offer)
{
    char both[2 * RDMUX_FILTER_MAX];
    const char *paths = attr->paths;
    if (listener_paths != NULL && strcmp(listener_paths, "auto") != 0) {
        /* An offer has room for two filters: the fabric's, and this one, which is the intersection
         * of the endpoint's and the listener's. */
        size_t used = 0;
        both[0] = '\0';
        for (size_t i = 0; i < fabric->registry.count; i++) {
            const char *name = fabric->registry.entries[i].name;
            if (rdmux_filter_check(name, NULL) != RDMUX_OK) {
                continue; /* a refused plug-in is listed under its file name */
            }
            bool through = rdmux_filter_allows(listener_paths, name) &&
                           rdmux_filter_allows(attr->paths, name);
            int written = snprintf(both + used, sizeof(both) - used, "%s%s%s", used == 0 ? "" : ",",
                                   through ? "" : "!", name);
            used += written < 0 ? 0 : (size_t)written;
            if (used >= sizeof(offer->filter[1])) {
                return rdmux_fail(
                    RDMUX_INVALID,
                    "endpoint: attr.paths and the listener's filter together are too long");
            }
        }
        paths = both;
    }
    rdmux_offer_defaults(fabric, paths, offer);
    offer->prefer = attr->prefer;
    offer->typical_size = attr->typical_size != 0                  ? attr->typical_size
                          : attr->prefer == RDMUX_PREFER_BANDWIDTH ? 1 << 20
                                                                   : 0;
    offer->max_send = attr->max_send;
    offer->max_recv = attr->max_recv;
    offer->send_wish = (attr->flags & RDMUX_EP_SEND_WISH) != 0;
    offer->require = attr->require;
    offer->require_native = attr->require_native;
    offer->liveness_ms = attr->liveness_ms;
    offer->data_sockets = attr->data_sockets;
    offer->path_timeout_ms = attr->path_timeout_ms;
    offer->setup_timeout_ms = attr->setup_timeout_ms;
    offer->private_length = (uint32_t)attr->private_length;
    if (attr->private_length != 0) {
        memcpy(offer->private_data, attr->private_data, attr->private_length);
    }
    for (uint32_t i = 0; i < offer->path_count && attr->local != NULL; i++) {
        struct rdmux_local_path *path = &offer->paths[i].path;
        bool placed = path->device[0] != '\0' || path->address[0] != '\0';
        if (placed && !is_at(path, attr->local)) {
            path->reason = RDMUX_REASON_FILTERED;
            snprintf(path->text, sizeof(path->text), "attr.local asks for %s", attr->local);
        }
    }
    return RDMUX_OK;
}

/* The number of elements that the path supports, up to wish. The core handles longer lists, see
 * bounce.h. */
static uint32_t granted_sge(const struct rdmux_local_path *path, uint32_t wish)
{
    return wish < path->max_sge ? wish : path->max_sge;
}

void rdmux_setup_grant_inline(struct rdmux_ep *ep)
{
    const struct rdmux_provider_ep *path = ep->setup->attempt.path;
    const uint64_t room = ep->send.max_inline;
    const bool is_asked = ep->setup->attr.max_inline != 0;
    const bool needs_keys = (path->ops->flags & RDMUX_PROVIDER_LOCAL_KEYS) != 0;
    uint64_t most = ep->negotiated.path.max_inline;
    if (needs_keys) {
        /* What the device does not take inline goes through bounce buffers, but only if the program
         * has asked for it. */
        most = is_asked ? room : path->max_inline != 0 ? path->max_inline : most;
        most = most < RDMUX_INLINE_MIN ? RDMUX_INLINE_MIN : most;
    }
    /* With failover the core keeps a copy of the bytes, and no path gets them inline. */
    if (ep->info.failover != 0 || most < RDMUX_INLINE_MIN || most > room) {
        most = room;
    }
    ep->limits.max_inline = most;
    ep->info.max_inline = (uint32_t)most;
}

void rdmux_setup_fill_path_attr(struct rdmux_ep *ep, const struct rdmux_local_path *from,
                                struct rdmux_provider_srq *srq)
{
    const struct rdmux_ep_attr *attr = &ep->setup->attr;
    struct rdmux_local_path *path = &ep->negotiated.path;
    *path = *from;
    path->max_sge = from->max_sge == 0 ? RDMUX_SGE_MAX : from->max_sge;
    ep->negotiated.path_attr = (struct rdmux_provider_ep_attr){
        .role = ep->negotiated.role,
        .send_depth = attr->send_depth,
        .recv_depth = attr->srq == NULL ? attr->recv_depth : 0,
        .max_send_sge = granted_sge(path, attr->max_send_sge),
        .max_recv_sge = granted_sge(path, attr->max_recv_sge),
        .max_inline = attr->max_inline != 0 ? attr->max_inline : RDMUX_INLINE_MIN,
        .max_send = attr->max_send,
        .max_recv = attr->max_recv,
        .liveness_ms = attr->liveness_ms,
        .dscp = attr->dscp == RDMUX_OFF ? 0 : attr->dscp,
        .ecn = attr->ecn == RDMUX_OFF ? 0 : attr->ecn,
        .service_level = attr->service_level,
        .data_sockets = 1,
        .path = path,
        .srq = srq,
        .shared_socket = -1,
    };
}
