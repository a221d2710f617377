/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The messages of a stream to its peer. All functions are the owner's. [data path] */
#ifndef RDMUX_STREAM_SEND_H
#define RDMUX_STREAM_SEND_H

#include "stream/stream_state.h"

/* Posts a message, whose kind and credit become wr->imm. Statuses are those of rdmux_ep_post(). */
enum rdmux_status rdmux_stream_post(struct rdmux_stream *stream, struct rdmux_wr *wr,
                                    enum rdmux_stream_kind kind);
/* Sends bytes of the list from *taken on, as many as the peer takes now, and advances *taken. lent:
 * the bytes stay where they are until stream->out.pending is 0. RDMUX_OK: all are posted.
 * RDMUX_AGAIN: no room. */
enum rdmux_status rdmux_stream_advance(struct rdmux_stream *stream, const struct rdmux_sge *pieces,
                                       uint64_t total, bool lent, uint64_t *taken);
/* Sends what is due: HELLO, credit, lent bytes, the end. */
void rdmux_stream_push(struct rdmux_stream *stream);

/* Returns whether freed bytes are due to be told. */
static inline bool rdmux_stream_owes_credit(const struct rdmux_stream *stream)
{
    return stream->in.consumed - stream->in.told >= stream->in.tell_at && !stream->in.has_fin;
}

#endif
