/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * The send side: from a call to the request record to the provider. completion.c has the completion
 * side.
 *
 * The send queue is one ring with three counters, tail <= next <= head. Requests in [tail, next)
 * are at the provider, or done and not returned yet. Requests in [next, head) wait for a fence, or
 * because post returned RDMUX_AGAIN. A waiting request holds all requests behind it, so the
 * provider gets requests in posting order. The provider may finish them in any order. Completions
 * are returned in the order of the ring.
 */
#include "api/data/post.h"

#include "api/base/pieces.h"
#include "api/base/range.h"
#include "api/core/ep.h"
#include "api/core/fabric.h"
#include "api/core/failover.h"
#include "api/core/mr.h"
#include "api/core/remote.h"
#include "api/data/bounce.h"
#include "api/data/fast_path.h"
#include "api/data/request.h"
#include "api/data/segments.h"
#include "api/progress/cq_owner.h"

#include <assert.h>
#include <stdalign.h>
#include <string.h>

enum {
    FLAGS_SEND = RDMUX_INLINE | RDMUX_UNSIGNALED | RDMUX_FENCE | RDMUX_PLACED | RDMUX_MORE |
                 RDMUX_NO_REPLAY,
    FLAGS_READ = RDMUX_UNSIGNALED | RDMUX_FENCE | RDMUX_PLACED | RDMUX_MORE | RDMUX_NO_REPLAY,
};

