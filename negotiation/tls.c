/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* TLS of control channels and data sockets, with OpenSSL: opening a session, sending and
 * receiving. */
#include "negotiation/tls.h"

#ifdef RDMUX_HAVE_OPENSSL

#include "negotiation/auth_methods.h"
#include "negotiation/control_capture.h"
#include "negotiation/tls_internal.h"

#include <assert.h>
#include <openssl/err.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

/* Records under one key: AES-GCM allows 2^24.5 full ones (RFC 8446, 5.5), and OpenSSL does not
 * count them. */
enum { RENEW_AFTER = 1 << 24 };

/* ------------------------------------------------------------------------------- HELLO in clear */

/* Methods differ: sends this side's HELLO in clear, so that the peer can explain. */
static enum rdmux_status send_refusal(struct rdmux_tls *tls, uint32_t theirs)
{
    struct rdmux_hello hello;
    uint8_t bytes[RDMUX_HELLO_SIZE];
    char text[RDMUX_TEXT_MAX];
    uint32_t ours = rdmux_auth_methods(tls->auth);
    tls->auth->host->fill_hello(tls->auth->fabric, &hello);
    rdmux_hello_encode(&hello, bytes);
    rdmux_capture_control(tls->auth->fabric, tls->socket, RDMUX_CAPTURE_OUT, bytes, sizeof(bytes),
                          false);
    (void)rdmux_tls_give(tls, bytes, sizeof(bytes)); /* a peer that is gone needs no answer */
    rdmux_auth_explain_mismatch(ours, theirs, text, sizeof(text));
    return rdmux_fail(RDMUX_AUTH, "authentication: %s", text);
}

/* Reads tls->hello. RDMUX_OK: it is complete and valid. */
static enum rdmux_status read_hello(struct rdmux_tls *tls, struct rdmux_hello *hello)
{
    while (tls->hello_size < RDMUX_HELLO_SIZE) {
        ssize_t got = rdmux_tls_take(tls, tls->hello + tls->hello_size,
                                     RDMUX_HELLO_SIZE - tls->hello_size);
        if (got <= 0) {
            return got < 0 && tls->error == 0 ? RDMUX_AGAIN : rdmux_tls_explain(tls);
        }
        tls->hello_size += (size_t)got;
        bool bad = false;
        (void)rdmux_frame_total(tls->hello, tls->hello_size, true, &bad);
        if (bad) {
            return rdmux_fail(RDMUX_PROTOCOL,
                              "control channel: the peer does not speak this protocol");
        }
    }
    rdmux_capture_control(tls->auth->fabric, tls->socket, RDMUX_CAPTURE_IN, tls->hello,
                          RDMUX_HELLO_SIZE, false);
    enum rdmux_status status = rdmux_hello_decode(tls->hello, RDMUX_HELLO_SIZE, hello);
    return status == RDMUX_OK
               ? RDMUX_OK
               : rdmux_fail(status, "control channel: the peer's HELLO is not one we understand");
}

/* Acceptor: takes the connector's HELLO. */
static enum rdmux_status take_clear_hello(struct rdmux_tls *tls)
{
    struct rdmux_hello hello = { .epoch = 0 };
    enum rdmux_status status = read_hello(tls, &hello);
    if (status != RDMUX_OK) {
        return status;
    }
    if ((hello.authentication & rdmux_auth_methods(tls->auth)) == 0) {
        return send_refusal(tls, hello.authentication);
    }
    rdmux_tls_write_stage(tls, STAGE_SHAKING);
    return RDMUX_OK;
}

