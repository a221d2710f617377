/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The log: writes lines to the program's hook and to the file that RDMUX_LOG names. */
#include "api/base/compiler.h"
#include "api/base/hooks.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LINE_MAX_BYTES = 1024 }; /* bytes of a log line */

static const char *const level_names[] = {
    [RDMUX_LOG_NONE] = "none", [RDMUX_LOG_ERROR] = "error", [RDMUX_LOG_WARN] = "warn",
    [RDMUX_LOG_INFO] = "info", [RDMUX_LOG_DEBUG] = "debug", [RDMUX_LOG_TRACE] = "trace",
};

/* Writes a line. A write beyond RLIMIT_FSIZE raises SIGXFSZ, which would end the process, so this
 * function blocks the signal and consumes it, unless one was pending before. */
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
    ssize_t written = write(fd, line, length); /* a failure cannot be reported anywhere */
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
    const struct rdmux_hooks *hooks = rdmux_hooks_of(fabric);
    if ((uint32_t)level > hooks->log_level || (size_t)level >= RDMUX_COUNT_OF(level_names) ||
        level == RDMUX_LOG_NONE || (hooks->log == NULL && hooks->log_fd < 0)) {
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
    if (hooks->log != NULL) {
        hooks->log(hooks->log_user, level, text);
    }
    if (hooks->log_fd >= 0) {
        /* A single write keeps the lines of several processes in one file apart. */
        char line[LINE_MAX_BYTES + 64];
        int length = snprintf(line, sizeof(line), "rdmux[%d] %s: %s\n", (int)getpid(),
                              level_names[level], text);
        if (length > 0) {
            write_line(hooks->log_fd, line, (size_t)length);
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
