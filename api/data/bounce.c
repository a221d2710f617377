/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Bounce buffers of an endpoint. Each ring has a side: a registered ring of bytes and a note for
 * each record. Records leave a ring in posting order, so the bytes are freed in the order in which
 * they were taken. The worker creates a side when the first request needs it, together with the
 * jobs that later carry long requests to the worker, so that a post allocates nothing.
 *
 * A list of more pieces than the path takes is treated like a list without keys. It becomes one
 * piece: of the ring if it is short, else of memory that the worker allocates, registers and, for
 * sent data, fills. The worker reads the application's buffers, so closing the path stops it: at
 * most COPY_STEP bytes later the buffers are the application's again.
 */
#include "api/data/bounce.h"
#include "api/base/pieces.h"
#include "api/core/cq.h"
#include "api/core/ep.h"
#include "api/core/fabric.h"
#include "api/core/mail.h"
#include "api/core/mr.h"
#include "api/progress/cq_owner.h"

#include "api/data/request.h"
#include "api/data/segments.h"
#include "api/loop/worker.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

enum {
    BOUNCE_SIZE = 128 * 1024, /* bytes of a side's ring */
    BOUNCE_MAX = 8 * 1024,    /* longest request that is copied; BOUNCE_SIZE is a multiple of it */
    BOUNCE_ALIGN = 64,
    JOB_COUNT = 8, /* long requests of a side that are registered at a time */
    COPY_STEP = 64 * 1024,
};

enum side_state {
    SIDE_NONE,
    SIDE_ASKED, /* the worker is creating it */
    SIDE_READY,
    SIDE_FAILED,
};

struct side;

/* The job of a long request: goes to the worker and back, then holds the registrations. */
struct key_job {
    struct rdmux_job job;
    struct rdmux_mail mail;
    struct side *side;
    struct key_job *next; /* next free job */
    uint64_t at;          /* the record's place in the ring */
    uint32_t access;
    uint32_t count;
    bool gathers;                       /* the list becomes one piece, `gathered` */
    bool fills;                         /* the worker copies the list's bytes to the piece */
    struct rdmux_provider_sge gathered; /* the piece; addr NULL: not allocated yet */
    struct {
        void *addr;
        uint64_t length;
        /* NULL: the piece has its own registration, or is not registered yet */
        struct rdmux_provider_mr *mr;
        bool wanted;
    } pieces[RDMUX_SGE_MAX];
    enum rdmux_status status;
    char text[RDMUX_TEXT_MAX];
};

/* The note of a record: what it needs besides its request. */
struct key_note {
    struct rdmux_provider_sge bounced; /* the list that the provider gets */
    uint64_t bounce_end;               /* value of side->head after its bytes */
    uint16_t sge_count;                /* pieces of the application's list */
    struct key_job *job;               /* the job of a long request */
};

struct side {
    struct rdmux_bounce *bounce;
    struct rdmux_ring *ring; /* accessed only while bounce->ep is not NULL */
    uint32_t records;
    enum side_state state;
    struct key_note *notes; /* one for each record */
    uint8_t *bytes;
    struct rdmux_provider_mr *mr; /* registration of `bytes` */
    uint64_t head;                /* bytes taken */
    uint64_t tail;                /* bytes freed */
    struct key_job *jobs;         /* JOB_COUNT of them */
    struct key_job *free_jobs;
    struct rdmux_job make;
    struct rdmux_mail made;
    enum rdmux_status status;
    char text[RDMUX_TEXT_MAX];
};

struct rdmux_bounce {
    struct rdmux_fabric *fabric;
    struct rdmux_cq *cq;
    struct rdmux_provider_domain *domain;
    struct rdmux_ep *ep; /* NULL once the path is closed */
    struct rdmux_bounce_rule rule;
    pthread_mutex_t
        copy_lock; /* held by the worker as it reads the application's buffers; guards is_closed */
    bool is_closed;
    bool finds_regions;        /* RDMUX_FABRIC_FIND_REGIONS */
    struct rdmux_span_hit hit; /* of the last region found; owner */
    /* References: the endpoint, and each job on its way to the worker or back. */
    _Atomic uint32_t refs;
    struct rdmux_job destroy;
    struct side send;
    struct side recv;
};