/* The rules of each operation. Index: RDMUX_OP_*. */
static const struct op_rule {
    uint8_t wc_opcode;
    uint8_t atomic;
    uint16_t flags;  /* allowed request flags */
    uint32_t access; /* RDMUX_ACCESS_REMOTE_* that is needed; 0: two-sided */
    uint32_t cap;
} op_rules[] = {
    [RDMUX_OP_SEND] = { RDMUX_WC_SEND, 0, FLAGS_SEND, 0, RDMUX_CAP_SEND },
    [RDMUX_OP_SEND_IMM] = { RDMUX_WC_SEND, 0, FLAGS_SEND, 0, RDMUX_CAP_SEND_IMM },
    [RDMUX_OP_RECV] = { RDMUX_WC_RECV, 0, 0, 0, 0 },
    [RDMUX_OP_WRITE] = { RDMUX_WC_WRITE, 0, FLAGS_SEND, RDMUX_ACCESS_REMOTE_WRITE, RDMUX_CAP_WRITE },
    [RDMUX_OP_WRITE_IMM] = { RDMUX_WC_WRITE, 0, FLAGS_SEND, RDMUX_ACCESS_REMOTE_WRITE,
                             RDMUX_CAP_WRITE_IMM },
    [RDMUX_OP_READ] = { RDMUX_WC_READ, 0, FLAGS_READ, RDMUX_ACCESS_REMOTE_READ, RDMUX_CAP_READ },
    [RDMUX_OP_FETCH_ADD] = { RDMUX_WC_FETCH_ADD, 1, FLAGS_READ, RDMUX_ACCESS_REMOTE_ATOMIC,
                             RDMUX_CAP_FETCH_ADD },
    [RDMUX_OP_COMPARE_SWAP] = { RDMUX_WC_COMPARE_SWAP, 1, FLAGS_READ, RDMUX_ACCESS_REMOTE_ATOMIC,
                                RDMUX_CAP_COMPARE_SWAP },
};

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
                                      const struct op_rule *rule)
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
                                      uint64_t length, const struct op_rule *rule,
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
    if (RDMUX_UNLIKELY(wr->op == 0 || wr->op >= RDMUX_COUNT_OF(op_rules) ||
                       wr->op == RDMUX_OP_RECV)) {
        return rdmux_fail(RDMUX_INVALID, "post: op %u is not an operation of the send side", wr->op);
    }
    const struct op_rule *rule = &op_rules[wr->op];
    if (RDMUX_UNLIKELY((wr->flags & (~(uint32_t)rule->flags | ep->limits.lacking_flags)) != 0)) {
        return refuse_flags(ep, wr->flags, rule);
    }
    struct rdmux_request *request = rdmux_ring_record(ring, ring->head);
    if (RDMUX_UNLIKELY(ring->head - ring->tail >= ring->depth)) {
        ep->flow.wants_writable = true;
        ep->stats.again++;
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

/* ------------------------------------------------------------------------------ simple requests */

/*
 * The common case of a request: one piece of memory, an endpoint without special state, and nothing
 * to refuse. The functions below check and record such a request in registers. prepare_request() handles
 * all others, as a wr, and has the error texts.
 */
struct simple {
    uint32_t op;
    uint32_t flags;
    uint32_t imm;
    struct rdmux_sge piece;
    struct rdmux_remote *remote;
    uint64_t offset;
    uint64_t operand;
    uint64_t expected;
    void *context;
};

enum { FLAGS_SIMPLE = RDMUX_UNSIGNALED | RDMUX_MORE | RDMUX_NO_REPLAY };

RDMUX_HOT bool takes_requests(const struct rdmux_ep *ep)
{
    return ((ep->phase ^ (uint32_t)RDMUX_PHASE_READY) | ep->flow.is_shutdown_asked) == 0;
}

/* Returns whether a request queued now would go to the provider at once, unchanged. */
RDMUX_HOT bool is_open(const struct rdmux_ep *ep)
{
    return (ep->fault | ep->flow.is_blocked) == 0 &&
           ((uintptr_t)ep->bounce | (uintptr_t)ep->segments) == 0 && ep->send.next == ep->send.head;
}

RDMUX_HOT bool may_reach(const struct rdmux_ep *ep, const struct simple *simple, uint32_t access)
{
    const struct rdmux_remote *remote = simple->remote;
    return remote != NULL && remote->ep == ep &&
           ((remote->state ^ (uint32_t)RDMUX_REMOTE_READY) | remote->is_revoking) == 0 &&
           (remote->access & access) == access &&
           rdmux_is_within(simple->offset, simple->piece.length, remote->length);
}

/* Fills the record at the ring's head and queues it. Returns NULL if the request is not simple. */
RDMUX_HOT struct rdmux_request *prepare_simple(struct rdmux_ep *ep, const struct simple *simple,
                                               const struct op_rule *rule)
{
    struct rdmux_ring *ring = &ep->send;
    const struct rdmux_sge *piece = &simple->piece;
    const struct rdmux_list_rule list_rule = {
        .fabric = ep->fabric,
        .domain = ep->domain,
        .needed = rdmux_op_reads(simple->op) ? RDMUX_ACCESS_LOCAL_WRITE : 0,
    };
    uint32_t allowed = FLAGS_SIMPLE | (rule->flags & (uint32_t)RDMUX_INLINE);
    if (RDMUX_UNLIKELY((simple->flags & ~allowed) != 0 || (ep->limits.caps & rule->cap) == 0 ||
                       ring->head - ring->tail >= ring->depth || piece->length == 0 ||
                       !rdmux_piece_is_good(list_rule, piece))) {
        return NULL;
    }
    if ((simple->flags & RDMUX_INLINE) != 0 &&
        RDMUX_UNLIKELY(piece->length > ep->limits.max_inline)) {
        return NULL;
    }
    if (rule->access == 0 ? RDMUX_UNLIKELY(piece->length > ep->limits.max_send)
                          : RDMUX_UNLIKELY(!may_reach(ep, simple, rule->access))) {
        return NULL;
    }
    if (rule->atomic &&
        RDMUX_UNLIKELY(piece->length != sizeof(uint64_t) ||
                       (simple->offset | (uintptr_t)piece->addr) % sizeof(uint64_t))) {
        return NULL;
    }
    uint64_t at = ring->head & ring->mask;
    struct rdmux_request *request = &ring->records[at];
    struct rdmux_provider_sge *into = &ring->sges[at * ring->max_sge];
    into->addr = piece->addr;
    into->length = piece->length;
    into->mr = rdmux_piece_registration(list_rule, piece->mr);
    rdmux_send_begin(request, simple->op, simple->flags, simple->imm, rule->wc_opcode,
                     simple->context, ring->head++);
    request->sge_count = 1;
    request->length = piece->length;
    request->sges = into;
    request->remote = rule->access == 0 ? NULL : simple->remote->path;
    request->offset = simple->offset;
    if (rule->atomic) {
        request->operand = simple->operand;
        request->expected = simple->expected;
    }
    return request;
}

RDMUX_HOT void count_request(struct rdmux_ep *ep, uint32_t op, uint64_t length)
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

/* ------------------------------------------------------------------------------ to the provider */

static bool reads_outstanding(const struct rdmux_ep *ep)
{
    for (uint64_t at = ep->send.tail; at != ep->send.next; at++) {
        const struct rdmux_request *request = rdmux_ring_record(&ep->send, at);
        if (!request->done && rdmux_op_reads(request->op)) {
            return true;
        }
    }
    return false;
}

/* Returns how many requests from `next` on may go to the provider in one call: adjacent records up
 * to the next fence. */
static size_t run_length(struct rdmux_ep *ep)
{
    const struct rdmux_ring *ring = &ep->send;
    uint64_t count = ring->head - ring->next;
    uint64_t to_wrap = ring->mask + 1 - (ring->next & ring->mask);
    if (count > to_wrap) {
        count = to_wrap;
    }
    bool native = (ep->ops->flags & RDMUX_PROVIDER_NATIVE_FENCE) != 0;
    if (ring->next >= ep->flow.fenced_until || (native && ep->bounce == NULL)) {
        return count;
    }
    for (uint64_t i = 0; i < count; i++) {
        if ((rdmux_ring_record(ring, ring->next + i)->flags & RDMUX_FENCE) == 0 ||
            (native && !rdmux_bounce_fence_is_ours(ep, ring->next + i))) {
            continue;
        }
        if (i != 0) {
            return i;
        }
        if (reads_outstanding(ep)) {
            return 0;
        }
        if (ep->bounce != NULL) {
            rdmux_bounce_bring_reads(ep);
        }
        /* This request may go. The fence of a later request still counts the requests before it. */
    }
    return count;
}

/* Handles a post that the provider did not take. */
static RDMUX_COLD void refused_post(struct rdmux_ep *ep, enum rdmux_status status)
{
    if (status == RDMUX_AGAIN) {
        ep->flow.is_blocked = true;
    } else {
        rdmux_provider_failed(ep->path, status, rdmux_last_error());
    }
}

/* Gives the provider `count` adjacent records from `next` on, the first of which is `first`.
 * Returns false if the provider takes no more now. */
RDMUX_HOT bool give(struct rdmux_ep *ep, struct rdmux_request *first, size_t count, bool more)
{
    size_t posted = 0;
    enum rdmux_status status = ep->ops->post(ep->path, first, count, more ? RDMUX_POST_MORE : 0,
                                             &posted);
    ep->send.next += posted;
    ep->stats.posts++;
    if (RDMUX_UNLIKELY(status != RDMUX_OK)) {
        refused_post(ep, status);
        return false;
    }
    return posted != 0;
}

/* Gives the provider a request that needs segmenting. Returns false if pieces of it remain. */
static bool give_pieces(struct rdmux_ep *ep)
{
    bool blocked = false;
    enum rdmux_status status = rdmux_segments_give(ep, &blocked);
    ep->stats.posts++;
    if (status == RDMUX_OK) {
        ep->send.next++;
    } else if (status != RDMUX_AGAIN) {
        rdmux_provider_failed(ep->path, status, rdmux_last_error());
    }
    ep->flow.is_blocked = ep->flow.is_blocked || blocked;
    return status == RDMUX_OK;
}

/* Returns how many adjacent records from `next` on need no segmenting. */
static size_t whole_ones(const struct rdmux_ep *ep, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (rdmux_segments_concern(ep, rdmux_ring_record(&ep->send, ep->send.next + i))) {
            return i;
        }
    }
    return count;
}

