/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Byte streams: rdmux/stream.h. */
#include "stream_end.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---------------------------------------------------------------------------------------- the bytes */

enum { MUCH = 2 << 20 };

static void write_pieces(const struct end *end, const uint8_t *bytes)
{
    uint64_t state = end->side->seed + 1;
    for (size_t at = 0, length; at < MUCH; at += length) {
        length = 1 + (size_t)random_below(&state, random_below(&state, 4) == 0 ? 300000 : 3000);
        length = length < MUCH - at ? length : MUCH - at;
        end_put(end, bytes + at, length, random_below(&state, 2) == 0 ? RDMUX_STREAM_LEND : 0);
    }
}

static void read_pieces(const struct end *end, uint8_t *bytes)
{
    uint64_t state = end->side->seed + 2;
    for (size_t at = 0, length; at < MUCH; at += length) {
        length = 1 + (size_t)random_below(&state, random_below(&state, 4) == 0 ? 400000 : 5000);
        length = length < MUCH - at ? length : MUCH - at;
        end_get(end, bytes + at, length, random_below(&state, 2) == 0 ? RDMUX_STREAM_ALL : 0);
    }
}

static void pieces_case(struct side *side, bool has_own_cq, uint64_t ring)
{
    struct end end = end_open_ring(side, has_own_cq, ring);
    uint8_t *bytes = side_bytes(side, MUCH);
    if (side->is_initiator) {
        pattern_fill(bytes, MUCH, side->seed, 0);
        write_pieces(&end, bytes);
        memset(bytes, 0, MUCH);
        read_pieces(&end, bytes);
        EXPECT_PATTERN(bytes, MUCH, side->seed + 9);
    } else {
        read_pieces(&end, bytes);
        EXPECT_PATTERN(bytes, MUCH, side->seed);
        pattern_fill(bytes, MUCH, side->seed + 9, 0);
        write_pieces(&end, bytes);
    }
    end_finish(&end);
}

static void pieces_own(struct side *side)
{
    pieces_case(side, true, side->is_initiator ? RING : RING / 4);
}

static void pieces_shared(struct side *side)
{
    pieces_case(side, false, RING);
}

static void single_bytes(struct side *side)
{
    enum { COUNT = 3000 };
    struct end end = end_open_stream(side, true);
    uint8_t bytes[COUNT];
    if (side->is_initiator) {
        pattern_fill(bytes, COUNT, side->seed, 0);
        for (size_t i = 0; i < COUNT; i++) {
            end_put(&end, bytes + i, 1, 0);
        }
    } else {
        for (size_t i = 0; i < COUNT; i++) {
            end_get(&end, bytes + i, 1, i % 2 == 0 ? RDMUX_STREAM_ALL : 0);
        }
        EXPECT_PATTERN(bytes, COUNT, side->seed);
    }
    end_finish(&end);
}

/* A header of 8 bytes, then as many bytes as it says, and an answer. */
static void requests(struct side *side)
{
    enum { ROUNDS = 24 };
    struct end end = end_open_stream(side, true);
    uint8_t *bytes = side_bytes(side, 400000);
    for (uint64_t i = 0; i < ROUNDS; i++) {
        uint64_t length = i * i * 700;
        if (side->is_initiator) {
            pattern_fill(bytes, length, side->seed + i, 0);
            end_put(&end, &length, sizeof(length), 0);
            end_put(&end, bytes, length, RDMUX_STREAM_LEND);
            uint64_t answer = 0;
            end_get(&end, &answer, sizeof(answer), RDMUX_STREAM_ALL);
            EXPECT_EQUAL(answer, i);
        } else {
            uint64_t told = 0;
            end_get(&end, &told, sizeof(told), RDMUX_STREAM_ALL);
            EXPECT_EQUAL(told, length);
            end_get(&end, bytes, length, RDMUX_STREAM_ALL);
            EXPECT_PATTERN(bytes, length, side->seed + i);
            end_put(&end, &i, sizeof(i), 0);
        }
    }
    end_finish(&end);
}

/* Each buffer is overwritten as soon as it is free. The last ones are longer than what the path holds
 * on the way. */
static void scribbled_case(struct side *side, uint32_t flags)
{
    enum { LONG = 8 << 20 };
    static const size_t lengths[] = { 1, 64, 65, 1000, 4096, 30000, 63 << 10, LONG };
    struct end end = end_open_ring(side, false, (uint64_t)2 * LONG); /* takes all of them at once */
    uint8_t *bytes = side_bytes(side, LONG);
    for (size_t i = 0; i < COUNT_OF(lengths); i++) {
        if (!side->is_initiator) {
            end_get(&end, bytes, lengths[i], 0);
            EXPECT_PATTERN(bytes, lengths[i], side->seed + i);
            continue;
        }
        bool is_filled = false;
        for (size_t at = 0, done = 0; at < lengths[i]; at += done) {
            if (!is_filled) {
                pattern_fill(bytes, lengths[i] - at, side->seed + i, at);
            }
            enum rdmux_status status = rdmux_stream_write(end.stream, bytes, lengths[i] - at, flags,
                                                          &done);
            is_filled = status == RDMUX_AGAIN;
            if (is_filled) {
                end_await(&end, RDMUX_STREAM_WRITE);
                continue;
            }
            EXPECT_STATUS(status, RDMUX_OK);
            memset(bytes, 0xee, lengths[i] - at);
        }
    }
    end_finish(&end);
}

