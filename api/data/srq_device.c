/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Receives of an SRQ whose device matches messages. A record at the device is marked `internal`.
 * Each record has bytes registered with the device, for a receive without a region, or with a list
 * that the device does not take.
 */
#include "api/data/srq_device.h"

#include "api/base/pieces.h"
#include "api/core/fabric.h"
#include "api/core/mr.h"
#include "api/core/srq.h"
#include "api/data/bounce.h"
#include "api/data/srq.h"

enum {
    BYTES_MAX = 4 * 1024 * 1024, /* bytes of all records */
    SLOT_MAX = 1024,
    SLOT_ALIGN = 64,
};

struct rdmux_srq_device {
    struct rdmux_provider_srq *provider;
    const struct rdmux_provider_ops *ops;
    struct rdmux_provider_domain *domain;
    uint32_t max_sge; /* pieces of a list that the device takes */
    uint32_t slot;    /* bytes for each record */
    uint8_t *bytes;
    struct rdmux_provider_mr *mr; /* registration of `bytes` */
    /* For each record, the list that the device gets instead of the application's. */
    struct rdmux_provider_sge *bounced;
};

bool rdmux_srq_is_device(const struct rdmux_provider_ops *ops)
{
    return (ops->flags & RDMUX_PROVIDER_DEVICE_SRQ) != 0;
}

static size_t index_of(const struct rdmux_srq *srq, const struct rdmux_request *request)
{
    return (size_t)(request - srq->ring.records);
}

/* Finds the pieces' registrations with the device, or uses the bytes of the record instead. */
static enum rdmux_status find_keys(struct rdmux_srq *srq, struct rdmux_request *request)
{
    struct rdmux_srq_device *device = srq->device;
    size_t index = index_of(srq, request);
    struct rdmux_provider_sge *sges = request->sges;
    struct rdmux_mr *const *regions = &srq->regions[index * srq->ring.max_sge];
    bool missing = false;
    for (uint16_t i = 0; i < request->sge_count; i++) {
        sges[i].mr = regions[i] == NULL ? NULL : rdmux_mr_with(regions[i], device->domain);
        missing = missing || sges[i].mr == NULL;
    }
    bool is_too_long = request->sge_count > device->max_sge;
    if ((!missing && !is_too_long) || (device->ops->flags & RDMUX_PROVIDER_LOCAL_KEYS) == 0) {
        return RDMUX_OK;
    }
    if (request->length > device->slot && is_too_long) {
        return rdmux_fail(
            RDMUX_INVALID,
            "srq_recv: a receive of more than %u pieces may be %u bytes long on %s, not %llu; use "
            "fewer pieces",
            device->max_sge, device->slot, device->ops->name, (unsigned long long)request->length);
    }
    if (request->length > device->slot) {
        return rdmux_fail(
            RDMUX_INVALID,
            "srq_recv: a receive without a region may be %u bytes long on %s, not %llu; "
            "register its memory",
            device->slot, device->ops->name, (unsigned long long)request->length);
    }
    device->bounced[index] = (struct rdmux_provider_sge){
        .addr = device->bytes + index * device->slot,
        .length = request->length,
        .mr = device->mr,
    };
    request->sges = &device->bounced[index];
    request->sge_count = 1;
    request->keys = RDMUX_BOUNCE_BOUNCED;
    return RDMUX_OK;
}

/* Restores the application's list of the record. */
static void forget_keys(struct rdmux_srq *srq, struct rdmux_request *request)
{
    if (request->keys != RDMUX_BOUNCE_BOUNCED) {
        return;
    }
    size_t index = index_of(srq, request);
    request->keys = RDMUX_BOUNCE_OWN;
    request->sges = &srq->ring.sges[index * srq->ring.max_sge];
    request->sge_count = srq->counts[index];
}

enum rdmux_status rdmux_srq_device_post(struct rdmux_srq *srq, struct rdmux_request *request)
{
    struct rdmux_srq_device *device = srq->device;
    enum rdmux_status status = find_keys(srq, request);
    if (status != RDMUX_OK) {
        return status;
    }
    request->internal = 1;
    status = device->ops->srq_post_recv(device->provider, request, 1);
    if (status != RDMUX_OK) {
        request->internal = 0;
        forget_keys(srq, request);
    }
    return status;
}

