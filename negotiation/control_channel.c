/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The sockets of the control channel. */
#include "negotiation/control_channel.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    FIRST_ROOM = 256,     /* bytes of room at the start of either direction */
    UNSENT_MAX = 4 << 20, /* a peer that lets so much pile up does not read its control channel */
};

struct buffer {
    uint8_t *bytes;
    size_t room;
    size_t have;
};

struct rdmux_channel {
    struct rdmux_fabric *fabric;
    int socket;
    int epoll_fd;
    void *data;
    uint32_t watched; /* events */
    bool greeted;     /* the peer's HELLO has been read */
    struct buffer in;
    size_t returned; /* bytes of `in` that were given out by the last receive */
    struct buffer out;
    size_t sent;                    /* of out */
    struct rdmux_provider_ep *path; /* attached */
};

static enum rdmux_status make_room(struct rdmux_channel *channel, struct buffer *buffer, size_t room)
{
    if (room <= buffer->room) {
        return RDMUX_OK;
    }
    size_t larger = buffer->room == 0 ? FIRST_ROOM : buffer->room;
    while (larger < room) {
        larger *= 2;
    }
    uint8_t *bytes = rdmux_allocate(channel->fabric, larger);
    if (bytes == NULL) {
        return rdmux_fail(RDMUX_NO_MEMORY, "control channel: out of memory");
    }
    if (buffer->have != 0) {
        memcpy(bytes, buffer->bytes, buffer->have);
    }
    rdmux_release(channel->fabric, buffer->bytes);
    buffer->bytes = bytes;
    buffer->room = larger;
    return RDMUX_OK;
}

static void watch(struct rdmux_channel *channel, uint32_t events)
{
    if (channel->path != NULL) {
        events = 0;
    }
    if (events == channel->watched) {
        return;
    }
    struct epoll_event event = { .events = events, .data.ptr = channel->data };
    int operation = channel->watched == 0 ? EPOLL_CTL_ADD
                    : events == 0         ? EPOLL_CTL_DEL
                                          : EPOLL_CTL_MOD;
    if (epoll_ctl(channel->epoll_fd, operation, channel->socket, &event) == 0) {
        channel->watched = events;
    }
}

enum rdmux_status rdmux_channel_create(struct rdmux_fabric *fabric, int socket, int epoll_fd,
                                       void *data, bool greeted, struct rdmux_channel **out)
{
    struct rdmux_channel *channel = rdmux_allocate(fabric, sizeof(*channel));
    if (channel == NULL) {
        return rdmux_fail(RDMUX_NO_MEMORY, "control channel: out of memory");
    }
    channel->fabric = fabric;
    channel->socket = socket;
    channel->epoll_fd = epoll_fd;
    channel->data = data;
    channel->greeted = greeted;
    watch(channel, EPOLLIN);
    if (channel->watched == 0) {
        rdmux_release(fabric, channel);
        return rdmux_fail(RDMUX_IO, "control channel: epoll_ctl failed: errno %d", errno);
    }
    *out = channel;
    return RDMUX_OK;
}

int rdmux_channel_release(struct rdmux_channel *channel)
{
    channel->path = NULL;
    watch(channel, 0);
    int socket = channel->socket;
    rdmux_release(channel->fabric, channel->in.bytes);
    rdmux_release(channel->fabric, channel->out.bytes);
    rdmux_release(channel->fabric, channel);
    return socket;
}

void rdmux_channel_destroy(struct rdmux_channel *channel)
{
    if (channel != NULL) {
        close(rdmux_channel_release(channel));
    }
}

int rdmux_channel_socket(const struct rdmux_channel *channel)
{
    return channel->socket;
}

