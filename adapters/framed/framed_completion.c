/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Progress of a completion queue, and sleeping. */
#include "adapters/framed/framed_endpoint.h"
#include "adapters/framed/framed_send.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

enum {
    POLLS_UNTIL_HUSH = 4096, /* polls without work: some hundreds of microseconds */
    POLLS_UNTIL_SLEEP = 64,  /* polls without work: about a hundred microseconds */
};

static struct framed_cq *framed_cq(struct rdmux_provider_cq *cq)
{
    return (struct framed_cq *)cq;
}

static enum rdmux_status open_timer(struct framed_cq *cq)
{
    struct epoll_event event = { .events = EPOLLIN };
    cq->timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (cq->timer < 0 || epoll_ctl(cq->base.epoll, EPOLL_CTL_ADD, cq->timer, &event) != 0) {
        rdmux_provider_error("%s: timerfd: %s; raise the limit on open files",
                             cq->base.base.domain->ops->name, strerror(errno));
        if (cq->timer >= 0) {
            (void)close(cq->timer);
        }
        return RDMUX_NO_MEMORY;
    }
    return RDMUX_OK;
}

enum rdmux_status rdmux_framed_cq_open(struct rdmux_provider_cq *base, uint32_t depth)
{
    struct framed_cq *cq = framed_cq(base);
    cq->lane = ((struct framed_domain *)base->domain)->lane;
    rdmux_list_init(&cq->attention);
    rdmux_list_init(&cq->blocked);
    rdmux_list_init(&cq->rung);
    rdmux_list_init(&cq->hushed);
    enum rdmux_status status = rdmux_software_cq_open(base, depth);
    if (status != RDMUX_OK) {
        return status;
    }
    status = open_timer(cq);
    if (status != RDMUX_OK) {
        goto close_epoll;
    }
    status = cq->lane->cq_open(cq);
    if (status != RDMUX_OK) {
        goto close_timer;
    }
    return RDMUX_OK;

close_timer:
    (void)close(cq->timer);
close_epoll:
    rdmux_software_cq_close(base);
    return status;
}

void rdmux_framed_cq_close(struct rdmux_provider_cq *base)
{
    struct framed_cq *cq = framed_cq(base);
    cq->lane->cq_close(cq);
    (void)close(cq->timer);
    rdmux_software_cq_close(base);
}

/* ---------------------------------------------------------------------------------------- ticks */

/* Starts or stops the timer that wakes a sleeper. */
static void set_tick(struct framed_cq *cq, bool is_on)
{
    const struct timespec period = { .tv_nsec = is_on ? FRAMED_TICK_NS : 0 };
    const struct itimerspec setting = { .it_interval = period, .it_value = period };
    if (cq->is_ticking != is_on && timerfd_settime(cq->timer, 0, &setting, NULL) == 0) {
        cq->is_ticking = is_on;
    }
}

static bool needs_tick(const struct framed_cq *cq)
{
    return (cq->has_no_wake && cq->base.base.ep_count > 0) ||
           (cq->has_bell && (cq->under_way > 0 || cq->asked > 0)) ||
           !rdmux_list_empty(&cq->blocked);
}

void rdmux_framed_began(struct framed_ep *ep)
{
    struct framed_cq *cq = framed_cq_of(ep);
    ep->under_way++;
    cq->under_way++;
    if (cq->has_bell && cq->is_armed) {
        set_tick(cq, true);
    }
}

void rdmux_framed_blocked(struct framed_ep *ep)
{
    struct framed_cq *cq = framed_cq_of(ep);
    if (!rdmux_node_is_listed(&ep->blocked)) {
        rdmux_list_append(&cq->blocked, &ep->blocked);
    }
    if (cq->is_armed) {
        set_tick(cq, true);
    }
}

/* ---------------------------------------------------------------------------------------- bells */

void rdmux_framed_bell_join(struct framed_ep *ep)
{
    struct framed_cq *cq = framed_cq_of(ep);
    if (cq->has_bell) {
        ep->rings = true;
        ep->bell = FRAMED_BELL_RUNG;
        rdmux_list_append(&cq->rung, &ep->bell_link);
    }
}

void rdmux_framed_bell_answered(struct framed_ep *ep)
{
    struct framed_cq *cq = framed_cq_of(ep);
    if (ep->bell == FRAMED_BELL_ASKED) {
        ep->bell = FRAMED_BELL_RUNG;
        cq->asked--;
        rdmux_list_append(&cq->rung, &ep->bell_link);
    }
}