static void scribbled_copied(struct side *side)
{
    scribbled_case(side, 0);
}

static void scribbled_lent(struct side *side)
{
    scribbled_case(side, RDMUX_STREAM_LEND);
}

/* Lists of pieces, some of them in regions. */
static void lists(struct side *side)
{
    enum { TOTAL = 200000 };
    struct end end = end_open_stream(side, true);
    struct region region = region_make(side, MEMORY_REGISTERED, TOTAL, ACCESS_SINK);
    uint8_t *bytes = region.addr;
    const struct rdmux_sge pieces[] = { { bytes, 7, NULL },
                                        { bytes + 7, 0, NULL },
                                        { bytes + 7, 993, region.mr },
                                        { bytes + 1000, 150000, region.mr },
                                        { bytes + 151000, TOTAL - 151000, NULL } };
    const uint32_t flags = side->is_initiator ? RDMUX_STREAM_LEND : RDMUX_STREAM_ALL;
    size_t moved = 0;
    enum rdmux_status status;
    if (side->is_initiator) {
        pattern_fill(bytes, TOTAL, side->seed, 0);
    }
    for (;;) {
        status = side->is_initiator
                     ? rdmux_stream_writev(end.stream, pieces, COUNT_OF(pieces), flags, &moved)
                     : rdmux_stream_readv(end.stream, pieces, COUNT_OF(pieces), flags, &moved);
        if (status != RDMUX_AGAIN) {
            break;
        }
        end_await(&end, side->is_initiator ? RDMUX_STREAM_WRITE : RDMUX_STREAM_READ);
    }
    EXPECT_STATUS(status, RDMUX_OK);
    EXPECT_EQUAL(moved, TOTAL);
    EXPECT_PATTERN(bytes, TOTAL, side->seed);
    end_finish(&end);
}

/* ------------------------------------------------------------------------------------- lent buffers */

enum { LENT = 1 << 20 };

static void lent_write(struct side *side)
{
    struct end end = end_open_stream(side, true);
    uint8_t *bytes = side_bytes(side, LENT);
    if (side->is_initiator) {
        size_t done = 0;
        pattern_fill(bytes, LENT, side->seed, 0);
        /* The peer does not read yet, and its ring is too short. */
        EXPECT_STATUS(rdmux_stream_write(end.stream, bytes, LENT, RDMUX_STREAM_LEND, &done),
                      RDMUX_AGAIN);
        EXPECT_STATUS(rdmux_stream_write(end.stream, bytes, 1, 0, &done), RDMUX_INVALID);
        EXPECT_STATUS(rdmux_stream_write(end.stream, bytes, LENT - 1, RDMUX_STREAM_LEND, &done),
                      RDMUX_INVALID);
        EXPECT_STATUS(rdmux_stream_shutdown(end.stream, RDMUX_STREAM_WRITE), RDMUX_INVALID);
        BARRIER(side);
        end_put(&end, bytes, LENT, RDMUX_STREAM_LEND);
        memset(bytes, 0xee, LENT);
    } else {
        BARRIER(side);
        end_get(&end, bytes, LENT, RDMUX_STREAM_ALL);
        EXPECT_PATTERN(bytes, LENT, side->seed);
    }
    end_finish(&end);
}

static void lent_read(struct side *side)
{
    struct end end = end_open_stream(side, true);
    uint8_t *bytes = side_bytes(side, LENT);
    const void *shown;
    size_t got = 0;
    if (side->is_initiator) {
        EXPECT_STATUS(rdmux_stream_read(end.stream, bytes, LENT, RDMUX_STREAM_ALL, &got),
                      RDMUX_AGAIN);
        EXPECT_STATUS(rdmux_stream_read(end.stream, bytes, 1, 0, &got), RDMUX_INVALID);
        EXPECT_STATUS(rdmux_stream_read(end.stream, bytes, LENT - 1, RDMUX_STREAM_ALL, &got),
                      RDMUX_INVALID);
        EXPECT_STATUS(rdmux_stream_peek(end.stream, &shown, &got), RDMUX_INVALID);
        EXPECT_STATUS(rdmux_stream_consume(end.stream, 0), RDMUX_INVALID);
        EXPECT_STATUS(rdmux_stream_shutdown(end.stream, RDMUX_STREAM_READ), RDMUX_INVALID);
        BARRIER(side);
        end_get(&end, bytes, LENT, RDMUX_STREAM_ALL);
        EXPECT_PATTERN(bytes, LENT, side->seed);
    } else {
        BARRIER(side);
        pattern_fill(bytes, LENT, side->seed, 0);
        end_put(&end, bytes, LENT, RDMUX_STREAM_LEND);
    }
    end_finish(&end);
}

