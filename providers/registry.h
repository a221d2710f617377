/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The providers of a fabric: those built in, and those of plug-ins. rdmux_fabric_offer_paths()
 * of core.h is here, too. */
#ifndef RDMUX_PROVIDERS_REGISTRY_H
#define RDMUX_PROVIDERS_REGISTRY_H

#include "api/core.h"

/*
 * Fills fabric->registry: the built-in providers, then the plug-ins (files *.so by name) in rdmux/
 * beside librdmux.so, in attr->provider_dir, in environment_dir, then attr->plugins. The first
 * provider of a name wins. What was refused, and ib, roce and iwarp where nobody provides them,
 * become entries without table that say why.
 * attr             All of its fields are there. RDMUX_FABRIC_NO_DEFAULT_PLUGINS leaves built-in
 *                  ones and attr->plugins.
 * environment_dir  NULL or "": none.
 * Errors           RDMUX_NO_MEMORY. A plug-in that is no good is none.
 */
enum rdmux_status rdmux_registry_fill(struct rdmux_fabric *fabric,
                                      const struct rdmux_fabric_attr *attr,
                                      const char *environment_dir);
/* The last part of it: ib, roce and iwarp are in every explanation, with the reason why nobody
 * provides them. */
void rdmux_registry_add_absent(struct rdmux_fabric *fabric);

#endif
