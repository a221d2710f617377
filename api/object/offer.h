/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The paths that a fabric offers to peers. */
#ifndef RDMUX_API_OBJECT_OFFER_H
#define RDMUX_API_OBJECT_OFFER_H

#include "api/core/fabric.h"

/* RDMUX_INVALID: no filter, or one that names a provider nobody knows. source names it in the
 * text. */
enum rdmux_status rdmux_fabric_check_filter(struct rdmux_fabric *fabric, const char *source,
                                            const char *filter);
/* fabric->filter: the names that the attribute and the environment both let through. */
enum rdmux_status rdmux_fabric_intersect_filters(struct rdmux_fabric *fabric, const char *attribute,
                                                 const char *environment);
/* A provider by name, NULL if absent. */
const struct rdmux_provider_ops *rdmux_fabric_provider(const struct rdmux_fabric *fabric,
                                                       const char *name);
/* Is this device in good order now? False where that cannot be found out. */
bool rdmux_fabric_path_is_usable(struct rdmux_fabric *fabric, const char *provider,
                                 const char *device);
/* What this fabric says of itself. */
void rdmux_hello_fill(struct rdmux_fabric *fabric, struct rdmux_hello *hello);
/* An offer with the fabric's paths and filter, this second filter, and every wish at its
 * default. */
void rdmux_offer_defaults(struct rdmux_fabric *fabric, const char *paths, struct rdmux_offer *offer);

#endif
