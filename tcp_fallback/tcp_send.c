/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Send side of a tcp endpoint: encodes requests as frames, and sends the frames with as few system
 * calls as possible. */
#include "tcp_fallback/tcp_send.h"

#include "api/base/list.h"
#include "api/base/pieces.h"
#include "api/system/system.h"
#include "providers/credits.h"
#include "tcp_fallback/tcp_endpoint.h"
#include "tcp_fallback/tcp_frame.h"
#include "tcp_fallback/tcp_lane.h"
#include "tcp_fallback/tcp_pool.h"
#include "tcp_fallback/tcp_socket.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

enum {
    WRITE_PIECES_MAX = RDMUX_SGE_MAX + 1, /* a scatter/gather list and the batch before it */
    ZEROS_SIZE = 16 << 10,
};

static const uint8_t zeros[ZEROS_SIZE];

static_assert((int)TCP_KEY_SIZE == (int)RDMUX_TARGET_KEY_SIZE, "keys travel as they are");
static_assert((int)TCP_EARLY_MAX <= (int)TCP_COPY_MAX, "an early message is copied");

/* --------------------------------------------------------------------------------------- queues */

void rdmux_tcp_queue_push(struct tcp_queue *queue, struct rdmux_request *request)
{
    request->provider[TCP_NEXT] = 0;
    if (queue->last != NULL) {
        queue->last->provider[TCP_NEXT] = (uint64_t)(uintptr_t)request;
    } else {
        queue->first = request;
    }
    queue->last = request;
    queue->count++;
}

static struct rdmux_request *queue_next(const struct rdmux_request *request)
{
    return (struct rdmux_request *)(uintptr_t)request->provider[TCP_NEXT];
}

struct rdmux_request *rdmux_tcp_queue_pop(struct tcp_queue *queue)
{
    struct rdmux_request *request = queue->first;
    if (request != NULL) {
        queue->first = queue_next(request);
        queue->last = queue->first != NULL ? queue->last : NULL;
        queue->count--;
    }
    return request;
}

struct rdmux_request *rdmux_tcp_queue_take(struct tcp_queue *queue, uint64_t index)
{
    struct rdmux_request *before = NULL;
    struct rdmux_request *request = queue->first;
    while (request != NULL && request->provider[TCP_INDEX] != index) {
        before = request;
        request = queue_next(request);
    }
    if (request == NULL) {
        return NULL;
    }
    if (before == NULL) {
        return rdmux_tcp_queue_pop(queue);
    }
    before->provider[TCP_NEXT] = request->provider[TCP_NEXT];
    queue->last = queue->last == request ? before : queue->last;
    queue->count--;
    return request;
}

/* ------------------------------------------------------------------------------------ the batch */

/* Makes room for size bytes at the batch's end. False: the batch is too full. */
static bool batch_has_room(struct tcp_ep *ep, size_t size)
{
    struct tcp_out *out = &ep->out;
    if (out->batch == NULL) {
        out->batch = rdmux_tcp_pool_get(&rdmux_tcp_cq_of(ep)->pool);
        out->head = TCP_BATCH_START;
        out->tail = TCP_BATCH_START;
    }
    if (TCP_BUFFER_SIZE - out->tail >= size) {
        return true;
    }
    uint32_t bytes = out->tail - out->head;
    if (out->head == 0 || TCP_BUFFER_SIZE - bytes < size) {
        return false;
    }
    memmove(out->batch, out->batch + out->head, bytes);
    out->head = 0;
    out->tail = bytes;
    return true;
}

static void batch_release(struct tcp_ep *ep)
{
    rdmux_tcp_pool_put(&rdmux_tcp_cq_of(ep)->pool, ep->out.batch);
    ep->out.batch = NULL;
    ep->out.head = 0;
    ep->out.tail = 0;
}

/* Appends a header, for which there is room. Each frame grants up to UINT8_MAX new credits. */
static void batch_put_frame(struct tcp_ep *ep, struct tcp_frame *frame)
{
    frame->credits = (uint8_t)rdmux_credits_tell(&ep->given, UINT8_MAX);
    ep->out.tail += (uint32_t)rdmux_tcp_frame_encode(frame, ep->out.batch + ep->out.tail);
}

static bool batch_put_simple(struct tcp_ep *ep, uint8_t kind, uint64_t length)
{
    if (!batch_has_room(ep, TCP_HEADER_MAX)) {
        return false;
    }
    batch_put_frame(ep, &(struct tcp_frame){ .kind = kind, .length = length });
    return true;
}

