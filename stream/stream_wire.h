/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* What two streams say to each other, as bytes. No I/O. */
#ifndef RDMUX_STREAM_WIRE_H
#define RDMUX_STREAM_WIRE_H

#include <rdmux/rdmux.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * HELLO, the first message of each side, without immediate data; big-endian. Offset, size, field:
 *    0  8  magic, "rdmuxstr"
 *    8  4  version, 1
 *   12  4  slots: receives that the sender keeps posted ahead of a direct one, 1 to SLOTS_MAX
 *   16  8  ring: bytes of the sender's ring, a power of two, RING_MIN to RING_MAX
 *   24  8  window: the sender writes at most so many bytes ahead, RING_MIN to RING_MAX
 *   32 64  token of the ring
 */
enum {
    RDMUX_HELLO_AT_VERSION = 8,
    RDMUX_HELLO_AT_SLOTS = 12,
    RDMUX_HELLO_AT_RING = 16,
    RDMUX_HELLO_AT_WINDOW = 24,
    RDMUX_HELLO_AT_TOKEN = 32,
    RDMUX_STREAM_HELLO_SIZE = RDMUX_HELLO_AT_TOKEN + RDMUX_TOKEN_SIZE,
    RDMUX_STREAM_VERSION = 1,
    RDMUX_STREAM_SLOTS_MAX = 1024,
    RDMUX_STREAM_RING_MIN = 4096,
    RDMUX_STREAM_RING_MAX = 1 << 26,
};

struct rdmux_stream_hello {
    uint32_t slots;
    uint64_t ring;
    uint64_t window;
    struct rdmux_token token;
};

/* Every later message has immediate data: its kind in the upper 4 bits, and in the lower 28 bits how
 * many more bytes of its ring the sender has freed. */
enum rdmux_stream_kind {
    RDMUX_STREAM_DATA = 1,   /* a write with immediate data, the next bytes of the ring */
    RDMUX_STREAM_CREDIT = 2, /* freed bytes alone */
    RDMUX_STREAM_ADVERT = 3, /* offers a direct receive, see struct rdmux_stream_advert */
    RDMUX_STREAM_BULK = 4,   /* fills the direct receive */
    RDMUX_STREAM_FIN = 5,    /* the mark of the end */
    RDMUX_STREAM_PAD = 6,    /* takes a receive, so that the next message meets a later one */
};

enum { RDMUX_STREAM_FREED_MAX = (1 << 28) - 1 };

/* ADVERT; big-endian. Offset, size, field: 0  8  index;  8  8  length */
struct rdmux_stream_advert {
    uint64_t index; /* of the direct receive, among all receives of the sender from 0 on */
    uint64_t length;
};

enum { RDMUX_STREAM_ADVERT_SIZE = 16 };

void rdmux_stream_hello_encode(const struct rdmux_stream_hello *hello,
                               uint8_t out[RDMUX_STREAM_HELLO_SIZE]);
/* RDMUX_PROTOCOL: the bytes are none, or a field is out of range. RDMUX_VERSION: of another version.
 * The error text says which; *out is untouched then. */
enum rdmux_status rdmux_stream_hello_decode(const uint8_t *in, size_t size,
                                            struct rdmux_stream_hello *out);
void rdmux_stream_advert_encode(const struct rdmux_stream_advert *advert,
                                uint8_t out[RDMUX_STREAM_ADVERT_SIZE]);
enum rdmux_status rdmux_stream_advert_decode(const uint8_t *in, size_t size,
                                             struct rdmux_stream_advert *out);

static inline uint32_t rdmux_stream_imm(enum rdmux_stream_kind kind, uint64_t freed)
{
    return (uint32_t)kind << 28 | (uint32_t)freed;
}

static inline uint32_t rdmux_stream_imm_kind(uint32_t imm)
{
    return imm >> 28;
}

static inline uint64_t rdmux_stream_imm_freed(uint32_t imm)
{
    return imm & RDMUX_STREAM_FREED_MAX;
}

/* Returns whether a ring may have this size. */
static inline bool rdmux_stream_ring_is_good(uint64_t size)
{
    return size >= RDMUX_STREAM_RING_MIN && size <= RDMUX_STREAM_RING_MAX &&
           (size & (size - 1)) == 0;
}

#endif
