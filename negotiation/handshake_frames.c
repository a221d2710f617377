/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Encoding and decoding of RANKING and of an attempt's frames. docs/WIRE.md has the same tables. */
#include "negotiation/handshake_frames.h"

#include "api/base/bytes.h"
#include "negotiation/explain.h"
#include "negotiation/filter.h"

#include <assert.h>
#include <string.h>

/* RANKING. Offset, size, field:
 *    0   2  count of entries          2   2  zero, ignored
 *    4      entries
 * Entry:
 *    0   2  rank                     12   2  length of hint
 *    2   2  reason                   14   2  flags, unknown ones ignored
 *    4   2  stage                    16   8  cost in ns
 *    6   2  acceptor's path          24   8  native
 *    8   2  connector's path         32   8  emulated
 *   10   2  length of text           40      text, hint */
enum {
    RANKING_AT_COUNT = 0,
    ENTRY_AT_RANK = 0,
    ENTRY_AT_REASON = 2,
    ENTRY_AT_STAGE = 4,
    ENTRY_AT_ACCEPTOR = 6,
    ENTRY_AT_CONNECTOR = 8,
    ENTRY_AT_TEXT_LENGTH = 10,
    ENTRY_AT_HINT_LENGTH = 12,
    ENTRY_AT_FLAGS = 14,
    ENTRY_AT_COST = 16,
    ENTRY_AT_NATIVE = 24,
    ENTRY_AT_EMULATED = 32,

    ENTRY_COST_IS_MEASURED = 1 << 0,
};

/* An attempt's frame begins with the attempt's number; NO_PATH is empty. Then, at offset 4:
 * TRY          2 acceptor's path, 2 connector's path, 2 length, 2 zero, connection data
 * READY, UP    2 length, 2 zero, connection data or description
 * WRITTEN      16 nonce
 * COMMIT, CONFIRM   1 kind of hash, 3 zero, 32 hash
 * FAILED       2 stage, 2 reason, 2 status, 2 length, text */
enum {
    ATTEMPT_AT_NUMBER = 0,
    ATTEMPT_SIZE = 4,
    TRY_AT_ACCEPTOR = 4,
    TRY_AT_CONNECTOR = 6,
    TRY_AT_LENGTH = 8,
    TRY_SIZE = 12,
    BYTES_AT_LENGTH = 4,
    BYTES_SIZE = 8,
    WRITTEN_AT_NONCE = 4,
    WRITTEN_SIZE = 20,
    COMMIT_AT_KIND = 4,
    COMMIT_AT_HASH = 8,
    COMMIT_SIZE = 40,
    FAILED_AT_STAGE = 4,
    FAILED_AT_REASON = 6,
    FAILED_AT_STATUS = 8,
    FAILED_AT_LENGTH = 10,
    FAILED_SIZE = 12,
};

static_assert(ENTRY_AT_EMULATED + 8 == RDMUX_RANKING_ENTRY_SIZE, "emulated ends an entry");
static_assert(WRITTEN_AT_NONCE + 16 == WRITTEN_SIZE, "the nonce ends WRITTEN");
static_assert(COMMIT_AT_HASH + RDMUX_TRANSCRIPT_SIZE == COMMIT_SIZE, "the hash ends COMMIT");
static_assert(RDMUX_FRAME_HEADER_SIZE + TRY_SIZE + RDMUX_DESCRIPTION_MAX == RDMUX_ATTEMPT_FRAME_MAX,
              "TRY is the longest");
static_assert(FAILED_SIZE + RDMUX_TEXT_MAX <= TRY_SIZE + RDMUX_DESCRIPTION_MAX, "FAILED fits");
static_assert(RDMUX_RANKING_FRAME_MAX - RDMUX_FRAME_HEADER_SIZE <= RDMUX_FRAME_PAYLOAD_MAX,
              "RANKING is one frame");

/* Stores a text of this side, without its NUL. */
static size_t store_text(uint8_t *out, const char *text)
{
    size_t length = strnlen(text, RDMUX_TEXT_MAX - 1);
    memcpy(out, text, length);
    return length;
}

