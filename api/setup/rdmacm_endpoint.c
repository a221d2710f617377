/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* rdma:// endpoints: set-up and end. The calls for raw keys are in mr.c and remote.c. */
#include "api/setup/rdmacm_endpoint.h"

#include "api/core/cq.h"
#include "api/core/ep.h"
#include "api/core/fabric.h"
#include "api/core/mail.h"
#include "api/data/bounce.h"
#include "api/data/completion.h"
#include "api/data/fault.h"
#include "api/data/receive.h"
#include "api/data/segments.h"
#include "api/data/srq.h"
#include "api/loop/worker.h"
#include "api/object/domain.h"
#include "api/object/offer.h"
#include "api/progress/cq_domain.h"
#include "api/progress/cq_owner.h"
#include "api/progress/endpoint_table.h"
#include "api/progress/places.h"
#include "api/session/setup_state.h"
#include "api/session/shutdown.h"
#include "api/setup/setup.h"
#include "negotiation/explain.h"
#include "negotiation/filter.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

enum { ADDRESSES_MAX = 8 /* addresses of one name that are tried */ };

static const char ADDRESS_PREFIX[] = "rdma://";

const char *rdmux_rdmacm_address(const char *address)
{
    size_t length = sizeof(ADDRESS_PREFIX) - 1;
    return address != NULL && strncmp(address, ADDRESS_PREFIX, length) == 0 ? address + length
                                                                            : NULL;
}

enum rdmux_status rdmux_rdmacm_refuse(const char *call, const char *address)
{
    return rdmux_fail(
        RDMUX_UNSUPPORTED,
        "%s: address \"%s\": behind rdma:// are programs that are not rdmux, which can "
        "be connected to and nothing else; give the HOST:PORT of an rdmux listener",
        call, address);
}

/* ------------------------------------------------------------------------------------ providers */

const struct rdmux_rdmacm_ops *rdmux_rdmacm_of(const struct rdmux_provider_ops *ops)
{
    bool has_it = ops != NULL && ops->size > offsetof(struct rdmux_provider_ops, rdmacm);
    return has_it ? ops->rdmacm : NULL;
}

const struct rdmux_rdmacm_ops *rdmux_rdmacm_find(const struct rdmux_fabric *fabric)
{
    for (size_t i = 0; i < fabric->registry.count; i++) {
        const struct rdmux_rdmacm_ops *ops = rdmux_rdmacm_of(fabric->registry.entries[i].ops);
        if (ops != NULL) {
            return ops;
        }
    }
    return NULL;
}

enum rdmux_status rdmux_rdmacm_refuse_auth(const char *call)
{
    return rdmux_fail(
        RDMUX_AUTH,
        "%s: peers of rdma:// cannot authenticate, and this fabric asks all to; use a "
        "fabric without auth for them",
        call);
}

enum rdmux_status rdmux_rdmacm_refuse_absent(struct rdmux_fabric *fabric, const char *call)
{
    for (size_t i = 0; i < fabric->registry.count; i++) {
        const struct rdmux_provider_entry *entry = &fabric->registry.entries[i];
        if (entry->ops == NULL && strcmp(entry->name, "roce") == 0) {
            return rdmux_fail(RDMUX_NO_PATH, "%s: rdma:// needs RDMA providers: %s%s%s", call,
                              entry->text, entry->hint[0] != '\0' ? "; " : "", entry->hint);
        }
    }
    return rdmux_fail(RDMUX_NO_PATH, "%s: no provider here makes connections of rdma://", call);
}

/* ---------------------------------------------------------------------------------- explanation */

static void describe_candidate(struct rdmux_candidate *out, const struct rdmux_offer_path *path,
                               enum rdmux_reason reason, enum rdmux_stage stage, const char *text)
{
    memset(out, 0, sizeof(*out));
    out->size = sizeof(*out);
    out->reason = (uint32_t)reason;
    out->stage = (uint32_t)stage;
    out->security = RDMUX_SECURITY_NONE;
    out->software = path->path.software;
    memcpy(out->provider, path->provider, sizeof(out->provider));
    memcpy(out->device, path->path.device, sizeof(out->device));
    snprintf(out->text, sizeof(out->text), "%s", text);
}

