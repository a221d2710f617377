/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The initiator: turns requests into slots of the ring, or executes them itself.
 *
 *   send    up to SHM_BODY_SIZE bytes in the slot; from PUT_MIN bytes directly into a published
 *           receive, if there is one; else up to SHM_CHUNK_MAX in one chunk of the data ring; else
 *           pulled by the receiver, or as several chunks
 *   write, read, atomics   on mapped memory by this CPU; else write and read with process_vm_*;
 *           else all by the target's CPU, through the ring
 *
 * A request that the peer executes is done when the peer's consumed count is past its slot. */
#include "shm_copy.h"
#include "shm_internal.h"
#include "shm_watch.h"

#include "api/base/pieces.h"
#include "api/base/range.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
    PUT_MIN = 2048,     /* shorter messages are faster through the ring */
    SEND_MESSAGES = 16, /* most region messages that a send reads */
};

/* ------------------------------------------------------------------------------------ slots */

static void finish_entry(struct shm_ep *ep, struct shm_entry *entry)
{
    struct rdmux_request *request = entry->request;
    if (request == NULL) {
        return;
    }
    entry->request = NULL;
    ep->pending--;
    if (entry->chunk > 0) {
        rdmux_scatter(request->sges, request->sge_count, request->provider[0],
                      shm_producer_result(&ep->out, entry->chunk), entry->chunk);
        request->provider[0] += entry->chunk;
        if (request->provider[0] < request->length) {
            return;
        }
    }
    rdmux_provider_done(&ep->base, request, RDMUX_OK);
}

/* Retires the slots that the peer has executed. Returns their number. */
static size_t retire_jobs(struct shm_ep *ep)
{
    uint64_t consumed;
    if (rdmux_shm_producer_consumed(&ep->out, &consumed) != RDMUX_OK) {
        rdmux_shm_break(ep, RDMUX_PROTOCOL, ep->in.tail,
                        "shm: the peer carried out more than it was asked");
        return 0;
    }
    size_t count = (size_t)(consumed - ep->out.retired);
    while (ep->pending > 0 && ep->out.retired != consumed) {
        finish_entry(ep, &ep->entries[ep->out.retired % SHM_SLOT_COUNT]);
        shm_producer_retire(&ep->out);
    }
    if (ep->out.retired != consumed) { /* no request waits for the others */
        shm_producer_retire_all(&ep->out, consumed);
    }
    return count;
}

/* Returns whether the peer has executed every slot that was published. */
static bool all_retired(struct shm_ep *ep)
{
    (void)retire_jobs(ep);
    return ep->out.retired == ep->out.head;
}

static inline bool has_room(struct shm_ep *ep, uint32_t chunk)
{
    if (shm_producer_has_room(&ep->out, chunk)) {
        return true;
    }
    (void)retire_jobs(ep);
    return shm_producer_has_room(&ep->out, chunk);
}

/* Reserves a slot. The caller has checked that there is room. */
static inline struct shm_slot *reserve_slot(struct shm_ep *ep, uint8_t kind, uint32_t chunk,
                                            uint8_t **data)
{
    struct shm_slot *slot = shm_producer_reserve(&ep->out, chunk, data);
    slot->kind = kind;
    slot->flags = 0;
    slot->inline_length = 0;
    slot->imm = 0;
    return slot;
}

/* Publishes the reserved slot. waiter: the request that is done when the peer has executed the
 * slot, or NULL. */
static inline void publish_message(struct shm_ep *ep, struct rdmux_request *waiter)
{
    struct shm_entry *entry = &ep->entries[ep->out.head % SHM_SLOT_COUNT];
    entry->request = waiter;
    if (waiter != NULL) {
        entry->chunk = 0;
        ep->pending++;
    }
    (void)shm_producer_publish(&ep->out);
    ep->is_bell_held = true;
}

/* The same for a slot whose chunk comes back filled with the request's next bytes. */
static void publish_question(struct shm_ep *ep, struct rdmux_request *request, uint32_t chunk)
{
    struct shm_entry *entry = &ep->entries[ep->out.head % SHM_SLOT_COUNT];
    entry->request = request;
    entry->chunk = chunk;
    ep->pending++;
    (void)shm_producer_publish(&ep->out);
    ep->is_bell_held = true;
}

