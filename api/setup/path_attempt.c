/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * A path attempt: opens and connects one path, and proves it by a write of known bytes in both
 * directions.
 */
#include "api/core/cq.h"
#include "api/core/ep.h"
#include "api/core/mail.h"
#include "api/core/mr.h"
#include "api/data/fault.h"
#include "api/data/request.h"
#include "api/data/srq.h"
#include "api/loop/descriptors.h"
#include "api/loop/worker.h"
#include "api/object/domain.h"
#include "api/object/joins.h"
#include "api/object/offer.h"
#include "api/progress/cq_domain.h"
#include "api/progress/cq_owner.h"
#include "api/progress/endpoint_table.h"
#include "api/session/control.h"
#include "api/session/setup_state.h"
#include "api/setup/setup.h"
#include "api/system/system.h"
#include "negotiation/control_channel.h"
#include "negotiation/path_secret.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void report_result(struct rdmux_ep *ep, enum rdmux_handshake_action_kind kind,
                          enum rdmux_status status, const uint8_t *bytes, size_t size)
{
    struct rdmux_setup *setup = ep->setup;
    rdmux_setup_log_failure(ep, kind, status, rdmux_last_error());
    rdmux_handshake_result(setup->handshake, kind, setup->attempt.number, status, RDMUX_REASON_NONE,
                           status == RDMUX_OK ? "" : rdmux_last_error(), bytes, size,
                           rdmux_setup_now(ep));
}

/* The lower of two limits; 0 means no limit. */
static uint64_t shorter(uint64_t ours, uint64_t theirs)
{
    return theirs == 0 || (ours != 0 && ours < theirs) ? ours : theirs;
}

static const struct rdmux_local_path *peer_path(const struct rdmux_setup *setup)
{
    return &rdmux_handshake_peer_offer(setup->handshake)->paths[setup->attempt.theirs].path;
}

/* On a path without local keys the core does not handle lists that exceed the path's limit. */
static enum rdmux_status check_lists(const struct rdmux_ep *ep,
                                     const struct rdmux_provider_ops *ops,
                                     const struct rdmux_local_path *path)
{
    const struct rdmux_ep_attr *attr = &ep->setup->attr;
    bool helped = (ops->flags & RDMUX_PROVIDER_LOCAL_KEYS) != 0;
    if (helped || path->max_sge == 0 ||
        (attr->max_send_sge <= path->max_sge && attr->max_recv_sge <= path->max_sge)) {
        return RDMUX_OK;
    }
    return rdmux_fail(
        RDMUX_UNSUPPORTED,
        "%s: lists of %u and %u pieces are asked for, the path takes %u; ask for fewer "
        "(max_send_sge, max_recv_sge)",
        path->device, attr->max_send_sge, attr->max_recv_sge, path->max_sge);
}

static void fill_path_attr(struct rdmux_ep *ep, const struct rdmux_offer_path *path,
                           struct rdmux_provider_srq *srq)
{
    const struct rdmux_setup *setup = ep->setup;
    const struct rdmux_handshake_granted *granted = rdmux_handshake_granted(setup->handshake);
    struct rdmux_provider_ep_attr *attr = &ep->negotiated.path_attr;
    rdmux_setup_fill_path_attr(ep, &path->path, srq);
    ep->negotiated.path.max_message = shorter(path->path.max_message, peer_path(setup)->max_message);
    attr->max_send = granted->max_send;
    attr->max_recv = granted->max_recv;
    attr->liveness_ms = granted->liveness_ms;
    attr->data_sockets = granted->data_sockets;
    attr->has_failover = rdmux_handshake_has_failover(setup->handshake);
    if (ep->addresses.peer_length != 0) {
        attr->peer_address = (const struct sockaddr *)&ep->addresses.peer;
        attr->peer_address_length = ep->addresses.peer_length;
    }
    if (ep->addresses.local_length != 0) {
        attr->local_address = (const struct sockaddr *)&ep->addresses.local;
        attr->local_address_length = ep->addresses.local_length;
    }
    if (setup->is_adopted) {
        attr->shared_socket = rdmux_channel_socket(ep->channel);
    }
}

