/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Endpoints: attributes, life, end, information. The data path is data/post.c, set-up
 * setup/handshake_driver.c, the control channel session/control.c. */
#include "api/object/ep.h"

#include "api/core/cq.h"
#include "api/core/ep.h"
#include "api/core/fabric.h"
#include "api/core/failover.h"
#include "api/core/remote.h"
#include "api/core/srq.h"
#include "api/data/bounce.h"
#include "api/data/completion.h"
#include "api/data/fast_path.h"
#include "api/data/fault.h"
#include "api/data/post.h"
#include "api/data/receive.h"
#include "api/data/request.h"
#include "api/data/segments.h"
#include "api/data/srq.h"
#include "api/object/control_send.h"
#include "api/object/importers.h"
#include "api/object/inbox.h"
#include "api/object/joins.h"
#include "api/object/offer.h"
#include "api/object/peer_process.h"
#include "api/object/read_drain.h"
#include "api/object/remote_end.h"
#include "api/progress/cq_domain.h"
#include "api/progress/cq_owner.h"
#include "api/progress/endpoint_table.h"
#include "api/progress/places.h"
#include "negotiation/control_channel.h"
#include "negotiation/explain.h"
#include "negotiation/handshake.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    DEFAULT_DEPTH = 64,
    DEPTH_MAX = 65536,
    DEFAULT_MAX_SGE = 4,
    DEFAULT_MAX_INLINE = 256, /* room for them; a path may grant less */
    LEAST_LIVENESS_MS = 100,
    DEFAULT_FAILOVER_ATTEMPTS = 64,
    DEFAULT_FAILOVER_TIME_MS = 30000,
    DEFAULT_FAILBACK_HOLD_MS = 10000,
    END_DEADLINE_MS = 10000, /* for copies in progress where liveness is RDMUX_NEVER */
};

/* ----------------------------------------------------------------------------------- attributes */

static enum rdmux_status bad_attr(const char *field, const char *why)
{
    return rdmux_fail(RDMUX_INVALID, "attr.%s %s", field, why);
}

static enum rdmux_status check_numbers(struct rdmux_ep_attr *to)
{
    static const struct {
        const char *name;
        size_t offset;
        uint32_t least, most, standard;
        uint32_t also; /* a further allowed value */
        const char *why;
    } fields[] = {
#define FIELD(name) #name, offsetof(struct rdmux_ep_attr, name)
        { FIELD(send_depth), 1, DEPTH_MAX, DEFAULT_DEPTH, 0, "is above 65,536" },
        { FIELD(recv_depth), 1, DEPTH_MAX, DEFAULT_DEPTH, 0, "is above 65,536" },
        { FIELD(max_send_sge), 1, RDMUX_SGE_MAX, DEFAULT_MAX_SGE, 0, "is above 16" },
        { FIELD(max_recv_sge), 1, RDMUX_SGE_MAX, DEFAULT_MAX_SGE, 0, "is above 16" },
        { FIELD(prefer), 0, RDMUX_PREFER_BANDWIDTH, RDMUX_PREFER_DEFAULT, 0,
          "is not one of RDMUX_PREFER_*" },
        { FIELD(liveness_ms), LEAST_LIVENESS_MS, 86400000, RDMUX_DEFAULT_LIVENESS_MS, RDMUX_NEVER,
          "is below 100 ms or above a day; RDMUX_NEVER turns it off" },
        { FIELD(setup_timeout_ms), 1, 86400000, RDMUX_DEFAULT_SETUP_TIMEOUT_MS, RDMUX_NEVER,
          "is above a day" },
        { FIELD(path_timeout_ms), 1, 86400000, RDMUX_DEFAULT_PATH_TIMEOUT_MS, RDMUX_NEVER,
          "is above a day" },
        { FIELD(failover_attempts), 1, 100000, DEFAULT_FAILOVER_ATTEMPTS, 0, "is above 100,000" },
        { FIELD(failover_time_ms), 1, 86400000, DEFAULT_FAILOVER_TIME_MS, RDMUX_NEVER,
          "is above a day" },
        { FIELD(failback_hold_ms), 1, 86400000, DEFAULT_FAILBACK_HOLD_MS, 0, "is above a day" },
        { FIELD(dscp), 1, 63, 26, RDMUX_OFF, "is above 63" },
        { FIELD(ecn), 1, 2, 2, RDMUX_OFF, "is not 1, 2 or RDMUX_OFF" },
        { FIELD(service_level), 0, 15, 0, 0, "is above 15" },
        { FIELD(data_sockets), 1, RDMUX_DATA_SOCKETS_MAX, 1, 0, "is above 16" },
#undef FIELD
    };
    for (size_t i = 0; i < RDMUX_COUNT_OF(fields); i++) {
        uint32_t value;
        char *at = (char *)to + fields[i].offset;
        memcpy(&value, at, sizeof(value));
        if (value == 0) {
            value = fields[i].standard;
        } else if ((value < fields[i].least || value > fields[i].most) &&
                   (fields[i].also == 0 || value != fields[i].also)) {
            return bad_attr(fields[i].name, fields[i].why);
        }
        memcpy(at, &value, sizeof(value));
    }
    return RDMUX_OK;
}

