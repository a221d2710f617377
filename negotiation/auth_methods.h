/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#ifndef RDMUX_NEGOTIATION_AUTH_METHODS_H
#define RDMUX_NEGOTIATION_AUTH_METHODS_H

#include <stddef.h>
#include <stdint.h>

/* Explains why two sides whose methods (as in HELLO) differ cannot connect, and which setting to
 * change. */
void rdmux_auth_explain_mismatch(uint32_t ours, uint32_t theirs, char *out, size_t size);

#endif
