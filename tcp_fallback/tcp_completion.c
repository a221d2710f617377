/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Progress of a completion queue. Recently active sockets are read at each poll without the poller,
 * so spinning on one endpoint costs one recv() a poll. The poller finds the other active sockets
 * every few polls. A poll asks it at once when no endpoint is hot, when many are active, or when
 * the caller has slept.
 */
#include "tcp_fallback/tcp_completion.h"

#include "api/base/list.h"
#include "api/system/system.h"
#include "providers/credits.h"
#include "tcp_fallback/tcp_endpoint.h"
#include "tcp_fallback/tcp_frame.h"
#include "tcp_fallback/tcp_hot.h"
#include "tcp_fallback/tcp_lane.h"
#include "tcp_fallback/tcp_pool.h"
#include "tcp_fallback/tcp_receive.h"
#include "tcp_fallback/tcp_send.h"
#include "tcp_fallback/tcp_socket.h"
#include "tcp_fallback/tcp_state.h"
#include "tcp_fallback/tcp_stream.h"

#include <errno.h>

enum { TCP_PAGE_SIZE = 4096 }; /* PAGE_SIZE is a macro of limits.h, in musl */

enum rdmux_status rdmux_tcp_cq_open(struct rdmux_provider_cq *base, uint32_t depth)
{
    struct tcp_cq *cq = rdmux_tcp_cq(base);
    (void)depth;
    rdmux_list_init(&cq->attention);
    rdmux_list_init(&cq->out_armed);
    rdmux_list_init(&cq->paused);
    cq->memory = rdmux_provider_allocate(base->domain->fabric, TCP_PAGE_SIZE + TCP_SCRATCH_START +
                                                                   TCP_HEADER_MAX +
                                                                   2 * (size_t)TCP_SCRATCH_SIZE);
    if (cq->memory == NULL) {
        rdmux_provider_error("tcp: out of memory");
        return RDMUX_NO_MEMORY;
    }
    uintptr_t page = ((uintptr_t)cq->memory + TCP_PAGE_SIZE - 1) & ~(uintptr_t)(TCP_PAGE_SIZE - 1);
    cq->scratch = (uint8_t *)cq->memory + (page - (uintptr_t)cq->memory) + TCP_SCRATCH_START;
    cq->waste = cq->scratch + TCP_HEADER_MAX + TCP_SCRATCH_SIZE;
    cq->poller = rdmux_poller_open();
    if (cq->poller < 0) {
        char text[RDMUX_TEXT_MAX];
        rdmux_tcp_error_text(text, sizeof(text), "tcp: no poller", errno);
        rdmux_provider_error("%s", text);
        enum rdmux_status status = errno == EMFILE || errno == ENFILE || errno == ENOMEM
                                       ? RDMUX_NO_MEMORY
                                       : RDMUX_IO;
        rdmux_provider_release(base->domain->fabric, cq->memory);
        return status;
    }
    return RDMUX_OK;
}

void rdmux_tcp_cq_close(struct rdmux_provider_cq *base)
{
    struct tcp_cq *cq = rdmux_tcp_cq(base);
    rdmux_poller_close(cq->poller);
    rdmux_tcp_pool_finish(base->domain->fabric, &cq->pool);
    rdmux_provider_release(base->domain->fabric, cq->memory);
}

int rdmux_tcp_fd(struct rdmux_provider_cq *base)
{
    return rdmux_tcp_cq(base)->poller;
}

/* -------------------------------------------------------------------------------- hot endpoints */

static size_t poll_hot(struct tcp_cq *cq, size_t budget)
{
    size_t did = 0;
    uint32_t count = cq->hot_count;
    struct tcp_ep *hot[TCP_HOT_MAX];
    for (uint32_t i = 0; i < count; i++) {
        hot[i] = cq->hot[(cq->hot_first + i) % count];
    }
    cq->hot_first = count > 1 ? (cq->hot_first + 1) % count : 0;
    for (uint32_t i = 0; i < count && did < budget; i++) {
        struct tcp_ep *ep = hot[i];
        if (cq->unarmed_polls >= TCP_SPINNING && ++ep->hot_polls >= TCP_SPINNING) {
            rdmux_tcp_wake_for_input(ep, false);
        }
        size_t got = rdmux_tcp_read(ep, budget - did);
        did += got;
        if (got > 0) {
            ep->idle_polls = 0;
        } else if (++ep->idle_polls >= TCP_HOT_IDLE && cq->base.ep_count > TCP_HOT_MAX &&
                   ep->is_hot) {
            rdmux_tcp_cool(ep);
        }
    }
    return did;
}

/* --------------------------------------------------------------------------------------- poller */

/* Handles the end of a socket other than socket 0. The endpoint ends once all bytes that have come
 * are read. */
static void lane_hung_up(struct tcp_lane *lane)
{
    rdmux_tcp_unwatch(lane);
    rdmux_tcp_out_die(lane->ep);
}

