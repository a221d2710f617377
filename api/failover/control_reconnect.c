/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Reconnects a lost control channel. The connector dials again; the acceptor waits. The new channel
 * replaces the old one once both sides have proved that they know the connection's secret. The
 * frames are HELLO with the connection's name, the acceptor's HELLO, then RESUME and RESUMED, which
 * also tell the state of each side. Messages that may have been lost with the old channel are sent
 * again.
 *
 * A HELLO proves nothing, as anybody may repeat one. So the acceptor keeps a few sockets that
 * sent such a HELLO side by side (claims). The first claim that proves itself becomes the channel,
 * and the others are dropped. Until then no claim changes the endpoint.
 */
#include "api/core/cq.h"
#include "api/core/ep.h"
#include "api/core/fabric.h"
#include "api/core/mail.h"
#include "api/failover/failover.h"
#include "api/failover/failover_state.h"
#include "api/object/control_send.h"
#include "api/object/ep.h"
#include "api/object/offer.h"
#include "api/object/peer_process.h"
#include "api/progress/cq_owner.h"
#include "api/progress/endpoint_table.h"
#include "api/session/channel_socket.h"
#include "api/session/liveness.h"
#include "api/session/setup_state.h"
#include "api/system/system.h"
#include "negotiation/control_channel.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    DIAL_PAUSE_NS = 50 * RDMUX_NS_PER_MS, /* pause between two dials */
    DIAL_NS = 50 * RDMUX_NS_PER_MS,       /* first answer timeout if the peer has other addresses */
    MOVE_ROUND_TRIPS = 2,                 /* added to DIAL_NS while the peer's MOVE is awaited */
    DIAL_DOUBLINGS = 5,
};

static bool is_connector(const struct rdmux_ep *ep)
{
    return ep->negotiated.role == RDMUX_ROLE_CONNECT;
}

/* ----------------------------------------------------------------------------------------- life */

enum rdmux_status rdmux_reconnect_create(struct rdmux_ep *ep)
{
    struct rdmux_reconnect *reconnect = &ep->failover->reconnect;
    reconnect->ep = ep;
    reconnect->dialing = -1;
    rdmux_list_init(&reconnect->link);
    rdmux_list_init(&reconnect->revocations);
    rdmux_list_init(&reconnect->claims.list);
    reconnect->is_possible = rdmux_reconnect_name(ep->secrets->secret, reconnect->name);
    if (reconnect->is_possible && !is_connector(ep)) {
        pthread_mutex_lock(&ep->fabric->lock);
        rdmux_list_append(&ep->fabric->reconnects, &reconnect->link);
        pthread_mutex_unlock(&ep->fabric->lock);
    }
    return RDMUX_OK;
}

static void stop_dialing(struct rdmux_ep *ep)
{
    struct rdmux_reconnect *reconnect = &ep->failover->reconnect;
    if (reconnect->dialing >= 0) {
        (void)rdmux_poller_remove(ep->cq->control_fd, reconnect->dialing);
        close(reconnect->dialing);
        reconnect->dialing = -1;
    }
}

static void drop_fresh_channel(struct rdmux_ep *ep)
{
    struct rdmux_reconnect *reconnect = &ep->failover->reconnect;
    rdmux_channel_destroy(reconnect->fresh);
    reconnect->fresh = NULL;
    reconnect->has_greeted = false;
}

static void drop_claim(struct rdmux_ep *ep, struct rdmux_claim *claim)
{
    ep->failover->reconnect.claims.count--;
    rdmux_list_remove(&claim->link);
    rdmux_channel_destroy(claim->channel);
    rdmux_release(ep->fabric, claim);
}

static struct rdmux_claim *oldest_claim(const struct rdmux_reconnect *reconnect)
{
    return rdmux_list_empty(&reconnect->claims.list)
               ? NULL
               : RDMUX_CONTAINER(reconnect->claims.list.next, struct rdmux_claim, link);
}

static void drop_claims(struct rdmux_ep *ep)
{
    struct rdmux_claim *claim;
    while ((claim = oldest_claim(&ep->failover->reconnect)) != NULL) {
        drop_claim(ep, claim);
    }
}

