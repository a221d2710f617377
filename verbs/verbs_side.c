/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * The side channel: a second queue pair to the same peer, on the same cq, whose receives belong to
 * the library. It carries emulated atomics: the target's library carries them out, because the
 * device's own would not be atomic with those of its host's CPU.
 *
 * Order. Nothing orders two queue pairs. An atomic with writes or sends before it waits for a flush
 * read behind those; then the peer's memory has them, and the message may go. An atomic behind a
 * fence of the data queue waits for a flush read, too, which the fence holds back. Atomics go in
 * order, over one queue pair, and are answered in order. post holds back what must stay behind an
 * atomic (a read, any request with FENCE) until the atomic is answered.
 *
 * Room. Each end has at most as many requests in flight as both ends take: VERBS_SIDE_DEPTH, or
 * what the queues of their devices have room for. Receives are posted for as many requests and
 * answers, and for the transport's own messages. A receive is posted again before the answer goes.
 * So no message ever waits for a receive.
 *
 * request->provider[]: [0] the next request, [1] the end of the data queue's slots that must be
 * done first.
 */
#include "verbs/verbs_side.h"

#include "verbs/verbs_chain.h"
#include "verbs/verbs_connection.h"
#include "verbs/verbs_description.h"
#include "verbs/verbs_endpoint.h"
#include "verbs/verbs_macros.h"
#include "verbs/verbs_memory.h"
#include "verbs/verbs_queue.h"
#include "verbs/verbs_ring.h"
#include "verbs/verbs_send.h"
#include "verbs/verbs_state.h"
#include "verbs/verbs_transport.h"

#include <string.h>

enum {
    RECEIVES_EACH = 2, /* per request: the peer's request and the answer to one of ours */
    ANSWERS_EACH = 3,  /* slots reserved for answers, whose completions may come late */
    SENDS_EACH = 1 + ANSWERS_EACH,
};

/* ---------------------------------------------------------------------------------- open, close */

static size_t memory_size(const struct verbs_ep *ep)
{
    return (size_t)(ep->side.receives + ep->side.sends) * VERBS_SIDE_SIZE;
}

/* Chooses the number of requests that the device's queue has room for. */
static void choose_depth(struct verbs_ep *ep)
{
    const uint32_t most = (uint32_t)verbs_domain_of_ep(ep)->attr.max_qp_wr;
    const uint32_t own = ep->transport->side_own;
    uint32_t depth = VERBS_SIDE_DEPTH;
    while (depth > 1 && SENDS_EACH * depth + own > most) {
        depth--;
    }
    ep->side.sends = SENDS_EACH * depth + own;
    ep->side.receives = RECEIVES_EACH * depth + own;
    ep->ours.side_depth = (uint8_t)depth;
}

/* Returns the send slots reserved for answers. */
static uint32_t answer_slots(const struct verbs_ep *ep)
{
    return ANSWERS_EACH * (uint32_t)ep->ours.side_depth;
}

enum rdmux_status rdmux_verbs_side_open(struct verbs_ep *ep)
{
    choose_depth(ep);
    const size_t size = memory_size(ep);
    const struct verbs_queue_wish wish = {
        .send_depth = ep->side.sends,
        .send_least = ep->side.sends,
        .receive_depth = ep->side.receives,
        .max_send_sge = 1,
        .max_receive_sge = 1,
        .max_inline = VERBS_SIDE_SIZE,
        .signal_every = 1,
    };
    ep->side.messages = rdmux_verbs_pages_map(size);
    if (ep->side.messages == NULL) {
        rdmux_provider_error("%s: out of memory", ep->transport->name);
        return RDMUX_NO_MEMORY;
    }
    enum rdmux_status status = rdmux_verbs_pin(
        verbs_domain_of_ep(ep), "side channel's buffer", ep->side.messages, size,
        (uintptr_t)ep->side.messages, IBV_ACCESS_LOCAL_WRITE, 1, &ep->side.mr);
    if (status != RDMUX_OK) {
        goto unmap;
    }
    status = rdmux_verbs_queue_open(&ep->side.queue, ep, &wish);
    if (status != RDMUX_OK) {
        goto deregister;
    }
    return RDMUX_OK;

deregister:
    (void)ibv_dereg_mr(ep->side.mr);
    ep->side.mr = NULL;
    ep->side.queue.ep = NULL;
unmap:
    rdmux_verbs_pages_unmap(ep->side.messages, size);
    ep->side.messages = NULL;
    return status;
}

void rdmux_verbs_side_close(struct verbs_ep *ep)
{
    rdmux_verbs_queue_close(&ep->side.queue);
    if (ep->side.mr != NULL) {
        (void)ibv_dereg_mr(ep->side.mr);
        ep->side.mr = NULL;
    }
    rdmux_verbs_pages_unmap(ep->side.messages, memory_size(ep));
    ep->side.messages = NULL;
}

/* ------------------------------------------------------------------------------- the queue pair */

static uint8_t *receive_place(const struct verbs_ep *ep, uint32_t slot)
{
    return ep->side.messages + (size_t)(slot % ep->side.receives) * VERBS_SIDE_SIZE;
}

