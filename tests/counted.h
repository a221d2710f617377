/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * What a process has counted for tests/coverage is written when it returns from main() or calls
 * exit(). One that ends by _exit(), as a child does that shares its parent's output, calls
 * end_counted() instead.
 */
#ifndef RDMUX_TESTS_COUNTED_H
#define RDMUX_TESTS_COUNTED_H

#include <unistd.h>

#ifdef RDMUX_COVERAGE
#include <gcov.h>

static inline void write_counters(void)
{
    __gcov_dump();
}
#else
static inline void write_counters(void)
{
}
#endif

static inline _Noreturn void end_counted(int status)
{
    write_counters();
    _exit(status);
}

#endif
