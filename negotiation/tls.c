/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* TLS of control channels and data sockets, by OpenSSL. */
#include "negotiation/tls.h"

#include <stdio.h>
#include <string.h>

#ifdef RDMUX_HAVE_OPENSSL

#include "negotiation/auth_internal.h"
#include "negotiation/auth_methods.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <sys/socket.h>

enum {
    HOST_MAX = 256,
    UNAUTHENTICATED_MAX = 32 << 10, /* bytes that TLS takes from a peer before it is known */
    RECORD_FIRST = 20,              /* types of TLS records */
    RECORD_LAST = 23,
    ALERT_REASONS = 1000, /* where OpenSSL's reasons for alerts of the peer begin */
    ALERT_REASONS_END = 1256,
    READ_ROOM = 64 << 10, /* bytes that a session with data takes from the socket at a time */
    /* Records under one key: AES-GCM stands 2^24.5 full ones (RFC 8446, 5.5), and OpenSSL does not
     * count. */
    RENEW_AFTER = 1 << 24,
};

enum stage {
    STAGE_CLEAR,   /* connector: our HELLO is to be sent; acceptor: theirs is to come */
    STAGE_SHAKING, /* the peer is not known yet */
    STAGE_REFUSED, /* connector: the peer's HELLO comes in clear, and nothing else */
    STAGE_OPEN,
};

struct rdmux_tls {
    struct rdmux_stream base; /* used where it carries data */
    const struct rdmux_auth *auth;
    SSL *ssl;
    int socket;
    enum rdmux_role role;
    enum stage stage;
    bool answered;    /* connector: the peer has said something */
    bool ended;       /* the socket has nothing more */
    bool wants_room;  /* the last step ended for want of it */
    bool drained;     /* the last receive found nothing whole, and the socket empty */
    bool write_waits; /* OpenSSL has a record that is not all in the socket */
    bool carries_data;
    bool by_key; /* a data socket's: the two ends know `key` */
    uint8_t key[RDMUX_DATA_KEY_SIZE];
    enum rdmux_status failed; /* as a stream; text is why */
    uint64_t records;         /* sent under this key */
    uint64_t renew_after;
    int error;                       /* the socket's, 0 if there was none */
    size_t taken;                    /* bytes from the socket while the peer was not known */
    size_t compared;                 /* of the HELLO inside */
    size_t hello_size;               /* of hello, so far */
    uint8_t hello[RDMUX_HELLO_SIZE]; /* in clear: the connector's, or the refusing acceptor's */
    char host[HOST_MAX];             /* dialled; "" if none */
    char identity[RDMUX_IDENTITY_MAX];
    char trouble[2 * RDMUX_TEXT_MAX]; /* why we turned the peer away, "" if we did not */
};

/* ---------------------------------------------------------------------------- bytes, below TLS */

/* A connector looks at what comes first: a HELLO in clear, or a TLS record (RFC 8446, 5.1)? What is
 * not there yet is not taken without having been looked at. */
static bool is_answer_tls(struct rdmux_tls *tls, BIO *bio)
{
    uint8_t first = 0;
    if (tls->role != RDMUX_ROLE_CONNECT || tls->answered) {
        return true;
    }
    ssize_t looked = recv(tls->socket, &first, 1, MSG_PEEK | MSG_DONTWAIT);
    if (looked < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
        BIO_set_retry_read(bio);
        return false;
    }
    if (looked != 1) {
        return true; /* take() says how it ended */
    }
    tls->answered = true;
    if (first < RECORD_FIRST || first > RECORD_LAST) {
        tls->stage = STAGE_REFUSED;
    }
    return tls->stage != STAGE_REFUSED;
}

/* As recv(2); notes how it ended. */
static ssize_t take(struct rdmux_tls *tls, void *out, size_t size)
{
    ssize_t got;
    do {
        tls->base.system_calls++;
        got = recv(tls->socket, out, size, MSG_DONTWAIT);
    } while (got < 0 && errno == EINTR);
    tls->base.emptied = got < (ssize_t)size;
    if (got == 0) {
        tls->ended = true;
    } else if (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK) {
        tls->error = errno;
    }
    return got;
}

