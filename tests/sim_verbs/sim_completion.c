/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Completion queues, their channels, polling. */
#include "sim_completion.h"

#include "sim_async.h"
#include "sim_device.h"
#include "sim_macros.h"
#include "sim_options.h"
#include "sim_place.h"
#include "sim_queue.h"
#include "sim_verbs.h"
#include "sim_world.h"

#include <errno.h>
#include <string.h>

/* ------------------------------------------------------------------------------------- channels */

static struct sim_comp_channel *channel_of(struct ibv_comp_channel *channel)
{
    return (struct sim_comp_channel *)(void *)channel;
}

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
    struct sim_context *sim = sim_context_of(context);
    struct sim_world *world = sim->world;
    sim_lock(world);
    int error = sim_call(world, SIM_CALL_create_comp_channel);
    error = error == 0 && !sim_device_alive(sim->device) ? EIO : error;
    int descriptor = error == 0 ? sim_event_descriptor() : -1;
    error = error == 0 && descriptor < 0 ? errno : error;
    struct sim_comp_channel *channel = descriptor >= 0
                                           ? sim_alloc_with(world, sizeof(*channel), descriptor)
                                           : NULL;
    if (channel != NULL) {
        channel->ib.context = context;
        channel->ib.fd = descriptor;
        sim->objects++;
        world->objects++;
    }
    sim_unlock(world);
    if (channel == NULL) {
        errno = error != 0 ? error : ENOMEM;
        return NULL;
    }
    return &channel->ib;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
    struct sim_context *context = sim_context_of(channel->context);
    struct sim_world *world = context->world;
    sim_lock(world);
    bool busy = channel->refcnt > 0;
    if (!busy) {
        context->objects--;
        world->objects--;
        sim_free(channel);
    }
    sim_unlock(world);
    sim_world_rest(world);
    return busy ? EBUSY : 0;
}

static void channel_tell(struct sim_cq *cq)
{
    struct sim_comp_channel *channel = channel_of(cq->ex.channel);
    struct sim_cq_event *event = sim_alloc(cq->world, sizeof(*event));
    if (event == NULL) {
        return;
    }
    event->cq = cq;
    struct sim_cq_event **at = &channel->events;
    while (*at != NULL) {
        at = &(*at)->next;
    }
    *at = event;
    cq->world->counters.events++;
    sim_event_tell(channel->ib.fd);
}

static void channel_forget(struct sim_comp_channel *channel, const struct sim_cq *cq)
{
    struct sim_cq_event **at = &channel->events;
    while (*at != NULL) {
        struct sim_cq_event *event = *at;
        if (event->cq != cq) {
            at = &event->next;
            continue;
        }
        *at = event->next;
        sim_free(event);
        (void)sim_event_take(channel->ib.fd);
    }
}

int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context)
{
    struct sim_comp_channel *sim = channel_of(channel);
    struct sim_world *world = sim_context_of(channel->context)->world;
    for (;;) {
        sim_lock(world);
        (void)sim_run_due(world);
        struct sim_cq_event *event = sim->events;
        if (event != NULL) {
            sim->events = event->next;
            *cq = (struct ibv_cq *)(void *)&event->cq->ex;
            *cq_context = event->cq->ex.cq_context;
            event->cq->comp_events_given++;
            sim_free(event);
            (void)sim_event_take(channel->fd);
        }
        sim_unlock(world);
        if (event != NULL) {
            return 0;
        }
        if (!sim_wait_readable(world, channel->fd)) {
            return -1;
        }
    }
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int nevents)
{
    (void)pthread_mutex_lock(&cq->mutex);
    cq->comp_events_completed += nevents;
    (void)pthread_cond_signal(&cq->cond);
    (void)pthread_mutex_unlock(&cq->mutex);
}

/* ------------------------------------------------------------------------------ showing entries */

static uint32_t waiting(const struct sim_cq *cq)
{
    return cq->tail - cq->head;
}

/* Notifies an armed queue of the next entry, once; if armed as solicited, only of a solicited or
 * failed entry. */
static void notify(struct sim_cq *cq, const struct sim_cqe *cqe)
{
    bool wanted = cq->armed == SIM_ARMED_ANY || (cq->armed == SIM_ARMED_SOLICITED &&
                                                 (cqe->solicited || cqe->status != IBV_WC_SUCCESS));
    if (wanted && cq->ex.channel != NULL) {
        cq->armed = SIM_ARMED_NOT;
        channel_tell(cq);
    }
}

