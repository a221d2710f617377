/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Imports of the peer's regions. */
#ifndef RDMUX_API_CORE_REMOTE_H
#define RDMUX_API_CORE_REMOTE_H

#include "api/core/ep.h"

enum rdmux_remote_state {
    RDMUX_REMOTE_ASKING,
    RDMUX_REMOTE_READY,
    RDMUX_REMOTE_DEAD, /* refused, revoked, or the endpoint ended: see status */
};

struct rdmux_remote {
    /* Data path first. For the fast path, see rdmux_fast_path_aim(): */
    struct rdmux_fast_path_target target;
    const void *writer; /* ep if it may write the region now, else another pointer; never NULL */
    /* Every fast-path write from an offset below this ends within the region. */
    uint64_t room;
    struct rdmux_ep *ep;
    struct rdmux_provider_remote *path; /* NULL unless READY */
    uint64_t length;
    uint32_t access;
    uint32_t state;       /* enum rdmux_remote_state; rdmux_remote_enter() writes it */
    bool is_device_scope; /* only another path has atomics on it */
    uint32_t status;
    uint32_t id;
    uint32_t granted; /* answers that the peer counts as imports of this endpoint */
    uint64_t region;
    struct rdmux_token *token;    /* a piece of secrets.c; NULL: raw, or no longer needed */
    struct rdmux_list link;       /* ep->imports.all */
    struct rdmux_list ready_link; /* ep->imports.ready */
    bool is_announced;
    bool is_closed;
    bool is_revoking; /* drains requests, then answers the REVOKE */
    uint32_t revoke_number;
    uint64_t drain_until; /* send-side sequence up to which requests may still use the import */
    /* Null path: value of `path` until failover has resolved the import on the next path. */
    struct rdmux_provider_remote null_path;
};

#endif
