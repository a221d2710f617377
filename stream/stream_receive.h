/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The messages of the peer's stream. All functions are the owner's. [data path] */
#ifndef RDMUX_STREAM_RECEIVE_H
#define RDMUX_STREAM_RECEIVE_H

#include "stream/stream_state.h"

/* Posts the small receives, the first one of which takes HELLO. */
enum rdmux_status rdmux_stream_post_slots(struct rdmux_stream *stream);
/* Handles an entry of a receive, or of an import. */
void rdmux_stream_received(struct rdmux_stream *stream, const struct rdmux_wc *wc);
void rdmux_stream_imported(struct rdmux_stream *stream, enum rdmux_status status);
/* Moves bytes from the ring to a lent read, and offers the peer a direct receive if that pays. */
void rdmux_stream_fill(struct rdmux_stream *stream);
/* Takes up to length bytes off the ring, and copies them to `to`. */
uint64_t rdmux_stream_copy_out(struct rdmux_stream *stream, uint8_t *to, uint64_t length);

#endif
