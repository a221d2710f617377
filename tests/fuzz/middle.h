/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * The whole library with somebody in the middle: two endpoints, each in a fabric of its own, talk over
 * a socket whose bytes the input forwards in pieces, changes, drops, repeats and makes up, in both
 * directions, while both sides post, import tokens and end. Control channel and data share the socket.
 * Included by one source, which says whether the sides authenticate.
 *
 * Whatever happens, the bytes beside the exported region and the posted buffers stay as they are, both
 * endpoints end with a status once the socket is gone, and a third fabric's endpoint on the same cq goes
 * on as if nothing were.
 *
 * Byte 0: 1 = the side that exports connects; 2 = the handshake is under attack, too. Then operations.
 */
#ifndef RDMUX_TESTS_FUZZ_MIDDLE_H
#define RDMUX_TESTS_FUZZ_MIDDLE_H

#include "api/base/stream.h"
#include "api/core/cq.h"
#include "api/core/ep.h"
#include "api/core/fabric.h"
#include "api/core/mr.h"
#include "api/core/remote.h"
#include "api/progress/cq_owner.h"
#include "driver.h"
#include "negotiation/control_channel.h"
#include "negotiation/message.h"
#include "tcp_fallback/tcp_endpoint.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    EXPORTER_CONNECTS = 1 << 0,
    FROM_THE_START = 1 << 1,

    GUARD = 0xa5,
    GUARD_SIZE = 256,
    REGION_SIZE = 1024,
    BUFFER_SIZE = 2048,
    PENDING_MAX = 32 << 10,
    PATIENCE = 200, /* rounds */
    STEP_NS = 20 * 1000 * 1000,
    GOOD = 77, /* context of the neighbours' requests */
};

enum operation {
    FORWARD, /* u8 direction, u8 count */
    FLOW,    /* everything, both ways */
    FLIP,    /* u8 direction, u8 where, u8 bits */
    INSERT,  /* u8 direction, u8 count, bytes */
    DROP,    /* u8 direction, u8 count */
    REPEAT,  /* u8 direction, u8 count */
    FRAME,  /* u8 direction, u8 type, u8 count, bytes: a control frame with a true header; where the
              * sides authenticate, the peer says it */
    POST,   /* u8 side, u8 what, u16 length, u16 offset */
    IMPORT, /* u8 side, u8 where, u8 bits: of the other side's token, changed */
    TIME,   /* u8 steps */
    OPERATION_COUNT,
    /* Where the sides authenticate. */
    SAY = OPERATION_COUNT, /* u8 direction and 2 = with a new key, u8 count, bytes: the peer says them */
    SECURE_OPERATION_COUNT,
};

struct input {
    const uint8_t *at;
    size_t left;
};

/* What a peer may write to, between bytes that it may not. */
struct guarded_region {
    uint8_t before[GUARD_SIZE];
    uint8_t bytes[REGION_SIZE];
    uint8_t after[GUARD_SIZE];
};

struct guarded_buffer {
    uint8_t before[GUARD_SIZE];
    uint8_t bytes[BUFFER_SIZE];
    uint8_t after[GUARD_SIZE];
};

/* One end of the connection: 0 exports and is the victim proper, 1 is its peer. */
struct side {
    struct rdmux_fabric *fabric;
    struct rdmux_cq *cq;
    struct rdmux_mr *mr;
    struct rdmux_ep *ep;
    struct rdmux_remote *remote;
    bool forged;           /* it was imported by a token that nobody gave out */
    struct rdmux_ep *good; /* the neighbour; of side 1 in a fabric of its own */
    struct guarded_region region;
    struct guarded_buffer received;
    uint8_t sent[BUFFER_SIZE];
    uint32_t good_got;
    bool good_came;
    bool ended;
    bool disconnected; /* its last entry came */
    int middle;        /* our end of its socket */
    uint8_t *pending;  /* came from this side and is not forwarded */
    size_t pending_size;
};

static struct side sides[2];
static struct side stranger; /* the neighbours' other end */
static uint64_t time_ns;
static uint64_t random_state;
static bool authenticates;
static bool
    tampered; /* with what the sides say, by one who can: with authentication only a side itself */

static void check(bool good, const char *text)
{
    if (!good) {
        (void)fprintf(stderr, "fuzz: %s: %s\n", text, rdmux_last_error());
        abort();
    }
}

