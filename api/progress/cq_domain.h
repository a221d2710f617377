/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The provider cqs of a cq, one for each domain, and its room for entries. */
#ifndef RDMUX_API_PROGRESS_CQ_DOMAIN_H
#define RDMUX_API_PROGRESS_CQ_DOMAIN_H

#include "api/core/cq.h"

/* Owner: returns the provider cq on a domain, and opens it for the first caller. */
enum rdmux_status rdmux_cq_domain(struct rdmux_cq *cq, struct rdmux_provider_domain *domain,
                                  uint32_t depth, struct rdmux_provider_cq **out);
/*
 * For an endpoint that another cq sends here.
 * rdmux_cq_domain_prepare() (any thread) makes sure that the cq will have a provider cq on the
 * domain. *out: one that is open and that the cq does not use yet; NULL: the cq has its own.
 * rdmux_cq_domain_take() (owner) returns the cq's provider cq, and uses or closes the prepared one.
 * rdmux_cq_domain_give_up() (any thread) closes a prepared one; NULL is allowed.
 */
enum rdmux_status rdmux_cq_domain_prepare(struct rdmux_cq *cq, struct rdmux_provider_domain *domain,
                                          struct rdmux_provider_cq **out);
struct rdmux_provider_cq *rdmux_cq_domain_take(struct rdmux_cq *cq,
                                               struct rdmux_provider_domain *domain,
                                               struct rdmux_provider_cq *prepared);
void rdmux_cq_domain_give_up(struct rdmux_cq *cq, struct rdmux_provider_cq *prepared);
/* Owner: counts one endpoint more or fewer on the provider cq. */
void rdmux_cq_domain_enter(struct rdmux_provider_cq *provider_cq);
void rdmux_cq_domain_leave(struct rdmux_provider_cq *provider_cq);
/* Any thread: reserves and releases room for entries. RDMUX_NO_MEMORY. */
enum rdmux_status rdmux_cq_reserve(struct rdmux_cq *cq, uint64_t entries);
void rdmux_cq_unreserve(struct rdmux_cq *cq, uint64_t entries);

#endif
