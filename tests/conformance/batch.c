/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Posting requests: batches, lists, inline, unsignaled, MORE, and the state after a refused
 * post. */
#include "harness.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------------ a batch of everything */

enum { BATCH_ROOM = 4096 };

static void mixed_initiator(struct side *side)
{
    static const uint32_t opcodes[] = {
        RDMUX_WC_WRITE, RDMUX_WC_READ, RDMUX_WC_SEND,         RDMUX_WC_FETCH_ADD,
        RDMUX_WC_WRITE, RDMUX_WC_SEND, RDMUX_WC_COMPARE_SWAP, RDMUX_WC_WRITE,
    };
    uint8_t out[64];
    uint8_t in[64] = { 0 };
    uint64_t added = 0;
    uint64_t swapped = 0;
    size_t posted = 99;
    side_open_pair(side, NULL);
    struct rdmux_remote *remote = take_remote(side, side->ep);
    pattern_fill(out, sizeof(out), side->seed, 0);
    const struct rdmux_sge from = { .addr = out, .length = sizeof(out) };
    const struct rdmux_sge to = { .addr = in, .length = sizeof(in) };
    const struct rdmux_sge to_added = { .addr = &added, .length = 8 };
    const struct rdmux_sge to_swapped = { .addr = &swapped, .length = 8 };
    const struct rdmux_wr wrs[] = {
        { .op = RDMUX_OP_WRITE, .context = CTX(0), .sges = &from, .sge_count = 1, .remote = remote },
        { .op = RDMUX_OP_READ, .context = CTX(1), .sges = &to, .sge_count = 1, .remote = remote },
        { .op = RDMUX_OP_SEND, .context = CTX(2), .sges = &from, .sge_count = 1 },
        { .op = RDMUX_OP_FETCH_ADD,
          .context = CTX(3),
          .sges = &to_added,
          .sge_count = 1,
          .remote = remote,
          .offset = 1024,
          .operand = 5 },
        { .op = RDMUX_OP_WRITE_IMM,
          .context = CTX(4),
          .sges = &from,
          .sge_count = 1,
          .remote = remote,
          .offset = 2048,
          .imm = 77 },
        { .op = RDMUX_OP_SEND_IMM, .context = CTX(5), .sges = &from, .sge_count = 1, .imm = 78 },
        { .op = RDMUX_OP_COMPARE_SWAP,
          .context = CTX(6),
          .sges = &to_swapped,
          .sge_count = 1,
          .remote = remote,
          .offset = 1024,
          .expected = 5,
          .operand = 9 },
        { .op = RDMUX_OP_WRITE, .flags = RDMUX_PLACED, .context = CTX(7) },
    };
    EXPECT_OK(rdmux_post(side->ep, wrs, COUNT_OF(wrs), &posted));
    EXPECT_EQUAL(posted, COUNT_OF(wrs));
    for (size_t i = 0; i < COUNT_OF(wrs); i++) {
        struct rdmux_wc wc = NEXT(&side->queue);
        EXPECT(wc.status == RDMUX_OK && CTX_NUMBER(wc.context) == i && wc.opcode == opcodes[i] &&
                   wc.ep == side->ep,
               "completion %zu is %s", i, wc_text(&wc));
    }
    EXPECT_PATTERN(in, sizeof(in), side->seed);
    EXPECT_EQUAL(added, 0);
    EXPECT_EQUAL(swapped, 5);
    BARRIER(side);
    side_finish(side);
}

static void mixed_target(struct side *side)
{
    uint8_t bytes[3][64];
    uint64_t word = 0;
    side_open_pair(side, NULL);
    struct region region = region_make(side, MEMORY_ALLOCATED, BATCH_ROOM, ACCESS_ALL);
    struct rdmux_wr wrs[3];
    struct rdmux_sge sges[3];
    size_t posted = 0;
    for (size_t i = 0; i < COUNT_OF(wrs); i++) {
        sges[i] = (struct rdmux_sge){ .addr = bytes[i], .length = sizeof(bytes[i]) };
        wrs[i] = (struct rdmux_wr){
            .op = RDMUX_OP_RECV, .context = CTX(i), .sges = &sges[i], .sge_count = 1
        };
    }
    EXPECT_OK(rdmux_post_recv(side->ep, wrs, COUNT_OF(wrs), &posted));
    EXPECT_EQUAL(posted, COUNT_OF(wrs));
    memset(sges, 0, sizeof(sges)); /* lists are free to reuse */
    give_token(side, &region);
    EXPECT_EQUAL(WAIT(&side->queue, RDMUX_WC_RECV, CTX(0)).length, 64);
    EXPECT_EQUAL(WAIT(&side->queue, RDMUX_WC_RECV_WRITE_IMM, CTX(1)).imm, 77);
    EXPECT_EQUAL(WAIT(&side->queue, RDMUX_WC_RECV, CTX(2)).imm, 78);
    BARRIER(side);
    EXPECT_PATTERN(bytes[0], 64, side->seed);
    EXPECT_PATTERN(bytes[2], 64, side->seed);
    EXPECT_PATTERN(region.addr, 64, side->seed);
    EXPECT_PATTERN(region.addr + 2048, 64, side->seed);
    memcpy(&word, region.addr + 1024, sizeof(word));
    EXPECT_EQUAL(word, 9);
    side_finish(side);
}

