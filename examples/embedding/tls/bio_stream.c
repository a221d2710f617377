/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * A BIO over a stream of rdmux, for a program that blocks. For one that does not, leave out
 * rdmux_stream_wait(): a call that gets RDMUX_AGAIN sets the retry flag then and returns 0, and
 * SSL_get_error() says SSL_ERROR_WANT_READ or SSL_ERROR_WANT_WRITE.
 */
#include "../link/link_stream.h"
#include "link_bio.h"

#include <rdmux/stream.h>

/* OpenSSL asks for a record's header and body one after the other, and takes what is there. */
static int read_stream(BIO *bio, char *bytes, size_t length, size_t *got)
{
    struct rdmux_stream *stream = BIO_get_data(bio);
    enum rdmux_status status;
    BIO_clear_retry_flags(bio);
    while ((status = rdmux_stream_read(stream, bytes, length, 0, got)) == RDMUX_AGAIN) {
        if (rdmux_stream_wait(stream, RDMUX_STREAM_READ, -1) != RDMUX_OK) {
            return -1;
        }
    }
    if (status == RDMUX_OK && *got == 0) {
        BIO_set_flags(bio, BIO_FLAGS_IN_EOF);
        return 0;
    }
    return status == RDMUX_OK ? 1 : -1;
}

static int write_stream(BIO *bio, const char *bytes, size_t length, size_t *done)
{
    struct rdmux_stream *stream = BIO_get_data(bio);
    enum rdmux_status status;
    BIO_clear_retry_flags(bio);
    while ((status = rdmux_stream_write(stream, bytes, length, 0, done)) == RDMUX_AGAIN) {
        if (rdmux_stream_wait(stream, RDMUX_STREAM_WRITE, -1) != RDMUX_OK) {
            return -1;
        }
    }
    return status == RDMUX_OK ? 1 : -1;
}

/* A write that was taken is on its way: there is nothing to flush. */
static long control_stream(BIO *bio, int command, long number, void *pointer)
{
    (void)number;
    (void)pointer;
    switch (command) {
    case BIO_CTRL_FLUSH:
        return 1;
    case BIO_CTRL_EOF:
        return BIO_test_flags(bio, BIO_FLAGS_IN_EOF) != 0;
    default:
        return 0;
    }
}

static BIO_METHOD *stream_method;

static void make_method(void)
{
    BIO_METHOD *method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "rdmux stream");
    if (method != NULL && BIO_meth_set_read_ex(method, read_stream) == 1 &&
        BIO_meth_set_write_ex(method, write_stream) == 1 &&
        BIO_meth_set_ctrl(method, control_stream) == 1) {
        stream_method = method;
    }
}

BIO *link_bio(struct link *link)
{
    static CRYPTO_ONCE once = CRYPTO_ONCE_STATIC_INIT;
    BIO *bio = CRYPTO_THREAD_run_once(&once, make_method) == 1 && stream_method != NULL
                   ? BIO_new(stream_method)
                   : NULL;
    if (bio != NULL) {
        BIO_set_data(bio, link_stream(link));
        BIO_set_init(bio, 1);
    }
    return bio;
}
