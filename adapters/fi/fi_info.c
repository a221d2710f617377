/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* What the provider offers: one fi_info for each local address, checked against the hints. */
#include "adapters/fi/fi_internal.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Returns whether the hints ask for nothing that is not offered. The text names the first thing. */
static const char *lacking(const struct fi_info *hints)
{
    if (hints == NULL) {
        return NULL;
    }
    if ((hints->caps & ~(FI_RDMUX_CAPS | FI_RDMUX_DOMAIN_CAPS)) != 0) {
        return "capabilities";
    }
    if (hints->addr_format != FI_FORMAT_UNSPEC && hints->addr_format != FI_SOCKADDR &&
        hints->addr_format != FI_SOCKADDR_IN && hints->addr_format != FI_SOCKADDR_IN6) {
        return "the address format";
    }
    const struct fi_ep_attr *ep = hints->ep_attr;
    if (ep != NULL &&
        ((ep->type != FI_EP_UNSPEC && ep->type != FI_EP_MSG) || ep->protocol != FI_PROTO_UNSPEC ||
         ep->max_msg_size > FI_MESSAGE_MAX || ep->msg_prefix_size != 0 ||
         ep->max_order_war_size != 0 || ep->max_order_waw_size != 0 || ep->tx_ctx_cnt > 1 ||
         (ep->rx_ctx_cnt > 1 && ep->rx_ctx_cnt != FI_SHARED_CONTEXT) || ep->auth_key_size != 0)) {
        return "attributes of the endpoint";
    }
    const struct fi_tx_attr *tx = hints->tx_attr;
    if (tx != NULL &&
        ((tx->caps & ~(FI_RDMUX_CAPS | FI_RDMUX_DOMAIN_CAPS)) != 0 ||
         (tx->msg_order & ~FI_RDMUX_ORDER) != 0 || (tx->op_flags & ~FI_RDMUX_OP_FLAGS) != 0 ||
         tx->inject_size > FI_INJECT_MAX || tx->size > FI_DEPTH_MAX ||
         tx->iov_limit > FI_PIECES_MAX || tx->rma_iov_limit > 1)) {
        return "attributes of transmission";
    }
    const struct fi_rx_attr *rx = hints->rx_attr;
    if (rx != NULL && ((rx->caps & ~(FI_RDMUX_CAPS | FI_RDMUX_DOMAIN_CAPS)) != 0 ||
                       (rx->msg_order & ~FI_RDMUX_ORDER) != 0 ||
                       (rx->op_flags & ~FI_COMPLETION) != 0 || rx->size > FI_DEPTH_MAX ||
                       rx->iov_limit > FI_PIECES_MAX || rx->total_buffered_recv != 0)) {
        return "attributes of reception";
    }
    const struct fi_domain_attr *domain = hints->domain_attr;
    if (domain != NULL) {
        if ((domain->mr_mode & FI_RDMUX_MR_MODE) != FI_RDMUX_MR_MODE &&
            domain->mr_mode != FI_MR_BASIC &&
            (hints->caps == 0 || (hints->caps & (FI_RMA | FI_REMOTE_READ | FI_REMOTE_WRITE)) != 0)) {
            return "the mr_mode: FI_MR_VIRT_ADDR, FI_MR_ALLOCATED and FI_MR_PROV_KEY are needed";
        }
        if (domain->cq_data_size > FI_CQ_DATA_SIZE || domain->mr_key_size > sizeof(uint64_t) ||
            (domain->caps & ~FI_RDMUX_DOMAIN_CAPS) != 0 || domain->auth_key_size != 0) {
            return "attributes of the domain";
        }
    }
    return NULL;
}

static bool has_receive_data_mode(const struct fi_info *hints)
{
    return hints == NULL || (hints->mode & FI_RX_CQ_DATA) != 0 ||
           (hints->rx_attr != NULL && (hints->rx_attr->mode & FI_RX_CQ_DATA) != 0);
}