static uint8_t *send_place(const struct verbs_ep *ep, uint32_t slot)
{
    return ep->side.messages +
           (size_t)(ep->side.receives + slot % ep->side.sends) * VERBS_SIDE_SIZE;
}

static enum rdmux_status post_receive(struct verbs_ep *ep)
{
    /* no request belongs to it: the ring only counts */
    uint32_t slot = verbs_receive_ring_take(&ep->side.queue.receives, NULL);
    struct ibv_sge piece = { .addr = (uintptr_t)receive_place(ep, slot),
                             .length = VERBS_SIDE_SIZE,
                             .lkey = ep->side.mr->lkey };
    struct ibv_recv_wr work = { .wr_id = verbs_wr_id_of(ep->side.queue.id, VERBS_WORK_RECEIVE, slot),
                                .sg_list = &piece,
                                .num_sge = 1 };
    struct ibv_recv_wr *bad = NULL;
    int error = ibv_post_recv(ep->side.queue.qp, &work, &bad);
    if (error != 0) {
        rdmux_provider_error("%s: the side channel's receive was not taken: %s",
                             verbs_domain_of_ep(ep)->device, strerror(verbs_error_of(error)));
        return RDMUX_IO;
    }
    return RDMUX_OK;
}

enum rdmux_status rdmux_verbs_side_start(struct verbs_ep *ep)
{
    enum rdmux_status status = RDMUX_OK;
    for (uint32_t i = 0; i < ep->side.receives && status == RDMUX_OK; i++) {
        status = post_receive(ep);
    }
    return status;
}

/* Sends a message; there is a slot, see Room. */
static void send_bytes(struct verbs_ep *ep, const uint8_t message[VERBS_SIDE_SIZE])
{
    struct verbs_queue *queue = &ep->side.queue;
    struct ibv_send_wr *work = rdmux_verbs_chain_add(queue, NULL, VERBS_WISH_DONE);
    uint8_t *place = send_place(ep, verbs_wr_id_slot(work->wr_id));
    memcpy(place, message, VERBS_SIDE_SIZE);
    work->num_sge = verbs_chain_piece(queue, place, VERBS_SIDE_SIZE, ep->side.mr->lkey);
    work->opcode = IBV_WR_SEND;
    work->send_flags |= queue->max_inline >= VERBS_SIDE_SIZE ? (uint32_t)IBV_SEND_INLINE : 0;
    (void)rdmux_verbs_chain_ring(queue);
}

static void send_message(struct verbs_ep *ep, const struct verbs_side_message *message)
{
    uint8_t bytes[VERBS_SIDE_SIZE];
    rdmux_verbs_side_encode(message, bytes);
    send_bytes(ep, bytes);
}

bool rdmux_verbs_side_has_room(const struct verbs_ep *ep)
{
    return verbs_send_ring_room(&ep->side.queue.sent) > answer_slots(ep) &&
           ep->state == VERBS_EP_CONNECTED;
}

void rdmux_verbs_side_send(struct verbs_ep *ep, const uint8_t *message)
{
    send_bytes(ep, message);
}

/* ---------------------------------------------------------------------------------- our atomics */

static struct rdmux_request *next_of(const struct rdmux_request *request)
{
    return (struct rdmux_request *)(uintptr_t)request->provider[0];
}

enum rdmux_status rdmux_verbs_side_atomic(struct verbs_ep *ep, struct rdmux_request *request)
{
    struct verbs_queue *data = &ep->data;
    const struct verbs_send_ring *ring = &data->sent;
    bool flush_is_silent = verbs_send_ring_is_under_way(ring, ep->flushed_end) &&
                           (int32_t)(ep->flushed_end - ring->signaled) > 0;
    bool fence_is_under_way = verbs_send_ring_is_under_way(ring, ep->fenced_end);
    if (ep->is_unflushed || flush_is_silent || fence_is_under_way) {
        /* The caller has checked for room. The flush read finishes after the reads before it. */
        rdmux_verbs_chain_flush(ep, NULL, VERBS_WISH_DONE);
    }
    request->provider[0] = 0;
    request->provider[1] = ep->flushed_end;
    if (ep->side.atomics == NULL) {
        ep->side.atomics = request;
    } else {
        ep->side.atomics_last->provider[0] = (uint64_t)(uintptr_t)request;
    }
    ep->side.atomics_last = request;
    if (ep->side.atomics_unsent == NULL) {
        ep->side.atomics_unsent = request;
    }
    ep->side.atomic_count++;
    rdmux_verbs_side_push(ep);
    return RDMUX_OK;
}