void rdmux_reconnect_leave(struct rdmux_ep *ep)
{
    struct rdmux_reconnect *reconnect = &ep->failover->reconnect;
    stop_dialing(ep);
    drop_fresh_channel(ep);
    drop_claims(ep);
    reconnect->deadline_ns = 0;
    while (!rdmux_list_empty(&reconnect->revocations)) {
        struct rdmux_unsaid *unsaid = RDMUX_CONTAINER(reconnect->revocations.next,
                                                      struct rdmux_unsaid, link);
        rdmux_list_remove(&unsaid->link);
        rdmux_release(ep->fabric, unsaid);
    }
    pthread_mutex_lock(&ep->fabric->lock);
    rdmux_list_remove(&reconnect->link);
    pthread_mutex_unlock(&ep->fabric->lock);
}

/* ---------------------------------------------------------------------------------- revocations */

void rdmux_reconnect_note_revocation(struct rdmux_ep *ep, uint64_t region, uint32_t number)
{
    struct rdmux_unsaid *unsaid = rdmux_allocate(ep->fabric, sizeof(*unsaid));
    if (unsaid != NULL) { /* else the key is revoked unasked if the channel is lost now */
        unsaid->region = region;
        unsaid->number = number;
        rdmux_list_append(&ep->failover->reconnect.revocations, &unsaid->link);
    }
}

void rdmux_reconnect_revocation_answered(struct rdmux_ep *ep, uint64_t region, uint32_t number)
{
    struct rdmux_list *list = &ep->failover->reconnect.revocations;
    for (struct rdmux_list *at = list->next, *next; at != list; at = next) {
        struct rdmux_unsaid *unsaid = RDMUX_CONTAINER(at, struct rdmux_unsaid, link);
        next = at->next;
        if (unsaid->region == region && unsaid->number <= number) {
            rdmux_list_remove(&unsaid->link);
            rdmux_release(ep->fabric, unsaid);
        }
    }
}

static void resend_revocations(struct rdmux_ep *ep)
{
    struct rdmux_list *list = &ep->failover->reconnect.revocations;
    for (struct rdmux_list *at = list->next; at != list; at = at->next) {
        const struct rdmux_unsaid *unsaid = RDMUX_CONTAINER(at, struct rdmux_unsaid, link);
        struct rdmux_message message = { .type = RDMUX_FRAME_REVOKE,
                                         .id = unsaid->number,
                                         .region = unsaid->region };
        rdmux_ep_tell(ep, &message);
    }
}

/* ---------------------------------------------------------------------------- loss and dialling */

static uint64_t reconnect_patience_ns(const struct rdmux_ep *ep)
{
    uint64_t limit_ns = ep->failover->time_ns;
    uint64_t liveness_ns = (uint64_t)ep->info.liveness_ms * RDMUX_NS_PER_MS;
    return ep->info.liveness_ms != RDMUX_NEVER && liveness_ns < limit_ns ? liveness_ns : limit_ns;
}

static void give_up_reconnect(struct rdmux_ep *ep, const char *why)
{
    rdmux_ep_fail(ep, RDMUX_PEER_GONE, "%.100s; %.140s", ep->failover->reconnect.text, why);
}

/* Creates a channel over a connected socket and sends HELLO on it. NULL: that failed, and the
 * socket is closed. */
static struct rdmux_channel *create_greeting_channel(struct rdmux_ep *ep, int socket,
                                                     struct rdmux_tls *tls, bool greeted,
                                                     uint8_t ours[RDMUX_HELLO_SIZE])
{
    struct rdmux_channel *channel;
    struct rdmux_hello hello;
    if (rdmux_channel_create(ep->fabric, socket, ep->cq->control_fd, ep, greeted, &channel) !=
        RDMUX_OK) {
        rdmux_tls_destroy(tls);
        close(socket);
        return NULL;
    }
    rdmux_channel_secure(channel, tls);
    rdmux_hello_fill(ep->fabric, &hello);
    hello.flags |= RDMUX_HELLO_FAILOVER;
    hello.epoch = ep->info.epoch;
    memcpy(hello.resume, ep->failover->reconnect.name, sizeof(hello.resume));
    rdmux_hello_encode(&hello, ours);
    if (rdmux_channel_send(channel, ours, RDMUX_HELLO_SIZE) != RDMUX_OK) {
        rdmux_channel_destroy(channel);
        return NULL;
    }
    return channel;
}

static size_t count_addresses(const struct rdmux_setup *setup)
{
    size_t count = 0;
    for (const struct addrinfo *at = setup->addresses; at != NULL; at = at->ai_next) {
        count++;
    }
    return count;
}

/* Selects the next of the peer's addresses to dial; the first follows the last. */
static void turn_to_next_address(struct rdmux_setup *setup)
{
    if (setup->address != NULL) {
        setup->address = setup->address->ai_next != NULL ? setup->address->ai_next
                                                         : setup->addresses;
    }
}

