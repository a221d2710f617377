/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The completion queue: polls the endpoints' rings, executes the peers' requests, delivers
 * messages, and sleeps without losing a wake-up.
 *
 * An endpoint is awake (on cq->awake, its sleeping word 0) from its last activity to the next arm,
 * so that arm does work only for endpoints that were active since the arm before.
 *
 * If a cq has many endpoints, poll does the same for those that are not among the hot ones. An
 * endpoint that sleeps and is not hot is idle: nothing looks at it until its peer marks it in the
 * ready set. So a poll costs the same with any number of idle endpoints. */
#include "shm_copy.h"
#include "shm_internal.h"
#include "shm_marks.h"
#include "shm_watch.h"

#include "api/base/pieces.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

static_assert(offsetof(struct shm_cq, base) == 0, "shm_cq_of() relies on it");

enum {
    HOT_COUNT = 16,       /* lately active endpoints, served by each poll */
    TURN_COUNT = 8,       /* other watched endpoints, served by each poll that has budget left */
    TURN_PERIOD = 16,     /* every so many polls they are served in any case; a power of two */
    TURN_SHARE = 4,       /* divides the budget for their share of such a poll */
    RISEN_MAX = 64,       /* watched endpoints from which poll lets some become idle */
    RISEN_PERIOD = 256,   /* polls between two tries if many have work; a power of two */
    NEIGHBOUR_COUNT = 64, /* neighbours whose marks a poll looks at, in turn */
    MARK_VISITS = 256,    /* most marked endpoints that a poll looks at */
    CHECK_PERIOD = 4096,  /* most polls between two checks of the descriptors; a power of two */
    EVENT_COUNT = 32,
    EARLY_CHUNK = 4096, /* bytes from which a chunk is freed before the poll ends */
};

/* ------------------------------------------------------------------------------ the queue */

enum rdmux_status rdmux_shm_cq_open(struct rdmux_provider_cq *base, uint32_t depth)
{
    struct shm_cq *cq = shm_cq_of(base);
    (void)depth; /* the core keeps the completions */
    cq->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (cq->epoll < 0) {
        rdmux_provider_error("shm: no epoll descriptor: errno %d; raise the limit on open files",
                             errno);
        return RDMUX_NO_MEMORY;
    }
    cq->risen_max = RISEN_MAX;
    cq->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    enum rdmux_status status = RDMUX_OK;
    if (cq->bell < 0) {
        rdmux_provider_error("shm: no eventfd: errno %d; raise the limit on open files", errno);
        status = RDMUX_NO_MEMORY;
        goto close_epoll;
    }
    /* Edge-triggered, so that the doorbell need not be read: each ring is reported once. */
    status = rdmux_shm_cq_watch(cq, NULL, cq->bell, SHM_WATCH_BELL, EPOLLIN | EPOLLET);
    if (status != RDMUX_OK) {
        goto close_bell;
    }
    return RDMUX_OK;

close_bell:
    (void)close(cq->bell);
close_epoll:
    (void)close(cq->epoll);
    return status;
}

void rdmux_shm_cq_close(struct rdmux_provider_cq *base)
{
    struct shm_cq *cq = shm_cq_of(base);
    (void)close(cq->bell);
    (void)close(cq->epoll);
    rdmux_provider_release(base->domain->fabric, cq->neighbours);
    rdmux_provider_release(base->domain->fabric, cq->eps);
}

int rdmux_shm_cq_fd(struct rdmux_provider_cq *base)
{
    return shm_cq_of(base)->epoll;
}

/* Returns whether the endpoint may become idle, once it sleeps. */
static bool may_idle(const struct shm_ep *ep)
{
    return ep->is_marked && ep->place >= HOT_COUNT;
}

/* Makes the watched endpoint hot: each poll serves it. */
static void make_hot(struct shm_cq *cq, struct shm_ep *ep)
{
    if (ep->place < HOT_COUNT || ep->place >= cq->watched) {
        return;
    }
    uint32_t place = cq->hot_next++ % HOT_COUNT;
    struct shm_ep *other = cq->eps[place];
    shm_cq_swap(cq, ep->place, place);
    if (other->is_asleep && may_idle(other)) {
        shm_cq_stop_heeding(cq, other);
    }
}

/* -------------------------------------------------------------------------- what arrives */

enum outcome {
    NEXT,   /* the slot was executed */
    LATER,  /* a part of the slot was executed, the rest follows in another poll */
    STUCK,  /* the slot waits for a receive, or its sender is gone */
    BROKEN, /* the endpoint has failed */
};

static enum outcome break_off(struct shm_ep *ep, enum rdmux_status status, const char *text)
{
    rdmux_shm_break(ep, status, ep->in.tail, text);
    return BROKEN;
}

