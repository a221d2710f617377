/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The regions of a fabric by their ids. fabric->lock is held in all functions. */
#ifndef RDMUX_API_OBJECT_MR_TABLE_H
#define RDMUX_API_OBJECT_MR_TABLE_H

#include "api/core/fabric.h"
#include "api/core/mr.h"

/* Returns the living region with this id, or NULL. */
struct rdmux_mr *rdmux_mr_by_id(struct rdmux_fabric *fabric, uint64_t id);
void rdmux_mr_table_add(struct rdmux_fabric *fabric, struct rdmux_mr *mr);
void rdmux_mr_table_remove(struct rdmux_fabric *fabric, struct rdmux_mr *mr);

#endif
