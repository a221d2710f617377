/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * The driver of the handshake, which itself does no I/O: it carries out the handshake's actions, and
 * makes the proved path ready for the endpoint. All code here runs in the cq's owner.
 */

#include "api/base/address.h"
#include "api/base/trace.h"
#include "api/core/ep.h"
#include "api/data/bounce.h"
#include "api/data/segments.h"
#include "api/failover/failover.h"
#include "api/object/control_send.h"
#include "api/object/ep.h"
#include "api/object/offer.h"
#include "api/object/peer_process.h"
#include "api/progress/endpoint_table.h"
#include "api/progress/places.h"
#include "api/session/channel_socket.h"
#include "api/session/setup_state.h"
#include "api/setup/setup.h"
#include "negotiation/control_channel.h"

#include <stdio.h>
#include <string.h>

RDMUX_TRACE_POINT(negotiation_step);

/* ------------------------------------------------------------------------------ the proved path */

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
    rdmux_setup_grant_inline(ep);
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
    rdmux_setup_keep_candidates(ep);
    if (!rdmux_peer_join(ep, rdmux_handshake_peer_hello(setup->handshake)->process)) {
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
    rdmux_setup_keep_candidates(ep);
    enum rdmux_status status = prepare_path(ep);
    if (status != RDMUX_OK) {
        rdmux_ep_fail(ep, status, "moving to another path: %.220s", rdmux_last_error());
        return;
    }
    fill_path_info(ep);
    memset(&ep->setup->attempt, 0, sizeof(ep->setup->attempt)); /* the path is the endpoint's now */
    rdmux_failover_arrived(ep, path);
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
        if (ep->setup->is_adopted) { /* a path may share the socket */
            rdmux_tls_allow_data(tls);
        }
    }
    struct rdmux_setup *setup = ep->setup;
    if (setup->is_adopted || ep->negotiated.role == RDMUX_ROLE_CONNECT) {
        rdmux_channel_socket_prepare(socket); /* an accepted socket has it from its listener */
    }
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
        .is_secured = tls != NULL,
    };
    rdmux_hello_fill(ep->fabric, &config.hello);
    config.hello.flags |= setup->is_adopted ? RDMUX_HELLO_ADOPTED : 0;
    config.hello.flags |= setup->attr.probe != 0 ? RDMUX_HELLO_MEASURE : 0;
    config.hello.flags |= setup->attr.failover != 0 ? RDMUX_HELLO_FAILOVER : 0;
    status = rdmux_random(ep->fabric, config.proof_nonce, sizeof(config.proof_nonce));
    if (status == RDMUX_OK) {
        setup->looked_ns = rdmux_now(ep->fabric);
        status = rdmux_handshake_init(setup->handshake_memory, &config, setup->looked_ns,
                                      &setup->handshake);
    }
    if (status == RDMUX_OK) {
        rdmux_setup_enter(setup, SETUP_TALKING);
        rdmux_address_format((const struct sockaddr *)&ep->addresses.peer,
                             ep->addresses.peer_length, ep->info.peer_address);
        rdmux_setup_log_offer(ep);
        rdmux_ep_list_busy(ep);
    }
    return status;
}

uint64_t rdmux_setup_silent_since(const struct rdmux_ep *ep)
{
    const struct rdmux_setup *setup = ep->setup;
    bool waits = setup != NULL && setup->stage == SETUP_TALKING && !setup->attempt.is_opening;
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
    return ep->inbox.first != NULL ||
           recv(rdmux_channel_socket(ep->channel), &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0;
}

static void send_action(struct rdmux_ep *ep, const struct rdmux_handshake_action *action)
{
    ep->setup->active_ns = rdmux_now(ep->fabric);
    if (ep->failover != NULL) {
        rdmux_ep_say(ep, action->bytes, action->size);
        return;
    }
    rdmux_ep_log_frame(ep, "sends", action->bytes, action->size);
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
        rdmux_setup_log_action(ep, &action);
        RDMUX_TRACE3(negotiation_step, ep->id, action.attempt, action.kind);
        switch (action.kind) {
        case RDMUX_ACTION_NONE:
            rdmux_ep_timer(ep);
            return;
        case RDMUX_ACTION_SEND:
            send_action(ep, &action);
            break;
        case RDMUX_ACTION_OPEN:
            rdmux_path_attempt_open(ep, &action, rdmux_setup_run);
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
