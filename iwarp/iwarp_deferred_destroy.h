/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Deferred destroy: the queue pair and the id of a connection attempt that the peer has not
 * answered. Until the peer answers or the adapter gives up (soft iWARP: MPAREP_TIMEOUT, 5 s), the
 * kernel keeps both. Destroying them waits for that (siw_destroy_qp(), iw_destroy_cm_id()), and no
 * signal ends the wait. So a thread destroys them, one for each attempt, and the cq's owner goes
 * on.
 */
#ifndef RDMUX_IWARP_DEFERRED_DESTROY_H
#define RDMUX_IWARP_DEFERRED_DESTROY_H

#include <rdma/rdma_cma.h>

struct iwarp_deferred_destroy;
struct verbs_queue;

/* Destroys the queue pair, then the id, and returns the queue's reservation to its unit. Waits for
 * that if the application allows no threads or none can be created. */
void rdmux_iwarp_deferred_destroy_leave(struct iwarp_deferred_destroy **list,
                                        struct verbs_queue *queue, struct rdma_cm_id *id);
/* Removes the finished entries from the list. */
void rdmux_iwarp_deferred_destroy_collect(struct iwarp_deferred_destroy **list);
/* Waits for all entries of the list and removes them. [may sleep] */
void rdmux_iwarp_deferred_destroy_finish(struct iwarp_deferred_destroy **list);

#endif
