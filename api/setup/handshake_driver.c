/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Set-up of endpoints: its beginning and end, and the driver of the handshake, which itself does no
 * I/O. All code here runs in the cq's domain.
 */
#include "api/setup/handshake_driver.h"

#include "api/base/address.h"
#include "api/core/ep.h"
#include "api/core/remote.h"
#include "api/data/bounce.h"
#include "api/data/completion.h"
#include "api/data/segments.h"
#include "api/failover/failover.h"
#include "api/object/control_send.h"
#include "api/object/ep.h"
#include "api/object/joins.h"
#include "api/object/offer.h"
#include "api/object/peer_process.h"
#include "api/object/remote.h"
#include "api/progress/cq_owner.h"
#include "api/progress/endpoint_table.h"
#include "api/session/control.h"
#include "api/session/liveness.h"
#include "api/session/setup_state.h"
#include "api/setup/rdmacm_endpoint.h"
#include "api/setup/setup.h"
#include "negotiation/control_channel.h"
#include "negotiation/explain.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The period of the clock checks that detect time in which this side did not run. */
enum { LOOK_NS = 100 * 1000 * 1000 };

/* -------------------------------------------------------------------------------- end of set-up */

static void keep_candidates(struct rdmux_ep *ep)
{
    if (ep->setup->handshake == NULL || ep->negotiated.candidates != NULL) {
        return;
    }
    struct rdmux_candidate *all = rdmux_allocate(ep->fabric, RDMUX_MATCH_MAX * sizeof(*all));
    if (all != NULL) {
        ep->negotiated.candidate_count = rdmux_handshake_candidates(ep->setup->handshake, all,
                                                                    RDMUX_MATCH_MAX);
        struct rdmux_candidate *kept = ep->negotiated.candidate_count == 0
                                           ? NULL
                                           : rdmux_allocate(ep->fabric,
                                                            ep->negotiated.candidate_count *
                                                                sizeof(*kept));
        if (kept != NULL) {
            memcpy(kept, all, ep->negotiated.candidate_count * sizeof(*kept));
        } else {
            ep->negotiated.candidate_count = 0;
        }
        ep->negotiated.candidates = kept;
        rdmux_release(ep->fabric, all);
    }
}

