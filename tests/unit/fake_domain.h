/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* A domain whose provider records what it is asked to register, and refuses on request. Included by
 * one source of a program. */
#ifndef RDMUX_TESTS_FAKE_DOMAIN_H
#define RDMUX_TESTS_FAKE_DOMAIN_H

#include "api/core/mr.h"
#include "tests/unit/fake_fabric.h"

enum {
    ACCESS_ALL = RDMUX_ACCESS_LOCAL_WRITE | RDMUX_ACCESS_REMOTE_READ | RDMUX_ACCESS_REMOTE_WRITE |
                 RDMUX_ACCESS_REMOTE_ATOMIC,
};

struct fake_domain {
    struct rdmux_provider_domain base;
    size_t registered;  /* living registrations */
    size_t invalidated; /* calls of mr_invalidate */
    bool refuses;
    size_t accepts; /* registrations before it refuses, if it refuses */
    struct rdmux_provider_mr_attr seen;
    enum rdmux_status invalidate_status;
};

static enum rdmux_status fake_register(struct rdmux_provider_mr *mr,
                                       const struct rdmux_provider_mr_attr *attr)
{
    struct fake_domain *domain = (struct fake_domain *)mr->domain;
    if (domain->refuses && domain->accepts-- == 0) {
        rdmux_provider_error("fake: memlock is 64 KiB; raise it");
        domain->accepts = 0;
        return RDMUX_NO_MEMORY;
    }
    domain->seen = *attr;
    domain->registered++;
    return RDMUX_OK;
}

static void fake_deregister(struct rdmux_provider_mr *mr)
{
    ((struct fake_domain *)mr->domain)->registered--;
}

static enum rdmux_status fake_invalidate(struct rdmux_provider_mr *mr)
{
    struct fake_domain *domain = (struct fake_domain *)mr->domain;
    domain->invalidated++;
    return domain->invalidate_status;
}

static const struct rdmux_provider_ops fake_ops = {
    .name = "fake",
    .mr_size = sizeof(struct rdmux_provider_mr),
    .mr_register = fake_register,
    .mr_deregister = fake_deregister,
    .mr_invalidate = fake_invalidate,
};

static inline void open_domain(struct fake_fabric *fake, struct fake_domain *domain)
{
    struct rdmux_fabric *fabric = &fake->fabric;
    memset(domain, 0, sizeof(*domain));
    domain->base.ops = &fake_ops;
    domain->base.fabric = fabric;
    fabric->domains[fabric->domain_count].ops = &fake_ops;
    fabric->domains[fabric->domain_count].domain = &domain->base;
    fabric->domain_count++;
}

#endif
