/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Receive side of a tcp endpoint: parses bytes into frames and carries the frames out. All input is
 * untrusted. A protocol violation ends the endpoint with RDMUX_PROTOCOL. */
#include "tcp_fallback/tcp_receive.h"

#include "api/base/list.h"
#include "api/base/pieces.h"
#include "api/system/system.h"
#include "providers/credits.h"
#include "tcp_fallback/tcp_completion.h"
#include "tcp_fallback/tcp_credit.h"
#include "tcp_fallback/tcp_endpoint.h"
#include "tcp_fallback/tcp_frame.h"
#include "tcp_fallback/tcp_hot.h"
#include "tcp_fallback/tcp_lane.h"
#include "tcp_fallback/tcp_pool.h"
#include "tcp_fallback/tcp_send.h"
#include "tcp_fallback/tcp_socket.h"
#include "tcp_fallback/tcp_state.h"
#include "tcp_fallback/tcp_stream.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum {
    READ_PIECES_MAX = RDMUX_SGE_MAX + 1, /* a scatter/gather list and the bytes read ahead */
    SHARE_READS = 16, /* most reads of one share in one turn: a peer may send it byte by byte */
};

/* ------------------------------------------------------------------------------------- failures */

static void peer_lies(struct tcp_ep *ep, const char *text)
{
    rdmux_tcp_fail(ep, RDMUX_PROTOCOL, text);
}

/* Returns whether the end of socket 0 has to wait until a message of the peer has a receive, and
 * nothing else of the peer is under way. The control channel reports the end at once. */
static bool end_has_to_wait(const struct tcp_lane *lane)
{
    const struct tcp_in *in = &lane->ep->in;
    return lane->index == 0 && in->early.bytes != NULL && in->early.is_whole && !in->is_paused &&
           in->request.destination == TCP_TO_NOTHING;
}

/* Returns whether the error says that the peer has closed the socket, or has gone: of a TLS session,
 * too. The others are a bad buffer of this side, a broken session, and a lack of memory. */
static bool is_the_peers_end(int error)
{
    return error != EFAULT && error != EBADMSG && error != ENOMEM;
}

static void socket_ended(struct tcp_lane *lane, int error)
{
    struct tcp_ep *ep = lane->ep;
    error = error == 0 ? ep->out.error : error;
    const char *reason = rdmux_tcp_stream_reason(lane);
    if (is_the_peers_end(error) && end_has_to_wait(lane)) {
        ep->in.is_end_waiting = true;
        rdmux_tcp_cool(ep);
        rdmux_tcp_unwatch(&ep->lane0);
        return;
    }
    if (reason[0] != '\0') {
        char text[RDMUX_TEXT_MAX];
        (void)snprintf(text, sizeof(text), "tcp: %.240s", reason);
        rdmux_tcp_fail(ep,
                       error == EBADMSG  ? RDMUX_PROTOCOL
                       : error == ENOMEM ? RDMUX_NO_MEMORY
                                         : RDMUX_PEER_GONE,
                       text);
        return;
    }
    if (error == EFAULT) { /* some bytes may be sent already: the stream cannot continue */
        rdmux_tcp_fail(ep, RDMUX_INVALID, rdmux_tcp_bad_buffer);
        return;
    }
    if (error == 0 || error == EPIPE) {
        rdmux_tcp_fail(ep, RDMUX_PEER_GONE, "tcp: the peer closed its data socket");
        return;
    }
    char text[RDMUX_TEXT_MAX];
    rdmux_tcp_error_text(text, sizeof(text), "tcp: the data socket failed", error);
    rdmux_tcp_fail(ep, RDMUX_PEER_GONE, text);
}

/* ------------------------------------------------------------------------------------- payloads */

/* Gets the destination of length bytes from byte `from` of the frame's payload: *count pieces, 0 =
 * the waste buffer. True: a region is entered, and the caller must leave it. */
