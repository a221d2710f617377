/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The state of an endpoint, its failure, and the reports to the core that depend on the state. */
#ifndef RDMUX_VERBS_STATE_H
#define RDMUX_VERBS_STATE_H

#include "verbs/verbs_endpoint.h"
#include "verbs/verbs_macros.h"

#include <rdmux/provider.h>

#include <stdint.h>

/* Moves the endpoint to a later state; an earlier one is an error of the caller. Only this function
 * writes verbs_ep.state, which begins as VERBS_EP_OPEN. */
void rdmux_verbs_ep_enter(struct verbs_ep *ep, enum verbs_ep_state state);
/* Fails the endpoint because its path failed. Only the first call counts. */
void rdmux_verbs_fail(struct verbs_ep *ep, enum rdmux_status status, const char *format, ...)
    RDMUX_PRINTF(3, 4);
/* Reports a request's completion to the core. Once the endpoint is draining or failed without a
 * cause, only successes: the core completes the rest. [data path] */
static inline void rdmux_verbs_report(struct verbs_ep *ep, struct rdmux_request *request,
                                      enum rdmux_status status)
{
    if (VERBS_LIKELY(status == RDMUX_OK || (ep->state < VERBS_EP_DRAINING && !ep->is_unexplained))) {
        rdmux_provider_done(&ep->base, request, (uint32_t)status);
    }
}

#endif