enum rdmux_status rdmux_ep_attr_check(const struct rdmux_ep_attr *from, struct rdmux_fabric *fabric,
                                      struct rdmux_cq *cq, struct rdmux_ep_attr *to)
{
    struct rdmux_ep_attr all = RDMUX_EP_ATTR_INIT;
    *to = all;
    if (from != NULL) {
        if (from->size < offsetof(struct rdmux_ep_attr, send_depth)) {
            return rdmux_fail(RDMUX_INVALID, "attr.size is %u; use RDMUX_EP_ATTR_INIT", from->size);
        }
        memcpy(to, from, from->size < sizeof(*to) ? from->size : sizeof(*to));
        to->size = sizeof(*to);
    }
    if ((to->flags & ~(uint32_t)RDMUX_EP_SEND_WISH) != 0) {
        return bad_attr("flags", "has unknown bits");
    }
    enum rdmux_status status = check_numbers(to);
    if (status != RDMUX_OK) {
        return status;
    }
    if (to->max_inline != 0 && to->max_inline < RDMUX_INLINE_MIN) {
        to->max_inline = RDMUX_INLINE_MIN;
    } else if (to->max_inline > RDMUX_INLINE_MAX) {
        to->max_inline = RDMUX_INLINE_MAX;
    }
    to->max_send = to->max_send == 0 ? RDMUX_DEFAULT_MAX_MESSAGE : to->max_send;
    to->max_recv = to->max_recv == 0 ? RDMUX_DEFAULT_MAX_MESSAGE : to->max_recv;
    if (to->failover > RDMUX_FAILOVER_ON || to->failback > 1 || to->probe > 1) {
        return bad_attr(to->probe > 1      ? "probe"
                        : to->failback > 1 ? "failback"
                                           : "failover",
                        "is neither 0 nor 1");
    }
    if (to->failback != 0 && to->failover == RDMUX_FAILOVER_OFF) {
        return bad_attr("failback", "is 1 without failover: there is no path to go back from");
    }
    status = rdmux_fabric_check_filter(fabric, "attr.paths", to->paths);
    if (status != RDMUX_OK) {
        return status;
    }
    if ((to->require & ~(uint64_t)RDMUX_CAPS_ALL) != 0 ||
        (to->require_native & ~(uint64_t)RDMUX_CAPS_ALL) != 0) {
        return bad_attr((to->require & ~(uint64_t)RDMUX_CAPS_ALL) != 0 ? "require"
                                                                       : "require_native",
                        "has bits that are no RDMUX_CAP_*");
    }
    if (to->private_length > RDMUX_PRIVATE_DATA_MAX) {
        return bad_attr("private_length", "is above 196");
    }
    if (to->private_length != 0 && to->private_data == NULL) {
        return bad_attr("private_data", "is NULL, private_length is not 0");
    }
    if (to->srq != NULL && to->srq->cq != cq) {
        return bad_attr("srq", "belongs to another cq");
    }
    if (to->local != NULL && strlen(to->local) >= RDMUX_NAME_MAX) {
        return bad_attr("local", "is longer than an address or device name");
    }
    return RDMUX_OK;
}

