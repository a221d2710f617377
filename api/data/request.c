/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Request records: their rings, the checks of a request and its refusals, and the requests of the
 * core itself. post.c queues the common requests without the general checks here.
 */
#include "api/data/request.h"

#include "api/base/range.h"
#include "api/core/ep.h"
#include "api/core/fabric.h"
#include "api/core/mr.h"
#include "api/core/remote.h"
#include "api/data/op_rules.h"

#include <assert.h>
#include <stdalign.h>
#include <string.h>

static bool op_is_atomic(uint32_t op)
{
    return op == RDMUX_OP_FETCH_ADD || op == RDMUX_OP_COMPARE_SWAP;
}

/* ---------------------------------------------------------------------------------------- rings */

static uint32_t power_of_two(uint32_t at_least)
{
    uint32_t size = 1;
    while (size < at_least) {
        size <<= 1;
    }
    return size;
}

enum rdmux_status rdmux_ring_create(struct rdmux_fabric *fabric, struct rdmux_ring *ring,
                                    uint32_t depth, uint32_t max_sge, uint32_t max_inline)
{
    uint32_t size = power_of_two(depth);
    size_t sges_at = (size_t)size * sizeof(*ring->records);
    size_t inline_at = sges_at + (size_t)size * max_sge * sizeof(*ring->sges);
    uint8_t *memory = rdmux_allocate_sparse(fabric, inline_at + (size_t)size * max_inline);
    if (memory == NULL) {
        return rdmux_fail(RDMUX_NO_MEMORY, "endpoint: out of memory for a queue of %u requests",
                          depth);
    }
    ring->records = (struct rdmux_request *)(void *)memory;
    ring->sges = (struct rdmux_provider_sge *)(void *)(memory + sges_at);
    ring->inline_data = memory + inline_at;
    ring->mask = size - 1;
    ring->depth = depth;
    ring->max_sge = max_sge;
    ring->max_inline = max_inline;
    return RDMUX_OK;
}

void rdmux_ring_destroy(struct rdmux_fabric *fabric, struct rdmux_ring *ring)
{
    rdmux_release(fabric, ring->records);
    memset(ring, 0, sizeof(*ring));
}

/* --------------------------------------------------------------------------------------- checks */

/* Returns the error of a piece for which rdmux_piece_is_good() is false. */
static enum rdmux_status refuse_piece(struct rdmux_list_rule rule, const struct rdmux_wr *wr,
                                      uint32_t index)
{
    const struct rdmux_sge *sge = &wr->sges[index];
    const struct rdmux_mr *mr = sge->mr;
    if (mr == NULL) {
        return rdmux_fail(RDMUX_INVALID, "post: buffer %u%s is NULL, its length is %zu", index,
                          op_is_atomic(wr->op) ? " (result)" : "", sge->length);
    }
    if (mr->fabric != rule.fabric) {
        return rdmux_fail(RDMUX_INVALID, "post: mr of sge %u belongs to another fabric", index);
    }
    if ((mr->access & rule.needed) != rule.needed) {
        return rdmux_fail(RDMUX_DENIED, "post: mr of sge %u lacks RDMUX_ACCESS_LOCAL_WRITE", index);
    }
    return rdmux_fail(RDMUX_OUT_OF_RANGE, "post: sge %u is not within its mr of %zu bytes", index,
                      mr->length);
}

enum rdmux_status rdmux_take_long_list(struct rdmux_list_rule rule, struct rdmux_request *request,
                                       struct rdmux_provider_sge *into, const struct rdmux_wr *wr)
{
    if (wr->sge_count > rule.max_sge) {
        return rdmux_fail(RDMUX_INVALID, "post: sge_count %u is beyond the %u of the endpoint",
                          wr->sge_count, rule.max_sge);
    }
    if (wr->sge_count != 0 && wr->sges == NULL) {
        return rdmux_fail(RDMUX_INVALID, "post: sges is NULL, sge_count is %u", wr->sge_count);
    }
    uint64_t total = 0;
    uint16_t count = 0;
    for (uint32_t i = 0; i < wr->sge_count; i++) {
        const struct rdmux_sge *sge = &wr->sges[i];
        if (sge->length == 0) {
            continue;
        }
        if (!rdmux_piece_is_good(rule, sge)) {
            return refuse_piece(rule, wr, i);
        }
        into[count].addr = sge->addr;
        into[count].length = sge->length;
        into[count].mr = rdmux_piece_registration(rule, sge->mr);
        count++;
        total += sge->length;
        if (total < sge->length) {
            return rdmux_fail(RDMUX_INVALID, "post: the lengths' sum wraps");
        }
    }
    request->sges = into;
    request->sge_count = count;
    request->length = total;
    return RDMUX_OK;
}

