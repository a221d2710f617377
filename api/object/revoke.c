/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Revocation of a region's remote rights.
 *
 * `exported` is cleared first, so no new import succeeds. Imports under way are waited for, so that
 * the importer of every description given out is noted. Then the importers are told through the
 * mail of their cq, and answer through the control channel; an endpoint that ends counts as having
 * answered. Meanwhile the caller itself gives a turn to their cqs in which no call is active, as
 * the service thread may come 10 ms later, and the program may be the caller. A peer that has
 * closed its imports is not asked. After all answers or REVOKE_WAIT_MS the keys are invalidated in
 * any case. Where devices go on answering reads after that (RDMUX_PROVIDER_READS_LINGER), each
 * importer's endpoint waits until no read is under way, and is ended after DRAIN_WAIT_MS.
 */
#include "api/object/revoke.h"

#include "api/core/cq.h"
#include "api/core/ep.h"
#include "api/core/fabric.h"
#include "api/core/failover.h"
#include "api/core/mail.h"
#include "api/core/mr.h"
#include "api/data/cq_service.h"
#include "api/data/fault.h"
#include "api/loop/service.h"
#include "api/object/control_send.h"
#include "api/object/ep.h"
#include "api/object/importers.h"
#include "api/object/null_path.h"
#include "api/object/read_drain.h"
#include "api/object/target.h"
#include "api/progress/cq_owner.h"
#include "api/progress/endpoint_table.h"
#include "api/system/system.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

enum {
    REVOKE_WAIT_MS = 100,
    /* These devices send by TCP, which needs 200 ms and more for a packet that was lost. The peer's
     * program has no part in it. */
    DRAIN_WAIT_MS = 1000,
    TURN_MS = 1, /* period of the caller's turns; the service thread is sooner if it watches */
    NS_PER_S = 1000000000,
};

/* Ends remote access by the descriptions given out so far. A registration that appears meanwhile
 * was never described. */
static enum rdmux_status invalidate_registrations(struct rdmux_mr *mr)
{
    enum rdmux_status status = RDMUX_OK;
    size_t count = atomic_load_explicit(&mr->registration_count, memory_order_acquire);
    for (size_t i = 0; i < count; i++) {
        struct rdmux_provider_mr *registration = mr->registrations[i].mr;
        const struct rdmux_provider_ops *ops = registration->domain->ops;
        rdmux_error_clear();
        enum rdmux_status result = ops->mr_invalidate(registration);
        if (result != RDMUX_OK) {
            rdmux_log(mr->fabric, RDMUX_LOG_ERROR,
                      "region %llu: %s did not take its key back: %s: %s",
                      (unsigned long long)mr->id, ops->name, rdmux_status_name(result),
                      rdmux_last_error());
            status = result;
        }
    }
    return status;
}

/* Importers that a question addresses. */
enum audience {
    WHO_IMPORTS,   /* endpoints whose peers have not closed all their imports */
    WHO_DID,       /* all noted importers */
    WHO_IS_SILENT, /* importers that have not answered the previous question */
};

static bool is_asked(const struct rdmux_importer *importer, enum audience audience)
{
    return audience == WHO_DID || (audience == WHO_IMPORTS && importer->imports != 0) ||
           (audience == WHO_IS_SILENT && importer->is_awaited);
}

/* Mails importers. Importers that cannot be mailed are not awaited. fabric->lock is held. */
static void tell_importers(struct rdmux_mr *mr,
                           void (*deliver)(struct rdmux_cq *cq, struct rdmux_mail *mail),
                           enum audience audience)
{
    struct rdmux_fabric *fabric = mr->fabric;
    mr->revoke_number++;
    mr->revoke_awaited = 0;
    for (struct rdmux_list *at = mr->importers.next; at != &mr->importers; at = at->next) {
        struct rdmux_importer *importer = RDMUX_CONTAINER(at, struct rdmux_importer, link);
        if (!is_asked(importer, audience)) {
            rdmux_importer_set_awaited(importer, false);
            continue;
        }
        struct rdmux_revoke_mail *mail = rdmux_allocate(fabric, sizeof(*mail));
        rdmux_importer_set_awaited(importer, mail != NULL);
        if (mail == NULL) {
            continue;
        }
        mail->mail.deliver = deliver;
        mail->mail.ep_id = importer->ep_id;
        mail->ep_id = importer->ep_id;
        mail->region = mr->id;
        mail->number = mr->revoke_number;
        mr->revoke_awaited++;
        rdmux_cq_mail(importer->cq, &mail->mail);
    }
}