void rdmux_reconnect_elsewhere(struct rdmux_ep *ep)
{
    turn_to_next_address(ep->setup != NULL ? ep->setup : ep->failover->setup);
}

/* The peer cannot be reached at this address. verdict: another process answers there or nobody
 * listens; NULL: the next attempt may succeed. With a verdict for each address, the peer's process
 * has ended or its listener is closed. */
static void address_failed(struct rdmux_ep *ep, const char *verdict)
{
    struct rdmux_setup *setup = ep->failover->setup;
    struct rdmux_reconnect *reconnect = &ep->failover->reconnect;
    reconnect->refused = verdict != NULL ? reconnect->refused + 1 : 0;
    if (reconnect->refused >= count_addresses(setup)) {
        give_up_reconnect(ep, verdict);
        return;
    }
    turn_to_next_address(setup);
}

static void dial_failed(struct rdmux_ep *ep, int error)
{
    address_failed(ep,
                   error == ECONNREFUSED ? "it was dialled again, and nobody listens there" : NULL);
}

/* Returns the answer deadline of a dial. Each address has its turn; the time doubles each round, as
 * the peer may be far away. */
static uint64_t dial_answer_deadline(const struct rdmux_ep *ep)
{
    size_t count = count_addresses(ep->failover->setup);
    uint32_t round = count < 2 ? 0 : ep->failover->reconnect.dials / (uint32_t)count;
    uint32_t doublings = round < DIAL_DOUBLINGS ? round : DIAL_DOUBLINGS;
    return count < 2 ? UINT64_MAX : rdmux_now(ep->fabric) + ((uint64_t)DIAL_NS << doublings);
}

/* Starts a channel on the connected socket. The path's sockets will use this address, too. */
static void dial_connected(struct rdmux_ep *ep)
{
    struct rdmux_reconnect *reconnect = &ep->failover->reconnect;
    const struct addrinfo *address = ep->failover->setup->address;
    struct rdmux_tls *tls = NULL;
    int socket = reconnect->dialing;
    reconnect->dialing = -1;
    reconnect->until_ns = dial_answer_deadline(ep);
    rdmux_ep_set_peer_address(ep, address->ai_addr, address->ai_addrlen);
    (void)rdmux_poller_remove(ep->cq->control_fd, socket);
    rdmux_channel_socket_prepare(socket);
    if (ep->fabric->auth != NULL && rdmux_tls_create(ep->fabric->auth, ep->negotiated.role, socket,
                                                     ep->failover->setup->host, &tls) != RDMUX_OK) {
        close(socket);
        return;
    }
    drop_fresh_channel(ep);
    reconnect->fresh = create_greeting_channel(ep, socket, tls, false,
                                               reconnect->greeting.connectors);
}

static void dial_address(struct rdmux_ep *ep)
{
    struct rdmux_reconnect *reconnect = &ep->failover->reconnect;
    const struct rdmux_setup *setup = ep->failover->setup;
    int error = 0;
    reconnect->next_ns = rdmux_now(ep->fabric) + DIAL_PAUSE_NS;
    reconnect->until_ns = dial_answer_deadline(ep);
    reconnect->dials++;
    int fd = rdmux_channel_socket_dial(ep, setup->address->ai_addr, setup->address->ai_addrlen,
                                       setup->local, &error);
    if (fd < 0) {
        dial_failed(ep, error);
        return;
    }
    if (rdmux_poller_add(ep->cq->control_fd, fd, RDMUX_READY_OUT, ep) != 0) {
        close(fd);
        return;
    }
    reconnect->dialing = fd;
}

static void dial_ready(struct rdmux_ep *ep)
{
    struct rdmux_reconnect *reconnect = &ep->failover->reconnect;
    int error = 0;
    socklen_t length = sizeof(error);
    struct sockaddr_storage peer;
    socklen_t peer_length = sizeof(peer);
    if (getsockopt(reconnect->dialing, SOL_SOCKET, SO_ERROR, &error, &length) != 0) {
        error = errno;
    }
    if (error != 0) {
        stop_dialing(ep);
        dial_failed(ep, error);
    } else if (getpeername(reconnect->dialing, (struct sockaddr *)&peer, &peer_length) == 0) {
        dial_connected(ep);
    } /* else the wake-up was for another descriptor */
}

void rdmux_reconnect_note_broken(struct rdmux_ep *ep, const char *text)
{
    struct rdmux_reconnect *reconnect = &ep->failover->reconnect;
    reconnect->is_broken = true; /* the caller may be reading it: closed after this call */
    snprintf(reconnect->text, sizeof(reconnect->text), "%s", text);
}

