/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Shutdown, the orderly end of an endpoint. */
#include "api/session/shutdown.h"

#include "api/core/ep.h"
#include "api/core/failover.h"
#include "api/data/completion.h"
#include "api/data/cq.h"
#include "api/data/post.h"
#include "api/object/control_send.h"
#include "api/object/ep.h"
#include "api/progress/cq_owner.h"
#include "api/progress/endpoint_table.h"
#include "api/session/control.h"
#include "negotiation/control_channel.h"

#include <stdio.h>
#include <string.h>

void rdmux_ep_shutdown_sent(struct rdmux_ep *ep)
{
    ep->session.is_shutdown_sent = true;
}

void rdmux_ep_forget_shutdown_flush(struct rdmux_ep *ep)
{
    if (!ep->session.is_shutdown_sent) {
        ep->session.is_flush_posted = false;
        ep->session.flush_request.done = 0;
    }
}

/* Sends END if the flush shows that all data is placed at the peer; else reports a path failure. */
void rdmux_ep_end_after_flush(struct rdmux_ep *ep)
{
    if (ep->session.flush_request.status == RDMUX_OK) {
        struct rdmux_message message = { .type = RDMUX_FRAME_END, .status = RDMUX_OK };
        rdmux_ep_shutdown_sent(ep);
        rdmux_failover_tell_received(ep);
        rdmux_ep_tell(ep, &message);
    } else if (ep->fault == RDMUX_OK) {
        rdmux_provider_failed(ep->path, (enum rdmux_status)ep->session.flush_request.status,
                              "shutdown: not everything was placed at the peer");
    }
}

bool rdmux_ep_hang_up(struct rdmux_ep *ep)
{
    if (ep->fault == RDMUX_OK && ep->send.next == ep->send.head &&
        rdmux_ep_done_before(ep, ep->send.head)) {
        ep->session.is_shutdown_sent = true;
        ep->rdmacm->hang_up(ep->path);
    }
    return ep->session.is_shutdown_sent;
}

static bool shutdown_has_ended(void *user)
{
    const struct rdmux_ep *ep = user;
    return ep->phase != RDMUX_PHASE_READY && ep->phase != RDMUX_PHASE_ENDING;
}

static enum rdmux_status shut_down(struct rdmux_ep *ep, int timeout_ms)
{
    rdmux_ep_ask_shutdown(ep);
    ep->work |= RDMUX_WORK_CONTROL;
    rdmux_cq_pend(ep->cq, ep);
    rdmux_ep_control_step(ep);
    if (timeout_ms == 0) {
        uint64_t limit_ms = ep->info.liveness_ms == RDMUX_NEVER ? UINT64_MAX / 1000000 / 2
                                                                : ep->info.liveness_ms;
        ep->session.shutdown_deadline_ns = rdmux_now(ep->fabric) + limit_ms * 1000000;
        rdmux_ep_timer(ep);
        return RDMUX_IN_PROGRESS;
    }
    ep->session.is_shutdown_quiet = true;
    enum rdmux_status status = rdmux_cq_wait_until(ep->cq, shutdown_has_ended, ep, timeout_ms);
    if (status == RDMUX_TIMED_OUT) {
        ep->session.is_shutdown_quiet = false;
        rdmux_ep_fail(ep, RDMUX_PEER_GONE, "the peer did not take the shutdown within %d ms",
                      timeout_ms);
        return rdmux_fail(RDMUX_TIMED_OUT,
                          "rdmux_ep_shutdown: the peer did not take everything within %d ms",
                          timeout_ms);
    }
    if (status == RDMUX_OK && ep->end.status != RDMUX_OK) {
        ep->session.is_shutdown_quiet = false;
        ep->events |= RDMUX_EVENT_DISCONNECTED;
        rdmux_cq_pend(ep->cq, ep);
        return rdmux_fail((enum rdmux_status)ep->end.status, "rdmux_ep_shutdown: %s", ep->info.text);
    }
    return status;
}

/* The endpoint ended before the call, by a failure or the peer's shutdown. */
static enum rdmux_status join_end(struct rdmux_ep *ep, int timeout_ms)
{
    if (ep->end.status != RDMUX_OK) {
        return rdmux_fail((enum rdmux_status)ep->end.status,
                          "rdmux_ep_shutdown: the endpoint has ended: %s", ep->info.text);
    }
    if (timeout_ms == 0) {
        bool told = ep->phase == RDMUX_PHASE_ENDED && (ep->events & RDMUX_EVENT_DISCONNECTED) == 0;
        return told ? RDMUX_OK : RDMUX_IN_PROGRESS;
    }
    if (rdmux_cq_wait_until(ep->cq, shutdown_has_ended, ep, timeout_ms) != RDMUX_OK) {
        return rdmux_fail(RDMUX_TIMED_OUT,
                          "rdmux_ep_shutdown: the path did not come to rest within %d ms",
                          timeout_ms);
    }
    ep->events &= ~(uint32_t)RDMUX_EVENT_DISCONNECTED; /* the result of the call reports the end */
    return RDMUX_OK;
}

void rdmux_ep_begin_shutdown(struct rdmux_ep *ep)
{
    if (ep->phase == RDMUX_PHASE_READY && !ep->flow.is_shutdown_asked) {
        (void)shut_down(ep, 0);
    }
}

enum rdmux_status rdmux_ep_shutdown(struct rdmux_ep *ep, int timeout_ms)
{
    if (ep == NULL || timeout_ms < -1) {
        return rdmux_fail(RDMUX_INVALID, "rdmux_ep_shutdown: %s",
                          ep == NULL ? "ep is NULL" : "timeout_ms is below -1");
    }
    if (!rdmux_cq_enter(ep->cq)) {
        return rdmux_cq_refused(ep->cq, "rdmux_ep_shutdown", "endpoint");
    }
    enum rdmux_status status;
    if (ep->phase == RDMUX_PHASE_READY) {
        status = shut_down(ep, timeout_ms);
    } else if (ep->phase == RDMUX_PHASE_LINGERING || ep->phase == RDMUX_PHASE_ENDING ||
               ep->phase == RDMUX_PHASE_ENDED) {
        status = join_end(ep, timeout_ms);
    } else {
        status = rdmux_fail(RDMUX_INVALID, "rdmux_ep_shutdown: the endpoint is not connected");
    }
    rdmux_cq_leave(ep->cq);
    return status;
}