static ssize_t give(struct rdmux_tls *tls, const void *bytes, size_t size)
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

static int bio_read(BIO *bio, char *out, int size)
{
    struct rdmux_tls *tls = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    if (!is_answer_tls(tls, bio)) {
        return -1;
    }
    size_t room = (size_t)size;
    if (tls->stage != STAGE_OPEN) {
        size_t left = UNAUTHENTICATED_MAX - tls->taken;
        room = room < left ? room : left;
        if (room == 0) {
            snprintf(tls->trouble, sizeof(tls->trouble), "it has said %d bytes, and not who it is",
                     UNAUTHENTICATED_MAX);
            return -1;
        }
    }
    ssize_t got = take(tls, out, room);
    if (got > 0 && tls->stage != STAGE_OPEN) {
        tls->taken += (size_t)got;
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
    ssize_t sent = give(tls, bytes, (size_t)size);
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
    return command == BIO_CTRL_FLUSH ? 1 : 0; /* nothing is held back; nothing else is known */
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

/* ------------------------------------------------------------------------------ pre-shared keys */

/* TLS_AES_128_GCM_SHA256; an external key's suite tells its hash (RFC 8446, 4.2.11). */
static const uint8_t psk_suite[] = { 0x13, 0x01 };

static SSL_SESSION *session_of(SSL *ssl, const uint8_t *key, size_t size)
{
    SSL_SESSION *session = SSL_SESSION_new();
    const SSL_CIPHER *suite = SSL_CIPHER_find(ssl, psk_suite);
    if (session == NULL || suite == NULL || SSL_SESSION_set1_master_key(session, key, size) != 1 ||
        SSL_SESSION_set_cipher(session, suite) != 1 ||
        SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) != 1) {
        SSL_SESSION_free(session);
        return NULL;
    }
    return session;
}

/* Connector: which key? */
static int use_key(SSL *ssl, const EVP_MD *hash, const unsigned char **identity, size_t *size,
                   SSL_SESSION **out)
{
    struct rdmux_tls *tls = SSL_get_app_data(ssl);
    const struct rdmux_auth_key *key = &tls->auth->keys[tls->auth->own];
    *out = NULL;
    if (hash != NULL && EVP_MD_get_type(hash) != NID_sha256) {
        return 1; /* asked again for another suite: no such key */
    }
    *out = session_of(ssl, key->bytes, key->size);
    *identity = (const unsigned char *)key->identity;
    *size = strlen(key->identity);
    return *out != NULL;
}

/* Acceptor: the key of this identity. One that nobody knows gets one that fits nothing, so that it
 * fails as a wrong key does. */
static int find_key(SSL *ssl, const unsigned char *identity, size_t size, SSL_SESSION **out)
{
    struct rdmux_tls *tls = SSL_get_app_data(ssl);
    const struct rdmux_auth *auth = tls->auth;
    const struct rdmux_auth_key *key = rdmux_auth_find_key(auth, identity, size);
    if (key == NULL) {
        snprintf(tls->trouble, sizeof(tls->trouble), "its identity is in no line of auth.key_file");
    } else if (!rdmux_auth_lets_in(auth, key->identity)) {
        snprintf(tls->trouble, sizeof(tls->trouble), "\"%s\" is not one of auth.peers",
                 key->identity);
        key = NULL;
    } else {
        snprintf(tls->identity, sizeof(tls->identity), "%s", key->identity);
    }
    *out = key != NULL ? session_of(ssl, key->bytes, key->size)
                       : session_of(ssl, auth->decoy, sizeof(auth->decoy));
    return *out != NULL;
}

/* A data socket's two ends have one key, so its identity says nothing. */
static const char data_identity[] = "rdmux data";

static int use_data_key(SSL *ssl, const EVP_MD *hash, const unsigned char **identity, size_t *size,
                        SSL_SESSION **out)
{
    struct rdmux_tls *tls = SSL_get_app_data(ssl);
    *out = NULL;
    if (hash != NULL && EVP_MD_get_type(hash) != NID_sha256) {
        return 1;
    }
    *out = session_of(ssl, tls->key, sizeof(tls->key));
    *identity = (const unsigned char *)data_identity;
    *size = sizeof(data_identity) - 1;
    return *out != NULL;
}

static int find_data_key(SSL *ssl, const unsigned char *identity, size_t size, SSL_SESSION **out)
{
    struct rdmux_tls *tls = SSL_get_app_data(ssl);
    (void)identity;
    (void)size;
    *out = session_of(ssl, tls->key, sizeof(tls->key));
    return *out != NULL;
}

/* --------------------------------------------------------------------------------- certificates */

static bool copy_name(const ASN1_STRING *name, char out[RDMUX_IDENTITY_MAX])
{
    const unsigned char *text = ASN1_STRING_get0_data(name);
    size_t length = (size_t)ASN1_STRING_length(name);
    if (length == 0 || length >= RDMUX_IDENTITY_MAX) {
        return false;
    }
    for (size_t i = 0; i < length; i++) {
        if (text[i] < ' ' || text[i] == 0x7f) { /* a NUL would hide what is behind it */
            return false;
        }
    }
    memcpy(out, text, length);
    out[length] = '\0';
    return true;
}

/* The first DNS name; where there are none, the common name. */
static bool identity_of(X509 *certificate, char out[RDMUX_IDENTITY_MAX])
{
    GENERAL_NAMES *names = X509_get_ext_d2i(certificate, NID_subject_alt_name, NULL, NULL);
    bool found = false;
    bool named = false;
    for (int i = 0; i < sk_GENERAL_NAME_num(names) && !named; i++) {
        const GENERAL_NAME *name = sk_GENERAL_NAME_value(names, i);
        if (name->type == GEN_DNS) {
            named = true;
            found = copy_name(name->d.dNSName, out);
        }
    }
    GENERAL_NAMES_free(names);
    const X509_NAME *subject = X509_get_subject_name(certificate);
    int at = X509_NAME_get_index_by_NID(subject, NID_commonName, -1);
    if (!named && at >= 0) {
        found = copy_name(X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at)), out);
    }
    return found;
}

