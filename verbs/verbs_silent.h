/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Silent work: posted work requests that no completion will ever report. The cq posts a signaled
 * successor behind them: revocation and shutdown must not depend on more requests of the program to
 * learn that the last ones are done.
 */
#ifndef RDMUX_VERBS_SILENT_H
#define RDMUX_VERBS_SILENT_H

#include "verbs/verbs_completion.h"
#include "verbs/verbs_endpoint.h"
#include "verbs/verbs_macros.h"
#include "verbs/verbs_queue.h"
#include "verbs/verbs_ring.h"

#include <stdbool.h>

enum {
    VERBS_SILENT_POLLS = 64,  /* polls in a row without a completion before the successor */
    VERBS_SILENT_BUSY = 1024, /* the same: polls with silent work, whatever else completes */
};

/* Puts the endpoint on the cq's silent list if no completion is pending for its posted work.
 * [data path] */
static inline void verbs_silent_watch(struct verbs_ep *ep)
{
    struct verbs_queue *queue = &ep->data;
    if (VERBS_UNLIKELY(verbs_send_ring_silent(&queue->sent) != 0 && !ep->is_silent &&
                       !verbs_send_ring_awaits(&queue->sent))) {
        ep->is_silent = true;
        ep->silent_next = queue->cq->silent;
        queue->cq->silent = ep;
    }
}

/* True if the endpoints on the silent list, of which there are some, have waited long enough for
 * another completion. [data path] */
static inline bool verbs_silent_is_long(struct verbs_cq *cq)
{
    return cq->idle_polls >= VERBS_SILENT_POLLS || ++cq->silent_polls >= VERBS_SILENT_BUSY;
}

/* Posts the successors and empties the list. */
void rdmux_verbs_silent_tell(struct verbs_cq *cq);
/* Takes a closing endpoint off the list. */
void rdmux_verbs_silent_leave(struct verbs_ep *ep);

#endif
