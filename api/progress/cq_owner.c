/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Ownership of a completion queue, and the wake-up of its owner.
 *
 * A cq has one owner at a time. An application's call owns it from rdmux_cq_enter() to
 * rdmux_cq_leave(). The service thread owns it between rdmux_cq_claim() and
 * rdmux_cq_release_claim(). The hand-over follows Dekker's algorithm: the call stores `inside`,
 * then loads `signal`; the service thread sets a bit in `signal`, makes every thread pass a
 * barrier, then loads `inside`. So a call pays for plain stores only.
 */
#include "api/progress/cq_owner.h"

#include "api/core/cq.h"
#include "api/core/mail.h"
#include "api/loop/service.h"
#include "api/progress/cq_progress.h"

#include <errno.h>
#include <time.h>

/* ------------------------------------------------------------------------------------ ownership */

/* Closes the fast path, which holds the gate open for itself: the cq has another owner now. */
static inline void give_gate_back(struct rdmux_cq *cq)
{
    cq->close_gate(cq);
}

void rdmux_cq_raise(struct rdmux_cq *cq, uint32_t bits)
{
    atomic_fetch_or(rdmux_cq_signal(cq), bits);
    __atomic_store_n(&cq->fast_poll.fast->limit, NULL, __ATOMIC_SEQ_CST);
}

static bool is_process_forked(const struct rdmux_cq *cq)
{
    return (atomic_load_explicit(rdmux_cq_signal(cq), memory_order_acquire) & RDMUX_SIGNAL_ALIVE) ==
           0;
}

bool rdmux_cq_enter_alone(struct rdmux_cq *cq)
{
    enum { SPINS = 64, NAP_NS = 20 * 1000 };
    uint32_t away = RDMUX_GATE_AWAY;
    for (unsigned tries = 0;
         !atomic_compare_exchange_strong(rdmux_cq_inside(cq), &away, RDMUX_GATE_INSIDE); tries++) {
        if ((cq->fence & RDMUX_ENTER_SERIALIZED) == 0) {
            return false;
        }
        /* Calls are short, as sleepers step out, and rdmux_cq_leave() wakes nobody. */
        if (tries >= SPINS) {
            nanosleep(&(struct timespec){ .tv_nsec = NAP_NS }, NULL);
        }
        away = RDMUX_GATE_AWAY;
    }
    return true;
}

enum rdmux_status rdmux_cq_refused(const struct rdmux_cq *cq, const char *call, const char *what)
{
    return is_process_forked(cq)
               ? rdmux_fail(RDMUX_INVALID, "%s: the process forked; the %s belongs to the parent",
                            call, what)
               : rdmux_fail(RDMUX_INVALID,
                            "%s: another thread's call is under way on the same cq "
                            "(RDMUX_CQ_CHECKED); make calls on a cq one at a time, or create it "
                            "with RDMUX_CQ_SERIALIZED",
                            call);
}

bool rdmux_cq_enter_slow(struct rdmux_cq *cq)
{
    for (;;) {
        /* After a step back the exchange of `inside`, and then this load, are the call's side of
         * Dekker's algorithm; without membarrier their order rests on them alone. */
        uint32_t signal = atomic_load_explicit(rdmux_cq_signal(cq), memory_order_seq_cst);
        if ((signal & RDMUX_SIGNAL_ALIVE) == 0) {
            return false;
        }
        if (signal & RDMUX_SIGNAL_DORMANT) {
            atomic_fetch_and(rdmux_cq_signal(cq), ~(uint32_t)RDMUX_SIGNAL_DORMANT);
            rdmux_service_wake(cq->fabric);
        }
        if ((signal & RDMUX_SIGNAL_CLAIM) == 0) {
            give_gate_back(cq);
            return true;
        }
        /* Step back and wait for the end of the slice, which is bounded. */
        atomic_store_explicit(rdmux_cq_inside(cq), RDMUX_GATE_AWAY, memory_order_release);
        pthread_mutex_lock(&cq->claim.lock);
        pthread_mutex_unlock(&cq->claim.lock);
        if (cq->fence > RDMUX_ENTER_FENCED) {
            if (!rdmux_cq_enter_alone(cq)) {
                return false;
            }
        } else {
            atomic_exchange_explicit(rdmux_cq_inside(cq), RDMUX_GATE_INSIDE, memory_order_seq_cst);
        }
    }
}

bool rdmux_cq_claim(struct rdmux_cq *cq)
{
    pthread_mutex_lock(&cq->claim.lock);
    rdmux_cq_raise(cq, RDMUX_SIGNAL_CLAIM);
    if (!RDMUX_TSAN && !cq->fence) {
        rdmux_membarrier();
    }
    if (atomic_load_explicit(rdmux_cq_inside(cq), memory_order_seq_cst) == RDMUX_GATE_INSIDE) {
        rdmux_cq_release_claim(cq);
        return false;
    }
    give_gate_back(cq);
    return true;
}

void rdmux_cq_release_claim(struct rdmux_cq *cq)
{
    atomic_fetch_and_explicit(rdmux_cq_signal(cq), ~(uint32_t)RDMUX_SIGNAL_CLAIM,
                              memory_order_release);
    pthread_mutex_unlock(&cq->claim.lock);
}

