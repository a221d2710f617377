/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "verbs/verbs_link.h"

#include <stddef.h>

/* Bytes per second and lane. SDR to QDR encode 8 bits as 10, FDR and later 64 as 66 (XDR 256 as
 * 257). The nominal rates of FDR and EDR include the coding; those of SDR to QDR do not. */
static const struct {
    uint32_t code;
    const char *name;
    uint64_t lane;
} speeds[] = {
    { 1, "SDR", UINT64_C(250000000) },     { 2, "DDR", UINT64_C(500000000) },
    { 4, "QDR", UINT64_C(1000000000) },    { 8, "FDR10", UINT64_C(1250000000) },
    { 16, "FDR", UINT64_C(1704545454) },   { 32, "EDR", UINT64_C(3125000000) },
    { 64, "HDR", UINT64_C(6250000000) },   { 128, "NDR", UINT64_C(12500000000) },
    { 256, "XDR", UINT64_C(25000000000) },
};

static const struct {
    uint32_t code;
    uint32_t lanes;
} widths[] = { { 1, 1 }, { 2, 4 }, { 4, 8 }, { 8, 12 }, { 16, 2 } };

enum {
    SPEED_COUNT = sizeof(speeds) / sizeof(speeds[0]),
    WIDTH_COUNT = sizeof(widths) / sizeof(widths[0]),
    MTU_CODES = 5,
    MTU_BASE = 128,
};

uint32_t rdmux_verbs_link_lanes(uint32_t width)
{
    for (size_t i = 0; i < WIDTH_COUNT; i++) {
        if (widths[i].code == width) {
            return widths[i].lanes;
        }
    }
    return 0;
}

uint64_t rdmux_verbs_link_bandwidth(uint32_t speed, uint32_t width)
{
    for (size_t i = 0; i < SPEED_COUNT; i++) {
        if (speeds[i].code == speed) {
            return speeds[i].lane * rdmux_verbs_link_lanes(width);
        }
    }
    return 0;
}

const char *rdmux_verbs_link_speed_name(uint32_t speed)
{
    for (size_t i = 0; i < SPEED_COUNT; i++) {
        if (speeds[i].code == speed) {
            return speeds[i].name;
        }
    }
    return "?";
}

uint32_t rdmux_verbs_mtu_bytes(uint32_t code)
{
    return code >= 1 && code <= MTU_CODES ? (uint32_t)MTU_BASE << code : 0;
}
