/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Small writes, one after the other. Paths have a fast path for them, and everything else that
 * happens meanwhile must obey the same rules. Each case therefore begins with a run of them.
 */
#include "harness.h"

#include <inttypes.h>
#include <string.h>

enum { DEPTH = 32, SMALL_MAX = 64, REGION = 4096, RUN = 12 };

static struct rdmux_ep_attr attr_of(const struct side *side)
{
    struct rdmux_ep_attr attr = ep_attr_of(side);
    attr.send_depth = DEPTH;
    return attr;
}

/* Serves a region until the other side has reached the barrier, and ends in order. */
static void target(struct side *side)
{
    struct rdmux_ep_attr attr = attr_of(side);
    side_open_pair(side, &attr);
    struct region region = region_make(side, MEMORY_ALLOCATED, REGION, ACCESS_ALL);
    give_token(side, &region);
    BARRIER(side);
    side_finish(side);
}

/* Posts one signaled write of 8 bytes and takes its completion. */
static void write_one(struct side *side, struct rdmux_ep *ep, struct rdmux_remote *remote,
                      uint64_t value)
{
    EXPECT_OK(rdmux_write(ep, &value, sizeof(value), NULL, remote, 0, CTX(value), RDMUX_INLINE));
    struct rdmux_wc wc = NEXT(&side->queue);
    EXPECT(wc.opcode == RDMUX_WC_WRITE && wc.status == RDMUX_OK && wc.ep == ep &&
               wc.length == sizeof(value) && CTX_NUMBER(wc.context) == value,
           "write %" PRIu64 ": %s", value, wc_text(&wc));
}

static void run_of_writes(struct side *side, struct rdmux_ep *ep, struct rdmux_remote *remote)
{
    for (uint64_t i = 1; i <= RUN; i++) {
        write_one(side, ep, remote, i);
    }
}

/* ------------------------------------------------------------------------------------ a stream */

enum { STREAM_TOTAL = 6000, STREAM_POLL = 16 };

struct stream {
    struct side *side;
    struct rdmux_remote *remote;
    uint64_t random;
    uint8_t model[REGION]; /* required content of the peer's region */
    struct {
        uint32_t opcode;
        uint64_t length;
    } posted[DEPTH];
    uint64_t head;
    uint64_t tail;
    uint64_t bytes;
};

static void stream_note(struct stream *stream, uint32_t opcode, uint64_t length)
{
    stream->posted[stream->head % DEPTH].opcode = opcode;
    stream->posted[stream->head % DEPTH].length = length;
    stream->head++;
}

static void stream_write(struct stream *stream, uint32_t flags)
{
    uint8_t bytes[SMALL_MAX];
    size_t length = 1 + random_below(&stream->random, SMALL_MAX);
    uint64_t offset = random_below(&stream->random, 8) == 0
                          ? REGION - length /* up to the last byte */
                          : random_below(&stream->random, REGION - length + 1);
    pattern_fill(bytes, length, stream->head, 0);
    EXPECT_OK(rdmux_write(stream->side->ep, bytes, length, NULL, stream->remote, offset,
                          CTX(stream->head), flags));
    memcpy(stream->model + offset, bytes, length);
    memset(bytes, 0xee, length); /* inline: free again */
    stream->bytes += length;
    stream_note(stream, RDMUX_WC_WRITE, length);
}

static void stream_take(struct stream *stream, size_t max)
{
    struct rdmux_wc wcs[STREAM_POLL];
    size_t got = rdmux_cq_poll(stream->side->queue.cq, wcs, max);
    EXPECT(got <= max, "a poll for %zu entries returned %zu", max, got);
    for (size_t i = 0; i < got; i++) {
        const struct rdmux_wc *wc = &wcs[i];
        EXPECT(stream->tail != stream->head, "an entry too many: %s", wc_text(wc));
        uint64_t at = stream->tail % DEPTH;
        EXPECT(wc->status == RDMUX_OK && wc->opcode == stream->posted[at].opcode &&
                   wc->length == stream->posted[at].length && wc->ep == stream->side->ep &&
                   CTX_NUMBER(wc->context) == stream->tail && wc->flags == 0 && wc->imm == 0 &&
                   wc->spare[0] == 0 && wc->spare[1] == 0 && wc->spare[2] == 0,
               "entry %" PRIu64 ": %s", stream->tail, wc_text(wc));
        stream->tail++;
    }
}

