/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Completion queues: which sockets a poll reads, and when it asks the poller. */
#ifndef RDMUX_TCP_COMPLETION_H
#define RDMUX_TCP_COMPLETION_H

#include "api/base/list.h"
#include "api/system/system.h"
#include "tcp_fallback/tcp_pool.h"

#include <rdmux/provider.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TCP_SCRATCH_START = 192,     /* offset modulo 4096, see TCP_BATCH_START */
    TCP_SCRATCH_SIZE = 64 << 10, /* most bytes of one recv */
    TCP_HOT_MAX = 4,             /* hot endpoints: their sockets are read without the poller */
    TCP_HOT_IDLE = 256,          /* polls without a byte after which a hot endpoint cools */
    TCP_SPINNING = 64,           /* polls without arm after which the caller counts as spinning */
    TCP_POLLER_EVERY = 16,       /* most polls between two waits of the poller */
    TCP_EVENTS = 64,
    TCP_SHARE = 4, /* budget / TCP_SHARE of a poll is kept for each later stage of the poll */
};

struct tcp_ep;

struct tcp_cq {
    struct rdmux_provider_cq base;
    int poller;
    uint32_t watched;         /* sockets in the poller */
    uint32_t blocked;         /* sockets that wait for room in the send queue */
    uint32_t unwatched_polls; /* polls since the poller was last asked */
    uint32_t poller_every;    /* polls between two times; fewer if events are found */
    uint32_t found_at;        /* events of the last time that were served */
    uint32_t found_count;
    struct rdmux_ready found[TCP_EVENTS]; /* data: the lane; NULL: no longer watched */
    struct tcp_ep *last_found;
    uint32_t unarmed_polls; /* polls since arm */
    bool is_poller_due;     /* the caller slept: a socket that is not hot may have woken it */
    bool is_armed;          /* the caller may sleep: work must not wait for the next poll */
    bool has_joined;        /* a socket joined: the core has work */
    uint32_t hot_count;
    uint32_t hot_first;
    struct tcp_ep *hot[TCP_HOT_MAX];
    struct rdmux_list attention; /* endpoints to serve at the next poll */
    struct rdmux_list out_armed; /* endpoints with RDMUX_READY_OUT on a socket */
    struct rdmux_list paused;    /* endpoints that do not read socket 0 now */
    struct tcp_pool pool;
    void *memory;     /* allocation that holds scratch and waste */
    uint8_t *scratch; /* TCP_HEADER_MAX + TCP_SCRATCH_SIZE bytes; parsed in place */
    uint8_t *waste;   /* TCP_SCRATCH_SIZE bytes, not read after a call */
};

static inline struct tcp_cq *rdmux_tcp_cq(struct rdmux_provider_cq *cq)
{
    return (struct tcp_cq *)cq;
}

enum rdmux_status rdmux_tcp_cq_open(struct rdmux_provider_cq *base, uint32_t depth);
void rdmux_tcp_cq_close(struct rdmux_provider_cq *base);
size_t rdmux_tcp_poll(struct rdmux_provider_cq *base, size_t budget);
enum rdmux_status rdmux_tcp_arm(struct rdmux_provider_cq *base);
int rdmux_tcp_fd(struct rdmux_provider_cq *base);

#endif
