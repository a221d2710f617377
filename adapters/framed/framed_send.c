/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Send side. An endpoint fills one message at a time: small requests, answers and words share it
 * until a post ends without RDMUX_POST_MORE, or a poll. A payload that one message does not hold
 * goes in several, as window and memory allow; other requests wait in the core meanwhile, answers
 * and words do not.
 *
 * Where the lane has bodies, a long payload goes in bodies of its own, behind the message whose
 * frames announce them. While the lane is busy with bodies the next message is held back, so that it
 * announces several: a lane has a cost for each message.
 */
#include "adapters/framed/framed_send.h"

#include "adapters/framed/framed_endpoint.h"
#include "adapters/framed/framed_frame.h"

#include <assert.h>
#include <string.h>

enum {
    VISIT = 64,          /* messages sent for one endpoint in one turn */
    PART_MIN = 1024,     /* a smaller part of a long payload waits for the next message */
    BODY_MIN = 16 << 10, /* a shorter payload is copied, which costs less than a message */
    BODIES_AHEAD = 2,    /* with so many bodies in the lane the next message is held back */
    WORD_ROOM = FRAMED_HEADER_MIN + 8,
};

/* --------------------------------------------------------------------------------------- queues */

static void queue_push(struct framed_queue *queue, struct rdmux_request *request)
{
    request->provider[FRAMED_NEXT] = 0;
    if (queue->last != NULL) {
        queue->last->provider[FRAMED_NEXT] = (uint64_t)(uintptr_t)request;
    } else {
        queue->first = request;
    }
    queue->last = request;
    queue->count++;
}

static struct rdmux_request *queue_next(const struct rdmux_request *request)
{
    return (struct rdmux_request *)(uintptr_t)request->provider[FRAMED_NEXT];
}

struct rdmux_request *rdmux_framed_queue_pop(struct framed_queue *queue)
{
    struct rdmux_request *request = queue->first;
    if (request != NULL) {
        queue->first = queue_next(request);
        queue->last = queue->first != NULL ? queue->last : NULL;
        queue->count--;
    }
    return request;
}

/* Removes and returns the request with this number; NULL: it is not in the queue. */
static struct rdmux_request *queue_take(struct framed_queue *queue, uint64_t index)
{
    struct rdmux_request *before = NULL;
    struct rdmux_request *request = queue->first;
    while (request != NULL && request->provider[FRAMED_INDEX] != index) {
        before = request;
        request = queue_next(request);
    }
    if (request == NULL || before == NULL) {
        return request == NULL ? NULL : rdmux_framed_queue_pop(queue);
    }
    before->provider[FRAMED_NEXT] = request->provider[FRAMED_NEXT];
    queue->last = queue->last == request ? before : queue->last;
    queue->count--;
    return request;
}

/* ------------------------------------------------------------------------------------- messages */

void rdmux_framed_came(struct framed_ep *ep, uint32_t what)
{
    if (ep->waits & what) {
        ep->waits &= ~what;
        rdmux_provider_resume(&ep->base);
    }
}

/* Returns whether the endpoint has a message to fill; takes one if it can. */
static bool message_begin(struct framed_ep *ep)
{
    if (ep->message != NULL) {
        return true;
    }
    if (ep->unsent != NULL || ep->window_left == 0) {
        return false;
    }
    ep->message = ep->lane->take(ep);
    ep->filled = FRAMED_PREFIX_SIZE;
    return ep->message != NULL;
}

size_t rdmux_framed_pieces(const struct rdmux_request *request, uint64_t at, uint64_t size,
                           struct iovec *out, size_t max)
{
    size_t count = 0;
    for (uint32_t i = 0; i < request->sge_count && size > 0; i++) {
        const struct rdmux_provider_sge *sge = &request->sges[i];
        if (at >= sge->length) {
            at -= sge->length;
            continue;
        }
        if (count == max) {
            return 0;
        }
        const uint64_t part = sge->length - at < size ? sge->length - at : size;
        out[count].iov_base = (uint8_t *)sge->addr + at;
        out[count++].iov_len = (size_t)part;
        size -= part;
        at = 0;
    }
    return size == 0 ? count : 0;
}

