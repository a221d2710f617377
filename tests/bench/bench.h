/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Shared code of the programs of tests/bench: two pinned processes, time, the CPU time of both, and
 * the line of JSON that each program prints.
 *
 * bench_fork() makes the other process before any library is opened. Side 0 measures and reports;
 * side 1 serves it. They run on the first two processors that this process may use.
 */
#ifndef RDMUX_BENCH_H
#define RDMUX_BENCH_H

#include "tools/timer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct bench_shared;

struct bench {
    int side;       /* 0 measures, 1 serves */
    double seconds; /* duration of the measurement */
    int channel;    /* a socket between the sides, for messages outside the measurement */
    struct bench_shared *shared;
    uint64_t start_ns;
    uint64_t cpu_start_ns;
    uint64_t cpu_ns;
    double elapsed; /* seconds from bench_start() to bench_stop() */
};

/* Ends the process with a message on stderr and status 1; the other side ends, too. */
_Noreturn void bench_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Ends with status 77 and the reason: the library of a peer does not support the operation here. */
_Noreturn void bench_skip(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Forks and pins. shared_size bytes, zeroed and shared by both sides, are at bench_memory(). */
void bench_fork(struct bench *bench, double seconds, size_t shared_size);
void *bench_memory(const struct bench *bench);

/* Pins this process to processor number `index` of those that it may use, or to the last of them. */
void bench_pin(int index);

/* Pins one process to the first processor, for measurements without another side. */
void bench_alone(struct bench *bench, double seconds);

/* Exchanges size bytes between the sides. It also serves as a barrier. */
void bench_exchange(const struct bench *bench, const void *mine, void *theirs, size_t size);
void bench_meet(const struct bench *bench);

/* Side 0 calls them at the beginning and the end of the measurement; side 1 calls bench_start()
 * when it is ready to serve. */
void bench_start(struct bench *bench);
void bench_stop(struct bench *bench);

/* For loops that read the clock from time to time. */
static inline bool bench_is_over(const struct bench *bench)
{
    return (double)(timer_clock_ns() - bench->start_ns) >= bench->seconds * 1e9;
}

/* Runs a ping-pong until the time is over. round(user, last) is one round trip; `last` tells the
 * other side to end after it. Returns the median of half a round trip in microseconds. */
double bench_ping_pong(struct bench *bench, void (*round)(void *user, bool last), void *user,
                       uint64_t *rounds);

/* The same for a whole round trip of reads and atomics, which has no `last`. */
double bench_round_trips(struct bench *bench, void (*round)(void *user, bool last), void *user,
                         uint64_t *rounds);

/* On side 0: waits for side 1 and prints {"value": ..., "cpu_seconds": ..., "operations": ...,
 * "seconds": ...}. On side 1: stores its CPU time and ends the process. */
void bench_finish(struct bench *bench, double value, uint64_t operations);

/* Makes a connected pair of TCP sockets over loopback, one for each side, TCP_NODELAY, not
 * blocking. */
int bench_tcp_pair(const struct bench *bench);

/* Returns a port of 127.0.0.1 that was free a moment ago, for libraries that cannot pick one. */
uint16_t bench_free_port(void);

/* Returns the size in bytes that an argument names, with the units K and M. */
size_t bench_size(const char *text);

void *bench_buffer(size_t size); /* page aligned and touched */

#endif
