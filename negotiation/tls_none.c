/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* A build without OpenSSL has no TLS: a fabric with auth does not open, so these functions are
 * never called. */
#include "negotiation/tls.h"

#include "api/base/error.h"

#ifndef RDMUX_HAVE_OPENSSL

enum rdmux_status rdmux_tls_create(const struct rdmux_auth *auth, enum rdmux_role role, int socket,
                                   const char *host, struct rdmux_tls **out)
{
    (void)auth;
    (void)role;
    (void)socket;
    (void)host;
    (void)out;
    return rdmux_fail(RDMUX_UNSUPPORTED, "authentication: this library has no OpenSSL");
}

enum rdmux_status rdmux_tls_create_data(const struct rdmux_auth *auth, enum rdmux_role role,
                                        int socket, const uint8_t key[RDMUX_DATA_KEY_SIZE],
                                        struct rdmux_path_stream **out)
{
    (void)auth;
    (void)role;
    (void)socket;
    (void)key;
    (void)out;
    return rdmux_fail(RDMUX_UNSUPPORTED, "authentication: this library has no OpenSSL");
}

void rdmux_tls_allow_data(struct rdmux_tls *tls)
{
    (void)tls;
}

struct rdmux_path_stream *rdmux_tls_carry_data(struct rdmux_tls *tls)
{
    (void)tls;
    return NULL;
}

void rdmux_tls_renew_after(struct rdmux_path_stream *stream, uint64_t records)
{
    (void)stream;
    (void)records;
}

void rdmux_tls_destroy(struct rdmux_tls *tls)
{
    (void)tls;
}

void rdmux_tls_greeted(struct rdmux_tls *tls, const uint8_t hello[RDMUX_HELLO_SIZE])
{
    (void)tls;
    (void)hello;
}

enum rdmux_status rdmux_tls_step(struct rdmux_tls *tls)
{
    (void)tls;
    return RDMUX_UNSUPPORTED;
}

enum rdmux_status rdmux_tls_receive(struct rdmux_tls *tls, void *out, size_t size, size_t *got)
{
    (void)tls;
    (void)out;
    (void)size;
    (void)got;
    return RDMUX_UNSUPPORTED;
}

enum rdmux_status rdmux_tls_send(struct rdmux_tls *tls, const void *bytes, size_t size, size_t *done)
{
    (void)tls;
    (void)bytes;
    (void)size;
    (void)done;
    return RDMUX_UNSUPPORTED;
}

bool rdmux_tls_is_open(const struct rdmux_tls *tls)
{
    (void)tls;
    return false;
}

bool rdmux_tls_wants_room(const struct rdmux_tls *tls)
{
    (void)tls;
    return false;
}

bool rdmux_tls_holds_bytes(const struct rdmux_tls *tls)
{
    (void)tls;
    return false;
}

const char *rdmux_tls_identity(const struct rdmux_tls *tls)
{
    (void)tls;
    return "";
}

#endif
