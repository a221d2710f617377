/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Hints for the compiler, the size of an array, and results of libibverbs. */
#ifndef RDMUX_VERBS_MACROS_H
#define RDMUX_VERBS_MACROS_H

#define VERBS_LIKELY(x) __builtin_expect(!!(x), 1)
#define VERBS_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define VERBS_COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* Returns the errno of a result: some libraries return an errno, some its negative. */
static inline int verbs_error_of(int result)
{
    return result < 0 ? -result : result;
}

#endif
