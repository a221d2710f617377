/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Explanations: candidates as structs and as JSON. */
#ifndef RDMUX_NEGOTIATION_EXPLAIN_H
#define RDMUX_NEGOTIATION_EXPLAIN_H

#include <rdmux/provider.h>

#include <stddef.h>

/* Creates an explanation that the caller owns. It is freed by rdmux_explanation_free() and uses
 * plain malloc, so that it may outlive its fabric. Composes text: the chosen path and why, or "no
 * path: PROVIDER DEVICE: REASON (text); …" with every candidate. NULL: out of memory. */
struct rdmux_explanation *rdmux_explanation_create(enum rdmux_status status,
                                                   const struct rdmux_candidate *candidates,
                                                   size_t count, const char *peer_address);

/* Returns the name of one RDMUX_CAP_* bit in texts and JSON, such as "send" or "read". NULL: the
 * bit has none. */
const char *rdmux_capability_name(uint64_t capability);
/* Lists the names of these bits, as "send, read", cut to size; bits without a name are left out. */
void rdmux_capability_list(uint64_t capabilities, char *out, size_t size);

/* Appends to a text of size bytes, cut to fit. */
void rdmux_text_add(char *text, size_t size, const char *format, ...) RDMUX_PRINTF(3, 4);
/* Makes a peer's text printable: a '?' replaces each control character and each byte that is not
 * UTF-8. */
void rdmux_text_clean(char *text);

/* Writes one line with every candidate's reason, cut to size: the error text of RDMUX_NO_PATH.
 * Equal verdicts are told once. Last come pairs that cannot reach each other where the path of this
 * side has one that could. */
void rdmux_explain_no_path(const struct rdmux_candidate *candidates, size_t count, char *out,
                           size_t size);

#endif
