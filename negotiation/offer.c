/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The OFFER's payload: a sequence of TLVs {type u16, length u16, value}, big-endian. Each path is
 * one TLV, whose value is a sequence of TLVs again. Numbers that are zero and empty texts are left
 * out. docs/WIRE.md lists the types. */
#include "negotiation/offer.h"

#include "api/base/bytes.h"
#include "negotiation/explain.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

enum { TLV_HEADER_SIZE = 4, TLV_VALUE_MAX = 0xffff };

enum value_kind {
    VALUE_U32,
    VALUE_U64,
    VALUE_TEXT,  /* size bytes in memory with the NUL, which is not sent */
    VALUE_FIXED, /* exactly size bytes; all zero: left out */
    VALUE_BYTES, /* at most size bytes; their number is in the uint32_t at length_at */
};

/* Where a TLV's value is stored. type < 64. */
struct field {
    uint16_t type;
    enum value_kind kind;
    size_t at;
    size_t size;
    size_t length_at;
};

#define MEMBER(object, member) \
    .at = offsetof(struct object, member), .size = sizeof(((struct object *)0)->member)

enum { OFFER_PATH = 16 };

static const struct field offer_fields[] = {
    { .type = 1, .kind = VALUE_U32, MEMBER(rdmux_offer, prefer) },
    { .type = 2, .kind = VALUE_U64, MEMBER(rdmux_offer, typical_size) },
    { .type = 3, .kind = VALUE_U64, MEMBER(rdmux_offer, max_send) },
    { .type = 4, .kind = VALUE_U64, MEMBER(rdmux_offer, max_recv) },
    { .type = 5, .kind = VALUE_U64, MEMBER(rdmux_offer, require) },
    { .type = 6, .kind = VALUE_U64, MEMBER(rdmux_offer, require_native) },
    { .type = 7, .kind = VALUE_U32, MEMBER(rdmux_offer, liveness_ms) },
    { .type = 8, .kind = VALUE_U32, MEMBER(rdmux_offer, data_sockets) },
    { .type = 9, .kind = VALUE_U32, MEMBER(rdmux_offer, path_timeout_ms) },
    { .type = 10, .kind = VALUE_U32, MEMBER(rdmux_offer, setup_timeout_ms) },
    { .type = 11, .kind = VALUE_U32, MEMBER(rdmux_offer, require_encryption) },
    { .type = 12,
      .kind = VALUE_BYTES,
      MEMBER(rdmux_offer, private_data),
      .length_at = offsetof(struct rdmux_offer, private_length) },
    { .type = 13, .kind = VALUE_TEXT, MEMBER(rdmux_offer, filter[0]) },
    { .type = 14, .kind = VALUE_TEXT, MEMBER(rdmux_offer, filter[1]) },
    { .type = 15, .kind = VALUE_FIXED, MEMBER(rdmux_offer, secret) },
    { .type = 17, .kind = VALUE_U32, MEMBER(rdmux_offer, send_wish) },
};

static const struct field path_fields[] = {
    { .type = 1, .kind = VALUE_TEXT, MEMBER(rdmux_offer_path, provider) },
    { .type = 2, .kind = VALUE_U32, MEMBER(rdmux_offer_path, provider_flags) },
    { .type = 3, .kind = VALUE_TEXT, MEMBER(rdmux_offer_path, path.device) },
    { .type = 4, .kind = VALUE_TEXT, MEMBER(rdmux_offer_path, path.address) },
    { .type = 5, .kind = VALUE_U32, MEMBER(rdmux_offer_path, path.reason) },
    { .type = 6, .kind = VALUE_U32, MEMBER(rdmux_offer_path, path.software) },
    { .type = 7, .kind = VALUE_TEXT, MEMBER(rdmux_offer_path, path.text) },
    { .type = 8, .kind = VALUE_TEXT, MEMBER(rdmux_offer_path, path.hint) },
    { .type = 9, .kind = VALUE_U64, MEMBER(rdmux_offer_path, path.bandwidth) },
    { .type = 10, .kind = VALUE_U32, MEMBER(rdmux_offer_path, path.latency_ns) },
    { .type = 11, .kind = VALUE_U32, MEMBER(rdmux_offer_path, path.mtu) },
    { .type = 12, .kind = VALUE_U64, MEMBER(rdmux_offer_path, path.native) },
    { .type = 13, .kind = VALUE_U64, MEMBER(rdmux_offer_path, path.emulated) },
    { .type = 14, .kind = VALUE_U64, MEMBER(rdmux_offer_path, path.max_message) },
    { .type = 15, .kind = VALUE_U32, MEMBER(rdmux_offer_path, path.max_sge) },
    { .type = 16, .kind = VALUE_U32, MEMBER(rdmux_offer_path, path.max_inline) },
    { .type = 17, .kind = VALUE_U32, MEMBER(rdmux_offer_path, path.security) },
    { .type = 18,
      .kind = VALUE_BYTES,
      MEMBER(rdmux_offer_path, path.reach),
      .length_at = offsetof(struct rdmux_offer_path, path.reach_length) },
    { .type = 19, .kind = VALUE_U32, MEMBER(rdmux_offer_path, trusted) },
};