/* ----------------------------------------------------------------------------------------- life */

enum rdmux_status rdmux_ep_create(struct rdmux_fabric *fabric, struct rdmux_cq *cq,
                                  const struct rdmux_ep_attr *attr, struct rdmux_ep **out)
{
    uint64_t entries = (uint64_t)attr->send_depth + (attr->srq == NULL ? attr->recv_depth : 0);
    enum rdmux_status status = rdmux_cq_reserve(cq, entries);
    if (status != RDMUX_OK) {
        return status;
    }
    struct rdmux_ep *ep = rdmux_allocate(fabric, sizeof(*ep));
    if (ep == NULL) {
        status = rdmux_fail(RDMUX_NO_MEMORY, "endpoint: out of memory");
        goto unreserve;
    }
    ep->secrets = rdmux_secret_allocate(fabric);
    if (ep->secrets == NULL) {
        status = rdmux_fail(RDMUX_NO_MEMORY, "endpoint: out of memory");
        goto release;
    }
    ep->reserved = entries;
    ep->cq = cq;
    ep->fast = cq->fast.none;
    ep->fabric = fabric;
    ep->phase = RDMUX_PHASE_SETUP;
    ep->id = atomic_fetch_add(&fabric->next_id, 1);
    ep->user = attr->user;
    ep->srq = attr->srq;
    rdmux_list_init(&ep->places.cq);
    rdmux_list_init(&ep->join);
    rdmux_list_init(&ep->places.pending);
    rdmux_list_init(&ep->places.busy);
    rdmux_list_init(&ep->places.accepting);
    rdmux_list_init(&ep->places.held);
    rdmux_list_init(&ep->shared.link);
    rdmux_list_init(&ep->shared.holding);
    rdmux_list_init(&ep->imports.all);
    rdmux_list_init(&ep->imports.ready);
    ep->stats.size = sizeof(ep->stats);
    ep->info.size = sizeof(ep->info);
    ep->info.send_depth = attr->send_depth;
    ep->info.recv_depth = attr->srq == NULL ? attr->recv_depth : 0;
    ep->info.max_send_sge = attr->max_send_sge;
    ep->info.max_recv_sge = attr->max_recv_sge;
    status = rdmux_ring_create(fabric, &ep->send, attr->send_depth, attr->max_send_sge,
                               attr->max_inline != 0 ? attr->max_inline : DEFAULT_MAX_INLINE);
    if (status != RDMUX_OK) {
        goto release_secrets;
    }
    if (attr->srq == NULL) {
        status = rdmux_ring_create(fabric, &ep->recv, attr->recv_depth, attr->max_recv_sge, 0);
        if (status != RDMUX_OK) {
            goto destroy_send;
        }
    }
    status = rdmux_cq_enrol(cq, ep);
    if (status != RDMUX_OK) {
        goto destroy_recv;
    }
    if (attr->srq != NULL) {
        attr->srq->ep_count++;
    }
    *out = ep;
    return RDMUX_OK;

destroy_recv:
    rdmux_ring_destroy(fabric, &ep->recv);
destroy_send:
    rdmux_ring_destroy(fabric, &ep->send);
release_secrets:
    rdmux_secret_release(fabric, ep->secrets);
release:
    rdmux_release(fabric, ep);
unreserve:
    rdmux_cq_unreserve(cq, entries);
    return status;
}

