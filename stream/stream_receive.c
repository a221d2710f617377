/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* From the peer's messages to the program's bytes. Everything a message says is checked here. */
#include "stream/stream_receive.h"

#include "api/base/error.h"
#include "api/core/remote.h"
#include "api/data/receive.h"
#include "api/object/mr_export.h"
#include "api/object/remote.h"
#include "stream/stream_send.h"

#include <string.h>

enum { SKIP_MAX = 63 }; /* most large reads in a row that offer no direct receive */

static enum rdmux_status post_receive(struct rdmux_stream *stream, struct rdmux_sge piece,
                                      void *context)
{
    const struct rdmux_wr wr = {
        .op = RDMUX_OP_RECV, .context = context, .sges = &piece, .sge_count = 1
    };
    enum rdmux_status status = rdmux_ep_post_receive(stream->ep, &wr);
    stream->in.posted += status == RDMUX_OK;
    return status;
}

static enum rdmux_status post_slot(struct rdmux_stream *stream, uint8_t *slot)
{
    const struct rdmux_sge piece = { slot, RDMUX_STREAM_SLOT_SIZE, stream->local_mr };
    return post_receive(stream, piece, slot);
}

enum rdmux_status rdmux_stream_post_slots(struct rdmux_stream *stream)
{
    enum rdmux_status status = RDMUX_OK;
    for (size_t i = 0; i < RDMUX_STREAM_SLOTS && status == RDMUX_OK; i++) {
        status = post_slot(stream, stream->slots + i * RDMUX_STREAM_SLOT_SIZE);
    }
    return status;
}

/* ------------------------------------------------------------------------------------- the ring */

uint64_t rdmux_stream_copy_out(struct rdmux_stream *stream, uint8_t *to, uint64_t length)
{
    struct rdmux_stream_in *in = &stream->in;
    const uint64_t unread = rdmux_stream_unread(stream);
    const uint64_t at = in->consumed & (stream->ring_size - 1);
    const uint64_t to_end = stream->ring_size - at;
    length = unread < length ? unread : length;
    const uint64_t first = length < to_end ? length : to_end;
    memcpy(to, stream->ring + at, (size_t)first);
    if (first < length) {
        memcpy(to + first, stream->ring, (size_t)(length - first));
    }
    in->consumed += length;
    return length;
}

/* Offers the peer the part of the lent read that lies behind the ring's bytes, if it is large. */
static void offer_direct(struct rdmux_stream *stream)
{
    struct rdmux_stream_in *in = &stream->in;
    const struct rdmux_ring *sends = &stream->ep->send;
    const struct rdmux_ring *receives = &stream->ep->recv;
    const uint64_t rest = in->read.total - in->filled;
    if (!rdmux_stream_is_large(stream, rest)) {
        return;
    }
    if (in->skip != 0 || in->direct.is_posted || in->has_fin || !in->is_greeted ||
        !stream->out.has_greeted || stream->is_broken || stream->ep->phase != RDMUX_PHASE_READY ||
        sends->head - sends->tail >= sends->depth ||
        receives->head - receives->tail >= receives->depth) {
        return;
    }
    struct rdmux_sge piece;
    const uint64_t offset = in->filled + stream->ring_size;
    if (rdmux_stream_locate(in->read.pieces, offset, &piece) < rdmux_stream_direct_min(stream)) {
        return;
    }
    if (piece.length > stream->ep->limits.max_recv) {
        piece.length = stream->ep->limits.max_recv;
    }
    const struct rdmux_stream_advert advert = { .index = in->posted, .length = piece.length };
    if (post_receive(stream, piece, &in->direct) != RDMUX_OK) {
        return;
    }
    in->direct = (struct rdmux_stream_direct){
        .is_posted = true,
        .at = in->consumed + stream->ring_size,
        .offset = offset,
        .addr = piece.addr,
        .length = piece.length,
    };
    uint8_t bytes[RDMUX_STREAM_ADVERT_SIZE];
    rdmux_stream_advert_encode(&advert, bytes);
    struct rdmux_sge body = { bytes, sizeof(bytes), NULL };
    struct rdmux_wr wr = {
        .op = RDMUX_OP_SEND_IMM,
        .flags = RDMUX_UNSIGNALED | RDMUX_INLINE,
        .sges = &body,
        .sge_count = 1,
    };
    enum rdmux_status status = rdmux_stream_post(stream, &wr, RDMUX_STREAM_ADVERT);
    if (status != RDMUX_OK && stream->ep->phase == RDMUX_PHASE_READY) {
        rdmux_stream_break(stream, status, "a direct receive cannot be offered");
    }
}

