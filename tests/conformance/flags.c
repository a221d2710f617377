/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Flags in combination: PLACED, INLINE, MORE, UNSIGNALED. */
#include "harness.h"

#include <string.h>

enum { PAGE = 4096 };

/* --------------------------------------------------------------------------- PLACED with INLINE */

enum { FLAGS_ROUNDS = 8, FLAGS_POLLS = 2000, FLAGS_LONG = 9000, FLAGS_REGION = 3 * PAGE };

/* Returns whether the completion comes while the target makes no call and has no thread that makes
 * progress. */
static bool flags_comes(struct side *side)
{
    for (unsigned polls = 0; polls < FLAGS_POLLS; polls++) {
        if (queue_poll(&side->queue) > 0) {
            return true;
        }
        if (polls % 64 == 0) {
            sleep_ms(1);
        }
    }
    return false;
}

/* PLACED keeps its meaning with INLINE: for a message, a write of nothing, and a write into a
 * region, behind a long message or behind messages alone. If it completes while the target does
 * nothing, the bytes are placed nevertheless. */
static void flags_initiator(struct side *side)
{
    static uint8_t bytes[FLAGS_LONG];
    uint64_t context = 100;
    side_open_pair(side, NULL);
    struct rdmux_ep *ep = side->ep;
    for (unsigned kind = 0; kind < REGION_KINDS; kind++) {
        struct rdmux_remote *remote = take_remote(side, ep);
        for (unsigned round = 0; round < FLAGS_ROUNDS; round++) {
            size_t before = round % 2 == 0 ? 40 : sizeof(bytes);
            uint32_t opcode = round / 2 == 0 ? RDMUX_WC_SEND : RDMUX_WC_WRITE;
            uint64_t last = ++context;
            uint8_t go = 0;
            pattern_fill(bytes, sizeof(bytes), side->seed + round, 0);
            BARRIER(side); /* receives are posted */
            TAKE(side, &go, 1);
            EXPECT_OK(rdmux_send(ep, bytes, before, NULL, NULL, RDMUX_UNSIGNALED));
            switch (round / 2) {
            case 0: /* a short message */
                EXPECT_OK(rdmux_send(ep, bytes, 40, NULL, CTX(last), RDMUX_INLINE | RDMUX_PLACED));
                break;
            case 1: /* a flush; no write precedes the first */
                EXPECT_OK(rdmux_write(ep, NULL, 0, NULL, NULL, 0, CTX(last), RDMUX_PLACED));
                break;
            case 2: /* a flush that names a region */
                EXPECT_OK(rdmux_write(ep, NULL, 0, NULL, remote, 0, CTX(last), RDMUX_PLACED));
                break;
            default: /* a write */
                EXPECT_OK(rdmux_write(ep, bytes, 64, NULL, remote, 0, CTX(last),
                                      RDMUX_INLINE | RDMUX_PLACED));
                break;
            }
            bool is_placed = flags_comes(side);
            GIVE(side, &is_placed, sizeof(is_placed));
            (void)WAIT(&side->queue, opcode, CTX(last));
            BARRIER(side);
        }
        rdmux_remote_close(remote);
    }
    side_finish(side);
}

static void flags_look(const struct side *side, const struct region *sink,
                       const struct region *region, unsigned round)
{
    EXPECT_PATTERN(sink->addr, round % 2 == 0 ? 40 : FLAGS_LONG, side->seed + round);
    if (round / 2 == 0) {
        EXPECT_PATTERN(sink->addr + FLAGS_LONG, 40, side->seed + round);
    }
    if (round / 2 == 3) {
        EXPECT_PATTERN(region->addr, 64, side->seed + round);
    }
}

static void flags_target(struct side *side)
{
    side->manual = true; /* no service thread */
    side_open_pair(side, NULL);
    struct region sink = region_make(side, MEMORY_REGISTERED, (size_t)2 * FLAGS_LONG, ACCESS_SINK);
    for (unsigned kind = 0; kind < REGION_KINDS; kind++) {
        struct region region = region_of_kind(side, kind, FLAGS_REGION);
        give_token(side, &region);
        for (unsigned round = 0; round < FLAGS_ROUNDS; round++) {
            bool is_placed = false;
            memset(sink.addr, 0, sink.length);
            memset(region.addr, 0, region.length);
            EXPECT_OK(rdmux_recv(side->ep, sink.addr, FLAGS_LONG, sink.mr, CTX(1)));
            if (round / 2 == 0) {
                EXPECT_OK(rdmux_recv(side->ep, sink.addr + FLAGS_LONG, FLAGS_LONG, sink.mr, CTX(2)));
            }
            BARRIER(side);
            side->manual = false; /* from here on it makes no call */
            GIVE(side, "g", 1);
            TAKE(side, &is_placed, sizeof(is_placed));
            if (is_placed) {
                flags_look(side, &sink, &region, round);
            }
            side->manual = true;
            BARRIER(side);
            flags_look(side, &sink, &region, round);
            (void)WAIT(&side->queue, RDMUX_WC_RECV, CTX(1));
            if (round / 2 == 0) {
                (void)WAIT(&side->queue, RDMUX_WC_RECV, CTX(2));
            }
        }
        region_free(side, &region);
    }
    side_finish(side);
}

/* ----------------------------------------------------------------------------- INLINE with MORE */

