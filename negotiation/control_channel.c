/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The sockets of the control channel. */
#include "negotiation/control_channel.h"

#include "api/base/error.h"
#include "api/base/hooks.h"
#include "api/system/system.h"
#include "negotiation/control_capture.h"
#include "negotiation/message.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    FIRST_ROOM = 256, /* initial bytes of room, per direction */
    DRAIN_READS = 64,
    TURN_READS = 256,     /* reads from the socket or the session per turn */
    UNSENT_MAX = 4 << 20, /* a peer with more unsent bytes does not read its control channel */
    KEPT_ROOM = 64 << 10, /* bytes of room that an empty buffer keeps */
};

struct buffer {
    uint8_t *bytes;
    size_t room;
    size_t have;
};

struct rdmux_channel {
    struct rdmux_fabric *fabric;
    struct rdmux_tls *tls; /* NULL: in clear */
    int socket;
    int poller;
    void *data;
    uint32_t watched; /* RDMUX_READY_* */
    bool is_greeted;  /* the peer's HELLO has been read */
    struct buffer in;
    unsigned reads;  /* in this turn */
    size_t returned; /* bytes of `in` returned by the last receive */
    struct buffer out;
    size_t sent;                    /* bytes of `out` already sent */
    struct rdmux_provider_ep *path; /* while attached */
};

/* Wipes a buffer's bytes: frames contain secrets. */
static void wipe_buffer(struct rdmux_channel *channel, struct buffer *buffer)
{
    rdmux_release_wiped(channel->fabric, buffer->bytes, buffer->room);
}

static enum rdmux_status make_buffer_room(struct rdmux_channel *channel, struct buffer *buffer,
                                          size_t room)
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
    wipe_buffer(channel, buffer);
    buffer->bytes = bytes;
    buffer->room = larger;
    return RDMUX_OK;
}

/* Everything has been sent. */
static void note_all_sent(struct rdmux_channel *channel)
{
    struct buffer *out = &channel->out;
    if (out->have != 0) {
        rdmux_wipe(out->bytes, out->have);
    }
    channel->sent = 0;
    out->have = 0;
    if (out->room > KEPT_ROOM) {
        wipe_buffer(channel, out);
        *out = (struct buffer){ 0 };
    }
}

/* Makes room behind the unsent bytes. A peer that reads as fast as it is answered never lets the
 * buffer become empty, so bytes already sent are removed first if they are at least half of it. */
static enum rdmux_status make_room_to_send(struct rdmux_channel *channel, size_t size)
{
    struct buffer *out = &channel->out;
    const size_t unsent = out->have - channel->sent;
    if (channel->sent != 0 && out->have + size > out->room && channel->sent >= unsent) {
        memmove(out->bytes, out->bytes + channel->sent, unsent);
        rdmux_wipe(out->bytes + unsent, channel->sent);
        out->have = unsent;
        channel->sent = 0;
    }
    return make_buffer_room(channel, out, out->have + size);
}

static void watch_socket(struct rdmux_channel *channel, uint32_t events)
{
    if (channel->path != NULL) {
        events = 0;
    }
    if (events == channel->watched) {
        return;
    }
    const int poller = channel->poller;
    const int socket = channel->socket;
    if ((channel->watched == 0 ? rdmux_poller_add(poller, socket, events, channel->data)
         : events == 0         ? rdmux_poller_remove(poller, socket)
                               : rdmux_poller_change(poller, socket, events, channel->data)) == 0) {
        channel->watched = events;
    }
}

enum rdmux_status rdmux_channel_create(struct rdmux_fabric *fabric, int socket, int poller,
                                       void *data, bool greeted, struct rdmux_channel **out)
{
    struct rdmux_channel *channel = rdmux_allocate(fabric, sizeof(*channel));
    if (channel == NULL) {
        return rdmux_fail(RDMUX_NO_MEMORY, "control channel: out of memory");
    }
    channel->fabric = fabric;
    channel->socket = socket;
    channel->poller = poller;
    channel->data = data;
    channel->is_greeted = greeted;
    watch_socket(channel, RDMUX_READY_IN);
    if (channel->watched == 0) {
        rdmux_release(fabric, channel);
        return rdmux_fail(RDMUX_IO, "control channel: its poller takes no socket: errno %d", errno);
    }
    *out = channel;
    return RDMUX_OK;
}