void rdmux_stream_fill(struct rdmux_stream *stream)
{
    struct rdmux_stream_in *in = &stream->in;
    if (in->is_discarding) {
        in->consumed = in->arrived;
    }
    if (!in->read.is_lent) {
        return;
    }
    offer_direct(stream); /* before the copies, which the peer need not wait for */
    while (in->arrived != in->consumed && in->filled < in->read.total) {
        struct rdmux_sge piece;
        const uint64_t room = rdmux_stream_locate(in->read.pieces, in->filled, &piece);
        in->filled += rdmux_stream_copy_out(stream, piece.addr, room);
    }
}

/* ---------------------------------------------------------------------------------- the messages */

static void take_stream_hello(struct rdmux_stream *stream, const struct rdmux_wc *wc)
{
    struct rdmux_stream_out *out = &stream->out;
    struct rdmux_stream_hello hello;
    const bool is_plain = wc->opcode == RDMUX_WC_RECV && (wc->flags & RDMUX_WC_HAS_IMM) == 0;
    enum rdmux_status status = rdmux_stream_hello_decode(wc->context,
                                                         is_plain ? (size_t)wc->length : 0, &hello);
    if (status == RDMUX_OK && !rdmux_token_is_valid(&hello.token)) {
        status = rdmux_fail(RDMUX_PROTOCOL, "the peer's greeting has no token");
    }
    if (status == RDMUX_OK && stream->ep->phase <= RDMUX_PHASE_READY) {
        status = rdmux_remote_begin(stream->ep, &hello.token, true, &out->remote);
    } /* else the peer's end overtook its bytes, and nothing is to be written any more */
    if (status != RDMUX_OK) {
        char text[RDMUX_TEXT_MAX];
        strncpy(text, rdmux_last_error(), sizeof(text) - 1);
        text[sizeof(text) - 1] = '\0';
        rdmux_stream_break(stream, status, text);
        return;
    }
    stream->in.is_greeted = true;
    out->slots = hello.slots;
    out->ring = hello.ring;
    out->window = hello.ring < stream->ring_size ? hello.ring : stream->ring_size;
    const uint64_t peers = hello.window < stream->ring_size ? hello.window : stream->ring_size;
    stream->in.tell_at = peers / 4;
}

void rdmux_stream_imported(struct rdmux_stream *stream, enum rdmux_status status)
{
    struct rdmux_stream_out *out = &stream->out;
    if (status == RDMUX_OK && out->remote->length >= out->ring &&
        (out->remote->access & RDMUX_ACCESS_REMOTE_WRITE) != 0) {
        out->is_known = true;
    } else if (stream->ep->phase == RDMUX_PHASE_READY) {
        rdmux_stream_break(stream, status == RDMUX_OK ? RDMUX_PROTOCOL : status,
                           "the peer's ring cannot be written: its token is refused, too short, or "
                           "without the right");
    }
}

static const char *take_data(struct rdmux_stream *stream, const struct rdmux_wc *wc)
{
    struct rdmux_stream_in *in = &stream->in;
    if (wc->opcode != RDMUX_WC_RECV_WRITE_IMM || in->has_fin) {
        return "the peer announces bytes of the ring without a write, or behind its end";
    }
    if (wc->length > stream->ring_size - rdmux_stream_unread(stream)) {
        return "the peer wrote beyond the room in the ring";
    }
    if (in->direct.is_posted && wc->length > in->direct.at - in->arrived) {
        return "the peer wrote into the ring what belongs into the direct receive";
    }
    in->arrived += wc->length;
    return NULL;
}

