/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Byte streams whose peer is killed or whose path breaks. */
#include "stream_end.h"

#include <signal.h>
#include <unistd.h>

/* Opens the side and its only stream, which has a cq of its own. */
static struct end end_open_alone(struct side *side)
{
    const struct rdmux_ep_attr ep = ep_attr_of(side);
    side_open(side, NULL);
    side_meet(side);
    return end_open_with(side, true, &ep);
}

static void killed_body(struct side *side)
{
    uint8_t bytes[1000];
    struct end end = end_open_alone(side);
    pattern_fill(bytes, sizeof(bytes), side->seed, 0);
    end_put(&end, bytes, sizeof(bytes), 0);
    end_get(&end, bytes, 1, 0);
    victim_ready(side);
    for (;;) {
        pause();
    }
}

/* The process that forked the victim, of either role: kills it when the other side asks for that. */
static void kill_victim(struct side *side, void (*body)(struct side *side))
{
    struct victim victim;
    victim_start(&victim, side, body);
    victim_await(&victim);
    victim_signal(&victim, SIGKILL);
    victim_end(&victim);
    BARRIER(side);
}

static void killed_side(struct side *side)
{
    kill_victim(side, killed_body);
}

/* The peer's end: no call may take it for an end in order. */
static void expect_gone(const struct end *end)
{
    uint8_t bytes[2];
    size_t moved = 0;
    EXPECT_STATUS(rdmux_stream_write(end->stream, bytes, 1, 0, &moved), RDMUX_PEER_GONE);
    EXPECT_STATUS(rdmux_stream_read(end->stream, bytes, 1, 0, &moved), RDMUX_PEER_GONE);
    EXPECT_STATUS(rdmux_stream_read(end->stream, bytes, 2, RDMUX_STREAM_ALL, &moved),
                  RDMUX_PEER_GONE);
    EXPECT_STATUS(rdmux_stream_close(end->stream), RDMUX_PEER_GONE);
}

static void surviving_side(struct side *side)
{
    struct end end = end_open_alone(side);
    uint8_t bytes[1000];
    size_t moved = 0;
    EXPECT_OK(rdmux_stream_wait(end.stream, RDMUX_STREAM_READ, side->patient_ms));
    end_put(&end, "x", 1, 0);
    BARRIER(side);
    EXPECT_OK(rdmux_stream_wait(end.stream, RDMUX_STREAM_END, side->patient_ms));
    EXPECT_STATUS(rdmux_stream_write(end.stream, bytes, 1, 0, &moved), RDMUX_PEER_GONE);
    end_get(&end, bytes, sizeof(bytes), 0);
    EXPECT_PATTERN(bytes, sizeof(bytes), side->seed);
    expect_gone(&end);
    side_end(side);
}

enum { CHUNK = 4 * RING };

/* Lent chunks in both directions at once. */
struct duplex {
    const struct end *end;
    uint8_t *out;
    uint8_t *in;
    uint64_t written;
    uint64_t got;
    bool is_lent; /* the next chunk to be written */
};

static struct duplex duplex_of(const struct end *end)
{
    struct side *side = end->side;
    return (
        struct duplex){ .end = end, .out = side_bytes(side, CHUNK), .in = side_bytes(side, CHUNK) };
}

static enum rdmux_status give_chunk(struct duplex *duplex)
{
    size_t done = 0;
    if (!duplex->is_lent) {
        pattern_fill(duplex->out, CHUNK, duplex->end->side->seed + duplex->written / CHUNK, 0);
    }
    enum rdmux_status status = rdmux_stream_write(duplex->end->stream, duplex->out, CHUNK,
                                                  RDMUX_STREAM_LEND, &done);
    duplex->is_lent = status == RDMUX_AGAIN;
    duplex->written += done;
    return status;
}

static enum rdmux_status take_chunk(struct duplex *duplex)
{
    size_t got = 0;
    enum rdmux_status status = rdmux_stream_read(duplex->end->stream, duplex->in, CHUNK,
                                                 RDMUX_STREAM_ALL, &got);
    EXPECT_PATTERN_FROM(duplex->in, got, duplex->end->side->seed + duplex->got / CHUNK,
                        duplex->got % CHUNK);
    duplex->got += got;
    return status == RDMUX_OK && got == 0 ? RDMUX_PROTOCOL : status; /* no side has sent an end */
}

/* Goes on until so many bytes have been moved in both directions. Returns why that has failed. */
static enum rdmux_status move_both_ways(struct duplex *duplex, uint64_t bytes)
{
    while (duplex->written < bytes || duplex->got < bytes) {
        enum rdmux_status wrote = duplex->written < bytes ? give_chunk(duplex) : RDMUX_AGAIN;
        enum rdmux_status read = duplex->got < bytes ? take_chunk(duplex) : RDMUX_AGAIN;
        if (read != RDMUX_OK && read != RDMUX_AGAIN) {
            return read;
        }
        if (wrote != RDMUX_OK && wrote != RDMUX_AGAIN) {
            return wrote;
        }
        if (wrote == RDMUX_AGAIN && read == RDMUX_AGAIN) {
            end_await(duplex->end, (duplex->got < bytes ? RDMUX_STREAM_READ : 0U) |
                                       (duplex->written < bytes ? RDMUX_STREAM_WRITE : 0U));
        }
    }
    return RDMUX_OK;
}

