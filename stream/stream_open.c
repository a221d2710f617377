/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* A stream from its options to its end. */
#include "stream/stream_state.h"

#include "api/accept/listener.h"
#include "api/base/error.h"
#include "api/base/hooks.h"
#include "api/data/completion.h"
#include "api/data/cq.h"
#include "api/object/ep.h"
#include "api/progress/cq_owner.h"
#include "stream/stream_layer.h"
#include "stream/stream_receive.h"
#include "stream/stream_send.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    DEFAULT_RING = 128 * 1024,
    DIRECT_MIN = 4096,
    DEFAULT_LINGER_MS = 2000,
    NEEDED = RDMUX_CAP_SEND | RDMUX_CAP_SEND_IMM | RDMUX_CAP_WRITE | RDMUX_CAP_WRITE_IMM,
};

/* The options of a call, with all defaults. */
struct options {
    struct rdmux_stream_attr attr;
    struct rdmux_ep_attr ep;
};

static enum rdmux_status take_ep_attr(const char *call, const struct rdmux_ep_attr *from,
                                      struct rdmux_ep_attr *to)
{
    *to = (struct rdmux_ep_attr)RDMUX_EP_ATTR_INIT;
    if (from != NULL) {
        if (from->size < offsetof(struct rdmux_ep_attr, recv_depth) + sizeof(from->recv_depth)) {
            return rdmux_fail(RDMUX_INVALID, "%s: attr.ep->size is %u; use RDMUX_EP_ATTR_INIT",
                              call, from->size);
        }
        memcpy(to, from, from->size < sizeof(*to) ? from->size : sizeof(*to));
        to->size = sizeof(*to);
    }
    if (to->srq != NULL) {
        return rdmux_fail(RDMUX_INVALID,
                          "%s: attr.ep->srq is set; a stream has receives of its own", call);
    }
    if ((to->send_depth != 0 && to->send_depth < RDMUX_STREAM_DEPTH_MIN) ||
        (to->recv_depth != 0 && to->recv_depth < RDMUX_STREAM_DEPTH_MIN)) {
        return rdmux_fail(RDMUX_INVALID, "%s: the depths of attr.ep are %u and %u, below %d", call,
                          to->send_depth, to->recv_depth, RDMUX_STREAM_DEPTH_MIN);
    }
    to->recv_depth = to->recv_depth == 0 ? RDMUX_STREAM_DEPTH_MIN : to->recv_depth;
    to->require |= NEEDED;
    return RDMUX_OK;
}

static enum rdmux_status take_options(const char *call, const struct rdmux_stream_attr *from,
                                      struct options *to)
{
    struct rdmux_stream_attr *attr = &to->attr;
    *attr = (struct rdmux_stream_attr)RDMUX_STREAM_ATTR_INIT;
    if (from != NULL) {
        if (from->size < offsetof(struct rdmux_stream_attr, ep)) {
            return rdmux_fail(RDMUX_INVALID, "%s: attr.size is %u; use RDMUX_STREAM_ATTR_INIT",
                              call, from->size);
        }
        memcpy(attr, from, from->size < sizeof(*attr) ? from->size : sizeof(*attr));
    }
    if ((attr->flags & ~(uint32_t)RDMUX_STREAM_SERIALIZED) != 0) {
        return rdmux_fail(RDMUX_INVALID, "%s: attr.flags has unknown bits: 0x%x", call, attr->flags);
    }
    attr->ring = attr->ring == 0 ? DEFAULT_RING : attr->ring;
    attr->linger_ms = attr->linger_ms == 0 ? DEFAULT_LINGER_MS : attr->linger_ms;
    if (!rdmux_stream_ring_is_good(attr->ring)) {
        return rdmux_fail(RDMUX_INVALID,
                          "%s: attr.ring is %llu bytes, not a power of two from 4096 to 64 MiB",
                          call, (unsigned long long)attr->ring);
    }
    if (attr->direct != 0 && attr->direct < DIRECT_MIN) {
        return rdmux_fail(RDMUX_INVALID, "%s: attr.direct is %llu bytes, below %d", call,
                          (unsigned long long)attr->direct, DIRECT_MIN);
    }
    if (attr->linger_ms != RDMUX_OFF && attr->linger_ms > INT32_MAX) {
        return rdmux_fail(RDMUX_INVALID, "%s: attr.linger_ms is %u, above 2^31 - 1", call,
                          attr->linger_ms);
    }
    return take_ep_attr(call, attr->ep, &to->ep);
}