/* -------------------------------------------------------------------------------- registrations */

static enum rdmux_status register_bytes(struct rdmux_bounce *bounce, void *addr, uint64_t length,
                                        uint32_t access, struct rdmux_provider_mr **out)
{
    const struct rdmux_provider_ops *ops = bounce->domain->ops;
    struct rdmux_provider_mr *mr = rdmux_allocate(bounce->fabric, ops->mr_size);
    if (mr == NULL) {
        return rdmux_fail(RDMUX_NO_MEMORY, "post: no memory for a registration with %s", ops->name);
    }
    mr->domain = bounce->domain;
    const struct rdmux_provider_mr_attr attr = {
        .addr = addr, .length = length, .access = access, .memory_fd = -1
    };
    rdmux_error_clear();
    enum rdmux_status status = ops->mr_register(mr, &attr);
    if (status != RDMUX_OK) {
        rdmux_release(bounce->fabric, mr);
        return status;
    }
    *out = mr;
    return RDMUX_OK;
}

static void deregister_piece(struct rdmux_bounce *bounce, struct rdmux_provider_mr *mr)
{
    if (mr != NULL) {
        bounce->domain->ops->mr_deregister(mr);
        rdmux_release(bounce->fabric, mr);
    }
}

static void deregister_pieces(struct rdmux_bounce *bounce, struct key_job *job)
{
    deregister_piece(bounce, job->gathered.mr);
    rdmux_release(bounce->fabric, job->gathered.addr);
    job->gathered = (struct rdmux_provider_sge){ .addr = NULL };
    for (uint32_t i = 0; i < job->count; i++) {
        deregister_piece(bounce, job->pieces[i].mr);
        job->pieces[i].mr = NULL;
    }
}

/* --------------------------------------------------------------------------- create and destroy */

static void destroy_side(struct rdmux_bounce *bounce, struct side *side)
{
    for (uint32_t i = 0; i < JOB_COUNT && side->jobs != NULL; i++) {
        deregister_pieces(bounce, &side->jobs[i]);
    }
    deregister_piece(bounce, side->mr);
    rdmux_release(bounce->fabric, side->jobs);
    rdmux_release(bounce->fabric, side->notes);
    rdmux_release(bounce->fabric, side->bytes);
}

static void destroy_bounce(struct rdmux_job *job)
{
    struct rdmux_bounce *bounce = RDMUX_CONTAINER(job, struct rdmux_bounce, destroy);
    destroy_side(bounce, &bounce->send);
    destroy_side(bounce, &bounce->recv);
    (void)pthread_mutex_destroy(&bounce->copy_lock);
    rdmux_release(bounce->fabric, bounce);
}

static void keep_registration(struct rdmux_bounce *bounce)
{
    atomic_fetch_add_explicit(&bounce->refs, 1, memory_order_relaxed);
}

/* Drops a reference. The last one destroys everything on the worker, which may deregister. */
static void drop_bounce_registration(struct rdmux_bounce *bounce)
{
    if (atomic_fetch_sub_explicit(&bounce->refs, 1, memory_order_acq_rel) == 1) {
        bounce->destroy.work = destroy_bounce;
        rdmux_worker_run(bounce->fabric, &bounce->destroy);
    }
}

/* Sends a job to the worker. The job comes back as mail, and the cq stays until then. */
static void send_to_worker(struct rdmux_bounce *bounce, struct rdmux_job *job)
{
    keep_registration(bounce);
    rdmux_cq_job_begins(bounce->cq);
    rdmux_worker_run(bounce->fabric, job);
}

static void send_back(struct rdmux_bounce *bounce, struct rdmux_mail *mail)
{
    struct rdmux_cq *cq = bounce->cq; /* the mail may free `bounce` */
    rdmux_cq_mail(cq, mail);
    rdmux_cq_job_ends(cq);
}

static void init_side(struct rdmux_bounce *bounce, struct side *side, struct rdmux_ring *ring)
{
    side->bounce = bounce;
    side->ring = ring;
    side->records = ring->records == NULL ? 0 : ring->mask + 1;
}

