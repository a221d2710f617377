/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Completions and the requests they cover, and the order of visibility: rules 1 to 4. */
#include "harness.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static struct region serve(struct side *side, size_t length)
{
    struct region region = region_make(side, MEMORY_ALLOCATED, length, ACCESS_ALL);
    give_token(side, &region);
    return region;
}

/* ------------------------------------------------------------------------------ posting order */

/* Long reads before short writes before sends: whatever finishes first, entries come in posting
 * order. */
enum { MIX_DEPTH = 32, MIX_TOTAL = 2000, MIX_SINK = 200000 };

static void mix_initiator(struct side *side)
{
    static const size_t lengths[] = { 8, 150000, 0, 64, 4096, 1, 30000 };
    struct rdmux_ep_attr attr = ep_attr_of(side);
    attr.send_depth = MIX_DEPTH;
    side_open_pair(side, &attr);
    struct region sink = region_make(side, MEMORY_REGISTERED, MIX_SINK, ACCESS_SINK);
    struct region source = region_make(side, MEMORY_UNREGISTERED, MIX_SINK, 0);
    struct rdmux_remote *remote = take_remote(side, side->ep);
    uint32_t opcodes[MIX_DEPTH];
    uint64_t random = side->seed;
    uint64_t posted = 0;
    uint64_t done = 0;
    while (done < MIX_TOTAL) {
        while (posted < MIX_TOTAL && posted - done < MIX_DEPTH) {
            size_t length = lengths[random_below(&random, COUNT_OF(lengths))];
            uint32_t *opcode = &opcodes[posted % MIX_DEPTH];
            switch (random_below(&random, 3)) {
            case 0:
                *opcode = RDMUX_WC_READ;
                EXPECT_OK(
                    rdmux_read(side->ep, sink.addr, length, sink.mr, remote, 0, CTX(posted), 0));
                break;
            case 1:
                *opcode = RDMUX_WC_WRITE;
                EXPECT_OK(rdmux_write(side->ep, source.addr, length, NULL, remote, MIX_SINK,
                                      CTX(posted), posted % 5 == 0 ? RDMUX_FENCE : 0));
                break;
            default:
                *opcode = RDMUX_WC_SEND;
                EXPECT_OK(rdmux_send(side->ep, source.addr, length, NULL, CTX(posted), 0));
                break;
            }
            posted++;
        }
        struct rdmux_wc wc = NEXT(&side->queue);
        EXPECT(CTX_NUMBER(wc.context) == done && wc.status == RDMUX_OK &&
                   wc.opcode == opcodes[done % MIX_DEPTH],
               "completion %" PRIu64 " is %s, expected %s", done, wc_text(&wc),
               rdmux_wc_opcode_name(opcodes[done % MIX_DEPTH]));
        done++;
    }
    EXPECT_OK(rdmux_send(side->ep, "e", 1, NULL, CTX(done), RDMUX_FENCE));
    (void)WAIT(&side->queue, RDMUX_WC_SEND, CTX(done));
    side_finish(side);
}

static void mix_target(struct side *side)
{
    enum { RECEIVES = 16 };
    side_open_pair(side, NULL);
    (void)serve(side, (size_t)2 * MIX_SINK);
    struct region sink = region_make(side, MEMORY_ALLOCATED, (size_t)RECEIVES * MIX_SINK,
                                     ACCESS_SINK);
    for (uint64_t i = 0; i < RECEIVES; i++) {
        EXPECT_OK(rdmux_recv(side->ep, sink.addr + i * MIX_SINK, MIX_SINK, sink.mr, CTX(i)));
    }
    /* The last message contains "e"; all others contain zeros. */
    for (uint64_t i = 0;; i++) {
        uint64_t slot = i % RECEIVES;
        struct rdmux_wc wc = NEXT(&side->queue);
        EXPECT(wc.opcode == RDMUX_WC_RECV && wc.status == RDMUX_OK && CTX_NUMBER(wc.context) == slot,
               "message %" PRIu64 ": %s", i, wc_text(&wc));
        if (wc.length == 1 && sink.addr[slot * MIX_SINK] == 'e') {
            break;
        }
        EXPECT_OK(rdmux_recv(side->ep, sink.addr + slot * MIX_SINK, MIX_SINK, sink.mr, CTX(slot)));
    }
    side_finish(side);
}