static bool destination_open(struct tcp_ep *ep, uint64_t from, uint64_t length, struct iovec *iov,
                             int *count)
{
    struct tcp_incoming *request = &ep->in.request;
    *count = 0;
    if (ep->in.payload == TCP_PAYLOAD_ANSWER) {
        const struct rdmux_request *read = ep->unanswered.first;
        *count = (int)rdmux_pieces(read, read->provider[TCP_DONE] + from, length, iov);
        return false;
    }
    if (request->destination == TCP_TO_RECEIVE) {
        *count = (int)rdmux_pieces(request->receive, request->at + from, length, iov);
        return false;
    }
    if (request->destination == TCP_TO_EARLY) {
        iov[0] = (struct iovec){ ep->in.early.bytes + from, (size_t)length };
        *count = 1;
        return false;
    }
    if (request->destination != TCP_TO_REGION) {
        return false;
    }
    void *addr = NULL;
    enum rdmux_status status = rdmux_target_enter(&ep->base, request->key,
                                                  request->offset + request->at + from, length,
                                                  RDMUX_ACCESS_REMOTE_WRITE, &addr);
    if (status != RDMUX_OK) {
        rdmux_tcp_refuse(ep, ep->in.requests - 1, status);
        request->destination = TCP_TO_WASTE;
        return false;
    }
    iov[0] = (struct iovec){ addr, (size_t)length };
    *count = 1;
    return true;
}

/* Copies bytes of socket 0's share from a buffer to their destination. */
static inline __attribute__((always_inline)) void payload_copy(struct tcp_ep *ep,
                                                               const uint8_t *bytes, size_t length)
{
    struct iovec iov[READ_PIECES_MAX];
    int count = 0;
    bool entered = destination_open(ep, ep->lane0.in_at, length, iov, &count);
    for (int i = 0; i < count; i++) {
        memcpy(iov[i].iov_base, bytes, iov[i].iov_len);
        bytes += iov[i].iov_len;
    }
    if (entered) {
        rdmux_target_leave(&ep->base);
    }
    ep->lane0.in_at += length;
}

static void request_end(struct tcp_ep *ep)
{
    struct tcp_incoming *request = &ep->in.request;
    uint32_t wc_flags = (request->flags & TCP_IMM) ? RDMUX_WC_HAS_IMM : 0;
    uint8_t destination = request->destination;
    request->destination = TCP_TO_NOTHING;
    if (destination > TCP_TO_REGION) {
        if (destination == TCP_TO_EARLY) {
            ep->in.early.is_whole = true;
            rdmux_tcp_deliver_early(ep);
        }
        return;
    }
    if (request->receive != NULL) {
        ep->counts.received++;
        rdmux_provider_received(&ep->base, request->receive, RDMUX_OK,
                                request->kind == TCP_SEND ? RDMUX_WC_RECV : RDMUX_WC_RECV_WRITE_IMM,
                                request->length, wc_flags, request->imm);
    }
    if (request->flags & TCP_PLACED) {
        ep->out.acks++;
    }
}

/* Ends a frame whose payload has come completely. */
static void frame_end(struct tcp_ep *ep)
{
    enum tcp_payload payload = (enum tcp_payload)ep->in.payload;
    ep->in.payload = TCP_PAYLOAD_NONE;
    if (payload == TCP_PAYLOAD_REQUEST) {
        struct tcp_incoming *request = &ep->in.request;
        request->at += ep->in.frame_length;
        if (request->at == request->length) {
            request_end(ep);
        }
        return;
    }
    struct rdmux_request *read = ep->unanswered.first;
    read->provider[TCP_DONE] += ep->in.frame_length;
    if (read->provider[TCP_DONE] == read->length) {
        (void)rdmux_tcp_queue_pop(&ep->unanswered);
        rdmux_provider_done(&ep->base, read, RDMUX_OK);
        rdmux_tcp_came(ep, TCP_WAIT_ANSWER);
    }
}

/* Begins a frame's payload. False: protocol violation. */
static bool frame_begin(struct tcp_ep *ep, enum tcp_payload payload, uint64_t length, bool striped)
{
    struct tcp_in *in = &ep->in;
    if (striped && ep->lane_count == 1) {
        peer_lies(ep, "tcp: the peer spreads data over sockets that do not exist");
        return false;
    }
    in->is_bulk = length >= TCP_BULK_MIN;
    in->frame_length = length;
    in->payload = (uint8_t)payload;
    ep->lane0.in_at = 0;
    ep->lane0.in_end = length;
    if (striped) {
        for (uint32_t i = 0; i < ep->lane_count; i++) {
            struct tcp_lane *lane = rdmux_tcp_lane(ep, i);
            rdmux_tcp_share(length, ep->lane_count, i, &lane->in_at, &lane->in_end);
        }
    }
    if (length == 0) {
        frame_end(ep);
    }
    return true;
}

