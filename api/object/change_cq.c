/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * An endpoint changes its cq (rdmux_ep_move()).
 *
 * The owner of the old cq takes the endpoint off that cq and sends it to the new one by mail; the
 * owner of the new cq receives it when it delivers the mail. In between the endpoint belongs to the
 * mail: it is on no list, in no table, and no thread touches it. The lock of the mailbox orders all
 * that the old owner wrote before all that the new owner does.
 *
 * Everything that can be refused is decided before the old cq has lost anything: room for entries,
 * and a provider cq at the new cq, are reserved from this side. What the new owner alone can do may
 * still fail for lack of memory or descriptors. The endpoint then ends at its new cq.
 *
 * A path whose queues are bound to the cq that they were made for cannot go. With failover the
 * endpoint goes without it: failover cuts the path at the old cq, as for a move to a better path,
 * which leaves no outcome unknown, and opens it anew at the new cq. Until the cut the endpoint is on
 * cq->lists.leaving, returns no entries, and makes progress as usual. The peer may search the next
 * path before the endpoint has left; its frames stay in the control channel until then
 * (rdmux_failover_delays_search()).
 *
 * Other threads that look for the endpoint (revocations, reconnects) mail its cq under
 * fabric->lock. The same lock covers the step that names the new cq. Mail that came before is
 * forwarded behind the endpoint.
 */
#include "api/object/change_cq.h"

#include "api/core/cq.h"
#include "api/core/ep.h"
#include "api/core/fabric.h"
#include "api/core/failover.h"
#include "api/core/mail.h"
#include "api/core/remote.h"
#include "api/data/fast_path.h"
#include "api/object/control_send.h"
#include "api/object/ep.h"
#include "api/object/importers.h"
#include "api/object/null_path.h"
#include "api/progress/cq_domain.h"
#include "api/progress/cq_owner.h"
#include "api/progress/cq_progress.h"
#include "api/progress/endpoint_table.h"
#include "api/progress/places.h"
#include "negotiation/control_channel.h"

#include <pthread.h>
#include <stdatomic.h>

/* An endpoint on its way. */
struct cq_change {
    struct rdmux_mail mail;
    struct rdmux_ep *ep;
    struct rdmux_cq *to;
    struct rdmux_list link; /* lists.leaving of the old cq, while the endpoint waits for a cut */
    struct rdmux_provider_cq *prepared; /* for the new cq; NULL: it has its own */
    uint32_t channel_events;
    bool is_busy; /* was on cq->lists.busy */
};

/* Returns whether the endpoint has a path that is at a cq. During a move it has the null path. */
static bool has_path(const struct rdmux_ep *ep)
{
    return ep->path != NULL && ep->ops != &rdmux_null_path_ops;
}

/* -------------------------------------------------------------------------------------- the new cq */

/* The old cq, which path->cq still names, may have ended by now. */
static enum rdmux_status enter_path(struct rdmux_cq *cq, struct cq_change *change)
{
    struct rdmux_ep *ep = change->ep;
    ep->path->cq = rdmux_cq_domain_take(cq, ep->domain, change->prepared);
    rdmux_cq_domain_enter(ep->path->cq);
    rdmux_error_clear();
    return ep->ops->ep_enter(ep->path);
}

/* The new cq may differ in what allows a fast path. */
static void aim_fast_path(struct rdmux_ep *ep)
{
    ep->has_fast_path = ep->path != NULL && rdmux_fast_path_is_possible(ep);
    for (struct rdmux_list *at = ep->imports.all.next; at != &ep->imports.all; at = at->next) {
        rdmux_fast_path_aim(RDMUX_CONTAINER(at, struct rdmux_remote, link));
    }
}

/* Ends an endpoint that the new cq cannot take. Its other entries follow RDMUX_WC_MOVED. */
static void end_arrival(struct rdmux_ep *ep, const char *why)
{
    if (ep->phase == RDMUX_PHASE_LINGERING) {
        rdmux_ep_linger_over(ep);
    } else {
        rdmux_ep_fail(ep, RDMUX_NO_MEMORY, "endpoint %llu: its new cq cannot take it: %s",
                      (unsigned long long)ep->id, why);
    }
}