/* Copies the bytes of an inline request to its record, as the program may reuse its buffer on
 * return. */
static void copy_inline(struct rdmux_ring *ring, uint64_t at)
{
    struct rdmux_request *request = rdmux_ring_record(ring, at);
    uint8_t *copy = ring->inline_data + (at & ring->mask) * ring->max_inline;
    if ((request->flags & RDMUX_INLINE) == 0 || request->length == 0 ||
        request->keys != RDMUX_BOUNCE_OWN || request->sges[0].addr == copy) {
        return;
    }
    rdmux_gather(request->sges, request->sge_count, 0, copy, request->length);
    request->sges[0].addr = copy;
    request->sges[0].length = request->length;
    request->sges[0].mr = NULL;
    request->sge_count = 1;
}

/* With failover: like run_length(), for requests that can be posted again on another path. Inline
 * bytes are copied, as that path may not take them inline. Requests that are already done are
 * skipped. */
static RDMUX_COLD size_t kept_run_length(struct rdmux_ep *ep)
{
    struct rdmux_ring *ring = &ep->send;
    size_t count = 0;
    do {
        while (ring->next != ring->head && rdmux_ring_record(ring, ring->next)->done) {
            ring->next++;
        }
        count = ring->next == ring->head ? 0 : rdmux_failover_run(ep, run_length(ep));
    } while (count == 0 && ring->next != ring->head && rdmux_ring_record(ring, ring->next)->done);
    for (size_t i = 0; i < count; i++) {
        copy_inline(ring, ring->next + i);
        rdmux_ring_record(ring, ring->next + i)->flags &= ~(uint32_t)RDMUX_INLINE;
    }
    return count;
}