static enum rdmux_status give_body(struct framed_ep *ep, const struct framed_body *body)
{
    if (body->request == NULL) {
        return ep->lane->send(ep, body->message, body->size);
    }
    struct iovec pieces[FRAMED_PIECES_MAX];
    const size_t count = rdmux_framed_pieces(body->request, body->at, body->size, pieces,
                                             ep->body_pieces);
    return ep->lane->send_body(ep, pieces, count);
}

/* The oldest bodies that the lane has, if they are in memory of the lane: it needs no report. */
static void forget_messages(struct framed_ep *ep)
{
    while (ep->bodies_sent != ep->bodies_given &&
           ep->bodies[ep->bodies_sent % FRAMED_BODIES].request == NULL) {
        ep->bodies_sent++;
        rdmux_framed_came(ep, FRAMED_WAIT_BODY);
    }
}

/* Gives the lane the bodies whose message it has. */
static void give_bodies(struct framed_ep *ep)
{
    while (ep->bodies_given != ep->bodies_due && framed_may_send(ep)) {
        enum rdmux_status status;
        rdmux_framed_began(ep);
        status = give_body(ep, &ep->bodies[ep->bodies_given % FRAMED_BODIES]);
        if (status != RDMUX_OK) {
            framed_ended(ep);
            if (status == RDMUX_AGAIN) {
                rdmux_framed_blocked(ep);
            }
            return;
        }
        ep->bodies_given++;
        ep->base.system_calls++;
        forget_messages(ep);
    }
}

/* Gives the lane a message, and the bodies that it announces. */
static void message_send(struct framed_ep *ep, uint8_t *message, uint32_t length)
{
    rdmux_framed_began(ep); /* first: the lane may report it at once */
    enum rdmux_status status = ep->lane->send(ep, message, length);
    if (status == RDMUX_OK) {
        ep->base.system_calls++;
        ep->bodies_due = ep->bodies_made;
        give_bodies(ep);
        return;
    }
    framed_ended(ep);
    ep->unsent = message;
    ep->unsent_length = length;
    if (status == RDMUX_AGAIN) {
        rdmux_framed_blocked(ep);
    }
}

static uint16_t take_returned(struct framed_ep *ep)
{
    uint32_t returned = ep->returned < UINT16_MAX ? ep->returned : UINT16_MAX;
    ep->returned -= returned;
    return (uint16_t)returned;
}

/* Returns whether the lane has taken all that goes before the next message. */
static bool may_send_next(const struct framed_ep *ep)
{
    return ep->unsent == NULL && ep->bodies_given == ep->bodies_due;
}

/* Returns whether the next message waits for bodies to leave. It does not while the cq is armed, as
 * nobody may poll for long then. */
static bool is_busy_with_bodies(const struct framed_ep *ep)
{
    return ep->bodies_given - ep->bodies_sent >= BODIES_AHEAD && !framed_cq_of(ep)->is_armed &&
           !ep->is_over;
}

/* Sends the message that was filled, if there is anything in it. Returns the number of messages. */
static size_t message_end(struct framed_ep *ep)
{
    uint8_t *message = ep->message;
    if (message == NULL || ep->filled == FRAMED_PREFIX_SIZE || !may_send_next(ep)) {
        return 0;
    }
    rdmux_framed_prefix_encode(&(struct framed_prefix){ .tag = ep->tag_out,
                                                        .returned = take_returned(ep),
                                                        .sequence = ep->sequence_out++ },
                               message);
    ep->window_left--;
    ep->message = NULL;
    message_send(ep, message, ep->filled);
    return 1;
}

/* Tells the peer that its messages were handled, if it may be waiting for that and no other message
 * says so. */
