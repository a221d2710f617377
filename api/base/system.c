/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Random bytes, time, library threads, and the barrier of all threads. */
#include "api/base/error.h"
#include "api/base/hooks.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

enum rdmux_status rdmux_random(struct rdmux_fabric *fabric, void *out, size_t size)
{
    const struct rdmux_hooks *hooks = rdmux_hooks_of(fabric);
    if (hooks->random != NULL) {
        if (hooks->random(hooks->random_user, out, size) != 0) {
            return rdmux_fail(RDMUX_IO, "random: the fabric's hook has no %zu bytes to give", size);
        }
        return RDMUX_OK;
    }
    unsigned char *at = out;
    while (size > 0) {
        ssize_t got = getrandom(at, size, 0);
        if (got < 0) {
            if (errno == EINTR) {
                continue;
            }
            return rdmux_fail(RDMUX_IO, "random: getrandom: %s", strerror(errno));
        }
        at += got;
        size -= (size_t)got;
    }
    return RDMUX_OK;
}

enum rdmux_status rdmux_provider_random(struct rdmux_fabric *fabric, void *out, size_t size)
{
    return rdmux_random(fabric, out, size);
}

uint64_t rdmux_provider_now_ns(struct rdmux_fabric *fabric)
{
    return rdmux_now(fabric);
}

void rdmux_membarrier(void)
{
    /* Cannot fail: the fabric registered for it when it found membarrier(2) to work. */
    (void)syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
}

enum rdmux_status rdmux_thread_start(pthread_t *thread, void *(*run)(void *), void *argument,
                                     const char *name)
{
    /* Signals belong to the application: library threads block all of them. */
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(thread, NULL, run, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error != 0) {
        return rdmux_fail(RDMUX_NO_MEMORY, "fabric: cannot start its %s thread: errno %d", name,
                          error);
    }
    pthread_setname_np(*thread, name);
    return RDMUX_OK;
}
