/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Set-up of endpoints: names, sockets, and the driver of the handshake, which itself does no I/O. Everything here runs in the
 * cq's domain; only names are resolved on the worker thread.
 */
#include "api/connection.h"

#include "api/address.h"
#include "api/keys.h"
#include "api/listener.h"
#include "api/split.h"
#include "negotiation/control_channel.h"
#include "negotiation/explain.h"
#include "negotiation/path_secret.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum setup_stage {
    SETUP_RESOLVING, /* the worker asks for the peer's addresses */
    SETUP_DIALING,   /* connect() under way */
    SETUP_TALKING,   /* the handshake runs */
};

/* A path on trial. */
struct trial {
    struct rdmux_provider_ep *path;
    uint32_t attempt;
    uint16_t ours;
    bool connecting;    /* ep_connect said IN_PROGRESS */
    bool connect_waits; /* for unsent bytes on the shared socket */
    bool writing;       /* the proof's write is not done */
    bool posted;
    uint8_t peer_data[RDMUX_DESCRIPTION_MAX];
    size_t peer_data_size;
    struct rdmux_provider_remote *remote;
    struct rdmux_request write;
    struct rdmux_provider_sge sge;
};

struct rdmux_setup {
    enum setup_stage stage;
    struct rdmux_ep_attr attr;  /* without the caller's strings */
    char local[RDMUX_NAME_MAX]; /* attr.local, "" if none */
    struct rdmux_offer *offer;
    void *handshake_memory;
    struct rdmux_handshake *handshake;
    struct addrinfo *addresses;
    struct addrinfo *address; /* the one being dialled */
    int dialing;              /* its socket, -1 */
    uint64_t deadline_ns;
    bool adopted;
    int adopted_flags; /* of the socket, as it came */
    int adopted_nodelay;
    struct trial trial;
    struct rdmux_mr *proof; /* first half: the peer writes here; second half: what we write */
    char target[RDMUX_ADDRESS_MAX]; /* what the program asked for */
};

static void run(struct rdmux_ep *ep);

/* ------------------------------------------------------------------------------------------------- end of set-up */

/* A forked child may hold the socket, too: closing it here would not end the watch. */
static void close_dialing(struct rdmux_ep *ep)
{
    struct rdmux_setup *setup = ep->setup;
    if (setup->dialing >= 0) {
        epoll_ctl(ep->cq->control_fd, EPOLL_CTL_DEL, setup->dialing, NULL);
        close(setup->dialing);
        setup->dialing = -1;
    }
}

static void close_trial(struct rdmux_ep *ep)
{
    struct trial *trial = &ep->setup->trial;
    if (trial->path == NULL) {
        return;
    }
    const struct rdmux_provider_ops *ops = trial->path->ops;
    struct rdmux_provider_counts counts;
    (void)ops->ep_quiesce(trial->path, &counts);
    if (trial->remote != NULL) {
        ops->remote_close(trial->remote);
        rdmux_release(ep->fabric, trial->remote);
    }
    if (ep->channel != NULL) {
        rdmux_channel_detach(ep->channel);
    }
    ops->ep_close(trial->path);
    trial->path->cq->ep_count--;
    rdmux_release(ep->fabric, trial->path);
    memset(trial, 0, sizeof(*trial));
    ep->fault = RDMUX_OK; /* it was the attempt's */
}

static void keep_candidates(struct rdmux_ep *ep)
{
    if (ep->setup->handshake == NULL || ep->candidates != NULL) {
        return;
    }
    struct rdmux_candidate *all = rdmux_allocate(ep->fabric, RDMUX_MATCH_MAX * sizeof(*all));
    if (all != NULL) {
        ep->candidate_count = rdmux_handshake_candidates(ep->setup->handshake, all, RDMUX_MATCH_MAX);
        struct rdmux_candidate *kept = ep->candidate_count == 0
                                           ? NULL
                                           : rdmux_allocate(ep->fabric,
                                                            ep->candidate_count * sizeof(*kept));
        if (kept != NULL) {
            memcpy(kept, all, ep->candidate_count * sizeof(*kept));
        } else {
            ep->candidate_count = 0;
        }
        ep->candidates = kept;
        rdmux_release(ep->fabric, all);
    }
}

void rdmux_ep_setup_destroy(struct rdmux_ep *ep)
{
    struct rdmux_setup *setup = ep->setup;
    if (ep->listener != NULL) {
        if (ep->proved) {
            rdmux_listener_proved(ep->listener, -1);
        }
        rdmux_list_remove(&ep->accept_link);
        rdmux_listener_put(ep->listener);
        ep->listener = NULL;
    }
    if (setup == NULL) {
        return;
    }
    close_trial(ep);
    close_dialing(ep);
    if (setup->addresses != NULL) {
        freeaddrinfo(setup->addresses);
    }
    rdmux_mr_deregister(setup->proof);
    rdmux_release(ep->fabric, setup->handshake_memory);
    rdmux_release(ep->fabric, setup->offer);
    rdmux_release(ep->fabric, setup);
    ep->setup = NULL;
    rdmux_list_remove(&ep->busy_link);
}

static void give_back_socket(struct rdmux_ep *ep)
{
    int flags = ep->setup->adopted_flags;
    int nodelay = ep->setup->adopted_nodelay;
    int socket = rdmux_channel_release(ep->channel);
    ep->channel = NULL;
    fcntl(socket, F_SETFL, flags);
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &nodelay,
               sizeof(nodelay)); /* not TCP: nothing was changed */
}

