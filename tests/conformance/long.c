/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Writes and reads around and beyond the path's longest message: segmented or not, each completes
 * once. */
#include "harness.h"

#include <string.h>

enum {
    USUAL_LONGEST = 8 << 20, /* used if the path has no limit */
    GUARD = 64,
    GUARD_BYTE = 0x5a,
    PIECES = 3,
};

/* Returns the longest message of both sides' paths, read from the provider's first usable path. */
static size_t longest(struct side *side)
{
    struct rdmux_path_info paths[64] = { RDMUX_PATH_INFO_INIT };
    size_t count = 0;
    EXPECT_OK(rdmux_fabric_paths(side->fabric, paths, COUNT_OF(paths), &count));
    for (size_t i = 0; i < count && i < COUNT_OF(paths); i++) {
        if (strcmp(paths[i].provider, side->provider) == 0 && paths[i].max_message < USUAL_LONGEST) {
            return (size_t)paths[i].max_message;
        }
    }
    return USUAL_LONGEST;
}

static size_t length_of(struct side *side, size_t index)
{
    size_t edge = longest(side);
    const size_t lengths[] = { edge - 1, edge, edge + 1, 3 * edge + 5 };
    return lengths[index % COUNT_OF(lengths)];
}

enum { ROUNDS = 8 }; /* each length from registered memory and from unregistered memory */

static size_t most(struct side *side)
{
    return 3 * longest(side) + 5 + 2 * (size_t)GUARD;
}

/* The bytes in three pieces of different sizes. */
static void in_pieces(struct rdmux_sge sges[PIECES], const struct region *memory, size_t length)
{
    uint8_t *bytes = memory->addr;
    struct rdmux_mr *mr = memory->mr;
    size_t first = length / 5;
    size_t second = length / 2;
    sges[0] = (struct rdmux_sge){ bytes, first, mr };
    sges[1] = (struct rdmux_sge){ bytes + first, second, mr };
    sges[2] = (struct rdmux_sge){ bytes + first + second, length - first - second, mr };
}

static void long_initiator(struct side *side)
{
    side_open_pair(side, NULL);
    size_t room = most(side);
    struct region registered = region_make(side, MEMORY_REGISTERED, room, ACCESS_SINK);
    struct region plain = region_make(side, MEMORY_UNREGISTERED, room, 0);
    struct rdmux_remote *remote = take_remote(side, side->ep);
    for (size_t round = 0; round < ROUNDS; round++) {
        size_t length = length_of(side, round);
        const struct region *memory = round < ROUNDS / 2 ? &registered : &plain;
        struct rdmux_sge sges[PIECES];
        in_pieces(sges, memory, length);
        pattern_fill(memory->addr, length, side->seed + round, 0);
        struct rdmux_wr write = { .op = RDMUX_OP_WRITE,
                                  .flags = RDMUX_UNSIGNALED,
                                  .sges = sges,
                                  .sge_count = PIECES,
                                  .remote = remote,
                                  .offset = GUARD };
        EXPECT_OK(rdmux_post(side->ep, &write, 1, NULL));
        EXPECT_OK(rdmux_send(side->ep, &round, sizeof(round), NULL, CTX(1), 0)); /* sent behind */
        (void)WAIT(&side->queue, RDMUX_WC_SEND, CTX(1));
        BARRIER(side); /* the target has checked */
        memset(memory->addr, 0, length);
        struct rdmux_wr read = { .op = RDMUX_OP_READ,
                                 .context = CTX(2),
                                 .sges = sges,
                                 .sge_count = PIECES,
                                 .remote = remote,
                                 .offset = GUARD };
        EXPECT_OK(rdmux_post(side->ep, &read, 1, NULL));
        EXPECT_EQUAL(WAIT(&side->queue, RDMUX_WC_READ, CTX(2)).length, length);
        EXPECT_PATTERN(memory->addr, length, side->seed + round);
        EXPECT_QUIET(&side->queue);
    }
    side_finish(side);
}

static void long_target(struct side *side)
{
    side_open_pair(side, NULL);
    struct region region = region_make(side, MEMORY_REGISTERED, most(side),
                                       RDMUX_ACCESS_REMOTE_WRITE | RDMUX_ACCESS_REMOTE_READ);
    memset(region.addr, GUARD_BYTE, region.length);
    give_token(side, &region);
    for (size_t round = 0; round < ROUNDS; round++) {
        size_t number = ROUNDS;
        EXPECT_OK(rdmux_recv(side->ep, &number, sizeof(number), NULL, CTX(1)));
        (void)WAIT(&side->queue, RDMUX_WC_RECV, CTX(1));
        EXPECT_EQUAL(number, round);
        size_t length = length_of(side, round);
        EXPECT_FILLED(region.addr, GUARD, GUARD_BYTE);
        EXPECT_PATTERN(region.addr + GUARD, length, side->seed + round);
        EXPECT_FILLED(region.addr + region.length - GUARD, GUARD, GUARD_BYTE);
        BARRIER(side);
    }
    side_finish(side);
}

/* Each side reads all of the other's memory, and posts all reads before it polls. The peer's reads
 * thus wait behind the data that arrives. */
static void crossing_reads(struct side *side)
{
    side_open_pair(side, NULL);
    const size_t length = most(side);
    struct region theirs = region_make(side, MEMORY_REGISTERED, length, ACCESS_SINK);
    struct region ours = region_make(side, MEMORY_ALLOCATED, length, RDMUX_ACCESS_REMOTE_READ);
    struct rdmux_token token;
    struct rdmux_remote *remote = NULL;
    pattern_fill(ours.addr, length, side->seed + side->is_initiator, 0);
    EXPECT_OK(rdmux_mr_export(ours.mr, &token));
    GIVE(side, &token, sizeof(token));
    TAKE(side, &token, sizeof(token));
    EXPECT_STATUS(rdmux_remote_import(side->ep, &token, 0, &remote), RDMUX_IN_PROGRESS);
    (void)WAIT(&side->queue, RDMUX_WC_REMOTE_READY, remote);
    BARRIER(side);
    EXPECT_OK(rdmux_read(side->ep, theirs.addr, length, theirs.mr, remote, 0, CTX(1), 0));
    BARRIER(side);
    EXPECT_EQUAL(WAIT(&side->queue, RDMUX_WC_READ, CTX(1)).length, length);
    EXPECT_PATTERN(theirs.addr, length, side->seed + !side->is_initiator);
    BARRIER(side);
    side_finish(side);
}

static const struct conformance_case cases[] = {
    { "1.1, 1.5, 3.3",
      "two sides that read more of each other than a path holds, both at once, get all bytes",
      NEEDS_READ, 30, 0, crossing_reads, crossing_reads },
    { "1.1, 2.3, 12.5",
      "a write and a read beyond the path's longest message are whole, complete once, and delay "
      "the requests behind them",
      NEEDS_SEND | NEEDS_WRITE | NEEDS_READ, 60, 0, long_initiator, long_target },
};

const struct suite long_suite = { "long", cases, COUNT_OF(cases) };
