/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The one table of all stages of an endpoint: set-up, control messages, failover, end. */
#include "api/life.h"
#include "api/core/ep.h"
#include "api/core/fabric.h"
#include "api/object/change_cq.h"
#include "api/object/ep.h"
#include "api/session/control.h"

#include "api/failover/failover.h"
#include "api/setup/setup.h"

static void step_endpoint(struct rdmux_ep *ep)
{
    if (ep->phase == RDMUX_PHASE_SETUP) {
        rdmux_ep_setup_step(ep);
    } else if (ep->phase == RDMUX_PHASE_READY) {
        rdmux_failover_step(ep); /* without failover no endpoint is busy in this phase */
    } else {
        rdmux_ep_end_step(ep);
    }
}

static void tend_endpoint(struct rdmux_ep *ep)
{
    if ((ep->work & RDMUX_WORK_CONTROL) != 0) {
        rdmux_ep_control_step(ep);
    }
    if (ep->phase == RDMUX_PHASE_LINGERING) {
        rdmux_ep_linger_step(ep);
    }
    if (ep->failover != NULL) {
        rdmux_failover_step(ep);
    }
}

static void remove_endpoint(struct rdmux_ep *ep)
{
    if (ep->phase != RDMUX_PHASE_CLOSED) {
        rdmux_ep_dismantle(ep);
        return;
    }
    rdmux_failover_destroy(ep);
    rdmux_ep_free(ep);
}

const struct rdmux_life rdmux_life = {
    .step = step_endpoint,
    .tend = tend_endpoint,
    .fault = rdmux_ep_path_fault,
    .control_ready = rdmux_ep_control_ready,
    .leave_set_up = rdmux_ep_setup_destroy,
    .deadline = rdmux_ep_deadline,
    .timers = rdmux_ep_timers,
    .send_off = rdmux_cq_send_off,
    .remove = remove_endpoint,
};
