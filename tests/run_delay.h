/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The kernel's count of time in which threads were ready and had no processor (run_delay, see
 * Documentation/scheduler/sched-stats.rst of Linux). Tests allow for it on a busy machine. */
#ifndef RDMUX_TESTS_RUN_DELAY_H
#define RDMUX_TESTS_RUN_DELAY_H

#include <dirent.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>

/* Returns the sum in ns of the threads of a process, without the thread `except` (0: of all). 0 if
 * the kernel does not count it. A thread that ends takes its part with it. */
static inline uint64_t run_delay_ns(pid_t pid, pid_t except)
{
    char path[64];
    uint64_t sum = 0;
    (void)snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    DIR *tasks = opendir(path);
    const struct dirent *task = NULL;
    while (tasks != NULL && (task = readdir(tasks)) != NULL) {
        uint64_t ran;
        uint64_t waited;
        (void)snprintf(path, sizeof(path), "/proc/%d/task/%.20s/schedstat", (int)pid, task->d_name);
        FILE *file = fopen(path, "re");
        if (file != NULL && fscanf(file, "%" SCNu64 " %" SCNu64, &ran, &waited) == 2 &&
            strtol(task->d_name, NULL, 10) != except) {
            sum += waited;
        }
        if (file != NULL) {
            (void)fclose(file);
        }
    }
    if (tasks != NULL) {
        (void)closedir(tasks);
    }
    return sum;
}

#endif
