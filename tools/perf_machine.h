/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Processors: lists of them, pinning to them, and whether others used them. */
#ifndef RDMUX_TOOL_PERF_MACHINE_H
#define RDMUX_TOOL_PERF_MACHINE_H

#include "tool.h"

#include <sched.h>
#include <stddef.h>

enum { PERF_CPUS_MAX = CPU_SETSIZE };

/* Reads "0,2-3". Returns the number of processors, in the order given; 0, with the reason in
 * why, if the text is no such list or this process may not run on one of them. */
size_t perf_cpus_read(const char *text, unsigned out[PERF_CPUS_MAX], char why[RDMUX_TEXT_MAX]);

/* Pins the calling thread. Returns 0 or an errno. */
int perf_cpu_pin(unsigned cpu);

/* Time of all processors together since the machine started, in ticks of /proc/stat. */
struct perf_processor_time {
    bool known;
    uint64_t all;
    uint64_t stolen; /* by the hypervisor */
};

struct perf_processor_time perf_processor_time(void);

/* Returns the share that was stolen between two times; below 0: not known. */
double perf_stolen_share(const struct perf_processor_time *from,
                         const struct perf_processor_time *to);

#endif
