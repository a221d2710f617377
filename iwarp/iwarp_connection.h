/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * What the two ends say of themselves to come together: the connection data that goes over rdmux's
 * control channel, and the private data with which the connector asks for a connection. Pure; decoding
 * takes a stranger's bytes.
 *
 * Numbers are big-endian.
 *
 * Connection data. Offset, size, field:
 *    0  4  "RDXW"
 *    4  1  version, 1
 *    5  1  1: this end's receives are shared with other connections, so that who has no credit has to ask
 *    6  2  zero
 *    8  8  port of each of the addresses in the whereabouts, in their order, 2 bytes each; 0: nobody
 *          listens there
 *   16     connection data of verbs/verbs_connection.h; of its packet sequence numbers, service level
 *          and ACK delay iWARP knows nothing
 *
 * Private data. Offset, size, field:
 *    0   4  "RDXP"
 *    4   1  version, 1
 *    5   1  which connection it is: IWARP_DATA, IWARP_SIDE
 *    6   2  zero
 *    8  16  the secret that the ends of a path share
 * What follows is of a later version and is not read.
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
/* RDMUX_PROTOCOL: cut short, or of another version, or senseless; *out is untouched then. */
enum rdmux_status rdmux_iwarp_connection_decode(const uint8_t *in, size_t size,
                                                struct iwarp_connection *out);

void rdmux_iwarp_private_encode(const struct iwarp_private *private,
                                uint8_t out[IWARP_PRIVATE_SIZE]);
/* The same. */
enum rdmux_status rdmux_iwarp_private_decode(const uint8_t *in, size_t size,
                                             struct iwarp_private *out);

/* Takes the same time whatever the bytes are. */
int rdmux_iwarp_same_secret(const uint8_t a[RDMUX_SECRET_SIZE], const uint8_t b[RDMUX_SECRET_SIZE]);

#endif
