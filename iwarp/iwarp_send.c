/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * The data path, as far as it differs from verbs/verbs_send.c. Messages have a header and need a
 * credit. A write with an immediate number is a write and a message without bytes. Reads finish
 * behind later requests.
 */
#include "iwarp/iwarp_internal.h"
#include "verbs/verbs_chain.h"
#include "verbs/verbs_endpoint.h"
#include "verbs/verbs_macros.h"
#include "verbs/verbs_memory.h"
#include "verbs/verbs_outcome.h"
#include "verbs/verbs_queue.h"
#include "verbs/verbs_ring.h"
#include "verbs/verbs_send.h"
#include "verbs/verbs_side.h"
#include "verbs/verbs_silent.h"
#include "verbs/verbs_state.h"

#include <stdio.h>

/* ------------------------------------------------------------------------------------ send side */

static bool is_placed(const struct rdmux_request *request)
{
    return (request->flags & RDMUX_PLACED) != 0;
}

/* Adds the write that goes before its notice. */
static void chain_write(struct verbs_ep *ep, const struct rdmux_request *request)
{
    struct ibv_send_wr *work = rdmux_verbs_chain_add(&ep->data, NULL, VERBS_WISH_LATER);
    work->opcode = IBV_WR_RDMA_WRITE;
    verbs_name_remote(work, request, 0);
    rdmux_verbs_add_bytes(ep, work, request, 0);
}

static void add_header(struct iwarp_ep *ep, struct ibv_send_wr *work,
                       const struct rdmux_request *request)
{
    struct verbs_queue *queue = &ep->base.data;
    uint32_t index = verbs_wr_id_slot(work->wr_id) & queue->sent.mask;
    uint8_t *place = ep->send_headers.bytes + (size_t)index * IWARP_HEADER_SIZE;
    const struct iwarp_header header = {
        .kind = request->op == RDMUX_OP_WRITE_IMM ? IWARP_NOTICE : IWARP_MESSAGE,
        .has_imm = request->op != RDMUX_OP_SEND,
        .imm = request->imm,
        .length = (uint32_t)request->length,
        .granted = iwarp_credit_grant(&ep->credit),
    };
    rdmux_iwarp_header_encode(&header, place);
    work->num_sge = verbs_chain_piece(queue, place, IWARP_HEADER_SIZE, ep->send_headers.mr->lkey);
}

/* Adds a message, or the notice of a write. */
static void chain_message(struct iwarp_ep *ep, struct rdmux_request *request, enum verbs_wish wish)
{
    struct verbs_queue *queue = &ep->base.data;
    struct ibv_send_wr *work = rdmux_verbs_chain_add(queue, is_placed(request) ? NULL : request,
                                                     is_placed(request) ? VERBS_WISH_LATER : wish);
    work->opcode = IBV_WR_SEND;
    add_header(ep, work, request);
    if (request->op != RDMUX_OP_WRITE_IMM) {
        rdmux_verbs_add_bytes(&ep->base, work, request, IWARP_HEADER_SIZE);
    } else if (queue->max_inline >= IWARP_HEADER_SIZE) {
        work->send_flags |= (uint32_t)IBV_SEND_INLINE;
    }
    ep->base.is_unflushed = true;
    if (is_placed(request)) {
        rdmux_verbs_chain_flush(&ep->base, request, wish);
    }
}

/* Takes a credit for a message. False: there is none. */
static bool spend_credit(struct iwarp_ep *ep)
{
    if (VERBS_LIKELY(iwarp_credit_spend(&ep->credit))) {
        if (VERBS_UNLIKELY(ep->waits_for_credit)) {
            ep->waits_for_credit = false;
            rdmux_iwarp_give_back(ep);
        }
        return true;
    }
    if (ep->theirs.shares_receives) {
        ep->waits_for_credit = true;
        if (!ep->has_asked) {
            ep->has_asked = true;
            iwarp_credit_ask(&ep->credit);
            rdmux_iwarp_talk_soon(ep);
        }
    }
    return false;
}

