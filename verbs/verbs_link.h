/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Speed of a link from a port's codes (ibv_query_port(3)). Pure. */
#ifndef RDMUX_VERBS_LINK_H
#define RDMUX_VERBS_LINK_H

#include <stdint.h>

/* Returns the payload bytes per second that a link carries in one direction, without line coding;
 * 0: a code is unknown. speed: 1 SDR, 2 DDR, 4 QDR, 8 FDR10, 16 FDR, 32 EDR, 64 HDR, 128 NDR, 256
 * XDR. width: 1 1X, 2 4X, 4 8X, 8 12X, 16 2X. */
uint64_t rdmux_verbs_link_bandwidth(uint32_t speed, uint32_t width);
/* Returns the name, such as "EDR"; "?" for an unknown code. */
const char *rdmux_verbs_link_speed_name(uint32_t speed);
/* Returns the number of lanes; 0 for an unknown code. */
uint32_t rdmux_verbs_link_lanes(uint32_t width);
/* Returns the bytes of an MTU code 1 to 5; 0 for another code. */
uint32_t rdmux_verbs_mtu_bytes(uint32_t code);

#endif
