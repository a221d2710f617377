/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Shared receive queues. Records are in a pool, and posted records in a list. The first endpoint
 * that gets a message takes the first posted record. Devices have some records on loan. */
#include "api/core/srq.h"
#include "api/core/cq.h"
#include "api/core/ep.h"
#include "api/core/fabric.h"
#include "api/core/mr.h"
#include "api/data/request.h"
#include "api/data/srq.h"
#include "api/data/srq_device.h"
#include "api/progress/cq_domain.h"
#include "api/progress/cq_owner.h"
#include "api/progress/cq_progress.h"

#include <assert.h>
#include <string.h>

enum { DEFAULT_SRQ_DEPTH = 1024, DEFAULT_SRQ_MAX_SGE = 4, SRQ_DEPTH_MAX = 65536 };

void rdmux_srq_append(struct rdmux_srq *srq, struct rdmux_request *request)
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

void rdmux_srq_prepend(struct rdmux_srq *srq, struct rdmux_request *request)
{
    request->next = srq->posted;
    srq->posted = request;
    if (request->next == NULL) {
        srq->posted_last = request;
    }
    srq->posted_count++;
}

void rdmux_srq_remove(struct rdmux_srq *srq, struct rdmux_request *before,
                      struct rdmux_request *request)
{
    if (before == NULL) {
        srq->posted = request->next;
    } else {
        before->next = request->next;
    }
    if (srq->posted_last == request) {
        srq->posted_last = before;
    }
    srq->posted_count--;
    request->next = NULL;
}

/* ------------------------------------------------------------------------------------ the limit */

/* Returns the number of receives that no message has taken. */
static uint32_t receives_left(const struct rdmux_srq *srq)
{
    return srq->posted_count + srq->lent_count;
}

void rdmux_srq_check_limit(struct rdmux_srq *srq)
{
    if (srq->is_limit_armed && receives_left(srq) < srq->limit) {
        srq->is_limit_armed = false;
        if (rdmux_list_empty(&srq->low)) {
            rdmux_list_append(&srq->cq->low_srqs, &srq->low);
        }
        rdmux_cq_pend(srq->cq, srq->cq->own);
    }
}

struct rdmux_srq *rdmux_srq_take_low(struct rdmux_cq *cq)
{
    struct rdmux_srq *srq = RDMUX_CONTAINER(cq->low_srqs.next, struct rdmux_srq, low);
    rdmux_list_remove(&srq->low);
    return srq;
}

/* ----------------------------------------------------------------------------- sharing receives */

/* Returns the number of posted receives that are not set aside for an endpoint. */
static uint32_t unclaimed_receives(const struct rdmux_srq *srq)
{
    assert(srq->set_aside <= srq->posted_count);
    return srq->posted_count - srq->set_aside;
}

/* Returns the number of those that the endpoint may take. */
static uint32_t available_receives(const struct rdmux_ep *ep)
{
    return ep->shared.is_paused ? 0 : unclaimed_receives(ep->srq);
}

static bool is_waiting(const struct rdmux_ep *ep)
{
    return !rdmux_list_empty(&ep->shared.link);
}

/* Tells the endpoint later, as the provider may be in the middle of another operation. */
static void tell_later(struct rdmux_ep *ep)
{
    ep->shared.news = true;
    ep->work |= RDMUX_WORK_CONTROL;
    rdmux_cq_pend(ep->cq, ep);
}

/* Lists the endpoint among those that have reserved receives. */
static void note_holding(struct rdmux_ep *ep)
{
    if (rdmux_list_empty(&ep->shared.holding)) {
        const struct rdmux_cq *cq = ep->cq;
        uint32_t index = 0;
        while (cq->domains[index].cq != ep->path->cq) {
            index++;
        }
        rdmux_list_append(&ep->srq->holding[index], &ep->shared.holding);
    }
}