/* --------------------------------------------------------------------------- a batch that stops */

/* One invalid request after two valid ones: the two are done, the invalid one has its status, the
 * requests behind it are not touched. */
static void stops_initiator(struct side *side)
{
    static uint8_t big[2048];
    uint8_t bytes[64];
    uint64_t word = 0;
    side_open_pair(side, NULL);
    struct rdmux_remote *remote = take_remote(side, side->ep);
    const struct rdmux_sge sge = { .addr = bytes, .length = sizeof(bytes) };
    const struct rdmux_sge too_big = { .addr = big, .length = sizeof(big) };
    const struct rdmux_sge to_word = { .addr = &word, .length = 8 };
    const struct rdmux_sge to_half = { .addr = &word, .length = 4 };
    const struct {
        const char *name;
        enum rdmux_status status;
        struct rdmux_wr wr;
    } wrong[] = {
        { "beyond the region",
          RDMUX_OUT_OF_RANGE,
          { .op = RDMUX_OP_WRITE,
            .sges = &sge,
            .sge_count = 1,
            .remote = remote,
            .offset = BATCH_ROOM } },
        { "a right not given",
          RDMUX_DENIED,
          { .op = RDMUX_OP_READ, .sges = &sge, .sge_count = 1, .remote = remote } },
        { "inline beyond the limit",
          RDMUX_LENGTH,
          { .op = RDMUX_OP_SEND, .flags = RDMUX_INLINE, .sges = &too_big, .sge_count = 1 } },
        { "no such operation", RDMUX_INVALID, { .op = 99, .sges = &sge, .sge_count = 1 } },
        { "an unknown flag",
          RDMUX_INVALID,
          { .op = RDMUX_OP_SEND, .flags = UINT32_C(1) << 30, .sges = &sge, .sge_count = 1 } },
        { "a receive among sends",
          RDMUX_INVALID,
          { .op = RDMUX_OP_RECV, .sges = &sge, .sge_count = 1 } },
        { "a list that is not there", RDMUX_INVALID, { .op = RDMUX_OP_SEND, .sge_count = 1 } },
        { "an unaligned atomic",
          RDMUX_INVALID,
          { .op = RDMUX_OP_FETCH_ADD,
            .sges = &to_word,
            .sge_count = 1,
            .remote = remote,
            .offset = 4 } },
        { "an atomic of 4 bytes",
          RDMUX_INVALID,
          { .op = RDMUX_OP_FETCH_ADD, .sges = &to_half, .sge_count = 1, .remote = remote } },
        { "bytes to write but no remote",
          RDMUX_INVALID,
          { .op = RDMUX_OP_WRITE, .sges = &sge, .sge_count = 1 } },
    };
    for (size_t i = 0; i < COUNT_OF(wrong); i++) {
        if (wrong[i].wr.op == RDMUX_OP_FETCH_ADD &&
            ((side->info.native | side->info.emulated) & RDMUX_CAP_FETCH_ADD) == 0) {
            continue; /* another case tests that it is refused */
        }
        uint64_t first = 10 * i;
        size_t posted = 99;
        struct rdmux_wr wrs[4];
        for (size_t j = 0; j < COUNT_OF(wrs); j++) {
            wrs[j] = (struct rdmux_wr){ .op = RDMUX_OP_WRITE,
                                        .context = CTX(first + j),
                                        .sges = &sge,
                                        .sge_count = 1,
                                        .remote = remote,
                                        .offset = 64 * j };
        }
        wrs[2] = wrong[i].wr;
        wrs[2].context = CTX(first + 2);
        pattern_fill(bytes, sizeof(bytes), side->seed + i, 0);
        STAND(wrong[i].name);
        enum rdmux_status status = rdmux_post(side->ep, wrs, COUNT_OF(wrs), &posted);
        EXPECT(status == wrong[i].status, "%s: rdmux_post gave %s, expected %s: %s", wrong[i].name,
               rdmux_status_name(status), rdmux_status_name(wrong[i].status), rdmux_last_error());
        EXPECT(posted == 2, "%s: posted is %zu, expected 2", wrong[i].name, posted);
        EXPECT(*rdmux_last_error() != '\0', "%s: there is no error text", wrong[i].name);
        (void)WAIT(&side->queue, RDMUX_WC_WRITE, CTX(first));
        (void)WAIT(&side->queue, RDMUX_WC_WRITE, CTX(first + 1));
        EXPECT_QUIET(&side->queue);
    }
    EXPECT_OK(rdmux_write(side->ep, NULL, 0, NULL, NULL, 0, CTX(1000), RDMUX_PLACED));
    (void)WAIT(&side->queue, RDMUX_WC_WRITE, CTX(1000));
    EXPECT_OK(rdmux_post(side->ep, NULL, 0, NULL));
    BARRIER(side);
    side_finish(side);
}

