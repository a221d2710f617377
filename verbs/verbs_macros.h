/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Hints for the compiler, and the size of an array. */
#ifndef RDMUX_VERBS_MACROS_H
#define RDMUX_VERBS_MACROS_H

#define VERBS_LIKELY(x) __builtin_expect(!!(x), 1)
#define VERBS_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define VERBS_COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

#endif