static void show(struct sim_cq *cq, const struct sim_cqe *cqe)
{
    if (cq->dead) {
        return;
    }
    if (waiting(cq) >= (uint32_t)cq->ex.cqe) {
        if (!cq->ignore_overrun) {
            sim_cq_fail(cq);
            return;
        }
        cq->head++; /* the program allowed the loss of any entry */
    }
    cq->ring[cq->tail % cq->room] = *cqe;
    cq->tail++;
    cq->world->counters.completions++;
    sim_trace(cq->world, SIM_TRACE_COMPLETE, (uint64_t)cqe->qp_num << 32 | (uint32_t)cqe->status,
              (uint64_t)cqe->opcode << 32 | cqe->byte_len);
    if (SIM_UNLIKELY(cq->armed != SIM_ARMED_NOT)) {
        notify(cq, cqe);
    }
}

/* How long entries wait for others of their batch if no completion time is set. */
enum { BATCH_TIME = 1000 };

static void show_first_late(struct sim_cq *cq)
{
    struct sim_late_cqe *late = cq->late;
    cq->late = late->next;
    cq->held--;
    sim_cancel(cq->world, &late->event);
    show(cq, &late->cqe);
    sim_free(late);
}

/* Entries come out in the order in which they were put. */
static void late_run(struct sim_event *event)
{
    struct sim_late_cqe *late = SIM_OUTER(struct sim_late_cqe, event, event);
    struct sim_cq *cq = late->cq;
    bool last;
    do {
        last = cq->late == late;
        show_first_late(cq);
    } while (!last);
}

static void put_late(struct sim_cq *cq, const struct sim_cqe *cqe)
{
    const struct sim_world_options *options = &cq->world->options;
    struct sim_late_cqe *late = sim_alloc(cq->world, sizeof(*late));
    if (late == NULL) {
        show(cq, cqe);
        return;
    }
    late->cq = cq;
    late->cqe = *cqe;
    struct sim_late_cqe **at = &cq->late;
    while (*at != NULL) {
        at = &(*at)->next;
    }
    *at = late;
    cq->held++;
    uint64_t longest = options->completion > 0 ? options->completion : BATCH_TIME;
    uint64_t wait = options->receipt > 0 ? options->receipt : sim_chance(cq->world, longest + 1);
    sim_schedule(cq->world, &late->event, wait, late_run);
    /* A full batch comes out at once; an incomplete batch comes with its latest entry. */
    if (options->batch > 1 && cq->held >= options->batch) {
        while (cq->late != NULL) {
            show_first_late(cq);
        }
    }
}

void sim_cq_put(struct sim_cq *cq, const struct sim_cqe *cqe)
{
    const struct sim_world_options *options = &cq->world->options;
    if (cq->late != NULL || options->completion > 0 || options->batch > 1 ||
        (options->receipt > 0 && !cqe->send_side)) {
        put_late(cq, cqe);
        return;
    }
    show(cq, cqe);
}

void sim_cq_fail(struct sim_cq *cq)
{
    if (cq->dead) {
        return;
    }
    cq->dead = true;
    cq->head = cq->tail;
    struct ibv_async_event event = { .element.cq = (struct ibv_cq *)(void *)&cq->ex,
                                     .event_type = IBV_EVENT_CQ_ERR };
    sim_async_raise(cq->context, &event);
    sim_qps_of_dead_cq(cq);
}

void sim_cq_kill(struct ibv_cq *cq)
{
    struct sim_cq *sim = sim_cq_of(cq);
    sim_lock(sim->world);
    sim_cq_fail(sim);
    sim_unlock(sim->world);
}

/* -------------------------------------------------------------------------------------- polling */

/* Runs due events; lets virtual time pass if none brought an entry. */
static void catch_up(struct sim_cq *cq)
{
    struct sim_world *world = cq->world;
    if (world->heap_count > 0) {
        (void)sim_run_due(world);
    }
    if (waiting(cq) == 0) {
        sim_idle(world);
    }
}

static void take(const struct sim_cqe *cqe)
{
    struct sim_qp *qp = cqe->qp;
    if (qp == NULL) {
        return;
    }
    if (cqe->send_side) {
        sim_qp_retire(qp, cqe->request);
    } else if (cqe->srq != NULL) {
        cqe->srq->queue.polled++;
    } else {
        qp->rq.polled++;
    }
    if (qp->placements != NULL) {
        sim_place_until(qp, cqe->placed);
    }
}