/* Takes the receive for the next message. NULL: there is none yet. */
static inline struct rdmux_request *take_receive(struct shm_ep *ep)
{
    struct rdmux_request *request = rdmux_provider_take_receive(&ep->base);
    if (request != NULL) {
        ep->receives_taken++;
    }
    return request;
}

static inline uint32_t wc_flags(uint8_t flags)
{
    return (flags & SHM_HAS_IMM) != 0 ? RDMUX_WC_HAS_IMM : 0;
}

static enum outcome too_long(struct shm_ep *ep, struct rdmux_request *request, uint64_t length,
                             const struct shm_message *message)
{
    rdmux_provider_received(&ep->base, request, RDMUX_LENGTH, RDMUX_WC_RECV, length,
                            wc_flags(message->flags), message->imm);
    return break_off(ep, RDMUX_LENGTH, "shm: a message is longer than the receive it met");
}

static void deliver_message(struct shm_ep *ep, struct rdmux_request *request, uint32_t opcode,
                            uint64_t length, uint32_t flags, uint32_t imm)
{
    ep->counts.received++;
    rdmux_provider_received(&ep->base, request, RDMUX_OK, opcode, length, flags, imm);
}

static uint64_t message_length(const struct shm_message *message)
{
    struct shm_message_body body;
    memcpy(&body, message->body, sizeof(body));
    return body.length;
}

static enum outcome take_send(struct shm_ep *ep, const struct shm_message *message)
{
    uint64_t length = message->chunk == 0 ? message->inline_length : message_length(message);
    uint64_t here = message->chunk == 0 ? length : message->chunk;
    const uint8_t *bytes = message->chunk == 0 ? message->body : message->data;
    if (ep->incoming.request != NULL || here > length) {
        return break_off(ep, RDMUX_PROTOCOL, "shm: the peer sent a malformed message");
    }
    struct rdmux_request *request = take_receive(ep);
    if (request == NULL) {
        return STUCK;
    }
    if (length > request->length) {
        return too_long(ep, request, length, message);
    }
    rdmux_scatter(request->sges, request->sge_count, 0, bytes, here);
    if (here == length) {
        deliver_message(ep, request, RDMUX_WC_RECV, length, wc_flags(message->flags), message->imm);
        return NEXT;
    }
    ep->incoming = (struct shm_incoming){
        .request = request,
        .length = length,
        .received = here,
        .imm = message->imm,
        .wc_flags = wc_flags(message->flags),
    };
    return NEXT;
}

/* Delivers the message that came in part and is complete now. */
static void deliver_incoming(struct shm_ep *ep)
{
    struct rdmux_request *request = ep->incoming.request;
    ep->incoming.request = NULL;
    deliver_message(ep, request, RDMUX_WC_RECV, ep->incoming.length, ep->incoming.wc_flags,
                    ep->incoming.imm);
}

static enum outcome take_chunk(struct shm_ep *ep, const struct shm_message *message)
{
    struct shm_incoming *incoming = &ep->incoming;
    if (incoming->request == NULL || incoming->is_pulling || message->chunk == 0 ||
        message->chunk > incoming->length - incoming->received) {
        return break_off(ep, RDMUX_PROTOCOL, "shm: the peer sent a chunk of no message");
    }
    rdmux_scatter(incoming->request->sges, incoming->request->sge_count, incoming->received,
                  message->data, message->chunk);
    incoming->received += message->chunk;
    if (incoming->received == incoming->length) {
        deliver_incoming(ep);
    }
    return NEXT;
}

/* Reads where the sender's bytes are, and takes the receive for them. */
static enum outcome start_pull(struct shm_ep *ep, const struct shm_message *message)
{
    struct shm_pull_body body;
    memcpy(&body, message->body, sizeof(body));
    bool listed = body.piece_count > 1;
    uint64_t sum = 0;
    if (ep->incoming.request != NULL || body.piece_count == 0 || body.piece_count > RDMUX_SGE_MAX ||
        message->chunk != (listed ? body.piece_count * sizeof(struct shm_piece) : 0)) {
        return break_off(ep, RDMUX_PROTOCOL, "shm: the peer offered a malformed message");
    }
    ep->pull_count = (uint32_t)body.piece_count;
    ep->pull[0] = (struct shm_piece){ .address = body.address, .length = body.length };
    if (listed) {
        memcpy(ep->pull, message->data, message->chunk);
    }
    for (uint32_t i = 0; i < ep->pull_count; i++) {
        if (ep->pull[i].length > body.length - sum) {
            return break_off(ep, RDMUX_PROTOCOL, "shm: the peer offered a malformed message");
        }
        sum += ep->pull[i].length;
    }
    if (sum != body.length) {
        return break_off(ep, RDMUX_PROTOCOL, "shm: the peer offered a malformed message");
    }
    struct rdmux_request *request = take_receive(ep);
    if (request == NULL) {
        return STUCK;
    }
    if (body.length > request->length) {
        return too_long(ep, request, body.length, message);
    }
    ep->incoming = (struct shm_incoming){
        .request = request,
        .length = body.length,
        .imm = message->imm,
        .wc_flags = wc_flags(message->flags),
        .is_pulling = true,
    };
    return NEXT;
}

