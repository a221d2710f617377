/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * What two processes that use rdmux as a provider of libfabric tell each other: the connection
 * data, and the directory of a domain's regions. Bytes in, structs out, no I/O.
 *
 * Connection data, in the private data of rdmux_connect() and rdmux_accept(). Offset, size, field:
 *    0   4  magic "RDFI"
 *    4   1  version, 1
 *    5   1  zero
 *    6   2  length of the application's data, big-endian
 *    8  64  token of the sender's directory
 *   72   1  family of the sender's address: 4, 6, or 0 for none
 *   73   3  zero
 *   76  16  the sender's address; one of 4 bytes comes first
 *   92   -  the application's data
 *
 * Directory: FI_SLOT_COUNT slots of FI_SLOT_SIZE bytes, in memory that the peer reads. A key of
 * libfabric is the number of its slot and the slot's generation. A slot, big-endian:
 *    0   8  key, 0 if the slot is free
 *    8   8  address of the region's first byte
 *   16   8  length in bytes
 *   24   4  access, RDMUX_ACCESS_REMOTE_*
 *   28   4  zero
 *   32  64  token
 *   96   8  digest of the bytes before it
 *  104  24  zero
 * The digest tells a reader that the owner wrote the slot meanwhile. It protects from no attacker:
 * the owner of a directory grants the rights anyway.
 */
#ifndef RDMUX_ADAPTERS_FI_DIRECTORY_H
#define RDMUX_ADAPTERS_FI_DIRECTORY_H

#include <rdmux/rdmux.h>

#include <stdbool.h>

enum {
    FI_GREETING_SIZE = 92,
    FI_HOST_SIZE = 16,
    FI_USER_DATA_MAX = RDMUX_PRIVATE_DATA_MAX - FI_GREETING_SIZE,
    FI_SLOT_SIZE = 128,
    FI_SLOT_BITS = 13,
    FI_SLOT_COUNT = 1 << FI_SLOT_BITS,
};

struct rdmux_fi_greeting {
    struct rdmux_token directory;
    uint8_t family; /* 4, 6, or 0 */
    uint8_t host[FI_HOST_SIZE];
    const uint8_t *data; /* decoded: within the bytes given */
    size_t length;
};

struct rdmux_fi_slot {
    uint64_t key;
    uint64_t address;
    uint64_t length;
    uint32_t access;
    struct rdmux_token token;
};

/* The slot of a key. */
static inline uint32_t rdmux_fi_key_slot(uint64_t key)
{
    return (uint32_t)(key & (FI_SLOT_COUNT - 1));
}

static inline uint64_t rdmux_fi_key_make(uint32_t slot, uint64_t generation)
{
    return generation << FI_SLOT_BITS | slot;
}

/* Writes the greeting and returns the number of its bytes. greeting->length: at most
 * FI_USER_DATA_MAX. */
size_t rdmux_fi_greeting_encode(const struct rdmux_fi_greeting *greeting,
                                uint8_t out[RDMUX_PRIVATE_DATA_MAX]);

/* False: the peer is no rdmux under libfabric, or its bytes are malformed. *out is untouched then. */
bool rdmux_fi_greeting_decode(const uint8_t *bytes, size_t size, struct rdmux_fi_greeting *out);

void rdmux_fi_slot_encode(const struct rdmux_fi_slot *slot, uint8_t out[FI_SLOT_SIZE]);

/* Decodes the slot of this key. False: the key has been closed, the owner was just writing, or the
 * bytes are malformed. *out is untouched then. */
bool rdmux_fi_slot_decode(const uint8_t bytes[FI_SLOT_SIZE], uint64_t key,
                          struct rdmux_fi_slot *out);

/* The place of length bytes at an address within the slot's region. False: beyond it. */
bool rdmux_fi_slot_offset(const struct rdmux_fi_slot *slot, uint64_t address, uint64_t length,
                          uint64_t *offset);

#endif