enum rdmux_status rdmux_bounce_open(struct rdmux_ep *ep, struct rdmux_provider_domain *domain,
                                    struct rdmux_bounce_rule rule)
{
    if ((domain->ops->flags & RDMUX_PROVIDER_LOCAL_KEYS) == 0) {
        return RDMUX_OK;
    }
    struct rdmux_bounce *bounce = rdmux_allocate(ep->fabric, sizeof(*bounce));
    if (bounce == NULL) {
        return rdmux_fail(RDMUX_NO_MEMORY, "endpoint: out of memory");
    }
    bounce->fabric = ep->fabric;
    bounce->cq = ep->cq;
    bounce->domain = domain;
    bounce->ep = ep;
    bounce->rule = rule;
    bounce->finds_regions = rdmux_fabric_finds_regions(ep->fabric);
    if (pthread_mutex_init(&bounce->copy_lock, NULL) != 0) {
        rdmux_release(ep->fabric, bounce);
        return rdmux_fail(RDMUX_NO_MEMORY, "endpoint: no mutex to be had");
    }
    atomic_store(&bounce->refs, 1);
    init_side(bounce, &bounce->send, &ep->send);
    init_side(bounce, &bounce->recv, &ep->recv);
    ep->bounce = bounce;
    return RDMUX_OK;
}

static void take_back_bounced(struct rdmux_ep *ep, struct rdmux_ring *ring)
{
    for (uint64_t at = ring->tail; at != ring->head; at++) {
        struct rdmux_request *request = rdmux_ring_record(ring, at);
        if (request->keys != RDMUX_BOUNCE_OWN) {
            rdmux_bounce_take_back(ep, ring, request);
        }
    }
}

/* Copies received bytes to the application's buffers, and restores the application's list. */
static void restore_list(struct rdmux_ep *ep, struct side *side, struct rdmux_request *request)
{
    struct rdmux_ring *ring = side->ring;
    size_t index = (size_t)(request - ring->records);
    const struct key_note *note = &side->notes[index];
    bool is_temporary = request->keys == RDMUX_BOUNCE_TEMPORARY;
    rdmux_bounce_take_back(ep, ring, request);
    request->sges = &ring->sges[index * ring->max_sge];
    request->sge_count = note->sge_count;
    for (uint32_t i = 0; is_temporary && i < note->job->count; i++) {
        if (note->job->pieces[i].wanted) {
            request->sges[i].mr = NULL;
        }
    }
}

static void restore_all(struct rdmux_ep *ep, struct side *side)
{
    for (uint64_t at = side->ring->tail; at != side->ring->head; at++) {
        struct rdmux_request *request = rdmux_ring_record(side->ring, at);
        if (request->keys != RDMUX_BOUNCE_OWN) {
            restore_list(ep, side, request);
        }
    }
}

void rdmux_bounce_restore(struct rdmux_ep *ep)
{
    if (ep->bounce != NULL) {
        restore_all(ep, &ep->bounce->send);
        restore_all(ep, &ep->bounce->recv);
    }
}

void rdmux_bounce_close(struct rdmux_ep *ep)
{
    struct rdmux_bounce *bounce = ep->bounce;
    if (bounce == NULL) {
        return;
    }
    pthread_mutex_lock(&bounce->copy_lock);
    bounce->is_closed = true;
    pthread_mutex_unlock(&bounce->copy_lock);
    take_back_bounced(ep, &ep->send); /* bytes that have arrived are still to be returned */
    take_back_bounced(ep, &ep->recv);
    ep->bounce = NULL;
    ep->flow.has_waiting_receives = false;
    bounce->ep = NULL;
    drop_bounce_registration(bounce);
}

/* ------------------------------------------------------------------------------ creating a side */

static enum rdmux_status make_memory(struct side *side)
{
    struct rdmux_bounce *bounce = side->bounce;
    side->notes = rdmux_allocate(bounce->fabric, side->records * sizeof(*side->notes));
    side->jobs = rdmux_allocate(bounce->fabric, JOB_COUNT * sizeof(*side->jobs));
    side->bytes = rdmux_allocate(bounce->fabric, BOUNCE_SIZE);
    if (side->notes == NULL || side->jobs == NULL || side->bytes == NULL) {
        return rdmux_fail(RDMUX_NO_MEMORY, "post: out of memory for unregistered buffers");
    }
    return register_bytes(bounce, side->bytes, BOUNCE_SIZE,
                          RDMUX_ACCESS_LOCAL_WRITE | RDMUX_ACCESS_READ_SINK, &side->mr);
}

