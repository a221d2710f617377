/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * The service thread's work for cqs. It watches the descriptors of each cq, and takes a cq only
 * when its application stays away. States of a cq:
 *
 *   REST    The application was polling at the last check. The next check comes in REST_NS. Nothing
 *           is watched.
 *   WATCH   The application is away, or sleeps in a call. The service thread sleeps until the cq
 *           has work. The cq's DORMANT bit makes the application's next call wake the service
 *           thread, which goes back to REST.
 *   GRACE   An armed cq was woken. Its application has GRACE_NS to call before the service thread
 *           takes the cq.
 *
 * A single check must decide: the next check serves an application that stopped polling right after
 * the last one, not a check 10 ms later. An application that has called since the last check is
 * polling if it calls again while the service thread yields some times; else it is away. So an idle
 * process has no wake-ups, a polling process has one every 10 ms, and a computing process is served
 * within 10 ms.
 */
#include "api/data/cq_service.h"

#include "api/core/cq.h"
#include "api/core/fabric.h"
#include "api/data/completion.h"
#include "api/loop/service.h"
#include "api/progress/cq_owner.h"
#include "api/progress/cq_progress.h"
#include "api/system/system.h"

#include <assert.h>
#include <sched.h>

enum {
    REST_NS = 9500 * 1000, /* 10 ms, as poll(2) rounds up to whole milliseconds */
    /* A polling application calls within GLANCES yields, or within GLANCES_NS. */
    GLANCES = 128,
    GLANCES_NS = 100 * 1000,
    GRACE_NS = 1000 * 1000,
    /* Rounds of progress in one slice; bounds the wait of an application's call. */
    SLICE_ROUNDS = 32,
};

enum service_state {
    SERVICE_REST,
    SERVICE_WATCH,
    SERVICE_GRACE,
};

/* Writes the state. Only a watched cq can be woken, which begins the grace time. */
static void enter_service_state(struct rdmux_cq *cq, enum service_state next)
{
    assert(next != SERVICE_GRACE || cq->service.state == SERVICE_WATCH);
    cq->service.state = next;
}

static void work_ready(struct rdmux_fabric *fabric, struct rdmux_watch *watch)
{
    (void)fabric;
    RDMUX_CONTAINER(watch, struct rdmux_cq, service.work_watch)->service.has_fired = true;
}

static void control_ready(struct rdmux_fabric *fabric, struct rdmux_watch *watch)
{
    (void)fabric;
    struct rdmux_cq *cq = RDMUX_CONTAINER(watch, struct rdmux_cq, service.control_watch);
    rdmux_cq_raise(cq, RDMUX_SIGNAL_ATTEND);
}

/* The cq was armed and has an event. The outlet stays readable until the next call empties it. */
static void outlet_ready(struct rdmux_fabric *fabric, struct rdmux_watch *watch)
{
    (void)fabric;
    struct rdmux_cq *cq = RDMUX_CONTAINER(watch, struct rdmux_cq, service.outlet_watch);
    rdmux_wake_signal(&cq->outlet);
}

void rdmux_cq_service_add(struct rdmux_cq *cq)
{
    struct rdmux_fabric *fabric = cq->fabric;
    cq->service.outlet_watch.ready = outlet_ready;
    cq->service.work_watch.ready = work_ready;
    cq->service.control_watch.ready = control_ready;
    rdmux_service_lock(fabric);
    enter_service_state(cq, SERVICE_REST);
    cq->service.deadline_ns = rdmux_now(fabric) + REST_NS;
    rdmux_list_init(&cq->service.link);
    rdmux_list_append(&fabric->served_cqs, &cq->service.link);
    if (!rdmux_fabric_is_manual(fabric)) {
        /* Not armed before the first WATCH. After a failure only the application progresses the
         * cq. */
        if (rdmux_service_watch(fabric, cq->work_fd, RDMUX_READY_ONCE, &cq->service.work_watch) !=
                RDMUX_OK ||
            rdmux_service_watch(fabric, cq->control_fd, RDMUX_READY_IN | RDMUX_READY_ONCE,
                                &cq->service.control_watch) != RDMUX_OK ||
            (!RDMUX_POLLER_IS_DESCRIPTOR &&
             rdmux_service_watch(fabric, cq->fd, RDMUX_READY_ONCE, &cq->service.outlet_watch) !=
                 RDMUX_OK)) {
            rdmux_log(fabric, RDMUX_LOG_WARN, "cq: the service thread cannot watch it: %s",
                      rdmux_last_error());
        }
    } else {
        /* Level-triggered, so that rdmux_fabric_fd() stays readable until the application's calls
         * have served the events. */
        if (rdmux_service_watch(fabric, cq->fd, RDMUX_READY_IN, &cq->service.work_watch) !=
            RDMUX_OK) {
            rdmux_log(fabric, RDMUX_LOG_WARN, "cq: rdmux_fabric_fd() cannot watch it: %s",
                      rdmux_last_error());
        }
    }
    rdmux_service_unlock(fabric);
    rdmux_service_wake(fabric);
}