/* Opens the endpoint's side of the path on its open device. */
static enum rdmux_status open_path(struct rdmux_ep *ep, const struct rdmux_provider_ops *ops,
                                   uint8_t *description, size_t *size)
{
    struct rdmux_setup *setup = ep->setup;
    const struct rdmux_offer_path *path = &setup->offer->paths[setup->attempt.ours];
    struct rdmux_provider_domain *domain;
    enum rdmux_status status = check_lists(ep, ops, &path->path);
    if (status != RDMUX_OK) {
        return status;
    }
    status = rdmux_fabric_domain(ep->fabric, ops, &path->path, &domain);
    if (status != RDMUX_OK) {
        return status;
    }
    struct rdmux_provider_cq *cq;
    status = rdmux_cq_domain(
        ep->cq, domain, (uint32_t)(ep->cq->depth > UINT32_MAX ? UINT32_MAX : ep->cq->depth), &cq);
    if (status != RDMUX_OK) {
        return status;
    }
    struct rdmux_provider_srq *srq = NULL;
    if (ep->srq != NULL) {
        status = rdmux_srq_domain(ep->srq, cq, path->path.max_sge, &srq);
        if (status != RDMUX_OK) {
            return status;
        }
    }
    struct rdmux_provider_ep *attempt = rdmux_allocate(ep->fabric, ops->ep_size);
    if (attempt == NULL) {
        return rdmux_fail(RDMUX_NO_MEMORY, "%s: out of memory", path->provider);
    }
    attempt->ops = ops;
    attempt->cq = cq;
    attempt->ep = ep;
    memcpy(ep->secrets->secret, rdmux_handshake_granted(setup->handshake)->secret,
           RDMUX_SECRET_SIZE);
    ep->negotiated.attempt = setup->attempt.number;
    fill_path_attr(ep, path, srq);
    rdmux_error_clear();
    status = ops->ep_open(attempt, &ep->negotiated.path_attr);
    if (status != RDMUX_OK) {
        rdmux_release(ep->fabric, attempt);
        return status;
    }
    rdmux_cq_domain_enter(cq);
    setup->attempt.path = attempt;
    if (srq != NULL) {
        rdmux_srq_use(ep->srq, srq, 1);
    }
    if (ep->negotiated.role == RDMUX_ROLE_ACCEPT) {
        if (ep->fabric->auth != NULL &&
            !rdmux_join_name(ep->secrets->secret, ep->secrets->join_name)) {
            return rdmux_fail(RDMUX_NO_MEMORY, "%s: no memory for a digest", path->provider);
        }
        rdmux_joins_add(ep->fabric, ep);
    }
    return ops->ep_describe(attempt, description, size);
}

/* Closes what a failed OPEN left: the handshake assumes that it leaves nothing. */
static void close_half_open(struct rdmux_ep *ep)
{
    struct rdmux_path_attempt *attempt = &ep->setup->attempt;
    uint32_t number = attempt->number;
    char text[RDMUX_ERROR_MAX];
    if (attempt->path != NULL) {
        snprintf(text, sizeof(text), "%s", rdmux_last_error());
        rdmux_path_attempt_close(ep);
        attempt->number = number;
        (void)rdmux_fail(RDMUX_IO, "%s", text);
    }
}

static void device_is_open(struct rdmux_ep *ep, const struct rdmux_provider_ops *ops)
{
    uint8_t description[RDMUX_DESCRIPTION_MAX];
    size_t size = sizeof(description);
    errno = 0;
    enum rdmux_status status = open_path(ep, ops, description, &size);
    if (status != RDMUX_OK) {
        int error = errno;
        close_half_open(ep);
        if (rdmux_descriptors_retry(ep->fabric, error)) {
            size = sizeof(description);
            status = open_path(ep, ops, description, &size);
            if (status != RDMUX_OK) {
                close_half_open(ep);
            }
        }
    }
    report_result(ep, RDMUX_ACTION_OPEN, status, description, status == RDMUX_OK ? size : 0);
}

/* A device opened by the worker thread: opening it and registering the regions with it may take
 * long. */
struct device_job {
    struct rdmux_job job;
    struct rdmux_mail mail;
    struct rdmux_cq *cq;
    uint64_t ep_id;
    uint32_t attempt;
    const struct rdmux_provider_ops *ops;
    struct rdmux_local_path path;
    enum rdmux_status status;
    char error[RDMUX_TEXT_MAX];
    void (*run)(struct rdmux_ep *ep); /* carries out what the handshake asks for */
};