static enum rdmux_status start_message(struct iwarp_ep *ep, struct rdmux_request *request)
{
    bool writes = request->op == RDMUX_OP_WRITE_IMM && request->length > 0;
    uint32_t slots = 1U + (writes ? 1U : 0U) + (is_placed(request) ? 1U : 0U);
    if (VERBS_UNLIKELY(request->length > ep->ours.verbs.max_message - IWARP_HEADER_SIZE)) {
        rdmux_provider_error("iwarp: a message of %llu bytes is beyond the device's %u",
                             (unsigned long long)request->length,
                             ep->ours.verbs.max_message - IWARP_HEADER_SIZE);
        return RDMUX_LENGTH;
    }
    if (rdmux_verbs_must_wait(&ep->base, request, slots) || !spend_credit(ep)) {
        return rdmux_verbs_again(&ep->base);
    }
    if (writes) {
        chain_write(&ep->base, request);
    }
    bool is_silent = (request->flags & RDMUX_UNSIGNALED) != 0;
    chain_message(ep, request, is_silent ? VERBS_WISH_NONE : VERBS_WISH_DONE);
    return RDMUX_OK;
}

static uint64_t remote_address(const struct rdmux_request *request)
{
    return ((const struct verbs_remote *)request->remote)->region.addr + request->offset;
}

static uint32_t parts_of_all(const struct rdmux_request *request)
{
    uint64_t addr = request->length > 0 ? remote_address(request) : 0;
    uint32_t count = 0;
    for (uint32_t i = 0; i < request->sge_count; i++) {
        count += iwarp_read_parts(addr, request->sges[i].length);
        addr += request->sges[i].length;
    }
    return count;
}

static void chain_part(struct verbs_ep *ep, struct rdmux_request *request, uint64_t skip,
                       const struct ibv_sge *sink, bool is_last)
{
    struct verbs_queue *queue = &ep->data;
    struct ibv_send_wr *work = rdmux_verbs_chain_add(queue, is_last ? request : NULL,
                                                     is_last ? VERBS_WISH_DONE : VERBS_WISH_LATER);
    work->opcode = IBV_WR_RDMA_READ;
    verbs_name_remote(work, request, skip);
    queue->pieces[queue->piece_count++] = *sink;
    work->num_sge = 1;
}

/* Adds one work request for each part: a read has one local piece (RFC 5040, 4.4). */
static void chain_read(struct verbs_ep *ep, struct rdmux_request *request, uint32_t parts)
{
    uint64_t skip = 0;
    for (uint32_t i = 0; parts > 0; skip += request->sges[i++].length) {
        struct ibv_sge sink;
        uint64_t addr = remote_address(request) + skip;
        uint32_t here = iwarp_read_parts(addr, request->sges[i].length);
        (void)verbs_pieces(&request->sges[i], 1, &sink);
        parts -= here;
        if (here == 2) {
            struct ibv_sge first = sink;
            first.length = (uint32_t)(IWARP_PAGE - addr % IWARP_PAGE);
            chain_part(ep, request, skip, &first, false);
            sink.addr += first.length;
            sink.length -= first.length;
            chain_part(ep, request, skip + first.length, &sink, parts == 0);
        } else if (here == 1) {
            chain_part(ep, request, skip, &sink, parts == 0);
        }
    }
}

/* A read of no bytes becomes a read of the flush word: soft iWARP's answer to an empty read has the
 * length of the last non-empty one (siw_activate_tx()). */
enum rdmux_status rdmux_iwarp_start_read(struct verbs_ep *ep, struct rdmux_request *request)
{
    uint32_t parts = parts_of_all(request);
    if (rdmux_verbs_must_wait(ep, request, parts > 0 ? parts : 1)) {
        return rdmux_verbs_again(ep);
    }
    if (parts == 0) {
        rdmux_verbs_chain_flush(ep, request, VERBS_WISH_DONE);
    } else {
        chain_read(ep, request, parts);
    }
    ep->reads_end = ep->data.sent.head;
    return RDMUX_OK;
}

enum rdmux_status rdmux_iwarp_start(struct verbs_ep *base, struct rdmux_request *request)
{
    struct iwarp_ep *ep = iwarp_of(base);
    if (VERBS_UNLIKELY(ep->is_data_over)) {
        return rdmux_verbs_again(base); /* the core hears of it when the cause is known */
    }
    switch (request->op) {
    case RDMUX_OP_SEND:
    case RDMUX_OP_SEND_IMM:
    case RDMUX_OP_WRITE_IMM:
        return start_message(ep, request);
    case RDMUX_OP_READ:
        return rdmux_iwarp_start_read(base, request);
    default:
        return rdmux_verbs_start(base, request);
    }
}

/* ---------------------------------------------------------------------------------- completions */

static bool is_read(const struct verbs_ep *ep, uint32_t slot)
{
    return ep->data.is_read[slot & ep->data.sent.mask];
}

