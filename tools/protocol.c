/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "protocol.h"

#include "text.h"

#include <assert.h>
#include <string.h>

const char *const perf_op_names[] = { "send",         "write",    "read",      "fetch_add",
                                      "compare_swap", "send_imm", "write_imm", NULL };
const char *const perf_test_names[] = { "latency", "bandwidth", "rate", NULL };
const char *const perf_memory_names[] = { "registered", "allocated", NULL };
const char *const perf_wait_names[] = { "poll", "sleep", NULL };
const char *const perf_direction_names[] = { "forward", "reverse", "both", NULL };

static const uint32_t magic = 0x5244544c; /* "RDTL" */
static const uint64_t waited_unit_ns = 10000;

/* Offset of each payload field; only these enums define the layout. */
enum {
    REQUEST_AT_OP = 0,
    REQUEST_AT_TEST = 1,
    REQUEST_AT_MEMORY = 2,
    REQUEST_AT_WAIT = 3,
    REQUEST_AT_VERIFY = 4,
    REQUEST_AT_HAS_TOKEN = 5,
    REQUEST_AT_DIRECTION = 6,
    REQUEST_AT_ZERO = 7,
    REQUEST_AT_DEPTH = 8,
    REQUEST_AT_SIZE = 12,
    REQUEST_AT_ECHO_OFFSET = 16,
    REQUEST_AT_TOKEN = 24,
    REQUEST_SIZE = REQUEST_AT_TOKEN + RDMUX_TOKEN_SIZE,

    READY_AT_HAS_TOKEN = 0,
    READY_AT_TARGET_OFFSET = 8,
    READY_AT_TOKEN = 16,
    READY_SIZE = READY_AT_TOKEN + RDMUX_TOKEN_SIZE,

    START_SIZE = 4, /* the batch */

    END_AT_OPERATIONS = 0,
    END_SIZE = 8,

    RESULT_AT_DELIVERED = 0,
    RESULT_AT_CPU_NS = 8,
    RESULT_AT_WRONG = 16,
    RESULT_AT_VERIFIED = 24,
    RESULT_AT_HAS_WAITED = 25,
    RESULT_AT_WAITED = 28, /* in units of waited_unit_ns */
    RESULT_SIZE = 32,
    /* Behind it, if the server has posted operations: */
    RESULT_AT_POSTED = 32,
    RESULT_AT_MEASURED = 40,
    RESULT_AT_MEASURED_NS = 48,
    RESULT_SIZE_WITH_POSTED = 56,

    COPY_AT_FILES = 0,
    COPY_AT_BYTES = 8,
    COPY_AT_CHECKSUM = 16,
    COPY_AT_VERSION = 17,
    COPY_REQUEST_SIZE = 24,
    COPY_RESULT_SIZE = 16,
    COPY_READY_SIZE = 4,

    ATTRIBUTES_AT_MODE = 0,
    ATTRIBUTES_AT_FLAGS = 4,
    ATTRIBUTES_AT_SIZE = 8,
    ATTRIBUTES_AT_SECONDS = 16,
    ATTRIBUTES_AT_NANOSECONDS = 24,

    HELLO_AT_MAGIC = 0,
    HELLO_AT_VERSION = 4,
    HELLO_AT_DEPTH = 8,
};
static_assert(PROTO_HEADER_SIZE + REQUEST_SIZE <= PROTO_CONTROL_MAX,
              "the longest fixed message fits");
static_assert(ATTRIBUTES_AT_NANOSECONDS + 4 == PROTO_ATTRIBUTES_SIZE, "it ends the attributes");
static_assert(PROTO_HEADER_SIZE + PROTO_TEXT_MAX <= PROTO_CONTROL_MAX, "an error text fits");

void proto_store32(uint8_t *out, uint32_t value)
{
    for (unsigned i = 0; i < 4; i++) {
        out[i] = (uint8_t)(value >> (24 - 8 * i));
    }
}

void proto_store64(uint8_t *out, uint64_t value)
{
    proto_store32(out, (uint32_t)(value >> 32));
    proto_store32(out + 4, (uint32_t)value);
}