/* Large lent writes in both directions at once, and the reads that take them. */
static void crossing(struct side *side)
{
    enum { ROUNDS = 6 };
    struct end end = end_open_stream(side, true);
    uint8_t *out = side_bytes(side, LENT);
    uint8_t *in = side_bytes(side, LENT);
    for (unsigned i = 0; i < ROUNDS; i++) {
        const uint64_t seed = side->seed + 2 * (uint64_t)i;
        bool has_written = false;
        bool has_read = false;
        pattern_fill(out, LENT, seed + side->is_initiator, 0);
        while (!has_written || !has_read) {
            size_t moved;
            if (!has_written) {
                enum rdmux_status status = rdmux_stream_write(end.stream, out, LENT,
                                                              RDMUX_STREAM_LEND, &moved);
                EXPECT(status == RDMUX_OK || status == RDMUX_AGAIN, "%s", rdmux_last_error());
                has_written = status == RDMUX_OK;
            }
            if (!has_read) {
                enum rdmux_status status = rdmux_stream_read(end.stream, in, LENT, RDMUX_STREAM_ALL,
                                                             &moved);
                EXPECT(status == RDMUX_OK || status == RDMUX_AGAIN, "%s", rdmux_last_error());
                has_read = status == RDMUX_OK;
            }
            if (!has_written || !has_read) {
                end_await(&end, (has_written ? 0U : RDMUX_STREAM_WRITE) |
                                    (has_read ? 0U : RDMUX_STREAM_READ));
            }
        }
        EXPECT_PATTERN(in, LENT, seed + !side->is_initiator);
    }
    end_finish(&end);
}

/* A sleeping reader has asked for more than the ring, and no program of its side calls. */
static void sleeping_reader(struct side *side)
{
    enum { TOTAL = RING + DIRECT - 1 }; /* all of it goes through the ring */
    struct end end = end_open_stream(side, true);
    uint8_t *bytes = side_bytes(side, TOTAL);
    size_t got = 0;
    if (side->is_initiator) {
        pattern_fill(bytes, TOTAL, side->seed, 0);
        BARRIER(side);
        end_put(&end, bytes, TOTAL, 0);
        BARRIER(side);
    } else {
        EXPECT_STATUS(rdmux_stream_read(end.stream, bytes, TOTAL, RDMUX_STREAM_ALL, &got),
                      RDMUX_AGAIN);
        BARRIER(side);
        BARRIER(side); /* the peer has written all, without a call of this side */
        end_get(&end, bytes, TOTAL, RDMUX_STREAM_ALL);
        EXPECT_PATTERN(bytes, TOTAL, side->seed);
    }
    end_finish(&end);
}

/* -------------------------------------------------------------------------- back-pressure, readiness */

/* Writes until the peer has no room. Returns how many bytes it took. */
static size_t fill_up(const struct end *end, const uint8_t *bytes, size_t length)
{
    size_t total = 0;
    size_t done;
    EXPECT_OK(rdmux_stream_wait(end->stream, RDMUX_STREAM_WRITE, end->side->patient_ms));
    for (;;) {
        enum rdmux_status status = rdmux_stream_write(end->stream, bytes + total % length,
                                                      length - total % length, 0, &done);
        total += done;
        struct rdmux_stream_info info = RDMUX_STREAM_INFO_INIT;
        EXPECT_OK(rdmux_stream_info(end->stream, &info));
        if (status == RDMUX_AGAIN && info.writable == 0) {
            return total;
        }
        EXPECT(status == RDMUX_OK || status == RDMUX_AGAIN, "%s", rdmux_last_error());
        EXPECT(total <= RING, "the peer took %zu bytes ahead of its reads", total);
        EXPECT(!time_is_up(), "the peer's ring takes %zu bytes only", total);
    }
}

static void full_ring(struct side *side)
{
    struct end end = end_open_stream(side, true);
    uint8_t *bytes = side_bytes(side, RING);
    if (side->is_initiator) {
        pattern_fill(bytes, RING, side->seed, 0);
        EXPECT_EQUAL(fill_up(&end, bytes, RING), RING);
        EXPECT_STATUS(rdmux_stream_wait(end.stream, RDMUX_STREAM_WRITE, 0), RDMUX_AGAIN);
        BARRIER(side);
        EXPECT_OK(rdmux_stream_wait(end.stream, RDMUX_STREAM_WRITE, side->patient_ms));
        end_put(&end, bytes, RING, 0);
    } else {
        BARRIER(side);
        for (unsigned i = 0; i < 2; i++) {
            memset(bytes, 0, RING);
            end_get(&end, bytes, RING, 0);
            EXPECT_PATTERN(bytes, RING, side->seed);
        }
    }
    end_finish(&end);
}