/* ---------------------------------------------------------------- one completion for all before */

enum { COVERED = 15, COVERED_SIZE = 20000, COVERED_ROOM = (COVERED + 1) * COVERED_SIZE };

static void covers_initiator(struct side *side)
{
    side_open_pair(side, NULL);
    struct region sink = region_make(side, MEMORY_REGISTERED, COVERED_ROOM, ACCESS_SINK);
    struct rdmux_remote *remote = take_remote(side, side->ep);
    for (unsigned round = 0; round < 30; round++) {
        memset(sink.addr, 0, sink.length);
        for (uint64_t i = 0; i <= COVERED; i++) {
            /* the long ones first */
            size_t length = COVERED_SIZE - i * (COVERED_SIZE / (COVERED + 1));
            EXPECT_OK(rdmux_read(side->ep, sink.addr + i * COVERED_SIZE, length, sink.mr, remote,
                                 i * COVERED_SIZE, CTX(i), i == COVERED ? 0 : RDMUX_UNSIGNALED));
        }
        (void)WAIT(&side->queue, RDMUX_WC_READ, CTX(COVERED));
        for (uint64_t i = 0; i <= COVERED; i++) {
            size_t length = COVERED_SIZE - i * (COVERED_SIZE / (COVERED + 1));
            EXPECT_PATTERN_FROM(sink.addr + i * COVERED_SIZE, length, side->seed, i * COVERED_SIZE);
        }
    }
    BARRIER(side);
    side_finish(side);
}

static void covers_target(struct side *side)
{
    side_open_pair(side, NULL);
    struct region region = region_make(side, MEMORY_ALLOCATED, COVERED_ROOM,
                                       RDMUX_ACCESS_REMOTE_READ);
    pattern_fill(region.addr, region.length, side->seed, 0);
    give_token(side, &region);
    BARRIER(side);
    side_finish(side);
}

/* ------------------------------------------------------------------------------ FENCE */

enum { FENCE_ROUNDS = 400, FENCE_SIZE = 65536 };

static void fence_initiator(struct side *side)
{
    side_open_pair(side, NULL);
    struct region sink = region_make(side, MEMORY_REGISTERED, FENCE_SIZE, ACCESS_SINK);
    struct region sources[2] = { region_make(side, MEMORY_ALLOCATED, FENCE_SIZE, 0),
                                 region_make(side, MEMORY_UNREGISTERED, FENCE_SIZE, 0) };
    struct rdmux_remote *remote = take_remote(side, side->ep);
    for (uint64_t round = 0; round < FENCE_ROUNDS; round++) {
        const struct region *source = &sources[round % 2];
        size_t length = round % 4 < 2 ? FENCE_SIZE : 100;
        pattern_fill(source->addr, length, side->seed + round + 1, 0);
        EXPECT_OK(rdmux_read(side->ep, sink.addr, length, sink.mr, remote, 0, CTX(1), 0));
        EXPECT_OK(rdmux_write(side->ep, source->addr, length, source->mr, remote, 0, CTX(2),
                              RDMUX_FENCE));
        (void)WAIT(&side->queue, RDMUX_WC_READ, CTX(1));
        (void)WAIT(&side->queue, RDMUX_WC_WRITE, CTX(2));
        /* A short round leaves the rest of the longer one before it, so compare the bytes written
         * by that round. */
        size_t before = round == 0 || (round - 1) % 4 < 2 ? FENCE_SIZE : 100;
        EXPECT_PATTERN(sink.addr, length < before ? length : before, side->seed + round);
    }
    BARRIER(side);
    side_finish(side);
}

static void fence_target(struct side *side)
{
    side_open_pair(side, NULL);
    struct region region = region_make(side, MEMORY_ALLOCATED, FENCE_SIZE, ACCESS_ALL);
    pattern_fill(region.addr, FENCE_SIZE, side->seed, 0);
    give_token(side, &region);
    BARRIER(side);
    side_finish(side);
}

