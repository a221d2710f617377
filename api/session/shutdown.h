/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Shutdown: the orderly end of an endpoint. */
#ifndef RDMUX_API_SESSION_SHUTDOWN_H
#define RDMUX_API_SESSION_SHUTDOWN_H

#include "api/core/ep.h"

/* Owner: begins the orderly end of a connected endpoint, as rdmux_ep_shutdown() with timeout 0 does.
 * Does nothing in any other phase. */
void rdmux_ep_begin_shutdown(struct rdmux_ep *ep);
/* Owner: after the flush of a shutdown, sends END to the peer or reports the failure. */
void rdmux_ep_end_after_flush(struct rdmux_ep *ep);
/* Owner: a shutdown was asked of an rdmacm endpoint. Ends the connection once all requests are
 * done. False: not yet. */
bool rdmux_ep_hang_up(struct rdmux_ep *ep);
/* Owner: the peer has been told of the shutdown. */
void rdmux_ep_shutdown_sent(struct rdmux_ep *ep);
/* Owner: the path is lost, so a shutdown that is not sent yet posts its flush again. */
void rdmux_ep_forget_shutdown_flush(struct rdmux_ep *ep);

#endif
