/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Opens and closes the fast path of a cq. [data path, except create and destroy] */
#include "api/data/fast_path.h"

#include "api/core/cq.h"
#include "api/core/ep.h"
#include "api/core/remote.h"
#include "api/data/bounce.h"
#include "api/data/request.h"
#include "api/data/segments.h"
#include "api/system/system.h"

#include <string.h>

enum {
    STREAK = 4,         /* consecutive writes before an endpoint gets the fast path */
    ENTRIES_MAX = 1025, /* one entry is never used */
};

struct memory {
    struct rdmux_fast_path fast;
    struct rdmux_fast_path no_fast_path;
    struct rdmux_fast_path_entry entries[ENTRIES_MAX];
};

/* --------------------------------------------------------------------------- create and destroy */

enum rdmux_status rdmux_fast_path_create(struct rdmux_cq *cq, rdmux_fast_path_poll_fn poll)
{
    /* Wiped in the child of a fork, as is fabric->alive. */
    struct memory *memory = rdmux_pages_map(sizeof(*memory), RDMUX_PAGES_WIPED);
    if (memory == NULL) {
        return rdmux_fail(RDMUX_NO_MEMORY, "rdmux_cq_create: out of memory");
    }
    struct rdmux_fast_path *fast = &memory->fast;
    fast->cq = cq;
    fast->entries = memory->entries;
    cq->gate = &fast->gate;
    cq->fast_poll.fast = fast;
    cq->fast.none = &memory->no_fast_path;
    atomic_store(rdmux_cq_signal(cq), RDMUX_SIGNAL_ALIVE);
    cq->fast_poll.poll = poll;
    cq->fast.ordinary_poll = poll;
    cq->close_gate = rdmux_fast_path_close;
    return RDMUX_OK;
}

void rdmux_fast_path_destroy(struct rdmux_cq *cq)
{
    rdmux_pages_unmap(cq->fast_poll.fast, sizeof(struct memory));
}

bool rdmux_fast_path_is_possible(const struct rdmux_ep *ep)
{
    return ep->ops->size >= offsetof(struct rdmux_provider_ops, ep_leave) &&
           ep->ops->fast_path_open != NULL && ep->failover == NULL &&
           (ep->limits.caps & RDMUX_CAP_WRITE) != 0 && ep->send.depth < ENTRIES_MAX &&
           !ep->cq->fence;
}

void rdmux_fast_path_forget(struct rdmux_ep *ep)
{
    if (ep->cq->fast.ep == ep) {
        ep->cq->fast.ep = NULL;
    }
}

void rdmux_fast_path_aim(struct rdmux_remote *remote)
{
    const struct rdmux_ep *ep = remote->ep;
    if (remote->state != RDMUX_REMOTE_READY || remote->is_revoking || remote->path == NULL ||
        (remote->access & RDMUX_ACCESS_REMOTE_WRITE) == 0 || !ep->has_fast_path) {
        __atomic_store_n(&remote->writer, remote, __ATOMIC_RELAXED); /* no endpoint */
        return;
    }
    remote->room = remote->length < ep->limits.max_inline
                       ? 0
                       : remote->length - ep->limits.max_inline + 1;
    ep->ops->fast_path_target(remote->path, &remote->target);
    __atomic_store_n(&remote->writer, ep, __ATOMIC_RELAXED);
}

/* ----------------------------------------------------------------------------------------- open */

static struct rdmux_fast_path_entry *end_of(const struct rdmux_fast_path *fast)
{
    return fast->entries + fast->entry_count;
}

static void count_posted(struct rdmux_cq *cq)
{
    cq->fast.posted += (uint64_t)(cq->fast_poll.fast->head - cq->fast.since);
    cq->fast.since = cq->fast_poll.fast->head;
}

/* Returns the limit of head: the entry before tail, or the end of the array. */
static struct rdmux_fast_path_entry *limit_of(const struct rdmux_fast_path *fast)
{
    if (fast->tail > fast->head) {
        return fast->tail - 1;
    }
    return end_of(fast) - (fast->tail == fast->entries ? 1 : 0);
}