/* The atomic must find the value before the fenced write, and the read behind must find the
 * write's. */
static void fence_atomic_initiator(struct side *side)
{
    uint64_t result = 0;
    uint64_t after = 0;
    side_open_pair(side, NULL);
    struct rdmux_remote *remote = take_remote(side, side->ep);
    for (uint64_t round = 1; round <= FENCE_ROUNDS; round++) {
        uint64_t value = 1000 * round;
        EXPECT_OK(rdmux_fetch_add(side->ep, &result, NULL, remote, 0, 1, CTX(1), 0));
        EXPECT_OK(
            rdmux_write(side->ep, &value, 8, NULL, remote, 0, CTX(2), RDMUX_FENCE | RDMUX_INLINE));
        EXPECT_OK(rdmux_read(side->ep, &after, 8, NULL, remote, 0, CTX(3), 0));
        (void)WAIT(&side->queue, RDMUX_WC_FETCH_ADD, CTX(1));
        (void)WAIT(&side->queue, RDMUX_WC_WRITE, CTX(2));
        (void)WAIT(&side->queue, RDMUX_WC_READ, CTX(3));
        EXPECT_EQUAL(result, 1000 * (round - 1));
        EXPECT_EQUAL(after, value);
    }
    side_finish(side);
}

/* ------------------------------------------------------------------- write, then read or atomic */

static void write_read_initiator(struct side *side)
{
    side_open_pair(side, NULL);
    struct region sink = region_make(side, MEMORY_REGISTERED, FENCE_SIZE, ACCESS_SINK);
    struct region source = region_make(side, MEMORY_REGISTERED, FENCE_SIZE, 0);
    struct rdmux_remote *remote = take_remote(side, side->ep);
    for (uint64_t round = 0; round < FENCE_ROUNDS; round++) {
        size_t length = round % 2 == 0 ? FENCE_SIZE : 1 + round;
        pattern_fill(source.addr, length, side->seed + round, 0);
        EXPECT_OK(rdmux_write(side->ep, source.addr, length, source.mr, remote, 0, CTX(1),
                              RDMUX_UNSIGNALED));
        EXPECT_OK(rdmux_read(side->ep, sink.addr, length, sink.mr, remote, 0, CTX(2), 0));
        (void)WAIT(&side->queue, RDMUX_WC_READ, CTX(2));
        EXPECT_PATTERN(sink.addr, length, side->seed + round);
    }
    side_finish(side);
}

static void write_atomic_initiator(struct side *side)
{
    uint64_t result = 0;
    side_open_pair(side, NULL);
    struct rdmux_remote *remote = take_remote(side, side->ep);
    for (uint64_t round = 0; round < FENCE_ROUNDS; round++) {
        uint64_t value = mix64(round);
        EXPECT_OK(rdmux_write(side->ep, &value, 8, NULL, remote, 0, CTX(1), RDMUX_UNSIGNALED));
        EXPECT_OK(rdmux_compare_swap(side->ep, &result, NULL, remote, 0, value, round, CTX(2), 0));
        (void)WAIT(&side->queue, RDMUX_WC_COMPARE_SWAP, CTX(2));
        EXPECT_EQUAL(result, value);
    }
    side_finish(side);
}

static void region_target(struct side *side)
{
    side_open_pair(side, NULL);
    (void)serve(side, FENCE_SIZE);
    side_finish(side);
}

/* ---------------------------------------------------------------- write, then send or write_imm */

enum { NOTICE_SLOTS = 4, NOTICE_SIZE = 100000, NOTICE_ROUNDS = 800 };

static size_t notice_length(uint64_t round)
{
    static const size_t lengths[] = { 8, 64, 4096, 100, NOTICE_SIZE, 1, 30000, 2000 };
    return lengths[round % COUNT_OF(lengths)];
}

static struct rdmux_ep_attr notice_attr(struct side *side, uint32_t data_sockets)
{
    struct rdmux_ep_attr attr = ep_attr_of(side);
    attr.data_sockets = data_sockets;
    return attr;
}

/* Writes into slot after slot, with a notice behind each write. The target answers a notice once it
 * has verified the bytes. */
