/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "api/session/setup_state.h"
#include "api/core/ep.h"
#include "api/core/fabric.h"
#include "api/data/fault.h"
#include "api/data/srq.h"
#include "api/progress/cq_domain.h"

#include "api/data/bounce.h"
#include "api/data/segments.h"
#include "negotiation/control_channel.h"
#include "negotiation/handshake.h"

#include <assert.h>
#include <string.h>

void rdmux_setup_enter(struct rdmux_setup *setup, enum setup_stage next)
{
    assert(next >= setup->stage);
    setup->stage = next;
}

void rdmux_path_attempt_close(struct rdmux_ep *ep)
{
    struct rdmux_path_attempt *attempt = &ep->setup->attempt;
    if (attempt->path == NULL) {
        memset(attempt, 0,
               sizeof(*attempt)); /* a device that is still being opened comes too late */
        return;
    }
    const struct rdmux_provider_ops *ops = attempt->path->ops;
    struct rdmux_provider_counts counts;
    (void)ops->ep_quiesce(attempt->path, &counts);
    if (attempt->remote != NULL) {
        ops->remote_close(attempt->remote);
        rdmux_release(ep->fabric, attempt->remote);
    }
    if (ep->channel != NULL) {
        rdmux_channel_detach(ep->channel);
    }
    ops->ep_close(attempt->path);
    if (ep->srq != NULL) {
        rdmux_srq_use(ep->srq, ep->negotiated.path_attr.srq, -1);
    }
    rdmux_cq_domain_leave(attempt->path->cq);
    if (ep->path == attempt->path) { /* of an rdma:// endpoint, see rdmacm_endpoint.c */
        rdmux_bounce_close(ep);
        rdmux_segments_close(ep);
        ep->path = NULL;
    }
    rdmux_release(ep->fabric, attempt->path);
    rdmux_release(ep->fabric, attempt->measuring);
    memset(attempt, 0, sizeof(*attempt));
    rdmux_ep_clear_fault(ep); /* the fault belonged to the attempt */
    rdmux_ep_fault_explained(ep);
}

void rdmux_setup_release_secrets(struct rdmux_fabric *fabric, struct rdmux_setup *setup)
{
    rdmux_handshake_wipe(setup->handshake_memory);
    rdmux_release(fabric, setup->handshake_memory);
    if (setup->offer != NULL) {
        rdmux_release_wiped(fabric, setup->offer, rdmux_offer_used(setup->offer));
    }
}
