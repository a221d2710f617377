/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Completion queues: poll, wait, arm, create, destroy. */
#include "api/core/cq.h"
#include "api/core/ep.h"
#include "api/core/fabric.h"
#include "api/data/completion.h"
#include "api/data/cq.h"
#include "api/data/cq_service.h"
#include "api/data/fast_path.h"
#include "api/loop/descriptors.h"
#include "api/progress/cq_owner.h"
#include "api/progress/cq_progress.h"

#include <string.h>

enum { DEFAULT_CQ_DEPTH = 1 << 24 }; /* entries, if the attribute asks for no depth */

static inline size_t collect_completions(struct rdmux_cq *cq, struct rdmux_wc *wc, size_t max)
{
    if (RDMUX_UNLIKELY(!rdmux_list_empty(&cq->lists.closed))) {
        rdmux_cq_free_all(&cq->lists.closed);
    }
    /* Entries that wait are returned without polling the providers, which is a system call on tcp.
     * The next poll polls them first. Otherwise a program that causes as many completions as it
     * takes would never get other events. */
    if (!rdmux_list_empty(&cq->pending) && !cq->has_list_sufficed) {
        if (RDMUX_UNLIKELY(cq->doorbells != NULL)) {
            rdmux_cq_ring_doorbells(cq);
        }
        size_t count = rdmux_cq_take(cq, wc, max);
        cq->has_list_sufficed = count != 0;
        if (RDMUX_LIKELY(count != 0)) {
            return count;
        }
    }
    cq->has_list_sufficed = false;
    (void)rdmux_cq_round(cq);
    return rdmux_list_empty(&cq->pending) ? 0 : rdmux_cq_take(cq, wc, max);
}

static size_t poll_once(struct rdmux_cq *cq, struct rdmux_wc *wc, size_t max)
{
    if (max != 0) {
        return collect_completions(cq, wc, max);
    }
    rdmux_cq_progress(cq);
    rdmux_cq_drain(cq);
    return 0;
}

/* A poll with max 0, or the first poll after an arm. A program that finds no completion behind its
 * wake-up was woken by a control channel or by mail. This poll serves these, or the descriptor
 * would stay readable until the service thread has a processor. */
static __attribute__((noinline)) size_t poll_otherwise(struct rdmux_cq *cq, struct rdmux_wc *wc,
                                                       size_t max)
{
    const bool was_armed = atomic_load_explicit(&cq->armed, memory_order_relaxed) != RDMUX_UNARMED;
    rdmux_cq_untell(cq, RDMUX_UNARMED);
    size_t count = poll_once(cq, wc, max);
    if (count == 0 && was_armed && rdmux_list_empty(&cq->pending) && rdmux_cq_look_for_errands(cq)) {
        count = poll_once(cq, wc, max);
    }
    rdmux_cq_rearm(cq);
    return count;
}

size_t rdmux_cq_poll(struct rdmux_cq *cq, struct rdmux_wc *wc, size_t max)
{
    if (RDMUX_UNLIKELY(cq == NULL)) {
        return 0;
    }
    return RDMUX_GLANCE(cq->fast_poll.poll)(cq, wc, max);
}

size_t rdmux_fast_path_poll(struct rdmux_cq *cq, struct rdmux_wc *wc, size_t max)
{
    if (wc == NULL && max != 0) {
        return 0;
    }
    if (!rdmux_cq_enter(cq)) {
        (void)rdmux_cq_refused(cq, "rdmux_cq_poll", "cq");
        return 0;
    }
    size_t count = RDMUX_UNLIKELY(max == 0 ||
                                  atomic_load_explicit(&cq->armed, memory_order_relaxed) !=
                                      RDMUX_UNARMED)
                       ? poll_otherwise(cq, wc, max)
                       : collect_completions(cq, wc, max);
    rdmux_cq_leave(cq);
    return count;
}

/* Returns how often a call polls the descriptors, 1 us each, before it sleeps: answers of a peer on
 * this host arrive sooner than a sleeper wakes. 0 on a single processor, which the peer needs,
 * without a service thread, and on a serialized cq: what keeps its descriptors readable may be for
 * another sleeper, who waits for this call to step out. */
static uint32_t looks_before_sleep(const struct rdmux_cq *cq)
{
    enum { LOOKS = 50 };
    return cq->fabric->processors > 1 && !rdmux_fabric_is_manual(cq->fabric) &&
                   (cq->fence & RDMUX_ENTER_SERIALIZED) == 0
               ? LOOKS
               : 0;
}

static uint64_t until_of(struct rdmux_cq *cq, int timeout_ms)
{
    return timeout_ms < 0 ? UINT64_MAX : rdmux_now(cq->fabric) + (uint64_t)timeout_ms * 1000000;
}

