/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The data path: turns requests into work requests. No lock, no allocation, no log. */
#include "verbs/verbs_send.h"

#include "verbs/verbs_completion.h"
#include "verbs/verbs_description.h"
#include "verbs/verbs_domain.h"
#include "verbs/verbs_endpoint.h"
#include "verbs/verbs_macros.h"
#include "verbs/verbs_memory.h"
#include "verbs/verbs_queue.h"
#include "verbs/verbs_ring.h"
#include "verbs/verbs_side.h"
#include "verbs/verbs_transport.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <string.h>

static_assert(offsetof(struct verbs_ep, base) == 0, "verbs_ep_of() relies on it");

enum { RECEIVE_CHAIN_MAX = 16 };

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

uint32_t rdmux_verbs_pieces(const struct rdmux_provider_sge *sges, uint32_t count,
                            struct ibv_sge *out)
{
    for (uint32_t i = 0; i < count; i++) {
        const struct verbs_mr *mr = (const struct verbs_mr *)sges[i].mr;
        out[i].addr = (uintptr_t)sges[i].addr;
        out[i].length = (uint32_t)sges[i].length;
        out[i].lkey = mr != NULL ? mr->local->lkey : 0; /* inline pieces need none */
    }
    return count;
}

/* ------------------------------------------------------------------------------------ send side */

static void add_pieces(struct verbs_queue *queue, struct ibv_send_wr *work,
                       const struct rdmux_provider_sge *sges, uint32_t count)
{
    work->num_sge += (int)rdmux_verbs_pieces(sges, count, &queue->pieces[queue->piece_count]);
    queue->piece_count += count;
}

void rdmux_verbs_chain_flush(struct verbs_ep *ep, struct rdmux_request *request,
                             enum verbs_wish wish)
{
    struct verbs_queue *queue = &ep->data;
    const struct verbs_domain *domain = verbs_domain_of_ep(ep);
    struct ibv_send_wr *work = rdmux_verbs_chain_add(queue, request, wish);
    struct ibv_sge *piece = &queue->pieces[queue->piece_count++];
    piece->addr = (uintptr_t)&domain->page->sink;
    piece->length = ep->flush_size;
    piece->lkey = domain->sink_mr->lkey;
    work->num_sge = 1;
    work->opcode = IBV_WR_RDMA_READ;
    work->wr.rdma.remote_addr = ep->theirs.flush_addr;
    work->wr.rdma.rkey = ep->theirs.flush_rkey;
    ep->flushed_end = queue->sent.head;
    ep->is_unflushed = false;
}

bool rdmux_verbs_chain_nothing(struct verbs_ep *ep)
{
    assert(!ep->transport->lacks_word); /* such endpoints have no silent work */
    if (verbs_send_ring_room(&ep->data.sent) == 0) {
        return false;
    }
    if (verbs_domain_of_ep(ep)->lacks_nothing) {
        rdmux_verbs_chain_flush(ep, NULL, VERBS_WISH_DONE);
        return true;
    }
    struct ibv_send_wr *work = rdmux_verbs_chain_add(&ep->data, NULL, VERBS_WISH_DONE);
    work->opcode = IBV_WR_RDMA_WRITE;
    return true;
}

