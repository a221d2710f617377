/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Compiler support: branch hints, byte order, and sanitizer detection. */
#ifndef RDMUX_API_BASE_COMPILER_H
#define RDMUX_API_BASE_COMPILER_H

#define RDMUX_COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))
#define RDMUX_LIKELY(x) __builtin_expect(!!(x), 1)
#define RDMUX_UNLIKELY(x) __builtin_expect(!!(x), 0)

/* This machine's numbers as big-endian and as little-endian ones, and back. */
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#define RDMUX_BIG16(x) (x)
#define RDMUX_BIG32(x) (x)
#define RDMUX_BIG64(x) (x)
#define RDMUX_LITTLE32(x) __builtin_bswap32(x)
#define RDMUX_LITTLE64(x) __builtin_bswap64(x)
#else
#define RDMUX_BIG16(x) __builtin_bswap16(x)
#define RDMUX_BIG32(x) __builtin_bswap32(x)
#define RDMUX_BIG64(x) __builtin_bswap64(x)
#define RDMUX_LITTLE32(x) (x)
#define RDMUX_LITTLE64(x) (x)
#endif

#if defined(__SANITIZE_THREAD__)
#define RDMUX_TSAN 1
#else
#define RDMUX_TSAN 0
#endif

#endif
