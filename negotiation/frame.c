/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The outermost layer of the control channel: HELLO, JOIN and the header of a frame. docs/WIRE.md
 * has the same tables. */
#include "negotiation/handshake.h"

#include "api/base/bytes.h"
#include "api/system/system.h"
#include "negotiation/message.h"

#include <assert.h>
#include <string.h>

/* HELLO. Offset, size, field:
 *    0   8  'R' 'D' 'M' 'U' 'X' 0x01 0x0d 0x0a     24   4  authentication methods
 *    8   2  lowest version spoken                  28   4  zero, ignored
 *   10   2  highest version spoken                 32  16  process id
 *   12   4  byte-order marker                      48  16  nonce
 *   16   4  flags                                  64  16  connection to resume
 *   20   4  epoch                                  80  16  zero, ignored */
enum {
    HELLO_AT_VERSION_MIN = 8,
    HELLO_AT_VERSION_MAX = 10,
    HELLO_AT_BYTE_ORDER = 12,
    HELLO_AT_FLAGS = 16,
    HELLO_AT_EPOCH = 20,
    HELLO_AT_AUTHENTICATION = 24,
    HELLO_AT_PROCESS = 32,
    HELLO_AT_NONCE = 48,
    HELLO_AT_RESUME = 64,
    HELLO_AT_END = 80,
};

/* JOIN. Offset, size, field:
 *    0   8  'R' 'D' 'M' 'U' 'J' 0x01 0x0d 0x0a     28   4  epoch
 *    8   2  version                                32   4  attempt
 *   10   2  1: sealed                              36   4  index
 *   12  16  secret, or its name if sealed          40  16  code if sealed, else zero
 *                                                  56   8  zero, ignored */
enum {
    JOIN_AT_VERSION = 8,
    JOIN_AT_SEALED = 10,
    JOIN_AT_SECRET = 12,
    JOIN_AT_EPOCH = 28,
    JOIN_AT_ATTEMPT = 32,
    JOIN_AT_INDEX = 36,
    JOIN_AT_CODE = 40,
    JOIN_AT_END = 56,
};

/* Frame header. Offset, size, field:
 *    0   1  type              2   2  zero, ignored
 *    1   1  flags             4   4  length of the payload */
enum { FRAME_AT_TYPE = 0, FRAME_AT_FLAGS = 1, FRAME_AT_LENGTH = 4 };

enum { MAGIC_SIZE = 8 };

static_assert(HELLO_AT_END + 16 == RDMUX_HELLO_SIZE, "16 bytes of zero end HELLO");
static_assert(HELLO_AT_PROCESS + RDMUX_PROCESS_ID_SIZE == HELLO_AT_NONCE, "the process id fits");
static_assert(JOIN_AT_SECRET + RDMUX_SECRET_SIZE == JOIN_AT_EPOCH, "the secret fits");
static_assert((int)JOIN_AT_CODE == (int)RDMUX_JOIN_SEALED_SIZE,
              "the code covers what is before it");
static_assert(JOIN_AT_CODE + RDMUX_SECRET_SIZE == JOIN_AT_END, "the code fits");
static_assert(JOIN_AT_END + 8 == RDMUX_JOIN_SIZE, "8 bytes of zero end JOIN");
static_assert(FRAME_AT_LENGTH + 4 == RDMUX_FRAME_HEADER_SIZE, "the length ends the header");

static const uint8_t hello_magic[MAGIC_SIZE] = { 'R', 'D', 'M', 'U', 'X', 0x01, 0x0d, 0x0a };
static const uint8_t join_magic[MAGIC_SIZE] = { 'R', 'D', 'M', 'U', 'J', 0x01, 0x0d, 0x0a };

/* The only field in host byte order. */
static const uint32_t byte_order = UINT32_C(0x01020304);

