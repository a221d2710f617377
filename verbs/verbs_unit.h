/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Completion queues of the device. A cq has several, as device queues do not grow. */
#ifndef RDMUX_VERBS_UNIT_H
#define RDMUX_VERBS_UNIT_H

#include <rdmux/provider.h>

#include <infiniband/verbs.h>

#include <stdbool.h>
#include <stdint.h>

struct verbs_cq;
struct verbs_domain;
struct verbs_srq;

struct verbs_unit {
    struct ibv_cq *cq;
    uint32_t capacity;
    uint32_t used;    /* most entries that the attached queues can need */
    uint32_t awaited; /* 1: an event was requested and not taken yet */
    uint32_t unacked; /* events taken but not acknowledged */
    bool is_broken;   /* reported by the device; takes no more queue pairs */
};

/* Finds or makes a unit with room for entries more and for all receives of srq, which may be NULL.
 * RDMUX_NO_MEMORY: there is none. [may sleep] */
enum rdmux_status rdmux_verbs_unit_reserve(struct verbs_cq *cq, uint32_t entries,
                                           struct verbs_srq *srq, struct verbs_unit **out);
void rdmux_verbs_unit_destroy(struct verbs_domain *domain, struct verbs_unit *unit);
/* Notes that a unit's device queue has failed. */
void rdmux_verbs_unit_failed(struct verbs_cq *cq, struct verbs_unit *unit);

#endif
