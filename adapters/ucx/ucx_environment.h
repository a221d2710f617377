/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Whether this process may load UCX's libraries, and use the transports that its user named.
 *
 * Their constructors install handlers for signals and replace functions of the C library, unless
 * the environment forbids it. Afterwards nothing undoes it: not dlclose(), and no call of UCX. So
 * rdmux looks at the environment before it loads them. */
#ifndef RDMUX_ADAPTERS_UCX_ENVIRONMENT_H
#define RDMUX_ADAPTERS_UCX_ENVIRONMENT_H

#include <rdmux/rdmux.h>

#include <stdbool.h>
#include <stddef.h>

/* What the answer depends on. */
struct ucx_environment {
    /* The variables as UCX's constructors will see them; getenv() has this type. */
    char *(*get)(const char *name);
    /* The environment that the program was started with: strings of the form NAME=VALUE, each with
     * its terminating zero. NULL and 0: not known. */
    const char *start;
    size_t start_size;
    /* The program has rights that its user lacks (AT_SECURE). */
    bool is_secure;
};

/* Returns whether UCX's libraries change nothing in a process with this environment. If they would,
 * text gets the cause and hint the remedy, at most RDMUX_TEXT_MAX bytes each. Threads: any. */
bool rdmux_ucx_environment_is_safe(const struct ucx_environment *environment, char *text,
                                   char *hint);

/* The same about this process. */
bool rdmux_ucx_process_is_safe(char *text, char *hint);

/* Returns whether a version of UCX ("1.13.1") is major.minor or a later one. Threads: any. */
bool rdmux_ucx_is_version(const char *version, unsigned major, unsigned minor);

/*
 * Returns whether this version of UCX ("1.13.1") keeps the process alive over the transports that a
 * list names. tls is the value of UCX_TLS, or NULL. If not, text and hint get cause and remedy, at
 * most RDMUX_TEXT_MAX bytes each. Threads: any.
 */
bool rdmux_ucx_transports_are_safe(const char *tls, const char *version, char *text, char *hint);

#endif
