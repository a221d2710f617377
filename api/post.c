/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * The data path: from a call to the request record to the provider, and from the provider's word to the completion.
 *
 * The send side is one ring with three counters: tail <= next <= head. [tail, next) are with the provider or done and not yet
 * returned, [next, head) wait: for a fence, or because post said AGAIN. Whatever waits holds those behind it, so the provider
 * sees requests in posting order. The provider may finish them in any order; the ring's order is that of the completions.
 */
#include "api/core.h"

#include <assert.h>
#include <stdalign.h>
#include <string.h>

enum {
    FLAGS_SEND = RDMUX_INLINE | RDMUX_UNSIGNALED | RDMUX_FENCE | RDMUX_PLACED | RDMUX_MORE |
                 RDMUX_NO_REPLAY,
    FLAGS_READ = RDMUX_UNSIGNALED | RDMUX_FENCE | RDMUX_PLACED | RDMUX_MORE | RDMUX_NO_REPLAY,
};

/* What each operation is. Index: RDMUX_OP_*. */
static const struct op_rule {
    uint8_t wc_opcode;
    uint8_t atomic;
    uint16_t flags;  /* allowed */
    uint32_t access; /* RDMUX_ACCESS_REMOTE_* needed; 0: two-sided */
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

static bool op_reads(uint32_t op)
{
    return op == RDMUX_OP_READ || op == RDMUX_OP_FETCH_ADD || op == RDMUX_OP_COMPARE_SWAP;
}

static bool op_is_atomic(uint32_t op)
{
    return op == RDMUX_OP_FETCH_ADD || op == RDMUX_OP_COMPARE_SWAP;
}

static inline struct rdmux_request *record(const struct rdmux_ring *ring, uint64_t at)
{
    return &ring->records[at & ring->mask];
}

/* ------------------------------------------------------------------------------------------------- rings */

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
    ring->records = rdmux_allocate(fabric, (size_t)size * sizeof(*ring->records));
    ring->sges = rdmux_allocate(fabric, (size_t)size * max_sge * sizeof(*ring->sges));
    ring->inline_data = max_inline == 0 ? NULL : rdmux_allocate(fabric, (size_t)size * max_inline);
    if (ring->records == NULL || ring->sges == NULL ||
        (max_inline != 0 && ring->inline_data == NULL)) {
        rdmux_ring_destroy(fabric, ring);
        return rdmux_fail(RDMUX_NO_MEMORY, "endpoint: out of memory for a queue of %u requests",
                          depth);
    }
    ring->mask = size - 1;
    ring->depth = depth;
    ring->max_sge = max_sge;
    ring->max_inline = max_inline;
    return RDMUX_OK;
}

void rdmux_ring_destroy(struct rdmux_fabric *fabric, struct rdmux_ring *ring)
{
    rdmux_release(fabric, ring->records);
    rdmux_release(fabric, ring->sges);
    rdmux_release(fabric, ring->inline_data);
    memset(ring, 0, sizeof(*ring));
}

/* ------------------------------------------------------------------------------------------------- checks */

/* Copies a scatter/gather list into the record's own, checking each piece. needed: RDMUX_ACCESS_LOCAL_WRITE or 0. Without a
 * domain yet the pieces keep the region itself where later is set (see resolve_receives()), else nothing. */
static enum rdmux_status take_sges(struct rdmux_fabric *fabric,
                                   const struct rdmux_provider_domain *domain, bool later,
                                   struct rdmux_request *request, struct rdmux_provider_sge *into,
                                   uint32_t max_sge, const struct rdmux_wr *wr, uint32_t needed)
{
    if (RDMUX_UNLIKELY(wr->sge_count > max_sge)) {
        return rdmux_fail(RDMUX_INVALID, "post: sge_count %u is beyond the %u of the endpoint",
                          wr->sge_count, max_sge);
    }
    if (RDMUX_UNLIKELY(wr->sge_count != 0 && wr->sges == NULL)) {
        return rdmux_fail(RDMUX_INVALID, "post: sges is NULL, sge_count is %u", wr->sge_count);
    }
    uint64_t total = 0;
    uint16_t count = 0;
    for (uint32_t i = 0; i < wr->sge_count; i++) {
        const struct rdmux_sge *sge = &wr->sges[i];
        if (sge->length == 0) {
            continue;
        }
        struct rdmux_provider_mr *registration = NULL;
        if (sge->mr != NULL) {
            const struct rdmux_mr *mr = sge->mr;
            uint64_t at = (uint64_t)((const char *)sge->addr - (const char *)mr->addr);
            if (RDMUX_UNLIKELY(mr->fabric != fabric)) {
                return rdmux_fail(RDMUX_INVALID, "post: mr of sge %u belongs to another fabric", i);
            }
            if (RDMUX_UNLIKELY(at > mr->length || sge->length > mr->length - at)) {
                return rdmux_fail(RDMUX_OUT_OF_RANGE,
                                  "post: sge %u is not within its mr of %zu bytes", i, mr->length);
            }
            if (RDMUX_UNLIKELY((mr->access & needed) != needed)) {
                return rdmux_fail(RDMUX_DENIED, "post: mr of sge %u lacks RDMUX_ACCESS_LOCAL_WRITE",
                                  i);
            }
            registration = domain != NULL ? rdmux_mr_with(mr, domain)
                           : later        ? (struct rdmux_provider_mr *)(void *)sge->mr
                                          : NULL;
        } else if (RDMUX_UNLIKELY(sge->addr == NULL)) {
            return rdmux_fail(RDMUX_INVALID, "post: buffer %u%s is NULL, its length is %zu", i,
                              op_is_atomic(wr->op) ? " (result)" : "", sge->length);
        }
        into[count].addr = sge->addr;
        into[count].length = sge->length;
        into[count].mr = registration;
        count++;
        total += sge->length;
        if (RDMUX_UNLIKELY(total < sge->length)) {
            return rdmux_fail(RDMUX_INVALID, "post: the lengths' sum wraps");
        }
    }
    request->sges = into;
    request->sge_count = count;
    request->length = total;
    return RDMUX_OK;
}

