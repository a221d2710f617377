/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* A copy with ib, roce and iwarp linked in. */
#include "copy.h"

#include <rdmux/verbs_plugin.h>

const struct rdmux_plugin *const copy_builtin[] = { &rdmux_verbs_plugin };
const size_t copy_builtin_count = 1;
