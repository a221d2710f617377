/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "adapters/ucx/ucx_environment.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/auxv.h>
#include <unistd.h>

/* A value that every version of UCX reads as "no" (its configuration parser). */
static bool is_no(const char *value)
{
    return strcasecmp(value, "n") == 0 || strcasecmp(value, "no") == 0 || strcmp(value, "0") == 0;
}

static bool is_none(const char *value)
{
    return strcmp(value, "none") == 0;
}

static bool is_zero(const char *value)
{
    return strcmp(value, "0") == 0;
}

static const struct {
    const char *name;
    const char *remedy;
    bool (*is_safe)(const char *value);
    const char *harm; /* of any other value, or of none */
} variables[] = {
    { "UCX_HANDLE_ERRORS", "none", is_none, "UCX installs handlers for SEGV, BUS, ILL and FPE" },
    { "UCX_DEBUG_SIGNO", "0", is_zero, "UCX installs a handler for HUP" },
    { "UCX_MEM_EVENTS", "n", is_no, "UCX replaces munmap() and its like in the C library" },
};
enum { VARIABLE_COUNT = sizeof(variables) / sizeof(variables[0]) };

static const char REMEDY
    [] = "start the program with UCX_HANDLE_ERRORS=none UCX_DEBUG_SIGNO=0 UCX_MEM_EVENTS=n in its "
         "environment";

/* Returns the value that the program was started with; NULL: none. */
static const char *start_value(const struct ucx_environment *environment, const char *name)
{
    const size_t length = strlen(name);
    const char *at = environment->start;
    const char *end = environment->start + environment->start_size;
    while (at != NULL && at < end) {
        const size_t size = strnlen(at, (size_t)(end - at));
        if (at + size < end && size > length && at[length] == '=' &&
            strncmp(at, name, length) == 0) {
            return at + length + 1;
        }
        at += size + 1;
    }
    return NULL;
}

bool rdmux_ucx_environment_is_safe(const struct ucx_environment *environment, char *text, char *hint)
{
    if (environment->is_secure) {
        (void)snprintf(text, RDMUX_TEXT_MAX,
                       "UCX obeys its user's environment, and this program has rights that its "
                       "user lacks");
        (void)snprintf(hint, RDMUX_TEXT_MAX, "use another path");
        return false;
    }
    for (size_t i = 0; i < VARIABLE_COUNT; i++) {
        const char *value = environment->get(variables[i].name);
        if (value != NULL && variables[i].is_safe(value)) {
            continue;
        }
        const char *start = start_value(environment, variables[i].name);
        const bool is_lost = start != NULL && variables[i].is_safe(start);
        (void)snprintf(text, RDMUX_TEXT_MAX, "UCX is not loaded: without %s=%s %s, for good%s",
                       variables[i].name, variables[i].remedy, variables[i].harm,
                       is_lost ? "; the program has changed that variable since it started" : "");
        (void)snprintf(hint, RDMUX_TEXT_MAX, "%s%s", REMEDY, is_lost ? " and leave it so" : "");
        return false;
    }
    text[0] = hint[0] = '\0';
    return true;
}

bool rdmux_ucx_process_is_safe(char *text, char *hint)
{
    /* 32 KiB serve for a text: an environment that is longer may have the variable behind that. */
    char start[32 * 1024];
    ssize_t size = 0;
    int fd = open("/proc/self/environ", O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        size = read(fd, start, sizeof(start));
        (void)close(fd);
    }
    const struct ucx_environment environment = {
        .get = getenv,
        .start = start,
        .start_size = size > 0 ? (size_t)size : 0,
        .is_secure = getauxval(AT_SECURE) != 0,
    };
    return rdmux_ucx_environment_is_safe(&environment, text, hint);
}
