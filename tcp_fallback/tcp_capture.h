/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * The frames of data socket 0 in the fabric's capture. rdmux_tcp_capture_begin() puts its own I/O
 * functions before those of the socket; they call these, and then look at the bytes that have
 * passed. So an endpoint of a fabric without a capture runs no code of this file. Frames of a
 * control channel that shares the socket are captured by the core. The shares on other sockets have
 * no frames, and are not captured.
 */
#ifndef RDMUX_TCP_CAPTURE_H
#define RDMUX_TCP_CAPTURE_H

#include "tcp_fallback/tcp_lane.h"

#include <rdmux/provider.h>

#include <stdint.h>

/* The lane's stream was chosen. Does nothing if the fabric has no capture, or if the stream is
 * encrypted and the capture leaves that out. RDMUX_NO_MEMORY. */
enum rdmux_status rdmux_tcp_capture_begin(struct tcp_lane *lane);
void rdmux_tcp_capture_end(struct tcp_lane *lane);
/* A JOIN was sent. */
void rdmux_tcp_capture_join(const struct tcp_lane *lane, const uint8_t join[RDMUX_JOIN_SIZE]);

#endif