/* length < RDMUX_TEXT_MAX. */
static void load_text(char out[RDMUX_TEXT_MAX], const uint8_t *in, size_t length)
{
    memset(out, 0, RDMUX_TEXT_MAX);
    memcpy(out, in, length);
    rdmux_text_clean(out);
}

static size_t encode_failed(const struct rdmux_attempt_frame *frame, uint8_t *payload)
{
    rdmux_store_be16(payload + FAILED_AT_STAGE, frame->stage);
    rdmux_store_be16(payload + FAILED_AT_REASON, frame->reason);
    rdmux_store_be16(payload + FAILED_AT_STATUS, frame->status);
    size_t length = store_text(payload + FAILED_SIZE, frame->text);
    rdmux_store_be16(payload + FAILED_AT_LENGTH, (uint16_t)length);
    return FAILED_SIZE + length;
}

static size_t encode_bytes(const struct rdmux_attempt_frame *frame, uint8_t *payload,
                           size_t at_length, size_t at_bytes)
{
    rdmux_store_be16(payload + at_length, frame->size);
    memcpy(payload + at_bytes, frame->bytes, frame->size);
    return at_bytes + frame->size;
}

static size_t encode_payload(const struct rdmux_attempt_frame *frame, uint8_t *payload)
{
    rdmux_store_be32(payload + ATTEMPT_AT_NUMBER, frame->attempt);
    switch ((unsigned)frame->type) {
    case RDMUX_FRAME_TRY:
        rdmux_store_be16(payload + TRY_AT_ACCEPTOR, frame->acceptor_path);
        rdmux_store_be16(payload + TRY_AT_CONNECTOR, frame->connector_path);
        return encode_bytes(frame, payload, TRY_AT_LENGTH, TRY_SIZE);
    case RDMUX_FRAME_READY:
    case RDMUX_FRAME_UP:
        return encode_bytes(frame, payload, BYTES_AT_LENGTH, BYTES_SIZE);
    case RDMUX_FRAME_WRITTEN:
        memcpy(payload + WRITTEN_AT_NONCE, frame->nonce, sizeof(frame->nonce));
        return WRITTEN_SIZE;
    case RDMUX_FRAME_PROVED:
        return ATTEMPT_SIZE;
    case RDMUX_FRAME_COMMIT:
    case RDMUX_FRAME_CONFIRM:
        payload[COMMIT_AT_KIND] = frame->hash_kind;
        memcpy(payload + COMMIT_AT_HASH, frame->hash, sizeof(frame->hash));
        return COMMIT_SIZE;
    case RDMUX_FRAME_FAILED:
        return encode_failed(frame, payload);
    default:
        assert(frame->type == RDMUX_FRAME_NO_PATH);
        return 0;
    }
}

size_t rdmux_attempt_frame_encode(const struct rdmux_attempt_frame *frame,
                                  uint8_t out[RDMUX_ATTEMPT_FRAME_MAX])
{
    assert(frame->size <= RDMUX_DESCRIPTION_MAX);
    memset(out, 0, RDMUX_ATTEMPT_FRAME_MAX);
    size_t length = encode_payload(frame, out + RDMUX_FRAME_HEADER_SIZE);
    rdmux_frame_header_encode(frame->type, 0, length, out);
    return RDMUX_FRAME_HEADER_SIZE + length;
}

/* Returns whether the frame has the size that its header tells. */
static bool frame_is_whole(const uint8_t *frame, size_t size)
{
    bool bad = false;
    return size >= RDMUX_FRAME_HEADER_SIZE && rdmux_frame_total(frame, size, false, &bad) == size &&
           !bad;
}