/* ------------------------------------------------------------------------------ several sockets */

bool rdmux_tcp_shares_missing(struct tcp_ep *ep)
{
    for (uint32_t i = 1; i < ep->lane_count; i++) {
        struct tcp_lane *lane = rdmux_tcp_lane(ep, i);
        if (lane->in_at < lane->in_end) {
            return true;
        }
    }
    return false;
}

/* Reads the bytes that have come of the other sockets' shares. Returns their number. */
static uint64_t shares_read(struct tcp_ep *ep)
{
    uint64_t moved = 0;
    for (uint32_t i = 1; i < ep->lane_count; i++) {
        struct tcp_lane *lane = rdmux_tcp_lane(ep, i);
        for (int reads = 0; reads < SHARE_READS && lane->in_at < lane->in_end; reads++) {
            struct iovec iov[READ_PIECES_MAX];
            int count = 0;
            uint64_t left = lane->in_end - lane->in_at;
            bool entered = destination_open(ep, lane->in_at, left, iov, &count);
            if (count == 0) {
                left = left < TCP_SCRATCH_SIZE ? left : TCP_SCRATCH_SIZE;
                iov[count++] = (struct iovec){ rdmux_tcp_cq_of(ep)->waste, (size_t)left };
            }
            ep->base.system_calls++;
            ssize_t got = lane->stream.receive_list(lane, iov, count);
            int error = got < 0 ? errno : 0;
            if (entered) {
                rdmux_target_leave(&ep->base);
            }
            if (got < 0 && (error == EAGAIN || error == EWOULDBLOCK || error == EINTR)) {
                break;
            }
            if (got <= 0) {
                socket_ended(lane, error);
                return moved;
            }
            lane->in_at += (uint64_t)got;
            moved += (uint64_t)got;
        }
    }
    return moved;
}

/* Stops reading socket 0 until all shares have come; unpause_endpoint() ends it. */
static void pause_endpoint(struct tcp_ep *ep)
{
    ep->in.is_paused = true;
    rdmux_tcp_attend(ep);
    if (!rdmux_node_is_listed(&ep->paused)) {
        rdmux_list_append(&rdmux_tcp_cq_of(ep)->paused, &ep->paused);
    }
}

/* Handles the end of socket 0's share. False: other shares are missing, and the bytes behind it
 * must not be parsed yet. */
static bool share_end(struct tcp_ep *ep)
{
    if (ep->lane_count > 1 && rdmux_tcp_shares_missing(ep)) {
        (void)shares_read(ep);
        if (ep->state != TCP_CONNECTED) {
            return false;
        }
        if (rdmux_tcp_shares_missing(ep)) {
            pause_endpoint(ep);
            return false;
        }
    }
    frame_end(ep);
    return true;
}

/* --------------------------------------------------------------------------------------- frames */

/* The functions carry_...() carry out a frame. False: the endpoint has failed. */

static bool range_wraps(const struct tcp_frame *frame)
{
    return frame->offset + frame->length < frame->offset;
}

/* Checks whether an access is allowed. */
static enum rdmux_status access_check(struct tcp_ep *ep, const struct tcp_frame *frame,
                                      uint32_t access)
{
    void *addr = NULL;
    if (range_wraps(frame)) {
        return RDMUX_OUT_OF_RANGE;
    }
    enum rdmux_status status = rdmux_target_enter(&ep->base, frame->key, frame->offset,
                                                  frame->length, access, &addr);
    if (status == RDMUX_OK) {
        rdmux_target_leave(&ep->base);
    }
    return status;
}