void rdmux_cq_service_remove(struct rdmux_cq *cq)
{
    struct rdmux_fabric *fabric = cq->fabric;
    rdmux_service_lock(fabric);
    rdmux_service_unwatch(fabric, rdmux_fabric_is_manual(fabric) ? cq->fd : cq->work_fd,
                          &cq->service.work_watch);
    rdmux_service_unwatch(fabric, cq->control_fd, &cq->service.control_watch);
    if (!RDMUX_POLLER_IS_DESCRIPTOR) {
        rdmux_service_unwatch(fabric, cq->fd, &cq->service.outlet_watch);
    }
    rdmux_list_remove(&cq->service.link);
    rdmux_service_unlock(fabric);
}

/* Returns a number that changes with each call of the application. */
static uint64_t calls_of(struct rdmux_cq *cq)
{
    uint32_t left = RDMUX_GATE_LEFT;
    if (atomic_compare_exchange_strong(rdmux_cq_inside(cq), &left, RDMUX_GATE_AWAY)) {
        cq->service.fast_calls++;
    }
    return atomic_load(&cq->calls) + cq->service.fast_calls;
}

static bool is_owner_inside(struct rdmux_cq *cq)
{
    return atomic_load(rdmux_cq_inside(cq)) == RDMUX_GATE_INSIDE;
}

static void let_cq_rest(struct rdmux_cq *cq, uint64_t now)
{
    enter_service_state(cq, SERVICE_REST);
    cq->service.calls = calls_of(cq);
    cq->service.deadline_ns = now + REST_NS;
    cq->service.has_fired = false;
}

static bool attention_due(struct rdmux_cq *cq, uint64_t now)
{
    return (atomic_load_explicit(rdmux_cq_signal(cq), memory_order_relaxed) &
            RDMUX_SIGNAL_ATTEND) != 0 ||
           now >= atomic_load_explicit(&cq->deadline_ns, memory_order_relaxed);
}

/* Owner: progresses a cq whose application is away. Returns whether there is more to do at once. */
static bool run_slice(struct rdmux_cq *cq)
{
    rdmux_cq_begin_slice(cq);
    /* The descriptor of an armed cq stays readable from its wake-up to the application's next
     * call. */
    bool armed = rdmux_cq_is_armed(cq);
    bool woken = armed && (cq->service.has_fired ||
                           (atomic_load_explicit(rdmux_cq_signal(cq), memory_order_relaxed) &
                            RDMUX_SIGNAL_ATTEND) != 0);
    if (woken) {
        rdmux_cq_tell(cq);
    }
    if (rdmux_now(cq->fabric) >= atomic_load_explicit(&cq->deadline_ns, memory_order_relaxed)) {
        rdmux_cq_raise(cq, RDMUX_SIGNAL_ATTEND);
    }
    bool more = true;
    for (int i = 0; i < SLICE_ROUNDS && more; i++) {
        more = rdmux_cq_progress(cq);
        more = rdmux_cq_drain(cq) || more;
    }
    more = rdmux_cq_arm_providers(cq) || more;
    if (woken && rdmux_list_empty(&cq->pending) && cq->askers == 0) {
        rdmux_cq_untell(cq, RDMUX_ARMED);
    } else if (armed && !woken && !rdmux_list_empty(&cq->pending)) {
        rdmux_cq_tell(cq);
    }
    rdmux_cq_end_slice(cq);
    return more;
}