static void stops_target(struct side *side)
{
    uint8_t bytes[64];
    side_open_pair(side, NULL);
    struct region region = region_make(side, MEMORY_ALLOCATED, BATCH_ROOM,
                                       RDMUX_ACCESS_REMOTE_WRITE | RDMUX_ACCESS_REMOTE_ATOMIC);
    give_token(side, &region);
    EXPECT_OK(rdmux_recv(side->ep, bytes, sizeof(bytes), NULL, CTX(1)));
    BARRIER(side);
    EXPECT_FILLED(region.addr + 128, BATCH_ROOM - 128, 0); /* requests behind the invalid one */
    EXPECT_QUIET(&side->queue);                            /* no send arrived */
    side_finish(side);
}

/* --------------------------------------------------------------------- a batch beyond the depth */

enum { DEPTH = 8 };

static void depth_initiator(struct side *side)
{
    uint8_t bytes[16] = { 0 };
    struct rdmux_ep_attr attr = ep_attr_of(side);
    attr.send_depth = DEPTH;
    side_open_pair(side, &attr);
    struct rdmux_remote *remote = take_remote(side, side->ep);
    EXPECT_EQUAL(side->info.send_depth, DEPTH);
    const struct rdmux_sge sge = { .addr = bytes, .length = sizeof(bytes) };
    struct rdmux_wr wrs[3 * DEPTH];
    for (size_t i = 0; i < COUNT_OF(wrs); i++) {
        wrs[i] = (struct rdmux_wr){
            .op = RDMUX_OP_WRITE, .context = CTX(i), .sges = &sge, .sge_count = 1, .remote = remote
        };
    }
    size_t next = 0;
    for (unsigned turn = 0; turn < 3; turn++) {
        size_t posted = 99;
        enum rdmux_status status = rdmux_post(side->ep, wrs + next, COUNT_OF(wrs) - next, &posted);
        EXPECT(posted == DEPTH, "a batch of %zu on an empty queue of %d entries: %zu were taken",
               COUNT_OF(wrs) - next, DEPTH, posted);
        EXPECT_STATUS(status, turn < 2 ? RDMUX_AGAIN : RDMUX_OK);
        for (size_t i = 0; i < DEPTH; i++) {
            (void)WAIT(&side->queue, RDMUX_WC_WRITE, CTX(next + i));
        }
        if (turn < 2) {
            (void)WAIT(&side->queue, RDMUX_WC_WRITABLE, NULL);
        }
        EXPECT_QUIET(&side->queue);
        next += DEPTH;
    }
    side_finish(side);
}

static void depth_target(struct side *side)
{
    side_open_pair(side, NULL);
    struct region region = region_make(side, MEMORY_ALLOCATED, 64, RDMUX_ACCESS_REMOTE_WRITE);
    give_token(side, &region);
    side_finish(side);
}

/* ------------------------------------------------------------------------------ lists */

static const size_t piece_sizes[] = { 1, 0, 4096, 7, 70000, 64, 3, 1000 };

