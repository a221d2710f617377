/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* I/O functions of data sockets: in clear, or through a TLS session of the core. */
#include "tcp_fallback/tcp_stream.h"

#include "api/base/stream.h"
#include "api/system/system.h"
#include "tcp_fallback/tcp_capture.h"
#include "tcp_fallback/tcp_completion.h"
#include "tcp_fallback/tcp_endpoint.h"
#include "tcp_fallback/tcp_lane.h"
#include "tcp_fallback/tcp_socket.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

static_assert((int)TCP_SCRATCH_SIZE >= (int)RDMUX_STREAM_PIECE,
              "a piece is gathered in a buffer of that size");

enum { RECORDS_OF_A_TURN = 64 };

/* ------------------------------------------------------------------------------------- in clear */

static ssize_t clear_receive(struct tcp_lane *lane, void *to, size_t size)
{
    return recv(lane->fd, to, size, MSG_DONTWAIT);
}

static ssize_t clear_receive_list(struct tcp_lane *lane, struct iovec *iov, int count)
{
    struct msghdr message = { .msg_iov = iov, .msg_iovlen = (size_t)count };
    return recvmsg(lane->fd, &message, MSG_DONTWAIT);
}

static ssize_t clear_send(struct tcp_lane *lane, const void *bytes, size_t size)
{
    return send(lane->fd, bytes, size, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static ssize_t clear_send_list(struct tcp_lane *lane, struct iovec *iov, int count)
{
    struct msghdr message = { .msg_iov = iov, .msg_iovlen = (size_t)count };
    return sendmsg(lane->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static const struct tcp_stream in_clear = {
    .receive = clear_receive,
    .receive_list = clear_receive_list,
    .send = clear_send,
    .send_list = clear_send_list,
};

void rdmux_tcp_stream_clear(struct tcp_lane *lane)
{
    lane->stream = in_clear;
}

/* --------------------------------------------------------------------------- through a session */

/* Adds the session's system calls, less the one that the caller has counted. */
static void count_calls(struct tcp_lane *lane, uint64_t before)
{
    lane->ep->base.system_calls += lane->stream.session->system_calls - before;
    lane->ep->base.system_calls--;
}

/* Returns the result like a system call: the bytes moved, or -1 and errno from status if none
 * moved. */
static ssize_t outcome_of_call(size_t moved, enum rdmux_status status)
{
    if (moved > 0) {
        return (ssize_t)moved; /* a failure stays, and the next call reports it */
    }
    switch (status) {
    case RDMUX_AGAIN:
        errno = EAGAIN;
        break;
    case RDMUX_PEER_GONE:
        errno = ECONNRESET;
        break;
    case RDMUX_NO_MEMORY:
        errno = ENOMEM;
        break;
    default:
        errno = EBADMSG;
        break;
    }
    return -1;
}

/* Advances a list by `bytes`. *at is the number of bytes done in its first entry. */
static void advance_piece(struct iovec **iov, int *count, size_t *at, size_t bytes)
{
    *at += bytes;
    while (*count > 0 && *at >= (*iov)[0].iov_len) {
        *at -= (*iov)[0].iov_len;
        (*iov)++;
        (*count)--;
    }
}

/* Receives as many bytes as are there and fit, from at most RECORDS_OF_A_TURN records. Bytes that
 * stay in the session do not make the socket readable, so the endpoint is scheduled for the next
 * poll. */
static ssize_t secure_receive_list(struct tcp_lane *lane, struct iovec *iov, int count)
{
    struct rdmux_path_stream *session = lane->stream.session;
    uint64_t calls = session->system_calls;
    enum rdmux_status status = RDMUX_OK;
    size_t moved = 0;
    size_t at = 0; /* of iov[0] */
    bool more = true;
    for (int records = 0; records < RECORDS_OF_A_TURN && count > 0 && more; records++) {
        size_t got = 0;
        status = session->ops->receive(session, (uint8_t *)iov[0].iov_base + at,
                                       iov[0].iov_len - at, &got);
        if (status != RDMUX_OK) {
            break;
        }
        moved += got;
        advance_piece(&iov, &count, &at, got);
        more = !session->is_emptied || session->ops->holds_bytes(session);
    }
    count_calls(lane, calls);
    if (moved > 0 && session->ops->holds_bytes(session)) {
        rdmux_tcp_attend(lane->ep);
    }
    return outcome_of_call(moved, status);
}

static ssize_t secure_receive(struct tcp_lane *lane, void *to, size_t size)
{
    return secure_receive_list(lane, &(struct iovec){ to, size }, 1);
}

/* Returns the next piece of a list, from byte `at` of its first entry on: in place if it is
 * contiguous, else gathered in the waste buffer. */
static const void *next_piece(struct tcp_lane *lane, const struct iovec *iov, int count, size_t at,
                              size_t *size)
{
    uint8_t *gathered = rdmux_tcp_cq_of(lane->ep)->waste;
    size_t have = iov[0].iov_len - at;
    const void *first = (const uint8_t *)iov[0].iov_base + at;
    *size = have < RDMUX_STREAM_PIECE ? have : RDMUX_STREAM_PIECE;
    if (count == 1 || have >= RDMUX_STREAM_PIECE) {
        return first;
    }
    memcpy(gathered, first, have);
    for (int i = 1; i < count && have < RDMUX_STREAM_PIECE; i++) {
        size_t room = RDMUX_STREAM_PIECE - have;
        size_t part = iov[i].iov_len < room ? iov[i].iov_len : room;
        memcpy(gathered + have, iov[i].iov_base, part);
        have += part;
    }
    *size = have;
    return gathered;
}

static ssize_t secure_send_list(struct tcp_lane *lane, struct iovec *iov, int count)
{
    struct rdmux_path_stream *session = lane->stream.session;
    uint64_t calls = session->system_calls;
    enum rdmux_status status = RDMUX_OK;
    size_t moved = 0;
    size_t at = 0; /* of iov[0] */
    while (count > 0 && status == RDMUX_OK) {
        size_t size = 0;
        size_t done = 0;
        const void *piece = next_piece(lane, iov, count, at, &size);
        status = session->ops->send(session, piece, size, &done);
        if (status != RDMUX_OK) {
            break;
        }
        moved += done;
        advance_piece(&iov, &count, &at, done);
    }
    count_calls(lane, calls);
    return outcome_of_call(moved, status);
}

static ssize_t secure_send(struct tcp_lane *lane, const void *bytes, size_t size)
{
    return secure_send_list(lane, &(struct iovec){ (void *)(uintptr_t)bytes, size }, 1);
}

/* ------------------------------------------------------------------------------------ selection */

enum rdmux_status rdmux_tcp_stream_begin(struct tcp_lane *lane)
{
    struct rdmux_path_stream *session = NULL;
    enum rdmux_status status = rdmux_path_stream(&lane->ep->base, lane->fd, lane->index, &session);
    if (status == RDMUX_OK && session != NULL) {
        lane->stream = (struct tcp_stream){
            .receive = secure_receive,
            .receive_list = secure_receive_list,
            .send = secure_send,
            .send_list = secure_send_list,
            .session = session,
        };
    }
    return status == RDMUX_OK ? rdmux_tcp_capture_begin(lane) : status;
}

enum rdmux_status rdmux_tcp_stream_step(struct tcp_lane *lane)
{
    struct rdmux_path_stream *session = lane->stream.session;
    bool wants_room = false;
    if (session == NULL) {
        return RDMUX_OK;
    }
    enum rdmux_status status = session->ops->open(session, &wants_room);
    if (status == RDMUX_AGAIN) {
        status = rdmux_tcp_watch(lane,
                                 wants_room ? RDMUX_READY_OUT : RDMUX_READY_IN | RDMUX_READY_END);
        return status == RDMUX_OK ? RDMUX_IN_PROGRESS : status;
    }
    if (status != RDMUX_OK) {
        rdmux_provider_error("tcp: data socket %u of %u: %s", lane->index + 1, lane->ep->lane_count,
                             session->text);
    }
    return status;
}

const char *rdmux_tcp_stream_reason(const struct tcp_lane *lane)
{
    const struct rdmux_path_stream *session = lane->stream.session;
    return session == NULL ? "" : session->text;
}

void rdmux_tcp_stream_end(struct tcp_lane *lane)
{
    rdmux_tcp_capture_end(lane);
    struct rdmux_path_stream *session = lane->stream.session;
    rdmux_tcp_stream_clear(lane);
    if (session != NULL) {
        session->ops->close(session);
    }
}