static bool is_for_host(X509 *certificate, const char *host)
{
    return X509_check_ip_asc(certificate, host, 0) == 1 ||
           X509_check_host(certificate, host, 0, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS, NULL) == 1;
}

/* What the chain does not tell: who it is, and whether we let it in. */
static int judge_certificate(int good, X509_STORE_CTX *store)
{
    SSL *ssl = X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx());
    struct rdmux_tls *tls = SSL_get_app_data(ssl);
    if (good != 1) {
        snprintf(tls->trouble, sizeof(tls->trouble), "its certificate: %s",
                 X509_verify_cert_error_string(X509_STORE_CTX_get_error(store)));
        return 0;
    }
    if (X509_STORE_CTX_get_error_depth(store) != 0) {
        return 1;
    }
    X509 *certificate = X509_STORE_CTX_get_current_cert(store);
    bool is_connector = tls->role == RDMUX_ROLE_CONNECT;
    if (!identity_of(certificate, tls->identity)) {
        snprintf(tls->trouble, sizeof(tls->trouble),
                 "its certificate has neither a DNS name nor a common name of at most 127 "
                 "characters");
    } else if (!rdmux_auth_lets_in(tls->auth, tls->identity)) {
        snprintf(tls->trouble, sizeof(tls->trouble), "\"%s\" is not one of auth.peers",
                 tls->identity);
    } else if (is_connector && tls->auth->peer_count == 0 && tls->host[0] != '\0' &&
               !is_for_host(certificate, tls->host)) {
        snprintf(tls->trouble, sizeof(tls->trouble),
                 "its certificate is that of \"%s\", not of %s; name the identity in auth.peers if "
                 "it is the right one",
                 tls->identity, tls->host);
    } else {
        return 1;
    }
    X509_STORE_CTX_set_error(store, X509_V_ERR_APPLICATION_VERIFICATION);
    return 0;
}