static void notices_initiator(struct side *side, bool with_imm, uint32_t data_sockets)
{
    struct rdmux_ep_attr attr = notice_attr(side, data_sockets);
    side_open_pair(side, &attr);
    EXPECT(side->info.data_sockets <= (data_sockets == 0 ? 1 : data_sockets),
           "%u data sockets granted, %u asked for", side->info.data_sockets, data_sockets);
    struct region source = region_make(side, MEMORY_REGISTERED, (size_t)NOTICE_SLOTS * NOTICE_SIZE,
                                       0);
    struct rdmux_remote *remote = take_remote(side, side->ep);
    uint8_t answers[NOTICE_SLOTS];
    uint64_t numbers[NOTICE_SLOTS];
    for (uint64_t i = 0; i < NOTICE_SLOTS; i++) {
        EXPECT_OK(rdmux_recv(side->ep, &answers[i], 1, NULL, CTX(1000 + i)));
    }
    for (uint64_t round = 0; round < NOTICE_ROUNDS; round++) {
        uint64_t slot = round % NOTICE_SLOTS;
        size_t length = notice_length(round);
        uint8_t *bytes = source.addr + slot * NOTICE_SIZE;
        if (round >= NOTICE_SLOTS) {
            (void)WAIT(&side->queue, RDMUX_WC_RECV, CTX(1000 + slot));
            (void)WAIT(&side->queue, with_imm ? RDMUX_WC_WRITE : RDMUX_WC_SEND, CTX(slot));
            EXPECT_OK(rdmux_recv(side->ep, &answers[slot], 1, NULL, CTX(1000 + slot)));
        }
        pattern_fill(bytes, length, side->seed + round, 0);
        numbers[slot] = round;
        /* in two writes, so that there is more than the last one to wait for */
        size_t half = length / 2;
        EXPECT_OK(rdmux_write(side->ep, bytes, half, source.mr, remote, slot * NOTICE_SIZE, NULL,
                              RDMUX_UNSIGNALED));
        if (with_imm) {
            EXPECT_OK(rdmux_write_imm(side->ep, bytes + half, length - half, source.mr, remote,
                                      slot * NOTICE_SIZE + half, (uint32_t)round, CTX(slot), 0));
        } else {
            EXPECT_OK(rdmux_write(side->ep, bytes + half, length - half, source.mr, remote,
                                  slot * NOTICE_SIZE + half, NULL, RDMUX_UNSIGNALED));
            EXPECT_OK(rdmux_send(side->ep, &numbers[slot], 8, NULL, CTX(slot), 0));
        }
    }
    for (uint64_t i = 0; i < NOTICE_SLOTS; i++) {
        (void)WAIT(&side->queue, RDMUX_WC_RECV, CTX(1000 + i));
        (void)WAIT(&side->queue, with_imm ? RDMUX_WC_WRITE : RDMUX_WC_SEND, CTX(i));
    }
    side_finish(side);
}

static void notices_target(struct side *side, bool with_imm, uint32_t data_sockets)
{
    struct rdmux_ep_attr attr = notice_attr(side, data_sockets);
    side_open_pair(side, &attr);
    uint64_t numbers[NOTICE_SLOTS];
    for (uint64_t i = 0; i < NOTICE_SLOTS; i++) {
        EXPECT_OK(rdmux_recv(side->ep, &numbers[i], 8, NULL, CTX(i)));
    }
    struct region region = serve(side, (size_t)NOTICE_SLOTS * NOTICE_SIZE);
    for (uint64_t round = 0; round < NOTICE_ROUNDS; round++) {
        uint64_t slot = round % NOTICE_SLOTS;
        struct rdmux_wc wc = WAIT(&side->queue, with_imm ? RDMUX_WC_RECV_WRITE_IMM : RDMUX_WC_RECV,
                                  CTX(slot));
        EXPECT_PATTERN(region.addr + slot * NOTICE_SIZE, notice_length(round), side->seed + round);
        if (with_imm) {
            EXPECT_EQUAL(wc.imm, round);
            EXPECT_EQUAL(wc.length, notice_length(round) - notice_length(round) / 2);
        } else {
            EXPECT_EQUAL(numbers[slot], round);
        }
        EXPECT_OK(rdmux_recv(side->ep, &numbers[slot], 8, NULL, CTX(slot)));
        EXPECT_OK(rdmux_send(side->ep, "a", 1, NULL, CTX(1000 + slot), 0));
        (void)WAIT(&side->queue, RDMUX_WC_SEND, CTX(1000 + slot));
    }
    side_finish(side);
}

