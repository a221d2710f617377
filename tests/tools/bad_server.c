/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * A server for one `rdmux copy` of one file, that is old or lies.
 *
 *   bad_server --list  names the ways
 *   bad_server WAY     prints "listening on ADDRESS", serves one client, and prints what it has got:
 *                      the offset at which the file began, or "end" if the client has left before;
 *                      status 0 then
 */
#include "protocol.h"

#include <rdmux/rdmux.h>

#include <stdio.h>
#include <string.h>

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

enum { ROUNDS = 900, ROUND_MS = 100, RECEIVES = 8 };

static struct rdmux_fabric *fabric;
static struct rdmux_cq *cq;
static struct rdmux_listener *listener;
static struct rdmux_ep *ep;
static uint8_t in[RECEIVES][PROTO_COPY_CHUNK];
static uint8_t out[4][PROTO_CONTROL_MAX];
static unsigned out_used;

static bool good(enum rdmux_status status, const char *what)
{
    if (status != RDMUX_OK) {
        printf("%s: %s: %s\n", what, rdmux_status_name(status), rdmux_last_error());
    }
    return status == RDMUX_OK;
}

static bool listen_and_accept(void)
{
    char address[RDMUX_ADDRESS_MAX];
    struct rdmux_fabric_attr attr = RDMUX_FABRIC_ATTR_INIT;
    struct rdmux_ep_attr ep_attr = RDMUX_EP_ATTR_INIT;
    ep_attr.recv_depth = 2 * RECEIVES;
    if (!good(rdmux_fabric_open(&attr, &fabric), "fabric_open") ||
        !good(rdmux_cq_create(fabric, NULL, &cq), "cq_create") ||
        !good(rdmux_listen(fabric, "127.0.0.1:0", NULL, &listener), "listen") ||
        !good(rdmux_listener_address(listener, address, sizeof(address)), "address")) {
        return false;
    }
    printf("listening on %s\n", address);
    (void)fflush(stdout);
    if (!good(rdmux_accept(listener, cq, &ep_attr, ROUNDS * ROUND_MS, &ep), "accept")) {
        return false;
    }
    for (unsigned i = 0; i < RECEIVES; i++) {
        if (!good(rdmux_recv(ep, in[i], sizeof(in[i]), NULL, in[i]), "recv")) {
            return false;
        }
    }
    return true;
}

static uint8_t *control(void)
{
    return out[out_used];
}

static bool send_control(size_t length)
{
    return good(rdmux_send_imm(ep, out[out_used++], length, NULL, PROTO_IMM_CONTROL, NULL, 0),
                "send_imm");
}

/* Waits for a message. Returns NULL if the client has left, or nothing comes. */
static const uint8_t *next_message(size_t *length)
{
    for (int round = 0; round < ROUNDS; round++) {
        struct rdmux_wc wc;
        size_t count = 0;
        if (rdmux_cq_wait(cq, &wc, 1, ROUND_MS, &count) != RDMUX_OK) {
            continue;
        }
        if (wc.opcode == RDMUX_WC_RECV && wc.status == RDMUX_OK) {
            *length = (size_t)wc.length;
            return wc.context;
        }
        if (wc.opcode == RDMUX_WC_DISCONNECTED) {
            return NULL;
        }
    }
    return NULL;
}

/* Looks for a record. Returns its payload; NULL: the message has none. */
static const uint8_t *find_record(const uint8_t *bytes, size_t length, uint32_t kind)
{
    for (size_t at = 0; at + PROTO_RECORD_HEADER_SIZE <= length;
         at += PROTO_RECORD_HEADER_SIZE + proto_load32(bytes + at + 4)) {
        if (proto_load32(bytes + at) == kind) {
            return bytes + at + PROTO_RECORD_HEADER_SIZE;
        }
    }
    return NULL;
}

static bool answer(const struct proto_copy_answer *answers, size_t count)
{
    uint8_t bytes[PROTO_ANSWERS_MAX];
    size_t length = 0;
    for (size_t i = 0; i < count; i++) {
        length += proto_copy_answer_encode(&answers[i], bytes + length);
    }
    return send_control(proto_copy_answers_encode(bytes, length, control()));
}

static bool answer_code(enum proto_answer code)
{
    return answer(&(struct proto_copy_answer){ .code = (uint8_t)code }, 1);
}

/* Takes messages until the copy has ended; answers with a result then. */
static bool take_copy(uint32_t kind)
{
    size_t length = 0;
    uint64_t data = 0;
    const uint8_t *message = NULL;
    while ((message = next_message(&length)) != NULL) {
        const uint8_t *file = find_record(message, length, kind);
        const uint8_t *bytes = find_record(message, length, PROTO_RECORD_DATA);
        const uint8_t *end = find_record(message, length, PROTO_RECORD_END);
        data += bytes != NULL ? proto_load32(bytes - 4) : 0;
        if (file != NULL) {
            uint64_t offset = kind == PROTO_RECORD_FILE_AT
                                  ? proto_load64(file + PROTO_ATTRIBUTES_SIZE)
                                  : 0;
            printf("offset %llu\n", (unsigned long long)offset);
        }
        if (end != NULL) {
            struct proto_copy_result result = { .files = proto_load64(end), .bytes = data };
            return send_control(proto_copy_result_encode(&result, control()));
        }
    }
    printf("end\n");
    return true;
}