static void fail(struct rdmux_ep *ep, enum rdmux_status status, const char *text, bool give_back)
{
    struct rdmux_setup *setup = ep->setup;
    if (status == RDMUX_OK || setup == NULL) {
        return;
    }
    keep_candidates(ep);
    ep->status = (uint32_t)status;
    ep->setup_status = (uint32_t)status;
    if (status == RDMUX_REFUSED && setup->handshake != NULL) {
        ep->info.reject_reason = rdmux_handshake_reject_reason(setup->handshake);
    }
    if (status == RDMUX_NO_PATH) {
        rdmux_explain_no_path(ep->candidates, ep->candidate_count, ep->info.text,
                              sizeof(ep->info.text));
    } else {
        snprintf(ep->info.text, sizeof(ep->info.text), "%s", text);
    }
    rdmux_log(ep->fabric, RDMUX_LOG_WARN, "endpoint %llu: not connected to %s: %s: %s",
              (unsigned long long)ep->id, setup->target, rdmux_status_name(status), ep->info.text);
    bool dropped = ep->listener != NULL;
    close_trial(ep);
    if (setup->adopted && give_back && status == RDMUX_NO_PATH && ep->channel != NULL) {
        give_back_socket(ep);
    }
    rdmux_ep_setup_destroy(ep);
    if (dropped) {
        rdmux_ep_dismantle(ep); /* nobody has its handle: the accept that took it waits for any */
        return;
    }
    rdmux_ep_setup_failed(ep);
}

static void fill_info(struct rdmux_ep *ep)
{
    struct rdmux_setup *setup = ep->setup;
    struct rdmux_ep_info *info = &ep->info;
    const struct rdmux_handshake_granted *granted = rdmux_handshake_granted(setup->handshake);
    const struct rdmux_offer *peer = rdmux_handshake_peer_offer(setup->handshake);
    const struct rdmux_hello *hello = rdmux_handshake_peer_hello(setup->handshake);
    const struct rdmux_offer_path *path = &setup->offer->paths[setup->trial.ours];
    memcpy(info->provider, path->provider, sizeof(info->provider));
    memcpy(info->device, path->path.device, sizeof(info->device));
    info->security = path->path.security;
    info->native = path->path.native;
    info->emulated = path->path.emulated;
    for (size_t i = 0; i < ep->candidate_count; i++) {
        if (ep->candidates[i].reason == RDMUX_REASON_CHOSEN) { /* what both sides have */
            info->native = ep->candidates[i].native;
            info->emulated = ep->candidates[i].emulated;
        }
    }
    info->max_send = granted->max_send;
    info->max_recv = granted->max_recv;
    info->liveness_ms = granted->liveness_ms;
    info->data_sockets = granted->data_sockets;
    info->epoch = 1;
    info->peer_has_service = (hello->flags & RDMUX_HELLO_NO_SERVICE) == 0;
    info->private_length = peer->private_length;
    memcpy(info->private_data, peer->private_data, sizeof(info->private_data));
    struct sockaddr_storage local;
    socklen_t length = sizeof(local);
    if (getsockname(rdmux_channel_socket(ep->channel), (struct sockaddr *)&local, &length) == 0) {
        rdmux_address_format((struct sockaddr *)&local, length, info->local_address);
    }
    ep->max_send = granted->max_send;
    ep->max_recv = granted->max_recv;
    ep->caps = info->native | info->emulated;
    bool needs_keys = (ep->setup->trial.path->ops->flags & RDMUX_PROVIDER_LOCAL_KEYS) != 0;
    if (!needs_keys && path->path.max_inline != 0 && ep->max_inline > path->path.max_inline &&
        path->path.max_inline >= RDMUX_INLINE_MIN) {
        ep->max_inline = path->path.max_inline;
    }
    info->max_inline = (uint32_t)ep->max_inline;
}

static void succeed(struct rdmux_ep *ep)
{
    struct rdmux_setup *setup = ep->setup;
    keep_candidates(ep);
    ep->peer = rdmux_peer_get(ep->fabric, rdmux_handshake_peer_hello(setup->handshake)->process);
    if (ep->peer == NULL) {
        fail(ep, RDMUX_NO_MEMORY, "endpoint: out of memory", false);
        return;
    }
    fill_info(ep);
    struct rdmux_provider_ep *path = setup->trial.path;
    if (rdmux_keys_open(ep, path->cq->domain, ep->path_info.max_inline) != RDMUX_OK ||
        rdmux_split_open(ep, ep->path_info.max_message) != RDMUX_OK) {
        fail(ep, RDMUX_NO_MEMORY, rdmux_last_error(), false);
        return;
    }
    if (setup->trial.remote != NULL) {
        path->ops->remote_close(setup->trial.remote);
        rdmux_release(ep->fabric, setup->trial.remote);
    }
    memset(&setup->trial, 0, sizeof(setup->trial)); /* it is the endpoint's now */
    rdmux_log(ep->fabric, RDMUX_LOG_INFO, "endpoint %llu: %s %s to %s", (unsigned long long)ep->id,
              ep->info.provider, ep->info.device, ep->info.peer_address);
    struct rdmux_listener *listener = ep->listener;
    ep->listener = NULL; /* kept beyond set-up until rdmux_accept returns the endpoint */
    rdmux_ep_setup_destroy(ep);
    ep->listener = listener;
    rdmux_joins_remove(ep->fabric, ep);
    rdmux_ep_attach(ep, path);
    rdmux_ep_start_liveness(ep);
    if (ep->announce) {
        ep->events |= RDMUX_EVENT_CONNECTED;
    }
    for (struct rdmux_list *at = ep->remotes.next; at != &ep->remotes; at = at->next) {
        struct rdmux_remote *remote = RDMUX_CONTAINER(at, struct rdmux_remote, link);
        if (remote->state == RDMUX_REMOTE_ASKING) {
            rdmux_remote_ask(remote);
        }
    }
    if (ep->listener != NULL) {
        ep->proved = true;
        rdmux_listener_proved(ep->listener, 1);
    }
    rdmux_cq_pend(ep->cq, ep);
}

