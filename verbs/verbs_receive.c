/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Receives of an endpoint, and the messages in them. No lock, no allocation, no log. */
#include "verbs/verbs_receive.h"

#include "verbs/verbs_domain.h"
#include "verbs/verbs_endpoint.h"
#include "verbs/verbs_macros.h"
#include "verbs/verbs_memory.h"
#include "verbs/verbs_outcome.h"
#include "verbs/verbs_queue.h"
#include "verbs/verbs_ring.h"
#include "verbs/verbs_state.h"
#include "verbs/verbs_transport.h"

#include <arpa/inet.h>
#include <string.h>

enum { RECEIVE_CHAIN_MAX = 16 };

static enum rdmux_status post_receives(struct verbs_queue *queue, struct rdmux_request *requests,
                                       size_t count)
{
    struct ibv_recv_wr works[RECEIVE_CHAIN_MAX];
    struct ibv_sge pieces[RECEIVE_CHAIN_MAX][1 + RDMUX_SGE_MAX];
    const uint32_t header_size = queue->ep->transport->header_size;
    for (size_t i = 0; i < count; i++) {
        uint32_t slot = verbs_receive_ring_take(&queue->receives, &requests[i]);
        uint32_t used = rdmux_verbs_header_piece(
            &queue->headers, header_size, slot & queue->receives.mask, &requests[i], pieces[i]);
        used += verbs_pieces(requests[i].sges, requests[i].sge_count, &pieces[i][used]);
        works[i] = (struct ibv_recv_wr){
            .wr_id = verbs_wr_id_of(queue->id, VERBS_WORK_RECEIVE, slot),
            .next = i + 1 < count ? &works[i + 1] : NULL,
            .sg_list = pieces[i],
            .num_sge = (int)used,
        };
    }
    struct ibv_recv_wr *bad = NULL;
    int error = ibv_post_recv(queue->qp, works, &bad);
    if (VERBS_UNLIKELY(error != 0)) {
        rdmux_provider_error("%s: the device did not take receives: %s",
                             verbs_domain_of_ep(queue->ep)->device,
                             strerror(verbs_error_of(error)));
        return RDMUX_IO;
    }
    if (queue->ep->transport->receives_posted != NULL) {
        queue->ep->transport->receives_posted(queue->ep, count);
    }
    return RDMUX_OK;
}

/* Holds receives back, as the device's queue is shorter than the endpoint's. */
static void hold_receives(struct verbs_ep *ep, struct rdmux_request *requests, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        requests[i].provider[2] = 0;
        if (ep->held == NULL) {
            ep->held = &requests[i];
        } else {
            ep->held_last->provider[2] = (uint64_t)(uintptr_t)&requests[i];
        }
        ep->held_last = &requests[i];
    }
}

enum rdmux_status rdmux_verbs_post_recv(struct rdmux_provider_ep *base,
                                        struct rdmux_request *requests, size_t count)
{
    struct verbs_ep *ep = verbs_ep_of(base);
    struct verbs_queue *queue = &ep->data;
    if (VERBS_UNLIKELY(count == 0 || ep->state != VERBS_EP_CONNECTED)) {
        /* receives of an SRQ are posted already; the core completes those of a failed endpoint */
        if (count == 0 && ep->transport->srq_news != NULL) {
            ep->transport->srq_news(ep);
        }
        return RDMUX_OK;
    }
    while (count > 0) {
        const size_t room = ep->held != NULL ? 0 : verbs_receive_ring_room(&queue->receives);
        if (VERBS_UNLIKELY(room == 0)) {
            hold_receives(ep, requests, count);
            break;
        }
        size_t now = count < RECEIVE_CHAIN_MAX ? count : RECEIVE_CHAIN_MAX;
        now = now < room ? now : room;
        enum rdmux_status status = post_receives(queue, requests, now);
        if (VERBS_UNLIKELY(status != RDMUX_OK)) {
            return status;
        }
        requests += now;
        count -= now;
    }
    return RDMUX_OK;
}

void rdmux_verbs_post_held(struct verbs_ep *ep)
{
    while (ep->held != NULL && ep->state == VERBS_EP_CONNECTED &&
           verbs_receive_ring_room(&ep->data.receives) > 0) {
        struct rdmux_request *request = ep->held;
        ep->held = (struct rdmux_request *)(uintptr_t)request->provider[2];
        if (post_receives(&ep->data, request, 1) != RDMUX_OK) {
            rdmux_verbs_fail(ep, RDMUX_IO, "the device did not take a receive");
        }
    }
}

void rdmux_verbs_received(struct verbs_ep *ep, struct rdmux_request *request,
                          const struct ibv_wc *wc)
{
    bool is_write = wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM;
    bool has_imm = (wc->wc_flags & IBV_WC_WITH_IMM) != 0;
    ep->counts.received++;
    rdmux_provider_received(&ep->base, request, RDMUX_OK,
                            is_write ? RDMUX_WC_RECV_WRITE_IMM : RDMUX_WC_RECV, wc->byte_len,
                            has_imm ? RDMUX_WC_HAS_IMM : 0, has_imm ? ntohl(wc->imm_data) : 0);
}

void rdmux_verbs_receive_failed(struct verbs_ep *ep, struct rdmux_request *request,
                                const struct ibv_wc *wc)
{
    if (request == NULL) {
        rdmux_verbs_fail(ep, RDMUX_FLUSHED, "the side channel's queue pair went into error (%s)",
                         ibv_wc_status_str(wc->status));
        return;
    }
    struct verbs_outcome outcome = rdmux_verbs_receive_outcome((uint32_t)wc->status);
    bool is_first = ep->state < VERBS_EP_FAILED;
    if (is_first && outcome.status == RDMUX_LENGTH) {
        rdmux_provider_received(&ep->base, request, RDMUX_LENGTH, RDMUX_WC_RECV, 0, 0, 0);
    }
    if (is_first) {
        rdmux_verbs_fail(ep, outcome.status, "%s (%s, vendor code 0x%x)", outcome.text,
                         ibv_wc_status_str(wc->status), wc->vendor_err);
    }
}
