/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * OpenSSL over the link of examples/embedding that the program is built with: tls_socket has
 * OpenSSL's BIO of a socket, tls_stream the BIO of a stream of rdmux.
 *
 *   tls_KIND PATHS SIZE SECONDS   bytes/s of both directions: SIZE bytes there, and SIZE bytes back
 */
#include "bench.h"
#include "links.h"

#include "examples/embedding/tls/link_bio.h"

#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <stdlib.h>

static void must(int result, const char *what)
{
    if (result != 1) {
        bench_fail("%s failed", what);
    }
}

/* A certificate that nobody vouches for, as no one checks it here. */
static void certify(SSL_CTX *context)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *certificate = X509_new();
    if (key == NULL || certificate == NULL) {
        bench_fail("no key or no certificate can be made");
    }
    must(ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1), "ASN1_INTEGER_set");
    X509_gmtime_adj(X509_getm_notBefore(certificate), 0);
    X509_gmtime_adj(X509_getm_notAfter(certificate), 86400);
    must(X509_set_pubkey(certificate, key), "X509_set_pubkey");
    must(X509_sign(certificate, key, EVP_sha256()) > 0, "X509_sign");
    must(SSL_CTX_use_certificate(context, certificate), "SSL_CTX_use_certificate");
    must(SSL_CTX_use_PrivateKey(context, key), "SSL_CTX_use_PrivateKey");
    X509_free(certificate);
    EVP_PKEY_free(key);
}

/* Returns false at the peer's end. */
static bool read_all(SSL *tls, uint8_t *bytes, size_t length)
{
    for (size_t done = 0, got; done < length; done += got) {
        if (SSL_read_ex(tls, bytes + done, length - done, &got) != 1) {
            return false;
        }
    }
    return true;
}

static void write_all(SSL *tls, const uint8_t *bytes, size_t length)
{
    size_t done;
    must(SSL_write_ex(tls, bytes, length, &done), "SSL_write_ex");
}

int main(int argc, char **argv)
{
    struct bench bench;
    if (argc != 4) {
        bench_fail("usage: tls_KIND PATHS SIZE SECONDS");
    }
    size_t size = bench_size(argv[2]);
    uint64_t count = 0;
    bench_fork(&bench, strtod(argv[3], NULL), 0);
    uint8_t *bytes = bench_buffer(size);
    struct link *link = links_open(&bench, argv[1]);
    SSL_CTX *context = SSL_CTX_new(bench.side == 1 ? TLS_server_method() : TLS_client_method());
    if (context != NULL && bench.side == 1) {
        certify(context);
    }
    SSL *tls = context != NULL ? SSL_new(context) : NULL;
    BIO *bio = link_bio(link);
    if (tls == NULL || bio == NULL) {
        bench_fail("no memory");
    }
    SSL_set_bio(tls, bio, bio);
    must((bench.side == 1 ? SSL_accept : SSL_connect)(tls), "the handshake");
    bench_start(&bench);
    if (bench.side == 0) {
        for (; !bench_is_over(&bench); count++) {
            write_all(tls, bytes, size);
            must(read_all(tls, bytes, size), "SSL_read_ex");
        }
        SSL_shutdown(tls);
        link_close(link);
    } else {
        while (read_all(tls, bytes, size)) {
            write_all(tls, bytes, size);
        }
    }
    bench_stop(&bench);
    bench_finish(&bench, (double)(2 * count * size) / bench.elapsed, 2 * count * size / 8);
    return 0;
}
