/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Endpoints: opening, connecting, failing, closing. */
#ifndef RDMUX_TCP_ENDPOINT_H
#define RDMUX_TCP_ENDPOINT_H

#include "api/base/list.h"
#include "providers/credit_scheduler.h"
#include "providers/credits.h"
#include "tcp_fallback/tcp_completion.h"
#include "tcp_fallback/tcp_lane.h"
#include "tcp_fallback/tcp_receive.h"
#include "tcp_fallback/tcp_send.h"

#include <rdmux/provider.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TCP_SOCKETS_MAX = 16,
    TCP_VISIT = 4 << 20, /* bytes moved for one endpoint in one turn */
};

struct tcp_srq;

/* The states of an endpoint, in their order; tcp_state.c. */
enum tcp_state {
    TCP_OPEN,       /* ep_connect was not called yet */
    TCP_CONNECTING, /* ep_connect was called */
    TCP_CONNECTED,
    TCP_FAILED, /* the core was told; only control frames of a shared socket still go out */
    TCP_QUIET,  /* quiesced: no request is accessed any more */
};

/* Number of saved socket options of a shared socket, which are restored when the path closes. */
enum { TCP_OPTIONS = 8 };

struct tcp_ep {
    struct rdmux_provider_ep base;
    enum tcp_state state; /* rdmux_tcp_write_state() alone writes it */
    enum rdmux_role role;
    uint32_t idle_polls;
    uint32_t hot_polls; /* polls since the endpoint became hot */
    bool is_hot;
    bool is_shared; /* the control channel uses the same socket */
    bool is_peer_on_demand;
    bool takes_early;      /* this side takes early messages */
    bool takes_peer_early; /* the peer does */
    bool is_asked;         /* an ASK is sent or due, no credit came since */
    bool is_quiescing;     /* failures are no longer reported to the core */
    uint32_t waits;        /* TCP_WAIT_* of the last refused post */
    uint32_t lane_count;
    uint32_t lanes_ready;
    uint32_t peer_answers;
    uint32_t reserved; /* pooled buffers reserved */
    struct tcp_lane lane0;
    struct tcp_lane *lanes; /* NULL with one socket; else lane_count entries, entry 0 unused */
    struct rdmux_list attention;
    struct rdmux_list out_armed;
    struct rdmux_list paused;
    struct tcp_in in;
    struct tcp_queue unplaced;   /* requests sent with PLACED, not acknowledged */
    struct tcp_queue unanswered; /* reads and atomics */
    struct rdmux_credits_held held;
    struct rdmux_credits_given given;
    struct tcp_srq *srq;
    struct rdmux_credit_user user; /* of the SRQ */
    struct rdmux_provider_counts counts;
    const struct rdmux_provider_ep_attr *attr;
    /* While the endpoint changes its cq: the bytes of its pooled buffers. NULL: none. */
    struct tcp_luggage *luggage;
    uint32_t options_set; /* bits of the saved options */
    bool is_kept_alive;   /* the kernel probes each idle socket within the liveness time */
    int options[TCP_OPTIONS];
    struct tcp_out out;
};

static inline struct tcp_ep *rdmux_tcp_ep(struct rdmux_provider_ep *ep)
{
    return (struct tcp_ep *)ep;
}

static inline struct tcp_cq *rdmux_tcp_cq_of(const struct tcp_ep *ep)
{
    return (struct tcp_cq *)ep->base.cq;
}

static inline struct tcp_lane *rdmux_tcp_lane(struct tcp_ep *ep, uint32_t index)
{
    return index == 0 ? &ep->lane0 : &ep->lanes[index];
}

/* The only writer of lane->is_blocked and of the cq's number of blocked sockets. */
static inline void rdmux_tcp_set_blocked(struct tcp_lane *lane, bool is_blocked)
{
    if (lane->is_blocked != is_blocked) {
        lane->is_blocked = is_blocked;
        rdmux_tcp_cq_of(lane->ep)->blocked += is_blocked ? 1U : UINT32_MAX;
    }
}

/* Schedules the endpoint for the next poll. */
static inline void rdmux_tcp_attend(struct tcp_ep *ep)
{
    if (!rdmux_node_is_listed(&ep->attention)) {
        rdmux_list_append(&rdmux_tcp_cq_of(ep)->attention, &ep->attention);
    }
}

enum rdmux_status rdmux_tcp_ep_open(struct rdmux_provider_ep *base,
                                    const struct rdmux_provider_ep_attr *attr);
enum rdmux_status rdmux_tcp_ep_describe(struct rdmux_provider_ep *base, uint8_t *out, size_t *size);
enum rdmux_status rdmux_tcp_ep_connect(struct rdmux_provider_ep *base, const uint8_t *peer,
                                       size_t size);
enum rdmux_status rdmux_tcp_ep_join(struct rdmux_provider_ep *base, int socket, uint32_t index);
enum rdmux_status rdmux_tcp_ep_quiesce(struct rdmux_provider_ep *base,
                                       struct rdmux_provider_counts *counts);
void rdmux_tcp_ep_close(struct rdmux_provider_ep *base);
/* Ends the endpoint without reading what has come. No request is accessed afterwards. */
void rdmux_tcp_ep_stop(struct tcp_ep *ep);

#endif
