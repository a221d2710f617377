/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Receives on loan to a device. A record at a device is marked `internal`, and srq->holders names
 * the device. Each record has bytes registered with the device, for a receive without a region, or
 * with a list that the device does not take.
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
    uint32_t share;   /* most receives that the device holds */
    uint32_t lent;    /* receives that the device holds */
    bool has_refused; /* it did not take the last receive; logged once */
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

/* Returns the region of a piece. Looks for one if the program gave none; the record keeps it. */
static struct rdmux_mr *region_of(const struct rdmux_srq *srq, size_t index, uint16_t piece)
{
    struct rdmux_mr **region = &srq->regions[index * srq->ring.max_sge + piece];
    if (*region == NULL && rdmux_fabric_finds_regions(srq->cq->fabric)) {
        const struct rdmux_provider_sge *sge = &srq->ring.sges[index * srq->ring.max_sge + piece];
        const uintptr_t first = (uintptr_t)sge->addr;
        *region = rdmux_span_index_find(srq->cq->fabric->spans, first, first + (sge->length - 1),
                                        RDMUX_ACCESS_LOCAL_WRITE, NULL);
    }
    return *region;
}

/* Returns whether the record goes to the device with its own list, and not through the bytes of the
 * record. */
static bool has_keys(const struct rdmux_srq *srq, const struct rdmux_srq_device *device,
                     const struct rdmux_request *request)
{
    size_t index = index_of(srq, request);
    if ((device->ops->flags & RDMUX_PROVIDER_LOCAL_KEYS) == 0) {
        return true;
    }
    for (uint16_t i = 0; i < srq->counts[index]; i++) {
        const struct rdmux_mr *region = region_of(srq, index, i);
        if (region == NULL || rdmux_mr_with(region, device->domain) == NULL) {
            return false;
        }
    }
    return srq->counts[index] <= device->max_sge;
}

static enum rdmux_status check_record(const struct rdmux_srq *srq,
                                      const struct rdmux_srq_device *device,
                                      const struct rdmux_request *request)
{
    if (request->length <= device->slot || has_keys(srq, device, request)) {
        return RDMUX_OK;
    }
    if (srq->counts[index_of(srq, request)] > device->max_sge) {
        return rdmux_fail(
            RDMUX_INVALID,
            "srq_recv: a receive of more than %u pieces may be %u bytes long on %s, not %llu; use "
            "fewer pieces",
            device->max_sge, device->slot, device->ops->name, (unsigned long long)request->length);
    }
    return rdmux_fail(RDMUX_INVALID,
                      "srq_recv: a receive without a region may be %u bytes long on %s, not %llu; "
                      "register its memory",
                      device->slot, device->ops->name, (unsigned long long)request->length);
}

enum rdmux_status rdmux_srq_devices_check(const struct rdmux_srq *srq,
                                          const struct rdmux_request *request)
{
    for (uint32_t i = 0; i < srq->cq->domain_count; i++) {
        enum rdmux_status status = srq->devices[i] == NULL
                                       ? RDMUX_OK
                                       : check_record(srq, srq->devices[i], request);
        if (status != RDMUX_OK) {
            return status;
        }
    }
    return RDMUX_OK;
}

