/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Numbers in byte buffers, which need no alignment: big-endian on the wire, little-endian in some
 * data of shm, and in host byte order between two processes of one host. [data path] */
#ifndef RDMUX_API_BASE_BYTES_H
#define RDMUX_API_BASE_BYTES_H

#include "api/base/compiler.h"

#include <stdint.h>
#include <string.h>

static inline uint16_t rdmux_load_host16(const uint8_t *in)
{
    uint16_t value;
    memcpy(&value, in, sizeof(value));
    return value;
}

static inline uint32_t rdmux_load_host32(const uint8_t *in)
{
    uint32_t value;
    memcpy(&value, in, sizeof(value));
    return value;
}

static inline uint64_t rdmux_load_host64(const uint8_t *in)
{
    uint64_t value;
    memcpy(&value, in, sizeof(value));
    return value;
}

static inline void rdmux_store_host16(uint8_t *out, uint16_t value)
{
    memcpy(out, &value, sizeof(value));
}

static inline void rdmux_store_host32(uint8_t *out, uint32_t value)
{
    memcpy(out, &value, sizeof(value));
}

static inline void rdmux_store_host64(uint8_t *out, uint64_t value)
{
    memcpy(out, &value, sizeof(value));
}

static inline uint16_t rdmux_load_be16(const uint8_t *in)
{
    return RDMUX_BIG16(rdmux_load_host16(in));
}

static inline uint32_t rdmux_load_be32(const uint8_t *in)
{
    return RDMUX_BIG32(rdmux_load_host32(in));
}

static inline uint64_t rdmux_load_be64(const uint8_t *in)
{
    return RDMUX_BIG64(rdmux_load_host64(in));
}

static inline void rdmux_store_be16(uint8_t *out, uint16_t value)
{
    rdmux_store_host16(out, RDMUX_BIG16(value));
}

static inline void rdmux_store_be32(uint8_t *out, uint32_t value)
{
    rdmux_store_host32(out, RDMUX_BIG32(value));
}

static inline void rdmux_store_be64(uint8_t *out, uint64_t value)
{
    rdmux_store_host64(out, RDMUX_BIG64(value));
}

static inline uint32_t rdmux_load_le32(const uint8_t *in)
{
    return RDMUX_LITTLE32(rdmux_load_host32(in));
}

static inline uint64_t rdmux_load_le64(const uint8_t *in)
{
    return RDMUX_LITTLE64(rdmux_load_host64(in));
}

static inline void rdmux_store_le32(uint8_t *out, uint32_t value)
{
    rdmux_store_host32(out, RDMUX_LITTLE32(value));
}

static inline void rdmux_store_le64(uint8_t *out, uint64_t value)
{
    rdmux_store_host64(out, RDMUX_LITTLE64(value));
}

#endif
