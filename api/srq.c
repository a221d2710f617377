/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Shared receive queues: records in a pool, posted ones in a list, taken by whichever endpoint gets a message first. */
#include "api/request.h"

#include <string.h>

enum { DEFAULT_DEPTH = 1024, DEFAULT_MAX_SGE = 4, DEPTH_MAX = 65536 };

static void append_posted(struct rdmux_srq *srq, struct rdmux_request *request)
{
    request->next = NULL;
    if (srq->posted == NULL) {
        srq->posted = request;
    } else {
        srq->posted_last->next = request;
    }
    srq->posted_last = request;
    srq->posted_count++;
}

struct rdmux_request *rdmux_srq_take(struct rdmux_srq *srq)
{
    struct rdmux_request *request = srq->posted;
    if (request != NULL) {
        srq->posted = request->next;
        srq->posted_count--;
        request->next = NULL;
    }
    return request;
}

void rdmux_srq_put(struct rdmux_srq *srq, struct rdmux_request *request)
{
    request->next = srq->free;
    srq->free = request;
    srq->used--;
}

void rdmux_srq_unput(struct rdmux_srq *srq, struct rdmux_request *request)
{
    request->done = 0;
    request->status = RDMUX_OK;
    request->length = 0;
    for (uint16_t i = 0; i < request->sge_count; i++) {
        request->length += request->sges[i].length;
    }
    request->next = srq->posted;
    srq->posted = request;
    if (request->next == NULL) {
        srq->posted_last = request;
    }
    srq->posted_count++;
}

/* Tells each domain's software or device SRQ of new receives. */
static void tell_providers(struct rdmux_srq *srq, struct rdmux_request *request)
{
    struct rdmux_cq *cq = srq->cq;
    for (uint32_t i = 0; i < cq->domain_count; i++) {
        if (srq->provider[i] != NULL) {
            enum rdmux_status status = cq->domains[i].ops->srq_post_recv(srq->provider[i], request,
                                                                         1);
            if (status != RDMUX_OK) {
                rdmux_log(cq->fabric, RDMUX_LOG_ERROR, "srq: %s refused a receive: %s",
                          cq->domains[i].ops->name, rdmux_last_error());
            }
        }
    }
}

static enum rdmux_status queue_receive(struct rdmux_srq *srq, const struct rdmux_wr *wr)
{
    struct rdmux_request *request = srq->free;
    if (srq->used == srq->ring.depth || request == NULL) {
        return rdmux_again("srq_recv: all of the srq's entries are in use; poll, then post again");
    }
    struct rdmux_request *next = request->next;
    size_t index = (size_t)(request - srq->ring.records);
    const struct rdmux_list_rule rule = {
        .fabric = srq->cq->fabric,
        .max_sge = srq->ring.max_sge,
        .needed = RDMUX_ACCESS_LOCAL_WRITE,
    };
    enum rdmux_status status = rdmux_receive_prepare(
        rule, request, &srq->ring.sges[index * srq->ring.max_sge], wr);
    if (status != RDMUX_OK) {
        request->next = next;
        return status;
    }
    srq->free = next;
    srq->used++;
    append_posted(srq, request);
    tell_providers(srq, request);
    return RDMUX_OK;
}

enum rdmux_status rdmux_srq_post_recv(struct rdmux_srq *srq, const struct rdmux_wr *wrs,
                                      size_t count, size_t *posted)
{
    if (posted != NULL) {
        *posted = 0;
    }
    if (srq == NULL || (wrs == NULL && count != 0)) {
        return rdmux_fail(RDMUX_INVALID, "rdmux_srq_post_recv: %s is NULL",
                          srq == NULL ? "srq" : "wrs");
    }
    if (!rdmux_cq_enter(srq->cq)) {
        return rdmux_fail(RDMUX_INVALID,
                          "rdmux_srq_post_recv: the process forked; the srq belongs to the parent");
    }
    enum rdmux_status status = RDMUX_OK;
    size_t done = 0;
    for (; done < count; done++) {
        status = queue_receive(srq, &wrs[done]);
        if (status != RDMUX_OK) {
            break;
        }
    }
    rdmux_cq_leave(srq->cq);
    if (posted != NULL) {
        *posted = done;
    }
    return status;
}

enum rdmux_status rdmux_srq_recv(struct rdmux_srq *srq, void *buf, size_t length,
                                 struct rdmux_mr *mr, void *context)
{
    struct rdmux_sge sge = { buf, length, mr };
    struct rdmux_wr wr = { .op = RDMUX_OP_RECV, .context = context, .sges = &sge, .sge_count = 1 };
    return rdmux_srq_post_recv(srq, &wr, 1, NULL);
}

enum rdmux_status rdmux_srq_domain(struct rdmux_srq *srq, struct rdmux_provider_cq *provider_cq,
                                   struct rdmux_provider_srq **out)
{
    struct rdmux_cq *cq = srq->cq;
    uint32_t index = 0;
    while (index < cq->domain_count && cq->domains[index].cq != provider_cq) {
        index++;
    }
    if (index == cq->domain_count) {
        return rdmux_fail(RDMUX_INVALID, "srq: not on this cq");
    }
    if (srq->provider[index] == NULL) {
        const struct rdmux_provider_ops *ops = cq->domains[index].ops;
        struct rdmux_provider_srq *provider = rdmux_allocate(cq->fabric, ops->srq_size);
        if (provider == NULL) {
            return rdmux_fail(RDMUX_NO_MEMORY, "srq: out of memory");
        }
        provider->cq = provider_cq;
        provider->srq = srq;
        enum rdmux_status status = ops->srq_open(provider, srq->ring.depth, srq->ring.max_sge);
        if (status != RDMUX_OK) {
            rdmux_release(cq->fabric, provider);
            return status;
        }
        srq->provider[index] = provider;
        for (struct rdmux_request *request = srq->posted; request != NULL; request = request->next) {
            status = ops->srq_post_recv(provider, request, 1);
            if (status != RDMUX_OK) {
                return status;
            }
        }
    }
    *out = srq->provider[index];
    return RDMUX_OK;
}

