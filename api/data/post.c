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
#include "api/base/trace.h"
#include "api/core/ep.h"
#include "api/core/fabric.h"
#include "api/core/failover.h"
#include "api/core/remote.h"
#include "api/data/bounce.h"
#include "api/data/completion.h"
#include "api/data/fast_path.h"
#include "api/data/op_rules.h"
#include "api/data/request.h"
#include "api/data/segments.h"
#include "api/progress/cq_owner.h"
#include "api/progress/places.h"

#include <string.h>

RDMUX_TRACE_POINT(post);

/* ------------------------------------------------------------------------------ simple requests */

/*
 * The common case of a request: one piece of memory, an endpoint without special state, and nothing
 * to refuse. The functions below check and record such a request in registers. rdmux_ep_queue() in
 * request.c handles all others, as a wr, and has the error texts.
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
                                               const struct rdmux_op_rule *rule)
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

static RDMUX_COLD void trace_post(const struct rdmux_ep *ep, const struct rdmux_request *first,
                                  size_t count)
{
    RDMUX_TRACE4(post, ep->id, first->op, first->length, count);
}

/* Gives the provider `count` adjacent records from `next` on, the first of which is `first`.
 * Returns false if the provider takes no more now. */
RDMUX_HOT bool give(struct rdmux_ep *ep, struct rdmux_request *first, size_t count, bool more)
{
    size_t posted = 0;
    if (RDMUX_TRACED(post)) {
        trace_post(ep, first, count);
    }
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
    rdmux_ep_hold_doorbell(ep);
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
    if (ep->queued.is_doorbell_held && !more) {
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

static bool is_full(const struct rdmux_ep *ep)
{
    return ep->phase == RDMUX_PHASE_READY && ep->send.head - ep->send.tail >= ep->send.depth;
}

/* Makes progress for a request that was refused with RDMUX_AGAIN, and queues it if it found the
 * queue full and there is room now. A program may post until its request is taken, and never poll:
 * its calls keep the service thread away. Progress may end the endpoint. */
static RDMUX_COLD enum rdmux_status queue_later(struct rdmux_ep *ep, const struct rdmux_wr *wr)
{
    const bool was_full = is_full(ep);
    const char *why = rdmux_last_error(); /* stays: it is a text of rdmux_again() */
    rdmux_ep_progress(ep);
    if (!was_full) {
        return rdmux_again(why); /* the program has not seen CONNECTED or REMOTE_READY yet */
    }
    enum rdmux_status status = rdmux_ep_queue(ep, wr);
    if (status == RDMUX_AGAIN && is_full(ep)) {
        ep->flow.wants_writable = true;
        ep->stats.again++;
    }
    return status;
}

/* Starts new records that were queued from `from` on, if there are any. Returns the end of the
 * queue. */
static RDMUX_COLD uint64_t start_before(struct rdmux_ep *ep, uint64_t from)
{
    if (ep->send.head != from) {
        start_requests(ep, from, false);
    }
    return ep->send.head;
}

/* Starts the request that was queued last, on an endpoint in any state. */
static RDMUX_COLD void start_last(struct rdmux_ep *ep, uint32_t flags)
{
    start_requests(ep, ep->send.head - 1, (flags & RDMUX_MORE) != 0);
}

/* Queues a request and starts it. Returns false if the request is not simple and was not queued. */
RDMUX_HOT bool post_simple(struct rdmux_ep *ep, const struct simple *simple)
{
    if (RDMUX_UNLIKELY(!takes_requests(ep))) {
        return false;
    }
    bool open = is_open(ep);
    struct rdmux_request *request = prepare_simple(ep, simple, &rdmux_op_rules[simple->op]);
    if (RDMUX_UNLIKELY(request == NULL)) {
        return false;
    }
    rdmux_count_request(ep, simple->op, simple->piece.length);
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
    enum rdmux_status status = rdmux_ep_queue(ep, &wr);
    if (RDMUX_UNLIKELY(status == RDMUX_AGAIN)) {
        status = queue_later(ep, &wr);
    }
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
    if (RDMUX_UNLIKELY(wr->op >= RDMUX_COUNT_OF(rdmux_op_rules) || wr->sge_count != 1 ||
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
    if (RDMUX_UNLIKELY(prepare_simple(ep, &simple, &rdmux_op_rules[wr->op]) == NULL)) {
        return false;
    }
    rdmux_count_request(ep, simple.op, simple.piece.length);
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
        status = rdmux_ep_queue(ep, wr);
        if (RDMUX_UNLIKELY(status == RDMUX_AGAIN)) {
            from = start_before(ep, from);
            status = queue_later(ep, wr);
        }
        if (RDMUX_UNLIKELY(status != RDMUX_OK)) {
            break;
        }
    }
    if (ep->send.head != from) {
        start_requests(ep, from, (wrs[done - 1].flags & RDMUX_MORE) != 0);
    }
    rdmux_cq_leave(ep->cq);
    if (posted != NULL) {
        *posted = done;
    }
    return status;
}

enum rdmux_status rdmux_ep_post(struct rdmux_ep *ep, const struct rdmux_wr *wr)
{
    uint64_t from = ep->send.head;
    if (!takes_requests(ep) || !queue_simple(ep, wr)) {
        enum rdmux_status status = rdmux_ep_queue(ep, wr);
        if (status != RDMUX_OK) {
            return status;
        }
    }
    start_requests(ep, from, (wr->flags & RDMUX_MORE) != 0);
    return RDMUX_OK;
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