/* Keeps the only candidate. */
static void keep_one(struct rdmux_ep *ep, const struct rdmux_offer_path *path, uint64_t native,
                     enum rdmux_reason reason, enum rdmux_stage stage, const char *text,
                     const char *hint)
{
    struct rdmux_candidate *one = rdmux_allocate(ep->fabric, sizeof(*one));
    rdmux_release(ep->fabric, ep->negotiated.candidates);
    ep->negotiated.candidates = one;
    ep->negotiated.candidate_count = one == NULL ? 0 : 1;
    if (one != NULL) {
        describe_candidate(one, path, reason, stage, text);
        snprintf(one->hint, sizeof(one->hint), "%s", hint);
        one->native = native;
        one->rank = 1;
    }
}

/* No device leads to the peer: keeps one candidate for each device. */
static void keep_all(struct rdmux_ep *ep, const char *text)
{
    const struct rdmux_offer *offer = ep->setup->offer;
    struct rdmux_candidate *all = rdmux_allocate(ep->fabric, offer->path_count * sizeof(*all));
    size_t count = 0;
    for (uint32_t i = 0; i < offer->path_count && all != NULL; i++) {
        const struct rdmux_offer_path *path = &offer->paths[i];
        const struct rdmux_provider_ops *ops = rdmux_fabric_provider(ep->fabric, path->provider);
        bool usable = path->path.reason == RDMUX_REASON_USABLE;
        if (ops != NULL && rdmux_rdmacm_of(ops) == NULL) {
            continue; /* shm, tcp */
        }
        describe_candidate(
            &all[count], path,
            usable ? RDMUX_REASON_NOT_REACHABLE : (enum rdmux_reason)path->path.reason,
            usable ? RDMUX_STAGE_MATCH : RDMUX_STAGE_PROBE, usable ? text : path->path.text);
        snprintf(all[count].hint, sizeof(all[count].hint), "%s", path->path.hint);
        count++;
    }
    rdmux_release(ep->fabric, ep->negotiated.candidates);
    ep->negotiated.candidates = all;
    ep->negotiated.candidate_count = count;
}

/* ------------------------------------------------------------------------------------ the route */

/* A job of the worker thread: finds the route to the peer, or opens the device. */
struct rdmacm_job {
    struct rdmux_job job;
    struct rdmux_mail mail;
    struct rdmux_cq *cq;
    uint64_t ep_id;
    const struct rdmux_rdmacm_ops *ops;
    struct sockaddr_storage peers[ADDRESSES_MAX];
    size_t peer_count;
    struct sockaddr_storage local;
    struct rdmux_rdmacm_wish wish;
    struct rdmux_rdmacm_call *call; /* of the route that was found */
    const struct rdmux_provider_ops *provider;
    struct rdmux_local_path path;
    enum rdmux_status status;
    char error[RDMUX_TEXT_MAX];
};

static struct rdmacm_job *make_job(struct rdmux_ep *ep, void (*work)(struct rdmux_job *job),
                                   void (*deliver)(struct rdmux_cq *cq, struct rdmux_mail *mail))
{
    struct rdmacm_job *job = rdmux_allocate(ep->fabric, sizeof(*job));
    if (job == NULL) {
        rdmux_setup_fail(ep, RDMUX_NO_MEMORY, "endpoint: out of memory", false);
        return NULL;
    }
    job->job.work = work;
    job->mail.deliver = deliver;
    job->cq = ep->cq;
    job->ep_id = ep->id;
    return job;
}

/* Owner. Returns the endpoint of a job, if its set-up still waits in this stage. */
static struct rdmux_ep *find_waiting(struct rdmux_cq *cq, uint64_t id, enum setup_stage stage)
{
    struct rdmux_ep *ep = rdmux_cq_endpoint(cq, id);
    return ep != NULL && ep->setup != NULL && ep->setup->stage == stage ? ep : NULL;
}

