/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* IP addresses: this host's address on the route to a peer, and the address kinds that two ports
 * share. */
#include "verbs/verbs_address.h"

#include "verbs/verbs_connection.h"
#include "verbs/verbs_transport.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    V4_AT = 12,       /* offset in a mapped GID */
    DISCARD_PORT = 9, /* nothing is sent there */
};

void rdmux_verbs_address_to_gid(const struct sockaddr *address, uint8_t out[VERBS_GID_SIZE])
{
    memset(out, 0, VERBS_GID_SIZE);
    if (address->sa_family == AF_INET) {
        struct sockaddr_in v4;
        memcpy(&v4, address, sizeof(v4));
        out[V4_AT - 1] = 0xff;
        out[V4_AT - 2] = 0xff;
        memcpy(out + V4_AT, &v4.sin_addr, sizeof(v4.sin_addr));
    } else if (address->sa_family == AF_INET6) {
        struct sockaddr_in6 v6;
        memcpy(&v6, address, sizeof(v6));
        memcpy(out, &v6.sin6_addr, VERBS_GID_SIZE);
    }
}

/* Connects a datagram socket, which sends nothing but consults the routing table. */
void rdmux_verbs_local_address(const struct sockaddr *peer, uint32_t length,
                               uint8_t out[VERBS_GID_SIZE])
{
    memset(out, 0, VERBS_GID_SIZE);
    if (peer == NULL || (peer->sa_family != AF_INET && peer->sa_family != AF_INET6)) {
        return;
    }
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } address;
    memset(&address, 0, sizeof(address));
    memcpy(&address, peer, length < sizeof(address) ? length : sizeof(address));
    if (peer->sa_family == AF_INET) {
        address.v4.sin_port = htons(DISCARD_PORT);
    } else {
        address.v6.sin6_port = htons(DISCARD_PORT);
    }
    int fd = socket(peer->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return;
    }
    socklen_t size = sizeof(address);
    if (connect(fd, &address.any, length) == 0 && getsockname(fd, &address.any, &size) == 0) {
        rdmux_verbs_address_to_gid(&address.any, out);
    }
    (void)close(fd);
}

void rdmux_verbs_own_address(const struct rdmux_provider_ep_attr *attr, uint8_t out[VERBS_GID_SIZE])
{
    if (attr->local_address != NULL) {
        rdmux_verbs_address_to_gid(attr->local_address, out);
    } else {
        rdmux_verbs_local_address(attr->peer_address, attr->peer_address_length, out);
    }
}

void rdmux_verbs_path_add_address(struct rdmux_local_path *path, const uint8_t gid[VERBS_GID_SIZE])
{
    const size_t used = strlen(path->address);
    char text[INET6_ADDRSTRLEN];
    rdmux_verbs_gid_print(VERBS_ADDRESS_IPV6, gid, text, sizeof(text));
    const size_t length = strlen(text);
    for (const char *at = strstr(path->address, text); at != NULL; at = strstr(at + 1, text)) {
        const bool begins = at == path->address || at[-1] == ' ';
        if (begins && (at[length] == ',' || at[length] == '\0')) {
            return;
        }
    }
    if (used + length + sizeof(", , port 255") <= sizeof(path->address)) {
        (void)snprintf(path->address + used, sizeof(path->address) - used, "%s%s",
                       used != 0 ? ", " : "", text);
    }
}

enum rdmux_reason rdmux_verbs_reach_by_address(const struct verbs_transport *transport,
                                               const uint8_t *ours, size_t ours_length,
                                               const uint8_t *theirs, size_t theirs_length,
                                               char *text)
{
    struct verbs_whereabouts a;
    struct verbs_whereabouts b;
    if (rdmux_verbs_whereabouts_decode(ours, ours_length, &a) != RDMUX_OK ||
        rdmux_verbs_whereabouts_decode(theirs, theirs_length, &b) != RDMUX_OK ||
        a.fabric != transport->fabric || b.fabric != transport->fabric) {
        (void)snprintf(text, RDMUX_TEXT_MAX, "the peer's %s provider is of another version",
                       transport->name);
        return RDMUX_REASON_NOT_REACHABLE;
    }
    if (rdmux_verbs_common_kind(&a, &b) == 0) {
        (void)snprintf(text, RDMUX_TEXT_MAX,
                       "the adapters have addresses of different families only");
        return RDMUX_REASON_NOT_REACHABLE;
    }
    return RDMUX_REASON_NONE;
}