static size_t return_window(struct framed_ep *ep)
{
    if (2 * ep->returned < ep->window || !may_send_next(ep)) {
        return 0;
    }
    uint8_t *message = ep->message;
    if (message != NULL && ep->filled > FRAMED_PREFIX_SIZE) {
        return message_end(ep);
    }
    if (message == NULL) {
        message = ep->lane->take(ep);
    }
    if (message == NULL) {
        return 0; /* rdmux_framed_sent() sees to it */
    }
    ep->message = NULL;
    rdmux_framed_prefix_encode(&(struct framed_prefix){ .tag = ep->tag_out,
                                                        .returned = take_returned(ep),
                                                        .flags = FRAMED_UNCOUNTED_FLAG },
                               message);
    message_send(ep, message, FRAMED_PREFIX_SIZE);
    return 1;
}

size_t rdmux_framed_retry(struct framed_ep *ep)
{
    uint8_t *message = ep->unsent;
    if (may_send_next(ep)) {
        return 0;
    }
    if (message != NULL) {
        ep->unsent = NULL;
        message_send(ep, message, ep->unsent_length);
    } else {
        give_bodies(ep);
    }
    if (!may_send_next(ep)) {
        return 0;
    }
    framed_attend(ep);
    return 1;
}

void rdmux_framed_sent(struct framed_ep *ep)
{
    framed_ended(ep);
    rdmux_framed_came(ep, FRAMED_WAIT_COPY);
    if (framed_may_send(ep) && ((ep->waits & FRAMED_WAIT_ROOM) || rdmux_framed_owes(ep) ||
                                2 * ep->returned >= ep->window)) {
        framed_attend(ep);
    }
}

void rdmux_framed_settle(struct framed_ep *ep, struct rdmux_request *request)
{
    if (--request->provider[FRAMED_LEFT] == 0) {
        rdmux_provider_done(&ep->base, request, RDMUX_OK);
    }
}

void rdmux_framed_body_sent(struct framed_ep *ep)
{
    struct rdmux_request *request = ep->bodies[ep->bodies_sent % FRAMED_BODIES].request;
    framed_ended(ep);
    ep->bodies_sent++;
    forget_messages(ep);
    if (!framed_may_send(ep)) {
        return; /* the core has the requests */
    }
    ep->silent_pings = 0; /* as bodies before it have reached the peer's side */
    rdmux_framed_settle(ep, request);
    rdmux_framed_came(ep, FRAMED_WAIT_BODY);
    framed_attend(ep);
}

/* --------------------------------------------------------------------------------------- frames */

/* Returns the longest message for a payload with so many bytes left: two short messages are faster
 * than one that is not short, where the lane makes a difference. */
static uint32_t longest_for(const struct framed_ep *ep, uint64_t left)
{
    return ep->short_max == 0 || left > 2 * (uint64_t)ep->short_max ? ep->send_max : ep->short_max;
}

/* Returns the bytes left in the message, which is to have no more than longest. */
static uint32_t room_of(const struct framed_ep *ep, uint32_t longest)
{
    return ep->filled < longest ? longest - ep->filled : 0;
}

/* Returns whether a message has room for size bytes; begins another one if the present one has
 * not. */
static bool make_room(struct framed_ep *ep, uint64_t size, uint32_t longest)
{
    if (!message_begin(ep)) {
        return false;
    }
    if (room_of(ep, longest) >= size) {
        return true;
    }
    (void)message_end(ep);
    return message_begin(ep) && room_of(ep, longest) >= size;
}

/* Appends a header, for which there is room, and makes room for its payload. Returns where the
 * payload goes. Every frame brings new credits. */
static uint8_t *put_frame(struct framed_ep *ep, struct framed_frame *frame)
{
    frame->credits = (uint16_t)rdmux_credits_tell(&ep->given, UINT16_MAX);
    uint8_t *at = ep->message + ep->filled;
    size_t header = rdmux_framed_frame_encode(frame, at);
    if (frame->flags & FRAMED_BODY) {
        ep->filled += (uint32_t)header;
        return at + header;
    }
    uint32_t padded = (uint32_t)framed_padded(frame->size);
    if (padded != frame->size) {
        memset(at + header + padded - 8, 0, 8);
    }
    ep->filled += (uint32_t)header + padded;
    return at + header;
}