/* Begins a SEND that has no credit. False: the endpoint has failed. */
static bool carry_early(struct tcp_ep *ep, const struct tcp_frame *frame)
{
    struct tcp_early *early = &ep->in.early;
    if (!ep->takes_early || frame->kind != TCP_SEND || frame->length > TCP_EARLY_MAX ||
        (frame->flags & TCP_STRIPED) != 0 || early->bytes != NULL || ep->out.is_paying) {
        peer_lies(ep, "tcp: the peer sent a message without a credit");
        return false;
    }
    *early = (struct tcp_early){
        .bytes = rdmux_tcp_pool_get(&rdmux_tcp_cq_of(ep)->pool),
        .flags = frame->flags,
        .imm = frame->imm,
        .length = frame->length,
        .index = ep->in.requests++,
    };
    ep->in.request = (struct tcp_incoming){
        .destination = TCP_TO_EARLY,
        .kind = TCP_SEND,
        .flags = frame->flags,
        .length = frame->length,
    };
    return frame_begin(ep, TCP_PAYLOAD_REQUEST, frame->length, false) && ep->state == TCP_CONNECTED;
}

/* Takes the next receive for a message with a credit. False: the endpoint has failed. */
static bool receive_take(struct tcp_ep *ep, struct rdmux_request **out)
{
    *out = rdmux_provider_take_receive(&ep->base);
    if (*out == NULL) {
        peer_lies(ep, "tcp: a message came for a receive that is gone");
        return false;
    }
    (void)rdmux_tcp_credit_use(ep);
    return true;
}

/* Begins a SEND or WRITE. here: bytes behind the header that are in the buffer. */
static bool carry_payload(struct tcp_ep *ep, const struct tcp_frame *frame, size_t here)
{
    struct tcp_incoming *request = &ep->in.request;
    bool send = frame->kind == TCP_SEND;
    bool striped = frame->flags & TCP_STRIPED;
    uint8_t destination = send ? TCP_TO_RECEIVE : TCP_TO_REGION;
    struct rdmux_request *receive = NULL;
    if (request->destination != TCP_TO_NOTHING) {
        peer_lies(ep, "tcp: the peer began a request within another");
        return false;
    }
    uint64_t index = ep->in.requests;
    /* A plain write whose bytes are all here is checked when they are copied. */
    if (!send && !ep->in.is_refused &&
        (frame->length == 0 || frame->length > here || (frame->flags & TCP_IMM) ||
         range_wraps(frame))) {
        enum rdmux_status status = access_check(ep, frame, RDMUX_ACCESS_REMOTE_WRITE);
        if (status != RDMUX_OK) {
            rdmux_tcp_refuse(ep, index, status);
        }
    }
    if (ep->in.is_refused) {
        destination = TCP_TO_WASTE;
    } else if (send || (frame->flags & TCP_IMM)) {
        if (rdmux_credits_outstanding(&ep->given) == 0) {
            return carry_early(ep, frame);
        }
        if (!receive_take(ep, &receive)) {
            return false;
        }
    }
    ep->in.requests++;
    request->destination = destination;
    request->kind = frame->kind;
    request->flags = frame->flags;
    request->imm = frame->imm;
    request->receive = receive;
    request->length = frame->length;
    request->at = 0;
    if (!send) {
        request->offset = frame->offset;
        memcpy(request->key, frame->key, TCP_KEY_SIZE);
    }
    if (send && receive != NULL && frame->length > receive->length) {
        rdmux_tcp_message_too_long(ep, receive, index, frame);
        return false;
    }
    uint64_t payload = rdmux_tcp_frame_payload(frame->length, ep->lane_count, striped);
    return frame_begin(ep, TCP_PAYLOAD_REQUEST, payload, striped);
}

static bool carry_more(struct tcp_ep *ep, const struct tcp_frame *frame)
{
    const struct tcp_incoming *request = &ep->in.request;
    bool striped = frame->flags & TCP_STRIPED;
    if (request->destination == TCP_TO_NOTHING ||
        frame->length !=
            rdmux_tcp_frame_payload(request->length - request->at, ep->lane_count, striped)) {
        peer_lies(ep, "tcp: the peer sent more of a request than it announced");
        return false;
    }
    return frame_begin(ep, TCP_PAYLOAD_REQUEST, frame->length, striped);
}

