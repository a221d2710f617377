/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Measures how late this host wakes threads. A case that checks a time allows for this delay, which
 * is not the provider's. */
#ifndef RDMUX_CONFORMANCE_LATENESS_H
#define RDMUX_CONFORMANCE_LATENESS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A thread that only sleeps and records its worst wake-up delay. */
struct sleeper {
    pthread_t thread;
    _Atomic bool over;
    _Atomic uint64_t worst_ns;
};

void sleeper_start(struct sleeper *sleeper);

/* Returns the worst wake-up delay in ms, rounded up. */
uint64_t sleeper_stop(struct sleeper *sleeper);

/* Measures the duration of an operation. */
struct stopwatch {
    uint64_t start_ns;
    struct sleeper sleeper;
};

void stopwatch_start(struct stopwatch *watch);

/* Fails unless the operation took at least least_ms and at most most_ms. Adds the worst wake-up
 * delay to most_ms once for each of four sleeping threads: two service threads, the waiting
 * thread, and a device's own thread. */
void expect_took(struct stopwatch *watch, const char *what, uint64_t least_ms, uint64_t most_ms);

/* The same for the median of durations in ns, which are sorted. */
void expect_half_took(struct stopwatch *watch, const char *what, uint64_t *took_ns, size_t count,
                      uint64_t most_ms);

/* Returns whether expect_took() would pass now. */
bool stopwatch_is_within(struct stopwatch *watch, uint64_t most_ms);

#endif
