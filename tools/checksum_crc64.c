/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* checksum.h without OpenSSL: CRC-64/XZ (ECMA-182, reflected), eight bytes per step. */
#include "checksum.h"

#ifndef RDMUX_HAVE_OPENSSL

#include <stdlib.h>
#include <string.h>

const uint8_t checksum_algorithm = CHECKSUM_CRC64;
const char checksum_name[] = "crc64";
const size_t checksum_size = 8;

struct checksum {
    uint64_t value;
    uint64_t table[8][256]; /* table[n][b]: byte b followed by n zero bytes */
};

struct checksum *checksum_create(void)
{
    struct checksum *checksum = calloc(1, sizeof(*checksum));
    if (checksum == NULL) {
        return NULL;
    }
    for (unsigned byte = 0; byte < 256; byte++) {
        uint64_t value = byte;
        for (int bit = 0; bit < 8; bit++) {
            value = (value >> 1) ^ ((value & 1) != 0 ? UINT64_C(0xc96c5795d7870f42) : 0);
        }
        checksum->table[0][byte] = value;
    }
    for (unsigned n = 1; n < 8; n++) {
        for (unsigned byte = 0; byte < 256; byte++) {
            uint64_t before = checksum->table[n - 1][byte];
            checksum->table[n][byte] = (before >> 8) ^ checksum->table[0][before & 255];
        }
    }
    return checksum;
}

void checksum_destroy(struct checksum *checksum)
{
    free(checksum);
}

bool checksum_begin(struct checksum *checksum)
{
    checksum->value = UINT64_MAX;
    return true;
}

bool checksum_add(struct checksum *checksum, const void *bytes, size_t length)
{
    const uint8_t *at = bytes;
    uint64_t value = checksum->value;
    while (length >= 8) {
        for (unsigned i = 0; i < 8; i++) {
            value ^= (uint64_t)at[i] << (8 * i);
        }
        uint64_t next = 0;
        for (unsigned i = 0; i < 8; i++) {
            next ^= checksum->table[7 - i][(value >> (8 * i)) & 255];
        }
        value = next;
        at += 8;
        length -= 8;
    }
    for (; length > 0; length--, at++) {
        value = (value >> 8) ^ checksum->table[0][(value ^ *at) & 255];
    }
    checksum->value = value;
    return true;
}

bool checksum_end(struct checksum *checksum, uint8_t out[CHECKSUM_SIZE_MAX])
{
    memset(out, 0, CHECKSUM_SIZE_MAX);
    for (unsigned i = 0; i < 8; i++) {
        out[i] = (uint8_t)(~checksum->value >> (56 - 8 * i));
    }
    return true;
}

bool checksum_peek(struct checksum *checksum, uint8_t out[CHECKSUM_SIZE_MAX])
{
    return checksum_end(checksum, out); /* leaves the running value */
}

#endif
