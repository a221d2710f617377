/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "verbs/verbs_timing.h"

#include <rdmux/rdmux.h>

#define ACK_UNIT_NS UINT64_C(4096)
#define NS_PER_MS UINT64_C(1000000)

enum { LONGEST_FACTOR = 4, RNR_CODES = 32, RNR_LONGEST_NS = 120000, RNR_PER_LIVENESS = 1000 };

/* Table 46 of the IBTA specification, in units of 10 us. */
static const uint32_t rnr_units[RNR_CODES] = {
    65536, 1,    2,    3,    4,    6,     8,     12,    16,    24,    32,
    48,    64,   96,   128,  192,  256,   384,   512,   768,   1024,  1536,
    2048,  3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
};

uint64_t rdmux_verbs_ack_ns(uint32_t code)
{
    return ACK_UNIT_NS << code;
}

uint32_t rdmux_verbs_retries(uint32_t liveness_ms, uint32_t code, bool has_failover)
{
    uint64_t tries = liveness_ms * NS_PER_MS / rdmux_verbs_ack_ns(code);
    if (!has_failover || liveness_ms == RDMUX_NEVER || tries > VERBS_RETRY_COUNT) {
        return VERBS_RETRY_COUNT;
    }
    return tries > 2 ? (uint32_t)tries - 1 : 1;
}

uint64_t rdmux_verbs_give_up_ns(uint32_t code, uint32_t retries)
{
    return rdmux_verbs_ack_ns(code) * (retries + 1);
}

uint64_t rdmux_verbs_give_up_longest_ns(uint32_t code, uint32_t retries)
{
    return rdmux_verbs_give_up_ns(code, retries) * LONGEST_FACTOR;
}

uint32_t rdmux_verbs_ack_code(uint32_t liveness_ms, uint32_t peer_delay_code)
{
    uint32_t code = VERBS_ACK_CODE_MAX;
    if (liveness_ms != RDMUX_NEVER) {
        while (code > VERBS_ACK_CODE_MIN &&
               rdmux_verbs_give_up_longest_ns(code, VERBS_RETRY_COUNT) > liveness_ms * NS_PER_MS) {
            code--;
        }
    }
    uint32_t least = peer_delay_code < VERBS_DELAY_CODE_MAX ? peer_delay_code + 1
                                                            : VERBS_DELAY_CODE_MAX;
    return code > least ? code : least;
}

uint64_t rdmux_verbs_rnr_ns(uint32_t code)
{
    return rnr_units[code % RNR_CODES] * UINT64_C(10000);
}

uint32_t rdmux_verbs_rnr_code(uint32_t liveness_ms)
{
    uint64_t most = liveness_ms * NS_PER_MS / RNR_PER_LIVENESS;
    if (liveness_ms == RDMUX_NEVER || most > RNR_LONGEST_NS) {
        most = RNR_LONGEST_NS;
    }
    uint32_t code = 1;
    while (code + 1 < RNR_CODES && rdmux_verbs_rnr_ns(code + 1) <= most) {
        code++;
    }
    return code;
}
