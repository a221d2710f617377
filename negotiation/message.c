/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Frames after the handshake, and REJECT. All fields are big-endian; a payload has exactly the size
 * of its type. */
#include "negotiation/message.h"

#include "api/base/bytes.h"
#include "api/system/system.h"
#include "negotiation/explain.h"
#include "negotiation/handshake.h"

#include <assert.h>
#include <string.h>

/* Payloads. Offset, size, field:
 *   HEARTBEAT, ENDED       nothing
 *   IMPORT                 0 4 id        4 64 token
 *   IMPORTED               0 4 id        4  4 status     8 4 access      12 4 zero, ignored
 *                         16 8 length   24  8 region    32 … the region's description, at most 512
 *   REVOKE, REVOKED        0 4 id        4  4 zero, ignored              8 8 region
 *   SILENT                 0 4 id, 0 or 1
 *   RELEASED               0 4 id        4  4 count, not 0               8 8 region
 *   FAULT, END             0 4 status    4  … text without NUL, at most 255
 *   REJECT                 0 4 reason    4  … private data, at most 196
 *   MOVE                   0 4 status    4  4 epoch      8 8 count       16 … text, as above
 *   RECEIVED               0 4 zero, ignored             4 4 epoch        8 8 count
 *   RESUME, RESUMED        0 4 1: steady 4  4 epoch      8 8 count       16 32 proof */
enum {
    AT_ID = 0,
    IMPORT_AT_TOKEN = 4,
    IMPORT_SIZE = 68,
    IMPORTED_AT_STATUS = 4,
    IMPORTED_AT_ACCESS = 8,
    IMPORTED_AT_LENGTH = 16,
    IMPORTED_AT_REGION = 24,
    IMPORTED_AT_DESCRIPTION = 32,
    REVOKE_AT_REGION = 8,
    REVOKE_SIZE = 16,
    SILENT_SIZE = 4,
    RELEASED_AT_COUNT = 4,
    AT_STATUS = 0,
    AT_TEXT = 4,
    AT_EPOCH = 4,
    AT_COUNT = 8,
    COUNT_SIZE = 16,
    MOVE_AT_TEXT = COUNT_SIZE,
    RESUME_AT_STEADY = 0,
    RESUME_AT_PROOF = 16,
    RESUME_SIZE = 48,
};

static_assert(RESUME_AT_PROOF + RDMUX_PROOF_CODE_SIZE == RESUME_SIZE, "the proof ends RESUME");

static_assert(IMPORT_AT_TOKEN + RDMUX_TOKEN_SIZE == IMPORT_SIZE, "the token ends IMPORT");
static_assert(RDMUX_FRAME_HEADER_SIZE + IMPORTED_AT_DESCRIPTION + RDMUX_DESCRIPTION_MAX <=
                  RDMUX_MESSAGE_MAX,
              "IMPORTED fits");
static_assert(RDMUX_FRAME_HEADER_SIZE + AT_TEXT + RDMUX_TEXT_MAX <= RDMUX_MESSAGE_MAX,
              "FAULT and END fit");
static_assert(RDMUX_FRAME_HEADER_SIZE + MOVE_AT_TEXT + RDMUX_TEXT_MAX <= RDMUX_MESSAGE_MAX,
              "MOVE fits");
static_assert((int)RDMUX_PRIVATE_DATA_MAX <= (int)RDMUX_DESCRIPTION_MAX,
              "private data fits where REJECT keeps it");

/* --------------------------------------------------------------------------------------- encode */

static size_t put_imported(const struct rdmux_message *message, uint8_t *out)
{
    assert(message->description_length <= RDMUX_DESCRIPTION_MAX);
    rdmux_store_be32(out + AT_ID, message->id);
    rdmux_store_be32(out + IMPORTED_AT_STATUS, message->status);
    rdmux_store_be32(out + IMPORTED_AT_ACCESS, message->access);
    rdmux_store_be64(out + IMPORTED_AT_LENGTH, message->length);
    rdmux_store_be64(out + IMPORTED_AT_REGION, message->region);
    memcpy(out + IMPORTED_AT_DESCRIPTION, message->description, message->description_length);
    return IMPORTED_AT_DESCRIPTION + (size_t)message->description_length;
}