void rdmux_ep_setup_destroy(struct rdmux_ep *ep)
{
    struct rdmux_setup *setup = ep->setup;
    if (ep->accept.acceptor != NULL) {
        if (ep->accept.is_proved) {
            ep->accept.acceptor->count(ep->accept.acceptor, -1);
        }
        rdmux_list_remove(&ep->accept.link);
        ep->accept.acceptor->release(ep);
    }
    if (setup == NULL) {
        return;
    }
    rdmux_path_attempt_close(ep);
    rdmux_dial_close(ep);
    rdmux_rdmacm_abandon(ep);
    if (setup->addresses != NULL) {
        freeaddrinfo(setup->addresses);
    }
    rdmux_mr_deregister(setup->proof);
    rdmux_setup_release_secrets(ep->fabric, setup);
    rdmux_release(ep->fabric, setup);
    ep->setup = NULL;
    rdmux_list_remove(&ep->places.busy);
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

void rdmux_setup_fail(struct rdmux_ep *ep, enum rdmux_status status, const char *text,
                      bool give_back)
{
    struct rdmux_setup *setup = ep->setup;
    if (status == RDMUX_OK || setup == NULL) {
        return;
    }
    keep_candidates(ep);
    ep->end.status = (uint32_t)status;
    ep->negotiated.status = (uint32_t)status;
    if (status == RDMUX_REFUSED && setup->handshake != NULL) {
        ep->info.reject_reason = rdmux_handshake_reject_reason(setup->handshake);
    }
    if (status == RDMUX_NO_PATH) {
        rdmux_explain_no_path(ep->negotiated.candidates, ep->negotiated.candidate_count,
                              ep->info.text, sizeof(ep->info.text));
    } else {
        snprintf(ep->info.text, sizeof(ep->info.text), "%s", text);
    }
    rdmux_log(ep->fabric, RDMUX_LOG_WARN, "endpoint %llu: not connected to %s: %s: %s",
              (unsigned long long)ep->id, setup->target, rdmux_status_name(status), ep->info.text);
    bool dropped = ep->accept.acceptor != NULL;
    rdmux_path_attempt_close(ep);
    if (setup->adopted && give_back && status == RDMUX_NO_PATH && ep->channel != NULL) {
        give_back_socket(ep);
    }
    rdmux_ep_setup_destroy(ep);
    if (dropped) {
        /* the program has no handle of it: the accept call takes any connection */
        rdmux_ep_dismantle(ep);
        return;
    }
    rdmux_ep_setup_failed(ep);
}

/* Fills in what depends on the chosen path. */
static void fill_path_info(struct rdmux_ep *ep)
{
    struct rdmux_setup *setup = ep->setup;
    struct rdmux_ep_info *info = &ep->info;
    const struct rdmux_offer_path *path = &setup->offer->paths[setup->attempt.ours];
    memcpy(info->provider, path->provider, sizeof(info->provider));
    memcpy(info->device, path->path.device, sizeof(info->device));
    info->security = path->path.security;
    info->native = path->path.native;
    info->emulated = path->path.emulated;
    for (size_t i = 0; i < ep->negotiated.candidate_count; i++) {
        /* the capabilities that both sides have */
        if (ep->negotiated.candidates[i].reason == RDMUX_REASON_CHOSEN) {
            info->native = ep->negotiated.candidates[i].native;
            info->emulated = ep->negotiated.candidates[i].emulated;
        }
    }
    ep->limits.caps = info->native | info->emulated;
    ep->limits.lacking_flags = ((ep->limits.caps & RDMUX_CAP_PLACED) == 0 ? RDMUX_PLACED : 0) |
                               ((ep->limits.caps & RDMUX_CAP_FENCE) == 0 ? RDMUX_FENCE : 0);
}

static void fill_info(struct rdmux_ep *ep)
{
    struct rdmux_setup *setup = ep->setup;
    struct rdmux_ep_info *info = &ep->info;
    const struct rdmux_handshake_granted *granted = rdmux_handshake_granted(setup->handshake);
    const struct rdmux_offer *peer = rdmux_handshake_peer_offer(setup->handshake);
    const struct rdmux_hello *hello = rdmux_handshake_peer_hello(setup->handshake);
    const struct rdmux_offer_path *path = &setup->offer->paths[setup->attempt.ours];
    fill_path_info(ep);
    info->max_send = granted->max_send;
    info->max_recv = granted->max_recv;
    info->liveness_ms = granted->liveness_ms;
    info->data_sockets = granted->data_sockets;
    info->epoch = 1;
    info->failover = rdmux_handshake_has_failover(setup->handshake);
    info->peer_has_service = (hello->flags & RDMUX_HELLO_NO_SERVICE) == 0;
    info->private_length = peer->private_length;
    memcpy(info->private_data, peer->private_data, sizeof(info->private_data));
    struct sockaddr_storage local;
    socklen_t length = sizeof(local);
    if (getsockname(rdmux_channel_socket(ep->channel), (struct sockaddr *)&local, &length) == 0) {
        rdmux_address_format((struct sockaddr *)&local, length, info->local_address);
    }
    snprintf(info->peer_identity, sizeof(info->peer_identity), "%s",
             rdmux_channel_identity(ep->channel));
    ep->limits.max_send = granted->max_send;
    ep->limits.max_recv = granted->max_recv;
    bool needs_keys = (ep->setup->attempt.path->ops->flags & RDMUX_PROVIDER_LOCAL_KEYS) != 0;
    /* With failover the core keeps a copy of the bytes, and no path gets them inline. */
    if (!needs_keys && info->failover == 0 && path->path.max_inline != 0 &&
        ep->limits.max_inline > path->path.max_inline &&
        path->path.max_inline >= RDMUX_INLINE_MIN) {
        ep->limits.max_inline = path->path.max_inline;
    }
    info->max_inline = (uint32_t)ep->limits.max_inline;
}

/* Prepares what the core does for a proved path: bounce buffers, segmenting. */
static enum rdmux_status prepare_path(struct rdmux_ep *ep)
{
    struct rdmux_setup *setup = ep->setup;
    struct rdmux_provider_ep *path = setup->attempt.path;
    const struct rdmux_bounce_rule rule = {
        .max_inline = path->max_inline != 0 ? path->max_inline : ep->negotiated.path.max_inline,
        .max_sge = ep->negotiated.path.max_sge,
        .needs_sinks = path->needs_sinks != 0,
    };
    uint64_t max_message = ep->negotiated.path.max_message;
    if (ep->failover != NULL && max_message == 0) {
        max_message = UINT64_MAX; /* the core inspects each request */
    }
    enum rdmux_status status = rdmux_bounce_open(ep, path->cq->domain, rule);
    if (status == RDMUX_OK) {
        status = rdmux_segments_open(ep, max_message);
    }
    if (status != RDMUX_OK) {
        rdmux_bounce_close(ep);
        return status;
    }
    if (setup->attempt.remote != NULL) {
        path->ops->remote_close(setup->attempt.remote);
        rdmux_release(ep->fabric, setup->attempt.remote);
        setup->attempt.remote = NULL;
    }
    return RDMUX_OK;
}

static void succeed(struct rdmux_ep *ep)
{
    struct rdmux_setup *setup = ep->setup;
    keep_candidates(ep);
    ep->session.peer = rdmux_peer_get(ep->fabric,
                                      rdmux_handshake_peer_hello(setup->handshake)->process);
    ep->session.heartbeat_group = ep->session.peer == NULL ? NULL : rdmux_heartbeat_group_get(ep);
    if (ep->session.heartbeat_group == NULL) {
        rdmux_setup_fail(ep, RDMUX_NO_MEMORY, "endpoint: out of memory", false);
        return;
    }
    fill_info(ep);
    enum rdmux_status status = ep->info.failover != 0 ? rdmux_failover_create(ep) : RDMUX_OK;
    if (status == RDMUX_OK) {
        status = prepare_path(ep);
    }
    if (status != RDMUX_OK) {
        rdmux_setup_fail(ep, RDMUX_NO_MEMORY, rdmux_last_error(), false);
        return;
    }
    rdmux_setup_succeed(ep);
}

/* Takes over the next path of an endpoint with failover. */
static void take_next_path(struct rdmux_ep *ep)
{
    struct rdmux_provider_ep *path = ep->setup->attempt.path;
    memcpy(ep->info.previous_provider, ep->info.provider, sizeof(ep->info.provider));
    memcpy(ep->info.previous_device, ep->info.device, sizeof(ep->info.device));
    rdmux_release(ep->fabric, ep->negotiated.candidates);
    ep->negotiated.candidates = NULL;
    ep->negotiated.candidate_count = 0;
    keep_candidates(ep);
    enum rdmux_status status = prepare_path(ep);
    if (status != RDMUX_OK) {
        rdmux_ep_fail(ep, status, "moving to another path: %.220s", rdmux_last_error());
        return;
    }
    fill_path_info(ep);
    memset(&ep->setup->attempt, 0, sizeof(ep->setup->attempt)); /* the path is the endpoint's now */
    rdmux_failover_arrived(ep, path);
}

void rdmux_setup_succeed(struct rdmux_ep *ep)
{
    struct rdmux_setup *setup = ep->setup;
    struct rdmux_provider_ep *path = setup->attempt.path;
    memset(&setup->attempt, 0, sizeof(setup->attempt)); /* the path is the endpoint's now */
    rdmux_log(ep->fabric, RDMUX_LOG_INFO, "endpoint %llu: %s %s to %s", (unsigned long long)ep->id,
              ep->info.provider, ep->info.device, ep->info.peer_address);
    struct rdmux_acceptor *acceptor = ep->accept.acceptor;
    ep->accept.acceptor = NULL; /* restored below: kept until rdmux_accept() returns the endpoint */
    if (ep->failover != NULL) {
        rdmux_failover_keep_setup(ep);
    } else {
        rdmux_ep_setup_destroy(ep);
    }
    ep->accept.acceptor = acceptor;
    rdmux_joins_remove(ep->fabric, ep);
    rdmux_ep_attach(ep, path);
    rdmux_ep_start_liveness(ep);
    if (ep->negotiated.announce) {
        ep->events |= RDMUX_EVENT_CONNECTED;
    }
    for (struct rdmux_list *at = ep->imports.all.next; at != &ep->imports.all; at = at->next) {
        struct rdmux_remote *remote = RDMUX_CONTAINER(at, struct rdmux_remote, link);
        if (remote->state == RDMUX_REMOTE_ASKING) {
            rdmux_remote_ask(remote);
        }
    }
    if (ep->accept.acceptor != NULL) {
        ep->accept.is_proved = true;
        ep->accept.acceptor->count(ep->accept.acceptor, 1);
    }
    rdmux_cq_pend(ep->cq, ep);
}

/* -------------------------------------------------------------------------------- the handshake */

enum rdmux_status rdmux_setup_talk(struct rdmux_ep *ep, int socket, struct rdmux_tls *tls,
                                   const uint8_t *received, size_t received_size)
{
    if (tls == NULL && ep->fabric->auth != NULL) {
        enum rdmux_status made = rdmux_tls_create(ep->fabric->auth, ep->negotiated.role, socket,
                                                  ep->setup->host, &tls);
        if (made != RDMUX_OK) {
            return made;
        }
        if (ep->setup->adopted) { /* a path may share the socket */
            rdmux_tls_allow_data(tls);
        }
    }
    struct rdmux_setup *setup = ep->setup;
    int one = 1;
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)); /* no effect unless TCP */
    enum rdmux_status status = rdmux_channel_create(ep->fabric, socket, ep->cq->control_fd, ep,
                                                    received != NULL, &ep->channel);
    if (status != RDMUX_OK) {
        rdmux_tls_destroy(tls);
        return status;
    }
    rdmux_channel_secure(ep->channel, tls);
    struct rdmux_handshake_config config = {
        .role = ep->negotiated.role,
        .hello_timeout_ms = UINT32_MAX, /* set-up's own timeout bounds it */
        .offer = setup->offer,
        .received = received,
        .received_size = received_size,
        .measured = rdmux_figures_find,
        .measured_user = ep,
        .secured = tls != NULL,
    };
    rdmux_hello_fill(ep->fabric, &config.hello);
    config.hello.flags |= setup->adopted ? RDMUX_HELLO_ADOPTED : 0;
    config.hello.flags |= setup->attr.probe != 0 ? RDMUX_HELLO_MEASURE : 0;
    config.hello.flags |= setup->attr.failover != 0 ? RDMUX_HELLO_FAILOVER : 0;
    status = rdmux_random(ep->fabric, config.proof_nonce, sizeof(config.proof_nonce));
    if (status == RDMUX_OK) {
        setup->looked_ns = rdmux_now(ep->fabric);
        status = rdmux_handshake_init(setup->handshake_memory, &config, setup->looked_ns,
                                      &setup->handshake);
    }
    if (status == RDMUX_OK) {
        setup->stage = SETUP_TALKING;
        rdmux_address_format((const struct sockaddr *)&ep->negotiated.peer_sockaddr,
                             ep->negotiated.peer_sockaddr_length, ep->info.peer_address);
        rdmux_list_append(&ep->cq->lists.busy, &ep->places.busy);
    }
    return status;
}

