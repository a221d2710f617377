/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Whether this process may load UCX's libraries.
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

#endif