/* -------------------------------------------------------------------------------------- wake-up */

static void wake_owner(struct rdmux_cq *cq)
{
    rdmux_wake_signal(&cq->wake);
}

/* A cq that is told is armed in between: the outlet gets its event by `wake`, a member of cq->fd. */
void rdmux_cq_outlet_follows(struct rdmux_cq *cq, enum rdmux_arming next)
{
    if (next == RDMUX_TOLD) {
        return;
    }
    if (atomic_load_explicit(&cq->armed, memory_order_relaxed) != RDMUX_UNARMED) {
        rdmux_wake_drain(&cq->outlet);
    }
    if (next == RDMUX_ARMED) {
        rdmux_service_rearm(cq->fabric, cq->fd, &cq->service.outlet_watch);
    }
}

void rdmux_cq_tell(struct rdmux_cq *cq)
{
    rdmux_cq_set_arming(cq, RDMUX_TOLD);
    wake_owner(cq);
}

void rdmux_cq_untell(struct rdmux_cq *cq, enum rdmux_arming next)
{
    if (atomic_load_explicit(&cq->armed, memory_order_relaxed) == RDMUX_TOLD) {
        rdmux_wake_drain(&cq->wake); /* mail is not lost: it has set RDMUX_SIGNAL_ATTEND, too */
    }
    rdmux_cq_set_arming(cq, next);
}

void rdmux_cq_poke(struct rdmux_cq *cq)
{
    rdmux_cq_raise(cq, RDMUX_SIGNAL_ATTEND);
    wake_owner(cq);
    rdmux_service_wake(cq->fabric);
}

enum rdmux_status rdmux_cq_wake(struct rdmux_cq *cq)
{
    if (cq == NULL || is_process_forked(cq)) {
        return RDMUX_INVALID; /* without a text: the thread's last error stays */
    }
    if (atomic_exchange(&cq->is_woken, 1) == 0) {
        int kept = errno;
        rdmux_cq_raise(cq, RDMUX_SIGNAL_ATTEND);
        wake_owner(cq);
        errno = kept;
    }
    return RDMUX_OK;
}

void rdmux_cq_mail(struct rdmux_cq *cq, struct rdmux_mail *mail)
{
    pthread_mutex_lock(&cq->mailbox.lock);
    mail->next = cq->mailbox.mail;
    cq->mailbox.mail = mail;
    pthread_mutex_unlock(&cq->mailbox.lock);
    rdmux_cq_poke(cq);
}

void rdmux_cq_forward_mail(struct rdmux_cq *from, struct rdmux_cq *to, struct rdmux_mail *first,
                           uint64_t ep_id)
{
    struct rdmux_mail *oldest = NULL; /* of the mail that follows the endpoint */
    pthread_mutex_lock(&from->mailbox.lock);
    for (struct rdmux_mail **at = &from->mailbox.mail; *at != NULL;) {
        struct rdmux_mail *mail = *at;
        if (mail->ep_id == ep_id) {
            *at = mail->next;
            mail->next = oldest;
            oldest = mail;
        } else {
            at = &mail->next;
        }
    }
    pthread_mutex_unlock(&from->mailbox.lock);

    first->next = oldest;
    pthread_mutex_lock(&to->mailbox.lock);
    for (struct rdmux_mail *mail = first, *next; mail != NULL; mail = next) {
        next = mail->next;
        mail->next = to->mailbox.mail;
        to->mailbox.mail = mail;
    }
    pthread_mutex_unlock(&to->mailbox.lock);
    rdmux_cq_poke(to);
}

void rdmux_cq_job_begins(struct rdmux_cq *cq)
{
    pthread_mutex_lock(&cq->mailbox.lock);
    cq->mailbox.jobs++;
    pthread_mutex_unlock(&cq->mailbox.lock);
}

void rdmux_cq_job_ends(struct rdmux_cq *cq)
{
    pthread_mutex_lock(&cq->mailbox.lock);
    cq->mailbox.jobs--;
    pthread_cond_signal(&cq->mailbox.jobs_ended);
    pthread_mutex_unlock(&cq->mailbox.lock);
}

void rdmux_cq_wait_for_jobs(struct rdmux_cq *cq)
{
    pthread_mutex_lock(&cq->mailbox.lock);
    while (cq->mailbox.jobs != 0) {
        pthread_cond_wait(&cq->mailbox.jobs_ended, &cq->mailbox.lock);
    }
    pthread_mutex_unlock(&cq->mailbox.lock);
}

void rdmux_cq_deliver_mail(struct rdmux_cq *cq)
{
    pthread_mutex_lock(&cq->mailbox.lock);
    struct rdmux_mail *newest = cq->mailbox.mail;
    cq->mailbox.mail = NULL;
    pthread_mutex_unlock(&cq->mailbox.lock);

    struct rdmux_mail *oldest = NULL;
    while (newest != NULL) {
        struct rdmux_mail *next = newest->next;
        newest->next = oldest;
        oldest = newest;
        newest = next;
    }
    while (oldest != NULL) {
        struct rdmux_mail *next = oldest->next;
        oldest->deliver(cq, oldest);
        oldest = next;
    }
}