/* Writes the phase. An endpoint never returns to an earlier one. */
static void enter_phase(struct rdmux_ep *ep, enum rdmux_ep_phase next)
{
    assert((uint32_t)next >= ep->phase);
    ep->phase = (uint32_t)next;
}

void rdmux_ep_attach(struct rdmux_ep *ep, struct rdmux_provider_ep *path)
{
    ep->path = path;
    ep->ops = path->ops;
    ep->domain = path->cq->domain;
    enter_phase(ep, RDMUX_PHASE_READY);
    ep->has_fast_path = ep->rdmacm == NULL && rdmux_fast_path_is_possible(ep);
    if (ep->rdmacm != NULL && ep->srq == NULL) {
        rdmux_ep_offer_waiting_receives(ep); /* earlier ones were offered before it was connected */
    } else {
        rdmux_ep_offer_all_receives(ep);
    }
}

/* Returns whether the provider has seen the request at this place of the send ring, or a part of
 * it. */
static bool has_started(const struct rdmux_ep *ep, uint64_t at)
{
    return at < ep->send.next ||
           (at == ep->send.next && ep->segments != NULL && ep->segments->given != 0);
}

/* Ends every request that is not done: the oldest send with the cause, all others as flushed.
 * Flushes also later requests that were done out of order, as a success means that every earlier
 * request succeeded. */
static void flush_requests(struct rdmux_ep *ep)
{
    uint32_t cause = ep->end.status == RDMUX_OK || ep->cause.is_told ? RDMUX_FLUSHED
                                                                     : ep->end.status;
    bool failed = false;
    rdmux_failover_end_requests(ep);
    for (uint64_t at = ep->send.tail; at != ep->send.head; at++) {
        struct rdmux_request *request = &ep->send.records[at & ep->send.mask];
        if (request->done && request->status == RDMUX_OK && !failed) {
            continue;
        }
        if (!request->done) {
            request->done = 1;
            request->status = ep->cause.is_in_doubt && has_started(ep, at) ? RDMUX_OUTCOME_UNKNOWN
                                                                           : cause;
            cause = RDMUX_FLUSHED;
        } else if (request->status == RDMUX_OK ||
                   (failed && request->status != RDMUX_OUTCOME_UNKNOWN)) {
            request->status = RDMUX_FLUSHED;
        } else {
            cause = RDMUX_FLUSHED; /* the provider gave the cause to this request */
        }
        failed = true;
    }
    ep->send.next = ep->send.head;
    for (uint64_t at = ep->recv.tail; at != ep->recv.head; at++) {
        struct rdmux_request *request = &ep->recv.records[at & ep->recv.mask];
        if (!request->done) {
            request->done = 1;
            request->status = RDMUX_FLUSHED;
            request->opcode = RDMUX_WC_RECV;
            request->wc_flags = 0;
        }
    }
    ep->recv.next = ep->recv.head;
    rdmux_srq_flush(ep);
}

/* What is counted for a path outside of the core. */
static struct rdmux_provider_figures figures_of(struct rdmux_provider_ep *path)
{
    struct rdmux_provider_figures figures = { .counted = 0 };
    if (path->ops->size > offsetof(struct rdmux_provider_ops, ep_figures) &&
        path->ops->ep_figures != NULL) {
        path->ops->ep_figures(path, &figures);
    }
    return figures;
}

void rdmux_ep_close_path(struct rdmux_ep *ep, struct rdmux_provider_ep *path)
{
    if (ep->failover != NULL) { /* else no further path adds to the sums */
        const struct rdmux_provider_figures figures = figures_of(path);
        ep->stats.retransmissions += figures.retransmissions;
        ep->stats.ecn_marks += figures.ecn_marks;
    }
    if (ep->channel != NULL) {
        rdmux_channel_detach(ep->channel);
    }
    ep->stats.system_calls += path->system_calls;
    path->ops->ep_close(path);
    if (ep->srq != NULL) {
        rdmux_srq_use(ep->srq, ep->negotiated.path_attr.srq, -1);
    }
    rdmux_bounce_close(ep);
    rdmux_segments_close(ep);
    rdmux_cq_domain_leave(path->cq);
    if (ep->srq != NULL) {
        rdmux_srq_leave(ep);
    }
    rdmux_release(ep->fabric, path);
}