static enum rdmux_status decode_bytes(const uint8_t *payload, size_t size, size_t at_length,
                                      size_t at_bytes, struct rdmux_attempt_frame *out)
{
    if (size < at_bytes) {
        return RDMUX_PROTOCOL;
    }
    uint16_t length = rdmux_load_be16(payload + at_length);
    if (length > RDMUX_DESCRIPTION_MAX || length != size - at_bytes) {
        return RDMUX_PROTOCOL;
    }
    out->size = length;
    memcpy(out->bytes, payload + at_bytes, length);
    return RDMUX_OK;
}

static enum rdmux_status decode_failed(const uint8_t *payload, size_t size,
                                       struct rdmux_attempt_frame *out)
{
    if (size < FAILED_SIZE) {
        return RDMUX_PROTOCOL;
    }
    size_t length = rdmux_load_be16(payload + FAILED_AT_LENGTH);
    out->stage = rdmux_load_be16(payload + FAILED_AT_STAGE);
    out->reason = rdmux_load_be16(payload + FAILED_AT_REASON);
    out->status = rdmux_load_be16(payload + FAILED_AT_STATUS);
    if (length >= RDMUX_TEXT_MAX || length != size - FAILED_SIZE ||
        out->stage > RDMUX_STAGE_COMMIT) {
        return RDMUX_PROTOCOL;
    }
    load_text(out->text, payload + FAILED_SIZE, length);
    return RDMUX_OK;
}

static enum rdmux_status decode_payload(const uint8_t *payload, size_t size,
                                        struct rdmux_attempt_frame *out)
{
    if (out->type == RDMUX_FRAME_NO_PATH) {
        return size == 0 ? RDMUX_OK : RDMUX_PROTOCOL;
    }
    if (size < ATTEMPT_SIZE) {
        return RDMUX_PROTOCOL;
    }
    out->attempt = rdmux_load_be32(payload + ATTEMPT_AT_NUMBER);
    switch ((unsigned)out->type) {
    case RDMUX_FRAME_TRY:
        if (size < TRY_SIZE) {
            return RDMUX_PROTOCOL;
        }
        out->acceptor_path = rdmux_load_be16(payload + TRY_AT_ACCEPTOR);
        out->connector_path = rdmux_load_be16(payload + TRY_AT_CONNECTOR);
        return decode_bytes(payload, size, TRY_AT_LENGTH, TRY_SIZE, out);
    case RDMUX_FRAME_READY:
    case RDMUX_FRAME_UP:
        return decode_bytes(payload, size, BYTES_AT_LENGTH, BYTES_SIZE, out);
    case RDMUX_FRAME_WRITTEN:
        if (size != WRITTEN_SIZE) {
            return RDMUX_PROTOCOL;
        }
        memcpy(out->nonce, payload + WRITTEN_AT_NONCE, sizeof(out->nonce));
        return RDMUX_OK;
    case RDMUX_FRAME_PROVED:
        return size == ATTEMPT_SIZE ? RDMUX_OK : RDMUX_PROTOCOL;
    case RDMUX_FRAME_COMMIT:
    case RDMUX_FRAME_CONFIRM:
        if (size != COMMIT_SIZE) {
            return RDMUX_PROTOCOL;
        }
        out->hash_kind = payload[COMMIT_AT_KIND];
        memcpy(out->hash, payload + COMMIT_AT_HASH, sizeof(out->hash));
        return RDMUX_OK;
    case RDMUX_FRAME_FAILED:
        return decode_failed(payload, size, out);
    default:
        return RDMUX_PROTOCOL;
    }
}

enum rdmux_status rdmux_attempt_frame_decode(const uint8_t *frame, size_t size,
                                             struct rdmux_attempt_frame *out)
{
    if (!frame_is_whole(frame, size)) {
        return RDMUX_PROTOCOL;
    }
    struct rdmux_attempt_frame decoded = { .type = (enum rdmux_frame_type)frame[0] };
    enum rdmux_status status = decode_payload(frame + RDMUX_FRAME_HEADER_SIZE,
                                              size - RDMUX_FRAME_HEADER_SIZE, &decoded);
    if (status == RDMUX_OK) {
        *out = decoded;
    }
    return status;
}