/* ------------------------------------------------------------------------------------- the object */

static void stream_free(struct rdmux_stream *stream)
{
    struct rdmux_fabric *fabric = stream->fabric;
    rdmux_mr_deregister(stream->local_mr);
    rdmux_mr_deregister(stream->ring_mr);
    (void)rdmux_cq_destroy(stream->own_cq);
    rdmux_release(fabric, stream);
}

/* Makes a stream without an endpoint. has_cq: the program gave a cq. */
static enum rdmux_status stream_create(const char *call, struct rdmux_fabric *fabric, bool has_cq,
                                       const struct rdmux_stream_attr *attr,
                                       struct rdmux_stream **out)
{
    if (fabric == NULL || *fabric->alive == 0) {
        return rdmux_fail(RDMUX_INVALID, "%s: fabric is NULL, or belongs to the parent process",
                          call);
    }
    struct rdmux_stream *stream = rdmux_allocate(fabric, sizeof(*stream));
    if (stream == NULL) {
        return rdmux_fail(RDMUX_NO_MEMORY, "%s: out of memory", call);
    }
    stream->fabric = fabric;
    stream->ring_size = attr->ring;
    stream->direct_min = attr->direct;
    stream->linger_ms = attr->linger_ms;
    stream->user = attr->user;
    stream->in.tell_at = attr->ring / 4;
    const size_t slots = (size_t)RDMUX_STREAM_SLOTS * RDMUX_STREAM_SLOT_SIZE;
    enum rdmux_status status = rdmux_mr_alloc(fabric, (size_t)attr->ring, RDMUX_ACCESS_REMOTE_WRITE,
                                              &stream->ring_mr);
    if (status == RDMUX_OK) {
        status = rdmux_mr_alloc(fabric, (size_t)attr->ring + slots + RDMUX_STREAM_HELLO_SIZE,
                                RDMUX_ACCESS_LOCAL_WRITE, &stream->local_mr);
    }
    if (status == RDMUX_OK && !has_cq) {
        struct rdmux_cq_attr cq_attr = RDMUX_CQ_ATTR_INIT;
        cq_attr.flags = (attr->flags & RDMUX_STREAM_SERIALIZED) != 0 ? RDMUX_CQ_SERIALIZED : 0;
        status = rdmux_cq_create(fabric, &cq_attr, &stream->own_cq);
    }
    struct rdmux_stream_hello hello = { .slots = RDMUX_STREAM_SLOTS,
                                        .ring = attr->ring,
                                        .window = attr->ring };
    if (status == RDMUX_OK) {
        status = rdmux_mr_export(stream->ring_mr, &hello.token);
    }
    if (status != RDMUX_OK) {
        stream_free(stream);
        return status;
    }
    stream->ring = rdmux_mr_addr(stream->ring_mr);
    stream->staging = rdmux_mr_addr(stream->local_mr);
    stream->slots = stream->staging + attr->ring;
    stream->hello = stream->slots + slots;
    rdmux_stream_hello_encode(&hello, stream->hello);
    *out = stream;
    return RDMUX_OK;
}

