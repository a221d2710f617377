/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * The protocol between `rdmux serve` and the commands that talk to it.
 *
 * One connection serves one request. Control messages are sends with immediate data
 * PROTO_IMM_CONTROL. All other messages are data of the requested test or copy. The server posts a
 * single receive until it has read the request, so data never fills a receive meant for control.
 *
 *   perf  C: PERF_REQUEST   S: PERF_READY   data both ways   C: PERF_END   S: PERF_RESULT
 *         If the server posts operations, too: C: PERF_START behind PERF_READY. The server posts
 *         until PERF_END, and answers once they are done.
 *   conformance  C: CONFORMANCE_REQUEST   S: CONFORMANCE_READY, and ends the connection
 *   copy  C: COPY_REQUEST   S: COPY_READY   C: messages of records (below)   S: COPY_RESULT
 *   The server may send ERROR at any time. It then ends the connection.
 *
 * Acknowledgement in a verified write test: a send without bytes whose immediate data is the
 * number of messages verified. While the server posts writes, reads or atomics, such a send tells
 * how many are done.
 *
 * Integers are big-endian. A control message as offset, size, field:
 *   0 4 magic "RDTL"    4 2 version    6 2 type    8 4 payload length    12 payload, to the end
 *
 * A copy message consists of whole records back to back, as offset, size, field:
 *   0 4 kind    4 4 payload length    8 payload
 * Payloads as fields with their sizes:
 *   FILE           mode 4, path        begins a file
 *   DATA           bytes of that file
 *   FILE_END       checksum 32
 *   DIRECTORY      mode 4, path        created with write permission for the files
 *   DIRECTORY_END  mode 4, path        sets its mode
 *   LINK           length of the path 4, path, target
 *   END            files 8, bytes 8
 * Paths are relative, without NUL, ".", ".." or empty parts.
 */
#ifndef RDMUX_TOOL_PROTOCOL_H
#define RDMUX_TOOL_PROTOCOL_H

#include "checksum.h"

#include <rdmux/rdmux.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PROTO_IMM_CONTROL UINT32_C(0x5244544c)

enum {
    PROTO_VERSION = 1,
    PROTO_HEADER_SIZE = 12,
    PROTO_CONTROL_MAX = 512, /* bytes of a control message */
    PROTO_TEXT_MAX = 400,    /* bytes of an error text, with its NUL once decoded */
    PROTO_SECRET_SIZE = 16,
    PROTO_HELLO_SIZE = 12, /* bytes of a client's private data while connecting */

    PROTO_DEPTH_MAX = 4096,
    PROTO_PERF_SIZE_MAX = 32 << 20,

    PROTO_COPY_CHUNK = 1 << 20, /* maximum bytes of a copy message */
    PROTO_COPY_RECEIVES = 8,    /* receives that the server keeps posted */
    PROTO_RECORD_HEADER_SIZE = 8,
    PROTO_PATH_MAX = 4096, /* bytes of a path or link target, with its NUL */
};

/* Codes with which the server rejects a connection, see rdmux_reject(). */
enum { PROTO_REJECT_BUSY = 1 };

enum proto_type {
    PROTO_PERF_REQUEST = 1,
    PROTO_PERF_READY = 2,
    PROTO_PERF_END = 3,
    PROTO_PERF_RESULT = 4,
    PROTO_COPY_REQUEST = 5,
    PROTO_COPY_READY = 6,
    PROTO_COPY_RESULT = 7,
    PROTO_ERROR = 8,
    PROTO_CONFORMANCE_REQUEST = 9,
    PROTO_CONFORMANCE_READY = 10,
    PROTO_PERF_START = 11,
};

enum proto_record {
    PROTO_RECORD_FILE = 1,
    PROTO_RECORD_DATA = 2,
    PROTO_RECORD_FILE_END = 3,
    PROTO_RECORD_DIRECTORY = 4,
    PROTO_RECORD_DIRECTORY_END = 5,
    PROTO_RECORD_LINK = 6,
    PROTO_RECORD_END = 7,
};

enum perf_op { PERF_SEND, PERF_WRITE, PERF_READ, PERF_FETCH_ADD, PERF_COMPARE_SWAP, PERF_OP_COUNT };
enum perf_test { PERF_LATENCY, PERF_BANDWIDTH, PERF_RATE, PERF_TEST_COUNT };
enum perf_memory_kind { PERF_REGISTERED, PERF_ALLOCATED, PERF_MEMORY_COUNT };
enum perf_wait { PERF_POLL, PERF_SLEEP, PERF_WAIT_COUNT };
/* Which side posts the operations: the client, the server, or both at once. */
enum perf_direction { PERF_FORWARD, PERF_REVERSE, PERF_BOTH, PERF_DIRECTION_COUNT };

/* Names of the enums above by number, as in options and JSON. Each list ends with NULL. */
extern const char *const perf_op_names[];
extern const char *const perf_test_names[];
extern const char *const perf_memory_names[];
extern const char *const perf_wait_names[];
extern const char *const perf_direction_names[];

/* A client's private data: the queue depth that the server needs before it knows the request. */
struct proto_hello {
    uint32_t depth; /* 1 to PROTO_DEPTH_MAX */
};

