/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * A client that breaks the protocol of `rdmux serve`.
 *
 *   bad_client --list        names the ways
 *   bad_client ADDRESS WAY   status 0 if the server ends the connection within 10 s, and says why
 *                            if it can
 *   bad_client ADDRESS --idle        asks for a test and goes silent; the server must end it, as
 *   above bad_client ADDRESS --cases FILE  authenticates by the key file and asks for conformance
 *                                    cases; the server must refuse
 *   bad_client ADDRESS --sessions N  asks for N conformance sessions; one more must be refused
 *   bad_client ADDRESS --cut FILE N  sends the first N bytes of a file as `rdmux copy` does, under the
 *                                    name that follows its last slash, and ends the connection
 *   bad_client ADDRESS --asks        asks about entries without end and reads no answers; the server
 *                                    must end it
 *   bad_client ADDRESS --repeat N    connects N times and sends nonsense
 *   bad_client ADDRESS --hold KIND N opens N sessions over tcp, waits until they have been silent
 *                            for a second, prints "held", and keeps them until its input ends.
 *                            silent  asks for nothing
 *                            polls   asks for a test of sends with polling, and sends nothing
 *                            reads   the same with reads
 *                            memory  asks for a test with much memory
 *                            offers  repeats the bytes of another client that was accepted
 */
#include "protocol.h"

#include <rdmux/rdmux.h>

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

enum { ROUNDS = 600, ROUND_MS = 100, RECEIVES = 8, HELD_MAX = 200, SILENCE_MS = 1200 };
enum { CUT_PARTS = 8, CUT_PART = 512 << 10 };

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

static bool begin_copy_of(uint8_t version)
{
    struct proto_copy_request request = {
        .checksum = checksum_algorithm,
        .version = version,
        .files = 1,
        .bytes = 1,
    };
    return send_control(proto_copy_request_encode(&request, out)) && wait_for(PROTO_COPY_READY);
}

static bool begin_copy(void)
{
    return begin_copy_of(1);
}

/* Writes a record's header. Returns where its payload is, which is all zeros. */
static uint8_t *add_record(size_t *at, uint32_t kind, size_t length)
{
    uint8_t *record = out + *at;
    proto_store32(record, kind);
    proto_store32(record + 4, (uint32_t)length);
    memset(record + PROTO_RECORD_HEADER_SIZE, 0, length);
    *at += PROTO_RECORD_HEADER_SIZE + length;
    return record + PROTO_RECORD_HEADER_SIZE;
}

static void add_text(uint8_t *to, const char *text)
{
    while (*text != '\0') {
        *to++ = (uint8_t)*text++;
    }
}

