/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Encrypted byte stream over the socket of a path, used if peers authenticate. A TLS session
 * (tls.c) behind a table of functions, so that built-in providers do not depend on TLS. No function
 * blocks. Only the owner of the endpoint's cq calls them.
 */
#ifndef RDMUX_API_BASE_STREAM_H
#define RDMUX_API_BASE_STREAM_H

#include <rdmux/provider.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rdmux_path_stream;

struct rdmux_path_stream_ops {
    /* Continues the handshake. RDMUX_AGAIN: the handshake waits for room in the socket (*wants_room
     * true) or for bytes. On failure, here and below, stream->text has the reason and all later
     * calls fail alike. */
    enum rdmux_status (*open)(struct rdmux_path_stream *stream, bool *wants_room);
    /* Receives at most size bytes; *got is not 0 on RDMUX_OK. RDMUX_AGAIN: the socket is empty and
     * becomes readable later. RDMUX_PEER_GONE: the connection ended. RDMUX_PROTOCOL: the bytes
     * differ from those that the peer sent. */
    enum rdmux_status (*receive)(struct rdmux_path_stream *stream, void *out, size_t size,
                                 size_t *got);
    /* Sends a part of the bytes, RDMUX_STREAM_PIECE at most. After RDMUX_AGAIN the caller must
     * offer the same bytes again, at any address, and may append more. The stream may have read the
     * bytes of the first offer already, and then sends them. RDMUX_PEER_GONE: receiving still
     * works. */
    enum rdmux_status (*send)(struct rdmux_path_stream *stream, const void *bytes, size_t size,
                              size_t *done);
    /* Returns whether the stream may hold received bytes or a failure. no poller reports
     * them. */
    bool (*holds_bytes)(const struct rdmux_path_stream *stream);
    /* Ends the session and leaves the socket open. Does nothing if the control channel shares the
     * socket. */
    void (*close)(struct rdmux_path_stream *stream);
};

enum { RDMUX_STREAM_PIECE = 16 << 10 }; /* most bytes of one record */

struct rdmux_path_stream {
    const struct rdmux_path_stream_ops *ops;
    uint64_t system_calls; /* so far */
    bool is_emptied;       /* the last read got fewer bytes from the socket than it had room for */
    char text[RDMUX_TEXT_MAX];
};

/* Returns whether every path of this fabric that supports streams must use them. */
bool rdmux_paths_are_encrypted(const struct rdmux_fabric *fabric);

/* Returns the stream for socket number `index` of this path. *out NULL: peers do not authenticate,
 * use the socket itself. The stream of a shared socket is open already: it is the session of the
 * control channel, which owns it. */
enum rdmux_status rdmux_path_stream(struct rdmux_provider_ep *path, int socket, uint32_t index,
                                    struct rdmux_path_stream **out);

#endif