/*
 * Adds a PING with filler before a header of header_size bytes whose payload is at addr, so that
 * the kernel copies the payload fast. The kernel usually copies to the start of a page, and a
 * processor that stores 1 to 63 bytes behind its loads, modulo 4096, is twice as slow. A round trip
 * of 64 KiB, page aligned, takes 32 us behind 8 bytes and 18 us behind 64.
 */
static void batch_align(struct tcp_ep *ep, size_t header_size, const void *addr)
{
    struct tcp_out *out = &ep->out;
    size_t behind = (out->tail - out->head + header_size - (uintptr_t)addr) % 4096;
    if (behind == 0 || behind >= 64) {
        return;
    }
    size_t size = 64 - behind;
    size += size < TCP_PREFIX_SIZE ? 64 : 0;
    size -= TCP_PREFIX_SIZE;
    batch_put_frame(ep, &(struct tcp_frame){ .kind = TCP_PING, .length = size });
    memset(out->batch + out->tail, 0, size);
    out->tail += (uint32_t)size;
}

/* ------------------------------------------------------------------------------------- payloads */

/* Returns the address of byte `at` of the request's scatter/gather list. */
static const void *byte_of(const struct rdmux_request *request, uint64_t at)
{
    struct iovec pieces[WRITE_PIECES_MAX] = { { NULL, 0 } };
    (void)rdmux_pieces(request, at, 1, pieces);
    return pieces[0].iov_base;
}

/* Sets the payload of the next frame, of at most left bytes, behind the batch. Returns its
 * length. */
static uint64_t payload_begin(struct tcp_ep *ep, enum tcp_payload payload, uint64_t left,
                              bool striped)
{
    uint64_t length = rdmux_tcp_frame_payload(left, ep->lane_count, striped);
    ep->out.payload = (uint8_t)payload;
    ep->out.frame_length = length;
    if (!striped) {
        ep->lane0.out_at = 0;
        ep->lane0.out_end = length;
        return length;
    }
    for (uint32_t i = 0; i < ep->lane_count; i++) {
        struct tcp_lane *lane = rdmux_tcp_lane(ep, i);
        rdmux_tcp_share(length, ep->lane_count, i, &lane->out_at, &lane->out_end);
    }
    return length;
}

static bool is_striped(const struct tcp_ep *ep, uint64_t left)
{
    return ep->lane_count > 1 && left >= TCP_STRIPE_MIN;
}

static void answer_pop(struct tcp_out *out)
{
    out->answers_first = (out->answers_first + 1) % (TCP_ANSWERS + 1);
    out->answers_count--;
}

/* Replaces the oldest answer by a NAK and drops all later answers. */
static void answer_refuse(struct tcp_ep *ep, enum rdmux_status status)
{
    struct tcp_answer *answer = &ep->out.answers[ep->out.answers_first];
    answer->kind = TCP_NAK;
    answer->length = status;
    ep->out.answers_count = 1;
    ep->in.is_refused = true;
}

/* Ends a frame whose payload is sent. */
static void payload_end(struct tcp_ep *ep)
{
    struct tcp_out *out = &ep->out;
    enum tcp_payload payload = (enum tcp_payload)out->payload;
    out->payload = TCP_PAYLOAD_NONE;
    out->was_answer_last = payload == TCP_PAYLOAD_ANSWER;
    if (payload == TCP_PAYLOAD_REQUEST) {
        struct rdmux_request *request = out->open;
        out->open_at += out->frame_length;
        if (out->open_at == request->length) {
            out->open = NULL;
            if (request->flags & RDMUX_PLACED) {
                rdmux_tcp_queue_push(&ep->unplaced, request);
            } else {
                rdmux_provider_done(&ep->base, request, RDMUX_OK);
            }
        }
    } else if (payload == TCP_PAYLOAD_ANSWER) {
        struct tcp_answer *answer = &out->answers[out->answers_first];
        answer->at += out->frame_length;
        if (answer->at == answer->length) {
            answer_pop(out);
        }
    } else if (ep->state == TCP_CONNECTED) {
        answer_refuse(ep, RDMUX_DENIED);
    }
}

/* Gets the pieces of the rest of this socket's share. *entered: the caller must leave the
 * region. */