/* Worker. */
static void make_side(struct rdmux_job *job)
{
    struct side *side = RDMUX_CONTAINER(job, struct side, make);
    side->status = make_memory(side);
    if (side->status != RDMUX_OK) {
        (void)snprintf(side->text, sizeof(side->text), "%s", rdmux_last_error());
    }
    send_back(side->bounce, &side->made);
}

/* Owner: continues the waiting requests. */
static void bounce_goes_on(struct rdmux_bounce *bounce)
{
    if (bounce->ep != NULL) {
        rdmux_cq_pend(bounce->cq, bounce->ep);
    }
}

/* Writes the state. A side is made once. */
static void enter_side_state(struct side *side, enum side_state next)
{
    assert(side->state == (next == SIDE_ASKED ? SIDE_NONE : SIDE_ASKED));
    side->state = next;
}

static void side_made(struct rdmux_cq *cq, struct rdmux_mail *mail)
{
    struct side *side = RDMUX_CONTAINER(mail, struct side, made);
    struct rdmux_bounce *bounce = side->bounce;
    (void)cq;
    if (side->status == RDMUX_OK) {
        enter_side_state(side, SIDE_READY);
        for (uint32_t i = 0; i < JOB_COUNT; i++) {
            side->jobs[i].side = side;
            side->jobs[i].next = side->free_jobs;
            side->free_jobs = &side->jobs[i];
        }
    } else {
        enter_side_state(side, SIDE_FAILED);
        if (bounce->ep != NULL && bounce->ep->path != NULL) {
            rdmux_provider_failed(bounce->ep->path, side->status, side->text);
        }
    }
    bounce_goes_on(bounce);
    drop_bounce_registration(bounce);
}

static void ask_for_side(struct side *side)
{
    enter_side_state(side, SIDE_ASKED);
    side->make.work = make_side;
    side->made.deliver = side_made;
    send_to_worker(side->bounce, &side->make);
}

/* -------------------------------------------------------------------------------- long requests */

/* Worker. Copies a piece of the application's list, unless the path has been closed. */
static void copy_piece(struct rdmux_bounce *bounce, uint8_t *to, const uint8_t *from,
                       uint64_t length)
{
    bool stop = false;
    while (length > 0 && !stop) {
        uint64_t now = length < COPY_STEP ? length : COPY_STEP;
        pthread_mutex_lock(&bounce->copy_lock);
        stop = bounce->is_closed;
        if (!stop) {
            memcpy(to, from, now);
        }
        pthread_mutex_unlock(&bounce->copy_lock);
        to += now;
        from += now;
        length -= now;
    }
}

/* Worker. */
static enum rdmux_status gather_pieces(struct key_job *job)
{
    struct rdmux_bounce *bounce = job->side->bounce;
    uint64_t length = job->gathered.length;
    uint8_t *bytes = rdmux_allocate_sparse(bounce->fabric, length);
    if (bytes == NULL) {
        return rdmux_fail(
            RDMUX_NO_MEMORY,
            "post: no memory for %llu bytes of a list of %u pieces, of which %s takes "
            "%u; use fewer pieces",
            (unsigned long long)length, job->count, bounce->domain->ops->name,
            bounce->rule.max_sge);
    }
    job->gathered.addr = bytes;
    for (uint32_t i = 0; i < job->count && job->fills; i++) {
        copy_piece(bounce, bytes, job->pieces[i].addr, job->pieces[i].length);
        bytes += job->pieces[i].length;
    }
    return register_bytes(bounce, job->gathered.addr, length, job->access, &job->gathered.mr);
}

/* Worker. */
static enum rdmux_status register_wanted(struct key_job *job)
{
    enum rdmux_status status = RDMUX_OK;
    for (uint32_t i = 0; i < job->count && status == RDMUX_OK; i++) {
        if (job->pieces[i].wanted) {
            status = register_bytes(job->side->bounce, job->pieces[i].addr, job->pieces[i].length,
                                    job->access, &job->pieces[i].mr);
        }
    }
    return status;
}

