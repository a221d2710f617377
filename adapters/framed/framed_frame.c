/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Encodes and decodes messages and frames. No I/O. */
#include "adapters/framed/framed_frame.h"

#include "adapters/framed/framed.h"
#include "api/base/bytes.h"

#include <string.h>

/* Fields behind the first 16 bytes, and what a kind allows. */
enum {
    HAS_KEY = 1 << 0,
    HAS_OPERAND = 1 << 1,
    HAS_EXPECTED = 1 << 2,
    HAS_PAYLOAD = 1 << 3, /* at most length bytes */
    MAY_PLACE = 1 << 4,
    MAY_IMM = 1 << 5,
    LENGTH_0 = 1 << 6,
    LENGTH_8 = 1 << 7,
    MUST_PLACE = 1 << 8,
    KEY_FIELDS_SIZE = RDMUX_TARGET_KEY_SIZE + 8,
};

static const uint16_t kinds[FRAMED_KINDS] = {
    [FRAMED_SEND] = HAS_PAYLOAD | MAY_PLACE | MAY_IMM,
    [FRAMED_WRITE] = HAS_KEY | HAS_PAYLOAD | MAY_PLACE | MAY_IMM,
    [FRAMED_MORE] = HAS_PAYLOAD,
    [FRAMED_FLUSH] = MAY_PLACE | MUST_PLACE | LENGTH_0,
    [FRAMED_READ] = HAS_KEY,
    [FRAMED_FETCH_ADD] = HAS_KEY | HAS_OPERAND | LENGTH_8,
    [FRAMED_COMPARE_SWAP] = HAS_KEY | HAS_OPERAND | HAS_EXPECTED | LENGTH_8,
    [FRAMED_DATA] = HAS_PAYLOAD,
    [FRAMED_RESULT] = HAS_OPERAND | LENGTH_8,
    [FRAMED_ACK] = 0,
    [FRAMED_CREDIT] = LENGTH_0,
    [FRAMED_ASK] = LENGTH_0,
    [FRAMED_RECALL] = LENGTH_0,
    [FRAMED_RETURN] = 0,
    [FRAMED_REFUSAL] = HAS_OPERAND,
    [FRAMED_PING] = LENGTH_0,
    [FRAMED_PONG] = LENGTH_0,
    [FRAMED_HELLO] = LENGTH_0,
    [FRAMED_RING] = LENGTH_0,
    [FRAMED_RINGS] = LENGTH_0,
    [FRAMED_HUSH] = LENGTH_0,
};

size_t rdmux_framed_header_size(uint8_t kind, uint8_t flags)
{
    unsigned has = kinds[kind];
    size_t size = FRAMED_HEADER_MIN;
    size += (has & HAS_KEY) ? KEY_FIELDS_SIZE : 0;
    size += (has & HAS_OPERAND) ? 8 : 0;
    size += (has & HAS_EXPECTED) ? 8 : 0;
    size += (flags & FRAMED_IMM) ? 8 : 0;
    return size;
}

size_t rdmux_framed_frame_encode(const struct framed_frame *frame, uint8_t *out)
{
    unsigned has = kinds[frame->kind];
    uint8_t *at = out + FRAMED_HEADER_MIN;
    out[0] = frame->kind;
    out[1] = frame->flags;
    rdmux_store_be16(out + 2, frame->credits);
    rdmux_store_be32(out + 4, frame->size);
    rdmux_store_be64(out + 8, frame->length);
    if (has & HAS_KEY) {
        memcpy(at, frame->key, RDMUX_TARGET_KEY_SIZE);
        rdmux_store_be64(at + RDMUX_TARGET_KEY_SIZE, frame->offset);
        at += KEY_FIELDS_SIZE;
    }
    if (has & HAS_OPERAND) {
        rdmux_store_be64(at, frame->operand);
        at += 8;
    }
    if (has & HAS_EXPECTED) {
        rdmux_store_be64(at, frame->expected);
        at += 8;
    }
    if (frame->flags & FRAMED_IMM) {
        rdmux_store_be32(at, frame->imm);
        rdmux_store_be32(at + 4, 0);
        at += 8;
    }
    return (size_t)(at - out);
}