/* Carries out a READ or an atomic, and queues its answer. */
static bool carry_question(struct tcp_ep *ep, const struct tcp_frame *frame)
{
    if (ep->in.request.destination != TCP_TO_NOTHING) {
        peer_lies(ep, "tcp: the peer began a request within another");
        return false;
    }
    uint64_t index = ep->in.requests++;
    if (ep->in.is_refused) {
        return true;
    }
    if (ep->out.answers_count >= TCP_ANSWERS) {
        peer_lies(ep, "tcp: the peer has more reads and atomics under way than was agreed");
        return false;
    }
    enum rdmux_status status;
    uint64_t old = 0;
    if (frame->kind == TCP_READ) {
        status = access_check(ep, frame, RDMUX_ACCESS_REMOTE_READ);
    } else {
        uint32_t op = frame->kind == TCP_FETCH_ADD ? RDMUX_OP_FETCH_ADD : RDMUX_OP_COMPARE_SWAP;
        status = rdmux_target_atomic(&ep->base, frame->key, op, frame->offset, frame->operand,
                                     frame->kind == TCP_COMPARE_SWAP ? frame->expected : 0, &old);
    }
    if (status == RDMUX_DENIED || status == RDMUX_OUT_OF_RANGE) {
        rdmux_tcp_refuse(ep, index, status);
        return true;
    }
    if (status != RDMUX_OK) {
        peer_lies(ep, "tcp: the peer asked for an atomic that is not aligned");
        return false;
    }
    if (frame->kind == TCP_READ) {
        struct tcp_answer *answer = rdmux_tcp_answer(ep, TCP_DATA, index);
        memcpy(answer->key, frame->key, TCP_KEY_SIZE);
        answer->offset = frame->offset;
        answer->length = frame->length;
    } else {
        ep->counts.executed++;
        rdmux_tcp_answer(ep, TCP_RESULT, index)->offset = old;
    }
    return true;
}

static bool carry_data(struct tcp_ep *ep, const struct tcp_frame *frame)
{
    const struct rdmux_request *read = ep->unanswered.first;
    bool striped = frame->flags & TCP_STRIPED;
    uint64_t most = striped ? (uint64_t)ep->lane_count * TCP_CHUNK_MAX : TCP_CHUNK_MAX;
    if (read == NULL || read->op != RDMUX_OP_READ || frame->length > most ||
        frame->length > read->length - read->provider[TCP_DONE] ||
        (frame->length == 0 && read->length != 0)) {
        peer_lies(ep, "tcp: the peer answered a read that was not asked");
        return false;
    }
    return frame_begin(ep, TCP_PAYLOAD_ANSWER, frame->length, striped);
}

static bool carry_result(struct tcp_ep *ep, const struct tcp_frame *frame)
{
    struct rdmux_request *atomic = ep->unanswered.first;
    if (atomic == NULL || atomic->op == RDMUX_OP_READ) {
        peer_lies(ep, "tcp: the peer answered an atomic that was not asked");
        return false;
    }
    rdmux_scatter(atomic->sges, atomic->sge_count, 0, &frame->operand, sizeof(frame->operand));
    (void)rdmux_tcp_queue_pop(&ep->unanswered);
    rdmux_provider_done(&ep->base, atomic, RDMUX_OK);
    rdmux_tcp_came(ep, TCP_WAIT_ANSWER);
    return true;
}

static bool carry_ack(struct tcp_ep *ep, const struct tcp_frame *frame)
{
    if (frame->length > ep->unplaced.count) {
        peer_lies(ep, "tcp: the peer acknowledged more than was sent");
        return false;
    }
    for (uint64_t i = 0; i < frame->length; i++) {
        rdmux_provider_done(&ep->base, rdmux_tcp_queue_pop(&ep->unplaced), RDMUX_OK);
    }
    return true;
}

static bool carry_nak(struct tcp_ep *ep, const struct tcp_frame *frame)
{
    enum rdmux_status status = (enum rdmux_status)frame->length;
    if ((frame->length != RDMUX_DENIED && frame->length != RDMUX_OUT_OF_RANGE &&
         frame->length != RDMUX_LENGTH) ||
        frame->operand >= ep->out.requests) {
        peer_lies(ep, "tcp: the peer refused a request that was not sent");
        return false;
    }
    struct rdmux_request *request = rdmux_tcp_take_refused(ep, frame->operand);
    if (request != NULL) {
        rdmux_provider_done(&ep->base, request, status);
    }
    const char *text = "tcp: the peer refused an access: its token was revoked or forged";
    if (status == RDMUX_OUT_OF_RANGE) {
        text = "tcp: the peer refused an access beyond its region";
    } else if (status == RDMUX_LENGTH) {
        text = "tcp: a message was longer than the peer's receive";
    }
    rdmux_tcp_fail(ep, status, text);
    return false;
}

