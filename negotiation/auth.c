/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* A fabric's credentials, and the TLS contexts of its sessions. */
#include "negotiation/auth.h"

#include "api/base/error.h"
#include "negotiation/filter.h"

#include <string.h>

#ifdef RDMUX_HAVE_OPENSSL

#include "negotiation/auth_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    KNOWN_AUTH_FLAGS = RDMUX_AUTH_REQUIRE_ENCRYPTION,
    OWN_RECORD_MAX = 2048,  /* bytes that this side puts into a record; a session reserves them */
    KEY_FILE_MAX = 1 << 20, /* bytes */
    CERTIFICATES_MAX = 16 << 10, /* bytes of a peer's certificates, chain included */
};

static const char trusts_none[] = "none";
static const char psk_suites[] = "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256";
/* Key exchanges that take at most 3 ms. By default OpenSSL also takes those with which an
 * unauthenticated peer keeps the service thread busy for a sixth of a second (ffdhe8192). */
static const char groups[] = "X25519:P-256:P-384";

/* The cause of OpenSSL's last failure. */
static const char *openssl_reason(void)
{
    const char *reason = ERR_reason_error_string(ERR_peek_last_error());
    return reason == NULL ? "unknown error" : reason;
}

/* -------------------------------------------------------------------------------------- secrets */

/* Opens a file with a secret; other users must not be able to read it. */
static enum rdmux_status open_secret(const char *what, const char *name, int *out, size_t *size)
{
    struct stat about;
    int fd = open(name, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0 || fstat(fd, &about) != 0) {
        enum rdmux_status status = rdmux_fail(RDMUX_IO, "%s: cannot open \"%s\": %s", what, name,
                                              strerror(errno));
        if (fd >= 0) {
            close(fd);
        }
        return status;
    }
    enum rdmux_status status = RDMUX_OK;
    if ((about.st_mode & 077) != 0) {
        status = rdmux_fail(RDMUX_INVALID,
                            "%s: \"%s\" is open to other users (mode %03o); chmod 600 it, and make "
                            "a new key if others may have read this one",
                            what, name, (unsigned)about.st_mode & 0777);
    } else if (about.st_uid != geteuid() && about.st_uid != 0) {
        status = rdmux_fail(RDMUX_INVALID, "%s: \"%s\" is the file of another user (uid %u)", what,
                            name, (unsigned)about.st_uid);
    } else if (!S_ISREG(about.st_mode) || about.st_size > KEY_FILE_MAX) {
        status = rdmux_fail(RDMUX_INVALID, "%s: \"%s\" is no file of at most 1 MiB", what, name);
    }
    if (status != RDMUX_OK) {
        close(fd);
        return status;
    }
    *out = fd;
    *size = (size_t)about.st_size;
    return RDMUX_OK;
}

static bool read_whole_file(int fd, char *out, size_t size)
{
    for (size_t have = 0; have < size;) {
        ssize_t got = read(fd, out + have, size - have);
        if (got <= 0) {
            return false;
        }
        have += (size_t)got;
    }
    return true;
}

static enum rdmux_status read_secret(struct rdmux_fabric *fabric, const char *what,
                                     const char *name, char **out, size_t *size)
{
    int fd = -1;
    enum rdmux_status status = open_secret(what, name, &fd, size);
    if (status != RDMUX_OK) {
        return status;
    }
    char *text = rdmux_allocate(fabric, *size + 1);
    if (text == NULL) {
        status = rdmux_fail(RDMUX_NO_MEMORY, "%s: out of memory", what);
    } else if (!read_whole_file(fd, text, *size)) {
        status = rdmux_fail(RDMUX_IO, "%s: cannot read \"%s\"", what, name);
        rdmux_release(fabric, text);
    }
    close(fd);
    if (status == RDMUX_OK) {
        *out = text;
    }
    return status;
}

