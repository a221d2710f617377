/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Measures durations fairly on a busy machine, which wakes threads late and lets them wait for a
 * processor. A thread that only sleeps measures how late it is woken; that thread is woken before
 * those that compute, whose waits the kernel counts. Upper bounds count neither. A wait for an event
 * that does not come takes as long here as by the clock. */
#ifndef RDMUX_TESTS_FAIR_TIME_H
#define RDMUX_TESTS_FAIR_TIME_H

#include "tests/run_delay.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

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
    _Atomic pid_t id;
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
    atomic_store(&fair_sleeper.id, (pid_t)syscall(SYS_gettid));
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

static inline uint64_t fair_processor_ns(clockid_t clock)
{
    struct timespec used;
    clock_gettime(clock, &used);
    return (uint64_t)used.tv_sec * 1000000000 + (uint64_t)used.tv_nsec;
}

/* What each counter was when the span began, or how much it has grown since. */
struct span {
    uint64_t clock_ns;
    uint64_t late_ns;  /* of the sleeper */
    uint64_t waits_ns; /* of all other threads */
    uint64_t used_ns;  /* processor time of the process */
    uint64_t own_ns;   /* processor time of the test's thread */
};

static inline struct span span_now(void)
{
    struct span span = { .clock_ns = fair_clock_ns() };
    span.late_ns = atomic_load(&fair_sleeper.late_ns) +
                   fair_lateness(span.clock_ns, atomic_load(&fair_sleeper.due_ns));
    /* without the sleeper, whose lateness is that */
    span.waits_ns = run_delay_ns(getpid(), atomic_load(&fair_sleeper.id));
    span.used_ns = fair_processor_ns(CLOCK_PROCESS_CPUTIME_ID);
    span.own_ns = fair_processor_ns(CLOCK_THREAD_CPUTIME_ID);
    return span;
}

/* Begins a span, on the test's own thread. The process must not fork before the span ends. */
static inline struct span span_begin(void)
{
    fair_begin();
    return span_now();
}

static inline uint64_t fair_growth(uint64_t now, uint64_t before)
{
    return now > before ? now - before : 0; /* a thread that ended takes its waits with it */
}

/* Ends the span. */
static inline struct span span_end(struct span span)
{
    struct span now = span_now();
    fair_end();
    return (struct span){
        .clock_ns = now.clock_ns - span.clock_ns,
        .late_ns = fair_growth(now.late_ns, span.late_ns),
        .waits_ns = fair_growth(now.waits_ns, span.waits_ns),
        .used_ns = fair_growth(now.used_ns, span.used_ns),
        .own_ns = fair_growth(now.own_ns, span.own_ns),
    };
}

/* Returns how long a span that has ended would have taken on an idle machine. The waits of all
 * threads count, as threads work for each other by turns. Several may wait at once, and for each
 * other, so that the sum may exceed the span: but what the process computed, spread over all
 * processors, and what the test's thread computed, would have taken as long on an idle machine. */
static inline uint64_t span_fair_ns(const struct span *took)
{
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    uint64_t least_ns = took->used_ns / (uint64_t)(processors > 0 ? processors : 1);
    uint64_t fair_ns = fair_growth(took->clock_ns, took->late_ns + took->waits_ns);
    least_ns = took->own_ns > least_ns ? took->own_ns : least_ns;
    least_ns = took->clock_ns < least_ns ? took->clock_ns : least_ns;
    return fair_ns > least_ns ? fair_ns : least_ns;
}

/* Ends the span. The sleeper's lateness widens both bounds, the waits only the upper one. */
static inline void check_span(const char *what, struct span span, uint64_t least_ms,
                              uint64_t most_ms)
{
    struct span took = span_end(span);
    if ((took.clock_ns + took.late_ns) / 1000000 < least_ms ||
        span_fair_ns(&took) / 1000000 > most_ms) {
        fail_msg("%s: %llu ms, of which the machine was late %llu, threads waited %llu in all, and "
                 "the process computed %llu; %llu to %llu are right",
                 what, (unsigned long long)took.clock_ns / 1000000,
                 (unsigned long long)took.late_ns / 1000000,
                 (unsigned long long)took.waits_ns / 1000000,
                 (unsigned long long)took.used_ns / 1000000, (unsigned long long)least_ms,
                 (unsigned long long)most_ms);
    }
}

#endif