void rdmux_verbs_side_push(struct verbs_ep *ep)
{
    const uint32_t depth = ep->ours.side_depth < ep->theirs.side_depth ? ep->ours.side_depth
                                                                       : ep->theirs.side_depth;
    while (ep->side.atomics_unsent != NULL && ep->side.atomics_sent < depth &&
           verbs_send_ring_room(&ep->side.queue.sent) > answer_slots(ep) &&
           ep->state == VERBS_EP_CONNECTED) {
        struct rdmux_request *request = ep->side.atomics_unsent;
        if (verbs_send_ring_is_under_way(&ep->data.sent, (uint32_t)request->provider[1])) {
            return;
        }
        const struct verbs_remote *remote = (const struct verbs_remote *)request->remote;
        struct verbs_side_message message = {
            .kind = VERBS_SIDE_REQUEST,
            .op = (uint8_t)request->op,
            .number = ep->side.number++,
            .offset = request->offset,
            .operand = request->operand,
            .expected = request->expected,
        };
        memcpy(message.key, remote->region.key, sizeof(message.key));
        ep->side.atomics_unsent = next_of(request);
        ep->side.atomics_sent++;
        send_message(ep, &message);
    }
}

/* Maps the status in an answer: those that a peer may give, else RDMUX_PROTOCOL. */
static enum rdmux_status refusal_of(uint8_t status)
{
    switch ((enum rdmux_status)status) {
    case RDMUX_OK:
    case RDMUX_DENIED:
    case RDMUX_OUT_OF_RANGE:
    case RDMUX_INVALID:
        return (enum rdmux_status)status;
    default:
        return RDMUX_PROTOCOL;
    }
}

/* Handles the answer to the oldest atomic. */
static void take_answer(struct verbs_ep *ep, const struct verbs_side_message *message)
{
    struct rdmux_request *request = ep->side.atomics;
    if (ep->side.atomics_sent == 0 || message->number != ep->side.number - ep->side.atomics_sent) {
        rdmux_verbs_fail(ep, RDMUX_PROTOCOL, "the peer answered an atomic that was not asked");
        return;
    }
    ep->side.atomics = next_of(request);
    ep->side.atomics_sent--;
    ep->side.atomic_count--;
    enum rdmux_status status = refusal_of(message->op);
    if (status == RDMUX_OK) {
        memcpy(request->sges[0].addr, &message->operand, sizeof(message->operand));
    } else {
        rdmux_verbs_fail(ep, status, "the peer refused an atomic: %s", rdmux_status_name(status));
    }
    rdmux_provider_done(&ep->base, request, (uint32_t)status);
    rdmux_verbs_side_push(ep);
    if (ep->side.atomic_count == 0) {
        rdmux_verbs_resume(ep);
    }
}

/* --------------------------------------------------------------------------- the peer's atomics */

static void carry_out(struct verbs_ep *ep, const struct verbs_side_message *message)
{
    if (verbs_send_ring_room(&ep->side.queue.sent) == 0) {
        rdmux_verbs_fail(ep, RDMUX_PROTOCOL, "the peer sent more atomics than were agreed");
        return;
    }
    struct verbs_side_message answer = { .kind = VERBS_SIDE_ANSWER, .number = message->number };
    enum rdmux_status status = rdmux_target_atomic(&ep->base, message->key, message->op,
                                                   message->offset, message->operand,
                                                   message->expected, &answer.operand);
    answer.op = (uint8_t)status;
    ep->counts.executed += status == RDMUX_OK;
    send_message(ep, &answer);
    if (status != RDMUX_OK) {
        rdmux_verbs_fail(ep, status, "an atomic of the peer was refused: %s",
                         rdmux_status_name(status));
    }
}

void rdmux_verbs_no_side_message(struct verbs_ep *ep, const uint8_t *message)
{
    rdmux_verbs_fail(ep, RDMUX_PROTOCOL, "a side message of kind %u cannot be taken", message[0]);
}

/* Handles a message of the transport's own. */
static void take_own(struct verbs_ep *ep, uint32_t slot)
{
    uint8_t message[VERBS_SIDE_SIZE];
    memcpy(message, receive_place(ep, slot), sizeof(message));
    enum rdmux_status status = post_receive(ep);
    if (status != RDMUX_OK) {
        rdmux_verbs_fail(ep, status, "a side message of kind %u cannot be taken", message[0]);
        return;
    }
    ep->transport->side_message(ep, message);
}

void rdmux_verbs_side_received(struct verbs_ep *ep, uint32_t slot, const struct ibv_wc *wc)
{
    struct verbs_receive_ring *ring = &ep->side.queue.receives;
    if (ring->head == ring->tail || slot != ring->tail) {
        return;
    }
    ring->tail++;
    if (wc->status != IBV_WC_SUCCESS) {
        ep->transport->receive_failed(ep, NULL, wc);
        return;
    }
    if (ep->state != VERBS_EP_CONNECTED) {
        return;
    }
    if (wc->byte_len == VERBS_SIDE_SIZE && receive_place(ep, slot)[0] >= VERBS_SIDE_OWN) {
        take_own(ep, slot);
        return;
    }
    struct verbs_side_message message;
    enum rdmux_status status = rdmux_verbs_side_decode(receive_place(ep, slot), wc->byte_len,
                                                       &message);
    if (status == RDMUX_OK) {
        status = post_receive(ep);
    }
    if (status != RDMUX_OK) {
        rdmux_verbs_fail(ep, status, "a side message of %u bytes cannot be taken", wc->byte_len);
    } else if (message.kind == VERBS_SIDE_ANSWER) {
        take_answer(ep, &message);
    } else {
        carry_out(ep, &message);
    }
}