static inline void release_bell(struct shm_ep *ep)
{
    if (ep->is_bell_held) {
        ep->is_bell_held = false;
        shm_ring_bell(ep, SHM_WAKE_MESSAGE);
    }
}

static bool has_imm(const struct rdmux_request *request)
{
    return request->op == RDMUX_OP_SEND_IMM || request->op == RDMUX_OP_WRITE_IMM;
}

static void put_imm(struct shm_slot *slot, const struct rdmux_request *request)
{
    if (has_imm(request)) {
        slot->flags = SHM_HAS_IMM;
        slot->imm = request->imm;
    }
}

/* Publishes the last slot of a request. The request is done at once or, with RDMUX_PLACED, when the
 * peer has executed the slot. */
static void publish_last(struct shm_ep *ep, struct rdmux_request *request)
{
    bool placed = (request->flags & RDMUX_PLACED) != 0;
    publish_message(ep, placed ? request : NULL);
    if (!placed) {
        rdmux_provider_done(&ep->base, request, RDMUX_OK);
    }
}

/* Publishes a slot that ends a message and has the message's length. False: no room now. */
static bool tell_message(struct shm_ep *ep, uint8_t kind, struct rdmux_request *request)
{
    uint8_t *data;
    if (!has_room(ep, 0)) {
        return false;
    }
    struct shm_slot *slot = reserve_slot(ep, kind, 0, &data);
    const struct shm_message_body body = { .length = request->length };
    memcpy(slot->body, &body, sizeof(body));
    put_imm(slot, request);
    ep->messages++;
    publish_last(ep, request);
    return true;
}

/* ---------------------------------------------------------------- touching the peer's memory */

/* Returns whether the piece is mapped. Asks the kernel for a byte of each page. */
static bool is_mapped(const struct iovec *piece)
{
    enum { PAGES_AT_ONCE = 64 };
    uint8_t *at = piece->iov_base;
    size_t length = piece->iov_len;
    while (length > 0) {
        uint8_t bytes[PAGES_AT_ONCE];
        struct iovec pages[PAGES_AT_ONCE];
        struct iovec ours = { .iov_base = bytes };
        while (ours.iov_len < PAGES_AT_ONCE && length > 0) {
            size_t here = SHM_PAGE - (uintptr_t)at % SHM_PAGE;
            here = here < length ? here : length;
            pages[ours.iov_len++] = (struct iovec){ .iov_base = at, .iov_len = 1 };
            at += here;
            length -= here;
        }
        ssize_t got = process_vm_readv(getpid(), &ours, 1, pages, ours.iov_len, 0);
        if (got < 0 ? errno == EFAULT : got != (ssize_t)ours.iov_len) {
            return false;
        }
    }
    return true;
}

bool rdmux_shm_pieces_are_mapped(const struct iovec *pieces, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (!is_mapped(&pieces[i])) {
            return false;
        }
    }
    return true;
}

static enum rdmux_status copy_by_kernel(struct shm_ep *ep, const struct shm_job *job,
                                        uint64_t length)
{
    if (rdmux_shm_peer_is_gone(ep)) {
        return RDMUX_PEER_GONE;
    }
    uint64_t done = 0;
    while (done < length) {
        struct iovec ours[RDMUX_SGE_MAX];
        uint64_t offset = job->offset + done;
        size_t count = rdmux_pieces(job->request, offset, length - done, ours);
        struct iovec theirs = {
            .iov_base = (void *)(uintptr_t)(job->address + offset),
            .iov_len = (size_t)(length - done),
        };
        ep->base.system_calls++;
        ssize_t copied = job->kind == SHM_JOB_GET
                             ? process_vm_readv(ep->peer.pid, ours, count, &theirs, 1, 0)
                             : process_vm_writev(ep->peer.pid, ours, count, &theirs, 1, 0);
        if (copied < 0 && errno == EFAULT && !rdmux_shm_pieces_are_mapped(ours, count)) {
            return RDMUX_INVALID;
        }
        if (copied <= 0) {
            /* A process that ends loses its memory before its socket or pidfd reports the end. */
            return copied < 0 && errno == ESRCH ? RDMUX_PEER_GONE : RDMUX_IO;
        }
        done += (uint64_t)copied;
    }
    return RDMUX_OK;
}

