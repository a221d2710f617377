/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * The data path, as far as it differs from verbs/verbs_send.c. Messages have a header and need a
 * credit. A write with an immediate number is a write and a message without bytes. Reads finish
 * behind later requests.
 */
#include "iwarp/iwarp_internal.h"
#include "verbs/verbs_chain.h"
#include "verbs/verbs_completion.h"
#include "verbs/verbs_endpoint.h"
#include "verbs/verbs_macros.h"
#include "verbs/verbs_memory.h"
#include "verbs/verbs_outcome.h"
#include "verbs/verbs_queue.h"
#include "verbs/verbs_receive.h"
#include "verbs/verbs_ring.h"
#include "verbs/verbs_send.h"
#include "verbs/verbs_side.h"
#include "verbs/verbs_silent.h"
#include "verbs/verbs_state.h"

#include <stdio.h>
#include <string.h>

/* ------------------------------------------------------------------------------------ send side */

static bool is_placed(const struct rdmux_request *request)
{
    return (request->flags & RDMUX_PLACED) != 0;
}

static void name_remote(struct ibv_send_wr *work, const struct rdmux_request *request, uint64_t skip)
{
    const struct verbs_remote *remote = (const struct verbs_remote *)request->remote;
    work->wr.rdma.remote_addr = remote->region.addr + request->offset + skip;
    work->wr.rdma.rkey = remote->region.rkey;
}

