/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* What the packets of a RoCE connection carry in their IP header. Pure. */
#ifndef RDMUX_ROCE_TRAFFIC_H
#define RDMUX_ROCE_TRAFFIC_H

#include <stdint.h>

/* The traffic class byte: DSCP in the upper six bits, ECN in the lower two (RFC 2474, RFC 3168). */
static inline uint8_t rdmux_roce_traffic_class(uint32_t dscp, uint32_t ecn)
{
    return (uint8_t)((dscp & 0x3f) << 2 | (ecn & 0x3));
}

/*
 * Flow label of 20 bits, never 0. The UDP source port, by which switches spread flows over parallel
 * links, is made of it (IBTA RoCEv2 annex A17.9.2; ibv_flow_label_to_udp_sport); so each connection
 * has its own. Same numbers, same label.
 */
static inline uint32_t rdmux_roce_flow_label(uint32_t our_qpn, uint32_t their_qpn)
{
    uint64_t mixed = ((uint64_t)our_qpn << 24 | their_qpn) * UINT64_C(0x9e3779b97f4a7c15);
    uint32_t label = (uint32_t)(mixed >> 44);
    return label != 0 ? label : 1;
}

#endif