static void finish_job(struct rdmacm_job *job)
{
    struct rdmux_cq *cq = job->cq; /* job may be freed once the mail is delivered */
    if (job->status != RDMUX_OK) {
        snprintf(job->error, sizeof(job->error), "%s", rdmux_last_error());
    }
    rdmux_cq_mail(cq, &job->mail);
    rdmux_cq_job_ends(cq);
}

static void open_endpoint(struct rdmux_ep *ep);
static void take_endpoint_call(struct rdmux_ep *ep, struct rdmux_rdmacm_call *call);

static void way_found(struct rdmux_cq *cq, struct rdmux_mail *mail)
{
    struct rdmacm_job *job = RDMUX_CONTAINER(mail, struct rdmacm_job, mail);
    struct rdmux_ep *ep = find_waiting(cq, job->ep_id, SETUP_FINDING_WAY);
    if (ep == NULL) {
        if (job->call != NULL) {
            /* the set-up was given up meanwhile */
            job->call->ops->call_drop(job->call, 0, NULL, 0);
        }
    } else if (job->status == RDMUX_OK) {
        take_endpoint_call(ep, job->call);
    } else {
        if (job->status == RDMUX_NO_PATH) {
            keep_all(ep, job->error);
        }
        rdmux_setup_fail(ep, job->status, job->error, false);
    }
    rdmux_release(cq->fabric, job);
}

/* Worker thread. */
static void find_way(struct rdmux_job *base)
{
    struct rdmacm_job *job = RDMUX_CONTAINER(base, struct rdmacm_job, job);
    job->wish.local = job->local.ss_family == AF_UNSPEC ? NULL
                                                        : (const struct sockaddr *)&job->local;
    job->status = rdmux_fail(RDMUX_INVALID, "the peer has no address of a family that fits");
    for (size_t i = 0; i < job->peer_count && job->status != RDMUX_OK; i++) {
        job->wish.peer = (const struct sockaddr *)&job->peers[i];
        if (job->wish.local == NULL || job->local.ss_family == job->peers[i].ss_family) {
            rdmux_error_clear();
            job->status = job->ops->dial(job->cq->fabric, &job->wish, &job->call);
        }
    }
    finish_job(job);
}

static bool parse_local(const char *text, struct sockaddr_storage *out)
{
    struct sockaddr_in *v4 = (struct sockaddr_in *)out;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)out;
    memset(out, 0, sizeof(*out));
    if (inet_pton(AF_INET, text, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        return true;
    }
    if (inet_pton(AF_INET6, text, &v6->sin6_addr) == 1) {
        v6->sin6_family = AF_INET6;
        return true;
    }
    return false;
}

static uint32_t time_left_ms(const struct rdmux_ep *ep)
{
    const struct rdmux_setup *setup = ep->setup;
    uint64_t now = rdmux_now(ep->fabric);
    uint64_t left_ms = setup->deadline_ns <= now ? 1 : (setup->deadline_ns - now) / 1000000 + 1;
    return left_ms < setup->attr.path_timeout_ms ? (uint32_t)left_ms : setup->attr.path_timeout_ms;
}

void rdmux_rdmacm_begin(struct rdmux_ep *ep, const struct rdmux_ep_attr *attr)
{
    struct rdmux_setup *setup = ep->setup;
    ep->is_rdmacm = true;
    snprintf(setup->local, sizeof(setup->local), "%s", attr->local == NULL ? "" : attr->local);
    rdmux_ep_list_busy(ep);
}