static struct timespec after_ms(unsigned ms)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    at.tv_nsec += (long)ms * RDMUX_NS_PER_MS;
    at.tv_sec += at.tv_nsec / NS_PER_S;
    at.tv_nsec %= NS_PER_S;
    return at;
}

static bool is_past(const struct timespec *deadline)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec > deadline->tv_sec ||
           (now.tv_sec == deadline->tv_sec && now.tv_nsec >= deadline->tv_nsec);
}

/* Waits for the importers' answers for a limited time, and takes those that came while this process
 * did not run. fabric->lock is held, but released meanwhile. */
static void await_answers(struct rdmux_mr *mr, unsigned wait_ms)
{
    struct rdmux_fabric *fabric = mr->fabric;
    struct timespec deadline = after_ms(wait_ms);
    bool is_last = false;
    while (mr->revoke_awaited > 0 && !is_last) {
        is_last = is_past(&deadline);
        pthread_mutex_unlock(&fabric->lock);
        if (rdmux_fabric_is_manual(fabric)) {
            rdmux_service_step(fabric, TURN_MS);
        } else {
            rdmux_cq_service_attend_revocations(fabric);
        }
        pthread_mutex_lock(&fabric->lock);
        if (mr->revoke_awaited > 0 && !rdmux_fabric_is_manual(fabric)) {
            struct timespec turn = after_ms(TURN_MS);
            (void)pthread_cond_timedwait(&mr->changed, &fabric->lock, &turn);
        }
    }
}

/* Asks importers as tell_importers() does and returns whether all answered in time; else logs the
 * consequence. fabric->lock is held, but released meanwhile. */
static bool ask_importers(struct rdmux_mr *mr,
                          void (*deliver)(struct rdmux_cq *cq, struct rdmux_mail *mail),
                          enum audience audience, unsigned wait_ms, const char *consequence)
{
    tell_importers(mr, deliver, audience);
    await_answers(mr, wait_ms);
    if (mr->revoke_awaited > 0) {
        rdmux_log(mr->fabric, RDMUX_LOG_WARN,
                  "region %llu: %u importers did not answer the revocation in %u ms; %s",
                  (unsigned long long)mr->id, mr->revoke_awaited, wait_ms, consequence);
    }
    return mr->revoke_awaited == 0;
}

/* Returns whether a device may still be answering reads of the region. */
static bool reads_linger(const struct rdmux_mr *mr)
{
    size_t count = atomic_load_explicit(&mr->registration_count, memory_order_acquire);
    for (size_t i = 0; i < count; i++) {
        if ((mr->registrations[i].domain->ops->flags & RDMUX_PROVIDER_READS_LINGER) != 0) {
            return !rdmux_list_empty(&mr->importers);
        }
    }
    return false;
}

/* Ends an endpoint that has not answered a read drain in time. */
static void deliver_drain_end(struct rdmux_cq *cq, struct rdmux_mail *mail)
{
    struct rdmux_revoke_mail *revoke = RDMUX_CONTAINER(mail, struct rdmux_revoke_mail, mail);
    struct rdmux_ep *ep = rdmux_cq_endpoint(cq, revoke->ep_id);
    if (ep != NULL && ep->phase == RDMUX_PHASE_READY && ep->fault == RDMUX_OK) {
        rdmux_ep_set_in_doubt(ep, true);
        rdmux_ep_fail(ep, RDMUX_DENIED,
                      "a region was revoked, and the peer's device may be reading it still");
    }
    rdmux_release(cq->fabric, revoke);
}

/* Runs after the keys are invalid; no byte is read any more once it returns. Checks also importers
 * that have answered, as a false answer must gain nothing. fabric->lock is held, but released
 * meanwhile. */
