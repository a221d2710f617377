/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * The fast path: each inline write is one work request filled in place, each completion one entry
 * for the program. Compiled without frame pointers, as each instruction here is one of every small
 * write, see tests/instructions. So it uses ibv_post_send() even on queue pairs for ibv_wr_*(),
 * which would take four calls.
 *
 * The wr_id of a work request is the address of its entry, which no other wr_id resembles
 * (verbs_ring.h). In-flight work keeps that wr_id when the fast path is closed, and the cq knows
 * the queue that it belongs to. The fast path is not opened again until all of it has completed.
 */
#include "verbs/verbs_fast_path.h"

#include "verbs/verbs_chain.h"
#include "verbs/verbs_completion.h"
#include "verbs/verbs_endpoint.h"
#include "verbs/verbs_macros.h"
#include "verbs/verbs_memory.h"
#include "verbs/verbs_queue.h"
#include "verbs/verbs_ring.h"
#include "verbs/verbs_send.h"
#include "verbs/verbs_transport.h"
#include "verbs/verbs_unit.h"

#include <assert.h>
#include <string.h>

/* Address and key of a target, copied as one value. */
typedef uint64_t both __attribute__((vector_size(16), aligned(8), may_alias));

/* rdmux_fast_path.provider */
struct verbs_fast_path {
    struct ibv_qp *qp;
    struct ibv_cq *device_cq;
    int (*post_send)(struct ibv_qp *qp, struct ibv_send_wr *work, struct ibv_send_wr **bad);
    int (*poll_cq)(struct ibv_cq *cq, int count, struct ibv_wc *wc);
    struct verbs_queue *queue;
    struct rdmux_wc *out; /* the current poll's; stored here to save a register */
    struct ibv_send_wr *bad;
    struct ibv_sge piece;
    struct ibv_send_wr work; /* fields common to all writes are set */
    struct ibv_wc wcs[VERBS_POLL_MAX];
};
static_assert(sizeof(struct verbs_fast_path) <= RDMUX_FAST_PATH_PROVIDER_WORDS * sizeof(uint64_t),
              "the fast path has room for ours");
static_assert(offsetof(struct rdmux_fast_path_target, key) ==
                      offsetof(struct ibv_send_wr, wr.rdma.rkey) -
                          offsetof(struct ibv_send_wr, wr.rdma.remote_addr) &&
                  sizeof(struct rdmux_fast_path_target) ==
                      sizeof(((struct ibv_send_wr *)0)->wr.rdma),
              "a target is what a work request says of it");
static_assert(offsetof(struct rdmux_fast_path_entry, status) == offsetof(struct rdmux_wc, status) &&
                  offsetof(struct rdmux_fast_path_entry, next) == offsetof(struct rdmux_wc, flags),
              "an entry begins as a completion does");

#define COLD __attribute__((noinline, cold))

static inline struct verbs_fast_path *verbs_fast_path_of(struct rdmux_fast_path *fast)
{
    return (struct verbs_fast_path *)(void *)fast->provider;
}

/* -------------------------------------------------------------------------------------- writing */

/* The device did not take the newest write. It counts as posted and ends with the endpoint. */
COLD static enum rdmux_status post_failed(struct rdmux_fast_path *fast, int error)
{
    struct verbs_ep *ep = verbs_fast_path_of(fast)->queue->ep;
    rdmux_fast_path_stop(fast);
    rdmux_verbs_post_failed(ep, error);
    rdmux_fast_path_leave(fast);
    return RDMUX_OK;
}

static enum rdmux_status post_write(struct rdmux_fast_path *fast, const void *buf, size_t length,
                                    struct rdmux_fast_path_entry *entry,
                                    const struct rdmux_fast_path_target *target, uint64_t offset)
{
    struct verbs_fast_path *verbs = verbs_fast_path_of(fast);
    verbs->work.wr_id = (uintptr_t)entry;
    verbs->piece.addr = (uintptr_t)buf;
    verbs->piece.length = (uint32_t)length;
    both *rdma = (both *)(void *)&verbs->work.wr.rdma;
    *rdma = *(const both *)(const void *)target;
    __atomic_signal_fence(__ATOMIC_SEQ_CST); /* keeps the compiler from splitting the copy again */
    verbs->work.wr.rdma.remote_addr += offset;
    int error = verbs->post_send(verbs->qp, &verbs->work, &verbs->bad);
    if (VERBS_UNLIKELY(error != 0)) {
        return post_failed(fast, error);
    }
    rdmux_fast_path_leave(fast);
    __asm__("" : "+r"(error)); /* error is in the result's register: no constant has to be loaded */
    return (enum rdmux_status)error;
}