static void write_send_initiator(struct side *side)
{
    notices_initiator(side, false, 0);
}

static void write_send_target(struct side *side)
{
    notices_target(side, false, 0);
}

static void write_write_imm_initiator(struct side *side)
{
    notices_initiator(side, true, 0);
}

static void write_write_imm_target(struct side *side)
{
    notices_target(side, true, 0);
}

static void sockets_write_send_initiator(struct side *side)
{
    notices_initiator(side, false, 4);
}

static void sockets_write_send_target(struct side *side)
{
    notices_target(side, false, 4);
}

static void sockets_write_imm_initiator(struct side *side)
{
    notices_initiator(side, true, 4);
}

static void sockets_write_imm_target(struct side *side)
{
    notices_target(side, true, 4);
}

/* ------------------------------------------------------------------------ sends arrive in order */

enum { STREAM_TOTAL = 3000, STREAM_RECEIVES = 16, STREAM_ROOM = 150000 };

static size_t stream_length(uint64_t number)
{
    static const size_t lengths[] = { 8, 9, 64, 1000, 8, 5000, 20000, 8, 100, STREAM_ROOM };
    return lengths[mix64(number) % COUNT_OF(lengths)];
}

static void stream_of(struct side *side, uint32_t data_sockets)
{
    enum { DEPTH = 16 };
    struct rdmux_ep_attr attr = ep_attr_of(side);
    attr.send_depth = DEPTH;
    attr.data_sockets = data_sockets;
    side_open_pair(side, &attr);
    struct region source = region_make(side, MEMORY_REGISTERED, (size_t)DEPTH * STREAM_ROOM, 0);
    uint64_t done = 0;
    for (uint64_t i = 0; i < STREAM_TOTAL; i++) {
        if (i - done == DEPTH) {
            (void)WAIT(&side->queue, RDMUX_WC_SEND, CTX(done));
            done++;
        }
        uint8_t *bytes = source.addr + i % DEPTH * STREAM_ROOM;
        size_t length = stream_length(i);
        pattern_fill(bytes, length, side->seed + i, 0);
        EXPECT_OK(rdmux_send(side->ep, bytes, length, i % 3 == 0 ? NULL : source.mr, CTX(i), 0));
    }
    for (; done < STREAM_TOTAL; done++) {
        (void)WAIT(&side->queue, RDMUX_WC_SEND, CTX(done));
    }
    side_finish(side);
}

static void stream_target_of(struct side *side, uint32_t data_sockets)
{
    struct rdmux_ep_attr attr = ep_attr_of(side);
    attr.data_sockets = data_sockets;
    side_open_pair(side, &attr);
    struct region sink = region_make(side, MEMORY_REGISTERED, (size_t)STREAM_RECEIVES * STREAM_ROOM,
                                     ACCESS_SINK);
    for (uint64_t i = 0; i < STREAM_TOTAL + STREAM_RECEIVES; i++) {
        uint64_t slot = i % STREAM_RECEIVES;
        uint8_t *bytes = sink.addr + slot * STREAM_ROOM;
        if (i >= STREAM_RECEIVES) {
            uint64_t number = i - STREAM_RECEIVES;
            struct rdmux_wc wc = NEXT(&side->queue);
            EXPECT(wc.opcode == RDMUX_WC_RECV && wc.status == RDMUX_OK &&
                       CTX_NUMBER(wc.context) == slot && wc.length == stream_length(number),
                   "message %" PRIu64 " of %zu bytes: %s", number, stream_length(number),
                   wc_text(&wc));
            EXPECT_PATTERN(bytes, stream_length(number), side->seed + number);
        }
        if (i < STREAM_TOTAL) {
            EXPECT_OK(rdmux_recv(side->ep, bytes, STREAM_ROOM, sink.mr, CTX(slot)));
        }
    }
    side_finish(side);
}