enum {
    OFFER_FIELD_COUNT = sizeof(offer_fields) / sizeof(offer_fields[0]),
    PATH_FIELD_COUNT = sizeof(path_fields) / sizeof(path_fields[0]),
};

/* --------------------------------------------------------------------------------------- encode */

struct writer {
    uint8_t *out;
    size_t room;
    size_t used;
    bool is_full;
};

/* Writes a TLV's header. Returns where its value of length bytes goes; NULL: no room. */
static uint8_t *put_tlv(struct writer *writer, uint16_t type, size_t length)
{
    assert(length <= TLV_VALUE_MAX);
    if (writer->is_full || writer->room - writer->used < TLV_HEADER_SIZE + length) {
        writer->is_full = true;
        return NULL;
    }
    uint8_t *header = writer->out + writer->used;
    rdmux_store_be16(header, type);
    rdmux_store_be16(header + 2, (uint16_t)length);
    writer->used += TLV_HEADER_SIZE + length;
    return header + TLV_HEADER_SIZE;
}

static void put_bytes(struct writer *writer, uint16_t type, const void *bytes, size_t length)
{
    if (length == 0) {
        return;
    }
    uint8_t *value = put_tlv(writer, type, length);
    if (value != NULL) {
        memcpy(value, bytes, length);
    }
}

static bool bytes_are_zero(const uint8_t *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        if (bytes[i] != 0) {
            return false;
        }
    }
    return true;
}

static void put_field(struct writer *writer, const struct field *field, const uint8_t *object)
{
    uint32_t u32 = 0;
    uint64_t u64 = 0;
    uint8_t number[8];
    const uint8_t *member = object + field->at;
    switch (field->kind) {
    case VALUE_U32:
        memcpy(&u32, member, sizeof(u32));
        rdmux_store_be32(number, u32);
        put_bytes(writer, field->type, number, u32 != 0 ? 4 : 0);
        break;
    case VALUE_U64:
        memcpy(&u64, member, sizeof(u64));
        rdmux_store_be64(number, u64);
        put_bytes(writer, field->type, number, u64 != 0 ? 8 : 0);
        break;
    case VALUE_TEXT:
        put_bytes(writer, field->type, member, strnlen((const char *)member, field->size - 1));
        break;
    case VALUE_FIXED:
        put_bytes(writer, field->type, member,
                  bytes_are_zero(member, field->size) ? 0 : field->size);
        break;
    case VALUE_BYTES:
        memcpy(&u32, object + field->length_at, sizeof(u32));
        assert(u32 <= field->size);
        put_bytes(writer, field->type, member, u32);
        break;
    }
}

static void put_path(struct writer *writer, const struct rdmux_offer_path *path)
{
    size_t header_at = writer->used;
    if (put_tlv(writer, OFFER_PATH, 0) == NULL) {
        return;
    }
    for (size_t i = 0; i < PATH_FIELD_COUNT; i++) {
        put_field(writer, &path_fields[i], (const uint8_t *)path);
    }
    size_t length = writer->used - header_at - TLV_HEADER_SIZE;
    rdmux_store_be16(writer->out + header_at + 2, (uint16_t)length);
}

enum rdmux_status rdmux_offer_encode(const struct rdmux_offer *offer, uint8_t *out, size_t *size)
{
    assert(offer->path_count <= RDMUX_OFFER_PATHS_MAX);
    struct writer writer = {
        .room = *size < RDMUX_OFFER_BYTES_MAX ? *size : RDMUX_OFFER_BYTES_MAX,
    };
    writer.out = out;
    for (size_t i = 0; i < OFFER_FIELD_COUNT; i++) {
        put_field(&writer, &offer_fields[i], (const uint8_t *)offer);
    }
    for (size_t i = 0; i < offer->path_count; i++) {
        put_path(&writer, &offer->paths[i]);
    }
    if (writer.is_full) {
        return RDMUX_LENGTH;
    }
    *size = writer.used;
    return RDMUX_OK;
}

