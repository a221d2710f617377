/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* rdmux_accept(): takes a listener's connections, sets them up concurrently, and returns the first
 * that is proved. */
#include "api/accept/listener.h"
#include "api/core/cq.h"
#include "api/core/ep.h"
#include "api/data/cq.h"
#include "api/data/receive.h"
#include "api/loop/descriptors.h"
#include "api/object/ep.h"
#include "api/progress/cq_owner.h"
#include "api/progress/endpoint_table.h"
#include "api/progress/places.h"
#include "api/session/setup_state.h"
#include "api/setup/setup.h"

enum {
    /* A set-up whose peer is silent for SETUP_IDLE_NS may be evicted for an address or identity that
     * has FAR_FEWER times fewer set-ups. */
    SETUP_IDLE_NS = 500 * 1000 * 1000,
    FAR_FEWER = 4,
    /* rounds of progress on unread messages of set-ups before another connection is taken */
    LOOKS = 16,
};

struct accepting {
    struct rdmux_listener *listener;
    struct rdmux_cq *cq;
    const struct rdmux_ep_attr *attr;
    struct rdmux_accept_wait wait;
    struct rdmux_ep *proved;
    uint32_t looks;
    enum rdmux_status status; /* why no connection can be taken */
};

/* Returns an endpoint of this listener on the cq that no call has returned yet, proved ones first.
 * NULL: there is none. */
static struct rdmux_ep *find_taken(const struct accepting *accepting)
{
    struct rdmux_ep *any = NULL;
    for (struct rdmux_list *at = accepting->cq->lists.accepting.next;
         at != &accepting->cq->lists.accepting; at = at->next) {
        struct rdmux_ep *ep = RDMUX_CONTAINER(at, struct rdmux_ep, places.accepting);
        if (ep->accept.acceptor == &accepting->listener->acceptor) {
            any = ep;
            if (ep->accept.is_proved) {
                break;
            }
        }
    }
    return any;
}

/* Counts the endpoints of this listener in set-up on the cq. */
static uint32_t count_setups(const struct accepting *accepting)
{
    uint32_t count = 0;
    for (struct rdmux_list *at = accepting->cq->lists.accepting.next;
         at != &accepting->cq->lists.accepting; at = at->next) {
        const struct rdmux_ep *ep = RDMUX_CONTAINER(at, struct rdmux_ep, places.accepting);
        count += ep->accept.acceptor == &accepting->listener->acceptor && !ep->accept.is_proved;
    }
    return count;
}

/* Selects the set-up to evict for an address or identity that has `least` in set-up. Its peer has
 * been silent for SETUP_IDLE_NS, and its address or identity has the most set-ups, more than
 * FAR_FEWER times `least`. If there is none yet, sets a timer for when there may be one. */
static struct rdmux_ep *find_idle_endpoint(const struct accepting *accepting, uint32_t least)
{
    uint64_t now_ns = rdmux_now(accepting->cq->fabric);
    uint64_t earliest_ns = UINT64_MAX;
    struct rdmux_ep *earliest = NULL;
    struct rdmux_ep *idle = NULL;
    uint32_t most = FAR_FEWER * least;
    for (struct rdmux_list *at = accepting->cq->lists.accepting.next;
         at != &accepting->cq->lists.accepting; at = at->next) {
        struct rdmux_ep *ep = RDMUX_CONTAINER(at, struct rdmux_ep, places.accepting);
        if (ep->accept.acceptor != &accepting->listener->acceptor || ep->accept.is_proved ||
            rdmux_listener_setups_beside(ep) <= most) {
            continue;
        }
        uint64_t since_ns = rdmux_setup_silent_since(ep);
        if (since_ns <= now_ns - SETUP_IDLE_NS) {
            if (!rdmux_setup_has_news(ep)) {
                most = rdmux_listener_setups_beside(ep);
                idle = ep;
            }
        } else if (since_ns < earliest_ns) {
            earliest_ns = since_ns;
            earliest = ep;
        }
    }
    if (idle == NULL && earliest != NULL) {
        earliest->setup->yield_ns = earliest_ns + SETUP_IDLE_NS;
        rdmux_ep_timer(earliest);
    }
    return idle;
}

