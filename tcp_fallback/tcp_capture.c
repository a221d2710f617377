/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Looks at the bytes of a data socket for the capture. */
#include "tcp_fallback/tcp_capture.h"

#include "api/base/capture.h"
#include "api/base/secrets.h"
#include "api/system/system.h"
#include "tcp_fallback/tcp_completion.h"
#include "tcp_fallback/tcp_endpoint.h"
#include "tcp_fallback/tcp_frame.h"

#include <assert.h>
#include <string.h>

static_assert((int)TCP_HEADER_MAX + (int)RDMUX_CAPTURE_SNAP_MAX <= (int)RDMUX_CAPTURE_FRAME_MAX,
              "a packet has room for a header and its payload");

enum {
    TAP_JOIN_SECRET = 12, /* docs/WIRE.md */
    TAP_JOIN_CODE = 40,
};

/* One direction of the socket. */
struct tap_way {
    uint64_t skip;   /* bytes that follow and are not captured */
    uint64_t length; /* of the whole frame, once its header is here */
    size_t want;     /* bytes of the frame that are needed next */
    size_t have;
    bool is_lost; /* a frame that is none came: the endpoint is about to fail */
    uint8_t *bytes;
};

struct tcp_tap {
    struct tcp_stream inner;
    struct tap_way ways[2]; /* by enum rdmux_capture_way */
};

static struct rdmux_fabric *tap_fabric(const struct tcp_lane *lane)
{
    return lane->ep->base.cq->domain->fabric;
}

/* --------------------------------------------------------------------------------------- frames */

static uint64_t tap_payload(const struct tcp_ep *ep, const struct tcp_frame *frame)
{
    const bool is_striped = (frame->flags & TCP_STRIPED) != 0;
    uint64_t length = 0;
    uint64_t begin = 0;
    switch (frame->kind) {
    case TCP_SEND:
    case TCP_WRITE:
        length = rdmux_tcp_frame_payload(frame->length, ep->lane_count, is_striped);
        break;
    case TCP_MORE:
    case TCP_DATA:
        length = frame->length;
        break;
    default:
        return 0;
    }
    if (is_striped) { /* this socket has the first share */
        rdmux_tcp_share(length, ep->lane_count, 0, &begin, &length);
    }
    return length;
}

static void tap_begin(struct tap_way *way)
{
    way->have = 0;
    way->length = 0;
    way->want = 1;
}

static void tap_write(const struct tcp_lane *lane, enum rdmux_capture_way which)
{
    struct tap_way *way = &lane->tap->ways[which];
    rdmux_capture_write(tap_fabric(lane), lane->fd, which, way->bytes, way->have, way->length);
    way->skip = way->length - way->have;
    tap_begin(way);
}

/* way->want bytes of a header have come: asks for more, or for the payload's first bytes. */
static void tap_header(const struct tcp_lane *lane, struct tap_way *way)
{
    const struct rdmux_capture_options *options = rdmux_capture_of(tap_fabric(lane));
    struct tcp_frame frame = { .key = NULL };
    size_t size = 0;
    if (way->bytes[0] < TCP_MARK) { /* of the control channel */
        enum rdmux_status status = rdmux_tcp_control_size(way->bytes, way->have, &size);
        if (status == RDMUX_OK) {
            way->skip = size - way->have;
            tap_begin(way);
        } else if (status == RDMUX_AGAIN) {
            way->want = TCP_CONTROL_HEADER_SIZE;
        } else {
            way->is_lost = true;
        }
        return;
    }
    enum rdmux_status status = rdmux_tcp_frame_decode(way->bytes, way->have, &frame, &size);
    if (status == RDMUX_AGAIN) {
        way->want++;
        return;
    }
    if (status != RDMUX_OK) {
        way->is_lost = true;
        return;
    }
    if (frame.key != NULL && !options->has_secrets) {
        memset(way->bytes + TCP_PREFIX_SIZE, 0, TCP_KEY_SIZE);
    }
    const uint64_t payload = tap_payload(lane->ep, &frame);
    way->length = size + payload;
    way->want = size + (size_t)(payload < options->snap ? payload : options->snap);
}

static void tap_look(const struct tcp_lane *lane, enum rdmux_capture_way which,
                     const uint8_t *bytes, size_t size)
{
    struct tap_way *way = &lane->tap->ways[which];
    while (size != 0 && !way->is_lost) {
        if (way->skip != 0) {
            const size_t part = size < way->skip ? size : (size_t)way->skip;
            way->skip -= part;
            bytes += part;
            size -= part;
            continue;
        }
        const size_t left = way->want - way->have;
        const size_t part = size < left ? size : left;
        memcpy(way->bytes + way->have, bytes, part);
        way->have += part;
        bytes += part;
        size -= part;
        if (way->have == way->want && way->length == 0) {
            tap_header(lane, way);
        }
        if (way->length != 0 && way->have == way->want) {
            tap_write(lane, which);
        }
    }
}

