/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The transcript hash: SHA-256 over the bytes both sides sent before the choice. */
#ifndef RDMUX_NEGOTIATION_TRANSCRIPT_H
#define RDMUX_NEGOTIATION_TRANSCRIPT_H

#include "negotiation/handshake.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One piece of the transcript; the bytes as they are on the wire. */
struct rdmux_transcript_piece {
    const uint8_t *bytes;
    size_t size;
};

/* Returns whether this build can compute the hash. */
bool rdmux_transcript_available(void);

/* Hashes the pieces in order: the connector's HELLO and OFFER frame, then the acceptor's.
 * RDMUX_UNSUPPORTED: not available. RDMUX_NO_MEMORY. */
enum rdmux_status rdmux_transcript_hash(const struct rdmux_transcript_piece *pieces, size_t count,
                                        uint8_t out[RDMUX_TRANSCRIPT_SIZE]);

#endif
