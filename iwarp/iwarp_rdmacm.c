/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * rdma:// endpoints, whose peer is not rdmux: no header in front of messages, no credits. The
 * devices' constraints stay: a read has one local piece, and finishes behind later requests
 * (iwarp_order.h).
 */
#include "iwarp/iwarp_internal.h"
#include "verbs/verbs_connection.h"
#include "verbs/verbs_endpoint.h"
#include "verbs/verbs_macros.h"
#include "verbs/verbs_outcome.h"
#include "verbs/verbs_queue.h"
#include "verbs/verbs_rdmacm.h"
#include "verbs/verbs_receive.h"
#include "verbs/verbs_ring.h"
#include "verbs/verbs_send.h"
#include "verbs/verbs_side.h"
#include "verbs/verbs_silent.h"
#include "verbs/verbs_state.h"
#include "verbs/verbs_table.h"
#include "verbs/verbs_transport.h"

#include <assert.h>

struct rdmacm_ep {
    struct verbs_rdmacm_ep base;
    struct iwarp_order order;
};

static_assert(offsetof(struct rdmacm_ep, base) == 0, "the container of the base relies on it");

static struct rdmacm_ep *rdmacm_of(struct verbs_ep *ep)
{
    return (struct rdmacm_ep *)ep;
}

static enum rdmux_status start_request(struct verbs_ep *ep, struct rdmux_request *request)
{
    if (request->op != RDMUX_OP_READ) {
        return rdmux_verbs_rdmacm_start(ep, request);
    }
    if (VERBS_UNLIKELY(request->length == 0)) {
        rdmux_verbs_rdmacm_aim(ep, request);
    }
    return rdmux_iwarp_start_read(ep, request);
}

static bool is_over(const struct verbs_ep *ep)
{
    return verbs_rdmacm_of((struct verbs_ep *)(uintptr_t)ep)->has_hung_up;
}

/* A success after a failure proves nothing: the device may not have sent the bytes. */
static void work_failed(struct verbs_ep *ep, uint32_t slot, const struct ibv_wc *wc)
{
    struct rdmux_request *request = verbs_send_ring_owner(&ep->data.sent, slot);
    struct verbs_outcome outcome = rdmux_verbs_send_outcome((uint32_t)wc->status,
                                                            request != NULL ? request->op : 0);
    if (ep->state >= VERBS_EP_DRAINING) {
        rdmux_iwarp_retire(ep, &rdmacm_of(ep)->order, RDMUX_FLUSHED);
        return;
    }
    if (ep->state >= VERBS_EP_FAILED || wc->status == IBV_WC_SUCCESS) {
        return;
    }
    bool is_flushed = outcome.status == RDMUX_FLUSHED;
    rdmux_verbs_fail(ep, is_flushed ? RDMUX_PEER_GONE : outcome.status, "%s (%s, vendor code 0x%x)",
                     is_flushed ? "the connection has ended" : outcome.text,
                     ibv_wc_status_str(wc->status), wc->vendor_err);
    if (request != NULL && !request->done && !is_flushed) {
        rdmux_verbs_report(ep, request, outcome.status);
    }
}

static void request_sent(struct verbs_queue *queue, const struct ibv_wc *wc)
{
    struct verbs_ep *ep = queue->ep;
    struct rdmacm_ep *rdmacm = rdmacm_of(ep);
    uint32_t slot = verbs_wr_id_slot(wc->wr_id);
    if (VERBS_UNLIKELY(!verbs_send_ring_has(&queue->sent, slot))) {
        return;
    }
    iwarp_order_note(&rdmacm->order, slot, queue->is_read[slot & queue->sent.mask]);
    if (VERBS_UNLIKELY(wc->status != IBV_WC_SUCCESS || ep->state >= VERBS_EP_FAILED)) {
        work_failed(ep, slot, wc);
        return;
    }
    rdmux_iwarp_retire(ep, &rdmacm->order, RDMUX_OK);
    rdmux_verbs_resume(ep);
    verbs_silent_watch(ep);
}

/* Called whenever the device itself ended the connection; a completion may tell why. */
static void connection_broke(struct verbs_queue *queue)
{
    if (!is_over(queue->ep)) {
        rdmux_verbs_fail(
            queue->ep, RDMUX_PEER_GONE,
            "the connection ended: the peer is gone, or one of the two devices refused "
            "a request and does not say which");
    }
}

static const struct verbs_transport transport = {
    .name = "iwarp",
    .fabric_name = "iWARP",
    .fabric = VERBS_FABRIC_IWARP,
    .request_refused = RDMUX_DENIED,
    .request_slots = 2, /* a write, and a read of its last byte */
    .read_slots = 2,    /* see iwarp_read_parts() */
    .sink_access = IBV_ACCESS_REMOTE_WRITE,
    .lacks_side = true,
    .flush_size = 1,
    .lacks_word = true,
    .holds = rdmux_verbs_rdmacm_holds,
    .start = start_request,
    .sent = request_sent,
    .received = rdmux_verbs_received,
    .receive_failed = rdmux_verbs_rdmacm_receive_failed,
    .broke = connection_broke,
    .side_message = rdmux_verbs_no_side_message,
};

static enum rdmux_status ep_open(struct rdmux_provider_ep *base,
                                 const struct rdmux_provider_ep_attr *attr)
{
    struct verbs_ep *ep = verbs_ep_of(base);
    enum rdmux_status status = rdmux_verbs_rdmacm_ep_open(&transport, base, attr);
    if (status != RDMUX_OK) {
        return status;
    }
    status = rdmux_iwarp_open_reads(&ep->data);
    if (status != RDMUX_OK) {
        rdmux_verbs_rdmacm_ep_close(base);
    }
    return status;
}

const struct rdmux_provider_ops rdmux_iwarp_rdmacm_endpoints = {
    VERBS_RDMACM_TABLE,
    .name = "iwarp",
    .ep_size = sizeof(struct rdmacm_ep),
    .ep_open = ep_open,
};
