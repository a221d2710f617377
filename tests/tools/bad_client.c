/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * A client that breaks the protocol of `rdmux serve`.
 *
 *   bad_client --list        names the ways
 *   bad_client ADDRESS WAY   status 0 if the server ends the connection within 10 s, and where it
 *                            can, says why
 */
#include "protocol.h"

#include <rdmux/rdmux.h>

#include <stdio.h>
#include <string.h>

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

enum { ROUNDS = 100, ROUND_MS = 100, RECEIVES = 8 };

static struct rdmux_fabric *fabric;
static struct rdmux_cq *cq;
static struct rdmux_ep *ep;
static uint8_t control_in[RECEIVES][PROTO_CONTROL_MAX];
static uint8_t out[PROTO_COPY_CHUNK]; /* of the message under way */

static bool good(enum rdmux_status status, const char *what)
{
    if (status != RDMUX_OK) {
        printf("%s: %s: %s\n", what, rdmux_status_name(status), rdmux_last_error());
    }
    return status == RDMUX_OK;
}

static bool send_control(size_t length)
{
    return good(rdmux_send_imm(ep, out, length, NULL, PROTO_IMM_CONTROL, NULL, 0), "send_imm");
}

static bool send_data(size_t length)
{
    return good(rdmux_send(ep, out, length, NULL, NULL, 0), "send");
}

/* Waits for a control message of the type. */
static bool wait_for(enum proto_type type)
{
    for (int round = 0; round < ROUNDS; round++) {
        struct rdmux_wc wc;
        size_t count = 0;
        if (rdmux_cq_wait(cq, &wc, 1, ROUND_MS, &count) != RDMUX_OK) {
            continue;
        }
        struct proto_message message;
        if (wc.opcode == RDMUX_WC_RECV && wc.status == RDMUX_OK &&
            proto_open(wc.context, (size_t)wc.length, &message) && message.type == type) {
            return true;
        }
        if (wc.opcode == RDMUX_WC_DISCONNECTED) {
            break;
        }
    }
    printf("no message of type %d came\n", (int)type);
    return false;
}

/* The connection must end, after an ERROR if one is expected. */
static bool wait_for_end(bool with_reason)
{
    bool reason = false;
    for (int round = 0; round < ROUNDS; round++) {
        struct rdmux_wc wc;
        size_t count = 0;
        if (rdmux_cq_wait(cq, &wc, 1, ROUND_MS, &count) != RDMUX_OK) {
            continue;
        }
        struct proto_message message;
        struct proto_error error;
        if (wc.opcode == RDMUX_WC_RECV && wc.status == RDMUX_OK &&
            proto_open(wc.context, (size_t)wc.length, &message) &&
            proto_error_decode(&message, &error)) {
            printf("the server says: %s\n", error.text);
            reason = true;
        }
        if (wc.opcode == RDMUX_WC_DISCONNECTED) {
            if (with_reason && !reason) {
                printf("the server ended the connection without saying why\n");
            }
            return reason || !with_reason;
        }
    }
    printf("the server did not end the connection\n");
    return false;
}

static size_t request_of(enum perf_op op, enum perf_test test, uint32_t size, bool verify)
{
    struct proto_perf_request request = {
        .op = (uint8_t)op,
        .test = (uint8_t)test,
        .wait = PERF_SLEEP,
        .verify = verify,
        .depth = 4,
        .size = size,
    };
    return proto_perf_request_encode(&request, out);
}

static bool begin_perf(enum perf_op op, enum perf_test test, uint32_t size, bool verify)
{
    return send_control(request_of(op, test, size, verify)) && wait_for(PROTO_PERF_READY);
}

static bool begin_copy(void)
{
    struct proto_copy_request request = {
        .checksum = checksum_algorithm,
        .files = 1,
        .bytes = 1,
    };
    return send_control(proto_copy_request_encode(&request, out)) && wait_for(PROTO_COPY_READY);
}

static size_t add_entry(size_t at, uint32_t kind, const char *path)
{
    proto_store32(out + at, kind);
    proto_store32(out + at + 4, (uint32_t)(4 + strlen(path)));
    proto_store32(out + at + 8, 0644);
    size_t length = 0;
    for (; path[length] != '\0'; length++) {
        out[at + 12 + length] = (uint8_t)path[length];
    }
    return at + 12 + length;
}

static bool garbage_instead_of_a_request(void)
{
    memset(out, 0x55, PROTO_CONTROL_MAX);
    return send_control(PROTO_CONTROL_MAX) && wait_for_end(true);
}

static bool data_instead_of_a_request(void)
{
    size_t length = request_of(PERF_SEND, PERF_RATE, 8, false);
    return send_data(length) && wait_for_end(true);
}

static bool an_empty_request(void)
{
    return send_control(0) && wait_for_end(true);
}

static bool a_request_that_is_too_long(void)
{
    memset(out, 0, 4096);
    return send_control(4096) && wait_for_end(false);
}

static bool a_request_of_another_version(void)
{
    size_t length = request_of(PERF_SEND, PERF_RATE, 8, false);
    out[5]++;
    return send_control(length) && wait_for_end(true);
}

static bool an_operation_that_does_not_exist(void)
{
    size_t length = request_of(PERF_SEND, PERF_RATE, 8, false);
    out[PROTO_HEADER_SIZE] = 0xff;
    return send_control(length) && wait_for_end(true);
}

