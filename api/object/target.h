/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The region table, by which providers in software find a region by its key. */
#ifndef RDMUX_API_OBJECT_TARGET_H
#define RDMUX_API_OBJECT_TARGET_H

#include "api/core/fabric.h"
#include "api/core/mr.h"

/* The software target side's table, made and freed with the fabric. */
enum rdmux_status rdmux_region_table_create(struct rdmux_fabric *fabric);
void rdmux_region_table_destroy(struct rdmux_fabric *fabric);
/* Gives mr an index and a fresh random key; fabric->lock is held. */
enum rdmux_status rdmux_region_table_add(struct rdmux_fabric *fabric, struct rdmux_mr *mr);
/* Takes the entry away and waits until no cq's owner is inside the region (hazard, below). Not on
 * the data path, no lock held. */
void rdmux_region_table_remove(struct rdmux_fabric *fabric, struct rdmux_mr *mr);

#endif