/* ------------------------------------------------------------------------------------------------- the handshake's actions */

static void report(struct rdmux_ep *ep, enum rdmux_handshake_action_kind kind,
                   enum rdmux_status status, const uint8_t *bytes, size_t size)
{
    struct rdmux_setup *setup = ep->setup;
    rdmux_handshake_result(setup->handshake, kind, setup->trial.attempt, status, RDMUX_REASON_NONE,
                           status == RDMUX_OK ? "" : rdmux_last_error(), bytes, size,
                           rdmux_now(ep->fabric));
}

static void fill_path_attr(struct rdmux_ep *ep, const struct rdmux_offer_path *path,
                           struct rdmux_provider_srq *srq)
{
    const struct rdmux_setup *setup = ep->setup;
    const struct rdmux_handshake_granted *granted = rdmux_handshake_granted(setup->handshake);
    ep->path_info = path->path;
    ep->path_attr = (struct rdmux_provider_ep_attr){
        .role = ep->role,
        .send_depth = setup->attr.send_depth,
        .recv_depth = setup->attr.srq == NULL ? setup->attr.recv_depth : 0,
        .max_send_sge = setup->attr.max_send_sge,
        .max_recv_sge = setup->attr.max_recv_sge,
        .max_inline = setup->attr.max_inline,
        .max_send = granted->max_send,
        .max_recv = granted->max_recv,
        .liveness_ms = granted->liveness_ms,
        .dscp = setup->attr.dscp == RDMUX_OFF ? 0 : setup->attr.dscp,
        .ecn = setup->attr.ecn == RDMUX_OFF ? 0 : setup->attr.ecn,
        .service_level = setup->attr.service_level,
        .data_sockets = granted->data_sockets,
        .path = &ep->path_info,
        .srq = srq,
        .peer_address = ep->peer_sockaddr_length == 0 ? NULL
                                                      : (const struct sockaddr *)&ep->peer_sockaddr,
        .peer_address_length = ep->peer_sockaddr_length,
        .shared_socket = setup->adopted ? rdmux_channel_socket(ep->channel) : -1,
    };
}

static enum rdmux_status open_trial(struct rdmux_ep *ep,
                                    const struct rdmux_handshake_action *action,
                                    uint8_t *description, size_t *size)
{
    struct rdmux_setup *setup = ep->setup;
    const struct rdmux_offer_path *path = &setup->offer->paths[action->ours];
    const struct rdmux_provider_ops *ops = rdmux_fabric_provider(ep->fabric, path->provider);
    if (ops == NULL) {
        return rdmux_fail(RDMUX_UNSUPPORTED, "%s: the provider is not loaded", path->provider);
    }
    struct rdmux_provider_domain *domain;
    enum rdmux_status status = rdmux_fabric_domain(ep->fabric, ops, &path->path, &domain);
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
        status = rdmux_srq_domain(ep->srq, cq, &srq);
        if (status != RDMUX_OK) {
            return status;
        }
    }
    struct rdmux_provider_ep *trial = rdmux_allocate(ep->fabric, ops->ep_size);
    if (trial == NULL) {
        return rdmux_fail(RDMUX_NO_MEMORY, "%s: out of memory", path->provider);
    }
    trial->ops = ops;
    trial->cq = cq;
    trial->ep = ep;
    memcpy(ep->secret, rdmux_handshake_granted(setup->handshake)->secret, sizeof(ep->secret));
    ep->attempt = action->attempt;
    fill_path_attr(ep, path, srq);
    rdmux_error_clear();
    status = ops->ep_open(trial, &ep->path_attr);
    if (status != RDMUX_OK) {
        rdmux_release(ep->fabric, trial);
        return status;
    }
    cq->ep_count++;
    setup->trial.path = trial;
    setup->trial.ours = action->ours;
    if (ep->role == RDMUX_ROLE_ACCEPT) {
        rdmux_joins_add(ep->fabric, ep);
    }
    return ops->ep_describe(trial, description, size);
}

static void do_open(struct rdmux_ep *ep, const struct rdmux_handshake_action *action)
{
    uint8_t description[RDMUX_DESCRIPTION_MAX];
    size_t size = sizeof(description);
    ep->setup->trial.attempt = action->attempt;
    enum rdmux_status status = open_trial(ep, action, description, &size);
    report(ep, RDMUX_ACTION_OPEN, status, description, status == RDMUX_OK ? size : 0);
}

/* The path is connected: the peer gets a buffer to prove it with. */
static enum rdmux_status describe_proof(struct rdmux_ep *ep, uint8_t *description, size_t *size)
{
    struct rdmux_setup *setup = ep->setup;
    struct rdmux_provider_ep *path = setup->trial.path;
    enum rdmux_status status = RDMUX_OK;
    if (setup->proof == NULL) {
        status = rdmux_mr_alloc(ep->fabric, (size_t)2 * RDMUX_PROOF_SIZE,
                                RDMUX_ACCESS_REMOTE_READ | RDMUX_ACCESS_REMOTE_WRITE,
                                &setup->proof);
        if (status != RDMUX_OK) {
            return status;
        }
    }
    memset(setup->proof->addr, 0, RDMUX_PROOF_SIZE);
    struct rdmux_provider_mr *registration = rdmux_mr_with(setup->proof, path->cq->domain);
    if (registration == NULL) {
        return rdmux_fail(RDMUX_IO, "%s: the proof buffer is not registered", path->ops->name);
    }
    return path->ops->mr_describe(registration, path, description, size);
}

static void connected(struct rdmux_ep *ep, enum rdmux_status status)
{
    struct trial *trial = &ep->setup->trial;
    trial->connecting = false;
    uint8_t description[RDMUX_DESCRIPTION_MAX];
    size_t size = sizeof(description);
    if (status == RDMUX_OK) {
        rdmux_error_clear();
        status = describe_proof(ep, description, &size);
    }
    report(ep, RDMUX_ACTION_CONNECT, status, description, status == RDMUX_OK ? size : 0);
}