static void deliver_endpoint(struct rdmux_cq *cq, struct rdmux_mail *mail)
{
    struct cq_change *change = RDMUX_CONTAINER(mail, struct cq_change, mail);
    struct rdmux_ep *ep = change->ep;
    enum rdmux_status status = RDMUX_OK;
    if (has_path(ep)) {
        status = enter_path(cq, change);
        ep->path->ready = 1; /* as it is pended below */
    }
    if (ep->channel != NULL &&
        rdmux_channel_watch(ep->channel, cq->control_fd, change->channel_events) != RDMUX_OK) {
        status = RDMUX_NO_MEMORY;
    }
    if (rdmux_cq_enrol_arrival(cq, ep) != RDMUX_OK) {
        status = RDMUX_NO_MEMORY;
    }
    aim_fast_path(ep);
    if (change->is_busy) {
        rdmux_ep_list_busy(ep);
    }
    rdmux_cq_pend(cq, ep);
    if (status == RDMUX_OK) {
        rdmux_ep_control_rests(ep, ep->channel);
        rdmux_failover_goes_on(ep);
        rdmux_ep_timer(ep);
    } else {
        end_arrival(ep, rdmux_last_error());
    }
    rdmux_release(cq->fabric, change);
    atomic_fetch_sub_explicit(&cq->arriving, 1, memory_order_relaxed);
}

/* -------------------------------------------------------------------------------------- the old cq */

static enum rdmux_status refuse_change(const struct rdmux_ep *ep, enum rdmux_status status,
                                       const char *why)
{
    return rdmux_fail(status, "rdmux_ep_move: endpoint %llu %s", (unsigned long long)ep->id, why);
}

/* Returns whether the path can go to another cq; true for an endpoint that has none. */
static bool path_can_leave(const struct rdmux_ep *ep)
{
    return !has_path(ep) || (ep->bounce == NULL &&
                             ep->ops->size >= offsetof(struct rdmux_provider_ops, ep_figures) &&
                             ep->ops->ep_leave != NULL);
}

static enum rdmux_status check_endpoint(const struct rdmux_ep *ep, const struct rdmux_cq *to)
{
    if (ep->phase == RDMUX_PHASE_CLOSED) {
        return refuse_change(ep, RDMUX_INVALID, "is closed");
    }
    if (to->fabric != ep->fabric) {
        return rdmux_fail(RDMUX_INVALID, "rdmux_ep_move: `to` is a cq of another fabric");
    }
    if ((ep->events & RDMUX_EVENT_CHANGED_CQ) != 0) {
        return refuse_change(
            ep, RDMUX_INVALID,
            "is on its way already; the owner of its next cq has it from RDMUX_WC_MOVED "
            "on");
    }
    if ((ep->events & RDMUX_EVENT_LAYER) != 0) {
        return refuse_change(ep, RDMUX_INVALID, "belongs to a stream");
    }
    if (ep->srq != NULL) {
        return refuse_change(ep, RDMUX_INVALID,
                             "takes its receives from an SRQ, which stays on its cq");
    }
    if (ep->is_rdmacm) {
        return refuse_change(ep, RDMUX_INVALID, "has an rdma:// address, so its queue pair stays");
    }
    if (ep->phase == RDMUX_PHASE_SETUP) {
        return refuse_change(ep, RDMUX_AGAIN, "is in set-up; move it after RDMUX_WC_CONNECTED");
    }
    if (ep->phase == RDMUX_PHASE_ENDING) {
        return refuse_change(ep, RDMUX_AGAIN, "is at its end; move it after RDMUX_WC_DISCONNECTED");
    }
    if (ep->phase == RDMUX_PHASE_READY && !rdmux_failover_is_steady(ep)) {
        return refuse_change(ep, RDMUX_AGAIN,
                             "is changing its path or its control channel; try later");
    }
    if (to == ep->cq || path_can_leave(ep)) {
        return RDMUX_OK;
    }
    if (ep->failover == NULL) {
        return rdmux_fail(RDMUX_UNSUPPORTED,
                          "rdmux_ep_move: endpoint %llu is on a path of %s, whose queues stay with "
                          "the cq that they were made for; use failover (attr.failover) on both "
                          "sides, or choose the cq when it is accepted (rdmux_listener_next)",
                          (unsigned long long)ep->id, ep->ops->name);
    }
    if (ep->flow.is_shutdown_asked || ep->session.has_end) {
        return refuse_change(ep, RDMUX_AGAIN, "is at its end; move it after RDMUX_WC_DISCONNECTED");
    }
    return RDMUX_OK;
}

/* Takes the endpoint off its cq. Cannot fail. */
static void take_off_cq(struct rdmux_ep *ep, struct cq_change *change)
{
    struct rdmux_cq *from = ep->cq;
    change->is_busy = !rdmux_list_empty(&ep->places.busy);
    if (has_path(ep)) {
        rdmux_cq_domain_leave(ep->path->cq);
    }
    if (ep->channel != NULL) {
        change->channel_events = rdmux_channel_unwatch(ep->channel);
    }
    rdmux_failover_leaves_cq(ep);
    rdmux_fast_path_forget(ep);
    rdmux_cq_unlist(from, ep);
    rdmux_cq_strike(from, ep);
    rdmux_cq_unreserve(from, ep->reserved);
}

