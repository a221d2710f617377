/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The last error of a thread. */
#ifndef RDMUX_API_BASE_ERROR_H
#define RDMUX_API_BASE_ERROR_H

#include <rdmux/provider.h>

enum { RDMUX_ERROR_MAX = 2048 }; /* bytes of an error text; fits every candidate of a negotiation */

/* Sets the error text of this thread and returns status. */
enum rdmux_status rdmux_fail(enum rdmux_status status, const char *format, ...) RDMUX_PRINTF(2, 3);
/* Does the same for RDMUX_AGAIN on the data path, where RDMUX_AGAIN is no failure and must cost
 * nothing. Keeps text by reference. */
enum rdmux_status rdmux_again(const char *text);
/* Says what an errno value means, in English. The text is constant. */
const char *rdmux_errno_words(int error);
/* Empties the error text, so that a provider that sets none leaves no stale text. */
void rdmux_error_clear(void);

#endif
