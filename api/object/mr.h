/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Regions, from registration to deregistration. */
#ifndef RDMUX_API_OBJECT_MR_H
#define RDMUX_API_OBJECT_MR_H

#include "api/core/fabric.h"
#include "api/core/mr.h"

/* Rights of which an export needs one. */
enum {
    RDMUX_MR_REMOTE_RIGHTS = RDMUX_ACCESS_REMOTE_READ | RDMUX_ACCESS_REMOTE_WRITE |
                             RDMUX_ACCESS_REMOTE_ATOMIC,
};

/* Refuses an argument that is NULL, in a public call of regions. */
static inline enum rdmux_status rdmux_mr_null_argument(const char *function, const char *name)
{
    return rdmux_fail(RDMUX_INVALID, "%s: %s is NULL", function, name);
}

/* Registers all living regions with a newly opened domain. setup_lock is held. */
enum rdmux_status rdmux_mr_register_all(struct rdmux_fabric *fabric,
                                        struct rdmux_provider_domain *domain);
/* Removes the registrations with this domain from all regions when the fabric closes. */
void rdmux_mr_domain_gone(struct rdmux_fabric *fabric, struct rdmux_provider_domain *domain);

/* rdmux_mr_of() returns the region of a registration, or NULL if the region is gone.
 * rdmux_mr_is_there() returns whether a region still exists. */
struct rdmux_mr *rdmux_mr_of(struct rdmux_fabric *fabric,
                             const struct rdmux_provider_mr *registration);
bool rdmux_mr_is_there(struct rdmux_fabric *fabric, const struct rdmux_mr *mr);

#endif