void rdmux_hello_encode(const struct rdmux_hello *hello, uint8_t out[RDMUX_HELLO_SIZE])
{
    memset(out, 0, RDMUX_HELLO_SIZE);
    memcpy(out, hello_magic, MAGIC_SIZE);
    rdmux_store_be16(out + HELLO_AT_VERSION_MIN, hello->version_min);
    rdmux_store_be16(out + HELLO_AT_VERSION_MAX, hello->version_max);
    rdmux_store_host32(out + HELLO_AT_BYTE_ORDER, byte_order);
    rdmux_store_be32(out + HELLO_AT_FLAGS, hello->flags);
    rdmux_store_be32(out + HELLO_AT_EPOCH, hello->epoch);
    rdmux_store_be32(out + HELLO_AT_AUTHENTICATION, hello->authentication);
    memcpy(out + HELLO_AT_PROCESS, hello->process, sizeof(hello->process));
    memcpy(out + HELLO_AT_NONCE, hello->nonce, sizeof(hello->nonce));
    memcpy(out + HELLO_AT_RESUME, hello->resume, sizeof(hello->resume));
}

enum rdmux_status rdmux_hello_decode(const uint8_t *in, size_t size, struct rdmux_hello *out)
{
    if (size < RDMUX_HELLO_SIZE || memcmp(in, hello_magic, MAGIC_SIZE) != 0) {
        return RDMUX_PROTOCOL;
    }
    const uint32_t marker = rdmux_load_host32(in + HELLO_AT_BYTE_ORDER);
    if (marker == UINT32_C(0x04030201)) {
        return RDMUX_VERSION;
    }
    struct rdmux_hello hello = {
        .version_min = rdmux_load_be16(in + HELLO_AT_VERSION_MIN),
        .version_max = rdmux_load_be16(in + HELLO_AT_VERSION_MAX),
        .flags = rdmux_load_be32(in + HELLO_AT_FLAGS),
        .epoch = rdmux_load_be32(in + HELLO_AT_EPOCH),
        .authentication = rdmux_load_be32(in + HELLO_AT_AUTHENTICATION),
    };
    if (marker != byte_order || hello.version_min == 0 || hello.version_min > hello.version_max) {
        return RDMUX_PROTOCOL;
    }
    memcpy(hello.process, in + HELLO_AT_PROCESS, sizeof(hello.process));
    memcpy(hello.nonce, in + HELLO_AT_NONCE, sizeof(hello.nonce));
    memcpy(hello.resume, in + HELLO_AT_RESUME, sizeof(hello.resume));
    *out = hello;
    return RDMUX_OK;
}

void rdmux_join_encode(const struct rdmux_join *join, uint8_t out[RDMUX_JOIN_SIZE])
{
    memset(out, 0, RDMUX_JOIN_SIZE);
    memcpy(out, join_magic, MAGIC_SIZE);
    rdmux_store_be16(out + JOIN_AT_VERSION, RDMUX_WIRE_VERSION);
    memcpy(out + JOIN_AT_SECRET, join->secret, sizeof(join->secret));
    rdmux_store_be32(out + JOIN_AT_EPOCH, join->epoch);
    rdmux_store_be32(out + JOIN_AT_ATTEMPT, join->attempt);
    rdmux_store_be32(out + JOIN_AT_INDEX, join->index);
    if (join->is_sealed) {
        rdmux_store_be16(out + JOIN_AT_SEALED, 1);
        memcpy(out + JOIN_AT_CODE, join->code, sizeof(join->code));
    }
}

enum rdmux_status rdmux_join_decode(const uint8_t in[RDMUX_JOIN_SIZE], struct rdmux_join *out)
{
    if (!rdmux_frame_is_join(in)) {
        return RDMUX_PROTOCOL;
    }
    if (rdmux_load_be16(in + JOIN_AT_VERSION) != RDMUX_WIRE_VERSION) {
        return RDMUX_VERSION;
    }
    struct rdmux_join join = {
        .epoch = rdmux_load_be32(in + JOIN_AT_EPOCH),
        .attempt = rdmux_load_be32(in + JOIN_AT_ATTEMPT),
        .index = rdmux_load_be32(in + JOIN_AT_INDEX),
    };
    memcpy(join.secret, in + JOIN_AT_SECRET, sizeof(join.secret));
    join.is_sealed = rdmux_load_be16(in + JOIN_AT_SEALED) == 1;
    if (join.is_sealed) {
        memcpy(join.code, in + JOIN_AT_CODE, sizeof(join.code));
    }
    *out = join;
    rdmux_wipe(&join, sizeof(join));
    return RDMUX_OK;
}

bool rdmux_frame_is_join(const uint8_t in[8])
{
    return memcmp(in, join_magic, MAGIC_SIZE) == 0;
}