/* -------------------------------------------------------------------- RANKING */

static size_t encode_entry(const struct rdmux_match *match, uint8_t *out)
{
    memset(out, 0, RDMUX_RANKING_ENTRY_SIZE);
    rdmux_store_be16(out + ENTRY_AT_RANK, match->rank);
    rdmux_store_be16(out + ENTRY_AT_REASON, (uint16_t)match->reason);
    rdmux_store_be16(out + ENTRY_AT_STAGE, (uint16_t)match->stage);
    rdmux_store_be16(out + ENTRY_AT_ACCEPTOR, match->ours);
    rdmux_store_be16(out + ENTRY_AT_CONNECTOR, match->theirs);
    rdmux_store_be16(out + ENTRY_AT_FLAGS,
                     match->cost_is_measured != 0 ? ENTRY_COST_IS_MEASURED : 0);
    rdmux_store_be64(out + ENTRY_AT_COST, match->cost_ns);
    rdmux_store_be64(out + ENTRY_AT_NATIVE, match->native);
    rdmux_store_be64(out + ENTRY_AT_EMULATED, match->emulated);
    size_t size = RDMUX_RANKING_ENTRY_SIZE;
    size_t text_length = store_text(out + size, match->text);
    size += text_length;
    size_t hint_length = store_text(out + size, match->hint);
    size += hint_length;
    rdmux_store_be16(out + ENTRY_AT_TEXT_LENGTH, (uint16_t)text_length);
    rdmux_store_be16(out + ENTRY_AT_HINT_LENGTH, (uint16_t)hint_length);
    return size;
}

size_t rdmux_ranking_encode(const struct rdmux_match *matches, size_t count,
                            uint8_t out[RDMUX_RANKING_FRAME_MAX])
{
    assert(count <= RDMUX_MATCH_MAX);
    uint8_t *payload = out + RDMUX_FRAME_HEADER_SIZE;
    memset(payload, 0, RDMUX_RANKING_HEADER_SIZE);
    rdmux_store_be16(payload + RANKING_AT_COUNT, (uint16_t)count);
    size_t length = RDMUX_RANKING_HEADER_SIZE;
    for (size_t i = 0; i < count; i++) {
        length += encode_entry(&matches[i], payload + length);
    }
    rdmux_frame_header_encode(RDMUX_FRAME_RANKING, 0, length, out);
    return RDMUX_FRAME_HEADER_SIZE + length;
}

/* Reads one entry at the beginning of size bytes; returns its size, 0 if its sizes are wrong. */
static size_t decode_entry(const uint8_t *in, size_t size, struct rdmux_match *out)
{
    if (size < RDMUX_RANKING_ENTRY_SIZE) {
        return 0;
    }
    size_t text_length = rdmux_load_be16(in + ENTRY_AT_TEXT_LENGTH);
    size_t hint_length = rdmux_load_be16(in + ENTRY_AT_HINT_LENGTH);
    if (text_length >= RDMUX_TEXT_MAX || hint_length >= RDMUX_TEXT_MAX ||
        text_length + hint_length > size - RDMUX_RANKING_ENTRY_SIZE) {
        return 0;
    }
    out->rank = rdmux_load_be16(in + ENTRY_AT_RANK);
    out->reason = rdmux_load_be16(in + ENTRY_AT_REASON);
    out->stage = rdmux_load_be16(in + ENTRY_AT_STAGE);
    out->ours = rdmux_load_be16(in + ENTRY_AT_CONNECTOR);
    out->theirs = rdmux_load_be16(in + ENTRY_AT_ACCEPTOR);
    out->cost_is_measured = (rdmux_load_be16(in + ENTRY_AT_FLAGS) & ENTRY_COST_IS_MEASURED) != 0;
    out->cost_ns = rdmux_load_be64(in + ENTRY_AT_COST);
    out->native = rdmux_load_be64(in + ENTRY_AT_NATIVE);
    out->emulated = rdmux_load_be64(in + ENTRY_AT_EMULATED);
    load_text(out->text, in + RDMUX_RANKING_ENTRY_SIZE, text_length);
    load_text(out->hint, in + RDMUX_RANKING_ENTRY_SIZE + text_length, hint_length);
    return RDMUX_RANKING_ENTRY_SIZE + text_length + hint_length;
}