static size_t put_status(const struct rdmux_message *message, const void *rest, size_t length,
                         uint8_t *out)
{
    rdmux_store_be32(out + AT_STATUS, message->status);
    memcpy(out + AT_TEXT, rest, length);
    return AT_TEXT + length;
}

static size_t put_count(const struct rdmux_message *message, uint8_t *out)
{
    rdmux_store_be32(out + AT_EPOCH, message->epoch);
    rdmux_store_be64(out + AT_COUNT, message->count);
    return COUNT_SIZE;
}

static size_t put_back(const struct rdmux_message *message, uint8_t *out)
{
    rdmux_store_be32(out + AT_STATUS, message->status);
    return put_count(message, out);
}

static size_t put_move(const struct rdmux_message *message, uint8_t *out)
{
    size_t length = strnlen(message->text, sizeof(message->text) - 1);
    rdmux_store_be32(out + AT_STATUS, message->status);
    memcpy(out + MOVE_AT_TEXT, message->text, length);
    return put_count(message, out) + length;
}

static size_t put_resume(const struct rdmux_message *message, uint8_t *out)
{
    (void)put_count(message, out);
    rdmux_store_be32(out + RESUME_AT_STEADY, message->is_steady ? 1 : 0);
    memcpy(out + RESUME_AT_PROOF, message->proof, sizeof(message->proof));
    return RESUME_SIZE;
}

static size_t put_payload(const struct rdmux_message *message, uint8_t *out)
{
    switch (message->type) {
    case RDMUX_FRAME_IMPORT:
        rdmux_store_be32(out + AT_ID, message->id);
        memcpy(out + IMPORT_AT_TOKEN, message->token.bytes, sizeof(message->token.bytes));
        return IMPORT_SIZE;
    case RDMUX_FRAME_IMPORTED:
        return put_imported(message, out);
    case RDMUX_FRAME_REVOKE:
    case RDMUX_FRAME_REVOKED:
        rdmux_store_be32(out + AT_ID, message->id);
        rdmux_store_be64(out + REVOKE_AT_REGION, message->region);
        return REVOKE_SIZE;
    case RDMUX_FRAME_RELEASED:
        rdmux_store_be32(out + AT_ID, message->id);
        rdmux_store_be32(out + RELEASED_AT_COUNT, (uint32_t)message->count);
        rdmux_store_be64(out + REVOKE_AT_REGION, message->region);
        return REVOKE_SIZE;
    case RDMUX_FRAME_SILENT:
        rdmux_store_be32(out + AT_ID, message->id);
        return SILENT_SIZE;
    case RDMUX_FRAME_FAULT:
    case RDMUX_FRAME_END:
        return put_status(message, message->text, strnlen(message->text, sizeof(message->text) - 1),
                          out);
    case RDMUX_FRAME_REJECT:
        assert(message->description_length <= RDMUX_PRIVATE_DATA_MAX);
        return put_status(message, message->description, message->description_length, out);
    case RDMUX_FRAME_MOVE:
        return put_move(message, out);
    case RDMUX_FRAME_RECEIVED:
        return put_count(message, out);
    case RDMUX_FRAME_BACK:
        return put_back(message, out);
    case RDMUX_FRAME_RESUME:
    case RDMUX_FRAME_RESUMED:
        return put_resume(message, out);
    case RDMUX_FRAME_HEARTBEAT:
    case RDMUX_FRAME_ENDED:
        return 0;
    default:
        assert(0 && "a frame of the handshake is no message");
        return 0;
    }
}

