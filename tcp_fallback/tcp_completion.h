/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Completion queues: which sockets a poll reads, and when it asks epoll. */
#ifndef RDMUX_TCP_COMPLETION_H
#define RDMUX_TCP_COMPLETION_H

#include "api/base/list.h"
#include "tcp_fallback/tcp_pool.h"

#include <rdmux/provider.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/epoll.h>

enum {
    TCP_SCRATCH_START = 192,     /* offset modulo 4096, see TCP_BATCH_START */
    TCP_SCRATCH_SIZE = 64 << 10, /* most bytes of one recv */
    TCP_HOT_MAX = 4,             /* hot endpoints: their sockets are read without epoll */
    TCP_HOT_IDLE = 256,          /* polls without a byte after which a hot endpoint cools */
    TCP_SPINNING = 64,           /* polls without arm after which the caller counts as spinning */
    TCP_EPOLL_EVERY = 16,        /* most polls between two calls of epoll_wait() */
    TCP_EVENTS = 64,
    TCP_SHARE = 4, /* budget / TCP_SHARE of a poll is kept for each later stage of the poll */
};

struct tcp_ep;

struct tcp_cq {
    struct rdmux_provider_cq base;
    int epoll;
    uint32_t watched;         /* sockets in epoll */
    uint32_t blocked;         /* sockets that wait for room in the send queue */
    uint32_t unwatched_polls; /* polls since the last epoll_wait() */
    uint32_t epoll_every;     /* polls between two epoll_wait(); fewer if they find events */
    uint32_t found_at;        /* events of the last epoll_wait() that were served */
    uint32_t found_count;
    struct epoll_event found[TCP_EVENTS]; /* data.ptr: the lane; NULL: no longer watched */
    struct tcp_ep *last_found;
    uint32_t unarmed_polls; /* polls since arm */
    bool is_epoll_due;      /* the caller slept: a socket that is not hot may have woken it */
    bool is_armed;          /* the caller may sleep: work must not wait for the next poll */
    bool has_joined;        /* a socket joined: the core has work */
    uint32_t hot_count;
    uint32_t hot_first;
    struct tcp_ep *hot[TCP_HOT_MAX];
    struct rdmux_list attention; /* endpoints to serve at the next poll */
    struct rdmux_list out_armed; /* endpoints with EPOLLOUT on a socket */
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
