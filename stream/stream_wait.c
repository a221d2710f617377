/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Waiting for a stream, and its present state. */
#include "stream/stream_state.h"

#include "api/base/error.h"
#include "api/base/hooks.h"
#include "api/data/completion.h"
#include "api/data/cq.h"
#include "api/progress/cq_owner.h"

#include <stdio.h>
#include <string.h>

enum { EVENTS = RDMUX_STREAM_READ | RDMUX_STREAM_WRITE | RDMUX_STREAM_END };

static enum rdmux_status check_events(const char *call, uint32_t events)
{
    return events != 0 && (events & ~(uint32_t)EVENTS) == 0
               ? RDMUX_OK
               : rdmux_fail(RDMUX_INVALID, "%s: events 0x%x has none, or unknown bits", call,
                            events);
}

struct waiting {
    const struct rdmux_stream *stream;
    uint32_t events;
};

static bool has_come(void *user)
{
    const struct waiting *waiting = user;
    return waiting->stream->is_ended || rdmux_stream_ready(waiting->stream, waiting->events) != 0;
}

enum rdmux_status rdmux_stream_wait(struct rdmux_stream *stream, uint32_t events, int timeout_ms)
{
    enum rdmux_status status = check_events("rdmux_stream_wait", events);
    if (status == RDMUX_OK && timeout_ms < -1) {
        status = rdmux_fail(RDMUX_INVALID, "rdmux_stream_wait: timeout_ms is below -1");
    }
    if (status == RDMUX_OK) {
        status = rdmux_stream_enter(stream, "rdmux_stream_wait");
    }
    if (status != RDMUX_OK) {
        return status;
    }
    struct waiting waiting = { stream, events };
    if (stream->own_cq == NULL) {
        stream->wants &= ~events; /* this call tells, instead of an entry */
    }
    if (!has_come(&waiting)) {
        if (timeout_ms == 0) {
            rdmux_ep_progress(stream->ep);
            status = has_come(&waiting) ? RDMUX_OK
                                        : rdmux_again("rdmux_stream_wait: no event has come yet");
        } else {
            status = rdmux_cq_wait_until(stream->ep->cq, has_come, &waiting, timeout_ms);
        }
    }
    if (status == RDMUX_TIMED_OUT) {
        status = rdmux_fail(RDMUX_TIMED_OUT, "rdmux_stream_wait: no event came within %d ms",
                            timeout_ms);
    }
    rdmux_cq_leave(stream->ep->cq);
    return status;
}

int rdmux_stream_fd(struct rdmux_stream *stream)
{
    return stream == NULL ? -1 : rdmux_cq_fd(stream->ep->cq);
}

enum rdmux_status rdmux_stream_arm(struct rdmux_stream *stream, uint32_t events)
{
    enum rdmux_status status = check_events("rdmux_stream_arm", events);
    if (status == RDMUX_OK) {
        status = rdmux_stream_enter(stream, "rdmux_stream_arm");
    }
    if (status != RDMUX_OK) {
        return status;
    }
    if (rdmux_stream_ready(stream, events) == 0) {
        /* On a cq of the program RDMUX_WC_DISCONNECTED tells of the end. */
        stream->wants = stream->own_cq != NULL
                            ? events
                            : stream->wants | (events & ~(uint32_t)RDMUX_STREAM_END);
        status = rdmux_cq_arm_inside(stream->ep->cq);
    } else {
        status = RDMUX_AGAIN;
    }
    if (status == RDMUX_AGAIN) {
        status = rdmux_again("rdmux_stream_arm: an event is there already");
    }
    rdmux_cq_leave(stream->ep->cq);
    return status;
}

static uint32_t stream_state_of(const struct rdmux_stream *stream)
{
    if (stream->is_ended || stream->ep->phase > RDMUX_PHASE_READY) {
        return RDMUX_STREAM_ENDED;
    }
    return stream->out.is_known ? RDMUX_STREAM_OPEN : RDMUX_STREAM_CONNECTING;
}

enum rdmux_status rdmux_stream_info(struct rdmux_stream *stream, struct rdmux_stream_info *out)
{
    if (out == NULL || out->size < offsetof(struct rdmux_stream_info, readable)) {
        return rdmux_fail(RDMUX_INVALID, "rdmux_stream_info: out is NULL or without size; use "
                                         "RDMUX_STREAM_INFO_INIT");
    }
    enum rdmux_status status = rdmux_stream_enter(stream, "rdmux_stream_info");
    if (status != RDMUX_OK) {
        return status;
    }
    const struct rdmux_stream_in *in = &stream->in;
    const struct rdmux_stream_out *sent = &stream->out;
    struct rdmux_stream_info info = {
        .state = stream_state_of(stream),
        .status = stream->ep->end.status,
        .ends = (in->has_fin ? RDMUX_STREAM_READ : 0U) | (sent->has_fin ? RDMUX_STREAM_WRITE : 0U),
        .readable = in->read.is_lent ? 0 : rdmux_stream_unread(stream),
        .writable = sent->is_known && !sent->write.is_lent && !sent->is_fin_wanted
                        ? rdmux_stream_room(stream)
                        : 0,
        .ring = stream->ring_size,
        .peer_ring = sent->ring,
        .bytes_read = in->bytes,
        .bytes_written = sent->bytes,
        .direct_read = in->direct_bytes,
        .direct_written = sent->direct_bytes,
    };
    snprintf(info.text, sizeof(info.text), "%s", stream->ep->info.text);
    const uint32_t size = out->size < sizeof(info) ? out->size : (uint32_t)sizeof(info);
    info.size = out->size;
    memcpy(out, &info, size);
    rdmux_cq_leave(stream->ep->cq);
    return RDMUX_OK;
}

struct rdmux_ep *rdmux_stream_ep(struct rdmux_stream *stream)
{
    return stream == NULL || *stream->fabric->alive == 0 ? NULL : stream->ep;
}

enum rdmux_status rdmux_stream_set_user(struct rdmux_stream *stream, void *user)
{
    enum rdmux_status status = rdmux_stream_enter(stream, "rdmux_stream_set_user");
    if (status == RDMUX_OK) {
        stream->user = user;
        rdmux_cq_leave(stream->ep->cq);
    }
    return status;
}

void *rdmux_stream_user(struct rdmux_stream *stream)
{
    return stream == NULL || *stream->fabric->alive == 0 ? NULL : stream->user;
}
