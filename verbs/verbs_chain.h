/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The chain of work requests that goes to the device with one doorbell, and work requests of the
 * library's own. */
#ifndef RDMUX_VERBS_CHAIN_H
#define RDMUX_VERBS_CHAIN_H

#include "verbs/verbs_queue.h"
#include "verbs/verbs_ring.h"

#include <infiniband/verbs.h>

#include <stdbool.h>
#include <stdint.h>

enum {
    VERBS_CHAIN_MAX = 32, /* work requests per doorbell, at most */
};

struct rdmux_request;
struct verbs_ep;

/* Adds a work request to the chain and returns it, zeroed except for wr_id, sg_list and flags. The
 * caller has checked for room. [data path] */
struct ibv_send_wr *rdmux_verbs_chain_add(struct verbs_queue *queue, struct rdmux_request *request,
                                          enum verbs_wish wish);
/* Posts the chain to the device. False: the device did not take it and the endpoint has failed, or
 * the endpoint is not connected. [data path] */
bool rdmux_verbs_chain_ring(struct verbs_queue *queue);
/* Drops the chain, which the device never got and so need not give back. */
void rdmux_verbs_chain_drop(struct verbs_queue *queue);
/* Fails the endpoint because the device did not take a work request. */
void rdmux_verbs_post_failed(struct verbs_ep *ep, int error);
/* Chains a read of the peer's flush word behind all work on the chain. request: completes with the
 * read, or NULL. The caller has checked for room. */
void rdmux_verbs_chain_flush(struct verbs_ep *ep, struct rdmux_request *request,
                             enum verbs_wish wish);
/* Chains a signaled zero-length write (a flush read on devices that lack those). False: no room. */
bool rdmux_verbs_chain_nothing(struct verbs_ep *ep);

/* Chains a read of the peer's flush word over the side channel. The caller has checked for room. */
void rdmux_verbs_chain_side_flush(struct verbs_ep *ep);

/* Adds a piece to the list of the newest work request on the chain. Returns the number of pieces, 1,
 * for the work request's num_sge. [data path] */
static inline int verbs_chain_piece(struct verbs_queue *queue, const void *at, uint32_t length,
                                    uint32_t key)
{
    queue->pieces[queue->piece_count++] = (struct ibv_sge){ .addr = (uintptr_t)at,
                                                            .length = length,
                                                            .lkey = key };
    return 1;
}

#endif
