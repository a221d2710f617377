/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Control-channel reconnect: how each side proves by the connection's secret, without sending it,
 * that it belongs to the connection. */
#ifndef RDMUX_NEGOTIATION_RECONNECT_PROOF_H
#define RDMUX_NEGOTIATION_RECONNECT_PROOF_H

#include "negotiation/handshake.h"
#include "negotiation/message.h"

#include <stdbool.h>
#include <stdint.h>

enum { RDMUX_RECONNECT_NAME_SIZE = 16 };

/* HELLO's `resume` of a connection: the first 16 bytes of SHA-256 over "rdmux resume", its NUL, and
 * the secret. False: no memory, or a build without OpenSSL. */
bool rdmux_reconnect_name(const uint8_t secret[RDMUX_SECRET_SIZE],
                          uint8_t out[RDMUX_RECONNECT_NAME_SIZE]);

/* The two HELLOs of the new channel. */
struct rdmux_reconnect_greeting {
    uint8_t connectors[RDMUX_HELLO_SIZE];
    uint8_t acceptors[RDMUX_HELLO_SIZE];
};

/* Fills in the message's proof: HMAC-SHA-256, with the secret as key, over both HELLOs, the
 * connector's first, and the frame up to the proof, header included. The frame's type tells the
 * sides apart. */
bool rdmux_reconnect_prove(const uint8_t secret[RDMUX_SECRET_SIZE],
                           const struct rdmux_reconnect_greeting *greeting,
                           struct rdmux_message *message);
bool rdmux_reconnect_is_proved(const uint8_t secret[RDMUX_SECRET_SIZE],
                               const struct rdmux_reconnect_greeting *greeting,
                               const struct rdmux_message *message);

#endif