/* Worker. */
static void register_pieces(struct rdmux_job *base)
{
    struct key_job *job = RDMUX_CONTAINER(base, struct key_job, job);
    job->status = job->gathers ? gather_pieces(job) : register_wanted(job);
    if (job->status != RDMUX_OK) {
        (void)snprintf(job->text, sizeof(job->text), "%s", rdmux_last_error());
        deregister_pieces(job->side->bounce, job);
    }
    send_back(job->side->bounce, &job->mail);
}

/* Worker. */
static void forget_pieces(struct rdmux_job *base)
{
    struct key_job *job = RDMUX_CONTAINER(base, struct key_job, job);
    deregister_pieces(job->side->bounce, job);
    send_back(job->side->bounce, &job->mail);
}

static void pieces_forgotten(struct rdmux_cq *cq, struct rdmux_mail *mail)
{
    struct key_job *job = RDMUX_CONTAINER(mail, struct key_job, mail);
    struct rdmux_bounce *bounce = job->side->bounce;
    (void)cq;
    job->next = job->side->free_jobs;
    job->side->free_jobs = job;
    bounce_goes_on(bounce);
    drop_bounce_registration(bounce);
}

static void pieces_registered(struct rdmux_cq *cq, struct rdmux_mail *mail)
{
    struct key_job *job = RDMUX_CONTAINER(mail, struct key_job, mail);
    struct side *side = job->side;
    struct rdmux_bounce *bounce = side->bounce;
    (void)cq;
    if (bounce->ep != NULL) {
        struct rdmux_request *request = rdmux_ring_record(side->ring, job->at);
        for (uint32_t i = 0; i < job->count; i++) {
            if (job->pieces[i].mr != NULL) {
                request->sges[i].mr = job->pieces[i].mr;
            }
        }
        request->keys = RDMUX_BOUNCE_TEMPORARY;
        if (job->gathers && job->status == RDMUX_OK) {
            request->sges = &job->gathered;
            request->sge_count = 1;
            request->keys = RDMUX_BOUNCE_GATHERED;
        }
        if (job->status != RDMUX_OK && bounce->ep->path != NULL) {
            rdmux_provider_failed(bounce->ep->path, job->status, job->text);
        }
    }
    bounce_goes_on(bounce);
    drop_bounce_registration(bounce);
}

/* Returns whether the piece lacks the registration that the request needs. */
static bool piece_lacks_key(const struct rdmux_bounce *bounce, const struct rdmux_request *request,
                            const struct rdmux_provider_sge *sge)
{
    if (sge->mr == NULL || !bounce->rule.needs_sinks || request->op != RDMUX_OP_READ) {
        return sge->mr == NULL;
    }
    const struct rdmux_mr *region = sge->mr->mr; /* NULL: a registration of the bounce buffers */
    return region != NULL && (region->access & RDMUX_ACCESS_READ_SINK) == 0;
}

static bool lacks_key(const struct rdmux_bounce *bounce, const struct rdmux_request *request)
{
    for (uint16_t i = 0; i < request->sge_count; i++) {
        if (piece_lacks_key(bounce, request, &request->sges[i])) {
            return true;
        }
    }
    return false;
}

static bool is_too_long(const struct rdmux_bounce *bounce, const struct rdmux_request *request)
{
    return request->sge_count > bounce->rule.max_sge;
}

static void ask_for_pieces(struct side *side, struct key_note *note, uint64_t at,
                           struct rdmux_request *request)
{
    struct key_job *job = side->free_jobs;
    note->sge_count = request->sge_count;
    side->free_jobs = job->next;
    note->job = job;
    job->at = at;
    job->count = request->sge_count;
    job->access = request->op == RDMUX_OP_RECV  ? RDMUX_ACCESS_LOCAL_WRITE
                  : rdmux_op_reads(request->op) ? RDMUX_ACCESS_LOCAL_WRITE | RDMUX_ACCESS_READ_SINK
                                                : 0;
    job->gathers = is_too_long(side->bounce, request);
    job->fills = job->access == 0;
    job->gathered = (struct rdmux_provider_sge){ .length = request->length };
    for (uint16_t i = 0; i < request->sge_count; i++) {
        job->pieces[i].addr = request->sges[i].addr;
        job->pieces[i].length = request->sges[i].length;
        job->pieces[i].wanted = !job->gathers &&
                                piece_lacks_key(side->bounce, request, &request->sges[i]);
        job->pieces[i].mr = NULL;
    }
    request->keys = RDMUX_BOUNCE_ASKED;
    job->job.work = register_pieces;
    job->mail.deliver = pieces_registered;
    send_to_worker(side->bounce, &job->job);
}