/* Sets the registrations of the pieces, or uses the bytes of the record instead. */
static void set_keys(struct rdmux_srq *srq, struct rdmux_srq_device *device,
                     struct rdmux_request *request)
{
    size_t index = index_of(srq, request);
    if (has_keys(srq, device, request)) {
        struct rdmux_mr *const *regions = &srq->regions[index * srq->ring.max_sge];
        for (uint16_t i = 0; i < request->sge_count; i++) {
            request->sges[i].mr = regions[i] == NULL ? NULL
                                                     : rdmux_mr_with(regions[i], device->domain);
        }
        return;
    }
    device->bounced[index] = (struct rdmux_provider_sge){
        .addr = device->bytes + index * device->slot,
        .length = request->length,
        .mr = device->mr,
    };
    request->sges = &device->bounced[index];
    request->sge_count = 1;
    request->keys = RDMUX_BOUNCE_BOUNCED;
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

/* Takes the oldest posted record that the device can hold out of the list; NULL: there is none. */
static struct rdmux_request *take_posted(struct rdmux_srq *srq,
                                         const struct rdmux_srq_device *device)
{
    struct rdmux_request *before = NULL;
    for (struct rdmux_request *at = srq->posted; at != NULL; before = at, at = at->next) {
        if (at->length <= device->slot || has_keys(srq, device, at)) {
            rdmux_srq_remove(srq, before, at);
            return at;
        }
    }
    return NULL;
}

static enum rdmux_status lend_to_device(struct rdmux_srq *srq, uint32_t index,
                                        struct rdmux_request *request)
{
    struct rdmux_srq_device *device = srq->devices[index];
    set_keys(srq, device, request);
    request->internal = 1;
    srq->holders[index_of(srq, request)] = (uint8_t)index;
    device->lent++;
    srq->lent_count++;
    enum rdmux_status status = device->ops->srq_post_recv(device->provider, request, 1);
    if (status != RDMUX_OK) {
        rdmux_srq_filled(srq, request);
        forget_keys(srq, request);
    }
    return status;
}

bool rdmux_srq_device_lend(struct rdmux_srq *srq, uint32_t index)
{
    struct rdmux_srq_device *device = srq->devices[index];
    if (device == NULL || device->lent >= device->share) {
        return false;
    }
    struct rdmux_request *request = take_posted(srq, device);
    if (request == NULL) {
        return false;
    }
    rdmux_error_clear();
    bool was_refused = lend_to_device(srq, index, request) != RDMUX_OK;
    if (was_refused) {
        rdmux_srq_prepend(srq, request);
        if (!device->has_refused) {
            rdmux_log(srq->cq->fabric, RDMUX_LOG_ERROR, "srq: %s refused a receive: %s",
                      device->ops->name, rdmux_last_error());
        }
    }
    device->has_refused = was_refused;
    return !was_refused;
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

static void destroy_device(struct rdmux_srq *srq, uint32_t index)
{
    struct rdmux_srq_device *device = srq->devices[index];
    struct rdmux_fabric *fabric = srq->cq->fabric;
    srq->devices[index] = NULL;
    srq->device_count--;
    if (device->mr != NULL && device->mr->domain != NULL) {
        device->ops->mr_deregister(device->mr);
    }
    rdmux_release(fabric, device->mr);
    rdmux_release(fabric, device->bytes);
    rdmux_release(fabric, device->bounced);
    rdmux_release(fabric, device);
}

/* Returns whether the record was filled through the device's bytes, and not returned yet. */
static bool is_bounced_by(const struct rdmux_srq *srq, const struct rdmux_srq_device *device,
                          const struct rdmux_request *request)
{
    return request->keys == RDMUX_BOUNCE_BOUNCED &&
           request->sges == &device->bounced[index_of(srq, request)];
}

static void take_back_lent(struct rdmux_srq *srq, uint32_t index)
{
    const struct rdmux_srq_device *device = srq->devices[index];
    for (uint32_t i = 0; i < srq->ring.depth; i++) {
        struct rdmux_request *request = &srq->ring.records[i];
        if (request->internal && srq->holders[i] == index) {
            rdmux_srq_filled(srq, request);
            forget_keys(srq, request);
            rdmux_srq_append(srq, request);
        } else if (is_bounced_by(srq, device, request)) {
            rdmux_srq_returned(srq, request);
        }
    }
}

bool rdmux_srq_has_starving_device(const struct rdmux_srq *srq)
{
    for (uint32_t i = 0; srq->device_count != 0 && i < srq->cq->domain_count; i++) {
        if (srq->devices[i] != NULL && srq->devices[i]->lent == 0) {
            return true;
        }
    }
    return false;
}

uint32_t rdmux_srq_next_share(const struct rdmux_srq *srq)
{
    uint32_t share = srq->device_share != 0 ? srq->device_share
                                            : srq->ring.depth >> (srq->device_count + 1);
    return share == 0 ? 1 : share < srq->ring.depth ? share : srq->ring.depth;
}

enum rdmux_status rdmux_srq_device_open(struct rdmux_srq *srq, uint32_t index,
                                        struct rdmux_provider_srq *provider, uint32_t share,
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
    device->share = share;
    device->max_sge = max_sge;
    srq->devices[index] = device;
    srq->device_count++;
    enum rdmux_status status = RDMUX_OK;
    if ((device->ops->flags & RDMUX_PROVIDER_LOCAL_KEYS) != 0) {
        status = make_bytes(srq, device);
    }
    for (const struct rdmux_request *at = srq->posted; status == RDMUX_OK && at != NULL;
         at = at->next) {
        status = check_record(srq, device, at);
    }
    if (status == RDMUX_OK && srq->posted_count != srq->set_aside) {
        struct rdmux_request *first = take_posted(srq, device);
        status = lend_to_device(srq, index, first);
        if (status != RDMUX_OK) {
            rdmux_srq_prepend(srq, first);
        }
    }
    if (status != RDMUX_OK) {
        device->ops->srq_close(provider);
        rdmux_srq_device_close(srq, index);
        return status;
    }
    rdmux_srq_share_out(srq);
    return RDMUX_OK;
}

void rdmux_srq_device_close(struct rdmux_srq *srq, uint32_t index)
{
    take_back_lent(srq, index);
    destroy_device(srq, index);
    rdmux_srq_share_out(srq);
}

void rdmux_srq_filled(struct rdmux_srq *srq, struct rdmux_request *request)
{
    struct rdmux_srq_device *device = srq->devices[srq->holders[index_of(srq, request)]];
    request->internal = 0;
    device->lent--;
    srq->lent_count--;
    srq->is_sharing_due = true;
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