/* Connector: takes the acceptor's HELLO, sent in clear instead of TLS. */
static enum rdmux_status take_refusal(struct rdmux_tls *tls)
{
    struct rdmux_hello hello = { .epoch = 0 };
    char text[RDMUX_TEXT_MAX];
    enum rdmux_status status = read_hello(tls, &hello);
    if (status != RDMUX_OK) {
        return status;
    }
    if (hello.version_min > RDMUX_WIRE_VERSION || hello.version_max < RDMUX_WIRE_VERSION) {
        return rdmux_fail(RDMUX_VERSION, "control channel: the peer speaks no version of the "
                                         "protocol that we speak");
    }
    if ((hello.authentication & rdmux_auth_methods(tls->auth)) != 0) {
        return rdmux_fail(RDMUX_AUTH, "authentication: the peer does not authenticate as it says");
    }
    rdmux_auth_explain_mismatch(rdmux_auth_methods(tls->auth), hello.authentication, text,
                                sizeof(text));
    return rdmux_fail(RDMUX_AUTH, "authentication: %s", text);
}

/* Connector: sends HELLO in clear. */
static enum rdmux_status send_clear_hello(struct rdmux_tls *tls, const uint8_t *hello)
{
    while (tls->hello_size < RDMUX_HELLO_SIZE) {
        ssize_t sent = rdmux_tls_give(tls, hello + tls->hello_size,
                                      RDMUX_HELLO_SIZE - tls->hello_size);
        if (sent < 0) {
            tls->wants_room = tls->error == 0;
            return tls->error == 0 ? RDMUX_AGAIN : rdmux_tls_explain(tls);
        }
        tls->hello_size += (size_t)sent;
    }
    rdmux_capture_control(tls->auth->fabric, tls->socket, RDMUX_CAPTURE_OUT, hello,
                          RDMUX_HELLO_SIZE, false);
    tls->hello_size = 0; /* room for a refusal */
    rdmux_tls_write_stage(tls, STAGE_SHAKING);
    return RDMUX_OK;
}

/* ---------------------------------------------------------------------------------- the session */

/* Erases the initial key, which an open session no longer needs. OpenSSL would keep it in ordinary
 * memory for the session's life, and core dumps would contain it. */
static void forget_key(struct rdmux_tls *tls)
{
    static const uint8_t nothing[RDMUX_AUTH_KEY_MAX];
    static_assert(sizeof(tls->key) <= sizeof(nothing), "it covers every key");
    SSL_SESSION *session = SSL_get_session(tls->ssl);
    if (session != NULL) {
        (void)SSL_SESSION_set1_master_key(session, nothing, sizeof(nothing)); /* overwrites it */
    }
    OPENSSL_cleanse(tls->key, sizeof(tls->key));
}

enum rdmux_status rdmux_tls_shake(struct rdmux_tls *tls)
{
    ERR_clear_error();
    tls->call_records = 0;
    int result = SSL_do_handshake(tls->ssl);
    if (tls->stage == STAGE_REFUSED) {
        return take_refusal(tls);
    }
    if (result != 1) {
        return rdmux_tls_outcome(tls, result);
    }
    bool psk = tls->is_by_key || tls->auth->method == RDMUX_AUTH_PSK;
    if (psk ? SSL_session_reused(tls->ssl) != 1 : SSL_get_verify_result(tls->ssl) != X509_V_OK) {
        return rdmux_fail(RDMUX_AUTH, "authentication: the peer has not proved its identity");
    }
    if (psk && !tls->is_by_key && tls->role == RDMUX_ROLE_CONNECT) {
        snprintf(tls->identity, sizeof(tls->identity), "%s",
                 tls->auth->keys[tls->auth->own].identity);
    }
    if (psk) {
        forget_key(tls);
    }
    tls->wants_room = false;
    rdmux_tls_write_stage(tls, STAGE_OPEN);
    return RDMUX_OK;
}

enum rdmux_status rdmux_tls_step(struct rdmux_tls *tls)
{
    return tls->stage == STAGE_OPEN ? RDMUX_OK : rdmux_tls_shake(tls);
}

