/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Receive side: carries out the frames of a message. All input is untrusted: a violation ends the
 * endpoint with RDMUX_PROTOCOL. */
#include "adapters/framed/framed_credit.h"
#include "adapters/framed/framed_endpoint.h"
#include "adapters/framed/framed_frame.h"
#include "adapters/framed/framed_send.h"

#include <string.h>

/* The functions carry_...() carry out a frame. False: the endpoint has failed. */

static bool peer_lies(struct framed_ep *ep, const char *text)
{
    rdmux_framed_fail(ep, RDMUX_PROTOCOL, "%s", text);
    return false;
}

/* Checks whether the peer may access these bytes. */
static enum rdmux_status access_check(struct framed_ep *ep, const struct framed_frame *frame,
                                      uint32_t access)
{
    void *addr = NULL;
    if (frame->offset + frame->length < frame->offset) {
        return RDMUX_OUT_OF_RANGE;
    }
    enum rdmux_status status = rdmux_target_enter(&ep->base, frame->key, frame->offset,
                                                  frame->length, access, &addr);
    if (status == RDMUX_OK) {
        rdmux_target_leave(&ep->base);
    }
    return status;
}

/* -------------------------------------------------------------------------------------- storing */

/* Stores the next part of a request. */
static void store(struct framed_ep *ep, const struct framed_incoming *in, const uint8_t *bytes,
                  uint64_t size)
{
    if (size == 0 || ep->is_refused) {
        return;
    }
    if (in->is_send) {
        rdmux_software_scatter(in->receive, in->at, bytes, size);
        return;
    }
    void *addr = NULL;
    enum rdmux_status status = rdmux_target_enter(&ep->base, in->key, in->offset + in->at, size,
                                                  RDMUX_ACCESS_REMOTE_WRITE, &addr);
    if (status != RDMUX_OK) {
        rdmux_framed_refuse(ep, in->index, status);
        return;
    }
    memcpy(addr, bytes, (size_t)size);
    rdmux_target_leave(&ep->base);
}

/* Ends a request whose last part is stored. */
static void finish(struct framed_ep *ep, const struct framed_incoming *in)
{
    if (ep->is_refused) {
        return;
    }
    if (in->receive != NULL) {
        ep->counts.received++;
        rdmux_provider_received(&ep->base, in->receive, RDMUX_OK,
                                in->is_send ? RDMUX_WC_RECV : RDMUX_WC_RECV_WRITE_IMM, in->length,
                                (in->flags & FRAMED_IMM) ? RDMUX_WC_HAS_IMM : 0, in->imm);
    }
    ep->acks += (in->flags & FRAMED_PLACED) ? 1 : 0;
}

/* ---------------------------------------------------------------------------------------- bodies */

static struct framed_expected *newest_expected(struct framed_ep *ep)
{
    return &ep->expected[(ep->expected_first + ep->expected_count - 1) % FRAMED_EXPECTED];
}

/* Returns the number of pieces of memory of the program in which the body belongs; 0: the lane's
 * memory takes it. */
static size_t place_of(const struct framed_ep *ep, const struct framed_expected *body,
                       struct iovec *pieces)
{
    const struct rdmux_request *list = body->read;
    if (list == NULL && body->in.is_send && !ep->is_refused) {
        list = body->in.receive;
    }
    return list == NULL ? 0
                        : rdmux_framed_pieces(list, body->at, body->size, pieces, ep->body_pieces);
}

static bool ask_for(struct framed_ep *ep, struct framed_expected *body, const struct iovec *pieces,
                    size_t count)
{
    body->is_asked_for = true;
    return ep->lane->receive_body(ep, pieces, count, body->size) == RDMUX_OK;
}

/* Expects a body, for which there is room. */
static bool expect(struct framed_ep *ep, const struct framed_expected *body)
{
    struct iovec pieces[FRAMED_PIECES_MAX];
    ep->expected_count++;
    struct framed_expected *expected = newest_expected(ep);
    *expected = *body;
    const size_t count = place_of(ep, expected, pieces);
    expected->is_alone = count == 0 && expected->size > FRAMED_PART_MAX;
    return (expected->is_alone && ep->expected_count > 1) || ask_for(ep, expected, pieces, count);
}

/* Returns whether the next receive is known and holds so many bytes. Shared receives are not known
 * before they are taken. */