static int payload_pieces(struct tcp_ep *ep, const struct tcp_lane *lane, struct iovec *iov,
                          bool *entered)
{
    struct tcp_out *out = &ep->out;
    uint64_t left = lane->out_end - lane->out_at;
    if (out->payload == TCP_PAYLOAD_REQUEST) {
        return (int)rdmux_pieces(out->open, out->open_at + lane->out_at, left, iov);
    }
    if (out->payload == TCP_PAYLOAD_ANSWER) {
        const struct tcp_answer *answer = &out->answers[out->answers_first];
        void *addr = NULL;
        if (rdmux_target_enter(&ep->base, answer->key, answer->offset + answer->at + lane->out_at,
                               left, RDMUX_ACCESS_REMOTE_READ, &addr) == RDMUX_OK) {
            *entered = true;
            iov[0] = (struct iovec){ addr, (size_t)left };
            return 1;
        }
        out->payload = TCP_PAYLOAD_ZEROS; /* the length is sent already; the NAK follows */
    }
    int count = 0;
    while (left > 0 && count < RDMUX_SGE_MAX) {
        uint64_t bytes = left < ZEROS_SIZE ? left : ZEROS_SIZE;
        iov[count++] = (struct iovec){ (void *)(uintptr_t)zeros, (size_t)bytes };
        left -= bytes;
    }
    return count;
}

/* -------------------------------------------------------------------------------------- sending */

/* The only writer of out->is_stopped. */
static void update_stop(struct tcp_out *out)
{
    out->is_stopped = out->is_dead || out->is_in_debt;
}

void rdmux_tcp_settle(struct tcp_ep *ep)
{
    ep->out.is_in_debt = false;
    update_stop(&ep->out);
}

void rdmux_tcp_out_die(struct tcp_ep *ep)
{
    ep->out.is_dead = true;
    update_stop(&ep->out);
    rdmux_tcp_attend(ep);
}

static void lane_block(struct tcp_lane *lane)
{
    struct tcp_ep *ep = lane->ep;
    rdmux_tcp_set_blocked(lane, true);
    if (!(lane->events & RDMUX_READY_OUT) && (lane->is_watched || ep->in.is_paused)) {
        (void)rdmux_tcp_watch(lane, lane->events | RDMUX_READY_OUT);
    }
    if (!rdmux_node_is_listed(&ep->out_armed)) {
        rdmux_list_append(&rdmux_tcp_cq_of(ep)->out_armed, &ep->out_armed);
    }
}

/* Sends the lane's share of the payload, after the batch on lane 0. False: bytes are left. */
static bool lane_flush(struct tcp_ep *ep, struct tcp_lane *lane)
{
    struct tcp_out *out = &ep->out;
    for (;;) {
        struct iovec iov[WRITE_PIECES_MAX];
        int count = 0;
        bool entered = false;
        size_t offered = 0;
        size_t batch = lane->index == 0 ? out->tail - out->head : 0;
        uint64_t left = out->payload != TCP_PAYLOAD_NONE ? lane->out_end - lane->out_at : 0;
        if (batch == 0 && left == 0) {
            return true;
        }
        if (lane->is_blocked || out->is_dead) {
            return false;
        }
        if (batch > 0) {
            iov[count++] = (struct iovec){ out->batch + out->head, batch };
        }
        ssize_t got;
        ep->base.system_calls++;
        if (left == 0) {
            offered = batch;
            got = lane->stream.send(lane, iov[0].iov_base, batch);
        } else {
            count += payload_pieces(ep, lane, iov + count, &entered);
            for (int i = 0; i < count; i++) {
                offered += iov[i].iov_len;
            }
            got = lane->stream.send_list(lane, iov, count);
        }
        int error = got < 0 ? errno : 0;
        if (entered) {
            rdmux_target_leave(&ep->base);
        }
        if (got < 0) {
            if (error == EINTR) {
                continue;
            }
            if (error == EAGAIN || error == EWOULDBLOCK) {
                lane_block(lane);
            } else {
                out->error = error;
                rdmux_tcp_out_die(ep);
            }
            return false;
        }
        size_t of_batch = (size_t)got < batch ? (size_t)got : batch;
        lane->out_at += (uint64_t)got - of_batch;
        if (batch > 0) {
            out->head += (uint32_t)of_batch;
            if (out->head == out->tail) {
                batch_release(ep);
            }
        }
        if ((size_t)got < offered) {
            lane_block(lane); /* another call would only return EAGAIN */
            return false;
        }
        if (left == 0) {
            return true;
        }
    }
}

