/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Request records: how the send side, the receive side, SRQs and the core itself find and fill
 * records. [data path]
 */
#ifndef RDMUX_API_DATA_REQUEST_H
#define RDMUX_API_DATA_REQUEST_H

#include "api/base/range.h"
#include "api/core/ep.h"
#include "api/core/fabric.h"
#include "api/core/mr.h"
#include "api/data/bounce.h"
#include "api/progress/cq_owner.h"

#include <string.h>

/* For functions on every request's way, which gcc would not inline because they have more than one
 * caller. If RDMUX_HOT is already defined, nothing is inlined: coverage counts branches once. */
#ifndef RDMUX_HOT
#define RDMUX_HOT static inline __attribute__((always_inline))
#endif

/* For rare code, so that it takes no registers from the rest. */
#define RDMUX_COLD __attribute__((noinline))

/* rdmux_provider_ep.ready while the core is in the provider's post. The core handles completions of
 * that time when post returns. */
enum { RDMUX_PATH_POSTING = 2 };

static inline struct rdmux_request *rdmux_ring_record(const struct rdmux_ring *ring, uint64_t at)
{
    return &ring->records[at & ring->mask];
}

static inline bool rdmux_op_reads(uint32_t op)
{
    return op == RDMUX_OP_READ || op == RDMUX_OP_FETCH_ADD || op == RDMUX_OP_COMPARE_SWAP;
}

/* Returns whether the request has no completion for the application. */
static inline bool rdmux_request_is_silent(const struct rdmux_request *request)
{
    return request->internal ||
           ((request->flags & RDMUX_UNSIGNALED) != 0 && request->status == RDMUX_OK);
}

/* Marks the endpoint as ready and pends it. */
static inline void rdmux_ep_report(struct rdmux_ep *ep)
{
    ep->path->ready = 1;
    rdmux_cq_pend(ep->cq, ep);
}

static inline void rdmux_ep_count_done(struct rdmux_ep *ep, const struct rdmux_request *request)
{
    if (request->status == RDMUX_OK && rdmux_op_reads(request->op)) {
        ep->stats.bytes_received += request->length;
    }
}

/* The rules for a list: where its pieces go, and which rights they need. */
struct rdmux_list_rule {
    struct rdmux_fabric *fabric;
    const struct rdmux_provider_domain *domain; /* NULL: the endpoint has no path yet */
    /* Without a domain the pieces keep the region itself, see rdmux_ep_resolve_receives(). */
    bool is_later;
    uint32_t max_sge;
    uint32_t needed; /* RDMUX_ACCESS_LOCAL_WRITE or 0 */
};

/* The general case of rdmux_take_list(), and all refusals. By value, so that the fast case keeps
 * its rule in registers. */
enum rdmux_status rdmux_take_long_list(struct rdmux_list_rule rule, struct rdmux_request *request,
                                       struct rdmux_provider_sge *into, const struct rdmux_wr *wr);

RDMUX_HOT struct rdmux_provider_mr *rdmux_piece_registration(struct rdmux_list_rule rule,
                                                             struct rdmux_mr *mr)
{
    if (mr == NULL) {
        return NULL;
    }
    if (rule.domain != NULL) {
        return rdmux_mr_with(mr, rule.domain);
    }
    return rule.is_later ? (struct rdmux_provider_mr *)(void *)mr : NULL;
}

RDMUX_HOT bool rdmux_piece_is_good(struct rdmux_list_rule rule, const struct rdmux_sge *sge)
{
    const struct rdmux_mr *mr = sge->mr;
    if (mr == NULL) {
        return sge->addr != NULL;
    }
    uint64_t at = (uint64_t)((const char *)sge->addr - (const char *)mr->addr);
    return mr->fabric == rule.fabric && rdmux_is_within(at, sge->length, mr->length) &&
           (mr->access & rule.needed) == rule.needed;
}

/* Copies a scatter/gather list into the record's list and checks each piece. */
RDMUX_HOT enum rdmux_status rdmux_take_list(struct rdmux_list_rule rule,
                                            struct rdmux_request *request,
                                            struct rdmux_provider_sge *into,
                                            const struct rdmux_wr *wr)
{
    const struct rdmux_sge *sge = wr->sges;
    if (RDMUX_UNLIKELY(wr->sge_count != 1 || sge == NULL || sge->length == 0 ||
                       !rdmux_piece_is_good(rule, sge))) {
        return rdmux_take_long_list(rule, request, into, wr);
    }
    into->addr = sge->addr;
    into->length = sge->length;
    into->mr = rdmux_piece_registration(rule, sge->mr);
    request->sges = into;
    request->sge_count = 1;
    request->length = sge->length;
    return RDMUX_OK;
}