bool rdmux_reconnect_is_under_way(const struct rdmux_ep *ep)
{
    return ep->failover->reconnect.deadline_ns != 0;
}

bool rdmux_reconnect_is_idle(const struct rdmux_ep *ep)
{
    const struct rdmux_reconnect *reconnect = &ep->failover->reconnect;
    return !rdmux_reconnect_is_under_way(ep) && !reconnect->is_broken && reconnect->dialing < 0 &&
           reconnect->fresh == NULL;
}

void rdmux_reconnect_leave_cq(struct rdmux_ep *ep)
{
    const struct rdmux_list *claims = &ep->failover->reconnect.claims.list;
    for (struct rdmux_list *at = claims->next; at != claims; at = at->next) {
        struct rdmux_claim *claim = RDMUX_CONTAINER(at, struct rdmux_claim, link);
        claim->events = rdmux_channel_unwatch(claim->channel);
    }
}

/* A claim that cannot be watched is dropped: its sender, if it is the peer, dials again. */
void rdmux_reconnect_enter_cq(struct rdmux_ep *ep)
{
    const struct rdmux_list *claims = &ep->failover->reconnect.claims.list;
    for (struct rdmux_list *at = claims->next, *next; at != claims; at = next) {
        struct rdmux_claim *claim = RDMUX_CONTAINER(at, struct rdmux_claim, link);
        next = at->next;
        if (rdmux_channel_watch(claim->channel, ep->cq->control_fd, claim->events) != RDMUX_OK) {
            drop_claim(ep, claim);
        }
    }
}

bool rdmux_reconnect_begin(struct rdmux_ep *ep, const char *text)
{
    struct rdmux_failover *failover = ep->failover;
    struct rdmux_reconnect *reconnect = &failover->reconnect;
    if (failover == NULL || !reconnect->is_possible || ep->session.is_shutdown_sent ||
        ep->session.has_end || ep->phase != RDMUX_PHASE_READY) {
        return false;
    }
    rdmux_channel_destroy(ep->channel);
    ep->channel = NULL;
    reconnect->is_broken = false;
    reconnect->answer_ns = 0;
    snprintf(reconnect->text, sizeof(reconnect->text), "%s", text);
    rdmux_log_about(ep->fabric, RDMUX_CATEGORY_FAILOVER, RDMUX_LOG_WARN, "endpoint %llu: %s; %s",
                    (unsigned long long)ep->id, reconnect->text,
                    is_connector(ep) ? "dialling it again" : "waiting for the peer");
    uint64_t now_ns = rdmux_now(ep->fabric);
    uint64_t patience = reconnect_patience_ns(ep);
    reconnect->deadline_ns = patience > UINT64_MAX - now_ns ? UINT64_MAX : now_ns + patience;
    rdmux_failover_channel_lost(ep);
    reconnect->refused = 0;
    reconnect->dials = 0;
    if (is_connector(ep)) {
        dial_address(ep);
    }
    if (ep->phase == RDMUX_PHASE_READY) {
        rdmux_ep_timer(ep);
    }
    return true;
}

/* Sets the deadline for the peer's MOVE. Messages of this side may get lost although the peer is
 * heard, and the peer would notice only after the liveness time. No deadline for a peer without a
 * service thread, which answers when its program makes a call. */
void rdmux_reconnect_await_move(struct rdmux_ep *ep)
{
    struct rdmux_failover *failover = ep->failover;
    if (is_connector(ep) && failover->reconnect.is_possible && ep->channel != NULL &&
        ep->info.peer_has_service && count_addresses(failover->setup) > 1) {
        failover->reconnect.answer_ns = rdmux_now(ep->fabric) + DIAL_NS +
                                        MOVE_ROUND_TRIPS * rdmux_socket_round_trip_ns(
                                                               rdmux_channel_socket(ep->channel));
    }
}

/* Dials another address, as the peer's MOVE has not come. If that fails, too, the peer still has as
 * much time as it would have had otherwise. */
static void peer_move_overdue(struct rdmux_ep *ep)
{
    struct rdmux_reconnect *reconnect = &ep->failover->reconnect;
    uint64_t silent_ns = rdmux_ep_silent_ns(ep);
    reconnect->answer_ns = 0;
    if (ep->failover->stage != RDMUX_MEETING || ep->channel == NULL ||
        ep->session.is_shutdown_sent || ep->session.has_end) {
        return;
    }
    rdmux_reconnect_elsewhere(ep);
    if (rdmux_reconnect_begin(ep, "the peer has been told of the move and does not answer") &&
        ep->phase == RDMUX_PHASE_READY && silent_ns != UINT64_MAX) {
        uint64_t patience = reconnect_patience_ns(ep);
        reconnect->deadline_ns = patience > UINT64_MAX - silent_ns ? UINT64_MAX
                                                                   : silent_ns + patience;
    }
}