/* Finds the pieces of the sender's memory that hold `length` bytes of the message from byte
 * `offset` on. Returns the number of pieces. */
static size_t slice_pull(const struct shm_ep *ep, uint64_t offset, uint64_t length,
                         struct iovec *out)
{
    size_t count = 0;
    for (uint32_t i = 0; i < ep->pull_count && length > 0; i++) {
        uint64_t at = 0;
        uint64_t here = rdmux_piece_step(ep->pull[i].length, &offset, &length, &at);
        if (here != 0) {
            out[count].iov_base = (void *)(uintptr_t)(ep->pull[i].address + at);
            out[count].iov_len = (size_t)here;
            count++;
        }
    }
    return count;
}

/* Pulls the next bytes of the incoming message. Returns 0, or an errno value. */
static int pull_some(struct shm_ep *ep)
{
    struct shm_incoming *incoming = &ep->incoming;
    uint64_t length = incoming->length - incoming->received;
    length = length < SHM_STEP_MAX ? length : SHM_STEP_MAX;
    struct iovec ours[RDMUX_SGE_MAX];
    struct iovec theirs[RDMUX_SGE_MAX];
    size_t our_count = rdmux_pieces(incoming->request, incoming->received, length, ours);
    size_t their_count = slice_pull(ep, incoming->received, length, theirs);
    ep->base.system_calls++;
    ssize_t copied = process_vm_readv(ep->peer.pid, ours, our_count, theirs, their_count, 0);
    if (copied <= 0) {
        return copied < 0 ? errno : EFAULT;
    }
    incoming->received += (uint64_t)copied;
    return 0;
}

/* Returns whether the request's memory is mapped, after a copy has failed. */
static bool is_request_mapped(const struct rdmux_request *request)
{
    struct iovec pieces[RDMUX_SGE_MAX];
    size_t count = rdmux_pieces(request, 0, request->length, pieces);
    return rdmux_shm_pieces_are_mapped(pieces, count);
}

static enum outcome take_pull(struct shm_ep *ep, const struct shm_message *message)
{
    if (ep->incoming.request == NULL || !ep->incoming.is_pulling) {
        enum outcome outcome = start_pull(ep, message);
        if (outcome != NEXT) {
            return outcome;
        }
    }
    /* A sender that has closed or ended owns its buffer again: the message counts as not
     * received. */
    if (rdmux_shm_peer_is_gone(ep) || !shm_access_begin(ep, NULL, 0)) {
        return STUCK;
    }
    int error = pull_some(ep);
    shm_access_end(ep);
    if (error != 0) {
        ep->peer.alive_at_ns = 0;
        /* A process that ends loses its memory before its socket or pidfd reports the end. */
        if (rdmux_shm_peer_is_gone(ep) || error == ESRCH) {
            return STUCK;
        }
        if (error == EFAULT && !is_request_mapped(ep->incoming.request)) {
            rdmux_shm_break_bad_buffer(ep);
            return BROKEN;
        }
        return break_off(ep, RDMUX_IO,
                         "shm: process_vm_readv failed: the sender's memory is not "
                         "there, or it has forbidden the access since");
    }
    if (ep->incoming.received < ep->incoming.length) {
        return LATER;
    }
    ep->incoming.is_pulling = false;
    deliver_incoming(ep);
    return NEXT;
}

static enum outcome take_placed(struct shm_ep *ep, const struct shm_message *message)
{
    uint64_t length = message_length(message);
    struct rdmux_request *request = take_receive(ep);
    if (request == NULL) {
        return STUCK;
    }
    if (request->provider[0] != ep->receives_taken || ep->incoming.request != NULL) {
        return break_off(ep, RDMUX_PROTOCOL, "shm: the peer wrote to a receive it was not shown");
    }
    if (length > request->length) {
        return too_long(ep, request, length, message);
    }
    deliver_message(ep, request, RDMUX_WC_RECV, length, wc_flags(message->flags), message->imm);
    return NEXT;
}

static enum outcome take_notice(struct shm_ep *ep, const struct shm_message *message)
{
    const struct shm_domain *domain = shm_domain_of(ep->base.cq->domain);
    uint64_t length = message_length(message);
    if (ep->incoming.request != NULL) {
        return break_off(ep, RDMUX_PROTOCOL, "shm: the peer sent a notice within a message");
    }
    if (length > atomic_load_explicit(&domain->longest, memory_order_relaxed)) {
        return break_off(ep, RDMUX_PROTOCOL,
                         "shm: the peer tells of a write that is longer than any region here");
    }
    struct rdmux_request *request = take_receive(ep);
    if (request == NULL) {
        return STUCK;
    }
    deliver_message(ep, request, RDMUX_WC_RECV_WRITE_IMM, length, RDMUX_WC_HAS_IMM, message->imm);
    return NEXT;
}

