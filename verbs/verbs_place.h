/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * The queues and SRQs of a cq: the table of places, which the wr_id of a completion names
 * (verbs_ring.h), and the table of queue pair numbers, for completions of an SRQ's receives.
 */
#ifndef RDMUX_VERBS_PLACE_H
#define RDMUX_VERBS_PLACE_H

#include "verbs/verbs_completion.h"
#include "verbs/verbs_queue.h"
#include "verbs/verbs_ring.h"
#include "verbs/verbs_srq.h"

#include <rdmux/provider.h>

#include <stddef.h>
#include <stdint.h>

/* Takes a place in the cq's table for a queue or an SRQ. *id: the part of their wr_ids that names
 * it. */
enum rdmux_status rdmux_verbs_place_take(struct verbs_cq *cq, struct verbs_queue *queue,
                                         struct verbs_srq *srq, uint64_t *id);
void rdmux_verbs_place_give(struct verbs_cq *cq, uint64_t id);
/* Enters a queue, which has a queue pair, by the number of that, and removes it. */
void rdmux_verbs_qpn_enter(struct verbs_queue *queue);
void rdmux_verbs_qpn_leave(struct verbs_queue *queue);

/* Returns the queue that a wr_id names. NULL: the completion outlived its queue pair. [data path] */
static inline struct verbs_queue *verbs_place_queue(const struct verbs_cq *cq, uint64_t wr_id)
{
    uint32_t at = verbs_wr_id_place(wr_id);
    struct verbs_queue *queue = at < cq->place_count ? cq->places[at].queue : NULL;
    return queue != NULL && queue->id == verbs_wr_id_queue(wr_id) ? queue : NULL;
}

/* The same for an SRQ. [data path] */
static inline struct verbs_srq *verbs_place_srq(const struct verbs_cq *cq, uint64_t wr_id)
{
    uint32_t at = verbs_wr_id_place(wr_id);
    struct verbs_srq *srq = at < cq->place_count ? cq->places[at].srq : NULL;
    return srq != NULL && srq->id == verbs_wr_id_queue(wr_id) ? srq : NULL;
}

/* Returns the queue of a queue pair; NULL: there is none. [data path] */
static inline struct verbs_queue *verbs_queue_of_qpn(const struct verbs_cq *cq, uint32_t qpn)
{
    struct verbs_queue *queue = cq->by_qpn[qpn % VERBS_QPN_BUCKETS];
    while (queue != NULL && queue->qp->qp_num != qpn) {
        queue = queue->qpn_next;
    }
    return queue;
}

#endif