/* ---------------------------------------------------------------------- the reconnect handshake */

static void fill_standing(struct rdmux_ep *ep, enum rdmux_frame_type type, struct rdmux_message *out)
{
    struct rdmux_failover *failover = ep->failover;
    rdmux_replay_confirm(ep);
    *out = (struct rdmux_message){
        .type = type,
        .epoch = ep->info.epoch,
        .is_steady = failover->stage == RDMUX_STEADY,
        .count = rdmux_replay_received(ep),
    };
}

static bool say_standing(struct rdmux_ep *ep, enum rdmux_frame_type type,
                         struct rdmux_channel *channel,
                         const struct rdmux_reconnect_greeting *greeting)
{
    struct rdmux_message message;
    uint8_t frame[RDMUX_MESSAGE_MAX];
    fill_standing(ep, type, &message);
    rdmux_replay_note_told(ep, message.count);
    return rdmux_reconnect_prove(ep->secrets->secret, greeting, &message) &&
           rdmux_channel_send(channel, frame, rdmux_message_encode(&message, frame)) == RDMUX_OK;
}

/* Returns whether the HELLO is for this connection and from the same process as before. */
static bool hello_is_ours(const struct rdmux_ep *ep, const struct rdmux_hello *hello)
{
    return memcmp(hello->resume, ep->failover->reconnect.name, sizeof(hello->resume)) == 0 &&
           memcmp(hello->process, ep->process.peer->id, sizeof(hello->process)) == 0;
}

static void take_hello(struct rdmux_ep *ep, const uint8_t *bytes, size_t size)
{
    struct rdmux_reconnect *reconnect = &ep->failover->reconnect;
    struct rdmux_hello hello;
    if (size != RDMUX_HELLO_SIZE || rdmux_hello_decode(bytes, size, &hello) != RDMUX_OK ||
        !hello_is_ours(ep, &hello)) {
        drop_fresh_channel(ep);
        address_failed(ep,
                       "it was dialled again, and the peer does not know the connection any more");
        return;
    }
    memcpy(reconnect->greeting.acceptors, bytes, RDMUX_HELLO_SIZE);
    reconnect->has_greeted = true;
    if (!say_standing(ep, RDMUX_FRAME_RESUME, reconnect->fresh, &reconnect->greeting)) {
        drop_fresh_channel(ep);
    }
}

/* Logs an impostor. Strangers cause these lines, so only the first, second, fourth, eighth and so
 * on are logged. */
static void tell_of_impostor(struct rdmux_ep *ep, const char *how)
{
    uint32_t count = ++ep->failover->reconnect.claims.impostors;
    if ((count & (count - 1)) == 0) {
        rdmux_log_about(
            ep->fabric, RDMUX_CATEGORY_FAILOVER, RDMUX_LOG_WARN,
            "endpoint %llu: an unverified peer reconnects its control channel %s; dropped "
            "(%u so far)",
            (unsigned long long)ep->id, how, count);
    }
}

/* Returns whether the sender on this channel knows the connection's secret and has the peer's
 * identity. */
static bool sender_is_proved(struct rdmux_ep *ep, const struct rdmux_channel *channel,
                             const struct rdmux_reconnect_greeting *greeting,
                             const struct rdmux_message *message)
{
    enum rdmux_frame_type wanted = is_connector(ep) ? RDMUX_FRAME_RESUMED : RDMUX_FRAME_RESUME;
    bool proved = rdmux_reconnect_is_proved(ep->secrets->secret, greeting, message);
    bool same = strcmp(rdmux_channel_identity(channel), ep->info.peer_identity) == 0;
    if (message->type == wanted && proved && same) {
        return true;
    }
    tell_of_impostor(ep, same ? "without its secret" : "by another identity than its peer's");
    return false;
}