static void give_all(struct rdmux_ep *ep, bool more)
{
    struct rdmux_ring *ring = &ep->send;
    if (RDMUX_UNLIKELY(ep->flow.has_waiting_receives && ep->rdmacm != NULL)) {
        return; /* an rdmacm peer may answer at once, without waiting for our receives */
    }
    while (ring->next != ring->head && ep->phase == RDMUX_PHASE_READY && ep->fault == RDMUX_OK) {
        size_t count = RDMUX_LIKELY(ep->failover == NULL) ? run_length(ep) : kept_run_length(ep);
        if (ep->bounce != NULL) {
            count = rdmux_bounce_give(ep, ring, ring->next, count);
        }
        if (count == 0) {
            break;
        }
        size_t whole = ep->segments == NULL ? count : whole_ones(ep, count);
        if (!(whole == 0 ? give_pieces(ep)
                         : give(ep, rdmux_ring_record(ring, ring->next), whole, more))) {
            break;
        }
    }
}

/* Handles requests that the provider finished within post: mostly unsignaled requests, which need
 * no completion. */
RDMUX_HOT void drain_done(struct rdmux_ep *ep)
{
    struct rdmux_ring *ring = &ep->send;
    bool made_room = false; /* room in the bounce ring for requests that wait */
    while (ring->tail != ring->next) {
        struct rdmux_request *request = rdmux_ring_record(ring, ring->tail);
        if (!request->done) {
            break;
        }
        if (!rdmux_request_is_silent(request) || ep->work != 0 || ep->flow.wants_writable) {
            rdmux_ep_report(ep);
            return;
        }
        if (RDMUX_UNLIKELY(request->keys != RDMUX_BOUNCE_OWN)) {
            rdmux_bounce_take_back(ep, ring, request);
            made_room = ring->next != ring->head;
        }
        rdmux_ep_count_done(ep, request);
        ring->tail++;
    }
    if (RDMUX_UNLIKELY(ep->path->resume || made_room || rdmux_segments_has_news(ep))) {
        rdmux_ep_report(ep);
    }
}

static RDMUX_COLD void hold_doorbell(struct rdmux_ep *ep)
{
    if (!ep->flow.is_doorbell_held) {
        ep->flow.is_doorbell_held = true;
        ep->places.doorbell_next = ep->cq->doorbells;
        ep->cq->doorbells = ep;
    }
}

/* Posts waiting requests. only: the only waiting request, which may go; NULL: any number may
 * wait. */
RDMUX_HOT void push(struct rdmux_ep *ep, struct rdmux_request *only, bool more)
{
    struct rdmux_provider_ep *path = ep->path;
    uint32_t ready = path->ready;
    if (RDMUX_LIKELY(ready == 0)) {
        path->ready = RDMUX_PATH_POSTING;
    }
    if (RDMUX_LIKELY(only != NULL)) {
        (void)give(ep, only, 1, more);
    } else {
        give_all(ep, more);
    }
    if (RDMUX_LIKELY(ready == 0 && path->ready == RDMUX_PATH_POSTING)) {
        path->ready = 0;
        drain_done(ep);
    }
    if (RDMUX_UNLIKELY(more)) {
        hold_doorbell(ep);
    }
}

void rdmux_ep_push(struct rdmux_ep *ep, bool more)
{
    push(ep, NULL, more);
}

/* Copies the bytes of inline requests that have to wait: the application's buffer is free on
 * return. */
static void keep_inline(struct rdmux_ep *ep, uint64_t from)
{
    struct rdmux_ring *ring = &ep->send;
    for (uint64_t at = from > ring->next ? from : ring->next; at != ring->head; at++) {
        ep->stats.held++;
        copy_inline(ring, at);
    }
}