void rdmux_srq_tell(struct rdmux_ep *ep)
{
    ep->shared.news = false;
    ep->shared.wants_receive = ep->shared.wants_receive && ep->shared.is_paused;
    if (!rdmux_ep_delivers(ep)) {
        return;
    }
    enum rdmux_status status = ep->ops->post_recv(ep->path, NULL, 0);
    if (status != RDMUX_OK) {
        rdmux_provider_failed(ep->path, status, rdmux_last_error());
    }
    if (ep->shared.reserved != 0 && !rdmux_provider_receives_awaited(ep->path)) {
        note_holding(ep); /* it was told too late, so it returned none */
    }
}

/* Tells endpoints that have reserved receives, but those of one provider cq, that others wait. Each
 * is told once, until it reserves or uses receives again. So the cost does not depend on how many
 * endpoints there are. */
static void tell_holders(struct rdmux_srq *srq, const struct rdmux_provider_cq *but)
{
    for (uint32_t i = 0; i < srq->cq->domain_count; i++) {
        struct rdmux_list *holding = &srq->holding[i];
        while (srq->cq->domains[i].cq != but && !rdmux_list_empty(holding)) {
            struct rdmux_ep *ep = RDMUX_CONTAINER(holding->next, struct rdmux_ep, shared.holding);
            rdmux_list_remove(&ep->shared.holding);
            if (ep->shared.reserved != 0) {
                tell_later(ep);
            }
        }
    }
}

/* Puts the endpoint into the queue of waiting endpoints. Notifies endpoints of other provider cqs
 * that have reserved receives. A provider knows the reservations of its own endpoints. */
static void wait_for_receive(struct rdmux_ep *ep)
{
    struct rdmux_srq *srq = ep->srq;
    if (ep->shared.is_paused) {
        ep->shared.wants_receive = true;
        return;
    }
    if (is_waiting(ep) || !rdmux_ep_delivers(ep)) {
        return;
    }
    rdmux_list_append(&srq->waiting, &ep->shared.link);
    if (srq->set_aside != 0) {
        tell_holders(srq, ep->path->cq);
    }
}

/* Sets an unclaimed receive aside for the endpoint that has waited longest. Returns false if none
 * waits. */
static bool offer_receive(struct rdmux_srq *srq)
{
    if (rdmux_list_empty(&srq->waiting)) {
        return false;
    }
    struct rdmux_ep *ep = RDMUX_CONTAINER(srq->waiting.next, struct rdmux_ep, shared.link);
    rdmux_list_remove(&ep->shared.link);
    if (rdmux_ep_delivers(ep)) {
        ep->shared.offered++;
        srq->set_aside++;
        tell_later(ep);
    }
    return true;
}

/* A device that holds no receive cannot wait for one as an endpoint does. So endpoints that have
 * reserved receives are asked for what they do not use, once until the device has one. */
static void recall_for_devices(struct rdmux_srq *srq)
{
    if (!rdmux_srq_has_starving_device(srq)) {
        srq->has_recalled = false;
    } else if (!srq->has_recalled && srq->set_aside != 0) {
        srq->has_recalled = true;
        tell_holders(srq, NULL);
    }
}

void rdmux_srq_share_out(struct rdmux_srq *srq)
{
    srq->is_sharing_due = false;
    if (srq->device_count == 0) {
        while (unclaimed_receives(srq) != 0 && offer_receive(srq)) {
        }
        return;
    }
    const uint32_t waiting = srq->cq->domain_count; /* the turn after those of the domains */
    uint32_t in_vain = 0;                           /* consecutive turns that took nothing */
    while (unclaimed_receives(srq) != 0 && in_vain <= waiting) {
        uint32_t turn = srq->turn <= waiting ? srq->turn : 0;
        srq->turn = turn + 1;
        bool has_taken = turn == waiting ? offer_receive(srq) : rdmux_srq_device_lend(srq, turn);
        in_vain = has_taken ? 0 : in_vain + 1;
    }
    recall_for_devices(srq);
}

