/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Who has imported a region, and how its rights are taken back.
 *
 * exported goes first, so nobody imports any more; imports under way are waited for, so every
 * description given out has its importer noted. Then the importers are told, through their cq's mail,
 * and answer through the control channel; an endpoint that ends counts as answered. After all answers
 * or REVOKE_WAIT_MS the keys are invalidated whatever they did. Where devices go on answering reads
 * then (RDMUX_PROVIDER_READS_LINGER) each importer's endpoint waits until none is under way, and is
 * ended after REVOKE_WAIT_MS.
 */
#include "api/core.h"

#include <pthread.h>
#include <time.h>

enum {
    REVOKE_WAIT_MS = 100,
    NS_PER_MS = 1000000,
    NS_PER_S = 1000000000,
};

/* ------------------------------------------------------------------------------------- importers */

/* Importers by endpoint: an endpoint that imports thousands of regions and a region that
 * thousands import are both found fast. */
static struct rdmux_importer **importer_bucket(struct rdmux_fabric *fabric, uint64_t ep_id)
{
    return &fabric->importer_buckets[ep_id % RDMUX_REGION_BUCKETS];
}

static struct rdmux_importer *find_importer(struct rdmux_fabric *fabric, const struct rdmux_mr *mr,
                                            uint64_t ep_id)
{
    struct rdmux_importer *importer = *importer_bucket(fabric, ep_id);
    while (importer != NULL && (importer->ep_id != ep_id || importer->mr != mr)) {
        importer = importer->bucket_next;
    }
    return importer;
}

static void free_importer(struct rdmux_fabric *fabric, struct rdmux_importer *importer)
{
    struct rdmux_importer **at = importer_bucket(fabric, importer->ep_id);
    while (*at != importer) {
        at = &(*at)->bucket_next;
    }
    *at = importer->bucket_next;
    rdmux_list_remove(&importer->link);
    rdmux_release(fabric, importer);
}

/* It answered, or its endpoint ended. */
static void await_no_more(struct rdmux_importer *importer)
{
    struct rdmux_mr *mr = importer->mr;
    if (importer->is_awaited) {
        importer->is_awaited = false;
        if (--mr->revoke_awaited == 0) {
            pthread_cond_broadcast(&mr->changed);
        }
    }
}

enum rdmux_status rdmux_mr_note_importer(struct rdmux_mr *mr, struct rdmux_cq *cq, uint64_t ep_id)
{
    if (find_importer(mr->fabric, mr, ep_id) != NULL) {
        return RDMUX_OK;
    }
    struct rdmux_importer *importer = rdmux_allocate(mr->fabric, sizeof(*importer));
    if (importer == NULL) {
        return rdmux_fail(RDMUX_NO_MEMORY, "import: no memory to note the endpoint");
    }
    importer->mr = mr;
    importer->cq = cq;
    importer->ep_id = ep_id;
    rdmux_list_append(&mr->importers, &importer->link);
    struct rdmux_importer **bucket = importer_bucket(mr->fabric, ep_id);
    importer->bucket_next = *bucket;
    *bucket = importer;
    return RDMUX_OK;
}

bool rdmux_mr_has_importer(struct rdmux_fabric *fabric, uint64_t ep_id, uint32_t access)
{
    bool found = false;
    pthread_mutex_lock(&fabric->lock);
    for (const struct rdmux_importer *at = *importer_bucket(fabric, ep_id); at != NULL && !found;
         at = at->bucket_next) {
        found = at->ep_id == ep_id && (at->mr->access & access) != 0;
    }
    pthread_mutex_unlock(&fabric->lock);
    return found;
}

/* ------------------------------------------------------------------------------------ revocation */

static enum rdmux_status invalidate(struct rdmux_mr *mr)
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

void rdmux_mr_revoke_answered(struct rdmux_fabric *fabric, uint64_t region, uint32_t number,
                              uint64_t ep_id)
{
    pthread_mutex_lock(&fabric->lock);
    struct rdmux_mr *mr = rdmux_mr_find(fabric, region);
    if (mr != NULL && mr->revoke_awaited > 0 && mr->revoke_number == number) {
        struct rdmux_importer *importer = find_importer(fabric, mr, ep_id);
        if (importer != NULL) {
            await_no_more(importer);
        }
    }
    pthread_mutex_unlock(&fabric->lock);
}

void rdmux_mr_importer_gone(struct rdmux_fabric *fabric, uint64_t ep_id)
{
    pthread_mutex_lock(&fabric->lock);
    struct rdmux_importer *next = NULL;
    for (struct rdmux_importer *at = *importer_bucket(fabric, ep_id); at != NULL; at = next) {
        next = at->bucket_next;
        if (at->ep_id == ep_id) {
            await_no_more(at);
            free_importer(fabric, at);
        }
    }
    pthread_mutex_unlock(&fabric->lock);
}

/* Mails every importer, or those that have not answered the mail before; those that cannot be told
 * are not awaited. fabric->lock is held. */
