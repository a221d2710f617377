/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* A program that links no plug-in. */
#include "own.h"

const struct rdmux_plugin *const own_plugins[] = { NULL };
const size_t own_plugin_count = 0;
