/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* How many descriptors this process has, and may have. Counting twice finds a descriptor leak. */
#ifndef RDMUX_TESTS_DESCRIPTORS_H
#define RDMUX_TESTS_DESCRIPTORS_H

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>

#include <cmocka.h>

static inline size_t open_descriptors(void)
{
    size_t count = 0;
    DIR *folder = opendir("/proc/self/fd");
    assert_non_null(folder);
    while (readdir(folder) != NULL) {
        count++;
    }
    (void)closedir(folder);
    return count;
}

/* Raises the descriptor limit as far as the machine allows. */
static inline size_t raise_descriptors(void)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    rlim_t before = limit.rlim_cur;
    limit.rlim_cur = limit.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    print_message("# descriptors of a process: %llu, %llu at most\n", (unsigned long long)before,
                  (unsigned long long)limit.rlim_max);
    return limit.rlim_max > 1000000 ? 1000000 : (size_t)limit.rlim_max;
}

#endif