static enum outcome refuse_access(struct shm_ep *ep, enum rdmux_status status)
{
    return break_off(ep, status,
                     status == RDMUX_DENIED
                         ? "shm: the peer named a region that it has no right to"
                         : "shm: the peer asked for bytes that its region does not have");
}

/* Writes or reads a region for the peer. */
static enum outcome carry_out_access(struct shm_ep *ep, const struct shm_message *message)
{
    struct shm_access_body body;
    memcpy(&body, message->body, sizeof(body));
    bool is_write = message->kind == SHM_WRITE;
    void *addr = NULL;
    enum rdmux_status status = rdmux_target_enter(
        &ep->base, body.key, body.offset, message->chunk,
        is_write ? RDMUX_ACCESS_REMOTE_WRITE : RDMUX_ACCESS_REMOTE_READ, &addr);
    if (status != RDMUX_OK) {
        return refuse_access(ep, status);
    }
    if (is_write) {
        memcpy(addr, message->data, message->chunk);
    } else {
        memcpy(message->data, addr, message->chunk);
    }
    rdmux_target_leave(&ep->base);
    return NEXT;
}

static enum outcome carry_out_atomic(struct shm_ep *ep, const struct shm_message *message)
{
    struct shm_access_body body;
    memcpy(&body, message->body, sizeof(body));
    uint64_t old = 0;
    if (message->chunk != sizeof(old)) {
        return break_off(ep, RDMUX_PROTOCOL, "shm: the peer sent a malformed atomic");
    }
    uint32_t op = message->kind == SHM_FETCH_ADD ? RDMUX_OP_FETCH_ADD : RDMUX_OP_COMPARE_SWAP;
    enum rdmux_status status = rdmux_target_atomic(&ep->base, body.key, op, body.offset,
                                                   body.operand, body.expected, &old);
    if (status != RDMUX_OK) {
        return refuse_access(ep, status);
    }
    memcpy(message->data, &old, sizeof(old));
    ep->counts.executed++;
    return NEXT;
}

static inline enum outcome carry_out_message(struct shm_ep *ep, const struct shm_message *message)
{
    switch (message->kind) {
    case SHM_SEND:
        return take_send(ep, message);
    case SHM_SEND_CHUNK:
        return take_chunk(ep, message);
    case SHM_SEND_PULL:
        return take_pull(ep, message);
    case SHM_SEND_PLACED:
        return take_placed(ep, message);
    case SHM_NOTICE:
        return take_notice(ep, message);
    case SHM_WRITE:
    case SHM_READ:
        return carry_out_access(ep, message);
    case SHM_FETCH_ADD:
    case SHM_COMPARE_SWAP:
        return carry_out_atomic(ep, message);
    case SHM_FLUSH:
        return NEXT;
    default:
        return break_off(ep, RDMUX_PROTOCOL, "shm: the peer sent a slot of unknown kind");
    }
}

/* The first slot that was not taken. */
struct next {
    bool is_there;
    bool is_read; /* status and header are those of the slot, which must not be read again */
    enum rdmux_status status;
    struct shm_header header;
};

/* Takes messages of one slot each, as long as they meet receives of one piece that have room for
 * them. The first slot is there. Takes at most `budget` messages, and returns their number. */
SHM_HOT size_t take_short_sends(struct shm_ep *ep, size_t budget, struct next *next)
{
    struct rdmux_request *first = NULL;
    size_t there = ep->incoming.request == NULL ? rdmux_provider_next_receives(&ep->base, &first)
                                                : 0;
    size_t most = budget < there ? budget : there;
    struct shm_consumer in = ep->in; /* a copy, so that the copied bytes cannot change it */
    size_t count = 0;
    next->is_there = true;
    next->is_read = false;
    for (struct rdmux_request *request = first; count < most; request++) {
        struct shm_header header;
        enum rdmux_status status = shm_consumer_header(&in, &header);
        if (SHM_UNLIKELY(status != RDMUX_OK || header.kind != SHM_SEND || header.chunk != 0 ||
                         request->sge_count != 1 || header.inline_length > request->length)) {
            next->is_read = true;
            next->status = status;
            next->header = header;
            break;
        }
        shm_copy_small(request->sges[0].addr, shm_consumer_body(&in), header.inline_length);
        rdmux_provider_fill_receive(request, RDMUX_WC_RECV, header.inline_length,
                                    wc_flags(header.flags), header.imm);
        in.tail++; /* the slot has no bytes in the data ring */
        count++;
        if (!shm_consumer_has_message(&in)) {
            next->is_there = false;
            break;
        }
    }
    if (SHM_LIKELY(count != 0)) {
        ep->in.tail = in.tail;
        ep->counts.received += count;
        ep->receives_taken += count;
        rdmux_provider_filled_receives(&ep->base, (uint32_t)count);
    }
    return count;
}

