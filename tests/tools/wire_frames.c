/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Writes captures for wireshark.sh, with the library's own encoders and its own writer:
 *
 *   wire_frames FOLDER
 *
 * FOLDER/rdmux.pcapng has one frame of every kind, as RDMUX_CAPTURE writes them. FOLDER/tcp.pcap has
 * the same frames as bytes of TCP, cut into segments at odd places. FOLDER/expected has lines
 * "FIELD<tab>VALUE" in the order of the frames: what the dissector has to find in each file.
 * FOLDER/hostile.pcapng and FOLDER/hostile.pcap have frames that are cut and changed in all kinds of
 * ways. FOLDER/striped.pcap has a set-up with three data sockets and a payload over all of them.
 * FOLDER/cuts.pcap has the same few frames on many connections, cut into two or three segments at
 * each place in turn; FOLDER/unordered.pcap is the same with the last two segments exchanged.
 * FOLDER/lengths.pcap has frames with wrong lengths, each with a good frame behind it.
 */
#include "api/base/bytes.h"
#include "api/base/capture.h"
#include "negotiation/control_capture.h"
#include "negotiation/handshake_frames.h"
#include "negotiation/match.h"
#include "negotiation/message.h"
#include "negotiation/offer.h"
#include "tcp_fallback/tcp_frame.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    FRAMES_MAX = 256,
    FRAME_MAX = 80 << 10,
    PATH_MAX_BYTES = 512,
    SECRET_BYTE = 0x5a,
    PORT = 7471,
};

struct frame {
    uint8_t *bytes;
    size_t size;
    bool is_data; /* of a data socket */
};

static struct frame frames[FRAMES_MAX];
static size_t frame_count;
static FILE *expected;

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static void need(bool is_so, const char *what)
{
    if (!is_so) {
        fprintf(stderr, "wire_frames: %s: %s\n", what, rdmux_last_error());
        exit(1);
    }
}

static FILE *create(const char *folder, const char *name)
{
    char path[PATH_MAX_BYTES];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *file = fopen(path, "we");
    if (file == NULL) {
        die(path);
    }
    return file;
}

