/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Streams of bytes, beside which rows.json puts the sends and receives of the same path.
 *
 *   streams PATHS pingpong SIZE SECONDS   half a round trip of SIZE bytes, in us; both sides poll
 *   streams PATHS sleep SIZE SECONDS      the same; both sides sleep
 *   streams PATHS bulk SIZE SECONDS       bytes/s of lent writes of SIZE bytes and reads of as many
 */
#include "bench.h"

#include <rdmux/stream.h>

#include <stdlib.h>
#include <string.h>

struct job {
    struct bench *bench;
    struct rdmux_stream *stream;
    size_t size;
    bool sleeps;
    uint8_t *out;
    uint8_t *in;
};

static void must(enum rdmux_status status, const char *what)
{
    if (status != RDMUX_OK) {
        bench_fail("%s: %s", what, rdmux_last_error());
    }
}

static void await(struct job *job, uint32_t event)
{
    if (job->sleeps) {
        must(rdmux_stream_wait(job->stream, event, -1), "rdmux_stream_wait");
    }
}

static void put(struct job *job, uint32_t flags)
{
    for (size_t at = 0, done = 0; at < job->size; at += done) {
        enum rdmux_status status = rdmux_stream_write(job->stream, job->out + at, job->size - at,
                                                      flags, &done);
        if (status == RDMUX_AGAIN) {
            await(job, RDMUX_STREAM_WRITE);
        } else {
            must(status, "rdmux_stream_write");
        }
    }
}

/* Returns false at the peer's end. */
static bool get(struct job *job)
{
    size_t got;
    enum rdmux_status status;
    while ((status = rdmux_stream_read(job->stream, job->in, job->size, RDMUX_STREAM_ALL, &got)) ==
           RDMUX_AGAIN) {
        await(job, RDMUX_STREAM_READ);
    }
    must(status, "rdmux_stream_read");
    if (got != 0 && got != job->size) {
        bench_fail("a read with ALL gave %zu of %zu bytes", got, job->size);
    }
    return got != 0;
}

static void round_trip(void *user, bool last)
{
    struct job *job = user;
    (void)last; /* the end of the stream tells the other side */
    put(job, 0);
    if (!get(job)) {
        bench_fail("the stream has ended");
    }
}

static void run_ping_pong(struct job *job)
{
    double value = 0;
    uint64_t rounds = 0;
    if (job->bench->side == 0) {
        value = bench_ping_pong(job->bench, round_trip, job, &rounds);
        must(rdmux_stream_shutdown(job->stream, RDMUX_STREAM_WRITE), "rdmux_stream_shutdown");
    } else {
        bench_start(job->bench);
        while (get(job)) {
            put(job, 0);
        }
    }
    bench_meet(job->bench);
    bench_finish(job->bench, value, rounds * 2);
}

static void run_sleep(struct job *job)
{
    job->sleeps = true;
    run_ping_pong(job);
}

static void run_bulk(struct job *job)
{
    uint64_t count = 0;
    bench_start(job->bench);
    if (job->bench->side == 0) {
        for (; !bench_is_over(job->bench); count++) {
            put(job, RDMUX_STREAM_LEND);
        }
        must(rdmux_stream_shutdown(job->stream, RDMUX_STREAM_WRITE), "rdmux_stream_shutdown");
        if (get(job)) { /* the reader ends when it has all bytes */
            bench_fail("the reader has written");
        }
    } else {
        while (get(job)) {
        }
        must(rdmux_stream_shutdown(job->stream, RDMUX_STREAM_WRITE), "rdmux_stream_shutdown");
    }
    bench_stop(job->bench);
    bench_meet(job->bench);
    bench_finish(job->bench, (double)(count * job->size) / job->bench->elapsed, count);
}

static void open_stream(struct job *job, const char *paths)
{
    struct rdmux_fabric_attr attr = RDMUX_FABRIC_ATTR_INIT;
    struct rdmux_fabric *fabric = NULL;
    struct rdmux_listener *listener = NULL;
    char mine[RDMUX_ADDRESS_MAX] = "";
    char address[RDMUX_ADDRESS_MAX];
    attr.paths = paths;
    attr.flags = RDMUX_FABRIC_IGNORE_ENVIRONMENT;
    must(rdmux_fabric_open(&attr, &fabric), "rdmux_fabric_open");
    if (job->bench->side == 1) {
        must(rdmux_listen(fabric, "127.0.0.1:0", NULL, &listener), "rdmux_listen");
        must(rdmux_listener_address(listener, mine, sizeof(mine)), "rdmux_listener_address");
    }
    bench_exchange(job->bench, mine, address, sizeof(mine));
    if (job->bench->side == 1) {
        must(rdmux_stream_accept(listener, NULL, NULL, -1, &job->stream), "rdmux_stream_accept");
    } else {
        must(rdmux_stream_connect(fabric, NULL, address, NULL, 5000, &job->stream),
             "rdmux_stream_connect");
    }
    must(rdmux_stream_wait(job->stream, RDMUX_STREAM_WRITE, 5000), "rdmux_stream_wait");
    bench_meet(job->bench);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(struct job *job);
    } jobs[] = { { "pingpong", run_ping_pong }, { "sleep", run_sleep }, { "bulk", run_bulk } };
    struct bench bench;
    if (argc != 5) {
        bench_fail("usage: streams PATHS pingpong|sleep|bulk SIZE SECONDS");
    }
    struct job job = { .bench = &bench, .size = bench_size(argv[3]) };
    bench_fork(&bench, strtod(argv[4], NULL), 0);
    job.out = bench_buffer(job.size);
    job.in = bench_buffer(job.size);
    open_stream(&job, argv[1]);
    for (size_t i = 0; i < sizeof(jobs) / sizeof(jobs[0]); i++) {
        if (strcmp(argv[2], jobs[i].name) == 0) {
            jobs[i].run(&job);
            return 0;
        }
    }
    bench_fail("there is no '%s'", argv[2]);
}
