/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The sockets of the control channel: whole frames in, whole frames out, never a byte read
 * ahead. */
#ifndef RDMUX_NEGOTIATION_CONTROL_CHANNEL_H
#define RDMUX_NEGOTIATION_CONTROL_CHANNEL_H

#include "api/core.h"
#include "negotiation/tls.h"

/* epoll_fd watches the socket with `data` as its pointer. Owns socket from success on. greeted: the
 * peer's HELLO was read already, so frames follow. */
enum rdmux_status rdmux_channel_create(struct rdmux_fabric *fabric, int socket, int epoll_fd,
                                       void *data, bool greeted, struct rdmux_channel **out);
/* From the first byte on everything goes through this session, which the channel owns. The session
 * may be open already. */
void rdmux_channel_secure(struct rdmux_channel *channel, struct rdmux_tls *tls);
/* The session, which carries a path's data from now on, too. The channel is secured and its session
 * open. */
struct rdmux_stream *rdmux_channel_carry_data(struct rdmux_channel *channel);
/* Who is at the other end; "": nobody has authenticated. */
const char *rdmux_channel_identity(const struct rdmux_channel *channel);
/* Are there bytes that the socket does not tell of any more? */
bool rdmux_channel_holds_bytes(const struct rdmux_channel *channel);
/* Closes the socket. What was sent is left to the kernel. NULL is allowed. */
void rdmux_channel_destroy(struct rdmux_channel *channel);
/* Ends the channel but gives the socket back, blocking or not as it is. */
int rdmux_channel_release(struct rdmux_channel *channel);
int rdmux_channel_socket(const struct rdmux_channel *channel);

enum { RDMUX_CHANNEL_TURN_FRAMES = 64 }; /* that an owner takes of one channel in one turn */
/* What is received until the next turn is bounded: one peer keeps nobody else waiting, however small the
 * records are that it sends. Behind a turn's end rdmux_channel_holds_bytes() and the socket tell of more. */
void rdmux_channel_begin_turn(struct rdmux_channel *channel);
/* The next whole HELLO or frame. bytes are valid until the next call. RDMUX_AGAIN: not there yet, or the
 * turn is over.
 * RDMUX_PEER_GONE: ended. RDMUX_PROTOCOL: neither. RDMUX_AUTH: the peer is none of ours. RDMUX_IO,
 * RDMUX_NO_MEMORY. */
enum rdmux_status rdmux_channel_receive(struct rdmux_channel *channel, const uint8_t **bytes,
                                        size_t *size);
/* Queues and sends as much as the socket takes; the rest goes with rdmux_channel_flush().
 * RDMUX_PEER_GONE, RDMUX_AUTH, RDMUX_NO_MEMORY. */
enum rdmux_status rdmux_channel_send(struct rdmux_channel *channel, const void *bytes, size_t size);
enum rdmux_status rdmux_channel_flush(struct rdmux_channel *channel);
/* Is something still waiting to be sent? */
bool rdmux_channel_is_sending(const struct rdmux_channel *channel);

/* The path shares the socket and does all reading and writing from now on; frames go out through
 * its ep_control. */
void rdmux_channel_attach(struct rdmux_channel *channel, struct rdmux_provider_ep *path);
/* The path is about to be closed: the channel has its socket again. */
void rdmux_channel_detach(struct rdmux_channel *channel);
bool rdmux_channel_is_attached(const struct rdmux_channel *channel);

#endif