/* Sets the fields of a send-side record that do not depend on its list and its remote. */
RDMUX_HOT void rdmux_send_begin(struct rdmux_request *request, uint32_t op, uint32_t flags,
                                uint32_t imm, uint32_t opcode, void *context, uint64_t sequence)
{
    request->op = op;
    request->flags = flags;
    request->imm = imm;
    request->done = 0;
    request->internal = 0;
    request->status = RDMUX_OK;
    request->opcode = opcode;
    request->keys = RDMUX_BOUNCE_OWN;
    request->context = context;
    request->sequence = sequence;
}

/* Begins a request of the core: without a list, and without an entry for the application. */
static inline void rdmux_own_begin(struct rdmux_request *request, uint32_t op, uint32_t flags,
                                   uint64_t sequence)
{
    memset(request, 0, sizeof(*request));
    rdmux_send_begin(request, op, flags, 0, 0, NULL, sequence);
    request->internal = 1;
}

/* Counts a request of the application that was queued. */
RDMUX_HOT void rdmux_count_request(struct rdmux_ep *ep, uint32_t op, uint64_t length)
{
    if (op == RDMUX_OP_SEND || op == RDMUX_OP_SEND_IMM) {
        ep->stats.sends++;
        ep->stats.bytes_sent += length;
        return;
    }
    switch (op) {
    case RDMUX_OP_WRITE:
    case RDMUX_OP_WRITE_IMM:
        ep->stats.writes++;
        ep->stats.bytes_sent += length;
        break;
    case RDMUX_OP_READ:
        ep->stats.reads++;
        break;
    default:
        ep->stats.atomics++;
        break;
    }
}

/* Sets the fields of a receive record that do not depend on the receive. */
RDMUX_HOT void rdmux_receive_begin(struct rdmux_request *request)
{
    request->op = RDMUX_OP_RECV;
    request->flags = 0;
    request->imm = 0;
    request->done = 0;
    request->internal = 0;
    request->status = RDMUX_OK;
    request->opcode = RDMUX_WC_RECV;
    request->next = NULL;
    request->wc_flags = 0;
    request->keys = 0;
}

/* Checks a wr and fills a receive record from it; the list goes to `into`. */
RDMUX_HOT enum rdmux_status rdmux_receive_prepare(struct rdmux_list_rule rule,
                                                  struct rdmux_request *request,
                                                  struct rdmux_provider_sge *into,
                                                  const struct rdmux_wr *wr)
{
    if (RDMUX_UNLIKELY(wr->op != RDMUX_OP_RECV || wr->flags != 0)) {
        return rdmux_fail(RDMUX_INVALID,
                          "post_recv: op must be RDMUX_OP_RECV and flags 0, not %u and 0x%x",
                          wr->op, wr->flags);
    }
    enum rdmux_status status = rdmux_take_list(rule, request, into, wr);
    if (RDMUX_UNLIKELY(status != RDMUX_OK)) {
        return status;
    }
    rdmux_receive_begin(request);
    request->context = wr->context;
    return RDMUX_OK;
}

static inline enum rdmux_status rdmux_ep_enter(struct rdmux_ep *ep)
{
    if (RDMUX_UNLIKELY(ep == NULL)) {
        return rdmux_fail(RDMUX_INVALID, "post: ep is NULL");
    }
    if (RDMUX_UNLIKELY(!rdmux_cq_enter(ep->cq))) {
        return rdmux_cq_refused(ep->cq, "post", "endpoint");
    }
    return RDMUX_OK;
}

static inline bool rdmux_spare_is_zero(const struct rdmux_wr *wr)
{
    const uint64_t *spare = wr->spare;
    _Static_assert(RDMUX_COUNT_OF(wr->spare) == 8, "all are looked at");
    return (spare[0] | spare[1] | spare[2] | spare[3] | spare[4] | spare[5] | spare[6] |
            spare[7]) == 0;
}

/* Returns the error of a request that the endpoint does not take. */
enum rdmux_status rdmux_ep_refuse_post(const struct rdmux_ep *ep);
/* Checks any request of the send side, and queues it at the ring's head. RDMUX_AGAIN: it may be
 * queued after progress. */
enum rdmux_status rdmux_ep_queue(struct rdmux_ep *ep, const struct rdmux_wr *wr);
/* Posts an empty PLACED write, a request of the core (control.c, read_drain.c, replay.c). It is not
 * in the ring: *flush is initialised here, and belongs to the path until it is done. Returns false
 * if the path takes none now, or has failed. */
bool rdmux_ep_flush(struct rdmux_ep *ep, struct rdmux_request *flush);
enum rdmux_status rdmux_ring_create(struct rdmux_fabric *fabric, struct rdmux_ring *ring,
                                    uint32_t depth, uint32_t max_sge, uint32_t max_inline);
void rdmux_ring_destroy(struct rdmux_fabric *fabric, struct rdmux_ring *ring);

static inline struct rdmux_sge rdmux_piece(const void *buf, size_t length, struct rdmux_mr *mr)
{
    return (struct rdmux_sge){ (void *)(uintptr_t)buf, length, mr };
}

#endif