static bool fits_next_receive(struct framed_ep *ep, uint64_t length)
{
    struct rdmux_request *receive = NULL;
    return rdmux_provider_next_receives(&ep->base, &receive) > 0 && length <= receive->length;
}

/* Returns whether the frame, which announces a body, fails in no way that could overtake the bodies
 * before it. */
static bool may_go_ahead(struct framed_ep *ep, const struct framed_frame *frame)
{
    const struct rdmux_request *read = ep->unanswered.first;
    switch (frame->kind) {
    case FRAMED_MORE:
        return true;
    case FRAMED_DATA:
        return read != NULL && read->provider[FRAMED_DONE] < read->length;
    case FRAMED_WRITE:
        return !ep->in.is_open && !ep->is_refused && (frame->flags & FRAMED_IMM) == 0 &&
               access_check(ep, frame, RDMUX_ACCESS_REMOTE_WRITE) == RDMUX_OK;
    case FRAMED_SEND:
        return !ep->in.is_open && !ep->is_refused && rdmux_credits_outstanding(&ep->given) > 0 &&
               fits_next_receive(ep, frame->length);
    default:
        return false;
    }
}

/* Returns whether the frame has to wait until the bodies before it have arrived. */
static bool waits_for_bodies(struct framed_ep *ep, const struct framed_frame *frame)
{
    return ep->expected_count > 0 &&
           ((frame->flags & FRAMED_BODY) == 0 || ep->expected_count == FRAMED_EXPECTED ||
            newest_expected(ep)->is_alone || !may_go_ahead(ep, frame));
}

/* ------------------------------------------------------------------------------ sends and writes */

/* The next part of the request under way is here, or follows as a body. */
static bool part_came(struct framed_ep *ep, const struct framed_frame *frame, const uint8_t *payload)
{
    const struct framed_incoming in = ep->in;
    const bool is_last = in.length - in.at == frame->size;
    ep->in.at += frame->size;
    ep->in.is_open = !is_last;
    if ((frame->flags & FRAMED_BODY) != 0) {
        return expect(ep, &(struct framed_expected){
                              .in = in, .at = in.at, .size = frame->size, .is_last = is_last });
    }
    store(ep, &in, payload, frame->size);
    if (is_last) {
        finish(ep, &in);
    }
    return true;
}

static bool message_is_too_long(struct framed_ep *ep, struct rdmux_request *receive,
                                const struct framed_frame *frame)
{
    rdmux_provider_received(&ep->base, receive, RDMUX_LENGTH, RDMUX_WC_RECV, frame->length,
                            (frame->flags & FRAMED_IMM) ? RDMUX_WC_HAS_IMM : 0, frame->imm);
    rdmux_framed_refuse(ep, ep->requests_in - 1, RDMUX_LENGTH);
    (void)rdmux_framed_pump(ep);
    rdmux_framed_fail(ep, RDMUX_LENGTH, "a message of %llu bytes came for a receive of %llu bytes",
                      (unsigned long long)frame->length, (unsigned long long)receive->length);
    return false;
}

static bool carry_payload(struct framed_ep *ep, const struct framed_frame *frame,
                          const uint8_t *payload)
{
    const bool is_send = frame->kind == FRAMED_SEND;
    struct rdmux_request *receive = NULL;
    if (ep->in.is_open) {
        return peer_lies(ep, "the peer began a request within another");
    }
    uint64_t index = ep->requests_in++;
    if (!is_send && !ep->is_refused) {
        enum rdmux_status status = access_check(ep, frame, RDMUX_ACCESS_REMOTE_WRITE);
        if (status != RDMUX_OK) {
            rdmux_framed_refuse(ep, index, status);
        }
    }
    if (!ep->is_refused && (is_send || (frame->flags & FRAMED_IMM))) {
        if (rdmux_credits_outstanding(&ep->given) == 0) {
            return peer_lies(ep, "the peer sent a message without a credit");
        }
        receive = rdmux_provider_take_receive(&ep->base);
        if (receive == NULL) {
            return peer_lies(ep, "a message came for a receive that is gone");
        }
        rdmux_framed_credit_use(ep);
    }
    if (is_send && receive != NULL && frame->length > receive->length) {
        return message_is_too_long(ep, receive, frame);
    }
    struct framed_incoming *in = &ep->in;
    in->index = index;
    in->is_open = true;
    in->is_send = is_send;
    in->flags = frame->flags;
    in->imm = frame->imm;
    in->receive = receive;
    in->length = frame->length;
    in->at = 0;
    if (!is_send) {
        in->offset = frame->offset;
        memcpy(in->key, frame->key, sizeof(in->key));
    }
    return part_came(ep, frame, payload);
}

