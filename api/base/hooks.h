/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* What a program may replace for a fabric, and what stands behind it otherwise: log, memory, clock, random bytes; and the fabric's
 * threads. A fabric begins with them, so a layer that knows nothing else of a fabric can use them. */
#ifndef RDMUX_API_BASE_HOOKS_H
#define RDMUX_API_BASE_HOOKS_H

#include <rdmux/provider.h>

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rdmux_secret_page; /* secrets.c */
struct rdmux_service;     /* progress/service.c */
struct rdmux_worker;      /* progress/worker.c */

/* The first member of struct rdmux_fabric. Written while it is opened, then constant, but for secrets. */
struct rdmux_hooks {
    uint32_t log_level;
    int log_fd; /* -1: none */
    void (*log)(void *user, enum rdmux_log_level level, const char *line);
    void *log_user;
    void *(*allocate)(void *user, size_t size);
    void (*release)(void *user, void *memory);
    void *allocate_user;
    uint64_t (*clock_ns)(void *user);
    void *clock_user;
    int (*random)(void *user, void *out, size_t size);
    void *random_user;
    pthread_mutex_t secrets_lock; /* a leaf */
    struct rdmux_secret_page *secrets;
    uint32_t flags; /* RDMUX_FABRIC_* */
    struct rdmux_service *service;
    struct rdmux_worker *worker;
    /* Gives one connection up that nobody has accepted, for its descriptors; false: there is none. NULL: the fabric
     * has never listened. */
    bool (*_Atomic shed)(struct rdmux_fabric *fabric, const char *why);
};

static inline struct rdmux_hooks *rdmux_hooks_of(struct rdmux_fabric *fabric)
{
    return (struct rdmux_hooks *)(void *)fabric;
}

/* The application's calls do what the service thread does otherwise. */
static inline bool rdmux_fabric_is_manual(const struct rdmux_fabric *fabric)
{
    const struct rdmux_hooks *hooks = (const struct rdmux_hooks *)(const void *)fabric;
    return (hooks->flags & RDMUX_FABRIC_NO_SERVICE_THREAD) != 0;
}

void rdmux_log(struct rdmux_fabric *fabric, enum rdmux_log_level level, const char *format, ...)
    RDMUX_PRINTF(3, 4);

static inline uint64_t rdmux_now(const struct rdmux_fabric *fabric)
{
    const struct rdmux_hooks *hooks = (const struct rdmux_hooks *)(const void *)fabric;
    return hooks->clock_ns(hooks->clock_user);
}

/* Zeroed, aligned to 64 bytes. */
void *rdmux_allocate(struct rdmux_fabric *fabric, size_t size);
/* The same for what an idle object may never touch: only touched pages become resident. */
void *rdmux_allocate_sparse(struct rdmux_fabric *fabric, size_t size);
void rdmux_release(struct rdmux_fabric *fabric, void *memory);

enum rdmux_status rdmux_random(struct rdmux_fabric *fabric, void *out, size_t size);

/* Starts a thread of the library's, which takes no signals. RDMUX_NO_MEMORY. */
enum rdmux_status rdmux_thread_start(pthread_t *thread, void *(*run)(void *), void *argument,
                                     const char *name);

/* Makes every running thread of the process pass a full barrier. Only where it was found to work. */
void rdmux_membarrier(void);

#endif
