/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * The stream object, and the protocol of two streams. docs/ARCHITECTURE.md, Streams, has the same in
 * prose.
 *
 * One direction, from the writer W to the reader R:
 *
 *   ring        R's memory. W puts bytes there by writes with immediate data (DATA). `written` counts
 *               them at W, `arrived` at R; R takes them, which `consumed` counts.
 *   credit      R tells W how many bytes it has freed, with every message it sends. `told` is what W
 *               knows, or will know once the message arrives. W never writes beyond told + window.
 *   receives    Every message of W takes one receive of R, in order. R keeps `slots` small ones
 *               posted and posts each again at once, whatever its program does.
 *   direct      R has lent memory for a large read. It posts it as one more receive, number `index`,
 *               and tells W (ADVERT). The bytes that W may put into the ring at this moment end at
 *               `at` = told + ring. They belong before the direct receive, those behind it there.
 *
 * Each side may sleep in these states, and these messages wake it:
 *
 *   W has written up to told + window, and waits for room. Then R has at least a window of bytes
 *   arrived or under way and not told. R tells by itself once a quarter of the window is consumed and
 *   not told (CREDIT), at the call that consumes, or at the next one if its send queue is full: that
 *   queue holds requests whose completions bring R's owner, or the service thread, here again. So W
 *   waits only for R's program to read. While a read of R is lent, arriving bytes are consumed by the
 *   owner of the cq, which is the service thread if the program sleeps: the ring of a sleeping reader
 *   that asked for more never stays full.
 *   W has written up to `at`. With lent bytes it fills the direct receive, for which it needs no
 *   credit. Otherwise it uses the direct receive up, empty (PAD), and goes on through the ring. So W
 *   never waits at `at`. If it has nothing to write there, R waits for bytes that W has not got.
 *   R waits for its direct receive. W knows of it, or the ADVERT is under way in a send queue whose
 *   messages take R's and W's small receives, which are posted again without the programs: two lent
 *   writes in opposite directions do not wait for each other, only for the two reads.
 *   R may not return the lent memory while the direct receive is posted. Any message of W that meets
 *   it uses it up. It covers bytes that the read needs, so a read that ends has seen it used, or has
 *   seen FIN. W uses it up by PAD before FIN, and after FIN if the ADVERT was under way.
 *
 * A program is told once for each RDMUX_AGAIN: `wants`.
 */
#ifndef RDMUX_STREAM_STATE_H
#define RDMUX_STREAM_STATE_H

#include <rdmux/stream.h>

#include "api/core/cq.h"
#include "api/core/ep.h"
#include "stream/stream_wire.h"

enum {
    RDMUX_STREAM_PIECES_MAX = 16,
    RDMUX_STREAM_SLOTS = 16,      /* small receives */
    RDMUX_STREAM_SLOT_SIZE = 128, /* of HELLO or ADVERT */
    RDMUX_STREAM_DEPTH_MIN = 32,
    RDMUX_STREAM_DIRECT_MIN = 64 << 10,
};

/* A list of the program's pieces that it has lent. */
struct rdmux_stream_list {
    bool is_lent;
    size_t count;
    uint64_t total;
    struct rdmux_sge pieces[RDMUX_STREAM_PIECES_MAX];
};

/* The direct receive that this side has posted. */
struct rdmux_stream_direct {
    bool is_posted;
    uint64_t at;     /* ring position that its bytes follow */
    uint64_t offset; /* in the lent read */
    uint8_t *addr;
    uint64_t length;
};

struct rdmux_stream_in {
    uint64_t arrived;
    uint64_t consumed;
    uint64_t told;
    uint64_t tell_at;   /* freed bytes that are told by a message of their own */
    uint64_t posted;    /* receives, from the first one on */
    bool is_greeted;    /* HELLO is here */
    bool has_fin;       /* the peer's end is here */
    bool is_discarding; /* this side wants no more bytes */
    struct rdmux_stream_list read;
    uint64_t filled; /* of the lent read */
    struct rdmux_stream_direct direct;
    uint32_t skip;      /* large reads from now on that offer no direct receive */
    uint32_t skip_next; /* after another one that the peer declines */
    uint64_t bytes;
    uint64_t direct_bytes;
};

/* The peer's direct receive. */
struct rdmux_stream_offer {
    bool is_open;
    uint64_t at;
    uint64_t index;
    uint64_t length;
};

