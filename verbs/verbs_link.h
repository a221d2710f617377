/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Speed of a link from the codes of a port (ibv_query_port(3)). Pure. */
#ifndef RDMUX_VERBS_LINK_H
#define RDMUX_VERBS_LINK_H

#include <stdint.h>

/* Bytes per second of payload that a link carries in one direction, line coding taken off; 0: a
 * code is unknown. speed: 1 SDR, 2 DDR, 4 QDR, 8 FDR10, 16 FDR, 32 EDR, 64 HDR, 128 NDR, 256 XDR.
 * width: 1 1X, 2 4X, 4 8X, 8 12X, 16 2X. */
uint64_t rdmux_verbs_link_bandwidth(uint32_t speed, uint32_t width);
/* "EDR", "?" for an unknown code. */
const char *rdmux_verbs_link_speed_name(uint32_t speed);
/* Lanes; 0 for an unknown code. */
uint32_t rdmux_verbs_link_lanes(uint32_t width);
/* Bytes of an MTU code 1 to 5, 0 for another. */
uint32_t rdmux_verbs_mtu_bytes(uint32_t code);

#endif