static void close_path(struct rdmux_ep *ep)
{
    if (ep->path == NULL) {
        return;
    }
    rdmux_remotes_detach(ep);
    rdmux_ep_close_path(ep, ep->path);
    ep->path = NULL;
}

/* Detaches the endpoint from control channel, joins and revocations, so that nothing reaches it. */
static void leave_control(struct rdmux_ep *ep)
{
    rdmux_joins_remove(ep->fabric, ep);
    rdmux_failover_abandon(ep);
    if (ep->channel != NULL) {
        rdmux_channel_destroy(ep->channel);
        ep->channel = NULL;
    }
    rdmux_peer_leave(ep);
    rdmux_read_drain_leave(ep);
    rdmux_mr_importer_gone(ep->fabric, ep->id);
}

static void finish_end(struct rdmux_ep *ep)
{
    rdmux_ep_unlist_busy(ep);
    flush_requests(ep);
    rdmux_remotes_end(ep);
    close_path(ep);
    leave_control(ep);
    enter_phase(ep, RDMUX_PHASE_ENDED);
    if (!ep->session.is_shutdown_quiet) {
        ep->events |= RDMUX_EVENT_DISCONNECTED;
    }
    rdmux_cq_pend(ep->cq, ep);
    if (rdmux_ep_is_held(ep)) {
        rdmux_ep_linger_anew(ep);
    }
    if ((ep->events & RDMUX_EVENT_LEAVING) != 0) {
        rdmux_cq_raise(ep->cq, RDMUX_SIGNAL_ATTEND); /* for rdmux_cq_send_off() */
    }
}

void rdmux_ep_end_unconnected(struct rdmux_ep *ep, enum rdmux_status status)
{
    ep->end.status = (uint32_t)status;
    flush_requests(ep);
    rdmux_remotes_end(ep);
    leave_control(ep);
    enter_phase(ep, RDMUX_PHASE_ENDED);
}

void rdmux_ep_end_step(struct rdmux_ep *ep)
{
    if (ep->phase != RDMUX_PHASE_ENDING) {
        return;
    }
    struct rdmux_provider_counts counts;
    if (ep->path == NULL || ep->ops->ep_quiesce(ep->path, &counts) != RDMUX_IN_PROGRESS ||
        rdmux_now(ep->fabric) >= ep->end.deadline_ns) {
        finish_end(ep);
    }
}

static void start_ending(struct rdmux_ep *ep)
{
    uint64_t wait_ms = ep->info.liveness_ms == RDMUX_NEVER ? END_DEADLINE_MS : ep->info.liveness_ms;
    enter_phase(ep, RDMUX_PHASE_ENDING);
    ep->end.deadline_ns = rdmux_now(ep->fabric) + wait_ms * 1000000;
    rdmux_ep_unlist_busy(ep); /* to the end of the list, if failover has listed it */
    rdmux_ep_list_busy(ep);
    rdmux_ep_end_step(ep);
    if (ep->phase == RDMUX_PHASE_ENDING) {
        rdmux_ep_timer(ep);
    }
}

/* Returns whether a message waits for a receive: the provider's last request for one found none. */
static bool is_starved(const struct rdmux_ep *ep)
{
    if (ep->fault != RDMUX_OK) {
        return false; /* the path moves no more bytes */
    }
    return ep->srq == NULL ? ep->flow.starved_at == ep->recv.next + 1
                           : !rdmux_list_empty(&ep->shared.link) || ep->shared.offered != 0 ||
                                 ep->shared.wants_receive;
}

