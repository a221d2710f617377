/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Processes at the other end of endpoints. */
#ifndef RDMUX_API_OBJECT_PEER_PROCESS_H
#define RDMUX_API_OBJECT_PEER_PROCESS_H

#include "api/core/ep.h"
#include "api/core/fabric.h"

enum { RDMUX_HEARTBEAT_GROUP_KEY_SIZE = 24 };

/* A process at the other end. Endpoints between the same two processes share one heartbeat.
 * fabric->lock guards lists and refs. */
struct rdmux_peer_process {
    struct rdmux_peer_process *next; /* in fabric->peer_buckets */
    struct rdmux_list heartbeat_groups;
    uint8_t id[RDMUX_PROCESS_ID_SIZE];
    uint32_t refs;
    _Atomic uint64_t heard_ns; /* last sign of life on any control channel */
};

/* A heartbeat group: the endpoints that share one heartbeat. Peers report the process id
 * themselves, and others can learn it. So the address and the identity must match, too. */
struct rdmux_heartbeat_group {
    struct rdmux_list link;
    uint32_t refs;
    uint8_t from[RDMUX_HEARTBEAT_GROUP_KEY_SIZE];
    char identity[RDMUX_IDENTITY_MAX];
    _Atomic uint64_t sent_ns; /* when the last heartbeat was sent */
};

/* Frees all peer processes of a fabric without endpoints. */
void rdmux_peers_free(struct rdmux_fabric *fabric);
/* Sets the process at the other end of the endpoint's channel, and the heartbeat group. Returns
 * false if memory is short. */
bool rdmux_peer_join(struct rdmux_ep *ep, const uint8_t id[RDMUX_PROCESS_ID_SIZE]);
/* Leaves both, if the endpoint has them. */
void rdmux_peer_leave(struct rdmux_ep *ep);
/* Moves the endpoint to the heartbeat group of its new control channel, whose address may
 * differ. */
void rdmux_heartbeat_group_renew(struct rdmux_ep *ep);

/* Notes a sign of life of the peer's process, if the peer is rdmux. */
static inline void rdmux_ep_heard(struct rdmux_ep *ep)
{
    if (ep->process.peer != NULL) {
        atomic_store(&ep->process.peer->heard_ns, rdmux_now(ep->fabric));
    }
}

#endif