void rdmux_rdmacm_dial(struct rdmux_ep *ep)
{
    struct rdmux_setup *setup = ep->setup;
    const struct rdmux_rdmacm_ops *ops = rdmux_rdmacm_find(ep->fabric);
    if (ops == NULL) {
        keep_all(ep, "");
        rdmux_setup_fail(ep, RDMUX_NO_PATH, "no RDMA provider", false);
        return;
    }
    struct rdmacm_job *job = make_job(ep, find_way, way_found);
    if (job == NULL) {
        return;
    }
    job->ops = ops;
    for (; setup->address != NULL && job->peer_count < ADDRESSES_MAX;
         setup->address = setup->address->ai_next) {
        memcpy(&job->peers[job->peer_count++], setup->address->ai_addr, setup->address->ai_addrlen);
    }
    (void)parse_local(setup->local, &job->local);
    job->wish.timeout_ms = time_left_ms(ep);
    job->wish.dscp = setup->attr.dscp == RDMUX_OFF ? 0 : setup->attr.dscp;
    job->wish.ecn = setup->attr.ecn == RDMUX_OFF ? 0 : setup->attr.ecn;
    rdmux_setup_enter(setup, SETUP_FINDING_WAY);
    rdmux_cq_job_begins(ep->cq);
    rdmux_worker_run(ep->fabric, &job->job);
}

void rdmux_rdmacm_accept(struct rdmux_ep *ep, struct rdmux_rdmacm_call *call)
{
    ep->negotiated.role = RDMUX_ROLE_ACCEPT;
    snprintf(ep->setup->target, sizeof(ep->setup->target), "%s", call->peer_address);
    take_endpoint_call(ep, call);
}

/* ----------------------------------------------------------------------------------- the device */

static const struct rdmux_offer_path *find_path(const struct rdmux_offer *offer,
                                                const struct rdmux_rdmacm_place *place)
{
    for (uint32_t i = 0; i < offer->path_count; i++) {
        const struct rdmux_offer_path *path = &offer->paths[i];
        if (strcmp(path->provider, place->provider) == 0 &&
            strcmp(path->path.device, place->device) == 0 && path->path.port == place->port) {
            return path;
        }
    }
    return NULL;
}

/* The capabilities of the path itself. Without rdmux on the peer, atomics are the device's own, so
 * they hold among the users of the device only. */
static uint64_t native_of(const struct rdmux_offer_path *path, const struct rdmux_rdmacm_ops *ops)
{
    uint64_t native = path->path.native & ~ops->lacks;
    if ((native & RDMUX_CAP_ATOMIC_DEVICE) != 0) {
        native |= RDMUX_CAP_FETCH_ADD | RDMUX_CAP_COMPARE_SWAP;
    }
    return native;
}

static bool is_local(const char *wish, const struct rdmux_rdmacm_call *call)
{
    size_t length = strlen(wish);
    const char *at = call->local_address + (call->local_address[0] == '[' ? 1 : 0);
    return length == 0 || strcmp(wish, call->place.device) == 0 ||
           (strncmp(at, wish, length) == 0 && (at[length] == ':' || at[length] == ']'));
}

static enum rdmux_reason judge_device(const struct rdmux_ep *ep,
                                      const struct rdmux_offer_path *path, uint64_t native,
                                      char *text, size_t size)
{
    const struct rdmux_setup *setup = ep->setup;
    const struct rdmux_offer *offer = setup->offer;
    const uint64_t lacking = (offer->require | offer->require_native) & ~native;
    text[0] = '\0';
    for (size_t i = 0; i < RDMUX_COUNT_OF(offer->filter); i++) {
        if (!rdmux_filter_allows(offer->filter[i], path->provider)) {
            rdmux_text_add(text, size, "%s leads there, and the filter \"%.100s\" leaves %s out",
                           path->path.device, offer->filter[i], path->provider);
            return RDMUX_REASON_FILTERED;
        }
    }
    if (!is_local(setup->local, setup->call)) {
        rdmux_text_add(text, size, "%s (%s) leads there, and attr.local asks for %s",
                       path->path.device, setup->call->local_address, setup->local);
        return RDMUX_REASON_FILTERED;
    }
    if (path->path.reason != RDMUX_REASON_USABLE) {
        rdmux_text_add(text, size, "%s", path->path.text);
        return (enum rdmux_reason)path->path.reason;
    }
    if (lacking != 0) {
        char names[128];
        rdmux_capability_list(lacking, names, sizeof(names));
        rdmux_text_add(text, size,
                       "%s does not do by itself what is asked for: %s; the peer has no "
                       "library that could help",
                       path->path.device, names);
        return RDMUX_REASON_CAPABILITY_MISSING;
    }
    return RDMUX_REASON_NONE;
}