static enum rdmux_status check_remote(const struct rdmux_ep *ep, const struct rdmux_wr *wr,
                                      uint64_t length, const struct op_rule *rule,
                                      struct rdmux_request *request)
{
    struct rdmux_remote *remote = wr->remote;
    if (RDMUX_UNLIKELY(remote == NULL)) {
        if (wr->op == RDMUX_OP_WRITE && length == 0) {
            request->remote = NULL; /* a flush, or nothing at all */
            return RDMUX_OK;
        }
        return rdmux_fail(RDMUX_INVALID, "post: remote is NULL");
    }
    if (RDMUX_UNLIKELY(remote->ep != ep)) {
        return rdmux_fail(RDMUX_INVALID, "post: remote was imported on another endpoint");
    }
    if (RDMUX_UNLIKELY(remote->state != RDMUX_REMOTE_READY || remote->revoking)) {
        if (remote->state == RDMUX_REMOTE_ASKING) {
            return rdmux_again(
                "post: the import has not been answered; wait for RDMUX_WC_REMOTE_READY");
        }
        return rdmux_fail(RDMUX_DENIED,
                          "post: the peer's region was revoked, or its import refused");
    }
    if (RDMUX_UNLIKELY((remote->access & rule->access) != rule->access)) {
        if (remote->device_scope && rule->atomic) {
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
    if (RDMUX_UNLIKELY(wr->offset > remote->length || length > remote->length - wr->offset)) {
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

static enum rdmux_status not_ready(const struct rdmux_ep *ep)
{
    switch ((enum rdmux_ep_phase)ep->phase) {
    case RDMUX_PHASE_SETUP:
        return rdmux_again("post: the endpoint is not connected yet; wait for RDMUX_WC_CONNECTED");
    case RDMUX_PHASE_ENDING:
    case RDMUX_PHASE_ENDED:
        return rdmux_fail(ep->status == RDMUX_OK ? RDMUX_PEER_GONE : (enum rdmux_status)ep->status,
                          "post: the endpoint has ended: %s", ep->info.text);
    case RDMUX_PHASE_READY: /* a shutdown was asked for */
        return rdmux_fail(RDMUX_INVALID, "post: rdmux_ep_shutdown() was called on the endpoint");
    case RDMUX_PHASE_CLOSED:
        break;
    }
    return rdmux_fail(RDMUX_INVALID, "post: the endpoint is closed");
}

/* Fills the record at the ring's head from wr. Nothing is queued unless RDMUX_OK. */
static enum rdmux_status prepare(struct rdmux_ep *ep, const struct rdmux_wr *wr,
                                 struct rdmux_request **out)
{
    struct rdmux_ring *ring = &ep->send;
    if (RDMUX_UNLIKELY(ep->phase != RDMUX_PHASE_READY || ep->shutdown_asked)) {
        return not_ready(ep);
    }
    if (RDMUX_UNLIKELY(wr->op == 0 || wr->op >= RDMUX_COUNT_OF(op_rules) ||
                       wr->op == RDMUX_OP_RECV)) {
        return rdmux_fail(RDMUX_INVALID, "post: op %u is not an operation of the send side", wr->op);
    }
    const struct op_rule *rule = &op_rules[wr->op];
    if (RDMUX_UNLIKELY((wr->flags & ~(uint32_t)rule->flags) != 0)) {
        return rdmux_fail(RDMUX_INVALID,
                          "post: flags 0x%x are unknown, or not allowed for this operation",
                          wr->flags & ~(uint32_t)rule->flags);
    }
    struct rdmux_request *request = record(ring, ring->head);
    if (RDMUX_UNLIKELY(ring->head - ring->tail >= ring->depth)) {
        ep->want_writable = true;
        ep->stats.again++;
        return rdmux_again(
            "post: all of the send queue's requests are in use; poll, then post again");
    }
    enum rdmux_status status = take_sges(ep->fabric, ep->domain, false, request,
                                         &ring->sges[(ring->head & ring->mask) * ring->max_sge],
                                         ring->max_sge, wr,
                                         op_reads(wr->op) ? RDMUX_ACCESS_LOCAL_WRITE : 0);
    if (RDMUX_UNLIKELY(status != RDMUX_OK)) {
        return status;
    }
    if (RDMUX_UNLIKELY((ep->caps & rule->cap) == 0)) {
        return rdmux_fail(RDMUX_UNSUPPORTED, "post: the path %s cannot do this operation",
                          ep->info.provider);
    }
    if (RDMUX_UNLIKELY((wr->flags & RDMUX_INLINE) != 0 && request->length > ep->max_inline)) {
        return rdmux_fail(RDMUX_LENGTH, "post: %llu bytes are beyond the %llu of RDMUX_INLINE",
                          (unsigned long long)request->length, (unsigned long long)ep->max_inline);
    }
    if (rule->access == 0) {
        if (RDMUX_UNLIKELY(request->length > ep->max_send)) {
            return rdmux_fail(
                RDMUX_LENGTH,
                "post: a send of %llu bytes is beyond the %llu granted; raise max_send and the "
                "peer's max_recv",
                (unsigned long long)request->length, (unsigned long long)ep->max_send);
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
            request->operand = wr->operand;
            request->expected = wr->expected;
        }
    }
    request->op = wr->op;
    request->flags = wr->flags;
    request->imm = wr->imm;
    request->done = 0;
    request->internal = 0;
    request->status = RDMUX_OK;
    request->context = wr->context;
    request->sequence = ring->head;
    *out = request;
    return RDMUX_OK;
}

static void count_request(struct rdmux_ep *ep, const struct rdmux_request *request)
{
    switch (request->op) {
    case RDMUX_OP_SEND:
    case RDMUX_OP_SEND_IMM:
        ep->stats.sends++;
        ep->stats.bytes_sent += request->length;
        break;
    case RDMUX_OP_WRITE:
    case RDMUX_OP_WRITE_IMM:
        ep->stats.writes++;
        ep->stats.bytes_sent += request->length;
        break;
    case RDMUX_OP_READ:
        ep->stats.reads++;
        break;
    default:
        ep->stats.atomics++;
        break;
    }
}

/* ------------------------------------------------------------------------------------------------- to the provider */

static bool reads_outstanding(const struct rdmux_ep *ep)
{
    for (uint64_t at = ep->send.tail; at != ep->send.next; at++) {
        const struct rdmux_request *request = record(&ep->send, at);
        if (!request->done && op_reads(request->op)) {
            return true;
        }
    }
    return false;
}

/* How many requests from `next` on may go to the provider in one call: adjacent records up to the next fence. */
static size_t run_length(const struct rdmux_ep *ep)
{
    const struct rdmux_ring *ring = &ep->send;
    uint64_t count = ring->head - ring->next;
    uint64_t to_wrap = ring->mask + 1 - (ring->next & ring->mask);
    if (count > to_wrap) {
        count = to_wrap;
    }
    if (ep->ops->flags & RDMUX_PROVIDER_NATIVE_FENCE) {
        return count;
    }
    for (uint64_t i = 0; i < count; i++) {
        if (record(ring, ring->next + i)->flags & RDMUX_FENCE) {
            if (i == 0) {
                if (reads_outstanding(ep)) {
                    return 0;
                }
                continue; /* free to go; the fence of a later one still counts those before it */
            }
            return i;
        }
    }
    return count;
}

void rdmux_ep_push(struct rdmux_ep *ep, bool more)
{
    struct rdmux_ring *ring = &ep->send;
    while (ring->next != ring->head && ep->phase == RDMUX_PHASE_READY && ep->fault == RDMUX_OK) {
        size_t count = run_length(ep);
        if (count == 0) {
            break;
        }
        size_t posted = 0;
        enum rdmux_status status = ep->ops->post(ep->path, record(ring, ring->next), count,
                                                 more ? RDMUX_POST_MORE : 0, &posted);
        ring->next += posted;
        ep->stats.posts++;
        if (RDMUX_UNLIKELY(status != RDMUX_OK)) {
            if (status == RDMUX_AGAIN) {
                ep->blocked = true;
            } else {
                rdmux_provider_failed(ep->path, status, rdmux_last_error());
            }
            break;
        }
        if (RDMUX_UNLIKELY(posted == 0)) {
            break;
        }
    }
    if (more && !ep->doorbell_held) {
        ep->doorbell_held = true;
        ep->doorbell_next = ep->cq->doorbells;
        ep->cq->doorbells = ep;
    }
}

/* Inline requests that have to wait get their bytes copied: the application's buffer is free on return. */
static void keep_inline(struct rdmux_ep *ep, uint64_t from)
{
    struct rdmux_ring *ring = &ep->send;
    for (uint64_t at = from > ring->next ? from : ring->next; at != ring->head; at++) {
        struct rdmux_request *request = record(ring, at);
        ep->stats.held++;
        if ((request->flags & RDMUX_INLINE) == 0 || request->length == 0) {
            continue;
        }
        uint8_t *copy = ring->inline_data + (at & ring->mask) * ring->max_inline;
        size_t used = 0;
        for (uint16_t i = 0; i < request->sge_count; i++) {
            memcpy(copy + used, request->sges[i].addr, request->sges[i].length);
            used += request->sges[i].length;
        }
        request->sges[0].addr = copy;
        request->sges[0].length = used;
        request->sges[0].mr = NULL;
        request->sge_count = 1;
    }
}

/* After new records were queued from `from` on. */
static void start(struct rdmux_ep *ep, uint64_t from, bool more)
{
    struct rdmux_ring *ring = &ep->send;
    if (RDMUX_LIKELY(ring->next == from && !ep->blocked)) {
        rdmux_ep_push(ep, more);
    }
    if (RDMUX_UNLIKELY(ring->next != ring->head)) {
        keep_inline(ep, from);
    }
}

static inline enum rdmux_status enter_ep(struct rdmux_ep *ep)
{
    if (RDMUX_UNLIKELY(ep == NULL)) {
        return rdmux_fail(RDMUX_INVALID, "post: ep is NULL");
    }
    if (RDMUX_UNLIKELY(!rdmux_cq_enter(ep->cq))) {
        return rdmux_fail(RDMUX_INVALID,
                          "post: the process forked; the endpoint belongs to the parent");
    }
    return RDMUX_OK;
}

static enum rdmux_status post_one(struct rdmux_ep *ep, const struct rdmux_wr *wr)
{
    enum rdmux_status status = enter_ep(ep);
    if (RDMUX_UNLIKELY(status != RDMUX_OK)) {
        return status;
    }
    struct rdmux_request *request = NULL;
    status = prepare(ep, wr, &request);
    if (RDMUX_LIKELY(status == RDMUX_OK)) {
        assert(request != NULL);
        uint64_t from = ep->send.head++;
        count_request(ep, request);
        start(ep, from, (wr->flags & RDMUX_MORE) != 0);
    }
    rdmux_cq_leave(ep->cq);
    return status;
}

static bool spare_is_zero(const struct rdmux_wr *wr)
{
    uint64_t any = 0;
    for (size_t i = 0; i < RDMUX_COUNT_OF(wr->spare); i++) {
        any |= wr->spare[i];
    }
    return any == 0;
}

enum rdmux_status rdmux_post(struct rdmux_ep *ep, const struct rdmux_wr *wrs, size_t count,
                             size_t *posted)
{
    if (posted != NULL) {
        *posted = 0;
    }
    if (wrs == NULL || count == 0) {
        return count == 0 && ep != NULL ? RDMUX_OK
                                        : rdmux_fail(RDMUX_INVALID, "rdmux_post: wrs is NULL");
    }
    enum rdmux_status status = enter_ep(ep);
    if (status != RDMUX_OK) {
        return status;
    }
    uint64_t from = ep->send.head;
    size_t done = 0;
    for (; done < count; done++) {
        struct rdmux_request *request = NULL;
        if (RDMUX_UNLIKELY(!spare_is_zero(&wrs[done]))) {
            status = rdmux_fail(RDMUX_INVALID, "rdmux_post: spare of request %zu is not zero", done);
            break;
        }
        status = prepare(ep, &wrs[done], &request);
        if (RDMUX_UNLIKELY(status != RDMUX_OK)) {
            break;
        }
        assert(request != NULL);
        ep->send.head++;
        count_request(ep, request);
    }
    if (done != 0) {
        start(ep, from, (wrs[done - 1].flags & RDMUX_MORE) != 0);
    }
    rdmux_cq_leave(ep->cq);
    if (posted != NULL) {
        *posted = done;
    }
    return status;
}

/* ------------------------------------------------------------------------------------------------- the single calls */

enum rdmux_status rdmux_send(struct rdmux_ep *ep, const void *buf, size_t length,
                             struct rdmux_mr *mr, void *context, uint32_t flags)
{
    struct rdmux_sge sge = { (void *)(uintptr_t)buf, length, mr };
    struct rdmux_wr wr = {
        .op = RDMUX_OP_SEND, .flags = flags, .context = context, .sges = &sge, .sge_count = 1
    };
    return post_one(ep, &wr);
}

enum rdmux_status rdmux_send_imm(struct rdmux_ep *ep, const void *buf, size_t length,
                                 struct rdmux_mr *mr, uint32_t imm, void *context, uint32_t flags)
{
    struct rdmux_sge sge = { (void *)(uintptr_t)buf, length, mr };
    struct rdmux_wr wr = { .op = RDMUX_OP_SEND_IMM,
                           .flags = flags,
                           .context = context,
                           .sges = &sge,
                           .sge_count = 1,
                           .imm = imm };
    return post_one(ep, &wr);
}

enum rdmux_status rdmux_write(struct rdmux_ep *ep, const void *buf, size_t length,
                              struct rdmux_mr *mr, struct rdmux_remote *remote, uint64_t offset,
                              void *context, uint32_t flags)
{
    struct rdmux_sge sge = { (void *)(uintptr_t)buf, length, mr };
    struct rdmux_wr wr = {
        .op = RDMUX_OP_WRITE,
        .flags = flags,
        .context = context,
        .sges = &sge,
        .sge_count = 1,
        .remote = remote,
        .offset = offset,
    };
    return post_one(ep, &wr);
}

enum rdmux_status rdmux_write_imm(struct rdmux_ep *ep, const void *buf, size_t length,
                                  struct rdmux_mr *mr, struct rdmux_remote *remote, uint64_t offset,
                                  uint32_t imm, void *context, uint32_t flags)
{
    struct rdmux_sge sge = { (void *)(uintptr_t)buf, length, mr };
    struct rdmux_wr wr = {
        .op = RDMUX_OP_WRITE_IMM,
        .flags = flags,
        .context = context,
        .sges = &sge,
        .sge_count = 1,
        .imm = imm,
        .remote = remote,
        .offset = offset,
    };
    return post_one(ep, &wr);
}

enum rdmux_status rdmux_read(struct rdmux_ep *ep, void *buf, size_t length, struct rdmux_mr *mr,
                             struct rdmux_remote *remote, uint64_t offset, void *context,
                             uint32_t flags)
{
    struct rdmux_sge sge = { buf, length, mr };
    struct rdmux_wr wr = {
        .op = RDMUX_OP_READ,
        .flags = flags,
        .context = context,
        .sges = &sge,
        .sge_count = 1,
        .remote = remote,
        .offset = offset,
    };
    return post_one(ep, &wr);
}

enum rdmux_status rdmux_fetch_add(struct rdmux_ep *ep, uint64_t *result, struct rdmux_mr *mr,
                                  struct rdmux_remote *remote, uint64_t offset, uint64_t add,
                                  void *context, uint32_t flags)
{
    struct rdmux_sge sge = { result, sizeof(*result), mr };
    struct rdmux_wr wr = {
        .op = RDMUX_OP_FETCH_ADD,
        .flags = flags,
        .context = context,
        .sges = &sge,
        .sge_count = 1,
        .remote = remote,
        .offset = offset,
        .operand = add,
    };
    return post_one(ep, &wr);
}

enum rdmux_status rdmux_compare_swap(struct rdmux_ep *ep, uint64_t *result, struct rdmux_mr *mr,
                                     struct rdmux_remote *remote, uint64_t offset,
                                     uint64_t expected, uint64_t desired, void *context,
                                     uint32_t flags)
{
    struct rdmux_sge sge = { result, sizeof(*result), mr };
    struct rdmux_wr wr = {
        .op = RDMUX_OP_COMPARE_SWAP,
        .flags = flags,
        .context = context,
        .sges = &sge,
        .sge_count = 1,
        .remote = remote,
        .offset = offset,
        .operand = desired,
        .expected = expected,
    };
    return post_one(ep, &wr);
}

/* ------------------------------------------------------------------------------------------------- receives */

enum rdmux_status rdmux_recv_prepare(struct rdmux_fabric *fabric,
                                     const struct rdmux_provider_domain *domain, bool later,
                                     struct rdmux_request *request, struct rdmux_provider_sge *into,
                                     uint32_t max_sge, const struct rdmux_wr *wr)
{
    if (RDMUX_UNLIKELY(wr->op != RDMUX_OP_RECV || wr->flags != 0)) {
        return rdmux_fail(RDMUX_INVALID,
                          "post_recv: op must be RDMUX_OP_RECV and flags 0, not %u and 0x%x",
                          wr->op, wr->flags);
    }
    enum rdmux_status status = take_sges(fabric, domain, later, request, into, max_sge, wr,
                                         RDMUX_ACCESS_LOCAL_WRITE);
    if (RDMUX_UNLIKELY(status != RDMUX_OK)) {
        return status;
    }
    request->op = RDMUX_OP_RECV;
    request->flags = 0;
    request->imm = 0;
    request->done = 0;
    request->internal = 0;
    request->status = RDMUX_OK;
    request->opcode = RDMUX_WC_RECV;
    request->wc_flags = 0;
    request->context = wr->context;
    request->next = NULL;
    return RDMUX_OK;
}

static enum rdmux_status queue_receive(struct rdmux_ep *ep, const struct rdmux_wr *wr)
{
    struct rdmux_ring *ring = &ep->recv;
    if (RDMUX_UNLIKELY(ep->phase > RDMUX_PHASE_READY)) {
        return not_ready(ep);
    }
    if (RDMUX_UNLIKELY(ep->srq != NULL)) {
        return rdmux_fail(
            RDMUX_INVALID,
            "post_recv: the endpoint takes its receives from an SRQ; use rdmux_srq_recv()");
    }
    if (RDMUX_UNLIKELY(ring->head - ring->tail >= ring->depth)) {
        ep->stats.again++;
        return rdmux_again(
            "post_recv: all of the receive queue's entries are in use; poll, then post again");
    }
    struct rdmux_request *request = record(ring, ring->head);
    enum rdmux_status status = rdmux_recv_prepare(
        ep->fabric, ep->domain, true, request,
        &ring->sges[(ring->head & ring->mask) * ring->max_sge], ring->max_sge, wr);
    if (RDMUX_LIKELY(status == RDMUX_OK)) {
        request->sequence = ring->head++;
    }
    return status;
}

/* Tells the provider of receives [from, head). */
static void offer_receives(struct rdmux_ep *ep, uint64_t from)
{
    struct rdmux_ring *ring = &ep->recv;
    while (from != ring->head && ep->phase == RDMUX_PHASE_READY) {
        uint64_t count = ring->head - from;
        uint64_t to_wrap = ring->mask + 1 - (from & ring->mask);
        if (count > to_wrap) {
            count = to_wrap;
        }
        enum rdmux_status status = ep->ops->post_recv(ep->path, record(ring, from), count);
        if (RDMUX_UNLIKELY(status != RDMUX_OK)) {
            rdmux_provider_failed(ep->path, status, rdmux_last_error());
            return;
        }
        from += count;
    }
}

/* Receives posted before there was a path kept the region where its registration belongs. */
static void resolve_receives(struct rdmux_ep *ep)
{
    for (uint64_t at = ep->recv.tail; at != ep->recv.head; at++) {
        struct rdmux_request *request = record(&ep->recv, at);
        for (uint16_t i = 0; i < request->sge_count; i++) {
            if (request->sges[i].mr != NULL) {
                const struct rdmux_mr *mr = (const struct rdmux_mr *)(const void *)request->sges[i]
                                                .mr;
                request->sges[i].mr = rdmux_mr_with(mr, ep->domain);
            }
        }
    }
}

void rdmux_ep_offer_all_receives(struct rdmux_ep *ep)
{
    resolve_receives(ep);
    if (ep->srq == NULL) {
        offer_receives(ep, ep->recv.tail);
        return;
    }
    /* A message may have come while the path was on trial, when the SRQ's receives were not its to take. */
    enum rdmux_status status = ep->ops->post_recv(ep->path, NULL, 0);
    if (status != RDMUX_OK) {
        rdmux_provider_failed(ep->path, status, rdmux_last_error());
    }
}

enum rdmux_status rdmux_recv(struct rdmux_ep *ep, void *buf, size_t length, struct rdmux_mr *mr,
                             void *context)
{
    struct rdmux_sge sge = { buf, length, mr };
    struct rdmux_wr wr = { .op = RDMUX_OP_RECV, .context = context, .sges = &sge, .sge_count = 1 };
    enum rdmux_status status = enter_ep(ep);
    if (RDMUX_UNLIKELY(status != RDMUX_OK)) {
        return status;
    }
    uint64_t from = ep->recv.head;
    status = queue_receive(ep, &wr);
    if (RDMUX_LIKELY(status == RDMUX_OK)) {
        offer_receives(ep, from);
    }
    rdmux_cq_leave(ep->cq);
    return status;
}

enum rdmux_status rdmux_post_recv(struct rdmux_ep *ep, const struct rdmux_wr *wrs, size_t count,
                                  size_t *posted)
{
    if (posted != NULL) {
        *posted = 0;
    }
    if (wrs == NULL || count == 0) {
        return count == 0 && ep != NULL ? RDMUX_OK
                                        : rdmux_fail(RDMUX_INVALID, "rdmux_post_recv: wrs is NULL");
    }
    enum rdmux_status status = enter_ep(ep);
    if (status != RDMUX_OK) {
        return status;
    }
    uint64_t from = ep->recv.head;
    size_t done = 0;
    for (; done < count && status == RDMUX_OK; done++) {
        status = spare_is_zero(&wrs[done])
                     ? queue_receive(ep, &wrs[done])
                     : rdmux_fail(RDMUX_INVALID,
                                  "rdmux_post_recv: spare of request %zu is not zero", done);
        if (status != RDMUX_OK) {
            break;
        }
    }
    if (done != 0) {
        offer_receives(ep, from);
    }
    rdmux_cq_leave(ep->cq);
    if (posted != NULL) {
        *posted = done;
    }
    return status;
}

/* ------------------------------------------------------------------------------------------------- from the provider */

void rdmux_provider_ready(struct rdmux_provider_ep *path)
{
    path->ready = 1;
    rdmux_cq_pend(path->ep->cq, path->ep);
}

int rdmux_provider_has_srq(const struct rdmux_provider_ep *path)
{
    return path->ep->srq != NULL;
}

struct rdmux_request *rdmux_provider_take_receive(struct rdmux_provider_ep *path)
{
    struct rdmux_ep *ep = path->ep;
    if (RDMUX_UNLIKELY(path != ep->path)) {
        return NULL; /* a path on trial: the application's receives are not its to take */
    }
    if (RDMUX_UNLIKELY(ep->srq != NULL)) {
        struct rdmux_request *request = rdmux_srq_take(ep->srq);
        if (request != NULL) {
            request->next = ep->srq_taken;
            ep->srq_taken = request;
        }
        return request;
    }
    struct rdmux_ring *ring = &ep->recv;
    return ring->next == ring->head ? NULL : record(ring, ring->next++);
}

uint32_t rdmux_provider_receives(struct rdmux_provider_ep *path)
{
    struct rdmux_ep *ep = path->ep;
    if (path != ep->path) {
        return 0;
    }
    return ep->srq != NULL ? ep->srq->posted_count : (uint32_t)(ep->recv.head - ep->recv.next);
}

static void srq_received(struct rdmux_ep *ep, struct rdmux_request *request)
{
    for (struct rdmux_request **at = &ep->srq_taken; *at != NULL; at = &(*at)->next) {
        if (*at == request) {
            *at = request->next;
            break;
        }
    }
    request->next = NULL;
    if (ep->srq_done == NULL) {
        ep->srq_done = request;
    } else {
        ep->srq_done_last->next = request;
    }
    ep->srq_done_last = request;
}

void rdmux_provider_received(struct rdmux_provider_ep *path, struct rdmux_request *request,
                             uint32_t status, uint32_t opcode, uint64_t length, uint32_t wc_flags,
                             uint32_t imm)
{
    struct rdmux_ep *ep = path->ep;
    request->status = status;
    request->opcode = opcode;
    request->length = length;
    request->wc_flags = wc_flags;
    request->imm = imm;
    request->done = 1;
    if (RDMUX_UNLIKELY(ep->srq != NULL)) {
        srq_received(ep, request);
    }
    if (!path->ready) {
        rdmux_provider_ready(path);
    }
}

/* ------------------------------------------------------------------------------------------------- to the application */

static void fill_wc(struct rdmux_wc *wc, struct rdmux_ep *ep, const struct rdmux_request *request,
                    uint32_t opcode)
{
    wc->context = request->context;
    wc->ep = ep;
    wc->length = request->status == RDMUX_OK ? request->length : 0;
    wc->status = request->status;
    wc->opcode = opcode;
    wc->flags = request->wc_flags;
    wc->imm = request->imm;
    wc->spare[0] = 0;
    wc->spare[1] = 0;
    wc->spare[2] = 0;
}

/* Returns done send-side requests in posting order. */
static size_t drain_sends(struct rdmux_ep *ep, struct rdmux_wc *wc, size_t max)
{
    struct rdmux_ring *ring = &ep->send;
    size_t count = 0;
    while (ring->tail != ring->next) {
        struct rdmux_request *request = record(ring, ring->tail);
        if (!request->done) {
            break;
        }
        bool silent = request->internal ||
                      ((request->flags & RDMUX_UNSIGNALED) != 0 && request->status == RDMUX_OK);
        if (!silent) {
            if (count == max) {
                break;
            }
            request->wc_flags = 0;
            fill_wc(&wc[count], ep, request, op_rules[request->op].wc_opcode);
            wc[count].imm = 0;
            count++;
        }
        if (request->status == RDMUX_OK && op_reads(request->op)) {
            ep->stats.bytes_received += request->length;
        }
        ring->tail++;
    }
    return count;
}

static void count_receive(struct rdmux_ep *ep, const struct rdmux_request *request)
{
    ep->stats.receives++;
    if (request->status == RDMUX_OK) {
        ep->stats.bytes_received += request->length;
    }
}

static size_t drain_receives(struct rdmux_ep *ep, struct rdmux_wc *wc, size_t max)
{
    struct rdmux_ring *ring = &ep->recv;
    size_t count = 0;
    while (count < max && ring->tail != ring->head && record(ring, ring->tail)->done) {
        struct rdmux_request *request = record(ring, ring->tail);
        fill_wc(&wc[count++], ep, request, request->opcode);
        count_receive(ep, request);
        ring->tail++;
        if (RDMUX_UNLIKELY(ring->next < ring->tail)) {
            ring->next = ring->tail; /* a provider that matches in hardware takes none by itself */
        }
    }
    while (count < max && ep->srq_done != NULL) {
        struct rdmux_request *request = ep->srq_done;
        ep->srq_done = request->next;
        fill_wc(&wc[count++], ep, request, request->opcode);
        count_receive(ep, request);
        rdmux_srq_put(ep->srq, request);
    }
    return count;
}

static bool requests_left(const struct rdmux_ep *ep)
{
    return ep->send.tail != ep->send.head || ep->recv.tail != ep->recv.head || ep->srq_done != NULL;
}

static void fill_event(struct rdmux_wc *wc, struct rdmux_ep *ep, uint32_t opcode, uint32_t status,
                       void *context)
{
    memset(wc, 0, sizeof(*wc));
    wc->context = context;
    wc->ep = ep;
    wc->status = status;
    wc->opcode = opcode;
}

static bool room_to_write(const struct rdmux_ep *ep)
{
    uint64_t free_entries = ep->send.depth - (ep->send.head - ep->send.tail);
    uint64_t quarter = ep->send.depth / 4;
    return free_entries >= (quarter == 0 ? 1 : quarter);
}

/* Events, in an order that makes sense: connected first, disconnected last of all. */
static size_t drain_events(struct rdmux_ep *ep, struct rdmux_wc *wc, size_t max)
{
    size_t count = 0;
    while (count < max && !rdmux_list_empty(&ep->ready_remotes)) {
        struct rdmux_remote *remote = RDMUX_CONTAINER(ep->ready_remotes.next, struct rdmux_remote,
                                                      ready_link);
        rdmux_list_remove(&remote->ready_link);
        fill_event(&wc[count++], ep, RDMUX_WC_REMOTE_READY, remote->status, remote);
    }
    if (ep->want_writable && ep->phase == RDMUX_PHASE_READY && count < max && room_to_write(ep)) {
        ep->want_writable = false;
        fill_event(&wc[count++], ep, RDMUX_WC_WRITABLE, RDMUX_OK, NULL);
    }
    if ((ep->events & RDMUX_EVENT_DISCONNECTED) != 0 && count < max && !requests_left(ep)) {
        ep->events &= ~(uint32_t)RDMUX_EVENT_DISCONNECTED;
        fill_event(&wc[count++], ep, RDMUX_WC_DISCONNECTED, ep->status, NULL);
    }
    return count;
}

bool rdmux_ep_has_entries(const struct rdmux_ep *ep)
{
    if (ep->phase == RDMUX_PHASE_CLOSED) {
        return false;
    }
    if (ep->events & RDMUX_EVENT_CONNECTED) {
        return true;
    }
    if (ep->phase == RDMUX_PHASE_SETUP) {
        return !rdmux_list_empty(&ep->ready_remotes);
    }
    for (uint64_t at = ep->send.tail; at != ep->send.next; at++) {
        const struct rdmux_request *request = record(&ep->send, at);
        if (!request->done) {
            break;
        }
        if (!request->internal &&
            ((request->flags & RDMUX_UNSIGNALED) == 0 || request->status != RDMUX_OK)) {
            return true;
        }
    }
    return (ep->recv.tail != ep->recv.head && record(&ep->recv, ep->recv.tail)->done) ||
           ep->srq_done != NULL || !rdmux_list_empty(&ep->ready_remotes) ||
           (ep->want_writable && ep->phase == RDMUX_PHASE_READY && room_to_write(ep)) ||
           ((ep->events & RDMUX_EVENT_DISCONNECTED) != 0 && !requests_left(ep));
}

bool rdmux_ep_done_before(const struct rdmux_ep *ep, uint64_t sequence)
{
    for (uint64_t at = ep->send.tail; at < sequence && at != ep->send.head; at++) {
        if (at >= ep->send.next || !record(&ep->send, at)->done) {
            return false;
        }
    }
    return true;
}

size_t rdmux_ep_drain(struct rdmux_ep *ep, struct rdmux_wc *wc, size_t max)
{
    size_t count = 0;
    if (RDMUX_UNLIKELY(ep->phase == RDMUX_PHASE_SETUP)) {
        rdmux_ep_setup_step(ep);
    }
    if (RDMUX_LIKELY(ep->path != NULL)) {
        ep->path->ready = 0;
        if (RDMUX_UNLIKELY(ep->path->resume)) {
            ep->path->resume = 0;
            ep->blocked = false;
        }
    }
    if (RDMUX_UNLIKELY((ep->events & RDMUX_EVENT_CONNECTED) != 0 && count < max)) {
        ep->events &= ~(uint32_t)RDMUX_EVENT_CONNECTED;
        fill_event(&wc[count++], ep, RDMUX_WC_CONNECTED, ep->status, NULL);
    }
    count += drain_sends(ep, wc + count, max - count);
    if (RDMUX_UNLIKELY(ep->send.next != ep->send.head && !ep->blocked &&
                       ep->phase == RDMUX_PHASE_READY)) {
        rdmux_ep_push(ep, false);
        count += drain_sends(ep, wc + count, max - count);
    }
    count += drain_receives(ep, wc + count, max - count);
    if (RDMUX_UNLIKELY(ep->fault != RDMUX_OK && ep->phase == RDMUX_PHASE_READY)) {
        rdmux_ep_path_fault(ep);
        count += drain_sends(ep, wc + count, max - count);
        count += drain_receives(ep, wc + count, max - count);
    }
    if (RDMUX_UNLIKELY(ep->control_work)) {
        rdmux_ep_control_step(ep);
    }
    count += drain_events(ep, wc + count, max - count);
    return count;
}

void rdmux_provider_failed(struct rdmux_provider_ep *path, enum rdmux_status status,
                           const char *text)
{
    assert(path != NULL);
    struct rdmux_ep *ep = path->ep;
    if (ep->fault == RDMUX_OK) {
        ep->fault = (uint32_t)status;
        size_t length = text == NULL ? 0 : strnlen(text, sizeof(ep->fault_text) - 1);
        memcpy(ep->fault_text, text == NULL ? "" : text, length);
        ep->fault_text[length] = '\0';
    }
    rdmux_provider_ready(path);
}
