/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * An echo server and its client, as they would be with sockets: accept, read, write, half close.
 *
 * The client sends its stdin and prints what comes back. It reads and writes at once: both rings
 * would fill up, and stay full, if it wrote everything first.
 */
#include <rdmux/stream.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char
    usage[] = "usage: stream_echo serve ADDRESS [CLIENTS]   serves one client at a time\n"
              "       stream_echo send ADDRESS              sends stdin, prints the echo\n"
              "ADDRESS is HOST:PORT, or *:PORT to serve; PORT 0: a free port.\n"
              "CLIENTS: ends after so many; default: never.\n";

enum { PIECE = 65536, WAIT_MS = 10000 };

static void must(enum rdmux_status status, const char *what)
{
    if (status != RDMUX_OK) {
        fprintf(stderr, "stream_echo: %s: %s %s\n", what, rdmux_status_name(status),
                rdmux_last_error());
        exit(1);
    }
}

/* Writes all bytes; waits for room as a blocking socket does. */
static enum rdmux_status write_all(struct rdmux_stream *stream, const void *bytes, size_t length)
{
    enum rdmux_status status = RDMUX_OK;
    for (size_t at = 0, done = 0; at < length && status == RDMUX_OK; at += done) {
        status = rdmux_stream_write(stream, (const char *)bytes + at, length - at, 0, &done);
        if (status == RDMUX_AGAIN) {
            status = rdmux_stream_wait(stream, RDMUX_STREAM_WRITE, -1);
        }
    }
    return status;
}

/* Sends back what comes, straight from the ring, until the client's end. */
static enum rdmux_status echo(struct rdmux_stream *stream)
{
    for (;;) {
        const void *bytes;
        size_t length;
        enum rdmux_status status = rdmux_stream_peek(stream, &bytes, &length);
        if (status == RDMUX_AGAIN) {
            status = rdmux_stream_wait(stream, RDMUX_STREAM_READ, -1);
        } else if (status == RDMUX_OK && length == 0) {
            return RDMUX_OK;
        } else if (status == RDMUX_OK) {
            status = write_all(stream, bytes, length);
            if (status == RDMUX_OK) {
                status = rdmux_stream_consume(stream, length);
            }
        }
        if (status != RDMUX_OK) {
            return status;
        }
    }
}

static void serve(struct rdmux_fabric *fabric, const char *address, long clients)
{
    struct rdmux_listener *listener;
    char here[RDMUX_ADDRESS_MAX];
    must(rdmux_listen(fabric, address, NULL, &listener), "listen");
    must(rdmux_listener_address(listener, here, sizeof(here)), "address");
    printf("listening on %s\n", here);
    fflush(stdout);
    for (long i = 0; clients == 0 || i < clients; i++) {
        struct rdmux_stream *stream;
        struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
        must(rdmux_stream_accept(listener, NULL, NULL, -1, &stream), "accept");
        must(rdmux_ep_info(rdmux_stream_ep(stream), &info), "info");
        fprintf(stderr, "%s came over %s\n", info.peer_address, info.provider);
        if (echo(stream) != RDMUX_OK) {
            fprintf(stderr, "%s left: %s\n", info.peer_address, rdmux_last_error());
        }
        rdmux_stream_close(stream); /* sends the end of the echo, too */
    }
    rdmux_listener_close(listener);
}

static void say(struct rdmux_fabric *fabric, const char *address)
{
    static char out[PIECE], in[PIECE];
    size_t filled = 0, sent = 0, got = 0;
    bool has_input = true;
    struct rdmux_stream *stream;
    must(rdmux_stream_connect(fabric, NULL, address, NULL, WAIT_MS, &stream), "connect");
    for (;;) {
        if (has_input && sent == filled) {
            ssize_t count = read(STDIN_FILENO, out, sizeof(out));
            has_input = count > 0;
            filled = has_input ? (size_t)count : 0;
            sent = 0;
            if (!has_input) {
                must(rdmux_stream_shutdown(stream, RDMUX_STREAM_WRITE), "shutdown");
            }
        }
        if (sent < filled) {
            size_t done;
            enum rdmux_status status = rdmux_stream_write(stream, out + sent, filled - sent, 0,
                                                          &done);
            must(status == RDMUX_AGAIN ? RDMUX_OK : status, "write");
            sent += done;
        }
        enum rdmux_status status = rdmux_stream_read(stream, in, sizeof(in), 0, &got);
        if (status == RDMUX_OK && got == 0) {
            break; /* the server's end */
        }
        must(status == RDMUX_AGAIN ? RDMUX_OK : status, "read");
        fwrite(in, 1, got, stdout);
        if (status == RDMUX_AGAIN && (sent < filled || !has_input)) {
            uint32_t events = RDMUX_STREAM_READ | (sent < filled ? RDMUX_STREAM_WRITE : 0U);
            must(rdmux_stream_wait(stream, events, -1), "wait");
        }
    }
    must(rdmux_stream_close(stream), "close");
}

int main(int argc, char **argv)
{
    struct rdmux_fabric *fabric;
    bool serves = argc >= 3 && argc <= 4 && strcmp(argv[1], "serve") == 0;
    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        fputs(usage, stdout);
        return 0;
    }
    if (!serves && (argc != 3 || strcmp(argv[1], "send") != 0)) {
        fputs(usage, stderr);
        return 2;
    }
    must(rdmux_fabric_open(NULL, &fabric), "fabric");
    if (serves) {
        serve(fabric, argv[2], argc == 4 ? strtol(argv[3], NULL, 10) : 0);
    } else {
        say(fabric, argv[2]);
    }
    must(rdmux_fabric_close(fabric), "close");
    return fflush(stdout) == 0 ? 0 : 1;
}