/* The dissector has to find this. */
static void expect(const char *field, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void expect(const char *field, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fprintf(expected, "rdmux.%s\t", field);
    vfprintf(expected, format, arguments);
    fputc('\n', expected);
    va_end(arguments);
}

static void expect_bytes(const char *field, const void *bytes, size_t size)
{
    fprintf(expected, "rdmux.%s\t", field);
    for (size_t i = 0; i < size; i++) {
        fprintf(expected, "%02x", ((const uint8_t *)bytes)[i]);
    }
    fputc('\n', expected);
}

static void add(const void *bytes, size_t size, bool is_data)
{
    struct frame *frame = &frames[frame_count++];
    need(frame_count <= FRAMES_MAX, "too many frames");
    frame->bytes = malloc(size);
    need(frame->bytes != NULL, "out of memory");
    memcpy(frame->bytes, bytes, size);
    frame->size = size;
    frame->is_data = is_data;
}

static void add_control(const void *bytes, size_t size)
{
    const uint8_t *at = bytes;
    expect("name", "%s", rdmux_frame_name(at, size));
    if (at[0] != 'R') {
        expect("control.type", "0x%02x", at[0]);
        expect("control.flags", "0x%02x", at[1]);
        expect("control.length", "%zu", size - RDMUX_FRAME_HEADER_SIZE);
    }
    add(bytes, size, false);
}

/* ------------------------------------------------------------------------------ control channel */

static void fill(void *out, size_t size, uint8_t first)
{
    for (size_t i = 0; i < size; i++) {
        ((uint8_t *)out)[i] = (uint8_t)(first + i);
    }
}

static void add_hello(void)
{
    struct rdmux_hello hello = { .version_min = 1, .version_max = 3, .flags = 0x3f, .epoch = 9 };
    uint8_t bytes[RDMUX_HELLO_SIZE];
    fill(hello.process, sizeof(hello.process), 1);
    fill(hello.nonce, sizeof(hello.nonce), 0x41);
    fill(hello.resume, sizeof(hello.resume), 0x81);
    rdmux_hello_encode(&hello, bytes);
    const uint16_t one = 1;
    const bool is_little = *(const uint8_t *)&one == 1;
    expect("hello.version_min", "1");
    expect("hello.version_max", "3");
    expect("hello.byte_order", "%s", is_little ? "little-endian" : "big-endian");
    expect("hello.flags", "0x0000003f");
    expect("hello.flag_names", "EXPLAIN_ONLY NO_SERVICE HASH ADOPTED MEASURE FAILOVER");
    expect("hello.epoch", "9");
    expect("hello.auth", "0x00000000");
    expect("hello.auth_names", "none");
    expect_bytes("hello.process", hello.process, sizeof(hello.process));
    expect_bytes("hello.nonce", hello.nonce, sizeof(hello.nonce));
    expect_bytes("hello.resume", hello.resume, sizeof(hello.resume));
    add_control(bytes, sizeof(bytes));
}

static void fill_offer(struct rdmux_offer *offer)
{
    memset(offer, 0, sizeof(*offer));
    offer->prefer = RDMUX_PREFER_BANDWIDTH;
    offer->typical_size = 4096;
    offer->max_send = UINT64_C(0x100000000);
    offer->max_recv = 65536;
    offer->require = RDMUX_CAP_SEND;
    offer->require_native = RDMUX_CAP_WRITE;
    offer->liveness_ms = 10000;
    offer->data_sockets = 3;
    offer->path_timeout_ms = 2000;
    offer->setup_timeout_ms = 20000;
    offer->require_encryption = 1;
    offer->send_wish = 1;
    offer->private_length = 5;
    memcpy(offer->private_data, "hello", 5);
    strcpy(offer->filter[0], "!ib");
    strcpy(offer->filter[1], "shm,tcp");
    memset(offer->secret, SECRET_BYTE, sizeof(offer->secret));
    offer->path_count = 2;
    struct rdmux_offer_path *path = &offer->paths[0];
    strcpy(path->provider, "tcp");
    path->provider_flags = 8;
    strcpy(path->path.device, "sockets");
    strcpy(path->path.address, "192.0.2.1");
    path->path.reason = RDMUX_REASON_USABLE;
    path->path.bandwidth = UINT64_C(5000000000);
    path->path.latency_ns = 5000;
    path->path.mtu = 1500;
    path->path.native = RDMUX_CAP_SEND | RDMUX_CAP_TARGET_PASSIVE;
    path->path.emulated = RDMUX_CAP_READ;
    path->path.max_message = 1 << 20;
    path->path.max_sge = 8;
    path->path.max_inline = 256;
    path->path.security = RDMUX_SECURITY_ENCRYPTED;
    path->path.reach_length = 3;
    fill(path->path.reach, 3, 7);
    path->trusted = 1;
    path = &offer->paths[1];
    strcpy(path->provider, "roce");
    path->path.reason = RDMUX_REASON_NO_DEVICE;
    path->path.software = 1;
    strcpy(path->path.text, "no device");
    strcpy(path->path.hint, "plug one in");
}

static size_t encode_offer(uint8_t *out)
{
    struct rdmux_offer *offer = malloc(sizeof(*offer));
    size_t size = RDMUX_FRAME_PAYLOAD_MAX;
    need(offer != NULL, "out of memory");
    fill_offer(offer);
    need(rdmux_offer_encode(offer, out + RDMUX_FRAME_HEADER_SIZE, &size) == RDMUX_OK, "OFFER");
    rdmux_frame_header_encode(RDMUX_FRAME_OFFER, 0, size, out);
    free(offer);
    return size + RDMUX_FRAME_HEADER_SIZE;
}

static void add_offer(void)
{
    uint8_t *bytes = malloc(FRAME_MAX);
    uint8_t secret[RDMUX_SECRET_SIZE];
    need(bytes != NULL, "out of memory");
    const size_t size = encode_offer(bytes);
    memset(secret, SECRET_BYTE, sizeof(secret));
    expect("offer.prefer", "2");
    expect("offer.message_size", "4096");
    expect("offer.max_send", "4294967296");
    expect("offer.max_recv", "65536");
    expect("offer.require", "0x%016x", RDMUX_CAP_SEND);
    expect("offer.require_native", "0x%016x", RDMUX_CAP_WRITE);
    expect("offer.liveness_ms", "10000");
    expect("offer.data_sockets", "3");
    expect("offer.path_ms", "2000");
    expect("offer.setup_ms", "20000");
    expect("offer.encrypted_only", "1");
    expect_bytes("offer.private", "hello", 5);
    expect("offer.filter1", "!ib");
    expect("offer.filter2", "shm,tcp");
    expect_bytes("offer.secret", secret, sizeof(secret));
    expect("offer.max_send_is_wish", "1");
    expect("path.provider", "tcp");
    expect("path.provider", "roce");
    expect("path.flags", "0x00000008");
    expect("path.device", "sockets");
    expect("path.address", "192.0.2.1");
    expect("path.reason", "%d", RDMUX_REASON_USABLE);
    expect("path.reason", "%d", RDMUX_REASON_NO_DEVICE);
    expect("path.software", "1");
    expect("path.text", "no device");
    expect("path.hint", "plug one in");
    expect("path.bandwidth", "5000000000");
    expect("path.latency_ns", "5000");
    expect("path.mtu", "1500");
    expect("path.native", "0x%016x", RDMUX_CAP_SEND | RDMUX_CAP_TARGET_PASSIVE);
    expect("path.emulated", "0x%016x", RDMUX_CAP_READ);
    expect("path.max_message", "1048576");
    expect("path.max_sge", "8");
    expect("path.max_inline", "256");
    expect("path.security", "%d", RDMUX_SECURITY_ENCRYPTED);
    expect("path.reach", "070809");
    expect("path.encrypted", "1");
    add_control(bytes, size);
    free(bytes);
}

static void add_ranking(void)
{
    static struct rdmux_match matches[2];
    static uint8_t bytes[RDMUX_RANKING_FRAME_MAX];
    matches[0] = (struct rdmux_match){ .ours = 0,
                                       .theirs = 1,
                                       .rank = 1,
                                       .cost_is_measured = 1,
                                       .reason = RDMUX_REASON_CHOSEN,
                                       .stage = RDMUX_STAGE_MATCH,
                                       .cost_ns = UINT64_C(5000000000),
                                       .native = RDMUX_CAP_SEND | RDMUX_CAP_SRQ,
                                       .emulated = RDMUX_CAP_FENCE,
                                       .text = "best",
                                       .hint = "none needed" };
    matches[1] = (struct rdmux_match){ .ours = 1,
                                       .theirs = RDMUX_MATCH_NO_PATH,
                                       .reason = RDMUX_REASON_PEER_HAS_NONE,
                                       .stage = RDMUX_STAGE_PROBE };
    const size_t size = rdmux_ranking_encode(matches, 2, bytes);
    expect("ranking.entries", "2");
    expect("candidate.rank", "1");
    expect("candidate.rank", "0");
    expect("candidate.reason", "%d", RDMUX_REASON_CHOSEN);
    expect("candidate.reason", "%d", RDMUX_REASON_PEER_HAS_NONE);
    expect("candidate.stage", "%d", RDMUX_STAGE_MATCH);
    expect("candidate.stage", "%d", RDMUX_STAGE_PROBE);
    expect("candidate.acceptor_path", "0");
    expect("candidate.acceptor_path", "1");
    expect("candidate.connector_path", "1");
    expect("candidate.connector_path", "65535");
    expect("candidate.measured", "0x0001");
    expect("candidate.measured", "0x0000");
    expect("candidate.cost_ns", "5000000000");
    expect("candidate.cost_ns", "0");
    expect("candidate.native", "0x%016x", RDMUX_CAP_SEND | RDMUX_CAP_SRQ);
    expect("candidate.native", "0x%016x", 0);
    expect("candidate.emulated", "0x%016x", RDMUX_CAP_FENCE);
    expect("candidate.emulated", "0x%016x", 0);
    expect("capability_names", "SEND SRQ");
    expect("capability_names", "FENCE");
    expect("capability_names", "none");
    expect("capability_names", "none");
    expect("candidate.text", "best");
    expect("candidate.hint", "none needed");
    add_control(bytes, size);
}

static const struct tcp_description description = {
    .sockets = 3, .answers = 32, .on_demand = 1, .encrypted = 0, .early = 1
};

static void add_attempt_frame(const struct rdmux_attempt_frame *frame)
{
    uint8_t bytes[RDMUX_ATTEMPT_FRAME_MAX];
    const size_t size = rdmux_attempt_frame_encode(frame, bytes);
    if (frame->type != RDMUX_FRAME_NO_PATH) {
        expect("attempt", "%u", frame->attempt);
    }
    switch (frame->type) {
    case RDMUX_FRAME_TRY:
    case RDMUX_FRAME_READY:
        if (frame->type == RDMUX_FRAME_TRY) {
            expect("acceptor_path", "%u", frame->acceptor_path);
            expect("connector_path", "%u", frame->connector_path);
        }
        expect_bytes("connection_data", frame->bytes, frame->size);
        expect("tcp.version", "1");
        expect("tcp.sockets", "3");
        expect("tcp.answers", "32");
        expect("tcp.flags", "0x05");
        expect("tcp.on_demand", "1");
        expect("tcp.encrypted", "0");
        expect("tcp.early", "1");
        break;
    case RDMUX_FRAME_UP:
        expect_bytes("description", frame->bytes, frame->size);
        break;
    case RDMUX_FRAME_WRITTEN:
        expect_bytes("nonce", frame->nonce, sizeof(frame->nonce));
        break;
    case RDMUX_FRAME_COMMIT:
    case RDMUX_FRAME_CONFIRM:
        expect("hash_kind", "%u", frame->hash_kind);
        expect_bytes("hash", frame->hash, sizeof(frame->hash));
        break;
    case RDMUX_FRAME_FAILED:
        expect("stage", "%u", frame->stage);
        expect("reason", "%u", frame->reason);
        expect("status", "%u", frame->status);
        if (frame->text[0] != '\0') {
            expect("text", "%s", frame->text);
        }
        break;
    default:
        break;
    }
    add_control(bytes, size);
}

static void add_attempt_frames(void)
{
    static const enum rdmux_frame_type types[] = {
        RDMUX_FRAME_TRY,     RDMUX_FRAME_READY,  RDMUX_FRAME_UP,
        RDMUX_FRAME_WRITTEN, RDMUX_FRAME_PROVED, RDMUX_FRAME_COMMIT,
        RDMUX_FRAME_CONFIRM, RDMUX_FRAME_FAILED, RDMUX_FRAME_NO_PATH,
    };
    struct rdmux_attempt_frame frame = { .attempt = 65537,
                                         .acceptor_path = 0,
                                         .connector_path = 1,
                                         .stage = RDMUX_STAGE_PROOF,
                                         .reason = RDMUX_REASON_PROOF_FAILED,
                                         .status = RDMUX_IO,
                                         .hash_kind = RDMUX_HASH_SHA256,
                                         .text = "not what was sent" };
    frame.size = TCP_DESCRIPTION_SIZE;
    rdmux_tcp_description_encode(&description, frame.bytes);
    fill(frame.nonce, sizeof(frame.nonce), 0x21);
    fill(frame.hash, sizeof(frame.hash), 0x61);
    for (size_t i = 0; i < RDMUX_COUNT_OF(types); i++) {
        frame.type = types[i];
        add_attempt_frame(&frame);
    }
    frame.type = RDMUX_FRAME_FAILED;
    frame.text[0] = '\0';
    for (uint16_t reason = 0; strcmp(rdmux_reason_name(reason), "?") != 0; reason++) {
        frame.reason = reason;
        frame.stage = reason % (RDMUX_STAGE_COMMIT + 1);
        fprintf(expected, "info\tFAILED (attempt 65537, %s)\n",
                rdmux_reason_name((enum rdmux_reason)reason));
        add_attempt_frame(&frame);
    }
}

static void add_message(const struct rdmux_message *message)
{
    uint8_t bytes[RDMUX_MESSAGE_MAX];
    add_control(bytes, rdmux_message_encode(message, bytes));
}

static void expect_resume(const struct rdmux_message *message)
{
    expect("steady", "%d", message->is_steady);
    expect("epoch", "%u", message->epoch);
    expect("total", "%" PRIu64, message->count);
    expect_bytes("proof", message->proof, sizeof(message->proof));
}

static void add_messages(void)
{
    struct rdmux_message message = { .id = 77,
                                     .status = RDMUX_DENIED,
                                     .access = RDMUX_ACCESS_REMOTE_READ | RDMUX_ACCESS_REMOTE_WRITE,
                                     .epoch = 5,
                                     .description_length = 24,
                                     .count = 9,
                                     .length = UINT64_C(0x123456789a),
                                     .region = UINT64_C(0xfedcba9876),
                                     .is_steady = true,
                                     .text = "the cause" };
    fill(message.proof, sizeof(message.proof), 0x11);
    fill(&message.token, sizeof(message.token), 0x31);
    fill(message.description, sizeof(message.description), 0x71);
    for (unsigned type = RDMUX_FRAME_REJECT; type < TCP_MARK; type++) {
        const uint8_t header[RDMUX_FRAME_HEADER_SIZE] = { (uint8_t)type };
        if (strcmp(rdmux_frame_name(header, sizeof(header)), "?") == 0) {
            continue;
        }
        message.type = (enum rdmux_frame_type)type;
        switch (message.type) {
        case RDMUX_FRAME_REJECT:
            expect("reject.reason", "%u", message.status);
            expect_bytes("reject.private", message.description, message.description_length);
            break;
        case RDMUX_FRAME_IMPORT:
            expect("id", "77");
            expect_bytes("token", &message.token, sizeof(message.token));
            break;
        case RDMUX_FRAME_IMPORTED:
            expect("id", "77");
            expect("status", "%u", message.status);
            expect("access", "0x%08x", message.access);
            expect("access_names", "REMOTE_READ REMOTE_WRITE");
            expect("length", "%" PRIu64, message.length);
            expect("region", "%" PRIu64, message.region);
            expect_bytes("description", message.description, message.description_length);
            break;
        case RDMUX_FRAME_REVOKE:
        case RDMUX_FRAME_REVOKED:
            expect("id", "77");
            expect("region", "%" PRIu64, message.region);
            break;
        case RDMUX_FRAME_FAULT:
        case RDMUX_FRAME_END:
            expect("status", "%u", message.status);
            expect("text", "%s", message.text);
            break;
        case RDMUX_FRAME_SILENT:
            message.id = RDMUX_SILENT_ANSWERS;
            expect("silent", "1");
            break;
        case RDMUX_FRAME_MOVE:
            expect("status", "%u", message.status);
            expect("epoch", "5");
            expect("total", "9");
            expect("text", "%s", message.text);
            break;
        case RDMUX_FRAME_RECEIVED:
            expect("epoch", "5");
            expect("total", "9");
            break;
        case RDMUX_FRAME_RESUME:
        case RDMUX_FRAME_RESUMED:
            expect_resume(&message);
            break;
        case RDMUX_FRAME_BACK:
            expect("status", "%u", message.status);
            expect("epoch", "5");
            expect("rank", "9");
            break;
        case RDMUX_FRAME_RELEASED:
            expect("id", "77");
            expect("count", "9");
            expect("region", "%" PRIu64, message.region);
            break;
        default: /* HEARTBEAT and ENDED are empty */
            break;
        }
        add_message(&message);
        message.id = 77;
    }
    message.type = RDMUX_FRAME_END;
    message.text[0] = '\0';
    for (uint32_t status = 0; status <= RDMUX_IO; status++) {
        if (status == RDMUX_AGAIN || status == RDMUX_IN_PROGRESS) {
            continue; /* no frame may have them */
        }
        message.status = status;
        expect("status", "%u", status);
        fprintf(expected, "info\tEND (%s)\n",
                rdmux_status_name((enum rdmux_status)status) + strlen("RDMUX_"));
        add_message(&message);
    }
}

static struct rdmux_join join_of(uint32_t index)
{
    struct rdmux_join join = { .epoch = 4, .attempt = 65537, .index = index };
    memset(join.secret, SECRET_BYTE, sizeof(join.secret));
    return join;
}

static void add_join(void)
{
    struct rdmux_join join = join_of(0);
    uint8_t bytes[RDMUX_JOIN_SIZE];
    static const uint8_t no_code[RDMUX_SECRET_SIZE];
    rdmux_join_encode(&join, bytes);
    expect("join.version", "1");
    expect("join.sealed", "0");
    expect_bytes("join.secret", join.secret, sizeof(join.secret));
    expect("join.epoch", "4");
    expect("join.attempt", "65537");
    expect("join.index", "0");
    expect_bytes("join.code", no_code, sizeof(no_code));
    expect("name", "JOIN");
    add(bytes, sizeof(bytes), true);
}

/* -------------------------------------------------------------------------------- data sockets */

static const char *const kinds[] = {
    [TCP_SEND] = "SEND",
    [TCP_WRITE] = "WRITE",
    [TCP_MORE] = "MORE",
    [TCP_FLUSH] = "FLUSH",
    [TCP_READ] = "READ",
    [TCP_FETCH_ADD] = "FETCH_ADD",
    [TCP_COMPARE_SWAP] = "COMPARE_SWAP",
    [TCP_DATA] = "DATA",
    [TCP_RESULT] = "RESULT",
    [TCP_ACK] = "ACK",
    [TCP_CREDIT] = "CREDIT",
    [TCP_ASK] = "ASK",
    [TCP_RECALL] = "RECALL",
    [TCP_RETURN] = "RETURN",
    [TCP_NAK] = "NAK",
    [TCP_PING] = "PING",
};

static bool takes_payload(uint8_t kind)
{
    return kind == TCP_SEND || kind == TCP_WRITE || kind == TCP_MORE || kind == TCP_DATA;
}

static void add_data(uint8_t kind, uint8_t flags, uint64_t length)
{
    static uint8_t bytes[FRAME_MAX];
    uint8_t key[TCP_KEY_SIZE];
    const struct tcp_frame frame = { .kind = kind,
                                     .flags = flags,
                                     .credits = (uint8_t)(kind + 3),
                                     .imm = 0xcafe0000U + kind,
                                     .length = length,
                                     .key = key,
                                     .offset = UINT64_C(0x1122334455),
                                     .operand = UINT64_C(0x8877665544332211),
                                     .expected = 21 };
    fill(key, sizeof(key), 0xb0);
    size_t size = rdmux_tcp_frame_encode(&frame, bytes);
    const size_t header = size;
    if (takes_payload(kind) || kind == TCP_PING) {
        fill(bytes + size, length, kind);
        size += length;
    }
    expect("name", "%s", kinds[kind]);
    expect("data.type", "0x%02x", TCP_MARK | kind | flags);
    expect("data.kind", "%s", kinds[kind]);
    expect("data.striped", "%d", (flags & TCP_STRIPED) != 0);
    expect("data.placed", "%d", (flags & TCP_PLACED) != 0);
    expect("data.has_imm", "%d", (flags & TCP_IMM) != 0);
    expect("data.credits", "%u", frame.credits);
    expect(kind == TCP_NAK ? "data.status" : "data.length", "%" PRIu64, length);
    if (kind == TCP_WRITE || kind == TCP_READ || kind == TCP_FETCH_ADD || kind == TCP_COMPARE_SWAP) {
        expect_bytes("data.key", key, sizeof(key));
        expect("data.offset", "0x0000001122334455");
    }
    if (kind == TCP_FETCH_ADD || kind == TCP_COMPARE_SWAP || kind == TCP_RESULT || kind == TCP_NAK) {
        expect(kind == TCP_FETCH_ADD      ? "data.add"
               : kind == TCP_COMPARE_SWAP ? "data.desired"
               : kind == TCP_RESULT       ? "data.before"
                                          : "data.request",
               "%" PRIu64, frame.operand);
    }
    if (kind == TCP_COMPARE_SWAP) {
        expect("data.expected", "21");
    }
    if ((flags & TCP_IMM) != 0) {
        expect("data.imm", "0x%08x", frame.imm);
    }
    if (kind == TCP_PING && length != 0) {
        expect_bytes("data.filler", bytes + header, length);
    }
    if (takes_payload(kind) && length != 0) {
        expect("data.payload_length", "%" PRIu64, length);
        expect_bytes("data.payload", bytes + header, length);
    }
    add(bytes, size, true);
}

static void add_data_frames(void)
{
    for (uint8_t kind = TCP_SEND; kind <= TCP_PING; kind++) {
        const uint8_t all = kind == TCP_SEND || kind == TCP_WRITE ? TCP_PLACED | TCP_IMM
                            : kind == TCP_FLUSH                   ? TCP_PLACED
                                                                  : 0;
        const uint64_t length = kind == TCP_FETCH_ADD || kind == TCP_COMPARE_SWAP ||
                                        kind == TCP_RESULT
                                    ? 8
                                : kind == TCP_FLUSH || kind == TCP_ASK || kind == TCP_RECALL ? 0
                                : kind == TCP_NAK ? (uint64_t)RDMUX_OUT_OF_RANGE
                                                  : 100;
        add_data(kind, all, length);
    }
    add_data(TCP_SEND, 0, 0);
    add_data(TCP_WRITE, 0, 60000); /* longer than a segment */
    add_data(TCP_PING, 0, 0);
}

/* --------------------------------------------------------------------------------------- pcap-ng */

static struct rdmux_fabric *open_capturing(const char *folder, const char *words, const char *name)
{
    char setting[PATH_MAX_BYTES];
    struct rdmux_fabric_attr attr = RDMUX_FABRIC_ATTR_INIT;
    struct rdmux_fabric *fabric = NULL;
    attr.flags = RDMUX_FABRIC_IGNORE_ENVIRONMENT | RDMUX_FABRIC_NO_DEFAULT_PLUGINS;
    snprintf(setting, sizeof(setting), "%s:%s/%s", words, folder, name);
    attr.capture = setting;
    need(rdmux_fabric_open(&attr, &fabric) == RDMUX_OK, "no fabric");
    return fabric;
}

/* Two ends of a connection over loopback. */
static void connect_pair(int pair[2])
{
    struct sockaddr_in address = { .sin_family = AF_INET,
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t size = sizeof(address);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    pair[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0 || pair[0] < 0 ||
        bind(listener, (struct sockaddr *)&address, sizeof(address)) != 0 ||
        listen(listener, 1) != 0 ||
        getsockname(listener, (struct sockaddr *)&address, &size) != 0 ||
        connect(pair[0], (struct sockaddr *)&address, size) != 0) {
        die("loopback");
    }
    pair[1] = accept(listener, NULL, NULL);
    if (pair[1] < 0) {
        die("accept");
    }
    close(listener);
}

/* Control frames and data go over sockets of their own. All come from the acceptor of the control
 * channel, so that its OFFER has the paths of its TRY. */
static void write_pcapng(const char *folder)
{
    struct rdmux_fabric *fabric = open_capturing(folder, "secrets,snap=65536", "rdmux.pcapng");
    int control[2];
    int data[2];
    connect_pair(control);
    connect_pair(data);
    for (size_t i = 0; i < frame_count; i++) {
        const struct frame *frame = &frames[i];
        if (frame->is_data) {
            rdmux_capture_write(fabric, data[0], RDMUX_CAPTURE_OUT, frame->bytes, frame->size,
                                frame->size);
        } else {
            rdmux_capture_control(fabric, control[0], RDMUX_CAPTURE_OUT, frame->bytes, frame->size,
                                  false);
        }
    }
    (void)rdmux_fabric_close(fabric);
    for (int i = 0; i < 2; i++) {
        close(control[i]);
        close(data[i]);
    }
}

/* ----------------------------------------------------------------------------------- plain pcap */

enum { IP_TCP_SIZE = 40, SEGMENT_MAX = 1400, LINK_RAW = 101 };

static void put(FILE *out, const void *bytes, size_t size)
{
    if (fwrite(bytes, 1, size, out) != size) {
        die("write");
    }
}

static FILE *pcap_begin(const char *folder, const char *name)
{
    const uint32_t header[6] = { 0xa1b2c3d4, 2 | 4 << 16, 0, 0, 65535, LINK_RAW };
    FILE *out = create(folder, name);
    put(out, header, sizeof(header));
    return out;
}

/* One direction of a connection. */
struct line {
    uint16_t from;
    uint16_t to;
    uint32_t sequence;
};

/* kept: bytes of the packet that are captured. */
static void put_segment(FILE *out, struct line *line, const uint8_t *bytes, size_t size, size_t kept)
{
    static uint32_t seconds = 1700000000;
    const size_t whole = IP_TCP_SIZE + size;
    const size_t have = kept < whole ? kept : whole;
    uint8_t packet[IP_TCP_SIZE + SEGMENT_MAX] = { 0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, IPPROTO_TCP };
    const uint32_t head[4] = { seconds++, 0, (uint32_t)have, (uint32_t)whole };
    rdmux_store_be16(packet + 2, (uint16_t)whole);
    rdmux_store_be32(packet + 12, INADDR_LOOPBACK);
    rdmux_store_be32(packet + 16, INADDR_LOOPBACK);
    rdmux_store_be16(packet + 20, line->from);
    rdmux_store_be16(packet + 22, line->to);
    rdmux_store_be32(packet + 24, line->sequence);
    rdmux_store_be32(packet + 28, 1);
    packet[32] = 0x50; /* 20 bytes of header */
    packet[33] = 0x18; /* PSH, ACK */
    rdmux_store_be16(packet + 34, 65535);
    memcpy(packet + IP_TCP_SIZE, bytes, size);
    put(out, head, sizeof(head));
    put(out, packet, have);
    line->sequence += (uint32_t)size;
}

/* Cuts bytes into segments whose sizes repeat 1, 7, 60, 1400. */
static void put_stream(FILE *out, struct line *line, const uint8_t *bytes, size_t size)
{
    static const size_t sizes[] = { 1, 7, 60, SEGMENT_MAX };
    static size_t turn;
    while (size != 0) {
        const size_t wanted = sizes[turn++ % RDMUX_COUNT_OF(sizes)];
        const size_t part = size < wanted ? size : wanted;
        put_segment(out, line, bytes, part, SIZE_MAX);
        bytes += part;
        size -= part;
    }
}

/* The bytes of all frames of a socket, one behind the other. */
static uint8_t *join_bytes(bool is_data, size_t *size)
{
    *size = 0;
    for (size_t i = 0; i < frame_count; i++) {
        *size += frames[i].is_data == is_data ? frames[i].size : 0;
    }
    uint8_t *all = malloc(*size);
    need(all != NULL, "out of memory");
    size_t at = 0;
    for (size_t i = 0; i < frame_count; i++) {
        if (frames[i].is_data == is_data) {
            memcpy(all + at, frames[i].bytes, frames[i].size);
            at += frames[i].size;
        }
    }
    return all;
}

static void write_pcap(const char *folder)
{
    struct line control = { .from = 40000, .to = PORT, .sequence = 1000 };
    struct line data = { .from = 40001, .to = PORT, .sequence = UINT32_MAX - 5000 };
    FILE *out = pcap_begin(folder, "tcp.pcap");
    for (int is_data = 0; is_data < 2; is_data++) {
        size_t size = 0;
        uint8_t *bytes = join_bytes(is_data != 0, &size);
        /* The heuristic sees the first bytes of a connection together, as they are sent. */
        put_segment(out, is_data ? &data : &control, bytes, RDMUX_JOIN_SIZE, SIZE_MAX);
        put_stream(out, is_data ? &data : &control, bytes + RDMUX_JOIN_SIZE, size - RDMUX_JOIN_SIZE);
        free(bytes);
    }
    fclose(out);
}

/* A payload of 300,000 bytes over three sockets, whose number only the set-up tells; a frame behind
 * it on socket 0. */
static void write_striped(const char *folder)
{
    enum { LENGTH = 300000 };
    static uint8_t bytes[LENGTH + 64];
    FILE *out = pcap_begin(folder, "striped.pcap");
    struct line control = { .from = 40000, .to = PORT, .sequence = 1 };
    for (size_t i = 0; i < frame_count; i++) {
        const struct frame *frame = &frames[i];
        if (!frame->is_data && (frame->bytes[0] == 'R' || frame->bytes[0] == RDMUX_FRAME_OFFER ||
                                frame->bytes[0] == RDMUX_FRAME_TRY)) {
            put_segment(out, &control, frame->bytes, frame->size, SIZE_MAX);
        }
    }
    for (uint32_t i = 0; i < description.sockets; i++) {
        struct line line = { .from = (uint16_t)(40001 + i), .to = PORT, .sequence = 1 };
        struct rdmux_join join = join_of(i);
        const struct tcp_frame frame = { .kind = TCP_SEND, .flags = TCP_STRIPED, .length = LENGTH };
        const struct tcp_frame next = { .kind = TCP_ACK, .length = 17 };
        uint8_t hello[RDMUX_JOIN_SIZE];
        uint64_t begin = 0;
        uint64_t end = 0;
        rdmux_join_encode(&join, hello);
        put_segment(out, &line, hello, sizeof(hello), SIZE_MAX);
        size_t size = i == 0 ? rdmux_tcp_frame_encode(&frame, bytes) : 0;
        rdmux_tcp_share(LENGTH, description.sockets, i, &begin, &end);
        memset(bytes + size, 0x55, end - begin);
        size += end - begin;
        size += i == 0 ? rdmux_tcp_frame_encode(&next, bytes + size) : 0;
        put_stream(out, &line, bytes, size);
    }
    fclose(out);
}

/* --------------------------------------------------------------------------- cuts, wrong lengths */

static const struct tcp_frame few[] = {
    { .kind = TCP_SEND, .length = 5 },
    { .kind = TCP_NAK, .length = RDMUX_OUT_OF_RANGE, .operand = 3 },
    { .kind = TCP_COMPARE_SWAP, .length = 8 },
    { .kind = TCP_PING, .length = 3 },
    { .kind = TCP_ACK, .length = 1 },
};

/* JOIN and a few frames of data; or HELLO and empty control frames. Returns the number of bytes. */
static size_t few_frames(bool is_data, uint8_t *out)
{
    static const uint8_t key[TCP_KEY_SIZE];
    size_t size;
    if (!is_data) {
        memcpy(out, frames[0].bytes, RDMUX_HELLO_SIZE);
        size = RDMUX_HELLO_SIZE;
        for (int i = 0; i < 3; i++) {
            rdmux_frame_header_encode(i == 1 ? RDMUX_FRAME_ENDED : RDMUX_FRAME_HEARTBEAT, 0, 0,
                                      out + size);
            size += RDMUX_FRAME_HEADER_SIZE;
        }
        return size;
    }
    struct rdmux_join join = join_of(0);
    rdmux_join_encode(&join, out);
    size = RDMUX_JOIN_SIZE;
    for (size_t i = 0; i < RDMUX_COUNT_OF(few); i++) {
        struct tcp_frame frame = few[i];
        frame.key = key;
        size += rdmux_tcp_frame_encode(&frame, out + size);
        if (frame.kind == TCP_SEND || frame.kind == TCP_PING) {
            memset(out + size, 0x20, frame.length);
            size += frame.length;
        }
    }
    return size;
}

/* One connection whose bytes are cut behind `first` and, unless it is 0, `second` more bytes. */
static void put_cut(FILE *out, struct line line, const uint8_t *bytes, size_t size, size_t first,
                    size_t second, bool exchange)
{
    struct line later = line;
    put_segment(out, &line, bytes, first, SIZE_MAX);
    if (second == 0 || first + second >= size) {
        put_segment(out, &line, bytes + first, size - first, SIZE_MAX);
        return;
    }
    later.sequence += (uint32_t)(first + second);
    line.sequence = later.sequence - (uint32_t)second;
    if (exchange) {
        put_segment(out, &later, bytes + first + second, size - first - second, SIZE_MAX);
    }
    put_segment(out, &line, bytes + first, second, SIZE_MAX);
    if (!exchange) {
        put_segment(out, &later, bytes + first + second, size - first - second, SIZE_MAX);
    }
}

/* The first segment has at least the eight bytes by which the dissector knows a connection. */
static void write_cuts(const char *folder, const char *name, bool exchange)
{
    static const size_t seconds[] = { 0, 3, 13 };
    uint8_t bytes[1024];
    uint16_t port = 40000;
    FILE *out = pcap_begin(folder, name);
    for (int is_data = 0; is_data < 2; is_data++) {
        const size_t size = few_frames(is_data != 0, bytes);
        for (size_t first = 8; first < size; first++) {
            for (size_t i = exchange ? 1 : 0; i < RDMUX_COUNT_OF(seconds); i++) {
                const struct line line = { .from = ++port, .to = PORT, .sequence = 1 };
                put_cut(out, line, bytes, size, first, seconds[i], exchange);
            }
        }
    }
    fclose(out);
}

/* Wrong frames, as their first bytes and their size, with what the dissector has to say of them. The
 * frame behind comes with the next segment: where a frame with a wrong length ends, no one knows. */
static const struct {
    const char *says;
    size_t size;
    uint8_t bytes[24];
} wrong[] = {
    { "longer than allowed", 8, { RDMUX_FRAME_HEARTBEAT, 0, 0, 0, 0, 1, 0, 1 } },
    { "longer than allowed", 24, { RDMUX_FRAME_OFFER, 0, 0, 0, 0xff, 0xff, 0xff, 0xff } },
    { "too short", 8, { RDMUX_FRAME_TRY } },
    { "too short", 14, { RDMUX_FRAME_OFFER, 0, 0, 0, 0, 0, 0, 6, 0, 1, 0, 4, 0, 0 } },
    { "too short", 12, { RDMUX_FRAME_OFFER, 0, 0, 0, 0, 0, 0, 4, 0, 16, 0xff, 0xff } },
    { "too short", 16, { RDMUX_FRAME_READY, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 1, 0xff, 0xff, 0, 0 } },
    { "too long", 12, { RDMUX_FRAME_ENDED, 0, 0, 0, 0, 0, 0, 4 } },
    { "too much filler", 20, { TCP_MARK | TCP_PING, 0, 0, 0, 0, 0, 0, TCP_PING_MAX + 1 } },
    { "too much filler", 8, { TCP_MARK | TCP_PING, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff } },
    { "Begins no frame", 24, { TCP_MARK | TCP_NAK | TCP_IMM, 0, 0xff, 0xff, 0xff, 0xff } },
};

/* expected: lines "wrong<tab>WHAT THE DISSECTOR SAYS", in the order of the connections. */
static void write_lengths(const char *folder)
{
    uint16_t port = 40000;
    uint8_t good[TCP_HEADER_MAX];
    FILE *out = pcap_begin(folder, "lengths.pcap");
    const struct tcp_frame ack = { .kind = TCP_ACK, .length = 1 };
    const size_t good_size = rdmux_tcp_frame_encode(&ack, good);
    for (size_t i = 0; i < RDMUX_COUNT_OF(wrong); i++) {
        struct line line = { .from = ++port, .to = PORT, .sequence = 1 };
        struct rdmux_join join = join_of(0);
        uint8_t bytes[RDMUX_JOIN_SIZE];
        rdmux_join_encode(&join, bytes);
        put_segment(out, &line, bytes, sizeof(bytes), SIZE_MAX);
        put_segment(out, &line, wrong[i].bytes, wrong[i].size, SIZE_MAX);
        put_segment(out, &line, good, good_size, SIZE_MAX);
        fprintf(expected, "wrong\t%s\n", wrong[i].says);
    }
    /* The capture has two bytes of the four that a frame begins with, behind a whole one. */
    struct line line = { .from = ++port, .to = PORT, .sequence = 1 };
    uint8_t bytes[RDMUX_JOIN_SIZE + 2 * TCP_HEADER_MAX];
    struct rdmux_join join = join_of(0);
    rdmux_join_encode(&join, bytes);
    memcpy(bytes + RDMUX_JOIN_SIZE, good, good_size);
    memcpy(bytes + RDMUX_JOIN_SIZE + good_size, good, good_size);
    const size_t size = RDMUX_JOIN_SIZE + good_size + 4;
    put_segment(out, &line, bytes, size, IP_TCP_SIZE + size - 2);
    fprintf(expected, "wrong\tNot captured\n");
    fclose(out);
}

/* -------------------------------------------------------------------------------------- hostile */

static uint64_t random_state = 20;

static uint32_t next_random(uint32_t below)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(random_state >> 33) % below;
}

/* Calls each() with frames that are cut, told shorter or longer than they are, and changed. */
static void for_hostile(void (*each)(void *to, const uint8_t *bytes, size_t kept, size_t length),
                        void *to)
{
    static uint8_t bytes[FRAME_MAX];
    for (size_t i = 0; i < frame_count; i++) {
        const struct frame *frame = &frames[i];
        const size_t size = frame->size < 512 ? frame->size : 512;
        const size_t step = size < 96 ? 1 : size / 24;
        for (size_t kept = 1; kept <= size; kept += step) {
            each(to, frame->bytes, kept, frame->size); /* the capture is cut */
            each(to, frame->bytes, kept, kept);        /* the frame is */
        }
        for (int changes = 0; changes < 40; changes++) {
            memcpy(bytes, frame->bytes, size);
            for (uint32_t k = 0; k <= next_random(4); k++) {
                bytes[next_random((
                    uint32_t)(size < 24 || changes % 2 ? size : 24))] = (uint8_t)(next_random(4) == 0
                                                                                      ? 0xff
                                                                                      : next_random(
                                                                                            256));
            }
            each(to, bytes, size, size);
        }
    }
}

struct hostile_file {
    struct rdmux_fabric *fabric;
    int socket;
};

static void write_hostile_frame(void *to, const uint8_t *bytes, size_t kept, size_t length)
{
    const struct hostile_file *file = to;
    rdmux_capture_write(file->fabric, file->socket, RDMUX_CAPTURE_IN, bytes, kept, length);
}

/* Each on a connection of its own that begins as rdmux does. */
static void write_hostile_segment(void *to, const uint8_t *bytes, size_t kept, size_t length)
{
    static uint16_t port = 40000; /* no other dissector claims those up to 41600 */
    static uint32_t calls;
    if (calls++ % 5 != 0) { /* a fifth is enough */
        return;
    }
    struct line line = { .from = ++port, .to = PORT, .sequence = 1 };
    struct rdmux_join join = join_of(0);
    uint8_t hello[RDMUX_JOIN_SIZE];
    rdmux_join_encode(&join, hello);
    put_segment(to, &line, hello, sizeof(hello), SIZE_MAX);
    put_segment(to, &line, bytes, length < SEGMENT_MAX ? length : SEGMENT_MAX, IP_TCP_SIZE + kept);
}

static void write_hostile(const char *folder)
{
    int pair[2];
    struct hostile_file file = { .fabric = open_capturing(folder, "secrets", "hostile.pcapng") };
    connect_pair(pair);
    file.socket = pair[0];
    for_hostile(write_hostile_frame, &file);
    (void)rdmux_fabric_close(file.fabric);
    close(pair[0]);
    close(pair[1]);
    FILE *out = pcap_begin(folder, "hostile.pcap");
    for_hostile(write_hostile_segment, out);
    fclose(out);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fputs("usage: wire_frames FOLDER\n", stderr);
        return 2;
    }
    expected = create(argv[1], "expected");
    add_hello();
    add_offer();
    add_ranking();
    add_attempt_frames();
    add_messages();
    add_join();
    add_data_frames();
    write_pcapng(argv[1]);
    write_pcap(argv[1]);
    write_striped(argv[1]);
    write_cuts(argv[1], "cuts.pcap", false);
    write_cuts(argv[1], "unordered.pcap", true);
    write_lengths(argv[1]);
    fclose(expected);
    write_hostile(argv[1]);
    for (size_t i = 0; i < frame_count; i++) {
        free(frames[i].bytes);
    }
    return 0;
}