static bool a_size_beyond_the_limit(void)
{
    return send_control(request_of(PERF_WRITE, PERF_RATE, UINT32_MAX, false)) && wait_for_end(true);
}

static bool a_forged_token(void)
{
    struct proto_perf_request request = {
        .op = PERF_WRITE,
        .test = PERF_LATENCY,
        .wait = PERF_SLEEP,
        .depth = 1,
        .size = 8,
        .has_token = 1,
    };
    memset(request.token.bytes, 0x33, sizeof(request.token.bytes));
    return send_control(proto_perf_request_encode(&request, out)) && wait_for_end(true);
}

static bool a_message_of_the_wrong_size(void)
{
    return begin_perf(PERF_SEND, PERF_RATE, 8, false) && send_data(9) && wait_for_end(true);
}

static bool a_second_request(void)
{
    if (!begin_perf(PERF_SEND, PERF_RATE, 8, false)) {
        return false;
    }
    return send_control(request_of(PERF_SEND, PERF_RATE, 8, false)) && wait_for_end(true);
}

static bool data_in_a_test_of_reads(void)
{
    return begin_perf(PERF_READ, PERF_RATE, 8, false) && send_data(8) && wait_for_end(true);
}

static bool the_end_of_a_test_over_and_over(void)
{
    if (!begin_perf(PERF_READ, PERF_RATE, 8, false)) {
        return false;
    }
    struct proto_perf_end end = { .operations = 0 };
    for (int i = 0; i < 4; i++) {
        if (!send_control(proto_perf_end_encode(&end, out))) {
            return false;
        }
    }
    return wait_for_end(true);
}

static bool garbage_instead_of_records(void)
{
    if (!begin_copy()) {
        return false;
    }
    memset(out, 0xee, 1000);
    return send_data(1000) && wait_for_end(true);
}

static bool an_absolute_path(void)
{
    return begin_copy() && send_data(add_entry(0, PROTO_RECORD_FILE, "/tmp/rdmux-evil")) &&
           wait_for_end(true);
}

static bool a_path_upwards(void)
{
    return begin_copy() && send_data(add_entry(0, PROTO_RECORD_FILE, "../rdmux-evil")) &&
           wait_for_end(true);
}

static bool a_link_outside_and_a_file_through_it(void)
{
    if (!begin_copy()) {
        return false;
    }
    proto_store32(out, PROTO_RECORD_LINK);
    proto_store32(out + 4, 4 + 3 + 7);
    proto_store32(out + 8, 3);
    memcpy(out + 12, "way../../x", 3 + 7);
    size_t length = add_entry(22, PROTO_RECORD_FILE, "way/rdmux-evil");
    return send_data(length) && wait_for_end(true);
}

static bool half_a_file_and_the_end(void)
{
    if (!begin_copy()) {
        return false;
    }
    size_t length = add_entry(0, PROTO_RECORD_FILE, "half");
    proto_store32(out + length, PROTO_RECORD_END);
    proto_store32(out + length + 4, 16);
    memset(out + length + 8, 0, 16);
    return send_data(length + 24) && wait_for_end(true);
}

static bool vanishes_in_the_middle(void)
{
    return begin_copy() && send_data(add_entry(0, PROTO_RECORD_FILE, "vanished"));
}

static const struct {
    const char *name;
    bool (*run)(void);
} ways[] = {
#define WAY(name)   \
    {               \
#name, name \
    }
    WAY(garbage_instead_of_a_request),
    WAY(data_instead_of_a_request),
    WAY(an_empty_request),
    WAY(a_request_that_is_too_long),
    WAY(a_request_of_another_version),
    WAY(an_operation_that_does_not_exist),
    WAY(a_size_beyond_the_limit),
    WAY(a_forged_token),
    WAY(a_message_of_the_wrong_size),
    WAY(a_second_request),
    WAY(data_in_a_test_of_reads),
    WAY(the_end_of_a_test_over_and_over),
    WAY(garbage_instead_of_records),
    WAY(an_absolute_path),
    WAY(a_path_upwards),
    WAY(a_link_outside_and_a_file_through_it),
    WAY(half_a_file_and_the_end),
    WAY(vanishes_in_the_middle),
};

static bool open_connection(const char *address)
{
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    if (!good(rdmux_fabric_open(NULL, &fabric), "fabric_open") ||
        !good(rdmux_cq_create(fabric, NULL, &cq), "cq_create") ||
        !good(rdmux_connect(fabric, cq, address, &attr, 10000, &ep), "connect")) {
        return false;
    }
    for (int i = 0; i < RECEIVES; i++) {
        if (!good(rdmux_recv(ep, control_in[i], PROTO_CONTROL_MAX, NULL, control_in[i]), "recv")) {
            return false;
        }
    }
    return true;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--list") == 0) {
        for (size_t i = 0; i < COUNT_OF(ways); i++) {
            puts(ways[i].name);
        }
        return 0;
    }
    if (argc != 3) {
        fprintf(stderr, "usage: bad_client --list | bad_client ADDRESS WAY\n");
        return 2;
    }
    bool passed = false;
    for (size_t i = 0; i < COUNT_OF(ways); i++) {
        if (strcmp(ways[i].name, argv[2]) == 0 && open_connection(argv[1])) {
            passed = ways[i].run();
        }
    }
    rdmux_ep_close(ep);
    rdmux_cq_destroy(cq);
    rdmux_fabric_close(fabric);
    return passed ? 0 : 1;
}