static enum rdmux_status copy_pieces(struct shm_ep *ep, const struct shm_job *job, uint64_t length)
{
    if (job->mapped == NULL) {
        return copy_by_kernel(ep, job, length);
    }
    uint8_t *at = job->mapped + job->offset;
    if (job->kind == SHM_JOB_GET) {
        rdmux_scatter(job->request->sges, job->request->sge_count, job->offset, at, length);
    } else {
        rdmux_gather(job->request->sges, job->request->sge_count, job->offset, at, length);
    }
    return RDMUX_OK;
}

/* A request that finds the peer gone or closed is not taken, and holds back the requests behind it.
 * A later request could still reach the peer through the ring, where it would appear without the
 * earlier one. poll reports the end, after all messages of the peer. */

/* Handles a refused access: the peer has closed, or has revoked the rights. True: the request is
 * done. A message before it that waits for a receive holds it back (SEMANTICS 1.4): the endpoint's
 * end would overtake the message. */
static SHM_COLD bool refuse_request(struct shm_ep *ep, struct rdmux_request *request)
{
    if (atomic_load_explicit(&ep->theirs->state, memory_order_acquire) != SHM_OPEN) {
        return false;
    }
    if (!all_retired(ep)) {
        return false;
    }
    rdmux_provider_done(&ep->base, request, RDMUX_DENIED);
    rdmux_shm_break(ep, RDMUX_DENIED, ep->in.tail,
                    "shm: the peer has revoked the region that a request names");
    return true;
}

/* Handles a failed copy. True: the request is done. */
static bool copy_failed(struct shm_ep *ep, struct rdmux_request *request, enum rdmux_status status)
{
    ep->peer.alive_at_ns = 0; /* check liveness again */
    if (status == RDMUX_PEER_GONE || rdmux_shm_peer_is_gone(ep)) {
        return false;
    }
    rdmux_provider_done(&ep->base, request, status);
    if (status == RDMUX_INVALID) {
        rdmux_shm_break_bad_buffer(ep);
    } else {
        rdmux_shm_break(ep, status, ep->in.tail,
                        "shm: process_vm_readv or writev failed: the peer's memory is not there");
    }
    return true;
}

/* ------------------------------------------------------------------------------------- jobs */

/* Each function continues a job as far as possible now. True: the job is finished. Its request is
 * done or waits for a slot, or the endpoint is broken. */

static bool run_stream(struct shm_ep *ep, struct shm_job *job)
{
    struct rdmux_request *request = job->request;
    for (;;) {
        uint64_t rest = request->length - job->offset;
        uint32_t chunk = rest < SHM_CHUNK_MAX ? (uint32_t)rest : SHM_CHUNK_MAX;
        if (!has_room(ep, chunk)) {
            return false;
        }
        uint8_t *data;
        bool first = job->offset == 0;
        struct shm_slot *slot = reserve_slot(ep, first ? SHM_SEND : SHM_SEND_CHUNK, chunk, &data);
        if (first) {
            const struct shm_message_body body = { .length = request->length };
            memcpy(slot->body, &body, sizeof(body));
            put_imm(slot, request);
            ep->messages++;
        }
        rdmux_gather(request->sges, request->sge_count, job->offset, data, chunk);
        job->offset += chunk;
        if (chunk == rest) {
            publish_last(ep, request);
            return true;
        }
        publish_message(ep, NULL);
        release_bell(ep);
    }
}

static struct shm_slot *reserve_access(struct shm_ep *ep, uint8_t kind,
                                       const struct rdmux_request *request, uint64_t offset,
                                       uint32_t chunk, uint8_t **data)
{
    struct shm_slot *slot = reserve_slot(ep, kind, chunk, data);
    struct shm_access_body body = {
        .offset = request->offset + offset,
        .operand = request->operand,
        .expected = request->expected,
    };
    memcpy(body.key, shm_remote_of(request->remote)->key, sizeof(body.key));
    memcpy(slot->body, &body, sizeof(body));
    return slot;
}

/* Ends a write whose bytes are in place or in earlier slots: publishes the notice or flush that the
 * write needs, or completes the request. False: no room now. */