uint32_t proto_load32(const uint8_t *in)
{
    return (uint32_t)in[0] << 24 | (uint32_t)in[1] << 16 | (uint32_t)in[2] << 8 | (uint32_t)in[3];
}

uint64_t proto_load64(const uint8_t *in)
{
    return (uint64_t)proto_load32(in) << 32 | proto_load32(in + 4);
}

/* Writes the header, zeroes the payload and returns its start. */
static uint8_t *start(enum proto_type type, size_t payload_length, uint8_t out[PROTO_CONTROL_MAX])
{
    proto_store32(out, magic);
    proto_store32(out + 4, (uint32_t)PROTO_VERSION << 16 | (uint32_t)type);
    proto_store32(out + 8, (uint32_t)payload_length);
    memset(out + PROTO_HEADER_SIZE, 0, payload_length);
    return out + PROTO_HEADER_SIZE;
}

bool proto_open(const uint8_t *bytes, size_t length, struct proto_message *out)
{
    if (length < PROTO_HEADER_SIZE || length > PROTO_CONTROL_MAX || proto_load32(bytes) != magic) {
        return false;
    }
    uint32_t version_and_type = proto_load32(bytes + 4);
    if (version_and_type >> 16 != PROTO_VERSION ||
        proto_load32(bytes + 8) != length - PROTO_HEADER_SIZE) {
        return false;
    }
    *out = (struct proto_message){
        .type = version_and_type & 0xffff,
        .payload = bytes + PROTO_HEADER_SIZE,
        .length = length - PROTO_HEADER_SIZE,
    };
    return true;
}

static bool is(const struct proto_message *message, enum proto_type type, size_t length)
{
    return message->type == (uint32_t)type && message->length == length;
}

size_t proto_perf_request_encode(const struct proto_perf_request *in, uint8_t out[PROTO_CONTROL_MAX])
{
    uint8_t *payload = start(PROTO_PERF_REQUEST, REQUEST_SIZE, out);
    payload[REQUEST_AT_OP] = in->op;
    payload[REQUEST_AT_TEST] = in->test;
    payload[REQUEST_AT_MEMORY] = in->memory;
    payload[REQUEST_AT_WAIT] = in->wait;
    payload[REQUEST_AT_VERIFY] = in->verify;
    payload[REQUEST_AT_HAS_TOKEN] = in->has_token;
    payload[REQUEST_AT_DIRECTION] = in->direction;
    proto_store32(payload + REQUEST_AT_DEPTH, in->depth);
    proto_store32(payload + REQUEST_AT_SIZE, in->size);
    proto_store64(payload + REQUEST_AT_ECHO_OFFSET, in->echo_offset);
    memcpy(payload + REQUEST_AT_TOKEN, in->token.bytes, RDMUX_TOKEN_SIZE);
    return PROTO_HEADER_SIZE + REQUEST_SIZE;
}