static void rdmacm_device_opened(struct rdmux_cq *cq, struct rdmux_mail *mail)
{
    struct rdmacm_job *job = RDMUX_CONTAINER(mail, struct rdmacm_job, mail);
    struct rdmux_ep *ep = find_waiting(cq, job->ep_id, SETUP_OPENING);
    if (ep != NULL && job->status == RDMUX_OK) {
        open_endpoint(ep);
    } else if (ep != NULL) {
        rdmux_setup_fail(ep, job->status, job->error, false);
    }
    rdmux_release(cq->fabric, job);
}

/* Worker thread. */
static void open_rdmacm_device(struct rdmux_job *base)
{
    struct rdmacm_job *job = RDMUX_CONTAINER(base, struct rdmacm_job, job);
    struct rdmux_provider_domain *domain;
    rdmux_error_clear();
    job->status = rdmux_fabric_domain(job->cq->fabric, job->provider, &job->path, &domain);
    finish_job(job);
}

static void take_endpoint_call(struct rdmux_ep *ep, struct rdmux_rdmacm_call *call)
{
    struct rdmux_setup *setup = ep->setup;
    char text[RDMUX_TEXT_MAX];
    setup->call = call;
    snprintf(ep->info.peer_address, sizeof(ep->info.peer_address), "%s", call->peer_address);
    setup->way = find_path(setup->offer, &call->place);
    if (setup->way == NULL) {
        snprintf(text, sizeof(text), "%s port %u leads there, and is no path of rdmux",
                 call->place.device, call->place.port);
        keep_all(ep, text);
        rdmux_setup_fail(ep, RDMUX_NO_PATH, text, false);
        return;
    }
    uint64_t native = native_of(setup->way, call->ops);
    enum rdmux_reason reason = judge_device(ep, setup->way, native, text, sizeof(text));
    if (reason != RDMUX_REASON_NONE) {
        keep_one(ep, setup->way, native, reason, RDMUX_STAGE_MATCH, text,
                 reason == setup->way->path.reason ? setup->way->path.hint : "");
        rdmux_setup_fail(ep, RDMUX_NO_PATH, text, false);
        return;
    }
    uint32_t most = ep->negotiated.role == RDMUX_ROLE_CONNECT ? call->ops->request_private_max
                                                              : call->ops->reply_private_max;
    if (setup->offer->private_length > most) {
        snprintf(
            text, sizeof(text),
            "attr.private_length is %u; over %s the connection manager carries %u bytes with a "
            "%s",
            setup->offer->private_length, setup->way->provider, most,
            ep->negotiated.role == RDMUX_ROLE_CONNECT ? "request" : "reply");
        rdmux_setup_fail(ep, RDMUX_INVALID, text, false);
        return;
    }
    const struct rdmux_provider_ops *provider = rdmux_fabric_provider(ep->fabric,
                                                                      setup->way->provider);
    rdmux_setup_enter(setup, SETUP_OPENING);
    if (rdmux_fabric_domain_is_open(ep->fabric, provider, &setup->way->path)) {
        open_endpoint(ep);
        return;
    }
    struct rdmacm_job *job = make_job(ep, open_rdmacm_device, rdmacm_device_opened);
    if (job != NULL) {
        job->provider = provider;
        job->path = setup->way->path;
        rdmux_cq_job_begins(ep->cq);
        rdmux_worker_run(ep->fabric, &job->job);
    }
}

/* --------------------------------------------------------------------------------- the endpoint */

static uint64_t within_limit(uint64_t a, uint64_t limit)
{
    return limit != 0 && limit < a ? limit : a;
}

static void fill_attr(struct rdmux_ep *ep, struct rdmux_provider_srq *srq)
{
    const struct rdmux_setup *setup = ep->setup;
    struct rdmux_provider_ep_attr *attr = &ep->negotiated.path_attr;
    rdmux_setup_fill_path_attr(ep, &setup->way->path, srq);
    attr->max_send = within_limit(attr->max_send, ep->negotiated.path.max_message);
    attr->call = setup->call;
    setup->call->private_data = setup->offer->private_data;
    setup->call->private_length = setup->offer->private_length;
}