enum { PIECES = 8, PIECES_TOTAL = 1 + 0 + 4096 + 7 + 70000 + 64 + 3 + 1000, PIECES_ROOM = 100000 };

/* Pieces of a list: every other one in registered memory, none adjacent to the next. */
static void pieces_make(struct side *side, struct rdmux_sge pieces[PIECES], uint32_t access)
{
    struct region registered = region_make(side, MEMORY_ALLOCATED, PIECES_ROOM, access);
    struct region plain = region_make(side, MEMORY_UNREGISTERED, PIECES_ROOM, 0);
    size_t at = 1;
    for (size_t i = 0; i < PIECES; i++) {
        const struct region *region = i % 2 == 0 ? &registered : &plain;
        pieces[i] = (struct rdmux_sge){ .addr = region->addr + at,
                                        .length = piece_sizes[i],
                                        .mr = region->mr };
        at += piece_sizes[i] + 5;
    }
}

static void pieces_fill(const struct rdmux_sge pieces[PIECES], uint64_t seed)
{
    uint64_t first = 0;
    for (size_t i = 0; i < PIECES; i++) {
        pattern_fill(pieces[i].addr, pieces[i].length, seed, first);
        first += pieces[i].length;
    }
}

static void pieces_check(const struct rdmux_sge pieces[PIECES], uint64_t seed)
{
    uint64_t first = 0;
    for (size_t i = 0; i < PIECES; i++) {
        EXPECT_PATTERN_FROM(pieces[i].addr, pieces[i].length, seed, first);
        first += pieces[i].length;
    }
}

static struct rdmux_ep_attr list_attr(struct side *side)
{
    struct rdmux_ep_attr attr = ep_attr_of(side);
    attr.max_send_sge = PIECES;
    attr.max_recv_sge = PIECES;
    return attr;
}

static void lists_initiator(struct side *side)
{
    struct rdmux_ep_attr attr = list_attr(side);
    struct rdmux_sge out[PIECES];
    struct rdmux_sge in[PIECES];
    struct rdmux_sge list[PIECES];
    side_open_pair(side, &attr);
    pieces_make(side, out, 0);
    pieces_make(side, in, ACCESS_SINK);
    struct rdmux_remote *remote = take_remote(side, side->ep);
    pieces_fill(out, side->seed);

    static const struct {
        uint32_t op;
        uint32_t opcode;
    } ops[] = {
        { RDMUX_OP_SEND, RDMUX_WC_SEND },
        { RDMUX_OP_WRITE, RDMUX_WC_WRITE },
        { RDMUX_OP_READ, RDMUX_WC_READ },
    };
    for (size_t i = 0; i < COUNT_OF(ops); i++) {
        bool reads = ops[i].op == RDMUX_OP_READ;
        struct rdmux_wr wr = { .op = ops[i].op,
                               .context = CTX(i),
                               .sges = list,
                               .sge_count = PIECES,
                               .remote = ops[i].op == RDMUX_OP_SEND ? NULL : remote };
        memcpy(list, reads ? in : out, sizeof(list));
        EXPECT_OK(rdmux_post(side->ep, &wr, 1, NULL));
        memset(list, 0xff, sizeof(list)); /* the list is free, the bytes are not */
        (void)WAIT(&side->queue, ops[i].opcode, CTX(i));
    }
    pieces_check(in, side->seed);
    BARRIER(side);
    side_finish(side);
}

static void lists_target(struct side *side)
{
    struct rdmux_ep_attr attr = list_attr(side);
    struct rdmux_sge in[PIECES];
    side_open_pair(side, &attr);
    pieces_make(side, in, ACCESS_SINK);
    struct region region = region_make(side, MEMORY_ALLOCATED, PIECES_ROOM,
                                       RDMUX_ACCESS_REMOTE_WRITE | RDMUX_ACCESS_REMOTE_READ);
    /* Pieces in another order, so that the borders of the two lists differ. */
    struct rdmux_sge turned[PIECES];
    for (size_t i = 0; i < PIECES; i++) {
        turned[i] = in[PIECES - 1 - i];
    }
    const struct rdmux_wr wr = {
        .op = RDMUX_OP_RECV, .context = CTX(1), .sges = turned, .sge_count = PIECES
    };
    EXPECT_OK(rdmux_post_recv(side->ep, &wr, 1, NULL));
    give_token(side, &region);
    EXPECT_EQUAL(WAIT(&side->queue, RDMUX_WC_RECV, CTX(1)).length, PIECES_TOTAL);
    uint64_t first = 0;
    for (size_t i = 0; i < PIECES; i++) {
        EXPECT_PATTERN_FROM(turned[i].addr, turned[i].length, side->seed, first);
        first += turned[i].length;
    }
    BARRIER(side);
    EXPECT_PATTERN(region.addr, PIECES_TOTAL, side->seed);
    EXPECT_FILLED(region.addr + PIECES_TOTAL, PIECES_ROOM - PIECES_TOTAL, 0);
    side_finish(side);
}

