/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Imports, from the IMPORT frame on the control channel to the end of their last request. */
#ifndef RDMUX_API_OBJECT_REMOTE_H
#define RDMUX_API_OBJECT_REMOTE_H

#include "api/core/ep.h"
#include "api/core/remote.h"

/* Owner: begins an import as rdmux_remote_import() does, with a valid token, and does not wait for
 * the answer. announced: RDMUX_WC_REMOTE_READY follows. */
enum rdmux_status rdmux_remote_begin(struct rdmux_ep *ep, const struct rdmux_token *token,
                                     bool announced, struct rdmux_remote **out);
/* Owner: asks the peer to resolve the token. */
void rdmux_remote_ask(struct rdmux_remote *remote);
/* Owner: handle the answer of the peer (IMPORTED) and its revocation of a region (REVOKE). */
void rdmux_remote_answered(struct rdmux_ep *ep, const struct rdmux_message *message);
void rdmux_remote_revoked(struct rdmux_ep *ep, uint64_t region, uint32_t number);
/* Owner: ends closed and revoked imports whose requests have drained. Returns true while some have
 * not drained. */
bool rdmux_remotes_step(struct rdmux_ep *ep);
/* Makes the requests that name an import's resolution on one path name the other one. */
typedef void rdmux_remote_switch_fn(struct rdmux_ep *ep, const struct rdmux_provider_remote *from,
                                    struct rdmux_provider_remote *to);
/* Owner: the path closes and another one will follow. rdmux_remotes_cut() parks the imports on the
 * null path, where requests may still name them. rdmux_remotes_ask_again() asks the peer to resolve
 * them for the new path. */
void rdmux_remotes_cut(struct rdmux_ep *ep, rdmux_remote_switch_fn *switch_requests);
void rdmux_remotes_ask_again(struct rdmux_ep *ep);

#endif
