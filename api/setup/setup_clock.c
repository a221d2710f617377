/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The handshake's clock. */
#include "api/core/ep.h"
#include "api/core/fabric.h"
#include "api/session/setup_state.h"
#include "api/setup/setup.h"

/* The period of the clock checks that detect time in which this side did not run. */
enum { CLOCK_LOOK_NS = 100 * 1000 * 1000 };

uint64_t rdmux_setup_now(struct rdmux_ep *ep)
{
    struct rdmux_setup *setup = ep->setup;
    uint64_t now_ns = rdmux_now(ep->fabric);
    if (ep->phase != RDMUX_PHASE_SETUP) {
        return now_ns; /* failover has its own timeouts */
    }
    if (now_ns > setup->looked_ns + (uint64_t)2 * CLOCK_LOOK_NS) {
        setup->missed_ns += now_ns - setup->looked_ns - CLOCK_LOOK_NS;
    }
    setup->looked_ns = now_ns;
    return now_ns - setup->missed_ns;
}

uint64_t rdmux_setup_handshake_deadline(const struct rdmux_setup *setup)
{
    uint64_t deadline_ns = rdmux_handshake_deadline(setup->handshake);
    if (deadline_ns == UINT64_MAX) {
        return UINT64_MAX;
    }
    deadline_ns += setup->missed_ns;
    uint64_t look_ns = setup->looked_ns + CLOCK_LOOK_NS;
    return look_ns < deadline_ns ? look_ns : deadline_ns;
}
