/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The cq: its polls, and its timer, which runs while endpoints are connecting. */
#include "iwarp/iwarp_internal.h"
#include "verbs/verbs_cm.h"
#include "verbs/verbs_completion.h"
#include "verbs/verbs_macros.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

static_assert(offsetof(struct iwarp_cq, base) == 0, "iwarp_cq_of() relies on it");

enum { TICK_NS = 10000000 };

/* ---------------------------------------------------------------------------------- open, close */

enum rdmux_status rdmux_iwarp_cq_open(struct rdmux_provider_cq *base, uint32_t depth)
{
    struct iwarp_cq *cq = iwarp_cq_of(base);
    enum rdmux_status status = rdmux_verbs_cq_open(base, depth);
    if (status != RDMUX_OK) {
        return status;
    }
    status = rdmux_verbs_cm_open(&cq->base);
    if (status != RDMUX_OK) {
        goto close;
    }
    cq->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (cq->timer < 0) {
        rdmux_provider_error("iwarp: no descriptor for a timer: %s; raise ulimit -n",
                             strerror(errno));
        status = RDMUX_NO_MEMORY;
        goto close;
    }
    struct epoll_event event = { .events = EPOLLIN };
    if (epoll_ctl(cq->base.epoll, EPOLL_CTL_ADD, cq->timer, &event) != 0) {
        rdmux_provider_error("iwarp: the timer cannot be waited for: %s", strerror(errno));
        status = RDMUX_IO;
        goto close_timer;
    }
    return RDMUX_OK;

close_timer:
    (void)close(cq->timer);
close:
    rdmux_verbs_cq_close(base);
    return status;
}

void rdmux_iwarp_cq_close(struct rdmux_provider_cq *base)
{
    rdmux_iwarp_deferred_destroy_finish(&iwarp_cq_of(base)->deferred);
    (void)close(iwarp_cq_of(base)->timer);
    rdmux_verbs_cq_close(base);
}

/* ----------------------------------------------------------------------------------- connecting */

static void run_timer(struct iwarp_cq *cq, bool runs)
{
    const struct timespec period = { .tv_nsec = runs ? TICK_NS : 0 };
    const struct itimerspec setting = { .it_interval = period, .it_value = period };
    (void)timerfd_settime(cq->timer, 0, &setting, NULL); /* cannot fail: own timer, valid time */
}

void rdmux_iwarp_start_connecting(struct iwarp_ep *ep)
{
    struct iwarp_cq *cq = iwarp_cq_of_ep(ep);
    if (cq->connecting == NULL) {
        run_timer(cq, true);
    }
    ep->is_connecting = true;
    cq->base.cm_connecting++;
    ep->connect_next = cq->connecting;
    cq->connecting = ep;
}

void rdmux_iwarp_stop_connecting(struct iwarp_ep *ep)
{
    struct iwarp_cq *cq = iwarp_cq_of_ep(ep);
    if (!ep->is_connecting) {
        return;
    }
    struct iwarp_ep **at = &cq->connecting;
    while (*at != ep) {
        at = &(*at)->connect_next;
    }
    *at = ep->connect_next;
    ep->is_connecting = false;
    cq->base.cm_connecting--;
    if (cq->connecting == NULL) {
        run_timer(cq, false);
    }
}

/* Takes the timer's ticks, if any, and advances the endpoints that are connecting. Returns 1 if
 * there were any, else 0. */
static size_t take_ticks(struct iwarp_cq *cq)
{
    uint64_t ticks = 0;
    if (cq->connecting == NULL || read(cq->timer, &ticks, sizeof(ticks)) <= 0) {
        return 0;
    }
    for (struct iwarp_ep *ep = cq->connecting; ep != NULL; ep = ep->connect_next) {
        rdmux_iwarp_take_results(ep);
        rdmux_iwarp_nudge(ep);
    }
    return 1;
}

/* ----------------------------------------------------------------------------------------- poll */

size_t rdmux_iwarp_poll(struct rdmux_provider_cq *base, size_t budget)
{
    struct iwarp_cq *cq = iwarp_cq_of(base);
    size_t done = rdmux_verbs_poll(base, budget);
    if (VERBS_UNLIKELY(cq->talkers != NULL)) {
        rdmux_iwarp_talk_all(cq);
    }
    if (VERBS_UNLIKELY(cq->connecting != NULL)) {
        done += take_ticks(cq);
    }
    return done;
}

enum rdmux_status rdmux_iwarp_arm(struct rdmux_provider_cq *base)
{
    struct iwarp_cq *cq = iwarp_cq_of(base);
    rdmux_iwarp_talk_all(cq);
    size_t ticks = take_ticks(cq);
    enum rdmux_status status = rdmux_verbs_arm(base);
    return ticks != 0 ? RDMUX_AGAIN : status;
}