static size_t serve_event(struct tcp_lane *lane, uint32_t events, size_t budget)
{
    struct tcp_ep *ep = lane->ep;
    size_t did = 0;
    if (ep->state == TCP_CONNECTING) {
        return 1; /* ep_connect checks the socket */
    }
    if (ep->state != TCP_CONNECTED) {
        return 0;
    }
    if (events & RDMUX_READY_OUT) {
        if (lane->is_blocked) {
            rdmux_tcp_unblock(lane);
            did++;
        } else {
            (void)rdmux_tcp_watch(lane, lane->events & ~(uint32_t)RDMUX_READY_OUT);
        }
    }
    uint32_t ends = RDMUX_READY_END | RDMUX_READY_HANGUP | RDMUX_READY_ERROR;
    if (lane->index > 0 && (events & RDMUX_READY_IN) && ep->state == TCP_CONNECTED) {
        did += rdmux_tcp_read(ep, budget);
    }
    if (lane->index > 0 && (events & ends) && ep->state == TCP_CONNECTED &&
        lane->in_at == lane->in_end) {
        lane_hung_up(lane);
        did++;
    }
    if (lane->index == 0 && (events & (RDMUX_READY_IN | ends)) && !ep->in.is_paused &&
        ep->state == TCP_CONNECTED) {
        size_t got = rdmux_tcp_read(ep, budget);
        did += got;
        struct tcp_cq *cq = rdmux_tcp_cq_of(ep);
        if (got > 0 && ep->state == TCP_CONNECTED) {
            cq->poller_every = cq->poller_every > 1 ? cq->poller_every / 2 : 1;
            /* Hot: an endpoint found active twice in a row, or any if the cq has few. */
            if (cq->last_found == ep || cq->base.ep_count <= TCP_HOT_MAX) {
                rdmux_tcp_heat(ep);
            }
            cq->last_found = ep;
        }
    }
    return did;
}

/* Serves all events that the poller reported before it is asked again, over several polls if needed.
 * It would report the same sockets first, and one of them may use up each poll's budget. */
static size_t serve_poller(struct tcp_cq *cq, size_t budget)
{
    size_t did = 0;
    if (cq->found_at == cq->found_count) {
        cq->unwatched_polls = 0;
        int count = rdmux_poller_wait(cq->poller, cq->found, TCP_EVENTS, 0);
        cq->found_at = 0;
        cq->found_count = count > 0 ? (uint32_t)count : 0;
        if (count <= 0) {
            cq->poller_every = cq->poller_every < TCP_POLLER_EVERY ? cq->poller_every + 1
                                                                   : TCP_POLLER_EVERY;
            return 0;
        }
    }
    while (cq->found_at < cq->found_count && did < budget) {
        const struct rdmux_ready *ready = &cq->found[cq->found_at++];
        struct tcp_lane *lane = rdmux_ready_data(ready);
        did += lane != NULL ? serve_event(lane, rdmux_ready_events(ready), budget - did) : 0;
    }
    if (cq->found_at == cq->found_count &&
        cq->found_count > TCP_HOT_MAX) { /* many sockets are active: the poller costs least */
        while (cq->hot_count > 0) {
            rdmux_tcp_cool(cq->hot[0]);
        }
    }
    return did;
}

/* --------------------------------------------------------------------------------- poll and arm */

static size_t attend_one(struct tcp_ep *ep)
{
    size_t did = 0;
    if (ep->state == TCP_FAILED) { /* control frames may still go out */
        rdmux_tcp_set_blocked(&ep->lane0, false);
        rdmux_tcp_pump(ep);
        if (ep->is_shared && (ep->out.batch != NULL || ep->out.control != NULL) &&
            !ep->out.is_dead) {
            rdmux_tcp_attend(ep);
        }
        return 0;
    }
    if (ep->state != TCP_CONNECTED) {
        return 0;
    }
    if (ep->in.is_paused) {
        did += rdmux_tcp_resume(ep);
    }
    if (rdmux_tcp_stream_holds_bytes(&ep->lane0) && !ep->in.is_paused) {
        did += rdmux_tcp_read(ep, TCP_EVENTS);
        if (ep->state != TCP_CONNECTED) {
            return did;
        }
    }
    if (ep->out.is_dead && ep->state == TCP_CONNECTED) {
        size_t got = rdmux_tcp_read(ep, SIZE_MAX);
        did += got + 1;
        if (ep->in.is_end_waiting) {
            return did; /* the end waits for a receive */
        }
        if (ep->state == TCP_CONNECTED && got > 0) {
            rdmux_tcp_attend(ep);
        } else if (ep->state == TCP_CONNECTED && ep->out.error == EFAULT) {
            rdmux_tcp_fail(ep, RDMUX_INVALID, rdmux_tcp_bad_buffer);
        } else if (ep->state == TCP_CONNECTED) {
            char text[RDMUX_TEXT_MAX];
            rdmux_tcp_error_text(text, sizeof(text), "tcp: a data socket failed",
                                 ep->out.error != 0 ? ep->out.error : ECONNRESET);
            rdmux_tcp_fail(ep, RDMUX_PEER_GONE, text);
        }
        return did;
    }
    if (rdmux_credits_due(&ep->given)) {
        ep->out.is_credit_due = true;
    }
    uint64_t calls = ep->base.system_calls;
    rdmux_tcp_pump(ep);
    return did + (ep->base.system_calls != calls);
}