/* Returns whether the endpoint may linger: messages that came before the peer closed its endpoint
 * wait for receives, which the program may not have had time to post. With failover a send is done
 * only when received, so none is lost. A channel that shares the path's socket ends with it. */
static bool may_linger(const struct rdmux_ep *ep)
{
    bool closed = ep->session.has_end || rdmux_ep_is_held(ep);
    bool shares = ep->channel != NULL && rdmux_channel_is_attached(ep->channel);
    return ep->end.status == RDMUX_PEER_GONE && closed && ep->failover == NULL && !shares &&
           is_starved(ep);
}

static void end_lingering(struct rdmux_ep *ep)
{
    if (ep->fault != RDMUX_OK &&
        ep->fault != RDMUX_PEER_GONE) { /* such as LENGTH of the last message */
        ep->end.status = ep->fault;
        memcpy(ep->info.text, ep->cause.text, sizeof(ep->info.text));
    }
    start_ending(ep);
}

void rdmux_ep_fail(struct rdmux_ep *ep, enum rdmux_status status, const char *format, ...)
{
    if (ep->phase != RDMUX_PHASE_READY) {
        return;
    }
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(ep->info.text, sizeof(ep->info.text), format, arguments);
    va_end(arguments);
    ep->end.status = (uint32_t)status;
    rdmux_ep_set_in_doubt(ep, ep->cause.is_in_doubt &&
                                  (status == RDMUX_DENIED || status == RDMUX_OUT_OF_RANGE));
    const bool lingers = may_linger(ep);
    enter_phase(ep, lingers ? RDMUX_PHASE_LINGERING : RDMUX_PHASE_ENDING);
    rdmux_ep_cancel_writable(ep);
    rdmux_log(ep->fabric, status == RDMUX_OK ? RDMUX_LOG_DEBUG : RDMUX_LOG_WARN,
              "endpoint %llu: ended with %s: %s", (unsigned long long)ep->id,
              rdmux_status_name(status), ep->info.text);
    rdmux_ep_tell_end(ep);
    rdmux_failover_abandon(ep);
    if (lingers) {
        rdmux_remotes_end(ep);
        leave_control(ep);
        rdmux_ep_linger_anew(ep);
        return;
    }
    start_ending(ep);
}

void rdmux_ep_linger_step(struct rdmux_ep *ep)
{
    if (ep->phase == RDMUX_PHASE_LINGERING && !is_starved(ep)) {
        rdmux_ep_drain_path(ep); /* one poll may not have brought all messages */
        if (!is_starved(ep)) {
            end_lingering(ep);
        }
    }
}

uint64_t rdmux_ep_linger_deadline(const struct rdmux_ep *ep)
{
    return rdmux_ep_lingers(ep) ? ep->flow.linger_deadline_ns : UINT64_MAX;
}

void rdmux_ep_linger_over(struct rdmux_ep *ep)
{
    if (rdmux_ep_is_held(ep)) {
        rdmux_log(ep->fabric, RDMUX_LOG_WARN,
                  "endpoint %llu: it has ended, and nobody has accepted it in time; dropped",
                  (unsigned long long)ep->id);
        rdmux_ep_dismantle(ep);
    } else {
        end_lingering(ep);
    }
}