static void device_opened(struct rdmux_cq *cq, struct rdmux_mail *mail)
{
    struct device_job *job = RDMUX_CONTAINER(mail, struct device_job, mail);
    struct rdmux_ep *ep = rdmux_cq_endpoint(cq, job->ep_id);
    struct rdmux_setup *setup = ep == NULL ? NULL : ep->setup;
    /* Otherwise the attempt was given up meanwhile. */
    if (setup != NULL && setup->attempt.is_opening && setup->attempt.number == job->attempt) {
        setup->attempt.is_opening = false;
        if (job->status == RDMUX_OK) {
            device_is_open(ep, job->ops);
        } else {
            rdmux_fail(job->status, "%s", job->error);
            report_result(ep, RDMUX_ACTION_OPEN, job->status, NULL, 0);
        }
        job->run(ep);
    }
    rdmux_release(cq->fabric, job);
}

/* Worker thread. */
static void open_device(struct rdmux_job *base)
{
    struct device_job *job = RDMUX_CONTAINER(base, struct device_job, job);
    struct rdmux_cq *cq = job->cq; /* job may be freed once the mail is delivered */
    struct rdmux_provider_domain *domain;
    job->status = rdmux_fabric_domain(cq->fabric, job->ops, &job->path, &domain);
    if (job->status != RDMUX_OK) {
        snprintf(job->error, sizeof(job->error), "%s", rdmux_last_error());
    }
    rdmux_cq_mail(cq, &job->mail);
    rdmux_cq_job_ends(cq);
}

static enum rdmux_status ask_for_device(struct rdmux_ep *ep, const struct rdmux_provider_ops *ops,
                                        const struct rdmux_local_path *path,
                                        void (*run)(struct rdmux_ep *ep))
{
    struct device_job *job = rdmux_allocate(ep->fabric, sizeof(*job));
    if (job == NULL) {
        return rdmux_fail(RDMUX_NO_MEMORY, "%s: out of memory", ops->name);
    }
    job->job.work = open_device;
    job->mail.deliver = device_opened;
    job->cq = ep->cq;
    job->ep_id = ep->id;
    job->attempt = ep->setup->attempt.number;
    job->ops = ops;
    job->path = *path;
    job->run = run;
    ep->setup->attempt.is_opening = true;
    rdmux_cq_job_begins(ep->cq);
    rdmux_worker_run(ep->fabric, &job->job);
    return RDMUX_OK;
}

/* Refuses another device after an import of device-scope atomics, which hold among the users of one
 * device only. */
static enum rdmux_status check_scope(struct rdmux_ep *ep, const struct rdmux_offer_path *path)
{
    const char *bound = ep->failover == NULL ? "" : rdmux_ep_bound_device(ep);
    if (bound[0] == '\0' || strcmp(bound, path->path.device) == 0) {
        return RDMUX_OK;
    }
    return rdmux_fail(RDMUX_UNSUPPORTED,
                      "%s: the peer has imported a region whose atomics hold among the users of %s "
                      "alone (RDMUX_ACCESS_ATOMIC_DEVICE)",
                      path->provider, bound);
}

void rdmux_path_attempt_open(struct rdmux_ep *ep, const struct rdmux_handshake_action *action,
                             void (*run)(struct rdmux_ep *ep))
{
    struct rdmux_setup *setup = ep->setup;
    const struct rdmux_offer_path *path = &setup->offer->paths[action->ours];
    const struct rdmux_provider_ops *ops = rdmux_fabric_provider(ep->fabric, path->provider);
    enum rdmux_status status;
    setup->attempt.number = action->attempt;
    setup->attempt.ours = action->ours;
    setup->attempt.theirs = action->theirs;
    rdmux_descriptors_make_room(ep->fabric);
    if (check_scope(ep, path) != RDMUX_OK) {
        rdmux_handshake_result(setup->handshake, RDMUX_ACTION_OPEN, action->attempt,
                               RDMUX_UNSUPPORTED, RDMUX_REASON_CAPABILITY_MISSING,
                               rdmux_last_error(), NULL, 0, rdmux_setup_now(ep));
        return;
    }
    if (ops == NULL) {
        status = rdmux_fail(RDMUX_UNSUPPORTED, "%s: the provider is not loaded", path->provider);
    } else if ((ops->flags & RDMUX_PROVIDER_QUICK) != 0 ||
               rdmux_fabric_domain_is_open(ep->fabric, ops, &path->path)) {
        device_is_open(ep, ops);
        return;
    } else {
        status = ask_for_device(ep, ops, &path->path, run);
    }
    if (status != RDMUX_OK) {
        report_result(ep, RDMUX_ACTION_OPEN, status, NULL, 0);
    }
}

