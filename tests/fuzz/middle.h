/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * The whole library with an attacker between two endpoints, each in a fabric of its own. They use
 * one socket, whose bytes the input forwards in pieces, changes, drops, repeats and forges, in both
 * directions, while both sides post, import tokens and end. Control channel and data share the
 * socket. Included by one source, which decides whether the sides authenticate.
 *
 * Always: the bytes beside the exported region and the posted buffers do not change, both endpoints
 * end with a status once the socket is closed, and the endpoint of a third fabric on the same cq
 * continues undisturbed.
 *
 * Byte 0: 1 = the exporting side connects; 2 = the handshake is under attack, too. Then come
 * operations.
 */
#ifndef RDMUX_TESTS_FUZZ_MIDDLE_H
#define RDMUX_TESTS_FUZZ_MIDDLE_H

#include "api/base/stream.h"
#include "api/core/cq.h"
#include "api/core/ep.h"
#include "api/progress/cq_owner.h"
#include "driver.h"
#include "middle_scene.h"
#include "middle_side.h"
#include "negotiation/control_channel.h"
#include "negotiation/message.h"
#include "negotiation/tls.h"
#include "tcp_fallback/tcp_endpoint.h"
#include "tcp_fallback/tcp_lane.h"

#include <rdmux/rdmux.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum operation {
    FORWARD, /* u8 direction, u8 count */
    FLOW,    /* everything, both ways */
    FLIP,    /* u8 direction, u8 where, u8 bits */
    INSERT,  /* u8 direction, u8 count, bytes */
    DROP,    /* u8 direction, u8 count */
    REPEAT,  /* u8 direction, u8 count */
    FRAME,   /* u8 direction, u8 type, u8 count, bytes: a control frame with a valid header; between
              * sides that authenticate, the peer sends it */
    POST,    /* u8 side, u8 what, u16 length, u16 offset */
    IMPORT,  /* u8 side, u8 place, u8 bits: the other side's token with these bits changed */
    TIME,    /* u8 steps */
    OPERATION_COUNT,
    /* Only between sides that authenticate. */
    SAY = OPERATION_COUNT, /* u8 direction and 2 = with a new key, u8 count, bytes: the peer says them */
    SECURE_OPERATION_COUNT,
};

struct input {
    const uint8_t *at;
    size_t left;
};

static uint8_t take(struct input *input)
{
    if (input->left == 0) {
        return 0;
    }
    input->left--;
    return *input->at++;
}

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

/* A malicious peer sends bytes inside its session, which an attacker on the path cannot do. */
static void say(int from, const uint8_t *bytes, size_t count, bool renew)
{
    struct side *side = &sides[from];
    struct rdmux_ep *ep = side->ep;
    tampered = true;
    if (side->ended || count == 0 || !rdmux_cq_enter(side->cq)) {
        return;
    }
    if (ep->path != NULL) {
        struct rdmux_path_stream *session = rdmux_tcp_lane(rdmux_tcp_ep(ep->path), 0)->stream.session;
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

/* An import by a forged token gives no access, unless its answer was forged as well. */
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
    (void)status; /* a refusal is allowed */
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
