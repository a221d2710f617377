/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Big-endian numbers of 1 to 8 bytes in byte buffers. */
#ifndef RDMUX_VERBS_BYTES_H
#define RDMUX_VERBS_BYTES_H

#include <arpa/inet.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline void verbs_store(uint8_t *out, uint64_t value, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        out[i] = (uint8_t)(value >> (8 * (size - 1 - i)));
    }
}

static inline uint64_t verbs_load(const uint8_t *in, size_t size)
{
    uint64_t value = 0;
    for (size_t i = 0; i < size; i++) {
        value = value << 8 | in[i];
    }
    return value;
}

/* The same for 4 bytes. [data path] */
static inline void verbs_store_be32(uint8_t *out, uint32_t value)
{
    uint32_t big = htonl(value);
    memcpy(out, &big, sizeof(big));
}

static inline uint32_t verbs_load_be32(const uint8_t *in)
{
    uint32_t big;
    memcpy(&big, in, sizeof(big));
    return ntohl(big);
}

#endif
