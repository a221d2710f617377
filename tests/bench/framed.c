/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * The jobs of examples/embedding over the link that the program is built with: framed_socket has TCP
 * sockets that block, with Reno, framed_stream has streams of rdmux. Both sides sleep while they
 * wait.
 *
 *   framed_KIND PATHS call SIZE SECONDS    half a round trip of frames of SIZE bytes, in us
 *   framed_KIND PATHS mixed MOST SECONDS   bytes/s of both directions: calls of 4 B, 16 B, … MOST
 *   framed_KIND PATHS block SIZE SECONDS   blocks/s, as a client of a block device reads them: one
 *                                          request of 16 bytes at a time
 *
 * PATHS is a filter of rdmux; a socket takes no notice of it.
 */
#include "bench.h"
#include "links.h"

#include "examples/embedding/framing/frame.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REQUEST = 16, ANSWER = 4 }; /* of examples/embedding/nbd/block.h */

struct job {
    struct bench *bench;
    struct link *link;
    uint8_t *bytes;
    size_t size;
    struct frame in;
};

/* Sends a frame, and takes the one that comes back. */
static void call(struct job *job, size_t size)
{
    if (!frame_send(job->link, job->bytes, size) || frame_receive(job->link, &job->in) != 1 ||
        job->in.length != size) {
        bench_fail("a call of %zu bytes: %s", size, link_error());
    }
}

static void round_trip(void *user, bool last)
{
    struct job *job = user;
    (void)last; /* the end of the link tells the other side */
    call(job, job->size);
}

static void answer_calls(struct job *job)
{
    while (frame_receive(job->link, &job->in) == 1) {
        if (!frame_send(job->link, job->in.bytes, job->in.length)) {
            bench_fail("an answer: %s", link_error());
        }
    }
}

static void run_calls(struct job *job)
{
    double value = 0;
    uint64_t rounds = 0;
    if (job->bench->side == 0) {
        value = bench_ping_pong(job->bench, round_trip, job, &rounds);
        link_close(job->link);
    } else {
        bench_start(job->bench);
        answer_calls(job);
    }
    bench_finish(job->bench, value, rounds * 2);
}

static void run_mixed(struct job *job)
{
    uint64_t bytes = 0;
    bench_start(job->bench);
    if (job->bench->side == 0) {
        do {
            for (size_t size = 4; size <= job->size; size *= 4) {
                call(job, size);
                bytes += 2 * size;
            }
        } while (!bench_is_over(job->bench));
        link_close(job->link);
    } else {
        answer_calls(job);
    }
    bench_stop(job->bench);
    /* scripts/bench takes 8 bytes for an operation, where a command has no --size. */
    bench_finish(job->bench, (double)bytes / job->bench->elapsed, bytes / 8);
}

static void ask_for_block(struct job *job)
{
    uint8_t request[REQUEST] = { 0 };
    struct iovec piece = { request, sizeof(request) };
    if (!link_write(job->link, &piece, 1) || link_read(job->link, request, ANSWER) != ANSWER ||
        link_read(job->link, job->bytes, job->size) != (long)job->size) {
        bench_fail("a block: %s", link_error());
    }
}

static void run_blocks(struct job *job)
{
    uint64_t count = 0;
    bench_start(job->bench);
    if (job->bench->side == 0) {
        for (; !bench_is_over(job->bench); count++) {
            ask_for_block(job);
        }
        link_close(job->link);
    } else {
        uint8_t request[REQUEST];
        while (link_read(job->link, request, sizeof(request)) == sizeof(request)) {
            struct iovec pieces[] = { { request, ANSWER }, { job->bytes, job->size } };
            if (!link_write(job->link, pieces, 2)) {
                bench_fail("a block: %s", link_error());
            }
        }
    }
    bench_stop(job->bench);
    bench_finish(job->bench, (double)count / job->bench->elapsed, count);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(struct job *job);
    } jobs[] = { { "call", run_calls }, { "mixed", run_mixed }, { "block", run_blocks } };
    struct bench bench;
    if (argc != 5) {
        bench_fail("usage: framed_KIND PATHS call|mixed|block SIZE SECONDS");
    }
    struct job job = { .bench = &bench, .size = bench_size(argv[3]) };
    bench_fork(&bench, strtod(argv[4], NULL), 0);
    job.bytes = bench_buffer(job.size);
    job.link = links_open(&bench, argv[1]);
    for (size_t i = 0; i < sizeof(jobs) / sizeof(jobs[0]); i++) {
        if (strcmp(argv[2], jobs[i].name) == 0) {
            jobs[i].run(&job);
            return 0;
        }
    }
    bench_fail("there is no '%s'", argv[2]);
}