/* Owner: makes the stream the layer of an endpoint. */
static enum rdmux_status attach(struct rdmux_stream *stream, struct rdmux_ep *ep)
{
    stream->ep = ep;
    enum rdmux_status status = rdmux_stream_post_slots(stream);
    if (status != RDMUX_OK) {
        return status;
    }
    ep->layer = &rdmux_stream_layer;
    ep->layer_state = stream;
    ep->events |= RDMUX_EVENT_LAYER;
    rdmux_cq_pend(ep->cq, ep); /* HELLO is due, or the endpoint has ended already */
    rdmux_ep_progress(ep);
    return RDMUX_OK;
}

/* Ends a call that has made an endpoint, with this status, or has failed to. */
static enum rdmux_status finish(struct rdmux_stream *stream, struct rdmux_ep *ep,
                                enum rdmux_status status, struct rdmux_stream **out)
{
    if (status != RDMUX_OK && status != RDMUX_IN_PROGRESS) {
        stream_free(stream);
        return status;
    }
    struct rdmux_cq *cq = ep->cq;
    if (!rdmux_cq_enter(cq)) {
        return rdmux_cq_refused(cq, "rdmux_stream", "cq");
    }
    enum rdmux_status attached = attach(stream, ep);
    rdmux_cq_leave(cq);
    if (attached != RDMUX_OK) {
        (void)rdmux_ep_close(ep);
        stream_free(stream);
        return attached;
    }
    *out = stream;
    return status;
}

static enum rdmux_status check_out(const char *call, struct rdmux_stream **out)
{
    if (out == NULL) {
        return rdmux_fail(RDMUX_INVALID, "%s: out is NULL", call);
    }
    *out = NULL;
    return RDMUX_OK;
}

static enum rdmux_status take_arguments(const char *call, const struct rdmux_stream_attr *attr,
                                        struct options *options, struct rdmux_stream **out)
{
    enum rdmux_status status = check_out(call, out);
    return status == RDMUX_OK ? take_options(call, attr, options) : status;
}

/* ------------------------------------------------------------------------------------ the calls */

enum rdmux_status rdmux_stream_connect(struct rdmux_fabric *fabric, struct rdmux_cq *cq,
                                       const char *address, const struct rdmux_stream_attr *attr,
                                       int timeout_ms, struct rdmux_stream **out)
{
    static const char call[] = "rdmux_stream_connect";
    struct options options;
    struct rdmux_stream *stream = NULL;
    struct rdmux_ep *ep = NULL;
    enum rdmux_status status = take_arguments(call, attr, &options, out);
    if (status == RDMUX_OK && address != NULL && strncasecmp(address, "rdma://", 7) == 0) {
        status = rdmux_fail(RDMUX_UNSUPPORTED, "%s: peers of rdma:// are no streams", call);
    }
    if (status == RDMUX_OK) {
        status = stream_create(call, fabric, cq != NULL, &options.attr, &stream);
    }
    if (stream == NULL) {
        return status;
    }
    status = rdmux_connect(fabric, cq != NULL ? cq : stream->own_cq, address, &options.ep,
                           timeout_ms, &ep);
    return finish(stream, ep, status, out);
}

/* As rdmux_adopt() does on failure: closes the socket, if it is one that can be adopted. */
static void close_socket(int socket)
{
    int type = 0;
    socklen_t length = sizeof(type);
    if (getsockopt(socket, SOL_SOCKET, SO_TYPE, &type, &length) == 0 && type == SOCK_STREAM) {
        (void)close(socket);
    }
}

enum rdmux_status rdmux_stream_adopt(struct rdmux_fabric *fabric, struct rdmux_cq *cq, int socket,
                                     enum rdmux_role role, const struct rdmux_stream_attr *attr,
                                     int timeout_ms, struct rdmux_stream **out)
{
    static const char call[] = "rdmux_stream_adopt";
    struct options options;
    struct rdmux_stream *stream = NULL;
    struct rdmux_ep *ep = NULL;
    enum rdmux_status status = take_arguments(call, attr, &options, out);
    if (status == RDMUX_OK) {
        status = stream_create(call, fabric, cq != NULL, &options.attr, &stream);
        if (status != RDMUX_OK && status != RDMUX_INVALID) {
            close_socket(socket);
        }
    }
    if (stream == NULL) {
        return status;
    }
    status = rdmux_adopt(fabric, cq != NULL ? cq : stream->own_cq, socket, role, &options.ep,
                         timeout_ms, &ep);
    return finish(stream, ep, status, out);
}

