/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Streams whose path breaks: no byte is lost, none comes twice, and no sleeper stays asleep. */
#include "tests/unit/failover_scene.h"
#include "tests/unit/stream_scene.h"

#include <pthread.h>

enum {
    RING = 16 << 10,
    DIRECT = 4096,
    SMALL = 3000,
    LARGE = 100000, /* of it more than the ring goes straight into the reader's buffer */
    TOTAL = 3 << 20,
    PERIOD = 300000, /* bytes from one break to the next */
};

static uint8_t byte_at(uint64_t position)
{
    return (uint8_t)(position * 7 + position / 251 + position / 65521);
}

static uint64_t random_below(uint64_t *state, uint64_t limit)
{
    *state = *state * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (*state >> 33) % limit;
}

/* One direction. Pieces of all lengths are written, copied or lent, and read in other pieces. */
struct flow {
    struct rdmux_stream *from;
    struct rdmux_stream *to;
    uint64_t random;
    uint64_t written;
    uint64_t got;
    size_t out_left; /* of the piece that is written */
    size_t in_left;
    uint32_t out_flags;
    uint32_t in_flags;
    uint8_t out[LARGE];
    uint8_t in[LARGE];
};

static size_t next_piece(struct flow *flow, uint64_t done, uint32_t flag, uint32_t *flags)
{
    const uint64_t most = random_below(&flow->random, 4) == 0 ? LARGE : SMALL;
    const uint64_t length = 1 + random_below(&flow->random, most);
    *flags = random_below(&flow->random, 2) == 0 ? flag : 0;
    return (size_t)(length < TOTAL - done ? length : TOTAL - done);
}

/* The buffer is overwritten as soon as it is free: what is repeated on the next path must not come
 * from there. */
static void write_piece(struct flow *flow)
{
    size_t done = 0;
    if (flow->out_left == 0) {
        flow->out_left = next_piece(flow, flow->written, RDMUX_STREAM_LEND, &flow->out_flags);
        for (size_t i = 0; i < flow->out_left; i++) {
            flow->out[i] = byte_at(flow->written + i);
        }
    }
    enum rdmux_status status = rdmux_stream_write(flow->from, flow->out, flow->out_left,
                                                  flow->out_flags, &done);
    if (status == RDMUX_AGAIN) {
        return;
    }
    CHECK_OK(status);
    flow->written += done;
    flow->out_left = 0; /* a piece that was cut short is followed by another one */
    memset(flow->out, 0xee, sizeof(flow->out));
}

static void read_piece(struct flow *flow)
{
    size_t got = 0;
    if (flow->in_left == 0) {
        flow->in_left = next_piece(flow, flow->got, RDMUX_STREAM_ALL, &flow->in_flags);
    }
    enum rdmux_status status = rdmux_stream_read(flow->to, flow->in, flow->in_left, flow->in_flags,
                                                 &got);
    if (status == RDMUX_AGAIN) {
        return;
    }
    CHECK_OK(status);
    assert_true(got > 0);
    for (size_t i = 0; i < got; i++) {
        if (flow->in[i] != byte_at(flow->got + i)) {
            fail_msg("byte %llu is wrong", (unsigned long long)(flow->got + i));
        }
    }
    flow->got += got;
    flow->in_left = 0;
}

/* Returns whether the flow is not done. */
static bool flow_on(struct flow *flow)
{
    if (flow->written < TOTAL) {
        write_piece(flow);
    }
    if (flow->got < TOTAL) {
        read_piece(flow);
    }
    return flow->written < TOTAL || flow->got < TOTAL;
}

static struct rdmux_stream_attr attr_with(struct rdmux_ep_attr *ep)
{
    struct rdmux_stream_attr attr = RDMUX_STREAM_ATTR_INIT;
    *ep = traffic_attr;
    ep->failover = RDMUX_FAILOVER_ON;
    attr.ep = ep;
    attr.ring = RING;
    attr.direct = DIRECT;
    return attr;
}

/* Entries of the program's cq: one for each move. */
static size_t count_moves(struct rdmux_cq *cq, const struct rdmux_stream *stream)
{
    struct rdmux_wc wc;
    size_t count = 0;
    while (rdmux_cq_poll(cq, &wc, 1) != 0) {
        assert_ptr_equal(wc.context, stream);
        count += wc.opcode == RDMUX_WC_PATH_CHANGED;
    }
    return count;
}

static void expect_end(struct rdmux_stream *stream)
{
    uint8_t byte;
    size_t got = 1;
    enum rdmux_status status;
    while ((status = rdmux_stream_read(stream, &byte, 1, 0, &got)) == RDMUX_AGAIN) {
        CHECK_OK(rdmux_stream_wait(stream, RDMUX_STREAM_READ, PATIENT_MS));
    }
    CHECK_OK(status);
    assert_int_equal(got, 0);
}

struct broken {
    const char *paths;
    void (*break_path)(struct pair *pair);
    bool own; /* each stream has a cq of its own */
};

