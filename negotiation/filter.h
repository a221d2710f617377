/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Path filters: "auto", "roce,tcp", "!shm"; unordered, intersecting. Pure. */
#ifndef RDMUX_NEGOTIATION_FILTER_H
#define RDMUX_NEGOTIATION_FILTER_H

#include <rdmux/rdmux.h>

#include <stdbool.h>

enum { RDMUX_FILTER_MAX = 256 }; /* bytes of a filter's text with its NUL */

/* Checks that text is a filter. Names are [a-z0-9_-]; blanks around them are skipped. RDMUX_INVALID
 * sets *word (may be NULL) to the bad word, which points into text. Does not check that a named
 * provider exists: a plug-in may bring any. */
enum rdmux_status rdmux_filter_check(const char *text, const char **word);

/* Returns whether the filter allows this provider. NULL and "" are "auto". In an unchecked text (a
 * peer's) a word that is not a name matches no provider. */
bool rdmux_filter_allows(const char *text, const char *provider);

/* Returns whether the filter names this provider, not negated. "auto" names none. */
bool rdmux_filter_names(const char *text, const char *provider);

#endif
