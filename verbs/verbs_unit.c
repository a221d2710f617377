/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Each queue pair is attached to a unit with room for everything that it can have outstanding. So
 * not even a failure, which flushes all of it at once, overruns the device queue. If no unit has
 * room, another one is made.
 */
#include "verbs/verbs_unit.h"

#include "verbs/verbs_completion.h"
#include "verbs/verbs_domain.h"
#include "verbs/verbs_srq.h"

#include <errno.h>
#include <string.h>

enum {
    UNIT_FIRST = 1024, /* entries of the first device queue, if no more are needed */
};

void rdmux_verbs_unit_destroy(struct verbs_domain *domain, struct verbs_unit *unit)
{
    ibv_ack_cq_events(unit->cq, unit->unacked);
    int error = ibv_destroy_cq(unit->cq);
    if (error != 0) {
        rdmux_provider_log(domain->base.fabric, RDMUX_LOG_ERROR,
                           "%s: a completion queue cannot be destroyed: %s", domain->device,
                           strerror(error));
    }
}

/* Returns the entries that an SRQ still needs in a unit: its depth, counted once for all endpoints
 * whose completions go there. */
static uint32_t srq_entries(const struct verbs_srq *srq, uint32_t unit)
{
    return srq == NULL || (srq->units >> unit & 1) != 0 ? 0 : srq->depth;
}

static void reserve_entries(struct verbs_unit *unit, uint32_t index, uint32_t entries,
                            struct verbs_srq *srq)
{
    unit->used += entries + srq_entries(srq, index);
    if (srq != NULL) {
        srq->units |= UINT32_C(1) << index;
    }
}

enum rdmux_status rdmux_verbs_unit_reserve(struct verbs_cq *cq, uint32_t entries,
                                           struct verbs_srq *srq, struct verbs_unit **out)
{
    struct verbs_domain *domain = verbs_domain_of(cq->base.domain);
    uint32_t free_place = cq->unit_count;
    for (uint32_t i = 0; i < cq->unit_count; i++) {
        struct verbs_unit *unit = &cq->units[i];
        if (unit->is_broken) {
            free_place = unit->used == 0 ? i : free_place;
        } else if (unit->capacity - unit->used >= entries + srq_entries(srq, i)) {
            reserve_entries(unit, i, entries, srq);
            *out = unit;
            return RDMUX_OK;
        }
    }
    const uint32_t needed = entries + (srq == NULL ? 0 : srq->depth);
    uint32_t most = (uint32_t)domain->attr.max_cqe;
    if (free_place == VERBS_UNITS_MAX || needed > most) {
        rdmux_provider_error(
            "%s: no completion queue has room for %u more entries; use another cq, "
            "or smaller depths",
            domain->device, needed);
        return RDMUX_NO_MEMORY;
    }
    uint32_t wanted = cq->unit_count == 0 ? (uint32_t)UNIT_FIRST
                                          : 2 * cq->units[cq->unit_count - 1].capacity;
    wanted = wanted < needed ? needed : wanted;
    wanted = wanted > most ? most : wanted;
    struct ibv_cq *made = ibv_create_cq(domain->context, (int)wanted, cq, cq->channel, 0);
    if (made == NULL && wanted > needed) {
        made = ibv_create_cq(domain->context, (int)needed, cq, cq->channel, 0);
    }
    if (made == NULL) {
        rdmux_provider_error(
            "%s: no completion queue of %u entries: %s%s", domain->device, needed, strerror(errno),
            errno == ENOMEM ? "; raise the limit on locked memory (ulimit -l)" : "");
        return RDMUX_NO_MEMORY;
    }
    struct verbs_unit *unit = &cq->units[free_place];
    if (free_place == cq->unit_count) {
        cq->unit_count++;
    } else {
        rdmux_verbs_unit_destroy(domain, unit);
    }
    *unit = (struct verbs_unit){ .cq = made, .capacity = (uint32_t)made->cqe };
    reserve_entries(unit, free_place, entries, srq);
    *out = unit;
    return RDMUX_OK;
}

void rdmux_verbs_unit_failed(struct verbs_cq *cq, struct verbs_unit *unit)
{
    if (!unit->is_broken) { /* its endpoints have been failed already */
        atomic_fetch_or(&cq->attention, VERBS_EVENT_FATAL);
    }
}