static enum rdmux_status find_cq(struct rdmux_ep *ep, struct rdmux_provider_cq **cq,
                                 struct rdmux_provider_srq **srq)
{
    const struct rdmux_setup *setup = ep->setup;
    const struct rdmux_provider_ops *provider = rdmux_fabric_provider(ep->fabric,
                                                                      setup->way->provider);
    struct rdmux_provider_domain *domain;
    enum rdmux_status status = rdmux_fabric_domain(ep->fabric, provider, &setup->way->path, &domain);
    if (status != RDMUX_OK) {
        return status;
    }
    uint64_t depth = ep->cq->depth > UINT32_MAX ? UINT32_MAX : ep->cq->depth;
    status = rdmux_cq_domain(ep->cq, domain, (uint32_t)depth, cq);
    if (status != RDMUX_OK || ep->srq == NULL) {
        return status;
    }
    if ((native_of(setup->way, setup->call->ops) & RDMUX_CAP_SRQ) == 0) {
        return rdmux_fail(RDMUX_UNSUPPORTED,
                          "attr.srq: %s has no shared receives for peers that are not rdmux",
                          setup->way->path.device);
    }
    return rdmux_srq_domain(ep->srq, *cq, setup->way->path.max_sge, srq);
}

static enum rdmux_status try_open(struct rdmux_ep *ep)
{
    struct rdmux_setup *setup = ep->setup;
    const struct rdmux_provider_ops *ops = setup->call->ops->endpoints;
    struct rdmux_provider_cq *cq = NULL;
    struct rdmux_provider_srq *srq = NULL;
    enum rdmux_status status = find_cq(ep, &cq, &srq);
    if (status != RDMUX_OK) {
        return status;
    }
    struct rdmux_provider_ep *path = rdmux_allocate(ep->fabric, ops->ep_size);
    if (path == NULL) {
        return rdmux_fail(RDMUX_NO_MEMORY, "%s: out of memory", ops->name);
    }
    path->ops = ops;
    path->cq = cq;
    path->ep = ep;
    fill_attr(ep, srq);
    setup->call = NULL; /* ep_open takes the call in any case */
    rdmux_error_clear();
    status = ops->ep_open(path, &ep->negotiated.path_attr);
    if (status != RDMUX_OK) {
        rdmux_release(ep->fabric, path);
        return status;
    }
    rdmux_cq_domain_enter(cq);
    setup->attempt.path = path;
    if (srq != NULL) {
        rdmux_srq_use(ep->srq, srq, 1);
    }
    /* The device gets the receives before the peer can send: there may be no retransmission. */
    ep->path = path;
    ep->ops = ops;
    ep->domain = cq->domain;
    const struct rdmux_bounce_rule rule = {
        .max_inline = path->max_inline != 0 ? path->max_inline : ep->negotiated.path.max_inline,
        .max_sge = ep->negotiated.path.max_sge,
        .needs_sinks = path->needs_sinks != 0,
    };
    status = rdmux_bounce_open(ep, ep->domain, rule);
    return status == RDMUX_OK ? rdmux_segments_open(ep, ep->negotiated.path.max_message) : status;
}

static void open_endpoint(struct rdmux_ep *ep)
{
    enum rdmux_status status = try_open(ep);
    if (status != RDMUX_OK) {
        rdmux_setup_fail(ep, status, rdmux_last_error(), false);
        return;
    }
    rdmux_setup_enter(ep->setup, SETUP_READYING);
    rdmux_ep_resolve_receives(ep);
}

