/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * The session of a data socket, with an attacker between the ends that forwards records in pieces,
 * changes, drops, repeats and forges them, in both directions, during the handshake or after it,
 * while both ends send, receive, renew their keys and run out of room.
 *
 * Each end always receives a prefix of the other end's bytes, in order, and then perhaps a failure,
 * which stays. If the attacker only forwards, all bytes arrive. Ends whose keys differ receive
 * nothing.
 *
 * Byte 0: 1 = the handshake is under attack, too; 2 = the keys differ; 4 = the sockets hold little.
 * Then come operations. OpenSSL draws its own random numbers, so an input meets other records in
 * each run.
 */
#include "api/core/fabric.h"
#include "driver.h"

#include "negotiation/tls.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    FROM_THE_START = 1 << 0,
    STRANGERS = 1 << 1,
    LITTLE_ROOM = 1 << 2,

    PENDING_MAX = 256 << 10,
    SEND_MAX = 20000, /* more than a record */
    PATIENCE = 20000, /* rounds */
};

enum operation {
    FORWARD, /* u8 direction, u16 count */
    FLOW,    /* everything, both ways */
    FLIP,    /* u8 direction, u8 where, u8 bits */
    INSERT,  /* u8 direction, u8 count, bytes */
    DROP,    /* u8 direction, u8 count */
    REPEAT,  /* u8 direction, u8 count */
    SEND,    /* u8 end, u16 size */
    RECEIVE, /* u8 end, u16 size */
    RENEW,   /* u8 end */
    CUT,     /* u8 direction: nothing more goes this way */
    OPERATION_COUNT,
};

struct input {
    const uint8_t *at;
    size_t left;
};

struct end {
    struct rdmux_path_stream *stream;
    int outer;      /* the session's */
    int inner;      /* ours */
    uint64_t said;  /* bytes that it has sent */
    uint64_t heard; /* of the other's */
    size_t offered; /* bytes not taken: offered again, perhaps with more; some may be in flight */
    bool cut;       /* its bytes are dropped */
    bool open;      /* the other end has authenticated */
    enum rdmux_status failed;
    uint8_t *pending; /* received from this end, not yet forwarded */
    size_t pending_size;
};

static struct end ends[2];
static bool tampered;

static void require(bool holds)
{
    if (!holds) {
        abort();
    }
}

/* Each reading of the clock is a minute after the last, so that no end renews too often. */
static uint64_t minute_by_minute(void *user)
{
    static uint64_t now_ns;
    (void)user;
    now_ns += UINT64_C(60000000000);
    return now_ns;
}

static struct rdmux_fabric *open_fabric(void)
{
    static const char line[] = "anna:00112233445566778899aabbccddeeff\n";
    char name[64];
    int fd = memfd_create("keys", MFD_CLOEXEC);
    require(fd >= 0 && fchmod(fd, 0600) == 0 &&
            write(fd, line, sizeof(line) - 1) == (ssize_t)sizeof(line) - 1);
    snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
    struct rdmux_fabric_auth auth = RDMUX_FABRIC_AUTH_INIT;
    auth.method = RDMUX_AUTH_PSK;
    auth.key_file = name;
    struct rdmux_fabric_attr attr = RDMUX_FABRIC_ATTR_INIT;
    attr.flags = RDMUX_FABRIC_IGNORE_ENVIRONMENT | RDMUX_FABRIC_NO_DEFAULT_PLUGINS |
                 RDMUX_FABRIC_NO_SERVICE_THREAD | RDMUX_FABRIC_NO_WORKER_THREAD;
    attr.paths = "tcp";
    attr.auth = &auth;
    attr.clock_ns = minute_by_minute;
    struct rdmux_fabric *fabric = NULL;
    require(rdmux_fabric_open(&attr, &fabric) == RDMUX_OK);
    close(fd);
    return fabric;
}

static uint8_t take(struct input *input)
{
    if (input->left == 0) {
        return 0;
    }
    input->left--;
    return *input->at++;
}

static size_t take_two(struct input *input)
{
    size_t high = take(input);
    return high << 8 | take(input);
}

/* Returns byte number `at` of the bytes that an end sends. */
static uint8_t byte_of(const struct end *end, uint64_t at)
{
    return (uint8_t)((at * 31 + (at >> 8) + (end == &ends[1] ? 128 : 0)) & 0xff);
}

