/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * The endpoint table of a cq: endpoints by id, and by the time of their next timer. The cost of
 * both does not grow with the number of endpoints, except for the logarithm of the heap. The timers
 * are a binary heap: each entry is no later than the two below it.
 */
#include "api/progress/endpoint_table.h"

#include "api/core/cq.h"
#include "api/core/ep.h"
#include "api/loop/service.h"
#include "api/progress/cq_owner.h"
#include "api/progress/places.h"

#include <string.h>

#define NOWHERE UINT32_MAX

enum {
    FIRST_TABLE_ROOM = 16,
    TICK_NS = 8 * 1000 *
              1000, /* timers are rounded up to this, so that many endpoints share a round */
};

struct rdmux_timer {
    uint64_t deadline_ns;
    struct rdmux_ep *ep;
};

/* ------------------------------------------------------------------------------------- the heap */

static void put_endpoint(struct rdmux_cq *cq, uint32_t place, struct rdmux_timer timer)
{
    cq->table.timers[place] = timer;
    timer.ep->places.timer = place;
}

static void sift_up(struct rdmux_cq *cq, uint32_t place, struct rdmux_timer timer)
{
    while (place != 0 && timer.deadline_ns < cq->table.timers[(place - 1) / 2].deadline_ns) {
        put_endpoint(cq, place, cq->table.timers[(place - 1) / 2]);
        place = (place - 1) / 2;
    }
    put_endpoint(cq, place, timer);
}

static void sift_down(struct rdmux_cq *cq, uint32_t place, struct rdmux_timer timer)
{
    for (;;) {
        uint32_t below = 2 * place + 1;
        if (below >= cq->table.timer_count) {
            break;
        }
        if (below + 1 < cq->table.timer_count &&
            cq->table.timers[below + 1].deadline_ns < cq->table.timers[below].deadline_ns) {
            below++;
        }
        if (timer.deadline_ns <= cq->table.timers[below].deadline_ns) {
            break;
        }
        put_endpoint(cq, place, cq->table.timers[below]);
        place = below;
    }
    put_endpoint(cq, place, timer);
}

static void set_timer(struct rdmux_cq *cq, uint32_t place, struct rdmux_timer timer)
{
    if (place != 0 && timer.deadline_ns < cq->table.timers[(place - 1) / 2].deadline_ns) {
        sift_up(cq, place, timer);
    } else {
        sift_down(cq, place, timer);
    }
}

static enum rdmux_status enlarge_table(struct rdmux_cq *cq)
{
    if (cq->table.timer_count < cq->table.timer_room) {
        return RDMUX_OK;
    }
    uint32_t room = cq->table.timer_room == 0 ? FIRST_TABLE_ROOM : 2 * cq->table.timer_room;
    struct rdmux_timer *timers = rdmux_allocate(cq->fabric, room * sizeof(*timers));
    if (timers == NULL) {
        return rdmux_fail(RDMUX_NO_MEMORY, "endpoint: out of memory for the timers of %u endpoints",
                          room);
    }
    if (cq->table.timer_count != 0) {
        memcpy(timers, cq->table.timers, cq->table.timer_count * sizeof(*timers));
    }
    rdmux_release(cq->fabric, cq->table.timers);
    cq->table.timers = timers;
    cq->table.timer_room = room;
    return RDMUX_OK;
}

/* ------------------------------------------------------------------------------ endpoints by id */

static struct rdmux_ep **bucket_of(struct rdmux_cq *cq, uint64_t id)
{
    return &cq->table.buckets[id % RDMUX_COUNT_OF(cq->table.buckets)]; /* ids are sequential */
}

static void add_endpoint(struct rdmux_cq *cq, struct rdmux_ep *ep)
{
    ep->places.bucket_next = *bucket_of(cq, ep->id);
    *bucket_of(cq, ep->id) = ep;
    rdmux_list_append(&cq->lists.eps, &ep->places.cq);
    cq->ep_count++;
    rdmux_count(&cq->fabric->counts.endpoints);
}

static void add_timer(struct rdmux_cq *cq, struct rdmux_ep *ep)
{
    const struct rdmux_timer never = { .deadline_ns = UINT64_MAX, .ep = ep };
    put_endpoint(cq, cq->table.timer_count++, never); /* no timer is later */
}

enum rdmux_status rdmux_cq_enrol(struct rdmux_cq *cq, struct rdmux_ep *ep)
{
    enum rdmux_status status = enlarge_table(cq);
    if (status == RDMUX_OK) {
        add_timer(cq, ep);
        add_endpoint(cq, ep);
    }
    return status;
}