/* BEGIN of a copy to this path. */
static size_t add_begin(const char *path)
{
    size_t at = 0;
    uint8_t *payload = add_record(&at, PROTO_RECORD_BEGIN, PROTO_BEGIN_SIZE + strlen(path));
    proto_store32(payload + 36, (uint32_t)strlen(path));
    add_text(payload + PROTO_BEGIN_SIZE, path);
    return at;
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

static bool a_send_imm_without_immediate_data(void)
{
    return begin_perf(PERF_SEND_IMM, PERF_RATE, 8, false) && send_data(8) && wait_for_end(true);
}

static bool immediate_data_in_a_test_of_sends(void)
{
    return begin_perf(PERF_SEND, PERF_RATE, 8, false) &&
           rdmux_send_imm(ep, out, 8, NULL, 0, NULL, 0) == RDMUX_OK && wait_for_end(true);
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

static bool a_start_of_a_server_that_posts_nothing(void)
{
    struct proto_perf_start start = { .batch = 1 };
    return begin_perf(PERF_READ, PERF_RATE, 8, false) &&
           send_control(proto_perf_start_encode(&start, out)) && wait_for_end(true);
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

static bool a_path_with_forged_lines_and_escapes(void)
{
    return begin_copy() &&
           send_data(
               add_entry(0, PROTO_RECORD_FILE,
                         "/\nrdmux serve: client 7 (forged): received 9 files\r\033[2J\xc2\x9b")) &&
           wait_for_end(true);
}

static bool a_copy_that_does_not_begin(void)
{
    size_t at = 0;
    if (!begin_copy_of(2)) {
        return false;
    }
    (void)add_record(&at, PROTO_RECORD_DIRECTORY_DONE, PROTO_ATTRIBUTES_SIZE + 4);
    return send_data(at) && wait_for_end(true);
}

static bool a_hard_link_to_a_file_of_others(void)
{
    if (!begin_copy_of(2)) {
        return false;
    }
    size_t at = add_begin("copy");
    uint8_t *payload = add_record(&at, PROTO_RECORD_HARD_LINK, 4 + 10 + 6);
    proto_store32(payload, 10);
    add_text(payload + 4, "rdmux-evilscript");
    return send_data(at) && wait_for_end(true);
}

static bool a_part_that_nobody_has(void)
{
    if (!begin_copy_of(2)) {
        return false;
    }
    size_t at = add_begin("copy");
    uint8_t *payload = add_record(&at, PROTO_RECORD_FILE_AT, PROTO_FILE_AT_SIZE + 10);
    proto_store64(payload + PROTO_ATTRIBUTES_SIZE, 4096);
    add_text(payload + PROTO_FILE_AT_SIZE, "rdmux-evil");
    return send_data(at) && wait_for_end(true);
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
    WAY(a_send_imm_without_immediate_data),
    WAY(immediate_data_in_a_test_of_sends),
    WAY(a_second_request),
    WAY(data_in_a_test_of_reads),
    WAY(the_end_of_a_test_over_and_over),
    WAY(a_start_of_a_server_that_posts_nothing),
    WAY(garbage_instead_of_records),
    WAY(an_absolute_path),
    WAY(a_path_upwards),
    WAY(a_link_outside_and_a_file_through_it),
    WAY(half_a_file_and_the_end),
    WAY(a_path_with_forged_lines_and_escapes),
    WAY(a_copy_that_does_not_begin),
    WAY(a_hard_link_to_a_file_of_others),
    WAY(a_part_that_nobody_has),
    WAY(vanishes_in_the_middle),
};

/* One more connection, which becomes the one that the ways use. */
static bool connect_one(const char *address, const char *paths)
{
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    attr.paths = paths;
    attr.send_depth = 2 * RECEIVES;
    attr.recv_depth = 2 * RECEIVES;
    if (!good(rdmux_connect(fabric, cq, address, &attr, 10000, &ep), "connect")) {
        return false;
    }
    for (int i = 0; i < RECEIVES; i++) {
        if (!good(rdmux_recv(ep, control_in[i], PROTO_CONTROL_MAX, NULL, control_in[i]), "recv")) {
            return false;
        }
    }
    return true;
}

static bool open_fabric(const struct rdmux_fabric_auth *auth)
{
    struct rdmux_fabric_attr attr = RDMUX_FABRIC_ATTR_INIT;
    attr.auth = auth;
    return good(rdmux_fabric_open(&attr, &fabric), "fabric_open") &&
           good(rdmux_cq_create(fabric, NULL, &cq), "cq_create");
}

/* ------------------------------------------------------------------------ many at the same time */

static bool ask_for(enum perf_op op, uint32_t size, enum perf_wait wait)
{
    struct proto_perf_request request = {
        .op = (uint8_t)op,
        .test = PERF_BANDWIDTH,
        .wait = (uint8_t)wait,
        .depth = 2,
        .size = size,
    };
    return send_control(proto_perf_request_encode(&request, out)) && wait_for(PROTO_PERF_READY);
}

static bool hold(const char *kind)
{
    if (strcmp(kind, "polls") == 0) {
        return ask_for(PERF_SEND, 8, PERF_POLL);
    }
    if (strcmp(kind, "reads") == 0) {
        return ask_for(PERF_READ, 8, PERF_POLL);
    }
    if (strcmp(kind, "memory") == 0) {
        return ask_for(PERF_WRITE, PROTO_PERF_SIZE_MAX, PERF_SLEEP);
    }
    return strcmp(kind, "silent") == 0;
}

static void wait_for_silence(void)
{
    struct timespec wait = { .tv_sec = SILENCE_MS / 1000, .tv_nsec = SILENCE_MS % 1000 * 1000000L };
    (void)nanosleep(&wait, NULL);
    puts("held");
    (void)fflush(stdout);
    char byte;
    while (read(STDIN_FILENO, &byte, 1) > 0) {
    }
}

static bool hold_sessions(const char *address, const char *kind, int count)
{
    static struct rdmux_ep *held[HELD_MAX];
    bool held_all = open_fabric(NULL);
    for (int i = 0; i < count && i < HELD_MAX && held_all; i++) {
        held_all = connect_one(address, "tcp") && hold(kind);
        held[i] = ep;
    }
    if (held_all) {
        wait_for_silence();
    }
    for (int i = 0; i < HELD_MAX; i++) {
        rdmux_ep_close(held[i]);
    }
    ep = NULL;
    return held_all;
}

static int dial(const char *address)
{
    struct sockaddr_in name = { .sin_family = AF_INET };
    const char *colon = strrchr(address, ':');
    name.sin_port = htons((uint16_t)strtoul(colon + 1, NULL, 10));
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (const struct sockaddr *)(const void *)&name, sizeof(name)) != 0) {
        perror("connect");
        exit(1);
    }
    return fd;
}

enum { HELLO_MAX = 96 }; /* bytes of a HELLO, from the listener; the rest is from the program */

/* Relays between a client and the server. Returns the number of bytes that the client has sent by
 * the time that the server accepts it. */
static size_t overhear(const char *address, uint8_t *said, size_t size)
{
    struct sockaddr_in name = { .sin_family = AF_INET };
    socklen_t length = sizeof(name);
    char ours[64];
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (listener < 0 ||
        bind(listener, (const struct sockaddr *)(const void *)&name, sizeof(name)) != 0 ||
        listen(listener, 1) != 0 ||
        getsockname(listener, (struct sockaddr *)(void *)&name, &length) != 0) {
        return 0;
    }
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    attr.paths = "tcp";
    (void)snprintf(ours, sizeof(ours), "127.0.0.1:%u", (unsigned)ntohs(name.sin_port));
    if (rdmux_connect(fabric, cq, ours, &attr, 0, &ep) != RDMUX_IN_PROGRESS) {
        return 0;
    }
    struct pollfd fds[2] = { { .fd = listener, .events = POLLIN },
                             { .fd = dial(address), .events = POLLIN } };
    size_t used = 0;
    size_t answered = 0;
    while (answered <= HELLO_MAX) {
        uint8_t bytes[4096];
        rdmux_cq_poll(cq, NULL, 0);
        (void)poll(fds, COUNT_OF(fds), ROUND_MS);
        if (fds[0].fd == listener && fds[0].revents != 0) {
            fds[0].fd = accept(listener, NULL, NULL);
            continue;
        }
        ssize_t got = fds[0].revents != 0 ? read(fds[0].fd, said + used, size - used) : 0;
        if (got > 0) {
            (void)!write(fds[1].fd, said + used, (size_t)got);
            used += (size_t)got;
        }
        got = fds[1].revents != 0 ? read(fds[1].fd, bytes, sizeof(bytes)) : 0;
        if (got > 0) {
            answered += (size_t)got;
            size_t passed = answered > HELLO_MAX ? 0 : (size_t)got;
            (void)!write(fds[0].fd, bytes, passed);
        }
    }
    (void)close(fds[0].fd);
    (void)close(fds[1].fd);
    (void)close(listener);
    rdmux_ep_close(ep);
    ep = NULL;
    return used;
}

static bool hold_offers(const char *address, int count)
{
    static uint8_t said[65536];
    int fds[HELD_MAX];
    size_t length = open_fabric(NULL) ? overhear(address, said, sizeof(said)) : 0;
    if (length == 0) {
        printf("nothing was overheard\n");
        return false;
    }
    for (int i = 0; i < count && i < HELD_MAX; i++) {
        fds[i] = dial(address);
        (void)!write(fds[i], said, length);
    }
    for (int i = 0; i < count && i < HELD_MAX; i++) {
        uint8_t bytes[4096];
        size_t answered = 0;
        ssize_t got = 1;
        while (got > 0 && answered <= HELLO_MAX) { /* until the client is accepted, or has ended */
            got = read(fds[i], bytes, sizeof(bytes));
            answered += got > 0 ? (size_t)got : 0;
        }
    }
    wait_for_silence();
    return true; /* the sockets close with the process */
}

static bool repeat(const char *address, int count)
{
    bool opened = open_fabric(NULL);
    for (int i = 0; i < count && opened; i++) {
        opened = connect_one(address, "tcp") && garbage_instead_of_a_request();
        rdmux_ep_close(ep);
        ep = NULL;
    }
    return opened;
}

static bool ask_for_cases(const char *address, const char *key_file)
{
    struct rdmux_fabric_auth auth = RDMUX_FABRIC_AUTH_INIT;
    auth.method = RDMUX_AUTH_PSK;
    auth.key_file = key_file;
    return open_fabric(&auth) && connect_one(address, NULL) &&
           send_control(proto_conformance_request_encode(out)) && wait_for_end(true);
}

static bool ask_for_sessions(const char *address, int count)
{
    bool opened = open_fabric(NULL);
    for (int i = 0; i <= count && opened; i++) {
        opened = connect_one(address, "tcp") &&
                 send_control(proto_conformance_request_encode(out)) &&
                 (i == count ? wait_for_end(true) : wait_for(PROTO_CONFORMANCE_READY));
        rdmux_ep_close(ep);
        ep = NULL;
    }
    return opened;
}

/* The server has taken leave, too, when this returns. */
static bool end_connection(void)
{
    return good(rdmux_ep_shutdown(ep, 10000), "shutdown");
}

static bool cut_off(const char *path, size_t length)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash == NULL ? path : slash + 1;
    struct stat status;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0 || fstat(file, &status) != 0 || !begin_copy_of(2)) {
        return false;
    }
    struct proto_attributes attributes = {
        .mode = status.st_mode & 0777U,
        .size = (uint64_t)status.st_size,
        .seconds = status.st_mtim.tv_sec,
        .nanoseconds = (uint32_t)status.st_mtim.tv_nsec,
    };
    size_t at = add_begin(name);
    uint8_t *payload = add_record(&at, PROTO_RECORD_FILE_AT, PROTO_FILE_AT_SIZE + strlen(name));
    proto_attributes_encode(&attributes, payload);
    add_text(payload + PROTO_FILE_AT_SIZE, name);
    bool sent = send_data(at) && wait_for(PROTO_COPY_ANSWER);
    static uint8_t parts[CUT_PARTS][PROTO_RECORD_HEADER_SIZE + CUT_PART];
    for (size_t i = 0; i < CUT_PARTS && sent && length > 0; i++) {
        size_t part = length < CUT_PART ? length : CUT_PART;
        proto_store32(parts[i], PROTO_RECORD_DATA);
        proto_store32(parts[i] + 4, (uint32_t)part);
        sent = read(file, parts[i] + PROTO_RECORD_HEADER_SIZE, part) == (ssize_t)part &&
               good(rdmux_send(ep, parts[i], PROTO_RECORD_HEADER_SIZE + part, NULL, NULL, 0),
                    "send");
        length -= part;
    }
    (void)close(file);
    return sent && length == 0 && end_connection();
}

