/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Sizes of arrays, members of structs, hints for the compiler. */
#ifndef SIM_MACROS_H
#define SIM_MACROS_H

#include <stddef.h>

#define SIM_COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))
#define SIM_OUTER(type, member, pointer) \
    ((type *)(void *)((char *)(pointer)-offsetof(type, member)))
#define SIM_UNLIKELY(condition) __builtin_expect(!!(condition), 0)

#endif
