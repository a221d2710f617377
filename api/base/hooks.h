/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The hooks and threads of a fabric. A program may replace log, memory, clock and random bytes,
 * each of which has a default. A fabric begins with its hooks, so that a layer can use them without
 * knowing anything else of the fabric. */
#ifndef RDMUX_API_BASE_HOOKS_H
#define RDMUX_API_BASE_HOOKS_H

#include <rdmux/provider.h>

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct rdmux_capture;     /* base/capture.c */
struct rdmux_secret_page; /* base/secrets.c */
struct rdmux_service;     /* loop/service.c */
struct rdmux_worker;      /* loop/worker.c */

/* The first member of struct rdmux_fabric. Written while the fabric is opened, then constant except
 * for secrets and shed. */
struct rdmux_hooks {
    uint32_t log_level;
    int log_fd; /* -1: none */
    void (*log)(void *user, enum rdmux_log_level level, const char *line);
    void (*log_event)(void *user, const struct rdmux_log_event *event);
    void *log_user;
    uint32_t log_muted; /* bits of the categories that log_fd does not get */
    void *(*allocate)(void *user, size_t size);
    void (*release)(void *user, void *memory);
    void *allocate_user;
    uint64_t (*clock_ns)(void *user);
    void *clock_user;
    int (*random)(void *user, void *out, size_t size);
    void *random_user;
    int (*thread_start)(void *user, const char *name);
    void *thread_user;
    pthread_mutex_t secrets_lock; /* a leaf of the lock order */
    struct rdmux_secret_page *secrets;
    uint32_t flags;                /* RDMUX_FABRIC_* */
    struct rdmux_capture *capture; /* NULL: none */
    struct rdmux_service *service;
    struct rdmux_worker *worker;
    /* Drops one pending connection to free its descriptors. Returns false if there is none. NULL:
     * the fabric has never listened. */
    bool (*_Atomic shed)(struct rdmux_fabric *fabric, const char *why);
};

static inline struct rdmux_hooks *rdmux_hooks_of(struct rdmux_fabric *fabric)
{
    return (struct rdmux_hooks *)(void *)fabric;
}

/* Returns whether the fabric has no service thread: the application's calls do its work. */
static inline bool rdmux_fabric_is_manual(const struct rdmux_fabric *fabric)
{
    const struct rdmux_hooks *hooks = (const struct rdmux_hooks *)(const void *)fabric;
    return (hooks->flags & RDMUX_FABRIC_NO_SERVICE_THREAD) != 0;
}

/* Returns whether requests without a region use one that covers their bytes. */
static inline bool rdmux_fabric_finds_regions(const struct rdmux_fabric *fabric)
{
    const struct rdmux_hooks *hooks = (const struct rdmux_hooks *)(const void *)fabric;
    return (hooks->flags & RDMUX_FABRIC_FIND_REGIONS) != 0;
}

/* The category of the line is that of the object that the line begins with: "endpoint 7: …". */
void rdmux_log(struct rdmux_fabric *fabric, enum rdmux_log_level level, const char *format, ...)
    RDMUX_PRINTF(3, 4);
/* The same for lines about what an object does: its negotiation, its failover. */
void rdmux_log_about(struct rdmux_fabric *fabric, enum rdmux_log_category category,
                     enum rdmux_log_level level, const char *format, ...) RDMUX_PRINTF(4, 5);
/* Returns whether a line of this level goes anywhere, for lines that take work to compose. */
bool rdmux_log_wants(struct rdmux_fabric *fabric, enum rdmux_log_level level);
/* Reads RDMUX_LOG. RDMUX_INVALID, RDMUX_IO. */
enum rdmux_status rdmux_log_take_setting(struct rdmux_fabric *fabric, const char *text);
/* Writes to a file that the program does not expect: like write(2), but a limit on the size of files
 * is an error, not a signal. */
ssize_t rdmux_log_write(int fd, const void *bytes, size_t size);
/* Closes the log's file. */
void rdmux_log_close(struct rdmux_fabric *fabric);

enum { RDMUX_NS_PER_MS = 1000000 };

static inline uint64_t rdmux_now(const struct rdmux_fabric *fabric)
{
    const struct rdmux_hooks *hooks = (const struct rdmux_hooks *)(const void *)fabric;
    return hooks->clock_ns(hooks->clock_user);
}

/* Allocates zeroed memory, aligned to 64 bytes. */
void *rdmux_allocate(struct rdmux_fabric *fabric, size_t size);
/* Allocates in the same way memory that an idle object may never touch: only touched pages become
 * resident. */
void *rdmux_allocate_sparse(struct rdmux_fabric *fabric, size_t size);
void rdmux_release(struct rdmux_fabric *fabric, void *memory);

enum rdmux_status rdmux_random(struct rdmux_fabric *fabric, void *out, size_t size);

/* Starts a thread of the library, which takes no signals. The fabric's hook sees it first; then the
 * call waits for the hook. RDMUX_NO_MEMORY, RDMUX_IO (the hook refused the thread). */
enum rdmux_status rdmux_thread_start(struct rdmux_fabric *fabric, pthread_t *thread,
                                     void *(*run)(void *), void *argument, const char *name);

#endif
