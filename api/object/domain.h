/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Provider domains of a fabric. */
#ifndef RDMUX_API_OBJECT_DOMAIN_H
#define RDMUX_API_OBJECT_DOMAIN_H

#include "api/core/fabric.h"

/* Returns the domain for a path. The first call opens the domain and registers all living regions
 * with it. */
enum rdmux_status rdmux_fabric_domain(struct rdmux_fabric *fabric,
                                      const struct rdmux_provider_ops *ops,
                                      const struct rdmux_local_path *path,
                                      struct rdmux_provider_domain **out);
/* Returns whether the domain is open. Never opens one and never waits: returns false while another
 * thread holds setup_lock, such as to open a domain. */
bool rdmux_fabric_domain_is_open(struct rdmux_fabric *fabric, const struct rdmux_provider_ops *ops,
                                 const struct rdmux_local_path *path);

#endif