/* Continues until the peer is authenticated. */
static enum rdmux_status open_session(struct rdmux_tls *tls)
{
    enum rdmux_status status = RDMUX_OK;
    if (tls->stage == STAGE_CLEAR) {
        status = tls->role == RDMUX_ROLE_ACCEPT ? take_clear_hello(tls) : RDMUX_AGAIN;
    }
    if (status == RDMUX_OK && tls->stage == STAGE_SHAKING) {
        status = rdmux_tls_shake(tls);
    } else if (status == RDMUX_OK && tls->stage == STAGE_REFUSED) {
        status = take_refusal(tls);
    }
    return status;
}

/* Returns whether the HELLO inside the session is the one that came in clear. */
static bool is_same_hello(struct rdmux_tls *tls, const uint8_t *bytes, size_t size)
{
    size_t left = RDMUX_HELLO_SIZE - tls->compared;
    size_t part = size < left ? size : left;
    bool same = memcmp(bytes, tls->hello + tls->compared, part) == 0;
    tls->compared += part;
    return same;
}

enum rdmux_status rdmux_tls_receive(struct rdmux_tls *tls, void *out, size_t size, size_t *got)
{
    enum rdmux_status status = tls->stage == STAGE_OPEN ? RDMUX_OK : open_session(tls);
    if (status != RDMUX_OK) {
        return status;
    }
    ERR_clear_error();
    tls->call_records = 0;
    int result = SSL_read_ex(tls->ssl, out, size, got);
    tls->is_drained = result != 1;
    if (result != 1) {
        return rdmux_tls_outcome(tls, result);
    }
    if (tls->role == RDMUX_ROLE_ACCEPT && !is_same_hello(tls, out, *got)) {
        return rdmux_fail(RDMUX_AUTH,
                          "authentication: the peer's HELLO was changed on its way to us");
    }
    return RDMUX_OK;
}

/* Renews the sending key, but only while the socket surely has room for the message. A session that
 * waits to send it does not read either, and two such sessions would wait for each other
 * forever. */
static enum rdmux_status renew_key(struct rdmux_tls *tls)
{
    struct pollfd look = { .fd = tls->socket, .events = POLLOUT };
    tls->base.system_calls++;
    if (poll(&look, 1, 0) < 1) {
        tls->wants_room = true;
        return RDMUX_AGAIN;
    }
    ERR_clear_error();
    int result = SSL_key_update(tls->ssl, SSL_KEY_UPDATE_NOT_REQUESTED);
    if (result == 1) {
        result = SSL_do_handshake(tls->ssl);
        tls->records = 0;
    }
    return result == 1 ? RDMUX_OK : rdmux_tls_outcome(tls, result);
}

enum rdmux_status rdmux_tls_send(struct rdmux_tls *tls, const void *bytes, size_t size, size_t *done)
{
    enum rdmux_status status = RDMUX_OK;
    if (tls->stage == STAGE_CLEAR && tls->role == RDMUX_ROLE_CONNECT) {
        if (size < RDMUX_HELLO_SIZE) {
            return rdmux_fail(RDMUX_PROTOCOL,
                              "control channel: the first bytes to send are less than a HELLO");
        }
        status = send_clear_hello(tls, bytes);
    }
    if (status == RDMUX_OK && tls->stage != STAGE_OPEN) {
        status = open_session(tls);
    }
    if (status == RDMUX_OK && tls->records >= tls->renew_after && !tls->is_write_waiting) {
        status = renew_key(tls);
    }
    if (status != RDMUX_OK) {
        return status;
    }
    ERR_clear_error();
    /* At most one record more: a waiting record is sent first, and its end ends the call. */
    tls->records++;
    int result = SSL_write_ex(tls->ssl, bytes, size, done);
    tls->is_write_waiting = result != 1;
    if (result != 1) {
        return rdmux_tls_outcome(tls, result);
    }
    tls->wants_room = false;
    return RDMUX_OK;
}

/* ----------------------------------------------------------------------------------------- life */