/* The stream tells of its moves, and of nothing that has no cause. */
static void expect_moves(const struct end *end)
{
    struct rdmux_wc wc = { .opcode = RDMUX_WC_STREAM_READABLE };
    while (wc.opcode != RDMUX_WC_PATH_CHANGED) {
        wc = NEXT(&end->side->queue);
        EXPECT(wc.context == end->stream, "another object's entry: %s", wc_text(&wc));
    }
    EXPECT(wc.ep == rdmux_stream_ep(end->stream) && wc.status != RDMUX_OK && wc.imm > 1,
           "an odd entry: %s, epoch %u", wc_text(&wc), wc.imm);
}

/* A path of shared memory moves bytes without its socket: the next cut has to wait for a new one. */
static void await_moves(const struct end *end, unsigned moves)
{
    struct rdmux_ep_stats stats = RDMUX_EP_STATS_INIT;
    for (;;) {
        EXPECT_OK(rdmux_ep_stats(rdmux_stream_ep(end->stream), &stats));
        if (stats.moves >= moves) {
            return;
        }
        EXPECT(!time_is_up(), "%u moves after %u breaks", (unsigned)stats.moves, moves);
        EXPECT_STATUS(rdmux_stream_wait(end->stream, RDMUX_STREAM_END, 1), RDMUX_TIMED_OUT);
    }
}

/* The initiator cuts the path while chunks are on their way. */
static void moved_case(struct side *side, bool has_own_cq)
{
    enum { ROUNDS = 4, PER_ROUND = 3 };
    struct rdmux_ep_attr ep = ep_attr_of(side);
    ep.failover = RDMUX_FAILOVER_ON;
    ep.failover_attempts = 1000;
    side_open(side, NULL);
    side_meet(side);
    struct end end = end_open_with(side, has_own_cq, &ep);
    struct duplex duplex = duplex_of(&end);
    unsigned breaks = 0;
    for (uint64_t round = 1; round <= ROUNDS; round++) {
        EXPECT_OK(move_both_ways(&duplex, (round * PER_ROUND - 1) * CHUNK));
        const enum rdmux_status status = give_chunk(&duplex); /* longer than the ring */
        EXPECT(status == RDMUX_OK || status == RDMUX_AGAIN, "%s", rdmux_last_error());
        breaks += side->is_initiator && break_path(side) != 0;
        EXPECT_OK(move_both_ways(&duplex, round * PER_ROUND * CHUNK));
        await_moves(&end, breaks);
    }
    if (breaks != 0) {
        side->caps->emulated |= NEEDS_FAILOVER | NEEDS_BREAKS;
    }
    if (breaks != 0 && !has_own_cq) {
        expect_moves(&end);
    }
    end_finish(&end);
}

static void moved_own(struct side *side)
{
    moved_case(side, true);
}

static void moved_shared(struct side *side)
{
    moved_case(side, false);
}

static void killed_midway_body(struct side *side)
{
    struct end end = end_open_alone(side);
    struct duplex duplex = duplex_of(&end);
    EXPECT_OK(move_both_ways(&duplex, (uint64_t)8 * CHUNK));
    victim_ready(side);
    (void)move_both_ways(&duplex, UINT64_MAX);
    FAIL("the stream of the victim has failed: %s", rdmux_last_error());
}

static void killed_midway_side(struct side *side)
{
    kill_victim(side, killed_midway_body);
}

static void surviving_midway_side(struct side *side)
{
    struct end end = end_open_alone(side);
    struct duplex duplex = duplex_of(&end);
    EXPECT_STATUS(move_both_ways(&duplex, UINT64_MAX), RDMUX_PEER_GONE);
    EXPECT_OK(rdmux_stream_wait(end.stream, RDMUX_STREAM_END, side->patient_ms));
    enum rdmux_status status;
    do {
        status = take_chunk(&duplex); /* the first bytes of the lent buffer */
    } while (status == RDMUX_OK);
    EXPECT_STATUS(status, RDMUX_PEER_GONE);
    if (duplex.is_lent) {
        EXPECT_STATUS(give_chunk(&duplex), RDMUX_PEER_GONE); /* returns the lent buffer */
    }
    /* The victim has read 8 chunks, so that 7 writes were done before the last one began. */
    EXPECT(duplex.written >= (uint64_t)7 * CHUNK, "%llu bytes are written",
           (unsigned long long)duplex.written);
    expect_gone(&end);
    BARRIER(side);
    side_end(side);
}

static const struct conformance_case cases[] = {
    { "S.10,-S.10", "a killed acceptor's bytes are read, then the cause is returned", NEEDS_STREAM,
      30, CASE_UNTOUCHED, surviving_side, killed_side },
    { "S.10,-S.10", "a killed connector's bytes are read, then the cause is returned", NEEDS_STREAM,
      30, CASE_UNTOUCHED, killed_side, surviving_side },
    { "S.1,S.10,-S.10", "the acceptor is killed while large buffers are lent both ways",
      NEEDS_STREAM, 30, CASE_UNTOUCHED, surviving_midway_side, killed_midway_side },
    { "S.1,S.10,-S.10", "the connector is killed while large buffers are lent both ways",
      NEEDS_STREAM, 30, CASE_UNTOUCHED, killed_midway_side, surviving_midway_side },
    { "S.13,-S.13,F.2,F.3", "the bytes of a stream whose path breaks come once and in order",
      NEEDS_STREAM, 60, 0, moved_own, moved_own },
    { "S.13,-S.13,F.7", "a stream on the program's cq tells that its path has changed",
      NEEDS_STREAM, 60, 0, moved_shared, moved_shared },
};

const struct suite streams_lost_suite = { "streams_lost", cases, COUNT_OF(cases) };
