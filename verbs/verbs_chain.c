/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "verbs/verbs_chain.h"

#include "verbs/verbs_domain.h"
#include "verbs/verbs_endpoint.h"
#include "verbs/verbs_macros.h"
#include "verbs/verbs_queue.h"
#include "verbs/verbs_ring.h"
#include "verbs/verbs_state.h"
#include "verbs/verbs_transport.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

struct ibv_send_wr *rdmux_verbs_chain_add(struct verbs_queue *queue, struct rdmux_request *request,
                                          enum verbs_wish wish)
{
    bool signal = false;
    if (VERBS_UNLIKELY(queue->chain_count == VERBS_CHAIN_MAX)) {
        /* a failure is reported; what follows is dropped with it */
        (void)rdmux_verbs_chain_ring(queue);
    }
    uint32_t slot = verbs_send_ring_take(&queue->sent, request, wish, &signal);
    struct ibv_send_wr *work = &queue->chain[queue->chain_count];
    if (queue->chain_count > 0) {
        work[-1].next = work;
    }
    queue->chain_count++;
    memset(work, 0, sizeof(*work));
    work->wr_id = verbs_wr_id_of(queue->id, VERBS_WORK_SEND, slot);
    work->sg_list = &queue->pieces[queue->piece_count];
    work->send_flags = signal ? IBV_SEND_SIGNALED : 0;
    return work;
}

void rdmux_verbs_chain_drop(struct verbs_queue *queue)
{
    queue->sent.head -= queue->chain_count;
    queue->chain_count = 0;
    queue->piece_count = 0;
    queue->is_chain_inline = false;
}

/* Signals each read that the device finishes behind later work requests: only its own completion
 * reports it. The same applies to bytes that the device only lends to TCP. */
static void mark_reads(struct verbs_queue *queue)
{
    const bool lends = verbs_domain_of_ep(queue->ep)->lends_silent;
    struct verbs_send_ring *ring = &queue->sent;
    for (uint32_t i = 0; i < queue->chain_count; i++) {
        struct ibv_send_wr *work = &queue->chain[i];
        uint32_t slot = verbs_wr_id_slot(work->wr_id);
        queue->is_read[slot & ring->mask] = work->opcode == IBV_WR_RDMA_READ;
        bool is_lent = lends && work->num_sge > 0 && (work->send_flags & IBV_SEND_INLINE) == 0;
        if (work->opcode == IBV_WR_RDMA_READ || is_lent) {
            work->send_flags |= IBV_SEND_SIGNALED;
            verbs_send_ring_signal(ring, slot);
        }
    }
}

void rdmux_verbs_post_failed(struct verbs_ep *ep, int error)
{
    error = verbs_error_of(error);
    rdmux_verbs_fail(ep, error == ENOTCONN ? RDMUX_PEER_GONE : RDMUX_IO,
                     "the device did not take requests: %s", strerror(error));
}

__attribute__((noinline)) static void say_inline_list(struct ibv_qp_ex *calls,
                                                      const struct ibv_send_wr *work)
{
    struct ibv_data_buf buffers[1 + RDMUX_SGE_MAX];
    for (int i = 0; i < work->num_sge; i++) {
        buffers[i].addr = (void *)(uintptr_t)work->sg_list[i].addr;
        buffers[i].length = work->sg_list[i].length;
    }
    ibv_wr_set_inline_data_list(calls, (size_t)work->num_sge, buffers);
}

/* Sets a work request's data. Adapters finish the work request in this call, so one of no bytes
 * needs it, too. */
static void say_bytes(struct ibv_qp_ex *calls, const struct ibv_send_wr *work)
{
    const struct ibv_sge *piece = work->sg_list;
    bool is_inline = (work->send_flags & IBV_SEND_INLINE) != 0;
    if (VERBS_LIKELY(work->num_sge == 1)) {
        if (is_inline) {
            ibv_wr_set_inline_data(calls, (void *)(uintptr_t)piece->addr, piece->length);
        } else {
            ibv_wr_set_sge(calls, piece->lkey, piece->addr, piece->length);
        }
    } else if (is_inline && work->num_sge > 0) {
        say_inline_list(calls, work);
    } else {
        ibv_wr_set_sge_list(calls, (size_t)work->num_sge, piece);
    }
}