static bool make_session(struct rdmux_tls *tls)
{
    bool accepts = tls->role == RDMUX_ROLE_ACCEPT;
    tls->ssl = SSL_new(tls->is_by_key ? tls->auth->data
                       : accepts      ? tls->auth->acceptor
                                      : tls->auth->connector);
    BIO *bio = tls->ssl == NULL ? NULL : BIO_new(tls->auth->socket_io);
    if (bio == NULL) {
        return false;
    }
    BIO_set_data(bio, tls);
    SSL_set_bio(tls->ssl, bio, bio); /* takes it */
    SSL_set_app_data(tls->ssl, tls);
    SSL_set_quiet_shutdown(tls->ssl, 1);
    if (accepts) {
        SSL_set_accept_state(tls->ssl);
        /* Without an id context OpenSSL accepts no session of a known peer. */
        return SSL_set_session_id_context(tls->ssl, (const uint8_t *)"rdmux", 5) == 1;
    }
    SSL_set_connect_state(tls->ssl);
    return true;
}

struct rdmux_tls *rdmux_tls_create_session(const struct rdmux_auth *auth, enum rdmux_role role,
                                           int socket, const uint8_t *key)
{
    struct rdmux_tls *tls = rdmux_allocate(auth->fabric, sizeof(*tls));
    if (tls == NULL) {
        (void)rdmux_fail(RDMUX_NO_MEMORY, "authentication: out of memory");
        return NULL;
    }
    tls->auth = auth;
    tls->role = role;
    tls->socket = socket;
    tls->renew_after = RENEW_AFTER;
    if (key != NULL) {
        memcpy(tls->key, key, sizeof(tls->key));
        tls->is_by_key = true;
        rdmux_tls_write_stage(tls, STAGE_SHAKING);
        tls->is_answered = true;          /* nothing comes in clear, */
        tls->compared = RDMUX_HELLO_SIZE; /* and no HELLO inside */
    }
    if (!make_session(tls)) {
        rdmux_tls_destroy(tls);
        ERR_clear_error();
        (void)rdmux_fail(RDMUX_NO_MEMORY, "authentication: no memory for a TLS session");
        return NULL;
    }
    return tls;
}

enum rdmux_status rdmux_tls_create(const struct rdmux_auth *auth, enum rdmux_role role, int socket,
                                   const char *host, struct rdmux_tls **out)
{
    struct rdmux_tls *tls = rdmux_tls_create_session(auth, role, socket, NULL);
    if (tls == NULL) {
        return RDMUX_NO_MEMORY;
    }
    snprintf(tls->host, sizeof(tls->host), "%s", host == NULL ? "" : host);
    *out = tls;
    return RDMUX_OK;
}

void rdmux_tls_destroy(struct rdmux_tls *tls)
{
    if (tls != NULL) {
        SSL_free(tls->ssl);
        OPENSSL_cleanse(tls->key, sizeof(tls->key));
        rdmux_release(tls->auth->fabric, tls);
    }
}

void rdmux_tls_greeted(struct rdmux_tls *tls, const uint8_t hello[RDMUX_HELLO_SIZE])
{
    memcpy(tls->hello, hello, RDMUX_HELLO_SIZE);
    tls->hello_size = RDMUX_HELLO_SIZE;
    rdmux_tls_write_stage(tls, STAGE_SHAKING);
}

bool rdmux_tls_is_open(const struct rdmux_tls *tls)
{
    return tls->stage == STAGE_OPEN;
}

bool rdmux_tls_wants_room(const struct rdmux_tls *tls)
{
    return tls->wants_room;
}

bool rdmux_tls_holds_bytes(const struct rdmux_tls *tls)
{
    /* The bytes of an incomplete record do not count: the socket signals the rest. */
    return tls->stage == STAGE_OPEN && !tls->is_drained && SSL_has_pending(tls->ssl) == 1;
}

const char *rdmux_tls_identity(const struct rdmux_tls *tls)
{
    return tls->stage == STAGE_OPEN ? tls->identity : "";
}

#endif