/* The entry of one event: it comes once, and not again without another AGAIN. */
static void expect_event(const struct end *end, uint32_t opcode)
{
    const struct rdmux_wc wc = NEXT(&end->side->queue);
    EXPECT(wc.opcode == opcode && wc.context == end->stream && wc.ep == NULL &&
               wc.status == RDMUX_OK,
           "an odd entry: %s", wc_text(&wc));
}

static void events(struct side *side)
{
    struct end end = end_open_stream(side, false);
    uint8_t *bytes = side_bytes(side, RING);
    size_t got = 0;
    if (side->is_initiator) {
        EXPECT_STATUS(rdmux_stream_read(end.stream, bytes, 1, 0, &got), RDMUX_AGAIN);
        BARRIER(side);
        expect_event(&end, RDMUX_WC_STREAM_READABLE);
        BARRIER(side); /* three bytes are on their way: no second entry */
        end_get(&end, bytes, 3, 0);
        EXPECT_QUIET(&side->queue);
        EXPECT_EQUAL(fill_up(&end, bytes, RING), RING);
        BARRIER(side);
        expect_event(&end, RDMUX_WC_STREAM_WRITABLE);
        BARRIER(side);
        EXPECT_QUIET(&side->queue);
    } else {
        BARRIER(side);
        end_put(&end, "a", 1, 0);
        end_put(&end, "bc", 2, 0);
        BARRIER(side);
        BARRIER(side);
        end_get(&end, bytes, RING, RDMUX_STREAM_ALL);
        BARRIER(side);
    }
    if (side->is_initiator) {
        end_shut_down(&end);
    } else {
        /* Entries of the reads before would be taken for others. */
        while (queue_poll(&side->queue) != 0) {
        }
        end_shut_down(&end);
    }
    EXPECT_OK(rdmux_stream_close(end.stream));
    side_finish(side);
}

/* Bytes come after a read had AGAIN, and a call that takes no entries meets them. */
static void met_by_another_call(struct side *side)
{
    struct end end = end_open_stream(side, false);
    uint8_t byte = 'a';
    size_t got = 0;
    if (side->is_initiator) {
        BARRIER(side);
        end_put(&end, &byte, 1, 0);
    } else {
        struct rdmux_stream_info info = RDMUX_STREAM_INFO_INIT;
        EXPECT_STATUS(rdmux_stream_read(end.stream, &byte, 1, 0, &got), RDMUX_AGAIN);
        BARRIER(side);
        while (info.readable == 0) {
            EXPECT(!time_is_up(), "the byte does not come");
            EXPECT_STATUS(rdmux_stream_wait(end.stream, RDMUX_STREAM_END, 0), RDMUX_AGAIN);
            EXPECT_OK(rdmux_stream_info(end.stream, &info));
        }
        expect_event(&end, RDMUX_WC_STREAM_READABLE);
        end_get(&end, &byte, 1, 0);
    }
    end_finish(&end);
}

/* Arms the stream and sleeps in epoll until it is woken. */
static void sleep_in_epoll(const struct end *end, int epoll, uint32_t events)
{
    struct epoll_event event;
    enum rdmux_status status = rdmux_stream_arm(end->stream, events);
    if (status == RDMUX_AGAIN) {
        return;
    }
    EXPECT_STATUS(status, RDMUX_OK);
    int ready;
    STAND("epoll_wait(2) on the armed stream");
    do {
        ready = epoll_wait(epoll, &event, 1, end->side->patient_ms);
    } while (ready < 0 && errno == EINTR);
    EXPECT(ready == 1, "a wake-up was lost");
}

/* Each side sleeps in epoll between all its steps: messages of one byte there and back, then more
 * bytes than the ring holds. */
static void epoll_case(struct side *side, uint32_t mode)
{
    enum { ROUNDS = 60, TOTAL = 5 * RING };
    struct end end = end_open_stream(side, true);
    uint8_t *bytes = side_bytes(side, TOTAL);
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = { .events = EPOLLIN | mode };
    EXPECT(epoll >= 0 && epoll_ctl(epoll, EPOLL_CTL_ADD, rdmux_stream_fd(end.stream), &event) == 0,
           "epoll: %s", strerror(errno));
    pattern_fill(bytes, TOTAL, side->seed, 0);
    for (unsigned i = 0; i <= ROUNDS; i++) {
        const size_t length = i == ROUNDS ? TOTAL : 1;
        for (unsigned turn = 0; turn < 2; turn++) {
            const bool writes = (turn == 0) == side->is_initiator;
            for (size_t at = 0, moved = 0; at < length; at += moved) {
                enum rdmux_status status = writes ? rdmux_stream_write(end.stream, bytes + at,
                                                                       length - at, 0, &moved)
                                                  : rdmux_stream_read(end.stream, bytes + at,
                                                                      length - at, 0, &moved);
                if (status == RDMUX_AGAIN) {
                    sleep_in_epoll(&end, epoll, writes ? RDMUX_STREAM_WRITE : RDMUX_STREAM_READ);
                } else {
                    EXPECT_STATUS(status, RDMUX_OK);
                    EXPECT(moved > 0, "the stream ended");
                }
            }
            EXPECT_PATTERN(bytes, length, side->seed);
        }
    }
    (void)close(epoll);
    end_finish(&end);
}