/* Makes records from `from` on wait. Earlier requests posted with RDMUX_MORE do not wait for
 * them. */
static RDMUX_COLD void hold_request(struct rdmux_ep *ep, uint64_t from, bool more)
{
    keep_inline(ep, from);
    if (ep->flow.is_doorbell_held && !more) {
        ep->ops->doorbell(ep->path);
    }
}

/* Posts new records that were queued from `from` on. */
static void start_requests(struct rdmux_ep *ep, uint64_t from, bool more)
{
    struct rdmux_ring *ring = &ep->send;
    if (RDMUX_LIKELY(ring->next == from && !ep->flow.is_blocked)) {
        rdmux_ep_push(ep, more);
    }
    if (RDMUX_UNLIKELY(ring->next != ring->head)) {
        hold_request(ep, from, more);
    }
}

/* Starts the request that was queued last, on an endpoint in any state. */
static RDMUX_COLD void start_last(struct rdmux_ep *ep, uint32_t flags)
{
    start_requests(ep, ep->send.head - 1, (flags & RDMUX_MORE) != 0);
}

static enum rdmux_status queue_any(struct rdmux_ep *ep, const struct rdmux_wr *wr)
{
    struct rdmux_request *request = NULL;
    enum rdmux_status status = prepare_request(ep, wr, &request);
    if (RDMUX_LIKELY(status == RDMUX_OK)) {
        assert(request != NULL);
        ep->send.head++;
        count_request(ep, request->op, request->length);
    }
    return status;
}

/* Posts a request of the core that is not in the ring. */
bool rdmux_ep_flush(struct rdmux_ep *ep, struct rdmux_request *flush)
{
    memset(flush, 0, sizeof(*flush));
    flush->op = RDMUX_OP_WRITE;
    flush->flags = RDMUX_PLACED;
    flush->internal = 1;
    flush->sequence = ep->send.next;
    size_t posted = 0;
    enum rdmux_status status = ep->ops->post(ep->path, flush, 1, 0, &posted);
    if (posted == 0 && status != RDMUX_AGAIN) {
        rdmux_provider_failed(ep->path, status, rdmux_last_error());
    }
    return posted == 1;
}

/* Queues a request and starts it. Returns false if the request is not simple and was not queued. */
RDMUX_HOT bool post_simple(struct rdmux_ep *ep, const struct simple *simple)
{
    if (RDMUX_UNLIKELY(!takes_requests(ep))) {
        return false;
    }
    bool open = is_open(ep);
    struct rdmux_request *request = prepare_simple(ep, simple, &op_rules[simple->op]);
    if (RDMUX_UNLIKELY(request == NULL)) {
        return false;
    }
    count_request(ep, simple->op, simple->piece.length);
    if (RDMUX_UNLIKELY(!open)) {
        start_last(ep, simple->flags);
        return true;
    }
    push(ep, request, (simple->flags & RDMUX_MORE) != 0);
    if (RDMUX_UNLIKELY(ep->send.next != ep->send.head)) {
        hold_request(ep, ep->send.next, (simple->flags & RDMUX_MORE) != 0);
    }
    return true;
}

/* Queues any request and starts it. By value, so that simple requests stay in registers. */
static RDMUX_COLD enum rdmux_status post_any(struct rdmux_ep *ep, struct simple request)
{
    const struct rdmux_wr wr = {
        .op = request.op,
        .flags = request.flags,
        .context = request.context,
        .sges = &request.piece,
        .sge_count = 1,
        .imm = request.imm,
        .remote = request.remote,
        .offset = request.offset,
        .operand = request.operand,
        .expected = request.expected,
    };
    uint64_t from = ep->send.head;
    enum rdmux_status status = queue_any(ep, &wr);
    if (RDMUX_LIKELY(status == RDMUX_OK)) {
        start_requests(ep, from, (wr.flags & RDMUX_MORE) != 0);
    }
    return status;
}

RDMUX_HOT enum rdmux_status post_one(struct rdmux_ep *ep, const struct simple *request)
{
    enum rdmux_status status = rdmux_ep_enter(ep);
    if (RDMUX_UNLIKELY(status != RDMUX_OK)) {
        return status;
    }
    if (RDMUX_UNLIKELY(!post_simple(ep, request))) {
        status = post_any(ep, *request);
    }
    rdmux_cq_leave(ep->cq);
    return status;
}

