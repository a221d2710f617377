/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The side channel: a second queue pair, whose messages carry emulated atomics and the
 * transport's own messages. */
#ifndef RDMUX_VERBS_SIDE_H
#define RDMUX_VERBS_SIDE_H

#include "verbs/verbs_queue.h"

#include <rdmux/provider.h>

#include <infiniband/verbs.h>

#include <stdbool.h>
#include <stdint.h>

enum {
    VERBS_SIDE_OWN = 16, /* first kind of a transport's own side messages */
};

struct verbs_ep;

/* The side channel of an endpoint. */
struct verbs_side {
    struct verbs_queue queue;
    struct ibv_mr *mr;
    uint8_t *messages;
    uint32_t receives;
    uint32_t sends;
    struct rdmux_request *atomics; /* emulated atomics, oldest first, linked by provider[0] */
    struct rdmux_request *atomics_last;
    struct rdmux_request *atomics_unsent; /* the first one not sent yet */
    uint32_t atomic_count;
    uint32_t atomics_sent; /* sent, not answered */
    uint32_t number;       /* number of the next request */
};

enum rdmux_status rdmux_verbs_side_open(struct verbs_ep *ep);
/* Posts the receives; the queue pair is in INIT. */
enum rdmux_status rdmux_verbs_side_start(struct verbs_ep *ep);
void rdmux_verbs_side_close(struct verbs_ep *ep);
/* Queues an atomic that the target's library carries out. The caller has checked that the request
 * need not wait. [data path] */
enum rdmux_status rdmux_verbs_side_atomic(struct verbs_ep *ep, struct rdmux_request *request);
/* Sends the queued atomics that may go now. [data path] */
void rdmux_verbs_side_push(struct verbs_ep *ep);
/* Sends a message of the transport's own: VERBS_SIDE_SIZE bytes, the first one at least
 * VERBS_SIDE_OWN. The transport keeps at most verbs_transport.side_own of them in flight. [data
 * path] */
void rdmux_verbs_side_send(struct verbs_ep *ep, const uint8_t *message);
/* True if a message of the transport's own may be sent now. Room returns when an earlier message
 * completes. */
bool rdmux_verbs_side_has_room(const struct verbs_ep *ep);
/* verbs_transport.side_message for fabrics without own messages: the peer breaks the protocol. */
void rdmux_verbs_no_side_message(struct verbs_ep *ep, const uint8_t *message);
/* Handles a side message in the receive of a slot. [data path] */
void rdmux_verbs_side_received(struct verbs_ep *ep, uint32_t slot, const struct ibv_wc *wc);

#endif