static void wc_fill(struct ibv_wc *wc, const struct sim_cqe *cqe)
{
    wc->wr_id = cqe->wr_id;
    wc->status = cqe->status;
    wc->vendor_err = cqe->vendor_err;
    wc->qp_num = cqe->qp_num;
    /* Nothing else of a failed entry is valid (ibv_poll_cq(3)). */
    wc->opcode = cqe->opcode;
    wc->byte_len = cqe->byte_len;
    wc->imm_data = cqe->imm_data;
    wc->wc_flags = cqe->wc_flags;
    wc->src_qp = cqe->src_qp;
    wc->pkey_index = 0;
    wc->slid = 0;
    wc->sl = 0;
    wc->dlid_path_bits = 0;
}

int sim_poll_cq(struct ibv_cq *cq, int count, struct ibv_wc *wc)
{
    struct sim_cq *sim = sim_cq_of(cq);
    struct sim_world *world = sim->world;
    sim_lock(world);
    int error = sim_call(world, SIM_CALL_poll_cq);
    if (SIM_UNLIKELY(error != 0)) {
        sim_unlock(world);
        return -error;
    }
    catch_up(sim);
    int taken = 0;
    while (taken < count && sim->head != sim->tail) {
        const struct sim_cqe *cqe = &sim->ring[sim->head % sim->room];
        take(cqe);
        wc_fill(&wc[taken++], cqe);
        sim->head++;
    }
    sim_unlock(world);
    if (taken == 0) {
        sim_stand_back(world);
    }
    return taken;
}

int sim_req_notify_cq(struct ibv_cq *cq, int solicited_only)
{
    struct sim_cq *sim = sim_cq_of(cq);
    sim_lock(sim->world);
    int error = sim_call(sim->world, SIM_CALL_req_notify_cq);
    if (error == 0) {
        bool works = sim->context->device->options.solicited != 0;
        if (!solicited_only) {
            sim->armed = SIM_ARMED_ANY;
        } else if (works && sim->armed == SIM_ARMED_NOT) {
            sim->armed = SIM_ARMED_SOLICITED;
        }
    }
    sim_unlock(sim->world);
    return error;
}

/* ----------------------------------------------------------------------------- extended polling */

static struct sim_cq *extended_of(struct ibv_cq_ex *cq)
{
    return (struct sim_cq *)(void *)cq;
}

static int extended_take(struct sim_cq *cq)
{
    if (cq->head == cq->tail) {
        return ENOENT;
    }
    cq->current = cq->ring[cq->head % cq->room];
    take(&cq->current);
    cq->head++;
    cq->ex.wr_id = cq->current.wr_id;
    cq->ex.status = cq->current.status;
    return 0;
}

static int extended_start(struct ibv_cq_ex *ex, struct ibv_poll_cq_attr *attr)
{
    struct sim_cq *cq = extended_of(ex);
    struct sim_world *world = cq->world;
    if (attr != NULL && attr->comp_mask != 0) {
        return EINVAL;
    }
    sim_lock(world);
    if (cq->polling) {
        sim_misuse(world, "ibv_start_poll: the last one has not ended");
    }
    int error = sim_call(world, SIM_CALL_poll_cq);
    if (error == 0) {
        catch_up(cq);
        error = extended_take(cq);
    }
    cq->polling = error == 0;
    sim_unlock(world);
    if (error == ENOENT) {
        sim_stand_back(world);
    }
    return error;
}

static int extended_next(struct ibv_cq_ex *ex)
{
    struct sim_cq *cq = extended_of(ex);
    sim_lock(cq->world);
    int error = extended_take(cq);
    sim_unlock(cq->world);
    return error;
}

/* Drivers hold a lock from start_poll to end_poll: end_poll without start_poll breaks it. */
static void extended_end(struct ibv_cq_ex *ex)
{
    struct sim_cq *cq = extended_of(ex);
    sim_lock(cq->world);
    if (!cq->polling) {
        sim_misuse(cq->world, "ibv_end_poll: no successful ibv_start_poll before it");
    }
    cq->polling = false;
    sim_unlock(cq->world);
}

static enum ibv_wc_opcode read_opcode(struct ibv_cq_ex *ex)
{
    return extended_of(ex)->current.opcode;
}

static uint32_t read_vendor_err(struct ibv_cq_ex *ex)
{
    return extended_of(ex)->current.vendor_err;
}

static uint32_t read_byte_len(struct ibv_cq_ex *ex)
{
    return extended_of(ex)->current.byte_len;
}

static __be32 read_imm_data(struct ibv_cq_ex *ex)
{
    return extended_of(ex)->current.imm_data;
}

static uint32_t read_qp_num(struct ibv_cq_ex *ex)
{
    return extended_of(ex)->current.qp_num;
}

static uint32_t read_src_qp(struct ibv_cq_ex *ex)
{
    return extended_of(ex)->current.src_qp;
}