static void epoll_level(struct side *side)
{
    epoll_case(side, 0);
}

static void epoll_edge(struct side *side)
{
    epoll_case(side, EPOLLET);
}

static void wait_times_out(struct side *side)
{
    struct end end = end_open_stream(side, true);
    if (side->is_initiator) {
        EXPECT_STATUS(rdmux_stream_wait(end.stream, RDMUX_STREAM_READ, 0), RDMUX_AGAIN);
        EXPECT_STATUS(rdmux_stream_wait(end.stream, RDMUX_STREAM_READ, 20), RDMUX_TIMED_OUT);
    }
    BARRIER(side);
    end_finish(&end);
}

/* ----------------------------------------------------------------------------------------- the end */

static void half_close(struct side *side)
{
    struct end end = end_open_stream(side, false);
    uint8_t *bytes = side_bytes(side, LENT);
    size_t moved = 0;
    struct rdmux_stream_info info = RDMUX_STREAM_INFO_INIT;
    if (side->is_initiator) {
        pattern_fill(bytes, 5000, side->seed, 0);
        end_put(&end, bytes, 5000, 0);
        EXPECT_OK(rdmux_stream_shutdown(end.stream, RDMUX_STREAM_WRITE));
        EXPECT_OK(rdmux_stream_shutdown(end.stream, RDMUX_STREAM_WRITE));
        EXPECT_STATUS(rdmux_stream_write(end.stream, bytes, 1, 0, &moved), RDMUX_INVALID);
        end_get(&end, bytes, LENT, RDMUX_STREAM_ALL);
        EXPECT_PATTERN(bytes, LENT, side->seed + 1);
        EXPECT_OK(rdmux_stream_info(end.stream, &info));
        EXPECT_EQUAL(info.status, RDMUX_OK);
    } else {
        end_get(&end, bytes, 5000, 0);
        EXPECT_PATTERN(bytes, 5000, side->seed);
        end_expect_end(&end);
        end_expect_end(&end);
        /* The peer's bytes and its end may come before its ring is known here. */
        EXPECT_OK(rdmux_stream_wait(end.stream, RDMUX_STREAM_WRITE, side->patient_ms));
        EXPECT_OK(rdmux_stream_info(end.stream, &info));
        EXPECT_EQUAL(info.state, RDMUX_STREAM_OPEN);
        pattern_fill(bytes, LENT, side->seed + 1, 0);
        end_put(&end, bytes, LENT, 0);
    }
    end_finish(&end);
}

/* A large read that wants more than the peer has. */
static void short_read(struct side *side)
{
    struct end end = end_open_stream(side, true);
    uint8_t *bytes = side_bytes(side, LENT);
    if (side->is_initiator) {
        pattern_fill(bytes, 1000, side->seed, 0);
        end_put(&end, bytes, 1000, 0);
        EXPECT_OK(rdmux_stream_shutdown(end.stream, RDMUX_STREAM_WRITE));
    } else {
        EXPECT_EQUAL(end_get_some(&end, bytes, LENT, RDMUX_STREAM_ALL), 1000);
        EXPECT_PATTERN(bytes, 1000, side->seed);
        EXPECT_EQUAL(end_get_some(&end, bytes, LENT, RDMUX_STREAM_ALL), 0);
    }
    end_finish(&end);
}

/* A side that wants no bytes does not stop its peer. */
static void discarded(struct side *side)
{
    struct end end = end_open_stream(side, true);
    uint8_t *bytes = side_bytes(side, LENT);
    size_t got = 1;
    if (side->is_initiator) {
        end_put(&end, bytes, LENT, 0);
    } else {
        EXPECT_OK(rdmux_stream_shutdown(end.stream, RDMUX_STREAM_READ));
        EXPECT_OK(rdmux_stream_read(end.stream, bytes, 1, 0, &got));
        EXPECT_EQUAL(got, 0);
    }
    end_finish(&end);
}

/* close() takes what was written to the peer. */
static void lingering(struct side *side)
{
    struct end end = end_open_stream(side, true);
    uint8_t *bytes = side_bytes(side, RING);
    if (side->is_initiator) {
        pattern_fill(bytes, RING, side->seed, 0);
        end_put(&end, bytes, RING, 0);
        EXPECT_OK(rdmux_stream_close(end.stream));
        BARRIER(side);
    } else {
        BARRIER(side);
        end_get(&end, bytes, RING, 0);
        EXPECT_PATTERN(bytes, RING, side->seed);
        end_expect_end(&end);
        EXPECT_OK(rdmux_stream_close(end.stream));
    }
    side_finish(side);
}

/* ------------------------------------------------------------------------------------ peek, set-up */

