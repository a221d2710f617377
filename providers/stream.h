/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * What carries a path's bytes over a socket where peers authenticate: a TLS session (tls.c), behind
 * a table, so that a provider that is part of the library needs to know nothing of it. It never
 * waits. The owner of the endpoint's cq alone calls it.
 */
#ifndef RDMUX_PROVIDERS_STREAM_H
#define RDMUX_PROVIDERS_STREAM_H

#include <rdmux/provider.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rdmux_stream;

struct rdmux_stream_ops {
    /* Goes on with getting to know the other end. RDMUX_AGAIN: *wants_room says what for, room in
     * the socket or bytes. Failures, here and below: stream->text says why, and all that follows
     * fails alike. */
    enum rdmux_status (*open)(struct rdmux_stream *stream, bool *wants_room);
    /* At most size bytes; *got is not 0 on RDMUX_OK. RDMUX_AGAIN: the socket has nothing more, and
     * will tell. RDMUX_PEER_GONE, RDMUX_PROTOCOL: what came is not what the other end has sent. */
    enum rdmux_status (*receive)(struct rdmux_stream *stream, void *out, size_t size, size_t *got);
    /* A part of the bytes, RDMUX_STREAM_PIECE at most. After RDMUX_AGAIN the next bytes are the
     * same ones, wherever they lie then, and perhaps more; those offered first may have been read,
     * and are what is sent. RDMUX_PEER_GONE: receiving goes on. */
    enum rdmux_status (*send)(struct rdmux_stream *stream, const void *bytes, size_t size,
                              size_t *done);
    /* May there be something to be received that the socket does not tell of? */
    bool (*holds_bytes)(const struct rdmux_stream *stream);
    /* The socket stays open. One that the control channel shares: nothing. */
    void (*close)(struct rdmux_stream *stream);
};

enum { RDMUX_STREAM_PIECE = 16 << 10 }; /* bytes that travel as one */

struct rdmux_stream {
    const struct rdmux_stream_ops *ops;
    uint64_t system_calls; /* so far */
    bool emptied;          /* the socket had less than the last look had room for */
    char text[RDMUX_TEXT_MAX];
};

/* Does every path of this fabric that can be carried by streams have to be? */
bool rdmux_paths_are_encrypted(const struct rdmux_fabric *fabric);

/* What is to carry socket number `index` of this path. *out NULL: nobody authenticates, the socket
 * itself. A shared socket's stream is open: it is the control channel's session, and the
 * channel's. */
enum rdmux_status rdmux_path_stream(struct rdmux_provider_ep *path, int socket, uint32_t index,
                                    struct rdmux_stream **out);

#endif