/* A list on every operation that has immediate data, and a list with more entries than granted. */
static void long_lists_initiator(struct side *side)
{
    struct rdmux_ep_attr attr = list_attr(side);
    struct rdmux_sge out[PIECES];
    side_open_pair(side, &attr);
    EXPECT(side->info.max_send_sge >= PIECES, "%u entries granted, %d asked for",
           side->info.max_send_sge, PIECES);
    pieces_make(side, out, 0);
    struct rdmux_remote *remote = take_remote(side, side->ep);
    pieces_fill(out, side->seed);
    const struct rdmux_wr wrs[] = {
        { .op = RDMUX_OP_WRITE_IMM,
          .context = CTX(1),
          .sges = out,
          .sge_count = PIECES,
          .remote = remote,
          .imm = 1 },
        { .op = RDMUX_OP_SEND_IMM, .context = CTX(2), .sges = out, .sge_count = PIECES, .imm = 2 },
    };
    EXPECT_OK(rdmux_post(side->ep, wrs, COUNT_OF(wrs), NULL));
    (void)WAIT(&side->queue, RDMUX_WC_WRITE, CTX(1));
    (void)WAIT(&side->queue, RDMUX_WC_SEND, CTX(2));

    struct rdmux_sge *many = calloc(side->info.max_send_sge + 1, sizeof(*many));
    EXPECT(many != NULL, "out of memory");
    const struct rdmux_wr too_many = { .op = RDMUX_OP_SEND,
                                       .sges = many,
                                       .sge_count = side->info.max_send_sge + 1 };
    EXPECT_STATUS(rdmux_post(side->ep, &too_many, 1, NULL), RDMUX_INVALID);
    free(many);
    BARRIER(side);
    side_finish(side);
}

static void long_lists_target(struct side *side)
{
    struct rdmux_ep_attr attr = list_attr(side);
    struct rdmux_sge in[PIECES];
    side_open_pair(side, &attr);
    pieces_make(side, in, ACCESS_SINK);
    struct region region = region_make(side, MEMORY_REGISTERED, PIECES_ROOM,
                                       RDMUX_ACCESS_REMOTE_WRITE);
    const struct rdmux_wr wr = {
        .op = RDMUX_OP_RECV, .context = CTX(2), .sges = in, .sge_count = PIECES
    };
    EXPECT_OK(rdmux_post_recv(side->ep, &wr, 1, NULL)); /* write_imm takes it, whatever its size */
    EXPECT_OK(rdmux_post_recv(side->ep, &wr, 1, NULL));
    give_token(side, &region);
    EXPECT_EQUAL(WAIT(&side->queue, RDMUX_WC_RECV_WRITE_IMM, CTX(2)).length, PIECES_TOTAL);
    EXPECT_PATTERN(region.addr, PIECES_TOTAL, side->seed);
    EXPECT_EQUAL(WAIT(&side->queue, RDMUX_WC_RECV, CTX(2)).length, PIECES_TOTAL);
    pieces_check(in, side->seed);
    BARRIER(side);
    side_finish(side);
}

/* ------------------------------------------------------------------------------ inline */

enum { INLINE_ROUNDS = 40, INLINE_ROOM = 1024 };

