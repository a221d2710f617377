/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Big-endian numbers in byte buffers. */
#ifndef RDMUX_NEGOTIATION_BYTES_H
#define RDMUX_NEGOTIATION_BYTES_H

#include <stdint.h>

static inline uint16_t rdmux_load_be16(const uint8_t *in)
{
    return (uint16_t)((uint32_t)in[0] << 8 | (uint32_t)in[1]);
}

static inline uint32_t rdmux_load_be32(const uint8_t *in)
{
    return (uint32_t)rdmux_load_be16(in) << 16 | (uint32_t)rdmux_load_be16(in + 2);
}

static inline uint64_t rdmux_load_be64(const uint8_t *in)
{
    return (uint64_t)rdmux_load_be32(in) << 32 | (uint64_t)rdmux_load_be32(in + 4);
}

static inline void rdmux_store_be16(uint8_t *out, uint16_t value)
{
    out[0] = (uint8_t)(value >> 8);
    out[1] = (uint8_t)(value & 0xff);
}

static inline void rdmux_store_be32(uint8_t *out, uint32_t value)
{
    rdmux_store_be16(out, (uint16_t)(value >> 16));
    rdmux_store_be16(out + 2, (uint16_t)(value & 0xffff));
}

static inline void rdmux_store_be64(uint8_t *out, uint64_t value)
{
    rdmux_store_be32(out, (uint32_t)(value >> 32));
    rdmux_store_be32(out + 4, (uint32_t)(value & UINT32_C(0xffffffff)));
}

#endif