/* INLINE bytes held back by MORE are nevertheless free on return. */
static void held_initiator(struct side *side)
{
    static uint8_t bytes[PAGE];
    struct rdmux_ep_attr attr = ep_attr_of(side);
    attr.max_inline = 1024;
    side_open_pair(side, &attr);
    struct rdmux_remote *remote = take_remote(side, side->ep);
    size_t length = side->info.max_inline < sizeof(bytes) ? side->info.max_inline : sizeof(bytes);
    GIVE(side, &length, sizeof(length));
    for (unsigned round = 0; round < 4; round++) {
        BARRIER(side);
        pattern_fill(bytes, length, side->seed + round, 0);
        EXPECT_OK(rdmux_write(side->ep, bytes, length, NULL, remote, 0, CTX(1),
                              RDMUX_INLINE | RDMUX_MORE | RDMUX_UNSIGNALED));
        memset(bytes, 0, sizeof(bytes));
        pattern_fill(bytes, length, side->seed + 100 + round, 0);
        EXPECT_OK(rdmux_send(side->ep, bytes, length, NULL, CTX(2), RDMUX_INLINE | RDMUX_MORE));
        memset(bytes, 0, sizeof(bytes));
        (void)WAIT(&side->queue, RDMUX_WC_SEND, CTX(2));
        BARRIER(side);
    }
    side_finish(side);
}

static void held_target(struct side *side)
{
    static uint8_t bytes[PAGE];
    size_t length = 0;
    side_open_pair(side, NULL);
    struct region region = region_make(side, MEMORY_REGISTERED, PAGE, ACCESS_ALL);
    give_token(side, &region);
    TAKE(side, &length, sizeof(length));
    for (unsigned round = 0; round < 4; round++) {
        EXPECT_OK(rdmux_recv(side->ep, bytes, sizeof(bytes), NULL, CTX(1)));
        BARRIER(side);
        (void)WAIT(&side->queue, RDMUX_WC_RECV, CTX(1));
        EXPECT_PATTERN(region.addr, length, side->seed + round);
        EXPECT_PATTERN(bytes, length, side->seed + 100 + round);
        BARRIER(side);
    }
    side_finish(side);
}

/* --------------------------------------------------------------------------- unsignaled atomics */

/* Many unsignaled atomics, far more than the queue and than a path has in flight at a time. */
enum { SILENT_ATOMICS = 1500 };

static void silent_initiator(struct side *side)
{
    struct rdmux_ep_attr attr = ep_attr_of(side);
    static uint64_t olds[64];
    attr.send_depth = 48;
    side_open_pair(side, &attr);
    for (unsigned kind = 0; kind < REGION_KINDS; kind++) {
        struct rdmux_remote *remote = take_remote(side, side->ep);
        for (unsigned i = 0; i < SILENT_ATOMICS;) {
            enum rdmux_status status = rdmux_fetch_add(side->ep, &olds[i % COUNT_OF(olds)], NULL,
                                                       remote, 8, 1, NULL, RDMUX_UNSIGNALED);
            if (status == RDMUX_AGAIN) {
                (void)WAIT(&side->queue, RDMUX_WC_WRITABLE, NULL);
                continue;
            }
            EXPECT_STATUS(status, RDMUX_OK);
            i++;
        }
        uint64_t sum = 0;
        enum rdmux_status status = RDMUX_AGAIN;
        while ((status = rdmux_fetch_add(side->ep, &sum, NULL, remote, 8, 0, CTX(2), 0)) ==
               RDMUX_AGAIN) {
            (void)WAIT(&side->queue, RDMUX_WC_WRITABLE, NULL);
        }
        EXPECT_STATUS(status, RDMUX_OK);
        (void)WAIT(&side->queue, RDMUX_WC_FETCH_ADD, CTX(2));
        EXPECT_EQUAL(sum, SILENT_ATOMICS);
        while (queue_poll(&side->queue) > 0) { /* WRITABLE for the last refusal */
            EXPECT_EQUAL(NEXT(&side->queue).opcode, RDMUX_WC_WRITABLE);
        }
        rdmux_remote_close(remote);
    }
    BARRIER(side);
    side_finish(side);
}

static void silent_target(struct side *side)
{
    side_open_pair(side, NULL);
    for (unsigned kind = 0; kind < REGION_KINDS; kind++) {
        struct region region = region_of_kind(side, kind, PAGE);
        give_token(side, &region);
    }
    BARRIER(side);
    side_finish(side);
}

static const struct conformance_case cases[] = {
    { "1.9, 3.4, 3.5",
      "PLACED keeps its meaning with INLINE, on a write of no bytes that names a region, and "
      "behind sends alone",
      NEEDS_SEND | NEEDS_WRITE | NEEDS_PLACED, 20, CASE_MANUAL, flags_initiator, flags_target },
    { "1.14, 1.15, -1.14", "the bytes of an INLINE request that MORE holds back may be overwritten",
      NEEDS_SEND | NEEDS_WRITE, 0, 0, held_initiator, held_target },
    { "1.10, 1.4, 2.11",
      "thousands of unsignaled atomics pass a queue of 48 entries, in memory of every kind",
      NEEDS_ATOMICS, 20, 0, silent_initiator, silent_target },
};

const struct suite flags_suite = { "flags", cases, COUNT_OF(cases) };