static bool finish_write(struct shm_ep *ep, struct rdmux_request *request)
{
    if (request->op == RDMUX_OP_WRITE_IMM) {
        return tell_message(ep, SHM_NOTICE, request);
    }
    if ((request->flags & RDMUX_PLACED) != 0) {
        if (!all_retired(ep)) {
            uint8_t *data;
            if (!has_room(ep, 0)) {
                return false;
            }
            (void)reserve_slot(ep, SHM_FLUSH, 0, &data);
            publish_message(ep, request);
            return true;
        }
    }
    rdmux_provider_done(&ep->base, request, RDMUX_OK);
    return true;
}

static bool run_ring_write(struct shm_ep *ep, struct shm_job *job)
{
    struct rdmux_request *request = job->request;
    while (job->offset < request->length) {
        uint64_t rest = request->length - job->offset;
        uint32_t chunk = rest < SHM_CHUNK_MAX ? (uint32_t)rest : SHM_CHUNK_MAX;
        if (!has_room(ep, chunk)) {
            return false;
        }
        uint8_t *data;
        (void)reserve_access(ep, SHM_WRITE, request, job->offset, chunk, &data);
        rdmux_gather(request->sges, request->sge_count, job->offset, data, chunk);
        job->offset += chunk;
        ep->ring_writes_until = ep->out.head + 1;
        if (chunk == rest && request->op == RDMUX_OP_WRITE) {
            publish_last(ep, request);
            return true;
        }
        publish_message(ep, NULL);
    }
    return finish_write(ep, request);
}

static bool run_ring_read(struct shm_ep *ep, struct shm_job *job)
{
    struct rdmux_request *request = job->request;
    while (job->offset < request->length) {
        uint64_t rest = request->length - job->offset;
        uint32_t chunk = rest < SHM_CHUNK_MAX ? (uint32_t)rest : SHM_CHUNK_MAX;
        if (!has_room(ep, chunk)) {
            return false;
        }
        uint8_t *data;
        if (job->offset == 0) {
            request->provider[0] = 0;
        }
        (void)reserve_access(ep, SHM_READ, request, job->offset, chunk, &data);
        publish_question(ep, request, chunk);
        job->offset += chunk;
    }
    if (request->length == 0) {
        rdmux_provider_done(&ep->base, request, RDMUX_OK);
    }
    return true;
}

/* PUT, GET and SEND_PUT: copies one step. */
static bool run_copy(struct shm_ep *ep, struct shm_job *job)
{
    struct rdmux_request *request = job->request;
    uint64_t rest = request->length - job->offset;
    if (rest > 0) {
        uint64_t length = rest < SHM_STEP_MAX ? rest : SHM_STEP_MAX;
        if (!shm_access_begin(ep, job->word, job->value)) {
            job->is_refused = true;
            return refuse_request(ep, request);
        }
        enum rdmux_status status = copy_pieces(ep, job, length);
        shm_access_end(ep);
        if (status != RDMUX_OK) {
            return copy_failed(ep, request, status);
        }
        job->offset += length;
        if (length < rest) {
            return false;
        }
    }
    if (job->kind == SHM_JOB_SEND_PUT) {
        return tell_message(ep, SHM_SEND_PLACED, request);
    }
    if (job->kind == SHM_JOB_PUT) {
        return finish_write(ep, request);
    }
    rdmux_provider_done(&ep->base, request, RDMUX_OK);
    return true;
}

static bool run_jobs(struct shm_ep *ep, struct shm_job *job)
{
    switch (job->kind) {
    case SHM_JOB_STREAM:
        return run_stream(ep, job);
    case SHM_JOB_RING_WRITE:
        return run_ring_write(ep, job);
    case SHM_JOB_RING_READ:
        return run_ring_read(ep, job);
    case SHM_JOB_PUT:
    case SHM_JOB_GET:
    case SHM_JOB_SEND_PUT:
        return run_copy(ep, job);
    }
    return true;
}

/* Starts a job. False: nothing could be done, and the request is not taken. */
static bool begin_request(struct shm_ep *ep, struct shm_job *job)
{
    if (run_jobs(ep, job)) {
        return true;
    }
    if (job->offset == 0) {
        return false;
    }
    ep->job = *job;
    return true;
}

/* ------------------------------------------------------------------------------------ sends */

static bool send_inline(struct shm_ep *ep, struct rdmux_request *request)
{
    uint8_t *data;
    if (!has_room(ep, 0)) {
        return false;
    }
    struct shm_slot *slot = reserve_slot(ep, SHM_SEND, 0, &data);
    slot->inline_length = (uint16_t)request->length;
    put_imm(slot, request);
    rdmux_gather(request->sges, request->sge_count, 0, slot->body, request->length);
    ep->messages++;
    publish_last(ep, request);
    return true;
}

