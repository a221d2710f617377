/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Revocation of a region's remote rights. */
#ifndef RDMUX_API_OBJECT_REVOKE_H
#define RDMUX_API_OBJECT_REVOKE_H

#include "api/core/cq.h"
#include "api/core/fabric.h"
#include "api/core/mail.h"
#include "api/core/mr.h"

/* The endpoint's peer is told of the import, by this number of its own. */
void rdmux_mr_import_granted(struct rdmux_mr *mr, uint64_t ep_id, uint32_t id);
/* The peer has closed so many of them, the last of which has this number. lingers: its device may go
 * on answering reads, so the endpoint is still looked at when rights are taken back. */
void rdmux_mr_import_closed(struct rdmux_fabric *fabric, uint64_t region, uint64_t ep_id,
                            uint32_t id, uint32_t count, bool lingers);
/* Notes that the endpoint imports the region, once. fabric->lock is held. */
enum rdmux_status rdmux_mr_note_importer(struct rdmux_mr *mr, struct rdmux_cq *cq, uint64_t ep_id);
/* Takes all remote rights back; again: the region lives on, its registrations are invalidated, and it
 * has a fresh key for later exports. */
enum rdmux_status rdmux_mr_take_back(struct rdmux_mr *mr, bool again);
/* The importer answered revocation `number` of region id. */
void rdmux_mr_revoke_answered(struct rdmux_fabric *fabric, uint64_t region, uint32_t number,
                              uint64_t ep_id);
/* An endpoint has ended: it imports nothing and answers nothing any more. */
void rdmux_mr_importer_gone(struct rdmux_fabric *fabric, uint64_t ep_id);
/* Has the peer of this endpoint imported a region of ours with any of these rights, which was not revoked since? */
bool rdmux_mr_has_importer(struct rdmux_fabric *fabric, uint64_t ep_id, uint32_t access);
/* A revocation for an endpoint to send to its peer. Allocated and delivered by revoke.c. */
struct rdmux_revoke_mail {
    struct rdmux_mail mail;
    uint64_t ep_id;
    uint64_t region;
    uint32_t number;
};
void rdmux_revoke_deliver(struct rdmux_cq *cq, struct rdmux_mail *mail);

#endif
