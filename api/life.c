/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The one table of all stages of an endpoint: set-up, control messages, failover, end. */
#include "api/life.h"
#include "api/core/ep.h"
#include "api/core/fabric.h"
#include "api/object/ep.h"
#include "api/session/control.h"

#include "api/failover/failover.h"
#include "api/setup/rdmacm_endpoint.h"
#include "api/setup/setup.h"

static void step_endpoint(struct rdmux_ep *ep)
{
    if (ep->phase == RDMUX_PHASE_SETUP) {
        rdmux_ep_setup_step(ep);
    } else if (ep->phase == RDMUX_PHASE_READY) {
        rdmux_failover_step(ep);
    } else {
        rdmux_ep_end_step(ep);
    }
}

static bool quiet_endpoint(struct rdmux_ep *ep)
{
    return ep->phase == RDMUX_PHASE_READY && rdmux_failover_quiet(ep);
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

const struct rdmux_life rdmux_life = {
    .step = step_endpoint,
    .quiet = quiet_endpoint,
    .set_up = rdmux_ep_setup_step,
    .negotiate = rdmux_setup_run,
    .fault = rdmux_ep_path_fault,
    .tend = tend_endpoint,
    .linger_anew = rdmux_ep_linger_anew,
    .control_ready = rdmux_ep_control_ready,
    .rdmacm_shutdown = rdmux_rdmacm_shutdown_step,
    .leave_set_up = rdmux_ep_setup_destroy,
    .deadline = rdmux_ep_deadline,
    .timers = rdmux_ep_timers,
    .dismantle = rdmux_ep_dismantle,
    .free = rdmux_ep_free,
};
