/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* This thread's last error. */
#ifndef RDMUX_API_BASE_ERROR_H
#define RDMUX_API_BASE_ERROR_H

#include <rdmux/provider.h>

enum { RDMUX_ERROR_MAX = 2048 }; /* bytes of an error text: every candidate of a negotiation fits */

/* Sets this thread's error text and returns status. */
enum rdmux_status rdmux_fail(enum rdmux_status status, const char *format, ...) RDMUX_PRINTF(2, 3);
/* The same for RDMUX_AGAIN on the data path, where it is no failure and must cost nothing: text is
 * kept by reference. */
enum rdmux_status rdmux_again(const char *text);
/* Empties it, so that a provider that sets none leaves no stale text. */
void rdmux_error_clear(void);

#endif