/* Closes all but the memory. The provider's ep_close never waits. */
void rdmux_ep_dismantle(struct rdmux_ep *ep)
{
    struct rdmux_cq *cq = ep->cq;
    if (ep->phase == RDMUX_PHASE_CLOSED) {
        return;
    }
    if (ep->phase == RDMUX_PHASE_READY) {
        rdmux_ep_tell_end(ep);
    }
    rdmux_failover_abandon(ep);
    ep->fabric->life->leave_set_up(ep);
    enter_phase(ep, RDMUX_PHASE_CLOSED);
    rdmux_fast_path_forget(ep);
    if (ep->path != NULL) {
        struct rdmux_provider_counts counts;
        (void)ep->ops->ep_quiesce(ep->path, &counts);
    }
    close_path(ep);
    rdmux_remotes_release(ep);
    leave_control(ep);
    if (ep->srq != NULL) {
        rdmux_srq_untake_all(ep);
        ep->srq->ep_count--;
        ep->srq = NULL;
    }
    rdmux_cq_unlist(cq, ep);
    ep->events = 0;
    rdmux_cq_strike(cq, ep);
    rdmux_cq_unreserve(cq, ep->reserved);
    rdmux_ep_list_dropped(ep);
}

void rdmux_ep_free(struct rdmux_ep *ep)
{
    rdmux_inbox_clear(ep);
    rdmux_secret_release(ep->fabric, ep->secrets);
    rdmux_ring_destroy(ep->fabric, &ep->send);
    rdmux_ring_destroy(ep->fabric, &ep->recv);
    rdmux_release(ep->fabric, ep->negotiated.candidates);
    rdmux_release(ep->fabric, ep);
}

enum rdmux_status rdmux_ep_close(struct rdmux_ep *ep)
{
    if (ep == NULL) {
        return RDMUX_OK;
    }
    if (!rdmux_cq_enter(ep->cq)) {
        return rdmux_cq_refused(ep->cq, "rdmux_ep_close", "endpoint");
    }
    if (ep->phase == RDMUX_PHASE_CLOSED) {
        rdmux_cq_leave(ep->cq);
        return rdmux_fail(RDMUX_INVALID, "rdmux_ep_close: the endpoint is closed already");
    }
    if ((ep->events & RDMUX_EVENT_CHANGED_CQ) != 0) {
        rdmux_cq_leave(ep->cq);
        return rdmux_fail(RDMUX_INVALID, "rdmux_ep_close: the endpoint is on its way to another "
                                         "cq; close it after RDMUX_WC_MOVED");
    }
    rdmux_ep_dismantle(ep);
    rdmux_ep_list_closed(ep); /* rdmux_ep_user() still works */
    rdmux_cq_leave(ep->cq);
    return RDMUX_OK;
}

/* ---------------------------------------------------------------------------------- information */

static enum rdmux_status enter_open(struct rdmux_ep *ep, const char *call)
{
    if (ep == NULL) {
        return rdmux_fail(RDMUX_INVALID, "%s: ep is NULL", call);
    }
    if (!rdmux_cq_enter(ep->cq)) {
        return rdmux_cq_refused(ep->cq, call, "endpoint");
    }
    if (ep->phase == RDMUX_PHASE_CLOSED) {
        rdmux_cq_leave(ep->cq);
        return rdmux_fail(RDMUX_INVALID, "%s: the endpoint is closed", call);
    }
    return RDMUX_OK;
}

static uint32_t state_of(const struct rdmux_ep *ep)
{
    if (ep->phase == RDMUX_PHASE_SETUP) {
        return RDMUX_EP_CONNECTING;
    }
    if (ep->phase != RDMUX_PHASE_READY) {
        return RDMUX_EP_ENDED;
    }
    return rdmux_failover_is_moving(ep) ? RDMUX_EP_MOVING : RDMUX_EP_CONNECTED;
}

void rdmux_ep_read_info(struct rdmux_ep *ep)
{
    ep->info.state = state_of(ep);
    ep->info.status = ep->end.status;
}

enum rdmux_status rdmux_ep_info(struct rdmux_ep *ep, struct rdmux_ep_info *out)
{
    if (out == NULL || out->size < offsetof(struct rdmux_ep_info, provider)) {
        return rdmux_fail(RDMUX_INVALID,
                          "rdmux_ep_info: out is NULL or without size; use RDMUX_EP_INFO_INIT");
    }
    enum rdmux_status status = enter_open(ep, "rdmux_ep_info");
    if (status != RDMUX_OK) {
        return status;
    }
    uint32_t size = out->size;
    rdmux_ep_read_info(ep);
    memcpy(out, &ep->info, size < sizeof(ep->info) ? size : sizeof(ep->info));
    out->size = size;
    rdmux_cq_leave(ep->cq);
    return RDMUX_OK;
}