bool proto_perf_request_decode(const struct proto_message *message, struct proto_perf_request *out)
{
    if (!is(message, PROTO_PERF_REQUEST, REQUEST_SIZE)) {
        return false;
    }
    const uint8_t *payload = message->payload;
    struct proto_perf_request request = {
        .op = payload[REQUEST_AT_OP],
        .test = payload[REQUEST_AT_TEST],
        .memory = payload[REQUEST_AT_MEMORY],
        .wait = payload[REQUEST_AT_WAIT],
        .verify = payload[REQUEST_AT_VERIFY],
        .has_token = payload[REQUEST_AT_HAS_TOKEN],
        .direction = payload[REQUEST_AT_DIRECTION],
        .depth = proto_load32(payload + REQUEST_AT_DEPTH),
        .size = proto_load32(payload + REQUEST_AT_SIZE),
        .echo_offset = proto_load64(payload + REQUEST_AT_ECHO_OFFSET),
    };
    memcpy(request.token.bytes, payload + REQUEST_AT_TOKEN, RDMUX_TOKEN_SIZE);
    if (request.op >= PERF_OP_COUNT || request.test >= PERF_TEST_COUNT ||
        request.memory >= PERF_MEMORY_COUNT || request.wait >= PERF_WAIT_COUNT ||
        request.verify > 1 || request.has_token > 1 || request.direction >= PERF_DIRECTION_COUNT ||
        payload[REQUEST_AT_ZERO] != 0) {
        return false;
    }
    if (request.depth == 0 || request.depth > PROTO_DEPTH_MAX ||
        request.size > PROTO_PERF_SIZE_MAX) {
        return false;
    }
    bool atomic = request.op == PERF_FETCH_ADD || request.op == PERF_COMPARE_SWAP;
    bool server_posts = request.direction != PERF_FORWARD;
    bool needs_token = server_posts ? !perf_op_sends(request.op)
                                    : perf_op_writes(request.op) && request.test == PERF_LATENCY;
    if ((atomic && request.size != 8) || (request.has_token == 1) != needs_token) {
        return false;
    }
    /* Of what the server posts, only sends are checked. */
    if (server_posts &&
        (request.test == PERF_LATENCY || (request.verify && !perf_op_sends(request.op)))) {
        return false;
    }
    *out = request;
    return true;
}

size_t proto_perf_ready_encode(const struct proto_perf_ready *in, uint8_t out[PROTO_CONTROL_MAX])
{
    uint8_t *payload = start(PROTO_PERF_READY, READY_SIZE, out);
    payload[READY_AT_HAS_TOKEN] = in->has_token;
    proto_store64(payload + READY_AT_TARGET_OFFSET, in->target_offset);
    memcpy(payload + READY_AT_TOKEN, in->token.bytes, RDMUX_TOKEN_SIZE);
    return PROTO_HEADER_SIZE + READY_SIZE;
}

bool proto_perf_ready_decode(const struct proto_message *message, struct proto_perf_ready *out)
{
    if (!is(message, PROTO_PERF_READY, READY_SIZE) || message->payload[READY_AT_HAS_TOKEN] > 1) {
        return false;
    }
    out->has_token = message->payload[READY_AT_HAS_TOKEN];
    out->target_offset = proto_load64(message->payload + READY_AT_TARGET_OFFSET);
    memcpy(out->token.bytes, message->payload + READY_AT_TOKEN, RDMUX_TOKEN_SIZE);
    return true;
}

size_t proto_perf_end_encode(const struct proto_perf_end *in, uint8_t out[PROTO_CONTROL_MAX])
{
    uint8_t *payload = start(PROTO_PERF_END, END_SIZE, out);
    proto_store64(payload + END_AT_OPERATIONS, in->operations);
    return PROTO_HEADER_SIZE + END_SIZE;
}

bool proto_perf_end_decode(const struct proto_message *message, struct proto_perf_end *out)
{
    if (!is(message, PROTO_PERF_END, END_SIZE)) {
        return false;
    }
    out->operations = proto_load64(message->payload + END_AT_OPERATIONS);
    return true;
}

size_t proto_perf_result_encode(const struct proto_perf_result *in, uint8_t out[PROTO_CONTROL_MAX])
{
    size_t size = in->has_posted ? RESULT_SIZE_WITH_POSTED : RESULT_SIZE;
    uint8_t *payload = start(PROTO_PERF_RESULT, size, out);
    proto_store64(payload + RESULT_AT_DELIVERED, in->delivered);
    proto_store64(payload + RESULT_AT_CPU_NS, in->cpu_ns);
    proto_store64(payload + RESULT_AT_WRONG, in->wrong);
    payload[RESULT_AT_VERIFIED] = in->verified;
    payload[RESULT_AT_HAS_WAITED] = in->has_waited;
    uint64_t waited = in->waited_ns / waited_unit_ns;
    proto_store32(payload + RESULT_AT_WAITED, waited > UINT32_MAX ? UINT32_MAX : (uint32_t)waited);
    if (in->has_posted) {
        proto_store64(payload + RESULT_AT_POSTED, in->posted);
        proto_store64(payload + RESULT_AT_MEASURED, in->measured);
        proto_store64(payload + RESULT_AT_MEASURED_NS, in->measured_ns);
    }
    return PROTO_HEADER_SIZE + size;
}

