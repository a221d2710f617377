/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The calls that make endpoints on this side's initiative: connect, adopt. */
#include "api/core/cq.h"
#include "api/core/ep.h"
#include "api/core/fabric.h"
#include "api/data/cq.h"
#include "api/object/ep.h"
#include "api/progress/cq_owner.h"
#include "api/setup/last_explanation.h"
#include "api/setup/rdmacm_endpoint.h"
#include "api/setup/setup.h"
#include "negotiation/auth.h"
#include "negotiation/explain.h"

#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

/* ------------------------------------------------------------------------------------- outcomes */

static bool setup_is_over(void *user)
{
    const struct rdmux_ep *ep = user;
    return ep->phase != RDMUX_PHASE_SETUP;
}

/* Converts a failed set-up to the status and texts of the call that made the endpoint. */
static enum rdmux_status give_up(struct rdmux_ep *ep, const char *call)
{
    enum rdmux_status status = ep->end.status == RDMUX_OK ? RDMUX_PEER_GONE
                                                          : (enum rdmux_status)ep->end.status;
    char text[RDMUX_TEXT_MAX];
    snprintf(text, sizeof(text), "%s", ep->info.text);
    if (status == RDMUX_NO_PATH) {
        rdmux_set_last_explanation(rdmux_explanation_create(status, ep->negotiated.candidates,
                                                            ep->negotiated.candidate_count,
                                                            ep->info.peer_address));
        char all[RDMUX_ERROR_MAX];
        rdmux_explain_no_path(ep->negotiated.candidates, ep->negotiated.candidate_count, all,
                              sizeof(all));
        rdmux_ep_dismantle(ep);
        return rdmux_fail(status, "%s: %s", call, all);
    }
    rdmux_ep_dismantle(ep);
    return rdmux_fail(status, "%s: %s", call, text);
}

enum rdmux_status rdmux_setup_finish_call(struct rdmux_ep *ep, const char *call, int timeout_ms,
                                          struct rdmux_ep **out)
{
    if (timeout_ms == 0) {
        if (ep->phase == RDMUX_PHASE_SETUP) {
            ep->negotiated.is_announced = true;
            *out = ep;
            return RDMUX_IN_PROGRESS;
        }
        if (rdmux_ep_was_connected(ep)) {
            *out = ep;
            return RDMUX_OK;
        }
        return give_up(ep, call);
    }
    enum rdmux_status status = rdmux_cq_wait_until(ep->cq, setup_is_over, ep, timeout_ms);
    if (status == RDMUX_OK && rdmux_ep_was_connected(ep)) {
        *out = ep; /* the endpoint may have ended already: its event tells */
        return RDMUX_OK;
    }
    if (status == RDMUX_OK) {
        return give_up(ep, call);
    }
    char stage[RDMUX_TEXT_MAX];
    rdmux_ep_setup_stage(ep, stage, sizeof(stage));
    rdmux_ep_dismantle(ep);
    return status == RDMUX_TIMED_OUT
               ? rdmux_fail(status, "%s: not connected within %d ms; it was %s", call, timeout_ms,
                            stage)
               : status;
}

/* ------------------------------------------------------------------------------- connect, adopt */

enum rdmux_status rdmux_setup_check_call(const char *call, struct rdmux_fabric *fabric,
                                         struct rdmux_cq *cq, const struct rdmux_ep_attr *attr,
                                         int timeout_ms, struct rdmux_ep_attr *all)
{
    if (fabric == NULL || cq == NULL || cq->fabric != fabric || timeout_ms < -1) {
        return rdmux_fail(RDMUX_INVALID, "%s: %s", call,
                          fabric == NULL    ? "fabric is NULL"
                          : cq == NULL      ? "cq is NULL"
                          : timeout_ms < -1 ? "timeout_ms is below -1"
                                            : "cq belongs to another fabric");
    }
    if (*fabric->alive == 0) {
        return rdmux_fail(RDMUX_INVALID, "%s: the process forked; the cq belongs to the parent",
                          call);
    }
    rdmux_set_last_explanation(NULL);
    enum rdmux_status status = rdmux_ep_attr_check(attr, fabric, cq, all);
    return status == RDMUX_OK ? rdmux_check_local(fabric, call, all->local) : status;
}

enum rdmux_status rdmux_setup_check_out(const char *call, struct rdmux_ep **out)
{
    if (out == NULL) {
        return rdmux_fail(RDMUX_INVALID, "%s: out is NULL", call);
    }
    *out = NULL;
    return RDMUX_OK;
}

enum rdmux_status rdmux_setup_check_failover(const char *call, const struct rdmux_ep_attr *attr,
                                             const char *without)
{
    if (attr->failover == RDMUX_FAILOVER_OFF) {
        return RDMUX_OK;
    }
    if (without != NULL) {
        return rdmux_fail(RDMUX_UNSUPPORTED,
                          "%s: attr.failover is not possible with %s; leave it 0", call, without);
    }
    return RDMUX_OK;
}

enum rdmux_status rdmux_setup_make_endpoint(struct rdmux_fabric *fabric, struct rdmux_cq *cq,
                                            const struct rdmux_ep_attr *attr, const char *paths,
                                            bool rdmacm, int timeout_ms, struct rdmux_ep **out)
{
    struct rdmux_ep *ep;
    struct rdmux_ep_attr offered = *attr;
    enum rdmux_status status = rdmux_ep_create(fabric, cq, attr, &ep);
    if (status != RDMUX_OK) {
        return status;
    }
    /* until the path is known */
    ep->limits.max_inline = attr->max_inline != 0 ? attr->max_inline : RDMUX_INLINE_MIN;
    ep->info.max_inline = (uint32_t)ep->limits.max_inline;
    if (rdmacm) {
        offered.local = NULL; /* the route determines the device */
    }
    status = rdmux_ep_setup_create(ep, &offered, paths, timeout_ms);
    if (status != RDMUX_OK) {
        rdmux_ep_dismantle(ep);
        return status;
    }
    if (rdmacm) {
        rdmux_rdmacm_begin(ep, attr);
    }
    *out = ep;
    return RDMUX_OK;
}