/* Takes the cq if its application is away, and goes to WATCH. Goes to REST if the application has
 * returned. */
static void take_cq(struct rdmux_cq *cq, uint64_t now)
{
    if (!rdmux_cq_claim(cq)) {
        let_cq_rest(cq, now);
        return;
    }
    bool more = run_slice(cq);
    if (more) {
        enter_service_state(cq, SERVICE_WATCH);
        cq->service.has_fired = true; /* at once, after the other cqs */
        rdmux_cq_raise(cq, RDMUX_SIGNAL_DORMANT);
        rdmux_cq_release_claim(cq);
        return;
    }
    enter_service_state(cq, SERVICE_WATCH);
    cq->service.has_fired = false;
    cq->service.calls = calls_of(cq);
    rdmux_cq_raise(cq, RDMUX_SIGNAL_DORMANT);
    rdmux_cq_release_claim(cq);
    rdmux_service_rearm(cq->fabric, cq->work_fd, &cq->service.work_watch);
}

/* The application sleeps inside a call or on the armed descriptor: watches for its next call, and
 * for work that no call takes. */
static void watch_sleeper(struct rdmux_cq *cq, uint64_t now)
{
    rdmux_cq_raise(cq, RDMUX_SIGNAL_DORMANT);
    if (!RDMUX_TSAN && !cq->fence) {
        rdmux_membarrier();
    }
    if (calls_of(cq) != cq->service.calls ||
        (is_owner_inside(cq) && atomic_load(&cq->claim.sleeping) == 0)) {
        atomic_fetch_and(rdmux_cq_signal(cq), ~(uint32_t)RDMUX_SIGNAL_DORMANT);
        let_cq_rest(cq, now);
        return;
    }
    enter_service_state(cq, SERVICE_WATCH);
    cq->service.has_fired = false;
    if (!is_owner_inside(cq)) {
        rdmux_service_rearm(cq->fabric, cq->work_fd, &cq->service.work_watch);
    }
}

/* Finds the applications that go on polling, with one wait for all cqs. */
static void watch_them_poll(struct rdmux_fabric *fabric, uint64_t now)
{
    bool unsure = false;
    for (struct rdmux_list *at = fabric->served_cqs.next; at != &fabric->served_cqs; at = at->next) {
        struct rdmux_cq *cq = RDMUX_CONTAINER(at, struct rdmux_cq, service.link);
        uint64_t calls = calls_of(cq);
        cq->service.was_polled = false;
        cq->service.is_asking = cq->service.state == SERVICE_REST &&
                                now >= cq->service.deadline_ns && calls != cq->service.calls;
        if (cq->service.is_asking) {
            cq->service.calls = calls;
            unsure = true;
        }
    }
    /* A yield may take long if another thread computes on this processor, perhaps the
     * application's. */
    for (int i = 0; i < GLANCES && unsure && rdmux_now(fabric) < now + GLANCES_NS; i++) {
        sched_yield();
        unsure = false;
        for (struct rdmux_list *at = fabric->served_cqs.next; at != &fabric->served_cqs;
             at = at->next) {
            struct rdmux_cq *cq = RDMUX_CONTAINER(at, struct rdmux_cq, service.link);
            if (cq->service.is_asking) {
                cq->service.was_polled = calls_of(cq) != cq->service.calls;
                cq->service.is_asking = !cq->service.was_polled;
                unsure = unsure || cq->service.is_asking;
            }
        }
    }
}

