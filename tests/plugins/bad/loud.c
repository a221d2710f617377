/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* A plug-in whose code ends the process as soon as the file is loaded, before any call. */
#include <rdmux/provider.h>

#include <unistd.h>

enum { RAN = 42 };

RDMUX_API const struct rdmux_plugin *rdmux_plugin(void);

__attribute__((constructor)) static void run(void)
{
    _exit(RAN);
}

const struct rdmux_plugin *rdmux_plugin(void)
{
    return NULL;
}
