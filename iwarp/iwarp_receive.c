/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Messages of the peer: with a header, in receives of the program, and over the side channel. */
#include "iwarp/iwarp_internal.h"
#include "verbs/verbs_endpoint.h"
#include "verbs/verbs_macros.h"
#include "verbs/verbs_outcome.h"
#include "verbs/verbs_receive.h"
#include "verbs/verbs_send.h"
#include "verbs/verbs_state.h"

#include <stdatomic.h>

static void granted_credits(struct iwarp_ep *ep, uint64_t more)
{
    if (more != 0) {
        ep->has_asked = false;
        rdmux_verbs_resume(&ep->base);
    }
}

/* A message came. False: it had no credit. */
static bool use_credit(struct iwarp_ep *ep)
{
    return ep->base.attr->srq == NULL ? rdmux_credits_use(&ep->credit.given)
                                      : rdmux_iwarp_srq_use(ep);
}

void rdmux_iwarp_received(struct verbs_ep *base, struct rdmux_request *request,
                          const struct ibv_wc *wc)
{
    struct iwarp_ep *ep = iwarp_of(base);
    struct iwarp_header header;
    const uint8_t *bytes = (const uint8_t *)(uintptr_t)request->provider[0];
    const uint64_t longest = atomic_load_explicit(&iwarp_domain_of_ep(ep)->longest,
                                                  memory_order_relaxed);
    enum rdmux_status status = rdmux_iwarp_header_decode(bytes, wc->byte_len, longest, &header);
    int64_t more = status == RDMUX_OK ? iwarp_credit_granted(&ep->credit, header.granted) : -1;
    if (VERBS_UNLIKELY(more < 0 || !use_credit(ep))) {
        rdmux_verbs_fail(base, RDMUX_PROTOCOL, "a message of %u bytes cannot be taken",
                         wc->byte_len);
        return;
    }
    bool is_write = header.kind == IWARP_NOTICE;
    base->counts.received++;
    rdmux_provider_received(&base->base, request, RDMUX_OK,
                            is_write ? RDMUX_WC_RECV_WRITE_IMM : RDMUX_WC_RECV, header.length,
                            header.has_imm ? RDMUX_WC_HAS_IMM : 0, header.imm);
    granted_credits(ep, (uint64_t)more);
    if (VERBS_UNLIKELY(iwarp_credit_is_due(&ep->credit))) {
        rdmux_iwarp_talk_soon(ep);
    }
}

void rdmux_iwarp_receive_failed(struct verbs_ep *base, struct rdmux_request *request,
                                const struct ibv_wc *wc)
{
    struct iwarp_ep *ep = iwarp_of(base);
    struct verbs_outcome outcome = rdmux_verbs_receive_outcome((uint32_t)wc->status);
    if (request == NULL) {
        rdmux_iwarp_channel_ended(ep, IWARP_SIDE);
    } else if (outcome.status == RDMUX_FLUSHED) {
        rdmux_iwarp_channel_ended(ep, IWARP_DATA);
    } else {
        rdmux_verbs_receive_failed(base, request, wc);
    }
}

void rdmux_iwarp_side_message(struct verbs_ep *base, const uint8_t *bytes)
{
    struct iwarp_ep *ep = iwarp_of(base);
    struct iwarp_side message;
    struct iwarp_credit_news news = { .granted = 0 };
    enum rdmux_status status = rdmux_iwarp_side_decode(bytes, IWARP_SIDE_SIZE, &message);
    if (status == RDMUX_OK && message.kind == IWARP_SIDE_HELLO) {
        rdmux_iwarp_greeted(ep);
        return;
    }
    if (status == RDMUX_OK && message.kind == IWARP_SIDE_ENDED) {
        rdmux_iwarp_end_heard(ep, &message);
        return;
    }
    if (status == RDMUX_OK) {
        status = rdmux_iwarp_credit_hear(&ep->credit, &message, &news);
    }
    if (status == RDMUX_OK && ep->base.attr->srq != NULL && !rdmux_iwarp_srq_hear(ep, &news)) {
        status = RDMUX_PROTOCOL;
    }
    if (status != RDMUX_OK) {
        rdmux_verbs_fail(base, status, "a side message of kind %u makes no sense", bytes[0]);
        return;
    }
    granted_credits(ep, news.granted);
    rdmux_iwarp_give_back(ep);
    if (iwarp_credit_is_due(&ep->credit)) {
        rdmux_iwarp_talk_soon(ep);
    }
}

void rdmux_iwarp_receives_posted(struct verbs_ep *base, size_t count)
{
    struct iwarp_ep *ep = iwarp_of(base);
    ep->credit.given.posted += count;
    if (iwarp_credit_is_due(&ep->credit)) {
        rdmux_iwarp_talk_soon(ep);
    }
}