static void start_connect(struct rdmux_ep *ep)
{
    struct trial *trial = &ep->setup->trial;
    assert(trial->path != NULL);
    const struct rdmux_provider_ops *ops = trial->path->ops;
    bool shares = ep->path_attr.shared_socket >= 0 &&
                  ops->ep_control != rdmux_unsupported_ep_control;
    if (shares && rdmux_channel_is_sending(ep->channel)) {
        trial->connect_waits = true; /* READY must be on the socket before the path writes to it */
        return;
    }
    trial->connect_waits = false;
    if (shares) {
        rdmux_channel_attach(ep->channel, trial->path);
    }
    rdmux_error_clear();
    enum rdmux_status status = ops->ep_connect(trial->path, trial->peer_data, trial->peer_data_size);
    if (status == RDMUX_IN_PROGRESS) {
        trial->connecting = true;
        return;
    }
    connected(ep, status);
}

static void do_connect(struct rdmux_ep *ep, const struct rdmux_handshake_action *action)
{
    struct trial *trial = &ep->setup->trial;
    if (trial->path == NULL || action->size > sizeof(trial->peer_data)) {
        rdmux_fail(RDMUX_PROTOCOL, "connection data of %zu bytes", action->size);
        report(ep, RDMUX_ACTION_CONNECT, RDMUX_PROTOCOL, NULL, 0);
        return;
    }
    memcpy(trial->peer_data, action->bytes, action->size);
    trial->peer_data_size = action->size;
    start_connect(ep);
}

static void post_proof(struct rdmux_ep *ep)
{
    struct trial *trial = &ep->setup->trial;
    size_t posted = 0;
    assert(trial->path != NULL);
    enum rdmux_status status = trial->path->ops->post(trial->path, &trial->write, 1, 0, &posted);
    trial->posted = posted == 1;
    if (!trial->posted && status != RDMUX_AGAIN) {
        trial->writing = false;
        report(ep, RDMUX_ACTION_WRITE_PROOF, status, NULL, 0);
    }
}

static enum rdmux_status open_proof_remote(struct rdmux_ep *ep,
                                           const struct rdmux_handshake_action *action)
{
    struct trial *trial = &ep->setup->trial;
    const struct rdmux_provider_ops *ops = trial->path->ops;
    trial->remote = rdmux_allocate(ep->fabric, ops->remote_size);
    if (trial->remote == NULL) {
        return rdmux_fail(RDMUX_NO_MEMORY, "%s: out of memory", ops->name);
    }
    trial->remote->ep = trial->path;
    trial->remote->length = (uint64_t)2 * RDMUX_PROOF_SIZE;
    trial->remote->access = RDMUX_ACCESS_REMOTE_READ | RDMUX_ACCESS_REMOTE_WRITE;
    rdmux_error_clear();
    enum rdmux_status status = ops->remote_open(trial->remote, action->bytes, action->size);
    if (status != RDMUX_OK) {
        rdmux_release(ep->fabric, trial->remote);
        trial->remote = NULL;
    }
    return status;
}

static void do_write_proof(struct rdmux_ep *ep, const struct rdmux_handshake_action *action)
{
    struct rdmux_setup *setup = ep->setup;
    struct trial *trial = &setup->trial;
    enum rdmux_status status = open_proof_remote(ep, action);
    if (status != RDMUX_OK) {
        report(ep, RDMUX_ACTION_WRITE_PROOF, status, NULL, 0);
        return;
    }
    uint8_t *source = (uint8_t *)setup->proof->addr + RDMUX_PROOF_SIZE;
    rdmux_proof_fill(action->write_nonce, source, RDMUX_PROOF_SIZE);
    trial->sge = (struct rdmux_provider_sge){ .addr = source,
                                              .length = RDMUX_PROOF_SIZE,
                                              .mr = rdmux_mr_with(setup->proof,
                                                                  trial->path->cq->domain) };
    trial->write = (struct rdmux_request){
        .op = RDMUX_OP_WRITE,
        .flags = RDMUX_PLACED,
        .internal = 1,
        .sge_count = 1,
        .length = RDMUX_PROOF_SIZE,
        .sges = &trial->sge,
        .remote = trial->remote,
    };
    trial->writing = true;
    post_proof(ep);
}

static void do_check_proof(struct rdmux_ep *ep, const struct rdmux_handshake_action *action)
{
    bool right = rdmux_proof_matches(action->check_nonce, ep->setup->proof->addr, RDMUX_PROOF_SIZE);
    enum rdmux_status
        status = right ? RDMUX_OK
                       : rdmux_fail(
                             RDMUX_IO,
                             "the bytes that arrived over the path are not those the peer sent");
    report(ep, RDMUX_ACTION_CHECK_PROOF, status, NULL, 0);
}

/* Carries out what the handshake asks for, until it asks for nothing or the set-up is over. */
static void run(struct rdmux_ep *ep)
{
    while (ep->setup != NULL && ep->setup->handshake != NULL) {
        struct rdmux_handshake_action action;
        rdmux_handshake_next(ep->setup->handshake, &action);
        switch (action.kind) {
        case RDMUX_ACTION_NONE:
            rdmux_cq_timer(ep->cq, rdmux_ep_deadline(ep));
            return;
        case RDMUX_ACTION_SEND:
            if (rdmux_channel_send(ep->channel, action.bytes, action.size) != RDMUX_OK) {
                rdmux_handshake_lost(ep->setup->handshake, RDMUX_PEER_GONE, rdmux_last_error(),
                                     rdmux_now(ep->fabric));
            }
            break;
        case RDMUX_ACTION_OPEN:
            do_open(ep, &action);
            break;
        case RDMUX_ACTION_CONNECT:
            do_connect(ep, &action);
            break;
        case RDMUX_ACTION_WRITE_PROOF:
            do_write_proof(ep, &action);
            break;
        case RDMUX_ACTION_CHECK_PROOF:
            do_check_proof(ep, &action);
            break;
        case RDMUX_ACTION_CLOSE_PATH:
            close_trial(ep);
            break;
        case RDMUX_ACTION_DONE:
            succeed(ep);
            return;
        case RDMUX_ACTION_FAIL:
            fail(ep, action.status, action.text == NULL ? "" : action.text, action.give_back);
            return;
        }
    }
}

