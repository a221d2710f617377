/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* IP header fields of a RoCE connection's packets. Pure. */
#ifndef RDMUX_ROCE_TRAFFIC_H
#define RDMUX_ROCE_TRAFFIC_H

#include <stdint.h>

/* Returns the traffic class byte: DSCP in the upper six bits, ECN in the lower two (RFC 2474, RFC
 * 3168). */
static inline uint8_t rdmux_roce_traffic_class(uint32_t dscp, uint32_t ecn)
{
    return (uint8_t)((dscp & 0x3f) << 2 | (ecn & 0x3));
}

/*
 * Returns a flow label of 20 bits, never 0. The UDP source port is derived from it, and switches
 * spread flows over parallel links by that port (IBTA RoCEv2 annex A17.9.2;
 * ibv_flow_label_to_udp_sport). So each connection has its own label. The same numbers give the
 * same label.
 */
static inline uint32_t rdmux_roce_flow_label(uint32_t our_qpn, uint32_t their_qpn)
{
    uint64_t mixed = ((uint64_t)our_qpn << 24 | their_qpn) * UINT64_C(0x9e3779b97f4a7c15);
    uint32_t label = (uint32_t)(mixed >> 44);
    return label != 0 ? label : 1;
}

#endif