/* Evicts one set-up. False: there is none to evict now. */
static bool evict_one(struct accepting *accepting, uint32_t least, bool *has_none)
{
    struct rdmux_ep *idle = find_idle_endpoint(accepting, least);
    if (idle == NULL) {
        return false;
    }
    rdmux_setup_fail(
        idle, RDMUX_TIMED_OUT,
        "the peer is silent, and others wait; raise rdmux_listen_attr.max_setups if it "
        "is slow",
        false);
    *has_none = find_taken(accepting) == NULL;
    return true;
}

/* Returns true if a set-up has unread bytes, or the end, that may tell that its connector is
 * connected. */
static bool has_news(const struct accepting *accepting)
{
    for (struct rdmux_list *at = accepting->cq->lists.accepting.next;
         at != &accepting->cq->lists.accepting; at = at->next) {
        const struct rdmux_ep *ep = RDMUX_CONTAINER(at, struct rdmux_ep, places.accepting);
        if (ep->accept.acceptor == &accepting->listener->acceptor && rdmux_setup_is_committed(ep) &&
            rdmux_setup_has_news(ep)) {
            return true;
        }
    }
    return false;
}

/* A peer may connect twice, one connection after the other. When the second arrives, the CONFIRM of
 * the first may still be unread. This call reads the CONFIRM first and leaves the second connection
 * to the next call, which may have other attributes. A peer that keeps sending delays others by
 * LOOKS rounds at most. */
static bool looks_first(struct accepting *accepting)
{
    if (accepting->looks == LOOKS || !has_news(accepting)) {
        accepting->looks = 0;
        return false;
    }
    accepting->looks++;
    rdmux_cq_raise(accepting->cq, RDMUX_SIGNAL_ATTEND);
    return true;
}

/* Takes a connection if there is one for this call. False: not now. Creates the endpoint first, so
 * that a connection stays with the listener if there is no room for the endpoint. */
static bool take_arrival(struct accepting *accepting, bool *has_none)
{
    struct rdmux_listener *listener = accepting->listener;
    struct rdmux_arrival arrival;
    struct rdmux_ep *ep;
    uint32_t setups = 0;
    if (!rdmux_listener_offers(listener, &accepting->wait, *has_none, &setups) ||
        (!*has_none && looks_first(accepting))) {
        return false;
    }
    if (count_setups(accepting) >= rdmux_listener_max_setups(listener) &&
        !evict_one(accepting, setups, has_none)) {
        return false;
    }
    rdmux_descriptors_make_room(accepting->cq->fabric);
    enum rdmux_status status = rdmux_setup_make_endpoint(
        accepting->cq->fabric, accepting->cq, accepting->attr, rdmux_listener_paths(listener),
        rdmux_listener_is_rdmacm(listener), 0, &ep);
    if (status == RDMUX_NO_MEMORY && evict_one(accepting, setups, has_none)) {
        return true;
    }
    if (status != RDMUX_OK) {
        accepting->status = *has_none ? status : RDMUX_OK; /* another set-up may still succeed */
        return false;
    }
    status = rdmux_listener_take_any(listener, &accepting->wait, &arrival);
    if (status == RDMUX_AGAIN) {
        rdmux_ep_dismantle(ep); /* another call was faster */
        return false;
    }
    if (status == RDMUX_OK) {
        rdmux_listener_get(listener);
        rdmux_setup_set_acceptor(ep, &listener->acceptor, arrival.quota);
        ep->events |= RDMUX_EVENT_HELD;
        rdmux_ep_list_accepting(ep);
        status = rdmux_ep_start_accept(ep, &arrival);
    }
    if (status != RDMUX_OK) {
        rdmux_log(accepting->cq->fabric, RDMUX_LOG_ERROR, "listener: a connection is dropped: %s",
                  rdmux_last_error());
        rdmux_ep_dismantle(ep);
        return true;
    }
    *has_none = false;
    return true;
}

/* Takes the connections for this call. A call that can return an endpoint takes none and leaves
 * them to others. */
static bool accept_is_over(void *user)
{
    struct accepting *accepting = user;
    struct rdmux_ep *taken = find_taken(accepting);
    if (taken != NULL && taken->accept.is_proved) {
        accepting->proved = taken;
        return true;
    }
    bool has_none = taken == NULL;
    while (take_arrival(accepting, &has_none)) {
    }
    return accepting->status != RDMUX_OK;
}