/* ------------------------------------------------------------------------------------------------- progress of set-up */

void rdmux_ep_setup_step(struct rdmux_ep *ep)
{
    struct rdmux_setup *setup = ep->setup;
    if (setup == NULL || setup->handshake == NULL) {
        return;
    }
    struct trial *trial = &setup->trial;
    if (trial->path != NULL) {
        trial->path->ready = 0;
        trial->path->resume = 0;
    }
    while (ep->inbox != NULL && ep->setup != NULL) {
        struct rdmux_inbox *entry = ep->inbox;
        ep->inbox = entry->next;
        rdmux_handshake_frame(setup->handshake, entry->frame, entry->size, rdmux_now(ep->fabric));
        rdmux_release(ep->fabric, entry);
        run(ep);
    }
    if (ep->setup == NULL) {
        return;
    }
    if (trial->path == NULL) {
        run(ep);
        return;
    }
    if (trial->connect_waits) {
        if (rdmux_channel_flush(ep->channel) == RDMUX_OK) {
            start_connect(ep);
        }
    } else if (trial->connecting) {
        rdmux_error_clear();
        enum rdmux_status status = trial->path->ops->ep_connect(trial->path, NULL, 0);
        if (status != RDMUX_IN_PROGRESS) {
            connected(ep, status);
        }
    }
    if (trial->writing && !trial->posted) {
        post_proof(ep);
    }
    if (trial->writing && trial->write.done) {
        trial->writing = false;
        enum rdmux_status status = (enum rdmux_status)trial->write.status;
        if (status != RDMUX_OK) {
            rdmux_fail(status, "the proof's write failed with %s", rdmux_status_name(status));
        }
        report(ep, RDMUX_ACTION_WRITE_PROOF, status, NULL, 0);
    }
    if (ep->fault != RDMUX_OK && trial->path != NULL) {
        enum rdmux_status status = (enum rdmux_status)ep->fault;
        ep->fault = RDMUX_OK;
        rdmux_handshake_path_failed(setup->handshake, status, ep->fault_text, rdmux_now(ep->fabric));
    }
    if (ep->channel != NULL && rdmux_channel_is_attached(ep->channel)) {
        (void)rdmux_channel_flush(ep->channel); /* a lost channel shows as the path's fault */
    }
    run(ep);
}

void rdmux_provider_control_received(struct rdmux_provider_ep *path, const void *frame, size_t size)
{
    struct rdmux_ep *ep = path->ep;
    struct rdmux_inbox *entry = rdmux_allocate(ep->fabric, sizeof(*entry) + size);
    if (entry == NULL) {
        rdmux_provider_failed(path, RDMUX_NO_MEMORY, "control channel: out of memory");
        return;
    }
    entry->size = size;
    memcpy(entry->frame, frame, size);
    if (ep->inbox == NULL) {
        ep->inbox = entry;
    } else {
        ep->inbox_last->next = entry;
    }
    ep->inbox_last = entry;
    ep->control_work = true;
    rdmux_provider_ready(path);
}

void rdmux_provider_join(struct rdmux_provider_ep *path, uint32_t index,
                         uint8_t out[RDMUX_JOIN_SIZE])
{
    struct rdmux_join join = { .epoch = 1, .attempt = path->ep->attempt, .index = index };
    memcpy(join.secret, path->ep->secret, sizeof(join.secret));
    rdmux_join_encode(&join, out);
}

void rdmux_provider_secret(struct rdmux_provider_ep *path, uint8_t out[RDMUX_SECRET_SIZE])
{
    rdmux_path_secret(path->ep->secret, path->ep->attempt, out);
}

void rdmux_ep_deliver_join(struct rdmux_cq *cq, struct rdmux_mail *mail)
{
    struct rdmux_join_mail *join = RDMUX_CONTAINER(mail, struct rdmux_join_mail, mail);
    bool taken = false;
    for (struct rdmux_list *at = cq->eps.next; at != &cq->eps && !taken; at = at->next) {
        struct rdmux_ep *ep = RDMUX_CONTAINER(at, struct rdmux_ep, link);
        if (ep->role != RDMUX_ROLE_ACCEPT || ep->setup == NULL || ep->setup->trial.path == NULL ||
            ep->attempt != join->join.attempt ||
            memcmp(ep->secret, join->join.secret, sizeof(ep->secret)) != 0) {
            continue;
        }
        struct rdmux_provider_ep *path = ep->setup->trial.path;
        taken = path->ops->ep_join(path, join->socket, join->join.index) == RDMUX_OK;
        break;
    }
    if (!taken) {
        close(join->socket);
    }
    rdmux_release(join->fabric, join);
}

/* ------------------------------------------------------------------------------------------------- dialling */

