/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The data path: turns requests into work requests. No lock, no allocation, no log. */
#include "verbs/verbs_send.h"

#include "verbs/verbs_chain.h"
#include "verbs/verbs_description.h"
#include "verbs/verbs_domain.h"
#include "verbs/verbs_endpoint.h"
#include "verbs/verbs_macros.h"
#include "verbs/verbs_memory.h"
#include "verbs/verbs_outcome.h"
#include "verbs/verbs_queue.h"
#include "verbs/verbs_ring.h"
#include "verbs/verbs_side.h"
#include "verbs/verbs_silent.h"
#include "verbs/verbs_state.h"
#include "verbs/verbs_transport.h"

#include <arpa/inet.h>
#include <assert.h>
#include <string.h>

static_assert(offsetof(struct verbs_ep, base) == 0, "verbs_ep_of() relies on it");

static const enum ibv_wr_opcode opcodes[] = {
    [RDMUX_OP_SEND] = IBV_WR_SEND,
    [RDMUX_OP_SEND_IMM] = IBV_WR_SEND_WITH_IMM,
    [RDMUX_OP_WRITE] = IBV_WR_RDMA_WRITE,
    [RDMUX_OP_WRITE_IMM] = IBV_WR_RDMA_WRITE_WITH_IMM,
    [RDMUX_OP_READ] = IBV_WR_RDMA_READ,
    [RDMUX_OP_FETCH_ADD] = IBV_WR_ATOMIC_FETCH_AND_ADD,
    [RDMUX_OP_COMPARE_SWAP] = IBV_WR_ATOMIC_CMP_AND_SWP,
};

static inline bool reads_under_way(uint32_t op)
{
    return op >= RDMUX_OP_READ;
}

/* ------------------------------------------------------------------------------------ send side */

static inline void add_pieces(struct verbs_queue *queue, struct ibv_send_wr *work,
                              const struct rdmux_provider_sge *sges, uint32_t count)
{
    work->num_sge += (int)verbs_pieces(sges, count, &queue->pieces[queue->piece_count]);
    queue->piece_count += count;
}

static void name_remote(struct ibv_send_wr *work, const struct rdmux_request *request, uint64_t skip)
{
    if (VERBS_LIKELY(request->remote != NULL)) { /* else nothing is written, to no address */
        verbs_name_remote(work, request, skip);
    }
}

/* A read's response of this size or less fits into one packet on every path. */
enum { VERBS_PACKET_LEAST = 256 };

static inline bool is_doubted(const struct verbs_ep *ep, const struct rdmux_request *request)
{
    return verbs_domain_of_ep(ep)->doubts_reads && request->length > VERBS_PACKET_LEAST;
}

/* Chains a read: one work request for each part of the list, as some devices take fewer pieces in
 * reads. A doubted read gets a flush read behind it, which fails if the read failed although it
 * completed as done. */
static void chain_read(struct verbs_ep *ep, struct rdmux_request *request, enum verbs_wish wish,
                       uint32_t flags)
{
    struct verbs_queue *queue = &ep->data;
    const bool doubted = is_doubted(ep, request);
    uint64_t skip = 0;
    uint32_t at = 0;
    do {
        uint32_t left = request->sge_count - at;
        uint32_t count = left < ep->max_read_sge ? left : ep->max_read_sge;
        bool is_last = count == left && !doubted;
        struct ibv_send_wr *work = rdmux_verbs_chain_add(queue, is_last ? request : NULL,
                                                         is_last ? wish : VERBS_WISH_LATER);
        work->opcode = IBV_WR_RDMA_READ;
        work->send_flags |= at == 0 ? flags : 0;
        name_remote(work, request, skip);
        add_pieces(queue, work, &request->sges[at], count);
        for (uint32_t end = at + count; at < end; at++) {
            skip += request->sges[at].length;
        }
    } while (at < request->sge_count);
    if (VERBS_UNLIKELY(doubted)) {
        rdmux_verbs_chain_flush(ep, request, wish);
    }
    ep->reads_end = queue->sent.head;
}

