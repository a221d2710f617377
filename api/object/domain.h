/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Provider domains of a fabric. */
#ifndef RDMUX_API_OBJECT_DOMAIN_H
#define RDMUX_API_OBJECT_DOMAIN_H

#include "api/core/fabric.h"

/* The domain for a path, opened when first asked for (and then all living regions registered with
 * it). */
enum rdmux_status rdmux_fabric_domain(struct rdmux_fabric *fabric,
                                      const struct rdmux_provider_ops *ops,
                                      const struct rdmux_local_path *path,
                                      struct rdmux_provider_domain **out);
/* The same without opening: false if it is not open, or somebody is opening one just now. Never waits. */
bool rdmux_fabric_domain_is_open(struct rdmux_fabric *fabric, const struct rdmux_provider_ops *ops,
                                 const struct rdmux_local_path *path);

#endif