/* Returns whether so many bytes go as a body. A body needs one more message, a copy does not. */
static bool is_body(const struct framed_ep *ep, uint64_t left, uint32_t pieces)
{
    return left >= BODY_MIN && ep->body_pieces > 0 &&
           (pieces <= ep->body_pieces || ep->copies_bodies);
}

static bool has_room_for_body(const struct framed_ep *ep)
{
    return ep->bodies_made - ep->bodies_sent < FRAMED_BODIES;
}

/* Returns the bytes of the next body of a request. The target of a write copies it from the lane's
 * memory. */
static uint32_t body_size(const struct framed_ep *ep, const struct rdmux_request *request,
                          uint64_t left)
{
    const bool is_write = request->op == RDMUX_OP_WRITE || request->op == RDMUX_OP_WRITE_IMM;
    uint32_t most = is_write ? FRAMED_PART_MAX : FRAMED_BODY_MAX;
    most = ep->copies_bodies && ep->copy_max < most ? ep->copy_max : most;
    return left < most ? (uint32_t)left : most;
}

/* Takes the memory that the next body needs. False: there is none now. */
static bool take_copy(struct framed_ep *ep, uint8_t **copy)
{
    *copy = ep->copies_bodies ? ep->lane->take_copy(ep) : NULL;
    return *copy != NULL || !ep->copies_bodies;
}

/* Notes a body, for which there is room and whose frame was put. */
static void make_body(struct framed_ep *ep, const struct framed_body *body)
{
    ep->bodies[ep->bodies_made++ % FRAMED_BODIES] = *body;
}

/* The same for a body of a request; copy is what take_copy() gave. */
static void make_body_of(struct framed_ep *ep, struct rdmux_request *request, uint64_t at,
                         uint64_t size, uint8_t *copy)
{
    if (copy != NULL) {
        rdmux_software_gather(request, at, copy, size);
        make_body(ep, &(struct framed_body){ .message = copy, .size = (uint32_t)size });
    } else {
        request->provider[FRAMED_LEFT]++;
        make_body(ep, &(struct framed_body){ request, at, NULL, (uint32_t)size });
    }
}

static bool put_word(struct framed_ep *ep, uint8_t kind, uint64_t length)
{
    if (!make_room(ep, WORD_ROOM, longest_for(ep, 0))) {
        return false;
    }
    (void)put_frame(ep, &(struct framed_frame){ .kind = kind, .length = length });
    return true;
}

/* Appends a word if it is due. */
static void put_due(struct framed_ep *ep, bool *is_due, uint8_t kind)
{
    if (*is_due && put_word(ep, kind, 0)) {
        *is_due = false;
    }
}

static void put_words(struct framed_ep *ep)
{
    if (!ep->has_greeted && put_word(ep, FRAMED_HELLO, 0)) {
        ep->has_greeted = true;
    }
    if (ep->is_giving_back && put_word(ep, FRAMED_RETURN, ep->held.left)) {
        ep->is_giving_back = false;
        ep->held.left = 0;
        if (ep->waits & FRAMED_WAIT_CREDIT) {
            ep->is_asking = ep->is_asking || !ep->is_asked; /* keeps an ASK that had no room */
            ep->is_asked = true;
        }
    }
    if (ep->acks > 0 && put_word(ep, FRAMED_ACK, ep->acks)) {
        ep->acks = 0;
    }
    put_due(ep, &ep->is_recalling, FRAMED_RECALL);
    put_due(ep, &ep->is_asking, FRAMED_ASK);
    put_due(ep, &ep->owes_pong, FRAMED_PONG);
    put_due(ep, &ep->owes_ping, FRAMED_PING);
    put_due(ep, &ep->owes_ring, FRAMED_RING);
    put_due(ep, &ep->owes_rings, FRAMED_RINGS);
    put_due(ep, &ep->owes_hush, FRAMED_HUSH);
}