/* Operations between the writes. */
static void stream_interrupt(struct stream *stream)
{
    struct rdmux_ep *ep = stream->side->ep;
    static uint64_t word;
    struct rdmux_ep_stats stats = RDMUX_EP_STATS_INIT;
    switch (random_below(&stream->random, 5)) {
    case 0:
        EXPECT_OK(rdmux_ep_stats(ep, &stats));
        EXPECT_EQUAL(stats.bytes_sent, stream->bytes);
        break;
    case 1:
        EXPECT_OK(
            rdmux_read(ep, &word, sizeof(word), NULL, stream->remote, 0, CTX(stream->head), 0));
        stream_note(stream, RDMUX_WC_READ, sizeof(word));
        break;
    case 2:
        stream_write(stream, RDMUX_INLINE | RDMUX_PLACED);
        break;
    case 3:
        stream_write(stream, RDMUX_INLINE | RDMUX_FENCE);
        break;
    default: {
        enum rdmux_status status = rdmux_cq_arm(stream->side->queue.cq);
        EXPECT(status == RDMUX_OK || status == RDMUX_AGAIN, "rdmux_cq_arm: %s",
               rdmux_status_name(status));
        break;
    }
    }
}

static void stream_initiator(struct side *side)
{
    static const uint64_t windows[] = { 1, 1, 2, 7, DEPTH };
    static const size_t polls[] = { 1, 1, 2, STREAM_POLL };
    static struct stream stream;
    struct rdmux_ep_attr attr = attr_of(side);
    side_open_pair(side, &attr);
    stream.side = side;
    stream.remote = take_remote(side, side->ep);
    stream.random = side->seed;
    while (stream.head < STREAM_TOTAL) {
        uint64_t window = windows[random_below(&stream.random, COUNT_OF(windows))];
        size_t max = polls[random_below(&stream.random, COUNT_OF(polls))];
        for (unsigned i = 0; i < 200; i++) {
            while (stream.head - stream.tail < window) {
                stream_write(&stream, RDMUX_INLINE);
            }
            stream_take(&stream, max);
            if (random_below(&stream.random, 100) == 0 && stream.head - stream.tail < DEPTH) {
                stream_interrupt(&stream);
            }
        }
        while (stream.tail != stream.head) {
            stream_take(&stream, max);
        }
    }
    struct rdmux_ep_stats stats = RDMUX_EP_STATS_INIT;
    EXPECT_OK(rdmux_ep_stats(side->ep, &stats));
    EXPECT_EQUAL(stats.writes + stats.reads, stream.head);
    EXPECT_EQUAL(stats.bytes_sent, stream.bytes);
    POST_AND_WAIT(&side->queue, rdmux_write(side->ep, NULL, 0, NULL, NULL, 0, CTX(1), RDMUX_PLACED),
                  RDMUX_WC_WRITE, CTX(1));
    GIVE(side, stream.model, sizeof(stream.model));
    BARRIER(side);
    side_finish(side);
}

static void stream_target(struct side *side)
{
    uint8_t model[REGION];
    struct rdmux_ep_attr attr = attr_of(side);
    side_open_pair(side, &attr);
    struct region region = region_make(side, MEMORY_ALLOCATED, REGION, ACCESS_ALL);
    give_token(side, &region);
    TAKE(side, model, sizeof(model));
    EXPECT(memcmp(model, region.addr, sizeof(model)) == 0, "the region holds other bytes");
    BARRIER(side);
    side_finish(side);
}

/* ----------------------------------------------------------------------------------- refusals */

static void refusal_initiator(struct side *side)
{
    struct rdmux_ep_attr attr = attr_of(side);
    side_open_pair(side, &attr);
    struct rdmux_ep *ep = side->ep;
    struct rdmux_remote *remote = take_remote(side, ep);
    uint64_t word = 1;
    const size_t size = sizeof(word);
    const uint32_t flags = RDMUX_INLINE;
    static const uint8_t big[REGION];
    for (unsigned round = 0; round < 3; round++) {
        run_of_writes(side, ep, remote);
        EXPECT_STATUS(rdmux_write(ep, &word, size, NULL, remote, REGION, NULL, flags),
                      RDMUX_OUT_OF_RANGE);
        run_of_writes(side, ep, remote);
        EXPECT_STATUS(rdmux_write(ep, &word, size, NULL, remote, REGION - size + 1, NULL, flags),
                      RDMUX_OUT_OF_RANGE);
        EXPECT_STATUS(rdmux_write(ep, &word, size, NULL, remote, UINT64_MAX - 3, NULL, flags),
                      RDMUX_OUT_OF_RANGE);
        run_of_writes(side, ep, remote);
        EXPECT_STATUS(rdmux_write(ep, big, side->info.max_inline + 1, NULL, remote, 0, NULL, flags),
                      RDMUX_LENGTH);
        run_of_writes(side, ep, remote);
        EXPECT_STATUS(rdmux_write(ep, NULL, size, NULL, remote, 0, NULL, flags), RDMUX_INVALID);
        EXPECT_STATUS(rdmux_write(ep, &word, size, NULL, NULL, 0, NULL, flags), RDMUX_INVALID);
        EXPECT_STATUS(rdmux_write(NULL, &word, size, NULL, remote, 0, NULL, flags), RDMUX_INVALID);
        EXPECT_STATUS(rdmux_write(ep, &word, size, NULL, remote, 0, NULL, flags | 1U << 30),
                      RDMUX_INVALID);
        run_of_writes(side, ep, remote);
        EXPECT_EQUAL(rdmux_cq_poll(side->queue.cq, NULL, 0), 0);
        POST_AND_WAIT(&side->queue, rdmux_write(ep, &word, 0, NULL, remote, 0, CTX(7), flags),
                      RDMUX_WC_WRITE, CTX(7));
    }
    EXPECT_QUIET(&side->queue);
    BARRIER(side);
    side_finish(side);
}