/* Carries out any frame. here: bytes behind the header that are in the buffer. */
static bool carry_out_frame(struct tcp_ep *ep, const struct tcp_frame *frame, size_t here)
{
    switch ((enum tcp_kind)frame->kind) {
    case TCP_SEND:
    case TCP_WRITE:
        return carry_payload(ep, frame, here);
    case TCP_MORE:
        return carry_more(ep, frame);
    case TCP_FLUSH:
        if (ep->in.request.destination != TCP_TO_NOTHING) {
            peer_lies(ep, "tcp: the peer began a request within another");
            return false;
        }
        ep->in.requests++;
        ep->out.acks += ep->in.is_refused ? 0 : 1;
        return true;
    case TCP_READ:
    case TCP_FETCH_ADD:
    case TCP_COMPARE_SWAP:
        return carry_question(ep, frame);
    case TCP_DATA:
        return carry_data(ep, frame);
    case TCP_RESULT:
        return carry_result(ep, frame);
    case TCP_ACK:
        return carry_ack(ep, frame);
    case TCP_CREDIT:
    case TCP_PING:
        return true;
    case TCP_ASK:
        rdmux_tcp_credit_asked(ep);
        return true;
    case TCP_RECALL:
        ep->out.is_giving_back = true;
        return true;
    case TCP_RETURN:
        if (!rdmux_tcp_credit_returned(ep, frame->length)) {
            peer_lies(ep, "tcp: the peer returned credits that it never had");
            return false;
        }
        return true;
    case TCP_NAK:
        return carry_nak(ep, frame);
    }
    return false;
}

/* -------------------------------------------------------------------------------------- parsing */

/* Carries out the frame at `in`, of which size bytes are there. Returns the size of its header, or
 * 0 if the header is not whole or the endpoint has failed. */
static size_t parse_frame(struct tcp_ep *ep, const uint8_t *in, size_t size)
{
    struct tcp_frame frame;
    size_t used = 0;
    enum rdmux_status status = rdmux_tcp_frame_decode(in, size, &frame, &used);
    if (status == RDMUX_AGAIN) {
        return 0;
    }
    if (status != RDMUX_OK) {
        peer_lies(ep, "tcp: the peer sent a frame that does not exist");
        return 0;
    }
    if (!carry_out_frame(ep, &frame, size - used)) {
        return 0;
    }
    uint64_t credits = frame.credits + (frame.kind == TCP_CREDIT ? frame.length : 0);
    if (credits > 0) {
        if (ep->out.is_in_debt) {
            rdmux_tcp_settle(ep);
            credits--;
        }
        if (!rdmux_credits_add(&ep->held, credits)) {
            peer_lies(ep, "tcp: the peer granted more credits than there can be");
            return 0;
        }
        ep->is_asked = false;
        rdmux_tcp_came(ep, TCP_WAIT_CREDIT);
    }
    return used;
}

/* The same for a frame of the control channel. Returns the size of the whole frame,
 * or 0 as above. */
static size_t parse_control(struct tcp_ep *ep, const uint8_t *in, size_t size)
{
    size_t frame_size = 0;
    if (!ep->is_shared) {
        peer_lies(ep, "tcp: the peer sent a control frame on a data socket");
        return 0;
    }
    enum rdmux_status status = rdmux_tcp_control_size(in, size, &frame_size);
    if (status == RDMUX_AGAIN) {
        return 0;
    }
    if (status != RDMUX_OK) {
        peer_lies(ep, "tcp: the peer sent a control frame that is too long");
        return 0;
    }
    if (size < frame_size) {
        ep->in.stash_need = (uint32_t)frame_size;
        return 0;
    }
    rdmux_provider_control_received(&ep->base, in, frame_size);
    return frame_size;
}