/* --------------------------------------------------------------------------------------- an end */

/* Records a status; a failure must be one of these, and stays. */
static void note(struct end *end, enum rdmux_status status)
{
    require(end->failed == RDMUX_OK || status == end->failed);
    if (status != RDMUX_OK && status != RDMUX_AGAIN) {
        require(status == RDMUX_AUTH || status == RDMUX_PROTOCOL || status == RDMUX_PEER_GONE);
        end->failed = status;
    }
}

static void step(struct end *end)
{
    bool wants_room = false;
    if (!end->open) {
        enum rdmux_status status = end->stream->ops->open(end->stream, &wants_room);
        note(end, status);
        end->open = status == RDMUX_OK;
    }
}

static void say(struct end *end, size_t size)
{
    static uint8_t memory[2][SEND_MAX];
    static unsigned turn;
    uint8_t *bytes = memory[turn++ % 2]; /* at another address each time, as a program may do */
    size_t done = 0;
    size = size < end->offered ? end->offered : size;
    size = size == 0 ? 1 : size;
    for (size_t i = 0; i < size; i++) {
        bytes[i] = byte_of(end, end->said + i);
    }
    enum rdmux_status status = end->stream->ops->send(end->stream, bytes, size, &done);
    require(status == RDMUX_OK ? done > 0 && done <= size : done == 0);
    end->offered = status == RDMUX_OK ? 0 : size;
    end->said += done;
    if (status != RDMUX_PEER_GONE) { /* the end may still receive */
        note(end, status);
    }
}

/* Tells whether the socket or the session has bytes to receive. */
static bool is_told(const struct end *end)
{
    uint8_t byte = 0;
    return end->stream->ops->holds_bytes(end->stream) ||
           recv(end->outer, &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0;
}

/* Receives bytes, which must be those that the other end sent. Returns their number. */
static size_t hear(struct end *end, size_t size)
{
    const struct end *other = &ends[end == &ends[0] ? 1 : 0];
    uint8_t bytes[SEND_MAX];
    size_t got = 0;
    bool told = is_told(end);
    size = size == 0 ? 1 : size;
    enum rdmux_status status = end->stream->ops->receive(end->stream, bytes, size, &got);
    note(end, status);
    require((status == RDMUX_OK) == (got > 0) && got <= size);
    require(told || got == 0);
    /* Bytes of an unfinished record arrive before their sender has counted them. */
    require(end->heard + got <= other->said + other->offered);
    for (size_t i = 0; i < got; i++) {
        require(bytes[i] == byte_of(other, end->heard + i));
    }
    end->heard += got;
    return got;
}

/* -------------------------------------------------------------------------------- in the middle */

static void collect(struct end *end)
{
    ssize_t got = 1;
    while (got > 0 && end->pending_size < PENDING_MAX) {
        got = recv(end->inner, end->pending + end->pending_size, PENDING_MAX - end->pending_size,
                   MSG_DONTWAIT);
        end->pending_size += got > 0 ? (size_t)got : 0;
    }
}

static void take_away(struct end *from, size_t count)
{
    from->pending_size -= count;
    memmove(from->pending, from->pending + count, from->pending_size);
}

static void forward(int index, size_t count)
{
    struct end *from = &ends[index];
    count = count < from->pending_size ? count : from->pending_size;
    if (from->cut) {
        take_away(from, count);
        return;
    }
    ssize_t sent = send(ends[1 - index].inner, from->pending, count, MSG_NOSIGNAL | MSG_DONTWAIT);
    take_away(from, sent > 0 ? (size_t)sent : 0);
}

static void step_all(void)
{
    for (int i = 0; i < 2; i++) {
        step(&ends[i]);
        collect(&ends[i]);
    }
}

static void flow(void)
{
    for (int i = 0; i < 2; i++) {
        forward(i, PENDING_MAX);
    }
    step_all();
}

static void insert(struct end *from, const uint8_t *bytes, size_t count)
{
    if (count > PENDING_MAX - from->pending_size) {
        return;
    }
    memmove(from->pending + count, from->pending, from->pending_size);
    memcpy(from->pending, bytes, count);
    from->pending_size += count;
}

static void change(struct input *input, enum operation operation)
{
    struct end *from = &ends[take(input) & 1];
    uint8_t bytes[UINT8_MAX];
    size_t count = take(input);
    tampered = true;
    if (operation == FLIP) {
        uint8_t bits = take(input);
        if (count < from->pending_size) {
            from->pending[count] ^= bits;
        }
        return;
    }
    if (operation == INSERT) {
        for (size_t i = 0; i < count; i++) {
            bytes[i] = take(input);
        }
        insert(from, bytes, count);
        return;
    }
    count = count < from->pending_size ? count : from->pending_size;
    if (operation == DROP) {
        take_away(from, count);
    } else {
        memcpy(bytes, from->pending, count);
        insert(from, bytes, count);
    }
}

/* ------------------------------------------------------------------------------------ the scene */

static void open_ends(struct rdmux_fabric *fabric, uint8_t options)
{
    for (int i = 0; i < 2; i++) {
        int pair[2];
        uint8_t key[RDMUX_DATA_KEY_SIZE];
        struct end *end = &ends[i];
        uint8_t *pending = end->pending != NULL ? end->pending : malloc(PENDING_MAX);
        require(pending != NULL);
        require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) == 0);
        if ((options & LITTLE_ROOM) != 0) {
            int least = 1;
            require(setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &least, sizeof(least)) == 0);
        }
        memset(key, (options & STRANGERS) != 0 ? i : 7, sizeof(key));
        *end = (struct end){ .outer = pair[0], .inner = pair[1], .pending = pending };
        require(rdmux_tls_create_data(fabric->auth, i == 0 ? RDMUX_ROLE_CONNECT : RDMUX_ROLE_ACCEPT,
                                      end->outer, key, &end->stream) == RDMUX_OK);
    }
    for (int i = 0; i < PATIENCE && (options & (FROM_THE_START | STRANGERS)) == 0 &&
                    !(ends[0].open && ends[1].open);
         i++) {
        flow();
    }
}

