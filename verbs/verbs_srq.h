/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Shared receive queues of the device. */
#ifndef RDMUX_VERBS_SRQ_H
#define RDMUX_VERBS_SRQ_H

#include "verbs/verbs_queue.h"

#include <rdmux/provider.h>

#include <infiniband/verbs.h>

#include <stddef.h>
#include <stdint.h>

struct verbs_srq {
    struct rdmux_provider_srq base;
    struct ibv_srq *srq;
    uint64_t id;                     /* in each wr_id */
    struct rdmux_request **requests; /* by slot */
    uint32_t *free_slots;
    struct verbs_headers headers;
    uint32_t free_count;
    uint32_t depth;
    uint32_t max_sge;
    uint32_t units; /* bit n: unit n of the cq has room for the SRQ's receives */
};

static inline struct verbs_srq *verbs_srq_of(struct rdmux_provider_srq *srq)
{
    return (struct verbs_srq *)srq;
}

enum rdmux_status rdmux_verbs_srq_open(struct rdmux_provider_srq *base, uint32_t depth,
                                       uint32_t max_sge);
void rdmux_verbs_srq_close(struct rdmux_provider_srq *base);
enum rdmux_status rdmux_verbs_srq_post_recv(struct rdmux_provider_srq *base,
                                            struct rdmux_request *requests, size_t count);
/* Frees the slot of a receive that completed or failed and returns its request. NULL: the slot has
 * none. */
struct rdmux_request *rdmux_verbs_srq_retire(struct verbs_srq *srq, uint32_t slot);

#endif