static bool carry_more(struct framed_ep *ep, const struct framed_frame *frame,
                       const uint8_t *payload)
{
    if (!ep->in.is_open || frame->size > ep->in.length - ep->in.at || frame->size == 0) {
        return peer_lies(ep, "the peer sent more of a request than it announced");
    }
    return part_came(ep, frame, payload);
}

/* ------------------------------------------------------------------------------ reads and atomics */

/* Carries out a read or an atomic, and queues its answer. */
static bool carry_question(struct framed_ep *ep, const struct framed_frame *frame)
{
    if (ep->in.is_open) {
        return peer_lies(ep, "the peer began a request within another");
    }
    uint64_t index = ep->requests_in++;
    if (ep->is_refused) {
        return true;
    }
    if (ep->answers_count >= FRAMED_ANSWERS) {
        return peer_lies(ep, "the peer has more reads and atomics under way than there may be");
    }
    enum rdmux_status status;
    uint64_t old = 0;
    if (frame->kind == FRAMED_READ) {
        status = access_check(ep, frame, RDMUX_ACCESS_REMOTE_READ);
    } else {
        uint32_t op = frame->kind == FRAMED_FETCH_ADD ? RDMUX_OP_FETCH_ADD : RDMUX_OP_COMPARE_SWAP;
        status = rdmux_target_atomic(&ep->base, frame->key, op, frame->offset, frame->operand,
                                     frame->expected, &old);
    }
    if (status == RDMUX_DENIED || status == RDMUX_OUT_OF_RANGE) {
        rdmux_framed_refuse(ep, index, status);
        return true;
    }
    if (status != RDMUX_OK) {
        return peer_lies(ep, "the peer asked for an atomic that is not aligned");
    }
    if (frame->kind == FRAMED_READ) {
        struct framed_answer *answer = rdmux_framed_answer(ep, FRAMED_DATA, index);
        memcpy(answer->key, frame->key, sizeof(answer->key));
        answer->offset = frame->offset;
        answer->length = frame->length;
    } else {
        ep->counts.executed++;
        rdmux_framed_answer(ep, FRAMED_RESULT, index)->offset = old;
    }
    return true;
}

/* The oldest unanswered request is done. */
static void answered(struct framed_ep *ep)
{
    rdmux_provider_done(&ep->base, rdmux_framed_queue_pop(&ep->unanswered), RDMUX_OK);
    rdmux_framed_came(ep, FRAMED_WAIT_ANSWER);
}

static bool carry_data(struct framed_ep *ep, const struct framed_frame *frame,
                       const uint8_t *payload)
{
    struct rdmux_request *read = ep->unanswered.first;
    if (read == NULL || read->op != RDMUX_OP_READ ||
        frame->size > read->length - read->provider[FRAMED_DONE] ||
        (frame->size == 0 && read->length != 0)) {
        return peer_lies(ep, "the peer answered a read that was not asked");
    }
    const uint64_t at = read->provider[FRAMED_DONE];
    const bool is_last = read->length - at == frame->size;
    read->provider[FRAMED_DONE] += frame->size;
    if ((frame->flags & FRAMED_BODY) != 0) {
        return expect(ep, &(struct framed_expected){
                              .read = read, .at = at, .size = frame->size, .is_last = is_last });
    }
    rdmux_software_scatter(read, at, payload, frame->size);
    if (is_last) {
        answered(ep);
    }
    return true;
}

static bool carry_result(struct framed_ep *ep, const struct framed_frame *frame)
{
    const struct rdmux_request *atomic = ep->unanswered.first;
    if (atomic == NULL || atomic->op == RDMUX_OP_READ) {
        return peer_lies(ep, "the peer answered an atomic that was not asked");
    }
    rdmux_software_scatter(atomic, 0, &frame->operand, sizeof(frame->operand));
    answered(ep);
    return true;
}

/* ---------------------------------------------------------------------------------------- words */