/* Serves each endpoint on the attention list once. An endpoint may add itself again. */
static size_t attend_all(struct tcp_cq *cq)
{
    size_t did = 0;
    struct rdmux_list now;
    rdmux_list_init(&now);
    rdmux_list_move(&now, &cq->attention);
    while (!rdmux_list_empty(&now)) {
        struct rdmux_list *link = now.next;
        rdmux_node_remove(link);
        did += attend_one(RDMUX_CONTAINER(link, struct tcp_ep, attention));
    }
    return did;
}

/* Returns the rest of a poll's budget for the next stage, at least a share of the budget. */
static size_t left_of(size_t budget, size_t did)
{
    size_t share = budget / TCP_SHARE + 1;
    return did + share < budget ? budget - did : share;
}

size_t rdmux_tcp_poll(struct rdmux_provider_cq *base, size_t budget)
{
    struct tcp_cq *cq = rdmux_tcp_cq(base);
    size_t did = cq->has_joined ? 1 : 0;
    cq->has_joined = false;
    cq->is_armed = false;
    cq->unarmed_polls++;
    if (!rdmux_list_empty(&cq->attention)) {
        did += attend_all(cq);
    }
    uint32_t hot_count = cq->hot_count;
    if (hot_count > 0) {
        did += poll_hot(cq, left_of(budget, did));
    }
    if (cq->watched > hot_count || cq->blocked > 0) {
        cq->unwatched_polls++;
        bool due = cq->unwatched_polls >= cq->poller_every || cq->found_at < cq->found_count;
        bool now = hot_count == 0 || cq->blocked > 0 || (cq->is_poller_due && did == 0);
        if (due || (now && did < budget)) {
            cq->is_poller_due = false;
            did += serve_poller(cq, left_of(budget, did));
        }
    }
    return did;
}

/* Sets the events of paused endpoints: the missing shares and room for unsent bytes wake the
 * caller, bytes on socket 0 do not. */
static void arm_paused(struct tcp_cq *cq)
{
    for (struct rdmux_list *link = cq->paused.next; link != &cq->paused; link = link->next) {
        struct tcp_ep *ep = RDMUX_CONTAINER(link, struct tcp_ep, paused);
        if (ep->lane0.is_blocked) {
            (void)rdmux_tcp_watch(&ep->lane0, RDMUX_READY_OUT);
        } else {
            rdmux_tcp_unwatch(&ep->lane0);
        }
        for (uint32_t i = 1; i < ep->lane_count; i++) {
            struct tcp_lane *lane = rdmux_tcp_lane(ep, i);
            if (lane->in_at < lane->in_end) {
                (void)rdmux_tcp_watch(lane, (lane->events & RDMUX_READY_OUT) | RDMUX_READY_IN |
                                                RDMUX_READY_END);
                rdmux_node_remove(&ep->attention);
            } else if (lane->is_watched &&
                       (lane->events & RDMUX_READY_IN)) { /* its share has come */
                (void)rdmux_tcp_watch(lane, lane->events & ~(uint32_t)RDMUX_READY_IN);
            }
        }
    }
}

enum rdmux_status rdmux_tcp_arm(struct rdmux_provider_cq *base)
{
    struct tcp_cq *cq = rdmux_tcp_cq(base);
    if (cq->has_joined || (!rdmux_list_empty(&cq->attention) && attend_all(cq) > 0)) {
        return RDMUX_AGAIN;
    }
    arm_paused(cq);
    if (!rdmux_list_empty(&cq->attention)) {
        return RDMUX_AGAIN;
    }
    for (struct rdmux_list *link = cq->out_armed.next; link != &cq->out_armed;) {
        struct tcp_ep *ep = RDMUX_CONTAINER(link, struct tcp_ep, out_armed);
        bool blocked = false;
        link = link->next;
        for (uint32_t i = 0; i < ep->lane_count; i++) {
            struct tcp_lane *lane = rdmux_tcp_lane(ep, i);
            blocked = blocked || lane->is_blocked;
            if (!lane->is_blocked && lane->is_watched && (lane->events & RDMUX_READY_OUT)) {
                (void)rdmux_tcp_watch(lane, lane->events & ~(uint32_t)RDMUX_READY_OUT);
            }
        }
        if (!blocked) {
            rdmux_node_remove(&ep->out_armed);
        }
    }
    for (uint32_t i = 0; i < cq->hot_count; i++) {
        rdmux_tcp_wake_for_input(cq->hot[i], true);
    }
    cq->unarmed_polls = 0;
    cq->is_poller_due = true;
    cq->is_armed = true;
    return RDMUX_OK;
}