/* ------------------------------------------------------------------------------- short requests */

/* Takes contiguous bytes of the ring. NULL: too few are free. */
static uint8_t *take_ring_bytes(struct side *side, uint64_t length, uint64_t *end)
{
    uint64_t at = side->head % BOUNCE_SIZE;
    uint64_t start = length > BOUNCE_SIZE - at ? side->head + BOUNCE_SIZE - at : side->head;
    uint64_t after = start + (length + BOUNCE_ALIGN - 1) / BOUNCE_ALIGN * BOUNCE_ALIGN;
    if (after - side->tail > BOUNCE_SIZE) {
        return NULL;
    }
    side->head = after;
    *end = after;
    return side->bytes + start % BOUNCE_SIZE;
}

static bool bounce_short(struct side *side, struct key_note *note, struct rdmux_request *request)
{
    uint8_t *bytes = take_ring_bytes(side, request->length, &note->bounce_end);
    if (bytes == NULL) {
        return false;
    }
    if (request->op != RDMUX_OP_RECV && !rdmux_op_reads(request->op)) {
        rdmux_gather(request->sges, request->sge_count, 0, bytes, request->length);
    }
    note->sge_count = request->sge_count;
    note->bounced = (struct rdmux_provider_sge){ .addr = bytes,
                                                 .length = request->length,
                                                 .mr = side->mr };
    request->sges = &note->bounced;
    request->sge_count = 1;
    request->keys = RDMUX_BOUNCE_BOUNCED;
    return true;
}

/* ------------------------------------------------------------------------------------ data path */

static struct side *side_of(struct rdmux_ep *ep, const struct rdmux_ring *ring)
{
    return ring == &ep->send ? &ep->bounce->send : &ep->bounce->recv;
}

static bool goes_without_key(const struct rdmux_bounce *bounce, const struct rdmux_request *request)
{
    return request->op != RDMUX_OP_RECV && !rdmux_op_reads(request->op) &&
           request->length <= bounce->rule.max_inline;
}

/* Returns whether the provider cannot take the list as it is. */
static bool needs_help(const struct rdmux_bounce *bounce, const struct rdmux_request *request)
{
    return is_too_long(bounce, request) ||
           (lacks_key(bounce, request) && !goes_without_key(bounce, request));
}

/* Looks for a region of the program for each piece that has none. */
static void find_regions(struct rdmux_bounce *bounce, struct rdmux_request *request)
{
    const bool sinks = bounce->rule.needs_sinks && request->op == RDMUX_OP_READ;
    const uint32_t rights = request->op == RDMUX_OP_RECV || rdmux_op_reads(request->op)
                                ? RDMUX_ACCESS_LOCAL_WRITE | (sinks ? RDMUX_ACCESS_READ_SINK : 0U)
                                : 0U;
    for (uint16_t i = 0; i < request->sge_count; i++) {
        struct rdmux_provider_sge *sge = &request->sges[i];
        if (sge->mr != NULL) {
            continue;
        }
        const uintptr_t first = (uintptr_t)sge->addr;
        const struct rdmux_mr *region = rdmux_span_index_find(
            bounce->fabric->spans, first, first + (sge->length - 1), rights, &bounce->hit);
        sge->mr = region == NULL ? NULL : rdmux_mr_with(region, bounce->domain);
    }
}

/* Returns whether the record may go to the provider. If not, asks for what the record lacks. */
static bool prepare_keys(struct side *side, uint64_t at)
{
    struct rdmux_request *request = rdmux_ring_record(side->ring, at);
    if (request->keys != RDMUX_BOUNCE_OWN) {
        return request->keys != RDMUX_BOUNCE_ASKED;
    }
    if (!needs_help(side->bounce, request)) {
        return true;
    }
    if (side->bounce->finds_regions) {
        find_regions(side->bounce, request);
        if (!needs_help(side->bounce, request)) {
            return true;
        }
    }
    if (side->state != SIDE_READY) {
        if (side->state == SIDE_NONE) {
            ask_for_side(side);
        }
        return false;
    }
    struct key_note *note = &side->notes[at & side->ring->mask];
    if (request->length <= BOUNCE_MAX) {
        return bounce_short(side, note, request);
    }
    if (side->free_jobs != NULL) {
        ask_for_pieces(side, note, at, request);
    }
    return false;
}

