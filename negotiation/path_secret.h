/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#ifndef RDMUX_NEGOTIATION_PATH_SECRET_H
#define RDMUX_NEGOTIATION_PATH_SECRET_H

#include <rdmux/provider.h>

#include <stdint.h>

/* The secret of one attempted path, from the connection's secret. With OpenSSL: the first 16 bytes
 * of SHA-256 over "rdmux path" and its NUL, the connection's secret, and the attempt
 * (big-endian). */
void rdmux_path_secret(const uint8_t secret[RDMUX_SECRET_SIZE], uint32_t attempt,
                       uint8_t out[RDMUX_SECRET_SIZE]);

#endif