static void stream_initiator(struct side *side)
{
    stream_of(side, 0);
}

static void stream_target(struct side *side)
{
    stream_target_of(side, 0);
}

static void sockets_stream_initiator(struct side *side)
{
    stream_of(side, 4);
}

static void sockets_stream_target(struct side *side)
{
    stream_target_of(side, 4);
}

/* ------------------------------------------------------------------------------ PLACED */

enum {
    FLUSH_WRITES = 12,
    FLUSH_SIZE = 40000,
    FLUSH_ROOM = FLUSH_WRITES * FLUSH_SIZE,
    FLUSH_ROUNDS = 25,
};

/* The flush is a zero-length write with PLACED and without remote. Its completion is announced
 * through the socketpair. */
static void flush_initiator(struct side *side)
{
    side_open_pair(side, NULL);
    struct region source = region_make(side, MEMORY_REGISTERED, FLUSH_ROOM, 0);
    struct rdmux_remote *remote = take_remote(side, side->ep);
    for (uint64_t round = 0; round < FLUSH_ROUNDS; round++) {
        pattern_fill(source.addr, source.length, side->seed + round, 0);
        for (uint64_t i = 0; i < FLUSH_WRITES; i++) {
            EXPECT_OK(rdmux_write(side->ep, source.addr + i * FLUSH_SIZE, FLUSH_SIZE, source.mr,
                                  remote, i * FLUSH_SIZE, CTX(i), RDMUX_UNSIGNALED));
        }
        EXPECT_OK(rdmux_send(side->ep, source.addr, 5000, source.mr, CTX(100), RDMUX_UNSIGNALED));
        EXPECT_OK(rdmux_write(side->ep, NULL, 0, NULL, NULL, 0, CTX(101), RDMUX_PLACED));
        (void)WAIT(&side->queue, RDMUX_WC_WRITE, CTX(101));
        BARRIER(side);
        BARRIER(side);
    }
    side_finish(side);
}

static void flush_target(struct side *side)
{
    enum { LENGTH = 5000 };
    side_open_pair(side, NULL);
    struct region message = region_make(side, MEMORY_REGISTERED, LENGTH, RDMUX_ACCESS_LOCAL_WRITE);
    EXPECT_OK(rdmux_recv(side->ep, message.addr, LENGTH, message.mr, CTX(1)));
    struct region region = serve(side, FLUSH_ROOM);
    for (uint64_t round = 0; round < FLUSH_ROUNDS; round++) {
        BARRIER(side);
        EXPECT_PATTERN(region.addr, region.length, side->seed + round);
        EXPECT_PATTERN(message.addr, LENGTH, side->seed + round); /* placed, and not yet polled */
        (void)WAIT(&side->queue, RDMUX_WC_RECV, CTX(1));
        memset(message.addr, 0, LENGTH);
        EXPECT_OK(rdmux_recv(side->ep, message.addr, LENGTH, message.mr, CTX(1)));
        BARRIER(side);
    }
    side_finish(side);
}

static void placed_send_initiator(struct side *side)
{
    uint8_t *bytes = region_make(side, MEMORY_UNREGISTERED, MIB, 0).addr;
    static const size_t lengths[] = { 1, 64, 5000, MIB };
    side_open_pair(side, NULL);
    for (uint64_t round = 0; round < 20; round++) {
        size_t length = lengths[round % COUNT_OF(lengths)];
        pattern_fill(bytes, length, side->seed + round, 0);
        (void)POST_AND_WAIT(&side->queue,
                            rdmux_send(side->ep, bytes, length, NULL, CTX(round), RDMUX_PLACED),
                            RDMUX_WC_SEND, CTX(round));
        BARRIER(side);
        BARRIER(side);
    }
    side_finish(side);
}

