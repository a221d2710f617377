/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "verbs/verbs_silent.h"

#include "verbs/verbs_chain.h"
#include "verbs/verbs_completion.h"
#include "verbs/verbs_endpoint.h"
#include "verbs/verbs_queue.h"
#include "verbs/verbs_ring.h"

void rdmux_verbs_silent_tell(struct verbs_cq *cq)
{
    struct verbs_ep *ep = cq->silent;
    cq->silent = NULL;
    cq->silent_polls = 0;
    while (ep != NULL) {
        struct verbs_ep *next = ep->silent_next;
        ep->is_silent = false;
        if (ep->state == VERBS_EP_CONNECTED && verbs_send_ring_silent(&ep->data.sent) != 0 &&
            rdmux_verbs_chain_nothing(ep)) {
            (void)rdmux_verbs_chain_ring(&ep->data);
        }
        ep = next;
    }
}

void rdmux_verbs_silent_leave(struct verbs_ep *ep)
{
    for (struct verbs_ep **at = &verbs_cq_of(ep->base.cq)->silent; *at != NULL;
         at = &(*at)->silent_next) {
        if (*at == ep) {
            *at = ep->silent_next;
            break;
        }
    }
}