void rdmux_tls_prepare(SSL_CTX *context, const struct rdmux_auth *auth, enum rdmux_role role)
{
    /* With pre-shared keys nobody vouches for certificates: none is good. */
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT,
                       judge_certificate);
    if (auth->method == RDMUX_AUTH_PSK && role == RDMUX_ROLE_CONNECT) {
        SSL_CTX_set_psk_use_session_callback(context, use_key);
    } else if (auth->method == RDMUX_AUTH_PSK) {
        SSL_CTX_set_psk_find_session_callback(context, find_key);
    }
}

void rdmux_tls_prepare_data(SSL_CTX *context)
{
    /* Nobody vouches for certificates: none is good. */
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    SSL_CTX_set_psk_use_session_callback(context, use_data_key);
    SSL_CTX_set_psk_find_session_callback(context, find_data_key);
}

/* ------------------------------------------------------------------------------------- failures */

/* The peer has ended the handshake with an alert, which says little on purpose. */
static enum rdmux_status refused_by_peer(const struct rdmux_tls *tls, unsigned long error)
{
    const char *reason = ERR_reason_error_string(error);
    bool psk = tls->auth->method == RDMUX_AUTH_PSK;
    return rdmux_fail(RDMUX_AUTH, "authentication: the peer has refused %s%s%s (%s); %s",
                      psk ? "identity \"" : "this side's certificate",
                      psk ? tls->auth->keys[tls->auth->own].identity : "", psk ? "\"" : "",
                      reason == NULL ? "without a reason" : reason,
                      psk ? "are its line and key the same in both key files, and does the peer "
                            "let it in?"
                          : "does the peer know our authority, and let this identity in?");
}

/* Did something come that is no TLS at all? */
static bool is_no_tls(unsigned long error)
{
    static const int reasons[] = {
        SSL_R_WRONG_VERSION_NUMBER, SSL_R_PACKET_LENGTH_TOO_LONG, SSL_R_HTTP_REQUEST,
        SSL_R_HTTPS_PROXY_REQUEST,  SSL_R_UNSUPPORTED_PROTOCOL,   SSL_R_BAD_RECORD_TYPE,
        SSL_R_RECORD_TOO_SMALL,
    };
    for (size_t i = 0; i < RDMUX_COUNT_OF(reasons); i++) {
        if (ERR_GET_LIB(error) == ERR_LIB_SSL && ERR_GET_REASON(error) == reasons[i]) {
            return true;
        }
    }
    return false;
}

static bool is_alert(unsigned long error)
{
    int reason = ERR_GET_REASON(error);
    return ERR_GET_LIB(error) == ERR_LIB_SSL && reason >= ALERT_REASONS &&
           reason < ALERT_REASONS_END;
}

static enum rdmux_status explain_data_failure(const struct rdmux_tls *tls)
{
    unsigned long error = ERR_peek_error();
    const char *reason = ERR_reason_error_string(error);
    reason = reason == NULL ? "without a reason" : reason;
    if (tls->error != 0) {
        return rdmux_fail(RDMUX_PEER_GONE, "data socket: lost: %s", strerror(tls->error));
    }
    if (tls->ended) {
        return rdmux_fail(RDMUX_PEER_GONE, "data socket: the peer closed it");
    }
    if (tls->stage != STAGE_OPEN) {
        return rdmux_fail(RDMUX_AUTH,
                          "data socket: the other end does not know this connection's secret (%s)",
                          reason);
    }
    if (is_alert(error)) {
        return rdmux_fail(RDMUX_PROTOCOL,
                          "data socket: what this side has sent was changed on its way, or is not "
                          "all there (%s)",
                          reason);
    }
    return rdmux_fail(
        RDMUX_PROTOCOL,
        "data socket: what came is not what the peer has sent: it was changed, left out, "
        "repeated or made up on its way (%s)",
        reason);
}