static uint64_t clock_of(void *user)
{
    (void)user;
    return time_ns;
}

static int random_of(void *user, void *out, size_t size)
{
    (void)user;
    for (size_t i = 0; i < size; i++) {
        random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        ((uint8_t *)out)[i] = (uint8_t)(random_state >> 56);
    }
    return 0;
}

static uint8_t take(struct input *input)
{
    if (input->left == 0) {
        return 0;
    }
    input->left--;
    return *input->at++;
}

/* ------------------------------------------------------------------------------------- the guards */

static void set_guards(struct side *side)
{
    memset(&side->region, GUARD, sizeof(side->region));
    memset(&side->received, GUARD, sizeof(side->received));
}

static void check_guards(const struct side *side)
{
    for (size_t i = 0; i < GUARD_SIZE; i++) {
        check(side->region.before[i] == GUARD && side->region.after[i] == GUARD,
              "bytes beside the region were written");
        check(side->received.before[i] == GUARD && side->received.after[i] == GUARD,
              "bytes beside a receive were written");
    }
}

/* --------------------------------------------------------------------------------------- progress */

/* What came from a side into its pending bytes. */
static void collect(struct side *side)
{
    while (side->middle >= 0 && side->pending_size < PENDING_MAX) {
        ssize_t got = recv(side->middle, side->pending + side->pending_size,
                           PENDING_MAX - side->pending_size, MSG_DONTWAIT);
        if (got <= 0) {
            return;
        }
        side->pending_size += (size_t)got;
    }
}

/* The first count pending bytes of sides[from] go on to the other. */
static void forward(int from, size_t count)
{
    struct side *side = &sides[from];
    count = count < side->pending_size ? count : side->pending_size;
    ssize_t sent = send(sides[1 - from].middle, side->pending, count, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
        side->pending_size -= (size_t)sent;
        memmove(side->pending, side->pending + sent, side->pending_size);
    }
}

static void step(struct side *side)
{
    struct rdmux_wc wc;
    while (rdmux_cq_poll(side->cq, &wc, 1) == 1) {
        if (wc.ep == side->good && side->good != NULL) {
            check(wc.status == RDMUX_OK, "the neighbour met with a failure");
            side->good_came = side->good_came || wc.opcode == RDMUX_WC_RECV;
            continue;
        }
        check(!side->disconnected, "an entry behind the end");
        check(wc.status <= RDMUX_IO, "an entry has a status that there is not");
        side->disconnected = wc.opcode == RDMUX_WC_DISCONNECTED;
        if (side->disconnected || (wc.opcode == RDMUX_WC_CONNECTED && wc.status != RDMUX_OK)) {
            check(!side->ended, "an endpoint ended twice");
            side->ended = true;
        }
    }
    check(rdmux_fabric_progress(side->fabric) == RDMUX_OK, "progress");
}

static void step_all(void)
{
    step(&sides[0]);
    step(&sides[1]);
    step(&stranger);
    collect(&sides[0]);
    collect(&sides[1]);
}

static void flow(size_t rounds)
{
    for (size_t i = 0; i < rounds; i++) {
        forward(0, PENDING_MAX);
        forward(1, PENDING_MAX);
        step_all();
    }
}

/* --------------------------------------------------------------------------------- the scene, once */

/* The key of all, in a file of nobody's. */
static const char *open_keys(char name[64], int *fd)
{
    static const char line[] = "anna:00112233445566778899aabbccddeeff\n";
    *fd = memfd_create("keys", MFD_CLOEXEC);
    check(*fd >= 0 && fchmod(*fd, 0600) == 0 &&
              write(*fd, line, sizeof(line) - 1) == (ssize_t)sizeof(line) - 1,
          "keys");
    snprintf(name, 64, "/proc/self/fd/%d", *fd);
    return name;
}

static void open_fabric(struct rdmux_fabric_attr *attr, struct rdmux_fabric **out)
{
    struct rdmux_fabric_auth auth = RDMUX_FABRIC_AUTH_INIT;
    char name[64];
    int fd = -1;
    auth.method = RDMUX_AUTH_PSK;
    auth.key_file = open_keys(name, &fd);
    attr->auth = authenticates ? &auth : NULL;
    check(rdmux_fabric_open(attr, out) == RDMUX_OK, "fabric");
    close(fd);
}

