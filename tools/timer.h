/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Time sources: the system's clock, and the processor's cycle counter if it runs at a constant
 * rate. */
#ifndef RDMUX_TOOL_TIMER_H
#define RDMUX_TOOL_TIMER_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/* Returns monotonic nanoseconds. */
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

/* The time source of a measurement. */
struct timer {
    bool cycles; /* ticks are cycles; else nanoseconds of the clock */
    double ns_per_tick;
};

static inline uint64_t timer_ticks(const struct timer *timer)
{
    return timer->cycles ? timer_cycles() : timer_clock_ns();
}

/* Selects the system's clock. */
void timer_use_clock(struct timer *timer);

/* Selects the cycle counter and calibrates it against the clock for 20 ms. Selects the clock and
 * returns false if the processor does not report a constant rate. */
bool timer_use_cycles(struct timer *timer);

/* Selects the time source for operations that usually take usual_ns, and returns how many
 * operations are timed as one sample. Long operations use the clock, short ones the cycle counter.
 * Operations no longer than the cycle counter's reading time or step are timed in groups. */
uint32_t timer_choose(struct timer *timer, double usual_ns);

/* Returns the CPU time used so far by all threads of this process. */
uint64_t timer_cpu_ns(void);

/* Returns the time in which the calling thread was ready to run and had no processor. Returns false,
 * with *out unchanged, if the kernel does not count it. */
bool timer_waited_ns(uint64_t *out);

#endif