static bool ask_without_end(void)
{
    if (!begin_copy_of(2) || !send_data(add_begin("copy"))) {
        return false;
    }
    static uint8_t question[PROTO_COPY_CHUNK];
    size_t at = 0;
    for (unsigned i = 0; i < 600; i++) {
        uint8_t *payload = add_record(&at, PROTO_RECORD_ASK, PROTO_ASK_SIZE + 1);
        proto_store32(payload + PROTO_ATTRIBUTES_SIZE, PROTO_ASK_FILE);
        proto_store32(payload + PROTO_ATTRIBUTES_SIZE + 4, 1);
        payload[PROTO_ASK_SIZE] = 'x';
    }
    memcpy(question, out, at);
    for (unsigned i = 0; i < 100; i++) { /* ten times as many as there are receives for answers */
        enum rdmux_status status = rdmux_send(ep, question, at, NULL, NULL, RDMUX_UNSIGNALED);
        if (status != RDMUX_OK) {
            break; /* the server takes no more */
        }
    }
    return wait_for_end(false);
}

static bool run(int argc, char **argv)
{
    const char *address = argv[1];
    const char *way = argv[2];
    if (strcmp(way, "--idle") == 0) {
        return open_fabric(NULL) && connect_one(address, NULL) &&
               begin_perf(PERF_SEND, PERF_RATE, 8, false) && wait_for_end(true);
    }
    if (strcmp(way, "--cases") == 0 && argc == 4) {
        return ask_for_cases(address, argv[3]);
    }
    if (strcmp(way, "--sessions") == 0 && argc == 4) {
        return ask_for_sessions(address, (int)strtol(argv[3], NULL, 10));
    }
    if (strcmp(way, "--cut") == 0 && argc == 5) {
        return open_fabric(NULL) && connect_one(address, NULL) &&
               cut_off(argv[3], (size_t)strtoul(argv[4], NULL, 10));
    }
    if (strcmp(way, "--asks") == 0) {
        return open_fabric(NULL) && connect_one(address, NULL) && ask_without_end();
    }
    if (strcmp(way, "--repeat") == 0 && argc == 4) {
        return repeat(address, (int)strtol(argv[3], NULL, 10));
    }
    if (strcmp(way, "--hold") == 0 && argc == 5) {
        int count = (int)strtol(argv[4], NULL, 10);
        return strcmp(argv[3], "offers") == 0 ? hold_offers(address, count)
                                              : hold_sessions(address, argv[3], count);
    }
    for (size_t i = 0; i < COUNT_OF(ways); i++) {
        if (strcmp(ways[i].name, way) == 0) {
            return open_fabric(NULL) && connect_one(address, NULL) && ways[i].run();
        }
    }
    return false;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--list") == 0) {
        for (size_t i = 0; i < COUNT_OF(ways); i++) {
            puts(ways[i].name);
        }
        return 0;
    }
    if (argc < 3) {
        fprintf(stderr, "usage: bad_client --list | bad_client ADDRESS WAY\n");
        return 2;
    }
    bool passed = run(argc, argv);
    rdmux_ep_close(ep);
    rdmux_cq_destroy(cq);
    rdmux_fabric_close(fabric);
    return passed ? 0 : 1;
}