static void drain_reads(struct rdmux_mr *mr)
{
    if (!ask_importers(mr, rdmux_ep_deliver_read_drain, WHO_DID, DRAIN_WAIT_MS,
                       "their devices may be reading it still, so their endpoints are ended")) {
        (void)ask_importers(mr, deliver_drain_end, WHO_IS_SILENT, REVOKE_WAIT_MS,
                            "their endpoints have not ended yet");
    }
}

static void forget_importers(struct rdmux_mr *mr)
{
    mr->revoke_awaited = 0;
    while (!rdmux_list_empty(&mr->importers)) {
        rdmux_importer_free(mr->fabric,
                            RDMUX_CONTAINER(mr->importers.next, struct rdmux_importer, link));
    }
}

void rdmux_ep_revocation_answered(struct rdmux_ep *ep)
{
    ep->revocations.awaited -= ep->revocations.awaited != 0;
}

void rdmux_ep_forget_revocations(struct rdmux_ep *ep)
{
    ep->revocations.awaited = 0;
}

void rdmux_revoke_deliver(struct rdmux_cq *cq, struct rdmux_mail *mail)
{
    struct rdmux_revoke_mail *revoke = RDMUX_CONTAINER(mail, struct rdmux_revoke_mail, mail);
    struct rdmux_ep *ep = rdmux_cq_endpoint(cq, revoke->ep_id);
    bool reaches = ep != NULL && ep->phase == RDMUX_PHASE_READY && ep->path != NULL &&
                   ep->ops != &rdmux_null_path_ops;
    if (reaches || (ep != NULL && ep->phase == RDMUX_PHASE_READY && ep->retention.dying != NULL)) {
        struct rdmux_message message = { .type = RDMUX_FRAME_REVOKE,
                                         .id = revoke->number,
                                         .region = revoke->region };
        (void)rdmux_failover_takes_message(ep, &message);
        ep->revocations.awaited++;
        rdmux_ep_tell(ep, &message);
    } else {
        rdmux_mr_revoke_answered(cq->fabric, revoke->region, revoke->number, revoke->ep_id);
    }
    rdmux_release(cq->fabric, revoke);
}

enum rdmux_status rdmux_mr_take_back(struct rdmux_mr *mr, bool again)
{
    struct rdmux_fabric *fabric = mr->fabric;
    pthread_mutex_lock(&fabric->lock);
    while (mr->is_revoking) {
        pthread_cond_wait(&mr->changed, &fabric->lock);
    }
    if (again && !mr->is_exported && !mr->is_granted && !mr->is_given_raw) {
        pthread_mutex_unlock(&fabric->lock);
        return RDMUX_OK;
    }
    if (mr->secrets != NULL) {
        rdmux_wipe(mr->secrets, sizeof(*mr->secrets));
    }
    mr->is_exported = false;
    mr->is_granted = false;
    mr->is_given_raw = false;
    mr->is_revoking = true;
    while (mr->importing > 0) {
        pthread_cond_wait(&mr->changed, &fabric->lock);
    }
    (void)ask_importers(mr, rdmux_revoke_deliver, WHO_IMPORTS, REVOKE_WAIT_MS,
                        "their endpoints may fail");
    bool linger = reads_linger(mr);
    pthread_mutex_unlock(&fabric->lock);

    rdmux_region_table_remove(fabric, mr);
    enum rdmux_status status = again || linger ? invalidate_registrations(mr) : RDMUX_OK;

    pthread_mutex_lock(&fabric->lock);
    if (linger) {
        drain_reads(mr);
    }
    forget_importers(mr);
    if (again && rdmux_region_table_add(fabric, mr) != RDMUX_OK) {
        rdmux_log(fabric, RDMUX_LOG_WARN, "region %llu: %s; the next export tries again",
                  (unsigned long long)mr->id, rdmux_last_error());
    }
    mr->is_revoking = false;
    pthread_cond_broadcast(&mr->changed);
    pthread_mutex_unlock(&fabric->lock);
    return status;
}