static void inline_initiator(struct side *side)
{
    static uint8_t bytes[4096];
    side_open_pair(side, NULL);
    struct rdmux_remote *remote = take_remote(side, side->ep);
    size_t most = side->info.max_inline;
    EXPECT(most >= RDMUX_INLINE_MIN, "max_inline is %zu, less than %d", most, RDMUX_INLINE_MIN);
    size_t used = most < INLINE_ROOM ? most : INLINE_ROOM;
    GIVE(side, &used, sizeof(used));
    /* No receive is posted yet, so the sends must wait, while their bytes are already overwritten
     * here. */
    for (uint64_t round = 0; round < INLINE_ROUNDS; round++) {
        size_t length = round % 2 == 0 ? used : 1 + round;
        pattern_fill(bytes, length, side->seed + round, 0);
        if (round % 4 == 3) {
            EXPECT_OK(rdmux_write(side->ep, bytes, length, NULL, remote, round * INLINE_ROOM,
                                  CTX(round), RDMUX_INLINE));
        } else {
            EXPECT_OK(rdmux_send(side->ep, bytes, length, NULL, CTX(round), RDMUX_INLINE));
        }
        memset(bytes, 0xee, length);
    }
    BARRIER(side); /* receives are posted now */
    for (uint64_t round = 0; round < INLINE_ROUNDS; round++) {
        (void)WAIT(&side->queue, round % 4 == 3 ? RDMUX_WC_WRITE : RDMUX_WC_SEND, CTX(round));
    }
    EXPECT_OK(rdmux_write(side->ep, NULL, 0, NULL, NULL, 0, CTX(1000), RDMUX_PLACED));
    (void)WAIT(&side->queue, RDMUX_WC_WRITE, CTX(1000));
    BARRIER(side);

    if (most < sizeof(bytes)) {
        EXPECT_STATUS(rdmux_send(side->ep, bytes, most + 1, NULL, NULL, RDMUX_INLINE), RDMUX_LENGTH);
        EXPECT_STATUS(rdmux_write(side->ep, bytes, most + 1, NULL, remote, 0, NULL, RDMUX_INLINE),
                      RDMUX_LENGTH);
    }
    EXPECT_STATUS(rdmux_read(side->ep, bytes, 8, NULL, remote, 0, NULL, RDMUX_INLINE),
                  RDMUX_INVALID);
    side_finish(side);
}

static void inline_target(struct side *side)
{
    static uint8_t bytes[INLINE_ROUNDS][INLINE_ROOM];
    size_t used = 0;
    side_open_pair(side, NULL);
    struct region region = region_make(side, MEMORY_ALLOCATED, sizeof(bytes),
                                       RDMUX_ACCESS_REMOTE_WRITE | RDMUX_ACCESS_REMOTE_READ);
    give_token(side, &region);
    TAKE(side, &used, sizeof(used));
    BARRIER(side);
    for (uint64_t round = 0; round < INLINE_ROUNDS; round++) {
        if (round % 4 != 3) {
            EXPECT_OK(rdmux_recv(side->ep, bytes[round], INLINE_ROOM, NULL, CTX(round)));
        }
    }
    for (uint64_t round = 0; round < INLINE_ROUNDS; round++) {
        size_t length = round % 2 == 0 ? used : 1 + round;
        if (round % 4 != 3) {
            EXPECT_EQUAL(WAIT(&side->queue, RDMUX_WC_RECV, CTX(round)).length, length);
            EXPECT_PATTERN(bytes[round], length, side->seed + round);
        }
    }
    BARRIER(side);
    for (uint64_t round = 3; round < INLINE_ROUNDS; round += 4) {
        EXPECT_PATTERN(region.addr + round * INLINE_ROOM, 1 + round, side->seed + round);
    }
    side_finish(side);
}

/* ------------------------------------------------------------------------------ unsignaled */

/* Posts until the queue takes the request. The only entry that may come meanwhile is WRITABLE, at
 * most once for each AGAIN. */
struct unsignaled_post {
    unsigned refused;
    unsigned writable;
};

static void drop_writable(struct side *side, struct unsignaled_post *post)
{
    while (queue_poll(&side->queue) > 0) {
        struct rdmux_wc wc = NEXT(&side->queue);
        EXPECT(wc.opcode == RDMUX_WC_WRITABLE && wc.status == RDMUX_OK && wc.context == NULL,
               "an unsignaled request that succeeded completed: %s", wc_text(&wc));
        post->writable++;
    }
}

