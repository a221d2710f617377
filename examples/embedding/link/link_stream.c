/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Links over rdmux streams. Each stream has a completion queue of its own, so that threads with
 * different links do not meet. */
#include "link_stream.h"

#include <rdmux/stream.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* From so many bytes on, lending them to the stream costs less than the copy that it saves. */
enum { LEND_FROM = 64 << 10, CONNECT_MS = 10000 };

struct link {
    struct rdmux_stream *stream;
    char provider[RDMUX_NAME_MAX];
};

struct link_listener {
    struct rdmux_listener *listener;
};

static struct rdmux_fabric *fabric;

static struct link *link_of(struct rdmux_stream *stream)
{
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    struct link *link = malloc(sizeof(*link));
    if (link == NULL || rdmux_ep_info(rdmux_stream_ep(stream), &info) != RDMUX_OK) {
        rdmux_stream_close(stream);
        free(link);
        return NULL;
    }
    link->stream = stream;
    memcpy(link->provider, info.provider, sizeof(link->provider));
    return link;
}

/* Sleeps after RDMUX_AGAIN. Returns false on every other failure. */
static bool may_go_on(struct link *link, enum rdmux_status status, uint32_t event)
{
    return status == RDMUX_OK ||
           (status == RDMUX_AGAIN && rdmux_stream_wait(link->stream, event, -1) == RDMUX_OK);
}

bool link_start(void)
{
    return rdmux_fabric_open(NULL, &fabric) == RDMUX_OK;
}

void link_stop(void)
{
    rdmux_fabric_close(fabric);
}

struct link_listener *link_listen(const char *address, char text[LINK_ADDRESS_MAX])
{
    struct link_listener *listener = calloc(1, sizeof(*listener));
    if (listener == NULL) {
        return NULL;
    }
    if (rdmux_listen(fabric, address, NULL, &listener->listener) != RDMUX_OK ||
        rdmux_listener_address(listener->listener, text, LINK_ADDRESS_MAX) != RDMUX_OK) {
        link_unlisten(listener);
        return NULL;
    }
    return listener;
}

void link_unlisten(struct link_listener *listener)
{
    rdmux_listener_close(listener->listener);
    free(listener);
}

struct link *link_accept(struct link_listener *listener)
{
    struct rdmux_stream *stream;
    bool ok = rdmux_stream_accept(listener->listener, NULL, NULL, -1, &stream) == RDMUX_OK;
    return ok ? link_of(stream) : NULL;
}

struct link *link_connect(const char *address)
{
    struct rdmux_stream *stream;
    bool ok = rdmux_stream_connect(fabric, NULL, address, NULL, CONNECT_MS, &stream) == RDMUX_OK;
    return ok ? link_of(stream) : NULL;
}

bool link_write(struct link *link, struct iovec *pieces, int count)
{
    struct rdmux_sge sges[LINK_PIECES];
    size_t total = 0;
    int at = 0;
    for (int i = 0; i < count; i++) {
        sges[i] = (struct rdmux_sge){ .addr = pieces[i].iov_base, .length = pieces[i].iov_len };
        total += pieces[i].iov_len;
    }
    uint32_t flags = total >= LEND_FROM ? RDMUX_STREAM_LEND : 0;
    while (at < count) {
        size_t done = 0;
        enum rdmux_status status = rdmux_stream_writev(link->stream, sges + at,
                                                       (size_t)(count - at), flags, &done);
        if (!may_go_on(link, status, RDMUX_STREAM_WRITE)) {
            return false;
        }
        while (at < count && status == RDMUX_OK && done >= sges[at].length) {
            done -= sges[at++].length;
        }
        if (at < count) {
            sges[at].addr = (char *)sges[at].addr + done;
            sges[at].length -= done;
        }
    }
    return true;
}

long link_read(struct link *link, void *bytes, size_t length)
{
    size_t got;
    enum rdmux_status status;
    do {
        status = rdmux_stream_read(link->stream, bytes, length, RDMUX_STREAM_ALL, &got);
        if (!may_go_on(link, status, RDMUX_STREAM_READ)) {
            return -1;
        }
    } while (status != RDMUX_OK);
    return (long)got;
}

const char *link_over(const struct link *link)
{
    return link->provider;
}

void link_close(struct link *link)
{
    if (link != NULL) {
        rdmux_stream_close(link->stream);
    }
    free(link);
}

const char *link_error(void)
{
    return rdmux_last_error();
}

struct rdmux_stream *link_stream(const struct link *link)
{
    return link->stream;
}
