/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The end of set-up, with or without a path. */
#include "api/base/trace.h"
#include "api/core/ep.h"
#include "api/core/remote.h"
#include "api/failover/failover.h"
#include "api/object/ep.h"
#include "api/object/joins.h"
#include "api/object/remote.h"
#include "api/progress/cq_owner.h"
#include "api/session/liveness.h"
#include "api/session/setup_state.h"
#include "api/setup/setup.h"
#include "negotiation/control_channel.h"
#include "negotiation/explain.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

RDMUX_TRACE_POINT(negotiation_end);

void rdmux_setup_keep_candidates(struct rdmux_ep *ep)
{
    if (ep->setup->handshake == NULL || ep->negotiated.candidates != NULL) {
        return;
    }
    struct rdmux_candidate *all = rdmux_allocate(ep->fabric, RDMUX_MATCH_MAX * sizeof(*all));
    if (all != NULL) {
        ep->negotiated.candidate_count = rdmux_handshake_candidates(ep->setup->handshake, all,
                                                                    RDMUX_MATCH_MAX);
        struct rdmux_candidate *kept = ep->negotiated.candidate_count == 0
                                           ? NULL
                                           : rdmux_allocate(ep->fabric,
                                                            ep->negotiated.candidate_count *
                                                                sizeof(*kept));
        if (kept != NULL) {
            memcpy(kept, all, ep->negotiated.candidate_count * sizeof(*kept));
        } else {
            ep->negotiated.candidate_count = 0;
        }
        ep->negotiated.candidates = kept;
        rdmux_setup_log_verdicts(ep);
        rdmux_release(ep->fabric, all);
    }
}

static void give_back_socket(struct rdmux_ep *ep)
{
    int flags = ep->setup->adopted_flags;
    int nodelay = ep->setup->adopted_nodelay;
    int socket = rdmux_channel_release(ep->channel);
    ep->channel = NULL;
    fcntl(socket, F_SETFL, flags);
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &nodelay,
               sizeof(nodelay)); /* not TCP: nothing was changed */
}

/* Ends what was posted and imported so far, and raises the event if one was promised. */
static void end_unconnected(struct rdmux_ep *ep, enum rdmux_status status)
{
    rdmux_ep_end_unconnected(ep, status);
    if (ep->negotiated.is_announced) {
        ep->events |= RDMUX_EVENT_CONNECTED;
    }
    rdmux_cq_pend(ep->cq, ep);
}

void rdmux_setup_fail(struct rdmux_ep *ep, enum rdmux_status status, const char *text,
                      bool give_back)
{
    struct rdmux_setup *setup = ep->setup;
    if (status == RDMUX_OK || setup == NULL) {
        return;
    }
    rdmux_count(&ep->fabric->counts.setups_failed);
    RDMUX_TRACE2(negotiation_end, ep->id, status);
    rdmux_setup_keep_candidates(ep);
    ep->negotiated.status = (uint32_t)status;
    if (status == RDMUX_REFUSED && setup->handshake != NULL) {
        size_t size = 0;
        const uint8_t *data = rdmux_handshake_reject_data(setup->handshake, &size);
        ep->info.reject_reason = rdmux_handshake_reject_reason(setup->handshake);
        if (data != NULL && size <= sizeof(ep->info.private_data)) {
            memcpy(ep->info.private_data, data, size);
            ep->info.private_length = (uint32_t)size;
        }
    }
    if (status == RDMUX_NO_PATH) {
        rdmux_explain_no_path(ep->negotiated.candidates, ep->negotiated.candidate_count,
                              ep->info.text, sizeof(ep->info.text));
    } else {
        snprintf(ep->info.text, sizeof(ep->info.text), "%s", text);
    }
    rdmux_log_about(ep->fabric, RDMUX_CATEGORY_NEGOTIATION, RDMUX_LOG_WARN,
                    "endpoint %llu: not connected to %s: %s: %s", (unsigned long long)ep->id,
                    setup->target, rdmux_status_name(status), ep->info.text);
    bool dropped = ep->accept.acceptor != NULL;
    rdmux_path_attempt_close(ep);
    if (setup->is_adopted && give_back && status == RDMUX_NO_PATH && ep->channel != NULL) {
        give_back_socket(ep);
    }
    ep->fabric->life->leave_set_up(ep);
    if (dropped) {
        /* the program has no handle of it: the accept call takes any connection */
        rdmux_ep_dismantle(ep);
        return;
    }
    end_unconnected(ep, status);
}

/* Logs the path and, by reason, why each other candidate is not the path. */
static void log_path(struct rdmux_ep *ep)
{
    char others[RDMUX_ERROR_MAX] = "";
    size_t at = 0;
    if (rdmux_hooks_of(ep->fabric)->log_level < RDMUX_LOG_INFO) {
        return;
    }
    for (size_t i = 0; i < ep->negotiated.candidate_count && at < sizeof(others); i++) {
        const struct rdmux_candidate *one = &ep->negotiated.candidates[i];
        if (one->reason != RDMUX_REASON_CHOSEN) {
            int length = snprintf(others + at, sizeof(others) - at, "%s%s%s%s %s",
                                  at == 0 ? "; not " : ", ", one->provider,
                                  one->device[0] != '\0' ? " " : "", one->device,
                                  rdmux_reason_name((enum rdmux_reason)one->reason));
            at += length > 0 ? (size_t)length : 0;
        }
    }
    rdmux_log_about(ep->fabric, RDMUX_CATEGORY_NEGOTIATION, RDMUX_LOG_INFO,
                    "endpoint %llu: %s %s to %s%s", (unsigned long long)ep->id, ep->info.provider,
                    ep->info.device, ep->info.peer_address, others);
}

void rdmux_setup_succeed(struct rdmux_ep *ep)
{
    struct rdmux_setup *setup = ep->setup;
    struct rdmux_provider_ep *path = setup->attempt.path;
    memset(&setup->attempt, 0, sizeof(setup->attempt)); /* the path is the endpoint's now */
    RDMUX_TRACE2(negotiation_end, ep->id, RDMUX_OK);
    log_path(ep);
    rdmux_count(ep->negotiated.role == RDMUX_ROLE_ACCEPT ? &ep->fabric->counts.accepted
                                                         : &ep->fabric->counts.connected);
    struct rdmux_acceptor *acceptor = ep->accept.acceptor;
    ep->accept.acceptor = NULL; /* restored below: kept until rdmux_accept() returns the endpoint */
    if (ep->failover != NULL) {
        rdmux_failover_keep_setup(ep);
    } else {
        ep->fabric->life->leave_set_up(ep);
    }
    ep->accept.acceptor = acceptor;
    rdmux_joins_remove(ep->fabric, ep);
    rdmux_ep_attach(ep, path);
    rdmux_ep_start_liveness(ep);
    if (ep->negotiated.is_announced) {
        ep->events |= RDMUX_EVENT_CONNECTED;
    }
    for (struct rdmux_list *at = ep->imports.all.next; at != &ep->imports.all; at = at->next) {
        struct rdmux_remote *remote = RDMUX_CONTAINER(at, struct rdmux_remote, link);
        if (remote->state == RDMUX_REMOTE_ASKING) {
            rdmux_remote_ask(remote);
        }
    }
    if (ep->accept.acceptor != NULL) {
        ep->accept.is_proved = true;
        ep->accept.acceptor->count(ep->accept.acceptor, 1);
    }
    rdmux_cq_pend(ep->cq, ep);
}