/* Returns what is left of timeout_ms, which began to count at began_ns. */
static int time_left(struct rdmux_fabric *fabric, int timeout_ms, uint64_t began_ns)
{
    if (timeout_ms <= 0) {
        return timeout_ms;
    }
    const uint64_t spent_ms = (rdmux_now(fabric) - began_ns) / 1000000;
    return spent_ms >= (uint64_t)timeout_ms ? 0 : timeout_ms - (int)spent_ms;
}

/* Makes a stream with a cq of its own. */
static enum rdmux_status create_alone(struct rdmux_listener *listener,
                                      const struct options *options, struct rdmux_stream **out)
{
    return stream_create("rdmux_stream_accept", listener->fabric, false, &options->attr, out);
}

/* Accepts the connection that options name for that stream. */
static enum rdmux_status accept_for(struct rdmux_stream *stream, struct rdmux_listener *listener,
                                    const struct options *options, int timeout_ms,
                                    struct rdmux_stream **out)
{
    struct rdmux_ep *ep = NULL;
    enum rdmux_status status = rdmux_accept(listener, stream->own_cq, &options->ep, timeout_ms, &ep);
    return finish(stream, ep, status, out);
}

static enum rdmux_status accept_shown(struct rdmux_listener *listener,
                                      const struct options *options, int timeout_ms,
                                      struct rdmux_stream **out)
{
    struct rdmux_stream *stream = NULL;
    enum rdmux_status status = create_alone(listener, options, &stream);
    return stream != NULL ? accept_for(stream, listener, options, timeout_ms, out) : status;
}

/* Fails the call for a reason of this side. The listener has shown the connection, and does not show
 * it again: its program is told, unless the connection was taken. */
static enum rdmux_status fail_shown(struct rdmux_listener *listener, uint64_t peer,
                                    enum rdmux_status status)
{
    char text[RDMUX_TEXT_MAX];
    snprintf(text, sizeof(text), "%s", rdmux_last_error());
    (void)rdmux_reject(listener, peer, 0, NULL, 0);
    return rdmux_fail(status, "%s", text);
}

static enum rdmux_status accept_any(struct rdmux_listener *listener, struct options *options,
                                    int timeout_ms, struct rdmux_stream **out)
{
    const uint64_t began_ns = rdmux_now(listener->fabric);
    for (;;) {
        struct rdmux_peer peer = RDMUX_PEER_INIT;
        int left_ms = time_left(listener->fabric, timeout_ms, began_ns);
        enum rdmux_status status = rdmux_listener_next(listener, left_ms, &peer);
        if (status != RDMUX_OK) {
            return status == RDMUX_AGAIN && timeout_ms != 0
                       ? rdmux_fail(RDMUX_TIMED_OUT,
                                    "rdmux_stream_accept: no connection came within %d ms",
                                    timeout_ms)
                       : status;
        }
        struct rdmux_stream *stream = NULL;
        status = create_alone(listener, options, &stream);
        if (stream == NULL) {
            return fail_shown(listener, peer.id, status);
        }
        left_ms = time_left(listener->fabric, timeout_ms, began_ns);
        if (left_ms == 0 && timeout_ms != 0) {
            left_ms = 1;
        }
        options->ep.peer = peer.id;
        status = accept_for(stream, listener, options, left_ms, out);
        if (status == RDMUX_NO_MEMORY || status == RDMUX_UNSUPPORTED) {
            return fail_shown(listener, peer.id, status);
        }
        if (status == RDMUX_OK || status == RDMUX_IN_PROGRESS) {
            return status;
        } /* else the peer's fault: the next connection may fare better */
    }
}