/* Sends the batch and the payload behind it. False: bytes are left. */
static bool flush_batch(struct tcp_ep *ep)
{
    bool all = lane_flush(ep, &ep->lane0);
    if (ep->lane_count > 1 && ep->out.payload != TCP_PAYLOAD_NONE) {
        for (uint32_t i = 1; i < ep->lane_count; i++) {
            all = lane_flush(ep, rdmux_tcp_lane(ep, i)) && all;
        }
    }
    if (all && ep->out.payload != TCP_PAYLOAD_NONE) {
        payload_end(ep);
    }
    return all;
}

/* ------------------------------------------------------------------------------- pending frames */

static bool nothing_else_may_be_sent(const struct tcp_ep *ep)
{
    return ep->out.is_over || ep->state != TCP_CONNECTED;
}

static void owe_control(struct tcp_ep *ep)
{
    struct tcp_out *out = &ep->out;
    if (out->control == NULL || !batch_has_room(ep, out->control_size)) {
        return;
    }
    memcpy(out->batch + out->tail, out->control, out->control_size);
    out->tail += out->control_size;
    rdmux_tcp_pool_put(&rdmux_tcp_cq_of(ep)->pool, out->control);
    out->control = NULL;
    out->control_size = 0;
}

static void owe_words(struct tcp_ep *ep)
{
    struct tcp_out *out = &ep->out;
    if (out->is_giving_back && batch_put_simple(ep, TCP_RETURN, ep->held.left)) {
        out->is_giving_back = false;
        ep->held.left = 0;
        if (ep->waits & TCP_WAIT_CREDIT) {
            out->is_asking = out->is_asking || !ep->is_asked; /* keeps an ASK that had no room */
            ep->is_asked = true;
        }
    }
    if (out->acks > 0 && batch_put_simple(ep, TCP_ACK, out->acks)) {
        out->acks = 0;
    }
    if (out->is_recalling && batch_put_simple(ep, TCP_RECALL, 0)) {
        out->is_recalling = false;
    }
    if (out->is_asking && batch_put_simple(ep, TCP_ASK, 0)) {
        out->is_asking = false;
    }
}

/* Copies the rest of a short answer into the batch. False: the access is refused. */
static bool answer_copy(struct tcp_ep *ep, const struct tcp_answer *answer)
{
    void *addr = NULL;
    uint64_t left = answer->length - answer->at;
    enum rdmux_status status = rdmux_target_enter(
        &ep->base, answer->key, answer->offset + answer->at, left, RDMUX_ACCESS_REMOTE_READ, &addr);
    if (status != RDMUX_OK) {
        return false;
    }
    batch_put_frame(ep, &(struct tcp_frame){ .kind = TCP_DATA, .length = left });
    if (left > 0) {
        memcpy(ep->out.batch + ep->out.tail, addr, (size_t)left);
    }
    ep->out.tail += (uint32_t)left;
    rdmux_target_leave(&ep->base);
    return true;
}

/* Appends answers, oldest first, up to the first one with a payload behind the batch. */
static void owe_answers(struct tcp_ep *ep, bool short_only)
{
    struct tcp_out *out = &ep->out;
    while (out->answers_count > 0 && out->payload == TCP_PAYLOAD_NONE && !out->is_over) {
        struct tcp_answer *answer = &out->answers[out->answers_first];
        uint64_t left = answer->kind == TCP_DATA ? answer->length - answer->at : 0;
        bool copied = answer->kind == TCP_DATA && left <= TCP_COPY_MAX;
        if (answer->kind == TCP_DATA && !copied &&
            (short_only || (out->open != NULL && out->was_answer_last))) {
            return; /* requests have their turn */
        }
        if (!batch_has_room(ep, TCP_HEADER_MAX + (copied ? (size_t)left : TCP_HEADER_MAX))) {
            return;
        }
        if (answer->kind == TCP_RESULT) {
            batch_put_frame(ep, &(struct tcp_frame){
                                    .kind = TCP_RESULT, .length = 8, .operand = answer->offset });
            answer_pop(out);
        } else if (answer->kind == TCP_NAK) {
            batch_put_frame(ep, &(struct tcp_frame){ .kind = TCP_NAK,
                                                     .length = answer->length,
                                                     .operand = answer->index });
            answer_pop(out);
            out->is_over = true;
        } else if (copied) {
            if (answer_copy(ep, answer)) {
                answer_pop(out);
            } else {
                answer_refuse(ep, RDMUX_DENIED);
            }
        } else {
            bool striped = is_striped(ep, left);
            void *addr = NULL;
            if (rdmux_target_enter(&ep->base, answer->key, answer->offset + answer->at, left,
                                   RDMUX_ACCESS_REMOTE_READ, &addr) != RDMUX_OK) {
                answer_refuse(ep, RDMUX_DENIED);
                continue;
            }
            rdmux_target_leave(&ep->base);
            batch_align(ep, TCP_PREFIX_SIZE, addr);
            /* The last byte is copied into a later frame of its own. If the region is revoked
             * meanwhile, zeros fill up the long frame, which must therefore not complete the
             * read. */
            uint64_t length = payload_begin(ep, TCP_PAYLOAD_ANSWER, left - 1, striped);
            batch_put_frame(ep, &(struct tcp_frame){ .kind = TCP_DATA,
                                                     .length = length,
                                                     .flags = striped ? TCP_STRIPED : 0 });
        }
    }
}

