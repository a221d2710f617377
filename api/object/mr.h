/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Regions, from registration to the last import. */
#ifndef RDMUX_API_OBJECT_MR_H
#define RDMUX_API_OBJECT_MR_H

#include "api/core/cq.h"
#include "api/core/fabric.h"
#include "api/core/mr.h"

/* Registers all living regions with a newly opened domain. setup_lock is held. */
enum rdmux_status rdmux_mr_register_all(struct rdmux_fabric *fabric,
                                        struct rdmux_provider_domain *domain);
/* Removes the registrations with this domain from all regions when the fabric closes. */
void rdmux_mr_domain_gone(struct rdmux_fabric *fabric, struct rdmux_provider_domain *domain);

/* Finds the region of an exported, unrevoked token and returns it with its registration in
 * `domain`. The token was exported to every peer, or to `identity` ("" if the peer has none). Notes
 * the importer once per endpoint and counts its imports. The region cannot be deregistered before
 * rdmux_mr_import_done(). */
enum rdmux_status rdmux_mr_import(struct rdmux_fabric *fabric, const struct rdmux_token *token,
                                  const char *identity, struct rdmux_cq *cq, uint64_t ep_id,
                                  struct rdmux_provider_domain *domain, struct rdmux_mr **out,
                                  struct rdmux_provider_mr **registration);

void rdmux_mr_import_done(struct rdmux_mr *mr);
/* rdmux_mr_of() returns the region of a registration, or NULL if the region is gone.
 * rdmux_mr_is_there() returns whether a region still exists. */
struct rdmux_mr *rdmux_mr_of(struct rdmux_fabric *fabric,
                             const struct rdmux_provider_mr *registration);
bool rdmux_mr_is_there(struct rdmux_fabric *fabric, const struct rdmux_mr *mr);
/* Returns whether the bytes are a token of a known version. Says nothing about its region. */
bool rdmux_token_is_valid(const struct rdmux_token *token);

#endif
