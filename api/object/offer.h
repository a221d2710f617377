/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Paths that a fabric offers to peers. */
#ifndef RDMUX_API_OBJECT_OFFER_H
#define RDMUX_API_OBJECT_OFFER_H

#include "api/core/fabric.h"

/* Checks a filter. RDMUX_INVALID: the filter is malformed or names an unknown provider. `source`
 * names the filter in the error text. */
enum rdmux_status rdmux_fabric_check_filter(struct rdmux_fabric *fabric, const char *source,
                                            const char *filter);
/* Sets fabric->filter to the names that both the attribute and the environment allow. */
enum rdmux_status rdmux_fabric_intersect_filters(struct rdmux_fabric *fabric, const char *attribute,
                                                 const char *environment);
/* Returns a provider by name, or NULL. */
const struct rdmux_provider_ops *rdmux_fabric_provider(const struct rdmux_fabric *fabric,
                                                       const char *name);
/* Returns whether the device is usable now; false if that cannot be determined. */
bool rdmux_fabric_path_is_usable(struct rdmux_fabric *fabric, const char *provider,
                                 const char *device);
/* Fills the fabric's HELLO. */
void rdmux_hello_fill(struct rdmux_fabric *fabric, struct rdmux_hello *hello);
/* Fills an offer with the fabric's paths, its filter, `paths` as the second filter, and default
 * wishes. */
void rdmux_offer_defaults(struct rdmux_fabric *fabric, const char *paths, struct rdmux_offer *offer);

#endif
