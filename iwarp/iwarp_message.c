/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "iwarp/iwarp_message.h"

#include "api/base/bytes.h"

#include <string.h>

enum {
    HEADER_AT_KIND = 0,
    HEADER_AT_FLAGS = 1,
    HEADER_AT_IMM = 4,
    HEADER_AT_LENGTH = 8,
    HEADER_AT_GRANTED = 12,

    SIDE_AT_KIND = 0,
    SIDE_AT_STATUS = 1,
    SIDE_AT_REVOKED = 2,
    SIDE_AT_SEEN = 4,
    SIDE_AT_GRANTED = 8,
    SIDE_AT_RETURNED = 12,
    SIDE_AT_ASKED = 16,
    SIDE_AT_RECALLED = 20,
    SIDE_AT_ANSWERED = 24,
    SIDE_AT_KNOWN = 28,
};
_Static_assert(HEADER_AT_GRANTED + 4 == IWARP_HEADER_SIZE, "the credits end it");
_Static_assert(SIDE_AT_KNOWN + 4 <= IWARP_SIDE_SIZE, "it fits");

void rdmux_iwarp_header_encode(const struct iwarp_header *header, uint8_t out[IWARP_HEADER_SIZE])
{
    memset(out, 0, HEADER_AT_IMM);
    out[HEADER_AT_KIND] = header->kind;
    out[HEADER_AT_FLAGS] = header->has_imm ? IWARP_HAS_IMM : 0;
    rdmux_store_be32(out + HEADER_AT_IMM, header->imm);
    rdmux_store_be32(out + HEADER_AT_LENGTH, header->length);
    rdmux_store_be32(out + HEADER_AT_GRANTED, header->granted);
}

static bool header_is_sensible(const struct iwarp_header *header, uint64_t size, uint64_t longest)
{
    if (header->kind == IWARP_MESSAGE) {
        return size - IWARP_HEADER_SIZE == header->length;
    }
    return header->kind == IWARP_NOTICE && size == IWARP_HEADER_SIZE && header->has_imm &&
           header->length <= longest;
}

enum rdmux_status rdmux_iwarp_header_decode(const uint8_t *in, uint64_t size, uint64_t longest,
                                            struct iwarp_header *out)
{
    if (size < IWARP_HEADER_SIZE) {
        return RDMUX_PROTOCOL;
    }
    const struct iwarp_header header = {
        .kind = in[HEADER_AT_KIND],
        .has_imm = (in[HEADER_AT_FLAGS] & IWARP_HAS_IMM) != 0,
        .imm = rdmux_load_be32(in + HEADER_AT_IMM),
        .length = rdmux_load_be32(in + HEADER_AT_LENGTH),
        .granted = rdmux_load_be32(in + HEADER_AT_GRANTED),
    };
    if (!header_is_sensible(&header, size, longest)) {
        return RDMUX_PROTOCOL;
    }
    *out = header;
    return RDMUX_OK;
}

void rdmux_iwarp_side_encode(const struct iwarp_side *message, uint8_t out[IWARP_SIDE_SIZE])
{
    memset(out, 0, IWARP_SIDE_SIZE);
    out[SIDE_AT_KIND] = message->kind;
    out[SIDE_AT_STATUS] = message->status;
    out[SIDE_AT_REVOKED] = message->is_key_revoked ? 1 : 0;
    rdmux_store_be32(out + SIDE_AT_SEEN, message->seen);
    rdmux_store_be32(out + SIDE_AT_GRANTED, message->granted);
    rdmux_store_be32(out + SIDE_AT_RETURNED, message->returned);
    rdmux_store_be32(out + SIDE_AT_ASKED, message->asked);
    rdmux_store_be32(out + SIDE_AT_RECALLED, message->recalled);
    rdmux_store_be32(out + SIDE_AT_ANSWERED, message->answered);
    rdmux_store_be32(out + SIDE_AT_KNOWN, message->known);
}

enum rdmux_status rdmux_iwarp_side_decode(const uint8_t *in, size_t size, struct iwarp_side *out)
{
    if (size != IWARP_SIDE_SIZE || in[SIDE_AT_KIND] < IWARP_SIDE_HELLO ||
        in[SIDE_AT_KIND] > IWARP_SIDE_ENDED || in[SIDE_AT_STATUS] > RDMUX_IO ||
        in[SIDE_AT_REVOKED] > 1) {
        return RDMUX_PROTOCOL;
    }
    *out = (struct iwarp_side){
        .kind = in[SIDE_AT_KIND],
        .status = in[SIDE_AT_STATUS],
        .is_key_revoked = in[SIDE_AT_REVOKED] == 1,
        .seen = rdmux_load_be32(in + SIDE_AT_SEEN),
        .granted = rdmux_load_be32(in + SIDE_AT_GRANTED),
        .returned = rdmux_load_be32(in + SIDE_AT_RETURNED),
        .asked = rdmux_load_be32(in + SIDE_AT_ASKED),
        .recalled = rdmux_load_be32(in + SIDE_AT_RECALLED),
        .answered = rdmux_load_be32(in + SIDE_AT_ANSWERED),
        .known = rdmux_load_be32(in + SIDE_AT_KNOWN),
    };
    return RDMUX_OK;
}