static bool index_is_good(uint16_t index, const struct rdmux_offer *offer)
{
    return index == RDMUX_MATCH_NO_PATH || index < offer->path_count;
}

/* Returns whether this side's path meets this side's own demands. The acceptor decides, but may not
 * override them. */
static bool meets_our_demands(const struct rdmux_offer_path *path, const struct rdmux_offer *ours)
{
    uint64_t native = path->path.native;
    uint64_t all = native | path->path.emulated;
    return path->path.reason == RDMUX_REASON_USABLE &&
           rdmux_filter_allows(ours->filter[0], path->provider) &&
           rdmux_filter_allows(ours->filter[1], path->provider) && (ours->require & ~all) == 0 &&
           (ours->require_native & ~native) == 0 &&
           (ours->require_encryption == 0 || path->trusted != 0 ||
            path->path.security >= RDMUX_SECURITY_ENCRYPTED);
}

static bool ranked_pair_is_good(const struct rdmux_match *entry, const struct rdmux_offer *ours,
                                const struct rdmux_offer *theirs)
{
    if (entry->ours == RDMUX_MATCH_NO_PATH || entry->theirs == RDMUX_MATCH_NO_PATH) {
        return false;
    }
    const struct rdmux_offer_path *our_path = &ours->paths[entry->ours];
    return strcmp(our_path->provider, theirs->paths[entry->theirs].provider) == 0 &&
           meets_our_demands(our_path, ours);
}

/* ranked: number of entries with a rank before this one; it must equal index if this one has a
 * rank. */
static bool entry_is_good(const struct rdmux_match *entry, size_t index, size_t ranked,
                          const struct rdmux_offer *ours, const struct rdmux_offer *theirs)
{
    if (!index_is_good(entry->ours, ours) || !index_is_good(entry->theirs, theirs) ||
        (entry->ours == RDMUX_MATCH_NO_PATH && entry->theirs == RDMUX_MATCH_NO_PATH) ||
        entry->stage > (entry->rank == 0 ? RDMUX_STAGE_PROOF : RDMUX_STAGE_MATCH)) {
        return false;
    }
    return entry->rank == 0 || (ranked == index && entry->rank == index + 1 &&
                                ranked_pair_is_good(entry, ours, theirs));
}

enum rdmux_status rdmux_ranking_decode(const uint8_t *frame, size_t size,
                                       const struct rdmux_offer *ours,
                                       const struct rdmux_offer *theirs,
                                       struct rdmux_match out[RDMUX_MATCH_MAX], size_t *count)
{
    if (!frame_is_whole(frame, size) || frame[0] != RDMUX_FRAME_RANKING ||
        size < RDMUX_FRAME_HEADER_SIZE + RDMUX_RANKING_HEADER_SIZE) {
        return RDMUX_PROTOCOL;
    }
    size_t entries = rdmux_load_be16(frame + RDMUX_FRAME_HEADER_SIZE + RANKING_AT_COUNT);
    if (entries > RDMUX_MATCH_MAX) {
        return RDMUX_PROTOCOL;
    }
    size_t at = RDMUX_FRAME_HEADER_SIZE + RDMUX_RANKING_HEADER_SIZE;
    size_t ranked = 0;
    for (size_t i = 0; i < entries; i++) {
        size_t used = decode_entry(frame + at, size - at, &out[i]);
        if (used == 0 || !entry_is_good(&out[i], i, ranked, ours, theirs)) {
            return RDMUX_PROTOCOL;
        }
        ranked += out[i].rank != 0;
        at += used;
    }
    if (at != size) {
        return RDMUX_PROTOCOL;
    }
    *count = entries;
    return RDMUX_OK;
}