const char *rdmux_frame_name(const uint8_t *frame, size_t size)
{
    static const char *const names[] = {
        [RDMUX_FRAME_OFFER] = "OFFER",
        [RDMUX_FRAME_RANKING] = "RANKING",
        [RDMUX_FRAME_TRY] = "TRY",
        [RDMUX_FRAME_READY] = "READY",
        [RDMUX_FRAME_UP] = "UP",
        [RDMUX_FRAME_WRITTEN] = "WRITTEN",
        [RDMUX_FRAME_PROVED] = "PROVED",
        [RDMUX_FRAME_COMMIT] = "COMMIT",
        [RDMUX_FRAME_CONFIRM] = "CONFIRM",
        [RDMUX_FRAME_FAILED] = "FAILED",
        [RDMUX_FRAME_NO_PATH] = "NO_PATH",
        [RDMUX_FRAME_REJECT] = "REJECT",
        [RDMUX_FRAME_HEARTBEAT] = "HEARTBEAT",
        [RDMUX_FRAME_IMPORT] = "IMPORT",
        [RDMUX_FRAME_IMPORTED] = "IMPORTED",
        [RDMUX_FRAME_REVOKE] = "REVOKE",
        [RDMUX_FRAME_REVOKED] = "REVOKED",
        [RDMUX_FRAME_FAULT] = "FAULT",
        [RDMUX_FRAME_END] = "END",
        [RDMUX_FRAME_ENDED] = "ENDED",
        [RDMUX_FRAME_SILENT] = "SILENT",
        [RDMUX_FRAME_MOVE] = "MOVE",
        [RDMUX_FRAME_RECEIVED] = "RECEIVED",
        [RDMUX_FRAME_RESUME] = "RESUME",
        [RDMUX_FRAME_RESUMED] = "RESUMED",
        [RDMUX_FRAME_BACK] = "BACK",
        [RDMUX_FRAME_RELEASED] = "RELEASED",
    };
    if (size >= MAGIC_SIZE && memcmp(frame, hello_magic, MAGIC_SIZE) == 0) {
        return "HELLO";
    }
    if (size >= MAGIC_SIZE && rdmux_frame_is_join(frame)) {
        return "JOIN";
    }
    bool known = size != 0 && frame[0] < sizeof(names) / sizeof(names[0]) &&
                 names[frame[0]] != NULL;
    return known ? names[frame[0]] : "?";
}

static size_t first_total(const uint8_t *in, size_t size, bool *bad)
{
    size_t known = size < MAGIC_SIZE ? size : MAGIC_SIZE;
    bool hello = memcmp(in, hello_magic, known) == 0;
    bool join = memcmp(in, join_magic, known) == 0;
    *bad = !hello && !join;
    if (*bad || known < MAGIC_SIZE) {
        return 0;
    }
    return hello ? RDMUX_HELLO_SIZE : RDMUX_JOIN_SIZE;
}

size_t rdmux_frame_total(const uint8_t *in, size_t size, bool first, bool *bad)
{
    *bad = false;
    if (size == 0) {
        return 0;
    }
    if (first) {
        return first_total(in, size, bad);
    }
    if (size < RDMUX_FRAME_HEADER_SIZE) {
        return 0;
    }
    uint32_t length = rdmux_load_be32(in + FRAME_AT_LENGTH);
    if (length > RDMUX_FRAME_PAYLOAD_MAX) {
        *bad = true;
        return 0;
    }
    return RDMUX_FRAME_HEADER_SIZE + (size_t)length;
}

void rdmux_frame_header_encode(enum rdmux_frame_type type, uint8_t flags, size_t length,
                               uint8_t out[8])
{
    assert(length <= RDMUX_FRAME_PAYLOAD_MAX);
    memset(out, 0, RDMUX_FRAME_HEADER_SIZE);
    out[FRAME_AT_TYPE] = (uint8_t)type;
    out[FRAME_AT_FLAGS] = flags;
    rdmux_store_be32(out + FRAME_AT_LENGTH, (uint32_t)length);
}

bool rdmux_frame_is_optional(const uint8_t in[8])
{
    return (in[FRAME_AT_FLAGS] & RDMUX_FRAME_OPTIONAL) != 0;
}
