/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The orderly end of an endpoint. */
#ifndef RDMUX_API_SESSION_SHUTDOWN_H
#define RDMUX_API_SESSION_SHUTDOWN_H

#include "api/core/ep.h"

/* Owner: the flush of a shutdown is done: tells the peer, or fails. */
void rdmux_ep_end_after_flush(struct rdmux_ep *ep);

#endif