/* Executes slots of any kind until `budget` slots are done, of which `done` already are. Returns
 * how many are done. */
static SHM_COLD size_t take_others(struct shm_ep *ep, size_t done, size_t budget, struct next *next)
{
    while (done < budget && (next->is_read || shm_consumer_has_message(&ep->in))) {
        if (!next->is_read) {
            next->status = shm_consumer_header(&ep->in, &next->header);
        }
        next->is_read = false;
        if (next->status != RDMUX_OK) {
            (void)break_off(ep, RDMUX_PROTOCOL, "shm: the peer sent a malformed slot");
            return done + 1;
        }
        const struct shm_message message = shm_consumer_message(&ep->in, &next->header);
        enum outcome outcome = carry_out_message(ep, &message);
        if (outcome == STUCK) {
            ep->is_stalled = true;
            break;
        }
        done++;
        if (outcome != NEXT) {
            break;
        }
        shm_consumer_next(&ep->in, &message);
        if (message.chunk >= EARLY_CHUNK && shm_consumer_publish(&ep->in)) {
            shm_ring_bell(ep, SHM_WAKE_PROGRESS);
        }
    }
    return done;
}

/* Takes slots, of which at least one is there. */
SHM_HOT size_t take_slots(struct shm_ep *ep, size_t budget)
{
    struct next next;
    size_t done = take_short_sends(ep, budget, &next);
    if (SHM_UNLIKELY(next.is_there)) {
        done = take_others(ep, done, budget, &next);
    }
    if (ep->state == SHM_EP_CONNECTED && shm_consumer_publish(&ep->in)) {
        shm_ring_bell(ep, SHM_WAKE_PROGRESS);
    }
    return done;
}

/* ------------------------------------------------------------------------------- the end */

/* Returns the peer's reason for its failure; RDMUX_PROTOCOL if it is no status that a peer may
 * give. */
static enum rdmux_status reason_of(uint32_t status)
{
    switch (status) {
    case RDMUX_DENIED:
    case RDMUX_OUT_OF_RANGE:
    case RDMUX_INVALID:
    case RDMUX_LENGTH:
    case RDMUX_IO:
        return (enum rdmux_status)status;
    default:
        return RDMUX_PROTOCOL;
    }
}

/* Reports that the peer has ended or refused something, after all messages that it sent before. */
static SHM_COLD size_t notice_end(struct shm_ep *ep)
{
    /* Pairs with the release store in rdmux_shm_tell_end(). */
    uint32_t state = atomic_load_explicit(&ep->theirs->state, memory_order_acquire);
    if (!ep->is_stalled && shm_consumer_has_message(&ep->in)) {
        return 0;
    }
    /* The peer has closed, and messages of it are still here. The control channel reports its end
     * at once. */
    if (state == SHM_CLOSED && ep->is_stalled && ep->incoming.request == NULL) {
        ep->is_end_waiting = true;
        return 0;
    }
    (void)rdmux_shm_advance(ep);
    if (ep->state != SHM_EP_CONNECTED) {
        return 1;
    }
    rdmux_shm_write_state(ep, SHM_EP_BROKEN);
    ep->job.request = NULL;
    if (state == SHM_OPEN && ep->is_lost) {
        rdmux_provider_failed(&ep->base, RDMUX_IO,
                              "shm: the peer has changed its queue, and its descriptors for the "
                              "new one did not arrive; raise the limit on open files");
        return 1;
    }
    if (state != SHM_FAILED) {
        rdmux_provider_failed(&ep->base, RDMUX_PEER_GONE,
                              state == SHM_CLOSED ? "shm: the peer closed its endpoint"
                                                  : "shm: the peer's process has ended");
        return 1;
    }
    enum rdmux_status status = reason_of(
        atomic_load_explicit(&ep->theirs->status, memory_order_relaxed));
    const char *text = "shm: the peer refused a request";
    uint64_t position = atomic_load_explicit(&ep->theirs->failed_at, memory_order_relaxed);
    if (position - ep->out.retired < ep->out.head - ep->out.retired) {
        struct shm_entry *entry = &ep->entries[position % SHM_SLOT_COUNT];
        if (entry->request != NULL) {
            if (status == RDMUX_IO && !is_request_mapped(entry->request)) {
                status = RDMUX_INVALID;
                text = rdmux_shm_bad_buffer;
            }
            rdmux_provider_done(&ep->base, entry->request, status);
            entry->request = NULL;
        }
    }
    rdmux_provider_failed(&ep->base, status, text);
    return 1;
}

/* --------------------------------------------------------------------------------- sleep */

static bool waits_for_progress(const struct shm_ep *ep)
{
    return ep->pending > 0 || ep->wants_resume || ep->job.request != NULL;
}

