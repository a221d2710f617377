/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The sockets of the control channel. Sends and receives whole frames and never reads a byte
 * ahead. */
#ifndef RDMUX_NEGOTIATION_CONTROL_CHANNEL_H
#define RDMUX_NEGOTIATION_CONTROL_CHANNEL_H

#include "negotiation/tls.h"

struct rdmux_channel;

/* poller watches the socket with `data` as its pointer. The channel owns the socket from success
 * on. greeted: the peer's HELLO was read already, so frames follow. */
enum rdmux_status rdmux_channel_create(struct rdmux_fabric *fabric, int socket, int poller,
                                       void *data, bool greeted, struct rdmux_channel **out);
/* The channel changes its owner. rdmux_channel_unwatch() takes the socket out of the poller
 * and returns the events that it was watched for; rdmux_channel_watch() puts it on another one, for
 * these events. RDMUX_NO_MEMORY: the socket is not watched. */
uint32_t rdmux_channel_unwatch(struct rdmux_channel *channel);
enum rdmux_status rdmux_channel_watch(struct rdmux_channel *channel, int poller, uint32_t events);
/* All bytes go through this session from the first one on. The channel owns the session, which may
 * be open already. */
void rdmux_channel_secure(struct rdmux_channel *channel, struct rdmux_tls *tls);
/* Returns the session, which carries a path's data too from now on. The channel is secured and its
 * session open. */
struct rdmux_path_stream *rdmux_channel_carry_data(struct rdmux_channel *channel);
/* The authenticated identity of the peer; "": the peer has not authenticated. */
const char *rdmux_channel_identity(const struct rdmux_channel *channel);
/* Returns whether there are bytes to receive that the socket no longer signals. */
bool rdmux_channel_holds_bytes(const struct rdmux_channel *channel);
/* Closes the socket; the kernel delivers what was sent. NULL is allowed. */
void rdmux_channel_destroy(struct rdmux_channel *channel);
/* Ends the channel and returns the socket; its blocking mode is unchanged. */
int rdmux_channel_release(struct rdmux_channel *channel);
int rdmux_channel_socket(const struct rdmux_channel *channel);

enum { RDMUX_CHANNEL_TURN_FRAMES = 64 }; /* frames that an owner takes from one channel per turn */
/* Starts a turn. The bytes received per turn are bounded, so that one peer cannot delay others,
 * however small its records are. After the turn, rdmux_channel_holds_bytes() and the socket tell if
 * there is more. */
void rdmux_channel_begin_turn(struct rdmux_channel *channel);
/* Returns the next whole HELLO or frame; bytes are valid until the next call. RDMUX_AGAIN: not
 * complete yet, or the turn is over. RDMUX_PEER_GONE: the channel has ended. RDMUX_PROTOCOL:
 * neither a HELLO nor a frame. RDMUX_AUTH: the peer failed authentication. RDMUX_IO,
 * RDMUX_NO_MEMORY. */
enum rdmux_status rdmux_channel_receive(struct rdmux_channel *channel, const uint8_t **bytes,
                                        size_t *size);
/* Queues the bytes and sends as many as the socket takes; rdmux_channel_flush() sends the rest.
 * RDMUX_PEER_GONE, RDMUX_AUTH, RDMUX_NO_MEMORY. */
enum rdmux_status rdmux_channel_send(struct rdmux_channel *channel, const void *bytes, size_t size);
enum rdmux_status rdmux_channel_flush(struct rdmux_channel *channel);
/* Returns whether there are unsent bytes. */
bool rdmux_channel_is_sending(const struct rdmux_channel *channel);

/* The path shares the socket and does all reading and writing from now on. Frames go out through
 * its ep_control. */
/* A frame came through the path that shares the socket: writes it to the fabric's capture. channel
 * may be NULL. */
void rdmux_channel_note_received(const struct rdmux_channel *channel, const void *frame,
                                 size_t size);
void rdmux_channel_attach(struct rdmux_channel *channel, struct rdmux_provider_ep *path);
/* Returns the socket to the channel; the path is about to be closed. */
void rdmux_channel_detach(struct rdmux_channel *channel);
bool rdmux_channel_is_attached(const struct rdmux_channel *channel);

#endif
