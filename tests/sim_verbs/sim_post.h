/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Posts: the operations of a context and of a queue pair. */
#ifndef SIM_POST_H
#define SIM_POST_H

#include <stdbool.h>
#include <stdint.h>

struct sim_context;
struct sim_qp;

void sim_fill_operations(struct sim_context *context); /* sets data path operations */
/* ibv_wr_*: sets the requested IBV_QP_EX_WITH_* operations. False: out of memory. */
bool sim_fill_wr_functions(struct sim_qp *qp, uint64_t operations);

#endif