/* Makes the buffer in which the peer proves the path. Memory that a peer may map costs descriptors
 * and system calls, so a path whose writes the core itself lets in gets a buffer without. */
static enum rdmux_status make_proof(struct rdmux_ep *ep, const struct rdmux_provider_ops *ops)
{
    struct rdmux_setup *setup = ep->setup;
    const bool is_private = ops->mr_register == rdmux_software_mr_register;
    if (setup->proof != NULL && !is_private && (setup->proof->access & RDMUX_ACCESS_NO_MAP) != 0) {
        rdmux_mr_deregister(setup->proof); /* of an attempt before */
        setup->proof = NULL;
    }
    if (setup->proof != NULL) {
        return RDMUX_OK;
    }
    if (!is_private) {
        rdmux_descriptors_make_room(ep->fabric);
    }
    return rdmux_mr_alloc(ep->fabric, (size_t)2 * RDMUX_PROOF_SIZE,
                          RDMUX_ACCESS_REMOTE_READ | RDMUX_ACCESS_REMOTE_WRITE |
                              (is_private ? (uint32_t)RDMUX_ACCESS_NO_MAP : 0),
                          &setup->proof);
}

/* The path is connected: describes a buffer in which the peer proves it. */
static enum rdmux_status describe_proof(struct rdmux_ep *ep, uint8_t *description, size_t *size)
{
    struct rdmux_setup *setup = ep->setup;
    struct rdmux_provider_ep *path = setup->attempt.path;
    enum rdmux_status status = make_proof(ep, path->ops);
    if (status != RDMUX_OK) {
        return status;
    }
    memset(setup->proof->addr, 0, RDMUX_PROOF_SIZE);
    struct rdmux_provider_mr *registration = rdmux_mr_with(setup->proof, path->cq->domain);
    if (registration == NULL) {
        return rdmux_fail(RDMUX_IO, "%s: the proof buffer is not registered", path->ops->name);
    }
    return path->ops->mr_describe(registration, path, description, size);
}

static void path_connected(struct rdmux_ep *ep, enum rdmux_status status)
{
    struct rdmux_path_attempt *attempt = &ep->setup->attempt;
    attempt->is_connecting = false;
    uint8_t description[RDMUX_DESCRIPTION_MAX];
    size_t size = sizeof(description);
    if (status == RDMUX_OK) {
        rdmux_error_clear();
        status = describe_proof(ep, description, &size);
    }
    report_result(ep, RDMUX_ACTION_CONNECT, status, description, status == RDMUX_OK ? size : 0);
}

static void start_connect(struct rdmux_ep *ep)
{
    struct rdmux_path_attempt *attempt = &ep->setup->attempt;
    assert(attempt->path != NULL);
    const struct rdmux_provider_ops *ops = attempt->path->ops;
    bool shares = ep->negotiated.path_attr.shared_socket >= 0 &&
                  ops->ep_control != rdmux_unsupported_ep_control;
    if (shares && rdmux_channel_is_sending(ep->channel)) {
        attempt->is_connect_waiting = true; /* READY must be sent before the path writes to the socket */
        return;
    }
    attempt->is_connect_waiting = false;
    if (shares) {
        rdmux_channel_attach(ep->channel, attempt->path);
    }
    rdmux_error_clear();
    rdmux_descriptors_make_room(ep->fabric);
    enum rdmux_status status = ops->ep_connect(attempt->path, attempt->peer_data,
                                               attempt->peer_data_size);
    if (status == RDMUX_IN_PROGRESS) {
        attempt->is_connecting = true;
        return;
    }
    path_connected(ep, status);
}

void rdmux_path_attempt_connect(struct rdmux_ep *ep, const struct rdmux_handshake_action *action)
{
    struct rdmux_path_attempt *attempt = &ep->setup->attempt;
    if (attempt->path == NULL || action->size > sizeof(attempt->peer_data)) {
        rdmux_fail(RDMUX_PROTOCOL, "connection data of %zu bytes", action->size);
        report_result(ep, RDMUX_ACTION_CONNECT, RDMUX_PROTOCOL, NULL, 0);
        return;
    }
    memcpy(attempt->peer_data, action->bytes, action->size);
    attempt->peer_data_size = action->size;
    start_connect(ep);
}