static unsigned int read_wc_flags(struct ibv_cq_ex *ex)
{
    return extended_of(ex)->current.wc_flags;
}

static uint32_t read_slid(struct ibv_cq_ex *ex)
{
    (void)ex;
    return 0;
}

static uint8_t read_nothing(struct ibv_cq_ex *ex)
{
    (void)ex;
    return 0;
}

static void extended_fill(struct sim_cq *cq)
{
    struct ibv_cq_ex *ex = &cq->ex;
    cq->extended = true;
    ex->start_poll = extended_start;
    ex->next_poll = extended_next;
    ex->end_poll = extended_end;
    ex->read_opcode = read_opcode;
    ex->read_vendor_err = read_vendor_err;
    ex->read_byte_len = read_byte_len;
    ex->read_imm_data = read_imm_data;
    ex->read_qp_num = read_qp_num;
    ex->read_src_qp = read_src_qp;
    ex->read_wc_flags = read_wc_flags;
    ex->read_slid = read_slid;
    ex->read_sl = read_nothing;
    ex->read_dlid_path_bits = read_nothing;
}

/* --------------------------------------------------------------------------------------- queues */

static int cq_check(const struct sim_context *context, uint32_t cqe, int vector)
{
    const struct sim_device_options *options = &context->device->options;
    if (!sim_device_alive(context->device)) {
        return EIO;
    }
    if (cqe == 0 || cqe > options->limits.max_cqe || vector < 0 ||
        (uint64_t)vector >= options->vectors) {
        return EINVAL;
    }
    return context->device->cq_count >= options->limits.max_cq ? ENOMEM : 0;
}

static uint32_t granted(const struct sim_device *device, uint32_t asked)
{
    uint32_t room = 1;
    while (room < asked) {
        room *= 2;
    }
    return device->options.round_up ? room : asked;
}

static struct sim_cq *cq_make(struct sim_context *context, uint32_t cqe, void *cq_context,
                              struct ibv_comp_channel *channel)
{
    struct sim_world *world = context->world;
    struct sim_cq *cq = sim_alloc(world, sizeof(*cq));
    uint32_t room = granted(context->device, cqe);
    struct sim_cqe *ring = cq != NULL ? sim_alloc(world, room * sizeof(*ring)) : NULL;
    if (ring == NULL) {
        sim_free(cq);
        return NULL;
    }
    cq->world = world;
    cq->context = context;
    cq->ring = ring;
    cq->room = room;
    cq->ex.context = &context->verbs.context;
    cq->ex.channel = channel;
    cq->ex.cq_context = cq_context;
    cq->ex.handle = world->next_handle++;
    cq->ex.cqe = (int)room;
    (void)pthread_mutex_init(&cq->ex.mutex, NULL);
    (void)pthread_cond_init(&cq->ex.cond, NULL);
    if (channel != NULL) {
        channel->refcnt++;
    }
    context->objects++;
    context->device->cq_count++;
    context->device->cq_entries += cq->room;
    world->objects++;
    return cq;
}

static struct sim_cq *cq_create(struct ibv_context *ib, uint32_t cqe, void *cq_context,
                                struct ibv_comp_channel *channel, int vector)
{
    struct sim_context *context = sim_context_of(ib);
    sim_lock(context->world);
    int error = sim_call(context->world, SIM_CALL_create_cq);
    error = error == 0 ? cq_check(context, cqe, vector) : error;
    struct sim_cq *cq = error == 0 ? cq_make(context, cqe, cq_context, channel) : NULL;
    sim_unlock(context->world);
    if (cq == NULL) {
        errno = error != 0 ? error : ENOMEM;
    }
    return cq;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context,
                             struct ibv_comp_channel *channel, int comp_vector)
{
    struct sim_cq *cq = cq_create(context, cqe < 0 ? 0 : (uint32_t)cqe, cq_context, channel,
                                  comp_vector);
    return cq != NULL ? (struct ibv_cq *)(void *)&cq->ex : NULL;
}

struct ibv_cq_ex *sim_create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr)
{
    uint64_t flags = IBV_WC_STANDARD_FLAGS;
    if ((attr->wc_flags & ~flags) != 0 ||
        (attr->comp_mask & ~(uint32_t)IBV_CQ_INIT_ATTR_MASK_FLAGS)) {
        errno = EOPNOTSUPP;
        return NULL;
    }
    struct sim_cq *cq = cq_create(context, attr->cqe, attr->cq_context, attr->channel,
                                  (int)attr->comp_vector);
    if (cq == NULL) {
        return NULL;
    }
    cq->ignore_overrun = (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) != 0 &&
                         (attr->flags & IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN) != 0;
    extended_fill(cq);
    return &cq->ex;
}