/* Returns whether the peer has ended, and the end may be reported. */
static inline bool has_ended(const struct shm_ep *ep)
{
    return (atomic_load_explicit(&ep->theirs->state, memory_order_relaxed) != SHM_OPEN ||
            ep->is_gone) &&
           !ep->is_end_waiting;
}

/* Returns whether poll would do something now. */
static bool has_work(const struct shm_ep *ep)
{
    if (ep->state != SHM_EP_CONNECTED) {
        return false;
    }
    bool copying = ep->job.request != NULL && !ep->is_end_waiting && !ep->job.is_refused &&
                   (ep->job.kind == SHM_JOB_PUT || ep->job.kind == SHM_JOB_GET ||
                    ep->job.kind == SHM_JOB_SEND_PUT) &&
                   ep->job.offset < ep->job.request->length;
    uint64_t consumed = atomic_load_explicit(ep->out.consumed, memory_order_acquire);
    return copying || ep->is_bell_held || ep->is_untold || has_ended(ep) ||
           (!ep->is_stalled && shm_consumer_has_message(&ep->in)) ||
           (waits_for_progress(ep) && consumed != ep->out.retired);
}

/* Sets the sleeping words of awake endpoints: of all, or of those that may become idle. Returns
 * whether one of them needs membarrier(2). */
static bool set_sleeping(struct shm_cq *cq, bool all)
{
    bool membarrier = false;
    for (struct shm_ep *ep = cq->awake; ep != NULL; ep = ep->awake_next) {
        if (all || may_idle(ep)) {
            if (SHM_UNLIKELY(ep->is_untold)) {
                rdmux_shm_queue_tell(ep);
            }
            uint32_t wake = SHM_WAKE_MESSAGE |
                            (waits_for_progress(ep) ? (uint32_t)SHM_WAKE_PROGRESS : 0);
            /* Release: who sees the word sees `moves`. */
            atomic_store_explicit(&ep->mine->sleeping, wake, memory_order_release);
            membarrier = membarrier || !ep->is_fencing;
        }
    }
    return membarrier;
}

/* Lets those endpoints sleep, after their words are set and the barriers have run. Endpoints with
 * work stay awake: the next arm has to check them again, whatever was polled between. */
static void fall_asleep(struct shm_cq *cq, bool all)
{
    struct shm_ep **link = &cq->awake;
    while (*link != NULL) {
        struct shm_ep *ep = *link;
        if (!all && !may_idle(ep)) {
            link = &ep->awake_next;
        } else if (has_work(ep)) {
            atomic_store_explicit(&ep->mine->sleeping, 0, memory_order_relaxed);
            link = &ep->awake_next;
        } else {
            ep->is_asleep = true;
            *link = ep->awake_next;
            if (may_idle(ep)) {
                shm_cq_stop_heeding(cq, ep);
            }
        }
    }
}

/* Lets watched endpoints become idle. One membarrier(2) is for many of them. */
static SHM_COLD void let_idle(struct shm_cq *cq)
{
    bool membarrier = set_sleeping(cq, false);
    rdmux_shm_fence();
    if (membarrier) {
        rdmux_shm_membarrier(); /* pairs with shm_ring_bell() */
    }
    fall_asleep(cq, false);
    /* Those with work stay, so that the next call comes when there are as many others. */
    cq->risen_max = 2 * cq->risen > RISEN_MAX ? 2 * cq->risen : RISEN_MAX;
}

/* ---------------------------------------------------------------------------------- poll */

/* Returns whether progress_endpoint() would find nothing to do. */
SHM_HOT bool is_quiet(const struct shm_ep *ep)
{
    return ep->state != SHM_EP_CONNECTED ||
           (!shm_consumer_has_message(&ep->in) && ep->pending == 0 && !ep->wants_resume &&
            ep->job.request == NULL && !ep->is_bell_held && !has_ended(ep));
}

/* Serves a connected endpoint. */
static SHM_COLD size_t progress_endpoint(struct shm_ep *ep, size_t budget)
{
    size_t done = 0;
    if (shm_consumer_has_message(&ep->in) && !ep->is_stalled) {
        done += take_slots(ep, budget);
    }
    if (ep->pending > 0 || ep->wants_resume || ep->job.request != NULL || ep->is_bell_held) {
        done += rdmux_shm_advance(ep);
    }
    if (has_ended(ep)) {
        done += ep->state == SHM_EP_CONNECTED ? notice_end(ep) : 1;
    }
    if (done > 0) {
        shm_wake_up(ep);
    }
    return done;
}

/* The neighbour need not ring until the next arm. */
static void wake_neighbour(struct shm_cq *cq, struct shm_neighbour *neighbour)
{
    if (!neighbour->is_awake) {
        neighbour->is_awake = true;
        atomic_store_explicit(&neighbour->ready->sleeping, 0, memory_order_relaxed);
        neighbour->awake_next = cq->awake_neighbours;
        cq->awake_neighbours = neighbour;
    }
}