static void chain_atomic(struct verbs_ep *ep, struct rdmux_request *request, enum verbs_wish wish,
                         uint32_t flags)
{
    struct verbs_queue *queue = &ep->data;
    const struct verbs_remote *remote = (const struct verbs_remote *)request->remote;
    struct ibv_send_wr *work = rdmux_verbs_chain_add(queue, request, wish);
    bool is_add = request->op == RDMUX_OP_FETCH_ADD;
    work->opcode = opcodes[request->op];
    work->send_flags |= flags;
    work->wr.atomic.remote_addr = remote->region.addr + request->offset;
    work->wr.atomic.rkey = remote->region.rkey;
    work->wr.atomic.compare_add = is_add ? request->operand : request->expected;
    work->wr.atomic.swap = is_add ? 0 : request->operand;
    add_pieces(queue, work, request->sges, request->sge_count);
    ep->reads_end = queue->sent.head;
}

/* Copies the bytes of an inline request that the device does not inline to the slot's buffer. */
static void add_copy(struct verbs_ep *ep, struct ibv_send_wr *work,
                     const struct rdmux_request *request)
{
    struct verbs_queue *queue = &ep->data;
    uint32_t slot = verbs_wr_id_slot(work->wr_id) & queue->sent.mask;
    uint8_t *copy = ep->copies + (size_t)slot * ep->copy_size;
    uint32_t used = 0;
    for (uint32_t i = 0; i < request->sge_count; i++) {
        memcpy(copy + used, request->sges[i].addr, request->sges[i].length);
        used += (uint32_t)request->sges[i].length;
    }
    work->num_sge += verbs_chain_piece(queue, copy, used, ep->copies_mr->lkey);
}

void rdmux_verbs_add_bytes(struct verbs_ep *ep, struct ibv_send_wr *work,
                           const struct rdmux_request *request, uint32_t before)
{
    struct verbs_queue *queue = &ep->data;
    if (before + request->length <= queue->max_inline) {
        work->send_flags |= IBV_SEND_INLINE;
        queue->is_chain_inline |= (request->flags & RDMUX_INLINE) != 0;
        add_pieces(queue, work, request->sges, request->sge_count);
    } else if ((request->flags & RDMUX_INLINE) != 0) {
        add_copy(ep, work, request);
    } else {
        add_pieces(queue, work, request->sges, request->sge_count);
    }
}

static void chain_data(struct verbs_ep *ep, struct rdmux_request *request, enum verbs_wish wish,
                       uint32_t flags)
{
    struct verbs_queue *queue = &ep->data;
    bool is_placed = (request->flags & RDMUX_PLACED) != 0;
    struct ibv_send_wr *work = rdmux_verbs_chain_add(queue, is_placed ? NULL : request,
                                                     is_placed ? VERBS_WISH_LATER : wish);
    work->opcode = opcodes[request->op];
    work->send_flags |= flags;
    work->imm_data = htonl(request->imm);
    if (request->op == RDMUX_OP_WRITE || request->op == RDMUX_OP_WRITE_IMM) {
        name_remote(work, request, 0);
    }
    rdmux_verbs_add_bytes(ep, work, request, 0);
    ep->is_unflushed = true;
    if (is_placed) {
        rdmux_verbs_chain_flush(ep, request, wish);
    }
}

/* Returns the number of work requests of a request. */
static inline uint32_t slots_of(const struct verbs_ep *ep, const struct rdmux_request *request)
{
    if (!reads_under_way(request->op)) {
        return (request->flags & RDMUX_PLACED) != 0 ? 2 : 1;
    }
    uint32_t parts = request->sge_count <= ep->max_read_sge
                         ? 1
                         : (request->sge_count + ep->max_read_sge - 1) / ep->max_read_sge;
    return is_doubted(ep, request) ? parts + 1 : parts;
}

/* True if a request must wait for emulated atomics: those run on another queue pair, so a request
 * that must stay behind them is held back. */
static inline bool must_wait_for_atomics(const struct verbs_ep *ep,
                                         const struct rdmux_request *request)
{
    return ep->side.atomic_count != 0 &&
           ((request->flags & RDMUX_FENCE) != 0 || request->op == RDMUX_OP_READ);
}

