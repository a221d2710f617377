/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* What the kernel counts for the sockets of an endpoint. */
#include "tcp_fallback/tcp_figures.h"

#include "api/system/system.h"
#include "tcp_fallback/tcp_endpoint.h"

void rdmux_tcp_ep_figures(struct rdmux_provider_ep *base, struct rdmux_provider_figures *out)
{
    struct tcp_ep *ep = rdmux_tcp_ep(base);
    for (uint32_t i = 0; i < ep->lane_count; i++) {
        struct rdmux_socket_counts counts = rdmux_socket_count(rdmux_tcp_lane(ep, i)->fd);
        out->counted |= counts.has_retransmissions ? RDMUX_COUNTED_RETRANSMISSIONS : 0;
        out->counted |= counts.has_ecn_marks ? RDMUX_COUNTED_ECN_MARKS : 0;
        out->retransmissions += counts.retransmissions;
        out->ecn_marks += counts.ecn_marks;
    }
    out->counted |= RDMUX_COUNTED_CREDITS;
    out->credits = ep->held.left;
}
