/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * A TLS 1.3 session over the non-blocking socket of a control channel or of data. It starts the TLS
 * handshake with the first call to send or receive; neither call waits. One thread at a time.
 *
 * On a control channel the connector's HELLO goes in clear first, and again inside the session,
 * where the acceptor compares the two. Instead of TLS the acceptor may answer with its own HELLO in
 * clear, whose methods tell why the two cannot connect.
 */
#ifndef RDMUX_NEGOTIATION_TLS_H
#define RDMUX_NEGOTIATION_TLS_H

#include "api/base/stream.h"
#include "negotiation/auth.h"
#include "negotiation/handshake.h"
#include "negotiation/path_secret.h"

struct rdmux_tls;

/* host: the name or address that a connector dialled; NULL: none. The caller keeps the socket. */
enum rdmux_status rdmux_tls_create(const struct rdmux_auth *auth, enum rdmux_role role, int socket,
                                   const char *host, struct rdmux_tls **out);
/* Creates the session of a data socket, whose two ends know each other by the key. It carries
 * data. */
enum rdmux_status rdmux_tls_create_data(const struct rdmux_auth *auth, enum rdmux_role role,
                                        int socket, const uint8_t key[RDMUX_DATA_KEY_SIZE],
                                        struct rdmux_path_stream **out);
/* Allows a control channel's session to carry data later: its records are long. Call it before the
 * first byte, as OpenSSL may keep a buffer for shorter records. */
void rdmux_tls_allow_data(struct rdmux_tls *tls);
/* Makes an open session that may carry data do so from now on; it keeps its buffers. The stream is
 * the session, which stays its owner's. */
struct rdmux_path_stream *rdmux_tls_carry_data(struct rdmux_tls *tls);
/* Sends nothing more. NULL is allowed. */
void rdmux_tls_destroy(struct rdmux_tls *tls);

/* Acceptor: takes the HELLO in clear, which was read already and names this side's method. */
void rdmux_tls_greeted(struct rdmux_tls *tls, const uint8_t hello[RDMUX_HELLO_SIZE]);

/* Acceptor, after rdmux_tls_greeted(): does the handshake's next step, with its cryptography, for a
 * bounded number of records. Without this call, receiving and sending do it. RDMUX_OK: the peer is
 * authenticated. RDMUX_AGAIN, and failures as below. */
enum rdmux_status rdmux_tls_step(struct rdmux_tls *tls);

/* Receives at most size bytes through the session; *got is not 0 on success. RDMUX_AGAIN.
 * RDMUX_PEER_GONE. RDMUX_AUTH: the peer failed authentication. RDMUX_PROTOCOL. RDMUX_NO_MEMORY. */
enum rdmux_status rdmux_tls_receive(struct rdmux_tls *tls, void *out, size_t size, size_t *got);
/* Sends bytes, with the same statuses. A connector's first bytes are its whole HELLO. After
 * RDMUX_AGAIN the next call must begin with the same bytes, and may add more. */
enum rdmux_status rdmux_tls_send(struct rdmux_tls *tls, const void *bytes, size_t size,
                                 size_t *done);
/* Returns whether the session has authenticated the peer. */
bool rdmux_tls_is_open(const struct rdmux_tls *tls);
/* Returns whether the session waits for room in the socket, rather than for bytes. */
bool rdmux_tls_wants_room(const struct rdmux_tls *tls);
/* Returns whether there are bytes to receive that are no longer in the socket. */
bool rdmux_tls_holds_bytes(const struct rdmux_tls *tls);
/* Sets after how many records the sending key is renewed, for tests: the default is 2^24. */
void rdmux_tls_renew_after(struct rdmux_path_stream *stream, uint64_t records);
/* The peer's identity; "" before the session is open. */
const char *rdmux_tls_identity(const struct rdmux_tls *tls);

#endif