static enum rdmux_status start_handshake(struct rdmux_ep *ep, int socket, const uint8_t *received,
                                         size_t received_size)
{
    struct rdmux_setup *setup = ep->setup;
    int one = 1;
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)); /* not TCP: no harm */
    enum rdmux_status status = rdmux_channel_create(ep->fabric, socket, ep->cq->control_fd, ep,
                                                    received != NULL, &ep->channel);
    if (status != RDMUX_OK) {
        return status;
    }
    struct rdmux_handshake_config config = {
        .role = ep->role,
        .hello_timeout_ms = UINT32_MAX, /* the set-up's own time bounds it */
        .offer = setup->offer,
        .received = received,
        .received_size = received_size,
    };
    rdmux_hello_fill(ep->fabric, &config.hello);
    config.hello.flags |= setup->adopted ? RDMUX_HELLO_ADOPTED : 0;
    status = rdmux_random(ep->fabric, config.proof_nonce, sizeof(config.proof_nonce));
    if (status == RDMUX_OK) {
        status = rdmux_handshake_init(setup->handshake_memory, &config, rdmux_now(ep->fabric),
                                      &setup->handshake);
    }
    if (status == RDMUX_OK) {
        setup->stage = SETUP_TALKING;
        rdmux_address_format((const struct sockaddr *)&ep->peer_sockaddr, ep->peer_sockaddr_length,
                             ep->info.peer_address);
        rdmux_list_append(&ep->cq->busy, &ep->busy_link);
    }
    return status;
}

static void dial_next(struct rdmux_ep *ep, int last_error);

static void dialled(struct rdmux_ep *ep)
{
    struct rdmux_setup *setup = ep->setup;
    int socket = setup->dialing;
    setup->dialing = -1;
    epoll_ctl(ep->cq->control_fd, EPOLL_CTL_DEL, socket, NULL);
    memcpy(&ep->peer_sockaddr, setup->address->ai_addr, setup->address->ai_addrlen);
    ep->peer_sockaddr_length = setup->address->ai_addrlen;
    enum rdmux_status status = start_handshake(ep, socket, NULL, 0);
    if (status != RDMUX_OK) {
        if (ep->channel == NULL) {
            close(socket);
        }
        fail(ep, status, rdmux_last_error(), false);
        return;
    }
    run(ep);
}

/* attr.local as an address is the socket's own; as a device's name it only chooses among the paths. */
static bool bind_local(int fd, const struct addrinfo *peer, const char *local)
{
    struct rdmux_address_text text = { .port = "0" };
    struct addrinfo *addresses = NULL;
    if (*local == '\0') {
        return true;
    }
    snprintf(text.host, sizeof(text.host), "%s", local);
    if (rdmux_address_resolve(&text, false, true, &addresses) != RDMUX_OK) {
        return true;
    }
    bool bound = addresses->ai_family == peer->ai_family &&
                 bind(fd, addresses->ai_addr, addresses->ai_addrlen) == 0;
    freeaddrinfo(addresses);
    return bound;
}

/* Dials addresses until one is under way; the last failure is the set-up's. */
static void dial_next(struct rdmux_ep *ep, int last_error)
{
    struct rdmux_setup *setup = ep->setup;
    for (; setup->address != NULL; setup->address = setup->address->ai_next) {
        const struct addrinfo *address = setup->address;
        int fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd < 0) {
            last_error = errno;
            continue;
        }
        if (!bind_local(fd, address, setup->local)) {
            last_error = EADDRNOTAVAIL;
            close(fd);
            continue;
        }
        if (connect(fd, address->ai_addr, address->ai_addrlen) == 0 || errno == EINPROGRESS) {
            struct epoll_event event = { .events = EPOLLOUT, .data.ptr = ep };
            if (epoll_ctl(ep->cq->control_fd, EPOLL_CTL_ADD, fd, &event) == 0) {
                setup->dialing = fd;
                setup->stage = SETUP_DIALING;
                return;
            }
        }
        last_error = errno;
        close(fd);
    }
    char text[RDMUX_TEXT_MAX];
    enum rdmux_status status = RDMUX_REFUSED;
    const char *remedy = "is a server listening there?";
    if (last_error == EMFILE || last_error == ENFILE) {
        status = RDMUX_NO_MEMORY;
        remedy = "raise the limit with ulimit -n";
    } else if (last_error == ETIMEDOUT) {
        status = RDMUX_TIMED_OUT;
        remedy = "is the host up, and no firewall in between?";
    } else if (last_error == ECONNRESET) {
        status = RDMUX_PEER_GONE;
        remedy = "the server went away at this moment";
    } else if (last_error != ECONNREFUSED) {
        status = RDMUX_IO;
        remedy = "check the address and the route to it";
    }
    snprintf(text, sizeof(text), "%s: %s; %s", setup->target, strerror(last_error), remedy);
    fail(ep, status, text, false);
}

static void dial_ready(struct rdmux_ep *ep)
{
    struct rdmux_setup *setup = ep->setup;
    int error = 0;
    socklen_t length = sizeof(error);
    if (getsockopt(setup->dialing, SOL_SOCKET, SO_ERROR, &error, &length) != 0) {
        error = errno;
    }
    if (error == 0) {
        dialled(ep);
        return;
    }
    close_dialing(ep);
    setup->address = setup->address->ai_next;
    dial_next(ep, error);
}

/* A name on its way through the worker. */
struct resolve_job {
    struct rdmux_job job;
    struct rdmux_mail mail;
    struct rdmux_fabric *fabric;
    uint64_t cq_id;
    uint64_t ep_id;
    struct rdmux_address_text text;
    struct addrinfo *addresses;
    enum rdmux_status status;
    char error[RDMUX_TEXT_MAX];
};