enum rdmux_status rdmux_stream_accept(struct rdmux_listener *listener, struct rdmux_cq *cq,
                                      const struct rdmux_stream_attr *attr, int timeout_ms,
                                      struct rdmux_stream **out)
{
    static const char call[] = "rdmux_stream_accept";
    struct options options;
    enum rdmux_status status = check_out(call, out);
    if (status == RDMUX_OK && (listener == NULL || *listener->fabric->alive == 0)) {
        status = rdmux_fail(RDMUX_INVALID, "%s: listener is NULL, or belongs to the parent process",
                            call);
    }
    if (status == RDMUX_OK && timeout_ms < -1) {
        status = rdmux_fail(RDMUX_INVALID, "%s: timeout_ms is below -1", call);
    }
    if (status == RDMUX_OK) {
        status = take_options(call, attr, &options);
    }
    if (status == RDMUX_OK) { /* here, as it would look like a fault of each connection */
        struct rdmux_ep_attr all;
        status = rdmux_ep_attr_check(&options.ep, listener->fabric, cq, &all);
    }
    if (status != RDMUX_OK) {
        return status;
    }
    if (cq == NULL) {
        return options.ep.peer != 0 ? accept_shown(listener, &options, timeout_ms, out)
                                    : accept_any(listener, &options, timeout_ms, out);
    }
    struct rdmux_ep *ep = NULL;
    status = rdmux_accept(listener, cq, &options.ep, timeout_ms, &ep);
    if (status != RDMUX_OK && status != RDMUX_IN_PROGRESS) {
        return status;
    }
    struct rdmux_stream *stream = NULL;
    enum rdmux_status created = stream_create(call, listener->fabric, true, &options.attr, &stream);
    if (stream == NULL) {
        (void)rdmux_ep_close(ep);
        return created;
    }
    return finish(stream, ep, status, out);
}

static enum rdmux_status check_stream_endpoint(const struct rdmux_ep *ep)
{
    static const char call[] = "rdmux_stream_open";
    if (ep->phase == RDMUX_PHASE_CLOSED || (ep->events & RDMUX_EVENT_LAYER) != 0) {
        return rdmux_fail(RDMUX_INVALID, "%s: the endpoint is closed, or belongs to a stream", call);
    }
    if (ep->is_rdmacm) {
        return rdmux_fail(RDMUX_UNSUPPORTED, "%s: peers of rdma:// are no streams", call);
    }
    if (ep->phase > RDMUX_PHASE_READY) {
        return rdmux_fail(ep->end.status == RDMUX_OK ? RDMUX_PEER_GONE
                                                     : (enum rdmux_status)ep->end.status,
                          "%s: the endpoint has ended: %s", call, ep->info.text);
    }
    if (ep->srq != NULL || ep->send.depth < RDMUX_STREAM_DEPTH_MIN ||
        ep->recv.depth < RDMUX_STREAM_DEPTH_MIN) {
        return rdmux_fail(RDMUX_INVALID, "%s: the endpoint has an SRQ, or a depth below %d", call,
                          RDMUX_STREAM_DEPTH_MIN);
    }
    if (ep->send.head != 0 || ep->recv.head != 0) {
        return rdmux_fail(RDMUX_INVALID, "%s: requests were posted on the endpoint", call);
    }
    if (ep->phase == RDMUX_PHASE_READY && (ep->limits.caps & NEEDED) != NEEDED) {
        return rdmux_fail(RDMUX_UNSUPPORTED, "%s: the path has no write with immediate data", call);
    }
    return RDMUX_OK;
}