enum rdmux_status rdmux_cq_enrol_arrival(struct rdmux_cq *cq, struct rdmux_ep *ep)
{
    enum rdmux_status status = enlarge_table(cq);
    ep->places.timer = NOWHERE;
    if (status == RDMUX_OK) {
        add_timer(cq, ep);
    }
    add_endpoint(cq, ep);
    return status;
}

static void remove_timer(struct rdmux_cq *cq, struct rdmux_ep *ep)
{
    uint32_t place = ep->places.timer;
    if (place == NOWHERE) {
        return;
    }
    struct rdmux_timer last = cq->table.timers[--cq->table.timer_count];
    if (last.ep != ep) {
        set_timer(cq, place, last);
    }
    ep->places.timer = NOWHERE;
}

void rdmux_cq_strike(struct rdmux_cq *cq, struct rdmux_ep *ep)
{
    remove_timer(cq, ep);
    for (struct rdmux_ep **at = bucket_of(cq, ep->id); *at != NULL;
         at = &(*at)->places.bucket_next) {
        if (*at == ep) {
            *at = ep->places.bucket_next;
            break;
        }
    }
    rdmux_list_remove(&ep->places.cq);
    cq->ep_count--;
    rdmux_uncount(&cq->fabric->counts.endpoints);
}

void rdmux_cq_unlist(struct rdmux_cq *cq, struct rdmux_ep *ep)
{
    for (struct rdmux_ep **at = &cq->doorbells; *at != NULL; at = &(*at)->places.doorbell_next) {
        if (*at == ep) {
            *at = ep->places.doorbell_next;
            break;
        }
    }
    ep->queued.is_doorbell_held = false;
    rdmux_ep_unlist_busy(ep);
    rdmux_list_remove(&ep->places.held);
    if (ep->queued.is_pending) {
        rdmux_cq_unpend(ep);
    }
}

struct rdmux_ep *rdmux_cq_endpoint(struct rdmux_cq *cq, uint64_t id)
{
    struct rdmux_ep *ep = *bucket_of(cq, id);
    while (ep != NULL && ep->id != id) {
        ep = ep->places.bucket_next;
    }
    return ep;
}

/* --------------------------------------------------------------------------------------- timers */

static uint64_t earliest_timer(const struct rdmux_cq *cq)
{
    uint64_t deadline_ns = cq->table.timer_count == 0 ? UINT64_MAX
                                                      : cq->table.timers[0].deadline_ns;
    return deadline_ns > UINT64_MAX - TICK_NS ? UINT64_MAX : (deadline_ns / TICK_NS + 1) * TICK_NS;
}

void rdmux_ep_timer(struct rdmux_ep *ep)
{
    struct rdmux_cq *cq = ep->cq;
    if (ep->places.timer == NOWHERE) {
        return; /* see rdmux_cq_enrol_arrival() */
    }
    const struct rdmux_timer timer = { .deadline_ns = ep->fabric->life->deadline(ep), .ep = ep };
    set_timer(cq, ep->places.timer, timer);
    uint64_t before = atomic_load_explicit(&cq->deadline_ns, memory_order_relaxed);
    uint64_t after = earliest_timer(cq);
    atomic_store_explicit(&cq->deadline_ns, after, memory_order_relaxed);
    if (after < before) {
        rdmux_service_wake(cq->fabric);
    }
}

void rdmux_cq_run_timers(struct rdmux_cq *cq)
{
    uint64_t now = rdmux_now(cq->fabric);
    if (now < atomic_load_explicit(&cq->deadline_ns, memory_order_relaxed)) {
        return;
    }
    while (cq->table.timer_count != 0 && cq->table.timers[0].deadline_ns <= now) {
        struct rdmux_ep *ep = cq->table.timers[0].ep;
        ep->fabric->life->timers(ep, now);
        if (ep->places.timer == NOWHERE) {
            continue; /* it was closed; the next progress frees it */
        }
        struct rdmux_timer timer = { .deadline_ns = ep->fabric->life->deadline(ep), .ep = ep };
        if (timer.deadline_ns <= now) {
            timer.deadline_ns = now + 1; /* the other endpoints come first */
        }
        set_timer(cq, ep->places.timer, timer);
    }
    atomic_store_explicit(&cq->deadline_ns, earliest_timer(cq), memory_order_relaxed);
}
