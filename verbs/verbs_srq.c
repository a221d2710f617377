/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Shared receive queues of the device. Receives complete in any order, so free slots are kept on a
 * stack. */
#include "verbs/verbs_srq.h"

#include "verbs/verbs_completion.h"
#include "verbs/verbs_domain.h"
#include "verbs/verbs_macros.h"
#include "verbs/verbs_memory.h"
#include "verbs/verbs_place.h"
#include "verbs/verbs_queue.h"
#include "verbs/verbs_ring.h"
#include "verbs/verbs_transport.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

static_assert(offsetof(struct verbs_srq, base) == 0, "verbs_srq_of() relies on it");

static struct rdmux_fabric *fabric_of(const struct verbs_srq *srq)
{
    return srq->base.cq->domain->fabric;
}

static enum rdmux_status open_slots(struct verbs_srq *srq, uint32_t depth)
{
    srq->requests = rdmux_provider_allocate(fabric_of(srq), depth * sizeof(struct rdmux_request *));
    srq->free_slots = rdmux_provider_allocate(fabric_of(srq), depth * sizeof(*srq->free_slots));
    if (srq->requests == NULL || srq->free_slots == NULL) {
        rdmux_provider_error("verbs: out of memory for an SRQ of %u receives", depth);
        return RDMUX_NO_MEMORY;
    }
    for (uint32_t i = 0; i < depth; i++) {
        srq->free_slots[i] = depth - 1 - i;
    }
    srq->free_count = depth;
    srq->depth = depth;
    return rdmux_verbs_headers_open(&srq->headers, verbs_domain_of(srq->base.cq->domain), depth);
}

static void close_slots(struct verbs_srq *srq)
{
    rdmux_verbs_headers_close(&srq->headers);
    rdmux_provider_release(fabric_of(srq), srq->free_slots);
    rdmux_provider_release(fabric_of(srq), srq->requests);
}

enum rdmux_status rdmux_verbs_srq_open(struct rdmux_provider_srq *base, uint32_t depth,
                                       uint32_t max_sge)
{
    struct verbs_srq *srq = verbs_srq_of(base);
    struct verbs_domain *domain = verbs_domain_of(base->cq->domain);
    struct verbs_cq *cq = verbs_cq_of(base->cq);
    const uint32_t header_pieces = domain->transport->header_size != 0 ? 1 : 0;
    if (depth > (uint32_t)domain->attr.max_srq_wr) {
        rdmux_provider_error("%s has SRQs of at most %d receives, not %u; ask for less (depth)",
                             domain->device, domain->attr.max_srq_wr, depth);
        return RDMUX_UNSUPPORTED;
    }
    enum rdmux_status status = open_slots(srq, depth);
    if (status != RDMUX_OK) {
        goto close_slots;
    }
    status = rdmux_verbs_place_take(cq, NULL, srq, &srq->id);
    if (status != RDMUX_OK) {
        goto close_slots;
    }
    struct ibv_srq_init_attr attr = {
        .srq_context = srq, .attr = { .max_wr = depth, .max_sge = max_sge + header_pieces }
    };
    srq->srq = ibv_create_srq(domain->pd, &attr);
    if (srq->srq == NULL) {
        rdmux_provider_error("%s: no SRQ of %u receives: %s", domain->device, depth,
                             strerror(errno));
        status = errno == ENOMEM ? RDMUX_NO_MEMORY : RDMUX_IO;
        goto give_place;
    }
    srq->max_sge = max_sge;
    return RDMUX_OK;

give_place:
    rdmux_verbs_place_give(cq, srq->id);
close_slots:
    close_slots(srq);
    return status;
}

void rdmux_verbs_srq_close(struct rdmux_provider_srq *base)
{
    struct verbs_srq *srq = verbs_srq_of(base);
    struct verbs_cq *cq = verbs_cq_of(base->cq);
    int error = ibv_destroy_srq(srq->srq);
    if (error != 0) {
        rdmux_provider_log(fabric_of(srq), RDMUX_LOG_ERROR, "%s: an SRQ cannot be destroyed: %s",
                           verbs_domain_of(base->cq->domain)->device, strerror(error));
    }
    for (uint32_t i = 0; i < cq->unit_count; i++) {
        cq->units[i].used -= (srq->units >> i & 1) != 0 ? srq->depth : 0;
    }
    rdmux_verbs_place_give(cq, srq->id);
    close_slots(srq);
}

enum rdmux_status rdmux_verbs_srq_post_recv(struct rdmux_provider_srq *base,
                                            struct rdmux_request *requests, size_t count)
{
    struct verbs_srq *srq = verbs_srq_of(base);
    struct ibv_sge pieces[1 + RDMUX_SGE_MAX];
    const uint32_t header_size = verbs_domain_of(base->cq->domain)->transport->header_size;
    for (size_t i = 0; i < count; i++) {
        if (srq->free_count == 0) {
            rdmux_provider_error("verbs: more receives than the SRQ was opened for");
            return RDMUX_INVALID;
        }
        uint32_t slot = srq->free_slots[--srq->free_count];
        uint32_t used = rdmux_verbs_header_piece(&srq->headers, header_size, slot, &requests[i],
                                                 pieces);
        used += verbs_pieces(requests[i].sges, requests[i].sge_count, &pieces[used]);
        struct ibv_recv_wr *bad = NULL;
        struct ibv_recv_wr work = {
            .wr_id = verbs_wr_id_of(srq->id, VERBS_WORK_SHARED, slot),
            .sg_list = pieces,
            .num_sge = (int)used,
        };
        srq->requests[slot] = &requests[i];
        int error = ibv_post_srq_recv(srq->srq, &work, &bad);
        if (error != 0) {
            (void)rdmux_verbs_srq_retire(srq, slot);
            rdmux_provider_error("%s: the device did not take a receive: %s",
                                 verbs_domain_of(base->cq->domain)->device,
                                 strerror(verbs_error_of(error)));
            return RDMUX_IO;
        }
    }
    return RDMUX_OK;
}

struct rdmux_request *rdmux_verbs_srq_retire(struct verbs_srq *srq, uint32_t slot)
{
    struct rdmux_request *request = slot < srq->depth ? srq->requests[slot] : NULL;
    if (request != NULL) {
        srq->requests[slot] = NULL;
        srq->free_slots[srq->free_count++] = slot;
    }
    return request;
}