static enum rdmux_status wait_until(struct rdmux_cq *cq, bool (*done)(void *user), void *user,
                                    int timeout_ms)
{
    uint64_t until_ns = until_of(cq, timeout_ms);
    uint32_t looks = 0;
    for (;;) {
        if (rdmux_cq_progress(cq)) {
            looks = 0;
        }
        bool more = rdmux_cq_drain(cq);
        if (done(user)) {
            return RDMUX_OK;
        }
        if (timeout_ms >= 0 && rdmux_now(cq->fabric) >= until_ns) {
            return RDMUX_TIMED_OUT;
        }
        if (more || (atomic_load_explicit(rdmux_cq_signal(cq), memory_order_acquire) &
                     RDMUX_SIGNAL_ATTEND)) {
            continue;
        }
        enum rdmux_status status;
        if (looks < looks_before_sleep(cq)) {
            looks++;
            status = rdmux_cq_look(cq);
        } else if (rdmux_cq_arm_providers(cq) ||
                   (atomic_load_explicit(rdmux_cq_signal(cq), memory_order_acquire) &
                    RDMUX_SIGNAL_ATTEND)) {
            continue;
        } else {
            status = rdmux_cq_sleep_asking(cq, until_ns);
        }
        if (status != RDMUX_OK) {
            return status;
        }
    }
}

enum rdmux_status rdmux_cq_wait_until(struct rdmux_cq *cq, bool (*done)(void *user), void *user,
                                      int timeout_ms)
{
    enum rdmux_status status = wait_until(cq, done, user, timeout_ms);
    rdmux_cq_rearm(cq);
    return status;
}

enum rdmux_status rdmux_cq_wait(struct rdmux_cq *cq, struct rdmux_wc *wc, size_t max,
                                int timeout_ms, size_t *count)
{
    if (cq == NULL || wc == NULL || max == 0 || count == NULL || timeout_ms < -1) {
        return rdmux_fail(RDMUX_INVALID, "rdmux_cq_wait: %s",
                          cq == NULL      ? "cq is NULL"
                          : wc == NULL    ? "wc is NULL"
                          : max == 0      ? "max is 0"
                          : count == NULL ? "count is NULL"
                                          : "timeout_ms is below -1");
    }
    *count = 0;
    if (!rdmux_cq_enter(cq)) {
        return rdmux_cq_refused(cq, "rdmux_cq_wait", "cq");
    }
    rdmux_cq_untell(cq, RDMUX_UNARMED);
    uint64_t until_ns = timeout_ms == 0 ? 0 : until_of(cq, timeout_ms);
    enum rdmux_status status;
    for (;;) {
        *count = collect_completions(cq, wc, max);
        if (*count != 0) {
            status = RDMUX_OK;
            break;
        }
        if (timeout_ms == 0) {
            status = rdmux_again("rdmux_cq_wait: nothing is there yet");
            break;
        }
        if (timeout_ms > 0 && rdmux_now(cq->fabric) >= until_ns) {
            status = rdmux_fail(RDMUX_TIMED_OUT, "rdmux_cq_wait: nothing came within %d ms",
                                timeout_ms);
            break;
        }
        if (rdmux_cq_arm_providers(cq) || !rdmux_list_empty(&cq->pending) ||
            (atomic_load_explicit(rdmux_cq_signal(cq), memory_order_acquire) &
             RDMUX_SIGNAL_ATTEND)) {
            continue;
        }
        status = rdmux_cq_sleep(cq, until_ns);
        if (status != RDMUX_OK) {
            break;
        }
    }
    rdmux_cq_rearm(cq);
    rdmux_cq_leave(cq);
    return status;
}

int rdmux_cq_fd(struct rdmux_cq *cq)
{
    return cq == NULL || *cq->alive == 0 ? -1 : RDMUX_POLLER_IS_DESCRIPTOR ? cq->fd : cq->outlet.fd;
}

enum rdmux_status rdmux_cq_arm_inside(struct rdmux_cq *cq)
{
    rdmux_cq_untell(cq, RDMUX_UNARMED);
    rdmux_cq_drain(cq);
    enum rdmux_status status = RDMUX_OK;
    if (!rdmux_list_empty(&cq->pending)) {
        status = RDMUX_AGAIN;
    } else if (rdmux_cq_arm_providers(cq)) {
        /* A provider may report an event once, and the program may arm again instead of polling. */
        (void)rdmux_cq_progress(cq);
        status = RDMUX_AGAIN;
    } else if (!rdmux_list_empty(&cq->pending) ||
               (atomic_load_explicit(rdmux_cq_signal(cq), memory_order_acquire) &
                RDMUX_SIGNAL_ATTEND)) {
        status = RDMUX_AGAIN;
    }
    rdmux_cq_set_arming(cq, status == RDMUX_OK ? RDMUX_ARMED : RDMUX_UNARMED);
    if (status == RDMUX_OK) {
        rdmux_cq_count_arm(cq);
    }
    rdmux_cq_rearm(cq);
    return status;
}

