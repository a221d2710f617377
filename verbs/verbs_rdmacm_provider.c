/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The tables of rdma:// endpoints, for all fabrics of the plug-in: a way to a peer, or a listener,
 * may lead over a device of any of them. */
#include "verbs/verbs_completion.h"
#include "verbs/verbs_connection.h"
#include "verbs/verbs_rdmacm.h"
#include "verbs/verbs_receive.h"
#include "verbs/verbs_send.h"
#include "verbs/verbs_side.h"
#include "verbs/verbs_transport.h"

#define VERBS_RDMACM_TRANSPORT                                                       \
    .request_slots = 2, /* a write, and a read of its last byte */                   \
        .read_slots = 1, .lacks_side = true, .flush_size = 1, .lacks_word = true,    \
    .holds = rdmux_verbs_rdmacm_holds, .start = rdmux_verbs_rdmacm_start,            \
    .sent = rdmux_verbs_sent, .received = rdmux_verbs_received,                      \
    .receive_failed = rdmux_verbs_rdmacm_receive_failed, .broke = rdmux_verbs_broke, \
    .side_message = rdmux_verbs_no_side_message

static const struct verbs_transport ib_transport = {
    VERBS_RDMACM_TRANSPORT,
    .name = "ib",
    .fabric_name = "InfiniBand",
    .fabric = VERBS_FABRIC_IB,
    .request_refused = RDMUX_PROTOCOL,
};

static const struct verbs_transport roce_transport = {
    VERBS_RDMACM_TRANSPORT,
    .name = "roce",
    .fabric_name = "RoCE",
    .fabric = VERBS_FABRIC_ROCE,
    .request_refused = RDMUX_PROTOCOL,
};

static enum rdmux_status ib_open(struct rdmux_provider_ep *base,
                                 const struct rdmux_provider_ep_attr *attr)
{
    return rdmux_verbs_rdmacm_ep_open(&ib_transport, base, attr);
}

static enum rdmux_status roce_open(struct rdmux_provider_ep *base,
                                   const struct rdmux_provider_ep_attr *attr)
{
    return rdmux_verbs_rdmacm_ep_open(&roce_transport, base, attr);
}

static const struct rdmux_provider_ops ib_endpoints = {
    VERBS_RDMACM_TABLE,
    .name = "ib",
    .ep_size = sizeof(struct verbs_rdmacm_ep),
    .ep_open = ib_open,
};

static const struct rdmux_provider_ops roce_endpoints = {
    VERBS_RDMACM_TABLE,
    .name = "roce",
    .ep_size = sizeof(struct verbs_rdmacm_ep),
    .ep_open = roce_open,
};

/* ---------------------------------------------------------------------------------- connections */

static const struct rdmux_rdmacm_ops *ops_of(uint8_t fabric)
{
    switch (fabric) {
    case VERBS_FABRIC_IB:
        return &rdmux_ib_rdmacm;
    case VERBS_FABRIC_ROCE:
        return &rdmux_roce_rdmacm;
    case VERBS_FABRIC_IWARP:
        return &rdmux_iwarp_rdmacm;
    default:
        return NULL;
    }
}

static enum rdmux_status dial_peer(struct rdmux_fabric *fabric,
                                   const struct rdmux_rdmacm_wish *wish,
                                   struct rdmux_rdmacm_call **out)
{
    return rdmux_verbs_rdmacm_dial(fabric, wish, ops_of, out);
}

static enum rdmux_status listen_at(struct rdmux_fabric *fabric, const struct sockaddr *address,
                                   uint32_t backlog, struct rdmux_rdmacm_listener **out)
{
    enum rdmux_status status = rdmux_verbs_rdmacm_listen(fabric, address, backlog, ops_of, out);
    if (status == RDMUX_OK) {
        (*out)->ops = &rdmux_roce_rdmacm; /* any of them: all have the same listener operations */
    }
    return status;
}

/* clang-format off */
#define VERBS_RDMACM_OPS                                                            \
    .size = sizeof(struct rdmux_rdmacm_ops),                                        \
    .dial = dial_peer,                                                              \
    .listen = listen_at,                                                            \
    .unlisten = rdmux_verbs_rdmacm_unlisten,                                        \
    .listener_fd = rdmux_verbs_rdmacm_listener_fd,                                  \
    .next = rdmux_verbs_rdmacm_next,                                                \
    .call_take = rdmux_verbs_rdmacm_call_take,                                      \
    .call_drop = rdmux_verbs_rdmacm_call_drop,                                      \
    .hang_up = rdmux_verbs_rdmacm_hang_up
/* clang-format on */

const struct rdmux_rdmacm_ops rdmux_ib_rdmacm = {
    VERBS_RDMACM_OPS,
    .endpoints = &ib_endpoints,
    .request_private_max = VERBS_RDMACM_REQUEST_MAX,
    .reply_private_max = VERBS_RDMACM_REPLY_MAX,
    .reject_private_max = VERBS_RDMACM_REJECT_MAX,
};

const struct rdmux_rdmacm_ops rdmux_roce_rdmacm = {
    VERBS_RDMACM_OPS,
    .endpoints = &roce_endpoints,
    .request_private_max = VERBS_RDMACM_REQUEST_MAX,
    .reply_private_max = VERBS_RDMACM_REPLY_MAX,
    .reject_private_max = VERBS_RDMACM_REJECT_MAX,
};

const struct rdmux_rdmacm_ops rdmux_iwarp_rdmacm = {
    VERBS_RDMACM_OPS,
    .endpoints = &rdmux_iwarp_rdmacm_endpoints,
    .lacks = RDMUX_CAP_SRQ, /* the SRQ's receives have room for headers */
    .request_private_max = RDMUX_PRIVATE_DATA_MAX,
    .reply_private_max = RDMUX_PRIVATE_DATA_MAX,
    .reject_private_max = RDMUX_PRIVATE_DATA_MAX,
};
