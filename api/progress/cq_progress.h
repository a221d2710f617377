/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The building blocks of calls on a cq: cq_owner.c, cq_progress.c, cq_domain.c. All functions are
 * the owner's. */
#ifndef RDMUX_API_PROGRESS_CQ_PROGRESS_H
#define RDMUX_API_PROGRESS_CQ_PROGRESS_H

#include "api/core/cq.h"
#include "api/progress/cq_domain.h"

enum { RDMUX_POLL_BUDGET = 64 }; /* requests that a provider handles in one round */

/* cq_owner.c: delivers the mail that has arrived; waits until no worker job will mail the cq. */
void rdmux_cq_deliver_mail(struct rdmux_cq *cq);
void rdmux_cq_wait_for_jobs(struct rdmux_cq *cq);

/* cq_progress.c */
bool rdmux_cq_run_errands(struct rdmux_cq *cq);
void rdmux_cq_step_busy(struct rdmux_cq *cq);
void rdmux_cq_ring_doorbells(struct rdmux_cq *cq);
/* Frees the endpoints of cq->lists.closed or cq->lists.dropped. */
void rdmux_cq_free_all(struct rdmux_list *eps);
/* Sleeps, inside a call, until an event of the cq, its next timer, or until_ns. */
enum rdmux_status rdmux_cq_sleep(struct rdmux_cq *cq, uint64_t until_ns);
/* The same for a call that waits for something else than an entry. What it waits for may be the work
 * of another call, or of the service thread, while it sleeps outside of a serialized cq. */
enum rdmux_status rdmux_cq_sleep_asking(struct rdmux_cq *cq, uint64_t until_ns);
/* Arms the cq again for calls that sleep outside of a serialized cq, or wakes them: a call that may
 * have ended the arming is about to leave. */
void rdmux_cq_rearm(struct rdmux_cq *cq);
/* Keeps a cq armed through a round of progress outside of poll, wait and arm, or tells its sleeper
 * what the round found. */
void rdmux_cq_stay_armed(struct rdmux_cq *cq);
/* Polls the descriptors that rdmux_cq_sleep() sleeps on. */
enum rdmux_status rdmux_cq_look(struct rdmux_cq *cq);
/* Returns whether mail or a control channel makes the cq's descriptor readable, and asks the next
 * round to attend to it. */
bool rdmux_cq_look_for_errands(struct rdmux_cq *cq);

/* cq_domain.c */
enum rdmux_status rdmux_cq_open_descriptors(struct rdmux_cq *cq);
void rdmux_cq_close_descriptors(struct rdmux_cq *cq);

/* Returns whether there is work besides the providers': doorbells, or requests of the application
 * or other threads. */
static inline bool rdmux_cq_has_errands(const struct rdmux_cq *cq)
{
    return !rdmux_list_empty(&cq->lists.dropped) || cq->doorbells != NULL ||
           (atomic_load_explicit(rdmux_cq_signal(cq), memory_order_relaxed) &
            RDMUX_SIGNAL_ATTEND) != 0;
}

/* rdmux_cq_progress() inlined, where each instruction counts. [data path] */
static inline bool rdmux_cq_round(struct rdmux_cq *cq)
{
    bool did = RDMUX_UNLIKELY(rdmux_cq_has_errands(cq)) && rdmux_cq_run_errands(cq);
    for (uint32_t i = 0; i < cq->domain_count; i++) {
        struct rdmux_cq_domain *domain = &cq->domains[i];
        if (domain->cq->ep_count != 0 && domain->ops->poll(domain->cq, RDMUX_POLL_BUDGET) != 0) {
            did = true;
        }
    }
    if (RDMUX_UNLIKELY(!rdmux_list_empty(&cq->lists.busy))) {
        rdmux_cq_step_busy(cq);
    }
    return did;
}

/* Owner: handles mail, control channels and timers. */
void rdmux_cq_attend(struct rdmux_cq *cq);
/* Owner: runs one bounded round of progress: doorbells, providers, requests for attention. Returns
 * whether anything was done. */
bool rdmux_cq_progress(struct rdmux_cq *cq);
/* Owner: arms the providers. Returns true if an event is already there. */
bool rdmux_cq_arm_providers(struct rdmux_cq *cq);
/* Owner: ends endpoints that rdmux_accept() can no longer return, as their listener is closed. */
void rdmux_cq_drop_orphans(struct rdmux_cq *cq);

#endif
