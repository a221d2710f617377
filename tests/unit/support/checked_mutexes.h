/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Each mutex of the program checks which thread unlocks it. */
#ifndef RDMUX_TESTS_UNIT_CHECKED_MUTEXES_H
#define RDMUX_TESTS_UNIT_CHECKED_MUTEXES_H

#include <stddef.h>

/* The number of failed unlocks so far: of a mutex that is free, or that another thread holds. */
size_t wrong_unlocks(void);

#endif
