/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* A TLS session that carries a path's data (api/base/stream.h). */
#include "negotiation/tls.h"

#ifdef RDMUX_HAVE_OPENSSL

#include "negotiation/tls_internal.h"

#include <stdio.h>

enum { READ_ROOM = 64 << 10 }; /* bytes that such a session reads from the socket at a time */

static struct rdmux_tls *tls_of(struct rdmux_path_stream *stream)
{
    return (struct rdmux_tls *)stream;
}

/* Makes a failure permanent. */
static enum rdmux_status note_stream_failure(struct rdmux_tls *tls, enum rdmux_status status)
{
    if (status != RDMUX_OK && status != RDMUX_AGAIN && tls->failed == RDMUX_OK) {
        tls->failed = status;
        snprintf(tls->base.text, sizeof(tls->base.text), "%s", rdmux_last_error());
    }
    return status;
}

static enum rdmux_status stream_open(struct rdmux_path_stream *stream, bool *wants_room)
{
    struct rdmux_tls *tls = tls_of(stream);
    if (tls->failed != RDMUX_OK || tls->stage == STAGE_OPEN) {
        return tls->failed;
    }
    enum rdmux_status status = note_stream_failure(tls, rdmux_tls_shake(tls));
    *wants_room = tls->wants_room;
    return status;
}

static enum rdmux_status stream_receive(struct rdmux_path_stream *stream, void *out, size_t size,
                                        size_t *got)
{
    struct rdmux_tls *tls = tls_of(stream);
    return tls->failed != RDMUX_OK
               ? tls->failed
               : note_stream_failure(tls, rdmux_tls_receive(tls, out, size, got));
}

static enum rdmux_status stream_send(struct rdmux_path_stream *stream, const void *bytes,
                                     size_t size, size_t *done)
{
    struct rdmux_tls *tls = tls_of(stream);
    if (tls->failed != RDMUX_OK) {
        return tls->failed;
    }
    enum rdmux_status status = rdmux_tls_send(tls, bytes, size, done);
    if (status == RDMUX_PEER_GONE) { /* bytes sent by the peer before are still to be received */
        tls->error = 0;
        return status;
    }
    return note_stream_failure(tls, status);
}

static bool stream_holds_bytes(const struct rdmux_path_stream *stream)
{
    const struct rdmux_tls *tls = (const struct rdmux_tls *)stream;
    return tls->failed != RDMUX_OK || rdmux_tls_holds_bytes(tls);
}

static void stream_close(struct rdmux_path_stream *stream)
{
    if (tls_of(stream)->is_by_key) {
        rdmux_tls_destroy(tls_of(stream));
    }
}

static const struct rdmux_path_stream_ops stream_ops = {
    .open = stream_open,
    .receive = stream_receive,
    .send = stream_send,
    .holds_bytes = stream_holds_bytes,
    .close = stream_close,
};

void rdmux_tls_allow_data(struct rdmux_tls *tls)
{
    /* The split limits one record. It was lowered with the context's length, but is not raised with
     * it. */
    (void)SSL_set_max_send_fragment(tls->ssl, RDMUX_STREAM_PIECE);
    (void)SSL_set_split_send_fragment(tls->ssl, RDMUX_STREAM_PIECE);
}

struct rdmux_path_stream *rdmux_tls_carry_data(struct rdmux_tls *tls)
{
    (void)SSL_clear_mode(tls->ssl, SSL_MODE_RELEASE_BUFFERS);
    SSL_set_read_ahead(tls->ssl, 1);
    SSL_set_default_read_buffer_len(tls->ssl, READ_ROOM);
    tls->base.ops = &stream_ops;
    tls->carries_data = true;
    return &tls->base;
}

enum rdmux_status rdmux_tls_create_data(const struct rdmux_auth *auth, enum rdmux_role role,
                                        int socket, const uint8_t key[RDMUX_DATA_KEY_SIZE],
                                        struct rdmux_path_stream **out)
{
    struct rdmux_tls *tls = rdmux_tls_create_session(auth, role, socket, key);
    if (tls == NULL) {
        return RDMUX_NO_MEMORY;
    }
    rdmux_tls_allow_data(tls);
    *out = rdmux_tls_carry_data(tls);
    return RDMUX_OK;
}

void rdmux_tls_renew_after(struct rdmux_path_stream *stream, uint64_t records)
{
    tls_of(stream)->renew_after = records;
}

#endif
