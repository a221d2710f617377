/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Names of statuses, this thread's last error and explanation, the log, and the system services
 * behind the fabric's hooks. */
#include "api/core.h"

#include "negotiation/explain.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    ERROR_MAX = 2048,      /* bytes of the error text: every candidate of a negotiation fits */
    LINE_MAX_BYTES = 1024, /* bytes of a line of the log */
    ALIGNMENT = 64,
    SPARSE_FROM = 12 *
                  1024, /* bytes: from here on pages of its own cost less than what is never touched */
};

/* ---------------------------------------------------------------------------------------- names */

static const char *const status_names[] = {
    [RDMUX_OK] = "RDMUX_OK",
    [RDMUX_AGAIN] = "RDMUX_AGAIN",
    [RDMUX_IN_PROGRESS] = "RDMUX_IN_PROGRESS",
    [RDMUX_INVALID] = "RDMUX_INVALID",
    [RDMUX_UNSUPPORTED] = "RDMUX_UNSUPPORTED",
    [RDMUX_NO_MEMORY] = "RDMUX_NO_MEMORY",
    [RDMUX_NO_PATH] = "RDMUX_NO_PATH",
    [RDMUX_REFUSED] = "RDMUX_REFUSED",
    [RDMUX_TIMED_OUT] = "RDMUX_TIMED_OUT",
    [RDMUX_DENIED] = "RDMUX_DENIED",
    [RDMUX_OUT_OF_RANGE] = "RDMUX_OUT_OF_RANGE",
    [RDMUX_LENGTH] = "RDMUX_LENGTH",
    [RDMUX_FLUSHED] = "RDMUX_FLUSHED",
    [RDMUX_PEER_GONE] = "RDMUX_PEER_GONE",
    [RDMUX_OUTCOME_UNKNOWN] = "RDMUX_OUTCOME_UNKNOWN",
    [RDMUX_PROTOCOL] = "RDMUX_PROTOCOL",
    [RDMUX_VERSION] = "RDMUX_VERSION",
    [RDMUX_AUTH] = "RDMUX_AUTH",
    [RDMUX_IO] = "RDMUX_IO",
};

const char *rdmux_status_name(enum rdmux_status status)
{
    size_t number = (size_t)status;
    return number < RDMUX_COUNT_OF(status_names) ? status_names[number] : "RDMUX_?";
}

const char *rdmux_wc_opcode_name(uint32_t opcode)
{
    switch (opcode) {
    case RDMUX_WC_SEND:
        return "SEND";
    case RDMUX_WC_RECV:
        return "RECV";
    case RDMUX_WC_WRITE:
        return "WRITE";
    case RDMUX_WC_READ:
        return "READ";
    case RDMUX_WC_FETCH_ADD:
        return "FETCH_ADD";
    case RDMUX_WC_COMPARE_SWAP:
        return "COMPARE_SWAP";
    case RDMUX_WC_RECV_WRITE_IMM:
        return "RECV_WRITE_IMM";
    case RDMUX_WC_CONNECTED:
        return "CONNECTED";
    case RDMUX_WC_DISCONNECTED:
        return "DISCONNECTED";
    case RDMUX_WC_PATH_CHANGED:
        return "PATH_CHANGED";
    case RDMUX_WC_WRITABLE:
        return "WRITABLE";
    case RDMUX_WC_REMOTE_READY:
        return "REMOTE_READY";
    default:
        return "?";
    }
}

#define TEXT_OF(number) #number
#define VERSION_TEXT(major, minor, patch) TEXT_OF(major) "." TEXT_OF(minor) "." TEXT_OF(patch)

const char *rdmux_version(void)
{
    return VERSION_TEXT(RDMUX_VERSION_MAJOR, RDMUX_VERSION_MINOR, RDMUX_VERSION_PATCH);
}

/* --------------------------------------------------------------------------------------- errors */

static _Thread_local char error_text[ERROR_MAX];
static _Thread_local const char *standing_text; /* instead of error_text, where it is not NULL */

/* The arguments may point into the text that is there: "%s, while …" with rdmux_last_error(). */
static void set_error(const char *format, va_list arguments) RDMUX_PRINTF(1, 0);
static void set_error(const char *format, va_list arguments)
{
    char text[ERROR_MAX];
    int before = errno;
    int length = vsnprintf(text, sizeof(text), format, arguments);
    errno = before;
    if (length < 0) {
        text[0] = '\0';
    }
    memcpy(error_text, text, strlen(text) + 1);
    standing_text = NULL;
}

enum rdmux_status rdmux_again(const char *text)
{
    standing_text = text;
    return RDMUX_AGAIN;
}

const char *rdmux_last_error(void)
{
    return standing_text != NULL ? standing_text : error_text;
}