/* Appends the next frame of a request that needs several. */
static void owe_more(struct tcp_ep *ep)
{
    struct tcp_out *out = &ep->out;
    if (out->open == NULL || out->payload != TCP_PAYLOAD_NONE || out->is_over ||
        !batch_has_room(ep, (size_t)2 * TCP_HEADER_MAX)) {
        return;
    }
    uint64_t left = out->open->length - out->open_at;
    bool striped = is_striped(ep, left);
    batch_align(ep, TCP_PREFIX_SIZE, byte_of(out->open, out->open_at));
    uint64_t length = payload_begin(ep, TCP_PAYLOAD_REQUEST, left, striped);
    batch_put_frame(ep, &(struct tcp_frame){ .kind = TCP_MORE,
                                             .length = length,
                                             .flags = striped ? TCP_STRIPED : 0 });
}

static void owe_credits(struct tcp_ep *ep)
{
    if (!ep->out.is_credit_due || ep->out.payload != TCP_PAYLOAD_NONE) {
        return;
    }
    if (rdmux_credits_untold(&ep->given) > 0 || ep->out.is_paying) {
        if (!batch_has_room(ep, TCP_HEADER_MAX)) {
            return;
        }
        uint64_t count = rdmux_credits_tell(&ep->given, RDMUX_CREDITS_MAX) + ep->out.is_paying;
        ep->out.is_paying = false;
        (void)batch_put_simple(ep, TCP_CREDIT, count);
    }
    ep->out.is_credit_due = false;
}

bool rdmux_tcp_owes(const struct tcp_ep *ep)
{
    const struct tcp_out *out = &ep->out;
    return out->acks > 0 || out->answers_count > 0 || out->control != NULL || out->open != NULL ||
           out->is_credit_due || out->is_asking || out->is_recalling || out->is_giving_back;
}

/* Appends the next pending frames, at the end of a frame. */
static void owe_bytes(struct tcp_ep *ep, bool short_only)
{
    owe_control(ep);
    if (nothing_else_may_be_sent(ep)) {
        return;
    }
    owe_words(ep);
    owe_answers(ep, short_only);
    if (!ep->in.is_refused) {
        owe_more(ep);
    }
    owe_credits(ep);
}

void rdmux_tcp_pump(struct tcp_ep *ep)
{
    struct tcp_out *out = &ep->out;
    if (ep->state != TCP_CONNECTED && !(ep->state == TCP_FAILED && ep->is_shared)) {
        return;
    }
    uint64_t moved = 0;
    bool yield = false; /* requests have their turn between long answers */
    for (;;) {
        if (out->payload == TCP_PAYLOAD_NONE && rdmux_tcp_owes(ep)) {
            owe_bytes(ep, yield);
        }
        if (out->batch == NULL && out->payload == TCP_PAYLOAD_NONE) {
            if (yield && out->answers_count > 0) {
                rdmux_tcp_attend(ep);
            }
            return;
        }
        moved += out->payload != TCP_PAYLOAD_NONE ? out->frame_length : 0;
        if (!flush_batch(ep)) {
            return;
        }
        if (out->batch != NULL && out->head == out->tail) {
            batch_release(ep); /* taken but not needed */
        }
        if ((ep->waits & TCP_WAIT_ROOM) && out->open == NULL) {
            rdmux_tcp_came(ep, TCP_WAIT_ROOM);
            yield = true;
        }
        if (moved >= TCP_VISIT) {
            rdmux_tcp_attend(ep);
            return;
        }
    }
}