/* Handles the end of a process: its endpoints end, too. */
static SHM_COLD void end_neighbour(struct shm_cq *cq, struct shm_neighbour *neighbour)
{
    neighbour->is_gone = true;
    rdmux_shm_cq_unwatch(cq, neighbour->pidfd);
    for (uint32_t i = 0; i < cq->count; i++) { /* waking moves an endpoint to a lower place only */
        struct shm_ep *ep = cq->eps[i];
        if (ep->neighbour == neighbour && ep->state == SHM_EP_CONNECTED) {
            ep->is_gone = true;
            shm_wake_up(ep);
        }
    }
}

static SHM_COLD void end_socket(struct shm_cq *cq, struct shm_ep *ep)
{
    ep->is_gone = true;
    rdmux_shm_cq_unwatch(cq, ep->peer.socket);
}

/* Handles the cq's doorbell. A neighbour that rang has cleared its sleeping word, and its mark may
 * have been served before it rang: the next arm has to set the word again. */
static SHM_COLD void hear_bell(struct shm_cq *cq)
{
    for (uint32_t i = 0; i < cq->neighbour_count; i++) {
        struct shm_neighbour *neighbour = cq->neighbours[i];
        if (neighbour->ready != NULL &&
            atomic_load_explicit(&neighbour->ready->sleeping, memory_order_relaxed) == 0) {
            wake_neighbour(cq, neighbour);
        }
    }
}

/* Handles events of the descriptors: doorbells, ends of peers, steps of ep_connect. */
static SHM_COLD size_t check_descriptors(struct shm_cq *cq)
{
    size_t done = 0;
    struct epoll_event events[EVENT_COUNT];
    int count = epoll_wait(cq->epoll, events, EVENT_COUNT, 0);
    cq->armed = count == EVENT_COUNT ? SHM_KICKED : SHM_UNARMED; /* more events may be there */
    for (int i = 0; i < count; i++) {
        uint64_t what = events[i].data.u64 & SHM_WATCH_MASK;
        void *object = (void *)(uintptr_t)(events[i].data.u64 - what);
        if (what == SHM_WATCH_PID) {
            end_neighbour(cq, object);
            continue;
        }
        struct shm_ep *ep = object;
        if (ep == NULL) {
            hear_bell(cq);
            continue;
        }
        if (ep->state == SHM_EP_CONNECTING) {
            ep->setup.has_event = true;
            done++; /* the core calls ep_connect */
            continue;
        }
        if (what == SHM_WATCH_SOCKET) {
            end_socket(cq, ep);
        }
        if (ep->state == SHM_EP_CONNECTED) {
            shm_wake_up(ep);
        }
        make_hot(cq, ep);
    }
    if (cq->count > 0) {
        struct shm_ep *ep = cq->eps[cq->polls % cq->count];
        if (ep->state == SHM_EP_CONNECTED) {
            rdmux_shm_mapping_sweep(ep);
        }
    }
    return done;
}

/* Serves an endpoint that its peer has marked. */
static size_t serve_marked(struct shm_cq *cq, struct shm_ep *ep, size_t budget)
{
    if (ep->state != SHM_EP_CONNECTED) {
        return 0;
    }
    shm_wake_up(ep);
    size_t done = is_quiet(ep) ? 0 : progress_endpoint(ep, budget);
    if (done > 0) {
        make_hot(cq, ep);
    }
    return done;
}

/* Serves endpoints that a neighbour has marked, word by word. Those of a word are served whatever
 * the budget, with at least one request each, as their marks are gone. */
static SHM_COLD size_t serve_neighbour(struct shm_cq *cq, struct shm_neighbour *neighbour,
                                       size_t budget, uint32_t *visits)
{
    size_t done = 0;
    wake_neighbour(cq, neighbour);
    while (shm_has_marks(neighbour) && *visits > 0 && done < budget) {
        uint32_t first = 0;
        uint64_t marks = rdmux_shm_marks_take(neighbour, &first);
        for (; marks != 0; marks &= marks - 1) {
            uint32_t mark = first + (uint32_t)__builtin_ctzll(marks);
            struct shm_ep *ep = mark < neighbour->marked_room ? neighbour->marked[mark] : NULL;
            for (; ep != NULL; ep = ep->mark_next) {
                done += serve_marked(cq, ep, done < budget ? budget - done : 1);
            }
            *visits -= *visits > 0 ? 1U : 0U;
        }
    }
    return done;
}

