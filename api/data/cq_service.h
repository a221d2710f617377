/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The service thread's work for cqs whose application is away. */
#ifndef RDMUX_API_DATA_CQ_SERVICE_H
#define RDMUX_API_DATA_CQ_SERVICE_H

#include "api/core/cq.h"
#include "api/core/fabric.h"

/* Checks every cq, in a step of the service thread. Returns the time of the next check. step_lock
 * is held. */
uint64_t rdmux_cq_service_step(struct rdmux_fabric *fabric, uint64_t now_ns);
/* Any thread that owns no cq: runs a slice of each cq on which a revocation waits for importers,
 * unless a call is inside the cq. */
void rdmux_cq_service_attend_revocations(struct rdmux_fabric *fabric);
void rdmux_cq_service_add(struct rdmux_cq *cq);
/* Returns once the service thread will not touch the cq again. */
void rdmux_cq_service_remove(struct rdmux_cq *cq);

#endif