uint32_t rdmux_channel_unwatch(struct rdmux_channel *channel)
{
    uint32_t events = channel->watched;
    watch_socket(channel, 0);
    return events;
}

enum rdmux_status rdmux_channel_watch(struct rdmux_channel *channel, int poller, uint32_t events)
{
    channel->poller = poller;
    watch_socket(channel, events);
    return channel->watched == events
               ? RDMUX_OK
               : rdmux_fail(RDMUX_NO_MEMORY,
                            "control channel: its poller takes no socket: errno %d", errno);
}

void rdmux_channel_secure(struct rdmux_channel *channel, struct rdmux_tls *tls)
{
    channel->tls = tls;
}

struct rdmux_path_stream *rdmux_channel_carry_data(struct rdmux_channel *channel)
{
    return rdmux_tls_carry_data(channel->tls);
}

const char *rdmux_channel_identity(const struct rdmux_channel *channel)
{
    return channel->tls == NULL ? "" : rdmux_tls_identity(channel->tls);
}

bool rdmux_channel_holds_bytes(const struct rdmux_channel *channel)
{
    return channel->tls != NULL && rdmux_tls_holds_bytes(channel->tls);
}

int rdmux_channel_release(struct rdmux_channel *channel)
{
    channel->path = NULL;
    watch_socket(channel, 0);
    int socket = channel->socket;
    rdmux_tls_destroy(channel->tls);
    wipe_buffer(channel, &channel->in);
    wipe_buffer(channel, &channel->out);
    rdmux_release(channel->fabric, channel);
    return socket;
}

void rdmux_channel_destroy(struct rdmux_channel *channel)
{
    if (channel == NULL) {
        return;
    }
    bool refused = channel->tls != NULL && !rdmux_tls_is_open(channel->tls);
    int socket = rdmux_channel_release(channel);
    if (refused) { /* closing with unread bytes would discard the last bytes sent */
        uint8_t waste[1024];
        (void)shutdown(socket, SHUT_WR);
        for (int i = 0; i < DRAIN_READS && recv(socket, waste, sizeof(waste), MSG_DONTWAIT) > 0;
             i++) {
        }
    }
    close(socket);
}

int rdmux_channel_socket(const struct rdmux_channel *channel)
{
    return channel->socket;
}

/* Like recv(2) of at least one byte, in clear or through the session. */
static enum rdmux_status take_bytes(struct rdmux_channel *channel, void *out, size_t size,
                                    size_t *taken)
{
    if (channel->tls != NULL) {
        return rdmux_tls_receive(channel->tls, out, size, taken);
    }
    for (;;) {
        ssize_t got = recv(channel->socket, out, size, MSG_DONTWAIT);
        if (got > 0) {
            *taken = (size_t)got;
            return RDMUX_OK;
        }
        if (got == 0) {
            return rdmux_fail(RDMUX_PEER_GONE, "control channel: the peer closed it");
        }
        if (errno == EAGAIN || errno == EWOULDBLOCK) {
            return RDMUX_AGAIN;
        }
        if (errno != EINTR) {
            return rdmux_fail(RDMUX_PEER_GONE, "control channel: lost: %s", strerror(errno));
        }
    }
}