static bool is_allowed(unsigned has, const struct framed_frame *frame)
{
    const bool is_body = (frame->flags & FRAMED_BODY) != 0;
    return (frame->flags & ~(FRAMED_PLACED | FRAMED_IMM | FRAMED_BODY)) == 0 &&
           (!is_body || (frame->size > 0 && frame->size <= FRAMED_BODY_MAX)) &&
           ((frame->flags & FRAMED_PLACED) == 0 || (has & MAY_PLACE)) &&
           ((frame->flags & FRAMED_PLACED) != 0 || !(has & MUST_PLACE)) &&
           ((frame->flags & FRAMED_IMM) == 0 || (has & MAY_IMM)) &&
           (frame->length == 0 || !(has & LENGTH_0)) && (frame->length == 8 || !(has & LENGTH_8)) &&
           ((has & HAS_PAYLOAD) ? frame->size <= frame->length : frame->size == 0);
}

enum rdmux_status rdmux_framed_frame_decode(const uint8_t *in, size_t size,
                                            struct framed_frame *out, const uint8_t **payload,
                                            size_t *used)
{
    if (size < FRAMED_HEADER_MIN || in[0] >= FRAMED_KINDS) {
        return RDMUX_PROTOCOL;
    }
    struct framed_frame frame = {
        .kind = in[0],
        .flags = in[1],
        .credits = rdmux_load_be16(in + 2),
        .size = rdmux_load_be32(in + 4),
        .length = rdmux_load_be64(in + 8),
    };
    unsigned has = kinds[frame.kind];
    size_t header = rdmux_framed_header_size(frame.kind, frame.flags);
    const uint64_t inside = (frame.flags & FRAMED_BODY) != 0 ? 0 : framed_padded(frame.size);
    if (!is_allowed(has, &frame) || size < header || size - header < inside) {
        return RDMUX_PROTOCOL;
    }
    const uint8_t *at = in + FRAMED_HEADER_MIN;
    if (has & HAS_KEY) {
        frame.key = at;
        frame.offset = rdmux_load_be64(at + RDMUX_TARGET_KEY_SIZE);
        at += KEY_FIELDS_SIZE;
    }
    if (has & HAS_OPERAND) {
        frame.operand = rdmux_load_be64(at);
        at += 8;
    }
    if (has & HAS_EXPECTED) {
        frame.expected = rdmux_load_be64(at);
        at += 8;
    }
    if (frame.flags & FRAMED_IMM) {
        frame.imm = rdmux_load_be32(at);
    }
    *out = frame;
    *payload = in + header;
    *used = header + (size_t)inside;
    return RDMUX_OK;
}

void rdmux_framed_prefix_encode(const struct framed_prefix *prefix, uint8_t *out)
{
    rdmux_store_be64(out, prefix->tag);
    rdmux_store_be16(out + 8, prefix->returned);
    rdmux_store_be16(out + 10, prefix->flags);
    rdmux_store_be32(out + 12, prefix->sequence);
}

enum rdmux_status rdmux_framed_prefix_decode(const uint8_t *in, size_t size,
                                             struct framed_prefix *out)
{
    if (size < FRAMED_PREFIX_SIZE) {
        return RDMUX_PROTOCOL;
    }
    out->tag = rdmux_load_be64(in);
    out->returned = rdmux_load_be16(in + 8);
    out->flags = rdmux_load_be16(in + 10);
    out->sequence = rdmux_load_be32(in + 12);
    return (out->flags & ~FRAMED_UNCOUNTED_FLAG) == 0 ? RDMUX_OK : RDMUX_PROTOCOL;
}

/* ------------------------------------------------------------------------------ connection data */

enum { VERSION = 1, ON_DEMAND = 1 << 0, BODIES = 1 << 1 };

void rdmux_framed_description_encode(const struct framed_description *description, uint8_t *out)
{
    memset(out, 0, FRAMED_HEAD_SIZE);
    out[0] = VERSION;
    out[1] = (uint8_t)((description->on_demand ? ON_DEMAND : 0) |
                       (description->bodies ? BODIES : 0));
    rdmux_store_be16(out + 2, (uint16_t)description->window);
    rdmux_store_be32(out + 4, description->message_max);
}

enum rdmux_status rdmux_framed_description_decode(const uint8_t *in, size_t size,
                                                  struct framed_description *out)
{
    if (size < FRAMED_HEAD_SIZE) {
        return RDMUX_PROTOCOL;
    }
    if (in[0] != VERSION) {
        return RDMUX_VERSION;
    }
    out->on_demand = in[1] & ON_DEMAND;
    out->bodies = (in[1] & BODIES) != 0;
    out->window = rdmux_load_be16(in + 2);
    out->message_max = rdmux_load_be32(in + 4);
    bool is_sound = out->window >= 2 && out->window <= FRAMED_WINDOW_MAX &&
                    out->message_max >= FRAMED_MESSAGE_MIN &&
                    out->message_max <= FRAMED_MESSAGE_MAX;
    return is_sound ? RDMUX_OK : RDMUX_PROTOCOL;
}
