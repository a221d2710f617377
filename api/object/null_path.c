/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * The null path: the path of an endpoint that has none at the moment. It accepts no request, keeps
 * every receive waiting, and never fails, so callers need not check for a path. It implements only
 * what the core calls for a connected endpoint.
 */
#include "api/object/null_path.h"
#include "api/base/error.h"

static size_t null_path_poll(struct rdmux_provider_cq *cq, size_t budget)
{
    (void)cq;
    (void)budget;
    return 0;
}

static enum rdmux_status null_path_post(struct rdmux_provider_ep *ep,
                                        struct rdmux_request *requests, size_t count,
                                        uint32_t flags, size_t *posted)
{
    (void)ep;
    (void)requests;
    (void)count;
    (void)flags;
    *posted = 0;
    return rdmux_again("post: the endpoint is moving to another path");
}

static enum rdmux_status null_path_post_recv(struct rdmux_provider_ep *ep,
                                             struct rdmux_request *requests, size_t count)
{
    (void)ep;
    (void)requests;
    (void)count;
    return RDMUX_OK;
}

static enum rdmux_status null_path_quiesce(struct rdmux_provider_ep *ep,
                                           struct rdmux_provider_counts *counts)
{
    (void)ep;
    *counts = (struct rdmux_provider_counts){ 0 };
    return RDMUX_OK;
}

const struct rdmux_provider_ops rdmux_null_path_ops = {
    .abi = RDMUX_PROVIDER_ABI,
    .size = RDMUX_PROVIDER_OPS_SIZE_LEAST,
    .name = "none",
    .poll = null_path_poll,
    .post = null_path_post,
    .doorbell = rdmux_unsupported_doorbell,
    .post_recv = null_path_post_recv,
    .ep_control = rdmux_unsupported_ep_control,
    .ep_ping = rdmux_unsupported_ep_ping,
    .ep_quiesce = null_path_quiesce,
};
