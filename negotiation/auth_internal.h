/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Shared by auth.c and the tls files. Only with OpenSSL. */
#ifndef RDMUX_NEGOTIATION_AUTH_INTERNAL_H
#define RDMUX_NEGOTIATION_AUTH_INTERNAL_H

#include "api/base/error.h"
#include "api/base/hooks.h"
#include "negotiation/auth.h"

#include <openssl/ssl.h>

struct rdmux_auth {
    struct rdmux_fabric *fabric;
    const struct rdmux_auth_host *host;
    uint32_t method; /* RDMUX_AUTH_* */
    uint32_t flags;
    SSL_CTX *connector; /* for sessions in that role */
    SSL_CTX *acceptor;
    SSL_CTX *data;         /* for sessions of data sockets, in both roles */
    BIO_METHOD *socket_io; /* tls_socket.c */
    struct rdmux_auth_key *keys;
    size_t key_count;
    size_t own; /* index into keys: the key this side connects with */
    /* Replaces the key of an unknown identity, so that both cases fail alike. */
    uint8_t decoy[RDMUX_AUTH_KEY_MAX];
    char (*peers)[RDMUX_IDENTITY_MAX];
    size_t peer_count;
    char trusted[256];
};

/* tls_credentials.c, tls_socket.c: callbacks of the contexts, and the BIO that carries a session's
 * bytes. */
BIO_METHOD *rdmux_tls_socket_io(void);
/* tls_failure.c. Is OpenSSL's oldest queued error a lack of memory? */
bool rdmux_tls_lacked_memory(void);
void rdmux_tls_prepare(SSL_CTX *context, const struct rdmux_auth *auth, enum rdmux_role role);
void rdmux_tls_prepare_data(SSL_CTX *context);
/* tls_records.c: a context's message callback, called for each record. */
void rdmux_tls_see_record(int sent, int version, int kind, const void *bytes, size_t size, SSL *ssl,
                          void *user);

#endif