uint64_t rdmux_setup_silent_since(const struct rdmux_ep *ep)
{
    const struct rdmux_setup *setup = ep->setup;
    bool waits = setup != NULL && setup->stage == SETUP_TALKING && !setup->attempt.opening;
    return waits ? setup->active_ns : UINT64_MAX;
}

bool rdmux_setup_is_committed(const struct rdmux_ep *ep)
{
    const struct rdmux_setup *setup = ep->setup;
    return setup != NULL && setup->stage == SETUP_TALKING &&
           rdmux_handshake_is_committed(setup->handshake);
}

bool rdmux_setup_has_news(const struct rdmux_ep *ep)
{
    char byte;
    return ep->session.inbox != NULL ||
           recv(rdmux_channel_socket(ep->channel), &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0;
}

uint64_t rdmux_setup_now(struct rdmux_ep *ep)
{
    struct rdmux_setup *setup = ep->setup;
    uint64_t now_ns = rdmux_now(ep->fabric);
    if (ep->phase != RDMUX_PHASE_SETUP) {
        return now_ns; /* failover has its own timeouts */
    }
    if (now_ns > setup->looked_ns + (uint64_t)2 * LOOK_NS) {
        setup->missed_ns += now_ns - setup->looked_ns - LOOK_NS;
    }
    setup->looked_ns = now_ns;
    return now_ns - setup->missed_ns;
}

/* The time of the handshake's next timeout or of the next clock check, whichever is earlier;
 * UINT64_MAX: never. */
static uint64_t handshake_deadline(const struct rdmux_setup *setup)
{
    uint64_t deadline_ns = rdmux_handshake_deadline(setup->handshake);
    if (deadline_ns == UINT64_MAX) {
        return UINT64_MAX;
    }
    deadline_ns += setup->missed_ns;
    uint64_t look_ns = setup->looked_ns + LOOK_NS;
    return look_ns < deadline_ns ? look_ns : deadline_ns;
}

static void send_action(struct rdmux_ep *ep, const struct rdmux_handshake_action *action)
{
    ep->setup->active_ns = rdmux_now(ep->fabric);
    if (ep->failover != NULL) {
        rdmux_ep_say(ep, action->bytes, action->size);
        return;
    }
    enum rdmux_status status = rdmux_channel_send(ep->channel, action->bytes, action->size);
    if (status != RDMUX_OK) {
        rdmux_handshake_lost(ep->setup->handshake, status, rdmux_last_error(), rdmux_setup_now(ep));
    }
}

void rdmux_setup_run(struct rdmux_ep *ep)
{
    while (ep->setup != NULL && ep->setup->handshake != NULL) {
        struct rdmux_handshake_action action;
        rdmux_handshake_next(ep->setup->handshake, &action);
        switch (action.kind) {
        case RDMUX_ACTION_NONE:
            rdmux_ep_timer(ep);
            return;
        case RDMUX_ACTION_SEND:
            send_action(ep, &action);
            break;
        case RDMUX_ACTION_OPEN:
            rdmux_path_attempt_open(ep, &action);
            break;
        case RDMUX_ACTION_CONNECT:
            rdmux_path_attempt_connect(ep, &action);
            break;
        case RDMUX_ACTION_WRITE_PROOF:
            rdmux_path_attempt_write_proof(ep, &action);
            break;
        case RDMUX_ACTION_CHECK_PROOF:
            rdmux_path_attempt_check_proof(ep, &action);
            break;
        case RDMUX_ACTION_MEASURE:
            rdmux_measure_start(ep, &action);
            break;
        case RDMUX_ACTION_CLOSE_PATH:
            rdmux_path_attempt_close(ep);
            break;
        case RDMUX_ACTION_CHOOSE:
            rdmux_failover_choose(ep);
            break;
        case RDMUX_ACTION_DONE:
            if (ep->failover != NULL) {
                take_next_path(ep);
                return;
            }
            /* A peer that only explains, on an adopted socket; a listener answers it by itself. */
            if (ep->setup->attempt.path == NULL) {
                rdmux_setup_fail(ep, RDMUX_PEER_GONE,
                                 "the peer wanted to know which path there would be, and no more",
                                 false);
                return;
            }
            succeed(ep);
            return;
        case RDMUX_ACTION_FAIL:
            if (ep->failover != NULL) {
                rdmux_failover_lost(ep, action.status, action.text == NULL ? "" : action.text);
                return;
            }
            rdmux_setup_fail(ep, action.status, action.text == NULL ? "" : action.text,
                             action.give_back);
            return;
        }
    }
}

/* --------------------------------------------------------------------------- progress of set-up */

void rdmux_ep_setup_step(struct rdmux_ep *ep)
{
    struct rdmux_setup *setup = ep->setup;
    if (setup != NULL && ep->is_rdmacm) {
        rdmux_rdmacm_step(ep);
        return;
    }
    if (setup == NULL || setup->handshake == NULL) {
        return;
    }
    struct rdmux_path_attempt *attempt = &setup->attempt;
    if (attempt->path != NULL) {
        attempt->path->ready = 0;
        attempt->path->resume = 0;
    }
    while (ep->session.inbox != NULL && ep->setup != NULL) {
        struct rdmux_inbox *entry = ep->session.inbox;
        ep->session.inbox = entry->next;
        setup->active_ns = rdmux_now(ep->fabric);
        rdmux_handshake_frame(setup->handshake, entry->frame, entry->size, rdmux_setup_now(ep));
        rdmux_release(ep->fabric, entry);
        rdmux_setup_run(ep);
    }
    if (ep->setup == NULL) {
        return;
    }
    if (attempt->path == NULL) {
        rdmux_setup_run(ep);
        return;
    }
    rdmux_path_attempt_step(ep);
    if (ep->channel != NULL && rdmux_channel_is_attached(ep->channel)) {
        (void)rdmux_channel_flush(ep->channel); /* a lost channel shows as the path's fault */
    }
    rdmux_setup_run(ep);
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
    if (ep->session.inbox == NULL) {
        ep->session.inbox = entry;
    } else {
        ep->session.inbox_last->next = entry;
    }
    ep->session.inbox_last = entry;
    ep->work |= RDMUX_WORK_CONTROL;
    rdmux_provider_ready(path);
}

/* ---------------------------------------------------------------------------------------- start */

enum rdmux_status rdmux_ep_start_accept(struct rdmux_ep *ep, struct rdmux_arrival *arrival)
{
    if (arrival->call != NULL) {
        rdmux_rdmacm_accept(ep, arrival->call);
        return RDMUX_OK;
    }
    ep->negotiated.role = RDMUX_ROLE_ACCEPT;
    ep->negotiated.peer_sockaddr = arrival->address;
    ep->negotiated.peer_sockaddr_length = arrival->address_length;
    rdmux_address_format((const struct sockaddr *)&arrival->address, arrival->address_length,
                         ep->setup->target);
    enum rdmux_status status = rdmux_random(ep->fabric, ep->setup->offer->secret,
                                            sizeof(ep->setup->offer->secret));
    if (status == RDMUX_OK) {
        status = rdmux_setup_talk(ep, arrival->socket, arrival->tls, arrival->received,
                                  arrival->received_size);
    } else {
        rdmux_tls_destroy(arrival->tls);
    }
    rdmux_release(ep->fabric, arrival->received);
    if (status != RDMUX_OK) {
        if (ep->channel == NULL) {
            close(arrival->socket);
        }
        return status;
    }
    rdmux_setup_run(ep);
    return RDMUX_OK;
}

enum rdmux_status rdmux_ep_start_adopt(struct rdmux_ep *ep, int socket, enum rdmux_role role)
{
    struct rdmux_setup *setup = ep->setup;
    ep->negotiated.role = role;
    setup->adopted = true;
    setup->adopted_flags = fcntl(socket, F_GETFL);
    socklen_t length = sizeof(setup->adopted_nodelay);
    getsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &setup->adopted_nodelay, &length);
    fcntl(socket, F_SETFL, setup->adopted_flags | O_NONBLOCK);
    snprintf(setup->target, sizeof(setup->target), "adopted socket %d", socket);
    ep->negotiated.peer_sockaddr_length = sizeof(ep->negotiated.peer_sockaddr);
    if (getpeername(socket, (struct sockaddr *)&ep->negotiated.peer_sockaddr,
                    &ep->negotiated.peer_sockaddr_length) != 0 ||
        (ep->negotiated.peer_sockaddr.ss_family != AF_INET &&
         ep->negotiated.peer_sockaddr.ss_family != AF_INET6)) {
        ep->negotiated.peer_sockaddr_length = 0;
    }
    enum rdmux_status status = rdmux_random(ep->fabric, setup->offer->secret,
                                            sizeof(setup->offer->secret));
    if (status == RDMUX_OK) {
        status = rdmux_setup_talk(ep, socket, NULL, NULL, 0);
    }
    if (status != RDMUX_OK) {
        if (ep->channel == NULL) {
            close(socket);
        }
        return status;
    }
    rdmux_setup_run(ep);
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
    setup->yield_ns = UINT64_MAX;
    setup->attr = *attr;
    setup->attr.paths = NULL;
    setup->attr.local = NULL;
    setup->attr.private_data = NULL;
    snprintf(setup->local, sizeof(setup->local), "%s", attr->local == NULL ? "" : attr->local);
    setup->offer = rdmux_allocate(ep->fabric, sizeof(*setup->offer));
    setup->handshake_memory = rdmux_allocate_sparse(ep->fabric, rdmux_handshake_size());
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
    rdmux_ep_timer(ep);
    return RDMUX_OK;
}

