/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Revocation of a region's remote rights. */
#ifndef RDMUX_API_OBJECT_REVOKE_H
#define RDMUX_API_OBJECT_REVOKE_H

#include "api/core/cq.h"
#include "api/core/fabric.h"
#include "api/core/mail.h"
#include "api/core/mr.h"
#include "api/object/importers.h"

/* Revokes all remote rights. again: the region lives on, its registrations are invalidated, and it
 * gets a fresh key for later exports. */
enum rdmux_status rdmux_mr_take_back(struct rdmux_mr *mr, bool again);
/* Delivers a rdmux_revoke_mail: the endpoint sends the revocation to its peer. */
void rdmux_revoke_deliver(struct rdmux_cq *cq, struct rdmux_mail *mail);
/* Owner: the peer has answered one revocation of the endpoint, or its path is lost, so that no answer
 * counts any more. */
void rdmux_ep_revocation_answered(struct rdmux_ep *ep);
void rdmux_ep_forget_revocations(struct rdmux_ep *ep);

#endif