/* Delivers the rest; all sent bytes must arrive if the attacker changed none. */
static void settle(void)
{
    for (int i = 0; i < PATIENCE; i++) {
        size_t moved = 0;
        for (int j = 0; j < 2; j++) {
            if (ends[j].open && ends[j].failed == RDMUX_OK && ends[j].offered > 0) {
                say(&ends[j], 0);
            }
            moved += ends[j].pending_size;
        }
        flow();
        for (int j = 0; j < 2; j++) {
            moved += ends[j].open && ends[j].failed == RDMUX_OK ? hear(&ends[j], SEND_MAX) : 0;
        }
        if (moved == 0 && i > 8) {
            break;
        }
    }
}

static void close_ends(void)
{
    for (int i = 0; i < 2; i++) {
        ends[i].stream->ops->close(ends[i].stream);
        close(ends[i].outer);
        close(ends[i].inner);
    }
}

static void operate(struct input *input)
{
    enum operation operation = (enum operation)(take(input) % OPERATION_COUNT);
    int index = 0;
    switch (operation) {
    case FORWARD:
        index = take(input) & 1;
        forward(index, take_two(input));
        break;
    case FLOW:
        flow();
        break;
    case FLIP:
    case INSERT:
    case DROP:
    case REPEAT:
        change(input, operation);
        break;
    case SEND:
        index = take(input) & 1;
        say(&ends[index], take_two(input) % (SEND_MAX + 1));
        break;
    case RECEIVE:
        index = take(input) & 1;
        (void)hear(&ends[index], take_two(input) % (SEND_MAX + 1));
        break;
    case RENEW:
        rdmux_tls_renew_after(ends[take(input) & 1].stream, 0);
        break;
    case CUT:
    case OPERATION_COUNT:
        index = take(input) & 1;
        ends[index].cut = true;
        (void)shutdown(ends[1 - index].inner, SHUT_WR);
        tampered = true;
        break;
    }
    step_all();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct rdmux_fabric *fabric;
    struct input input = { data, size };
    if (fabric == NULL) {
        fabric = open_fabric();
    }
    tampered = false;
    uint8_t options = take(&input);
    open_ends(fabric, options);
    while (input.left > 0) {
        operate(&input);
    }
    settle();
    bool strangers = (options & STRANGERS) != 0;
    for (int i = 0; i < 2; i++) {
        const struct end *other = &ends[1 - i];
        require(!strangers || (!ends[i].open && ends[i].heard == 0 && ends[i].said == 0));
        require(tampered || strangers ||
                (ends[i].failed == RDMUX_OK && ends[i].heard == other->said));
    }
    close_ends();
    return 0;
}