static void release_secret(struct rdmux_fabric *fabric, void *secret, size_t size)
{
    if (secret != NULL) {
        OPENSSL_cleanse(secret, size);
        rdmux_release(fabric, secret);
    }
}

/* ------------------------------------------------------------------------------------- contexts */

static enum rdmux_status take_keys(struct rdmux_auth *auth, const struct rdmux_fabric_auth *attr)
{
    struct rdmux_fabric *fabric = auth->fabric;
    char *text = NULL;
    size_t size = 0;
    enum rdmux_status status = read_secret(fabric, "auth.key_file", attr->key_file, &text, &size);
    if (status != RDMUX_OK) {
        return status;
    }
    status = rdmux_auth_keys_parse(fabric, attr->key_file, text, size, &auth->keys,
                                   &auth->key_count);
    release_secret(fabric, text, size);
    if (status != RDMUX_OK) {
        return status;
    }
    if (attr->identity != NULL) {
        const struct rdmux_auth_key *own = rdmux_auth_find_key(
            auth->keys, auth->key_count, (const uint8_t *)attr->identity, strlen(attr->identity));
        if (own == NULL) {
            return rdmux_fail(RDMUX_INVALID, "auth.identity: \"%s\" is not in %s", attr->identity,
                              attr->key_file);
        }
        auth->own = (size_t)(own - auth->keys);
    }
    return rdmux_random(fabric, auth->decoy, sizeof(auth->decoy));
}

/* Status of an OpenSSL failure: lack of memory, or else the given one. */
static enum rdmux_status openssl_status(enum rdmux_status other)
{
    return rdmux_tls_lacked_memory() ? RDMUX_NO_MEMORY : other;
}

static enum rdmux_status take_certificate(struct rdmux_auth *auth,
                                          const struct rdmux_fabric_auth *attr, SSL_CTX *context)
{
    char *text = NULL;
    size_t size = 0;
    if (SSL_CTX_use_certificate_chain_file(context, attr->cert_file) != 1) {
        enum rdmux_status status = openssl_status(RDMUX_IO);
        return rdmux_fail(status, "auth.cert_file: \"%s\" is no certificate in PEM: %s",
                          attr->cert_file, openssl_reason());
    }
    if (SSL_CTX_load_verify_locations(context, attr->ca_file, NULL) != 1) {
        enum rdmux_status status = openssl_status(RDMUX_IO);
        return rdmux_fail(status, "auth.ca_file: \"%s\" has no certificates in PEM: %s",
                          attr->ca_file, openssl_reason());
    }
    enum rdmux_status status = read_secret(auth->fabric, "auth.key_file", attr->key_file, &text,
                                           &size);
    if (status != RDMUX_OK) {
        return status;
    }
    BIO *memory = BIO_new_mem_buf(text, (int)size);
    EVP_PKEY *key = memory == NULL ? NULL : PEM_read_bio_PrivateKey(memory, NULL, NULL, (void *)"");
    BIO_free(memory);
    release_secret(auth->fabric, text, size);
    if (key == NULL) {
        status = openssl_status(RDMUX_INVALID);
        return rdmux_fail(status,
                          "auth.key_file: \"%s\" is no private key in PEM without a password: %s",
                          attr->key_file, openssl_reason());
    }
    bool fits = SSL_CTX_use_PrivateKey(context, key) == 1 &&
                SSL_CTX_check_private_key(context) == 1;
    EVP_PKEY_free(key);
    if (!fits) {
        return rdmux_fail(openssl_status(RDMUX_INVALID),
                          "auth.key_file: the key of \"%s\" is not that of \"%s\"", attr->key_file,
                          attr->cert_file);
    }
    return RDMUX_OK;
}

static enum rdmux_status no_such_tls(void)
{
    enum rdmux_status status = openssl_status(RDMUX_UNSUPPORTED);
    return rdmux_fail(status, "auth: this OpenSSL has no TLS 1.3 as it is needed: %s",
                      openssl_reason());
}