struct proto_perf_request {
    uint8_t op;           /* enum perf_op */
    uint8_t test;         /* enum perf_test */
    uint8_t memory;       /* enum perf_memory_kind */
    uint8_t wait;         /* enum perf_wait */
    uint8_t verify;       /* 0 or 1 */
    uint8_t has_token;    /* 1: token and echo_offset are present */
    uint8_t direction;    /* enum perf_direction; other than forward in rate and bandwidth tests */
    uint32_t depth;       /* 1 to PROTO_DEPTH_MAX */
    uint32_t size;        /* bytes of an operation, at most PROTO_PERF_SIZE_MAX; 8 for atomics */
    uint64_t echo_offset; /* offset in the client's region for what the server posts */
    struct rdmux_token token; /* the client's region, if has_token */
};

struct proto_perf_ready {
    uint8_t has_token;
    uint64_t target_offset;
    struct rdmux_token token; /* the server's region, if has_token */
};

struct proto_perf_start {
    uint32_t batch; /* requests that the server posts together, 1 to PROTO_DEPTH_MAX */
};

struct proto_perf_end {
    uint64_t operations; /* operations that the client has requested since PERF_READY */
};

struct proto_perf_result {
    uint64_t delivered; /* messages that arrived; for one-sided operations the number in PERF_END */
    uint64_t cpu_ns;    /* CPU time of the whole server process since PERF_READY */
    uint8_t verified;   /* 1: the server checked all contents and found them right */
    uint64_t wrong;     /* messages whose contents were wrong */
    uint8_t has_waited; /* 1: waited_ns is known; earlier versions do not tell */
    uint64_t waited_ns; /* time in which the server's thread was ready and had no processor */
    /* If the request's direction is not forward: */
    bool has_posted;
    uint64_t posted;      /* operations of the server since PERF_START */
    uint64_t measured;    /* those behind its warm-up */
    uint64_t measured_ns; /* and how long they took */
};

struct proto_copy_request {
    uint8_t checksum; /* CHECKSUM_* */
    uint64_t files;   /* as counted before the copy, for the server's log */
    uint64_t bytes;
};

struct proto_copy_result {
    uint64_t files;
    uint64_t bytes;
};

/* A server process waits for the runner, which proves itself by the secret. */
struct proto_conformance_ready {
    uint32_t port; /* TCP port at the server's address */
    uint8_t secret[PROTO_SECRET_SIZE];
};

struct proto_error {
    char text[PROTO_TEXT_MAX];
};

/* A received control message; the payload points into the message. */
struct proto_message {
    uint32_t type; /* enum proto_type */
    const uint8_t *payload;
    size_t length;
};

/* Checks the header. Returns false, with *out unchanged, if this is not a control message of this
 * version. */
bool proto_open(const uint8_t *bytes, size_t length, struct proto_message *out);

/* Each encoder writes a whole control message and returns its length. Each decoder returns false,
 * with *out unchanged, if the type, the length or a value is wrong. */
size_t proto_perf_request_encode(const struct proto_perf_request *in,
                                 uint8_t out[PROTO_CONTROL_MAX]);
bool proto_perf_request_decode(const struct proto_message *message, struct proto_perf_request *out);
size_t proto_perf_ready_encode(const struct proto_perf_ready *in, uint8_t out[PROTO_CONTROL_MAX]);
bool proto_perf_ready_decode(const struct proto_message *message, struct proto_perf_ready *out);
size_t proto_perf_end_encode(const struct proto_perf_end *in, uint8_t out[PROTO_CONTROL_MAX]);
bool proto_perf_end_decode(const struct proto_message *message, struct proto_perf_end *out);
size_t proto_perf_result_encode(const struct proto_perf_result *in, uint8_t out[PROTO_CONTROL_MAX]);
bool proto_perf_result_decode(const struct proto_message *message, struct proto_perf_result *out);
size_t proto_perf_start_encode(const struct proto_perf_start *in, uint8_t out[PROTO_CONTROL_MAX]);
bool proto_perf_start_decode(const struct proto_message *message, struct proto_perf_start *out);
size_t proto_copy_request_encode(const struct proto_copy_request *in,
                                 uint8_t out[PROTO_CONTROL_MAX]);
bool proto_copy_request_decode(const struct proto_message *message, struct proto_copy_request *out);
size_t proto_copy_ready_encode(uint8_t out[PROTO_CONTROL_MAX]);
bool proto_copy_ready_decode(const struct proto_message *message);
size_t proto_copy_result_encode(const struct proto_copy_result *in, uint8_t out[PROTO_CONTROL_MAX]);
bool proto_copy_result_decode(const struct proto_message *message, struct proto_copy_result *out);
size_t proto_conformance_request_encode(uint8_t out[PROTO_CONTROL_MAX]);
bool proto_conformance_request_decode(const struct proto_message *message);
size_t proto_conformance_ready_encode(const struct proto_conformance_ready *in,
                                      uint8_t out[PROTO_CONTROL_MAX]);
bool proto_conformance_ready_decode(const struct proto_message *message,
                                    struct proto_conformance_ready *out);
size_t proto_error_encode(const char *text,
                          uint8_t out[PROTO_CONTROL_MAX]); /* a text that is too long is cut */
bool proto_error_decode(const struct proto_message *message,
                        struct proto_error *out); /* unprintable bytes become "?" */

void proto_hello_encode(const struct proto_hello *in, uint8_t out[PROTO_HELLO_SIZE]);
bool proto_hello_decode(const uint8_t *bytes, size_t length, struct proto_hello *out);

/* Big-endian integers. */
void proto_store32(uint8_t *out, uint32_t value);
void proto_store64(uint8_t *out, uint64_t value);
uint32_t proto_load32(const uint8_t *in);
uint64_t proto_load64(const uint8_t *in);

#endif
