/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * A connection for code that blocks. link_socket.c has it over TCP sockets, link_stream.c over rdmux
 * streams, with the same functions in the same order: the second is what it takes to bring such code
 * to rdmux. One thread at a time uses a link. A function that fails sets no errno but leaves the
 * reason to link_error().
 */
#ifndef LINK_H
#define LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/uio.h>

enum { LINK_PIECES = 4, LINK_ADDRESS_MAX = 128 };

struct link;
struct link_listener;

/* Before all others; in the process that uses the links, as a child of fork() has none. */
bool link_start(void);
void link_stop(void);

/* address: HOST:PORT, port 0 = a free one, which `text` then tells. */
struct link_listener *link_listen(const char *address, char text[LINK_ADDRESS_MAX]);
void link_unlisten(struct link_listener *listener);
struct link *link_accept(struct link_listener *listener); /* sleeps until a peer connects */
struct link *link_connect(const char *address);

/* Writes all bytes of count pieces, at most LINK_PIECES, and may change the pieces. */
bool link_write(struct link *link, struct iovec *pieces, int count);

/* Reads length bytes, or fewer at the peer's end alone. Returns their number; -1: it has failed. */
long link_read(struct link *link, void *bytes, size_t length);

/* What carries the bytes: "socket", or the provider of the stream's path. */
const char *link_over(const struct link *link);

/* The end goes behind the bytes written before. */
void link_close(struct link *link);

/* Why this thread's last call has failed. */
const char *link_error(void);

#endif
