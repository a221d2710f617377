/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Importers: the endpoints whose peers have imported a region. revoke.c asks them. */
#include "api/object/importers.h"

#include "api/core/cq.h"
#include "api/core/fabric.h"
#include "api/core/mr.h"
#include "api/object/mr_table.h"

#include <pthread.h>

/* Importers hashed by endpoint, so that lookups are fast both for an endpoint that imports
 * thousands of regions and for a region that thousands import. */
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

void rdmux_importer_set_awaited(struct rdmux_importer *importer, bool is_awaited)
{
    if (importer->is_awaited != is_awaited) {
        importer->is_awaited = is_awaited;
        atomic_fetch_add_explicit(&importer->cq->revocations, is_awaited ? 1 : UINT32_MAX,
                                  memory_order_relaxed);
    }
}

void rdmux_importer_free(struct rdmux_fabric *fabric, struct rdmux_importer *importer)
{
    rdmux_importer_set_awaited(importer, false);
    struct rdmux_importer **at = importer_bucket(fabric, importer->ep_id);
    while (*at != importer) {
        at = &(*at)->bucket_next;
    }
    *at = importer->bucket_next;
    rdmux_list_remove(&importer->link);
    rdmux_release(fabric, importer);
}

/* Stops waiting for an importer that answered or whose endpoint ended. */
static void await_no_more(struct rdmux_importer *importer)
{
    struct rdmux_mr *mr = importer->mr;
    if (importer->is_awaited) {
        rdmux_importer_set_awaited(importer, false);
        if (--mr->revoke_awaited == 0) {
            pthread_cond_broadcast(&mr->changed);
        }
    }
}

enum rdmux_status rdmux_mr_note_importer(struct rdmux_mr *mr, struct rdmux_cq *cq, uint64_t ep_id)
{
    struct rdmux_importer *importer = find_importer(mr->fabric, mr, ep_id);
    if (importer != NULL) {
        importer->imports++;
        return RDMUX_OK;
    }
    importer = rdmux_allocate(mr->fabric, sizeof(*importer));
    if (importer == NULL) {
        return rdmux_fail(RDMUX_NO_MEMORY, "import: no memory to note the endpoint");
    }
    importer->mr = mr;
    importer->cq = cq;
    importer->ep_id = ep_id;
    importer->imports = 1;
    rdmux_list_append(&mr->importers, &importer->link);
    struct rdmux_importer **bucket = importer_bucket(mr->fabric, ep_id);
    importer->bucket_next = *bucket;
    *bucket = importer;
    return RDMUX_OK;
}

void rdmux_mr_import_granted(struct rdmux_mr *mr, uint64_t ep_id, uint32_t id)
{
    pthread_mutex_lock(&mr->fabric->lock);
    struct rdmux_importer *importer = find_importer(mr->fabric, mr, ep_id);
    if (importer != NULL && importer->first_id == 0) { /* NULL: the endpoint has ended */
        importer->first_id = id;
    }
    pthread_mutex_unlock(&mr->fabric->lock);
}

/* A peer that predates this message sends none, and stays an importer until its endpoint ends. A
 * false message gains nothing, as keys are revoked for every peer, and lingering reads are waited
 * for in any case. */
void rdmux_mr_import_closed(struct rdmux_fabric *fabric, uint64_t region, uint64_t ep_id,
                            uint32_t id, uint32_t count, bool lingers)
{
    pthread_mutex_lock(&fabric->lock);
    struct rdmux_mr *mr = rdmux_mr_by_id(fabric, region);
    struct rdmux_importer *importer = mr == NULL ? NULL : find_importer(fabric, mr, ep_id);
    /* A lower number belongs to an import that a revocation has already ended. */
    if (importer != NULL && importer->imports != 0 && id >= importer->first_id) {
        importer->imports -= count < importer->imports ? count : importer->imports;
        if (importer->imports == 0) {
            importer->first_id = 0;
            await_no_more(importer);
        }
        if (importer->imports == 0 && !lingers) {
            rdmux_importer_free(fabric, importer);
        }
    }
    pthread_mutex_unlock(&fabric->lock);
}

bool rdmux_mr_has_importer(struct rdmux_fabric *fabric, uint64_t ep_id, uint32_t access)
{
    bool found = false;
    pthread_mutex_lock(&fabric->lock);
    for (const struct rdmux_importer *at = *importer_bucket(fabric, ep_id); at != NULL && !found;
         at = at->bucket_next) {
        found = at->ep_id == ep_id && at->imports != 0 && (at->mr->access & access) != 0;
    }
    pthread_mutex_unlock(&fabric->lock);
    return found;
}

void rdmux_mr_revoke_answered(struct rdmux_fabric *fabric, uint64_t region, uint32_t number,
                              uint64_t ep_id)
{
    pthread_mutex_lock(&fabric->lock);
    struct rdmux_mr *mr = rdmux_mr_by_id(fabric, region);
    if (mr != NULL && mr->revoke_awaited > 0 && mr->revoke_number == number) {
        struct rdmux_importer *importer = find_importer(fabric, mr, ep_id);
        if (importer != NULL) {
            await_no_more(importer);
        }
    }
    pthread_mutex_unlock(&fabric->lock);
}

void rdmux_importers_follow(struct rdmux_fabric *fabric, uint64_t ep_id, struct rdmux_cq *to)
{
    for (struct rdmux_importer *at = *importer_bucket(fabric, ep_id); at != NULL;
         at = at->bucket_next) {
        if (at->ep_id == ep_id) {
            const bool is_awaited = at->is_awaited; /* which the cq counts */
            rdmux_importer_set_awaited(at, false);
            at->cq = to;
            rdmux_importer_set_awaited(at, is_awaited);
        }
    }
}

void rdmux_mr_importer_gone(struct rdmux_fabric *fabric, uint64_t ep_id)
{
    pthread_mutex_lock(&fabric->lock);
    struct rdmux_importer *next = NULL;
    for (struct rdmux_importer *at = *importer_bucket(fabric, ep_id); at != NULL; at = next) {
        next = at->bucket_next;
        if (at->ep_id == ep_id) {
            await_no_more(at);
            rdmux_importer_free(fabric, at);
        }
    }
    pthread_mutex_unlock(&fabric->lock);
}