/* The new cq has room for the endpoint, and the old one has nothing of it any more. */
static void send_to(struct rdmux_ep *ep, struct cq_change *change)
{
    struct rdmux_fabric *fabric = ep->fabric;
    struct rdmux_cq *from = ep->cq;
    struct rdmux_cq *to = change->to;
    const uint64_t id = ep->id; /* the endpoint belongs to the mail once that is sent */
    pthread_mutex_lock(&fabric->lock);
    __atomic_store_n(&ep->fast, to->fast.none, __ATOMIC_RELAXED);
    ep->cq = to;
    rdmux_importers_follow(fabric, id, to);
    rdmux_cq_forward_mail(from, to, &change->mail, id);
    pthread_mutex_unlock(&fabric->lock);
}

/* Returns whether an endpoint that waits for a cut can go. */
static bool may_go(const struct rdmux_ep *ep)
{
    return ep->phase == RDMUX_PHASE_ENDED ||
           (ep->phase == RDMUX_PHASE_READY && rdmux_failover_is_cut(ep));
}

void rdmux_cq_send_off(struct rdmux_cq *cq)
{
    for (struct rdmux_list *at = cq->lists.leaving.next, *next; at != &cq->lists.leaving;
         at = next) {
        next = at->next;
        struct cq_change *change = RDMUX_CONTAINER(at, struct cq_change, link);
        struct rdmux_ep *ep = change->ep;
        if (may_go(ep)) {
            rdmux_list_remove(&change->link);
            ep->events &= ~(uint32_t)RDMUX_EVENT_LEAVING;
            take_off_cq(ep, change);
            send_to(ep, change);
        }
    }
}

/* The new cq has room. */
static enum rdmux_status leave_cq(struct rdmux_ep *ep, struct cq_change *change)
{
    if (has_path(ep)) {
        enum rdmux_status status = rdmux_cq_domain_prepare(change->to, ep->domain,
                                                           &change->prepared);
        if (status != RDMUX_OK) {
            return status;
        }
        rdmux_cq_ring_doorbells(ep->cq);
        rdmux_error_clear();
        status = ep->ops->ep_leave(ep->path);
        if (status != RDMUX_OK) {
            rdmux_cq_domain_give_up(change->to, change->prepared);
            return status;
        }
    }
    ep->events |= RDMUX_EVENT_CHANGED_CQ;
    atomic_fetch_add_explicit(&change->to->arriving, 1, memory_order_relaxed);
    take_off_cq(ep, change);
    send_to(ep, change);
    return RDMUX_OK;
}

/* The same, once failover has cut the path. */
static void leave_cq_later(struct rdmux_ep *ep, struct cq_change *change)
{
    ep->events |= RDMUX_EVENT_CHANGED_CQ | RDMUX_EVENT_LEAVING;
    atomic_fetch_add_explicit(&change->to->arriving, 1, memory_order_relaxed);
    rdmux_cq_list_leaving(ep->cq, &change->link);
    rdmux_cq_ring_doorbells(ep->cq);
    rdmux_failover_cut_for_cq(ep);
}

static enum rdmux_status change_cq(struct rdmux_ep *ep, struct rdmux_cq *to)
{
    enum rdmux_status status = check_endpoint(ep, to);
    if (status != RDMUX_OK) {
        return status;
    }
    if (to == ep->cq) {
        ep->events |= RDMUX_EVENT_CHANGED_CQ;
        rdmux_cq_pend(to, ep);
        return RDMUX_OK;
    }
    struct cq_change *change = rdmux_allocate(ep->fabric, sizeof(*change));
    if (change == NULL) {
        return refuse_change(ep, RDMUX_NO_MEMORY, "cannot move: out of memory");
    }
    change->mail.deliver = deliver_endpoint;
    change->ep = ep;
    change->to = to;
    const uint64_t entries = ep->reserved;
    status = rdmux_cq_reserve(to, entries);
    if (status != RDMUX_OK) {
        goto release;
    }
    if (!path_can_leave(ep)) {
        leave_cq_later(ep, change);
        return RDMUX_OK;
    }
    status = leave_cq(ep, change);
    if (status != RDMUX_OK) {
        goto unreserve;
    }
    return RDMUX_OK;

unreserve:
    rdmux_cq_unreserve(to, entries);
release:
    rdmux_release(to->fabric, change);
    return status;
}

enum rdmux_status rdmux_ep_move(struct rdmux_ep *ep, struct rdmux_cq *to)
{
    if (ep == NULL || to == NULL) {
        return rdmux_fail(RDMUX_INVALID, "rdmux_ep_move: %s is NULL", ep == NULL ? "ep" : "to");
    }
    struct rdmux_cq *from = ep->cq;
    if (!rdmux_cq_enter(from)) {
        return rdmux_cq_refused(from, "rdmux_ep_move", "endpoint");
    }
    enum rdmux_status status = change_cq(ep, to);
    rdmux_cq_leave(from);
    return status;
}