/* Makes the channel the endpoint's control channel. */
static void take_channel(struct rdmux_ep *ep, struct rdmux_channel *channel,
                         const struct rdmux_message *message)
{
    struct rdmux_reconnect *reconnect = &ep->failover->reconnect;
    rdmux_channel_destroy(ep->channel);
    ep->channel = channel;
    reconnect->deadline_ns = 0;
    reconnect->refused = 0;
    reconnect->is_broken = false;
    rdmux_heartbeat_group_renew(ep);
    rdmux_ep_watch_channel(ep);
    rdmux_ep_heard(ep);
    rdmux_log_about(ep->fabric, RDMUX_CATEGORY_FAILOVER, RDMUX_LOG_INFO,
                    "endpoint %llu: its control channel is there again",
                    (unsigned long long)ep->id);
    rdmux_failover_resumed(ep, message);
    if (ep->phase == RDMUX_PHASE_READY) {
        resend_revocations(ep);
        rdmux_ep_timer(ep);
    }
}

/* -------------------------------------------------------------------- messages to the connector */

static void hear_standing(struct rdmux_ep *ep, const uint8_t *bytes, size_t size)
{
    struct rdmux_reconnect *reconnect = &ep->failover->reconnect;
    struct rdmux_message message;
    if (rdmux_message_decode(bytes, size, &message) != RDMUX_OK ||
        !sender_is_proved(ep, reconnect->fresh, &reconnect->greeting, &message)) {
        drop_fresh_channel(ep);
        return;
    }
    if (rdmux_failover_align(ep, &message)) {
        struct rdmux_channel *channel = reconnect->fresh;
        reconnect->fresh = NULL;
        take_channel(ep, channel, &message);
    }
}

static void fresh_channel_failed(struct rdmux_ep *ep)
{
    drop_fresh_channel(ep);
    address_failed(ep, NULL); /* rdmux_reconnect_step() dials again */
}

static void hear_fresh_channel(struct rdmux_ep *ep)
{
    struct rdmux_reconnect *reconnect = &ep->failover->reconnect;
    if (reconnect->fresh != NULL) {
        rdmux_channel_begin_turn(reconnect->fresh);
    }
    for (int i = 0; i < RDMUX_CHANNEL_TURN_FRAMES && reconnect->fresh != NULL &&
                    ep->phase == RDMUX_PHASE_READY;
         i++) {
        const uint8_t *bytes;
        size_t size;
        enum rdmux_status status = rdmux_channel_flush(reconnect->fresh);
        if (status == RDMUX_OK) {
            status = rdmux_channel_receive(reconnect->fresh, &bytes, &size);
        }
        if (status == RDMUX_AGAIN) {
            break;
        }
        if (status != RDMUX_OK) {
            fresh_channel_failed(ep);
        } else if (!reconnect->has_greeted) {
            take_hello(ep, bytes, size);
        } else {
            hear_standing(ep, bytes, size);
        }
    }
    rdmux_ep_control_rests(ep, reconnect->fresh != NULL ? reconnect->fresh : ep->channel);
}

/* ----------------------------------------------------------------------- claims at the acceptor */

/* Makes a proved claim the control channel. */
static void take_claim(struct rdmux_ep *ep, struct rdmux_claim *claim,
                       const struct rdmux_message *message)
{
    const struct rdmux_reconnect_greeting greeting = claim->greeting;
    struct rdmux_channel *channel = claim->channel;
    claim->channel = NULL;
    drop_claims(ep);
    rdmux_failover_channel_lost(ep); /* the old channel is lost, whatever its local state */
    if (rdmux_failover_align(ep, message) &&
        say_standing(ep, RDMUX_FRAME_RESUMED, channel, &greeting)) {
        take_channel(ep, channel, message);
        rdmux_ep_control_rests(ep, ep->channel);
    } else {
        rdmux_channel_destroy(channel);
    }
}

/* Handles the first frame of a claim, which must be RESUME. True: the claim has become the channel,
 * and all other claims are dropped. */
static bool hear_claim(struct rdmux_ep *ep, struct rdmux_claim *claim)
{
    const uint8_t *bytes;
    size_t size;
    struct rdmux_message message;
    rdmux_channel_begin_turn(claim->channel);
    enum rdmux_status status = rdmux_channel_flush(claim->channel);
    if (status == RDMUX_OK) {
        status = rdmux_channel_receive(claim->channel, &bytes, &size);
    }
    if (status == RDMUX_AGAIN) {
        return false;
    }
    if (status != RDMUX_OK || rdmux_message_decode(bytes, size, &message) != RDMUX_OK ||
        !sender_is_proved(ep, claim->channel, &claim->greeting, &message)) {
        drop_claim(ep, claim);
        return false;
    }
    take_claim(ep, claim, &message);
    return true;
}