static void peeking(struct side *side)
{
    struct end end = end_open_stream(side, true);
    uint8_t *bytes = side_bytes(side, (size_t)3 * RING);
    if (side->is_initiator) {
        pattern_fill(bytes, (size_t)3 * RING, side->seed, 0);
        end_put(&end, bytes, (size_t)3 * RING, 0);
        end_finish(&end);
        return;
    }
    uint64_t state = side->seed;
    const void *shown;
    const void *again;
    size_t length;
    for (size_t at = 0, taken; at < (size_t)3 * RING; at += taken) {
        enum rdmux_status status = rdmux_stream_peek(end.stream, &shown, &length);
        taken = 0;
        if (status == RDMUX_AGAIN) {
            end_await(&end, RDMUX_STREAM_READ);
            continue;
        }
        EXPECT_STATUS(status, RDMUX_OK);
        EXPECT(length > 0, "peek shows the end after %zu bytes", at);
        EXPECT_PATTERN_FROM(shown, length, side->seed, at);
        EXPECT_OK(rdmux_stream_peek(end.stream, &again, &taken));
        EXPECT(again == shown && taken >= length, "a second peek shows other bytes");
        EXPECT_STATUS(rdmux_stream_consume(end.stream, RING + 1), RDMUX_INVALID);
        taken = 1 + (size_t)random_below(&state, length);
        EXPECT_OK(rdmux_stream_consume(end.stream, taken));
    }
    end_finish(&end);
}

static void accept_none(struct side *side)
{
    struct rdmux_stream *none = NULL;
    side_open(side, NULL);
    side_meet(side);
    if (!side->is_initiator) {
        EXPECT_STATUS(rdmux_stream_accept(side->listener, NULL, NULL, 0, &none), RDMUX_AGAIN);
        EXPECT_STATUS(rdmux_stream_accept(side->listener, side->queue.cq, NULL, 0, &none),
                      RDMUX_AGAIN);
        EXPECT_STATUS(rdmux_stream_accept(side->listener, NULL, NULL, 10, &none), RDMUX_TIMED_OUT);
        EXPECT(none == NULL, "a failed accept sets *out");
    }
    BARRIER(side);
    const struct rdmux_ep_attr ep = ep_attr_of(side);
    struct end end = end_open_with(side, true, &ep);
    end_finish(&end);
}

/* Streams over endpoints of the program, and over its socket. */
static void opened(struct side *side)
{
    const struct rdmux_stream_attr attr = stream_attr_of(side, NULL);
    struct end end = { .side = side };
    const struct rdmux_ep_attr ep_attr = ep_attr_of(side);
    struct rdmux_ep *ep = NULL;
    side_open(side, NULL);
    side_meet(side);
    if (side->is_initiator) {
        EXPECT_OK(rdmux_connect(side->fabric, side->queue.cq, side->address, &ep_attr,
                                side->patient_ms, &ep));
    } else {
        EXPECT_OK(rdmux_accept(side->listener, side->queue.cq, &ep_attr, side->patient_ms, &ep));
    }
    EXPECT_OK(rdmux_stream_open(ep, &attr, &end.stream));
    struct rdmux_stream *second = NULL;
    EXPECT_STATUS(rdmux_stream_open(ep, &attr, &second), RDMUX_INVALID);
    EXPECT(rdmux_stream_ep(end.stream) == ep, "the stream has another endpoint");
    uint64_t number = 77;
    if (side->is_initiator) {
        end_put(&end, &number, sizeof(number), 0);
    } else {
        number = 0;
        end_get(&end, &number, sizeof(number), RDMUX_STREAM_ALL);
        EXPECT_EQUAL(number, 77);
    }
    end_finish(&end);
}

static void adopted(struct side *side)
{
    const struct rdmux_ep_attr ep = ep_attr_of(side);
    const struct rdmux_stream_attr attr = stream_attr_of(side, &ep);
    struct end end = { .side = side, .has_own_cq = true };
    side_open(side, NULL);
    side->descriptors[side->socket] = false; /* rdmux closes it */
    EXPECT_OK(rdmux_stream_adopt(side->fabric, NULL, side->socket,
                                 side->is_initiator ? RDMUX_ROLE_CONNECT : RDMUX_ROLE_ACCEPT, &attr,
                                 side->patient_ms, &end.stream));
    uint64_t number = side->is_initiator;
    end_put(&end, &number, sizeof(number), 0);
    end_get(&end, &number, sizeof(number), RDMUX_STREAM_ALL);
    EXPECT_EQUAL(number, !side->is_initiator);
    end_finish(&end);
}