enum rdmux_status rdmux_cq_arm(struct rdmux_cq *cq)
{
    if (cq == NULL) {
        return rdmux_fail(RDMUX_INVALID, "rdmux_cq_arm: cq is NULL");
    }
    if (!rdmux_cq_enter(cq)) {
        return rdmux_cq_refused(cq, "rdmux_cq_arm", "cq");
    }
    enum rdmux_status status = rdmux_cq_arm_inside(cq);
    rdmux_cq_leave(cq);
    return status;
}

enum rdmux_status rdmux_cq_stats(struct rdmux_cq *cq, struct rdmux_cq_stats *out)
{
    if (cq == NULL || out == NULL || out->size < offsetof(struct rdmux_cq_stats, endpoints)) {
        return rdmux_fail(RDMUX_INVALID, "rdmux_cq_stats: %s",
                          cq == NULL ? "cq is NULL"
                                     : "out is NULL or without size; use RDMUX_CQ_STATS_INIT");
    }
    if (!rdmux_cq_enter(cq)) {
        return rdmux_cq_refused(cq, "rdmux_cq_stats", "cq");
    }
    struct rdmux_cq_stats stats = RDMUX_CQ_STATS_INIT;
    stats.endpoints = cq->ep_count;
    stats.srqs = cq->srq_count;
    stats.reserved = cq->reserved;
    /* A call that slept has counted again, for the service thread. */
    stats.calls = atomic_load_explicit(&cq->calls, memory_order_relaxed) - cq->counts.sleeps;
    stats.sleeps = cq->counts.sleeps;
    stats.arms = cq->counts.arms;
    stats.wakes = cq->counts.wakes;
    stats.errands = cq->counts.errands;
    stats.service_slices = cq->claim.slices;
    uint32_t size = out->size;
    memcpy(out, &stats, size < sizeof(stats) ? size : sizeof(stats));
    out->size = size;
    rdmux_cq_leave(cq);
    return RDMUX_OK;
}

/* --------------------------------------------------------------------------- create and destroy */

enum rdmux_status rdmux_cq_create(struct rdmux_fabric *fabric, const struct rdmux_cq_attr *attr,
                                  struct rdmux_cq **out)
{
    if (out == NULL) {
        return rdmux_fail(RDMUX_INVALID, "rdmux_cq_create: out is NULL");
    }
    *out = NULL;
    if (fabric == NULL || *fabric->alive == 0) {
        return rdmux_fail(RDMUX_INVALID,
                          "rdmux_cq_create: fabric is NULL, or belongs to the parent process");
    }
    struct rdmux_cq_attr all = RDMUX_CQ_ATTR_INIT;
    if (attr != NULL) {
        if (attr->size < offsetof(struct rdmux_cq_attr, depth) + sizeof(attr->depth)) {
            return rdmux_fail(RDMUX_INVALID,
                              "rdmux_cq_create: attr.size is %u; use RDMUX_CQ_ATTR_INIT",
                              attr->size);
        }
        memcpy(&all, attr, attr->size < sizeof(all) ? attr->size : sizeof(all));
    }
    if ((all.flags & ~(uint32_t)(RDMUX_CQ_CHECKED | RDMUX_CQ_SERIALIZED)) != 0) {
        return rdmux_fail(RDMUX_INVALID, "rdmux_cq_create: attr.flags has unknown bits: 0x%x",
                          all.flags);
    }
    if (!RDMUX_POLLER_IS_DESCRIPTOR && rdmux_fabric_is_manual(fabric)) {
        return rdmux_fail(RDMUX_UNSUPPORTED,
                          "rdmux_cq_create: without epoll the service thread makes the cq's "
                          "descriptor readable, and this fabric has none; open it without "
                          "RDMUX_FABRIC_NO_SERVICE_THREAD");
    }
    struct rdmux_cq *cq = rdmux_allocate(fabric, sizeof(*cq));
    struct rdmux_ep *own = rdmux_allocate(fabric, sizeof(*own));
    if (cq == NULL || own == NULL) {
        rdmux_release(fabric, own);
        rdmux_release(fabric, cq);
        return rdmux_fail(RDMUX_NO_MEMORY, "rdmux_cq_create: out of memory");
    }
    own->cq = cq;
    own->fabric = fabric;
    rdmux_list_init(&own->places.pending);
    cq->own = own;
    cq->alive = fabric->alive;
    cq->fabric = fabric;
    enum rdmux_status status = rdmux_fast_path_create(cq, rdmux_fast_path_poll);
    if (status != RDMUX_OK) {
        rdmux_release(fabric, own);
        rdmux_release(fabric, cq);
        return status;
    }
    cq->fence = (fabric->has_membarrier ? 0U : RDMUX_ENTER_FENCED) |
                ((all.flags & RDMUX_CQ_CHECKED) != 0 ? RDMUX_ENTER_CHECKED : 0U) |
                ((all.flags & RDMUX_CQ_SERIALIZED) != 0 ? RDMUX_ENTER_SERIALIZED : 0U);
    cq->depth = all.depth == 0 ? DEFAULT_CQ_DEPTH : all.depth;
    rdmux_list_init(&cq->pending);
    rdmux_list_init(&cq->lists.eps);
    rdmux_list_init(&cq->lists.closed);
    rdmux_list_init(&cq->lists.dropped);
    rdmux_list_init(&cq->lists.accepting);
    cq->id = atomic_fetch_add(&fabric->next_id, 1);
    rdmux_list_init(&cq->lists.busy);
    rdmux_list_init(&cq->lists.held);
    rdmux_list_init(&cq->low_srqs);
    rdmux_list_init(&cq->lists.leaving);
    rdmux_list_init(&cq->link);
    atomic_store(&cq->deadline_ns, UINT64_MAX);
    pthread_mutex_init(&cq->mailbox.lock, NULL);
    pthread_mutex_init(&cq->claim.lock, NULL);
    pthread_cond_init(&cq->mailbox.jobs_ended, NULL);
    rdmux_descriptors_make_room(fabric);
    status = rdmux_cq_open_descriptors(cq);
    if (status != RDMUX_OK) {
        goto release;
    }
    pthread_mutex_lock(&fabric->lock);
    rdmux_list_append(&fabric->cqs, &cq->link);
    pthread_mutex_unlock(&fabric->lock);
    rdmux_cq_service_add(cq);
    *out = cq;
    return RDMUX_OK;

release:
    rdmux_cq_close_descriptors(cq);
    pthread_cond_destroy(&cq->mailbox.jobs_ended);
    pthread_mutex_destroy(&cq->mailbox.lock);
    pthread_mutex_destroy(&cq->claim.lock);
    rdmux_fast_path_destroy(cq);
    rdmux_release(fabric, own);
    rdmux_release(fabric, cq);
    return status;
}