void rdmux_tcp_unblock(struct tcp_lane *lane)
{
    if (lane->is_blocked) {
        rdmux_tcp_set_blocked(lane, false);
        rdmux_tcp_pump(lane->ep);
    }
}

void rdmux_tcp_came(struct tcp_ep *ep, uint32_t what)
{
    if (ep->waits & what) {
        ep->waits &= ~what;
        rdmux_provider_resume(&ep->base);
    }
}

void rdmux_tcp_nudge(struct tcp_ep *ep)
{
    if (rdmux_tcp_cq_of(ep)->is_armed) {
        rdmux_tcp_pump(ep);
    } else {
        rdmux_tcp_attend(ep);
    }
}

struct tcp_answer *rdmux_tcp_answer(struct tcp_ep *ep, uint8_t kind, uint64_t index)
{
    struct tcp_out *out = &ep->out;
    assert(out->answers_count <= TCP_ANSWERS);
    uint32_t last = (out->answers_first + out->answers_count) % (TCP_ANSWERS + 1);
    struct tcp_answer *answer = &out->answers[last];
    out->answers_count++;
    answer->kind = kind;
    answer->index = index;
    answer->at = 0;
    return answer;
}

void rdmux_tcp_refuse(struct tcp_ep *ep, uint64_t index, enum rdmux_status status)
{
    if (!ep->in.is_refused) {
        ep->in.is_refused = true;
        rdmux_tcp_answer(ep, TCP_NAK, index)->length = status;
    }
}

struct rdmux_request *rdmux_tcp_take_refused(struct tcp_ep *ep, uint64_t index)
{
    struct tcp_out *out = &ep->out;
    if (out->open != NULL && out->open->provider[TCP_INDEX] == index) {
        struct rdmux_request *request = out->open;
        out->open = NULL;
        if (out->payload == TCP_PAYLOAD_REQUEST) {
            /* control frames follow on a shared socket, so the frame must be completed */
            out->payload = TCP_PAYLOAD_ZEROS;
        }
        return request;
    }
    struct rdmux_request *request = rdmux_tcp_queue_take(&ep->unplaced, index);
    return request != NULL ? request : rdmux_tcp_queue_take(&ep->unanswered, index);
}

void rdmux_tcp_out_finish(struct tcp_ep *ep)
{
    struct tcp_out *out = &ep->out;
    if (out->batch != NULL) {
        batch_release(ep);
    }
    if (out->control != NULL) {
        rdmux_tcp_pool_put(&rdmux_tcp_cq_of(ep)->pool, out->control);
        out->control = NULL;
    }
    out->payload = TCP_PAYLOAD_NONE;
    out->open = NULL;
}

/* -------------------------------------------------------------------------------------- posting */

static enum rdmux_status not_now(struct tcp_ep *ep, uint32_t waits)
{
    ep->waits |= waits;
    return RDMUX_AGAIN;
}

static enum rdmux_status no_credit(struct tcp_ep *ep)
{
    if (ep->is_peer_on_demand && !ep->is_asked) {
        ep->is_asked = true;
        ep->out.is_asking = true;
    }
    return not_now(ep, TCP_WAIT_CREDIT);
}

/* Returns whether a message that has no credit may be sent, for the peer to keep until it has a
 * receive. It must be small: the batch has its bytes, so that it never waits half sent. */
static bool may_be_early(const struct tcp_ep *ep, const struct rdmux_request *request,
                         const struct tcp_frame *frame)
{
    return ep->takes_peer_early && frame->kind == TCP_SEND && request->length <= TCP_EARLY_MAX;
}

/* Requests behind an early message wait, as they would if it waited at this side. */
static void go_into_debt(struct tcp_out *out)
{
    out->is_in_debt = true;
    update_stop(out);
}

/* Queues a request until its ACK if it has RDMUX_PLACED, else completes it. */
static void request_sent(struct tcp_ep *ep, struct rdmux_request *request)
{
    if (request->flags & RDMUX_PLACED) {
        rdmux_tcp_queue_push(&ep->unplaced, request);
    } else {
        rdmux_provider_done(&ep->base, request, RDMUX_OK);
    }
}