/* The peer's program has an endpoint, not a stream, and sends a message. */
static void no_stream(struct side *side)
{
    const struct rdmux_ep_attr ep = ep_attr_of(side);
    side_open(side, NULL);
    side_meet(side);
    if (!side->is_initiator) {
        (void)side_pair(side, &ep);
        EXPECT_OK(rdmux_send(side->ep, "hello", 5, NULL, CTX(1), 0));
        struct rdmux_wc wc;
        do {
            wc = NEXT(&side->queue);
        } while (wc.opcode != RDMUX_WC_DISCONNECTED);
        EXPECT(wc.status != RDMUX_OK, "the stream's end is orderly");
        BARRIER(side);
        side_end(side);
        return;
    }
    struct end end = end_open_any(side, true, &ep);
    uint8_t byte;
    size_t got = 0;
    EXPECT_OK(rdmux_stream_wait(end.stream, RDMUX_STREAM_END, side->patient_ms));
    EXPECT_STATUS(rdmux_stream_read(end.stream, &byte, 1, 0, &got), RDMUX_PROTOCOL);
    EXPECT_STATUS(rdmux_stream_write(end.stream, &byte, 1, 0, &got), RDMUX_PROTOCOL);
    EXPECT_STATUS(rdmux_stream_close(end.stream), RDMUX_PROTOCOL);
    BARRIER(side);
    side_end(side);
}

/* ------------------------------------------------------------------------------------ fork, threads */

/* In the child of a fork. */
static void expect_dead_stream(struct rdmux_stream *stream, uint8_t *bytes)
{
    const void *shown;
    size_t moved = 0;
    struct rdmux_stream_info info = RDMUX_STREAM_INFO_INIT;
    EXPECT_STATUS(rdmux_stream_write(stream, bytes, LENT, RDMUX_STREAM_LEND, &moved), RDMUX_INVALID);
    EXPECT_STATUS(rdmux_stream_read(stream, bytes, 1, 0, &moved), RDMUX_INVALID);
    EXPECT_STATUS(rdmux_stream_peek(stream, &shown, &moved), RDMUX_INVALID);
    EXPECT_STATUS(rdmux_stream_consume(stream, 0), RDMUX_INVALID);
    EXPECT_STATUS(rdmux_stream_wait(stream, RDMUX_STREAM_WRITE, 100), RDMUX_INVALID);
    EXPECT_STATUS(rdmux_stream_arm(stream, RDMUX_STREAM_WRITE), RDMUX_INVALID);
    EXPECT_STATUS(rdmux_stream_info(stream, &info), RDMUX_INVALID);
    EXPECT_STATUS(rdmux_stream_shutdown(stream, RDMUX_STREAM_WRITE), RDMUX_INVALID);
    EXPECT(rdmux_stream_fd(stream) == -1, "a descriptor in the child");
    EXPECT(rdmux_stream_ep(stream) == NULL, "an endpoint in the child");
    EXPECT(rdmux_stream_user(stream) == NULL, "a pointer of the program in the child");
    EXPECT_STATUS(rdmux_stream_close(stream), RDMUX_INVALID);
    _exit(0);
}

/* Forks while a large buffer is lent to the stream. */
static void forked(struct side *side)
{
    struct end end = end_open_stream(side, true);
    uint8_t *bytes = side_bytes(side, LENT);
    if (side->is_initiator) {
        size_t done = 0;
        pattern_fill(bytes, LENT, side->seed, 0);
        EXPECT_OK(rdmux_stream_set_user(end.stream, side));
        EXPECT_STATUS(rdmux_stream_write(end.stream, bytes, LENT, RDMUX_STREAM_LEND, &done),
                      RDMUX_AGAIN);
        pid_t pid = fork();
        EXPECT(pid >= 0, "fork: %s", strerror(errno));
        if (pid == 0) {
            expect_dead_stream(end.stream, bytes);
        }
        int wait_status = 0;
        while (waitpid(pid, &wait_status, 0) < 0 && errno == EINTR) {
        }
        EXPECT(wait_status == 0, "the child ended with 0x%x", (unsigned)wait_status);
        BARRIER(side);
        end_put(&end, bytes, LENT, RDMUX_STREAM_LEND);
    } else {
        BARRIER(side); /* the peer's bytes do not leave before the fork */
        end_get(&end, bytes, LENT, RDMUX_STREAM_ALL);
        EXPECT_PATTERN(bytes, LENT, side->seed);
    }
    end_finish(&end);
}

enum { SHARED = 512 << 10 };

struct writing {
    const struct end *end;
    const uint8_t *bytes;
};

static void *write_in_thread(void *user)
{
    const struct writing *writing = user;
    uint64_t state = writing->end->side->seed;
    for (size_t at = 0, length; at < SHARED; at += length) {
        length = 1 + (size_t)random_below(&state, 6000);
        length = length < SHARED - at ? length : SHARED - at;
        end_put(writing->end, writing->bytes + at, length, 0);
    }
    return NULL;
}

/* On each side one thread writes while another one reads, so that each sleeps while the other one
 * takes the peer's messages. */