enum rdmux_status rdmux_cq_destroy(struct rdmux_cq *cq)
{
    if (cq == NULL) {
        return RDMUX_OK;
    }
    if (!rdmux_cq_enter(cq)) {
        return rdmux_cq_refused(cq, "rdmux_cq_destroy", "cq");
    }
    struct rdmux_fabric *fabric = cq->fabric;
    size_t unreturned = 0; /* endpoints that rdmux_accept() has not returned */
    for (struct rdmux_list *at = cq->lists.accepting.next; at != &cq->lists.accepting;
         at = at->next) {
        unreturned++;
    }
    const size_t arriving = atomic_load_explicit(&cq->arriving, memory_order_relaxed);
    if (cq->ep_count != unreturned || cq->srq_count != 0 || arriving != 0) {
        rdmux_cq_leave(cq);
        return rdmux_fail(
            RDMUX_INVALID,
            "rdmux_cq_destroy: %zu endpoints and %zu srqs are attached; close them first%s",
            cq->ep_count - unreturned + arriving, cq->srq_count,
            arriving == 0 ? "" : ", after RDMUX_WC_MOVED");
    }
    while (!rdmux_list_empty(&cq->lists.accepting)) {
        fabric->life->remove(
            RDMUX_CONTAINER(cq->lists.accepting.next, struct rdmux_ep, places.accepting));
    }
    rdmux_cq_free_all(&cq->lists.closed);
    rdmux_cq_free_all(&cq->lists.dropped);
    rdmux_cq_service_remove(cq);
    rdmux_cq_wait_for_jobs(cq);
    rdmux_cq_deliver_mail(cq); /* for closed endpoints: each mail frees itself */
    for (uint32_t i = 0; i < cq->domain_count; i++) {
        cq->domains[i].ops->cq_close(cq->domains[i].cq);
        rdmux_release(cq->fabric, cq->domains[i].cq);
    }
    pthread_mutex_lock(&fabric->lock);
    rdmux_list_remove(&cq->link);
    pthread_mutex_unlock(&fabric->lock);
    rdmux_cq_wait_for_jobs(cq); /* jobs that the delivered mail began */
    rdmux_cq_deliver_mail(cq);
    rdmux_cq_close_descriptors(cq);
    pthread_cond_destroy(&cq->mailbox.jobs_ended);
    pthread_mutex_destroy(&cq->mailbox.lock);
    pthread_mutex_destroy(&cq->claim.lock);
    rdmux_fast_path_destroy(cq);
    rdmux_release(fabric, cq->table.timers);
    rdmux_release(fabric, cq->own);
    rdmux_release(fabric, cq);
    return RDMUX_OK;
}
