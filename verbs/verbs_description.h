/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * The bytes by which a peer reaches a region, and the messages of the side channel. Pure; decoding
 * takes untrusted bytes.
 *
 * Numbers are big-endian.
 *
 * Description of a region. Offset, size, field:
 *    0   1  version, 1
 *    1   1  VERBS_REGION_* bits
 *    2   2  zero
 *    4   4  remote key
 *    8   8  address of the region's first byte, for the remote key
 *   16  16  key for the owner's library, which emulates the atomics that the device lacks
 * Bytes after these belong to a later version and are not read.
 *
 * Side message. Offset, size, field:
 *    0   1  kind, VERBS_SIDE_*
 *    1   1  operation, RDMUX_OP_*; of an answer: status, enum rdmux_status
 *    2   2  zero
 *    4   4  number of the request; the answer has the same
 *    8   8  offset into the region
 *   16   8  operand; of an answer: the value before
 *   24   8  expected value
 *   32  16  key of the region
 */
#ifndef RDMUX_VERBS_DESCRIPTION_H
#define RDMUX_VERBS_DESCRIPTION_H

#include <rdmux/provider.h>

#include <stddef.h>
#include <stdint.h>

enum {
    VERBS_REGION_SIZE = 32,
    VERBS_REGION_HAS_KEY = 1 << 0,         /* remote key and address are valid */
    VERBS_REGION_NATIVE_ATOMICS = 1 << 1,  /* atomics by the device, with the remote key */
    VERBS_REGION_LIBRARY_ATOMICS = 1 << 2, /* atomics by the owner's library */

    VERBS_SIDE_SIZE = 48,
    VERBS_SIDE_REQUEST = 1,
    VERBS_SIDE_ANSWER = 2,
};

struct verbs_region {
    uint32_t flags;
    uint32_t rkey;
    uint64_t addr;
    uint8_t key[RDMUX_TARGET_KEY_SIZE];
};

struct verbs_side_message {
    uint8_t kind;
    uint8_t op; /* or status */
    uint32_t number;
    uint64_t offset;
    uint64_t operand; /* or the value before */
    uint64_t expected;
    uint8_t key[RDMUX_TARGET_KEY_SIZE];
};

void rdmux_verbs_region_encode(const struct verbs_region *region, uint8_t out[VERBS_REGION_SIZE]);
/* length: the region's. RDMUX_PROTOCOL: truncated, of another version, or invalid; *out is
 * untouched then. */
enum rdmux_status rdmux_verbs_region_decode(const uint8_t *in, size_t size, uint64_t length,
                                            struct verbs_region *out);
void rdmux_verbs_side_encode(const struct verbs_side_message *message, uint8_t out[VERBS_SIDE_SIZE]);
enum rdmux_status rdmux_verbs_side_decode(const uint8_t *in, size_t size,
                                          struct verbs_side_message *out);

#endif
