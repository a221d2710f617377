/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The bytes below a TLS session: OpenSSL's access to a non-blocking socket. */
#include "negotiation/tls.h"

#ifdef RDMUX_HAVE_OPENSSL

#include "api/base/bytes.h"
#include "negotiation/tls_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

enum {
    UNAUTHENTICATED_MAX = 32 << 10, /* bytes that TLS takes from a peer before authentication */
    CLIENT_HELLO_MAX = 16 << 10, /* bytes; OpenSSL allocates up to 128 KiB for a claimed length */
    TLS_RECORD_AT_LENGTH = 3,    /* in a record's header */
    RECORD_HANDSHAKE = 22,
    RECORD_FIRST = 20, /* types of TLS records */
    RECORD_LAST = 23,
};

/* Connector: returns whether the peer's first byte is that of a TLS record (RFC 8446, 5.1), and not
 * of a HELLO in clear. Takes nothing from the socket before that is known. */
static bool is_answer_tls(struct rdmux_tls *tls, BIO *bio)
{
    uint8_t first = 0;
    if (tls->role != RDMUX_ROLE_CONNECT || tls->is_answered) {
        return true;
    }
    ssize_t looked = recv(tls->socket, &first, 1, MSG_PEEK | MSG_DONTWAIT);
    if (looked < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
        BIO_set_retry_read(bio);
        return false;
    }
    if (looked < 0) {
        tls->error = errno; /* reported once: the next look may find earlier bytes */
        return false;
    }
    if (looked == 0) {
        return true; /* rdmux_tls_take() notes the end */
    }
    tls->is_answered = true;
    if (first < RECORD_FIRST || first > RECORD_LAST) {
        rdmux_tls_write_stage(tls, STAGE_REFUSED);
    }
    return tls->stage != STAGE_REFUSED;
}

ssize_t rdmux_tls_take(struct rdmux_tls *tls, void *out, size_t size)
{
    ssize_t got;
    do {
        tls->base.system_calls++;
        got = recv(tls->socket, out, size, MSG_DONTWAIT);
    } while (got < 0 && errno == EINTR);
    tls->base.is_emptied = got < (ssize_t)size;
    if (got == 0) {
        tls->has_ended = true;
    } else if (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK) {
        tls->error = errno;
    }
    return got;
}

ssize_t rdmux_tls_give(struct rdmux_tls *tls, const void *bytes, size_t size)
{
    ssize_t sent;
    do {
        tls->base.system_calls++;
        sent = send(tls->socket, bytes, size, MSG_NOSIGNAL | MSG_DONTWAIT);
    } while (sent < 0 && errno == EINTR);
    if (sent < 0 && errno != EAGAIN && errno != EWOULDBLOCK) {
        tls->error = errno;
    }
    return sent;
}

/* Before authentication records are read one by one, whatever size OpenSSL asks for. A call ends
 * after some records, and the socket signals the rest. */
static size_t room_before_record_ends(const struct rdmux_tls *tls, size_t room)
{
    size_t left = tls->body_left != 0 ? tls->body_left : sizeof(tls->header) - tls->header_size;
    return room < left ? room : left;
}

static bool is_between_records(const struct rdmux_tls *tls)
{
    return tls->header_size == 0 && tls->body_left == 0;
}

/* Returns whether the session may take bytes before authentication, and lowers *room to the allowed
 * size. */
static bool may_take_handshake(struct rdmux_tls *tls, BIO *bio, size_t *room)
{
    size_t left = UNAUTHENTICATED_MAX - tls->taken;
    if (left == 0) {
        snprintf(tls->trouble, sizeof(tls->trouble), "it sent %d bytes without authenticating",
                 UNAUTHENTICATED_MAX);
        return false;
    }
    if (is_between_records(tls) && tls->call_records >= RDMUX_TLS_SHAKE_RECORDS) {
        BIO_set_retry_read(bio);
        return false;
    }
    *room = room_before_record_ends(tls, *room < left ? *room : left);
    return true;
}

/* Checks the length of handshake messages in clear, however they are cut into records. False: one
 * is too long. */
static bool is_message_short(struct rdmux_tls *tls, const char *bytes, size_t size)
{
    while (size != 0) {
        size_t part = size < tls->message_left ? size : tls->message_left;
        tls->message_left -= part;
        bytes += part;
        size -= part;
        if (size != 0) {
            tls->message[tls->message_size++] = (uint8_t)*bytes++;
            size--;
        }
        if (tls->message_size == sizeof(tls->message)) {
            tls->message_left = rdmux_load_be32(tls->message) & 0xffffff; /* behind the type */
            tls->message_size = 0;
            if (tls->message_left > CLIENT_HELLO_MAX) {
                snprintf(tls->trouble, sizeof(tls->trouble), "its ClientHello is to have %zu bytes",
                         tls->message_left);
                return false;
            }
        }
    }
    return true;
}

/* Counts bytes taken before authentication. False: the session must not see them. */
static bool note_handshake(struct rdmux_tls *tls, const char *bytes, size_t size)
{
    tls->taken += size;
    if (tls->body_left != 0) {
        tls->body_left -= size;
        return tls->role != RDMUX_ROLE_ACCEPT || tls->header[0] != RECORD_HANDSHAKE ||
               is_message_short(tls, bytes, size);
    }
    memcpy(tls->header + tls->header_size, bytes, size);
    tls->header_size += size;
    if (tls->header_size == sizeof(tls->header)) {
        tls->body_left = rdmux_load_be16(tls->header + TLS_RECORD_AT_LENGTH);
        tls->header_size = 0;
        tls->call_records++;
    }
    return true;
}

static int bio_read(BIO *bio, char *out, int size)
{
    struct rdmux_tls *tls = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    if (!is_answer_tls(tls, bio)) {
        return -1;
    }
    size_t room = (size_t)size;
    if (tls->stage != STAGE_OPEN && !may_take_handshake(tls, bio, &room)) {
        return -1;
    }
    ssize_t got = rdmux_tls_take(tls, out, room);
    if (got > 0 && tls->stage != STAGE_OPEN && !note_handshake(tls, out, (size_t)got)) {
        return -1;
    }
    if (got < 0 && tls->error == 0) {
        BIO_set_retry_read(bio);
    }
    return (int)got;
}

static int bio_write(BIO *bio, const char *bytes, int size)
{
    struct rdmux_tls *tls = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    ssize_t sent = rdmux_tls_give(tls, bytes, (size_t)size);
    if (sent < 0 && tls->error == 0) {
        BIO_set_retry_write(bio);
    }
    return (int)sent;
}

static long bio_control(BIO *bio, int command, long number, void *pointer)
{
    (void)bio;
    (void)number;
    (void)pointer;
    return command == BIO_CTRL_FLUSH ? 1 : 0; /* nothing is buffered; no other command is known */
}

static int bio_create(BIO *bio)
{
    BIO_set_init(bio, 1);
    return 1;
}

BIO_METHOD *rdmux_tls_socket_io(void)
{
    BIO_METHOD *method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "rdmux socket");
    if (method != NULL &&
        (BIO_meth_set_read(method, bio_read) != 1 || BIO_meth_set_write(method, bio_write) != 1 ||
         BIO_meth_set_ctrl(method, bio_control) != 1 ||
         BIO_meth_set_create(method, bio_create) != 1)) {
        BIO_meth_free(method);
        return NULL;
    }
    return method;
}

#endif