/* Owner; the fast path is open, or about to be. Returns whether there is room. A thread that raised
 * a signal in the meantime has cleared the limit, or this function sees the signal. */
static bool has_entry_room(struct rdmux_cq *cq)
{
    struct rdmux_fast_path *fast = cq->fast_poll.fast;
    count_posted(cq);
    if (fast->head == fast->tail) {
        fast->head = fast->tail = fast->entries;
    } else if (fast->head == end_of(fast)) {
        fast->head = fast->entries;
    }
    cq->fast.since = fast->head;
    struct rdmux_fast_path_entry *limit = limit_of(fast);
    __atomic_store_n(&fast->limit, limit, __ATOMIC_SEQ_CST);
    if (atomic_load(rdmux_cq_signal(cq)) != RDMUX_GATE_OPEN) {
        __atomic_store_n(&fast->limit, NULL, __ATOMIC_SEQ_CST);
        return false;
    }
    return fast->head != limit;
}

/* Returns whether all requests are done and returned, and the endpoint has no other work. */
static bool ep_is_idle(const struct rdmux_ep *ep)
{
    return (ep->events | ep->fault | ep->work | ep->flow.wants_writable |
            ep->flow.has_waiting_receives | ep->flow.is_shutdown_asked | ep->flow.is_blocked |
            ep->queued.is_pending | ep->queued.is_doorbell_held | ep->path->ready |
            ep->path->resume) == 0 &&
           rdmux_list_empty(&ep->imports.ready) && ep->send.tail == ep->send.head &&
           (ep->segments == NULL || !ep->segments->is_busy);
}

static bool cq_is_idle(const struct rdmux_cq *cq)
{
    return cq->domain_count == 1 && cq->doorbells == NULL && rdmux_list_empty(&cq->pending) &&
           rdmux_list_empty(&cq->lists.busy) && rdmux_list_empty(&cq->lists.closed) &&
           rdmux_list_empty(&cq->lists.dropped) &&
           atomic_load_explicit(&cq->armed, memory_order_relaxed) == RDMUX_UNARMED;
}

static void make_entries_ready(struct rdmux_ep *ep, struct rdmux_fast_path *fast)
{
    struct rdmux_cq *cq = ep->cq;
    fast->entry_count = ep->send.depth + 1;
    if (cq->fast.ready == fast->entry_count) {
        return;
    }
    for (uint32_t i = 0; i < fast->entry_count; i++) {
        fast->entries[i] = (struct rdmux_fast_path_entry){
            .ep = ep,
            .status = RDMUX_OK,
            .opcode = RDMUX_WC_WRITE,
            .next = &fast->entries[i + 1 < fast->entry_count ? i + 1 : 0],
        };
    }
    cq->fast.ready = fast->entry_count;
}

/* Owner. Opens the fast path. Returns false if it stays closed or has no room. */
static bool open_fast_path(struct rdmux_ep *ep)
{
    struct rdmux_cq *cq = ep->cq;
    struct rdmux_fast_path *fast = cq->fast_poll.fast;
    rdmux_fast_path_poll_fn poll = NULL;
    if (!ep_is_idle(ep) || !cq_is_idle(cq)) {
        return false;
    }
    make_entries_ready(ep, fast);
    fast->head = fast->tail = cq->fast.since = fast->entries;
    fast->bytes = 0;
    fast->most = ep->limits.max_inline;
    cq->fast.posted = 0;
    if (!ep->ops->fast_path_open(ep->path, fast, &poll)) {
        return false;
    }
    __atomic_store_n(&ep->fast, fast, __ATOMIC_RELAXED);
    __atomic_store_n(&cq->fast_poll.poll, poll, __ATOMIC_RELAXED);
    atomic_fetch_or(rdmux_cq_signal(cq), RDMUX_SIGNAL_FAST_PATH);
    return has_entry_room(cq);
}

