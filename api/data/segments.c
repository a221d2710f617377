/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Segmenting of writes and reads that are longer than a path's messages. */
#include "api/data/segments.h"
#include "api/base/pieces.h"
#include "api/core/ep.h"

#include "api/data/request.h"

enum rdmux_status rdmux_segments_open(struct rdmux_ep *ep, uint64_t max_message)
{
    if (max_message == 0) {
        return RDMUX_OK;
    }
    size_t sges_at = sizeof(struct rdmux_segments) +
                     RDMUX_SEGMENTS_MAX * sizeof(struct rdmux_request);
    size_t size = sges_at + sizeof(struct rdmux_provider_sge) * RDMUX_SEGMENTS_MAX * RDMUX_SGE_MAX;
    uint8_t *memory = rdmux_allocate(ep->fabric, size);
    if (memory == NULL) {
        return rdmux_fail(RDMUX_NO_MEMORY, "endpoint: out of memory");
    }
    ep->segments = (struct rdmux_segments *)(void *)memory;
    ep->segments->max = max_message;
    ep->segments->pieces = (struct rdmux_request *)(void *)(memory + sizeof(struct rdmux_segments));
    ep->segments->sges = (struct rdmux_provider_sge *)(void *)(memory + sges_at);
    return RDMUX_OK;
}

void rdmux_segments_close(struct rdmux_ep *ep)
{
    rdmux_release(ep->fabric, ep->segments);
    ep->segments = NULL;
}

static void fill_piece(struct rdmux_segments *segments, uint32_t index, struct rdmux_request *whole)
{
    struct rdmux_request *piece = &segments->pieces[index];
    uint64_t rest = whole->length - segments->given;
    bool first = segments->given == 0;
    bool last = rest <= segments->max;
    uint32_t flags = whole->flags & RDMUX_INLINE;
    flags |= first ? whole->flags & RDMUX_FENCE : 0;
    flags |= last ? whole->flags & RDMUX_PLACED : 0;
    rdmux_own_begin(piece,
                    whole->op == RDMUX_OP_WRITE_IMM && !last ? (uint32_t)RDMUX_OP_WRITE : whole->op,
                    flags, whole->sequence);
    piece->imm = whole->imm;
    piece->length = last ? rest : segments->max;
    piece->context = whole;
    piece->sges = &segments->sges[(size_t)index * RDMUX_SGE_MAX];
    piece->sge_count = rdmux_slice(whole, segments->given, piece->length, piece->sges);
    piece->remote = whole->remote;
    piece->offset = whole->offset + segments->given;
}

enum rdmux_status rdmux_segments_give(struct rdmux_ep *ep, bool *blocked)
{
    struct rdmux_segments *segments = ep->segments;
    struct rdmux_request *whole = rdmux_ring_record(&ep->send, ep->send.next);
    *blocked = false;
    if (segments->given == 0) {
        whole->provider[0] = 0; /* bytes done so far */
    }
    while (segments->given < whole->length) {
        rdmux_segments_reap(ep);
        if (segments->head - segments->tail == RDMUX_SEGMENTS_MAX) {
            return RDMUX_AGAIN;
        }
        uint32_t index = segments->head % RDMUX_SEGMENTS_MAX;
        fill_piece(segments, index, whole);
        segments->is_busy = true;
        size_t posted = 0;
        enum rdmux_status status = ep->ops->post(ep->path, &segments->pieces[index], 1, 0, &posted);
        if (status != RDMUX_OK) {
            *blocked = status == RDMUX_AGAIN;
            return status;
        }
        segments->head++;
        segments->given += segments->pieces[index].length;
    }
    segments->given = 0;
    return RDMUX_OK;
}

void rdmux_segments_reap(struct rdmux_ep *ep)
{
    struct rdmux_segments *segments = ep->segments;
    while (segments->tail != segments->head &&
           segments->pieces[segments->tail % RDMUX_SEGMENTS_MAX].done) {
        const struct rdmux_request *piece = &segments->pieces[segments->tail % RDMUX_SEGMENTS_MAX];
        struct rdmux_request *whole = piece->context;
        if (piece->status != RDMUX_OK && whole->status == RDMUX_OK) {
            whole->status = piece->status;
        }
        whole->provider[0] += piece->length;
        whole->done = whole->provider[0] == whole->length;
        segments->tail++;
    }
    segments->is_busy = segments->tail != segments->head;
}