/* Parses size bytes and returns how many were used. Adds the number of frames to *did. */
static size_t parse(struct tcp_ep *ep, const uint8_t *bytes, size_t size, size_t *did)
{
    size_t at = 0;
    while (at < size && ep->state == TCP_CONNECTED && !ep->in.is_paused) {
        if (ep->in.payload != TCP_PAYLOAD_NONE) {
            uint64_t left = ep->lane0.in_end - ep->lane0.in_at;
            size_t here = left < size - at ? (size_t)left : size - at;
            payload_copy(ep, bytes + at, here);
            at += here;
            if (here == left) {
                (void)share_end(ep);
            }
            continue;
        }
        size_t used = bytes[at] < TCP_MARK ? parse_control(ep, bytes + at, size - at)
                                           : parse_frame(ep, bytes + at, size - at);
        if (used == 0) {
            break;
        }
        at += used;
        (*did)++;
        if (ep->in.payload != TCP_PAYLOAD_NONE && ep->lane0.in_at == ep->lane0.in_end) {
            (void)share_end(ep); /* all of the payload is on the other sockets */
        }
    }
    return at;
}

/* Keeps the bytes that parse() left: a partial header in in->head, other bytes in the stash. */
static void keep_bytes(struct tcp_ep *ep, const uint8_t *bytes, size_t size)
{
    struct tcp_in *in = &ep->in;
    if (size == 0 || ep->state != TCP_CONNECTED) {
        return;
    }
    if (!in->is_paused && in->stash_need == 0) {
        memcpy(in->head, bytes, size);
        in->held = (uint8_t)size;
        return;
    }
    if (in->stash == NULL) {
        in->stash = rdmux_tcp_pool_get(&rdmux_tcp_cq_of(ep)->pool);
    }
    memmove(in->stash, bytes, size);
    in->stash_at = 0;
    in->stash_end = (uint32_t)size;
}

static void stash_release(struct tcp_ep *ep)
{
    rdmux_tcp_pool_put(&rdmux_tcp_cq_of(ep)->pool, ep->in.stash);
    ep->in.stash = NULL;
    ep->in.stash_at = 0;
    ep->in.stash_end = 0;
    ep->in.stash_need = 0;
}

/* Parses the stash. Unused bytes stay in it, or a partial header moves to in->head. */
static size_t stash_parse(struct tcp_ep *ep)
{
    struct tcp_in *in = &ep->in;
    size_t did = 0;
    size_t size = in->stash_end - in->stash_at;
    const uint8_t *bytes = in->stash + in->stash_at;
    in->stash_need = 0;
    size_t used = parse(ep, bytes, size, &did);
    size_t left = size - used;
    if (ep->state != TCP_CONNECTED) {
        return did + 1; /* rdmux_tcp_in_finish() gives the buffer back */
    }
    if (left > 0 && (in->is_paused || in->stash_need > 0)) {
        memmove(in->stash, bytes + used, left);
        in->stash_at = 0;
        in->stash_end = (uint32_t)left;
        return did;
    }
    if (left > 0) {
        memcpy(in->head, bytes + used, left);
        in->held = (uint8_t)left;
    }
    stash_release(ep);
    return did;
}

/* -------------------------------------------------------------------------------------- reading */

/* Reads with one system call and parses. Returns the bytes read; 0: none there, or the socket
 * ended. *more: there may be more bytes. */
