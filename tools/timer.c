/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "timer.h"

#include <stdio.h>
#include <sys/resource.h>

enum {
    CALIBRATION_NS = 20000000,
    CLOCK_LIMIT_NS = 2000, /* shorter operations need a finer time source than the clock */
    CLOCK_GROUP_NS = 20000,
    GROUP_OVER_ERROR = 40, /* minimum ratio of a sample to the error of the cycle counter */
};

#if defined(__x86_64__)
#include <cpuid.h>

/* Intel SDM vol. 3, 18.17.1 and AMD APM vol. 3: CPUID 0x80000007, EDX bit 8, is the invariant
 * TSC. */
static bool cycles_are_constant(void)
{
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    return __get_cpuid(0x80000007, &eax, &ebx, &ecx, &edx) != 0 && (edx & (1U << 8)) != 0;
}
#else
static bool cycles_are_constant(void)
{
    return false;
}
#endif

/* Reads both at once: uses the attempt whose clock call took the fewest cycles. */
static void read_both(uint64_t *cycles, uint64_t *ns)
{
    uint64_t best = UINT64_MAX;
    for (int i = 0; i < 16; i++) {
        uint64_t before = timer_cycles();
        uint64_t clock = timer_clock_ns();
        uint64_t after = timer_cycles();
        if (after - before < best) {
            best = after - before;
            *cycles = before + best / 2;
            *ns = clock;
        }
    }
}

void timer_use_clock(struct timer *timer)
{
    timer->cycles = false;
    timer->ns_per_tick = 1.0;
}

bool timer_use_cycles(struct timer *timer)
{
    timer_use_clock(timer);
    if (!cycles_are_constant()) {
        return false;
    }
    uint64_t first_cycles = 0, first_ns = 0, last_cycles = 0, last_ns = 0;
    read_both(&first_cycles, &first_ns);
    while (timer_clock_ns() - first_ns < CALIBRATION_NS) {
    }
    read_both(&last_cycles, &last_ns);
    if (last_cycles <= first_cycles) {
        return false;
    }
    timer->cycles = true;
    timer->ns_per_tick = (double)(last_ns - first_ns) / (double)(last_cycles - first_cycles);
    return true;
}

/* Returns the difference in nanoseconds of two successive readings of the cycle counter: the
 * reading time, or the counter's step if that is longer. */
static double error_ns(const struct timer *timer)
{
    uint64_t shortest = UINT64_MAX;
    for (int i = 0; i < 1000; i++) {
        uint64_t before = timer_cycles();
        uint64_t after = timer_cycles();
        if (after != before && after - before < shortest) {
            shortest = after - before;
        }
    }
    return shortest == UINT64_MAX ? CLOCK_LIMIT_NS : (double)shortest * timer->ns_per_tick;
}

/* Returns how many operations of usual_ns last at least least_ns. */
static uint32_t group_of(double usual_ns, double least_ns)
{
    return usual_ns >= least_ns ? 1 : (uint32_t)(least_ns / (usual_ns + 1)) + 1;
}

uint32_t timer_choose(struct timer *timer, double usual_ns)
{
    timer_use_clock(timer);
    if (usual_ns >= CLOCK_LIMIT_NS) {
        return 1;
    }
    if (!timer_use_cycles(timer)) {
        return group_of(usual_ns, CLOCK_GROUP_NS);
    }
    return group_of(usual_ns, GROUP_OVER_ERROR * error_ns(timer));
}

static uint64_t ns_of(struct timeval time)
{
    return (uint64_t)time.tv_sec * UINT64_C(1000000000) + (uint64_t)time.tv_usec * 1000;
}

uint64_t timer_cpu_ns(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return ns_of(usage.ru_utime) + ns_of(usage.ru_stime);
}

/* Documentation/scheduler/sched-stats: time on a processor, time in a run queue, time slices. */
bool timer_waited_ns(uint64_t *out)
{
    FILE *file = fopen("/proc/thread-self/schedstat", "re");
    if (file == NULL) {
        return false;
    }
    unsigned long long running = 0, waiting = 0;
    bool good = fscanf(file, "%llu %llu", &running, &waiting) == 2;
    fclose(file);
    if (good) {
        *out = waiting;
    }
    return good;
}