static void name_remote(struct ibv_send_wr *work, const struct rdmux_request *request, uint64_t skip)
{
    const struct verbs_remote *remote = (const struct verbs_remote *)request->remote;
    if (VERBS_UNLIKELY(remote == NULL)) {
        return; /* nothing is written, so the address is not used */
    }
    work->wr.rdma.remote_addr = remote->region.addr + request->offset + skip;
    work->wr.rdma.rkey = remote->region.rkey;
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
    struct ibv_sge *piece = &queue->pieces[queue->piece_count++];
    *piece = (struct ibv_sge){ .addr = (uintptr_t)copy,
                               .length = used,
                               .lkey = ep->copies_mr->lkey };
    work->num_sge++;
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

/* --------------------------------------------------------------------------------- receive side */

static enum rdmux_status post_receives(struct verbs_queue *queue, struct rdmux_request *requests,
                                       size_t count)
{
    struct ibv_recv_wr works[RECEIVE_CHAIN_MAX];
    struct ibv_sge pieces[RECEIVE_CHAIN_MAX][1 + RDMUX_SGE_MAX];
    const uint32_t header_size = queue->ep->transport->header_size;
    for (size_t i = 0; i < count; i++) {
        uint32_t slot = verbs_receive_ring_take(&queue->receives, &requests[i]);
        uint32_t used = rdmux_verbs_header_piece(
            &queue->headers, header_size, slot & queue->receives.mask, &requests[i], pieces[i]);
        used += rdmux_verbs_pieces(requests[i].sges, requests[i].sge_count, &pieces[i][used]);
        works[i] = (struct ibv_recv_wr){
            .wr_id = verbs_wr_id_of(queue->id, VERBS_WORK_RECEIVE, slot),
            .next = i + 1 < count ? &works[i + 1] : NULL,
            .sg_list = pieces[i],
            .num_sge = (int)used,
        };
    }
    struct ibv_recv_wr *bad = NULL;
    int error = ibv_post_recv(queue->qp, works, &bad);
    if (VERBS_UNLIKELY(error != 0)) {
        rdmux_provider_error("%s: the device did not take receives: %s",
                             verbs_domain_of_ep(queue->ep)->device,
                             strerror(error < 0 ? -error : error));
        return RDMUX_IO;
    }
    if (queue->ep->transport->receives_posted != NULL) {
        queue->ep->transport->receives_posted(queue->ep, count);
    }
    return RDMUX_OK;
}

/* Holds receives back, as the device's queue is shorter than the endpoint's. */
static void hold_work(struct verbs_ep *ep, struct rdmux_request *requests, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        requests[i].provider[2] = 0;
        if (ep->held == NULL) {
            ep->held = &requests[i];
        } else {
            ep->held_last->provider[2] = (uint64_t)(uintptr_t)&requests[i];
        }
        ep->held_last = &requests[i];
    }
}

enum rdmux_status rdmux_verbs_post_recv(struct rdmux_provider_ep *base,
                                        struct rdmux_request *requests, size_t count)
{
    struct verbs_ep *ep = verbs_ep_of(base);
    struct verbs_queue *queue = &ep->data;
    if (VERBS_UNLIKELY(count == 0 || ep->state != VERBS_EP_CONNECTED)) {
        /* receives of an SRQ are posted already; the core completes those of a failed endpoint */
        return RDMUX_OK;
    }
    while (count > 0) {
        const size_t room = ep->held != NULL ? 0 : verbs_receive_ring_room(&queue->receives);
        if (VERBS_UNLIKELY(room == 0)) {
            hold_work(ep, requests, count);
            break;
        }
        size_t now = count < RECEIVE_CHAIN_MAX ? count : RECEIVE_CHAIN_MAX;
        now = now < room ? now : room;
        enum rdmux_status status = post_receives(queue, requests, now);
        if (VERBS_UNLIKELY(status != RDMUX_OK)) {
            return status;
        }
        requests += now;
        count -= now;
    }
    return RDMUX_OK;
}

void rdmux_verbs_post_held(struct verbs_ep *ep)
{
    while (ep->held != NULL && ep->state == VERBS_EP_CONNECTED &&
           verbs_receive_ring_room(&ep->data.receives) > 0) {
        struct rdmux_request *request = ep->held;
        ep->held = (struct rdmux_request *)(uintptr_t)request->provider[2];
        if (post_receives(&ep->data, request, 1) != RDMUX_OK) {
            rdmux_verbs_fail(ep, RDMUX_IO, "the device did not take a receive");
        }
    }
}

void rdmux_verbs_received(struct verbs_ep *ep, struct rdmux_request *request,
                          const struct ibv_wc *wc)
{
    bool is_write = wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM;
    bool has_imm = (wc->wc_flags & IBV_WC_WITH_IMM) != 0;
    ep->counts.received++;
    rdmux_provider_received(&ep->base, request, RDMUX_OK,
                            is_write ? RDMUX_WC_RECV_WRITE_IMM : RDMUX_WC_RECV, wc->byte_len,
                            has_imm ? RDMUX_WC_HAS_IMM : 0, has_imm ? ntohl(wc->imm_data) : 0);
}