static const char *take_advert(struct rdmux_stream *stream, const uint8_t *bytes, uint64_t length)
{
    struct rdmux_stream_out *out = &stream->out;
    struct rdmux_stream_advert advert = { 0 };
    if (rdmux_stream_advert_decode(bytes, (size_t)length, &advert) != RDMUX_OK ||
        out->offer.is_open) {
        return "the peer offers a second direct receive, or none";
    }
    if (advert.index < out->sent) {
        return NULL; /* a message under way uses it up */
    }
    if (advert.index - out->sent > out->slots) {
        return "the peer offers a direct receive that is too far away";
    }
    out->offer = (struct rdmux_stream_offer){
        .is_open = true,
        .at = out->told + out->ring,
        .index = advert.index,
        .length = advert.length,
    };
    return NULL;
}

static const char *take_bulk(struct rdmux_stream *stream, const struct rdmux_wc *wc, bool is_direct)
{
    struct rdmux_stream_in *in = &stream->in;
    if (!is_direct || in->has_fin || in->arrived != in->direct.at) {
        return "the peer sent direct bytes where none belong";
    }
    rdmux_stream_fill(stream);
    if (in->consumed != in->direct.at || in->filled != in->direct.offset) {
        return "the peer sent direct bytes where none belong";
    }
    in->filled += wc->length;
    in->direct_bytes += wc->length;
    in->skip_next = 0;
    return NULL;
}

static const char *take_fin(struct rdmux_stream *stream)
{
    if (stream->in.has_fin) {
        return "the peer ended twice";
    }
    stream->in.has_fin = true;
    return NULL;
}

/* Returns what the message breaks, or NULL. */
static const char *take_message(struct rdmux_stream *stream, const struct rdmux_wc *wc,
                                bool is_direct)
{
    struct rdmux_stream_out *out = &stream->out;
    const uint64_t freed = rdmux_stream_imm_freed(wc->imm);
    const uint8_t *bytes = is_direct ? stream->in.direct.addr : wc->context;
    if ((wc->flags & RDMUX_WC_HAS_IMM) == 0) {
        return "the peer sent a message without a kind";
    }
    if (freed > out->written - out->told) {
        return "the peer freed more bytes than its ring had";
    }
    out->told += freed;
    const uint32_t kind = rdmux_stream_imm_kind(wc->imm);
    if (kind != RDMUX_STREAM_DATA && wc->opcode != RDMUX_WC_RECV) {
        return "the peer wrote into the ring without a notice of data";
    }
    switch (kind) {
    case RDMUX_STREAM_DATA:
        return take_data(stream, wc);
    case RDMUX_STREAM_ADVERT:
        return take_advert(stream, bytes, wc->length);
    case RDMUX_STREAM_BULK:
        return take_bulk(stream, wc, is_direct);
    case RDMUX_STREAM_FIN:
        return take_fin(stream);
    case RDMUX_STREAM_CREDIT:
    case RDMUX_STREAM_PAD:
        return NULL;
    default:
        return "the peer sent a message of unknown kind";
    }
}

/* The peer has used the direct receive up without bytes, mostly as it does not lend its own. An offer
 * costs both sides some messages, so the next ones become rarer. */
static void declined(struct rdmux_stream_in *in)
{
    in->skip_next = in->skip_next < SKIP_MAX / 2 ? 2 * in->skip_next + 1 : SKIP_MAX;
    in->skip = in->skip_next;
}

void rdmux_stream_received(struct rdmux_stream *stream, const struct rdmux_wc *wc)
{
    struct rdmux_stream_in *in = &stream->in;
    const bool is_direct = wc->context == &in->direct;
    if (RDMUX_UNLIKELY(wc->status != RDMUX_OK || stream->is_broken)) {
        in->direct.is_posted = in->direct.is_posted && !is_direct;
        return;
    }
    if (RDMUX_UNLIKELY(!in->is_greeted)) {
        take_stream_hello(stream, wc);
    } else {
        const char *broken = take_message(stream, wc, is_direct);
        if (RDMUX_UNLIKELY(broken != NULL)) {
            rdmux_stream_break(stream, RDMUX_PROTOCOL, broken);
        }
    }
    if (is_direct) {
        in->direct.is_posted = false;
        if (rdmux_stream_imm_kind(wc->imm) != RDMUX_STREAM_BULK) {
            declined(in);
        }
    } else {
        (void)post_slot(stream, wc->context); /* a failure is the endpoint's end */
    }
}