static void resolved(struct rdmux_cq *cq, struct rdmux_mail *mail)
{
    struct resolve_job *job = RDMUX_CONTAINER(mail, struct resolve_job, mail);
    for (struct rdmux_list *at = cq->eps.next; at != &cq->eps; at = at->next) {
        struct rdmux_ep *ep = RDMUX_CONTAINER(at, struct rdmux_ep, link);
        if (ep->id != job->ep_id || ep->setup == NULL || ep->setup->stage != SETUP_RESOLVING) {
            continue;
        }
        if (job->status != RDMUX_OK) {
            fail(ep, job->status, job->error, false);
        } else {
            ep->setup->addresses = job->addresses;
            ep->setup->address = job->addresses;
            job->addresses = NULL;
            dial_next(ep, 0);
        }
        break;
    }
    if (job->addresses != NULL) {
        freeaddrinfo(job->addresses);
    }
    rdmux_release(cq->fabric, job);
}

static void resolve(struct rdmux_job *base)
{
    struct resolve_job *job = RDMUX_CONTAINER(base, struct resolve_job, job);
    struct rdmux_fabric *fabric = job->fabric;
    job->status = rdmux_address_resolve(&job->text, false, false, &job->addresses);
    if (job->status != RDMUX_OK) {
        snprintf(job->error, sizeof(job->error), "%s", rdmux_last_error());
    }
    bool delivered = false;
    pthread_mutex_lock(&fabric->lock);
    for (struct rdmux_list *at = fabric->cqs.next; at != &fabric->cqs && !delivered; at = at->next) {
        struct rdmux_cq *cq = RDMUX_CONTAINER(at, struct rdmux_cq, link);
        if (cq->id == job->cq_id) {
            rdmux_cq_mail(cq, &job->mail);
            delivered = true;
        }
    }
    pthread_mutex_unlock(&fabric->lock);
    if (!delivered) {
        if (job->addresses != NULL) {
            freeaddrinfo(job->addresses);
        }
        rdmux_release(fabric, job);
    }
}

enum rdmux_status rdmux_ep_start_connect(struct rdmux_ep *ep, const char *address)
{
    struct rdmux_setup *setup = ep->setup;
    struct rdmux_address_text text;
    enum rdmux_status status = rdmux_address_split(address, &text);
    if (status != RDMUX_OK) {
        return status;
    }
    if (text.host[0] == '\0') {
        return rdmux_fail(RDMUX_INVALID, "address \"%s\": a host is missing; write HOST:PORT",
                          address);
    }
    ep->role = RDMUX_ROLE_CONNECT;
    snprintf(setup->target, sizeof(setup->target), "%s", address);
    status = rdmux_address_resolve(&text, false, true, &setup->addresses);
    if (status == RDMUX_OK) {
        setup->address = setup->addresses;
        dial_next(ep, 0);
        return RDMUX_OK;
    }
    if (status != RDMUX_AGAIN) {
        return status;
    }
    struct resolve_job *job = rdmux_allocate(ep->fabric, sizeof(*job));
    if (job == NULL) {
        return rdmux_fail(RDMUX_NO_MEMORY, "rdmux_connect: out of memory");
    }
    job->job.work = resolve;
    job->mail.deliver = resolved;
    job->fabric = ep->fabric;
    job->cq_id = ep->cq->id;
    job->ep_id = ep->id;
    job->text = text;
    setup->stage = SETUP_RESOLVING;
    rdmux_worker_run(ep->fabric, &job->job);
    return RDMUX_OK;
}

enum rdmux_status rdmux_ep_start_accept(struct rdmux_ep *ep, struct rdmux_arrival *arrival)
{
    ep->role = RDMUX_ROLE_ACCEPT;
    ep->peer_sockaddr = arrival->address;
    ep->peer_sockaddr_length = arrival->address_length;
    rdmux_address_format((const struct sockaddr *)&arrival->address, arrival->address_length,
                         ep->setup->target);
    enum rdmux_status status = rdmux_random(ep->fabric, ep->setup->offer->secret,
                                            sizeof(ep->setup->offer->secret));
    if (status == RDMUX_OK) {
        status = start_handshake(ep, arrival->socket, arrival->received, arrival->received_size);
    }
    rdmux_release(ep->fabric, arrival->received);
    if (status != RDMUX_OK) {
        if (ep->channel == NULL) {
            close(arrival->socket);
        }
        return status;
    }
    run(ep);
    return RDMUX_OK;
}

enum rdmux_status rdmux_ep_start_adopt(struct rdmux_ep *ep, int socket, enum rdmux_role role)
{
    struct rdmux_setup *setup = ep->setup;
    ep->role = role;
    setup->adopted = true;
    setup->adopted_flags = fcntl(socket, F_GETFL);
    socklen_t length = sizeof(setup->adopted_nodelay);
    getsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &setup->adopted_nodelay, &length);
    fcntl(socket, F_SETFL, setup->adopted_flags | O_NONBLOCK);
    snprintf(setup->target, sizeof(setup->target), "adopted socket %d", socket);
    ep->peer_sockaddr_length = sizeof(ep->peer_sockaddr);
    if (getpeername(socket, (struct sockaddr *)&ep->peer_sockaddr, &ep->peer_sockaddr_length) != 0 ||
        (ep->peer_sockaddr.ss_family != AF_INET && ep->peer_sockaddr.ss_family != AF_INET6)) {
        ep->peer_sockaddr_length = 0;
    }
    enum rdmux_status status = rdmux_random(ep->fabric, setup->offer->secret,
                                            sizeof(setup->offer->secret));
    if (status == RDMUX_OK) {
        status = start_handshake(ep, socket, NULL, 0);
    }
    if (status != RDMUX_OK) {
        if (ep->channel == NULL) {
            close(socket);
        }
        return status;
    }
    run(ep);
    return RDMUX_OK;
}

