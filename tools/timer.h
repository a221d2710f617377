/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Time: the system's clock, and the processor's cycle counter where it runs at one constant
 * rate. */
#ifndef RDMUX_TOOL_TIMER_H
#define RDMUX_TOOL_TIMER_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/* Monotonic nanoseconds. */
static inline uint64_t timer_clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

#if defined(__x86_64__)
#include <x86intrin.h>

/* The fence keeps the read from moving before the loads that saw the completion. */
static inline uint64_t timer_cycles(void)
{
    _mm_lfence();
    return __rdtsc();
}
#else
static inline uint64_t timer_cycles(void)
{
    return 0;
}
#endif

/* One source of time for a measurement. */
struct timer {
    bool cycles; /* ticks are cycles, else nanoseconds of the clock */
    double ns_per_tick;
};

static inline uint64_t timer_ticks(const struct timer *timer)
{
    return timer->cycles ? timer_cycles() : timer_clock_ns();
}

/* The system's clock. */
void timer_use_clock(struct timer *timer);

/* The cycle counter, calibrated against the clock, which takes 20 ms. False, and the clock, if the
 * processor does not say that it counts at a constant rate. */
bool timer_use_cycles(struct timer *timer);

/* What times operations that usually take usual_ns, and how many of them a sample is of: the clock for long ones,
 * the cycle counter for short ones, groups of those that last no longer than reading it does, or than
 * the steps it goes on by. */
uint32_t timer_choose(struct timer *timer, double usual_ns);

/* CPU time that this process, all its threads, has used so far. */
uint64_t timer_cpu_ns(void);

#endif
