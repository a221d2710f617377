/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* A comparison with a secret takes as many instructions wherever it differs, so that no peer can
 * find the secret byte by byte. Counted by the processor's single step (x86-64). */
#include "api/object/mr_export.h"
#include "negotiation/path_secret.h"
#include "tests/unit/api_pair.h"

#include <signal.h>
#include <ucontext.h>

/* The thread sanitizer takes ways of its own, not always the same. */
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)

enum { TRAP_FLAG = 0x100, TOKEN_RANDOM_AT = 40, TOKEN_RANDOM_END = 56 };

static volatile sig_atomic_t steps;
static volatile sig_atomic_t compares; /* calls of memcmp() while steps are counted */
static volatile sig_atomic_t counts;

int __real_memcmp(const void *a, const void *b, size_t size);
int __wrap_memcmp(const void *a, const void *b, size_t size);

/* Vector instructions hide where a comparison stops from an instruction count, but not from a
 * clock. A comparison of four bytes distinguishes a token from other kinds of bytes. */
int __wrap_memcmp(const void *a, const void *b, size_t size)
{
    if (counts != 0 && size > 4) {
        compares = compares + 1;
    }
    return __real_memcmp(a, b, size);
}

static void on_step(int signal)
{
    (void)signal;
    steps = steps + 1;
}

/* From its return on, or until the signal is raised again, instructions stop one by one. */
static void on_switch(int signal, siginfo_t *info, void *context)
{
    greg_t *flags = &((ucontext_t *)context)->uc_mcontext.gregs[REG_EFL];
    (void)signal;
    (void)info;
    counts = counts == 0;
    *flags = counts != 0 ? *flags | TRAP_FLAG : *flags & ~(greg_t)TRAP_FLAG;
}

static int handle_signals(void **state)
{
    struct sigaction step = { .sa_handler = on_step };
    struct sigaction change = { .sa_sigaction = on_switch, .sa_flags = SA_SIGINFO };
    (void)state;
    return sigaction(SIGTRAP, &step, NULL) != 0 || sigaction(SIGUSR1, &change, NULL) != 0 ? -1 : 0;
}

/* Counts the instructions that `compare` takes on two values that differ in one byte. */
static int count(bool (*compare)(const uint8_t *bytes), const uint8_t *bytes)
{
    steps = 0;
    compares = 0;
    raise(SIGUSR1);
    bool same = compare(bytes);
    raise(SIGUSR1);
    assert_false(same);
    assert_true(steps > 16); /* else nothing was counted */
    assert_int_equal(compares, 0);
    return (int)steps;
}

/* Valgrind knows no single step. */
static bool can_count(void)
{
    steps = 0;
    raise(SIGUSR1);
    raise(SIGUSR1);
    return steps > 0;
}

/* They differ in byte `first`, then in the next, and so on to `end`. */
static void check_all_places(bool (*compare)(const uint8_t *bytes), uint8_t *bytes, size_t first,
                             size_t end)
{
    int expected = 0;
    for (int round = 0; round < 2;
         round++) { /* the first round binds functions at their first use */
        for (size_t at = first; at < end; at++) {
            bytes[at] ^= 0x41;
            int taken = count(compare, bytes);
            bytes[at] ^= 0x41;
            expected = at == first ? taken : expected;
            if (round > 0 && taken != expected) {
                fail_msg("%d instructions where byte %zu differs, %d where byte %zu does", taken,
                         at, expected, first);
            }
        }
    }
}

static const uint8_t secret[RDMUX_SECRET_SIZE] = "0123456789abcde";

static bool is_secret(const uint8_t *bytes)
{
    return rdmux_secret_matches(secret, bytes);
}

static void comparing_secrets_takes_the_same_time_wherever_they_differ(void **state)
{
    uint8_t bytes[RDMUX_SECRET_SIZE];
    (void)state;
    if (!can_count()) {
        skip();
    }
    memcpy(bytes, secret, sizeof(bytes));
    check_all_places(is_secret, bytes, 0, sizeof(bytes));
}

static struct rdmux_fabric *fabric;

static bool opens_region(const uint8_t *bytes)
{
    struct rdmux_token token;
    struct rdmux_mr *mr = NULL;
    struct rdmux_provider_mr *registration = NULL;
    memcpy(token.bytes, bytes, sizeof(token.bytes));
    return rdmux_mr_import(fabric, &token, "", NULL, 1, NULL, &mr, &registration) != RDMUX_DENIED;
}

static void comparing_tokens_takes_the_same_time_wherever_they_differ(void **state)
{
    struct rdmux_token token;
    struct rdmux_mr *mr = NULL;
    (void)state;
    if (!can_count()) {
        skip();
    }
    fabric = open_fabric("tcp", RDMUX_FABRIC_NO_SERVICE_THREAD | RDMUX_FABRIC_NO_WORKER_THREAD,
                         NULL);
    CHECK_OK(rdmux_mr_alloc(fabric, 64, RDMUX_ACCESS_REMOTE_READ, &mr));
    CHECK_OK(rdmux_mr_export(mr, &token));

    check_all_places(opens_region, token.bytes, TOKEN_RANDOM_AT, TOKEN_RANDOM_END);

    rdmux_mr_deregister(mr);
    CHECK_OK(rdmux_fabric_close(fabric));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(comparing_secrets_takes_the_same_time_wherever_they_differ),
        cmocka_unit_test(comparing_tokens_takes_the_same_time_wherever_they_differ),
    };
    return cmocka_run_group_tests_name("constant_time", tests, handle_signals, NULL);
}

#else

static void instructions_cannot_be_counted_here(void **state)
{
    (void)state;
    skip();
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(instructions_cannot_be_counted_here) };
    return cmocka_run_group_tests_name("constant_time", tests, NULL, NULL);
}

#endif