static bool carry_ack(struct framed_ep *ep, const struct framed_frame *frame)
{
    if (frame->length > ep->unplaced.count) {
        return peer_lies(ep, "the peer acknowledged more than was sent");
    }
    for (uint64_t i = 0; i < frame->length; i++) {
        rdmux_framed_settle(ep, rdmux_framed_queue_pop(&ep->unplaced));
    }
    return true;
}

static bool carry_refusal(struct framed_ep *ep, const struct framed_frame *frame)
{
    if ((frame->length != RDMUX_DENIED && frame->length != RDMUX_OUT_OF_RANGE &&
         frame->length != RDMUX_LENGTH) ||
        frame->operand >= ep->requests_out) {
        return peer_lies(ep, "the peer refused a request that was not sent");
    }
    enum rdmux_status status = (enum rdmux_status)frame->length;
    struct rdmux_request *request = rdmux_framed_take_refused(ep, frame->operand);
    if (request != NULL) {
        rdmux_provider_done(&ep->base, request, status);
    }
    const char *text = "the peer refused an access: its token was revoked or forged";
    if (status == RDMUX_OUT_OF_RANGE) {
        text = "the peer refused an access beyond its region";
    } else if (status == RDMUX_LENGTH) {
        text = "a message was longer than the peer's receive";
    }
    rdmux_framed_fail(ep, status, "%s", text);
    return false;
}

static bool carry_out(struct framed_ep *ep, const struct framed_frame *frame, const uint8_t *payload)
{
    switch ((enum framed_kind)frame->kind) {
    case FRAMED_SEND:
    case FRAMED_WRITE:
        return carry_payload(ep, frame, payload);
    case FRAMED_MORE:
        return carry_more(ep, frame, payload);
    case FRAMED_FLUSH:
        if (ep->in.is_open) {
            return peer_lies(ep, "the peer began a request within another");
        }
        ep->requests_in++;
        ep->acks += ep->is_refused ? 0 : 1;
        return true;
    case FRAMED_READ:
    case FRAMED_FETCH_ADD:
    case FRAMED_COMPARE_SWAP:
        return carry_question(ep, frame);
    case FRAMED_DATA:
        return carry_data(ep, frame, payload);
    case FRAMED_RESULT:
        return carry_result(ep, frame);
    case FRAMED_ACK:
        return carry_ack(ep, frame);
    case FRAMED_CREDIT:
    case FRAMED_PONG:
        return true;
    case FRAMED_ASK:
        rdmux_framed_credit_asked(ep);
        return true;
    case FRAMED_RECALL:
        ep->is_giving_back = true;
        return true;
    case FRAMED_RETURN:
        return rdmux_framed_credit_returned(ep, frame->length) ||
               peer_lies(ep, "the peer returned credits that it never had");
    case FRAMED_REFUSAL:
        return carry_refusal(ep, frame);
    case FRAMED_PING:
        ep->owes_pong = true;
        return true;
    case FRAMED_HELLO:
        ep->is_greeted = true;
        return true;
    case FRAMED_RING:
        ep->rings = true;
        ep->owes_rings = true;
        return true;
    case FRAMED_RINGS:
        rdmux_framed_bell_answered(ep);
        return true;
    case FRAMED_HUSH:
        ep->rings = false;
        return true;
    case FRAMED_KINDS:
        break;
    }
    return false;
}

/* ------------------------------------------------------------------------------------- messages */

/* Carries out the frame at `in`. Returns its size; 0: the endpoint has failed, or the frame has to
 * wait. */
static size_t take_frame(struct framed_ep *ep, const uint8_t *in, size_t size)
{
    struct framed_frame frame;
    const uint8_t *payload = NULL;
    size_t used = 0;
    if (rdmux_framed_frame_decode(in, size, &frame, &payload, &used) != RDMUX_OK) {
        (void)peer_lies(ep, "the peer sent a frame that does not exist");
        return 0;
    }
    if ((frame.flags & FRAMED_BODY) != 0 && ep->body_pieces == 0) {
        (void)peer_lies(ep, "the peer sent a body, which this side does not take");
        return 0;
    }
    if (waits_for_bodies(ep, &frame) || !carry_out(ep, &frame, payload)) {
        return 0;
    }
    if (frame.credits > 0) {
        if (!rdmux_credits_add(&ep->held, frame.credits)) {
            (void)peer_lies(ep, "the peer granted more credits than there can be");
            return 0;
        }
        ep->is_asked = false;
        rdmux_framed_came(ep, FRAMED_WAIT_CREDIT);
    }
    return used;
}

