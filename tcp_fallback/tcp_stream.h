/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Encryption. If peers authenticate, each socket's bytes go through a TLS session of the core. The
 * session is chosen once, before the first frame. Frames do not depend on it.
 */
#ifndef RDMUX_TCP_STREAM_H
#define RDMUX_TCP_STREAM_H

#include "api/base/stream.h"
#include "tcp_fallback/tcp_lane.h"

#include <rdmux/provider.h>

#include <stdbool.h>
#include <stddef.h>

/* Selects bytes in clear, the state before rdmux_tcp_stream_begin() and after
 * rdmux_tcp_stream_end(). */
void rdmux_tcp_stream_clear(struct tcp_lane *lane);
/* Chooses between bytes in clear and a TLS session. Called when the socket has joined. */
enum rdmux_status rdmux_tcp_stream_begin(struct tcp_lane *lane);
/* Continues the handshake of a TLS session. RDMUX_IN_PROGRESS: the poller reports when to continue. */
enum rdmux_status rdmux_tcp_stream_step(struct tcp_lane *lane);
/* Returns whether the session may hold bytes that the poller does not report. */
static inline bool rdmux_tcp_stream_holds_bytes(const struct tcp_lane *lane)
{
    const struct rdmux_path_stream *session = lane->stream.session;
    return session != NULL && session->ops->holds_bytes(session);
}
/* Returns why the session failed; "" if it did not. */
const char *rdmux_tcp_stream_reason(const struct tcp_lane *lane);
void rdmux_tcp_stream_end(struct tcp_lane *lane);

#endif