static void say_attributes(struct ibv_qp_ex *calls, const struct ibv_send_wr *work)
{
    calls->wr_id = work->wr_id;
    calls->wr_flags = work->send_flags & ~(unsigned int)IBV_SEND_INLINE; /* a setter sets it */
    switch (work->opcode) {
    case IBV_WR_SEND:
        ibv_wr_send(calls);
        break;
    case IBV_WR_SEND_WITH_IMM:
        ibv_wr_send_imm(calls, work->imm_data);
        break;
    case IBV_WR_RDMA_WRITE:
        ibv_wr_rdma_write(calls, work->wr.rdma.rkey, work->wr.rdma.remote_addr);
        break;
    case IBV_WR_RDMA_WRITE_WITH_IMM:
        ibv_wr_rdma_write_imm(calls, work->wr.rdma.rkey, work->wr.rdma.remote_addr, work->imm_data);
        break;
    case IBV_WR_RDMA_READ:
        ibv_wr_rdma_read(calls, work->wr.rdma.rkey, work->wr.rdma.remote_addr);
        break;
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
        ibv_wr_atomic_fetch_add(calls, work->wr.atomic.rkey, work->wr.atomic.remote_addr,
                                work->wr.atomic.compare_add);
        break;
    default:
        assert(work->opcode == IBV_WR_ATOMIC_CMP_AND_SWP);
        ibv_wr_atomic_cmp_swp(calls, work->wr.atomic.rkey, work->wr.atomic.remote_addr,
                              work->wr.atomic.compare_add, work->wr.atomic.swap);
        break;
    }
    say_bytes(calls, work);
}

static int give_by_calls(struct verbs_queue *queue, uint32_t count)
{
    ibv_wr_start(queue->calls);
    for (uint32_t i = 0; i < count; i++) {
        say_attributes(queue->calls, &queue->chain[i]);
    }
    return ibv_wr_complete(queue->calls);
}

static int give_list(struct verbs_queue *queue)
{
    struct ibv_send_wr *bad = NULL;
    return ibv_post_send(queue->qp, queue->chain, &bad);
}

/* On failure the chain counts as posted until the queue pair is gone: of a list, the first ones may
 * have been posted; after ibv_wr_complete() none is (ibv_wr_post(3)), but a driver may not keep to
 * that. */
bool rdmux_verbs_chain_ring(struct verbs_queue *queue)
{
    const uint32_t count = queue->chain_count;
    if (count == 0) {
        return true;
    }
    if (VERBS_UNLIKELY(queue->is_read != NULL)) {
        mark_reads(queue);
    }
    if (VERBS_UNLIKELY(queue->ep->state != VERBS_EP_CONNECTED)) {
        rdmux_verbs_chain_drop(queue);
        return false;
    }
    queue->chain_count = 0;
    queue->piece_count = 0;
    queue->is_chain_inline = false;
    int error = queue->calls != NULL ? give_by_calls(queue, count) : give_list(queue);
    if (VERBS_UNLIKELY(error != 0)) {
        rdmux_verbs_post_failed(queue->ep, error);
        return false;
    }
    return true;
}

/* -------------------------------------------------------------------------- work of the library */

/* Adds a read of the peer's flush word to a queue's chain. */
static inline void add_flush(struct verbs_queue *queue, const struct verbs_ep *ep,
                             struct rdmux_request *request, enum verbs_wish wish)
{
    const struct verbs_domain *domain = verbs_domain_of_ep(ep);
    struct ibv_send_wr *work = rdmux_verbs_chain_add(queue, request, wish);
    /* as verbs_chain_piece(), but one instruction shorter */
    struct ibv_sge *piece = &queue->pieces[queue->piece_count++];
    piece->addr = (uintptr_t)&domain->page->sink;
    piece->length = ep->flush_size;
    piece->lkey = domain->sink_mr->lkey;
    work->num_sge = 1;
    work->opcode = IBV_WR_RDMA_READ;
    work->wr.rdma.remote_addr = ep->theirs.flush_addr;
    work->wr.rdma.rkey = ep->theirs.flush_rkey;
}

void rdmux_verbs_chain_flush(struct verbs_ep *ep, struct rdmux_request *request,
                             enum verbs_wish wish)
{
    add_flush(&ep->data, ep, request, wish);
    ep->flushed_end = ep->data.sent.head;
    ep->is_unflushed = false;
}

void rdmux_verbs_chain_side_flush(struct verbs_ep *ep)
{
    add_flush(&ep->side.queue, ep, NULL, VERBS_WISH_DONE);
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
