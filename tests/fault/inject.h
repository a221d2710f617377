/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Makes the n-th call that the library makes to its foundations fail: allocations, system calls and
 * calls to OpenSSL, or calls to libibverbs and librdmacm. The linker (--wrap) redirects the calls
 * of all statically linked code to this file, and the simulated adapter asks it. Calls inside libc
 * and OpenSSL do not fail.
 */
#ifndef RDMUX_TESTS_FAULT_INJECT_H
#define RDMUX_TESTS_FAULT_INJECT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

enum inject_kind {
    INJECT_ALLOCATION,
    INJECT_CALL,
    INJECT_VERBS, /* libibverbs and librdmacm, polls included */
    INJECT_KINDS,
};

/* The functions called, in order. Names are literals, the same in forked processes. */
enum { INJECT_RECORD_MAX = 1 << 16 };
struct inject_record {
    _Atomic size_t count;
    const char *names[INJECT_RECORD_MAX];
};

/* From now on the nth call (from 1) of this kind fails, once. name: of this function; NULL: of
 * any. */
void inject_arm(enum inject_kind kind, const char *name, size_t nth);
/* From now on calls of this kind are recorded, and none fails. */
void inject_write_down(enum inject_kind kind, struct inject_record *record);
void inject_disarm(void);
/* Between these two calls, the calls of this thread belong to the test and do not count. */
void inject_pause(void);
void inject_resume(void);
/* Returns the function that was made to fail; NULL: none was, yet. */
const char *inject_victim(void);
/* Returns the number of blocks allocated and not freed since the process began. */
long inject_blocks(void);
/* Returns the number of bytes mapped and not unmapped since the process began. */
long inject_mapped(void);
/* Counts a call of this kind, and tells whether it is to fail. */
bool inject_fails(enum inject_kind kind, const char *name);

/* INJECT_FAILING(kind, result, name, parameters, arguments, error, failure): name fails with this
 * errno and this result. The build reads the names off these lines. */
#define INJECT_FAILING(kind, result, name, parameters, arguments, error, failure) \
    result __real_##name parameters;                                              \
    result __wrap_##name parameters;                                              \
    result __wrap_##name parameters                                               \
    {                                                                             \
        if (inject_fails(kind, #name)) {                                          \
            errno = (error);                                                      \
            return failure;                                                       \
        }                                                                         \
        return __real_##name arguments;                                           \
    }

#endif
