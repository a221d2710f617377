/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Takes the entries of a stream's endpoint, and returns the stream's own. */
#include "stream/stream_layer.h"

#include "api/core/remote.h"
#include "api/data/completion.h"
#include "api/progress/cq_owner.h"
#include "stream/stream_receive.h"
#include "stream/stream_send.h"
#include "stream/stream_state.h"

#include <string.h>

static void note(struct rdmux_stream *stream, uint32_t news)
{
    stream->news |= stream->own_cq == NULL ? news : 0;
}

static void connected(struct rdmux_stream *stream, uint32_t status)
{
    const uint64_t needed = RDMUX_CAP_SEND | RDMUX_CAP_SEND_IMM | RDMUX_CAP_WRITE_IMM;
    stream->connected_status = status;
    note(stream, RDMUX_NEWS_CONNECTED);
    if (status != RDMUX_OK) {
        stream->is_ended = true;
    } else if ((stream->ep->limits.caps & needed) != needed) {
        rdmux_stream_break(stream, RDMUX_UNSUPPORTED, "the path has no write with immediate data");
    }
}

static void take_entry(struct rdmux_stream *stream, const struct rdmux_wc *wc)
{
    switch (wc->opcode) {
    case RDMUX_WC_RECV:
    case RDMUX_WC_RECV_WRITE_IMM:
        rdmux_stream_received(stream, wc);
        break;
    case RDMUX_WC_SEND:
    case RDMUX_WC_WRITE:
        stream->out.pending -= wc->context == &stream->out.write;
        break;
    case RDMUX_WC_REMOTE_READY:
        rdmux_stream_imported(stream, (enum rdmux_status)wc->status);
        break;
    case RDMUX_WC_CONNECTED:
        connected(stream, wc->status);
        break;
    case RDMUX_WC_PATH_CHANGED:
        stream->moved = *wc;
        note(stream, RDMUX_NEWS_MOVED);
        break;
    case RDMUX_WC_DISCONNECTED:
        stream->is_ended = true;
        note(stream, RDMUX_NEWS_ENDED);
        break;
    default:
        break;
    }
}

/* Takes the endpoint's entries until there are none. */
static void take_entries(struct rdmux_stream *stream)
{
    enum { AT_ONCE = 32 };
    struct rdmux_wc wc[AT_ONCE];
    const struct rdmux_wc *end;
    do {
        end = rdmux_ep_take(stream->ep, wc, wc + AT_ONCE);
        for (const struct rdmux_wc *at = wc; at != end; at++) {
            take_entry(stream, at);
        }
    } while (end == wc + AT_ONCE);
}

static struct rdmux_wc *tell(struct rdmux_stream *stream, struct rdmux_wc *at, uint32_t opcode,
                             uint32_t status)
{
    memset(at, 0, sizeof(*at));
    at->context = stream;
    at->opcode = opcode;
    at->status = status;
    if (opcode != RDMUX_WC_STREAM_READABLE && opcode != RDMUX_WC_STREAM_WRITABLE) {
        at->ep = stream->ep;
    }
    return at + 1;
}

static struct rdmux_wc *tell_news(struct rdmux_stream *stream, struct rdmux_wc *at,
                                  const struct rdmux_wc *end, uint32_t which, uint32_t opcode,
                                  uint32_t status)
{
    if ((stream->news & which) == 0 || at == end) {
        return at;
    }
    stream->news &= ~which;
    return tell(stream, at, opcode, status);
}

static struct rdmux_wc *tell_ready(struct rdmux_stream *stream, struct rdmux_wc *at,
                                   const struct rdmux_wc *end, uint32_t which, uint32_t opcode)
{
    if (at == end || rdmux_stream_ready(stream, stream->wants & which) == 0) {
        return at;
    }
    stream->wants &= ~which;
    return tell(stream, at, opcode, stream->is_ended ? stream->ep->end.status : RDMUX_OK);
}

static struct rdmux_wc *tell_all(struct rdmux_stream *stream, struct rdmux_wc *at,
                                 const struct rdmux_wc *end)
{
    at = tell_news(stream, at, end, RDMUX_NEWS_CONNECTED, RDMUX_WC_CONNECTED,
                   stream->connected_status);
    const bool has_moved = (stream->news & RDMUX_NEWS_MOVED) != 0 && at != end;
    at = tell_news(stream, at, end, RDMUX_NEWS_MOVED, RDMUX_WC_PATH_CHANGED, stream->moved.status);
    if (has_moved) {
        at[-1].imm = stream->moved.imm;
    }
    at = tell_ready(stream, at, end, RDMUX_STREAM_READ, RDMUX_WC_STREAM_READABLE);
    at = tell_ready(stream, at, end, RDMUX_STREAM_WRITE, RDMUX_WC_STREAM_WRITABLE);
    return tell_news(stream, at, end, RDMUX_NEWS_ENDED, RDMUX_WC_DISCONNECTED,
                     stream->ep->end.status);
}

static struct rdmux_wc *stream_take(struct rdmux_ep *ep, struct rdmux_wc *at,
                                    const struct rdmux_wc *end)
{
    struct rdmux_stream *stream = rdmux_stream_of(ep);
    if (stream->is_taking) {
        return at; /* the call inside goes on with what this one found */
    }
    stream->is_taking = true;
    take_entries(stream);
    rdmux_stream_fill(stream);
    rdmux_stream_push(stream);
    rdmux_cq_note_news(ep->cq); /* for a thread that waits for the other direction */
    stream->is_taking = false;
    return stream->own_cq == NULL ? tell_all(stream, at, end) : at;
}

static bool stream_has_entries(const struct rdmux_ep *ep)
{
    const struct rdmux_stream *stream = rdmux_stream_of(ep);
    return stream->news != 0 || rdmux_stream_ready(stream, stream->wants) != 0;
}

const struct rdmux_ep_layer rdmux_stream_layer = {
    .take = stream_take,
    .has_entries = stream_has_entries,
};