/* -------------------------------------------------------------------------------------- polling */

static inline bool is_next(const struct rdmux_fast_path *fast, const struct ibv_wc *wc)
{
    return wc->status == IBV_WC_SUCCESS && wc->wr_id == (uintptr_t)fast->tail;
}

static inline void give_work(struct rdmux_fast_path *fast, struct rdmux_wc *out)
{
    struct rdmux_fast_path_entry *entry = fast->tail;
    fast->tail = entry->next;
    memcpy(out, entry, offsetof(struct rdmux_fast_path_entry, next));
    memset(&out->flags, 0, sizeof(*out) - offsetof(struct rdmux_wc, flags));
}

/* Stashes completions that the fast path does not deliver, for the ordinary path, in order. */
static void keep_write(struct rdmux_fast_path *fast, const struct ibv_wc *wcs, int count)
{
    struct verbs_queue *queue = verbs_fast_path_of(fast)->queue;
    struct verbs_cq *cq = queue->cq;
    if (count < 0) {
        rdmux_verbs_unit_failed(cq, queue->unit);
        return;
    }
    memcpy(cq->stash, wcs, (size_t)count * sizeof(*wcs));
    cq->stash_next = 0;
    cq->stash_count = (uint32_t)count;
}

COLD static size_t poll_other(struct rdmux_fast_path *fast, struct rdmux_wc *out, int got)
{
    struct rdmux_cq *cq = fast->cq;
    keep_write(fast, verbs_fast_path_of(fast)->wcs, got);
    rdmux_fast_path_leave(fast);
    return rdmux_fast_path_poll(cq, out, 1);
}

/* Polls for any number of completions. */
__attribute__((noinline)) static size_t poll_many(struct rdmux_cq *cq, struct rdmux_wc *out,
                                                  size_t max)
{
    struct rdmux_fast_path *fast = ((struct rdmux_cq_fast_poll *)(void *)cq)->fast;
    struct verbs_fast_path *verbs = verbs_fast_path_of(fast);
    if (VERBS_UNLIKELY(out == NULL || max == 0 || !rdmux_fast_path_enter(fast))) {
        rdmux_fast_path_leave(fast);
        return rdmux_fast_path_poll(cq, out, max);
    }
    int wanted = max < VERBS_POLL_MAX ? (int)max : VERBS_POLL_MAX;
    int got = verbs->poll_cq(verbs->device_cq, wanted, verbs->wcs);
    int given = 0;
    while (given < got && is_next(fast, &verbs->wcs[given])) {
        give_work(fast, &out[given++]);
    }
    if (VERBS_LIKELY(given == got)) {
        rdmux_fast_path_leave(fast);
        return (size_t)given;
    }
    keep_write(fast, &verbs->wcs[given], got < 0 ? got : got - given);
    if (given == 0) {
        rdmux_fast_path_leave(fast);
        return rdmux_fast_path_poll(cq, out, max);
    }
    rdmux_fast_path_stop(fast); /* the next poll takes the stashed completions */
    rdmux_fast_path_leave(fast);
    return (size_t)given;
}

static size_t poll_one(struct rdmux_cq *cq, struct rdmux_wc *out, size_t max)
{
    if (VERBS_UNLIKELY(out == NULL || max != 1)) {
        return poll_many(cq, out, max);
    }
    struct rdmux_fast_path *fast = ((struct rdmux_cq_fast_poll *)(void *)cq)->fast;
    struct verbs_fast_path *verbs = verbs_fast_path_of(fast);
    if (VERBS_UNLIKELY(!rdmux_fast_path_enter(fast))) {
        rdmux_fast_path_leave(fast);
        return rdmux_fast_path_poll(cq, out, 1);
    }
    verbs->out = out;
    int got = verbs->poll_cq(verbs->device_cq, 1, verbs->wcs);
    if (VERBS_LIKELY(got == 1 && is_next(fast, verbs->wcs))) {
        give_work(fast, verbs->out);
        rdmux_fast_path_leave(fast);
        return 1;
    }
    if (got == 0) {
        rdmux_fast_path_leave(fast);
        return 0;
    }
    return poll_other(fast, verbs->out, got);
}