static enum rdmux_status refuse_flags(const struct rdmux_ep *ep, uint32_t flags,
                                      const struct rdmux_op_rule *rule)
{
    uint32_t forbidden = flags & ~(uint32_t)rule->flags;
    if (forbidden != 0) {
        return rdmux_fail(RDMUX_INVALID,
                          "post: flags 0x%x are unknown, or not allowed for this operation",
                          forbidden);
    }
    return rdmux_fail(RDMUX_UNSUPPORTED,
                      "post: the path %s has no %s; rdmux_ep_info tells what it has, and "
                      "rdmux_ep_attr.require leaves such paths out",
                      ep->info.provider,
                      (flags & ep->limits.lacking_flags & RDMUX_FENCE) != 0 ? "RDMUX_FENCE"
                                                                            : "RDMUX_PLACED");
}

/* Refuses RDMUX_PLACED: on an rdmacm endpoint the program's imports are the only known memory of
 * the peer. */
static enum rdmux_status refuse_placed(void)
{
    return rdmux_fail(
        RDMUX_UNSUPPORTED,
        "post: RDMUX_PLACED on an endpoint of rdma:// needs a remote, to read from it");
}

static enum rdmux_status check_remote(const struct rdmux_ep *ep, const struct rdmux_wr *wr,
                                      uint64_t length, const struct rdmux_op_rule *rule,
                                      struct rdmux_request *request)
{
    struct rdmux_remote *remote = wr->remote;
    if (RDMUX_UNLIKELY(remote == NULL)) {
        if (wr->op == RDMUX_OP_WRITE && length == 0) {
            request->remote = NULL; /* a flush, or an empty write */
            return ep->rdmacm != NULL && (wr->flags & RDMUX_PLACED) != 0 ? refuse_placed()
                                                                         : RDMUX_OK;
        }
        return rdmux_fail(RDMUX_INVALID, "post: remote is NULL");
    }
    if (RDMUX_UNLIKELY(remote->ep != ep)) {
        return rdmux_fail(RDMUX_INVALID, "post: remote was imported on another endpoint");
    }
    if (RDMUX_UNLIKELY(remote->state != RDMUX_REMOTE_READY || remote->is_revoking)) {
        if (remote->state == RDMUX_REMOTE_ASKING) {
            return rdmux_again(
                "post: the import has not been answered; wait for RDMUX_WC_REMOTE_READY");
        }
        return rdmux_fail(RDMUX_DENIED,
                          "post: the peer's region was revoked, or its import refused");
    }
    if (RDMUX_UNLIKELY((remote->access & rule->access) != rule->access)) {
        if (remote->is_device_scope && rule->atomic) {
            return rdmux_fail(
                RDMUX_UNSUPPORTED,
                "post: atomics on this region hold among users of one device only, which this "
                "path is not");
        }
        return rdmux_fail(
            RDMUX_DENIED,
            "post: the peer's region does not allow this; its rights are 0x%x, 0x%x is needed",
            remote->access, rule->access);
    }
    if (RDMUX_UNLIKELY(!rdmux_is_within(wr->offset, length, remote->length))) {
        return rdmux_fail(
            RDMUX_OUT_OF_RANGE,
            "post: offset %llu + %llu bytes end beyond the peer's region of %llu bytes",
            (unsigned long long)wr->offset, (unsigned long long)length,
            (unsigned long long)remote->length);
    }
    request->remote = remote->path;
    request->offset = wr->offset;
    return RDMUX_OK;
}

static enum rdmux_status check_atomic(const struct rdmux_wr *wr, const struct rdmux_request *request)
{
    if (request->sge_count != 1 || request->length != sizeof(uint64_t)) {
        return rdmux_fail(RDMUX_INVALID,
                          "post: an atomic's result is one piece of 8 bytes, not %llu bytes",
                          (unsigned long long)request->length);
    }
    if (wr->offset % sizeof(uint64_t) != 0) {
        return rdmux_fail(RDMUX_INVALID,
                          "post: an atomic's offset must be a multiple of 8, not %llu",
                          (unsigned long long)wr->offset);
    }
    if ((uintptr_t)request->sges[0].addr % alignof(uint64_t) != 0) {
        return rdmux_fail(RDMUX_INVALID, "post: an atomic's result must be 8-byte aligned");
    }
    return RDMUX_OK;
}

enum rdmux_status rdmux_ep_refuse_post(const struct rdmux_ep *ep)
{
    switch ((enum rdmux_ep_phase)ep->phase) {
    case RDMUX_PHASE_SETUP:
        return rdmux_again("post: the endpoint is not connected yet; wait for RDMUX_WC_CONNECTED");
    case RDMUX_PHASE_LINGERING:
    case RDMUX_PHASE_ENDING:
    case RDMUX_PHASE_ENDED:
        return rdmux_fail(ep->end.status == RDMUX_OK ? RDMUX_PEER_GONE
                                                     : (enum rdmux_status)ep->end.status,
                          "post: the endpoint has ended: %s", ep->info.text);
    case RDMUX_PHASE_READY: /* rdmux_ep_shutdown() was called */
        return rdmux_fail(RDMUX_INVALID, "post: rdmux_ep_shutdown() was called on the endpoint");
    case RDMUX_PHASE_CLOSED:
        break;
    }
    return rdmux_fail(RDMUX_INVALID, "post: the endpoint is closed");
}