bool proto_perf_result_decode(const struct proto_message *message, struct proto_perf_result *out)
{
    bool has_posted = is(message, PROTO_PERF_RESULT, RESULT_SIZE_WITH_POSTED);
    const uint8_t *payload = message->payload;
    if ((!has_posted && !is(message, PROTO_PERF_RESULT, RESULT_SIZE)) ||
        payload[RESULT_AT_VERIFIED] > 1 || payload[RESULT_AT_HAS_WAITED] > 1) {
        return false;
    }
    *out = (struct proto_perf_result){
        .delivered = proto_load64(payload + RESULT_AT_DELIVERED),
        .cpu_ns = proto_load64(payload + RESULT_AT_CPU_NS),
        .wrong = proto_load64(payload + RESULT_AT_WRONG),
        .verified = payload[RESULT_AT_VERIFIED],
        .has_waited = payload[RESULT_AT_HAS_WAITED],
        .waited_ns = proto_load32(payload + RESULT_AT_WAITED) * waited_unit_ns,
        .has_posted = has_posted,
    };
    if (has_posted) {
        out->posted = proto_load64(payload + RESULT_AT_POSTED);
        out->measured = proto_load64(payload + RESULT_AT_MEASURED);
        out->measured_ns = proto_load64(payload + RESULT_AT_MEASURED_NS);
    }
    return true;
}

size_t proto_perf_start_encode(const struct proto_perf_start *in, uint8_t out[PROTO_CONTROL_MAX])
{
    proto_store32(start(PROTO_PERF_START, START_SIZE, out), in->batch);
    return PROTO_HEADER_SIZE + START_SIZE;
}

bool proto_perf_start_decode(const struct proto_message *message, struct proto_perf_start *out)
{
    if (!is(message, PROTO_PERF_START, START_SIZE)) {
        return false;
    }
    uint32_t batch = proto_load32(message->payload);
    if (batch == 0 || batch > PROTO_DEPTH_MAX) {
        return false;
    }
    out->batch = batch;
    return true;
}

size_t proto_copy_request_encode(const struct proto_copy_request *in, uint8_t out[PROTO_CONTROL_MAX])
{
    uint8_t *payload = start(PROTO_COPY_REQUEST, COPY_REQUEST_SIZE, out);
    proto_store64(payload + COPY_AT_FILES, in->files);
    proto_store64(payload + COPY_AT_BYTES, in->bytes);
    payload[COPY_AT_CHECKSUM] = in->checksum;
    payload[COPY_AT_VERSION] = in->version;
    return PROTO_HEADER_SIZE + COPY_REQUEST_SIZE;
}

bool proto_copy_request_decode(const struct proto_message *message, struct proto_copy_request *out)
{
    if (!is(message, PROTO_COPY_REQUEST, COPY_REQUEST_SIZE)) {
        return false;
    }
    out->files = proto_load64(message->payload + COPY_AT_FILES);
    out->bytes = proto_load64(message->payload + COPY_AT_BYTES);
    out->checksum = message->payload[COPY_AT_CHECKSUM];
    out->version = message->payload[COPY_AT_VERSION];
    return true;
}

size_t proto_copy_ready_encode(uint32_t version, uint8_t out[PROTO_CONTROL_MAX])
{
    size_t length = version > 1 ? COPY_READY_SIZE : 0;
    uint8_t *payload = start(PROTO_COPY_READY, length, out);
    if (length > 0) {
        proto_store32(payload, version);
    }
    return PROTO_HEADER_SIZE + length;
}

bool proto_copy_ready_decode(const struct proto_message *message, uint32_t *version)
{
    if (is(message, PROTO_COPY_READY, 0)) {
        *version = 1;
        return true;
    }
    if (!is(message, PROTO_COPY_READY, COPY_READY_SIZE)) {
        return false;
    }
    uint32_t told = proto_load32(message->payload);
    if (told < 2 || told > PROTO_COPY_VERSION) {
        return false;
    }
    *version = told;
    return true;
}