/* Fills the next parts of the proof, each as long as the path allows. PLACED on the last part
 * covers all. */
static void fill_parts(struct rdmux_ep *ep)
{
    struct rdmux_path_attempt *attempt = &ep->setup->attempt;
    const uint64_t most = ep->negotiated.path.max_message;
    attempt->part_count = 0;
    attempt->parts_posted = 0;
    while (attempt->part_count < RDMUX_PROOF_PARTS && attempt->given < RDMUX_PROOF_SIZE) {
        const uint64_t rest = RDMUX_PROOF_SIZE - attempt->given;
        const uint64_t length = most != 0 && most < rest ? most : rest;
        const uint32_t at = attempt->part_count++;
        attempt->sges[at] = (struct rdmux_provider_sge){
            .addr = (uint8_t *)ep->setup->proof->addr + RDMUX_PROOF_SIZE + attempt->given,
            .length = length,
            .mr = rdmux_mr_with(ep->setup->proof, attempt->path->cq->domain),
        };
        struct rdmux_request *part = &attempt->parts[at];
        rdmux_own_begin(part, RDMUX_OP_WRITE, length == rest ? (uint32_t)RDMUX_PLACED : 0, 0);
        part->sge_count = 1;
        part->length = length;
        part->sges = &attempt->sges[at];
        part->remote = attempt->remote;
        part->offset = attempt->given;
        attempt->given += length;
    }
}

static void post_proof(struct rdmux_ep *ep)
{
    struct rdmux_path_attempt *attempt = &ep->setup->attempt;
    size_t posted = 0;
    assert(attempt->path != NULL);
    enum rdmux_status status = attempt->path->ops->post(
        attempt->path, &attempt->parts[attempt->parts_posted],
        attempt->part_count - attempt->parts_posted, 0, &posted);
    attempt->parts_posted += (uint32_t)posted;
    if (status != RDMUX_OK && status != RDMUX_AGAIN) {
        attempt->is_writing = false;
        report_result(ep, RDMUX_ACTION_WRITE_PROOF, status, NULL, 0);
    }
}

static enum rdmux_status open_proof_remote(struct rdmux_ep *ep,
                                           const struct rdmux_handshake_action *action)
{
    struct rdmux_path_attempt *attempt = &ep->setup->attempt;
    const struct rdmux_provider_ops *ops = attempt->path->ops;
    attempt->remote = rdmux_allocate(ep->fabric, ops->remote_size);
    if (attempt->remote == NULL) {
        return rdmux_fail(RDMUX_NO_MEMORY, "%s: out of memory", ops->name);
    }
    attempt->remote->ep = attempt->path;
    attempt->remote->length = (uint64_t)2 * RDMUX_PROOF_SIZE;
    attempt->remote->access = RDMUX_ACCESS_REMOTE_READ | RDMUX_ACCESS_REMOTE_WRITE;
    rdmux_error_clear();
    enum rdmux_status status = ops->remote_open(attempt->remote, action->bytes, action->size);
    if (status != RDMUX_OK) {
        rdmux_release(ep->fabric, attempt->remote);
        attempt->remote = NULL;
    }
    return status;
}

void rdmux_path_attempt_write_proof(struct rdmux_ep *ep, const struct rdmux_handshake_action *action)
{
    struct rdmux_setup *setup = ep->setup;
    struct rdmux_path_attempt *attempt = &setup->attempt;
    enum rdmux_status status = open_proof_remote(ep, action);
    if (status != RDMUX_OK) {
        report_result(ep, RDMUX_ACTION_WRITE_PROOF, status, NULL, 0);
        return;
    }
    uint8_t *source = (uint8_t *)setup->proof->addr + RDMUX_PROOF_SIZE;
    rdmux_proof_fill(action->write_nonce, source, RDMUX_PROOF_SIZE);
    attempt->given = 0;
    fill_parts(ep);
    attempt->is_writing = true;
    post_proof(ep);
}

void rdmux_path_attempt_check_proof(struct rdmux_ep *ep, const struct rdmux_handshake_action *action)
{
    bool right = rdmux_proof_matches(action->check_nonce, ep->setup->proof->addr, RDMUX_PROOF_SIZE);
    enum rdmux_status status = RDMUX_OK;
    if (!right) {
        status = rdmux_fail(RDMUX_IO,
                            "the bytes that arrived over the path are not those the peer sent");
    }
    report_result(ep, RDMUX_ACTION_CHECK_PROOF, status, NULL, 0);
}