/* Counts a message of the peer, and the window that it returns. False: the endpoint has failed. */
static bool count_message(struct framed_ep *ep, const struct framed_prefix *prefix, size_t length)
{
    const bool is_counted = (prefix->flags & FRAMED_UNCOUNTED_FLAG) == 0;
    if (!is_counted && (prefix->sequence != 0 || length != FRAMED_PREFIX_SIZE)) {
        return peer_lies(ep, "the peer sent frames beyond its window");
    }
    if (is_counted && prefix->sequence != ep->sequence_in++) {
        return peer_lies(ep, "a message of the peer is missing, or came twice");
    }
    if (prefix->returned > ep->peer_window - ep->window_left) {
        return peer_lies(ep, "the peer returned more messages than were sent");
    }
    ep->returned += is_counted ? 1 : 0;
    ep->window_left += prefix->returned;
    return true;
}

/* Carries out the frames of the kept message, as far as they need not wait for bodies. Returns the
 * number of frames. */
static size_t carry_frames(struct framed_ep *ep)
{
    size_t did = 0;
    while (ep->kept_at < ep->kept_length) {
        size_t used = take_frame(ep, ep->kept + ep->kept_at, ep->kept_length - ep->kept_at);
        if (used == 0) {
            break;
        }
        ep->kept_at += used;
        did++;
    }
    /* Nothing may be received behind a body that the lane was not asked for yet. */
    const bool is_asked_for = ep->expected_count == 0 || newest_expected(ep)->is_asked_for;
    if (ep->state >= FRAMED_FAILED || (ep->kept_at == ep->kept_length && is_asked_for)) {
        ep->kept = NULL;
    }
    framed_attend(ep); /* answers, acknowledgments, credits, and requests that waited for window */
    return did;
}

size_t rdmux_framed_arrived(struct framed_ep *ep, const uint8_t *message, size_t length)
{
    struct framed_prefix prefix;
    size_t did = 1;
    ep->base.system_calls++;
    /* Over a connectionless lane the connector's greeting may come before ep_connect. */
    if (ep->state > FRAMED_CONNECTED) {
        return did;
    }
    /* Over a connectionless lane anybody may send; only the peer knows the tag. */
    enum rdmux_status status = rdmux_framed_prefix_decode(message, length, &prefix);
    if ((length >= FRAMED_PREFIX_SIZE && prefix.tag != ep->tag_in) || length < FRAMED_PREFIX_SIZE) {
        return did;
    }
    if (status != RDMUX_OK) {
        (void)peer_lies(ep, "the peer sent a message of another version");
        return did;
    }
    if (!count_message(ep, &prefix, length)) {
        return did;
    }
    ep->silent_pings = 0;
    ep->kept = message;
    ep->kept_length = length;
    ep->kept_at = FRAMED_PREFIX_SIZE;
    return did + carry_frames(ep);
}

size_t rdmux_framed_body_arrived(struct framed_ep *ep, const uint8_t *bytes, size_t length)
{
    size_t did = 1;
    ep->base.system_calls++;
    if (ep->state > FRAMED_CONNECTED || ep->expected_count == 0) {
        return did;
    }
    const struct framed_expected body = ep->expected[ep->expected_first];
    ep->expected_first = (ep->expected_first + 1) % FRAMED_EXPECTED;
    ep->expected_count--;
    if (length != body.size) {
        (void)peer_lies(ep, "the peer sent a body of another length than it announced");
        return did;
    }
    ep->silent_pings = 0;
    if (body.read != NULL) {
        if (bytes != NULL) {
            rdmux_software_scatter(body.read, body.at, bytes, length);
        }
        if (body.is_last) {
            answered(ep);
        }
    } else {
        if (bytes != NULL) {
            store(ep, &body.in, bytes, length);
        }
        if (body.is_last) {
            finish(ep, &body.in);
        }
    }
    struct framed_expected *next = &ep->expected[ep->expected_first];
    if (ep->expected_count > 0 && !next->is_asked_for && !ask_for(ep, next, NULL, 0)) {
        return did;
    }
    if (ep->kept != NULL) {
        return did + carry_frames(ep);
    }
    framed_attend(
        ep); /* the message before is done: nothing else sends this body's acknowledgment */
    return did;
}
