/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Messages of a lane, and the frames in them. Big-endian.
 *
 * A message begins with 16 bytes:
 *   0  8  tag: whose message it is, see framed_ep.tag_in
 *   8  2  returned: messages of the peer that the sender has handled, in addition
 *  10  2  flags: bit 0 = UNCOUNTED, beyond the window, without frames
 *  12  4  sequence: of the counted messages, from 0; 0 in an uncounted one
 * Then come frames, each padded with zeros to 8 bytes. A frame begins with 16 bytes:
 *   0  1  kind
 *   1  1  flags: PLACED, IMM, BODY: the payload is a body, which follows behind this message
 *   2  2  credits: receives that the sender has for messages, in addition
 *   4  4  size: bytes of payload in this frame, or of its body
 *   8  8  length: of the whole request, or a number
 * then the fields that the kind has: key (16), offset (8), operand (8), expected (8), imm (4, and 4
 * zeros), then the payload.
 */
#ifndef RDMUX_FRAMED_FRAME_H
#define RDMUX_FRAMED_FRAME_H

#include <rdmux/provider.h>

#include <stddef.h>
#include <stdint.h>

enum framed_kind {
    FRAMED_SEND,         /* a message of length bytes for the next receive */
    FRAMED_WRITE,        /* length bytes to key, offset */
    FRAMED_MORE,         /* the next part of the SEND or WRITE under way */
    FRAMED_FLUSH,        /* requests an ACK only */
    FRAMED_READ,         /* requests length bytes from key, offset */
    FRAMED_FETCH_ADD,    /* operand is added */
    FRAMED_COMPARE_SWAP, /* operand is stored if expected is there */
    FRAMED_DATA,         /* the next part of the oldest unanswered READ */
    FRAMED_RESULT,       /* operand answers the oldest atomic */
    FRAMED_ACK,          /* the oldest length requests with PLACED are placed */
    FRAMED_CREDIT,       /* carries credits only */
    FRAMED_ASK,          /* the sender wants to send and has no credit */
    FRAMED_RECALL,       /* requests unused credits back */
    FRAMED_RETURN,       /* gives length credits back */
    FRAMED_REFUSAL,      /* request number operand was refused with status length */
    FRAMED_PING,         /* requests a PONG */
    FRAMED_PONG,
    FRAMED_HELLO, /* the first frame of each side */
    FRAMED_RING,  /* the sender may sleep: asks to be woken after each message, and for a RINGS */
    FRAMED_RINGS, /* the sender wakes the receiver after this message and each later one */
    FRAMED_HUSH,  /* the sender polls: it need not be woken until it asks again */
    FRAMED_KINDS,
};

enum {
    FRAMED_PLACED = 1 << 0,
    FRAMED_IMM = 1 << 1,
    FRAMED_BODY = 1 << 2,

    FRAMED_UNCOUNTED_FLAG = 1 << 0,
    FRAMED_PREFIX_SIZE = 16,
    FRAMED_HEADER_MIN = 16,
    FRAMED_HEADER_MAX = 64, /* the longest header has 16 + 24 + 16 + 8 bytes */
};

struct framed_frame {
    uint8_t kind;  /* enum framed_kind */
    uint8_t flags; /* FRAMED_PLACED, FRAMED_IMM, FRAMED_BODY */
    uint16_t credits;
    uint32_t size;
    uint32_t imm;
    uint64_t length;
    const uint8_t *key; /* RDMUX_TARGET_KEY_SIZE bytes, the caller's or in the decoded message */
    uint64_t offset;
    uint64_t operand;
    uint64_t expected;
};

struct framed_prefix {
    uint64_t tag;
    uint16_t returned;
    uint16_t flags;
    uint32_t sequence;
};

/* The connection data of this layer; the lane's follow. Bytes: version, flags, window (2),
 * message_max (4), zeros (8). */
struct framed_description {
    uint32_t window;
    uint32_t message_max;
    uint32_t on_demand; /* credits are granted on request */
    uint32_t bodies;    /* bodies may be sent */
};

static inline uint64_t framed_padded(uint64_t size)
{
    return (size + 7) & ~UINT64_C(7);
}

/* Returns the bytes before the payload of a frame of this kind and flags. */
size_t rdmux_framed_header_size(uint8_t kind, uint8_t flags);
/* Writes a header, at most FRAMED_HEADER_MAX bytes; returns its size. */
size_t rdmux_framed_frame_encode(const struct framed_frame *frame, uint8_t *out);
/* Decodes the frame at `in`. *payload is its payload, frame->size bytes unless it is a body, and
 * *used the bytes of all of it. RDMUX_PROTOCOL: the size bytes are no whole frame. */
RDMUX_MUST_CHECK enum rdmux_status rdmux_framed_frame_decode(const uint8_t *in, size_t size,
                                                             struct framed_frame *out,
                                                             const uint8_t **payload, size_t *used);

void rdmux_framed_prefix_encode(const struct framed_prefix *prefix, uint8_t *out);
/* RDMUX_PROTOCOL: the message is shorter than a prefix, or has an unknown flag. */
RDMUX_MUST_CHECK enum rdmux_status rdmux_framed_prefix_decode(const uint8_t *in, size_t size,
                                                              struct framed_prefix *out);

void rdmux_framed_description_encode(const struct framed_description *description, uint8_t *out);
/* RDMUX_VERSION, RDMUX_PROTOCOL: the peer cannot be talked to. */
RDMUX_MUST_CHECK enum rdmux_status rdmux_framed_description_decode(const uint8_t *in, size_t size,
                                                                   struct framed_description *out);

#endif
