/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The states of an endpoint, and the end that its peer sees. */
#include "shm_internal.h"

#include <assert.h>

void rdmux_shm_write_state(struct shm_ep *ep, enum shm_ep_state next)
{
    struct shm_cq *cq = shm_cq_of(ep->base.cq);
    /* Each state leads to the next one, and to SHM_EP_QUIESCED, which may be written again. */
    assert(next == ep->state + 1 || next == SHM_EP_QUIESCED);
    cq->connecting -= ep->state == SHM_EP_CONNECTING ? 1U : 0U;
    cq->connecting += next == SHM_EP_CONNECTING ? 1U : 0U;
    ep->state = next;
}

void rdmux_shm_tell_end(struct shm_ep *ep, uint32_t end)
{
    assert(end == SHM_CLOSED || end == SHM_FAILED);
    /* Pairs with the acquire loads of notice_end() and shm_access_begin(). */
    atomic_store_explicit(&ep->mine->state, end, memory_order_release);
}