/* ----------------------------------------------------------------------- control channel events */

static void channel_ended(struct rdmux_ep *ep, enum rdmux_status status)
{
    if (ep->setup != NULL && ep->phase == RDMUX_PHASE_SETUP) {
        rdmux_handshake_lost(ep->setup->handshake, status, rdmux_last_error(), rdmux_setup_now(ep));
        rdmux_setup_run(ep);
        return;
    }
    char text[RDMUX_TEXT_MAX];
    snprintf(text, sizeof(text), "%s", rdmux_last_error());
    if (ep->failover != NULL && status == RDMUX_PEER_GONE && rdmux_reconnect_begin(ep, text)) {
        return;
    }
    rdmux_ep_drain_path(ep);
    if (ep->fault == RDMUX_DENIED) {
        rdmux_ep_fail(ep, status, "%.100s; before, %.140s", text, ep->end.fault_text);
        return;
    }
    rdmux_ep_fail(ep, status, "%s", text);
}

/* While failover searches for a path, handshake frames and other frames arrive interleaved. */
static bool is_of_handshake(const struct rdmux_ep *ep, const uint8_t *frame)
{
    return ep->setup != NULL &&
           (ep->phase == RDMUX_PHASE_SETUP || frame[0] < RDMUX_FRAME_HEARTBEAT);
}

