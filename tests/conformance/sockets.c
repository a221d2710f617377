/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Payloads that travel over several data sockets. */
#include "harness.h"

/* ------------------------------------------------------------------- parts over several sockets */

enum { PARTS_SIZE = (9 << 20) + 12345 };

/* A request that needs several frames on every socket, from a list, in both directions. */
static void parts_initiator(struct side *side)
{
    struct rdmux_ep_attr attr = ep_attr_of(side);
    attr.data_sockets = 4;
    side_open_pair(side, &attr);
    struct region out = region_make(side, MEMORY_UNREGISTERED, PARTS_SIZE, 0);
    struct region in = region_make(side, MEMORY_UNREGISTERED, PARTS_SIZE, 0);
    struct rdmux_remote *remote = take_remote(side, side->ep);
    pattern_fill(out.addr, PARTS_SIZE, side->seed, 0);
    const struct rdmux_sge pieces[4] = {
        { .addr = out.addr, .length = 3000001 },
        { .addr = out.addr, .length = 0 },
        { .addr = out.addr + 3000001, .length = 1 },
        { .addr = out.addr + 3000002, .length = PARTS_SIZE - 3000002 },
    };
    const struct rdmux_wr list = {
        .op = RDMUX_OP_WRITE, .context = CTX(1), .sges = pieces, .sge_count = 4, .remote = remote
    };
    EXPECT_OK(rdmux_post(side->ep, &list, 1, NULL));
    EXPECT_OK(rdmux_read(side->ep, in.addr, PARTS_SIZE, NULL, remote, 0, CTX(2), 0));
    (void)WAIT(&side->queue, RDMUX_WC_WRITE, CTX(1));
    (void)WAIT(&side->queue, RDMUX_WC_READ, CTX(2));
    EXPECT_PATTERN(in.addr, PARTS_SIZE, side->seed);
    for (unsigned i = 0; i < 3; i++) {
        EXPECT_OK(rdmux_send(side->ep, out.addr + i, (8 << 20) - i, NULL, CTX(3), 0));
        (void)WAIT(&side->queue, RDMUX_WC_SEND, CTX(3));
    }
    side_finish(side);
}

static void parts_target(struct side *side)
{
    struct rdmux_ep_attr attr = ep_attr_of(side);
    attr.data_sockets = 4;
    side_open_pair(side, &attr);
    struct region region = region_make(side, MEMORY_REGISTERED, PARTS_SIZE, ACCESS_ALL);
    struct region sink = region_make(side, MEMORY_UNREGISTERED, (size_t)3 * (8 << 20), 0);
    for (uint64_t i = 0; i < 3; i++) {
        EXPECT_OK(rdmux_recv(side->ep, sink.addr + i * (8 << 20), 8 << 20, NULL, CTX(i)));
    }
    give_token(side, &region);
    for (uint64_t i = 0; i < 3; i++) {
        EXPECT_EQUAL(WAIT(&side->queue, RDMUX_WC_RECV, CTX(i)).length, (8 << 20) - i);
        EXPECT_PATTERN_FROM(sink.addr + i * (8 << 20), (8 << 20) - i, side->seed, i);
    }
    EXPECT_PATTERN(region.addr, PARTS_SIZE, side->seed);
    side_finish(side);
}

/* --------------------------------------------------------------------- bursts over many sockets */

enum {
    BURST_SOCKETS = 16,
    BURST_MESSAGES = 36,
    BURST_LONG = 256 << 10, /* part of it is on each socket, and the next header is close behind */
    BURST_ROOM = BURST_LONG + (32 << 10),
    BURST_ROUNDS = 4,
};

static size_t burst_length(unsigned message)
{
    return message % 4 == 3 ? 24 : BURST_LONG + (size_t)message % 7 * 4096 + message % 2;
}

static void burst_initiator(struct side *side)
{
    struct rdmux_ep_attr attr = ep_attr_of(side);
    attr.data_sockets = BURST_SOCKETS;
    attr.send_depth = BURST_MESSAGES;
    side_open_pair(side, &attr);
    struct region from = region_make(side, MEMORY_UNREGISTERED, (size_t)BURST_MESSAGES * BURST_ROOM,
                                     0);
    for (uint64_t round = 0; round < BURST_ROUNDS; round++) {
        BARRIER(side);
        for (unsigned i = 0; i < BURST_MESSAGES; i++) {
            uint8_t *at = from.addr + (size_t)i * BURST_ROOM;
            pattern_fill(at, burst_length(i), side->seed + round, i);
        }
        for (unsigned i = 0; i < BURST_MESSAGES; i++) {
            EXPECT_OK(rdmux_send(side->ep, from.addr + (size_t)i * BURST_ROOM, burst_length(i),
                                 NULL, CTX(i), 0));
        }
        for (unsigned i = 0; i < BURST_MESSAGES; i++) {
            (void)WAIT(&side->queue, RDMUX_WC_SEND, CTX(i));
        }
        BARRIER(side);
    }
    side_finish(side);
}

static void burst_target(struct side *side)
{
    struct rdmux_ep_attr attr = ep_attr_of(side);
    attr.data_sockets = BURST_SOCKETS;
    attr.recv_depth = BURST_MESSAGES;
    side_open_pair(side, &attr);
    struct region into = region_make(side, MEMORY_UNREGISTERED, (size_t)BURST_MESSAGES * BURST_ROOM,
                                     0);
    for (uint64_t round = 0; round < BURST_ROUNDS; round++) {
        for (unsigned i = 0; i < BURST_MESSAGES; i++) {
            EXPECT_OK(
                rdmux_recv(side->ep, into.addr + (size_t)i * BURST_ROOM, BURST_ROOM, NULL, CTX(i)));
        }
        BARRIER(side);
        for (unsigned i = 0; i < BURST_MESSAGES; i++) {
            EXPECT_EQUAL(WAIT(&side->queue, RDMUX_WC_RECV, CTX(i)).length, burst_length(i));
            EXPECT_PATTERN_FROM(into.addr + (size_t)i * BURST_ROOM, burst_length(i),
                                side->seed + round, i);
        }
        BARRIER(side);
    }
    side_finish(side);
}

static const struct conformance_case cases[] = {
    { "2.15, 12.5, 1.13",
      "with four data sockets requests of many parts, from lists, are whole both ways",
      NEEDS_BASICS, 30, 0, parts_initiator, parts_target },
    { "2.15, 2.1",
      "with sixteen data sockets messages just long enough to be striped, and short ones, arrive "
      "whole",
      NEEDS_SEND, 30, 0, burst_initiator, burst_target },
};

const struct suite sockets_suite = { "sockets", cases, COUNT_OF(cases) };
