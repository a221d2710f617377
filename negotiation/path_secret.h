/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#ifndef RDMUX_NEGOTIATION_PATH_SECRET_H
#define RDMUX_NEGOTIATION_PATH_SECRET_H

#include "negotiation/handshake.h"

#include <rdmux/provider.h>
#include <stdbool.h>
#include <stdint.h>

/* Derives the secret of one path attempt from the connection's secret. With OpenSSL: the first 16
 * bytes of SHA-256 over "rdmux path" and its NUL, the connection's secret, and the attempt
 * (big-endian). */
void rdmux_path_secret(const uint8_t secret[RDMUX_SECRET_SIZE], uint32_t attempt,
                       uint8_t out[RDMUX_SECRET_SIZE]);

enum { RDMUX_DATA_KEY_SIZE = 32 };

/* Connections of authenticated peers, only with OpenSSL: derives the key by which the sessions at
 * the two ends of one data socket know each other. SHA-256 over "rdmux data" and its NUL, the
 * connection's secret, the attempt and the socket's number (both 32 bits, big-endian). False: no
 * memory. */
bool rdmux_data_key(const uint8_t secret[RDMUX_SECRET_SIZE], uint32_t attempt, uint32_t socket,
                    uint8_t out[RDMUX_DATA_KEY_SIZE]);

/* Connections of authenticated peers, only with OpenSSL: derives the name of a secret, so that
 * sockets join without showing the secret itself. The first 16 bytes of SHA-256 over "rdmux join",
 * its NUL, and the secret. */
bool rdmux_join_name(const uint8_t secret[RDMUX_SECRET_SIZE], uint8_t out[RDMUX_SECRET_SIZE]);
/* Seals a JOIN by this secret; its other fields are filled in already. */
bool rdmux_join_seal(struct rdmux_join *join, const uint8_t secret[RDMUX_SECRET_SIZE]);
/* Returns whether the JOIN was sealed by this secret. */
bool rdmux_join_is_sealed_by(const struct rdmux_join *join, const uint8_t secret[RDMUX_SECRET_SIZE]);
/* Tokens for one peer alone, only with OpenSSL: the first 16 bytes of HMAC-SHA-256 with the
 * region's secret as key, over "rdmux grant", its NUL, and the peer's identity. False: no
 * memory. */
bool rdmux_grant_bits(const uint8_t secret[RDMUX_SECRET_SIZE], const char *identity,
                      uint8_t out[RDMUX_SECRET_SIZE]);
/* Compares in constant time. */
bool rdmux_secret_matches(const uint8_t a[RDMUX_SECRET_SIZE], const uint8_t b[RDMUX_SECRET_SIZE]);

#endif
