/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Set-up of an endpoint begins: its offer and limits, and the start on a socket that is connected. */
#include "api/base/address.h"
#include "api/core/ep.h"
#include "api/core/fabric.h"
#include "api/progress/cq_owner.h"
#include "api/progress/endpoint_table.h"
#include "api/session/channel_socket.h"
#include "api/session/setup_state.h"
#include "api/setup/rdmacm_endpoint.h"
#include "api/setup/setup.h"
#include "negotiation/tls.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

enum rdmux_status rdmux_ep_setup_create(struct rdmux_ep *ep, const struct rdmux_ep_attr *attr,
                                        const char *listener_paths, int timeout_ms)
{
    struct rdmux_setup *setup = rdmux_allocate(ep->fabric, sizeof(*setup));
    if (setup == NULL) {
        return rdmux_fail(RDMUX_NO_MEMORY, "endpoint: out of memory");
    }
    ep->setup = setup;
    setup->step = rdmux_ep_setup_step;
    setup->dialing = -1;
    setup->yield_ns = UINT64_MAX;
    setup->attr = *attr;
    setup->attr.paths = NULL;
    setup->attr.local = NULL;
    setup->attr.private_data = NULL;
    snprintf(setup->local, sizeof(setup->local), "%s", attr->local == NULL ? "" : attr->local);
    setup->offer = rdmux_allocate(ep->fabric, sizeof(*setup->offer));
    setup->handshake_memory = rdmux_allocate_sparse(ep->fabric, rdmux_handshake_size());
    if (setup->offer == NULL || setup->handshake_memory == NULL) {
        return rdmux_fail(RDMUX_NO_MEMORY, "endpoint: out of memory");
    }
    enum rdmux_status status = rdmux_offer_fill(ep->fabric, attr, listener_paths, setup->offer);
    if (status != RDMUX_OK) {
        return status;
    }
    uint64_t limit_ms = timeout_ms > 0   ? (uint64_t)timeout_ms
                        : timeout_ms < 0 ? RDMUX_NEVER
                                         : attr->setup_timeout_ms;
    setup->deadline_ns = limit_ms == RDMUX_NEVER ? UINT64_MAX
                                                 : rdmux_now(ep->fabric) + limit_ms * 1000000;
    rdmux_ep_timer(ep);
    return RDMUX_OK;
}

void rdmux_setup_set_acceptor(struct rdmux_ep *ep, struct rdmux_acceptor *acceptor,
                              struct rdmux_peer_quota *quota)
{
    ep->accept.acceptor = acceptor;
    ep->accept.quota = quota;
    ep->accept.is_proved = false;
}

enum rdmux_status rdmux_ep_start_accept(struct rdmux_ep *ep, struct rdmux_arrival *arrival)
{
    if (arrival->call != NULL) {
        rdmux_rdmacm_accept(ep, arrival->call);
        return RDMUX_OK;
    }
    ep->negotiated.role = RDMUX_ROLE_ACCEPT;
    rdmux_ep_set_peer_address(ep, (const struct sockaddr *)&arrival->address,
                              arrival->address_length);
    rdmux_address_format((const struct sockaddr *)&arrival->address, arrival->address_length,
                         ep->setup->target);
    enum rdmux_status status = rdmux_random(ep->fabric, ep->setup->offer->secret,
                                            sizeof(ep->setup->offer->secret));
    if (status == RDMUX_OK) {
        status = rdmux_setup_talk(ep, arrival->socket, arrival->tls, arrival->received,
                                  arrival->received_size);
    } else {
        rdmux_tls_destroy(arrival->tls);
    }
    rdmux_release(ep->fabric, arrival->received);
    if (status != RDMUX_OK) {
        if (ep->channel == NULL) {
            close(arrival->socket);
        }
        return status;
    }
    rdmux_setup_run(ep);
    return RDMUX_OK;
}

enum rdmux_status rdmux_ep_start_adopt(struct rdmux_ep *ep, int socket, enum rdmux_role role)
{
    struct rdmux_setup *setup = ep->setup;
    ep->negotiated.role = role;
    setup->is_adopted = true;
    setup->adopted_flags = fcntl(socket, F_GETFL);
    socklen_t length = sizeof(setup->adopted_nodelay);
    getsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &setup->adopted_nodelay, &length);
    fcntl(socket, F_SETFL, setup->adopted_flags | O_NONBLOCK);
    snprintf(setup->target, sizeof(setup->target), "adopted socket %d", socket);
    rdmux_ep_find_peer_address(ep, socket);
    enum rdmux_status status = rdmux_random(ep->fabric, setup->offer->secret,
                                            sizeof(setup->offer->secret));
    if (status == RDMUX_OK) {
        status = rdmux_setup_talk(ep, socket, NULL, NULL, 0);
    }
    if (status != RDMUX_OK) {
        if (ep->channel == NULL) {
            close(socket);
        }
        return status;
    }
    rdmux_setup_run(ep);
    return RDMUX_OK;
}