enum rdmux_status rdmux_connect(struct rdmux_fabric *fabric, struct rdmux_cq *cq,
                                const char *address, const struct rdmux_ep_attr *attr,
                                int timeout_ms, struct rdmux_ep **out)
{
    struct rdmux_ep_attr all = RDMUX_EP_ATTR_INIT;
    enum rdmux_status status = rdmux_setup_check_out("rdmux_connect", out);
    if (status == RDMUX_OK) {
        status = rdmux_setup_check_call("rdmux_connect", fabric, cq, attr, timeout_ms, &all);
    }
    if (status == RDMUX_OK) {
        status = rdmux_setup_check_failover(
            "rdmux_connect", &all,
            address != NULL && rdmux_rdmacm_address(address) != NULL
                ? "an address of rdma://, which has no control channel"
                : NULL);
    }
    if (status != RDMUX_OK) {
        return status;
    }
    if (!rdmux_cq_enter(cq)) {
        return rdmux_cq_refused(cq, "rdmux_connect", "cq");
    }
    struct rdmux_ep *ep;
    status = rdmux_setup_make_endpoint(fabric, cq, &all, NULL,
                                       rdmux_rdmacm_address(address) != NULL, timeout_ms, &ep);
    if (status == RDMUX_OK) {
        status = rdmux_ep_start_connect(ep, address);
        if (status != RDMUX_OK) {
            rdmux_ep_dismantle(ep);
        } else {
            status = rdmux_setup_finish_call(ep, "rdmux_connect", timeout_ms, out);
        }
    }
    rdmux_cq_leave(cq);
    return status;
}

static enum rdmux_status check_socket(int socket, enum rdmux_role role)
{
    int type = 0;
    socklen_t length = sizeof(type);
    if (role != RDMUX_ROLE_CONNECT && role != RDMUX_ROLE_ACCEPT) {
        return rdmux_fail(RDMUX_INVALID,
                          "rdmux_adopt: role %d is not RDMUX_ROLE_CONNECT or RDMUX_ROLE_ACCEPT",
                          (int)role);
    }
    if (getsockopt(socket, SOL_SOCKET, SO_TYPE, &type, &length) != 0 || type != SOCK_STREAM) {
        return rdmux_fail(RDMUX_INVALID, "rdmux_adopt: socket %d is not a stream socket", socket);
    }
    struct sockaddr_storage peer;
    length = sizeof(peer);
    if (getpeername(socket, (struct sockaddr *)&peer, &length) != 0) {
        return rdmux_fail(RDMUX_INVALID, "rdmux_adopt: socket %d is not connected", socket);
    }
    return RDMUX_OK;
}

/* A program's socket has no host name to compare a certificate with. */
static enum rdmux_status check_who_answers(const struct rdmux_fabric *fabric, enum rdmux_role role)
{
    if (role == RDMUX_ROLE_CONNECT && rdmux_auth_needs_host(fabric->auth)) {
        return rdmux_fail(RDMUX_INVALID,
                          "rdmux_adopt: with certificates and no auth.peers everybody with a "
                          "certificate of the authority could answer, since no host was dialled; "
                          "name in auth.peers who may");
    }
    return RDMUX_OK;
}

enum rdmux_status rdmux_adopt(struct rdmux_fabric *fabric, struct rdmux_cq *cq, int socket,
                              enum rdmux_role role, const struct rdmux_ep_attr *attr,
                              int timeout_ms, struct rdmux_ep **out)
{
    struct rdmux_ep_attr all = RDMUX_EP_ATTR_INIT;
    enum rdmux_status status = rdmux_setup_check_out("rdmux_adopt", out);
    if (status == RDMUX_OK) {
        status = check_socket(socket, role);
    }
    if (status == RDMUX_OK) {
        status = rdmux_setup_check_call("rdmux_adopt", fabric, cq, attr, timeout_ms, &all);
    }
    if (status == RDMUX_OK) {
        status = check_who_answers(fabric, role);
    }
    if (status == RDMUX_OK) {
        status = rdmux_setup_check_failover("rdmux_adopt", &all,
                                            "an adopted socket, in this version of rdmux");
    }
    if (status != RDMUX_OK) {
        if (status != RDMUX_INVALID) {
            close(socket);
        }
        return status;
    }
    if (!rdmux_cq_enter(cq)) {
        return rdmux_cq_refused(cq, "rdmux_adopt", "cq");
    }
    struct rdmux_ep *ep;
    status = rdmux_setup_make_endpoint(fabric, cq, &all, NULL, false, timeout_ms, &ep);
    if (status != RDMUX_OK) {
        if (status != RDMUX_INVALID) {
            close(socket);
        }
    } else {
        status = rdmux_ep_start_adopt(ep, socket, role);
        if (status != RDMUX_OK) {
            rdmux_ep_dismantle(ep);
        } else {
            status = rdmux_setup_finish_call(ep, "rdmux_adopt", timeout_ms, out);
        }
    }
    rdmux_cq_leave(cq);
    return status;
}