static void side_open(struct side *side)
{
    struct rdmux_fabric_attr attr = RDMUX_FABRIC_ATTR_INIT;
    attr.flags = RDMUX_FABRIC_IGNORE_ENVIRONMENT | RDMUX_FABRIC_NO_DEFAULT_PLUGINS |
                 RDMUX_FABRIC_NO_SERVICE_THREAD | RDMUX_FABRIC_NO_WORKER_THREAD;
    attr.paths = "tcp";
    attr.clock_ns = clock_of;
    attr.random = random_of;
    side->pending = malloc(PENDING_MAX);
    side->middle = -1;
    set_guards(side);
    check(side->pending != NULL, "memory");
    open_fabric(&attr, &side->fabric);
    check(rdmux_cq_create(side->fabric, NULL, &side->cq) == RDMUX_OK, "cq");
    check(rdmux_mr_register(side->fabric, side->region.bytes, REGION_SIZE,
                            RDMUX_ACCESS_REMOTE_READ | RDMUX_ACCESS_REMOTE_WRITE |
                                RDMUX_ACCESS_REMOTE_ATOMIC,
                            &side->mr) == RDMUX_OK,
          "region");
}

static void adopt(struct side *side, int socket, enum rdmux_role role, struct rdmux_ep **out)
{
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    attr.send_depth = 16;
    attr.recv_depth = 16;
    attr.max_send = BUFFER_SIZE;
    attr.max_recv = BUFFER_SIZE;
    enum rdmux_status status = rdmux_adopt(side->fabric, side->cq, socket, role, &attr, 0, out);
    check(status == RDMUX_OK || status == RDMUX_IN_PROGRESS, "adopt");
}

static bool is_ready(struct rdmux_ep *ep)
{
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    return rdmux_ep_info(ep, &info) == RDMUX_OK && info.provider[0] != '\0';
}

static void scene_open(void)
{
    int pair[2];
    time_ns = UINT64_C(1000) * 1000 * 1000 * 1000;
    side_open(&sides[0]);
    side_open(&sides[1]);
    side_open(&stranger);
    check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0, "socketpair");
    adopt(&sides[0], pair[0], RDMUX_ROLE_ACCEPT, &sides[0].good);
    adopt(&stranger, pair[1], RDMUX_ROLE_CONNECT, &stranger.good);
    for (int i = 0; i < PATIENCE && !(is_ready(sides[0].good) && is_ready(stranger.good)); i++) {
        step_all();
    }
    check(is_ready(sides[0].good) && is_ready(stranger.good), "the neighbours did not connect");
}

/* A message each way between the neighbours. */
static void check_neighbours(void)
{
    static const uint32_t number = 0x600d600d;
    struct side *both[] = { &sides[0], &stranger };
    for (int i = 0; i < 2; i++) {
        both[i]->good_came = false;
        both[i]->good_got = 0;
        check(rdmux_recv(both[i]->good, &both[i]->good_got, sizeof(number), NULL, NULL) == RDMUX_OK,
              "a neighbour's receive");
    }
    for (int i = 0; i < 2; i++) {
        check(rdmux_send(both[i]->good, &number, sizeof(number), NULL, NULL,
                         RDMUX_INLINE | RDMUX_UNSIGNALED) == RDMUX_OK,
              "a neighbour's send");
    }
    for (int i = 0; i < PATIENCE && !(sides[0].good_came && stranger.good_came); i++) {
        step_all();
    }
    check(sides[0].good_came && stranger.good_came && sides[0].good_got == number &&
              stranger.good_got == number,
          "the neighbours' messages did not come");
}

/* -------------------------------------------------------------------------------- the connection */

static void connect_sides(uint8_t options)
{
    for (int i = 0; i < 2; i++) {
        int pair[2];
        bool connects = (i == 0) == ((options & EXPORTER_CONNECTS) != 0);
        check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0, "socketpair");
        sides[i].middle = pair[1];
        sides[i].pending_size = 0;
        sides[i].ended = false;
        sides[i].disconnected = false;
        adopt(&sides[i], pair[0], connects ? RDMUX_ROLE_CONNECT : RDMUX_ROLE_ACCEPT, &sides[i].ep);
    }
    if ((options & FROM_THE_START) == 0) {
        for (int i = 0; i < PATIENCE && !(is_ready(sides[0].ep) && is_ready(sides[1].ep)); i++) {
            flow(1);
        }
        check(is_ready(sides[0].ep) && is_ready(sides[1].ep), "the sides did not connect");
    }
}

