/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Waking a sleeper over a provider that has no descriptor to wait for (shm of libfabric 1.17). Each
 * cq has a datagram socket on the loopback interface, to which its peers send a byte after each
 * message while framed_ep.rings says that it may sleep. A poll does not read it: the few bytes that
 * fit stay, and further ones are dropped. Arming reads it, and a cq whose bell had rung is polled
 * again. A stranger of this host can ring it, which costs a poll; unlike one of AF_UNIX it takes no
 * descriptors, whose close could hold up the receiver.
 */
#include "adapters/ofi/ofi_internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum {
    PORT_SIZE = 2,
    RINGS_AT_ONCE = 64, /* that an arm reads; more come from a stranger */
};

enum rdmux_status rdmux_ofi_bell_open(struct ofi_cq *cq)
{
    const struct sockaddr_in any_port = { .sin_family = AF_INET,
                                          .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    struct epoll_event event = { .events = EPOLLIN };
    cq->bell = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (cq->bell < 0 ||
        bind(cq->bell, (const struct sockaddr *)(const void *)&any_port, sizeof(any_port)) != 0 ||
        epoll_ctl(cq->base.base.epoll, EPOLL_CTL_ADD, cq->bell, &event) != 0) {
        rdmux_provider_error(
            "ofi: a socket to be woken by, on 127.0.0.1: %s; raise the limit on open "
            "files, or start the loopback interface",
            strerror(errno));
        if (cq->bell >= 0) {
            (void)close(cq->bell);
        }
        return RDMUX_NO_MEMORY;
    }
    return RDMUX_OK;
}

size_t rdmux_ofi_bell_describe(const struct ofi_cq *cq, uint8_t *out)
{
    struct sockaddr_in name;
    socklen_t length = sizeof(name);
    out[0] = 0;
    if (cq->bell >= 0 && getsockname(cq->bell, (struct sockaddr *)&name, &length) == 0) {
        out[0] = PORT_SIZE;
        memcpy(out + 1, &name.sin_port, PORT_SIZE);
    }
    return 1 + (size_t)out[0];
}

bool rdmux_ofi_bell_learn(struct ofi_ep *ep, const uint8_t *in, size_t size)
{
    if (size < 1 || (in[0] != 0 && in[0] != PORT_SIZE) || size != 1 + (size_t)in[0]) {
        return false;
    }
    memset(&ep->bell, 0, sizeof(ep->bell));
    ep->bell.sin_family = AF_INET;
    ep->bell.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    memcpy(&ep->bell.sin_port, in + 1, in[0]);
    return true;
}

void rdmux_ofi_bell_ring(struct ofi_ep *ep)
{
    const int bell = ofi_cq_of(ep)->bell;
    if (ep->bell.sin_port != 0 && bell >= 0) {
        /* A full socket is one that rings already; a peer that has gone is noticed otherwise. */
        (void)sendto(bell, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL, (const struct sockaddr *)&ep->bell,
                     sizeof(ep->bell));
        ep->base.base.system_calls++;
    }
}

bool rdmux_ofi_bell_rang(struct ofi_cq *cq)
{
    uint8_t byte;
    int rings = 0;
    while (cq->bell >= 0 && rings < RINGS_AT_ONCE &&
           recv(cq->bell, &byte, sizeof(byte), MSG_DONTWAIT) >= 0) {
        rings++;
    }
    return rings > 0;
}
