/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* What the kernel counts for the sockets of an endpoint: TCP_INFO. */
#include "tcp_fallback/tcp_figures.h"

#include "tcp_fallback/tcp_endpoint.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <stddef.h>
#include <sys/socket.h>

/* Adds the counts of a socket. A kernel before 4.18 does not count marks: it fills in less. */
static void add_socket(int fd, struct rdmux_provider_figures *out)
{
    struct tcp_info info = { .tcpi_state = 0 };
    socklen_t size = sizeof(info);
    if (fd < 0 || getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) {
        return;
    }
    if (size >= offsetof(struct tcp_info, tcpi_total_retrans) + sizeof(info.tcpi_total_retrans)) {
        out->counted |= RDMUX_COUNTED_RETRANSMISSIONS;
        out->retransmissions += info.tcpi_total_retrans;
    }
    if (size >= offsetof(struct tcp_info, tcpi_delivered_ce) + sizeof(info.tcpi_delivered_ce)) {
        out->counted |= RDMUX_COUNTED_ECN_MARKS;
        out->ecn_marks += info.tcpi_delivered_ce;
    }
}

void rdmux_tcp_ep_figures(struct rdmux_provider_ep *base, struct rdmux_provider_figures *out)
{
    struct tcp_ep *ep = rdmux_tcp_ep(base);
    for (uint32_t i = 0; i < ep->lane_count; i++) {
        add_socket(rdmux_tcp_lane(ep, i)->fd, out);
    }
    out->counted |= RDMUX_COUNTED_CREDITS;
    out->credits = ep->held.left;
}
