/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Makes the n-th call of the library to what it stands on fail: allocations, or system calls and
 * OpenSSL's. The linker (--wrap) sends the calls of everything that is linked statically through
 * here; those inside libc and OpenSSL are not seen.
 */
#ifndef RDMUX_TESTS_FAULT_INJECT_H
#define RDMUX_TESTS_FAULT_INJECT_H

#include <stdbool.h>
#include <stddef.h>

enum inject_kind {
    INJECT_ALLOCATION,
    INJECT_CALL,
};

/* From now on the nth call of this kind fails, once; from 1. */
void inject_arm(enum inject_kind kind, size_t nth);
void inject_disarm(void);
/* The call that was made to fail, NULL if it did not come to it. */
const char *inject_victim(void);
/* Blocks that were allocated and not freed, since the process began. */
long inject_blocks(void);

#endif