static enum rdmux_status give_bytes(struct rdmux_channel *channel, const void *bytes, size_t size,
                                    size_t *given)
{
    if (channel->tls != NULL) {
        return rdmux_tls_send(channel->tls, bytes, size, given);
    }
    for (;;) {
        ssize_t done = send(channel->socket, bytes, size, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (done >= 0) {
            *given = (size_t)done;
            return RDMUX_OK;
        }
        if (errno == EAGAIN || errno == EWOULDBLOCK) {
            return RDMUX_AGAIN;
        }
        if (errno != EINTR) {
            return rdmux_fail(RDMUX_PEER_GONE, "control channel: lost: %s", strerror(errno));
        }
    }
}

/* Selects the events to wait for while bytes are unsent: a session that opens may wait for bytes
 * first. */
static void watch_unsent(struct rdmux_channel *channel)
{
    bool room = channel->tls == NULL || rdmux_tls_wants_room(channel->tls);
    watch_socket(channel, room ? RDMUX_READY_IN | RDMUX_READY_OUT : RDMUX_READY_IN);
}

/* No more bytes. A session that has just opened sends the bytes that waited for it. */
static enum rdmux_status nothing_received(struct rdmux_channel *channel)
{
    if (channel->tls == NULL) {
        return RDMUX_AGAIN;
    }
    if (channel->sent < channel->out.have && rdmux_tls_is_open(channel->tls)) {
        enum rdmux_status status = rdmux_channel_flush(channel);
        return status == RDMUX_OK ? RDMUX_AGAIN : status;
    }
    watch_unsent(channel);
    return RDMUX_AGAIN;
}

void rdmux_channel_begin_turn(struct rdmux_channel *channel)
{
    channel->reads = 0;
}

enum rdmux_status rdmux_channel_receive(struct rdmux_channel *channel, const uint8_t **bytes,
                                        size_t *size)
{
    struct buffer *in = &channel->in;
    if (channel->path != NULL) {
        return RDMUX_AGAIN;
    }
    if (channel->returned != 0) {
        rdmux_wipe(in->bytes, channel->returned);
        channel->returned = 0;
        in->have = 0;
    }
    for (;;) {
        bool bad = false;
        size_t total = rdmux_frame_total(in->bytes, in->have, !channel->is_greeted, &bad);
        if (bad) {
            return rdmux_fail(RDMUX_PROTOCOL,
                              "control channel: the peer does not speak this protocol");
        }
        if (total != 0 && in->have == total) {
            channel->is_greeted = true;
            channel->returned = total;
            rdmux_capture_control(channel->fabric, channel->socket, RDMUX_CAPTURE_IN, in->bytes,
                                  total, channel->tls != NULL);
            *bytes = in->bytes;
            *size = total;
            return RDMUX_OK;
        }
        size_t want = total == 0 ? RDMUX_FRAME_HEADER_SIZE : total;
        enum rdmux_status status = make_buffer_room(channel, in, want);
        if (status != RDMUX_OK) {
            return status;
        }
        if (channel->reads >= TURN_READS) {
            return RDMUX_AGAIN;
        }
        channel->reads++;
        size_t got = 0;
        status = take_bytes(channel, in->bytes + in->have, want - in->have, &got);
        if (status == RDMUX_AGAIN) {
            return nothing_received(channel);
        }
        if (status != RDMUX_OK) {
            return status;
        }
        in->have += got;
    }
}

/* Sends whole frames through the path that shares the socket. */
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
        note_all_sent(channel);
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
        size_t done = 0;
        enum rdmux_status status = give_bytes(channel, out->bytes + channel->sent,
                                              out->have - channel->sent, &done);
        if (status == RDMUX_AGAIN) {
            watch_unsent(channel);
            return RDMUX_OK;
        }
        if (status != RDMUX_OK) {
            return status;
        }
        channel->sent += done;
    }
    note_all_sent(channel);
    watch_socket(channel, RDMUX_READY_IN);
    return RDMUX_OK;
}

enum rdmux_status rdmux_channel_send(struct rdmux_channel *channel, const void *bytes, size_t size)
{
    struct buffer *out = &channel->out;
    if (out->have - channel->sent + size > UNSENT_MAX) {
        return rdmux_fail(RDMUX_PEER_GONE, "control channel: the peer has not read %zu bytes",
                          out->have - channel->sent);
    }
    enum rdmux_status status = make_room_to_send(channel, size);
    if (status != RDMUX_OK) {
        return status;
    }
    memcpy(out->bytes + out->have, bytes, size);
    out->have += size;
    rdmux_capture_control(channel->fabric, channel->socket, RDMUX_CAPTURE_OUT, bytes, size,
                          channel->tls != NULL);
    return rdmux_channel_flush(channel);
}

bool rdmux_channel_is_sending(const struct rdmux_channel *channel)
{
    return channel->sent != channel->out.have;
}

void rdmux_channel_attach(struct rdmux_channel *channel, struct rdmux_provider_ep *path)
{
    watch_socket(channel, 0);
    channel->path = path;
}

void rdmux_channel_detach(struct rdmux_channel *channel)
{
    if (channel->path != NULL) {
        channel->path = NULL;
        watch_socket(channel, RDMUX_READY_IN);
    }
}

bool rdmux_channel_is_attached(const struct rdmux_channel *channel)
{
    return channel->path != NULL;
}

void rdmux_channel_note_received(const struct rdmux_channel *channel, const void *frame, size_t size)
{
    if (channel != NULL) {
        rdmux_capture_control(channel->fabric, channel->socket, RDMUX_CAPTURE_IN, frame, size,
                              channel->tls != NULL);
    }
}
