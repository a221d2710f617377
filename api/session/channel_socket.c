/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Sockets of control channels. */
#include "api/session/channel_socket.h"

#include "api/base/address.h"
#include "api/core/ep.h"
#include "api/loop/descriptors.h"
#include "api/system/system.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Binds the socket to attr.local if that is an address; the path's sockets are bound to it, too. A
 * device's name only selects among the paths. */
static bool bind_local(struct rdmux_ep *ep, int fd, int family, const char *local)
{
    struct rdmux_address_text text = { .port = "0" };
    struct addrinfo *addresses = NULL;
    if (*local == '\0') {
        return true;
    }
    snprintf(text.host, sizeof(text.host), "%s", local);
    if (rdmux_address_resolve(&text, false, true, &addresses) != RDMUX_OK) {
        return true;
    }
    bool bound = addresses->ai_family == family &&
                 bind(fd, addresses->ai_addr, addresses->ai_addrlen) == 0;
    if (bound) {
        memcpy(&ep->addresses.local, addresses->ai_addr, addresses->ai_addrlen);
        ep->addresses.local_length = addresses->ai_addrlen;
    }
    freeaddrinfo(addresses);
    return bound;
}

void rdmux_ep_set_peer_address(struct rdmux_ep *ep, const struct sockaddr *address, socklen_t length)
{
    memcpy(&ep->addresses.peer, address, length);
    ep->addresses.peer_length = length;
}

void rdmux_ep_find_peer_address(struct rdmux_ep *ep, int socket)
{
    struct rdmux_ep_addresses *addresses = &ep->addresses;
    addresses->peer_length = sizeof(addresses->peer);
    if (getpeername(socket, (struct sockaddr *)&addresses->peer, &addresses->peer_length) != 0 ||
        (addresses->peer.ss_family != AF_INET && addresses->peer.ss_family != AF_INET6)) {
        addresses->peer_length = 0;
    }
}

int rdmux_channel_socket_dial(struct rdmux_ep *ep, const struct sockaddr *address, socklen_t length,
                              const char *local, int *error)
{
    int fd = rdmux_socket_open(address->sa_family);
    if (fd < 0 && rdmux_descriptors_retry(ep->fabric, errno)) {
        fd = rdmux_socket_open(address->sa_family);
    }
    if (fd < 0) {
        *error = errno;
        return -1;
    }
    rdmux_socket_use_all_ports(fd);
    if (!bind_local(ep, fd, address->sa_family, local)) {
        *error = EADDRNOTAVAIL;
        close(fd);
        return -1;
    }
    if (connect(fd, address, length) != 0 && errno != EINPROGRESS) {
        *error = errno;
        close(fd);
        return -1;
    }
    return fd;
}

void rdmux_channel_socket_prepare(int socket)
{
    int one = 1;
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}