static bool parts_are_done(const struct rdmux_path_attempt *attempt)
{
    for (uint32_t i = 0; i < attempt->part_count; i++) {
        if (!attempt->parts[i].done) {
            return false;
        }
    }
    return true;
}

static void take_parts(struct rdmux_ep *ep)
{
    struct rdmux_path_attempt *attempt = &ep->setup->attempt;
    enum rdmux_status status = RDMUX_OK;
    for (uint32_t i = 0; i < attempt->part_count && status == RDMUX_OK; i++) {
        status = (enum rdmux_status)attempt->parts[i].status;
    }
    if (status == RDMUX_OK && attempt->given < RDMUX_PROOF_SIZE) {
        fill_parts(ep);
        post_proof(ep);
        return;
    }
    attempt->is_writing = false;
    if (status != RDMUX_OK) {
        rdmux_fail(status, "the proof's write failed with %s", rdmux_status_name(status));
    }
    report_result(ep, RDMUX_ACTION_WRITE_PROOF, status, NULL, 0);
}

void rdmux_path_attempt_step(struct rdmux_ep *ep)
{
    struct rdmux_path_attempt *attempt = &ep->setup->attempt;
    if (attempt->is_connect_waiting) {
        if (rdmux_channel_flush(ep->channel) == RDMUX_OK) {
            start_connect(ep);
        }
    } else if (attempt->is_connecting) {
        rdmux_error_clear();
        enum rdmux_status status = attempt->path->ops->ep_connect(attempt->path, NULL, 0);
        if (status != RDMUX_IN_PROGRESS) {
            path_connected(ep, status);
        }
    }
    if (attempt->is_writing && attempt->parts_posted < attempt->part_count) {
        post_proof(ep);
    }
    while (attempt->is_writing && parts_are_done(attempt)) {
        take_parts(ep);
    }
    rdmux_measure_step(ep);
    /* After COMMIT, a fault on a separate socket is handled once the path is the endpoint's: the
     * peer may be connected, and have closed again, before its CONFIRM is read here. */
    bool shares = ep->channel != NULL && rdmux_channel_is_attached(ep->channel);
    if (ep->fault != RDMUX_OK && attempt->path != NULL &&
        (shares || !rdmux_handshake_is_committed(ep->setup->handshake))) {
        enum rdmux_status status = (enum rdmux_status)ep->fault;
        rdmux_ep_clear_fault(ep);
        rdmux_handshake_path_failed(ep->setup->handshake, status, ep->cause.text,
                                    rdmux_setup_now(ep));
    }
}

/* ---------------------------------------------------------------------- calls from the provider */

void rdmux_provider_join(struct rdmux_provider_ep *path, uint32_t index,
                         uint8_t out[RDMUX_JOIN_SIZE])
{
    struct rdmux_join join = { .epoch = 1, .attempt = path->ep->negotiated.attempt, .index = index };
    memcpy(join.secret, path->ep->secrets->secret, sizeof(join.secret));
    if (path->ep->fabric->auth != NULL && !rdmux_join_seal(&join, path->ep->secrets->secret)) {
        /* no socket can join, and the secret is not disclosed */
        memset(join.secret, 0, sizeof(join.secret));
    }
    rdmux_join_encode(&join, out);
    rdmux_wipe(&join, sizeof(join));
}

void rdmux_provider_secret(struct rdmux_provider_ep *path, uint8_t out[RDMUX_SECRET_SIZE])
{
    rdmux_path_secret(path->ep->secrets->secret, path->ep->negotiated.attempt, out);
}

void rdmux_ep_deliver_join(struct rdmux_cq *cq, struct rdmux_mail *mail)
{
    struct rdmux_join_mail *join = RDMUX_CONTAINER(mail, struct rdmux_join_mail, mail);
    bool taken = false;
    struct rdmux_ep *ep = rdmux_joins_find(cq, &join->join);
    if (ep != NULL && ep->setup != NULL && ep->setup->attempt.path != NULL &&
        ep->negotiated.attempt == join->join.attempt) {
        struct rdmux_provider_ep *path = ep->setup->attempt.path;
        taken = path->ops->ep_join(path, join->socket, join->join.index) == RDMUX_OK;
    }
    if (!taken) {
        close(join->socket);
    }
    rdmux_release_wiped(join->fabric, join, sizeof(*join));
}