/* Looks for marks. */
static size_t poll_neighbours(struct shm_cq *cq, size_t budget)
{
    size_t done = 0;
    uint32_t visits = MARK_VISITS;
    uint32_t count = cq->neighbour_count < NEIGHBOUR_COUNT ? cq->neighbour_count : NEIGHBOUR_COUNT;
    uint32_t next = cq->neighbour_next;
    for (uint32_t i = 0; i < count; i++) {
        next = next + 1 < cq->neighbour_count ? next + 1 : 0;
        struct shm_neighbour *neighbour = cq->neighbours[next];
        if (SHM_UNLIKELY(shm_has_marks(neighbour))) {
            done += serve_neighbour(cq, neighbour, budget - done, &visits);
            if (done >= budget || visits == 0) {
                break;
            }
        }
    }
    cq->neighbour_next = next;
    return done;
}

/* Returns the rest of a poll's budget, at least a share of it. */
static inline size_t rest_of(size_t budget, size_t done)
{
    size_t share = budget / TURN_SHARE + 1;
    return done + share < budget ? budget - done : share;
}

/* Serves the watched and the marked endpoints. done: the amount done before. */
static SHM_COLD size_t poll_all(struct shm_cq *cq, size_t done, size_t budget)
{
    uint32_t hot = cq->watched < HOT_COUNT ? cq->watched : HOT_COUNT;
    if (cq->first >= hot) {
        cq->first = 0; /* endpoints were closed since */
    }
    for (uint32_t i = 0; i < hot && done < budget; i++) {
        uint32_t index = cq->first + i < hot ? cq->first + i : cq->first + i - hot;
        struct shm_ep *ep = cq->eps[index];
        done += is_quiet(ep) ? 0 : progress_endpoint(ep, budget - done);
    }
    if (done > 0) { /* another endpoint is first next time, so that none starves the others */
        cq->first = cq->first + 1 < hot ? cq->first + 1 : 0;
    }
    done += poll_neighbours(cq, rest_of(budget, done));
    size_t end = budget;
    if (done >= budget && cq->polls % TURN_PERIOD == 0) { /* busy endpoints use up every budget */
        end = done + budget / TURN_SHARE + 1;
    }
    for (uint32_t i = 0; i < TURN_COUNT && hot + i < cq->watched && done < end; i++) {
        uint32_t others = cq->watched - hot; /* fewer, if one has become idle */
        cq->turn_next = cq->turn_next + 1 < others ? cq->turn_next + 1 : 0;
        struct shm_ep *ep = cq->eps[hot + cq->turn_next];
        size_t here = is_quiet(ep) ? 0 : progress_endpoint(ep, end - done);
        if (here > 0) {
            make_hot(cq, ep);
        }
        done += here;
    }
    if (cq->risen > cq->risen_max || (cq->risen > RISEN_MAX && cq->polls % RISEN_PERIOD == 0)) {
        let_idle(cq);
    }
    return done;
}

size_t rdmux_shm_poll(struct rdmux_provider_cq *base, size_t budget)
{
    struct shm_cq *cq = shm_cq_of(base);
    cq->polls++;
    if (SHM_UNLIKELY(cq->armed != SHM_UNARMED || cq->connecting > 0 ||
                     cq->polls % CHECK_PERIOD == 0)) {
        return poll_all(cq, check_descriptors(cq), budget);
    }
    if (SHM_UNLIKELY(cq->count != 1)) {
        return poll_all(cq, 0, budget);
    }
    struct shm_ep *ep = cq->eps[0];
    return is_quiet(ep) ? 0 : progress_endpoint(ep, budget);
}

/* ----------------------------------------------------------------------------------- arm */

/* Neighbours whose marks have come since stay awake, like endpoints with work. */
static void let_neighbours_sleep(struct shm_cq *cq)
{
    struct shm_neighbour **link = &cq->awake_neighbours;
    while (*link != NULL) {
        struct shm_neighbour *neighbour = *link;
        if (shm_has_marks(neighbour)) {
            atomic_store_explicit(&neighbour->ready->sleeping, 0, memory_order_relaxed);
            link = &neighbour->awake_next;
        } else {
            neighbour->is_awake = false;
            *link = neighbour->awake_next;
        }
    }
}

enum rdmux_status rdmux_shm_arm(struct rdmux_provider_cq *base)
{
    struct shm_cq *cq = shm_cq_of(base);
    cq->armed = SHM_ARMED;
    for (struct shm_neighbour *at = cq->awake_neighbours; at != NULL; at = at->awake_next) {
        atomic_store_explicit(&at->ready->sleeping, 1, memory_order_relaxed);
    }
    bool membarrier = set_sleeping(cq, true);
    if (cq->awake != NULL || cq->awake_neighbours != NULL) {
        rdmux_shm_fence();
    }
    if (membarrier) {
        rdmux_shm_membarrier(); /* pairs with shm_ring_bell() */
    }
    let_neighbours_sleep(cq);
    fall_asleep(cq, true);
    return cq->awake != NULL || cq->awake_neighbours != NULL ? RDMUX_AGAIN : RDMUX_OK;
}