static size_t read_once(struct tcp_ep *ep, size_t *did, bool *more)
{
    struct tcp_in *in = &ep->in;
    struct tcp_lane *lane = &ep->lane0;
    uint8_t *scratch = rdmux_tcp_cq_of(ep)->scratch;
    struct iovec iov[READ_PIECES_MAX];
    int count = 0;
    bool entered = false;
    size_t held = in->held;
    uint64_t direct = 0;
    uint64_t left = in->payload != TCP_PAYLOAD_NONE ? lane->in_end - lane->in_at : 0;
    size_t room = in->is_bulk ? TCP_AHEAD : TCP_SCRATCH_SIZE;
    uint8_t *to = scratch;
    if (in->stash_need > 0) {
        to = in->stash + in->stash_end;
        room = in->stash_need - in->stash_end;
        held = 0;
    } else if (left >= TCP_DIRECT_MIN) {
        direct = left;
        entered = destination_open(ep, lane->in_at, direct, iov, &count);
        if (count == 0) { /* to waste */
            direct = direct < TCP_SCRATCH_SIZE ? direct : TCP_SCRATCH_SIZE;
            iov[count++] = (struct iovec){ scratch, (size_t)direct };
            room = 0;
        }
    } else if (in->is_bulk) {
        room += (size_t)left;
    }
    size_t asked = (size_t)direct + room;
    ssize_t got;
    ep->base.system_calls++;
    if (direct == 0) {
        if (held > 0) {
            memcpy(scratch, in->head, held);
        }
        got = lane->stream.receive(lane, to + held, room);
    } else {
        if (room > 0) {
            iov[count++] = (struct iovec){ scratch, room };
        }
        got = lane->stream.receive_list(lane, iov, count);
    }
    int error = got < 0 ? errno : 0;
    if (entered) {
        rdmux_target_leave(&ep->base);
    }
    if (got <= 0) {
        if (got == 0 || (error != EAGAIN && error != EWOULDBLOCK && error != EINTR)) {
            socket_ended(lane, error);
            *did += 1;
        }
        *more = error == EINTR;
        return 0;
    }
    *more = (size_t)got == asked;
    *did += 1;
    if (in->stash_need > 0) {
        in->stash_end += (uint32_t)got;
        if (in->stash_end == in->stash_need) {
            *did += stash_parse(ep);
        }
        return (size_t)got;
    }
    size_t here = (size_t)got;
    if (direct > 0) {
        uint64_t placed = (uint64_t)got < direct ? (uint64_t)got : direct;
        lane->in_at += placed;
        here -= (size_t)placed;
        if (lane->in_at == lane->in_end) {
            (void)share_end(ep);
        }
    } else {
        here += held;
        in->held = 0;
    }
    size_t used = parse(ep, scratch, here, did);
    keep_bytes(ep, scratch + used, here - used);
    return (size_t)got;
}

/* Ends a pause, once all shares have come. */
static void unpause_endpoint(struct tcp_ep *ep)
{
    ep->in.is_paused = false;
    rdmux_node_remove(&ep->paused);
    /* Undoes arm_paused(). If arm was not called, these are no system calls. */
    (void)rdmux_tcp_watch(&ep->lane0, ep->lane0.events | RDMUX_READY_IN | RDMUX_READY_END);
    for (uint32_t i = 1; i < ep->lane_count; i++) {
        struct tcp_lane *lane = rdmux_tcp_lane(ep, i);
        (void)rdmux_tcp_watch(lane, lane->events & ~(uint32_t)RDMUX_READY_IN);
    }
}

size_t rdmux_tcp_resume(struct tcp_ep *ep)
{
    size_t did = 0;
    if (ep->in.is_paused && ep->in.payload != TCP_PAYLOAD_NONE) {
        did += shares_read(ep) > 0;
        if (ep->state != TCP_CONNECTED) {
            return did + 1;
        }
        if (rdmux_tcp_shares_missing(ep)) {
            rdmux_tcp_attend(ep);
            return did;
        }
        unpause_endpoint(ep);
        frame_end(ep);
        did++;
    }
    if (ep->in.stash != NULL && ep->in.stash_need == 0) {
        did += stash_parse(ep);
    }
    return did;
}

size_t rdmux_tcp_read(struct tcp_ep *ep, size_t budget)
{
    size_t did = 0;
    uint64_t moved = 0;
    bool more = true;
    if (ep->in.is_paused) {
        did += rdmux_tcp_resume(ep);
    }
    while (more && ep->state == TCP_CONNECTED && !ep->in.is_paused) {
        size_t got = read_once(ep, &did, &more);
        moved += got;
        if (ep->lane_count > 1 && ep->in.payload != TCP_PAYLOAD_NONE &&
            ep->state == TCP_CONNECTED && !ep->in.is_paused) {
            moved += shares_read(ep); /* else the other sockets fill up meanwhile */
        }
        if (did >= budget || moved >= TCP_VISIT) {
            break;
        }
    }
    if (did > 0 && rdmux_tcp_owes(ep)) {
        rdmux_tcp_pump(ep);
    }
    return did;
}

void rdmux_tcp_in_finish(struct tcp_ep *ep)
{
    if (ep->in.stash != NULL) {
        stash_release(ep);
    }
    if (ep->in.early.bytes != NULL) {
        rdmux_tcp_pool_put(&rdmux_tcp_cq_of(ep)->pool, ep->in.early.bytes);
        ep->in.early.bytes = NULL;
    }
    ep->in.held = 0;
    ep->in.is_paused = false;
    ep->in.payload = TCP_PAYLOAD_NONE;
    ep->in.request.destination = TCP_TO_NOTHING;
}