/* Starts a request with payload: send or write. */
static enum rdmux_status start_carrying(struct tcp_ep *ep, struct rdmux_request *request,
                                        struct tcp_frame *frame, bool takes_receive)
{
    bool copied = request->length <= TCP_COPY_MAX;
    size_t room = TCP_HEADER_MAX + (copied ? (size_t)request->length : TCP_HEADER_MAX);
    if (takes_receive && ep->held.left == 0 && !may_be_early(ep, request, frame)) {
        return no_credit(ep);
    }
    if (!batch_has_room(ep, room)) {
        (void)flush_batch(ep);
        if (!batch_has_room(ep, room)) {
            return not_now(ep, TCP_WAIT_ROOM);
        }
    }
    if (takes_receive && !rdmux_credits_take(&ep->held)) {
        go_into_debt(&ep->out);
    }
    request->provider[TCP_INDEX] = ep->out.requests++;
    frame->length = request->length;
    frame->flags |= (request->flags & RDMUX_PLACED) ? TCP_PLACED : 0;
    frame->imm = request->imm;
    if (!copied) {
        bool striped = is_striped(ep, request->length);
        frame->flags |= striped ? TCP_STRIPED : 0;
        batch_align(ep, rdmux_tcp_header_size((uint8_t)(TCP_MARK | frame->kind | frame->flags)),
                    byte_of(request, 0));
        batch_put_frame(ep, frame);
        ep->out.open = request;
        ep->out.open_at = 0;
        (void)payload_begin(ep, TCP_PAYLOAD_REQUEST, request->length, striped);
        return RDMUX_OK;
    }
    batch_put_frame(ep, frame);
    rdmux_gather(request->sges, request->sge_count, 0, ep->out.batch + ep->out.tail,
                 request->length);
    ep->out.tail += (uint32_t)request->length;
    request_sent(ep, request);
    return RDMUX_OK;
}

/* Starts a request that the peer answers: read or atomic. */
static enum rdmux_status start_question(struct tcp_ep *ep, struct rdmux_request *request,
                                        struct tcp_frame *frame)
{
    if (ep->unanswered.count >= ep->peer_answers) {
        return not_now(ep, TCP_WAIT_ANSWER);
    }
    if (!batch_has_room(ep, TCP_HEADER_MAX)) {
        (void)flush_batch(ep);
        if (!batch_has_room(ep, TCP_HEADER_MAX)) {
            return not_now(ep, TCP_WAIT_ROOM);
        }
    }
    request->provider[TCP_INDEX] = ep->out.requests++;
    request->provider[TCP_DONE] = 0;
    frame->length = request->op == RDMUX_OP_READ ? request->length : 8;
    frame->operand = request->operand;
    frame->expected = request->expected;
    batch_put_frame(ep, frame);
    rdmux_tcp_queue_push(&ep->unanswered, request);
    return RDMUX_OK;
}

/* Starts a flush: a zero-length write without a region. */
static enum rdmux_status start_flush(struct tcp_ep *ep, struct rdmux_request *request)
{
    if (request->flags & RDMUX_PLACED) {
        if (!batch_has_room(ep, TCP_HEADER_MAX)) {
            (void)flush_batch(ep);
            if (!batch_has_room(ep, TCP_HEADER_MAX)) {
                return not_now(ep, TCP_WAIT_ROOM);
            }
        }
        request->provider[TCP_INDEX] = ep->out.requests++;
        batch_put_frame(ep, &(struct tcp_frame){ .kind = TCP_FLUSH, .flags = TCP_PLACED });
    }
    request_sent(ep, request);
    return RDMUX_OK;
}

/* The status of a request that cannot start. */
static enum rdmux_status refuse_start(struct tcp_ep *ep)
{
    if (ep->state != TCP_CONNECTED || ep->out.is_dead || ep->in.is_refused) {
        return RDMUX_AGAIN; /* the endpoint is about to end */
    }
    return not_now(ep, TCP_WAIT_CREDIT); /* it is in debt */
}

