/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The log: writes lines to the program's hook, and to the file that RDMUX_LOG names or to standard
 * error. */
#include "api/base/compiler.h"
#include "api/base/error.h"
#include "api/base/hooks.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    LINE_MAX_BYTES = 1024, /* bytes of a log line */
    TIME_SIZE = 32,
};

static const char *const level_names[] = {
    [RDMUX_LOG_NONE] = "none", [RDMUX_LOG_ERROR] = "error", [RDMUX_LOG_WARN] = "warn",
    [RDMUX_LOG_INFO] = "info", [RDMUX_LOG_DEBUG] = "debug", [RDMUX_LOG_TRACE] = "trace",
};

static const char *const category_names[] = {
    [RDMUX_CATEGORY_FABRIC] = "fabric",           [RDMUX_CATEGORY_PROVIDER] = "provider",
    [RDMUX_CATEGORY_NEGOTIATION] = "negotiation", [RDMUX_CATEGORY_ENDPOINT] = "endpoint",
    [RDMUX_CATEGORY_LISTENER] = "listener",       [RDMUX_CATEGORY_MEMORY] = "memory",
    [RDMUX_CATEGORY_FAILOVER] = "failover",       [RDMUX_CATEGORY_CONTROL] = "control",
};

const char *rdmux_log_category_name(enum rdmux_log_category category)
{
    return (size_t)category < RDMUX_COUNT_OF(category_names) ? category_names[category] : "?";
}

/* The category of the object that a line begins with. */
static uint32_t category_of(const char *line)
{
    static const struct {
        const char *object;
        enum rdmux_log_category category;
    } objects[] = {
        { "endpoint ", RDMUX_CATEGORY_ENDPOINT }, { "listener", RDMUX_CATEGORY_LISTENER },
        { "region ", RDMUX_CATEGORY_MEMORY },     { "region: ", RDMUX_CATEGORY_MEMORY },
        { "provider ", RDMUX_CATEGORY_PROVIDER }, { "plug-in ", RDMUX_CATEGORY_PROVIDER },
        { "srq: ", RDMUX_CATEGORY_ENDPOINT },
    };
    for (size_t i = 0; i < RDMUX_COUNT_OF(objects); i++) {
        if (strncmp(line, objects[i].object, strlen(objects[i].object)) == 0) {
            return objects[i].category;
        }
    }
    return RDMUX_CATEGORY_FABRIC;
}

/* A write beyond RLIMIT_FSIZE raises SIGXFSZ, which would end the process, so this function blocks
 * the signal and consumes it, unless one was pending before. */
ssize_t rdmux_log_write(int fd, const void *bytes, size_t size)
{
    const struct timespec at_once = { 0 };
    sigset_t limit;
    sigset_t before;
    sigset_t pending;
    (void)sigemptyset(&limit);
    (void)sigaddset(&limit, SIGXFSZ);
    (void)pthread_sigmask(SIG_BLOCK, &limit, &before);
    (void)sigpending(&pending);
    const ssize_t written = write(fd, bytes, size);
    const int error = errno;
    if (written < 0 && error == EFBIG && sigismember(&pending, SIGXFSZ) == 0) {
        (void)sigtimedwait(&limit, NULL, &at_once);
    }
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = error;
    return written;
}

/* "2026-11-28T13:05:22.123456Z" */
static void format_time(uint64_t time_ns, char out[TIME_SIZE])
{
    time_t seconds = (time_t)(time_ns / 1000000000);
    struct tm parts;
    char date[TIME_SIZE];
    if (gmtime_r(&seconds, &parts) == NULL ||
        strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%S", &parts) == 0) {
        date[0] = '\0';
    }
    (void)snprintf(out, TIME_SIZE, "%.20s.%06uZ", date, (unsigned)(time_ns % 1000000000 / 1000));
}

/* A line stays one line, and a terminal obeys nothing in it: texts of peers are in it. */
static void clean(char *text)
{
    for (char *at = text; *at != '\0'; at++) {
        if (*at == '\n' || *at == '\r') {
            *at = ' ';
        } else if ((unsigned char)*at < 0x20 || *at == 0x7f) {
            *at = '?';
        }
    }
}

bool rdmux_log_wants(struct rdmux_fabric *fabric, enum rdmux_log_level level)
{
    const struct rdmux_hooks *hooks = rdmux_hooks_of(fabric);
    return (uint32_t)level <= hooks->log_level &&
           (hooks->log_event != NULL || hooks->log != NULL || hooks->log_fd >= 0);
}

static void write_to_file(const struct rdmux_hooks *hooks, const struct rdmux_log_event *event)
{
    char time[TIME_SIZE];
    char line[LINE_MAX_BYTES + TIME_SIZE + 64];
    format_time(event->time_ns, time);
    /* A single write keeps the lines of several processes in one file apart. */
    int length = snprintf(line, sizeof(line), "%s rdmux[%d] %s %s: %s\n", time, (int)getpid(),
                          level_names[event->level], category_names[event->category], event->line);
    if (length > 0) {
        (void)rdmux_log_write(hooks->log_fd, line, (size_t)length); /* there is no other log */
    }
}