static enum rdmux_status make_bytes(struct rdmux_srq *srq, struct rdmux_srq_device *device)
{
    struct rdmux_fabric *fabric = srq->cq->fabric;
    uint32_t records = srq->ring.depth;
    uint32_t slot = BYTES_MAX / records / SLOT_ALIGN * SLOT_ALIGN;
    device->slot = slot < SLOT_MAX ? slot : SLOT_MAX;
    device->bounced = rdmux_allocate(fabric, records * sizeof(*device->bounced));
    device->bytes = rdmux_allocate_sparse(fabric, (size_t)records * device->slot);
    device->mr = rdmux_allocate(fabric, device->ops->mr_size);
    if (device->bounced == NULL || device->bytes == NULL || device->mr == NULL) {
        return rdmux_fail(RDMUX_NO_MEMORY, "srq: out of memory");
    }
    device->mr->domain = device->domain;
    const struct rdmux_provider_mr_attr attr = {
        .addr = device->bytes,
        .length = (uint64_t)records * device->slot,
        .access = RDMUX_ACCESS_LOCAL_WRITE,
        .memory_fd = -1,
    };
    rdmux_error_clear();
    enum rdmux_status status = device->ops->mr_register(device->mr, &attr);
    if (status != RDMUX_OK) {
        rdmux_release(fabric, device->mr);
        device->mr = NULL;
    }
    return status;
}

static void destroy_device_srq(struct rdmux_srq *srq)
{
    struct rdmux_srq_device *device = srq->device;
    struct rdmux_fabric *fabric = srq->cq->fabric;
    srq->device = NULL;
    if (device->mr != NULL && device->mr->domain != NULL) {
        device->ops->mr_deregister(device->mr);
    }
    rdmux_release(fabric, device->mr);
    rdmux_release(fabric, device->bytes);
    rdmux_release(fabric, device->bounced);
    rdmux_release(fabric, device);
}

static void take_back_all(struct rdmux_srq *srq)
{
    for (uint32_t i = 0; i < srq->ring.depth; i++) {
        struct rdmux_request *request = &srq->ring.records[i];
        if (request->internal) {
            request->internal = 0;
            forget_keys(srq, request);
            rdmux_srq_append(srq, request);
        } else {
            rdmux_srq_returned(srq, request); /* filled, but not returned yet */
        }
    }
}

enum rdmux_status rdmux_srq_device_open(struct rdmux_srq *srq, struct rdmux_provider_srq *provider,
                                        uint32_t max_sge)
{
    struct rdmux_srq_device *device = rdmux_allocate(srq->cq->fabric, sizeof(*device));
    if (device == NULL) {
        provider->cq->domain->ops->srq_close(provider);
        return rdmux_fail(RDMUX_NO_MEMORY, "srq: out of memory");
    }
    device->provider = provider;
    device->domain = provider->cq->domain;
    device->ops = device->domain->ops;
    device->max_sge = max_sge;
    srq->device = device;
    enum rdmux_status status = RDMUX_OK;
    if ((device->ops->flags & RDMUX_PROVIDER_LOCAL_KEYS) != 0) {
        status = make_bytes(srq, device);
    }
    while (status == RDMUX_OK && srq->posted != NULL) {
        struct rdmux_request *request = srq->posted;
        srq->posted = request->next;
        srq->posted_count--;
        request->next = NULL;
        status = rdmux_srq_device_post(srq, request);
        if (status != RDMUX_OK) {
            rdmux_srq_append(srq, request);
        }
    }
    if (status != RDMUX_OK) {
        device->ops->srq_close(provider); /* the device holds no receive any more */
        rdmux_srq_device_close(srq);
    }
    return status;
}

void rdmux_srq_device_close(struct rdmux_srq *srq)
{
    take_back_all(srq);
    destroy_device_srq(srq);
}

void rdmux_srq_filled(struct rdmux_srq *srq, struct rdmux_request *request)
{
    (void)srq;
    request->internal = 0;
}

void rdmux_srq_returned(struct rdmux_srq *srq, struct rdmux_request *request)
{
    if (request->keys != RDMUX_BOUNCE_BOUNCED) {
        return;
    }
    size_t index = index_of(srq, request);
    if (request->status == RDMUX_OK && request->opcode == RDMUX_WC_RECV) {
        rdmux_scatter(&srq->ring.sges[index * srq->ring.max_sge], srq->counts[index], 0,
                      request->sges[0].addr, request->length);
    }
    forget_keys(srq, request);
}