static void unsignaled_initiator(struct side *side, bool sends)
{
    const uint64_t total = side->quick ? 3000 : 10000;
    struct unsignaled_post post = { 0, 0 };
    struct rdmux_ep_attr attr = ep_attr_of(side);
    attr.send_depth = DEPTH;
    side_open_pair(side, &attr);
    struct rdmux_remote *remote = sends ? NULL : take_remote(side, side->ep);
    for (uint64_t i = 0; i < total; i++) {
        enum rdmux_status status;
        while ((status = sends ? rdmux_send(side->ep, &i, 8, NULL, CTX(i),
                                            RDMUX_UNSIGNALED | RDMUX_INLINE)
                               : rdmux_write(side->ep, &i, 8, NULL, remote, 8 * (i % 16), CTX(i),
                                             RDMUX_UNSIGNALED | RDMUX_INLINE)) == RDMUX_AGAIN) {
            post.refused++;
            drop_writable(side, &post);
            EXPECT(!time_is_up(), "the queue stalled at request %" PRIu64 " of %" PRIu64, i, total);
        }
        EXPECT_STATUS(status, RDMUX_OK);
    }
    enum rdmux_status status;
    while ((status = rdmux_write(side->ep, NULL, 0, NULL, NULL, 0, CTX(total), RDMUX_PLACED)) ==
           RDMUX_AGAIN) {
        post.refused++;
        drop_writable(side, &post);
        EXPECT(!time_is_up(), "the queue stalled at the flush");
    }
    EXPECT_STATUS(status, RDMUX_OK);
    for (;;) {
        struct rdmux_wc wc = NEXT(&side->queue);
        if (wc.opcode == RDMUX_WC_WRITABLE) {
            post.writable++;
            continue;
        }
        EXPECT(wc.opcode == RDMUX_WC_WRITE && wc.status == RDMUX_OK &&
                   CTX_NUMBER(wc.context) == total,
               "expected the flush, got %s", wc_text(&wc));
        break;
    }
    EXPECT(post.writable <= post.refused, "%u WRITABLE for %u refused posts", post.writable,
           post.refused);
    BARRIER(side);
    drop_writable(side, &post);
    EXPECT(post.writable <= post.refused, "%u WRITABLE for %u refused posts", post.writable,
           post.refused);
    side_finish(side);
}

static void unsignaled_write_initiator(struct side *side)
{
    unsignaled_initiator(side, false);
}

static void unsignaled_write_target(struct side *side)
{
    const uint64_t total = side->quick ? 3000 : 10000;
    side_open_pair(side, NULL);
    struct region region = region_make(side, MEMORY_ALLOCATED, 16 * sizeof(uint64_t),
                                       RDMUX_ACCESS_REMOTE_WRITE);
    give_token(side, &region);
    BARRIER(side);
    for (uint64_t i = total - 16; i < total; i++) {
        uint64_t word = 0;
        memcpy(&word, region.addr + 8 * (i % 16), sizeof(word));
        EXPECT_EQUAL(word, i);
    }
    side_finish(side);
}

static void unsignaled_send_initiator(struct side *side)
{
    unsignaled_initiator(side, true);
}

static void unsignaled_send_target(struct side *side)
{
    enum { RECEIVES = 32 };
    const uint64_t total = side->quick ? 3000 : 10000;
    uint64_t words[RECEIVES];
    side_open_pair(side, NULL);
    for (uint64_t i = 0; i < RECEIVES; i++) {
        EXPECT_OK(rdmux_recv(side->ep, &words[i], 8, NULL, CTX(i)));
    }
    for (uint64_t i = 0; i < total; i++) {
        uint64_t slot = i % RECEIVES;
        struct rdmux_wc wc = NEXT(&side->queue);
        EXPECT(wc.opcode == RDMUX_WC_RECV && wc.status == RDMUX_OK && CTX_NUMBER(wc.context) == slot,
               "message %" PRIu64 ": %s", i, wc_text(&wc));
        EXPECT_EQUAL(words[slot], i);
        if (i + RECEIVES < total) {
            EXPECT_OK(rdmux_recv(side->ep, &words[slot], 8, NULL, CTX(slot)));
        }
    }
    BARRIER(side);
    side_finish(side);
}

/* ------------------------------------------------------------------------------ MORE */