static enum rdmux_status explain_failure(const struct rdmux_tls *tls)
{
    unsigned long error = ERR_peek_error();
    const char *text = ERR_reason_error_string(error);
    if (tls->carries_data) {
        return explain_data_failure(tls);
    }
    if (tls->trouble[0] != '\0') {
        return rdmux_fail(RDMUX_AUTH, "authentication: the peer is not let in: %s", tls->trouble);
    }
    if (is_alert(error)) {
        return refused_by_peer(tls, error);
    }
    if (tls->error != 0) {
        return rdmux_fail(RDMUX_PEER_GONE, "control channel: lost: %s", strerror(tls->error));
    }
    if (tls->ended && tls->stage == STAGE_OPEN) {
        return rdmux_fail(RDMUX_PEER_GONE, "control channel: the peer closed it");
    }
    if (tls->ended) {
        return rdmux_fail(RDMUX_PEER_GONE,
                          "control channel: the peer closed it before it was authenticated; is it "
                          "rdmux of this version, and is auth set there?");
    }
    if (is_no_tls(error)) {
        return rdmux_fail(RDMUX_PROTOCOL,
                          "control channel: the peer does not speak this protocol (%s)", text);
    }
    if (tls->stage == STAGE_OPEN) {
        return rdmux_fail(RDMUX_PROTOCOL, "control channel: not what the peer has sent: %s",
                          text == NULL ? "broken record" : text);
    }
    return rdmux_fail(RDMUX_AUTH, "authentication: failed: %s%s", text == NULL ? "no TLS" : text,
                      tls->auth->method == RDMUX_AUTH_PSK
                          ? "; is the identity's key the same in both key files?"
                          : "");
}

/* What came of a call of OpenSSL's that did not succeed. */
static enum rdmux_status outcome(struct rdmux_tls *tls, int result)
{
    switch (SSL_get_error(tls->ssl, result)) {
    case SSL_ERROR_WANT_READ:
        tls->wants_room = false;
        return RDMUX_AGAIN;
    case SSL_ERROR_WANT_WRITE:
        tls->wants_room = true;
        return RDMUX_AGAIN;
    case SSL_ERROR_ZERO_RETURN:
        tls->ended = true;
        break;
    default:
        break;
    }
    enum rdmux_status status = explain_failure(tls);
    ERR_clear_error(); /* the program may use OpenSSL, too */
    return status;
}

/* ------------------------------------------------------------------------------- HELLO in clear */

/* Methods that do not fit: says ours, in clear, so that the peer can explain. */
static enum rdmux_status turn_away(struct rdmux_tls *tls, uint32_t theirs)
{
    struct rdmux_hello hello;
    uint8_t bytes[RDMUX_HELLO_SIZE];
    char text[RDMUX_TEXT_MAX];
    uint32_t ours = rdmux_auth_methods(tls->auth);
    rdmux_hello_fill(tls->auth->fabric, &hello);
    rdmux_hello_encode(&hello, bytes);
    (void)give(tls, bytes, sizeof(bytes)); /* one that is gone needs no answer */
    rdmux_auth_explain_mismatch(ours, theirs, text, sizeof(text));
    return rdmux_fail(RDMUX_AUTH, "authentication: %s", text);
}

