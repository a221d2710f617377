/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Regions, from registration to the last import. */
#ifndef RDMUX_API_OBJECT_MR_H
#define RDMUX_API_OBJECT_MR_H

#include "api/core/cq.h"
#include "api/core/fabric.h"
#include "api/core/mr.h"

/* Registers all living regions with a domain just opened; setup_lock is held. */
enum rdmux_status rdmux_mr_register_all(struct rdmux_fabric *fabric,
                                        struct rdmux_provider_domain *domain);
/* Takes the domains' registrations away from all regions; called when the fabric closes. */
void rdmux_mr_domain_gone(struct rdmux_fabric *fabric, struct rdmux_provider_domain *domain);

/* Finds the region of a token that was exported here, to everybody or to this identity ("" if the
 * peer has none), and not revoked, notes the importer (once per endpoint) and counts its imports, and returns it with its
 * describing registration; the region cannot be deregistered while rdmux_mr_import_done() has not
 * been called. */
enum rdmux_status rdmux_mr_import(struct rdmux_fabric *fabric, const struct rdmux_token *token,
                                  const char *identity, struct rdmux_cq *cq, uint64_t ep_id,
                                  struct rdmux_provider_domain *domain, struct rdmux_mr **out,
                                  struct rdmux_provider_mr **registration);

void rdmux_mr_import_done(struct rdmux_mr *mr);
/* The living region of this id, or NULL. fabric->lock is held. */
struct rdmux_mr *rdmux_mr_find(struct rdmux_fabric *fabric, uint64_t id);
/* The region that a registration is of, NULL if it has gone; the same for a region. */
struct rdmux_mr *rdmux_mr_of(struct rdmux_fabric *fabric,
                             const struct rdmux_provider_mr *registration);
bool rdmux_mr_is_there(struct rdmux_fabric *fabric, const struct rdmux_mr *mr);
/* Are these the bytes of a token, of a version known here? Says nothing about its region. */
bool rdmux_token_is_valid(const struct rdmux_token *token);

#endif
