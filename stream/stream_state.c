/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* What all calls on a stream ask: readiness, entering, failing. */
#include "stream/stream_state.h"

#include "api/base/error.h"
#include "api/core/remote.h"
#include "api/object/ep.h"
#include "api/progress/cq_owner.h"

uint64_t rdmux_stream_direct_min(const struct rdmux_stream *stream)
{
    const struct rdmux_remote *ring = stream->out.remote;
    if (stream->direct_min != 0) {
        return stream->direct_min;
    }
    return ring != NULL && ring->path != NULL && ring->path->mapped != 0 ? UINT64_MAX
                                                                         : RDMUX_STREAM_DIRECT_MIN;
}

bool rdmux_stream_is_large(const struct rdmux_stream *stream, uint64_t rest)
{
    return rest >= stream->ring_size && rest - stream->ring_size >= rdmux_stream_direct_min(stream);
}

bool rdmux_stream_is_readable(const struct rdmux_stream *stream)
{
    const struct rdmux_stream_in *in = &stream->in;
    if (stream->is_ended) {
        return true;
    }
    if (in->read.is_lent) {
        return in->filled == in->read.total || (in->has_fin && !in->direct.is_posted);
    }
    return in->arrived != in->consumed || in->has_fin || in->is_discarding;
}

/* Returns whether a write would be refused, whatever room there is. */
static bool refuses_writes(const struct rdmux_stream *stream)
{
    return stream->is_ended || stream->out.is_fin_wanted || stream->ep->phase > RDMUX_PHASE_READY;
}

bool rdmux_stream_is_writable(const struct rdmux_stream *stream)
{
    const struct rdmux_stream_out *out = &stream->out;
    const struct rdmux_ring *queue = &stream->ep->send;
    if (out->write.is_lent) {
        return stream->is_ended || (out->taken == out->write.total && out->pending == 0);
    }
    if (refuses_writes(stream)) {
        return true;
    }
    return out->is_known && out->remote->state == RDMUX_REMOTE_READY &&
           queue->head - queue->tail < queue->depth &&
           (rdmux_stream_room(stream) > 0 || (out->offer.is_open && out->written == out->offer.at));
}

uint32_t rdmux_stream_ready(const struct rdmux_stream *stream, uint32_t events)
{
    uint32_t ready = stream->is_ended ? events & RDMUX_STREAM_END : 0;
    if ((events & RDMUX_STREAM_READ) != 0 && rdmux_stream_is_readable(stream)) {
        ready |= RDMUX_STREAM_READ;
    }
    if ((events & RDMUX_STREAM_WRITE) != 0 && rdmux_stream_is_writable(stream)) {
        ready |= RDMUX_STREAM_WRITE;
    }
    return ready;
}

enum rdmux_status rdmux_stream_enter(struct rdmux_stream *stream, const char *call)
{
    if (RDMUX_UNLIKELY(stream == NULL)) {
        return rdmux_fail(RDMUX_INVALID, "%s: stream is NULL", call);
    }
    if (RDMUX_UNLIKELY(!rdmux_cq_enter(stream->ep->cq))) {
        return rdmux_cq_refused(stream->ep->cq, call, "stream");
    }
    return RDMUX_OK;
}

enum rdmux_status rdmux_stream_fail_ended(const struct rdmux_stream *stream, const char *call)
{
    const struct rdmux_ep *ep = stream->ep;
    const enum rdmux_status status = (enum rdmux_status)ep->end.status;
    return rdmux_fail(status == RDMUX_OK ? RDMUX_PEER_GONE : status, "%s: the stream has ended: %s",
                      call, ep->info.text[0] != '\0' ? ep->info.text : "the peer closed it");
}

void rdmux_stream_break(struct rdmux_stream *stream, enum rdmux_status status, const char *text)
{
    if (!stream->is_broken) {
        stream->is_broken = true;
        rdmux_ep_fail(stream->ep, status, "stream: %s", text);
    }
}