/* Reads tls->hello. RDMUX_OK: it is whole, and one. */
static enum rdmux_status read_hello(struct rdmux_tls *tls, struct rdmux_hello *hello)
{
    while (tls->hello_size < RDMUX_HELLO_SIZE) {
        ssize_t got = take(tls, tls->hello + tls->hello_size, RDMUX_HELLO_SIZE - tls->hello_size);
        if (got <= 0) {
            return got < 0 && tls->error == 0 ? RDMUX_AGAIN : explain_failure(tls);
        }
        tls->hello_size += (size_t)got;
        bool bad = false;
        (void)rdmux_frame_total(tls->hello, tls->hello_size, true, &bad);
        if (bad) {
            return rdmux_fail(RDMUX_PROTOCOL,
                              "control channel: the peer does not speak this protocol");
        }
    }
    enum rdmux_status status = rdmux_hello_decode(tls->hello, RDMUX_HELLO_SIZE, hello);
    return status == RDMUX_OK
               ? RDMUX_OK
               : rdmux_fail(status, "control channel: the peer's HELLO is not one we understand");
}

/* Acceptor: the connector's HELLO. */
static enum rdmux_status take_clear_hello(struct rdmux_tls *tls)
{
    struct rdmux_hello hello = { .epoch = 0 };
    enum rdmux_status status = read_hello(tls, &hello);
    if (status != RDMUX_OK) {
        return status;
    }
    if ((hello.authentication & rdmux_auth_methods(tls->auth)) == 0) {
        return turn_away(tls, hello.authentication);
    }
    tls->stage = STAGE_SHAKING;
    return RDMUX_OK;
}

/* Connector: the acceptor says HELLO in clear instead of TLS. */
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

/* Connector: HELLO goes in clear. */
static enum rdmux_status send_clear_hello(struct rdmux_tls *tls, const uint8_t *hello)
{
    while (tls->hello_size < RDMUX_HELLO_SIZE) {
        ssize_t sent = give(tls, hello + tls->hello_size, RDMUX_HELLO_SIZE - tls->hello_size);
        if (sent < 0) {
            tls->wants_room = tls->error == 0;
            return tls->error == 0 ? RDMUX_AGAIN : explain_failure(tls);
        }
        tls->hello_size += (size_t)sent;
    }
    tls->hello_size = 0; /* room for a refusal */
    tls->stage = STAGE_SHAKING;
    return RDMUX_OK;
}

/* ---------------------------------------------------------------------------------- the session */

static enum rdmux_status shake(struct rdmux_tls *tls)
{
    ERR_clear_error();
    int result = SSL_do_handshake(tls->ssl);
    if (tls->stage == STAGE_REFUSED) {
        return take_refusal(tls);
    }
    if (result != 1) {
        return outcome(tls, result);
    }
    bool psk = tls->by_key || tls->auth->method == RDMUX_AUTH_PSK;
    if (psk ? SSL_session_reused(tls->ssl) != 1 : SSL_get_verify_result(tls->ssl) != X509_V_OK) {
        return rdmux_fail(RDMUX_AUTH, "authentication: the peer did not show what it must");
    }
    if (psk && !tls->by_key && tls->role == RDMUX_ROLE_CONNECT) {
        snprintf(tls->identity, sizeof(tls->identity), "%s",
                 tls->auth->keys[tls->auth->own].identity);
    }
    tls->wants_room = false;
    tls->stage = STAGE_OPEN;
    return RDMUX_OK;
}

/* Goes on until the peer is known. */
static enum rdmux_status open_session(struct rdmux_tls *tls)
{
    enum rdmux_status status = RDMUX_OK;
    if (tls->stage == STAGE_CLEAR) {
        status = tls->role == RDMUX_ROLE_ACCEPT ? take_clear_hello(tls) : RDMUX_AGAIN;
    }
    if (status == RDMUX_OK && tls->stage == STAGE_SHAKING) {
        status = shake(tls);
    } else if (status == RDMUX_OK && tls->stage == STAGE_REFUSED) {
        status = take_refusal(tls);
    }
    return status;
}

/* The HELLO inside is the one that came in clear. */
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
    int result = SSL_read_ex(tls->ssl, out, size, got);
    tls->drained = result != 1;
    if (result != 1) {
        return outcome(tls, result);
    }
    if (tls->role == RDMUX_ROLE_ACCEPT && !is_same_hello(tls, out, *got)) {
        return rdmux_fail(RDMUX_AUTH,
                          "authentication: the peer's HELLO was changed on its way to us");
    }
    return RDMUX_OK;
}