struct rdmux_request *rdmux_srq_take(struct rdmux_ep *ep)
{
    struct rdmux_srq *srq = ep->srq;
    if (ep->shared.reserved != 0) {
        ep->shared.reserved--;
        srq->set_aside--;
        note_holding(ep);
    } else if (ep->shared.offered != 0) {
        ep->shared.offered--;
        srq->set_aside--;
    } else if (available_receives(ep) == 0) {
        wait_for_receive(ep);
        return NULL;
    }
    struct rdmux_request *request = srq->posted;
    srq->posted = request->next;
    srq->posted_count--;
    request->next = ep->shared.taken;
    ep->shared.taken = request;
    rdmux_srq_check_limit(srq);
    return request;
}

uint32_t rdmux_srq_available(const struct rdmux_ep *ep)
{
    return available_receives(ep) + ep->shared.offered;
}

void rdmux_srq_flush(struct rdmux_ep *ep)
{
    while (ep->shared.taken != NULL) {
        struct rdmux_request *request = ep->shared.taken;
        ep->shared.taken = request->next;
        request->done = 1;
        request->status = RDMUX_FLUSHED;
        request->opcode = RDMUX_WC_RECV;
        request->wc_flags = 0;
        rdmux_srq_append_done(ep, request);
    }
}

static void unput_all(struct rdmux_srq *srq, struct rdmux_request **list)
{
    while (*list != NULL) {
        struct rdmux_request *request = *list;
        *list = request->next;
        rdmux_srq_unput(srq, request);
    }
}

void rdmux_srq_untake(struct rdmux_ep *ep)
{
    unput_all(ep->srq, &ep->shared.taken);
}

void rdmux_srq_untake_all(struct rdmux_ep *ep)
{
    unput_all(ep->srq, &ep->shared.done);
    unput_all(ep->srq, &ep->shared.taken);
}

void rdmux_srq_leave(struct rdmux_ep *ep)
{
    ep->srq->set_aside -= ep->shared.reserved + ep->shared.offered;
    ep->shared.reserved = 0;
    ep->shared.offered = 0;
    ep->shared.news = false;
    ep->shared.wants_receive = false;
    rdmux_list_remove(&ep->shared.holding);
    rdmux_list_remove(&ep->shared.link);
    rdmux_srq_share_out(ep->srq);
}

/* ------------------------------------------------------------------------------------- pausing */

/* Returns whether the path can make messages wait although the SRQ has receives. */
static bool can_pause(const struct rdmux_provider_ops *ops)
{
    return !rdmux_srq_is_device(ops) || (ops->flags & RDMUX_PROVIDER_PAUSES) != 0;
}

void rdmux_srq_path_begins(struct rdmux_ep *ep)
{
    if (ep->shared.is_paused && !can_pause(ep->ops)) {
        rdmux_log(ep->fabric, RDMUX_LOG_WARN,
                  "endpoint %llu: it is paused, and %s cannot make messages wait; they come",
                  (unsigned long long)ep->id, ep->ops->name);
    }
}

/* Withdraws the receives that the core has set aside for the endpoint. */
static void withdraw_offers(struct rdmux_ep *ep)
{
    ep->shared.wants_receive = ep->shared.wants_receive || is_waiting(ep) ||
                               ep->shared.offered != 0;
    rdmux_list_remove(&ep->shared.link);
    ep->srq->set_aside -= ep->shared.offered;
    ep->shared.offered = 0;
    rdmux_srq_share_out(ep->srq);
}

