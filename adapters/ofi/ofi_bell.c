/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Waking a sleeper over a provider that has no descriptor to wait for (shm of libfabric 1.17). Each
 * cq has a datagram socket with an abstract name, which its peers send a byte to after each message
 * while framed_ep.rings says that it may sleep. A poll does not read it: the few bytes that fit
 * stay, and further ones are dropped, which costs the sender a failing call. Arming reads it empty,
 * and a cq whose bell had rung is polled again.
 */
#include "adapters/ofi/ofi_internal.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum rdmux_status rdmux_ofi_bell_open(struct ofi_cq *cq)
{
    const sa_family_t family = AF_UNIX; /* alone: the kernel chooses a free abstract name */
    struct epoll_event event = { .events = EPOLLIN };
    cq->bell = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (cq->bell < 0 ||
        bind(cq->bell, (const struct sockaddr *)(const void *)&family, sizeof(family)) != 0 ||
        epoll_ctl(cq->base.base.epoll, EPOLL_CTL_ADD, cq->bell, &event) != 0) {
        rdmux_provider_error("ofi: a socket to be woken by: %s; raise the limit on open files",
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
    struct sockaddr_un name;
    socklen_t length = sizeof(name);
    out[0] = 0;
    if (cq->bell >= 0 && getsockname(cq->bell, (struct sockaddr *)&name, &length) == 0 &&
        length > offsetof(struct sockaddr_un, sun_path) &&
        length - offsetof(struct sockaddr_un, sun_path) <= OFI_BELL_MAX) {
        out[0] = (uint8_t)(length - offsetof(struct sockaddr_un, sun_path));
        memcpy(out + 1, name.sun_path, out[0]);
    }
    return 1 + (size_t)out[0];
}

bool rdmux_ofi_bell_learn(struct ofi_ep *ep, const uint8_t *in, size_t size)
{
    if (size < 1 || in[0] > OFI_BELL_MAX || size != 1 + (size_t)in[0] ||
        (in[0] > 0 && in[1] != '\0')) { /* abstract names only */
        return false;
    }
    ep->bell.sun_family = AF_UNIX;
    memcpy(ep->bell.sun_path, in + 1, in[0]);
    ep->bell_length = in[0] == 0 ? 0 : (socklen_t)(offsetof(struct sockaddr_un, sun_path) + in[0]);
    return true;
}

void rdmux_ofi_bell_ring(struct ofi_ep *ep)
{
    const int bell = ofi_cq_of(ep)->bell;
    if (ep->bell_length > 0 && bell >= 0) {
        /* A full socket is one that rings already; a peer that has gone is noticed otherwise. */
        (void)sendto(bell, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL, (const struct sockaddr *)&ep->bell,
                     ep->bell_length);
        ep->base.base.system_calls++;
    }
}

bool rdmux_ofi_bell_rang(struct ofi_cq *cq)
{
    uint8_t byte;
    bool rang = false;
    while (cq->bell >= 0 && recv(cq->bell, &byte, sizeof(byte), MSG_DONTWAIT) >= 0) {
        rang = true;
    }
    return rang;
}
