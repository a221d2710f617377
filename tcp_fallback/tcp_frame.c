/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Encodes and decodes frames of the tcp provider. No I/O. */
#include "tcp_fallback/tcp_frame.h"

#include "api/base/bytes.h"

#include <string.h>

/* Fields behind the prefix, and flags and lengths that a kind allows. */
enum {
    HAS_KEY = 1 << 0,
    HAS_OPERAND = 1 << 1,
    HAS_EXPECTED = 1 << 2,
    MAY_STRIPE = 1 << 3,
    MAY_PLACE = 1 << 4,
    MAY_IMM = 1 << 5,
    LENGTH_0 = 1 << 6,
    LENGTH_8 = 1 << 7,
    MUST_PLACE = 1 << 8,
    FILLER = 1 << 9, /* the header includes length filler bytes */
};

static const uint16_t kinds[16] = {
    [TCP_SEND] = MAY_STRIPE | MAY_PLACE | MAY_IMM,
    [TCP_WRITE] = HAS_KEY | MAY_STRIPE | MAY_PLACE | MAY_IMM,
    [TCP_MORE] = MAY_STRIPE,
    [TCP_FLUSH] = MAY_PLACE | MUST_PLACE | LENGTH_0,
    [TCP_READ] = HAS_KEY,
    [TCP_FETCH_ADD] = HAS_KEY | HAS_OPERAND | LENGTH_8,
    [TCP_COMPARE_SWAP] = HAS_KEY | HAS_OPERAND | HAS_EXPECTED | LENGTH_8,
    [TCP_DATA] = MAY_STRIPE,
    [TCP_RESULT] = HAS_OPERAND | LENGTH_8,
    [TCP_ACK] = 0,
    [TCP_CREDIT] = 0,
    [TCP_ASK] = LENGTH_0,
    [TCP_RECALL] = LENGTH_0,
    [TCP_RETURN] = 0,
    [TCP_NAK] = HAS_OPERAND,
    [TCP_PING] = FILLER,
};

size_t rdmux_tcp_header_size(uint8_t type)
{
    unsigned has = kinds[type & TCP_KIND_MASK];
    if (!(type & TCP_MARK) || ((type & TCP_STRIPED) && !(has & MAY_STRIPE)) ||
        ((type & TCP_PLACED) && !(has & MAY_PLACE)) || ((type & TCP_IMM) && !(has & MAY_IMM)) ||
        ((has & MUST_PLACE) && !(type & TCP_PLACED))) {
        return 0;
    }
    size_t size = TCP_PREFIX_SIZE;
    size += (has & HAS_KEY) ? TCP_KEY_SIZE + 8 : 0;
    size += (has & HAS_OPERAND) ? 8 : 0;
    size += (has & HAS_EXPECTED) ? 8 : 0;
    size += (type & TCP_IMM) ? 4 : 0;
    return size;
}

size_t rdmux_tcp_frame_encode(const struct tcp_frame *frame, uint8_t *out)
{
    unsigned has = kinds[frame->kind];
    uint64_t prefix = (uint64_t)(TCP_MARK | frame->kind | frame->flags) << 56 |
                      (uint64_t)frame->credits << 48 | (frame->length & TCP_LENGTH_MAX);
    uint8_t *at = out;
    rdmux_store_be64(at, prefix);
    at += TCP_PREFIX_SIZE;
    if (has & HAS_KEY) {
        memcpy(at, frame->key, TCP_KEY_SIZE);
        rdmux_store_be64(at + TCP_KEY_SIZE, frame->offset);
        at += TCP_KEY_SIZE + 8;
    }
    if (has & HAS_OPERAND) {
        rdmux_store_be64(at, frame->operand);
        at += 8;
    }
    if (has & HAS_EXPECTED) {
        rdmux_store_be64(at, frame->expected);
        at += 8;
    }
    if (frame->flags & TCP_IMM) {
        rdmux_store_be32(at, frame->imm);
        at += 4;
    }
    return (size_t)(at - out);
}