/* The same for the most frequent case: one piece, without RDMUX_PLACED. */
SHM_HOT void send_short(struct shm_ep *ep, struct rdmux_request *request)
{
    struct shm_producer *out = &ep->out;
    uint64_t at = out->head % SHM_SLOT_COUNT;
    struct shm_slot *slot = &out->slots[at];
    bool imm = has_imm(request);
    out->data_ends[at] = (uint32_t)out->data_head;
    ep->entries[at].request = NULL;
    slot->kind = SHM_SEND;
    slot->flags = imm ? SHM_HAS_IMM : 0;
    slot->inline_length = (uint16_t)request->length;
    slot->imm = imm ? request->imm : 0;
    slot->chunk = 0;
    shm_copy_small(slot->body, request->sges[0].addr, (size_t)request->length);
    (void)shm_producer_publish(out);
    if (ep->in.tail == ep->answered) {
        shm_producer_ask_ahead(out);
    } else { /* ping-pong: there is time, and lines move often enough */
        ep->answered = ep->in.tail;
    }
    ep->messages++;
    ep->is_bell_held = true;
    rdmux_provider_done(&ep->base, request, RDMUX_OK);
}

/* Sends a message that fits one chunk of the data ring. */
static bool send_chunk(struct shm_ep *ep, struct rdmux_request *request)
{
    uint32_t chunk = (uint32_t)request->length;
    uint8_t *data;
    if (!has_room(ep, chunk)) {
        return false;
    }
    struct shm_slot *slot = reserve_slot(ep, SHM_SEND, chunk, &data);
    const struct shm_message_body body = { .length = chunk };
    memcpy(slot->body, &body, sizeof(body));
    put_imm(slot, request);
    rdmux_gather(request->sges, request->sge_count, 0, data, chunk);
    ep->messages++;
    publish_last(ep, request);
    return true;
}

/* Finds the published receive that the next message will meet. */
static bool find_receive(struct shm_ep *ep, uint64_t length, struct shm_job *job)
{
    const volatile struct shm_receive
        *receive = &ep->their_receives[ep->messages % SHM_RECEIVE_COUNT];
    /* Pairs with the release store in publish_receive(). */
    if (atomic_load_explicit(&receive->number, memory_order_acquire) != ep->messages + 1) {
        return false;
    }
    uint64_t offset = receive->offset;
    uint64_t room = receive->length;
    uint64_t life = receive->life;
    uint32_t index = receive->index;
    if (length > room || index >= SHM_REGION_COUNT) {
        return false; /* the peer reports the error when it takes the message */
    }
    if (life == ep->regions.unmappable_life) {
        return false;
    }
    uint32_t budget = SEND_MESSAGES;
    struct shm_mapping *mapping = rdmux_shm_mapping_find(ep, index, life, true, &budget);
    if (mapping == NULL) {
        if (budget > 0) {
            /* The region is passed before its receive, so it will never come: do not read the
             * socket again for it. */
            ep->regions.unmappable_life = life;
        }
        return false;
    }
    if (!rdmux_is_within(offset, room, mapping->length)) {
        return false;
    }
    job->kind = SHM_JOB_SEND_PUT;
    job->mapped = mapping->base + offset;
    job->word = &ep->regions.table[index].life;
    job->value = life;
    return atomic_load_explicit(job->word, memory_order_relaxed) == life;
}

static bool send_pull(struct shm_ep *ep, struct rdmux_request *request)
{
    uint32_t count = request->sge_count;
    uint32_t chunk = count == 1 ? 0 : count * (uint32_t)sizeof(struct shm_piece);
    uint8_t *data;
    if (!has_room(ep, chunk)) {
        return false;
    }
    struct shm_slot *slot = reserve_slot(ep, SHM_SEND_PULL, chunk, &data);
    const struct shm_pull_body body = {
        .length = request->length,
        .piece_count = count,
        .address = (uint64_t)(uintptr_t)request->sges[0].addr,
    };
    memcpy(slot->body, &body, sizeof(body));
    for (uint32_t i = 0; i < count && chunk > 0; i++) {
        const struct shm_piece piece = {
            .address = (uint64_t)(uintptr_t)request->sges[i].addr,
            .length = request->sges[i].length,
        };
        memcpy(data + i * sizeof(piece), &piece, sizeof(piece));
    }
    put_imm(slot, request);
    ep->messages++;
    publish_message(ep, request);
    return true;
}

