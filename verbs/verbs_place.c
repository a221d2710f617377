/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "verbs/verbs_place.h"

#include "verbs/verbs_completion.h"
#include "verbs/verbs_domain.h"
#include "verbs/verbs_queue.h"
#include "verbs/verbs_ring.h"
#include "verbs/verbs_srq.h"

#include <string.h>

static enum rdmux_status add_places(struct verbs_cq *cq)
{
    struct rdmux_fabric *fabric = cq->base.domain->fabric;
    uint32_t count = cq->place_count == 0 ? 16 : 2 * cq->place_count;
    struct verbs_place *more = count > VERBS_PLACES_MAX
                                   ? NULL
                                   : rdmux_provider_allocate(fabric, count * sizeof(*more));
    if (more == NULL) {
        rdmux_provider_error("%s: no memory for %u queue pairs on one cq",
                             verbs_domain_of(cq->base.domain)->device, count);
        return RDMUX_NO_MEMORY;
    }
    if (cq->place_count > 0) {
        memcpy(more, cq->places, cq->place_count * sizeof(*more));
    }
    for (uint32_t i = cq->place_count; i < count; i++) {
        more[i].next_free = i + 1;
    }
    rdmux_provider_release(fabric, cq->places);
    cq->places = more;
    cq->free_place = cq->place_count;
    cq->place_count = count;
    return RDMUX_OK;
}

enum rdmux_status rdmux_verbs_place_take(struct verbs_cq *cq, struct verbs_queue *queue,
                                         struct verbs_srq *srq, uint64_t *id)
{
    if (cq->free_place == cq->place_count) {
        enum rdmux_status status = add_places(cq);
        if (status != RDMUX_OK) {
            return status;
        }
    }
    uint32_t at = cq->free_place;
    struct verbs_place *place = &cq->places[at];
    cq->free_place = place->next_free;
    place->queue = queue;
    place->srq = srq;
    if ((++place->life & ((UINT32_C(1) << VERBS_LIFE_BITS) - 1)) == 0) {
        place->life++; /* 0 marks wr_ids that are addresses, see verbs_ring.h */
    }
    *id = verbs_wr_id(at, place->life);
    return RDMUX_OK;
}

void rdmux_verbs_place_give(struct verbs_cq *cq, uint64_t id)
{
    uint32_t at = verbs_wr_id_place(id);
    struct verbs_place *place = &cq->places[at];
    place->queue = NULL;
    place->srq = NULL;
    place->next_free = cq->free_place;
    cq->free_place = at;
}

/* --------------------------------------------------------------------------- queue pair numbers */

void rdmux_verbs_qpn_enter(struct verbs_queue *queue)
{
    struct verbs_queue **bucket = &queue->cq->by_qpn[queue->qp->qp_num % VERBS_QPN_BUCKETS];
    queue->qpn_next = *bucket;
    *bucket = queue;
}

void rdmux_verbs_qpn_leave(struct verbs_queue *queue)
{
    struct verbs_queue **at = &queue->cq->by_qpn[queue->qp->qp_num % VERBS_QPN_BUCKETS];
    while (*at != queue) {
        at = &(*at)->qpn_next;
    }
    *at = queue->qpn_next;
}
