/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * verbs_plugin.h - the providers ib, roce and iwarp as a part of a program.
 *
 * A program that links librdmux.a links librdmux_verbs.a as well, and names this plug-in when it
 * opens a fabric:
 *
 *     static const struct rdmux_plugin *const builtin[] = { &rdmux_verbs_plugin };
 *     struct rdmux_fabric_attr attr = RDMUX_FABRIC_ATTR_INIT;
 *     attr.builtin = builtin;
 *     attr.builtin_count = 1;
 *
 * CMake: rdmux::verbs_static. pkg-config: rdmux-verbs-static. Both bring librdmux.a, libibverbs and
 * librdmacm. A program that links librdmux.so has no use for it: that library loads rdmux-verbs.so.
 */
#ifndef RDMUX_VERBS_PLUGIN_H
#define RDMUX_VERBS_PLUGIN_H

#include <rdmux/rdmux.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The providers ib, roce and iwarp. In librdmux_verbs.a, not in librdmux.so. */
extern const struct rdmux_plugin rdmux_verbs_plugin;

#ifdef __cplusplus
}
#endif

#endif