/* The socket goes: whoever has not ended ends now. */
static void disconnect_sides(void)
{
    for (int i = 0; i < 2; i++) {
        (void)close(sides[i].middle);
        sides[i].middle = -1;
    }
    for (int i = 0; i < PATIENCE && !(sides[0].ended && sides[1].ended); i++) {
        time_ns += STEP_NS;
        step_all();
    }
    for (int i = 0; i < 2; i++) {
        check(sides[i].ended, "an endpoint without a socket lives on");
        rdmux_remote_close(sides[i].remote);
        sides[i].remote = NULL;
        check(rdmux_ep_close(sides[i].ep) == RDMUX_OK, "close");
        sides[i].ep = NULL;
    }
    step_all();
}

/* -------------------------------------------------------------------------------------- operations */

static void insert(int from, const uint8_t *bytes, size_t count)
{
    struct side *side = &sides[from];
    if (count > PENDING_MAX - side->pending_size) {
        return;
    }
    memmove(side->pending + count, side->pending, side->pending_size);
    memcpy(side->pending, bytes, count);
    side->pending_size += count;
}

/* A malicious peer says it: inside its session, which nobody in the middle could. */
static void say(int from, const uint8_t *bytes, size_t count, bool renew)
{
    struct side *side = &sides[from];
    struct rdmux_ep *ep = side->ep;
    tampered = true;
    if (side->ended || count == 0 || !rdmux_cq_enter(side->cq)) {
        return;
    }
    if (ep->path != NULL) {
        struct rdmux_stream *session = rdmux_tcp_lane(rdmux_tcp_ep(ep->path), 0)->stream.session;
        size_t done = 0;
        if (session != NULL && renew) {
            rdmux_tls_renew_after(session, 0);
        }
        if (session != NULL) {
            (void)session->ops->send(session, bytes, count, &done);
        }
    } else if (ep->channel != NULL) {
        (void)rdmux_channel_send(ep->channel, bytes, count);
    }
    rdmux_cq_leave(side->cq);
}

static void say_from(struct input *input)
{
    uint8_t bytes[UINT8_MAX];
    uint8_t how = take(input);
    size_t count = take(input);
    for (size_t i = 0; i < count; i++) {
        bytes[i] = take(input);
    }
    say(how & 1, bytes, count, (how & 2) != 0);
}

static void insert_from(struct input *input, int from, bool as_frame)
{
    uint8_t bytes[8 + UINT8_MAX];
    enum rdmux_frame_type type = as_frame ? (enum rdmux_frame_type)take(input) : 0;
    size_t count = take(input);
    for (size_t i = 0; i < count; i++) {
        bytes[8 + i] = take(input);
    }
    if (as_frame) {
        rdmux_frame_header_encode(type, 0, count, bytes);
    }
    if (as_frame && authenticates) {
        say(from, bytes, count + 8, false);
        return;
    }
    insert(from, as_frame ? bytes : bytes + 8, as_frame ? count + 8 : count);
}

static void change(struct input *input, enum operation operation)
{
    int from = take(input) & 1;
    struct side *side = &sides[from];
    tampered = tampered || !authenticates;
    if (operation == INSERT || operation == FRAME) {
        insert_from(input, from, operation == FRAME);
        return;
    }
    size_t count = take(input);
    if (operation == FLIP) {
        uint8_t bits = take(input);
        if (count < side->pending_size) {
            side->pending[count] ^= bits;
        }
        return;
    }
    count = count < side->pending_size ? count : side->pending_size;
    if (operation == DROP) {
        side->pending_size -= count;
        memmove(side->pending, side->pending + count, side->pending_size);
    } else if (operation == REPEAT) {
        uint8_t again[UINT8_MAX];
        memcpy(again, side->pending, count);
        insert(from, again, count);
    }
}