static bool is_native_atomic(const struct rdmux_request *request)
{
    const struct verbs_remote *remote = (const struct verbs_remote *)request->remote;
    return (remote->region.flags & VERBS_REGION_NATIVE_ATOMICS) != 0;
}

/* True if the device fences the request. Atomics over the side channel are no work of the data
 * queue pair. */
static bool is_fenced_by_device(const struct verbs_ep *ep, const struct rdmux_request *request)
{
    return !verbs_domain_of_ep(ep)->lacks_fence &&
           (request->op <= RDMUX_OP_READ || is_native_atomic(request));
}

/* True for a request of no bytes that cannot be replaced; it waits for all reads before it, the
 * library's own included. See lacks_nothing. */
static bool is_bare(const struct verbs_ep *ep, const struct rdmux_request *request)
{
    return request->length == 0 && verbs_domain_of_ep(ep)->lacks_nothing &&
           (request->op == RDMUX_OP_WRITE_IMM ||
            (request->op == RDMUX_OP_WRITE && ep->transport->lacks_word &&
             (request->flags & RDMUX_PLACED) == 0));
}

/* Implements the fence that the device lacks: a fenced request, and all requests behind it, wait
 * for the reads before it. A read that no completion will report gets a signaled successor. */
static bool must_wait_for_reads(struct verbs_ep *ep, const struct rdmux_request *request)
{
    const struct verbs_send_ring *ring = &ep->data.sent;
    uint32_t end = ep->reads_end;
    if (VERBS_UNLIKELY(is_bare(ep, request))) {
        bool is_flush_later = verbs_send_ring_is_under_way(ring, ep->flushed_end) &&
                              (!verbs_send_ring_is_under_way(ring, end) ||
                               (int32_t)(ep->flushed_end - end) > 0);
        end = is_flush_later ? ep->flushed_end : end;
    } else if (VERBS_LIKELY((request->flags & RDMUX_FENCE) == 0) ||
               is_fenced_by_device(ep, request)) {
        return false;
    }
    if (!verbs_send_ring_is_under_way(ring, end)) {
        return false;
    }
    if (!verbs_send_ring_awaits(ring) || (int32_t)(end - ring->signaled) > 0) {
        (void)rdmux_verbs_chain_nothing(
            ep); /* without room for another work request, a completion is pending */
    }
    return true;
}

bool rdmux_verbs_must_wait(struct verbs_ep *ep, const struct rdmux_request *request, uint32_t slots)
{
    return VERBS_UNLIKELY(verbs_send_ring_room(&ep->data.sent) < slots ||
                          must_wait_for_atomics(ep, request) || must_wait_for_reads(ep, request));
}

/* True if the request is carried out as a flush read alone. */
static bool is_flush(const struct verbs_ep *ep, const struct rdmux_request *request)
{
    return request->length == 0 &&
           ((request->op == RDMUX_OP_WRITE && (request->flags & RDMUX_PLACED) != 0) ||
            (verbs_domain_of_ep(ep)->lacks_nothing &&
             (request->op == RDMUX_OP_READ ||
              (request->op == RDMUX_OP_WRITE && !ep->transport->lacks_word))));
}

enum rdmux_status rdmux_verbs_start(struct verbs_ep *ep, struct rdmux_request *request)
{
    if (rdmux_verbs_must_wait(ep, request, slots_of(ep, request))) {
        return rdmux_verbs_again(ep);
    }
    if (VERBS_UNLIKELY(request->length > ep->ours.max_message)) {
        rdmux_provider_error("%s: a request of %llu bytes is beyond the device's %u",
                             ep->transport->name, (unsigned long long)request->length,
                             ep->ours.max_message);
        return RDMUX_LENGTH;
    }
    bool is_fenced = (request->flags & RDMUX_FENCE) != 0 && is_fenced_by_device(ep, request);
    uint32_t flags = is_fenced ? (uint32_t)IBV_SEND_FENCE : 0;
    enum verbs_wish wish = (request->flags & RDMUX_UNSIGNALED) == 0 ? VERBS_WISH_DONE
                                                                    : VERBS_WISH_NONE;
    if (VERBS_UNLIKELY(is_flush(ep, request))) {
        rdmux_verbs_chain_flush(ep, request, wish);
    } else if (!reads_under_way(request->op)) {
        chain_data(ep, request, wish, flags);
    } else if (request->op == RDMUX_OP_READ) {
        chain_read(ep, request, wish, flags);
    } else if (is_native_atomic(request)) {
        chain_atomic(ep, request, wish, flags);
    } else {
        return rdmux_verbs_side_atomic(ep, request);
    }
    if (VERBS_UNLIKELY(is_fenced)) {
        ep->fenced_end = ep->data.sent.head;
    }
    return RDMUX_OK;
}

