/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* A library that reports by an exit status that it was loaded. */
#include "plugin_opener.h"

#include <unistd.h>

__attribute__((constructor)) static void spring(void)
{
    _exit(OPENER_TRAPPED);
}