/* Checks wr and fills the record at the ring's head from it. Queues nothing. */
static enum rdmux_status prepare_request(struct rdmux_ep *ep, const struct rdmux_wr *wr,
                                         struct rdmux_request **out)
{
    struct rdmux_ring *ring = &ep->send;
    if (RDMUX_UNLIKELY(ep->phase != RDMUX_PHASE_READY || ep->flow.is_shutdown_asked)) {
        return rdmux_ep_refuse_post(ep);
    }
    if (RDMUX_UNLIKELY(wr->op == 0 || wr->op >= RDMUX_COUNT_OF(rdmux_op_rules) ||
                       wr->op == RDMUX_OP_RECV)) {
        return rdmux_fail(RDMUX_INVALID, "post: op %u is not an operation of the send side", wr->op);
    }
    const struct rdmux_op_rule *rule = &rdmux_op_rules[wr->op];
    if (RDMUX_UNLIKELY((wr->flags & (~(uint32_t)rule->flags | ep->limits.lacking_flags)) != 0)) {
        return refuse_flags(ep, wr->flags, rule);
    }
    struct rdmux_request *request = rdmux_ring_record(ring, ring->head);
    if (RDMUX_UNLIKELY(ring->head - ring->tail >= ring->depth)) {
        return rdmux_again(
            "post: all of the send queue's requests are in use; poll, then post again");
    }
    const struct rdmux_list_rule list_rule = {
        .fabric = ep->fabric,
        .domain = ep->domain,
        .max_sge = ring->max_sge,
        .needed = rdmux_op_reads(wr->op) ? RDMUX_ACCESS_LOCAL_WRITE : 0,
    };
    enum rdmux_status status = rdmux_take_list(
        list_rule, request, &ring->sges[(ring->head & ring->mask) * ring->max_sge], wr);
    if (RDMUX_UNLIKELY(status != RDMUX_OK)) {
        return status;
    }
    if (RDMUX_UNLIKELY((ep->limits.caps & rule->cap) == 0)) {
        return rdmux_fail(RDMUX_UNSUPPORTED, "post: the path %s cannot do this operation",
                          ep->info.provider);
    }
    if (RDMUX_UNLIKELY((wr->flags & RDMUX_INLINE) != 0 && request->length > ep->limits.max_inline)) {
        return rdmux_fail(RDMUX_LENGTH, "post: %llu bytes are beyond the %llu of RDMUX_INLINE",
                          (unsigned long long)request->length,
                          (unsigned long long)ep->limits.max_inline);
    }
    if (rule->access == 0) {
        if (RDMUX_UNLIKELY(request->length > ep->limits.max_send)) {
            return rdmux_fail(
                RDMUX_LENGTH,
                "post: a send of %llu bytes is beyond the %llu granted; raise max_send and the "
                "peer's max_recv",
                (unsigned long long)request->length, (unsigned long long)ep->limits.max_send);
        }
        if (RDMUX_UNLIKELY((wr->flags & RDMUX_PLACED) != 0 && ep->rdmacm != NULL)) {
            return refuse_placed();
        }
        request->remote = NULL;
    } else {
        status = check_remote(ep, wr, request->length, rule, request);
        if (RDMUX_UNLIKELY(status != RDMUX_OK)) {
            return status;
        }
        if (rule->atomic) {
            status = check_atomic(wr, request);
            if (RDMUX_UNLIKELY(status != RDMUX_OK)) {
                return status;
            }
            /* NOLINTBEGIN(clang-analyzer-core.uninitialized.Assign): those of other operations */
            request->operand = wr->operand;
            request->expected = wr->expected;
            /* NOLINTEND(clang-analyzer-core.uninitialized.Assign) */
        }
    }
    rdmux_send_begin(request, wr->op, wr->flags, wr->imm, rule->wc_opcode, wr->context, ring->head);
    if ((wr->flags & RDMUX_FENCE) != 0) {
        ep->flow.fenced_until = ring->head + 1;
    }
    *out = request;
    return RDMUX_OK;
}

enum rdmux_status rdmux_ep_queue(struct rdmux_ep *ep, const struct rdmux_wr *wr)
{
    struct rdmux_request *request = NULL;
    enum rdmux_status status = prepare_request(ep, wr, &request);
    if (RDMUX_LIKELY(status == RDMUX_OK)) {
        assert(request != NULL);
        ep->send.head++;
        rdmux_count_request(ep, request->op, request->length);
    }
    return status;
}

/* ------------------------------------------------------------------------- requests of the core */

bool rdmux_ep_flush(struct rdmux_ep *ep, struct rdmux_request *flush)
{
    rdmux_own_begin(flush, RDMUX_OP_WRITE, RDMUX_PLACED, ep->send.next);
    size_t posted = 0;
    enum rdmux_status status = ep->ops->post(ep->path, flush, 1, 0, &posted);
    if (posted == 0 && status != RDMUX_AGAIN) {
        rdmux_provider_failed(ep->path, status, rdmux_last_error());
    }
    return posted == 1;
}
