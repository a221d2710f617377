/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Imports of regions by the tokens that rdmux_mr_export() made. */
#ifndef RDMUX_API_OBJECT_MR_EXPORT_H
#define RDMUX_API_OBJECT_MR_EXPORT_H

#include "api/core/cq.h"
#include "api/core/fabric.h"
#include "api/core/mr.h"

/* Finds the region of an exported, unrevoked token and returns it with its registration in
 * `domain`. The token was exported to every peer, or to `identity` ("" if the peer has none). Notes
 * the importer once per endpoint and counts its imports. The region cannot be deregistered before
 * rdmux_mr_import_done(). */
enum rdmux_status rdmux_mr_import(struct rdmux_fabric *fabric, const struct rdmux_token *token,
                                  const char *identity, struct rdmux_cq *cq, uint64_t ep_id,
                                  struct rdmux_provider_domain *domain, struct rdmux_mr **out,
                                  struct rdmux_provider_mr **registration);

void rdmux_mr_import_done(struct rdmux_mr *mr);
/* Returns whether the bytes are a token of a known version. Says nothing about its region. */
bool rdmux_token_is_valid(const struct rdmux_token *token);

#endif