static void two_threads(struct side *side)
{
    const struct rdmux_ep_attr ep = still_ep_attr_of(side);
    struct end end = {
        .side = side, .has_own_cq = true, .sleeps = true, .flags = RDMUX_STREAM_SERIALIZED
    };
    side_open(side, NULL);
    side_meet(side);
    end_open(&end, &ep);
    uint8_t *out = side_bytes(side, SHARED);
    uint8_t *in = side_bytes(side, SHARED);
    struct writing writing = { &end, out };
    pthread_t thread;
    pattern_fill(out, SHARED, side->seed + side->is_initiator, 0);
    EXPECT(pthread_create(&thread, NULL, write_in_thread, &writing) == 0, "no thread");
    uint64_t state = side->seed + 1;
    for (size_t at = 0, got; at < SHARED; at += got) {
        const size_t length = 1 + (size_t)random_below(&state, 9000);
        got = end_get_some(&end, in + at, length < SHARED - at ? length : SHARED - at, 0);
        EXPECT(got > 0, "the stream ended after %zu bytes", at);
    }
    EXPECT(pthread_join(thread, NULL) == 0, "no join");
    EXPECT_PATTERN(in, SHARED, side->seed + !side->is_initiator);
    end_finish(&end);
}

static const struct conformance_case cases[] = {
    { "S.1", "pieces of all sizes, copied or lent, read in other pieces, keep order and bytes",
      NEEDS_STREAM, 30, 0, pieces_own, pieces_own },
    { "S.1", "a stream on the program's cq keeps order and bytes", NEEDS_STREAM, 30, 0,
      pieces_shared, pieces_shared },
    { "S.1", "single bytes come in order", NEEDS_STREAM, 30, 0, single_bytes, single_bytes },
    { "S.1,S.3,S.4", "headers, bodies of all lengths, and answers", NEEDS_STREAM, 30, 0, requests,
      requests },
    { "S.1,S.3,S.4", "lists of pieces keep their order", NEEDS_STREAM, 0, 0, lists, lists },
    { "S.2", "a buffer is overwritten as soon as its write returns", NEEDS_STREAM, 30, 0,
      scribbled_copied, scribbled_copied },
    { "S.3", "a lent buffer is overwritten as soon as its write returns OK", NEEDS_STREAM, 30, 0,
      scribbled_lent, scribbled_lent },
    { "S.3,-S.3", "a lent write refuses other writes until its bytes have left", NEEDS_STREAM, 0, 0,
      lent_write, lent_write },
    { "S.4,-S.4", "a lent read refuses other reads and returns all bytes", NEEDS_STREAM, 0, 0,
      lent_read, lent_read },
    { "S.3,S.4,S.7", "large lent writes in both directions do not wait for each other",
      NEEDS_STREAM, 30, 0, crossing, crossing },
    { "S.5,S.7", "a sleeping reader that asked for more than its ring does not stop the writer",
      NEEDS_STREAM, 30, 0, sleeping_reader, sleeping_reader },
    { "S.5,-S.5", "a writer gets AGAIN when the ring is full, and room when the peer reads",
      NEEDS_STREAM, 0, 0, full_ring, full_ring },
    { "S.6", "each AGAIN has one entry", NEEDS_STREAM, 0, 0, events, events },
    { "S.7,S.6", "an entry comes for bytes that another call has met", NEEDS_STREAM, 0, 0,
      met_by_another_call, met_by_another_call },
    { "S.7", "level-triggered epoll loses no wake-up", NEEDS_STREAM, 30, 0, epoll_level,
      epoll_level },
    { "S.7", "edge-triggered epoll loses no wake-up", NEEDS_STREAM, 30, 0, epoll_edge, epoll_edge },
    { "S.7", "a wait ends when its time is over", NEEDS_STREAM, 0, 0, wait_times_out,
      wait_times_out },
    { "S.8,-S.8,S.9", "one direction ends, and the other one goes on", NEEDS_STREAM, 30, 0,
      half_close, half_close },
    { "S.8", "a read of more bytes than there are returns those before the end", NEEDS_STREAM, 0, 0,
      short_read, short_read },
    { "S.8,S.5", "a side that wants no bytes does not stop its peer", NEEDS_STREAM, 0, 0, discarded,
      discarded },
    { "S.9", "close brings the written bytes and the end to the peer", NEEDS_STREAM, 0, 0,
      lingering, lingering },
    { "S.11,-S.11", "peek shows what consume takes", NEEDS_STREAM, 0, 0, peeking, peeking },
    { "S.12", "an accept that finds nothing returns", NEEDS_STREAM, 0, 0, accept_none, accept_none },
    { "S.12", "endpoints of the program become streams", NEEDS_STREAM, 0, 0, opened, opened },
    { "S.12", "a socket of the program becomes a stream", NEEDS_STREAM, 0, 0, adopted, adopted },
    { "-S.12", "a peer that is no stream gives PROTOCOL", NEEDS_STREAM, 0, 0, no_stream, no_stream },
    { "S.14,-S.14", "after fork the child has no stream, and the parent's goes on", NEEDS_STREAM, 0,
      0, forked, forked },
    { "S.15,S.7", "a reader and a writer thread share a stream, and wake each other", NEEDS_STREAM,
      30, 0, two_threads, two_threads },
};

const struct suite streams_suite = { "streams", cases, COUNT_OF(cases) };