size_t proto_copy_answers_encode(const uint8_t *answers, size_t length,
                                 uint8_t out[PROTO_CONTROL_MAX])
{
    memcpy(start(PROTO_COPY_ANSWER, length, out), answers, length);
    return PROTO_HEADER_SIZE + length;
}

size_t proto_copy_answer_encode(const struct proto_copy_answer *in, uint8_t out[PROTO_RESUME_SIZE])
{
    out[0] = in->code;
    if (in->code != PROTO_ANSWER_RESUME) {
        return 1;
    }
    proto_store64(out + 1, in->offset);
    memcpy(out + 9, in->checksum, CHECKSUM_SIZE_MAX);
    return PROTO_RESUME_SIZE;
}

bool proto_copy_answer_decode(const struct proto_message *message, size_t *at,
                              struct proto_copy_answer *out)
{
    if (message->type != PROTO_COPY_ANSWER || *at >= message->length) {
        return false;
    }
    const uint8_t *bytes = message->payload + *at;
    struct proto_copy_answer answer = { .code = bytes[0] };
    size_t length = answer.code == PROTO_ANSWER_RESUME ? PROTO_RESUME_SIZE : 1;
    if (answer.code < PROTO_ANSWER_SEND || answer.code > PROTO_ANSWER_INTO ||
        length > message->length - *at) {
        return false;
    }
    if (answer.code == PROTO_ANSWER_RESUME) {
        answer.offset = proto_load64(bytes + 1);
        memcpy(answer.checksum, bytes + 9, CHECKSUM_SIZE_MAX);
    }
    *at += length;
    *out = answer;
    return true;
}

size_t proto_copy_result_encode(const struct proto_copy_result *in, uint8_t out[PROTO_CONTROL_MAX])
{
    uint8_t *payload = start(PROTO_COPY_RESULT, COPY_RESULT_SIZE, out);
    proto_store64(payload + COPY_AT_FILES, in->files);
    proto_store64(payload + COPY_AT_BYTES, in->bytes);
    return PROTO_HEADER_SIZE + COPY_RESULT_SIZE;
}

bool proto_copy_result_decode(const struct proto_message *message, struct proto_copy_result *out)
{
    if (!is(message, PROTO_COPY_RESULT, COPY_RESULT_SIZE)) {
        return false;
    }
    out->files = proto_load64(message->payload + COPY_AT_FILES);
    out->bytes = proto_load64(message->payload + COPY_AT_BYTES);
    return true;
}

size_t proto_conformance_request_encode(uint8_t out[PROTO_CONTROL_MAX])
{
    (void)start(PROTO_CONFORMANCE_REQUEST, 0, out);
    return PROTO_HEADER_SIZE;
}

bool proto_conformance_request_decode(const struct proto_message *message)
{
    return is(message, PROTO_CONFORMANCE_REQUEST, 0);
}

/* The payload is the port, then the secret. */
enum { CONFORMANCE_AT_SECRET = 4, CONFORMANCE_SIZE = CONFORMANCE_AT_SECRET + PROTO_SECRET_SIZE };

size_t proto_conformance_ready_encode(const struct proto_conformance_ready *in,
                                      uint8_t out[PROTO_CONTROL_MAX])
{
    uint8_t *payload = start(PROTO_CONFORMANCE_READY, CONFORMANCE_SIZE, out);
    proto_store32(payload, in->port);
    memcpy(payload + CONFORMANCE_AT_SECRET, in->secret, PROTO_SECRET_SIZE);
    return PROTO_HEADER_SIZE + CONFORMANCE_SIZE;
}

bool proto_conformance_ready_decode(const struct proto_message *message,
                                    struct proto_conformance_ready *out)
{
    if (!is(message, PROTO_CONFORMANCE_READY, CONFORMANCE_SIZE)) {
        return false;
    }
    uint32_t port = proto_load32(message->payload);
    if (port == 0 || port > UINT16_MAX) {
        return false;
    }
    out->port = port;
    memcpy(out->secret, message->payload + CONFORMANCE_AT_SECRET, PROTO_SECRET_SIZE);
    return true;
}