static void more_initiator(struct side *side)
{
    uint8_t bytes[256];
    side_open_pair(side, NULL);
    struct rdmux_remote *remote = take_remote(side, side->ep);
    pattern_fill(bytes, sizeof(bytes), side->seed, 0);

    /* released by poll or wait, according to the run's style */
    (void)POST_AND_WAIT(&side->queue,
                        rdmux_write(side->ep, bytes, 100, NULL, remote, 0, CTX(1), RDMUX_MORE),
                        RDMUX_WC_WRITE, CTX(1));

    /* released by wait */
    struct rdmux_wc wc;
    size_t count = 0;
    EXPECT_OK(rdmux_write(side->ep, bytes, 100, NULL, remote, 100, CTX(2), RDMUX_MORE));
    EXPECT_OK(rdmux_cq_wait(side->queue.cq, &wc, 1, side->patient_ms, &count));
    EXPECT(count == 1 && wc.context == CTX(2) && wc.status == RDMUX_OK, "got %s", wc_text(&wc));

    /* released by arm */
    EXPECT_OK(rdmux_read(side->ep, bytes + 100, 50, NULL, remote, 0, CTX(3), RDMUX_MORE));
    enum rdmux_status status = rdmux_cq_arm(side->queue.cq);
    if (status != RDMUX_AGAIN) {
        EXPECT_STATUS(status, RDMUX_OK);
        struct pollfd wait = { .fd = rdmux_cq_fd(side->queue.cq), .events = POLLIN };
        int ready = poll(&wait, 1, side->patient_ms);
        EXPECT(ready == 1, "the armed descriptor does not wake: poll gave %d", ready);
    }
    (void)WAIT(&side->queue, RDMUX_WC_READ, CTX(3));
    EXPECT_PATTERN(bytes + 100, 50, side->seed);

    /* released by a post without MORE */
    EXPECT_OK(rdmux_write(side->ep, bytes, 10, NULL, remote, 0, CTX(4), RDMUX_MORE));
    EXPECT_OK(rdmux_write(side->ep, bytes, 10, NULL, remote, 0, CTX(5), 0));
    (void)WAIT(&side->queue, RDMUX_WC_WRITE, CTX(4));
    (void)WAIT(&side->queue, RDMUX_WC_WRITE, CTX(5));
    side_finish(side);
}

static void more_target(struct side *side)
{
    side_open_pair(side, NULL);
    struct region region = region_make(side, MEMORY_ALLOCATED, 4096,
                                       RDMUX_ACCESS_REMOTE_WRITE | RDMUX_ACCESS_REMOTE_READ);
    give_token(side, &region);
    side_finish(side);
}

static const struct conformance_case cases[] = {
    { "1.6, 1.11, 1.16", "a batch of every operation is posted whole and completes in posting order",
      NEEDS_ATOMICS | NEEDS_IMM | NEEDS_PLACED | NEEDS_SEND | NEEDS_WRITE | NEEDS_READ, 0, 0,
      mixed_initiator, mixed_target },
    { "1.3, 1.11, 6.3, -1.3, -1.11, -6.3",
      "a batch stops at its first bad request: those before it are done, those behind were never "
      "posted",
      NEEDS_PLACED | NEEDS_SEND | NEEDS_WRITE | NEEDS_READ, 0, 0, stops_initiator, stops_target },
    { "1.11, 1.12, 13.1, -1.12",
      "a batch longer than the queue is taken up to the depth, then AGAIN", NEEDS_WRITE, 0, 0,
      depth_initiator, depth_target },
    { "1.13",
      "lists gather and scatter on sends, receives, writes and reads, and are free when the post "
      "returns",
      NEEDS_SEND | NEEDS_WRITE | NEEDS_READ, 0, 0, lists_initiator, lists_target },
    { "1.13, -1.13", "lists work with immediate data, and one longer than granted is INVALID",
      NEEDS_IMM | NEEDS_SEND, 0, 0, long_lists_initiator, long_lists_target },
    { "1.14, -1.14",
      "the buffer of an INLINE request may be overwritten on return, even while the request waits; "
      "beyond the limit is LENGTH",
      NEEDS_PLACED | NEEDS_SEND | NEEDS_WRITE | NEEDS_READ, 0, 0, inline_initiator, inline_target },
    { "1.2, 1.10",
      "thousands of unsignaled writes pass a queue of 8 entries without a completion or a stall",
      NEEDS_PLACED | NEEDS_WRITE, 20, 0, unsignaled_write_initiator, unsignaled_write_target },
    { "1.2, 1.10, 2.1",
      "thousands of unsignaled sends pass a queue of 8 entries and arrive in order",
      NEEDS_PLACED | NEEDS_SEND | NEEDS_WRITE, 20, 0, unsignaled_send_initiator,
      unsignaled_send_target },
    { "1.15", "what MORE held back is released by poll, by wait, by arm and by the next post",
      NEEDS_WRITE | NEEDS_READ, 0, 0, more_initiator, more_target },
};

const struct suite batch_suite = { "batch", cases, COUNT_OF(cases) };