static enum rdmux_status set_paused(struct rdmux_ep *ep, bool on)
{
    if (ep->srq == NULL) {
        return rdmux_fail(
            RDMUX_INVALID,
            "rdmux_ep_pause: the endpoint has receives of its own; post none, or give "
            "it an SRQ (rdmux_ep_attr.srq)");
    }
    if (ep->phase == RDMUX_PHASE_SETUP) {
        return rdmux_again("rdmux_ep_pause: the endpoint is not connected yet; wait for "
                           "RDMUX_WC_CONNECTED");
    }
    if (!rdmux_ep_delivers(ep)) {
        return rdmux_fail(ep->end.status == RDMUX_OK ? RDMUX_PEER_GONE
                                                     : (enum rdmux_status)ep->end.status,
                          "rdmux_ep_pause: the endpoint has ended: %s", ep->info.text);
    }
    if (on && !can_pause(ep->ops)) {
        return rdmux_fail(RDMUX_UNSUPPORTED,
                          "rdmux_ep_pause: over %s the device matches messages with the SRQ's "
                          "receives and cannot make those of one endpoint wait; give the endpoint "
                          "receives of its own, or another path",
                          ep->ops->name);
    }
    if (ep->shared.is_paused != on) {
        ep->shared.is_paused = on;
        if (on) {
            withdraw_offers(ep);
            rdmux_srq_tell(ep); /* at once: after this call it promises its peer no receive */
        } else {
            tell_later(ep);
        }
    }
    return RDMUX_OK;
}

enum rdmux_status rdmux_ep_pause(struct rdmux_ep *ep, int on)
{
    if (ep == NULL) {
        return rdmux_fail(RDMUX_INVALID, "rdmux_ep_pause: ep is NULL");
    }
    struct rdmux_cq *cq = ep->cq;
    if (!rdmux_cq_enter(cq)) {
        return rdmux_cq_refused(cq, "rdmux_ep_pause", "ep");
    }
    enum rdmux_status status = ep->phase == RDMUX_PHASE_CLOSED
                                   ? rdmux_fail(RDMUX_INVALID, "rdmux_ep_pause: ep is closed")
                                   : set_paused(ep, on != 0);
    rdmux_cq_leave(cq);
    return status;
}

/* ---------------------------------------------------------------------------- from the provider */

int rdmux_provider_is_paused(const struct rdmux_provider_ep *path)
{
    return path->ep->shared.is_paused;
}

uint32_t rdmux_provider_reserve(struct rdmux_provider_ep *path, uint32_t count)
{
    struct rdmux_ep *ep = path->ep;
    struct rdmux_srq *srq = ep->srq;
    if (srq == NULL || path != ep->path || count == 0) {
        return 0;
    }
    uint32_t reserved = count < ep->shared.offered ? count : ep->shared.offered;
    ep->shared.offered -= reserved;
    const uint32_t available = available_receives(ep);
    uint32_t more = count - reserved < available ? count - reserved : available;
    srq->set_aside += more;
    reserved += more;
    ep->shared.reserved += reserved;
    if (reserved != 0) {
        note_holding(ep);
    } else {
        wait_for_receive(ep);
    }
    return reserved;
}

void rdmux_provider_unreserve(struct rdmux_provider_ep *path, uint32_t count)
{
    struct rdmux_ep *ep = path->ep;
    if (ep->srq == NULL || path != ep->path) {
        return;
    }
    assert(count <= ep->shared.reserved);
    ep->shared.reserved -= count;
    ep->srq->set_aside -= count;
    rdmux_srq_share_out(ep->srq);
}

int rdmux_provider_receives_awaited(const struct rdmux_provider_ep *path)
{
    const struct rdmux_srq *srq = path->ep->srq;
    return srq != NULL && (!rdmux_list_empty(&srq->waiting) || rdmux_srq_has_starving_device(srq));
}

/* -------------------------------------------------------------------------------------- records */

void rdmux_srq_put(struct rdmux_srq *srq, struct rdmux_request *request)
{
    request->next = srq->free;
    srq->free = request;
    srq->used--;
}

void rdmux_srq_unput(struct rdmux_srq *srq, struct rdmux_request *request)
{
    request->keys = 0;
    request->sges = &srq->ring.sges[(size_t)(request - srq->ring.records) * srq->ring.max_sge];
    request->sge_count = srq->counts[request - srq->ring.records];
    request->done = 0;
    request->status = RDMUX_OK;
    request->length = 0;
    for (uint16_t i = 0; i < request->sge_count; i++) {
        request->length += request->sges[i].length;
    }
    rdmux_srq_prepend(srq, request);
    rdmux_srq_share_out(srq);
}