static void hear_claims(struct rdmux_ep *ep)
{
    struct rdmux_reconnect *reconnect = &ep->failover->reconnect;
    for (struct rdmux_list *at = reconnect->claims.list.next, *next; at != &reconnect->claims.list;
         at = next) {
        next = at->next;
        if (hear_claim(ep, RDMUX_CONTAINER(at, struct rdmux_claim, link))) {
            return;
        }
    }
}

void rdmux_reconnect_ready(struct rdmux_ep *ep)
{
    struct rdmux_reconnect *reconnect = &ep->failover->reconnect;
    if (reconnect->dialing >= 0) {
        dial_ready(ep);
    }
    if (is_connector(ep)) {
        hear_fresh_channel(ep);
    } else {
        hear_claims(ep);
    }
}

static void drop_overdue_claims(struct rdmux_ep *ep, uint64_t now_ns)
{
    struct rdmux_claim *claim;
    while ((claim = oldest_claim(&ep->failover->reconnect)) != NULL && now_ns >= claim->until_ns) {
        drop_claim(ep, claim);
    }
}

/* Counts the claims from the same address as `like`. */
static uint32_t count_claims(const struct rdmux_reconnect *reconnect, const struct rdmux_claim *like)
{
    uint32_t count = 0;
    for (struct rdmux_list *at = reconnect->claims.list.next; at != &reconnect->claims.list;
         at = at->next) {
        const struct rdmux_claim *claim = RDMUX_CONTAINER(at, struct rdmux_claim, link);
        count += claim->key_size == like->key_size &&
                 memcmp(claim->key, like->key, like->key_size) == 0;
    }
    return count;
}

/* Evicts one claim if there are too many: the oldest of the address with the most claims. On a tie
 * the address of the newcomer loses its oldest. */
static void drop_superfluous_claim(struct rdmux_ep *ep, const struct rdmux_claim *newcomer)
{
    struct rdmux_reconnect *reconnect = &ep->failover->reconnect;
    struct rdmux_claim *found = NULL;
    uint32_t most = 0;
    if (reconnect->claims.count <= RDMUX_CLAIMS_MAX) {
        return;
    }
    for (struct rdmux_list *at = reconnect->claims.list.next; at != &reconnect->claims.list;
         at = at->next) {
        struct rdmux_claim *claim = RDMUX_CONTAINER(at, struct rdmux_claim, link);
        bool is_alike = claim->key_size == newcomer->key_size &&
                        memcmp(claim->key, newcomer->key, newcomer->key_size) == 0;
        uint32_t count = 2 * count_claims(reconnect, claim) + is_alike;
        if (claim != newcomer && count > most) {
            found = claim;
            most = count;
        }
    }
    if (found != NULL) {
        drop_claim(ep, found);
    }
}

/* Adds a claim. Takes the socket over in any case. */
static void add_claim(struct rdmux_ep *ep, const struct rdmux_reconnect_mail *mail)
{
    struct rdmux_reconnect *reconnect = &ep->failover->reconnect;
    struct sockaddr_storage address = { .ss_family = AF_UNSPEC };
    socklen_t length = sizeof(address);
    struct rdmux_claim *claim = rdmux_allocate(ep->fabric, sizeof(*claim));
    if (claim == NULL) {
        rdmux_tls_destroy(mail->tls);
        close(mail->socket);
        return;
    }
    (void)getpeername(mail->socket, (struct sockaddr *)&address, &length);
    claim->key_size = rdmux_address_network(&address, claim->key);
    claim->until_ns = rdmux_now(ep->fabric) + (uint64_t)RDMUX_CLAIM_MS * RDMUX_NS_PER_MS;
    memcpy(claim->greeting.connectors, mail->hello, RDMUX_HELLO_SIZE);
    claim->channel = create_greeting_channel(ep, mail->socket, mail->tls, true,
                                             claim->greeting.acceptors);
    if (claim->channel == NULL) {
        rdmux_release(ep->fabric, claim);
        return;
    }
    rdmux_list_append(&reconnect->claims.list, &claim->link);
    reconnect->claims.count++;
    drop_superfluous_claim(ep, claim);
    if (!hear_claim(ep, claim) && ep->phase == RDMUX_PHASE_READY) {
        rdmux_ep_timer(ep);
    }
}

/* Returns whether the dialled address did not answer completely in time. */
static bool dial_is_overdue(const struct rdmux_reconnect *reconnect, uint64_t now_ns)
{
    return is_connector(reconnect->ep) && (reconnect->dialing >= 0 || reconnect->fresh != NULL) &&
           now_ns >= reconnect->until_ns;
}

