/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Frames of the tcp provider (docs/WIRE-TCP.md), big-endian. Each begins with 8 bytes:
 *   0  1  type: 0x40, plus kind in bits 0-3, plus flags STRIPED 0x80, PLACED 0x20, IMM 0x10
 *   1  1  credits: receives that the sender of this frame has posted in addition
 *   2  6  length
 * then the fields that the kind has: key (16), offset (8), operand (8), expected (8), imm (4).
 */
#ifndef RDMUX_TCP_FRAME_H
#define RDMUX_TCP_FRAME_H

#include <rdmux/rdmux.h>

#include <stddef.h>
#include <stdint.h>

enum tcp_kind {
    TCP_SEND = 0,         /* length bytes into the next receive */
    TCP_WRITE = 1,        /* length bytes to key, offset */
    TCP_MORE = 2,         /* length bytes, the next part of the SEND or WRITE under way */
    TCP_FLUSH = 3,        /* requests only an ACK */
    TCP_READ = 4,         /* requests length bytes from key, offset */
    TCP_FETCH_ADD = 5,    /* length is 8; operand is added */
    TCP_COMPARE_SWAP = 6, /* length is 8; operand is stored if expected is there */
    TCP_DATA = 7,         /* length bytes, the next part of the oldest unanswered READ */
    TCP_RESULT = 8,       /* length is 8; operand answers the oldest atomic */
    TCP_ACK = 9,          /* the oldest `length` requests with PLACED are placed */
    TCP_CREDIT = 10,      /* length more credits, in addition to those of byte 1 */
    TCP_ASK = 11,         /* the sender wants to send and has no credit */
    TCP_RECALL = 12,      /* requests unused credits back */
    TCP_RETURN = 13,      /* the sender gives length credits back */
    TCP_NAK = 14,  /* request number `operand` was refused with status `length`; nothing follows */
    TCP_PING = 15, /* no effect; length filler bytes follow */
};

enum {
    TCP_STRIPED = 0x80, /* the payload of this frame is spread over all data sockets */
    /* set in every frame of data; a smaller first byte begins a frame of the control channel */
    TCP_MARK = 0x40,
    TCP_PLACED = 0x20, /* the receiver sends an ACK when the request is placed */
    TCP_IMM = 0x10,    /* imm follows; a WRITE takes a receive */
    TCP_KIND_MASK = 0x0f,

    TCP_PREFIX_SIZE = 8,
    TCP_KEY_SIZE = 16,
    TCP_PING_MAX = 120,   /* most filler bytes of a PING */
    TCP_HEADER_MAX = 128, /* a PING with its filler; the longest other header has 48 */

    TCP_CHUNK_MAX = 1 << 20, /* payload bytes of one frame on one socket */
    TCP_EARLY_MAX = 4096,    /* bytes of a SEND that may come without a credit */

    TCP_CONTROL_HEADER_SIZE = 8,
    TCP_CONTROL_PAYLOAD_MAX = 65536,
};

#define TCP_LENGTH_MAX UINT64_C(0x0000ffffffffffff)

struct tcp_frame {
    uint8_t kind;  /* enum tcp_kind */
    uint8_t flags; /* TCP_STRIPED, TCP_PLACED, TCP_IMM */
    uint8_t credits;
    uint32_t imm;
    uint64_t length;
    const uint8_t *key; /* TCP_KEY_SIZE bytes, in the decoded buffer or the caller's */
    uint64_t offset;
    uint64_t operand;
    uint64_t expected;
};

/* Returns the size of the header that begins with this byte; 0: no such frame. */
size_t rdmux_tcp_header_size(uint8_t type);

/* Writes the header, at most TCP_HEADER_MAX bytes, and returns its size. The caller writes the
 * filler of a PING. */
size_t rdmux_tcp_frame_encode(const struct tcp_frame *frame, uint8_t *out);

/* Decodes a header. RDMUX_AGAIN: the size bytes do not hold the whole header yet. RDMUX_PROTOCOL:
 * the bytes are no header. Else *out is filled, out->key points into `in`, and *used is the
 * header's size, with the filler of a PING. Does not read the payload. */
RDMUX_MUST_CHECK enum rdmux_status rdmux_tcp_frame_decode(const uint8_t *in, size_t size,
                                                          struct tcp_frame *out, size_t *used);

/* Gets the size of a whole control frame. RDMUX_AGAIN and RDMUX_PROTOCOL as above. */
RDMUX_MUST_CHECK enum rdmux_status rdmux_tcp_control_size(const uint8_t *in, size_t size,
                                                          size_t *frame_size);

/* Returns the payload size of the next frame of a SEND, WRITE or answer that has `left` bytes to
 * go. */
static inline uint64_t rdmux_tcp_frame_payload(uint64_t left, uint32_t sockets, int striped)
{
    uint64_t most = striped ? (uint64_t)sockets * TCP_CHUNK_MAX : TCP_CHUNK_MAX;
    return left < most ? left : most;
}

/* Computes socket index's share of a payload of length bytes: [*begin, *end). */
void rdmux_tcp_share(uint64_t length, uint32_t sockets, uint32_t index, uint64_t *begin,
                     uint64_t *end);

/* Connection data, 8 bytes:
 *   0  1  version, 1
 *   1  1  data sockets
 *   2  2  answers: reads and atomics in flight at a time
 *   4  1  flags: 1 = credits are granted on demand, 2 = all bytes are encrypted, 4 = this side
 *         takes early messages
 *   5  3  zero, ignored */
enum {
    TCP_DESCRIPTION_SIZE = 8,
    TCP_VERSION = 1,
    TCP_ON_DEMAND = 1,
    TCP_ENCRYPTED = 2,
    TCP_EARLY = 4,
};

struct tcp_description {
    uint32_t sockets;
    uint32_t answers;
    uint32_t on_demand;
    uint32_t encrypted;
    uint32_t early;
};

void rdmux_tcp_description_encode(const struct tcp_description *description,
                                  uint8_t out[TCP_DESCRIPTION_SIZE]);
/* Errors: RDMUX_VERSION, RDMUX_PROTOCOL. */
RDMUX_MUST_CHECK enum rdmux_status rdmux_tcp_description_decode(const uint8_t *in, size_t size,
                                                                struct tcp_description *out);

#endif