size_t rdmux_message_encode(const struct rdmux_message *message, uint8_t out[RDMUX_MESSAGE_MAX])
{
    memset(out, 0, RDMUX_MESSAGE_MAX);
    size_t length = put_payload(message, out + RDMUX_FRAME_HEADER_SIZE);
    bool is_optional = message->type == RDMUX_FRAME_SILENT || message->type == RDMUX_FRAME_BACK ||
                       message->type == RDMUX_FRAME_RELEASED;
    uint8_t flags = is_optional ? RDMUX_FRAME_OPTIONAL : 0;
    rdmux_frame_header_encode(message->type, flags, length, out);
    return RDMUX_FRAME_HEADER_SIZE + length;
}

/* --------------------------------------------------------------------------------------- decode */

/* An unknown status of a newer version counts as RDMUX_IO. */
static uint32_t known_status(uint32_t status)
{
    return status <= RDMUX_IO ? status : RDMUX_IO;
}

static bool status_is_outcome(uint32_t status)
{
    return status != RDMUX_AGAIN && status != RDMUX_IN_PROGRESS;
}

static bool take_imported(const uint8_t *in, size_t size, struct rdmux_message *out)
{
    if (size < IMPORTED_AT_DESCRIPTION ||
        size - IMPORTED_AT_DESCRIPTION > sizeof(out->description)) {
        return false;
    }
    out->id = rdmux_load_be32(in + AT_ID);
    out->status = known_status(rdmux_load_be32(in + IMPORTED_AT_STATUS));
    out->access = rdmux_load_be32(in + IMPORTED_AT_ACCESS);
    out->length = rdmux_load_be64(in + IMPORTED_AT_LENGTH);
    out->region = rdmux_load_be64(in + IMPORTED_AT_REGION);
    out->description_length = (uint32_t)(size - IMPORTED_AT_DESCRIPTION);
    memcpy(out->description, in + IMPORTED_AT_DESCRIPTION, out->description_length);
    return status_is_outcome(out->status);
}

static bool take_text(const uint8_t *in, size_t size, size_t at, struct rdmux_message *out)
{
    if (size < at || size - at >= sizeof(out->text) || memchr(in + at, '\0', size - at) != NULL) {
        return false;
    }
    memcpy(out->text, in + at, size - at);
    rdmux_text_clean(out->text);
    return true;
}

static bool take_count(const uint8_t *in, struct rdmux_message *out)
{
    out->epoch = rdmux_load_be32(in + AT_EPOCH);
    out->count = rdmux_load_be64(in + AT_COUNT);
    return out->epoch != 0;
}

static bool take_move(const uint8_t *in, size_t size, struct rdmux_message *out)
{
    if (!take_text(in, size, MOVE_AT_TEXT, out)) {
        return false;
    }
    out->status = known_status(rdmux_load_be32(in + AT_STATUS));
    return take_count(in, out) && status_is_outcome(out->status);
}

static bool take_back(const uint8_t *in, size_t size, struct rdmux_message *out)
{
    if (size != COUNT_SIZE) {
        return false;
    }
    out->status = known_status(rdmux_load_be32(in + AT_STATUS));
    return take_count(in, out) && (out->status == RDMUX_OK || out->status == RDMUX_AGAIN);
}

static bool take_resume(const uint8_t *in, size_t size, struct rdmux_message *out)
{
    if (size != RESUME_SIZE || !take_count(in, out)) {
        return false;
    }
    out->is_steady = rdmux_load_be32(in + RESUME_AT_STEADY) == 1;
    memcpy(out->proof, in + RESUME_AT_PROOF, sizeof(out->proof));
    return true;
}

static bool take_status_and_text(const uint8_t *in, size_t size, struct rdmux_message *out)
{
    if (!take_text(in, size, AT_TEXT, out)) {
        return false;
    }
    out->status = known_status(rdmux_load_be32(in + AT_STATUS));
    return status_is_outcome(out->status) &&
           (out->type == RDMUX_FRAME_END || out->status != RDMUX_OK);
}