enum rdmux_status rdmux_stream_open(struct rdmux_ep *ep, const struct rdmux_stream_attr *attr,
                                    struct rdmux_stream **out)
{
    static const char call[] = "rdmux_stream_open";
    struct options options;
    struct rdmux_stream *stream = NULL;
    enum rdmux_status status = check_out(call, out);
    if (status == RDMUX_OK) {
        struct rdmux_stream_attr own = RDMUX_STREAM_ATTR_INIT;
        const bool knows_ep = attr != NULL &&
                              attr->size >= offsetof(struct rdmux_stream_attr, ring);
        if (knows_ep) {
            memcpy(&own, attr, attr->size < sizeof(own) ? attr->size : sizeof(own));
            own.ep = NULL;
        }
        status = take_options(call, knows_ep ? &own : attr, &options);
    }
    if (status == RDMUX_OK && ep == NULL) {
        status = rdmux_fail(RDMUX_INVALID, "%s: ep is NULL", call);
    }
    if (status == RDMUX_OK && ep != NULL) {
        status = stream_create(call, ep->fabric, true, &options.attr, &stream);
    }
    if (stream == NULL) {
        return status;
    }
    struct rdmux_cq *cq = ep->cq;
    if (!rdmux_cq_enter(cq)) {
        stream_free(stream);
        return rdmux_cq_refused(cq, call, "endpoint");
    }
    status = check_stream_endpoint(ep);
    if (status == RDMUX_OK) {
        status = attach(stream, ep);
    }
    rdmux_cq_leave(cq);
    if (status != RDMUX_OK) {
        stream_free(stream);
        return status;
    }
    *out = stream;
    return RDMUX_OK;
}

/* ------------------------------------------------------------------------------------------ close */

/* Returns whether the end is on its way behind all bytes, or cannot be sent any more. */
static bool is_said(void *user)
{
    const struct rdmux_stream *stream = user;
    return stream->out.has_fin || stream->is_ended || stream->ep->phase > RDMUX_PHASE_READY;
}

/* Owner: sends what was written, and the end. A write that is lent is cut off, and the peer must not
 * take the rest for the end. */
static enum rdmux_status say_goodbye(struct rdmux_stream *stream)
{
    struct rdmux_stream_out *out = &stream->out;
    if (out->write.is_lent && out->taken < out->write.total) {
        return RDMUX_OK;
    }
    out->write.is_lent = false;
    out->is_fin_wanted = true;
    stream->in.is_discarding = !stream->in.read.is_lent;
    rdmux_stream_fill(stream);
    rdmux_stream_push(stream);
    if (is_said(stream)) {
        return RDMUX_OK;
    }
    enum rdmux_status status = rdmux_cq_wait_until(stream->ep->cq, is_said, stream,
                                                   (int)stream->linger_ms);
    return status == RDMUX_TIMED_OUT
               ? rdmux_fail(status, "rdmux_stream_close: the peer did not take everything in %u ms",
                            stream->linger_ms)
               : status;
}

static enum rdmux_status linger(struct rdmux_stream *stream)
{
    struct rdmux_fabric *fabric = stream->fabric;
    struct rdmux_ep *ep = stream->ep;
    const uint64_t began_ns = rdmux_now(fabric);
    enum rdmux_status status = rdmux_stream_enter(stream, "rdmux_stream_close");
    if (status != RDMUX_OK) {
        return status;
    }
    const bool has_path = ep->phase != RDMUX_PHASE_SETUP && stream->linger_ms != RDMUX_OFF;
    if (has_path) {
        status = say_goodbye(stream);
    }
    rdmux_cq_leave(ep->cq);
    if (!has_path || status != RDMUX_OK) {
        return status;
    }
    const int left_ms = time_left(fabric, (int)stream->linger_ms, began_ns);
    return rdmux_ep_shutdown(ep, left_ms == 0 ? 1 : left_ms);
}

enum rdmux_status rdmux_stream_close(struct rdmux_stream *stream)
{
    if (stream == NULL) {
        return RDMUX_OK;
    }
    if (*stream->fabric->alive == 0) {
        return rdmux_fail(RDMUX_INVALID, "rdmux_stream_close: the stream belongs to the parent "
                                         "process");
    }
    enum rdmux_status status = linger(stream);
    (void)rdmux_ep_close(stream->ep);
    stream_free(stream);
    return status;
}
