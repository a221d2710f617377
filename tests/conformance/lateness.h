/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* How late this host is, where a promise is a time: what a busy machine adds is not the provider's. */
#ifndef RDMUX_CONFORMANCE_LATENESS_H
#define RDMUX_CONFORMANCE_LATENESS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* A thread that only sleeps, and how late it was woken at worst. */
struct sleeper {
    pthread_t thread;
    _Atomic bool over;
    _Atomic uint64_t worst_ns;
};

void sleeper_start(struct sleeper *sleeper);

/* Returns by how many ms it was woken too late, rounded up. */
uint64_t sleeper_stop(struct sleeper *sleeper);

/* What is to take a time. */
struct stopwatch {
    uint64_t start_ns;
    struct sleeper sleeper;
};

void stopwatch_start(struct stopwatch *watch);

/* Fails unless it took at least least_ms and at most most_ms. As much as a sleeper was late may be added for each of
 * those who sleep on the way: two service threads, the waiting thread, and a device's own. */
void expect_took(struct stopwatch *watch, const char *what, uint64_t least_ms, uint64_t most_ms);

#endif
