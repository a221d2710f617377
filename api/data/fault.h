/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Faults of paths, and what their cause means for requests. All functions are the owner's;
 * rdmux_provider_failed() records a fault, too. */
#ifndef RDMUX_API_DATA_FAULT_H
#define RDMUX_API_DATA_FAULT_H

#include "api/core/ep.h"

/* Records a fault of the path, in place of an earlier one. text NULL: none. */
void rdmux_ep_set_fault(struct rdmux_ep *ep, enum rdmux_status status, const char *text);
/* Removes the fault: its path is no longer the endpoint's. */
void rdmux_ep_clear_fault(struct rdmux_ep *ep);
/* The reason for the fault is known, or no longer matters: the peer is not asked for it. */
void rdmux_ep_fault_explained(struct rdmux_ep *ep);
/* Sets whether requests at the provider end with RDMUX_OUTCOME_UNKNOWN. */
void rdmux_ep_set_in_doubt(struct rdmux_ep *ep, bool is_in_doubt);

#endif