struct rdmux_stream_out {
    struct rdmux_remote *remote; /* the peer's ring */
    bool is_known;               /* it is imported */
    bool has_greeted;            /* our HELLO is posted */
    bool is_fin_wanted;
    bool has_fin; /* our end is posted */
    uint64_t ring;
    uint64_t window; /* the smaller of the peer's ring and our staging area */
    uint32_t slots;  /* of the peer */
    uint64_t written;
    uint64_t told;
    uint64_t sent; /* messages: the number of the receive that the next one takes */
    struct rdmux_stream_offer offer;
    struct rdmux_stream_list write;
    uint64_t taken;   /* of the lent write: bytes posted */
    uint32_t pending; /* of the lent write: requests that are not done */
    uint64_t bytes;
    uint64_t direct_bytes;
};

/* rdmux_stream.news: entries of the endpoint that the program is told of */
enum {
    RDMUX_NEWS_CONNECTED = 1 << 0,
    RDMUX_NEWS_MOVED = 1 << 1,
    RDMUX_NEWS_ENDED = 1 << 2,
};

struct rdmux_stream {
    struct rdmux_ep *ep;
    struct rdmux_cq *own_cq; /* NULL: the cq is the program's */
    uint32_t wants; /* RDMUX_STREAM_READ | _WRITE | _END of which the program is to be told */
    uint32_t news;  /* RDMUX_NEWS_*; 0 with a cq of its own */
    bool is_ended;  /* nothing is lent to the endpoint any more */
    bool is_broken; /* the peer broke the protocol: its messages do not count */
    bool is_taking; /* the owner is in the layer's take() */
    struct rdmux_stream_in in;
    struct rdmux_stream_out out;

    uint8_t *ring;
    uint64_t ring_size;
    uint8_t *staging; /* ring_size bytes: copies of what is on its way to the peer's ring */
    uint8_t *slots;
    uint8_t *hello;
    struct rdmux_mr *ring_mr;
    struct rdmux_mr *local_mr; /* staging, slots, hello */
    uint64_t direct_min;       /* the program's; 0: rdmux_stream_direct_min() decides by the path */
    uint32_t linger_ms;
    struct rdmux_fabric *fabric;
    struct rdmux_wc moved; /* with RDMUX_NEWS_MOVED */
    uint32_t connected_status;
    void *user;
};

static inline struct rdmux_stream *rdmux_stream_of(const struct rdmux_ep *ep)
{
    return ep->layer_state;
}

static inline uint64_t rdmux_stream_unread(const struct rdmux_stream *stream)
{
    return stream->in.arrived - stream->in.consumed;
}

/* Returns how many bytes may go into the peer's ring now. */
static inline uint64_t rdmux_stream_room(const struct rdmux_stream *stream)
{
    const struct rdmux_stream_out *out = &stream->out;
    uint64_t limit = out->told + out->window;
    if (out->offer.is_open && out->offer.at < limit) {
        limit = out->offer.at;
    }
    return limit - out->written;
}

/* Finds the piece that has byte `offset` of the list, which is within it. Returns how many bytes it
 * has from there on. */
static inline uint64_t rdmux_stream_locate(const struct rdmux_sge *pieces, uint64_t offset,
                                           struct rdmux_sge *found)
{
    while (offset >= pieces->length) {
        offset -= pieces->length;
        pieces++;
    }
    *found = *pieces;
    found->addr = (uint8_t *)pieces->addr + offset;
    found->length -= offset;
    return found->length;
}

/* Returns from how many bytes on a read offers them for a direct receive. Never, unless the program
 * says so, where a write is a plain copy into the peer's memory: bytes through the ring are copied by
 * both processors at once, without the kernel, and a direct receive by one of them, with it. */
uint64_t rdmux_stream_direct_min(const struct rdmux_stream *stream);
/* Returns whether the ring leaves enough of a read of so many more bytes for a direct receive. */
bool rdmux_stream_is_large(const struct rdmux_stream *stream, uint64_t rest);
/* Returns whether a read, or a write, would not return RDMUX_AGAIN. */
bool rdmux_stream_is_readable(const struct rdmux_stream *stream);
bool rdmux_stream_is_writable(const struct rdmux_stream *stream);
/* Returns the events of these that have come. */
uint32_t rdmux_stream_ready(const struct rdmux_stream *stream, uint32_t events);

/* Enters the stream's cq. Returns RDMUX_INVALID, and the call must do nothing, if stream is NULL, or
 * as rdmux_cq_enter(). */
enum rdmux_status rdmux_stream_enter(struct rdmux_stream *stream, const char *call);
/* Fails a call on a stream whose endpoint has ended. */
enum rdmux_status rdmux_stream_fail_ended(const struct rdmux_stream *stream, const char *call);
/* Owner: the peer broke the protocol, or something needed is missing: ends the endpoint. */
void rdmux_stream_break(struct rdmux_stream *stream, enum rdmux_status status, const char *text);

#endif
