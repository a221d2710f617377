/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Importers: the endpoints whose peers have imported a region. */
#ifndef RDMUX_API_OBJECT_IMPORTERS_H
#define RDMUX_API_OBJECT_IMPORTERS_H

#include "api/core/cq.h"
#include "api/core/fabric.h"
#include "api/core/mail.h"
#include "api/core/mr.h"

/* Records the peer's number of an import that is being granted to the endpoint's peer. */
void rdmux_mr_import_granted(struct rdmux_mr *mr, uint64_t ep_id, uint32_t id);
/* The peer has closed `count` imports, the last of which has number `id`. lingers: the device may
 * go on answering reads, so a revocation still checks the endpoint. */
void rdmux_mr_import_closed(struct rdmux_fabric *fabric, uint64_t region, uint64_t ep_id,
                            uint32_t id, uint32_t count, bool lingers);
/* Notes the endpoint as an importer of the region, once, and counts its imports. fabric->lock is
 * held. */
enum rdmux_status rdmux_mr_note_importer(struct rdmux_mr *mr, struct rdmux_cq *cq, uint64_t ep_id);
/* The importer answered revocation `number` of this region. */
void rdmux_mr_revoke_answered(struct rdmux_fabric *fabric, uint64_t region, uint32_t number,
                              uint64_t ep_id);
/* Removes an ended endpoint as importer of all regions; it counts as having answered. */
void rdmux_mr_importer_gone(struct rdmux_fabric *fabric, uint64_t ep_id);
/* fabric->lock is held: the endpoint's importers belong to another cq from now on. */
void rdmux_importers_follow(struct rdmux_fabric *fabric, uint64_t ep_id, struct rdmux_cq *to);
/* Returns whether the peer of this endpoint holds an unrevoked import of a local region with any of
 * these rights. */
bool rdmux_mr_has_importer(struct rdmux_fabric *fabric, uint64_t ep_id, uint32_t access);
/* Starts or stops to wait for the importer's answer. fabric->lock is held. */
void rdmux_importer_set_awaited(struct rdmux_importer *importer, bool is_awaited);
/* Removes the importer from its region and frees it. fabric->lock is held. */
void rdmux_importer_free(struct rdmux_fabric *fabric, struct rdmux_importer *importer);

/* A revocation, or a read drain, for an endpoint that imports. revoke.c allocates and mails it; the
 * function that it is delivered to frees it. */
struct rdmux_revoke_mail {
    struct rdmux_mail mail;
    uint64_t ep_id;
    uint64_t region;
    uint32_t number;
};

#endif