/* Tells the software SRQ of each domain about new receives. */
static void tell_providers(struct rdmux_srq *srq, struct rdmux_request *request)
{
    struct rdmux_cq *cq = srq->cq;
    for (uint32_t i = 0; i < cq->domain_count; i++) {
        if (srq->provider[i] != NULL && srq->devices[i] == NULL) {
            enum rdmux_status status = cq->domains[i].ops->srq_post_recv(srq->provider[i], request,
                                                                         1);
            if (status != RDMUX_OK) {
                rdmux_log(cq->fabric, RDMUX_LOG_ERROR, "srq: %s refused a receive: %s",
                          cq->domains[i].ops->name, rdmux_last_error());
            }
        }
    }
}

static void close_provider(struct rdmux_srq *srq, uint32_t index)
{
    struct rdmux_provider_srq *provider = srq->provider[index];
    srq->provider[index] = NULL;
    srq->cq->domains[index].ops->srq_close(provider);
    if (srq->devices[index] != NULL) {
        rdmux_srq_device_close(srq, index);
    }
    rdmux_release(srq->cq->fabric, provider);
}

/* Keeps the regions of a receive apart from its list: which registration is needed depends on the
 * endpoint that takes the receive. */
static void keep_regions(struct rdmux_srq *srq, size_t index, struct rdmux_request *request)
{
    srq->counts[index] = request->sge_count;
    for (uint16_t i = 0; i < request->sge_count; i++) {
        srq->regions[index * srq->ring.max_sge + i] = (struct rdmux_mr *)(void *)request->sges[i].mr;
        request->sges[i].mr = NULL;
    }
}

