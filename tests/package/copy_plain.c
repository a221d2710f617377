/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* A copy without plug-ins of its own: librdmux.so loads them. */
#include "copy.h"

const struct rdmux_plugin *const copy_builtin[] = { NULL };
const size_t copy_builtin_count = 0;