/* ------------------------------------------------------------------------------- a full queue */

static void full_initiator(struct side *side)
{
    struct rdmux_ep_attr attr = attr_of(side);
    side_open_pair(side, &attr);
    struct rdmux_ep *ep = side->ep;
    struct rdmux_remote *remote = take_remote(side, ep);
    for (unsigned round = 0; round < 5; round++) {
        run_of_writes(side, ep, remote);
        for (uint64_t i = 0; i < DEPTH; i++) {
            EXPECT_OK(rdmux_write(ep, &i, sizeof(i), NULL, remote, 0, CTX(i), RDMUX_INLINE));
        }
        for (uint64_t i = 0; i < 3; i++) {
            EXPECT_STATUS(rdmux_write(ep, &i, sizeof(i), NULL, remote, 0, CTX(i), RDMUX_INLINE),
                          RDMUX_AGAIN);
        }
        uint64_t done = 0;
        unsigned writable = 0;
        while (done < DEPTH || writable == 0) {
            struct rdmux_wc wc = NEXT(&side->queue);
            if (wc.opcode == RDMUX_WC_WRITABLE) {
                writable++;
                continue;
            }
            EXPECT(wc.opcode == RDMUX_WC_WRITE && wc.status == RDMUX_OK &&
                       CTX_NUMBER(wc.context) == done,
                   "completion %" PRIu64 ": %s", done, wc_text(&wc));
            done++;
        }
        EXPECT_EQUAL(writable, 1);
        EXPECT_QUIET(&side->queue);
    }
    BARRIER(side);
    side_finish(side);
}

/* ----------------------------------------------------------------- ends with requests in flight */

enum { PAIRS = 8, ON_THE_WAY = 9 };

static void close_initiator(struct side *side)
{
    struct rdmux_ep_attr attr = attr_of(side);
    side_open(side, NULL);
    side_meet(side);
    for (unsigned i = 0; i < PAIRS; i++) {
        struct rdmux_ep *ep = side_pair(side, &attr);
        struct rdmux_remote *remote = take_remote(side, ep);
        run_of_writes(side, ep, remote);
        for (uint64_t j = 0; j < ON_THE_WAY; j++) {
            EXPECT_OK(rdmux_write(ep, &j, sizeof(j), NULL, remote, 8, CTX(100 + j), RDMUX_INLINE));
        }
        side_close_ep(side, ep);
        EXPECT_QUIET(&side->queue);
        BARRIER(side);
    }
    side_finish(side);
}

static void close_target(struct side *side)
{
    struct rdmux_ep_attr attr = attr_of(side);
    side_open(side, NULL);
    side_meet(side);
    for (unsigned i = 0; i < PAIRS; i++) {
        struct rdmux_ep *ep = side_pair(side, &attr);
        struct region region = region_make(side, MEMORY_ALLOCATED, REGION, ACCESS_ALL);
        give_token(side, &region);
        struct rdmux_wc wc = NEXT(&side->queue);
        EXPECT(wc.opcode == RDMUX_WC_DISCONNECTED && wc.ep == ep, "%s", wc_text(&wc));
        side_close_ep(side, ep);
        BARRIER(side);
    }
    side_finish(side);
}

static void end_initiator(struct side *side)
{
    struct rdmux_ep_attr attr = attr_of(side);
    side_open_pair(side, &attr);
    struct rdmux_ep *ep = side->ep;
    struct rdmux_remote *remote = take_remote(side, ep);
    uint64_t posted = 0;
    uint64_t done = 0;
    bool failed = false;
    run_of_writes(side, ep, remote);
    uint8_t go = 1;
    GIVE(side, &go, sizeof(go));
    for (;;) {
        while (posted - done < ON_THE_WAY && rdmux_write(ep, &posted, sizeof(posted), NULL, remote,
                                                         0, CTX(posted), RDMUX_INLINE) == RDMUX_OK) {
            posted++;
        }
        struct rdmux_wc wc = NEXT(&side->queue);
        if (wc.opcode == RDMUX_WC_DISCONNECTED) {
            break;
        }
        EXPECT(wc.opcode == RDMUX_WC_WRITE && CTX_NUMBER(wc.context) == done,
               "completion %" PRIu64 ": %s", done, wc_text(&wc));
        EXPECT(!failed || wc.status != RDMUX_OK, "a success behind a failure");
        failed = wc.status != RDMUX_OK;
        done++;
    }
    EXPECT_EQUAL(done, posted);
    uint64_t word = 0;
    for (unsigned i = 0; i < RUN; i++) {
        EXPECT(rdmux_write(ep, &word, sizeof(word), NULL, remote, 0, NULL, RDMUX_INLINE) != RDMUX_OK,
               "a write to an endpoint that has ended was taken");
    }
    EXPECT_QUIET(&side->queue);
    side_end(side);
}

