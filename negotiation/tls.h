/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * A TLS 1.3 session over a non-blocking socket: a control channel's, or a data socket's. It speaks
 * as soon as it is asked to send or receive; neither waits. One thread at a time.
 *
 * On a control channel the connector's HELLO goes in clear first, and comes again inside, where the
 * acceptor compares the two. Instead of TLS the other side may say its own HELLO in clear, whose
 * methods then tell why the two cannot talk.
 */
#ifndef RDMUX_NEGOTIATION_TLS_H
#define RDMUX_NEGOTIATION_TLS_H

#include "negotiation/auth.h"
#include "negotiation/handshake.h"
#include "negotiation/path_secret.h"
#include "providers/stream.h"

struct rdmux_tls;

/* host: what a connector dialled, NULL if there is none. The socket stays the caller's. */
enum rdmux_status rdmux_tls_create(const struct rdmux_auth *auth, enum rdmux_role role, int socket,
                                   const char *host, struct rdmux_tls **out);
/* A data socket's, whose two ends know each other by the key. It carries data. */
enum rdmux_status rdmux_tls_create_data(const struct rdmux_auth *auth, enum rdmux_role role,
                                        int socket, const uint8_t key[RDMUX_DATA_KEY_SIZE],
                                        struct rdmux_stream **out);
/* A control channel's session that may come to carry data: its records are long. Before its first
 * byte, since OpenSSL may keep a buffer for shorter ones. */
void rdmux_tls_allow_data(struct rdmux_tls *tls);
/* An open session that is allowed to carries data from now on, and keeps its buffers. The stream is
 * the session, which stays its owner's. */
struct rdmux_stream *rdmux_tls_carry_data(struct rdmux_tls *tls);
/* Says nothing more. NULL is allowed. */
void rdmux_tls_destroy(struct rdmux_tls *tls);

/* Acceptor: the HELLO in clear has been read already, and names our method. */
void rdmux_tls_greeted(struct rdmux_tls *tls, const uint8_t hello[RDMUX_HELLO_SIZE]);

/* Acceptor, greeted: the handshake's next step, of a bounded number of records, which receiving and sending do
 * else. It is where the arithmetic is. RDMUX_OK: the peer is known. RDMUX_AGAIN, and failures as below. */
enum rdmux_status rdmux_tls_step(struct rdmux_tls *tls);

/* At most size bytes that came through the session; *got is not 0 then. RDMUX_AGAIN.
 * RDMUX_PEER_GONE. RDMUX_AUTH: the peer is none of ours. RDMUX_PROTOCOL. RDMUX_NO_MEMORY. */
enum rdmux_status rdmux_tls_receive(struct rdmux_tls *tls, void *out, size_t size, size_t *got);
/* The same in the other direction. A connector's first bytes are its whole HELLO. After RDMUX_AGAIN
 * the next bytes are the same ones, and perhaps more. */
enum rdmux_status rdmux_tls_send(struct rdmux_tls *tls, const void *bytes, size_t size,
                                 size_t *done);
/* Has it authenticated the peer? */
bool rdmux_tls_is_open(const struct rdmux_tls *tls);
/* Does it wait for room in the socket, rather than for bytes? */
bool rdmux_tls_wants_room(const struct rdmux_tls *tls);
/* Are there bytes to be received that are no more in the socket? */
bool rdmux_tls_holds_bytes(const struct rdmux_tls *tls);
/* After so many records the key that they are sent with is renewed. Tests do not wait for 2^24. */
void rdmux_tls_renew_after(struct rdmux_stream *stream, uint64_t records);
/* "" before it is open. */
const char *rdmux_tls_identity(const struct rdmux_tls *tls);

#endif