static void fill_transfer(const struct fi_info *hints, struct fi_info *info)
{
    const struct fi_tx_attr *tx = hints != NULL ? hints->tx_attr : NULL;
    const struct fi_rx_attr *rx = hints != NULL ? hints->rx_attr : NULL;
    const uint64_t caps = hints != NULL && hints->caps != 0 ? hints->caps & FI_RDMUX_CAPS
                                                            : FI_RDMUX_CAPS;
    const uint64_t sending = FI_MSG | FI_SEND | FI_RMA | FI_READ | FI_WRITE;
    const uint64_t receiving = FI_MSG | FI_RECV | FI_RMA | FI_REMOTE_READ | FI_REMOTE_WRITE;
    *info->tx_attr = (struct fi_tx_attr){
        .caps = (caps | FI_RDMUX_CAPS) & sending,
        .op_flags = tx != NULL ? tx->op_flags : 0,
        .msg_order = FI_RDMUX_ORDER,
        .comp_order = FI_ORDER_STRICT,
        .inject_size = FI_INJECT_MAX,
        .size = tx != NULL && tx->size != 0 ? tx->size : FI_DEPTH_DEFAULT,
        .iov_limit = FI_PIECES_MAX,
        .rma_iov_limit = 1,
    };
    *info->rx_attr = (struct fi_rx_attr){
        .caps = receiving,
        .mode = info->mode & FI_RX_CQ_DATA,
        .op_flags = rx != NULL ? rx->op_flags : 0,
        .msg_order = FI_RDMUX_ORDER,
        .comp_order = FI_ORDER_STRICT,
        .size = rx != NULL && rx->size != 0 ? rx->size : FI_DEPTH_DEFAULT,
        .iov_limit = FI_PIECES_MAX,
    };
}

static bool copy_address(const void *address, size_t size, void **to, size_t *to_size)
{
    if (address == NULL || size == 0) {
        return true;
    }
    *to = malloc(size);
    if (*to == NULL) {
        return false;
    }
    memcpy(*to, address, size);
    *to_size = size;
    return true;
}

/* Makes an fi_info; NULL: out of memory. */
static struct fi_info *make_info(uint32_t version, const struct fi_info *hints, const char *network,
                                 const char *device, const struct sockaddr_storage *source,
                                 size_t source_size, const void *target, size_t target_size)
{
    struct fi_info *info = fi_allocinfo();
    if (info == NULL) {
        return NULL;
    }
    info->caps = hints != NULL && hints->caps != 0 ? hints->caps
                                                   : FI_RDMUX_CAPS | FI_RDMUX_DOMAIN_CAPS;
    info->mode = has_receive_data_mode(hints) ? FI_RX_CQ_DATA : 0;
    const int family = source_size != 0 ? source->ss_family
                                        : ((const struct sockaddr *)target)->sa_family;
    info->addr_format = family == AF_INET6 ? FI_SOCKADDR_IN6 : FI_SOCKADDR_IN;
    fill_transfer(hints, info);
    *info->ep_attr = (struct fi_ep_attr){
        .type = FI_EP_MSG,
        .protocol = FI_PROTO_UNSPEC,
        .protocol_version = 1,
        .max_msg_size = FI_MESSAGE_MAX,
        .max_order_raw_size = SIZE_MAX,
        .tx_ctx_cnt = 1,
        .rx_ctx_cnt = hints != NULL && hints->ep_attr != NULL &&
                              hints->ep_attr->rx_ctx_cnt == FI_SHARED_CONTEXT
                          ? FI_SHARED_CONTEXT
                          : 1,
    };
    const struct fi_domain_attr *domain = hints != NULL ? hints->domain_attr : NULL;
    const bool is_old = domain != NULL && domain->mr_mode == FI_MR_BASIC;
    *info->domain_attr = (struct fi_domain_attr){
        .threading = domain != NULL && domain->threading != FI_THREAD_UNSPEC ? domain->threading
                                                                             : FI_THREAD_SAFE,
        .control_progress = FI_PROGRESS_AUTO,
        .data_progress = FI_PROGRESS_AUTO,
        .resource_mgmt = FI_RM_ENABLED,
        .mr_mode = is_old           ? FI_MR_BASIC
                   : domain != NULL ? domain->mr_mode & FI_RDMUX_MR_MODE
                                    : FI_RDMUX_MR_MODE,
        .mr_key_size = sizeof(uint64_t),
        .cq_data_size = has_receive_data_mode(hints) ? FI_CQ_DATA_SIZE : 0,
        .cq_cnt = 1024,
        .ep_cnt = 32768,
        .tx_ctx_cnt = 32768,
        .rx_ctx_cnt = 32768,
        .max_ep_tx_ctx = 1,
        .max_ep_rx_ctx = 1,
        .max_ep_srx_ctx = 1024,
        .mr_iov_limit = 1,
        .caps = FI_RDMUX_DOMAIN_CAPS,
        .mr_cnt = FI_SLOT_COUNT,
    };
    info->domain_attr->name = strdup(device);
    info->fabric_attr->name = strdup(network);
    info->fabric_attr->prov_version = rdmux_fi_provider.version;
    info->fabric_attr->api_version = version;
    if (info->domain_attr->name == NULL || info->fabric_attr->name == NULL ||
        !copy_address(source, source_size, &info->src_addr, &info->src_addrlen) ||
        !copy_address(target, target_size, &info->dest_addr, &info->dest_addrlen)) {
        fi_freeinfo(info);
        return NULL;
    }
    return info;
}

