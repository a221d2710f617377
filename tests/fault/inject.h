/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Makes the n-th call of the library to what it stands on fail: allocations, system calls and OpenSSL's,
 * or those to libibverbs and librdmacm. The linker (--wrap) sends the calls of everything that is linked
 * statically through here, the simulated adapter asks; those inside libc and OpenSSL are not seen.
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

/* From now on the nth call of this kind fails, once; from 1. name: the nth of that function; NULL: of any. */
void inject_arm(enum inject_kind kind, const char *name, size_t nth);
/* From now on calls of this kind are written down, and none fails. */
void inject_write_down(enum inject_kind kind, struct inject_record *record);
void inject_disarm(void);
/* Between these, calls of this thread are the test's own, and do not count. */
void inject_pause(void);
void inject_resume(void);
/* The call that was made to fail, NULL if it did not come to it. */
const char *inject_victim(void);
/* Blocks that were allocated and not freed, since the process began. */
long inject_blocks(void);
/* Bytes that were mapped and not unmapped, since the process began. */
long inject_mapped(void);
/* Whether this call, of that kind, is to fail. Counts it. */
bool inject_fails(enum inject_kind kind, const char *name);

/* INJECT_FAILING(kind, result, name, parameters, arguments, error, failure): name fails with this errno and this
 * result. The build reads the names off these lines. */
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