static enum rdmux_status no_such_groups(void)
{
    enum rdmux_status status = openssl_status(RDMUX_UNSUPPORTED);
    return rdmux_fail(status,
                      "auth: this OpenSSL lacks one of the key exchanges %s: %s; use a build or "
                      "configuration of OpenSSL that has them all",
                      groups, openssl_reason());
}

/* Common to all sessions. suites NULL: OpenSSL's defaults. */
static enum rdmux_status make_context(const SSL_METHOD *method, const char *suites, SSL_CTX **out)
{
    SSL_CTX *context = SSL_CTX_new(method);
    if (context == NULL) {
        return rdmux_fail(RDMUX_NO_MEMORY, "auth: TLS is not available: %s", openssl_reason());
    }
    *out = context; /* also on failure */
    bool good = SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) == 1 &&
                SSL_CTX_set_num_tickets(context, 0) == 1 &&
                (suites == NULL || SSL_CTX_set_ciphersuites(context, suites) == 1);
    SSL_CTX_set_options(context, SSL_OP_NO_TICKET | SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION);
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_msg_callback(context, rdmux_tls_see_record);
    SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    if (!good) {
        return no_such_tls();
    }
    return SSL_CTX_set1_groups_list(context, groups) == 1 ? RDMUX_OK : no_such_groups();
}

/* For control channels, many of which may exist and be silent. */
static enum rdmux_status make_control_context(struct rdmux_auth *auth,
                                              const struct rdmux_fabric_auth *attr,
                                              enum rdmux_role role, SSL_CTX **out)
{
    enum rdmux_status status = make_context(
        role == RDMUX_ROLE_ACCEPT ? TLS_server_method() : TLS_client_method(),
        auth->method == RDMUX_AUTH_PSK ? psk_suites : NULL, out);
    if (status != RDMUX_OK) {
        return status;
    }
    SSL_CTX *context = *out;
    SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS);
    (void)SSL_CTX_set_options(context, SSL_OP_CLEANSE_PLAINTEXT); /* tokens come this way */
    SSL_CTX_set_max_cert_list(context, CERTIFICATES_MAX);
    rdmux_tls_prepare(context, auth, role);
    if (SSL_CTX_set_max_send_fragment(context, OWN_RECORD_MAX) != 1) {
        return no_such_tls();
    }
    return auth->method == RDMUX_AUTH_CERT ? take_certificate(auth, attr, context) : RDMUX_OK;
}

/* For data sockets, whose ends know each other by a key of the connection, whatever its method. */
static enum rdmux_status make_data_context(SSL_CTX **out)
{
    enum rdmux_status status = make_context(TLS_method(), psk_suites, out);
    if (status == RDMUX_OK) {
        rdmux_tls_prepare_data(*out);
    }
    return status;
}

static enum rdmux_status take_peers(struct rdmux_auth *auth, const struct rdmux_fabric_auth *attr)
{
    if (attr->peer_count == 0) {
        return RDMUX_OK;
    }
    auth->peers = rdmux_allocate(auth->fabric, attr->peer_count * sizeof(*auth->peers));
    if (auth->peers == NULL) {
        return rdmux_fail(RDMUX_NO_MEMORY, "auth.peers: out of memory");
    }
    for (size_t i = 0; i < attr->peer_count; i++) {
        const char *peer = attr->peers[i];
        if (peer == NULL || *peer == '\0' || strlen(peer) >= sizeof(auth->peers[i])) {
            return rdmux_fail(RDMUX_INVALID, "auth.peers[%zu] is %s", i,
                              peer == NULL || *peer == '\0' ? "empty" : "longer than 127 bytes");
        }
        snprintf(auth->peers[i], sizeof(auth->peers[i]), "%s", peer);
        auth->peer_count++;
    }
    return RDMUX_OK;
}