size_t proto_error_encode(const char *text, uint8_t out[PROTO_CONTROL_MAX])
{
    size_t length = strnlen(text, PROTO_TEXT_MAX - 1);
    memcpy(start(PROTO_ERROR, length, out), text, length);
    return PROTO_HEADER_SIZE + length;
}

bool proto_error_decode(const struct proto_message *message, struct proto_error *out)
{
    if (message->type != PROTO_ERROR || message->length >= PROTO_TEXT_MAX) {
        return false;
    }
    for (size_t i = 0; i < message->length; i++) {
        out->text[i] = message->payload[i] == 0 ? '?' : (char)message->payload[i];
    }
    out->text[message->length] = '\0';
    text_clean(out->text); /* the text is printed on a terminal */
    return true;
}

void proto_hello_encode(const struct proto_hello *in, uint8_t out[PROTO_HELLO_SIZE])
{
    proto_store32(out + HELLO_AT_MAGIC, magic);
    proto_store32(out + HELLO_AT_VERSION, PROTO_VERSION);
    proto_store32(out + HELLO_AT_DEPTH, in->depth);
}

bool proto_hello_decode(const uint8_t *bytes, size_t length, struct proto_hello *out)
{
    if (length != PROTO_HELLO_SIZE || proto_load32(bytes + HELLO_AT_MAGIC) != magic ||
        proto_load32(bytes + HELLO_AT_VERSION) != PROTO_VERSION) {
        return false;
    }
    uint32_t depth = proto_load32(bytes + HELLO_AT_DEPTH);
    if (depth == 0 || depth > PROTO_DEPTH_MAX) {
        return false;
    }
    out->depth = depth;
    return true;
}

void proto_attributes_encode(const struct proto_attributes *in, uint8_t out[PROTO_ATTRIBUTES_SIZE])
{
    proto_store32(out + ATTRIBUTES_AT_MODE, in->mode);
    proto_store32(out + ATTRIBUTES_AT_FLAGS, in->flags);
    proto_store64(out + ATTRIBUTES_AT_SIZE, in->size);
    proto_store64(out + ATTRIBUTES_AT_SECONDS, (uint64_t)in->seconds);
    proto_store32(out + ATTRIBUTES_AT_NANOSECONDS, in->nanoseconds);
}

bool proto_attributes_decode(const uint8_t in[PROTO_ATTRIBUTES_SIZE], struct proto_attributes *out)
{
    uint64_t seconds = proto_load64(in + ATTRIBUTES_AT_SECONDS);
    struct proto_attributes attributes = {
        .mode = proto_load32(in + ATTRIBUTES_AT_MODE),
        .flags = proto_load32(in + ATTRIBUTES_AT_FLAGS),
        .size = proto_load64(in + ATTRIBUTES_AT_SIZE),
        .nanoseconds = proto_load32(in + ATTRIBUTES_AT_NANOSECONDS),
    };
    memcpy(&attributes.seconds, &seconds, sizeof(seconds)); /* both are 64 bits, two's complement */
    if (attributes.nanoseconds >= 1000000000 ||
        (attributes.flags & ~(uint32_t)PROTO_ENTRY_LINKED) || attributes.size > INT64_MAX) {
        return false;
    }
    *out = attributes;
    return true;
}

bool proto_is_unfinished_name(const char *name, size_t length)
{
    static const char before[] = ".rdmux-";
    static const char behind[] = ".part";
    size_t start_length = sizeof(before) - 1;
    size_t end_length = sizeof(behind) - 1;
    if (length != start_length + PROTO_UNFINISHED_DIGITS + end_length ||
        memcmp(name, before, start_length) != 0 ||
        memcmp(name + length - end_length, behind, end_length) != 0) {
        return false;
    }
    for (size_t i = start_length; i < length - end_length; i++) {
        if ((name[i] < '0' || name[i] > '9') && (name[i] < 'a' || name[i] > 'f')) {
            return false;
        }
    }
    return true;
}