/* --------------------------------------------------------------------------------------- decode */

struct tlv {
    uint16_t type;
    uint16_t length;
    const uint8_t *value;
};

struct offer_reader {
    const uint8_t *in;
    size_t left;
};

/* False: the rest is not a TLV. Not to be called at the end. */
static bool next_tlv(struct offer_reader *reader, struct tlv *out)
{
    if (reader->left < TLV_HEADER_SIZE) {
        return false;
    }
    struct tlv tlv = {
        .type = rdmux_load_be16(reader->in),
        .length = rdmux_load_be16(reader->in + 2),
        .value = reader->in + TLV_HEADER_SIZE,
    };
    if (tlv.length > reader->left - TLV_HEADER_SIZE) {
        return false;
    }
    reader->in = tlv.value + tlv.length;
    reader->left -= (size_t)TLV_HEADER_SIZE + tlv.length;
    *out = tlv;
    return true;
}

static bool take_value(const struct field *field, const struct tlv *tlv, uint8_t *object)
{
    uint8_t *member = object + field->at;
    uint32_t u32 = tlv->length;
    uint64_t u64 = 0;
    switch (field->kind) {
    case VALUE_U32:
        if (tlv->length != 4) {
            return false;
        }
        u32 = rdmux_load_be32(tlv->value);
        memcpy(member, &u32, sizeof(u32));
        return true;
    case VALUE_U64:
        if (tlv->length != 8) {
            return false;
        }
        u64 = rdmux_load_be64(tlv->value);
        memcpy(member, &u64, sizeof(u64));
        return true;
    case VALUE_TEXT:
        if (tlv->length >= field->size || memchr(tlv->value, '\0', tlv->length) != NULL) {
            return false;
        }
        memcpy(member, tlv->value, tlv->length);
        rdmux_text_clean((char *)member);
        return true;
    case VALUE_FIXED:
        if (tlv->length != field->size) {
            return false;
        }
        memcpy(member, tlv->value, tlv->length);
        return true;
    case VALUE_BYTES:
        if (tlv->length > field->size) {
            return false;
        }
        memcpy(member, tlv->value, tlv->length);
        memcpy(object + field->length_at, &u32, sizeof(u32));
        return true;
    }
    return false;
}

/* Takes a TLV that may come once; seen has a bit for each type met. Skips a type not in the
 * table. */
static bool take_field(const struct field *fields, size_t count, const struct tlv *tlv,
                       uint64_t *seen, uint8_t *object)
{
    for (size_t i = 0; i < count; i++) {
        if (fields[i].type == tlv->type) {
            uint64_t bit = UINT64_C(1) << tlv->type;
            bool again = (*seen & bit) != 0;
            *seen |= bit;
            return !again && take_value(&fields[i], tlv, object);
        }
    }
    return true;
}

static bool take_path(const struct tlv *tlv, struct rdmux_offer *offer)
{
    if (offer->path_count == RDMUX_OFFER_PATHS_MAX) {
        return false;
    }
    struct rdmux_offer_path *path = &offer->paths[offer->path_count++];
    memset(path, 0, sizeof(*path));
    struct offer_reader reader = { .in = tlv->value, .left = tlv->length };
    uint64_t seen = 0;
    while (reader.left > 0) {
        struct tlv inner;
        if (!next_tlv(&reader, &inner) ||
            !take_field(path_fields, PATH_FIELD_COUNT, &inner, &seen, (uint8_t *)path)) {
            return false;
        }
    }
    path->path.software = path->path.software != 0;
    return path->provider[0] != '\0';
}

enum rdmux_status rdmux_offer_decode(const uint8_t *in, size_t size, struct rdmux_offer *out)
{
    memset(out, 0, offsetof(struct rdmux_offer, paths));
    if (size > RDMUX_OFFER_BYTES_MAX) {
        return RDMUX_PROTOCOL;
    }
    struct offer_reader reader = { .in = in, .left = size };
    uint64_t seen = 0;
    while (reader.left > 0) {
        struct tlv tlv;
        if (!next_tlv(&reader, &tlv)) {
            return RDMUX_PROTOCOL;
        }
        bool taken = tlv.type == OFFER_PATH
                         ? take_path(&tlv, out)
                         : take_field(offer_fields, OFFER_FIELD_COUNT, &tlv, &seen, (uint8_t *)out);
        if (!taken) {
            return RDMUX_PROTOCOL;
        }
    }
    return RDMUX_OK;
}
