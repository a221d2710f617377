/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "api/loop/exit.h"

#include "api/base/error.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

/* Most time that exit() waits for turns: one may wait for a lock of the thread that exits. */
enum { LONGEST_NS = 1000 * 1000 * 1000, STEP_NS = 50 * 1000 };

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool is_registered;
static _Atomic bool is_ending;
static _Atomic uint32_t turns;      /* under way, of all threads */
static _Thread_local bool has_turn; /* this thread */

static void await_turns(void)
{
    atomic_store(&is_ending, true);
    const uint32_t own = has_turn ? 1 : 0; /* a hook of the program calls exit() */
    for (uint64_t waited = 0; atomic_load(&turns) > own && waited < LONGEST_NS; waited += STEP_NS) {
        const struct timespec step = { .tv_nsec = STEP_NS };
        (void)nanosleep(&step, NULL);
    }
}

/* The child has none of the threads. */
static void forget_turns(void)
{
    atomic_store(&turns, 0);
    atomic_store(&is_ending, false);
    has_turn = false;
}

static void register_handlers(void)
{
    is_registered = pthread_atfork(NULL, NULL, forget_turns) == 0 && atexit(await_turns) == 0;
}

enum rdmux_status rdmux_exit_register(void)
{
    (void)pthread_once(&once, register_handlers);
    return is_registered ? RDMUX_OK
                         : rdmux_fail(RDMUX_NO_MEMORY, "fabric: no memory for a handler of exit()");
}

bool rdmux_exit_begin_turn(void)
{
    (void)atomic_fetch_add(&turns, 1);
    if (atomic_load(&is_ending)) {
        (void)atomic_fetch_sub(&turns, 1);
        return false;
    }
    has_turn = true;
    return true;
}

void rdmux_exit_end_turn(void)
{
    has_turn = false;
    (void)atomic_fetch_sub(&turns, 1);
}
