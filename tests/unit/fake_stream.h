/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* A fake stream for a provider, with the awkward properties of TLS only. Both ends have to send
 * before the first byte of data. Bytes travel in records that are readable only once they are
 * whole. The stream reads ahead. A record that did not fit into the socket has to be offered again
 * unchanged. The stream masks the bytes on the wire, so a provider that bypasses the stream
 * fails. */
#ifndef RDMUX_TESTS_FAKE_STREAM_H
#define RDMUX_TESTS_FAKE_STREAM_H

#include "api/base/stream.h"
#include "tests/unit/fake_core.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum {
    FAKE_RECORD_HEADER = 2,
    FAKE_AHEAD = 40000, /* bytes read at a time */
    FAKE_MASK = 0x5a,
};

struct fake_stream {
    struct rdmux_path_stream base;
    int socket;
    bool said;
    bool open;
    bool drained;
    size_t from; /* in[from..to) is unread */
    size_t to;
    size_t record; /* bytes left of the record being read */
    size_t sent;   /* bytes of out already sent */
    size_t out_size;
    uint8_t in[FAKE_AHEAD];
    uint8_t plain[RDMUX_STREAM_PIECE]; /* the bytes that out was made of */
    uint8_t out[FAKE_RECORD_HEADER + RDMUX_STREAM_PIECE];
};

/* Whether endpoints that connect from now on get a stream. */
static bool fake_streams;

static inline struct fake_stream *fake_stream_of(struct rdmux_path_stream *stream)
{
    return (struct fake_stream *)stream;
}

/* Megabytes pass through it in builds without optimisation, so it takes words. */
static inline void fake_mask(uint8_t *to, const uint8_t *from, size_t length)
{
    uint64_t mask = 0;
    memset(&mask, FAKE_MASK, sizeof(mask));
    for (; length >= sizeof(mask); length -= sizeof(mask)) {
        uint64_t word = 0;
        memcpy(&word, from, sizeof(word));
        word ^= mask;
        memcpy(to, &word, sizeof(word));
        from += sizeof(word);
        to += sizeof(word);
    }
    for (size_t i = 0; i < length; i++) {
        to[i] = from[i] ^ FAKE_MASK;
    }
}

static inline enum rdmux_status fake_stream_ends(struct fake_stream *stream)
{
    (void)snprintf(stream->base.text, sizeof(stream->base.text), "fake: the socket has ended");
    return RDMUX_PEER_GONE;
}

static inline enum rdmux_status fake_stream_fill(struct fake_stream *stream)
{
    memmove(stream->in, stream->in + stream->from, stream->to - stream->from);
    stream->to -= stream->from;
    stream->from = 0;
    stream->base.system_calls++;
    ssize_t got = recv(stream->socket, stream->in + stream->to, sizeof(stream->in) - stream->to,
                       MSG_DONTWAIT);
    stream->base.is_emptied = got < (ssize_t)(sizeof(stream->in) - stream->to);
    if (got > 0) {
        stream->to += (size_t)got;
        return RDMUX_OK;
    }
    stream->drained = true;
    return got < 0 && errno == EAGAIN ? RDMUX_AGAIN : fake_stream_ends(stream);
}

static inline enum rdmux_status fake_stream_open(struct rdmux_path_stream *base, bool *wants_room)
{
    struct fake_stream *stream = fake_stream_of(base);
    *wants_room = false;
    if (!stream->said) {
        fake_expect(send(stream->socket, "!", 1, MSG_NOSIGNAL | MSG_DONTWAIT) == 1);
        stream->said = true;
    }
    if (!stream->open) {
        enum rdmux_status status = fake_stream_fill(stream);
        if (status != RDMUX_OK) {
            return status;
        }
        fake_expect(stream->in[stream->from++] == '!');
        stream->open = true;
    }
    return RDMUX_OK;
}

static inline enum rdmux_status fake_stream_receive(struct rdmux_path_stream *base, void *out,
                                                    size_t size, size_t *got)
{
    struct fake_stream *stream = fake_stream_of(base);
    fake_expect(stream->open && size > 0);
    while (stream->record == 0) {
        const uint8_t *at = stream->in + stream->from;
        size_t have = stream->to - stream->from;
        size_t length = have < FAKE_RECORD_HEADER ? 0 : (size_t)at[0] << 8 | at[1];
        if (have >= FAKE_RECORD_HEADER && have - FAKE_RECORD_HEADER >= length) {
            stream->from += FAKE_RECORD_HEADER;
            stream->record = length;
            break;
        }
        enum rdmux_status status = fake_stream_fill(stream);
        if (status != RDMUX_OK) {
            return status;
        }
    }
    stream->drained = false;
    *got = size < stream->record ? size : stream->record;
    fake_mask(out, stream->in + stream->from, *got);
    stream->from += *got;
    stream->record -= *got;
    return RDMUX_OK;
}

static inline enum rdmux_status fake_stream_send(struct rdmux_path_stream *base, const void *bytes,
                                                 size_t size, size_t *done)
{
    struct fake_stream *stream = fake_stream_of(base);
    fake_expect(stream->open && size > 0);
    if (stream->out_size == 0) {
        size_t length = size < sizeof(stream->plain) ? size : sizeof(stream->plain);
        memcpy(stream->plain, bytes, length);
        stream->out[0] = (uint8_t)(length >> 8);
        stream->out[1] = (uint8_t)length;
        fake_mask(stream->out + FAKE_RECORD_HEADER, stream->plain, length);
        stream->out_size = FAKE_RECORD_HEADER + length;
        stream->sent = 0;
    }
    size_t length = stream->out_size - FAKE_RECORD_HEADER;
    fake_expect(size >= length);
    bool is_same = memcmp(bytes, stream->plain, length) == 0;
    for (size_t i = 0; i < length && !is_same; i++) { /* a region revoked meanwhile reads as zeros */
        uint8_t again = ((const uint8_t *)bytes)[i];
        fake_expect(again == stream->plain[i] || again == 0);
    }
    while (stream->sent < stream->out_size) {
        stream->base.system_calls++;
        ssize_t sent = send(stream->socket, stream->out + stream->sent,
                            stream->out_size - stream->sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0) {
            return errno == EAGAIN ? RDMUX_AGAIN : RDMUX_PEER_GONE;
        }
        stream->sent += (size_t)sent;
    }
    stream->out_size = 0;
    *done = length;
    return RDMUX_OK;
}

static inline bool fake_stream_holds_bytes(const struct rdmux_path_stream *base)
{
    const struct fake_stream *stream = (const struct fake_stream *)base;
    return !stream->drained && stream->to > stream->from;
}

static inline void fake_stream_close(struct rdmux_path_stream *base)
{
    free(base);
}

static const struct rdmux_path_stream_ops fake_stream_ops = {
    .open = fake_stream_open,
    .receive = fake_stream_receive,
    .send = fake_stream_send,
    .holds_bytes = fake_stream_holds_bytes,
    .close = fake_stream_close,
};

bool rdmux_paths_are_encrypted(const struct rdmux_fabric *fabric)
{
    (void)fabric;
    return fake_streams;
}

enum rdmux_status rdmux_path_stream(struct rdmux_provider_ep *path, int socket, uint32_t index,
                                    struct rdmux_path_stream **out)
{
    (void)path;
    (void)index;
    *out = NULL;
    if (fake_streams) {
        struct fake_stream *stream = calloc(1, sizeof(*stream));
        fake_expect(stream != NULL);
        stream->base.ops = &fake_stream_ops;
        stream->socket = socket;
        *out = &stream->base;
    }
    return RDMUX_OK;
}

#endif
