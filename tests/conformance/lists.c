/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Lists of pieces, and messages that are longer than their receive. */
#include "harness.h"

#include <string.h>

enum { GUARD_BYTE = 0x3c };

/* --------------------------------------------------------------- receives where peers may write */

enum { LISTED_TOTAL = 9000, LISTED_GAP = 1000, LISTED_ROUNDS = 6 };

/* Lists of receives, with empty pieces, in regions that a path may let the sender write to. */
static void listed_initiator(struct side *side)
{
    static uint8_t bytes[LISTED_TOTAL];
    side_open_pair(side, NULL);
    const struct rdmux_sge pieces[3] = { { .addr = bytes, .length = 2000 },
                                         { .addr = bytes + 2000, .length = 0 },
                                         { .addr = bytes + 2000, .length = LISTED_TOTAL - 2000 } };
    const struct rdmux_wr list = {
        .op = RDMUX_OP_SEND, .context = CTX(1), .sges = pieces, .sge_count = 3
    };
    for (unsigned round = 0; round < REGION_KINDS * LISTED_ROUNDS; round++) {
        BARRIER(side);
        pattern_fill(bytes, sizeof(bytes), side->seed + round, 0);
        if (round % 2 == 0) {
            EXPECT_OK(rdmux_post(side->ep, &list, 1, NULL));
        } else {
            EXPECT_OK(rdmux_send(side->ep, bytes, sizeof(bytes), NULL, CTX(1), 0));
        }
        (void)WAIT(&side->queue, RDMUX_WC_SEND, CTX(1));
    }
    side_finish(side);
}

static void listed_target(struct side *side)
{
    side_open_pair(side, NULL);
    struct region regions[REGION_KINDS];
    for (unsigned kind = 0; kind < REGION_KINDS; kind++) {
        regions[kind] = region_of_kind(side, kind, LISTED_TOTAL + (size_t)2 * LISTED_GAP);
    }
    for (unsigned round = 0; round < REGION_KINDS * LISTED_ROUNDS; round++) {
        struct region *region = &regions[round % REGION_KINDS];
        uint8_t *at = region->addr;
        const size_t first = round % 4 < 2 ? 2500 : 5000;
        const struct rdmux_sge pieces[4] = {
            { .addr = at, .length = first, .mr = region->mr },
            { .addr = at, .length = 0, .mr = region->mr },
            { .addr = at + first + LISTED_GAP, .length = 1, .mr = region->mr },
            { .addr = at + first + 1 + (size_t)2 * LISTED_GAP - 1,
              .length = LISTED_TOTAL - first - 1,
              .mr = region->mr },
        };
        const struct rdmux_wr list = {
            .op = RDMUX_OP_RECV, .context = CTX(round), .sges = pieces, .sge_count = 4
        };
        memset(at, GUARD_BYTE, region->length);
        EXPECT_OK(rdmux_post_recv(side->ep, &list, 1, NULL));
        BARRIER(side);
        EXPECT_EQUAL(WAIT(&side->queue, RDMUX_WC_RECV, CTX(round)).length, LISTED_TOTAL);
        for (size_t i = 0, done = 0; i < COUNT_OF(pieces); i++) {
            EXPECT_PATTERN_FROM(pieces[i].addr, pieces[i].length, side->seed + round, done);
            done += pieces[i].length;
        }
        EXPECT_FILLED(at + first, LISTED_GAP, GUARD_BYTE);
        EXPECT_FILLED(at + first + LISTED_GAP + 1, LISTED_GAP - 1, GUARD_BYTE);
    }
    side_finish(side);
}

/* ------------------------------------------------------------------ lists of the maximum length */

/* Lists of the maximum length, with another length in every piece, sent, written and received. */
enum { LONGEST_PIECE = 3000, SHORTER_PIECE = 700, LONGEST_MOST = 16, LONGEST_ROUNDS = 3 };

static size_t longest_list(uint8_t *bytes, unsigned round, uint32_t count, struct rdmux_sge *out)
{
    const size_t longest = round < 2 ? SHORTER_PIECE : LONGEST_PIECE;
    size_t used = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint8_t *piece = bytes + used;
        out[i] = (struct rdmux_sge){ .addr = piece, .length = longest - 3 * (size_t)i };
        used += longest - 3 * (size_t)i;
    }
    return used;
}

static void longest_initiator(struct side *side)
{
    static uint8_t bytes[LONGEST_MOST * LONGEST_PIECE];
    struct rdmux_sge pieces[LONGEST_MOST];
    struct rdmux_ep_attr attr = ep_attr_of(side);
    attr.max_send_sge = LONGEST_MOST;
    side_open_pair(side, &attr);
    struct rdmux_remote *remote = take_remote(side, side->ep);
    EXPECT_EQUAL(side->info.max_send_sge, LONGEST_MOST);
    BARRIER(side);
    for (unsigned round = 0; round < LONGEST_ROUNDS; round++) {
        uint32_t count = round == 1 ? 5 : LONGEST_MOST; /* some paths copy one and not the other */
        size_t length = longest_list(bytes, round, count, pieces);
        const struct rdmux_wr wrs[2] = {
            { .op = RDMUX_OP_WRITE,
              .context = CTX(1),
              .sges = pieces,
              .sge_count = count,
              .remote = remote },
            { .op = RDMUX_OP_SEND, .context = CTX(2), .sges = pieces, .sge_count = count },
        };
        pattern_fill(bytes, length, side->seed + round, 0);
        EXPECT_OK(rdmux_post(side->ep, wrs, 2, NULL));
        memset(pieces, 0, sizeof(pieces));
        (void)WAIT(&side->queue, RDMUX_WC_WRITE, CTX(1));
        (void)WAIT(&side->queue, RDMUX_WC_SEND, CTX(2));
        BARRIER(side);
    }
    side_finish(side);
}

