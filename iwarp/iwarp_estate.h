/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * What an attempt to connect leaves when the peer was asked and has not answered. Until it answers,
 * or the adapter gives it up (soft iWARP: MPAREP_TIMEOUT, 5 s), the kernel keeps both the queue pair
 * and the id: destroying them waits for that (siw_destroy_qp(), iw_destroy_cm_id()), and no signal
 * ends it. So a thread does it, one for each estate, and the cq's owner goes on.
 */
#ifndef RDMUX_IWARP_ESTATE_H
#define RDMUX_IWARP_ESTATE_H

#include "verbs/verbs_internal.h"

#include <rdma/rdma_cma.h>

struct iwarp_estate;

/* Destroys both, the queue pair first; unit gets back what was reserved in it. Without a thread, if the
 * application wants none or none is to be had, the call waits. */
void rdmux_iwarp_estate_leave(struct iwarp_estate **list, struct verbs_queue *queue,
                              struct rdma_cm_id *id);
/* Forgets those of the list that are done. */
void rdmux_iwarp_estate_collect(struct iwarp_estate **list);
/* Waits for all of them. [may sleep] */
void rdmux_iwarp_estate_finish(struct iwarp_estate **list);

#endif
