/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* From the program's bytes to the peer's ring, or to its direct receive. */
#include "stream/stream_send.h"

#include "api/base/error.h"
#include "api/data/post.h"
#include "api/session/shutdown.h"

#include <string.h>

enum { INLINE_MAX = 1024 }; /* at most so many bytes are granted for RDMUX_INLINE */

enum rdmux_status rdmux_stream_post(struct rdmux_stream *stream, struct rdmux_wr *wr,
                                    enum rdmux_stream_kind kind)
{
    struct rdmux_stream_out *out = &stream->out;
    const uint64_t freed = stream->in.consumed - stream->in.told;
    wr->imm = rdmux_stream_imm(kind, freed);
    enum rdmux_status status = rdmux_ep_post(stream->ep, wr);
    if (status != RDMUX_OK) {
        return status;
    }
    stream->in.told += freed;
    if (RDMUX_UNLIKELY(out->offer.is_open && out->sent == out->offer.index)) {
        out->offer.is_open = false; /* the message uses the direct receive up */
    }
    out->sent++;
    return RDMUX_OK;
}

static enum rdmux_status post_empty(struct rdmux_stream *stream, enum rdmux_stream_kind kind,
                                    uint32_t flags)
{
    struct rdmux_wr wr = { .op = RDMUX_OP_SEND_IMM, .flags = RDMUX_UNSIGNALED | flags };
    return rdmux_stream_post(stream, &wr, kind);
}

/* Uses the peer's receives up to, and without, this one. */
static enum rdmux_status pad_until(struct rdmux_stream *stream, uint64_t index)
{
    enum rdmux_status status = RDMUX_OK;
    while (status == RDMUX_OK && stream->out.sent < index) {
        status = post_empty(stream, RDMUX_STREAM_PAD, RDMUX_MORE);
    }
    return status;
}

/* ---------------------------------------------------------------------------------- the program's bytes */

static enum rdmux_status send_bulk(struct rdmux_stream *stream, const struct rdmux_sge *pieces,
                                   uint64_t *taken)
{
    struct rdmux_stream_out *out = &stream->out;
    struct rdmux_sge piece;
    uint64_t length = rdmux_stream_locate(pieces, *taken, &piece);
    if (length > out->offer.length) {
        length = out->offer.length;
    }
    if (length > stream->ep->limits.max_send) {
        length = stream->ep->limits.max_send;
    }
    enum rdmux_status status = pad_until(stream, out->offer.index);
    if (status != RDMUX_OK) {
        return status;
    }
    piece.length = length;
    struct rdmux_wr wr = {
        .op = RDMUX_OP_SEND_IMM, .context = &out->write, .sges = &piece, .sge_count = 1
    };
    status = rdmux_stream_post(stream, &wr, RDMUX_STREAM_BULK);
    if (status == RDMUX_OK) {
        out->pending++;
        out->direct_bytes += length;
        *taken += length;
    }
    return status;
}

static void gather(const struct rdmux_sge *pieces, uint64_t offset, uint8_t *to, uint64_t length)
{
    while (length > 0) {
        struct rdmux_sge piece;
        uint64_t here = rdmux_stream_locate(pieces, offset, &piece);
        here = here < length ? here : length;
        memcpy(to, piece.addr, (size_t)here);
        offset += here;
        to += here;
        length -= here;
    }
}

/* Returns how many bytes one write can carry: adjacent in the peer's ring and in the staging area. A
 * quarter of the window at most, so that the peer reads while this side writes. */
static uint64_t chunk_length(const struct rdmux_stream *stream, uint64_t rest)
{
    const struct rdmux_stream_out *out = &stream->out;
    const uint64_t limits[] = {
        rdmux_stream_room(stream),
        out->window / 4,
        out->ring - (out->written & (out->ring - 1)),
        stream->ring_size - (out->written & (stream->ring_size - 1)),
    };
    for (size_t i = 0; i < RDMUX_COUNT_OF(limits); i++) {
        rest = limits[i] < rest ? limits[i] : rest;
    }
    return rest;
}