enum rdmux_status rdmux_fail(enum rdmux_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    set_error(format, arguments);
    va_end(arguments);
    return status;
}

void rdmux_error_clear(void)
{
    error_text[0] = '\0';
    standing_text = NULL;
}

void rdmux_provider_error(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    set_error(format, arguments);
    va_end(arguments);
}

/* ----------------------------------------------------------------------------- last explanation */

static pthread_once_t explanation_once = PTHREAD_ONCE_INIT;
static pthread_key_t explanation_key;
static bool explanation_key_made;

static void free_explanation(void *explanation)
{
    rdmux_explanation_free(explanation);
}

static void make_explanation_key(void)
{
    explanation_key_made = pthread_key_create(&explanation_key, free_explanation) == 0;
}

/* The key's destructor is code of this library: it must not be called once the library is
 * unloaded. */
__attribute__((destructor)) static void drop_explanation_key(void)
{
    if (explanation_key_made) {
        rdmux_explanation_free(pthread_getspecific(explanation_key));
        (void)pthread_key_delete(explanation_key);
        explanation_key_made = false;
    }
}

void rdmux_set_last_explanation(struct rdmux_explanation *explanation)
{
    (void)pthread_once(&explanation_once, make_explanation_key);
    if (!explanation_key_made) {
        rdmux_explanation_free(explanation);
        return;
    }
    struct rdmux_explanation *before = pthread_getspecific(explanation_key);
    if (pthread_setspecific(explanation_key, explanation) != 0) {
        rdmux_explanation_free(explanation);
        return;
    }
    rdmux_explanation_free(before);
}

enum rdmux_status rdmux_last_explanation(struct rdmux_explanation **out)
{
    if (out == NULL) {
        return rdmux_fail(RDMUX_INVALID, "last explanation: out is NULL");
    }
    *out = NULL;
    (void)pthread_once(&explanation_once, make_explanation_key);
    const struct rdmux_explanation *kept = explanation_key_made
                                               ? pthread_getspecific(explanation_key)
                                               : NULL;
    if (kept == NULL) {
        return rdmux_fail(RDMUX_AGAIN,
                          "last explanation: no call of this thread ended with NO_PATH");
    }
    /* The caller owns what it gets and may ask twice: it gets a copy. */
    size_t count = kept->candidate_count;
    struct rdmux_candidate *candidates = calloc(count > 0 ? count : 1, sizeof(*candidates));
    if (candidates == NULL) {
        return rdmux_fail(RDMUX_NO_MEMORY, "last explanation: no memory for %zu candidates", count);
    }
    for (size_t i = 0; i < count; i++) {
        candidates[i] = *kept->candidates[i];
    }
    struct rdmux_explanation *copy = rdmux_explanation_create(
        (enum rdmux_status)kept->status, candidates, count, kept->peer_address);
    free(candidates);
    if (copy == NULL) {
        return rdmux_fail(RDMUX_NO_MEMORY, "last explanation: no memory for %zu candidates", count);
    }
    *out = copy;
    return RDMUX_OK;
}

/* ------------------------------------------------------------------------------------------ log */

static const char *const level_names[] = {
    [RDMUX_LOG_NONE] = "none", [RDMUX_LOG_ERROR] = "error", [RDMUX_LOG_WARN] = "warn",
    [RDMUX_LOG_INFO] = "info", [RDMUX_LOG_DEBUG] = "debug", [RDMUX_LOG_TRACE] = "trace",
};

/* A file that is as long as RLIMIT_FSIZE lets it be raises SIGXFSZ, which would end the process. It is taken
 * back here, unless one was pending before. */