static void tell_importers(struct rdmux_mr *mr,
                           void (*deliver)(struct rdmux_cq *cq, struct rdmux_mail *mail),
                           bool silent_only)
{
    struct rdmux_fabric *fabric = mr->fabric;
    mr->revoke_number++;
    mr->revoke_awaited = 0;
    for (struct rdmux_list *at = mr->importers.next; at != &mr->importers; at = at->next) {
        struct rdmux_importer *importer = RDMUX_CONTAINER(at, struct rdmux_importer, link);
        if (silent_only && !importer->is_awaited) {
            continue;
        }
        struct rdmux_revoke_mail *mail = rdmux_allocate(fabric, sizeof(*mail));
        importer->is_awaited = mail != NULL;
        if (mail == NULL) {
            continue;
        }
        mail->mail.deliver = deliver;
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
    at.tv_nsec += (long)ms * NS_PER_MS;
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

/* Waits for the importers' answers, for a limited time. fabric->lock is held, and given up
 * meanwhile. */
static void await_answers(struct rdmux_mr *mr)
{
    struct rdmux_fabric *fabric = mr->fabric;
    struct timespec deadline = after_ms(REVOKE_WAIT_MS);
    while (mr->revoke_awaited > 0 && !is_past(&deadline)) {
        if (rdmux_fabric_is_manual(fabric)) {
            pthread_mutex_unlock(&fabric->lock);
            rdmux_service_step(fabric, 1);
            pthread_mutex_lock(&fabric->lock);
        } else {
            (void)pthread_cond_timedwait(&mr->changed, &fabric->lock, &deadline);
        }
    }
}

/* Asks importers as tell_importers() does. Returns whether all have answered in time; else it is logged
 * what comes of it. fabric->lock is held, and given up meanwhile. */
static bool ask_importers(struct rdmux_mr *mr,
                          void (*deliver)(struct rdmux_cq *cq, struct rdmux_mail *mail),
                          bool silent_only, const char *consequence)
{
    tell_importers(mr, deliver, silent_only);
    await_answers(mr);
    if (mr->revoke_awaited > 0) {
        rdmux_log(mr->fabric, RDMUX_LOG_WARN,
                  "region %llu: %u importers did not answer the revocation in %d ms; %s",
                  (unsigned long long)mr->id, mr->revoke_awaited, REVOKE_WAIT_MS, consequence);
    }
    return mr->revoke_awaited == 0;
}

/* May a device still be answering reads of the region? */
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

/* After the keys are invalid: no byte is read any more when this returns. Also those who have answered
 * are looked at, as a false answer must gain nothing. fabric->lock is held, and given up meanwhile. */
static void settle_reads(struct rdmux_mr *mr)
{
    if (!ask_importers(mr, rdmux_ep_deliver_settle, false,
                       "their devices may be reading it still, so their endpoints are ended")) {
        (void)ask_importers(mr, rdmux_ep_deliver_settle_end, true,
                            "their endpoints have not ended yet");
    }
}

static void forget_importers(struct rdmux_mr *mr)
{
    mr->revoke_awaited = 0;
    while (!rdmux_list_empty(&mr->importers)) {
        free_importer(mr->fabric, RDMUX_CONTAINER(mr->importers.next, struct rdmux_importer, link));
    }
}

enum rdmux_status rdmux_mr_take_back(struct rdmux_mr *mr, bool again)
{
    struct rdmux_fabric *fabric = mr->fabric;
    pthread_mutex_lock(&fabric->lock);
    while (mr->revoking) {
        pthread_cond_wait(&mr->changed, &fabric->lock);
    }
    if (again && !mr->exported && !mr->granted && !mr->given_raw) {
        pthread_mutex_unlock(&fabric->lock);
        return RDMUX_OK;
    }
    mr->exported = false;
    mr->granted = false;
    mr->given_raw = false;
    mr->revoking = true;
    while (mr->importing > 0) {
        pthread_cond_wait(&mr->changed, &fabric->lock);
    }
    (void)ask_importers(mr, rdmux_ep_deliver_revoke, false, "their endpoints may fail");
    bool linger = reads_linger(mr);
    pthread_mutex_unlock(&fabric->lock);

    rdmux_region_table_remove(fabric, mr);
    enum rdmux_status status = again || linger ? invalidate(mr) : RDMUX_OK;

    pthread_mutex_lock(&fabric->lock);
    if (linger) {
        settle_reads(mr);
    }
    forget_importers(mr);
    if (again && rdmux_region_table_add(fabric, mr) != RDMUX_OK) {
        rdmux_log(fabric, RDMUX_LOG_WARN, "region %llu: %s; the next export tries again",
                  (unsigned long long)mr->id, rdmux_last_error());
    }
    mr->revoking = false;
    pthread_cond_broadcast(&mr->changed);
    pthread_mutex_unlock(&fabric->lock);
    return status;
}
