/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Endpoints: opening, connecting, draining, closing. */
#ifndef RDMUX_VERBS_ENDPOINT_H
#define RDMUX_VERBS_ENDPOINT_H

#include "verbs/verbs_connection.h"
#include "verbs/verbs_domain.h"
#include "verbs/verbs_queue.h"
#include "verbs/verbs_side.h"

#include <rdmux/provider.h>

#include <infiniband/verbs.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct verbs_transport;

enum verbs_ep_state {
    VERBS_EP_OPEN,
    VERBS_EP_CONNECTED,
    VERBS_EP_FAILED,   /* reported by rdmux_provider_failed() */
    VERBS_EP_DRAINING, /* quiesced: the device's outstanding work is counted down */
    VERBS_EP_QUIET,    /* the device holds nothing of the endpoint */
};

/* Progress of draining; verbs_endpoint.c alone uses it. */
struct verbs_drain {
    uint64_t grace_until_ns; /* 0: not begun */
    uint64_t quiet_since_ns; /* time since which the device has given nothing back */
    uint32_t outstanding;    /* outstanding work requests at that time */
};

struct verbs_ep {
    struct rdmux_provider_ep base;
    const struct verbs_transport *transport; /* set before ep_open, or the domain's */
    const struct rdmux_provider_ep_attr *attr;
    enum verbs_ep_state state;
    bool is_blocked; /* post returned AGAIN */
    bool is_silent;  /* on cq->silent */
    /* failed without a cause from the device; the core completes the requests */
    bool is_unexplained;
    struct verbs_queue data;
    uint32_t max_read_sge;
    uint32_t flush_size;  /* bytes that a flush reads */
    uint32_t flushed_end; /* slot after the newest flush read */
    bool is_unflushed;    /* a write or send was posted after that */
    uint32_t reads_end;   /* slot after the newest read or atomic of the device */
    uint32_t fenced_end;  /* slot after the newest request that the device fences */
    /* One buffer per slot: bytes of inline requests that the device does not inline. */
    uint8_t *copies;
    uint32_t copy_size;
    struct ibv_mr *copies_mr;
    struct verbs_ep *silent_next;
    /* Receives that the device's queue has no room for, linked by provider[2]; posted as room
     * appears. */
    struct rdmux_request *held;
    struct rdmux_request *held_last;

    struct verbs_side side;

    struct verbs_connection ours;
    struct verbs_connection theirs;
    uint32_t gid_index[VERBS_ADDRESSES_MAX];
    uint16_t pkey_index[VERBS_PKEYS_MAX];
    uint8_t kind; /* kind of the address in use */
    uint8_t port;
    struct rdmux_provider_counts counts;
    struct verbs_drain drain;
};

static inline struct verbs_ep *verbs_ep_of(struct rdmux_provider_ep *ep)
{
    return (struct verbs_ep *)ep;
}

static inline struct verbs_domain *verbs_domain_of_ep(const struct verbs_ep *ep)
{
    return verbs_domain_of(ep->base.cq->domain);
}
static inline struct rdmux_fabric *verbs_fabric_of_ep(const struct verbs_ep *ep)
{
    return ep->base.cq->domain->fabric;
}

enum rdmux_status rdmux_verbs_ep_open(struct rdmux_provider_ep *base,
                                      const struct rdmux_provider_ep_attr *attr);
enum rdmux_status rdmux_verbs_ep_describe(struct rdmux_provider_ep *base, uint8_t *out,
                                          size_t *size);
enum rdmux_status rdmux_verbs_ep_connect(struct rdmux_provider_ep *base, const uint8_t *peer,
                                         size_t size);
/* Fills in the port's part of our connection data. RDMUX_IO: the port is down. [may sleep] */
enum rdmux_status rdmux_verbs_describe_port(struct verbs_ep *ep);
enum rdmux_status rdmux_verbs_ep_ping(struct rdmux_provider_ep *base);
enum rdmux_status rdmux_verbs_ep_quiesce(struct rdmux_provider_ep *base,
                                         struct rdmux_provider_counts *counts);
void rdmux_verbs_ep_close(struct rdmux_provider_ep *base);

#endif