/* Sends with a new key from now on. Only while the socket surely has room for saying so: a session
 * that waits with it does not read either, and two that wait so for each other would wait for
 * ever. */
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
    return result == 1 ? RDMUX_OK : outcome(tls, result);
}

enum rdmux_status rdmux_tls_send(struct rdmux_tls *tls, const void *bytes, size_t size, size_t *done)
{
    enum rdmux_status status = RDMUX_OK;
    if (tls->stage == STAGE_CLEAR && tls->role == RDMUX_ROLE_CONNECT) {
        if (size < RDMUX_HELLO_SIZE) {
            return rdmux_fail(RDMUX_PROTOCOL, "control channel: it begins with less than a HELLO");
        }
        status = send_clear_hello(tls, bytes);
    }
    if (status == RDMUX_OK && tls->stage != STAGE_OPEN) {
        status = open_session(tls);
    }
    if (status == RDMUX_OK && tls->records >= tls->renew_after && !tls->write_waits) {
        status = renew_key(tls);
    }
    if (status != RDMUX_OK) {
        return status;
    }
    ERR_clear_error();
    /* At most one record more: what waits is sent before, and an end of it ends the call. */
    tls->records++;
    int result = SSL_write_ex(tls->ssl, bytes, size, done);
    tls->write_waits = result != 1;
    if (result != 1) {
        return outcome(tls, result);
    }
    tls->wants_room = false;
    return RDMUX_OK;
}

/* ---------------------------------------------------------------------------------- as a stream */

static struct rdmux_tls *tls_of(struct rdmux_stream *stream)
{
    return (struct rdmux_tls *)stream;
}

/* A failure stays. */
static enum rdmux_status settle(struct rdmux_tls *tls, enum rdmux_status status)
{
    if (status != RDMUX_OK && status != RDMUX_AGAIN && tls->failed == RDMUX_OK) {
        tls->failed = status;
        snprintf(tls->base.text, sizeof(tls->base.text), "%s", rdmux_last_error());
    }
    return status;
}

static enum rdmux_status stream_open(struct rdmux_stream *stream, bool *wants_room)
{
    struct rdmux_tls *tls = tls_of(stream);
    if (tls->failed != RDMUX_OK || tls->stage == STAGE_OPEN) {
        return tls->failed;
    }
    enum rdmux_status status = settle(tls, shake(tls));
    *wants_room = tls->wants_room;
    return status;
}

static enum rdmux_status stream_receive(struct rdmux_stream *stream, void *out, size_t size,
                                        size_t *got)
{
    struct rdmux_tls *tls = tls_of(stream);
    return tls->failed != RDMUX_OK ? tls->failed
                                   : settle(tls, rdmux_tls_receive(tls, out, size, got));
}

static enum rdmux_status stream_send(struct rdmux_stream *stream, const void *bytes, size_t size,
                                     size_t *done)
{
    struct rdmux_tls *tls = tls_of(stream);
    if (tls->failed != RDMUX_OK) {
        return tls->failed;
    }
    enum rdmux_status status = rdmux_tls_send(tls, bytes, size, done);
    if (status == RDMUX_PEER_GONE) { /* what the peer said before is still to be received */
        tls->error = 0;
        return status;
    }
    return settle(tls, status);
}

static bool stream_holds_bytes(const struct rdmux_stream *stream)
{
    const struct rdmux_tls *tls = (const struct rdmux_tls *)stream;
    return tls->failed != RDMUX_OK || rdmux_tls_holds_bytes(tls);
}

static void stream_close(struct rdmux_stream *stream)
{
    if (tls_of(stream)->by_key) {
        rdmux_tls_destroy(tls_of(stream));
    }
}

static const struct rdmux_stream_ops stream_ops = {
    .open = stream_open,
    .receive = stream_receive,
    .send = stream_send,
    .holds_bytes = stream_holds_bytes,
    .close = stream_close,
};

