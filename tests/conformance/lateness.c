/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "lateness.h"

#include "harness.h"

#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

enum { SLEEPERS = 4 };

static void *sleep_again_and_again(void *user)
{
    struct sleeper *sleeper = user;
    while (!atomic_load(&sleeper->over)) {
        uint64_t due = now_ns() + 1000000;
        sleep_ms(1);
        uint64_t late = now_ns() - due;
        if (late > atomic_load(&sleeper->worst_ns)) {
            atomic_store(&sleeper->worst_ns, late);
        }
    }
    return NULL;
}

void sleeper_start(struct sleeper *sleeper)
{
    sigset_t all;
    sigset_t before;
    *sleeper = (struct sleeper){ .over = false };
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are for the thread under test */
    const int error = pthread_create(&sleeper->thread, NULL, sleep_again_and_again, sleeper);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    EXPECT(error == 0, "no thread to be had");
}

uint64_t sleeper_stop(struct sleeper *sleeper)
{
    atomic_store(&sleeper->over, true);
    EXPECT(pthread_join(sleeper->thread, NULL) == 0, "the thread cannot be joined");
    return atomic_load(&sleeper->worst_ns) / 1000000 + 1;
}

void stopwatch_start(struct stopwatch *watch)
{
    sleeper_start(&watch->sleeper);
    watch->start_ns = now_ns();
}

bool stopwatch_is_within(struct stopwatch *watch, uint64_t most_ms)
{
    const uint64_t late_ms = atomic_load(&watch->sleeper.worst_ns) / 1000000 + 1;
    return ms_since(watch->start_ns) <= most_ms + SLEEPERS * late_ms;
}

void expect_took(struct stopwatch *watch, const char *what, uint64_t least_ms, uint64_t most_ms)
{
    const uint64_t took_ms = ms_since(watch->start_ns);
    const uint64_t late_ms = sleeper_stop(&watch->sleeper);
    EXPECT(took_ms + 1 >= least_ms, "%s took only %" PRIu64 " ms", what, took_ms);
    EXPECT(took_ms <= most_ms + SLEEPERS * late_ms,
           "%s took %" PRIu64 " ms; a sleeper was up to %" PRIu64 " ms late", what, took_ms,
           late_ms);
}

static int by_value(const void *a, const void *b)
{
    const uint64_t *left = a;
    const uint64_t *right = b;
    return *left < *right ? -1 : *left > *right;
}

void expect_half_took(struct stopwatch *watch, const char *what, uint64_t *took_ns, size_t count,
                      uint64_t most_ms)
{
    const uint64_t late_ms = sleeper_stop(&watch->sleeper);
    qsort(took_ns, count, sizeof(took_ns[0]), by_value);
    EXPECT(took_ns[count / 2] <= (most_ms + SLEEPERS * late_ms) * 1000000,
           "half of the %s took more than %" PRIu64 " us; a sleeper was up to %" PRIu64 " ms late",
           what, took_ns[count / 2] / 1000, late_ms);
}
