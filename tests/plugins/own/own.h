/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The plug-ins that plugin_user has linked in. */
#ifndef RDMUX_TESTS_PLUGINS_OWN_H
#define RDMUX_TESTS_PLUGINS_OWN_H

#include <rdmux/rdmux.h>

extern const struct rdmux_plugin *const own_plugins[];
extern const size_t own_plugin_count;

#endif