static void placed_send_target(struct side *side)
{
    static const size_t lengths[] = { 1, 64, 5000, MIB };
    side_open_pair(side, NULL);
    struct region sink = region_make(side, MEMORY_REGISTERED, MIB, ACCESS_SINK);
    for (uint64_t round = 0; round < 20; round++) {
        size_t length = lengths[round % COUNT_OF(lengths)];
        memset(sink.addr, 0, length);
        EXPECT_OK(rdmux_recv(side->ep, sink.addr, sink.length, sink.mr, CTX(round)));
        BARRIER(side); /* no rdmux call since the receive was posted */
        EXPECT_PATTERN(sink.addr, length, side->seed + round);
        (void)WAIT(&side->queue, RDMUX_WC_RECV, CTX(round));
        BARRIER(side);
    }
    side_finish(side);
}

/* Bytes placed through one endpoint are visible to any observer that learns of it, through another
 * endpoint of the same region, too. */
static void second_initiator(struct side *side)
{
    uint8_t *bytes = region_make(side, MEMORY_UNREGISTERED, MIB, 0).addr;
    uint8_t *back = region_make(side, MEMORY_UNREGISTERED, MIB, 0).addr;
    side_open_pair(side, NULL);
    struct rdmux_ep *second = side_pair(side, NULL);
    struct rdmux_remote *first_remote = take_remote(side, side->ep);
    struct rdmux_remote *second_remote = take_remote(side, second);
    for (uint64_t round = 0; round < 60; round++) {
        size_t length = round % 3 == 0 ? MIB : 100 + 700 * round;
        pattern_fill(bytes, length, side->seed + round, 0);
        (void)POST_AND_WAIT(
            &side->queue,
            rdmux_write(side->ep, bytes, length, NULL, first_remote, 0, CTX(1), RDMUX_PLACED),
            RDMUX_WC_WRITE, CTX(1));
        (void)POST_AND_WAIT(&side->queue,
                            rdmux_read(second, back, length, NULL, second_remote, 0, CTX(2), 0),
                            RDMUX_WC_READ, CTX(2));
        EXPECT_PATTERN(back, length, side->seed + round);
    }
    side_finish(side);
}

static void second_target(struct side *side)
{
    side_open_pair(side, NULL);
    (void)side_pair(side, NULL);
    struct region region = region_make(side, MEMORY_ALLOCATED, MIB, ACCESS_ALL);
    give_token(side, &region);
    give_token(side, &region);
    side_finish(side);
}

/* --------------------------------------------------------------------------- the buffer is free */

/* The completion of a send or write returns the buffer, whatever the state of the bytes. */
static void reuse_initiator(struct side *side)
{
    uint8_t *bytes = region_make(side, MEMORY_UNREGISTERED, MIB, 0).addr;
    side_open_pair(side, NULL);
    struct rdmux_remote *remote = take_remote(side, side->ep);
    for (uint64_t round = 0; round < 40; round++) {
        size_t length = round % 2 == 0 ? MIB / 40 : 100;
        pattern_fill(bytes, length, side->seed + round, 0);
        if (round % 4 < 2) {
            EXPECT_OK(
                rdmux_write(side->ep, bytes, length, NULL, remote, round * (MIB / 40), CTX(1), 0));
            (void)WAIT(&side->queue, RDMUX_WC_WRITE, CTX(1));
        } else {
            EXPECT_OK(rdmux_send(side->ep, bytes, length, NULL, CTX(2), 0));
            (void)WAIT(&side->queue, RDMUX_WC_SEND, CTX(2));
        }
        memset(bytes, 0xcc, length);
    }
    EXPECT_OK(rdmux_write(side->ep, NULL, 0, NULL, NULL, 0, CTX(3), RDMUX_PLACED));
    (void)WAIT(&side->queue, RDMUX_WC_WRITE, CTX(3));
    BARRIER(side);
    side_finish(side);
}

