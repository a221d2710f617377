/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Opens and closes the fast path of a cq. [data path, except create and destroy] */
#include "api/data/fast_path.h"

#include "api/core/cq.h"
#include "api/core/ep.h"
#include "api/core/remote.h"
#include "api/data/bounce.h"
#include "api/data/request.h"
#include "api/data/segments.h"

#include <string.h>
#include <sys/mman.h>

enum {
    STREAK = 4,         /* consecutive writes before an endpoint gets the fast path */
    ENTRIES_MAX = 1025, /* one entry is never used */
};

struct memory {
    struct rdmux_lane lane;
    struct rdmux_lane no_lane;
    struct rdmux_lane_entry entries[ENTRIES_MAX];
};

/* --------------------------------------------------------------------------- create and destroy */

enum rdmux_status rdmux_lane_create(struct rdmux_cq *cq)
{
    struct memory *memory = mmap(NULL, sizeof(*memory), PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        return rdmux_fail(RDMUX_NO_MEMORY, "rdmux_cq_create: out of memory");
    }
    madvise(memory, sizeof(*memory), MADV_WIPEONFORK); /* as is fabric->alive */
    struct rdmux_lane *lane = &memory->lane;
    lane->cq = cq;
    lane->entries = memory->entries;
    cq->gate = lane;
    cq->no_lane = &memory->no_lane;
    atomic_store(rdmux_cq_signal(cq), RDMUX_SIGNAL_ALIVE);
    cq->front.poll = rdmux_lane_poll;
    cq->front.lane = lane;
    cq->close_gate = rdmux_lane_close;
    return RDMUX_OK;
}

void rdmux_lane_destroy(struct rdmux_cq *cq)
{
    munmap(cq->gate, sizeof(struct memory));
}

bool rdmux_lane_is_possible(const struct rdmux_ep *ep)
{
    return ep->ops->size >= sizeof(struct rdmux_provider_ops) && ep->ops->lane_open != NULL &&
           ep->failover == NULL && (ep->caps & RDMUX_CAP_WRITE) != 0 &&
           ep->send.depth < ENTRIES_MAX && !ep->cq->fence;
}

void rdmux_lane_forget(struct rdmux_ep *ep)
{
    if (ep->cq->lane_ep == ep) {
        ep->cq->lane_ep = NULL;
    }
}

void rdmux_lane_aim(struct rdmux_remote *remote)
{
    const struct rdmux_ep *ep = remote->ep;
    if (remote->state != RDMUX_REMOTE_READY || remote->revoking || remote->path == NULL ||
        (remote->access & RDMUX_ACCESS_REMOTE_WRITE) == 0 || !ep->has_lane) {
        __atomic_store_n(&remote->writer, remote, __ATOMIC_RELAXED); /* no endpoint */
        return;
    }
    remote->room = remote->length < ep->max_inline ? 0 : remote->length - ep->max_inline + 1;
    ep->ops->lane_target(remote->path, &remote->target);
    __atomic_store_n(&remote->writer, ep, __ATOMIC_RELAXED);
}

/* ----------------------------------------------------------------------------------------- open */

static struct rdmux_lane_entry *end_of(const struct rdmux_lane *lane)
{
    return lane->entries + lane->entry_count;
}

static void count_posted(struct rdmux_cq *cq)
{
    cq->lane_posted += (uint64_t)(cq->gate->head - cq->lane_since);
    cq->lane_since = cq->gate->head;
}

/* Returns the limit of head: the entry before tail, or the end of the array. */
static struct rdmux_lane_entry *limit_of(const struct rdmux_lane *lane)
{
    if (lane->tail > lane->head) {
        return lane->tail - 1;
    }
    return end_of(lane) - (lane->tail == lane->entries ? 1 : 0);
}

/* Owner; the fast path is open, or about to be. Returns whether there is room. A thread that raised
 * a signal in the meantime has cleared the limit, or this function sees the signal. */
static bool make_room(struct rdmux_cq *cq)
{
    struct rdmux_lane *lane = cq->gate;
    count_posted(cq);
    if (lane->head == lane->tail) {
        lane->head = lane->tail = lane->entries;
    } else if (lane->head == end_of(lane)) {
        lane->head = lane->entries;
    }
    cq->lane_since = lane->head;
    struct rdmux_lane_entry *limit = limit_of(lane);
    __atomic_store_n(&lane->limit, limit, __ATOMIC_SEQ_CST);
    if (atomic_load(rdmux_cq_signal(cq)) != RDMUX_LANE_OPEN) {
        __atomic_store_n(&lane->limit, NULL, __ATOMIC_SEQ_CST);
        return false;
    }
    return lane->head != limit;
}

/* Returns whether all requests are done and returned, and the endpoint has no other work. */
static bool ep_is_idle(const struct rdmux_ep *ep)
{
    return (ep->events | ep->fault | ep->work | ep->want_writable | ep->receives_wait |
            ep->shutdown_asked | ep->blocked | ep->pending | ep->doorbell_held | ep->path->ready |
            ep->path->resume) == 0 &&
           rdmux_list_empty(&ep->ready_remotes) && ep->send.tail == ep->send.head &&
           (ep->segments == NULL || !ep->segments->busy);
}

static bool cq_is_idle(const struct rdmux_cq *cq)
{
    return cq->domain_count == 1 && cq->doorbells == NULL && rdmux_list_empty(&cq->pending) &&
           rdmux_list_empty(&cq->busy) && rdmux_list_empty(&cq->closed) &&
           rdmux_list_empty(&cq->dropped) &&
           atomic_load_explicit(&cq->armed, memory_order_relaxed) == RDMUX_UNARMED;
}