static enum rdmux_status queue_srq_receive(struct rdmux_srq *srq, const struct rdmux_wr *wr)
{
    struct rdmux_request *request = srq->free;
    if (srq->used == srq->ring.depth || request == NULL) {
        return rdmux_again("srq_recv: all of the srq's entries are in use; poll, then post again");
    }
    struct rdmux_request *next = request->next;
    size_t index = (size_t)(request - srq->ring.records);
    const struct rdmux_list_rule rule = {
        .fabric = srq->cq->fabric,
        .is_later = true,
        .max_sge = srq->ring.max_sge,
        .needed = RDMUX_ACCESS_LOCAL_WRITE,
    };
    enum rdmux_status status = rdmux_receive_prepare(
        rule, request, &srq->ring.sges[index * srq->ring.max_sge], wr);
    if (status != RDMUX_OK) {
        request->next = next;
        return status;
    }
    keep_regions(srq, index, request);
    if (srq->device_count != 0) {
        status = rdmux_srq_devices_check(srq, request);
        if (status != RDMUX_OK) {
            request->next = next;
            return status;
        }
    }
    srq->free = next;
    srq->used++;
    rdmux_srq_append(srq, request);
    if (srq->limit != 0 && receives_left(srq) >= srq->limit) {
        srq->is_limit_armed = true;
    }
    rdmux_srq_share_out(srq);
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
        return rdmux_cq_refused(srq->cq, "rdmux_srq_post_recv", "srq");
    }
    enum rdmux_status status = RDMUX_OK;
    size_t done = 0;
    for (; done < count; done++) {
        status = rdmux_spare_is_zero(&wrs[done])
                     ? queue_srq_receive(srq, &wrs[done])
                     : rdmux_fail(RDMUX_INVALID,
                                  "rdmux_srq_post_recv: spare of request %zu is not zero", done);
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

/* Ends the loans to devices that no endpoint uses, as their receives would wait for nobody. `but`:
 * the domain of an endpoint that is set up. */
static void close_unused_devices(struct rdmux_srq *srq, uint32_t but)
{
    for (uint32_t i = 0; i < srq->cq->domain_count; i++) {
        if (i != but && srq->devices[i] != NULL && srq->users[i] == 0) {
            close_provider(srq, i);
        }
    }
}

/* Opens the provider SRQ. max_sge: pieces of a list that the device takes. */
static enum rdmux_status open_provider(struct rdmux_srq *srq, uint32_t index, uint32_t max_sge)
{
    struct rdmux_cq *cq = srq->cq;
    const struct rdmux_provider_ops *ops = cq->domains[index].ops;
    const uint32_t wish = srq->ring.max_sge;
    if (wish > max_sge && (ops->flags & RDMUX_PROVIDER_LOCAL_KEYS) == 0) {
        return rdmux_fail(RDMUX_UNSUPPORTED,
                          "srq: lists of %u pieces are asked for, %s takes %u; ask for fewer "
                          "(max_sge)",
                          wish, ops->name, max_sge);
    }
    struct rdmux_provider_srq *provider = rdmux_allocate(cq->fabric, ops->srq_size);
    if (provider == NULL) {
        return rdmux_fail(RDMUX_NO_MEMORY, "srq: out of memory");
    }
    provider->cq = cq->domains[index].cq;
    provider->srq = srq;
    rdmux_error_clear();
    const bool is_device = rdmux_srq_is_device(ops);
    const uint32_t depth = is_device ? rdmux_srq_next_share(srq) : srq->ring.depth;
    enum rdmux_status status = ops->srq_open(provider, depth, wish < max_sge ? wish : max_sge);
    if (status == RDMUX_OK && is_device) {
        status = rdmux_srq_device_open(srq, index, provider, depth, max_sge);
    }
    if (status != RDMUX_OK) {
        rdmux_release(cq->fabric, provider);
        return status;
    }
    srq->provider[index] = provider;
    return RDMUX_OK;
}

enum rdmux_status rdmux_srq_domain(struct rdmux_srq *srq, struct rdmux_provider_cq *provider_cq,
                                   uint32_t max_sge, struct rdmux_provider_srq **out)
{
    struct rdmux_cq *cq = srq->cq;
    uint32_t index = 0;
    while (index < cq->domain_count && cq->domains[index].cq != provider_cq) {
        index++;
    }
    if (index == cq->domain_count) {
        return rdmux_fail(RDMUX_INVALID, "srq: not on this cq");
    }
    enum rdmux_status status = RDMUX_OK;
    close_unused_devices(srq, index);
    if (srq->provider[index] == NULL) {
        status = open_provider(srq, index, max_sge == 0 ? RDMUX_SGE_MAX : max_sge);
    }
    *out = srq->provider[index];
    return status;
}

void rdmux_srq_use(struct rdmux_srq *srq, const struct rdmux_provider_srq *provider, int change)
{
    uint32_t others = 0;
    for (uint32_t i = 0; i < srq->cq->domain_count; i++) {
        if (srq->provider[i] == provider) {
            srq->users[i] += (uint32_t)change;
        } else {
            others += srq->users[i];
        }
    }
    if (change < 0 && others != 0) {
        close_unused_devices(srq, RDMUX_CQ_DOMAINS_MAX);
    }
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
        if (attr->size < offsetof(struct rdmux_srq_attr, device_share)) {
            return rdmux_fail(RDMUX_INVALID,
                              "rdmux_srq_create: attr.size is %u; use RDMUX_SRQ_ATTR_INIT",
                              attr->size);
        }
        memcpy(&all, attr, attr->size < sizeof(all) ? attr->size : sizeof(all));
    }
    uint32_t depth = all.depth == 0 ? DEFAULT_SRQ_DEPTH : all.depth;
    uint32_t max_sge = all.max_sge == 0 ? DEFAULT_SRQ_MAX_SGE : all.max_sge;
    if (fabric == NULL || cq == NULL || cq->fabric != fabric || depth > SRQ_DEPTH_MAX ||
        max_sge > RDMUX_SGE_MAX || all.device_share > depth || all.limit > depth) {
        return rdmux_fail(RDMUX_INVALID, "rdmux_srq_create: %s",
                          fabric == NULL             ? "fabric is NULL"
                          : cq == NULL               ? "cq is NULL"
                          : cq->fabric != fabric     ? "cq belongs to another fabric"
                          : depth > SRQ_DEPTH_MAX    ? "attr.depth is above 65,536"
                          : max_sge > RDMUX_SGE_MAX  ? "attr.max_sge is above 16"
                          : all.device_share > depth ? "attr.device_share is above attr.depth"
                                                     : "attr.limit is above attr.depth");
    }
    if (!rdmux_cq_enter(cq)) {
        return rdmux_cq_refused(cq, "rdmux_srq_create", "cq");
    }
    const uint64_t entries = (uint64_t)depth + (all.limit != 0 ? 1 : 0); /* SRQ_LIMIT */
    enum rdmux_status status = rdmux_cq_reserve(cq, entries);
    if (status != RDMUX_OK) {
        goto leave;
    }
    struct rdmux_srq *srq = rdmux_allocate(fabric, sizeof(*srq));
    if (srq == NULL) {
        status = rdmux_fail(RDMUX_NO_MEMORY, "rdmux_srq_create: out of memory");
        goto unreserve;
    }
    srq->cq = cq;
    srq->reserved = entries;
    srq->device_share = all.device_share;
    srq->limit = all.limit;
    rdmux_list_init(&srq->low);
    rdmux_list_init(&srq->waiting);
    for (uint32_t i = 0; i < RDMUX_CQ_DOMAINS_MAX; i++) {
        rdmux_list_init(&srq->holding[i]);
    }
    status = rdmux_ring_create(fabric, &srq->ring, depth, max_sge, 0);
    if (status != RDMUX_OK) {
        goto release;
    }
    srq->regions = rdmux_allocate_sparse(fabric,
                                         (size_t)depth * max_sge * sizeof(struct rdmux_mr *));
    srq->counts = rdmux_allocate(fabric, depth * sizeof(*srq->counts));
    srq->holders = rdmux_allocate(fabric, depth * sizeof(*srq->holders));
    if (srq->regions == NULL || srq->counts == NULL || srq->holders == NULL) {
        status = rdmux_fail(RDMUX_NO_MEMORY, "rdmux_srq_create: out of memory");
        goto release_ring;
    }
    for (uint32_t i = depth; i-- > 0;) {
        srq->ring.records[i].next = srq->free;
        srq->free = &srq->ring.records[i];
    }
    cq->srq_count++;
    *out = srq;
    goto leave;

release_ring:
    rdmux_release(fabric, srq->holders);
    rdmux_release(fabric, srq->counts);
    rdmux_release(fabric, srq->regions);
    rdmux_ring_destroy(fabric, &srq->ring);
release:
    rdmux_release(fabric, srq);
unreserve:
    rdmux_cq_unreserve(cq, entries);
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
        return rdmux_cq_refused(cq, "rdmux_srq_destroy", "srq");
    }
    rdmux_cq_drop_orphans(cq);
    if (srq->ep_count != 0) {
        rdmux_cq_leave(cq);
        return rdmux_fail(RDMUX_INVALID,
                          "rdmux_srq_destroy: %zu endpoints use it; close them first",
                          srq->ep_count);
    }
    for (uint32_t i = 0; i < cq->domain_count; i++) {
        if (srq->provider[i] != NULL) {
            close_provider(srq, i);
        }
    }
    rdmux_list_remove(&srq->low); /* no entry names it any more */
    rdmux_cq_unreserve(cq, srq->reserved);
    cq->srq_count--;
    rdmux_release(cq->fabric, srq->holders);
    rdmux_release(cq->fabric, srq->counts);
    rdmux_release(cq->fabric, srq->regions);
    rdmux_ring_destroy(cq->fabric, &srq->ring);
    rdmux_release(cq->fabric, srq);
    rdmux_cq_leave(cq);
    return RDMUX_OK;
}

/* -------------------------------------------------------------------------------- software SRQs */

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
    (void)srq;
    (void)requests;
    (void)count;
    return RDMUX_OK; /* rdmux_srq_share_out() tells the endpoints that wait, and no other */
}