void rdmux_ep_control_ready(struct rdmux_ep *ep)
{
    if (ep->setup != NULL && ep->setup->stage == SETUP_DIALING) {
        rdmux_dial_ready(ep);
        return;
    }
    if (ep->failover != NULL && ep->phase == RDMUX_PHASE_READY) {
        rdmux_reconnect_ready(ep);
    }
    if (ep->channel != NULL) {
        rdmux_channel_begin_turn(ep->channel);
    }
    for (int i = 0; ep->channel != NULL && i < RDMUX_CHANNEL_TURN_FRAMES; i++) {
        const uint8_t *frame;
        size_t size;
        enum rdmux_status status = rdmux_channel_flush(ep->channel);
        if (status == RDMUX_OK) {
            status = rdmux_channel_receive(ep->channel, &frame, &size);
        }
        if (status == RDMUX_AGAIN) {
            rdmux_ep_control_rests(ep, ep->channel);
            return;
        }
        if (status != RDMUX_OK) {
            channel_ended(ep, status);
            return;
        }
        if (is_of_handshake(ep, frame)) {
            ep->setup->active_ns = rdmux_now(ep->fabric);
            rdmux_handshake_frame(ep->setup->handshake, frame, size, rdmux_setup_now(ep));
            rdmux_setup_run(ep);
        } else if (ep->phase == RDMUX_PHASE_READY) {
            atomic_store(&ep->session.peer->heard_ns, rdmux_now(ep->fabric));
            rdmux_ep_message(ep, frame, size);
        }
    }
    rdmux_ep_control_rests(ep, ep->channel); /* the socket reports the rest */
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
    case SETUP_FINDING_WAY:
        snprintf(out, size, "finding the way to the peer");
        break;
    case SETUP_OPENING:
        snprintf(out, size, "opening the device");
        break;
    case SETUP_READYING:
        snprintf(out, size, "registering receives");
        break;
    case SETUP_CONNECTING:
        snprintf(out, size, "connecting; is a program listening there?");
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
    if (now_ns >= rdmux_ep_linger_deadline(ep)) {
        rdmux_ep_linger_over(ep);
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
        rdmux_setup_fail(ep, RDMUX_TIMED_OUT, text, false);
        return;
    }
    if (now_ns >= ep->setup->yield_ns) {
        ep->setup->yield_ns = UINT64_MAX; /* the waiting accept call checks by itself */
    }
    if (ep->setup->handshake != NULL && now_ns >= handshake_deadline(ep->setup)) {
        rdmux_measure_step(ep);
        rdmux_handshake_time(ep->setup->handshake, rdmux_setup_now(ep));
        rdmux_setup_run(ep);
    }
}