/* Allows plain names only: a list of exclusions would trust the providers of future plug-ins. */
static enum rdmux_status check_trusted(struct rdmux_fabric *fabric,
                                       const struct rdmux_auth_host *host, const char *trusted)
{
    if (trusted == NULL || strcmp(trusted, trusts_none) == 0) {
        return RDMUX_OK;
    }
    if (*trusted == '\0' || strchr(trusted, '!') != NULL || strstr(trusted, "auto") != NULL) {
        return rdmux_fail(RDMUX_INVALID,
                          "auth.trusted \"%s\" does not name the providers that are trusted; write "
                          "names as in \"shm,ib\", or \"none\"",
                          trusted);
    }
    return host->check_filter(fabric, "auth.trusted", trusted);
}

static enum rdmux_status check_auth_attr(struct rdmux_fabric *fabric,
                                         const struct rdmux_auth_host *host,
                                         const struct rdmux_fabric_auth *attr)
{
    bool psk = attr->method == RDMUX_AUTH_PSK;
    if (!psk && attr->method != RDMUX_AUTH_CERT) {
        return rdmux_fail(RDMUX_INVALID,
                          "auth.method %u is neither RDMUX_AUTH_PSK nor RDMUX_AUTH_CERT",
                          attr->method);
    }
    if ((attr->flags & ~(uint32_t)KNOWN_AUTH_FLAGS) != 0) {
        return rdmux_fail(RDMUX_INVALID, "auth.flags 0x%x are unknown",
                          attr->flags & ~(uint32_t)KNOWN_AUTH_FLAGS);
    }
    const char *missing = attr->key_file == NULL            ? "key_file"
                          : !psk && attr->cert_file == NULL ? "cert_file"
                          : !psk && attr->ca_file == NULL   ? "ca_file"
                                                            : NULL;
    if (missing != NULL) {
        return rdmux_fail(RDMUX_INVALID, "auth.%s is missing; %s needs it", missing,
                          psk ? "RDMUX_AUTH_PSK" : "RDMUX_AUTH_CERT");
    }
    const char *idle = psk && attr->cert_file != NULL   ? "cert_file"
                       : psk && attr->ca_file != NULL   ? "ca_file"
                       : !psk && attr->identity != NULL ? "identity"
                                                        : NULL;
    if (idle != NULL) {
        return rdmux_fail(RDMUX_INVALID, "auth.%s is of no use with %s", idle,
                          psk ? "RDMUX_AUTH_PSK" : "RDMUX_AUTH_CERT");
    }
    if (attr->peer_count != 0 && attr->peers == NULL) {
        return rdmux_fail(RDMUX_INVALID, "auth.peers is NULL, peer_count is %zu", attr->peer_count);
    }
    return check_trusted(fabric, host, attr->trusted);
}

static enum rdmux_status fill_auth(struct rdmux_auth *auth, const struct rdmux_fabric_auth *attr)
{
    enum rdmux_status status = take_peers(auth, attr);
    if (status == RDMUX_OK && auth->method == RDMUX_AUTH_PSK) {
        status = take_keys(auth, attr);
    }
    auth->socket_io = rdmux_tls_socket_io();
    if (status == RDMUX_OK && auth->socket_io == NULL) {
        status = rdmux_fail(RDMUX_NO_MEMORY, "auth: out of memory");
    }
    if (status == RDMUX_OK) {
        status = make_control_context(auth, attr, RDMUX_ROLE_CONNECT, &auth->connector);
    }
    if (status == RDMUX_OK) {
        status = make_control_context(auth, attr, RDMUX_ROLE_ACCEPT, &auth->acceptor);
    }
    if (status == RDMUX_OK) {
        status = make_data_context(&auth->data);
    }
    return status;
}