enum rdmux_status rdmux_srq_create(struct rdmux_fabric *fabric, struct rdmux_cq *cq,
                                   const struct rdmux_srq_attr *attr, struct rdmux_srq **out)
{
    if (out == NULL) {
        return rdmux_fail(RDMUX_INVALID, "rdmux_srq_create: out is NULL");
    }
    *out = NULL;
    struct rdmux_srq_attr all = RDMUX_SRQ_ATTR_INIT;
    if (attr != NULL) {
        if (attr->size < offsetof(struct rdmux_srq_attr, spare0)) {
            return rdmux_fail(RDMUX_INVALID,
                              "rdmux_srq_create: attr.size is %u; use RDMUX_SRQ_ATTR_INIT",
                              attr->size);
        }
        memcpy(&all, attr, attr->size < sizeof(all) ? attr->size : sizeof(all));
    }
    uint32_t depth = all.depth == 0 ? DEFAULT_DEPTH : all.depth;
    uint32_t max_sge = all.max_sge == 0 ? DEFAULT_MAX_SGE : all.max_sge;
    if (fabric == NULL || cq == NULL || cq->fabric != fabric || depth > DEPTH_MAX ||
        max_sge > RDMUX_SGE_MAX) {
        return rdmux_fail(RDMUX_INVALID, "rdmux_srq_create: %s",
                          fabric == NULL         ? "fabric is NULL"
                          : cq == NULL           ? "cq is NULL"
                          : cq->fabric != fabric ? "cq belongs to another fabric"
                          : depth > DEPTH_MAX    ? "attr.depth is above 65,536"
                                                 : "attr.max_sge is above 16");
    }
    if (!rdmux_cq_enter(cq)) {
        return rdmux_fail(RDMUX_INVALID,
                          "rdmux_srq_create: the process forked; the cq belongs to the parent");
    }
    enum rdmux_status status = rdmux_cq_reserve(cq, depth);
    if (status != RDMUX_OK) {
        goto leave;
    }
    struct rdmux_srq *srq = rdmux_allocate(fabric, sizeof(*srq));
    if (srq == NULL) {
        status = rdmux_fail(RDMUX_NO_MEMORY, "rdmux_srq_create: out of memory");
        goto unreserve;
    }
    srq->cq = cq;
    srq->reserved = depth;
    status = rdmux_ring_create(fabric, &srq->ring, depth, max_sge, 0);
    if (status != RDMUX_OK) {
        goto release;
    }
    for (uint32_t i = depth; i-- > 0;) {
        srq->ring.records[i].next = srq->free;
        srq->free = &srq->ring.records[i];
    }
    cq->srq_count++;
    *out = srq;
    goto leave;

release:
    rdmux_release(fabric, srq);
unreserve:
    rdmux_cq_unreserve(cq, depth);
leave:
    rdmux_cq_leave(cq);
    return status;
}

enum rdmux_status rdmux_srq_destroy(struct rdmux_srq *srq)
{
    if (srq == NULL) {
        return RDMUX_OK;
    }
    struct rdmux_cq *cq = srq->cq;
    if (!rdmux_cq_enter(cq)) {
        return rdmux_fail(RDMUX_INVALID,
                          "rdmux_srq_destroy: the process forked; the srq belongs to the parent");
    }
    if (srq->ep_count != 0) {
        rdmux_cq_leave(cq);
        return rdmux_fail(RDMUX_INVALID,
                          "rdmux_srq_destroy: %zu endpoints use it; close them first",
                          srq->ep_count);
    }
    for (uint32_t i = 0; i < cq->domain_count; i++) {
        if (srq->provider[i] != NULL) {
            cq->domains[i].ops->srq_close(srq->provider[i]);
            rdmux_release(cq->fabric, srq->provider[i]);
        }
    }
    rdmux_cq_unreserve(cq, srq->reserved);
    cq->srq_count--;
    rdmux_ring_destroy(cq->fabric, &srq->ring);
    rdmux_release(cq->fabric, srq);
    rdmux_cq_leave(cq);
    return RDMUX_OK;
}

/* ------------------------------------------------------------------------------------------------- software SRQs */

enum rdmux_status rdmux_software_srq_open(struct rdmux_provider_srq *srq, uint32_t depth,
                                          uint32_t max_sge)
{
    (void)srq;
    (void)depth;
    (void)max_sge;
    return RDMUX_OK;
}

void rdmux_software_srq_close(struct rdmux_provider_srq *srq)
{
    (void)srq;
}

enum rdmux_status rdmux_software_srq_post_recv(struct rdmux_provider_srq *srq,
                                               struct rdmux_request *requests, size_t count)
{
    (void)requests;
    (void)count;
    struct rdmux_cq *cq = srq->srq->cq;
    for (struct rdmux_list *at = cq->eps.next; at != &cq->eps; at = at->next) {
        struct rdmux_ep *ep = RDMUX_CONTAINER(at, struct rdmux_ep, link);
        if (ep->srq == srq->srq && ep->path != NULL && ep->phase == RDMUX_PHASE_READY &&
            ep->path->cq == srq->cq) {
            enum rdmux_status status = ep->ops->post_recv(ep->path, NULL, 0);
            if (status != RDMUX_OK) {
                rdmux_provider_failed(ep->path, status, rdmux_last_error());
            }
        }
    }
    return RDMUX_OK;
}