static bool take_reject(const uint8_t *in, size_t size, struct rdmux_message *out)
{
    if (size < AT_TEXT || size - AT_TEXT > RDMUX_PRIVATE_DATA_MAX) {
        return false;
    }
    out->status = rdmux_load_be32(in + AT_STATUS);
    out->description_length = (uint32_t)(size - AT_TEXT);
    memcpy(out->description, in + AT_TEXT, out->description_length);
    return true;
}

static bool take_payload(const uint8_t *in, size_t size, struct rdmux_message *out)
{
    switch (out->type) {
    case RDMUX_FRAME_IMPORT:
        if (size != IMPORT_SIZE) {
            return false;
        }
        out->id = rdmux_load_be32(in + AT_ID);
        memcpy(out->token.bytes, in + IMPORT_AT_TOKEN, sizeof(out->token.bytes));
        return true;
    case RDMUX_FRAME_IMPORTED:
        return take_imported(in, size, out);
    case RDMUX_FRAME_REVOKE:
    case RDMUX_FRAME_REVOKED:
        if (size != REVOKE_SIZE) {
            return false;
        }
        out->id = rdmux_load_be32(in + AT_ID);
        out->region = rdmux_load_be64(in + REVOKE_AT_REGION);
        return true;
    case RDMUX_FRAME_RELEASED:
        if (size != REVOKE_SIZE) {
            return false;
        }
        out->id = rdmux_load_be32(in + AT_ID);
        out->count = rdmux_load_be32(in + RELEASED_AT_COUNT);
        out->region = rdmux_load_be64(in + REVOKE_AT_REGION);
        return out->count != 0;
    case RDMUX_FRAME_SILENT:
        if (size != SILENT_SIZE) {
            return false;
        }
        out->id = rdmux_load_be32(in + AT_ID);
        return out->id == RDMUX_SILENT_ASKS || out->id == RDMUX_SILENT_ANSWERS;
    case RDMUX_FRAME_FAULT:
    case RDMUX_FRAME_END:
        return take_status_and_text(in, size, out);
    case RDMUX_FRAME_REJECT:
        return take_reject(in, size, out);
    case RDMUX_FRAME_MOVE:
        return take_move(in, size, out);
    case RDMUX_FRAME_RECEIVED:
        return size == COUNT_SIZE && take_count(in, out);
    case RDMUX_FRAME_BACK:
        return take_back(in, size, out);
    case RDMUX_FRAME_RESUME:
    case RDMUX_FRAME_RESUMED:
        return take_resume(in, size, out);
    case RDMUX_FRAME_HEARTBEAT:
    case RDMUX_FRAME_ENDED:
        return size == 0;
    default:
        return false;
    }
}

/* Returns whether this version knows the type. Types of the handshake count, too. */
static bool type_is_known(uint8_t type)
{
    return (type >= RDMUX_FRAME_OFFER && type <= RDMUX_FRAME_AUTH) ||
           (type >= RDMUX_FRAME_HEARTBEAT && type <= RDMUX_FRAME_RELEASED);
}

enum rdmux_status rdmux_message_decode(const uint8_t *frame, size_t size, struct rdmux_message *out)
{
    bool bad;
    if (size < RDMUX_FRAME_HEADER_SIZE || rdmux_frame_total(frame, size, false, &bad) != size) {
        return RDMUX_PROTOCOL;
    }
    if (!type_is_known(frame[0]) && rdmux_frame_is_optional(frame)) {
        return RDMUX_AGAIN;
    }
    struct rdmux_message message = { .type = (enum rdmux_frame_type)frame[0] };
    if (!take_payload(frame + RDMUX_FRAME_HEADER_SIZE, size - RDMUX_FRAME_HEADER_SIZE, &message)) {
        return RDMUX_PROTOCOL;
    }
    *out = message;
    rdmux_wipe(&message.token, sizeof(message.token));
    return RDMUX_OK;
}
