/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The peer's identity in a TLS session, and whether it is admitted: pre-shared keys and
 * certificates. */
#include "negotiation/tls.h"

#ifdef RDMUX_HAVE_OPENSSL

#include "negotiation/tls_internal.h"

#include <openssl/x509v3.h>
#include <stdio.h>
#include <string.h>

/* Returns whether the identity is listed in peers, or no peer is listed. */
static bool lets_in(const struct rdmux_auth *auth, const char *identity)
{
    bool listed = auth->peer_count == 0;
    for (size_t i = 0; i < auth->peer_count && !listed; i++) {
        listed = strcmp(auth->peers[i], identity) == 0;
    }
    return listed;
}

/* ------------------------------------------------------------------------------ pre-shared keys */

/* TLS_AES_128_GCM_SHA256; an external key's suite determines its hash (RFC 8446, 4.2.11). */
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

/* Connector: selects its key. */
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

/* Acceptor: finds the key of an identity. An unknown or excluded one gets a decoy key, so that it
 * fails like a wrong key. */
static int find_key(SSL *ssl, const unsigned char *identity, size_t size, SSL_SESSION **out)
{
    struct rdmux_tls *tls = SSL_get_app_data(ssl);
    const struct rdmux_auth *auth = tls->auth;
    const struct rdmux_auth_key *key = rdmux_auth_find_key(auth->keys, auth->key_count, identity,
                                                           size);
    if (key == NULL) {
        snprintf(tls->trouble, sizeof(tls->trouble), "its identity is in no line of auth.key_file");
    } else if (!lets_in(auth, key->identity)) {
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

/* Both ends of a data socket have one key, so the identity carries no information. */
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

/* The first DNS name; without one, the common name. */
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

/* Checks the identity, which the chain does not tell, and whether this side admits it. */
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
    } else if (!lets_in(tls->auth, tls->identity)) {
        snprintf(tls->trouble, sizeof(tls->trouble), "\"%s\" is not one of auth.peers",
                 tls->identity);
    } else if (is_connector && tls->auth->peer_count == 0 &&
               (tls->host[0] == '\0' || !is_for_host(certificate, tls->host))) {
        snprintf(tls->trouble, sizeof(tls->trouble),
                 "its certificate is that of \"%s\", not of %s; name the identity in auth.peers if "
                 "it is the right one",
                 tls->identity, tls->host[0] == '\0' ? "a host that was dialled" : tls->host);
    } else {
        return 1;
    }
    X509_STORE_CTX_set_error(store, X509_V_ERR_APPLICATION_VERIFICATION);
    return 0;
}

void rdmux_tls_prepare(SSL_CTX *context, const struct rdmux_auth *auth, enum rdmux_role role)
{
    /* With pre-shared keys no certificate is trusted. */
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
    /* No certificate is trusted. */
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    SSL_CTX_set_psk_use_session_callback(context, use_data_key);
    SSL_CTX_set_psk_find_session_callback(context, find_data_key);
}

#endif
