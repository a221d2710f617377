/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* What auth.c and the files of tls share. Only with OpenSSL. */
#ifndef RDMUX_NEGOTIATION_AUTH_INTERNAL_H
#define RDMUX_NEGOTIATION_AUTH_INTERNAL_H

#include "negotiation/auth.h"

#include <openssl/ssl.h>

struct rdmux_auth {
    struct rdmux_fabric *fabric;
    uint32_t method; /* RDMUX_AUTH_* */
    uint32_t flags;
    SSL_CTX *connector; /* of sessions in that role */
    SSL_CTX *acceptor;
    SSL_CTX *data;         /* of data sockets' sessions, in both roles */
    BIO_METHOD *socket_io; /* tls_socket.c */
    struct rdmux_auth_key *keys;
    size_t key_count;
    size_t own; /* of keys: what this side connects with */
    /* Stands in for the key of an identity that nobody knows, so that both fail alike. */
    uint8_t decoy[RDMUX_AUTH_KEY_MAX];
    char (*peers)[RDMUX_IDENTITY_MAX];
    size_t peer_count;
    char trusted[256];
};

/* Is it one of peers, or are none listed? */
bool rdmux_auth_lets_in(const struct rdmux_auth *auth, const char *identity);
/* The key of an identity, NULL if there is none. */
const struct rdmux_auth_key *rdmux_auth_find_key(const struct rdmux_auth *auth,
                                                 const uint8_t *identity, size_t length);

/* tls_credentials.c, tls_socket.c: what the contexts call, and what carries a session's bytes. */
BIO_METHOD *rdmux_tls_socket_io(void);
/* tls_failure.c. Does the oldest failure that OpenSSL remembers tell of a lack of memory? */
bool rdmux_tls_lacked_memory(void);
void rdmux_tls_prepare(SSL_CTX *context, const struct rdmux_auth *auth, enum rdmux_role role);
void rdmux_tls_prepare_data(SSL_CTX *context);
/* tls_records.c: a context's message callback, which sees each record. */
void rdmux_tls_see_record(int sent, int version, int kind, const void *bytes, size_t size, SSL *ssl,
                          void *user);

#endif
