/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The region table, in which software providers find a region by its key. */
#ifndef RDMUX_API_OBJECT_TARGET_H
#define RDMUX_API_OBJECT_TARGET_H

#include "api/core/fabric.h"
#include "api/core/mr.h"

/* Create and destroy the table of the software target side, together with the fabric. */
enum rdmux_status rdmux_region_table_create(struct rdmux_fabric *fabric);
void rdmux_region_table_destroy(struct rdmux_fabric *fabric);
/* Gives mr an index and a fresh random key. fabric->lock is held. */
enum rdmux_status rdmux_region_table_add(struct rdmux_fabric *fabric, struct rdmux_mr *mr);
/* Lets no access begin any more, and waits until no cq's owner is inside the region (hazard, see
 * target.c). The key stays. Not on the data path; no lock is held. */
void rdmux_region_table_suspend(struct rdmux_fabric *fabric, struct rdmux_mr *mr);
/* Allows accesses to these bytes of a suspended region. One call for a region at a time. */
void rdmux_region_table_resume(struct rdmux_fabric *fabric, struct rdmux_mr *mr, uint64_t offset,
                               uint64_t length);
/* Removes the entry and waits until no cq's owner is inside the region (hazard, see target.c). Not
 * on the data path; no lock is held. */
void rdmux_region_table_remove(struct rdmux_fabric *fabric, struct rdmux_mr *mr);

#endif
