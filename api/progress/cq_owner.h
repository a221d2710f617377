/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Ownership of a cq, and the ways to wake its owner. */
#ifndef RDMUX_API_PROGRESS_CQ_OWNER_H
#define RDMUX_API_PROGRESS_CQ_OWNER_H

#include "api/core/cq.h"
#include "api/core/ep.h"
#include "api/core/mail.h"

#include <assert.h>

/* Owner: counts a job that goes to the worker and will mail the cq. Worker: counts the job as
 * ended. rdmux_cq_destroy() waits for both. */
void rdmux_cq_job_begins(struct rdmux_cq *cq);
void rdmux_cq_job_ends(struct rdmux_cq *cq);
/* Queues mail for the owner and wakes it. Takes ownership of the mail. Any thread; fabric->lock may
 * be held. */
void rdmux_cq_mail(struct rdmux_cq *cq, struct rdmux_mail *mail);
/* Owner of `from`, with fabric->lock held: queues `first` for the owner of `to`, behind it the mail
 * of `from` for this endpoint, and wakes that owner. */
void rdmux_cq_forward_mail(struct rdmux_cq *from, struct rdmux_cq *to, struct rdmux_mail *first,
                           uint64_t ep_id);
/* Any thread: sets bits of the signal. Also clears the fast path's limit, which is all that a write
 * over the fast path checks. */
void rdmux_cq_raise(struct rdmux_cq *cq, uint32_t bits);
bool rdmux_cq_enter_slow(struct rdmux_cq *cq);

static inline bool rdmux_cq_is_armed(const struct rdmux_cq *cq)
{
    return atomic_load_explicit(&cq->armed, memory_order_relaxed) == RDMUX_ARMED;
}

/* Owner: the arming is about to change. Empties the outlet, and lets the service thread watch for
 * the next event of a cq that is being armed. Called where a poller is no descriptor. */
void rdmux_cq_outlet_follows(struct rdmux_cq *cq, enum rdmux_arming next);

/* Owner: writes cq->armed. Only an armed cq is told of an event. [data path] */
static inline void rdmux_cq_set_arming(struct rdmux_cq *cq, enum rdmux_arming next)
{
    assert(next != RDMUX_TOLD ||
           atomic_load_explicit(&cq->armed, memory_order_relaxed) != RDMUX_UNARMED);
    if (!RDMUX_POLLER_IS_DESCRIPTOR) {
        rdmux_cq_outlet_follows(cq, next);
    }
    atomic_store_explicit(&cq->armed, next, memory_order_relaxed);
}

/* Owner: the program has armed the cq. */
static inline void rdmux_cq_count_arm(struct rdmux_cq *cq)
{
    cq->counts.arms++;
}

/* Owner: something happened that a sleeping call may wait for, and that is no entry. */
static inline void rdmux_cq_note_news(struct rdmux_cq *cq)
{
    cq->counts.errands += cq->askers != 0;
}

/* Owner: keeps the descriptor of an armed cq readable, or ends that. */
void rdmux_cq_tell(struct rdmux_cq *cq);
void rdmux_cq_untell(struct rdmux_cq *cq, enum rdmux_arming next);
/* Any thread: sets RDMUX_SIGNAL_ATTEND and wakes all sleepers on the cq. */
void rdmux_cq_poke(struct rdmux_cq *cq);

/* Enters a cq that is checked or serialized. Returns false if another call is inside a checked cq;
 * waits for it if the cq is serialized. */
bool rdmux_cq_enter_alone(struct rdmux_cq *cq);
/* Fails a call for which rdmux_cq_enter() returned false. call: its name. what: the kind of object
 * that it was given. Returns RDMUX_INVALID. */
enum rdmux_status rdmux_cq_refused(const struct rdmux_cq *cq, const char *call, const char *what);

/* Begins an application's call. Returns false, and the call must do nothing, if the process forked,
 * or if another call is inside a cq that is checked. [data path] */
static inline bool rdmux_cq_enter(struct rdmux_cq *cq)
{
    atomic_store_explicit(&cq->calls, atomic_load_explicit(&cq->calls, memory_order_relaxed) + 1,
                          memory_order_relaxed);
    uint32_t signal;
    if (RDMUX_TSAN || RDMUX_UNLIKELY(cq->fence)) {
        if (RDMUX_UNLIKELY(cq->fence > RDMUX_ENTER_FENCED)) {
            if (!rdmux_cq_enter_alone(cq)) {
                return false;
            }
        } else {
            atomic_exchange_explicit(rdmux_cq_inside(cq), RDMUX_GATE_INSIDE, memory_order_seq_cst);
        }
        signal = atomic_load_explicit(rdmux_cq_signal(cq), memory_order_seq_cst);
    } else {
        atomic_store_explicit(rdmux_cq_inside(cq), RDMUX_GATE_INSIDE, memory_order_relaxed);
        /* Pairs with the membarrier of rdmux_cq_claim(). */
        atomic_signal_fence(memory_order_seq_cst);
        signal = atomic_load_explicit(rdmux_cq_signal(cq), memory_order_acquire);
    }
    if (RDMUX_UNLIKELY((signal & ~(uint32_t)RDMUX_SIGNAL_ATTEND) != RDMUX_SIGNAL_ALIVE)) {
        return rdmux_cq_enter_slow(cq);
    }
    return true;
}

/* Ends an application's call. Pairs with the load of `inside` in rdmux_cq_claim(). [data path] */
static inline void rdmux_cq_leave(struct rdmux_cq *cq)
{
    atomic_store_explicit(rdmux_cq_inside(cq), RDMUX_GATE_AWAY, memory_order_release);
}

/* Service thread: tries to own the cq. Returns false while an application's call is inside. */
bool rdmux_cq_claim(struct rdmux_cq *cq);
void rdmux_cq_release_claim(struct rdmux_cq *cq);

/* Service thread, as the owner: begins or ends a slice. */
static inline void rdmux_cq_begin_slice(struct rdmux_cq *cq)
{
    cq->claim.slices++;
    cq->claim.is_in_slice = true;
}

static inline void rdmux_cq_end_slice(struct rdmux_cq *cq)
{
    cq->claim.is_in_slice = false;
}

/* Puts the endpoint on cq->pending, unless it is there. [data path] */
static inline void rdmux_cq_pend(struct rdmux_cq *cq, struct rdmux_ep *ep)
{
    if (!ep->queued.is_pending) {
        ep->queued.is_pending = true;
        rdmux_list_append(&cq->pending, &ep->places.pending);
        if (RDMUX_UNLIKELY(rdmux_cq_is_armed(cq))) {
            /* A post of another thread completed at once, or the service thread found the event. */
            rdmux_cq_tell(cq);
        }
    }
}

/* Takes an endpoint off cq->pending. [data path] */
static inline void rdmux_cq_unpend(struct rdmux_ep *ep)
{
    rdmux_list_remove(&ep->places.pending);
    ep->queued.is_pending = false;
}

/* Moves the endpoint from cq->pending, if it is there, to the caller's list. rdmux_cq_pend() leaves
 * it there until rdmux_cq_unpend(). */
static inline void rdmux_cq_set_apart(struct rdmux_ep *ep, struct rdmux_list *apart)
{
    rdmux_list_remove(&ep->places.pending);
    ep->queued.is_pending = true;
    rdmux_list_append(apart, &ep->places.pending);
}

#endif