int ibv_resize_cq(struct ibv_cq *cq, int cqe)
{
    struct sim_cq *sim = sim_cq_of(cq);
    struct sim_world *world = sim->world;
    sim_lock(world);
    int error = sim_call(world, SIM_CALL_resize_cq);
    if (error == 0 && sim_is_iwarp(sim->context->device)) {
        error = EOPNOTSUPP;
    } else if (error == 0 &&
               (cqe <= 0 || (uint64_t)cqe > sim->context->device->options.limits.max_cqe ||
                (uint32_t)cqe < waiting(sim))) {
        error = EINVAL;
    }
    uint32_t room = granted(sim->context->device, (uint32_t)cqe);
    struct sim_cqe *ring = error == 0 ? sim_alloc(world, room * sizeof(*ring)) : NULL;
    if (ring != NULL) {
        for (uint32_t at = sim->head; at != sim->tail; at++) {
            ring[at - sim->head] = sim->ring[at % sim->room];
        }
        sim->tail = waiting(sim);
        sim->head = 0;
        sim_free(sim->ring);
        sim->ring = ring;
        sim->room = room;
        sim->ex.cqe = (int)room;
    } else if (error == 0) {
        error = ENOMEM;
    }
    sim_unlock(world);
    return error;
}

/* The entry may stay, but frees no place when it is polled. */
static void forget(struct sim_cqe *cqe)
{
    cqe->qp = NULL;
    if (cqe->srq != NULL) {
        cqe->srq->queue.polled++;
        cqe->srq = NULL;
    }
}

void sim_cq_forget_qp(struct sim_cq *cq, struct sim_qp *qp, bool keep_entries)
{
    for (struct sim_late_cqe **at = &cq->late; *at != NULL;) {
        struct sim_late_cqe *late = *at;
        bool its = late->cqe.qp == qp;
        if (its) {
            forget(&late->cqe);
        }
        if (!its || keep_entries) {
            at = &late->next;
            continue;
        }
        *at = late->next;
        cq->held--;
        sim_cancel(cq->world, &late->event);
        sim_free(late);
    }
    uint32_t kept = cq->head;
    for (uint32_t at = cq->head; at != cq->tail; at++) {
        struct sim_cqe cqe = cq->ring[at % cq->room];
        bool its = cqe.qp == qp;
        if (its) {
            forget(&cqe);
        }
        if (!its || keep_entries) {
            cq->ring[kept++ % cq->room] = cqe;
        }
    }
    cq->tail = kept;
}

static void cq_unmake(struct sim_cq *cq)
{
    struct sim_world *world = cq->world;
    while (cq->late != NULL) {
        struct sim_late_cqe *late = cq->late;
        cq->late = late->next;
        sim_cancel(world, &late->event);
        sim_free(late);
    }
    sim_async_forget(cq->context, cq);
    if (cq->ex.channel != NULL) {
        channel_forget(channel_of(cq->ex.channel), cq);
        cq->ex.channel->refcnt--;
    }
    cq->context->objects--;
    cq->context->device->cq_count--;
    cq->context->device->cq_entries -= cq->room;
    world->objects--;
}

static void cq_wait(struct sim_cq *cq)
{
    struct sim_owed owed = { &cq->ex.mutex, &cq->ex.cond, &cq->ex.comp_events_completed,
                             cq->comp_events_given,
                             "ibv_destroy_cq: completion events are not acknowledged" };
    sim_wait_acknowledged(cq->world, &owed);
    owed.completed = &cq->ex.async_events_completed;
    owed.given = cq->async_events_given;
    owed.text = "ibv_destroy_cq: asynchronous events are not acknowledged";
    sim_wait_acknowledged(cq->world, &owed);
}

int ibv_destroy_cq(struct ibv_cq *cq)
{
    struct sim_cq *sim = sim_cq_of(cq);
    struct sim_world *world = sim->world;
    sim_lock(world);
    bool busy = sim->users > 0;
    if (!busy) {
        cq_unmake(sim);
    }
    sim_unlock(world);
    if (busy) {
        return EBUSY;
    }
    cq_wait(sim);
    (void)pthread_cond_destroy(&sim->ex.cond);
    (void)pthread_mutex_destroy(&sim->ex.mutex);
    sim_lock(world);
    sim_free(sim->ring);
    sim_free(sim);
    sim_unlock(world);
    sim_world_rest(world);
    return 0;
}