/* Credits that no other frame has brought. */
static void put_credits(struct framed_ep *ep)
{
    while (ep->is_credit_due && rdmux_credits_untold(&ep->given) > 0) {
        if (!put_word(ep, FRAMED_CREDIT, 0)) {
            return;
        }
    }
    ep->is_credit_due = false;
}

static void answer_pop(struct framed_ep *ep)
{
    ep->answers_first = (ep->answers_first + 1) % (FRAMED_ANSWERS + 1);
    ep->answers_count--;
}

/* Appends the next part of the oldest read's answer. False: there is no room now. */
static bool put_data(struct framed_ep *ep, struct framed_answer *answer)
{
    uint64_t left = answer->length - answer->at;
    const bool as_body = is_body(ep, left, 1);
    uint64_t least = as_body ? 0 : left < PART_MIN ? left : PART_MIN;
    const uint32_t longest = longest_for(ep, left);
    if ((as_body && !has_room_for_body(ep)) ||
        !make_room(ep, FRAMED_HEADER_MIN + framed_padded(least), longest)) {
        return false;
    }
    uint64_t size = as_body ? ep->copy_max : room_of(ep, longest) - FRAMED_HEADER_MIN;
    size = left < size ? left : size & ~UINT64_C(7);
    void *addr = NULL;
    enum rdmux_status status = rdmux_target_enter(
        &ep->base, answer->key, answer->offset + answer->at, size, RDMUX_ACCESS_REMOTE_READ, &addr);
    if (status != RDMUX_OK) {
        /* Revoked since it was asked: what follows is not answered either. */
        answer->kind = FRAMED_REFUSAL;
        answer->length = status;
        ep->answers_count = 1;
        ep->is_refused = true;
        return true;
    }
    uint8_t *body = as_body ? ep->lane->take_copy(ep) : NULL;
    if (as_body && body == NULL) {
        rdmux_target_leave(&ep->base);
        return false; /* rdmux_framed_sent() sees to it */
    }
    uint8_t *to = put_frame(ep, &(struct framed_frame){ .kind = FRAMED_DATA,
                                                        .flags = as_body ? FRAMED_BODY : 0,
                                                        .size = (uint32_t)size,
                                                        .length = size });
    if (as_body) {
        make_body(ep, &(struct framed_body){ .message = body, .size = (uint32_t)size });
        to = body;
    }
    if (size > 0) {
        memcpy(to, addr, (size_t)size);
    }
    rdmux_target_leave(&ep->base);
    answer->at += size;
    if (answer->at == answer->length) {
        answer_pop(ep);
    }
    return true;
}

/* Appends the oldest answer, or a part of it. False: there is no room now. */
static bool put_answer(struct framed_ep *ep)
{
    struct framed_answer *answer = &ep->answers[ep->answers_first];
    if (answer->kind == FRAMED_DATA) {
        return put_data(ep, answer);
    }
    if (!make_room(ep, FRAMED_HEADER_MAX, longest_for(ep, 0))) {
        return false;
    }
    bool is_result = answer->kind == FRAMED_RESULT;
    (void)put_frame(
        ep, &(struct framed_frame){ .kind = answer->kind,
                                    .length = is_result ? 8 : answer->length,
                                    .operand = is_result ? answer->offset : answer->index });
    ep->is_over = !is_result;
    answer_pop(ep);
    return true;
}

/* All frames of the request are in messages: waits for the peer's ACK if it has RDMUX_PLACED. */
static void request_sent(struct framed_ep *ep, struct rdmux_request *request)
{
    if (request->flags & RDMUX_PLACED) {
        queue_push(&ep->unplaced, request);
    } else {
        rdmux_framed_settle(ep, request);
    }
}