/* Queues a request of a batch. Returns false if the request is not simple. */
RDMUX_HOT bool queue_simple(struct rdmux_ep *ep, const struct rdmux_wr *wr)
{
    if (RDMUX_UNLIKELY(wr->op >= RDMUX_COUNT_OF(op_rules) || wr->sge_count != 1 ||
                       wr->sges == NULL)) {
        return false;
    }
    const struct simple simple = {
        .op = wr->op,
        .flags = wr->flags,
        .imm = wr->imm,
        .piece = wr->sges[0],
        .remote = wr->remote,
        .offset = wr->offset,
        .operand = wr->operand,
        .expected = wr->expected,
        .context = wr->context,
    };
    if (RDMUX_UNLIKELY(prepare_simple(ep, &simple, &op_rules[wr->op]) == NULL)) {
        return false;
    }
    count_request(ep, simple.op, simple.piece.length);
    return true;
}

enum rdmux_status rdmux_post(struct rdmux_ep *ep, const struct rdmux_wr *wrs, size_t count,
                             size_t *posted)
{
    if (posted != NULL) {
        *posted = 0;
    }
    if (wrs == NULL || count == 0) {
        return count == 0 && ep != NULL
                   ? RDMUX_OK
                   : rdmux_fail(RDMUX_INVALID, "rdmux_post: %s is NULL", ep == NULL ? "ep" : "wrs");
    }
    enum rdmux_status status = rdmux_ep_enter(ep);
    if (status != RDMUX_OK) {
        return status;
    }
    uint64_t from = ep->send.head;
    bool takes = takes_requests(ep);
    size_t done = 0;
    for (; done < count; done++) {
        const struct rdmux_wr *wr = &wrs[done];
        if (RDMUX_UNLIKELY(!rdmux_spare_is_zero(wr))) {
            status = rdmux_fail(RDMUX_INVALID, "rdmux_post: spare of request %zu is not zero", done);
            break;
        }
        if (RDMUX_LIKELY(takes) && RDMUX_LIKELY(queue_simple(ep, wr))) {
            continue;
        }
        status = queue_any(ep, wr);
        if (RDMUX_UNLIKELY(status != RDMUX_OK)) {
            break;
        }
    }
    if (done != 0) {
        start_requests(ep, from, (wrs[done - 1].flags & RDMUX_MORE) != 0);
    }
    rdmux_cq_leave(ep->cq);
    if (posted != NULL) {
        *posted = done;
    }
    return status;
}

/* --------------------------------------------------------------------------------- single calls */

enum rdmux_status rdmux_send(struct rdmux_ep *ep, const void *buf, size_t length,
                             struct rdmux_mr *mr, void *context, uint32_t flags)
{
    const struct simple request = {
        .op = RDMUX_OP_SEND,
        .flags = flags,
        .piece = rdmux_piece(buf, length, mr),
        .context = context,
    };
    return post_one(ep, &request);
}

enum rdmux_status rdmux_send_imm(struct rdmux_ep *ep, const void *buf, size_t length,
                                 struct rdmux_mr *mr, uint32_t imm, void *context, uint32_t flags)
{
    const struct simple request = {
        .op = RDMUX_OP_SEND_IMM,
        .flags = flags,
        .imm = imm,
        .piece = rdmux_piece(buf, length, mr),
        .context = context,
    };
    return post_one(ep, &request);
}

/* rdmux_write() without the fast path. */
static RDMUX_COLD enum rdmux_status write_ordinary(struct rdmux_ep *ep, const void *buf,
                                                   size_t length, struct rdmux_mr *mr,
                                                   struct rdmux_remote *remote, uint64_t offset,
                                                   void *context, uint32_t flags)
{
    if (RDMUX_UNLIKELY(ep == NULL)) {
        return rdmux_ep_enter(ep); /* sets the error text */
    }
    if (RDMUX_UNLIKELY(atomic_load_explicit(&ep->has_fast_path, memory_order_relaxed))) {
        rdmux_fast_path_leave(
            ep->cq->fast_poll.fast); /* rdmux_write() may have entered the fast path */
        if (mr == NULL && flags == RDMUX_INLINE && rdmux_fast_path_ready(ep)) {
            return rdmux_write(ep, buf, length, mr, remote, offset, context, flags);
        }
    }
    const struct simple request = {
        .op = RDMUX_OP_WRITE,
        .flags = flags,
        .piece = rdmux_piece(buf, length, mr),
        .remote = remote,
        .offset = offset,
        .context = context,
    };
    return post_one(ep, &request);
}