void rdmux_reconnect_step(struct rdmux_ep *ep)
{
    struct rdmux_reconnect *reconnect = &ep->failover->reconnect;
    uint64_t now_ns = rdmux_now(ep->fabric);
    drop_overdue_claims(ep, now_ns);
    if (reconnect->is_broken && ep->channel != NULL) {
        char text[RDMUX_TEXT_MAX];
        snprintf(text, sizeof(text), "%s", reconnect->text);
        if (!rdmux_reconnect_begin(ep, text)) {
            rdmux_ep_fail(ep, RDMUX_PEER_GONE, "%s", text);
        }
        return;
    }
    if (reconnect->answer_ns != 0 && now_ns >= reconnect->answer_ns) {
        peer_move_overdue(ep);
        return;
    }
    if (reconnect->deadline_ns == 0) {
        return;
    }
    if (now_ns >= reconnect->deadline_ns) {
        give_up_reconnect(ep, is_connector(ep) ? "dialling it again did not succeed in time"
                                               : "the peer did not dial it again in time");
    } else if (dial_is_overdue(reconnect, now_ns)) {
        stop_dialing(ep);
        fresh_channel_failed(ep);
        dial_address(ep);
    } else if (is_connector(ep) && reconnect->dialing < 0 && reconnect->fresh == NULL &&
               now_ns >= reconnect->next_ns) {
        dial_address(ep);
    }
}

uint64_t rdmux_reconnect_deadline(const struct rdmux_ep *ep)
{
    const struct rdmux_reconnect *reconnect = &ep->failover->reconnect;
    const struct rdmux_claim *claim = oldest_claim(reconnect);
    uint64_t next = claim != NULL ? claim->until_ns : UINT64_MAX;
    if (reconnect->deadline_ns == 0) {
        return reconnect->answer_ns != 0 && reconnect->answer_ns < next ? reconnect->answer_ns
                                                                        : next;
    }
    bool idle = reconnect->dialing < 0 && reconnect->fresh == NULL;
    if (is_connector(ep)) {
        next = idle ? reconnect->next_ns : reconnect->until_ns;
    }
    return next < reconnect->deadline_ns ? next : reconnect->deadline_ns;
}

/* --------------------------------------------------------------------------------- the listener */

bool rdmux_reconnect_is_asked(const uint8_t hello_bytes[RDMUX_HELLO_SIZE])
{
    static const uint8_t nothing[RDMUX_RECONNECT_NAME_SIZE] = { 0 };
    struct rdmux_hello hello;
    return rdmux_hello_decode(hello_bytes, RDMUX_HELLO_SIZE, &hello) == RDMUX_OK &&
           memcmp(hello.resume, nothing, sizeof(nothing)) != 0;
}

bool rdmux_reconnect_find(struct rdmux_fabric *fabric, struct rdmux_reconnect_mail *mail)
{
    struct rdmux_hello hello;
    bool found = false;
    (void)rdmux_hello_decode(mail->hello, RDMUX_HELLO_SIZE, &hello);
    pthread_mutex_lock(&fabric->lock);
    for (struct rdmux_list *at = fabric->reconnects.next; at != &fabric->reconnects && !found;
         at = at->next) {
        struct rdmux_reconnect *reconnect = RDMUX_CONTAINER(at, struct rdmux_reconnect, link);
        if (memcmp(reconnect->name, hello.resume, sizeof(reconnect->name)) == 0) {
            mail->mail.deliver = rdmux_reconnect_deliver;
            mail->mail.ep_id = reconnect->ep->id;
            mail->ep_id = reconnect->ep->id;
            rdmux_cq_mail(reconnect->ep->cq, &mail->mail);
            found = true;
        }
    }
    pthread_mutex_unlock(&fabric->lock);
    return found;
}

void rdmux_reconnect_deliver(struct rdmux_cq *cq, struct rdmux_mail *base)
{
    struct rdmux_reconnect_mail *mail = RDMUX_CONTAINER(base, struct rdmux_reconnect_mail, mail);
    struct rdmux_ep *ep = rdmux_cq_endpoint(cq, mail->ep_id);
    struct rdmux_hello hello;
    if (ep != NULL && ep->phase == RDMUX_PHASE_READY && ep->failover != NULL &&
        rdmux_hello_decode(mail->hello, RDMUX_HELLO_SIZE, &hello) == RDMUX_OK &&
        hello_is_ours(ep, &hello)) {
        add_claim(ep, mail);
    } else {
        rdmux_tls_destroy(mail->tls);
        close(mail->socket);
    }
    rdmux_release(mail->fabric, mail);
}