static enum rdmux_status start_request(struct tcp_ep *ep, struct rdmux_request *request)
{
    if (ep->state != TCP_CONNECTED || ep->out.is_stopped || ep->in.is_refused) {
        return refuse_start(ep);
    }
    if (ep->out.payload != TCP_PAYLOAD_NONE || ep->out.open != NULL) {
        rdmux_tcp_pump(ep);
        if (ep->out.payload != TCP_PAYLOAD_NONE || ep->out.open != NULL) {
            return not_now(ep, TCP_WAIT_ROOM);
        }
    }
    struct tcp_frame frame = { .kind = TCP_SEND, .offset = request->offset };
    if (request->remote != NULL) {
        frame.key = ((const struct rdmux_software_remote *)request->remote)->key;
    }
    switch (request->op) {
    case RDMUX_OP_SEND_IMM:
        frame.flags = TCP_IMM;
        return start_carrying(ep, request, &frame, true);
    case RDMUX_OP_SEND:
        return start_carrying(ep, request, &frame, true);
    case RDMUX_OP_WRITE:
        if (request->remote == NULL) {
            return start_flush(ep, request);
        }
        frame.kind = TCP_WRITE;
        return start_carrying(ep, request, &frame, false);
    case RDMUX_OP_WRITE_IMM:
        frame.kind = TCP_WRITE;
        frame.flags = TCP_IMM;
        return start_carrying(ep, request, &frame, true);
    case RDMUX_OP_READ:
        frame.kind = TCP_READ;
        return start_question(ep, request, &frame);
    case RDMUX_OP_FETCH_ADD:
        frame.kind = TCP_FETCH_ADD;
        return start_question(ep, request, &frame);
    case RDMUX_OP_COMPARE_SWAP:
        frame.kind = TCP_COMPARE_SWAP;
        return start_question(ep, request, &frame);
    default:
        return RDMUX_UNSUPPORTED;
    }
}

enum rdmux_status rdmux_tcp_post(struct rdmux_provider_ep *base, struct rdmux_request *requests,
                                 size_t count, uint32_t flags, size_t *posted)
{
    struct tcp_ep *ep = rdmux_tcp_ep(base);
    enum rdmux_status status = RDMUX_OK;
    size_t done = 0;
    while (done < count) {
        status = start_request(ep, &requests[done]);
        if (status != RDMUX_OK) {
            break;
        }
        done++;
    }
    *posted = done;
    if ((flags & RDMUX_POST_MORE) && status == RDMUX_OK && !rdmux_tcp_cq_of(ep)->is_armed) {
        rdmux_tcp_attend(ep);
    } else {
        rdmux_tcp_pump(ep);
    }
    return status;
}

void rdmux_tcp_doorbell(struct rdmux_provider_ep *base)
{
    rdmux_tcp_pump(rdmux_tcp_ep(base));
}

enum rdmux_status rdmux_tcp_ep_control(struct rdmux_provider_ep *base, const void *frame,
                                       size_t size)
{
    struct tcp_ep *ep = rdmux_tcp_ep(base);
    struct tcp_out *out = &ep->out;
    if (!ep->is_shared || size > TCP_CONTROL_HEADER_SIZE + TCP_CONTROL_PAYLOAD_MAX) {
        rdmux_provider_error("tcp: a control frame of %zu bytes cannot be sent here", size);
        return RDMUX_INVALID;
    }
    if (out->is_dead || (ep->state != TCP_CONNECTED && ep->state != TCP_FAILED)) {
        rdmux_provider_error("tcp: the socket shared with the control channel has ended");
        return RDMUX_PEER_GONE;
    }
    if (out->payload == TCP_PAYLOAD_NONE && out->control == NULL && batch_has_room(ep, size)) {
        memcpy(out->batch + out->tail, frame, size);
        out->tail += (uint32_t)size;
    } else {
        if (out->control == NULL) {
            out->control = rdmux_tcp_pool_get(&rdmux_tcp_cq_of(ep)->pool);
            out->control_size = 0;
        }
        if (TCP_BUFFER_SIZE - out->control_size < size) {
            rdmux_tcp_pump(ep);
            return RDMUX_AGAIN;
        }
        memcpy(out->control + out->control_size, frame, size);
        out->control_size += (uint32_t)size;
    }
    rdmux_tcp_pump(ep);
    if (ep->state == TCP_FAILED && (out->batch != NULL || out->control != NULL)) {
        rdmux_tcp_attend(ep);
    }
    return RDMUX_OK;
}

enum rdmux_status rdmux_tcp_ep_ping(struct rdmux_provider_ep *base)
{
    struct tcp_ep *ep = rdmux_tcp_ep(base);
    if (ep->is_kept_alive) {
        return RDMUX_UNSUPPORTED; /* a frame for each idle endpoint would add nothing */
    }
    if (ep->state == TCP_CONNECTED && ep->out.batch == NULL &&
        ep->out.payload == TCP_PAYLOAD_NONE && !ep->out.is_over) {
        (void)batch_put_simple(ep, TCP_PING, 0);
        rdmux_tcp_pump(ep);
    }
    return RDMUX_OK;
}
