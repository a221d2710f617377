/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Hot endpoints: each poll of a cq reads their socket 0, without the poller. */
#include "tcp_fallback/tcp_hot.h"

#include "tcp_fallback/tcp_completion.h"

void rdmux_tcp_cool(struct tcp_ep *ep)
{
    struct tcp_cq *cq = rdmux_tcp_cq_of(ep);
    for (uint32_t i = 0; i < cq->hot_count; i++) {
        if (cq->hot[i] == ep) {
            cq->hot[i] = cq->hot[--cq->hot_count];
            break;
        }
    }
    ep->is_hot = false;
    cq->last_found = cq->last_found == ep ? NULL : cq->last_found; /* it may be about to end */
    rdmux_tcp_wake_for_input(ep, true);
}

void rdmux_tcp_heat(struct tcp_ep *ep)
{
    struct tcp_cq *cq = rdmux_tcp_cq_of(ep);
    ep->idle_polls = 0;
    if (ep->is_hot) {
        return;
    }
    if (cq->hot_count == TCP_HOT_MAX) {
        struct tcp_ep *coldest = cq->hot[0];
        for (uint32_t i = 1; i < TCP_HOT_MAX; i++) {
            coldest = cq->hot[i]->idle_polls > coldest->idle_polls ? cq->hot[i] : coldest;
        }
        if (coldest->idle_polls == 0) {
            return;
        }
        rdmux_tcp_cool(coldest);
    }
    cq->hot[cq->hot_count++] = ep;
    ep->hot_polls = 0;
    ep->is_hot = true;
}