static void reuse_target(struct side *side)
{
    side_open_pair(side, NULL);
    struct region sink = region_make(side, MEMORY_REGISTERED, MIB, ACCESS_SINK);
    for (uint64_t round = 0; round < 40; round++) {
        if (round % 4 >= 2) {
            EXPECT_OK(rdmux_recv(side->ep, sink.addr + round * (MIB / 40), MIB / 40, sink.mr,
                                 CTX(round)));
        }
    }
    struct region region = serve(side, MIB);
    BARRIER(side);
    for (uint64_t round = 0; round < 40; round++) {
        size_t length = round % 2 == 0 ? MIB / 40 : 100;
        if (round % 4 < 2) {
            EXPECT_PATTERN(region.addr + round * (MIB / 40), length, side->seed + round);
        } else {
            EXPECT_EQUAL(WAIT(&side->queue, RDMUX_WC_RECV, CTX(round)).length, length);
            EXPECT_PATTERN(sink.addr + round * (MIB / 40), length, side->seed + round);
        }
    }
    side_finish(side);
}

static const struct conformance_case cases[] = {
    { "1.1, 1.6",
      "2,000 reads, writes and sends of all sizes, 32 at a time, complete once each and in posting "
      "order",
      NEEDS_FENCE | NEEDS_SEND | NEEDS_WRITE | NEEDS_READ, 30, 0, mix_initiator, mix_target },
    { "1.8, 3.3",
      "the completion of one read says that all unsignaled reads before it have brought their "
      "bytes",
      NEEDS_READ, 0, 0, covers_initiator, covers_target },
    { "4.1", "a fenced write never shows in the read before it",
      NEEDS_FENCE | NEEDS_WRITE | NEEDS_READ, 0, 0, fence_initiator, fence_target },
    { "4.1, 4.2", "a fenced write comes after the atomic before it and before the read behind it",
      NEEDS_FENCE | NEEDS_ATOMICS | NEEDS_WRITE | NEEDS_READ, 0, 0, fence_atomic_initiator,
      region_target },
    { "2.6", "a read behind a write to the same place finds the write", NEEDS_WRITE | NEEDS_READ, 0,
      0, write_read_initiator, region_target },
    { "2.6", "an atomic behind a write to the same word finds the write",
      NEEDS_ATOMICS | NEEDS_WRITE, 0, 0, write_atomic_initiator, region_target },
    { "2.3", "writes are visible when the receive of a later send completes",
      NEEDS_SEND | NEEDS_WRITE, 20, 0, write_send_initiator, write_send_target },
    { "2.4, 2.5", "writes, and its own bytes, are visible at the notice of a write_imm",
      NEEDS_IMM | NEEDS_SEND | NEEDS_WRITE, 20, 0, write_write_imm_initiator,
      write_write_imm_target },
    { "2.1, 2.2", "3,000 messages of all sizes arrive in order, each whole in the next receive",
      NEEDS_SEND, 30, 0, stream_initiator, stream_target },
    { "2.15", "with four data sockets messages arrive in order", NEEDS_SEND, 30, 0,
      sockets_stream_initiator, sockets_stream_target },
    { "2.15, 2.3", "with four data sockets writes are visible before a later send",
      NEEDS_SEND | NEEDS_WRITE, 20, 0, sockets_write_send_initiator, sockets_write_send_target },
    { "2.15, 2.5", "with four data sockets writes are visible before a later write_imm",
      NEEDS_IMM | NEEDS_SEND | NEEDS_WRITE, 20, 0, sockets_write_imm_initiator,
      sockets_write_imm_target },
    { "1.9, 3.4, 6.10", "the flush completes when all earlier writes and sends are placed",
      NEEDS_PLACED | NEEDS_SEND | NEEDS_WRITE, 0, 0, flush_initiator, flush_target },
    { "3.5", "a send with PLACED completes when its bytes are in the receive, before the peer polls",
      NEEDS_PLACED | NEEDS_SEND, 0, 0, placed_send_initiator, placed_send_target },
    { "3.4, 2.10", "bytes that were placed through one endpoint are found through another",
      NEEDS_PLACED | NEEDS_WRITE | NEEDS_READ, 0, 0, second_initiator, second_target },
    { "3.1", "after its completion the buffer of a send or write may be overwritten",
      NEEDS_PLACED | NEEDS_SEND | NEEDS_WRITE, 0, 0, reuse_initiator, reuse_target },
};

const struct suite order_suite = { "order", cases, COUNT_OF(cases) };