enum rdmux_status rdmux_verbs_post(struct rdmux_provider_ep *base, struct rdmux_request *requests,
                                   size_t count, uint32_t flags, size_t *posted)
{
    struct verbs_ep *ep = verbs_ep_of(base);
    enum rdmux_status status = RDMUX_OK;
    *posted = 0;
    if (VERBS_UNLIKELY(ep->state != VERBS_EP_CONNECTED)) {
        return rdmux_verbs_again(ep); /* it has failed, and the core knows */
    }
    for (; *posted < count; ++*posted) {
        status = ep->transport->start(ep, &requests[*posted]);
        if (VERBS_UNLIKELY(status != RDMUX_OK)) {
            break;
        }
    }
    /* Inline bytes in the chain may change when this returns. */
    if ((flags & RDMUX_POST_MORE) == 0 || status != RDMUX_OK || ep->data.is_chain_inline) {
        (void)rdmux_verbs_chain_ring(&ep->data);
    }
    return status;
}

void rdmux_verbs_doorbell(struct rdmux_provider_ep *base)
{
    (void)rdmux_verbs_chain_ring(&verbs_ep_of(base)->data);
}

/* ---------------------------------------------------------------------------------- completions */

/* Retires the work requests before `end`. */
static void retire_until(struct verbs_queue *queue, uint32_t end, enum rdmux_status status)
{
    struct verbs_send_ring *ring = &queue->sent;
    while (ring->tail != end) {
        struct rdmux_request *request = verbs_send_ring_retire(ring);
        if (request != NULL && !request->done) {
            rdmux_verbs_report(queue->ep, request, status);
        }
    }
}

static void send_failed(struct verbs_queue *queue, uint32_t slot, const struct ibv_wc *wc)
{
    struct verbs_ep *ep = queue->ep;
    bool is_first = ep->state < VERBS_EP_FAILED;
    retire_until(queue, slot, is_first ? RDMUX_OK : RDMUX_FLUSHED);
    struct rdmux_request *request = verbs_send_ring_owner(&queue->sent, slot);
    struct verbs_outcome outcome = rdmux_verbs_send_outcome((uint32_t)wc->status,
                                                            request != NULL ? request->op : 0);
    if (is_first) {
        rdmux_verbs_fail(ep, outcome.status, "%s (%s, vendor code 0x%x)", outcome.text,
                         ibv_wc_status_str(wc->status), wc->vendor_err);
    }
    if (request != NULL && !request->done) {
        rdmux_verbs_report(ep, request, outcome.status);
    }
    retire_until(queue, slot + 1, RDMUX_FLUSHED);
}

void rdmux_verbs_sent(struct verbs_queue *queue, const struct ibv_wc *wc)
{
    uint32_t slot = verbs_wr_id_slot(wc->wr_id);
    if (VERBS_UNLIKELY(!verbs_send_ring_has(&queue->sent, slot))) {
        return;
    }
    struct verbs_ep *ep = queue->ep;
    if (VERBS_UNLIKELY(wc->status != IBV_WC_SUCCESS)) {
        send_failed(queue, slot, wc);
        return;
    }
    retire_until(queue, slot + 1, RDMUX_OK);
    if (VERBS_UNLIKELY(ep->side.atomics_unsent != NULL)) {
        rdmux_verbs_side_push(ep);
    }
    if (queue == &ep->data) {
        rdmux_verbs_resume(ep);
        verbs_silent_watch(ep);
    }
}