static enum rdmux_status accept_next(struct accepting *accepting, int timeout_ms,
                                     struct rdmux_ep **out)
{
    accepting->wait.cq = accepting->cq;
    accepting->wait.has_none = find_taken(accepting) == NULL;
    rdmux_listener_wait_begin(accepting->listener, &accepting->wait);
    enum rdmux_status status = rdmux_cq_wait_until(accepting->cq, accept_is_over, accepting,
                                                   timeout_ms);
    rdmux_listener_wait_end(accepting->listener, &accepting->wait);
    if (status != RDMUX_OK) {
        if (status == RDMUX_TIMED_OUT) {
            return timeout_ms == 0
                       ? rdmux_fail(RDMUX_AGAIN, "rdmux_accept: no connection is proved yet")
                       : rdmux_fail(RDMUX_TIMED_OUT, "rdmux_accept: no connection within %d ms",
                                    timeout_ms);
        }
        return status;
    }
    struct rdmux_ep *ep = accepting->proved;
    if (ep == NULL) {
        return accepting->status;
    }
    rdmux_ep_unlist_accepting(ep);
    ep->user = accepting->attr->user; /* an earlier call may have taken it */
    ep->events &= ~(uint32_t)RDMUX_EVENT_HELD;
    /* its end, or messages in receives of an SRQ, may be there already */
    rdmux_cq_pend(ep->cq, ep);
    rdmux_ep_linger_anew(ep);
    ep->accept.acceptor->count(ep->accept.acceptor, -1);
    ep->accept.acceptor->release(ep);
    *out = ep;
    return RDMUX_OK;
}

static enum rdmux_status accept_named(struct accepting *accepting, int timeout_ms,
                                      struct rdmux_ep **out)
{
    struct rdmux_arrival arrival;
    struct rdmux_ep *ep;
    enum rdmux_status status = rdmux_setup_make_endpoint(
        accepting->cq->fabric, accepting->cq, accepting->attr,
        rdmux_listener_paths(accepting->listener), rdmux_listener_is_rdmacm(accepting->listener),
        timeout_ms, &ep);
    if (status != RDMUX_OK) {
        return status;
    }
    status = rdmux_listener_take(accepting->listener, accepting->attr->peer, &arrival);
    if (status == RDMUX_OK) {
        status = rdmux_ep_start_accept(ep, &arrival);
    }
    if (status != RDMUX_OK) {
        rdmux_ep_dismantle(ep);
        return status;
    }
    return rdmux_setup_finish_call(ep, "rdmux_accept", timeout_ms, out);
}

enum rdmux_status rdmux_accept(struct rdmux_listener *listener, struct rdmux_cq *cq,
                               const struct rdmux_ep_attr *attr, int timeout_ms,
                               struct rdmux_ep **out)
{
    struct rdmux_ep_attr all = RDMUX_EP_ATTR_INIT;
    enum rdmux_status status = rdmux_setup_check_out("rdmux_accept", out);
    if (status == RDMUX_OK && listener == NULL) {
        status = rdmux_fail(RDMUX_INVALID, "rdmux_accept: listener is NULL");
    }
    if (status == RDMUX_OK) {
        status = rdmux_setup_check_call("rdmux_accept", rdmux_listener_fabric(listener), cq, attr,
                                        timeout_ms, &all);
    }
    if (status == RDMUX_OK) {
        status = rdmux_setup_check_failover(
            "rdmux_accept", &all,
            rdmux_listener_is_rdmacm(listener)
                ? "a listener of rdma://, which has no control channel"
                : NULL);
    }
    if (status != RDMUX_OK) {
        return status;
    }
    if (!rdmux_cq_enter(cq)) {
        return rdmux_cq_refused(cq, "rdmux_accept", "cq");
    }
    struct accepting accepting = { .listener = listener, .cq = cq, .attr = &all };
    status = all.peer == 0 ? accept_next(&accepting, timeout_ms, out)
                           : accept_named(&accepting, timeout_ms, out);
    rdmux_cq_leave(cq);
    return status;
}