static void end_target(struct side *side)
{
    struct rdmux_ep_attr attr = attr_of(side);
    uint8_t go;
    side_open_pair(side, &attr);
    struct region region = region_make(side, MEMORY_ALLOCATED, REGION, ACCESS_ALL);
    give_token(side, &region);
    TAKE(side, &go, sizeof(go));
    sleep_ms(20); /* some are probably in flight */
    side_end(side);
}

/* ----------------------------------------------------------------------- alternating endpoints */

static void turns_initiator(struct side *side)
{
    struct rdmux_ep_attr attr = attr_of(side);
    side_open(side, NULL);
    side_meet(side);
    struct rdmux_ep *eps[2] = { side_pair(side, &attr), side_pair(side, &attr) };
    struct rdmux_remote *remotes[2] = { take_remote(side, eps[0]), take_remote(side, eps[1]) };
    uint64_t word = 0;
    for (unsigned round = 0; round < 20; round++) {
        unsigned one = round % 2;
        run_of_writes(side, eps[one], remotes[one]);
        EXPECT_STATUS(rdmux_write(eps[one], &word, sizeof(word), NULL, remotes[1 - one], 0, NULL,
                                  RDMUX_INLINE),
                      RDMUX_INVALID);
        run_of_writes(side, eps[one], remotes[one]);
        for (uint64_t i = 0; i < 5; i++) { /* of both, in flight together */
            for (unsigned j = 0; j < 2; j++) {
                EXPECT_OK(
                    rdmux_write(eps[j], &i, sizeof(i), NULL, remotes[j], 8, CTX(i), RDMUX_INLINE));
            }
        }
        uint64_t done[2] = { 0, 0 };
        while (done[0] + done[1] < 10) {
            struct rdmux_wc wc = NEXT(&side->queue);
            unsigned of = wc.ep == eps[1];
            EXPECT(wc.opcode == RDMUX_WC_WRITE && wc.status == RDMUX_OK && wc.ep == eps[of] &&
                       CTX_NUMBER(wc.context) == done[of],
                   "completion %" PRIu64 " of endpoint %u: %s", done[of], of, wc_text(&wc));
            done[of]++;
        }
    }
    BARRIER(side);
    side_finish(side);
}

static void turns_target(struct side *side)
{
    struct rdmux_ep_attr attr = attr_of(side);
    side_open(side, NULL);
    side_meet(side);
    (void)side_pair(side, &attr);
    (void)side_pair(side, &attr);
    for (unsigned i = 0; i < 2; i++) {
        struct region region = region_make(side, MEMORY_ALLOCATED, REGION, ACCESS_ALL);
        give_token(side, &region);
    }
    BARRIER(side);
    side_finish(side);
}

static const struct conformance_case cases[] = {
    { "1.1, 1.6, 15.13",
      "6,000 small writes, with other calls between, complete once each, in posting order, with "
      "the context and length of each",
      NEEDS_PLACED | NEEDS_FENCE | NEEDS_WRITE | NEEDS_READ, 30, 0, stream_initiator,
      stream_target },
    { "1.3, 6.1, 6.3, 15.11", "wrong requests are refused between small writes as at any time",
      NEEDS_WRITE, 0, 0, refusal_initiator, target },
    { "1.12, 13.1", "small writes beyond the depth give AGAIN, and then one WRITABLE", NEEDS_WRITE,
      0, 0, full_initiator, target },
    { "9.6, 9.7",
      "an endpoint closed with small writes under way leaves no entry to later endpoints",
      NEEDS_WRITE, 30, 0, close_initiator, close_target },
    { "7.1, 7.2, 7.8", "when the peer ends amid small writes, each completes once, successes first",
      NEEDS_WRITE, 0, 0, end_initiator, end_target },
    { "1.6, 1.7", "small writes of two endpoints, by turns and together, keep their orders",
      NEEDS_WRITE, 0, 0, turns_initiator, turns_target },
};

const struct suite small_suite = { "small", cases, COUNT_OF(cases) };
