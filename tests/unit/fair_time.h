/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Measures durations fairly on a busy machine, which wakes threads late. A thread that only sleeps
 * measures how late it is woken, and upper bounds do not count that lateness. A wait for an event
 * that does not come takes as long here as by the clock. */
#ifndef RDMUX_TESTS_FAIR_TIME_H
#define RDMUX_TESTS_FAIR_TIME_H

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <cmocka.h>

enum {
    FAIR_NAP_NS = 1000000,
    FAIR_TOLERANCE_NS = 500000, /* timers are no finer */
};

/* The sleeper thread lives only while there is a span, so that a process that forks has no extra
 * thread. */
static struct {
    pthread_t thread;
    unsigned spans;
    _Atomic bool over;
    _Atomic uint64_t due_ns;  /* end of the current nap */
    _Atomic uint64_t late_ns; /* lateness of all earlier naps */
} fair_sleeper;

static inline uint64_t fair_clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static inline uint64_t fair_lateness(uint64_t now_ns, uint64_t due_ns)
{
    return now_ns > due_ns + FAIR_TOLERANCE_NS ? now_ns - due_ns : 0;
}

static inline void *fair_sleep(void *none)
{
    while (!atomic_load(&fair_sleeper.over)) {
        uint64_t due = atomic_load(&fair_sleeper.due_ns);
        struct timespec until = { .tv_sec = (time_t)(due / 1000000000),
                                  .tv_nsec = (long)(due % 1000000000) };
        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) != 0) {
        }
        uint64_t now = fair_clock_ns();
        atomic_fetch_add(&fair_sleeper.late_ns, fair_lateness(now, due));
        atomic_store(&fair_sleeper.due_ns, now + FAIR_NAP_NS);
    }
    return none;
}

static inline void fair_begin(void)
{
    if (fair_sleeper.spans++ == 0) {
        atomic_store(&fair_sleeper.over, false);
        atomic_store(&fair_sleeper.due_ns, fair_clock_ns() + FAIR_NAP_NS);
        assert_int_equal(pthread_create(&fair_sleeper.thread, NULL, fair_sleep, NULL), 0);
    }
}

static inline void fair_end(void)
{
    if (--fair_sleeper.spans == 0) {
        atomic_store(&fair_sleeper.over, true);
        assert_int_equal(pthread_join(fair_sleeper.thread, NULL), 0);
    }
}

struct span {
    uint64_t clock_ns; /* when the span began */
    uint64_t late_ns;  /* lateness of the sleeper at that time */
};

static inline struct span span_now(void)
{
    struct span span = { .clock_ns = fair_clock_ns() };
    span.late_ns = atomic_load(&fair_sleeper.late_ns) +
                   fair_lateness(span.clock_ns, atomic_load(&fair_sleeper.due_ns));
    return span;
}

/* Begins a span, on the test's own thread. The process must not fork before the span ends. */
static inline struct span span_begin(void)
{
    fair_begin();
    return span_now();
}

/* Ends the span. The machine's lateness widens both bounds. */
static inline void check_span(const char *what, struct span span, uint64_t least_ms,
                              uint64_t most_ms)
{
    struct span now = span_now();
    fair_end();
    uint64_t took_ns = now.clock_ns - span.clock_ns;
    uint64_t late_ns = now.late_ns > span.late_ns ? now.late_ns - span.late_ns : 0;
    uint64_t fair_ns = took_ns > late_ns ? took_ns - late_ns : 0;
    if ((took_ns + late_ns) / 1000000 < least_ms || fair_ns / 1000000 > most_ms) {
        fail_msg("%s: %llu ms, of which the machine was late %llu; %llu to %llu are right", what,
                 (unsigned long long)took_ns / 1000000, (unsigned long long)late_ns / 1000000,
                 (unsigned long long)least_ms, (unsigned long long)most_ms);
    }
}

#endif