static void write_line(int fd, const char *line, size_t length)
{
    const struct timespec at_once = { 0 };
    sigset_t limit;
    sigset_t before;
    sigset_t pending;
    (void)sigemptyset(&limit);
    (void)sigaddset(&limit, SIGXFSZ);
    (void)pthread_sigmask(SIG_BLOCK, &limit, &before);
    (void)sigpending(&pending);
    ssize_t written = write(fd, line, length); /* if it fails there is nowhere to tell it */
    if (written < 0 && errno == EFBIG && sigismember(&pending, SIGXFSZ) == 0) {
        (void)sigtimedwait(&limit, NULL, &at_once);
    }
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void log_line(struct rdmux_fabric *fabric, enum rdmux_log_level level, const char *format,
                     va_list arguments) RDMUX_PRINTF(3, 0);
static void log_line(struct rdmux_fabric *fabric, enum rdmux_log_level level, const char *format,
                     va_list arguments)
{
    if ((uint32_t)level > fabric->log_level || (size_t)level >= RDMUX_COUNT_OF(level_names) ||
        level == RDMUX_LOG_NONE || (fabric->log == NULL && fabric->log_fd < 0)) {
        return;
    }
    int before = errno;
    char text[LINE_MAX_BYTES];
    if (vsnprintf(text, sizeof(text), format, arguments) < 0) {
        text[0] = '\0';
    }
    for (char *at = text; *at != '\0'; at++) {
        if (*at == '\n' || *at == '\r') {
            *at = ' ';
        }
    }
    if (fabric->log != NULL) {
        fabric->log(fabric->log_user, level, text);
    }
    if (fabric->log_fd >= 0) {
        /* One write, so that lines of several processes do not mix in one file. */
        char line[LINE_MAX_BYTES + 64];
        int length = snprintf(line, sizeof(line), "rdmux[%d] %s: %s\n", (int)getpid(),
                              level_names[level], text);
        if (length > 0) {
            write_line(fabric->log_fd, line, (size_t)length);
        }
    }
    errno = before;
}

void rdmux_log(struct rdmux_fabric *fabric, enum rdmux_log_level level, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    log_line(fabric, level, format, arguments);
    va_end(arguments);
}

void rdmux_provider_log(struct rdmux_fabric *fabric, enum rdmux_log_level level, const char *format,
                        ...)
{
    va_list arguments;
    va_start(arguments, format);
    log_line(fabric, level, format, arguments);
    va_end(arguments);
}

/* --------------------------------------------------------------------------------------- memory */

/* What stands right before memory that was given out. */
struct allocation {
    void *given;
    size_t mapped; /* bytes at given, 0: from malloc or the hook, which align for any type only */
};

static void *map_pages(size_t size)
{
#if defined(__SANITIZE_ADDRESS__)
    (void)size; /* it watches what malloc gives */
    return NULL;
#else
    void *given = size < SPARSE_FROM ? MAP_FAILED
                                     : mmap(NULL, size, PROT_READ | PROT_WRITE,
                                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return given == MAP_FAILED ? NULL : given;
#endif
}

static void *allocate(struct rdmux_fabric *fabric, size_t size, bool sparse)
{
    const size_t extra = sizeof(struct allocation) + ALIGNMENT - 1;
    if (size > SIZE_MAX - extra) {
        return NULL;
    }
    struct allocation allocation = { .mapped = size + extra };
    if (sparse && fabric->allocate == NULL) {
        allocation.given = map_pages(size + extra);
    }
    if (allocation.given == NULL) {
        allocation.mapped = 0;
        allocation.given = fabric->allocate != NULL
                               ? fabric->allocate(fabric->allocate_user, size + extra)
                               : malloc(size + extra);
    }
    if (allocation.given == NULL) {
        return NULL;
    }
    uintptr_t first = (uintptr_t)allocation.given + sizeof(allocation);
    size_t skip = sizeof(allocation) + (size_t)(-first & (ALIGNMENT - 1));
    unsigned char *memory = (unsigned char *)allocation.given + skip;
    memcpy(memory - sizeof(allocation), &allocation, sizeof(allocation));
    if (allocation.mapped == 0) {
        memset(memory, 0, size);
    }
    return memory;
}

void *rdmux_allocate(struct rdmux_fabric *fabric, size_t size)
{
    return allocate(fabric, size, false);
}

void *rdmux_allocate_sparse(struct rdmux_fabric *fabric, size_t size)
{
    return allocate(fabric, size, true);
}

void rdmux_release(struct rdmux_fabric *fabric, void *memory)
{
    if (memory == NULL) {
        return;
    }
    struct allocation allocation;
    memcpy(&allocation, (unsigned char *)memory - sizeof(allocation), sizeof(allocation));
    if (allocation.mapped != 0) {
        munmap(allocation.given, allocation.mapped);
    } else if (fabric->allocate == NULL) {
        free(allocation.given);
    } else if (fabric->release != NULL) {
        fabric->release(fabric->allocate_user, allocation.given);
    }
}

void *rdmux_provider_allocate(struct rdmux_fabric *fabric, size_t size)
{
    return rdmux_allocate(fabric, size);
}

void rdmux_provider_release(struct rdmux_fabric *fabric, void *memory)
{
    rdmux_release(fabric, memory);
}

/* ------------------------------------------------------------------------ random, time, barrier */

enum rdmux_status rdmux_random(struct rdmux_fabric *fabric, void *out, size_t size)
{
    if (fabric->random != NULL) {
        if (fabric->random(fabric->random_user, out, size) != 0) {
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

int rdmux_provider_may_start_threads(const struct rdmux_fabric *fabric)
{
    return (fabric->flags & RDMUX_FABRIC_NO_WORKER_THREAD) == 0;
}

uint64_t rdmux_provider_now_ns(struct rdmux_fabric *fabric)
{
    return rdmux_now(fabric);
}

void rdmux_membarrier(void)
{
    /* Cannot fail where the fabric found it to work: it was registered for then. */
    (void)syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
}