/* Takes the request, and answers with this version of a copy. */
static bool begin(uint32_t version)
{
    size_t length = 0;
    struct proto_message opened;
    struct proto_copy_request request;
    const uint8_t *message = next_message(&length);
    return message != NULL && proto_open(message, length, &opened) &&
           proto_copy_request_decode(&opened, &request) &&
           send_control(proto_copy_ready_encode(version, control()));
}

/* The same, and answers BEGIN. */
static bool begin_2(void)
{
    size_t length = 0;
    return begin(2) && next_message(&length) != NULL && answer_code(PROTO_ANSWER_TARGET);
}

static bool is_of_version_1(void)
{
    return begin(1) && take_copy(PROTO_RECORD_FILE);
}

static bool is_of_a_version_that_is_not_there_yet(void)
{
    return begin(PROTO_COPY_VERSION + 1) && take_copy(PROTO_RECORD_FILE_AT);
}

static bool answers_before_it_is_asked(void)
{
    return begin(2) && answer_code(PROTO_ANSWER_SEND) && take_copy(PROTO_RECORD_FILE_AT);
}

static bool puts_the_copy_into_a_directory_that_was_not_named(void)
{
    return begin(2) && answer_code(PROTO_ANSWER_INTO) && take_copy(PROTO_RECORD_FILE_AT);
}

static bool answers_more_than_was_asked(void)
{
    static const struct proto_copy_answer answers[] = { { .code = PROTO_ANSWER_SEND },
                                                        { .code = PROTO_ANSWER_SEND } };
    size_t length = 0;
    return begin_2() && next_message(&length) != NULL && answer(answers, 2) &&
           take_copy(PROTO_RECORD_FILE_AT);
}

static bool answers_with_nonsense(void)
{
    uint8_t code = 99;
    return begin_2() && send_control(proto_copy_answers_encode(&code, 1, control())) &&
           take_copy(PROTO_RECORD_FILE_AT);
}

static bool offers_to_continue(uint64_t offset)
{
    size_t length = 0;
    struct proto_copy_answer resume = { .code = PROTO_ANSWER_RESUME, .offset = offset };
    return begin_2() && next_message(&length) != NULL && answer(&resume, 1) &&
           take_copy(PROTO_RECORD_FILE_AT);
}

static bool has_a_part_that_is_no_part_of_the_file(void)
{
    return offers_to_continue(4);
}

static bool has_more_than_the_file(void)
{
    return offers_to_continue(UINT64_MAX);
}

/* As a server that does not know the operation. */
static bool knows_fewer_operations(void)
{
    size_t length = 0;
    const uint8_t *bytes = next_message(&length);
    struct proto_message message;
    struct proto_perf_request request;
    if (bytes == NULL || !proto_open(bytes, length, &message) ||
        !proto_perf_request_decode(&message, &request)) {
        return false;
    }
    printf("operation %u\n", (unsigned)request.op);
    (void)fflush(stdout);
    return send_control(
        proto_error_encode("the request of type 1 is malformed or not known here", control()));
}

static const struct {
    const char *name;
    bool (*run)(void);
} ways[] = {
#define WAY(name)   \
    {               \
#name, name \
    }
    WAY(is_of_version_1),
    WAY(is_of_a_version_that_is_not_there_yet),
    WAY(answers_before_it_is_asked),
    WAY(puts_the_copy_into_a_directory_that_was_not_named),
    WAY(answers_more_than_was_asked),
    WAY(answers_with_nonsense),
    WAY(has_a_part_that_is_no_part_of_the_file),
    WAY(has_more_than_the_file),
    WAY(knows_fewer_operations),
};

int main(int argc, char **argv)
{
    bool passed = false;
    if (argc == 2 && strcmp(argv[1], "--list") == 0) {
        for (size_t i = 0; i < COUNT_OF(ways); i++) {
            puts(ways[i].name);
        }
        return 0;
    }
    for (size_t i = 0; i < COUNT_OF(ways) && argc == 2; i++) {
        if (strcmp(ways[i].name, argv[1]) == 0) {
            passed = listen_and_accept() && ways[i].run();
        }
    }
    if (ep != NULL) {
        (void)!rdmux_ep_shutdown(ep, 2000);
    }
    rdmux_ep_close(ep);
    rdmux_listener_close(listener);
    rdmux_cq_destroy(cq);
    rdmux_fabric_close(fabric);
    return passed ? 0 : 1;
}