uint64_t rdmux_ep_deadline(const struct rdmux_ep *ep)
{
    if (ep->phase == RDMUX_PHASE_READY) {
        uint64_t silent_ns = rdmux_ep_silent_ns(ep);
        uint64_t deadline = silent_ns < ep->session.heartbeat_ns ? silent_ns
                                                                 : ep->session.heartbeat_ns;
        if (ep->session.unexplained_deadline_ns != 0 &&
            ep->session.unexplained_deadline_ns < deadline) {
            deadline = ep->session.unexplained_deadline_ns;
        }
        if (ep->failover != NULL && rdmux_failover_deadline(ep) < deadline) {
            deadline = rdmux_failover_deadline(ep);
        }
        return ep->session.shutdown_deadline_ns != 0 && ep->session.shutdown_deadline_ns < deadline
                   ? ep->session.shutdown_deadline_ns
                   : deadline;
    }
    if (ep->phase == RDMUX_PHASE_ENDING) {
        return rdmux_now(ep->fabric) + 1000000;
    }
    if (ep->setup == NULL) {
        return rdmux_ep_linger_deadline(ep);
    }
    uint64_t deadline = ep->setup->deadline_ns < ep->setup->yield_ns ? ep->setup->deadline_ns
                                                                     : ep->setup->yield_ns;
    if (ep->setup->handshake != NULL) {
        uint64_t handshake = handshake_deadline(ep->setup);
        deadline = handshake < deadline ? handshake : deadline;
    }
    return deadline;
}