/* category: UINT32_MAX: that of the object in front of the line. */
static void log_line(struct rdmux_fabric *fabric, uint32_t category, enum rdmux_log_level level,
                     const char *format, va_list arguments) RDMUX_PRINTF(4, 0);
static void log_line(struct rdmux_fabric *fabric, uint32_t category, enum rdmux_log_level level,
                     const char *format, va_list arguments)
{
    const struct rdmux_hooks *hooks = rdmux_hooks_of(fabric);
    if (level == RDMUX_LOG_NONE || (size_t)level >= RDMUX_COUNT_OF(level_names) ||
        !rdmux_log_wants(fabric, level)) {
        return;
    }
    int before = errno;
    char text[LINE_MAX_BYTES];
    struct timespec now;
    if (vsnprintf(text, sizeof(text), format, arguments) < 0) {
        text[0] = '\0';
    }
    clean(text);
    clock_gettime(CLOCK_REALTIME, &now);
    const struct rdmux_log_event event = {
        .size = sizeof(event),
        .level = level,
        .category = category < RDMUX_COUNT_OF(category_names) ? category : category_of(text),
        .time_ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec,
        .line = text,
    };
    if (hooks->log_event != NULL) {
        hooks->log_event(hooks->log_user, &event);
    } else if (hooks->log != NULL) {
        hooks->log(hooks->log_user, level, text);
    }
    if (hooks->log_fd >= 0 && (hooks->log_muted & UINT32_C(1) << event.category) == 0) {
        write_to_file(hooks, &event);
    }
    errno = before;
}

void rdmux_log(struct rdmux_fabric *fabric, enum rdmux_log_level level, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    log_line(fabric, UINT32_MAX, level, format, arguments);
    va_end(arguments);
}

void rdmux_log_about(struct rdmux_fabric *fabric, enum rdmux_log_category category,
                     enum rdmux_log_level level, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    log_line(fabric, category, level, format, arguments);
    va_end(arguments);
}

void rdmux_provider_log(struct rdmux_fabric *fabric, enum rdmux_log_level level, const char *format,
                        ...)
{
    va_list arguments;
    va_start(arguments, format);
    log_line(fabric, RDMUX_CATEGORY_PROVIDER, level, format, arguments);
    va_end(arguments);
}

/* ------------------------------------------------------------------------------- the environment */

/* Reads "CATEGORY,CATEGORY". Returns whether it knows all. */
static bool take_categories(struct rdmux_hooks *hooks, const char *text, size_t size)
{
    hooks->log_muted = UINT32_MAX;
    for (size_t at = 0; at < size;) {
        const char *comma = memchr(text + at, ',', size - at);
        size_t length = comma == NULL ? size - at : (size_t)(comma - text) - at;
        size_t category = 0;
        while (category < RDMUX_COUNT_OF(category_names) &&
               (strlen(category_names[category]) != length ||
                memcmp(category_names[category], text + at, length) != 0)) {
            category++;
        }
        if (category == RDMUX_COUNT_OF(category_names)) {
            return false;
        }
        hooks->log_muted &= ~(UINT32_C(1) << category);
        at += length + 1;
    }
    return size != 0;
}

static enum rdmux_status open_file(struct rdmux_hooks *hooks, const char *path)
{
    hooks->log_fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0600);
    return hooks->log_fd >= 0 ? RDMUX_OK
                              : rdmux_fail(RDMUX_IO, "RDMUX_LOG: cannot write to \"%s\": %s", path,
                                           strerror(errno));
}

enum rdmux_status rdmux_log_take_setting(struct rdmux_fabric *fabric, const char *text)
{
    struct rdmux_hooks *hooks = rdmux_hooks_of(fabric);
    size_t length = strcspn(text, "@:");
    size_t end = strcspn(text, ":");
    for (uint32_t level = 0; level < RDMUX_COUNT_OF(level_names); level++) {
        if (strlen(level_names[level]) != length || strncmp(level_names[level], text, length) != 0) {
            continue;
        }
        if (end != length && !take_categories(hooks, text + length + 1, end - length - 1)) {
            break;
        }
        if (text[end] == ':') {
            hooks->log_level = level > hooks->log_level ? level : hooks->log_level;
            return open_file(hooks, text + end + 1);
        }
        if (hooks->log == NULL && hooks->log_event == NULL && level != RDMUX_LOG_NONE) {
            hooks->log_fd = STDERR_FILENO;
        }
        hooks->log_level = level > hooks->log_level ? level : hooks->log_level;
        return RDMUX_OK;
    }
    return rdmux_fail(RDMUX_INVALID,
                      "RDMUX_LOG \"%s\" is not LEVEL[@CATEGORY,...][:FILE] with error, warn, info, "
                      "debug or trace, and fabric, provider, negotiation, endpoint, listener, "
                      "memory, failover or control",
                      text);
}

void rdmux_log_close(struct rdmux_fabric *fabric)
{
    struct rdmux_hooks *hooks = rdmux_hooks_of(fabric);
    if (hooks->log_fd >= 0 && hooks->log_fd != STDERR_FILENO) {
        close(hooks->log_fd);
    }
    hooks->log_fd = -1;
}
