/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Files over HTTP over TLS: one request and one answer for each connection. The program is the same
 * over sockets and over rdmux streams; only the BIO differs, see link_bio.h.
 */
#include "../link/server.h"
#include "link_bio.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_MAX_BYTES = 1024, BLOCK = 256 << 10 };

static const char usage
    [] = "usage: https serve ADDRESS CERTIFICATE KEY FOLDER [CLIENTS]   until CLIENTS have left\n"
         "       https get ADDRESS AUTHORITY NAME                       prints FOLDER/NAME\n"
         "CERTIFICATE, KEY and AUTHORITY are files, PEM. ADDRESS is HOST:PORT; PORT 0: a free "
         "port.\n";

static SSL_CTX *context;
static const char *folder;

static const char *tls_error(void)
{
    const char *reason = ERR_reason_error_string(ERR_peek_last_error());
    return reason != NULL ? reason : link_error();
}

/* Returns NULL if the handshake fails. */
static SSL *begin_tls(struct link *link, const char *host)
{
    SSL *tls = SSL_new(context);
    BIO *bio = tls != NULL ? link_bio(link) : NULL;
    if (bio == NULL) {
        SSL_free(tls);
        return NULL;
    }
    SSL_set_bio(tls, bio, bio);
    if (host != NULL) {
        SSL_set_verify(tls, SSL_VERIFY_PEER, NULL);
    }
    if ((host != NULL && SSL_set1_host(tls, host) != 1) ||
        (host != NULL ? SSL_connect : SSL_accept)(tls) != 1) {
        SSL_free(tls);
        return NULL;
    }
    return tls;
}

static void end_tls(SSL *tls)
{
    SSL_shutdown(tls);
    SSL_free(tls);
}

static bool write_tls(SSL *tls, const void *bytes, size_t length)
{
    size_t done;
    return length == 0 || SSL_write_ex(tls, bytes, length, &done) == 1;
}

/* Reads up to an empty line, which ends the head of requests and answers. */
static bool read_head(SSL *tls, char head[LINE_MAX_BYTES])
{
    size_t length = 0, got;
    while (length + 1 < LINE_MAX_BYTES && SSL_read_ex(tls, head + length, 1, &got) == 1) {
        length += got;
        head[length] = '\0';
        if (length >= 4 && strcmp(head + length - 4, "\r\n\r\n") == 0) {
            return true;
        }
    }
    return false;
}

static bool send_file(SSL *tls, FILE *file, char *block)
{
    char head[LINE_MAX_BYTES];
    size_t got;
    if (fseek(file, 0, SEEK_END) != 0) {
        return false;
    }
    snprintf(head, sizeof(head),
             "HTTP/1.1 200 OK\r\nContent-Length: %ld\r\nConnection: close\r\n\r\n", ftell(file));
    rewind(file);
    if (!write_tls(tls, head, strlen(head))) {
        return false;
    }
    while ((got = fread(block, 1, BLOCK, file)) > 0) {
        if (!write_tls(tls, block, got)) {
            return false;
        }
    }
    return !ferror(file);
}

static bool answer(SSL *tls, char *block)
{
    static const char
        missing[] = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    char head[LINE_MAX_BYTES], name[LINE_MAX_BYTES], path[2 * LINE_MAX_BYTES];
    if (!read_head(tls, head)) {
        return false;
    }
    /* The name is a file of the folder, and leads nowhere else. */
    bool is_named = sscanf(head, "GET /%1023[^ /] HTTP/1.1\r\n", name) == 1 && name[0] != '.';
    snprintf(path, sizeof(path), "%s/%s", folder, is_named ? name : "");
    FILE *file = is_named ? fopen(path, "rb") : NULL;
    if (file == NULL) {
        return write_tls(tls, missing, sizeof(missing) - 1);
    }
    bool ok = send_file(tls, file, block);
    fclose(file);
    return ok;
}

static void serve(struct link *link)
{
    SSL *tls = begin_tls(link, NULL);
    char *block = malloc(BLOCK);
    if (tls == NULL || block == NULL || !answer(tls, block)) {
        fprintf(stderr, "https: a client has got no answer: %s\n", tls_error());
        ERR_clear_error();
    }
    if (tls != NULL) {
        end_tls(tls);
    }
    free(block);
}

static void get(const char *address, const char *name)
{
    char head[LINE_MAX_BYTES], host[LINK_ADDRESS_MAX];
    char *block = malloc(BLOCK);
    unsigned long length = 0;
    size_t got;
    struct link *link = link_connect(address);
    if (link == NULL || block == NULL) {
        server_fail("connect", link_error());
    }
    snprintf(host, sizeof(host), "%.*s", (int)strcspn(address, ":"), address);
    SSL *tls = begin_tls(link, host);
    if (tls == NULL) {
        server_fail("handshake", tls_error());
    }
    snprintf(head, sizeof(head), "GET /%s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", name,
             host);
    if (!write_tls(tls, head, strlen(head)) || !read_head(tls, head)) {
        server_fail("request", tls_error());
    }
    if (sscanf(head, "HTTP/1.1 200 OK\r\nContent-Length: %lu\r\n", &length) != 1) {
        head[strcspn(head, "\r")] = '\0';
        server_fail(name, head);
    }
    for (; length > 0; length -= got) {
        if (SSL_read_ex(tls, block, length < BLOCK ? length : BLOCK, &got) != 1) {
            server_fail("answer", "it ends early");
        }
        fwrite(block, 1, got, stdout);
    }
    fprintf(stderr, "%s over %s, %s\n", name, link_over(link), SSL_get_version(tls));
    end_tls(tls);
    link_close(link);
    free(block);
}

int main(int argc, char **argv)
{
    bool helps = argc == 2 && strcmp(argv[1], "--help") == 0;
    bool serves = (argc == 6 || argc == 7) && strcmp(argv[1], "serve") == 0;
    size_t clients = 0;
    char rest;
    if (!(serves || (argc == 5 && strcmp(argv[1], "get") == 0)) ||
        (argc == 7 && sscanf(argv[6], "%zu%c", &clients, &rest) != 1)) {
        fputs(usage, helps ? stdout : stderr);
        return helps ? 0 : 2;
    }
    context = SSL_CTX_new(serves ? TLS_server_method() : TLS_client_method());
    if (context == NULL ||
        (serves ? SSL_CTX_use_certificate_chain_file(context, argv[3]) != 1 ||
                      SSL_CTX_use_PrivateKey_file(context, argv[4], SSL_FILETYPE_PEM) != 1
                : SSL_CTX_load_verify_locations(context, argv[3], NULL) != 1)) {
        server_fail("certificate", tls_error());
    }
    if (!link_start()) {
        server_fail("start", link_error());
    }
    if (serves) {
        folder = argv[5];
        server_run(argv[2], clients, serve);
    } else {
        get(argv[2], argv[4]);
    }
    link_stop();
    SSL_CTX_free(context);
    return fflush(stdout) == 0 ? 0 : 1;
}