/* Appends the next part of the open request. False: there is no room now. */
static bool put_more(struct framed_ep *ep)
{
    struct rdmux_request *request = ep->open;
    uint64_t left = request->length - ep->open_at;
    const bool as_body = is_body(ep, left, request->sge_count);
    uint64_t least = as_body ? 0 : left < PART_MIN ? left : PART_MIN;
    const uint32_t longest = longest_for(ep, left);
    uint8_t *copy = NULL;
    if ((as_body && !has_room_for_body(ep)) ||
        !make_room(ep, FRAMED_HEADER_MIN + framed_padded(least), longest) ||
        (as_body && !take_copy(ep, &copy))) {
        return false;
    }
    uint64_t size = room_of(ep, longest) - FRAMED_HEADER_MIN;
    size = as_body ? body_size(ep, request, left) : left < size ? left : size & ~UINT64_C(7);
    uint8_t *to = put_frame(ep, &(struct framed_frame){ .kind = FRAMED_MORE,
                                                        .flags = as_body ? FRAMED_BODY : 0,
                                                        .size = (uint32_t)size,
                                                        .length = size });
    if (as_body) {
        make_body_of(ep, request, ep->open_at, size, copy);
    } else {
        rdmux_software_gather(request, ep->open_at, to, size);
    }
    ep->open_at += size;
    if (ep->open_at == request->length) {
        ep->open = NULL;
        request_sent(ep, request);
    }
    return true;
}

bool rdmux_framed_owes(const struct framed_ep *ep)
{
    return ep->open != NULL || ep->answers_count > 0 || ep->acks > 0 || ep->is_credit_due ||
           ep->is_asking || ep->is_recalling || ep->is_giving_back || ep->owes_ping ||
           ep->owes_pong || ep->owes_ring || ep->owes_rings || ep->owes_hush || !ep->has_greeted ||
           (ep->message != NULL && ep->filled > FRAMED_PREFIX_SIZE);
}

/* Appends what is owed, up to VISIT messages. Requests and answers take turns. Returns the number
 * of messages sent. */
static size_t fill(struct framed_ep *ep)
{
    const uint32_t before = ep->sequence_out;
    const uint32_t most = framed_cq_of(ep)->is_armed ? UINT32_MAX : VISIT; /* nobody polls then */
    put_words(ep);
    while (ep->sequence_out - before < most && !ep->is_over) {
        bool has_open = ep->open != NULL && !ep->is_refused;
        if (ep->answers_count == 0 && !has_open) {
            break;
        }
        bool answers = ep->answers_count > 0 && (!has_open || !ep->was_answer_last);
        if (answers ? !put_answer(ep) : !put_more(ep)) {
            break;
        }
        ep->was_answer_last = answers;
    }
    put_credits(ep);
    return ep->sequence_out - before;
}

size_t rdmux_framed_pump(struct framed_ep *ep)
{
    if (!framed_may_send(ep)) {
        return 0;
    }
    size_t sent = fill(ep);
    const bool is_busy = sent >= VISIT;
    if (!is_busy_with_bodies(ep)) {
        sent += message_end(ep);
    }
    sent += return_window(ep);
    if ((ep->waits & FRAMED_WAIT_ROOM) && ep->open == NULL && may_send_next(ep) &&
        message_begin(ep)) {
        rdmux_framed_came(ep, FRAMED_WAIT_ROOM);
    }
    if (is_busy) {
        framed_attend(ep);
    }
    return sent;
}

void rdmux_framed_nudge(struct framed_ep *ep)
{
    if (framed_cq_of(ep)->is_armed) {
        (void)rdmux_framed_pump(ep);
    } else {
        framed_attend(ep);
    }
}

/* -------------------------------------------------------------------------------------- answers */