/* Advances the state of a cq. Returns the time of the next check. */
static uint64_t run_cq(struct rdmux_cq *cq, uint64_t now)
{
    uint64_t calls = calls_of(cq);
    bool inside = is_owner_inside(cq);
    switch ((enum service_state)cq->service.state) {
    case SERVICE_REST:
        if (attention_due(cq, now)) {
            /* A polling application attends at its next call. An application that sleeps inside a
             * call runs its timers itself. */
            rdmux_cq_raise(cq, RDMUX_SIGNAL_ATTEND);
        }
        if (now < cq->service.deadline_ns) {
            break;
        }
        if (cq->service.was_polled) {
            let_cq_rest(cq, now);
        } else if (inside && atomic_load(&cq->claim.sleeping) == 0) {
            let_cq_rest(cq, now); /* in the middle of a call */
        } else if (inside || rdmux_cq_is_armed(cq)) {
            watch_sleeper(cq, now);
        } else {
            take_cq(cq, now);
        }
        break;
    case SERVICE_WATCH:
        if ((atomic_load_explicit(rdmux_cq_signal(cq), memory_order_relaxed) &
             RDMUX_SIGNAL_DORMANT) == 0) {
            let_cq_rest(cq, now); /* the application is back */
        } else if (inside && atomic_load(&cq->claim.sleeping) == 0) {
            let_cq_rest(
                cq, now); /* in the middle of a call, which need not look for DORMANT when it ends */
        } else if (inside) {
            cq->service.has_fired = false; /* it sleeps in a call and wakes by itself */
        } else if (cq->service.has_fired || attention_due(cq, now)) {
            if (rdmux_cq_is_armed(cq)) {
                enter_service_state(cq, SERVICE_GRACE);
                cq->service.calls = calls;
                cq->service.deadline_ns = now + GRACE_NS;
            } else {
                take_cq(cq, now);
            }
        }
        break;
    case SERVICE_GRACE:
        if (calls != cq->service.calls || inside) {
            let_cq_rest(cq, now);
        } else if (now >= cq->service.deadline_ns) {
            take_cq(cq, now);
        }
        break;
    }
    if (cq->service.state != SERVICE_WATCH) {
        return cq->service.deadline_ns;
    }
    if (is_owner_inside(cq)) {
        return UINT64_MAX;
    }
    /* Attention may have been requested since REST: its wake-up of this thread came then, and does
     * not come again. */
    if (cq->service.has_fired || attention_due(cq, now)) {
        return now;
    }
    return atomic_load_explicit(&cq->deadline_ns, memory_order_relaxed);
}

/* Without a service thread: progresses a cq unless a call is inside it. */
static void run_cq_manually(struct rdmux_cq *cq)
{
    if (rdmux_cq_claim(cq)) {
        rdmux_cq_raise(cq, RDMUX_SIGNAL_ATTEND); /* control channels have no other notification */
        run_slice(cq);
        cq->service.has_fired = false;
        rdmux_cq_release_claim(cq);
    } else if (attention_due(cq, rdmux_now(cq->fabric))) {
        rdmux_cq_raise(cq, RDMUX_SIGNAL_ATTEND);
    }
}

void rdmux_cq_service_attend_revocations(struct rdmux_fabric *fabric)
{
    bool taken = false;
    rdmux_service_lock(fabric); /* the lock keeps all cqs alive */
    for (struct rdmux_list *at = fabric->served_cqs.next; at != &fabric->served_cqs; at = at->next) {
        struct rdmux_cq *cq = RDMUX_CONTAINER(at, struct rdmux_cq, service.link);
        if (atomic_load_explicit(&cq->revocations, memory_order_relaxed) != 0 &&
            !is_owner_inside(cq)) {
            rdmux_cq_raise(cq, RDMUX_SIGNAL_ATTEND); /* answers arrive on the control channel */
            take_cq(cq, rdmux_now(fabric));
            taken = true;
        }
    }
    rdmux_service_unlock(fabric);
    if (taken) {
        rdmux_service_wake(fabric); /* it watches the cqs taken above from now on */
    }
}

uint64_t rdmux_cq_service_step(struct rdmux_fabric *fabric, uint64_t now_ns)
{
    const bool is_manual = rdmux_fabric_is_manual(fabric);
    uint64_t earliest_ns = UINT64_MAX;
    if (!is_manual) {
        watch_them_poll(fabric, now_ns);
    }
    for (struct rdmux_list *at = fabric->served_cqs.next, *next; at != &fabric->served_cqs;
         at = next) {
        next = at->next;
        struct rdmux_cq *cq = RDMUX_CONTAINER(at, struct rdmux_cq, service.link);
        if (is_manual) {
            run_cq_manually(cq);
        } else {
            uint64_t deadline_ns = run_cq(cq, now_ns);
            earliest_ns = deadline_ns < earliest_ns ? deadline_ns : earliest_ns;
        }
    }
    return earliest_ns;
}
