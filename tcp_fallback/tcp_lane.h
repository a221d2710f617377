/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * A lane: a data socket with its I/O functions.
 *
 * Several sockets. Only socket 0 carries frames. The payload of a frame marked STRIPED is spread
 * over all sockets: socket i carries the i-th share, without a header. To keep the order, the bytes
 * behind such a frame are parsed only after all shares have come. With one socket none of this code
 * runs.
 */
#ifndef RDMUX_TCP_LANE_H
#define RDMUX_TCP_LANE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

struct rdmux_path_stream;
struct tcp_ep;
struct tcp_lane;
struct tcp_tap;

/* I/O functions of a data socket, in clear or encrypted. They behave like non-blocking recv(2),
 * recvmsg(2), send(2) and sendmsg(2). The caller counts one system call. On EBADMSG and ENOMEM
 * rdmux_tcp_stream_reason() has the cause. */
struct tcp_stream {
    ssize_t (*receive)(struct tcp_lane *lane, void *to, size_t size);
    ssize_t (*receive_list)(struct tcp_lane *lane, struct iovec *iov, int count);
    ssize_t (*send)(struct tcp_lane *lane, const void *bytes, size_t size);
    ssize_t (*send_list)(struct tcp_lane *lane, struct iovec *iov, int count);
    struct rdmux_path_stream *session; /* NULL: in clear */
};

/* How far a data socket has come, in order. */
enum tcp_lane_state {
    TCP_LANE_NEW,    /* no socket yet, or connect() is under way */
    TCP_LANE_JOINED, /* connected, and its join was sent or received; a TLS session opens */
    TCP_LANE_READY,  /* its bytes may be sent and received */
};

/* A data socket. */
struct tcp_lane {
    struct tcp_ep *ep;
    struct tcp_stream stream;
    struct tcp_tap *tap; /* tcp_capture.c; NULL: the lane is not captured */
    int fd;
    uint32_t index;
    uint32_t events; /* registered with the poller */
    bool is_watched;
    bool is_blocked; /* the last send found no room; rdmux_tcp_set_blocked() */
    uint8_t state;   /* enum tcp_lane_state; tcp_endpoint.c alone writes it */
    /* [in_at, in_end) is the part of this socket's share still to come, of the incoming payload;
     * [out_at, out_end) the part still to be sent, of the outgoing payload. */
    uint64_t in_at;
    uint64_t in_end;
    uint64_t out_at;
    uint64_t out_end;
};

#endif
