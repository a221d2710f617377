/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* How many descriptors this process has: what is not closed is found by counting twice. */
#ifndef RDMUX_TESTS_DESCRIPTORS_H
#define RDMUX_TESTS_DESCRIPTORS_H

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

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

#endif
