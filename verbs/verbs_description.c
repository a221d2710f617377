/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "verbs/verbs_description.h"

#include "api/base/bytes.h"

#include <stdbool.h>
#include <string.h>

enum {
    REGION_VERSION = 1,
    REGION_AT_VERSION = 0,
    REGION_AT_FLAGS = 1,
    REGION_AT_RKEY = 4,
    REGION_AT_ADDR = 8,
    REGION_AT_KEY = 16,
    REGION_FLAGS_KNOWN = VERBS_REGION_HAS_KEY | VERBS_REGION_NATIVE_ATOMICS |
                         VERBS_REGION_LIBRARY_ATOMICS,

    SIDE_AT_KIND = 0,
    SIDE_AT_OP = 1,
    SIDE_AT_NUMBER = 4,
    SIDE_AT_OFFSET = 8,
    SIDE_AT_OPERAND = 16,
    SIDE_AT_EXPECTED = 24,
    SIDE_AT_KEY = 32,
};
_Static_assert(REGION_AT_KEY + RDMUX_TARGET_KEY_SIZE == VERBS_REGION_SIZE, "the key ends it");
_Static_assert(SIDE_AT_KEY + RDMUX_TARGET_KEY_SIZE == VERBS_SIDE_SIZE, "the key ends it");

void rdmux_verbs_region_encode(const struct verbs_region *region, uint8_t out[VERBS_REGION_SIZE])
{
    memset(out, 0, VERBS_REGION_SIZE);
    out[REGION_AT_VERSION] = REGION_VERSION;
    out[REGION_AT_FLAGS] = (uint8_t)region->flags;
    rdmux_store_be32(out + REGION_AT_RKEY, region->rkey);
    rdmux_store_be64(out + REGION_AT_ADDR, region->addr);
    memcpy(out + REGION_AT_KEY, region->key, RDMUX_TARGET_KEY_SIZE);
}

enum rdmux_status rdmux_verbs_region_decode(const uint8_t *in, size_t size, uint64_t length,
                                            struct verbs_region *out)
{
    if (size < VERBS_REGION_SIZE || in[REGION_AT_VERSION] != REGION_VERSION) {
        return RDMUX_PROTOCOL;
    }
    struct verbs_region region = {
        .flags = in[REGION_AT_FLAGS] & REGION_FLAGS_KNOWN,
        .rkey = rdmux_load_be32(in + REGION_AT_RKEY),
        .addr = rdmux_load_be64(in + REGION_AT_ADDR),
    };
    memcpy(region.key, in + REGION_AT_KEY, RDMUX_TARGET_KEY_SIZE);
    bool wraps = length > UINT64_MAX - region.addr;
    bool keyless_atomics = (region.flags & VERBS_REGION_NATIVE_ATOMICS) != 0 &&
                           (region.flags & VERBS_REGION_HAS_KEY) == 0;
    if (wraps || keyless_atomics) {
        return RDMUX_PROTOCOL;
    }
    *out = region;
    return RDMUX_OK;
}

void rdmux_verbs_side_encode(const struct verbs_side_message *message, uint8_t out[VERBS_SIDE_SIZE])
{
    memset(out, 0, VERBS_SIDE_SIZE);
    out[SIDE_AT_KIND] = message->kind;
    out[SIDE_AT_OP] = message->op;
    rdmux_store_be32(out + SIDE_AT_NUMBER, message->number);
    rdmux_store_be64(out + SIDE_AT_OFFSET, message->offset);
    rdmux_store_be64(out + SIDE_AT_OPERAND, message->operand);
    rdmux_store_be64(out + SIDE_AT_EXPECTED, message->expected);
    memcpy(out + SIDE_AT_KEY, message->key, RDMUX_TARGET_KEY_SIZE);
}

enum rdmux_status rdmux_verbs_side_decode(const uint8_t *in, size_t size,
                                          struct verbs_side_message *out)
{
    if (size != VERBS_SIDE_SIZE) {
        return RDMUX_PROTOCOL;
    }
    struct verbs_side_message message = {
        .kind = in[SIDE_AT_KIND],
        .op = in[SIDE_AT_OP],
        .number = rdmux_load_be32(in + SIDE_AT_NUMBER),
        .offset = rdmux_load_be64(in + SIDE_AT_OFFSET),
        .operand = rdmux_load_be64(in + SIDE_AT_OPERAND),
        .expected = rdmux_load_be64(in + SIDE_AT_EXPECTED),
    };
    memcpy(message.key, in + SIDE_AT_KEY, RDMUX_TARGET_KEY_SIZE);
    bool is_request = message.kind == VERBS_SIDE_REQUEST &&
                      (message.op == RDMUX_OP_FETCH_ADD || message.op == RDMUX_OP_COMPARE_SWAP);
    bool is_answer = message.kind == VERBS_SIDE_ANSWER && message.op <= RDMUX_IO;
    if (!is_request && !is_answer) {
        return RDMUX_PROTOCOL;
    }
    *out = message;
    return RDMUX_OK;
}