/* Adds the write that goes before its notice. */
static void chain_write(struct verbs_ep *ep, const struct rdmux_request *request)
{
    struct ibv_send_wr *work = rdmux_verbs_chain_add(&ep->data, NULL, VERBS_WISH_LATER);
    work->opcode = IBV_WR_RDMA_WRITE;
    name_remote(work, request, 0);
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
    queue->pieces[queue->piece_count++] = (struct ibv_sge){ .addr = (uintptr_t)place,
                                                            .length = IWARP_HEADER_SIZE,
                                                            .lkey = ep->send_headers.mr->lkey };
    work->num_sge = 1;
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

/* Answers the peer's recall. A message that waits uses a credit first; otherwise two waiting
 * messages could take the same credit from each other forever. */
static void give_back(struct iwarp_ep *ep)
{
    bool keeps = ep->waits_for_credit && iwarp_credit_left(&ep->credit) != 0;
    if (ep->credit.answered != ep->credit.recalled_us && !keeps) {
        iwarp_credit_return(&ep->credit);
        rdmux_iwarp_talk_soon(ep);
    }
}

/* Takes a credit for a message. False: there is none. */
static bool spend_credit(struct iwarp_ep *ep)
{
    if (VERBS_LIKELY(iwarp_credit_spend(&ep->credit))) {
        if (VERBS_UNLIKELY(ep->waits_for_credit)) {
            ep->waits_for_credit = false;
            give_back(ep);
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
    name_remote(work, request, skip);
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
        rdmux_iwarp_is_over(ep, IWARP_DATA);
    } else if (wc->status == IBV_WC_LOC_QP_OP_ERR) {
        suspect_peer(ep, &outcome, wc);
        rdmux_iwarp_is_over(ep, IWARP_DATA);
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
        rdmux_iwarp_is_over(ep, IWARP_SIDE);
    }
}

/* --------------------------------------------------------------------------------- receive side */

static void granted_credits(struct iwarp_ep *ep, uint64_t more)
{
    if (more != 0) {
        ep->has_asked = false;
        rdmux_verbs_resume(&ep->base);
    }
}

/* A message came. False: it had no credit. */
static bool use_credit(struct iwarp_ep *ep)
{
    return ep->base.attr->srq == NULL ? rdmux_credits_use(&ep->credit.given)
                                      : rdmux_iwarp_srq_use(ep);
}

void rdmux_iwarp_received(struct verbs_ep *base, struct rdmux_request *request,
                          const struct ibv_wc *wc)
{
    struct iwarp_ep *ep = iwarp_of(base);
    struct iwarp_header header;
    const uint8_t *bytes = (const uint8_t *)(uintptr_t)request->provider[0];
    const uint64_t longest = atomic_load_explicit(&iwarp_domain_of_ep(ep)->longest,
                                                  memory_order_relaxed);
    enum rdmux_status status = rdmux_iwarp_header_decode(bytes, wc->byte_len, longest, &header);
    int64_t more = status == RDMUX_OK ? iwarp_credit_granted(&ep->credit, header.granted) : -1;
    if (VERBS_UNLIKELY(more < 0 || !use_credit(ep))) {
        rdmux_verbs_fail(base, RDMUX_PROTOCOL, "a message of %u bytes cannot be taken",
                         wc->byte_len);
        return;
    }
    bool is_write = header.kind == IWARP_NOTICE;
    base->counts.received++;
    rdmux_provider_received(&base->base, request, RDMUX_OK,
                            is_write ? RDMUX_WC_RECV_WRITE_IMM : RDMUX_WC_RECV, header.length,
                            header.has_imm ? RDMUX_WC_HAS_IMM : 0, header.imm);
    granted_credits(ep, (uint64_t)more);
    if (VERBS_UNLIKELY(iwarp_credit_is_due(&ep->credit))) {
        rdmux_iwarp_talk_soon(ep);
    }
}

void rdmux_iwarp_receive_failed(struct verbs_ep *base, struct rdmux_request *request,
                                const struct ibv_wc *wc)
{
    struct iwarp_ep *ep = iwarp_of(base);
    struct verbs_outcome outcome = rdmux_verbs_receive_outcome((uint32_t)wc->status);
    if (request == NULL) {
        rdmux_iwarp_is_over(ep, IWARP_SIDE);
    } else if (outcome.status == RDMUX_FLUSHED) {
        rdmux_iwarp_is_over(ep, IWARP_DATA);
    } else {
        rdmux_verbs_receive_failed(base, request, wc);
    }
}

void rdmux_iwarp_side_message(struct verbs_ep *base, const uint8_t *bytes)
{
    struct iwarp_ep *ep = iwarp_of(base);
    struct iwarp_side message;
    struct iwarp_credit_news news = { .granted = 0 };
    enum rdmux_status status = rdmux_iwarp_side_decode(bytes, IWARP_SIDE_SIZE, &message);
    if (status == RDMUX_OK && message.kind == IWARP_SIDE_HELLO) {
        rdmux_iwarp_greeted(ep);
        return;
    }
    if (status == RDMUX_OK && message.kind == IWARP_SIDE_ENDED) {
        rdmux_iwarp_end_heard(ep, &message);
        return;
    }
    if (status == RDMUX_OK) {
        status = rdmux_iwarp_credit_hear(&ep->credit, &message, &news);
    }
    if (status == RDMUX_OK && ep->base.attr->srq != NULL && !rdmux_iwarp_srq_hear(ep, &news)) {
        status = RDMUX_PROTOCOL;
    }
    if (status != RDMUX_OK) {
        rdmux_verbs_fail(base, status, "a side message of kind %u makes no sense", bytes[0]);
        return;
    }
    granted_credits(ep, news.granted);
    give_back(ep);
    if (iwarp_credit_is_due(&ep->credit)) {
        rdmux_iwarp_talk_soon(ep);
    }
}

void rdmux_iwarp_receives_posted(struct verbs_ep *base, size_t count)
{
    struct iwarp_ep *ep = iwarp_of(base);
    ep->credit.given.posted += count;
    if (iwarp_credit_is_due(&ep->credit)) {
        rdmux_iwarp_talk_soon(ep);
    }
}

/* ---------------------------------------------------------------------------------------- talks */

/* False: there is more to tell. */
static bool talk_to_peer(struct iwarp_ep *ep)
{
    struct iwarp_side message;
    uint8_t bytes[IWARP_SIDE_SIZE];
    if (ep->base.state != VERBS_EP_CONNECTED || ep->is_side_over) {
        return true;
    }
    if (!ep->is_greeted || !rdmux_verbs_side_has_room(&ep->base)) {
        return false;
    }
    if (rdmux_iwarp_credit_tell(&ep->credit, &message)) {
        rdmux_iwarp_side_encode(&message, bytes);
        rdmux_verbs_side_send(&ep->base, bytes);
    }
    return true; /* a message that waits for an acknowledgment goes when that comes */
}

static void talk_all(struct iwarp_cq *cq)
{
    struct iwarp_ep *ep = cq->talkers;
    cq->talkers = NULL;
    while (ep != NULL) {
        struct iwarp_ep *next = ep->talk_next;
        ep->is_talking = false;
        if (!talk_to_peer(ep)) {
            ep->is_talking = true;
            ep->talk_next = cq->talkers;
            cq->talkers = ep;
        }
        ep = next;
    }
}

void rdmux_iwarp_talk_soon(struct iwarp_ep *ep)
{
    struct iwarp_cq *cq = iwarp_cq_of_ep(ep);
    if (cq->base.is_armed && talk_to_peer(ep)) {
        return; /* the next poll may be far away */
    }
    if (!ep->is_talking) {
        ep->is_talking = true;
        ep->talk_next = cq->talkers;
        cq->talkers = ep;
    }
}

void rdmux_iwarp_leave_talkers(struct iwarp_ep *ep)
{
    for (struct iwarp_ep **at = &iwarp_cq_of_ep(ep)->talkers; *at != NULL; at = &(*at)->talk_next) {
        if (*at == ep) {
            *at = ep->talk_next;
            break;
        }
    }
    ep->is_talking = false;
}

/* ------------------------------------------------------------------------------------- progress */

size_t rdmux_iwarp_poll(struct rdmux_provider_cq *base, size_t budget)
{
    struct iwarp_cq *cq = iwarp_cq_of(base);
    size_t done = rdmux_verbs_poll(base, budget);
    if (VERBS_UNLIKELY(cq->talkers != NULL)) {
        talk_all(cq);
    }
    if (VERBS_UNLIKELY(cq->connecting != NULL)) {
        done += rdmux_iwarp_take_ticks(cq);
    }
    return done;
}

enum rdmux_status rdmux_iwarp_arm(struct rdmux_provider_cq *base)
{
    struct iwarp_cq *cq = iwarp_cq_of(base);
    talk_all(cq);
    size_t ticks = rdmux_iwarp_take_ticks(cq);
    enum rdmux_status status = rdmux_verbs_arm(base);
    return ticks != 0 ? RDMUX_AGAIN : status;
}