static void fill_rdmacm_info(struct rdmux_ep *ep)
{
    const struct rdmux_setup *setup = ep->setup;
    const struct rdmux_rdmacm_call *call = ep->negotiated.path_attr.call;
    struct rdmux_ep_info *info = &ep->info;
    ep->rdmacm = call->ops;
    memcpy(info->provider, setup->way->provider, sizeof(info->provider));
    memcpy(info->device, ep->negotiated.path.device, sizeof(info->device));
    memcpy(info->local_address, call->local_address, sizeof(info->local_address));
    memcpy(info->peer_address, call->peer_address, sizeof(info->peer_address));
    info->security = RDMUX_SECURITY_NONE;
    info->native = native_of(setup->way, call->ops) & ~call->lacks;
    info->emulated = 0;
    info->max_send = ep->negotiated.path_attr.max_send;
    info->max_recv = ep->negotiated.path_attr.max_recv;
    info->liveness_ms = ep->negotiated.path_attr.liveness_ms;
    info->data_sockets = 1;
    info->epoch = 1;
    info->peer_has_service = 1;
    info->private_length = call->peer_private_length;
    memcpy(info->private_data, call->peer_private_data, sizeof(info->private_data));
    rdmux_setup_grant_inline(ep);
    ep->limits.max_send = info->max_send;
    ep->limits.max_recv = info->max_recv;
    ep->limits.caps = info->native;
    keep_one(ep, setup->way, info->native, RDMUX_REASON_CHOSEN, RDMUX_STAGE_COMMIT,
             "the way to the peer leads over it", "");
}

/* A program that does not wait for set-up posts receives once it has the endpoint. Its next call
 * for progress tells that it has posted them. */
static bool program_is_ready(struct rdmux_ep *ep)
{
    struct rdmux_setup *setup = ep->setup;
    setup->has_program_polled = setup->has_program_polled || !ep->cq->claim.is_in_slice;
    return !ep->negotiated.is_announced || setup->has_program_polled;
}

static void fail_to_connect(struct rdmux_ep *ep, enum rdmux_status status, const char *text)
{
    char copy[RDMUX_TEXT_MAX];
    snprintf(copy, sizeof(copy), "%s", text);
    ep->info.reject_reason = ep->negotiated.path_attr.call->reject_reason;
    keep_one(ep, ep->setup->way, native_of(ep->setup->way, ep->negotiated.path_attr.call->ops),
             status == RDMUX_TIMED_OUT ? RDMUX_REASON_CONNECT_TIMED_OUT
                                       : RDMUX_REASON_CONNECT_FAILED,
             RDMUX_STAGE_CONNECT, copy, "");
    rdmux_setup_fail(ep, status, copy, false);
}

void rdmux_rdmacm_step(struct rdmux_ep *ep)
{
    struct rdmux_setup *setup = ep->setup;
    bool ready = program_is_ready(ep);
    if (setup->stage != SETUP_READYING && setup->stage != SETUP_CONNECTING) {
        return;
    }
    ep->path->ready = 0;
    ep->path->resume = 0;
    if (ep->fault != RDMUX_OK) {
        enum rdmux_status status = (enum rdmux_status)ep->fault;
        rdmux_ep_clear_fault(ep);
        fail_to_connect(ep, status, ep->cause.text);
        return;
    }
    if (setup->stage == SETUP_READYING) {
        if (!ready || !rdmux_ep_offer_early_receives(ep)) {
            return;
        }
        rdmux_setup_enter(setup, SETUP_CONNECTING);
    }
    rdmux_error_clear();
    enum rdmux_status status = ep->ops->ep_connect(ep->path, NULL, 0);
    uint64_t required = setup->offer->require | setup->offer->require_native;
    if (status == RDMUX_OK && (required & ep->negotiated.path_attr.call->lacks) != 0) {
        fail_to_connect(ep, RDMUX_NO_PATH, "the peer grants no reads, and they are required");
    } else if (status == RDMUX_OK) {
        fill_rdmacm_info(ep);
        rdmux_setup_succeed(ep);
    } else if (status != RDMUX_IN_PROGRESS) {
        fail_to_connect(ep, status, rdmux_last_error());
    }
}

void rdmux_rdmacm_abandon(struct rdmux_ep *ep)
{
    struct rdmux_setup *setup = ep->setup;
    if (setup->call != NULL) {
        setup->call->ops->call_drop(setup->call, 0, NULL, 0);
        setup->call = NULL;
    }
}
