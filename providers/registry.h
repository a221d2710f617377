/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Provider registry of a fabric: the built-in providers and those of plug-ins. registry.c also
 * implements rdmux_fabric_offer_paths() of core.h. */
#ifndef RDMUX_PROVIDERS_REGISTRY_H
#define RDMUX_PROVIDERS_REGISTRY_H

#include "api/core.h"

/*
 * Fills fabric->registry: the built-in providers, then the plug-ins (files *.so, sorted by name) in
 * rdmux_plugin_folder(), in attr->provider_dir and in environment_dir, then attr->plugins. The
 * first provider of a name wins. Refused plug-ins and providers become entries without a table that
 * say why. So do ib, roce and iwarp if no plug-in provides them.
 * attr             Full-size structure, every field is present. With
 *                  RDMUX_FABRIC_NO_DEFAULT_PLUGINS only the built-in providers and attr->plugins
 *                  are used.
 * environment_dir  NULL or "": none.
 * Errors           RDMUX_NO_MEMORY. A bad plug-in is no error.
 */
enum rdmux_status rdmux_registry_fill(struct rdmux_fabric *fabric,
                                      const struct rdmux_fabric_attr *attr,
                                      const char *environment_dir);
/* The last step of rdmux_registry_fill(): adds an entry with a reason for each of ib, roce and
 * iwarp that no plug-in provides, so that every explanation lists them. */
void rdmux_registry_add_absent(struct rdmux_fabric *fabric);

#endif
