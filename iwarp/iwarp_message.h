/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * What the iwarp provider sends beside the application's bytes: a header in front of each message,
 * as the devices have no immediate data (RFC 5040 has none), and its own messages on the side
 * channel. Pure; the decoders take untrusted bytes.
 *
 * Numbers are big-endian. "Sender" and "receiver" are those of the header or side message itself.
 *
 * Header. Offset, size, field:
 *    0   1  kind, IWARP_MESSAGE or IWARP_NOTICE
 *    1   1  IWARP_HAS_IMM, or 0
 *    2   2  zero
 *    4   4  immediate number
 *    8   4  bytes of the message behind the header; in a notice: bytes of the write before it
 *   12   4  messages that the receiver may send, counted from the first one; low 32 bits
 *
 * Side message, of the size of all side messages (verbs/verbs_description.h has the other kinds).
 * Offset, size, field:
 *    0   1  kind, IWARP_SIDE_*
 *    1   1  status, enum rdmux_status (IWARP_SIDE_ENDED)
 *    2   1  1: a key that the receiver may have used was revoked (IWARP_SIDE_ENDED)
 *    3   1  zero
 *    4   4  IWARP_SIDE_CREDITS messages that the sender has received
 *    8   4  messages that the receiver may send, as in the header
 *   12   4  credits that the sender gives back, counted from the first one
 *   16   4  how often the sender has asked for credits
 *   20   4  how often the sender has asked for credits back
 *   24   4  how many such recalls of the receiver the sender has answered
 *   28   4  the newest grant of the receiver that the sender knows
 *   32  16  zero
 */
#ifndef RDMUX_IWARP_MESSAGE_H
#define RDMUX_IWARP_MESSAGE_H

#include <rdmux/rdmux.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    IWARP_HEADER_SIZE = 16,
    IWARP_MESSAGE = 1,
    IWARP_NOTICE = 2, /* a write with an immediate number was placed */
    IWARP_HAS_IMM = 1 << 0,

    IWARP_SIDE_SIZE = 48,
    IWARP_SIDE_HELLO = 16,   /* the first one: the data connection is in use; answered with HELLO */
    IWARP_SIDE_CREDITS = 17, /* acknowledged by the next message of either kind */
    IWARP_SIDE_SEEN = 18,    /* the same contents; acknowledges, needs no acknowledgment itself */
    IWARP_SIDE_ENDED = 19,   /* the data connection has ended; carries the known cause */
};

struct iwarp_header {
    uint8_t kind;
    bool has_imm;
    uint32_t imm;
    uint32_t length;
    uint32_t granted;
};

struct iwarp_side {
    uint8_t kind;
    uint8_t status;
    bool is_key_revoked;
    uint32_t seen;
    uint32_t granted;
    uint32_t returned;
    uint32_t asked;
    uint32_t recalled;
    uint32_t answered;
    uint32_t known;
};

void rdmux_iwarp_header_encode(const struct iwarp_header *header, uint8_t out[IWARP_HEADER_SIZE]);
/* size: bytes of the message, header included. longest: bytes of the longest write that a peer can
 * do here, and of the longest that a notice may report. RDMUX_PROTOCOL: truncated or invalid; *out
 * is unchanged then. */
enum rdmux_status rdmux_iwarp_header_decode(const uint8_t *in, uint64_t size, uint64_t longest,
                                            struct iwarp_header *out);

void rdmux_iwarp_side_encode(const struct iwarp_side *message, uint8_t out[IWARP_SIDE_SIZE]);
/* RDMUX_PROTOCOL: invalid, or of another size; *out is unchanged then. */
enum rdmux_status rdmux_iwarp_side_decode(const uint8_t *in, size_t size, struct iwarp_side *out);

#endif
