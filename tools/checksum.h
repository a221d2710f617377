/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The checksum of copied files: SHA-256 if the build has OpenSSL (checksum_sha256.c), else CRC-64,
 * which detects damage but not tampering (checksum_crc64.c). Both sides of a copy must use the same
 * checksum; copy and serve report its name. */
#ifndef RDMUX_TOOL_CHECKSUM_H
#define RDMUX_TOOL_CHECKSUM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    CHECKSUM_SHA256 = 1,
    CHECKSUM_CRC64 = 2,
};

enum { CHECKSUM_SIZE_MAX = 32 };

struct checksum; /* one running checksum */

extern const uint8_t checksum_algorithm; /* CHECKSUM_* of this build */
extern const char checksum_name[];       /* "sha256" or "crc64" */
extern const size_t checksum_size;       /* bytes of a checksum, at most CHECKSUM_SIZE_MAX */

struct checksum *checksum_create(void);           /* NULL: out of memory */
void checksum_destroy(struct checksum *checksum); /* NULL is allowed */
bool checksum_begin(struct checksum *checksum);   /* starts a new checksum */
bool checksum_add(struct checksum *checksum, const void *bytes, size_t length);
bool checksum_end(struct checksum *checksum,
                  uint8_t out[CHECKSUM_SIZE_MAX]); /* bytes beyond checksum_size are 0 */

/* The checksum of the bytes so far; more may be added. */
bool checksum_peek(struct checksum *checksum, uint8_t out[CHECKSUM_SIZE_MAX]);

/* Prints a checksum in hexadecimal digits. */
void checksum_print(const uint8_t sum[CHECKSUM_SIZE_MAX], char out[2 * CHECKSUM_SIZE_MAX + 1]);

#endif
