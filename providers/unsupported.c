/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Stubs for a provider's table, for operations that its fabric lacks. */
#include <rdmux/provider.h>

enum rdmux_status rdmux_unsupported_async_event(struct rdmux_provider_domain *domain,
                                                struct rdmux_provider_event *out)
{
    (void)domain;
    (void)out;
    return RDMUX_AGAIN;
}

int rdmux_unsupported_domain_fd(struct rdmux_provider_domain *domain)
{
    (void)domain;
    return -1;
}

enum rdmux_status rdmux_unsupported_inspect(
    struct rdmux_fabric *fabric,
    void (*report)(void *user, const struct rdmux_provider_finding *finding), void *user)
{
    (void)fabric;
    (void)report;
    (void)user;
    return RDMUX_UNSUPPORTED;
}

enum rdmux_status rdmux_unsupported_ep_join(struct rdmux_provider_ep *ep, int socket, uint32_t index)
{
    (void)socket;
    (void)index;
    rdmux_provider_error("%s: this path takes no further sockets", ep->ops->name);
    return RDMUX_UNSUPPORTED;
}

enum rdmux_status rdmux_unsupported_ep_control(struct rdmux_provider_ep *ep, const void *frame,
                                               size_t size)
{
    (void)frame;
    (void)size;
    rdmux_provider_error("%s: this path carries no control channel", ep->ops->name);
    return RDMUX_UNSUPPORTED;
}

enum rdmux_status rdmux_unsupported_ep_ping(struct rdmux_provider_ep *ep)
{
    (void)ep;
    return RDMUX_UNSUPPORTED;
}

void rdmux_unsupported_doorbell(struct rdmux_provider_ep *ep)
{
    (void)ep;
}
