/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Processes at the other end of endpoints. */
#ifndef RDMUX_API_OBJECT_PEER_PROCESS_H
#define RDMUX_API_OBJECT_PEER_PROCESS_H

#include "api/core/ep.h"
#include "api/core/fabric.h"

enum { RDMUX_HEARTBEAT_GROUP_KEY_SIZE = 24 };

/* A process at the other end: endpoints between the same two share one heartbeat. fabric->lock
 * guards lists and refs. */
struct rdmux_peer_process {
    struct rdmux_list link;
    struct rdmux_list heartbeat_groups;
    uint8_t id[RDMUX_PROCESS_ID_SIZE];
    uint32_t refs;
    _Atomic uint64_t heard_ns; /* last sign of life on any control channel */
};

/* The endpoints that one heartbeat of ours is for. The id is what a peer says of itself, and strangers
 * can learn it: so the address and the identity that it comes with have to be the same, too. */
struct rdmux_heartbeat_group {
    struct rdmux_list link;
    uint32_t refs;
    uint8_t from[RDMUX_HEARTBEAT_GROUP_KEY_SIZE];
    char identity[RDMUX_IDENTITY_MAX];
    _Atomic uint64_t sent_ns; /* the last one */
};

struct rdmux_peer_process *rdmux_peer_get(struct rdmux_fabric *fabric,
                                          const uint8_t id[RDMUX_PROCESS_ID_SIZE]);
void rdmux_peer_put(struct rdmux_fabric *fabric, struct rdmux_peer_process *peer);
/* All of them, of a fabric without endpoints. */
void rdmux_peers_free(struct rdmux_fabric *fabric);
/* The group of an endpoint with a peer and a channel. NULL: no memory. */
struct rdmux_heartbeat_group *rdmux_heartbeat_group_get(struct rdmux_ep *ep);
void rdmux_heartbeat_group_put(struct rdmux_fabric *fabric, struct rdmux_heartbeat_group *group);
/* The endpoint has another control channel, perhaps to another address. */
void rdmux_heartbeat_group_renew(struct rdmux_ep *ep);

#endif