void rdmux_iwarp_retire(struct verbs_ep *ep, struct iwarp_order *order, enum rdmux_status status)
{
    struct verbs_send_ring *ring = &ep->data.sent;
    while (ring->tail != ring->head &&
           iwarp_order_is_done(order, ring->tail, is_read(ep, ring->tail))) {
        struct rdmux_request *request = verbs_send_ring_retire(ring);
        if (request != NULL && !request->done) {
            rdmux_verbs_report(ep, request, status);
        }
    }
    iwarp_order_advance(order, ring->tail);
}

static void suspect_peer(struct iwarp_ep *ep, const struct verbs_outcome *outcome,
                         const struct ibv_wc *wc)
{
    if (ep->suspicion == RDMUX_OK) {
        ep->suspicion = outcome->status;
        (void)snprintf(ep->suspicion_text, sizeof(ep->suspicion_text), "%s (%s, vendor code 0x%x)",
                       outcome->text, ibv_wc_status_str(wc->status), wc->vendor_err);
    }
}

/* Also handles a success after the data connection's end. */
static void work_failed(struct iwarp_ep *ep, uint32_t slot, const struct ibv_wc *wc)
{
    struct rdmux_request *request = verbs_send_ring_owner(&ep->base.data.sent, slot);
    struct verbs_outcome outcome = rdmux_verbs_send_outcome((uint32_t)wc->status,
                                                            request != NULL ? request->op : 0);
    if (ep->base.state >= VERBS_EP_DRAINING) {
        rdmux_iwarp_retire(&ep->base, &ep->order, RDMUX_FLUSHED);
    } else if (wc->status == IBV_WC_SUCCESS || outcome.status == RDMUX_FLUSHED) {
        rdmux_iwarp_channel_ended(ep, IWARP_DATA);
    } else if (wc->status == IBV_WC_LOC_QP_OP_ERR) {
        suspect_peer(ep, &outcome, wc);
        rdmux_iwarp_channel_ended(ep, IWARP_DATA);
    } else if (ep->base.state < VERBS_EP_FAILED) {
        rdmux_verbs_fail(&ep->base, outcome.status, "%s (%s, vendor code 0x%x)", outcome.text,
                         ibv_wc_status_str(wc->status), wc->vendor_err);
        if (request != NULL && !request->done) {
            rdmux_verbs_report(&ep->base, request, outcome.status);
        }
    }
}

static void data_sent(struct iwarp_ep *ep, const struct ibv_wc *wc)
{
    uint32_t slot = verbs_wr_id_slot(wc->wr_id);
    if (VERBS_UNLIKELY(!verbs_send_ring_has(&ep->base.data.sent, slot))) {
        return;
    }
    iwarp_order_note(&ep->order, slot, is_read(&ep->base, slot));
    /* A success after a failure proves nothing: the device may not have sent the bytes. */
    if (VERBS_UNLIKELY(wc->status != IBV_WC_SUCCESS || ep->is_data_over ||
                       ep->base.state >= VERBS_EP_FAILED)) {
        work_failed(ep, slot, wc);
        return;
    }
    rdmux_iwarp_retire(&ep->base, &ep->order, RDMUX_OK);
    if (VERBS_UNLIKELY(!ep->is_proved)) {
        rdmux_iwarp_look_at_proof(ep);
    }
    if (VERBS_UNLIKELY(ep->base.side.atomics_unsent != NULL)) {
        rdmux_verbs_side_push(&ep->base);
    }
    rdmux_verbs_resume(&ep->base);
    verbs_silent_watch(&ep->base);
}

void rdmux_iwarp_sent(struct verbs_queue *queue, const struct ibv_wc *wc)
{
    struct iwarp_ep *ep = iwarp_of(queue->ep);
    if (queue == &ep->base.data) {
        data_sent(ep, wc);
        return;
    }
    if (wc->status == IBV_WC_SUCCESS &&
        (wc->opcode == IBV_WC_RDMA_READ || VERBS_UNLIKELY(ep->has_ping_failed))) {
        ep->ping_calls = 0; /* even if the read's slot is retired: later sends complete first */
        ep->has_ping_failed = false;
    }
    if (wc->status == IBV_WC_SUCCESS || ep->base.state >= VERBS_EP_FAILED) {
        rdmux_verbs_sent(queue, wc);
    } else {
        rdmux_iwarp_channel_ended(ep, IWARP_SIDE);
    }
}