/* Anything but an inline signaled write takes the slow path, and so does a request to refuse: the
 * slow path has the error texts. */
enum rdmux_status rdmux_write(struct rdmux_ep *ep, const void *buf, size_t length,
                              struct rdmux_mr *mr, struct rdmux_remote *remote, uint64_t offset,
                              void *context, uint32_t flags)
{
    /* `writer` is never NULL, so a NULL ep fails the comparison, too. */
    if (RDMUX_UNLIKELY(flags != RDMUX_INLINE) || RDMUX_UNLIKELY(mr != NULL) ||
        RDMUX_UNLIKELY(buf == NULL) || RDMUX_UNLIKELY(remote == NULL) ||
        RDMUX_UNLIKELY(RDMUX_GLANCE(remote->writer) != ep)) {
        return write_ordinary(ep, buf, length, mr, remote, offset, context, flags);
    }
    struct rdmux_fast_path *fast = RDMUX_GLANCE(ep->fast);
    if (RDMUX_UNLIKELY(!rdmux_fast_path_enter_with_room(fast)) ||
        RDMUX_UNLIKELY(length - 1 >= fast->most) ||
        (RDMUX_UNLIKELY(offset >= remote->room) &&
         !rdmux_is_within(offset, length, remote->length))) {
        /* Constants instead of arguments need fewer registers. */
        return write_ordinary(ep, buf, length, NULL, remote, offset, context, RDMUX_INLINE);
    }
    struct rdmux_fast_path_entry *entry = fast->head;
    /* Keeps the compiler from moving the increment of head. */
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    fast->head++;
    fast->bytes += length;
    entry->context = context;
    entry->length = length;
    return fast->post(fast, buf, length, entry, &remote->target, offset);
}

enum rdmux_status rdmux_write_imm(struct rdmux_ep *ep, const void *buf, size_t length,
                                  struct rdmux_mr *mr, struct rdmux_remote *remote, uint64_t offset,
                                  uint32_t imm, void *context, uint32_t flags)
{
    const struct simple request = {
        .op = RDMUX_OP_WRITE_IMM,
        .flags = flags,
        .imm = imm,
        .piece = rdmux_piece(buf, length, mr),
        .remote = remote,
        .offset = offset,
        .context = context,
    };
    return post_one(ep, &request);
}

enum rdmux_status rdmux_read(struct rdmux_ep *ep, void *buf, size_t length, struct rdmux_mr *mr,
                             struct rdmux_remote *remote, uint64_t offset, void *context,
                             uint32_t flags)
{
    const struct simple request = {
        .op = RDMUX_OP_READ,
        .flags = flags,
        .piece = rdmux_piece(buf, length, mr),
        .remote = remote,
        .offset = offset,
        .context = context,
    };
    return post_one(ep, &request);
}

enum rdmux_status rdmux_fetch_add(struct rdmux_ep *ep, uint64_t *result, struct rdmux_mr *mr,
                                  struct rdmux_remote *remote, uint64_t offset, uint64_t add,
                                  void *context, uint32_t flags)
{
    const struct simple request = {
        .op = RDMUX_OP_FETCH_ADD,
        .flags = flags,
        .piece = rdmux_piece(result, sizeof(*result), mr),
        .remote = remote,
        .offset = offset,
        .operand = add,
        .context = context,
    };
    return post_one(ep, &request);
}

enum rdmux_status rdmux_compare_swap(struct rdmux_ep *ep, uint64_t *result, struct rdmux_mr *mr,
                                     struct rdmux_remote *remote, uint64_t offset,
                                     uint64_t expected, uint64_t desired, void *context,
                                     uint32_t flags)
{
    const struct simple request = {
        .op = RDMUX_OP_COMPARE_SWAP,
        .flags = flags,
        .piece = rdmux_piece(result, sizeof(*result), mr),
        .remote = remote,
        .offset = offset,
        .operand = desired,
        .expected = expected,
        .context = context,
    };
    return post_one(ep, &request);
}