enum rdmux_status rdmux_tcp_frame_decode(const uint8_t *in, size_t size, struct tcp_frame *out,
                                         size_t *used)
{
    if (size == 0) {
        return RDMUX_AGAIN;
    }
    size_t header_size = rdmux_tcp_header_size(in[0]);
    if (header_size == 0) {
        return RDMUX_PROTOCOL;
    }
    if (size < header_size) {
        return RDMUX_AGAIN;
    }
    unsigned has = kinds[in[0] & TCP_KIND_MASK];
    uint64_t prefix = rdmux_load_be64(in);
    uint64_t length = prefix & TCP_LENGTH_MAX;
    if (((has & LENGTH_0) && length != 0) || ((has & LENGTH_8) && length != 8)) {
        return RDMUX_PROTOCOL;
    }
    if (has & FILLER) {
        if (length > TCP_PING_MAX) {
            return RDMUX_PROTOCOL;
        }
        header_size += (size_t)length;
        if (size < header_size) {
            return RDMUX_AGAIN;
        }
    }
    out->kind = in[0] & TCP_KIND_MASK;
    out->flags = in[0] & (TCP_STRIPED | TCP_PLACED | TCP_IMM);
    out->credits = in[1];
    out->length = length;
    const uint8_t *at = in + TCP_PREFIX_SIZE;
    if (has & HAS_KEY) {
        out->key = at;
        out->offset = rdmux_load_be64(at + TCP_KEY_SIZE);
        at += TCP_KEY_SIZE + 8;
    }
    if (has & HAS_OPERAND) {
        out->operand = rdmux_load_be64(at);
        at += 8;
    }
    if (has & HAS_EXPECTED) {
        out->expected = rdmux_load_be64(at);
        at += 8;
    }
    out->imm = (in[0] & TCP_IMM) ? rdmux_load_be32(at) : 0;
    *used = header_size;
    return RDMUX_OK;
}

enum rdmux_status rdmux_tcp_control_size(const uint8_t *in, size_t size, size_t *frame_size)
{
    if (size == 0) {
        return RDMUX_AGAIN;
    }
    if (in[0] >= TCP_MARK) {
        return RDMUX_PROTOCOL;
    }
    if (size < TCP_CONTROL_HEADER_SIZE) {
        return RDMUX_AGAIN;
    }
    uint32_t length = rdmux_load_be32(in + 4);
    if (length > TCP_CONTROL_PAYLOAD_MAX) {
        return RDMUX_PROTOCOL;
    }
    *frame_size = (size_t)TCP_CONTROL_HEADER_SIZE + length;
    return RDMUX_OK;
}

void rdmux_tcp_share(uint64_t length, uint32_t sockets, uint32_t index, uint64_t *begin,
                     uint64_t *end)
{
    uint64_t share = (length + sockets - 1) / sockets;
    share = (share + 4095) & ~UINT64_C(4095);
    uint64_t from = index * share;
    uint64_t to = from + share;
    *begin = from < length ? from : length;
    *end = to < length ? to : length;
}

void rdmux_tcp_description_encode(const struct tcp_description *description,
                                  uint8_t out[TCP_DESCRIPTION_SIZE])
{
    memset(out, 0, TCP_DESCRIPTION_SIZE);
    out[0] = TCP_VERSION;
    out[1] = (uint8_t)description->sockets;
    rdmux_store_be16(out + 2, (uint16_t)description->answers);
    out[4] = (uint8_t)((description->on_demand ? TCP_ON_DEMAND : 0) |
                       (description->encrypted ? TCP_ENCRYPTED : 0) |
                       (description->early ? TCP_EARLY : 0));
}

enum rdmux_status rdmux_tcp_description_decode(const uint8_t *in, size_t size,
                                               struct tcp_description *out)
{
    if (size < TCP_DESCRIPTION_SIZE) {
        return RDMUX_PROTOCOL;
    }
    if (in[0] != TCP_VERSION) {
        return RDMUX_VERSION;
    }
    uint32_t answers = rdmux_load_be16(in + 2);
    if (in[1] == 0 || answers == 0) {
        return RDMUX_PROTOCOL;
    }
    out->sockets = in[1];
    out->answers = answers;
    out->on_demand = in[4] & TCP_ON_DEMAND;
    out->encrypted = (in[4] & TCP_ENCRYPTED) != 0;
    out->early = (in[4] & TCP_EARLY) != 0;
    return RDMUX_OK;
}