/* Returns whether a piece is in a dma-buf, from which the receiver cannot pull. */
static bool is_in_dmabuf(const struct rdmux_request *request)
{
    for (uint32_t i = 0; i < request->sge_count; i++) {
        const struct rdmux_provider_mr *mr = request->sges[i].mr;
        if (mr != NULL && ((const struct shm_mr *)mr)->is_dmabuf) {
            return true;
        }
    }
    return false;
}

static bool start_send(struct shm_ep *ep, struct rdmux_request *request)
{
    if (request->length <= SHM_BODY_SIZE) {
        return send_inline(ep, request);
    }
    struct shm_job job = { .request = request, .kind = SHM_JOB_STREAM };
    if (request->length >= PUT_MIN && find_receive(ep, request->length, &job)) {
        return begin_request(ep, &job);
    }
    if (request->length <= SHM_CHUNK_MAX) {
        return send_chunk(ep, request);
    }
    job.kind = SHM_JOB_STREAM;
    if (request->length > SHM_CHUNK_MAX && (request->flags & RDMUX_INLINE) == 0 &&
        atomic_load_explicit(&ep->theirs->can_copy, memory_order_relaxed) != 0 &&
        !is_in_dmabuf(request)) {
        return send_pull(ep, request);
    }
    return begin_request(ep, &job);
}

/* ---------------------------------------------------------------------------- one-sided */

/* Returns whether an access by this side would overtake a write or atomic that still waits in the
 * ring. */
static bool would_overtake(struct shm_ep *ep)
{
    if (ep->out.retired >= ep->ring_writes_until) {
        return false;
    }
    (void)retire_jobs(ep);
    return ep->out.retired < ep->ring_writes_until;
}

static bool start_one_sided(struct shm_ep *ep, struct rdmux_request *request, bool is_read)
{
    struct shm_remote *remote = shm_remote_of(request->remote);
    struct shm_job job = { .request = request };
    if (remote == NULL) { /* the flush */
        job.kind = SHM_JOB_PUT;
        return begin_request(ep, &job);
    }
    if (remote->mode == SHM_REMOTE_RING) {
        job.kind = is_read ? SHM_JOB_RING_READ : SHM_JOB_RING_WRITE;
        return begin_request(ep, &job);
    }
    if (would_overtake(ep)) {
        return false;
    }
    job.kind = is_read ? SHM_JOB_GET : SHM_JOB_PUT;
    job.mapped = remote->mode == SHM_REMOTE_MAPPED ? remote->mapped + request->offset : NULL;
    job.address = remote->address + request->offset;
    job.word = remote->word;
    job.value = remote->generation;
    return begin_request(ep, &job);
}

SHM_HOT bool atomic_on_mapped(struct shm_ep *ep, struct rdmux_request *request)
{
    struct shm_remote *remote = shm_remote_of(request->remote);
    if (SHM_UNLIKELY(!shm_access_begin(ep, remote->word, remote->generation))) {
        return refuse_request(ep, request);
    }
    _Atomic uint64_t *word = (_Atomic uint64_t *)(void *)(remote->mapped + request->offset);
    uint64_t old = request->expected;
    if (request->op == RDMUX_OP_FETCH_ADD) {
        old = atomic_fetch_add(word, request->operand);
    } else {
        (void)atomic_compare_exchange_strong(word, &old, request->operand);
    }
    shm_access_end(ep);
    memcpy(request->sges[0].addr, &old, sizeof(old)); /* an atomic's result is one piece */
    rdmux_provider_done(&ep->base, request, RDMUX_OK);
    return true;
}

static bool start_atomic(struct shm_ep *ep, struct rdmux_request *request)
{
    if (shm_remote_of(request->remote)->mode == SHM_REMOTE_MAPPED) {
        return !would_overtake(ep) && atomic_on_mapped(ep, request);
    }
    uint8_t *data;
    if (!has_room(ep, sizeof(uint64_t))) {
        return false;
    }
    uint8_t kind = request->op == RDMUX_OP_FETCH_ADD ? SHM_FETCH_ADD : SHM_COMPARE_SWAP;
    (void)reserve_access(ep, kind, request, 0, sizeof(uint64_t), &data);
    request->provider[0] = 0;
    ep->ring_writes_until = ep->out.head + 1;
    publish_question(ep, request, sizeof(uint64_t));
    return true;
}