static void tap_look_at(const struct tcp_lane *lane, enum rdmux_capture_way which,
                        const struct iovec *iov, ssize_t moved)
{
    for (size_t left = moved > 0 ? (size_t)moved : 0; left != 0; iov++) {
        const size_t part = iov->iov_len < left ? iov->iov_len : left;
        tap_look(lane, which, iov->iov_base, part);
        left -= part;
    }
}

/* ---------------------------------------------------------------------------------------- stream */

static ssize_t tapped_receive(struct tcp_lane *lane, void *to, size_t size)
{
    const ssize_t got = lane->tap->inner.receive(lane, to, size);
    tap_look(lane, RDMUX_CAPTURE_IN, to, got > 0 ? (size_t)got : 0);
    return got;
}

static ssize_t tapped_receive_list(struct tcp_lane *lane, struct iovec *iov, int count)
{
    const ssize_t got = lane->tap->inner.receive_list(lane, iov, count);
    tap_look_at(lane, RDMUX_CAPTURE_IN, iov, got);
    return got;
}

static ssize_t tapped_send(struct tcp_lane *lane, const void *bytes, size_t size)
{
    const ssize_t sent = lane->tap->inner.send(lane, bytes, size);
    tap_look(lane, RDMUX_CAPTURE_OUT, bytes, sent > 0 ? (size_t)sent : 0);
    return sent;
}

static ssize_t tapped_send_list(struct tcp_lane *lane, struct iovec *iov, int count)
{
    const ssize_t sent = lane->tap->inner.send_list(lane, iov, count);
    tap_look_at(lane, RDMUX_CAPTURE_OUT, iov, sent);
    return sent;
}

static size_t tap_room(const struct rdmux_capture_options *options)
{
    return (size_t)TCP_HEADER_MAX + options->snap;
}

enum rdmux_status rdmux_tcp_capture_begin(struct tcp_lane *lane)
{
    struct rdmux_fabric *fabric = tap_fabric(lane);
    const struct rdmux_capture_options *options = rdmux_capture_of(fabric);
    if (options == NULL || lane->index != 0 ||
        (lane->stream.session != NULL && !options->is_decrypted)) {
        return RDMUX_OK;
    }
    const size_t room = tap_room(options);
    struct tcp_tap *tap = rdmux_provider_allocate(fabric, sizeof(*tap) + 2 * room);
    if (tap == NULL) {
        rdmux_provider_error("tcp: out of memory for a capture");
        return RDMUX_NO_MEMORY;
    }
    for (size_t i = 0; i < 2; i++) {
        tap->ways[i].bytes = (uint8_t *)(tap + 1) + i * room;
        tap_begin(&tap->ways[i]);
    }
    tap->inner = lane->stream;
    lane->tap = tap;
    lane->stream.receive = tapped_receive;
    lane->stream.receive_list = tapped_receive_list;
    lane->stream.send = tapped_send;
    lane->stream.send_list = tapped_send_list;
    return RDMUX_OK;
}

void rdmux_tcp_capture_end(struct tcp_lane *lane)
{
    struct tcp_tap *tap = lane->tap;
    if (tap != NULL) {
        struct rdmux_fabric *fabric = tap_fabric(lane);
        lane->stream = tap->inner;
        lane->tap = NULL;
        rdmux_wipe(tap + 1, 2 * tap_room(rdmux_capture_of(fabric)));
        rdmux_provider_release(fabric, tap);
    }
}

void rdmux_tcp_capture_join(const struct tcp_lane *lane, const uint8_t join[RDMUX_JOIN_SIZE])
{
    struct rdmux_fabric *fabric = tap_fabric(lane);
    const struct rdmux_capture_options *options = rdmux_capture_of(fabric);
    uint8_t shown[RDMUX_JOIN_SIZE];
    if (options == NULL) {
        return;
    }
    memcpy(shown, join, sizeof(shown));
    if (!options->has_secrets) {
        memset(shown + TAP_JOIN_SECRET, 0, RDMUX_SECRET_SIZE);
        memset(shown + TAP_JOIN_CODE, 0, RDMUX_SECRET_SIZE);
    }
    rdmux_capture_write(fabric, lane->fd, RDMUX_CAPTURE_OUT, shown, sizeof(shown), sizeof(shown));
    rdmux_wipe(shown, sizeof(shown));
}