struct framed_answer *rdmux_framed_answer(struct framed_ep *ep, uint8_t kind, uint64_t index)
{
    assert(ep->answers_count <= FRAMED_ANSWERS);
    uint32_t last = (ep->answers_first + ep->answers_count) % (FRAMED_ANSWERS + 1);
    struct framed_answer *answer = &ep->answers[last];
    ep->answers_count++;
    answer->kind = kind;
    answer->index = index;
    answer->at = 0;
    return answer;
}

void rdmux_framed_refuse(struct framed_ep *ep, uint64_t index, enum rdmux_status status)
{
    if (!ep->is_refused) {
        ep->is_refused = true;
        rdmux_framed_answer(ep, FRAMED_REFUSAL, index)->length = status;
    }
}

struct rdmux_request *rdmux_framed_take_refused(struct framed_ep *ep, uint64_t index)
{
    struct rdmux_request *request = ep->open;
    if (request != NULL && request->provider[FRAMED_INDEX] == index) {
        ep->open = NULL;
    } else {
        request = queue_take(&ep->unplaced, index);
    }
    if (request == NULL) {
        return queue_take(&ep->unanswered, index);
    }
    return request->provider[FRAMED_LEFT] == 1 ? request : NULL;
}

/* -------------------------------------------------------------------------------------- posting */

static enum rdmux_status not_now(struct framed_ep *ep, uint32_t waits)
{
    ep->waits |= waits;
    return RDMUX_AGAIN;
}

static enum rdmux_status no_credit(struct framed_ep *ep)
{
    if (ep->is_peer_on_demand && !ep->is_asked) {
        ep->is_asked = true;
        ep->is_asking = true;
    }
    return not_now(ep, FRAMED_WAIT_CREDIT);
}

/* Starts a send or write. */
static enum rdmux_status start_carrying(struct framed_ep *ep, struct rdmux_request *request,
                                        struct framed_frame *frame, bool takes_receive)
{
    if (takes_receive && ep->held.left == 0) {
        return no_credit(ep);
    }
    frame->flags |= (request->flags & RDMUX_PLACED) ? FRAMED_PLACED : 0;
    frame->length = request->length;
    frame->imm = request->imm;
    uint64_t header = rdmux_framed_header_size(frame->kind, frame->flags);
    const uint32_t longest = longest_for(ep, request->length);
    const bool as_body = is_body(ep, request->length, request->sge_count);
    if (as_body && !has_room_for_body(ep)) {
        return not_now(ep, FRAMED_WAIT_BODY);
    }
    bool is_whole = as_body
                        ? request->length == body_size(ep, request, request->length)
                        : header + framed_padded(request->length) <= longest - FRAMED_PREFIX_SIZE;
    uint64_t least = as_body ? 0 : is_whole ? framed_padded(request->length) : PART_MIN;
    uint8_t *copy = NULL;
    if (!make_room(ep, header + least, longest)) {
        return not_now(ep, FRAMED_WAIT_ROOM);
    }
    if (as_body && !take_copy(ep, &copy)) {
        return not_now(ep, FRAMED_WAIT_COPY);
    }
    if (takes_receive) {
        (void)rdmux_credits_take(&ep->held);
    }
    uint64_t size = is_whole  ? request->length
                    : as_body ? body_size(ep, request, request->length)
                              : (room_of(ep, longest) - header) & ~UINT64_C(7);
    request->provider[FRAMED_INDEX] = ep->requests_out++;
    request->provider[FRAMED_LEFT] = 1;
    frame->size = (uint32_t)size;
    if (as_body) {
        frame->flags |= FRAMED_BODY;
        (void)put_frame(ep, frame);
        make_body_of(ep, request, 0, size, copy);
    } else {
        rdmux_software_gather(request, 0, put_frame(ep, frame), size);
    }
    if (is_whole) {
        request_sent(ep, request);
    } else {
        ep->open = request;
        ep->open_at = size;
    }
    return RDMUX_OK;
}

