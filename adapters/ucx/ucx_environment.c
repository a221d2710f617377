/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "adapters/ucx/ucx_environment.h"

#include <fcntl.h>
#include <fnmatch.h>
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

/* ------------------------------------------------------------------------------------ transports */

/* UCX's names for its transport ud, and for sets with it: rc and dc connect over ud. */
static const char *const ud_names[] = {
    "ud_verbs", "ud_mlx5", "ud", "ud_v", "ud_x", "rc", "rc_v", "rc_x", "dc", "dc_x", "ib", "all",
};
enum { UD_NAME_COUNT = sizeof(ud_names) / sizeof(ud_names[0]), NAME_MAX_SIZE = 64 };

/* Copies the first name of a list without its marks: "\\" (no set), ":aux". Returns where the next
 * one begins; NULL: it was the last. */
static const char *take_name(const char *list, char name[NAME_MAX_SIZE])
{
    const char *end = strchrnul(list, ',');
    list += *list == '\\' ? 1 : 0;
    const size_t length = strcspn(list, ",:");
    (void)snprintf(name, NAME_MAX_SIZE, "%.*s", (int)length, list);
    return *end == ',' ? end + 1 : NULL;
}

static bool is_ud(const char *name)
{
    for (size_t i = 0; i < UD_NAME_COUNT; i++) {
        if (fnmatch(name, ud_names[i], 0) == 0) { /* UCX takes patterns, too */
            return true;
        }
    }
    return false;
}

/* Returns whether UCX may use ud with this value of UCX_TLS. */
static bool may_use_ud(const char *tls)
{
    const bool excludes = tls[0] == '^';
    char name[NAME_MAX_SIZE];
    for (const char *at = excludes ? tls + 1 : tls; at != NULL;) {
        at = take_name(at, name);
        if (excludes ? strcmp(name, "ud") == 0 || strcmp(name, "ib") == 0 : is_ud(name)) {
            return !excludes;
        }
    }
    return excludes;
}

/* The first version that does not end the process when an endpoint over ud is closed before its
 * peer has answered (openucx/ucx #8175). */
enum { UD_SAFE_MAJOR = 1, UD_SAFE_MINOR = 14 };

bool rdmux_ucx_is_version(const char *version, unsigned major, unsigned minor)
{
    unsigned its_major = 0;
    unsigned its_minor = 0;
    return sscanf(version, "%u.%u", &its_major, &its_minor) == 2 &&
           (its_major > major || (its_major == major && its_minor >= minor));
}

bool rdmux_ucx_transports_are_safe(const char *tls, const char *version, char *text, char *hint)
{
    if (tls == NULL || !may_use_ud(tls) ||
        rdmux_ucx_is_version(version, UD_SAFE_MAJOR, UD_SAFE_MINOR)) {
        text[0] = hint[0] = '\0';
        return true;
    }
    (void)snprintf(
        text, RDMUX_TEXT_MAX,
        "UCX_TLS lets UCX %s use its transport ud, which ends the process by an assertion "
        "when a peer does not answer",
        version);
    (void)snprintf(hint, RDMUX_TEXT_MAX,
                   "unset UCX_TLS, or name transports without ud: UCX_TLS=tcp, "
                   "UCX_TLS=rc_verbs,tcp, UCX_TLS=rc_mlx5,tcp; or install UCX %d.%d or later",
                   UD_SAFE_MAJOR, UD_SAFE_MINOR);
    return false;
}