/* ------------------------------------------------------------------------------------- post */

/* Starts a request of any kind. */
static SHM_COLD bool start_any(struct shm_ep *ep, struct rdmux_request *request)
{
    if (ep->job.request != NULL) {
        return false;
    }
    switch (request->op) {
    case RDMUX_OP_SEND:
    case RDMUX_OP_SEND_IMM:
        return start_send(ep, request);
    case RDMUX_OP_WRITE:
    case RDMUX_OP_WRITE_IMM:
        return start_one_sided(ep, request, false);
    case RDMUX_OP_READ:
        return start_one_sided(ep, request, true);
    case RDMUX_OP_FETCH_ADD:
    case RDMUX_OP_COMPARE_SWAP:
        return start_atomic(ep, request);
    default:
        rdmux_provider_done(&ep->base, request, RDMUX_UNSUPPORTED); /* newer than this provider */
        return true;
    }
}

/* Returns whether the request is one access to mapped memory that may be made now. */
SHM_HOT bool is_immediate(const struct shm_ep *ep, const struct rdmux_request *request)
{
    const struct shm_remote *remote = shm_remote_of(request->remote);
    return remote != NULL && remote->mode == SHM_REMOTE_MAPPED &&
           ep->out.retired >= ep->ring_writes_until;
}

SHM_HOT bool copy_mapped(struct shm_ep *ep, struct rdmux_request *request)
{
    const struct shm_remote *remote = shm_remote_of(request->remote);
    uint8_t *at = remote->mapped + request->offset;
    if (SHM_UNLIKELY(!shm_access_begin(ep, remote->word, remote->generation))) {
        return refuse_request(ep, request);
    }
    if (request->op == RDMUX_OP_READ) {
        rdmux_scatter(request->sges, request->sge_count, 0, at, request->length);
    } else {
        rdmux_gather(request->sges, request->sge_count, 0, at, request->length);
    }
    shm_access_end(ep);
    rdmux_provider_done(&ep->base, request, RDMUX_OK);
    return true;
}

/* Executes a request that takes one slot, for which there is room, or one access to mapped memory.
 * False: the request takes more, or has to wait. */
SHM_HOT bool start_now(struct shm_ep *ep, struct rdmux_request *request)
{
    uint32_t op = request->op;
    if (SHM_UNLIKELY(ep->job.request != NULL)) {
        return false;
    }
    if (op == RDMUX_OP_SEND || op == RDMUX_OP_SEND_IMM) {
        if (request->length <= SHM_BODY_SIZE && request->sge_count == 1 &&
            (request->flags & RDMUX_PLACED) == 0 && shm_producer_has_slot(&ep->out)) {
            send_short(ep, request);
            return true;
        }
    } else if (op == RDMUX_OP_WRITE || op == RDMUX_OP_READ) {
        if (is_immediate(ep, request) && request->length - 1 < SHM_STEP_MAX &&
            (request->flags & RDMUX_PLACED) == 0) {
            return copy_mapped(ep, request);
        }
    } else if ((op == RDMUX_OP_FETCH_ADD || op == RDMUX_OP_COMPARE_SWAP) &&
               is_immediate(ep, request)) {
        return atomic_on_mapped(ep, request);
    }
    return false;
}

/* Ends a post: rings the peer's doorbell, and wakes the cq's owner if there is something to report
 * or to wait for. */
SHM_HOT void tell_of_post(struct shm_ep *ep, uint32_t flags)
{
    if ((flags & RDMUX_POST_MORE) == 0) {
        release_bell(ep);
    }
    if (SHM_UNLIKELY(ep->pending > 0 || ep->wants_resume || ep->job.request != NULL)) {
        shm_wake_up(ep);
        shm_wake_owner(ep);
    } else if (ep->base.ready == 1) {
        shm_wake_owner(ep); /* the owner may sleep while another thread posts */
    }
}

static SHM_COLD enum rdmux_status post_later(struct shm_ep *ep, uint32_t flags)
{
    /* A broken endpoint has been reported; the core completes its requests. */
    ep->wants_resume = ep->wants_resume || ep->state == SHM_EP_CONNECTED;
    tell_of_post(ep, flags);
    return RDMUX_AGAIN;
}

