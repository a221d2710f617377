/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Imports, from the question on the control channel to the end of their last request. */
#ifndef RDMUX_API_OBJECT_REMOTE_H
#define RDMUX_API_OBJECT_REMOTE_H

#include "api/core/ep.h"
#include "api/core/remote.h"

/* Owner: the path is about to be closed; the remote loses its provider part. */
void rdmux_remote_detach(struct rdmux_remote *remote);
/* Owner: asks the peer to resolve its token. */
void rdmux_remote_ask(struct rdmux_remote *remote);
/* Owner: the peer answered (IMPORTED); the peer revokes a region (REVOKE). */
void rdmux_remote_answered(struct rdmux_ep *ep, const struct rdmux_message *message);
void rdmux_remote_revoked(struct rdmux_ep *ep, uint64_t region, uint32_t number);
/* Owner: ends closed and revoked imports whose requests have drained; true while some have not. */
bool rdmux_remotes_step(struct rdmux_ep *ep);
/* Owner: the path is about to be closed, and another one will follow: imports wait for it, requests may name them. Then: asks the
 * peer to resolve them for that. */
void rdmux_remotes_cut(struct rdmux_ep *ep);
void rdmux_remotes_ask_again(struct rdmux_ep *ep);

#endif