void rdmux_tls_allow_data(struct rdmux_tls *tls)
{
    /* The split is what one record takes; it has followed the context's length down, and does not
     * go up with it. */
    (void)SSL_set_max_send_fragment(tls->ssl, RDMUX_STREAM_PIECE);
    (void)SSL_set_split_send_fragment(tls->ssl, RDMUX_STREAM_PIECE);
}

struct rdmux_stream *rdmux_tls_carry_data(struct rdmux_tls *tls)
{
    (void)SSL_clear_mode(tls->ssl, SSL_MODE_RELEASE_BUFFERS);
    SSL_set_read_ahead(tls->ssl, 1);
    SSL_set_default_read_buffer_len(tls->ssl, READ_ROOM);
    tls->carries_data = true;
    return &tls->base;
}

void rdmux_tls_renew_after(struct rdmux_stream *stream, uint64_t records)
{
    tls_of(stream)->renew_after = records;
}

/* ----------------------------------------------------------------------------------------- life */

static bool make_session(struct rdmux_tls *tls)
{
    bool accepts = tls->role == RDMUX_ROLE_ACCEPT;
    tls->ssl = SSL_new(tls->by_key ? tls->auth->data
                       : accepts   ? tls->auth->acceptor
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
        /* Without one OpenSSL takes no session of a known peer. */
        return SSL_set_session_id_context(tls->ssl, (const uint8_t *)"rdmux", 5) == 1;
    }
    SSL_set_connect_state(tls->ssl);
    return true;
}

/* key NULL: of a control channel. NULL: no memory; the error text says so. */
static struct rdmux_tls *create(const struct rdmux_auth *auth, enum rdmux_role role, int socket,
                                const uint8_t *key)
{
    struct rdmux_tls *tls = rdmux_allocate(auth->fabric, sizeof(*tls));
    if (tls == NULL) {
        (void)rdmux_fail(RDMUX_NO_MEMORY, "authentication: out of memory");
        return NULL;
    }
    tls->base.ops = &stream_ops;
    tls->auth = auth;
    tls->role = role;
    tls->socket = socket;
    tls->renew_after = RENEW_AFTER;
    if (key != NULL) {
        memcpy(tls->key, key, sizeof(tls->key));
        tls->by_key = true;
        tls->stage = STAGE_SHAKING;
        tls->answered = true;             /* nothing comes in clear, */
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
    struct rdmux_tls *tls = create(auth, role, socket, NULL);
    if (tls == NULL) {
        return RDMUX_NO_MEMORY;
    }
    snprintf(tls->host, sizeof(tls->host), "%s", host == NULL ? "" : host);
    *out = tls;
    return RDMUX_OK;
}

enum rdmux_status rdmux_tls_create_data(const struct rdmux_auth *auth, enum rdmux_role role,
                                        int socket, const uint8_t key[RDMUX_DATA_KEY_SIZE],
                                        struct rdmux_stream **out)
{
    struct rdmux_tls *tls = create(auth, role, socket, key);
    if (tls == NULL) {
        return RDMUX_NO_MEMORY;
    }
    rdmux_tls_allow_data(tls);
    *out = rdmux_tls_carry_data(tls);
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
    tls->stage = STAGE_SHAKING;
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
    /* What is left of a record that is not whole does not count: the socket tells of the rest. */
    return tls->stage == STAGE_OPEN && !tls->drained && SSL_has_pending(tls->ssl) == 1;
}

const char *rdmux_tls_identity(const struct rdmux_tls *tls)
{
    return tls->stage == STAGE_OPEN ? tls->identity : "";
}

#else

/* A fabric with auth does not open, so nobody comes here. */
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
                                        struct rdmux_stream **out)
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

struct rdmux_stream *rdmux_tls_carry_data(struct rdmux_tls *tls)
{
    (void)tls;
    return NULL;
}

void rdmux_tls_renew_after(struct rdmux_stream *stream, uint64_t records)
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
