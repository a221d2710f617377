/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The states of an endpoint, the end that its peer sees, and the break of a path. */
#include "shm_internal.h"

#include <assert.h>

const char
    rdmux_shm_bad_buffer[] = "shm: the memory of a request is not mapped any more; keep it until "
                             "the request completes";

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

/* Breaks the path. told: the status for the peer. */
static void end_path(struct shm_ep *ep, enum rdmux_status status, enum rdmux_status told,
                     uint64_t position, const char *text)
{
    if (ep->state != SHM_EP_CONNECTED) {
        return;
    }
    rdmux_shm_write_state(ep, SHM_EP_BROKEN);
    ep->job.request = NULL;
    (void)shm_consumer_publish(&ep->in);
    atomic_store_explicit(&ep->mine->status, (uint32_t)told, memory_order_relaxed);
    atomic_store_explicit(&ep->mine->failed_at, position, memory_order_relaxed);
    rdmux_shm_tell_end(ep, SHM_FAILED);
    shm_ring_bell(ep, SHM_WAKE_MESSAGE);
    rdmux_provider_failed(&ep->base, status, text);
}

void rdmux_shm_break(struct shm_ep *ep, enum rdmux_status status, uint64_t position,
                     const char *text)
{
    end_path(ep, status, status, position, text);
}

void rdmux_shm_break_bad_buffer(struct shm_ep *ep)
{
    end_path(ep, RDMUX_INVALID, RDMUX_IO, ep->in.tail, rdmux_shm_bad_buffer);
}