static SHM_COLD enum rdmux_status post_many(struct shm_ep *ep, struct rdmux_request *requests,
                                            size_t count, uint32_t flags, size_t *posted)
{
    struct rdmux_request *request = requests;
    const struct rdmux_request *end = requests + count;
    while (request != end && ep->state == SHM_EP_CONNECTED &&
           (start_now(ep, request) || start_any(ep, request))) {
        request++;
    }
    *posted = (size_t)(request - requests);
    if (SHM_UNLIKELY(request != end)) {
        return post_later(ep, flags);
    }
    tell_of_post(ep, flags);
    return RDMUX_OK;
}

enum rdmux_status rdmux_shm_post(struct rdmux_provider_ep *base, struct rdmux_request *requests,
                                 size_t count, uint32_t flags, size_t *posted)
{
    struct shm_ep *ep = shm_ep_of(base);
    if (count != 1) {
        return post_many(ep, requests, count, flags, posted);
    }
    if (SHM_UNLIKELY(ep->state != SHM_EP_CONNECTED) ||
        SHM_UNLIKELY(!start_now(ep, requests) && !start_any(ep, requests))) {
        *posted = 0;
        return post_later(ep, flags);
    }
    *posted = 1;
    tell_of_post(ep, flags);
    return RDMUX_OK;
}

void rdmux_shm_doorbell(struct rdmux_provider_ep *base)
{
    release_bell(shm_ep_of(base));
}

size_t rdmux_shm_advance(struct shm_ep *ep)
{
    size_t done = 0;
    if (ep->pending > 0 || ep->wants_resume) {
        done += retire_jobs(ep);
    }
    if (ep->job.request != NULL && ep->state == SHM_EP_CONNECTED) {
        uint64_t before = ep->job.offset;
        if (run_jobs(ep, &ep->job)) {
            ep->job.request = NULL;
            done++;
        } else if (ep->job.offset != before) {
            done++;
        }
    }
    if (done > 0 && ep->wants_resume && ep->job.request == NULL) {
        ep->wants_resume = false;
        rdmux_provider_resume(&ep->base);
    }
    release_bell(ep);
    return done;
}

/* --------------------------------------------------------------------------------- receives */

/* Publishes a receive that the peer may write to, so that its message is copied only once. */
static SHM_COLD void publish_receive(struct shm_ep *ep, struct rdmux_request *request)
{
    const struct rdmux_provider_sge *sge = &request->sges[0];
    struct shm_mr *mr = sge->mr == NULL ? NULL : shm_mr_of(sge->mr);
    if (mr == NULL || (mr->access & RDMUX_ACCESS_REMOTE_WRITE) == 0 ||
        ep->receives_posted - ep->receives_taken > SHM_RECEIVE_COUNT ||
        !rdmux_shm_region_pass(ep, mr, true)) {
        return;
    }
    struct shm_receive *receive = &ep->my_receives[(ep->receives_posted - 1) % SHM_RECEIVE_COUNT];
    receive->life = mr->life;
    receive->index = mr->index;
    receive->offset = (uint64_t)((uintptr_t)sge->addr - (uintptr_t)mr->addr);
    receive->length = sge->length;
    /* Pairs with the acquire load in find_receive(). */
    atomic_store_explicit(&receive->number, ep->receives_posted, memory_order_release);
    request->provider[0] = ep->receives_posted;
}

enum rdmux_status rdmux_shm_post_recv(struct rdmux_provider_ep *base,
                                      struct rdmux_request *requests, size_t count)
{
    struct shm_ep *ep = shm_ep_of(base);
    bool connected = ep->state == SHM_EP_CONNECTED;
    for (size_t i = 0; i < count; i++) {
        struct rdmux_request *request = &requests[i];
        ep->receives_posted++;
        request->provider[0] = 0;
        if (request->length >= PUT_MIN && request->sge_count == 1 && connected && !ep->has_srq) {
            publish_receive(ep, request);
        }
    }
    if (ep->is_stalled && connected) {
        ep->is_end_waiting = false;
        ep->is_stalled = false;
        shm_wake_up(ep);
        shm_wake_owner(ep);
    }
    return RDMUX_OK;
}