enum rdmux_status rdmux_ep_setup_create(struct rdmux_ep *ep, const struct rdmux_ep_attr *attr,
                                        const char *listener_paths, int timeout_ms)
{
    struct rdmux_setup *setup = rdmux_allocate(ep->fabric, sizeof(*setup));
    if (setup == NULL) {
        return rdmux_fail(RDMUX_NO_MEMORY, "endpoint: out of memory");
    }
    ep->setup = setup;
    setup->dialing = -1;
    setup->attr = *attr;
    setup->attr.paths = NULL;
    setup->attr.local = NULL;
    setup->attr.private_data = NULL;
    snprintf(setup->local, sizeof(setup->local), "%s", attr->local == NULL ? "" : attr->local);
    setup->offer = rdmux_allocate(ep->fabric, sizeof(*setup->offer));
    setup->handshake_memory = rdmux_allocate(ep->fabric, rdmux_handshake_size());
    if (setup->offer == NULL || setup->handshake_memory == NULL) {
        return rdmux_fail(RDMUX_NO_MEMORY, "endpoint: out of memory");
    }
    enum rdmux_status status = rdmux_offer_fill(ep->fabric, attr, listener_paths, setup->offer);
    if (status != RDMUX_OK) {
        return status;
    }
    uint64_t limit_ms = timeout_ms > 0   ? (uint64_t)timeout_ms
                        : timeout_ms < 0 ? RDMUX_NEVER
                                         : attr->setup_timeout_ms;
    setup->deadline_ns = limit_ms == RDMUX_NEVER ? UINT64_MAX
                                                 : rdmux_now(ep->fabric) + limit_ms * 1000000;
    rdmux_cq_timer(ep->cq, setup->deadline_ns);
    return RDMUX_OK;
}

/* ------------------------------------------------------------------------------------------------- events of the channel */

static void channel_ended(struct rdmux_ep *ep, enum rdmux_status status)
{
    if (ep->setup != NULL) {
        rdmux_handshake_lost(ep->setup->handshake, status, rdmux_last_error(),
                             rdmux_now(ep->fabric));
        run(ep);
        return;
    }
    char text[RDMUX_TEXT_MAX];
    snprintf(text, sizeof(text), "%s", rdmux_last_error());
    rdmux_ep_drain_path(ep);
    rdmux_ep_fail(ep, status, "%s", text);
}

void rdmux_ep_control_ready(struct rdmux_ep *ep)
{
    if (ep->setup != NULL && ep->setup->stage == SETUP_DIALING) {
        dial_ready(ep);
        return;
    }
    for (int i = 0; i < 64 && ep->channel != NULL; i++) {
        const uint8_t *frame;
        size_t size;
        enum rdmux_status status = rdmux_channel_flush(ep->channel);
        if (status == RDMUX_OK) {
            status = rdmux_channel_receive(ep->channel, &frame, &size);
        }
        if (status == RDMUX_AGAIN) {
            return;
        }
        if (status != RDMUX_OK) {
            channel_ended(ep, status);
            return;
        }
        if (ep->setup != NULL) {
            rdmux_handshake_frame(ep->setup->handshake, frame, size, rdmux_now(ep->fabric));
            run(ep);
        } else if (ep->phase == RDMUX_PHASE_READY) {
            atomic_store(&ep->peer->heard_ns, rdmux_now(ep->fabric));
            rdmux_ep_message(ep, frame, size);
        }
    }
    atomic_fetch_or(&ep->cq->signal, RDMUX_SIGNAL_ATTEND); /* there may be more */
}

void rdmux_ep_setup_stage(const struct rdmux_ep *ep, char *out, size_t size)
{
    const struct rdmux_setup *setup = ep->setup;
    if (setup == NULL) {
        snprintf(out, size, "over");
        return;
    }
    switch (setup->stage) {
    case SETUP_RESOLVING:
        snprintf(out, size, "resolving the name");
        break;
    case SETUP_DIALING:
        snprintf(out, size, "dialling");
        break;
    case SETUP_TALKING:
        snprintf(out, size, "negotiating (%s)", rdmux_handshake_state(setup->handshake));
        break;
    }
}

void rdmux_ep_timers(struct rdmux_ep *ep, uint64_t now_ns)
{
    if (ep->phase == RDMUX_PHASE_READY) {
        rdmux_ep_live_timers(ep, now_ns);
        return;
    }
    if (ep->phase == RDMUX_PHASE_ENDING) {
        rdmux_ep_end_step(ep);
        return;
    }
    if (ep->setup == NULL) {
        return;
    }
    if (now_ns >= ep->setup->deadline_ns) {
        char text[RDMUX_TEXT_MAX];
        char stage[64];
        rdmux_ep_setup_stage(ep, stage, sizeof(stage));
        snprintf(text, sizeof(text), "%s: set-up took longer than allowed; it was %s",
                 ep->setup->target, stage);
        fail(ep, RDMUX_TIMED_OUT, text, false);
        return;
    }
    if (ep->setup->handshake != NULL && now_ns >= rdmux_handshake_deadline(ep->setup->handshake)) {
        rdmux_handshake_time(ep->setup->handshake, now_ns);
        run(ep);
    }
}

uint64_t rdmux_ep_deadline(const struct rdmux_ep *ep)
{
    if (ep->phase == RDMUX_PHASE_READY) {
        uint64_t deadline = ep->heartbeat_ns;
        if (ep->fault_deadline_ns != 0 && ep->fault_deadline_ns < deadline) {
            deadline = ep->fault_deadline_ns;
        }
        return ep->shutdown_deadline_ns != 0 && ep->shutdown_deadline_ns < deadline
                   ? ep->shutdown_deadline_ns
                   : deadline;
    }
    if (ep->phase == RDMUX_PHASE_ENDING) {
        return rdmux_now(ep->fabric) + 1000000;
    }
    if (ep->setup == NULL) {
        return UINT64_MAX;
    }
    uint64_t deadline = ep->setup->deadline_ns;
    if (ep->setup->handshake != NULL) {
        uint64_t handshake = rdmux_handshake_deadline(ep->setup->handshake);
        deadline = handshake < deadline ? handshake : deadline;
    }
    return deadline;
}