static size_t size_of(const struct sockaddr *address)
{
    return address->sa_family == AF_INET    ? sizeof(struct sockaddr_in)
           : address->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
                                            : 0;
}

static in_port_t port_of(const struct sockaddr_storage *address)
{
    return address->ss_family == AF_INET6
               ? ((const struct sockaddr_in6 *)(const void *)address)->sin6_port
               : ((const struct sockaddr_in *)(const void *)address)->sin_port;
}

static void set_port(struct sockaddr_storage *address, in_port_t port)
{
    if (address->ss_family == AF_INET6) {
        ((struct sockaddr_in6 *)(void *)address)->sin6_port = port;
    } else {
        ((struct sockaddr_in *)(void *)address)->sin_port = port;
    }
}

static const unsigned char *bytes_of(const struct sockaddr *address, size_t *size)
{
    if (address->sa_family == AF_INET6) {
        *size = sizeof(struct in6_addr);
        return (const unsigned char *)address + offsetof(struct sockaddr_in6, sin6_addr);
    }
    *size = sizeof(struct in_addr);
    return (const unsigned char *)address + offsetof(struct sockaddr_in, sin_addr);
}

static bool is_same_host(const struct sockaddr *a, const struct sockaddr *b)
{
    size_t size;
    const unsigned char *bytes = bytes_of(a, &size);
    return a->sa_family == b->sa_family && memcmp(bytes, bytes_of(b, &size), size) == 0;
}

static bool is_wildcard(const struct sockaddr *address)
{
    static const unsigned char zero[sizeof(struct in6_addr)];
    size_t size;
    const unsigned char *bytes = bytes_of(address, &size);
    return memcmp(bytes, zero, size) == 0;
}

/* Addresses that serve: of interfaces that are up, and valid without a scope. */
static bool serves(const struct ifaddrs *at)
{
    if (at->ifa_addr == NULL || (at->ifa_flags & IFF_UP) == 0 || size_of(at->ifa_addr) == 0) {
        return false;
    }
    if (at->ifa_addr->sa_family != AF_INET6) {
        return true;
    }
    struct sockaddr_in6 in6;
    memcpy(&in6, at->ifa_addr, sizeof(in6));
    return !IN6_IS_ADDR_LINKLOCAL(&in6.sin6_addr);
}

/* The addresses that the caller wants. */
struct wish {
    struct sockaddr_storage source, target;
    size_t source_size, target_size;
    int family; /* AF_UNSPEC: any */
};