void rdmux_framed_bell_leave(struct framed_ep *ep)
{
    framed_cq_of(ep)->asked -= ep->bell == FRAMED_BELL_ASKED ? 1 : 0;
    ep->bell = FRAMED_BELL_NONE;
    rdmux_node_remove(&ep->bell_link);
}

/* Before a sleep: peers that do not ring are asked to. */
static void ask_for_bells(struct framed_cq *cq)
{
    while (!rdmux_list_empty(&cq->hushed)) {
        struct framed_ep *ep = RDMUX_CONTAINER(cq->hushed.next, struct framed_ep, bell_link);
        rdmux_node_remove(&ep->bell_link);
        ep->bell = FRAMED_BELL_ASKED;
        cq->asked++;
        ep->owes_ring = true;
        ep->owes_hush = false; /* one that could not be sent yet */
        (void)rdmux_framed_pump(ep);
    }
}

/* A cq that only polls spares its peers the ringing. */
static void hush_bells(struct framed_cq *cq)
{
    while (!rdmux_list_empty(&cq->rung)) {
        struct framed_ep *ep = RDMUX_CONTAINER(cq->rung.next, struct framed_ep, bell_link);
        rdmux_node_remove(&ep->bell_link);
        rdmux_list_append(&cq->hushed, &ep->bell_link);
        ep->bell = FRAMED_BELL_HUSHED;
        ep->owes_hush = true;
        framed_attend(ep);
    }
}

/* ---------------------------------------------------------------------------------- poll and arm */

/* Serves each endpoint on the attention list once. An endpoint may add itself again. */
static size_t attend_all(struct framed_cq *cq)
{
    size_t did = 0;
    struct rdmux_list now;
    rdmux_list_init(&now);
    rdmux_list_move(&now, &cq->attention);
    while (!rdmux_list_empty(&now)) {
        struct rdmux_list *link = now.next;
        rdmux_node_remove(link);
        did += rdmux_framed_pump(RDMUX_CONTAINER(link, struct framed_ep, attention));
    }
    return did;
}

/* Offers the lanes once more what they did not take. */
static size_t retry_all(struct framed_cq *cq)
{
    size_t did = 0;
    struct rdmux_list now;
    rdmux_list_init(&now);
    rdmux_list_move(&now, &cq->blocked);
    while (!rdmux_list_empty(&now)) {
        struct rdmux_list *link = now.next;
        rdmux_node_remove(link);
        did += rdmux_framed_retry(RDMUX_CONTAINER(link, struct framed_ep, blocked));
    }
    return did;
}

size_t rdmux_framed_poll(struct rdmux_provider_cq *base, size_t budget)
{
    struct framed_cq *cq = framed_cq(base);
    cq->is_armed = false;
    if (cq->is_ticking) {
        set_tick(cq, false);
    }
    size_t did = cq->lane->progress(cq, budget);
    if (cq->has_bell && ++cq->polls == POLLS_UNTIL_HUSH) {
        hush_bells(cq);
    }
    if (!rdmux_list_empty(&cq->blocked)) {
        did += retry_all(cq);
    }
    if (!rdmux_list_empty(&cq->attention)) {
        did += attend_all(cq);
    }
    cq->vain_polls = did > 0 ? 0 : cq->vain_polls + 1;
    return did;
}

enum rdmux_status rdmux_framed_arm(struct rdmux_provider_cq *base)
{
    struct framed_cq *cq = framed_cq(base);
    if (!rdmux_list_empty(&cq->attention) && attend_all(cq) > 0) {
        return RDMUX_AGAIN;
    }
    /* Without wake-ups the next look is a tick away, and where work was found, more is likely. */
    if (!rdmux_list_empty(&cq->attention) ||
        (cq->has_no_wake && cq->vain_polls < POLLS_UNTIL_SLEEP)) {
        return RDMUX_AGAIN;
    }
    cq->polls = 0;
    ask_for_bells(cq);
    enum rdmux_status status = cq->lane->arm(cq);
    if (status != RDMUX_OK) {
        return status;
    }
    set_tick(cq, needs_tick(cq));
    cq->is_armed = true;
    return RDMUX_OK;
}