enum rdmux_status rdmux_auth_create(struct rdmux_fabric *fabric, const struct rdmux_auth_host *host,
                                    const struct rdmux_fabric_auth *attr, struct rdmux_auth **out)
{
    struct rdmux_fabric_auth all = RDMUX_FABRIC_AUTH_INIT;
    if (attr->size < offsetof(struct rdmux_fabric_auth, key_file)) {
        return rdmux_fail(RDMUX_INVALID,
                          "rdmux_fabric_open: auth.size is %u; use RDMUX_FABRIC_AUTH_INIT",
                          attr->size);
    }
    memcpy(&all, attr, attr->size < sizeof(all) ? attr->size : sizeof(all));
    enum rdmux_status status = check_auth_attr(fabric, host, &all);
    if (status != RDMUX_OK) {
        return status;
    }
    struct rdmux_auth *auth = rdmux_allocate(fabric, sizeof(*auth));
    if (auth == NULL) {
        return rdmux_fail(RDMUX_NO_MEMORY, "auth: out of memory");
    }
    auth->fabric = fabric;
    auth->host = host;
    auth->method = all.method;
    auth->flags = all.flags;
    snprintf(auth->trusted, sizeof(auth->trusted), "%s", all.trusted == NULL ? "shm" : all.trusted);
    ERR_clear_error();
    status = fill_auth(auth, &all);
    ERR_clear_error();
    if (status != RDMUX_OK) {
        rdmux_auth_destroy(auth);
        return status;
    }
    *out = auth;
    return RDMUX_OK;
}

void rdmux_auth_destroy(struct rdmux_auth *auth)
{
    if (auth == NULL) {
        return;
    }
    SSL_CTX_free(auth->connector);
    SSL_CTX_free(auth->acceptor);
    SSL_CTX_free(auth->data);
    BIO_meth_free(auth->socket_io);
    rdmux_secret_unmap(auth->keys, auth->key_count * sizeof(*auth->keys));
    rdmux_release(auth->fabric, auth->peers);
    OPENSSL_cleanse(auth->decoy, sizeof(auth->decoy));
    rdmux_release(auth->fabric, auth);
}

uint32_t rdmux_auth_methods(const struct rdmux_auth *auth)
{
    return auth == NULL ? 0 : auth->method;
}

bool rdmux_auth_requires_encryption(const struct rdmux_auth *auth)
{
    return auth != NULL && (auth->flags & RDMUX_AUTH_REQUIRE_ENCRYPTION) != 0;
}

bool rdmux_auth_needs_host(const struct rdmux_auth *auth)
{
    return auth != NULL && auth->method == RDMUX_AUTH_CERT && auth->peer_count == 0;
}

bool rdmux_auth_trusts(const struct rdmux_auth *auth, const char *provider)
{
    return auth != NULL && strcmp(auth->trusted, trusts_none) != 0 &&
           rdmux_filter_allows(auth->trusted, provider);
}

#else

enum rdmux_status rdmux_auth_create(struct rdmux_fabric *fabric, const struct rdmux_auth_host *host,
                                    const struct rdmux_fabric_auth *attr, struct rdmux_auth **out)
{
    (void)fabric;
    (void)host;
    (void)attr;
    (void)out;
    return rdmux_fail(RDMUX_UNSUPPORTED,
                      "rdmux_fabric_open: this library was built without OpenSSL and cannot "
                      "authenticate; build it where OpenSSL's headers are (libssl-dev)");
}

void rdmux_auth_destroy(struct rdmux_auth *auth)
{
    (void)auth;
}

uint32_t rdmux_auth_methods(const struct rdmux_auth *auth)
{
    (void)auth;
    return 0;
}

bool rdmux_auth_requires_encryption(const struct rdmux_auth *auth)
{
    (void)auth;
    return false;
}

bool rdmux_auth_needs_host(const struct rdmux_auth *auth)
{
    (void)auth;
    return false;
}

bool rdmux_auth_trusts(const struct rdmux_auth *auth, const char *provider)
{
    (void)auth;
    (void)provider;
    return false;
}

#endif