/* The source address by which the kernel reaches the target. */
static void route(struct wish *wish)
{
    int fd = socket(wish->target.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    socklen_t size = sizeof(wish->source);
    if (fd >= 0 &&
        connect(fd, (struct sockaddr *)&wish->target, (socklen_t)wish->target_size) == 0 &&
        getsockname(fd, (struct sockaddr *)&wish->source, &size) == 0) {
        wish->source_size = size;
        set_port(&wish->source, 0);
    }
    if (fd >= 0) {
        (void)close(fd);
    }
}

static int resolve(const char *node, const char *service, uint64_t flags,
                   const struct fi_info *hints, struct wish *wish)
{
    if (hints != NULL && hints->addr_format == FI_SOCKADDR_IN) {
        wish->family = AF_INET;
    } else if (hints != NULL && hints->addr_format == FI_SOCKADDR_IN6) {
        wish->family = AF_INET6;
    }
    if (hints != NULL && hints->src_addr != NULL && hints->src_addrlen <= sizeof(wish->source)) {
        memcpy(&wish->source, hints->src_addr, hints->src_addrlen);
        wish->source_size = hints->src_addrlen;
    }
    if (hints != NULL && hints->dest_addr != NULL && hints->dest_addrlen <= sizeof(wish->target)) {
        memcpy(&wish->target, hints->dest_addr, hints->dest_addrlen);
        wish->target_size = hints->dest_addrlen;
    }
    if (node != NULL || service != NULL) {
        struct addrinfo ask = {
            .ai_family = wish->family,
            .ai_socktype = SOCK_STREAM,
            .ai_flags = ((flags & FI_SOURCE) != 0 ? AI_PASSIVE : 0) |
                        ((flags & FI_NUMERICHOST) != 0 ? AI_NUMERICHOST : 0),
        };
        if (wish->family == AF_UNSPEC && node == NULL) {
            ask.ai_family = AF_INET;
        }
        struct addrinfo *found = NULL;
        if (getaddrinfo(node, service, &ask, &found) != 0) {
            return -FI_ENODATA;
        }
        if ((flags & FI_SOURCE) != 0) {
            memcpy(&wish->source, found->ai_addr, found->ai_addrlen);
            wish->source_size = found->ai_addrlen;
        } else {
            memcpy(&wish->target, found->ai_addr, found->ai_addrlen);
            wish->target_size = found->ai_addrlen;
        }
        freeaddrinfo(found);
    }
    if (wish->target_size != 0 && wish->source_size == 0) {
        route(wish);
    }
    if ((wish->source_size != 0 && size_of((struct sockaddr *)&wish->source) == 0) ||
        (wish->target_size != 0 && size_of((struct sockaddr *)&wish->target) == 0)) {
        return -FI_ENODATA;
    }
    return 0;
}

/* Writes the network of an interface's address, "192.0.2.0/24". It is the name of the fabric:
 * programs take what has one name for networks that reach each other. */
static void print_network(const struct ifaddrs *at, char out[RDMUX_ADDRESS_MAX])
{
    size_t size;
    char text[INET6_ADDRSTRLEN] = "";
    unsigned char network[sizeof(struct in6_addr)] = { 0 };
    unsigned bits = 0;
    const unsigned char *address = bytes_of(at->ifa_addr, &size);
    for (size_t i = 0; i < size && at->ifa_netmask != NULL; i++) {
        const unsigned mask = bytes_of(at->ifa_netmask, &size)[i];
        network[i] = (unsigned char)(address[i] & mask);
        bits += (unsigned)__builtin_popcount(mask);
    }
    (void)inet_ntop(at->ifa_addr->sa_family, network, text, sizeof(text));
    (void)snprintf(out, RDMUX_ADDRESS_MAX, "%s/%u", text, bits);
}

/* Appends one fi_info for each local address that fits. is_loopback: those of loopback, which come
 * after the others. */
static bool list_addresses(uint32_t version, const struct fi_info *hints, const struct wish *wish,
                           const struct ifaddrs *all, bool is_loopback, struct fi_info ***tail)
{
    const bool is_any = wish->source_size == 0 ||
                        is_wildcard((const struct sockaddr *)&wish->source);
    const char *device = hints != NULL && hints->domain_attr != NULL ? hints->domain_attr->name
                                                                     : NULL;
    for (const struct ifaddrs *at = all; at != NULL; at = at->ifa_next) {
        if (!serves(at) || ((at->ifa_flags & IFF_LOOPBACK) != 0) != is_loopback ||
            (device != NULL && strcmp(device, at->ifa_name) != 0) ||
            (wish->family != AF_UNSPEC && at->ifa_addr->sa_family != wish->family) ||
            (wish->source_size != 0 && at->ifa_addr->sa_family != wish->source.ss_family) ||
            (wish->target_size != 0 && at->ifa_addr->sa_family != wish->target.ss_family) ||
            (!is_any && !is_same_host(at->ifa_addr, (const struct sockaddr *)&wish->source))) {
            continue;
        }
        char network[RDMUX_ADDRESS_MAX];
        print_network(at, network);
        if (hints != NULL && hints->fabric_attr != NULL && hints->fabric_attr->name != NULL &&
            strcmp(hints->fabric_attr->name, network) != 0) {
            continue;
        }
        struct sockaddr_storage source = { 0 };
        memcpy(&source, at->ifa_addr, size_of(at->ifa_addr));
        if (wish->source_size != 0) {
            set_port(&source, port_of(&wish->source));
        }
        struct fi_info *info = make_info(version, hints, network, at->ifa_name, &source,
                                         size_of(at->ifa_addr), &wish->target, wish->target_size);
        if (info == NULL) {
            return false;
        }
        **tail = info;
        *tail = &info->next;
    }
    return true;
}

int rdmux_fi_getinfo(uint32_t version, const char *node, const char *service, uint64_t flags,
                     const struct fi_info *hints, struct fi_info **out)
{
    const char *what = lacking(hints);
    if (what != NULL) {
        FI_INFO(&rdmux_fi_provider, FI_LOG_CORE, "not offered: %s\n", what);
        return -FI_ENODATA;
    }
    struct wish wish = { .family = AF_UNSPEC };
    int result = resolve(node, service, flags, hints, &wish);
    if (result != 0) {
        return result;
    }
    struct ifaddrs *all = NULL;
    if (getifaddrs(&all) != 0) {
        return -FI_ENODATA;
    }
    struct fi_info *list = NULL;
    struct fi_info **tail = &list;
    const bool is_whole = list_addresses(version, hints, &wish, all, false, &tail) &&
                          list_addresses(version, hints, &wish, all, true, &tail);
    freeifaddrs(all);
    if (!is_whole) {
        fi_freeinfo(list);
        return -FI_ENOMEM;
    }
    *out = list;
    return list != NULL ? 0 : -FI_ENODATA;
}