static void run_broken(const struct broken *how, struct stream_pair *streams, struct flow *there,
                       struct flow *back)
{
    struct pair *pair = &streams->pair;
    size_t breaks = 0;
    size_t changes_a = 0;
    size_t changes_b = 0;
    uint64_t moved = 0;
    const uint64_t until = now_ms() + 4UL * PATIENT_MS;
    bool has_more = true;
    while (has_more || moves_of(pair->a) < breaks || moves_of(pair->b) < breaks) {
        assert_true(now_ms() < until);
        has_more = flow_on(there);
        has_more = flow_on(back) || has_more;
        changes_a += count_moves(pair->cq_a, streams->a);
        changes_b += count_moves(pair->cq_b, streams->b);
        const uint64_t now_moved = there->written + there->got + back->written + back->got;
        if (now_moved == moved) { /* sleeps until the move is over, or the other side goes on */
            enum rdmux_status status = rdmux_stream_wait(streams->b, RDMUX_STREAM_READ, 1);
            assert_true(status == RDMUX_OK || status == RDMUX_TIMED_OUT);
        }
        moved = now_moved;
        if (has_more && there->got >= (breaks + 1) * PERIOD && breaks == moves_of(pair->a) &&
            breaks == moves_of(pair->b) && has_channels(pair)) {
            how->break_path(pair);
            breaks++;
        }
    }
    assert_true(breaks >= TOTAL / PERIOD / 2);
    if (!how->own) {
        changes_a += count_moves(pair->cq_a, streams->a);
        changes_b += count_moves(pair->cq_b, streams->b);
        assert_int_equal(changes_a, breaks);
        assert_int_equal(changes_b, breaks);
    }
}

static void bytes_come_once_and_in_order_whatever_breaks(void **state)
{
    (void)state;
    static const struct broken cases[] = {
        { "tcp", cut_tcp, true },       { "tcp", fail_a, false },
        { "tcp", fail_both, true },     { "shm,tcp", fail_a, true },
        { "shm,tcp", fail_b, false },   { "shm,tcp", fail_both, true },
        { "shm,tcp", cut_both, false }, { "tcp", cut_both_and_fail_here, false },
    };
    for (size_t i = 0; i < RDMUX_COUNT_OF(cases); i++) {
        const bool cuts = cases[i].break_path == cut_both ||
                          cases[i].break_path == cut_both_and_fail_here;
        if (cuts && !can_resume()) {
            continue;
        }
        struct scene scene;
        struct stream_pair streams = { 0 };
        struct rdmux_ep_attr ep;
        struct rdmux_stream_info info = RDMUX_STREAM_INFO_INIT;
        const struct rdmux_stream_attr attr = attr_with(&ep);
        set_scene(&scene, cases[i].paths, 0);
        streams.pair = scene.pair;
        connect_streams(&streams, cases[i].own, &attr);
        streams.pair.a = rdmux_stream_ep(streams.a);
        streams.pair.b = rdmux_stream_ep(streams.b);
        struct flow *there = calloc(1, sizeof(*there));
        struct flow *back = calloc(1, sizeof(*back));
        assert_non_null(there);
        assert_non_null(back);
        there->from = back->to = streams.a;
        there->to = back->from = streams.b;
        back->random = 99;

        run_broken(&cases[i], &streams, there, back);

        CHECK_OK(rdmux_stream_info(streams.a, &info));
        assert_int_equal(info.bytes_read, TOTAL);
        assert_int_equal(info.bytes_written, TOTAL);
        assert_true(info.direct_read > 0 && info.direct_written > 0);
        CHECK_OK(rdmux_stream_shutdown(streams.a, RDMUX_STREAM_WRITE));
        CHECK_OK(rdmux_stream_shutdown(streams.b, RDMUX_STREAM_WRITE));
        expect_end(streams.a);
        expect_end(streams.b);
        CHECK_OK(rdmux_stream_close(streams.a));
        CHECK_OK(rdmux_stream_close(streams.b));
        free(there);
        free(back);
        clear_scene(&scene);
    }
}

/* ------------------------------------------------------------------------------------- asleep */

enum { CALLS = 200, CALLS_PER_BREAK = 20, WORDS = 20000, WORDS_PER_BREAK = 1500 };

static enum rdmux_status read_word(struct rdmux_stream *stream, uint64_t *word)
{
    size_t got = 0;
    enum rdmux_status status;
    while ((status = rdmux_stream_read(stream, word, sizeof(*word), RDMUX_STREAM_ALL, &got)) ==
           RDMUX_AGAIN) {
        status = rdmux_stream_wait(stream, RDMUX_STREAM_READ, PATIENT_MS);
        if (status != RDMUX_OK) {
            return status;
        }
    }
    return status == RDMUX_OK && got != sizeof(*word) ? RDMUX_PEER_GONE : status;
}