static enum rdmux_status write_ring(struct rdmux_stream *stream, const struct rdmux_sge *pieces,
                                    uint64_t rest, bool lent, uint64_t *taken)
{
    struct rdmux_stream_out *out = &stream->out;
    struct rdmux_ep *ep = stream->ep;
    uint8_t copy[INLINE_MAX];
    struct rdmux_sge piece;
    uint64_t length = chunk_length(stream, rest);
    if (length == 0) {
        return RDMUX_AGAIN;
    }
    const uint64_t in_piece = rdmux_stream_locate(pieces, *taken, &piece);
    struct rdmux_wr wr = {
        .op = RDMUX_OP_WRITE_IMM,
        .flags = RDMUX_UNSIGNALED,
        .sges = &piece,
        .sge_count = 1,
        .remote = out->remote,
        .offset = out->written & (out->ring - 1),
    };
    if (length <= ep->limits.max_inline && length <= INLINE_MAX) {
        if (in_piece < length) {
            gather(pieces, *taken, copy, length);
            piece.addr = copy;
        }
        piece.mr = NULL;
        wr.flags |= RDMUX_INLINE;
    } else if (lent && ep->bounce == NULL) {
        length = in_piece < length ? in_piece : length;
        wr.flags = 0;
        wr.context = &out->write;
    } else {
        uint8_t *at = stream->staging + (out->written & (stream->ring_size - 1));
        gather(pieces, *taken, at, length);
        piece.addr = at;
        piece.mr = stream->local_mr;
    }
    piece.length = length;
    enum rdmux_status status = rdmux_stream_post(stream, &wr, RDMUX_STREAM_DATA);
    if (status == RDMUX_OK) {
        out->pending += (wr.flags & RDMUX_UNSIGNALED) == 0;
        out->written += length;
        *taken += length;
    }
    return status;
}

enum rdmux_status rdmux_stream_advance(struct rdmux_stream *stream, const struct rdmux_sge *pieces,
                                       uint64_t total, bool lent, uint64_t *taken)
{
    struct rdmux_stream_out *out = &stream->out;
    const uint64_t before = *taken;
    enum rdmux_status status = out->is_known ? RDMUX_OK : RDMUX_AGAIN;
    while (status == RDMUX_OK && *taken < total) {
        if (RDMUX_UNLIKELY(out->offer.is_open && out->written == out->offer.at)) {
            status = lent ? send_bulk(stream, pieces, taken)
                          : pad_until(stream, out->offer.index + 1);
        } else {
            status = write_ring(stream, pieces, total - *taken, lent, taken);
        }
    }
    out->bytes += *taken - before;
    if (RDMUX_UNLIKELY(status == RDMUX_DENIED)) {
        rdmux_stream_break(stream, RDMUX_PROTOCOL, "the peer took its ring back");
    }
    return status;
}

/* ------------------------------------------------------------------------------------- what is due */

static enum rdmux_status post_hello(struct rdmux_stream *stream)
{
    struct rdmux_sge piece = { stream->hello, RDMUX_STREAM_HELLO_SIZE, stream->local_mr };
    const struct rdmux_wr wr = {
        .op = RDMUX_OP_SEND, .flags = RDMUX_UNSIGNALED, .sges = &piece, .sge_count = 1
    };
    return rdmux_ep_post(stream->ep, &wr);
}

static enum rdmux_status post_fin(struct rdmux_stream *stream)
{
    struct rdmux_stream_out *out = &stream->out;
    enum rdmux_status status = out->offer.is_open ? pad_until(stream, out->offer.index + 1)
                                                  : RDMUX_OK;
    return status == RDMUX_OK ? post_empty(stream, RDMUX_STREAM_FIN, 0) : status;
}

void rdmux_stream_push(struct rdmux_stream *stream)
{
    struct rdmux_stream_out *out = &stream->out;
    if (stream->ep->phase != RDMUX_PHASE_READY || stream->is_broken) {
        return;
    }
    if (RDMUX_UNLIKELY(!out->has_greeted)) {
        if (post_hello(stream) != RDMUX_OK) {
            return;
        }
        out->has_greeted = true;
        out->sent = 1;
    }
    if (rdmux_stream_owes_credit(stream) && post_empty(stream, RDMUX_STREAM_CREDIT, 0) != RDMUX_OK) {
        return;
    }
    if (out->write.is_lent && out->taken < out->write.total) {
        (void)rdmux_stream_advance(stream, out->write.pieces, out->write.total, true, &out->taken);
    }
    if (RDMUX_UNLIKELY(out->is_fin_wanted && !out->has_fin) && !out->write.is_lent) {
        out->has_fin = post_fin(stream) == RDMUX_OK;
    }
    if (RDMUX_UNLIKELY(out->has_fin && out->offer.is_open)) {
        (void)pad_until(stream, out->offer.index + 1); /* it was offered before FIN arrived */
    }
    if (RDMUX_UNLIKELY(out->has_fin && stream->in.has_fin)) {
        rdmux_ep_begin_shutdown(stream->ep);
    }
}
