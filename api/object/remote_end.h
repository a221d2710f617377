/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The end of imports, with their endpoint or its path. Owner. */
#ifndef RDMUX_API_OBJECT_REMOTE_END_H
#define RDMUX_API_OBJECT_REMOTE_END_H

#include "api/core/ep.h"
#include "api/core/remote.h"

/* Writes the state, and why the import has it. A dead import stays dead; a ready one becomes ready
 * again on the endpoint's next path. */
void rdmux_remote_enter(struct rdmux_remote *remote, enum rdmux_remote_state next, uint32_t status);
/* Closes the provider's part of one import, or of all of the endpoint's, before the path closes. */
void rdmux_remote_detach(struct rdmux_remote *remote);
void rdmux_remotes_detach(struct rdmux_ep *ep);
/* Ends all imports with the cause of the endpoint's end, and announces the end of those whose import
 * was promised an event. */
void rdmux_remotes_end(struct rdmux_ep *ep);
/* Frees all imports; their endpoint is closed. */
void rdmux_remotes_release(struct rdmux_ep *ep);

#endif