uint64_t rdmux_bounce_give(struct rdmux_ep *ep, struct rdmux_ring *ring, uint64_t from,
                           uint64_t count)
{
    struct side *side = side_of(ep, ring);
    for (uint64_t i = 0; i < count; i++) {
        if (!prepare_keys(side, from + i)) {
            return i;
        }
    }
    return count;
}

/* Copies bytes that arrived in bounce or gathered memory to the application's buffers. */
static void bring_bytes(struct side *side, const struct rdmux_request *request)
{
    const struct rdmux_ring *ring = side->ring;
    size_t index = (size_t)(request - ring->records);
    if (request->done && request->status == RDMUX_OK &&
        (request->opcode == RDMUX_WC_RECV || rdmux_op_reads(request->op))) {
        rdmux_scatter(&ring->sges[index * ring->max_sge], side->notes[index].sge_count, 0,
                      request->sges[0].addr, request->length);
    }
}

bool rdmux_bounce_fence_is_ours(const struct rdmux_ep *ep, uint64_t at)
{
    const struct rdmux_ring *ring = &ep->send;
    const struct rdmux_request *fenced = rdmux_ring_record(ring, at);
    /* The last piece of a segmented request may be short enough to be inlined. */
    if (!rdmux_op_reads(fenced->op) &&
        (is_too_long(ep->bounce, fenced) || lacks_key(ep->bounce, fenced) ||
         fenced->length <= ep->bounce->rule.max_inline || rdmux_segments_concern(ep, fenced))) {
        return true;
    }
    for (uint64_t i = ring->tail; i != at; i++) {
        const struct rdmux_request *earlier = rdmux_ring_record(ring, i);
        if (rdmux_op_reads(earlier->op) &&
            (earlier->keys == RDMUX_BOUNCE_BOUNCED || earlier->keys == RDMUX_BOUNCE_GATHERED ||
             is_too_long(ep->bounce, earlier) || lacks_key(ep->bounce, earlier))) {
            return true;
        }
    }
    return false;
}

void rdmux_bounce_bring_reads(struct rdmux_ep *ep)
{
    const struct rdmux_ring *ring = &ep->send;
    for (uint64_t at = ring->tail; at != ring->next; at++) {
        struct rdmux_request *request = rdmux_ring_record(ring, at);
        if (!rdmux_op_reads(request->op)) {
            continue;
        }
        if (request->keys == RDMUX_BOUNCE_BOUNCED) {
            bring_bytes(&ep->bounce->send, request);
            request->keys = RDMUX_BOUNCE_BROUGHT;
        } else if (request->keys == RDMUX_BOUNCE_GATHERED) {
            bring_bytes(&ep->bounce->send, request);
            request->keys = RDMUX_BOUNCE_TEMPORARY;
        }
    }
}

void rdmux_bounce_take_back(struct rdmux_ep *ep, struct rdmux_ring *ring,
                            struct rdmux_request *request)
{
    uint32_t kind = request->keys;
    request->keys = RDMUX_BOUNCE_OWN;
    struct side *side = side_of(ep, ring);
    struct key_note *note = &side->notes[request - ring->records];
    if (kind == RDMUX_BOUNCE_BOUNCED || kind == RDMUX_BOUNCE_GATHERED) {
        bring_bytes(side, request);
    }
    if (kind == RDMUX_BOUNCE_BOUNCED || kind == RDMUX_BOUNCE_BROUGHT) {
        side->tail = note->bounce_end;
        return;
    }
    if (kind == RDMUX_BOUNCE_TEMPORARY || kind == RDMUX_BOUNCE_GATHERED) {
        note->job->job.work = forget_pieces;
        note->job->mail.deliver = pieces_forgotten;
        send_to_worker(side->bounce, &note->job->job);
    }
}