/* ----------------------------------------------------------------------------- opening, closing */

static bool is_idle(const struct verbs_ep *ep, const struct verbs_cq *cq)
{
    const struct verbs_queue *queue = &ep->data;
    return ep->state == VERBS_EP_CONNECTED && !ep->is_blocked && ep->side.atomic_count == 0 &&
           queue->chain_count == 0 && verbs_send_ring_is_empty(&queue->sent) &&
           cq->unit_count == 1 && cq->stash_next == cq->stash_count && cq->silent == NULL &&
           !cq->is_armed && cq->fast_count == 0 &&
           atomic_load_explicit(&cq->attention, memory_order_relaxed) == 0;
}

/* True if the fabric carries writes out as they are and completes them in order. */
static bool can_have_fast_path(const struct verbs_ep *ep, const struct rdmux_fast_path *fast)
{
    return ep->transport->start == rdmux_verbs_start && ep->transport->sent == rdmux_verbs_sent &&
           ep->data.is_read == NULL && ep->base.max_inline > 0 &&
           ep->data.sent.depth >= fast->entry_count;
}

int rdmux_verbs_fast_path_open(struct rdmux_provider_ep *base, struct rdmux_fast_path *fast,
                               rdmux_fast_path_poll_fn *poll)
{
    struct verbs_ep *ep = verbs_ep_of(base);
    struct verbs_cq *cq = verbs_cq_of(base->cq);
    struct verbs_fast_path *verbs = verbs_fast_path_of(fast);
    if (!is_idle(ep, cq) || !can_have_fast_path(ep, fast)) {
        return 0;
    }
    if (fast->most > base->max_inline) {
        fast->most = base->max_inline;
    }
    verbs->queue = &ep->data;
    verbs->qp = ep->data.qp;
    verbs->device_cq = ep->data.unit->cq;
    verbs->post_send = verbs->qp->context->ops.post_send;
    verbs->poll_cq = verbs->device_cq->context->ops.poll_cq;
    verbs->work.sg_list = &verbs->piece;
    verbs->work.num_sge = 1;
    verbs->work.opcode = IBV_WR_RDMA_WRITE;
    verbs->work.send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
    fast->post = post_write;
    *poll = poll_one;
    return 1;
}

void rdmux_verbs_fast_path_close(struct rdmux_provider_ep *base, struct rdmux_fast_path *fast,
                                 uint64_t posted, uint64_t done)
{
    struct verbs_ep *ep = verbs_ep_of(base);
    struct verbs_cq *cq = verbs_cq_of(base->cq);
    struct verbs_send_ring *ring = &ep->data.sent;
    if (posted == 0) {
        return;
    }
    ring->tail += (uint32_t)done;
    uint32_t slot = ring->tail;
    ring->head += (uint32_t)posted;
    ring->signaled = ring->head;
    ep->is_unflushed = true;
    for (struct rdmux_fast_path_entry *at = fast->tail; slot != ring->head; at = at->next) {
        ring->requests[slot & ring->mask] = at->request;
        at->provider[0] = slot++;
        cq->fast_count++;
    }
    cq->fast_queue = &ep->data;
    cq->fast_entries = fast->entries;
    cq->fast_entry_count = fast->entry_count;
}

void rdmux_verbs_fast_path_target(const struct rdmux_provider_remote *base,
                                  struct rdmux_fast_path_target *out)
{
    const struct verbs_remote *remote = (const struct verbs_remote *)base;
    out->addr = remote->region.addr;
    out->key = remote->region.rkey;
}

void rdmux_verbs_fast_path_completed(struct verbs_cq *cq, const struct ibv_wc *wc)
{
    uint64_t at = wc->wr_id - (uintptr_t)cq->fast_entries;
    if (cq->fast_count == 0 || at % sizeof(*cq->fast_entries) != 0 ||
        at / sizeof(*cq->fast_entries) >= cq->fast_entry_count) {
        return;
    }
    cq->fast_count--;
    struct verbs_queue *queue = cq->fast_queue;
    if (queue != NULL) {
        struct ibv_wc named = *wc;
        uint64_t slot = cq->fast_entries[at / sizeof(*cq->fast_entries)].provider[0];
        named.wr_id = verbs_wr_id_of(queue->id, VERBS_WORK_SEND, (uint32_t)slot);
        queue->ep->transport->sent(queue, &named);
    }
}