enum rdmux_status rdmux_channel_receive(struct rdmux_channel *channel, const uint8_t **bytes,
                                        size_t *size)
{
    struct buffer *in = &channel->in;
    if (channel->path != NULL) {
        return RDMUX_AGAIN;
    }
    if (channel->returned != 0) {
        channel->returned = 0;
        in->have = 0;
    }
    for (;;) {
        bool bad = false;
        size_t total = rdmux_frame_total(in->bytes, in->have, !channel->greeted, &bad);
        if (bad) {
            return rdmux_fail(RDMUX_PROTOCOL,
                              "control channel: the peer does not speak this protocol");
        }
        if (total != 0 && in->have == total) {
            channel->greeted = true;
            channel->returned = total;
            *bytes = in->bytes;
            *size = total;
            return RDMUX_OK;
        }
        size_t want = total == 0 ? RDMUX_FRAME_HEADER_SIZE : total;
        enum rdmux_status status = make_room(channel, in, want);
        if (status != RDMUX_OK) {
            return status;
        }
        ssize_t got = recv(channel->socket, in->bytes + in->have, want - in->have, MSG_DONTWAIT);
        if (got > 0) {
            in->have += (size_t)got;
        } else if (got == 0) {
            return rdmux_fail(RDMUX_PEER_GONE, "control channel: the peer closed it");
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            return RDMUX_AGAIN;
        } else if (errno != EINTR) {
            return rdmux_fail(RDMUX_PEER_GONE, "control channel: lost: %s", strerror(errno));
        }
    }
}

/* Through the path that shares the socket: one whole frame at a time. */
static enum rdmux_status flush_attached(struct rdmux_channel *channel)
{
    struct buffer *out = &channel->out;
    while (channel->sent < out->have) {
        bool bad = false;
        size_t total = rdmux_frame_total(out->bytes + channel->sent, out->have - channel->sent,
                                         false, &bad);
        if (total == 0 || total > out->have - channel->sent) {
            break;
        }
        enum rdmux_status status = channel->path->ops->ep_control(
            channel->path, out->bytes + channel->sent, total);
        if (status == RDMUX_AGAIN) {
            return RDMUX_OK;
        }
        if (status != RDMUX_OK) {
            return status;
        }
        channel->sent += total;
    }
    if (channel->sent == out->have) {
        channel->sent = 0;
        out->have = 0;
    }
    return RDMUX_OK;
}

enum rdmux_status rdmux_channel_flush(struct rdmux_channel *channel)
{
    if (channel->path != NULL) {
        return flush_attached(channel);
    }
    struct buffer *out = &channel->out;
    while (channel->sent < out->have) {
        ssize_t done = send(channel->socket, out->bytes + channel->sent, out->have - channel->sent,
                            MSG_NOSIGNAL | MSG_DONTWAIT);
        if (done >= 0) {
            channel->sent += (size_t)done;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            watch(channel, EPOLLIN | EPOLLOUT);
            return RDMUX_OK;
        } else if (errno != EINTR) {
            return rdmux_fail(RDMUX_PEER_GONE, "control channel: lost: %s", strerror(errno));
        }
    }
    channel->sent = 0;
    out->have = 0;
    watch(channel, EPOLLIN);
    return RDMUX_OK;
}

enum rdmux_status rdmux_channel_send(struct rdmux_channel *channel, const void *bytes, size_t size)
{
    struct buffer *out = &channel->out;
    if (out->have - channel->sent + size > UNSENT_MAX) {
        return rdmux_fail(RDMUX_PEER_GONE, "control channel: the peer has not read %zu bytes",
                          out->have - channel->sent);
    }
    if (channel->sent != 0 && channel->sent == out->have) {
        channel->sent = 0;
        out->have = 0;
    }
    enum rdmux_status status = make_room(channel, out, out->have + size);
    if (status != RDMUX_OK) {
        return status;
    }
    memcpy(out->bytes + out->have, bytes, size);
    out->have += size;
    return rdmux_channel_flush(channel);
}

bool rdmux_channel_is_sending(const struct rdmux_channel *channel)
{
    return channel->sent != channel->out.have;
}

void rdmux_channel_attach(struct rdmux_channel *channel, struct rdmux_provider_ep *path)
{
    watch(channel, 0);
    channel->path = path;
}

void rdmux_channel_detach(struct rdmux_channel *channel)
{
    if (channel->path != NULL) {
        channel->path = NULL;
        watch(channel, EPOLLIN);
    }
}

bool rdmux_channel_is_attached(const struct rdmux_channel *channel)
{
    return channel->path != NULL;
}