static enum rdmux_status write_word(struct rdmux_stream *stream, uint64_t word)
{
    size_t done = 0;
    enum rdmux_status status;
    while ((status = rdmux_stream_write(stream, &word, sizeof(word), 0, &done)) == RDMUX_AGAIN) {
        status = rdmux_stream_wait(stream, RDMUX_STREAM_WRITE, PATIENT_MS);
        if (status != RDMUX_OK) {
            return status;
        }
    }
    return status == RDMUX_OK && done != sizeof(word) ? RDMUX_IO
                                                      : status; /* the ring has 8 n bytes */
}

/* Side b, in a thread of its own. */
struct sleeper {
    struct scene scene;
    struct stream_pair streams;
    struct rdmux_ep *ep; /* of a */
    pthread_t thread;
};

static void start_sleeper(struct sleeper *sleeper, const char *paths, void *(*run)(void *stream))
{
    struct rdmux_ep_attr ep;
    const struct rdmux_stream_attr attr = attr_with(&ep);
    memset(sleeper, 0, sizeof(*sleeper));
    set_scene(&sleeper->scene, paths, 0);
    sleeper->streams.pair = sleeper->scene.pair;
    connect_streams(&sleeper->streams, true, &attr);
    sleeper->ep = rdmux_stream_ep(sleeper->streams.a);
    assert_int_equal(pthread_create(&sleeper->thread, NULL, run, sleeper->streams.b), 0);
}

/* A word that was on its way comes before the endpoint moves. */
static void await_moves(const struct sleeper *sleeper, size_t breaks)
{
    const uint64_t until = now_ms() + 4UL * PATIENT_MS;
    while (moves_of(sleeper->ep) < breaks) {
        assert_true(now_ms() < until);
        enum rdmux_status status = rdmux_stream_wait(sleeper->streams.a, RDMUX_STREAM_READ, 1);
        assert_true(status == RDMUX_OK || status == RDMUX_TIMED_OUT);
    }
}

static void end_sleeper(struct sleeper *sleeper, size_t breaks)
{
    await_moves(sleeper, breaks);
    CHECK_OK(rdmux_stream_shutdown(sleeper->streams.a, RDMUX_STREAM_WRITE));
    pthread_join(sleeper->thread, NULL);
    (void)rdmux_stream_close(sleeper->streams.b);
    (void)rdmux_stream_close(sleeper->streams.a);
    clear_scene(&sleeper->scene);
}

/* Sends each word back, until the end. */
static void *answer(void *stream)
{
    uint64_t word;
    while (read_word(stream, &word) == RDMUX_OK && write_word(stream, word) == RDMUX_OK) {
    }
    return NULL;
}

/* Both programs do nothing but sleep while the endpoint moves with their words. */
static void sleepers_are_woken_on_the_next_path(void **state)
{
    struct sleeper sleeper;
    start_sleeper(&sleeper, *state, answer);
    for (uint64_t i = 0; i < CALLS; i++) {
        uint64_t word = 0;
        CHECK_OK(write_word(sleeper.streams.a, i));
        if (i % CALLS_PER_BREAK == CALLS_PER_BREAK - 1) {
            fail_path(sleeper.ep, RDMUX_IO);
        }
        CHECK_OK(read_word(sleeper.streams.a, &word));
        assert_int_equal(word, i);
        await_moves(&sleeper, (i + 1) / CALLS_PER_BREAK);
    }
    end_sleeper(&sleeper, CALLS / CALLS_PER_BREAK);
}

/* Counts the words that come in order, and tells how many, when all have come or one is wrong. */
static void *count_words(void *stream)
{
    uint64_t word = 0;
    uint64_t count = 0;
    while (count < WORDS && read_word(stream, &word) == RDMUX_OK && word == count) {
        count++;
    }
    (void)write_word(stream, count);
    return NULL;
}

/* The writer sleeps for room in its queue, which counts what the next path may have to repeat. */
static void a_writer_with_a_full_queue_is_woken_on_the_next_path(void **state)
{
    struct sleeper sleeper;
    size_t breaks = 0;
    uint64_t count = 0;
    start_sleeper(&sleeper, *state, count_words);
    for (uint64_t i = 0; i < WORDS; i++) {
        CHECK_OK(write_word(sleeper.streams.a, i));
        if (i % WORDS_PER_BREAK == WORDS_PER_BREAK - 1 && moves_of(sleeper.ep) == breaks) {
            fail_path(sleeper.ep, RDMUX_IO);
            breaks++;
        }
    }
    CHECK_OK(read_word(sleeper.streams.a, &count));
    assert_int_equal(count, WORDS);
    assert_true(breaks > 1);
    end_sleeper(&sleeper, breaks);
}

int main(void)
{
    static char tcp[] = "tcp";
    static char shm[] = "shm,tcp";
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_come_once_and_in_order_whatever_breaks),
        cmocka_unit_test_prestate(sleepers_are_woken_on_the_next_path, tcp),
        cmocka_unit_test_prestate(sleepers_are_woken_on_the_next_path, shm),
        cmocka_unit_test_prestate(a_writer_with_a_full_queue_is_woken_on_the_next_path, tcp),
        cmocka_unit_test_prestate(a_writer_with_a_full_queue_is_woken_on_the_next_path, shm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
