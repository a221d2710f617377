/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Queue pairs and their states. */
#ifndef RDMUX_VERBS_QUEUE_H
#define RDMUX_VERBS_QUEUE_H

#include "verbs/verbs_macros.h"
#include "verbs/verbs_ring.h"

#include <rdmux/provider.h>

#include <infiniband/verbs.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct verbs_cq;
struct verbs_domain;
struct verbs_ep;
struct verbs_route;
struct verbs_srq;
struct verbs_unit;

/* Buffers for the transport's header of each receive: header_size bytes per slot, the first piece
 * of the receive's scatter/gather list. request->provider[0] is the buffer's address. */
struct verbs_headers {
    uint8_t *bytes; /* NULL: the transport has none */
    size_t size;
    struct ibv_mr *mr;
};

/* Queue pair with the accounting of its work. */
struct verbs_queue {
    struct verbs_ep *ep;
    struct verbs_cq *cq;
    struct verbs_unit *unit;
    struct ibv_qp *qp;       /* NULL: there is none */
    struct ibv_qp_ex *calls; /* the same queue pair for ibv_wr_*(); NULL: it takes lists only */
    uint64_t id;             /* in each wr_id */
    struct verbs_send_ring sent;
    struct verbs_receive_ring receives;
    struct verbs_headers headers;
    /* By slot: whether it holds a read. Only for devices that finish reads behind later work
     * requests; else NULL. */
    bool *is_read;
    struct ibv_send_wr *chain; /* work requests of the next doorbell */
    struct ibv_sge *pieces;
    uint32_t chain_count;
    uint32_t piece_count;
    uint32_t max_send_sge;
    uint32_t max_receive_sge;
    uint32_t max_inline;
    uint32_t reserved;    /* entries in the unit */
    bool is_chain_inline; /* the chain refers to bytes that the caller may change soon */
    _Atomic uint32_t events;
    struct verbs_queue *qpn_next;
};

struct verbs_queue_wish {
    uint32_t send_depth; /* work requests; reduced to what the device takes, at least send_least */
    uint32_t send_least;
    uint32_t receive_depth; /* 0 with an SRQ */
    uint32_t max_send_sge;
    uint32_t max_receive_sge;
    uint32_t max_inline;   /* wanted; the device may grant less */
    uint32_t signal_every; /* see verbs_send_ring */
    struct verbs_srq *srq; /* or NULL */
};

/* Creates a queue pair in state RESET. [may sleep] */
enum rdmux_status rdmux_verbs_queue_open(struct verbs_queue *queue, struct verbs_ep *ep,
                                         const struct verbs_queue_wish *wish);
/* Moves the queue pair from RESET to INIT; receives may then be posted. [may sleep] */
enum rdmux_status rdmux_verbs_queue_init(struct verbs_queue *queue, const struct verbs_route *route);
/* Moves the queue pair from INIT to RTS. qpn, psn: the peer's; our_psn: the first PSN of this end.
 * [may sleep] */
enum rdmux_status rdmux_verbs_queue_connect(struct verbs_queue *queue,
                                            const struct verbs_route *route, uint32_t qpn,
                                            uint32_t psn, uint32_t our_psn);
/* Moves the queue pair to ERR: the device flushes what it holds. No further work may be posted. */
void rdmux_verbs_queue_kill(struct verbs_queue *queue);
/* Returns the number of work requests that the device has not given back. */
uint32_t rdmux_verbs_queue_outstanding(const struct verbs_queue *queue);
/* Detaches the queue pair, which must exist, from the queue. The caller destroys it and gives the
 * reserved entries back to the unit. Late completions of the queue pair are dropped. */
struct ibv_qp *rdmux_verbs_queue_release(struct verbs_queue *queue, uint32_t *reserved);
/* Destroys the queue pair; the device holds nothing afterwards. */
void rdmux_verbs_queue_destroy(struct verbs_queue *queue);
/* Frees the queue's memory; destroys the queue pair if that was not done. */
void rdmux_verbs_queue_close(struct verbs_queue *queue);
/* Allocates headers for count receives, if the transport has headers. [may sleep] */
enum rdmux_status rdmux_verbs_headers_open(struct verbs_headers *headers,
                                           struct verbs_domain *domain, uint32_t count);
void rdmux_verbs_headers_close(struct verbs_headers *headers);
/* Puts the piece of the header, if the transport has one, in front of a receive's list; returns the
 * number of pieces. [data path] */
static inline uint32_t rdmux_verbs_header_piece(const struct verbs_headers *headers,
                                                uint32_t header_size, uint32_t index,
                                                struct rdmux_request *request, struct ibv_sge *out)
{
    if (VERBS_LIKELY(headers->bytes == NULL)) {
        return 0;
    }
    uintptr_t at = (uintptr_t)headers->bytes + (size_t)index * header_size;
    request->provider[0] = at;
    *out = (struct ibv_sge){ .addr = at, .length = header_size, .lkey = headers->mr->lkey };
    return 1;
}

#endif