static void import(struct input *input)
{
    struct rdmux_token token;
    int index = take(input) & 1;
    uint8_t at = take(input) % sizeof(token.bytes);
    uint8_t bits = take(input);
    check(rdmux_mr_export(sides[1 - index].mr, &token) == RDMUX_OK, "export");
    token.bytes[at] ^= bits;
    if (sides[index].remote != NULL || sides[index].ended) {
        return;
    }
    enum rdmux_status status = rdmux_remote_import(sides[index].ep, &token, 0, &sides[index].remote);
    check(bits == 0 || status != RDMUX_OK, "an import of a forged token is there at once");
    if (status != RDMUX_OK && status != RDMUX_IN_PROGRESS) {
        sides[index].remote = NULL;
    }
    sides[index].forged = bits != 0;
}

/* An import by a forged token opens nothing, as long as nobody lies about the answer. */
static void check_imports(void)
{
    for (int i = 0; i < 2 && !tampered; i++) {
        struct rdmux_remote_info info = RDMUX_REMOTE_INFO_INIT;
        if (sides[i].remote != NULL && sides[i].forged) {
            check(rdmux_remote_info(sides[i].remote, &info) != RDMUX_OK || info.status != RDMUX_OK,
                  "a forged token was taken");
        }
    }
}

static void post(struct input *input)
{
    struct side *side = &sides[take(input) & 1];
    uint8_t what = take(input);
    size_t length = ((size_t)take(input) << 8 | take(input)) % (BUFFER_SIZE + 1);
    uint64_t offset = (uint64_t)take(input) << 8 | take(input);
    uint32_t flags = (what & 0x80) != 0 ? RDMUX_PLACED : 0;
    struct rdmux_ep *ep = side->ep;
    struct rdmux_remote *remote = side->remote;
    enum rdmux_status status = RDMUX_OK;
    what &= 7;
    if (remote == NULL && what >= 3 && what <= 6) {
        what = 0;
    }
    switch (what) {
    case 0:
        status = rdmux_recv(ep, side->received.bytes, length, NULL, NULL);
        break;
    case 1:
        status = rdmux_send(ep, side->sent, length, NULL, NULL, flags);
        break;
    case 2:
        status = rdmux_send_imm(ep, side->sent, length, NULL, 7, NULL, flags);
        break;
    case 3:
        status = rdmux_write_imm(ep, side->sent, length, NULL, remote, offset, 7, NULL, flags);
        break;
    case 4:
        status = rdmux_write(ep, side->sent, length, NULL, remote, offset, NULL, flags);
        break;
    case 5:
        status = rdmux_read(ep, side->received.bytes, length, NULL, remote, offset, NULL, 0);
        break;
    case 6:
        status = rdmux_fetch_add(ep, (uint64_t *)(void *)side->received.bytes, NULL, remote, offset,
                                 1, NULL, 0);
        break;
    case 7:
        status = rdmux_ep_shutdown(ep, 0);
        break;
    default:
        break;
    }
    (void)status; /* a refusal is an answer */
}

static void operate(struct input *input)
{
    enum operation operation = (enum operation)(
        take(input) % (authenticates ? (int)SECURE_OPERATION_COUNT : (int)OPERATION_COUNT));
    switch (operation) {
    case FORWARD: {
        int from = take(input) & 1;
        forward(from, take(input));
        break;
    }
    case FLOW:
        flow(2);
        break;
    case FLIP:
    case INSERT:
    case DROP:
    case REPEAT:
    case FRAME:
        change(input, operation);
        break;
    case POST:
        post(input);
        break;
    case IMPORT:
        import(input);
        break;
    case SAY:
        say_from(input);
        break;
    case TIME:
    case SECURE_OPERATION_COUNT:
        time_ns += (uint64_t)(take(input) % 8) * STEP_NS;
        break;
    }
    step_all();
}

static int run(const uint8_t *data, size_t size, bool secure)
{
    struct input input = { data, size < 4096 ? size : 4096 };
    if (sides[0].fabric == NULL) {
        authenticates = secure;
        scene_open();
    }
    random_state = 1;
    tampered = false;
    connect_sides(take(&input));
    while (input.left > 0) {
        operate(&input);
    }
    check_imports();
    disconnect_sides();
    check_neighbours();
    for (int i = 0; i < 2; i++) {
        check_guards(&sides[i]);
    }
    return 0;
}

#endif