static void longest_target(struct side *side)
{
    static uint8_t bytes[LONGEST_MOST * LONGEST_PIECE];
    struct rdmux_sge pieces[LONGEST_MOST];
    struct rdmux_ep_attr attr = ep_attr_of(side);
    attr.max_recv_sge = LONGEST_MOST;
    side_open_pair(side, &attr);
    struct region region = region_make(side, MEMORY_REGISTERED, sizeof(bytes), ACCESS_ALL);
    give_token(side, &region);
    EXPECT_EQUAL(side->info.max_recv_sge, LONGEST_MOST);
    const struct rdmux_wr list = {
        .op = RDMUX_OP_RECV, .context = CTX(1), .sges = pieces, .sge_count = LONGEST_MOST
    };
    for (unsigned round = 0; round < LONGEST_ROUNDS; round++) {
        (void)longest_list(bytes, round, LONGEST_MOST, pieces);
        EXPECT_OK(rdmux_post_recv(side->ep, &list, 1, NULL));
        memset(pieces, 0, sizeof(pieces));
        if (round == 0) {
            BARRIER(side);
        }
        size_t length = WAIT(&side->queue, RDMUX_WC_RECV, CTX(1)).length;
        EXPECT_PATTERN(bytes, length, side->seed + round);
        EXPECT_PATTERN(region.addr, length, side->seed + round);
        BARRIER(side);
    }
    side_finish(side);
}

/* ------------------------------------------------------------- messages longer than the receive */

/* A message longer than a receive in such a region, by one byte or by many: no byte behind the
 * receive changes. */
enum { EXCEEDED = 4096 };

static void exceeded_initiator(struct side *side)
{
    static uint8_t bytes[2 * EXCEEDED];
    side_open(side, NULL);
    side_meet(side);
    memset(bytes, 0xee, sizeof(bytes));
    for (unsigned round = 0; round < 2 * REGION_KINDS; round++) {
        struct rdmux_ep *ep = side_pair(side, NULL);
        BARRIER(side);
        EXPECT_OK(
            rdmux_send(ep, bytes, round % 2 == 0 ? EXCEEDED + 1 : 2 * EXCEEDED, NULL, CTX(1), 0));
        struct rdmux_wc wc = NEXT(&side->queue);
        EXPECT(wc.opcode == RDMUX_WC_SEND && wc.context == CTX(1), "got %s", wc_text(&wc));
        (void)WAIT_OF(&side->queue, ep, RDMUX_WC_DISCONNECTED, NULL, RDMUX_LENGTH);
        BARRIER(side);
        side_close_ep(side, ep);
    }
    side_finish(side);
}

static void exceeded_target(struct side *side)
{
    side_open(side, NULL);
    side_meet(side);
    for (unsigned round = 0; round < 2 * REGION_KINDS; round++) {
        struct rdmux_ep *ep = side_pair(side, NULL);
        struct region region = region_of_kind(side, round / 2, (size_t)3 * EXCEEDED);
        memset(region.addr, GUARD_BYTE, region.length);
        EXPECT_OK(rdmux_recv(ep, region.addr, EXCEEDED, region.mr, CTX(1)));
        BARRIER(side);
        (void)WAIT_STATUS(&side->queue, RDMUX_WC_RECV, CTX(1), RDMUX_LENGTH);
        (void)WAIT_OF(&side->queue, ep, RDMUX_WC_DISCONNECTED, NULL, RDMUX_LENGTH);
        EXPECT_FILLED(region.addr + EXCEEDED, 2 * (size_t)EXCEEDED, GUARD_BYTE);
        BARRIER(side);
        side_close_ep(side, ep);
        region_free(side, &region);
    }
    side_finish(side);
}

static const struct conformance_case cases[] = {
    { "1.13, 2.1, 5.2",
      "receives with lists and empty pieces work in regions of every kind that a peer may write to",
      NEEDS_SEND, 20, 0, listed_initiator, listed_target },
    { "1.13, 2.3",
      "lists of the maximum length are sent, written and received whole, and are free on return",
      NEEDS_SEND | NEEDS_WRITE, 0, 0, longest_initiator, longest_target },
    { "5.1, 5.2, -5.1, -5.2",
      "a message too long for its receive in a region of any kind changes no byte behind the "
      "receive",
      NEEDS_SEND, 20, 0, exceeded_initiator, exceeded_target },
};

const struct suite lists_suite = { "lists", cases, COUNT_OF(cases) };
