/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Imports of a peer's regions. */
#ifndef RDMUX_API_CORE_REMOTE_H
#define RDMUX_API_CORE_REMOTE_H

#include "api/core/ep.h"

enum rdmux_remote_state {
    RDMUX_REMOTE_ASKING,
    RDMUX_REMOTE_READY,
    RDMUX_REMOTE_DEAD, /* refused, revoked, or the endpoint ended: status tells */
};

struct rdmux_remote {
    /* Data path first. For the lane, see rdmux_lane_aim(): */
    struct rdmux_lane_target target;
    const void *writer; /* ep, if that may write the region now; never NULL */
    /* From an offset below this every write that a lane takes is within the region. */
    uint64_t room;
    struct rdmux_ep *ep;
    struct rdmux_provider_remote *path; /* NULL unless READY */
    uint64_t length;
    uint32_t access;
    uint32_t state;    /* enum rdmux_remote_state */
    bool device_scope; /* atomics on it are another path's */
    uint32_t status;
    uint32_t id;
    uint32_t granted; /* answers that the peer counts as imports of this endpoint */
    uint64_t region;
    struct rdmux_token *token;    /* a piece of secrets.c's; NULL: raw, or it is needed no more */
    struct rdmux_list link;       /* ep->remotes */
    struct rdmux_list ready_link; /* ep->ready_remotes */
    bool announce;
    bool closed;
    bool revoking; /* drains, then answers */
    uint32_t revoke_number;
    uint64_t drain_until; /* send-side sequence up to which requests may still use it */
    struct rdmux_provider_remote limbo; /* path, while failover has not resolved it anew */
};

#endif