/* Starts a read or an atomic, which the peer answers. */
static enum rdmux_status start_asking(struct framed_ep *ep, struct rdmux_request *request,
                                      struct framed_frame *frame)
{
    if (ep->unanswered.count >= FRAMED_ANSWERS) {
        return not_now(ep, FRAMED_WAIT_ANSWER);
    }
    if (!make_room(ep, FRAMED_HEADER_MAX, longest_for(ep, 0))) {
        return not_now(ep, FRAMED_WAIT_ROOM);
    }
    request->provider[FRAMED_INDEX] = ep->requests_out++;
    request->provider[FRAMED_DONE] = 0;
    frame->length = request->op == RDMUX_OP_READ ? request->length : 8;
    frame->operand = request->operand;
    frame->expected = request->expected;
    (void)put_frame(ep, frame);
    queue_push(&ep->unanswered, request);
    return RDMUX_OK;
}

/* Starts a flush: a write of no bytes without a region. */
static enum rdmux_status start_flush(struct framed_ep *ep, struct rdmux_request *request)
{
    request->provider[FRAMED_LEFT] = 1;
    if (request->flags & RDMUX_PLACED) {
        if (!make_room(ep, FRAMED_HEADER_MIN, longest_for(ep, 0))) {
            return not_now(ep, FRAMED_WAIT_ROOM);
        }
        request->provider[FRAMED_INDEX] = ep->requests_out++;
        (void)put_frame(ep, &(struct framed_frame){ .kind = FRAMED_FLUSH, .flags = FRAMED_PLACED });
    }
    request_sent(ep, request);
    return RDMUX_OK;
}

static enum rdmux_status start_request(struct framed_ep *ep, struct rdmux_request *request)
{
    if (ep->state != FRAMED_CONNECTED || ep->is_refused) {
        return RDMUX_AGAIN; /* the endpoint is about to end */
    }
    if (ep->open != NULL) {
        (void)rdmux_framed_pump(ep);
        if (ep->open != NULL) {
            return not_now(ep, FRAMED_WAIT_ROOM);
        }
    }
    struct framed_frame frame = { .kind = FRAMED_SEND, .offset = request->offset };
    if (request->remote != NULL) {
        frame.key = ((const struct rdmux_software_remote *)request->remote)->key;
    }
    switch (request->op) {
    case RDMUX_OP_SEND_IMM:
        frame.flags = FRAMED_IMM;
        return start_carrying(ep, request, &frame, true);
    case RDMUX_OP_SEND:
        return start_carrying(ep, request, &frame, true);
    case RDMUX_OP_WRITE:
        if (request->remote == NULL) {
            return start_flush(ep, request);
        }
        frame.kind = FRAMED_WRITE;
        return start_carrying(ep, request, &frame, false);
    case RDMUX_OP_WRITE_IMM:
        frame.kind = FRAMED_WRITE;
        frame.flags = FRAMED_IMM;
        return start_carrying(ep, request, &frame, true);
    case RDMUX_OP_READ:
        frame.kind = FRAMED_READ;
        return start_asking(ep, request, &frame);
    case RDMUX_OP_FETCH_ADD:
        frame.kind = FRAMED_FETCH_ADD;
        return start_asking(ep, request, &frame);
    case RDMUX_OP_COMPARE_SWAP:
        frame.kind = FRAMED_COMPARE_SWAP;
        return start_asking(ep, request, &frame);
    default:
        return RDMUX_UNSUPPORTED;
    }
}

enum rdmux_status rdmux_framed_post(struct rdmux_provider_ep *base, struct rdmux_request *requests,
                                    size_t count, uint32_t flags, size_t *posted)
{
    struct framed_ep *ep = framed_ep_of(base);
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
    if ((flags & RDMUX_POST_MORE) && status == RDMUX_OK && !framed_cq_of(ep)->is_armed) {
        framed_attend(ep);
    } else {
        (void)rdmux_framed_pump(ep);
    }
    return status;
}

void rdmux_framed_doorbell(struct rdmux_provider_ep *base)
{
    (void)rdmux_framed_pump(framed_ep_of(base));
}
