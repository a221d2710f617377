/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Completion queues: polling, sleeping, events of the device. */
#ifndef RDMUX_VERBS_COMPLETION_H
#define RDMUX_VERBS_COMPLETION_H

#include "verbs/verbs_unit.h"

#include <rdmux/provider.h>

#include <infiniband/verbs.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    VERBS_POLL_MAX = 32,     /* completions per ibv_poll_cq() */
    VERBS_UNITS_MAX = 32,    /* device completion queues of one cq */
    VERBS_QPN_BUCKETS = 256, /* buckets of the queue pair number table */
};

struct rdma_event_channel;
struct verbs_ep;
struct verbs_queue;
struct verbs_srq;

/* Bits of verbs_cq.attention and verbs_queue.events; the reader of asynchronous events sets
 * them. */
enum {
    VERBS_EVENT_FATAL = 1 << 0,   /* the queue pair or its completion queue failed */
    VERBS_EVENT_ACCESS = 1 << 1,  /* the device refused an access of the peer */
    VERBS_EVENT_REQUEST = 1 << 2, /* the device refused a request of the peer */
    VERBS_EVENT_ADDRESS = 1 << 3, /* of a cq: the device's addresses have changed */
    VERBS_EVENT_DEVICE = 1 << 4,  /* of a cq: the device is gone */
    VERBS_EVENT_QUEUE = 1 << 5,   /* of a cq: a queue of the cq has events */
};

/* Target of a wr_id: a queue or an SRQ. */
struct verbs_place {
    struct verbs_queue *queue; /* both NULL: free */
    struct verbs_srq *srq;
    uint32_t life;
    uint32_t next_free;
};

struct verbs_cq {
    struct rdmux_provider_cq base;
    struct verbs_unit units[VERBS_UNITS_MAX];
    uint32_t unit_count;
    uint32_t first_unit;  /* polled first; advances by one each time */
    uint32_t stash_count; /* completions found by arm */
    uint32_t stash_next;
    struct ibv_wc stash[VERBS_POLL_MAX];
    struct verbs_place *places;
    uint32_t place_count;
    uint32_t free_place; /* place_count: none */
    struct verbs_queue *by_qpn[VERBS_QPN_BUCKETS];
    /* Work in flight on the fast path when it was closed, see verbs_fast_path.c. */
    uint32_t fast_count;
    uint32_t fast_entry_count;
    struct rdmux_fast_path_entry *fast_entries;
    struct verbs_queue *fast_queue; /* NULL: destroyed */
    /* endpoints with work that no completion will report, by silent_next */
    struct verbs_ep *silent;
    uint32_t silent_polls; /* polls while silent is not empty */
    uint32_t idle_polls;   /* polls since the last completion */
    bool is_armed;         /* a unit may have an event to take */
    struct ibv_comp_channel *channel;
    struct rdma_event_channel *cm_channel; /* the connection manager's; NULL: not needed so far */
    uint32_t cm_connecting; /* connections being established; while not 0, each poll takes events */
    uint32_t cm_polls;
    int epoll;
    int event; /* eventfd: attention was set */
    _Atomic uint32_t attention;
    struct verbs_cq *domain_next;
};

static inline struct verbs_cq *verbs_cq_of(struct rdmux_provider_cq *cq)
{
    return (struct verbs_cq *)cq;
}

enum rdmux_status rdmux_verbs_cq_open(struct rdmux_provider_cq *base, uint32_t depth);
void rdmux_verbs_cq_close(struct rdmux_provider_cq *base);
size_t rdmux_verbs_poll(struct rdmux_provider_cq *base, size_t budget);
enum rdmux_status rdmux_verbs_arm(struct rdmux_provider_cq *base);
int rdmux_verbs_fd(struct rdmux_provider_cq *base);
/* Processes available completions of all queues: all stashed ones, then others up to budget.
 * Returns their number. */
size_t rdmux_verbs_reap(struct verbs_cq *cq, size_t budget);
/* Processes the available completions, up to a limit, before an endpoint takes note of the end of
 * its connection: messages that have arrived belong to the program, and a completion may have the
 * cause. */
void rdmux_verbs_reap_all(struct verbs_cq *cq);
/* verbs_transport.broke for fabrics whose devices finish work in order. */
void rdmux_verbs_broke(struct verbs_queue *queue);

#endif
