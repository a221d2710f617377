/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Compiler support: branch hints and sanitizer detection. */
#ifndef RDMUX_API_BASE_COMPILER_H
#define RDMUX_API_BASE_COMPILER_H

#define RDMUX_COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))
#define RDMUX_LIKELY(x) __builtin_expect(!!(x), 1)
#define RDMUX_UNLIKELY(x) __builtin_expect(!!(x), 0)

#if defined(__SANITIZE_THREAD__)
#define RDMUX_TSAN 1
#else
#define RDMUX_TSAN 0
#endif

#endif
