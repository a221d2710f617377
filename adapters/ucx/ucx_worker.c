/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* A cq's UCP worker: arrivals, progress, sleeping. */
#include "adapters/ucx/ucx_internal.h"
#include "api/base/bytes.h"

#include <string.h>

/* A message of any peer, which may be anybody that reaches the worker's port. UCX calls it within
 * ucp_worker_progress(). */
static ucs_status_t on_message(void *argument, const void *header, size_t header_length, void *data,
                               size_t length, const ucp_am_recv_param_t *param)
{
    struct ucx_cq *cq = argument;
    (void)header;
    if (header_length != 0 || length < UCX_HEAD_SIZE || length > UCX_HEAD_SIZE + UCX_MESSAGE_MAX ||
        (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0) {
        return UCS_OK; /* not of this provider: dropped */
    }
    const struct ucx_link *link = rdmux_ucx_link_find(
        cq, rdmux_load_host64((const uint8_t *)data + UCX_PADDING));
    if (link == NULL) {
        return UCS_OK; /* of an endpoint that is over */
    }
    const uint8_t *bytes = (const uint8_t *)data + UCX_HEAD_SIZE;
    if ((uintptr_t)bytes % sizeof(uint64_t) != 0) {
        memcpy(cq->aligned, bytes, length - UCX_HEAD_SIZE);
        bytes = cq->aligned;
    }
    cq->work += rdmux_framed_arrived(link->ep, bytes, length - UCX_HEAD_SIZE);
    return UCS_OK;
}

static enum rdmux_status take_address(struct ucx_cq *cq)
{
    /* Transports within a host cannot notice that a peer fails, so their addresses are of no use. */
    ucp_worker_attr_t attr = {
        .field_mask = UCP_WORKER_ATTR_FIELD_ADDRESS | UCP_WORKER_ATTR_FIELD_ADDRESS_FLAGS,
        .address_flags = UCP_WORKER_ADDRESS_FLAG_NET_ONLY,
    };
    ucs_status_t status = cq->calls->ucp_worker_query(cq->worker, &attr);
    if (status != UCS_OK) {
        return rdmux_ucx_error(cq->calls, "the worker has no address", status);
    }
    const bool fits = attr.address_length <= sizeof(cq->address) - UCX_ADDRESS_HEAD;
    if (fits) {
        memcpy(cq->address, attr.address, attr.address_length);
        cq->address_length = attr.address_length;
    } else {
        rdmux_provider_error("ucx: the worker's address has %zu bytes and %zu is the limit; name "
                             "fewer devices in UCX_NET_DEVICES",
                             attr.address_length, sizeof(cq->address) - UCX_ADDRESS_HEAD);
    }
    cq->calls->ucp_worker_release_address(cq->worker, attr.address);
    return fits ? RDMUX_OK : RDMUX_UNSUPPORTED;
}

static enum rdmux_status set_up(struct ucx_cq *cq)
{
    const ucp_am_handler_param_t handler = {
        .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                      UCP_AM_HANDLER_PARAM_FIELD_ARG | UCP_AM_HANDLER_PARAM_FIELD_FLAGS,
        .id = UCX_ACTIVE_MESSAGE,
        .cb = on_message,
        .arg = cq,
        .flags = UCP_AM_FLAG_WHOLE_MSG,
    };
    ucs_status_t status = cq->calls->ucp_worker_set_am_recv_handler(cq->worker, &handler);
    if (status != UCS_OK) {
        return rdmux_ucx_error(cq->calls, "the worker has no active messages", status);
    }
    return take_address(cq);
}

enum rdmux_status rdmux_ucx_cq_open(struct framed_cq *base)
{
    struct ucx_cq *cq = rdmux_ucx_cq_of(base);
    const struct ucx_domain *domain = (const struct ucx_domain *)base->base.base.domain;
    cq->calls = domain->calls;
    cq->fabric = domain->base.base.fabric;
    cq->looks_after_arm = domain->has_wish;
    rdmux_list_init(&cq->peers);
    rdmux_list_init(&cq->ending);
    rdmux_list_init(&cq->orphans);
    /* The cq's owner changes, but there is one at a time. The worker's descriptors go into the
     * cq's epoll set: with a set of its own they would be nested deeper than the kernel allows. */
    const ucp_worker_params_t params = {
        .field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE | UCP_WORKER_PARAM_FIELD_FLAGS |
                      UCP_WORKER_PARAM_FIELD_EVENT_FD,
        .thread_mode = UCS_THREAD_MODE_SERIALIZED,
        .flags = UCP_WORKER_FLAG_IGNORE_REQUEST_LEAK,
        .event_fd = base->base.epoll,
    };
    sigset_t signals;
    rdmux_ucx_forget_error();
    rdmux_ucx_block_signals(&signals);
    ucs_status_t result = cq->calls->ucp_worker_create(domain->context, &params, &cq->worker);
    rdmux_ucx_restore_signals(&signals);
    if (result != UCS_OK) {
        return rdmux_ucx_error(cq->calls, "no worker can be created", result);
    }
    enum rdmux_status status = set_up(cq);
    if (status != RDMUX_OK) {
        cq->calls->ucp_worker_destroy(cq->worker);
    }
    return status;
}

void rdmux_ucx_cq_close(struct framed_cq *base)
{
    struct ucx_cq *cq = rdmux_ucx_cq_of(base);
    rdmux_ucx_peers_close(cq);
    /* Ends what is left of the peers and their messages, too. */
    cq->calls->ucp_worker_destroy(cq->worker);
    rdmux_ucx_peers_free(cq);
    rdmux_ucx_orphans_free(cq);
    rdmux_provider_release(cq->fabric, cq->links);
}

size_t rdmux_ucx_progress(struct framed_cq *base, size_t budget)
{
    struct ucx_cq *cq = rdmux_ucx_cq_of(base);
    size_t steps = 0;
    unsigned step;
    cq->work = 0;
    /* The step after the one that brought messages only has UCX look at its network once more. */
    do {
        step = cq->calls->ucp_worker_progress(cq->worker);
        steps += step;
    } while (step > 0 && cq->work == 0 && steps < budget);
    if (!rdmux_list_empty(&cq->ending)) {
        rdmux_ucx_peers_end(cq);
    }
    return cq->work + steps;
}

enum rdmux_status rdmux_ucx_arm(struct framed_cq *base)
{
    struct ucx_cq *cq = rdmux_ucx_cq_of(base);
    ucs_status_t status = cq->calls->ucp_worker_arm(cq->worker);
    if (status == UCS_OK) {
        /* UCX trusts RDMA devices to report what came between its last look and the arm. Not all
         * do (soft RoCE). */
        return cq->looks_after_arm && rdmux_ucx_progress(base, 1) > 0 ? RDMUX_AGAIN : RDMUX_OK;
    }
    return status == UCS_ERR_BUSY ? RDMUX_AGAIN
                                  : rdmux_ucx_error(cq->calls, "the worker cannot sleep", status);
}