/* Owner; the fast path is closed. Returns whether the endpoint gets it: after STREAK writes in a
 * row, without writes of other endpoints in between. */
static bool has_earned_it(struct rdmux_ep *ep)
{
    struct rdmux_cq *cq = ep->cq;
    if (cq->fast.ep != ep) {
        cq->fast.ep = ep;
        cq->fast.streak = 0;
        cq->fast.ready = 0;
    }
    return ++cq->fast.streak > STREAK;
}

bool rdmux_fast_path_ready(struct rdmux_ep *ep)
{
    struct rdmux_cq *cq = ep->cq;
    struct rdmux_fast_path *fast = cq->fast_poll.fast;
    bool is_ready = false;
    if (rdmux_fast_path_enter(fast)) {
        const struct rdmux_fast_path_entry *limit = __atomic_load_n(&fast->limit, __ATOMIC_SEQ_CST);
        /* NULL: another thread raised a signal, which is cleared again */
        is_ready = cq->fast.ep == ep && (limit == NULL || limit == fast->head) &&
                   has_entry_room(cq);
    } else if (atomic_load_explicit(rdmux_cq_signal(cq), memory_order_acquire) ==
               RDMUX_SIGNAL_ALIVE) {
        is_ready = ep->phase == RDMUX_PHASE_READY && has_earned_it(ep) && open_fast_path(ep);
    }
    rdmux_fast_path_leave(fast);
    return is_ready;
}

/* ---------------------------------------------------------------------------------------- close */

static void fill_record(struct rdmux_ep *ep, uint64_t at, struct rdmux_fast_path_entry *entry)
{
    struct rdmux_request *request = rdmux_ring_record(&ep->send, at);
    rdmux_send_begin(request, RDMUX_OP_WRITE, RDMUX_INLINE, 0, RDMUX_WC_WRITE, entry->context, at);
    request->sge_count = 0; /* the device has the bytes already */
    request->length = entry->length;
    entry->request = request;
}

static void close_fast_path(struct rdmux_cq *cq)
{
    struct rdmux_fast_path *fast = cq->fast_poll.fast;
    struct rdmux_ep *ep = cq->fast.ep;
    count_posted(cq);
    __atomic_store_n(&fast->limit, NULL, __ATOMIC_RELAXED);
    if (fast->head == end_of(fast)) {
        fast->head = fast->entries;
    }
    uint64_t under_way = 0;
    for (struct rdmux_fast_path_entry *at = fast->tail; at != fast->head; at = at->next) {
        under_way++;
    }
    uint64_t done = cq->fast.posted - under_way;
    ep->send.tail += done;
    ep->send.head += cq->fast.posted;
    ep->send.next = ep->send.head;
    uint64_t number = ep->send.tail;
    for (struct rdmux_fast_path_entry *at = fast->tail; at != fast->head; at = at->next) {
        fill_record(ep, number++, at);
    }
    ep->stats.writes += cq->fast.posted;
    ep->stats.posts += cq->fast.posted;
    ep->stats.bytes_sent += fast->bytes;
    __atomic_store_n(&ep->fast, cq->fast.none, __ATOMIC_RELAXED);
    __atomic_store_n(&cq->fast_poll.poll, cq->fast.ordinary_poll, __ATOMIC_RELAXED);
    cq->fast.streak = 0;
    atomic_fetch_and(rdmux_cq_signal(cq), ~(uint32_t)RDMUX_SIGNAL_FAST_PATH);
    ep->ops->fast_path_close(ep->path, fast, cq->fast.posted, done);
}

void rdmux_fast_path_close(struct rdmux_cq *cq)
{
    if ((atomic_load_explicit(rdmux_cq_signal(cq), memory_order_relaxed) &
         RDMUX_SIGNAL_FAST_PATH) != 0) {
        close_fast_path(cq);
    }
}

void rdmux_fast_path_stop(struct rdmux_fast_path *fast)
{
    rdmux_fast_path_close(fast->cq);
}