void rdmux_ep_read_stats(struct rdmux_ep *ep, struct rdmux_ep_stats *out)
{
    *out = ep->stats;
    out->service_slices = ep->cq->claim.slices;
    if (ep->path != NULL) {
        const struct rdmux_provider_figures figures = figures_of(ep->path);
        out->system_calls += ep->path->system_calls;
        out->counted = figures.counted;
        out->retransmissions += figures.retransmissions;
        out->ecn_marks += figures.ecn_marks;
        out->credits = figures.credits;
    }
}

enum rdmux_status rdmux_ep_stats(struct rdmux_ep *ep, struct rdmux_ep_stats *out)
{
    if (out == NULL || out->size < offsetof(struct rdmux_ep_stats, sends)) {
        return rdmux_fail(RDMUX_INVALID,
                          "rdmux_ep_stats: out is NULL or without size; use RDMUX_EP_STATS_INIT");
    }
    enum rdmux_status status = enter_open(ep, "rdmux_ep_stats");
    if (status != RDMUX_OK) {
        return status;
    }
    struct rdmux_ep_stats stats;
    rdmux_ep_read_stats(ep, &stats);
    uint32_t size = out->size;
    memcpy(out, &stats, size < sizeof(stats) ? size : sizeof(stats));
    out->size = size;
    rdmux_cq_leave(ep->cq);
    return RDMUX_OK;
}

enum rdmux_status rdmux_ep_set_user(struct rdmux_ep *ep, void *user)
{
    enum rdmux_status status = enter_open(ep, "rdmux_ep_set_user");
    if (status == RDMUX_OK) {
        ep->user = user;
        rdmux_cq_leave(ep->cq);
    }
    return status;
}

void *rdmux_ep_user(struct rdmux_ep *ep)
{
    return ep == NULL || *ep->cq->alive == 0 ? NULL : ep->user;
}

enum rdmux_status rdmux_ep_explanation(struct rdmux_ep *ep, struct rdmux_explanation **out)
{
    if (out == NULL) {
        return rdmux_fail(RDMUX_INVALID, "rdmux_ep_explanation: out is NULL");
    }
    *out = NULL;
    enum rdmux_status status = enter_open(ep, "rdmux_ep_explanation");
    if (status != RDMUX_OK) {
        return status;
    }
    enum rdmux_status outcome = ep->phase == RDMUX_PHASE_SETUP
                                    ? RDMUX_IN_PROGRESS
                                    : (enum rdmux_status)ep->negotiated.status;
    *out = rdmux_explanation_create(outcome, ep->negotiated.candidates,
                                    ep->negotiated.candidate_count, ep->info.peer_address);
    rdmux_cq_leave(ep->cq);
    return *out == NULL ? rdmux_fail(RDMUX_NO_MEMORY, "rdmux_ep_explanation: out of memory")
                        : RDMUX_OK;
}

enum rdmux_status rdmux_ep_check_rdmacm(const struct rdmux_ep *ep, const char *call)
{
    if (ep->phase == RDMUX_PHASE_READY && ep->rdmacm != NULL) {
        return RDMUX_OK;
    }
    return rdmux_fail(RDMUX_INVALID, "%s: %s", call,
                      ep->phase == RDMUX_PHASE_SETUP ? "the endpoint is not connected yet"
                      : ep->phase != RDMUX_PHASE_READY
                          ? "the endpoint has ended"
                          : "the endpoint's peer is rdmux; raw keys are for endpoints of rdma:// "
                            "alone, use a token");
}