static void make_entries_ready(struct rdmux_ep *ep, struct rdmux_lane *lane)
{
    struct rdmux_cq *cq = ep->cq;
    lane->entry_count = ep->send.depth + 1;
    if (cq->lane_ready == lane->entry_count) {
        return;
    }
    for (uint32_t i = 0; i < lane->entry_count; i++) {
        lane->entries[i] = (struct rdmux_lane_entry){
            .ep = ep,
            .status = RDMUX_OK,
            .opcode = RDMUX_WC_WRITE,
            .next = &lane->entries[i + 1 < lane->entry_count ? i + 1 : 0],
        };
    }
    cq->lane_ready = lane->entry_count;
}

/* Owner. Opens the fast path. Returns false if it stays closed or has no room. */
static bool open_lane(struct rdmux_ep *ep)
{
    struct rdmux_cq *cq = ep->cq;
    struct rdmux_lane *lane = cq->gate;
    rdmux_lane_poll_fn poll = NULL;
    if (!ep_is_idle(ep) || !cq_is_idle(cq)) {
        return false;
    }
    make_entries_ready(ep, lane);
    lane->head = lane->tail = cq->lane_since = lane->entries;
    lane->bytes = 0;
    lane->most = ep->max_inline;
    cq->lane_posted = 0;
    if (!ep->ops->lane_open(ep->path, lane, &poll)) {
        return false;
    }
    __atomic_store_n(&ep->lane, lane, __ATOMIC_RELAXED);
    __atomic_store_n(&cq->front.poll, poll, __ATOMIC_RELAXED);
    atomic_fetch_or(rdmux_cq_signal(cq), RDMUX_SIGNAL_LANE);
    return make_room(cq);
}

/* Owner; the fast path is closed. Returns whether the endpoint gets it: after STREAK writes in a
 * row, without writes of other endpoints in between. */
static bool has_earned_it(struct rdmux_ep *ep)
{
    struct rdmux_cq *cq = ep->cq;
    if (cq->lane_ep != ep) {
        cq->lane_ep = ep;
        cq->lane_streak = 0;
        cq->lane_ready = 0;
    }
    return ++cq->lane_streak > STREAK;
}

bool rdmux_lane_ready(struct rdmux_ep *ep)
{
    struct rdmux_cq *cq = ep->cq;
    struct rdmux_lane *lane = cq->gate;
    bool is_ready = false;
    if (rdmux_lane_enter(lane)) {
        const struct rdmux_lane_entry *limit = __atomic_load_n(&lane->limit, __ATOMIC_SEQ_CST);
        /* NULL: another thread raised a signal, which is cleared again */
        is_ready = cq->lane_ep == ep && (limit == NULL || limit == lane->head) && make_room(cq);
    } else if (atomic_load_explicit(rdmux_cq_signal(cq), memory_order_acquire) ==
               RDMUX_SIGNAL_ALIVE) {
        is_ready = ep->phase == RDMUX_PHASE_READY && has_earned_it(ep) && open_lane(ep);
    }
    rdmux_lane_leave(lane);
    return is_ready;
}

/* ---------------------------------------------------------------------------------------- close */

static void fill_record(struct rdmux_ep *ep, uint64_t at, struct rdmux_lane_entry *entry)
{
    struct rdmux_request *request = rdmux_ring_record(&ep->send, at);
    request->op = RDMUX_OP_WRITE;
    request->flags = RDMUX_INLINE;
    request->imm = 0;
    request->sge_count = 0; /* the device has the bytes already */
    request->done = 0;
    request->internal = 0;
    request->status = RDMUX_OK;
    request->opcode = RDMUX_WC_WRITE;
    request->length = entry->length;
    request->context = entry->context;
    request->keys = RDMUX_BOUNCE_OWN;
    request->sequence = at;
    entry->request = request;
}

static void close_lane(struct rdmux_cq *cq)
{
    struct rdmux_lane *lane = cq->gate;
    struct rdmux_ep *ep = cq->lane_ep;
    count_posted(cq);
    __atomic_store_n(&lane->limit, NULL, __ATOMIC_RELAXED);
    if (lane->head == end_of(lane)) {
        lane->head = lane->entries;
    }
    uint64_t under_way = 0;
    for (struct rdmux_lane_entry *at = lane->tail; at != lane->head; at = at->next) {
        under_way++;
    }
    uint64_t done = cq->lane_posted - under_way;
    ep->send.tail += done;
    ep->send.head += cq->lane_posted;
    ep->send.next = ep->send.head;
    uint64_t number = ep->send.tail;
    for (struct rdmux_lane_entry *at = lane->tail; at != lane->head; at = at->next) {
        fill_record(ep, number++, at);
    }
    ep->stats.writes += cq->lane_posted;
    ep->stats.posts += cq->lane_posted;
    ep->stats.bytes_sent += lane->bytes;
    __atomic_store_n(&ep->lane, cq->no_lane, __ATOMIC_RELAXED);
    __atomic_store_n(&cq->front.poll, rdmux_lane_poll, __ATOMIC_RELAXED);
    cq->lane_streak = 0;
    atomic_fetch_and(rdmux_cq_signal(cq), ~(uint32_t)RDMUX_SIGNAL_LANE);
    ep->ops->lane_close(ep->path, lane, cq->lane_posted, done);
}

void rdmux_lane_close(struct rdmux_cq *cq)
{
    if ((atomic_load_explicit(rdmux_cq_signal(cq), memory_order_relaxed) & RDMUX_SIGNAL_LANE) != 0) {
        close_lane(cq);
    }
}

void rdmux_lane_stop(struct rdmux_lane *lane)
{
    rdmux_lane_close(lane->cq);
}
