/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Data that the two ends exchange to connect: the connection data, sent over rdmux's control
 * channel, and the private data of the connector's connection request. Pure; the decoders take
 * untrusted bytes.
 *
 * Numbers are big-endian.
 *
 * Connection data. Offset, size, field:
 *    0  4  "RDXW"
 *    4  1  version, 1
 *    5  1  1: this end's receives are shared with other connections,
 *          so a peer without credit has to ask
 *    6  2  zero
 *    8  8  port of each address in the whereabouts, in their order, 2 bytes each;
 *          0: no listener there
 *   16     connection data of verbs/verbs_connection.h; iWARP does not use its packet sequence
 *          numbers, service level and ACK delay
 *
 * Private data. Offset, size, field:
 *    0   4  "RDXP"
 *    4   1  version, 1
 *    5   1  which connection it is: IWARP_DATA, IWARP_SIDE
 *    6   2  zero
 *    8  16  the secret that the ends of a path share
 * Bytes after these belong to a later version and are not read.
 */
#ifndef RDMUX_IWARP_CONNECTION_H
#define RDMUX_IWARP_CONNECTION_H

#include "verbs/verbs_connection.h"

#include <rdmux/provider.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    IWARP_DATA = 0,
    IWARP_SIDE = 1,
    IWARP_LINKS = 2,

    IWARP_CONNECTION_FIXED = 16,
    IWARP_CONNECTION_MAX = IWARP_CONNECTION_FIXED + VERBS_CONNECTION_MAX,
    IWARP_PRIVATE_SIZE = 24,
};

struct iwarp_connection {
    uint16_t ports[VERBS_ADDRESSES_MAX];
    bool shares_receives;
    struct verbs_connection verbs;
};

struct iwarp_private {
    uint8_t link;
    uint8_t secret[RDMUX_SECRET_SIZE];
};

/* Returns the bytes written, at most IWARP_CONNECTION_MAX. */
size_t rdmux_iwarp_connection_encode(const struct iwarp_connection *connection, uint8_t *out);
/* RDMUX_PROTOCOL: truncated, of another version, or invalid; *out is unchanged then. */
enum rdmux_status rdmux_iwarp_connection_decode(const uint8_t *in, size_t size,
                                                struct iwarp_connection *out);

void rdmux_iwarp_private_encode(const struct iwarp_private *private,
                                uint8_t out[IWARP_PRIVATE_SIZE]);
/* RDMUX_PROTOCOL: as above; *out is unchanged then. */
enum rdmux_status rdmux_iwarp_private_decode(const uint8_t *in, size_t size,
                                             struct iwarp_private *out);

/* Compares in constant time. */
int rdmux_iwarp_same_secret(const uint8_t a[RDMUX_SECRET_SIZE], const uint8_t b[RDMUX_SECRET_SIZE]);

#endif
